//! The sending half of a shard.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{Cause, Connect, ConnectionId, Failure, Flow, Timestamp, Transmit};

use crate::connections::Connections;
use crate::machine::Outlet;
use crate::{Counters, Limits, Listener, Outbox};

/// Maximum number of failed sends that wait to be reported to the core.
const FAILURES_MAX: usize = 256;

/// The sending half of a shard: the queued datagrams, the failures to report to the core, and the
/// connections, which also receive.
pub struct Dispatch {
    listeners: Rc<[Listener]>,
    outbox: Outbox,
    failures: VecDeque<Failure>,
    counters: Arc<Counters>,
    wait: Duration,
    saw_report: bool,
    /// The connections of the shard, or `None` if it has none.
    pub(crate) connections: Option<Box<Connections>>,
}

impl Dispatch {
    /// Creates a sender that uses the ordinary sockets of `listeners`.
    pub(crate) fn new(listeners: Rc<[Listener]>, counters: Arc<Counters>, limits: &Limits) -> Self {
        let outbox = Outbox::new(limits.gso, limits.padding);
        let failures = VecDeque::with_capacity(FAILURES_MAX);
        let wait = limits.send_wait;
        Self { listeners, outbox, failures, counters, wait, saw_report: false, connections: None }
    }

    /// Queues a datagram for the next flush, on the listener that has the local address of its
    /// flow.
    #[inline]
    fn post_datagram(&mut self, transmit: Transmit) {
        let Transmit { flow, bytes, batching, .. } = transmit;
        if flow.remote.port() == 0 {
            return self.refuse(flow, "nothing can be sent to port 0");
        }
        let home = |(i, l): (usize, &Listener)| Some((i, l.sends_from(flow.local)?));
        // A listener with exactly this address takes precedence over a wildcard that covers it.
        let exact = self.listeners.iter().position(|l| l.local() == flow.local);
        let found = match exact {
            Some(i) => Some((i, None)),
            None => self.listeners.iter().enumerate().find_map(home),
        };
        let Some((socket, source)) = found else {
            self.counters.send_homeless.add(1);
            self.counters
                .unsent
                .record(flow.remote, "no listener has the source address of the datagram");
            self.fail(Failure::new(flow, Cause::Other, b""));
            return;
        };
        if self.outbox.is_full() {
            self.flush_datagrams();
        }
        self.outbox.push(socket, source, flow.remote, bytes, batching);
    }

    /// Counts and reports a datagram that the operating system would refuse to send.
    #[cold]
    fn refuse(&mut self, flow: Flow, why: &'static str) {
        self.counters.send_refused.add(1);
        self.counters.unsent.record(flow.remote, why);
        self.fail(Failure::new(flow, Cause::Other, b""));
    }

    /// Sends all queued datagrams, and the bytes that wait on connections.
    pub(crate) fn flush(&mut self, now: impl FnOnce() -> Timestamp) {
        self.flush_datagrams();
        if let Some(connections) = &mut self.connections {
            connections.flush(now());
        }
    }

    fn flush_datagrams(&mut self) {
        let Self { listeners, outbox, failures, counters, wait, saw_report, .. } = self;
        if outbox.is_empty() {
            return;
        }
        let flushed = outbox.flush(
            |i| listeners[i].ordinary(),
            *wait,
            |i, source, remote, cause| {
                let (counter, why) = match cause {
                    Cause::TooLarge => {
                        (&counters.send_too_large, "the datagram is larger than the path MTU")
                    }
                    Cause::Unreachable => {
                        (&counters.send_unreachable, "the network is unreachable")
                    }
                    _ => (&counters.send_refused, "the system refused to send the datagram"),
                };
                counter.add(1);
                counters.unsent.record(remote, why);
                let local = listeners[i].local();
                let local = source.map_or(local, |ip| SocketAddr::new(ip, local.port()));
                // The failure quotes no bytes, because it comes from the send call and not from an
                // ICMP report.
                keep(failures, counters, Failure::new(Flow::udp(local, remote), cause, b""));
            },
        );
        *saw_report |= flushed.saw_report;
        counters.sent.add(flushed.sent);
        counters.sent_gso_batches.add(flushed.gso_batches);
        counters.sent_in_gso_batches.add(flushed.in_gso_batches);
        counters.sent_padding.add(flushed.padding);
        counters.send_full.add(flushed.full);
    }

    /// Keeps a failure until it is reported to the core.
    pub(crate) fn fail(&mut self, failure: Failure) {
        keep(&mut self.failures, &self.counters, failure);
    }

    /// Returns the number of failures to report to the core.
    pub(crate) fn failures(&self) -> usize {
        self.failures.len()
    }

    /// Takes the oldest failure that waits for the core.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        self.failures.pop_front()
    }

    /// Returns whether a send call has returned an ICMP report since the last call of this
    /// function.
    pub(crate) fn take_report_sign(&mut self) -> bool {
        std::mem::take(&mut self.saw_report)
    }
}

impl Outlet for Dispatch {
    #[inline]
    fn post(&mut self, transmit: Transmit) {
        match &mut self.connections {
            Some(connections) if transmit.flow.transport.is_reliable() => {
                connections.post(transmit);
            }
            _ => self.post_datagram(transmit),
        }
    }

    fn connect(&mut self, connect: Connect) {
        let connections = self.connections.as_mut();
        connections.expect("a core without connections opens none").connect(connect);
    }

    fn close(&mut self, id: ConnectionId) {
        let connections = self.connections.as_mut();
        connections.expect("a core without connections closes none").close(id);
    }
}

fn keep(failures: &mut VecDeque<Failure>, counters: &Counters, failure: Failure) {
    if failures.len() < FAILURES_MAX {
        failures.push_back(failure);
    } else {
        counters.failures_lost.add(1);
    }
}
