//! Trains: datagrams that the kernel takes as one and sends one by one (`UDP_SEGMENT`).
//!
//! The way down to the device is paid once for a train: most of what sending costs. All its
//! datagrams go from one address to one other, and have one length; the last may be shorter.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::BATCH;

/// The longest datagram that joins a train, in bytes: what an Ethernet frame carries over
/// IPv6. The kernel cuts a train up but does not fragment what it cuts off.
const SEGMENT_MAX: usize = 1452;

/// The bytes of a train at the most: those of a datagram over IPv4.
const TRAIN_MAX: usize = 65_507;

/// Trains among which a datagram looks for its own. What is due to more destinations at once
/// makes short trains anyway.
const LOOK_BACK: usize = 8;

// linux/udp.h, UDP_MAX_SEGMENTS: 64 until Linux 6.9, then 128.
const _: () = assert!(BATCH <= 64, "a train may be a whole batch");

/// Datagrams that leave together: one, or a train of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Train {
    first: u8,
    count: u8,
    /// Bytes of its first datagram.
    segment: usize,
    bytes: usize,
    is_open: bool,
}

impl Train {
    /// How many datagrams there are in it.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// The bytes of each, if there are several to be cut apart.
    pub(crate) fn segment(&self) -> Option<u16> {
        (self.count > 1).then_some(self.segment as u16)
    }

    /// Where they stand in [`Formation::order`].
    pub(crate) fn range(&self) -> Range<usize> {
        usize::from(self.first)..usize::from(self.first) + self.count()
    }

    fn takes(&self, len: usize) -> bool {
        self.is_open && (1..=self.segment).contains(&len) && self.bytes + len <= TRAIN_MAX
    }

    fn add(&mut self, len: usize) {
        self.count += 1;
        self.bytes += len;
        self.is_open = len == self.segment;
    }
}

/// A datagram that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wagon {
    /// What its sender calls it.
    pub(crate) entry: u8,
    pub(crate) to: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    /// Its bytes.
    pub(crate) len: usize,
    /// Whether it may be part of a train.
    pub(crate) may_join: bool,
}

/// Datagrams of one socket, made up into trains. Those to one destination keep their order.
#[derive(Debug, Default)]
pub(crate) struct Formation {
    trains: ArrayVec<Train, BATCH>,
    order: ArrayVec<u8, BATCH>,
}

impl Formation {
    /// Makes trains of at most [`BATCH`] datagrams.
    pub(crate) fn of(wagons: impl Iterator<Item = Wagon>) -> Self {
        let mut trains = ArrayVec::<Train, BATCH>::new();
        let mut heads = ArrayVec::<Wagon, BATCH>::new();
        let mut joined = ArrayVec::<(u8, u8), BATCH>::new();
        for wagon in wagons {
            let same = |head: &Wagon| (head.to, head.source) == (wagon.to, wagon.source);
            let near = trains.len().saturating_sub(LOOK_BACK);
            // Only the last train to a destination: what joined one before it would overtake.
            let last = heads[near..].iter().rposition(same).map(|k| near + k);
            let k = match last {
                Some(k) if wagon.may_join && trains[k].takes(wagon.len) => {
                    trains[k].add(wagon.len);
                    k
                }
                _ => {
                    trains.push(Train {
                        first: 0,
                        count: 1,
                        segment: wagon.len,
                        bytes: wagon.len,
                        is_open: wagon.may_join && wagon.len <= SEGMENT_MAX,
                    });
                    heads.push(wagon);
                    trains.len() - 1
                }
            };
            joined.push((wagon.entry, k as u8));
        }
        let mut next = 0;
        let mut places = ArrayVec::<u8, BATCH>::new();
        for train in &mut trains {
            train.first = next;
            places.push(next);
            next += train.count;
        }
        let mut order = ArrayVec::from([0; BATCH]);
        order.truncate(joined.len());
        for (entry, k) in joined {
            let place = &mut places[usize::from(k)];
            order[usize::from(*place)] = entry;
            *place += 1;
        }
        Self { trains, order }
    }

    /// The trains, in the order in which they are to leave.
    pub(crate) fn trains(&self) -> &[Train] {
        &self.trains
    }

    /// The datagrams, by the trains' order.
    pub(crate) fn order(&self) -> &[u8] {
        &self.order
    }

    /// The datagrams of the train with this number.
    pub(crate) fn members(&self, train: usize) -> &[u8] {
        &self.order[self.trains[train].range()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wagon(entry: usize, host: u8, len: usize) -> Wagon {
        let to = SocketAddr::from(([192, 0, 2, host], 5060));
        Wagon { entry: entry as u8, to, source: None, len, may_join: true }
    }

    fn formed(wagons: &[Wagon]) -> Vec<Vec<u8>> {
        let formation = Formation::of(wagons.iter().copied());
        (0..formation.trains().len()).map(|k| formation.members(k).to_vec()).collect()
    }

    /// Trains of datagrams of these lengths, all to one destination.
    fn of_lengths(lengths: &[usize]) -> Vec<Vec<u8>> {
        let wagons: Vec<_> = lengths.iter().enumerate().map(|(i, &l)| wagon(i, 1, l)).collect();
        formed(&wagons)
    }

    #[test]
    fn a_train_has_one_length_and_ends_with_a_shorter_one() {
        assert_eq!(of_lengths(&[9, 9, 9]), [[0, 1, 2]]);
        assert_eq!(of_lengths(&[9, 9, 8, 9, 9]), [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(of_lengths(&[9, 10, 10]), [vec![0], vec![1, 2]]);
        assert_eq!(of_lengths(&[9, 8, 8]), [vec![0, 1], vec![2]]);
        // The kernel would take the last for none.
        assert_eq!(of_lengths(&[9, 0, 0]), [[0], [1], [2]]);
    }

    #[test]
    fn a_train_has_limits() {
        assert_eq!(of_lengths(&[SEGMENT_MAX; 3]), [[0, 1, 2]]);
        assert_eq!(of_lengths(&[SEGMENT_MAX + 1; 2]), [[0], [1]]);
        let lengths: Vec<_> = of_lengths(&[SEGMENT_MAX; BATCH]).iter().map(Vec::len).collect();
        assert_eq!(lengths, [45, 19]);
        assert_eq!(of_lengths(&[1000; BATCH]).len(), 1);
    }

    #[test]
    fn trains_to_several_destinations_form_side_by_side() {
        let wagons: Vec<_> = (0..6).map(|i| wagon(i, (i % 2) as u8, 9)).collect();
        assert_eq!(formed(&wagons), [[0, 2, 4], [1, 3, 5]]);
        let far = LOOK_BACK + 1;
        let wagons: Vec<_> = (0..2 * far).map(|i| wagon(i, (i % far) as u8, 9)).collect();
        assert_eq!(formed(&wagons).len(), 2 * far);
    }

    #[test]
    fn what_leaves_from_another_address_or_may_not_join_is_apart() {
        let mut wagons = [wagon(0, 1, 9), wagon(1, 1, 9), wagon(2, 1, 9)];
        wagons[1].source = "192.0.2.9".parse().ok();
        assert_eq!(formed(&wagons), [vec![0, 2], vec![1]]);
        wagons[1] = Wagon { may_join: false, ..wagon(1, 1, 9) };
        assert_eq!(formed(&wagons), [[0], [1], [2]]);
    }

    proptest! {
        /// Each datagram is in one train, all of a train fit it, and what goes to one
        /// destination keeps its order.
        #[test]
        fn order_to_a_destination_is_kept(
            wagons in prop::collection::vec((0..12u8, 0..4usize, prop::bool::weighted(0.9)), 0..=BATCH),
        ) {
            let wagons: Vec<_> = wagons
                .into_iter()
                .enumerate()
                .map(|(i, (host, len, may_join))| Wagon { may_join, ..wagon(i, host, 500 * len) })
                .collect();
            let formation = Formation::of(wagons.iter().copied());
            for host in 0..12 {
                let to = wagon(0, host, 0).to;
                let order = formation.order().iter().filter(|&&e| wagons[usize::from(e)].to == to);
                let given = wagons.iter().filter(|wagon| wagon.to == to).map(|wagon| &wagon.entry);
                prop_assert!(order.eq(given));
            }
            for (k, train) in formation.trains().iter().enumerate() {
                let lens = formation.members(k).iter().map(|&e| wagons[usize::from(e)].len);
                let lens: Vec<_> = lens.collect();
                prop_assert_eq!(lens.len(), train.count());
                if let Some(segment) = train.segment() {
                    let (last, others) = lens.split_last().unwrap();
                    prop_assert!(others.iter().all(|&len| len == usize::from(segment)));
                    prop_assert!((1..=usize::from(segment)).contains(last));
                    prop_assert!(lens.iter().sum::<usize>() <= TRAIN_MAX);
                }
            }
        }
    }
}
