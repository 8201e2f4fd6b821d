//! A parsed request, with the parts that several steps need.

use tidegate_control::feedback::Category;
use tidegate_sip::{Essentials, Message, Method, Scheme, StartLine, Uri};
use tidegate_world::Flow;

use crate::message::contacts::Contacts;
use crate::message::token::RouteToken;
use crate::rejection::{DropReason, Rejection};
use crate::target::Target;

/// Keyed hashes by which the tables find the transaction and the call of a request. Admission
/// computes them if it has to know whether the request belongs to a known call or transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHashes {
    /// The [identity](Request::identity) of the request, if its branch alone determines the
    /// identity.
    pub(crate) identity: Option<u64>,
    /// The fingerprint of the Call-ID.
    pub(crate) call: u128,
}

/// A request and the parts of it that several steps need, so that nothing is parsed twice.
pub(crate) struct Request<'a> {
    pub(crate) message: &'a Message<'a>,
    pub(crate) method: Method,
    pub(crate) method_name: &'a [u8],
    pub(crate) uri: Uri<'a>,
    pub(crate) uri_text: &'a [u8],
    pub(crate) essentials: Essentials<'a>,
    pub(crate) max_forwards: Option<u32>,
    /// A keyed hash of the transaction to which the received request belongs. Retransmissions of
    /// the request have the same identity.
    pub(crate) identity: u64,
    /// The fingerprint of the Call-ID of the request.
    pub(crate) call_fingerprint: u128,
    pub(crate) has_priority: bool,
    /// True if the request is a retransmission of new work that was served before.
    pub(crate) is_again: bool,
    /// Number of values at the end of the Route that are restored as the Request-URI (RFC 3261
    /// §16.4): 1 if a strict router moved the Request-URI there, otherwise 0.
    pub(crate) restored: usize,
    /// The route token in the received Request-URI, if a strict router moved it there.
    pub(crate) token: Option<RouteToken>,
    /// The targets that a look-up of the user, or the resolution of a name, has found for the
    /// request, in the order of attempts. Empty until they are found.
    pub(crate) targets: Vec<Target>,
    /// The Request-URI for each target, if the targets are contacts of a user.
    pub(crate) contacts: Option<Box<Contacts>>,
    /// The Request-URI to forward, if it differs from the received one.
    pub(crate) cleaned: Option<Box<[u8]>>,
}

impl<'a> Request<'a> {
    /// Reads a request and makes the checks of RFC 3261 §16.3 that need only the request.
    ///
    /// RFC 3261 §16.3: "The request MUST be well-formed enough to be handled with a server
    /// transaction." "An element MUST NOT refuse to proxy a request because it contains a method or
    /// header field it does not know about."
    pub(crate) fn read(message: &'a Message<'a>) -> Result<Self, Rejection> {
        let StartLine::Request { method, method_name, uri: uri_text } = message.start() else {
            return Err(Rejection::Drop(DropReason::Malformed));
        };
        // RFC 3261 §16.3 item 1: reasonable syntax.
        let essentials = message.essentials()?;
        let uri = Uri::parse(uri_text)?;
        let max_forwards = message.max_forwards()?;
        check_uri(&uri)?;
        Ok(Self {
            message,
            method,
            method_name,
            essentials,
            uri,
            uri_text,
            max_forwards,
            identity: 0,
            call_fingerprint: 0,
            has_priority: false,
            is_again: false,
            restored: 0,
            token: None,
            targets: Vec::new(),
            contacts: None,
            cleaned: None,
        })
    }

    /// Returns the category of a request. The category determines how the request is restricted if
    /// the next hop asks for fewer requests.
    ///
    /// RFC 7339 §7.2: "The client maintains two categories of requests. The first category will include
    /// requests that are candidates for reduction, and the second category will include requests that are
    /// not subject to reduction except when all messages in the first category have been rejected and
    /// further reduction is still needed."
    ///
    /// RFC 7339 §5.10.1: "A SIP client SHOULD honor the local policy for prioritizing SIP requests
    /// such as policies based on message type, e.g., INVITEs versus requests associated with
    /// existing sessions." "A SIP client SHOULD honor the local policy for prioritizing SIP
    /// requests based on the content of the Resource-Priority header (RPH) \[RFC4412\]." "A SIP
    /// client SHOULD honor the local policy for prioritizing SIP requests relating to emergency
    /// calls as identified by the SOS URN \[RFC5031\] indicating an emergency request." The local
    /// policy is `[overload.priority]`.
    pub(crate) fn category(&self) -> Category {
        match self.method {
            // A transaction cannot end without its ACK or CANCEL, so these are always sent.
            Method::Ack | Method::Cancel => Category::Required,
            _ if self.essentials.to_tag.is_some() => Category::Ongoing,
            method => category_of_new(method, self.has_priority),
        }
    }

    /// Replaces the Request-URI with the URI for the target at `index`, if that target is a contact
    /// of a user.
    ///
    /// RFC 3261 §16.6 item 2: "The Request-URI in the copy's start line MUST be replaced with the
    /// URI for this target."
    pub(crate) fn retarget(&mut self, contacts: Option<&Contacts>, index: usize) {
        if let Some(uri) = contacts.and_then(|contacts| contacts.uri(index)) {
            self.cleaned = Some(uri.into());
        }
    }

    /// Leaves out the first `count` contacts of the user, to which the request is not sent.
    pub(crate) fn leave_out(&mut self, count: usize) {
        let Some(contacts) = self.contacts.as_mut().filter(|_| count > 0) else { return };
        (0..count).for_each(|_| contacts.skip(0));
        self.cleaned = contacts.uri(0).map(Into::into);
    }

    pub(crate) fn uri_as_sent(&self) -> &[u8] {
        self.cleaned.as_deref().unwrap_or(self.uri_text)
    }
}

/// Returns the category of a request that belongs to no dialog.
pub(crate) fn category_of_new(method: Method, has_priority: bool) -> Category {
    match method {
        Method::Invite if has_priority => Category::Priority,
        Method::Invite => Category::Session,
        _ => Category::Single,
    }
}

/// Checks that a request with a SIPS Request-URI came over TLS.
///
/// A SIPS URI requires TLS on every hop (RFC 3261 §26.2.2). Over other transports we do not serve
/// this scheme.
pub(crate) fn check_hop(uri: &Uri<'_>, flow: &Flow) -> Result<(), Rejection> {
    match uri.scheme == Scheme::Sips && !flow.transport.is_secure() {
        true => Err(Rejection::UNKNOWN_SCHEME),
        false => Ok(()),
    }
}

/// Checks that a Request-URI is one that this proxy serves.
pub(crate) fn check_uri(uri: &Uri<'_>) -> Result<(), Rejection> {
    // RFC 3261 §16.3 item 2: "If the Request-URI has a URI whose scheme is not understood by the
    // proxy, the proxy SHOULD reject the request with a 416 (Unsupported URI Scheme) response."
    if !matches!(uri.scheme, Scheme::Sip | Scheme::Sips | Scheme::Tel | Scheme::Urn) {
        return Err(Rejection::UNKNOWN_SCHEME);
    }
    // RFC 3261 §19.1.1, table 1: no headers in a Request-URI. An element behind us could read
    // them as header fields, such as a Route.
    if uri.headers.is_some() {
        return Err(Rejection::usual(400, "the Request-URI contains header fields"));
    }
    Ok(())
}
