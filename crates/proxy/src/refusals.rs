//! Which calls were refused and why: a few of them, for those who ask.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arrayvec::ArrayVec;
use tidegate_control::{Bucket, Gate, Reason};
use tidegate_sip::scan;
use tidegate_world::{Counter, Received, Timestamp};

use crate::class::Class;
use crate::counters::Counters;
use crate::in_force::RecentOccupancy;

/// Bytes of a method and of a Call-ID that are kept.
const METHOD_MAX: usize = 16;
const CALL_ID_MAX: usize = 64;

/// How much of what is refused is kept, by each shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// Refusals a second of each reason; 0: none.
    pub per_second: u32,
    /// Refusals kept, the latest.
    pub kept: usize,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self { per_second: 5, kept: 256 }
    }
}

/// New work that was refused, and what held at that moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// When.
    pub at: Timestamp,
    /// Who had sent it.
    pub source: SocketAddr,
    /// Its class.
    pub class: Class,
    /// Its method as it stands in the message, cut to 16 bytes.
    pub method: ArrayVec<u8, METHOD_MAX>,
    /// Its Call-ID, cut to 64 bytes.
    pub call_id: ArrayVec<u8, CALL_ID_MAX>,
    /// Why.
    pub reason: Reason,
    /// The share of the new work of its kind that was admitted, 0 to 1.
    pub allowance: f64,
    /// Occupancy of the processor in the last tenth of a second, 0 to 1.
    pub occupancy: f64,
    /// Sojourn of new work in the last second that was over, p99, in ns.
    pub sojourn_p99_ns: u64,
    /// New calls that waited.
    pub waiting: usize,
}

/// The latest of those that were kept. A shard writes, anybody reads: who reads holds up nobody.
#[derive(Debug, Default)]
pub struct Refusals {
    kept: Mutex<VecDeque<Refusal>>,
    /// Refusals that were to be kept while somebody read.
    pub missed: Counter,
}

impl Refusals {
    /// All that are kept, the oldest first.
    pub fn list(&self) -> Vec<Refusal> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }

    fn keep(&self, refusal: Refusal, kept_max: usize) {
        // A reader copies for some microseconds. The shard does not wait for it.
        let Ok(mut kept) = self.kept.try_lock() else {
            self.missed.add(1);
            return;
        };
        while kept.len() >= kept_max.max(1) {
            kept.pop_front();
        }
        kept.push_back(refusal);
    }
}

/// Picks what is kept: the first of each reason in every second.
pub(crate) struct Trace {
    settings: TraceSettings,
    counters: Arc<Counters>,
    occupancy: RecentOccupancy,
    /// By reason: the second, and how many were kept in it.
    kept: [(u64, u32); Reason::ALL.len()],
}

impl Trace {
    /// A trace that keeps what it picks in `counters`.
    pub(crate) fn new(settings: TraceSettings, counters: Arc<Counters>) -> Self {
        let (occupancy, kept) = Default::default();
        Self { settings, counters, occupancy, kept }
    }

    /// The processor was read.
    pub(crate) fn on_load(&mut self, now: Timestamp, gate: &Gate) {
        let occupancy = self.occupancy.update(now, gate.signals().processor);
        self.counters.in_force.occupancy.set((occupancy * 1e6) as u64);
    }

    /// A message was refused. Reads it only if it is to be kept.
    pub(crate) fn note(
        &mut self,
        now: Timestamp,
        received: &Received,
        class: Class,
        reason: Reason,
        gate: &Gate,
    ) {
        if !self.is_wanted(now, reason) {
            return;
        }
        let bucket = class.bucket().unwrap_or(Bucket::Session);
        let method = received.bytes.split(|&byte| byte == b' ').next().unwrap_or_default();
        let call_id = scan(&received.bytes).map(|scan| scan.call_id).unwrap_or_default();
        let p99 = gate.signals().sojourn.of_new().p99;
        let refusal = Refusal {
            at: now,
            source: received.path.remote,
            class,
            method: method.iter().copied().take(METHOD_MAX).collect(),
            call_id: call_id.iter().copied().take(CALL_ID_MAX).collect(),
            reason,
            allowance: gate.share(bucket),
            occupancy: self.occupancy.last(),
            sojourn_p99_ns: u64::try_from(p99.as_nanos()).unwrap_or(u64::MAX),
            waiting: gate.signals().queue.waiting,
        };
        self.counters.refusals.keep(refusal, self.settings.kept);
    }

    fn is_wanted(&mut self, now: Timestamp, reason: Reason) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        let index = Reason::ALL.iter().position(|known| *known == reason);
        let (then, count) = &mut self.kept[index.expect("all reasons are in the list")];
        if *then != second {
            (*then, *count) = (second, 0);
        }
        let wanted = *count < self.settings.per_second;
        *count += u32::from(wanted);
        wanted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_control::{Settings, registry};
    use tidegate_world::{Path, Pool, Seed};

    use super::*;

    struct Bench {
        trace: Trace,
        gate: Gate,
        counters: Arc<Counters>,
    }

    impl Bench {
        fn new(per_second: u32, kept: usize) -> Self {
            let law = registry::find("none").unwrap().defaults();
            let counters = Arc::new(Counters::default());
            let settings = TraceSettings { per_second, kept };
            Self {
                trace: Trace::new(settings, Arc::clone(&counters)),
                gate: Gate::new(Settings::new(law), Seed(1), 0),
                counters,
            }
        }

        fn refuse(&mut self, at_ms: u64, reason: Reason, text: &str) {
            let now = Timestamp::ZERO + Duration::from_millis(at_ms);
            let [remote, local] = ["192.0.2.1:5060", "127.0.0.1:5060"].map(|a| a.parse().unwrap());
            let bytes = Pool::new().copy(text.as_bytes());
            let received = Received::new(now, Path::udp(local, remote), bytes);
            self.trace.note(now, &received, Class::Invite, reason, &self.gate);
        }

        fn kept(&self) -> Vec<Refusal> {
            self.counters.refusals.list()
        }

        fn times(&self) -> Vec<u64> {
            self.kept().iter().map(|r| r.at.as_nanos() / 1_000_000).collect()
        }
    }

    fn invite(call_id: &str) -> String {
        format!(
            "INVITE sip:b@a SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKx\r\nFrom: <sip:a@a>;tag=1\r\n\
             To: <sip:b@a>\r\nCall-ID: {call_id}\r\nCSeq: 1 INVITE\r\n\r\n"
        )
    }

    #[test]
    fn a_few_of_each_reason_are_kept_in_each_second() {
        let mut bench = Bench::new(2, 100);
        for at in 0..30 {
            bench.refuse(at * 100, Reason::Law, &invite("a"));
        }
        assert_eq!(bench.times(), [0, 100, 1000, 1100, 2000, 2100]);
        bench.refuse(2900, Reason::QueueFull, &invite("a"));
        assert_eq!(bench.times().last(), Some(&2900), "another reason has its own part");
        let mut none = Bench::new(0, 100);
        none.refuse(0, Reason::Law, &invite("a"));
        assert!(none.times().is_empty());
    }

    #[test]
    fn the_latest_are_kept_and_what_is_long_is_cut() {
        let mut bench = Bench::new(1000, 3);
        for at in 0..5 {
            bench.refuse(at, Reason::Law, &invite(&"c".repeat(100)));
        }
        assert_eq!(bench.times(), [2, 3, 4]);
        let refusal = &bench.kept()[0];
        assert_eq!(refusal.call_id[..], [b'c'; CALL_ID_MAX]);
        assert_eq!((&refusal.method[..], refusal.source.port()), (&b"INVITE"[..], 5060));
        assert_eq!(refusal.allowance, 1.0);
        bench.refuse(9, Reason::Law, &"X".repeat(500));
        assert_eq!(bench.kept()[2].method[..], [b'X'; METHOD_MAX]);
    }

    #[test]
    fn a_reader_holds_up_nobody() {
        let mut bench = Bench::new(5, 3);
        bench.refuse(0, Reason::Law, &invite("a"));
        let counters = Arc::clone(&bench.counters);
        let reading = counters.refusals.kept.lock().unwrap();
        bench.refuse(1, Reason::Law, &invite("a"));
        drop(reading);
        bench.refuse(2, Reason::Law, &invite("a"));
        assert_eq!((bench.times(), counters.refusals.missed.get()), (vec![0, 2], 1));
    }
}
