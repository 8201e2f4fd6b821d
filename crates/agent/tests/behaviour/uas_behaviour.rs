//! Tests of a called party by RFC 3261, beyond answering at once: one call, message by message.

use std::time::Duration;

use crate::script::{Script, Sent, at, request, response, uac, uas};
use tidegate_agent::{Answerer, AnswererConfig, Behaviour, Mix};
use tidegate_world::{Pool, Seed};

fn config() -> AnswererConfig {
    AnswererConfig::new(uas())
}

fn answerer(config: AnswererConfig) -> Script<Answerer> {
    Script::new(Answerer::new(config, Seed(1), 0, Pool::new()), uas())
}

fn invite() -> String {
    request("INVITE", "1", "", 1)
}

fn tag(response: &Sent) -> String {
    format!(";tag={}", response.header("To").split(";tag=").nth(1).expect("a tag"))
}

/// Returns an answerer that hangs up 10 s after the ACK, which it got at 0 ms, and its 200.
fn hanging_up() -> (Script<Answerer>, Sent) {
    let hold = Duration::from_secs(10).into();
    let mut script = answerer(AnswererConfig { hangs_up: 1.0, hold, ..config() });
    script.tell(uac(), &invite());
    let ok = script.sent().pop().unwrap();
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1));
    (script, ok)
}

#[test]
fn a_called_party_may_hang_up() {
    let (mut script, ok) = hanging_up();
    let bye = script.until(10_000).sent_one();
    assert_eq!((bye.what(), bye.ms), ("BYE", 10_000));
    // §12.2.1.1: To is the remote URI and tag, and From is the local URI and tag. The Call-ID is
    // that of the dialog.
    assert_eq!(bye.header("To"), "<sip:alice@192.0.2.9>;tag=a");
    assert_eq!(bye.header("From"), ok.header("To"));
    assert_eq!(bye.header("Call-ID"), "one@192.0.2.9");
    assert!(bye.header("CSeq").ends_with(" BYE"));
    assert!(bye.header("Via").starts_with("SIP/2.0/UDP 192.0.2.2:5060;rport;branch=z9hG4bK"));
    // §12.1.1: the route set of a called party is that of the request, in its order.
    assert_eq!(bye.request_uri(), "sip:alice@192.0.2.9");
    assert_eq!(bye.headers("Route"), ["<sip:192.0.2.1;lr>", "<sip:192.0.2.9;lr;a=b>"]);
    assert_eq!(bye.to.to_string(), "192.0.2.1:5060");
    assert_eq!((script.agent.stats().hung_up, script.agent.stats().open), (0, 1));
    script.until(10_100).tell(uac(), &response(&bye, 200, "", ""));
    assert_eq!((script.agent.stats().hung_up, script.agent.stats().open), (1, 0));
    // A copy of the 200 is absorbed, as Timer K requires.
    script.tell(uac(), &response(&bye, 200, "", "")).until(42_099);
    assert_eq!((script.agent.stats().hung_up, script.agent.stats().late), (1, 1));
    assert_eq!(script.agent.held(), 1);
    script.until(42_100);
    assert_eq!(script.agent.held(), 0);
    assert!(script.sent().is_empty());
}

#[test]
fn its_bye_goes_where_its_dialog_leads() {
    // §12.2.1.1, §8.1.2: the BYE goes to the first hop of the route set, or to the remote target if
    // there is no route set. If the host there is no address, the BYE goes to the source of the
    // INVITE.
    let source = "192.0.2.1:40000".parse().unwrap();
    let direct = |invite: String| {
        let lines = invite.split_inclusive('\n').filter(|line| !line.starts_with("Record-Route"));
        lines.collect::<String>()
    };
    for (invite, to) in [
        (invite(), "192.0.2.1:5060"),
        (direct(invite()), "192.0.2.9:5060"),
        (direct(invite()).replace("alice@192.0.2.9>", "alice@host.example>"), "192.0.2.1:40000"),
    ] {
        let mut script = answerer(AnswererConfig { hangs_up: 1.0, ..config() });
        script.tell(source, &invite);
        let ok = script.sent().pop().unwrap();
        script.tell(source, &request("ACK", "2", &tag(&ok), 1)).until(0);
        assert_eq!(script.sent_one().to.to_string(), to);
    }
}

#[test]
fn its_bye_is_repeated_by_timer_e_until_timer_f() {
    // §17.1.2.2. §15.1.1: a dialog whose BYE gets no response has ended anyway.
    let (mut script, _) = hanging_up();
    script.until(50_000);
    let moments: Vec<u64> =
        [0, 500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500]
            .map(|after| 10_000 + after)
            .into();
    assert_eq!(script.schedule(), at("BYE", &moments));
    let stats = script.agent.stats();
    assert_eq!((stats.hung_up, stats.byes_unanswered, stats.repeated, stats.open), (1, 1, 10, 0));
}

#[test]
fn its_bye_slows_down_after_a_provisional_response_and_any_final_one_ends_it() {
    for status in [200, 408, 481, 500] {
        let (mut script, _) = hanging_up();
        let bye = script.until(10_000).sent_one();
        script.until(10_100).tell(uac(), &response(&bye, 100, "", "")).until(20_000);
        assert_eq!(script.schedule(), at("BYE", &[10_500, 14_500, 18_500]));
        script.tell(uac(), &response(&bye, status, "", "")).until(30_000);
        assert!(script.sent().is_empty());
        assert_eq!((script.agent.stats().hung_up, script.agent.stats().byes_unanswered), (1, 0));
    }
}

#[test]
fn a_response_that_is_not_to_its_bye_changes_nothing() {
    let (mut script, _) = hanging_up();
    let bye = script.until(10_000).sent_one();
    let ok = response(&bye, 200, "", "");
    let other = bye.branch().replace(|c: char| c.is_ascii_digit(), "f");
    script.tell(uac(), &ok.replace(bye.branch(), &other));
    script.tell(uac(), &ok.replace("BYE", "INVITE"));
    let stats = script.agent.stats();
    assert_eq!((stats.unexpected, stats.hung_up, stats.open), (2, 0, 1));
}

#[test]
fn both_may_hang_up_at_once() {
    let (mut script, ok) = hanging_up();
    let bye = script.until(10_000).sent_one();
    script.tell(uac(), &request("BYE", "3", &tag(&ok), 2));
    assert_eq!(script.sent_one().what(), "200");
    script.tell(uac(), &response(&bye, 481, "", "")).until(30_000);
    assert!(script.sent().is_empty());
    let stats = script.agent.stats();
    assert_eq!((stats.completed, stats.hung_up, stats.late, stats.open), (1, 0, 1, 0));
}

#[test]
fn the_caller_may_hang_up_first() {
    let (mut script, ok) = hanging_up();
    script.until(9000).tell(uac(), &request("BYE", "3", &tag(&ok), 2)).until(30_000);
    assert_eq!(script.sent_one().header("CSeq"), "2 BYE");
    assert_eq!((script.agent.stats().completed, script.agent.stats().hung_up), (1, 0));
}

#[test]
fn it_does_not_hang_up_before_the_ack() {
    // §15: "MUST NOT send a BYE on a confirmed dialog until it has received an ACK".
    let mut script = answerer(AnswererConfig { hangs_up: 1.0, ..config() });
    script.tell(uac(), &invite());
    let ok = script.sent().pop().unwrap();
    script.until(400);
    assert!(script.sent().is_empty());
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1)).until(400);
    assert_eq!(script.sent_one().what(), "BYE");
}

#[test]
fn a_caller_without_contact_gets_no_bye() {
    let mut script = answerer(AnswererConfig { hangs_up: 1.0, ..config() });
    script.tell(uac(), &invite().replace("Contact: <sip:alice@192.0.2.9>\n", ""));
    let ok = script.sent().pop().unwrap();
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1)).until(1000);
    assert!(script.sent().is_empty());
    assert_eq!((script.agent.stats().hung_up, script.agent.stats().open), (1, 0));
}

#[test]
fn provisional_responses_come_one_after_the_other() {
    let (ring, provisionals) = (Duration::from_secs(4).into(), vec![183, 180]);
    let mut script = answerer(AnswererConfig { ring, provisionals, ..config() });
    script.tell(uac(), &invite());
    assert_eq!(script.schedule(), at("183", &[0]));
    script.until(1999).tell(uac(), &invite());
    assert_eq!(script.schedule(), at("183", &[1999]));
    script.until(2500).tell(uac(), &invite());
    assert_eq!(script.schedule(), at("180", &[2000, 2500]));
    assert_eq!(script.until(4000).schedule(), at("200", &[4000]));
}

#[test]
fn a_100_comes_first_if_asked_for() {
    let said = |config: AnswererConfig| {
        let mut script = answerer(AnswererConfig { trying: true, ..config });
        script.tell(uac(), &invite());
        script.sent().iter().map(|sent| sent.what().to_owned()).collect::<Vec<_>>()
    };
    // A call has seven messages: these three responses, the INVITE, the ACK, the BYE and its 200.
    assert_eq!(said(config()), ["100", "180", "200"]);
    assert_eq!(
        said(AnswererConfig { mix: Behaviour::Reject(503).into(), ..config() }),
        ["100", "503"]
    );
    assert!(said(AnswererConfig { mix: Behaviour::Silent.into(), ..config() }).is_empty());
    // One call rings. The other one is answered after a while without ringing.
    let ring = Duration::from_millis(100).into();
    assert_eq!(said(AnswererConfig { ring, ..config() }), ["100", "180"]);
    assert_eq!(said(AnswererConfig { ring, provisionals: vec![], ..config() }), ["100"]);
    let ring = Duration::from_secs(1).into();
    assert_eq!(said(AnswererConfig { ring, provisionals: vec![], ..config() }), ["100"]);
}

#[test]
fn a_copy_gets_the_100_again_if_nothing_came_after_it() {
    let ring = Duration::from_millis(100).into();
    let mut script =
        answerer(AnswererConfig { trying: true, ring, provisionals: vec![], ..config() });
    script.tell(uac(), &invite());
    script.until(50).tell(uac(), &invite());
    assert_eq!(script.schedule(), at("100", &[0, 50]));
}

#[test]
fn an_ack_counts_as_in_time_within_the_deadline_of_the_first_invite() {
    for (ms, in_time) in [(1000, 1), (1001, 0)] {
        let deadline = Duration::from_secs(1);
        let mut script = answerer(AnswererConfig { deadline, ..config() });
        script.tell(uac(), &invite()).until(400).tell(uac(), &invite());
        let ok = script.sent().pop().unwrap();
        script.until(ms).tell(uac(), &request("ACK", "2", &tag(&ok), 1));
        let stats = script.agent.stats();
        assert_eq!((stats.acknowledged, stats.acknowledged_in_time), (1, in_time));
    }
}

#[test]
fn a_server_that_fails_does_not_ring() {
    let ring = Duration::from_secs(4).into();
    for (status, sent) in [(500, &["500"][..]), (503, &["503"]), (603, &["180"]), (486, &["180"])] {
        let mix = Behaviour::Reject(status).into();
        let mut script = answerer(AnswererConfig { mix, ring, ..config() });
        script.tell(uac(), &invite());
        assert_eq!(script.sent().iter().map(Sent::what).collect::<Vec<_>>(), sent);
    }
}

#[test]
fn a_call_may_ring_until_the_caller_gives_up() {
    // §13.3.1.1: a provisional response "at every minute".
    let mut script = answerer(AnswererConfig { mix: Behaviour::Ring.into(), ..config() });
    script.tell(uac(), &invite()).until(150_000);
    assert_eq!(script.schedule(), at("180", &[0, 60_000, 120_000]));
    script.tell(uac(), &request("CANCEL", "1", "", 1));
    assert_eq!(script.schedule(), [at("200", &[150_000]), at("487", &[150_000])].concat());
    assert_eq!(script.agent.stats().cancelled, 1);
}

#[test]
fn an_abandoned_call_is_eventually_forgotten() {
    let talk_max = Duration::from_secs(90);
    let mut script = answerer(AnswererConfig { mix: Behaviour::Ring.into(), talk_max, ..config() });
    script.tell(uac(), &invite()).until(90_000);
    assert_eq!((script.agent.stats().unanswered, script.agent.stats().open), (1, 0));
    script.until(122_000);
    assert_eq!(script.agent.held(), 0);
}

#[test]
fn a_call_met_with_silence_stays_silent() {
    // Nearly all calls get no response. One of them is the first call of this seed.
    let mix = Mix::new(&[(Behaviour::Silent, 1e9), (Behaviour::Answer, 1.0)]).unwrap();
    let mut script = answerer(AnswererConfig { mix, ..config() });
    script.tell(uac(), &invite()).until(500).tell(uac(), &invite());
    script.tell(uac(), &request("CANCEL", "1", "", 1)).until(31_999).tell(uac(), &invite());
    assert_eq!(script.agent.held(), 1);
    script.until(32_000);
    assert_eq!(script.agent.held(), 0);
    assert!(script.sent().is_empty());
    let stats = script.agent.stats();
    assert_eq!((stats.calls, stats.silent, stats.ignored, stats.open), (1, 1, 4, 0));
    // Requests that are not INVITEs get a response.
    script.tell(uac(), &request("OPTIONS", "7", "", 1));
    assert_eq!(script.sent_one().what(), "200");
}

/// An echo answers everything but ACK, and keeps nothing. RFC 3261 §12.1.1: a 200 to an INVITE has
/// the Record-Route of the request and a Contact.
#[test]
fn an_echo_answers_without_state() {
    let mut script = answerer(AnswererConfig { echo: true, ..config() });
    for method in ["INVITE", "REGISTER", "SUBSCRIBE", "BYE", "CANCEL"] {
        script.tell(uac(), &request(method, "1", "", 1));
        let ok = script.sent_one();
        assert_eq!(ok.what(), "200", "{method}");
        let routes = if method == "INVITE" { 2 } else { 0 };
        assert_eq!(ok.headers("Record-Route").len(), routes, "{method}");
        assert_eq!(ok.headers("Contact").len(), routes / 2, "{method}");
    }
    script.tell(uac(), &request("ACK", "1", ";tag=b", 1)).until(60_000);
    assert!(script.sent().is_empty());
    let stats = script.agent.stats();
    assert_eq!((stats.others, stats.calls, script.agent.held()), (5, 0, 0));
}

/// §15: "The caller's UA MAY send a BYE for either confirmed or early dialogs". Such a BYE once got
/// 481, and the phone continued to ring.
#[test]
fn a_bye_ends_a_ringing_call() {
    let mut script = answerer(AnswererConfig { ring: Duration::from_secs(9).into(), ..config() });
    script.tell(uac(), &invite());
    let ringing = script.sent_one();
    let bye = request("BYE", "3", &tag(&ringing), 2);
    script.until(1000).tell(uac(), &bye);
    let sent = script.sent();
    // §15.1.2: "The UAS MUST still respond to any pending requests received for that dialog. It is
    // RECOMMENDED that a 487 (Request Terminated) response be generated to those pending requests."
    assert_eq!(sent.iter().map(Sent::what).collect::<Vec<_>>(), ["200", "487"]);
    assert_eq!((sent[0].header("CSeq"), sent[1].header("CSeq")), ("2 BYE", "1 INVITE"));
    assert_eq!((tag(&sent[0]), tag(&sent[1])), (tag(&ringing), tag(&ringing)));
    // §17.2.2, timer J: a copy gets the same response, before the ACK and after it.
    script.tell(uac(), &bye);
    assert_eq!(script.sent_one().text, sent[0].text);
    script.tell(uac(), &request("ACK", "1", &tag(&sent[1]), 1));
    script.until(32_999).tell(uac(), &bye);
    assert_eq!(script.sent_one().text, sent[0].text);
    script.until(33_000);
    assert_eq!((script.agent.held(), script.sent().len()), (0, 0));
    let stats = script.agent.stats();
    assert_eq!((stats.cancelled, stats.answered, stats.completed, stats.open), (1, 0, 0, 0));
    assert_eq!((stats.byes_again, stats.stray), (2, 0));
}

/// §17.2.1: a copy belongs to the transaction of its INVITE. Each copy once counted as a call.
#[test]
fn a_call_without_room_counts_once() {
    let mut script = answerer(AnswererConfig { calls_max: 1, ..config() });
    script.tell(uac(), &invite()).sent();
    let other = request("INVITE", "8", "", 1);
    script.tell(uac(), &other);
    let rejection = script.sent_one();
    assert_eq!(rejection.what(), "503");
    script.tell(uac(), &other);
    assert_eq!(script.sent_one().text, rejection.text);
    script.tell(uac(), &request("ACK", "8", &tag(&rejection), 1));
    let stats = script.agent.stats();
    assert_eq!((stats.calls, stats.overflowed, stats.invites_again), (2, 1, 1));
    assert_eq!(stats.stray, 0);
}
