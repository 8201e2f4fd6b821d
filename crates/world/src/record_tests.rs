use std::collections::VecDeque;

use super::*;
use crate::{Cause, Handoff, HandoffInput, Transport};

/// A core that answers each packet with the number of inputs seen so far, and hands a packet from
/// another shard on to the next.
struct Counting {
    pool: Pool,
    waiting: VecDeque<Received>,
    out: VecDeque<Transmit>,
    handoffs: VecDeque<Handoff>,
    seen: u32,
    draining: bool,
}

impl Counting {
    fn new() -> Self {
        Self {
            pool: Pool::new(),
            waiting: VecDeque::new(),
            out: VecDeque::new(),
            handoffs: VecDeque::new(),
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
        if received.handoffs > 0 {
            let shard = received.handoffs.into();
            let input = HandoffInput::Received(received);
            self.handoffs.push_back(Handoff { shard, input });
            return true;
        }
        let text = format!("{} {:?} {:?}", self.seen, now, received.bytes);
        self.out.push_back(Transmit::new(received.flow, self.pool.copy(text.as_bytes())));
        true
    }
    fn handle_timeout(&mut self, _: Timestamp) {
        self.seen += 1;
    }
    fn on_failed(&mut self, _: Timestamp, _: Failure) {
        self.seen += 1;
    }
    fn on_transmit(&mut self, _: Timestamp, transmit: Transmit) {
        self.seen += transmit.bytes.len() as u32;
    }
    fn on_connected(&mut self, _: Timestamp, flow: Flow) {
        self.seen += flow.connection.map_or(0, ConnectionId::get);
    }
    fn on_closed(&mut self, _: Timestamp, id: ConnectionId, cause: CloseCause) {
        self.seen += id.get() * if cause == CloseCause::Reset { 5 } else { 1 };
    }
    fn on_writable(&mut self, _: Timestamp, id: ConnectionId) {
        self.seen += id.get();
    }
    fn on_load(&mut self, _: Timestamp, load: Load) {
        self.seen += load.busy.as_nanos() as u32;
    }
    fn on_command(&mut self, _: Timestamp, command: &[u8]) {
        self.seen += command.len() as u32;
    }
    fn on_answer(&mut self, _: Timestamp, id: QueryId, answer: QueryAnswer) {
        if let QueryAnswer::Addresses(addresses, ttl) = answer {
            self.seen += id.0 as u32 + addresses.len() as u32 + ttl.as_secs() as u32;
        }
    }
    fn on_drain(&mut self, _: Timestamp) {
        self.seen += 1;
        self.draining = true;
    }
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }
    fn poll_handoff(&mut self) -> Option<Handoff> {
        self.handoffs.pop_front()
    }
    fn poll_timeout(&self) -> Option<Timestamp> {
        self.waiting.front().map(|received| received.arrived)
    }
    fn is_drained(&self) -> bool {
        self.draining && self.waiting.is_empty()
    }
}

fn flow() -> Flow {
    Flow::udp("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap())
}

fn run(core: &mut impl Core) -> Vec<Vec<u8>> {
    let pool = Pool::new();
    let mut sent = Vec::new();
    let id = ConnectionId::FIRST_ACCEPTED;
    let stream = Flow::connected(Transport::Tcp, flow().local, flow().remote, id);
    for i in 0..9u64 {
        let now = Timestamp::from_nanos(i * 1000);
        core.offer(now, Received::new(now, flow(), pool.copy(&[i as u8])));
        match i {
            1 => core.on_failed(now, Failure::new(flow(), Cause::Refused, b"quote")),
            2 => core
                .on_load(now, Load { busy: std::time::Duration::from_nanos(9), ..Load::default() }),
            3 => core.on_command(now, b"faster"),
            4 => core.on_drain(now),
            6 => core.on_connected(now, stream),
            0 => core.on_transmit(now, Transmit::new(stream, pool.copy(b"SIP/2.0 200"))),
            7 => core.on_writable(now, id),
            8 => core.on_closed(now, id, CloseCause::Reset),
            5 => {
                let addresses = [std::net::IpAddr::from([127, 0, 0, 1])].into();
                let ttl = std::time::Duration::from_secs(60);
                core.on_answer(now, QueryId(3), QueryAnswer::Addresses(addresses, ttl));
            }
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
    replay(log.to_vec(), &mut Counting::new(), &Pool::new(), |_, t| sent.push(t.bytes.to_vec()));
    sent
}

#[test]
fn a_replayed_log_sends_the_same_bytes() {
    let mut recorder = Recorder::new(Counting::new(), Memory::new(1000));
    let live = run(&mut recorder);
    let (log, lost) = recorder.into_log().into_log();
    assert_eq!(lost, 0);
    assert_eq!(played(&log), live);

    // The comparison can fail: a log that lacks one input gives another result. The last two
    // inputs, a service and the idle `serve` after it, are not removed, because one of them is
    // enough.
    for missing in 0..log.len() - 2 {
        let without = [&log[..missing], &log[missing + 1..]].concat();
        assert_ne!(played(&without), live, "{:?}", log[missing]);
    }
}

#[test]
fn an_idle_poll_is_recorded_once_after_a_service() {
    let mut recorder = Recorder::new(Counting::new(), Memory::new(1000));
    let now = Timestamp::ZERO;
    assert!(!recorder.serve(now));
    recorder.offer(now, Received::new(now, flow(), Pool::new().copy(b"x")));
    assert!(recorder.serve(now));
    recorder.on_load(now, Load::default());
    assert!(!recorder.serve(now) && !recorder.serve(now));
    let (log, _) = recorder.into_log().into_log();
    let serves = |entry: &Entry| matches!(entry.input, Input::Serve);
    assert_eq!(log.iter().map(serves).collect::<Vec<_>>(), [false, true, false, true]);
}

/// A core with its own time. `serve` advances this time to `now`, and reports that no message was
/// waiting.
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
fn a_serve_that_advances_the_time_of_a_core_is_recorded() {
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
fn packets_are_recorded_with_the_time_of_the_last_input() {
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
        recorder.offer(now, Received::new(now, flow(), pool.copy(b"x")));
        assert!(recorder.serve(now));
        recorder.handle_timeout(now);
    }
    let sent = std::iter::from_fn(|| recorder.poll_transmit()).map(|t| t.bytes.to_vec());
    let sent: Vec<_> = sent.map(|bytes| (9, bytes)).collect();
    assert_eq!(sent.len(), 2);
    assert_eq!(recorder.into_log().0, sent);
}

#[test]
fn a_recorder_behaves_like_its_core() {
    let mut recorder = Recorder::new(Counting::new(), Memory::new(1000));
    let arrived = Timestamp::from_nanos(7);
    let mut received = Received::new(arrived, flow(), Pool::new().copy(b"x"));
    received.handoffs = 2;
    assert_eq!((recorder.poll_timeout(), recorder.is_drained()), (None, false));
    recorder.offer(arrived, received);
    recorder.on_drain(arrived);
    assert_eq!((recorder.poll_timeout(), recorder.is_drained()), (Some(arrived), false));
    assert!(recorder.serve(arrived) && !recorder.serve(arrived));
    assert!(recorder.is_drained());
    assert_eq!(recorder.poll_handoff().map(|c| c.shard), Some(2));
    assert!(recorder.poll_handoff().is_none() && recorder.poll_transmit().is_none());
}

#[test]
fn a_full_log_counts_what_it_loses() {
    let mut recorder = Recorder::new(Counting::new(), Memory::new(3));
    run(&mut recorder);
    let (log, lost) = recorder.into_log().into_log();
    assert_eq!((log.len(), lost), (3, 33));
}
