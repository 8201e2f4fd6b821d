//! Generic segmentation offload: the kernel takes several datagrams as one batch and sends them one
//! by one (`UDP_SEGMENT`).
//!
//! Most of the cost of sending is the path through the kernel to the device. A batch takes this
//! path only once. All datagrams of a batch have the same source, destination and length. The last
//! may be shorter. A datagram that may be padded is extended to the length of the others.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use arrayvec::ArrayVec;
use tidegate_world::Batching;

use crate::BATCH;

/// The longest datagram in a batch, in bytes: the UDP payload of an Ethernet frame over IPv6. The
/// kernel cuts a batch into segments but does not fragment the segments.
const SEGMENT_MAX: usize = 1452;

/// The maximum size of a batch: the maximum payload of a UDP datagram over IPv4.
const GSO_MAX: usize = 65_507;

/// Number of the latest batches that a datagram may join. If datagrams go to more destinations at
/// the same time, batches are short anyway.
const LOOK_BACK: usize = 16;

// linux/udp.h, UDP_MAX_SEGMENTS: 64 until Linux 6.9, then 128.
const _: () = assert!(BATCH <= 64, "the kernel takes BATCH datagrams as one GSO batch");

/// A batch of datagrams that leave together: one or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GsoBatch {
    first: u8,
    count: u8,
    /// Length of each datagram, after padding. The last one may be shorter.
    segment: usize,
    /// Length of the shortest datagram before padding.
    shortest: usize,
    /// True if another datagram may join the batch.
    is_open: bool,
    /// True if all datagrams of the batch may be padded.
    may_grow: bool,
}

impl GsoBatch {
    fn of(datagram: &Segment) -> Self {
        Self {
            first: 0,
            count: 1,
            segment: datagram.len,
            shortest: datagram.len,
            is_open: datagram.may_join && datagram.len <= SEGMENT_MAX,
            may_grow: datagram.may_pad(),
        }
    }

    /// Returns the number of datagrams in the batch.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns the length of each datagram, or `None` if there is only one.
    pub(crate) fn segment(&self) -> Option<u16> {
        (self.count > 1).then_some(self.segment as u16)
    }

    /// Returns the positions of the batch's datagrams in the [order](GsoPlan::order) of sending.
    pub(crate) fn range(&self) -> Range<usize> {
        usize::from(self.first)..usize::from(self.first) + self.count()
    }

    /// Returns how a datagram can join the batch, or `None` if it cannot. At most `pad_max` bytes
    /// are added to any datagram.
    fn fit(&self, datagram: &Segment, pad_max: usize) -> Option<Fit> {
        let Segment { len, batching, .. } = *datagram;
        let segment = self.segment.max(len);
        if !self.is_open || len == 0 || len > SEGMENT_MAX {
            return None;
        }
        let fit = match len {
            _ if len == self.segment => Fit::Equal,
            _ if len < self.segment && datagram.may_pad() && self.segment - len <= pad_max => {
                Fit::Padded
            }
            // A datagram that may be sent out of order waits for others of its length instead of
            // ending a batch.
            _ if len < self.segment && batching.sequence == 0 => Fit::Last,
            _ if len > self.segment && self.may_grow && len - self.shortest <= pad_max => {
                Fit::Longest
            }
            _ => return None,
        };
        (segment * (self.count() + 1) <= GSO_MAX).then_some(fit)
    }

    fn add(&mut self, datagram: &Segment, fit: Fit) {
        self.count += 1;
        self.segment = self.segment.max(datagram.len);
        self.shortest = self.shortest.min(datagram.len);
        self.may_grow &= datagram.may_pad();
        self.is_open = fit != Fit::Last;
    }
}

/// The way in which a datagram joins a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// The datagram has the same length as the others.
    Equal,
    /// The datagram is padded to the length of the others.
    Padded,
    /// The datagram is longer than the others, which are padded to its length.
    Longest,
    /// The datagram is shorter than the others, so no datagram can follow it.
    Last,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Index by which the sender finds the datagram.
    pub(crate) entry: u8,
    pub(crate) to: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    /// Length of the datagram in bytes, before padding.
    pub(crate) len: usize,
    /// Whether the datagram may be part of a batch.
    pub(crate) may_join: bool,
    pub(crate) batching: Batching,
}

impl Segment {
    fn may_pad(&self) -> bool {
        self.batching.pad_at != 0
    }
}

/// The batches of one socket's datagrams. Datagrams to one destination keep their order, except
/// those of different [sequences](Batching::sequence).
#[derive(Debug, Default)]
pub(crate) struct GsoPlan {
    gso_batches: ArrayVec<GsoBatch, BATCH>,
    /// The [entry](Segment::entry) of each datagram, batch after batch.
    order: ArrayVec<u8, BATCH>,
}

impl GsoPlan {
    /// Makes batches of these datagrams of one socket, at most [`BATCH`] datagrams. Adds at most
    /// `pad_max` bytes to each datagram.
    pub(crate) fn of(datagrams: impl Iterator<Item = Segment>, pad_max: usize) -> Self {
        let mut gso_batches = ArrayVec::<GsoBatch, BATCH>::new();
        let mut heads = ArrayVec::<Segment, BATCH>::new();
        let mut joined = ArrayVec::<Joined, BATCH>::new();
        for datagram in datagrams {
            let is_beside =
                |head: &Segment| (head.to, head.source) == (datagram.to, datagram.source);
            let near = gso_batches.len().saturating_sub(LOOK_BACK);
            let Segment { entry, batching: Batching { sequence, .. }, .. } = datagram;
            // A datagram that joined an earlier batch would overtake others.
            let first = if sequence == 0 {
                heads[near..].iter().rposition(is_beside).map_or(gso_batches.len(), |k| near + k)
            } else {
                let is_before = |other: &&Joined| {
                    (other.sequence == sequence || other.sequence == 0)
                        && is_beside(&heads[usize::from(other.gso_batch)])
                };
                let last = joined.iter().filter(is_before).map(|other| other.gso_batch).max();
                last.map_or(near, |k| near.max(k.into()))
            };
            let fit =
                |k: usize| is_beside(&heads[k]).then(|| gso_batches[k].fit(&datagram, pad_max))?;
            let candidates = (first..gso_batches.len()).filter(|_| datagram.may_join);
            let best = candidates.filter_map(|k| Some((fit(k)?, k))).min();
            let k = match best {
                Some((fit, k)) => {
                    gso_batches[k].add(&datagram, fit);
                    k
                }
                None => {
                    gso_batches.push(GsoBatch::of(&datagram));
                    heads.push(datagram);
                    gso_batches.len() - 1
                }
            };
            joined.push(Joined { entry, gso_batch: k as u8, sequence });
        }
        let mut next = 0;
        let mut places = ArrayVec::<u8, BATCH>::new();
        for gso_batch in &mut gso_batches {
            gso_batch.first = next;
            places.push(next);
            next += gso_batch.count;
        }
        let mut order = ArrayVec::from([0; BATCH]);
        order.truncate(joined.len());
        for Joined { entry, gso_batch, .. } in joined {
            let place = &mut places[usize::from(gso_batch)];
            order[usize::from(*place)] = entry;
            *place += 1;
        }
        Self { gso_batches, order }
    }

    /// Returns the batches, in the order in which they leave.
    pub(crate) fn gso_batches(&self) -> &[GsoBatch] {
        &self.gso_batches
    }

    /// Returns the [entries](Segment::entry) of the datagrams of the batch with this number.
    pub(crate) fn members(&self, gso_batch: usize) -> &[u8] {
        &self.order[self.gso_batches[gso_batch].range()]
    }

    /// Returns the number of bytes to add to the datagram at the index `place` of
    /// [`members`](Self::members). Without padding, the datagram has `len` bytes.
    pub(crate) fn padding(&self, gso_batch: usize, place: usize, len: usize) -> usize {
        let GsoBatch { segment, is_open, .. } = self.gso_batches[gso_batch];
        let is_short_last = !is_open && place + 1 == self.gso_batches[gso_batch].count();
        if is_short_last { 0 } else { segment - len }
    }
}

/// A datagram, and the number of the batch that it has joined.
struct Joined {
    entry: u8,
    gso_batch: u8,
    sequence: u32,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAD_MAX: usize = 32;

    fn datagram(entry: usize, host: u8, len: usize) -> Segment {
        let to = SocketAddr::from(([192, 0, 2, host], 5060));
        let batching = Batching::default();
        Segment { entry: entry as u8, to, source: None, len, may_join: true, batching }
    }

    /// Returns a [`datagram`] of this sequence. It may be padded.
    fn free(entry: usize, sequence: u32, len: usize) -> Segment {
        Segment { batching: Batching { sequence, pad_at: 1 }, ..datagram(entry, 1, len) }
    }

    fn formed(datagrams: &[Segment]) -> Vec<Vec<u8>> {
        let plan = GsoPlan::of(datagrams.iter().copied(), PAD_MAX);
        (0..plan.gso_batches().len()).map(|k| plan.members(k).to_vec()).collect()
    }

    /// Returns the batches of datagrams with these lengths, all to one destination.
    fn of_lengths(lengths: &[usize]) -> Vec<Vec<u8>> {
        let datagrams: Vec<_> =
            lengths.iter().enumerate().map(|(i, &l)| datagram(i, 1, l)).collect();
        formed(&datagrams)
    }

    #[test]
    fn a_batch_has_one_length_and_ends_with_a_shorter_datagram() {
        assert_eq!(of_lengths(&[9, 9, 9]), [[0, 1, 2]]);
        assert_eq!(of_lengths(&[9, 9, 8, 9, 9]), [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(of_lengths(&[9, 10, 10]), [vec![0], vec![1, 2]]);
        assert_eq!(of_lengths(&[9, 8, 8]), [vec![0, 1], vec![2]]);
        // The kernel would not send an empty datagram at the end of a batch.
        assert_eq!(of_lengths(&[9, 0, 0]), [[0], [1], [2]]);
    }

    #[test]
    fn a_batch_has_limits() {
        assert_eq!(of_lengths(&[SEGMENT_MAX; 3]), [[0, 1, 2]]);
        assert_eq!(of_lengths(&[SEGMENT_MAX + 1; 2]), [[0], [1]]);
        let lengths: Vec<_> = of_lengths(&[SEGMENT_MAX; BATCH]).iter().map(Vec::len).collect();
        assert_eq!(lengths, [45, 19]);
        assert_eq!(of_lengths(&[1000; BATCH]).len(), 1);
    }

    #[test]
    fn batches_to_several_destinations_form_at_the_same_time() {
        let datagrams: Vec<_> = (0..6).map(|i| datagram(i, (i % 2) as u8, 9)).collect();
        assert_eq!(formed(&datagrams), [[0, 2, 4], [1, 3, 5]]);
        let far = LOOK_BACK + 1;
        let datagrams: Vec<_> = (0..2 * far).map(|i| datagram(i, (i % far) as u8, 9)).collect();
        assert_eq!(formed(&datagrams).len(), 2 * far);
    }

    #[test]
    fn only_packets_with_the_same_source_address_that_may_join_share_a_batch() {
        let mut datagrams = [datagram(0, 1, 9), datagram(1, 1, 9), datagram(2, 1, 9)];
        datagrams[1].source = "192.0.2.9".parse().ok();
        assert_eq!(formed(&datagrams), [vec![0, 2], vec![1]]);
        datagrams[1] = Segment { may_join: false, ..datagram(1, 1, 9) };
        assert_eq!(formed(&datagrams), [[0], [1], [2]]);
    }

    #[test]
    fn padded_packets_are_as_long_as_the_longest() {
        let plan = |datagrams: &[Segment]| {
            let plan = GsoPlan::of(datagrams.iter().copied(), PAD_MAX);
            let padded = |k: usize| {
                let members = plan.members(k).iter().enumerate();
                let length = |(place, &entry): (usize, &u8)| {
                    let len = datagrams[usize::from(entry)].len;
                    len + plan.padding(k, place, len)
                };
                members.map(length).collect::<Vec<_>>()
            };
            (0..plan.gso_batches().len()).map(padded).collect::<Vec<_>>()
        };
        let free = |lengths: &[usize]| -> Vec<Segment> {
            (0..).zip(lengths).map(|(i, &len)| free(i as usize, i + 1, len)).collect()
        };
        assert_eq!(plan(&free(&[100, 90, 132])), [vec![100, 100], vec![132]]);
        assert_eq!(plan(&free(&[100, 110, 101])), [[110, 110, 110]]);
        assert_eq!(plan(&free(&[100, 140, 110, 99])), [[100, 100], [140, 140]]);
    }

    #[test]
    fn only_datagrams_of_one_sequence_keep_their_order() {
        let (invite, ack) = (700, 400);
        // Two calls, the INVITE and then the ACK of each.
        let calls = [free(0, 1, invite), free(1, 1, ack), free(2, 2, invite), free(3, 2, ack)];
        assert_eq!(formed(&calls), [[0, 2], [1, 3]]);
        // The second ACK of a call must not overtake the datagrams between.
        let one = [free(0, 1, ack), free(1, 1, invite), free(2, 1, ack)];
        assert_eq!(formed(&one), [[0], [1], [2]]);
        // A datagram without a sequence keeps its place among all.
        let mixed = [free(0, 1, ack), datagram(1, 1, invite), free(2, 2, ack), free(3, 3, ack)];
        assert_eq!(formed(&mixed), [vec![0], vec![1], vec![2, 3]]);
    }

    proptest! {
        /// Datagrams of one sequence keep their order, and a datagram without a sequence keeps its
        /// place among all.
        #[test]
        fn order_within_a_sequence_is_kept(
            drawn in prop::collection::vec((0..3u8, 0..4u32, 0..80usize, any::<bool>()), 0..=BATCH),
        ) {
            let datagrams: Vec<_> = drawn
                .into_iter()
                .enumerate()
                .map(|(i, (host, sequence, len, may_pad))| {
                    let batching = Batching { sequence, pad_at: may_pad.into() };
                    Segment { batching, ..datagram(i, host, 1400 + len) }
                })
                .collect();
            let plan = GsoPlan::of(datagrams.iter().copied(), PAD_MAX);
            let order: Vec<_> = plan.order.iter().map(|&e| usize::from(e)).collect();
            prop_assert!((0..datagrams.len()).all(|e| order.contains(&e)));
            for (place, &later) in order.iter().enumerate() {
                for &sooner in &order[..place] {
                    let (a, b) = (datagrams[sooner], datagrams[later]);
                    let sequences = (a.batching.sequence, b.batching.sequence);
                    let are_tied = sequences.0 == sequences.1 || sequences.0 == 0 || sequences.1 == 0;
                    prop_assert!(a.to != b.to || !are_tied || sooner < later);
                }
            }
            for (k, gso_batch) in plan.gso_batches().iter().enumerate() {
                for (place, &entry) in plan.members(k).iter().enumerate() {
                    let datagram = datagrams[usize::from(entry)];
                    let padding = plan.padding(k, place, datagram.len);
                    prop_assert!(padding <= PAD_MAX && (padding == 0 || datagram.may_pad()));
                    let is_last = place + 1 == gso_batch.count();
                    let segment = gso_batch.segment.min(datagram.len + padding);
                    prop_assert!(is_last || segment == gso_batch.segment);
                }
            }
        }

        /// Each datagram is in one batch, all datagrams of a batch fit it, and datagrams to one
        /// destination keep their order.
        #[test]
        fn order_to_a_destination_is_kept(
            datagrams in prop::collection::vec((0..12u8, 0..4usize, prop::bool::weighted(0.9)), 0..=BATCH),
        ) {
            let datagrams: Vec<_> = datagrams
                .into_iter()
                .enumerate()
                .map(|(i, (host, len, may_join))| Segment { may_join, ..datagram(i, host, 500 * len) })
                .collect();
            let plan = GsoPlan::of(datagrams.iter().copied(), PAD_MAX);
            for host in 0..12 {
                let to = datagram(0, host, 0).to;
                let order = plan.order.iter().filter(|&&e| datagrams[usize::from(e)].to == to);
                let given = datagrams.iter().filter(|datagram| datagram.to == to).map(|datagram| &datagram.entry);
                prop_assert!(order.eq(given));
            }
            for (k, gso_batch) in plan.gso_batches().iter().enumerate() {
                let lens = plan.members(k).iter().map(|&e| datagrams[usize::from(e)].len);
                let lens: Vec<_> = lens.collect();
                prop_assert_eq!(lens.len(), gso_batch.count());
                if let Some(segment) = gso_batch.segment() {
                    let (last, others) = lens.split_last().unwrap();
                    prop_assert!(others.iter().all(|&len| len == usize::from(segment)));
                    prop_assert!((1..=usize::from(segment)).contains(last));
                    prop_assert!(lens.iter().sum::<usize>() <= GSO_MAX);
                }
            }
        }
    }
}
