//! The order of opened connections by their last use.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_world::{ConnectionId, Timestamp};

/// An order of connections by their last use.
///
/// Each message on a connection is a use. Moving a connection in the order at each message would
/// cost too much. So a connection keeps its old position until [`oldest`](Self::oldest) reaches
/// this position.
#[derive(Debug, Default)]
pub(crate) struct Recency {
    order: BTreeSet<(Timestamp, ConnectionId)>,
    places: BTreeMap<ConnectionId, Timestamp>,
}

impl Recency {
    pub(crate) fn add(&mut self, now: Timestamp, id: ConnectionId) {
        self.places.insert(id, now);
        self.order.insert((now, id));
    }

    /// Removes a connection. Returns whether it was in the order.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> bool {
        let place = self.places.remove(&id);
        place.is_some_and(|place| self.order.remove(&(place, id)))
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the least recently used connection, or `None` if its last use was less than `unused`
    /// before `now`. `last_use` returns the time of a connection's last use.
    pub(crate) fn oldest(
        &mut self,
        now: Timestamp,
        unused: Duration,
        last_use: impl Fn(ConnectionId) -> Timestamp,
    ) -> Option<ConnectionId> {
        while let Some(&(place, id)) = self.order.first()
            && place + unused <= now
        {
            let used = last_use(id);
            if used == place {
                return Some(id);
            }
            self.order.pop_first();
            self.order.insert((used, id));
            self.places.insert(id, used);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn the_oldest_is_found_by_its_last_use() {
        let (mut recency, unused) = (Recency::default(), Duration::from_secs(10));
        let first = ConnectionId::FIRST_OPENED;
        let (second, third) = (first.next(), first.next().next());
        for (s, id) in [(0, first), (1, second), (2, third)] {
            recency.add(at(s), id);
        }
        // The first was used again at 5 s, and the second is in use.
        let used = |now| {
            move |id| match id {
                id if id == first => at(5),
                id if id == second => now,
                _ => at(2),
            }
        };
        assert_eq!(recency.oldest(at(11), unused, used(at(11))), None);
        assert_eq!(recency.oldest(at(12), unused, used(at(12))), Some(third));
        recency.remove(third);
        recency.remove(third);
        assert_eq!(recency.oldest(at(14), unused, used(at(14))), None);
        assert_eq!(recency.oldest(at(15), unused, used(at(15))), Some(first));
        assert_eq!((recency.len(), recency.order.len()), (2, 2));
    }
}
