//! `leases`: for each back end, a balancer counts exactly the work that it has sent to the back end
//! and that has not ended.
//!
//! The counts that a policy uses are leases in a call table that is built to be fast. The checker
//! compares these counts with a model that is built to be simple ([`model`]). The model is a map of
//! calls, each with a map of transactions. It is derived only from the packets that the balancer
//! gets and sends. Whenever the books are checked, three counts of the balancer for each back end
//! must equal the counts of the model: the calls, the work and the open transactions. This holds
//! through losses, copies, failovers, forks, and crashes of back ends. After a fault, different
//! nodes know different facts. The model uses only the facts that the balancer can know.
//!
//! This is asserted for balancers that are [declared](super::Checkers::balances): those that handle
//! each packet at once, so that all received packets are counted. It is not asserted
//!
//! - for a balancer that was stalled or drained since its last start, because its timers may be
//!   late or it rejects new work;
//! - for a balancer that drops what it rejects, because it ends a call without a packet if the call
//!   finds no room at another back end;
//! - for a short time after a timer has ended a call or a transaction, because a balancer fires its
//!   timers late by up to its slack;
//! - after the balancer has evicted ended calls to make room, because the model evicts no calls;
//! - while a call has more transactions or dialogs than a balancer distinguishes, for example after
//!   a fork that has set up a dialog with each of several back ends, if each dialog has its own
//!   BYE.
//!
//! After a crash, the balancer and the model start again. [`counts`](super::counts) asserts for all
//! balancers that nothing is left at the end.

mod model;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::Flow;

use super::Findings;
use super::books::{Book, ProxyBook};
use super::lives::Lives;
use super::seen::Seen;
use crate::node_id::NodeId;
use model::Model;

/// The checker's name.
pub const NAME: &str = "leases";

/// The parts of a balancer's configuration that determine its counts of calls and work.
#[derive(Clone, Debug)]
pub struct Balancer {
    /// The balancer's back ends, in the order in which it reports them.
    pub backends: Vec<SocketAddr>,
    /// True if the balancer forks each new request to all back ends.
    pub forks: bool,
    /// Time without a request after which an answered call counts as ended.
    pub idle_max: Duration,
    /// Maximum delay with which the balancer's timers fire.
    pub timer_slack: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    models: BTreeMap<NodeId, Model>,
}

impl Leases {
    pub(super) fn declare(&mut self, node: NodeId, balancer: Balancer) {
        self.models.insert(node, Model::new(balancer));
    }

    pub(super) fn on_sent(&mut self, seen: &Seen, flow: Flow) {
        if let Some(model) = self.models.get_mut(&seen.node) {
            model.on_sent(seen, flow.remote);
        }
    }

    pub(super) fn on_delivered(&mut self, seen: &Seen, flow: Flow) {
        if let Some(model) = self.models.get_mut(&seen.node) {
            model.on_delivered(seen, flow.remote);
        }
    }

    pub(super) fn crashed(&mut self, node: NodeId) {
        if let Some(model) = self.models.get_mut(&node) {
            model.forget();
        }
    }

    /// Compares the calls and the work that a balancer counts with the model.
    pub(super) fn look(&mut self, node: NodeId, book: &Book, lives: &Lives, found: &mut Findings) {
        let (Book::Proxy(book), Some(model)) = (book, self.models.get_mut(&node)) else { return };
        let ProxyBook { backends, open, evicted, .. } = book;
        if lives.is_disturbed(node) || *evicted > 0 {
            return;
        }
        let truth = model.held(found.now);
        if !truth.is_sure {
            return;
        }
        for (held, truth) in backends.iter().zip(&truth.backends) {
            let counted = (held.calls, held.work);
            if counted != *truth {
                let what = format!(
                    "(calls, work) counted on back end {} are {counted:?}, but should be {truth:?}",
                    held.name
                );
                found.report(NAME, Some(node), what);
            }
        }
        if *open != truth.open {
            let what = format!("{open} transactions are open, but {} should be", truth.open);
            found.report(NAME, Some(node), what);
        }
    }
}
