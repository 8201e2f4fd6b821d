//! Calls: the call table, and the evidence that a request belongs to one of them.

mod calls;
pub(crate) mod evidence;

pub(crate) use calls::{Answer, Call, CallRef, Calls, Evidence, Transaction};
