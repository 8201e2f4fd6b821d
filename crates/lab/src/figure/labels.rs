//! Places names at the ends of curves, and moves names apart if they would overlap.

/// Returns a vertical position for each label, in the order of the `wanted` positions. The returned
/// positions are at least `gap` apart, and within `low..=high` if there is room. They are as near
/// to the wanted positions as possible (least squares).
pub(super) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));

    // With the gaps before each label subtracted, the positions must not decrease. This is an
    // isotonic regression, solved by pooling adjacent violators. Each block is (sum, count).
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (rank, &index) in order.iter().enumerate() {
        let mut block = (wanted[index] - gap * rank as f64, 1);
        while let Some(&(sum, count)) = blocks.last() {
            if sum / count as f64 <= block.0 / block.1 as f64 {
                break;
            }
            blocks.pop();
            block = (block.0 + sum, block.1 + count);
        }
        blocks.push(block);
    }
    let levels =
        blocks.iter().flat_map(|&(sum, count)| std::iter::repeat_n(sum / count as f64, count));

    let room = (high - gap * wanted.len().saturating_sub(1) as f64).max(low);
    let mut places = vec![0.0; wanted.len()];
    for (rank, (level, index)) in levels.zip(order).enumerate() {
        places[index] = level.clamp(low, room) + gap * rank as f64;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_with_room_stay_where_they_are() {
        assert_eq!(spread(&[50.0, 10.0, 90.0], 15.0, 0.0, 100.0), [50.0, 10.0, 90.0]);
    }

    #[test]
    fn labels_at_the_same_place_are_spread_around_it() {
        assert_eq!(spread(&[50.0, 50.0, 50.0], 10.0, 0.0, 100.0), [40.0, 50.0, 60.0]);
    }

    #[test]
    fn a_group_does_not_move_a_label_that_has_room() {
        assert_eq!(spread(&[50.0, 50.0, 85.0], 10.0, 0.0, 100.0), [45.0, 55.0, 85.0]);
    }

    #[test]
    fn a_group_beyond_the_edge_is_moved_inside() {
        assert_eq!(spread(&[99.0, 100.0], 10.0, 0.0, 100.0), [90.0, 100.0]);
        assert_eq!(spread(&[0.0, 1.0, 30.0], 10.0, 0.0, 100.0), [0.0, 10.0, 30.0]);
    }

    #[test]
    fn groups_that_meet_become_one() {
        let places = spread(&[10.0, 11.0, 20.0, 21.0], 10.0, 0.0, 100.0);
        for pair in places.windows(2) {
            assert!(pair[1] - pair[0] >= 10.0 - 1e-9, "{places:?}");
        }
        assert!((places.iter().sum::<f64>() - 62.0).abs() < 1e-9, "{places:?}");
    }
}
