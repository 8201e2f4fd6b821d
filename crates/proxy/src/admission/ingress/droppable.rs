//! Counts the messages that the kernel may drop before they are read.
//!
//! If the kernel drops a share of the messages, or a receive buffer overflows, this affects every
//! message that begins like an INVITE or a REGISTER. So each such message counts in the same way,
//! whether it is new work, a retransmission, malformed, above a limit or from a banned source.

use tidegate_control::{Arrived, Recalled};
use tidegate_world::{Received, Shedding, Timestamp, Transport};

use super::Ingress;
use crate::admission::kernel_shed::is_droppable;
use crate::admission::view::View;
use crate::network::source_of;

impl Ingress {
    /// Counts a message for its source and for the share of drops, if the kernel could have dropped
    /// it. `recalled` holds the decision on an earlier copy of the message, if the gate remembers
    /// one. Returns whether the kernel has probably dropped earlier copies. Returns false if the
    /// gate remembers a decision, because then an earlier copy arrived.
    #[inline]
    pub(super) fn count_droppable(
        &mut self,
        now: Timestamp,
        received: &Received,
        view: View<'_>,
        recalled: Recalled,
    ) -> bool {
        let Some(kernel_shed) = view.kernel_shed else { return false };
        let Some(droppable) = kernel_shed.examine(received, view.shedding) else { return false };
        let repeats = recalled.is_repetition();
        let is_heavy = self.count_for_source(now, received, view, droppable.arrived, repeats);
        kernel_shed.count(&droppable, repeats && !is_heavy);
        !repeats && droppable.is_late
    }

    /// Counts a request within a call, or a retransmission of a request that was served, if the
    /// kernel could have dropped it. Returns whether the kernel could have dropped it and the gate
    /// remembers no decision on an earlier copy.
    #[inline]
    pub(super) fn count_ongoing(
        &mut self,
        now: Timestamp,
        received: &Received,
        view: View<'_>,
    ) -> bool {
        if !is_droppable(received) {
            return false;
        }
        // Only the fingerprint distinguishes these two kinds of requests.
        let is_counted = self.gate.counts_droppable();
        let fingerprint = if is_counted { view.fingerprint_of(&received.bytes) } else { None };
        let recalled = self.gate.recall(now, fingerprint);
        self.count_droppable(now, received, view, recalled);
        !recalled.is_repetition()
    }

    /// Handles an INVITE or a REGISTER that came on a stream and is dropped in place of the kernel.
    /// It counts for the limits and bans of its source like other messages. Returns whether its
    /// sender is banned because of this message.
    pub(super) fn on_drop_share(
        &mut self,
        now: Timestamp,
        received: &Received,
        view: View<'_>,
    ) -> bool {
        let addresses = &view.snapshot.addresses;
        self.count_for_source(now, received, view, Arrived::ONE, false);
        if self.source_policy.bans_excess() {
            let (sender, _) = self.source_policy.sender(received, false, addresses);
            if let Some(limit) = sender.limit
                && self.gate.exceeds_limit(now, &sender, Recalled::default())
            {
                self.source_policy.on_excess(now, &received.flow, addresses, limit);
            }
        }
        self.source_policy.on_message(now, &received.flow, addresses)
    }

    /// Counts a message for its source. `arrived` holds the number of messages that this message
    /// represents. `repeats` is true if the gate remembers a decision on an earlier copy of the
    /// message. Returns whether the source is heavy.
    fn count_for_source(
        &mut self,
        now: Timestamp,
        received: &Received,
        view: View<'_>,
        arrived: Arrived,
        repeats: bool,
    ) -> bool {
        if !self.gate.counts_droppable() {
            return false;
        }
        let weight = self.source_policy.weight_in_shares(&received.flow, &view.snapshot.addresses);
        let source = source_of(received.flow.remote.ip());
        // Emergency calls on a stream are never dropped because of a flood of such calls, so they
        // do not count as part of one.
        let is_emergency =
            received.flow.transport == Transport::Udp && Shedding::is_emergency(&received.bytes);
        self.gate.on_droppable(now, source, weight, arrived, repeats, is_emergency)
    }
}
