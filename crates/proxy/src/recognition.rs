//! Whether a message belongs to something that a shard knows, as far as a scan tells.

use tidegate_sip::{Method, Scan, ScanStart, dialog_tags};
use tidegate_transaction::{Key, identity_of_branch, is_unique};
use tidegate_world::{Received, Timestamp};

use crate::calls::{Call, Transaction};
use crate::endpoint::Endpoint;
use crate::reply::is_own_ack;

impl Endpoint {
    /// Whether a scanned request belongs to a call of ours.
    pub(crate) fn knows(
        &self,
        now: Timestamp,
        method: Method,
        scan: &Scan<'_>,
        received: &Received,
    ) -> bool {
        let hash = |parts: &[&[u8]]| self.keys().identity.hash(parts);
        let branch = scan.branch.unwrap_or_default();
        let identity = identity_of_branch(branch, scan.sent_by, method, method_name(scan), hash);
        if identity.is_some_and(|i| self.transactions().find(Key::new(i, method)).is_some()) {
            return true;
        }
        let fingerprint = self.keys().call.fingerprint(scan.call_id);
        match scan.to_tag {
            // Without a To-tag it is old only if it repeats something: the Call-ID of
            // a call of ours does not make another INVITE part of it.
            None => identity.is_some_and(|identity| {
                let transaction = Transaction { identity, method };
                self.is_repetition(fingerprint, transaction, scan, &received.bytes)
            }),
            // Else the call was made before a restart, or at another instance.
            Some(_) => self
                .is_within(fingerprint, &received.bytes)
                .unwrap_or_else(|| self.has_route_token(now, received, scan.call_id)),
        }
    }

    /// Returns what a scanned request has in common with its repetitions and with nothing else, and
    /// a CANCEL with its INVITE. A client may use one branch for all it sends, so more is part of
    /// it; where the branch names no transaction (RFC 3261 §17.2.3), the tags too.
    pub(crate) fn fingerprint(&self, scan: &Scan<'_>, bytes: &[u8]) -> u64 {
        let Scan { sent_by, call_id, .. } = *scan;
        let branch = scan.branch.unwrap_or_default();
        let number = scan.cseq.to_be_bytes();
        let ScanStart::Request { uri, .. } = scan.start else { return 0 };
        let name = match method_name(scan) {
            b"CANCEL" => b"INVITE",
            name => name,
        };
        let hash = |parts: &[&[u8]]| self.keys().identity.hash(parts);
        if is_unique(branch) {
            return hash(&[branch, sent_by, call_id, &number, name, uri]);
        }
        let (from, to) = dialog_tags(bytes).unwrap_or_default();
        hash(&[scan.via, call_id, &number, name, uri, from, to])
    }

    /// Whether the request that a scanned CANCEL is for has been served.
    pub(crate) fn has_served(&self, cancel: &Scan<'_>) -> bool {
        let hash = |parts: &[&[u8]]| self.keys().identity.hash(parts);
        let branch = cancel.branch.unwrap_or_default();
        let fingerprint = self.keys().call.fingerprint(cancel.call_id);
        match identity_of_branch(branch, cancel.sent_by, Method::Cancel, b"", hash) {
            Some(identity) => {
                let is_repeated = |call: &Call| call.has_branch(identity);
                self.transactions().find_cancelled(identity).is_some()
                    || self.calls().find_where(fingerprint, is_repeated).is_some()
            }
            None => self.calls().find(fingerprint).is_some(),
        }
    }

    /// Whether these bytes are an ACK to a reply that we made ourselves.
    pub(crate) fn is_ack_of_reply(&self, bytes: &[u8]) -> bool {
        is_own_ack(self.keys(), bytes)
    }
}

fn method_name<'a>(scan: &Scan<'a>) -> &'a [u8] {
    match scan.start {
        ScanStart::Request { method_name, .. } => method_name,
        ScanStart::Response { .. } => b"",
    }
}
