//! Warnings about a valid configuration.

use std::net::SocketAddr;

use super::Config;

impl Config {
    /// Returns a line for each setting that is valid but may not do what was intended.
    pub fn warnings(&self) -> Vec<String> {
        let admin = self.admin.address.and_then(admin_warning);
        admin.into_iter().chain(self.spared_warning()).collect()
    }
}

/// Returns a warning if other machines can reach the admin interface at `address`.
fn admin_warning(address: SocketAddr) -> Option<String> {
    (!address.ip().is_loopback()).then(|| {
        format!(
            "other machines can reach the admin interface at {address}, which asks for no \
             password: each of them can change the law, take back ends out of service and reload; \
             let a firewall admit only trusted machines, or set `[admin] address = \
             \"127.0.0.1:8060\"`"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn warnings(admin: &str) -> Vec<String> {
        let text = format!(
            "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:5060\"\n[[pool]]\nname = \"app\"\n\
             [[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n[admin]\naddress = \"{admin}\"\n"
        );
        Config::parse(Path::new("t.toml"), text.as_bytes()).unwrap().warnings()
    }

    #[test]
    fn an_admin_interface_that_other_machines_can_reach_is_reported() {
        for address in ["0.0.0.0:9090", "[::]:9090", "192.0.2.1:9090", "[2001:db8::1]:9090"] {
            let told = warnings(address);
            assert!(told.len() == 1 && told[0].contains("no password"), "{address}: {told:?}");
        }
        for address in ["127.0.0.1:9090", "127.0.0.9:9090", "[::1]:9090", "off"] {
            assert_eq!(warnings(address), [""; 0], "{address}");
        }
    }
}
