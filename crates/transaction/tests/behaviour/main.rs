//! The transactions of RFC 3261 §17 and RFC 6026, message by message and timer by timer.

mod properties;
mod rfc3261_17_1_1_invite_client;
mod rfc3261_17_1_2_other_client;
mod rfc3261_17_2_1_invite_server;
mod rfc3261_17_2_2_other_server;
mod rfc3261_17_2_3_matching;
mod rfc3261_17_figures;
mod rfc6026_accepted;
mod script;
