//! Parts of a load, for several load generators.

/// One of several equal parts of a load. Each part is for one load generator, and all generators
/// begin at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of the part, from 0.
    index: u32,
    /// Number of parts.
    of: u32,
}

impl Share {
    /// The whole load as a single part.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Maximum number of parts of a load.
    pub const PARTS_MAX: u32 = 64;

    /// Returns the part numbered `index` of `of` equal parts, or `None` if there is no such part.
    pub fn new(index: u32, of: u32) -> Option<Self> {
        (index < of && of <= Self::PARTS_MAX).then_some(Self { index, of })
    }

    /// Returns the number of the part, from 0.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns the number of parts.
    pub fn parts(self) -> u32 {
        self.of
    }

    /// Returns whether the part is the whole load.
    pub fn is_whole(self) -> bool {
        self.of == 1
    }

    /// Returns how many of `total` calls, users or connections belong to this part. If the parts
    /// cannot be equal, each of the first parts gets one more than the others.
    pub fn count(self, total: u32) -> u32 {
        total / self.of + u32::from(self.index < total % self.of)
    }

    /// Returns how many of `total` calls, users or connections belong to the parts before this one.
    pub fn first(self, total: u32) -> u32 {
        total / self.of * self.index + self.index.min(total % self.of)
    }

    /// Returns how many of `total` belong to this part, like [`count`](Self::count). A `total`
    /// above the largest `u32` counts as the largest `u32`.
    pub(crate) fn size(self, total: usize) -> usize {
        self.count(u32::try_from(total).unwrap_or(u32::MAX)) as usize
    }

    /// Returns the rate of this part. `total` is the rate of the whole load.
    pub(crate) fn rate(self, total: f64) -> f64 {
        total / f64::from(self.of)
    }

    /// Returns the offset of this part's uniform arrivals from those of the first part, as a
    /// fraction (0..1) of the time between two calls of one part. With these offsets, the arrivals
    /// of all parts together are uniform.
    pub(crate) fn phase(self) -> f64 {
        f64::from(self.index) / f64::from(self.of)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_is_one_of_at_most_64() {
        assert_eq!(Share::new(0, 1), Some(Share::WHOLE));
        assert!(Share::new(63, 64).is_some());
        for (index, of) in [(0, 0), (1, 1), (2, 2), (0, 65)] {
            assert_eq!(Share::new(index, of), None, "{index} of {of}");
        }
    }

    proptest! {
        #[test]
        fn the_parts_follow_each_other_and_are_the_whole(of in 1..=Share::PARTS_MAX, total: u32) {
            let mut next = 0;
            for index in 0..of {
                let share = Share::new(index, of).unwrap();
                prop_assert_eq!(share.first(total), next);
                prop_assert!(share.count(total).abs_diff(total / of) <= 1);
                next += share.count(total);
            }
            prop_assert_eq!(next, total);
        }
    }
}
