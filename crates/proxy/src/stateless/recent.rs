//! A bounded map whose entries live for a fixed time after their insertion.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use tidegate_world::Timestamp;

/// A bounded map from keyed hashes to values that are kept for a fixed time after insertion.
pub(crate) struct Recent<T> {
    by_key: HashMap<u64, (Timestamp, T)>,
    /// Keys by age, oldest first.
    order: VecDeque<(Timestamp, u64)>,
    life: Duration,
    length_max: usize,
    overflowed: u64,
}

impl<T> Recent<T> {
    pub(crate) fn new(life: Duration, length_max: usize) -> Self {
        Self { by_key: HashMap::new(), order: VecDeque::new(), life, length_max, overflowed: 0 }
    }

    /// Returns how often the map had no room for another entry.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Returns the number of entries that have not expired.
    pub(crate) fn len(&mut self, now: Timestamp) -> usize {
        self.expire(now);
        self.by_key.len()
    }

    pub(crate) fn get(&self, now: Timestamp, key: u64) -> Option<&T> {
        let (since, value) = self.by_key.get(&key)?;
        (now < *since + self.life).then_some(value)
    }

    pub(crate) fn get_mut(&mut self, now: Timestamp, key: u64) -> Option<&mut T> {
        let (since, value) = self.by_key.get_mut(&key)?;
        (now < *since + self.life).then_some(value)
    }

    /// Returns the value of `key`. If there is none, inserts a default value, or returns `None` if
    /// the map is full.
    pub(crate) fn entry(&mut self, now: Timestamp, key: u64) -> Option<&mut T>
    where
        T: Default,
    {
        self.expire(now);
        if !self.by_key.contains_key(&key) {
            if self.by_key.len() >= self.length_max {
                self.overflowed += 1;
                return None;
            }
            self.order.push_back((now, key));
            self.by_key.insert(key, (now, T::default()));
        }
        self.by_key.get_mut(&key).map(|(_, value)| value)
    }

    fn expire(&mut self, now: Timestamp) {
        while let Some(&(since, old)) = self.order.front()
            && since + self.life <= now
        {
            self.order.pop_front();
            self.by_key.remove(&old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_s as at;

    #[test]
    fn entries_end_with_their_time_and_make_room() {
        let mut recent = Recent::<u8>::new(Duration::from_secs(10), 2);
        assert!(recent.is_empty());
        *recent.entry(at(0), 1).unwrap() = 7;
        *recent.entry(at(5), 2).unwrap() = 8;
        assert!(recent.entry(at(9), 3).is_none(), "full");
        assert_eq!(recent.entry(at(9), 1), Some(&mut 7), "what is there has room");
        assert_eq!(recent.overflowed(), 1);
        assert_eq!((recent.get(at(9), 1), recent.get(at(10), 1)), (Some(&7), None));
        assert_eq!(recent.get_mut(at(10), 2), Some(&mut 8));
        assert_eq!(recent.entry(at(10), 1), Some(&mut 0), "begun again");
        assert!(recent.entry(at(14), 3).is_none());
        assert_eq!(recent.get_mut(at(15), 2), None);
        assert_eq!(recent.entry(at(15), 3), Some(&mut 0));
        assert_eq!((recent.len(at(19)), recent.len(at(20)), recent.len(at(25))), (2, 1, 0));
    }
}
