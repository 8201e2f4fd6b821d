use super::*;

const PERIOD: Duration = Duration::from_millis(100);
/// Costs of a call with state and without: 1 and 0.6 ms.
const COSTS: [f64; 2] = [1e-3, 0.6e-3];
/// The class of all messages.
const CLASS: u8 = 0;

/// A server with a queue. It serves 1000 calls a second with state, and each call is one message.
struct Server {
    tiers: Tiers,
    /// Costs of a call in each tier.
    costs: [f64; 2],
    processor: Reading,
    /// Seconds of waiting work.
    backlog: f64,
    /// The fraction of the next call that is already due.
    due: f64,
    /// True if a law rejects at once the calls for which the processor has no time.
    rejects: bool,
    aimed_at: Option<f64>,
}

impl Server {
    fn new() -> Self {
        Self {
            tiers: Tiers::new(TierSettings::default()),
            costs: COSTS,
            processor: Reading::default(),
            backlog: 0.0,
            due: 0.0,
            rejects: false,
            aimed_at: None,
        }
    }

    /// Runs the server for `seconds`, at `load` times its capacity with state. Returns the share
    /// after each period.
    fn run(&mut self, seconds: f64, load: f64) -> Vec<f64> {
        let periods = (seconds / PERIOD.as_secs_f64()).round() as u32;
        (0..periods).map(|_| self.period(load)).collect()
    }

    fn period(&mut self, load: f64) -> f64 {
        let length = PERIOD.as_secs_f64();
        self.due += load * 1000.0 * length;
        while self.due >= 1.0 {
            self.due -= 1.0;
            if self.rejects && self.backlog > length {
                self.tiers.on_rejected();
                continue;
            }
            let tier = self.tiers.choose(true);
            let cost = self.costs[tier as usize];
            self.tiers.on_served(CLASS);
            self.tiers.on_completion(CLASS, tier, Duration::from_secs_f64(cost));
            self.backlog += cost;
        }
        let worked = self.backlog.min(length);
        self.backlog -= worked;
        self.processor.at = self.processor.at + PERIOD;
        self.processor.occupied += Duration::from_secs_f64(worked);
        let waiting = (self.backlog / self.costs[0]) as usize;
        self.tiers.on_reading(self.processor, waiting, self.aimed_at);
        self.tiers.stateful_share()
    }

    /// Returns the settled occupancy at `load` times the capacity with state.
    fn settled(&mut self, load: f64) -> f64 {
        self.run(20.0, load);
        let before = self.processor;
        self.run(10.0, load);
        self.processor.occupancy_since(before).unwrap()
    }
}

#[test]
fn below_its_target_all_calls_are_served_with_state() {
    let mut server = Server::new();
    assert!(server.run(30.0, 0.8).into_iter().all(|share| share == 1.0));
    let first = (0..10).map(|_| server.tiers.choose(true));
    assert!(first.into_iter().all(|tier| tier == Tier::Stateful));
}

#[test]
fn under_load_as_many_calls_get_state_as_the_processor_allows() {
    // These loads lie between 0.85 of the capacity with state and 0.85 of the capacity without. The
    // share keeps the occupancy at its target.
    for (load, expected) in [(0.9, 0.86), (1.0, 0.625), (1.2, 0.27), (1.4, 0.017)] {
        let mut server = Server::new();
        let occupancy = server.settled(load);
        assert!((0.79..=0.855).contains(&occupancy), "{load}: {occupancy}");
        let share = server.tiers.stateful_share();
        assert!((expected - 0.13..=expected + 0.01).contains(&share), "{load}: {share}");
    }
    for load in [1.45, 1.6, 5.0] {
        let mut server = Server::new();
        server.rejects = true;
        assert!(server.run(30.0, load)[50..].iter().all(|&share| share == 0.0), "{load}");
    }
}

#[test]
fn the_share_reacts_to_an_overload_within_half_a_second_and_nothing_waits_after_one() {
    let mut server = Server::new();
    server.run(10.0, 0.7);
    let shares = server.run(3.0, 1.3);
    assert!(shares[4] < 0.4, "{shares:?}");
    assert_eq!(server.backlog, 0.0);
}

#[test]
fn a_steady_load_has_a_steady_share() {
    for load in [0.9, 1.1, 1.3] {
        let mut server = Server::new();
        server.run(20.0, load);
        let shares = server.run(60.0, load);
        let change: f64 = shares.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
        assert!(change < 0.05, "{load}: {change}");
    }
}

#[test]
fn it_rises_slowly_and_only_when_nothing_has_been_missing_for_a_second() {
    let mut server = Server::new();
    server.run(20.0, 1.4);
    let low = server.tiers.stateful_share();
    let shares = server.run(10.0, 0.5);
    assert_eq!(server.tiers.stateful_share(), 1.0);
    assert!(shares.windows(2).all(|pair| pair[1] - pair[0] <= RISE * 0.1 + 1e-9));
    assert!(low < 0.1 && shares[24] > 0.4, "{shares:?}");

    let mut server = Server::new();
    let fell = server.run(20.0, 2.0).last().copied().unwrap();
    server.tiers.fell = server.processor.at;
    server.backlog = 0.0;
    let shares = server.run(2.0, 0.1);
    let held = shares.iter().take_while(|&&share| share == fell).count();
    assert!((9..=12).contains(&held), "{shares:?}");
}

#[test]
fn while_anything_is_rejected_it_does_not_rise() {
    let mut server = Server::new();
    server.rejects = true;
    server.run(20.0, 5.0);
    server.backlog = 0.0;
    server.rejects = false;
    for _ in 0..50 {
        (0..5).for_each(|_| server.tiers.on_rejected());
        assert_eq!(server.period(0.2), 0.0);
    }
    assert!(server.run(3.0, 0.2).last().unwrap() > &0.1);
}

#[test]
fn the_target_is_below_that_of_the_law() {
    for (aimed_at, expected) in [(None, 0.85), (Some(0.95), 0.85), (Some(0.8), 0.72)] {
        let mut server = Server::new();
        server.aimed_at = aimed_at;
        let occupancy = server.settled(1.0);
        assert!((expected - 0.06..=expected + 0.005).contains(&occupancy), "{occupancy}");
    }
}

#[test]
fn state_that_costs_nothing_is_not_given_up() {
    let mut server = Server::new();
    server.costs = [0.6e-3, 0.6e-3];
    // The load of 1.6 takes 0.96 of the processor: 1,600 calls a second of 0.6 ms.
    let shares = server.run(60.0, 1.6);
    assert!(shares.iter().any(|&share| share < 0.5), "it had to be tried");
    assert_eq!(shares.last(), Some(&1.0));
}

#[test]
fn without_room_for_state_a_call_has_none_whatever_the_share() {
    let mut tiers = Tiers::new(TierSettings::default());
    assert_eq!(tiers.choose(false), Tier::Stateless);
    assert_eq!(tiers.choose(true), Tier::Stateful);
}

#[test]
fn after_a_rest_it_begins_again_with_state() {
    let mut server = Server::new();
    server.run(20.0, 1.4);
    server.backlog = 0.0;
    server.processor.at = server.processor.at + Duration::from_secs(3600);
    assert_eq!(server.period(0.1), 1.0);
}

#[test]
fn with_few_calls_the_share_changes_once_a_second() {
    let mut server = Server::new();
    server.run(20.0, 1.2);
    let before = server.tiers.stateful_share();
    // At 20 calls a second, there are enough calls only after each second.
    let shares = server.run(10.0, 0.02);
    let steps = shares.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(steps <= 8 && shares.last() > Some(&before), "{shares:?}");
}

#[test]
#[should_panic(expected = "occupancy_max: 0.0")]
fn an_occupancy_max_of_zero_is_a_bug() {
    Tiers::new(TierSettings { occupancy_max: 0.0, ..TierSettings::default() });
}
