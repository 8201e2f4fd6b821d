//! rate-occ: [OCC](super::occ) as in paper 002.
//!
//! In the paper, all senders get the same share f. Here feedback divides the admitted load among
//! the senders as `fairness` says, under this law too. By default, each sender gets an equal part.
//!
//! Signal, trip, recovery and cold start are those of OCC. This law decides every 0.2 s (the paper
//! also uses 14 ms, with T_c = T_m), and aims at an occupancy of 0.85.
//!
//! Known bias: the law controls occupancy, not delay. With a target above 0.95, the occupancy
//! sometimes reaches 1, and then calls wait and callers repeat their requests. With a lower target,
//! some capacity remains unused.
//!
//! Source: paper 002 §3.7, table 2, after Cyr, Kaufman and Lee, US patent 4,974,256.

use super::occ::{FACTOR_MAX, FLOOR, Occ, READ};
use crate::{Entry, Param, Values};

static CONTROL: Param = Param::real("t_c", "s", 0.2, 0.001, 60.0).doc(
    "Control interval T_c: time from one change of the admitted share to the next. Paper 002 also \
     uses 0.014.",
);

static TARGET: Param =
    Param::real("rho_b", "fraction", 0.85, 0.01, 1.0).doc("Target occupancy ρ_B.");

pub(crate) static ENTRY: Entry = Entry {
    name: "rate-occ",
    summary: "multiplies the admitted share by target/occupancy five times a second",
    source: "paper 002 §3.7",
    doc: "Every `t_c` the admitted share f becomes clamp(`f_min`, φ·f, 1), where φ = \
          min(`rho_b`/ρ, `phi_max`). ρ is the mean of the occupancy, which the law reads every \
          `t_m`.",
    params: &[&CONTROL, &READ, &FACTOR_MAX, &FLOOR, &TARGET],
    check: |values| {
        if values.of(&READ) <= values.of(&CONTROL) { Ok(()) } else { Err("t_m <= t_c") }
    },
    build: |values: &Values| Box::new(Occ::new(values, &CONTROL, &READ, &TARGET)),
};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::bench::{Bench, assert_near};
    use super::*;

    #[test]
    fn the_share_follows_the_target_five_times_a_second() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert_eq!(bench.law.tick(), Some(Duration::from_millis(100)));
        for _ in 0..2 {
            bench.pass(Duration::from_millis(100), 1.0);
            bench.tick();
        }
        assert_near(bench.share(), 0.85);
    }
}
