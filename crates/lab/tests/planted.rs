//! Tests that every checker finds the fault made for it: proxies whose sent packets are changed.
//! Faults in the source, of the kind that programmers make, are in `planted/`. `make show-planted`
//! builds them one by one.

mod meddler;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use meddler::disguise::Disguise;
use meddler::{Meddler, Meddling};
use tidegate_lab::swarm::World;
use tidegate_lab::swarm::run::run_with;

/// Returns a world with one group of callers and a proxy in front of two servers, in which calls
/// have every outcome. No packet is lost.
fn world(mode: &str) -> World {
    let text = format!(
        "seed = 1\n[link]\ndelay_us = 1000\njitter_us = 0\n\
         [[caller]]\nto = 0\nrate_cps = 20.0\ncalls = 100\nhold_ms = 1000\npatience_ms = 2000\n\
         [[proxy]]\nlayer = 0\npool = {{ mode = \"{mode}\", policy = \"rr\" }}\n\
         [[answerer]]\nmix = \"answer=40,busy=40,ring=20\"\nring_ms = 500\n\
         [[answerer]]\nmix = \"answer\"\nhangs_up = 0.5\nhold_ms = 500\n"
    );
    World::parse(&text).unwrap()
}

/// Returns the same world with transactions, an attacker, and a small table of transactions.
fn besieged(attack: &str) -> World {
    let small = "[proxy.server]\ntransactions_max = 100\n[proxy.pool]";
    let mut text = world("transaction").to_toml().replacen("[proxy.pool]", small, 1);
    text += &format!("[[stranger]]\nto = 0\nattack = \"{attack}\"\n");
    text += "rate_pps = 50.0\ncount = 300\nbegins_ms = 0\n";
    World::parse(&text).unwrap()
}

/// Returns the names of the checkers that find a violation in a world whose proxy's packets are
/// changed by `meddling`.
fn found(mode: &str, meddling: Meddling) -> Vec<String> {
    found_in(&world(mode), meddling)
}

fn found_in(world: &World, meddling: Meddling) -> Vec<String> {
    let ran = run_with(world, &|_, server| Box::new(Meddler::new(server, meddling)));
    ran.unwrap().findings.into_iter().map(|finding| finding.checker).collect()
}

#[track_caller]
fn finds(checker: &str, mode: &str, meddling: Meddling) {
    let found = found(mode, meddling);
    assert!(found.iter().any(|found| found == checker), "{found:?}");
}

#[test]
fn a_correct_proxy_has_no_findings() {
    for mode in ["transaction", "stateless"] {
        assert_eq!(found(mode, |_, sent| vec![sent]), [""; 0], "{mode}");
    }
}

#[test]
fn a_second_final_response_is_found() {
    finds("finals", "transaction", |_, sent| match sent.strip_prefix("SIP/2.0 486") {
        Some(rest) if sent.contains("INVITE\r\n") => {
            vec![sent.clone(), format!("SIP/2.0 480{rest}")]
        }
        _ => vec![sent],
    });
}

#[test]
fn an_accepted_request_that_is_never_answered_is_found() {
    finds("answers", "transaction", |_, sent| {
        if sent.starts_with("SIP/2.0 486") { vec![] } else { vec![sent] }
    });
}

#[test]
fn an_invented_response_is_found() {
    finds("provenance", "transaction", |_, sent| {
        vec![sent.replacen("SIP/2.0 486 Busy Here", "SIP/2.0 200 OK", 1)]
    });
    finds("calls", "transaction", |_, sent| {
        let set_up = "SIP/2.0 200 OK\r\nContact: <sip:nobody@10.0.2.9>";
        vec![sent.replacen("SIP/2.0 486 Busy Here", set_up, 1)]
    });
}

#[test]
fn forwarding_more_copies_than_arrived_is_found() {
    finds("provenance", "stateless", |count, sent| {
        if count == 50 { vec![sent.clone(), sent] } else { vec![sent] }
    });
}

#[test]
fn a_request_whose_max_forwards_is_not_reduced_is_found() {
    finds("forwarding", "transaction", |_, sent| {
        vec![sent.replacen("Max-Forwards: 69", "Max-Forwards: 70", 1)]
    });
}

#[test]
fn a_response_that_keeps_our_via_is_found() {
    finds("forwarding", "transaction", |_, sent| {
        vec![sent.replacen("\r\nVia:", "\r\nVia: SIP/2.0/UDP 10.0.1.1;branch=z9hG4bKx\r\nVia:", 1)]
    });
}

#[test]
fn an_ack_in_another_transaction_is_found() {
    finds("hops", "transaction", |_, sent| match sent.starts_with("ACK") {
        true => vec![sent.replacen("branch=", "branch=z9hG4bK.", 1)],
        false => vec![sent],
    });
}

#[test]
fn an_invite_that_is_sent_too_often_is_found() {
    finds("hops", "transaction", |_, sent| match sent.starts_with("INVITE") {
        true => vec![sent; 8],
        false => vec![sent],
    });
}

#[test]
fn uncounted_messages_of_a_node_are_found() {
    finds("conservation", "transaction", |count, sent| {
        if count == 50 { vec![sent.clone(), sent] } else { vec![sent] }
    });
}

#[test]
fn calls_that_are_counted_as_ended_too_early_are_found() {
    // The proxy counts the 486, but does not send it. A proxy without transactions may drop a
    // response.
    finds("leases", "transaction", |_, sent| match sent.starts_with("SIP/2.0 486") {
        true => vec![],
        false => vec![sent],
    });
}

#[test]
fn calls_that_are_not_counted_are_found() {
    for mode in ["transaction", "stateless"] {
        finds("leases", mode, |_, sent| match sent.starts_with("INVITE") {
            true => vec![sent.replacen("Call-ID: ", "Call-ID: another-", 1), sent],
            false => vec![sent],
        });
    }
}

#[test]
fn forwarding_of_unadmitted_work_is_found() {
    for mode in ["transaction", "stateless"] {
        finds("limits", mode, |_, sent| match sent.starts_with("INVITE") {
            true => [";tag=", ";tag=a"].map(|tag| sent.replacen(";tag=", tag, 1)).to_vec(),
            false => vec![sent],
        });
    }
}

/// The gate also admits the INFOs of the noise. The checker once counted them in place of INVITEs
/// that no gate had admitted.
#[test]
fn unadmitted_invites_are_found_beside_other_admitted_requests() {
    let noise = "[[stranger]]\nto = 0\nattack = \"noise\"\n\
                 rate_pps = 50.0\ncount = 300\nbegins_ms = 0\n";
    let world = World::parse(&(world("transaction").to_toml() + noise)).unwrap();
    let found = found_in(&world, |count, sent| {
        if sent.starts_with("INVITE") && count.is_multiple_of(3) {
            [";tag=", ";tag=a"].map(|tag| sent.replacen(";tag=", tag, 1)).to_vec()
        } else {
            vec![sent]
        }
    });
    assert!(found.iter().any(|found| found == "limits"), "{found:?}");
}

#[test]
fn a_bye_without_any_effect_is_found() {
    for mode in ["transaction", "stateless"] {
        finds("innocents", mode, |_, sent| match sent.contains(" BYE\r\n") {
            true => vec![],
            false => vec![sent],
        });
    }
}

#[test]
fn a_stranger_that_fills_a_table_is_found() {
    let found = found_in(&besieged("hoard"), |_, sent| match sent.contains("stranger.example") {
        true => vec![sent.replacen("SIP/2.0 503 Service Unavailable", "SIP/2.0 180 Ringing", 1)],
        false => vec![sent],
    });
    assert!(found.iter().any(|found| found == "shares"), "{found:?}");
}

#[test]
fn a_stranger_that_fills_a_table_and_acknowledges_nothing_is_found() {
    // Each rejection belongs to a transaction that stays open, because the ACK that would end it is
    // missing.
    let found = found_in(&besieged("closed"), |_, sent| match sent.contains("stranger.example") {
        true => match sent.strip_prefix("SIP/2.0 503 Service Unavailable") {
            Some(rest) => vec![format!("SIP/2.0 100 Trying{rest}"), sent],
            None => vec![sent],
        },
        false => vec![sent],
    });
    assert!(found.iter().any(|found| found == "shares"), "{found:?}");
}

#[test]
fn a_rate_that_one_number_lowers_step_by_step_is_found() {
    let learns = "[proxy.learning]\nlearn = \"rejections\"\n[proxy.health]\nretry_after_max_s = 0\n\
                  [proxy.pool]";
    let text = besieged("closed").to_toml().replacen("[proxy.pool]", learns, 1);
    let world = World::parse(&text.replacen("transactions_max = 100", "", 1)).unwrap();
    let ran = run_with(&world, &|_, server| Box::new(server)).unwrap();
    assert_eq!(ran.findings, [], "one number proves nothing");
    let ran = run_with(&world, &|_, server| Box::new(Disguise::new(server))).unwrap();
    let is_rate = |what: &str| what.contains("learned rate") && what.contains("has answered");
    let found = ran.findings.iter().any(|f| f.checker == "exclusion" && is_rate(&f.what));
    assert!(found, "{:?}", ran.findings);
}

#[test]
fn responses_to_a_stranger_that_are_repeated_without_end_are_found() {
    let found = found_in(&besieged("closed"), |_, sent| {
        let is_to_stranger = sent.starts_with("SIP/2.0") && sent.contains("@stranger.example");
        vec![sent; if is_to_stranger { 20 } else { 1 }]
    });
    assert!(found.iter().any(|found| found == "amplification"), "{found:?}");
}

#[test]
fn a_core_that_panics_is_found() {
    finds("panic", "transaction", |count, sent| {
        assert!(count < 50, "too many packets");
        vec![sent]
    });
}

/// `make show-planted` builds the source with each patch. This test checks that the patches still
/// apply.
#[test]
fn every_patch_fits_the_source_and_names_its_checker() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut checkers = BTreeSet::new();
    for entry in fs::read_dir(root.join("crates/lab/tests/planted")).unwrap() {
        let patch = entry.unwrap().path();
        let text = fs::read_to_string(&patch).unwrap();
        let checker = text.lines().next().and_then(|line| line.strip_prefix("Checker: "));
        checkers.insert(checker.expect("the first line names the checker").to_owned());
        let mut apply = Command::new("git");
        let fits = apply.args(["apply", "--check"]).arg(&patch).current_dir(&root).status();
        assert!(fits.unwrap().success(), "{}", patch.display());
    }
    let all = [
        "amplification",
        "answers",
        "bounds",
        "calls",
        "conservation",
        "counts",
        "exclusion",
        "finals",
        "forwarding",
        "goodput",
        "hops",
        "innocents",
        "leases",
        "limits",
        "panic",
        "provenance",
        "same",
        "shares",
    ];
    assert!(checkers.iter().eq(all), "{checkers:?}");
}
