//! The calling user agent (UAC).
//!
//! Each call is INVITE → 2xx → ACK → hold → BYE. Many calls run at once, and start at times that
//! are drawn in advance. The branch of each request contains a [`Mark`], which leads a response to
//! its call. From the mark alone, the caller also acknowledges a final response that comes after
//! the end of its call.

mod call;
mod config;
mod device;
mod devices;
mod division;
mod ending;
mod incoming;
mod persons;
mod rates;
mod redial;
mod rejection;
mod report;
mod request;
mod result;
mod start;
mod stats;

use std::collections::VecDeque;
use std::net::SocketAddr;

use tidegate_sip::{Message, Method, Scan, ScanStart};
use tidegate_world::{
    Buffer, CloseCause, Connect, ConnectionId, Core, Failure as Undelivered, Flow, Pool, Purpose,
    Received, Seed, Stream, Timestamp, Transmit,
};

use crate::arrival::Arrivals;
use crate::connections::Connections;
use crate::dialog::Dialog;
use crate::identity::{Mark, Namer};
use crate::table::Table;
use call::{Action, Answer, Call};
use devices::Devices;
use redial::Redialers;
use request::{Branch, Requests};
use start::DelayedCall;

pub use config::{CallerConfig, CallerConfigError, Routing};
pub use device::{BackOff, DeviceStats, DevicesConfig, RegistrationLoss};
pub use division::Indivisible;
pub use persons::{Emergency, Persons};
pub use rates::TooSlow;
pub(crate) use rates::rate_to_last;
pub use redial::Redial;
pub use report::CallerReport;
pub use result::CallerResult;
pub use stats::{CallerStats, Failure, Failures, Measured, Repeated};

/// Maximum number of calls that one run of [`Core::handle_timeout`] starts, and of alarms that it
/// fires. After a stall, the driver can read its sockets between two such runs.
const BURST: usize = 64;

/// A group of callers behind one address.
pub struct Caller {
    config: CallerConfig,
    requests: Requests,
    namer: Namer,
    arrivals: Option<Arrivals>,
    /// The intended time of the next call, or `None` if no more calls will come.
    next_arrival: Option<Timestamp>,
    /// Calls that are due but wait for another call to end.
    held_back: VecDeque<DelayedCall>,
    redialers: Option<Redialers>,
    devices: Option<Devices>,
    /// Random numbers for the patience of callers. A call draws its patience and its holding time
    /// when it is offered. So its outcome does not change the numbers of later calls.
    patience: Stream,
    hold: Stream,
    emergency: Stream,
    calls: Table<Call>,
    stats: CallerStats,
    connections: Connections,
    pool: Pool,
    out: VecDeque<Transmit>,
}

impl Caller {
    /// Creates a caller whose first call may start at `start`. Callers with the same `seed` but
    /// different `element` numbers draw different random numbers.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid.
    pub fn new(
        mut config: CallerConfig,
        seed: Seed,
        element: u32,
        start: Timestamp,
        pool: Pool,
    ) -> Result<Self, CallerConfigError> {
        config.check()?;
        config.timing.reliable |= !config.retransmissions || config.transport.is_reliable();
        let mut arrivals = Arrivals::new(&config.load, start, seed, element);
        let next_arrival = arrivals.next();
        let namer = Namer::new(seed, element);
        Ok(Self {
            requests: Requests::new(&config, &namer),
            namer,
            arrivals: Some(arrivals),
            next_arrival,
            held_back: VecDeque::new(),
            redialers: config.redial.map(|redial| Redialers::new(redial, seed, element)),
            devices: config
                .devices
                .map(|devices| Devices::new(devices, &config, seed, element, start)),
            patience: seed.stream(Purpose::Patience, element),
            hold: seed.stream(Purpose::Hold, element),
            emergency: seed.stream(Purpose::Emergency, element),
            calls: Table::new(config.open_max),
            stats: CallerStats { start, ..CallerStats::default() },
            connections: Connections::new(
                config.connections,
                config.transport,
                config.local,
                config.target,
            ),
            pool,
            out: VecDeque::new(),
            config,
        })
    }

    /// Returns whether every call was offered and has ended. Devices may still register.
    pub fn is_done(&self) -> bool {
        let redialing = self.redialers.as_ref().map_or(0, Redialers::waiting);
        let waiting = self.held_back.len() + redialing;
        self.next_arrival.is_none() && waiting == 0 && self.calls.len() == 0
    }

    /// Returns the counts of calls and messages up to now.
    pub fn stats(&self) -> &CallerStats {
        &self.stats
    }

    /// Performs an action for a call, lets its person hang up if the patience has ended, and sets
    /// the alarm of the call.
    fn action(&mut self, now: Timestamp, mark: Mark, action: Action) {
        match action {
            Action::Wait => {}
            Action::Send(method) => {
                if method == Method::Bye {
                    self.record_bye(mark);
                }
                self.request(method, &mark);
            }
            Action::SendAgain(method) => {
                match method {
                    Method::Invite => {
                        self.stats.repeated.invite += 1;
                        let intended = self.calls.get(mark.id).map(|call| call.intended);
                        let measured = intended.is_some_and(|at| self.is_measured(at));
                        self.stats.measured.repeated_invites += u64::from(measured);
                    }
                    Method::Cancel => self.stats.repeated.cancel += 1,
                    _ => self.stats.repeated.bye += 1,
                }
                self.request(method, &mark);
            }
            Action::End(outcome) => return self.end(now, mark.id, outcome),
            Action::HungUp => {
                self.stats.hung_up += 1;
                return self.end(now, mark.id, Ok(()));
            }
        }
        self.hang_up(now, mark.id);
        if let Some(call) = self.calls.get(mark.id) {
            let due = call.due();
            self.calls.wake_at(mark.id, due);
        }
    }

    fn request(&mut self, method: Method, mark: &Mark) {
        let mut bytes = self.pool.take();
        let mut hop = None;
        let server = self.server_of(mark.id);
        let is_emergency = self.calls.get(mark.id).is_some_and(|call| call.person.is_emergency);
        match method {
            Method::Invite => self.requests.invite(mark, is_emergency, &mut bytes),
            Method::Cancel => self.requests.cancel(mark, is_emergency, &mut bytes),
            _ => {
                let Some(dialog) = self.calls.get(mark.id).and_then(|call| call.dialog()) else {
                    return;
                };
                hop = dialog.hop();
                self.requests.bye(Branch::Bye, mark, dialog, &mut bytes);
            }
        }
        self.send(mark, hop, server, bytes);
    }

    /// Sends a request to `hop`, the first hop of its route set. Sends the request to `server`
    /// instead in three cases: `hop` is `None`, `hop` has another address family than the caller,
    /// or the transport is a WebSocket. The connection of a WebSocket leads to `server`, whatever
    /// address is in the route set.
    fn send(&mut self, mark: &Mark, hop: Option<SocketAddr>, server: SocketAddr, bytes: Buffer) {
        let CallerConfig { transport, local, .. } = self.config;
        let is_usable = |hop: &SocketAddr| hop.is_ipv4() == local.is_ipv4();
        let hop = hop.filter(|hop| is_usable(hop) && !transport.is_websocket());
        let remote = hop.unwrap_or(server);
        let call = self.calls.get(mark.id).map(|_| mark.id);
        let connection = self.connections.name(call, self.requests.user_of(mark), remote);
        let flow = Flow { transport, local, remote, connection };
        self.out.push_back(Transmit::new(flow, bytes));
    }

    fn on_response(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>, status: u16) {
        if scan.cseq_method == Method::Register
            && let Some(devices) = &mut self.devices
        {
            return devices.on_response(now, received, scan, status, &mut self.stats.devices);
        }
        let ours = scan.branch.and_then(Branch::split).and_then(|(branch, text)| {
            // RFC 3261 §17.1.3: the top Via's branch and the CSeq method identify the request.
            let mark = self.namer.recognise(text).filter(|m| scan.call_id == m.text)?;
            Some((branch, mark))
        });
        match (ours, scan.cseq_method) {
            (Some((Branch::Invite, mark)), Method::Invite) => match status {
                ..200 => self.on_provisional(now, mark, status),
                200..300 => self.on_answer(now, mark, received),
                _ => self.on_rejection(now, mark, status, received),
            },
            (Some((Branch::Invite, mark)), Method::Cancel) => {
                match self.calls.get(mark.id) {
                    Some(call) => call.on_cancel_response(now, &self.config.timing, status),
                    None => self.stats.late += 1,
                }
                self.action(now, mark, Action::Wait);
            }
            (Some((Branch::Bye, mark)), Method::Bye) => {
                if (200..300).contains(&status) {
                    self.record_bye_answered(mark, received.arrived);
                }
                match self.calls.get(mark.id) {
                    Some(call) => {
                        let action = call.on_bye_response(now, &self.config.timing, status);
                        self.action(now, mark, action);
                    }
                    None => self.stats.late += 1,
                }
            }
            (Some((Branch::StrayBye, _)), Method::Bye) => self.stats.late += 1,
            _ => self.stats.unexpected += 1,
        }
    }

    fn on_provisional(&mut self, now: Timestamp, mark: Mark, status: u16) {
        match self.calls.get(mark.id) {
            Some(call) => {
                let action = call.on_provisional(now, &self.config.timing, status);
                self.action(now, mark, action);
            }
            None => self.stats.late += 1,
        }
    }

    fn on_answer(&mut self, now: Timestamp, mark: Mark, received: &Received) {
        let dialog = Message::parse(&received.bytes).ok().and_then(|m| match self.config.routing {
            Routing::Follow => Dialog::of_caller(&m, self.config.transport),
            Routing::Ignore => Dialog::without_routes(&m, self.config.uri.as_bytes()),
        });
        let Some(dialog) = dialog else {
            self.stats.malformed += 1;
            // A damaged copy of a 2xx does not end a call that is set up.
            if self.calls.get(mark.id).is_some_and(|call| call.dialog().is_none()) {
                self.end(now, mark.id, Err(Failure::Malformed));
            }
            return;
        };
        let mut ack = self.pool.take();
        self.requests.ack(&mark, &dialog, &mut ack);
        let server = self.server_at(received.flow.remote);
        self.send(&mark, dialog.hop(), server, ack);
        let delays_until = self.delays_until();
        let Some(call) = self.calls.get(mark.id) else {
            return self.hang_up_stray(&mark, &dialog, server);
        };
        match call.on_answer(now, received.arrived, dialog, &self.config.timing) {
            Answer::SetUp => {
                // `arrived` is the time stamp of the kernel, so the time that the response waits in
                // our socket does not count. Our delay in sending the INVITE does count, because
                // the set-up delay begins at the intended time.
                let intended = call.intended;
                let delay = received.arrived.since(intended);
                let in_time = u64::from(delay <= self.config.deadline);
                self.stats.set_up += 1;
                self.stats.set_up_in_time += in_time;
                self.stats.set_up_delay.record(delay);
                if self.config.is_measured(self.stats.start, intended) {
                    let measured = &mut self.stats.measured;
                    measured.set_up += 1;
                    measured.set_up_in_time += in_time;
                    if in_time == 1 || received.arrived <= delays_until {
                        measured.set_up_delay.record(delay);
                    }
                }
                // A call without a holding time ends at once, so its timer is handled now.
                let (person, action) = (call.person, call.on_timeout(now, &self.config.timing));
                self.record_served(received.arrived, intended, person);
                self.action(now, mark, action);
            }
            Answer::TooLate => self.action(now, mark, Action::Send(Method::Bye)),
            Answer::Again => self.stats.repeated.ack += 1,
            Answer::Stray(dialog) => self.hang_up_stray(&mark, &dialog, server),
        }
    }
}

impl Core for Caller {
    fn offer(&mut self, now: Timestamp, received: Received) {
        match tidegate_sip::scan(&received.bytes) {
            Ok(scan) => match scan.start {
                ScanStart::Response { status } => self.on_response(now, &received, &scan, status),
                ScanStart::Request { method, .. } => self.on_request(now, &received, &scan, method),
            },
            Err(_) => self.stats.malformed += 1,
        }
        self.start_delayed(now);
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.start_due(now);
        self.redial_due(now);
        if let Some(devices) = &mut self.devices {
            devices.handle_timeout(now, &mut self.stats.devices, &self.pool, &mut self.out);
        }
        for _ in 0..BURST {
            let Some(id) = self.calls.pop_due(now) else { break };
            let Some(call) = self.calls.get(id) else { continue };
            let action = call.on_timeout(now, &self.config.timing);
            self.action(now, self.namer.mark(id), action);
        }
        self.start_delayed(now);
    }

    fn on_failed(&mut self, now: Timestamp, failure: Undelivered) {
        self.stats.undelivered += 1;
        let Undelivered { flow, cause, ref quote } = failure;
        if flow.transport.is_reliable() && !quote.is_empty() {
            return self.on_unsent(now, &failure);
        }
        // An ICMP error may be forged, and a datagram is retransmitted, so no call ends here. The
        // error may quote another datagram than the lost one, and a host sends few ICMP errors. So
        // the failure counts for all calls to its address.
        if self.server_at(flow.remote) == flow.remote {
            self.connections.on_failed(now, flow, cause);
        }
    }

    fn on_closed(&mut self, _: Timestamp, id: ConnectionId, _: CloseCause) {
        self.connections.on_closed(id);
    }

    /// Starts no more calls. Open calls continue to their end.
    fn on_drain(&mut self, _: Timestamp) {
        self.arrivals = None;
        self.next_arrival = None;
        self.give_up_held_back();
        self.cut_off_redialers();
        self.devices = None;
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    fn poll_connect(&mut self) -> Option<Connect> {
        self.connections.poll_connect()
    }

    fn poll_close(&mut self) -> Option<ConnectionId> {
        self.connections.poll_close()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        let redial = self.redialers.as_ref().and_then(Redialers::next_due);
        let register = self.devices.as_ref().and_then(Devices::next_due);
        let due = [self.next_arrival, self.calls.next_due(), self.gives_up_at(), redial, register];
        let due = due.into_iter().flatten().min();
        due.map(|at| at + self.config.slack)
    }

    fn is_drained(&self) -> bool {
        self.is_done()
    }
}
