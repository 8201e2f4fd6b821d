use proptest::prelude::*;

use super::*;

/// An entry: its hash, and a number that distinguishes it from other entries with the same hash.
type Entry = (u64, usize);

impl Hashed for Entry {
    fn hash(&self) -> u64 {
        self.0
    }
}

#[test]
fn an_entry_keeps_its_reference_while_the_table_grows() {
    let mut table = SlotTable::new();
    let hash = |number: usize| (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let names: Vec<_> = (0..50_000).map(|number| table.insert((hash(number), number))).collect();
    assert_eq!(table.len(), 50_000);
    for (number, &name) in names.iter().enumerate() {
        assert_eq!(name, SlotRef { slot: number as u32, generation: 0 });
        assert_eq!(table.get(name), Some(&(hash(number), number)));
        assert_eq!(table.find(hash(number), |_| true), Some(name));
    }
    assert_eq!(table.find(1, |_| true), None);
}

#[test]
fn a_vacant_slot_is_reused_with_another_generation() {
    let mut table = SlotTable::new();
    let [a, b, c] = [7, 7, 8].map(|hash| table.insert((hash, 0)));
    assert_eq!(table.remove(a), Some((7, 0)));
    assert_eq!(table.remove(a), None);
    assert_eq!(table.remove(c), Some((8, 0)));
    // The entry gets the slot that became vacant last.
    assert_eq!(table.insert((9, 0)), SlotRef { slot: c.slot, generation: 1 });
    assert_eq!(table.insert((9, 1)), SlotRef { slot: a.slot, generation: 1 });
    assert_eq!((table.get(a), table.get(c), table.get(b)), (None, None, Some(&(7, 0))));
    assert_eq!(table.at(a.slot).map(|(name, _)| name.generation), Some(1));
}

/// The longest time between two turns of a shard depends on the cost of an insertion.
#[test]
fn an_insertion_adds_at_most_one_chunk_and_moves_none() {
    let mut table = SlotTable::new();
    for number in 0..50_000_u64 {
        let before = (table.buckets, table.heads.len(), table.chunks.len());
        table.insert((number.wrapping_mul(0x9E37_79B9_7F4A_7C15), 0));
        assert!(table.buckets - before.0 <= 1);
        assert!(table.heads.len() - before.1 <= 1 && table.chunks.len() - before.2 <= 1);
        assert!(
            table
                .chunks
                .iter()
                .skip(1)
                .all(|chunk| chunk.capacity() == 1 << SlotTable::<Entry>::SLOT_BITS)
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert { hash: u64 },
    Remove { which: prop::sample::Index },
}

fn step() -> impl Strategy<Value = Step> {
    // Few hashes, so that many entries share one, and hashes with the same low bits.
    let hash = prop_oneof![0..8_u64, (0..64_u64).prop_map(|high| high << 4), any::<u64>()];
    prop_oneof![
        3 => hash.prop_map(|hash| Step::Insert { hash }),
        2 => any::<prop::sample::Index>().prop_map(|which| Step::Remove { which }),
    ]
}

proptest! {
    /// Compares the table with a list in the order of insertion.
    #[test]
    fn a_slot_table_behaves_like_a_list_searched_by_hash(steps in prop::collection::vec(step(), 0..400)) {
        let mut table = SlotTable::new();
        let mut list: Vec<(SlotRef, Entry)> = Vec::new();
        let mut gone = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert { hash } => {
                    let name = table.insert((hash, number));
                    prop_assert!(list.iter().all(|(other, _)| other.slot != name.slot));
                    list.push((name, (hash, number)));
                }
                Step::Remove { which } if !list.is_empty() => {
                    let (name, entry) = list.remove(which.index(list.len()));
                    prop_assert_eq!(table.remove(name), Some(entry));
                    gone.push(name);
                }
                Step::Remove { .. } => {}
            }
            prop_assert_eq!((table.len(), table.is_empty()), (list.len(), list.is_empty()));
            for &(name, entry) in &list {
                prop_assert_eq!(table.get(name), Some(&entry));
                prop_assert_eq!(table.at(name.slot), Some((name, &entry)));
                let same = list.iter().map(|(_, other)| *other).filter(|other| other.0 == entry.0);
                prop_assert!(table.with_hash(entry.0).copied().eq(same));
                prop_assert_eq!(table.find(entry.0, |other| other.1 == entry.1), Some(name));
            }
            prop_assert!(gone.iter().all(|&name| table.get(name).is_none()));
            let mut values: Vec<_> = table.values().copied().collect();
            values.sort_unstable_by_key(|value| value.1);
            let mut entries: Vec<_> = list.iter().map(|(_, entry)| *entry).collect();
            entries.sort_unstable_by_key(|entry| entry.1);
            prop_assert_eq!(values, entries);
        }
    }
}
