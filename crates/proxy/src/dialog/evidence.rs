//! Decides whether a request belongs to a call in the call table, and to which one.
//!
//! A Call-ID is not secret, so it alone proves nothing. A request is within a dialog if the call
//! table has a dialog with both its tags, or if its route token is valid. It is a retransmission if
//! its transaction is in the call table. Any other request with a known Call-ID is not part of the
//! call. If it is an ACK or a CANCEL, it still goes to the back end of the call with this Call-ID.
//! If it has no To-tag, it may go to this back end too, but counts as a new request.

use tidegate_sip::{Method, Passage, Scan, ScanStart, dialog_tags};
use tidegate_world::Timestamp;

use super::calls::{Answer, Call, CallRef, Calls, Evidence, ORDER, Phase, Transaction};
use crate::keys::Keys;
use crate::message::request::Request;

/// The result of looking a request up in the call table.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known {
    /// The fingerprint of the Call-ID of the request.
    pub(crate) fingerprint: u128,
    /// The call that the request belongs to. For a request that belongs to no call, this is a call
    /// with the same Call-ID that the request may begin again, or to whose back end the request
    /// goes.
    pub(crate) call: Option<CallRef>,
    pub(crate) evidence: Evidence,
    /// True if the request has no To-tag, belongs to no dialog of the call table, and is neither an
    /// ACK nor a CANCEL.
    pub(crate) is_new: bool,
    /// True if the request is an INVITE with a To-tag, and there are calls with its Call-ID, but
    /// none of them has its dialog. The UAS may accept the INVITE as a new call: RFC 3261 §12.2.2,
    /// "Based on the To tag, the UAS MAY either accept or reject the request."
    pub(crate) is_invented: bool,
    /// True if the request is an ACK or a CANCEL that shares only the Call-ID with `call`, and
    /// neither a dialog nor a transaction.
    pub(crate) is_stray: bool,
}

/// Returns the hash of the dialog with these two tags. With the tags exchanged, the hash differs
/// only in the bit [`ORDER`]. The hash is never 0.
pub(crate) fn dialog_hash(keys: &Keys, from: &[u8], to: &[u8]) -> u32 {
    let (tags, order) = if from <= to { ([from, to], 0) } else { ([to, from], ORDER) };
    keys.dialog.hash(&tags) as u32 & !ORDER | order | 1
}

/// Returns the hash of the parts that all forked copies of an INVITE share. The hash is never 0.
fn copy_hash(keys: &Keys, from_tag: &[u8], cseq: u32, uri: &[u8]) -> u32 {
    keys.dialog.hash(&[from_tag, &cseq.to_be_bytes(), uri]) as u32 | 1
}

impl Calls {
    /// Looks a request up in the call table. `from_backend` is true if a back end has sent the
    /// request.
    pub(crate) fn look_up(
        &self,
        now: Timestamp,
        keys: &Keys,
        request: &Request<'_>,
        from_backend: bool,
    ) -> Known {
        let Request { method, identity, call_fingerprint: fingerprint, uri_text, .. } = *request;
        let essentials = &request.essentials;
        let (from, to) = (essentials.from_tag.unwrap_or_default(), essentials.to_tag);
        let any = self.find(fingerprint);
        let transaction = Transaction { identity, method };
        let is_hop_by_hop = matches!(method, Method::Ack | Method::Cancel);
        let is_outside = to.is_none() && !is_hop_by_hop;
        let copy = if is_outside && method == Method::Invite {
            copy_hash(keys, from, essentials.cseq.number, uri_text)
        } else {
            0
        };
        let mut known = Known {
            fingerprint,
            call: None,
            evidence: Evidence { dialog: 0, copy, has_to_tag: to.is_some() },
            is_new: is_outside,
            is_invented: false,
            is_stray: false,
        };
        if any.is_none() {
            return known;
        }
        let find = |is_it: &dyn Fn(&Call) -> bool| self.find_where(fingerprint, is_it);
        if method != Method::Cancel {
            let dialog = dialog_hash(keys, from, to.unwrap_or_default());
            known.call = find(&|call| call.has_dialog(dialog));
            if known.call.is_some() {
                // In a dialog of RFC 2543, neither party has a tag. So a request without a To-tag
                // may be in a dialog too.
                (known.evidence.dialog, known.is_new) = (dialog, false);
                return known;
            }
        }
        if is_hop_by_hop {
            // RFC 3261 §16.10: "If a response context is not found, the element does not have any
            // knowledge of the request to apply the CANCEL to. It MUST statelessly forward the
            // CANCEL request". So it goes to the back end of its Call-ID, and does not change the
            // call.
            known.call = find(&|call| call.has_branch(identity));
            known.is_stray = known.call.is_none();
            known.call = known.call.or(any);
            return known;
        }
        if to.is_some() {
            let is_dialog = |call: &Call| call.phase != Phase::Single;
            known.is_invented = method == Method::Invite && find(&is_dialog).is_some();
            return known;
        }
        let repeated = find(&|call| call.is_repetition(now, transaction, copy));
        known.call = match method {
            _ if repeated.is_some() => repeated,
            // A call that leads through a back end has two legs, which share one entry. So an
            // INVITE from a back end belongs to any entry with its Call-ID.
            Method::Invite if !from_backend => {
                find(&|call| call.is_copied_by(now, copy)).or_else(|| find(&Call::may_begin))
            }
            _ => any,
        };
        known
    }

    /// Returns the call whose INVITE a request outside any dialog retransmits, or `None` if the
    /// request is no retransmission of an INVITE. `scan` is the result of scanning its `bytes`.
    ///
    /// This function does not look for a request with another method, because the branch alone does
    /// not identify such a request. The gate recognizes its retransmissions by their
    /// [fingerprint](crate::admission::view::View::fingerprint).
    pub(crate) fn find_repeated_invite(
        &self,
        now: Timestamp,
        keys: &Keys,
        (fingerprint, identity): (u128, u64),
        scan: &Scan<'_>,
        bytes: &[u8],
    ) -> Option<&Call> {
        let ScanStart::Request { method: Method::Invite, uri, .. } = scan.start else {
            return None;
        };
        let transaction = Transaction { identity, method: Method::Invite };
        self.find_where(fingerprint, |call| call.is_repeated(transaction))?;
        let (from, _) = dialog_tags(bytes)?;
        let copy = copy_hash(keys, from, scan.cseq, uri);
        let is_repetition = |call: &Call| call.is_repetition(now, transaction, copy);
        self.get(self.find_where(fingerprint, is_repetition)?)
    }

    /// Returns the call that has the dialog of the request in `bytes`, or `Some(None)` if no call
    /// with this fingerprint has this dialog. Returns `None` if no call with this fingerprint can
    /// have dialogs, or if the tags of the request cannot be read.
    pub(crate) fn find_within(
        &self,
        keys: &Keys,
        fingerprint: u128,
        bytes: &[u8],
    ) -> Option<Option<&Call>> {
        // The entry of a request outside any call has no dialogs.
        let may_have_dialogs = |call: &Call| call.phase != Phase::Single;
        self.find_where(fingerprint, may_have_dialogs)?;
        let (from, to) = dialog_tags(bytes)?;
        let dialog = dialog_hash(keys, from, to);
        let within = self.find_where(fingerprint, |call| call.has_dialog(dialog));
        Some(within.and_then(|call| self.get(call)))
    }

    /// Returns the facts of a response that the call table uses.
    pub(crate) fn read_answer(
        &self,
        keys: &Keys,
        call: CallRef,
        passage: &Passage<'_>,
        from_backend: bool,
    ) -> Answer {
        let status = passage.status;
        let mut answer = Answer::read(passage, from_backend);
        if passage.cseq.method == Method::Invite
            && self.get(call).is_some_and(|call| call.wants_dialog(status))
            && let Some((from, to)) = passage.dialog_tags()
            && (status >= 200 || !to.is_empty())
        {
            answer.dialog = dialog_hash(keys, from, to);
        }
        answer
    }
}
