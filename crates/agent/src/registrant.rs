//! The registering user agent: REGISTER requests of many users, at times drawn in advance (RFC 3261
//! §10).

mod config;
mod ending;
mod granted;
mod keep_alives;
mod report;
mod stats;

use std::collections::VecDeque;

use tidegate_sip::{Method, Scan, ScanStart, branch_in_quote};
use tidegate_transaction::{COOKIE, Firing, OtherClient};
use tidegate_world::{
    CloseCause, Connect, ConnectionId, Core, Failure as Undelivered, Flow, Pool, Received, Seed,
    Timestamp, Transmit,
};

use crate::arrival::Arrivals;
use crate::caller::Failure;
use crate::connections::Connections;
use crate::dialog::uri_parameter;
use crate::identity::{MARK, Mark, Namer, hex};
use crate::table::{Id, Table};
use crate::template::{Template, Values};

use keep_alives::KeepAlives;

pub use config::{RegistrantConfig, RegistrantConfigError};
pub use report::RegistrantReport;
pub use stats::{MeasuredRegistrations, RegistrantStats};

/// Maximum number of registrations that one run of [`Core::handle_timeout`] starts, and of alarms
/// that it fires.
const BURST: usize = 64;

/// First byte of our branch parameters after the magic cookie.
const LETTER: u8 = b'r';

// RFC 3261 §10.2: "The Request-URI names the domain of the location service for which the
// registration is meant (for example, "sip:chicago.com"). The "userinfo" and "@" components of the
// SIP URI MUST NOT be present."
const REGISTER: &str = "REGISTER {domain} SIP/2.0
Via: SIP/2.0/{transport} {local};rport;branch={branch}
Max-Forwards: 70
From: <{aor}{caller}{host}>;tag={tag}
To: <{aor}{caller}{host}>
Call-ID: {call_id}
CSeq: {cseq} REGISTER
Contact: <sip:user{caller}@{local}{parameter}>
Expires: {expires}
Content-Length: 0

";

/// A user of the registrar.
#[derive(Clone, Copy, Debug, Default)]
struct User {
    /// CSeq number of the user's last REGISTER.
    cseq: u32,
    is_waiting: bool,
}

/// A REGISTER without a final response.
#[derive(Debug)]
struct Registration {
    user: u32,
    cseq: u32,
    intended: Timestamp,
    begun: Timestamp,
    client: OtherClient,
}

/// A group of users behind one address. They register in turn.
pub struct Registrant {
    config: RegistrantConfig,
    template: Template,
    namer: Namer,
    /// Host and port in the Contact of the users.
    host: String,
    users: Vec<User>,
    /// Index of the user that registers next.
    turn: u32,
    arrivals: Option<Arrivals>,
    next_arrival: Option<Timestamp>,
    /// True if the run was stopped before all registrations were offered.
    is_cut_short: bool,
    registrations: Table<Registration>,
    connections: Connections,
    /// The keep-alives, or `None` if none are configured or the run was stopped.
    keep_alives: Option<KeepAlives>,
    stats: RegistrantStats,
    pool: Pool,
    out: VecDeque<Transmit>,
}

impl Registrant {
    /// Creates a registrant whose first registration may start at `start`. Registrants with the
    /// same `seed` but different `element` numbers draw different random numbers.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid.
    pub fn new(
        mut config: RegistrantConfig,
        seed: Seed,
        element: u32,
        start: Timestamp,
        pool: Pool,
    ) -> Result<Self, RegistrantConfigError> {
        config.check()?;
        config.timing.reliable |= config.transport.is_reliable();
        let mut arrivals = Arrivals::new(&config.load, start, seed, element);
        let next_arrival = arrivals.next();
        let (user, host) = config.parts();
        let [domain, aor, host] =
            [format!("sip:{host}"), format!("sip:{user}"), format!("@{host}")];
        let namer = Namer::new(seed, element);
        let own = namer.host(config.transport, config.local);
        let expires = config.expires_s.to_string();
        let fixed = [
            ("domain", domain.as_str()),
            ("aor", &aor),
            ("host", &host),
            ("transport", config.transport.name()),
            ("parameter", uri_parameter(config.transport)),
            ("local", &own),
            ("expires", &expires),
        ];
        Ok(Self {
            template: Template::new(REGISTER, &fixed),
            namer,
            host: own,
            users: vec![
                User { cseq: config.first_cseq.saturating_sub(1), ..User::default() };
                config.users as usize
            ],
            turn: 0,
            arrivals: Some(arrivals),
            next_arrival,
            is_cut_short: false,
            registrations: Table::new(config.open_max),
            connections: Connections::new(
                config.connections,
                config.transport,
                config.local,
                config.target,
            ),
            keep_alives: config.keep_alive.map(KeepAlives::new),
            stats: RegistrantStats { start, ..RegistrantStats::default() },
            pool,
            out: VecDeque::new(),
            config,
        })
    }

    /// Returns whether every registration was offered and has succeeded or failed, and no
    /// connection must stay open for keep-alives.
    pub fn is_done(&self) -> bool {
        let has_registered = self.next_arrival.is_none() && self.registrations.len() == 0;
        has_registered && self.keep_alives.is_none()
    }

    /// Returns whether every registration was offered. If not, the load goes on, or the run was
    /// stopped before its end.
    pub fn has_offered_all(&self) -> bool {
        self.next_arrival.is_none() && !self.is_cut_short
    }

    /// Returns the counts of registrations and messages up to now.
    pub fn stats(&self) -> &RegistrantStats {
        &self.stats
    }

    fn start_due(&mut self, now: Timestamp) {
        for _ in 0..BURST {
            let Some(intended) = self.next_arrival.filter(|&at| at <= now) else { return };
            self.next_arrival = self.arrivals.as_mut().and_then(Iterator::next);
            self.start(now, intended);
        }
    }

    /// Starts the registration of the next user.
    //
    // RFC 3261 §10.2: "UAs MUST NOT send a new registration (that is, containing new Contact header
    // field values, as opposed to a retransmission) until they have received a final response from
    // the registrar for the previous one or the previous REGISTER request has timed out."
    fn start(&mut self, now: Timestamp, intended: Timestamp) {
        self.stats.offered += 1;
        self.stats.last_intended = intended;
        self.stats.measured.offered += u64::from(self.is_measured(intended));
        let number = self.turn;
        self.turn = (number + 1) % self.config.users;
        let user = &mut self.users[number as usize];
        if user.is_waiting || self.registrations.is_full() {
            self.stats.not_begun += 1;
            self.stats.overflowed += u64::from(!user.is_waiting);
            return;
        }
        user.is_waiting = true;
        // RFC 3261 §10.2: "A UA MUST increment the CSeq value by one for each REGISTER request with
        // the same Call-ID."
        user.cseq += 1;
        let cseq = user.cseq;
        self.stats.begun += 1;
        self.stats.last_begun = now;
        self.stats.lateness.record(now.since(intended));
        let client = OtherClient::start(now, &self.config.timing);
        let due = client.deadline().unwrap_or(Timestamp::NEVER);
        let registration = Registration { user: number, cseq, intended, begun: now, client };
        let id = self.registrations.insert(due, registration);
        self.stats.open = self.registrations.len() as u64;
        self.send(id);
    }

    fn send(&mut self, id: Id) {
        let Some(&mut Registration { user, cseq, .. }) = self.registrations.get(id) else { return };
        let mark = self.namer.mark(id);
        let (call_id, tag) = self.call_of(user);
        let mut digits = itoa::Buffer::new();
        let suffix = if self.config.users == 1 { String::new() } else { format!("-{user}") };
        let values = Values {
            branch: &branch(&mark),
            caller: suffix.as_bytes(),
            tag: &tag,
            call_id: &call_id,
            cseq: digits.format(cseq).as_bytes(),
            ..Values::default()
        };
        let mut bytes = self.pool.take();
        let fits = self.template.fill(&values, &mut bytes);
        assert!(fits, "the REGISTER does not fit in a datagram");
        let RegistrantConfig { transport, local, target: remote, .. } = self.config;
        let connection = self.connections.name(Some(id), user, remote);
        let flow = Flow { transport, local, remote, connection };
        self.out.push_back(Transmit::new(flow, bytes));
    }

    /// Returns the Call-ID and the tag of a user's registrations.
    // RFC 3261 §10.2: "All registrations from a UAC SHOULD use the same Call-ID header field value
    // for registrations sent to a particular registrar."
    fn call_of(&self, user: u32) -> ([u8; MARK], [u8; 16]) {
        let hash = self.namer.fingerprint(&[&user.to_ne_bytes()]);
        let (mut call_id, mut tag) = ([0; MARK], [0; 16]);
        hex((hash >> 64) as u64, &mut call_id[..16]);
        hex(hash as u64, &mut call_id[16..]);
        hex((hash >> 32) as u64, &mut tag);
        (call_id, tag)
    }

    fn on_response(&mut self, now: Timestamp, received: &Received, scan: &Scan<'_>, status: u16) {
        // RFC 3261 §17.1.3: the branch of the top Via and the CSeq method identify the transaction.
        let found = scan.branch.and_then(mark_of).and_then(|text| self.namer.recognise(text));
        let Some(mark) = found.filter(|_| scan.cseq_method == Method::Register) else {
            self.stats.unexpected += 1;
            return;
        };
        let timing = self.config.timing;
        let Some(registration) = self.registrations.get(mark.id) else {
            self.stats.late += 1;
            return;
        };
        (registration.client, _) = registration.client.on_response(now, &timing, status);
        let (intended, due) = (registration.intended, registration.client.deadline());
        match status {
            ..200 => self.registrations.wake_at(mark.id, due.unwrap_or(Timestamp::NEVER)),
            200..300 => {
                self.on_registered(intended, received);
                self.end(mark.id, Ok(()));
            }
            _ => self.end(mark.id, Err(Failure::Status(status))),
        }
    }

    fn is_measured(&self, intended: Timestamp) -> bool {
        intended >= self.stats.start + self.config.warm_up
    }
}

/// Returns the branch parameter that contains `mark`.
fn branch(mark: &Mark) -> [u8; COOKIE.len() + 1 + MARK] {
    let mut text = [0; COOKIE.len() + 1 + MARK];
    text[..COOKIE.len()].copy_from_slice(COOKIE);
    text[COOKIE.len()] = LETTER;
    text[COOKIE.len() + 1..].copy_from_slice(&mark.text);
    text
}

/// Returns the text of the [`Mark`] in a branch parameter of a registrant, or `None` if the branch
/// does not have the form of such a parameter.
fn mark_of(branch: &[u8]) -> Option<&[u8]> {
    branch.strip_prefix(COOKIE)?.strip_prefix(&[LETTER])
}

impl Core for Registrant {
    fn offer(&mut self, now: Timestamp, received: Received) {
        match tidegate_sip::scan(&received.bytes) {
            Ok(scan) => match scan.start {
                ScanStart::Response { status } => self.on_response(now, &received, &scan, status),
                ScanStart::Request { .. } => self.stats.unexpected += 1,
            },
            Err(_) => self.stats.malformed += 1,
        }
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.start_due(now);
        self.keep_alive(now);
        for _ in 0..BURST {
            let Some(id) = self.registrations.pop_due(now) else { break };
            let Some(registration) = self.registrations.get(id) else { continue };
            let (client, firing) = registration.client.on_timer(now, &self.config.timing);
            registration.client = client;
            let intended = registration.intended;
            self.registrations.wake_at(id, client.deadline().unwrap_or(Timestamp::NEVER));
            match firing {
                Firing::Silent => {}
                Firing::Resend => {
                    self.stats.repeated += 1;
                    self.stats.measured.repeated += u64::from(self.is_measured(intended));
                    self.send(id);
                }
                Firing::TimedOut => self.end(id, Err(Failure::Timeout)),
            }
        }
    }

    fn on_failed(&mut self, now: Timestamp, failure: Undelivered) {
        self.stats.undelivered += 1;
        let Undelivered { flow, cause, quote } = failure;
        // RFC 3261 §8.1.3.1: a "connection failure" is like a 503. An ICMP error may be forged, and
        // a datagram is retransmitted.
        if flow.transport.is_reliable() && !quote.is_empty() {
            let text = branch_in_quote(&quote).and_then(mark_of);
            if let Some(mark) = text.and_then(|text| self.namer.recognise(text)) {
                self.end(mark.id, Err(Failure::Transport(cause)));
            }
        } else if flow.remote == self.config.target {
            self.connections.on_failed(now, flow, cause);
        }
    }

    fn on_connected(&mut self, now: Timestamp, flow: Flow) {
        if let (Some(keep_alives), Some(id)) = (&mut self.keep_alives, flow.connection) {
            keep_alives.schedule(now, id);
        }
    }

    fn on_closed(&mut self, _: Timestamp, id: ConnectionId, cause: CloseCause) {
        self.stats.connections_ended += u64::from(cause != CloseCause::Asked);
        self.connections.on_closed(id);
    }

    /// Starts no more registrations, and sends no more keep-alives.
    fn on_drain(&mut self, _: Timestamp) {
        self.keep_alives = None;
        self.is_cut_short |= self.next_arrival.is_some();
        self.arrivals = None;
        self.next_arrival = None;
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
        let ping = self.keep_alives.as_ref().and_then(KeepAlives::next_due);
        let due = [self.next_arrival, self.registrations.next_due(), ping];
        let due = due.into_iter().flatten().min();
        due.map(|at| at + self.config.slack)
    }

    fn is_drained(&self) -> bool {
        self.is_done()
    }
}
