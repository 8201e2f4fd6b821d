//! What an answerer is told.

use std::net::SocketAddr;
use std::time::Duration;

use crate::timer::Timers;

/// Length of a name at the most, in bytes.
pub(crate) const NAME_MAX: usize = 64;

/// What an [`Answerer`](crate::Answerer) does with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// Answers them with 200.
    #[default]
    Answer,
    /// Refuses them with this final status, 300..=699.
    Refuse(u16),
    /// Sends nothing at all.
    Silent,
}

/// How an [`Answerer`](crate::Answerer) answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswererConfig {
    /// Our address, in Contact; never a wildcard.
    pub local: SocketAddr,
    /// User part of the Contact and beginning of every To-tag, so that it can be seen who
    /// answered: letters, digits and `-`; others are left out. Default `answerer`.
    pub name: String,
    /// What becomes of a call. Default [`Behaviour::Answer`].
    pub behaviour: Behaviour,
    /// Whether a call rings: 180 at once. Default true.
    pub ringing: bool,
    /// Delay of the final response. Default 0.
    pub ring: Duration,
    /// Base values of the timers.
    pub timers: Timers,
    /// Calls in the table, with those that are over for less than 64·T1. Default 500,000.
    pub calls_max: usize,
    /// A call that lasts longer is forgotten. Default 1 h.
    pub talk_max: Duration,
}

impl AnswererConfig {
    /// The defaults, for an answerer at `local`.
    pub fn new(local: SocketAddr) -> Self {
        Self {
            local,
            name: "answerer".to_owned(),
            behaviour: Behaviour::Answer,
            ringing: true,
            ring: Duration::ZERO,
            timers: Timers::default(),
            calls_max: 500_000,
            talk_max: Duration::from_secs(3600),
        }
    }
}
