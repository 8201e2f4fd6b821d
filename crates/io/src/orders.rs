//! Orders of operators to the shards of a process.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};
use tidegate_world::ORDER_MAX;

use crate::Waker;

/// Orders that wait for one shard at the most. A shard takes one in each turn.
const WAITING_MAX: usize = 16;

/// A handle by which any thread gives an order to all shards, each of which hears all orders in
/// the same sequence ([`Core::on_order`](tidegate_world::Core::on_order)).
#[derive(Clone, Debug)]
pub struct Orders(Arc<State>);

#[derive(Debug)]
struct State {
    shards: usize,
    desks: Mutex<Vec<Desk>>,
}

/// Where orders are left for one shard.
#[derive(Debug)]
struct Desk {
    orders: Sender<Arc<[u8]>>,
    waker: Waker,
}

/// Why an order was not given, to any shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotGiven {
    /// It has more than [`ORDER_MAX`] bytes.
    TooLong,
    /// A shard has not begun, has not taken those given before, or has ended.
    Busy,
}

impl fmt::Display for NotGiven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "an order of more than {ORDER_MAX} bytes"),
            Self::Busy => f.write_str("a shard is not there, or has not taken the orders before"),
        }
    }
}

impl std::error::Error for NotGiven {}

impl Orders {
    /// A handle to `shards` shards, each of which is to [heed](crate::Drive::heeding) it.
    pub fn to(shards: u16) -> Self {
        Self(Arc::new(State { shards: shards.into(), desks: Mutex::default() }))
    }

    /// Gives an order to every shard, or to none.
    ///
    /// # Errors
    /// When it is too long, or a shard has no room for it.
    pub fn give(&self, order: &[u8]) -> Result<(), NotGiven> {
        if order.len() > ORDER_MAX {
            return Err(NotGiven::TooLong);
        }
        // Whoever gives holds the lock, and shards only take: what has room keeps it.
        let desks = self.0.desks.lock().unwrap_or_else(PoisonError::into_inner);
        if desks.len() < self.0.shards || desks.iter().any(|desk| desk.orders.is_full()) {
            return Err(NotGiven::Busy);
        }
        let order: Arc<[u8]> = order.into();
        let mut heard = Ok(());
        for Desk { orders, waker } in desks.iter() {
            match orders.try_send(Arc::clone(&order)) {
                Ok(()) => waker.wake(),
                // It has ended, and the process is about to.
                Err(_) => heard = Err(NotGiven::Busy),
            }
        }
        heard
    }

    /// Adds a shard, which an order wakes.
    pub(crate) fn join(&self, waker: Waker) -> Inbox {
        let (orders, inbox) = bounded(WAITING_MAX);
        let desk = Desk { orders, waker };
        self.0.desks.lock().unwrap_or_else(PoisonError::into_inner).push(desk);
        Inbox(inbox)
    }
}

/// A shard's end.
#[derive(Debug)]
pub(crate) struct Inbox(Receiver<Arc<[u8]>>);

impl Inbox {
    /// Of a shard that nobody gives orders.
    pub(crate) fn closed() -> Self {
        Self(bounded(1).1)
    }

    /// The next order.
    pub(crate) fn take(&self) -> Option<Arc<[u8]>> {
        self.0.try_recv().ok()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_hears_all_orders_in_their_sequence() {
        let orders = Orders::to(2);
        let shards = [(); 2].map(|()| orders.join(Waker::new().unwrap()));
        for order in [&b"one"[..], b"two"] {
            orders.clone().give(order).unwrap();
        }
        for shard in shards {
            assert!(!shard.is_empty());
            assert_eq!([shard.take(), shard.take()].map(|o| o.unwrap().to_vec()), [b"one", b"two"]);
            assert!(shard.is_empty() && shard.take().is_none());
        }
    }

    #[test]
    fn an_order_that_one_shard_has_no_room_for_is_given_to_none() {
        let orders = Orders::to(2);
        let slow = orders.join(Waker::new().unwrap());
        assert_eq!(orders.give(b"more"), Err(NotGiven::Busy), "one is not there yet");
        let quick = orders.join(Waker::new().unwrap());
        assert!(slow.is_empty());
        for _ in 0..WAITING_MAX {
            orders.give(b"more").unwrap();
            assert!(quick.take().is_some());
        }
        assert_eq!(orders.give(b"more"), Err(NotGiven::Busy));
        assert!(quick.is_empty());
        assert!(slow.take().is_some());
        orders.give(b"more").unwrap();
        assert!(!quick.is_empty());
        assert_eq!(orders.give(&[b'x'; ORDER_MAX + 1]), Err(NotGiven::TooLong));
    }

    #[test]
    fn a_shard_that_nobody_gives_orders_hears_none() {
        assert!(Inbox::closed().is_empty() && Inbox::closed().take().is_none());
    }
}
