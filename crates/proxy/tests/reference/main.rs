//! The core beside a reference: a slow and obvious proxy of RFC 3261 §16 with the transactions of
//! §17, RFC 6026, RFC 4320 and RFC 5393, which keeps whole messages in lists, finds everything by
//! searching, and is written from the RFCs, each rule above its line, without a look at the core.
//! What they leave open, when another back end is tried and which is down, it does as the core
//! does. Random scripts are played to both. After each step and at each moment when either of
//! them is due, both must have sent the same packets and hold as many transactions; at the end
//! nothing is left.
//!
//! Two things are the core's choice and are taken from it, if they are among what is allowed:
//! which back end of a pool gets a request, and where what has no token goes of a call that only
//! the call table knows. The names that each makes (branches, tags, tokens) are mapped to each
//! other: one of the core's always stands for the same one of the reference's.
//!
//! `REFERENCE_SEED` and `REFERENCE_CASES` choose other scripts.
//!
//! # It can fail
//!
//! Each of these faults, planted in one line of the core or of its transactions, is found with the
//! default seed; beside it the length of the script that is left after shrinking.
//!
//! | fault | steps |
//! | --- | --- |
//! | a repeated refusal is not acknowledged again | 5 |
//! | intervals of timer A end at T2 | 1 |
//! | a repeated 2xx is absorbed | 3 |
//! | a 100 does not slow timer E to T2 | 5 |
//! | the ACK of an RFC 2543 client to a 2xx is absorbed | 3 |
//! | a repeated INVITE gets its final response no more | 5 |
//! | timer J is T4 | 2 |
//! | a 6xx is the worst response | 2 |
//! | the last of equal responses wins | 9 |
//! | only the chosen challenge goes up | 9 |
//! | a 100 resets timer C | 4 |
//! | a 6xx cancels nobody | 2 |
//! | a late refusal of an abandoned attempt counts | 3 |
//! | a CANCEL does not wait for a provisional response | 2 |
//! | a cancelled fork goes on with its next group | 2 |
//! | a 503 goes upstream | 7 |
//! | no loop is seen | 4 |
//! | Max-Breadth is not shared out | 1 |
//! | a cancelled branch that never ends counts as 408 | 3 |
//! | one back end more is tried | 1 |
//! | one that refused 100 ms ago is no longer saturated | 5 |
//! | an abandoned attempt is repeated further | 1 |

#[path = "../script/mod.rs"]
mod script;

mod best;
mod branch;
mod client;
mod compare;
mod context;
mod driver;
mod flows;
mod forward;
mod lenience;
mod message;
mod parties;
mod proxy;
mod server;
mod step;
mod surroundings;
mod timeout;
mod timer;
mod topology;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestError, TestRunner};

#[test]
fn the_core_does_what_the_reference_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seed = number("REFERENCE_SEED").unwrap_or(1);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: number("REFERENCE_CASES").map_or(4_000, |cases| cases as u32),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    });
    let outcome = runner.run(&step::scripts(), |steps| {
        driver::Driver::new().play(&steps).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(difference, steps)) => {
            panic!("seed {seed}, a script of {} steps:\n{difference}", steps.len());
        }
        Err(failure) => panic!("seed {seed}: {failure}"),
    }
}
