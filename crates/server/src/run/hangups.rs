//! Reloads by SIGHUP. Their outcome is only in the log.

use tidegate_world::Timestamp;

use crate::audit::{AuditEntry, AuditedRequest, Outcome, Requester};
use crate::runtime_control::{APPLY_WAIT, ControlError, RuntimeControl};

/// The reloads that have been sent to the shards and are not logged yet. Each has the number of its
/// command, and the time at which it is logged even if a shard has not applied it.
#[derive(Default)]
pub(super) struct Hangups(Vec<(u64, Timestamp)>);

impl Hangups {
    /// Adds a reload that was sent to the shards at `now`. Returns its entry in the log if it has
    /// failed.
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        reload: Result<u64, ControlError>,
    ) -> Option<AuditEntry> {
        match reload {
            Ok(number) => {
                self.0.push((number, now + APPLY_WAIT));
                None
            }
            Err(why) => Some(entry(Outcome::Not(why.to_string()))),
        }
    }

    /// Reports the reloads whose outcome is known at `now`.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        runtime_control: &RuntimeControl,
        mut tell: impl FnMut(AuditEntry),
    ) {
        self.0.retain(|&(number, deadline)| {
            let is_heard = runtime_control.was_heard(number);
            let outcome = if runtime_control.was_rejected(number) {
                Outcome::Not(ControlError::NoRoom.to_string())
            } else if is_heard {
                Outcome::Done
            } else if now >= deadline {
                Outcome::Pending
            } else {
                return true;
            };
            tell(entry(outcome));
            false
        });
    }
}

fn entry(outcome: Outcome) -> AuditEntry {
    let asked = AuditedRequest { by: Requester::Hangup, what: "reload".to_owned() };
    AuditEntry { asked, outcome }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_io::CommandSender;
    use tidegate_proxy::Secret;
    use tidegate_world::Seed;

    use super::*;
    use crate::assembly::Assembly;
    use crate::config::Config;

    /// The log said `done` as soon as the reload had been sent, even if a shard rejected it later.
    #[test]
    fn the_outcome_of_a_reload_is_that_of_the_shards() {
        let text = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n\
                    [[pool]]\nname = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n";
        let config = Config::parse(Path::new("f"), text.as_bytes()).unwrap();
        let locals = vec![config.listen[0].address];
        let keys = Secret::of([1; 32]);
        let assembly = Assembly::new(&config, &keys, locals, Seed(1));
        let runtime_control = assembly.runtime_control(CommandSender::to(1));
        let in_force = &assembly.counters()[0].proxy.in_force;
        let mut hangups = Hangups::default();
        let mut look = |now: Timestamp, reload: Option<u64>| {
            let failed = reload.and_then(|number| hangups.add(now, Ok(number)));
            assert_eq!(failed, None);
            let mut told = Vec::new();
            hangups.look(now, &runtime_control, |entry| told.push(entry.outcome));
            told
        };
        let [begin, end] = [Timestamp::ZERO, Timestamp::ZERO + APPLY_WAIT];
        assert!(look(begin, Some(1)).is_empty());
        assert_eq!(look(end, None), [Outcome::Pending]);
        assert!(look(end, Some(1)).is_empty());
        in_force.commands.set(1);
        assert_eq!(look(end, None), [Outcome::Done]);
        in_force.last_rejected.set(2);
        assert_eq!(look(end, Some(2)), [Outcome::Not(ControlError::NoRoom.to_string())]);
        let failed = hangups.add(end, Err(ControlError::NoRoom)).unwrap();
        assert_eq!(failed.outcome, Outcome::Not(ControlError::NoRoom.to_string()));
    }
}
