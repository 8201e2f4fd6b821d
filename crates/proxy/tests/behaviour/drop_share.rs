//! Tests of INVITEs in streams. The proxy itself drops them, because the kernel cannot.

use std::time::Duration;

use crate::fixed::law;
use crate::script::*;
use tidegate_balance::Policy;
use tidegate_control::Per;
use tidegate_proxy::{Class, Disposal, DropReason, Excess, Flood, Listener, Settings, SourceLimit};
use tidegate_world::{ConnectionId, Core, Flow, Load, Received, Transport};

/// A proxy with one call, whose callers have one TCP connection.
struct Scene {
    script: Script,
    flow: Flow,
    busy: Duration,
}

impl Scene {
    fn new(disposal: Disposal) -> Self {
        Self::with(disposal, |_| {})
    }

    fn with(disposal: Disposal, adjust: impl FnOnce(&mut Settings)) -> Self {
        let mut script = Script::with(Policy::Rr, |settings| {
            let streams = Listener { transport: Transport::Tcp, ..settings.listeners[0].clone() };
            settings.listeners.push(streams);
            settings.pools[0].listener = Some(0);
            settings.overload.gate.law = law(&[("share", 1.0)]);
            settings.overload.disposal = disposal;
            adjust(settings);
        });
        crate::overload::establish(&mut script, "established");
        script.proxy.switch(script.now, law(&[("share", 0.0)]), None);
        let id = ConnectionId::new(2).unwrap();
        let flow = Flow::connected(Transport::Tcp, address(PROXY), address(CALLER), id);
        let busy = crate::overload::saturate(&mut script);
        Self { script, flow, busy }
    }

    /// Delivers a message on the connection. Returns the number of packets that the proxy sends.
    fn send(&mut self, text: &str) -> usize {
        let text = text.replace("SIP/2.0/UDP", "SIP/2.0/TCP");
        let received =
            Received::new(self.script.now, self.flow, self.script.pool.copy(text.as_bytes()));
        self.script.proxy.offer(self.script.now, received);
        self.script.serve().len()
    }

    /// Lets a tenth of a second pass, in which the processor was occupied for `busy`.
    fn pass(&mut self, busy: Duration) {
        self.script.pass(Duration::from_millis(100));
        self.busy += busy;
        let load = Load { busy: self.busy, cpu: self.busy / 2, ..Load::default() };
        self.script.proxy.on_load(self.script.now, load);
    }

    /// Sends 20 INVITEs in each tenth of a second, for two seconds.
    fn flood(&mut self) {
        for period in 0..20 {
            for call in 0..20 {
                self.send(&invite(&format!("{period}-{call}")));
            }
            self.pass(Duration::from_millis(90));
        }
    }

    fn drop_share(&self) -> u64 {
        self.script.counters.dropped(DropReason::DropShare).get()
    }
}

#[test]
fn a_share_of_the_invites_in_streams_is_dropped_after_reading() {
    let mut scene = Scene::new(Disposal::Auto);
    scene.flood();
    assert!(scene.script.proxy.poll_shedding().shares[0] > 0.5);
    let before = (scene.drop_share(), scene.script.counters.replied(503).get());
    let answered: usize = (0..100).map(|call| scene.send(&invite(&format!("more-{call}")))).sum();
    let drop_share = scene.drop_share() - before.0;
    assert!((50..100).contains(&drop_share), "{drop_share}");
    assert_eq!(answered as u64 + drop_share, 100, "each INVITE is answered or dropped");
    assert_eq!(scene.script.counters.replied(503).get() - before.1, answered as u64);
    assert!(scene.script.counters.received(Class::Invite).get() >= 500, "all were read");
    // RFC 5031 §4.2: `urn:service:sos` is an emergency call.
    for call in 0..20 {
        let text = request("INVITE", "urn:service:sos", &format!("sos-{call}"), 1, "");
        assert!(scene.send(&text) > 0);
    }
}

/// A stranger can forge the address of a trunk over UDP, but cannot open a connection from it.
#[test]
fn a_flood_of_emergency_datagrams_does_not_drop_emergency_calls_in_streams() {
    let fair = |settings: &mut Settings| settings.overload.gate.sources.fair = true;
    let mut scene = Scene::with(Disposal::Auto, fair);
    let sos = |call: &str| request("INVITE", "urn:service:sos", call, 1, "");
    for period in 0..20 {
        for call in 0..20 {
            scene.script.send(CALLER, &sos(&format!("{period}-{call}")));
        }
        scene.pass(Duration::from_millis(90));
    }
    let shedding = scene.script.proxy.poll_shedding().clone();
    let caller = address(CALLER).ip();
    assert!(shedding.unspared.iter().any(|network| network.address == caller), "{shedding:?}");
    let calls: Vec<String> = (0..50).map(|call| sos(&format!("sos-{call}"))).collect();
    assert!(calls.iter().any(|call| shedding.drops(caller, call.as_bytes())), "{shedding:?}");
    let before = scene.drop_share();
    assert!(calls.iter().all(|call| scene.send(call) > 0), "each call is answered");
    assert_eq!(scene.drop_share(), before);
    // Other INVITEs in the stream are dropped like those over UDP.
    (0..50).for_each(|call| _ = scene.send(&invite(&format!("other-{call}"))));
    assert!(scene.drop_share() > before);
}

/// If emergency calls in streams counted as a flood, they would cause drops of a trunk's emergency
/// calls over UDP.
#[test]
fn emergency_calls_in_streams_are_no_flood() {
    let fair = |settings: &mut Settings| settings.overload.gate.sources.fair = true;
    let mut scene = Scene::with(Disposal::Auto, fair);
    for period in 0..20 {
        for call in 0..20 {
            let text = request("INVITE", "urn:service:sos", &format!("{period}-{call}"), 1, "");
            assert!(scene.send(&text) > 0);
        }
        scene.pass(Duration::from_millis(90));
        assert!(scene.script.proxy.poll_shedding().unspared.is_empty());
    }
}

#[test]
fn the_source_of_a_flood_in_a_stream_is_banned_although_most_invites_are_dropped() {
    let ban = Duration::from_secs(60);
    let flood = |settings: &mut Settings| {
        settings.overload.sources.flood = Some(Flood { above_cps: 1_500, after_s: 1, ban });
    };
    let limit = |settings: &mut Settings| {
        let from = "198.51.100.7/32".parse().unwrap();
        let (rate_cps, burst, per, then) = (1_000.0, 1_200, Per::Source, Excess::Ban(ban));
        settings.overload.sources.limits = vec![SourceLimit { from, rate_cps, burst, per, then }];
    };
    for adjust in [&flood as &dyn Fn(&mut Settings), &limit] {
        let mut scene = Scene::with(Disposal::Auto, adjust);
        // At first at most 1,200 INVITEs a second arrive.
        scene.flood();
        let banned = |scene: &Scene| scene.script.counters.dropped(DropReason::Banned).get();
        assert_eq!(banned(&scene), 0);
        // Now 2,000 INVITEs a second arrive, and more than half of them are dropped.
        let before = scene.drop_share();
        for period in 20..40 {
            for call in 0..200 {
                scene.send(&invite(&format!("{period}-{call}")));
            }
            scene.pass(Duration::from_millis(90));
        }
        assert!(scene.drop_share() > before);
        assert!(banned(&scene) > 100, "{}", banned(&scene));
    }
}

/// RFC 3261 §17.1.1.2: "If an unreliable transport is being used, the client transaction MUST start timer
/// A". So over TCP no copy of a dropped INVITE follows.
#[test]
fn invites_within_a_call_are_not_dropped_from_streams() {
    let mut scene = Scene::new(Disposal::Auto);
    scene.flood();
    let within = |call: &str, cseq| request("INVITE", "sip:bob@192.0.2.1", call, cseq, "Totag\r\n");
    let before = scene.drop_share();
    (2..52).for_each(|cseq| _ = scene.send(&within("established", cseq)));
    assert_eq!(scene.drop_share(), before);
    // An INVITE with an invented To-tag is dropped like others.
    (2..52).for_each(|cseq| _ = scene.send(&within("invented", cseq)));
    assert!(scene.drop_share() > before + 20);
}

#[test]
fn no_invite_in_a_stream_is_late() {
    let mut scene = Scene::new(Disposal::Auto);
    scene.flood();
    for _ in 0..60 {
        scene.pass(Duration::ZERO);
    }
    assert_eq!(scene.script.proxy.poll_shedding().shares[0], 0.0);
    scene.script.proxy.switch(scene.script.now, law(&[("share", 1.0)]), None);
    let sent = (0..50).filter(|call| scene.send(&invite(&format!("late-{call}"))) > 0).count();
    assert_eq!(sent, 50);
    assert_eq!(scene.script.counters.rejected(tidegate_control::Reason::Late).get(), 0);
}

#[test]
fn reject_answers_every_invite_in_a_stream() {
    let mut scene = Scene::new(Disposal::Reject);
    scene.flood();
    assert_eq!(scene.drop_share(), 0);
    assert_eq!(scene.script.counters.replied(503).get(), 1_400);
}
