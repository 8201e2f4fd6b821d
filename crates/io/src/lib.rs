//! Real sockets and real time for sans-IO cores.
//!
//! A [`Core`](tidegate_world::Core) never touches a socket or a clock. This crate connects it to
//! both. One shard is one thread with one [`Drive`], which runs the core in turns. A turn reads a
//! bounded number of datagrams, fires the expired timers, serves for a quantum of time, and sends
//! all packets in one flush. If no work is left, the shard then sleeps. Every [`SAMPLE`] it reports
//! the load to the core. You can also use the parts on their own: [`Inbox`] and [`Outbox`] move
//! datagrams in batches of [`BATCH`], [`open`] creates the `SO_REUSEPORT` group that spreads a
//! listening address over shards, and [`Pauses`] decides whether the shard pauses, so that one wake
//! serves several datagrams.
//!
//! For UDP, a shard mainly uses `recvmmsg`, `sendmmsg` and `ppoll`. A shard with connections also
//! has an `epoll` descriptor, which reports the events of all connections
//! ([`Drive::with_streams`]).
//!
//! ```no_run
//! use std::sync::Arc;
//! use tidegate_io::{Clock, Counters, Handoffs, Drive, Limits, Listen, Shard, Stop, open};
//! # fn shard(mut core: impl tidegate_world::Core) -> Result<(), Box<dyn std::error::Error>> {
//! let group = open(&Listen::new("127.0.0.1:5060".parse()?))?;
//! let mut drive = Drive::new(Shard {
//!     clock: Clock::start(),
//!     limits: Limits::default(),
//!     listeners: vec![group.listener(0)],
//!     handoffs: Handoffs::alone()?,
//!     counters: Arc::new(Counters::default()),
//!     stop: Stop::new(),
//!     pool: tidegate_world::Pool::new(),
//! })?;
//! let summary = drive.run(&mut core)?;
//! # Ok(()) }
//! ```
#![allow(clippy::disallowed_methods)] // This crate is the layer that reads the clock.

mod address;
mod clock;
mod commands;
mod connection;
mod connections;
mod control;
mod counters;
mod dispatch;
mod draining;
mod drive;
mod egress;
mod error_queue;
mod gate;
mod group;
mod gso;
mod handoffs;
mod inbox;
mod limits;
mod load;
mod machine;
mod outbox;
mod pauses;
mod reception;
mod resolver;
mod sockets;
mod sockopt;
mod steer;
mod stop;
mod stores;
mod stream_group;
mod stream_limits;
mod stream_read;
mod tls;
mod tls_errors;
mod unsent;
mod waker;
mod websocket;

pub use clock::{Clock, Stamps};
pub use commands::{CommandError, CommandSender};
pub use counters::Counters;
pub use draining::{Ended, Summary};
pub use drive::{Drive, Shard};
pub use egress::{NETWORKS_MAX, egress_networks};
pub use error_queue::{ErrorQueue, Report};
pub use gate::KernelGate;
pub use group::{Group, Listen, Listener, OpenError, open};
pub use handoffs::Handoffs;
pub use inbox::{Datagram, Inbox};
pub use limits::Limits;
pub use load::SAMPLE;
pub use machine::{Buffers, Kind, Machine, Outlet, Ready, StreamEvent, StreamTurn};
pub use outbox::{Flushed, Outbox};
pub use pauses::Pauses;
pub use resolver::Resolver;
pub use sockets::Sockets;
pub use stop::Stop;
pub use stores::Stores;
pub use stream_group::{StreamGroup, StreamListen, StreamListener};
pub use stream_limits::StreamLimits;
pub use tls::{TlsPeer, TlsPeers, TlsServer};
pub use tls_errors::TlsErrors;
pub use unsent::{UNSENT_MAX, Unsent, UnsentTo};
pub use waker::Waker;
pub use websocket::{Origins, WebSocketClient};

/// Maximum number of datagrams that one system call receives or sends.
pub const BATCH: usize = 64;
