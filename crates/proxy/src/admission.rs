//! Admission: classifies a message, decides on it, and keeps it in its queue until it is served.

mod challenges;
mod classify;
pub(crate) mod decision;
pub(crate) mod early_verification;
mod fifo;
mod headroom;
pub(crate) mod ingress;
mod invites;
pub(crate) mod kernel_shed;
mod large;
mod queue;
pub(crate) mod reject;
pub(crate) mod source_policy;
mod turns;
pub(crate) mod upstream;
pub(crate) mod view;
mod waiting;
