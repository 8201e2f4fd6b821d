//! Session-aware load balancing.
//!
//! Only the first request of a call is free to choose its back end; every later
//! one follows the call. So a choice is made once, by a [`Picker`], and what the
//! call weighs on its back end is held as [`Lease`]s, which give back what they
//! took when they are dropped. There is no counter to decrement, hence none to
//! forget: a failed, cancelled, timed-out or abandoned call gives back its counts
//! when its state goes, whichever way it goes.
//!
//! A [`Pool`] is shared by all shards (one padded set of atomics a back end); a
//! [`Picker`] belongs to one shard.
//!
//! ```
//! use tidegate_balance::{Picker, Policy, Pool, Work};
//! use tidegate_world::Timestamp;
//!
//! let pool = Pool::new("app", &[("a", "127.0.0.1:5070".parse().unwrap(), 1),
//!                               ("b", "127.0.0.1:5071".parse().unwrap(), 1)]);
//! let mut picker = Picker::new(pool.clone(), Policy::Cjsq);
//! let first = picker.pick(Timestamp::ZERO, 1, None).unwrap();
//! let held = picker.call_lease(first);
//! let second = picker.pick(Timestamp::ZERO, 2, None).unwrap();
//! assert_ne!(first, second, "the one with fewest calls is next");
//! drop(held);
//! assert_eq!(pool.backends()[first].calls(), 0);
//! let _ = picker.transaction_lease(second, Work::CallStart);
//! ```

mod backend;
mod fleet;
mod group;
mod health;
mod lease;
mod policy;
mod pool;

pub use backend::{Backend, UNTIL_PROBED};
pub use fleet::{Fleet, Muster, Post};
pub use health::{COUNT_MAX, Duty, State};
pub use lease::{Lease, Work};
pub use policy::{Picker, Policy};
pub use pool::Pool;
