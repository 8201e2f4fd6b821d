//! Makes the commands by which operators take back ends out of service and put them back.

use std::time::Duration;

use tidegate_server::config::command::admin_state_text;
use tidegate_world::Timestamp;

use super::configuration::{name_of, text_without};
use super::out_of_service::{Means, OutOfService};
use super::world::World;

/// An operator's command to a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) at: Timestamp,
    pub(super) proxy: usize,
    pub(super) text: String,
}

/// Returns the operator commands of a world, in the order of time.
pub(super) fn commands(world: &World) -> Vec<Command> {
    let moments = world.absences.iter().flat_map(|absence| {
        let ends_ms = absence.begins_ms + absence.lasts_ms;
        [(absence.begins_ms, absence, true), (ends_ms, absence, false)]
    });
    let mut moments: Vec<_> = moments.collect();
    moments.sort_by_key(|(at_ms, ..)| *at_ms);
    let command = |&(at_ms, absence, begins): &(u64, &OutOfService, bool)| {
        let OutOfService { proxy, behind, by, .. } = *absence;
        let admin_state =
            |word| admin_state_text(&name_of(world, world.behind(proxy)[behind]), word);
        let text = match by {
            Means::Drain if begins => admin_state("drain"),
            Means::Disable if begins => admin_state("disable"),
            Means::Drain | Means::Disable => admin_state("enable"),
            Means::Remove => text_without(world, proxy, &removed(world, proxy, at_ms)),
        };
        Command { at: Timestamp::ZERO + Duration::from_millis(at_ms), proxy, text }
    };
    moments.iter().map(command).collect()
}

/// Returns the indices of the back ends that the configuration of `proxy` lacks at the time
/// `at_ms`. At least one back end always stays in the configuration.
fn removed(world: &World, proxy: usize, at_ms: u64) -> Vec<usize> {
    let is_out = |absence: &&OutOfService| {
        let lasts = absence.begins_ms..absence.begins_ms + absence.lasts_ms;
        absence.proxy == proxy && absence.by == Means::Remove && lasts.contains(&at_ms)
    };
    let mut removed: Vec<_> =
        world.absences.iter().filter(is_out).map(|absence| absence.behind).collect();
    removed.sort_unstable();
    removed.dedup();
    removed.truncate(world.behind(proxy).len() - 1);
    removed
}
