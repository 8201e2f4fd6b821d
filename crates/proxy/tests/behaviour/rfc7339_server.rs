//! RFC 7339, the server: tests that peers which offer overload control get feedback.

use std::time::Duration;

use crate::fixed::*;
use crate::script::*;
use tidegate_balance::Policy;
use tidegate_control::feedback::{Algorithm, Algorithms, UpstreamFairness};
use tidegate_control::{Bucket, Reason};
use tidegate_proxy::{Listener, Mode, Settings};
use tidegate_world::{ConnectionId, Core, Flow, Received, Transport};

pub const PEER: &str = CALLER;
const STRANGER: &str = "203.0.113.66:5060";
const NONE: &str = "oc=0;oc-algo=\"rate\";oc-validity=0;oc-seq=";

pub fn trusting(settings: &mut Settings) {
    settings.listeners[0].trust = vec!["198.51.100.0/24".parse().unwrap()];
    // A rate follows from the law alone. A share would depend on the load too.
    settings.overload.feedback.upstream.preferred = Algorithm::Rate;
}

/// Makes a proxy that admits this share of the calls.
pub fn admitting(share: f64) -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.overload.gate.law = law(&[("share", share)]);
        settings.pools[0].mode = Mode::Stateless;
        trusting(settings);
    })
}

pub fn offering(text: &str) -> String {
    offering_by(text, "loss,rate")
}

fn offering_by(text: &str, algorithms: &str) -> String {
    let (via, rest) = text.split_once("\r\nFrom: ").unwrap();
    format!("{via};oc;oc-algo=\"{algorithms}\"\r\nFrom: {rest}")
}

/// Returns the overload control parameters of the topmost Via.
fn told(sent: &Sent) -> &str {
    sent.header("Via").split_once(";oc").map_or("", |(_, params)| params).trim_start_matches(';')
}

/// Returns the last packet to the peer.
pub fn last_reply(sent: Vec<Sent>) -> Sent {
    sent.into_iter().rfind(|sent| sent.to == address(PEER)).expect("a reply")
}

pub fn params(sent: &Sent) -> String {
    let told = told(sent);
    if told.is_empty() { String::new() } else { format!("oc{told}") }
}

/// Returns the rate that the peer is told in the response to a new call.
pub fn told_rate(script: &mut Script) -> u32 {
    let forwarded = script.send(PEER, &offering(&invite("told")));
    let answer = match &forwarded[0] {
        reply if reply.to == address(PEER) => reply.clone(),
        sent => script.one(&sent.to.to_string(), &sent.answer("180 Ringing")),
    };
    let params = params(&answer);
    assert!(params.contains("oc-algo=\"rate\";oc-validity=500"), "{}", answer.text);
    params.strip_prefix("oc=").unwrap().split(';').next().unwrap().parse().unwrap()
}

/// Sends 50 calls a second from `from` for `seconds`. `write` changes each INVITE. Returns the last
/// 503, or `None` if there was none.
fn load(
    script: &mut Script,
    name: &str,
    seconds: u32,
    from: &str,
    write: fn(&str) -> String,
) -> Option<Sent> {
    let mut reply = None;
    for call in 0..50 * seconds {
        script.pass(Duration::from_millis(20));
        let text = write(&invite(&format!("{name}{call}")));
        let text = text.replace("198.51.100.7", from.split(':').next().unwrap());
        let sent = script.send(from, &text);
        reply = sent.into_iter().find(|sent| sent.start().starts_with("SIP/2.0 503")).or(reply);
    }
    reply
}

/// RFC 7339 §4.1: "The downstream server MUST add a value to the "oc" parameter in the response going
/// upstream to a client that included the "oc" parameter in the request."
///
/// RFC 7339 §4.2: "When a downstream SIP server receives a request with multiple overload control
/// algorithms specified in the "oc-algo" parameter (optionally sorted by decreasing order of preference),
/// it chooses one algorithm from the list and MUST return the single selected algorithm to the client."
///
/// RFC 7339 §5.1: "It MUST put the chosen algorithm as the sole parameter value in the "oc-algo" parameter of
/// the response it sends to the client." "In addition, if the server is currently not in an overload
/// condition, it MUST set the value of the "oc" parameter to be 0 and MAY insert an "oc-validity=0"
/// parameter in the response to further qualify the value in the "oc" parameter."
///
/// RFC 7339 §4.3: "A non-zero value for the "oc-validity" parameter MUST only be present in conjunction with
/// an "oc" parameter."
///
/// RFC 7339 §4.4: "This parameter MUST be inserted by the SIP server in a response; it MUST NOT be inserted
/// by the SIP client in a request."
///
/// RFC 7415 §3.3: "Selection of rate-based control MUST be indicated by servers by setting "oc-algo" to the
/// token "rate"."
#[test]
fn every_response_to_a_peer_has_a_value_and_one_algorithm() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = Script::with(Policy::Rr, |settings| {
            settings.pools[0].mode = mode;
            trusting(settings);
        });
        let sent = script.send(PEER, &offering(&invite("a")));
        let (replies, forwarded): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|sent| sent.to == address(PEER));
        // §5.11: a 100 has it too.
        assert_eq!(replies.len(), usize::from(mode == Mode::Transaction));
        let invite = &forwarded[0];
        assert!(!invite.text.contains(";oc"), "the offer is stripped: {}", invite.text);
        let at = invite.to.to_string();
        let mut answers = replies;
        answers.extend(script.send(&at, &invite.answer("180 Ringing")));
        answers.extend(script.send(&at, &invite.answer("200 OK")));
        for answer in &answers {
            let params = params(answer);
            assert!(params.starts_with(NONE), "{mode:?} {}", answer.text);
            assert!(!params.contains("oc;"), "the bare offer is gone");
            assert_eq!(answer.all("Via").len(), 1);
        }
        assert_eq!(answers.len(), 2 + usize::from(mode == Mode::Transaction));
    }
}

/// RFC 7339 §5.11: "For this reason, implementations that insert overload control information in the 100
/// Trying MUST re-insert the same (or updated) overload control information in the first non-100 Trying
/// response being sent to the upstream SIP client."
///
/// RFC 7339 §5.2: "When a SIP server retransmits a response, it SHOULD use the "oc" and "oc-validity"
/// parameter values consistent with the overload state at the time the retransmitted response was sent."
/// "Implementations that are capable of updating the "oc" and "oc-validity" parameter values during
/// retransmissions MUST insert the "oc-seq" parameter." "The value of this parameter MUST be a set of
/// numbers drawn from an increasing sequence."
///
/// RFC 7339 §4.4: ""oc" parameter values generated by an overload control algorithm at time t and t+1 MUST
/// have an increasing value in the "oc-seq" parameter."
#[test]
fn a_response_that_is_sent_again_has_the_present_value() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.overload.gate.law = law(&[("share", 0.5), ("after", 30.0)]);
        settings.pools[0].mode = Mode::Transaction;
        trusting(settings);
    });
    let invite = offering(&invite("a"));
    let trying = script.send(PEER, &invite).into_iter().find(|sent| sent.to == address(PEER));
    assert!(params(&trying.unwrap()).starts_with(NONE));
    load(&mut script, "b", 3, PEER, offering);
    let again = last_reply(script.send(PEER, &invite));
    assert_eq!(again.start(), "SIP/2.0 100 Trying");
    let params = params(&again);
    assert!(params.contains("oc-validity=500") && !params.starts_with("oc=0;"), "{params}");
    let sequence = |sent: &Sent| {
        let told = told(sent).to_owned();
        told.split_once("oc-seq=").unwrap().1.split(';').next().unwrap().parse::<f64>().unwrap()
    };
    script.pass(Duration::from_millis(200));
    let later = last_reply(script.send(PEER, &invite));
    assert!(sequence(&later) > sequence(&again), "{} {}", later.text, again.text);
}

/// RFC 7339 §5.2: "To limit the knowledge that the server supports overload control, a server can adopt a
/// policy of inserting overload control parameters in only those requests received over trusted links
/// such that these parameters are only visible to trusted neighbors."
#[test]
fn a_stranger_gets_nothing_and_learns_nothing() {
    let mut script = admitting(0.5);
    let offered = |text: &str| offering(text).replace("198.51.100.7", "203.0.113.66");
    let sent = script.send(STRANGER, &offered(&invite("a")));
    for sent in &sent {
        assert!(!sent.text.contains(";oc="), "{}", sent.text);
    }
    assert_eq!(script.proxy.poll_timeout(), None, "nothing is kept");
    load(&mut script, "p", 2, PEER, offering);
    let reply = load(&mut script, "s", 2, STRANGER, offering).unwrap();
    assert!(!reply.text.contains("oc="), "{}", reply.text);
    assert!(script.counters.upstream.get().iter().all(|view| view.address == address(PEER)));
}

/// A peer in a configured network gets feedback like a trusted source. If no algorithm is
/// configured, no peer gets feedback.
#[test]
fn peers_are_configured() {
    let told = |adjust: fn(&mut Settings)| {
        let mut script = Script::with(Policy::Rr, adjust);
        let forwarded = script.one(PEER, &offering(&invite("a")));
        params(&script.one(&forwarded.to.to_string(), &forwarded.answer("180 Ringing")))
    };
    assert_eq!(told(|_| {}), "");
    let peers = |settings: &mut Settings| {
        settings.overload.feedback.peers = vec!["198.51.100.7/32".parse().unwrap()];
    };
    assert!(told(peers).starts_with("oc=0;oc-algo=\"loss\";oc-validity=0;oc-seq="));
    assert_eq!(
        told(|settings| {
            trusting(settings);
            settings.overload.feedback.upstream.accepted = Algorithms::NONE;
        }),
        ""
    );
}

/// RFC 7339 §5.1: "If the server determines that the message is from a new client or a client the server
/// has not heard from in a long time, the server MUST choose one algorithm from the list of algorithms in
/// the "oc-algo" parameter."
#[test]
fn only_an_algorithm_that_the_client_offers_is_chosen() {
    for (offer, chosen) in [("loss", "loss"), ("LOSS,A", "loss"), ("rate,loss", "rate"), ("A", "")]
    {
        let mut script = admitting(1.0);
        let forwarded = script.one(PEER, &offering_by(&invite("a"), offer));
        let answer = script.one(&forwarded.to.to_string(), &forwarded.answer("180 Ringing"));
        match chosen {
            "" => assert_eq!(params(&answer), "", "{offer}"),
            _ => {
                let begin = format!("oc=0;oc-algo=\"{chosen}\";oc-validity=0;oc-seq=");
                assert!(params(&answer).starts_with(&begin), "{offer} {}", answer.text);
            }
        }
    }
}

/// RFC 7415 §3.4: "The server MUST use the "oc" parameter defined in [RFC7339] to send a target SIP request
/// rate to each of its clients." "However, the server MUST periodically evaluate its overload state and
/// estimate a target SIP request rate beyond which it would become overloaded." "Upon detection of
/// overload and the determination to invoke overload controls, the server MUST follow the specifications
/// in [RFC7339] to notify its clients of the allocated target SIP request rate and to notify them that
/// rate-based control is in effect."
#[test]
fn an_overloaded_server_tells_the_rate_that_its_law_admits() {
    let mut script = admitting(0.5);
    load(&mut script, "a", 4, PEER, offering);
    let rate = told_rate(&mut script);
    assert!((15..=35).contains(&rate), "half of 50 a second: {rate}");
}

/// RFC 7339 §5.10.2: "A SIP server that is in overload and has started to throttle incoming traffic MUST
/// reject some requests from non-participating clients with a 503 (Service Unavailable) response without
/// the Retry-After header."
#[test]
fn a_peer_that_takes_no_part_is_rejected_without_retry_after() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.overload.gate.law = law(&[("share", 0.3)]);
        settings.overload.retry_after = Some((7, 7));
        trusting(settings);
    });
    for second in 0..4 {
        load(&mut script, &format!("p{second}-"), 1, PEER, offering);
        load(&mut script, &format!("s{second}-"), 1, STRANGER, str::to_owned);
    }
    let before = script.counters.rejected(Reason::PeerShare).get();
    let reply = load(&mut script, "t", 2, STRANGER, str::to_owned).unwrap();
    let rejected = script.counters.rejected(Reason::PeerShare).get();
    assert!(rejected > before);
    // The gate has not seen these requests, but they count as offered.
    assert_eq!(script.counters.rejected_before(Bucket::Session).get(), rejected);
    assert!(reply.all("Retry-After").is_empty(), "{}", reply.text);
    assert!(!reply.text.contains(";oc"));
}

/// Paper 002 §6.1: "To achieve user-centric fairness in absolute rate and window-based mechanisms,
/// we introduce a new feedforward loop in the existing feedback architecture." Only this fairness
/// needs it.
#[test]
fn user_centric_fairness_alone_asks_peers_for_their_load_and_believes_it() {
    for fairness in [UpstreamFairness::User, UpstreamFairness::Provider] {
        let asks = fairness == UpstreamFairness::User;
        let mut script = Script::with(Policy::Rr, |settings| {
            trusting(settings);
            settings.overload.feedback.upstream.fairness = fairness;
        });
        let stating = |text: &str| offering(text).replacen("rate\"", "rate\";oc-tgload=123.4", 1);
        let forwarded = script.one(PEER, &stating(&invite("a")));
        assert!(!forwarded.text.contains(";oc"), "{}", forwarded.text);
        let answer = script.one(&forwarded.to.to_string(), &forwarded.answer("180 Ringing"));
        assert_eq!(params(&answer).ends_with(";oc-tgload"), asks, "{}", answer.text);
        let reply = last_reply(
            script.send(PEER, &offering(&request("OPTIONS", "sip:192.0.2.1", "o", 1, ""))),
        );
        assert_eq!(params(&reply).ends_with(";oc-tgload"), asks, "{}", reply.text);
        load(&mut script, "b", 2, PEER, |text| {
            offering(text).replacen("rate\"", "rate\";oc-tgload=123.4", 1)
        });
        let peer = script.counters.upstream.get()[0].peer;
        assert_eq!(peer.claimed_cps, asks.then_some(123.4));
        assert_eq!((peer.original_cps == 123.4, peer.is_doubted), (asks, false));
    }
}

/// RFC 7339 §5.8: "One way to accomplish this involves the server saving the time of the last algorithm
/// change in a lookup table, indexed by the client's network identifiers." The source port of a
/// connection identifies no client. The port in its Via does, as in RFC 3261 §18.2.2: "the server SHOULD
/// open a connection to the IP address in the "received" parameter, if present, using the port in the
/// "sent-by" value".
#[test]
fn all_connections_of_a_server_are_one_peer() {
    for rport in ["", ";rport"] {
        let mut script = Script::with(Policy::Rr, |settings| {
            let streams = Listener { transport: Transport::Tcp, ..settings.listeners[0].clone() };
            settings.listeners.push(streams);
            settings.pools[0].listener = Some(0);
            settings.pools[0].mode = Mode::Transaction;
            trusting(settings);
            settings.listeners[1].trust = settings.listeners[0].trust.clone();
        });
        for (number, port) in [(2, 40_000), (4, 40_002), (6, 40_004)] {
            let id = ConnectionId::new(number).unwrap();
            let remote = address(&format!("198.51.100.7:{port}"));
            let flow = Flow::connected(Transport::Tcp, address(PROXY), remote, id);
            let text = offering(&invite(&format!("c{number}")));
            let text =
                text.replace("SIP/2.0/UDP 198.51.100.7:5060", "SIP/2.0/TCP 198.51.100.7:5060");
            let text = text.replacen(";oc", &format!("{rport};oc"), 1);
            let received = Received::new(script.now, flow, script.pool.copy(text.as_bytes()));
            script.proxy.offer(script.now, received);
            let (replies, forwarded): (Vec<_>, Vec<_>) =
                script.serve().into_iter().partition(|sent| sent.start().starts_with("SIP/2.0"));
            let at = forwarded[0].to.to_string();
            let ringing = script.send(&at, &forwarded[0].answer("180 Ringing"));
            for answer in replies.iter().chain(&ringing) {
                assert!(params(answer).starts_with(NONE), "{rport} {}", answer.text);
            }
            assert_eq!((replies.len(), ringing.len()), (1, 1));
            script.pass(Duration::from_millis(200));
        }
        let peers = script.counters.upstream.get();
        let addresses: Vec<_> = peers.iter().map(|view| view.address).collect();
        assert_eq!(addresses, [address("198.51.100.7:5060")]);
    }
}

/// Sends 50 calls a second each from three ports of a host and from one port of another. Returns
/// the rate that each port was granted.
fn granted(shares_by_host: bool) -> Vec<f64> {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.overload.gate.law = law(&[("share", 0.4)]);
        settings.overload.feedback.shares_by_host = shares_by_host;
        trusting(settings);
    });
    for call in 0..200 {
        script.pass(Duration::from_millis(20));
        for from in
            ["198.51.100.7:5060", "198.51.100.7:5061", "198.51.100.7:5062", "198.51.100.8:5060"]
        {
            let text = offering(&invite(&format!("{from}-{call}")));
            script.send(from, &text.replace("198.51.100.7:5060", from));
        }
    }
    script.pass(Duration::from_millis(100));
    script.counters.upstream.get().iter().map(|view| view.peer.granted_cps).collect()
}

/// RFC 7339 §5.4: "The scope of overload control applies to unique combinations of IP and port values."
/// The rule for the division of the capacity is ours.
#[test]
fn the_ports_of_a_host_have_a_share_each_or_one_together() {
    let by_port = granted(false);
    assert_eq!(by_port.len(), 4);
    assert!(by_port.iter().all(|cps| (cps / by_port[3] - 1.0).abs() < 0.1), "{by_port:?}");
    let by_host = granted(true);
    let host: f64 = by_host[..3].iter().sum();
    assert!((host / by_host[3] - 1.0).abs() < 0.1, "{by_host:?}");
}

/// Publishing at each timer would cost too much: under load, timers fire thousands of times a
/// second, and there may be thousands of peers.
#[test]
fn the_peers_are_published_at_each_measurement_and_not_at_each_timer() {
    let mut script = admitting(0.4);
    load(&mut script, "a", 1, PEER, offering);
    script.pass(Duration::from_millis(100));
    let published = |script: &Script| script.counters.upstream.get().len();
    assert_eq!(published(&script), 1);
    let text = offering(&invite("b")).replace("198.51.100.7", "198.51.100.8");
    script.send("198.51.100.8:5060", &text);
    script.proxy.handle_timeout(script.now);
    assert_eq!(published(&script), 1);
    script.pass(Duration::from_millis(100));
    assert_eq!(published(&script), 2);
}

/// The load that a stranger states does not count.
#[test]
fn a_stranger_is_not_believed_and_not_asked() {
    let mut script = Script::with(Policy::Rr, |settings| {
        trusting(settings);
        settings.overload.feedback.upstream.fairness = UpstreamFairness::User;
    });
    let stating = |text: &str| {
        let text = offering(text).replacen("rate\"", "rate\";oc-tgload=9999.9", 1);
        text.replace("198.51.100.7", "203.0.113.66")
    };
    for call in 0..10 {
        script.pass(Duration::from_millis(100));
        for sent in script.send(STRANGER, &stating(&invite(&format!("s{call}")))) {
            assert!(!sent.text.contains("oc-tgload"), "{}", sent.text);
        }
    }
    assert!(script.counters.upstream.get().is_empty());
}

/// An early 503, which is written from an `Outline` of the request, has a value too.
#[test]
fn an_early_rejection_has_the_value() {
    let mut script = admitting(0.2);
    let reply = load(&mut script, "a", 4, PEER, offering).unwrap();
    assert!(params(&reply).contains("oc-algo=\"rate\""), "{}", reply.text);
    assert_eq!(reply.all("Via").len(), 1);
}

/// The value in a back end's response is for this proxy. The client gets a value of the proxy.
#[test]
fn the_feedback_of_a_back_end_does_not_go_upstream() {
    let mut script = admitting(1.0);
    let forwarded = script.one(PEER, &offering(&invite("a")));
    let text = forwarded.answer("180 Ringing");
    let forged = ";oc=100;oc-algo=\"loss\";oc-validity=9999;oc-seq=9.9";
    let text = text.replace("-INVITE", &format!("-INVITE{forged}"));
    let answer = script.one(&forwarded.to.to_string(), &text);
    assert!(params(&answer).starts_with(NONE), "{}", answer.text);
    assert_eq!(answer.text.matches(";oc=").count(), 1);
}

/// A client may send an OPTIONS to find out whether this server gives feedback.
#[test]
fn an_options_to_this_server_is_answered_with_a_value() {
    let mut script = admitting(1.0);
    let options = offering(&request("OPTIONS", "sip:192.0.2.1", "a", 1, ""));
    let reply = script.one(PEER, &options);
    assert_eq!(reply.start(), "SIP/2.0 200 OK");
    assert!(params(&reply).starts_with(NONE), "{}", reply.text);
}
