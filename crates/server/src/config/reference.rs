//! Generates `docs/configuration.md` from the definitions of the keys. The code that reads a
//! configuration file uses the same definitions.

use std::fmt::Write;

use tidegate_balance::registry::POLICIES;
use tidegate_control::Reason;
use tidegate_control::registry::LAWS;
use tidegate_world::param::Entry;
use tidegate_world::{Kind, Param, Registry};

use super::knob::{Absent, Documented, Reload, Table};
use super::tables::ROOT;
use super::tables::overload::PARAMS;
use super::tables::pool::POOL_PARAMS;

const HEAD: &str = "\
# Configuration

Generated from the program: change the keys in `crates/server/src/config/tables`, then run
`TIDEGATE_BLESS=1 cargo test -p tidegate-server --test reference`.

A configuration is one TOML file. `tidegate check FILE` reports the errors in it: unknown keys, wrong types,
values out of bounds, contradictions, and certificate and key files that cannot be used, each with its line and
the remedy. Tidegate does not start if the file has an error. `check` reports as many errors at once as
possible, but some errors hide others. After an error in the TOML syntax, it reports only errors of this kind. It
reads an unknown table only if its name differs by a typing error from a known one. If there are too many tables of
a kind, it reads only the first ones, compares them with nothing, and reads no certificates. It cannot check the
parameters of a law or policy that does not exist, and it does not compare a value that is wrong with other values.
Of more than 50 errors it shows 50. [papers.md](papers.md) lists the papers that this page cites by number. The
smallest configuration:

```toml
[[listen]]
transport = \"udp\"
address = \"127.0.0.1:5060\"

[[pool]]
name = \"app\"
[[pool.backend]]
uri = \"sip:127.0.0.1:5070\"
[[pool.backend]]
uri = \"sip:127.0.0.1:5071\"
```
";

/// Returns the reference of every table and key, in Markdown.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    for table in ROOT.tables {
        describe_all(table, &mut out);
    }
    describe_reasons(&mut out);
    out
}

/// Appends the list of reasons for rejections. `/metrics`, `/rejections` and `tidegate ctl` use the
/// same names.
fn describe_reasons(out: &mut String) {
    out.push_str("\n## Why new work is rejected\n\n");
    for reason in Reason::ALL {
        let _ = writeln!(out, "- **`{}`**: {}", reason.name(), reason.doc());
    }
}

/// Appends the description of `table` and its keys, in Markdown, without its inner tables.
pub fn describe(table: &Table, out: &mut String) {
    let depth = if table.header.contains('.') { "###" } else { "##" };
    let _ = writeln!(
        out,
        "\n{depth} `{}`\n\n{} {}\n",
        table.header,
        table.doc.trim_start(),
        count(table)
    );
    let knobs = (table.knobs)();
    let usual = usual_reload(&knobs);
    if let Some(reload) = usual {
        let _ = writeln!(out, "Changes apply {reload}.\n");
    }
    for knob in knobs {
        describe_knob(knob, out);
        if let Some(reload) = knob.reload().filter(|reload| usual != Some(*reload)) {
            let _ = writeln!(out, "  Changes apply {reload}.");
        }
    }
}

/// Returns the [`Reload`] that most of these keys have, or `None` if no key has one.
fn usual_reload(knobs: &[&dyn Documented]) -> Option<Reload> {
    let count = |class: &Reload| knobs.iter().filter(|knob| knob.reload() == Some(*class)).count();
    let classes = [Reload::Live, Reload::NewCalls, Reload::Restart];
    classes.into_iter().max_by_key(count).filter(|class| count(class) > 0)
}

fn describe_all(table: &Table, out: &mut String) {
    describe(table, out);
    if std::ptr::eq(table, &PARAMS) {
        describe_entries(&LAWS, out);
    }
    if std::ptr::eq(table, &POOL_PARAMS) {
        describe_entries(&POLICIES, out);
    }
    for inner in table.tables {
        describe_all(inner, out);
    }
}

fn describe_entries<K: Kind>(registry: &Registry<K>, out: &mut String) {
    let kind = capital(K::WORD);
    for Entry { name, summary, source, doc, params, .. } in registry.iter() {
        let summary = capital(summary);
        let _ = writeln!(out, "\n#### {kind} `{name}`\n\n{summary}. {doc} Source: {source}.");
        if !params.is_empty() {
            out.push('\n');
        }
        for Param { name, doc, unit, default, range } in *params {
            let _ = writeln!(out, "- **`{name}`** ({unit}): {range}.");
            let _ = writeln!(out, "  If absent: `{default}`.\n  {doc}");
        }
    }
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

fn describe_knob(knob: &dyn Documented, out: &mut String) {
    let _ = writeln!(out, "- **`{}`**: {}.", knob.name(), knob.describe());
    let _ = match knob.absent() {
        Absent::Required => writeln!(out, "  This key is required."),
        absent => writeln!(out, "  If absent: {absent}."),
    };
    let _ = writeln!(out, "  {}", knob.doc());
}

fn count(table: &Table) -> String {
    match (table.count.start(), table.count.end()) {
        (0, 1) => "You can leave out this table.".to_owned(),
        (least, most) => format!("There can be {least} to {most} of these tables."),
    }
}
