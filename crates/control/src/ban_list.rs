//! The bans of a process, shared by its shards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tidegate_world::Timestamp;

use crate::{Ban, Bans};

/// A list of bans, shared by several shards and an operator. All clones refer to the same list.
#[derive(Clone, Debug, Default)]
pub struct BanList(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Incremented with every change of the bans.
    version: AtomicU64,
    /// The number of the last command that has ended bans.
    last_command: AtomicU64,
    bans: Mutex<Bans>,
}

impl BanList {
    /// Creates a list of up to `count_max` bans at the same time.
    pub fn new(count_max: usize) -> Self {
        Self(Arc::new(Shared {
            version: AtomicU64::new(0),
            last_command: AtomicU64::new(0),
            bans: Mutex::new(Bans::new(count_max)),
        }))
    }

    /// Bans a source. Returns false if the list is full and the ban can replace no other.
    pub fn ban(&self, now: Timestamp, ban: Ban) -> bool {
        self.change(|bans| bans.ban(now, ban))
    }

    /// Records that a banned source has proved that it receives our packets. Returns false if the
    /// list has no ban of this source, or if the source had proved this before.
    pub fn prove(&self, source: u128) -> bool {
        self.change(|bans| bans.prove(source))
    }

    /// Ends the bans of these sources, for the command with the number `command`. Returns false if
    /// none of them was banned. If another shard has already executed the command, does nothing and
    /// returns false, so that a newer ban remains.
    pub fn lift(
        &self,
        now: Timestamp,
        command: u64,
        sources: impl IntoIterator<Item = u128>,
    ) -> bool {
        self.change(|bans| {
            // The lock of the bans orders these accesses.
            let is_new = self.0.last_command.fetch_max(command, Ordering::Relaxed) < command;
            is_new && sources.into_iter().fold(false, |any, source| bans.lift(now, source) | any)
        })
    }

    /// Returns the bans in force, sorted by source.
    pub fn each(&self, now: Timestamp) -> Vec<Ban> {
        self.lock().each(now).copied().collect()
    }

    /// Returns the number of bans that were lost because the list was full.
    pub fn overflowed(&self) -> u64 {
        self.lock().overflowed()
    }

    /// Applies `change`, and increments the version if `change` returns true.
    fn change(&self, change: impl FnOnce(&mut Bans) -> bool) -> bool {
        let mut bans = self.lock();
        let is_changed = change(&mut bans);
        if is_changed {
            // Increment the version under the lock: a reader that sees the new version waits for
            // the lock, and so reads the new bans.
            self.0.version.fetch_add(1, Ordering::Release);
        }
        is_changed
    }

    fn lock(&self) -> MutexGuard<'_, Bans> {
        // No change panics half-way, so the list is consistent even if a thread has panicked.
        self.0.bans.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A shard's copy of a [`BanList`]. It is updated when the list has changed. As long as the list
/// has not changed, each access costs only one atomic load.
#[derive(Debug)]
pub struct BanView {
    list: BanList,
    version: u64,
    bans: Bans,
}

impl BanView {
    /// Creates a view of `list`.
    pub fn new(list: BanList) -> Self {
        Self { list, version: 0, bans: Bans::default() }
    }

    /// Returns the shared list.
    pub fn list(&self) -> &BanList {
        &self.list
    }

    /// Returns the version of the list at the last update of this copy. Every change of the list
    /// increments its version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the current bans. They may include some that have ended.
    #[inline]
    pub fn bans(&mut self) -> &Bans {
        if self.list.0.version.load(Ordering::Acquire) != self.version {
            self.refresh();
        }
        &self.bans
    }

    #[cold]
    fn refresh(&mut self) {
        let bans = self.list.lock();
        self.version = self.list.0.version.load(Ordering::Acquire);
        self.bans.clone_from(&bans);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BanCause;

    #[test]
    fn bans_of_a_shard_hold_for_all_and_an_operator_lifts_them() {
        let list = BanList::new(2);
        let [mut one, mut other] = [1, 2].map(|_| BanView::new(list.clone()));
        let now = Timestamp::from_nanos(5);
        let until = Timestamp::from_nanos(10);
        let is_banned = |view: &mut BanView| view.bans().get(now, 7).is_some();
        assert!(!is_banned(&mut other));
        let ban = Ban { source: 7, until, cause: BanCause::Rate, rate: 1, is_proven: false };
        assert!(one.list().ban(now, ban));
        assert!(is_banned(&mut one) && is_banned(&mut other));
        assert_eq!(list.each(now), [ban]);
        assert_eq!(list.each(until), []);
        assert!(list.lift(now, 1, [7]) && !list.lift(now, 2, [7]));
        assert!(!is_banned(&mut one) && !is_banned(&mut other));
        // Each shard executes a command, and the first one ends the ban.
        assert!(list.ban(now, ban) && list.lift(now, 4, [8, 7]));
        assert!(list.ban(now, ban) && !list.lift(now, 4, [8, 7]) && is_banned(&mut one));
        assert!(list.lift(now, 5, [7]));
        for source in 0..4 {
            list.ban(now, Ban { source, ..ban });
        }
        assert_eq!(list.overflowed(), 2);
    }
}
