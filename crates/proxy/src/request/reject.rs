//! Carries out the rejection of a request, and sends its reply.

use tidegate_control::Reason;
use tidegate_sip::{Message, Method};
use tidegate_world::Received;

use super::Served;
use crate::output::Cause;
use crate::rejection::reply_reason::ReplyReason;
use crate::rejection::{DropReason, HEADERS_MAX, Rejection, ReplyHeaders, text_of};
use crate::step::{SourceEvidence, Step};

/// Carries out a rejection: sends a response, drops the request, or leaves the rejection to the
/// caller ([`Served::Unserved`]).
///
/// RFC 3261 §16.3: "If any of these checks fail, the element MUST behave as a user agent server
/// (see Section 8.2) and respond with an error code."
pub(super) fn reject(
    step: &mut Step<'_>,
    received: &Received,
    message: &Message<'_>,
    rejection: Rejection,
) -> Served {
    let is_ack = message.method() == Some(Method::Ack);
    match rejection {
        Rejection::PoolFull => return Served::Unserved(Reason::PoolFull),
        Rejection::Restricted => return Served::Unserved(Reason::Feedback),
        Rejection::Drop(why) => step.output.drop_counted(why),
        // RFC 3261 §17.1.1.3: an ACK gets no response.
        Rejection::Reply(481, ..) if is_ack => {
            step.shown = SourceEvidence::Stray;
            step.output.drop_counted(DropReason::UnknownAck);
        }
        Rejection::Reply(_, reason, _) if is_ack => {
            step.output.drop_counted(match reason {
                ReplyReason::Malformed => DropReason::Malformed,
                _ => DropReason::RejectedAck,
            });
        }
        Rejection::PoolDown(_) if is_ack => step.output.drop_counted(DropReason::RejectedAck),
        Rejection::Reply(status, reason, text) => {
            if status == 481 {
                step.shown = SourceEvidence::Stray;
            }
            // RFC 3261 §20.43: warning 399 carries a text for people.
            let warning = ["399 tidegate \"", text, "\""].concat();
            let headers = ReplyHeaders::from_iter([("Warning", warning.as_bytes())]);
            reply(step, received, message, status, (reason, text), &headers);
            // A table or another limit that is reached now may have room for a copy of the request.
            let is_for_now = status == 503 || reason == ReplyReason::SameCallId;
            return if is_for_now { Served::RejectedForNow } else { Served::Rejected };
        }
        // The rejection of the first copy was counted. As with a transaction, a further copy only
        // causes the same response again.
        Rejection::Unsent(reason) => {
            step.output.reply_again(step.snapshot, received, message, reason.status());
        }
        Rejection::PoolDown(hints) => {
            let reason = (Reason::PoolDown.into(), text_of(hints.warning));
            let mut digits = itoa::Buffer::new();
            reply(step, received, message, 503, reason, &hints.headers(&mut digits));
            return Served::PoolDown;
        }
        Rejection::BadExtension(name) => {
            // RFC 3261 §16.3 item 5: "The response MUST include an Unsupported (Section 20.40)
            // header field listing those option-tags the element did not understand."
            let lines = message.fields_of(name);
            let asked = lines.map(|f| f.value).collect::<Vec<_>>().join(&b", "[..]);
            let reason = (ReplyReason::Extension, ReplyReason::Extension.doc());
            let headers = ReplyHeaders::from_iter([("Unsupported", &*asked)]);
            reply(step, received, message, 420, reason, &headers);
            return Served::Rejected;
        }
    }
    Served::Here
}

/// Answers an OPTIONS whose target is this proxy itself.
pub(super) fn answer_options(step: &mut Step<'_>, received: &Received, message: &Message<'_>) {
    let reason = (ReplyReason::None, ReplyReason::None.doc());
    reply(step, received, message, 200, reason, &CAPABILITIES.into());
}

pub(super) fn reply(
    step: &mut Step<'_>,
    received: &Received,
    message: &Message<'_>,
    status: u16,
    (reason, text): (ReplyReason, &'static str),
    headers: &ReplyHeaders<'_>,
) {
    let cause = Cause { reason, text, pool: step.pool };
    step.output.reply(step.snapshot, received, message, status, &cause, headers);
}

/// RFC 3261 §11.2: header fields of the response to an OPTIONS to the proxy itself. It allows only
/// OPTIONS, because a proxy is not a party of a session and forwards all other methods.
const CAPABILITIES: [(&str, &[u8]); HEADERS_MAX] = [
    ("Allow", b"OPTIONS"),
    ("Accept", b"application/sdp"),
    ("Accept-Encoding", b"identity"),
    ("Accept-Language", b"en"),
    ("Supported", b""),
];
