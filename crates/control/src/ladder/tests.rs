use std::collections::{BTreeMap, VecDeque};

use tidegate_world::{Purpose, Seed, Stream};

use super::*;

const INVITE: DroppableMethod = DroppableMethod::Invite;
const TICK: Duration = Duration::from_millis(1);
/// Costs of a call and of a rejection in seconds of processor time. The capacity is 2,000 calls a
/// second, and at ten times the capacity rejecting takes the whole processor.
const SERVICE: f64 = 0.000_5;
const REJECTION: f64 = 0.000_05;
const CAPACITY: f64 = 1.0 / SERVICE;
/// Cost of a rejection if many rejections have the same length.
const PADDED: f64 = 0.000_035;
/// Packets that fit in the receive buffer.
const BUFFER: usize = 2_000;
/// Number of calls that may be admitted at the same time.
const QUEUE: usize = 20;
/// The mark of packets that are never dropped.
const EXEMPT: f64 = 2.0;
/// The mark of packets that are all alike. It passes even if the share is as high as possible.
const ALIKE: f64 = 0.999_5;
/// RFC 3261 §17.1.1.2: the ticks, counted from the first packet, at which an INVITE is
/// retransmitted.
const REPEATS: [u64; 6] = [500, 1_500, 3_500, 7_500, 15_500, 31_500];

/// A server with callers. Its law admits exactly the capacity, and the server reads all arrivals
/// before it serves.
struct Plant {
    ladder: Option<Ladder>,
    /// True if callers without an answer retransmit.
    repeats: bool,
    /// True if each packet is dropped by chance. Otherwise all packets of a caller are dropped, or
    /// none.
    by_chance: bool,
    /// Additional load of packets that are never dropped, as a multiple of the capacity.
    exempt: f64,
    /// Load of packets that all have one mark and are not recognised as copies, as a multiple of
    /// the capacity. The mark nearly always passes.
    alike: f64,
    /// The measured part of the cost of reading and rejecting.
    measured: f64,
    tick: u64,
    owed: f64,
    owed_exempt: f64,
    owed_alike: f64,
    /// Packets by the tick at which they are sent.
    unheard: BTreeMap<u64, Vec<Packet>>,
    /// Packets in the receive buffer.
    buffer: VecDeque<Packet>,
    waiting: usize,
    /// Work that remains for the current call, and work that was done in excess of the time of a
    /// tick.
    left: f64,
    overdrawn: f64,
    occupied: f64,
    service: f64,
    served: u64,
    /// Number of served calls whose first packet was admitted.
    in_time: u64,
    changes: u64,
    /// Packets dropped on purpose.
    filtered: u64,
    tally: Tally,
    chance: Stream,
}

/// An INVITE that was already sent `before` times, and the mark that decides whether it is dropped.
/// The mark is above 1 if the INVITE is never dropped.
struct Packet {
    before: usize,
    mark: f64,
}

fn number_of(mark: f64) -> u32 {
    (mark * f64::from(u32::MAX)) as u32
}

impl Plant {
    fn new(ladder: Option<Ladder>) -> Self {
        Self {
            ladder,
            repeats: true,
            by_chance: false,
            exempt: 0.0,
            alike: 0.0,
            measured: 1.0,
            tick: 0,
            owed: 0.0,
            owed_exempt: 0.0,
            owed_alike: 0.0,
            unheard: BTreeMap::new(),
            buffer: VecDeque::new(),
            waiting: 0,
            left: 0.0,
            overdrawn: 0.0,
            occupied: 0.0,
            service: 0.0,
            served: 0,
            in_time: 0,
            changes: 0,
            filtered: 0,
            tally: Tally::default(),
            chance: Seed(1).stream(Purpose::Shedding, 0),
        }
    }

    fn with_ladder() -> Self {
        Self::new(Some(Ladder::new(LadderSettings::default())))
    }

    fn ladder(&self) -> &Ladder {
        self.ladder.as_ref().unwrap()
    }

    /// Runs `seconds` at a `multiple` of the capacity. Returns the calls served, as a part of the
    /// capacity.
    fn run(&mut self, multiple: f64, seconds: u64) -> f64 {
        let before = self.served;
        self.pass(multiple, seconds);
        (self.served - before) as f64 / (CAPACITY * seconds as f64)
    }

    /// Like [`run`](Self::run), but returns the calls that were admitted at their first packet.
    fn run_in_time(&mut self, multiple: f64, seconds: u64) -> f64 {
        let before = self.in_time;
        self.pass(multiple, seconds);
        (self.in_time - before) as f64 / (CAPACITY * seconds as f64)
    }

    fn pass(&mut self, multiple: f64, seconds: u64) {
        for _ in 0..seconds * 1_000 {
            self.arrive(multiple);
            self.work();
            self.read();
        }
    }

    /// Runs `ms` milliseconds in which the process gets no processor time.
    fn stall(&mut self, multiple: f64, ms: u64) {
        (0..ms).for_each(|_| self.arrive(multiple));
        self.occupied += ms as f64 / 1_000.0;
    }

    fn arrive(&mut self, multiple: f64) {
        self.tick += 1;
        self.owed += multiple * CAPACITY / 1_000.0;
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            let mark = self.chance.unit();
            self.send(Packet { before: 0, mark });
        }
        self.owed_exempt += self.exempt * CAPACITY / 1_000.0;
        while self.owed_exempt >= 1.0 {
            self.owed_exempt -= 1.0;
            self.send(Packet { before: REPEATS.len(), mark: EXEMPT });
        }
        self.owed_alike += self.alike * CAPACITY / 1_000.0;
        while self.owed_alike >= 1.0 {
            self.owed_alike -= 1.0;
            self.send(Packet { before: REPEATS.len(), mark: ALIKE });
        }
        for repeated in self.unheard.remove(&self.tick).unwrap_or_default() {
            self.send(repeated);
        }
    }

    /// Sends a packet. A caller without an answer retransmits.
    fn send(&mut self, Packet { before, mark }: Packet) {
        let share = self.ladder.as_ref().map_or(0.0, |ladder| ladder.share(INVITE));
        let mark = if self.by_chance && mark < EXEMPT { self.chance.unit() } else { mark };
        let is_hot = |ladder: &Ladder| ladder.hot_marks().any(|hot| hot == number_of(mark));
        if mark < share || self.ladder.as_ref().is_some_and(is_hot) {
            self.filtered += 1;
            self.tally.filtered += 1;
        } else if self.buffer.len() < BUFFER {
            self.buffer.push_back(Packet { before, mark });
            return;
        } else {
            self.tally.overflow += 1;
        }
        if let Some(&next) = REPEATS.get(before).filter(|_| self.repeats) {
            let first = if before == 0 { 0 } else { REPEATS[before - 1] };
            let again = Packet { before: before + 1, mark };
            self.unheard.entry(self.tick - first + next).or_default().push(again);
        }
    }

    /// Counts a packet as fresh or late. Returns whether it is late.
    fn is_late(&mut self, mark: f64) -> bool {
        let Some(ladder) = &self.ladder else { return false };
        if mark > 1.0 {
            return false;
        }
        let is_fresh = ladder.is_fresh(INVITE, number_of(mark));
        ladder.record_mark(number_of(mark), is_fresh.then_some(INVITE));
        *(if is_fresh { &mut self.tally.fresh } else { &mut self.tally.late }) += 1;
        !is_fresh
    }

    fn work(&mut self) {
        let whole = TICK.as_secs_f64() - self.overdrawn;
        let mut time = whole;
        while time > 0.0
            && let Some(packet) = self.buffer.pop_front()
        {
            self.tally.messages += 1;
            self.tally.asked += 1;
            self.tally.datagrams += 1;
            let places = if self.is_late(packet.mark) { QUEUE / 4 } else { QUEUE };
            if self.waiting < places {
                self.waiting += 1;
                self.in_time += u64::from(packet.before == 0);
            } else {
                self.tally.rejected += 1;
                let padded = self.ladder.as_ref().is_some_and(Ladder::pads);
                time -= if padded { PADDED } else { REJECTION };
            }
        }
        let beside = whole - time;
        while time > 0.0 && (self.left > 0.0 || self.waiting > 0) {
            if self.left <= 0.0 {
                self.waiting -= 1;
                self.tally.taken += 1;
                self.left = SERVICE;
            }
            let spent = self.left.min(time);
            (self.left, time) = (self.left - spent, time - spent);
            self.service += spent;
            self.occupied += spent;
            self.served += u64::from(self.left <= 0.0);
        }
        self.overdrawn = (-time).max(0.0);
        self.occupied += beside * self.measured;
    }

    fn read(&mut self) {
        let Some(ladder) = &mut self.ladder else { return };
        self.tally.occupied = Duration::from_secs_f64(self.occupied);
        self.tally.cpu = self.tally.occupied;
        self.tally.served = Duration::from_secs_f64(self.service);
        let before = ladder.share(INVITE);
        ladder.on_reading(Timestamp::ZERO + TICK * self.tick as u32, self.tally);
        self.changes += u64::from(ladder.share(INVITE) != before);
    }
}

/// Returns the ladder after `seconds` at a server that serves for 0.2 of the time. `beside_ms` is
/// the other processor time in a second, including that of handshakes. Half of the messages are
/// rejections or their acknowledgements.
fn after_rejections(
    mut ladder: Ladder,
    seconds: u32,
    beside_ms: u64,
    handshakes_ms: u64,
) -> Ladder {
    let mut tally = Tally::default();
    for period in 0..=10 * seconds {
        ladder.on_reading(Timestamp::ZERO + period * Duration::from_millis(100), tally);
        tally.messages += 400;
        tally.asked += 150;
        tally.fresh += 150;
        tally.rejected += 100;
        tally.brought += 100;
        tally.occupied += Duration::from_micros(100 * (200 + beside_ms));
        tally.served += Duration::from_millis(20);
        tally.apart += Duration::from_micros(100 * handshakes_ms);
    }
    ladder
}

#[test]
fn it_trips_just_above_the_budget_by_what_rejections_and_their_acknowledgements_take() {
    let after = |seconds, beside_ms| {
        let ladder = Ladder::new(LadderSettings { budget: 0.4, ..LadderSettings::default() });
        let ladder = after_rejections(ladder, seconds, beside_ms, 0);
        let cost = ladder.rejection_cost().unwrap().as_secs_f64() * 1e6;
        (ladder.rung(), (100.0 * ladder.load()).round(), cost.round())
    };
    assert_eq!(after(20, 780), (Rung::Reject, 39.0, 390.0));
    assert_eq!(after(4, 820), (Rung::Reject, 41.0, 410.0), "within 50 ms of the budget");
    assert_eq!(after(6, 820), (Rung::Drop, 41.0, 410.0));
}

/// A storm of TLS handshakes is no reason to drop calls.
#[test]
fn the_time_of_handshakes_is_not_charged_to_rejections() {
    let rung_after = |handshakes_ms| {
        let ladder = Ladder::new(LadderSettings::default());
        let ladder = after_rejections(ladder, 10, 100 + handshakes_ms, handshakes_ms);
        (ladder.rung(), (100.0 * ladder.load()).round())
    };
    assert_eq!(rung_after(0), (Rung::Reject, 5.0));
    assert_eq!(rung_after(250), rung_after(0));
}

#[test]
fn at_twenty_times_the_capacity_nearly_all_of_the_goodput_stays() {
    let mut without = Plant::new(None);
    without.run(20.0, 3);
    assert!(without.run(20.0, 5) < 0.02);
    for (repeats, by_chance) in [(true, false), (true, true), (false, false)] {
        let mut plant = Plant { repeats, by_chance, ..Plant::with_ladder() };
        plant.run(20.0, 3);
        let goodput = plant.run(20.0, 10);
        assert!(goodput > 0.85, "{goodput}, repeats: {repeats}, by chance: {by_chance}");
        assert_eq!(plant.ladder().rung(), Rung::Drop);
    }
}

#[test]
fn work_is_rejected_within_the_budget() {
    let mut plant = Plant::with_ladder();
    // Rejecting takes 0.11 of the processor. Here it costs nothing to read admitted packets, but a
    // part of the cost is attributed to them. So 0.06 is measured.
    let goodput = plant.run(2.0, 20);
    assert_eq!((plant.ladder().rung(), plant.filtered, plant.changes), (Rung::Reject, 0, 0));
    assert!(goodput > 0.85 && plant.ladder().load() > 0.05, "{goodput}");
}

#[test]
fn answers_are_padded_before_anything_is_dropped_and_as_long_as_it_helps() {
    let padding = LadderSettings { pads: true, ..LadderSettings::default() };
    let mut plant = Plant::new(Some(Ladder::new(padding)));
    plant.run(1.5, 5);
    assert_eq!((plant.ladder().rung(), plant.ladder().pads()), (Rung::Reject, false));
    plant.run(2.0, 20);
    assert_eq!((plant.ladder().rung(), plant.filtered), (Rung::Pad, 0));
    // Unpadded, rejecting would seem to take 0.036 of the processor, less than half of the budget.
    plant.run(1.7, 20);
    assert_eq!((plant.ladder().rung(), plant.filtered), (Rung::Pad, 0));
    plant.run(20.0, 5);
    assert_eq!((plant.ladder().rung(), plant.ladder().pads()), (Rung::Drop, true));
    plant.run(1.1, 90);
    assert_eq!((plant.ladder().rung(), plant.ladder().pads()), (Rung::Reject, false));
}

/// Gives the ladder a period with 60 calls to serve and 140 to reject, which take half of the
/// processor.
fn pass_half_busy(ladder: &mut Ladder, tally: &mut Tally, at: Timestamp) {
    let passes = 1.0 - ladder.share(INVITE);
    let [served, rejected] = [60.0, 140.0].map(|count| (count * passes).round() as u64);
    tally.messages += 7 * served + 2 * rejected;
    tally.asked += served + rejected;
    tally.fresh += served + rejected;
    tally.taken += served;
    tally.rejected += rejected;
    tally.brought += rejected;
    tally.filtered += 200 - served - rejected;
    tally.occupied += Duration::from_micros(500 * served + 145 * rejected);
    tally.cpu = tally.occupied;
    tally.served += Duration::from_micros(300 * served);
    ladder.on_reading(at, *tally);
}

#[test]
fn a_server_that_was_never_full_is_not_a_server_without_capacity() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let millisecond = Duration::from_millis(1);
    let mut tally = Tally { occupied: millisecond, cpu: millisecond, ..Tally::default() };
    ladder.on_reading(Timestamp::ZERO, Tally::default());
    ladder.on_reading(Timestamp::ZERO + Duration::from_secs(1), tally);
    for period in 1..=50u32 {
        let at = Duration::from_secs(1) + period * Duration::from_millis(100);
        pass_half_busy(&mut ladder, &mut tally, Timestamp::ZERO + at);
    }
    assert_eq!(ladder.share(INVITE), 0.0, "half of the processor is idle");
}

#[test]
fn a_server_that_rejected_everything_while_it_was_full_regains_its_capacity() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally::default();
    ladder.on_reading(Timestamp::ZERO, tally);
    // A period in which the processor was busy, but took no call.
    (tally.messages, tally.asked, tally.fresh, tally.rejected) = (10, 10, 10, 10);
    (tally.occupied, tally.cpu) = (Duration::from_millis(100), Duration::from_millis(100));
    ladder.on_reading(Timestamp::ZERO + Duration::from_millis(100), tally);
    for period in 2..=300u32 {
        let at = period * Duration::from_millis(100);
        pass_half_busy(&mut ladder, &mut tally, Timestamp::ZERO + at);
    }
    // Rejecting takes more than the budget even now.
    let share = ladder.share(INVITE);
    assert!(share < 0.3, "{share}, but half of the processor is idle");
}

/// A process may use a fifth of a core. It is busy for two seconds, and then works fast and stands
/// still: it is idle for 30 % of each period, and uses `cpu_ms` of its 20 ms of CPU time.
#[test]
fn idle_time_is_no_capacity_if_the_quota_is_used_up() {
    let share_after = |cpu_ms: u64| {
        let mut ladder = Ladder::new(LadderSettings::default());
        let mut tally = Tally::default();
        for period in 0..60u32 {
            ladder.on_reading(Timestamp::ZERO + period * Duration::from_millis(100), tally);
            let is_busy = period < 20;
            let passes = |count: f64| (count * (1.0 - ladder.share(INVITE))).round() as u64;
            let (asked, taken) = (passes(200.0), passes(200.0).min(100));
            tally.messages += 6 * taken + 2 * (asked - taken);
            tally.asked += asked;
            tally.fresh += asked;
            tally.taken += taken;
            tally.rejected += asked - taken;
            tally.brought += asked - taken;
            tally.filtered += 200 - asked;
            tally.occupied += Duration::from_millis(if is_busy { 100 } else { 70 });
            tally.served += Duration::from_millis(if is_busy { 40 } else { 20 });
            tally.cpu += Duration::from_millis(if is_busy { 20 } else { cpu_ms });
        }
        ladder.share(INVITE)
    };
    let (used_up, unused) = (share_after(20), share_after(8));
    assert!(used_up > 0.3 && unused < 0.2, "{used_up}, {unused}");
}

#[test]
fn where_nothing_can_be_dropped_everything_is_answered() {
    let settings = LadderSettings { pads: true, drops: false, ..LadderSettings::default() };
    let mut plant = Plant::new(Some(Ladder::new(settings)));
    plant.run(20.0, 10);
    assert_eq!((plant.ladder().rung(), plant.filtered), (Rung::Pad, 0));
    let unpadded = LadderSettings { pads: false, ..settings };
    let mut plant = Plant::new(Some(Ladder::new(unpadded)));
    plant.run(20.0, 10);
    assert_eq!((plant.ladder().rung(), plant.ladder().pads()), (Rung::Reject, false));
    assert_eq!(plant.filtered, 0);
}

#[test]
fn nothing_is_dropped_or_late_while_the_kernel_rejects_to_drop() {
    let mut plant = Plant::with_ladder();
    plant.run(20.0, 10);
    let ladder = plant.ladder.as_mut().unwrap();
    assert!(ladder.share(INVITE) > 0.5);
    ladder.set_drops(false);
    assert_eq!((ladder.rung(), ladder.share(INVITE)), (Rung::Reject, 0.0));
    assert!(!ladder.tells_marks());
    let filtered = plant.filtered;
    plant.run(20.0, 10);
    assert_eq!((plant.ladder().rung(), plant.filtered), (Rung::Reject, filtered));
    plant.ladder.as_mut().unwrap().set_drops(true);
    plant.run(20.0, 1);
    assert!(plant.ladder().share(INVITE) > 0.5, "{}", plant.ladder().share(INVITE));
}

#[test]
fn retransmissions_caused_by_kernel_drops_do_not_prolong_them() {
    for by_chance in [false, true] {
        let mut plant = Plant { by_chance, ..Plant::with_ladder() };
        plant.run(20.0, 10);
        assert_eq!(plant.ladder().rung(), Rung::Drop);
        // A fiftieth of the processor is enough to reject every caller once, but not seven times.
        // Callers of the flood retransmit for half a minute.
        plant.run(1.2, 75);
        let (rung, share) = (plant.ladder().rung(), plant.ladder().share(INVITE));
        assert_eq!((rung, share), (Rung::Reject, 0.0), "by chance: {by_chance}");
        let filtered = plant.filtered;
        plant.run(1.2, 10);
        assert_eq!(plant.filtered, filtered);
    }
}

#[test]
fn in_a_long_flood_the_admitted_callers_are_in_time() {
    for multiple in [3.0, 10.0, 40.0] {
        let mut plant = Plant::with_ladder();
        plant.run(multiple, 40);
        let goodput = plant.run_in_time(multiple, 30);
        assert!(goodput > 0.85, "{goodput} of the capacity at {multiple} times it");
    }
}

#[test]
fn a_flood_that_grows_and_shrinks_does_not_fill_the_server_with_late_callers() {
    let mut plant = Plant::with_ladder();
    let mut in_time = 0.0;
    for _ in 0..4 {
        plant.run(20.0, 15);
        plant.run(5.0, 2);
        in_time += plant.run_in_time(5.0, 13) / 4.0;
    }
    assert!(in_time > 0.6, "{in_time}");
}

#[test]
fn a_flood_that_no_share_applies_to_does_not_silence_the_others() {
    for exempt in [1.3, 2.5, 4.0] {
        let mut plant = Plant { exempt, ..Plant::with_ladder() };
        plant.run(0.5, 20);
        let filtered = plant.filtered;
        plant.run(0.5, 10);
        let dropped = (plant.filtered - filtered) as f64 / (10.0 * 0.5 * CAPACITY);
        // Each caller that is dropped sends seven packets.
        assert!(dropped < 7.0 * 0.8, "{dropped} of the packets are dropped, {exempt}");
        assert!(plant.ladder().share(INVITE) < 0.8, "{} {exempt}", plant.ladder().share(INVITE));
    }
    let mut plant = Plant { exempt: 4.0, ..Plant::with_ladder() };
    plant.run(0.1, 10);
    let filtered = plant.filtered;
    plant.run(0.1, 30);
    assert_eq!(plant.filtered, filtered, "dropping them does not make the flood cheaper");
}

#[test]
fn a_flood_of_packets_with_one_mark_is_dropped_and_no_one_else() {
    let mut plant = Plant { alike: 4.0, ..Plant::with_ladder() };
    plant.run(0.8, 5);
    let goodput = plant.run_in_time(0.8, 15);
    assert!(goodput > 0.79, "{goodput}");
    assert_eq!(plant.ladder().share(INVITE), 0.0);
    assert!(plant.ladder().hot_marks().eq([number_of(ALIKE)]));
}

#[test]
fn after_a_flood_everything_is_served_again() {
    let mut plant = Plant { repeats: false, ..Plant::with_ladder() };
    plant.run(20.0, 10);
    plant.run(0.5, 1);
    let filtered = plant.filtered;
    let goodput = plant.run(0.5, 10);
    assert!((goodput - 0.5).abs() < 0.01, "{goodput}");
    assert_eq!(plant.filtered, filtered);
    assert_eq!(plant.ladder().rung(), Rung::Reject);
}

#[test]
fn while_nothing_comes_it_wants_to_be_read_until_it_is_down() {
    let mut plant = Plant { repeats: false, ..Plant::with_ladder() };
    plant.run(20.0, 5);
    assert!(plant.ladder().share(INVITE) > 0.9);
    let ladder = plant.ladder.as_mut().unwrap();
    let mut readings = 0;
    while let Some(due) = ladder.poll_timeout() {
        ladder.on_reading(due, plant.tally);
        readings += 1;
        assert!(readings <= 30);
    }
    assert_eq!((ladder.rung(), ladder.share(INVITE)), (Rung::Reject, 0.0));
}

#[test]
fn overflowing_buffers_cause_kernel_drops_even_if_rejecting_seems_cheap() {
    let mut plant = Plant { measured: 0.05, ..Plant::with_ladder() };
    plant.run(20.0, 5);
    let goodput = plant.run(20.0, 10);
    assert_eq!(plant.ladder().rung(), Rung::Drop);
    assert!(plant.ladder().share(INVITE) > 0.3, "{}", plant.ladder().share(INVITE));
    let (lost, read) = (plant.tally.overflow, plant.tally.asked);
    assert!(lost < read, "{lost} lost, {read} read, goodput {goodput}");
}

/// A process that stood still sees the overflow before it reads its buffers.
#[test]
fn a_standstill_hardly_changes_the_number_of_arrivals_for_each_message_that_is_read() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally::default();
    let after = |ladder: &mut Ladder, tally: &mut Tally, at_ms: u64, read: u64, lost: u64| {
        (tally.asked, tally.datagrams) = (tally.asked + read, tally.datagrams + read);
        tally.overflow += lost;
        ladder.on_reading(Timestamp::ZERO + Duration::from_millis(at_ms), *tally);
        ladder.arrived_per_read()
    };
    for period in 0..20 {
        assert_eq!(after(&mut ladder, &mut tally, 100 * period, 200, 0), 1.0);
    }
    let stood_still = after(&mut ladder, &mut tally, 4_900, 0, 4_000);
    assert!((1.0..2.0).contains(&stood_still), "{stood_still}");
    // Now three of four messages are lost. Messages in streams do not count.
    let floods = |period: u64| {
        tally.asked += 10_000;
        after(&mut ladder, &mut tally, 5_000 + 100 * period, 1_000, 3_000)
    };
    let last = (0..30).map(floods).last().unwrap();
    assert!((last - 4.0).abs() < 0.01, "{last}");
}

#[test]
fn the_ladder_is_alert_from_the_first_overflow_until_nothing_is_dropped() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally { asked: 100, datagrams: 100, fresh: 100, ..Tally::default() };
    ladder.on_reading(Timestamp::ZERO, tally);
    let at = |ms: u64| Timestamp::ZERO + Duration::from_millis(ms);
    ladder.on_reading(at(2), tally);
    assert!(!ladder.is_alert());
    tally.overflow += 100;
    ladder.on_reading(at(4), tally);
    assert!(ladder.is_alert() && ladder.rung() == Rung::Reject);
    ladder.on_reading(at(100), tally);
    assert!(ladder.is_alert() && ladder.rung() == Rung::Drop);
    while ladder.rung() == Rung::Drop {
        assert!(ladder.is_alert());
        ladder.on_reading(ladder.poll_timeout().unwrap(), tally);
    }
    assert!(!ladder.is_alert());
    ladder.set_drops(false);
    tally.overflow += 100;
    ladder.on_reading(at(60_000), tally);
    assert!(!ladder.is_alert(), "nothing can be dropped");
}

/// Each mark of this flood has so few packets that it is not hot, because each packet may be
/// another call.
#[test]
fn a_flood_of_copies_with_many_marks_is_dropped() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally::default();
    let mut read = Vec::new();
    for period in 0..50u32 {
        ladder.on_reading(Timestamp::ZERO + period * Duration::from_millis(100), tally);
        let (mut passing, mut filtered) = (0, 0);
        for call in 0..200 {
            let mark = number_of(f64::from(call) / 200.0);
            let is_hot = ladder.hot_marks().any(|hot| hot == mark);
            if f64::from(call) / 200.0 < ladder.share(INVITE) || is_hot {
                filtered += 50;
                continue;
            }
            // A fifth of the packets finds room. They are copies from a heavy source.
            passing += 10;
            let is_fresh = ladder.is_fresh(INVITE, mark);
            (0..10).for_each(|_| ladder.record_mark(mark, is_fresh.then_some(INVITE)));
            *(if is_fresh { &mut tally.fresh } else { &mut tally.late }) += 10;
        }
        tally.messages += passing;
        (tally.asked, tally.datagrams) = (tally.asked + passing, tally.datagrams + passing);
        tally.filtered += filtered;
        tally.overflow += 4 * passing;
        read.push(passing);
    }
    assert!(read[0] == 2_000 && read[20..].iter().all(|&count| count < 500), "{read:?}");
}

#[test]
fn drops_that_do_not_cease_when_less_passes_do_not_silence_everybody() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally::default();
    let mut shares = 0.0;
    for period in 0..300u32 {
        ladder.on_reading(Timestamp::ZERO + period * Duration::from_millis(100), tally);
        let read = (20.0 * (1.0 - ladder.share(INVITE))).round() as u64;
        tally.messages += 140;
        (tally.asked, tally.fresh, tally.taken) =
            (tally.asked + read, tally.fresh + read, tally.taken + read);
        tally.filtered += 20 - read;
        tally.overflow += 3;
        tally.occupied += Duration::from_millis(10);
        tally.served += Duration::from_millis(6);
        assert!(ladder.share(INVITE) < 0.5, "{}", ladder.share(INVITE));
        shares += ladder.share(INVITE) / 300.0;
    }
    assert!(shares > 0.0 && shares < 0.1, "{shares} of the INVITEs are dropped");
}

/// A server with a small part of a core reads few messages at once. So all messages may wait for
/// long although rejecting takes little time and no buffer overflows.
#[test]
fn less_passes_while_all_messages_wait_for_long() {
    let share_after = |wait_ms: u32| {
        let mut ladder = Ladder::new(LadderSettings::default());
        let mut tally = Tally::default();
        for period in 0..20u32 {
            ladder.on_reading(Timestamp::ZERO + period * Duration::from_millis(100), tally);
            (0..10).for_each(|_| ladder.record_wait(true, TICK * wait_ms));
            let passing = (160.0 * (1.0 - ladder.share(INVITE))) as u64;
            let (read, taken) = (passing.min(120), passing.min(98));
            tally.messages += read;
            tally.asked += read;
            tally.datagrams += read;
            tally.fresh += read;
            tally.taken += taken;
            tally.rejected += read - taken;
            tally.filtered += 160 - passing;
            // The overflow of the first period leads to the third rung.
            tally.overflow += 100 * u64::from(period == 0);
            tally.served += TICK * taken as u32;
            tally.occupied += TICK * taken as u32 + TICK / 10 * (read - taken) as u32;
            tally.cpu = tally.occupied;
        }
        ladder.share(INVITE)
    };
    assert_eq!(share_after(50), 0.0);
    let share = share_after(400);
    assert!((0.4..0.75).contains(&share), "{share}");
}

/// While a backlog is read, more packets are read than arrive.
#[test]
fn reading_a_backlog_does_not_look_like_a_higher_rate() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally::default();
    for period in 0..20u32 {
        ladder.on_reading(Timestamp::ZERO + period * Duration::from_millis(100), tally);
        let is_draining = period >= 10;
        let wait = TICK * if is_draining { 100 * (20 - period) } else { 1_000 };
        (0..10).for_each(|_| ladder.record_wait(true, wait));
        for count in [&mut tally.messages, &mut tally.asked, &mut tally.datagrams, &mut tally.fresh]
        {
            *count += if is_draining { 200 } else { 100 };
        }
        tally.occupied += Duration::from_millis(100);
    }
    let rate = ladder.measurements.incoming.arrivals[INVITE as usize].per_second();
    assert!((900.0..1_100.0).contains(&rate), "{rate}");
}

/// A server that serves for a whole period reads nothing in it, and few datagrams find no room.
#[test]
fn a_period_in_which_only_service_took_place_does_not_silence_the_callers() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally::default();
    for period in 0..60u32 {
        ladder.on_reading(Timestamp::ZERO + period * Duration::from_millis(100), tally);
        if period % 2 == 0 {
            let passing = (300.0 * (1.0 - ladder.share(INVITE))) as u64;
            for count in [&mut tally.messages, &mut tally.asked, &mut tally.datagrams] {
                *count += passing;
            }
            tally.fresh += passing;
            tally.filtered += 300 - passing;
        } else {
            tally.overflow += 5;
            tally.taken += 100;
            tally.served += Duration::from_millis(100);
        }
        tally.occupied += Duration::from_millis(100);
        tally.cpu += Duration::from_millis(100);
    }
    assert!(ladder.share(INVITE) < 0.8, "{}", ladder.share(INVITE));
}

#[test]
fn a_period_in_which_nothing_was_read_is_longer_if_the_processor_was_occupied() {
    for (occupied, length) in [(100, 500), (50, 100)] {
        let mut ladder = Ladder::new(LadderSettings::default());
        let mut tally = Tally::default();
        let at = |ms: u32| Timestamp::ZERO + ms * TICK;
        ladder.on_reading(at(0), tally);
        (tally.asked, tally.datagrams, tally.overflow) = (100, 100, 100);
        ladder.on_reading(at(100), tally);
        assert_eq!((ladder.rung(), ladder.poll_timeout()), (Rung::Drop, Some(at(200))));
        tally.occupied += occupied * TICK;
        ladder.on_reading(at(200), tally);
        let since = if length == 100 { 200 } else { 100 };
        assert_eq!(ladder.poll_timeout(), Some(at(since + length)));
    }
}

#[test]
fn a_standstill_is_forgotten_within_seconds() {
    let mut plant = Plant::with_ladder();
    plant.run(0.8, 5);
    plant.stall(0.8, 3_000);
    plant.run(0.8, 15);
    assert_eq!((plant.ladder().rung(), plant.ladder().share(INVITE)), (Rung::Reject, 0.0));
    let goodput = plant.run(0.8, 5);
    // Callers that found no room retry as well.
    assert!(goodput > 0.79, "{goodput}");
}

#[test]
fn a_steady_load_changes_the_share_rarely() {
    let mut plant = Plant { repeats: false, ..Plant::with_ladder() };
    plant.run(20.0, 5);
    let changes = plant.changes;
    plant.run(20.0, 20);
    assert!(plant.changes - changes < 10, "{} in 200 periods", plant.changes - changes);
}

#[test]
fn the_share_stays_below_one_with_any_readings() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally::default();
    let mut chance = Seed(3).stream(Purpose::Shedding, 0);
    for step in 0..20_000u32 {
        let grow = |chance: &mut Stream| chance.below(4) * chance.below(1 << 20);
        tally.messages += grow(&mut chance);
        tally.asked += grow(&mut chance);
        tally.rejected += grow(&mut chance);
        tally.taken += grow(&mut chance);
        let fresh = grow(&mut chance);
        tally.fresh += fresh;
        tally.fresh_registers += chance.below(fresh + 1);
        tally.late += grow(&mut chance);
        tally.overflow += grow(&mut chance);
        tally.occupied += Duration::from_micros(chance.below(300_000));
        tally.served += Duration::from_micros(chance.below(300_000));
        tally.cpu += Duration::from_micros(chance.below(300_000));
        ladder.on_reading(Timestamp::ZERO + step * Duration::from_millis(100), tally);
        for method in DroppableMethod::ALL {
            assert!((0.0..=0.999).contains(&ladder.share(method)), "{ladder:?}");
        }
    }
}

/// Returns the shares of both methods after 10 s in which these numbers of INVITEs and REGISTERs
/// arrive in each period. In a period the server reads all that pass, and either serves 20 of them
/// or rejects 1,000.
fn shares_beside(arrive: [u64; 2]) -> [f64; 2] {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally::default();
    for period in 0..100 {
        ladder.on_reading(Timestamp::ZERO + period * Duration::from_millis(100), tally);
        let read = DroppableMethod::ALL.map(|method| {
            (arrive[method as usize] as f64 * (1.0 - ladder.share(method))).round() as u64
        });
        let all = read[0] + read[1];
        let rejected = all.saturating_sub(20);
        tally.messages += all + rejected;
        tally.asked += all;
        tally.fresh += all;
        tally.fresh_registers += read[1];
        tally.taken += all - rejected;
        tally.rejected += rejected;
        tally.brought += rejected;
        tally.filtered += arrive[0] + arrive[1] - all;
        let rejecting = Duration::from_micros(100 * rejected).min(Duration::from_millis(90));
        tally.served += Duration::from_millis(100).saturating_sub(rejecting);
        tally.occupied += Duration::from_millis(100);
        tally.cpu += Duration::from_millis(100);
    }
    DroppableMethod::ALL.map(|method| ladder.share(method))
}

/// The overflow of a receive buffer says nothing about messages on connections.
#[test]
fn registers_that_overflow_a_receive_buffer_cost_no_invites_on_connections() {
    let mut ladder = Ladder::new(LadderSettings::default());
    let mut tally = Tally::default();
    for period in 0..20 {
        ladder.on_reading(Timestamp::ZERO + period * Duration::from_millis(100), tally);
        assert_eq!(ladder.share(INVITE), 0.0, "{period}");
        // 20 INVITEs on connections, and 1,000 REGISTERs as datagrams, of which 200 are read.
        tally.messages += 420;
        tally.asked += 220;
        tally.datagrams += 200;
        tally.fresh += 220;
        tally.fresh_registers += 200;
        tally.fresh_on_streams[0] += 20;
        tally.taken += 20;
        tally.rejected += 200;
        tally.brought += 200;
        tally.overflow += 800;
        tally.served += Duration::from_millis(20);
        tally.occupied += Duration::from_millis(100);
        tally.cpu += Duration::from_millis(100);
    }
    assert!(ladder.share(DroppableMethod::Register) > 0.3, "{ladder:?}");
}

/// After an outage, all devices register again at once. This must not cost calls.
#[test]
fn a_flood_of_one_method_costs_no_requests_of_the_other() {
    let [invites, registers] = shares_beside([10, 400]);
    assert!(invites == 0.0 && registers > 0.5, "{invites} {registers}");
    let [invites, registers] = shares_beside([400, 10]);
    assert!(registers == 0.0 && invites > 0.5, "{invites} {registers}");
    // If both flood, three INVITEs pass for each REGISTER. The levels are tenths apart.
    let [invites, registers] = shares_beside([400, 800]).map(|share| 1.0 - share);
    let ratio = 400.0 * invites / (800.0 * registers);
    assert!(invites < 0.5 && (2.0..4.5).contains(&ratio), "{invites} {registers}");
}
