//! The measured server, whose overload control is kept in one state.
//!
//! The overload-control law does not see the real load of the server. It gets a load that makes it
//! admit all messages or none. The law itself and its CPU time are real.

use std::net::UdpSocket;
use std::time::Duration;

use tidegate_proxy::{Disposal, Mode};
use tidegate_server::assembly::Server;
use tidegate_world::{Core, Flow, Load, Pool, Received, Seed, Timestamp, Transmit, Work, delegate};

use super::messages::Parties;
use super::{pass_inputs, server, thread_ns};

/// Time after which a server has forgotten finished calls and ended its retransmissions. It is at
/// least 64·T1.
const REST: Duration = Duration::from_secs(64);

/// Number of sockets in [`Subject::sockets`]: as many as one UDP listener of a shard has.
const SOCKETS: usize = 4;

/// An overload-control law with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Law {
    /// The name of the law, as in `law = …`.
    pub name: &'static str,
    /// Number of messages between two measurements of the law.
    pub measure: u32,
    /// The parameters of the law other than `measure`, as `name = value`, separated by commas.
    pub params: &'static str,
}

/// The configuration of a measured server, which determines the state of its overload control.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Mode of the server: with transactions, without, or adaptive.
    pub mode: Mode,
    /// The overload-control law, or `None` for a server without overload control.
    pub law: Option<Law>,
    /// Number of messages between two readings of the load of the processor and the sockets, or 0
    /// for no readings.
    pub reads_every: u32,
    /// The disposal of messages if the law rejects all of them, or `None` if the law admits all of
    /// them.
    pub rejects: Option<Disposal>,
}

impl State {
    /// Returns the configuration table `[overload]`.
    fn overload(&self) -> String {
        let Some(Law { name, measure, params }) = &self.law else {
            return "law = \"none\"\n".to_owned();
        };
        let params = if params.is_empty() { String::new() } else { format!(", {params}") };
        let disposal = match self.rejects {
            Some(Disposal::Drop) => "drop",
            _ => "reject",
        };
        format!(
            "law = \"{name}\"\nclasses = \"single\"\ndisposal = \"{disposal}\"\n\
             params = {{ measure = {measure}{params} }}\n"
        )
    }
}

/// A server whose overload control is kept in one state.
pub(crate) struct Subject {
    core: Server,
    /// The time by which the core's clock is ahead of the driver's clock.
    ahead: Duration,
    last: Timestamp,
    /// True if a busy processor is reported to the core, so that the law rejects messages.
    busy: bool,
    reads_every: u32,
    unread: u32,
    rejected: u64,
    /// Sockets without traffic. Their state is read whenever the load is read, as in a real shard.
    sockets: Vec<UdpSocket>,
}

impl Subject {
    /// Creates a server with the addresses in `parties`. The thread that will drive the server must
    /// call this function.
    ///
    /// # Errors
    /// Returns an error when a socket cannot be created.
    pub fn new(state: &State, parties: &Parties, pool: &Pool) -> std::io::Result<Self> {
        let ends = [parties.server, parties.backend];
        let core = server(ends, state.mode, &state.overload(), Seed(1), pool.clone());
        let sockets: std::io::Result<_> =
            (0..SOCKETS).map(|_| UdpSocket::bind(("127.0.0.1", 0))).collect();
        let mut subject = Self {
            core,
            ahead: Duration::ZERO,
            last: Timestamp::ZERO,
            busy: state.rejects.is_some(),
            reads_every: state.reads_every,
            unread: 0,
            rejected: 0,
            sockets: sockets?,
        };
        subject.settle(parties, pool);
        Ok(subject)
    }

    /// Returns the number of messages that the server did not admit since this function last ran.
    pub(crate) fn take_rejected(&mut self) -> u64 {
        std::mem::take(&mut self.rejected)
    }

    /// Lets [`REST`] pass in the core's time.
    pub fn rest(&mut self) {
        self.ahead += REST;
        let now = self.last + REST;
        self.tell(now);
        self.handle_timeout(now - self.ahead);
        // Discards the packets that the server has sent because timers expired.
        while self.poll_transmit().is_some() {}
    }

    /// Brings the law into the intended state. Repeats three steps eight times: lets 2 s of the
    /// core's time pass, reports a processor load to the core, and gives the core a keep-alive, to
    /// which it sends no response. In each repetition the law measures the load, because it measures
    /// at least once a second.
    fn settle(&mut self, parties: &Parties, pool: &Pool) {
        for _ in 0..8 {
            let now = self.last + Duration::from_secs(2);
            self.ahead += Duration::from_secs(2);
            self.tell(now);
            let path = Flow::udp(parties.server, parties.caller);
            self.core.offer(now, Received::new(now, path, pool.copy(b"\r\n\r\n")));
            self.core.handle_timeout(now);
        }
        self.rejected = 0;
    }

    fn tell(&mut self, now: Timestamp) {
        self.last = now;
        let busy = if self.busy { now.since(Timestamp::ZERO) } else { Duration::ZERO };
        self.core.on_load(now, Load { busy, cpu: busy, ..Load::default() });
    }

    /// Reads the load of the processor and the sockets as a driver does, discards the values, and
    /// reports chosen values to the core.
    fn read(&mut self) {
        std::hint::black_box(thread_ns());
        for socket in &self.sockets {
            let _ = std::hint::black_box(socket.take_error());
        }
        // Several messages may come at the same time, but a law can compute an occupancy only if
        // time has passed.
        self.tell(self.last + Duration::from_nanos(1));
    }

    /// Passes an input to the core at the core's time that corresponds to `now`, a time of the
    /// driver.
    fn pass(&mut self, now: Timestamp, input: impl FnOnce(&mut Server, Timestamp)) {
        let now = self.at(now);
        input(&mut self.core, now);
    }

    /// Returns the core's time that corresponds to `now`, a time of the driver.
    fn at(&mut self, now: Timestamp) -> Timestamp {
        self.last = self.last.max(now + self.ahead);
        self.last
    }
}

// Each input gets the core's own time, which never goes back.
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
        self.rejected += u64::from(self.core.last_work().rejected.is_some());
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        let now = self.at(now);
        let served = self.core.serve(now);
        self.rejected += u64::from(served && self.core.last_work().rejected.is_some());
        served
    }

    fn on_load(&mut self, now: Timestamp, _load: Load) {
        let now = self.at(now);
        self.tell(now);
    }

    pass_inputs!(self.pass);

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
