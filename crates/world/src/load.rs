//! The load of a shard, and the work that an input caused.

use std::time::Duration;

/// The load of a shard, as its driver measures it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Time since the driver's start that the shard did not spend waiting. It includes the time
    /// during which other programs used the processor, because this time delays responses too.
    pub busy: Duration,
    /// CPU time that the shard has used since the driver's start.
    pub cpu: Duration,
    /// CPU time since the driver's start that was spent on the handshakes of connections. It is a
    /// part of `cpu`.
    pub handshakes: Duration,
    /// The fill level of the fullest receive buffer, from 0 (empty) to 1 (full).
    pub socket_fill: f32,
    /// Number of datagrams since the driver's start that the kernel dropped before the core read
    /// them, because the core [requested](crate::Core::poll_shedding) it.
    pub filtered: u64,
    /// Number of datagrams since the driver's start that were lost because a receive buffer for
    /// INVITEs and REGISTERs was full. Losses for other reasons and at other buffers are not
    /// counted, because the core cannot prevent them by shedding INVITEs and REGISTERs.
    pub overflow: u64,
    /// True if the kernel rejected the [requested](crate::Core::poll_shedding) shedding less than a
    /// second ago. The driver tries again when this second is over. It tries earlier if the core
    /// stops or starts to ask that shares or marks drop datagrams.
    pub is_shed_refused: bool,
    /// True if the core has just served a message. Then the time of this report is the end of that
    /// service. Without such a report, the core would not know how long the service lasted if
    /// timers fire next. Timers fire next mainly if the process was stopped for a while during the
    /// service.
    pub ends_service: bool,
}

/// The work that a core did for one input, by the class of the message. The core defines the
/// classes, which have numbers below [`CLASSES_MAX`](Work::CLASSES_MAX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Class of the message that the core examined to decide on its admission, or `None` if there
    /// was none.
    pub offered: Option<u8>,
    /// Class of the message that was served, or `None` if there was none.
    pub served: Option<u8>,
    /// Class of the message that was rejected, or `None` if there was none.
    pub rejected: Option<u8>,
    /// True if the message was served without keeping state.
    pub stateless: bool,
}

impl Work {
    /// Maximum number of classes of a core.
    pub const CLASSES_MAX: usize = 16;
}
