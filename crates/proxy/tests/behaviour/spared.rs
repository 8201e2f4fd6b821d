//! The sources whose INVITEs the kernel does not drop under overload.

use std::time::Duration;

use crate::fixed::law;
use crate::script::*;
use tidegate_balance::Policy;
use tidegate_proxy::{Disposal, Settings, network_of};
use tidegate_world::{Core, Load, Shedding};

const TRUSTED: &str = "203.0.113.7:5060";

/// Returns the shedding that a proxy in a flood asks of the kernel, and some INVITEs that the
/// kernel then drops. Checks that operators see the same heavy sources as the kernel.
fn flooded(adjust: impl FnOnce(&mut Settings)) -> (Shedding, Vec<String>) {
    flooded_by(invite, adjust)
}

/// Does the same as [`flooded`], in a flood of these messages.
fn flooded_by(
    message: impl Fn(&str) -> String,
    adjust: impl FnOnce(&mut Settings),
) -> (Shedding, Vec<String>) {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.overload.gate.law = law(&[("share", 0.0)]);
        settings.overload.disposal = Disposal::Auto;
        adjust(settings);
    });
    let mut busy = crate::overload::saturate(&mut script);
    for period in 0..20 {
        (0..20).for_each(|call| drop(script.send(CALLER, &message(&format!("{period}-{call}")))));
        script.pass(Duration::from_millis(100));
        busy += Duration::from_millis(90);
        let load = Load { busy, cpu: busy / 2, socket_fill: 0.25, ..Load::default() };
        script.proxy.on_load(script.now, load);
    }
    let flood = script.proxy.poll_shedding().clone();
    let published = script.counters.heavy.get();
    let addresses = published.iter().map(|heavy| network_of(heavy.source).addr());
    assert!(addresses.eq(flood.heavy.iter().map(|network| network.address)), "{published:?}");
    let is_dropped = |text: &String| flood.drops(address(CALLER).ip(), text.as_bytes());
    let dropped: Vec<_> = (0..50).map(|n| message(&n.to_string())).filter(is_dropped).collect();
    assert!(dropped.len() > 10, "{}", flood.share);
    (flood, dropped)
}

/// A server behind the proxy sends the second leg of calls that the proxy has admitted. A trusted
/// trunk may send most of the load, so its INVITEs are dropped like others.
#[test]
fn the_kernel_drops_no_invite_of_a_back_end() {
    let (flood, dropped) = flooded(|settings| {
        settings.listeners[0].trust = vec!["203.0.113.0/28".parse().unwrap()];
    });
    let drops = |from: &str, text: &String| flood.drops(address(from).ip(), text.as_bytes());
    for text in &dropped {
        assert_eq!(
            [CALLER, BACKEND_A, BACKEND_B].map(|from| drops(from, text)),
            [true, false, false]
        );
    }
    assert!(dropped.iter().any(|text| drops(TRUSTED, text)));
}

/// After an outage all phones register again at the same time.
#[test]
fn the_kernel_drops_registers_of_a_flood() {
    let register = |call: &str| request("REGISTER", "sip:example.com", call, 1, "");
    let (flood, dropped) = flooded_by(register, |settings| {
        settings.overload.gate.sources.fair = true;
    });
    let drops = |from: &str| flood.drops(address(from).ip(), dropped[0].as_bytes());
    assert_eq!([CALLER, TRUSTED].map(drops), [true, false]);
}

/// With fair shares, one source that floods does not make the kernel drop the INVITEs of others.
#[test]
fn the_kernel_drops_only_invites_of_the_source_that_floods() {
    let (flood, dropped) = flooded(|settings| settings.overload.gate.sources.fair = true);
    let drops = |from: &str| flood.drops(address(from).ip(), dropped[0].as_bytes());
    assert_eq!([CALLER, TRUSTED].map(drops), [true, false]);
    assert_eq!(flood.heavy.len(), 1);
}

#[test]
fn an_address_that_others_share_is_not_spared() {
    // The proxy has the address of a back end, so a caller may have it too.
    let (flood, dropped) =
        flooded(|settings| settings.listeners[0].local = address("10.0.0.1:5060"));
    let drops = |from: &str| flood.drops(address(from).ip(), dropped[0].as_bytes());
    assert_eq!([BACKEND_A, BACKEND_B].map(drops), [true, false]);
}

/// Neighbours take one place together.
#[test]
fn as_many_networks_are_spared_as_the_kernel_has_room_for() {
    let spared = |step: usize| {
        let (flood, _) = flooded(|settings| {
            let net = |n: usize| format!("203.0.113.{}/32", n * step).parse().unwrap();
            settings.overload.sources.never_ban = (0..100).map(net).collect();
        });
        flood.spared.len()
    };
    assert_eq!(spared(2), Shedding::SPARED_MAX);
    // The network 203.0.113.0/26 and two more, and the two back ends.
    assert_eq!(spared(1), 5);
}
