//! The orders by which operators take back ends out of service and put them back.

use std::time::Duration;

use tidegate_server::config::order::duty_text;
use tidegate_world::Timestamp;

use super::absence::{Absence, Means};
use super::configuration::{name_of, text_without};
use super::world::World;

/// An order to a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) at: Timestamp,
    pub(super) proxy: usize,
    pub(super) text: String,
}

/// The orders of a world, in the order of time.
pub(super) fn orders(world: &World) -> Vec<Order> {
    let moments = world.absences.iter().flat_map(|absence| {
        let ends_ms = absence.begins_ms + absence.lasts_ms;
        [(absence.begins_ms, absence, true), (ends_ms, absence, false)]
    });
    let mut moments: Vec<_> = moments.collect();
    moments.sort_by_key(|(at_ms, ..)| *at_ms);
    let order = |&(at_ms, absence, begins): &(u64, &Absence, bool)| {
        let Absence { proxy, behind, by, .. } = *absence;
        let duty = |word| duty_text(&name_of(world, world.behind(proxy)[behind]), word);
        let text = match by {
            Means::Drain if begins => duty("drain"),
            Means::Disable if begins => duty("disable"),
            Means::Drain | Means::Disable => duty("enable"),
            Means::Remove => text_without(world, proxy, &removed(world, proxy, at_ms)),
        };
        Order { at: Timestamp::ZERO + Duration::from_millis(at_ms), proxy, text }
    };
    moments.iter().map(order).collect()
}

/// Who is taken out of a proxy's configuration at that time; never all.
fn removed(world: &World, proxy: usize, at_ms: u64) -> Vec<usize> {
    let is_out = |absence: &&Absence| {
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
