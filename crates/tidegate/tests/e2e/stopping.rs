//! Tests of SIGTERM and other signals, and of the work that continues after them.

use rustix::process::Signal;

use crate::stage::{Configuration, Message, Peer, Stage, Tidegate, eventually};

/// An INVITE that rings at its back end.
struct Ringing {
    stage: Stage,
    tidegate: Tidegate,
    caller: Peer,
    backend: Peer,
    invite: Message,
}

impl Ringing {
    fn set_up() -> Self {
        Self::set_up_with(|_| {})
    }

    fn set_up_with(change: impl FnOnce(&mut Configuration)) -> Self {
        let stage = Stage::new();
        let (caller, backend) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
        let mut configuration = Configuration::new(&stage, &[backend.address()]);
        change(&mut configuration);
        let tidegate = Tidegate::start(&stage, &configuration);
        let here = tidegate.address();
        caller.send(here, &caller.request("INVITE", &format!("sip:bob@{here}"), 1, 1));
        let invite = backend.receive();
        backend.send(here, &backend.response(&invite, "180 Ringing"));
        assert_eq!(caller.receive().status(), 180);
        Self { stage, tidegate, caller, backend, invite }
    }
}

#[test]
fn without_open_work_it_stops_at_once() {
    let stage = Stage::new();
    let backend = Peer::new(stage.ip());
    let mut tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[backend.address()]));
    assert_eq!(tidegate.get("/readyz"), Some((200, "admitting\n".to_owned())));
    tidegate.stop();
    assert!(tidegate.process().log().ends_with("no transaction was open\n"));
}

#[test]
fn unused_signals_do_not_end_it_and_sigquit_acts_like_sigterm() {
    let mut ringing = Ringing::set_up();
    let tidegate = &mut ringing.tidegate;
    for (signal, name) in
        [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2"), (Signal::ALARM, "SIGALRM")]
    {
        tidegate.signal(signal);
        tidegate.signal(signal);
        let said = format!("\ntidegate: ignored {name}: Tidegate does not use this signal\n");
        eventually("it is told", || tidegate.process().log().contains(&said).then_some(()));
    }
    tidegate.signal(Signal::PIPE);
    assert_eq!(tidegate.get("/readyz"), Some((200, "admitting\n".to_owned())));
    tidegate.signal(Signal::QUIT);
    eventually("it drains", || tidegate.get("/readyz").filter(|answer| answer.0 == 503));
    assert_eq!(tidegate.process().log().matches("ignored SIGUSR1").count(), 1, "once");
    let Ringing { mut tidegate, caller, backend, invite, .. } = ringing;
    backend.accept(&invite, tidegate.address(), &caller);
    assert_eq!(tidegate.exit().code(), Some(0));
}

/// A regression: a script that reloaded again and again kept the process from stopping.
#[test]
fn a_storm_of_sighups_does_not_prevent_stopping() {
    let stage = Stage::new();
    let backend = Peer::new(stage.ip());
    let mut tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[backend.address()]));
    let (mut asked, mut after) = (false, 0);
    eventually("it has stopped", || {
        for _ in 0..1000 {
            tidegate.signal(Signal::HUP);
        }
        if !asked {
            tidegate.signal(Signal::TERM);
            asked = true;
        }
        after += 1;
        tidegate.process().ended()
    });
    assert!(after > 0 && tidegate.process().log().ends_with("no transaction was open\n"));
}

#[test]
fn a_ringing_call_is_set_up_before_the_process_ends() {
    let Ringing { stage, mut tidegate, caller, backend, invite } = Ringing::set_up();
    let here = tidegate.address();
    tidegate.signal(Signal::TERM);
    eventually("it is not ready any more", || {
        (tidegate.get("/readyz") == Some((503, "draining\n".to_owned()))).then_some(())
    });

    let late = Peer::new(stage.ip());
    let rejected = late.ask(here, &late.request("INVITE", &format!("sip:bob@{here}"), 2, 1));
    assert_eq!(rejected.status(), 503, "no new call");
    assert!(tidegate.process().ended().is_none());

    // RFC 3261 §13.2.2.4: a call is set up only when the ACK has reached the callee.
    backend.accept(&invite, here, &caller);
    assert_eq!(tidegate.exit().code(), Some(0));
    assert!(tidegate.process().log().ends_with("no transaction was open\n"));
}

#[test]
fn a_call_that_rings_too_long_is_given_up() {
    let ringing = Ringing::set_up_with(|configuration| configuration.drain_seconds = 1);
    let Ringing { stage: _stage, mut tidegate, .. } = ringing;
    tidegate.stop();
    assert!(tidegate.process().log().ends_with("with open transactions\n"));
}

#[test]
fn a_second_signal_stops_it_at_once() {
    let mut ringing = Ringing::set_up();
    let tidegate = &mut ringing.tidegate;
    tidegate.signal(Signal::TERM);
    eventually("it drains", || tidegate.get("/readyz").filter(|answer| answer.0 == 503));
    assert!(tidegate.process().ended().is_none());
    tidegate.signal(Signal::TERM);
    assert_eq!(tidegate.exit().code(), Some(1));
    assert!(tidegate.process().log().ends_with("after a second signal\n"));
}
