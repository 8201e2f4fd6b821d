//! RFC 3261 §17, figures 5 to 8, with figures 5 and 7 as RFC 6026 §8 replaces them: the machines
//! have exactly the edges of the figures.
//!
//! Each machine is explored from its start with all sequences of a few events, and the observed
//! edges are compared with the figure. An event without an edge must change nothing. A server has
//! no edge for a transport error: it keeps its state (RFC 6026 §8.8), so the error is not passed to
//! it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::script::Effect::{
    AckSent, AckToUser, Enters, RequestSent, ResponseResent, ResponseSent, TimedOut, ToUser,
};
use crate::script::Event::{Ack, Request, Response, Sending, TransportError};
use crate::script::{
    Effect, Event, INVITE_CLIENT, INVITE_SERVER, Machine, OTHER_CLIENT, OTHER_SERVER, State,
    reliable, unreliable,
};
use tidegate_transaction::{Client, InviteClient, InviteServer, OtherClient, Server, Timing};
use tidegate_world::Timestamp;

/// Figure 5 of RFC 6026, over an unreliable transport.
const FIGURE_5: &str = "
    Calling    | Timer A       | INVITE sent        | Calling
    Calling    | Timer B       | inform TU          | Terminated
    Calling    | Transport Err | -                  | Terminated
    Calling    | 1xx           | to TU              | Proceeding
    Calling    | 2xx           | to TU              | Accepted
    Calling    | 300-699       | to TU, ACK sent    | Completed
    Proceeding | 1xx           | to TU              | Proceeding
    Proceeding | 2xx           | to TU              | Accepted
    Proceeding | 300-699       | to TU, ACK sent    | Completed
    Completed  | 300-699       | ACK sent           | Completed
    Completed  | Transport Err | -                  | Terminated
    Completed  | Timer D       | -                  | Terminated
    Accepted   | 2xx           | to TU              | Accepted
    Accepted   | Timer M       | -                  | Terminated";

/// Figure 5 over a reliable transport: no Timer A, and Timer D of zero seconds.
const FIGURE_5_RELIABLE: &str = "
    Calling    | Timer B       | inform TU          | Terminated
    Calling    | Transport Err | -                  | Terminated
    Calling    | 1xx           | to TU              | Proceeding
    Calling    | 2xx           | to TU              | Accepted
    Calling    | 300-699       | to TU, ACK sent    | Terminated
    Proceeding | 1xx           | to TU              | Proceeding
    Proceeding | 2xx           | to TU              | Accepted
    Proceeding | 300-699       | to TU, ACK sent    | Terminated
    Accepted   | 2xx           | to TU              | Accepted
    Accepted   | Timer M       | -                  | Terminated";

/// Figure 6, over an unreliable transport.
const FIGURE_6: &str = "
    Trying     | Timer E       | request sent       | Trying
    Trying     | Timer F       | inform TU          | Terminated
    Trying     | Transport Err | -                  | Terminated
    Trying     | 1xx           | to TU              | Proceeding
    Trying     | 200-699       | to TU              | Completed
    Proceeding | Timer E       | request sent       | Proceeding
    Proceeding | Timer F       | inform TU          | Terminated
    Proceeding | Transport Err | -                  | Terminated
    Proceeding | 1xx           | to TU              | Proceeding
    Proceeding | 200-699       | to TU              | Completed
    Completed  | Timer K       | -                  | Terminated";

/// Figure 6 over a reliable transport: no Timer E, and Timer K of zero seconds.
const FIGURE_6_RELIABLE: &str = "
    Trying     | Timer F       | inform TU          | Terminated
    Trying     | Transport Err | -                  | Terminated
    Trying     | 1xx           | to TU              | Proceeding
    Trying     | 200-699       | to TU              | Terminated
    Proceeding | Timer F       | inform TU          | Terminated
    Proceeding | Transport Err | -                  | Terminated
    Proceeding | 1xx           | to TU              | Proceeding
    Proceeding | 200-699       | to TU              | Terminated";

/// Figure 7 of RFC 6026, over an unreliable transport. It shows Timer H without an action. By the
/// text of RFC 3261 §17.2.1, which still applies, the TU is informed.
const FIGURE_7: &str = "
    Proceeding | INVITE        | response sent      | Proceeding
    Proceeding | 1xx from TU   | response sent      | Proceeding
    Proceeding | 2xx from TU   | response sent      | Accepted
    Proceeding | 300-699 from TU | response sent    | Completed
    Completed  | INVITE        | response sent      | Completed
    Completed  | Timer G       | response sent      | Completed
    Completed  | Timer H       | inform TU          | Terminated
    Completed  | ACK           | -                  | Confirmed
    Confirmed  | Timer I       | -                  | Terminated
    Accepted   | INVITE        | -                  | Accepted
    Accepted   | ACK           | ACK to TU          | Accepted
    Accepted   | 2xx from TU   | response sent      | Accepted
    Accepted   | Timer L       | -                  | Terminated";

/// Figure 7 over a reliable transport: no Timer G, and Timer I of zero seconds.
const FIGURE_7_RELIABLE: &str = "
    Proceeding | INVITE        | response sent      | Proceeding
    Proceeding | 1xx from TU   | response sent      | Proceeding
    Proceeding | 2xx from TU   | response sent      | Accepted
    Proceeding | 300-699 from TU | response sent    | Completed
    Completed  | INVITE        | response sent      | Completed
    Completed  | Timer H       | inform TU          | Terminated
    Completed  | ACK           | -                  | Terminated
    Accepted   | INVITE        | -                  | Accepted
    Accepted   | ACK           | ACK to TU          | Accepted
    Accepted   | 2xx from TU   | response sent      | Accepted
    Accepted   | Timer L       | -                  | Terminated";

/// Figure 8, over an unreliable transport, with 100 as the only 1xx and without a 408 on the
/// wire: RFC 4320 §4.
const FIGURE_8: &str = "
    Trying     | 100 from TU   | response sent      | Proceeding
    Trying     | 200-699 from TU | response sent    | Completed
    Trying     | 408 from TU   | -                  | Completed
    Proceeding | Request       | response sent      | Proceeding
    Proceeding | 100 from TU   | response sent      | Proceeding
    Proceeding | 200-699 from TU | response sent    | Completed
    Proceeding | 408 from TU   | -                  | Completed
    Completed  | Request       | response sent      | Completed
    Completed  | Timer J       | -                  | Terminated";

/// Figure 8 over a reliable transport: Timer J of zero seconds.
const FIGURE_8_RELIABLE: &str = "
    Trying     | 100 from TU   | response sent      | Proceeding
    Trying     | 200-699 from TU | response sent    | Terminated
    Trying     | 408 from TU   | -                  | Terminated
    Proceeding | Request       | response sent      | Proceeding
    Proceeding | 100 from TU   | response sent      | Proceeding
    Proceeding | 200-699 from TU | response sent    | Terminated
    Proceeding | 408 from TU   | -                  | Terminated";

/// RFC 6026 §8.4: "the client transaction MUST generate an ACK request, even if the transport is
/// reliable", with Timer D of "a value of zero seconds for reliable transports".
///
/// RFC 3261 §17.1.4: "The client transaction SHOULD inform the TU that a transport failure has
/// occurred, and the client transaction SHOULD transition directly to the "Terminated" state." The
/// machine itself reports nothing, because its owner already knows of the failure.
#[test]
fn figure_5_the_client_of_an_invite() {
    compare(FIGURE_5, INVITE_CLIENT, &unreliable());
    compare(FIGURE_5_RELIABLE, INVITE_CLIENT, &reliable());
}

/// RFC 3261 §17.1.2.2: "Once the client transaction enters the "Completed" state, it MUST set Timer
/// K to fire in T4 seconds for unreliable transports, and zero seconds for reliable transports."
///
/// RFC 3261 §17.1.4: "The client transaction SHOULD inform the TU that a transport failure has
/// occurred, and the client transaction SHOULD transition directly to the "Terminated" state."
#[test]
fn figure_6_the_client_of_another_request() {
    compare(FIGURE_6, OTHER_CLIENT, &unreliable());
    compare(FIGURE_6_RELIABLE, OTHER_CLIENT, &reliable());
}

/// RFC 3261 §17.2.1: Timer I is set to "zero seconds for reliable transports".
#[test]
fn figure_7_the_server_of_an_invite() {
    compare(FIGURE_7, INVITE_SERVER, &unreliable());
    compare(FIGURE_7_RELIABLE, INVITE_SERVER, &reliable());
}

/// RFC 3261 §17.2.2: "Once in the "Trying" state, any further request retransmissions are
/// discarded." Timer J fires in "zero seconds for reliable transports".
///
/// RFC 4320 §4.1: "An SIP element MUST NOT send any provisional response with a Status-Code other
/// than 100 to a non-INVITE request."
#[test]
fn figure_8_the_server_of_another_request() {
    compare(FIGURE_8, OTHER_SERVER, &unreliable());
    compare(FIGURE_8_RELIABLE, OTHER_SERVER, &reliable());
}

/// Checks that the edges of a figure are those that were observed, and that all other events
/// changed nothing.
fn compare(figure: &str, start: fn(&Timing) -> Machine, timing: &Timing) {
    let row = |line: &str| line.split('|').map(str::trim).collect::<Vec<_>>().join(" | ");
    let drawn: BTreeSet<String> = figure.lines().map(row).filter(|line| !line.is_empty()).collect();
    let mut crossed = BTreeSet::new();
    explore(start(timing), Timestamp::ZERO, timing, 5, &mut crossed);
    let uncrossed: Vec<_> = drawn.difference(&crossed).collect();
    assert!(uncrossed.is_empty(), "edges of the figure that no event took: {uncrossed:#?}");
    let undrawn: Vec<_> =
        crossed.difference(&drawn).filter(|edge| !changes_nothing(edge)).collect();
    assert!(undrawn.is_empty(), "edges that are not in the figure: {undrawn:#?}");
}

fn changes_nothing(edge: &str) -> bool {
    let [from, _, action, to] = edge.split(" | ").collect::<Vec<_>>()[..] else {
        panic!("an edge has four parts: {edge}")
    };
    action == "-" && from == to
}

/// The statuses at the limits of each class, and the statuses with rules of their own.
const STATUSES: [u16; 9] = [100, 101, 199, 200, 299, 300, 408, 503, 699];

/// Records the edges of all sequences of `depth` events from the state of `machine`.
fn explore(
    machine: Machine,
    now: Timestamp,
    timing: &Timing,
    depth: usize,
    edges: &mut BTreeSet<String>,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let soon = now + Duration::from_millis(1);
    let mut events: Vec<Event> = match machine {
        Machine::Client(_) => STATUSES.map(Response).to_vec(),
        Machine::Server(_) => STATUSES.map(Sending).into_iter().chain([Request, Ack]).collect(),
    };
    if sends(&machine) {
        events.push(TransportError);
    }
    for event in events {
        let mut next = machine;
        let effects = next.on_event(soon, timing, event);
        edges.insert(edge(machine.state(), &cause(&machine, event), &effects));
        explore(next, soon, timing, depth, edges);
    }
    let Some(due) = machine.deadline() else { return };
    // Call `on_timer` when the first timer is due, and again so late that all timers are due.
    for at in [due, now + timing.patience()] {
        let mut next = machine;
        let effects = next.on_timer(at, timing);
        edges.insert(edge(machine.state(), timer(&machine, at), &effects));
        explore(next, at, timing, depth, edges);
    }
}

/// Returns whether the machine can get a transport error in this state. Only a client that sends
/// its request or an ACK can.
fn sends(machine: &Machine) -> bool {
    match machine {
        Machine::Client(Client::Invite(_)) => {
            matches!(machine.state(), State::Calling | State::Completed)
        }
        Machine::Client(Client::Other(_)) => {
            matches!(machine.state(), State::Trying | State::Proceeding)
        }
        Machine::Server(_) => false,
    }
}

/// Returns the name of the timer that fires at `at`.
fn timer(machine: &Machine, at: Timestamp) -> &'static str {
    match *machine {
        Machine::Client(Client::Invite(client)) => match client {
            InviteClient::Calling { give_up, .. } if give_up <= at => "Timer B",
            InviteClient::Calling { .. } => "Timer A",
            InviteClient::Completed { .. } => "Timer D",
            InviteClient::Accepted { .. } => "Timer M",
            InviteClient::Proceeding | InviteClient::Terminated => panic!("no timer runs"),
        },
        Machine::Client(Client::Other(client)) => match client {
            OtherClient::Trying { give_up, .. } | OtherClient::Proceeding { give_up, .. } => {
                if give_up <= at {
                    "Timer F"
                } else {
                    "Timer E"
                }
            }
            OtherClient::Completed { .. } => "Timer K",
            OtherClient::Terminated => panic!("no timer runs"),
        },
        Machine::Server(Server::Invite(server)) => match server {
            InviteServer::Completed { give_up, .. } if give_up <= at => "Timer H",
            InviteServer::Completed { .. } => "Timer G",
            InviteServer::Confirmed { .. } => "Timer I",
            InviteServer::Accepted { .. } => "Timer L",
            InviteServer::Proceeding | InviteServer::Terminated => panic!("no timer runs"),
        },
        Machine::Server(Server::Other(_)) => "Timer J",
    }
}

/// Returns the name of an event in its figure.
fn cause(machine: &Machine, event: Event) -> String {
    match (machine, event) {
        (Machine::Server(Server::Other(_)), Sending(status)) => match status {
            100 | 408 => format!("{status} from TU"),
            101..200 => "101-199 from TU".into(),
            _ => "200-699 from TU".into(),
        },
        (Machine::Server(Server::Other(_)), Request) => "Request".into(),
        (_, Request) => "INVITE".into(),
        (_, Ack) => "ACK".into(),
        (_, TransportError) => "Transport Err".into(),
        (_, Sending(status)) => format!("{} from TU", class(status)),
        (Machine::Client(Client::Other(_)), Response(200..)) => "200-699".into(),
        (_, Response(status)) => class(status).into(),
    }
}

fn class(status: u16) -> &'static str {
    match status {
        ..200 => "1xx",
        200..300 => "2xx",
        _ => "300-699",
    }
}

fn edge(from: State, cause: &str, effects: &[Effect]) -> String {
    let mut to = from;
    let mut actions = Vec::new();
    for effect in effects {
        match effect {
            Enters(state) => to = *state,
            RequestSent if from == State::Calling => actions.push("INVITE sent"),
            RequestSent => actions.push("request sent"),
            AckSent => actions.push("ACK sent"),
            ToUser(_) => actions.push("to TU"),
            ResponseSent(_) | ResponseResent => actions.push("response sent"),
            AckToUser => actions.push("ACK to TU"),
            TimedOut => actions.push("inform TU"),
        }
    }
    let actions = if actions.is_empty() { "-".into() } else { actions.join(", ") };
    format!("{from} | {cause} | {actions} | {to}")
}
