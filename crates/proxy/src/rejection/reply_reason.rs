//! The reasons of the responses that Tidegate itself generates.

use tidegate_control::Reason;

/// The text of the 503 when the call table has no room.
pub(crate) const CALL_TABLE_FULL: &str = "call table is full";
/// The text of the 503 when the transaction table has no room.
pub(crate) const TRANSACTION_TABLE_FULL: &str = "transaction table is full";
/// The text of the 503 when a source has used its share of the call table.
pub(crate) const CALL_SHARE_USED: &str = "this source has used its share of the call table";
/// The text of the 503 when a source has used its share of the transaction table.
pub(crate) const TRANSACTION_SHARE_USED: &str =
    "this source has used its share of the transaction table";
/// The text of the 503 when too many requests wait for the DNS or for look-ups of users.
pub(crate) const PARKED_FULL: &str = "too many requests wait for an answer";
/// The text of the 404 when no store knows the user.
pub(crate) const NO_USER: &str = "no such user";
/// The text of the 480 when the store with the users did not answer.
pub(crate) const LOOKUP_FAILED: &str = "the look-up of the user failed";
/// The text of the 480 to a SIPS URI whose target can only be reached without TLS.
pub(crate) const INSECURE: &str = "the target cannot be reached over TLS";
/// The text of the 403 to a flow token that is not ours.
pub(crate) const FLOW_FORGED: &str = "the flow token is not ours";
/// The text of the 503 when the name of a back end has no address yet.
pub(crate) const NO_ADDRESS: &str = "a back end has no address yet";

/// The reason of a response that Tidegate itself generates. It is a value of the label `reason` in
/// metrics, so there are few reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyReason {
    /// The response is not a rejection: 100, the 200 to a CANCEL or an OPTIONS, 487.
    None,
    /// The request violates the grammar.
    Malformed,
    /// The source may not send to the address in the request.
    Relaying,
    /// No route, listener or address leads to the address or the name in the request, or a SIPS
    /// target cannot be reached over TLS.
    NoRoute,
    /// No target sent a final response in time.
    Timeout,
    /// The scheme of the Request-URI is not served.
    Scheme,
    /// The request requires a resource priority, and none of its values is known.
    Priority,
    /// Proxy-Require, or Require in an OPTIONS to Tidegate itself, names an extension that Tidegate
    /// does not have.
    Extension,
    /// Max-Breadth (RFC 5393) allows fewer branches than the request needs.
    Breadth,
    /// The call is not known.
    NoCall,
    /// The request has come back to this proxy unchanged.
    Loop,
    /// Max-Forwards is used up.
    Hops,
    /// Every target that was tried sent a 503 or was unreachable, or the request could not be
    /// rewritten because of an error in Tidegate.
    Failed,
    /// Every back end that was tried reads its connection too slowly.
    BackedUp,
    /// The forwarded request would be longer than a datagram, or the request has too many header
    /// fields.
    TooLong,
    /// The call table has no room.
    CallTable,
    /// The transaction table has no room.
    TransactionTable,
    /// The name of a back end has no address yet.
    NoAddress,
    /// The name in the request could not be resolved.
    Unresolved,
    /// Too many requests wait for the DNS or for look-ups of users.
    Parked,
    /// No store knows the user.
    NoUser,
    /// The user has no contact that can be reached.
    NoContact,
    /// The look-up of the user failed, or took too long.
    Lookup,
    /// The flow to the phone has ended.
    FlowGone,
    /// The flow token in the Route is not one of ours.
    FlowToken,
    /// The request is in-dialog, and overload control sheds such requests too.
    Shed,
    /// Any other reason.
    Other,
    /// New work was rejected, for this reason.
    Work(Reason),
}

/// The number of variants other than [`ReplyReason::Work`].
const OWN: usize = 27;

impl ReplyReason {
    /// All reasons.
    pub const ALL: [Self; OWN + Reason::ALL.len()] = {
        let mut all = [Self::None; OWN + Reason::ALL.len()];
        let own = [
            Self::None,
            Self::Malformed,
            Self::Relaying,
            Self::NoRoute,
            Self::Timeout,
            Self::Scheme,
            Self::Priority,
            Self::Extension,
            Self::Breadth,
            Self::NoCall,
            Self::Loop,
            Self::Hops,
            Self::Failed,
            Self::BackedUp,
            Self::TooLong,
            Self::CallTable,
            Self::TransactionTable,
            Self::NoAddress,
            Self::Unresolved,
            Self::Parked,
            Self::NoUser,
            Self::NoContact,
            Self::Lookup,
            Self::FlowGone,
            Self::FlowToken,
            Self::Shed,
            Self::Other,
        ];
        let mut i = 0;
        while i < all.len() {
            all[i] = if i < OWN { own[i] } else { Self::Work(Reason::ALL[i - OWN]) };
            i += 1;
        }
        all
    };

    /// Returns the index of the reason in [`ALL`](Self::ALL).
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::None => 0,
            Self::Malformed => 1,
            Self::Relaying => 2,
            Self::NoRoute => 3,
            Self::Timeout => 4,
            Self::Scheme => 5,
            Self::Priority => 6,
            Self::Extension => 7,
            Self::Breadth => 8,
            Self::NoCall => 9,
            Self::Loop => 10,
            Self::Hops => 11,
            Self::Failed => 12,
            Self::BackedUp => 13,
            Self::TooLong => 14,
            Self::CallTable => 15,
            Self::TransactionTable => 16,
            Self::NoAddress => 17,
            Self::Unresolved => 18,
            Self::Parked => 19,
            Self::NoUser => 20,
            Self::NoContact => 21,
            Self::Lookup => 22,
            Self::FlowGone => 23,
            Self::FlowToken => 24,
            Self::Shed => 25,
            Self::Other => 26,
            Self::Work(reason) => OWN + reason as usize,
        }
    }

    /// Returns the reason of a response with this status and this text.
    pub(crate) fn of(status: u16, text: &str) -> Self {
        match (status, text) {
            (503, CALL_TABLE_FULL | CALL_SHARE_USED) => Self::CallTable,
            (503, TRANSACTION_TABLE_FULL | TRANSACTION_SHARE_USED) => Self::TransactionTable,
            (503, PARKED_FULL) => Self::Parked,
            (503, NO_ADDRESS) => Self::NoAddress,
            (404, NO_USER) => Self::NoUser,
            (480, LOOKUP_FAILED) => Self::Lookup,
            (480, INSECURE) => Self::NoRoute,
            (403, FLOW_FORGED) => Self::FlowToken,
            _ => Self::usual(status),
        }
    }

    /// Returns the usual reason of a response with this status, if the text of the response shows
    /// no other reason.
    pub const fn usual(status: u16) -> Self {
        match status {
            100..=299 | 487 => Self::None,
            400 | 505 => Self::Malformed,
            403 => Self::Relaying,
            404 => Self::NoRoute,
            408 => Self::Timeout,
            416 => Self::Scheme,
            417 => Self::Priority,
            420 => Self::Extension,
            440 => Self::Breadth,
            480 => Self::NoContact,
            481 => Self::NoCall,
            482 => Self::Loop,
            483 => Self::Hops,
            430 => Self::FlowGone,
            500 => Self::Failed,
            504 => Self::Unresolved,
            513 => Self::TooLong,
            _ => Self::Other,
        }
    }

    /// Returns the name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Malformed => "malformed",
            Self::Relaying => "relaying",
            Self::NoRoute => "no_route",
            Self::Timeout => "timeout",
            Self::Scheme => "scheme",
            Self::Priority => "priority",
            Self::Extension => "extension",
            Self::Breadth => "breadth",
            Self::NoCall => "no_call",
            Self::Loop => "loop",
            Self::Hops => "hops",
            Self::Failed => "failed",
            Self::BackedUp => "backed_up",
            Self::TooLong => "too_long",
            Self::CallTable => "call_table",
            Self::TransactionTable => "transaction_table",
            Self::NoAddress => "no_address",
            Self::Unresolved => "unresolved",
            Self::Parked => "parked",
            Self::NoUser => "no_user",
            Self::NoContact => "no_contact",
            Self::Lookup => "lookup",
            Self::FlowGone => "flow_gone",
            Self::FlowToken => "flow_token",
            Self::Shed => "shed",
            Self::Other => "other",
            Self::Work(reason) => reason.name(),
        }
    }

    /// Returns a sentence that explains the reason to people.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::None => "The response does not reject anything.",
            Self::Malformed => "The request does not follow the grammar of SIP.",
            Self::Relaying => "The source may not send to the address in the request.",
            Self::NoRoute => {
                "No route, no listener or no address leads to the target, or the target of a SIPS \
                 URI cannot be reached over TLS."
            }
            Self::Timeout => "No target sent a final response in time.",
            Self::Scheme => "Tidegate does not support the scheme of the Request-URI.",
            Self::Priority => {
                "The request requires a resource priority that Tidegate does not know."
            }
            Self::Extension => "The request requires an extension that Tidegate does not support.",
            Self::Breadth => "The fork needs more branches than Max-Breadth allows.",
            Self::NoCall => "The request claims to belong to a call that Tidegate does not know.",
            Self::Loop => "The request has come back unchanged: a loop.",
            Self::Hops => "Max-Forwards is used up.",
            Self::Failed => {
                "Every target that was tried answered 503 or could not be reached, or Tidegate \
                 could not rewrite the request because of an error of its own."
            }
            Self::BackedUp => "Every back end that was tried reads its connection too slowly.",
            Self::TooLong => {
                "The forwarded request would be longer than a datagram, or the request has too \
                 many header fields."
            }
            Self::CallTable => "The call table is full, or the source has used its share of it.",
            Self::TransactionTable => {
                "The transaction table is full, or the source has used its share of it."
            }
            Self::NoAddress => "The host name of the back end has no address yet.",
            Self::Unresolved => "The DNS did not answer in time for the name in the request.",
            Self::Parked => "Too many requests wait for the DNS or a look-up.",
            Self::NoUser => "The user in the request is not configured.",
            Self::NoContact => "The user has no contact that can be reached.",
            Self::Lookup => "The look-up of the user failed or took too long.",
            Self::FlowGone => "The connection or the address of the phone is no longer in use.",
            Self::FlowToken => "Tidegate did not make the flow token in the Route.",
            Self::Shed => {
                "The request belongs to a call, and overload control is configured to shed such \
                 requests too (`classes`)."
            }
            Self::Other => "Another reason; the text of the rejection tells which.",
            Self::Work(reason) => reason.doc(),
        }
    }
}

impl From<Reason> for ReplyReason {
    fn from(reason: Reason) -> Self {
        Self::Work(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_place_and_a_name_of_its_own() {
        for (index, reason) in ReplyReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index, "{reason:?}");
            assert!(reason.doc().ends_with('.'));
            let same = ReplyReason::ALL.iter().filter(|other| other.name() == reason.name());
            assert_eq!(same.count(), 1, "{reason:?}");
        }
    }

    #[test]
    fn the_text_of_a_rejection_tells_its_reason() {
        assert_eq!(ReplyReason::of(404, NO_USER), ReplyReason::NoUser);
        assert_eq!(ReplyReason::of(404, "no route"), ReplyReason::NoRoute);
        assert_eq!(ReplyReason::of(480, LOOKUP_FAILED), ReplyReason::Lookup);
        assert_eq!(ReplyReason::of(480, INSECURE), ReplyReason::NoRoute);
        assert_eq!(ReplyReason::of(480, "no contact"), ReplyReason::NoContact);
        assert_eq!(ReplyReason::of(403, FLOW_FORGED), ReplyReason::FlowToken);
        for (text, reason) in [
            (CALL_TABLE_FULL, ReplyReason::CallTable),
            (CALL_SHARE_USED, ReplyReason::CallTable),
            (TRANSACTION_TABLE_FULL, ReplyReason::TransactionTable),
            (TRANSACTION_SHARE_USED, ReplyReason::TransactionTable),
            (NO_ADDRESS, ReplyReason::NoAddress),
            ("another", ReplyReason::Other),
        ] {
            assert_eq!(ReplyReason::of(503, text), reason, "{text}");
        }
    }

    #[test]
    fn each_status_of_a_rejection_has_a_reason() {
        let unknown = crate::REPLIES.into_iter().filter(|&status| status != 503);
        let unknown: Vec<_> =
            unknown.filter(|&s| ReplyReason::usual(s) == ReplyReason::Other).collect();
        assert_eq!(unknown, [0; 0], "503 alone has several");
    }
}
