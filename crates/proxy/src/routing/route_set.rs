//! Reads the Route header fields of a request: the values that name this proxy, the tokens in these
//! values, and the first value after them.

use tidegate_sip::{Message, Uri};
use tidegate_world::{Flow, Received, Timestamp};

use crate::message::flow_token::RegisteredFlow;
use crate::message::token::RouteToken;
use crate::rejection::Rejection;
use crate::snapshot::Snapshot;
use crate::target::Target;
use crate::transport::addresses::Origin;

/// Maximum number of Route values that may name us. A request that passes us once has one such
/// value, or two if it arrives at one listener and leaves from another. A request may pass us
/// twice.
const OWN_ROUTES_MAX: usize = 4;

/// The leading Route values that name us, and the value after them.
pub(crate) struct RouteSet<'a> {
    /// The number of leading values that name this proxy.
    pub(crate) own: usize,
    /// The first valid route token. Values with another token may follow, if a back end has sent
    /// the call back through us and has not recorded a route itself. They are removed and not
    /// followed: see "Back ends that are proxies" in docs/guide/back-ends.md.
    pub(crate) token: Option<RouteToken>,
    /// The flow to a registered phone, if the last Route value that names us is the Path of that
    /// phone and the phone is not the sender. The request leaves on this flow, and Route values
    /// after that Path are not read.
    pub(crate) flow: Option<RegisteredFlow>,
    /// The index of the listener toward the next hop: the listener in the last Route value that
    /// names this proxy, or `None` if only one Route value names it.
    pub(crate) egress: Option<u8>,
    pub(crate) next: Next<'a>,
}

/// The first Route value that does not name us.
pub(crate) enum Next<'a> {
    /// No Route value is left after those that name us.
    None,
    /// A Route to a target. The flag is `true` if the target is a strict router.
    Target(Target, bool),
    /// A Route to a name. The flag is `true` if the name belongs to a strict router.
    Name(Uri<'a>, bool),
}

impl<'a> RouteSet<'a> {
    /// Reads the Route header fields of a request that came on `flow`. The last `restored` values
    /// are skipped, because they are Request-URIs that a strict router has moved to the Route.
    ///
    /// RFC 3261 §16.4: "If the first value in the Route header field indicates this proxy, the
    /// proxy MUST remove that value from the request." If the request passes between two of our
    /// listeners, there are two such values.
    pub(crate) fn read(
        snapshot: &Snapshot,
        flow: &Flow,
        message: &'a Message<'_>,
        call_id: &[u8],
        restored: usize,
    ) -> Result<Self, Rejection> {
        let mut found = Self { own: 0, token: None, flow: None, egress: None, next: Next::None };
        let count = if restored == 0 { usize::MAX } else { message.routes().count() - restored };
        for route in message.routes().take(count) {
            let uri = route?.parse_uri()?;
            if !snapshot.addresses.is_own_route(&uri, flow) {
                // RFC 3261 §19.1.1: "The lr parameter, when present, indicates that the element
                // responsible for this resource implements the routing mechanisms specified in
                // this document."
                let is_strict = !uri.lr();
                found.next = match snapshot.addresses.target_of(&uri) {
                    Some(target) => Next::Target(target, is_strict),
                    None => Next::Name(uri, is_strict),
                };
                break;
            }
            found.own += 1;
            if found.own > OWN_ROUTES_MAX {
                return Err(Rejection::usual(400, "too many Route values name this proxy"));
            }
            // RFC 5658 §5: "a proxy MAY remove two Route headers instead of one when using the
            // double Record-Routing." The last one removed names the interface toward the next hop.
            if found.own > 1 {
                found.egress = snapshot.addresses.named(&uri);
            }
            let text = uri.user.unwrap_or_default();
            // RFC 5626 §5.3: "If the flow in the flow token identified by the topmost Route header
            // field value matches the source IP address and port of the request, the request is an
            // "outgoing" request; otherwise, it is an "incoming" request." The next hop of an
            // outgoing request is in the Routes behind the token.
            let named = RegisteredFlow::decode(text, &snapshot.keys)?;
            found.flow = named.filter(|named| !named.is(flow));
            // The request leaves on that flow, even if there are further Routes.
            if found.flow.is_some() {
                break;
            }
            if found.token.is_none() {
                found.token = RouteToken::decode(text, &snapshot.keys, call_id);
            }
        }
        Ok(found)
    }

    /// Returns whether no Route value is left after those that name us.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self.next, Next::None) && self.flow.is_none()
    }
}

/// A fact that the Route values of a request prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteProof {
    Nothing,
    /// The registrar of a phone sends the request to this phone.
    ForPhone,
    /// The request belongs to a dialog of ours, whose call has this
    /// [number](RouteToken::number).
    InDialog(u64),
}

/// Returns what the Route values of a request prove. `fingerprint` is that of its Call-ID. A flow
/// token in the request of a stranger proves nothing, because a stranger may have seen the token.
pub(crate) fn route_proof(
    now: Timestamp,
    snapshot: &Snapshot,
    received: &Received,
    (call_id, fingerprint): (&[u8], u128),
) -> RouteProof {
    let Ok(message) = Message::parse(&received.bytes) else { return RouteProof::Nothing };
    let Ok(routes) = RouteSet::read(snapshot, &received.flow, &message, call_id, 0) else {
        return RouteProof::Nothing;
    };
    let is_fresh =
        |token: &RouteToken| message.method().is_some_and(|m| snapshot.is_fresh(now, m, token));
    let is_stranger = || snapshot.addresses.origin(&received.flow) == Origin::Stranger;
    match routes.token.filter(is_fresh) {
        Some(token) => RouteProof::InDialog(token.number(&snapshot.keys, fingerprint)),
        None if routes.flow.is_some() && !is_stranger() => RouteProof::ForPhone,
        None => RouteProof::Nothing,
    }
}
