use super::*;
use crate::testing::at_ms as at;
use crate::{
    Allowance, Answers, Entry, Estimation, Flow, Param, Reason, Release, Scheme, Sender,
    SessionCheck, ShedOrder, ThrottleKind, Ticket, Values, Verdict, Weight,
};

mod accounts;
mod figures;
mod schemes;
mod shadow;
mod sources;
mod ticks;
mod windows;

// Numbers of classes, chosen by the user of the library.
const INVITE: u8 = 6;
const BYE: u8 = 3;

const fn param(name: &'static str, default: f64) -> Param {
    Param::real(name, "", default, 0.0, 1e6)
}

static SHARE: Param = param("share", 1.0);
/// The kind of the allowance `share`: 0 for a fraction, 1 for a rate, 2 for a window.
static KIND: Param = param("kind", 0.0);
static WAITING_MAX: Param = param("waiting_max", 1e6);
/// Maximum number of calls that leave the queue a second, or 0 for no limit.
static RATE: Param = param("rate", 0.0);
/// Milliseconds between two ticks, or 0 for no ticks.
static TICK: Param = param("tick", 0.0);
static RESTLESS: Param = param("restless", 0.0);

/// A law that sets the control to the values of its parameters.
static ENTRY: Entry = Entry {
    name: "fixed",
    summary: "",
    source: "",
    doc: "",
    params: &[&SHARE, &KIND, &WAITING_MAX, &RATE, &TICK, &RESTLESS],
    check: |_| Ok(()),
    build: |&values| Box::new(Fixed { values, begun: false }),
};

#[derive(Debug)]
struct Fixed {
    values: Values,
    begun: bool,
}

impl Law for Fixed {
    fn on_arrival(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let share = self.values.of(&SHARE);
        control.admit_of_all(match self.values.of(&KIND) as u32 {
            0 => Allowance::Fraction(share),
            1 => Allowance::Rate(share),
            _ => Allowance::Window(share),
        });
        control.queue.waiting_max = self.values.of(&WAITING_MAX) as usize;
        if self.values.of(&RATE) > 0.0 {
            control.queue.release = Release::Rate(self.values.of(&RATE));
        }
    }

    fn on_service(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.queue.waiting_max = 1;
    }

    fn on_completion(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.queue.waiting_max = 2;
    }

    fn on_tick(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.queue.waiting_max = 3;
    }

    fn tick(&self) -> Option<Duration> {
        Some(MS * self.values.of(&TICK) as u32).filter(|tick| !tick.is_zero())
    }

    fn is_at_rest(&self) -> bool {
        self.values.of(&RESTLESS) == 0.0
    }
}

/// Returns the values of a law that always sets this allowance: of `kind` 0 a fraction, of 1 a rate,
/// of 2 a window.
pub(crate) fn fixed(kind: f64, allowance: f64) -> Values {
    ENTRY.values(&[("kind", kind), ("share", allowance)]).unwrap()
}

const MS: Duration = Duration::from_millis(1);
const CALL: Option<u64> = Some(7);

fn settings(given: &[(&str, f64)]) -> Settings {
    Settings { memory_max: 1000, ..Settings::new(ENTRY.values(given).unwrap()) }
}

fn gate(given: &[(&str, f64)]) -> Gate {
    Gate::new(settings(given), Seed(1), 0)
}

/// Returns a gate that rejects all new work.
fn closed() -> Gate {
    gate(&[("share", 0.0)])
}

/// Returns the verdict on a session that arrives while `waiting` sessions wait.
fn arrives(gate: &mut Gate, now: Timestamp, fingerprint: Option<u64>, waiting: usize) -> Verdict {
    gate.on_arrival(now, waiting);
    gate.on_new(now, Bucket::Session, 0, fingerprint, true)
}

/// Returns the ticket of an admitted session.
fn enters(gate: &mut Gate, now: Timestamp, fingerprint: Option<u64>) -> Ticket {
    match arrives(gate, now, fingerprint, 0) {
        Verdict::Admit(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn flow(gate: &Gate) -> Flow {
    *gate.signals().flow(Bucket::Session)
}

#[test]
fn admitted_work_is_counted_at_its_arrival_and_when_it_is_taken() {
    let mut gate = gate(&[]);
    let ticket = enters(&mut gate, at(0), CALL);
    let entered = Flow { arrived: 1, offered: 1, entered: 1, admitted: 1, ..Flow::default() };
    assert_eq!(flow(&gate), entered);
    assert_eq!(gate.on_taken(at(1), ticket), None);
    assert_eq!(flow(&gate), Flow { taken: 1, ..entered });
    assert_eq!(*gate.signals().flow(Bucket::Single), Flow::default());
    assert_eq!(gate.signals().messages, 1);
}

#[test]
fn rejected_work_is_rejected_again_and_offered_once() {
    let mut gate = closed();
    assert_eq!(arrives(&mut gate, at(0), CALL, 0), Verdict::Reject(Reason::Law));
    assert_eq!(arrives(&mut gate, at(500), CALL, 0), Verdict::Reject(Reason::Again));
    let flow = flow(&gate);
    assert_eq!(flow, Flow { arrived: 2, offered: 1, rejected: 1, repeated: 1, ..Flow::default() });
}

// Admitted work found no room in a table. There may be room for its repetition. But the repetition
// is rejected, because the sender has already been told that the request failed.
#[test]
fn work_rejected_after_admission_is_rejected_again() {
    let mut gate = gate(&[]);
    let ticket = enters(&mut gate, at(0), CALL);
    let fingerprint = ticket.fingerprint().unwrap();
    gate.on_taken(at(1), ticket);
    gate.on_rejected(at(1), fingerprint);
    assert_eq!(arrives(&mut gate, at(500), CALL, 0), Verdict::Reject(Reason::Again));
}

#[test]
fn a_repetition_of_what_waits_is_absorbed_and_of_what_was_served_is_served() {
    let mut gate = gate(&[]);
    let ticket = enters(&mut gate, at(0), CALL);
    assert_eq!(arrives(&mut gate, at(500), CALL, 0), Verdict::Absorb);
    gate.on_taken(at(600), ticket);
    let again = enters(&mut gate, at(1500), CALL);
    // A repetition without room in the queue is dropped, because its original was served.
    assert_eq!(gate.on_new(at(1600), Bucket::Session, 0, CALL, false), Verdict::Absorb);
    gate.on_taken(at(1700), again);
    let once = Flow { offered: 1, entered: 1, taken: 1, admitted: 1, ..Flow::default() };
    assert_eq!(flow(&gate), Flow { arrived: 4, repeated: 3, ..once });
}

// A law that becomes stricter does not reject work that it has already admitted.
#[test]
fn a_repetition_of_what_was_served_is_not_judged_again() {
    for decide in [Decide::Arrival, Decide::Service] {
        let mut gate = Gate::new(Settings { decide, ..settings(&[]) }, Seed(1), 0);
        let ticket = enters(&mut gate, at(0), CALL);
        gate.on_taken(at(1), ticket);
        gate.control.admit_of_all(Allowance::Closed);
        let Verdict::Admit(ticket) = gate.on_new(at(500), Bucket::Session, 0, CALL, true) else {
            panic!("{decide:?}");
        };
        assert_eq!(gate.on_taken(at(501), ticket), None, "{decide:?}");
    }
}

// A message is judged by the decision that the memory returned when it arrived. A second search
// would double the cost.
#[test]
fn the_memory_is_searched_once() {
    let mut gate = gate(&[]);
    let recalled = gate.recall(at(0), CALL);
    gate.on_rejected(at(0), 7);
    assert!(!recalled.is_repetition() && gate.recall(at(0), CALL).is_repetition());
    let verdict = gate.judge(at(0), &Sender::default(), Bucket::Session, 0, recalled, true);
    assert!(matches!(verdict, Verdict::Admit(_)), "{verdict:?}");
}

#[test]
fn a_late_caller_takes_a_place_only_while_most_are_free() {
    let late = Sender { is_late: true, ..Sender::default() };
    let judge = |gate: &mut Gate, call| {
        gate.on_arrival(at(0), 0);
        gate.on_new_from(at(0), &late, Bucket::Session, 0, Some(call), true)
    };
    let mut gate = gate(&[]);
    assert!(matches!(judge(&mut gate, 1), Verdict::Admit(_)), "the law admits everything");
    gate.control.admit_of_all(Allowance::Window(20.0));
    assert!(matches!(judge(&mut gate, 2), Verdict::Admit(_)));
    assert_eq!(judge(&mut gate, 3), Verdict::Reject(Reason::Late), "two of 20 places are taken");
    assert!(matches!(arrives(&mut gate, at(0), Some(4), 0), Verdict::Admit(_)));
    let others = [Allowance::Fraction(0.99), Allowance::Rate(1e6), Allowance::Closed];
    for (allowance, call) in others.into_iter().zip(10..) {
        gate.control.admit_of_all(allowance);
        assert_eq!(judge(&mut gate, call), Verdict::Reject(Reason::Late), "others wait");
    }
    let has_priority = Sender { has_priority: true, ..late };
    gate.settings.sources.priority_cps = 10.0;
    gate.sources = Sources::new(&gate.settings.sources, Seed(1), 0);
    let first = gate.on_new_from(at(0), &has_priority, Bucket::Session, 0, Some(6), true);
    assert!(matches!(first, Verdict::Admit(_)));
}

// After 64 s the decision on a call is forgotten, but a repetition of it in the queue is still
// known as one.
#[test]
fn a_repetition_that_outlives_the_memory_is_not_counted_as_new() {
    let mut gate = Gate::new(Settings { decide: Decide::Service, ..settings(&[]) }, Seed(1), 0);
    let ticket = enters(&mut gate, at(0), CALL);
    gate.on_taken(at(0), ticket);
    let again = enters(&mut gate, at(63_000), CALL);
    gate.control.admit_of_all(Allowance::Closed);
    assert_eq!(gate.on_taken(at(65_000), again), None);
    let once = Flow { offered: 1, entered: 1, taken: 1, admitted: 1, ..Flow::default() };
    assert_eq!(flow(&gate), Flow { arrived: 2, repeated: 1, ..once });
}

#[test]
fn calls_wait_in_the_queue_while_too_many_sent_ones_are_unanswered() {
    for (decide, expected) in [(Decide::Arrival, [true, false]), (Decide::Service, [true; 2])] {
        let mut gate = Gate::new(Settings { decide, ..settings(&[]) }, Seed(1), 0);
        gate.control.queue.unanswered_max = 2.5;
        let released = [2, 3].map(|waiting| {
            gate.on_answers(Answers { waiting, ..Answers::default() });
            gate.may_release()
        });
        assert_eq!(released, expected, "{decide:?}");
        assert_eq!(gate.unanswered_max().is_finite(), decide == Decide::Arrival);
    }
}

#[test]
fn judged_at_service_work_enters_first() {
    let decided = Settings { decide: Decide::Service, ..settings(&[("share", 0.5)]) };
    let mut gate = Gate::new(decided, Seed(1), 0);
    assert_eq!(gate.decide(), Decide::Service);
    let tickets = [1, 2].map(|call| enters(&mut gate, at(0), Some(call)));
    let entered = Flow { arrived: 2, offered: 2, entered: 2, ..Flow::default() };
    assert_eq!(flow(&gate), entered);
    assert_eq!(tickets.map(|ticket| gate.on_taken(at(1), ticket)), [Some(Reason::Law), None]);
    assert_eq!(flow(&gate), Flow { taken: 1, admitted: 1, rejected: 1, ..entered });
    assert_eq!(arrives(&mut gate, at(500), Some(1), 0), Verdict::Reject(Reason::Again));
    assert!(matches!(arrives(&mut gate, at(500), Some(2), 0), Verdict::Admit(_)));
}

#[test]
fn without_memory_or_fingerprint_every_message_is_new() {
    let mut forgetful = Gate::new(Settings { sticky: false, ..settings(&[]) }, Seed(1), 0);
    let mut anonymous = gate(&[]);
    for ms in [0, 500, 1500] {
        enters(&mut forgetful, at(ms), CALL);
        enters(&mut anonymous, at(ms), None);
    }
    assert_eq!((flow(&forgetful).offered, flow(&anonymous).offered), (3, 3));
    assert!(forgetful.memory().is_empty() && anonymous.memory().is_empty());
}

#[test]
fn without_room_work_is_rejected_whatever_the_law() {
    let mut gate = gate(&[]);
    gate.on_arrival(at(0), 0);
    let full = Verdict::Reject(Reason::QueueFull);
    assert_eq!(gate.on_new(at(0), Bucket::Single, 0, CALL, false), full);
    assert_eq!(gate.on_new(at(0), Bucket::Session, 0, Some(8), false), full);
    assert_eq!(flow(&gate).rejected, 1);
}

// The law's limit applies to the queue of new sessions.
#[test]
fn as_many_sessions_wait_as_the_law_allows() {
    let mut gate = gate(&[("waiting_max", 5.0)]);
    assert!(matches!(arrives(&mut gate, at(0), Some(1), 4), Verdict::Admit(_)));
    assert_eq!(arrives(&mut gate, at(0), Some(2), 5), Verdict::Reject(Reason::QueueFull));
    assert!(matches!(gate.on_new(at(0), Bucket::Single, 0, Some(3), true), Verdict::Admit(_)));
}

#[test]
fn each_bucket_has_a_throttle_of_its_own() {
    let mut gate = gate(&[("share", 0.5)]);
    let mut passed = |bucket| {
        gate.on_arrival(at(0), 0);
        matches!(gate.on_new(at(0), bucket, 0, None, true), Verdict::Admit(_))
    };
    // If both buckets shared one throttle, every second message would pass, and never a session.
    let buckets = [Bucket::Session, Bucket::Single];
    let pairs: Vec<_> = (0..4).map(|_| buckets.map(&mut passed)).collect();
    assert_eq!(pairs, [[false, false], [true, true], [false, false], [true, true]]);
}

#[test]
fn random_throttles_draw_from_streams_of_their_own() {
    let random = || Settings { throttle: ThrottleKind::Random, ..settings(&[("share", 0.5)]) };
    let passed = |seed, element, bucket| {
        let mut gate = Gate::new(random(), Seed(seed), element);
        gate.on_arrival(at(0), 0);
        (0..64).fold(0u64, |bits, _| {
            let passes = matches!(gate.on_new(at(0), bucket, 0, None, true), Verdict::Admit(_));
            bits << 1 | u64::from(passes)
        })
    };
    let first = passed(1, 0, Bucket::Session);
    assert_eq!(first, passed(1, 0, Bucket::Session));
    for other in [(2, 0, Bucket::Session), (1, 1, Bucket::Session), (1, 0, Bucket::Single)] {
        assert_ne!(first, passed(other.0, other.1, other.2), "{other:?}");
    }
    // The last random stream of an element differs from the first one of the next element.
    assert_ne!(passed(1, 0, Bucket::Single), passed(1, 1, Bucket::Session));
    passed(1, u32::MAX, Bucket::Single);
}

#[test]
fn a_stopping_gate_admits_nothing_new_and_finishes_the_rest() {
    let mut gate = gate(&[("rate", 1.0), ("tick", 10.0)]);
    let served = enters(&mut gate, at(0), Some(1));
    gate.on_taken(at(0), served);
    let waits = enters(&mut gate, at(0), Some(2));
    assert!(!gate.may_release());
    gate.stop();
    assert_eq!(arrives(&mut gate, at(1), Some(3), 1), Verdict::Reject(Reason::Stopping));
    assert_eq!(arrives(&mut gate, at(1), Some(2), 1), Verdict::Absorb);
    assert!(matches!(arrives(&mut gate, at(1), Some(1), 1), Verdict::Admit(_)));
    // The queue is no longer paced.
    assert!(gate.may_release());
    assert_eq!(gate.on_taken(at(1), waits), None);
    assert!(gate.may_release());
}

// A user of the gate prepares its replies while rejections are likely. Nothing else depends on
// this.
#[test]
fn a_likely_rejection_of_new_sessions_is_announced() {
    let mut open = gate(&[("waiting_max", 5.0)]);
    for (waiting, rejecting) in [(0, false), (4, false), (5, true), (6, true), (4, false)] {
        open.on_arrival(at(0), waiting);
        assert_eq!(open.is_rejecting(), rejecting, "{waiting} wait");
    }
    open.stop();
    assert!(open.is_rejecting());
    for (share, rejecting) in [(1.0, false), (0.99, true), (0.0, true)] {
        let mut gate = gate(&[("share", share)]);
        gate.on_arrival(at(0), 0);
        assert_eq!(gate.is_rejecting(), rejecting, "{share}");
    }
}

#[test]
fn the_processor_is_read_by_the_clock_of_choice() {
    let load = Load { busy: MS * 5, cpu: MS * 3, socket_fill: 0.25, ..Load::default() };
    for (occupancy, occupied) in [(Occupancy::Busy, MS * 5), (Occupancy::Cpu, MS * 3)] {
        let mut gate = Gate::new(Settings { occupancy, ..settings(&[]) }, Seed(1), 0);
        gate.on_load(at(9), &load);
        assert_eq!(gate.signals().processor, Reading { at: at(9), occupied });
        assert_eq!(gate.signals().socket_fill, 0.25);
    }
}

#[test]
fn each_hook_reports_the_backlog_to_the_law() {
    let mut gate = gate(&[("tick", 10.0), ("waiting_max", 9.0)]);
    let seen = |gate: &Gate| (gate.signals().queue.waiting, gate.control().queue.waiting_max);
    gate.on_arrival(at(0), 10);
    assert_eq!(seen(&gate), (10, 9));
    gate.on_service(at(1), None, MS * 2, 20);
    assert_eq!(seen(&gate), (20, 1));
    gate.on_completion(at(2), 6, MS);
    assert_eq!((seen(&gate), gate.signals().costs.of(6)), ((20, 2), Some(MS)));
    gate.handle_timeout(at(10), 30);
    assert_eq!(seen(&gate), (30, 3));
}

#[test]
fn sojourn_is_measured_separately_for_new_work() {
    let mut gate = gate(&[("tick", 10.0), ("restless", 1.0)]);
    let ticket = enters(&mut gate, at(0), CALL);
    gate.on_service(at(1), Some(&ticket), MS * 2, 0);
    gate.on_service(at(1), None, MS * 3, 0);
    gate.on_service(at(1), None, MS * 3, 0);
    // A tick also ends the window in which sojourns are measured.
    gate.handle_timeout(at(1000), 0);
    let sojourn = &gate.signals().sojourn;
    assert_eq!((sojourn.of_new().count, sojourn.of_ongoing().count), (1, 2));
}

#[test]
fn reasons_have_the_names_of_metrics() {
    let names = Reason::ALL.map(Reason::name);
    assert_eq!(
        names,
        [
            "law",
            "again",
            "rank",
            "stale",
            "late",
            "queue_full",
            "pool_full",
            "pool_share",
            "pool_down",
            "stopping",
            "source_share",
            "source_limit",
            "feedback",
            "peer_share"
        ]
    );
    assert_eq!(Bucket::ALL.map(Bucket::name), ["session", "single", "priority"]);
    let debug = format!("{:?}", closed());
    assert!(debug.contains("Fixed") && debug.contains("admit"), "{debug}");
}

#[test]
fn the_longest_lag_since_the_last_tick_is_a_signal() {
    let mut gate = gate(&[("tick", 10.0)]);
    gate.on_arrival(at(0), 0);
    for ms in [3, 8, 5] {
        gate.on_lag(Duration::from_millis(ms));
    }
    assert_eq!(gate.signals().queue.lag, Some(Duration::from_millis(8)));
    gate.handle_timeout(at(10), 0);
    assert_eq!(gate.signals().queue.lag, None);
}

#[test]
fn all_that_is_not_admitted_is_counted_with_its_repetitions() {
    let mut gate = closed();
    arrives(&mut gate, at(0), CALL, 0);
    arrives(&mut gate, at(500), CALL, 0);
    assert_eq!((gate.signals().messages, gate.signals().messages_rejected), (2, 2));
    let mut open = Gate::new(settings(&[]), Seed(1), 0);
    let ticket = enters(&mut open, at(0), CALL);
    arrives(&mut open, at(1), CALL, 0);
    open.on_taken(at(2), ticket);
    assert_eq!(open.signals().messages_rejected, 0, "what is absorbed was not rejected");
}

#[test]
fn the_law_is_shown_the_message_in_service_and_the_room_of_the_queue() {
    let mut gate = gate(&[]).with_room(77);
    assert_eq!(gate.signals().queue.room, 77);
    let ticket = enters(&mut gate, at(0), CALL);
    gate.on_service(at(1), Some(&ticket), MS * 2, 0);
    let begun = Service { is_session: true, sojourn: MS * 2, cost: Duration::ZERO };
    assert_eq!(gate.signals().service, begun);
    gate.on_completion(at(4), 6, MS * 3);
    assert_eq!(gate.signals().service, Service { cost: MS * 3, ..begun });
    gate.on_service(at(4), None, MS, 0);
    let next = Service { is_session: false, sojourn: MS, cost: Duration::ZERO };
    assert_eq!(gate.signals().service, next);
}

#[test]
fn below_the_floor_a_session_is_rejected_by_its_rank() {
    let mut gate = gate(&[]);
    gate.on_arrival(at(0), 0);
    gate.control.rank_floor = 0.25;
    let quarter = 1u64 << 62;
    let mut verdict = |bucket, fingerprint| gate.on_new(at(0), bucket, 0, Some(fingerprint), true);
    for low in [0, quarter - (1 << 11)] {
        assert_eq!(verdict(Bucket::Session, low), Verdict::Reject(Reason::Rank), "{low:x}");
        assert_eq!(verdict(Bucket::Session, low), Verdict::Reject(Reason::Again));
    }
    assert!(matches!(verdict(Bucket::Session, quarter), Verdict::Admit(_)));
    assert!(matches!(verdict(Bucket::Single, 1), Verdict::Admit(_)));
    assert_eq!((gate.share(Bucket::Session), gate.share(Bucket::Single)), (0.75, 1.0));
    let anonymous = |gate: &mut Gate| gate.on_new(at(0), Bucket::Session, 0, None, true);
    let rejected = (0..1000).filter(|_| matches!(anonymous(&mut gate), Verdict::Reject(_))).count();
    // Standard deviation 14.
    assert!((180..320).contains(&rejected), "{rejected}");
}

#[test]
fn work_that_waited_too_long_is_rejected_with_its_repetitions() {
    for decide in [Decide::Arrival, Decide::Service] {
        let mut gate = Gate::new(Settings { decide, ..settings(&[]) }, Seed(1), 0);
        let tickets = [1, 2].map(|call| enters(&mut gate, at(0), Some(call)));
        gate.control.queue.wait_max = Some(MS * 10);
        let taken = tickets.into_iter().zip([10, 11]).map(|(ticket, ms)| {
            gate.on_service(at(ms), Some(&ticket), MS * ms as u32, 0);
            gate.control.queue.waiting_max = 9;
            gate.on_taken(at(ms), ticket)
        });
        assert_eq!(taken.collect::<Vec<_>>(), [None, Some(Reason::Stale)], "{decide:?}");
        assert_eq!(arrives(&mut gate, at(500), Some(2), 0), Verdict::Reject(Reason::Again));
        assert_eq!(gate.signals().messages_rejected, 2);
        let once =
            Flow { arrived: 3, offered: 2, entered: 2, taken: 1, repeated: 1, ..flow(&gate) };
        let decided = match decide {
            Decide::Arrival => Flow { admitted: 2, rejected: 0, stale: 1, ..once },
            Decide::Service => Flow { admitted: 1, rejected: 1, stale: 0, ..once },
        };
        assert_eq!(flow(&gate), decided, "{decide:?}");
        assert_eq!(gate.signals().in_progress(Bucket::Session), 0);
    }
}

// The limit is for callers who hang up. A stopping server must answer all work that it has
// admitted.
#[test]
fn only_sessions_grow_stale_and_not_while_stopping() {
    let mut gate = gate(&[]);
    gate.on_arrival(at(0), 0);
    gate.control.queue.wait_max = Some(MS);
    let Verdict::Admit(single) = gate.on_new(at(0), Bucket::Single, 0, Some(1), true) else {
        panic!()
    };
    let session = enters(&mut gate, at(0), CALL);
    gate.on_service(at(5), Some(&single), MS * 5, 0);
    assert_eq!(gate.on_taken(at(5), single), None);
    gate.stop();
    assert_eq!(gate.on_taken(at(5), session), None);
}
