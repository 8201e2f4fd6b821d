//! Computes the cost of a call and of its rejection, the capacity, and the greatest possible
//! goodput, from the emulated costs of messages.

use std::time::Duration;

use tidegate_control::bound;
use tidegate_proxy::{Class, Disposal, Mode};
use tidegate_server::config::Emulate;

use crate::topology::Topology;

/// The messages of a call at a server without transactions that forwards its calls to answerers:
/// INVITE, 180, 200, ACK, BYE, 200.
pub const CALL: [Class; 6] =
    [Class::Invite, Class::Provisional, Class::Final, Class::Ack, Class::Bye, Class::Final];

/// Returns the costs of messages at a server in `mode`. If the server may keep transactions in this
/// mode, these are the costs with transactions.
fn charged(costs: &Emulate, mode: Mode) -> Emulate {
    let serve = costs.serve_stateless.filter(|_| mode == Mode::Stateless).unwrap_or(costs.serve);
    Emulate { serve, ..costs.clone() }
}

/// Returns the cost of a call that consists of `messages` (s in formulas).
pub fn call(costs: &Emulate, messages: &[Class]) -> Duration {
    let message =
        |class: &Class| costs.receive + costs.offer[*class as usize] + costs.serve[*class as usize];
    messages.iter().map(message).sum()
}

/// Returns the cost of shedding a call (r in formulas): the cost of its INVITE and, if the server
/// answers with 503, of the ACK. A caller that gets no 503 retransmits the INVITE. These
/// retransmissions are not counted, so that no goodput can exceed the [`bound`](Capacity::bound).
/// Shedding by the kernel (`kernel` and `auto`) costs nothing in the model.
pub fn rejection(costs: &Emulate, disposal: Disposal) -> Duration {
    let (invite, ack) = (Class::Invite as usize, Class::Ack as usize);
    let invite = costs.receive + costs.offer[invite] + costs.reject[invite];
    match disposal {
        Disposal::Reject => invite + costs.receive + costs.offer[ack],
        Disposal::Drop => invite,
        Disposal::Auto | Disposal::Kernel => Duration::ZERO,
    }
}

/// Sets the cost of the INVITE transaction to `ratio` times the cost of the BYE transaction. The
/// cost of a whole call does not change. No request gets a negative cost.
pub fn divide(costs: &mut Emulate, ratio: f64) {
    let stateless = costs.serve_stateless.map(|serve| Emulate { serve, ..costs.clone() });
    costs.serve = divided(costs, ratio).serve;
    costs.serve_stateless = stateless.map(|costs| divided(&costs, ratio).serve);
}

fn divided(costs: &Emulate, ratio: f64) -> Emulate {
    let whole = call(costs, &CALL);
    let (invite, bye) = (Class::Invite as usize, Class::Bye as usize);
    let mut costs = costs.clone();
    costs.serve[invite] = Duration::ZERO;
    costs.serve[bye] = Duration::ZERO;
    let others = call(&costs, &[Class::Bye, Class::Final]);
    costs.serve[bye] = whole.div_f64(1.0 + ratio).saturating_sub(others);
    costs.serve[invite] = whole.saturating_sub(call(&costs, &CALL));
    costs
}

/// The capacity of the servers under test: the offered load at which the first of these servers is
/// fully busy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// The capacity in calls/s offered to all servers together (C in formulas).
    pub cps: f64,
    /// Cost of a whole call at the server that becomes fully busy first (s in formulas).
    pub call: Duration,
    /// Number of messages of a call at the server that becomes fully busy first.
    pub messages: usize,
}

impl Capacity {
    /// Returns the capacity of `topology` if messages cost `costs`. If `trying` is true, callees
    /// send a 100 (Trying) before any other response.
    pub fn of(topology: &Topology, costs: &Emulate, trying: bool) -> Self {
        let flows = topology.flows();
        let nodes = topology.nodes().iter().enumerate();
        let one = |place: usize| {
            let messages = topology.messages(place, trying);
            let node = &topology.nodes()[place];
            let call = call(&charged(costs, node.mode), &messages);
            let core = node.speed * costs.quota.unwrap_or(1.0);
            let cps = core / (call.as_secs_f64() * flows[place]);
            Self { cps, call, messages: messages.len() }
        };
        let tested = nodes.filter(|(_, node)| node.under_test).map(|(place, _)| one(place));
        tested.min_by(|a, b| a.cps.total_cmp(&b.cps)).expect("a server is under test")
    }

    /// Returns the cost of shedding a call divided by the cost of a whole call.
    pub fn ratio(&self, costs: &Emulate, disposal: Disposal) -> f64 {
        rejection(costs, disposal).as_secs_f64() / self.call.as_secs_f64()
    }

    /// Returns the greatest possible goodput at an offered load of `load` times the capacity, as a
    /// part of the capacity.
    pub fn bound(&self, costs: &Emulate, disposal: Disposal, load: f64) -> f64 {
        bound::goodput(load, self.ratio(costs, disposal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Next, Node};

    fn costs() -> Emulate {
        let us = |us: u64| [Duration::from_micros(us); 16];
        let mut costs = Emulate {
            receive: Duration::from_micros(10),
            offer: us(90),
            serve: us(700),
            reject: us(50),
            ..Emulate::default()
        };
        costs.offer[Class::Invite as usize] = Duration::from_micros(140);
        costs
    }

    fn single() -> Topology {
        Topology::single(Mode::Stateless)
    }

    #[test]
    fn a_call_costs_all_its_messages_and_a_rejection_costs_two() {
        let us = Duration::from_micros;
        let capacity = |trying| Capacity::of(&single(), &costs(), trying);
        assert_eq!(capacity(false).call, us(6 * 800 + 50));
        assert_eq!((capacity(true).call, capacity(true).messages), (us(7 * 800 + 50), 7));
        assert_eq!(rejection(&costs(), Disposal::Reject), us(150 + 50 + 100));
        assert_eq!(rejection(&costs(), Disposal::Drop), us(150 + 50));
    }

    #[test]
    fn a_call_is_divided_into_its_transactions_and_costs_the_same() {
        let mut divided = costs();
        divide(&mut divided, 2.0);
        let of = |messages: &[Class]| call(&divided, messages);
        let whole = call(&costs(), &CALL);
        assert_eq!(of(&CALL), whole);
        let bye = of(&[Class::Bye, Class::Final]);
        assert!(whole.div_f64(3.0).abs_diff(bye) < Duration::from_nanos(2), "{bye:?}");
    }

    #[test]
    fn servers_of_unequal_speed_add_up() {
        let farm = Topology::farm(Mode::Stateless, &[1.0, 0.5]);
        let capacity = Capacity::of(&farm, &costs(), false);
        assert!((capacity.cps - 1.5e6 / 4850.0).abs() < 1e-9, "{capacity:?}");
    }

    #[test]
    fn a_quota_leaves_its_part_of_the_capacity_and_costs_stay_the_same() {
        let limited = Emulate { quota: Some(0.2), ..costs() };
        let [whole, part] = [costs(), limited].map(|c| Capacity::of(&single(), &c, false));
        assert!((part.cps * 5.0 - whole.cps).abs() < 1e-9, "{part:?}");
        assert_eq!(part.call, whole.call);
    }

    #[test]
    fn a_server_without_transactions_may_have_a_price_of_its_own() {
        let serve_stateless = Some([Duration::from_micros(400); 16]);
        let costs = Emulate { serve_stateless, ..costs() };
        let call = |mode| Capacity::of(&Topology::single(mode), &costs, false).call;
        let us = Duration::from_micros;
        assert_eq!(call(Mode::Stateless), us(6 * 500 + 50));
        assert_eq!(call(Mode::Transaction), us(6 * 800 + 50));
        assert_eq!(call(Mode::Adaptive), us(6 * 800 + 50), "as long as it has the processor");
    }

    #[test]
    fn the_bound_falls_by_what_rejections_cost() {
        let capacity = Capacity::of(&single(), &costs(), false);
        assert!((capacity.cps - 1e6 / 4850.0).abs() < 1e-9);
        let ratio = 300.0 / 4850.0;
        let expected = (1.0 - 2.0 * ratio) / (1.0 - ratio);
        let bound = |disposal| capacity.bound(&costs(), disposal, 2.0);
        assert!((bound(Disposal::Reject) - expected).abs() < 1e-12);
        assert!(bound(Disposal::Drop) > expected);
    }

    #[test]
    fn the_server_that_is_full_first_is_the_capacity() {
        let server = single().nodes()[0].clone();
        let node = |share, to: &[Next]| Node { share, to: to.to_vec(), ..server.clone() };
        let nodes = vec![node(3.0, &[Next::Answerers]), node(1.0, &[Next::Answerers])];
        let capacity = Capacity::of(&Topology::new(nodes).unwrap(), &costs(), false);
        assert!((capacity.cps * 0.75 - 1e6 / 4850.0).abs() < 1e-9);
    }
}
