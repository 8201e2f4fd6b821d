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

/// The longest datagram in a batch, in bytes: 1,500 bytes of an Ethernet frame, without the IPv6 and
/// UDP headers. The kernel cuts a batch into segments but does not fragment the segments.
const SEGMENT_MAX: usize = 1452;

/// The maximum size of a batch: the maximum payload of a UDP datagram over IPv4.
const GSO_MAX: usize = 65_507;

/// Number of the latest batches that a datagram may join. If datagrams go to more destinations at
/// the same time, batches are short anyway.
const LOOK_BACK: usize = 16;

// linux/udp.h, UDP_MAX_SEGMENTS: 64 until Linux 6.9, then 128.
const _: () = assert!(BATCH <= 64, "the kernel does not take BATCH datagrams as one GSO batch");

/// A batch of one or several datagrams that are passed to the kernel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GsoBatch {
    first: u8,
    count: u8,
    /// Length of each datagram of the batch, after padding. The last datagram may be shorter.
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

    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns the length of each datagram, or `None` if the batch has only one datagram.
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
            // A datagram that may be sent out of order does not end a batch, because it can wait
            // for others of its length.
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
    /// The datagram has the length of the datagrams in the batch.
    Equal,
    /// The datagram is padded to the length of the datagrams in the batch.
    Padded,
    /// The datagram is longer than the datagrams in the batch, which are padded to its length.
    Longest,
    /// The datagram is shorter than the datagrams in the batch, so no other datagram can follow it.
    Last,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Index of the datagram in the queue of the [`Outbox`](crate::Outbox).
    pub(crate) entry: u8,
    pub(crate) to: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    /// Length of the datagram in bytes, before padding.
    pub(crate) len: usize,
    /// True if the datagram may be part of a batch.
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
    /// Forms batches of `datagrams`, which are at most [`BATCH`] datagrams of one socket. Adds at
    /// most `pad_max` bytes to each datagram.
    pub(crate) fn of(datagrams: impl Iterator<Item = Segment>, pad_max: usize) -> Self {
        let mut gso_batches = ArrayVec::<GsoBatch, BATCH>::new();
        let mut heads = ArrayVec::<Segment, BATCH>::new();
        let mut joined = ArrayVec::<Joined, BATCH>::new();
        for datagram in datagrams {
            let is_beside =
                |head: &Segment| (head.to, head.source) == (datagram.to, datagram.source);
            let near = gso_batches.len().saturating_sub(LOOK_BACK);
            let Segment { entry, batching: Batching { sequence, .. }, .. } = datagram;
            // The first batch that the datagram may join without overtaking others.
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

    /// Returns the number of bytes to add to a datagram of `len` bytes, which is at the index
    /// `place` of [`members`](Self::members).
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
#[path = "gso_tests.rs"]
mod tests;
