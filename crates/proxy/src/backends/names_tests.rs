use std::net::IpAddr;
use std::sync::Arc;

use tidegate_balance::{Endpoint, Lookups, Named, Policy, Pool, Service};
use tidegate_world::{Question, SrvRecord, Transport};

use super::*;
use crate::keys::Secret;
use crate::settings::queries::QueryLimits;
use crate::settings::{Listener, PoolSettings};
use crate::testing::at_s as at;

fn names_of(hosts: &[&str]) -> (Names, Pool) {
    let named = hosts.iter().map(|&host| (host, Endpoint::Name(Named::new(host, 5070)), 1));
    let pool = Pool::located("app", named);
    (Names::new(&settings(&pool)), pool)
}

fn settings(pool: &Pool) -> Settings {
    let listener = Listener::new("127.0.0.1:5060".parse().unwrap());
    let secret = Secret::of([1; 32]);
    Settings::new(vec![listener], vec![PoolSettings::new(pool.clone(), Policy::Rr)], secret)
}

fn ip(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

fn found(addresses: &[u8], ttl_s: u64) -> QueryAnswer {
    let addresses = addresses.iter().map(|&last| ip(last)).collect();
    QueryAnswer::Addresses(addresses, Duration::from_secs(ttl_s))
}

/// Returns the id and the host name of each query that is sent at `now`.
fn asked(names: &mut Names, now: Timestamp) -> Vec<(QueryId, String)> {
    names.handle_timeout(now);
    let hosts = std::iter::from_fn(|| names.poll_query()).map(|Query { id, question }| {
        let Question::Resolve { name: host, record: RecordType::A } = question else {
            panic!("{question:?}");
        };
        (id, host.to_string())
    });
    hosts.collect()
}

fn ask_one(names: &mut Names, now: Timestamp) -> QueryId {
    let asked = asked(names, now);
    assert_eq!(asked.len(), 1, "{asked:?}");
    asked[0].0
}

fn answer(names: &mut Names, now: Timestamp, id: QueryId, answer: &QueryAnswer) {
    names.on_answer(now, id, answer, |_| true);
}

fn counts(pool: &Pool) -> [u64; 5] {
    let lookups = &pool.backends()[0].named().unwrap().lookups;
    let Lookups { found, not_found, unanswered, unusable, moved } = lookups;
    [found, not_found, unanswered, unusable, moved].map(|count| count.load(Relaxed))
}

#[test]
fn a_name_is_asked_for_at_once_and_again_when_its_time_is_over() {
    let (mut names, pool) = names_of(&["a.example"]);
    assert_eq!(names.poll_timeout(), Some(Timestamp::ZERO));
    let id = ask_one(&mut names, at(0));
    assert!(!pool.backends()[0].is_up(at(0)), "nobody knows where it is");
    answer(&mut names, at(1), id, &found(&[1], 60));
    assert!(pool.backends()[0].is_up(at(1)));
    assert_eq!(pool.backends()[0].address(), Some("192.0.2.1:5070".parse().unwrap()));
    assert_eq!(names.poll_timeout(), Some(at(61)));
    assert!(asked(&mut names, at(60)).is_empty());
    let id = ask_one(&mut names, at(61));
    assert!(asked(&mut names, at(61)).is_empty(), "once");
    // A long TTL is cut to an hour, and a zero TTL is raised to five seconds.
    answer(&mut names, at(62), id, &found(&[1], 1_000_000));
    assert_eq!(names.poll_timeout(), Some(at(62 + 3600)));
    let id = ask_one(&mut names, at(62 + 3600));
    answer(&mut names, at(4000), id, &found(&[1], 0));
    assert_eq!(names.poll_timeout(), Some(at(4005)));
    assert_eq!(counts(&pool), [3, 0, 0, 0, 1]);
}

#[test]
fn after_failures_it_is_queried_again_after_pauses_that_double_to_32_seconds() {
    let (mut names, pool) = names_of(&["a.example"]);
    let mut now = 0;
    for (pause, why) in [1, 2, 4, 8, 16, 32, 32, 32].into_iter().zip([
        QueryAnswer::NotFound(None),
        QueryAnswer::NoAnswer,
        found(&[], 60),
        QueryAnswer::NotFound(None),
        QueryAnswer::NoAnswer,
        QueryAnswer::NotFound(None),
        QueryAnswer::NotFound(None),
        QueryAnswer::NoAnswer,
    ]) {
        let id = ask_one(&mut names, at(now));
        answer(&mut names, at(now), id, &why);
        now += pause;
        assert_eq!(names.poll_timeout(), Some(at(now)));
    }
    assert_eq!(counts(&pool), [0, 5, 3, 0, 0]);
    assert!(!pool.backends()[0].named().unwrap().is_stale(), "there is nothing that could be");
    let id = ask_one(&mut names, at(now));
    answer(&mut names, at(now), id, &found(&[1], 5));
    let id = ask_one(&mut names, at(now + 5));
    answer(&mut names, at(now + 5), id, &QueryAnswer::NoAnswer);
    assert_eq!(names.poll_timeout(), Some(at(now + 6)), "it begins again");
}

#[test]
fn an_overdue_answer_is_no_longer_awaited() {
    let (mut names, pool) = names_of(&["a.example"]);
    let late = ask_one(&mut names, at(0));
    assert_eq!(names.poll_timeout(), Some(at(20)));
    assert!(asked(&mut names, at(20)).is_empty());
    assert_eq!(counts(&pool), [0, 0, 1, 0, 0]);
    answer(&mut names, at(20), late, &found(&[9], 60));
    let id = ask_one(&mut names, at(21));
    answer(&mut names, at(22), late, &found(&[9], 60));
    assert!(pool.backends()[0].address().is_none());
    answer(&mut names, at(23), id, &found(&[1], 60));
    answer(&mut names, at(24), id, &found(&[9], 60));
    assert_eq!(pool.backends()[0].address(), Some("192.0.2.1:5070".parse().unwrap()));
    for foreign in [QueryId(7), QueryId(u64::MAX)] {
        answer(&mut names, at(25), foreign, &found(&[9], 60));
    }
    assert_eq!(counts(&pool), [1, 0, 1, 0, 1]);
    assert_eq!(names.poll_timeout(), Some(at(83)));
}

#[test]
fn the_last_address_stays_in_use_while_queries_fail() {
    let (mut names, pool) = names_of(&["a.example"]);
    let backend = &pool.backends()[0];
    let id = ask_one(&mut names, at(0));
    answer(&mut names, at(0), id, &found(&[1], 60));
    let id = ask_one(&mut names, at(60));
    answer(&mut names, at(61), id, &QueryAnswer::NotFound(None));
    assert!(backend.is_up(at(61)) && backend.named().unwrap().is_stale());
    assert_eq!(backend.address(), Some("192.0.2.1:5070".parse().unwrap()));
    let id = ask_one(&mut names, at(62));
    answer(&mut names, at(62), id, &found(&[1], 60));
    assert!(!backend.named().unwrap().is_stale());
}

#[test]
fn of_several_addresses_the_current_one_is_kept_or_else_the_first_is_used() {
    let (mut names, pool) = names_of(&["a.example"]);
    let mut now = 0;
    let mut lead = |answered: &QueryAnswer| {
        let id = ask_one(&mut names, at(now));
        answer(&mut names, at(now), id, answered);
        now += 60;
        pool.backends()[0].address().unwrap().ip()
    };
    assert_eq!(lead(&found(&[1, 2, 3], 60)), ip(1));
    assert_eq!(lead(&found(&[2, 3, 1], 60)), ip(1), "it is still among them");
    assert_eq!(lead(&found(&[3, 2], 60)), ip(3));
    assert_eq!(counts(&pool)[4], 2);
}

#[test]
fn an_address_that_no_back_end_can_have_is_skipped() {
    let (mut names, pool) = names_of(&["a.example"]);
    let id = ask_one(&mut names, at(0));
    let is_two = |address: SocketAddr| address == "192.0.2.2:5070".parse().unwrap();
    names.on_answer(at(0), id, &found(&[1, 2], 5), is_two);
    assert_eq!(pool.backends()[0].address().unwrap().ip(), ip(2));
    let id = ask_one(&mut names, at(5));
    names.on_answer(at(5), id, &found(&[1], 5), is_two);
    assert_eq!(pool.backends()[0].address().unwrap().ip(), ip(2));
    assert_eq!((counts(&pool), names.poll_timeout()), ([1, 0, 0, 1, 1], Some(at(6))));
}

/// Makes a pool with one host name, at a proxy with an IPv6 and an IPv4 listener. Requests to the
/// pool leave from `listener`, if there is one.
fn names_between_families(listener: Option<usize>) -> (Names, Pool) {
    let named = Endpoint::Name(Named::new("a.example", 5070));
    let pool = Pool::located("app", [("a", named, 1)]);
    let listeners = ["[2001:db8::10]:5060", "10.0.0.10:5060"];
    let listeners = listeners.map(|local| Listener::new(local.parse().unwrap())).to_vec();
    let of_pool = PoolSettings { listener, ..PoolSettings::new(pool.clone(), Policy::Rr) };
    let settings = Settings::new(listeners, vec![of_pool], Secret::of([1; 32]));
    (Names::new(&settings), pool)
}

/// Returns the id and the type of the records of the next query, if one is due.
fn asked_record(names: &mut Names, now: Timestamp) -> Option<(QueryId, RecordType)> {
    names.handle_timeout(now);
    let Query { id, question } = names.poll_query()?;
    let Question::Resolve { record, .. } = question else { panic!("{question:?}") };
    Some((id, record))
}

#[test]
fn a_name_is_asked_for_addresses_of_the_family_of_the_pools_listener() {
    for (listener, expected) in [(0, RecordType::Aaaa), (1, RecordType::A)] {
        let (mut names, pool) = names_between_families(Some(listener));
        let (id, record) = asked_record(&mut names, at(0)).unwrap();
        assert_eq!(record, expected);
        answer(&mut names, at(0), id, &QueryAnswer::NotFound(None));
        assert_eq!(names.poll_timeout(), Some(at(1)), "no other family can be reached");
        assert_eq!(counts(&pool), [0, 1, 0, 0, 0]);
    }
}

// RFC 3263 §4.2: "the client performs an A or AAAA record lookup of the domain name."
#[test]
fn a_name_without_addresses_of_one_family_is_asked_for_the_other() {
    let nothing = [QueryAnswer::NotFound(None), QueryAnswer::NoAnswer, found(&[], 60)];
    for first in nothing {
        let (mut names, pool) = names_between_families(None);
        let (id, record) = asked_record(&mut names, at(0)).unwrap();
        assert_eq!(record, RecordType::Aaaa, "the first listener has IPv6");
        answer(&mut names, at(0), id, &first);
        let (id, record) = asked_record(&mut names, at(0)).unwrap();
        assert_eq!(record, RecordType::A);
        answer(&mut names, at(0), id, &found(&[1], 60));
        assert_eq!(pool.backends()[0].address().unwrap().ip(), ip(1));
        assert_eq!((counts(&pool), names.poll_timeout()), ([1, 0, 0, 0, 1], Some(at(60))));
        // The family of the address in use comes first. It stays in use if no answer comes.
        let (id, record) = asked_record(&mut names, at(60)).unwrap();
        assert_eq!(record, RecordType::A);
        answer(&mut names, at(60), id, &QueryAnswer::NoAnswer);
        assert_eq!(names.poll_timeout(), Some(at(61)));
        // The name has lost its IPv4 address, and then has no address at all.
        for expected in [RecordType::A, RecordType::Aaaa] {
            let (id, record) = asked_record(&mut names, at(61)).unwrap();
            assert_eq!(record, expected);
            answer(&mut names, at(61), id, &QueryAnswer::NotFound(None));
        }
        assert_eq!((counts(&pool), names.poll_timeout()), ([1, 1, 1, 0, 1], Some(at(63))));
    }
}

#[test]
fn the_number_of_pending_queries_is_limited() {
    let queries = QueryLimits { backends: 16, ..QueryLimits::MAX };
    let hosts: Vec<String> = (0..19).map(|i| format!("host-{i}.example")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let (_, pool) = names_of(&hosts);
    let mut names = Names::new(&Settings { queries, ..settings(&pool) });
    let first = asked(&mut names, at(0));
    assert_eq!(first.len(), 16);
    assert_eq!(names.poll_timeout(), Some(at(20)), "there is no room before");
    answer(&mut names, at(1), first[0].0, &found(&[1], 60));
    let next: Vec<_> = std::iter::from_fn(|| names.poll_query()).collect();
    assert_eq!(next.len(), 1, "one has gone");
    // No other query is answered. After 20 s they count as failed, and the other names are queried.
    assert_eq!(asked(&mut names, at(20)).len(), 2);
    assert!(pool.backends()[0].is_up(at(20)));
}

#[test]
fn draining_ends_the_questions() {
    let (mut names, _pool) = names_of(&["a.example"]);
    let id = ask_one(&mut names, at(0));
    names.on_drain();
    assert_eq!(names.poll_timeout(), None);
    answer(&mut names, at(1), id, &found(&[1], 5));
    assert!(names.poll_timeout().is_none() && asked(&mut names, at(100)).is_empty());
}

#[test]
fn a_shard_that_sends_no_queries_learns_of_moves_too() {
    let (asking, pool) = names_of(&["a.example"]);
    let other = Settings { shard: 1, shards: 2, moves: asking.moves.clone(), ..settings(&pool) };
    let (mut asking, mut other) = (asking, Names::new(&other));
    assert!(other.poll_timeout().is_none() && asked(&mut other, at(9)).is_empty());
    assert!(!other.have_moved());
    let id = ask_one(&mut asking, at(0));
    answer(&mut asking, at(0), id, &found(&[1], 5));
    assert!(other.have_moved() && !other.have_moved());
    let id = ask_one(&mut asking, at(5));
    answer(&mut asking, at(5), id, &found(&[1], 5));
    assert!(!other.have_moved(), "it is where it was");
}

#[test]
fn names_that_stay_at_a_reload_are_not_queried_again_and_removed_ones_no_more() {
    let (mut names, before) = names_of(&["a.example", "b.example"]);
    let ids = asked(&mut names, at(0));
    let hosts = |asked: &[(QueryId, String)]| {
        asked.iter().map(|(_, host)| host.clone()).collect::<Vec<_>>()
    };
    let c = Endpoint::Name(Named::new("c.example", 5070));
    let added = Pool::located("app", [("c", c, 1)]);
    let kept = &before.backends()[1];
    let after = Pool::of("app", vec![Arc::clone(&added.backends()[0]), Arc::clone(kept)]);
    names.enlist(at(1), &settings(&after).pools);
    assert_eq!(names.poll_timeout(), Some(at(1)));
    assert_eq!(hosts(&asked(&mut names, at(1))), ["c.example"]);
    // The answer to a query sent before the change is applied to the original name.
    answer(&mut names, at(2), ids[0].0, &found(&[1], 60));
    answer(&mut names, at(2), ids[1].0, &found(&[2], 60));
    assert!(before.backends()[0].address().is_none() && added.backends()[0].address().is_none());
    assert_eq!(kept.address().unwrap().ip(), ip(2));
    // The answer for `c` is overdue, and `b` is due in a minute: neither delays `a`.
    assert_eq!(names.poll_timeout(), Some(at(21)));
    // The last back end with a name may be removed too.
    names.enlist(at(3), &settings(&Pool::new("app", &[])).pools);
    assert!(names.poll_timeout().is_none() && asked(&mut names, at(99)).is_empty());
    assert_eq!(names.asked, 0);
}

fn services_of(domains: &[&str]) -> (Names, Pool) {
    let services = domains.iter().map(|domain| Arc::new(Service::new(domain, Transport::Udp)));
    let pool = Pool::new("app", &[]).with_services(services.collect());
    (Names::new(&settings(&pool)), pool)
}

fn asked_srv(names: &mut Names, now: Timestamp) -> Option<(QueryId, String)> {
    names.handle_timeout(now);
    let Query { id, question } = names.poll_query()?;
    let Question::Resolve { name, record: RecordType::Srv } = question else {
        panic!("{question:?}");
    };
    Some((id, name.to_string()))
}

fn srv(priority: u16, weight: u16, port: u16, target: &str) -> SrvRecord {
    SrvRecord { priority, weight, port, target: target.into() }
}

fn servers(pool: &Pool) -> Option<Vec<SrvRecord>> {
    pool.services()[0].servers().map(|servers| servers.to_vec())
}

/// Returns the name of each query that is sent at `now`.
fn asked_names(names: &mut Names, now: Timestamp) -> Vec<String> {
    names.handle_timeout(now);
    let queries = std::iter::from_fn(|| names.poll_query());
    let name = |query: Query| match query.question {
        Question::Resolve { name, .. } => name.to_string(),
        other => panic!("{other:?}"),
    };
    queries.map(name).collect()
}

// RFC 2782: the target is "The domain name of the target host". The search list of the machine must
// not lead to another host.
#[test]
fn a_server_in_srv_records_is_asked_for_by_its_absolute_name() {
    let service = Arc::new(Service::new("app.example", Transport::Udp));
    service.set_servers([srv(10, 0, 5070, "a.example."), srv(10, 0, 5071, "b.example.")].into());
    let hosts = ["a.example", "b.example"];
    let named = hosts.map(|host| (host, Endpoint::Name(Named::new(host, 5070)), 1));
    let pool = Pool::located("app", named).with_services([Arc::clone(&service)].into());
    let mut names = Names::new(&settings(&pool));
    let asked = asked_names(&mut names, at(0));
    assert_eq!(asked, ["a.example.", "b.example", "_sip._udp.app.example"]);
    // Other servers are listed, and the pools are reloaded.
    service.set_servers([srv(10, 0, 5070, "b.example.")].into());
    names.enlist(at(1), &settings(&pool).pools);
    assert!(asked_names(&mut names, at(20)).is_empty());
    let asked = asked_names(&mut names, at(21));
    assert_eq!(asked, ["a.example", "b.example.", "_sip._udp.app.example"]);
}

// RFC 3263 §4.2: "If it was not, because a transport was specified explicitly, the client performs
// an SRV query for that specific transport".
#[test]
fn servers_of_a_domain_are_asked_for_and_kept_in_the_order_of_their_priorities() {
    let (mut names, pool) = services_of(&["app.example"]);
    let (id, name) = asked_srv(&mut names, at(0)).unwrap();
    assert_eq!((&*name, servers(&pool)), ("_sip._udp.app.example", None));
    let [a, b] = [srv(10, 60, 5070, "a.example."), srv(20, 0, 5071, "b.example.")];
    let records = QueryAnswer::Srv([b.clone(), a.clone()].into(), Duration::from_secs(30));
    answer(&mut names, at(1), id, &records);
    assert_eq!(servers(&pool), Some(vec![a.clone(), b]));
    assert_eq!(names.poll_timeout(), Some(at(31)));
    let (id, _) = asked_srv(&mut names, at(31)).unwrap();
    answer(&mut names, at(31), id, &QueryAnswer::Srv([a.clone()].into(), Duration::from_secs(30)));
    assert_eq!(servers(&pool), Some(vec![a]));
    assert_eq!(pool.services()[0].lookups.moved.load(Relaxed), 2);
    assert!(!names.have_moved(), "back ends move when they are reloaded");
}

// RFC 3263 §4.2: "If no SRV records were found, the client performs an A or AAAA record lookup of
// the domain name [...] at the default port for that transport."
#[test]
fn a_domain_without_srv_records_is_its_own_server() {
    let (mut names, pool) = services_of(&["app.example"]);
    let (id, _) = asked_srv(&mut names, at(0)).unwrap();
    answer(&mut names, at(0), id, &QueryAnswer::NotFound(None));
    let itself = vec![srv(0, 0, 5060, "app.example")];
    assert_eq!(servers(&pool), Some(itself.clone()));
    assert_eq!(names.poll_timeout(), Some(at(60)));
    let (id, _) = asked_srv(&mut names, at(60)).unwrap();
    answer(&mut names, at(60), id, &QueryAnswer::NotFound(Some(Duration::from_secs(9))));
    assert_eq!((servers(&pool), names.poll_timeout()), (Some(itself), Some(at(69))));
    // The administrator of the domain adds records.
    let (id, _) = asked_srv(&mut names, at(69)).unwrap();
    let added = srv(1, 1, 5080, "a.example.");
    answer(&mut names, at(69), id, &QueryAnswer::Srv([added.clone()].into(), Duration::ZERO));
    assert_eq!((servers(&pool), names.poll_timeout()), (Some(vec![added]), Some(at(74))));
}

#[test]
fn servers_stay_while_queries_fail() {
    let (mut names, pool) = services_of(&["app.example"]);
    let (id, _) = asked_srv(&mut names, at(0)).unwrap();
    answer(&mut names, at(0), id, &QueryAnswer::NoAnswer);
    let service = &pool.services()[0];
    // The lack of an answer differs from the answer that there are no SRV records.
    assert!(servers(&pool).is_none() && !service.is_stale());
    let (id, _) = asked_srv(&mut names, at(1)).unwrap();
    let a = srv(10, 60, 5070, "a.example.");
    answer(&mut names, at(1), id, &QueryAnswer::Srv([a.clone()].into(), Duration::from_secs(10)));
    for (now, failure) in [(11, QueryAnswer::NoAnswer), (12, QueryAnswer::NotFound(None))] {
        let (id, _) = asked_srv(&mut names, at(now)).unwrap();
        answer(&mut names, at(now), id, &failure);
        assert!(service.is_stale());
        assert_eq!(servers(&pool), Some(vec![a.clone()]));
    }
    let Lookups { found, not_found, unanswered, .. } = &service.lookups;
    assert_eq!([found, not_found, unanswered].map(|n| n.load(Relaxed)), [1, 1, 2]);
    // RFC 2782: "A Target of "." means that the service is decidedly not available".
    let (id, _) = asked_srv(&mut names, at(14)).unwrap();
    let declined = QueryAnswer::Srv([srv(0, 0, 0, ".")].into(), Duration::from_secs(10));
    answer(&mut names, at(14), id, &declined);
    assert_eq!(servers(&pool), Some(vec![]));
    assert!(!service.is_stale());
}
