//! Plays events on one machine in simulated time, and lists its effects with their times.

use std::fmt;
use std::time::Duration;

use tidegate_transaction::{
    Acknowledgement, Arrival, Client, Dispatch, Firing, InviteClient, InviteServer, OtherClient,
    OtherServer, Repetition, Server, Timing,
};
use tidegate_world::Timestamp;

/// An external event of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A response with this status reaches a client.
    Response(u16),
    /// The transaction user of a server sends a response with this status.
    Sending(u16),
    /// A retransmission of the request reaches a server.
    Request,
    /// An ACK reaches a server.
    Ack,
    /// A client's request cannot be sent.
    TransportError,
}

/// An effect of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The machine enters another state.
    Enters(State),
    /// A client retransmits its request.
    RequestSent,
    /// A client sends an ACK.
    AckSent,
    /// A client passes a response with this status to its user.
    ToUser(u16),
    /// A server sends a new response with this status.
    ResponseSent(u16),
    /// A server retransmits its last response.
    ResponseResent,
    /// A server passes an ACK to its user.
    AckToUser,
    /// The user learns of a timeout.
    TimedOut,
}

/// The states of all machines, with the names of the figures in RFC 3261 and RFC 6026.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Calling,
    Trying,
    Proceeding,
    Completed,
    Confirmed,
    Accepted,
    Terminated,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Any of the four machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    Client(Client),
    Server(Server),
}

pub const INVITE_CLIENT: fn(&Timing) -> Machine =
    |timing| Machine::Client(Client::invite(Timestamp::ZERO, timing));
pub const OTHER_CLIENT: fn(&Timing) -> Machine =
    |timing| Machine::Client(Client::other(Timestamp::ZERO, timing));
pub const INVITE_SERVER: fn(&Timing) -> Machine = |_| Machine::Server(Server::invite());
pub const OTHER_SERVER: fn(&Timing) -> Machine = |_| Machine::Server(Server::other());

/// The default timers, T1 500 ms, T2 4 s, T4 5 s, over an unreliable transport.
pub fn unreliable() -> Timing {
    Timing::default()
}

/// The default timers over a reliable transport.
pub fn reliable() -> Timing {
    Timing { reliable: true, ..Timing::default() }
}

pub fn ms(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

/// Returns the effects of a machine that starts at 0 ms and gets these events, each at its time in
/// ms. Expired timers fire before events at the same time, until no timer is left.
pub fn play(
    start: fn(&Timing) -> Machine,
    timing: &Timing,
    script: &[(u64, Event)],
) -> Vec<(u64, Effect)> {
    let mut machine = start(timing);
    let mut seen = vec![(0, Effect::Enters(machine.state()))];
    let pass = |machine: &mut Machine, until: Timestamp, seen: &mut Vec<(u64, Effect)>| {
        while let Some(at) = machine.deadline().filter(|&at| at <= until) {
            let effects = machine.on_timer(at, timing);
            seen.extend(effects.into_iter().map(|effect| (in_ms(at), effect)));
            assert!(seen.len() < 1_000, "it has an end");
        }
    };
    for &(at, event) in script {
        pass(&mut machine, ms(at), &mut seen);
        let effects = machine.on_event(ms(at), timing, event);
        seen.extend(effects.into_iter().map(|effect| (at, effect)));
    }
    pass(&mut machine, Timestamp::NEVER, &mut seen);
    seen
}

/// Returns the times of `effect`.
pub fn times(seen: &[(u64, Effect)], effect: Effect) -> Vec<u64> {
    seen.iter().filter(|(_, other)| *other == effect).map(|&(at, _)| at).collect()
}

fn in_ms(at: Timestamp) -> u64 {
    assert_eq!(at.as_nanos() % 1_000_000, 0, "timers fire on whole milliseconds");
    at.as_nanos() / 1_000_000
}

impl Machine {
    pub fn state(&self) -> State {
        match self {
            Self::Client(Client::Invite(client)) => match client {
                InviteClient::Calling { .. } => State::Calling,
                InviteClient::Proceeding => State::Proceeding,
                InviteClient::Completed { .. } => State::Completed,
                InviteClient::Accepted { .. } => State::Accepted,
                InviteClient::Terminated => State::Terminated,
            },
            Self::Client(Client::Other(client)) => match client {
                OtherClient::Trying { .. } => State::Trying,
                OtherClient::Proceeding { .. } => State::Proceeding,
                OtherClient::Completed { .. } => State::Completed,
                OtherClient::Terminated => State::Terminated,
            },
            Self::Server(Server::Invite(server)) => match server {
                InviteServer::Proceeding => State::Proceeding,
                InviteServer::Completed { .. } => State::Completed,
                InviteServer::Confirmed { .. } => State::Confirmed,
                InviteServer::Accepted { .. } => State::Accepted,
                InviteServer::Terminated => State::Terminated,
            },
            Self::Server(Server::Other(server)) => match server {
                OtherServer::Trying => State::Trying,
                OtherServer::Proceeding => State::Proceeding,
                OtherServer::Completed { .. } => State::Completed,
                OtherServer::Terminated => State::Terminated,
            },
        }
    }

    pub fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Client(client) => client.deadline(),
            Self::Server(server) => server.deadline(),
        }
    }

    pub fn is_terminated(&self) -> bool {
        match self {
            Self::Client(client) => client.is_terminated(),
            Self::Server(server) => server.is_terminated(),
        }
    }

    /// Delivers an event. An event for the other side has no effect.
    pub fn on_event(&mut self, now: Timestamp, timing: &Timing, event: Event) -> Vec<Effect> {
        let before = self.state();
        let mut effects = match (*self, event) {
            (Self::Client(client), Event::Response(status)) => {
                let (client, arrival) = client.on_response(now, timing, status);
                *self = Self::Client(client);
                match arrival {
                    Arrival::Deliver => vec![Effect::ToUser(status)],
                    Arrival::DeliverAndAcknowledge => vec![Effect::ToUser(status), Effect::AckSent],
                    Arrival::Acknowledge => vec![Effect::AckSent],
                    Arrival::Absorb => vec![],
                }
            }
            (Self::Client(client), Event::TransportError) => {
                *self = Self::Client(client.end());
                vec![]
            }
            (Self::Server(server), Event::Sending(status)) => {
                let (server, dispatch) = server.on_sending(now, timing, status);
                *self = Self::Server(server);
                match dispatch {
                    Dispatch::Send => vec![Effect::ResponseSent(status)],
                    Dispatch::Discard => vec![],
                }
            }
            (Self::Server(server), Event::Request) => match server.on_repeated() {
                Repetition::Resend => vec![Effect::ResponseResent],
                Repetition::Absorb => vec![],
            },
            (Self::Server(server), Event::Ack) => {
                let (server, acknowledgement) = server.on_ack(now, timing);
                *self = Self::Server(server);
                match acknowledgement {
                    Acknowledgement::Deliver => vec![Effect::AckToUser],
                    Acknowledgement::Absorb => vec![],
                }
            }
            _ => vec![],
        };
        self.record_state(before, &mut effects);
        effects
    }

    pub fn on_timer(&mut self, now: Timestamp, timing: &Timing) -> Vec<Effect> {
        let before = self.state();
        let (next, firing) = match *self {
            Self::Client(client) => {
                let (client, firing) = client.on_timer(now, timing);
                (Self::Client(client), firing)
            }
            Self::Server(server) => {
                let (server, firing) = server.on_timer(now, timing);
                (Self::Server(server), firing)
            }
        };
        *self = next;
        let mut effects = match (firing, self.is_client()) {
            (Firing::Silent, _) => vec![],
            (Firing::Resend, true) => vec![Effect::RequestSent],
            (Firing::Resend, false) => vec![Effect::ResponseResent],
            (Firing::TimedOut, _) => vec![Effect::TimedOut],
        };
        self.record_state(before, &mut effects);
        effects
    }

    pub fn is_client(&self) -> bool {
        matches!(self, Self::Client(_))
    }

    /// Adds the new state to the effects, and checks that the predicates agree with the state.
    fn record_state(&self, before: State, effects: &mut Vec<Effect>) {
        let state = self.state();
        assert_eq!(self.is_terminated(), state == State::Terminated);
        match self {
            Self::Client(client) => {
                let is_unanswered = matches!(state, State::Calling | State::Trying);
                assert_eq!(client.is_unanswered(), is_unanswered);
                assert_eq!(client.is_pending(), is_unanswered || state == State::Proceeding);
            }
            Self::Server(server) => {
                let is_pending = matches!(state, State::Trying | State::Proceeding);
                assert_eq!(server.is_pending(), is_pending);
                let is_invite = matches!(server, Server::Invite(_));
                assert_eq!(server.awaits_ack(), is_invite && state == State::Completed);
            }
        }
        if state != before {
            effects.push(Effect::Enters(state));
        }
    }
}
