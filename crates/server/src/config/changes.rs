//! Finds the changes of a configuration that need a restart of the process.

use super::Config;
use super::knob::Reload;
use super::written::{self, Written};

/// Returns the keys that differ between `old` and `new` and apply only at a restart. Each key has
/// the header of its table in front, such as `[server] shards`. For a table that was added or
/// removed, and for a table that may occur several times, returns only the header of the table.
pub fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (written::config(old), written::config(new));
    let mut changed = Vec::new();
    for header in distinct(new.iter().chain(&old).map(|written| written.table.header)) {
        match (&fixed(header, &old)[..], &fixed(header, &new)[..]) {
            (before, after) if before == after => {}
            ([before], [after]) if !header.starts_with("[[") => {
                let is_same = |key| before.contains(key) && after.contains(key);
                let differing = after.iter().chain(before).filter(|key| !is_same(key));
                let names = distinct(differing.map(|(name, _)| *name));
                changed.extend(names.iter().map(|name| format!("{header} {name}")));
            }
            _ => changed.push(header.to_owned()),
        }
    }
    changed
}

/// Returns the keys that apply only at a restart, with their values, for each of `tables` that has
/// this `header`. Leaves out tables without such keys.
fn fixed<'a>(header: &str, tables: &'a [Written]) -> Vec<Vec<(&'static str, &'a str)>> {
    let of_table = |written: &'a Written| {
        let keys = written.keys.iter().filter(|key| key.reload == Reload::Restart);
        keys.map(|key| (key.name, &*key.value)).collect::<Vec<_>>()
    };
    let tables = tables.iter().filter(|written| written.table.header == header);
    tables.map(of_table).filter(|keys| !keys.is_empty()).collect()
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
            ("[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:1\"\n", &["[[listen]]"]),
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
            assert_eq!(needs_restart(&config(""), &config(text)), keys, "{text}");
        }
    }
}
