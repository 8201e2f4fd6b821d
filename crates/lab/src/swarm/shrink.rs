//! Reduces a world with a violation to a smaller one (delta debugging).
//!
//! A reduction is kept if the same checker still finds a violation. First, whole groups are removed
//! (attackers, faults, streams, names, times out of service). Then the numbers of calls and packets
//! are halved. Then callers, proxies, answerers and faults are removed one by one. Finally each
//! setting that has a default is removed. If the number of runs suffices, every part of the
//! remaining world is needed for the violation.

use super::attacker::Source;
use super::run::Finding;
use super::world::{Place, Proxy, World};
use tidegate_sim::fault::Trouble;
use tidegate_sim::{Link, NodeId};

/// A world that was reduced.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The remaining world.
    pub world: World,
    /// The violation that the checker finds in the reduced world.
    pub finding: Finding,
    /// The number of runs that the reduction took.
    pub tries: u32,
}

/// Reduces `world` as long as `checker` still finds a violation. `find` runs a world and returns
/// its findings. It is called at least once, and at most `tries_max` times.
pub fn shrink(
    world: World,
    checker: &str,
    tries_max: u32,
    find: impl Fn(&World) -> Vec<Finding>,
) -> Shrunk {
    let of = |findings: Vec<Finding>| findings.into_iter().find(|f| f.checker == checker);
    let unknown = || Finding {
        checker: checker.to_owned(),
        what: "found in the first run of the world, but not in the second".into(),
    };
    let mut best = Shrunk { finding: of(find(&world)).unwrap_or_else(unknown), world, tries: 1 };
    // Each round starts from the smallest world so far. The rounds end when no reduction succeeds.
    loop {
        let mut smaller = false;
        for step in STEPS {
            let mut at = 0;
            while best.tries < tries_max {
                let mut world = best.world.clone();
                if step(&mut world, at).is_none() {
                    break;
                }
                if world == best.world {
                    at += 1;
                    continue;
                }
                best.tries += 1;
                match of(find(&world)) {
                    Some(finding) => {
                        (best.world, best.finding, smaller) = (world, finding, true);
                    }
                    None => at += 1,
                }
            }
        }
        if !smaller || best.tries >= tries_max {
            return best;
        }
    }
}

/// A function that makes one of several reductions of a world. The number, from 0, selects the
/// reduction. Returns `None` if there is no reduction with this number. The caller then discards
/// the world. If the checker still finds a violation in the reduced world, the caller tries the
/// same number again on it.
type Step = fn(&mut World, usize) -> Option<()>;

const STEPS: [Step; 12] = [
    without_strangers,
    without_faults,
    without_streams,
    without_names,
    without_absences,
    with_fewer_calls,
    with_fewer_packets,
    without_node,
    without_fault,
    with_plain_link,
    with_plain_parties,
    with_default,
];

/// Removes all attackers if `at` is 0, or else the attacker with the index `at - 1`.
fn without_strangers(world: &mut World, at: usize) -> Option<()> {
    remove_some(&mut world.strangers, at)
}

/// Simplifies one attacker: halves its number of packets, or removes one packet, or sets `sees` to
/// 0, or makes it use its own address.
fn with_fewer_packets(world: &mut World, at: usize) -> Option<()> {
    let strangers = world.strangers.len();
    let stranger = world.strangers.get_mut(at.checked_rem(strangers)?)?;
    match at / strangers {
        0 => stranger.count = stranger.count.div_ceil(2).max(1),
        1 => stranger.count = (stranger.count - 1).max(1),
        2 => stranger.sees = 0.0,
        3 => stranger.source = Source::Own,
        _ => return None,
    }
    Some(())
}

/// Removes all faults, or a half or a quarter of them.
fn without_faults(world: &mut World, at: usize) -> Option<()> {
    const CHUNKS: [(usize, usize); 7] = [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3)];
    let &(parts, part) = CHUNKS.get(at)?;
    let count = world.faults.len();
    world.faults.drain(part * count / parts..(part + 1) * count / parts);
    Some(())
}

/// Replaces the host names of back ends by their addresses, and removes the faults of the resolver.
fn without_names(world: &mut World, at: usize) -> Option<()> {
    (at == 0).then(|| world.names.take())??;
    world.faults.retain(|episode| !matches!(episode.trouble, Trouble::Resolver { .. }));
    Some(())
}

/// Replaces TCP by UDP, on all links or only on the links of one field of `world.streams`.
fn without_streams(world: &mut World, at: usize) -> Option<()> {
    let streams = world.streams.as_mut()?;
    let place = match at {
        0 => {
            world.streams = None;
            return Some(());
        }
        1 => &mut streams.outside,
        2 => &mut streams.between,
        3 => &mut streams.inside,
        _ => return None,
    };
    std::mem::take(place).then_some(())
}

/// Removes all times out of service if `at` is 0, or else the one with the index `at - 1`.
fn without_absences(world: &mut World, at: usize) -> Option<()> {
    remove_some(&mut world.absences, at)
}

/// Removes all elements if `at` is 0, or else the element with the index `at - 1`. Returns `None`
/// if there is no such element.
fn remove_some<T>(elements: &mut Vec<T>, at: usize) -> Option<()> {
    match at.checked_sub(1) {
        None => elements.clear(),
        Some(at) if at < elements.len() => {
            elements.remove(at);
        }
        Some(_) => return None,
    }
    Some(())
}

fn without_fault(world: &mut World, at: usize) -> Option<()> {
    (at < world.faults.len()).then(|| world.faults.remove(at))?;
    Some(())
}

fn with_fewer_calls(world: &mut World, at: usize) -> Option<()> {
    let crowds = world.callers.len();
    // The number of calls is first halved. When that fails, it is reduced one by one.
    let crowd = world.callers.get_mut(at % crowds).filter(|_| at < 2 * crowds)?;
    crowd.calls = if at < crowds { crowd.calls.div_ceil(2) } else { crowd.calls - 1 }.max(1);
    Some(())
}

/// Removes the group of callers, the proxy or the answerer with the node number `at`, unless it is
/// the last of its kind.
fn without_node(world: &mut World, at: usize) -> Option<()> {
    let place = world.place(at)?;
    let count = match place {
        Place::Caller(_) => world.callers.len(),
        Place::Proxy(_) => world.proxies.len(),
        Place::Answerer(_) => world.answerers.len(),
        Place::Attacker(_) => return None,
    };
    if count > 1 {
        remove_node(world, place);
    }
    Some(())
}

/// Removes the node `place`. The nodes after it get new indices.
fn remove_node(world: &mut World, place: Place) {
    let gone = world.node(place).index();
    let renumbered = |node: NodeId| match node.index() {
        index if index == gone => None,
        index => Some(NodeId::new(index - usize::from(index > gone))),
    };
    world.faults.retain_mut(|episode| match renumber(episode.trouble, renumbered) {
        Some(trouble) => {
            episode.trouble = trouble;
            true
        }
        None => false,
    });
    match place {
        Place::Caller(index) => {
            world.callers.remove(index);
            for stranger in &mut world.strangers {
                if let Source::Crowd(crowd) = &mut stranger.source {
                    *crowd -= usize::from(*crowd > index || *crowd == world.callers.len());
                }
            }
        }
        Place::Attacker(index) => {
            world.strangers.remove(index);
        }
        Place::Answerer(index) => {
            world.answerers.remove(index);
        }
        Place::Proxy(index) => {
            world.absences.retain_mut(|absence| {
                let is_other = absence.proxy != index;
                absence.proxy -= usize::from(absence.proxy > index);
                is_other
            });
            let door = world.layer(0).iter().position(|&at| at == index);
            world.proxies.remove(index);
            if let Some(door) = door {
                let doors = world.layer(0).len().max(1);
                for to in doors_of(world) {
                    *to = (*to - usize::from(*to > door)).min(doors - 1);
                }
            }
        }
    }
    close_up(world);
}

/// Returns, for each group of callers and each attacker, a reference to the index of the proxy to
/// which it sends.
fn doors_of(world: &mut World) -> impl Iterator<Item = &mut usize> {
    let crowds = world.callers.iter_mut().map(|crowd| &mut crowd.to);
    crowds.chain(world.strangers.iter_mut().map(|stranger| &mut stranger.to))
}

/// Removes a layer that has no proxies, and moves the layers behind it forward. Also removes each
/// time out of service whose back end no longer exists.
fn close_up(world: &mut World) {
    let layers = world.proxies.iter().map(|proxy| proxy.layer).max().unwrap_or(0);
    if let Some(empty) = (0..layers).find(|&layer| world.layer(layer).is_empty()) {
        for proxy in world.proxies.iter_mut().filter(|proxy| proxy.layer > empty) {
            proxy.layer -= 1;
        }
        let doors = world.layer(0).len().max(1);
        for to in doors_of(world) {
            *to = (*to).min(doors - 1);
        }
    }
    let others = world.clone();
    world.absences.retain(|absence| others.can_lack(absence));
}

/// Returns the same fault with new node numbers, or `None` if a node of the fault was removed.
fn renumber(trouble: Trouble, number: impl Fn(NodeId) -> Option<NodeId>) -> Option<Trouble> {
    Some(match trouble {
        Trouble::Crash { node, silence } => Trouble::Crash { node: number(node)?, silence },
        Trouble::Stall { node } => Trouble::Stall { node: number(node)? },
        Trouble::Partition { a, b } => Trouble::Partition { a: number(a)?, b: number(b)? },
        Trouble::Impair { from, to, link } => {
            Trouble::Impair { from: number(from)?, to: number(to)?, link }
        }
        Trouble::Reset { a, b } => Trouble::Reset { a: number(a)?, b: number(b)? },
        Trouble::Sever { from, to } => Trouble::Sever { from: number(from)?, to: number(to)? },
        Trouble::ReadSlowly { node, bytes_per_s } => {
            Trouble::ReadSlowly { node: number(node)?, bytes_per_s }
        }
        Trouble::Resolver { resolution } => Trouble::Resolver { resolution },
    })
}

fn with_plain_link(world: &mut World, at: usize) -> Option<()> {
    let plain = Link::delaying(world.link.delay);
    let link = &mut world.link;
    match at {
        0 => *link = plain,
        1 => link.jitter = plain.jitter,
        2 => link.loss = plain.loss,
        3 => link.reorder = plain.reorder,
        4 => link.duplicate = plain.duplicate,
        5 => link.bandwidth = plain.bandwidth,
        _ => return None,
    }
    Some(())
}

/// Sets one property of one group of callers or of one answerer to its simplest value.
fn with_plain_parties(world: &mut World, at: usize) -> Option<()> {
    const OF_CROWD: usize = 2;
    const OF_ANSWERER: usize = 5;
    let callers = world.callers.len() * OF_CROWD;
    if at < callers {
        let crowd = &mut world.callers[at / OF_CROWD];
        match at % OF_CROWD {
            0 => crowd.hold_ms = 0,
            _ => crowd.follow_routes = true,
        }
        return Some(());
    }
    let server = world.answerers.get_mut((at - callers) / OF_ANSWERER)?;
    match (at - callers) % OF_ANSWERER {
        0 => server.mix = "answer".to_owned(),
        1 => server.ring_ms = 0,
        2 => server.hangs_up = 0.0,
        3 => server.hold_ms = 0,
        _ => server.calls_max = None,
    }
    Some(())
}

/// Removes a group of settings, or a single key, from the configuration of a proxy. `at` is the
/// index in the list of all groups and keys of all proxies.
fn with_default(world: &mut World, mut at: usize) -> Option<()> {
    const GROUPS: [fn(&mut Proxy); 4] = [
        // A law is removed together with its parameters.
        |proxy| {
            proxy.overload.clear();
            proxy.params.clear();
        },
        |proxy| (proxy.health, proxy.standby) = Default::default(),
        |proxy| (proxy.limits, proxy.learning) = Default::default(),
        |proxy| proxy.emulate.clear(),
    ];
    for proxy in &mut world.proxies {
        if let Some(clear) = GROUPS.get(at) {
            clear(proxy);
            return Some(());
        }
        at -= GROUPS.len();
        if take(&mut proxy.server, &mut at)
            || take(&mut proxy.pool, &mut at)
            || take(&mut proxy.health, &mut at)
            || take(&mut proxy.limits, &mut at)
            || take(&mut proxy.learning, &mut at)
            || take(&mut proxy.params, &mut at)
            || take(&mut proxy.sources, &mut at)
            || take(&mut proxy.emulate, &mut at)
        {
            return Some(());
        }
        let law = proxy.overload.remove_entry("law");
        let taken = take(&mut proxy.overload, &mut at);
        proxy.overload.extend(law);
        if taken {
            return Some(());
        }
    }
    None
}

/// Removes the entry with the index `at` from `map`, and returns true. If `map` has no such entry,
/// subtracts the number of its entries from `at`, and returns false.
fn take<V>(map: &mut std::collections::BTreeMap<String, V>, at: &mut usize) -> bool {
    match map.keys().nth(*at).cloned() {
        Some(key) => {
            map.remove(&key);
            true
        }
        None => {
            *at -= map.len();
            false
        }
    }
}

#[cfg(test)]
#[path = "shrink_tests.rs"]
mod tests;
