use std::path::Path;

use toml::de::DeValue;

use super::*;
use crate::config::Config;
use crate::config::knob::Documented;

fn every_table() -> Vec<&'static Table> {
    let mut tables = vec![&ROOT];
    let mut next = 0;
    while next < tables.len() {
        tables.extend(tables[next].tables);
        next += 1;
    }
    tables
}

#[test]
fn every_default_is_a_value_its_own_shape_accepts() {
    for table in every_table() {
        for knob in table.knobs {
            if let Absent::Default(text) = knob.absent() {
                let value = DeValue::parse(text).unwrap();
                assert!(knob.accepts(&value), "{} {}", table.header, knob.name());
            }
        }
    }
}

#[test]
fn no_table_has_two_keys_of_one_name_and_all_are_documented() {
    for table in every_table() {
        let mut names: Vec<_> = table.names().chain(table.reserved.iter().copied()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{}", table.header);
        for knob in table.knobs {
            assert!(knob.doc().ends_with('.'), "{} {}", table.header, knob.name());
        }
    }
}

#[test]
fn every_key_that_is_known_is_also_read() {
    for table in every_table() {
        let in_pool = table.header.trim_start_matches('[').starts_with("pool.");
        let above = if in_pool { "[[pool]]\n" } else { "" };
        for knob in table.knobs {
            // No key is a table, so whoever reads it complains.
            let text = format!("{above}{}\n{} = {{}}\n", table.header, knob.name());
            let refused = Config::parse(Path::new("f"), text.as_bytes()).unwrap_err();
            let complaint = format!("`{}` has the wrong type", knob.name());
            assert!(refused.to_string().contains(&complaint), "{text}{refused}");
        }
    }
}

#[test]
fn bounds_hold_at_both_ends() {
    let accepts = |knob: &dyn Documented, text: &str| knob.accepts(&DeValue::parse(text).unwrap());
    for knob in [
        &SHARDS,
        &DRAIN_SECONDS,
        &CALLS_MAX,
        &TRANSACTIONS_MAX,
        &FAILOVER_AFTER_MS,
        &TRIES_MAX,
        &CALL_IDLE_SECONDS,
        &QUEUE_MAX,
        &BACKEND_PAUSE_SECONDS,
        &COALESCE_US,
        &KEY_ROTATE_H,
        &KEY_SETTLE_S,
        &RECEIVE_BUFFER,
        &SOURCE_WEIGHT_WEIGHT,
        &BAN_ABOVE_CPS,
        &BACKEND_PRIORITY,
        &PROBE_TIMEOUT_MS,
        &FALL,
        &RISE,
        &ERROR_LIMIT,
        &RETRY_AFTER_MAX_S,
        &MEMORY_MAX,
        &BURST,
        &INTERVAL_MS,
        &SOCKET_MAX,
    ] {
        let (least, most) = (*knob.shape.0.start(), *knob.shape.0.end());
        for (value, right) in [
            (i128::from(least) - 1, false),
            (i128::from(least), true),
            (i128::from(most), true),
            (i128::from(most) + 1, false),
        ] {
            assert_eq!(accepts(knob, &value.to_string()), right, "{} = {value}", knob.name);
        }
    }
    let weights = [("0", false), ("1", true), ("1000", true), ("1001", false)];
    assert!(weights.iter().all(|&(value, right)| accepts(&WEIGHT, value) == right));
}
