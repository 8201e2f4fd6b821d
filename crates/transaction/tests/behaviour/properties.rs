//! Properties of all four state machines, for any events and calls of `on_timer` at any times.

use std::time::Duration;

use crate::script::Effect::{AckSent, AckToUser, ResponseSent, TimedOut, ToUser};
use crate::script::Event::{Ack, Request, Response, Sending, TransportError};
use crate::script::{
    Effect, Event, INVITE_CLIENT, INVITE_SERVER, Machine, OTHER_CLIENT, OTHER_SERVER, State,
};
use proptest::prelude::*;
use tidegate_transaction::{InviteClient, InviteServer, OtherClient, OtherServer, Timing};
use tidegate_world::Timestamp;

const MACHINES: [fn(&Timing) -> Machine; 4] =
    [INVITE_CLIENT, OTHER_CLIENT, INVITE_SERVER, OTHER_SERVER];

/// An action of the owner of the machine.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Lets time pass without an event and without a call of `on_timer`.
    Pass(Duration),
    /// Calls `on_timer` at the deadline of the machine, or now if the deadline has passed.
    Due,
    /// Calls `on_timer`, even if no timer has expired.
    Timer,
    Event(Event),
}

fn timing() -> impl Strategy<Value = Timing> {
    let duration = |ms: std::ops::Range<u64>| ms.prop_map(Duration::from_millis);
    (duration(1..3_000), duration(1..10_000), duration(0..10_000), any::<bool>())
        .prop_map(|(t1, t2, t4, reliable)| Timing { t1, t2, t4, reliable })
}

fn step() -> impl Strategy<Value = Step> {
    let status = prop_oneof![Just(100), Just(180), Just(200), Just(408), 100_u16..700];
    prop_oneof![
        2 => (0_u64..40_000_000).prop_map(|us| Step::Pass(Duration::from_micros(us))),
        1 => (0_u64..1_000).prop_map(|us| Step::Pass(Duration::from_micros(us))),
        4 => Just(Step::Due),
        2 => Just(Step::Timer),
        3 => status.clone().prop_map(|status| Step::Event(Response(status))),
        3 => status.prop_map(|status| Step::Event(Sending(status))),
        1 => Just(Step::Event(Request)),
        1 => Just(Step::Event(Ack)),
        1 => prop::bool::weighted(0.1)
            .prop_map(|error| Step::Event(if error { TransportError } else { Request })),
    ]
}

/// The effects of a machine, each with the state before it.
type Seen = Vec<(State, Effect)>;

/// Drives a machine, and checks after every step the properties that all machines have.
fn drive(start: fn(&Timing) -> Machine, timing: &Timing, steps: &[Step]) -> Seen {
    let mut now = Timestamp::ZERO;
    let mut machine = start(timing);
    let mut seen = Seen::new();
    for &step in steps {
        let before = machine;
        let is_due = machine.deadline().is_some_and(|at| at <= now);
        let effects = match step {
            Step::Pass(duration) => {
                now = now + duration;
                continue;
            }
            Step::Due => {
                let Some(at) = machine.deadline() else { continue };
                now = now.max(at);
                let effects = machine.on_timer(now, timing);
                assert_ne!(machine, before, "the timer that was due has fired");
                effects
            }
            Step::Timer => {
                let effects = machine.on_timer(now, timing);
                assert_eq!(machine == before, !is_due, "nothing happens early");
                assert!(is_due || effects.is_empty(), "nothing is done early");
                effects
            }
            Step::Event(event) => machine.on_event(now, timing, event),
        };
        if matches!(step, Step::Due | Step::Timer) {
            let next = machine.deadline();
            assert!(
                next.is_none_or(|at| at > now),
                "one call fires all timers that are due: {machine:?}"
            );
        }
        if before.is_terminated() {
            assert_eq!((machine, effects.len()), (before, 0), "Terminated is not left");
        }
        assert_eq!(machine.deadline().is_none(), waits_for_ever(&machine), "{machine:?}");
        let last = now + timing.patience().max(Duration::from_secs(32)).max(timing.t4);
        assert!(machine.deadline().is_none_or(|at| at <= last), "no timer runs longer");
        seen.extend(effects.into_iter().map(|effect| (before.state(), effect)));
    }
    seen
}

/// Returns whether the machine has no timer. It has ended, waits for its user, or has got a
/// provisional response and waits for the final one.
fn waits_for_ever(machine: &Machine) -> bool {
    let is_server = !machine.is_client();
    match machine.state() {
        State::Terminated => true,
        State::Trying => is_server,
        State::Proceeding => is_server || *machine == Machine::Client(INVITE_PROCEEDING),
        State::Calling | State::Completed | State::Confirmed | State::Accepted => false,
    }
}

const INVITE_PROCEEDING: tidegate_transaction::Client =
    tidegate_transaction::Client::Invite(InviteClient::Proceeding);

fn count(seen: &Seen, is: impl Fn(State, Effect) -> bool) -> usize {
    seen.iter().filter(|&&(state, effect)| is(state, effect)).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_properties_hold_for_any_events(timing in timing(), steps in prop::collection::vec(step(), 0..60)) {
        for start in MACHINES {
            drive(start, &timing, &steps);
        }
    }

    /// RFC 3261 §17.1.1.2: "the newly received response MUST NOT be passed up to the TU"; a
    /// transaction that ended by Timer B reports nothing more.
    #[test]
    fn an_invite_client_reports_one_end(
        timing in timing(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let seen = drive(INVITE_CLIENT, &timing, &steps);
        let rejections = count(&seen, |_, effect| matches!(effect, ToUser(300..)));
        let successes = count(&seen, |_, effect| matches!(effect, ToUser(200..300)));
        let timeouts = count(&seen, |_, effect| effect == TimedOut);
        prop_assert!(rejections + successes.min(1) + timeouts <= 1, "{seen:?}");
        // Only a final response other than a 2xx is acknowledged.
        let acknowledged = count(&seen, |_, effect| effect == AckSent);
        prop_assert!(acknowledged >= rejections && (rejections > 0 || acknowledged == 0));
    }

    #[test]
    fn another_client_reports_one_end(
        timing in timing(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let seen = drive(OTHER_CLIENT, &timing, &steps);
        let ends = count(&seen, |_, effect| matches!(effect, ToUser(200..) | TimedOut));
        prop_assert!(ends <= 1, "{seen:?}");
    }

    /// RFC 3261 §17.2: one final response, except for several 2xx to an INVITE.
    #[test]
    fn a_server_sends_one_final_response(
        timing in timing(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let seen = drive(INVITE_SERVER, &timing, &steps);
        let rejections = count(&seen, |_, effect| matches!(effect, ResponseSent(300..)));
        let successes = count(&seen, |_, effect| matches!(effect, ResponseSent(200..300)));
        prop_assert!(rejections + successes.min(1) <= 1, "{seen:?}");
        let passed = count(&seen, |state, effect| effect == AckToUser && state != State::Accepted);
        prop_assert_eq!(passed, 0);
        let seen = drive(OTHER_SERVER, &timing, &steps);
        let finals = count(&seen, |_, effect| matches!(effect, ResponseSent(200..)));
        prop_assert!(finals <= 1, "{seen:?}");
        let forbidden =
            count(&seen, |_, effect| matches!(effect, ResponseSent(101..200) | ResponseSent(408)));
        prop_assert_eq!(forbidden, 0);
    }
}

/// A table of a million transactions must fit in memory: checks the size of a machine.
#[test]
fn a_machine_takes_half_a_cache_line() {
    for (name, size, size_max) in [
        ("InviteClient", size_of::<InviteClient>(), 32),
        ("OtherClient", size_of::<OtherClient>(), 32),
        ("InviteServer", size_of::<InviteServer>(), 32),
        ("OtherServer", size_of::<OtherServer>(), 16),
        ("Client", size_of::<tidegate_transaction::Client>(), 40),
        ("Server", size_of::<tidegate_transaction::Server>(), 32),
    ] {
        assert!(size <= size_max, "{name}: {size} bytes");
    }
}
