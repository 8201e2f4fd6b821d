//! The text file of `tidegate replay --dump`, with all received and sent packets of a replay.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tidegate_server::recording::Passing;
use tidegate_world::{Input, Timestamp};

use crate::trouble::Trouble;

/// A text file to which packets are written.
pub(crate) struct Dump {
    path: PathBuf,
    out: BufWriter<File>,
    /// The error of the first failed write. Nothing is written after an error.
    failed: io::Result<()>,
}

impl Dump {
    /// Creates the file.
    pub fn create(path: &Path) -> Result<Self, Trouble> {
        let file = File::create(path).map_err(|error| trouble(path, &error))?;
        Ok(Self { path: path.to_owned(), out: BufWriter::new(file), failed: Ok(()) })
    }

    /// Writes a received or sent packet. Ignores other inputs.
    pub fn write(&mut self, passing: &Passing<'_>) {
        let (at, from, to, bytes) = match passing {
            Passing::In(entry) => match &entry.input {
                Input::Offer(arrived, path, bytes, _) => {
                    (*arrived, path.remote, path.local, *bytes)
                }
                _ => return,
            },
            Passing::Out(now, path, bytes) => (*now, path.local, path.remote, *bytes),
        };
        if self.failed.is_ok() {
            self.failed = packet(&mut self.out, at, &format!("{from} > {to}"), bytes);
        }
    }

    /// Flushes the file and reports the first error.
    pub fn finish(mut self) -> Result<(), Trouble> {
        self.failed.and_then(|()| self.out.flush()).map_err(|error| trouble(&self.path, &error))
    }
}

fn packet(out: &mut impl Write, at: Timestamp, way: &str, bytes: &[u8]) -> io::Result<()> {
    writeln!(out, "{:.6} {way}, {} bytes", at.as_secs_f64(), bytes.len())?;
    out.write_all(bytes)?;
    out.write_all(b"\n")
}

fn trouble(path: &Path, error: &io::Error) -> Trouble {
    Trouble::failure(format!("{}: {error}", path.display()))
}
