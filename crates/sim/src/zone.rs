//! The host names and stores of a simulated network, and the answers to queries for them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_world::{
    KEY_MAX, LookupKind, NAME_MAX, NaptrRecord, Purpose, QueryAnswer, Question, RECORDS_MAX,
    RecordType, Seed, SrvRecord, Stream, VALUE_MAX,
};

use crate::micros;

/// The delays and failures of a simulated resolver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// Minimum delay of an answer, serialized in microseconds.
    #[serde(rename = "delay_us", with = "micros", default)]
    pub delay: Duration,
    /// Maximum additional delay of an answer, uniformly distributed. It is serialized in
    /// microseconds.
    #[serde(rename = "jitter_us", with = "micros", default)]
    pub jitter: Duration,
    /// Share of the queries that fail, 0 to 1.
    #[serde(default)]
    pub fails: f64,
    /// Share of the queries that are never answered, 0 to 1.
    #[serde(default)]
    pub lost: f64,
}

/// A simulated resolver: the host names and lookup keys that exist, and the answers to queries for
/// them.
///
/// The content of an answer is determined at the time of the query. A name or key that was not set
/// is not found. Names are compared without regard to case, and a final dot makes no difference.
pub struct Zone {
    records: BTreeMap<(Box<str>, RecordType), QueryAnswer>,
    stores: BTreeMap<LookupKind, Store>,
    negative_ttl: Option<Duration>,
    usual: Resolution,
    /// The behaviour of the resolver during a fault, or `None` if its normal behaviour applies.
    instead: Option<Resolution>,
    stream: Stream,
}

/// The values that one kind of lookup can find, by their keys.
type Store = BTreeMap<Box<[u8]>, Arc<[u8]>>;

impl Zone {
    /// Creates a zone without names and with immediate answers. Random values are drawn from
    /// `seed`.
    pub fn new(seed: Seed) -> Self {
        Self {
            records: BTreeMap::new(),
            stores: BTreeMap::new(),
            negative_ttl: None,
            usual: Resolution::default(),
            instead: None,
            stream: seed.stream(Purpose::Resolution, 0),
        }
    }

    /// Sets the addresses of a name from now on, with `ttl` as their time to live.
    pub fn set(&mut self, host: &str, addresses: &[IpAddr], ttl: Duration) {
        for record in [RecordType::A, RecordType::Aaaa] {
            let of_type = addresses.iter().copied().filter(|ip| RecordType::of(*ip) == record);
            self.put(host, record, of_type, |all| QueryAnswer::Addresses(all, ttl));
        }
    }

    /// Sets the SRV records of a name from now on, with `ttl` as their time to live.
    pub fn set_srv(&mut self, name: &str, records: &[SrvRecord], ttl: Duration) {
        let fits = |record: &&SrvRecord| record.target.len() <= NAME_MAX;
        let records = records.iter().filter(fits).cloned();
        self.put(name, RecordType::Srv, records, |all| QueryAnswer::Srv(all, ttl));
    }

    /// Sets the NAPTR records of a name from now on, with `ttl` as their time to live.
    pub fn set_naptr(&mut self, name: &str, records: &[NaptrRecord], ttl: Duration) {
        let fits = |NaptrRecord { flags, service, replacement, .. }: &&NaptrRecord| {
            [flags, service, replacement].iter().all(|text| text.len() <= NAME_MAX)
        };
        let records = records.iter().filter(fits).cloned();
        self.put(name, RecordType::Naptr, records, |all| QueryAnswer::Naptr(all, ttl));
    }

    /// Removes a name with all its records.
    pub fn remove(&mut self, host: &str) {
        let host = canonical(host);
        self.records.retain(|(name, _), _| *name != host);
    }

    /// Sets the time to live of negative answers. If it is `None`, negative answers have no time to
    /// live.
    pub fn set_negative_ttl(&mut self, ttl: Option<Duration>) {
        self.negative_ttl = ttl;
    }

    /// Sets the value of a key from now on. If the value is longer than [`VALUE_MAX`], or the key
    /// longer than [`KEY_MAX`], queries for the key find nothing.
    pub fn set_value(&mut self, kind: LookupKind, key: &[u8], value: &[u8]) {
        if key.len() <= KEY_MAX && value.len() <= VALUE_MAX {
            self.stores.entry(kind).or_default().insert(key.into(), value.into());
        } else {
            self.remove_value(kind, key);
        }
    }

    /// Removes a key with its value.
    pub(crate) fn remove_value(&mut self, kind: LookupKind, key: &[u8]) {
        if let Some(store) = self.stores.get_mut(&kind) {
            store.remove(key);
        }
    }

    /// Sets the normal behaviour of the resolver.
    pub fn resolve_by(&mut self, resolution: Resolution) {
        self.usual = resolution;
    }

    /// Replaces the behaviour of the resolver. `None` restores the normal behaviour.
    pub(crate) fn resolve_instead_by(&mut self, resolution: Option<Resolution>) {
        self.instead = resolution;
    }

    /// Returns the delay of the answer to a query, and the answer, or `None` if the query is never
    /// answered.
    pub fn answer(&mut self, question: &Question) -> Option<(Duration, QueryAnswer)> {
        let Resolution { delay, jitter, fails, lost } = self.instead.unwrap_or(self.usual);
        // Each query uses three draws, whatever the outcome is, so that a changed share affects no
        // other query.
        let [is_lost, has_failed, later] = [(); 3].map(|()| self.stream.unit());
        if is_lost < lost {
            return None;
        }
        let after = delay + jitter.mul_f64(later);
        let answer = if has_failed < fails { QueryAnswer::NoAnswer } else { self.found(question) };
        Some((after, answer))
    }

    fn found(&self, question: &Question) -> QueryAnswer {
        let found = match question {
            Question::Resolve { name, record } => {
                self.records.get(&(canonical(name), *record)).cloned()
            }
            Question::Lookup { kind, key } => {
                let value = self.stores.get(kind).and_then(|store| store.get(&**key));
                value.map(|value| QueryAnswer::Found(Arc::clone(value)))
            }
        };
        found.unwrap_or(QueryAnswer::NotFound(self.negative_ttl))
    }

    fn put<R>(
        &mut self,
        name: &str,
        record: RecordType,
        records: impl Iterator<Item = R>,
        answer: impl FnOnce(Arc<[R]>) -> QueryAnswer,
    ) {
        let (key, records) = ((canonical(name), record), records.take(RECORDS_MAX));
        let records: Arc<[R]> = records.collect();
        if records.is_empty() {
            self.records.remove(&key);
        } else {
            self.records.insert(key, answer(records));
        }
    }
}

/// Returns a name in lower case and without a final dot.
fn canonical(name: &str) -> Box<str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.to_ascii_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(zone: &mut Zone, host: &str, record: RecordType) -> Option<(Duration, QueryAnswer)> {
        zone.answer(&Question::Resolve { name: host.into(), record })
    }

    #[test]
    fn a_name_resolves_to_addresses_of_the_requested_family() {
        let mut zone = Zone::new(Seed(1));
        let (four, six) = ("10.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        let ttl = Duration::from_secs(9);
        zone.set("both.example", &[four, six], ttl);
        let now = |answer| Some((Duration::ZERO, answer));
        let found = |ip| now(QueryAnswer::Addresses([ip].into(), ttl));
        assert_eq!(ask(&mut zone, "both.example", RecordType::A), found(four));
        assert_eq!(ask(&mut zone, "both.example", RecordType::Aaaa), found(six));
        zone.set("both.example", &[six], ttl);
        assert_eq!(ask(&mut zone, "both.example", RecordType::A), now(QueryAnswer::NotFound(None)));
        zone.remove("both.example");
        assert_eq!(
            ask(&mut zone, "both.example", RecordType::Aaaa),
            now(QueryAnswer::NotFound(None))
        );
    }

    #[test]
    fn a_name_has_servers_and_services_and_a_store_has_values() {
        let (mut zone, ttl) = (Zone::new(Seed(1)), Duration::from_secs(9));
        let server =
            |target: &str| SrvRecord { priority: 1, weight: 2, port: 3, target: target.into() };
        let long = server(&"a".repeat(NAME_MAX + 1));
        zone.set_srv("_SIP._udp.a.example", &[server("b.example."), long], ttl);
        let service = NaptrRecord {
            order: 1,
            preference: 2,
            flags: "s".into(),
            service: "SIP+D2U".into(),
            replacement: "_sip._udp.a.example.".into(),
        };
        zone.set_naptr("a.example", std::slice::from_ref(&service), ttl);
        let now = |answer| Some((Duration::ZERO, answer));
        let servers = now(QueryAnswer::Srv([server("b.example.")].into(), ttl));
        assert_eq!(ask(&mut zone, "_sip._UDP.a.example.", RecordType::Srv), servers);
        let services = now(QueryAnswer::Naptr([service].into(), ttl));
        assert_eq!(ask(&mut zone, "A.example.", RecordType::Naptr), services);
        zone.set_negative_ttl(Some(ttl));
        let none = now(QueryAnswer::NotFound(Some(ttl)));
        assert_eq!(ask(&mut zone, "a.example", RecordType::A), none);
        zone.set_srv("_sip._udp.a.example", &[], ttl);
        assert_eq!(ask(&mut zone, "_sip._udp.a.example", RecordType::Srv), none);

        let look_up = |zone: &mut Zone, key: &[u8]| {
            zone.answer(&Question::Lookup { kind: LookupKind::User, key: key.into() })
        };
        zone.set_value(LookupKind::User, b"sip:a@example", b"value");
        let found = now(QueryAnswer::Found(b"value".as_slice().into()));
        assert_eq!(look_up(&mut zone, b"sip:a@example"), found);
        assert_eq!(look_up(&mut zone, b"sip:b@example"), none);
        zone.set_value(LookupKind::User, b"sip:a@example", &[0; VALUE_MAX + 1]);
        assert_eq!(look_up(&mut zone, b"sip:a@example"), none, "it is too long");
        zone.resolve_by(Resolution { fails: 1.0, ..Resolution::default() });
        assert_eq!(look_up(&mut zone, b"sip:a@example"), now(QueryAnswer::NoAnswer));
    }

    #[test]
    fn the_configured_shares_of_queries_fail_or_are_lost_and_answers_are_late() {
        let mut zone = Zone::new(Seed(2));
        zone.set("a.example", &["10.0.0.1".parse().unwrap()], Duration::from_secs(9));
        let [delay, jitter] = [2, 3].map(Duration::from_secs);
        zone.resolve_by(Resolution { delay, jitter, fails: 0.25, lost: 0.1 });
        let answers: Vec<_> =
            (0..2000).map(|_| ask(&mut zone, "a.example", RecordType::A)).collect();
        let given: Vec<_> = answers.iter().flatten().collect();
        let failed = given.iter().filter(|(_, answer)| *answer == QueryAnswer::NoAnswer).count();
        // Binomial: five standard deviations are 67 and 97.
        assert!((answers.len() - given.len()).abs_diff(200) < 67);
        assert!(failed.abs_diff(450) < 97, "{failed}");
        let latest = given.iter().map(|(after, _)| *after).max().unwrap();
        assert!(given.iter().all(|(after, _)| *after >= delay) && latest > delay + jitter / 2);
        assert!(latest <= delay + jitter);

        zone.resolve_instead_by(Some(Resolution { lost: 1.0, ..Resolution::default() }));
        assert_eq!(ask(&mut zone, "a.example", RecordType::A), None);
        zone.resolve_instead_by(None);
        let usual = (0..100).filter(|_| ask(&mut zone, "a.example", RecordType::A).is_some());
        assert!(usual.count() > 50);
    }
}
