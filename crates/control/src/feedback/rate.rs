//! Limits the rate of requests to a server: the leaky bucket with priorities of RFC 7415 §3.5.
//!
//! A request passes while the content of the bucket is at most a tolerance: TAU1 for new requests,
//! TAU2 = 2·TAU1 for new requests with priority, and TAU3 for requests in sessions. TAU3 is higher
//! than TAU2 by ten requests and the requests of one second. The bucket itself is the [leaky
//! bucket](LeakyBucket) of the throttles. This file adds the tolerances and the randomness.
//!
//! ACKs and CANCELs always pass and fill the bucket, so other requests are held back instead.
//! Beyond TAU2 they fill it with at most [`REQUIRED_MAX`] of the rate. So the ACKs of re-INVITEs
//! count, but a flood of ACKs does not hold back all BYEs.
//!
//! Only requests in sessions, ACKs and CANCELs fill the bucket beyond TAU2. So a request in a
//! session is held back only if these requests alone have exceeded the rate by more than TAU3 −
//! TAU2. If TAU2 = 10·T also applied to requests in sessions, senders would hold back BYEs although
//! the rate has room for all of them. Under a heavy load, new requests keep the bucket near TAU1.
//! From there, a few more BYEs and ACKs than usual fill it. Besides, a server announces a rate for
//! its new calls and for the requests in sessions, which it measures over [one second](FOLLOWS_S).
//! If they suddenly become more frequent, the rate is too low until the server has measured them.
//! And when the rate falls, the ACKs of calls that have begun still come. After an excess, new
//! requests wait until the bucket has leaked to TAU1. So the long-term rate is the same.
//!
//! If the server asks for another rate, the content of the bucket is scaled, so that it represents
//! as many requests as before. In the RFC the content is a time, which does not change with the
//! rate. Then ACKs that were sent at a rate of one request a second could fill the bucket with
//! eleven seconds, and no request would pass in that time, however high the new rate is. The
//! content is also scaled after a fall of the rate. Otherwise each rise and fall would free a part
//! of the bucket, and more requests would pass than the higher rate allows. But the bucket holds no
//! more than its capacity at the new rate. This capacity always exceeds what new requests can fill.

use tidegate_world::{Stream, Timestamp};

use super::Category;
use crate::throttle::LeakyBucket;

/// Contents of the leaky bucket in multiples of T, the time between two requests at the permitted
/// rate: the content at the start (TAU0), the maximum at which new requests pass (TAU1), and the
/// maximum at which new requests with priority pass (TAU2).
// RFC 7415 §3.5.2: "Reasonable values for TAU0, TAU1, and TAU2 are: TAU0 = 0, TAU1 = 1/2 * TAU2, and
// TAU2 = 10 * T."
const TAU0: f64 = 0.0;
const TAU1: f64 = 5.0;
const TAU2: f64 = 10.0;

/// Requests in sessions pass up to TAU3, which is this multiple of T plus [`FOLLOWS_S`] seconds. A
/// server needs these seconds to measure the requests in sessions, and to announce a rate with room
/// for them. If the rate is one request a second, the multiple lets some requests pass, so that the
/// server can measure that there are many.
// RFC 7415 §3.5.2: "This can be generalized to n priorities using n thresholds for n>2 in the obvious
// way." "TAU1 and TAU2 can assume any positive real number value and are not necessarily bounded by
// T." "The larger the difference between TAU1 and TAU2, the closer the control is to strict priority
// queueing."
const TAU3: f64 = 20.0;
const FOLLOWS_S: f64 = 1.0;

/// Maximum part of the permitted requests, 0 to 1, that ACKs and CANCELs may take from the requests
/// in sessions. At most two of them belong to an INVITE: its CANCEL, and the ACK to its final
/// response.
pub(super) const REQUIRED_MAX: f64 = 2.0 / 3.0;

/// Number of ACKs and CANCELs that may come in one burst and still take a part of the rate from the
/// requests in sessions.
const REQUIRED_BURST: u32 = 10;

/// The state of the `rate` algorithm towards one server.
#[derive(Debug)]
pub(super) struct Rate {
    bucket: LeakyBucket,
    /// Limits the ACKs and CANCELs that fill the bucket beyond TAU2.
    required: LeakyBucket,
    stream: Stream,
    /// The last rate above zero, in requests a second. The content of the bucket represents
    /// requests at this rate.
    rate: u32,
}

impl Rate {
    pub(super) fn new(stream: Stream) -> Self {
        let [bucket, required] = [1, REQUIRED_BURST].map(LeakyBucket::new);
        Self { bucket, required, stream, rate: 1 }
    }

    /// Starts to limit requests to `rate` a second.
    // RFC 7415 §3.5.3: "This randomization should also be done when control is activated, i.e.,
    // instead of simply initializing the leaky bucket counter to TAU0, initialize it to TAU0 + uT".
    // There u is from -1/2 to +1/2.
    pub(super) fn activate(&mut self, now: Timestamp, rate: u32) {
        let spread = self.stream.unit() - 0.5;
        // At a rate of zero, the time T between two requests would be infinite.
        self.rate = rate.max(1);
        self.bucket.start(now, (TAU0 + spread) / f64::from(self.rate));
    }

    /// Returns whether fewer requests are sent than the permitted `rate` requests a second.
    // RFC 7415 §3.4: the rate is an upper bound, so it does not say that the server is overloaded.
    pub(super) fn has_room(&self, now: Timestamp, rate: u32) -> bool {
        rate > 0 && self.bucket.is_empty(now)
    }

    /// Decides whether a request may be sent while `rate` requests a second are permitted.
    pub(super) fn passes(&mut self, now: Timestamp, rate: u32, category: Category) -> bool {
        // RFC 7415 §3.5.1: "when the "oc" parameter is 0 with a non-zero "oc-validity", then the
        // client should reject 100% of SIP requests destined to the overload server."
        if rate == 0 {
            return category == Category::Required;
        }
        let before = std::mem::replace(&mut self.rate, rate);
        let is_new = rate != before;
        let rate = f64::from(rate);
        let tau3 = TAU3 + FOLLOWS_S * rate;
        if is_new {
            self.bucket.scale(now, f64::from(before) / rate);
            // RFC 7415 §3.5.1: "the capacity of the bucket (the upper bound of the counter) is (T +
            // TAU)." At a constant rate, the tolerances keep the content within the capacity,
            // except that an ACK may exceed it by T.
            self.bucket.limit(now, (tau3 + 1.0) / rate);
        }
        let tolerance = match category {
            Category::Session | Category::Single => TAU1,
            Category::Priority => TAU2,
            Category::Ongoing => tau3,
            // RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than
            // allowed". After a request in a session the bucket may hold up to T + TAU3. An ACK
            // counts even then.
            Category::Required if self.required.passes(now, REQUIRED_MAX * rate) => tau3 + 1.0,
            Category::Required => TAU2,
        };
        let stream = &mut self.stream;
        let passes = self.bucket.passes_within(now, rate, tolerance, || stream.unit() - 0.5);
        passes || category == Category::Required
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tidegate_world::{Purpose, Seed};

    use super::*;
    use crate::testing::at_ms as at;

    #[test]
    fn a_bucket_that_was_filled_at_a_low_rate_does_not_block_a_high_one() {
        let mut rate = Rate::new(Seed(1).stream(Purpose::Restriction, 0));
        rate.activate(at(0), 1);
        for ms in 0..60 {
            assert!(rate.passes(at(ms), 1, Category::Required));
        }
        assert!(!rate.passes(at(60), 1, Category::Session));
        let passed = (60..2060).filter(|&ms| rate.passes(at(ms), 100, Category::Session)).count();
        assert!((190..=200).contains(&passed), "{passed} of 100 a second in two seconds");
        // When the rate falls, the earlier content leaks at the new rate.
        let passed = (2060..7060).filter(|&ms| rate.passes(at(ms), 2, Category::Session)).count();
        assert!((9..=11).contains(&passed), "{passed} of 2 a second in five seconds");
    }

    #[test]
    fn a_rate_of_zero_at_first_does_not_delay_requests_at_a_later_rate() {
        for element in 0..20 {
            let mut rate = Rate::new(Seed(1).stream(Purpose::Restriction, element));
            rate.activate(at(0), 0);
            assert!(!rate.passes(at(0), 0, Category::Session));
            let passed = (0..5).filter(|_| rate.passes(at(10), 100, Category::Session)).count();
            assert_eq!(passed, 5, "{element}");
        }
    }

    /// Sends for `seconds` seconds at `rate`, in steps of a millisecond. There are always calls that
    /// wait, so a call begins as soon as the bucket lets one pass. Its ACK follows 20 ms later.
    /// Requests in dialogs arrive at random times, `ongoing_rps` a second. Returns the number of
    /// requests that were sent, and of requests in dialogs that were sent and held back.
    fn sent_at(rate: u32, ongoing_rps: f64, seconds: u64) -> (u64, u64, u64) {
        let mut bucket = Rate::new(Seed(1).stream(Purpose::Restriction, 0));
        let mut stream = Seed(2).stream(Purpose::Arrivals, 0);
        bucket.activate(at(0), rate);
        let (mut sent, mut ended, mut held) = (0, 0, 0);
        let mut acks = VecDeque::new();
        for ms in 0..seconds * 1000 {
            while acks.front().is_some_and(|&due| due <= ms) {
                acks.pop_front();
                sent += u64::from(bucket.passes(at(ms), rate, Category::Required));
            }
            if stream.unit() < ongoing_rps / 1000.0 {
                let passes = bucket.passes(at(ms), rate, Category::Ongoing);
                (ended, held) = (ended + u64::from(passes), held + u64::from(!passes));
            }
            while bucket.passes(at(ms), rate, Category::Session) {
                acks.push_back(ms + 20);
                sent += 1;
            }
        }
        (sent + ended, ended, held)
    }

    // RFC 7415 §3.5.2: "requests that are not subject to reduction (except under extenuating
    // circumstances when there aren't any messages in the first category that can be reduced)." "The
    // larger the difference between TAU1 and TAU2, the closer the control is to strict priority
    // queueing." §3.5.1: "as long as the long-term rate remains below 1/T".
    #[test]
    fn rfc7415_3_5_2_requests_in_dialogs_pass_while_new_ones_can_be_reduced() {
        // Requests in dialogs are a third, and then nearly all, of 72 requests a second.
        for ongoing_rps in [24.0, 66.0] {
            let (sent, ended, held) = sent_at(72, ongoing_rps, 60);
            assert_eq!(held, 0, "{ongoing_rps}: {ended} were sent");
            assert!(sent <= 60 * 72 + 100, "{ongoing_rps}: {sent}");
        }
        // Requests in dialogs alone exceed the rate.
        let (sent, _, held) = sent_at(72, 144.0, 60);
        assert!(held > 60 * 70, "{held}");
        assert!((60 * 72 - 1..=60 * 72 + 100).contains(&sent), "{sent}");
    }

    #[test]
    fn requests_with_priority_keep_no_request_in_a_dialog_back() {
        let mut rate = Rate::new(Seed(1).stream(Purpose::Restriction, 0));
        rate.activate(at(0), 50);
        for ms in 0..10_000 {
            rate.passes(at(ms), 50, Category::Priority);
            assert!(ms % 25 > 0 || rate.passes(at(ms), 50, Category::Ongoing), "{ms}");
        }
    }

    // RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by
    // the current "oc" and "oc-algo" parameter values from that particular downstream server."
    #[test]
    fn rfc7339_5_5_the_acks_of_requests_in_dialogs_are_a_part_of_the_rate() {
        for (rate, every_ms) in [(50, 20), (50, 2), (200, 5)] {
            let mut bucket = Rate::new(Seed(1).stream(Purpose::Restriction, 0));
            bucket.activate(at(0), rate);
            let (mut sent, mut acks) = (0, VecDeque::new());
            for ms in 0..60_000 {
                while acks.front().is_some_and(|&due| due <= ms) {
                    acks.pop_front();
                    sent += u64::from(bucket.passes(at(ms), rate, Category::Required));
                }
                if ms % every_ms == 0 && bucket.passes(at(ms), rate, Category::Ongoing) {
                    acks.push_back(ms + 7);
                    sent += 1;
                }
            }
            // At the start, the tolerance allows twenty requests more, and those of one second.
            let (lasting, at_first) = (60 * u64::from(rate), 30 + u64::from(rate));
            let range = lasting - lasting / 50..=lasting + lasting / 50 + at_first;
            assert!(range.contains(&sent), "{sent} at a rate of {rate}");
        }
    }

    #[test]
    fn a_flood_of_acks_leaves_a_third_of_the_rate_to_requests_in_dialogs() {
        let mut rate = Rate::new(Seed(1).stream(Purpose::Restriction, 0));
        rate.activate(at(0), 60);
        for ms in 0..20_000 {
            assert!(ms % 2 > 0 || rate.passes(at(ms), 60, Category::Required), "{ms}");
            assert!(ms % 55 > 0 || rate.passes(at(ms), 60, Category::Ongoing), "{ms}");
        }
    }

    // RFC 7415 §3.5.1: "the capacity of the bucket (the upper bound of the counter) is (T + TAU)."
    #[test]
    fn rfc7415_3_5_1_a_fall_of_the_rate_does_not_stop_dialogs_for_longer_than_the_tolerance() {
        let mut rate = Rate::new(Seed(1).stream(Purpose::Restriction, 0));
        rate.activate(at(0), 100);
        for _ in 0..200 {
            rate.passes(at(0), 100, Category::Ongoing);
        }
        rate.passes(at(1), 1, Category::Ongoing);
        assert!(rate.passes(at(1100), 1, Category::Ongoing));
    }

    // RFC 7415 §3.5.1: "upper bound of 1/T messages per second".
    #[test]
    fn a_changing_rate_lets_its_mean_pass() {
        for (low, high, every_ms) in [(10, 20, 100), (20, 40, 200), (45, 55, 100)] {
            let mut rate = Rate::new(Seed(1).stream(Purpose::Restriction, 0));
            rate.activate(at(0), low);
            let passed = (0..20_000_u64).filter(|ms| {
                let now = if ms / every_ms % 2 == 0 { low } else { high };
                rate.passes(at(*ms), now, Category::Session)
            });
            let passed_rps = passed.count() as f64 / 20.0;
            let mean_rps = f64::from(low + high) / 2.0;
            assert!((passed_rps / mean_rps - 1.0).abs() < 0.05, "{passed_rps} of {mean_rps}");
        }
    }
}
