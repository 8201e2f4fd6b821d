//! Session-aware load balancing.
//!
//! Only for the first request of a call a back end is chosen; every later request follows the call.
//! So a [`Picker`] chooses once. The load of the call on its back end is a [`CallLease`] and a
//! [`TransactionLease`], which give back their counts when they are dropped. No code has to
//! decrement a counter, so none can forget it: a failed, cancelled, timed-out or abandoned call
//! returns its counts when its state is dropped.
//!
//! A [`Pool`] is shared by all shards (one padded set of atomics a back end); a [`Picker`] belongs
//! to one shard. It chooses by a [`Policy`] that knows only the counts of the back ends: weights,
//! calls, open transactions, their work and response times. [`registry`] lists every policy with
//! its parameters; configuration and documentation are made from it.
//!
//! ```
//! use tidegate_balance::{Picker, Policy, Pool, Work};
//! use tidegate_world::{Purpose, Seed, Timestamp};
//!
//! let pool = Pool::new("app", &[("a", "127.0.0.1:5070".parse().unwrap(), 1),
//!                               ("b", "127.0.0.1:5071".parse().unwrap(), 1)]);
//! let draws = Seed(1).stream(Purpose::Balance, 0);
//! let mut picker = Picker::new(pool.clone(), Policy::Cjsq, draws);
//! let now = Timestamp::ZERO;
//! let first = picker.pick(now, 1, None).unwrap();
//! let held = picker.call_lease(first);
//! let second = picker.pick(now, 2, None).unwrap();
//! assert_ne!(first, second, "the one with fewest calls is next");
//! drop(held);
//! assert_eq!(pool.backends()[first].calls(), 0);
//! let mut open = picker.transaction_lease(now, second, Work::CallStart);
//! open.on_answered(now);
//! ```
//!
//! The only part that is specific to SIP are the names of methods in [`Work`], which stand for
//! weights. So calls may be sessions of any kind. `examples/workers.rs` balances jobs over worker
//! threads.

mod backend;
mod backend_registry;
mod budget;
mod cost_ratio;
mod endpoint;
mod finals;
mod group;
mod hashing;
mod headroom;
mod health;
mod lease;
pub mod limit;
mod peak;
mod picker;
mod policy;
mod pool;
mod recent;
pub mod registry;
mod response_time;
mod service;
mod work;

pub use backend::{Backend, UNTIL_PROBED};
pub use backend_registry::{BackendRegistry, BackendSpec, PoolSpec};
pub use budget::RetryBudget;
pub use endpoint::{AddressGeneration, Endpoint, EndpointAddress, GENERATIONS_MAX, Lookups, Named};
pub use hashing::fnv1a;
pub use health::{AdminState, COUNT_MAX, Parties, Sources, State};
pub use lease::{CallLease, TransactionLease};
pub use limit::{Demand, Learning, Limits, RateLearning, WindowLearning};
pub use picker::{Assignment, NoBackend, Picker};
pub use policy::{Key, Policies, Policy};
pub use pool::Pool;
pub use registry::{Entry, Param, Values, Wrong};
pub use service::Service;
pub use work::Work;
