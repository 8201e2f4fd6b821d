//! Writes the results of a run as JSON, for other programs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::trouble::Trouble;

/// Writes `value` to the file as JSON.
pub fn write(file: &Path, value: &serde_json::Value) -> Result<(), Trouble> {
    let written = File::create(file).and_then(|created| {
        let mut out = BufWriter::new(created);
        serde_json::to_writer_pretty(&mut out, value)?;
        writeln!(out)?;
        out.flush()
    });
    written.map_err(|error| Trouble::failure(format!("{}: {error}", file.display())))
}
