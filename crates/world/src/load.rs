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
    /// True if the kernel has not accepted the [requested](crate::Core::poll_shedding) shedding within
    /// the last second. The driver then waits a second before it tries again, unless the core no
    /// longer wants a share of the datagrams dropped.
    pub is_shed_refused: bool,
    /// True if the driver reports the load directly after the core has served a message, so that
    /// the report shows when this service ended. Without this report, the duration of a service
    /// would be unknown if timers fire after it. This happens mainly if the process did not run
    /// during the service, because timers are due afterwards.
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
