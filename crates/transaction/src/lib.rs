//! SIP transactions, RFC 3261 §17 as RFC 6026 mends it.
//!
//! Four machines, two for each side: [`InviteClient`], [`OtherClient`], [`InviteServer`],
//! [`OtherServer`]; [`Client`] and [`Server`] are either of them by method. A machine is a small
//! value that knows its state and when its timers fire, and holds no message: a transition
//! consumes it and yields the next one, with what its holder is to do ([`Arrival`], [`Firing`],
//! …). Time is an argument.
//!
//! [`Key`] is what a request matches its transaction by, [`Table`] holds what lives, up to a
//! limit, with one timer for each entry.
//!
//! ```
//! use tidegate_transaction::{Arrival, Client, Firing, Timing};
//! use tidegate_world::Timestamp;
//!
//! let timing = Timing::default();
//! let start = Timestamp::ZERO;
//! let invite = Client::invite(start, &timing);
//! // Nobody answers: after T1 the INVITE is sent again.
//! let (invite, fired) = invite.on_timer(start + timing.t1, &timing);
//! assert_eq!(fired, Firing::Resend);
//! let (invite, arrival) = invite.on_response(start + timing.t2, &timing, 486);
//! assert_eq!(arrival, Arrival::DeliverAndAcknowledge);
//! assert!(!invite.is_terminated(), "it acknowledges repetitions for a while");
//! ```

mod backoff;
mod client;
mod effect;
mod invite_client;
mod invite_server;
mod key;
mod other_client;
mod other_server;
mod server;
mod table;
mod timing;

pub use backoff::Backoff;
pub use client::Client;
pub use effect::{Acknowledgement, Arrival, Dispatch, Firing, Repetition};
pub use invite_client::InviteClient;
pub use invite_server::InviteServer;
pub use key::{COOKIE, Key, identity, identity_of_branch, is_unique};
pub use other_client::OtherClient;
pub use other_server::OtherServer;
pub use server::Server;
pub use table::{Full, Handle, Table};
pub use timing::Timing;
