//! Reads the keys and inner tables of one table of a TOML file.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::diagnostic::{Report, alternatives, is_slip_of, nearest, quoted};
use super::knob::{Knob, Shape, Table};

/// A key of a file with its value.
type Entry<'a, 'i> = (&'a Spanned<DeString<'i>>, &'a Spanned<DeValue<'i>>);

/// A table of a TOML file, with the [`Table`] that defines its keys.
pub struct Section<'a, 'i> {
    /// The whole file.
    root: &'static Table,
    table: &'static Table,
    content: &'a DeTable<'i>,
    /// The position of the table's header in the file, in bytes.
    span: Range<usize>,
}

impl<'a, 'i> Section<'a, 'i> {
    /// Returns the whole file as a section, after reporting its unknown keys.
    pub fn root(table: &'static Table, content: &'a DeTable<'i>, report: &mut Report) -> Self {
        Self::open(table, table, content, 0..0, report)
    }

    fn open(
        root: &'static Table,
        table: &'static Table,
        content: &'a DeTable<'i>,
        span: Range<usize>,
        report: &mut Report,
    ) -> Self {
        let section = Self { root, table, content, span };
        if !table.has_free_keys {
            section.report_unknown(report);
        }
        section
    }

    /// Returns the position of the table's header in the file, in bytes.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Returns every key with its value. The table must have [`Table::has_free_keys`].
    pub fn each(&self) -> impl Iterator<Item = Entry<'a, 'i>> {
        debug_assert!(self.table.has_free_keys);
        self.content.iter()
    }

    /// Returns the names of all keys and inner tables that the file has in this table.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.content.iter().map(|(key, _)| &**key.get_ref())
    }

    /// Returns whether the file has the key `knob` in this table. The value may be invalid.
    pub fn has<S>(&self, knob: &Knob<S>) -> bool {
        self.content.contains_key(knob.name)
    }

    /// Returns the position of the value of `key` in the file, if this table contains the key.
    pub fn place(&self, key: &str) -> Option<Range<usize>> {
        self.content.get(key).map(Spanned::span)
    }

    /// Reports an error for each of `keys` that the table contains, because these keys have no
    /// effect. `why` is the reason, and `instead` is an alternative to removing the key.
    pub fn report_idle(&self, keys: &[&str], why: &str, instead: &str, report: &mut Report) {
        for (key, _) in self.content.iter().filter(|(key, _)| keys.contains(&&**key.get_ref())) {
            let title = format!("`{}` has no effect", key.get_ref());
            report.error(key.span(), title, why, format!("remove it, or {instead}"));
        }
    }

    /// Returns the value of the key `knob` with its position in the file. If the key is missing,
    /// returns its default with the position of the table's header. Returns `None` after reporting
    /// an invalid value, or a missing key without a default.
    pub fn value<S: Shape>(
        &self,
        knob: &Knob<S>,
        report: &mut Report,
    ) -> Option<Spanned<S::Value>> {
        if self.has(knob) {
            return self.given(knob, report);
        }
        if let Some(value) = knob.default() {
            return Some(Spanned::new(self.span(), value));
        }
        // Further errors are only counted, so the time for a comparison with all keys is saved.
        if report.is_full() || !self.is_misspelt(knob.name) {
            report.error(
                self.span(),
                format!("`{}` lacks `{}`", self.table.header, knob.name),
                format!("no `{}` in this table", knob.name),
                format!("add `{} = …`: {}", knob.name, knob.shape.describe()),
            );
        }
        None
    }

    /// Returns the value of the key `knob` with its position in the file. Returns `None` if the key
    /// is missing, or after reporting an invalid value.
    pub fn given<S: Shape>(
        &self,
        knob: &Knob<S>,
        report: &mut Report,
    ) -> Option<Spanned<S::Value>> {
        let value = self.content.get(knob.name)?;
        let read = knob.shape.read(knob.name, value, report)?;
        Some(Spanned::new(value.span(), read))
    }

    /// Returns the same as [`value`](Self::value), without the position.
    pub fn plain<S: Shape>(&self, knob: &Knob<S>, report: &mut Report) -> Option<S::Value> {
        self.value(knob, report).map(Spanned::into_inner)
    }

    /// Returns the same as [`given`](Self::given), without the position.
    pub fn given_plain<S: Shape>(&self, knob: &Knob<S>, report: &mut Report) -> Option<S::Value> {
        self.given(knob, report).map(Spanned::into_inner)
    }

    /// Calls `read` for each inner table that `table` defines, in the order of the file, and
    /// returns the results.
    pub fn read_all<T>(
        &self,
        table: &'static Table,
        read: impl Fn(&Section<'_, '_>, &mut Report) -> T,
        report: &mut Report,
    ) -> Vec<T> {
        let sections = self.sections(table, report);
        sections.iter().map(|section| read(section, report)).collect()
    }

    /// Calls `read` for the inner table that `table` defines, which occurs at most once. If the
    /// file does not contain the inner table, `read` gets an empty one.
    pub fn read_one<T>(
        &self,
        table: &'static Table,
        read: impl FnOnce(&Section<'_, '_>, &mut Report) -> T,
        report: &mut Report,
    ) -> T {
        match self.sections(table, report).first() {
            Some(section) => read(section, report),
            None => {
                let content = DeTable::new();
                let (root, span) = (self.root, self.span());
                read(&Section { root, table, content: &content, span }, report)
            }
        }
    }

    /// Calls `read` for the inner table that `table` defines, which occurs at most once. The inner
    /// `None` means that the file does not contain the inner table. The outer `None` means that
    /// `read` returned `None`.
    pub fn read_optional<T>(
        &self,
        table: &'static Table,
        read: impl Fn(&Section<'_, '_>, &mut Report) -> Option<T>,
        report: &mut Report,
    ) -> Option<Option<T>> {
        match self.read_all(table, read, report).pop() {
            None => Some(None),
            Some(read) => read.map(Some),
        }
    }

    /// Returns the inner tables that `table` defines, in the order of the file. Tables with an
    /// error in their name or in the form of their header are included, so that the errors in them
    /// are reported too.
    fn sections(&self, table: &'static Table, report: &mut Report) -> Vec<Section<'a, 'i>> {
        debug_assert!(self.table.tables.iter().any(|known| std::ptr::eq(*known, table)));
        let own = self.content.get_key_value(table.name);
        let similar = if report.is_full() { Vec::new() } else { self.similar(table.name) };
        if own.is_none() && similar.is_empty() && *table.count.start() > 0 {
            self.report_lacking(table, report);
        }
        let misspelt = similar.into_iter().filter(|entry| is_misspelling(*entry, table));
        let mut found: Vec<(&DeTable<'i>, Range<usize>)> = Vec::new();
        let mut are_right = true;
        for (key, value) in own.into_iter().chain(misspelt) {
            let tables = tables_in(value);
            let is_right = match value.get_ref() {
                DeValue::Array(items) => table.is_repeated() && tables.len() == items.len(),
                _ => !table.is_repeated(),
            };
            if !is_right || tables.is_empty() {
                are_right = false;
                report.error(
                    key.span(),
                    format!("`{}` must be written as `{}`", table.name, table.header),
                    "",
                    format!(
                        "write `{}` on a line of its own, and its keys on the lines below",
                        table.header
                    ),
                );
            }
            found.extend(tables);
        }
        found.sort_by_key(|(_, span)| span.start);
        let count_max = *table.count.end();
        if let Some((_, beyond)) = found.get(count_max) {
            report.set_incomplete();
            if are_right {
                report.error(
                    beyond.clone(),
                    format!("too many `{}`", table.header),
                    format!("this is number {}", count_max + 1),
                    format!("write at most {count_max} of these tables"),
                );
            }
        }
        found.truncate(count_max);
        let open = |(content, span)| Self::open(self.root, table, content, span, report);
        found.into_iter().map(open).collect()
    }

    fn report_lacking(&self, table: &Table, report: &mut Report) {
        let help = format!("add `{}` with {}", table.header, table.required());
        if self.table.header.is_empty() {
            report.missing(format!("no `{}`", table.header), help);
        } else {
            let title = format!("`{}` lacks `{}`", self.table.header, table.header);
            report.error(self.span(), title, format!("no `{}` below", table.header), help);
        }
    }

    fn report_unknown(&self, report: &mut Report) {
        let place = match self.table.header {
            "" => String::new(),
            header => format!(" in `{header}`"),
        };
        for key in self.unknown() {
            let name = quoted(key.get_ref());
            let inner = headers_within(self.table, key.get_ref());
            let help = match inner.is_empty() {
                // A remedy would be read by nobody, and could take time in proportion to the file.
                _ if report.is_full() => String::new(),
                true => self.remedy(key.get_ref(), self.meant_by(key), self.table.names()),
                false => format!("did you mean {}?", alternatives(inner)),
            };
            report.error(key.span(), format!("unknown key {name}{place}"), "not known here", help);
        }
    }

    /// Returns the remedy for the key `key` of the file, which this table does not have. `near` is
    /// the name that was probably meant, and `names` are all names that the table has. If related
    /// tables have the key, the remedy names them.
    pub(super) fn remedy(
        &self,
        key: &str,
        near: Option<&str>,
        names: impl Iterator<Item = &'static str>,
    ) -> String {
        let place = alternatives(self.related_with(key));
        let own = || match alternatives(names) {
            names if names.is_empty() => "remove it".to_owned(),
            names => format!("write {names}"),
        };
        match near {
            Some(near) if place.is_empty() => format!("did you mean `{near}`?"),
            Some(near) => format!("did you mean `{near}`? If not, move the key to {place}"),
            None if place.is_empty() => own(),
            // A parameter may have the name of a key with another meaning.
            None if self.table.has_free_keys => format!("move the key to {place}, or {}", own()),
            None => format!("move the key to {place}"),
        }
    }

    /// Returns the headers of the related tables that have the key `key`. Tables inside the same
    /// outermost table, such as `[[pool]]`, are related, and all tables are related to the whole
    /// file. In any other table, a key with this name has another purpose. A table in the file,
    /// unlike a key, is in no other table.
    fn related_with(&self, key: &str) -> Vec<&'static str> {
        let mut headers = Vec::new();
        if self.content.get(key).is_some_and(|value| !tables_in(value).is_empty()) {
            return headers;
        }
        let is_root = std::ptr::eq(self.table, self.root);
        for outer in self.root.tables.iter().filter(|outer| is_root || has(outer, self.table)) {
            add_headers_with(outer, key, &mut headers);
        }
        headers
    }

    fn unknown(&self) -> impl Iterator<Item = &'a Spanned<DeString<'i>>> {
        let keys = self.content.iter().map(|(key, _)| key);
        keys.filter(|key| self.table.names().all(|known| known != &**key.get_ref()))
    }

    /// Returns the unknown tables whose name is similar to that of the inner table `name`.
    fn similar(&self, name: &str) -> Vec<Entry<'a, 'i>> {
        let entries = self.unknown().filter_map(|key| self.content.get_key_value(&**key.get_ref()));
        let is_similar = |(key, value): &Entry<'a, 'i>| {
            !tables_in(value).is_empty()
                && self.meant_by(key) == Some(name)
                && headers_within(self.table, key.get_ref()).is_empty()
        };
        entries.filter(is_similar).collect()
    }

    /// Returns whether an unknown key in this table is probably a misspelling of `name`. The key
    /// `name` is then not reported as missing.
    pub(super) fn is_misspelt(&self, name: &str) -> bool {
        self.unknown().any(|key| self.meant_by(key) == Some(name))
    }

    /// Returns the known key that the unknown key `key` probably means: the most similar one that
    /// the table does not contain yet, or that may occur again.
    fn meant_by(&self, key: &Spanned<DeString<'i>>) -> Option<&'static str> {
        let value = self.content.get(&**key.get_ref());
        let holds_tables = value.is_some_and(|value| !tables_in(value).is_empty());
        let may_occur_again = |name: &str| {
            let mut inner = self.table.tables.iter();
            holds_tables && inner.any(|inner| inner.name == name && inner.is_repeated())
        };
        let names = self.table.names();
        let is_possible =
            |name: &&'static str| !self.content.contains_key(*name) || may_occur_again(name);
        nearest(key.get_ref(), names.filter(is_possible))
    }
}

/// Returns the headers of the tables called `name` that are deeper inside `table` than its own inner
/// tables.
fn headers_within(table: &Table, name: &str) -> Vec<&'static str> {
    let mut headers = Vec::new();
    for inner in table.tables {
        let called = inner.tables.iter().filter(|deeper| deeper.name == name);
        headers.extend(called.map(|deeper| deeper.header));
        headers.extend(headers_within(inner, name));
    }
    headers
}

/// Returns the tables in `value`, which may be a table or an array of tables, with their positions.
fn tables_in<'a, 'i>(value: &'a Spanned<DeValue<'i>>) -> Vec<(&'a DeTable<'i>, Range<usize>)> {
    let with_span =
        |item: &'a Spanned<DeValue<'i>>| Some((item.get_ref().as_table()?, item.span()));
    match value.get_ref() {
        DeValue::Array(items) => items.iter().filter_map(with_span).collect(),
        _ => with_span(value).into_iter().collect(),
    }
}

/// Returns whether a table in the file is meant to be `table`: its name differs by one slip, and it
/// has a key of `table`.
fn is_misspelling((key, value): Entry<'_, '_>, table: &Table) -> bool {
    let has_key = |content: &DeTable<'_>| {
        table.has_free_keys || table.names().any(|name| content.contains_key(name))
    };
    is_slip_of(key.get_ref(), table.name)
        && tables_in(value).iter().any(|(content, _)| has_key(content))
}

/// Returns whether `inner` is `table` or is inside it.
fn has(table: &Table, inner: &Table) -> bool {
    std::ptr::eq(table, inner) || table.tables.iter().any(|deeper| has(deeper, inner))
}

/// Adds to `headers` the header of `table`, if the table has the key `key`, and those of the tables
/// inside it that have the key.
fn add_headers_with(table: &Table, key: &str, headers: &mut Vec<&'static str>) {
    let has_key = (table.knobs)().iter().any(|knob| knob.name() == key);
    if has_key && !headers.contains(&table.header) {
        headers.push(table.header);
    }
    table.tables.iter().for_each(|inner| add_headers_with(inner, key, headers));
}

#[cfg(test)]
#[path = "section_tests.rs"]
mod tests;
