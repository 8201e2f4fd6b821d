//! The third phase of a start: the threads of the shards.

use std::io;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::Errno;
use tidegate_io::{Handoffs, Limits, Stop, Summary};

use super::process::Process;
use super::shard_thread::{ShardThread, wait_until_started};
use super::{RunError, StartInput, failed};
use crate::wiring;

/// Maximum number of messages that other shards have received for one shard and that wait for this
/// shard.
const HANDOFFS_MAX: usize = 4096;

/// The running shards.
pub(super) struct Shards {
    pub(super) stop: Stop,
    /// The result of each shard that has ended. The channel is closed when all shards have ended.
    pub(super) ended: Receiver<io::Result<Summary>>,
}

impl Shards {
    /// Starts the shards, and waits until each of them takes commands. So a process that reports
    /// that it is ready takes the commands of operators.
    pub(super) fn start(
        input: StartInput<'_>,
        process: &mut Process<'_>,
    ) -> Result<Self, RunError> {
        let count = usize::from(input.config.server.shards);
        let (done, ended) = bounded(count);
        let (starting, started) = bounded(count);
        let shards = Self { stop: Stop::new(), ended };
        let spawned = spawn(input, process, &shards.stop, done, starting);
        let is_started = spawned.and_then(|()| wait_until_started(count, &started, &shards.ended));
        match is_started {
            Ok(()) => Ok(shards),
            Err(error) => {
                shards.abort();
                Err(error_of(error))
            }
        }
    }

    /// Stops the shards of a process that cannot start, and waits until they have ended.
    pub(super) fn abort(self) {
        // The second request stops the shards without draining. They have just started, and a
        // service manager starts this process again only after its end.
        self.stop.request();
        self.stop.request();
        self.ended.iter().for_each(drop);
    }
}

/// Returns the error of a process whose shards cannot start. Only the error of a limit gets the
/// advice to raise limits.
fn error_of(error: io::Error) -> RunError {
    match Errno::from_io_error(&error) {
        // A limit of open files, threads or memory.
        Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM) => {
            failed("shards", error).into()
        }
        _ => RunError::Shard(error.to_string()),
    }
}

/// Starts the threads of the shards. Each sends on `starting` when its shard takes commands, and on
/// `done` when it ends.
fn spawn(
    input: StartInput<'_>,
    process: &mut Process<'_>,
    stop: &Stop,
    done: Sender<io::Result<Summary>>,
    starting: Sender<()>,
) -> io::Result<()> {
    let StartInput { config, clock, .. } = input;
    let limits = Limits {
        coalesce: config.server.coalesce,
        drain: config.server.drain,
        gso: config.server.gso,
        padding: config.server.gso_padding,
        ..Limits::default()
    };
    let mesh = Handoffs::mesh(config.server.shards, HANDOFFS_MAX)?;
    for (shard, handoffs) in (0..).zip(mesh) {
        let (datagrams, streams) = wiring::of_shard(&process.groups, shard);
        let thread = ShardThread {
            part: process.assembly.part(shard),
            clock,
            limits,
            listeners: datagrams,
            stream_listeners: streams,
            stream_limits: wiring::stream_limits(config),
            tls_peers: process.tls.peers(process.assembly.registry().clone()),
            handoffs,
            stop: stop.clone(),
            commands: process.commands.clone(),
            resolver: process.resolver.clone(),
            stores: process.stores.clone(),
            journal: process.journal.take(),
            starting: starting.clone(),
        };
        let done = done.clone();
        thread::Builder::new().name(format!("shard-{shard}")).spawn(move || thread.run(&done))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RAISE_LIMITS;

    /// A regression: the error of a shard that had panicked told the operator to raise limits.
    #[test]
    fn only_a_limit_that_is_reached_gets_the_advice_to_raise_limits() {
        let of = |errno: Errno| error_of(io::Error::from_raw_os_error(errno.raw_os_error()));
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM] {
            let error = of(errno);
            let is_advised = matches!(&error, RunError::Start(e) if e.remedy == RAISE_LIMITS);
            assert!(is_advised, "{errno:?}: {error}");
        }
        let panicked = error_of(io::Error::other("its thread panicked"));
        assert_eq!(panicked.to_string(), "a shard failed: its thread panicked");
        assert!(matches!(of(Errno::PERM), RunError::Shard(_)));
    }
}
