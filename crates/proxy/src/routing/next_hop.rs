//! The next hop of a request: the result of committing a routing plan.

use std::net::SocketAddr;

use tidegate_balance::CallLease;
use tidegate_control::Tier;
use tidegate_world::Timestamp;

use crate::dialog::{CallRef, Evidence};
use crate::pushback::next_hops::Admission;
use crate::pushback::wire::OverloadOffer;
use crate::rejection::Rejection;
use crate::rewrite::{Edits, ForwardPlan};
use crate::routing::tier::tier;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::target::Target;
use crate::transport::addresses::Origin;

/// The target to which a request is forwarded, with the call, tier and leases of the request.
pub(crate) struct NextHop {
    pub(crate) target: Target,
    /// The back end to which the request goes, or from which it comes. `None` for requests from one
    /// back end directly to another, to a removed back end, and between addresses outside the
    /// pools.
    pub(crate) backend_ref: Option<BackendRef>,
    pub(crate) call: CallRef,
    /// True if the request goes to the back end in `backend_ref` or to a user, false if it comes
    /// from one of them.
    pub(crate) toward_backend: bool,
    /// True if the target is a contact of a user, and the sender is not a back end.
    pub(crate) is_user: bool,
    /// True if the party to which the request goes has named the target address, and has not shown
    /// that the address is its own. This applies to requests from the called phone of a user to the
    /// caller, and to requests from a back end to an address other than the one from which the
    /// other party sends.
    pub(crate) is_claimed: bool,
    /// The number of leading Route values that name this proxy and are removed.
    pub(crate) own_routes: usize,
    /// True if the target is a strict router.
    pub(crate) is_strict: bool,
    /// The tier of service: with or without transactions.
    pub(crate) tier: Tier,
    /// The pool in which the request may fork or fail over, and the key by which the policy of the
    /// pool selects a back end. `None` if the request does neither within a pool.
    pub(crate) choice: Option<(u16, u64)>,
    /// The targets to try after `target`, in order: further addresses of the host name, further
    /// contacts of the user in the request, or the Contact of a party whose connection may have
    /// ended.
    pub(crate) others: Vec<Target>,
    /// The lease that counts the call at `backend_ref`, if the request begins the call.
    pub(crate) lease: Option<CallLease>,
    /// The admission by the overload restriction of the back end, or `None` if the restriction was
    /// not checked.
    pub(crate) admission: Option<Admission>,
    /// The index of the listener toward the target, if a Route value of the request names it, or if
    /// it is stored with the flow of the target.
    pub(crate) egress: Option<u8>,
    /// Evidence in the request that the request belongs to its call.
    pub(crate) evidence: Evidence,
    pub(crate) origin: Origin,
}

impl NextHop {
    /// Returns the hop for a request that goes to `target` and belongs to no call.
    #[inline(always)]
    pub(crate) fn to(target: Target, tier: Tier) -> Self {
        Self {
            target,
            backend_ref: None,
            call: CallRef::NONE,
            toward_backend: false,
            is_user: false,
            is_claimed: false,
            own_routes: 0,
            is_strict: false,
            tier,
            choice: None,
            others: Vec::new(),
            lease: None,
            admission: None,
            egress: None,
            evidence: Evidence::default(),
            origin: Origin::Stranger,
        }
    }

    /// Replaces the target address by another address of the same back end, if one is given.
    pub(crate) fn redirect(&mut self, address: Option<SocketAddr>) {
        if let Some(address) = address {
            self.target.address = address;
        }
    }

    /// Returns the overload control (RFC 7339) that the request offers to its next hop. Only
    /// requests to back ends offer overload control.
    pub(crate) fn offer(&self, now: Timestamp, snapshot: &Snapshot) -> OverloadOffer {
        let backend_ref = || self.backend_ref.filter(|_| self.toward_backend);
        match self.admission {
            Some(Admission { address, offer }) if address == self.target.address => offer,
            _ => backend_ref().map_or(OverloadOffer::None, |backend_ref| {
                snapshot.offer_to(now, backend_ref, self.target.address)
            }),
        }
    }

    /// Returns the [`ForwardPlan`] by which the request is written. `ingress` is the listener at
    /// which the request came in.
    pub(crate) fn forward_plan(
        &self,
        now: Timestamp,
        snapshot: &Snapshot,
        ingress: usize,
    ) -> Result<ForwardPlan, Rejection> {
        let egress = snapshot.egress(ingress, self.egress, &self.target)?;
        Ok(ForwardPlan {
            target: self.target,
            backend_ref: self.backend_ref,
            egress,
            recorded: egress,
            max_breadth: None,
            offer: self.offer(now, snapshot),
            edits: Edits {
                toward_backend: self.toward_backend,
                is_user: self.is_user,
                ingress: ingress as u8,
                own_routes: self.own_routes as u8,
                is_strict: self.is_strict,
                made: snapshot.minutes(now),
            },
        })
    }
}

/// Returns the hop to the back end of a call.
///
/// # Errors
/// Returns [`Rejection::NO_ADDRESS`] if the name of the back end has never been resolved. Selection
/// skips such a back end, but a call from one of its [`sources`](crate::PoolSettings::sources) is
/// assigned to it without selection.
pub(crate) fn toward(
    step: &Step<'_>,
    backend_ref: BackendRef,
    call: CallRef,
) -> Result<NextHop, Rejection> {
    let Step { snapshot, routing, .. } = step;
    let backend = snapshot.backend(backend_ref);
    let target = match backend.named() {
        None => backend.address(),
        Some(_) => {
            let entry = routing.calls.get(call).filter(|entry| entry.backend_ref == backend_ref);
            backend.address_at(
                entry.map_or_else(|| backend.generation(), |entry| entry.address_generation),
            )
        }
    };
    let address = target.ok_or(Rejection::NO_ADDRESS)?;
    let target = Target::new(snapshot.transport(backend_ref.pool), address);
    let tier = tier(snapshot, &routing.calls, backend_ref.pool, call);
    // `NextHop` is a large type, so the value is changed in place.
    let mut hop = NextHop::to(target, tier);
    (hop.backend_ref, hop.call, hop.toward_backend) = (Some(backend_ref), call, true);
    Ok(hop)
}
