//! The configuration of an answerer.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_transaction::Timing;
use tidegate_world::Transport;

use super::mix::{Behaviour, Mix};
use crate::span::Span;

/// The longest name, in bytes.
pub(crate) const NAME_MAX: usize = 64;

/// The configuration of an [`Answerer`](crate::Answerer).
#[derive(Clone, Debug, PartialEq)]
pub struct AnswererConfig {
    /// Transport for calls. Default UDP.
    pub transport: Transport,
    /// Our address, which is written into Contact and Via. It is never a wildcard.
    pub local: SocketAddr,
    /// User part of the Contact, and the beginning of every To-tag. It shows which answerer
    /// responded. Only its first 64 letters, digits and `-` are used. Default `answerer`.
    pub name: String,
    /// True if the answerer keeps no state, and does nothing but answer every request except ACK
    /// with a 200. No server can do less. The other settings then have no effect. Default false.
    pub echo: bool,
    /// Behaviour towards calls. Default [`Behaviour::Answer`].
    pub mix: Mix,
    /// Provisional responses, 101..=199, that are sent while the call rings. The first is sent at
    /// once, and the others at equal distances until the final response, at most a minute apart. If
    /// ringing continues, the last is repeated once a minute. Default: 180.
    pub provisionals: Vec<u16>,
    /// True if the answerer sends a 100 before all other responses to a call. It sends none to a
    /// call that gets no response or that finds the table full. A stateful server in front of
    /// others sends a 100, and so does the callee of paper 002 §4.2, whose calls have seven
    /// messages. If false, a call gets a 100 only if it gets no other response within 200 ms (RFC
    /// 3261 §17.2.1). Default false.
    pub trying: bool,
    /// Time from an INVITE to its final response. Default 0.
    pub ring: Span,
    /// Fraction of the answered calls that the answerer ends, 0 to 1. In the other calls, the
    /// caller hangs up. Default 0.
    pub hangs_up: f64,
    /// Holding time of a call that we end. Default 0.
    pub hold: Span,
    /// Maximum time from the arrival of the first INVITE to the ACK for a call that counts as
    /// acknowledged in time. Default 10 s.
    pub deadline: Duration,
    /// Base values of the timers.
    pub timing: Timing,
    /// True if final responses and BYEs are retransmitted until they are acknowledged or answered.
    /// If false, each message is sent once, and the call waits as long for its answer. Default
    /// true.
    pub retransmissions: bool,
    /// Maximum number of calls in the table, including those that ended less than 64·T1 ago.
    /// Default 2,000,000.
    pub calls_max: usize,
    /// Maximum time for which a call rings, and maximum time from its ACK to its end. After that,
    /// the answerer forgets the call. Default 1 h.
    pub talk_max: Duration,
}

impl AnswererConfig {
    /// Returns the defaults, for an answerer at `local`.
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
