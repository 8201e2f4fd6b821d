//! The final responses of a back end, counted so that the ratios of RFC 6076 can be computed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Kinds of final responses that are counted separately: each status that RFC 6076 distinguishes,
/// and all other statuses of a class together. [`OTHER_6XX`] follows as one more kind.
const KINDS: [&str; 16] = [
    "2xx", "3xx", "401", "402", "407", "408", "480", "486", "487", "4xx", "500", "503", "504",
    "5xx", "600", "603",
];

/// The index of the count of all 6xx responses other than 600 and 603. It follows the counts of
/// [`KINDS`].
const OTHER_6XX: usize = KINDS.len();

/// Counts of final responses by kind, first those to INVITEs, then those to all other requests.
#[derive(Debug, Default)]
pub(crate) struct Finals([[AtomicU64; KINDS.len() + 1]; 2]);

impl Finals {
    #[inline]
    pub(crate) fn add(&self, is_invite: bool, status: u16) {
        self.0[usize::from(!is_invite)][kind_index(status)].fetch_add(1, Relaxed);
    }

    /// Returns all counts, each with its method (`invite` or `other`) and its kind.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        ["invite", "other"].into_iter().zip(&self.0).flat_map(|(method, counts)| {
            let kinds = KINDS.into_iter().chain(["6xx"]).zip(counts);
            kinds.map(move |(kind, count)| (method, kind, count.load(Relaxed)))
        })
    }
}

fn kind_index(status: u16) -> usize {
    match status {
        ..300 => 0,
        300..400 => 1,
        401 => 2,
        402 => 3,
        407 => 4,
        408 => 5,
        480 => 6,
        486 => 7,
        487 => 8,
        400..500 => 9,
        500 => 10,
        503 => 11,
        504 => 12,
        501..600 => 13,
        600 => 14,
        603 => 15,
        _ => OTHER_6XX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_is_counted_as_its_own_or_with_its_class() {
        let name = |status| KINDS.get(kind_index(status)).copied().unwrap_or("6xx");
        for status in [401, 402, 407, 408, 480, 486, 487, 500, 503, 504, 600, 603] {
            assert_eq!(name(status), status.to_string());
        }
        let others = [200, 299, 302, 404, 481, 488, 501, 599, 604, 699].map(name);
        let classes = ["2xx", "2xx", "3xx", "4xx", "4xx", "4xx", "5xx", "5xx", "6xx", "6xx"];
        assert_eq!(others, classes);
        let finals = Finals::default();
        finals.add(true, 200);
        finals.add(false, 604);
        let counted: Vec<_> = finals.each().filter(|(.., count)| *count > 0).collect();
        assert_eq!(counted, [("invite", "2xx", 1), ("other", "6xx", 1)]);
    }
}
