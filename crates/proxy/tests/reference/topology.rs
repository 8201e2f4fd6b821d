//! The pools of both proxies, and the rules for reaching them.

use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{Choice, PoolSettings, Rule, RuleTarget, Senders};

use super::proxy::Proxy;
use super::script::{PROXY, Script, address, stateless};
use super::step::Domain;
use super::surroundings::{Kind, Pool};

/// Back ends of the pools, by domain.
pub const APP: [&str; 4] = ["10.0.0.1:5070", "10.0.0.2:5070", "10.0.0.3:5070", "10.0.0.4:5070"];
pub const FORK: [&str; 5] =
    ["10.0.1.1:5070", "10.0.1.2:5070", "10.0.1.3:5070", "10.0.1.4:5070", "10.0.1.5:5070"];
pub const FORK_Q: [u16; 5] = [1000, 500, 1000, 500, 250];
pub const PLAIN: [&str; 2] = ["10.0.2.1:5070", "10.0.2.2:5070"];

impl Domain {
    pub fn name(self) -> &'static str {
        match self {
            Self::App => "app.example",
            Self::Fork => "fork.example",
            Self::Plain => "plain.example",
        }
    }
}

/// Makes the core, with its pools in the order of [`Domain`].
pub fn core() -> Script {
    let pool = |domain: Domain, backends: &[&str]| {
        let backends: Vec<_> = backends.iter().map(|at| (*at, address(at), 1)).collect();
        balance::Pool::new(domain.name(), &backends)
    };
    let rule = |from, domain: Option<Domain>, to| Rule {
        domains: domain.into_iter().map(|d| d.name().to_owned()).collect(),
        ..Rule::new(from, to)
    };
    Script::with(Policy::Rr, |settings| {
        let fork = PoolSettings {
            choice: Choice::All(FORK_Q.to_vec()),
            ..PoolSettings::new(pool(Domain::Fork, &FORK), Policy::Rr)
        };
        // The reference implements RFC 3261, which has no limit on amplification.
        settings.amplification_max = 0;
        settings.pools = vec![
            PoolSettings::new(pool(Domain::App, &APP), Policy::Rr),
            fork,
            stateless(pool(Domain::Plain, &PLAIN)),
        ];
        settings.rules = vec![
            rule(Senders::Pool, Some(Domain::App), RuleTarget::Pool(0)),
            rule(Senders::Pool, None, RuleTarget::RequestUri),
            rule(Senders::Any, Some(Domain::App), RuleTarget::Pool(0)),
            rule(Senders::Any, Some(Domain::Fork), RuleTarget::Pool(1)),
            rule(Senders::Any, Some(Domain::Plain), RuleTarget::Pool(2)),
        ];
    })
}

/// Makes the reference with the same pools.
pub fn reference() -> Proxy {
    let model = |domain: Domain, kind, backends: &[&str], q: &[u16]| {
        let backends: Vec<_> =
            backends.iter().map(|at| address(at)).zip(q.iter().copied()).collect();
        Pool::new(domain.name(), kind, &backends)
    };
    let pools = vec![
        model(Domain::App, Kind::One, &APP, &[1000; 4]),
        model(Domain::Fork, Kind::Fork, &FORK, &FORK_Q),
        model(Domain::Plain, Kind::Stateless, &PLAIN, &[1000; 2]),
    ];
    Proxy::new(address(PROXY), pools)
}
