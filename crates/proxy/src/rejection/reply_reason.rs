//! The reasons of the responses that Tidegate itself generates.

use tidegate_control::Reason;

/// Defines [`ReplyReason`] by a table. A row contains the documentation for operators, the variant,
/// its name in metrics, and the statuses for which it is the usual reason.
macro_rules! reply_reasons {
    ($($(#[doc = $doc:literal])+ $Variant:ident = $name:literal $(($status:pat))?,)+) => {
        /// The reason of a response that Tidegate itself generates. It is a value of the label
        /// `reason` in metrics, so there are few reasons.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ReplyReason {
            $($(#[doc = $doc])+ $Variant,)+
            /// New work was rejected, for this reason.
            Work(Reason),
        }

        impl ReplyReason {
            /// All reasons other than [`Work`](Self::Work).
            const OWN: &'static [Self] = &[$(Self::$Variant),+];

            /// Returns the index of the reason in [`ALL`](Self::ALL).
            pub(crate) const fn index(self) -> usize {
                enum Own { $($Variant),+ }
                match self {
                    $(Self::$Variant => Own::$Variant as usize,)+
                    Self::Work(reason) => Self::OWN.len() + reason as usize,
                }
            }

            /// Returns the usual reason of a response with this status.
            pub const fn usual(status: u16) -> Self {
                match status {
                    $($($status => Self::$Variant,)?)+
                    _ => Self::Other,
                }
            }

            /// Returns the name of the reason in metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                    Self::Work(reason) => reason.name(),
                }
            }

            /// Returns a sentence that explains the reason to people.
            pub const fn doc(self) -> &'static str {
                match self {
                    $(Self::$Variant => const { concat!($($doc),+).trim_ascii_start() },)+
                    Self::Work(reason) => reason.doc(),
                }
            }
        }
    };
}

reply_reasons! {
    /// The response does not reject anything.
    None = "none" (100..=299 | 487),
    /// The request does not follow the grammar of SIP.
    Malformed = "malformed" (400 | 505),
    /// The source may not send to the address in the request.
    Relaying = "relaying" (403),
    /// No route, no listener or no address leads to the target, or the target of a SIPS URI cannot
    /// be reached over TLS.
    NoRoute = "no_route" (404),
    /// No target sent a final response in time.
    Timeout = "timeout" (408),
    /// Tidegate does not support the scheme of the Request-URI.
    Scheme = "scheme" (416),
    /// The request requires a resource priority that Tidegate does not know.
    Priority = "priority" (417),
    /// The request requires an extension that Tidegate does not support.
    Extension = "extension" (420),
    /// The fork needs more branches than Max-Breadth allows.
    Breadth = "breadth" (440),
    /// The request claims to belong to a call that Tidegate does not know.
    NoCall = "no_call" (481),
    /// The request has come back unchanged: a loop.
    Loop = "loop" (482),
    /// Max-Forwards is used up.
    Hops = "hops" (483),
    /// Every target that was tried answered 503 or could not be reached, or an internal error of
    /// Tidegate prevented it from rewriting the request.
    Failed = "failed" (500),
    /// Every back end that was tried reads its connection too slowly.
    BackedUp = "backed_up",
    /// The forwarded request would be longer than a datagram, or the request has too many header
    /// fields.
    TooLong = "too_long" (513),
    /// The call table is full, or the source has used its share of it.
    CallTable = "call_table",
    /// Eight calls in progress have the Call-ID of the new call.
    SameCallId = "same_call_id",
    /// The transaction table is full, or the source has used its share of it.
    TransactionTable = "transaction_table",
    /// The host name of the back end has no address yet.
    NoAddress = "no_address",
    /// The DNS did not answer in time for the name in the request.
    Unresolved = "unresolved" (504),
    /// Too many requests wait for the DNS or a look-up.
    Parked = "parked",
    /// The user in the request is not configured.
    NoUser = "no_user",
    /// The user has no contact that can be reached.
    NoContact = "no_contact" (480),
    /// The look-up of the user failed or took too long.
    Lookup = "lookup",
    /// The connection or the address of the phone is no longer in use.
    FlowGone = "flow_gone" (430),
    /// Tidegate did not make the flow token in the Route.
    FlowToken = "flow_token",
    /// The request belongs to a call, and overload control is configured to shed such requests too
    /// (`classes`).
    Shed = "shed",
    /// Another reason. The text of the rejection describes it.
    Other = "other",
}

impl ReplyReason {
    /// Returns whether responses with this status are likely to have this reason. The metrics show
    /// the counts of such pairs from the start.
    pub fn is_likely(self, status: u16) -> bool {
        let is_further = match status {
            403 => matches!(self, Self::FlowToken),
            404 => matches!(self, Self::NoUser),
            480 => matches!(self, Self::NoRoute | Self::Lookup),
            500 => matches!(self, Self::SameCallId),
            503 => matches!(
                self,
                Self::Work(_)
                    | Self::Failed
                    | Self::BackedUp
                    | Self::CallTable
                    | Self::TransactionTable
                    | Self::NoAddress
                    | Self::Parked
                    | Self::Shed
            ),
            _ => false,
        };
        is_further || self == Self::usual(status)
    }

    /// All reasons.
    pub const ALL: [Self; Self::OWN.len() + Reason::ALL.len()] = {
        let mut all = [Self::None; Self::OWN.len() + Reason::ALL.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = match i.checked_sub(Self::OWN.len()) {
                None => Self::OWN[i],
                Some(i) => Self::Work(Reason::ALL[i]),
            };
            i += 1;
        }
        all
    };
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
    fn each_status_of_a_rejection_has_a_reason() {
        let unknown = crate::REPLIES.into_iter().filter(|&status| status != 503);
        let unknown: Vec<_> =
            unknown.filter(|&s| ReplyReason::usual(s) == ReplyReason::Other).collect();
        assert_eq!(unknown, [0; 0], "503 alone has several");
    }
}
