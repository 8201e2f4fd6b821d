//! `tidegate replay`: feeds a recording to the proxy again, and compares the packets.

mod dump;
mod report;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;
use tidegate_server::config::Config;
use tidegate_server::recording::{Passing, Recording};
use tidegate_server::replay::{self, Replayed};

use crate::json;
use crate::trouble::Trouble;
use dump::Dump;

/// Replay a recording, and check that the proxy sends the same packets as the recorded process
///
/// The exit status is 0 if every packet is the same, or if the recording is incomplete and cannot
/// be compared. It is 1 if a packet differs, or if the file of `--json` or `--dump` cannot be
/// written. It is 2 if the recording cannot be read.
#[derive(clap::Args)]
#[group(id = "recording")]
pub struct Args {
    /// The file that `tidegate run --record` wrote
    file: PathBuf,

    /// Write all results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write every packet to FILE as text
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

/// An open recording, with the configuration that it contains.
pub struct Source<'a> {
    args: &'a Args,
    /// The recording.
    pub recording: Recording,
    /// Configuration of the recorded proxy.
    pub config: Config,
}

/// Comparison of a recording with its replay.
pub struct Compared {
    /// The result of the replay.
    pub replayed: Replayed,
    /// The results of the comparison, for `--json`.
    pub figures: Value,
    holds: bool,
}

/// Replays the recording, and prints the comparison.
pub fn run(args: &Args) -> ExitCode {
    let replay = || {
        let source = Source::open(args)?;
        let compared = source.replay(|_| {})?;
        source.finish(&compared)
    };
    replay().unwrap_or_else(|trouble: Trouble| trouble.exit("tidegate replay"))
}

impl<'a> Source<'a> {
    /// Opens the recording.
    ///
    /// # Errors
    /// Returns an error if the recording cannot be read, or if this version rejects the
    /// configuration in it.
    pub fn open(args: &'a Args) -> Result<Self, Trouble> {
        let recording = Recording::open(&args.file)
            .map_err(|error| Trouble::usage(format!("{}: {error}", args.file.display())))?;
        let config = replay::configuration(recording.head())?;
        Ok(Self { args, recording, config })
    }

    /// Replays the recording, and prints the comparison. `see` gets each input of the proxy and
    /// each packet that the proxy sends.
    ///
    /// # Errors
    /// Returns an error if the recording cannot be read, or the dump cannot be written.
    pub fn replay(&self, mut see: impl FnMut(Passing<'_>)) -> Result<Compared, Trouble> {
        let mut dump = self.args.dump.as_deref().map(Dump::create).transpose()?;
        let replayed = replay::replay(&self.recording, &self.config, |passing| {
            if let Some(dump) = &mut dump {
                dump.write(&passing);
            }
            see(passing);
        })
        .map_err(|error| Trouble::usage(format!("{}: {error}", self.args.file.display())))?;
        dump.map(Dump::finish).transpose()?;

        let report = report::Report::new(&self.recording, &self.config, &replayed);
        // A reader that has closed the pipe needs no more output.
        let _ = write!(anstream::stdout(), "{report}");
        let (figures, holds) = (report.to_json(), report.holds());
        Ok(Compared { figures, holds, replayed })
    }

    /// Writes the figures, if `--json` asks for them, and returns the exit status.
    ///
    /// # Errors
    /// Returns an error if the figures cannot be written.
    pub fn finish(&self, compared: &Compared) -> Result<ExitCode, Trouble> {
        if let Some(file) = &self.args.json {
            json::write(file, &compared.figures)?;
        }
        Ok(if compared.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
