use std::path::Path;

use super::*;

/// Returns the configuration with these pools. A pool has a name and the keys of its back ends.
fn config(pools: &[(&str, &[&str])]) -> Config {
    let mut text = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:5060\"\n\
                    [[route]]\nto = \"app\"\n"
        .to_owned();
    for (name, backends) in pools {
        text += &format!("[[pool]]\nname = \"{name}\"\n");
        backends.iter().for_each(|backend| text += &format!("[[pool.backend]]\n{backend}\n"));
    }
    Config::parse(Path::new("c"), text.as_bytes()).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn record(priority: u16, weight: u16, port: u16, target: &str) -> SrvRecord {
    SrvRecord { priority, weight, port, target: target.into() }
}

fn found(domains: &[(&str, &[SrvRecord])]) -> Found {
    let services = domains.iter().map(|(domain, records)| {
        let service = Service::new(domain, Transport::Udp);
        service.set_servers((*records).into());
        Arc::new(service)
    });
    Found::of(&services.collect::<Vec<_>>())
}

/// Returns the name, the host and port, the weight and the priority of each server of a pool.
fn servers(config: &Config, pool: usize) -> Vec<(String, String, u32, u32)> {
    let server = |backend: &Backend| {
        let Backend { name, endpoint, weight, priority, .. } = backend;
        (name.clone(), endpoint.to_string(), *weight, *priority)
    };
    config.pool[pool].servers().map(server).collect()
}

fn server(name: &str, place: &str, weight: u32, priority: u32) -> (String, String, u32, u32) {
    (name.to_owned(), place.to_owned(), weight, priority)
}

#[test]
fn each_server_of_a_domain_is_a_back_end_with_its_weight_and_priority() {
    let config =
        config(&[("app", &["uri = \"sip:example.com\"\nweight = 2\npriority = 3\ncalls_max = 9"])]);
    assert!(servers(&config, 0).is_empty(), "as long as nothing is found");
    let records = [
        record(10, 60, 5070, "a.example.com."),
        record(10, 0, 5071, "b.example.com."),
        record(20, 0, 5072, "c."),
    ];
    let found = found(&[("example.com", &records)]);
    let expanded = found.expand(&config);
    let place = ["a.example.com:5070", "b.example.com:5071", "c.:5072"];
    assert_eq!(
        servers(&expanded, 0),
        [
            server(place[0], place[0], 120, 3),
            server(place[1], place[1], 2, 3),
            server(place[2], place[2], 2, 4),
        ]
    );
    assert!(expanded.pool[0].servers().all(|server| server.calls_max == Some(9)));
    assert_eq!(expanded.pool[0].domains().collect::<Vec<_>>(), ["example.com"], "it is asked on");
}

#[test]
fn weights_above_a_thousand_are_scaled() {
    let config = config(&[("app", &["uri = \"sip:example.com\""])]);
    let records =
        [record(1, 65_535, 1, "a.x."), record(1, 6_553, 1, "b.x."), record(1, 1, 1, "c.x.")];
    let expanded = found(&[("example.com", &records)]).expand(&config);
    let weights: Vec<_> =
        servers(&expanded, 0).into_iter().map(|(_, _, weight, _)| weight).collect();
    assert_eq!(weights, [1000, 99, 1]);
}

// RFC 3263 §4.2: "If no SRV records were found, the client performs an A or AAAA record lookup of
// the domain name".
#[test]
fn a_domain_that_is_its_own_server_keeps_its_name() {
    let config = config(&[
        ("app", &["uri = \"sip:example.com\""]),
        ("named", &["name = \"kam1\"\nuri = \"sip:kam.example.com\""]),
    ]);
    let itself = |domain| [record(0, 0, 5060, domain)];
    let (one, other) = (itself("example.com"), itself("kam.example.com"));
    let expanded = found(&[("example.com", &one), ("kam.example.com", &other)]).expand(&config);
    assert_eq!(servers(&expanded, 0), [server("example.com:5060", "example.com:5060", 1, 0)]);
    assert_eq!(servers(&expanded, 1), [server("kam1", "kam.example.com:5060", 1, 0)]);
    let listed = [record(0, 0, 5080, "a.example.com.")];
    let expanded = found(&[("kam.example.com", &listed)]).expand(&config);
    let place = "a.example.com:5080";
    assert_eq!(servers(&expanded, 1), [server("kam1:a.example.com:5080", place, 1, 0)]);
}

#[test]
fn the_servers_of_a_domain_have_different_names() {
    let config = config(&[("app", &["name = \"app\"\nuri = \"sip:example.com\""])]);
    let [other, usual] = [5070, 5060].map(|port| record(0, 0, port, "example.com."));
    let names = |records: &[SrvRecord]| {
        let expanded = found(&[("example.com", records)]).expand(&config);
        servers(&expanded, 0).into_iter().map(|(name, ..)| name).collect::<Vec<_>>()
    };
    let all = names(&[other.clone(), usual.clone()]);
    assert_eq!(all, ["app:example.com:5070", "app"]);
    // A server with another name would count as another back end. So neither the order of the
    // servers nor a further server may change a name.
    assert_eq!(names(&[usual, other.clone()]), ["app", "app:example.com:5070"]);
    assert_eq!(names(&[other]), all[..1]);
}

/// A regression: commands reached only the first of two back ends with the same name.
#[test]
fn a_server_does_not_get_the_name_of_another_back_end() {
    let config = config(&[(
        "app",
        &["uri = \"sip:example.com\"", "name = \"a.example.com:5070\"\nuri = \"sip:127.0.0.1:9\""],
    )]);
    let expanded = found(&[("example.com", &[record(0, 1, 5070, "a.example.com.")])]);
    let servers = servers(&expanded.expand(&config), 0);
    let names: Vec<_> = servers.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["example.com:a.example.com:5070", "a.example.com:5070"]);
}

/// A regression: a server got the name of a back end with a host name, because only the names of
/// back ends with an address were taken into account.
#[test]
fn a_server_does_not_get_the_name_of_a_back_end_with_a_host_name() {
    let config = config(&[(
        "app",
        &[
            "uri = \"sip:example.com\"",
            "name = \"a.example.com:5070\"\nuri = \"sip:b.example:5080\"",
            "name = \"example.com:a.example.com:5070\"\nuri = \"sip:c.example:5080\"",
        ],
    )]);
    let expanded = found(&[("example.com", &[record(0, 1, 5070, "a.example.com.")])]);
    let servers = servers(&expanded.expand(&config), 0);
    let names: Vec<_> = servers.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(
        names,
        [
            "example.com:example.com:a.example.com:5070",
            "a.example.com:5070",
            "example.com:a.example.com:5070",
        ]
    );
}

#[test]
fn a_server_is_in_a_pool_once_and_has_one_name_in_all() {
    let config = config(&[
        (
            "app",
            &[
                "uri = \"sip:one.example\"",
                "uri = \"sip:two.example\"",
                "name = \"first\"\nuri = \"sip:a.example:5070\"\nweight = 7",
            ],
        ),
        ("other", &["uri = \"sip:two.example\""]),
    ]);
    let [a, b] = [record(1, 5, 5070, "a.example."), record(1, 5, 5070, "b.example.")];
    let one = [a.clone(), b.clone()];
    let two = [b, a];
    let expanded = found(&[("one.example", &one), ("two.example", &two)]).expand(&config);
    let b = server("b.example:5070", "b.example:5070", 5, 0);
    assert_eq!(servers(&expanded, 0), [b.clone(), server("first", "a.example:5070", 7, 0)]);
    assert_eq!(servers(&expanded, 1), [b, server("first", "a.example:5070", 5, 0)]);
}

#[test]
fn a_command_contains_the_servers_that_were_found() {
    let records = [record(10, 60, 5070, "a.example.com."), record(10, 0, 5071, "b.")];
    let known = found(&[("example.com", &records), ("none.example", &[])]);
    assert_eq!(Found::given(&known.text()).as_ref(), Some(&known));
    assert_eq!(Found::given(&Found::default().text()), Some(Found::default()));
    assert!(Found::given("[[found]]\ndomain = 1\n").is_none());
    assert!(known.text().contains("found"));
    let silent = Arc::new(Service::new("silent.example", Transport::Udp));
    assert_eq!(Found::of(&[silent]), Found::default(), "it is not known");
}

#[test]
fn changes_are_reported_for_each_domain() {
    let records = [record(10, 60, 5070, "a.example.com."), record(10, 0, 5071, "b.x.")];
    let before = found(&[("one.example", &records), ("two.example", &records)]);
    let after =
        found(&[("one.example", &records), ("two.example", &records[..1]), ("none.example", &[])]);
    assert_eq!(
        after.changes_since(&before).collect::<Vec<_>>(),
        [
            "domain two.example: the DNS lists 1 server: a.example.com:5070",
            "domain none.example: the DNS lists no servers",
        ]
    );
    assert_eq!(
        before.changes_since(&after).collect::<Vec<_>>(),
        ["domain two.example: the DNS lists 2 servers: a.example.com:5070, b.x:5071",]
    );
}
