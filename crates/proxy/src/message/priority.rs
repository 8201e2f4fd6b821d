//! Call priority: the calls that take precedence, and the sources whose claims of priority are
//! trusted.
//!
//! RFC 4412 §11.2 asks that the users of a resource priority be authorized. Here a source is either
//! authorized or not. Claims of a source that is not authorized have no effect and are not read.

use std::net::IpAddr;

use ipnet::IpNet;
use tidegate_sip::{ResourceValue, ScanStart, glance, is_emergency, requires, resource_values};

/// The calls that take precedence over other calls, and the sources that may claim this.
#[derive(Clone, Debug, PartialEq)]
pub struct Priority {
    /// Networks whose claims of priority are trusted.
    pub from: Vec<IpNet>,
    /// True if calls to `urn:service:sos` and its subservices have priority (RFC 5031).
    pub emergency: bool,
    /// The resource values (RFC 4412) that give a call priority.
    pub values: ResourceValues,
    /// Maximum rate of priority calls, in calls per second. Calls beyond this rate are treated as
    /// ordinary.
    pub rate_cps: f64,
}

/// The namespaces of resource priorities that RFC 4412 §10 defines. Each has its values, the lowest
/// first.
pub const NAMESPACES: [(&str, &[&str]); 5] = [
    ("dsn", &["routine", "priority", "immediate", "flash", "flash-override"]),
    (
        "drsn",
        &["routine", "priority", "immediate", "flash", "flash-override", "flash-override-override"],
    ),
    ("q735", &["4", "3", "2", "1", "0"]),
    ("ets", &["4", "3", "2", "1", "0"]),
    ("wps", &["4", "3", "2", "1", "0"]),
];

/// The resource values (RFC 4412) that give a call priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceValues {
    /// Values in namespaces outside [`NAMESPACES`], as (namespace, value).
    others: Vec<(String, String)>,
    /// For each namespace of [`NAMESPACES`], the number of values, from the lowest on, that give no
    /// priority. `None` if no value of the namespace gives priority.
    below: [Option<usize>; NAMESPACES.len()],
}

/// The error for a text that is not a resource value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// The text is not of the form `namespace.value`.
    Form,
    /// The namespace is one of [`NAMESPACES`], but has no such value. The variant contains the
    /// values that the namespace has.
    Value(&'static [&'static str]),
}

impl ResourceValues {
    /// Gives priority to the value in `text` and, if its namespace is one of [`NAMESPACES`], to all
    /// values above it. RFC 4412 §8.1: an element must keep "the relative ordering within each
    /// namespace", so no higher value may have less priority.
    ///
    /// # Errors
    /// Returns an error if `text` is not a resource value.
    pub fn add(&mut self, text: &str) -> Result<(), NoValue> {
        let value = ResourceValue::parse(text.as_bytes()).ok_or(NoValue::Form)?;
        let (namespace, priority) = text.split_once('.').ok_or(NoValue::Form)?;
        let Some(at) = place(&value) else {
            self.others.push((namespace.to_owned(), priority.to_owned()));
            return Ok(());
        };
        let values = NAMESPACES[at].1;
        let below = rank(values, &value).ok_or(NoValue::Value(values))?;
        self.below[at] = Some(self.below[at].map_or(below, |known| known.min(below)));
        Ok(())
    }

    /// Returns texts that give the same values priority if they are [added](Self::add) again. For
    /// each namespace of [`NAMESPACES`], this is the lowest value with priority.
    pub fn texts(&self) -> Vec<String> {
        let known = NAMESPACES.iter().zip(self.below).filter_map(|((namespace, values), below)| {
            Some(format!("{namespace}.{}", values[below?]))
        });
        let others = self.others.iter().map(|(namespace, value)| format!("{namespace}.{value}"));
        known.chain(others).collect()
    }

    fn weigh(&self, value: &ResourceValue<'_>) -> Weight {
        let Some(at) = place(value) else {
            let mut same = self.others.iter().filter(|(namespace, _)| {
                value.namespace.eq_ignore_ascii_case(namespace.as_bytes())
            });
            let is_known = same.clone().next().is_some();
            return match same.any(|(namespace, priority)| value.is(namespace, priority)) {
                true => Weight::Counts,
                false if is_known => Weight::CountsNot,
                false => Weight::Unknown,
            };
        };
        match (rank(NAMESPACES[at].1, value), self.below[at]) {
            (None, _) => Weight::Unknown,
            (Some(rank), Some(below)) if rank >= below => Weight::Counts,
            (Some(_), _) => Weight::CountsNot,
        }
    }
}

/// The effect of a resource value on the priority of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    Counts,
    CountsNot,
    Unknown,
}

fn place(value: &ResourceValue<'_>) -> Option<usize> {
    NAMESPACES.iter().position(|(name, _)| value.namespace.eq_ignore_ascii_case(name.as_bytes()))
}

fn rank(values: &[&str], value: &ResourceValue<'_>) -> Option<usize> {
    values.iter().position(|known| value.priority.eq_ignore_ascii_case(known.as_bytes()))
}

/// The priority claim of a request, after the check of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// There is no claim, or the source is not trusted.
    Ordinary,
    /// A trusted claim of priority.
    Priority,
    /// The request requires that its resource priority be understood (RFC 4412 §4.6.2), and none of
    /// its values is known.
    NotUnderstood,
}

impl Priority {
    /// Returns the priority claim of an INVITE from `source`.
    pub(crate) fn claim(&self, source: IpAddr, message: &[u8]) -> Claim {
        if !self.from.iter().any(|net| net.contains(&source)) {
            return Claim::Ordinary;
        }
        let is_emergency = |message| matches!(glance(message), Ok(ScanStart::Request { uri, .. }) if is_emergency(uri));
        if self.emergency && is_emergency(message) {
            return Claim::Priority;
        }
        let (mut understood, mut unknown) = (false, false);
        for value in resource_values(message) {
            match self.values.weigh(&value) {
                Weight::Counts => return Claim::Priority,
                Weight::CountsNot => understood = true,
                Weight::Unknown => unknown = true,
            }
        }
        // RFC 4412 §4.6.2: "If an RP actor does not understand any of the resource values in the
        // request", it "treats the request as if it contained no 'Resource-Priority' header
        // field"; but with the option tag in a Require "it MUST reject the request with a 417".
        if unknown && !understood && requires(message, "resource-priority") {
            Claim::NotUnderstood
        } else {
            Claim::Ordinary
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(texts: &[&str]) -> ResourceValues {
        let mut values = ResourceValues::default();
        for text in texts {
            values.add(text).unwrap();
        }
        values
    }

    fn claim(priority: &Priority, from: &str, uri: &str, headers: &str) -> Claim {
        let message = format!("INVITE {uri} SIP/2.0\r\nVia: x\r\n{headers}\r\n\r\n");
        priority.claim(from.parse().unwrap(), message.as_bytes())
    }

    fn priority(texts: &[&str]) -> Priority {
        Priority {
            from: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            emergency: true,
            values: values(texts),
            rate_cps: 10.0,
        }
    }

    const BOB: &str = "sip:bob@192.0.2.1";

    #[test]
    fn only_trusted_sources_have_priority() {
        let priority = priority(&["ets.4"]);
        for (from, expected) in [
            ("192.0.2.9", Claim::Priority),
            ("2001:db8::9", Claim::Priority),
            ("198.51.100.9", Claim::Ordinary),
        ] {
            assert_eq!(claim(&priority, from, "urn:service:sos.fire", "To: x"), expected, "{from}");
            assert_eq!(claim(&priority, from, BOB, "Resource-Priority: ets.0"), expected, "{from}");
        }
    }

    #[test]
    fn emergency_calls_may_be_left_out() {
        let priority = Priority { emergency: false, ..priority(&[]) };
        assert_eq!(claim(&priority, "192.0.2.9", "urn:service:sos", "To: x"), Claim::Ordinary);
    }

    // RFC 4412 §8.1 gives the order within a namespace, and §10 the order of each namespace.
    #[test]
    fn rfc4412_10_values_above_one_with_priority_have_priority_too() {
        let priority = priority(&["dsn.flash", "q735.2", "local.high"]);
        for (value, expected) in [
            ("dsn.immediate", Claim::Ordinary),
            ("DSN.Flash", Claim::Priority),
            ("dsn.flash-override", Claim::Priority),
            ("q735.3", Claim::Ordinary),
            ("q735.0", Claim::Priority),
            ("drsn.flash-override-override", Claim::Ordinary),
            ("local.high", Claim::Priority),
            ("local.low", Claim::Ordinary),
            ("dsn.immediate, q735.2", Claim::Priority),
        ] {
            let header = format!("Resource-Priority: {value}");
            assert_eq!(claim(&priority, "192.0.2.9", BOB, &header), expected, "{value}");
        }
    }

    #[test]
    fn rfc4412_4_6_2_unknown_values_are_rejected_only_if_required() {
        let priority = priority(&["dsn.flash", "local.high"]);
        for (header, expected) in [
            ("Resource-Priority: foo.1", Claim::Ordinary),
            ("Resource-Priority: foo.1\r\nRequire: resource-priority", Claim::NotUnderstood),
            ("Resource-Priority: dsn.9\r\nRequire: resource-priority", Claim::NotUnderstood),
            ("Resource-Priority: foo.1, wps.4\r\nRequire: resource-priority", Claim::Ordinary),
            ("Resource-Priority: wps.4, foo.1\r\nRequire: resource-priority", Claim::Ordinary),
            ("Resource-Priority: local.low\r\nRequire: resource-priority", Claim::Ordinary),
            ("Require: resource-priority", Claim::Ordinary),
        ] {
            assert_eq!(claim(&priority, "192.0.2.9", BOB, header), expected, "{header}");
            assert_eq!(claim(&priority, "203.0.113.9", BOB, header), Claim::Ordinary, "{header}");
        }
    }

    #[test]
    fn values_are_written_as_they_were_added() {
        let texts = ["dsn.flash", "ets.4", "local.high"];
        assert_eq!(values(&texts).texts(), texts);
        assert_eq!(values(&["ets.1", "ets.3"]).texts(), ["ets.3"], "the least counts");
        let mut values = ResourceValues::default();
        for text in ["flash", "dsn.", ".flash", "a b.c", "a.b.c"] {
            assert_eq!(values.add(text), Err(NoValue::Form), "{text}");
        }
        assert_eq!(values.add("dsn.0"), Err(NoValue::Value(NAMESPACES[0].1)));
    }
}
