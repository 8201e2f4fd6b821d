//! Who acts in a simulated network.

use tidegate_agent::{Answerer, Caller};
use tidegate_server::assembly::Server;
use tidegate_world::{
    Core, Crossing, Failure, Load, Received, Shedding, Timestamp, Transmit, Work,
};

/// One of them.
pub(super) enum Actor {
    /// Callers before one server.
    Caller(Box<Caller>),
    /// A server.
    Server(Server),
    /// An answerer.
    Answerer(Box<Answerer>),
}

/// Does the same to whatever it is.
macro_rules! any {
    ($actor:expr, $core:ident => $call:expr) => {
        match $actor {
            Actor::Caller($core) => $call,
            Actor::Server($core) => $call,
            Actor::Answerer($core) => $call,
        }
    };
}

impl Core for Actor {
    fn offer(&mut self, now: Timestamp, received: Received) {
        any!(self, core => core.offer(now, received));
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        any!(self, core => core.serve(now))
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        any!(self, core => core.handle_timeout(now));
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        any!(self, core => core.on_failed(now, failure));
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        any!(self, core => core.on_load(now, load));
    }

    fn on_drain(&mut self, now: Timestamp) {
        any!(self, core => core.on_drain(now));
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        any!(self, core => core.poll_transmit())
    }

    fn poll_crossing(&mut self) -> Option<Crossing> {
        any!(self, core => core.poll_crossing())
    }

    fn poll_shedding(&self) -> &Shedding {
        any!(self, core => core.poll_shedding())
    }

    fn last_work(&self) -> Work {
        any!(self, core => core.last_work())
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        any!(self, core => core.poll_timeout())
    }

    fn is_drained(&self) -> bool {
        any!(self, core => core.is_drained())
    }
}
