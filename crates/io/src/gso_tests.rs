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
    let datagrams: Vec<_> = lengths.iter().enumerate().map(|(i, &l)| datagram(i, 1, l)).collect();
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
    // The second ACK of a call must not overtake the datagrams before it.
    let one = [free(0, 1, ack), free(1, 1, invite), free(2, 1, ack)];
    assert_eq!(formed(&one), [[0], [1], [2]]);
    // A datagram without a sequence keeps its place among all datagrams.
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
