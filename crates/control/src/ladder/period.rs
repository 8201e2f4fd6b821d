//! The counts of a server, and how they change between two readings.

use std::time::Duration;

/// Minimum number of rejections in a period for measuring their cost.
const REJECTIONS: u64 = 10;

/// The counts of the server that the ladder reads. All counts begin at the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Messages of all kinds that were read.
    pub messages: u64,
    /// Messages that were read and are of the kind that the ladder drops. These are requests for
    /// new work, and messages that the kernel cannot distinguish from them, including
    /// retransmissions.
    pub asked: u64,
    /// The messages in `asked` that came through a receive buffer of which the losses are counted
    /// in [`overflow`](Self::overflow).
    pub datagrams: u64,
    /// The messages in `asked` that were not exempt from drops and were
    /// [fresh](super::Ladder::is_fresh). While no [marks matter](super::Ladder::tells_marks), all
    /// are fresh.
    pub fresh: u64,
    /// The messages in `fresh` that are REGISTERs.
    pub fresh_registers: u64,
    /// The INVITEs and the REGISTERs in `fresh` that came on connections, so that they are not in
    /// `datagrams`.
    pub fresh_on_streams: [u64; 2],
    /// The messages in `asked` that were not exempt from drops and were not
    /// [fresh](super::Ladder::is_fresh).
    pub late: u64,
    /// The messages in `asked` that were not exempt from drops and are retransmissions of judged
    /// requests. They are counted neither in `fresh` nor in `late`. Retransmissions from a
    /// [heavy](crate::Gate::heavy_sources) source are not counted here, but like other messages.
    pub repeated: u64,
    /// The messages in `asked` that are exempt from drops even if messages of all sources are dropped:
    /// those of spared networks, and emergency calls that do not belong to a flood of them.
    pub spared: u64,
    /// Messages in `asked` that were rejected, for the first time or again.
    pub rejected: u64,
    /// Messages in `asked` that were served.
    pub taken: u64,
    /// ACKs of rejections that were read. The cost of a rejection includes the cost of its ACK.
    pub brought: u64,
    /// Messages that were dropped before they were read, because the ladder asked for it.
    pub filtered: u64,
    /// Messages lost because the kernel's receive buffer for the messages of `asked` was full.
    pub overflow: u64,
    /// Time since the start for which the processor was occupied.
    pub occupied: Duration,
    /// Time since the start that was spent on service.
    pub served: Duration,
    /// CPU time since the start.
    pub cpu: Duration,
    /// CPU time since the start that was spent neither on messages nor on service, such as on
    /// handshakes of connections.
    pub apart: Duration,
}

/// The changes of the server's counts between two readings. Numbers of messages are per second.
#[derive(Debug)]
pub(super) struct Period {
    pub(super) seconds: f64,
    pub(super) asked: f64,
    pub(super) datagrams: f64,
    pub(super) fresh: f64,
    pub(super) fresh_registers: f64,
    pub(super) fresh_on_streams: [f64; 2],
    pub(super) late: f64,
    pub(super) repeated: f64,
    pub(super) spared: f64,
    pub(super) taken: f64,
    pub(super) filtered: f64,
    pub(super) overflow: f64,
    /// The time that rejecting took, divided by the length of the period.
    pub(super) load: f64,
    /// The fraction of the period in which the processor was idle, 0 to 1.
    pub(super) idle: f64,
    /// The CPU time that was used in the period, divided by the length of the period.
    pub(super) cpu: f64,
    /// Seconds that a rejection took, or `None` if there were too few rejections.
    pub(super) cost: Option<f64>,
}

impl Period {
    pub(super) fn between(earlier: &Tally, later: &Tally, passed: Duration) -> Self {
        let since = |count: fn(&Tally) -> u64| count(later).saturating_sub(count(earlier));
        let time = |time: fn(&Tally) -> Duration| time(later).saturating_sub(time(earlier));
        let seconds = passed.as_secs_f64();
        let rate = |count: u64| count as f64 / seconds;
        let (messages, rejected) = (since(|t| t.messages), since(|t| t.rejected));
        let part = (rejected + since(|t| t.brought)) as f64 / messages.max(1) as f64;
        let beside = time(|t| t.occupied).saturating_sub(time(|t| t.served));
        let of_messages = beside.saturating_sub(time(|t| t.apart));
        let rejecting = of_messages.as_secs_f64() * part.min(1.0);
        Self {
            seconds,
            asked: rate(since(|t| t.asked)),
            datagrams: rate(since(|t| t.datagrams)),
            fresh: rate(since(|t| t.fresh)),
            fresh_registers: rate(since(|t| t.fresh_registers)),
            fresh_on_streams: [
                rate(since(|t| t.fresh_on_streams[0])),
                rate(since(|t| t.fresh_on_streams[1])),
            ],
            late: rate(since(|t| t.late)),
            repeated: rate(since(|t| t.repeated)),
            spared: rate(since(|t| t.spared)),
            taken: rate(since(|t| t.taken)),
            filtered: rate(since(|t| t.filtered)),
            overflow: rate(since(|t| t.overflow)),
            load: rejecting / seconds,
            idle: 1.0 - time(|t| t.occupied).as_secs_f64() / seconds,
            cpu: time(|t| t.cpu).as_secs_f64() / seconds,
            cost: (rejected >= REJECTIONS).then(|| rejecting / rejected as f64),
        }
    }

    /// Returns the messages a second that say nothing about the rate of first packets: those that
    /// are exempt from drops, and retransmissions of judged requests.
    pub(super) fn exempt(&self) -> f64 {
        (self.asked - self.fresh - self.late).max(0.0)
    }

    /// Returns the messages a second that are exempt from drops, because they come from sources that
    /// are not heavy or are spared.
    pub(super) fn others(&self) -> f64 {
        (self.exempt() - self.repeated).max(0.0)
    }

    /// Returns the fresh messages a second of each method, in the order of
    /// [`DroppableMethod::ALL`](tidegate_world::DroppableMethod::ALL).
    pub(super) fn fresh_by_method(&self) -> [f64; 2] {
        [(self.fresh - self.fresh_registers).max(0.0), self.fresh_registers]
    }

    /// Stops counting these numbers of fresh packets of each method, which have [hot](super::hot)
    /// marks, as first packets.
    pub(super) fn exempt_hot(&mut self, counts: [u32; 2]) {
        let [invites, registers] = self.fresh_by_method();
        let hot = |count: u32, fresh: f64| (f64::from(count) / self.seconds).min(fresh);
        let (invites, registers) = (hot(counts[0], invites), hot(counts[1], registers));
        self.fresh -= invites + registers;
        self.fresh_registers -= registers;
        self.repeated += invites + registers;
    }

    /// Returns the rate at which the messages of `asked` arrived, in messages a second. This is the
    /// rate at which messages on connections were read, times the ratio `on_streams`, plus the rate
    /// at which datagrams were read, times the ratio `datagrams`. The ratios are those of
    /// [`Standing::pace`](super::standing::Standing::pace).
    pub(super) fn read(&self, [on_streams, datagrams]: [f64; 2]) -> f64 {
        on_streams * (self.asked - self.datagrams).max(0.0) + datagrams * self.datagrams
    }
}
