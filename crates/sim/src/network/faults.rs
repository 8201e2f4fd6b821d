//! Applies faults to a network.

use tidegate_world::{Core, Failure, Timestamp};

use super::node::Input;
use super::{Event, Network};
use crate::fault::Fault;
use crate::link::Link;
use crate::node_id::{NodeId, Silence};
use crate::tap::Tap;

impl<N: Core, T: Tap> Network<N, T> {
    /// Crashes a node, and returns its core. The node's timers and its waiting messages are lost.
    ///
    /// # Panics
    /// Panics if the node has crashed already.
    pub fn crash(&mut self, node: NodeId, silence: Silence) -> N {
        // The connections end before the node gets a new core, so the new core gets none of them.
        self.break_all(node, silence);
        let node = &mut self.nodes[node.index()];
        node.forget();
        std::mem::replace(&mut node.core, Err(silence)).expect("a node that is up")
    }

    /// Restarts a crashed node with a new core, at the same addresses.
    ///
    /// # Panics
    /// Panics if the node is up.
    pub fn restart(&mut self, node: NodeId, core: N) {
        let place = &mut self.nodes[node.index()].core;
        assert!(place.is_err(), "{node:?} is up");
        *place = Ok(core);
        self.settle(node);
    }

    /// Stalls a node until `until`: its process gets no processor time. Up to
    /// [`STALL_BUFFER`](super::STALL_BUFFER) packets wait in the buffers of the node and keep the
    /// time of their arrival. Timers do not fire. At `until`, the node gets all waiting packets at
    /// once and in order, and its timers fire late.
    ///
    /// By default, a `Host` of `tidegate-emulate` catches up with a late driver, so it would not
    /// notice the stall. For a host that will be stalled, set `HostSettings::catches_up` to false.
    ///
    /// # Panics
    /// Panics if the node has crashed.
    pub fn stall(&mut self, node: NodeId, until: Timestamp) {
        let stalled = &mut self.nodes[node.index()];
        assert!(stalled.core.is_ok(), "{node:?} has crashed");
        if until > self.now.max(stalled.stalled_until) {
            stalled.stalled_until = until;
            self.calendar.push(until, Event::Resumed { node });
        }
    }

    /// Gives a node a [command](Core::on_command). A stalled node gets the command when it is
    /// resumed. A crashed node never gets the command.
    pub fn command(&mut self, node: NodeId, command: &[u8]) {
        self.give(node, Input::Command(command.into()));
    }

    /// Makes a node drain. A stalled node starts to drain when it is resumed. A crashed node never
    /// drains.
    pub fn drain(&mut self, node: NodeId) {
        self.give(node, Input::Drain);
    }

    /// Gives a node a forged report that one of its packets could not be delivered.
    pub fn fail(&mut self, node: NodeId, failure: Failure) {
        self.give(node, Input::Failure(failure));
    }

    /// Blocks all packets between two nodes, in both directions, until they are
    /// [healed](Self::heal).
    pub fn partition(&mut self, a: NodeId, b: NodeId) {
        self.set_partitioned(a, b, true);
    }

    /// Ends the [partition](Self::partition) of two nodes.
    pub(crate) fn heal(&mut self, a: NodeId, b: NodeId) {
        self.set_partitioned(a, b, false);
    }

    /// Replaces the link from `from` to `to` by `link`, until the normal link is
    /// [restored](Self::restore).
    pub fn impair(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.ways.channel(from, to).impaired = Some(Box::new(link));
    }

    /// Ends the [impairment](Self::impair) of the link from `from` to `to`. The link that
    /// [`connect`](Self::connect) has set applies again. If it has set none, the default link
    /// applies.
    pub fn restore(&mut self, from: NodeId, to: NodeId) {
        self.ways.channel(from, to).impaired = None;
    }

    /// Resets the connections between two nodes. Everything in flight on them is lost.
    pub fn reset(&mut self, a: NodeId, b: NodeId) {
        self.reset_between(a, b);
    }

    /// Breaks the connection on which `from` next sends a message to `to`. Only the first half of
    /// the message arrives.
    pub(crate) fn sever_next(&mut self, from: NodeId, to: NodeId) {
        self.streams.severed.insert((from, to));
    }

    /// Limits the bytes a second that a node's driver reads from each stream. `None` means no
    /// limit.
    pub(crate) fn read_slowly(&mut self, node: NodeId, bytes_per_s: Option<u64>) {
        match bytes_per_s {
            Some(rate) => self.streams.slow_readers.insert(node, rate),
            None => self.streams.slow_readers.remove(&node),
        };
        self.read_all(node);
    }

    /// Runs the network until `at`, and then applies a fault. A restarted node gets its core from
    /// `core`. If the fault is a crash, returns the core of the crashed node.
    ///
    /// An impossible fault has no effect. Examples are a crash or a stall of a node that is down,
    /// and a restart of a node that is up. So a plan from which episodes were removed can still be
    /// applied.
    pub fn apply(
        &mut self,
        at: Timestamp,
        fault: &Fault,
        core: impl FnOnce(NodeId) -> N,
    ) -> Option<N> {
        self.run_until(at);
        // If no events were left, the time of the network stopped at the last event.
        self.now = self.now.max(at);
        match *fault {
            Fault::Crash { node, silence } if self.is_up(node) => {
                return Some(self.crash(node, silence));
            }
            Fault::Restart { node } if !self.is_up(node) => self.restart(node, core(node)),
            Fault::Stall { node, lasts } if self.is_up(node) => self.stall(node, at + lasts),
            Fault::Crash { .. } | Fault::Restart { .. } | Fault::Stall { .. } => {}
            Fault::Drain { node } => self.drain(node),
            Fault::Partition { a, b } => self.partition(a, b),
            Fault::Heal { a, b } => self.heal(a, b),
            Fault::Impair { from, to, link } => self.impair(from, to, link),
            Fault::Restore { from, to } => self.restore(from, to),
            Fault::Reset { a, b } => self.reset(a, b),
            Fault::Sever { from, to } => self.sever_next(from, to),
            Fault::ReadSlowly { node, bytes_per_s } => self.read_slowly(node, Some(bytes_per_s)),
            Fault::ReadAtOnce { node } => self.read_slowly(node, None),
            Fault::Resolver { resolution } => self.zone.resolve_instead_by(Some(resolution)),
            Fault::Resolves => self.zone.resolve_instead_by(None),
        }
        None
    }

    /// Ends the stall of a node, and gives the node all waiting inputs.
    pub(super) fn resume(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        node.datagrams = 0;
        for input in std::mem::take(&mut node.waiting) {
            self.give(id, input);
        }
        self.read_all(id);
        self.settle(id);
    }

    fn set_partitioned(&mut self, a: NodeId, b: NodeId, partitioned: bool) {
        for (from, to) in [(a, b), (b, a)] {
            self.ways.channel(from, to).partitioned = partitioned;
        }
    }
}
