//! What work there was, and what it left of the processor.

use std::time::Duration;

/// How busy a shard was, as whoever drives it saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Time since the start that was not spent waiting. It counts what the processor was
    /// taken away for: to those who wait for an answer there is no difference.
    pub busy: Duration,
    /// CPU time since the start.
    pub cpu: Duration,
    /// Fill of the fullest receive buffer, 0 to 1.
    pub socket_fill: f32,
    /// Datagrams since the start that were dropped before they were read, as the core
    /// [wanted](crate::Core::poll_shedding).
    pub filtered: u64,
    /// Datagrams since the start for which receive buffers had no room.
    pub overflow: u64,
}

/// What one input of a core did. The numbers are classes of the core's own choice, below
/// [`CLASSES_MAX`](Work::CLASSES_MAX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Looked at a message of this class and decided what becomes of it.
    pub offered: Option<u8>,
    /// Did what a message of this class asks for.
    pub served: Option<u8>,
    /// Refused a message of this class.
    pub refused: Option<u8>,
    /// Did it without keeping anything of it.
    pub stateless: bool,
}

impl Work {
    /// Classes that a core may tell apart.
    pub const CLASSES_MAX: usize = 16;
}
