//! What follows from the emulated costs of messages: the cost of a call and of its refusal,
//! the capacity, and the bound of the goodput.

use std::time::Duration;

use tidegate_control::bound;
use tidegate_proxy::{Class, Disposal};
use tidegate_server::config::Emulate;

/// The messages of a call that a server before answerers handles: INVITE, 180, 200, ACK, BYE,
/// 200.
const CALL: [Class; 6] =
    [Class::Invite, Class::Provisional, Class::Final, Class::Ack, Class::Bye, Class::Final];

/// s: what a whole call costs.
pub fn call(costs: &Emulate) -> Duration {
    let message = |class: Class| costs.offer[class as usize] + costs.serve[class as usize];
    CALL.into_iter().map(message).sum()
}

/// r: what disposing of an unwanted call costs: of its INVITE, and of the ACK of its 503 if it
/// gets one. A caller that gets none repeats the INVITE, which is not counted here, so that the
/// bound remains one.
pub fn refusal(costs: &Emulate, disposal: Disposal) -> Duration {
    let (invite, ack) = (Class::Invite as usize, Class::Ack as usize);
    let invite = costs.offer[invite] + costs.refuse[invite];
    match disposal {
        Disposal::Reject => invite + costs.offer[ack],
        Disposal::Drop => invite,
    }
}

/// C: the calls/s that keep the emulated processor busy.
pub fn capacity_cps(costs: &Emulate) -> f64 {
    1.0 / call(costs).as_secs_f64()
}

/// r/s.
pub fn ratio(costs: &Emulate, disposal: Disposal) -> f64 {
    refusal(costs, disposal).as_secs_f64() / call(costs).as_secs_f64()
}

/// The most goodput there can be, as a part of the capacity, at `load` times the capacity.
pub fn bound(costs: &Emulate, disposal: Disposal, load: f64) -> f64 {
    bound::goodput(load, ratio(costs, disposal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Emulate {
        let us = |us: u64| [Duration::from_micros(us); 16];
        let mut costs =
            Emulate { offer: us(100), serve: us(700), refuse: us(50), socket_max: 2048 };
        costs.offer[Class::Invite as usize] = Duration::from_micros(150);
        costs
    }

    #[test]
    fn a_call_costs_its_six_messages_and_a_refusal_two() {
        let us = Duration::from_micros;
        assert_eq!(call(&costs()), us(6 * 800 + 50));
        assert_eq!(refusal(&costs(), Disposal::Reject), us(150 + 50 + 100));
        assert_eq!(refusal(&costs(), Disposal::Drop), us(150 + 50));
    }

    #[test]
    fn the_bound_falls_by_what_refusals_cost() {
        assert!((capacity_cps(&costs()) - 1e6 / 4850.0).abs() < 1e-9);
        let ratio = 300.0 / 4850.0;
        let expected = (1.0 - 2.0 * ratio) / (1.0 - ratio);
        assert!((bound(&costs(), Disposal::Reject, 2.0) - expected).abs() < 1e-12);
        assert!(bound(&costs(), Disposal::Drop, 2.0) > expected);
    }
}
