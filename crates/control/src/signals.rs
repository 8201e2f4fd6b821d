//! The signals that one server can measure about itself.

use std::time::Duration;

use tidegate_world::{DroppableMethod, Timestamp, unit_enum};

use crate::{Answers, Backlog, Costs, Mix, Sessions, Sojourn};

unit_enum! {
    /// A kind of new work. Each kind has its own throttle. Metrics use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Bucket {
        /// Work that begins a session. More work of the session follows.
        Session = "session",
        /// A single request, which does not begin a session.
        Single = "single",
        /// Work that begins a session and is served before other new work, up to a rate limit.
        Priority = "priority",
    }
}

pub(crate) const BUCKETS: usize = Bucket::ALL.len();

/// Counts of the new work of one bucket since the start. At all times, `offered = admitted +
/// rejected + undecided`, where `undecided` counts the waiting pieces that the gate will judge at
/// the start of their service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Messages that ask for new work, including repetitions.
    pub arrived: u64,
    /// Pieces of new work that arrived, each counted once.
    pub offered: u64,
    /// Pieces of new work that entered the queue.
    pub entered: u64,
    /// Pieces of new work that were taken from the queue to be served.
    pub taken: u64,
    /// Pieces of new work that were admitted.
    pub admitted: u64,
    /// Pieces of new work that were rejected.
    pub rejected: u64,
    /// Rejected pieces of new work whose source had exceeded its configured limit, or for which the
    /// back ends had no room. These rejections say nothing about this server's own load.
    pub limited: u64,
    /// Pieces of new work that were admitted at their arrival, but were rejected when their turn
    /// came, because they had waited too long. A piece that is judged only when its turn comes
    /// counts as `rejected` instead.
    pub stale: u64,
    /// Rejected pieces of new work for which the queue had no room, or which had waited too long in
    /// the queue.
    pub lost: u64,
    /// Retransmissions of requests that wait, or that were admitted or rejected before.
    pub repeated: u64,
    /// Pieces of new work that overload control rejected although the processor had been partly
    /// idle within the last 0.1 s.
    pub early: u64,
}

/// The queue in which new sessions wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// Number of waiting sessions, or of all waiting messages if all messages share one queue. It
    /// may be compared with `room`, but not with a window, because a window counts sessions only
    /// ([`Signals::in_window`]).
    pub waiting: usize,
    /// The maximum number of sessions in the queue. If all messages share one queue, the maximum
    /// number of messages. 0 if no maximum was set.
    pub room: usize,
    /// If the law limits the rate at which sessions leave the queue, the number of sessions that
    /// could have left it at this rate but have not. A number above 1 means that the processor is
    /// slower than this rate.
    pub credit: f64,
    /// The longest wait in a receive buffer of the requests for new work that were read since the
    /// last tick, or `None` if none was read.
    pub lag: Option<Duration>,
}

/// A message whose service has begun or is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// True if the message asked for a new session. False for single requests and for sessions with
    /// priority: they wait in queues of their own, so their waits tell a law nothing about the
    /// queue of new sessions.
    pub is_session: bool,
    /// Time from the arrival of the message to the start of its service.
    pub sojourn: Duration,
    /// Duration of the service, or zero until it is known.
    pub cost: Duration,
}

/// A reading of the time for which the processor was occupied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The time of the reading.
    pub at: Timestamp,
    /// Total time since the start for which the processor was occupied.
    pub occupied: Duration,
}

impl Reading {
    /// Returns the occupancy between an earlier reading and this one, 0 to 1, or `None` if no time
    /// has passed.
    pub fn occupancy_since(self, earlier: Self) -> Option<f64> {
        let passed = self.at.since(earlier.at);
        let occupied = self.occupied.saturating_sub(earlier.occupied);
        (!passed.is_zero()).then(|| (occupied.as_secs_f64() / passed.as_secs_f64()).min(1.0))
    }
}

/// All signals that a server can measure about itself. Each count is the total since the start. A
/// law that needs the increase of a count keeps the previous value.
#[derive(Debug, Default)]
pub struct Signals {
    /// Messages of all kinds that have arrived.
    pub messages: u64,
    /// Messages of all kinds that were not admitted, including repetitions of rejected messages.
    pub messages_rejected: u64,
    /// The messages in `messages_rejected` that were not admitted because no back end had room,
    /// including repetitions. The law cannot change this number.
    pub messages_full: u64,
    pub(crate) flows: [Flow; BUCKETS],
    pub(crate) in_progress: [u64; BUCKETS],
    /// The last reading of the processor's occupied time.
    pub processor: Reading,
    /// Fill of the fullest receive buffer, 0 to 1.
    pub socket_fill: f64,
    pub(crate) dropped: [f64; DroppableMethod::ALL.len()],
    /// The queue in which new sessions wait.
    pub queue: Queue,
    /// Sojourns of messages: the times from arrival to the start of service.
    pub sojourn: Sojourn,
    /// The message whose service just began or completed. Not every completion is reported, because
    /// the cost of a message is known only if another message is served right after it.
    pub service: Service,
    /// The cost of serving a message, by class.
    pub costs: Costs,
    /// Counts of arriving messages, by class.
    pub mix: Mix,
    /// Estimates of the rate, the length and the cost of whole sessions.
    pub sessions: Sessions,
    /// Numbers of waiting messages, by kind.
    pub backlog: Backlog,
    /// Counts of the INVITEs that were sent to back ends, and of their answers.
    pub answers: Answers,
    /// The time at which a back end last sent a new INVITE, as far as it was recorded. It is recorded
    /// only while new work [takes turns](crate::QueueControl::takes_turns).
    pub back_ends_called: Option<Timestamp>,
}

impl Signals {
    /// Returns the counts of new work of one bucket.
    pub fn flow(&self, bucket: Bucket) -> &Flow {
        &self.flows[bucket as usize]
    }

    /// Returns the share of the requests for work of one bucket that is dropped before it is read, 0
    /// to 1. For single requests it is the share of the REGISTERs. Work with priority is not
    /// dropped. If only requests of heavy sources are dropped, it is the share of these.
    pub fn dropped(&self, bucket: Bucket) -> f64 {
        match bucket {
            Bucket::Session => self.dropped[DroppableMethod::Invite as usize],
            Bucket::Single => self.dropped[DroppableMethod::Register as usize],
            Bucket::Priority => 0.0,
        }
    }

    /// Returns whether new work of any kind waits for service.
    pub(crate) fn new_work_waits(&self) -> bool {
        self.queue.waiting > 0 || self.in_progress.iter().any(|&count| count > 0)
    }

    /// Returns the number of pieces of one bucket that entered the queue and have not been taken
    /// from it.
    pub fn in_progress(&self, bucket: Bucket) -> u64 {
        self.in_progress[bucket as usize]
    }

    /// Returns an estimate of the number of sessions to which the waiting messages belong. It
    /// includes sessions that have already begun.
    pub fn sessions_waiting(&self) -> f64 {
        self.sessions.waiting(&self.backlog, self.mix.share_of_new())
    }

    /// Returns the number of pieces of one bucket that count against a
    /// [window](crate::Allowance::Window): those that wait for service and, for sessions, an
    /// estimate of those among the unread messages. Messages that do not ask for new work do not
    /// count, even if they wait in the same queue.
    pub fn in_window(&self, bucket: Bucket) -> u64 {
        let unread = match bucket {
            Bucket::Session => self.backlog.unread as f64 * self.mix.share_of_new(),
            Bucket::Single | Bucket::Priority => 0.0,
        };
        self.in_progress(bucket) + unread.round() as u64
    }

    pub(crate) fn flow_mut(&mut self, bucket: Bucket) -> &mut Flow {
        &mut self.flows[bucket as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 002 §3.1: "It is very important to recognize that the number of remaining sessions is NOT equal
    // to the number of INVITE messages in the queue, because the queue is shared by all types of
    // messages". Nor is it equal to the number of all messages.
    #[test]
    fn a_window_counts_sessions_and_not_the_messages_of_a_common_queue() {
        let mut signals = Signals::default();
        signals.queue.waiting = 70;
        signals.backlog = Backlog { sessions: 10, others: 60, unread: 0 };
        signals.in_progress[Bucket::Session as usize] = 10;
        assert_eq!(Bucket::ALL.map(|bucket| signals.in_window(bucket)), [10, 0, 0]);
        // One message in seven begins a session.
        for message in 0..70 {
            signals.mix.record(Timestamp::ZERO, 0, message % 7 == 0);
        }
        signals.backlog = Backlog { sessions: 0, others: 0, unread: 70 };
        signals.in_progress[Bucket::Session as usize] = 2;
        assert_eq!(Bucket::ALL.map(|bucket| signals.in_window(bucket)), [12, 0, 0]);
    }

    #[test]
    fn occupancy_is_the_occupied_share_of_the_time_between_two_readings() {
        let reading = |at_ms: u64, occupied_ms| Reading {
            at: Timestamp::from_nanos(at_ms * 1_000_000),
            occupied: Duration::from_millis(occupied_ms),
        };
        let first = reading(100, 40);
        assert_eq!(reading(120, 45).occupancy_since(first), Some(0.25));
        assert_eq!(reading(100, 40).occupancy_since(first), None);
        // Two clocks never agree to the last nanosecond.
        assert_eq!(reading(110, 51).occupancy_since(first), Some(1.0));
    }
}
