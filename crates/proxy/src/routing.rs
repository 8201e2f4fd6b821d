//! Routing of requests: `plan` decides where a request goes and changes no state, and `commit`
//! carries the decision out.

mod callee;
pub(crate) mod commit;
pub(crate) mod fork;
mod in_dialog;
pub(crate) mod loops;
pub(crate) mod next_hop;
pub(crate) mod plan;
pub(crate) mod route_set;
mod rules;
pub(crate) mod select;
mod target_choice;
pub(crate) mod tier;
