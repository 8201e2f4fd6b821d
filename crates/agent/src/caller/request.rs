//! The requests of a call, each as a template with placeholders.

use std::hash::Hasher;

use arrayvec::ArrayVec;
use siphasher::sip::SipHasher13;
use tidegate_transaction::COOKIE;
use tidegate_world::Buffer;

use crate::SESSION;
use crate::caller::config::CallerConfig;
use crate::dialog::{Dialog, uri_parameter};
use crate::identity::{MARK, Mark, Namer, hex};
use crate::template::{Template, Values};

const INVITE: &str = "INVITE {uri} SIP/2.0
Via: SIP/2.0/{transport} {local};rport;branch={branch}
Max-Forwards: 70
From: <sip:caller-{caller}@{local}>;tag={tag}
To: <{uri}>
Call-ID: {call_id}
CSeq: 1 INVITE
Contact: <sip:caller-{caller}@{local}{parameter}>
Content-Type: application/sdp
Content-Length: {length}

{session}";

// RFC 3261 §9.1: "The Request-URI, Call-ID, To, the numeric part of CSeq, and From header
// fields in the CANCEL request MUST be identical to those in the request being cancelled,
// including tags." and the Via is the top one of that request.
const CANCEL: &str = "CANCEL {uri} SIP/2.0
Via: SIP/2.0/{transport} {local};rport;branch={branch}
Max-Forwards: 70
From: <sip:caller-{caller}@{local}>;tag={tag}
To: <{uri}>
Call-ID: {call_id}
CSeq: 1 CANCEL
Content-Length: 0

";

// RFC 3261 §17.1.1.3: the ACK to a rejection copies the Call-ID, From, Request-URI and the top Via
// of the INVITE, and the To of the response. §13.2.2.4: the ACK to a 2xx is like any request within
// the dialog, except for its CSeq.
const ACK: &str = "ACK {uri} SIP/2.0
Via: SIP/2.0/{transport} {local};rport;branch={branch}
{routes}Max-Forwards: 70
From: <sip:caller-{caller}@{local}>;tag={tag}
To: {to}
Call-ID: {call_id}
CSeq: 1 ACK
Content-Length: 0

";

const BYE: &str = "BYE {uri} SIP/2.0
Via: SIP/2.0/{transport} {local};rport;branch={branch}
{routes}Max-Forwards: 70
From: <sip:caller-{caller}@{local}>;tag={tag}
To: {to}
Call-ID: {call_id}
CSeq: 2 BYE
Content-Length: 0

";

/// The Request-URI of an emergency call (RFC 5031 §4.2).
const SOS: &[u8] = b"urn:service:sos";

/// Number of different lengths of user names, if [`CallerConfig::uneven`] is set: 0 to 15 zeros
/// precede the number of the user.
const UNEVEN: u32 = 16;

/// Maximum length of the number of a user with the zeros before it, in bytes.
const CALLER_MAX: usize = UNEVEN as usize + 10;

/// Maximum length of a branch parameter, in bytes.
const BRANCH_MAX: usize = COOKIE.len() + 1 + MARK + 16;

/// The kind of request to which a branch parameter belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Branch {
    /// INVITE, its CANCEL, and the ACK to a rejection.
    Invite,
    /// ACK to a 2xx.
    Ack,
    /// BYE of a call.
    Bye,
    /// BYE to a dialog that belongs to no call, such as another branch of a forked INVITE.
    StrayBye,
    /// REGISTER of a device.
    Register,
}

impl Branch {
    const ALL: [Self; 5] = [Self::Invite, Self::Ack, Self::Bye, Self::StrayBye, Self::Register];

    const fn letter(self) -> u8 {
        match self {
            Self::Invite => b'i',
            Self::Ack => b'a',
            Self::Bye => b'b',
            Self::StrayBye => b's',
            Self::Register => b'r',
        }
    }

    /// Returns the branch parameter of a request. `remote` is the To of the request. Only the
    /// branches of [`Ack`](Self::Ack) and [`StrayBye`](Self::StrayBye) depend on it.
    pub fn text(self, mark: &Mark, remote: &[u8]) -> ArrayVec<u8, BRANCH_MAX> {
        let mut text = ArrayVec::new();
        text.extend(COOKIE.iter().copied());
        text.push(self.letter());
        text.extend(mark.text);
        // RFC 3261 §8.1.1.7: a branch is "unique across space and time for all requests sent by the
        // UA". An INVITE that forks leads to several dialogs, each with an ACK, and a BYE to all
        // but one. If the second had the branch of the first, a proxy would treat it as a copy.
        if matches!(self, Self::Ack | Self::StrayBye) {
            let mut hasher = SipHasher13::new();
            hasher.write(remote);
            let mut digits = [0; 16];
            hex(hasher.finish(), &mut digits);
            text.extend(digits);
        }
        text
    }

    /// Splits a branch parameter of a caller into its kind and the text of its [`Mark`]. Returns
    /// `None` if the branch does not have the form of such a parameter.
    pub fn split(branch: &[u8]) -> Option<(Self, &[u8])> {
        let (&letter, mark) = branch.strip_prefix(COOKIE)?.split_first()?;
        let kind = Self::ALL.into_iter().find(|kind| kind.letter() == letter)?;
        match kind {
            Self::Ack | Self::StrayBye => Some((kind, mark.get(..MARK)?)),
            Self::Invite | Self::Bye | Self::Register => Some((kind, mark)),
        }
    }
}

/// A writer of the requests of one caller's calls.
pub(crate) struct Requests {
    /// The Request-URIs, one for each called user.
    uris: Box<[Box<[u8]>]>,
    callers: u32,
    first_caller: u32,
    uneven: bool,
    invite: Template,
    cancel: Template,
    ack: Template,
    bye: Template,
}

impl Requests {
    /// Creates the writer of the requests of the callers in `config`. `namer` gives the host in Via
    /// and Contact.
    pub fn new(config: &CallerConfig, namer: &Namer) -> Self {
        let local = namer.host(config.transport, config.local);
        let session = SESSION.replace('\n', "\r\n");
        let length = session.len().to_string();
        let fixed = [
            ("transport", config.transport.name()),
            ("parameter", uri_parameter(config.transport)),
            ("local", local.as_str()),
            ("session", SESSION),
            ("length", length.as_str()),
        ];
        Self {
            uris: uris(config),
            callers: config.callers,
            first_caller: config.first_caller,
            uneven: config.uneven,
            invite: Template::new(INVITE, &fixed),
            cancel: Template::new(CANCEL, &fixed),
            ack: Template::new(ACK, &fixed),
            bye: Template::new(BYE, &fixed),
        }
    }

    /// Returns the number of the user that makes a call, counted from the first user.
    pub fn user_of(&self, mark: &Mark) -> u32 {
        mark.id.serial % self.callers
    }

    pub fn invite(&self, mark: &Mark, is_emergency: bool, out: &mut Buffer) {
        self.outside(&self.invite, mark, is_emergency, b"", out);
    }

    pub fn cancel(&self, mark: &Mark, is_emergency: bool, out: &mut Buffer) {
        self.outside(&self.cancel, mark, is_emergency, b"", out);
    }

    /// Writes the ACK to a final response other than 2xx. `to` is the To of that response.
    pub(crate) fn ack_rejection(&self, mark: &Mark, to: &[u8], out: &mut Buffer) {
        // `to` is the To of the INVITE with a tag. So its URI shows whether the call is an
        // emergency call.
        let is_emergency = to.strip_prefix(b"<").is_some_and(|uri| uri.starts_with(SOS));
        self.outside(&self.ack, mark, is_emergency, to, out);
    }

    /// Writes the ACK to a 2xx.
    pub fn ack(&self, mark: &Mark, dialog: &Dialog, out: &mut Buffer) {
        self.within(&self.ack, Branch::Ack, mark, dialog, out);
    }

    /// Writes a BYE with a branch parameter of the kind [`Branch::Bye`] or [`Branch::StrayBye`].
    pub fn bye(&self, branch: Branch, mark: &Mark, dialog: &Dialog, out: &mut Buffer) {
        self.within(&self.bye, branch, mark, dialog, out);
    }

    fn outside(
        &self,
        template: &Template,
        mark: &Mark,
        is_emergency: bool,
        to: &[u8],
        out: &mut Buffer,
    ) {
        let callee: &[u8] = &self.uris[mark.id.serial as usize % self.uris.len()];
        let values =
            Values { uri: if is_emergency { SOS } else { callee }, to, ..Values::default() };
        self.fill(template, Branch::Invite, mark, values, out);
    }

    fn within(
        &self,
        template: &Template,
        branch: Branch,
        mark: &Mark,
        dialog: &Dialog,
        out: &mut Buffer,
    ) {
        let values = Values {
            uri: dialog.uri(),
            routes: dialog.routes(),
            to: dialog.remote(),
            ..Values::default()
        };
        self.fill(template, branch, mark, values, out);
    }

    fn fill(
        &self,
        template: &Template,
        branch: Branch,
        mark: &Mark,
        values: Values<'_>,
        out: &mut Buffer,
    ) {
        let number = self.first_caller.saturating_add(self.user_of(mark));
        let mut caller = ArrayVec::<u8, CALLER_MAX>::new();
        // 7 and 16 have no common divisor, so successive callers go through all lengths.
        let zeros = if self.uneven { number % UNEVEN * 7 % UNEVEN } else { 0 };
        caller.extend((0..zeros).map(|_| b'0'));
        caller.extend(itoa::Buffer::new().format(number).bytes());
        let values = Values {
            branch: &branch.text(mark, values.to),
            caller: &caller,
            tag: &mark.tag,
            call_id: &mark.text,
            ..values
        };
        let fits = template.fill(&values, out);
        assert!(fits, "the request does not fit in a datagram");
    }
}

/// Returns the Request-URIs, one for each called user.
fn uris(config: &CallerConfig) -> Box<[Box<[u8]>]> {
    let uri = &config.uri;
    let (user, rest) = uri.split_once('@').unwrap_or((uri, ""));
    let numbered = |callee| match config.callees {
        1 => uri.clone(),
        _ if rest.is_empty() => format!("{user}-{callee}"),
        _ => format!("{user}-{callee}@{rest}"),
    };
    (0..config.callees).map(|callee| numbered(callee).into_bytes().into()).collect()
}
