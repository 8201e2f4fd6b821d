//! The thread of a shard.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use tidegate_io::{
    Clock, CommandSender, Drive, Handoffs, Limits, Listener, Resolver, Shard, Stop, Stores,
    StreamLimits, StreamListener, Summary, TlsPeers,
};
use tidegate_world::Pool;

use crate::assembly::Part;
use crate::recording::Journal;

/// The parts from which the thread of a shard builds and drives its core.
pub(super) struct ShardThread {
    pub(super) part: Part,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    pub(super) listeners: Vec<Listener>,
    pub(super) stream_listeners: Vec<StreamListener>,
    pub(super) stream_limits: StreamLimits,
    pub(super) tls_peers: TlsPeers,
    pub(super) handoffs: Handoffs,
    pub(super) stop: Stop,
    pub(super) commands: CommandSender,
    pub(super) resolver: Option<Resolver>,
    pub(super) stores: Stores,
    pub(super) journal: Option<Journal>,
    /// A sender with which the thread reports that the shard takes commands. It must not block.
    pub(super) starting: Sender<()>,
}

impl ShardThread {
    pub(super) fn run(self, done: &Sender<io::Result<Summary>>) {
        // A panic is a bug in this program. The process must not continue without this shard.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.drive()));
        let ended = ended.unwrap_or_else(|_| {
            Err(io::Error::other("its thread panicked; the panic message is above"))
        });
        // The receiver is dropped only at the end of the process.
        let _ = done.send(ended);
    }

    fn drive(self) -> io::Result<Summary> {
        let Self { part, clock, limits, listeners, handoffs, stop, commands, stores, .. } = self;
        let (resolver, journal) = (self.resolver, self.journal);
        let (pool, counters) = (Pool::new(), Arc::clone(&part.counters().io));
        let mut core = part.connected(pool.clone());
        let shard = Shard { clock, limits, listeners, handoffs, counters, stop, pool };
        let mut drive = Drive::new(shard)?
            .with_streams(self.stream_listeners, self.stream_limits, self.tls_peers)?
            .with_commands(&commands)
            .with_stores(&stores);
        if let Some(resolver) = &resolver {
            drive = drive.with_resolver(resolver);
        }
        // The receiver is dropped only at the end of the process.
        let _ = self.starting.send(());
        drop(self.starting);
        match journal {
            None => drive.run(&mut core),
            Some(journal) => drive.run(&mut tidegate_world::Recorder::new(core, journal)),
        }
    }
}

/// Waits until each of the `shards` shards takes commands. `started` and `ended` receive the reports
/// of their threads.
///
/// # Errors
/// Returns the error of a shard that has failed before it took commands.
pub(super) fn wait_until_started(
    shards: usize,
    started: &Receiver<()>,
    ended: &Receiver<io::Result<Summary>>,
) -> io::Result<()> {
    // A thread drops its sender when its shard has started or has failed. So the count ends when no
    // shard is starting any more.
    if started.iter().count() == shards {
        return Ok(());
    }
    // The thread of a shard that has failed sends the error after it has dropped this sender.
    let error = ended.iter().find_map(Result::err);
    Err(error.unwrap_or_else(|| io::Error::other("its thread has ended")))
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;
    use tidegate_io::{Listen, open};

    use super::*;
    use crate::testing::{SMALL, assemble, load};

    /// A regression: a process reported that it was ready although a shard had not started.
    #[test]
    fn a_shard_that_fails_before_it_takes_commands_has_not_started() {
        let dir = tempfile::tempdir().unwrap();
        let config = load(dir.path(), &SMALL.replace("127.0.0.1:0", "127.0.0.1:5060"));
        let assembly = assemble(&config);
        let group = open(&Listen::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let (done, ended) = bounded(2);
        let (starting, started) = bounded(2);
        let other = starting.clone();
        let thread = ShardThread {
            part: assembly.part(0),
            clock: Clock::start(),
            limits: Limits::default(),
            // A shard has at most 16 listeners.
            listeners: (0..17).map(|_| group.listener(0)).collect(),
            stream_listeners: Vec::new(),
            stream_limits: StreamLimits::default(),
            tls_peers: Arc::new(|_| None),
            handoffs: Handoffs::mesh(1, 1).unwrap().remove(0),
            stop: Stop::new(),
            commands: CommandSender::to(1),
            resolver: None,
            stores: Stores::default(),
            journal: None,
            starting,
        };
        thread.run(&done);
        other.send(()).unwrap();
        drop(other);
        let error = wait_until_started(2, &started, &ended).unwrap_err();
        assert!(error.to_string().contains("at most 16"), "{error}");
    }
}
