//! Chooses a cheaper way to shed if rejecting takes too much processor time: rejections that are
//! padded to a few lengths, or drops by the kernel.

use std::time::Duration;

use tidegate_control::{Arrived, Gate, Ladder, LadderSettings, Rung, Tally};
use tidegate_world::{Counter, DroppableMethod, Load, Received, Shedding, Timestamp, Transport};

use crate::message::class::Class;
use crate::observe::counters::Counters;
use crate::rejection::DropReason;
use crate::settings::{Disposal, Overload};

/// The state that decides whether INVITEs and REGISTERs that are not admitted get a 503, get a
/// padded 503, or are dropped by the kernel. A [`Ladder`] makes the decision.
pub(crate) struct KernelShed {
    ladder: Ladder,
    tally: Tally,
    counts: Counts,
    /// True if the kernel can drop datagrams at all our listeners.
    can_drop: bool,
    /// True if the ladder is inactive while the law is `none`, which rejects nothing.
    needs_law: bool,
}

/// Counts of the INVITEs and REGISTERs that were read although the kernel could have dropped them.
#[derive(Debug, Default)]
struct Counts {
    all: Counter,
    datagrams: Counter,
    /// Messages to which the [share](Shedding::shares) of drops applies, if no message with the
    /// same mark (see [`Droppable`]) was dropped recently. Without marks, all messages are fresh.
    fresh: Counter,
    /// The messages in `fresh` that are REGISTERs.
    fresh_registers: Counter,
    /// The messages in `fresh` that came on connections, by method.
    fresh_on_streams: [Counter; 2],
    /// Messages to which the share of drops applies, if a message with the same mark was dropped
    /// recently: that message was probably an earlier copy.
    late: Counter,
    /// Messages to which the share of drops applies, and which repeat a request that the gate has
    /// decided on. Repetitions from a heavy source count as fresh or late instead.
    repeated: Counter,
    /// Messages to which the share of drops never applies, such as those of back ends.
    spared: Counter,
}

/// An INVITE or REGISTER that was read although the kernel could have dropped it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Droppable {
    method: DroppableMethod,
    is_datagram: bool,
    /// True if the [share](Shedding::shares) of drops applies to the message.
    is_subject: bool,
    /// True if the share of drops never applies to the message, for example because a back end sent
    /// it.
    is_spared: bool,
    /// The mark: a hash by which the kernel decides whether to drop the message. `None` if the
    /// ladder does not use marks now, or if `is_spared` is true.
    mark: Option<u32>,
    /// True if no message with this `mark` was dropped recently, or if there is no mark.
    is_fresh: bool,
    /// True if the kernel has probably dropped earlier copies of the message. False for a message
    /// on a stream, where requests are not retransmitted.
    pub(crate) is_late: bool,
    /// Number of messages that this one represents: itself, and others that were dropped or lost.
    pub(crate) arrived: Arrived,
}

/// Returns whether the kernel could have dropped a message unread, because it begins like an INVITE
/// or a REGISTER. On a stream, this shard drops such messages in place of the kernel. Returns
/// `false` for a message from another shard, because that shard has counted it.
#[inline]
pub(crate) fn is_droppable(received: &Received) -> bool {
    Shedding::may_be_dropped(&received.bytes) && received.handoffs == 0
}

impl KernelShed {
    /// Creates the ladder that `overload` configures, or returns `None` if it configures none.
    /// `can_drop` is true if the kernel can drop datagrams that arrive at our listeners.
    pub(crate) fn new(overload: &Overload, can_drop: bool) -> Option<Self> {
        let pads = match overload.disposal {
            Disposal::Reject | Disposal::Drop => return None,
            Disposal::Kernel => false,
            Disposal::Auto => true,
        };
        let budget = overload.rejecting_max;
        let settings =
            LadderSettings { budget, pads, drops: can_drop, ..LadderSettings::default() };
        Some(Self {
            ladder: Ladder::new(settings),
            tally: Tally::default(),
            counts: Counts::default(),
            can_drop,
            needs_law: pads,
        })
    }

    /// Records that a message was read `wait` after it had arrived, if it is
    /// [droppable](is_droppable).
    #[inline]
    pub(crate) fn record_wait(&self, received: &Received, wait: Duration) {
        if is_droppable(received) {
            self.ladder.record_wait(received.flow.transport == Transport::Udp, wait);
        }
    }

    /// Determines whether the share of drops applies to a [droppable](is_droppable) message, and
    /// whether earlier copies of the message were dropped. Returns `None` for any other message.
    pub(crate) fn examine(&self, received: &Received, shedding: &Shedding) -> Option<Droppable> {
        let method = DroppableMethod::of(&received.bytes).filter(|_| received.handoffs == 0)?;
        let source = received.flow.remote.ip();
        let transport = received.flow.transport;
        let is_datagram = transport == Transport::Udp;
        let may_be_marked = shedding.applies(transport, source, &received.bytes);
        let is_subject = may_be_marked && shedding.is_heavy(source);
        // The marks show which requests are read very often. The kernel can drop their copies, even
        // if it drops nothing else.
        let tells_marks = self.ladder.tells_marks() || self.ladder.rung() == Rung::Drop;
        let mark = (may_be_marked && tells_marks).then(|| shedding.hash(source, &received.bytes));
        let is_fresh = mark.is_none_or(|mark| self.ladder.is_fresh(method, mark));
        let is_late = is_subject && is_datagram && !is_fresh;
        // On a stream no message is lost, so each message represents only itself.
        let mut arrived = Arrived::ONE;
        if is_datagram {
            arrived.per_read = self.ladder.arrived_per_read();
            if is_subject {
                let threshold = shedding.threshold(method);
                let is_dropped = mark.is_some_and(|mark| u64::from(mark) < threshold);
                let passing = 1.0 - self.ladder.share(method);
                arrived.per_passing = if is_dropped { 0.0 } else { 1.0 / passing };
                arrived.drops_all = shedding.heavy().is_empty();
            }
        }
        let is_spared = !may_be_marked;
        Some(Droppable {
            method,
            is_datagram,
            is_subject,
            is_spared,
            mark,
            is_fresh,
            is_late,
            arrived,
        })
    }

    /// Counts an examined message. `is_repeated` is true if the message repeats a request on which
    /// the gate has decided, and its source is not heavy. Such a message says nothing about the
    /// number of callers.
    pub(crate) fn count(&self, droppable: &Droppable, is_repeated: bool) {
        let Droppable { method, is_datagram, is_subject, is_spared, mark, is_fresh, .. } =
            *droppable;
        self.counts.all.add(1);
        self.counts.datagrams.add(u64::from(is_datagram));
        self.counts.spared.add(u64::from(is_spared));
        if let Some(mark) = mark {
            let is_first = is_subject && is_fresh && !is_repeated;
            self.ladder.record_mark(mark, is_first.then_some(method));
        }
        if is_subject {
            let count = match (is_repeated, is_fresh) {
                (true, _) => &self.counts.repeated,
                (false, true) => &self.counts.fresh,
                (false, false) => &self.counts.late,
            };
            count.add(1);
            let is_first = is_fresh && !is_repeated;
            let is_register = method == DroppableMethod::Register;
            self.counts.fresh_registers.add(u64::from(is_first && is_register));
            let on_streams = &self.counts.fresh_on_streams[method as usize];
            on_streams.add(u64::from(is_first && !is_datagram));
        }
    }

    /// Records that a message of this class was rejected. Only INVITEs and REGISTERs count.
    pub(crate) fn on_rejected(&mut self, class: Option<Class>) {
        self.tally.rejected += u64::from(class.is_some_and(Class::is_droppable));
    }

    /// Records that an INVITE or REGISTER that the kernel could have dropped is served.
    pub(crate) fn on_served(&mut self) {
        self.tally.taken += 1;
    }

    pub(crate) fn on_completion(&mut self, cost: Duration) {
        self.tally.served += cost;
    }

    /// Passes a reading of the processor and the sockets to the ladder.
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
        self.ladder.set_drops(self.can_drop && !load.is_shed_refused);
        let signals = gate.signals();
        let drop_share = counters.dropped(DropReason::DropShare).get();
        self.tally = Tally {
            messages: signals.messages,
            asked: self.counts.all.get(),
            datagrams: self.counts.datagrams.get(),
            // An ACK that ends here acknowledges a rejection, so rejecting has caused it.
            brought: counters.dropped(DropReason::OwnAck).get(),
            filtered: load.filtered + drop_share,
            fresh: self.counts.fresh.get(),
            fresh_registers: self.counts.fresh_registers.get(),
            fresh_on_streams: self.counts.fresh_on_streams.each_ref().map(Counter::get),
            late: self.counts.late.get(),
            repeated: self.counts.repeated.get(),
            spared: self.counts.spared.get(),
            overflow: load.overflow,
            occupied: signals.processor.occupied,
            cpu: load.cpu,
            apart: load.handshakes,
            ..self.tally
        };
        self.ladder.on_reading(now, self.tally);
    }

    /// Lets the ladder decide again with the last reading, if a decision is due. Returns whether a
    /// decision was due.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) -> bool {
        let is_due = self.ladder.poll_timeout().is_some_and(|due| due <= now);
        if is_due {
            self.ladder.on_reading(now, self.tally);
        }
        is_due
    }

    /// Writes two things into `shedding`: for each method, the share of the requests to drop, and
    /// the marks of the requests that are always dropped, with all their copies.
    pub(crate) fn fill(&self, shedding: &mut Shedding) {
        shedding.shares = DroppableMethod::ALL.map(|method| self.ladder.share(method));
        shedding.marks.clear();
        shedding.marks.extend(self.ladder.hot_marks());
    }

    /// Sets whether the share of drops applies only to the sources that cause the overload.
    pub(crate) fn set_targeted(&mut self, is_targeted: bool) {
        self.ladder.set_targeted(is_targeted);
    }

    pub(crate) fn ladder(&self) -> &Ladder {
        &self.ladder
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tidegate_world::{Flow, Network, Pool};

    use super::*;

    /// If a message that passes represented only itself, a flood of emergency calls would seem to
    /// end as soon as most of it is dropped.
    #[test]
    fn a_message_that_passes_the_share_represents_those_that_are_dropped() {
        let overload = Overload { disposal: Disposal::Kernel, ..Overload::default() };
        let mut kernel_shed = KernelShed::new(&overload, true).unwrap();
        let at = |ms: u64| Timestamp::ZERO + Duration::from_millis(ms);
        let mut tally = Tally::default();
        for period in 0..5 {
            kernel_shed.ladder.on_reading(at(100 * period), tally);
            for count in [&mut tally.messages, &mut tally.asked, &mut tally.datagrams] {
                *count += 1_000;
            }
            tally.fresh += 1_000;
            tally.overflow += 1_000;
        }
        let [flooding, other]: [SocketAddr; 2] =
            ["192.0.2.1:5060", "192.0.2.2:5060"].map(|a| a.parse().unwrap());
        let network = Network { address: flooding.ip(), prefix: 32 };
        let mut shedding = Shedding { unspared: vec![network], ..Shedding::NONE };
        kernel_shed.fill(&mut shedding);
        assert!(shedding.shares[0] > 0.1 && shedding.shares[0] < 1.0, "{:?}", shedding.shares);
        let pool = Pool::new();
        let arrived = |remote: SocketAddr, number: u32, shedding: &Shedding| {
            let text = format!("INVITE urn:service:sos SIP/2.0\r\nVia: {number:026}\r\n");
            let flow = Flow::udp(other, remote);
            let received = Received::new(at(500), flow, pool.copy(text.as_bytes()));
            kernel_shed.examine(&received, shedding).unwrap().arrived
        };
        let sent = |shedding: &Shedding| -> f64 {
            (0..1_000).map(|number| arrived(flooding, number, shedding).per_passing).sum()
        };
        assert!((sent(&shedding) / 1_000.0 - 1.0).abs() < 0.2, "{}", sent(&shedding));
        assert!(arrived(flooding, 0, &shedding).drops_all);
        let passes = arrived(other, 0, &shedding);
        assert!(!passes.drops_all && passes.per_passing == 1.0, "it is spared: {passes:?}");
        shedding.heavy = vec![network];
        assert!(!arrived(flooding, 0, &shedding).drops_all);
    }
}
