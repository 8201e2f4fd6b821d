//! Forwarding without transactions (RFC 3261 §16.11), and forwarding of CANCELs and ACKs of calls
//! that this process does not know.

mod branch;
pub(crate) mod forward;
pub(crate) mod lost;
pub(crate) mod recent;
