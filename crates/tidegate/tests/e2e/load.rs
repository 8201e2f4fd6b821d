//! Tests of `tidegate load`: against itself and against SIPp.

mod calls;
mod registrations;
mod shapes;
mod streams;
