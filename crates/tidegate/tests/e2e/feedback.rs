//! Tests of feedback between servers (RFC 7339) with two Tidegates and SIPp.

use crate::stage::{Configuration, Load, Peer, Sipp, Stage, Tidegate, eventually};

/// Configuration of a server that can serve about 70 calls a second.
const SLOW: &str = "
    [emulate]
    serve_us = { default = 1000, invite = 8000 }
    offer_us = 100
    reject_us = 300
";

/// Health checks, by which the sender finds out that its back end gives feedback.
const PROBED: &str = "
    [pool.health]
    probe = \"options\"
    interval_s = 0.2
";

/// Two Tidegates: the sender sends calls to a slow receiver, which sends them to SIPp.
struct Chain {
    stages: [Stage; 2],
    sender: Tidegate,
    receiver: Tidegate,
    _callee: Sipp,
}

impl Chain {
    fn set_up() -> Self {
        let stages = [Stage::new(), Stage::new()];
        let callee = Sipp::callee(&stages[1], "uas");
        let mut configuration = Configuration::new(&stages[1], &[callee.address()]);
        let peer = stages[0].ip();
        // Requests of SIPp name the server to which SIPp sends them, so some name the sender.
        let here = stages[1].ip();
        configuration.more = format!(
            "{SLOW}
            # The kernel would drop INVITEs of SIPp, which repeats them after the other caller has ended.
            [overload]
            disposal = \"reject\"
            [overload.feedback]
            peers = [\"{peer}\"]
            fairness = \"user\"
            [[route]]
            domain = [\"{peer}\", \"{here}\"]
            to = \"app\"\n"
        );
        let receiver = Tidegate::start(&stages[1], &configuration);
        let mut configuration = Configuration::new(&stages[0], &[receiver.address()]);
        configuration.more = PROBED.to_owned();
        let sender = Tidegate::start(&stages[0], &configuration);
        let chain = Self { stages, sender, receiver, _callee: callee };
        eventually("the back end is known to give feedback", || {
            chain.feedback(&chain.sender)["received"].as_array().filter(|hops| !hops.is_empty())?;
            Some(())
        });
        chain
    }

    fn feedback(&self, tidegate: &Tidegate) -> serde_json::Value {
        let (_, body) = tidegate.get("/status").expect("Tidegate shows its status");
        let mut status: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        status["feedback"].take()
    }

    fn held(&self) -> u64 {
        self.sender.metrics().sum("work_rejected_total", &[("reason", "feedback")])
    }
}

/// RFC 7339 §5.10.2: "This is to ensure that SIP clients that do not support this specification
/// don't receive an unfair advantage over those that do."
#[test]
fn a_sender_holds_back_calls_beyond_the_capacity_of_its_receiver_and_gets_its_share() {
    let chain = Chain::set_up();
    let load = Load { calls: 1200, rate_cps: 200, ..Load::default() };
    let obedient = Sipp::caller(&chain.stages[0], chain.sender.address(), &load);
    // SIPp does not support overload control.
    let stranger = Sipp::caller(&chain.stages[1], chain.receiver.address(), &load);
    eventually("the sender obeys, and states its whole load, most of which it rejects", || {
        let given = chain.feedback(&chain.receiver)["given"][0].clone();
        let is_restricted = given["standing"] == "obeys"
            && given["algorithm"] == "loss"
            && given["value"].as_u64().is_some_and(|value| value > 0)
            && given["claimed_cps"].as_f64().is_some_and(|cps| (150.0..250.0).contains(&cps))
            && given["doubted"] == false;
        is_restricted.then_some(())
    });
    let (obedient, stranger) = (obedient.wait(), stranger.wait());
    // The sender rejects the calls that the receiver would have to reject otherwise.
    let held = chain.held();
    assert!(held > 300, "{held} held back of 1200");
    let (ours, theirs) = (obedient.successful, stranger.successful);
    // Sender and SIPp get the same share of the receiver's processor. Rejections count in this
    // share, and the receiver has to reject only SIPp's calls. The other load of this machine
    // changes the shares, so the bound is loose.
    assert!(ours * 2 >= theirs, "{ours} calls of the obedient, {theirs} of the other");
}

/// Nothing that a stranger sends may limit the calls to a back end.
#[test]
fn feedback_that_a_stranger_forges_is_ignored() {
    let stage = Stage::new();
    let (backend, stranger, caller) =
        (Peer::new(stage.ip()), Peer::new(stage.ip()), Peer::new(stage.ip()));
    let mut configuration = Configuration::new(&stage, &[backend.address()]);
    configuration.policy = "rr\"\nobey_feedback = \"always";
    let tidegate = Tidegate::start(&stage, &configuration);
    let call = |number| {
        let uri = format!("sip:bob@{}", tidegate.address());
        caller.send(tidegate.address(), &caller.request("INVITE", &uri, number, 1));
        backend.receive()
    };
    let invite = call(1);
    let via = invite.field("Via");
    assert!(via.ends_with(";oc;oc-algo=\"loss\""), "{via}");
    let told = via.replace(";oc;", ";oc=100;") + ";oc-validity=60000;oc-seq=1.1";
    let ringing = backend.response(&invite, "180 Ringing");
    let forged = crate::stage::Message(ringing.0.replacen(via, &told, 1));
    stranger.send(tidegate.address(), &forged);
    for number in 2..12 {
        call(number);
    }
    // The same response from the back end restricts the sender.
    backend.send(tidegate.address(), &forged);
    eventually("the restriction is in force", || {
        // The metric does not exist before the back end has sent its first value.
        let is_accepted = |line: &str| {
            line.starts_with("tidegate_feedback_values_total{")
                && line.contains("outcome=\"accepted\"")
                && line.ends_with(" 1")
        };
        tidegate.metrics().0.lines().any(is_accepted).then_some(())
    });
    let uri = format!("sip:bob@{}", tidegate.address());
    let rejected = caller.ask(tidegate.address(), &caller.request("INVITE", &uri, 99, 1));
    assert_eq!((rejected.status(), rejected.fields("Retry-After").count()), (503, 0));
}
