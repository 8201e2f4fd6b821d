use std::path::Path;

use toml::de::DeValue;

use super::*;
use crate::config::Config;
use crate::config::knob::Absent;
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
fn every_default_is_valid_for_its_key() {
    for table in every_table() {
        for knob in (table.knobs)() {
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
        let mut names: Vec<_> = table.names().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{}", table.header);
        for knob in (table.knobs)() {
            assert!(knob.doc().ends_with('.'), "{} {}", table.header, knob.name());
        }
    }
}

#[test]
fn every_key_that_is_known_is_also_read() {
    for table in every_table() {
        let in_pool = table.header.trim_start_matches('[').starts_with("pool.");
        let above = if in_pool { "[[pool]]\n" } else { "" };
        for knob in (table.knobs)() {
            // A table is a wrong value for every key, so a key that is read is reported.
            let text = format!("{above}{}\n{} = {{}}\n", table.header, knob.name());
            let rejected = Config::parse(Path::new("f"), text.as_bytes()).unwrap_err();
            let complaint = format!("`{}` has the wrong type", knob.name());
            assert!(rejected.to_string().contains(&complaint), "{text}{rejected}");
        }
    }
}

#[test]
fn bounds_hold_at_both_ends() {
    let accepts = |knob: &dyn Documented, text: &str| knob.accepts(&DeValue::parse(text).unwrap());
    let mut tried = 0;
    for table in every_table() {
        for knob in (table.knobs)().iter().filter(|knob| knob.schema()["type"] == "integer") {
            let bound = |name: &str| knob.schema()[name].as_i64().unwrap();
            let (least, most) = (bound("minimum"), bound("maximum"));
            for (value, right) in
                [(least - 1, false), (least, true), (most, true), (most + 1, false)]
            {
                assert_eq!(accepts(*knob, &value.to_string()), right, "{} = {value}", knob.name());
            }
            tried += 1;
        }
    }
    assert!(tried > 30, "{tried}");
}
