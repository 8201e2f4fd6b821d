//! Tests of a call that is forked to several back ends (RFC 3261 §16.6, §16.7).

use crate::stage::{Configuration, Peer, Stage, Tidegate};

/// RFC 3261 §16.7 item 10: once there is a final response to the INVITE, "the proxy MUST
/// generate a CANCEL request for all pending client transactions associated with this
/// response context".
#[test]
fn the_first_to_answer_gets_the_call_and_the_others_are_cancelled() {
    let stage = Stage::new();
    let caller = Peer::new(stage.ip());
    let agents = [(); 3].map(|()| Peer::new(stage.ip()));
    let backends = agents.each_ref().map(Peer::address);
    let configuration = Configuration { policy: "fork", ..Configuration::new(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let here = tidegate.address();
    caller.send(here, &caller.request("INVITE", &format!("sip:bob@{here}"), 1, 1));
    let invites = agents.each_ref().map(Peer::receive);
    let mut branches = invites.each_ref().map(|invite| super::branch(invite).to_owned());
    // Tidegate forwards a provisional response of each back end.
    let rings = ["180 Ringing", "183 Session Progress", "182 Queued"];
    for ((agent, invite), ring) in agents.iter().zip(&invites).zip(rings) {
        agent.send(here, &agent.response(invite, ring));
        assert_eq!(caller.receive().status().to_string(), ring[..3]);
    }
    agents[1].send(here, &agents[1].response(&invites[1], "200 OK"));
    let ok = caller.receive();
    assert_eq!(ok.status(), 200);
    assert_eq!(ok.field("Contact"), format!("<sip:callee@{}>", backends[1]));
    for i in [0, 2] {
        let cancel = agents[i].receive();
        assert_eq!(cancel.start(), invites[i].start().replacen("INVITE", "CANCEL", 1));
        assert_eq!(super::branch(&cancel), branches[i]);
        agents[i].send(here, &agents[i].response(&cancel, "200 OK"));
        agents[i].send(here, &agents[i].response(&invites[i], "487 Request Terminated"));
        assert_eq!(agents[i].receive().field("CSeq"), "1 ACK");
    }
    branches.sort();
    assert!(branches.windows(2).all(|pair| pair[0] != pair[1]), "{branches:?}");

    caller.send(here, &caller.in_dialog("ACK", &ok, 1));
    assert_eq!(agents[1].receive().field("CSeq"), "1 ACK");
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("cancels_total", &[]), 2);
    assert_eq!(metrics.sum("backend_calls", &[]), 1);
    // The 487s were not forwarded: the caller's next message is the response to its BYE.
    caller.send(here, &caller.in_dialog("BYE", &ok, 2));
    agents[1].send(here, &agents[1].response(&agents[1].receive(), "200 OK"));
    assert_eq!(caller.receive().field("CSeq"), "2 BYE");
    tidegate.metrics().assert_nothing_held();
}
