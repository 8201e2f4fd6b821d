//! A farm: a balancer in front of several servers (paper 003).

use std::time::Duration;

use serde::Serialize;
use tidegate_proxy::Mode;
use tidegate_world::{Purpose, Seed};

use crate::network::{Fault, Trouble};
use crate::topology::Topology;

/// A balancer with several servers, which may pause at random times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Farm {
    /// Number of servers, at least 1.
    pub nodes: usize,
    /// Relative speeds of the servers, each above 0, assigned in turn. An empty list means that all
    /// speeds are 1.
    pub speeds: Vec<f64>,
    /// Duration of each pause of a server, in ms, or 0 for no pauses.
    pub pause_ms: f64,
    /// Mean time from the end of a pause to the start of the next pause of the same server, in
    /// seconds. The times have an exponential distribution.
    pub pause_every_s: f64,
    /// Mode of the balancer and the servers: stateless, transaction or adaptive.
    #[serde(skip)]
    pub mode: Mode,
}

impl Farm {
    /// Returns the topology of the farm: its balancer and its servers.
    pub fn topology(&self) -> Topology {
        let speeds: Vec<f64> = match &*self.speeds {
            [] => vec![1.0; self.nodes],
            speeds => speeds.iter().copied().cycle().take(self.nodes).collect(),
        };
        Topology::farm(self.mode, &speeds)
    }

    /// Returns the pauses of all servers until `end`. The pauses of each server are drawn
    /// independently.
    pub fn pauses(&self, seed: Seed, end: Duration) -> Vec<Fault> {
        let lasts = Duration::from_secs_f64(self.pause_ms / 1e3);
        if lasts.is_zero() {
            return Vec::new();
        }
        let mut pauses = Vec::new();
        // The balancer has index 0.
        for node in 1..=self.nodes {
            let mut gaps = seed.stream(Purpose::Fault, node as u32);
            let mut at = Duration::ZERO;
            loop {
                at += Duration::from_secs_f64(gaps.exponential(self.pause_every_s));
                if at >= end {
                    break;
                }
                pauses.push(Fault { at, lasts, what: Trouble::Stall { node } });
                at += lasts;
            }
        }
        pauses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_pause_independently_and_as_often_as_configured() {
        let mode = Mode::Stateless;
        let farm = Farm { nodes: 3, speeds: vec![], pause_ms: 500.0, pause_every_s: 4.5, mode };
        let pauses = farm.pauses(Seed(1), Duration::from_secs(5000));
        for node in 1..=3 {
            let of = |fault: &&Fault| fault.what == Trouble::Stall { node };
            let mine: Vec<&Fault> = pauses.iter().filter(of).collect();
            // There are 1,000 pauses on average, one in 5 s. The standard deviation of the sum of
            // 1,000 gaps is 142 s, as long as 28 gaps. The tolerance is five times as large.
            assert!(mine.len().abs_diff(1000) < 142, "{}", mine.len());
            assert!(mine.windows(2).all(|pair| pair[0].end() <= pair[1].at), "one after the other");
        }
        assert_ne!(
            pauses[0].at,
            pauses.iter().find(|p| p.what == Trouble::Stall { node: 2 }).unwrap().at
        );
        let never = Farm { pause_ms: 0.0, ..farm };
        assert!(never.pauses(Seed(1), Duration::from_secs(5000)).is_empty());
    }

    #[test]
    fn speeds_apply_to_the_servers_in_turn() {
        let (pause_ms, pause_every_s, mode) = (0.0, 10.0, Mode::Stateless);
        let farm = Farm { nodes: 3, speeds: vec![1.0, 0.5], pause_ms, pause_every_s, mode };
        let speeds: Vec<f64> = farm.topology().nodes()[1..].iter().map(|node| node.speed).collect();
        assert_eq!(speeds, [1.0, 0.5, 1.0]);
    }
}
