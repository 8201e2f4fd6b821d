//! Reloads of the configuration by SIGHUP. Only the log shows the outcome of such a reload.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, select_biased};

use crate::audit::{AuditLog, AuditedRequest, Outcome, Requester};
use crate::runtime_control::RuntimeControl;
use crate::watch::LOOK_EVERY;
use crate::worker::Worker;

/// Starts a thread that reloads the configuration for each SIGHUP in `hangups`, until the returned
/// value is dropped. The thread also calls [`RuntimeControl::settle`] periodically, to undo a
/// reload that a shard rejects late.
///
/// A slow file system may block a reload. So reloads do not run on the main thread of the process,
/// which must react to signals to stop.
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub(super) fn reload_at(
    hangups: Receiver<()>,
    runtime_control: Arc<RuntimeControl>,
    audit_log: AuditLog,
) -> io::Result<Worker> {
    Worker::start("reload", move |ended| {
        loop {
            select_biased! {
                recv(ended) -> _ => return,
                recv(hangups) -> hangup => {
                    if hangup.is_err() {
                        return;
                    }
                    let applied = runtime_control.reload();
                    let asked =
                        AuditedRequest { by: Requester::Hangup, what: "reload".to_owned() };
                    audit_log.tell(asked, Outcome::of_command(&applied));
                }
                default(LOOK_EVERY) => runtime_control.settle(),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use crossbeam_channel::bounded;
    use tidegate_io::CommandSender;

    use super::*;
    use crate::metrics::collect::ShardCounters;
    use crate::runtime_control::ControlError;
    use crate::testing::{SMALL, assemble, load};

    const WAIT: Duration = Duration::from_secs(30);

    /// Returns a control with its configuration directory, and the counters of its only shard. The
    /// shard does not run.
    fn control() -> (tempfile::TempDir, Arc<RuntimeControl>, ShardCounters) {
        let dir = tempfile::tempdir().unwrap();
        let config = load(dir.path(), SMALL);
        let assembly = assemble(&config);
        let control = Arc::new(assembly.runtime_control(CommandSender::to(0)));
        (dir, control, assembly.counters()[0].clone())
    }

    /// A regression: the log said `done` as soon as the reload had been sent, even if a shard
    /// rejected it later.
    #[test]
    fn the_outcome_of_a_reload_is_that_of_the_shards() {
        let (_dir, control, shard) = control();
        let in_force = &shard.proxy.in_force;
        let (hangup, hangups) = bounded(1);
        let (audit_log, told) = AuditLog::channel();
        let _reloads = reload_at(hangups, Arc::clone(&control), audit_log).unwrap();
        let reload = || {
            hangup.send(()).unwrap();
            told.recv_timeout(WAIT).unwrap().outcome
        };
        in_force.commands.set(1);
        assert_eq!(reload(), Outcome::Done);
        in_force.commands_rejected.set(1);
        in_force.last_rejected.set(2);
        assert_eq!(reload(), Outcome::Not(ControlError::NoRoom.to_string()));
        control.stop_waiting();
        assert_eq!(reload(), Outcome::Pending);
        assert_eq!(reload(), Outcome::Not(ControlError::Unsettled.to_string()));
    }

    /// A regression: signals to stop had no effect while the configuration was on a file system
    /// that hung.
    #[test]
    fn a_reload_that_hangs_does_not_delay_the_end() {
        let (_dir, control, _shard) = control();
        let (hangup, hangups) = bounded(1);
        let (audit_log, _told) = AuditLog::channel();
        let hanging = control.hang();
        let reloads = reload_at(hangups, Arc::clone(&control), audit_log).unwrap();
        hangup.send(()).unwrap();
        let (dropped, drops) = bounded(1);
        thread::spawn(move || {
            drop(reloads);
            dropped.send(())
        });
        let is_dropped = drops.recv_timeout(WAIT);
        drop(hanging);
        assert_eq!(is_dropped, Ok(()));
    }
}
