//! SIP transactions: RFC 3261 §17 as amended by RFC 6026.
//!
//! There are four state machines, two for each side: [`InviteClient`], [`OtherClient`],
//! [`InviteServer`], [`OtherServer`]. [`Client`] and [`Server`] combine those of one side. A
//! machine is a small value with a state and the times of its timers. It contains no message. A
//! transition consumes the machine and returns its next state, with an action for the owner of the
//! machine ([`Arrival`], [`Firing`], …). Time is an argument.
//!
//! A request matches its transaction by [`Key`]. [`Table`] holds the live transactions, up to a
//! limit, with one timer per entry.
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
pub use timing::{TIMER_C, Timing};
