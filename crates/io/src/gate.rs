//! The gate in the kernel: what is dropped before anybody reads it.
//!
//! The program that steers a group's datagrams ([`steer`](crate::steer)) sends those that are to
//! be shed to a socket that nobody reads and whose own filter keeps nothing, the *sink* of their
//! shard. So the drops of a sink are what was shed and nothing else, those of every other socket
//! are its overflow and nothing else, and
//!
//! ```text
//! sent = received + filtered + overflow
//! ```
//!
//! holds to the datagram. A filter on the sockets that are read would count both kinds together.
//!
//! A change replaces the whole program; each datagram is steered by the old one or the new one.
//! No privilege is needed.
//!
//! Datagrams that a sender on the same machine hands over as one (`UDP_SEGMENT`) are steered
//! as one, by the first of them, and counted one by one.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_world::Shedding;

use crate::sockopt;
use crate::steer::{self, Layout, Share};

/// What has the kernel drop datagrams of one listening address. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct KernelGate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Layout,
    /// A socket of the group, by which its program is replaced.
    member: Arc<UdpSocket>,
    /// One a shard.
    sinks: Vec<UdpSocket>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What each shard wants.
    wishes: Vec<Shedding>,
    /// What each sink has dropped, modulo 2^32, as far as counted.
    drops: Vec<u32>,
    filtered: u64,
}

impl KernelGate {
    /// The gate of a group that has this layout and these sinks.
    pub(crate) fn new(layout: Layout, member: Arc<UdpSocket>, sinks: Vec<UdpSocket>) -> Self {
        let state = State {
            wishes: vec![Shedding::NONE; sinks.len()],
            drops: vec![0; sinks.len()],
            filtered: 0,
        };
        Self(Arc::new(Inner { layout, member, sinks, state: Mutex::new(state) }))
    }

    /// Drops this of what comes to any shard, from now on.
    ///
    /// # Errors
    /// Those of `SO_ATTACH_REUSEPORT_CBPF`, when the kernel lacks memory or allows it no more;
    /// what held before holds on.
    pub fn set(&self, shedding: &Shedding) -> io::Result<()> {
        self.change(|wishes| wishes.fill(shedding.clone()))
    }

    /// Drops nothing more.
    ///
    /// # Errors
    /// As of [`set`](Self::set).
    pub fn clear(&self) -> io::Result<()> {
        self.set(&Shedding::NONE)
    }

    /// Drops this share of what comes to one shard, from now on. All shards should have one key;
    /// if not, that of the first holds. Sources that it bans are
    /// banned for all shards, for a source comes to each of them with some of its ports; of
    /// those of all shards together, the first [`Shedding::BANNED_MAX`] in the order of the
    /// shards count.
    ///
    /// # Errors
    /// As of [`set`](Self::set).
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn set_of(&self, shard: u16, shedding: &Shedding) -> io::Result<()> {
        self.change(|wishes| wishes[usize::from(shard)].clone_from(shedding))
    }

    /// Datagrams dropped so far. The kernel counts to 2^32: ask more often than it takes to
    /// drop so many.
    pub fn filtered(&self) -> u64 {
        let mut state = self.state();
        let State { drops, filtered, .. } = &mut *state;
        for (sink, counted) in self.0.sinks.iter().zip(drops) {
            // A kernel without SO_MEMINFO does not tell.
            if let Ok(buffer) = sockopt::receive_buffer(sink.as_fd()) {
                *filtered += u64::from(buffer.drops.wrapping_sub(*counted));
                *counted = buffer.drops;
            }
        }
        *filtered
    }

    /// Where what is shed of a shard's datagrams goes.
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
        let key = wishes.iter().find(|wish| wish.threshold() > 0).map_or(0, |wish| wish.key);
        let share = Share { key, thresholds: wishes.iter().map(Shedding::threshold).collect() };
        let program = steer::program(self.0.layout, &share, &all_banned(&wishes));
        sockopt::attach_reuseport(self.0.member.as_fd(), &program)?;
        state.wishes = wishes;
        Ok(())
    }

    /// The state, which a panic elsewhere leaves whole: it changes as the last step.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sources that any shard bans, each once.
fn all_banned(wishes: &[Shedding]) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = Vec::new();
    for ip in wishes.iter().flat_map(Shedding::banned) {
        if all.len() < Shedding::BANNED_MAX && !all.contains(&ip) {
            all.push(ip);
        }
    }
    all
}
