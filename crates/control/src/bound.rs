//! The maximum goodput that any law can reach if the server itself sheds the excess.
//!
//! A server spends the CPU time `s` on a whole call, and `r` on shedding a call. Both times include
//! all messages of the call and the kernel's work. If the offered load is `m` times the capacity
//! `C = 1/s`, the server must shed all calls that it does not serve. With `g` served calls a
//! second, `g·s + (m·C − g)·r = 1`. The goodput G as a fraction of the capacity G0 is
//!
//! ```text
//! G/G0 = (1 − m·r/s) / (1 − r/s)    for m ≥ 1, within [0, 1]
//! G/G0 = m                            for m < 1
//! ```
//!
//! So the cost of a rejection matters more than the choice of the law.

/// Returns the goodput as a fraction of the capacity, if the offered load is `multiple` times the
/// capacity. `cost_ratio` is r/s, 0 to 1: the cost of shedding a call divided by the cost of
/// serving one.
pub fn goodput(multiple: f64, cost_ratio: f64) -> f64 {
    goodput_at_target(multiple, cost_ratio, 1.0)
}

/// Returns the [`goodput`] under a law that keeps the occupancy at `target` (0 to 1), and so leaves
/// a part of the processor unused: `(target − m·r/s) / (1 − r/s)` for m above `target`, else m.
pub fn goodput_at_target(multiple: f64, cost_ratio: f64, target: f64) -> f64 {
    if multiple <= target {
        return multiple.max(0.0);
    }
    if cost_ratio >= 1.0 {
        // Rejecting costs as much as serving, so the server can spend all its time on rejections.
        return 0.0;
    }
    ((target - multiple * cost_ratio) / (1.0 - cost_ratio)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_design_are_met() {
        for (ratio, multiple, expected) in [
            (0.30, 2.0, 0.57),
            (0.30, 10.0 / 3.0, 0.0),
            (0.10, 2.0, 0.89),
            (0.10, 5.0, 0.56),
            (0.10, 10.0, 0.0),
            (0.03, 2.0, 0.97),
            (0.03, 5.0, 0.88),
            (0.03, 10.0, 0.72),
        ] {
            let bound = goodput(multiple, ratio);
            assert!((bound - expected).abs() < 0.006, "{multiple} at {ratio}: {bound}");
        }
    }

    #[test]
    fn below_capacity_everything_can_be_served() {
        for multiple in [0.0, 0.5, 1.0] {
            assert_eq!(goodput(multiple, 0.2), multiple);
        }
        assert_eq!(goodput(0.5, 1.0), 0.5);
        assert_eq!(goodput(2.0, 1.0), 0.0);
    }

    #[test]
    fn unused_capacity_is_lost() {
        // (0.9 − 2 · 0.1) / 0.9
        assert!((goodput_at_target(2.0, 0.1, 0.9) - 0.7 / 0.9).abs() < 1e-12);
        assert_eq!(goodput_at_target(0.85, 0.1, 0.9), 0.85);
    }
}
