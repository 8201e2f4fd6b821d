//! Tests of several Tidegates at one address: they share keys, and no other state.

use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::Value;

use crate::stage::{Configuration, Message, Peer, Stage, Tidegate, eventually, repeat_what_is_due};

/// Number of callers, enough that each process gets some: the kernel divides them by a hash of
/// their ports.
const CALLERS: usize = 32;

/// Two processes at one address, each with an additional address of its own, and two back ends.
struct Site {
    stage: Stage,
    configuration: Configuration,
    address: SocketAddr,
    backends: [Peer; 2],
    first: Tidegate,
    second: Tidegate,
}

/// An established call.
struct Call {
    caller: Peer,
    /// Index of the back end that serves the call.
    backend: usize,
    /// Own address of the process that set up the call.
    through: SocketAddr,
    ok: Message,
}

impl Site {
    fn open() -> Self {
        let stage = Stage::new();
        let address = stage.free_address();
        let backends = [(); 2].map(|()| Peer::new(stage.ip()));
        let mut configuration = Configuration::new(&stage, &backends.each_ref().map(Peer::address));
        configuration.more = format!(
            "[[listen]]\ntransport = \"udp\"\naddress = \"{address}\"\nshared = \"processes\"\n"
        );
        let [first, second] = [(); 2].map(|()| Tidegate::start(&stage, &configuration));
        Self { stage, configuration, address, backends, first, second }
    }

    /// Returns a request of a caller as a back end receives it: the back end, the message, and its
    /// source. Skips retransmissions.
    fn arrived(&self, method: &str, caller: &Peer) -> (usize, Message, SocketAddr) {
        let call = caller.call_id(1);
        eventually(method, || {
            // Requests that were in transit to an ended process are lost, so they are
            // retransmitted.
            repeat_what_is_due();
            let mut backends = self.backends.iter().enumerate();
            backends.find_map(|(index, backend)| {
                let (message, from) = backend.next_from_now()?;
                let is_it = message.start().starts_with(method) && message.field("Call-ID") == call;
                is_it.then_some((index, message, from))
            })
        })
    }

    /// Begins a call, which rings.
    fn invite(&self, caller: &Peer) -> (usize, Message, SocketAddr) {
        let uri = format!("sip:bob@{}", self.address);
        caller.send(self.address, &caller.request("INVITE", &uri, 1, 1));
        let (backend, invite, through) = self.arrived("INVITE", caller);
        let callee = &self.backends[backend];
        callee.send(through, &callee.response(&invite, "180 Ringing"));
        (backend, invite, through)
    }

    /// Answers a call.
    fn answer(
        &self,
        caller: Peer,
        (backend, invite, through): (usize, Message, SocketAddr),
    ) -> Call {
        let callee = &self.backends[backend];
        callee.send(through, &callee.response(&invite, "200 OK"));
        let ok = self.expect_ok(&caller);
        caller.send(self.address, &caller.in_dialog("ACK", &ok, 1));
        assert_eq!(self.arrived("ACK", &caller).0, backend);
        Call { caller, backend, through, ok }
    }

    /// Returns the 200 that a caller receives from the shared address.
    fn expect_ok(&self, caller: &Peer) -> Message {
        loop {
            let (response, from) = caller.receive_from();
            assert_eq!(from, self.address);
            if response.status() >= 200 {
                assert_eq!(response.status(), 200, "{}", response.0);
                return response;
            }
        }
    }

    fn call(&self) -> Call {
        let caller = Peer::new(self.stage.ip());
        let invite = self.invite(&caller);
        self.answer(caller, invite)
    }

    /// Returns the keys of a process after `command`.
    fn keys(&self, of: &Tidegate, command: &str) -> Value {
        let (status, said) = of.ctl(&self.stage, &["--json", command]);
        assert_eq!(status, Some(0), "{said}");
        serde_json::from_str::<Value>(&said).expect("what is said is JSON")["keys"].take()
    }
}

#[test]
fn the_calls_of_a_killed_process_are_ended_through_the_other() {
    let mut site = Site::open();
    let [first, second] = [&site.first, &site.second].map(Tidegate::address);
    let calls: Vec<_> = (0..CALLERS).map(|_| site.call()).collect();
    for own in [first, second] {
        assert!(calls.iter().any(|call| call.through == own), "none through {own}");
    }

    site.first.signal(Signal::KILL);
    site.first.exit();
    for Call { caller, backend, ok, .. } in &calls {
        caller.send(site.address, &caller.in_dialog("BYE", ok, 2));
        let (to, bye, through) = site.arrived("BYE", caller);
        assert_eq!((to, through), (*backend, second));
        site.backends[to].send(through, &site.backends[to].response(&bye, "200 OK"));
        site.expect_ok(caller);
    }
}

#[test]
fn a_process_that_is_told_to_end_rejects_no_call() {
    let mut site = Site::open();
    let [first, second] = [&site.first, &site.second].map(Tidegate::address);
    let (ringing, invite) = eventually("a call through the first", || {
        let caller = Peer::new(site.stage.ip());
        let invite = site.invite(&caller);
        if invite.2 == first {
            return Some((caller, invite));
        }
        site.answer(caller, invite);
        None
    });
    site.first.signal(Signal::TERM);
    // No process may reject a call, because the back end would then never get it.
    let through_all = || (0..CALLERS).map(|_| site.call().through).collect::<Vec<_>>();
    eventually("it has left", || {
        through_all().iter().all(|through| *through == second).then_some(())
    });
    assert!(through_all().iter().all(|through| *through == second));

    let call = site.answer(ringing, invite);
    assert_eq!(call.through, first);
    assert!(site.first.process().ended().is_none(), "it has waited for the answer");
}

/// The kernel gives some of the callers to a process that joins.
#[test]
fn a_process_that_joins_serves_the_calls_of_the_others() {
    let site = Site::open();
    let calls: Vec<_> = (0..CALLERS).map(|_| site.call()).collect();
    let third = Tidegate::start(&site.stage, &site.configuration);
    let mut through_third = 0;
    for Call { caller, backend, ok, .. } in &calls {
        caller.send(site.address, &caller.in_dialog("BYE", ok, 2));
        let (to, bye, through) = site.arrived("BYE", caller);
        assert_eq!(to, *backend);
        through_third += usize::from(through == third.address());
        site.backends[to].send(through, &site.backends[to].response(&bye, "200 OK"));
        site.expect_ok(caller);
    }
    assert!(through_third > 0, "no caller is given to it");
    assert!((0..CALLERS).any(|_| site.call().through == third.address()), "no call through it");
}

/// RFC 3261 §8.1.1.4 and §8.1.1.7. When a peer got the port of an earlier peer, its first call once
/// looked like a retransmission of that peer's call, so the INVITE never arrived.
#[test]
fn a_caller_at_the_port_of_an_earlier_one_starts_a_new_call() {
    let site = Site::open();
    let call = site.call();
    let address = call.caller.address();
    drop(call);
    let caller = Peer::at(address);
    let invite = site.invite(&caller);
    site.answer(caller, invite);
}

#[test]
fn a_key_made_by_one_process_becomes_known_to_the_other() {
    let site = Site::open();
    let before = site.keys(&site.second, "keys");
    let made = site.keys(&site.first, "rotate");
    assert_eq!((&made[0]["version"], &made[0]["role"]), (&2.into(), &"next".into()));
    assert_eq!((&made[1]["version"], &made[1]["role"]), (&1.into(), &"current".into()));
    assert_eq!(before.as_array().map(Vec::len), Some(1));
    eventually("it has read the file", || {
        (site.keys(&site.second, "keys")[0]["version"] == 2).then_some(())
    });

    let (status, said) = site.second.ctl(&site.stage, &["rotate"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("key 2 is not in use yet; wait for another "), "{said}");
}
