//! A request, read once.

use tidegate_sip::{Essentials, Message, Method, Scheme, StartLine, Uri};

use crate::message::contacts::Contacts;
use crate::message::token::RouteToken;
use crate::rejection::{DropReason, Rejection};
use crate::target::Target;

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
    /// The targets that the user or the name in its Request-URI or Route leads to, the first to be
    /// tried first, once they are known.
    pub(crate) targets: Vec<Target>,
    /// The Request-URI for each of them, if they are contacts of a user.
    pub(crate) contacts: Option<Box<Contacts>>,
    /// The Request-URI as it goes on, if that is not as it came.
    pub(crate) cleaned: Option<Box<[u8]>>,
}

impl<'a> Request<'a> {
    /// RFC 3261 §16.3: the checks that concern the request alone.
    pub(crate) fn read(message: &'a Message<'a>) -> Result<Self, Rejection> {
        let StartLine::Request { method, method_name, uri: uri_text } = message.start() else {
            return Err(Rejection::Drop(DropReason::Malformed));
        };
        let request = Self {
            message,
            method,
            method_name,
            // Item 1: reasonable syntax.
            essentials: message.essentials()?,
            uri: Uri::parse(uri_text)?,
            uri_text,
            max_forwards: message.max_forwards()?,
            identity: 0,
            has_priority: false,
            restored: 0,
            token: None,
            targets: Vec::new(),
            contacts: None,
            cleaned: None,
        };
        request.check_uri()?;
        Ok(request)
    }

    /// Replaces the Request-URI with that for the target at `index`, if it goes to a user.
    ///
    /// RFC 3261 §16.6 item 2: "The Request-URI in the copy's start line MUST be replaced with the
    /// URI for this target."
    pub(crate) fn retarget(&mut self, contacts: Option<&Contacts>, index: usize) {
        if let Some(uri) = contacts.and_then(|contacts| contacts.uri(index)) {
            self.cleaned = Some(uri.into());
        }
    }

    /// The Request-URI as it goes on.
    pub(crate) fn uri_as_sent(&self) -> &[u8] {
        self.cleaned.as_deref().unwrap_or(self.uri_text)
    }

    pub(crate) fn check_uri(&self) -> Result<(), Rejection> {
        // Item 2: "If the Request-URI has a URI whose scheme is not understood by the
        // proxy, the proxy SHOULD reject the request with a 416". `sips` asks for TLS on
        // every hop (§26.2.2), which UDP is not.
        if !matches!(self.uri.scheme, Scheme::Sip | Scheme::Tel | Scheme::Urn) {
            return Err(Rejection::Reply(416, "scheme is not served"));
        }
        // RFC 3261 §19.1.1, table 1: no headers in a Request-URI. They would be read as
        // header fields by somebody behind us, a Route among them.
        if self.uri.headers.is_some() {
            return Err(Rejection::Reply(400, "headers in the Request-URI"));
        }
        Ok(())
    }
}
