//! The limits of a shard's turn.

use std::fmt;
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
    /// from connections as `streams` allows. If fewer responses were read, the others would wait
    /// for later turns, and their socket would overflow.
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

impl Limits {
    /// Checks every limit against its bounds.
    ///
    /// # Errors
    /// Returns the first limit that is out of bounds.
    pub fn check(&self) -> Result<(), OutOfBounds> {
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        let hour = 3_600_000_000;
        for (name, value, least, most) in [
            ("ordinary", self.ordinary as u64, 1, 4096),
            ("responses", self.responses as u64, 1, 4096),
            ("invites", self.invites as u64, 1, 1024),
            ("streams", self.streams as u64, 1, 4096),
            ("handoffs", self.handoffs as u64, 1, 1024),
            ("reports", self.reports as u64, 1, 256),
            ("quantum (µs)", micros(self.quantum), 10, 10_000),
            ("padding (bytes)", self.padding as u64, 0, 64),
            ("coalesce (µs)", micros(self.coalesce), 0, 2000),
            ("send_wait (µs)", micros(self.send_wait), 0, 10_000),
            ("drain (µs)", micros(self.drain), 0, hour),
        ] {
            if value < least || value > most {
                return Err(OutOfBounds { name, value, least, most });
            }
        }
        Ok(())
    }
}

/// The error for a limit that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds {
    /// Name of the limit, with its unit.
    pub name: &'static str,
    /// The value that is out of bounds.
    pub value: u64,
    /// The minimum that is allowed.
    pub least: u64,
    /// The maximum that is allowed.
    pub most: u64,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, least, most } = self;
        write!(f, "{name} is {value}, but must be between {least} and {most}")
    }
}

impl std::error::Error for OutOfBounds {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_lie_within_bounds() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn values_out_of_bounds_are_named() {
        let refused = |limits: Limits| limits.check().unwrap_err().to_string();
        let limits = Limits::default();
        assert_eq!(
            refused(Limits { invites: 0, ..limits }),
            "invites is 0, but must be between 1 and 1024",
        );
        assert_eq!(
            refused(Limits { handoffs: 0, ..limits }),
            "handoffs is 0, but must be between 1 and 1024",
        );
        assert_eq!(
            refused(Limits { coalesce: Duration::from_millis(3), ..limits }),
            "coalesce (µs) is 3000, but must be between 0 and 2000",
        );
        assert!(refused(Limits { drain: Duration::MAX, ..limits }).starts_with("drain"));
    }
}
