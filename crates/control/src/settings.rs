//! The settings of a gate.

use crate::{Estimation, Scheme, SourceSettings, ThrottleKind, Values};

/// The moment at which new work is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// New work is judged before it is queued.
    Arrival,
    /// New work is judged when the processor takes it from the queue.
    Service,
}

/// The clock that measures how occupied the processor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupancy {
    /// The time in which the server is not idle. It includes the time in which other processes use
    /// the processor.
    Busy,
    /// The CPU time that the server uses, as in paper 000. It is too low when other processes use
    /// the processor.
    Cpu,
}

/// The settings of a gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The law and its parameters.
    pub law: Values,
    /// A second law, which the gate runs only for comparison, or `None`. It decides nothing.
    pub shadow: Option<Values>,
    /// The moment at which new work is judged.
    pub decide: Decide,
    /// The rule that selects the work to shed when not all work can be served.
    pub scheme: Scheme,
    /// The way in which the throttle selects the work that passes.
    pub throttle: ThrottleKind,
    /// Maximum number of pieces that the leaky-bucket or token-bucket throttle lets pass at once.
    pub burst: u32,
    /// The clock that measures the occupancy of the processor.
    pub occupancy: Occupancy,
    /// True if a retransmission gets the same decision as its original. If false, each copy gets
    /// its own decision, as in paper 000.
    pub sticky: bool,
    /// Maximum number of decisions that are remembered from each period of 32 s.
    pub memory_max: usize,
    /// The parameters of the estimates of the rate, length and cost of sessions.
    pub sessions: Estimation,
    /// Fair shares and limits for the sources of new work.
    pub sources: SourceSettings,
}

impl Settings {
    /// Creates settings with which `law` judges work at its arrival, the throttle is deterministic,
    /// and decisions are remembered.
    pub fn new(law: Values) -> Self {
        Self {
            law,
            shadow: None,
            decide: Decide::Arrival,
            scheme: Scheme::Simplified { scaled: false },
            throttle: ThrottleKind::Deterministic,
            burst: 5,
            occupancy: Occupancy::Busy,
            sticky: true,
            memory_max: 1 << 20,
            sessions: Estimation::default(),
            sources: SourceSettings::default(),
        }
    }
}
