//! The lane of new INVITEs, and of the CANCELs of those that wait in it.
//!
//! RFC 3261 §9.1: a CANCEL that overtakes its INVITE cancels nothing. So it is kept with the
//! INVITE, in whichever order those are taken, and is the next message after it.

use std::collections::VecDeque;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tidegate_control::{QueueOrder, Ticket};

use super::waiting::Waiting;

/// INVITEs in the order of their arrival.
#[derive(Default)]
pub(crate) struct Invites {
    queue: VecDeque<Waiting>,
    /// By fingerprint, each at least once in the queue.
    awaited: HashMap<u64, Awaited>,
    /// A CANCEL whose INVITE was taken.
    due: Option<Box<Waiting>>,
}

#[derive(Default)]
struct Awaited {
    /// Without a memory of decisions a repetition is another INVITE.
    copies: u32,
    /// In a box, for it is rare and most of what would be moved.
    cancel: Option<Box<Waiting>>,
}

/// What became of a CANCEL.
pub(crate) enum Cancelled {
    /// It waits with its INVITE.
    Waits,
    /// One waits with its INVITE already.
    Repeated,
    /// Its INVITE does not wait here.
    Elsewhere(Waiting),
}

impl Invites {
    /// INVITEs that wait.
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

    /// Takes in a CANCEL that has this fingerprint in common with its INVITE.
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

    /// The next message; an INVITE only if one may be released.
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
