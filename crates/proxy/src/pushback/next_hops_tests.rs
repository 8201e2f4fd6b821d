use std::time::Duration;

use tidegate_balance::{self as balance, Policy};
use tidegate_control::feedback::{Algorithm, Sequence};
use tidegate_world::{Core, Flow, Pool, Received};

use super::*;
use crate::{Counters, Listener, Mode, PoolSettings, Proxy, Secret, Settings};

const HERE: &str = "192.0.2.1:5060";
const CALLER: &str = "198.51.100.7:5060";
const BACKEND: &str = "10.0.0.1:5060";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A proxy with one back end, and its table of next hops.
struct Scene {
    proxy: Proxy,
    next_hops: NextHops,
    pool: Pool,
    now: Timestamp,
}

impl Scene {
    fn new(mode: Mode, obedience: Obedience) -> Self {
        let backends = balance::Pool::new("app", &[("a", address(BACKEND), 1)]);
        let pools =
            vec![PoolSettings { mode, obedience, ..PoolSettings::new(backends, Policy::Rr) }];
        let settings =
            Settings::new(vec![Listener::new(address(HERE))], pools, Secret::of([1; 32]));
        let (next_hops, pool) = (settings.next_hops.clone(), Pool::new());
        let proxy = Proxy::new(settings, Arc::<Counters>::default(), pool.clone());
        Self { proxy, next_hops, pool, now: Timestamp::from_nanos(1_000_000_000) }
    }

    /// Applies a feedback value of the back end, which restricts nothing.
    fn learn(&self, wants_load: bool) {
        let feedback = Feedback {
            algorithm: Algorithm::Loss,
            value: 0,
            validity: Duration::from_secs(9),
            sequence: Sequence { seconds: 1, fraction: 0 },
        };
        self.next_hops.learn(self.now, address(BACKEND), Some(feedback), wants_load, true);
    }

    /// Forwards an INVITE. Returns how often the lock was taken meanwhile, and the INVITE that was
    /// sent.
    fn forward(&mut self, call: &str) -> (u64, String) {
        let text = format!(
            "INVITE sip:bob@192.0.2.1 SIP/2.0\r\n\
             Via: SIP/2.0/UDP {CALLER};branch=z9hG4bK-{call}\r\nMax-Forwards: 70\r\n\
             From: <sip:alice@example.com>;tag=a\r\nTo: <sip:bob@example.com>\r\n\
             Call-ID: {call}\r\nCSeq: 1 INVITE\r\nContact: <sip:alice@{CALLER}>\r\n\
             Content-Length: 0\r\n\r\n"
        );
        let before = self.next_hops.0.locked.load(Ordering::Relaxed);
        let flow = Flow::udp(address(HERE), address(CALLER));
        let received = Received::new(self.now, flow, self.pool.copy(text.as_bytes()));
        self.proxy.offer(self.now, received);
        while self.proxy.serve(self.now) {}
        let sent = std::iter::from_fn(|| self.proxy.poll_transmit())
            .map(|transmit| String::from_utf8(transmit.bytes.to_vec()).unwrap())
            .find(|text| text.starts_with("INVITE"));
        let locked = self.next_hops.0.locked.load(Ordering::Relaxed) - before;
        (locked, sent.expect("the INVITE is sent"))
    }
}

#[test]
fn without_feedback_a_request_takes_no_lock_and_with_feedback_one() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        for obedience in [Obedience::Proven, Obedience::Always] {
            let mut scene = Scene::new(mode, obedience);
            let (locked, invite) = scene.forward("a");
            assert_eq!(locked, 0, "{mode:?} {obedience:?}");
            assert_eq!(invite.contains(";oc;oc-algo="), obedience == Obedience::Always);
            for wants_load in [false, true] {
                scene.learn(wants_load);
                let (locked, invite) = scene.forward(if wants_load { "c" } else { "b" });
                assert_eq!(locked, 1, "{mode:?} {obedience:?} {wants_load}");
                assert!(invite.contains(";oc;oc-algo="), "{invite}");
            }
        }
    }
}

#[test]
fn a_pool_that_never_obeys_changes_nothing_for_a_pool_with_the_same_back_end() {
    let next_hops = NextHops::new(Algorithms::LOSS, Seed(1));
    let (now, backend) = (Timestamp::ZERO, address(BACKEND));
    let sequence = Sequence { seconds: 1, fraction: 0 };
    let validity = Duration::from_secs(9);
    let feedback = Feedback { algorithm: Algorithm::Loss, value: 100, validity, sequence };
    next_hops.learn(now, backend, Some(feedback), false, true);
    let admits = |obedience| next_hops.admit(now, obedience, backend, Category::Session).is_some();
    next_hops.on_probe_answered(now, Obedience::Never, backend, None);
    assert!(!admits(Obedience::Always) && !admits(Obedience::Proven));
    assert!(admits(Obedience::Never));
    next_hops.on_probe_answered(now, Obedience::Proven, backend, None);
    assert!(admits(Obedience::Always), "the server gives no feedback");
}

/// RFC 7339 §4.2: "A SIP client MUST support the loss-based overload control scheme and MUST insert
/// at least the token "loss" as one of the "oc-algo" parameter values."
#[test]
fn without_algorithms_nothing_is_offered_and_nothing_is_learned() {
    let next_hops = NextHops::new(Algorithms::NONE, Seed(1));
    let (now, backend) = (Timestamp::ZERO, address(BACKEND));
    for obedience in [Obedience::Always, Obedience::Proven] {
        let offer = next_hops.offer_to(now, obedience, backend);
        assert!(next_hops.offer_text(offer).is_empty(), "{obedience:?}");
    }
    assert!(next_hops.offer_text(OverloadOffer::Algorithms).is_empty(), "of a probe");
    let sequence = Sequence { seconds: 1, fraction: 0 };
    let validity = Duration::from_secs(9);
    let feedback = Feedback { algorithm: Algorithm::Loss, value: 100, validity, sequence };
    next_hops.learn(now, backend, Some(feedback), false, true);
    assert!(!next_hops.is_any());
}

/// RFC 7339 §6 has an example without "oc-seq": "oc=0;oc-algo="loss";oc-validity=0".
#[test]
fn a_value_without_a_sequence_number_proves_that_a_back_end_gives_feedback() {
    let next_hops = NextHops::new(Algorithms::LOSS, Seed(1));
    let (now, backend) = (Timestamp::ZERO, address(BACKEND));
    let is_proven_by = |params: &str| {
        let via = format!("SIP/2.0/UDP {HERE};branch=z9hG4bKprobe{params}");
        let own = OverloadControl::in_via(via.as_bytes());
        next_hops.on_probe_answered(now, Obedience::Proven, backend, own);
        next_hops.offer_to(now, Obedience::Proven, backend) != OverloadOffer::None
    };
    let offer = ";oc;oc-algo=\"loss\"";
    assert!(!is_proven_by(offer), "the back end has copied the offer");
    assert!(is_proven_by(";oc=0;oc-algo=\"loss\";oc-validity=0"));
    assert!(is_proven_by(";oc=100;oc-algo=\"loss\";oc-validity=9000"));
    let admission = next_hops.admit(now, Obedience::Proven, backend, Category::Session);
    assert!(admission.is_some(), "a value without a sequence number restricts nothing");
    assert!(!is_proven_by(offer));
}
