//! A hash table that grows without a pause, and whose entries stay in numbered slots.
//!
//! The table uses linear hashing: W. Litwin, "Linear hashing: a new tool for file and table
//! addressing", VLDB 1980. An ordinary hash table that doubles its index moves all entries at once,
//! and reads each entry to know its hash. This takes 200 ms with a million entries. Here an
//! insertion splits one bucket if there are more entries than buckets, so no insertion takes long.
//! The slots are in chunks that never move.
//!
//! A bucket stores the number of its first slot, and each slot stores the number of the next slot
//! of the bucket. With one bucket for each entry, finding an entry reads one and a half slots on
//! average.
//!
//! Vacant slots and buckets are kept for later entries. So the table never shrinks, and its owner
//! limits the number of entries. Memory that an entry itself allocated is freed with the entry.

/// Marks the end of a list of slots, in place of the number of a slot.
const END: u32 = u32::MAX;

/// Maximum size of a chunk of slots or buckets, in bytes. Allocators map and unmap each allocation
/// above a threshold on its own (glibc: 128 KiB by default), which takes longer.
const CHUNK_BYTES: usize = 1 << 16;

/// The base-2 logarithm of the number of buckets in a chunk.
const BUCKET_BITS: u32 = (CHUNK_BYTES / size_of::<u32>()).ilog2();

/// An entry that a [`SlotTable`] can hold.
pub trait Hashed {
    /// Returns the hash of the entry, which must never change. If peers choose the hashed data, the
    /// hash must be keyed. All bits must be evenly distributed, because the low bits select the
    /// bucket.
    fn hash(&self) -> u64;
}

/// A reference to an entry of a [`SlotTable`], valid until the entry is removed. A later entry in
/// the same slot has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRef {
    /// The number of the slot of the entry.
    pub slot: u32,
    /// Number of entries that were removed from the slot before this entry was inserted, modulo
    /// 2^16.
    pub generation: u16,
}

/// A table of entries, which are found by their hash or, without a search, by their [`SlotRef`].
#[derive(Debug)]
pub struct SlotTable<T> {
    chunks: Vec<Vec<Slot<T>>>,
    /// The number of the first vacant slot, which the next entry gets. The vacant slots form a
    /// list.
    free: u32,
    /// The number of the first slot of each bucket.
    heads: Vec<Vec<u32>>,
    buckets: u32,
    /// One less than the smallest power of two that is at least `buckets`.
    mask: u32,
    length: usize,
}

#[derive(Debug)]
struct Slot<T> {
    entry: Option<T>,
    /// The number of the next slot of the same bucket or, for a vacant slot, of the next vacant
    /// slot.
    next: u32,
    generation: u16,
}

impl<T: Hashed> SlotTable<T> {
    /// Size of a slot in bytes, without the memory that its entry has allocated.
    pub const SLOT_BYTES: usize = size_of::<Slot<T>>();

    /// The base-2 logarithm of the number of slots in a chunk.
    const SLOT_BITS: u32 = (CHUNK_BYTES / Self::SLOT_BYTES).ilog2();

    /// Creates an empty table.
    pub fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: END,
            heads: vec![vec![END]],
            buckets: 1,
            mask: 0,
            length: 0,
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Inserts an entry. Searches by hash find it after all earlier entries with the same hash. The
    /// entry gets the slot that became vacant last, or a new slot if none is vacant.
    ///
    /// # Panics
    /// Panics if the table already has 2^32 - 1 entries.
    pub fn insert(&mut self, entry: T) -> SlotRef {
        self.length += 1;
        if self.length > self.buckets as usize {
            self.split();
        }
        let bucket = self.bucket_of(entry.hash());
        let of = self.fill(entry);
        let head = self.bucket_mut(bucket);
        let mut at = *head;
        if at == END {
            *head = of.slot;
            return of;
        }
        loop {
            let slot = self.slot_mut(at);
            if slot.next == END {
                slot.next = of.slot;
                return of;
            }
            at = slot.next;
        }
    }

    /// Returns a reference to the first entry with this hash for which `is_it` returns true, if
    /// there is one. Entries with the same hash are in the order of their insertion.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<SlotRef> {
        if self.length == 0 {
            return None;
        }
        let mut at = self.head(hash);
        while at != END {
            let slot = self.slot(at);
            if slot.entry.as_ref().is_some_and(|entry| entry.hash() == hash && is_it(entry)) {
                return Some(SlotRef { slot: at, generation: slot.generation });
            }
            at = slot.next;
        }
        None
    }

    /// Returns the entries with this hash in the order of their insertion.
    pub fn with_hash(&self, hash: u64) -> impl Iterator<Item = &T> {
        let following = move |at: u32| (at != END).then(|| self.slot(at));
        std::iter::successors(following(self.head(hash)), move |slot| following(slot.next))
            .filter_map(|slot| slot.entry.as_ref())
            .filter(move |entry| entry.hash() == hash)
    }

    /// Returns an entry, or `None` if it is no longer in the table.
    #[inline]
    pub fn get(&self, of: SlotRef) -> Option<&T> {
        let slot = self.chunks.get(Self::chunk_of(of.slot))?.get(Self::place_of(of.slot))?;
        slot.entry.as_ref().filter(|_| slot.generation == of.generation)
    }

    /// Returns an entry, or `None` if it is no longer in the table.
    #[inline]
    pub fn get_mut(&mut self, of: SlotRef) -> Option<&mut T> {
        let slot =
            self.chunks.get_mut(Self::chunk_of(of.slot))?.get_mut(Self::place_of(of.slot))?;
        slot.entry.as_mut().filter(|_| slot.generation == of.generation)
    }

    /// Returns the entry in the slot with this number, and its reference, or `None` if the slot is
    /// vacant.
    pub fn at(&self, slot: u32) -> Option<(SlotRef, &T)> {
        let found = self.chunks.get(Self::chunk_of(slot))?.get(Self::place_of(slot))?;
        let entry = found.entry.as_ref()?;
        Some((SlotRef { slot, generation: found.generation }, entry))
    }

    /// Returns the entry in the slot with this number, or `None` if the slot is vacant.
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.chunks.get_mut(Self::chunk_of(slot))?.get_mut(Self::place_of(slot))?.entry.as_mut()
    }

    /// Removes and returns an entry, or returns `None` if it is no longer in the table.
    pub fn remove(&mut self, of: SlotRef) -> Option<T> {
        let hash = self.get(of)?.hash();
        let free = self.free;
        let slot = self.slot_mut(of.slot);
        let entry = slot.entry.take();
        slot.generation = slot.generation.wrapping_add(1);
        let next = std::mem::replace(&mut slot.next, free);
        self.free = of.slot;
        self.length -= 1;
        let mut at = self.head(hash);
        if at == of.slot {
            *self.head_mut(hash) = next;
            return entry;
        }
        loop {
            let slot = self.slot_mut(at);
            if slot.next == of.slot {
                slot.next = next;
                return entry;
            }
            at = slot.next;
        }
    }

    /// Returns every entry, in the order of the slots' numbers.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().filter_map(|slot| slot.entry.as_ref())
    }

    /// Puts an entry into a vacant slot, but not yet into a bucket.
    fn fill(&mut self, entry: T) -> SlotRef {
        let number = self.free;
        if number != END {
            let slot = self.slot_mut(number);
            slot.entry = Some(entry);
            let generation = slot.generation;
            self.free = std::mem::replace(&mut slot.next, END);
            return SlotRef { slot: number, generation };
        }
        if self.chunks.last().is_none_or(|last| last.len() == 1 << Self::SLOT_BITS) {
            // The first chunk grows as needed, so that a table of few entries is small.
            let room = if self.chunks.is_empty() { 0 } else { 1 << Self::SLOT_BITS };
            self.chunks.push(Vec::with_capacity(room));
        }
        let chunk = self.chunks.len() - 1;
        let slots = &mut self.chunks[chunk];
        let number = (chunk << Self::SLOT_BITS) + slots.len();
        assert!(number < END as usize, "more entries than numbers of slots");
        slots.push(Slot { entry: Some(entry), next: END, generation: 0 });
        SlotRef { slot: number as u32, generation: 0 }
    }

    /// Splits one bucket. The table splits its buckets in turn. The entries that have the highest
    /// bit of `mask` set in their hash move to a new bucket. All entries keep their order.
    fn split(&mut self) {
        let new = self.buckets;
        if new > self.mask {
            self.mask = 2 * self.mask + 1;
        }
        let old = new & (self.mask >> 1);
        match self.heads.last_mut() {
            Some(last) if last.len() < 1 << BUCKET_BITS => last.push(END),
            _ => {
                let mut heads = Vec::with_capacity(1 << BUCKET_BITS);
                heads.push(END);
                self.heads.push(heads);
            }
        }
        self.buckets += 1;
        let mut at = std::mem::replace(self.bucket_mut(old), END);
        let mask = self.mask;
        // The last slot of the entries that stay in this bucket, and of those that move to the new
        // one.
        let mut lasts = [END; 2];
        while at != END {
            let slot = self.slot_mut(at);
            let next = std::mem::replace(&mut slot.next, END);
            let moves = slot.entry.as_ref().is_some_and(|e| e.hash() as u32 & mask == new);
            match lasts[usize::from(moves)] {
                END => *self.bucket_mut(if moves { new } else { old }) = at,
                last => self.slot_mut(last).next = at,
            }
            lasts[usize::from(moves)] = at;
            at = next;
        }
    }

    #[inline]
    fn bucket_of(&self, hash: u64) -> u32 {
        let bucket = hash as u32 & self.mask;
        // A bucket that does not exist yet has its entries in the bucket from which it will be
        // split.
        if bucket < self.buckets { bucket } else { bucket & (self.mask >> 1) }
    }

    #[inline]
    fn head(&self, hash: u64) -> u32 {
        let bucket = self.bucket_of(hash) as usize;
        self.heads[bucket >> BUCKET_BITS][bucket & ((1 << BUCKET_BITS) - 1)]
    }

    fn head_mut(&mut self, hash: u64) -> &mut u32 {
        self.bucket_mut(self.bucket_of(hash))
    }

    fn bucket_mut(&mut self, bucket: u32) -> &mut u32 {
        let bucket = bucket as usize;
        &mut self.heads[bucket >> BUCKET_BITS][bucket & ((1 << BUCKET_BITS) - 1)]
    }

    fn chunk_of(slot: u32) -> usize {
        (slot >> Self::SLOT_BITS) as usize
    }

    fn place_of(slot: u32) -> usize {
        (slot & ((1 << Self::SLOT_BITS) - 1)) as usize
    }

    #[inline]
    fn slot(&self, number: u32) -> &Slot<T> {
        &self.chunks[Self::chunk_of(number)][Self::place_of(number)]
    }

    #[inline]
    fn slot_mut(&mut self, number: u32) -> &mut Slot<T> {
        &mut self.chunks[Self::chunk_of(number)][Self::place_of(number)]
    }
}

impl<T: Hashed> Default for SlotTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "slot_table_tests.rs"]
mod tests;
