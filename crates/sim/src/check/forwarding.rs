//! `forwarding`: a proxy makes only those changes to a message that RFC 3261 §16 describes.
//!
//! - §16.6 item 3: Max-Forwards is reduced by one. A request without Max-Forwards gets 70. §16.3
//!   item 3: a request with Max-Forwards 0 is not forwarded.
//! - §16.6 item 8: one Via is added on top. The received Vias stay.
//! - §16.7 item 3: a response leaves with the Vias with which it came, except the topmost.
//! - §16.6: "The proxy MUST NOT add to, modify, or remove the message body". The tags, which
//!   identify the dialog at both ends (§12), stay too.
//! - §16.3 item 4: no message passes the same proxy twice. The topologies of the simulator have no
//!   cycles, so no message has a reason to return to a proxy.
//!
//! These rules need no state in the proxy, so they also apply after a crash.

use super::Findings;
use super::provenance::Origin;
use super::seen::{Kind, Seen};

/// The checker's name.
pub const NAME: &str = "forwarding";

/// The Max-Forwards that a proxy gives to a request without one (RFC 3261 §16.6 item 3).
const MAX_FORWARDS: u32 = 70;

pub(super) fn check(seen: &Seen, origin: &Origin, found: &mut Findings) {
    let mut wrong = |what: &str| {
        let what = format!("{:?} {:?} {}: {what}", seen.kind, seen.method, seen.cseq);
        found.report(NAME, Some(seen.node), what);
    };
    let form = match origin {
        Origin::Passed(form) => form,
        Origin::Astray => return wrong("its Vias differ from those that it arrived with"),
        Origin::Foreign | Origin::Own | Origin::None => return,
    };
    if form.body != seen.body || form.from_tag != seen.from_tag {
        wrong("its body or its From-tag has changed");
    }
    if seen.kind == Kind::Request {
        let falls_to = match form.max_forwards {
            Some(0) => None,
            Some(left) => Some(left - 1),
            None => Some(MAX_FORWARDS),
        };
        if seen.max_forwards != falls_to {
            let (came, goes) = (form.max_forwards, seen.max_forwards);
            wrong(&format!("it arrived with Max-Forwards {came:?} and is forwarded with {goes:?}"));
        }
        if seen.hosts[1..].contains(&seen.hosts[0]) {
            wrong("it passes the same proxy again");
        }
    }
}
