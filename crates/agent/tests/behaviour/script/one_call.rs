//! A caller with one call to make.

use std::time::Duration;

use tidegate_agent::{Caller, CallerConfig, Load, Process};
use tidegate_world::{Pool, Seed, Timestamp};

use super::{Script, Sent, response, uac, uas};

/// Returns the configuration of a caller with one call, which starts at 0 ms and is held for 10 s.
pub fn config() -> CallerConfig {
    let load = Load { process: Process::Uniform, rate_cps: 1.0, calls: 1, ..Load::default() };
    CallerConfig { load, hold: Duration::from_secs(10).into(), ..CallerConfig::new(uac(), uas()) }
}

/// Returns a caller that has sent its INVITE.
pub fn calling(config: CallerConfig) -> (Script<Caller>, Sent) {
    let caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap();
    let mut script = Script::new(caller, uac());
    let invite = script.until(0).sent_one();
    assert_eq!(invite.what(), "INVITE");
    (script, invite)
}

/// Returns the 200 to `invite`.
pub fn ok(invite: &Sent) -> String {
    response(invite, 200, ";tag=b", "Contact: <sip:bob@192.0.2.22:5070>\n")
}
