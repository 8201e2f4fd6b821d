//! Tests of callers, callees and registering users in simulated time.

mod calls;
mod closed_loop;
mod devices;
mod elsewhere;
mod hostile;
mod net;
mod outcomes;
mod redial;
mod registrant;
mod retransmissions_off;
mod script;
mod uac;
mod uac_connections;
mod uac_ending;
mod uas;
mod uas_behaviour;
