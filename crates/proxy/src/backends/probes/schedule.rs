//! The back ends that a shard can probe, and the times of their next probes.

use std::time::Duration;

use hashbrown::HashMap;
use tidegate_balance::EndpointAddress;
use tidegate_world::{Stream, Timers, Timestamp};

use super::flight::Flight;
use crate::settings::BackendRef;

/// The schedule of the probes of a shard.
pub(super) struct Schedule {
    /// All configured back ends, ordered by [`BackendRef`].
    pub(super) targets: Vec<Probed>,
    /// Timers, each with the index of a back end in `targets`. A timer whose time differs from
    /// [`Probed::armed`] is outdated and ignored.
    due: Timers<u32>,
}

/// A back end that is probed regularly or can be probed immediately.
pub(super) struct Probed {
    pub(super) backend_ref: BackendRef,
    endpoint_address: EndpointAddress,
    /// Time of the next regular probe of the back end, or `NEVER` if this shard does not probe it
    /// regularly.
    pub(super) next: Timestamp,
    /// Time of the only valid timer of this back end in [`Schedule::due`], or `NEVER` if the back
    /// end has no valid timer.
    armed: Timestamp,
    pub(super) question: Option<Question>,
    pub(super) flight: Option<Flight>,
}

/// A requested immediate probe.
#[derive(Clone, Copy)]
pub(super) struct Question {
    /// Time since which the back end is suspect. If the back end answers any request after this
    /// time, the probe is not needed.
    pub(super) since: Timestamp,
    pub(super) due: Timestamp,
}

impl Probed {
    fn deadline(&self) -> Timestamp {
        match &self.flight {
            None => self.question.map_or(self.next, |question| question.due.min(self.next)),
            Some(flight) => flight.deadline(),
        }
    }
}

impl Schedule {
    /// Creates a schedule without back ends.
    pub(super) fn new() -> Self {
        Self { targets: Vec::new(), due: Timers::new() }
    }

    /// Replaces the list of back ends to probe. Each has the interval of its regular probes, or
    /// `None` if it is only probed when it is suspect. A back end that was listed before keeps the
    /// time of its next probe, but at most one interval from now. A new back end is first probed at
    /// a random time within one interval, drawn from `stream`. Pending and requested probes are
    /// forgotten.
    pub(super) fn enlist(
        &mut self,
        now: Timestamp,
        who: Vec<(BackendRef, EndpointAddress, Option<Duration>)>,
        stream: &mut Stream,
    ) {
        let before = std::mem::take(&mut self.targets).into_iter();
        let before = before.filter(|target| target.next != Timestamp::NEVER);
        let before: HashMap<_, _> = before.map(|t| (t.endpoint_address, t.next)).collect();
        self.due = Timers::new();
        for (backend_ref, endpoint_address, interval) in who {
            let next = interval.map_or(Timestamp::NEVER, |interval| {
                let first = now + interval.mul_f64(stream.unit());
                before.get(&endpoint_address).map_or(first, |&next| next.min(now + interval))
            });
            if next != Timestamp::NEVER {
                self.due.push(next, self.targets.len() as u32);
            }
            let (question, flight) = (None, None);
            self.targets.push(Probed {
                backend_ref,
                endpoint_address,
                next,
                armed: next,
                question,
                flight,
            });
        }
    }

    /// Requests an immediate probe of a back end that has been suspect since `since`. If a regular
    /// probe is pending, no other probe is sent, and the response to the pending probe is awaited
    /// for `wait` from now. If a probe is already pending because the back end was suspect, nothing
    /// changes.
    pub(super) fn question(
        &mut self,
        now: Timestamp,
        backend_ref: BackendRef,
        since: Timestamp,
        wait: Duration,
    ) {
        // A removed back end is not in the list, and needs no probe: it gets no new requests.
        let Ok(place) =
            self.targets.binary_search_by_key(&backend_ref, |target| target.backend_ref)
        else {
            return;
        };
        let target = &mut self.targets[place];
        match &mut target.flight {
            Some(Flight { suspect_since: Some(_), .. }) => return,
            Some(flight) => {
                (flight.suspect_since, flight.until) = (Some(since), now + wait);
            }
            None => {
                target.question.get_or_insert(Question { since, due: now });
            }
        }
        self.arm(place);
    }

    /// Returns when something is next due.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.due.next()
    }

    /// Returns the index of a target that has something due: a probe, a retransmission or the end
    /// of a probe.
    pub(super) fn next_due(&mut self, now: Timestamp) -> Option<usize> {
        while let Some((at, place)) = self.due.pop(now) {
            let target = &mut self.targets[place as usize];
            if target.armed == at {
                target.armed = Timestamp::NEVER;
                return Some(place as usize);
            }
        }
        None
    }

    /// Sets the timer of a target again, if something is due earlier.
    pub(super) fn arm(&mut self, place: usize) {
        let target = &mut self.targets[place];
        let deadline = target.deadline();
        if deadline < target.armed {
            target.armed = deadline;
            self.due.push(deadline, place as u32);
        }
    }
}
