//! A message as it is read at the door: as little of it as tells its class, where it waits, and
//! what its repetitions have in common.

use tidegate_control::Bucket;
use tidegate_sip::{Malformed, Method, Outline, Scan, ScanStart, glance, scan};
use tidegate_world::{Received, Timestamp};

use super::view::View;
use super::waiting::QueueClass;
use crate::message::class::Class;
use crate::rejection::DropReason;

/// What was read of a message.
pub(crate) struct Reading {
    pub(crate) class: Class,
    pub(crate) queue_class: QueueClass,
    /// Which new work it asks for; `None` if it belongs to work that was begun.
    pub(crate) bucket: Option<Bucket>,
    /// What its repetitions have in common with it, if it is new work.
    pub(crate) fingerprint: Option<u64>,
    /// The fingerprint of the INVITE that it cancels, if that has not been served.
    pub(crate) cancels: Option<u64>,
    /// Whether it begins a call: an INVITE that belongs to no dialog.
    pub(crate) begins_call: bool,
}

/// Why a message was not read.
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

/// What is to be looked for in a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The outline of an INVITE: a new call is likely to be refused.
    pub(crate) outline: bool,
    /// INVITEs within a call, which are to be judged as those that begin one.
    pub(crate) reinvites: bool,
}

/// Reads a message. Puts into `outline` where the lines stand that a rejection copies, if they are
/// looked for: it is too large to be moved with the rest.
///
/// It stands in one function, so that nothing is read twice and each class returns as soon as it is
/// known.
pub(crate) fn read<'a>(
    now: Timestamp,
    received: &'a Received,
    view: View<'_>,
    wanted: Wanted,
    outline: &mut Option<Outline<'a>>,
) -> Result<Reading, Unclassified> {
    let start = glance(&received.bytes)?;
    let by_start = Class::of_start(&start);
    let reading = |class, queue_class| Reading {
        class,
        queue_class,
        bucket: None,
        fingerprint: None,
        cancels: None,
        begins_call: false,
    };
    match by_start {
        Some(class @ (Class::Final | Class::Provisional | Class::Bye)) => {
            return Ok(reading(class, QueueClass::of(class)));
        }
        Some(Class::Ack) if view.is_ack_of_reply(&received.bytes) => {
            return Err(Unclassified::Dropped(Some(Class::Ack), DropReason::OwnAck));
        }
        // Nothing answers an ACK, and no law refuses one: whether it is well-formed shows where it is
        // parsed.
        Some(class @ Class::Ack) => return Ok(reading(class, QueueClass::of(class))),
        _ => {}
    }
    // One pass finds what it takes to refuse an INVITE as well, for half as much again.
    let is_invite = matches!(start, ScanStart::Request { method: Method::Invite, .. });
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
    let class = by_start
        .unwrap_or_else(|| Class::of_request(method, view.knows(now, method, &scan, received)));
    match class {
        // The CANCEL of an INVITE that still waits must not be served before it.
        // RFC 3261 §9.1: it has Call-ID, topmost Via and the number in CSeq of its INVITE.
        Class::Cancel if !view.has_served(&scan) => {
            let cancels = Some(view.fingerprint(&scan, &received.bytes));
            Ok(Reading { cancels, ..reading(class, QueueClass::of(class)) })
        }
        // Without a To-tag it repeats what began a call of ours.
        Class::InDialog if wanted.reinvites && is_invite && scan.to_tag.is_some() => {
            let (bucket, fingerprint) =
                (Some(Bucket::Session), Some(view.fingerprint(&scan, &received.bytes)));
            Ok(Reading { bucket, fingerprint, ..reading(class, QueueClass::of(class)) })
        }
        _ if class.is_new_work() => {
            let (bucket, fingerprint) =
                (class.bucket(), Some(view.fingerprint(&scan, &received.bytes)));
            let begins_call = is_invite && scan.to_tag.is_none();
            let read = reading(class, QueueClass::of(class));
            Ok(Reading { bucket, fingerprint, begins_call, ..read })
        }
        _ => Ok(reading(class, QueueClass::of(class))),
    }
}
