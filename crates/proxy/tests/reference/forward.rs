//! The rules for forwarded requests: changes, targets and the targets of their responses. RFC 3261
//! §16.6, §18.2, RFC 3581 and RFC 5393.

use std::net::SocketAddr;

use super::message::{COOKIE, Message, parameter, sent_by};
use super::surroundings::{Kind, Surroundings};

/// RFC 5393 §5.3.3: "it MUST add one, with a value that is RECOMMENDED to be 60. Proxies MUST
/// have a maximum allowable Incoming Max-Breadth value, which is RECOMMENDED to be 60."
const BREADTH_MAX: u32 = 60;

/// The destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A new request to one or all back ends of a pool. The sender may be a back end.
    Pool { pool: usize, fork: bool, sender: Option<SocketAddr> },
    /// A request to the back end of its dialog.
    Inward(SocketAddr),
    /// A request from a back end to an address.
    Outward { from: SocketAddr, to: SocketAddr },
}

impl Way {
    /// Returns the destination of a request, or `None` if it has none.
    pub fn of(around: &Surroundings, request: &Message, source: SocketAddr) -> Option<Self> {
        let token = request.get("Route").and_then(|route| token_target(around, route));
        let from_backend = around.backend(source).is_some();
        let host = uri_host(request.uri());
        match token {
            // A request from the dialog's own back end leads outward.
            Some(backend) if backend != source => return Some(Self::Inward(backend)),
            _ => {}
        }
        // Back ends reach only the first pool. Every other target must be an address.
        if from_backend && host != around.pools[0].domain {
            return Some(Self::Outward { from: source, to: socket_address(host)? });
        }
        let pool = around.pools.iter().position(|pool| pool.domain == host)?;
        let fork = around.pools[pool].kind == Kind::Fork;
        let sender = from_backend.then_some(source);
        Some(Self::Pool { pool, fork, sender })
    }

    /// Returns the targets in groups that are tried at the same time. RFC 3261 §16.6: "Targets are
    /// processed from highest qvalue to lowest. Targets with equal qvalues may be processed in
    /// parallel."
    pub fn groups(&self, around: &Surroundings, call: &str) -> Vec<Vec<SocketAddr>> {
        match *self {
            Self::Inward(to) | Self::Outward { to, .. } => vec![vec![to]],
            Self::Pool { pool, fork: false, sender } => {
                // A call that a back end has answered always stays with it.
                let kept = around.chosen_of(call, &around.had(call));
                let mut up = around.up(pool);
                up.retain(|&at| Some(at) != sender);
                let one = kept.or_else(|| around.choose(call, &up));
                one.map(|to| vec![to]).into_iter().collect()
            }
            Self::Pool { pool, fork: true, .. } => {
                let q = |at| around.backend(at).expect("it is one of the pool").q;
                let mut up = around.up(pool);
                up.sort_by_key(|&at| std::cmp::Reverse(q(at)));
                up.chunk_by(|&a, &b| q(a) == q(b)).map(<[_]>::to_vec).collect()
            }
        }
    }

    /// Returns whether a back end sends to another one. Such requests do not show its health.
    pub fn is_between_backends(&self) -> bool {
        matches!(self, Self::Pool { sender: Some(_), .. })
    }

    /// Returns the back end of the future dialog. `None` between two back ends.
    fn dialog_with(&self, target: SocketAddr) -> Option<SocketAddr> {
        match *self {
            Self::Outward { from, .. } => Some(from),
            Self::Pool { sender: Some(_), .. } => None,
            Self::Inward(_) | Self::Pool { .. } => Some(target),
        }
    }
}

/// Adds the source to the top Via. §18.2.1: "the server MUST add a "received" parameter to that Via
/// header field value" if "the host portion of the "sent-by" parameter [...] contains an IP address
/// that differs from the packet source address". RFC 3581 §4: "it MUST set the value of the
/// parameter to the source port of the request", and "received" is added then "even if it is
/// identical".
pub fn record_source(request: &mut Message, source: SocketAddr) {
    let via = request.first("Via").to_owned();
    let asks_port = parameter(&via, "rport") == Some("");
    let host = sent_by(&via).rsplit_once(':').map_or(sent_by(&via), |(host, _)| host);
    if !asks_port && host == source.ip().to_string() {
        return;
    }
    let parts = via.split(';').map(|part| match part {
        "rport" => format!("rport={}", source.port()),
        _ => part.to_owned(),
    });
    let with_port = parts.collect::<Vec<_>>().join(";");
    request.set("Via", &format!("{with_port};received={}", source.ip()));
}

/// Returns the target of responses by §18.2.2 and RFC 3581 §4: the address of the topmost Via,
/// unless "received" and "rport" name another.
pub fn reply_address(message: &Message) -> SocketAddr {
    let via = message.first("Via");
    let (host, port) = sent_by(via).rsplit_once(':').unwrap_or((sent_by(via), "5060"));
    let host = parameter(via, "received").unwrap_or(host);
    let port = parameter(via, "rport").filter(|port| !port.is_empty()).unwrap_or(port);
    format!("{host}:{port}").parse().expect("the scripts name addresses")
}

/// Returns the copy of a request for a target.
pub fn copy(
    around: &Surroundings,
    request: &Message,
    way: &Way,
    target: SocketAddr,
    branch: &str,
) -> Message {
    let mut copy = request.clone();
    // §16.6 item 3: "decrement its value by one (1). If the copy does not contain a
    // Max-Forwards header field, the proxy MUST add one with a field value, which SHOULD be 70."
    let left = match request.get("Max-Forwards") {
        Some(value) => value.parse::<u32>().expect("a number") - 1,
        None => 70,
    };
    copy.set("Max-Forwards", &left.to_string());
    // §16.4: "If the first value in the Route header field indicates this proxy, the proxy MUST
    // remove that value from the request."
    // After a spiral, several Routes would only lead back to this proxy.
    while copy.get("Route").is_some_and(|route| is_own(around, route)) {
        copy.remove_first("Route");
    }
    // §16.6 item 4, for a request that starts or may start a dialog.
    let may_begin_dialog = ["INVITE", "SUBSCRIBE", "REFER", "NOTIFY"].contains(&request.method());
    if let (true, Some(with)) = (may_begin_dialog, way.dialog_with(target)) {
        let call = request.first("Call-ID");
        let route = format!("<sip:token_{call}_{with}@{};lr>", around.own);
        copy.push_first("Record-Route", &route);
    }
    // Item 8: "The proxy MUST insert a Via header field value into the copy before the existing
    // Via header field values."
    copy.push_first("Via", &format!("SIP/2.0/UDP {};rport;branch={branch}", around.own));
    copy
}

/// Returns a stateless branch. §16.11: "the component of the branch parameter that makes it unique
/// MUST be the same each time a retransmitted request is forwarded." It is a function of the
/// received branch or, if that has no cookie, of the other fields that identify the request.
pub fn stateless_branch(request: &Message) -> String {
    match request.branch().filter(|branch| branch.starts_with(COOKIE)) {
        Some(branch) => format!("z9hG4bK-stateless-{branch}"),
        None => {
            let parts = [request.first("Call-ID"), request.cseq_number(), request.first("Via")];
            format!("z9hG4bK-stateless-{}", parts.join("-").replace(['=', ';', ' '], "_"))
        }
    }
}

/// Returns the Incoming Max-Breadth, RFC 5393 §5.3.2: "Incoming Max-Breadth is the value in the
/// Max-Breadth header field in the request that formed the response context."
pub fn incoming_breadth(request: &Message) -> u32 {
    let given = request.get("Max-Breadth").map(|value| value.parse().expect("a number"));
    given.unwrap_or(BREADTH_MAX).min(BREADTH_MAX)
}

/// Divides the Max-Breadth. §5.3.3: "A SIP proxy MAY distribute Max-Breadth in an arbitrary
/// fashion between active branches." The shares are equal, and the first branches get the
/// remainder.
pub fn shares_of_breadth(request: &Message, branches: usize) -> Vec<u32> {
    let (all, branches) = (incoming_breadth(request), branches as u32);
    let share = |index| all / branches + u32::from(index < all % branches);
    (0..branches).map(share).collect()
}

/// Returns our tag in responses that a transaction itself makes. §9.2: "the To tag of the response
/// to the CANCEL and the To tag in the response to the original request SHOULD be the same."
pub fn transaction_tag(request: &Message) -> String {
    format!("transaction-{}", identity(request))
}

/// Returns our tag in a stateless response. §8.2.7: "To header tags MUST be generated for responses
/// in a stateless manner - in a manner that will generate the same tag for the same request
/// consistently."
pub fn stateless_tag(request: &Message) -> String {
    format!("stateless-{}", identity(request))
}

/// Returns the text that an ACK shares with its INVITE.
pub fn identity(request: &Message) -> String {
    let parts = [request.first("Call-ID"), request.cseq_number(), request.branch().unwrap_or("")];
    parts.join("-")
}

/// Returns the back end that a token of the proxy names.
fn token_target(around: &Surroundings, route: &str) -> Option<SocketAddr> {
    let inside = route.strip_prefix("<sip:token_")?;
    let (user, _) = inside.split_once('@').filter(|_| is_own(around, route))?;
    user.rsplit_once('_')?.1.parse().ok()
}

fn is_own(around: &Surroundings, route: &str) -> bool {
    route.contains(&format!("@{};lr>", around.own))
}

fn uri_host(uri: &str) -> &str {
    let (_, host) = uri.split_once('@').expect("the scripts' URIs have a user");
    host
}

fn socket_address(host: &str) -> Option<SocketAddr> {
    host.parse().ok()
}
