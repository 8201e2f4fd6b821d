//! Compares the curves of every law with the committed ones.

use std::fmt::Write;

use tidegate_control::{bound, registry};

use crate::{COSTS, DECIDE, FROM_S, LOADS, PAPER, Params, TO_S, committed, constant, goodput};

// When a law changes, read the difference in these curves, and commit it with the change.
#[test]
fn the_curves_of_every_law_are_as_committed() {
    let own: Params = &[];
    let mut laws = registry::LAWS.iter().map(|law| (law.name, law.name, own)).collect::<Vec<_>>();
    laws.push(("pi of 001", "pi", PAPER));
    let mut goodputs = String::from("goodput, in multiples of the capacity\n");
    let mut delays = String::from("set-up delay that one served call in a hundred exceeds, s\n");
    let mut rejections = String::from("share of calls that are rejected\n");
    for table in [&mut goodputs, &mut delays, &mut rejections] {
        row(table, "offered", LOADS);
    }
    row(&mut goodputs, "bound", LOADS.map(|load| bound::goodput(load, COSTS.ratio())));
    for (name, law, params) in laws {
        for decide in DECIDE {
            let outcomes = LOADS.map(|load| constant(law, params, decide, load));
            let name = format!("{name}, {}", format!("{decide:?}").to_lowercase());
            row(&mut goodputs, &name, outcomes.each_ref().map(goodput));
            row(&mut delays, &name, outcomes.each_ref().map(|o| o.delay_p99_s(FROM_S, TO_S)));
            row(
                &mut rejections,
                &name,
                outcomes.each_ref().map(|o| o.rejected_share(FROM_S, TO_S)),
            );
        }
    }
    let curves = format!("{goodputs}\n{delays}\n{rejections}");
    assert_committed(&curves, "curves.txt");
}

/// Compares a table with the committed file of that name.
#[track_caller]
pub fn assert_committed(table: &str, name: &str) {
    committed::assert_committed(format!("tests/closed_loop/{name}"), table, Some(0.03));
}

fn row(table: &mut String, name: &str, values: [f64; LOADS.len()]) {
    write!(table, "{name:26}").unwrap();
    for value in values {
        write!(table, " {value:6.2}").unwrap();
    }
    table.push('\n');
}
