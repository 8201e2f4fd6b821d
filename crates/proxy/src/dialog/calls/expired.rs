//! The expired table: calls that are over and kept for their repetitions, the oldest first.
//!
//! 003 fig. 4 line 27 has the 200 to a BYE "move entry to expired table", apart from the active
//! one. Here an entry stays where it is, so that whatever still comes of its call finds it by the
//! same look-up, and is linked into this list as long as nothing but repetitions is to come. When
//! there is no room for a new call the first of the list goes.

use super::Slot;

/// No slot.
const END: u32 = u32::MAX;

/// Both neighbours of a slot in the list, while it is in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: u32,
    after: u32,
}

/// The ends of the list, which runs through the slots of the call table.
#[derive(Debug)]
pub(super) struct Expired {
    first: u32,
    last: u32,
    length: usize,
}

impl Expired {
    /// An empty list.
    pub(super) const fn new() -> Self {
        Self { first: END, last: END, length: 0 }
    }

    /// Calls in the list.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The slot of the call that has been over for longest.
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != END).then_some(self.first)
    }

    /// Appends a slot that is not in the list.
    pub(super) fn push(&mut self, slots: &mut [Slot], slot: u32) {
        let links = &mut slots[slot as usize].links;
        debug_assert!(links.is_none(), "it is in the list once");
        *links = Some(Links { before: self.last, after: END });
        match self.last {
            END => self.first = slot,
            last => Self::neighbours(slots, last).after = slot,
        }
        self.last = slot;
        self.length += 1;
    }

    /// Takes a slot out, if it is in the list.
    pub(super) fn take(&mut self, slots: &mut [Slot], slot: u32) {
        let Some(Links { before, after }) = slots[slot as usize].links.take() else { return };
        self.length -= 1;
        match before {
            END => self.first = after,
            before => Self::neighbours(slots, before).after = after,
        }
        match after {
            END => self.last = before,
            after => Self::neighbours(slots, after).before = before,
        }
    }

    fn neighbours(slots: &mut [Slot], slot: u32) -> &mut Links {
        slots[slot as usize].links.as_mut().expect("neighbours are in the list")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(list: &Expired, slots: &[Slot]) -> Vec<u32> {
        let next = |&slot: &u32| slots[slot as usize].links.map(|links| links.after);
        let after = |slot: &u32| next(slot).filter(|&after| after != END);
        std::iter::successors(list.first(), after).collect()
    }

    #[test]
    fn slots_leave_from_anywhere_and_the_others_keep_their_order() {
        for left in 0..4 {
            let mut slots: Vec<_> = (0..4).map(|_| Slot::empty()).collect();
            let mut list = Expired::new();
            for slot in [2, 0, 3, 1] {
                list.push(&mut slots, slot);
            }
            assert_eq!(order(&list, &slots), [2, 0, 3, 1]);
            list.take(&mut slots, left);
            list.take(&mut slots, left);
            let mut rest = vec![2, 0, 3, 1];
            rest.retain(|&slot| slot != left);
            assert_eq!(order(&list, &slots), rest);
            list.push(&mut slots, left);
            rest.push(left);
            assert_eq!(order(&list, &slots), rest);
            for slot in rest {
                assert_eq!(list.first(), Some(slot));
                list.take(&mut slots, slot);
            }
            assert_eq!(list.first(), None);
        }
    }
}
