//! The client role of RFC 7339: the restrictions that next hops have asked for, and the requests
//! that may be sent to them.
//!
//! All shards share the restrictions, because a server restricts this proxy as a whole. A feedback
//! value is read only from a response to a request of ours that comes from the address of a back
//! end. Our branch proves that the request is ours. But a back end that does not know RFC 7339
//! passes on parameters that a server behind it has written into our Via (§11: "If the attacker can
//! make the recipient believe that the overload status was created by its direct downstream
//! neighbor (and not by the attacker further downstream), the recipient stops sending traffic to
//! the victim."). So by default a pool obeys only back ends whose answer to a probe contained a
//! feedback value, because no other element receives a probe.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use hashbrown::HashMap;
use tidegate_control::feedback::{
    Algorithms, Category, Feedback, Restriction, RestrictionCounts, RestrictionSettings,
    RestrictionStatus, SendVerdict,
};
use tidegate_sip::OverloadControl;
use tidegate_world::{Seed, Timestamp};

use super::wire::{self, OFFER_MAX, OverloadOffer};
use crate::network::canonical;

/// Maximum number of next hops with a restriction. The feedback of further next hops is ignored and
/// counted.
const NEXT_HOPS_MAX: usize = 16_384;

/// The condition under which a pool obeys the feedback of its back ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obedience {
    /// The pool obeys no back end: feedback is ignored.
    Never,
    /// The pool obeys a back end as soon as the answer to a probe has shown that the back end
    /// itself gives feedback.
    #[default]
    Proven,
    /// The pool obeys every back end from the first response on. All requests to the pool offer
    /// overload control.
    Always,
}

/// The permission to send a request to the next hop at `address`, with the overload control that
/// the request offers. One look-up in the table decides on both, because each look-up takes a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    pub(crate) address: SocketAddr,
    pub(crate) offer: OverloadOffer,
}

/// The restrictions of all next hops. Clones share the same table.
#[derive(Clone)]
pub struct NextHops(Arc<Shared>);

struct Shared {
    settings: RestrictionSettings,
    seed: Seed,
    /// The parameters that offer overload control.
    offer: Box<str>,
    /// True if any next hop gives feedback. Otherwise requests need not take the lock.
    is_any: AtomicBool,
    /// True once a next hop has asked for the number of calls a second that we would send without
    /// restriction. Before that, an offer under [`Obedience::Always`] needs no lock.
    is_load_wanted: AtomicBool,
    /// Number of feedback values that were ignored because the table was full.
    overflowed: AtomicU64,
    restrictions: Mutex<HashMap<SocketAddr, Restriction>>,
    /// The number of times that the lock was taken.
    #[cfg(test)]
    locked: AtomicU64,
}

/// A next hop that gives feedback, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHopView {
    /// The address of the next hop.
    pub address: SocketAddr,
    /// The restriction that the next hop has set and that is in force.
    pub status: RestrictionStatus,
    /// Counts since the first feedback of the next hop.
    pub counts: RestrictionCounts,
}

impl NextHops {
    /// Creates an empty table. Requests to next hops offer the algorithms in `offered`.
    pub fn new(offered: Algorithms, seed: Seed) -> Self {
        Self(Arc::new(Shared {
            settings: RestrictionSettings { offered, ..RestrictionSettings::default() },
            seed,
            offer: wire::offer_of(offered),
            is_any: AtomicBool::new(false),
            is_load_wanted: AtomicBool::new(false),
            overflowed: AtomicU64::new(0),
            restrictions: Mutex::default(),
            #[cfg(test)]
            locked: AtomicU64::new(0),
        }))
    }

    /// Returns the next hops that give feedback, in the order of their addresses.
    pub fn views(&self, now: Timestamp) -> Vec<NextHopView> {
        let restrictions = self.lock();
        let mut views: Vec<_> = restrictions
            .iter()
            .map(|(&address, restriction)| NextHopView {
                address,
                status: restriction.status(now),
                counts: *restriction.counts(),
            })
            .collect();
        views.sort_unstable_by_key(|view| view.address);
        views
    }

    /// Returns the number of feedback values that were ignored because the table was full.
    pub fn overflowed(&self) -> u64 {
        self.0.overflowed.load(Ordering::Relaxed)
    }

    /// Returns the overload control that a request to `address` offers.
    ///
    /// RFC 7339 §4.1 and §4.2 ask for the parameters in "every SIP request". This is what
    /// [`Obedience::Always`] does. [`Obedience::Proven`] waits until a probe has shown that the
    /// next hop gives feedback.
    ///
    /// RFC 7339 §4.1: "There MUST NOT be a value associated with the parameter (the value will be
    /// added by the server)."
    ///
    /// RFC 7339 §4.2: "Furthermore, the client MUST continue to include all the supported
    /// algorithms in subsequent requests; the server MUST respond with the agreed-to algorithm
    /// until the algorithm is changed by the server."
    #[inline]
    pub(crate) fn offer_to(
        &self,
        now: Timestamp,
        obedience: Obedience,
        address: SocketAddr,
    ) -> OverloadOffer {
        let depends = match obedience {
            Obedience::Never => false,
            Obedience::Proven => self.is_any(),
            Obedience::Always => self.is_any() && self.0.is_load_wanted.load(Ordering::Relaxed),
        };
        if depends {
            offer_under(now, obedience, self.lock().get(&canonical(address)))
        } else {
            offer_under(now, obedience, None)
        }
    }

    /// Returns the parameters of an offer as the text that ends our Via.
    #[inline]
    pub(crate) fn offer_text(&self, offer: OverloadOffer) -> ArrayVec<u8, OFFER_MAX> {
        offer.text(&self.0.offer)
    }

    /// Decides whether a request may be sent to `address`, and counts the request. Returns `None`
    /// if the restriction of the next hop does not admit the request.
    ///
    /// RFC 7339 §5: "If overload controls are currently active (and the "oc-validity" period has
    /// not yet expired), the client applies the relevant algorithm to determine whether or not to
    /// send the SIP request to the server."
    #[inline]
    pub(crate) fn admit(
        &self,
        now: Timestamp,
        obedience: Obedience,
        address: SocketAddr,
        category: Category,
    ) -> Option<Admission> {
        // A pool that never obeys ignores the restriction, even if another pool obeys a server at
        // the same address.
        if !self.is_any() || obedience == Obedience::Never {
            return Some(Admission { address, offer: offer_under(now, obedience, None) });
        }
        let mut restrictions = self.lock();
        let mut restriction = restrictions.get_mut(&canonical(address));
        let is_admitted = restriction
            .as_mut()
            .is_none_or(|restriction| restriction.on_request(now, category) == SendVerdict::Send);
        let offer = offer_under(now, obedience, restriction.as_deref());
        is_admitted.then_some(Admission { address, offer })
    }

    /// Counts a request that this proxy itself sends to `address` and that is never held back: an
    /// ACK or a CANCEL of a client transaction.
    ///
    /// RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire
    /// stream of SIP requests, even though throttling may only affect a particular subset of the
    /// requests".
    pub(crate) fn on_hop_by_hop(&self, now: Timestamp, address: SocketAddr) {
        if !self.is_any() {
            return;
        }
        let mut restrictions = self.lock();
        if let Some(restriction) = restrictions.get_mut(&canonical(address)) {
            restriction.on_request(now, Category::Required);
        }
    }

    /// Returns whether the last feedback of the next hop at `address` showed that it has room. Only
    /// such a next hop may get a request that Tidegate holds back from another next hop.
    ///
    /// RFC 7339 §5.10: "It needs to ensure, however, that this destination is not in overload and
    /// is capable of processing the extra load."
    pub(crate) fn is_known_free(&self, now: Timestamp, address: SocketAddr) -> bool {
        let restrictions = self.lock();
        restrictions.get(&canonical(address)).is_some_and(|r| r.is_known_free(now))
    }

    /// Returns whether a next hop at `address` is known to be overloaded.
    pub(crate) fn is_restricted(&self, now: Timestamp, address: Option<SocketAddr>) -> bool {
        let Some(address) = address.filter(|_| self.is_any()) else { return false };
        let restrictions = self.lock();
        restrictions.get(&canonical(address)).is_some_and(|r| r.is_restricting(now))
    }

    /// Reads the overload control parameters that a back end has written into our Via. `obedience`
    /// is the strongest obedience among the pools of the back end. `own` parses the parameters, and
    /// is called only if they are needed.
    #[inline]
    pub(crate) fn on_response<'a>(
        &self,
        now: Timestamp,
        obedience: Obedience,
        address: SocketAddr,
        own: impl FnOnce() -> Option<OverloadControl<'a>>,
    ) {
        let may_read = match obedience {
            Obedience::Never => false,
            Obedience::Always => true,
            Obedience::Proven => self.is_any(),
        };
        if may_read
            && let Some(own) = own()
            && let Some(feedback) = wire::feedback(&own)
        {
            let wants_load = wire::wants_load(&own);
            self.learn(now, address, Some(feedback), wants_load, obedience == Obedience::Always);
        }
    }

    /// Reads the overload control parameters in the answer to a probe. They show whether the next
    /// hop gives feedback. `obedience` is the strongest obedience among the pools of the next hop.
    /// If the answer contains no value under [`Obedience::Proven`], the restriction of the next hop
    /// ends. A value without a sequence number, as in an example of RFC 7339 §6, shows that the
    /// next hop gives feedback, but restricts nothing. If no pool obeys the next hop, the probe
    /// offered no overload control, so its answer is ignored.
    pub(crate) fn on_probe_answered(
        &self,
        now: Timestamp,
        obedience: Obedience,
        address: SocketAddr,
        own: Option<OverloadControl<'_>>,
    ) {
        match own.filter(wire::has_value) {
            Some(own) if obedience != Obedience::Never => {
                self.learn(now, address, wire::feedback(&own), wire::wants_load(&own), true);
            }
            _ if obedience == Obedience::Proven && self.is_any() => {
                let mut restrictions = self.lock();
                restrictions.remove(&canonical(address));
                self.0.is_any.store(!restrictions.is_empty(), Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Forgets all next hops except those for which `stays` is true.
    pub(crate) fn retain(&self, stays: impl Fn(SocketAddr) -> bool) {
        let mut restrictions = self.lock();
        restrictions.retain(|&address, _| stays(address));
        self.0.is_any.store(!restrictions.is_empty(), Ordering::Relaxed);
    }

    /// Applies a feedback value of the next hop at `address`, or only records that the next hop
    /// gives feedback if the value cannot be used. The first value of a next hop is ignored unless
    /// `may_begin` is true.
    fn learn(
        &self,
        now: Timestamp,
        address: SocketAddr,
        feedback: Option<Feedback>,
        wants_load: bool,
        may_begin: bool,
    ) {
        let Shared { settings, seed, is_any, is_load_wanted, overflowed, .. } = &*self.0;
        // Nothing was offered, so there is nothing to obey.
        if settings.offered.is_empty() {
            return;
        }
        let address = canonical(address);
        let mut restrictions = self.lock();
        if !restrictions.contains_key(&address) {
            if !may_begin {
                return;
            }
            if restrictions.len() >= NEXT_HOPS_MAX {
                overflowed.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let element = restrictions.len() as u32;
            restrictions.insert(address, Restriction::new(settings, *seed, element));
            is_any.store(true, Ordering::Relaxed);
        }
        if let Some(restriction) = restrictions.get_mut(&address) {
            if let Some(feedback) = feedback {
                restriction.on_feedback(now, feedback);
            }
            restriction.on_load_wanted(wants_load);
            if wants_load {
                is_load_wanted.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether any next hop gives feedback.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.0.is_any.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Restriction>> {
        #[cfg(test)]
        self.0.locked.fetch_add(1, Ordering::Relaxed);
        self.0.restrictions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the overload control that a request to a next hop with this restriction offers.
fn offer_under(
    now: Timestamp,
    obedience: Obedience,
    restriction: Option<&Restriction>,
) -> OverloadOffer {
    match (obedience, restriction) {
        (Obedience::Never, _) | (Obedience::Proven, None) => OverloadOffer::None,
        (Obedience::Always, None) => OverloadOffer::Algorithms,
        (_, Some(restriction)) => OverloadOffer::with(restriction.announced_cps(now)),
    }
}

#[cfg(test)]
#[path = "next_hops_tests.rs"]
mod tests;
