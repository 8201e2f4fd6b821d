//! Compares our parser with tshark (Wireshark). Both read the torture messages, generated messages
//! and damaged messages, and must find the same values. A difference is either our fault, or it is
//! listed in `differential/excuses.rs` with its reason.
//!
//! `SEED` and `MESSAGES` in the environment select another corpus (`make show-differential`).

#[path = "differential/corpus.rs"]
mod corpus;
#[path = "differential/excuses.rs"]
mod excuses;
#[path = "differential/grammar.rs"]
mod grammar;
#[path = "differential/ours.rs"]
mod ours;
#[path = "differential/tshark.rs"]
mod tshark;

use std::collections::BTreeMap;

use excuses::{EXCUSES, Seen};

/// The values found in a message: texts by field, in order.
pub type Found = BTreeMap<&'static str, Vec<String>>;

/// The fields that are compared. For a field that may occur only once, the first value counts. For
/// the Vias, the values of all Vias count, in one list.
pub const FIELDS: [&str; 16] = [
    "method",
    "uri",
    "status",
    "call-id",
    "cseq number",
    "cseq method",
    "via branches",
    "via hosts",
    "via ports",
    "from tag",
    "to tag",
    "max-forwards",
    "via lines",
    "route lines",
    "record-route lines",
    "content-length",
];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn tshark_finds_the_same() {
    // With this seed and number of messages, each excuse is used at least once.
    let (seed, messages) = (setting("SEED", 1), setting("MESSAGES", 10_000));
    let cases = corpus::cases(seed, messages as usize);
    let theirs = tshark::dissect(&cases);
    assert_eq!(theirs.len(), cases.len(), "one answer a message");
    let mut used = BTreeMap::<&str, usize>::new();
    let (mut alike, mut unexplained) = (BTreeMap::<&str, usize>::new(), Vec::new());
    for (case, theirs) in cases.iter().zip(&theirs) {
        let mut compare =
            |field: &'static str, ours: Option<&[String]>, theirs: Option<&[String]>| {
                if ours == theirs {
                    *alike.entry(field).or_default() += usize::from(ours.is_some());
                    return;
                }
                let seen = Seen { case, field, ours, theirs };
                match EXCUSES.iter().find(|excuse| (excuse.covers)(&seen)) {
                    Some(excuse) => *used.entry(excuse.name).or_default() += 1,
                    None => unexplained.push(seen.to_string()),
                }
            };
        let verdict = |is_read| [if is_read { "read" } else { "rejected" }.to_owned()];
        let ours = ours::read(&case.bytes);
        let is_read = !theirs.is_empty();
        compare("message", Some(&verdict(ours.is_ok())), Some(&verdict(is_read)));
        let Ok(ours) = ours else { continue };
        if !is_read {
            continue;
        }
        for field in FIELDS {
            let of = |found: &Found| found.get(field).cloned();
            compare(field, of(&ours).as_deref(), of(theirs).as_deref());
        }
    }
    println!("{} messages; values that both parsers found alike:", cases.len());
    for (field, count) in &alike {
        println!("{count:7}  {field}");
    }
    println!("permitted differences:");
    for (name, count) in &used {
        println!("{count:7}  {name}");
    }
    assert!(
        unexplained.is_empty(),
        "{} differences that are not permitted\n{}",
        unexplained.len(),
        unexplained.join("\n")
    );
    let enough = messages as usize / 2;
    assert!(FIELDS.iter().all(|field| alike[field] > enough / 4), "too little was compared");
    assert!(alike["message"] > enough, "too little was compared");
    if std::env::var_os("SEED").is_none() {
        let stale = EXCUSES.iter().filter(|excuse| !used.contains_key(excuse.name));
        let stale: Vec<_> = stale.map(|excuse| excuse.name).collect();
        assert!(stale.is_empty(), "permitted differences that did not occur: {stale:?}");
    }
}
