//! Back ends whose connections end while requests wait for them.

use crate::script::BACKEND_C;
use tidegate_proxy::{Health, Probe};
use tidegate_world::Connect;

use super::*;

/// The first back end of a scene, whose connections fail.
struct Failing {
    scene: Scene,
    phone: Flow,
    /// Number of connections to the back end that Tidegate wanted to open.
    wanted: usize,
}

impl Failing {
    fn new(mode: Mode) -> Self {
        let mut scene = scene_over(Transport::Tcp, mode);
        let phone = scene.accept(2, PHONE);
        Self { scene, phone, wanted: 0 }
    }

    /// Sends the INVITE of a new call. Ends the next `failing` connections to the back end, and opens
    /// all others. Returns the messages that leave.
    fn call(&mut self, call: &str, mut failing: usize) -> Vec<(Flow, Sent)> {
        let call = |text: String| {
            text.replace("Call-ID: c\r\n", &format!("Call-ID: {call}\r\n"))
                .replace("branch=z9hG4bK-c-", &format!("branch=z9hG4bK-{call}-"))
        };
        let invite = call(invite("TCP", "192.168.1.2:5060"));
        let received =
            Received::new(self.scene.now, self.phone, self.scene.pool.copy(invite.as_bytes()));
        self.scene.streams.offer(self.scene.now, received);
        while self.scene.streams.serve(self.scene.now) {}
        let mut sent = self.sent();
        while let Some(Connect { id, transport, local, remote }) = self.scene.streams.poll_connect()
        {
            let is_failing = remote == address(BACKEND_A) && failing > 0;
            self.wanted += usize::from(remote == address(BACKEND_A));
            failing -= usize::from(is_failing);
            if is_failing {
                self.scene.streams.on_closed(self.scene.now, id, CloseCause::Insecure);
            } else {
                let local = SocketAddr::new(local.ip(), 50_000);
                let flow = Flow::connected(transport, local, remote, id);
                self.scene.streams.on_connected(self.scene.now, flow);
            }
            sent.extend(self.sent());
            while self.scene.streams.poll_timeout().is_some_and(|at| at <= self.scene.now) {
                self.scene.streams.handle_timeout(self.scene.now);
                sent.extend(self.sent());
            }
        }
        sent
    }

    fn sent(&mut self) -> Vec<(Flow, Sent)> {
        let transmits = std::iter::from_fn(|| self.scene.streams.poll_transmit());
        transmits.map(|t| (t.flow, Sent::of(&t))).collect()
    }
}

/// RFC 3261 §18.4: "the transport layer SHOULD inform the transport user of a failure in sending."
///
/// A back end whose certificate has expired has no calls, so most policies would select it for each
/// new call.
#[test]
fn a_back_end_whose_connections_never_open_gets_no_further_calls() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut failing = Failing::new(mode);
        let sent = failing.call("first", 9);
        assert_eq!(failing.wanted, 2, "{mode:?}: for the INVITE and for a probe");
        match mode {
            Mode::Stateless => drop(only(sent, "SIP/2.0 503")),
            _ => assert_eq!(only(sent, "INVITE").1.to, address(BACKEND_B)),
        }
        for call in ["second", "third", "fourth"] {
            let (to, _) = only(failing.call(call, 9), "INVITE");
            assert_eq!(to.remote, address(BACKEND_B), "{mode:?} {call}");
        }
        assert_eq!(failing.wanted, 2, "{mode:?}");
    }
}

/// A back end has restarted, and its next connection opens.
#[test]
fn a_back_end_whose_connection_ended_once_gets_further_calls() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut failing = Failing::new(mode);
        let (flow, probe) = only(failing.call("first", 1), "OPTIONS");
        assert_eq!((flow.remote, failing.wanted), (address(BACKEND_A), 2), "{mode:?}");
        failing.scene.offer(flow, &probe.answer("200 OK"));
        let to_a = ["second", "third"]
            .into_iter()
            .filter(|call| only(failing.call(call, 0), "INVITE").0.remote == address(BACKEND_A));
        assert_eq!(to_a.count(), 1, "{mode:?}");
    }
}

/// A regression: the back end was down at once, because a regular probe had waited for the same
/// connection as the INVITE.
#[test]
fn a_regular_probe_on_a_connection_that_ended_is_followed_by_another_one() {
    for opens_again in [true, false] {
        let probe = Probe { interval: Duration::from_millis(100), jitter: 0.0, ..Probe::default() };
        let backends = [BACKEND_A, BACKEND_B];
        let mut scene = scene_with(Transport::Tcp, Mode::Transaction, backends, |settings| {
            settings.pools[0].health = Health { probe: Some(probe), ..Health::default() };
        });
        let phone = scene.accept(2, PHONE);
        scene.offer(phone, &invite("TCP", "192.168.1.2:5060"));
        let Connect { id, remote, .. } = scene.streams.poll_connect().expect("for the INVITE");
        assert_eq!(remote, address(BACKEND_A));
        scene.pass(Duration::from_millis(100));
        assert_eq!(scene.counters.probes.get(), 2, "one of each back end");
        scene.streams.on_closed(scene.now, id, CloseCause::Insecure);
        scene.pass(Duration::ZERO);
        let (to_b, _) = scene.open_for("INVITE");
        assert_eq!(to_b.remote, address(BACKEND_B));
        let falls = |scene: &Scene| scene.backends.backends()[0].transitions().0;
        assert_eq!(falls(&scene), 0, "{opens_again}");
        if opens_again {
            let (to_a, probe) = scene.open_for("OPTIONS");
            assert_eq!(to_a.remote, address(BACKEND_A));
            scene.offer(to_a, &probe.answer("200 OK"));
        } else {
            let Connect { id, remote, .. } = scene.streams.poll_connect().expect("for the probe");
            assert_eq!(remote, address(BACKEND_A));
            scene.streams.on_closed(scene.now, id, CloseCause::Insecure);
        }
        assert_eq!(falls(&scene), u64::from(!opens_again));
    }
}

/// The failure of a connection counts once for its request, and not again at each later timer of the
/// request. The back end that has got the request next keeps it.
///
/// RFC 3261 §16.9: "If the transport layer notifies a proxy of an error when it tries to forward a
/// request (see Section 18.4), the proxy MUST behave as if the forwarded request received a 503
/// (Service Unavailable) response."
#[test]
fn a_refused_connection_leads_to_one_other_back_end_only() {
    let backends = [BACKEND_A, BACKEND_B];
    let mut scene = scene_with(Transport::Tcp, Mode::Transaction, backends, |settings| {
        let three = [BACKEND_A, BACKEND_B, BACKEND_C].map(|at| (at, address(at), 1));
        settings.pools[0].pool = balance::Pool::new("app", &three);
    });
    let phone = scene.accept(2, PHONE);
    scene.offer(phone, &invite("TCP", "192.168.1.2:5060"));
    assert_eq!(scene.refuse().remote, address(BACKEND_A));
    scene.pass(Duration::ZERO);
    let (second, forwarded) = scene.open_for("INVITE");
    assert_eq!(second.remote, address(BACKEND_B));
    // After T1 the connections of the request are checked.
    scene.pass(Duration::from_secs(2));
    let mut opened = std::iter::from_fn(|| scene.streams.poll_connect());
    assert!(opened.all(|connect| connect.remote != address(BACKEND_C)));
    let ringing = scene.offer(second, &forwarded.answer("180 Ringing"));
    assert_eq!((ringing.len(), ringing[0].1.start()), (1, "SIP/2.0 180 Ringing"), "no CANCEL");
}
