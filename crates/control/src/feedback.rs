//! Feedback between servers: an overloaded server tells the servers that send to it how much it can
//! take. These servers hold the rest back, so that the overloaded server need not reject it.
//!
//! ```text
//!   upstream server                                     this server
//!   Restriction  ◄── Feedback, in every response ──  Upstreams ◄── Control of any law
//!        └────────── requests that it lets pass ──►      └──► Gate, for the excess
//! ```
//!
//! - [`Restriction`] is the sending side: one for each next hop. It applies the feedback of that
//!   server (RFC 7339 §5.4-5.10, RFC 7415 §3.5).
//! - [`Upstreams`] is the receiving side: it knows the servers that send requests here, shares what
//!   the law allows among them, and says how much each may send (RFC 7339 §5.1-5.3).
//!
//! Two algorithms carry a value. `loss` (RFC 7339 §7) is the percentage of requests to hold back,
//! `rate` (RFC 7415) the requests a second to send at most. If a law sets a window of calls, the
//! window is first converted to calls a second.

mod algorithm;
mod capacity;
mod category;
mod enforcement;
mod loss;
mod peer_view;
mod rate;
mod restriction;
mod sequence;
mod shares;
mod told;
mod upstream;
mod upstream_settings;
mod upstreams;

use std::time::Duration;

pub use algorithm::{Algorithm, Algorithms};
pub use category::Category;
pub use peer_view::{PeerView, Standing};
pub use restriction::{
    FeedbackOutcome, Restriction, RestrictionCounts, RestrictionSettings, RestrictionStatus,
    SendVerdict,
};
pub use sequence::Sequence;
pub use upstream_settings::{Offer, UpstreamFairness, UpstreamSettings};
pub use upstreams::{Arrival, Upstreams};

/// Time for which a value holds if the server does not state one.
// RFC 7339 §4.3: "The default value of the "oc-validity" parameter is 500 (milliseconds)."
pub const VALIDITY_DEFAULT: Duration = Duration::from_millis(500);

/// A value that a server sends to an upstream server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The meaning of the value.
    pub algorithm: Algorithm,
    /// Depending on the algorithm: the percentage of requests to hold back, or the maximum number
    /// of requests a second.
    pub value: u32,
    /// Time for which the value holds. Zero ends the restriction.
    pub validity: Duration,
    /// The position of this value in the order in which the server sends its values.
    pub sequence: Sequence,
}
