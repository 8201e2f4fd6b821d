//! A driver that wakes promptly or late, like a driver of real sockets.

use std::time::Duration;

use tidegate_emulate::{Host, HostSettings};
use tidegate_world::{Core, Pool, Received, Timestamp};

use crate::echo::{Echo, Seen, flow, text};

/// A run with datagrams that arrive at given times.
pub struct Run<'a> {
    pub settings: HostSettings,
    pub timers: Vec<Timestamp>,
    /// Arrivals, the earliest first.
    pub datagrams: &'a [(Timestamp, String)],
    /// Interval between two wakes of the driver. With 1 ns, the driver wakes whenever an event is
    /// due.
    pub period: Duration,
    /// End of the run.
    pub end: Timestamp,
}

/// The outcome of the datagrams.
pub struct Outcome {
    /// Packets sent, with their times.
    pub sent: Vec<(Timestamp, String)>,
    pub seen: Vec<(Timestamp, Seen)>,
    pub overflow: u64,
}

impl<'a> Run<'a> {
    /// Creates a run without timers and without an end, whose driver wakes at once.
    pub fn new(settings: HostSettings, datagrams: &'a [(Timestamp, String)]) -> Self {
        let (timers, end) = (Vec::new(), Timestamp::NEVER);
        Self { settings, timers, datagrams, period: Duration::from_nanos(1), end }
    }

    pub fn go(self) -> Outcome {
        let Self { settings, timers, datagrams, period, end } = self;
        let mut core = Echo::new();
        core.timers = timers.into();
        let mut host = Host::new(core, &settings);
        let pool = Pool::new();
        let mut datagrams = datagrams.iter().peekable();
        let mut sent = Vec::new();
        loop {
            let arrival = datagrams.peek().map(|(at, _)| *at);
            let Some(next) = arrival.into_iter().chain(host.poll_timeout()).min() else { break };
            let period = period.as_nanos() as u64;
            let now = Timestamp::from_nanos(next.as_nanos().div_ceil(period) * period);
            if now > end {
                break;
            }
            while let Some((at, text)) = datagrams.next_if(|(at, _)| *at <= now) {
                host.offer(now, Received::new(*at, flow(), pool.copy(text.as_bytes())));
                drain(&mut host, now, &mut sent);
            }
            if host.poll_timeout().is_some_and(|due| due <= now) {
                host.handle_timeout(now);
                drain(&mut host, now, &mut sent);
            }
            assert!(!host.serve(now));
            drain(&mut host, now, &mut sent);
            assert!(host.poll_timeout().is_none_or(|due| due > now), "the driver would spin");
        }
        let overflow = host.overflow().get();
        Outcome { sent, seen: host.core().seen.clone(), overflow }
    }
}

/// Takes the packets that leave at `now`.
pub fn drain(host: &mut Host<Echo>, now: Timestamp, sent: &mut Vec<(Timestamp, String)>) {
    while let Some(transmit) = host.poll_transmit() {
        sent.push((now, text(&transmit.bytes)));
    }
}
