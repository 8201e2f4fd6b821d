//! Proxies with limited back ends.

use std::time::Duration;

use tidegate_balance::{Limits, Policy, Pool};
use tidegate_control::Reason;
use tidegate_proxy::{Mode, Priority, ResourceValues, Settings, Sources};

use crate::script::{CALLER, Script, Sent, address, invite, request};

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn calls(calls_max: u64) -> Limits {
    Limits { calls_max: Some(calls_max), ..Limits::default() }
}

pub fn rate(cps_max: f64) -> Limits {
    Limits { cps_max: Some(cps_max), ..Limits::default() }
}

/// Makes a proxy in this mode with the back ends `a` and `b` and these limits.
pub fn limited(mode: Mode, limits: [Limits; 2]) -> Script {
    limited_with(mode, limits, |_| {})
}

pub fn limited_with(mode: Mode, limits: [Limits; 2], adjust: impl FnOnce(&mut Settings)) -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = mode;
        set(&settings.pools[0].pool, &limits);
        adjust(settings);
    })
}

pub fn set(pool: &Pool, limits: &[Limits]) {
    for (backend, limits) in pool.backends().iter().zip(limits) {
        backend.set_limits(limits);
    }
}

/// Returns the first packet that does not go to the caller, or `None` if there is none.
pub fn forwarded(sent: Vec<Sent>) -> Option<Sent> {
    sent.into_iter().find(|sent| sent.to != address(CALLER))
}

/// Sends an INVITE and lets the selected back end answer the call. Returns the forwarded INVITE, or
/// `None` if the proxy rejected it.
pub fn call(s: &mut Script, name: &str) -> Option<Sent> {
    let there = forwarded(s.send(CALLER, &invite(name)))?;
    s.send(&there.to.to_string(), &there.answer("200 OK"));
    s.send(CALLER, &request("ACK", "sip:bob@192.0.2.1", name, 1, "Totag\r\n"));
    Some(there)
}

pub fn end(s: &mut Script, name: &str) {
    let bye = request("BYE", "sip:bob@192.0.2.1", name, 2, "Totag\r\n");
    let there = forwarded(s.send(CALLER, &bye)).expect("a BYE goes where its call is");
    s.send(&there.to.to_string(), &there.answer("200 OK"));
}

pub fn rejected(s: &Script) -> u64 {
    s.counters.rejected(Reason::PoolFull).get()
}

/// Gives priority to the emergency calls of the caller, up to ten per second.
pub fn believe_emergencies(settings: &mut Settings) {
    settings.overload.sources = Sources {
        priority: Some(Priority {
            from: vec!["198.51.100.0/24".parse().unwrap()],
            emergency: true,
            values: ResourceValues::default(),
            rate_cps: 10.0,
        }),
        ..Sources::default()
    };
}

pub fn emergency(name: &str) -> String {
    request("INVITE", "urn:service:sos", name, 1, "")
}
