//! Work done, and the load of the processor.

use std::time::Duration;

/// The load of a shard, as its driver measures it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Time since the start that was not spent waiting. It includes the time during which other
    /// programs used the processor, because this time delays responses too.
    pub busy: Duration,
    /// CPU time since the start.
    pub cpu: Duration,
    /// CPU time since the start that was spent on the handshakes of connections. It is a part of
    /// `cpu`.
    pub handshakes: Duration,
    /// The fill level of the fullest receive buffer, from 0 (empty) to 1 (full).
    pub socket_fill: f32,
    /// Number of datagrams since the start that the kernel dropped before the core read them,
    /// because the core [requested](crate::Core::poll_shedding) it.
    pub filtered: u64,
    /// Number of datagrams since the start that were lost because a receive buffer for INVITEs and
    /// REGISTERs was full. Drops for other reasons, and drops at buffers for other messages, do not
    /// count: fewer INVITEs and REGISTERs would not prevent them.
    pub overflow: u64,
    /// True if the kernel has refused the [requested](crate::Core::poll_shedding) shedding within
    /// the last second. The driver then makes no new attempt for a second, except to stop dropping
    /// a share.
    pub is_shed_refused: bool,
}

/// The work of one input of a core. The core chooses the numbers of the classes, below
/// [`CLASSES_MAX`](Work::CLASSES_MAX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Class of the message that was examined and decided on, or `None` if there was none.
    pub offered: Option<u8>,
    /// Class of the message that was served, or `None` if there was none.
    pub served: Option<u8>,
    /// Class of the message that was rejected, or `None` if there was none.
    pub refused: Option<u8>,
    /// True if the message was served without keeping state.
    pub stateless: bool,
}

impl Work {
    /// Maximum number of classes of a core.
    pub const CLASSES_MAX: usize = 16;
}
