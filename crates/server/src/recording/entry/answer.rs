//! Encodes answers to DNS queries and to look-ups of users as bytes.

use std::net::IpAddr;
use std::sync::Arc;

use tidegate_world::{
    NAME_MAX, NaptrRecord, QueryAnswer, RECORDS_MAX, SrvRecord, Timestamp, VALUE_MAX,
};

use super::{put_bytes, put_time, take_array, take_bytes, take_duration, take_slice, take_u8};

// The kinds of answers are never renumbered: recordings of earlier versions contain the first
// three.
const ADDRESSES: u8 = 0;
const NOT_FOUND: u8 = 1;
const NO_ANSWER: u8 = 2;
const NOT_FOUND_FOR: u8 = 3;
const SRV: u8 = 4;
const NAPTR: u8 = 5;
const FOUND: u8 = 6;

pub(super) fn put_answer(out: &mut Vec<u8>, answer: &QueryAnswer) {
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

/// Appends the number of records, at most [`RECORDS_MAX`]. Returns the records that the caller must
/// append.
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

pub(super) fn take_answer(rest: &mut &[u8]) -> Option<QueryAnswer> {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // Recordings of earlier versions have these bytes. To change them, the format needs a new
    // version.
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
    fn a_recorded_answer_never_exceeds_the_limits() {
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
}
