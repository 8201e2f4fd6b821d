//! The steps of a random script.
//!
//! A step refers to an item by a number, taken modulo the number of items and counted from the
//! newest: 0 is the newest. So any part of a script is a valid script, and can be shrunk.

use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Invite,
    Options,
    Message,
    Subscribe,
    Info,
    Bye,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Self::Invite => "INVITE",
            Self::Options => "OPTIONS",
            Self::Message => "MESSAGE",
            Self::Subscribe => "SUBSCRIBE",
            Self::Info => "INFO",
            Self::Bye => "BYE",
        }
    }
}

/// The pool of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    App,
    Fork,
    Plain,
}

/// An unusual property of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    None,
    /// The request has passed an address translation (RFC 3581).
    Translated,
    /// The branch has no magic cookie (RFC 2543).
    OldBranch,
    Body,
    WithoutMaxForwards,
    MaxForwards(u8),
    MaxBreadth(u8),
    ProxyRequire,
}

/// The kind of an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// The ACK that the RFC defines for the response.
    Right,
    /// An ACK for another transaction.
    WrongBranch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A caller sends a new request.
    New { caller: u8, method: Method, domain: Domain, oddity: Oddity },
    /// A back end starts a call.
    CallOut { backend: u8, method: Method },
    /// The sender of a request retransmits it.
    Repeat { request: u8 },
    /// The sender of a request cancels it. If `stray` is true, the CANCEL has another branch.
    Cancel { request: u8, stray: bool },
    /// The receiver of a final response to an INVITE acknowledges it.
    Acknowledge { response: u8, ack: Ack },
    /// The receiver of a response with a Record-Route sends a request in that dialog.
    Follow { response: u8, method: Method },
    /// The receiver of an INVITE sends a request in that dialog, in the other direction.
    Return { request: u8, method: Method },
    /// The receiver of a request sends it to the proxy again, unchanged or to another target,
    /// repeatedly.
    Loop { request: u8, spiral: bool, turns: u8 },
    /// The receiver of a request answers it. Several `callee`s may be behind one back end.
    Answer { request: u8, status: u16, callee: u8, stray: bool },
    /// No socket listens at the target of a request.
    Rejected { request: u8 },
    /// Time passes until the next timer.
    Wait,
    /// Time passes.
    Pass { ms: u32 },
}

/// Generates scripts.
pub fn scripts() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..48)
}

fn step() -> impl Strategy<Value = Step> {
    let newest = || prop_oneof![6 => Just(0u8), 3 => 0u8..3, 1 => any::<u8>()];
    prop_oneof![
        6 => (0u8..3, method(), domain(), oddity()).prop_map(|(caller, method, domain, oddity)| {
            Step::New { caller, method, domain, oddity }
        }),
        1 => (any::<u8>(), method()).prop_map(|(b, method)| Step::CallOut { backend: b, method }),
        3 => newest().prop_map(|request| Step::Repeat { request }),
        3 => (newest(), prop::bool::weighted(0.1))
            .prop_map(|(request, stray)| Step::Cancel { request, stray }),
        5 => (newest(), ack()).prop_map(|(response, ack)| Step::Acknowledge { response, ack }),
        1 => (newest(), in_dialog())
            .prop_map(|(response, method)| Step::Follow { response, method }),
        1 => (newest(), in_dialog()).prop_map(|(request, method)| Step::Return { request, method }),
        1 => (newest(), any::<bool>(), 1u8..4).prop_map(
            |(request, spiral, turns)| Step::Loop { request, spiral, turns }
        ),
        16 => (newest(), status(), 0u8..2, prop::bool::weighted(0.03)).prop_map(
            |(request, status, callee, stray)| Step::Answer { request, status, callee, stray }
        ),
        1 => newest().prop_map(|request| Step::Rejected { request }),
        5 => Just(Step::Wait),
        4 => prop_oneof![1u32..1_000, 1_000u32..8_000, 8_000u32..40_000, 40_000u32..200_000]
            .prop_map(|ms| Step::Pass { ms }),
    ]
}

fn method() -> impl Strategy<Value = Method> {
    prop_oneof![
        6 => Just(Method::Invite),
        2 => Just(Method::Options),
        2 => Just(Method::Message),
        1 => Just(Method::Subscribe),
    ]
}

fn in_dialog() -> impl Strategy<Value = Method> {
    prop_oneof![Just(Method::Info), Just(Method::Bye), Just(Method::Invite)]
}

fn domain() -> impl Strategy<Value = Domain> {
    prop_oneof![3 => Just(Domain::App), 3 => Just(Domain::Fork), 1 => Just(Domain::Plain)]
}

fn oddity() -> impl Strategy<Value = Oddity> {
    prop_oneof![
        12 => Just(Oddity::None),
        1 => Just(Oddity::Translated),
        1 => Just(Oddity::OldBranch),
        1 => Just(Oddity::Body),
        1 => Just(Oddity::WithoutMaxForwards),
        1 => (0u8..3).prop_map(Oddity::MaxForwards),
        2 => prop_oneof![1u8..8, Just(200)].prop_map(Oddity::MaxBreadth),
        1 => Just(Oddity::ProxyRequire),
    ]
}

fn ack() -> impl Strategy<Value = Ack> {
    prop_oneof![5 => Just(Ack::Right), 1 => Just(Ack::WrongBranch)]
}

fn status() -> impl Strategy<Value = u16> {
    prop_oneof![
        3 => Just(100u16),
        6 => prop_oneof![Just(180u16), Just(183)],
        6 => Just(200u16),
        1 => prop_oneof![Just(202u16), Just(302)],
        3 => prop_oneof![Just(401u16), Just(407)],
        4 => prop_oneof![Just(404u16), Just(408), Just(415), Just(484), Just(486), Just(487)],
        3 => prop_oneof![2 => Just(503u16), 1 => Just(500), 1 => Just(504)],
        1 => prop_oneof![Just(600u16), Just(603)],
    ]
}
