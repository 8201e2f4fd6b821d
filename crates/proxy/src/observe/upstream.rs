//! The upstream peers that take part in overload feedback, for operators.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_control::feedback::PeerView;

/// An upstream peer that takes part in overload feedback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpstreamView {
    /// The address of the peer.
    pub address: SocketAddr,
    /// The state of the peer: its share, and the feedback value that we last sent to it.
    pub peer: PeerView,
}

/// The upstream peers of a shard as last published, for other threads.
#[derive(Debug, Default)]
pub struct UpstreamViews {
    views: Mutex<Vec<UpstreamView>>,
    /// True if the published list is not empty.
    is_any: AtomicBool,
}

impl UpstreamViews {
    /// Returns the peers in the order of their addresses.
    pub fn get(&self) -> Vec<UpstreamView> {
        self.lock().clone()
    }

    /// Publishes the peers if there are any (`is_any`), or if there were any at the previous
    /// publication.
    pub(crate) fn publish(&self, is_any: bool, views: impl FnOnce() -> Vec<UpstreamView>) {
        if self.is_any.swap(is_any, Ordering::Relaxed) || is_any {
            *self.lock() = views();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UpstreamView>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
