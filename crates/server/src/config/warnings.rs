//! Warnings about a valid configuration.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ipnet::IpNet;
use tidegate_proxy::{RuleTarget, Senders};

use super::diagnostic::nearest;
use super::tables::listen::ClientCertificate;
use super::user;
use super::word::METHODS;
use super::{Config, Listen, Pool};

/// The laws that begin to reject new work when the queue reaches a high watermark. Each law comes
/// with its parameter that sets this watermark.
const WATERMARKS: [(&str, &str); 2] = [("ohta", "hi_wm"), ("asterisk", "high_water")];

impl Config {
    /// Returns a line for each setting that is valid but may not do what was intended.
    pub fn warnings(&self) -> Vec<String> {
        let admin = self.admin.address.and_then(admin_warning);
        let listeners = self.listen.iter().flat_map(listener_warnings);
        let pools = self.pool.iter().flat_map(|pool| self.pool_warnings(pool));
        let routes = self.method_warnings().into_iter().chain(self.idle_pool_warnings());
        let routes = routes.chain(self.trusted_route_warning());
        let others = self.spared_warning().into_iter().chain(self.watermark_warning());
        admin.into_iter().chain(listeners).chain(pools).chain(routes).chain(others).collect()
    }

    /// Returns warnings about a pool whose back ends are not authenticated.
    fn pool_warnings(&self, pool: &Pool) -> Vec<String> {
        let name = &pool.name;
        let verify = (self.transport(pool).is_secure() && !pool.tls.verify).then(|| {
            format!(
                "the pool `{name}` has `verify = false`: Tidegate accepts any certificate, so \
                 anyone between Tidegate and the back ends can read and change calls; remove \
                 `verify`, and set `[pool.tls] ca` to the authorities of the back ends and \
                 `server_name` to the name in their certificates"
            )
        });
        let sources = pool.backends.iter().flat_map(|backend| {
            let families = self.listen.iter().filter_map(|own| open_to_all(own, &backend.sources));
            families.collect::<BTreeSet<_>>().into_iter().map(move |family| {
                format!(
                    "the back end `{}` has every {family} address in `sources`: everyone who can \
                     reach Tidegate can send requests through it to any address (an open relay); \
                     list only addresses of the back end",
                    backend.name
                )
            })
        });
        verify.into_iter().chain(sources).collect()
    }

    /// Returns a warning for each method of a route that no RFC defines. RFC 3261 §25.1
    /// (`extension-method`) allows such a method, but most are misspellings.
    fn method_warnings(&self) -> Vec<String> {
        let methods = self.route.iter().flat_map(|route| &route.methods);
        let unknown = methods.filter(|method| !METHODS.contains(&method.as_str()));
        let warning = |method: &String| {
            let near = nearest(method, METHODS).map(|near| format!("; did you mean `{near}`?"));
            format!(
                "a `[[route]]` has the method `{method}`, which no RFC defines{}",
                near.unwrap_or_default()
            )
        };
        unknown.map(warning).collect()
    }

    /// Returns a warning if a route is for trusted sources, but no listener trusts a source. Back
    /// ends match such a route too, so it may be intended.
    fn trusted_route_warning(&self) -> Option<String> {
        let is_for_trusted = self.route.iter().any(|route| route.from == Senders::Trusted);
        let is_any_trusted = self.listen.iter().any(|listen| !listen.trust.is_empty());
        (is_for_trusted && !is_any_trusted).then(|| {
            "a `[[route]]` has `from = \"trusted\"`, but no `[[listen]]` has an address in `trust`, \
             so at most back ends match this route; list your peers in `trust` of the `[[listen]]` \
             that receives their requests, or, if no earlier route is for back ends, write \
             `from = \"pool\"`"
                .to_owned()
        })
    }

    /// Returns a warning for each pool that gets no new requests from a route or as a backup.
    ///
    /// A request or a contact may still name the address of a back end. Returns no warning if a
    /// route or a contact shows that this is intended.
    fn idle_pool_warnings(&self) -> Vec<String> {
        if self.route.iter().any(|route| route.to == RuleTarget::RequestUri) {
            return Vec::new();
        }
        let contacts = self.user.iter().flat_map(|user| &user.contacts);
        let contacts: BTreeSet<_> = contacts.filter_map(|contact| user::address(contact)).collect();
        let routed = self.route.iter().filter_map(|route| match route.to {
            RuleTarget::Pool(index) => Some(index),
            RuleTarget::RequestUri | RuleTarget::Users => None,
        });
        let backup = |&index: &usize| {
            let name = self.pool[index].backup.as_ref()?;
            self.pool.iter().position(|pool| pool.name == *name)
        };
        let routed: BTreeSet<usize> = routed.collect();
        // The reader rejects loops of backup pools, so this ends.
        let used = routed.into_iter().flat_map(|first| std::iter::successors(Some(first), backup));
        let used: BTreeSet<usize> = used.collect();
        let is_contact = |pool: &Pool| {
            let mut addresses = pool.backends.iter().filter_map(|one| one.endpoint.address());
            addresses.any(|address| contacts.contains(&address))
        };
        let idle = self.pool.iter().enumerate();
        let idle = idle.filter(|(index, pool)| !used.contains(index) && !is_contact(pool));
        let warning = |(_, Pool { name, .. }): (usize, &Pool)| {
            format!(
                "no route and no `backup` leads to the pool `{name}`: its servers get new requests \
                 only if the Request-URI, a Route or a contact has their address; if they should \
                 get other requests, add a `[[route]]` for these with `to = \"{name}\"`"
            )
        };
        idle.map(warning).collect()
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

/// Returns warnings about a listener that trusts everyone.
fn listener_warnings(listen: &Listen) -> Vec<String> {
    let at = format!("{} {}", listen.transport.name().to_ascii_lowercase(), listen.address);
    let trust = open_to_all(listen, &listen.trust).map(|family| {
        format!(
            "the `[[listen]]` at {at} has every {family} address in `trust`: everyone who can \
             reach it can send requests through Tidegate to any address (an open relay); list only \
             the addresses of your own peers"
        )
    });
    let identity = open_to_all(listen, &listen.trust_identity).map(|family| {
        format!(
            "the `[[listen]]` at {at} has every {family} address in `trust_identity`: everyone who \
             can reach it can call in the name of anyone else; list only the addresses of your own \
             peers"
        )
    });
    trust.into_iter().chain(identity).collect()
}

/// Returns the address family of `listen` if `networks` contain every address of this family, and
/// every machine may send requests to `listen`: it has no loopback address and requires no
/// certificates of clients. No packet of the other family arrives at its sockets.
fn open_to_all(listen: &Listen, networks: &[IpNet]) -> Option<&'static str> {
    let needs_certificate =
        listen.client_ca.is_some() && listen.client_certificate == ClientCertificate::Required;
    let is_open = !listen.address.ip().is_loopback() && !needs_certificate;
    let own = if listen.address.is_ipv4() { "IPv4" } else { "IPv6" };
    whole_families(networks).find(|family| is_open && *family == own)
}

/// Returns the address families, IPv4 or IPv6, of which `networks` contain every address.
pub(super) fn whole_families(networks: &[IpNet]) -> impl Iterator<Item = &'static str> {
    let joined = IpNet::aggregate(&networks.to_vec());
    joined.into_iter().filter(|net| net.prefix_len() == 0).map(|net| match net {
        IpNet::V4(_) => "IPv4",
        IpNet::V6(_) => "IPv6",
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("t.toml"), text.as_bytes()).unwrap()
    }

    fn warnings(tables: &str) -> Vec<String> {
        let text = format!(
            "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:5060\"\n[[pool]]\nname = \"app\"\n\
             [[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n{tables}"
        );
        config(&text).warnings()
    }

    /// Returns the warnings about a listener with `keys`, and about a back end with `sources`.
    fn listening(transport: &str, address: &str, keys: &str, sources: &str) -> Vec<String> {
        // Requests to the back end leave from the second listener.
        let text = format!(
            "[[listen]]\ntransport = \"{transport}\"\naddress = \"{address}\"\n{keys}\n\
             [[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:5070\"\n[[pool]]\n\
             name = \"app\"\ntransport = \"udp\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n\
             sources = [{sources}]\n"
        );
        config(&text).warnings()
    }

    #[test]
    fn a_listener_that_trusts_everyone_is_reported() {
        const V4: &str = "192.0.2.1:5060";
        const V6: &str = "[2001:db8::1]:5060";
        for (networks, address, family) in [
            ("\"0.0.0.0/0\"", V4, Some("IPv4")),
            ("\"0.0.0.0/0\"", V6, None),
            ("\"::/0\"", V6, Some("IPv6")),
            ("\"::/0\"", V4, None),
            ("\"0.0.0.0/1\", \"128.0.0.0/1\"", V4, Some("IPv4")),
            ("\"0.0.0.0/0\", \"::/0\"", V4, Some("IPv4")),
            ("\"0.0.0.0/0\", \"::/0\"", V6, Some("IPv6")),
            ("\"10.0.0.0/8\", \"2001:db8::/32\"", V4, None),
            // Only this machine can reach the listener.
            ("\"0.0.0.0/0\", \"::/0\"", "127.0.0.1:5060", None),
            ("\"0.0.0.0/0\", \"::/0\"", "[::1]:5060", None),
        ] {
            for key in ["trust", "trust_identity"] {
                let told = listening("udp", address, &format!("{key} = [{networks}]"), "");
                assert_eq!(told.len(), usize::from(family.is_some()), "{networks}: {told:?}");
                if let Some(family) = family {
                    let expected = format!("udp {address} has every {family} address in `{key}`");
                    assert!(told[0].contains(&expected), "{told:?}");
                }
            }
            let told = listening("udp", address, "", networks);
            assert_eq!(told.len(), usize::from(family.is_some()), "{networks}: {told:?}");
            if let Some(family) = family {
                let expected = format!("has every {family} address in `sources`");
                assert!(told[0].contains(&expected), "{told:?}");
            }
        }
    }

    /// A certificate decides who may connect. Peers whose addresses change can be trusted only by
    /// all addresses.
    #[test]
    fn a_listener_that_requires_certificates_does_not_trust_everyone() {
        let keys = "certificate = \"/own.pem\"\nprivate_key = \"/own.key\"\n\
                    client_ca = \"/clients.pem\"\ntrust = [\"0.0.0.0/0\"]\n";
        for (more, count) in [("", 0), ("client_certificate = \"optional\"\n", 1)] {
            let told = listening("tls", "192.0.2.1:5061", &format!("{keys}{more}"), "");
            assert_eq!(told.len(), count, "{told:?}");
        }
    }

    #[test]
    fn the_summary_says_that_a_listener_trusts_everyone() {
        let config = config(
            "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:5060\"\n\
             trust = [\"0.0.0.0/0\", \"2001:db8::/32\"]\n[[pool]]\nname = \"app\"\n\
             [[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n",
        );
        let expected = "udp 127.0.0.1:5060, trusts 2 networks (all IPv4 addresses)\n";
        assert!(config.to_string().contains(expected), "{config}");
    }

    #[test]
    fn a_pool_without_verification_of_certificates_is_reported() {
        let over_tls = |pool_tls: &str| {
            config(&format!(
                "[[listen]]\ntransport = \"tls\"\naddress = \"127.0.0.1:5061\"\n\
                 certificate = \"/own.pem\"\nprivate_key = \"/own.key\"\n[[pool]]\n\
                 name = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n{pool_tls}"
            ))
        };
        for verified in ["", "[pool.tls]\nverify = true\n", "[pool.tls]\nca = \"/ca.pem\"\n"] {
            assert_eq!(over_tls(verified).warnings(), [""; 0], "{verified}");
        }
        let config = over_tls("[pool.tls]\nverify = false\n");
        let told = config.warnings();
        assert!(told.len() == 1 && told[0].contains("`app` has `verify = false`"), "{told:?}");
        // A back end at an address usually has a certificate for a name.
        assert!(told[0].contains("`server_name` to the name in their certificates"), "{told:?}");
        let expected = "1 back end over tls, certificates not verified\n";
        assert!(config.to_string().contains(expected), "{config}");
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
    fn a_method_that_no_rfc_defines_is_reported() {
        let told = warnings("[[route]]\nmethod = [\"INVTE\", \"BYE\"]\nto = \"app\"\n");
        assert!(told.len() == 1, "{told:?}");
        assert!(
            told[0].ends_with("`INVTE`, which no RFC defines; did you mean `INVITE`?"),
            "{told:?}"
        );
        let told = warnings("[[route]]\nmethod = [\"X-Own-Method\"]\nto = \"app\"\n");
        assert!(told.len() == 1 && told[0].ends_with("defines"), "{told:?}");
    }

    #[test]
    fn a_route_for_trusted_sources_without_trust_is_reported_once() {
        let routes = "[[route]]\nfrom = \"trusted\"\nmethod = [\"INVITE\"]\nto = \"app\"\n\
                      [[route]]\nfrom = \"trusted\"\nto = \"request-uri\"\n";
        let told = warnings(routes);
        assert!(told.len() == 1 && told[0].contains("at most back ends match"), "{told:?}");
        // Back ends match the first route. With `from = "pool"`, the second one would be an error.
        let for_backends = "[[route]]\nfrom = \"pool\"\nto = \"request-uri\"\n";
        let told = warnings(&format!("{for_backends}{}", for_backends.replace("pool", "trusted")));
        assert!(told.len() == 1 && told[0].contains("if no earlier route is for"), "{told:?}");
        assert_eq!(warnings(&routes.replace("trusted", "pool")), [""; 0]);
        let text = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:5060\"\n\
                    trust = [\"192.0.2.7\"]\n[[pool]]\nname = \"app\"\n[[pool.backend]]\n\
                    uri = \"sip:127.0.0.1:9\"\n";
        assert_eq!(config(&format!("{text}{routes}")).warnings(), [""; 0]);
    }

    #[test]
    fn a_pool_without_new_requests_is_reported() {
        let pool = |name: &str, more: &str| {
            format!(
                "[[pool]]\nname = \"{name}\"\n{more}\n[[pool.backend]]\nuri = \"sip:{name}:9\"\n"
            )
        };
        let told = |pools: &str, to: &str| warnings(&format!("{pools}[[route]]\nto = \"{to}\"\n"));
        let lonely = told(&pool("b", ""), "app");
        assert!(lonely.len() == 1 && lonely[0].contains("leads to the pool `b`:"), "{lonely:?}");
        let chain = pool("b", "backup = \"c\"") + &pool("c", "backup = \"app\"");
        assert_eq!(told(&chain, "b"), [""; 0]);
        // The backup of a pool without new requests gets none either.
        assert_eq!(told(&chain, "app").len(), 2);
        let of_user = |port: u16| {
            format!("[[user]]\naor = \"sip:a@b.example\"\ncontact = [\"sip:c@127.0.0.1:{port}\"]\n")
        };
        let lonely = told(&of_user(7), "users");
        assert!(lonely.len() == 1 && lonely[0].contains("leads to the pool `app`:"), "{lonely:?}");
        // Requests for the user go to the back end at port 9.
        assert_eq!(told(&of_user(9), "users"), [""; 0]);
        // Back ends reach each other by the Request-URI.
        let by_uri = "[[route]]\nfrom = \"pool\"\nto = \"request-uri\"\n";
        assert_eq!(told(&(pool("b", "") + by_uri), "app"), [""; 0]);
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
