//! Samples rejections for operators: in each second, the first rejections of each reason.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_control::{Bucket, Gate};
use tidegate_sip::{HeaderName, Message, scan};
use tidegate_world::{Received, Timestamp};

use super::counters::Counters;
use super::in_force::RecentOccupancy;
use super::rejections::{ADDRESS_MAX, CALL_ID_MAX, LoadThen, METHOD_MAX, RejectionRecord};
use crate::message::class::Class;
use crate::rejection::reply_reason::ReplyReason;
use crate::settings::TraceSettings;

/// A rejected request whose headers have not been read for the sample yet.
pub(crate) struct Rejected<'a> {
    pub(crate) at: Timestamp,
    pub(crate) source: SocketAddr,
    pub(crate) bytes: &'a [u8],
    pub(crate) status: Option<u16>,
    pub(crate) reason: ReplyReason,
    pub(crate) cause: &'static str,
    /// The name of the pool to which the request was routed, or `None` if it was not routed.
    pub(crate) pool: Option<&'a str>,
}

/// A selector of the rejections to keep: in each second, the first rejections of each reason.
pub(crate) struct Sampler {
    settings: TraceSettings,
    counters: Arc<Counters>,
    /// For each reason, the current second and the number of rejections kept in this second.
    kept: [(u64, u32); ReplyReason::ALL.len()],
}

impl Sampler {
    pub(crate) fn new(settings: TraceSettings, counters: Arc<Counters>) -> Self {
        Self { settings, counters, kept: [(0, 0); _] }
    }

    /// Keeps a rejection if it is selected. For a selected rejection only, reads the headers and
    /// calls `load` for the class and the load.
    pub(crate) fn note(
        &mut self,
        rejected: &Rejected<'_>,
        load: impl FnOnce() -> Option<(Class, LoadThen)>,
    ) {
        let &Rejected { at, source, bytes, status, reason, cause, pool } = rejected;
        if !self.is_wanted(at, reason) {
            return;
        }
        let load = load();
        // Parse only the head: the rejection may be due to a wrong Content-Length.
        let message = Message::parse_head(bytes).ok();
        let value = |name| message.as_ref().and_then(|message| Some(message.field(name)?.value));
        let uri = message.as_ref().and_then(Message::request_uri);
        let method = bytes.split(|&byte| byte == b' ').next().unwrap_or_default();
        let call_id = value(HeaderName::CallId);
        let call_id =
            call_id.or_else(|| scan(bytes).ok().map(|scan| scan.call_id)).unwrap_or_default();
        let cut = |text: Option<&[u8]>| {
            let text = text.unwrap_or_default();
            Box::from(&text[..text.len().min(ADDRESS_MAX)])
        };
        let rejection = RejectionRecord {
            at,
            source,
            class: load.map(|(class, _)| class),
            status,
            method: method.iter().copied().take(METHOD_MAX).collect(),
            call_id: call_id.iter().copied().take(CALL_ID_MAX).collect(),
            from: cut(value(HeaderName::From)),
            to: cut(value(HeaderName::To)),
            uri: cut(uri),
            reason,
            cause,
            pool: pool.map(Box::from),
            load: load.map(|(_, load)| load),
        };
        self.counters.rejections.keep(rejection, self.settings.kept);
    }

    fn is_wanted(&mut self, now: Timestamp, reason: ReplyReason) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        let (then, count) = &mut self.kept[reason.index()];
        if *then != second {
            (*then, *count) = (second, 0);
        }
        let wanted = *count < self.settings.per_second;
        *count += u32::from(wanted);
        wanted
    }
}

/// A sampler of the requests that the gate rejects. It also records the load that the gate saw.
pub(crate) struct Trace {
    sampler: Sampler,
    occupancy: RecentOccupancy,
    /// The status of the responses, or `None` if rejected messages are dropped silently.
    pub(crate) status: Option<u16>,
}

impl Trace {
    pub(crate) fn new(settings: TraceSettings, counters: Arc<Counters>) -> Self {
        let sampler = Sampler::new(settings, counters);
        Self { sampler, occupancy: RecentOccupancy::default(), status: Some(503) }
    }

    /// Publishes the occupancy after a reading of the processor.
    pub(crate) fn on_load(&mut self, now: Timestamp, gate: &Gate) {
        let occupancy = self.occupancy.update(now, gate.signals().processor);
        self.sampler.counters.in_force.occupancy.set((occupancy * 1e6) as u64);
    }

    /// Records a message that was rejected, if the sample selects it.
    pub(crate) fn note(
        &mut self,
        now: Timestamp,
        received: &Received,
        class: Class,
        reason: impl Into<ReplyReason>,
        gate: &Gate,
    ) {
        self.record_routed(now, received, class, reason, gate, None);
    }

    /// Records a rejected message that was routed to the pool of this name, if the sample selects
    /// it.
    pub(crate) fn record_routed(
        &mut self,
        now: Timestamp,
        received: &Received,
        class: Class,
        reason: impl Into<ReplyReason>,
        gate: &Gate,
        pool: Option<&str>,
    ) {
        let reason = reason.into();
        let rejected = Rejected {
            at: now,
            source: received.flow.remote,
            bytes: &received.bytes,
            status: self.status,
            reason,
            cause: reason.doc(),
            pool,
        };
        let occupancy = self.occupancy.last();
        self.sampler.note(&rejected, || {
            let bucket = class.bucket().unwrap_or(Bucket::Session);
            let p99 = gate.signals().sojourn.of_new().p99;
            let load = LoadThen {
                allowance: gate.share(bucket),
                limit: gate.control().admit(bucket),
                occupancy,
                sojourn_p99_ns: u64::try_from(p99.as_nanos()).unwrap_or(u64::MAX),
                waiting: gate.signals().queue.waiting,
            };
            Some((class, load))
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_control::{Reason, Settings, registry};
    use tidegate_world::{Flow, Pool, Seed};

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

        fn reject(&mut self, at_ms: u64, reason: Reason, text: &str) {
            let now = Timestamp::ZERO + Duration::from_millis(at_ms);
            let [remote, local] = ["192.0.2.1:5060", "127.0.0.1:5060"].map(|a| a.parse().unwrap());
            let bytes = Pool::new().copy(text.as_bytes());
            let received = Received::new(now, Flow::udp(local, remote), bytes);
            self.trace.note(now, &received, Class::Invite, reason, &self.gate);
        }

        fn kept(&self) -> Vec<RejectionRecord> {
            self.counters.rejections.list()
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
            bench.reject(at * 100, Reason::Law, &invite("a"));
        }
        assert_eq!(bench.times(), [0, 100, 1000, 1100, 2000, 2100]);
        bench.reject(2900, Reason::QueueFull, &invite("a"));
        assert_eq!(bench.times().last(), Some(&2900), "another reason has its own part");
        let mut none = Bench::new(0, 100);
        none.reject(0, Reason::Law, &invite("a"));
        assert!(none.times().is_empty());
    }

    #[test]
    fn the_latest_are_kept_and_long_texts_are_cut() {
        let mut bench = Bench::new(1000, 3);
        for at in 0..5 {
            bench.reject(at, Reason::Law, &invite(&"c".repeat(200)));
        }
        assert_eq!(bench.times(), [2, 3, 4]);
        let rejection = &bench.kept()[0];
        assert_eq!(rejection.call_id[..], [b'c'; CALL_ID_MAX]);
        assert_eq!((&rejection.method[..], rejection.source.port()), (&b"INVITE"[..], 5060));
        assert_eq!(rejection.load.map(|load| load.allowance), Some(1.0));
        assert!(rejection.is_of(&[b'c'; 200]) && !rejection.is_of(b"c"));
        bench.reject(9, Reason::Law, &"X".repeat(500));
        assert_eq!(bench.kept()[2].method[..], [b'X'; METHOD_MAX]);
    }

    #[test]
    fn a_rejection_says_who_called_whom() {
        let mut bench = Bench::new(1, 3);
        bench.reject(0, Reason::Law, &invite("a"));
        let kept = &bench.kept()[0];
        let texts = [&kept.from, &kept.to, &kept.uri].map(|text| String::from_utf8_lossy(text));
        assert_eq!(texts, ["<sip:a@a>;tag=1", "<sip:b@a>", "sip:b@a"]);
        assert_eq!((kept.status, kept.class), (Some(503), Some(Class::Invite)));
        assert_eq!((kept.cause, kept.reason), (Reason::Law.doc(), Reason::Law.into()));
        bench.reject(1000, Reason::Law, "INVITE");
        assert!(bench.kept()[1].from.is_empty(), "unreadable headers are kept too");
    }

    #[test]
    fn a_reader_delays_nobody() {
        let mut bench = Bench::new(5, 3);
        bench.reject(0, Reason::Law, &invite("a"));
        let counters = Arc::clone(&bench.counters);
        let reading = counters.rejections.kept.lock().unwrap();
        bench.reject(1, Reason::Law, &invite("a"));
        drop(reading);
        bench.reject(2, Reason::Law, &invite("a"));
        assert_eq!((bench.times(), counters.rejections.missed.get()), (vec![0, 2], 1));
    }
}
