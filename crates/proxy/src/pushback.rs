//! Feedback of next hops: RFC 7339 and RFC 7415 as a client, and their parameters in both roles.

pub(crate) mod next_hops;
pub(crate) mod wire;
