//! Readable tables of the state of overload control.

use serde_json::Value;

use super::{items, millis, note_on_drops, number, percent, rate, table, text, whole};

/// Formats the laws in force, the rates of new work in the last second, the heavy sources, the
/// measurements of the shards, and the comparison with a shadow law.
pub(in crate::ctl) fn overload(overload: &Value) -> String {
    let mut out = in_force(overload);
    out += "\n";
    out += &last_second(overload);
    out += "\n";
    out += &heavy(overload);
    out += &signals(overload);
    if !overload["shadow"].is_null() {
        out += "\n";
        out += &compared(overload);
    }
    out
}

/// Formats the laws in force, with their parameters.
pub(in crate::ctl) fn in_force(overload: &Value) -> String {
    let mut out = law("law", &overload["law"]);
    if !overload["shadow"].is_null() {
        out += "\n";
        out += &law("shadow", &overload["shadow"]);
    }
    out
}

/// Formats the rates of new work in the last second, and the limit that the law sets.
fn last_second(overload: &Value) -> String {
    let heads = [
        "shard",
        "in the last second",
        "arrived",
        "repeated",
        "kernel drops",
        "offered",
        "admitted",
        "rejected",
        "limit",
    ];
    let row = |index: usize, shard: &Value, kind: &str, name: &str, bucket: &str| {
        let rates = &shard["last_second"][name];
        let names = ["arrived", "repeated", "dropped_in_kernel", "offered", "admitted", "rejected"];
        let rates = names.map(|name| rate(&rates[name]));
        let cells = [index.to_string(), kind.to_owned()].into_iter().chain(rates);
        cells.chain([limits(shard, bucket)]).collect::<Vec<_>>()
    };
    let rows = items(&overload["shards"]).enumerate().flat_map(|(index, shard)| {
        [
            row(index, shard, "calls/s", "calls", "session"),
            row(index, shard, "other requests/s", "others", "single"),
        ]
    });
    let calls = items(&overload["shards"]).map(|shard| &shard["last_second"]["calls"]);
    table(&heads, &[1, 8], rows) + note_on_drops(calls)
}

/// Formats the kind of requests that the kernel drops, the heavy sources, and the sources that
/// flood with emergency calls, with an empty line at the end. Returns an empty text if the share to
/// drop is 0 and no source floods.
fn heavy(overload: &Value) -> String {
    let mut out = match overload["kernel_drops"].as_str() {
        Some("heavy") => "the kernel drops INVITEs and REGISTERs of heavy sources only\n",
        Some("all") => {
            "the kernel drops INVITEs and REGISTERs of all sources that it does not spare\n"
        }
        // While the share to drop is 0, the kernel drops only requests that arrive in too many
        // copies.
        _ if items(&overload["emergency_floods"]).next().is_some() => {
            "the kernel may drop emergency calls of sources that send too many of them\n"
        }
        _ => return String::new(),
    }
    .to_owned();
    let row = |heavy: &Value| vec![text(&heavy["source"]), rate(&heavy["rate_cps"]) + "/s"];
    let lists =
        [("heavy source", "heavy_sources"), ("flood of emergency calls", "emergency_floods")];
    for (head, key) in lists {
        let mut rows = items(&overload[key]).map(row).peekable();
        if rows.peek().is_some() {
            out += "\n";
            out += &table(&[head, "sent"], &[0], rows);
        }
    }
    out + "\n"
}

/// Formats all limits that the law sets on the work in a bucket, each in its own unit.
fn limits(shard: &Value, bucket: &str) -> String {
    let mut limits: Vec<_> = limit(&shard["limit"][bucket]).into_iter().collect();
    let positive = |name: &str| shard[name].as_f64().filter(|number| *number > 0.0);
    if bucket == "session" {
        if let Some(waiting_max) = shard["waiting_max"].as_u64() {
            limits.push(format!("a queue of {waiting_max}"));
        }
        if let Some(wait_max_ms) = positive("wait_max_ms") {
            limits.push(format!("a wait of {wait_max_ms:.0} ms"));
        }
        if let Some(unanswered_max) = positive("unanswered_max") {
            limits.push(format!("{unanswered_max:.0} unanswered"));
        }
        if let Some(rank_floor) = positive("rank_floor") {
            limits.push(format!("ranks from {rank_floor:.2}"));
        }
        if positive("kernel_drop_share").is_some() {
            limits.push(format!("the kernel drops {}", percent(&shard["kernel_drop_share"])));
        }
    } else if positive("kernel_drop_share_of_registers").is_some() {
        let dropped = percent(&shard["kernel_drop_share_of_registers"]);
        limits.push(format!("the kernel drops {dropped} of the REGISTERs"));
    }
    if limits.is_empty() { "none".to_owned() } else { limits.join(", ") }
}

/// Formats the limit of a law with its unit. Returns `None` if the law sets no limit.
pub(super) fn limit(limit: &Value) -> Option<String> {
    let value = &limit["value"];
    match limit["kind"].as_str()? {
        "share" => Some(format!("{} of them", percent(value))),
        "rate_cps" => Some(format!("{}/s", rate(value))),
        "window" => Some(format!("{} waiting", rate(value))),
        "closed" => Some("nothing".to_owned()),
        _ => None,
    }
}

/// Formats the measurements of the shards.
fn signals(overload: &Value) -> String {
    let heads = [
        "shard",
        "occupancy",
        "waiting",
        "p99 wait",
        "socket",
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
            paced,
            percent(&shard["tiers"]["share_stateful"]),
            millis(&shard["call_cost_ms"]),
            millis(&shard["rejection_cost_ms"]),
            percent(&shard["bound"]),
        ]
    };
    table(&heads, &[], items(&overload["shards"]).enumerate().map(row))
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

/// Formats the numbers of new calls by two decisions: that of the law in force, and that which the
/// shadow law would have made.
fn compared(overload: &Value) -> String {
    let heads =
        ["shard", "shadow admits", "both admit", "only the law", "only the shadow", "neither"];
    let row = |(index, shard): (usize, &Value)| {
        let shadow = &shard["shadow"];
        let compared = &shadow["compared"]["session"];
        let names =
            ["both_admit", "only_the_law_admits", "only_the_shadow_admits", "neither_admits"];
        let [both, only_law, only_shadow, neither] =
            names.map(|name| compared[name].as_u64().unwrap_or(0));
        // The shares are computed from counts, because a law with a window reports 100 % until the
        // window is full.
        let all = both + only_law + only_shadow + neither;
        let share = (all > 0).then(|| (both + only_shadow) as f64 / all as f64);
        let counts = names.map(|name| whole(&compared[name]));
        [index.to_string(), percent(&share.into())].into_iter().chain(counts).collect()
    };
    table(&heads, &[], items(&overload["shards"]).enumerate().map(row))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shard() -> Value {
        let calls = json!({ "arrived": 900.0, "repeated": 50.0, "dropped_in_kernel": 550.0,
            "offered": 300.0, "admitted": 100.0, "rejected": 200.0 });
        json!({
            "last_second": { "calls": calls, "others": calls },
            "limit": { "session": { "kind": "window", "value": 12.0 },
                "single": { "kind": "share", "value": 0.25 } },
            "waiting_max": null, "unanswered_max": 70.2, "wait_max_ms": 0.0, "rank_floor": 0.0, "kernel_drop_share": 0.75,
            "kernel_drop_share_of_registers": 0.9,
            // The law has a window that is not full. So it admits everything, and reports an
            // allowance of 1.
            "allowance": { "session": 1.0, "single": 1.0 },
        })
    }

    #[test]
    fn admitted_calls_are_counted_and_a_window_limit_is_shown_as_waiting_calls() {
        let law = json!({ "name": "tide", "summary": "S", "params": [] });
        let shown = overload(&json!({ "law": law, "shadow": null, "shards": [shard()] }));
        assert!(!shown.contains("100.0 %"), "{shown}");
        let row = shown.lines().find(|line| line.contains("calls/s")).unwrap();
        let cells: Vec<_> = row.split("   ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let rates = ["0", "calls/s", "900.0", "50.0", "550.0", "300.0", "100.0", "200.0"];
        assert_eq!(cells[..8], rates, "{shown}");
        assert_eq!(cells[8], "12.0 waiting, 70 unanswered, the kernel drops 75.0 %", "{shown}");
        let row = shown.lines().find(|line| line.contains("other requests/s")).unwrap();
        let limits = "25.0 % of them, the kernel drops 90.0 % of the REGISTERs";
        assert!(row.ends_with(limits), "{shown}");
    }

    /// The kernel counts dropped INVITEs and dropped REGISTERs together.
    #[test]
    fn the_row_of_the_calls_is_said_to_include_dropped_registers() {
        let note = "`arrived` and `kernel drops` of the calls also count the REGISTERs that the \
                    kernel dropped";
        let dropping = shard();
        let mut calm = shard();
        calm["last_second"]["calls"]["dropped_in_kernel"] = 0.0.into();
        calm["kernel_drop_share_of_registers"] = 0.0.into();
        let shown = |shards: &[&Value]| last_second(&json!({ "shards": shards }));
        assert!(shown(&[&calm, &dropping]).lines().any(|line| line == note));
        assert!(!shown(&[&calm]).contains("REGISTER"));
    }

    #[test]
    fn heavy_sources_are_shown_while_the_kernel_drops_requests() {
        let shown = |target: &str| {
            let source = json!({ "source": "192.0.2.7", "rate_cps": 9012.5 });
            heavy(&json!({ "kernel_drops": target, "heavy_sources": [source] }))
        };
        let flood = json!([{ "source": "192.0.2.8", "rate_cps": 60.5 }]);
        for (target, start) in [("all", "the kernel drops "), ("nothing", "the kernel may drop ")] {
            let of_flood = heavy(&json!({ "kernel_drops": target, "emergency_floods": flood }));
            assert!(of_flood.starts_with(start), "{of_flood}");
            for part in ["\nflood of emergency calls ", "\n192.0.2.8 ", " 60.5/s\n"] {
                assert!(of_flood.contains(part), "{of_flood}");
            }
        }
        let of_heavy = shown("heavy");
        let drops = "the kernel drops INVITEs and REGISTERs of";
        assert!(of_heavy.starts_with(&format!("{drops} heavy sources only\n")), "{of_heavy}");
        let row: Vec<_> = of_heavy.trim_end().lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["192.0.2.7", "9012.5/s"], "{of_heavy}");
        assert!(shown("all").starts_with(&format!("{drops} all sources")), "{}", shown("all"));
        assert_eq!(shown("nothing"), "");
    }

    #[test]
    fn every_kind_of_limit_has_its_unit() {
        let shown = |kind: &str, value: Value, key: &str, of_shard: Value| {
            let mut shard = json!({ "limit": { "session": { "kind": kind, "value": value } } });
            shard[key] = of_shard;
            limits(&shard, "session")
        };
        assert_eq!(shown("none", Value::Null, "waiting_max", Value::Null), "none");
        assert_eq!(shown("none", Value::Null, "waiting_max", 1500.into()), "a queue of 1500");
        assert_eq!(shown("none", Value::Null, "wait_max_ms", 10.0.into()), "a wait of 10 ms");
        assert_eq!(shown("none", Value::Null, "rank_floor", 0.3.into()), "ranks from 0.30");
        assert_eq!(shown("rate_cps", 80.0.into(), "rank_floor", 0.0.into()), "80.0/s");
        assert_eq!(shown("closed", Value::Null, "rank_floor", 0.0.into()), "nothing");
    }

    #[test]
    fn the_share_that_a_shadow_law_admits_is_counted() {
        let counts = json!({ "both_admit": 30, "only_the_law_admits": 10,
            "only_the_shadow_admits": 20, "neither_admits": 40 });
        let shadow = json!({ "compared": { "session": counts }, "allowance": { "session": 1.0 } });
        let shown = compared(&json!({ "shards": [{ "shadow": shadow }] }));
        assert!(shown.contains("50.0 %") && !shown.contains("100.0 %"), "{shown}");
    }
}
