//! What an answerer is told.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_transaction::Timing;
use tidegate_world::Transport;

use super::mix::{Behaviour, Mix};
use crate::span::Span;

/// Length of a name at the most, in bytes.
pub(crate) const NAME_MAX: usize = 64;

/// How an [`Answerer`](crate::Answerer) answers.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswererConfig {
    /// The transport by which it is called. Default UDP.
    pub transport: Transport,
    /// Our address, in Contact; never a wildcard.
    pub local: SocketAddr,
    /// User part of the Contact and beginning of every To-tag, so that it can be seen who
    /// answered: letters, digits and `-`; others are left out. Default `answerer`.
    pub name: String,
    /// What becomes of calls. Default [`Behaviour::Answer`].
    pub mix: Mix,
    /// Provisional responses, 101..=199, to a call that rings: the first at once, the others at
    /// equal distances until the final one, the last once a minute after that. Default: 180.
    pub provisionals: Vec<u16>,
    /// Whether a 100 comes before anything else: to every call that gets a response, but for those
    /// that there is no room for. A stateful server in front of others sends one; so does the callee
    /// of 002 §4.2, whose calls are seven messages. If not, only a
    /// call that says nothing within 200 ms gets it (RFC 3261 §17.2.1). Default false.
    pub trying: bool,
    /// Delay of the final response. Default 0.
    pub ring: Span,
    /// Fraction of the answered calls that we end, 0..1; the others wait for the caller to.
    /// Default 0.
    pub hangs_up: f64,
    /// How long we hold a call that we end. Default 0.
    pub hold: Span,
    /// Up to which delay of the ACK a call counts as acknowledged in time, from the arrival of its
    /// first INVITE. Default 10 s.
    pub deadline: Duration,
    /// Base values of the timers.
    pub timing: Timing,
    /// Whether final responses and BYEs are sent again while nothing acknowledges them. If not, a
    /// call waits as long as ever, and for one copy. Default true.
    pub retransmissions: bool,
    /// Calls in the table, with those that are over for less than 64·T1. Default 500,000.
    pub calls_max: usize,
    /// A call that rings or lasts longer is forgotten. Default 1 h.
    pub talk_max: Duration,
}

impl AnswererConfig {
    /// The defaults, for an answerer at `local`.
    pub fn new(local: SocketAddr) -> Self {
        Self {
            transport: Transport::Udp,
            local,
            name: "answerer".to_owned(),
            mix: Behaviour::Answer.into(),
            provisionals: vec![180],
            trying: false,
            ring: Span::ZERO,
            hangs_up: 0.0,
            hold: Span::ZERO,
            deadline: Duration::from_secs(10),
            timing: Timing::default(),
            retransmissions: true,
            calls_max: 500_000,
            talk_max: Duration::from_secs(3600),
        }
    }
}
