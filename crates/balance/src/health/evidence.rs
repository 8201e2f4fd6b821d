//! Evidence of overload: decides whether the 503s of a back end are caused by the back end itself,
//! or by one caller or one called number.
//!
//! Any server behind the back end can cause a 503, and anyone can provoke 503s by calling a single
//! number. So one 503 only starts a watch. During the watch, each new request to the back end sets
//! a bit for its source and a bit for its destination, chosen by keyed hashes. Each 503 sets the
//! bits of the rejected request in separate maps. The maps have two generations of a few seconds
//! each. A new generation overwrites the older one. Rejections lower a learned rate if the rejected
//! requests came from several sources and went to several destinations. They cause a pause if they
//! also outnumber all other requests in that time.
//!
//! If there is only one source (one trunk), rejections of its requests to many destinations lower
//! the rate. Rejections of requests to one destination, or from one source among several, do not.
//! If the pool has many sources, a few sources prove nothing either. The sources of rejected
//! requests must be at least an eighth of the sources of the pool, or at least eight sources. They
//! must also be at least 1/32 of the sources of the back end.
//!
//! Forged source addresses can imitate several sources. Two rules limit the damage: a pause needs
//! more rejections than other requests, and requests cannot exclude too many back ends of a pool
//! ([`Pool::spare`](crate::Pool::spare)).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_world::Timestamp;

use super::sources::{SharedSources, SourceBit, Sources, set};

/// The period that the data of one [`Generation`] cover.
const GENERATION: Duration = Duration::from_secs(3);

/// Time after the last rejection for which the sources and destinations of requests are recorded.
const WATCH: Duration = Duration::from_secs(6);

/// Minimum time between two changes of [`Evidence::watched_until`].
const WATCH_STEP: Duration = Duration::from_secs(1);

/// Time for which a back end must have been watched before rejections lower its learned rate.
/// Before that, too few of the requests that it served are known. The time is short, because the
/// rate must fall before the queue of the back end is full. If the rate falls too far, it grows
/// again.
const OBSERVED_TO_TEACH: Duration = Duration::from_millis(200);
/// Time for which a back end must have been watched before rejections cause a pause. It is longer
/// than [`OBSERVED_TO_TEACH`], because a pause stops all new calls.
const OBSERVED_TO_PAUSE: Duration = Duration::from_secs(1);

/// Minimum number of different destinations of rejected requests that shows overload.
const DESTINATIONS_MIN: u32 = 5;

/// Minimum number of different sources of rejected requests that shows overload. If all requests
/// come from one source, one is enough.
const SOURCES_MIN: u32 = 2;
/// Rejections show overload only if at least one in `POOL_SHARE` sources of the pool has a rejected
/// request.
const POOL_SHARE: u32 = 8;
/// Number of sources of rejected requests that is enough, however many sources the pool has. In a
/// large pool, a back end gets requests of only a part of the sources, and rejects only some of
/// them.
const SOURCES_ENOUGH: u32 = 8;
/// Rejections show overload only if at least one in `OWN_SHARE` sources of the back end has a
/// rejected request. A back end at its learned rate rejects some percent of its requests, so a
/// larger share would hide a real overload.
const OWN_SHARE: f64 = 32.0;

/// The source and the destination of a request, each as the number of a bit in a map. The map of
/// destinations has 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parties {
    source: SourceBit,
    destination: u8,
}

impl Parties {
    /// Returns the bits for a source and a destination with these hashes. The hashes must be keyed,
    /// because peers choose the hashed values.
    pub fn of(source: u64, destination: u64) -> Self {
        Self { source: SourceBit::of(source), destination: (destination % 64) as u8 }
    }
}

/// The consequences of the recent rejections of a back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// True if requests from several sources to several destinations were rejected, so that a
    /// learned rate must fall.
    pub(crate) teaches: bool,
    /// True if the rejections also outnumber the requests that are not rejected, so that the back
    /// end must pause.
    pub(crate) pauses: bool,
}

/// The recent requests and rejections of a back end, shared by all shards.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// End of the watch, in nanoseconds since the program started.
    watched_until: AtomicU64,
    /// Start of the watch, in nanoseconds since the program started.
    watched_since: AtomicU64,
    generations: [Generation; 2],
}

#[derive(Debug, Default)]
struct Generation {
    /// The number of the generation, counted from 1 at time zero, or 0 if there are no data. Only
    /// the data of the current and of the previous generation count.
    number: AtomicU64,
    given: AtomicU32,
    rejected: AtomicU32,
    sources_given: SharedSources,
    sources_rejected: SharedSources,
    destinations_given: AtomicU64,
    destinations_rejected: AtomicU64,
}

/// The recent requests and rejections. Each number is the sum over all generations that still
/// count, and each map is the union of their maps.
#[derive(Default)]
struct Seen {
    given: u64,
    rejected: u64,
    sources_given: Sources,
    sources_rejected: Sources,
    destinations_given: u64,
    destinations_rejected: u64,
}

impl Seen {
    /// Returns the sources of all these requests.
    fn sources(&self) -> Sources {
        self.sources_given.and(self.sources_rejected)
    }
}

impl Evidence {
    /// Returns whether the sources and destinations of requests are recorded, because a request was
    /// rejected recently.
    pub(crate) fn is_watched(&self, now: Timestamp) -> bool {
        self.watched_until.load(Relaxed) > now.as_nanos()
    }

    /// Records that the back end gets a request with this source and this destination.
    pub(crate) fn on_given(&self, now: Timestamp, parties: Parties) {
        let generation = self.generation(now);
        generation.given.fetch_add(1, Relaxed);
        generation.sources_given.insert(parties.source);
        set(&generation.destinations_given, 1 << parties.destination);
    }

    /// Starts or prolongs a watch: from now on, the source and the destination of each request are
    /// recorded. Returns the sources of recent requests.
    pub(crate) fn watch(&self, now: Timestamp) -> Sources {
        let until = self.watched_until.load(Relaxed);
        if until <= now.as_nanos() {
            self.watched_since.store(now.as_nanos(), Relaxed);
        }
        if until < (now + WATCH - WATCH_STEP).as_nanos() {
            self.watched_until.store((now + WATCH).as_nanos(), Relaxed);
        }
        self.seen(now).sources()
    }

    /// Records that the back end rejected a request. `parties` are the source and the destination
    /// of the request, if they are known. `of` contains the sources of the recent requests to the
    /// pool of the back end.
    pub(crate) fn on_rejected(
        &self,
        now: Timestamp,
        parties: Option<Parties>,
        of: Sources,
    ) -> Verdict {
        let Some(parties) = parties else { return Verdict { teaches: false, pauses: false } };
        let generation = self.generation(now);
        generation.rejected.fetch_add(1, Relaxed);
        generation.sources_rejected.insert(parties.source);
        set(&generation.destinations_rejected, 1 << parties.destination);
        self.judge(now, of)
    }

    /// Forgets all requests and rejections, because the back end may now be another server.
    pub(crate) fn forget(&self) {
        self.watched_until.store(0, Relaxed);
        self.generations.iter().for_each(|generation| generation.number.store(0, Relaxed));
    }

    fn judge(&self, now: Timestamp, of: Sources) -> Verdict {
        let since = Timestamp::from_nanos(self.watched_since.load(Relaxed));
        let seen = self.seen(now);
        let (rejected, served) = split(seen.destinations_given, seen.destinations_rejected);
        let sources_rejected = seen.sources_rejected.bits();
        let sources_served = seen.sources_given.without(seen.sources_rejected).bits();
        // `of` contains the sources of this back end, except a source whose first rejection came
        // after `of` was collected.
        let sources = of.and(seen.sources_rejected).bits();
        let sources_min = sources.min(SOURCES_MIN).max(sources.div_ceil(POOL_SHARE));
        let teaches = now.since(since) >= OBSERVED_TO_TEACH
            && rejected >= DESTINATIONS_MIN
            && sources_rejected >= sources_min.min(SOURCES_ENOUGH)
            && OWN_SHARE * seen.sources_rejected.estimate() >= seen.sources().estimate();
        let outweighs = now.since(since) >= OBSERVED_TO_PAUSE
            && rejected > served
            && sources_rejected >= sources_served
            // The bits of many destinations collide. The number of requests is exact.
            && 2 * seen.rejected > seen.given;
        Verdict { teaches, pauses: teaches && outweighs }
    }

    fn seen(&self, now: Timestamp) -> Seen {
        let current = number(now);
        let mut seen = Seen::default();
        for generation in &self.generations {
            let number = generation.number.load(Relaxed);
            if number == 0 || number + 1 < current {
                continue;
            }
            seen.given += u64::from(generation.given.load(Relaxed));
            seen.rejected += u64::from(generation.rejected.load(Relaxed));
            seen.sources_given = seen.sources_given.and(generation.sources_given.load());
            seen.sources_rejected = seen.sources_rejected.and(generation.sources_rejected.load());
            seen.destinations_given |= generation.destinations_given.load(Relaxed);
            seen.destinations_rejected |= generation.destinations_rejected.load(Relaxed);
        }
        seen
    }

    /// Returns the generation of `now`, and clears it if its data are from an older generation. If
    /// the clock of a shard is behind by one generation, the bits that the shard sets may be added
    /// to a newer generation or lost. Few bits are affected, for some seconds.
    fn generation(&self, now: Timestamp) -> &Generation {
        let current = number(now);
        let generation = &self.generations[(current % 2) as usize];
        let before = generation.number.load(Relaxed);
        let is_older = before < current;
        if is_older && generation.number.compare_exchange(before, current, Relaxed, Relaxed).is_ok()
        {
            generation.given.store(0, Relaxed);
            generation.rejected.store(0, Relaxed);
            generation.sources_given.clear();
            generation.sources_rejected.clear();
            generation.destinations_given.store(0, Relaxed);
            generation.destinations_rejected.store(0, Relaxed);
        }
        generation
    }
}

/// Returns the number of the generation at `now`, counted from 1.
fn number(now: Timestamp) -> u64 {
    1 + now.as_nanos() / GENERATION.as_nanos() as u64
}

/// Returns the number of bits in `rejected`, and the number of bits in `given` that are not in
/// `rejected`.
fn split(given: u64, rejected: u64) -> (u32, u32) {
    (rejected.count_ones(), (given & !rejected).count_ones())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Verdict = Verdict { teaches: false, pauses: false };
    const TEACHES: Verdict = Verdict { teaches: true, pauses: false };
    const PAUSES: Verdict = Verdict { teaches: true, pauses: true };

    fn reject(evidence: &Evidence, now: Timestamp, parties: Option<Parties>) -> Verdict {
        let of = evidence.watch(now);
        evidence.on_rejected(now, parties, of)
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(10_000 + ms)
    }

    /// Runs a request each 20 ms for two seconds. The functions get the number of the request.
    /// Rejections are immediate. Returns the last verdict.
    fn run(parties: impl Fn(u64) -> Parties, is_rejected: impl Fn(u64) -> bool) -> Verdict {
        let evidence = Evidence::default();
        let mut verdict = NOTHING;
        for n in 0..100 {
            let now = at(20 * n);
            if evidence.is_watched(now) {
                evidence.on_given(now, parties(n));
            }
            if is_rejected(n) {
                verdict = reject(&evidence, now, Some(parties(n)));
            }
        }
        verdict
    }

    #[test]
    fn one_number_proves_nothing_however_many_call_it() {
        assert_eq!(run(|n| Parties::of(n, 1), |_| true), NOTHING);
        assert_eq!(run(|n| Parties::of(n, n % 4), |_| true), NOTHING, "nor do a few");
    }

    #[test]
    fn one_source_of_several_proves_nothing_however_many_numbers_it_has() {
        let stranger_and_others =
            |n| if n % 2 == 0 { Parties::of(1, n) } else { Parties::of(n, n) };
        assert_eq!(run(stranger_and_others, |n| n % 2 == 0), NOTHING);
        // If there are only two other sources, the stranger is a third of all sources.
        let stranger_and_two = |n| Parties::of(n % 3, n);
        assert_eq!(run(stranger_and_two, |n| n % 3 == 0), NOTHING);
    }

    #[test]
    fn a_lone_trunk_with_many_destinations_teaches() {
        assert_eq!(run(|n| Parties::of(1, n), |_| true), PAUSES);
        assert_eq!(run(|n| Parties::of(1, n), |n| n % 10 == 0), TEACHES);
    }

    #[test]
    fn rejections_of_some_callers_teach_and_of_most_pause() {
        let each = |n| Parties::of(n, n);
        assert_eq!(run(each, |n| n % 4 == 0), TEACHES);
        assert_eq!(run(each, |n| n % 2 == 0), TEACHES, "half of the requests are served");
        assert_eq!(run(each, |_| true), PAUSES);
        assert_eq!(run(each, |n| n % 4 != 0), PAUSES);
    }

    /// The minimum is an eighth of the sources.
    #[test]
    fn two_sources_among_many_prove_nothing() {
        let two_strangers =
            |n| if n % 2 == 0 { Parties::of(n / 2 % 2, n) } else { Parties::of(n, n) };
        assert_eq!(run(two_strangers, |n| n % 2 == 0), NOTHING);
        let is_rejected = |n: u64| !n.is_multiple_of(4);
        for (others, expected) in [(14, PAUSES), (15, NOTHING)] {
            let strangers_and = |n: u64| {
                let source = if is_rejected(n) { n % 2 } else { 2 + n / 4 % others };
                Parties::of(source, n)
            };
            assert_eq!(run(strangers_and, is_rejected).teaches, expected.teaches, "{others}");
        }
    }

    /// The other back ends get requests from five other sources, and reject them.
    #[test]
    fn one_source_of_several_of_a_pool_proves_nothing() {
        let (one, fellows) = (Evidence::default(), [(); 2].map(|()| Evidence::default()));
        for ms in (0..2000).step_by(20) {
            let mine = Parties::of(1, ms);
            one.on_given(at(ms), mine);
            let mut of = one.watch(at(ms));
            for other in &fellows {
                let theirs = Parties::of(2 + ms / 20 % 5, ms);
                other.on_given(at(ms), theirs);
                other.on_rejected(at(ms), Some(theirs), Sources::default());
                of = of.and(other.watch(at(ms)));
            }
            assert_eq!(one.on_rejected(at(ms), Some(mine), of), NOTHING);
        }
    }

    /// Ten addresses could belong to one customer, whose phones answer 503.
    #[test]
    fn ten_sources_among_two_thousand_prove_nothing() {
        let verdict_if = |is_rejected: &dyn Fn(u64) -> bool| {
            let evidence = Evidence::default();
            evidence.watch(at(0));
            let mut verdict = NOTHING;
            for n in 0..2000 {
                let (now, parties) = (at(n), Parties::of(n, n));
                evidence.on_given(now, parties);
                if is_rejected(n) {
                    verdict = reject(&evidence, now, Some(parties));
                }
            }
            verdict
        };
        assert_eq!(verdict_if(&|n| n >= 1990), NOTHING);
        // A back end that is a little overloaded rejects requests of more and more sources.
        assert_eq!(verdict_if(&|n| n.is_multiple_of(20)), TEACHES);
    }

    #[test]
    fn many_numbers_do_not_hide_how_many_are_served() {
        // There are so many destinations and sources that each bit was rejected once. But three of
        // four requests are served.
        let evidence = Evidence::default();
        let mut verdict = NOTHING;
        for n in 0..2000 {
            let (now, parties) = (at(n), Parties::of(n / 4, n / 4 + n % 4));
            evidence.on_given(now, parties);
            if n % 4 == 0 {
                verdict = reject(&evidence, now, Some(parties));
            }
        }
        assert_eq!(verdict, TEACHES);
    }

    #[test]
    fn requests_to_one_number_are_counted_one_by_one() {
        // The numbers of six callers are rejected. Others call a number that is served.
        for (served, expected) in [(5, PAUSES), (6, TEACHES)] {
            let evidence = Evidence::default();
            evidence.watch(at(0));
            (0..served).for_each(|_| evidence.on_given(at(1), Parties::of(1, 63)));
            let mut verdict = NOTHING;
            for n in 0..6 {
                evidence.on_given(at(1000), Parties::of(n, n));
                verdict = reject(&evidence, at(1000), Some(Parties::of(n, n)));
            }
            assert_eq!(verdict, expected, "{served}");
        }
    }

    #[test]
    fn the_first_seconds_of_a_process_count_as_any_others() {
        let evidence = Evidence::default();
        let now = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        let rejected = |ms| reject(&evidence, now(ms), Some(Parties::of(ms, ms)));
        assert!((0..=1000).step_by(10).map(rejected).any(|verdict| verdict == PAUSES));
    }

    #[test]
    fn it_takes_a_moment_until_rejections_teach_and_a_second_until_they_pause() {
        let evidence = Evidence::default();
        let rejected = |ms: u64| reject(&evidence, at(ms), Some(Parties::of(ms, ms)));
        assert!((0..200).step_by(10).all(|ms| rejected(ms) == NOTHING));
        assert!((200..1000).step_by(10).all(|ms| rejected(ms) == TEACHES));
        assert_eq!(rejected(1000), PAUSES);
    }

    #[test]
    fn entries_older_than_two_generations_are_forgotten() {
        let evidence = Evidence::default();
        for ms in (0..=2000).step_by(10) {
            reject(&evidence, at(ms), Some(Parties::of(ms, ms)));
        }
        // After 10 s, generations start at 12 s, 15 s and 18 s.
        assert_eq!(reject(&evidence, at(4900), Some(Parties::of(1, 1))), PAUSES);
        assert_eq!(reject(&evidence, at(8100), Some(Parties::of(1, 1))), NOTHING);
        assert!(evidence.is_watched(at(14_099)) && !evidence.is_watched(at(14_100)));
    }

    // A store for each rejection would move the cache line back and forth between shards.
    #[test]
    fn a_watch_is_prolonged_once_a_second() {
        let evidence = Evidence::default();
        [0, 999].into_iter().for_each(|ms| _ = evidence.watch(at(ms)));
        assert!(!evidence.is_watched(at(6_000)));
        evidence.watch(at(1_001));
        assert!(evidence.is_watched(at(7_000)) && !evidence.is_watched(at(7_001)));
    }

    #[test]
    fn an_unknown_source_only_begins_a_watch() {
        let evidence = Evidence::default();
        assert!(!evidence.is_watched(at(0)));
        assert_eq!(reject(&evidence, at(0), None), NOTHING);
        assert!(evidence.is_watched(at(1)));
        evidence.forget();
        assert!(!evidence.is_watched(at(1)));
    }
}
