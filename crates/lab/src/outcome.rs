//! The outcome of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::outage::Outage;
use crate::run_spec::RunSpec;

/// The counts of one run. Unless a field says otherwise, only calls that were due to start in the
/// measured time are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Calls offered.
    pub offered: u64,
    /// Calls answered, in time or not.
    pub set_up: u64,
    /// Calls answered within the deadline.
    pub set_up_in_time: u64,
    /// Calls that count as goodput: calls whose 200 reached the caller in time or, with `goodput =
    /// "acknowledged"`, calls whose ACK reached the answerer in time.
    pub good: u64,
    /// Calls rejected with 503.
    pub rejected: u64,
    /// Retransmissions of the INVITEs of these calls, until the end of the run.
    pub repeated_invites: u64,
    /// Duration of the measured time, in seconds.
    pub measured_s: f64,
    /// Set-up delay of the calls that were answered, or `None` if none was.
    pub set_up_delay: Option<Quantiles>,
    /// Requests that start a transaction: INVITEs, and BYEs first sent in the measured time.
    pub requests: u64,
    /// Requests answered with 2xx within the deadline: the "calls handled" of paper 003.
    pub requests_handled: u64,
    /// Delay from the first transmission of a BYE to its 200, or `None` if no BYE was answered.
    pub bye_delay: Option<Quantiles>,
    /// A histogram for balanced servers: element n is the number of new transactions that met n
    /// open transactions at their server. The last element includes all larger numbers. The
    /// histogram covers the measured time, and exists only in simulated time.
    pub occupancy: Vec<u64>,
    /// Seconds from the end of the overload until the goodput reached 90 % of the offered load or
    /// of the capacity, whichever is smaller, and stayed there for 5 s. `None` if the overload did
    /// not end or the goodput did not recover within the measured time.
    pub recovery_s: Option<f64>,
    /// Seconds from the last rise of the load above the capacity until the goodput reached 90 % of
    /// the greatest possible goodput, and stayed there for 2 s. `None` if the load did not rise or
    /// the goodput did not reach this level within the measured time.
    pub settled_s: Option<f64>,
    /// Number of people whose first call was in the measured time. All offered calls that are not
    /// first calls are redials.
    pub persons: u64,
    /// Number of people whose first call was in the measured time and who were answered, at any
    /// attempt.
    pub persons_served: u64,
    /// The course of an outage, or `None` if people do not redial and no device registers.
    pub outage: Option<Outage>,
    /// Jain's index of fairness among the sources. The index is computed from the fraction of calls
    /// that each source set up in time. `None` if fewer than two sources have calls, if a source
    /// has fewer than 20 calls, or if no call was set up in time.
    pub fairness: Option<f64>,
    /// The fraction of the trunk's calls that were set up in time, or `None` if no calls come from
    /// a trunk.
    pub trunk_in_time: Option<f64>,
    /// The fraction of the calls from all sources other than the trunk that were set up in time, or
    /// `None` if no calls come from a trunk.
    pub others_in_time: Option<f64>,
    /// Measurements of the load generator.
    pub generator: Generator,
    /// CPU time of all servers over the whole run, in seconds.
    pub tidegate_cpu_s: f64,
    /// Number of attempts at this run, including the last one. A run is repeated if the load
    /// generator was too slow or lost datagrams.
    pub attempts: u32,
    /// The counts of each server, over the whole run.
    pub nodes: Vec<NodeOutcome>,
    /// The counts of the callers of each server, over the whole run.
    pub callers: Vec<CallersOutcome>,
    /// Counts of all answerers together, over the whole run.
    pub answerers: Value,
    /// Messages between callers, nodes and answerers, over the whole run. The messages are counted
    /// only in simulated time.
    pub flows: Vec<MessageCount>,
}

/// The outcomes of messages at one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeOutcome {
    /// Name of the server.
    pub node: String,
    /// Number of times that the server was started.
    pub starts: u32,
    /// Messages that the server read, by class. Messages that were lost before the server could
    /// read them are not included.
    pub received: BTreeMap<String, u64>,
    /// Messages dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// New sessions that overload control rejected although the processor had idle time within the
    /// last 0.1 s.
    pub early: u64,
    /// New work rejected, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Responses that the server itself generated, by status.
    pub replied: BTreeMap<String, u64>,
    /// Requests forwarded.
    pub requests_forwarded: u64,
    /// Responses forwarded.
    pub responses_forwarded: u64,
    /// Requests retransmitted by the server itself.
    pub requests_resent: u64,
    /// Responses retransmitted by the server itself.
    pub responses_resent: u64,
    /// Received requests that are retransmissions.
    pub retransmissions: u64,
    /// Transactions that timed out.
    pub timeouts: u64,
    /// Datagrams lost at the server's receive buffers, real and emulated.
    pub socket_drops: u64,
    /// Datagrams that were dropped at the server's request before they reached its receive buffers,
    /// real and emulated. Each packet sent to the server is received, lost or counted here.
    pub filtered: u64,
}

/// The counts of the callers of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallersOutcome {
    /// Name of the server.
    pub to: String,
    /// Counts of the callers of the server.
    pub stats: Value,
}

/// Messages of one kind from one sender to one receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageCount {
    /// Sender: `callers`, a node, or `answerers`.
    pub from: String,
    /// Receiver: `callers`, a node, or `answerers`.
    pub to: String,
    /// A method, or a status with the method that it answers: `180 INVITE`.
    pub message: String,
    /// Number of messages sent.
    pub sent: u64,
    /// Number of messages lost in the network, copies included.
    pub lost: u64,
}

/// Quantiles of delays, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median of the delays.
    pub p50_ms: f64,
    /// 90th percentile of the delays.
    pub p90_ms: f64,
    /// 99th percentile of the delays.
    pub p99_ms: f64,
    /// The largest delay.
    pub max_ms: f64,
}

/// Measurements of the load generator, which consists of the callers and the answerers. In
/// simulated time only [`too_slow`](Self::too_slow) is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Use of a core by the busiest thread of callers, 0 to 1.
    pub caller_load: f64,
    /// Use of a core by the busiest answerer, 0 to 1. This is its largest use between two samples
    /// that are at least a second apart.
    pub answerer_load: f64,
    /// Datagrams that were lost at the generator's sockets, or that the generator could not send.
    pub drops: u64,
    /// The reason why the generator could not offer its load, or `None` if it could.
    pub too_slow: Option<String>,
}

impl Generator {
    /// Returns whether the generator offered its load and lost nothing. Only then does the outcome
    /// describe the server.
    pub fn kept_up(&self) -> bool {
        self.doubt().is_none()
    }

    /// Returns the reason why the outcome may not describe the server, or `None` if there is no
    /// reason.
    pub fn doubt(&self) -> Option<String> {
        match (&self.too_slow, self.drops) {
            (Some(reason), _) => Some(format!("the generator was too slow: {reason}")),
            (None, 0) => None,
            (None, drops) => Some(format!("the generator lost {drops} datagrams")),
        }
    }
}

impl Outcome {
    /// Returns the calls offered per second.
    pub fn offered_cps(&self) -> f64 {
        self.offered as f64 / self.measured_s
    }

    /// Returns the calls per second that count as goodput.
    pub fn goodput_cps(&self) -> f64 {
        self.good as f64 / self.measured_s
    }

    /// Returns the greatest possible goodput at the load that was actually offered in `run`, as a
    /// fraction of the capacity.
    pub fn bound(&self, run: &RunSpec) -> f64 {
        run.bound(self.offered_cps() / run.capacity_cps())
    }

    /// Returns the goodput as a fraction of the [`bound`](Self::bound), or `None` if no goodput is
    /// possible.
    pub(crate) fn goodput_of_bound(&self, run: &RunSpec) -> Option<f64> {
        let bound = self.bound(run);
        (bound > 0.0).then(|| self.goodput_cps() / run.capacity_cps() / bound)
    }

    /// Returns the sum of the count `key` over all callers, for the whole run, or NaN if callers
    /// lack this count.
    pub fn counted(&self, key: &str) -> f64 {
        self.callers.iter().map(|callers| callers.stats[key].as_f64().unwrap_or(f64::NAN)).sum()
    }

    /// Returns the number of retransmitted INVITEs divided by the number of offered calls.
    pub fn retransmission_ratio(&self) -> f64 {
        self.repeated_invites as f64 / self.offered.max(1) as f64
    }

    /// Returns the number of calls that were not the first attempt of a person.
    pub fn redials(&self) -> u64 {
        self.offered.saturating_sub(self.persons)
    }

    /// Returns the fraction, 0 to 1, of the people with a first call in the measured time who were
    /// answered.
    pub fn served_part(&self) -> f64 {
        self.persons_served as f64 / self.persons.max(1) as f64
    }

    /// Returns the fraction of the requests that were answered with 2xx within the deadline, 0 to
    /// 1.
    pub fn handled_part(&self) -> f64 {
        self.requests_handled as f64 / self.requests.max(1) as f64
    }

    /// Returns the fraction of the offered calls that was rejected, 0 to 1.
    pub(crate) fn rejected_part(&self) -> f64 {
        self.rejected as f64 / self.offered.max(1) as f64
    }
}

impl NodeOutcome {
    /// Creates the counts of a server that was never started.
    pub fn new(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    /// Adds the counts of one process of the server, from its last `/status`.
    ///
    /// # Errors
    /// Returns an error if the status lacks a count. If a missing count counted as 0, this would
    /// hide the error, because 0 is the best result for many counts.
    pub fn add(&mut self, status: &Value) -> Result<(), String> {
        self.starts += 1;
        let lacking = |name: &str| format!("the status of {} lacks `{name}`", self.node);
        let count = |of: &Value, name: &str| of[name].as_u64().ok_or_else(|| lacking(name));
        for shard in status["shards"].as_array().ok_or_else(|| lacking("shards"))? {
            let messages = &shard["messages"];
            for (counts, name) in [
                (&mut self.received, "received"),
                (&mut self.dropped, "dropped"),
                (&mut self.rejected, "rejected"),
                (&mut self.replied, "replied"),
            ] {
                // `/status` leaves out counts of 0.
                let labelled = &messages[name];
                for key in labelled.as_object().ok_or_else(|| lacking(name))?.keys() {
                    *counts.entry(key.clone()).or_default() += count(labelled, key)?;
                }
            }
            for (sum, name) in [
                (&mut self.requests_forwarded, "requests_forwarded"),
                (&mut self.responses_forwarded, "responses_forwarded"),
                (&mut self.requests_resent, "requests_resent"),
                (&mut self.responses_resent, "responses_resent"),
                (&mut self.retransmissions, "retransmissions"),
                (&mut self.timeouts, "timeouts"),
            ] {
                *sum += count(messages, name)?;
            }
            self.socket_drops += count(shard, "socket_drops")? + count(shard, "emulated_drops")?;
            self.filtered += count(shard, "filtered")?;
            self.early += count(&shard["session"], "early")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn life(invites: u64) -> Value {
        json!({ "shards": [{
            "messages": {
                "received": { "invite": invites, "ack": 1 },
                "dropped": {},
                "rejected": {},
                "replied": { "503": 2 },
                "requests_forwarded": 3,
                "responses_forwarded": 1,
                "requests_resent": 0,
                "responses_resent": 0,
                "retransmissions": 0,
                "timeouts": 0,
            },
            "socket_drops": 4,
            "emulated_drops": 5,
            "filtered": 7,
            "session": { "early": 3 },
        }]})
    }

    /// A missing count must not count as 0, which is the best result for most counts.
    #[test]
    fn a_count_that_is_missing_is_an_error() {
        let lacks = |path: &str, name: &str| {
            let mut life = life(1);
            life.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(name).unwrap();
            NodeOutcome::new("re").add(&life).unwrap_err()
        };
        assert_eq!(lacks("/shards/0/session", "early"), "the status of re lacks `early`");
        assert_eq!(lacks("", "shards"), "the status of re lacks `shards`");
        lacks("/shards/0", "filtered");
        lacks("/shards/0", "emulated_drops");
        lacks("/shards/0/messages", "timeouts");
        lacks("/shards/0/messages", "dropped");
    }

    #[test]
    fn the_lives_of_a_server_are_added() {
        let mut node = NodeOutcome::new("re");
        node.add(&life(10)).unwrap();
        node.add(&life(100)).unwrap();
        assert_eq!((node.starts, node.received["invite"], node.received["ack"]), (2, 110, 2));
        assert_eq!((node.replied["503"], node.requests_forwarded), (4, 6));
        assert_eq!((node.socket_drops, node.filtered, node.early), (18, 14, 6));
    }
}
