//! The command-line argument that names the configuration file.

use std::path::{Path, PathBuf};

/// Arguments that name the configuration file, the same for each command.
#[derive(clap::Args)]
pub(crate) struct ConfigurationFile {
    /// The configuration file
    #[arg(value_name = "FILE", default_value = "/etc/tidegate/tidegate.toml")]
    file: PathBuf,

    /// The configuration file. The option replaces the argument FILE
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl ConfigurationFile {
    /// Returns the path of the configuration file.
    pub fn path(&self) -> &Path {
        self.config.as_ref().unwrap_or(&self.file)
    }
}
