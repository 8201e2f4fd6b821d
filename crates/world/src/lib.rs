//! The interface between a sans-IO core and its driver, and the data types that both use.
//!
//! A *core* (proxy, user agent) is a pure state machine: it never reads a clock, draws entropy or
//! touches a socket. A *driver* (real sockets in `io`, simulated time in `sim`) passes time and
//! packets to the core through [`Core`], and sends the packets of the core. The random numbers of a
//! core come from a [`Seed`]. A core behaves the same under each driver, byte for byte.

mod add_fields;
mod buffer;
mod calendar;
mod core;
mod counter;
mod delegate;
mod flow;
mod histogram;
mod load;
mod network;
mod packet;
pub mod param;
mod query;
mod record;
mod shedding;
mod slot_table;
mod source;
mod stream;
mod time;
mod timers;
mod unit_enum;

pub use buffer::{Buffer, LARGE, Pool, PoolUse, SMALL};
pub use calendar::Calendar;
pub use core::{COMMAND_MAX, Core, Handoff, HandoffInput, STREAM_WINDOW};
pub use counter::Counter;
pub use flow::{CloseCause, Connect, ConnectionId, Flow, ShardIndex, Transport};
pub use histogram::Histogram;
pub use load::{Load, Work};
pub use network::Network;
pub use packet::{Batching, Cause, Failure, QUOTE_MAX, Received, Transmit};
pub use param::{Kind, PARAMS_MAX, Param, Range, Registry, Values, Wrong};
pub use query::{
    KEY_MAX, LookupKind, NAME_MAX, NaptrRecord, Query, QueryAnswer, QueryId, Question, RECORDS_MAX,
    RESOLVE_MAX, RecordType, SrvRecord, VALUE_MAX,
};
pub use record::{Entry, Input, Log, Memory, Recorder, replay};
pub use shedding::{DroppableMethod, Shedding};
pub use slot_table::{Hashed, SlotRef, SlotTable};
pub use source::{SOURCE_PREFIXES, networks_of, source_of};
pub use stream::{Purpose, Seed, Stream};
pub use time::Timestamp;
pub use timers::Timers;
