//! A TOML file with correct syntax.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use super::diagnostic::{Diagnostics, Report};

/// The maximum size of a TOML file, in bytes.
pub(crate) const FILE_MAX: usize = 32 << 20;

/// Reads the file at `path`, but at most one byte more than `FILE_MAX`. This is enough for
/// [`Document::parse`] to reject a file that is too long.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Diagnostics> {
    let unreadable = |error: std::io::Error| {
        let help = "name a file that exists and that this process may read".to_owned();
        Diagnostics::without_text(path, format!("the file cannot be read: {error}"), help)
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// A file that is valid TOML.
#[derive(Debug)]
pub struct Document<'i> {
    path: PathBuf,
    text: &'i str,
    table: Spanned<DeTable<'i>>,
}

impl<'i> Document<'i> {
    /// Parses `bytes`, the content of the file `path`. The path only appears in messages.
    ///
    /// # Errors
    /// Returns an error if the file is too long, not UTF-8, or not TOML.
    pub fn parse(path: &Path, bytes: &'i [u8]) -> Result<Self, Diagnostics> {
        if bytes.len() > FILE_MAX {
            let help = format!("shorten the file to at most {} KiB", FILE_MAX / 1024);
            return Err(Diagnostics::without_text(path, "the file is too long".to_owned(), help));
        }
        let mut report = Report::default();
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                // `from_utf8_lossy` writes a replacement character of three bytes here.
                let at = error.valid_up_to();
                report.error(
                    at..at + 3,
                    "the file is not UTF-8 text",
                    "",
                    "save the file as UTF-8",
                );
                return Err(report.into_diagnostics(path, &String::from_utf8_lossy(bytes)));
            }
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            report_syntax(error, &mut report);
        }
        // After a syntax error the parser guesses the rest, so the rest is not checked.
        if errors.is_empty() {
            Ok(Self { path: path.to_owned(), text, table })
        } else {
            Err(report.into_diagnostics(path, text))
        }
    }

    /// Returns the content of the file as a table.
    pub fn table(&self) -> &DeTable<'i> {
        self.table.get_ref()
    }

    /// Converts the errors in `report` to [`Diagnostics`] that show the text of this file. At least
    /// one error must have been reported.
    pub fn reject(&self, report: Report) -> Diagnostics {
        report.into_diagnostics(&self.path, self.text)
    }
}

fn report_syntax(error: &toml::de::Error, report: &mut Report) {
    let values = ["string", "quot", "literal", "float", "integer", "value", "number"];
    let message = error.message().trim_end_matches(", expected nothing");
    let help = if message.contains("duplicate key") {
        "remove one of the two definitions"
    } else if values.iter().any(|noun| message.contains(noun)) {
        "write text in double quotes, such as `address = \"127.0.0.1:5060\"`"
    } else {
        "write one `[table]` or one `key = value` on each line"
    };
    let title = format!("not TOML: {message}");
    report.error(error.span().unwrap_or(0..0), title, "", help);
}
