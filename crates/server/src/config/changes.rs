//! Finds the changes of a configuration that need a restart of the process.

use super::Config;
use super::knob::Reload;
use super::written::{self, Written, WrittenKey};

/// The keys of a table that apply only at a restart, with their values.
type FixedKeys<'a> = Vec<&'a WrittenKey>;

/// Returns a text for each key that differs between `old` and `new` and applies only at a restart.
/// Each text names the key, with the header of its table in front, and both values, such as
/// `` `[server] shards` (from `1` to `2`) ``. A table that was added or removed has a text with its
/// header and its keys. The texts do not show two long values that begin alike.
pub fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (written::config(old), written::config(new));
    let mut changed = Vec::new();
    for header in distinct(new.iter().chain(&old).map(|written| written.table.header)) {
        let (before, after) = (fixed(header, &old), fixed(header, &new));
        if before != after {
            add_tables(header, &before, &after, &mut changed);
        }
    }
    changed
}

/// Returns the keys of each of `tables` that has this `header`. Leaves out tables without keys that
/// apply only at a restart.
fn fixed<'a>(header: &str, tables: &'a [Written]) -> Vec<FixedKeys<'a>> {
    let of_table = |written: &'a Written| {
        let keys = written.keys.iter().filter(|key| key.reload == Reload::Restart);
        keys.collect::<Vec<_>>()
    };
    let tables = tables.iter().filter(|written| written.table.header == header);
    tables.map(of_table).filter(|keys| !keys.is_empty()).collect()
}

/// Adds a text for each difference between `before` and `after`, the tables with this `header`. At
/// least one table differs, or their order.
fn add_tables(
    header: &str,
    before: &[FixedKeys<'_>],
    after: &[FixedKeys<'_>],
    changed: &mut Vec<String>,
) {
    let (removed, added) = (without(before, after), without(after, before));
    if removed.is_empty() && added.is_empty() {
        changed.push(format!("`{header}` (in another order)"));
    } else if removed.len() == added.len() {
        for ((_, old), (index, new)) in removed.into_iter().zip(added) {
            let which = match after.len() {
                1 => String::new(),
                _ => format!("number {}, ", index + 1),
            };
            add_keys(header, &which, old, new, changed);
        }
    } else {
        let whole = |word: &str, keys: &FixedKeys<'_>| {
            let keys = keys.iter().filter(|key| !key.is_default).map(ToString::to_string);
            let keys: Vec<_> = keys.collect();
            match keys.is_empty() {
                true => format!("`{header}` ({word})"),
                false => format!("`{header}` ({word}: {})", in_backticks(&keys.join(", "))),
            }
        };
        changed.extend(removed.into_iter().map(|(_, keys)| whole("removed", keys)));
        changed.extend(added.into_iter().map(|(_, keys)| whole("added", keys)));
    }
}

/// Returns the tables in `some` that are not in `others`, with their indices.
fn without<'t, 'k>(
    some: &'t [FixedKeys<'k>],
    others: &[FixedKeys<'k>],
) -> Vec<(usize, &'t FixedKeys<'k>)> {
    let mut others: Vec<_> = others.iter().collect();
    let mut left = Vec::new();
    for (index, keys) in some.iter().enumerate() {
        match others.iter().position(|other| *other == keys) {
            Some(same) => {
                others.swap_remove(same);
            }
            None => left.push((index, keys)),
        }
    }
    left
}

/// Adds a text for each key that differs between `before` and `after`, the keys of one table.
/// `which` says which table with this `header` is meant.
fn add_keys(
    header: &str,
    which: &str,
    before: &FixedKeys<'_>,
    after: &FixedKeys<'_>,
    changed: &mut Vec<String>,
) {
    let value = |keys: &FixedKeys<'_>, name: &str| {
        let key = keys.iter().find(|key| key.name == name);
        key.map(|key| in_backticks(&key.value))
    };
    for name in distinct(after.iter().chain(before).map(|key| key.name)) {
        let is_it = |key: &&&WrittenKey| key.name == name;
        if before.iter().find(is_it) == after.iter().find(is_it) {
            continue;
        }
        let how = match (value(before, name), value(after, name)) {
            // Both values are cut before their first difference.
            (Some(old), Some(new)) if old == new => "changed".to_owned(),
            (Some(old), Some(new)) => format!("from {old} to {new}"),
            (Some(old), None) => format!("removed: {old}"),
            (None, Some(new)) => format!("added: {new}"),
            (None, None) => continue,
        };
        changed.push(format!("`{header} {name}` ({which}{how})"));
    }
}

/// Returns `text` in backticks. A long text is cut.
fn in_backticks(text: &str) -> String {
    const SHOWN_MAX: usize = 200;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// Returns each name once, in the order of first occurrence.
fn distinct(names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::knob::Documented;
    use crate::config::tables::ROOT;

    const PLACES: &str = "[[pool]]\nname = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1\"\n";
    const LISTEN: &str = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n";

    fn config(text: &str) -> Config {
        let listen = if text.contains("[[listen]]") { "" } else { LISTEN };
        let text = format!("{PLACES}{listen}{text}");
        Config::parse(Path::new("f"), text.as_bytes()).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    #[test]
    fn every_table_with_a_key_that_needs_a_restart_is_compared() {
        let written = written::config(&config("[emulate]\n"));
        for table in ROOT.tables {
            let is_fixed = |knob: &&dyn Documented| knob.reload() == Some(Reload::Restart);
            let is_compared = written.iter().any(|written| written.table.header == table.header);
            assert!(is_compared || !(table.knobs)().iter().any(is_fixed), "{}", table.header);
        }
    }

    #[test]
    fn keys_that_need_a_restart_are_named() {
        for (text, keys) in [
            ("[server]\nshards = 1\n", &[][..]),
            ("[server]\nshards = 2\nqueue_max = 999\n", &["[server] shards", "[server] queue_max"]),
            (
                "[server]\nkey_rotate_h = 5\nkey_settle_s = 99\n",
                &["[server] key_rotate_h", "[server] key_settle_s"],
            ),
            (
                // `gso_padding` has no effect without `gso`, so it counts as changed too.
                "[server]\ngso = false\nname = \"\"\n",
                &["[server] gso", "[server] name", "[server] gso_padding"],
            ),
            ("[admin]\nhosts = [\"x\"]\n", &["[admin] hosts"]),
            (
                "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:1\"\n",
                &["[[listen]] address"],
            ),
            ("[connections]\nidle_seconds = 99\n", &["[connections] idle_seconds"]),
            ("[emulate]\n", &["[emulate]"]),
            ("[overload]\nlaw = \"pi\"\n[overload.shadow]\nlaw = \"occ\"\n", &[]),
            (
                // `rejecting_max` has no effect with `drop`, so it counts as changed too.
                "[overload]\nlaw = \"pi\"\ndisposal = \"drop\"\n",
                &["[overload] disposal", "[overload] rejecting_max"],
            ),
            ("[overload]\n[overload.sources]\nfair = false\n", &["[overload.sources] fair"]),
            (
                "[[pool]]\nname = \"b\"\n[[pool.backend]]\nuri = \"sip:127.0.0.2\"\n\
              [[route]]\nto = \"b\"\n",
                &[],
            ),
        ] {
            let told = needs_restart(&config(""), &config(text));
            let names: Vec<_> = told.iter().filter_map(|text| text.split('`').nth(1)).collect();
            assert_eq!(names, keys, "{text}");
        }
    }

    /// A regression: for a changed `[[listen]]`, only the header was named.
    #[test]
    fn both_values_of_a_changed_key_are_named() {
        let listen = |port: u16, more: &str| {
            format!("[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:{port}\"\n{more}")
        };
        let [one, two, three] = [1, 2, 3].map(|port| listen(port, ""));
        let told = |old: &str, new: &str| needs_restart(&config(old), &config(new)).join(", ");
        assert_eq!(told("", "[server]\nshards = 2\n"), "`[server] shards` (from `1` to `2`)");
        assert_eq!(
            told(&one, &listen(2, "name = \"a\"\ntrust = [\"10.0.0.0/8\"]\n")),
            "`[[listen]] name` (added: `\"a\"`), `[[listen]] address` (from `\"127.0.0.1:1\"` to \
             `\"127.0.0.1:2\"`), `[[listen]] trust` (from `[]` to `[\"10.0.0.0/8\"]`)"
        );
        assert_eq!(
            told(&format!("{one}{two}"), &format!("{one}{three}")),
            "`[[listen]] address` (number 2, from `\"127.0.0.1:2\"` to `\"127.0.0.1:3\"`)"
        );
        assert_eq!(
            told(&format!("{one}{two}"), &two),
            "`[[listen]]` (removed: `transport = \"udp\", address = \"127.0.0.1:1\"`)"
        );
        let (before, after) = (format!("{one}{two}"), format!("{two}{one}"));
        assert_eq!(told(&before, &after), "`[[listen]]` (in another order)");
        assert!(told("", "[emulate]\n").starts_with("`[emulate]` (added"));
        // A long value is cut.
        let trusting = |count: u8| {
            let networks: Vec<_> = (0..count).map(|n| format!("\"10.0.{n}.0/24\"")).collect();
            listen(1, &format!("trust = [{}]\n", networks.join(", ")))
        };
        let many = told(&one, &trusting(99));
        assert!(many.ends_with("…`)") && many.len() < 300, "{many}");
        // A regression: both values were shown, and looked alike.
        assert_eq!(told(&trusting(20), &trusting(21)), "`[[listen]] trust` (changed)");
    }
}
