//! The networks whose INVITEs and REGISTERs the kernel delivers even while it drops those of
//! other networks.

use ipnet::IpNet;
use tidegate_proxy::Disposal;
use tidegate_world::Shedding;

use super::{Backend, Config};

impl Config {
    /// Returns a warning if more networks must be exempt from dropping in the kernel than the
    /// kernel has room for.
    pub(super) fn spared_warning(&self) -> Option<String> {
        let drops = matches!(self.overload.disposal, Disposal::Auto | Disposal::Kernel);
        let (count, most) = (self.spared_networks().len(), Shedding::SPARED_MAX);
        (drops && count > most).then(|| {
            format!(
                "this file has {count} networks whose INVITEs and REGISTERs the kernel should not \
                 drop, but the kernel can spare at most {most}. It spares the first of them in \
                 this order: `from` of `[overload.priority]`, back ends, `sources` of back ends, \
                 `never_ban`, `[[overload.weight]]`, `peers` of `[overload.feedback]`. To spare \
                 more, write neighbouring addresses as one network"
            )
        })
    }

    /// Returns the networks that are exempt from dropping in the kernel. Networks that together
    /// form a larger network are joined.
    fn spared_networks(&self) -> Vec<IpNet> {
        let sources = &self.overload.sources;
        let backends = || self.pool.iter().flat_map(|pool| &pool.backends);
        let own = |backend: &Backend| Some(IpNet::from(backend.endpoint.address()?.ip()));
        let all = sources
            .priority
            .iter()
            .flat_map(|priority| &priority.from)
            .chain(backends().flat_map(|backend| &backend.sources))
            .chain(&sources.never_ban)
            .chain(&self.overload.feedback.peers)
            .copied()
            .chain(backends().filter_map(own))
            .chain(sources.weights.iter().map(|weight| weight.from))
            .collect();
        IpNet::aggregate(&all)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the warning about a file with these numbers of back ends and of other networks.
    fn warning(backends: usize, others: usize, more: &str) -> Option<String> {
        let backends: String = (0..backends)
            .map(|number| format!("[[pool.backend]]\nuri = \"sip:10.0.{number}.1\"\n"))
            .collect();
        let weights: String = (0..others)
            .map(|n| format!("[[overload.weight]]\nfrom = \"10.1.{n}.0/25\"\nweight = 2\n"))
            .collect();
        let text = format!(
            "[[listen]]\ntransport = \"udp\"\naddress = \"192.0.2.1:5060\"\n\
             [[pool]]\nname = \"app\"\npolicy = \"rr\"\n{backends}{more}{weights}"
        );
        Config::parse(Path::new("t.toml"), text.as_bytes()).unwrap().spared_warning()
    }

    #[test]
    fn networks_for_which_the_kernel_has_no_room_are_reported() {
        assert_eq!(warning(32, 32, ""), None);
        let told = warning(32, 33, "").unwrap();
        assert!(
            told.contains("this file has 65 networks") && told.contains("at most 64"),
            "{told}"
        );
        let peers = "[overload.feedback]\npeers = [\"192.0.2.20\"]\n";
        let told = warning(32, 32, peers).unwrap();
        assert!(told.contains("this file has 65 networks"), "{told}");
        // These cases bring no warning: the kernel drops nothing, or one network contains all
        // others.
        assert_eq!(warning(32, 33, "[overload]\ndisposal = \"reject\"\n"), None);
        let all = "[overload.sources]\nnever_ban = [\"10.0.0.0/8\"]\n";
        assert_eq!(warning(32, 33, all), None);
    }
}
