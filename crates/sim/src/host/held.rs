//! Outputs that wait for the completion of the work that made them.

use std::collections::VecDeque;

use tidegate_world::Timestamp;

/// A queue of outputs and the times of their release. No longer than what the core brings
/// forth in the inputs that the model has caught up with.
#[derive(Debug)]
pub(super) struct Held<T>(VecDeque<(Timestamp, T)>);

impl<T> Held<T> {
    /// Holds `output` until `release`, and until those before it are released.
    pub(super) fn push(&mut self, release: Timestamp, output: T) {
        self.0.push_back((release, output));
    }

    /// The next output, if it may leave by `now`.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<T> {
        self.0.pop_front_if(|(release, _)| *release <= now).map(|(_, output)| output)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_leaves_at_its_release_and_never_before_an_earlier_one() {
        let at = Timestamp::from_nanos;
        let mut held = Held::default();
        for (release, output) in [(5, 'a'), (9, 'b'), (7, 'c'), (12, 'd')] {
            held.push(at(release), output);
        }
        let mut popped = |now| {
            let outputs: String = std::iter::from_fn(|| held.pop(at(now))).collect();
            (outputs, held.is_empty())
        };
        assert_eq!(popped(4), (String::new(), false));
        assert_eq!(popped(8), ("a".into(), false));
        assert_eq!(popped(9), ("bc".into(), false));
        assert_eq!(popped(20), ("d".into(), true));
    }
}
