//! Inputs and packets as bytes. All numbers are little-endian.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use super::block::COMMAND_MAX;
use tidegate_world::{
    Cause, CloseCause, ConnectionId, Entry, Failure, Flow, Input, LARGE, Load, NAME_MAX,
    NaptrRecord, QUOTE_MAX, QueryAnswer, QueryId, RECORDS_MAX, SrvRecord, Timestamp, Transmit,
    Transport, VALUE_MAX,
};

const OFFER: u8 = 0;
const SERVE: u8 = 1;
const TIMEOUT: u8 = 2;
const FAILED: u8 = 3;
const LOAD: u8 = 4;
const DRAIN: u8 = 5;
const COMMAND: u8 = 6;
const ANSWER: u8 = 7;
const CONNECTED: u8 = 8;
const CLOSED: u8 = 9;
const WRITABLE: u8 = 10;

/// Appends an input: its kind, its time, and the data of its kind.
pub(super) fn put(out: &mut Vec<u8>, Entry { now, input }: &Entry<&[u8]>) {
    let mut begin = |kind: u8| {
        out.push(kind);
        put_time(out, *now);
    };
    match input {
        Input::Offer(arrived, flow, bytes, handoffs) => {
            begin(OFFER);
            put_time(out, *arrived);
            out.push(*handoffs);
            put_flow(out, *flow);
            put_bytes(out, bytes);
        }
        Input::Serve => begin(SERVE),
        Input::Timeout => begin(TIMEOUT),
        Input::Failed(Failure { flow, cause, quote }) => {
            begin(FAILED);
            put_flow(out, *flow);
            out.push(match cause {
                Cause::Refused => 0,
                Cause::Unreachable => 1,
                Cause::TooLarge => 2,
                Cause::Other => 3,
                Cause::Closed => 4,
                Cause::Gone => 5,
                Cause::Full => 6,
            });
            put_bytes(out, quote);
        }
        Input::Load(Load { busy, cpu, socket_fill, filtered, overflow }) => {
            begin(LOAD);
            for time in [busy, cpu] {
                put_time(out, Timestamp::ZERO + *time);
            }
            out.extend(socket_fill.to_le_bytes());
            for count in [filtered, overflow] {
                out.extend(count.to_le_bytes());
            }
        }
        Input::Drain => begin(DRAIN),
        Input::Command(command) => {
            begin(COMMAND);
            put_bytes(out, command);
        }
        Input::Answer(QueryId(id), answer) => {
            begin(ANSWER);
            out.extend(id.to_le_bytes());
            put_answer(out, answer);
        }
        Input::Connected(flow) => {
            begin(CONNECTED);
            put_flow(out, *flow);
        }
        Input::Closed(id, cause) => {
            begin(CLOSED);
            out.extend(id.get().to_le_bytes());
            out.push(close_cause(*cause));
        }
        Input::Writable(id) => {
            begin(WRITABLE);
            out.extend(id.get().to_le_bytes());
        }
    }
}

/// Appends a packet that was sent after an input at `now`.
pub(super) fn put_sent(out: &mut Vec<u8>, now: Timestamp, Transmit { flow, bytes, .. }: &Transmit) {
    put_time(out, now);
    put_flow(out, *flow);
    put_bytes(out, bytes);
}

/// Takes the next input from the front of `rest`; `None` if it is invalid.
pub(super) fn take<'b>(rest: &mut &'b [u8]) -> Option<Entry<&'b [u8]>> {
    let kind = take_u8(rest)?;
    let now = take_time(rest)?;
    let input = match kind {
        OFFER => {
            let arrived = take_time(rest)?;
            let handoffs = take_u8(rest)?;
            Input::Offer(arrived, take_flow(rest)?, take_bytes(rest, LARGE)?, handoffs)
        }
        SERVE => Input::Serve,
        TIMEOUT => Input::Timeout,
        FAILED => {
            let flow = take_flow(rest)?;
            let cause = match take_u8(rest)? {
                0 => Cause::Refused,
                1 => Cause::Unreachable,
                2 => Cause::TooLarge,
                3 => Cause::Other,
                4 => Cause::Closed,
                5 => Cause::Gone,
                6 => Cause::Full,
                _ => return None,
            };
            let quote = take_bytes(rest, QUOTE_MAX)?;
            Input::Failed(Failure { flow, cause, quote: quote.into() })
        }
        LOAD => {
            let mut time = || take_duration(rest);
            let (busy, cpu) = (time()?, time()?);
            let socket_fill = f32::from_le_bytes(take_array(rest)?);
            let mut count = || take_array(rest).map(u64::from_le_bytes);
            let (filtered, overflow) = (count()?, count()?);
            Input::Load(Load { busy, cpu, socket_fill, filtered, overflow })
        }
        DRAIN => Input::Drain,
        COMMAND => Input::Command(take_bytes(rest, COMMAND_MAX)?),
        ANSWER => {
            let id = take_array(rest).map(u64::from_le_bytes)?;
            Input::Answer(QueryId(id), take_answer(rest)?)
        }
        CONNECTED => Input::Connected(take_flow(rest)?),
        CLOSED => {
            let id = ConnectionId::new(take_u32(rest)?)?;
            let cause = take_u8(rest)?;
            let cause = CloseCause::ALL.into_iter().find(|known| close_cause(*known) == cause)?;
            Input::Closed(id, cause)
        }
        WRITABLE => Input::Writable(ConnectionId::new(take_u32(rest)?)?),
        _ => return None,
    };
    Some(Entry { now, input })
}

fn put_time(out: &mut Vec<u8>, at: Timestamp) {
    out.extend(at.as_nanos().to_le_bytes());
}

/// Appends a flow: the transport, both addresses, and of a stream the connection, 0 for none.
fn put_flow(out: &mut Vec<u8>, Flow { transport, local, remote, connection }: Flow) {
    out.push(transport_byte(transport));
    for address in [local, remote] {
        match address {
            SocketAddr::V4(address) => {
                out.push(4);
                out.extend(address.ip().octets());
            }
            SocketAddr::V6(address) => {
                out.push(6);
                out.extend(address.ip().octets());
                out.extend(address.flowinfo().to_le_bytes());
                out.extend(address.scope_id().to_le_bytes());
            }
        }
        out.extend(address.port().to_le_bytes());
    }
    if transport != Transport::Udp {
        out.extend(connection.map_or(0, ConnectionId::get).to_le_bytes());
    }
}

fn transport_byte(transport: Transport) -> u8 {
    match transport {
        Transport::Udp => 0,
        Transport::Tcp => 1,
        Transport::Tls => 2,
        Transport::Ws => 3,
        Transport::Wss => 4,
    }
}

fn close_cause(cause: CloseCause) -> u8 {
    match cause {
        CloseCause::Asked => 0,
        CloseCause::Ended => 1,
        CloseCause::CutOff => 2,
        CloseCause::Reset => 3,
        CloseCause::Refused => 4,
        CloseCause::Unreachable => 5,
        CloseCause::TimedOut => 6,
        CloseCause::Garbled => 7,
        CloseCause::Other => 8,
    }
}

// An answer's kinds are never renumbered: recordings of earlier versions have the first three.
const ADDRESSES: u8 = 0;
const NOT_FOUND: u8 = 1;
const NO_ANSWER: u8 = 2;
const NOT_FOUND_FOR: u8 = 3;
const SRV: u8 = 4;
const NAPTR: u8 = 5;
const FOUND: u8 = 6;

fn put_answer(out: &mut Vec<u8>, answer: &QueryAnswer) {
    match answer {
        QueryAnswer::Addresses(addresses, ttl) => {
            out.push(ADDRESSES);
            put_time(out, Timestamp::ZERO + *ttl);
            for ip in put_count(out, addresses) {
                put_ip(out, *ip);
            }
        }
        QueryAnswer::NotFound(None) => out.push(NOT_FOUND),
        QueryAnswer::NoAnswer => out.push(NO_ANSWER),
        QueryAnswer::NotFound(Some(ttl)) => {
            out.push(NOT_FOUND_FOR);
            put_time(out, Timestamp::ZERO + *ttl);
        }
        QueryAnswer::Srv(records, ttl) => {
            out.push(SRV);
            put_time(out, Timestamp::ZERO + *ttl);
            for SrvRecord { priority, weight, port, target } in put_count(out, records) {
                for number in [priority, weight, port] {
                    out.extend(number.to_le_bytes());
                }
                put_text(out, target);
            }
        }
        QueryAnswer::Naptr(records, ttl) => {
            out.push(NAPTR);
            put_time(out, Timestamp::ZERO + *ttl);
            for record in put_count(out, records) {
                let NaptrRecord { order, preference, flags, service, replacement } = record;
                for number in [order, preference] {
                    out.extend(number.to_le_bytes());
                }
                for text in [flags, service, replacement] {
                    put_text(out, text);
                }
            }
        }
        QueryAnswer::Found(value) => {
            out.push(FOUND);
            put_bytes(out, &value[..value.len().min(VALUE_MAX)]);
        }
    }
}

/// Appends the number of records, and returns them.
fn put_count<'r, R>(out: &mut Vec<u8>, records: &'r [R]) -> &'r [R] {
    let records = &records[..records.len().min(RECORDS_MAX)];
    out.push(records.len() as u8);
    records
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(NAME_MAX)];
    out.push(text.len() as u8);
    out.extend(text.as_bytes());
}

fn put_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend(ip.octets());
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // A datagram has at most 65,535 of them, a command `COMMAND_MAX`.
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

fn take_slice<'b>(rest: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take_slice(rest, N)?.try_into().ok()
}

fn take_u8(rest: &mut &[u8]) -> Option<u8> {
    take_array::<1>(rest).map(|[byte]| byte)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take_array(rest).map(u32::from_le_bytes)
}

fn take_time(rest: &mut &[u8]) -> Option<Timestamp> {
    take_array(rest).map(u64::from_le_bytes).map(Timestamp::from_nanos)
}

fn take_flow(rest: &mut &[u8]) -> Option<Flow> {
    let transport = take_u8(rest)?;
    let transport = Transport::ALL.into_iter().find(|known| transport_byte(*known) == transport)?;
    let (local, remote) = (take_address(rest)?, take_address(rest)?);
    let connection = match transport {
        Transport::Udp => None,
        _ => ConnectionId::new(take_u32(rest)?),
    };
    Some(Flow { transport, local, remote, connection })
}

fn take_address(rest: &mut &[u8]) -> Option<SocketAddr> {
    match take_u8(rest)? {
        4 => {
            let ip = IpAddr::V4(Ipv4Addr::from(take_array::<4>(rest)?));
            Some(SocketAddr::new(ip, u16::from_le_bytes(take_array(rest)?)))
        }
        6 => {
            let ip = Ipv6Addr::from(take_array::<16>(rest)?);
            let [flow, scope] = [take_u32(rest)?, take_u32(rest)?];
            let port = u16::from_le_bytes(take_array(rest)?);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

fn take_answer(rest: &mut &[u8]) -> Option<QueryAnswer> {
    match take_u8(rest)? {
        ADDRESSES => {
            let ttl = take_duration(rest)?;
            Some(QueryAnswer::Addresses(take_records(rest, take_ip)?, ttl))
        }
        NOT_FOUND => Some(QueryAnswer::NotFound(None)),
        NO_ANSWER => Some(QueryAnswer::NoAnswer),
        NOT_FOUND_FOR => Some(QueryAnswer::NotFound(Some(take_duration(rest)?))),
        SRV => {
            let ttl = take_duration(rest)?;
            Some(QueryAnswer::Srv(take_records(rest, take_srv)?, ttl))
        }
        NAPTR => {
            let ttl = take_duration(rest)?;
            Some(QueryAnswer::Naptr(take_records(rest, take_naptr)?, ttl))
        }
        FOUND => Some(QueryAnswer::Found(take_bytes(rest, VALUE_MAX)?.into())),
        _ => None,
    }
}

fn take_duration(rest: &mut &[u8]) -> Option<Duration> {
    take_time(rest).map(|at| Duration::from_nanos(at.as_nanos()))
}

fn take_records<R>(rest: &mut &[u8], take: fn(&mut &[u8]) -> Option<R>) -> Option<Arc<[R]>> {
    let count = usize::from(take_u8(rest)?);
    (count <= RECORDS_MAX).then(|| (0..count).map(|_| take(rest)).collect()).flatten()
}

fn take_srv(rest: &mut &[u8]) -> Option<SrvRecord> {
    let [priority, weight, port] = take_numbers(rest)?;
    Some(SrvRecord { priority, weight, port, target: take_text(rest)? })
}

fn take_naptr(rest: &mut &[u8]) -> Option<NaptrRecord> {
    let [order, preference] = take_numbers(rest)?;
    let [flags, service, replacement] = [take_text(rest)?, take_text(rest)?, take_text(rest)?];
    Some(NaptrRecord { order, preference, flags, service, replacement })
}

fn take_numbers<const N: usize>(rest: &mut &[u8]) -> Option<[u16; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = u16::from_le_bytes(take_array(rest)?);
    }
    Some(numbers)
}

fn take_text(rest: &mut &[u8]) -> Option<Arc<str>> {
    let len = take_u8(rest)?;
    str::from_utf8(take_slice(rest, len.into())?).ok().map(Arc::from)
}

fn take_ip(rest: &mut &[u8]) -> Option<IpAddr> {
    match take_u8(rest)? {
        4 => take_array::<4>(rest).map(IpAddr::from),
        6 => take_array::<16>(rest).map(IpAddr::from),
        _ => None,
    }
}

fn take_bytes<'b>(rest: &mut &'b [u8], most: usize) -> Option<&'b [u8]> {
    let len = u32::from_le_bytes(take_array(rest)?) as usize;
    (len <= most).then(|| take_slice(rest, len)).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        prop_oneof![
            Just(Cause::Refused),
            Just(Cause::Unreachable),
            Just(Cause::TooLarge),
            Just(Cause::Other)
        ]
    }

    fn ip() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from)
        ]
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
        let load = |(busy, cpu, socket_fill, filtered, overflow): (u64, u64, u16, u64, u64)| {
            let [busy, cpu] = [busy, cpu].map(Duration::from_nanos);
            let socket_fill = f32::from(socket_fill) / 65_536.0;
            Input::Load(Load { busy, cpu, socket_fill, filtered, overflow })
        };
        prop_oneof![
            (any::<u64>(), flow(), prop::collection::vec(any::<u8>(), 0..3000), any::<u8>())
                .prop_map(offer),
            Just(Input::Serve),
            Just(Input::Timeout),
            (flow(), cause(), prop::collection::vec(any::<u8>(), 0..=QUOTE_MAX))
                .prop_map(|(flow, cause, quote)| Input::Failed(Failure::new(flow, cause, &quote))),
            any::<(u64, u64, u16, u64, u64)>().prop_map(load),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(Input::Command),
            (any::<u64>(), answer()).prop_map(|(id, answer)| Input::Answer(QueryId(id), answer)),
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

    // Recordings of earlier versions have these bytes; a change of them would need a new version
    // of the format.
    #[test]
    fn answers_of_earlier_versions_are_read() {
        let ttl = Duration::from_nanos(0x0201);
        let addresses = [IpAddr::from([192, 0, 2, 1])].into();
        for (bytes, answer) in [
            (
                &[0, 1, 2, 0, 0, 0, 0, 0, 0, 1, 4, 192, 0, 2, 1][..],
                QueryAnswer::Addresses(addresses, ttl),
            ),
            (&[1], QueryAnswer::NotFound(None)),
            (&[2], QueryAnswer::NoAnswer),
        ] {
            let mut rest = bytes;
            assert_eq!(take_answer(&mut rest), Some(answer.clone()));
            assert!(rest.is_empty());
            let mut written = Vec::new();
            put_answer(&mut written, &answer);
            assert_eq!(written, bytes);
        }
    }

    #[test]
    fn an_answer_is_never_longer_than_may_be() {
        let long: Arc<str> = "\u{e4}".repeat(NAME_MAX).into();
        let record = SrvRecord { priority: 0, weight: 0, port: 0, target: long };
        let records = vec![record; RECORDS_MAX + 1].into();
        let mut bytes = Vec::new();
        put_answer(&mut bytes, &QueryAnswer::Srv(records, Duration::ZERO));
        let Some(QueryAnswer::Srv(read, _)) = take_answer(&mut &bytes[..]) else {
            panic!("they are read");
        };
        assert_eq!((read.len(), read[0].target.len()), (RECORDS_MAX, NAME_MAX - 1));
        bytes.clear();
        put_answer(&mut bytes, &QueryAnswer::Found(vec![0; VALUE_MAX + 1].into()));
        let read = take_answer(&mut &bytes[..]);
        assert_eq!(read, Some(QueryAnswer::Found(vec![0; VALUE_MAX].into())));
    }

    /// Recordings of format 5, which knew UDP alone, can still be read.
    #[test]
    fn a_datagram_stands_as_it_did_in_format_5() {
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
}
