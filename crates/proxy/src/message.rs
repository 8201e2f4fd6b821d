//! The parts of messages that the proxy reads and writes: requests, branches, tokens, replies.

pub(crate) mod address_of_record;
pub(crate) mod admitted;
pub(crate) mod batching;
pub(crate) mod branch;
pub(crate) mod challenge;
pub(crate) mod class;
pub(crate) mod contacts;
pub(crate) mod flow_param;
pub(crate) mod flow_token;
pub(crate) mod priority;
pub(crate) mod probe_branch;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod request_uri;
pub(crate) mod token;
mod token_parts;
pub(crate) mod transaction_branch;
pub(crate) mod way_back;
