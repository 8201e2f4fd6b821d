//! Classifies messages on arrival. The code reads only the parts of a message that determine its
//! class, its queue, and the identity of its retransmissions.

use tidegate_control::Bucket;
use tidegate_sip::{
    Malformed, Method, Outline, Scan, ScanStart, glance, may_have_overload_control, scan,
};
use tidegate_world::{Received, Timestamp};

use super::view::{Standing, View};
use super::waiting::QueueClass;
use crate::message::class::Class;
use crate::message::request::RequestHashes;
use crate::rejection::DropReason;

/// The class of a message, and the facts that classification has read from the message.
pub(crate) struct Reading {
    pub(crate) class: Class,
    pub(crate) queue_class: QueueClass,
    /// Throttle of a request for new work, or with [`Wanted::reinvites`] of an INVITE within a
    /// call. `None` for other messages, because overload control does not decide on them.
    pub(crate) bucket: Option<Bucket>,
    /// Keyed hash that the message shares with its retransmissions. `None` if `bucket` is `None`.
    pub(crate) fingerprint: Option<u64>,
    /// Keyed hash ([`View::fingerprint`]) of the INVITE that this CANCEL cancels. `None` if the
    /// proxy has served that INVITE, or if the message is not a CANCEL.
    pub(crate) cancels: Option<u64>,
    /// True if the message begins a call: it is an INVITE without a To-tag, and requests new work.
    pub(crate) begins_call: bool,
    /// True if the message is new work, and its topmost Via may offer overload control (RFC 7339).
    pub(crate) may_offer: bool,
    /// Keyed hash of the challenge (401 or 407) that the message answers if it has credentials.
    /// `None` without [`Wanted::challenges`], with a To-tag, or if the message is not new work.
    pub(crate) challenge: Option<u64>,
    /// Hashes of the branch and the Call-ID of the request. `None` for a response, an ACK or a BYE.
    pub(crate) hashes: Option<RequestHashes>,
}

/// Reason why a message was not classified.
pub(crate) enum Unclassified {
    Dropped(Option<Class>, DropReason),
    Malformed(Malformed),
}

impl From<Malformed> for Unclassified {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Keepalive => Self::Dropped(None, DropReason::Keepalive),
            other => Self::Malformed(other),
        }
    }
}

/// Facts to read when a message is classified, in addition to its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// True to record which lines of an INVITE a rejection copies, so that the rejection is cheap
    /// to build.
    pub(crate) outline: bool,
    /// True if overload control also decides on INVITEs within a call.
    pub(crate) reinvites: bool,
    /// True to compute the keyed hash of the challenge that a new request may answer. False while
    /// no challenge of a back end can be unanswered.
    pub(crate) challenges: bool,
}

/// Classifies a message. If [`Wanted::outline`] is true, stores in `outline` the positions of the
/// lines that a rejection copies. The outline is not part of the result, because it is too large to
/// be moved.
///
/// The classification is one function, so that nothing is read twice and the function returns as
/// soon as the class is known.
pub(crate) fn read<'a>(
    now: Timestamp,
    received: &'a Received,
    view: View<'_>,
    wanted: Wanted,
    outline: &mut Option<Outline<'a>>,
) -> Result<Reading, Unclassified> {
    // An INVITE needs no separate look at its start line: the line does not determine the class,
    // and the scan reads it too.
    let start = match received.bytes.starts_with(b"INVITE ") {
        true => None,
        false => Some(glance(&received.bytes)?),
    };
    let by_start = start.as_ref().and_then(Class::of_start);
    let reading = |class, queue_class| Reading {
        class,
        queue_class,
        bucket: None,
        fingerprint: None,
        cancels: None,
        begins_call: false,
        may_offer: false,
        challenge: None,
        hashes: None,
    };
    match by_start {
        Some(class @ (Class::Final | Class::Provisional | Class::Bye)) => {
            return Ok(reading(class, QueueClass::of(class)));
        }
        Some(Class::Ack) if view.is_ack_of_reply(&received.bytes) => {
            return Err(Unclassified::Dropped(Some(Class::Ack), DropReason::OwnAck));
        }
        // An ACK gets no response and is not new work, so its class is enough. The parser finds
        // malformed ACKs later.
        Some(class @ Class::Ack) => return Ok(reading(class, QueueClass::of(class))),
        _ => {}
    }
    // The outline includes the result of the scan. It takes one and a half times as long as a scan,
    // so it is made only if the INVITE may be rejected.
    let is_invite = matches!(start, None | Some(ScanStart::Request { method: Method::Invite, .. }));
    if wanted.outline && is_invite {
        *outline = Outline::of(&received.bytes);
    }
    let scan: Scan<'_> = match outline {
        Some(outline) => outline.scan,
        None => scan(&received.bytes)?,
    };
    let ScanStart::Request { method, .. } = scan.start else {
        unreachable!("responses have a class by their start line")
    };
    let hashes = view.hashes(method, &scan);
    let class = match by_start {
        Some(class) => class,
        None => match view.standing(now, method, &scan, &hashes, received) {
            Standing::Floods => {
                let class = Some(Class::InDialog);
                return Err(Unclassified::Dropped(class, DropReason::CallFlood));
            }
            standing => Class::of_request(method, standing == Standing::Known),
        },
    };
    let fingerprint = || Some(view.fingerprint(&scan, &hashes, &received.bytes));
    let reading = |class, queue_class| {
        let hashes = Some(hashes);
        Reading { hashes, ..reading(class, queue_class) }
    };
    match class {
        // A CANCEL must not be served before its INVITE if the INVITE still waits. RFC 3261 §9.1:
        // both have the same Call-ID, topmost Via and CSeq number.
        Class::Cancel if !view.has_served(now, &hashes) => {
            let cancels = fingerprint();
            Ok(Reading { cancels, ..reading(class, QueueClass::of(class)) })
        }
        // Without a To-tag, an INVITE of this class is a retransmission of the INVITE that began
        // its call.
        Class::InDialog if wanted.reinvites && is_invite && scan.to_tag.is_some() => {
            let (bucket, fingerprint) = (Some(Bucket::Session), fingerprint());
            Ok(Reading { bucket, fingerprint, ..reading(class, QueueClass::of(class)) })
        }
        _ if class.is_new_work() => {
            let (bucket, fingerprint) = (class.bucket(), fingerprint());
            let begins_call = is_invite && scan.to_tag.is_none();
            let read = reading(class, QueueClass::of(class));
            let may_offer = may_have_overload_control(scan.via);
            let challenge = (wanted.challenges && scan.to_tag.is_none())
                .then(|| view.challenge(&scan, received));
            Ok(Reading { bucket, fingerprint, begins_call, may_offer, challenge, ..read })
        }
        _ => Ok(reading(class, QueueClass::of(class))),
    }
}
