//! Whether a message belongs to something that a shard knows, as far as a scan tells.

use tidegate_sip::{Method, Scan};
use tidegate_transaction::{Key, identity_of_branch};
use tidegate_world::Received;

use crate::calls::{CallRef, Phase};
use crate::endpoint::Endpoint;
use crate::reply::is_own_ack;

impl Endpoint {
    /// Whether a scanned request belongs to a call of ours.
    pub(crate) fn knows(&self, method: Method, scan: &Scan<'_>, received: &Received) -> bool {
        let hash = |parts: &[&[u8]]| self.keys().identity.hash(parts);
        let branch = scan.branch.unwrap_or_default();
        let identity = identity_of_branch(branch, scan.sent_by, hash);
        if identity.is_some_and(|i| self.transactions().find(Key::new(i, method)).is_some()) {
            return true;
        }
        let fingerprint = self.keys().call.fingerprint(scan.call_id);
        let call = self.calls().find(fingerprint);
        match (call, scan.to_tag) {
            // A request outside any call begins no dialog that another could be in.
            (Some(call), Some(_)) if self.is_dialog(call) => true,
            // Without a To-tag it is old only if it repeats something: the Call-ID of
            // a call of ours does not make another INVITE part of it.
            (Some(call), None) => {
                identity.is_some_and(|identity| self.calls().is_repeated(call, identity))
            }
            // The call was made before a restart, or at another instance.
            (_, Some(_)) => self.has_route_token(received, scan.call_id),
            (None, None) => false,
        }
    }

    fn is_dialog(&self, call: CallRef) -> bool {
        self.calls().get(call).is_some_and(|entry| entry.phase != Phase::Single)
    }

    /// What a scanned request has in common with its repetitions and with nothing else. A
    /// client may use one branch for all it sends, so the Call-ID is part of it.
    pub(crate) fn fingerprint(&self, scan: &Scan<'_>) -> u64 {
        let branch = scan.branch.unwrap_or_default();
        let number = scan.cseq.to_be_bytes();
        self.keys().identity.hash(&[branch, scan.sent_by, scan.call_id, &number])
    }

    /// Whether the request that a scanned CANCEL is for has been served.
    pub(crate) fn has_served(&self, cancel: &Scan<'_>) -> bool {
        let hash = |parts: &[&[u8]]| self.keys().identity.hash(parts);
        let branch = cancel.branch.unwrap_or_default();
        let call = self.calls().find(self.keys().call.fingerprint(cancel.call_id));
        match identity_of_branch(branch, cancel.sent_by, hash) {
            Some(identity) => {
                self.transactions().find_cancelled(identity).is_some()
                    || call.is_some_and(|call| self.calls().is_repeated(call, identity))
            }
            None => call.is_some(),
        }
    }

    /// Whether these bytes are an ACK to a reply that we made ourselves.
    pub(crate) fn is_ack_of_reply(&self, bytes: &[u8]) -> bool {
        is_own_ack(self.keys(), bytes)
    }
}
