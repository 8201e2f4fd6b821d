//! Responses to messages that are not admitted.

use tidegate_control::Reason;
use tidegate_sip::Outline;
use tidegate_world::{Received, Stream, Transmit};

use crate::message::class::Class;
use crate::message::reply::{pad, rejection, rejection_of};
use crate::rejection::Hints;
use crate::settings::{Disposal, Overload};
use crate::snapshot::Snapshot;

/// Text of the Warning header (RFC 3261 §20.43) in a rejection that is sent because the back ends,
/// not this proxy, are overloaded.
const FULL: &str = "399 tidegate \"every back end is at its limits\"";
const OVER_SHARE: &str =
    "399 tidegate \"the share of the sender in the room of back ends is used up\"";
const RESTRICTED: &str = "399 tidegate \"every back end has asked for fewer requests\"";

/// Rejections are padded to a multiple of this number of bytes, because rejections of equal length
/// can be sent in one batch. Before padding, most have 300 to 500 bytes.
const STEP: usize = 256;

/// Settings for the rejection of messages that are not admitted.
pub(crate) struct ShedPolicy {
    disposal: Disposal,
    /// Minimum and maximum of the Retry-After value in seconds. `None` for no Retry-After.
    retry_after: Option<(u32, u32)>,
    /// Number of bytes to which each rejection is padded. 0 if none is configured.
    pad: usize,
    /// Random numbers for the Retry-After values of messages without a fingerprint.
    waits: Stream,
    /// True if rejections are padded to a multiple of [`STEP`] when no size is configured.
    pub(crate) pads: bool,
}

/// A message that is not admitted, with the facts that determine its response.
pub(crate) struct RejectedRequest<'a> {
    pub(crate) received: &'a Received,
    pub(crate) class: Class,
    /// Keyed hash that the message shares with its retransmissions, if it was computed.
    pub(crate) fingerprint: Option<u64>,
    /// Reason of the rejection, or `None` if the message belongs to existing work.
    pub(crate) reason: Option<Reason>,
}

impl ShedPolicy {
    /// Creates the policy that `overload` configures. `waits` provides random numbers for the
    /// Retry-After values of messages without a fingerprint.
    pub(crate) fn new(overload: &Overload, waits: Stream) -> Self {
        Self {
            disposal: overload.disposal,
            retry_after: overload.retry_after,
            pad: overload.pad.unwrap_or(0),
            waits,
            pads: false,
        }
    }

    /// Returns whether messages that are not admitted get a response.
    pub(crate) fn answers(&self) -> bool {
        self.disposal != Disposal::Drop
    }

    /// Returns the response to a message that is not admitted, or `None` if it gets none. `outline`
    /// is the outline of the message, if known.
    pub(crate) fn reply(
        &mut self,
        rejected: &RejectedRequest<'_>,
        outline: Option<&Outline<'_>>,
        snapshot: &Snapshot,
    ) -> Option<Box<Transmit>> {
        let RejectedRequest { received, class, fingerprint, reason } = *rejected;
        let Snapshot { keys, name, buffers, .. } = snapshot;
        match (self.disposal, class) {
            // Neither a response nor an ACK gets a response.
            (Disposal::Drop, _) | (_, Class::Final | Class::Provisional | Class::Ack) => None,
            (Disposal::Reject | Disposal::Auto | Disposal::Kernel, _) => {
                let hints = match reason {
                    // RFC 7339 §5.10: "In many cases, however, it will need to reject these requests
                    // with a "503 (Service Unavailable)" response without the Retry-After header."
                    Some(Reason::Feedback) => {
                        Hints { retry_after_s: None, warning: Some(RESTRICTED) }
                    }
                    Some(Reason::PeerShare) => Hints::default(),
                    _ => Hints {
                        retry_after_s: self.retry_after_s(fingerprint),
                        warning: match reason {
                            Some(Reason::PoolFull) => Some(FULL),
                            Some(Reason::PoolShare) => Some(OVER_SHARE),
                            _ => None,
                        },
                    },
                };
                let mut reply = match outline {
                    Some(outline) => {
                        rejection_of(keys, name, buffers, received, outline, 503, &hints)
                    }
                    None => rejection(keys, name, buffers, received, 503, &hints),
                }?;
                let size = match self.pad {
                    0 if self.pads => reply.bytes.len().next_multiple_of(STEP),
                    size => size,
                };
                if size > 0 {
                    pad(&mut reply.bytes, name, size);
                }
                Some(Box::new(reply))
            }
        }
    }

    /// Returns a Retry-After value in seconds, or `None` if none is configured. Values are
    /// uniformly distributed within the configured bounds, so that clients that are rejected at the
    /// same time do not return at the same time. RFC 3261 §8.2.7 requires the same response to the
    /// same request, so the value is derived from the fingerprint of the request if there is one.
    fn retry_after_s(&mut self, fingerprint: Option<u64>) -> Option<u32> {
        let (least, most) = self.retry_after?;
        let number = fingerprint.unwrap_or_else(|| self.waits.next_u64());
        // The fingerprint's upper half may determine the call's rank, so this uses the lower half.
        let span = u64::from(most.saturating_sub(least)) + 1;
        let drawn = ((number & u64::from(u32::MAX)) * span) >> 32;
        u32::try_from(drawn).ok().map(|drawn| least + drawn)
    }
}
