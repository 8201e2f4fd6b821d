//! The contract between a core and its driver.

use crate::{Failure, Load, Received, Shedding, Timestamp, Transmit, Work};

/// A message that belongs to another shard of the same process.
#[derive(Debug)]
pub struct Crossing {
    /// The shard it belongs to.
    pub shard: u16,
    /// The message, to be offered there.
    pub received: Received,
}

/// A pure state machine, given time and packets from outside.
///
/// # The contract
///
/// 1. The driver calls one *input* function (`offer`, `serve`, `handle_timeout`,
///    `on_failed`, `on_load`, `on_drain`) with a `now` that never goes back.
/// 2. After it, and before the next input whose outcome could depend on what was
///    sent, the driver drains the *outputs*: [`poll_transmit`](Self::poll_transmit)
///    and [`poll_crossing`](Self::poll_crossing) until they yield nothing. A
///    driver may gather the outputs of several inputs into one batch; their order
///    is kept.
/// 3. When it has nothing else to do it sleeps until a packet arrives or until
///    [`poll_timeout`](Self::poll_timeout), and then calls `handle_timeout`.
///    Calling it too early changes nothing.
///
/// The inputs are few on purpose: whoever records them has recorded all that a
/// core can know ([`Recorder`](crate::Recorder)).
pub trait Core {
    /// A packet has arrived. The core classifies and queues it, or disposes of it
    /// at once; it does no work that is not bounded and cheap.
    fn offer(&mut self, now: Timestamp, received: Received);

    /// Does the work of one queued message. `false` when none was waiting.
    fn serve(&mut self, now: Timestamp) -> bool;

    /// Fires the timers that are due.
    fn handle_timeout(&mut self, now: Timestamp);

    /// The transport could not deliver something.
    fn on_failed(&mut self, now: Timestamp, failure: Failure);

    /// How busy the driver was until now, and how full its sockets are. Comes every few
    /// milliseconds while there is anything to do.
    fn on_load(&mut self, _now: Timestamp, _load: Load) {}

    /// The process is to stop: admit no new work, finish what is held.
    fn on_drain(&mut self, now: Timestamp);

    /// The next packet to send.
    fn poll_transmit(&mut self) -> Option<Transmit>;

    /// The next message that another shard must handle.
    fn poll_crossing(&mut self) -> Option<Crossing> {
        None
    }

    /// What is to be dropped before the core is given it. The driver asks at each
    /// [`on_load`](Self::on_load), and it holds until another answer: while the core wants
    /// anything dropped it arms a timer, or it would not be asked when nothing gets through.
    fn poll_shedding(&self) -> &Shedding {
        const { &Shedding::NONE }
    }

    /// What the last `offer` or `serve` did, for whoever models its cost.
    fn last_work(&self) -> Work {
        Work::default()
    }

    /// When `handle_timeout` is next needed; `None` if no timer is armed.
    fn poll_timeout(&self) -> Option<Timestamp>;

    /// After `on_drain`: true once nothing is held that stopping would lose.
    fn is_drained(&self) -> bool;
}

/// Hands every call on to the core behind a pointer. Those with a default too: the default
/// would stand in for the core's own.
macro_rules! forward {
    () => {
        fn offer(&mut self, now: Timestamp, received: Received) {
            (**self).offer(now, received);
        }
        fn serve(&mut self, now: Timestamp) -> bool {
            (**self).serve(now)
        }
        fn handle_timeout(&mut self, now: Timestamp) {
            (**self).handle_timeout(now);
        }
        fn on_failed(&mut self, now: Timestamp, failure: Failure) {
            (**self).on_failed(now, failure);
        }
        fn on_load(&mut self, now: Timestamp, load: Load) {
            (**self).on_load(now, load);
        }
        fn on_drain(&mut self, now: Timestamp) {
            (**self).on_drain(now);
        }
        fn poll_transmit(&mut self) -> Option<Transmit> {
            (**self).poll_transmit()
        }
        fn poll_crossing(&mut self) -> Option<Crossing> {
            (**self).poll_crossing()
        }
        fn poll_shedding(&self) -> &Shedding {
            (**self).poll_shedding()
        }
        fn last_work(&self) -> Work {
            (**self).last_work()
        }
        fn poll_timeout(&self) -> Option<Timestamp> {
            (**self).poll_timeout()
        }
        fn is_drained(&self) -> bool {
            (**self).is_drained()
        }
    };
}

/// A core that is lent to its driver.
impl<C: Core + ?Sized> Core for &mut C {
    forward!();
}

/// A core of a kind that its driver does not know.
impl<C: Core + ?Sized> Core for Box<C> {
    forward!();
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use super::*;
    use crate::{Buffer, Cause, Path, Pool};

    /// Notes which of its functions was called, and answers none of them by default.
    #[derive(Default)]
    struct Noting {
        called: RefCell<Vec<&'static str>>,
        pool: Pool,
        shedding: Shedding,
    }

    impl Noting {
        fn note(&self, name: &'static str) {
            self.called.borrow_mut().push(name);
        }
        fn bytes(&self) -> Buffer {
            self.pool.copy(b"x")
        }
    }

    fn path() -> Path {
        let address = "127.0.0.1:1".parse().unwrap();
        Path::udp(address, address)
    }

    impl Core for Noting {
        fn offer(&mut self, _: Timestamp, _: Received) {
            self.note("offer");
        }
        fn serve(&mut self, _: Timestamp) -> bool {
            self.note("serve");
            true
        }
        fn handle_timeout(&mut self, _: Timestamp) {
            self.note("handle_timeout");
        }
        fn on_failed(&mut self, _: Timestamp, _: Failure) {
            self.note("on_failed");
        }
        fn on_load(&mut self, _: Timestamp, _: Load) {
            self.note("on_load");
        }
        fn on_drain(&mut self, _: Timestamp) {
            self.note("on_drain");
        }
        fn poll_transmit(&mut self) -> Option<Transmit> {
            self.note("poll_transmit");
            Some(Transmit { path: path(), bytes: self.bytes() })
        }
        fn poll_crossing(&mut self) -> Option<Crossing> {
            self.note("poll_crossing");
            let received = Received::new(Timestamp::ZERO, path(), self.bytes());
            Some(Crossing { shard: 1, received })
        }
        fn poll_shedding(&self) -> &Shedding {
            self.note("poll_shedding");
            &self.shedding
        }
        fn last_work(&self) -> Work {
            self.note("last_work");
            Work { offered: Some(3), ..Work::default() }
        }
        fn poll_timeout(&self) -> Option<Timestamp> {
            self.note("poll_timeout");
            Some(Timestamp::ZERO + Duration::from_secs(1))
        }
        fn is_drained(&self) -> bool {
            self.note("is_drained");
            true
        }
    }

    /// Calls everything as a driver would that knows no more than the contract.
    fn call_all(core: &mut impl Core) {
        let now = Timestamp::ZERO;
        core.offer(now, Received::new(now, path(), Pool::new().copy(b"x")));
        assert!(core.serve(now));
        core.handle_timeout(now);
        core.on_failed(now, Failure { path: path(), cause: Cause::Other });
        core.on_load(now, Load::default());
        core.on_drain(now);
        assert!(core.poll_transmit().is_some() && core.poll_crossing().is_some());
        assert_eq!(core.poll_shedding().share, 0.25);
        assert_eq!(core.last_work().offered, Some(3));
        assert!(core.poll_timeout().is_some() && core.is_drained());
    }

    const ALL: [&str; 12] = [
        "offer",
        "serve",
        "handle_timeout",
        "on_failed",
        "on_load",
        "on_drain",
        "poll_transmit",
        "poll_crossing",
        "poll_shedding",
        "last_work",
        "poll_timeout",
        "is_drained",
    ];

    #[test]
    fn behind_a_pointer_every_call_reaches_the_core() {
        let shedding = Shedding { share: 0.25, ..Shedding::NONE };
        let mut core = Noting { shedding, ..Noting::default() };
        let mut lent: &mut dyn Core = &mut core;
        call_all(&mut lent);
        assert_eq!(core.called.take(), ALL);
        let mut boxed = Box::new(core);
        call_all(&mut boxed);
        assert_eq!(boxed.called.take(), ALL);
    }
}
