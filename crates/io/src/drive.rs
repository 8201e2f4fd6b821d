//! The loop of one shard, which drives a core.

mod shard_handoffs;
mod streams;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{Core, Counter, HandoffInput, Pool, Timestamp};

use self::shard_handoffs::{Returned, ShardHandoffs};
use crate::commands::{CommandReceiver, CommandSender};
use crate::draining::{Draining, Summary};
use crate::load::Readings;
use crate::machine::{Kind, Machine, Outlet, Ready, StreamEvent, StreamTurn};
use crate::resolver::{Resolver, ResolverHandle};
use crate::sockets::Sockets;
use crate::stores::Stores;
use crate::{Clock, Counters, Handoffs, Limits, Listener, Pauses, Stop};

/// Time after a received datagram at which an idle shard reads the kernel's counters of dropped
/// datagrams. Otherwise drops would be reported only with the next datagram.
const DROP_COUNTERS_AFTER: Duration = Duration::from_millis(100);

/// Maximum number of answers to queries that one turn passes to the core.
const ANSWERS: usize = 16;

/// The parts of a shard, from which [`Drive::new`] creates its driver.
#[derive(Debug)]
pub struct Shard {
    /// The clock. It is the same for all shards.
    pub clock: Clock,
    /// The limits of the shard's turns.
    pub limits: Limits,
    /// The shard's sockets, for up to 16 listening addresses.
    pub listeners: Vec<Listener>,
    /// The shard's end of the queues between shards.
    pub handoffs: Handoffs,
    /// The shard's counters.
    pub counters: Arc<Counters>,
    /// The handle that asks the shard to stop.
    pub stop: Stop,
    /// The pool of buffers for received datagrams. It belongs to the shard's thread.
    pub pool: Pool,
}

/// A shard's driver: it passes packets, time and failures to a core, and sends the core's packets.
///
/// A *turn* has several steps. It first reads the load, if the last reading is
/// [`SAMPLE`](crate::SAMPLE) old. Then it takes a command, if one waits, and the answers to
/// queries. It passes on the failures of the last flush, and ICMP reports. It reads the sockets for
/// responses, then the ordinary sockets, and then the events on connections, each within a limit.
/// It fires expired timers and takes handoffs. It reads the sockets for new work within their
/// limit. It ends with a quantum of service and one flush. During the service and before it, the
/// load is read again and timers fire, because a turn of a slow processor may last for a tenth of a
/// second. If no work is left, the shard sleeps until a datagram, an event on a connection, a wake
/// by another thread or the core's next timer. Otherwise it takes the next turn at once. So no kind
/// of work can use up the time of another.
pub struct Drive<M = Sockets> {
    machine: M,
    limits: Limits,
    handoffs: ShardHandoffs,
    counters: Arc<Counters>,
    commands: CommandReceiver,
    resolver: ResolverHandle,
    pool: Pool,
    pauses: Pauses,
    readings: Readings,
    /// The time up to which busy and idle time have been counted.
    accounted: Timestamp,
    drop_counters_due: Timestamp,
    /// True if the kernel drops datagrams at the request of the core. Then drops may happen without
    /// a later datagram that reports them.
    sheds: bool,
    draining: Option<Draining>,
    /// True if the last turn left messages to serve.
    is_behind: bool,
}

impl Drive {
    /// Creates a driver for the calling thread. Sets the timer slack of the thread to the minimum.
    ///
    /// # Errors
    /// Returns an error if there are too many listeners.
    pub fn new(shard: Shard) -> io::Result<Self> {
        let Shard { clock, limits, listeners, handoffs, counters, stop, pool } = shard;
        let inlet = Arc::clone(&counters);
        let machine = Sockets::new(clock, listeners, &pool, inlet, &limits)?;
        Ok(Self::on(machine, limits, handoffs, counters, &stop, pool))
    }
}

impl<M: Machine> Drive<M> {
    /// Creates a driver on any [`Machine`], for example a simulated one. Handoffs from other shards
    /// are copied into buffers of `pool`.
    pub fn on(
        machine: M,
        limits: Limits,
        handoffs: Handoffs,
        counters: Arc<Counters>,
        stop: &Stop,
        pool: Pool,
    ) -> Self {
        let barrier = stop.join(handoffs.waker().clone());
        let now = machine.now();
        Self {
            pauses: Pauses::new(limits.coalesce, now),
            readings: Readings::start(machine.cpu()),
            accounted: now,
            drop_counters_due: Timestamp::NEVER,
            sheds: false,
            draining: None,
            is_behind: false,
            machine,
            limits,
            handoffs: ShardHandoffs::new(handoffs, barrier, Arc::clone(&counters)),
            counters,
            commands: CommandReceiver::closed(),
            resolver: ResolverHandle::closed(),
            pool,
        }
    }

    /// Sets the handle through which the core gets commands ([`CommandSender::give`]).
    #[must_use]
    pub fn with_commands(self, commands: &CommandSender) -> Self {
        Self { commands: commands.join(self.handoffs.waker().clone()), ..self }
    }

    /// Sets the resolver that answers the core's name queries. Without a resolver, the queries stay
    /// unanswered.
    #[must_use]
    pub fn with_resolver(self, resolver: &Resolver) -> Self {
        let waker = self.handoffs.waker().clone();
        Self { resolver: self.resolver.resolving(resolver, waker), ..self }
    }

    /// Sets the stores that answer the core's look-ups. Without stores, the look-ups stay
    /// unanswered.
    #[must_use]
    pub fn with_stores(mut self, stores: &Stores) -> Self {
        self.resolver.set_stores(stores);
        self
    }

    /// Drives `core` until a request to stop. Then drives it until all shards have drained, the
    /// time for draining is over, or a second request comes.
    ///
    /// # Errors
    /// Returns errors of system calls that no peer can cause, with the name of the call.
    pub fn run<C: Core>(&mut self, core: &mut C) -> io::Result<Summary> {
        let mut ready = Ready::UNKNOWN;
        loop {
            if let Some(summary) = self.apply_stop(core) {
                return Ok(self.end(summary));
            }
            let more = self.turn(core, ready)?;
            // The condition to stop may have been met in this turn. It is checked here, because no
            // later event would wake the shard.
            if !more
                && self.draining.is_some()
                && let Some(summary) = self.apply_stop(core)
            {
                return Ok(self.end(summary));
            }
            ready = if more { Ready::UNKNOWN } else { self.rest(core.poll_timeout())? };
            // The result of the poll may be outdated. Datagrams that it misses would never be read,
            // because the shard is leaving an address.
            if self.draining.as_ref().is_some_and(Draining::is_leaving) {
                ready = Ready::UNKNOWN;
            }
        }
    }

    fn end(&mut self, summary: Summary) -> Summary {
        self.machine.flush();
        self.machine.close_streams(summary.patience());
        self.machine.read_drop_counters();
        self.account(self.machine.now(), |c| &c.busy_ns);
        summary
    }

    /// Runs one turn. Returns whether work is left.
    fn turn<C: Core>(&mut self, core: &mut C, ready: Ready) -> io::Result<bool> {
        let began = self.machine.now();
        self.counters.turns.add(1);
        self.read_load(core, began, false);
        self.machine.begin_turn(self.is_behind);
        if let Some(command) = self.commands.take() {
            core.on_command(began, &command);
            self.gather(core);
        }
        for _ in 0..ANSWERS {
            let Some((id, answer)) = self.resolver.take() else { break };
            core.on_answer(began, id, answer);
            self.gather(core);
        }
        let mut more = self.tell_failures(core, ready, began)?;

        // Responses come first, because a response was sent before the messages that follow it,
        // such as the BYE of the same callee.
        let responses = self.receive(core, Kind::Response, ready, self.limits.responses)?;
        if responses == self.limits.responses {
            self.counters.limited_responses.add(1);
            more = true;
        }
        let ordinary = self.receive(core, Kind::Ordinary, ready, self.limits.ordinary)?;
        if ordinary == self.limits.ordinary {
            self.counters.limited_ordinary.add(1);
            more = true;
        }
        let streams = self.stream_events(core, ready)?;
        if streams.is_limited {
            self.counters.limited_streams.add(1);
            more = true;
        }
        let now = self.machine.now();
        self.read_load(core, now, false);
        self.fire_timers(core, now);
        more |= self.take_handoffs(core);
        let invites = self.receive(core, Kind::Invite, ready, self.limits.invites)?;
        if invites == self.limits.invites {
            self.counters.limited_invites.add(1);
            more = true;
        }

        if let Some(draining) = &mut self.draining {
            let is_empty = ordinary < self.limits.ordinary && invites < self.limits.invites;
            draining.on_read(began, is_empty && !streams.is_limited);
        }

        let now = self.machine.now();
        let received = responses + ordinary + invites;
        self.pauses.on_received(now, received + streams.events);
        self.is_behind = self.serve(core, now, now.since(began));
        if (received > 0 || self.sheds) && self.drop_counters_due == Timestamp::NEVER {
            self.drop_counters_due = now + DROP_COUNTERS_AFTER;
        }
        more |= self.is_behind;
        self.machine.flush();
        Ok(more || self.machine.failures() > 0 || self.handoffs.returned() > 0)
    }

    /// Reads the load and passes it to the core, if the last reading is [`SAMPLE`](crate::SAMPLE)
    /// old. `ends_service` is true if the core has just served a message. Returns whether the load
    /// was read.
    fn read_load<C: Core>(&mut self, core: &mut C, now: Timestamp, ends_service: bool) -> bool {
        if !self.readings.is_due(now) {
            return false;
        }
        self.account(now, |c| &c.busy_ns);
        let busy = Duration::from_nanos(self.counters.busy_ns.get());
        let load = self.readings.take(now, busy, ends_service, &mut self.machine, &self.counters);
        core.on_load(now, load);
        self.gather(core);
        let shedding = core.poll_shedding();
        self.sheds = shedding.has_share() || !shedding.banned.is_empty();
        self.machine.shed(shedding);
        true
    }

    /// Fires the core's expired timers.
    fn fire_timers<C: Core>(&mut self, core: &mut C, now: Timestamp) {
        if core.poll_timeout().is_some_and(|due| due <= now) {
            core.handle_timeout(now);
            self.gather(core);
        }
    }

    fn receive<C: Core>(
        &mut self,
        core: &mut C,
        kind: Kind,
        ready: Ready,
        limit: usize,
    ) -> io::Result<usize> {
        let Self { machine, handoffs, resolver, counters, .. } = self;
        machine.receive(kind, ready, limit, |outlet, now, received| {
            core.offer(now, received);
            gather(core, outlet, handoffs, resolver, counters);
        })
    }

    /// Passes events on connections to the core.
    fn stream_events<C: Core>(&mut self, core: &mut C, ready: Ready) -> io::Result<StreamTurn> {
        let Self { machine, handoffs, resolver, counters, limits, .. } = self;
        machine.stream_events(ready, limits.streams, |outlet, now, event| {
            match event {
                StreamEvent::Connected(flow) => core.on_connected(now, flow),
                StreamEvent::Received(received) => core.offer(now, received),
                StreamEvent::Writable(id) => core.on_writable(now, id),
                StreamEvent::Closed(id, cause) => core.on_closed(now, id, cause),
            }
            gather(core, outlet, handoffs, resolver, counters);
        })
    }

    /// Passes send failures, messages that could not be handed off, and reports of the network to
    /// the core. Returns whether more reports may wait.
    fn tell_failures<C: Core>(
        &mut self,
        core: &mut C,
        ready: Ready,
        now: Timestamp,
    ) -> io::Result<bool> {
        // A core that reacts to a failure with another packet may cause another failure, which
        // waits for the next turn.
        for _ in 0..self.machine.failures() {
            let Some(failure) = self.machine.take_failure() else { break };
            core.on_failed(now, failure);
            self.gather(core);
        }
        for _ in 0..self.handoffs.returned() {
            match self.handoffs.take_returned() {
                Some(Returned::Unsent(failure)) => core.on_failed(now, failure),
                Some(Returned::Received(received)) => core.offer(now, received),
                None => break,
            }
            self.gather(core);
        }
        let Self { machine, handoffs, resolver, counters, limits, .. } = self;
        machine.reports(ready, limits.reports, |outlet, failure| {
            core.on_failed(now, failure);
            gather(core, outlet, handoffs, resolver, counters);
        })
    }

    fn take_handoffs<C: Core>(&mut self, core: &mut C) -> bool {
        for _ in 0..self.limits.handoffs {
            let Some(input) = self.handoffs.take(&self.pool) else { return false };
            let now = self.machine.now();
            match input {
                HandoffInput::Received(received) => core.offer(now, received),
                HandoffInput::Transmit(transmit) => core.on_transmit(now, transmit),
                HandoffInput::Failure(failure) => core.on_failed(now, failure),
            }
            self.gather(core);
        }
        self.counters.limited_handoffs.add(1);
        true
    }

    /// Serves until no message waits, but at most for a quantum, or for as long as this turn's
    /// `reception` took if that was longer. Returns whether the time was over, so that messages may
    /// still wait.
    fn serve<C: Core>(&mut self, core: &mut C, began: Timestamp, reception: Duration) -> bool {
        let until = began + self.limits.quantum.max(reception);
        let mut now = began;
        let mut served = 0;
        let more = loop {
            let busy = core.serve(now);
            // Takes the outputs even if nothing was served: on an emulated processor, earlier work
            // may have been completed now.
            self.gather(core);
            if !busy {
                break false;
            }
            served += 1;
            now = self.machine.now();
            if self.read_load(core, now, true) {
                self.fire_timers(core, now);
            }
            if now >= until {
                self.counters.limited_service.add(1);
                break true;
            }
        };
        self.counters.served.add(served);
        more
    }

    fn gather<C: Core>(&mut self, core: &mut C) {
        let Self { machine, handoffs, resolver, counters, .. } = self;
        gather(core, machine.outlet(), handoffs, resolver, counters);
    }

    /// Sleeps until a datagram, a wake, `timer`, or another deadline of this shard. Returns the
    /// sockets that are ready.
    fn rest(&mut self, timer: Option<Timestamp>) -> io::Result<Ready> {
        let began = self.machine.now();
        self.account(began, |c| &c.busy_ns);
        if self.drop_counters_due <= began {
            self.machine.read_drop_counters();
            self.drop_counters_due =
                if self.sheds { began + DROP_COUNTERS_AFTER } else { Timestamp::NEVER };
        }
        let drained = self.draining.as_ref().map_or(Timestamp::NEVER, Draining::due);
        let streams = self.machine.streams_due();
        let until =
            timer.unwrap_or(Timestamp::NEVER).min(self.drop_counters_due).min(drained).min(streams);
        if until <= began {
            return Ok(Ready::UNKNOWN);
        }
        let ready = match self.pauses.pause() {
            Some(pause) => {
                self.counters.pauses.add(1);
                self.machine.pause(pause.min(until.since(began)));
                Ready::UNKNOWN
            }
            None => self.sleep(until, began)?,
        };
        self.counters.wakes.add(1);
        self.account(self.machine.now(), |c| &c.idle_ns);
        Ok(ready)
    }

    fn sleep(&mut self, until: Timestamp, now: Timestamp) -> io::Result<Ready> {
        let waker = self.handoffs.waker();
        waker.fall_asleep();
        let requests_seen = u32::from(self.draining.is_some());
        let stopped = self.handoffs.barrier().requests() > requests_seen
            || self.handoffs.barrier().all_drained();
        let heard = !self.commands.is_empty() || !self.resolver.is_empty();
        if stopped || heard || !self.handoffs.is_empty() {
            waker.get_up(false);
            // Handoffs may come in every turn, so the sockets must be read in the meantime.
            return Ok(Ready::UNKNOWN);
        }
        let timeout = (until != Timestamp::NEVER).then(|| until.since(now));
        let (slept, rung) = self.machine.sleep(waker, timeout);
        waker.get_up(rung);
        slept
    }

    /// Starts draining the core after the first request to stop. Returns the summary once the drain
    /// has ended.
    fn apply_stop<C: Core>(&mut self, core: &mut C) -> Option<Summary> {
        let requests = self.handoffs.barrier().requests();
        if requests == 0 {
            self.handoffs.note(true);
            return None;
        }
        let now = self.machine.now();
        let mut draining = match self.draining {
            Some(draining) => draining,
            None => Draining::start(now, self.limits.drain, self.machine.leave()),
        };
        if draining.tells(now) {
            core.on_drain(now);
            self.gather(core);
        }
        self.draining = Some(draining);
        self.handoffs.note(draining.is_leaving() || !core.is_drained());
        draining.ended(now, self.handoffs.barrier().all_drained(), requests > 1)
    }

    /// Adds the time since the last call of this function, up to `now`, to `counter`.
    fn account(&mut self, now: Timestamp, counter: fn(&Counters) -> &Counter) {
        let passed = now.since(self.accounted);
        self.accounted = now;
        counter(&self.counters).add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Takes all outputs of the core and passes them on: packets, handoffs to other shards, queries,
/// and connections to open or to close.
fn gather<C: Core>(
    core: &mut C,
    outlet: &mut impl Outlet,
    handoffs: &mut ShardHandoffs,
    resolver: &ResolverHandle,
    counters: &Counters,
) {
    while let Some(transmit) = core.poll_transmit() {
        outlet.post(transmit);
    }
    while let Some(handoff) = core.poll_handoff() {
        handoffs.send(handoff);
    }
    while let Some(query) = core.poll_query() {
        let asked = resolver.ask(query);
        if asked { &counters.queries } else { &counters.queries_lost }.add(1);
    }
    while let Some(connect) = core.poll_connect() {
        outlet.connect(connect);
    }
    while let Some(id) = core.poll_close() {
        outlet.close(id);
    }
}

impl<M> fmt::Debug for Drive<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("limits", &self.limits).finish_non_exhaustive()
    }
}
