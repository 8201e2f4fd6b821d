//! The real machine of a shard: sockets, the monotonic clock, and `ppoll`.

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_relative, set_current_timer_slack};
use tidegate_world::{Failure, Pool, Received, Shedding, Timestamp};

use crate::clock::thread_cpu;
use crate::connections::Connections;
use crate::dispatch::Dispatch;
use crate::machine::{Buffers, Kind, Machine, Ready, StreamEvent, StreamTurn};
use crate::reception::{LISTENERS_MAX, Reception, SOCKETS_MAX};
use crate::{Clock, Counters, Inbox, Limits, Listener, Waker};

/// The [`Machine`] with real sockets and real time, for the thread that created it.
pub struct Sockets {
    clock: Clock,
    reception: Reception,
    dispatch: Dispatch,
    listeners: Rc<[Listener]>,
    counters: Arc<Counters>,
    /// The shedding that the kernel applies, or `None` if a listener did not accept the last one.
    /// The machine sets a shedding again only when the core requests a different one.
    shedding: Option<Shedding>,
    /// The last shedding that the kernel did not accept.
    refused: Option<Refused>,
}

/// The state after the kernel did not accept a shedding: the machine tries again later.
#[derive(Clone, Copy)]
struct Refused {
    /// Earliest time of the next attempt. Attempts are rare, because each may take a tenth of the
    /// time between two readings of the load.
    until: Timestamp,
    /// True if a share of the new work was to be dropped.
    has_share: bool,
}

/// Minimum time until the next attempt if the kernel did not accept a shedding.
const SHED_AGAIN: Duration = Duration::from_secs(1);

impl Sockets {
    pub(crate) fn new(
        clock: Clock,
        listeners: Vec<Listener>,
        pool: &Pool,
        counters: Arc<Counters>,
        limits: &Limits,
    ) -> io::Result<Self> {
        if listeners.len() > LISTENERS_MAX {
            let count = listeners.len();
            let why =
                format!("there are {count} listeners, but at most {LISTENERS_MAX} are possible");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // By default a sleep may last 50 µs longer than requested, to save wakes of an idle
        // machine. That is a tenth of the default longest pause. One nanosecond is the smallest possible
        // value.
        set_current_timer_slack(NonZeroU64::new(1)).map_err(named("PR_SET_TIMERSLACK"))?;
        let listeners: Rc<[Listener]> = listeners.into();
        let inbox = Inbox::new(pool);
        let reception = Reception::new(Rc::clone(&listeners), inbox, Arc::clone(&counters));
        let dispatch = Dispatch::new(Rc::clone(&listeners), Arc::clone(&counters), limits);
        let (shedding, refused) = (Some(Shedding::NONE), None);
        Ok(Self { clock, reception, dispatch, listeners, counters, shedding, refused })
    }

    /// Sets the shedding at all listeners. Returns whether all have accepted it.
    fn shed_everywhere(&self, shedding: &Shedding) -> bool {
        let failed = self.listeners.iter().filter(|l| l.shed(shedding).is_err()).count();
        self.counters.shed_errors.add(failed as u64);
        failed == 0
    }

    /// Adds the connections of the shard to the machine.
    pub(crate) fn set_connections(&mut self, connections: Connections) {
        self.dispatch.connections = Some(Box::new(connections));
    }
}

impl Machine for Sockets {
    type Outlet = Dispatch;

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn cpu(&self) -> Duration {
        thread_cpu()
    }

    fn begin_turn(&mut self, is_behind: bool) {
        self.reception.rotate();
        if let Some(connections) = &mut self.dispatch.connections {
            connections.set_behind(is_behind);
        }
    }

    #[inline]
    fn receive(
        &mut self,
        kind: Kind,
        ready: Ready,
        limit: usize,
        mut offer: impl FnMut(&mut Dispatch, Timestamp, Received),
    ) -> io::Result<usize> {
        let Self { clock, reception, dispatch, .. } = self;
        reception
            .receive(clock, kind, ready, limit, |now, received| offer(dispatch, now, received))
            .map_err(named("recvmmsg"))
    }

    fn reports(
        &mut self,
        ready: Ready,
        limit: usize,
        mut tell: impl FnMut(&mut Dispatch, Failure),
    ) -> io::Result<bool> {
        let Self { reception, dispatch, .. } = self;
        let ready = if dispatch.take_report_sign() { ready.and_reports() } else { ready };
        reception.reports(ready, limit, |failure| tell(dispatch, failure)).map_err(named("recvmsg"))
    }

    fn stream_events(
        &mut self,
        ready: Ready,
        limit: usize,
        mut tell: impl FnMut(&mut Dispatch, Timestamp, StreamEvent),
    ) -> io::Result<StreamTurn> {
        let Self { clock, dispatch, .. } = self;
        let Some(connections) = &mut dispatch.connections else { return Ok(StreamTurn::default()) };
        let mut now = clock.now();
        if ready.streams || connections.due() <= now {
            connections.poll(now).map_err(named("epoll"))?;
        }
        let (mut budget, mut events) = (limit, 0);
        while let Some(connections) = &mut dispatch.connections
            && let Some(event) = connections.next_event(now, &mut budget)
        {
            events += 1;
            tell(dispatch, now, event);
            now = clock.now();
        }
        // Reads that yield no message also use up the budget. Steps of handshakes have a limit of
        // their own.
        let has_steps = dispatch.connections.as_ref().is_some_and(|found| found.has_steps());
        Ok(StreamTurn { events, is_limited: budget == 0 || has_steps })
    }

    fn streams_due(&self) -> Timestamp {
        let connections = self.dispatch.connections.as_ref();
        connections.map_or(Timestamp::NEVER, |connections| connections.due())
    }

    fn outlet(&mut self) -> &mut Dispatch {
        &mut self.dispatch
    }

    fn flush(&mut self) {
        let Self { clock, dispatch, .. } = self;
        dispatch.flush(|| clock.now());
    }

    fn failures(&self) -> usize {
        self.dispatch.failures()
    }

    fn take_failure(&mut self) -> Option<Failure> {
        self.dispatch.take_failure()
    }

    fn read_drop_counters(&mut self) -> Buffers {
        let is_shed_refused = self.refused.is_some_and(|refused| self.clock.now() < refused.until);
        Buffers { is_shed_refused, ..self.reception.read_drop_counters() }
    }

    fn shed(&mut self, shedding: &Shedding) {
        if self.shedding.as_ref() == Some(shedding) {
            return;
        }
        let (now, has_share) = (self.clock.now(), shedding.has_share());
        // Without a share, the BPF program is much shorter, so the kernel may accept it.
        let waits = |refused: Refused| now < refused.until && has_share == refused.has_share;
        if self.refused.is_some_and(waits) {
            return;
        }
        if self.shed_everywhere(shedding) {
            self.shedding = Some(shedding.clone());
            return;
        }
        // The core learns that this shedding is not in force. So the listeners that have accepted
        // it must stop dropping, and so must those that still have an earlier shedding. If this
        // fails too, the next attempt sets all listeners again.
        self.shed_everywhere(&Shedding::NONE);
        self.shedding = None;
        self.refused = Some(Refused { until: now + SHED_AGAIN, has_share });
    }

    fn leave(&mut self) -> bool {
        let mut any = false;
        for listener in self.listeners.iter() {
            match listener.leave() {
                Ok(left) => any |= left,
                // The shard continues to receive at this address, and rejects new work.
                Err(_) => self.counters.leave_errors.add(1),
            }
        }
        let now = self.clock.now();
        if let Some(connections) = &mut self.dispatch.connections {
            any |= connections.leave(now);
        }
        any
    }

    fn close_streams(&mut self, patience: Duration) {
        let Self { clock, dispatch, .. } = self;
        let Some(connections) = &mut dispatch.connections else { return };
        let mut now = clock.now();
        let until = now + patience;
        connections.close_all(now);
        while !connections.is_empty() && now < until {
            let timeout = timespec(until.since(now));
            let mut fds = [PollFd::from_borrowed_fd(connections.fd(), PollFlags::IN)];
            // A call that a signal interrupts is repeated.
            let polled = poll(&mut fds, Some(&timeout));
            now = clock.now();
            if polled.is_err_and(|error| error != Errno::INTR) || connections.poll(now).is_err() {
                break;
            }
        }
        connections.give_up();
    }

    fn pause(&mut self, time: Duration) {
        // If a signal interrupts the pause, the pause is only shorter.
        let _ = clock_nanosleep_relative(ClockId::Monotonic, &timespec(time));
    }

    fn sleep(&mut self, waker: &Waker, timeout: Option<Duration>) -> (io::Result<Ready>, bool) {
        let timeout = timeout.map(timespec);
        let mut fds: ArrayVec<PollFd<'_>, { SOCKETS_MAX + 2 }> = self.reception.poll_fds();
        let sockets = fds.len();
        fds.push(PollFd::new(waker, PollFlags::IN));
        if let Some(connections) = &self.dispatch.connections {
            fds.push(PollFd::from_borrowed_fd(connections.fd(), PollFlags::IN));
        }
        let polled = poll(&mut fds, timeout.as_ref());
        let is_in = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
        let rung = is_in(&fds[sockets]);
        let streams = fds.get(sockets + 1).is_some_and(is_in);
        let ready = match polled {
            Ok(_) => Ok(Ready { streams, ..Reception::ready(&fds[..sockets]) }),
            Err(Errno::INTR) => Ok(Ready::NONE),
            Err(error) => Err(named("ppoll")(error)),
        };
        (ready, rung)
    }
}

/// Returns an error with the name of the call that failed.
fn named<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{call}: {error}"))
    }
}

fn timespec(duration: Duration) -> Timespec {
    // A time longer than the system can express is clamped.
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;
    use crate::{Group, Listen, open, sockopt};

    fn gated() -> Group {
        open(&Listen { gate: true, ..Listen::new("127.0.0.1:0".parse().unwrap()) }).unwrap()
    }

    /// Returns whether an INVITE passes the gate of a group.
    fn passes(peer: &UdpSocket, group: &Group) -> bool {
        let gate = group.gate().unwrap();
        let before = gate.filtered();
        peer.send_to(b"INVITE sip:a", group.local()).unwrap();
        gate.filtered() == before
    }

    #[test]
    fn shedding_that_one_listener_does_not_accept_is_in_force_nowhere() {
        let groups = [gated(), gated()];
        let listeners: Vec<Listener> = groups.iter().map(|group| group.listener(0)).collect();
        let second = listeners[1].clone();
        let (counters, limits) = (Arc::<Counters>::default(), Limits::default());
        let clock = Clock::start();
        let mut sockets =
            Sockets::new(clock, listeners, &Pool::new(), Arc::clone(&counters), &limits).unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let all = Shedding { shares: [1.0; 2], ..Shedding::NONE };
        sockets.shed(&all);
        assert!(groups.iter().all(|group| !passes(&peer, group)));
        sockets.shed(&Shedding::NONE);
        assert!(groups.iter().all(|group| passes(&peer, group)));

        // socket(7): the filters of a locked socket cannot be changed.
        sockopt::set(second.ordinary().as_fd(), libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1).unwrap();
        sockets.shed(&all);
        assert!(groups.iter().all(|group| passes(&peer, group)));
        assert!(sockets.read_drop_counters().is_shed_refused);
        assert_eq!(counters.shed_errors.get(), 1);
    }

    #[test]
    fn after_a_failure_each_listener_is_set_again() {
        let groups = [gated(), gated()];
        let listeners: Vec<Listener> = groups.iter().map(|group| group.listener(0)).collect();
        let second = listeners[1].clone();
        let (counters, limits) = (Arc::default(), Limits::default());
        let mut sockets =
            Sockets::new(Clock::start(), listeners, &Pool::new(), counters, &limits).unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let all = Shedding { shares: [1.0; 2], ..Shedding::NONE };
        sockets.shed(&all);
        sockopt::set(second.ordinary().as_fd(), libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1).unwrap();
        sockets.shed(&Shedding::NONE);
        assert_eq!(groups.each_ref().map(|group| passes(&peer, group)), [true, false]);
        // The second listener still has this shedding. The first one has lost it.
        sockets.shed(&all);
        assert!(groups.iter().all(|group| !passes(&peer, group)));
    }
}
