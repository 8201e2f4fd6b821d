//! Warnings about a valid configuration.

use std::net::SocketAddr;

use super::Config;

/// The laws that begin to reject new work when the queue reaches a high watermark. Each law comes
/// with its parameter that sets this watermark.
const WATERMARKS: [(&str, &str); 2] = [("ohta", "hi_wm"), ("asterisk", "high_water")];

impl Config {
    /// Returns a line for each setting that is valid but may not do what was intended.
    pub fn warnings(&self) -> Vec<String> {
        let admin = self.admin.address.and_then(admin_warning);
        let others = self.spared_warning().into_iter().chain(self.watermark_warning());
        admin.into_iter().chain(others).collect()
    }

    /// Returns a warning if the queue of a shard is too small for the high watermark of the law.
    fn watermark_warning(&self) -> Option<String> {
        let law = &self.overload.gate.law;
        let (name, key) = WATERMARKS.into_iter().find(|(name, _)| *name == law.entry().name)?;
        let (_, watermark) = law.each().find(|(param, _)| param.name == key)?;
        let room = (self.server.queue_max / usize::from(self.server.shards)).max(1);
        (watermark > room as f64).then(|| {
            format!(
                "the law `{name}` never rejects a call: `{key}` is {watermark}, but the queue of a \
                 shard is full with {room} calls (`[server] queue_max` divided by `shards`); write \
                 a `{key}` of at most {room}, or a higher `queue_max`"
            )
        })
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

    fn warnings(tables: &str) -> Vec<String> {
        let text = format!(
            "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:5060\"\n[[pool]]\nname = \"app\"\n\
             [[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n{tables}"
        );
        Config::parse(Path::new("t.toml"), text.as_bytes()).unwrap().warnings()
    }

    #[test]
    fn an_admin_interface_that_other_machines_can_reach_is_reported() {
        let warnings = |address: &str| warnings(&format!("[admin]\naddress = \"{address}\"\n"));
        for address in ["0.0.0.0:9090", "[::]:9090", "192.0.2.1:9090", "[2001:db8::1]:9090"] {
            let told = warnings(address);
            assert!(told.len() == 1 && told[0].contains("no password"), "{address}: {told:?}");
        }
        for address in ["127.0.0.1:9090", "127.0.0.9:9090", "[::1]:9090", "off"] {
            assert_eq!(warnings(address), [""; 0], "{address}");
        }
    }

    #[test]
    fn a_watermark_above_the_queue_of_a_shard_is_reported() {
        for (server, overload, is_reported) in [
            ("shards = 8", "law = \"ohta\"", true),
            ("shards = 5", "law = \"ohta\"", false),
            ("queue_max = 512", "law = \"ohta\"", true),
            ("queue_max = 512", "law = \"ohta\"\nparams = { hi_wm = 512 }", false),
            ("shards = 9", "law = \"asterisk\"", true),
            ("shards = 8", "law = \"asterisk\"", false),
            ("shards = 256", "law = \"tide\"", false),
        ] {
            let told = warnings(&format!("[server]\n{server}\n[overload]\n{overload}\n"));
            let reported: Vec<_> =
                told.iter().filter(|line| line.contains("never rejects")).collect();
            assert_eq!(reported.len(), usize::from(is_reported), "{server}, {overload}: {told:?}");
        }
    }
}
