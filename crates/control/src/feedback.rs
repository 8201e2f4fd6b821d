//! Feedback between servers: an overloaded server tells the servers that send requests to it how
//! many requests it can serve. Those servers hold the other requests back, so that the overloaded
//! server need not reject them.
//!
//! ```text
//!   upstream server                                     this server
//!   Restriction  ◄── Feedback, in every response ──  Upstreams ◄── Control of any law
//!        └────────── requests that it lets pass ──►      └──► Gate, for the excess
//! ```
//!
//! - [`Restriction`] belongs to the sending server, which has one for each next hop. It limits the
//!   requests to the next hop as the feedback of the next hop demands (RFC 7339 §5.4-5.10, RFC 7415
//!   §3.5).
//! - [`Upstreams`] belongs to the receiving server. It knows the servers that send requests to it,
//!   divides the load that the law admits among them, and computes the feedback for each of them
//!   (RFC 7339 §5.1-5.3).
//!
//! Feedback has one of two algorithms. Under `loss` (RFC 7339 §7) its value is the percentage of
//! requests to hold back. Under `rate` (RFC 7415) it is the maximum number of requests a second. If
//! a law sets a window (a limit on the waiting calls), the window is first converted to calls a
//! second.

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

/// Time for which a feedback value holds if the server does not state a time.
// RFC 7339 §4.3: "The default value of the "oc-validity" parameter is 500 (milliseconds)."
pub const VALIDITY_DEFAULT: Duration = Duration::from_millis(500);

/// The feedback that a server sends to an upstream server, to limit the requests that this upstream
/// server sends to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The algorithm, which defines the meaning of `value`.
    pub algorithm: Algorithm,
    /// Under [`Algorithm::Loss`], the percentage of requests to hold back. Under
    /// [`Algorithm::Rate`], the maximum number of requests a second.
    pub value: u32,
    /// Time for which `value` holds. Zero ends the restriction of requests.
    pub validity: Duration,
    /// The position of this value in the order in which the server sends its values.
    pub sequence: Sequence,
}
