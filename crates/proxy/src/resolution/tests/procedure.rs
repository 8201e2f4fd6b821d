//! The procedure of RFC 3263 §4, step by step.

use std::collections::BTreeSet;

use tidegate_world::Transport::{Tcp, Tls, Udp, Ws, Wss};

use super::*;

// RFC 3263 §4.1: "Otherwise, if no transport protocol is specified, but the TARGET is a numeric IP
// address, the client SHOULD use UDP for a SIP URI, and TCP for a SIPS URI." §4.2: "If TARGET is a
// numeric IP address, the client uses that address. If the URI also contains a port, it uses that
// port. If no port is specified, it uses the default port for the particular transport protocol."
// RFC 3263 §4.1: "If the URI specifies a transport protocol in the transport parameter, that
// transport protocol SHOULD be used."
#[test]
fn a_numeric_address_is_used_as_it_is() {
    let mut scene = Scene::new(&[Udp, Tcp, Tls, Ws, Wss]);
    for (uri, transport, address) in [
        ("sip:a@192.0.2.1", Udp, "192.0.2.1:5060"),
        ("sip:a@192.0.2.1:5080", Udp, "192.0.2.1:5080"),
        ("sip:a@[2001:db8::1]", Udp, "[2001:db8::1]:5060"),
        ("sip:a@192.0.2.1;transport=TCP", Tcp, "192.0.2.1:5060"),
        ("sip:a@192.0.2.1;transport=tls", Tls, "192.0.2.1:5061"),
        ("sips:a@192.0.2.1", Tls, "192.0.2.1:5061"),
        ("sips:a@192.0.2.1;transport=tcp", Tls, "192.0.2.1:5061"),
        // RFC 7118 §5.5: "the default port for a SIP URI using the "sip" scheme and the "ws"
        // transport parameter is 80, and the default port for a SIP URI using the "sips" scheme
        // and the "ws" transport parameter is 443."
        ("sip:a@192.0.2.1;transport=ws", Ws, "192.0.2.1:80"),
        ("sips:a@192.0.2.1;transport=ws", Wss, "192.0.2.1:443"),
    ] {
        assert_eq!(scene.try_locate(uri, 0), at(&[(transport, address)]), "{uri}");
    }
    assert_eq!(scene.resolution.poll_query(), None);
}

#[test]
fn a_transport_that_is_not_supported_leads_nowhere() {
    let mut scene = Scene::new(&[Udp]).a("a.example.", &["192.0.2.1"]);
    for uri in [
        "sips:a@192.0.2.1",
        "sip:a@192.0.2.1;transport=tcp",
        "sip:a@a.example;transport=sctp",
        "sips:a@a.example;transport=udp",
        "sips:a@a.example",
    ] {
        assert_eq!(scene.try_locate(uri, 0), Located::NotFound, "{uri}");
    }
    assert_eq!(scene.resolution.poll_query(), None);
}

// RFC 3263 §4: "We define TARGET as the value of the maddr parameter of the URI, if present,
// otherwise, the host value of the hostport component of the URI." RFC 3261 §19.1.1: "When an maddr
// parameter is present, the port and transport components of the URI apply to the address indicated
// in the maddr parameter value."
#[test]
fn maddr_comes_before_the_host() {
    let mut scene = Scene::new(&[Udp, Tcp]).a("b.example.", &["192.0.2.2"]);
    let located = scene.try_locate("sip:a@a.example:5080;maddr=192.0.2.9;transport=tcp", 0);
    assert_eq!(located, at(&[(Tcp, "192.0.2.9:5080")]));
    let located = scene.locate("sip:a@192.0.2.1:5080;maddr=b.example");
    assert_eq!(located, at(&[(Udp, "192.0.2.2:5080")]));
    for (uri, is_wanted) in [
        ("sip:a@a.example;maddr=a/b", false),
        ("tel:+1234", false),
        ("urn:service:sos", false),
        ("sip:a@a.example;maddr=", true),
    ] {
        assert_eq!(Wanted::of(&Uri::parse(uri.as_bytes()).unwrap()).is_some(), is_wanted, "{uri}");
    }
}

// RFC 3263 §4.2: "If the TARGET was not a numeric IP address, but a port is present in the URI, the
// client performs an A or AAAA record lookup of the domain name. The result will be a list of IP
// addresses, each of which can be contacted at the specific port from the URI and transport
// protocol determined previously." [...] "Previously, if the port was explicit, but with a value of
// 5060, SRV records were used. Now, A or AAAA records will be used."
// RFC 3263 §4.1: "Similarly, if no transport protocol is specified, and the TARGET is not numeric,
// but an explicit port is provided, the client SHOULD use UDP for a SIP URI, and TCP for a SIPS
// URI."
#[test]
fn a_name_with_a_port_is_looked_up_by_its_addresses() {
    let mut scene = Scene::new(&[Udp, Tcp]).a("a.example.", &["192.0.2.1", "192.0.2.2"]);
    let Located::Targets(targets) = scene.locate("sip:A.Example:5060") else { panic!("it is") };
    let places: BTreeSet<_> =
        targets.iter().map(|t| (t.transport, t.address.to_string())).collect();
    let expected = ["192.0.2.1:5060", "192.0.2.2:5060"].map(|place| (Udp, place.to_owned()));
    assert_eq!(places, BTreeSet::from(expected));
    assert_eq!(scene.asked(), ["A a.example."]);
    let mut firsts = BTreeSet::new();
    for hash in 0..20 {
        let located = scene.try_locate("sip:a.example:5060;transport=tcp", hash);
        let Located::Targets(targets) = located else { panic!("it is known") };
        firsts.insert(targets[0]);
    }
    assert_eq!(firsts.len(), 2, "requests share the addresses");
}

// RFC 3263 §4.2: "If it was not, because a transport was specified explicitly, the client performs
// an SRV query for that specific transport, using the service identifier "_sips" for SIPS URIs. For
// a SIP URI, if the client wishes to use TLS, it also uses the service identifier "_sips" for that
// specific transport, otherwise, it uses "_sip"."
#[test]
fn a_name_with_a_transport_is_looked_up_by_its_service() {
    let one = |port| [srv(0, 0, port, "s.example.")];
    let mut scene = Scene::new(&[Udp, Tcp, Tls])
        .srv("_sip._tcp.a.example.", &one(5070))
        .srv("_sips._tcp.a.example.", &one(5071))
        .a("s.example.", &["192.0.2.1"]);
    for (uri, transport, port) in [
        ("sip:a.example;transport=tcp", Tcp, 5070),
        ("sip:a.example;transport=tls", Tls, 5071),
        ("sips:a.example;transport=tcp", Tls, 5071),
    ] {
        assert_eq!(scene.locate(uri), at(&[(transport, &format!("192.0.2.1:{port}"))]), "{uri}");
    }
    let asked = ["Srv _sip._tcp.a.example.", "A s.example.", "Srv _sips._tcp.a.example."];
    assert_eq!(scene.asked(), asked);
}

// The example of RFC 3263 §4.1: "This indicates that the server supports TLS over TCP, TCP, and
// UDP, in that order of preference. Since the client supports TCP and UDP, TCP will be used,
// targeted to a host determined by an SRV lookup of _sip._tcp.example.com."
// RFC 3263 §4.1: "Otherwise, if no transport protocol or port is specified, and the target is not a
// numeric IP address, the client SHOULD perform a NAPTR query for the domain in the URI."
#[test]
fn the_domain_chooses_among_the_transports_of_the_client() {
    let mut scene = example();
    let mut firsts = [0, 0];
    for hash in 0..3000 {
        let Located::Targets(targets) = scene.locate_for("sip:user@example.com", hash) else {
            panic!("it is found");
        };
        assert!(targets.len() == 2 && targets.iter().all(|target| target.transport == Tcp));
        firsts[usize::from(targets[0].address.to_string() == "192.0.2.2:5060")] += 1;
    }
    // Binomial: six standard deviations are 155.
    assert!(2000u32.abs_diff(firsts[1]) < 155, "{firsts:?}");
    let asked = [
        "Naptr example.com.",
        "Srv _sip._tcp.example.com.",
        "A server1.example.com.",
        "A server2.example.com.",
    ];
    let mut all = scene.asked();
    all.sort_by_key(|question| asked.iter().position(|other| other == question));
    assert_eq!(all, asked, "each once");
}

// RFC 3263 §4.1: "A client resolving a SIP URI SHOULD retain records with "SIPS" as the protocol,
// if the client supports TLS." The proxy opens connections over TLS to back ends only, so it cannot
// reach the servers of a carrier over TLS, even if it has a listener for TLS.
#[test]
fn a_domain_that_prefers_tls_is_reached_without_tls_if_it_can_be() {
    let tls = naptr(50, "s", "SIPS+D2T", "_sips._tcp.a.example.");
    let udp = naptr(100, "s", "SIP+D2U", "_sip._udp.a.example.");
    let scene = |naptrs: &[_]| {
        Scene::new(&[Udp, Tls])
            .naptr("a.example.", naptrs)
            .srv("_sips._tcp.a.example.", &[srv(0, 0, 5061, "s.example.")])
            .srv("_sip._udp.a.example.", &[srv(0, 0, 5060, "s.example.")])
            .a("s.example.", &["192.0.2.1"])
    };
    let mut both = scene(&[tls.clone(), udp]);
    assert_eq!(both.locate("sip:a.example"), at(&[(Udp, "192.0.2.1:5060")]));
    assert_eq!(both.locate("sips:a.example"), at(&[(Tls, "192.0.2.1:5061")]));
    assert_eq!(both.locate("sip:a.example;transport=tls"), at(&[(Tls, "192.0.2.1:5061")]));
    // A domain that offers only TLS is used, because a Route may name a back end by it.
    assert_eq!(scene(&[tls]).locate("sip:a.example"), at(&[(Tls, "192.0.2.1:5061")]));
}

// RFC 3263 §4.1: "It is not necessary for the domain suffixes in the NAPTR replacement field to
// match the domain of the original query". §4.2: "If no SRV records were found, the client performs
// an A or AAAA record lookup of the domain name [...] using the transport protocol determined
// previously, at the default port for that transport."
#[test]
fn services_may_lie_in_another_domain_or_be_missing() {
    let naptrs = [naptr(1, "s", "SIP+D2T", "_sip._tcp.school.edu.")];
    let mut scene = Scene::new(&[Udp, Tcp])
        .naptr("a.example.", &naptrs)
        .srv("_sip._tcp.school.edu.", &[srv(0, 0, 5070, "s.school.edu.")])
        .a("s.school.edu.", &["192.0.2.1"]);
    assert_eq!(scene.locate("sip:a.example"), at(&[(Tcp, "192.0.2.1:5070")]));
    let mut scene =
        Scene::new(&[Udp, Tcp]).naptr("a.example.", &naptrs).a("a.example.", &["192.0.2.9"]);
    assert_eq!(scene.locate("sip:a.example"), at(&[(Tcp, "192.0.2.9:5060")]));
}

// RFC 3263 §4.1: "If no NAPTR records are found, the client constructs SRV queries for those
// transport protocols it supports, and does a query for each. Queries are done using the service
// identifier "_sip" for SIP URIs and "_sips" for SIPS URIs. A particular transport is supported if
// the query is successful. The client MAY use any transport protocol it desires which is supported
// by the server."
#[test]
fn without_naptr_records_each_service_is_asked_for() {
    let scene = || {
        Scene::new(&[Udp, Tcp, Tls])
            .srv("_sip._tcp.a.example.", &[srv(0, 0, 5070, "s.example.")])
            .srv("_sips._tcp.a.example.", &[srv(0, 0, 5071, "s.example.")])
            .a("s.example.", &["192.0.2.1"])
    };
    let mut sip = scene();
    assert_eq!(sip.locate("sip:a.example"), at(&[(Tcp, "192.0.2.1:5070")]));
    let (udp, tcp) = ("Srv _sip._udp.a.example.", "Srv _sip._tcp.a.example.");
    assert_eq!(sip.asked(), ["Naptr a.example.", udp, tcp, "A s.example."]);
    let mut sips = scene();
    assert_eq!(sips.locate("sips:a.example"), at(&[(Tls, "192.0.2.1:5071")]));
    // A mail service is not a SIP service.
    let mut other = scene().naptr("a.example.", &[naptr(1, "s", "IM+D2X", "_im._tcp.a.example.")]);
    assert_eq!(other.locate("sip:a.example"), at(&[(Tcp, "192.0.2.1:5070")]));
    // RFC 3263 §4.1: "If no SRV records are found, the client SHOULD use TCP for a SIPS URI, and
    // UDP for a SIP URI."
    let bare = || Scene::new(&[Tls, Tcp, Udp]).a("a.example.", &["192.0.2.1"]);
    assert_eq!(bare().locate("sip:a.example"), at(&[(Udp, "192.0.2.1:5060")]));
    assert_eq!(bare().locate("sips:a.example"), at(&[(Tls, "192.0.2.1:5061")]));
}

// RFC 2782: "A Target of "." means that the service is decidedly not available at this domain."
#[test]
fn a_service_that_is_not_available_is_not_looked_for_elsewhere() {
    let none = [srv(0, 0, 0, ".")];
    let mut scene =
        Scene::new(&[Udp]).srv("_sip._udp.a.example.", &none).a("a.example.", &["192.0.2.1"]);
    assert_eq!(scene.locate("sip:a.example"), Located::NotFound);
    assert_eq!(scene.asked(), ["Naptr a.example.", "Srv _sip._udp.a.example."]);
    let mut scene = Scene::new(&[Udp, Tcp])
        .srv("_sip._udp.a.example.", &none)
        .srv("_sip._tcp.a.example.", &[srv(0, 0, 5070, "s.example.")])
        .a("s.example.", &["192.0.2.1"]);
    assert_eq!(scene.locate("sip:a.example"), at(&[(Tcp, "192.0.2.1:5070")]));
}

// RFC 2782: "A client MUST attempt to contact the target host with the lowest-numbered priority it
// can reach". RFC 3263 §4.3: "That request is sent to the next element in the list as specified by
// RFC 2782."
#[test]
fn targets_for_failover_follow_by_priority() {
    let mut scene = Scene::new(&[Udp])
        .srv(
            "_sip._udp.a.example.",
            &[srv(30, 0, 5073, "c."), srv(10, 0, 5071, "a."), srv(20, 0, 5072, "b.")],
        )
        .a("a.", &["192.0.2.1"])
        .a("c.", &["192.0.2.3"]);
    // `b` has no address.
    let both = at(&[(Udp, "192.0.2.1:5071"), (Udp, "192.0.2.3:5073")]);
    assert_eq!(scene.locate("sip:a.example"), both);
}

// RFC 3263 §4.4: "The stateless proxy MUST define a deterministic order to the records".
#[test]
fn a_request_keeps_its_targets_when_records_come_in_another_order() {
    let mut records: Vec<_> =
        (0..5).map(|i| srv(1, 10 * i, 5060, &format!("s{i}.example."))).collect();
    let located = |records: &[SrvRecord], turned: bool| {
        let mut scene = Scene::new(&[Udp]).srv("_sip._udp.a.example.", records);
        for i in 0..5 {
            let mut ips = [format!("192.0.2.{i}"), format!("192.0.2.{}", i + 100)];
            if turned {
                ips.reverse();
            }
            scene = scene.a(&format!("s{i}.example."), &[&ips[0], &ips[1]]);
        }
        (0..50).map(|hash| scene.locate_for("sip:a.example", hash)).collect::<Vec<_>>()
    };
    let before = located(&records, false);
    assert!(before.iter().any(|located| *located != before[0]));
    records.reverse();
    assert_eq!(located(&records, true), before);
}

#[test]
fn the_preferred_family_comes_first() {
    for (address_records, expected) in [
        (V4, vec!["192.0.2.1:1"]),
        (V6, vec!["[2001:db8::1]:1"]),
        (V4_V6, vec!["192.0.2.1:1", "[2001:db8::1]:1"]),
        (V6_V4, vec!["[2001:db8::1]:1", "192.0.2.1:1"]),
    ] {
        let scene = Scene::with(&[Udp], address_records, 8);
        let mut scene = scene.a("a.example.", &["192.0.2.1", "2001:db8::1"]);
        let expected: Vec<_> = expected.into_iter().map(|place| (Udp, place)).collect();
        assert_eq!(scene.locate("sip:a.example:1"), at(&expected));
    }
}

#[test]
fn only_addresses_that_may_be_targets_are_returned() {
    let mut scene = Scene::new(&[Udp]).a("a.example.", &["127.0.0.1", "192.0.2.1"]);
    let locate = |scene: &mut Scene, uri: &str| {
        let uri = Uri::parse(uri.as_bytes()).unwrap();
        let wanted = Wanted::of(&uri).unwrap();
        let may_be = |target: &Target| !target.address.ip().is_loopback();
        scene.resolution.locate(scene.now, &wanted, 0, may_be)
    };
    assert_eq!(locate(&mut scene, "sip:127.0.0.1"), Located::NotFound);
    assert_eq!(locate(&mut scene, "sip:192.0.2.1:0"), Located::NotFound);
    scene.locate("sip:a.example:5060");
    assert_eq!(locate(&mut scene, "sip:a.example:5060"), at(&[(Udp, "192.0.2.1:5060")]));
    assert_eq!(scene.counters.unusable.get(), 3);
}

#[test]
fn names_that_cannot_be_are_not_asked_for() {
    let mut scene = Scene::new(&[Udp]);
    let long = format!("sip:{}.example", "a".repeat(64));
    for uri in ["sip:a..example", &long] {
        assert_eq!(scene.try_locate(uri, 0), Located::NotFound);
    }
    assert_eq!(scene.resolution.poll_query(), None);
}

#[test]
fn targets_are_bounded_and_each_server_has_its_part() {
    let many: Vec<_> = (1..=40).map(|last| format!("192.0.2.{last}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let scene = || Scene::new(&[Udp]).a("a.example.", &many).a("b.example.", &many);
    let Located::Targets(targets) = scene().locate("sip:a.example:5060") else { panic!("found") };
    assert_eq!(targets.len(), TARGETS_MAX);
    let mut scene = scene().srv(
        "_sip._udp.s.example.",
        &[srv(1, 0, 5061, "a.example."), srv(2, 0, 5062, "b.example.")],
    );
    let Located::Targets(targets) = scene.locate("sip:s.example") else { panic!("found") };
    let ports: Vec<_> = targets.iter().map(|target| target.address.port()).collect();
    assert_eq!(ports, [5061, 5061, 5061, 5061, 5062, 5062, 5062, 5062]);
}
