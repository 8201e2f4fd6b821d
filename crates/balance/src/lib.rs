//! Session-aware load balancing.
//!
//! A back end is selected only for the first request of a call. Every later request of the call
//! goes to the same back end. So a [`Picker`] selects once. A [`CallLease`] counts the call at its
//! back end, and a [`TransactionLease`] counts one of its transactions. Each lease subtracts its
//! counts when it is dropped. So no code can forget to decrement a counter: a failed, cancelled,
//! timed-out or abandoned call is no longer counted when its state is dropped.
//!
//! A [`Pool`] is shared by all shards: it has one padded set of atomics for each back end. A
//! [`Picker`] belongs to one shard. It selects by a [`Policy`], which knows only numbers about the
//! back ends: weights, calls, open transactions, their work and response times. [`registry`] lists
//! every policy with its parameters. The configuration and the documentation take the policies from
//! this list.
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
//! Only the names of methods in [`Work`] are specific to SIP, and they stand for weights. So a call
//! may be a session of any kind.

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
pub use limit::{Demand, Learning, Limits, RateLaw, RateLearning, WindowLaw, WindowLearning};
pub use picker::{Assignment, NoBackend, Picker};
pub use policy::{Key, Policies, Policy};
pub use pool::Pool;
pub use registry::{Entry, Param, Range, Values, Wrong};
pub use service::Service;
pub use work::Work;
