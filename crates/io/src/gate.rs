//! The gate in the kernel, which drops datagrams before any process reads them.
//!
//! The BPF program that distributes the datagrams of a listening address over its sockets
//! ([`crate::steer`]) sends the datagrams to shed to a separate socket of their shard, the
//! *sink*. The sink is never read, and its own filter keeps nothing. So the drops of a sink are
//! exactly the shed datagrams, and the drops of every other socket are exactly its overflow.
//! Therefore
//!
//! ```text
//! sent = received + filtered + overflow
//! ```
//!
//! holds exactly. A filter on the sockets that are read would count shed and overflowing datagrams
//! together.
//!
//! A change of the shedding replaces the whole program. Each datagram is steered either by the old
//! program or by the new one. No privilege is needed.
//!
//! If a sender on the same machine passes several datagrams to the kernel as one batch
//! (`UDP_SEGMENT`), the program steers the whole batch by its first datagram. The kernel still
//! counts each datagram.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_world::{DroppableMethod, Network, Shedding};

use crate::sockopt;
use crate::steer::{self, Layout, Share};

/// The gate that makes the kernel drop datagrams of one listening address. Clones share the same
/// gate.
#[derive(Clone, Debug)]
pub struct KernelGate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Layout,
    /// A socket of the group, through which the program of the group is replaced.
    member: Arc<UdpSocket>,
    /// For each shard, the socket that gets the datagrams to shed.
    sinks: Vec<UdpSocket>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// For each shard, the shedding that it requests.
    wishes: Vec<Shedding>,
    /// For each sink, the number of its drops that are included in `filtered`, modulo 2^32.
    drops: Vec<u32>,
    filtered: u64,
}

impl KernelGate {
    /// Creates the gate of a group with this layout and these sinks.
    pub(crate) fn new(layout: Layout, member: Arc<UdpSocket>, sinks: Vec<UdpSocket>) -> Self {
        let state = State {
            wishes: vec![Shedding::NONE; sinks.len()],
            drops: vec![0; sinks.len()],
            filtered: 0,
        };
        Self(Arc::new(Inner { layout, member, sinks, state: Mutex::new(state) }))
    }

    /// Sets the shedding for all shards, from now on.
    ///
    /// # Errors
    /// Returns the errors of `SO_ATTACH_REUSEPORT_CBPF`, when the kernel lacks memory or does not
    /// allow more. The previous setting stays in force.
    pub fn set(&self, shedding: &Shedding) -> io::Result<()> {
        self.change(|wishes| wishes.fill(shedding.clone()))
    }

    /// Stops all dropping.
    ///
    /// # Errors
    /// Returns the errors of [`set`](Self::set).
    pub fn clear(&self) -> io::Result<()> {
        self.set(&Shedding::NONE)
    }

    /// Sets the shedding for one shard. A source that uses several ports reaches several shards, so
    /// some settings of one shard apply to the others too:
    ///
    /// - The key and the spared networks of the first shard that [drops by
    ///   hash](Shedding::has_share) apply to all shards. All shards should use the same key and
    ///   networks.
    /// - A source that one shard bans is banned for all shards. If the shards together ban more
    ///   than [`Shedding::BANNED_MAX`] sources, only the first ones in the order of the shards are
    ///   banned.
    /// - Datagrams with a hash that one shard [marks](Shedding::marks) are dropped at all shards.
    ///   If the shards together have more than [`Shedding::MARKS_MAX`] hashes, the first hashes of
    ///   each shard apply.
    /// - If a shard names [heavy](Shedding::heavy) networks, its share applies to the heavy
    ///   networks of all shards. The share of a shard that names none applies to all sources whose
    ///   datagrams reach this shard. If the shards together name more than [`Shedding::HEAVY_MAX`]
    ///   networks, the shards with the longest lists are treated as if they named none.
    /// - The [unspared](Shedding::unspared) networks of one shard are unspared at all shards. If
    ///   the shards together have more than [`Shedding::UNSPARED_MAX`] networks, the first networks
    ///   of each shard apply.
    ///
    /// # Errors
    /// Returns the errors of [`set`](Self::set).
    ///
    /// # Panics
    /// Panics if there is no such shard.
    pub fn set_of(&self, shard: u16, shedding: &Shedding) -> io::Result<()> {
        self.change(|wishes| wishes[usize::from(shard)].clone_from(shedding))
    }

    /// Returns the number of datagrams dropped so far. The kernel counts modulo 2^32, so call this
    /// function before another 2^32 datagrams are dropped.
    pub fn filtered(&self) -> u64 {
        let mut state = self.state();
        let State { drops, filtered, .. } = &mut *state;
        for (sink, counted) in self.0.sinks.iter().zip(drops) {
            // A kernel without SO_MEMINFO does not report the drops.
            if let Ok(buffer) = sockopt::receive_buffer(sink.as_fd()) {
                *filtered += u64::from(buffer.drops.wrapping_sub(*counted));
                *counted = buffer.drops;
            }
        }
        *filtered
    }

    /// Returns the socket that receives the shed datagrams of a shard.
    pub(crate) fn sink(&self, shard: u16) -> &UdpSocket {
        &self.0.sinks[usize::from(shard)]
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Shedding>)) -> io::Result<()> {
        let mut state = self.state();
        let mut wishes = state.wishes.clone();
        change(&mut wishes);
        if wishes == state.wishes {
            return Ok(());
        }
        // All shards of a process have one configuration and one key.
        let first = wishes.iter().find(|wish| wish.has_share()).or(wishes.first());
        let (key, spared) = first.map_or((0, &[][..]), |wish| (wish.key, wish.spared()));
        let thresholds = DroppableMethod::ALL
            .map(|method| wishes.iter().map(|wish| wish.threshold(method)).collect());
        let (heavy, untargeted) = targets(&wishes);
        let unspared = in_turn(wishes.iter().map(Shedding::unspared), Shedding::UNSPARED_MAX);
        let marks = marks(&wishes);
        let share = Share { key, thresholds, marks, heavy, untargeted, unspared };
        let banned = distinct(wishes.iter().flat_map(Shedding::banned), Shedding::BANNED_MAX);
        let program = steer::program(self.0.layout, &share, spared, &banned);
        sockopt::attach_reuseport(self.0.member.as_fd(), &program)?;
        state.wishes = wishes;
        Ok(())
    }

    /// Locks the state. The state is valid even after a panic in another thread, because each
    /// function changes it in its last step.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the marks (hashes of packets) of the datagrams that all shards drop. `wishes` has the
/// marks that each shard wants to drop.
fn marks(wishes: &[Shedding]) -> Vec<u32> {
    in_turn(wishes.iter().map(Shedding::marks), Shedding::MARKS_MAX)
}

/// Returns the heavy networks of all shards, and the shards whose share applies to all sources. The
/// share of every other shard applies to all of these networks, because the datagrams of a source
/// may reach any shard.
///
/// If the list of a shard does not fit, it is left out as a whole, and the share of the shard
/// applies to all sources. If only some of its networks were left out, no datagrams from them would
/// be dropped. The shortest lists are taken first, so that most shares apply to heavy networks
/// only.
fn targets(wishes: &[Shedding]) -> (Vec<Network>, Vec<u16>) {
    let shares = (0..).zip(wishes).filter(|(_, wish)| wish.drops_shares());
    let mut lists: Vec<(u16, &[Network])> =
        shares.map(|(shard, wish)| (shard, wish.heavy())).collect();
    lists.sort_by_key(|(_, list)| list.len());
    let mut networks: Vec<Network> = Vec::new();
    let mut untargeted = Vec::new();
    for (shard, list) in lists {
        let joined = distinct(networks.iter().chain(list).copied(), usize::MAX);
        if list.is_empty() || joined.len() > Shedding::HEAVY_MAX {
            untargeted.push(shard);
        } else {
            networks = joined;
        }
    }
    untargeted.sort_unstable();
    (networks, untargeted)
}

/// Returns at most `max` different items: the first item of each list, then the second item of each
/// list, and so on. So a long list of one shard does not displace the list of another.
fn in_turn<'a, T>(lists: impl Iterator<Item = &'a [T]> + Clone, max: usize) -> Vec<T>
where
    T: Copy + PartialEq + 'a,
{
    let nth = |place: usize| lists.clone().filter_map(move |list| list.get(place).copied());
    distinct((0..max).flat_map(nth), max)
}

/// Returns the first `max` different items.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>, max: usize) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in items {
        if all.len() < max && !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::{Listen, open};

    fn with_marks(marks: impl IntoIterator<Item = u32>) -> Shedding {
        Shedding { marks: marks.into_iter().collect(), ..Shedding::NONE }
    }

    #[test]
    fn the_first_hashes_of_each_shard_apply() {
        let wishes = [with_marks([1, 2, 3]), with_marks([]), with_marks([4, 2, 5])];
        assert_eq!(marks(&wishes), [1, 4, 2, 3, 5]);
        let many = [with_marks(0..16), with_marks(100..200)];
        let marks = marks(&many);
        assert_eq!((marks.len(), &marks[..4]), (Shedding::MARKS_MAX, &[0, 100, 1, 101][..]));
    }

    /// The share of a shard that names heavy networks must not apply to all sources, neither if
    /// another shard names none, nor if there are too many networks.
    #[test]
    fn the_heavy_networks_of_all_shards_with_a_share_apply() {
        let wish = |share: f64, hosts: &[u8]| Shedding {
            shares: [share; 2],
            heavy: hosts
                .iter()
                .map(|&host| Network { address: [192, 0, 2, host].into(), prefix: 32 })
                .collect(),
            ..Shedding::NONE
        };
        let applied = |wishes: &[Shedding]| {
            let host = |network: Network| match network.address {
                IpAddr::V4(address) => address.octets()[3],
                IpAddr::V6(_) => panic!("{network:?}"),
            };
            let (networks, untargeted) = targets(wishes);
            let hosts: Vec<u8> = networks.into_iter().map(host).collect();
            (hosts, untargeted)
        };
        let wishes = [wish(0.5, &[1, 2]), wish(0.0, &[4]), wish(0.1, &[2, 3])];
        assert_eq!(applied(&wishes), (vec![1, 2, 3], vec![]));
        let marked = Shedding { marks: vec![7], ..Shedding::NONE };
        assert_eq!(applied(&[wish(0.5, &[1]), marked]), (vec![1], vec![]), "only marks");
        let wishes = [wish(0.1, &[]), wish(0.5, &[1, 2]), wish(0.1, &[])];
        assert_eq!(applied(&wishes), (vec![1, 2], vec![0, 2]), "two shards name none");
        assert_eq!(applied(&[]), (vec![], vec![]));
        // Networks that do not fit must not escape the drops of a shard that names them.
        let many: Vec<u8> = (0..20).collect();
        let wishes = [wish(0.5, &many[..10]), wish(0.5, &many[10..])];
        assert_eq!(applied(&wishes), (many[..10].to_vec(), vec![1]), "more than there is room for");
        let wishes = [wish(0.5, &many[..12]), wish(0.5, &many[10..14]), wish(0.5, &[13, 12])];
        assert_eq!(applied(&wishes), (vec![13, 12, 10, 11], vec![0]), "the shortest lists fit");
        let wishes = [wish(0.5, &many[..12]), wish(0.5, &many[..12])];
        assert_eq!(applied(&wishes), (many[..12].to_vec(), vec![]), "the same networks");
        let wishes = [wish(0.5, &many[..13]), wish(0.5, &[1])];
        assert_eq!(applied(&wishes), (vec![1], vec![0]), "one shard has too many");
    }

    #[test]
    fn the_hashes_of_one_shard_do_not_keep_out_those_of_another() {
        let listen = Listen { gate: true, ..Listen::new("127.0.0.1:0".parse().unwrap()) };
        let group = open(&Listen { shards: 2, ..listen }).unwrap();
        let gate = group.gate().unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let text = b"INVITE sip:a@b SIP/2.0\r\n";
        let mark = Shedding::NONE.hash(peer.local_addr().unwrap().ip(), text);
        let others = (0..).filter(|other| *other != mark).take(Shedding::MARKS_MAX);
        gate.set_of(0, &with_marks(others)).unwrap();
        gate.set_of(1, &with_marks([mark])).unwrap();
        peer.send_to(text, group.local()).unwrap();
        assert_eq!(gate.filtered(), 1);
    }
}
