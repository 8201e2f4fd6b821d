//! The configuration file that a command reads.

use std::path::{Path, PathBuf};

/// The arguments that name it, the same for each command.
#[derive(clap::Args)]
pub struct ConfigurationFile {
    /// The configuration file
    #[arg(value_name = "FILE", default_value = "/etc/tidegate/tidegate.toml")]
    file: PathBuf,

    /// The same as FILE
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl ConfigurationFile {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.config.as_ref().unwrap_or(&self.file)
    }
}
