//! Tests of the program with real peers: SIPp, sipsak, Kamailio and plain sockets, all on the
//! loopback interface.
//!
//! Each test has its own [`Stage`](stage::Stage): an address that no other test uses, a scratch
//! directory, and the programs started on it, which end with it.

// These tests run in real time: they wait for other programs.
#![allow(clippy::disallowed_methods)]

mod stage;

mod addresses;
mod failover;
mod feedback;
mod flows;
mod health;
mod hostile;
mod impair;
mod limits;
mod load;
mod many_machines;
mod methods;
mod names;
mod overload;
mod products;
mod recording;
mod registered;
mod rejections;
mod restart;
mod runtime_control;
mod shards;
mod starting;
mod stopping;
mod strangers;
mod streams;
mod takeover;
mod tls;
mod transactions;
mod users;
mod ws;
