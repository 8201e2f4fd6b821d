//! The `[[route]]` rules of the configuration, for requests that have neither a Route nor a dialog.

use tidegate_sip::{Method, Uri};
use tidegate_world::Received;

use crate::message::request::Request;
use crate::rejection::Rejection;
use crate::settings::{Rule, RuleTarget, Senders};
use crate::snapshot::Snapshot;
use crate::target::Target;
use crate::transport::addresses::{Origin, is_host};

/// The destination of a request that belongs to no dialog.
pub(crate) enum Destination<'a> {
    /// A back end of this pool.
    Pool(u16),
    /// A target. The flag is `true` if the target is a strict router.
    Target(Target, bool),
    /// The host that this URI names. The flag is `true` if the host is a strict router.
    Name(Uri<'a>, bool),
    /// The contacts of the user that the Request-URI names.
    User,
}

/// Returns the destination of a request that has no further Route, by the first rule that matches
/// the request. `ours` is true if the Request-URI names us.
///
/// RFC 3261 §16.5: "If the domain of the Request-URI indicates a domain this element is not
/// responsible for, the Request-URI MUST be placed into the target set as the only target, and the
/// element MUST proceed to the task of Request Forwarding (Section 16.6)." "A proxy MUST NOT add
/// additional targets to the target set if the Request-URI of the original request does not
/// indicate a resource this proxy is responsible for."
pub(crate) fn destination<'a>(
    snapshot: &Snapshot,
    origin: Origin,
    received: &Received,
    request: &Request<'a>,
    ours: bool,
) -> Result<Destination<'a>, Rejection> {
    let uri = &request.uri;
    // An maddr overrides the host (RFC 3261 §19.1.1).
    let by_number = uri.maddr().is_some() || uri.host.is_some_and(|host| host.ip().is_some());
    // A numeric address that is not ours means that the request should be relayed to this address.
    // A name does not mean this, because it may be a domain that the pool serves.
    let elsewhere = by_number && !ours;
    let may_leave = origin != Origin::Stranger;
    let matches = |rule: &&Rule| rule.matches(origin, received, request, elsewhere);
    let to = match snapshot.rules.iter().find(matches) {
        Some(rule) => rule.to,
        None if may_leave && !ours => RuleTarget::RequestUri,
        None if elsewhere => return Err(Rejection::RELAYING),
        None => return Err(Rejection::usual(404, "no route")),
    };
    match to {
        RuleTarget::Pool(index) => Ok(Destination::Pool(index as u16)),
        RuleTarget::RequestUri if may_leave => {
            let by_name = Destination::Name(*uri, false);
            // RFC 3261 §16.5: "If the Request-URI of the request contains an maddr parameter, the
            // Request-URI MUST be placed into the target set as the only target URI, and the proxy
            // MUST proceed to Section 16.6."
            let by_number = snapshot.addresses.target_of(uri);
            Ok(by_number.map_or(by_name, |at| Destination::Target(at, false)))
        }
        RuleTarget::RequestUri => Err(Rejection::RELAYING),
        RuleTarget::Users => Ok(Destination::User),
    }
}

impl Rule {
    fn matches(
        &self,
        origin: Origin,
        received: &Received,
        request: &Request<'_>,
        elsewhere: bool,
    ) -> bool {
        let Request { method_name: name, uri, .. } = request;
        let from = match self.from {
            Senders::Any => !matches!(origin, Origin::Backend(_)),
            Senders::Trusted => origin != Origin::Stranger,
            Senders::Pool => matches!(origin, Origin::Backend(_)),
            Senders::Net(net) => net.contains(&received.flow.remote.ip().to_canonical()),
        };
        let has = |name: &[u8]| self.methods.iter().any(|m| m.as_bytes() == name);
        // RFC 3261 §16.11: "CANCEL and non-Routed ACK requests MUST generate the same choice as
        // their associated INVITE."
        let is_invites =
            || matches!(request.method, Method::Ack | Method::Cancel) && has(b"INVITE");
        let method = self.methods.is_empty() || has(name) || is_invites();
        let domain = if self.domains.is_empty() {
            !elsewhere
        } else {
            uri.maddr().is_none()
                && uri.host.is_some_and(|h| self.domains.iter().any(|domain| is_host(&h, domain)))
        };
        from && method && domain
    }
}
