//! RFC 3263: tests that a request waits until names in its Request-URI or Route are resolved.

use std::sync::Arc;
use std::time::Duration;

use crate::rfc7339_client::{OFFER, calls, obeying, telling, value};
use crate::script::{BACKEND_A, BACKEND_B, CALLER, Script, Sent, address, request};
use tidegate_balance::{Backend, Endpoint, GENERATIONS_MAX, Named, Policy, Pool};
use tidegate_proxy::{Choice, DropReason, Listener, Mode, Obedience, PoolSettings, QueryLimits};
use tidegate_world::{
    Core, NaptrRecord, Query, QueryAnswer, QueryId, Question, RecordType, SrvRecord, Transport,
};

/// Makes a request from a back end to a name.
fn call(method: &str, to: &str) -> String {
    request(method, to, "c", 1, "").replace("198.51.100.7:5060", "10.0.0.1:5070")
}

fn asked(s: &mut Script) -> Option<(QueryId, String, RecordType)> {
    let Query { id, question } = s.proxy.poll_query()?;
    let Question::Resolve { name, record } = question else { panic!("{question:?}") };
    Some((id, name.to_string(), record))
}

/// Answers queries with these SRV records and the addresses of these names until there are none
/// left. Returns the packets that were sent meanwhile.
fn answer(s: &mut Script, servers: &[(u16, &str, u16)], hosts: &[(&str, [u8; 4])]) -> Vec<Sent> {
    let ttl = Duration::from_secs(60);
    let mut sent = Vec::new();
    while let Some((id, name, record)) = asked(s) {
        let of_host = hosts.iter().filter(|(host, _)| name.trim_end_matches('.') == *host);
        let addresses: Arc<[_]> = of_host.map(|(_, ip)| (*ip).into()).collect();
        let answer = match record {
            RecordType::Srv if name.starts_with("_sip._udp.") && !servers.is_empty() => {
                let record = |&(priority, target, port): &(u16, &str, u16)| SrvRecord {
                    priority,
                    weight: 1,
                    port,
                    target: format!("{target}.").into(),
                };
                QueryAnswer::Srv(servers.iter().map(record).collect(), ttl)
            }
            RecordType::A if !addresses.is_empty() => QueryAnswer::Addresses(addresses, ttl),
            _ => QueryAnswer::NotFound(None),
        };
        s.proxy.on_answer(s.now, id, answer);
        sent.extend(s.serve());
    }
    sent
}

fn to(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(|sent| sent.to.to_string()).collect()
}

/// Returns the requests among these packets.
fn forwarded(sent: Vec<Sent>) -> Vec<Sent> {
    sent.into_iter().filter(|sent| !sent.start().starts_with("SIP/2.0 ")).collect()
}

fn outcome(counter: &tidegate_world::Counter) -> u64 {
    counter.get()
}

/// RFC 3261 §16.5: "If the domain of the Request-URI indicates a domain this element is not
/// responsible for, the Request-URI MUST be placed into the target set as the only target, and the
/// element MUST proceed to the task of Request Forwarding (Section 16.6)."
///
/// RFC 3263 §4.2: "The client SHOULD try the first record."
#[test]
fn a_request_waits_for_a_name_and_goes_to_the_first_server_of_its_service() {
    let mut s = Script::stateful();
    let sent = s.send(BACKEND_A, &call("INVITE", "sip:carol@example.org"));
    assert!(sent.is_empty(), "there is no state of it, so no 100: {sent:?}");
    let sent = s.send(BACKEND_A, &call("INVITE", "sip:carol@example.org"));
    assert!(sent.is_empty(), "its copy is absorbed: {sent:?}");
    let servers = [(20, "two.example.org", 5072), (10, "one.example.org", 5071)];
    let hosts = [("one.example.org", [203, 0, 113, 1]), ("two.example.org", [203, 0, 113, 2])];
    let sent = forwarded(answer(&mut s, &servers, &hosts));
    assert_eq!(to(&sent), ["203.0.113.1:5071"]);
    assert_eq!(sent[0].start(), "INVITE sip:carol@example.org SIP/2.0", "the URI stays");
    assert_eq!(outcome(&s.counters.parked_all), 3, "for NAPTR, SRV, and the address");
    // The name is resolved now, so no request waits.
    let sent = s.send(BACKEND_A, &call("OPTIONS", "sip:carol@example.org"));
    assert_eq!(to(&sent), ["203.0.113.1:5071"]);
}

/// RFC 3263 §4.1: "Second, a client MUST discard any service fields that identify a resolution
/// service whose value is not "D2X", for values of X that indicate transport protocols supported by
/// the client."
///
/// Listeners for phones and browsers do not make the proxy a client that opens such connections to
/// the servers of a carrier.
#[test]
fn a_carrier_that_prefers_tls_or_websockets_is_reached_over_udp() {
    for preferred in ["SIPS+D2T", "SIPS+D2W", "SIP+D2W"] {
        let mut s = Script::with(Policy::Rr, |settings| {
            settings.pools[0].mode = Mode::Transaction;
            let at =
                |transport, local: &str| Listener { transport, ..Listener::new(address(local)) };
            settings.listeners.extend([
                at(Transport::Tls, "192.0.2.1:5061"),
                at(Transport::Wss, "192.0.2.1:443"),
                at(Transport::Ws, "192.0.2.1:80"),
            ]);
        });
        s.send(BACKEND_A, &call("INVITE", "sip:carol@carrier.example"));
        let (id, _, record) = asked(&mut s).expect("a query");
        assert_eq!(record, RecordType::Naptr);
        let naptr = |order, service: &str, replacement: &str| NaptrRecord {
            order,
            preference: 50,
            flags: "s".into(),
            service: service.into(),
            replacement: replacement.into(),
        };
        let records = [
            naptr(50, preferred, "_other.carrier.example."),
            naptr(100, "SIP+D2U", "_sip._udp.carrier.example."),
        ];
        let naptrs = QueryAnswer::Naptr(records.into(), Duration::from_secs(60));
        s.proxy.on_answer(s.now, id, naptrs);
        let mut sent = s.serve();
        let servers = [(10, "one.carrier.example", 5071)];
        sent.extend(answer(&mut s, &servers, &[("one.carrier.example", [203, 0, 113, 1])]));
        assert_eq!(to(&forwarded(sent)), ["203.0.113.1:5071"], "{preferred}");
    }
}

/// RFC 3263 §4.3: "If a failure occurs, the client SHOULD create a new request, which is identical
/// to the previous, but has a different value of the Via branch ID than the previous [...]. That
/// request is sent to the next element in the list as specified by RFC 2782."
///
/// RFC 3263 §4: "The procedures here MUST be done exactly once per transaction, where transaction
/// is as defined in [1]."
///
/// RFC 3263 §4.2: "If an attempt should fail, based on the definition of failure in Section 4.3,
/// the next SHOULD be tried, and if that should fail, the next SHOULD be tried, and so on."
///
/// RFC 3261 §16.6: "As described in [4], the proxy MUST attempt to deliver the message to the first
/// tuple in that set, and proceed through the set in order until the delivery attempt succeeds."
#[test]
fn a_target_that_fails_is_followed_by_the_next() {
    let mut s = Script::stateful();
    s.send(BACKEND_A, &call("INVITE", "sip:carol@example.org"));
    let servers = [(20, "two.example.org", 5072), (10, "one.example.org", 5071)];
    let hosts = [("one.example.org", [203, 0, 113, 1]), ("two.example.org", [203, 0, 113, 2])];
    let first = forwarded(answer(&mut s, &servers, &hosts));
    // The second server's address is queried meanwhile. Another request finds both.
    s.pass(Duration::from_millis(1));
    let again = call("INVITE", "sip:carol@example.org").replace("Call-ID: c", "Call-ID: d");
    let again = again.replace("z9hG4bK-c", "z9hG4bK-d");
    let sent = s.send(BACKEND_A, &again);
    let sent: Vec<_> = sent.iter().filter(|sent| sent.start().starts_with("INVITE")).collect();
    assert_eq!((first.len(), sent.len()), (1, 1));
    let rejected = sent[0].answer("503 Service Unavailable");
    let sent = s.send("203.0.113.1:5071", &rejected);
    let next: Vec<_> = sent.iter().filter(|sent| sent.start().starts_with("INVITE")).collect();
    assert_eq!(next[0].to.to_string(), "203.0.113.2:5072");
}

/// RFC 7339 §5.4: "The scope of overload control applies to unique combinations of IP and port values."
/// §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by the current "oc"
/// and "oc-algo" parameter values from that particular downstream server." The second server of the name
/// is a back end.
#[test]
fn a_restriction_also_applies_to_the_further_addresses_of_a_name() {
    for (percent, next) in [(0, BACKEND_B), (100, "203.0.113.3:5073")] {
        let mut s = obeying(Mode::Transaction);
        for told in calls(&mut s, "a", 2).into_iter().flatten() {
            let percent = if told.to == address(BACKEND_B) { percent } else { 0 };
            let response = telling(&told, "486 Busy Here", &value("loss", percent, 1));
            s.send(&told.to.to_string(), &response);
        }
        s.send(BACKEND_A, &call("INVITE", "sip:carol@example.org"));
        let [one, two, three] = ["one.example.org", "two.example.org", "three.example.org"];
        let servers = [(10, one, 5071), (20, two, 5070), (30, three, 5073)];
        let hosts = [(one, [203, 0, 113, 1]), (two, [10, 0, 0, 2]), (three, [203, 0, 113, 3])];
        answer(&mut s, &servers, &hosts);
        // Another request finds all servers.
        s.pass(Duration::from_millis(1));
        let again = call("INVITE", "sip:carol@example.org").replace("Call-ID: c", "Call-ID: d");
        let first = forwarded(s.send(BACKEND_A, &again.replace("z9hG4bK-c", "z9hG4bK-d")));
        assert_eq!(to(&first), ["203.0.113.1:5071"]);
        let sent = s.send("203.0.113.1:5071", &first[0].answer("503 Service Unavailable"));
        let sent = sent.into_iter().find(|sent| sent.start().starts_with("INVITE")).unwrap();
        assert_eq!(sent.to.to_string(), next);
        assert_eq!(sent.all("Via")[0].ends_with(OFFER), next == BACKEND_B, "{}", sent.text);
    }
}

/// The first address of a name is not left out, because without transactions another choice would
/// lead a CANCEL to another server.
///
/// RFC 3261 §16.11: "In particular, a retransmitted request MUST be forwarded to the same destination
/// each time it is processed. Furthermore, CANCEL and non-Routed ACK requests MUST generate the same
/// choice as their associated INVITE."
#[test]
fn a_restriction_at_the_first_address_of_a_name_rejects_the_request() {
    let mut s = obeying(Mode::Transaction);
    for told in calls(&mut s, "a", 2).into_iter().flatten() {
        let response = telling(&told, "486 Busy Here", &value("loss", 100, 1));
        s.send(&told.to.to_string(), &response);
    }
    s.send(BACKEND_A, &call("INVITE", "sip:carol@example.org"));
    let servers = [(10, "one.example.org", 5070), (20, "two.example.org", 5071)];
    let hosts = [("one.example.org", [10, 0, 0, 2]), ("two.example.org", [203, 0, 113, 1])];
    let sent = answer(&mut s, &servers, &hosts);
    assert!(forwarded(sent.clone()).is_empty(), "{sent:?}");
    assert!(sent.iter().any(|sent| sent.start().starts_with("SIP/2.0 503")), "{sent:?}");
}

#[test]
fn a_name_that_leads_nowhere_is_not_found_and_a_silent_dns_is_a_timeout() {
    for script in [Script::new, Script::stateful] {
        let mut s = script();
        s.send(BACKEND_A, &call("INVITE", "sip:carol@nowhere.example"));
        let sent = answer(&mut s, &[], &[]);
        assert!(sent[0].start().starts_with("SIP/2.0 404"), "{sent:?}");
        let mut s = script();
        s.send(BACKEND_A, &call("INVITE", "sip:carol@silent.example"));
        let mut sent = Vec::new();
        for _ in 0..12 {
            s.pass(Duration::from_secs(1));
            while asked(&mut s).is_some() {}
            sent.extend(s.serve());
        }
        let finals = sent.iter().filter(|sent| sent.start().starts_with("SIP/2.0 504"));
        assert_eq!(finals.count(), 1, "{sent:?}");
    }
}

#[test]
fn a_cancel_ends_the_request_that_waits() {
    let mut s = Script::stateful();
    s.send(BACKEND_A, &call("INVITE", "sip:carol@example.org"));
    let sent = s.send(BACKEND_A, &call("CANCEL", "sip:carol@example.org"));
    let sent: Vec<_> = sent.iter().map(|sent| &sent.start()[8..11]).collect();
    assert_eq!(sent, ["200", "487"]);
    let hosts = [("example.org", [203, 0, 113, 1])];
    assert!(answer(&mut s, &[], &hosts).is_empty(), "nothing goes on");
    let late = s.send(BACKEND_A, &call("INVITE", "sip:carol@example.org"));
    assert_eq!(late.len(), 1, "a late copy begins nothing");
    assert!(late[0].start().starts_with("SIP/2.0 487"));
}

/// RFC 3261 §16.6 item 7, with a Route that names a host.
///
/// RFC 3261 §16.6: "Otherwise, the proxy MUST apply the procedures to the first value in the Route
/// header field, if present, else the Request-URI."
#[test]
fn a_route_may_name_a_host() {
    let mut s = Script::new();
    let invite = call("INVITE", "sip:carol@203.0.113.77");
    let invite = invite.replace("From:", "Route: <sip:proxy.example.org;lr>\r\nFrom:");
    s.send(BACKEND_A, &invite);
    let sent = answer(&mut s, &[], &[("proxy.example.org", [203, 0, 113, 9])]);
    assert_eq!(to(&sent), ["203.0.113.9:5060"]);
}

#[test]
fn a_stranger_has_nothing_resolved() {
    let mut s = Script::new();
    let sent = s.send(
        CALLER,
        &request("INVITE", "sip:bob@192.0.2.1", "c", 1, "Route: <sip:x.example;lr>\r\n"),
    );
    assert!(sent[0].start().starts_with("SIP/2.0 403"), "{sent:?}");
    s.send(CALLER, &request("INVITE", "sip:bob@x.example", "d", 1, ""));
    assert!(asked(&mut s).is_none());
}

/// The number of requests that wait from one source, or for one name, is limited to the number of
/// free places.
#[test]
fn no_more_requests_wait_than_there_may_be() {
    let mut s = Script::new();
    let mut statuses = Vec::new();
    for i in 0..1100 {
        let text =
            call("INVITE", "sip:carol@example.org").replace("z9hG4bK-c", &format!("z9hG4bK-{i}"));
        let sent = s.send(BACKEND_A, &text.replace("Call-ID: c", &format!("Call-ID: {i}")));
        statuses.extend(sent.iter().map(|sent| sent.start()[8..11].to_owned()));
    }
    assert_eq!(outcome(&s.counters.parked), 512);
    assert_eq!(statuses, vec!["503"; 1100 - 512]);
    let sent = answer(&mut s, &[], &[("example.org", [203, 0, 113, 1])]);
    assert_eq!(sent.len(), 512, "all go on");
}

/// More queries would wait in the resolver, and there they would delay those of other shards.
#[test]
fn a_shard_sends_no_more_queries_than_have_places() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.queries = QueryLimits { requests: 2, ..QueryLimits::MIN };
    });
    for i in 0..5 {
        let text = call("INVITE", &format!("sip:carol@silent-{i}.example"));
        let text = text.replace("z9hG4bK-c", &format!("z9hG4bK-{i}"));
        s.send(BACKEND_A, &text.replace("Call-ID: c", &format!("Call-ID: {i}")));
    }
    assert_eq!((outcome(&s.counters.parked), outcome(&s.counters.resolution.asked)), (5, 0));
    assert_eq!(std::iter::from_fn(|| asked(&mut s)).count(), 2);
}

/// A back end calls from its `sources` before its own name has been resolved. So requests of the
/// call cannot be sent to it. RFC 3261 §21.5.4: "The server is temporarily unable to process the
/// request".
#[test]
fn a_call_from_the_sources_of_a_back_end_without_an_address_harms_nobody() {
    const PBX: &str = "10.0.0.5:5060";
    const PHONE: &str = "203.0.113.9:5060";
    let at = |from: &str, text: &str| text.replace("198.51.100.7:5060", from);
    for (mode, choice) in [
        (Mode::Stateless, Choice::One(Policy::Rr.into())),
        (Mode::Transaction, Choice::One(Policy::Rr.into())),
        (Mode::Adaptive, Choice::All(vec![1000])),
    ] {
        let mut s = Script::with(Policy::Rr, |settings| {
            let named = Endpoint::Name(Named::new("pbx.example", 5070));
            let backend = Arc::new(Backend::new("a", named, 1));
            settings.pools = vec![PoolSettings {
                mode,
                choice: choice.clone(),
                sources: vec![vec!["10.0.0.0/24".parse().unwrap()]],
                ..PoolSettings::new(Pool::of("app", vec![backend]), Policy::Rr)
            }];
        });
        let sent = s.send(PBX, &at(PBX, &request("INVITE", "sip:bob@203.0.113.9", "c", 1, "")));
        let out = forwarded(sent).remove(0);
        assert_eq!(out.to.to_string(), PHONE);
        s.send(PHONE, &out.answer("200 OK"));

        for method in ["ACK", "CANCEL", "INVITE", "OPTIONS"] {
            let text = at(PHONE, &request(method, "sip:x@192.0.2.1", "c", 9, ""));
            let sent = s.send(PHONE, &text);
            assert!(forwarded(sent).is_empty(), "{method}: there is no address");
        }
        // The called phone ignores Record-Route.
        let bye = at(PHONE, &request("BYE", "sip:alice@192.0.2.1", "c", 2, ""));
        let bye =
            bye.replace("From: <sip:alice@example.com>;tag=caller", "From: <sip:b>;tag=callee");
        let bye = bye.replace("To: <sip:bob@example.com>", "To: <sip:a>;tag=caller");
        assert_eq!(s.status(PHONE, &bye), 503, "{mode:?}");
        assert!(s.counters.dropped(DropReason::RejectedAck).get() > 0, "the ACK is dropped");
    }
}

/// RFC 7339 §4.1: "When a SIP client receives a response with the value in the "oc" parameter filled in, it
/// MUST reduce, as indicated by the "oc" and "oc-algo" parameters, the number of requests going
/// downstream to the SIP server from which it received the response". A call stays at the address where it
/// began.
#[test]
fn the_feedback_of_an_address_that_a_name_has_left_is_read() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| {
            let named = Endpoint::Name(Named::new("app.example", 5070));
            let pool = Pool::of("app", vec![Arc::new(Backend::new("a", named, 1))]);
            let pool = PoolSettings::new(pool, Policy::Rr);
            settings.pools = vec![PoolSettings { mode, obedience: Obedience::Always, ..pool }];
        });
        s.pass(Duration::from_secs(60));
        answer(&mut s, &[], &[("app.example", [10, 0, 0, 1])]);
        let text = |method, cseq, more| request(method, "sip:bob@192.0.2.1", "a", cseq, more);
        let invite = forwarded(s.send(CALLER, &text("INVITE", 1, ""))).remove(0);
        s.send("10.0.0.1:5070", &invite.answer("200 OK"));
        s.send(CALLER, &text("ACK", 1, "Totag\r\n"));
        s.pass(Duration::from_secs(60));
        answer(&mut s, &[], &[("app.example", [10, 0, 0, 2])]);
        let info = forwarded(s.send(CALLER, &text("INFO", 2, "Totag\r\n"))).remove(0);
        assert_eq!(info.to.to_string(), "10.0.0.1:5070");
        s.send("10.0.0.1:5070", &telling(&info, "200 OK", &value("loss", 100, 1)));
        assert_eq!(s.status(CALLER, &text("INFO", 3, "Totag\r\n")), 503, "{mode:?}");
        // The restriction is that of the earlier address alone.
        let new = request("INVITE", "sip:bob@192.0.2.1", "b", 1, "");
        assert_eq!(to(&forwarded(s.send(CALLER, &new))), ["10.0.0.2:5070"]);
    }
}

/// The address of a name may change every minute for years.
#[test]
fn the_restriction_at_an_address_that_a_name_has_left_is_forgotten() {
    let mut next_hops = None;
    let mut s = Script::with(Policy::Rr, |settings| {
        let named = Endpoint::Name(Named::new("app.example", 5070));
        let pool = Pool::of("app", vec![Arc::new(Backend::new("a", named, 1))]);
        let pool = PoolSettings::new(pool, Policy::Rr).stateless();
        settings.pools = vec![PoolSettings { obedience: Obedience::Always, ..pool }];
        next_hops = Some(settings.next_hops.clone());
    });
    let mut now = Vec::new();
    for last in 1..=20 {
        s.pass(Duration::from_secs(60));
        answer(&mut s, &[], &[("app.example", [10, 0, 0, last])]);
        let invite = request("INVITE", "sip:bob@192.0.2.1", &format!("c{last}"), 1, "");
        let invite = s.one(CALLER, &invite);
        assert_eq!(invite.to.to_string(), format!("10.0.0.{last}:5070"));
        let told = telling(&invite, "486 Busy Here", &value("loss", 0, 1));
        s.send(&invite.to.to_string(), &told);
        let views = next_hops.as_ref().unwrap().views(s.now);
        assert!(views.iter().any(|view| view.address == invite.to), "{views:?}");
        now = views;
    }
    // Calls may still be at the last addresses.
    assert!(now.len() <= GENERATIONS_MAX, "{now:?}");
}
