//! The call table, and the evidence that a request belongs to one of its calls.

mod calls;
pub(crate) mod evidence;

pub(crate) use calls::{Answer, Call, CallRef, Calls, Evidence, NoPlace, Price, Transaction};
