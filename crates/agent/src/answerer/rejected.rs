//! INVITEs that the answerer rejected without creating a call.

use std::collections::VecDeque;

use hashbrown::HashTable;

/// Maximum number of remembered INVITEs. They use about 5 MiB.
const LEN_MAX: usize = 100_000;

/// The transactions of the last INVITEs that were rejected without creating a call. The answerer
/// uses them to recognise a copy of such an INVITE, and the ACK to the rejection.
pub(crate) struct RejectedInvites {
    /// Fingerprints of the transactions of the INVITEs.
    keys: HashTable<u128>,
    /// The fingerprints in `keys`, the oldest first.
    order: VecDeque<u128>,
    len_max: usize,
}

impl RejectedInvites {
    pub fn new() -> Self {
        Self { keys: HashTable::new(), order: VecDeque::new(), len_max: LEN_MAX }
    }

    /// Returns whether an INVITE of this transaction was rejected and is still remembered.
    pub fn contains(&self, key: u128) -> bool {
        self.keys.find(hash(key), |&known| known == key).is_some()
    }

    /// Remembers an INVITE that is not in the set. If the set is full, forgets the oldest INVITE.
    pub fn insert(&mut self, key: u128) {
        if self.order.len() == self.len_max
            && let Some(oldest) = self.order.pop_front()
            && let Ok(entry) = self.keys.find_entry(hash(oldest), |&known| known == oldest)
        {
            entry.remove();
        }
        self.order.push_back(key);
        self.keys.insert_unique(hash(key), key, |&key| hash(key));
    }
}

/// Returns the hash of a fingerprint for the set. A fingerprint is itself a keyed hash, so a part
/// of it suffices.
fn hash(key: u128) -> u64 {
    key as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_set_forgets_the_oldest() {
        let mut rejected = RejectedInvites { len_max: 2, ..RejectedInvites::new() };
        for key in [7, 8, 9] {
            assert!(!rejected.contains(key));
            rejected.insert(key);
        }
        assert_eq!([7, 8, 9].map(|key| rejected.contains(key)), [false, true, true]);
        assert_eq!((rejected.keys.len(), rejected.order.len()), (2, 2));
    }
}
