//! Random answers at random times.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;

use tidegate_world::Transport::{Tcp, Tls, Udp, Ws, Wss};

use super::*;

/// An event of a random run.
#[derive(Clone, Debug)]
enum Event {
    Locate(u8, u8),
    /// The index of an outstanding query, and its answer.
    Answer(prop::sample::Index, QueryAnswer),
    /// An answer to a query that was never sent.
    Stray(u64, QueryAnswer),
    Pass(u64),
}

fn name() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![
        4 => (0..4u8).prop_map(|i| format!("h{i}.example.")),
        1 => Just(".".to_owned()),
        1 => "[a-z._\\-]{0,12}",
        1 => Just("a".repeat(255)),
    ]
    .prop_map(Arc::from)
}

fn answer() -> impl Strategy<Value = QueryAnswer> {
    let ttl = || (0..100_000u64).prop_map(Duration::from_millis);
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ];
    let srv = ([0..3u16, 0..3, 0..3], name())
        .prop_map(|([priority, weight, port], target)| srv(priority, weight, port, &target));
    let service = prop::sample::select(vec!["SIP+D2U", "SIPS+D2T", "sip+d2t", "x"]);
    let naptr = (0..3u16, prop::sample::select(vec!["s", "a"]), service, name())
        .prop_map(|(order, flags, service, name)| naptr(order, flags, service, &name));
    prop_oneof![
        (prop::collection::vec(ip, 0..64), ttl())
            .prop_map(|(ips, ttl)| QueryAnswer::Addresses(ips.into(), ttl)),
        (prop::collection::vec(srv, 0..64), ttl())
            .prop_map(|(all, ttl)| QueryAnswer::Srv(all.into(), ttl)),
        (prop::collection::vec(naptr, 0..9), ttl())
            .prop_map(|(all, ttl)| QueryAnswer::Naptr(all.into(), ttl)),
        prop::option::of(ttl()).prop_map(QueryAnswer::NotFound),
        Just(QueryAnswer::NoAnswer),
        Just(QueryAnswer::Found(Arc::from([1u8]))),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => any::<(u8, u8)>().prop_map(|(uri, hash)| Event::Locate(uri, hash)),
        4 => (any::<prop::sample::Index>(), answer())
            .prop_map(|(which, answer)| Event::Answer(which, answer)),
        1 => (any::<u64>(), answer()).prop_map(|(id, answer)| Event::Stray(id, answer)),
        2 => prop_oneof![0..200u64, 0..20_000u64].prop_map(Event::Pass),
    ]
}

fn uri(number: u8) -> String {
    let host = number % 6;
    let scheme = if number & 8 == 0 { "sip" } else { "sips" };
    let tail = ["", ":5070", ";transport=tcp", ";transport=ws"][usize::from(number >> 6)];
    format!("{scheme}:h{host}.example{tail}")
}

proptest! {
    #[test]
    fn whatever_comes_it_is_bounded_and_nobody_waits_for_ever(
        events in prop::collection::vec(event(), 0..120),
        questions_max in 0..6usize,
    ) {
        let mut scene = Scene::with(&[Udp, Tls, Tcp], V6_V4, questions_max);
        let (mut out, mut waiting) = (Vec::new(), BTreeSet::new());
        let may_be = |target: &Target| target.address.port() != 1;
        for event in events {
            let now = scene.now;
            match event {
                Event::Locate(number, hash) => {
                    let text = uri(number);
                    let uri = Uri::parse(text.as_bytes()).unwrap();
                    let wanted = Wanted::of(&uri).unwrap();
                    match scene.resolution.locate(now, &wanted, hash.into(), may_be) {
                        Located::Targets(targets) => {
                            prop_assert!((1..=TARGETS_MAX).contains(&targets.len()));
                            let different: BTreeSet<_> = targets.iter().collect();
                            prop_assert_eq!(different.len(), targets.len());
                            for target in targets {
                                prop_assert!(may_be(&target) && target.address.port() != 0);
                                prop_assert!(target.transport.is_secure() || !wanted.secure);
                            }
                        }
                        Located::Pending(ticket) => _ = waiting.insert(ticket),
                        Located::NotFound | Located::Unavailable => {}
                    }
                }
                Event::Answer(which, answer) if !out.is_empty() => {
                    let id = out.remove(which.index(out.len()));
                    let ticket = scene.resolution.on_answer(now, id, &answer);
                    ticket.map(|ticket| waiting.remove(&ticket));
                }
                Event::Answer(..) => {}
                Event::Stray(id, answer) => {
                    prop_assert_eq!(scene.resolution.on_answer(now, QueryId(id >> 1), &answer), None);
                }
                Event::Pass(ms) => scene.pass(ms),
            }
            for ticket in scene.resolution.handle_timeout(scene.now) {
                waiting.remove(&ticket);
            }
            prop_assert!(scene.resolution.poll_timeout().is_none_or(|due| due > scene.now));
            out.extend(std::iter::from_fn(|| scene.resolution.poll_query()).map(|query| query.id));
            let outstanding = scene.counters.outstanding.get();
            // At most sixteen queries are outstanding for each query that may be sent at once.
            prop_assert!(outstanding <= 16 * questions_max as u64);
            // A query is outstanding for each waiting request.
            prop_assert!(waiting.len() as u64 <= outstanding);
        }
        scene.pass(8_000);
        for ticket in scene.resolution.handle_timeout(scene.now) {
            waiting.remove(&ticket);
        }
        prop_assert!(waiting.is_empty());
        prop_assert_eq!(scene.resolution.poll_timeout(), None);
    }

    #[test]
    fn answers_of_any_kind_lead_to_an_end(
        answers in prop::collection::vec(answer(), 1..9),
        number: u8,
        hash: u64,
    ) {
        let mut scene = Scene::with(&[Udp, Tls, Tcp, Ws, Wss], V4_V6, 64);
        let mut answers = answers.iter().cycle();
        let mut located = scene.try_locate(&uri(number), hash);
        for _ in 0..4 {
            let Located::Pending(ticket) = located else { break };
            let queries: Vec<_> = std::iter::from_fn(|| scene.resolution.poll_query()).collect();
            let answered = queries.into_iter().filter_map(|Query { id, .. }| {
                scene.resolution.on_answer(scene.now, id, answers.next().expect("they cycle"))
            });
            prop_assert!(answered.collect::<Vec<_>>().contains(&ticket));
            located = scene.try_locate(&uri(number), hash);
        }
        prop_assert!(!matches!(located, Located::Pending(_)));
    }
}
