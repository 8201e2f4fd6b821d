//! Compares the packets of two implementations, except for the names that each one chooses freely.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::message::{Message, Packet, parameter, sent_by};
use super::parties::proxy;

/// Header fields that each implementation may choose freely.
const INCIDENTAL: [&str; 7] =
    ["content-length", "allow", "accept", "supported", "server", "warning", "retry-after"];

/// A pair of equal packets.
#[derive(Clone, Debug)]
pub struct Pair {
    pub core: Packet,
    pub reference: Packet,
}

/// The mapping between the names of the two implementations.
#[derive(Debug, Default)]
pub struct Names {
    of_core: BTreeMap<(Kind, String), String>,
    of_reference: BTreeMap<(Kind, String), String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Branch,
    Tag,
    Token,
}

/// A packet without the names that the implementation chose.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Plain {
    addresses: (SocketAddr, SocketAddr),
    start: String,
    headers: Vec<(String, String)>,
    body: String,
}

/// Matches the packets that the two implementations have sent, in any order.
///
/// # Errors
/// Returns a description of the difference.
pub fn compare(
    names: &mut Names,
    core: Vec<Packet>,
    reference: Vec<Packet>,
) -> Result<Vec<Pair>, String> {
    let sorted = |packets: Vec<Packet>| {
        let mut plain: Vec<_> = packets.into_iter().map(|p| (plain(&p), p)).collect();
        plain.sort_by(|((a, _), _), ((b, _), _)| a.cmp(b));
        plain
    };
    let (core, reference) = (sorted(core), sorted(reference));
    if core.len() != reference.len() {
        return Err(format!("{} packets of {}", core.len(), reference.len()));
    }
    let mut pairs = Vec::new();
    for (((a, named_a), core), ((b, named_b), reference)) in core.into_iter().zip(reference) {
        if a != b {
            return Err(format!("{} beside {}", a.difference(&b), b.difference(&a)));
        }
        for ((kind, a), (_, b)) in named_a.into_iter().zip(named_b) {
            names.agree(kind, a, b)?;
        }
        pairs.push(Pair { core, reference });
    }
    Ok(pairs)
}

impl Plain {
    /// Returns the values of each header that differs from the other packet's.
    fn difference(&self, other: &Self) -> String {
        let of = |plain: &Self, name: &str| -> Vec<String> {
            let lines = plain.headers.iter().filter(|(n, _)| n == name);
            lines.map(|(_, value)| value.clone()).collect()
        };
        let differs = |(name, _): &&(String, String)| of(self, name) != of(other, name);
        let lines = self.headers.iter().filter(differs);
        let lines: Vec<_> = lines.map(|(name, value)| format!("{name}: {value}")).collect();
        format!("[{} to {} {} {}]", self.start, self.addresses.1, lines.join(", "), self.body)
    }
}

impl Names {
    fn agree(&mut self, kind: Kind, core: String, reference: String) -> Result<(), String> {
        let theirs = self.of_core.entry((kind, core.clone())).or_insert(reference.clone());
        // One tag may serve several transactions, and a token may be rewritten, but each name
        // must stand for the same thing.
        if kind != Kind::Tag && *theirs != reference {
            return Err(format!("{kind:?} {core} is {reference} now, but was {theirs}"));
        }
        let ours = self.of_reference.entry((kind, reference.clone())).or_insert(core.clone());
        if kind != Kind::Token && *ours != core {
            return Err(format!("{kind:?} {reference} is {core} now, but was {ours}"));
        }
        Ok(())
    }
}

fn plain(packet: &Packet) -> (Plain, Vec<(Kind, String)>) {
    let mut named = Vec::new();
    let message = &packet.message;
    let lines = message.headers.iter();
    let mut lines: Vec<_> = lines.map(|(name, v)| (name.to_ascii_lowercase(), v)).collect();
    // The order of header lines with different names has no meaning (RFC 3261 §7.3.1).
    lines.sort_by(|(a, _), (b, _)| a.cmp(b));
    lines.retain(|(name, _)| !INCIDENTAL.contains(&name.as_str()));
    let of_line = |(name, value): (String, &String)| {
        let value = plain_value(&name, value, &mut named);
        (name, value)
    };
    let mut headers: Vec<_> = lines.into_iter().map(of_line).collect();
    // The order of challenges from several servers has no meaning either (RFC 3261 §22.3).
    headers.sort_by(|(a, v), (b, w)| {
        a.cmp(b).then(if a.ends_with("-authenticate") { v.cmp(w) } else { Ordering::Equal })
    });
    let plain = Plain {
        addresses: (packet.from, packet.to),
        start: plain_start(message),
        headers,
        body: message.body.clone(),
    };
    (plain, named)
}

/// Removes the reason phrase, which has no meaning for machines (§7.2).
fn plain_start(message: &Message) -> String {
    message.status().map_or_else(|| message.start.clone(), |status| status.to_string())
}

fn plain_value(name: &str, value: &str, named: &mut Vec<(Kind, String)>) -> String {
    let own = proxy().to_string();
    match name {
        "via" => {
            let mut value = value.to_owned();
            if sent_by(&value) == own {
                let branch = parameter(&value, "branch").expect("ours has one").to_owned();
                value = value.replace(&branch, "BRANCH");
                named.push((Kind::Branch, branch));
            }
            let mut parts: Vec<_> = value.split(';').collect();
            parts[1..].sort_unstable();
            parts.join(";")
        }
        "to" => match parameter(value, "tag") {
            Some(tag) if !tag.starts_with("calle") => {
                named.push((Kind::Tag, tag.to_owned()));
                value.replace(tag, "TAG")
            }
            _ => value.to_owned(),
        },
        "route" | "record-route" if value.contains(&format!("@{own}")) => {
            let token = value.split('@').next().expect("a split yields at least one part");
            named.push((Kind::Token, token.to_owned()));
            value.replace(token, "TOKEN")
        }
        _ => value.to_owned(),
    }
}
