//! Commands of operators to the shards of a process.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};
use tidegate_world::COMMAND_MAX;

use crate::Waker;

/// Maximum number of commands in the queue of one shard. A shard takes one command in each turn.
const WAITING_MAX: usize = 16;

/// A handle with which any thread sends a command to all shards. Each shard gets all commands in
/// the same order ([`Core::on_command`](tidegate_world::Core::on_command)).
#[derive(Clone, Debug)]
pub struct CommandSender(Arc<State>);

#[derive(Debug)]
struct State {
    shards: usize,
    queues: Mutex<Vec<CommandQueue>>,
}

#[derive(Debug)]
struct CommandQueue {
    commands: Sender<Arc<[u8]>>,
    waker: Waker,
}

/// The reason why a command was not sent to all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The command has more than [`COMMAND_MAX`] bytes.
    TooLong,
    /// A shard has not started or has ended, or its queue is full of earlier commands.
    Busy,
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => {
                write!(f, "the command is longer than {COMMAND_MAX} bytes, which is the limit")
            }
            Self::Busy => f.write_str(
                "a shard is not running, or has not read earlier commands yet; try again",
            ),
        }
    }
}

impl std::error::Error for CommandError {}

impl CommandSender {
    /// Creates a handle that sends to `shards` shards. Each shard connects to the handle with
    /// [`Drive::with_commands`](crate::Drive::with_commands).
    pub fn to(shards: u16) -> Self {
        Self(Arc::new(State { shards: shards.into(), queues: Mutex::default() }))
    }

    /// Sends a command to every shard. On an error no shard gets the command, except if a shard has
    /// ended: then the other shards get it, and the process is about to end.
    ///
    /// # Errors
    /// Returns an error if the command is too long, or if a shard has not started, has ended, or
    /// has no room for the command.
    pub fn give(&self, command: &[u8]) -> Result<(), CommandError> {
        if command.len() > COMMAND_MAX {
            return Err(CommandError::TooLong);
        }
        // Only the holder of this lock adds commands, so a queue that has room now still has room
        // below.
        let queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() < self.0.shards || queues.iter().any(|queue| queue.commands.is_full()) {
            return Err(CommandError::Busy);
        }
        let command: Arc<[u8]> = command.into();
        let mut result = Ok(());
        for CommandQueue { commands, waker } in queues.iter() {
            match commands.try_send(Arc::clone(&command)) {
                Ok(()) => waker.wake(),
                // The shard has ended, and the process is about to end.
                Err(_) => result = Err(CommandError::Busy),
            }
        }
        result
    }

    /// Adds the queue of a shard. `waker` wakes the shard for each command. Returns the end of the
    /// queue from which the shard takes its commands.
    pub(crate) fn join(&self, waker: Waker) -> CommandReceiver {
        let (commands, receiver) = bounded(WAITING_MAX);
        let queue = CommandQueue { commands, waker };
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).push(queue);
        CommandReceiver(receiver)
    }
}

/// The end of a command queue from which a shard takes its commands.
#[derive(Debug)]
pub(crate) struct CommandReceiver(Receiver<Arc<[u8]>>);

impl CommandReceiver {
    /// Returns the receiver of a shard that gets no commands.
    pub(crate) fn closed() -> Self {
        Self(bounded(1).1)
    }

    /// Takes the next command, or returns `None` if none waits.
    pub(crate) fn take(&self) -> Option<Arc<[u8]>> {
        self.0.try_recv().ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_gets_all_commands_in_order() {
        let commands = CommandSender::to(2);
        let shards = [(); 2].map(|()| commands.join(Waker::new().unwrap()));
        for command in [&b"one"[..], b"two"] {
            commands.clone().give(command).unwrap();
        }
        for shard in shards {
            assert!(!shard.is_empty());
            assert_eq!([shard.take(), shard.take()].map(|o| o.unwrap().to_vec()), [b"one", b"two"]);
            assert!(shard.is_empty() && shard.take().is_none());
        }
    }

    #[test]
    fn a_command_that_one_queue_has_no_room_for_is_sent_to_no_shard() {
        let commands = CommandSender::to(2);
        let slow = commands.join(Waker::new().unwrap());
        assert_eq!(commands.give(b"more"), Err(CommandError::Busy), "one is not there yet");
        let quick = commands.join(Waker::new().unwrap());
        assert!(slow.is_empty());
        for _ in 0..WAITING_MAX {
            commands.give(b"more").unwrap();
            assert!(quick.take().is_some());
        }
        assert_eq!(commands.give(b"more"), Err(CommandError::Busy));
        assert!(quick.is_empty());
        assert!(slow.take().is_some());
        commands.give(b"more").unwrap();
        assert!(!quick.is_empty());
        assert_eq!(commands.give(&[b'x'; COMMAND_MAX + 1]), Err(CommandError::TooLong));
    }

    #[test]
    fn a_shard_without_commands_receives_none() {
        assert!(CommandReceiver::closed().is_empty() && CommandReceiver::closed().take().is_none());
    }
}
