use std::cell::RefCell;
use std::time::Duration;

use crate::{
    Buffer, Cause, CloseCause, Connect, ConnectionId, Core, Failure, Flow, Handoff, HandoffInput,
    Load, Pool, Query, QueryAnswer, QueryId, Question, Received, RecordType, Shedding, Timestamp,
    Transmit, Transport, Work,
};

/// A core that records the names of the called functions. No result of it is the default of
/// [`Core`].
#[derive(Default)]
struct Noting {
    called: RefCell<Vec<&'static str>>,
    pool: Pool,
    shedding: Shedding,
}

impl Noting {
    fn note(&self, name: &'static str) {
        self.called.borrow_mut().push(name);
    }
    fn bytes(&self) -> Buffer {
        self.pool.copy(b"x")
    }
}

fn flow() -> Flow {
    let address = "127.0.0.1:1".parse().unwrap();
    Flow::udp(address, address)
}

impl Core for Noting {
    fn offer(&mut self, _: Timestamp, _: Received) {
        self.note("offer");
    }
    fn serve(&mut self, _: Timestamp) -> bool {
        self.note("serve");
        true
    }
    fn handle_timeout(&mut self, _: Timestamp) {
        self.note("handle_timeout");
    }
    fn on_failed(&mut self, _: Timestamp, _: Failure) {
        self.note("on_failed");
    }
    fn on_transmit(&mut self, _: Timestamp, given: Transmit) {
        assert_eq!(given.flow, flow());
        self.note("on_transmit");
    }
    fn on_connected(&mut self, _: Timestamp, given: Flow) {
        assert_eq!(given, flow());
        self.note("on_connected");
    }
    fn on_closed(&mut self, _: Timestamp, id: ConnectionId, cause: CloseCause) {
        assert_eq!((id, cause), (ConnectionId::FIRST_OPENED, CloseCause::Reset));
        self.note("on_closed");
    }
    fn on_writable(&mut self, _: Timestamp, id: ConnectionId) {
        assert_eq!(id, ConnectionId::FIRST_ACCEPTED);
        self.note("on_writable");
    }
    fn on_load(&mut self, _: Timestamp, _: Load) {
        self.note("on_load");
    }
    fn on_command(&mut self, _: Timestamp, command: &[u8]) {
        assert_eq!(command, b"faster");
        self.note("on_command");
    }
    fn on_answer(&mut self, _: Timestamp, id: QueryId, answer: QueryAnswer) {
        assert_eq!((id, answer), (QueryId(7), QueryAnswer::NotFound(None)));
        self.note("on_answer");
    }
    fn on_drain(&mut self, _: Timestamp) {
        self.note("on_drain");
    }
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.note("poll_transmit");
        Some(Transmit::new(flow(), self.bytes()))
    }
    fn poll_handoff(&mut self) -> Option<Handoff> {
        self.note("poll_handoff");
        let received = Received::new(Timestamp::ZERO, flow(), self.bytes());
        Some(Handoff { shard: 1, input: HandoffInput::Received(received) })
    }
    fn poll_query(&mut self) -> Option<Query> {
        self.note("poll_query");
        Some(Query {
            id: QueryId(7),
            question: Question::Resolve { name: "a".into(), record: RecordType::A },
        })
    }
    fn poll_connect(&mut self) -> Option<Connect> {
        self.note("poll_connect");
        let Flow { local, remote, .. } = flow();
        let id = ConnectionId::FIRST_OPENED;
        Some(Connect { id, transport: Transport::Tcp, local, remote })
    }
    fn poll_close(&mut self) -> Option<ConnectionId> {
        self.note("poll_close");
        Some(ConnectionId::FIRST_OPENED)
    }
    fn poll_shedding(&self) -> &Shedding {
        self.note("poll_shedding");
        &self.shedding
    }
    fn last_work(&self) -> Work {
        self.note("last_work");
        Work { offered: Some(3), ..Work::default() }
    }
    fn poll_timeout(&self) -> Option<Timestamp> {
        self.note("poll_timeout");
        Some(Timestamp::ZERO + Duration::from_secs(1))
    }
    fn is_drained(&self) -> bool {
        self.note("is_drained");
        true
    }
}

/// Calls every function of [`Core`], like a driver that knows nothing else about the core.
fn call_all(core: &mut impl Core) {
    let now = Timestamp::ZERO;
    core.offer(now, Received::new(now, flow(), Pool::new().copy(b"x")));
    assert!(core.serve(now));
    core.handle_timeout(now);
    core.on_failed(now, Failure::new(flow(), Cause::Other, b"quote"));
    core.on_transmit(now, Transmit::new(flow(), Pool::new().copy(b"x")));
    core.on_connected(now, flow());
    core.on_closed(now, ConnectionId::FIRST_OPENED, CloseCause::Reset);
    core.on_writable(now, ConnectionId::FIRST_ACCEPTED);
    core.on_load(now, Load::default());
    core.on_command(now, b"faster");
    core.on_answer(now, QueryId(7), QueryAnswer::NotFound(None));
    core.on_drain(now);
    assert!(core.poll_transmit().is_some() && core.poll_handoff().is_some());
    assert!(core.poll_query().is_some() && core.poll_connect().is_some());
    assert!(core.poll_close().is_some());
    assert_eq!(core.poll_shedding(), &Shedding::default());
    assert_eq!(core.last_work().offered, Some(3));
    assert!(core.poll_timeout().is_some() && core.is_drained());
}

const ALL: [&str; 21] = [
    "offer",
    "serve",
    "handle_timeout",
    "on_failed",
    "on_transmit",
    "on_connected",
    "on_closed",
    "on_writable",
    "on_load",
    "on_command",
    "on_answer",
    "on_drain",
    "poll_transmit",
    "poll_handoff",
    "poll_query",
    "poll_connect",
    "poll_close",
    "poll_shedding",
    "last_work",
    "poll_timeout",
    "is_drained",
];

#[test]
fn every_call_reaches_a_core_behind_a_pointer() {
    let mut core = Noting::default();
    let mut lent: &mut dyn Core = &mut core;
    call_all(&mut lent);
    assert_eq!(core.called.take(), ALL);
    let mut boxed = Box::new(core);
    call_all(&mut boxed);
    assert_eq!(boxed.called.take(), ALL);
}

/// A core that delegates all but two functions.
struct Onlooker<C> {
    core: C,
    seen: Vec<&'static str>,
}

impl<C: Core> Core for Onlooker<C> {
    fn handle_timeout(&mut self, now: Timestamp) {
        self.seen.push("handle_timeout");
        self.core.handle_timeout(now);
    }

    fn offer(&mut self, now: Timestamp, received: Received) {
        self.seen.push("offer");
        self.core.offer(now, received);
    }

    delegate!(self.core, but handle_timeout, offer);
}

#[test]
fn a_cores_own_functions_replace_delegated_ones() {
    let mut onlooker = Onlooker { core: Noting::default(), seen: Vec::new() };
    call_all(&mut onlooker);
    assert_eq!(onlooker.core.called.take(), ALL);
    assert_eq!(onlooker.seen, ["offer", "handle_timeout"]);
}

/// A core of one of two kinds.
enum Either {
    Bare(Noting),
    Watched(Onlooker<Noting>, ()),
}

impl Core for Either {
    delegate!(match self {
        Self::Bare(core) => core,
        Self::Watched(core, _) => core,
    });
}

#[test]
fn every_call_reaches_a_core_of_either_kind() {
    let mut bare = Either::Bare(Noting::default());
    let onlooker = Onlooker { core: Noting::default(), seen: Vec::new() };
    let mut watched = Either::Watched(onlooker, ());
    for either in [&mut bare, &mut watched] {
        call_all(either);
        let core = match either {
            Either::Bare(core) => core,
            Either::Watched(onlooker, _) => &mut onlooker.core,
        };
        assert_eq!(core.called.take(), ALL);
    }
}
