//! Chooses a cheaper way to reject if rejecting takes too much processor time: 503s that are padded
//! to a few lengths, or drops by the kernel.

use std::time::Duration;

use tidegate_control::{Gate, Ladder, LadderSettings, Rung, Tally};
use tidegate_world::{Counter, Load, Received, Shedding, Timestamp, Transport};

use crate::message::class::Class;
use crate::observe::counters::Counters;
use crate::rejection::DropReason;
use crate::settings::{Disposal, Overload};

/// The ladder ([`Ladder`]) by which a proxy rejects or drops new INVITEs that are not admitted.
pub(crate) struct KernelShed {
    ladder: Ladder,
    tally: Tally,
    /// Number of fresh INVITEs, and number of late ones, to which the [share](Shedding::share) of
    /// drops applies. The kernel has probably dropped earlier copies of a late INVITE.
    marked: [Counter; 2],
    /// Whether the kernel can drop datagrams at all our listeners.
    can_drop: bool,
    /// Whether the ladder is inactive under a law that rejects nothing.
    needs_law: bool,
}

impl KernelShed {
    /// Creates the ladder that `overload` configures, if any. `can_drop` is true if the kernel can
    /// drop datagrams that arrive at our listeners.
    pub(crate) fn new(overload: &Overload, can_drop: bool) -> Option<Self> {
        let pads = match overload.disposal {
            Disposal::Reject | Disposal::Drop => return None,
            Disposal::Kernel => false,
            Disposal::Auto => true,
        };
        let budget = overload.refusing_max;
        let settings =
            LadderSettings { budget, pads, thins: can_drop, ..LadderSettings::default() };
        Some(Self {
            ladder: Ladder::new(settings),
            tally: Tally::default(),
            marked: Default::default(),
            can_drop,
            needs_law: pads,
        })
    }

    /// Counts an INVITE, if the share of drops applies to it. Returns whether the kernel has
    /// probably dropped earlier copies of it. On a stream there are no copies, so it returns
    /// `false`. If `is_repeated`, the INVITE is a copy of a decided one. It is never late, and only
    /// its mark counts.
    pub(crate) fn is_late(
        &self,
        received: &Received,
        shedding: &Shedding,
        is_repeated: bool,
    ) -> bool {
        // A caller sends few copies of an INVITE. If very many copies are read, the kernel can drop
        // them, even if it drops nothing else.
        let tells_marks =
            self.ladder.tells_marks() || is_repeated && self.ladder.rung() == Rung::Thin;
        if is_repeated && !tells_marks {
            return false;
        }
        // The share does not apply to a message from another shard: it was received and counted
        // there.
        let is_read_here = received.handoffs == 0;
        if !is_read_here || !shedding.applies(received.flow.remote.ip(), &received.bytes) {
            return false;
        }
        let mut is_late = false;
        if tells_marks {
            let mark = shedding.hash(received.flow.remote.ip(), &received.bytes);
            self.ladder.record_mark(mark);
            is_late = !self.ladder.is_fresh(mark);
        }
        if is_repeated || !shedding.is_heavy(received.flow.remote.ip()) {
            return false;
        }
        self.marked[usize::from(is_late)].add(1);
        is_late && received.flow.transport == Transport::Udp
    }

    /// Records that a message of this class was rejected.
    pub(crate) fn on_refused(&mut self, class: Option<Class>) {
        self.tally.refused += u64::from(class == Some(Class::Invite));
    }

    /// Records that a message of this class is served.
    pub(crate) fn on_served(&mut self, class: Class) {
        self.tally.taken += u64::from(class == Class::Invite);
    }

    /// Records the service time of a message.
    pub(crate) fn on_completion(&mut self, cost: Duration) {
        self.tally.served += cost;
    }

    /// Gives the ladder a reading of the processor and the sockets.
    pub(crate) fn on_load(
        &mut self,
        now: Timestamp,
        load: &Load,
        gate: &Gate,
        counters: &Counters,
    ) {
        if self.needs_law && gate.law().entry().name == "none" {
            self.ladder.reset();
            return;
        }
        self.ladder.set_thins(self.can_drop && !load.is_shed_refused);
        let signals = gate.signals();
        let thinned = counters.dropped(DropReason::Thinned).get();
        self.tally = Tally {
            messages: signals.messages,
            asked: counters.received(Class::Invite).get() - thinned,
            // An ACK that ends here acknowledges a rejection.
            brought: counters.dropped(DropReason::OwnAck).get(),
            filtered: load.filtered + thinned,
            fresh: self.marked[0].get(),
            late: self.marked[1].get(),
            overflow: load.overflow,
            occupied: signals.processor.occupied,
            cpu: load.cpu,
            apart: load.handshakes,
            ..self.tally
        };
        self.ladder.on_reading(now, self.tally);
    }

    /// Lets the ladder make its next decision without a new reading, if that is due.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        if self.ladder.poll_timeout().is_some_and(|due| due <= now) {
            self.ladder.on_reading(now, self.tally);
        }
    }

    /// Writes the share of INVITEs to drop, and the hashes whose INVITEs are dropped, into
    /// `shedding`.
    pub(crate) fn fill(&self, shedding: &mut Shedding) {
        shedding.share = self.ladder.share();
        shedding.marks.clear();
        shedding.marks.extend(self.ladder.hot_marks());
    }

    /// Sets whether the share of drops applies only to sources that send more than their share.
    pub(crate) fn set_targeted(&mut self, is_targeted: bool) {
        self.ladder.set_targeted(is_targeted);
    }

    pub(crate) fn ladder(&self) -> &Ladder {
        &self.ladder
    }
}
