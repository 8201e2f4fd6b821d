//! Overload feedback of next hops: the client role of RFC 7339 and RFC 7415, and the Via parameters
//! of both roles.

pub(crate) mod next_hops;
pub(crate) mod wire;
