//! The cache of DNS answers and of failures.
//!
//! An answer is used until it expires. Then the name is queried again. If the query fails, the
//! expired answer stays in use for at most a day (RFC 8767).
//!
//! After a failed query, a name is queried again only after growing pauses, whether an older answer
//! is known or not. This keeps load off failing servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{RecordType, Timestamp};

use super::records::Records;

/// Minimum and maximum lifetime of a cached answer, whatever its TTL. Because of the minimum, a
/// record with TTL 0 does not cause a query for each request. Because of the maximum, a change in
/// the DNS is noticed within an hour.
pub(super) const HOLDS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// Minimum and maximum lifetime of a negative answer, which says that there is no such record.
///
/// RFC 2308 §5: "it is sensible for a resolver to limit for how long it will cache a negative
/// response". A name that has just been added to the DNS should be usable soon.
pub(super) const ABSENT_HOLDS: (Duration, Duration) =
    (Duration::from_secs(5), Duration::from_secs(300));

/// Lifetime of a negative answer that states no lifetime.
pub(super) const ABSENT_HOLDS_USUALLY: Duration = Duration::from_secs(30);

/// An answer is refreshed when at most 1/10 of its lifetime is left. So the answer for a name in
/// use does not expire.
const AHEAD_PART: u32 = 10;

/// An answer is refreshed at least this long before it expires.
const AHEAD_MIN: Duration = Duration::from_secs(2);

/// The time after its expiry for which an answer is used if there is no newer one.
///
/// RFC 8767 §5 suggests between one and three days.
pub(super) const STALE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The time for which a name is not queried after a failure. Each further failure doubles this
/// time.
pub(super) const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The maximum number of times that the pause after a failure is doubled: it grows to 32 s. RFC
/// 2308 §7 forbids more than 5 minutes.
const DOUBLINGS_MAX: u32 = 5;

/// The precision of the least-recently-used order. Further uses of an entry within this time do not
/// change its position.
const USE_GRAIN: Duration = Duration::from_secs(1);

/// The key of a cached answer: a record type and a name.
pub(super) type Key = (RecordType, Arc<str>);

/// A bounded map of answers. The least recently used answer is evicted.
pub(super) struct Cache {
    by_name: BTreeMap<RecordType, BTreeMap<Arc<str>, Entry>>,
    /// Keys by last use, least recently used first.
    by_use: BTreeMap<Used, Key>,
    entries_max: usize,
    /// The number of uses so far. It distinguishes uses at the same time.
    uses: u64,
    evicted: u64,
}

/// The time at which an entry was last used, and the number of this use.
type Used = (Timestamp, u64);

struct Entry {
    known: Option<Known>,
    /// Number of failed queries since the last answer.
    failures: u32,
    /// Time before which the name is not queried, after a failure.
    paused_until: Timestamp,
    used: Used,
}

struct Known {
    records: Records,
    /// Time from which on the name is queried again, although the answer is still valid.
    ahead_from: Timestamp,
    until: Timestamp,
}

/// The cached state of the records of a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    /// The last answer, or `None` if there is none or it expired at least [`STALE_MAX`] ago.
    pub(super) records: Option<Records>,
    pub(super) age: Age,
    /// True if the last query failed.
    pub(super) failing: bool,
    /// True if no query may be sent now.
    pub(super) paused: bool,
}

/// The age of an answer, compared with the time for which it is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Age {
    /// The answer is valid.
    #[default]
    Fresh,
    /// The answer is valid, but about to expire.
    Ending,
    /// The answer has expired.
    Stale,
}

impl Cache {
    pub(super) fn new(entries_max: usize) -> Self {
        let (by_name, by_use) = Default::default();
        Self { by_name, by_use, entries_max, uses: 0, evicted: 0 }
    }

    /// Returns the cached state of a name, and counts this as a use.
    pub(super) fn touch(&mut self, now: Timestamp, record: RecordType, name: &str) -> View {
        let Some(all) = self.by_name.get_mut(&record) else { return View::default() };
        let Some(entry) = all.get_mut(name) else { return View::default() };
        let view = entry.view(now);
        if now >= entry.used.0 + USE_GRAIN
            && let Some(key) = self.by_use.remove(&entry.used)
        {
            self.uses += 1;
            entry.used = (now, self.uses);
            self.by_use.insert(entry.used, key);
        }
        view
    }

    /// Returns whether an answer is cached that may be used, even if it has expired.
    pub(super) fn is_known(&self, now: Timestamp, (record, name): &Key) -> bool {
        let entry = self.by_name.get(record).and_then(|all| all.get(name));
        entry.is_some_and(|entry| entry.view(now).records.is_some())
    }

    /// Stores an answer for its TTL, within the limits of this cache. Returns the previous answer.
    pub(super) fn learn(
        &mut self,
        now: Timestamp,
        key: &Key,
        records: Records,
        ttl: Option<Duration>,
    ) -> Option<Records> {
        let holds = match (&records, ttl) {
            (Records::Absent, None) => ABSENT_HOLDS_USUALLY,
            (Records::Absent, Some(ttl)) => ttl.clamp(ABSENT_HOLDS.0, ABSENT_HOLDS.1),
            (_, ttl) => ttl.unwrap_or_default().clamp(HOLDS.0, HOLDS.1),
        };
        let until = now + holds;
        let ahead_from = now + (holds - (holds / AHEAD_PART).max(AHEAD_MIN));
        let entry = self.entry(now, key);
        entry.failures = 0;
        entry.paused_until = now;
        let known = entry.known.replace(Known { records, ahead_from, until });
        known.map(|known| known.records)
    }

    pub(super) fn fail(&mut self, now: Timestamp, key: &Key) {
        let entry = self.entry(now, key);
        // Cache the failure (RFC 2308 §7). Otherwise each request would query a failing server.
        entry.paused_until = now + PAUSE_MIN * (1 << entry.failures.min(DOUBLINGS_MAX));
        entry.failures = entry.failures.saturating_add(1);
    }

    /// Returns the number of cached answers, failures included.
    pub(super) fn len(&self) -> usize {
        self.by_use.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Returns the entry of a name. If there is none, creates one, and evicts the least recently
    /// used entry if the cache is full.
    fn entry(&mut self, now: Timestamp, (record, name): &Key) -> &mut Entry {
        let all = self.by_name.entry(*record).or_default();
        if !all.contains_key(name) {
            self.uses += 1;
            let used = (now, self.uses);
            let entry = Entry { known: None, failures: 0, paused_until: now, used };
            all.insert(Arc::clone(name), entry);
            self.by_use.insert(used, (*record, Arc::clone(name)));
            if self.by_use.len() > self.entries_max {
                self.evict();
            }
        }
        self.by_name.get_mut(record).and_then(|all| all.get_mut(name)).expect("it was just found")
    }

    fn evict(&mut self) {
        if let Some((_, (record, name))) = self.by_use.pop_first() {
            self.evicted += 1;
            self.by_name.get_mut(&record).and_then(|all| all.remove(&name));
        }
    }
}

impl Entry {
    fn view(&self, now: Timestamp) -> View {
        let known = self.known.as_ref().filter(|known| now < known.until + STALE_MAX);
        let age = match known {
            Some(known) if now >= known.until => Age::Stale,
            Some(known) if now >= known.ahead_from => Age::Ending,
            _ => Age::Fresh,
        };
        View {
            records: known.map(|known| known.records.clone()),
            age,
            failing: self.failures > 0,
            paused: now < self.paused_until,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::at_s as at;

    fn key(name: &str) -> Key {
        (RecordType::A, name.into())
    }

    fn records(last: u8) -> Records {
        Records::Addresses([IpAddr::from([192, 0, 2, last])].into())
    }

    /// Returns the age of the known answer, its records, and the state of failures.
    fn seen(cache: &mut Cache, s: u64, name: &str) -> (Option<(Records, Age)>, [bool; 2]) {
        let View { records, age, failing, paused } = cache.touch(at(s), RecordType::A, name);
        (records.map(|records| (records, age)), [failing, paused])
    }

    #[test]
    fn an_answer_holds_then_ends_and_is_used_for_a_day_more() {
        let mut cache = Cache::new(9);
        assert_eq!(seen(&mut cache, 0, "a."), (None, [false, false]));
        assert_eq!(cache.learn(at(0), &key("a."), records(1), Some(Duration::from_secs(60))), None);
        let fine = [false, false];
        assert_eq!(seen(&mut cache, 53, "a."), (Some((records(1), Age::Fresh)), fine));
        assert_eq!(seen(&mut cache, 54, "a."), (Some((records(1), Age::Ending)), fine));
        assert_eq!(seen(&mut cache, 60, "a."), (Some((records(1), Age::Stale)), fine));
        let day = STALE_MAX.as_secs();
        assert_eq!(seen(&mut cache, 59 + day, "a.").0, Some((records(1), Age::Stale)));
        assert!(
            cache.is_known(at(59 + day), &key("a.")) && !cache.is_known(at(60 + day), &key("a."))
        );
        assert_eq!(seen(&mut cache, 60 + day, "a."), (None, fine));
        assert_eq!(cache.touch(at(1), RecordType::Aaaa, "a."), View::default());
        let before = cache.learn(at(70), &key("a."), Records::Absent, None);
        assert_eq!(before, Some(records(1)));
    }

    #[test]
    fn the_life_of_an_answer_is_bounded() {
        let mut cache = Cache::new(9);
        let mut ends = |records: Records, ttl: Option<u64>| {
            cache.learn(at(0), &key("a."), records, ttl.map(Duration::from_secs));
            let view = |cache: &mut Cache, s| cache.touch(at(s), RecordType::A, "a.").age;
            (0..10_000).find(|s| view(&mut cache, *s) == Age::Stale)
        };
        assert_eq!(ends(records(1), Some(0)), Some(5));
        assert_eq!(ends(records(1), Some(1_000_000)), Some(3600));
        assert_eq!(ends(Records::Declined, Some(60)), Some(60));
        assert_eq!(ends(Records::Absent, Some(0)), Some(5));
        assert_eq!(ends(Records::Absent, Some(60)), Some(60));
        assert_eq!(ends(Records::Absent, Some(1_000_000)), Some(300));
        assert_eq!(ends(Records::Absent, None), Some(30));
    }

    #[test]
    fn failures_make_pauses_that_double_to_32_seconds() {
        let mut cache = Cache::new(9);
        let mut now = 0;
        for pause in [1, 2, 4, 8, 16, 32, 32] {
            cache.fail(at(now), &key("a."));
            assert_eq!(seen(&mut cache, now, "a."), (None, [true, true]));
            now += pause;
            assert_eq!(seen(&mut cache, now - 1, "a.").1, [true, true]);
            assert_eq!(seen(&mut cache, now, "a.").1, [true, false]);
        }
        cache.learn(at(now), &key("a."), records(1), None);
        assert_eq!(seen(&mut cache, now, "a."), (Some((records(1), Age::Fresh)), [false, false]));
        cache.fail(at(now + 5), &key("a."));
        let known = Some((records(1), Age::Stale));
        assert_eq!(seen(&mut cache, now + 5, "a."), (known, [true, true]), "the answer stays");
        assert!(!seen(&mut cache, now + 6, "a.").1[1], "pauses begin again");
    }

    proptest! {
        // The reference model: a list, least recently used first.
        #[test]
        fn the_least_recently_used_is_evicted(
            steps in prop::collection::vec((0..12u8, any::<bool>()), 0..200),
            entries_max in 1..8usize,
        ) {
            let mut cache = Cache::new(entries_max);
            let mut list: Vec<String> = Vec::new();
            let mut evicted = 0;
            for (s, (name, is_answer)) in (0..).zip(steps) {
                let name = format!("{name}.");
                let known = list.iter().position(|other| *other == name);
                let view = cache.touch(at(s), RecordType::A, &name);
                prop_assert_eq!(view.records.is_some(), known.is_some());
                if let Some(known) = known {
                    list.remove(known);
                    list.push(name.clone());
                }
                if is_answer {
                    cache.learn(at(s), &key(&name), records(1), Some(Duration::from_secs(3600)));
                    if known.is_none() {
                        list.push(name);
                        if list.len() > entries_max {
                            list.remove(0);
                            evicted += 1;
                        }
                    }
                }
                prop_assert_eq!((cache.len(), cache.evicted()), (list.len(), evicted));
            }
        }
    }
}
