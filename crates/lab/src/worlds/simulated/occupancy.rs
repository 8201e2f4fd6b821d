//! Counts the open transactions at a server at the time of each new transaction.
//!
//! Paper 003 §VI: "The occupancy for a transaction assigned to a server is the number of
//! transactions already being handled by" the server at that time. INVITEs and BYEs count, from
//! their first transmission to the server until the server sends the final response.

use std::collections::HashSet;
use std::ops::Range;

use tidegate_sip::{Method, Scan, ScanStart};
use tidegate_world::Timestamp;

/// Index of the last element of the histogram. This element also counts all larger numbers.
const OCCUPANCY_MAX: usize = 1000;

/// The open transactions at servers, and a histogram of their number at each new transaction.
pub(super) struct Occupancy {
    /// The time in which new transactions are counted in the histogram.
    measured: Range<Timestamp>,
    /// Open transactions of each party: the callers, each server, the answerers. `None` if the
    /// transactions of the party are not counted.
    open: Vec<Option<HashSet<Transaction>>>,
    counts: Vec<u64>,
}

/// A transaction, identified by Call-ID and method. Agents in simulated time send one INVITE and
/// one BYE in a call.
type Transaction = (Box<[u8]>, Method);

impl Occupancy {
    /// Creates an empty histogram. An element of `watched` is true if the transactions of the
    /// party with this index are counted. New transactions are counted in the time `measured`.
    pub fn new(watched: impl IntoIterator<Item = bool>, measured: Range<Timestamp>) -> Self {
        let open = watched.into_iter().map(|is| is.then(HashSet::new)).collect();
        Self { measured, open, counts: Vec::new() }
    }

    /// Returns the histogram. Element n is the number of new transactions that found n open
    /// transactions at their server.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Records a message from the party `from` to the party `to`.
    pub fn sent(&mut self, now: Timestamp, from: usize, to: usize, scan: &Scan<'_>) {
        if !matches!(scan.cseq_method, Method::Invite | Method::Bye) {
            return;
        }
        let transaction = || (scan.call_id.into(), scan.cseq_method);
        match scan.start {
            ScanStart::Request { .. } => {
                let Some(open) = self.open.get_mut(to).and_then(Option::as_mut) else { return };
                let met = open.len().min(OCCUPANCY_MAX);
                if !open.insert(transaction()) || !self.measured.contains(&now) {
                    return;
                }
                if self.counts.len() <= met {
                    self.counts.resize(met + 1, 0);
                }
                self.counts[met] += 1;
            }
            ScanStart::Response { status: 200.. } => {
                if let Some(open) = self.open.get_mut(from).and_then(Option::as_mut) {
                    open.remove(&transaction());
                }
            }
            ScanStart::Response { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_sip::scan;

    use super::*;
    use crate::testing::message;

    #[test]
    fn a_transaction_meets_the_open_ones_and_retransmissions_do_not_count() {
        let at = |s| Timestamp::ZERO + Duration::from_secs(s);
        // The parties are callers, a balancer, and a server whose transactions are counted.
        let mut occupancy = Occupancy::new([false, false, true], at(10)..at(20));
        let mut send = |s: u64, from, to, start: &str, call_id: &str, cseq: &str| {
            let bytes = message(start, call_id, cseq);
            occupancy.sent(at(s), from, to, &scan(&bytes).unwrap());
        };
        send(9, 0, 1, "INVITE sip:b SIP/2.0", "early", "INVITE");
        send(9, 1, 2, "INVITE sip:b SIP/2.0", "early", "INVITE");
        send(10, 1, 2, "INVITE sip:b SIP/2.0", "a", "INVITE");
        send(11, 1, 2, "INVITE sip:b SIP/2.0", "a", "INVITE");
        send(11, 2, 1, "SIP/2.0 180 Ringing", "a", "INVITE");
        send(12, 1, 2, "BYE sip:b SIP/2.0", "a", "BYE");
        send(13, 2, 1, "SIP/2.0 200 OK", "a", "INVITE");
        send(13, 2, 1, "SIP/2.0 200 OK", "a", "BYE");
        send(13, 1, 2, "ACK sip:b SIP/2.0", "a", "ACK");
        send(14, 1, 2, "INVITE sip:b SIP/2.0", "b", "INVITE");
        send(20, 1, 2, "INVITE sip:b SIP/2.0", "late", "INVITE");
        // The first and the last counted transaction met one open transaction, the early one. The
        // BYE met its own INVITE as well.
        assert_eq!(occupancy.counts(), [0, 2, 1]);
    }
}
