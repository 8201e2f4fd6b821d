//! Devices that register, keep their registration, and register again when they lose it.
//!
//! Each device is a state machine with one alarm: registered until the next refresh, waiting, or in
//! a REGISTER transaction. All devices of a caller send from its address.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sip::{Message, Scan};
use tidegate_transaction::{Firing, OtherClient, Timing};
use tidegate_world::{Flow, Pool, Purpose, Received, Seed, Stream, Timestamp, Transmit, Transport};

use super::BURST;
use super::config::CallerConfig;
use super::device::{DeviceStats, DevicesConfig, RegistrationLoss};
use super::request::Branch;
use crate::dialog::uri_parameter;
use crate::identity::{Mark, Namer};
use crate::table::{Id, Table};
use crate::template::{Template, Values};

// RFC 3261 §10.2: the Request-URI "names the domain of the location service", and "The "userinfo"
// and "@" components of the SIP URI MUST NOT be present"; To and From are the address of record.
// "All registrations from a UAC SHOULD use the same Call-ID header field value for registrations
// sent to a particular registrar", and "A UA MUST increment the CSeq value by one for each REGISTER
// request with the same Call-ID."
const REGISTER: &str = "REGISTER sip:{domain} SIP/2.0
Via: SIP/2.0/{transport} {local};rport;branch={branch}
Max-Forwards: 70
From: <sip:device-{caller}@{domain}>;tag={tag}
To: <sip:device-{caller}@{domain}>
Call-ID: {call_id}
CSeq: {cseq} REGISTER
Contact: <sip:device-{caller}@{local}{parameter}>
Expires: {expires}
Content-Length: 0

";

/// A bit that is set in the element number for the identifiers of devices, so that they differ from
/// those of calls.
const ELEMENT: u32 = 1 << 31;

/// One device, and the state of its registration.
struct Device {
    phase: Phase,
    /// CSeq number of the device's last REGISTER.
    cseq: u32,
    /// Number of failed attempts since the device last registered.
    failures: u32,
    /// Time at which the device lost its registration or failed to refresh it, or `None` while the
    /// device is registered.
    lost: Option<Timestamp>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// No REGISTER is pending.
    Idle,
    /// A REGISTER was sent. Contains its transaction.
    Registering(OtherClient),
}

/// The devices of a caller.
pub(super) struct Devices {
    config: DevicesConfig,
    transport: Transport,
    local: SocketAddr,
    target: SocketAddr,
    timing: Timing,
    register: Template,
    namer: Namer,
    stream: Stream,
    /// The devices in the order of their numbers. Both the slot and the serial number of an entry
    /// are the number of the device.
    table: Table<Device>,
    /// Time and extent of the coming loss of registrations, or `None` if none will come.
    loss: Option<(Timestamp, RegistrationLoss)>,
}

impl Devices {
    /// Creates devices that are registered at `start`.
    pub fn new(
        config: DevicesConfig,
        caller: &CallerConfig,
        seed: Seed,
        element: u32,
        start: Timestamp,
    ) -> Self {
        let mut table = Table::new(config.count as usize);
        let mut stream = seed.stream(Purpose::Registration, element);
        for _ in 0..config.count {
            let due = start + config.refresh.mul_f64(stream.unit());
            table.insert(due, Device { phase: Phase::Idle, cseq: 0, failures: 0, lost: None });
        }
        let local = caller.local.to_string();
        let host = caller.uri.split_once('@').map_or("example.com", |(_, host)| host);
        // RFC 3261 §10.2.4: a UA refreshes a binding before it expires.
        let expires = (config.refresh * 2).as_secs().max(1).to_string();
        let fixed = [
            ("domain", host),
            ("transport", caller.transport.name()),
            ("local", &*local),
            ("parameter", uri_parameter(caller.transport)),
            ("expires", &*expires),
        ];
        Self {
            transport: caller.transport,
            local: caller.local,
            target: caller.target,
            timing: caller.timing,
            register: Template::new(REGISTER, &fixed),
            namer: Namer::new(seed, element | ELEMENT),
            stream,
            table,
            loss: config.loss.map(|loss| (start + loss.at, loss)),
            config,
        }
    }

    /// Returns a time before which no device acts, or `None` if there are no devices.
    pub fn next_due(&self) -> Option<Timestamp> {
        let loss = self.loss.map(|(at, _)| at);
        [loss, self.table.next_due()].into_iter().flatten().min()
    }

    /// Handles a response to a REGISTER.
    pub fn on_response(
        &mut self,
        now: Timestamp,
        received: &Received,
        scan: &Scan<'_>,
        status: u16,
        stats: &mut DeviceStats,
    ) {
        let attempt = scan.branch.and_then(Branch::split).and_then(|(branch, text)| {
            let attempt = self.namer.recognise(text).filter(|_| branch == Branch::Register)?;
            (scan.call_id == self.identity(attempt.id.slot).text).then_some(attempt.id)
        });
        let Some(Id { slot, serial: cseq }) = attempt else {
            stats.late += 1;
            return;
        };
        let id = Id { slot, serial: slot };
        let (timing, refresh) = (self.timing, self.config.refresh);
        let Some(device) = self.table.get(id) else { return };
        let Phase::Registering(transaction) = device.phase else {
            stats.late += 1;
            return;
        };
        if device.cseq != cseq {
            stats.late += 1;
            return;
        }
        if status < 200 {
            let (next, _) = transaction.on_response(now, &timing, status);
            device.phase = Phase::Registering(next);
            let due = next.deadline().unwrap_or(now);
            return self.table.wake_at(id, due);
        }
        stats.open -= 1;
        if status >= 300 {
            *stats.rejected.entry(status).or_default() += 1;
            let retry_after =
                Message::parse(&received.bytes).ok().and_then(|m| m.retry_after().ok()?);
            let retry_after = retry_after.filter(|_| self.config.obeys_retry_after);
            return self.fail(now, id, Duration::from_secs(retry_after.unwrap_or(0).into()), stats);
        }
        stats.accepted += 1;
        device.phase = Phase::Idle;
        device.failures = 0;
        if let Some(lost) = device.lost.take() {
            stats.registered += 1;
            stats.delay.record(received.arrived.since(lost));
        }
        self.table.wake_at(id, now + refresh);
    }

    /// Performs the actions of the devices that are due.
    pub fn handle_timeout(
        &mut self,
        now: Timestamp,
        stats: &mut DeviceStats,
        pool: &Pool,
        out: &mut VecDeque<Transmit>,
    ) {
        if stats.devices == 0 {
            stats.devices = self.config.count.into();
            stats.registered = stats.devices;
        }
        if let Some((_, loss)) = self.loss.take_if(|(at, _)| *at <= now) {
            self.lose(now, loss, stats);
        }
        for _ in 0..BURST {
            let Some(id) = self.table.pop_due(now) else { return };
            let timing = self.timing;
            let Some(device) = self.table.get(id) else { continue };
            let (next, firing) = match device.phase {
                Phase::Idle => {
                    device.cseq += 1;
                    stats.attempts += 1;
                    stats.open += 1;
                    (OtherClient::start(now, &timing), Firing::Resend)
                }
                Phase::Registering(transaction) => {
                    let (next, firing) = transaction.on_timer(now, &timing);
                    stats.repeated += u64::from(firing == Firing::Resend);
                    (next, firing)
                }
            };
            device.phase = Phase::Registering(next);
            let cseq = device.cseq;
            match firing {
                Firing::Resend => out.push_back(self.request(id.slot, cseq, pool)),
                Firing::Silent => {}
                Firing::TimedOut => {
                    stats.open -= 1;
                    stats.timeouts += 1;
                    self.fail(now, id, Duration::ZERO, stats);
                    continue;
                }
            }
            self.table.wake_at(id, next.deadline().unwrap_or(now));
        }
    }

    /// Ends an attempt that has failed. The next attempt begins after a wait of at least
    /// `retry_after`.
    ///
    /// RFC 5626 §4.5: "a 503 response to an earlier failed registration attempt with a Retry-After
    /// header field value may cause the UA to wait longer".
    fn fail(&mut self, now: Timestamp, id: Id, retry_after: Duration, stats: &mut DeviceStats) {
        let unit = self.stream.unit();
        let back_off = self.config.back_off;
        let Some(device) = self.table.get(id) else { return };
        device.phase = Phase::Idle;
        device.failures = device.failures.saturating_add(1);
        let wait = back_off.wait(device.failures, unit).max(retry_after);
        if device.lost.is_none() {
            device.lost = Some(now);
            stats.registered -= 1;
        }
        self.table.wake_at(id, now + wait);
    }

    /// Makes the share `loss.share` of the devices lose their registrations.
    fn lose(&mut self, now: Timestamp, loss: RegistrationLoss, stats: &mut DeviceStats) {
        for slot in 0..self.config.count {
            // Each device draws two numbers, whether it loses its registration or not.
            let (fate, moment) = (self.stream.unit(), self.stream.unit());
            let id = Id { slot, serial: slot };
            let Some(device) = self.table.get(id).filter(|_| fate < loss.share) else { continue };
            // A device that has already lost its registration keeps its current wait.
            if device.lost.is_some() {
                continue;
            }
            device.lost = Some(now);
            stats.registered -= 1;
            stats.lost += 1;
            // A device that is in a REGISTER transaction continues it.
            if matches!(device.phase, Phase::Idle) {
                self.table.wake_at(id, now + loss.within.mul_f64(moment));
            }
        }
    }

    fn request(&self, slot: u32, cseq: u32, pool: &Pool) -> Transmit {
        let mut bytes = pool.take();
        let identity = self.identity(slot);
        let attempt = self.namer.mark(Id { slot, serial: cseq });
        let [mut number, mut count] = [itoa::Buffer::new(), itoa::Buffer::new()];
        let values = Values {
            branch: &Branch::Register.text(&attempt, b""),
            caller: number.format(slot).as_bytes(),
            tag: &identity.tag,
            call_id: &identity.text,
            cseq: count.format(cseq).as_bytes(),
            ..Values::default()
        };
        let fits = self.register.fill(&values, &mut bytes);
        assert!(fits, "the REGISTER does not fit in a datagram");
        let flow = Flow {
            transport: self.transport,
            local: self.local,
            remote: self.target,
            connection: None,
        };
        Transmit::new(flow, bytes)
    }

    /// Returns the identifiers that all REGISTERs of a device share.
    fn identity(&self, slot: u32) -> Mark {
        self.namer.mark(Id { slot, serial: 0 })
    }
}
