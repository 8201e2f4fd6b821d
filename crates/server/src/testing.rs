//! Configurations and points in time for the unit tests.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use tidegate_proxy::Secret;
use tidegate_world::{Seed, Timestamp};

use crate::assembly::Assembly;
use crate::config::Config;

/// A configuration with one listener and one back end.
pub(crate) const SMALL: &str = "
    [[listen]]
    transport = \"udp\"
    address = \"127.0.0.1:0\"
    [[pool]]
    name = \"app\"
    [[pool.backend]]
    uri = \"sip:127.0.0.1:9\"
";

/// Writes a configuration file into `dir`, and reads it.
pub(crate) fn load(dir: &Path, text: &str) -> Config {
    let file = dir.join("tidegate.toml");
    fs::write(&file, text).unwrap();
    let (config, ..) = Config::load(&file).unwrap_or_else(|wrong| panic!("{wrong}"));
    config
}

/// Creates the shared state of a process with this configuration, and with keys that are always the
/// same.
pub(crate) fn assemble(config: &Config) -> Assembly<'static> {
    static KEYS: LazyLock<Secret> = LazyLock::new(|| Secret::of([1; 32]));
    let locals = config.listen.iter().map(|listen| listen.address).collect();
    Assembly::new(config, &KEYS, locals, Seed(1))
}

/// Returns the time this number of milliseconds after the start.
pub(crate) fn at_ms(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}
