//! Readable tables of rejections and calls.

use serde_json::Value;

use super::overload::limit;
use super::{WIDTH, items, millis, percent, since, table_within, terminal_width, text, whole};

/// Formats the latest rejections and explains their reasons, in lines that fit a terminal.
pub(in crate::ctl) fn rejections(kept: &Value) -> String {
    rejections_within(terminal_width().unwrap_or(WIDTH), kept)
}

fn rejections_within(width: u16, kept: &Value) -> String {
    let mut rows = items(&kept["rejections"]).map(|one| vec![head(one), details(one)]).peekable();
    let is_counted = |reason: &&Value| reason["rejected"].as_u64().is_some_and(|count| count > 0);
    let mut reasons = items(&kept["reasons"]).filter(is_counted).peekable();
    if rows.peek().is_none() && reasons.peek().is_none() {
        return "nothing was rejected\n".to_owned();
    }
    let mut out = String::new();
    if rows.peek().is_some() {
        out += &table_within(Some(width), &["", ""], &[0, 1], rows);
        out += "\n";
    }
    let row = |reason: &Value| {
        vec![text(&reason["name"]), whole(&reason["rejected"]), text(&reason["doc"])]
    };
    let heads = ["reason", "rejected", ""];
    out + &table_within(Some(width), &heads, &[0, 2], reasons.map(row))
}

/// Formats the time of a rejection and its reason, in two lines.
fn head(one: &Value) -> String {
    format!("{}\n{} {}", text(&one["time"]), status(one), text(&one["reason"]))
}

fn status(one: &Value) -> String {
    one["status"].as_u64().map_or_else(|| "dropped".to_owned(), |status| status.to_string())
}

/// Formats the rejected request and the reason, with one fact on each line.
fn details(one: &Value) -> String {
    let [method, uri, source, from, to, call_id, cause] =
        ["method", "uri", "source", "from", "to", "call_id", "cause"].map(|name| text(&one[name]));
    let pool = match &one["pool"] {
        Value::Null => String::new(),
        pool => format!(", pool {}", text(pool)),
    };
    let mut lines = format!(
        "{method} {uri} from {source}{pool}\nFrom {from}\nTo {to}\nCall-ID {call_id}\n{cause}"
    );
    if let Some(load) = load(one) {
        lines += &format!("\n{load}");
    }
    lines
}

/// Formats the load that the gate saw when it rejected a request.
fn load(one: &Value) -> Option<String> {
    if one["occupancy"].is_null() {
        return None;
    }
    Some(format!(
        "limit {}, occupancy {}, p99 wait {}, {} waiting",
        limit(&one["limit"]).unwrap_or_else(|| "none".to_owned()),
        percent(&one["occupancy"]),
        millis(&one["sojourn_p99_ms"]),
        whole(&one["waiting"]),
    ))
}

/// Formats a call: its entries in the call tables, and the reason if it was rejected.
pub(in crate::ctl) fn call(call: &Value) -> String {
    let mut out: String = items(&call["calls"]).map(entry).collect();
    let is_held = !out.is_empty();
    if call["complete"] == false {
        out += "a shard did not answer in time: this shard may know the call\n";
    } else if !is_held {
        out += "no call table has this call: it ended more than 32 seconds ago, began before a \
                restart, was removed from a full table, or was sent to no back end\n";
    }
    let mut rows = items(&call["rejections"]).peekable();
    match (rows.peek().is_none(), is_held) {
        (false, _) => {}
        (true, true) => out += "there is no record of a rejection of this call\n",
        (true, false) => {
            out += "there is no record of a rejection of this call: Tidegate did not reject it, or \
                    did not keep the record (see `rejections_kept` and `rejections_per_second` in \
                    `[admin]`)\n";
        }
    }
    for one in rows {
        out += &format!(
            "{} {} {} from {}: {}, {} ({})\n",
            text(&one["time"]),
            text(&one["method"]),
            text(&one["uri"]),
            text(&one["source"]),
            status(one),
            text(&one["cause"]),
            text(&one["reason"]),
        );
        for name in ["from", "to", "pool"] {
            out += &format!("    {name}: {}\n", text(&one[name]));
        }
        if let Some(load) = load(one) {
            out += &format!("    load: {load}\n");
        }
    }
    out
}

/// Formats an entry of a call table.
fn entry(entry: &Value) -> String {
    let state = match entry["state"].as_str() {
        Some("single") => "no call, but a single request",
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept() -> Value {
        let sip =
            |user: &str| format!("<sip:{user}@{}.example.com>;tag=1234567890", "x".repeat(60));
        let one = json!({ "time": "2026-11-24T15:09:10.589Z", "source": "192.0.2.1:5060",
            "method": "INVITE", "uri": "sip:service@192.0.2.99:5060", "status": 503,
            "reason": "law", "cause": "The law in force admits only a part of the new work.",
            "pool": null, "from": sip("alice"), "to": sip("bob"),
            "call_id": format!("{}@192.0.2.1", "7".repeat(60)),
            "limit": { "kind": "window", "value": 12.5 }, "allowance": 1.0, "occupancy": 0.95,
            "sojourn_p99_ms": 51.5, "waiting": 12 });
        json!({ "rejections": [one], "reasons": [
            { "name": "law", "rejected": 7, "doc": "A long explanation. ".repeat(10) },
            { "name": "rank", "rejected": 0, "doc": "Not." },
        ] })
    }

    #[test]
    fn rejections_fit_the_terminal_and_lose_nothing() {
        for width in [80, 100, 200] {
            let shown = rejections_within(width, &kept());
            let longest = shown.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= width.into(), "{longest} of {width}:\n{shown}");
            let joined: String = shown.split_whitespace().collect();
            let one = &kept()["rejections"][0];
            for name in ["time", "source", "method", "uri", "reason"] {
                assert!(joined.contains(one[name].as_str().unwrap()), "{name}:\n{shown}");
            }
            assert!(shown.contains("limit 12.5 waiting") && !shown.contains("Not."), "{shown}");
        }
        let shown = rejections_within(250, &kept());
        let one = &kept()["rejections"][0];
        for name in ["from", "to", "call_id", "cause"] {
            assert!(shown.contains(one[name].as_str().unwrap()), "{name}:\n{shown}");
        }
    }

    #[test]
    fn drops_without_a_sample_are_shown() {
        let reason = json!({ "name": "kernel", "rejected": 700, "doc": "Unread." });
        let shown = rejections(&json!({ "rejections": [], "reasons": [reason] }));
        assert!(shown.contains("kernel") && shown.contains("700"), "{shown}");
    }
}
