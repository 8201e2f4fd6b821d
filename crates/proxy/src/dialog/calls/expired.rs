//! The list of finished calls whose entries are kept for retransmissions, in the order in which the
//! calls finished.
//!
//! In paper 003, fig. 4, line 27, the 200 to a BYE makes a proxy "move entry to expired table",
//! which is separate from the table of active calls. Here the entry of a finished call stays in its
//! slot of the call table, so that one look-up finds active and finished calls. The list links
//! these slots. When the call table has no room for a new call, the first entry of the list is
//! evicted.

use tidegate_world::SlotTable;

use super::Entry;

/// The value of a link that leads to no entry, at both ends of the list.
const END: u32 = u32::MAX;

/// The slots of an entry's neighbours in the list of finished calls, or [`END`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: u32,
    after: u32,
}

/// The list of finished calls, the oldest first. It is linked through the slots of the call table.
#[derive(Debug)]
pub(super) struct Expired {
    first: u32,
    last: u32,
    length: usize,
}

impl Expired {
    pub(super) const fn new() -> Self {
        Self { first: END, last: END, length: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns the slot of the call that finished longest ago.
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != END).then_some(self.first)
    }

    /// Appends a slot to the list. The slot must not be in the list yet.
    pub(super) fn push(&mut self, entries: &mut SlotTable<Entry>, slot: u32) {
        let Some(entry) = entries.at_mut(slot) else { return };
        debug_assert!(entry.links.is_none(), "the slot is already in the list");
        entry.links = Some(Links { before: self.last, after: END });
        match self.last {
            END => self.first = slot,
            last => Self::neighbours(entries, last).after = slot,
        }
        self.last = slot;
        self.length += 1;
    }

    /// Removes a slot from the list, if the slot is in it.
    pub(super) fn take(&mut self, entries: &mut SlotTable<Entry>, slot: u32) {
        let links = entries.at_mut(slot).and_then(|entry| entry.links.take());
        let Some(Links { before, after }) = links else { return };
        self.length -= 1;
        match before {
            END => self.first = after,
            before => Self::neighbours(entries, before).after = after,
        }
        match after {
            END => self.last = before,
            after => Self::neighbours(entries, after).before = before,
        }
    }

    fn neighbours(entries: &mut SlotTable<Entry>, slot: u32) -> &mut Links {
        let links = entries.at_mut(slot).and_then(|entry| entry.links.as_mut());
        links.expect("neighbours are in the list")
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::Timestamp;

    use super::super::Call;
    use super::*;
    use crate::settings::BackendRef;

    fn order(list: &Expired, entries: &SlotTable<Entry>) -> Vec<u32> {
        let links = |slot: u32| entries.at(slot).and_then(|(_, entry)| entry.links);
        let next = |&slot: &u32| links(slot).map(|links| links.after);
        let after = |slot: &u32| next(slot).filter(|&after| after != END);
        std::iter::successors(list.first(), after).collect()
    }

    #[test]
    fn entries_leave_from_anywhere_and_the_others_keep_their_order() {
        for left in 0..4 {
            let mut entries = SlotTable::new();
            for fingerprint in 0..4 {
                let call =
                    Call::new(Timestamp::ZERO, fingerprint, BackendRef { pool: 0, backend: 0 });
                entries.insert(Entry { call, links: None });
            }
            let mut list = Expired::new();
            for slot in [2, 0, 3, 1] {
                list.push(&mut entries, slot);
            }
            assert_eq!(order(&list, &entries), [2, 0, 3, 1]);
            list.take(&mut entries, left);
            list.take(&mut entries, left);
            let mut rest = vec![2, 0, 3, 1];
            rest.retain(|&slot| slot != left);
            assert_eq!(order(&list, &entries), rest);
            list.push(&mut entries, left);
            rest.push(left);
            assert_eq!(order(&list, &entries), rest);
            for slot in rest {
                assert_eq!(list.first(), Some(slot));
                list.take(&mut entries, slot);
            }
            assert_eq!(list.first(), None);
        }
    }
}
