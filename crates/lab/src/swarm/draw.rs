//! Draws a world from a seed.
//!
//! Every choice is drawn from random streams of the seed. A seed therefore gives the same world as
//! long as this module does not change. Worlds that should be kept are saved as files. Worlds are
//! small, because a run should take only a second or two of CPU time. A world has at most 1,500
//! calls. In many worlds tables and queues fill up, and the calls exceed the capacity.

mod strangers;

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_balance::registry::POLICIES;
use tidegate_control::ThrottleKind;
use tidegate_control::registry::LAWS;
use tidegate_sim::fault::{Episode, Plan, Shape, Trouble};
use tidegate_sim::{Bandwidth, Link, NodeId, Resolution};
use tidegate_world::{Purpose, Seed, Stream, Timestamp};

use super::out_of_service::{Means, OutOfService};
use super::world::{Crowd, Names, Place, Proxy, Server, Setting, Streams, World};

/// Minimum and maximum number of calls of a world, over all callers.
const CALLS: [u64; 2] = [20, 1500];

/// Number of messages of a call at a proxy (INVITE, 100, 180, 200, ACK, BYE, 200), for an estimate
/// of the proxy's capacity.
const MESSAGES: f64 = 7.0;

/// Number of the random stream from which worlds are drawn. Nodes and fault plans do not use this
/// number.
const ELEMENT: u32 = u32::MAX - 1;
const ELEMENT_OF_STREAMS: u32 = u32::MAX - 101;
const ELEMENT_OF_SHARDS: u32 = u32::MAX - 102;

/// Draws the world of the seed `seed`.
pub fn draw(seed: u64) -> World {
    let mut dice = Dice(Seed(seed).stream(Purpose::Fault, ELEMENT));
    let widths = layers(&mut dice);
    let answerers = dice.between([1, 5]) as usize;
    let emulated = dice.happens(0.6);
    let inner = widths.len() - 1;
    let mut proxies = Vec::new();
    for (layer, &width) in widths.iter().enumerate() {
        for _ in 0..width {
            let behind = if layer == inner { answerers } else { widths[layer + 1] };
            proxies.push(proxy(&mut dice, layer, behind, emulated));
        }
    }
    let capacity_cps = capacity_cps(&proxies);
    let callers = crowds(&mut dice, widths[0], capacity_cps);
    let answerers = (0..answerers).map(|_| server(&mut dice)).collect();
    let link = link(&mut dice);
    let mut world = World {
        seed,
        link,
        callers,
        proxies,
        answerers,
        strangers: Vec::new(),
        streams: None,
        names: None,
        absences: Vec::new(),
        faults: Vec::new(),
    };
    if dice.happens(0.6) {
        world.faults = Plan::random(Seed(seed), &shape(&world)).episodes;
    }
    // These settings are drawn last, so that a world without names, health checks or limits has the
    // same earlier draws.
    if dice.happens(0.25) {
        resolve(&mut dice, &mut world);
    }
    if dice.happens(0.4) {
        look_after(&mut dice, &mut world);
    }
    if dice.happens(0.4) {
        limit(&mut dice, &mut world, capacity_cps);
    }
    strangers::add(seed, &mut world, capacity_cps);
    divide(seed, &mut world);
    world
}

/// Gives several shards to some proxies.
fn divide(seed: u64, world: &mut World) {
    let mut dice = Dice(Seed(seed).stream(Purpose::Fault, ELEMENT_OF_SHARDS));
    for proxy in &mut world.proxies {
        if dice.happens(0.3) {
            proxy.server.insert("shards".into(), dice.one(&[2, 2, 3, 5]));
            proxy.handoff_us = dice.one(&[0, 20, 500, 2000]);
        }
    }
}

/// Draws the world of `seed` and moves some of its messages to streams (TCP). Some connections
/// break, and some receivers read slowly.
pub fn draw_with_streams(seed: u64) -> World {
    let mut world = draw(seed);
    let mut dice = Dice(Seed(seed).stream(Purpose::Fault, ELEMENT_OF_STREAMS));
    let places = dice.between([1, 7]);
    let window = dice.one(&[4096, 65_536, 1 << 20]);
    world.streams = Some(Streams {
        outside: places & 1 != 0,
        between: places & 2 != 0,
        inside: places & 4 != 0,
        setup_ms: dice.one(&[0, 0, 5, 100]),
        buffer: dice.one(&[2048, 65_536, 1 << 20]),
        window,
    });
    if world.outside().is_reliable() {
        // Attackers can only send datagrams, so a world with streams has none.
        world.strangers.clear();
    }
    let shape = shape(&world);
    world.faults.extend(Plan::of_streams(Seed(seed), &shape).episodes);
    world.faults.sort_by_key(|episode| episode.begins);
    world
}

/// Adds configured or learned limits for back ends.
fn limit(dice: &mut Dice, world: &mut World, capacity_cps: f64) {
    for index in 0..world.proxies.len() {
        let behind = world.behind(index).len() as f64;
        let this = &mut world.proxies[index];
        let forks = this.pool.get("policy") == Some(&Setting::Word("fork".into()));
        // A number is drawn even if it is not used, so that the later draws stay the same.
        let calls_max = dice.happens(0.6).then(|| dice.between([1, 60]));
        let part = dice.scale([0.3, 3.0]) / behind;
        let cps_max = dice.happens(0.5).then(|| (capacity_cps * part).ceil() as u64);
        let learns = dice.happens(0.5).then(|| dice.one(&[20, 200, 2000]));
        if forks {
            continue;
        }
        let limits = [("calls_max", calls_max), ("cps_max", cps_max)];
        let given = limits.into_iter().filter_map(|(key, value)| Some((key.into(), value?)));
        this.limits = given.collect();
        if let Some(interval_ms) = learns {
            this.learning.insert("learn".into(), Setting::Word("rejections".into()));
            this.learning.insert("interval_ms".into(), Setting::Number(interval_ms));
        }
    }
}

/// Adds health checks of back ends, and operators that take back ends out of service.
fn look_after(dice: &mut Dice, world: &mut World) {
    for index in 0..world.proxies.len() {
        let behind = world.behind(index).len() as u64;
        let this = &mut world.proxies[index];
        let mut health: BTreeMap<String, Setting> = BTreeMap::new();
        if dice.happens(0.6) {
            health.insert("probe".into(), Setting::Word("options".into()));
            for (key, values) in [
                ("interval_s", &[1, 5, 20][..]),
                ("timeout_ms", &[50, 500, 2000, 8000]),
                ("fall", &[1, 2, 3]),
                ("rise", &[1, 2, 3]),
            ] {
                health.insert(key.into(), Setting::Number(dice.one(values)));
            }
            // A probe must be answered before the next one is sent.
            if let Some(Setting::Number(seconds)) = health.get("interval_s").cloned()
                && let Some(Setting::Number(ms)) = health.get_mut("timeout_ms")
            {
                *ms = (*ms).min(seconds * 1000);
            }
        }
        let is_stateless = this.pool.get("mode") == Some(&Setting::Word("stateless".into()));
        for (key, values) in [
            ("error_limit", &[1, 2, 5][..]),
            ("slow_start_s", &[0, 5, 60]),
            ("retry_after_max_s", &[0, 5, 60]),
        ] {
            // A number is drawn even if it is not used, so that the later draws stay the same.
            let drawn = dice.happens(0.5).then(|| dice.one(values));
            if let Some(value) = drawn.filter(|_| key == "slow_start_s" || !is_stateless) {
                health.insert(key.into(), Setting::Number(value));
            }
        }
        this.health = health;
        this.standby = if dice.happens(0.3) { dice.between([0, behind - 1]) as usize } else { 0 };
    }
    let room = world.offered_for() + Duration::from_secs(10);
    for _ in 0..dice.between([0, 6]) {
        let proxy = dice.between([0, world.proxies.len() as u64 - 1]) as usize;
        let behind = dice.between([0, world.behind(proxy).len() as u64 - 1]) as usize;
        let node = world.node(Place::Proxy(proxy));
        let crashes = world.faults.iter().any(|episode| {
            matches!(episode.trouble, Trouble::Crash { node: crashed, .. } if crashed == node)
        });
        let by = dice.one(&[Means::Drain, Means::Disable, Means::Remove, Means::Remove]);
        world.absences.push(OutOfService {
            proxy,
            behind,
            // After a crash, the proxy does not count the calls from before the crash. So it
            // forgets a removed back end that still has such calls. It could not route them until
            // the back end is configured again.
            by: if crashes { Means::Drain } else { by },
            begins_ms: dice.0.below(room.as_millis() as u64),
            lasts_ms: dice.between([1, 30_000]),
        });
    }
}

/// Replaces the addresses of back ends by host names. In half of the worlds with host names, name
/// resolution is disturbed for a while.
fn resolve(dice: &mut Dice, world: &mut World) {
    let millis = |most: f64, dice: &mut Dice| Duration::from_millis(dice.scale([1.0, most]) as u64);
    let resolution = |dice: &mut Dice, delay_max_ms: f64, share_max: f64| Resolution {
        delay: millis(delay_max_ms, dice),
        jitter: millis(delay_max_ms, dice),
        fails: rounded(share_max * dice.0.unit()),
        lost: rounded(share_max * dice.0.unit()),
    };
    let usual = resolution(dice, 2000.0, 0.1);
    world.names = Some(Names { ttl_s: dice.one(&[0, 10, 60, 86_400]), resolution: usual });
    if dice.happens(0.5) {
        let room = world.offered_for() + Duration::from_secs(10);
        let begins = Duration::from_millis(dice.0.below(room.as_millis() as u64));
        let lasts = Duration::from_millis(dice.between([1, 30_000]));
        let trouble = Trouble::Resolver { resolution: resolution(dice, 20_000.0, 1.0) };
        world.faults.push(Episode { begins: Timestamp::ZERO + begins, lasts, trouble });
        world.faults.sort_by_key(|episode| episode.begins);
    }
}

/// Returns the nodes and links of a world that may have faults, and the time in which faults may
/// occur.
fn shape(world: &World) -> Shape {
    let nodes = (0..world.nodes()).map(NodeId::new);
    let is_server = |node: &NodeId| {
        matches!(world.place(node.index()), Some(Place::Proxy(_) | Place::Answerer(_)))
    };
    Shape {
        nodes: nodes.filter(is_server).collect(),
        pairs: world.neighbours(),
        begins: Timestamp::ZERO,
        ends: Timestamp::ZERO + world.offered_for() + Duration::from_secs(10),
        lasts_max: Duration::from_secs(20),
        episodes_max: 6,
    }
}

struct Dice(Stream);

impl Dice {
    fn happens(&mut self, share: f64) -> bool {
        self.0.unit() < share
    }

    /// Draws a whole number from `least` to `most`, both included.
    fn between(&mut self, [least, most]: [u64; 2]) -> u64 {
        least + self.0.below(most - least + 1)
    }

    /// Draws a number between `least` and `most`. The logarithm of the number is uniformly
    /// distributed.
    fn scale(&mut self, [least, most]: [f64; 2]) -> f64 {
        least * (most / least).powf(self.0.unit())
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len() as u64) as usize]
    }

    fn word(&mut self, of: &[&str]) -> Setting {
        Setting::Word(self.one(of).to_owned())
    }
}

/// Draws the number of proxies in each layer. The shapes are a single proxy, a row, a fan-out, a
/// fan-in, and a mesh.
fn layers(dice: &mut Dice) -> Vec<usize> {
    const SHAPES: [&[usize]; 8] =
        [&[1], &[1], &[2], &[1, 1], &[1, 1, 1], &[1, 2], &[2, 1], &[2, 2]];
    dice.one(&SHAPES).to_vec()
}

fn proxy(dice: &mut Dice, layer: usize, behind: usize, emulated: bool) -> Proxy {
    let mut this = Proxy { layer, ..Proxy::default() };
    let stateful = dice.happens(0.7);
    let forks = stateful && behind > 1 && dice.happens(0.25);
    let mode = if stateful { "transaction" } else { "stateless" };
    this.pool.insert("mode".into(), Setting::Word(mode.into()));
    let policy = if forks {
        Setting::Word("fork".into())
    } else {
        dice.word(&POLICIES.iter().map(|policy| policy.name).collect::<Vec<_>>())
    };
    this.pool.insert("policy".into(), policy);
    if stateful {
        let after = dice.one(&[500, 1000, 4000, 20_000]);
        this.pool.insert("failover_after_ms".into(), Setting::Number(after));
        this.pool.insert("tries_max".into(), Setting::Number(dice.between([1, 4])));
    }
    for (key, values) in [
        ("queue_max", [8, 64, 4096]),
        ("calls_max", [20, 200, 10_000]),
        ("transactions_max", [20, 200, 10_000]),
        ("backend_pause_seconds", [0, 1, 5]),
        ("call_idle_seconds", [60, 120, 600]),
    ] {
        if dice.happens(0.5) {
            this.server.insert(key.into(), dice.one(&values));
        }
    }
    overload(dice, &mut this);
    if emulated {
        let serve = dice.scale([200.0, 5000.0]) as u64;
        this.emulate.insert("offer_us".into(), dice.between([0, serve / 4]));
        this.emulate.insert("serve_us".into(), serve);
        this.emulate.insert("reject_us".into(), dice.between([0, serve / 2]));
        this.emulate.insert("socket_max".into(), dice.one(&[16, 256, 2048]));
    }
    this
}

fn overload(dice: &mut Dice, this: &mut Proxy) {
    if dice.happens(0.3) {
        return;
    }
    let law = dice.one(&LAWS);
    let set = &mut this.overload;
    set.insert("law".into(), Setting::Word(law.name.into()));
    set.insert("decide".into(), dice.word(&["arrival", "service"]));
    set.insert("queue".into(), dice.word(&["class", "class", "fifo"]));
    set.insert("throttle".into(), dice.word(&ThrottleKind::ALL.map(ThrottleKind::name)));
    set.insert("disposal".into(), dice.word(&["reject", "auto", "kernel", "drop"]));
    set.insert("sticky".into(), Setting::Flag(dice.happens(0.8)));
    let mut given: BTreeMap<String, f64> = BTreeMap::new();
    for param in law.params {
        if dice.happens(0.5) {
            let value = match param.default {
                0.0 => dice.one(&[0.0, 0.0, 0.05, 0.5]),
                usual => usual * dice.scale([0.2, 2.0]),
            };
            given.insert(param.name.into(), param.range.nearest(value));
        }
    }
    let named: Vec<_> = given.iter().map(|(name, &value)| (name.as_str(), value)).collect();
    if law.values(&named).is_ok() {
        this.params = given;
    }
}

/// Returns the capacity of the slowest proxy with emulated costs, in calls/s, or 100 if no proxy
/// has emulated costs.
fn capacity_cps(proxies: &[Proxy]) -> f64 {
    let serve = |proxy: &Proxy| proxy.emulate.get("serve_us").copied();
    let slowest = proxies.iter().filter_map(serve).max();
    slowest.map_or(100.0, |us| 1e6 / (us as f64 * MESSAGES))
}

fn crowds(dice: &mut Dice, doors: usize, capacity_cps: f64) -> Vec<Crowd> {
    let count = dice.between([1, 3]);
    let rate_cps = capacity_cps * dice.scale([0.2, 3.0]) / count as f64;
    let calls = dice.scale(CALLS.map(|calls| calls as f64)) as u32 / count as u32;
    let hold_ms = dice.one(&[0, 500, 5000, 20_000]);
    let patience_ms = dice.one(&[1000, 10_000, 60_000, 60_000]);
    let crowd = |dice: &mut Dice| Crowd {
        to: dice.between([0, doors as u64 - 1]) as usize,
        rate_cps: (rate_cps * 100.0).round().max(10.0) / 100.0,
        calls: calls.max(5),
        hold_ms,
        patience_ms,
        follow_routes: dice.happens(0.85),
    };
    (0..count).map(|_| crowd(dice)).collect()
}

fn server(dice: &mut Dice) -> Server {
    const MIXES: [&str; 7] = [
        "answer",
        "answer",
        "answer=76,busy=9,ring=8,404=2,480=2,500=1.9,503=0.1,silent=1",
        "answer=60,busy=20,302=10,603=10",
        "answer=50,503=50",
        "answer=70,silent=30",
        "answer=50,ring=50",
    ];
    Server {
        mix: dice.one(&MIXES).into(),
        ring_ms: dice.one(&[0, 0, 100, 2000, 10_000]),
        hangs_up: dice.one(&[0.0, 0.0, 0.4, 1.0]),
        hold_ms: dice.one(&[0, 1000, 10_000]),
        calls_max: dice.happens(0.15).then(|| dice.between([5, 100]) as usize),
    }
}

fn link(dice: &mut Dice) -> Link {
    let delay = Duration::from_micros(dice.scale([50.0, 50_000.0]) as u64);
    let mut link = Link::delaying(delay);
    if dice.happens(0.5) {
        link.jitter = Duration::from_micros(dice.scale([10.0, 100_000.0]) as u64);
    }
    if dice.happens(0.5) {
        link.loss = rounded(dice.scale([0.001, 0.2]));
    }
    if dice.happens(0.3) {
        link.reorder = rounded(dice.scale([0.001, 0.2]));
    }
    if dice.happens(0.3) {
        link.duplicate = rounded(dice.scale([0.001, 0.2]));
    }
    if dice.happens(0.15) {
        link.bandwidth = Some(Bandwidth {
            bits_per_s: dice.scale([200_000.0, 20_000_000.0]) as u64,
            queue_max_bytes: dice.one(&[3000, 30_000, 300_000]),
        });
    }
    link
}

fn rounded(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}
