//! Gives admission read access to the state of a shard, to find out whether a message belongs to a
//! known call or transaction.

use tidegate_sip::{Method, Passage, Scan, ScanStart, dialog_tags, glance, scan};
use tidegate_transaction::{Key, identity_of_branch};
use tidegate_world::{Received, Shedding, Timestamp, Transport};

use crate::admission::kernel_shed::KernelShed;
use crate::dialog::{Call, Calls};
use crate::message::challenge::challenge_of;
use crate::message::probe_branch::ProbeBranch;
use crate::message::reply::is_own_ack;
use crate::message::request::RequestHashes;
use crate::message::transaction_branch::TransactionBranch;
use crate::message::way_back::ways_back;
use crate::observe::counters::Counters;
use crate::parked::Parked;
use crate::response::origin::request_origin;
use crate::routing::route_set::{RouteProof, route_proof};
use crate::snapshot::Snapshot;
use crate::transaction::Transactions;
use crate::transaction::branches::is_branch_of;

/// The standing of a request: its relation to the calls and transactions of this proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The request belongs to no call or transaction.
    Unknown,
    Known,
    /// The request belongs to a call or transaction in which more messages arrive than a correct
    /// peer sends.
    Floods,
}

impl Standing {
    fn of_known(floods: bool) -> Self {
        if floods { Self::Floods } else { Self::Known }
    }
}

/// References to the parts of a shard that admission reads.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) calls: &'a Calls,
    pub(crate) transactions: &'a Transactions,
    pub(crate) parked: &'a Parked,
    pub(crate) counters: &'a Counters,
    pub(crate) kernel_shed: Option<&'a KernelShed>,
    pub(crate) shedding: &'a Shedding,
}

impl View<'_> {
    /// Returns whether to drop a message that came on a stream: it is an INVITE or a REGISTER, and
    /// the share of drops or a mark applies to it ([`Shedding::drops_by_share`]). The kernel cannot
    /// drop single messages of a stream, so the proxy drops them after it has read them. A client
    /// does not retransmit on a stream (RFC 3261 §17.1.1.2 and §17.1.2.2), so INVITEs of a verified
    /// call are not dropped. A To-tag alone proves nothing, because anybody can write one.
    pub(crate) fn is_in_drop_share(&self, now: Timestamp, received: &Received) -> bool {
        let transport = received.flow.transport;
        let is_subject = transport != Transport::Udp && received.handoffs == 0;
        is_subject
            && self.kernel_shed.is_some()
            && self.shedding.drops_by_share(transport, received.flow.remote.ip(), &received.bytes)
            && scan(&received.bytes)
                .is_ok_and(|scan| scan.to_tag.is_none() || !self.verifies(now, received))
    }

    /// Returns the keyed hashes by which tables find the transaction and the call of a scanned
    /// request.
    pub(crate) fn hashes(&self, method: Method, scan: &Scan<'_>) -> RequestHashes {
        let hash = |parts: &[&[u8]]| self.snapshot.keys.identity.hash(parts);
        let branch = scan.branch.unwrap_or_default();
        RequestHashes {
            identity: identity_of_branch(branch, scan.sent_by, method, method_name(scan), hash),
            call: self.snapshot.keys.call.fingerprint(scan.call_id),
        }
    }

    /// Returns the standing of a scanned request with these hashes. If a request waits for an
    /// answer from the DNS or a store, its copies have the standing `Unknown`, and the gate
    /// recognizes them.
    pub(crate) fn standing(
        &self,
        now: Timestamp,
        method: Method,
        scan: &Scan<'_>,
        hashes: &RequestHashes,
        received: &Received,
    ) -> Standing {
        let RequestHashes { identity, call: fingerprint } = *hashes;
        let (keys, bytes) = (&self.snapshot.keys, &received.bytes);
        if let Some(identity) = identity
            && let Some(is_flooded) = self.transactions.is_flooded(Key::new(identity, method))
        {
            return Standing::of_known(is_flooded);
        }
        let of_call = |call: &Call| Standing::of_known(call.floods(now));
        if scan.to_tag.is_none() {
            // A request without a To-tag is known only if it retransmits a known request. An INVITE
            // with the Call-ID of a call of ours need not be part of that call.
            let find = |identity| {
                let which = (fingerprint, identity);
                self.calls.find_repeated_invite(now, keys, which, scan, bytes)
            };
            return identity.and_then(find).map_or(Standing::Unknown, of_call);
        }
        match self.calls.find_within(keys, fingerprint, bytes) {
            Some(Some(call)) => of_call(call),
            // An INVITE with an invented To-tag may begin a new call (RFC 3261 §12.2.2), so a token
            // does not verify it.
            Some(None) if method == Method::Invite => Standing::Unknown,
            // A fork may set up more dialogs than a call keeps, and the caller has to acknowledge
            // and to end each of them (RFC 3261 §13.2.2.4). If there is no call, it was set up
            // before a restart, or at another instance.
            _ => self.standing_by_route(now, received, (scan.call_id, fingerprint)),
        }
    }

    /// Returns the standing of an in-dialog request that no call entry matches, from the tokens in
    /// its Route header. A fresh route token means a dialog of ours. A flow token means a request
    /// of the registrar to a phone.
    fn standing_by_route(
        &self,
        now: Timestamp,
        received: &Received,
        call: (&[u8], u128),
    ) -> Standing {
        match route_proof(now, self.snapshot, received, call) {
            RouteProof::Nothing => Standing::Unknown,
            RouteProof::ForPhone => Standing::Known,
            RouteProof::InDialog(number) => {
                Standing::of_known(self.calls.unknown_floods(now, number))
            }
        }
    }

    /// Returns the fingerprint of a scanned request with these hashes: a keyed hash that only its
    /// retransmissions share. A CANCEL has the fingerprint of its INVITE. A client may use one
    /// branch for all its requests, so the fingerprint covers more than the branch. If the branch
    /// does not identify a transaction (RFC 3261 §17.2.3), the fingerprint covers the whole topmost
    /// Via and the tags instead.
    pub(crate) fn fingerprint(&self, scan: &Scan<'_>, hashes: &RequestHashes, bytes: &[u8]) -> u64 {
        let number = scan.cseq.to_be_bytes();
        let ScanStart::Request { uri, .. } = scan.start else { return 0 };
        let name = match method_name(scan) {
            b"CANCEL" => b"INVITE",
            name => name,
        };
        let hash = |parts: &[&[u8]]| self.snapshot.keys.identity.hash(parts);
        // The hashes replace the branch and the Call-ID in the input, because they are shorter.
        let call = hashes.call.to_be_bytes();
        if let Some(identity) = hashes.identity {
            return hash(&[&identity.to_be_bytes(), &call, &number, name, uri]);
        }
        let (from, to) = dialog_tags(bytes).unwrap_or_default();
        hash(&[scan.via, &call, &number, name, uri, from, to])
    }

    /// Returns the [fingerprint](Self::fingerprint) of a request, or `None` if it is malformed.
    pub(crate) fn fingerprint_of(&self, bytes: &[u8]) -> Option<u64> {
        let scan = scan(bytes).ok()?;
        let ScanStart::Request { method, .. } = scan.start else { return None };
        Some(self.fingerprint(&scan, &self.hashes(method, &scan), bytes))
    }

    /// Returns the keyed hash of the challenge that a scanned request would answer if it has
    /// credentials.
    pub(crate) fn challenge(&self, scan: &Scan<'_>, received: &Received) -> u64 {
        let source = received.flow.remote.ip();
        challenge_of(&self.snapshot.keys, method_name(scan), scan.call_id, source)
    }

    /// Returns whether the request that a CANCEL with these hashes refers to has been served.
    pub(crate) fn has_served(&self, now: Timestamp, cancel: &RequestHashes) -> bool {
        let RequestHashes { identity, call: fingerprint } = *cancel;
        match identity {
            Some(identity) => {
                let is_repeated = |call: &Call| call.has_branch(identity);
                self.transactions.find_cancelled(identity).is_some()
                    || self.parked.is_known(now, Key::cancelled(identity))
                    || self.calls.find_where(fingerprint, is_repeated).is_some()
            }
            None => self.calls.find(fingerprint).is_some(),
        }
    }

    /// Returns whether a message belongs to a known call or transaction that is not flooded.
    pub(crate) fn verifies(&self, now: Timestamp, received: &Received) -> bool {
        self.standing_of(now, received) == Standing::Known
    }

    /// Returns the relation of a message to the calls and transactions of this proxy.
    pub(crate) fn standing_of(&self, now: Timestamp, received: &Received) -> Standing {
        match glance(&received.bytes) {
            Ok(ScanStart::Response { .. }) if self.verifies_response(received) => Standing::Known,
            Ok(ScanStart::Request { method, .. }) if let Ok(scan) = scan(&received.bytes) => {
                self.standing_of_request(now, method, &scan, received)
            }
            _ => Standing::Unknown,
        }
    }

    fn standing_of_request(
        &self,
        now: Timestamp,
        method: Method,
        scan: &Scan<'_>,
        received: &Received,
    ) -> Standing {
        let hashes = self.hashes(method, scan);
        if method != Method::Cancel {
            return self.standing(now, method, scan, &hashes, received);
        }
        let is_flooded = |identity| self.transactions.is_flooded(Key::cancelled(identity));
        match hashes.identity.and_then(is_flooded) {
            Some(is_flooded) => Standing::of_known(is_flooded),
            None if self.has_served(now, &hashes) => Standing::Known,
            None => self.standing_by_route(now, received, (scan.call_id, hashes.call)),
        }
    }

    /// Returns whether a response answers a request that this proxy has sent. A proxy accepts a
    /// response only with its own Via on top (RFC 3261 §18.1.2), and forwards it by the Via below
    /// (§16.11). The keyed values in the branch of the topmost Via prove that we wrote this Via.
    fn verifies_response(&self, received: &Received) -> bool {
        let Ok(passage) = Passage::parse(&received.bytes) else { return false };
        let text = passage.branch.unwrap_or_default();
        match (&passage.next, passage.cseq.method) {
            (None, Method::Cancel) => TransactionBranch::claimed(text).is_some_and(|branch| {
                branch.is_own(&self.snapshot.keys)
                    && is_branch_of(self.snapshot, self.transactions, &branch, text)
            }),
            (None, Method::Options) => {
                ProbeBranch::decode(text, &self.snapshot.keys, received.flow.remote).is_some()
            }
            (None, _) => false,
            (Some(next), _) => {
                let has_streams = self.snapshot.addresses.has_streams();
                ways_back(next, has_streams).any(|remote| {
                    request_origin(self.snapshot, self.transactions, &passage, remote).is_some()
                })
            }
        }
    }

    /// Returns whether these bytes are an ACK to a reply that this proxy generated.
    pub(crate) fn is_ack_of_reply(&self, bytes: &[u8]) -> bool {
        is_own_ack(&self.snapshot.keys, bytes)
    }
}

fn method_name<'a>(scan: &Scan<'a>) -> &'a [u8] {
    match scan.start {
        ScanStart::Request { method_name, .. } => method_name,
        ScanStart::Response { .. } => b"",
    }
}
