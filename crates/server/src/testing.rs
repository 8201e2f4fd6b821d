//! Configurations for the unit tests.

use std::fs;
use std::path::Path;

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
