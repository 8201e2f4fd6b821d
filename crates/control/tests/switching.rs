//! Tests of every law when it replaces another law, and when it runs as a shadow law.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::ThrottleKind::{Deterministic, TokenBucket};
use tidegate_control::registry::{LAWS, find};
use tidegate_control::{
    Allowance, Bucket, Compared, Control, Decide, Gate, Settings, Ticket, Values, Verdict,
};
use tidegate_world::{Load, Seed, Timestamp};

const MS: Duration = Duration::from_millis(1);

/// Cost of one piece of work: the server can do 200 a second.
const COST: Duration = Duration::from_millis(5);

/// A server with one processor, simulated in steps of a millisecond.
struct Server {
    gate: Gate,
    now: Timestamp,
    queue: VecDeque<(Timestamp, Ticket)>,
    in_service: Option<Timestamp>,
    busy: Duration,
    /// Fingerprint of the last piece of work that was offered.
    next: u64,
    /// For each offered piece of work, whether the gate admitted it.
    admitted: Vec<bool>,
    served: u64,
    rejected_late: u64,
    controls: Vec<Control>,
}

impl Server {
    fn new(settings: Settings, start: Timestamp) -> Self {
        Self {
            gate: Gate::new(settings, Seed(7), 0).with_room(500),
            now: start,
            queue: VecDeque::new(),
            in_service: None,
            busy: Duration::ZERO,
            next: 0,
            admitted: Vec::new(),
            served: 0,
            rejected_late: 0,
            controls: Vec::new(),
        }
    }

    /// Runs `steps` milliseconds. A new piece arrives every `every` milliseconds, or never if
    /// `every` is 0.
    fn run(&mut self, steps: u32, every: u32) {
        for step in 0..steps {
            self.now = self.now + MS;
            self.busy += if self.in_service.is_some() { MS } else { Duration::ZERO };
            if step % 2 == 0 {
                let load = Load { busy: self.busy, cpu: self.busy, ..Load::default() };
                self.gate.on_load(self.now, &load);
            }
            if self.gate.poll_timeout().is_some_and(|due| due <= self.now) {
                self.gate.handle_timeout(self.now, self.queue.len());
            }
            if every > 0 && step % every == 0 {
                self.offer();
            }
            self.serve();
            self.controls.push(self.gate.control().clone());
        }
    }

    fn offer(&mut self) {
        // The fingerprints are distributed like those of a keyed hash.
        self.next = self.next.wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.gate.on_arrival(self.now, self.queue.len());
        let has_room = self.queue.len() < 500;
        let verdict = self.gate.on_new(self.now, Bucket::Session, 0, Some(self.next), has_room);
        self.admitted.push(matches!(verdict, Verdict::Admit(_)));
        if let Verdict::Admit(ticket) = verdict {
            self.queue.push_back((self.now, ticket));
        }
    }

    fn serve(&mut self) {
        if self.in_service.is_some_and(|since| self.now.since(since) >= COST) {
            self.in_service = None;
            self.gate.on_completion(self.now, 0, COST);
        }
        while self.in_service.is_none() && self.gate.may_release() {
            let Some((arrived, ticket)) = self.queue.pop_front() else { return };
            let sojourn = self.now.since(arrived);
            self.gate.on_service(self.now, Some(&ticket), sojourn, self.queue.len());
            match self.gate.on_taken(self.now, ticket) {
                Some(_) => self.rejected_late += 1,
                None => {
                    self.served += 1;
                    self.in_service = Some(self.now);
                }
            }
        }
    }

    fn compared(&self) -> Compared {
        *self.gate.shadow().expect("there is one").compared(Bucket::Session)
    }
}

fn laws() -> impl Iterator<Item = Values> + Clone {
    LAWS.iter().map(|entry| entry.defaults())
}

fn none() -> Values {
    find("none").unwrap().defaults()
}

/// Returns a law that releases its queue at a pace.
fn pacing() -> Values {
    find("pi").unwrap().values(&[("t_q", 0.5)]).unwrap()
}

/// Offers 2.5 times the capacity, then half of it, then 2.5 times the capacity again. In total this
/// takes longer than any law waits between two decisions.
fn load(server: &mut Server) {
    for (steps, every) in [(3000, 2), (1500, 10), (7000, 2)] {
        server.run(steps, every);
    }
}

/// A law acts in the same way on a server that has been running as on a server that has just
/// started. Neither the uptime of the server nor its counts have an effect.
#[test]
fn every_law_begins_cold_on_a_server_that_has_been_running() {
    // Three laws read the rate of served sessions. A new server has not measured this rate, so it
    // assumes one.
    let measures = |law: &Values| ["win-disc", "win-cont", "rate-abs"].contains(&law.entry().name);
    for law in laws().filter(|law| !measures(law)) {
        // A throttle keeps its state when the law changes. A token bucket is full again after a
        // while.
        let is_rate = law.entry().name == "clearwater";
        let throttle = if is_rate { TokenBucket } else { Deterministic };
        let under = |law| Settings { throttle, ..Settings::new(law) };
        let mut old = Server::new(under(none()), Timestamp::ZERO);
        old.run(20_000, 3);
        // The signals of the last seconds remain. With the last step the processor is read, as at
        // the start.
        old.run(5001, 0);
        let start = old.now;
        old.gate.switch(old.now, law, None);
        assert_eq!(old.gate.control(), &Control::OPEN);
        (old.controls, old.admitted) = Default::default();
        load(&mut old);

        // The new server gets the same load from its start. Only the time and the fingerprints
        // differ.
        let mut new = Server::new(under(law), Timestamp::ZERO);
        new.next = 0u64.wrapping_add(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(6667));
        // A gate ticks from its first arrival on. A gate that was switched ticks at once.
        new.gate.switch(Timestamp::ZERO, none(), None);
        new.gate.switch(Timestamp::ZERO, law, None);
        load(&mut new);
        assert_eq!(start, Timestamp::ZERO + 25_001 * MS);
        let name = law.entry().name;
        let differs = old.controls.iter().zip(&new.controls).position(|(old, new)| old != new);
        if let Some(at) = differs {
            panic!(
                "{name}, {at} ms: {:?}, on a new server {:?}",
                old.controls[at], new.controls[at]
            );
        }
        assert!(old.admitted == new.admitted, "{name} admits other calls on a new server");
    }
}

#[test]
fn whatever_waits_when_laws_are_switched_is_served_or_rejected_in_its_turn() {
    for decide in [Decide::Arrival, Decide::Service] {
        let mut server = Server::new(Settings { decide, ..Settings::new(none()) }, Timestamp::ZERO);
        for law in laws().chain([pacing(), none()]).cycle().take(40) {
            server.run(700, 3);
            let waits = server.queue.len();
            server.gate.switch(server.now, law, Some(pacing()));
            assert_eq!(server.queue.len(), waits);
        }
        server.gate.switch(server.now, none(), None);
        server.run(5000, 0);
        assert!(server.queue.is_empty());
        let entered = server.admitted.iter().filter(|admitted| **admitted).count() as u64;
        assert_eq!(server.served + server.rejected_late, entered, "{decide:?}");
        let flow = server.gate.signals().flow(Bucket::Session);
        let stale = if decide == Decide::Arrival { flow.stale } else { 0 };
        assert_eq!(flow.offered, flow.admitted + flow.rejected, "{decide:?}");
        assert_eq!(flow.admitted, server.served + stale, "{decide:?}");
        assert_eq!(server.gate.signals().in_progress(Bucket::Session), 0);
        assert!(server.served > 1000);
    }
}

#[test]
fn paced_work_is_released_when_its_law_is_replaced() {
    let mut server = Server::new(Settings::new(pacing()), Timestamp::ZERO);
    server.run(400, 10);
    assert!(server.queue.len() > 10, "a call waits half a second: {}", server.queue.len());
    server.gate.switch(server.now, none(), None);
    assert!(server.gate.may_release());
    server.run(500, 0);
    assert!(server.queue.is_empty());
}

#[test]
fn decisions_outlive_the_law_that_made_them() {
    let closed = find("ohta").unwrap().values(&[("hi_wm", 2.0), ("lo_wm", 1.0)]).unwrap();
    let mut server = Server::new(Settings::new(closed), Timestamp::ZERO);
    let mut offer = |gate: &mut Gate, fingerprint, waiting| {
        server.now = server.now + MS;
        gate.on_arrival(server.now, waiting);
        gate.on_new(server.now, Bucket::Session, 0, Some(fingerprint), true)
    };
    let mut gate = server.gate;
    assert!(matches!(offer(&mut gate, 1, 0), Verdict::Admit(_)));
    assert!(matches!(offer(&mut gate, 2, 2), Verdict::Reject(_)));
    gate.switch(Timestamp::ZERO + 5 * MS, none(), None);
    assert!(matches!(offer(&mut gate, 1, 2), Verdict::Absorb));
    assert!(matches!(offer(&mut gate, 2, 2), Verdict::Reject(tidegate_control::Reason::Again)));
    assert!(matches!(offer(&mut gate, 3, 2), Verdict::Admit(_)));
}

#[test]
fn a_law_that_stays_keeps_what_it_knows() {
    let law = find("pi").unwrap().defaults();
    let mut switched = Server::new(Settings::new(law), Timestamp::ZERO);
    let mut left = Server::new(Settings::new(law), Timestamp::ZERO);
    for _ in 0..30 {
        switched.run(100, 2);
        left.run(100, 2);
        switched.gate.switch(switched.now, law, None);
    }
    assert_eq!(switched.controls, left.controls);
    let cold = find("pi").unwrap().values(&[("c_t", 0.9)]).unwrap();
    switched.gate.switch(switched.now, cold, None);
    assert_eq!((switched.gate.control(), switched.gate.law()), (&Control::OPEN, &cold));
    assert_ne!(left.gate.control(), &Control::OPEN);
}

/// A law that began cold would admit the whole flood until it has measured for a while.
#[test]
fn tide_with_other_parameters_keeps_what_it_has_measured() {
    let tide = find("tide").unwrap();
    let window = |control: &Control| match control.admit(Bucket::Session) {
        Allowance::Window(size) => size,
        other => panic!("{other:?}"),
    };
    let mut server = Server::new(Settings::new(tide.defaults()), Timestamp::ZERO);
    server.run(3000, 2);
    let before = server.gate.control().clone();
    let longer = tide.values(&[("wait_min", 0.06)]).unwrap();
    server.gate.switch(server.now, longer, None);
    assert_eq!((server.gate.control(), server.gate.law()), (&before, &longer));
    server.controls.clear();
    server.run(1000, 2);
    // The window grows to 60 ms of work, from 50 ms.
    let windows: Vec<_> = server.controls.iter().map(window).collect();
    let [before, after] = [window(&before), window(server.gate.control())];
    assert!(after > 1.1 * before, "{before} {after}");
    assert!(windows.iter().all(|size| *size < 1.3 * before), "{before} {windows:?}");
}

#[test]
fn no_shadow_changes_what_the_law_in_force_decides() {
    for law in laws() {
        let run = |shadow| {
            let settings = Settings { shadow, ..Settings::new(law) };
            let mut server = Server::new(settings, Timestamp::ZERO);
            load(&mut server);
            (server.admitted, server.controls)
        };
        let alone = run(None);
        for shadow in laws().chain([pacing()]) {
            let (law, shadow_name) = (law.entry().name, shadow.entry().name);
            assert!(run(Some(shadow)) == alone, "{law} with the shadow of {shadow_name}");
        }
    }
}

#[test]
fn a_law_in_its_own_shadow_agrees_with_itself() {
    for (law, decide) in laws().flat_map(|law| [(law, Decide::Arrival), (law, Decide::Service)]) {
        let settings = Settings { shadow: Some(law), decide, ..Settings::new(law) };
        let mut server = Server::new(settings, Timestamp::ZERO);
        load(&mut server);
        let Compared { both, only_real, only_shadow, neither } = server.compared();
        let flow = server.gate.signals().flow(Bucket::Session);
        assert_eq!((both, neither), (flow.admitted, flow.rejected), "{law:?}, {decide:?}");
        assert_eq!((only_real, only_shadow), (0, 0), "{law:?}, {decide:?}");
        let shares = Bucket::ALL.map(|bucket| server.gate.share_of_shadow(bucket));
        assert_eq!(shares, Bucket::ALL.map(|bucket| Some(server.gate.share(bucket))));
    }
}

#[test]
fn each_piece_of_work_is_compared_once_and_a_shadow_can_come_and_go() {
    let strict = find("ohta").unwrap().values(&[("hi_wm", 2.0), ("lo_wm", 1.0)]).unwrap();
    let mut server = Server::new(Settings::new(none()), Timestamp::ZERO);
    server.run(2000, 3);
    assert!(
        server.gate.shadow().is_none() && server.gate.share_of_shadow(Bucket::Session).is_none()
    );
    server.gate.switch(server.now, none(), Some(strict));
    let before = server.admitted.len();
    server.run(1000, 3);
    let compared = server.compared();
    let offered = (server.admitted.len() - before) as u64;
    assert_eq!((compared.both + compared.only_real, compared.neither), (offered, 0));
    assert!(compared.only_real > offered / 2, "the queue is long: {compared:?}");
    assert_eq!(server.gate.share_of_shadow(Bucket::Session), Some(0.0));
    // The shadow does not affect the law in force. It stays when the law in force is replaced.
    server.gate.switch(server.now, pacing(), Some(strict));
    assert_eq!(server.compared(), compared);
    server.gate.switch(server.now, pacing(), None);
    assert!(server.gate.shadow().is_none());
}
