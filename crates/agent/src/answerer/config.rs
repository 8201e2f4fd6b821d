//! The configuration of an answerer.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_transaction::Timing;
use tidegate_world::Transport;

use super::mix::{Behaviour, Mix};
use crate::span::Span;

/// Maximum length of an answerer's name, in bytes.
pub(crate) const NAME_MAX: usize = 64;

/// The configuration of an [`Answerer`](crate::Answerer).
#[derive(Clone, Debug, PartialEq)]
pub struct AnswererConfig {
    /// Transport for calls. Default UDP.
    pub transport: Transport,
    /// Address of the answerer, for Contact and Via. It must not be a wildcard such as `0.0.0.0`.
    pub local: SocketAddr,
    /// Name of the answerer: the user part of its Contact and the beginning of its To-tags, so that
    /// a trace shows which answerer responded. Only the first 64 letters, digits and `-` are used.
    /// Default `answerer`.
    pub name: String,
    /// True if the answerer keeps no state and answers every request except ACK with 200. This is
    /// the least work that a server can do. The settings for calls then have no effect. Default
    /// false.
    pub echo: bool,
    /// Behaviour towards calls. Default [`Behaviour::Answer`].
    pub mix: Mix,
    /// Statuses of the provisional responses to a ringing call, 101..=199. The first is sent at
    /// once. The others follow at equal intervals of at most one minute until the final response.
    /// If the call rings for longer, the last response is repeated every minute. Default: 180.
    pub provisionals: Vec<u16>,
    /// True if the answerer sends a 100 before all other responses to a call, like a stateful proxy
    /// and like the callee of paper 002 §4.2 (seven messages a call). A call that is ignored, or
    /// that finds the table full, gets no 100. If false, a call gets a 100 only if it gets no other
    /// response within 200 ms (RFC 3261 §17.2.1). Default false.
    pub trying: bool,
    /// Time from an INVITE to its final response. Default 0.
    pub ring: Span,
    /// Fraction of the answered calls that the answerer ends, 0 to 1. In the other calls, the
    /// caller hangs up. Default 0.
    pub hangs_up: f64,
    /// Time from the ACK until the answerer hangs up, in the calls that it ends. Default 0.
    pub hold: Span,
    /// A call counts as acknowledged in time if its ACK arrives within this time after its first
    /// INVITE. Default 10 s.
    pub deadline: Duration,
    /// T1, T2 and T4, on which the timers of RFC 3261 are based.
    pub timing: Timing,
    /// True if final responses and BYEs are retransmitted until they are acknowledged or answered.
    /// If false, a 200 and a BYE are sent only once, and a rejection is sent again only for a copy
    /// of the INVITE. The call waits for an ACK or an answer equally long in both cases. Default
    /// true.
    pub retransmissions: bool,
    /// Maximum number of calls in the table, including those that ended less than 64·T1 ago.
    /// Default 2,000,000.
    pub calls_max: usize,
    /// Maximum ringing time of a call, and maximum time from the ACK of a call to its end. When the
    /// ringing time is over, the answerer sends its final response. When the time since the ACK is
    /// over, the answerer hangs up if it is to end this call. In all other cases, it forgets the
    /// call. Default 1 h.
    pub talk_max: Duration,
}

impl AnswererConfig {
    /// Returns the default configuration of an answerer at `local`.
    pub fn new(local: SocketAddr) -> Self {
        Self {
            transport: Transport::Udp,
            local,
            name: "answerer".to_owned(),
            echo: false,
            mix: Behaviour::Answer.into(),
            provisionals: vec![180],
            trying: false,
            ring: Span::ZERO,
            hangs_up: 0.0,
            hold: Span::ZERO,
            deadline: Duration::from_secs(10),
            timing: Timing::default(),
            retransmissions: true,
            calls_max: 2_000_000,
            talk_max: Duration::from_secs(3600),
        }
    }
}
