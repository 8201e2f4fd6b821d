//! The limits of a shard's turn.

use std::time::Duration;

/// The limits on each kind of work in a turn, and on waiting times. The defaults suit a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of datagrams in a turn from the ordinary sockets. The value is from 1 to
    /// 4096, and the default is 256. These datagrams come before new work, because they finish work
    /// that has begun.
    pub ordinary: usize,
    /// Maximum number of datagrams in a turn from the sockets for responses. The value is from 1 to
    /// 4096, and the default is 1024, like that of `streams`. A turn may forward as many requests
    /// from connections as `streams` allows, and their responses may come in datagrams. If a turn
    /// read fewer responses, the others would wait for later turns, and their socket would
    /// overflow.
    pub responses: usize,
    /// Maximum number of datagrams in a turn from the sockets for new work (INVITEs and REGISTERs).
    /// The value is from 1 to 1024, and the default is 64. Without a limit, the shard would only
    /// receive during a flood, and do no other work.
    pub invites: usize,
    /// Maximum number of messages and other events on connections in a turn. The value is from 1 to
    /// 4096, and the default is 1024. It is large, because messages that a turn does not read are
    /// not dropped: they wait in sockets and at the senders, and the ACKs and BYEs of calls wait
    /// behind them.
    pub streams: usize,
    /// Maximum number of messages taken over from other shards in a turn. The value is from 1 to
    /// 1024, and the default is 256.
    pub handoffs: usize,
    /// Maximum number of ICMP reports taken from error queues in a turn. The value is from 1 to
    /// 256, and the default is 32.
    pub reports: usize,
    /// Minimum time of service in a turn with waiting messages. The value is from 10 µs to 10 ms,
    /// and the default is 500 µs. If reception took longer, service lasts as long as reception, so
    /// that service gets at least half of every turn. At least one message is served.
    pub quantum: Duration,
    /// Maximum pause of a shard before it reads its sockets again, so that one wake serves several
    /// datagrams. The value is from 0 (off) to 2 ms, and the default is 500 µs. A pause is taken
    /// only if it is expected to gather several datagrams. It is shorter at higher rates.
    pub coalesce: Duration,
    /// Maximum time for which a flush waits for room in a full send buffer before it drops the
    /// remaining datagrams. The value is from 0 to 10 ms, and the default is 1 ms.
    pub send_wait: Duration,
    /// True if datagrams of one length to one destination leave as one batch (`UDP_SEGMENT`). The
    /// default is `true`. Set it to `false` for a socket that represents many peers. Otherwise a
    /// receiver on the same machine would get the whole batch at the socket to which the first
    /// datagram is steered.
    pub gso: bool,
    /// Maximum white space in bytes that may be added to a datagram so that it can join a batch, if
    /// the core allows it. The value is from 0 to 64, and the default is 32.
    pub padding: usize,
    /// The time for the core to drain after the first request to stop. The value is from 0 to one
    /// hour, and the default is 30 s.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ordinary: 256,
            responses: 1024,
            invites: 64,
            streams: 1024,
            handoffs: 256,
            reports: 32,
            quantum: Duration::from_micros(500),
            coalesce: Duration::from_micros(500),
            send_wait: Duration::from_millis(1),
            gso: true,
            padding: 32,
            drain: Duration::from_secs(30),
        }
    }
}
