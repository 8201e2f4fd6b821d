//! Draws the attackers of a world. They are drawn from separate random streams. Adding attackers to
//! a world therefore changes only those settings that their attacks need to have an effect.

use tidegate_world::{Purpose, Seed};

use super::{Dice, ELEMENT, MESSAGES};
use crate::swarm::attacker::{Attack, Attacker, Source};
use crate::swarm::world::{NOISE_LOAD_MAX, Proxy, Setting, World};

/// Maximum number of packets of one attacker.
const PACKETS_MAX: f64 = 12_000.0;

/// Maximum duration of an attack at a high rate, in seconds.
const FLOOD_MAX_S: f64 = 10.0;

/// Adds attackers to about half of the worlds.
pub(super) fn add(seed: u64, world: &mut World, capacity_cps: f64) {
    let mut dice = Dice(Seed(seed).stream(Purpose::Strangers, ELEMENT));
    if !dice.happens(0.5) {
        return;
    }
    let number = dice.between([1, 3]);
    let is_noise_alone = dice.happens(0.2) && world.proxies.iter().all(|p| !p.emulate.is_empty());
    if is_noise_alone {
        let noise = noise(&mut dice, world, capacity_cps);
        world.strangers.push(noise);
        return;
    }
    for number in 0..number {
        // Each attacker draws from its own stream, so a further attacker does not change the
        // others.
        let element = ELEMENT - 1 - number as u32;
        let mut dice = Dice(Seed(seed).stream(Purpose::Strangers, element));
        let stranger = stranger(&mut dice, world, capacity_cps);
        prepare(&mut dice, world, &stranger, capacity_cps);
        world.strangers.push(stranger);
    }
}

/// Draws an attacker that sends messages that belong to no call, for as long as calls are offered.
/// The rate is at most what the proxies can drop.
fn noise(dice: &mut Dice, world: &World, capacity_cps: f64) -> Attacker {
    let dearest_us = world.proxies.iter().map(Proxy::noise_us).fold(1.0, f64::max);
    let bearable_pps = NOISE_LOAD_MAX * 1e6 / dearest_us;
    let times = dice.scale([2.0, 10.0]);
    let rate_pps = (capacity_cps * MESSAGES * times).min(bearable_pps).max(1.0).floor();
    let lasts_s = world.offered_for().as_secs_f64();
    let count = (rate_pps * lasts_s).clamp(1.0, 2.0 * PACKETS_MAX) as u32;
    let source = dice.one(&[Source::Own, Source::Nobody, Source::Crowd(0)]);
    let to = world.callers[0].to;
    Attacker { to, attack: Attack::Noise, rate_pps, count, begins_ms: 0, sees: 0.0, source }
}

fn stranger(dice: &mut Dice, world: &World, capacity_cps: f64) -> Attacker {
    let attack = dice.one(&Attack::ALL);
    let to = dice.between([0, world.layer(0).len() as u64 - 1]) as usize;
    let crowd = dice.between([0, world.callers.len() as u64 - 1]) as usize;
    let source = dice.one(&[Source::Own, Source::Nobody, Source::Crowd(crowd)]);
    let sees = dice.one(&[0.0, 0.0, 0.2, 1.0]);
    let flood_pps = (capacity_cps * MESSAGES * dice.scale([0.5, 6.0])).max(1.0);
    let few_pps = dice.scale([1.0, 100.0]);
    let room_ms = world.offered_for().as_millis() as u64;
    let begins_ms = dice.0.below(room_ms.max(1));
    let (rate_pps, lasts_s) = match attack {
        Attack::Flood | Attack::Noise => (flood_pps, dice.scale([1.0, FLOOD_MAX_S])),
        _ => (few_pps, dice.scale([1.0, 20.0])),
    };
    let count = (rate_pps * lasts_s).clamp(1.0, PACKETS_MAX) as u32;
    let source = match attack {
        Attack::Flood | Attack::Noise => source,
        // Its calls must be answered, so it needs the responses.
        _ => Source::Own,
    };
    let rate_pps = (rate_pps * 100.0).round() / 100.0;
    Attacker { to, attack, rate_pps, count, begins_ms, sees, source }
}

/// Enables the feature of the attacked proxy at which the attack is aimed, if the feature is not
/// enabled.
fn prepare(dice: &mut Dice, world: &mut World, stranger: &Attacker, capacity_cps: f64) {
    let door = world.layer(0)[stranger.to];
    let behind = world.behind(door).len() as f64;
    let crowds: f64 = world.callers.iter().map(|crowd| crowd.rate_cps).sum();
    let proxy = &mut world.proxies[door];
    let calls_max = dice.between([2, 20]);
    let cps_max = (capacity_cps * dice.scale([0.1, 1.0]) / behind).ceil() as u64;
    // The limit is above the rate of all callers together, even if they send each INVITE seven
    // times.
    let above_cps = (crowds * 8.0).ceil().max(100.0) as u64;
    let forks = proxy.pool.get("policy") == Some(&Setting::Word("fork".into()));
    let is_forged = matches!(stranger.source, Source::Crowd(_));
    let mut limit = |key: &str, value| {
        if !forks {
            proxy.limits.entry(key.into()).or_insert(value);
        }
    };
    match stranger.attack {
        Attack::Tags | Attack::Copies => limit("cps_max", cps_max.max(1)),
        Attack::Byes => limit("calls_max", calls_max),
        // The rejections of this attack concern one number.
        Attack::Closed if !forks => {
            proxy.learning.entry("learn".into()).or_insert(Setting::Word("rejections".into()));
        }
        // One attacker can fill a table of this size.
        Attack::Hoard => {
            proxy.server.insert("transactions_max".into(), dice.one(&[50, 100, 200]));
        }
        // Only a probe brings back a back end that was wrongly taken down.
        Attack::Icmp | Attack::Void => {
            let probe = Setting::Word("options".into());
            proxy.health.entry("probe".into()).or_insert(probe);
            proxy.health.entry("interval_s".into()).or_insert(Setting::Number(20));
        }
        Attack::Flood | Attack::Noise if dice.happens(0.5) || is_forged => {
            proxy.sources.insert("ban_above_cps".into(), Setting::Number(above_cps));
            proxy.sources.insert("ban_after_s".into(), Setting::Number(1));
        }
        _ => {}
    }
}
