//! What came of a point.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What was counted of one run. Calls are those whose intended moment lay in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Calls offered.
    pub offered: u64,
    /// Of these, answered, in time or not.
    pub set_up: u64,
    /// Of these, answered within the deadline.
    pub set_up_in_time: u64,
    /// Of the calls offered, those that count as goodput.
    pub good: u64,
    /// Calls refused by 503.
    pub refused: u64,
    /// INVITEs sent again, until the deadline of the last call: callers who went on would repeat
    /// them further.
    pub repeated_invites: u64,
    /// Seconds measured.
    pub measured_s: f64,
    /// Set-up delay of the calls that were answered; `None` if none was.
    pub set_up_delay: Option<Quantiles>,
    /// Requests that begin a transaction: INVITEs, and BYEs first sent in the measured time.
    #[serde(default)]
    pub requests: u64,
    /// Of these, answered with 2xx within the deadline: what 003 calls handled.
    #[serde(default)]
    pub requests_handled: u64,
    /// BYE first sent to its 200; `None` if none was answered.
    #[serde(default)]
    pub bye_delay: Option<Quantiles>,
    /// How many transactions a server had open when it was given one more, by their number, at
    /// servers that others choose among; the last stands for all beyond it. Of the measured time;
    /// only simulated time sees it.
    #[serde(default)]
    pub occupancy: Vec<u64>,
    /// Seconds from the end of the overload until the goodput was, and for 5 s remained, at 90 % of
    /// what was offered, or of the capacity; `None` if there was no such end or no such moment.
    pub recovery_s: Option<f64>,
    /// Who made the load.
    pub generator: Generator,
    /// CPU time of the servers in seconds, of the whole run.
    pub tidegate_cpu_s: f64,
    /// How often it was run until the generator kept up, this time included.
    pub attempts: u32,
    /// The servers, over the whole run.
    pub nodes: Vec<NodeOutcome>,
    /// The callers before each server, over the whole run.
    pub callers: Vec<CallersOutcome>,
    /// The answerers together, over the whole run: their books.
    pub answerers: Value,
    /// Messages between them, over the whole run; only simulated time sees them.
    pub flows: Vec<MessageCount>,
}

/// What became of messages at one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeOutcome {
    /// Its name.
    pub node: String,
    /// How often it was started.
    pub starts: u32,
    /// Messages read, by class. What was lost before it was read is not among them.
    pub received: BTreeMap<String, u64>,
    /// Messages dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// New work refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Responses of its own, by status.
    pub replied: BTreeMap<String, u64>,
    /// Requests forwarded.
    pub requests_forwarded: u64,
    /// Responses forwarded.
    pub responses_forwarded: u64,
    /// Requests that it sent again itself.
    pub requests_resent: u64,
    /// Responses that it sent again itself.
    pub responses_resent: u64,
    /// Requests that repeat an earlier one.
    pub retransmissions: u64,
    /// Transactions that ended in vain.
    pub timeouts: u64,
    /// Datagrams lost at its receive buffers, real and emulated.
    pub socket_drops: u64,
    /// Datagrams dropped on purpose before its receive buffers, real and emulated. What is sent to
    /// it is received, lost or this.
    #[serde(default)]
    pub filtered: u64,
}

/// What callers did who send to one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallersOutcome {
    /// The server.
    pub to: String,
    /// Their books.
    pub stats: Value,
}

/// Messages of one kind from one to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageCount {
    /// From whom: `callers`, a node, or `answerers`.
    pub from: String,
    /// To whom.
    pub to: String,
    /// A method, or a status with the method it answers: `180 INVITE`.
    pub message: String,
    /// How many were sent.
    pub sent: u64,
    /// Of these and their copies, how many the network lost.
    pub lost: u64,
}

/// Quantiles of delays, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half took no longer.
    pub p50_ms: f64,
    /// 90 % took no longer.
    pub p90_ms: f64,
    /// 99 % took no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// How the generator did, callers and answerers together; nothing in simulated time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Use of a core by the busiest crowd of callers, 0..1.
    pub caller_load: f64,
    /// The same of the busiest answerer.
    pub answerer_load: f64,
    /// Datagrams lost at its sockets, and such that could not be sent.
    pub drops: u64,
    /// Why it could not offer what it was asked to, if so.
    pub too_slow: Option<String>,
}

impl Generator {
    /// It offered what it was asked to and lost nothing, so that what came is the server's
    /// doing.
    pub fn kept_up(&self) -> bool {
        self.too_slow.is_none() && self.drops == 0
    }
}

impl Outcome {
    /// Calls offered a second.
    pub fn offered_cps(&self) -> f64 {
        self.offered as f64 / self.measured_s
    }

    /// Calls a second that were set up in time.
    pub fn goodput_cps(&self) -> f64 {
        self.good as f64 / self.measured_s
    }

    /// INVITEs sent again for each sent first.
    pub fn retransmission_ratio(&self) -> f64 {
        self.repeated_invites as f64 / self.offered.max(1) as f64
    }

    /// The part of the requests that was handled.
    pub fn handled_part(&self) -> f64 {
        self.requests_handled as f64 / self.requests.max(1) as f64
    }

    /// The part of the offered calls that was refused.
    pub fn refused_part(&self) -> f64 {
        self.refused as f64 / self.offered.max(1) as f64
    }
}

impl NodeOutcome {
    /// A server that was never started.
    pub fn new(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    /// Adds what it says of itself (`/status`) at the end of one of its lives.
    pub fn add(&mut self, status: &Value) {
        self.starts += 1;
        for shard in status["shards"].as_array().into_iter().flatten() {
            let messages = &shard["messages"];
            for (counts, name) in [
                (&mut self.received, "received"),
                (&mut self.dropped, "dropped"),
                (&mut self.refused, "refused"),
                (&mut self.replied, "replied"),
            ] {
                for (key, count) in messages[name].as_object().into_iter().flatten() {
                    *counts.entry(key.clone()).or_default() += count.as_u64().unwrap_or(0);
                }
            }
            for (count, name) in [
                (&mut self.requests_forwarded, "requests_forwarded"),
                (&mut self.responses_forwarded, "responses_forwarded"),
                (&mut self.requests_resent, "requests_resent"),
                (&mut self.responses_resent, "responses_resent"),
                (&mut self.retransmissions, "retransmissions"),
                (&mut self.timeouts, "timeouts"),
            ] {
                *count += messages[name].as_u64().unwrap_or(0);
            }
            for name in ["socket_drops", "emulated_drops"] {
                self.socket_drops += shard[name].as_u64().unwrap_or(0);
            }
            self.filtered += shard["filtered"].as_u64().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_lives_of_a_server_are_added() {
        let life = |invites: u64| {
            json!({ "shards": [{
                "messages": {
                    "received": { "invite": invites, "ack": 1 },
                    "replied": { "503": 2 },
                    "requests_forwarded": 3,
                },
                "socket_drops": 4,
                "emulated_drops": 5,
                "filtered": 7,
            }]})
        };
        let mut node = NodeOutcome::new("re");
        node.add(&life(10));
        node.add(&life(100));
        assert_eq!((node.starts, node.received["invite"], node.received["ack"]), (2, 110, 2));
        assert_eq!((node.replied["503"], node.requests_forwarded), (4, 6));
        assert_eq!((node.socket_drops, node.filtered), (18, 14));
    }
}
