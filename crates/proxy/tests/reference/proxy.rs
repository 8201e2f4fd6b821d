//! The proxy: assigns packets to contexts and selects targets.

use std::net::SocketAddr;

use tidegate_world::Timestamp;

use super::context::Context;
use super::forward::{self, Way};
use super::message::{Message, Packet, response_to};
use super::surroundings::{Kind, Pool, Surroundings};
use super::timer::T1_64;

/// The target selected for a call.
#[derive(Debug)]
struct Placed {
    call: String,
    target: SocketAddr,
    /// The time until which requests of the call must go there.
    until: Timestamp,
}

#[derive(Debug)]
pub struct Proxy {
    pub around: Surroundings,
    contexts: Vec<Context>,
    /// The targets of each call, latest last.
    placed: Vec<Placed>,
    /// The branches of requests forwarded without state.
    stateless: Vec<String>,
}

impl Proxy {
    pub fn new(own: SocketAddr, pools: Vec<Pool>) -> Self {
        let around = Surroundings::new(own, pools);
        let (contexts, placed, stateless) = (Vec::new(), Vec::new(), Vec::new());
        Self { around, contexts, placed, stateless }
    }

    pub fn receive(&mut self, now: Timestamp, source: SocketAddr, text: &str) {
        self.around.now = now;
        let message = Message::parse(text);
        if message.status().is_some() {
            self.on_response(source, &message);
        } else {
            self.on_request(source, message);
        }
        self.forget();
    }

    /// Reports that no socket listens at `at`.
    pub fn on_failed(&mut self, now: Timestamp, at: SocketAddr) {
        self.around.now = now;
        self.around.on_failed(at);
        self.forget();
    }

    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.contexts.iter().filter_map(Context::next).min()
    }

    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.around.now = now;
        for context in &mut self.contexts {
            context.handle_timeout(&mut self.around);
        }
        self.forget();
    }

    pub fn take_sent(&mut self) -> Vec<Packet> {
        std::mem::take(&mut self.around.sent)
    }

    /// Returns the numbers of live server and client transactions.
    pub fn live(&self) -> (usize, usize) {
        let servers = self.contexts.iter().filter(|c| c.has_server()).count();
        (servers, self.contexts.iter().map(Context::clients).sum())
    }

    fn on_request(&mut self, source: SocketAddr, mut request: Message) {
        forward::record_source(&mut request, source);
        let context = self.contexts.iter_mut().find(|c| c.server.matches(&request));
        match (request.method(), context) {
            ("ACK", context) => {
                if !context.is_some_and(|c| c.server.on_ack(self.around.now)) {
                    self.on_ack(source, &request);
                }
            }
            ("CANCEL", Some(context)) => {
                // §16.10: "If a matching response context is found, the element MUST immediately
                // return a 200 (OK) response to the CANCEL request."
                let tag = forward::transaction_tag(&context.server.request);
                let response = response_to(&request, "200 OK", Some(&tag));
                self.around.send(forward::reply_address(&request), &response);
                context.on_cancel(&mut self.around, &request);
            }
            // "If a response context is not found [...] It MUST statelessly forward the CANCEL
            // request".
            ("CANCEL", None) => self.forward_stateless(source, &request),
            (_, Some(context)) => context.on_repeated(&mut self.around),
            (_, None) => self.on_new(source, request),
        }
    }

    /// Handles a new request: §16.3, then §16.5.
    fn on_new(&mut self, source: SocketAddr, request: Message) {
        // Item 3: "If the request contains a Max-Forwards header field with a field value of
        // zero (0), the element MUST NOT forward the request. [...] the element MUST return a
        // 483 (Too many hops) response."
        if request.get("Max-Forwards") == Some("0") {
            return reply(&mut self.around, &request, "483 Too Many Hops", &[]);
        }
        // Item 5: "the element MUST return a 420 (Bad Extension) response. The response MUST
        // include an Unsupported [...] header field listing those option-tags the element did
        // not understand."
        if let Some(asked) = request.get("Proxy-Require") {
            let unsupported = [("Unsupported", asked)];
            return reply(&mut self.around, &request, "420 Bad Extension", &unsupported);
        }
        let Some(way) = Way::of(&self.around, &request, source) else {
            // §16.5: "the proxy MUST return a 404 (Not Found) response."
            return reply(&mut self.around, &request, "404 Not Found", &[]);
        };
        // Item 4: "If the request contains a Via header field with a sent-by value that equals a
        // value placed into previous requests by the proxy, the request has been forwarded by this
        // element before. The request has either looped or is legitimately spiraling through the
        // element." It has looped if the facts that determine its way are the same.
        if self.around.has_looped(&request, source) {
            return reply(&mut self.around, &request, "482 Loop Detected", &[]);
        }
        if self.is_stateless(way) {
            return self.forward_stateless(source, &request);
        }
        let groups = way.groups(&self.around, request.first("Call-ID"));
        if groups.is_empty() {
            return reply(&mut self.around, &request, "503 Service Unavailable", &[]);
        }
        // RFC 5393 §5.3.3: "If a SIP proxy determines a response context has insufficient
        // Incoming Max-Breadth to carry out a desired parallel fork, [...] that proxy MUST
        // return a 440 (Max-Breadth Exceeded) response."
        let widest = groups.iter().map(Vec::len).max().expect("there is a group");
        if (forward::incoming_breadth(&request) as usize) < widest {
            if super::lenience::PLACED_BEFORE_440 {
                let call = request.first("Call-ID").to_owned();
                self.around.had.push((call, groups[0][0]));
            }
            return reply(&mut self.around, &request, "440 Max-Breadth Exceeded", &[]);
        }
        self.contexts.push(Context::new(&mut self.around, request, source, way));
    }

    /// Handles an ACK that no server transaction absorbs: to our stateless reply, or to a
    /// 2xx, in which case it is a request of its own (§13.2.2.4).
    fn on_ack(&mut self, source: SocketAddr, request: &Message) {
        if request.tag("To") != Some(&forward::stateless_tag(request)) {
            self.forward_stateless(source, request);
        }
    }

    fn forward_stateless(&mut self, source: SocketAddr, request: &Message) {
        let call = request.first("Call-ID").to_owned();
        let way = Way::of(&self.around, request, source);
        let target = match way {
            Some(Way::Inward(to) | Way::Outward { to, .. }) => Some(to),
            None if self.around.backend(source).is_some() => None,
            // A request from a back end to a pool is placed without state, by its Call-ID.
            Some(Way::Pool { pool, sender: Some(_), .. }) => {
                self.around.chosen_of(&call, &self.around.up(pool))
            }
            _ => self.placed(&call).or_else(|| match way {
                // A back end is selected only for a new request outside a dialog.
                Some(Way::Pool { pool, .. }) if begins(request) => {
                    self.around.choose(&call, &self.around.up(pool))
                }
                _ => None,
            }),
        };
        let Some(target) = target else {
            // §17.1.1.3: an ACK gets no response.
            let status = match request.method() {
                "ACK" => return,
                // §16.5: a request without a target gets a 404, whether or not there was such a
                // call.
                _ if way.is_none() && self.around.backend(source).is_some() => "404 Not Found",
                _ if begins(request) || self.has_nobody(way) => "503 Service Unavailable",
                _ => "481 Call/Transaction Does Not Exist",
            };
            return reply(&mut self.around, request, status, &[]);
        };
        if begins(request) && way.is_some_and(|way| self.is_stateless(way)) {
            self.place(call, target);
        }
        let way = way.unwrap_or(Way::Inward(target));
        let branch = forward::stateless_branch(request);
        let mut copy = forward::copy(&self.around, request, &way, target, &branch);
        // RFC 5393 §5.3.3: "All proxied requests MUST contain a single Max-Breadth header field
        // value." An ACK and a CANCEL open no response context, so nothing reads it there.
        if !["ACK", "CANCEL"].contains(&request.method()) {
            copy.set("Max-Breadth", &forward::incoming_breadth(request).to_string());
        }
        self.around.send(target, &copy);
        self.around.record_branch(&branch, request, source);
        self.stateless.push(branch);
    }

    /// Returns whether all back ends to which a back end's request could go are down.
    fn has_nobody(&self, way: Option<Way>) -> bool {
        let Some(Way::Pool { pool, sender: Some(sender), .. }) = way else { return false };
        self.around.up(pool).iter().all(|&at| at == sender)
    }

    /// Returns the target of a request without token. The model does not cover how long a call is
    /// remembered beyond 64·T1, nor when it leaves a back end that is down. In these cases the
    /// target of the core is used, if the call has had this target before.
    fn placed(&self, call: &str) -> Option<SocketAddr> {
        let of_call = || self.placed.iter().rev().filter(|placed| placed.call == call);
        let held = of_call().find(|p| self.around.now < p.until && self.around.is_up(p.target));
        held.map(|placed| placed.target)
            .or_else(|| self.around.chosen_of(call, &self.around.had(call)))
    }

    /// §16.11: "a retransmitted request MUST be forwarded to the same destination each time it
    /// is processed. Furthermore, CANCEL and non-Routed ACK requests MUST generate the same
    /// choice as their associated INVITE."
    fn place(&mut self, call: String, target: SocketAddr) {
        self.placed.retain(|placed| placed.call != call);
        self.placed.push(Placed { call, target, until: self.around.now + T1_64 });
    }

    fn on_response(&mut self, source: SocketAddr, response: &Message) {
        // Check the source, because any element that has seen the Via could answer.
        let is_own = response.branch().is_some_and(|branch| self.around.has_asked(branch, source));
        if is_own && response.method() != "CANCEL" {
            self.around.on_heard(source);
        }
        for context in &mut self.contexts {
            if let Some(branch) = context.matching(response) {
                return context.on_response(&mut self.around, branch, response);
            }
        }
        // §16.11: "the proxy MUST remove that header field value from the response and forward the
        // result to the location indicated in the next Via header field value." RFC 6026 §8.9: "any
        // element other than a stateless proxy MUST silently discard the response."
        if self.stateless.iter().any(|branch| response.branch() == Some(branch)) {
            self.around.on_heard(source);
            // RFC 4320 §4.1: "An SIP element MUST NOT send any provisional response with a
            // Status-Code other than 100 to a non-INVITE request."
            let is_provisional = matches!(response.status(), Some(101..200));
            if is_provisional && response.method() != "INVITE" {
                return;
            }
            let mut upward = response.clone();
            upward.remove_first("Via");
            self.around.send(forward::reply_address(&upward), &upward);
        }
    }

    fn is_stateless(&self, way: Way) -> bool {
        let backend_ref = |at| {
            let of = |pool: &&Pool| pool.backends.iter().any(|b| b.address == at);
            self.around.pools.iter().find(of).is_some_and(|pool| pool.kind == Kind::Stateless)
        };
        match way {
            Way::Pool { pool, .. } => self.around.pools[pool].kind == Kind::Stateless,
            Way::Inward(backend) | Way::Outward { from: backend, .. } => backend_ref(backend),
        }
    }

    fn forget(&mut self) {
        self.contexts.retain(|context| !context.is_over());
    }
}

/// Returns whether a back end may be selected for the request.
fn begins(request: &Message) -> bool {
    request.tag("To").is_none() && !["ACK", "CANCEL"].contains(&request.method())
}

/// Sends a stateless reply: RFC 3261 §8.2.7.
fn reply(around: &mut Surroundings, request: &Message, status: &str, more: &[(&str, &str)]) {
    let mut response = response_to(request, status, Some(&forward::stateless_tag(request)));
    for (name, value) in more {
        response.headers.push(((*name).to_owned(), (*value).to_owned()));
    }
    around.send(forward::reply_address(request), &response);
}
