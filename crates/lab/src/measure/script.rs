//! Passes messages to a server in batches of one kind of message, so that the CPU time of each kind
//! can be measured.

use tidegate_world::unit_enum;

use super::messages::Parties;

unit_enum! {
    /// A kind of message. Tables use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Kind {
        /// An INVITE that starts a call.
        Invite = "INVITE",
        /// The 180 (Ringing) to an INVITE.
        Ringing = "180",
        /// The 200 to an INVITE.
        Answer = "200",
        /// The ACK of the 200 to an INVITE.
        Ack = "ACK",
        /// The BYE of a call.
        Bye = "BYE",
        /// The 200 to a BYE.
        ByeAnswer = "200 (BYE)",
        /// The CANCEL of a ringing call.
        Cancel = "CANCEL",
        /// A REGISTER.
        Register = "REGISTER",
        /// An OPTIONS, as an example of a request outside calls.
        Options = "OPTIONS",
        /// The ACK of the 503 to an INVITE.
        AckOfRejection = "ACK (503)",
    }
}

impl Kind {
    /// The kinds of messages of a call, in their order.
    pub const CALL: [Self; 6] =
        [Self::Invite, Self::Ringing, Self::Answer, Self::Ack, Self::Bye, Self::ByeAnswer];
}

/// A peer of the server: callers are on one side, back ends on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Caller,
    Backend,
}

/// The result of passing a batch of messages to the server.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// CPU time of the server, in ns.
    pub ns: f64,
    /// Number of messages that the server did not admit.
    pub rejected: u64,
    /// The packets that the server sent, each with its destination, in no particular order. Each
    /// packet occurs once.
    pub sent: Vec<(Side, Vec<u8>)>,
}

impl Passed {
    /// Returns the packets to `side` that begin with `beginning`.
    fn to(&self, side: Side, beginning: &str) -> impl Iterator<Item = &[u8]> {
        let begins = move |(to, bytes): &&(Side, Vec<u8>)| {
            *to == side && bytes.starts_with(beginning.as_bytes())
        };
        self.sent.iter().filter(begins).map(|(_, bytes)| bytes.as_slice())
    }
}

/// A way to pass messages to and from a server.
pub(crate) trait Way {
    /// Passes a batch of messages from one side to the server. Returns the CPU time of the server,
    /// and the packets that the server sends because of the batch.
    fn pass(&mut self, from: Side, batch: &[Vec<u8>]) -> Result<Passed, String>;

    /// Lets about a minute pass in the server's time, so that no state of finished calls is left.
    fn rest(&mut self) -> Result<(), String>;
}

/// A measurement of one batch of messages that was passed to a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub kind: Kind,
    /// True if the messages go to a destination that the server's rules select, or belong to a
    /// known call.
    pub good: bool,
    pub messages: usize,
    pub rejected: u64,
    /// CPU time of the server for the whole batch, in ns.
    pub ns: f64,
}

/// A generator of batches of every kind of message.
pub(crate) struct Script {
    parties: Parties,
    /// Number of messages in a batch.
    batch: usize,
    calls: u64,
    timed: Vec<Timed>,
}

impl Script {
    pub fn new(parties: Parties, batch: usize) -> Self {
        Self { parties, batch, calls: 0, timed: Vec::new() }
    }

    /// Passes three sorts of messages to the server: one batch of each kind of message, batches of
    /// messages that the server cannot forward, and the ACKs of the calls that it rejected with
    /// 503.
    pub fn play(&mut self, way: &mut impl Way) -> Result<Vec<Timed>, String> {
        self.calls(way)?;
        self.cancelled(way)?;
        self.alone(way)?;
        self.astray(way)?;
        Ok(std::mem::take(&mut self.timed))
    }

    /// Passes the messages of whole calls to the server, in one batch for each kind of message.
    /// Also passes the ACKs of the calls that the server rejected with 503.
    pub fn calls(&mut self, way: &mut impl Way) -> Result<(), String> {
        let invites = self.numbered(|parties, call| parties.initial("INVITE", call, true));
        let passed = self.pass(way, Side::Caller, Kind::Invite, true, &invites)?;
        let forwarded = self.all(passed.to(Side::Backend, "INVITE "), "INVITEs forwarded")?;
        let rejections = passed.to(Side::Caller, "SIP/2.0 503");
        let acks: Vec<_> = rejections.map(|it| self.parties.ack_of_rejection(it, true)).collect();
        if !acks.is_empty() {
            self.pass(way, Side::Caller, Kind::AckOfRejection, true, &acks)?;
        }

        let ringing = self.responses(&forwarded, "180 Ringing");
        self.pass(way, Side::Backend, Kind::Ringing, true, &ringing)?;
        let answers = self.responses(&forwarded, "200 OK");
        let passed = self.pass(way, Side::Backend, Kind::Answer, true, &answers)?;
        let answers = self.all(passed.to(Side::Caller, "SIP/2.0 200"), "200s forwarded")?;

        let acks = self.within("ACK", &answers);
        self.pass(way, Side::Caller, Kind::Ack, true, &acks)?;
        let byes = self.within("BYE", &answers);
        let passed = self.pass(way, Side::Caller, Kind::Bye, true, &byes)?;
        let forwarded = self.all(passed.to(Side::Backend, "BYE "), "BYEs forwarded")?;
        let ended = self.responses(&forwarded, "200 OK");
        self.pass(way, Side::Backend, Kind::ByeAnswer, true, &ended)?;
        way.rest()
    }

    /// Returns the measurements of the batches that were passed since this function last ran.
    pub(crate) fn take_timed(&mut self) -> Vec<Timed> {
        std::mem::take(&mut self.timed)
    }

    /// Passes the messages of calls that are cancelled while they ring.
    fn cancelled(&mut self, way: &mut impl Way) -> Result<(), String> {
        let first = self.calls;
        let invites = self.numbered(|parties, call| parties.initial("INVITE", call, true));
        let passed = way.pass(Side::Caller, &invites)?;
        let forwarded = self.all(passed.to(Side::Backend, "INVITE "), "INVITEs forwarded")?;
        way.pass(Side::Backend, &self.responses(&forwarded, "180 Ringing"))?;
        let calls = first..self.calls;
        let cancels: Vec<_> = calls.map(|call| self.parties.cancel(call)).collect();
        let passed = self.pass(way, Side::Caller, Kind::Cancel, true, &cancels)?;
        let arrived: Vec<_> = passed.to(Side::Backend, "CANCEL ").map(<[u8]>::to_vec).collect();
        way.pass(Side::Backend, &self.responses(&arrived, "200 OK"))?;
        let ended = self.responses(&forwarded, "487 Request Terminated");
        let passed = way.pass(Side::Backend, &ended)?;
        let told = passed.to(Side::Caller, "SIP/2.0 487");
        let acks: Vec<_> = told.map(|it| self.parties.ack_of_rejection(it, true)).collect();
        way.pass(Side::Caller, &acks)?;
        way.rest()
    }

    /// Passes REGISTERs and OPTIONS, which are outside any call.
    fn alone(&mut self, way: &mut impl Way) -> Result<(), String> {
        for (kind, method) in [(Kind::Register, "REGISTER"), (Kind::Options, "OPTIONS")] {
            let requests = self.numbered(|parties, call| parties.initial(method, call, true));
            let passed = self.pass(way, Side::Caller, kind, true, &requests)?;
            let to_backend = passed.to(Side::Backend, method);
            let forwarded = self.all(to_backend, "requests forwarded")?;
            way.pass(Side::Backend, &self.responses(&forwarded, "200 OK"))?;
        }
        way.rest()
    }

    /// Passes messages that belong to no known call, or go to a destination that the server's rules
    /// do not select.
    fn astray(&mut self, way: &mut impl Way) -> Result<(), String> {
        let initial =
            [(Kind::Invite, "INVITE"), (Kind::Register, "REGISTER"), (Kind::Options, "OPTIONS")];
        for (kind, method) in initial {
            let requests = self.numbered(|parties, call| parties.initial(method, call, false));
            let passed = self.pass(way, Side::Caller, kind, false, &requests)?;
            if kind == Kind::Invite {
                let rejections = passed.to(Side::Caller, "SIP/2.0 403");
                let acks: Vec<_> =
                    rejections.map(|it| self.parties.ack_of_rejection(it, false)).collect();
                way.pass(Side::Caller, &acks)?;
            }
        }
        for (kind, status) in [(Kind::Ringing, "180 Ringing"), (Kind::Answer, "200 OK")] {
            let responses = self.numbered(|parties, call| parties.response_astray(call, status));
            self.pass(way, Side::Backend, kind, false, &responses)?;
        }
        for (kind, method) in [(Kind::Ack, "ACK"), (Kind::Bye, "BYE"), (Kind::Cancel, "CANCEL")] {
            let requests = self.numbered(|parties, call| parties.astray(method, call));
            self.pass(way, Side::Caller, kind, false, &requests)?;
        }
        way.rest()
    }

    fn pass(
        &mut self,
        way: &mut impl Way,
        from: Side,
        kind: Kind,
        good: bool,
        batch: &[Vec<u8>],
    ) -> Result<Passed, String> {
        let passed = way.pass(from, batch)?;
        let (messages, rejected, ns) = (batch.len(), passed.rejected, passed.ns);
        self.timed.push(Timed { kind, good, messages, rejected, ns });
        Ok(passed)
    }

    /// Returns a batch with one message for each of the next call numbers.
    fn numbered(&mut self, message: impl Fn(&Parties, u64) -> Vec<u8>) -> Vec<Vec<u8>> {
        let first = self.calls;
        self.calls += self.batch as u64;
        (first..self.calls).map(|call| message(&self.parties, call)).collect()
    }

    fn responses(&self, requests: &[Vec<u8>], status: &str) -> Vec<Vec<u8>> {
        requests.iter().map(|request| self.parties.response(request, status)).collect()
    }

    fn within(&self, method: &str, answers: &[Vec<u8>]) -> Vec<Vec<u8>> {
        answers.iter().map(|answer| self.parties.within(method, answer)).collect()
    }

    /// Collects `packets`. Returns an error if their number is not the number of messages in a
    /// batch, because the cost of fewer messages would be wrong. `what` names the packets in the
    /// error.
    fn all<'a>(
        &self,
        packets: impl Iterator<Item = &'a [u8]>,
        what: &str,
    ) -> Result<Vec<Vec<u8>>, String> {
        let packets: Vec<Vec<u8>> = packets.map(<[u8]>::to_vec).collect();
        match packets.len() == self.batch {
            true => Ok(packets),
            false => {
                Err(format!("{} {what}, but the batch has {} messages", packets.len(), self.batch))
            }
        }
    }
}
