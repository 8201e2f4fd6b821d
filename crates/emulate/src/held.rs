//! Holds outputs of a core until the work that produced them is complete.

use tidegate_world::{Calendar, Timestamp};

/// Outputs of a core, each held until the time of its release.
#[derive(Debug)]
pub(super) struct Held<T> {
    outputs: Calendar<T>,
    /// True if outputs leave in the order in which they were added.
    in_order: bool,
    /// The latest time of release so far.
    last: Timestamp,
}

impl<T> Held<T> {
    /// Creates an empty queue. If `in_order` is true, an output also waits for the outputs that
    /// were added before it.
    pub(super) fn new(in_order: bool) -> Self {
        Self { outputs: Calendar::new(), in_order, last: Timestamp::ZERO }
    }

    pub(super) fn push(&mut self, release: Timestamp, output: T) {
        let release = if self.in_order { release.max(self.last) } else { release };
        self.last = self.last.max(release);
        self.outputs.push(release, output);
    }

    pub(super) fn pop(&mut self, now: Timestamp) -> Option<T> {
        self.outputs.pop_by(now).map(|(_, output)| output)
    }

    /// Returns the time of the next release.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.outputs.next()
    }

    /// Returns the latest time of release of all outputs so far.
    pub(super) fn latest(&self) -> Timestamp {
        self.last
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outputs that leave by each of these times, and whether the queue is empty then.
    fn left(in_order: bool, times: [u64; 4]) -> [(String, bool); 4] {
        let mut held = Held::new(in_order);
        for (release, output) in [(5, 'a'), (9, 'b'), (7, 'c'), (12, 'd')] {
            held.push(Timestamp::from_nanos(release), output);
        }
        times.map(|now| {
            let next = || held.pop(Timestamp::from_nanos(now));
            (std::iter::from_fn(next).collect(), held.is_empty())
        })
    }

    fn expected(texts: [&str; 4]) -> [(String, bool); 4] {
        texts.map(|text| (text.to_owned(), text.ends_with('d')))
    }

    #[test]
    fn an_output_leaves_at_its_time_of_release() {
        assert_eq!(left(false, [4, 8, 9, 20]), expected(["", "ac", "b", "d"]));
    }

    #[test]
    fn in_order_no_output_leaves_before_an_earlier_one() {
        assert_eq!(left(true, [4, 8, 9, 20]), expected(["", "a", "bc", "d"]));
    }
}
