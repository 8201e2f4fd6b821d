//! Encodes inputs and packets of a core as bytes. All numbers are little-endian.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use super::block::COMMAND_MAX;
use tidegate_world::{
    Cause, CloseCause, ConnectionId, Entry, Failure, Flow, Input, LARGE, Load, QueryId, Timestamp,
    Transmit, Transport,
};

mod answer;

use answer::{put_answer, take_answer};

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
/// An [`Input::Load`] in which `is_shed_refused` is true: the kernel did not accept the rule that
/// says which messages to drop.
const LOAD_UNSHED: u8 = 11;
const TRANSMIT: u8 = 12;
/// An [`Input::Load`] in which `handshakes` is not zero, or `ends_service` is true. A byte of flags
/// and the handshakes follow the time.
const LOAD_MORE: u8 = 13;
/// The flag for `is_shed_refused`.
const IS_SHED_REFUSED: u8 = 1;
/// The flag for `ends_service`.
const ENDS_SERVICE: u8 = 2;

// The place of a value in its list is its code. Codes are never renumbered: add new values at the
// end.
const TRANSPORTS: [Transport; Transport::ALL.len()] = {
    use Transport::*;
    [Udp, Tcp, Tls, Ws, Wss]
};
const CAUSES: [Cause; Cause::ALL.len()] = {
    use Cause::*;
    [Refused, Unreachable, TooLarge, Other, Closed, Gone, Full, BackedUp]
};
const CLOSE_CAUSES: [CloseCause; CloseCause::ALL.len()] = {
    use CloseCause::*;
    [Asked, Ended, CutOff, Reset, Refused, Unreachable, TimedOut, Garbled, Other, Insecure]
};

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
            out.push(byte_of(&CAUSES, *cause));
            put_bytes(out, quote);
        }
        Input::Load(load) => {
            let has_more = !load.handshakes.is_zero() || load.ends_service;
            begin(match load.is_shed_refused {
                _ if has_more => LOAD_MORE,
                true => LOAD_UNSHED,
                false => LOAD,
            });
            if has_more {
                let flag = |is_set, flag| if is_set { flag } else { 0 };
                out.push(
                    flag(load.is_shed_refused, IS_SHED_REFUSED)
                        | flag(load.ends_service, ENDS_SERVICE),
                );
                put_time(out, Timestamp::ZERO + load.handshakes);
            }
            for time in [load.busy, load.cpu] {
                put_time(out, Timestamp::ZERO + time);
            }
            out.extend(load.socket_fill.to_le_bytes());
            for count in [load.filtered, load.overflow] {
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
        Input::Transmit(flow, bytes) => {
            begin(TRANSMIT);
            put_flow(out, *flow);
            put_bytes(out, bytes);
        }
        Input::Connected(flow) => {
            begin(CONNECTED);
            put_flow(out, *flow);
        }
        Input::Closed(id, cause) => {
            begin(CLOSED);
            out.extend(id.get().to_le_bytes());
            out.push(byte_of(&CLOSE_CAUSES, *cause));
        }
        Input::Writable(id) => {
            begin(WRITABLE);
            out.extend(id.get().to_le_bytes());
        }
    }
}

/// Appends a packet that the core sent after an input at `now`.
pub(super) fn put_sent(out: &mut Vec<u8>, now: Timestamp, Transmit { flow, bytes, .. }: &Transmit) {
    put_time(out, now);
    put_flow(out, *flow);
    put_bytes(out, bytes);
}

/// Decodes and removes the input at the front of `rest`. Returns `None` if the bytes are invalid.
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
            let cause = take_one_of(rest, &CAUSES)?;
            let quote = take_bytes(rest, LARGE)?;
            Input::Failed(Failure { flow, cause, quote: quote.into() })
        }
        LOAD | LOAD_UNSHED | LOAD_MORE => {
            let (flags, handshakes) = match kind {
                LOAD_MORE => (take_u8(rest)?, take_duration(rest)?),
                LOAD_UNSHED => (IS_SHED_REFUSED, Duration::ZERO),
                _ => (0, Duration::ZERO),
            };
            let is_shed_refused = flags & IS_SHED_REFUSED != 0;
            let ends_service = flags & ENDS_SERVICE != 0;
            let mut time = || take_duration(rest);
            let (busy, cpu) = (time()?, time()?);
            let socket_fill = f32::from_le_bytes(take_array(rest)?);
            let mut count = || take_array(rest).map(u64::from_le_bytes);
            let (filtered, overflow) = (count()?, count()?);
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
        }
        DRAIN => Input::Drain,
        COMMAND => Input::Command(take_bytes(rest, COMMAND_MAX)?),
        ANSWER => {
            let id = take_array(rest).map(u64::from_le_bytes)?;
            Input::Answer(QueryId(id), take_answer(rest)?)
        }
        TRANSMIT => Input::Transmit(take_flow(rest)?, take_bytes(rest, LARGE)?),
        CONNECTED => Input::Connected(take_flow(rest)?),
        CLOSED => {
            let id = ConnectionId::new(take_u32(rest)?)?;
            Input::Closed(id, take_one_of(rest, &CLOSE_CAUSES)?)
        }
        WRITABLE => Input::Writable(ConnectionId::new(take_u32(rest)?)?),
        _ => return None,
    };
    Some(Entry { now, input })
}

fn put_time(out: &mut Vec<u8>, at: Timestamp) {
    out.extend(at.as_nanos().to_le_bytes());
}

/// Appends a flow: the transport and both addresses, and, except for UDP, the number of the
/// connection (0 for none).
fn put_flow(out: &mut Vec<u8>, Flow { transport, local, remote, connection }: Flow) {
    out.push(byte_of(&TRANSPORTS, transport));
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

/// Returns the code of `value`, which is its place in `codes`.
fn byte_of<T: PartialEq>(codes: &[T], value: T) -> u8 {
    codes.iter().position(|known| *known == value).expect("every value has a code") as u8
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // A datagram has at most 65,535 bytes, and a command at most `COMMAND_MAX`.
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

fn take_one_of<T: Copy>(rest: &mut &[u8], codes: &[T]) -> Option<T> {
    codes.get(usize::from(take_u8(rest)?)).copied()
}

fn take_time(rest: &mut &[u8]) -> Option<Timestamp> {
    take_array(rest).map(u64::from_le_bytes).map(Timestamp::from_nanos)
}

fn take_flow(rest: &mut &[u8]) -> Option<Flow> {
    let transport = take_one_of(rest, &TRANSPORTS)?;
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

fn take_duration(rest: &mut &[u8]) -> Option<Duration> {
    take_time(rest).map(|at| Duration::from_nanos(at.as_nanos()))
}

fn take_bytes<'b>(rest: &mut &'b [u8], most: usize) -> Option<&'b [u8]> {
    let len = u32::from_le_bytes(take_array(rest)?) as usize;
    (len <= most).then(|| take_slice(rest, len)).flatten()
}

#[cfg(test)]
mod tests;
