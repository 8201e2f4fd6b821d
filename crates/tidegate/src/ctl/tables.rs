//! Readable tables of the responses of the admin interface.

mod overload;
mod rejections;

use std::io::{IsTerminal, stdout};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table};
use ratatui::crossterm::terminal;
use serde_json::Value;

pub(super) use overload::{in_force, overload};
pub(super) use rejections::{call, rejections};

/// Width, in characters, to which texts are wrapped if there is no terminal.
const WIDTH: u16 = 100;

/// A note below the counts of new calls. The kernel counts dropped INVITEs and dropped REGISTERs
/// together.
const DROPPED: &str =
    "`arrived` and `kernel drops` of the calls also count the REGISTERs that the kernel dropped\n";

/// Formats the state of the process, of its pools and of its shards.
pub(super) fn status(status: &Value) -> String {
    let listeners: Vec<_> =
        items(&status["listeners"]).map(|l| listener(&l["transport"], &l["address"])).collect();
    let mut out = format!(
        "tidegate {}, {}, law {}, on {}\n",
        text(&status["version"]),
        text(&status["phase"]),
        text(&status["law"]),
        listeners.join(", ")
    );
    out += &items(&status["pools"]).map(pool).collect::<String>();
    let heads = [
        "shard",
        "calls in progress",
        "calls ended",
        "queued",
        "transactions",
        "connections",
        "socket drops",
    ];
    let row = |(index, shard): (usize, &Value)| {
        let in_progress = match (shard["calls"].as_u64(), shard["calls_over"].as_u64()) {
            (Some(calls), Some(over)) => Some(calls.saturating_sub(over)),
            _ => None,
        };
        let drops = ["socket_drops", "emulated_drops"].map(|name| shard[name].as_u64());
        vec![
            index.to_string(),
            whole(&in_progress.into()),
            whole(&shard["calls_over"]),
            whole(&shard["queued"]),
            whole(&shard["server_transactions"]),
            whole(&shard["connections"]["open"]),
            drops.iter().flatten().sum::<u64>().to_string(),
        ]
    };
    out += "\n";
    out += &table(&heads, &[], items(&status["shards"]).enumerate().map(row));
    let heads = [
        "shard",
        "new calls",
        "arrived",
        "repeated",
        "kernel drops",
        "offered",
        "admitted",
        "rejected",
    ];
    let row = |(index, shard): (usize, &Value)| {
        let names = ["arrived", "repeated", "dropped_in_kernel", "offered", "admitted", "rejected"];
        let counts = names.map(|name| whole(&shard["new_calls"][name]));
        [index.to_string(), "since the start".to_owned()].into_iter().chain(counts).collect()
    };
    out += "\n";
    out += &table(&heads, &[1], items(&status["shards"]).enumerate().map(row));
    out += note_on_drops(items(&status["shards"]).map(|shard| &shard["new_calls"]));
    out
}

/// Returns a note on the counts or rates of new calls if the kernel dropped some requests, and an
/// empty text otherwise.
fn note_on_drops<'a>(mut new_calls: impl Iterator<Item = &'a Value>) -> &'static str {
    let some = |calls: &Value| calls["dropped_in_kernel"].as_f64().is_some_and(|drops| drops > 0.0);
    if new_calls.any(some) { DROPPED } else { "" }
}

/// Formats how many back ends of a pool take new calls. Returns an empty text for a pool that was
/// removed from the configuration and has only back ends that finish their calls.
fn pool(pool: &Value) -> String {
    let name = text(&pool["name"]);
    let configured = || items(&pool["backends"]).filter(|backend| backend["state"] != "removed");
    let (up, all) = (configured().filter(|b| b["up"] == true).count(), configured().count());
    let has_former = all < items(&pool["backends"]).count();
    match (up, all) {
        (0, 0) if has_former && pool["domains"].is_null() => String::new(),
        (0, 0) => format!("pool {name}: no back end is known, so new calls get a 503\n"),
        (0, all) => format!("pool {name}: no back end takes new calls (0 of {all} up)\n"),
        (up, all) => format!("pool {name}: {up} of {all} back ends up\n"),
    }
}

fn listener(transport: &Value, address: &Value) -> String {
    format!("{} {}", text(transport), text(address))
}

/// Formats the back ends of every pool.
pub(super) fn backends(pools: &Value) -> String {
    let heads = [
        "pool", "back end", "address", "state", "calls", "of", "cps max", "learned", "in force",
        "assigned", "503s", "failures",
    ];
    let rows = items(pools).flat_map(|pool| {
        items(&pool["backends"]).map(move |backend| {
            let state = format!("{} {}", text(&backend["state"]), since(&backend["state_s"]));
            let limits = [whole(&backend["calls"]), whole(&backend["calls_max"])];
            let rates = ["cps_max", "learned_cps", "cps_in_force"];
            let rates = rates.map(|name| rate(&backend[name]));
            let counts = ["assigned", "rejections", "failures"];
            let [pool, name] = [&pool["name"], &backend["name"]].map(text);
            let texts = [pool, name, whereabouts(backend)];
            let counts = counts.map(|name| whole(&backend[name]));
            let limits = limits.into_iter().chain(rates);
            texts.into_iter().chain([state]).chain(limits).chain(counts).collect()
        })
    });
    table(&heads, &[0, 1, 2, 3], rows)
}

/// Formats the feedback from back ends, and the feedback to upstream peers.
pub(super) fn feedback(feedback: &Value) -> String {
    let asked = |of: &Value| match of["algorithm"].as_str() {
        Some(algorithm) => format!("{algorithm} {}", whole(&of["value"])),
        None => "-".to_owned(),
    };
    let next_hop =
        |of: &Value| vec![text(&of["address"]), asked(of), whole(&of["sent"]), whole(&of["held"])];
    let received = items(&feedback["received"]).map(next_hop);
    let mut out = table(&["back end", "asks for", "sent", "held back"], &[0, 1], received);
    let peer = |of: &Value| {
        let texts = [text(&of["address"]), asked(of), text(&of["standing"])];
        let claimed = match of["doubted"] == true {
            true => format!("{}, doubted", rate(&of["claimed_cps"])),
            false => rate(&of["claimed_cps"]),
        };
        let rates = ["offered_cps", "granted_cps"].map(|name| rate(&of[name]));
        texts.into_iter().chain([claimed]).chain(rates).chain([whole(&of["rejected"])]).collect()
    };
    let heads = ["peer", "is told", "standing", "claims", "offers", "may send", "rejected"];
    out += "\n";
    out += &table(&heads, &[0, 1, 2], items(&feedback["given"]).map(peer));
    out
}

/// Formats the address of a back end and, if the back end is configured by host name, this name.
fn whereabouts(backend: &Value) -> String {
    let resolution = &backend["resolution"];
    let address = match &backend["address"] {
        Value::Null => "-".to_owned(),
        address => text(address),
    };
    match resolution["host"].as_str() {
        None => address,
        Some(host) if resolution["stale"] == true => format!("{address} ({host}, stale)"),
        Some(host) => format!("{address} ({host})"),
    }
}

/// Formats the banned sources.
pub(super) fn bans(bans: &Value) -> String {
    let row = |ban: &Value| {
        let left = ban["seconds"].as_f64().unwrap_or_default();
        let rate = ban["rate_cps"].as_u64().map_or_else(String::new, |rate| format!("{rate}/s"));
        let calls = if ban["has_calls"] == true { "yes" } else { "none" };
        let left = format!("{left:.0} s");
        vec![text(&ban["source"]), text(&ban["cause"]), left, rate, calls.to_owned()]
    };
    let mut rows = items(bans).map(row).peekable();
    if rows.peek().is_none() {
        return "no source is banned\n".to_owned();
    }
    table(&["source", "why", "left", "sent", "calls"], &[0, 1], rows) + "\n"
}

/// Formats the keys for the tokens in Record-Route.
pub(super) fn keys(keys: &Value) -> String {
    let row = |key: &Value| {
        let age = key["age_s"].as_u64().map(|age_s| format!("{age_s} s"));
        let age = age.unwrap_or_else(|| "-".to_owned());
        vec![whole(&key["version"]), text(&key["role"]), age]
    };
    let mut out = table(&["key", "role", "age"], &[1], items(&keys["keys"]).map(row));
    if keys["needs_restart"] == true {
        out += "\nthe key file has a different base key; Tidegate uses it after a restart\n";
    }
    if let Some(trouble) = keys["trouble"].as_str() {
        out += &format!("\n{trouble}\n");
    }
    out
}

/// Formats a table. Its columns are aligned right, except for those whose indices are in `left`. On
/// a terminal, cells are wrapped so that the table fits the width of the terminal.
fn table(heads: &[&str], left: &[usize], rows: impl Iterator<Item = Vec<String>>) -> String {
    table_within(terminal_width(), heads, left, rows)
}

/// Formats a table whose lines have at most `width` characters, by wrapping its cells. With `None`,
/// the lines may have any length.
fn table_within(
    width: Option<u16>,
    heads: &[&str],
    left: &[usize],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING.header_separator(LineStyle::none().fill('─').junction('─')));
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    if heads.iter().any(|head| !head.is_empty()) {
        table.set_header(heads);
    }
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        if !left.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Returns the width, in characters, of the terminal on standard output, or `None` if standard
/// output is no terminal.
fn terminal_width() -> Option<u16> {
    let size = stdout().is_terminal().then(terminal::size)?;
    size.ok().map(|(width, _)| width).filter(|width| *width > 0)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Formats a text that may come from the network. Escapes all characters that could move the
/// cursor.
fn text(value: &Value) -> String {
    let plain = |c: char| match c {
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    value.as_str().unwrap_or("-").chars().map(plain).collect()
}

fn number(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// Formats a time in seconds.
fn since(seconds: &Value) -> String {
    seconds.as_f64().map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0} s"))
}

fn whole(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string())
}

fn rate(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |cps| format!("{cps:.1}"))
}

fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 1e2))
}

fn millis(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2} ms"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn untrusted_text_cannot_move_the_cursor() {
        let rejected = json!({
            "rejections": [{ "age_s": 1.25, "source": "192.0.2.1:5060", "method": "INVITE",
                "status": 503, "reason": "law", "from": "<sip:a\u{1b}@h>", "allowance": 0.5, "occupancy": 0.9, "sojourn_p99_ms": 1.5,
                "waiting": 3, "call_id": "\u{1b}[31mred\r\n" }],
            "reasons": [{ "name": "law", "rejected": 7, "doc": "Why." },
                { "name": "rank", "rejected": 0, "doc": "Not." }],
        });
        let shown = rejections(&rejected);
        assert!(shown.contains("\\u{1b}[31mred\\r\\n") && !shown.contains('\u{1b}'), "{shown}");
        let of_call = call(&json!({ "rejections": rejected["rejections"] }));
        assert!(of_call.contains(": 503, ") && !of_call.contains('\u{1b}'), "{of_call}");
        assert!(shown.contains("90.0 %") && shown.contains("Why.") && !shown.contains("Not."));
        assert_eq!(rejections(&json!({ "rejections": [] })), "nothing was rejected\n");
        assert!(call(&Value::Null).contains("there is no record of a rejection of this call"));
    }

    #[test]
    fn a_status_shows_the_back_ends_that_are_up_and_the_results_of_new_calls() {
        let backend = |state: &str| json!({ "name": "a", "state": state, "up": state != "down" });
        let pool = |name: &str, states: &[&str]| {
            let backends: Vec<_> = states.iter().map(|state| backend(state)).collect();
            json!({ "name": name, "backends": backends })
        };
        let mut unresolved = pool("c", &["removed"]);
        unresolved["domains"] = json!([{ "domain": "example.com" }]);
        let new_calls = json!({ "arrived": 571, "repeated": 7, "dropped_in_kernel": 450,
            "offered": 114, "admitted": 56, "rejected": 53 });
        let shard = json!({ "calls": 40, "calls_over": 31, "queued": 2, "socket_drops": 3,
            "emulated_drops": 5, "new_calls": new_calls, "session": { "rejected": 1 } });
        let shown = status(&json!({ "version": "1", "phase": "admitting", "law": "tide",
            "pools": [pool("app", &["up", "slow-start", "down", "removed"]), pool("b", &["down"]),
                pool("gone", &["removed"]), unresolved],
            "shards": [shard] }));
        assert!(shown.contains("\npool app: 2 of 3 back ends up\n"), "{shown}");
        assert!(shown.contains("\npool b: no back end takes new calls (0 of 1 up)\n"), "{shown}");
        assert!(!shown.contains("pool gone"), "its last calls are no outage: {shown}");
        assert!(shown.contains("\npool c: no back end is known, "), "{shown}");
        let rows: Vec<Vec<_>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["0", "9", "31", "2", "-", "-", "8"]), "{shown}");
        let counts = ["0", "since", "the", "start", "571", "7", "450", "114", "56", "53"].to_vec();
        assert!(rows.contains(&counts), "{shown}");
        assert!(shown.ends_with(DROPPED), "{shown}");
    }

    #[test]
    fn a_call_in_progress_is_shown_with_its_back_end() {
        let entry = json!({ "shard": 1, "state": "established", "pool": "app", "backend": "a\u{1b}",
            "address": "192.0.2.1:5060", "age_s": 131.7, "left_s": 10_668.0, "tier": "stateless",
            "source": "198.51.100.7/32", "counted": true });
        let shown = call(&json!({ "calls": [entry], "complete": true, "rejections": [] }));
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "established; began 132 s ago");
        assert_eq!(lines[1], "    back end: a\\u{1b} of pool app at 192.0.2.1:5060");
        assert_eq!(lines[2], "    source: 198.51.100.7/32");
        assert_eq!(lines[3], "    shard: 1, stateless; removed in 10668 s unless a message comes");
        assert!(lines[4].starts_with("there is no record of a rejection") && lines.len() == 5);
        let silent = call(&json!({ "calls": [], "complete": false, "rejections": [] }));
        assert!(silent.starts_with("a shard did not answer"), "{silent}");
    }

    #[test]
    fn a_back_end_is_shown_with_each_of_its_rates() {
        let shown = backends(&json!([{ "name": "app", "backends": [{
            "name": "a", "address": "192.0.2.1:5060", "state": "up", "state_s": 12.3, "calls": 7,
            "calls_max": null, "cps_max": 300.0, "learned_cps": 41.25, "cps_in_force": 41.25,
            "assigned": 90, "rejections": 2, "failures": 0,
        }] }]));
        let cells = |line: &str| -> Vec<String> {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let mut lines = shown.lines();
        let heads = cells(lines.next().unwrap());
        assert_eq!(heads[4..9], ["calls", "of", "cps max", "learned", "in force"]);
        let row = cells(lines.last().unwrap());
        assert_eq!(row[3..], ["up 12 s", "7", "-", "300.0", "41.2", "41.2", "90", "2", "0"]);
    }

    #[test]
    fn keys_are_shown_with_their_problems() {
        let key = |version: u32, role: &str, age_s: Option<u64>| json!({ "version": version, "role": role, "age_s": age_s });
        let both = json!([key(12, "next", Some(5)), key(7, "current", None)]);
        let lines = |answer: Value| keys(&answer).lines().map(str::to_owned).collect::<Vec<_>>();
        let shown = lines(json!({ "keys": both, "needs_restart": false, "trouble": null }));
        let cells: Vec<Vec<_>> =
            shown.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["key", "role", "age"]);
        assert_eq!(
            cells[cells.len() - 2..],
            [vec!["12", "next", "5", "s"], vec!["7", "current", "-"]]
        );
        let shown = lines(json!({ "keys": both, "needs_restart": true, "trouble": "it is gone" }));
        let base = "the key file has a different base key; Tidegate uses it after a restart";
        assert_eq!(shown[shown.len() - 4..], ["", base, "", "it is gone"]);
    }

    #[test]
    fn incomplete_answers_are_shown() {
        for show in [status, backends, overload, in_force, rejections, call, keys] {
            show(&json!({ "shards": [{}], "listeners": 5, "shadow": {}, "rejections": [{}] }));
            show(&json!([{ "backends": [{}] }]));
            show(&Value::Null);
        }
    }
}
