//! Replays a recording with a proxy that is built from the recorded configuration.

use std::path::Path;

use crate::ShardCounters;
use crate::admin::Status;
use crate::assembly::Assembly;
use crate::config::{Config, Diagnostics};
use crate::recording::{Head, Passing, Recording, Unreadable, Verdict};
use tidegate_world::{Pool, Timestamp};

/// The result of a replay.
pub struct Replayed {
    /// The result of comparing the packets of the replayed proxy with those of the recorded proxy.
    pub verdict: Verdict,
    /// Counters of the replayed proxy at the end.
    pub counters: ShardCounters,
    /// The content of `/status` at the end.
    pub status: Status,
}

impl Replayed {
    /// Returns the time of the last input of the recording.
    pub fn end(&self) -> Timestamp {
        self.verdict.span.map_or(Timestamp::ZERO, |(_, last)| last)
    }
}

/// Returns the configuration in the head of a recording.
///
/// # Errors
/// Returns all errors that this version of Tidegate finds in the configuration.
pub fn configuration(head: &Head) -> Result<Config, Diagnostics> {
    Config::parse(Path::new("recorded configuration"), head.configuration.as_bytes())
}

/// Gives the inputs of the recording to a proxy with the configuration `config`, which should be
/// the recorded configuration. `see` is called with each event.
///
/// # Errors
/// Returns an error when the recording cannot be read, or its head contradicts itself.
pub fn replay(
    recording: &Recording,
    config: &Config,
    see: impl FnMut(Passing<'_>),
) -> Result<Replayed, Unreadable> {
    let head = recording.head();
    check(head, config)?;
    let assembly = Assembly::new(config, &head.keys, head.listeners.clone(), head.seed)
        .within(head.environment.clone());
    let pool = Pool::new();
    let mut core = assembly.part(0).connected(pool.clone());
    let verdict = recording.replay(&mut core, &pool, see)?;
    let end = verdict.span.map_or(Timestamp::ZERO, |(_, last)| last);
    let status = assembly.instruments().read(end);
    Ok(Replayed { verdict, counters: assembly.counters()[0].clone(), status })
}

/// Checks the head of a recording, which may be forged. The head must contain an address for each
/// listener in `config`, and `config` must have one shard.
fn check(head: &Head, config: &Config) -> Result<(), Unreadable> {
    if head.listeners.len() == config.listen.len() && config.server.shards == 1 {
        return Ok(());
    }
    Err(Unreadable::Corrupt(
        0,
        "the head of the recording does not list one address for each listener, or the recorded \
         configuration has several shards",
    ))
}

#[cfg(test)]
mod tests {
    use crate::assembly::Environment;
    use tidegate_proxy::Secret;
    use tidegate_world::Seed;

    use super::*;

    #[test]
    fn a_head_that_contradicts_its_configuration_is_rejected() {
        let checked = |server: &str, listeners: usize| {
            let head = Head {
                program: "1".to_owned(),
                configuration: format!(
                    "{server}[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:1\"\n\
                     [[pool]]\nname = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:3\"\n"
                ),
                listeners: vec!["127.0.0.1:1".parse().unwrap(); listeners],
                environment: Environment::default(),
                seed: Seed(1),
                keys: Secret::of([0; 32]),
            };
            check(&head, &configuration(&head).unwrap()).is_ok()
        };
        assert!(checked("", 1));
        assert!(!checked("", 0) && !checked("", 2));
        assert!(!checked("[server]\nshards = 2\n", 1));
    }
}
