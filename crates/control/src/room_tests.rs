use tidegate_world::{Purpose, Seed};

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(1_000 + ms)
}

/// A server that has places for calls. The last places are the reserve.
struct Plant {
    room: Room,
    free: f64,
    reserve: f64,
    admitted: [u64; 3],
}

impl Plant {
    fn new(free: f64, reserve: f64) -> Self {
        let room = Room::new(16, &mut Seed(1).stream(Purpose::Sources, 0));
        Self { room, free, reserve, admitted: [0; 3] }
    }

    fn call(&mut self, ms: u64, source: usize) {
        let headroom = match self.free {
            free if free >= self.reserve + 1.0 => Headroom::Spare,
            free if free >= 1.0 => Headroom::Reserve,
            _ => Headroom::None,
        };
        let may_use = self.room.on_call(at(ms), source as u128, 1, headroom);
        if headroom == Headroom::Spare || headroom == Headroom::Reserve && may_use {
            self.room.on_admitted(at(ms), source as u128);
            self.free -= 1.0;
            self.admitted[source] += 1;
        }
    }
}

/// Offers calls at these rates for a minute. Room for `per_s` calls becomes free each second, up to
/// ten places with a reserve of `reserve`. Returns the calls a second that were admitted in the
/// last 50 s, and the mean number of free places.
fn run(rates: [f64; 3], per_s: f64, reserve: f64) -> ([f64; 3], f64) {
    let mut plant = Plant::new(10.0, reserve);
    let (mut due, mut free) = ([0.0_f64; 3], 0.0);
    for ms in 0..60_000 {
        if ms == 10_000 {
            plant.admitted = [0; 3];
        }
        plant.free = (plant.free + per_s / 1e3).min(10.0);
        for source in 0..3 {
            due[source] += rates[source] / 1e3;
            while due[source] >= 1.0 {
                due[source] -= 1.0;
                plant.call(ms, source);
            }
        }
        free += plant.free / 60_000.0;
    }
    (plant.admitted.map(|count| count as f64 / 50.0), free)
}

#[test]
fn a_source_below_its_share_loses_nothing_to_a_flood() {
    for per_s in [150.0, 20.0, 2.0] {
        let ([flood, small, other], free) = run([2000.0, per_s / 5.0, per_s / 10.0], per_s, 2.0);
        assert!(small > 0.97 * per_s / 5.0, "{small} of {} calls/s", per_s / 5.0);
        assert!(other > 0.97 * per_s / 10.0, "{other} of {} calls/s", per_s / 10.0);
        assert!(flood + small + other > 0.97 * per_s, "{flood} + {small} + {other} of {per_s}");
        assert!(free < 3.5, "{free} places are free");
    }
}

/// Two sources above the level get the same, and the one that offers less does not get less.
#[test]
fn sources_above_their_share_get_the_same() {
    let ([flood, large, small], _) = run([2000.0, 300.0, 10.0], 150.0, 2.0);
    assert!(small > 9.7, "{small}");
    assert!((0.75..1.3).contains(&(large / flood)), "{large} and {flood} calls/s");
}

#[test]
fn a_single_source_uses_all_the_room() {
    let ([only, ..], free) = run([2000.0, 0.0, 0.0], 20.0, 2.0);
    assert!(only > 19.5 && free < 1.1, "{only} calls/s, {free} places are free");
}

/// Room becomes free once in five seconds.
#[test]
fn a_source_below_its_share_gets_a_rare_place() {
    let ([flood, small, _], _) = run([50.0, 0.1, 0.0], 0.2, 1.0);
    assert!(small >= 0.06, "{small} of 0.1 calls/s, beside {flood}");
}

/// The table has room for 16 sources, so the flood is not distinguished from other new sources.
#[test]
fn sources_beyond_the_table_count_as_one() {
    let mut plant = Plant::new(0.0, 2.0);
    for source in 10..26 {
        assert!(plant.room.on_call(at(0), source, 1, Headroom::None));
    }
    for ms in 0..1000 {
        plant.free = (plant.free + 0.1).min(10.0);
        plant.call(ms, 0);
    }
    plant.free = 1.0;
    assert!(!plant.room.on_call(at(1000), 0, 1, Headroom::Reserve), "it is above its share");
    assert!(plant.room.on_call(at(1000), 10, 1, Headroom::Reserve));
}

#[test]
fn nothing_is_counted_while_there_is_room() {
    let mut plant = Plant::new(1e9, 2.0);
    for ms in 0..100 {
        plant.call(ms, 0);
        plant.call(ms, 1);
    }
    assert_eq!((plant.room.sources.len(), plant.admitted), (0, [100, 100, 0]));
    assert!(plant.room.on_call(at(100), 0, 1, Headroom::Any));
}
