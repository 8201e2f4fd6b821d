//! Errors in a TOML file, shown beside the text that causes them.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use annotate_snippets::renderer::Renderer;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Snippet};

/// Maximum number of diagnostics kept for one configuration. Further ones are only counted.
const KEPT_MAX: usize = 50;

/// The errors in one TOML file, in the order of their places in the file. Only the first 50 errors
/// that the reader found are included. Further errors are only counted.
///
/// `Display` writes plain text. [`render`](Self::render) can use colours.
#[derive(Debug)]
pub struct Diagnostics {
    path: String,
    text: String,
    list: Vec<Diagnostic>,
    omitted: usize,
}

impl Diagnostics {
    /// Returns the number of errors, including the omitted ones. It is never zero.
    pub fn count(&self) -> usize {
        self.list.len() + self.omitted
    }

    /// Returns the diagnostics as text for a terminal, with colours if `colour` is true. The text
    /// ends with a newline.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for diagnostic in &self.list {
            out += &renderer.render(&[diagnostic.group(&self.path, &self.text)]);
            out += "\n\n";
        }
        out += &self.path;
        out += &match self.count() {
            1 => ": 1 error".to_owned(),
            n => format!(": {n} errors"),
        };
        if self.omitted > 0 {
            out += &format!(", of which the first {} are shown", self.list.len());
        }
        out += "\n";
        out
    }

    /// Returns a single error that concerns the whole file.
    pub(crate) fn without_text(path: &Path, title: String, help: String) -> Self {
        let list = vec![Diagnostic { title, spots: Vec::new(), help }];
        Self { path: path.display().to_string(), text: String::new(), list, omitted: 0 }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// An error in a configuration, with its remedy.
#[derive(Debug)]
struct Diagnostic {
    /// The title: one line, without a full stop.
    title: String,
    /// The places in the file to show, each with a label: first the wrong text, then any text that
    /// it contradicts. Empty if something is missing or the file cannot be read.
    spots: Vec<(Range<usize>, String)>,
    /// The remedy for the error.
    help: String,
}

impl Diagnostic {
    fn group<'a>(&'a self, path: &'a str, text: &'a str) -> Group<'a> {
        let title = Level::ERROR.primary_title(&*self.title);
        let group = if self.spots.is_empty() {
            title.element(Origin::path(path))
        } else {
            let kinds = std::iter::once(AnnotationKind::Primary)
                .chain(std::iter::repeat(AnnotationKind::Context));
            let annotations = kinds.zip(&self.spots).map(|(kind, (span, label))| {
                let annotation = kind.span(span.clone());
                if label.is_empty() { annotation } else { annotation.label(&**label) }
            });
            title.element(Snippet::source(text).path(path).annotations(annotations))
        };
        group.element(Level::HELP.message(&*self.help))
    }

    fn place(&self) -> usize {
        self.spots.first().map_or(usize::MAX, |(span, _)| span.start)
    }
}

/// The diagnostics that are collected while a configuration is read.
#[derive(Debug, Default)]
pub struct Report {
    list: Vec<Diagnostic>,
    omitted: usize,
    /// True if tables beyond a maximum were not read.
    is_incomplete: bool,
}

impl Report {
    /// Reports an error in the text at `span`. `label` is printed beside the underlined text.
    pub fn error(
        &mut self,
        span: Range<usize>,
        title: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(title.into(), vec![(span, label.into())], help.into());
    }

    /// Reports that the text at `span` contradicts the text at `other`.
    pub fn clash(
        &mut self,
        title: impl Into<String>,
        (span, label): (Range<usize>, &str),
        (other, other_label): (Range<usize>, &str),
        help: impl Into<String>,
    ) {
        let spots = vec![(span, label.to_owned()), (other, other_label.to_owned())];
        self.push(title.into(), spots, help.into());
    }

    /// Reports that the name `written` at `span` is not in `known`, the names of all items of this
    /// `kind` (such as `pool`). `begin` is the beginning of the title. If `known` is empty, `none`
    /// is the remedy.
    pub(crate) fn unknown_name(
        &mut self,
        (span, written): (Range<usize>, &str),
        begin: &str,
        kind: &str,
        known: &[&str],
        none: &str,
    ) {
        let title = format!("{begin} an unknown {kind} {}", quoted(written));
        let near = nearest(written, known.iter().copied()).map(in_quotes);
        let help = match known {
            [] => none.to_owned(),
            known => suggestion(near, known.iter().copied().map(in_quotes)),
        };
        self.error(span, title, format!("there is no {kind} with this name"), help);
    }

    /// Reports an error that has no place in the file, because a table or key is missing.
    pub fn missing(&mut self, title: impl Into<String>, help: impl Into<String>) {
        self.push(title.into(), Vec::new(), help.into());
    }

    /// Returns whether no error was reported.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns whether further errors are only counted.
    pub fn is_full(&self) -> bool {
        self.list.len() >= KEPT_MAX
    }

    /// Records that tables beyond a maximum were not read.
    pub(super) fn set_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// Returns whether tables beyond a maximum were not read. A comparison with other tables could
    /// then report errors that the file does not have.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Returns the reported errors. `text` is the content of the file `path`. At least one error
    /// must have been reported.
    pub(crate) fn into_diagnostics(mut self, path: &Path, text: &str) -> Diagnostics {
        debug_assert!(!self.is_empty(), "a configuration is rejected only for a reason");
        self.list.sort_by_key(Diagnostic::place);
        Diagnostics {
            path: path.display().to_string(),
            text: text.to_owned(),
            list: self.list,
            omitted: self.omitted,
        }
    }

    fn push(&mut self, title: String, spots: Vec<(Range<usize>, String)>, help: String) {
        if self.is_full() {
            self.omitted += 1;
        } else {
            self.list.push(Diagnostic { title, spots, help });
        }
    }
}

/// Returns `text` in backticks. Control characters are escaped, and a long text is cut, so that it
/// is safe to print.
pub fn quoted(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let (shown, rest) = match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => (&text[..end], "…"),
        None => (text, ""),
    };
    format!("`{}{rest}`", shown.escape_debug())
}

/// The longest name that is compared with others. The computation of the distance takes time and
/// memory in proportion to the length.
const LENGTH_MAX: usize = 64;

/// Returns the name in `names` that is most similar to `written`, if any is similar.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > LENGTH_MAX {
        return None;
    }
    // Up to a third of the letters may differ, or two letters if a third is less than two. A wrong
    // hint does no harm. A longer or shorter form of a name may differ more: `cps_maximum`, `addr`.
    let reach = (written.chars().count() / 3).max(2);
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(written, name), name))
        .filter(|(distance, name)| *distance <= reach || is_form_of(written, name))
        .min()
        .map(|(_, name)| name)
}

/// Returns whether `written` is `name` with one letter missing, added, replaced or exchanged with
/// its neighbour, or with two letters more at the end.
pub(super) fn is_slip_of(written: &str, name: &str) -> bool {
    if written.len() > LENGTH_MAX {
        return false;
    }
    match strsim::damerau_levenshtein(written, name) {
        0 | 1 => true,
        2 => written.starts_with(name),
        _ => false,
    }
}

/// Returns the remedy for an unknown name: the name `near` that was probably meant, or else all
/// `names`.
pub(crate) fn suggestion<N: fmt::Display>(
    near: Option<N>,
    names: impl IntoIterator<Item = N>,
) -> String {
    match near {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("write {}", alternatives(names)),
    }
}

/// Returns `name` as a value in the file.
pub(crate) fn in_quotes(name: &str) -> String {
    format!("\"{name}\"")
}

/// Returns whether one of two names begins with the other, and the shorter one has at least three
/// characters.
fn is_form_of(written: &str, name: &str) -> bool {
    const COMMON_MIN: usize = 3;
    (written.starts_with(name) || name.starts_with(written))
        && written.len().min(name.len()) >= COMMON_MIN
}

/// Joins `names` as `a`, `b` or `c`, each in backticks.
pub fn alternatives(names: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let quoted: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_errors_is_counted_not_kept() {
        let mut report = Report::default();
        for _ in 0..KEPT_MAX + 7 {
            report.error(0..1, "wrong", "", "better");
        }
        let diagnostics = report.into_diagnostics(Path::new("f"), "x");
        assert_eq!(diagnostics.count(), KEPT_MAX + 7);
        assert!(
            diagnostics.to_string().ends_with("f: 57 errors, of which the first 50 are shown\n")
        );
    }

    #[test]
    fn quoted_text_cannot_reach_the_terminal_raw() {
        assert_eq!(quoted("a\u{1b}[31m"), "`a\\u{1b}[31m`");
        assert_eq!(quoted(&"é".repeat(61)), format!("`{}…`", "é".repeat(60)));
    }

    #[test]
    fn a_slip_differs_by_one_letter_or_by_an_ending_of_two() {
        for written in ["liten", "lissten", "lisden", "listne", "listens", "listener"] {
            assert!(is_slip_of(written, "listen"), "{written}");
        }
        for written in ["lstne", "list", "listeners", "listen_defaults", "silent"] {
            assert!(!is_slip_of(written, "listen"), "{written}");
        }
    }

    #[test]
    fn the_nearest_name_is_suggested_and_only_if_near() {
        let names = ["address", "advertise", "trust"];
        assert_eq!(nearest("adress", names), Some("address"));
        assert_eq!(nearest("advertize", names), Some("advertise"));
        assert_eq!(nearest("colour", names), None);
        let names = ["calls_max", "cps_max", "weight"];
        assert_eq!(nearest("cps_maximum", names), Some("cps_max"));
        assert_eq!(nearest("calls", names), Some("calls_max"));
        assert_eq!(nearest("c", names), None);
    }
}
