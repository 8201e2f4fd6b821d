//! Reads a file of costs, which `tidegate lab calibrate` writes. The file contains only the table
//! `[emulate]`.

use std::path::Path;

use tidegate_server::config::schema::{
    Document, EMULATE, EmulateDraft, Report, Section, Table, read,
};
use tidegate_server::config::{Diagnostics, Emulate};

use crate::cost::{self, CALL};

static ROOT: Table = Table { tables: &[&EMULATE], ..Table::EMPTY };

/// Reads the file of costs at `path`.
///
/// # Errors
/// Returns an error if the file cannot be read. If the content is invalid, returns all errors in
/// it.
pub fn load(path: &Path) -> Result<Emulate, Diagnostics> {
    parse(path, &read(path)?)
}

/// Parses `bytes` as the content of the file at `path`. The path is used only in messages.
///
/// # Errors
/// Returns all errors in the content if it is invalid.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Emulate, Diagnostics> {
    let document = Document::parse(path, bytes)?;
    let mut report = Report::default();
    let root = Section::root(&ROOT, document.table(), &mut report);
    let tables = root.read_all(&EMULATE, EmulateDraft::read, &mut report);
    match tables.into_iter().next().map(EmulateDraft::finish) {
        Some(Some(emulate)) if report.is_empty() && !cost::call(&emulate, &CALL).is_zero() => {
            Ok(emulate)
        }
        Some(Some(_)) if report.is_empty() => {
            report.missing(
                "a call costs nothing",
                "set the costs of messages in `[emulate]`, such as `serve_us = 700`",
            );
            Err(document.reject(report))
        }
        None if report.is_empty() => {
            report.missing("no `[emulate]`", "name a file that `tidegate lab calibrate` wrote");
            Err(document.reject(report))
        }
        _ => Err(document.reject(report)),
    }
}
