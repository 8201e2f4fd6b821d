//! The measured server: the state of its overload control, and how it is kept there.
//!
//! The law does not see how busy the server is, but a signal that makes it admit all or nothing.
//! The law itself, and its cost, are real.

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use tidegate_proxy::{Disposal, Mode, Secret};
use tidegate_server::assembly::{Assembly, Server};
use tidegate_server::config::Config;
use tidegate_world::{
    CloseCause, ConnectionId, Core, Failure, Flow as Way, Load, Pool, QueryAnswer, QueryId,
    Received, Seed, Timestamp, Transmit, Work, delegate,
};

use super::messages::Parties;
use crate::thread_clock::thread_ns;

/// Time after which a server has forgotten finished calls, and ended its retransmissions: 64·T1 and
/// more.
const REST: Duration = Duration::from_secs(64);

/// Sockets of a shard: one for INVITEs, one for all else.
const SOCKETS: usize = 2;

/// A law that counts measurements in messages, as `[overload]` has it.
#[derive(Clone, Debug)]
pub(crate) struct Law {
    /// `law = …`, and its parameters other than those here.
    pub name: &'static str,
    /// Messages between measurements.
    pub measure: u32,
    /// Its parameters, `name = value`, each after a comma.
    pub params: &'static str,
}

impl Law {
    /// Parameters that admit nothing once the processor is busy, except one in ten thousand.
    pub const REFUSES: &'static str = ", k = 2, w = 1, rho_targ = 0.01, f_min = 0.0001";
}

/// The state of a server.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Mode.
    pub mode: Mode,
    /// Law; `None` for a server without control.
    pub law: Option<Law>,
    /// Messages between readings of the processor and the sockets; 0: never.
    pub reads_every: u32,
    /// Treatment of rejected messages, if everything is rejected.
    pub refuses: Option<Disposal>,
}

impl State {
    fn configuration(&self, server: &Parties) -> String {
        let Parties { server, backend, .. } = server;
        let mode = self.mode.name();
        let overload = self.law.as_ref().map_or_else(String::new, |law| {
            let Law { name, measure, params } = law;
            let disposal = match self.refuses {
                Some(Disposal::Drop) => "drop",
                _ => "reject",
            };
            format!(
                "[overload]\nlaw = \"{name}\"\nclasses = \"single\"\ndisposal = \"{disposal}\"\n\
                 params = {{ measure = {measure}{params} }}\n"
            )
        });
        format!(
            "[[listen]]\ntransport = \"udp\"\naddress = \"{server}\"\n\
             [[pool]]\nname = \"app\"\nmode = \"{mode}\"\n\
             [[pool.backend]]\nuri = \"sip:{backend}\"\n{overload}"
        )
    }
}

/// A server in a state.
pub(crate) struct Subject {
    core: Server,
    /// Time added to the driver's.
    ahead: Duration,
    last: Timestamp,
    /// Whether the law sees a busy processor.
    busy: bool,
    reads_every: u32,
    unread: u32,
    refused: u64,
    /// Sockets read at a reading, as many as the driver's.
    sockets: Vec<UdpSocket>,
}

impl Subject {
    /// Creates a server between `parties`, on the thread that drives it.
    ///
    /// # Errors
    /// When there is no socket.
    pub fn new(state: &State, parties: &Parties, pool: &Pool) -> std::io::Result<Self> {
        let text = state.configuration(parties);
        let config = Config::parse(Path::new("costs"), text.as_bytes());
        let config = config.unwrap_or_else(|wrong| panic!("it is written here: {wrong}"));
        let keys = Secret::of([0; 32]);
        let locals = vec![parties.server];
        let core = Assembly::new(&config, &keys, locals, Seed(1)).part(0).core(pool.clone());
        let sockets: std::io::Result<_> =
            (0..SOCKETS).map(|_| UdpSocket::bind(("127.0.0.1", 0))).collect();
        let mut subject = Self {
            core,
            ahead: Duration::ZERO,
            last: Timestamp::ZERO,
            busy: state.refuses.is_some(),
            reads_every: state.reads_every,
            unread: 0,
            refused: 0,
            sockets: sockets?,
        };
        subject.settle(parties, pool);
        Ok(subject)
    }

    /// Returns the messages that were not admitted since the last call.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Passes a minute.
    pub fn rest(&mut self) {
        self.ahead += REST;
        let now = self.last + REST;
        self.tell(now);
        self.handle_timeout(now - self.ahead);
        // The core tells when to call next; until then nothing is due.
        while self.poll_transmit().is_some() {}
    }

    /// Shows the law a processor until it behaves as intended. It measures each second with any
    /// number of messages: those here are keep-alives, which no server answers.
    fn settle(&mut self, parties: &Parties, pool: &Pool) {
        for _ in 0..8 {
            let now = self.last + Duration::from_secs(2);
            self.ahead += Duration::from_secs(2);
            self.tell(now);
            let path = Way::udp(parties.server, parties.caller);
            self.core.offer(now, Received::new(now, path, pool.copy(b"\r\n\r\n")));
            self.core.handle_timeout(now);
        }
        self.refused = 0;
    }

    fn tell(&mut self, now: Timestamp) {
        self.last = now;
        let busy = if self.busy { now.since(Timestamp::ZERO) } else { Duration::ZERO };
        self.core.on_load(now, Load { busy, cpu: busy, ..Load::default() });
    }

    /// Reads the processor and the sockets as a driver does, and reports to the core; the values
    /// read are discarded.
    fn read(&mut self) {
        std::hint::black_box(thread_ns());
        for socket in &self.sockets {
            let _ = std::hint::black_box(socket.take_error());
        }
        // Several messages may come at one time, and a law wants news.
        self.tell(self.last + Duration::from_nanos(1));
    }

    /// Returns the core's time.
    fn at(&mut self, now: Timestamp) -> Timestamp {
        self.last = self.last.max(now + self.ahead);
        self.last
    }
}

// An input that is not moved in time would go back in it.
#[deny(clippy::missing_trait_methods)]
impl Core for Subject {
    fn offer(&mut self, now: Timestamp, received: Received) {
        self.at(now);
        if self.reads_every > 0 {
            self.unread += 1;
            if self.unread >= self.reads_every {
                self.unread = 0;
                self.read();
            }
        }
        let arrived = received.arrived + self.ahead;
        self.core.offer(self.last, Received { arrived, ..received });
        self.refused += u64::from(self.core.last_work().refused.is_some());
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        let now = self.at(now);
        let served = self.core.serve(now);
        self.refused += u64::from(served && self.core.last_work().refused.is_some());
        served
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        let now = self.at(now);
        self.core.handle_timeout(now);
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        let now = self.at(now);
        self.core.on_failed(now, failure);
    }

    fn on_connected(&mut self, now: Timestamp, flow: Way) {
        let now = self.at(now);
        self.core.on_connected(now, flow);
    }

    fn on_closed(&mut self, now: Timestamp, id: ConnectionId, cause: CloseCause) {
        let now = self.at(now);
        self.core.on_closed(now, id, cause);
    }

    fn on_writable(&mut self, now: Timestamp, id: ConnectionId) {
        let now = self.at(now);
        self.core.on_writable(now, id);
    }

    fn on_load(&mut self, now: Timestamp, _load: Load) {
        let now = self.at(now);
        self.tell(now);
    }

    fn on_command(&mut self, now: Timestamp, command: &[u8]) {
        let now = self.at(now);
        self.core.on_command(now, command);
    }

    fn on_answer(&mut self, now: Timestamp, id: QueryId, answer: QueryAnswer) {
        let now = self.at(now);
        self.core.on_answer(now, id, answer);
    }

    fn on_drain(&mut self, now: Timestamp) {
        let now = self.at(now);
        self.core.on_drain(now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.core.poll_transmit()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.core.poll_timeout().map(|due| due - self.ahead)
    }

    fn last_work(&self) -> Work {
        self.core.last_work()
    }

    delegate!(self.core, only poll_handoff, poll_query, poll_connect, poll_close, poll_shedding,
        is_drained);
}
