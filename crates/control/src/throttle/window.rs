//! The window throttle.
//!
//! A window is a number of pieces of work. A piece passes while fewer pieces than the window wait.
//! The window does not depend on a rate. So it also works if the server becomes slower.
//!
//! Source: paper 002 §2.4.

/// Returns whether another piece passes while `in_progress` pieces wait and the window is `size`.
pub(super) fn passes(size: f64, in_progress: u64) -> bool {
    in_progress as f64 + 1.0 <= size
}

#[cfg(test)]
mod tests {
    #[test]
    fn so_many_may_be_in_progress() {
        let cases = [(0.0, 0), (0.9, 0), (1.0, 0), (1.0, 1), (3.5, 2), (3.5, 3), (1e9, 5)];
        let passes = cases.map(|(size, in_progress)| super::passes(size, in_progress));
        assert_eq!(passes, [false, false, true, false, true, false, true]);
    }
}
