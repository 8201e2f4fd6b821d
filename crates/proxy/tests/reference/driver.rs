//! Runs a script on the core and on the reference, and compares them after each step.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::{Core as _, Query, QueryAnswer, Timestamp};

use super::compare::{Names, Pair, compare};
use super::message::{Message, Packet, parameter};
use super::parties;
use super::proxy::Proxy;
use super::script::{PROXY, Script, address};
use super::step::Step;
use super::timer::T1;
use super::topology::{self, APP, FORK, PLAIN};

/// The time without messages after which no state may be left.
const REST: Duration = Duration::from_secs(600);

/// The difference between the time offsets of two successive steps within T1. All timers are
/// multiples of T1, so timers of different steps never coincide.
const PHASE: Duration = Duration::from_millis(3);

/// The most lines of history printed with a difference.
const HISTORY_MAX: usize = 100;

/// Maximum number of moments in one step at which timers fire.
const MOMENTS_MAX: usize = 10_000;

/// A request that a party has sent. Its two forms differ only in tokens.
#[derive(Clone, Debug)]
struct Asked {
    from: SocketAddr,
    /// True if the sender is a proxy that forwarded a received request, so not a party of a dialog.
    passes_on: bool,
    core: Message,
    reference: Message,
}

pub struct Driver {
    script: Script,
    reference: Proxy,
    names: Names,
    asked: Vec<Asked>,
    /// Requests that the proxy has sent, without retransmissions.
    requests: Vec<Pair>,
    /// Responses that the proxy has sent, without retransmissions.
    responses: Vec<Pair>,
    /// A log of the packets so far.
    history: Vec<String>,
    /// A counter that makes identifiers unique.
    number: usize,
}

impl Driver {
    pub fn new() -> Self {
        Self {
            script: topology::core(),
            reference: topology::reference(),
            names: Names::default(),
            asked: Vec::new(),
            requests: Vec::new(),
            responses: Vec::new(),
            history: Vec::new(),
            number: 0,
        }
    }

    /// Plays the steps on both implementations.
    ///
    /// # Errors
    /// Returns the first difference, with a log of the packets before it.
    pub fn play(&mut self, steps: &[Step]) -> Result<(), String> {
        for &step in steps {
            self.history.push(format!("{step:?}"));
            self.step(step).map_err(|difference| self.told(&difference))?;
        }
        self.history.push("Rest".to_owned());
        self.rest().map_err(|difference| self.told(&difference))
    }

    fn told(&self, difference: &str) -> String {
        let from = self.history.len().saturating_sub(HISTORY_MAX);
        let history = self.history[from..].join("\n");
        format!("{history}\nat {:?}: {difference}", self.script.now)
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        self.number += 1;
        let number = self.number;
        self.align()?;
        match step {
            Step::New { caller, method, domain, oddity } => {
                let caller = parties::caller(caller);
                let (from, request) = parties::new(number, caller, method, domain, oddity);
                self.ask(Asked {
                    from,
                    passes_on: false,
                    core: request.clone(),
                    reference: request,
                })
            }
            Step::CallOut { backend, method } => {
                let all = [&APP[..], &FORK[..], &PLAIN[..]].concat();
                let from = address(all[usize::from(backend) % all.len()]);
                let request = parties::call_out(number, from, method);
                self.ask(Asked {
                    from,
                    passes_on: false,
                    core: request.clone(),
                    reference: request,
                })
            }
            Step::Repeat { request } => match newest(&self.asked, request) {
                Some(asked) => self.input(asked.from, &asked.core, &asked.reference),
                None => Ok(()),
            },
            Step::Cancel { request, stray } => match newest(&self.asked, request) {
                Some(asked) => self.input(
                    asked.from,
                    &parties::cancel(&asked.core, stray),
                    &parties::cancel(&asked.reference, stray),
                ),
                None => Ok(()),
            },
            Step::Acknowledge { response, ack } => {
                let is_final = |pair: &&Pair| {
                    let message = &pair.core.message;
                    message.method() == "INVITE" && message.status() >= Some(200)
                };
                let finals: Vec<_> = self.responses.iter().filter(is_final).cloned().collect();
                let Some(pair) = newest(&finals, response) else { return Ok(()) };
                let asked = self.asked_for(&pair);
                if asked.passes_on && pair.core.message.status() < Some(300) {
                    return Ok(());
                }
                self.input(
                    asked.from,
                    &parties::ack(number, &asked.core, &pair.core.message, ack),
                    &parties::ack(number, &asked.reference, &pair.reference.message, ack),
                )
            }
            Step::Follow { response, method } => {
                let routed = |pair: &&Pair| {
                    let message = &pair.core.message;
                    message.get("Record-Route").is_some() && message.tag("To").is_some()
                };
                let routed: Vec<_> = self.responses.iter().filter(routed).cloned().collect();
                let Some(pair) = newest(&routed, response) else { return Ok(()) };
                let asked = self.asked_for(&pair);
                if asked.passes_on {
                    return Ok(());
                }
                let (core, reference) = (&pair.core.message, &pair.reference.message);
                self.ask(Asked {
                    from: asked.from,
                    passes_on: false,
                    core: parties::follow(number, &asked.core, core, method),
                    reference: parties::follow(number, &asked.reference, reference, method),
                })
            }
            Step::Return { request, method } => {
                let is_invite = |pair: &&Pair| pair.core.message.method() == "INVITE";
                let invites: Vec<_> = self.requests.iter().filter(is_invite).cloned().collect();
                let Some(pair) = newest(&invites, request) else { return Ok(()) };
                let asked = self.asked_by(&pair);
                // The core treats an INVITE in a dialog that no response has created as a new call,
                // which is subject to limits and to the health of its back end.
                let call = pair.core.message.first("Call-ID");
                let creates = |response: &Pair| {
                    let message = &response.core.message;
                    let is_final = message.status() >= Some(200) && message.status() < Some(300);
                    let tag = format!("callee-{}-0", pair.core.to.ip());
                    is_final && message.first("Call-ID") == call && message.tag("To") == Some(&tag)
                };
                let is_invented =
                    method == crate::step::Method::Invite && !self.responses.iter().any(creates);
                if asked.passes_on || is_invented {
                    return Ok(());
                }
                let (at, to) = (pair.core.to, asked.from);
                self.ask(Asked {
                    from: at,
                    passes_on: false,
                    core: parties::back(number, &pair.core.message, at, to, method),
                    reference: parties::back(number, &pair.reference.message, at, to, method),
                })
            }
            Step::Loop { request, spiral, turns } => {
                // Only a back end may send to any address. An in-dialog request has a Route.
                let may = |pair: &&Pair| {
                    let message = &pair.core.message;
                    let to_backend = self.reference.around.backend(pair.core.to).is_some();
                    to_backend && message.method() != "CANCEL" && message.tag("To").is_none()
                };
                let all: Vec<_> = self.requests.iter().filter(may).cloned().collect();
                let Some(pair) = newest(&all, request) else { return Ok(()) };
                let at = pair.core.to;
                self.ask(Asked {
                    from: at,
                    passes_on: true,
                    core: parties::send_on(number, &pair.core.message, at, spiral),
                    reference: parties::send_on(number, &pair.reference.message, at, spiral),
                })?;
                match turns {
                    0 | 1 => Ok(()),
                    _ => self.step(Step::Loop { request: 0, spiral, turns: turns - 1 }),
                }
            }
            Step::Answer { request, status, callee, stray } => {
                let Some(pair) = newest(&self.requests, request) else { return Ok(()) };
                let at = pair.core.to;
                let answer = |to: &Packet| parties::answer(&to.message, at, status, callee, stray);
                self.input(at, &answer(&pair.core), &answer(&pair.reference))
            }
            Step::Rejected { request } => {
                let Some(pair) = newest(&self.requests, request) else { return Ok(()) };
                let at = pair.core.to;
                // A failure at a target that is not a back end affects only one request.
                if !self.reference.around.is_backend(at) {
                    return Ok(());
                }
                let quote = pair.core.message.to_string();
                let is_known = self.script.rejected_with_its_probe(&at.to_string(), &quote);
                let core = self.core_sent();
                if is_known {
                    self.reference.on_failed(self.script.now, at);
                }
                self.compare(core)
            }
            Step::Wait => {
                let due = self.reference.poll_timeout();
                self.pass(due.map_or(Duration::ZERO, |at| at.since(self.script.now)))
            }
            Step::Pass { ms } => self.pass(Duration::from_millis(ms.into())),
        }
    }

    /// Checks that no state is left after a long time without events.
    fn rest(&mut self) -> Result<(), String> {
        self.pass(REST)?;
        match (self.reference.live(), self.live()) {
            ((0, 0), (0, 0)) => Ok(()),
            (reference, core) => Err(format!("core {core:?}, reference {reference:?}")),
        }
    }

    fn ask(&mut self, asked: Asked) -> Result<(), String> {
        self.asked.push(asked.clone());
        self.input(asked.from, &asked.core, &asked.reference)
    }

    /// Returns the received request that the proxy has forwarded as `request`.
    fn asked_by(&self, request: &Pair) -> Asked {
        let branch = parameter(request.core.message.all("Via")[1], "branch");
        let call = request.core.message.first("Call-ID");
        let of = |a: &&Asked| a.core.branch() == branch && a.core.first("Call-ID") == call;
        self.asked.iter().find(of).expect("it was asked for").clone()
    }

    /// Returns the request that a response answers.
    fn asked_for(&self, response: &Pair) -> Asked {
        let answer = &response.core.message;
        let of = |asked: &&Asked| {
            asked.core.first("Call-ID") == answer.first("Call-ID")
                && asked.core.first("CSeq") == answer.first("CSeq")
                && asked.core.branch() == answer.branch()
        };
        self.asked.iter().find(of).expect("a response answers a request").clone()
    }

    fn input(
        &mut self,
        from: SocketAddr,
        core: &Message,
        reference: &Message,
    ) -> Result<(), String> {
        self.script.offer_at(PROXY, &from.to_string(), core.to_string().as_bytes(), 0);
        let sent = self.core_sent();
        self.reference.around.chosen = chosen(&sent);
        self.reference.receive(self.script.now, from, &reference.to_string());
        self.compare(sent)
    }

    /// Advances time so that timers of this step never fire at the same moment as those of another
    /// step: their order would be arbitrary.
    fn align(&mut self) -> Result<(), String> {
        let own = PHASE.as_nanos() as u64 * self.number as u64;
        let turn = T1.as_nanos() as u64;
        assert!(own < turn, "more steps than there are phases");
        let now = self.script.now.as_nanos() % turn;
        self.pass(Duration::from_nanos((own + turn - now) % turn))
    }

    fn pass(&mut self, by: Duration) -> Result<(), String> {
        let end = self.script.now + by;
        for _ in 0..MOMENTS_MAX {
            let due =
                self.script.proxy.poll_timeout().into_iter().chain(self.reference.poll_timeout());
            let Some(at) = due.min().filter(|&at| at <= end) else {
                self.script.now = end;
                return Ok(());
            };
            let at = at.max(self.script.now);
            self.script.now = at;
            self.moment(at)?;
        }
        Err("timers fire without end".to_owned())
    }

    /// Fires the timers of both implementations at `now`.
    fn moment(&mut self, now: Timestamp) -> Result<(), String> {
        self.script.proxy.handle_timeout(now);
        let sent = self.core_sent();
        self.reference.around.chosen = chosen(&sent);
        self.reference.handle_timeout(now);
        self.compare(sent)?;
        // Answer all probes with 200.
        for question in std::mem::take(&mut self.script.questions) {
            let sent = self.script.send(&question.to.to_string(), &question.answer("200 OK"));
            assert!(sent.is_empty(), "{sent:?}");
            self.reference.around.on_heard(question.to);
        }
        Ok(())
    }

    fn core_sent(&mut self) -> Vec<Packet> {
        let mut sent = self.script.serve();
        // The DNS of the reference knows no names.
        while let Some(Query { id, .. }) = self.script.proxy.poll_query() {
            self.script.proxy.on_answer(self.script.now, id, QueryAnswer::NotFound(None));
            sent.extend(self.script.serve());
        }
        let packet = |s: super::script::Sent| Packet {
            from: s.from,
            to: s.to,
            message: Message::parse(&s.text),
        };
        sent.into_iter().map(packet).collect()
    }

    fn live(&self) -> (usize, usize) {
        let counters = &self.script.counters;
        let (server, client) = (&counters.server_transactions, &counters.client_transactions);
        (server.get() as usize, client.get() as usize)
    }

    fn compare(&mut self, core: Vec<Packet>) -> Result<(), String> {
        let reference = self.reference.take_sent();
        let both = side_by_side(&core, &reference);
        for packet in &core {
            let (start, to) = (&packet.message.start, packet.to);
            self.history.push(format!("    {:?} {start} to {to}", self.script.now));
        }
        let pairs = compare(&mut self.names, core, reference)
            .map_err(|difference| format!("{difference}\n{both}"))?;
        for pair in pairs {
            let message = &pair.core.message;
            let known = match message.status() {
                None if message.method() == "ACK" => continue,
                None => &mut self.requests,
                Some(_) => &mut self.responses,
            };
            if !known.iter().any(|p| p.core == pair.core) {
                known.push(pair);
            }
        }
        let (core, reference) = (self.live(), self.reference.live());
        if core != reference {
            return Err(format!("live transactions: core {core:?}, reference {reference:?}"));
        }
        Ok(())
    }
}

/// Returns the element that a script refers to by this number.
fn newest<T: Clone>(all: &[T], number: u8) -> Option<T> {
    let back = usize::from(number) % all.len().max(1);
    all.iter().rev().nth(back).cloned()
}

/// Returns the call and the target of each sent request.
fn chosen(sent: &[Packet]) -> Vec<(String, SocketAddr)> {
    let requests = sent.iter().filter(|p| p.message.status().is_none());
    requests.map(|p| (p.message.first("Call-ID").to_owned(), p.to)).collect()
}

fn side_by_side(core: &[Packet], reference: &[Packet]) -> String {
    let line = |packet: Option<&Packet>| {
        let text = packet.map(|p| format!("{} to {}", p.message.start, p.to));
        text.unwrap_or_default()
    };
    let mut text = format!("{:<60} | reference\n", "core");
    for index in 0..core.len().max(reference.len()) {
        let (core, reference) = (line(core.get(index)), line(reference.get(index)));
        let _ = writeln!(text, "{core:<60} | {reference}");
    }
    text
}
