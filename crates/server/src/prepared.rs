//! The configuration of a reload, parsed before the shards get it.
//!
//! The command of a reload contains the text of the configuration, so that a recording of the
//! command is complete. Parsing a text with 10,000 back ends takes longer than a packet may wait in
//! a shard. So the thread that sends the command parses the text once, and leaves the result for
//! the shards. If there is no result for a command, as in a replay, the shard parses the text
//! itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_balance::PoolSpec;

use crate::config::{Config, Found};
use crate::pools::pool_specs;

/// Maximum number of parsed configurations that are kept. It is larger than the number of commands
/// that may wait for a shard.
const KEPT_MAX: usize = 24;

/// The parsed configurations of recent commands. A configuration is removed when all shards have
/// received its command and a later command is prepared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared(Arc<Mutex<VecDeque<Entry>>>);

#[derive(Debug)]
struct Entry {
    /// Sequence number of the command to which this configuration belongs.
    command: u64,
    reading: Arc<Reading>,
}

/// The text of a command, with the configuration and the servers of its domains that apply after
/// the command.
#[derive(Debug)]
pub(crate) struct Reading {
    text: Box<[u8]>,
    pub(crate) config: Arc<Config>,
    pub(crate) found: Arc<Found>,
    /// `config` with the servers in `found` added as back ends.
    pub(crate) expanded: Config,
    /// The pools of `expanded`, with their back ends.
    pub(crate) pool_specs: Vec<PoolSpec>,
}

impl Reading {
    /// Creates the value for the command `text`. `config` and `found` are the configuration and the
    /// servers that apply after the command.
    pub(crate) fn new(text: &[u8], config: Arc<Config>, found: Arc<Found>) -> Self {
        let expanded = found.expand(&config);
        Self { text: text.into(), pool_specs: pool_specs(&expanded), expanded, config, found }
    }
}

impl Prepared {
    /// Stores `reading`, the result of parsing the command with the number `command`, for the
    /// shards. Removes the results of commands that all shards have received. `was_heard` returns
    /// whether all shards have received the command with a given number.
    pub(crate) fn put(&self, command: u64, reading: Reading, was_heard: impl Fn(u64) -> bool) {
        let forgotten: Vec<_> = {
            let mut kept = self.lock();
            let heard = kept.iter().take_while(|entry| was_heard(entry.command)).count();
            let excess = (kept.len() + 1).saturating_sub(KEPT_MAX);
            let forgotten = kept.drain(..heard.max(excess)).collect();
            kept.push_back(Entry { command, reading: Arc::new(reading) });
            forgotten
        };
        // Freeing 10,000 back ends takes a while, and a shard may wait for the lock.
        drop(forgotten);
    }

    /// Returns the stored result of parsing the command with this number and text, or `None` if
    /// there is none.
    ///
    /// The number must match too, because the effect of a text depends on the commands before it.
    pub(crate) fn get(&self, command: u64, text: &[u8]) -> Option<Arc<Reading>> {
        let kept = self.lock();
        let is_it = |entry: &&Entry| entry.command == command && *entry.reading.text == *text;
        let found = kept.iter().find(is_it)?;
        Some(Arc::clone(&found.reading))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn text(port: u16) -> String {
        format!(
            "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:5060\"\n[[pool]]\nname = \"app\"\n\
             [[pool.backend]]\nuri = \"sip:127.0.0.1:{port}\"\n"
        )
    }

    fn reading(text: &str) -> Reading {
        let config = Config::parse(Path::new("c"), text.as_bytes()).unwrap();
        Reading::new(text.as_bytes(), Arc::new(config), Arc::default())
    }

    #[test]
    fn two_reloads_that_a_shard_has_not_received_are_both_found_by_number_and_text() {
        let [one, two] = [text(5070), text(5071)];
        let prepared = Prepared::default();
        assert!(prepared.get(1, one.as_bytes()).is_none(), "the shard reads it itself");
        prepared.put(1, reading(&one), |_| false);
        let found = prepared.get(1, one.as_bytes()).unwrap();
        assert_eq!((found.config.pool.len(), found.pool_specs.len()), (1, 1));
        assert!(prepared.get(1, two.as_bytes()).is_none(), "as in a replay");
        assert!(prepared.get(2, one.as_bytes()).is_none(), "other servers may have been found");
        prepared.put(2, reading(&two), |_| false);
        for (command, text) in [(1, one), (2, two)] {
            assert_eq!(*prepared.get(command, text.as_bytes()).unwrap().text, *text.as_bytes());
        }
    }

    #[test]
    fn applied_and_excess_entries_are_forgotten() {
        let prepared = Prepared::default();
        let is_kept = |port: u16| prepared.get(port.into(), text(port).as_bytes()).is_some();
        prepared.put(1, reading(&text(1)), |_| false);
        prepared.put(2, reading(&text(2)), |_| false);
        prepared.put(3, reading(&text(3)), |command| command <= 1);
        assert_eq!([1, 2, 3].map(is_kept), [false, true, true]);
        for port in 4..=KEPT_MAX as u16 + 2 {
            prepared.put(port.into(), reading(&text(port)), |_| false);
        }
        assert_eq!([2, 3].map(is_kept), [false, true]);
        assert_eq!(prepared.lock().len(), KEPT_MAX);
    }
}
