//! How a gate works.

use crate::{Estimation, Scheme, SourceSettings, ThrottleKind, Values};

/// When new work is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// Before it is queued.
    Arrival,
    /// When the processor takes it from the queue.
    Service,
}

/// Which clock tells how occupied the processor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupancy {
    /// Time not spent waiting. It counts what others took of the processor.
    Busy,
    /// CPU time, as in the papers. It reads low when the processor is shared.
    Cpu,
}

/// How a gate works.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The law and its parameters.
    pub law: Values,
    /// A law that is asked beside it, and decides nothing.
    pub shadow: Option<Values>,
    /// When new work is judged.
    pub decide: Decide,
    /// What is shed.
    pub scheme: Scheme,
    /// How what is admitted of it is picked.
    pub throttle: ThrottleKind,
    /// Pieces that a throttle with a bucket lets pass at once.
    pub burst: u32,
    /// The signal of the processor.
    pub occupancy: Occupancy,
    /// Whether a repetition gets the decision that was made before. As the papers' servers
    /// are: not.
    pub sticky: bool,
    /// Decisions remembered in each 32 s.
    pub memory_max: usize,
    /// How whole sessions are estimated.
    pub sessions: Estimation,
    /// How those are told apart who ask for new work.
    pub sources: SourceSettings,
}

impl Settings {
    /// Judged at arrival by `law`, deterministically, and remembered.
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
