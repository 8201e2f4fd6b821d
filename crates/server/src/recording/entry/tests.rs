use std::sync::Arc;

use proptest::prelude::*;
use tidegate_world::{NaptrRecord, QueryAnswer, RECORDS_MAX, SrvRecord};

use super::*;

fn address() -> impl Strategy<Value = SocketAddr> {
    let v6 = |(ip, port, flow, scope): ([u8; 16], _, _, _)| {
        SocketAddrV6::new(ip.into(), port, flow, scope).into()
    };
    prop_oneof![
        any::<([u8; 4], u16)>().prop_map(SocketAddr::from),
        any::<([u8; 16], u16, u32, u32)>().prop_map(v6)
    ]
}

fn flow() -> impl Strategy<Value = Flow> {
    let transport = prop::sample::select(&Transport::ALL[..]);
    (transport, address(), address(), any::<u32>()).prop_map(
        |(transport, local, remote, connection)| match transport {
            Transport::Udp => Flow::udp(local, remote),
            _ => Flow { transport, local, remote, connection: ConnectionId::new(connection) },
        },
    )
}

fn connection() -> impl Strategy<Value = ConnectionId> {
    (1..=u32::MAX).prop_map(|number| ConnectionId::new(number).expect("not zero"))
}

fn cause() -> impl Strategy<Value = Cause> {
    prop::sample::select(&Cause::ALL[..])
}

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

fn text() -> impl Strategy<Value = Arc<str>> {
    prop_oneof!["[a-z.\u{e4}]{0,20}", "[a-z]{255}"].prop_map(Arc::from)
}

fn srv() -> impl Strategy<Value = SrvRecord> {
    (any::<[u16; 3]>(), text()).prop_map(|([priority, weight, port], target)| SrvRecord {
        priority,
        weight,
        port,
        target,
    })
}

fn naptr() -> impl Strategy<Value = NaptrRecord> {
    (any::<[u16; 2]>(), [text(), text(), text()]).prop_map(
        |([order, preference], [flags, service, replacement])| NaptrRecord {
            order,
            preference,
            flags,
            service,
            replacement,
        },
    )
}

fn records<R: std::fmt::Debug + 'static>(
    record: impl Strategy<Value = R> + 'static,
    answer: fn(Arc<[R]>, Duration) -> QueryAnswer,
) -> BoxedStrategy<QueryAnswer> {
    (prop::collection::vec(record, 0..=RECORDS_MAX), any::<u64>())
        .prop_map(move |(records, ttl)| answer(records.into(), Duration::from_nanos(ttl)))
        .boxed()
}

fn answer() -> impl Strategy<Value = QueryAnswer> {
    prop_oneof![
        records(ip(), QueryAnswer::Addresses),
        records(srv(), QueryAnswer::Srv),
        records(naptr(), QueryAnswer::Naptr),
        prop::collection::vec(any::<u8>(), 0..300)
            .prop_map(|value| QueryAnswer::Found(value.into())),
        prop::option::of(any::<u64>())
            .prop_map(|ttl| QueryAnswer::NotFound(ttl.map(Duration::from_nanos))),
        Just(QueryAnswer::NoAnswer),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    let offer = |(at, flow, bytes, handoffs)| {
        Input::Offer(Timestamp::from_nanos(at), flow, bytes, handoffs)
    };
    type Drops = (u64, u64, [bool; 2]);
    let load = |((busy, cpu, socket_fill, drops), handshakes): ((u64, u64, u16, Drops), u64)| {
        let (filtered, overflow, [is_shed_refused, ends_service]) = drops;
        let [busy, cpu, handshakes] = [busy, cpu, handshakes].map(Duration::from_nanos);
        let socket_fill = f32::from(socket_fill) / 65_536.0;
        Input::Load(Load {
            busy,
            cpu,
            handshakes,
            socket_fill,
            filtered,
            overflow,
            is_shed_refused,
            ends_service,
        })
    };
    let handshakes = prop_oneof![Just(0), any::<u64>()];
    prop_oneof![
        (any::<u64>(), flow(), prop::collection::vec(any::<u8>(), 0..3000), any::<u8>())
            .prop_map(offer),
        Just(Input::Serve),
        Just(Input::Timeout),
        (flow(), cause(), prop::collection::vec(any::<u8>(), 0..3000))
            .prop_map(|(flow, cause, quote)| Input::Failed(Failure::unsent(flow, cause, &quote))),
        (any::<(u64, u64, u16, Drops)>(), handshakes).prop_map(load),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Input::Command),
        (any::<u64>(), answer()).prop_map(|(id, answer)| Input::Answer(QueryId(id), answer)),
        (flow(), prop::collection::vec(any::<u8>(), 0..3000))
            .prop_map(|(flow, bytes)| Input::Transmit(flow, bytes)),
        flow().prop_map(Input::Connected),
        (connection(), prop::sample::select(&CloseCause::ALL[..]))
            .prop_map(|(id, cause)| Input::Closed(id, cause)),
        connection().prop_map(Input::Writable),
        Just(Input::Drain),
    ]
}

fn borrowed(Entry { now, input }: &Entry) -> Entry<&[u8]> {
    let input = match input {
        Input::Offer(arrived, flow, bytes, handoffs) => {
            Input::Offer(*arrived, *flow, &bytes[..], *handoffs)
        }
        Input::Serve => Input::Serve,
        Input::Timeout => Input::Timeout,
        Input::Failed(failure) => Input::Failed(failure.clone()),
        Input::Transmit(flow, bytes) => Input::Transmit(*flow, &bytes[..]),
        Input::Connected(flow) => Input::Connected(*flow),
        Input::Closed(id, cause) => Input::Closed(*id, *cause),
        Input::Writable(id) => Input::Writable(*id),
        Input::Load(load) => Input::Load(*load),
        Input::Command(command) => Input::Command(&command[..]),
        Input::Answer(id, answer) => Input::Answer(*id, answer.clone()),
        Input::Drain => Input::Drain,
    };
    Entry { now: *now, input }
}

/// Recordings of format 5, in which UDP is the only transport, can still be read.
#[test]
fn a_datagram_is_encoded_as_in_format_5() {
    let bytes = [
        &[OFFER, 7, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1][..],
        &[0, 4, 192, 0, 2, 1, 0xc4, 0x13, 4, 192, 0, 2, 9, 0xc5, 0x13],
        &[3, 0, 0, 0],
        b"ACK",
    ]
    .concat();
    let flow = Flow::udp("192.0.2.1:5060".parse().unwrap(), "192.0.2.9:5061".parse().unwrap());
    let input = Input::Offer(Timestamp::from_nanos(5), flow, &b"ACK"[..], 1);
    let entry = Entry { now: Timestamp::from_nanos(7), input };
    assert_eq!(take(&mut &bytes[..]), Some(entry.clone()));
    let mut written = Vec::new();
    put(&mut written, &entry);
    assert_eq!(written, bytes);
}

proptest! {
    #[test]
    fn inputs_are_read_as_they_were_written(
        inputs in prop::collection::vec((any::<u64>(), input()), 1..8)
    ) {
        let mut bytes = Vec::new();
        let entries: Vec<_> = inputs
            .into_iter()
            .map(|(now, input)| Entry { now: Timestamp::from_nanos(now), input })
            .collect();
        entries.iter().for_each(|entry| put(&mut bytes, &borrowed(entry)));
        let mut rest = &bytes[..];
        for entry in &entries {
            prop_assert_eq!(take(&mut rest), Some(borrowed(entry)));
        }
        prop_assert!(rest.is_empty() && take(&mut rest).is_none());
    }

    #[test]
    fn an_input_that_is_cut_short_is_none(input in input(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        put(&mut bytes, &borrowed(&Entry { now: Timestamp::ZERO, input }));
        prop_assert_eq!(take(&mut &bytes[..cut.index(bytes.len())]), None);
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut rest = &bytes[..];
        while take(&mut rest).is_some() {}
    }
}
