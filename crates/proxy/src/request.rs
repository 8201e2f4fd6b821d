//! A request on its way through: read once, checked, routed, forwarded or answered.

use std::net::SocketAddr;

use tidegate_control::{Reason, Tier};
use tidegate_sip::{Essentials, HeaderName, Message, Method, Scheme, StartLine, Uri};
use tidegate_world::{Received, Timestamp};

use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::rejection_reason::ReplyReason;
use crate::reply::text_of;
use crate::request_uri::cleaned;
use crate::token::RouteToken;
use crate::verification::Shown;

/// A request and what everybody needs of it, so that nothing is read twice.
pub(crate) struct Request<'a> {
    pub(crate) message: &'a Message<'a>,
    pub(crate) method: Method,
    pub(crate) method_name: &'a [u8],
    pub(crate) uri: Uri<'a>,
    pub(crate) uri_text: &'a [u8],
    pub(crate) essentials: Essentials<'a>,
    pub(crate) max_forwards: Option<u32>,
    /// What stays the same over all copies of it.
    pub(crate) identity: u64,
    /// It goes before others.
    pub(crate) has_priority: bool,
    /// Route values at the end that a strict router has put there and that stand in the
    /// Request-URI again: none or one.
    pub(crate) restored: usize,
    /// The route token that stood in the Request-URI then.
    pub(crate) token: Option<RouteToken>,
    /// The Request-URI as it goes on, if that is not as it came.
    pub(crate) cleaned: Option<Box<[u8]>>,
    /// Its source has its share of the table of transactions.
    pub(crate) has_its_share: bool,
}

impl<'a> Request<'a> {
    /// RFC 3261 §16.3: the checks that concern the request alone.
    pub(crate) fn read(message: &'a Message<'a>) -> Result<Self, Instead> {
        // Item 1: reasonable syntax.
        let essentials = message.essentials()?;
        let StartLine::Request { method, method_name, uri: uri_text } = message.start() else {
            return Err(Instead::Drop(DropReason::Malformed));
        };
        let uri = Uri::parse(uri_text)?;
        let max_forwards = message.max_forwards()?;
        let request = Self {
            message,
            method,
            method_name,
            uri,
            uri_text,
            essentials,
            max_forwards,
            identity: 0,
            has_priority: false,
            restored: 0,
            token: None,
            cleaned: None,
            has_its_share: false,
        };
        request.check_uri()?;
        Ok(request)
    }

    /// The Request-URI as it goes on.
    pub(crate) fn uri_as_sent(&self) -> &[u8] {
        self.cleaned.as_deref().unwrap_or(self.uri_text)
    }

    fn check_uri(&self) -> Result<(), Instead> {
        // Item 2: "If the Request-URI has a URI whose scheme is not understood by the
        // proxy, the proxy SHOULD reject the request with a 416". `sips` asks for TLS on
        // every hop (§26.2.2), which UDP is not.
        if !matches!(self.uri.scheme, Scheme::Sip | Scheme::Tel | Scheme::Urn) {
            return Err(Instead::Reply(416, "scheme is not served"));
        }
        // RFC 3261 §19.1.1, table 1: no headers in a Request-URI. They would be read as
        // header fields by somebody behind us, a Route among them.
        if self.uri.headers.is_some() {
            return Err(Instead::Reply(400, "headers in the Request-URI"));
        }
        Ok(())
    }
}

impl Endpoint {
    /// Forwards or answers a request, or says what else is to be done.
    pub(crate) fn serve_request(
        &mut self,
        now: Timestamp,
        received: &Received,
        has_priority: bool,
    ) -> Served {
        self.tiering.begin();
        self.routed_to = None;
        let message = match Message::parse(&received.bytes) {
            Ok(message) => message,
            Err(malformed) => {
                self.refuse_malformed(received, malformed);
                return Served::Here;
            }
        };
        let disbelieved = self.disbelieve(&received.flow, &message);
        let message = match disbelieved.as_deref().map(Message::parse) {
            None => message,
            Some(Ok(message)) => message,
            Some(Err(malformed)) => {
                self.refuse_malformed(received, malformed);
                return Served::Here;
            }
        };
        let done = self.take_request(now, received, &message, has_priority);
        let Err(instead) = done else { return Served::Here };
        let is_ack = message.method() == Some(Method::Ack);
        match instead {
            Instead::Cross(shard) => return Served::Elsewhere(shard),
            Instead::PoolFull => return Served::PoolFull,
            Instead::Drop(why) => self.drop_counted(why),
            // RFC 3261 §17.1.1.3: nothing answers an ACK.
            Instead::Reply(481, _) if is_ack => {
                self.shown = Shown::Stray;
                self.drop_counted(DropReason::UnknownAck);
            }
            Instead::Reply(..) | Instead::PoolDown(_) if is_ack => {
                self.drop_counted(DropReason::Malformed);
            }
            Instead::Reply(status, why) => {
                if status == 481 {
                    self.shown = Shown::Stray;
                }
                // RFC 3261 §20.43: 399, a text for a person.
                let warning = ["399 tidegate \"", why, "\""].concat();
                let reason = (ReplyReason::of(status, why), why);
                let headers = [("Warning", warning.as_bytes())];
                self.answer(received, &message, status, reason, &headers);
                if status == 503 {
                    return Served::Refused;
                }
            }
            Instead::PoolDown(hints) => {
                let reason = (Reason::PoolDown.into(), text_of(hints.warning));
                let mut digits = itoa::Buffer::new();
                self.answer(received, &message, 503, reason, &hints.headers(&mut digits));
                return Served::PoolDown;
            }
            Instead::BadExtension => {
                // RFC 3261 §16.3 item 5: the 420 lists what was not understood.
                let lines = message.fields().filter(|f| f.name == HeaderName::ProxyRequire);
                let asked = lines.map(|f| f.value).collect::<Vec<_>>().join(&b", "[..]);
                let reason = (ReplyReason::Extension, ReplyReason::Extension.doc());
                self.answer(received, &message, 420, reason, &[("Unsupported", &asked)]);
            }
            Instead::Capabilities => {
                let reason = (ReplyReason::None, ReplyReason::None.doc());
                self.answer(received, &message, 200, reason, &CAPABILITIES);
            }
        }
        Served::Here
    }

    fn take_request(
        &mut self,
        now: Timestamp,
        received: &Received,
        message: &Message<'_>,
        has_priority: bool,
    ) -> Result<(), Instead> {
        let mut request = Request { has_priority, ..Request::read(message)? };
        request.identity = self.identity(&request);
        if self.try_match(now, received, &request) {
            return Ok(());
        }
        self.restore(&mut request, received.flow.local)?;
        request.has_its_share = self.transactions().is_scarce()
            && self
                .share_of(&received.flow)
                .is_some_and(|bucket| self.transactions().is_exhausted(bucket));
        self.decide(now, received, &request)
    }

    /// RFC 3261 §16.4: "If the Request-URI of the request contains a value this proxy previously
    /// placed into a Record-Route header field (see Section 16.6 item 4), the proxy MUST replace
    /// the Request-URI in the request with the last value from the Route header field, and remove
    /// that value from the Route header field." A strict router before us has done that.
    pub(crate) fn restore(
        &self,
        request: &mut Request<'_>,
        local: SocketAddr,
    ) -> Result<(), Instead> {
        let user = request.uri.user.unwrap_or_default();
        let token = RouteToken::decode(user, self.keys(), request.essentials.call_id);
        if token.is_some()
            && self.addresses().is_own_route(&request.uri, local)
            && let Some(last) = request.message.routes().last().transpose()?
        {
            request.uri_text = last.uri;
            request.uri = last.parse_uri()?;
            request.check_uri()?;
            (request.token, request.restored) = (token, 1);
        }
        if !request.uri.params.text().is_empty() {
            self.clean(request, local);
        }
        Ok(())
    }

    /// Takes off the Request-URI what must not stay there.
    fn clean(&self, request: &mut Request<'_>, local: SocketAddr) {
        let is_own_maddr = self.addresses().is_own_maddr(&request.uri, local);
        request.cleaned = cleaned(&request.uri, is_own_maddr).map(Into::into);
        if is_own_maddr {
            // RFC 3261 §16.4: "and continue processing as if those values had not been present in
            // the request."
            request.uri = request.uri.without_params();
        }
    }

    /// RFC 3261 §16.3: the checks that come before routing; then routing.
    fn decide(
        &mut self,
        now: Timestamp,
        received: &Received,
        request: &Request<'_>,
    ) -> Result<(), Instead> {
        let Request { message, method, uri, max_forwards, .. } = request;
        // Item 3: Max-Forwards. An OPTIONS that has arrived may be answered at zero.
        let arrived =
            uri.user.is_none() && self.addresses().is_own_target(uri, received.flow.local);
        if *method == Method::Options && arrived {
            return Err(Instead::Capabilities);
        }
        if *max_forwards == Some(0) {
            return Err(Instead::Reply(483, "too many hops"));
        }
        let has_transaction = !matches!(method, Method::Ack | Method::Cancel);
        // Item 4.
        if has_transaction {
            self.check_loop(received, request)?;
        }
        // Item 5: Proxy-Require. RFC 3261 §8.2.2.3: never in an ACK or CANCEL.
        if message.field(HeaderName::ProxyRequire).is_some() && has_transaction {
            return Err(Instead::BadExtension);
        }
        // RFC 5393 §5.3.3: before a target is chosen, for a choice counts.
        if has_transaction {
            self.breadth(request)?;
        }
        let hop = match self.route(now, received, request) {
            Err(Instead::Reply(481, _)) if !has_transaction => {
                return self.forward_lost(now, received, request);
            }
            hop => hop?,
        };
        if *method == Method::Invite && request.essentials.to_tag.is_none() {
            self.calls_mut().note_priority(hop.call, request.identity, request.has_priority);
        }
        // What a call needs to go on or to end is not refused for want of room.
        let goes_alone = request.essentials.to_tag.is_some()
            && (self.transactions().is_full() || request.has_its_share);
        // The ACK to a 2xx belongs to a call that has got as far as that.
        if *method == Method::Ack && hop.member.is_some() {
            self.shown = Shown::Receives;
        }
        self.tiering.note(hop.tier);
        match hop.tier {
            // §16.10: a CANCEL that matches nothing goes on without state; §13.2.2.4: the ACK to
            // a 2xx is a transaction of its own that has no answer.
            Tier::Stateful if has_transaction && !goes_alone => {
                self.begin(now, received, request, hop)
            }
            _ => self.forward(now, received, request, hop),
        }
    }
}

/// What was done with a request.
pub(crate) enum Served {
    /// What it asked for.
    Here,
    /// It was answered with 503, for a reason that may pass.
    Refused,
    /// Nothing: no back end that it could go to has headroom.
    PoolFull,
    /// It was answered with 503: no back end that it could go to may be given anything new.
    PoolDown,
    /// Nothing: another shard knows more.
    Elsewhere(u16),
}

/// RFC 3261 §11.2: what an OPTIONS to ourselves is told. We are no end of a session:
/// methods other than OPTIONS go through us.
const CAPABILITIES: [(&str, &[u8]); 5] = [
    ("Allow", b"OPTIONS"),
    ("Accept", b"application/sdp"),
    ("Accept-Encoding", b"identity"),
    ("Accept-Language", b"en"),
    ("Supported", b""),
];
