//! A TOML file with correct syntax.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use super::diagnostic::{Diagnostics, Report};
use super::knob::Table;
use super::tables::ROOT;

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
        // In JSON, nearly each line has an error.
        let count_max = if is_json(text) { 1 } else { usize::MAX };
        for error in errors.iter().take(count_max) {
            report_syntax(error, text, &mut report);
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

/// Reports that the text is not TOML.
fn report_syntax(error: &toml::de::Error, text: &str, report: &mut Report) {
    let values = ["string", "quot", "literal", "float", "integer", "value", "number"];
    let message = error.message().trim_end_matches(", expected nothing");
    let title = format!("not TOML: {message}");
    let span = error.span().unwrap_or(0..0);
    if report.is_full() {
        // A remedy would be read by nobody, and could take time in proportion to the file.
        return report.error(span, title, "", "");
    }
    let line = Line::at(text, span.start);
    if message.contains("duplicate key") {
        return report_duplicate(text, span, line, title, report);
    }
    let help = if is_json(text) {
        "write TOML, not JSON: tables such as `[[listen]]`, and `key = value` below them".to_owned()
    } else if let Some(number) = line.number_with_commas() {
        format!("write `{number}`, without commas")
    } else if values.iter().any(|noun| message.contains(noun)) {
        "write text in double quotes, such as `address = \"127.0.0.1:5060\"`".to_owned()
    } else {
        "write one `[table]` or one `key = value` on each line".to_owned()
    };
    report.error(span, title, "", help);
}

/// Returns whether `text` is JSON. No TOML file begins with a brace.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Reports that the table or key at `span`, in `line`, is defined twice. Also reports a table whose
/// header is below one of its inner tables.
fn report_duplicate(
    text: &str,
    span: Range<usize>,
    line: Line<'_>,
    title: String,
    report: &mut Report,
) {
    let mut earlier = Vec::new();
    let mut start = 0;
    for text in text[..line.start].split_inclusive('\n') {
        earlier.push(Line { start, text });
        start += text.len();
    }
    let (first, inner) = match line.header() {
        Some(header) => {
            let name = table_name(header);
            // Each element of an array has inner tables of its own.
            let begins_element = |other: &&Line<'_>| {
                other.header().is_some_and(|h| is_list(h) && is_inside(name, table_name(h)))
            };
            let of_element = earlier.iter().rev().take_while(|other| !begins_element(other));
            let of_element: Vec<&Line<'_>> = of_element.collect();
            let is_same = |other: &&Line<'_>| {
                let is_other = |h: &str| table_name(h) == name && !(is_list(h) && is_list(header));
                other.header().is_some_and(is_other)
            };
            let is_inner =
                |other: &&Line<'_>| other.header().is_some_and(|h| is_inside(table_name(h), name));
            let lines = || of_element.iter().copied();
            (lines().find(is_same), lines().rfind(is_inner))
        }
        None => {
            let own = line.key();
            let of_table = earlier.iter().rev().take_while(|other| other.header().is_none());
            (of_table.filter(|other| own.is_some() && other.key() == own).last(), None)
        }
    };
    let remove = "remove one of the two definitions";
    if let Some(first) = first {
        let help = match (line.header(), first.header()) {
            (Some(header), Some(other)) if is_repeated(header, other) => format!(
                "write `[[{}]]` in both places: the file may have several of these tables",
                table_name(header)
            ),
            _ => remove.to_owned(),
        };
        report.clash(title, (span, "defined again"), (first.content(), "defined here"), help);
    } else if let (Some(inner), Some(header)) = (inner, line.header()) {
        let help = format!("write `{header}` above `{}`", inner.header().unwrap_or_default());
        let label = "this table is inside the other one";
        report.clash(title, (span, "defined too late"), (inner.content(), label), help);
    } else {
        report.error(span, title, "", remove);
    }
}

/// A line of a file.
#[derive(Clone, Copy)]
struct Line<'i> {
    /// The position of the line in the file, in bytes.
    start: usize,
    text: &'i str,
}

impl<'i> Line<'i> {
    /// Returns the line that contains the byte at `at`.
    fn at(text: &'i str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { start, text: text[start..].lines().next().unwrap_or_default() }
    }

    /// Returns the header of a table in this line, with its brackets.
    fn header(self) -> Option<&'i str> {
        let header = self.text.split('#').next()?.trim();
        (header.starts_with('[') && header.ends_with(']')).then_some(header)
    }

    /// Returns the key at the beginning of this line.
    fn key(self) -> Option<&'i str> {
        self.text.split_once('=').map(|(key, _)| key.trim())
    }

    /// Returns the position in the file of the header or key in this line.
    fn content(self) -> Range<usize> {
        let length = self.header().or(self.key()).unwrap_or_default().len();
        let start = self.start + self.text.len() - self.text.trim_start().len();
        start..start + length
    }

    /// Returns the value in this line as TOML writes it, if it is a number with commas: an integer
    /// such as `2,000`, or a fraction such as `0,125`.
    fn number_with_commas(self) -> Option<String> {
        let value = self.text.split_once('=')?.1.split('#').next()?.trim();
        let (first, groups) = value.split_once(',')?;
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if first == "0" {
            return is_number(groups).then(|| format!("0.{groups}"));
        }
        // In TOML, no number begins with 0, except 0 itself and fractions.
        let is_first = first.len() <= 3 && is_number(first) && !first.starts_with('0');
        let is_group = |group: &str| group.len() == 3 && is_number(group);
        (is_first && groups.split(',').all(is_group)).then(|| value.replace(',', "_"))
    }
}

/// Returns the name in the header of a table.
fn table_name(header: &str) -> &str {
    header.trim_matches(['[', ']'])
}

/// Returns whether the table with this header is an element of an array.
fn is_list(header: &str) -> bool {
    header.starts_with("[[")
}

/// Returns whether the table with the name `inner` is inside the table with the name `outer`.
fn is_inside(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns whether the file may have several tables of the name in these two headers. If the
/// configuration has no such table, the brackets decide.
fn is_repeated(header: &str, other: &str) -> bool {
    let known = table_called(&ROOT, table_name(header));
    known.map_or_else(|| is_list(header) || is_list(other), Table::is_repeated)
}

/// Returns the table with the name `name`, such as `pool.backend`, inside `table`.
fn table_called(table: &'static Table, name: &str) -> Option<&'static Table> {
    table.tables.iter().copied().find_map(|inner| {
        let is_it = table_name(inner.header) == name;
        is_it.then_some(inner).or_else(|| table_called(inner, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> String {
        Document::parse(Path::new("t.toml"), text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_number_with_commas_is_shown_without_commas() {
        for (text, help) in [
            ("calls_max = 2,000\n", "write `2_000`, without commas"),
            ("a = 1\ncalls_max = 1,200,000 # many\nb = 2\n", "write `1_200_000`, without commas"),
            ("a = 0,125\n", "write `0.125`, without commas"),
            ("a = 1,2\n", "write text in double quotes"),
        ] {
            let shown = errors(text);
            assert!(shown.contains(help), "{shown}");
        }
    }

    #[test]
    fn a_table_above_the_table_that_contains_it_is_reported() {
        let shown = errors("[[pool.backend]]\nuri = 1\n\n[[pool]]\nname = 2\n");
        assert!(shown.contains("t.toml:4:3"), "{shown}");
        assert!(shown.contains("help: write `[[pool]]` above `[[pool.backend]]`"), "{shown}");
        assert!(shown.contains("1 | [[pool.backend]]"), "{shown}");
    }

    #[test]
    fn a_table_that_is_defined_twice_is_reported_with_its_first_definition() {
        let shown = errors("[[pool]]\n  [pool.health] # one\na = 1\n[pool.health]\nb = 2\n");
        for part in ["t.toml:4:7", "[pool.health] # one", "defined here", "remove one"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        // Each pool may have this table.
        let text = "[[pool]]\n[pool.health]\n[[pool]]\n[pool.health]\n";
        assert!(Document::parse(Path::new("t.toml"), text.as_bytes()).is_ok());
    }

    #[test]
    fn a_table_that_is_defined_twice_is_not_compared_with_that_of_another_element() {
        let shown = errors(
            "[[pool]]\n[pool.health]\na = 1\n[[pool]]\nhealth = { a = 2 }\n[pool.health]\nb = 3\n",
        );
        assert!(shown.contains("t.toml:6:7") && shown.contains("help: remove one"), "{shown}");
        assert!(!shown.contains("defined here"), "{shown}");
    }

    /// A remedy to remove one of the tables would remove a pool, a back end or a listener.
    #[test]
    fn a_table_that_may_be_repeated_needs_two_pairs_of_brackets_each_time() {
        for (text, name) in [
            ("[[pool]]\na = 1\n[[pool.backend]]\nb = 2\n[pool]\na = 3\n", "pool"),
            ("[listen]\na = 1\n[[listen]]\na = 2\n", "listen"),
            ("[[listen]]\na = 1\n[listen]\na = 2\n", "listen"),
            ("[listen]\na = 1\n[listen]\na = 2\n", "listen"),
            ("[[pool]]\n[pool.backend]\na = 1\n[[pool.backend]]\na = 2\n", "pool.backend"),
            ("[other]\na = 1\n[[other]]\na = 2\n", "other"),
        ] {
            let shown = errors(text);
            let help = format!("help: write `[[{name}]]` in both places");
            assert!(shown.contains(&help) && shown.contains("defined here"), "{shown}");
        }
        let shown = errors("[server]\na = 1\n[[server]]\na = 2\n");
        assert!(shown.contains("help: remove one of the two definitions"), "{shown}");
    }

    #[test]
    fn json_is_one_error() {
        let shown = errors("{\"listen\": [],\n\"pool\": [{\"name\": \"app\"}]}\n");
        assert!(shown.contains("help: write TOML, not JSON"), "{shown}");
        assert!(shown.ends_with("t.toml: 1 error\n"), "{shown}");
    }
}
