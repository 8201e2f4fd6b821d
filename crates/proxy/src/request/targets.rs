//! Plans a request, and finds the targets that its plan needs.

use tidegate_world::Received;

use super::Stages;
use crate::lookup::{LookupRequester, NoTargets, reach};
use crate::message::admitted::Admitted;
use crate::message::request::Request;
use crate::parked::RequestSource;
use crate::rejection::{Halt, Rejection};
use crate::resolution::{self, Located};
use crate::routing::plan::{Need, Plan, Planned, plan};
use crate::step::Step;
use crate::target::Target;

/// Plans the route of a request with the names and users that are resolved already. If the plan
/// needs another name or user, returns [`Halt::Park`], or a rejection if the request
/// cannot wait.
pub(super) fn plan_resolved(
    step: &mut Step<'_>,
    stages: &mut Stages<'_>,
    received: &Received,
    request: &mut Request<'_>,
    admitted: &Admitted,
) -> Result<Plan, Halt> {
    let Step { now, snapshot, .. } = *step;
    let need = match plan(now, snapshot, step.routing, received, request)? {
        Planned::Plan(plan) => return Ok(plan),
        Planned::Pending(need) => need,
    };
    let source = RequestSource::of(snapshot, &received.flow);
    let may_wait = stages.parked.has_room(source);
    let requester = LookupRequester { is_stranger: source.is_stranger, may_wait };
    if let Err(why) = find_targets(step, stages, received, request, &need, requester) {
        return Err(match why {
            NoTargets::Pending(_, late) if admitted.is_overdue => late.into(),
            NoTargets::Pending(ticket, _) if stages.parked.may_wait(source, ticket) => {
                Halt::Park(ticket)
            }
            NoTargets::Pending(..) => Rejection::PARKED_FULL.into(),
            NoTargets::Rejected(rejection) => rejection.into(),
        });
    }
    match plan(now, snapshot, step.routing, received, request)? {
        Planned::Plan(plan) => Ok(plan),
        Planned::Pending(_) => Err(Rejection::NO_HOST.into()),
    }
}

/// Finds the targets that the plan for a request needs. `requester` describes its sender.
fn find_targets(
    step: &Step<'_>,
    stages: &mut Stages<'_>,
    received: &Received,
    request: &mut Request<'_>,
    need: &Need<'_>,
    requester: LookupRequester,
) -> Result<(), NoTargets> {
    let Step { now, snapshot, .. } = *step;
    let Stages { resolution, lookups, .. } = stages;
    let addresses = &snapshot.addresses;
    // RFC 3261 §16.6: "As described in [4], the proxy MUST attempt to deliver the message to the
    // first tuple in that set, and proceed through the set in order until the delivery attempt
    // succeeds." A target that no listener reaches is left out, so the next one is tried.
    let may_be = |at: &resolution::Target| addresses.may_be_target(&Target::from(*at));
    // RFC 3263 §4.4: a CANCEL and an ACK find the target of their INVITE, which has the same
    // identity.
    let identity = request.identity;
    match need {
        Need::Host(wanted) => match resolution.locate(now, wanted, identity, may_be) {
            Located::Targets(targets) => {
                request.targets = targets.into_iter().map(Target::from).collect();
                Ok(())
            }
            Located::Pending(ticket) => Err(NoTargets::Pending(ticket, Rejection::UNRESOLVED)),
            Located::NotFound => Err(NoTargets::Rejected(Rejection::NO_HOST)),
            Located::Unavailable => Err(NoTargets::Rejected(Rejection::UNRESOLVED)),
        },
        Need::User(aor) => {
            // A contact that leads back here is unusable. The user may have another one.
            let local = received.flow.local;
            let may_be =
                |at: &resolution::Target| may_be(at) && !addresses.is_own_socket(at.address, local);
            let (targets, contacts) =
                reach(now, lookups, resolution, aor, requester, identity, may_be)?;
            request.retarget(Some(&contacts), 0);
            request.targets = targets;
            request.contacts = Some(Box::new(contacts));
            Ok(())
        }
    }
}
