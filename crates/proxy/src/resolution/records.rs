//! The parts of DNS answers that SIP uses.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{NaptrRecord, QueryAnswer, RecordType, SrvRecord, Transport};

use super::name::Name;
use super::transport::of_service;

/// The largest number of records kept from one answer.
pub(super) const KEPT_MAX: usize = 32;

/// The content of a DNS answer, parsed and limited to [`KEPT_MAX`] records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    /// Addresses of a host.
    Addresses(Arc<[IpAddr]>),
    /// Servers of a service, by ascending priority.
    Servers(Arc<[SrvRecord]>),
    /// The known SIP services of a domain, by ascending order and preference.
    Services(Arc<[Service]>),
    /// There are SRV records, but none of them names a server.
    Declined,
    /// The name has no records of the queried type.
    Absent,
}

/// A service of a domain: SIP over one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(super) order: u16,
    pub(super) preference: u16,
    pub(super) transport: Transport,
    /// The name of the SRV records of the service.
    pub(super) name: Arc<str>,
}

impl Records {
    /// Reads the answer to a query for records of the type `record`, and the TTL of the answer if
    /// it has one. Returns `None` if the query failed, or the answer has another type.
    pub(crate) fn of(record: RecordType, answer: &QueryAnswer) -> Option<(Self, Option<Duration>)> {
        match (record, answer) {
            (RecordType::A | RecordType::Aaaa, QueryAnswer::Addresses(addresses, ttl)) => {
                let of_type = addresses.iter().filter(|ip| RecordType::of(**ip) == record);
                let addresses: Arc<[_]> = of_type.copied().take(KEPT_MAX).collect();
                let none = addresses.is_empty();
                Some((if none { Self::Absent } else { Self::Addresses(addresses) }, Some(*ttl)))
            }
            (RecordType::Srv, QueryAnswer::Srv(records, ttl)) => {
                Some((Self::of_srv(records), Some(*ttl)))
            }
            (RecordType::Naptr, QueryAnswer::Naptr(records, ttl)) => {
                Some((Self::of_naptr(records), Some(*ttl)))
            }
            (_, QueryAnswer::NotFound(ttl)) => Some((Self::Absent, *ttl)),
            _ => None,
        }
    }

    fn of_srv(records: &[SrvRecord]) -> Self {
        // RFC 2782: "A Target of "." means that the service is decidedly not available at this
        // domain." `Name` does not accept ".", so such a record is left out.
        let server = |&SrvRecord { priority, weight, port, ref target }: &SrvRecord| {
            let target = Name::parse(target).filter(|_| port != 0)?.as_str().into();
            Some(SrvRecord { priority, weight, port, target })
        };
        let mut servers: Vec<_> = records.iter().filter_map(server).collect();
        // RFC 2782: "A client MUST attempt to contact the target host with the lowest-numbered
        // priority it can reach". The further sort keys give every answer with these records the
        // same order (RFC 3263 §4.4).
        servers.sort_by(|a, b| {
            let place = |s: &SrvRecord| (s.priority, u16::MAX - s.weight, s.port);
            place(a).cmp(&place(b)).then_with(|| a.target.cmp(&b.target))
        });
        servers.dedup();
        servers.truncate(KEPT_MAX);
        if servers.is_empty() { Self::Declined } else { Self::Servers(servers.into()) }
    }

    fn of_naptr(records: &[NaptrRecord]) -> Self {
        // RFC 3263 §4.1: "The services relevant for the task of transport protocol selection are
        // those with NAPTR service fields with values "SIP+D2X" and "SIPS+D2X"" [...] "The
        // resource record will contain an empty regular expression and a replacement value, which
        // is the SRV record for that particular transport protocol." So its flag is "s".
        let service = |record: &NaptrRecord| {
            let is_srv = record.flags.eq_ignore_ascii_case("s");
            let transport = of_service(&record.service).filter(|_| is_srv)?;
            let name = Name::parse(&record.replacement)?.as_str().into();
            let NaptrRecord { order, preference, .. } = *record;
            Some(Service { order, preference, transport, name })
        };
        let mut services: Vec<_> = records.iter().filter_map(service).collect();
        services.sort_by(|a, b| {
            let place = |s: &Service| (s.order, s.preference, s.transport);
            place(a).cmp(&place(b)).then_with(|| a.name.cmp(&b.name))
        });
        services.dedup();
        services.truncate(KEPT_MAX);
        if services.is_empty() { Self::Absent } else { Self::Services(services.into()) }
    }

    /// Returns whether the records offer SIP over TLS.
    pub(super) fn offers_security(&self) -> bool {
        match self {
            Self::Services(services) => services.iter().any(|s| s.transport.is_secure()),
            _ => false,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn srv(priority: u16, weight: u16, port: u16, target: &str) -> SrvRecord {
        SrvRecord { priority, weight, port, target: target.into() }
    }

    pub(crate) fn naptr(order: u16, flags: &str, service: &str, replacement: &str) -> NaptrRecord {
        let [flags, service, replacement] = [flags, service, replacement].map(Arc::from);
        NaptrRecord { order, preference: 50, flags, service, replacement }
    }

    const TTL: Duration = Duration::from_secs(9);

    fn servers(records: Vec<SrvRecord>) -> Records {
        let answer = QueryAnswer::Srv(records.into(), TTL);
        let (records, ttl) = Records::of(RecordType::Srv, &answer).unwrap();
        assert_eq!(ttl, Some(TTL));
        records
    }

    #[test]
    fn servers_are_in_one_order_and_each_has_a_name_and_a_port() {
        let kept = vec![srv(1, 9, 5060, "b."), srv(1, 2, 5060, "A.x."), srv(2, 0, 1, "c.")];
        let mut records = kept.clone();
        records.extend([srv(0, 0, 0, "zero."), srv(0, 0, 5060, "."), srv(0, 0, 1, "a b.")]);
        let Records::Servers(forward) = servers(records.clone()) else { panic!("there are three") };
        let names: Vec<_> = forward.iter().map(|server| &*server.target).collect();
        assert_eq!(names, ["b.", "a.x.", "c."]);
        records.reverse();
        records.push(kept[0].clone());
        assert_eq!(servers(records), Records::Servers(forward));
        assert_eq!(servers(vec![srv(0, 0, 0, ".")]), Records::Declined);
        let many = (0..2 * KEPT_MAX as u16).map(|i| srv(i, 0, 5060, "a.")).rev().collect();
        let Records::Servers(kept) = servers(many) else { panic!("there are some") };
        assert_eq!((kept.len(), kept[0].priority), (KEPT_MAX, 0));
    }

    #[test]
    fn only_services_of_sip_are_kept() {
        let records = [
            naptr(90, "S", "sip+d2t", "_sip._tcp.a."),
            naptr(10, "u", "E2U+sip", "a."),
            naptr(20, "a", "SIP+D2U", "a."),
            naptr(30, "s", "SIP+D2U", "."),
            naptr(80, "s", "SIPS+D2T", "_sips._tcp.B."),
        ];
        let of = |records: &[NaptrRecord]| {
            let answer = QueryAnswer::Naptr(records.into(), TTL);
            Records::of(RecordType::Naptr, &answer).unwrap().0
        };
        let Records::Services(services) = of(&records) else { panic!("there are two") };
        let kept: Vec<_> = services.iter().map(|s| (s.transport, &*s.name)).collect();
        let expected = [(Transport::Tls, "_sips._tcp.b."), (Transport::Tcp, "_sip._tcp.a.")];
        assert_eq!(kept, expected);
        assert!(of(&records).offers_security() && !of(&records[..1]).offers_security());
        assert_eq!(of(&records[1..4]), Records::Absent);
    }

    #[test]
    fn an_answer_of_another_type_is_none() {
        let addresses: Arc<[IpAddr]> = ["::1", "10.0.0.1"].map(|ip| ip.parse().unwrap()).into();
        let answer = QueryAnswer::Addresses(Arc::clone(&addresses), TTL);
        let of = |record| Records::of(record, &answer);
        let v6 = Records::Addresses(addresses[..1].into());
        assert_eq!(of(RecordType::Aaaa), Some((v6, Some(TTL))));
        assert_eq!(of(RecordType::Srv), None);
        assert_eq!(Records::of(RecordType::A, &QueryAnswer::NoAnswer), None);
        let none = QueryAnswer::NotFound(None);
        assert_eq!(Records::of(RecordType::Naptr, &none), Some((Records::Absent, None)));
        let none = QueryAnswer::Addresses(addresses[..1].into(), TTL);
        assert_eq!(Records::of(RecordType::A, &none), Some((Records::Absent, Some(TTL))));
    }
}
