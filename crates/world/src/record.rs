//! Recording what enters a core, and playing it back.
//!
//! All that a core can know enters by the six inputs of [`Core`]; a log of them
//! with their times, fed to a core built alike, brings out the same bytes.

use crate::{Core, Crossing, Failure, Load, Path, Pool, Received, Timestamp, Transmit, Work};

/// One input of a core. `B` holds the bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input<B = Vec<u8>> {
    /// [`Core::offer`]: the arrival stamp, the path, the bytes, the hand-overs so far.
    Offer(Timestamp, Path, B, u8),
    /// [`Core::serve`].
    Serve,
    /// [`Core::handle_timeout`].
    Timeout,
    /// [`Core::on_failed`].
    Failed(Failure),
    /// [`Core::on_load`].
    Load(Load),
    /// [`Core::on_drain`].
    Drain,
}

/// An input and the `now` it was given at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<B = Vec<u8>> {
    /// The time the driver gave.
    pub now: Timestamp,
    /// The input.
    pub input: Input<B>,
}

impl<B: AsRef<[u8]>> Entry<B> {
    /// Gives the input to `core`, a packet's bytes in a buffer of `pool`.
    pub fn give(&self, core: &mut impl Core, pool: &Pool) {
        let now = self.now;
        match &self.input {
            Input::Offer(arrived, path, bytes, crossed) => core.offer(
                now,
                Received {
                    arrived: *arrived,
                    path: *path,
                    bytes: pool.copy(bytes.as_ref()),
                    crossed: *crossed,
                },
            ),
            Input::Serve => {
                core.serve(now);
            }
            Input::Timeout => core.handle_timeout(now),
            Input::Failed(failure) => core.on_failed(now, *failure),
            Input::Load(load) => core.on_load(now, *load),
            Input::Drain => core.on_drain(now),
        }
    }
}

/// Where a [`Recorder`] notes what it sees.
pub trait Log {
    /// This is about to enter the core.
    fn note(&mut self, entry: Entry<&[u8]>);

    /// The core wants this sent; `now` is that of the last input noted.
    fn sent(&mut self, _now: Timestamp, _transmit: &Transmit) {}
}

/// The first inputs of a core, in memory.
#[derive(Debug)]
pub struct Memory {
    entries: Vec<Entry>,
    entries_max: usize,
    lost: u64,
}

impl Memory {
    /// Keeps the first `entries_max` inputs; later ones are counted only.
    pub fn new(entries_max: usize) -> Self {
        Self { entries: Vec::new(), entries_max, lost: 0 }
    }

    /// What was kept, and the number of inputs that did not fit.
    pub fn into_log(self) -> (Vec<Entry>, u64) {
        (self.entries, self.lost)
    }
}

impl Log for Memory {
    fn note(&mut self, Entry { now, input }: Entry<&[u8]>) {
        if self.entries.len() == self.entries_max {
            self.lost += 1;
            return;
        }
        let input = match input {
            Input::Offer(arrived, path, bytes, crossed) => {
                Input::Offer(arrived, path, bytes.to_vec(), crossed)
            }
            Input::Serve => Input::Serve,
            Input::Timeout => Input::Timeout,
            Input::Failed(failure) => Input::Failed(failure),
            Input::Load(load) => Input::Load(load),
            Input::Drain => Input::Drain,
        };
        self.entries.push(Entry { now, input });
    }
}

/// A core whose inputs are noted, and what it sends.
pub struct Recorder<C, L = Memory> {
    core: C,
    log: L,
    /// That of the last input noted.
    now: Timestamp,
    /// Something was served, and no idle poll has followed.
    in_service: bool,
}

impl<C: Core, L: Log> Recorder<C, L> {
    /// Notes what enters and leaves `core` in `log`.
    pub fn new(core: C, log: L) -> Self {
        Self { core, log, now: Timestamp::ZERO, in_service: false }
    }

    /// The core.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// The log, as far as it was kept.
    pub fn into_log(self) -> L {
        self.log
    }

    fn note(&mut self, now: Timestamp, input: Input<&[u8]>) {
        self.now = now;
        self.log.note(Entry { now, input });
    }
}

impl<C: Core, L: Log> Core for Recorder<C, L> {
    fn offer(&mut self, now: Timestamp, received: Received) {
        let Received { arrived, path, bytes, crossed } = &received;
        self.note(now, Input::Offer(*arrived, *path, bytes, *crossed));
        self.core.offer(now, received);
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        // A core that works in a time of its own has come to `now` by this alone.
        let due = self.core.poll_timeout().is_some_and(|due| due <= now);
        let served = self.core.serve(now);
        // An idle poll tells a core how long the service before it took, and else nothing.
        // Other inputs may lie between the two: a driver ends a turn before it knows.
        if served || self.in_service || due {
            self.note(now, Input::Serve);
        }
        self.in_service = served;
        served
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.note(now, Input::Timeout);
        self.core.handle_timeout(now);
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.note(now, Input::Failed(failure));
        self.core.on_failed(now, failure);
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        self.note(now, Input::Load(load));
        self.core.on_load(now, load);
    }

    fn on_drain(&mut self, now: Timestamp) {
        self.note(now, Input::Drain);
        self.core.on_drain(now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.core.poll_transmit()?;
        self.log.sent(self.now, &transmit);
        Some(transmit)
    }

    fn poll_crossing(&mut self) -> Option<Crossing> {
        self.core.poll_crossing()
    }

    fn last_work(&self) -> Work {
        self.core.last_work()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.core.poll_timeout()
    }

    fn is_drained(&self) -> bool {
        self.core.is_drained()
    }
}

/// Feeds a log to a core, giving every transmit to `sent` in order.
pub fn replay<B: AsRef<[u8]>>(
    log: impl IntoIterator<Item = Entry<B>>,
    core: &mut impl Core,
    pool: &Pool,
    mut sent: impl FnMut(Timestamp, Transmit),
) {
    for entry in log {
        entry.give(core, pool);
        while let Some(transmit) = core.poll_transmit() {
            sent(entry.now, transmit);
        }
        while core.poll_crossing().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::Cause;

    /// Answers each packet with the number of inputs seen so far; one that another
    /// shard has had before goes on to the next.
    struct Counting {
        pool: Pool,
        waiting: VecDeque<Received>,
        out: VecDeque<Transmit>,
        crossings: VecDeque<Crossing>,
        seen: u32,
        draining: bool,
    }

    impl Counting {
        fn new() -> Self {
            Self {
                pool: Pool::new(),
                waiting: VecDeque::new(),
                out: VecDeque::new(),
                crossings: VecDeque::new(),
                seen: 0,
                draining: false,
            }
        }
    }

    impl Core for Counting {
        fn offer(&mut self, _: Timestamp, received: Received) {
            self.waiting.push_back(received);
        }
        fn serve(&mut self, now: Timestamp) -> bool {
            self.seen += 1;
            let Some(received) = self.waiting.pop_front() else { return false };
            if received.crossed > 0 {
                self.crossings.push_back(Crossing { shard: received.crossed.into(), received });
                return true;
            }
            let text = format!("{} {:?} {:?}", self.seen, now, received.bytes);
            self.out.push_back(Transmit {
                path: received.path,
                bytes: self.pool.copy(text.as_bytes()),
            });
            true
        }
        fn handle_timeout(&mut self, _: Timestamp) {
            self.seen += 1;
        }
        fn on_failed(&mut self, _: Timestamp, _: Failure) {
            self.seen += 1;
        }
        fn on_load(&mut self, _: Timestamp, load: Load) {
            self.seen += load.busy.as_nanos() as u32;
        }
        fn on_drain(&mut self, _: Timestamp) {
            self.seen += 1;
            self.draining = true;
        }
        fn poll_transmit(&mut self) -> Option<Transmit> {
            self.out.pop_front()
        }
        fn poll_crossing(&mut self) -> Option<Crossing> {
            self.crossings.pop_front()
        }
        fn poll_timeout(&self) -> Option<Timestamp> {
            self.waiting.front().map(|received| received.arrived)
        }
        fn is_drained(&self) -> bool {
            self.draining && self.waiting.is_empty()
        }
    }

    fn path() -> Path {
        Path::udp("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap())
    }

    fn run(core: &mut impl Core) -> Vec<Vec<u8>> {
        let pool = Pool::new();
        let mut sent = Vec::new();
        for i in 0..5u64 {
            let now = Timestamp::from_nanos(i * 1000);
            core.offer(now, Received::new(now, path(), pool.copy(&[i as u8])));
            match i {
                1 => core.on_failed(now, Failure { path: path(), cause: Cause::Refused }),
                2 => core.on_load(
                    now,
                    Load { busy: std::time::Duration::from_nanos(9), ..Load::default() },
                ),
                3 => core.on_drain(now),
                _ => core.handle_timeout(now),
            }
            while core.serve(now) {}
            while let Some(t) = core.poll_transmit() {
                sent.push(t.bytes.to_vec());
            }
        }
        sent
    }

    fn played(log: &[Entry]) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        replay(log.to_vec(), &mut Counting::new(), &Pool::new(), |_, t| {
            sent.push(t.bytes.to_vec())
        });
        sent
    }

    #[test]
    fn a_log_played_back_brings_out_the_same_bytes() {
        let mut recorder = Recorder::new(Counting::new(), Memory::new(1000));
        let live = run(&mut recorder);
        let (log, lost) = recorder.into_log().into_log();
        assert_eq!(lost, 0);
        assert_eq!(played(&log), live);

        // The comparison can fail: a log that lacks one input tells another story.
        // (Of the last service and the idle poll behind it, either does for both.)
        for missing in 0..log.len() - 2 {
            let without = [&log[..missing], &log[missing + 1..]].concat();
            assert_ne!(played(&without), live, "{:?}", log[missing]);
        }
    }

    #[test]
    fn an_idle_poll_counts_once_behind_a_service_whatever_lies_between() {
        let mut recorder = Recorder::new(Counting::new(), Memory::new(1000));
        let now = Timestamp::ZERO;
        assert!(!recorder.serve(now));
        recorder.offer(now, Received::new(now, path(), Pool::new().copy(b"x")));
        assert!(recorder.serve(now));
        recorder.on_load(now, Load::default());
        assert!(!recorder.serve(now) && !recorder.serve(now));
        let (log, _) = recorder.into_log().into_log();
        let serves = |entry: &Entry| matches!(entry.input, Input::Serve);
        assert_eq!(log.iter().map(serves).collect::<Vec<_>>(), [false, true, false, true]);
    }

    /// Works in a time of its own: a serve brings it up to `now`, and leaves nothing to do.
    struct Clockwork {
        due: Timestamp,
    }

    impl Core for Clockwork {
        fn offer(&mut self, _: Timestamp, _: Received) {}
        fn serve(&mut self, now: Timestamp) -> bool {
            while self.due <= now {
                self.due = self.due + std::time::Duration::from_nanos(10);
            }
            false
        }
        fn handle_timeout(&mut self, _: Timestamp) {}
        fn on_failed(&mut self, _: Timestamp, _: Failure) {}
        fn on_drain(&mut self, _: Timestamp) {}
        fn poll_transmit(&mut self) -> Option<Transmit> {
            None
        }
        fn poll_timeout(&self) -> Option<Timestamp> {
            Some(self.due)
        }
        fn is_drained(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_serve_that_moves_a_core_in_its_own_time_is_noted() {
        let clockwork = Clockwork { due: Timestamp::from_nanos(10) };
        let mut recorder = Recorder::new(clockwork, Memory::new(10));
        for now in [5, 9, 10, 19, 25] {
            assert!(!recorder.serve(Timestamp::from_nanos(now)));
        }
        let (log, _) = recorder.into_log().into_log();
        let times: Vec<_> = log.iter().map(|entry| entry.now.as_nanos()).collect();
        assert_eq!(times, [10, 25]);
    }

    #[test]
    fn what_is_sent_is_noted_with_the_time_of_the_last_input() {
        struct Sent(Vec<(u64, Vec<u8>)>);
        impl Log for Sent {
            fn note(&mut self, _: Entry<&[u8]>) {}
            fn sent(&mut self, now: Timestamp, transmit: &Transmit) {
                self.0.push((now.as_nanos(), transmit.bytes.to_vec()));
            }
        }
        let mut recorder = Recorder::new(Counting::new(), Sent(Vec::new()));
        let pool = Pool::new();
        for at in [7, 9] {
            let now = Timestamp::from_nanos(at);
            recorder.offer(now, Received::new(now, path(), pool.copy(b"x")));
            assert!(recorder.serve(now));
            recorder.handle_timeout(now);
        }
        let sent = std::iter::from_fn(|| recorder.poll_transmit()).map(|t| t.bytes.to_vec());
        let sent: Vec<_> = sent.map(|bytes| (9, bytes)).collect();
        assert_eq!(sent.len(), 2);
        assert_eq!(recorder.into_log().0, sent);
    }

    #[test]
    fn a_driver_cannot_tell_a_recorder_from_its_core() {
        let mut recorder = Recorder::new(Counting::new(), Memory::new(1000));
        let arrived = Timestamp::from_nanos(7);
        let mut received = Received::new(arrived, path(), Pool::new().copy(b"x"));
        received.crossed = 2;
        assert_eq!((recorder.poll_timeout(), recorder.is_drained()), (None, false));
        recorder.offer(arrived, received);
        recorder.on_drain(arrived);
        assert_eq!((recorder.poll_timeout(), recorder.is_drained()), (Some(arrived), false));
        assert!(recorder.serve(arrived) && !recorder.serve(arrived));
        assert!(recorder.is_drained());
        assert_eq!(recorder.poll_crossing().map(|c| c.shard), Some(2));
        assert!(recorder.poll_crossing().is_none() && recorder.poll_transmit().is_none());
    }

    #[test]
    fn a_full_log_counts_what_it_loses() {
        let mut recorder = Recorder::new(Counting::new(), Memory::new(3));
        run(&mut recorder);
        let (log, lost) = recorder.into_log().into_log();
        assert_eq!((log.len(), lost), (3, 17));
    }
}
