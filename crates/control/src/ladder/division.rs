//! Divides the requests that may pass between INVITEs and REGISTERs.

/// In an overload, the number of new INVITEs that are served for each REGISTER, while both wait. A
/// phone that is not registered can try again later, but a caller waits. REGISTERs still get
/// at least a fifth of the turns, so that phones keep their registrations in a flood of calls.
pub const INVITES_PER_REGISTER: usize = 3;

/// Divides `left` requests a second max-min fairly, by the weights of the methods, between two
/// methods. `rates` are the rates at which the requests of the methods arrive. Returns the part of
/// each method's requests that may pass, 0 to 1.
pub(super) fn passing_parts(left: f64, rates: [f64; 2]) -> [f64; 2] {
    let whole = INVITES_PER_REGISTER as f64 + 1.0;
    let weights = [INVITES_PER_REGISTER as f64 / whole, 1.0 / whole];
    [0, 1].map(|method| {
        let (rate, other) = (rates[method], rates[1 - method]);
        let may_pass = (weights[method] * left).max(left - other);
        if rate <= may_pass { 1.0 } else { may_pass / rate }
    })
}

#[cfg(test)]
mod tests {
    use super::passing_parts;
    use crate::MaxMin;

    #[test]
    fn the_methods_divide_the_passing_requests_max_min_fairly() {
        for (left, rates, passing) in [
            // Everything fits.
            (100.0, [60.0, 40.0], [1.0, 1.0]),
            (100.0, [0.0, 0.0], [1.0, 1.0]),
            (f64::INFINITY, [60.0, 1e9], [1.0, 1.0]),
            // Only the method above its part is dropped. It gets what the other one leaves.
            (100.0, [60.0, 400.0], [1.0, 0.1]),
            (100.0, [400.0, 20.0], [0.2, 1.0]),
            (100.0, [0.0, 200.0], [1.0, 0.5]),
            // Both are above their parts.
            (100.0, [100.0, 250.0], [0.75, 0.1]),
            (0.0, [0.0, 500.0], [1.0, 0.0]),
        ] {
            assert_eq!(passing_parts(left, rates), passing, "{left} {rates:?}");
        }
        let mut max_min = MaxMin::default();
        for (left, rates) in [(80.0, [30.0, 55.0]), (80.0, [75.0, 10.0]), (80.0, [75.0, 90.0])] {
            max_min.set([(rates[0], 3.0), (rates[1], 1.0)]);
            let level = max_min.level(left);
            let expected = [3.0 * level / rates[0], level / rates[1]].map(|part| part.min(1.0));
            assert_eq!(passing_parts(left, rates), expected, "{left} {rates:?}");
        }
    }
}
