//! Final responses of back ends are counted once per request, so that the ratios of RFC 6076 can be
//! computed.

use std::time::Duration;

use crate::script::{BACKEND_A, CALLER, Script, invite, request};
use tidegate_balance::Policy;
use tidegate_proxy::Mode;

type Counted = Vec<(&'static str, &'static str, u64)>;

fn counted(s: &Script, index: usize) -> Counted {
    s.backends.backends()[index].finals().filter(|(.., count)| *count > 0).collect()
}

#[test]
fn rfc6076_each_final_response_counts_once_by_status_and_method() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let out = s.send(CALLER, &invite("c1")).pop().unwrap();
        for status in ["100 Trying", "180 Ringing", "200 OK", "200 OK", "200 OK"] {
            s.send(BACKEND_A, &out.answer(status));
        }
        let bye = s.one(CALLER, &request("BYE", "sip:bob@192.0.2.1", "c1", 2, "Totag\r\n"));
        for _ in 0..2 {
            s.send(BACKEND_A, &bye.answer("481 Call/Transaction Does Not Exist"));
        }
        let other = s.send(CALLER, &invite("c2")).pop().unwrap();
        for _ in 0..3 {
            s.send(&other.to.to_string(), &other.answer("486 Busy Here"));
        }
        let expected: Counted = vec![("invite", "2xx", 1), ("other", "4xx", 1)];
        assert_eq!(counted(&s, 0), expected, "{mode:?}");
        assert_eq!(counted(&s, 1), [("invite", "486", 1)], "{mode:?}");
        let times: u64 =
            s.backends.backends()[0].start_response_times().buckets().map(|b| b.1).sum();
        assert_eq!(times, 1, "{mode:?}");
    }
}

#[test]
fn waiting_times_are_counted_in_their_buckets() {
    let mut s = Script::new();
    s.offer(CALLER, invite("c1").as_bytes());
    s.now = s.now + Duration::from_millis(3);
    s.serve();
    let filled = |is_new| -> Vec<_> {
        let buckets = s.counters.sojourns(is_new).buckets();
        buckets.filter(|(_, count)| *count > 0).collect()
    };
    assert_eq!((filled(true), filled(false)), (vec![(0.005, 1)], vec![]));
}
