//! The order of a server's feedback values: `oc-seq` (RFC 7339 §4.4, §5.4).

use std::time::Duration;

use tidegate_world::Timestamp;

/// The sequence number of a feedback value: seconds, and a fraction of up to five digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence {
    /// The digits before the point: up to twelve.
    pub seconds: u64,
    /// The fraction in units of 10⁻⁵: `.781` is 78,100.
    pub fraction: u32,
}

/// Number of units of [`Sequence::fraction`] in a second.
const UNITS: u32 = 100_000;

/// Time after which no response of a transaction can still arrive: 64·T1 of RFC 3261 §17.
pub(super) const LATE_MAX: Duration = Duration::from_secs(32);

/// Number of consecutive sequence numbers that indicate an overflow of the sequence. Each must be
/// too far below the last accepted number to belong to a late response.
const SEVERAL: u32 = 3;

impl Sequence {
    /// Returns the sequence number for a time since 1970. Its seconds do not exceed twelve digits
    /// before the year 33,658.
    pub(crate) fn of_time(since_1970: Duration) -> Self {
        let fraction = since_1970.subsec_nanos() / (1_000_000_000 / UNITS);
        Self { seconds: since_1970.as_secs() % 1_000_000_000_000, fraction }
    }

    /// Returns the next higher number.
    pub(super) fn next(self) -> Self {
        match self.fraction + 1 {
            UNITS.. => Self { seconds: self.seconds + 1, fraction: 0 },
            fraction => Self { fraction, ..self },
        }
    }
}

/// The relation of a sequence number to the last one that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Novelty {
    /// The number is higher than the last accepted one, or the sequence has overflowed.
    New,
    /// The number equals the last accepted one.
    Same,
    /// The number is lower than the last accepted one.
    Late,
}

/// The last sequence number that was accepted, and how many numbers far below it came since then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SequenceHistory {
    last: Option<(Sequence, Timestamp)>,
    /// Number of consecutive sequence numbers that were far below the last accepted one.
    far_below: u32,
}

impl SequenceHistory {
    /// Compares a sequence number with the last accepted one, and accepts it if it is new.
    pub(super) fn judge(&mut self, now: Timestamp, sequence: Sequence) -> Novelty {
        let novelty = match self.last {
            None => Novelty::New,
            Some((last, at)) => {
                let is_far = last.seconds - sequence.seconds.min(last.seconds) > LATE_MAX.as_secs();
                self.far_below = if is_far { self.far_below + 1 } else { 0 };
                // RFC 7339 §4.4: "If an overflow is detected, then the client should use the
                // overload parameters in the new message, even though the sequence number is
                // lower." A restarted server that counts from a base value is recognized by the
                // time since its last value: no response can be so late.
                let is_overflow = self.far_below >= SEVERAL || now.since(at) > LATE_MAX;
                match sequence.cmp(&last) {
                    std::cmp::Ordering::Equal => Novelty::Same,
                    std::cmp::Ordering::Greater => Novelty::New,
                    std::cmp::Ordering::Less if is_overflow => Novelty::New,
                    std::cmp::Ordering::Less => Novelty::Late,
                }
            }
        };
        if novelty == Novelty::New {
            *self = Self { last: Some((sequence, now)), far_below: 0 };
        }
        novelty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(seconds: u64, fraction: u32) -> Sequence {
        Sequence { seconds, fraction }
    }

    fn judged(history: &mut SequenceHistory, s: u64, sequence: Sequence) -> Novelty {
        history.judge(Timestamp::ZERO + Duration::from_secs(s), sequence)
    }

    #[test]
    fn a_time_is_a_number_to_ten_microseconds() {
        assert_eq!(Sequence::of_time(Duration::from_secs(1_000_000_000_007)), seq(7, 0));
        let time = Duration::new(1_282_321_615, 782_009_999);
        assert_eq!(Sequence::of_time(time), seq(1_282_321_615, 78_200));
        assert_eq!(seq(7, 99_999).next(), seq(8, 0));
        assert_eq!(seq(7, 1).next(), seq(7, 2));
    }

    // RFC 7339 §5.4: "If these values match, the response does not update the overload control
    // parameters related to this server".
    #[test]
    fn a_larger_number_is_new_a_slightly_lower_one_late() {
        let mut history = SequenceHistory::default();
        assert_eq!(judged(&mut history, 0, seq(100, 78_100)), Novelty::New);
        assert_eq!(judged(&mut history, 0, seq(100, 78_100)), Novelty::Same);
        assert_eq!(judged(&mut history, 0, seq(100, 78_099)), Novelty::Late);
        // .8 is more than .78101: the fraction is decimal.
        assert_eq!(judged(&mut history, 0, seq(100, 80_000)), Novelty::New);
        assert_eq!(judged(&mut history, 0, seq(100, 78_101)), Novelty::Late);
        assert_eq!(judged(&mut history, 0, seq(101, 0)), Novelty::New);
    }

    // RFC 7339 §4.4: "overflow will cause the "oc-seq" parameter value to be significantly less than
    // the last several values."
    #[test]
    fn several_numbers_far_below_are_an_overflow() {
        let mut history = SequenceHistory::default();
        judged(&mut history, 0, seq(999_999_999_999, 99_999));
        assert_eq!(judged(&mut history, 1, seq(0, 1)), Novelty::Late);
        assert_eq!(judged(&mut history, 1, seq(0, 2)), Novelty::Late);
        assert_eq!(judged(&mut history, 1, seq(0, 3)), Novelty::New);
        assert_eq!(judged(&mut history, 1, seq(0, 4)), Novelty::New, "later ones are accepted");
    }

    #[test]
    fn late_packets_between_newer_ones_are_no_overflow() {
        let mut history = SequenceHistory::default();
        judged(&mut history, 0, seq(1000, 0));
        for i in 0..20 {
            assert_eq!(judged(&mut history, 1, seq(900, i)), Novelty::Late);
            assert_eq!(judged(&mut history, 1, seq(1000, i + 1)), Novelty::New);
        }
    }

    #[test]
    fn a_server_that_counts_from_one_again_is_accepted_when_no_value_can_be_late() {
        let mut history = SequenceHistory::default();
        judged(&mut history, 0, seq(20, 0));
        assert_eq!(judged(&mut history, 31, seq(1, 0)), Novelty::Late);
        assert_eq!(judged(&mut history, 33, seq(1, 1)), Novelty::New);
    }
}
