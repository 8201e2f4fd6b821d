//! The stores for look-ups, in memory.
//!
//! All shards of a process share the stores. A look-up needs only a hash and a comparison, so the
//! shard's own thread performs it. The answer returns through the shard's queue, like an answer of
//! the resolver. The content of a store can only be replaced as a whole, at any time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use tidegate_world::{KEY_MAX, LookupKind, QueryAnswer, VALUE_MAX};

/// The values of one store, by key.
type Values = HashMap<Box<[u8]>, Arc<[u8]>>;

/// A handle of the stores of a process.
#[derive(Clone, Debug, Default)]
pub struct Stores(Arc<RwLock<BTreeMap<LookupKind, Values>>>);

impl Stores {
    /// Replaces the content of a store by these keys and values. Keys longer than [`KEY_MAX`] and
    /// values longer than [`VALUE_MAX`] are left out.
    pub fn replace<K, V>(&self, kind: LookupKind, values: impl IntoIterator<Item = (K, V)>)
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let fits = |(key, value): &(K, V)| {
            key.as_ref().len() <= KEY_MAX && value.as_ref().len() <= VALUE_MAX
        };
        let entry = |(key, value): (K, V)| (key.as_ref().into(), value.as_ref().into());
        // Read the values before locking, and free the old ones after it, so that no shard waits.
        let values: Values = values.into_iter().filter(fits).map(entry).collect();
        let before = {
            let mut stores = self.0.write().unwrap_or_else(PoisonError::into_inner);
            stores.insert(kind, values)
        };
        drop(before);
    }

    /// Returns the answer to the look-up of `key` in the store of this kind.
    pub(crate) fn look_up(&self, kind: LookupKind, key: &[u8]) -> QueryAnswer {
        let stores = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match stores.get(&kind) {
            Some(values) => match values.get(key) {
                Some(value) => QueryAnswer::Found(Arc::clone(value)),
                None => QueryAnswer::NotFound(None),
            },
            // The content of this store was never set.
            None => QueryAnswer::NoAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_answers_from_its_content_and_is_replaced_as_a_whole() {
        let stores = Stores::default();
        let look_up = |key: &str| stores.look_up(LookupKind::User, key.as_bytes());
        assert_eq!(look_up("a"), QueryAnswer::NoAnswer);
        stores.replace(LookupKind::User, [("a", "1"), ("b", "2")]);
        assert_eq!(look_up("a"), QueryAnswer::Found(b"1".as_slice().into()));
        assert_eq!(look_up("c"), QueryAnswer::NotFound(None));
        let long = ["x".repeat(KEY_MAX + 1), "y".repeat(VALUE_MAX + 1)];
        let values = [("b", "3"), (&long[0], "1"), ("c", &long[1])];
        stores.clone().replace(LookupKind::User, values);
        assert_eq!(look_up("b"), QueryAnswer::Found(b"3".as_slice().into()));
        for key in ["a", "c", &long[0]] {
            assert_eq!(look_up(key), QueryAnswer::NotFound(None));
        }
    }
}
