//! The configuration of a reload, read before the shards are given it.
//!
//! An order is a text, so that a recording has it in full. Reading 10,000 back ends takes a shard
//! longer than a packet may wait. So the thread of the operator reads them once, and leaves what
//! it has read where the shards find it; a shard that finds another text there, as in a replay, reads
//! the order itself.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_balance::Muster;

use crate::config::Config;
use crate::pools::musters;

/// The last configuration that was read for the shards of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared(Arc<Mutex<Option<Arc<Reading>>>>);

/// A configuration, and the text that it was read from.
#[derive(Debug)]
pub(crate) struct Reading {
    text: Box<[u8]>,
    pub(crate) config: Config,
    /// Its back ends.
    pub(crate) musters: Vec<Muster>,
}

impl Reading {
    /// Makes a reading of a configuration that was read from `text`.
    pub(crate) fn new(text: &[u8], config: Config) -> Self {
        Self { text: text.into(), musters: musters(&config), config }
    }
}

impl Prepared {
    /// Puts a configuration in the place of the last one.
    pub(crate) fn put(&self, text: &[u8], config: Config) {
        let reading = Arc::new(Reading::new(text, config));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
    }

    /// Returns the reading of a text, if that was read last.
    pub(crate) fn get(&self, text: &[u8]) -> Option<Arc<Reading>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.filter(|reading| *reading.text == *text)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_text_finds_what_was_read_from_it_last() {
        let text = |port| {
            format!(
                "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:5060\"\n[[pool]]\nname = \"app\"\n\
                 [[pool.backend]]\nuri = \"sip:127.0.0.1:{port}\"\n"
            )
        };
        let read = |text: &str| Config::parse(Path::new("c"), text.as_bytes()).unwrap();
        let [one, two] = [text(5070), text(5071)];
        let prepared = Prepared::default();
        assert!(prepared.get(one.as_bytes()).is_none());
        prepared.put(one.as_bytes(), read(&one));
        let found = prepared.get(one.as_bytes()).unwrap();
        assert_eq!((found.config.pool.len(), found.musters.len()), (1, 1));
        assert!(prepared.get(two.as_bytes()).is_none(), "the shard reads it itself");
        prepared.put(two.as_bytes(), read(&two));
        assert!(prepared.get(one.as_bytes()).is_none());
    }
}
