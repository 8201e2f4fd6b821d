//! Tables of the responses of the admin interface, for people.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, LineStyle, Table};
use serde_json::Value;

/// Formats the process and its shards.
pub(super) fn status(status: &Value) -> String {
    let listeners: Vec<_> =
        items(&status["listeners"]).map(|l| listener(&l["transport"], &l["address"])).collect();
    let mut out = format!(
        "tidegate {}, {}, law {}, on {}\n\n",
        text(&status["version"]),
        text(&status["phase"]),
        text(&status["law"]),
        listeners.join(", ")
    );
    let heads = [
        "shard",
        "calls",
        "queued",
        "transactions",
        "offered",
        "admitted",
        "rejected",
        "socket drops",
        "connections",
    ];
    let row = |(index, shard): (usize, &Value)| {
        let transactions = whole(&shard["server_transactions"]);
        let calls = &shard["session"];
        vec![
            index.to_string(),
            whole(&shard["calls"]),
            whole(&shard["queued"]),
            transactions,
            whole(&calls["offered"]),
            whole(&calls["admitted"]),
            whole(&calls["refused"]),
            whole(&shard["socket_drops"]),
            whole(&shard["connections"]["open"]),
        ]
    };
    out += &table(&heads, &[], items(&status["shards"]).enumerate().map(row));
    out
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
            let counts = ["assigned", "refusals", "failures"];
            let [pool, name] = [&pool["name"], &backend["name"]].map(text);
            let texts = [pool, name, whereabouts(backend)];
            let counts = counts.map(|name| whole(&backend[name]));
            let limits = limits.into_iter().chain(rates);
            texts.into_iter().chain([state]).chain(limits).chain(counts).collect()
        })
    });
    table(&heads, &[0, 1, 2, 3], rows)
}

/// Formats the feedback of back ends, and that to upstream peers.
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
        let rates = ["offered_cps", "granted_cps"].map(|name| rate(&of[name]));
        texts.into_iter().chain(rates).chain([whole(&of["rejected"])]).collect()
    };
    let heads = ["peer", "is told", "standing", "offers", "may send", "rejected"];
    out += "\n";
    out += &table(&heads, &[0, 1, 2], items(&feedback["given"]).map(peer));
    out
}

/// Formats the address of a back end and the host name that resolves to it.
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

/// Formats the laws in force, and the measurements and decisions of the shards.
pub(super) fn overload(overload: &Value) -> String {
    let heads = [
        "shard",
        "occupancy",
        "waiting",
        "p99 wait",
        "socket",
        "calls admitted",
        "others admitted",
        "paced at",
        "stateful",
        "call cost",
        "reject cost",
        "bound",
    ];
    let row = |(index, shard): (usize, &Value)| {
        let paced = match shard["release_cps"].as_f64() {
            Some(rate) if rate > 0.0 => format!("{rate:.1}/s"),
            _ => "-".to_owned(),
        };
        vec![
            index.to_string(),
            percent(&shard["occupancy"]),
            whole(&shard["waiting"]),
            millis(&shard["sojourn_ms"]["new"]["p99"]),
            percent(&shard["socket_fill"]),
            percent(&shard["allowance"]["session"]),
            percent(&shard["allowance"]["single"]),
            paced,
            percent(&shard["tiers"]["share_stateful"]),
            millis(&shard["call_cost_ms"]),
            millis(&shard["refusal_cost_ms"]),
            percent(&shard["bound"]),
        ]
    };
    let mut out = in_force(overload);
    out += "\n";
    out += &table(&heads, &[], items(&overload["shards"]).enumerate().map(row));
    if !overload["shadow"].is_null() {
        out += "\n";
        out += &compared(overload);
    }
    out
}

/// Formats the laws in force, with their parameters.
pub(super) fn in_force(overload: &Value) -> String {
    let mut out = law("law", &overload["law"]);
    if !overload["shadow"].is_null() {
        out += "\n";
        out += &law("shadow", &overload["shadow"]);
    }
    out
}

fn law(role: &str, law: &Value) -> String {
    let mut out = format!("{role} {}: {}\n", text(&law["name"]), text(&law["summary"]));
    let row = |param: &Value| {
        let [value, min, max] = ["value", "min", "max"].map(|name| number(&param[name]));
        let bounds = format!("{min} to {max}");
        vec![text(&param["name"]), value, text(&param["unit"]), bounds, text(&param["doc"])]
    };
    let mut rows = items(&law["params"]).map(row).peekable();
    if rows.peek().is_some() {
        out += &table(&["", "value", "unit", "bounds", ""], &[0, 2, 3, 4], rows);
    }
    out
}

/// Formats the decisions on new calls that the shadow law would have made.
fn compared(overload: &Value) -> String {
    let heads =
        ["shard", "shadow admits", "both admit", "only the law", "only the shadow", "neither"];
    let row = |(index, shard): (usize, &Value)| {
        let shadow = &shard["shadow"];
        let compared = &shadow["compared"]["session"];
        let counts =
            ["both_admit", "only_the_law_admits", "only_the_shadow_admits", "neither_admits"];
        let counts = counts.map(|name| whole(&compared[name]));
        let allowance = percent(&shadow["allowance"]["session"]);
        [index.to_string(), allowance].into_iter().chain(counts).collect()
    };
    table(&heads, &[], items(&overload["shards"]).enumerate().map(row))
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

/// Formats the keys of the tokens.
pub(super) fn keys(keys: &Value) -> String {
    let row = |key: &Value| {
        let age = key["age_s"].as_u64().map(|age_s| format!("{age_s} s"));
        let age = age.unwrap_or_else(|| "-".to_owned());
        vec![whole(&key["version"]), text(&key["role"]), age]
    };
    let mut out = table(&["key", "role", "age"], &[1], items(&keys["keys"]).map(row));
    if keys["needs_restart"] == true {
        out += "\nthe file has another base, which is used after a restart\n";
    }
    if let Some(trouble) = keys["trouble"].as_str() {
        out += &format!("\n{trouble}\n");
    }
    out
}

/// Formats the latest rejections and explains their reasons.
pub(super) fn rejections(kept: &Value) -> String {
    let mut rows = items(&kept["refusals"]).peekable();
    if rows.peek().is_none() {
        return "nothing was rejected\n".to_owned();
    }
    let mut out = rejected(rows) + "\n";
    let reasons = items(&kept["reasons"]).filter(|reason| reason["refused"] != 0);
    let row = |reason: &Value| {
        vec![text(&reason["name"]), whole(&reason["refused"]), text(&reason["doc"])]
    };
    out += &table(&["reason", "rejected", ""], &[0, 2], reasons.map(row));
    out
}

/// Formats a call: its entries in the call tables, and the reason if it was rejected.
pub(super) fn call(call: &Value) -> String {
    let mut out: String = items(&call["calls"]).map(entry).collect();
    let is_held = !out.is_empty();
    if call["complete"] == false {
        out += "a shard did not answer in time: it may have the call in its table\n";
    } else if !is_held {
        out += "no call table has this call: it ended more than 32 seconds ago, began before a \
                restart, was removed from a full table, or was sent to no back end\n";
    }
    let mut rows = items(&call["rejections"]).peekable();
    match (rows.peek().is_none(), is_held) {
        (false, _) => {}
        (true, true) => out += "no rejection of this call is kept\n",
        (true, false) => {
            out += "no rejection of this call is kept: Tidegate did not reject it, or did so too \
                    long ago, or rejected more calls in that second than it keeps\n";
        }
    }
    for one in rows {
        let status = one["status"].as_u64().map_or_else(|| "dropped".to_owned(), |s| s.to_string());
        out += &format!(
            "{} {} {} from {}: {status}, {} ({})\n",
            text(&one["time"]),
            text(&one["method"]),
            text(&one["uri"]),
            text(&one["source"]),
            text(&one["cause"]),
            text(&one["reason"]),
        );
        for name in ["from", "to", "pool"] {
            out += &format!("    {name}: {}\n", text(&one[name]));
        }
        if !one["allowance"].is_null() {
            out += &format!(
                "    load: {} admitted, occupancy {}, p99 wait {}, {} waiting\n",
                percent(&one["allowance"]),
                percent(&one["occupancy"]),
                millis(&one["sojourn_p99_ms"]),
                whole(&one["waiting"]),
            );
        }
    }
    out
}

/// Formats an entry of a call table.
fn entry(entry: &Value) -> String {
    let state = match entry["state"].as_str() {
        Some("single") => "no call, but a single request,",
        Some("trying") => "not answered",
        Some("unacknowledged") => "answered without ACK",
        Some("established") => "established",
        Some("ending") => "ending: a BYE has no final response",
        Some("ended") => "ended, kept for retransmissions",
        _ => "-",
    };
    let counted = if entry["counted"] == true { "" } else { ", not in the calls of the back end" };
    let [pool, backend, address, source, tier] =
        ["pool", "backend", "address", "source", "tier"].map(|name| text(&entry[name]));
    format!(
        "{state}; began {} ago\n    back end: {backend} of pool {pool} at {address}{counted}\n    \
         source: {source}\n    shard: {}, {tier}; removed in {} unless a message comes\n",
        since(&entry["age_s"]),
        whole(&entry["shard"]),
        since(&entry["left_s"]),
    )
}

fn rejected<'a>(rows: impl Iterator<Item = &'a Value>) -> String {
    let names =
        ["time", "source", "method", "status", "reason", "pool", "from", "to", "uri", "call_id"];
    let heads = [
        "time",
        "source",
        "method",
        "status",
        "reason",
        "pool",
        "From",
        "To",
        "Request-URI",
        "Call-ID",
        "admitted",
        "occupancy",
        "p99 wait",
        "waiting",
        "cause",
    ];
    let row = |one: &Value| {
        let mut cells: Vec<_> = names.iter().map(|name| text(&one[*name])).collect();
        cells[3] = one["status"].as_u64().map_or_else(|| "dropped".to_owned(), |s| s.to_string());
        cells.extend([percent(&one["allowance"]), percent(&one["occupancy"])]);
        cells.extend([millis(&one["sojourn_p99_ms"]), whole(&one["waiting"])]);
        cells.push(text(&one["cause"]));
        cells
    };
    table(&heads, &[0, 1, 2, 4, 5, 6, 7, 8, 9, 14], rows.map(row))
}

/// Formats a table whose columns are aligned right, except for those in `left`.
fn table(heads: &[&str], left: &[usize], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING.header_separator(LineStyle::none().fill('─').junction('─')));
    table.set_header(heads);
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        if !left.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Formats a text that may come from the network: escapes everything that could move the cursor.
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

/// Formats the age of a state.
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
    fn untrusted_text_moves_no_cursor() {
        let refused = json!({
            "refusals": [{ "age_s": 1.25, "source": "192.0.2.1:5060", "method": "INVITE",
                "status": 503, "reason": "law", "from": "<sip:a\u{1b}@h>", "allowance": 0.5, "occupancy": 0.9, "sojourn_p99_ms": 1.5,
                "waiting": 3, "call_id": "\u{1b}[31mred\r\n" }],
            "reasons": [{ "name": "law", "refused": 7, "doc": "Why." },
                { "name": "rank", "refused": 0, "doc": "Not." }],
        });
        let shown = rejections(&refused);
        assert!(shown.contains("\\u{1b}[31mred\\r\\n") && !shown.contains('\u{1b}'), "{shown}");
        let of_call = call(&json!({ "rejections": refused["refusals"] }));
        assert!(of_call.contains(": 503, ") && !of_call.contains('\u{1b}'), "{of_call}");
        assert!(shown.contains("50.0 %") && shown.contains("Why.") && !shown.contains("Not."));
        assert_eq!(rejections(&json!({ "refusals": [] })), "nothing was rejected\n");
        assert!(call(&Value::Null).contains("no rejection of this call is kept"));
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
        assert!(lines[4].starts_with("no rejection of this call is kept") && lines.len() == 5);
        let silent = call(&json!({ "calls": [], "complete": false, "rejections": [] }));
        assert!(silent.starts_with("a shard did not answer"), "{silent}");
    }

    #[test]
    fn a_back_end_is_shown_with_its_rates_apart() {
        let shown = backends(&json!([{ "name": "app", "backends": [{
            "name": "a", "address": "192.0.2.1:5060", "state": "up", "state_s": 12.3, "calls": 7,
            "calls_max": null, "cps_max": 300.0, "learned_cps": 41.25, "cps_in_force": 41.25,
            "assigned": 90, "refusals": 2, "failures": 0,
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
        let base = "the file has another base, which is used after a restart";
        assert_eq!(shown[shown.len() - 4..], ["", base, "", "it is gone"]);
    }

    #[test]
    fn an_answer_that_lacks_something_is_shown_all_the_same() {
        for show in [status, backends, overload, in_force, rejections, call, keys] {
            show(&json!({ "shards": [{}], "listeners": 5, "shadow": {}, "refusals": [{}] }));
            show(&json!([{ "backends": [{}] }]));
            show(&Value::Null);
        }
    }
}
