//! Counts the messages in a simulated network by kind, sender and receiver, and the calls whose
//! set-up was completed by the ACK.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sim::{Loss, NodeId, Tap};
use tidegate_sip::{Method, Scan, ScanStart, scan};
use tidegate_world::{Flow, Timestamp};

use super::occupancy::Occupancy;
use crate::outcome::MessageCount;

/// The counts of all messages in a simulated network.
pub(super) struct Traffic {
    /// Names of the parties. All callers together are one party, as are all answerers together.
    /// Each server is a party.
    endpoints: Vec<String>,
    addresses: BTreeMap<SocketAddr, usize>,
    flows: BTreeMap<(usize, usize, Kind), Counted>,
    set_up: Option<SetUp>,
    occupancy: Occupancy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// The status of a response, or 0 for a request.
    status: u16,
    method: &'static str,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    sent: u64,
    lost: u64,
}

/// A tracker of calls, from their first INVITE until their ACK reaches the answerer.
pub(super) struct SetUp {
    callers: usize,
    answerers: usize,
    limits: Limits,
    /// The calls whose INVITE may still be retransmitted, by Call-ID. `order` has the same calls in
    /// the order of their start.
    calls: HashMap<Box<[u8]>, Begun>,
    order: VecDeque<(Timestamp, Box<[u8]>)>,
    good: u64,
}

/// The conditions under which a call is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Earliest start of a call that is counted.
    pub from: Timestamp,
    /// Latest start of a call that is counted.
    pub to: Timestamp,
    /// Longest set-up delay of a call that is counted.
    pub deadline: Duration,
    /// Time from the first INVITE of a call in which the INVITE may be retransmitted.
    pub repeats: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Timestamp,
    is_set_up: bool,
}

impl SetUp {
    /// Creates a tracker of calls from the party with the index `callers` to the party with the
    /// index `answerers`.
    pub fn new(callers: usize, answerers: usize, limits: Limits) -> Self {
        let (calls, order) = Default::default();
        Self { callers, answerers, limits, calls, order, good: 0 }
    }

    fn begins(&mut self, now: Timestamp, call_id: &[u8]) {
        let keep = self.limits.repeats.max(self.limits.deadline);
        while self.order.front().is_some_and(|(at, _)| now.since(*at) > keep) {
            if let Some((_, call_id)) = self.order.pop_front() {
                self.calls.remove(&call_id);
            }
        }
        if now <= self.limits.to && !self.calls.contains_key(call_id) {
            self.calls.insert(call_id.into(), Begun { at: now, is_set_up: false });
            self.order.push_back((now, call_id.into()));
        }
    }

    fn is_set_up(&mut self, now: Timestamp, call_id: &[u8]) {
        let Some(call) = self.calls.get_mut(call_id) else { return };
        let first = !std::mem::replace(&mut call.is_set_up, true);
        let in_time = now.since(call.at) <= self.limits.deadline;
        self.good += u64::from(first && in_time && call.at >= self.limits.from);
    }
}

impl Traffic {
    /// Creates counts that are 0. `endpoints` are the names of the parties.
    pub fn new(endpoints: Vec<String>, set_up: Option<SetUp>, occupancy: Occupancy) -> Self {
        Self { endpoints, addresses: BTreeMap::new(), flows: BTreeMap::new(), set_up, occupancy }
    }

    /// Records that `address` belongs to the party with the index `endpoint`.
    pub fn name(&mut self, address: SocketAddr, endpoint: usize) {
        self.addresses.insert(address, endpoint);
    }

    /// Returns the number of calls whose ACK reached the answerer in time, or `None` if calls are
    /// not tracked up to the ACK.
    pub fn good(&self) -> Option<u64> {
        self.set_up.as_ref().map(|set_up| set_up.good)
    }

    /// Returns the histogram of open transactions (see [`Occupancy`]).
    pub fn occupancy(&self) -> &[u64] {
        self.occupancy.counts()
    }

    /// Returns the numbers of messages by kind, sender and receiver.
    pub fn flows(&self) -> Vec<MessageCount> {
        let flow = |(&(from, to, kind), counted): (&(usize, usize, Kind), &Counted)| MessageCount {
            from: self.endpoints[from].clone(),
            to: self.endpoints[to].clone(),
            message: kind.to_string(),
            sent: counted.sent,
            lost: counted.lost,
        };
        self.flows.iter().map(flow).collect()
    }

    /// Returns the counts of one kind of message between the two ends of `flow`. `flow` is given
    /// from the side of the sender.
    fn counted(&mut self, flow: Flow, kind: Kind) -> Option<&mut Counted> {
        let from = *self.addresses.get(&flow.local)?;
        let to = *self.addresses.get(&flow.remote)?;
        Some(self.flows.entry((from, to, kind)).or_default())
    }
}

impl Tap for Traffic {
    fn sent(&mut self, now: Timestamp, _: NodeId, flow: Flow, bytes: &[u8]) {
        let scan = scan(bytes).ok();
        if let (Some(set_up), Some(scan)) = (&mut self.set_up, &scan)
            && Kind::of(Some(scan)) == Kind::INVITE
            && self.addresses.get(&flow.local) == Some(&set_up.callers)
        {
            set_up.begins(now, scan.call_id);
        }
        if let (Some(scan), Some(&from), Some(&to)) =
            (&scan, self.addresses.get(&flow.local), self.addresses.get(&flow.remote))
        {
            self.occupancy.sent(now, from, to, scan);
        }
        if let Some(counted) = self.counted(flow, Kind::of(scan.as_ref())) {
            counted.sent += 1;
        }
    }

    fn delivered(&mut self, now: Timestamp, _: NodeId, flow: Flow, bytes: &[u8]) {
        let Some(set_up) = &mut self.set_up else { return };
        if self.addresses.get(&flow.local) != Some(&set_up.answerers) {
            return;
        }
        // Answerers reject no INVITE here, so each ACK to an answerer belongs to a 200.
        if let Ok(scan) = scan(bytes)
            && Kind::of(Some(&scan)) == Kind::ACK
        {
            set_up.is_set_up(now, scan.call_id);
        }
    }

    fn lost(&mut self, _: Timestamp, _: Loss, flow: Flow, bytes: &[u8]) {
        let kind = Kind::of(scan(bytes).ok().as_ref());
        if let Some(counted) = self.counted(flow, kind) {
            counted.lost += 1;
        }
    }
}

impl Kind {
    const INVITE: Self = Self { status: 0, method: Method::Invite.name() };
    const ACK: Self = Self { status: 0, method: Method::Ack.name() };

    fn of(scan: Option<&Scan<'_>>) -> Self {
        let Some(scan) = scan else { return Self { status: 0, method: "" } };
        match scan.start {
            ScanStart::Request { method, .. } => Self { status: 0, method: method.name() },
            ScanStart::Response { status } => Self { status, method: scan.cseq_method.name() },
        }
    }
}

/// Formats the kind of a message, such as `INVITE` or `180 INVITE`. A message without a
/// known method is `other`.
impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.status, self.method) {
            (0, "") => f.write_str("other"),
            (0, method) => f.write_str(method),
            (status, method) => write!(f, "{status} {method}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    const AT: [&str; 3] = ["10.0.2.1:5060", "10.0.0.1:5060", "10.0.1.1:5060"];

    /// Returns a counter in which calls from 10 s to 20 s count if they are set up within 10 s.
    fn traffic() -> Traffic {
        let s = |s: u64| Timestamp::ZERO + Duration::from_secs(s);
        let [deadline, repeats] = [10, 32].map(Duration::from_secs);
        let set_up = SetUp::new(0, 2, Limits { from: s(10), to: s(20), deadline, repeats });
        let names = ["callers", "re", "answerers"].map(str::to_owned).to_vec();
        let nobody = Occupancy::new([], s(0)..s(0));
        let mut traffic = Traffic::new(names, Some(set_up), nobody);
        for (endpoint, address) in AT.into_iter().enumerate() {
            traffic.name(address.parse().unwrap(), endpoint);
        }
        traffic
    }

    fn flow(from: usize, to: usize) -> Flow {
        Flow::udp(AT[from].parse().unwrap(), AT[to].parse().unwrap())
    }

    #[test]
    fn messages_are_counted_by_kind_and_pair() {
        let mut traffic = traffic();
        let ring = message("SIP/2.0 180 Ringing", "a", "INVITE");
        let (now, node) = (Timestamp::ZERO, NodeId::new(0));
        traffic.sent(now, node, flow(2, 1), &ring);
        traffic.sent(now, node, flow(2, 1), &ring);
        traffic.lost(now, Loss::Link, flow(2, 1), &ring);
        traffic.sent(now, node, flow(0, 1), b"\r\n\r\n");
        let shown = |flow: &MessageCount| {
            format!("{} {} {} {}/{}", flow.from, flow.to, flow.message, flow.sent, flow.lost)
        };
        let flows: Vec<_> = traffic.flows().iter().map(shown).collect();
        assert_eq!(flows, ["callers re other 1/0", "answerers re 180 INVITE 2/1"]);
    }

    #[test]
    fn a_call_is_set_up_by_its_ack_within_the_deadline_of_its_first_invite() {
        let mut traffic = traffic();
        let node = NodeId::new(0);
        let mut at = |s: u64, acked: bool, call_id: &str| {
            let now = Timestamp::ZERO + Duration::from_secs(s);
            if acked {
                traffic.delivered(
                    now,
                    node,
                    flow(2, 1),
                    &message("ACK sip:b SIP/2.0", call_id, "ACK"),
                );
            } else {
                let invite = message("INVITE sip:b SIP/2.0", call_id, "INVITE");
                traffic.sent(now, node, flow(0, 1), &invite);
                // The INVITE that the server forwards does not start another call.
                traffic.sent(now, node, flow(1, 2), &invite);
            }
            traffic.good().unwrap()
        };
        at(9, false, "early");
        at(11, false, "early");
        assert_eq!(at(12, true, "early"), 0, "it began in the warm-up");
        at(10, false, "a");
        at(15, false, "a");
        at(15, false, "b");
        assert_eq!(at(20, true, "a"), 1);
        assert_eq!(at(20, true, "a"), 1, "once");
        assert_eq!(at(26, true, "b"), 1, "too late");
        at(21, false, "after");
        assert_eq!(at(22, true, "after"), 1, "after the measured time");
    }
}
