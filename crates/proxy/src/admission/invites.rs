//! The queue of new INVITEs and of the CANCELs that cancel them.
//!
//! RFC 3261 §9.1: a CANCEL that overtakes its INVITE cancels nothing. Therefore a CANCEL is kept
//! with its INVITE and served right after the INVITE, in whatever order INVITEs are served.

use std::collections::VecDeque;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tidegate_control::{QueueOrder, Ticket};

use super::waiting::Waiting;

/// New INVITEs in the order of arrival, each with its CANCEL if one has arrived.
#[derive(Default)]
pub(crate) struct Invites {
    queue: VecDeque<Waiting>,
    /// The queued INVITEs, each by the keyed hash that its retransmissions share.
    awaited: HashMap<u64, Awaited>,
    /// CANCEL to serve next, because its INVITE has just been served.
    due: Option<Box<Waiting>>,
}

#[derive(Default)]
struct Awaited {
    /// Number of copies of the INVITE in the queue. There can be several if the gate does not
    /// recognize retransmissions.
    copies: u32,
    /// The CANCEL of the INVITE, if it has arrived. It is boxed because it is rare and would be the
    /// largest part of this type.
    cancel: Option<Box<Waiting>>,
}

/// Result of adding a CANCEL to the queue of its INVITE.
pub(crate) enum Cancelled {
    /// The CANCEL waits with its INVITE.
    Waits,
    /// Another CANCEL already waits with the INVITE, so the new CANCEL is dropped.
    Repeated,
    /// The INVITE does not wait in this queue. Returns the CANCEL.
    Elsewhere(Waiting),
}

impl Invites {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether an INVITE with this fingerprint waits.
    pub(crate) fn has(&self, fingerprint: u64) -> bool {
        self.awaited.contains_key(&fingerprint)
    }

    pub(crate) fn push(&mut self, invite: Waiting) {
        if let Some(fingerprint) = fingerprint(&invite) {
            self.awaited.entry(fingerprint).or_default().copies += 1;
        }
        self.queue.push_back(invite);
    }

    /// Stores a CANCEL with the waiting INVITE that has the same `fingerprint`.
    pub(crate) fn push_cancel(&mut self, fingerprint: u64, cancel: Waiting) -> Cancelled {
        let Some(awaited) = self.awaited.get_mut(&fingerprint) else {
            return Cancelled::Elsewhere(cancel);
        };
        if awaited.cancel.is_some() {
            return Cancelled::Repeated;
        }
        awaited.cancel = Some(Box::new(cancel));
        Cancelled::Waits
    }

    /// Returns the CANCEL of the INVITE that was returned last, if there is one. Otherwise returns
    /// the next INVITE if `may_release` is true.
    pub(crate) fn pop(&mut self, order: QueueOrder, may_release: bool) -> Option<Waiting> {
        if let Some(cancel) = self.due.take() {
            return Some(*cancel);
        }
        if !may_release {
            return None;
        }
        let invite = match order {
            QueueOrder::Fifo => self.queue.pop_front(),
            QueueOrder::Lifo => self.queue.pop_back(),
        }?;
        if let Some(fingerprint) = fingerprint(&invite)
            && let Entry::Occupied(mut entry) = self.awaited.entry(fingerprint)
        {
            let awaited = entry.get_mut();
            self.due = awaited.cancel.take();
            awaited.copies -= 1;
            if awaited.copies == 0 {
                entry.remove();
            }
        }
        Some(invite)
    }
}

fn fingerprint(invite: &Waiting) -> Option<u64> {
    invite.ticket.as_ref().and_then(Ticket::fingerprint)
}
