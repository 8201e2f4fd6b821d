//! Back ends that operators take out of service for a while, and the orders by which they do.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_server::config::order::duty_text;
use tidegate_world::Timestamp;

use super::configuration::{name_of, text_without};
use super::world::World;

/// One of those behind a proxy gets no new calls for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absence {
    /// The proxy that is told so.
    pub proxy: usize,
    /// Which of those behind it.
    pub behind: usize,
    /// How it is kept from them.
    pub by: Means,
    /// When it begins.
    pub begins_ms: u64,
    /// How long it lasts.
    pub lasts_ms: u64,
}

/// How a back end is kept from new calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// It is drained.
    Drain,
    /// It is put into maintenance.
    Disable,
    /// It is taken out of the configuration; the last one that is left there stays.
    Remove,
}

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
