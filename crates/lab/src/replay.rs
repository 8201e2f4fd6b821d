//! A recording, fed to the proxy that its own configuration describes.

use std::path::Path;

use tidegate_server::ShardCounters;
use tidegate_server::admin::Status;
use tidegate_server::assembly::Assembly;
use tidegate_server::config::{Config, Diagnostics};
use tidegate_server::recording::{Head, Passing, Recording, Unreadable, Verdict};
use tidegate_world::{Pool, Timestamp};

/// What a replay brought out.
pub struct Replayed {
    /// Whether it was as recorded.
    pub verdict: Verdict,
    /// What the proxy counted.
    pub counters: ShardCounters,
    /// What it says of itself at the end.
    pub status: Status,
}

impl Replayed {
    /// The time of the last input.
    pub fn end(&self) -> Timestamp {
        self.verdict.span.map_or(Timestamp::ZERO, |(_, last)| last)
    }
}

/// The configuration in the head of a recording.
///
/// # Errors
/// With what this version of the program does not accept in it.
pub fn configuration(head: &Head) -> Result<Config, Diagnostics> {
    Config::parse(Path::new("recorded configuration"), head.configuration.as_bytes())
}

/// Feeds the recording to the proxy of `config`, which is to be its own. `see` is told of all
/// that passes.
///
/// # Errors
/// When the recording cannot be read.
pub fn replay(
    recording: &Recording,
    config: &Config,
    see: impl FnMut(Passing<'_>),
) -> Result<Replayed, Unreadable> {
    let head = recording.head();
    let assembly = Assembly::new(config, &head.keys, head.listeners.clone(), head.seed);
    let pool = Pool::new();
    let mut core = assembly.part(0).core(pool.clone());
    let verdict = recording.replay(&mut core, &pool, see)?;
    let end = verdict.span.map_or(Timestamp::ZERO, |(_, last)| last);
    let status = assembly.instruments().read(end);
    Ok(Replayed { verdict, counters: assembly.counters()[0].clone(), status })
}
