//! The thread of a shard.

use std::sync::Arc;

use crossbeam_channel::Sender;
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
    /// A sender that the thread drops when the shard begins to take commands, as a sign for the
    /// main thread that the shard has started.
    pub(super) starting: Sender<()>,
}

impl ShardThread {
    pub(super) fn run(self, done: &Sender<Result<Summary, String>>) {
        // A panic is a bug in this program. The process must not continue without this shard.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.drive()));
        let ended = match ended {
            Ok(summary) => summary.map_err(|error| error.to_string()),
            Err(_) => Err("its thread panicked; the panic message is above".to_owned()),
        };
        // The receiver is dropped only at the end of the process.
        let _ = done.send(ended);
    }

    fn drive(self) -> std::io::Result<Summary> {
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
        drop(self.starting);
        match journal {
            None => drive.run(&mut core),
            Some(journal) => drive.run(&mut tidegate_world::Recorder::new(core, journal)),
        }
    }
}
