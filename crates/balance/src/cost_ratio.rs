//! Learns the cost of starting a call at a back end, as a multiple of the cost of ending it, from
//! response times.
//!
//! A balancer does not see the processor of a back end. But a back end answers a request after the
//! requests that it already had. So the response time R depends linearly on the number of waiting
//! requests that start calls (`starts`) and on the number of all other waiting requests (`ends`):
//! R = c + a·starts + b·ends. Both numbers are counted when the request is sent, and include it.
//! The method of least squares gives a and b, and a/b is the ratio of the costs. The network delay
//! is part of c, so distance does not matter. About the last thousand requests count, with
//! decreasing weight.
//!
//! Cold start: there is no ratio. Under light load no request waits, so response times contain no
//! information about costs. The ratio does not change while the two numbers hardly vary, or vary
//! only together or in opposite directions. Range: 1 to 4. Known bias: the cost of an INVITE after
//! its first response is attributed to other requests. Requests other than INVITE count as ends. If
//! a back end has several processors, a and b are smaller by the same factor.

const BOUNDS: (f64, f64) = (1.0, 4.0);

/// Factor by which each new request reduces the weight of all earlier requests. So about the last
/// thousand requests have an effect.
const MEMORY: f64 = 0.999;
/// Minimum sum of the weights of all requests. Below it, no ratio is computed.
const ENOUGH: f64 = 300.0;
/// Number of requests after which the ratio is computed again.
const SOLVE_EVERY: u32 = 64;
/// Minimum variance of the number of waiting requests that start calls, and of the number of all
/// other waiting requests. If one variance is lower, the ratio does not change.
const VARIANCE_MIN: f64 = 0.25;
/// Maximum of the squared correlation between the number of waiting requests that start calls and
/// the number of all other waiting requests. If it is higher, the effects of the two numbers cannot
/// be separated.
const CORRELATION_MAX: f64 = 0.9;

/// The cost of starting a call at a back end relative to the cost of ending it, learned by the
/// method of least squares.
#[derive(Clone, Debug, Default)]
pub(crate) struct CostRatio {
    /// Weighted sums over all requests of 1, s, e, r, ss, se, ee, sr and er. Here r is the response
    /// time of a request, s the number of waiting requests that start calls, and e the number of
    /// all other waiting requests.
    sums: [f64; 9],
    since_solved: u32,
    ratio: Option<f64>,
}

impl CostRatio {
    /// Adds a request that was answered after `response_s` seconds. `starts` and `ends` are the
    /// numbers of unanswered requests when the request was sent, including the request itself:
    /// those that start calls, and all others.
    pub(crate) fn push(&mut self, starts: u32, ends: u32, response_s: f64) {
        let (s, e, r) = (f64::from(starts), f64::from(ends), response_s);
        for (sum, new) in
            self.sums.iter_mut().zip([1.0, s, e, r, s * s, s * e, e * e, s * r, e * r])
        {
            *sum = *sum * MEMORY + new;
        }
        self.since_solved += 1;
        if self.since_solved >= SOLVE_EVERY {
            self.since_solved = 0;
            self.ratio = self.solve().or(self.ratio);
        }
    }

    /// Returns the cost of starting a call as a multiple (1 to 4) of the cost of ending one, or
    /// `None` until it is learned.
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.ratio
    }

    fn solve(&self) -> Option<f64> {
        let [n, s, e, r, ss, se, ee, sr, er] = self.sums;
        if n < ENOUGH {
            return None;
        }
        let about_means = |product: f64, a: f64, b: f64| product / n - (a / n) * (b / n);
        let (var_s, var_e) = (about_means(ss, s, s), about_means(ee, e, e));
        let (cov, cov_sr, cov_er) =
            (about_means(se, s, e), about_means(sr, s, r), about_means(er, e, r));
        if var_s.min(var_e) < VARIANCE_MIN || cov * cov > CORRELATION_MAX * var_s * var_e {
            return None;
        }
        // This is Cramer's rule. The common denominator is positive and cancels in the ratio.
        let start = cov_sr * var_e - cov_er * cov;
        let end = cov_er * var_s - cov_sr * cov;
        (start > 0.0 && end > 0.0).then(|| (start / end).clamp(BOUNDS.0, BOUNDS.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(start_s: f64, end_s: f64, numbers: impl Fn(u32) -> (u32, u32)) -> Option<f64> {
        let mut ratio = CostRatio::default();
        for k in 0..2000 {
            let (starts, ends) = numbers(k);
            let response = 0.030 + start_s * f64::from(starts) + end_s * f64::from(ends);
            ratio.push(starts, ends, response);
        }
        ratio.ratio()
    }

    #[test]
    fn a_known_ratio_is_found_whatever_the_way_there_takes() {
        let vary = |k: u32| (k % 5, k / 5 % 7);
        assert!((learned(0.006, 0.002, vary).unwrap() - 3.0).abs() < 1e-6);
        assert!((learned(0.0011, 0.001, vary).unwrap() - 1.1).abs() < 1e-6);
    }

    #[test]
    fn it_keeps_within_its_bounds() {
        let vary = |k: u32| (k % 5, k / 5 % 7);
        assert_eq!(learned(0.001, 0.003, vary), Some(1.0));
        assert_eq!(learned(0.009, 0.001, vary), Some(4.0));
    }

    #[test]
    fn signals_without_information_change_nothing() {
        for numbers in [
            // In the first case each kind always comes alone. In the next two, both kinds always or
            // nearly always come together. In the last, no call ends.
            (|k: u32| (k % 2, 1 - k % 2)) as fn(u32) -> (u32, u32),
            |k| (k % 9, k % 9),
            |k| (k % 9, k % 9 + u32::from(k % 97 == 0)),
            |k| (k % 9, 0),
        ] {
            assert_eq!(learned(0.006, 0.002, numbers), None);
        }
        // A cost below zero is invalid.
        assert_eq!(learned(-0.001, 0.002, |k| (k % 5, k / 5 % 7)), None);
        let mut few = CostRatio::default();
        (0..128).for_each(|k: u32| few.push(k % 5, k / 5 % 7, f64::from(2 * (k % 5) + k / 5 % 7)));
        assert_eq!(few.ratio(), None);
    }
}
