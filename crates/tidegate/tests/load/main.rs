//! Tests of `tidegate load` on real sockets: against itself and against SIPp (Debian: sip-tester).
#![allow(clippy::disallowed_methods)] // Real processes take real time.

mod calls;
mod registrations;
mod shapes;
mod stage;
mod streams;
