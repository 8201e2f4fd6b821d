//! A shard in a thread of its own.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_io::{Clock, CommandSender, Drive, Group, Handoffs, Limits, Shard, Stop};
use tidegate_server::assembly::Part;
use tidegate_world::Pool;

/// Drives this part at `group` until it is stopped.
pub fn drive(
    part: Part,
    group: Group,
    clock: Clock,
    stop: Stop,
    commands: CommandSender,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let pool = Pool::new();
        let mut core = part.core(pool.clone());
        joined(&group, clock, stop, &commands, pool).run(&mut core).unwrap();
    })
}

/// Returns the driver of a shard, which executes commands while it runs.
pub fn joined(
    group: &Group,
    clock: Clock,
    stop: Stop,
    commands: &CommandSender,
    pool: Pool,
) -> Drive {
    let shard = Shard {
        clock,
        limits: Limits { drain: Duration::ZERO, ..Limits::default() },
        listeners: vec![group.listener(0)],
        handoffs: Handoffs::alone().unwrap(),
        counters: Arc::default(),
        stop,
        pool,
    };
    Drive::new(shard).unwrap().with_commands(commands)
}
