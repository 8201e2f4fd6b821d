//! RFC 3261 §18.2.2 with several shards: a connection belongs to one shard, and the messages of a
//! call may arrive at any.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::script::{BACKEND_A, PROXY, Sent, address, request, secret};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_control::Bucket;
use tidegate_proxy::{Class, Counters, Listener, Mode, PoolSettings, Proxy, ReplyReason, Settings};
use tidegate_transport::{ConnectionLimits, Streams};
use tidegate_world::{
    Cause, CloseCause, ConnectionId, Core, Failure, Flow, HandoffInput, Pool, Received, Seed,
    ShardIndex, Timestamp, Transport,
};

const PHONE: &str = "203.0.113.9:40123";
const CONTACT: &str = "sip:alice@192.168.1.2:5060";
const SUPPORTED: &str = "Supported: path\r\n";
const BODY: &str = "body";

/// A message that a shard has sent: the shard, the flow, and the text.
type Carried = (u16, Flow, Sent);

/// Two shards of one process.
struct Mesh {
    shards: [Streams<Proxy>; 2],
    counters: [Arc<Counters>; 2],
    now: Timestamp,
    pool: Pool,
}

fn place(shard: u16) -> ShardIndex {
    ShardIndex::new(shard, 2)
}

fn shard_of(flow: Flow) -> u16 {
    flow.connection.expect("a stream").shard(place(0))
}

impl Mesh {
    /// Makes a process that listens on UDP and TCP and reaches its back end over `inside`.
    fn new(inside: Transport, mode: Mode) -> Self {
        Self::started(inside, mode, Seed(0), None)
    }

    /// Does the same as [`new`](Self::new) with this seed. `before` is the seed of the previous
    /// process.
    fn started(inside: Transport, mode: Mode, seed: Seed, before: Option<Seed>) -> Self {
        Self::with_backends(&[BACKEND_A], inside, mode, seed, before)
    }

    /// Does the same as [`started`](Self::started) with these back ends.
    fn with_backends(
        backends: &[&str],
        inside: Transport,
        mode: Mode,
        seed: Seed,
        before: Option<Seed>,
    ) -> Self {
        let adjust = |settings: &mut Settings| {
            (settings.seed, settings.before) = (seed, before);
        };
        Self::adjusted(backends, inside, mode, adjust)
    }

    /// Does the same as [`with_backends`](Self::with_backends), and adjusts the settings of shards.
    fn adjusted(
        backends: &[&str],
        inside: Transport,
        mode: Mode,
        adjust: impl Fn(&mut Settings),
    ) -> Self {
        let named: Vec<_> = backends.iter().map(|at| (*at, address(at), 1)).collect();
        let pool = Pool::new();
        let counters: [Arc<Counters>; 2] = Default::default();
        let shard = |shard: u16| {
            let counters = Arc::clone(&counters[usize::from(shard)]);
            let datagrams = Listener::new(address(PROXY));
            let trust = vec!["203.0.113.0/24".parse().unwrap()];
            let streams = Listener { transport: Transport::Tcp, trust, ..datagrams.clone() };
            let backends = balance::Pool::new("app", &named);
            let listener = Some(usize::from(inside.is_reliable()));
            let pools =
                vec![PoolSettings { mode, listener, ..PoolSettings::new(backends, Policy::Rr) }];
            let settings = Settings::new(vec![datagrams, streams], pools, secret(1));
            let mut settings = Settings { shard, shards: 2, ..settings };
            adjust(&mut settings);
            let proxy = Proxy::new(settings, counters, pool.clone());
            Streams::new(proxy, ConnectionLimits::default(), pool.clone()).in_shard(place(shard))
        };
        let shards = [shard(0), shard(1)];
        Self { shards, counters, now: Timestamp::from_nanos(1_000_000_000), pool }
    }

    /// Opens a connection from a peer to a shard.
    fn accept(&mut self, shard: u16, remote: &str) -> Flow {
        let id = ConnectionId::first_accepted(place(shard));
        let flow = Flow::connected(Transport::Tcp, address(PROXY), address(remote), id);
        self.shards[usize::from(shard)].on_connected(self.now, flow);
        flow
    }

    /// Opens a connection from the same host to each shard.
    fn accept_at_each(&mut self, host: &str) -> [Flow; 2] {
        [0, 1].map(|shard| self.accept(shard, &format!("{host}:4000{shard}")))
    }

    /// Offers a message to a shard. Returns what all shards send because of it.
    fn offer(&mut self, shard: u16, flow: Flow, text: &str) -> Vec<Carried> {
        self.offer_after(shard, flow, text, 0)
    }

    fn offer_after(&mut self, shard: u16, flow: Flow, text: &str, handoffs: u8) -> Vec<Carried> {
        let bytes = self.pool.copy(text.as_bytes());
        let received = Received { handoffs, ..Received::new(self.now, flow, bytes) };
        self.shards[usize::from(shard)].offer(self.now, received);
        self.settle()
    }

    /// Lets the shards serve and hand off messages until none is left. Opens the connections that
    /// the shards want. Returns the messages sent.
    fn settle(&mut self) -> Vec<Carried> {
        let (mut sent, mut handoffs, now) = (Vec::new(), VecDeque::new(), self.now);
        loop {
            for (shard, core) in (0..).zip(&mut self.shards) {
                while core.serve(now) {}
                while core.poll_timeout().is_some_and(|due| due <= now) {
                    core.handle_timeout(now);
                }
                while let Some(connect) = core.poll_connect() {
                    assert_eq!(connect.id.shard(place(0)), shard);
                    let (transport, local, remote) =
                        (connect.transport, connect.local, connect.remote);
                    core.on_connected(now, Flow::connected(transport, local, remote, connect.id));
                }
                while let Some(t) = core.poll_transmit() {
                    let of = t.flow.connection.map_or(shard, |_| shard_of(t.flow));
                    assert_eq!(of, shard, "a shard sends on its own connections");
                    sent.push((shard, t.flow, Sent::of(&t)));
                }
                handoffs.extend(std::iter::from_fn(|| core.poll_handoff()));
            }
            let Some(handoff) = handoffs.pop_front() else { return sent };
            let core = &mut self.shards[usize::from(handoff.shard)];
            match handoff.input {
                HandoffInput::Received(mut received) => {
                    received.handoffs += 1;
                    core.offer(now, received);
                }
                HandoffInput::Transmit(transmit) => core.on_transmit(now, transmit),
                HandoffInput::Failure(failure) => {
                    assert!(!failure.quote.ends_with(BODY.as_bytes()), "{failure:?}");
                    core.on_failed(now, failure);
                }
            }
        }
    }

    /// Returns the number of messages that the counters of the shards show as received.
    fn received(&self) -> u64 {
        let count = |counters: &Arc<Counters>| -> u64 {
            Class::ALL.iter().map(|&class| counters.received(class).get()).sum()
        };
        self.counters.iter().map(count).sum()
    }

    /// Returns the new calls that the counters of the shards show as offered and as admitted.
    fn new_calls(&self) -> [u64; 2] {
        let flows = self.counters.iter().map(|c| &c.overload.flows[Bucket::Session as usize]);
        flows.fold([0, 0], |[offered, admitted], flow| {
            [offered + flow.offered.get(), admitted + flow.admitted.get()]
        })
    }

    /// Registers a phone at a shard. Returns the Path that the registrar gets.
    fn register(&mut self, phone: Flow) -> String {
        let more = format!("Contact: <{CONTACT}>\r\n{SUPPORTED}");
        let text = request("REGISTER", "sip:192.0.2.1", "r", 1, &more);
        let via = "SIP/2.0/UDP 198.51.100.7:5060";
        let text = text.replace(via, "SIP/2.0/TCP 192.168.1.2;rport");
        let shard = shard_of(phone);
        only(self.offer(shard, phone, &text), "REGISTER").2.header("Path").to_owned()
    }
}

fn registrar() -> Flow {
    Flow::udp(address(PROXY), address(BACKEND_A))
}

/// Returns a request of the registrar for the phone, with this Route.
fn inward(method: &str, cseq: u32, route: &str, more: &str) -> String {
    let text = request(method, CONTACT, "c", cseq, &format!("Route: {route}\r\n{more}"));
    text.replace("198.51.100.7:5060", BACKEND_A)
}

/// Returns a request of a caller at `host` for the service, over TCP.
fn outward(method: &str, host: &str, more: &str) -> String {
    let text = request(method, "sip:bob@192.0.2.1", "c", 1, more);
    text.replace("SIP/2.0/UDP 198.51.100.7:5060", &format!("SIP/2.0/TCP {host}:5060"))
}

/// Returns the only message that begins with `start`.
fn only(sent: Vec<Carried>, start: &str) -> Carried {
    let is_found = |(.., sent): &&Carried| sent.start().starts_with(start);
    let found: Vec<_> = sent.iter().filter(is_found).cloned().collect();
    assert_eq!(found.len(), 1, "{start} in {sent:#?}");
    found.into_iter().next().expect("one")
}

/// RFC 5626 §5.3.1: "the proxy removes the Route header field value and forwards the request over
/// the 'logical flow' identified by the flow token, that is known to deliver data to the specific
/// target UA instance."
#[test]
fn a_call_finds_the_phone_whose_connection_another_shard_has() {
    for mode in [Mode::Transaction, Mode::Stateless, Mode::Adaptive] {
        // The datagrams of the registrar arrive at shard 0 or at shard 1.
        for at in [0, 1] {
            let mut mesh = Mesh::new(Transport::Udp, mode);
            let phone = mesh.accept(1, PHONE);
            let path = mesh.register(phone);
            let invite = inward("INVITE", 1, &path, "");
            let (shard, flow, invite) = only(mesh.offer(at, registrar(), &invite), "INVITE");
            assert_eq!((shard, flow.connection), (1, phone.connection), "{mode:?}");
            let (_, to, ok) = only(mesh.offer(1, phone, &invite.answer("200 OK")), "SIP/2.0 200");
            assert_eq!(to.remote, address(BACKEND_A));
            // RFC 3261 §12.1.2: the route set is "in reverse order".
            let routes: Vec<_> = ok.all("Record-Route").into_iter().rev().collect();
            let routes = routes.join(", ");
            for (method, cseq) in [("ACK", 1), ("BYE", 2)] {
                let text = inward(method, cseq, &routes, "Totag\r\n");
                let (shard, flow, _) = only(mesh.offer(at, registrar(), &text), method);
                assert_eq!((shard, flow.connection), (1, phone.connection), "{mode:?} {method}");
            }
            // REGISTER, INVITE, 200, ACK, BYE.
            assert_eq!(mesh.received(), 5, "a message that is handed off counts once");
            assert_eq!(mesh.new_calls(), [1, 1], "{mode:?} {at}: and so does its call");
        }
    }
}

/// A shard that does not have a call verifies its requests by their token alone. RFC 3261 §12.2.2:
/// "Based on the To tag, the UAS MAY either accept or reject the request."
#[test]
fn an_invite_with_an_invented_to_tag_passes_the_law_at_no_shard() {
    let caller = Flow::udp(address(PROXY), address("198.51.100.7:5060"));
    let mut mesh = Mesh::adjusted(&[BACKEND_A], Transport::Udp, Mode::Transaction, |settings| {
        settings.overload.gate.law = crate::fixed::law(&[("share", 0.0)]);
    });
    let invite = request("INVITE", "sip:bob@192.0.2.1", "c", 1, "");
    // The law rejects everything, so another shard has admitted this call.
    let (_, _, invite) = only(mesh.offer_after(0, caller, &invite, 1), "INVITE");
    let backend = Flow::udp(address(PROXY), address(BACKEND_A));
    mesh.offer(0, backend, &invite.answer("200 OK"));
    let route = format!("Route: {}\r\nTotag\r\n", invite.header("Record-Route"));
    for at in [0, 1] {
        let text = request("INVITE", "sip:bob@192.0.2.1", "c", 2 + at, &route);
        let text = text.replace(";tag=callee", &format!(";tag=invented{at}"));
        only(mesh.offer(at as u16, caller, &text), "SIP/2.0 503");
    }
}

/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
/// response to the request."
#[test]
fn a_flow_of_another_shard_that_has_ended_is_reported_to_the_shard_of_the_request() {
    for (mode, handoffs) in [(Mode::Transaction, 0), (Mode::Transaction, 1), (Mode::Stateless, 0)] {
        let mut mesh = Mesh::new(Transport::Udp, mode);
        let phone = mesh.accept(1, PHONE);
        let path = mesh.register(phone);
        mesh.shards[1].on_closed(mesh.now, phone.connection.unwrap(), CloseCause::Ended);
        // After a handoff the request stays at shard 0, so shard 1 reports the failure to it.
        let invite = inward("INVITE", 1, &path, "");
        let sent = mesh.offer_after(0, registrar(), &invite, handoffs);
        only(sent, "SIP/2.0 430 ");
    }
}

/// A process whose shard 0 has a BYE of a registrar to a phone, but no room for a transaction. The
/// connection of the phone belongs to shard 1. Shard 0 does not hand the BYE off, because it was
/// handed off before.
struct Unsent {
    mesh: Mesh,
    phone: Flow,
    registrar: Flow,
    bye: String,
}

impl Unsent {
    fn new(inside: Transport) -> Self {
        let no_room = |settings: &mut Settings| {
            if settings.shard == 0 {
                settings.transactions_max = 0;
            }
        };
        let mut mesh = Mesh::adjusted(&[BACKEND_A], inside, Mode::Stateless, no_room);
        let phone = mesh.accept(1, PHONE);
        let path = mesh.register(phone);
        let registrar = match inside {
            Transport::Udp => registrar(),
            _ => mesh.accept(0, "10.0.0.1:33000"),
        };
        let bye = inward("BYE", 2, &path, "Totag\r\n");
        let bye = bye.replace("SIP/2.0/UDP", &format!("SIP/2.0/{inside}"));
        let body = format!("Content-Length: {}\r\n\r\n{BODY}", BODY.len());
        let bye = bye.replace("Content-Length: 0\r\n\r\n", &body);
        Self { mesh, phone, registrar, bye }
    }
}

/// RFC 3261 §16.9: "If the transport layer notifies a proxy of an error when it tries to forward a
/// request (see Section 18.4), the proxy MUST behave as if the forwarded request received a 503
/// (Service Unavailable) response." RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD
/// send a 430 (Flow Failed) response to the request."
#[test]
fn a_request_without_a_transaction_that_another_shard_cannot_send_is_rejected() {
    for inside in [Transport::Udp, Transport::Tcp] {
        let Unsent { mut mesh, phone, registrar, bye } = Unsent::new(inside);
        mesh.shards[1].on_closed(mesh.now, phone.connection.unwrap(), CloseCause::Ended);
        let sent = mesh.offer_after(0, registrar, &bye, 1);
        let (shard, to, _) = only(sent, "SIP/2.0 430");
        assert_eq!((shard, to.connection), (0, registrar.connection), "{inside}");
        let rejections = [0, 1]
            .map(|shard: usize| mesh.counters[shard].replied_for(430, ReplyReason::FlowGone).get());
        assert_eq!(rejections, [1, 0], "{inside}: the shard of the request counts it");
    }
}

/// If the driver cannot hand a message off, it reports a failure of this message.
#[test]
fn a_request_without_a_transaction_that_cannot_be_handed_off_gets_503() {
    for inside in [Transport::Udp, Transport::Tcp] {
        let Unsent { mut mesh, phone, registrar, bye } = Unsent::new(inside);
        let received = Received::new(mesh.now, registrar, mesh.pool.copy(bye.as_bytes()));
        let core = &mut mesh.shards[0];
        core.offer(mesh.now, Received { handoffs: 1, ..received });
        while core.serve(mesh.now) {}
        let handoff = core.poll_handoff().expect("the BYE");
        let HandoffInput::Transmit(transmit) = handoff.input else { panic!("{handoff:?}") };
        assert_eq!((handoff.shard, transmit.flow.connection), (1, phone.connection), "{inside}");
        let failure = Failure::unsent(transmit.flow, Cause::Full, &transmit.bytes);
        core.on_failed(mesh.now, failure);
        let (shard, to, _) = only(mesh.settle(), "SIP/2.0 503");
        assert_eq!((shard, to.connection), (0, registrar.connection), "{inside}");
    }
}

/// RFC 5626 §7 names "a destination unreachable ICMP error on a UDP flow" as a failed flow. The kernel
/// may give the error to any shard.
#[test]
fn an_icmp_error_is_reported_to_the_shard_of_the_request() {
    for at in [0, 1] {
        let mut mesh = Mesh::new(Transport::Udp, Mode::Transaction);
        let phone = Flow::udp(address(PROXY), address(PHONE));
        let more = format!("Contact: <{CONTACT}>\r\n{SUPPORTED}");
        let register = request("REGISTER", "sip:192.0.2.1", "r", 1, &more);
        let register = register.replace("198.51.100.7:5060", "192.168.1.2;rport");
        let (_, _, register) = only(mesh.offer(0, phone, &register), "REGISTER");
        let invite = inward("INVITE", 1, register.header("Path"), "");
        let (shard, to, invite) = only(mesh.offer(0, registrar(), &invite), "INVITE");
        assert_eq!((shard, to.remote), (0, phone.remote));
        let error = Failure::new(to, Cause::Refused, invite.text.as_bytes());
        mesh.shards[at].on_failed(mesh.now, error);
        mesh.settle();
        mesh.now = mesh.now + Duration::from_millis(600);
        only(mesh.settle(), "SIP/2.0 430 ");
    }
}

/// RFC 3261 §18.2.2: "the response MUST be sent using the existing connection to the source of the
/// original request that created the transaction, if that connection is still open."
///
/// A back end may open another connection for its BYE, and the kernel may give it to any shard.
#[test]
fn a_request_on_a_new_connection_of_the_back_end_reaches_the_caller_and_is_answered_there() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut mesh = Mesh::new(Transport::Tcp, mode);
        let caller = mesh.accept(0, PHONE);
        let contact = format!("Contact: <{CONTACT};transport=tcp>\r\n");
        let invite = request("INVITE", "sip:bob@192.0.2.1", "c", 1, &contact);
        let via = "SIP/2.0/UDP 198.51.100.7:5060";
        let invite = invite.replace(via, "SIP/2.0/TCP 192.168.1.2:5060;rport");
        let (shard, backend, invite) = only(mesh.offer(0, caller, &invite), "INVITE");
        assert_eq!((shard, backend.remote), (0, address(BACKEND_A)));
        let sent = mesh.offer(0, backend, &invite.answer("200 OK"));
        assert_eq!(only(sent, "SIP/2.0 200").1.connection, caller.connection);

        let other = mesh.accept(1, "10.0.0.1:33000");
        let bye = format!(
            "BYE {CONTACT};transport=tcp SIP/2.0\r\n\
             Via: SIP/2.0/TCP 10.0.0.1:5070;branch=z9hG4bK-bye\r\n\
             Route: {}\r\nFrom: <sip:bob@example.com>;tag=callee\r\n\
             To: <sip:alice@example.com>;tag=caller\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\
             Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n",
            invite.header("Record-Route"),
        );
        let (shard, flow, bye) = only(mesh.offer(1, other, &bye), "BYE");
        assert_eq!((shard, flow.connection), (0, caller.connection), "{mode:?}");
        let (shard, flow, _) = only(mesh.offer(0, caller, &bye.answer("200 OK")), "SIP/2.0 200");
        assert_eq!((shard, flow.connection), (1, other.connection), "{mode:?}");
    }
}

/// RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a connection to
/// the IP address in the "received" parameter". A back end that has opened another connection for
/// its response may reach another shard.
#[test]
fn a_response_on_a_connection_of_another_shard_reaches_its_transaction() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut mesh = Mesh::new(Transport::Tcp, mode);
        let caller = mesh.accept(0, PHONE);
        let invite = request("INVITE", "sip:bob@192.0.2.1", "c", 1, "");
        let via = "SIP/2.0/UDP 198.51.100.7:5060";
        let invite = invite.replace(via, "SIP/2.0/TCP 192.168.1.2:5060;rport");
        let (_, _, invite) = only(mesh.offer(0, caller, &invite), "INVITE");
        let other = mesh.accept(1, "10.0.0.1:33000");
        let sent = mesh.offer(1, other, &invite.answer("200 OK"));
        let (shard, flow, _) = only(sent, "SIP/2.0 200");
        assert_eq!((shard, flow.connection), (0, caller.connection), "{mode:?}");
    }
}

/// RFC 3261 §9.1, §17.1.1.3: a CANCEL and the ACK to a rejection go to the target of their INVITE.
///
/// A registrar calls two phones of a user at once. Both legs of the call have the same Call-ID. The
/// phone of one leg is at the shard at which the requests of the registrar arrive.
#[test]
fn the_cancel_and_the_ack_of_a_leg_follow_its_invite_to_the_shard_of_the_phone() {
    for mode in [Mode::Transaction, Mode::Stateless, Mode::Adaptive] {
        let mut mesh = Mesh::new(Transport::Udp, mode);
        // The second leg makes shard 0 know the call.
        let phones = [mesh.accept(1, PHONE), mesh.accept(0, "203.0.113.9:40124")];
        let legs = phones.map(|phone| {
            let branch = format!("branch=z9hG4bK-leg{}", shard_of(phone));
            (phone, mesh.register(phone), branch)
        });
        let request = |method: &str, path: &str, branch: &str| {
            let text = inward(method, 1, path, "");
            let via = text.find("branch=").expect("a Via");
            let end = via + text[via..].find(['\r', ';']).expect("the end of the line");
            format!("{}{branch}{}", &text[..via], &text[end..])
        };
        let mut invites = Vec::new();
        for (phone, path, branch) in &legs {
            let sent = mesh.offer(0, registrar(), &request("INVITE", path, branch));
            let (_, flow, invite) = only(sent, "INVITE");
            assert_eq!(flow.connection, phone.connection);
            mesh.offer(shard_of(*phone), *phone, &invite.answer("180 Ringing"));
            invites.push(invite);
        }
        for ((phone, path, branch), invite) in legs.iter().zip(&invites) {
            let cancel = request("CANCEL", path, branch);
            let (_, flow, cancel) = only(mesh.offer(0, registrar(), &cancel), "CANCEL");
            assert_eq!(flow.connection, phone.connection, "{mode:?}");
            assert_eq!(
                cancel.branch(),
                invite.branch(),
                "{mode:?}: it has the branch of its INVITE"
            );
            let shard = shard_of(*phone);
            let mut sent = mesh.offer(shard, *phone, &invite.answer("487 Request Terminated"));
            if mode == Mode::Stateless {
                let ack = request("ACK", path, branch).replace("Totag", "");
                sent.extend(mesh.offer(0, registrar(), &ack));
            }
            let (_, flow, ack) = only(sent, "ACK");
            assert_eq!(flow.connection, phone.connection, "{mode:?}");
            assert_eq!(ack.branch(), invite.branch(), "{mode:?}");
        }
    }
}

/// The connections of a trunk to this proxy may belong to different shards. All shards look for the
/// INVITE of a trusted sender, but not of a stranger, who could make all shards work.
#[test]
fn a_cancel_of_a_trunk_on_another_connection_finds_its_invite() {
    for (source, is_trusted) in [("203.0.113.9", true), ("198.51.100.66", false)] {
        let mut mesh = Mesh::new(Transport::Udp, Mode::Transaction);
        let [first, second] = mesh.accept_at_each(source);
        let (_, _, invite) = only(mesh.offer(0, first, &outward("INVITE", source, "")), "INVITE");
        mesh.offer(0, registrar(), &invite.answer("180 Ringing"));
        let sent = mesh.offer(1, second, &outward("CANCEL", source, ""));
        let status = if is_trusted { "SIP/2.0 200" } else { "SIP/2.0 481" };
        assert_eq!(only(sent.clone(), status).1.connection, second.connection);
        assert_eq!(sent.iter().any(|(.., sent)| sent.start().starts_with("CANCEL")), is_trusted);
    }
}

/// A caller whose connection has broken sends its CANCEL and ACK on another one. The kernel may give
/// this connection to any shard. The other shard handles the requests of a stranger itself.
///
/// RFC 3261 §16.6: "In particular, CANCEL and ACK requests (for non-2xx responses) MUST have the
/// same branch value as the corresponding request they cancel or acknowledge." §16.11: "CANCEL and
/// non-Routed ACK requests MUST generate the same choice as their associated INVITE."
#[test]
fn cancel_and_ack_on_a_connection_of_another_shard_have_the_branch_of_their_invite() {
    for (host, serving) in [("203.0.113.9", 0), ("198.51.100.66", 1)] {
        let mut mesh = Mesh::new(Transport::Tcp, Mode::Stateless);
        let [first, second] = mesh.accept_at_each(host);
        let sent = mesh.offer(0, first, &outward("INVITE", host, ""));
        let (_, backend, invite) = only(sent, "INVITE");
        mesh.offer(0, backend, &invite.answer("180 Ringing"));
        mesh.shards[0].on_closed(mesh.now, first.connection.unwrap(), CloseCause::Reset);

        let sent = mesh.offer(1, second, &outward("CANCEL", host, ""));
        let (shard, flow, cancel) = only(sent, "CANCEL");
        assert_eq!((shard, cancel.branch()), (serving, invite.branch()), "{host}");
        let sent = mesh.offer(shard, flow, &cancel.answer("200 OK"));
        assert_eq!(only(sent, "SIP/2.0 200").1.connection, second.connection, "{host}");

        // RFC 3261 §18.2.2: the response to the INVITE needs another connection. It ends the call
        // at the shard of the INVITE.
        let sent = mesh.offer(0, backend, &invite.answer("487 Request Terminated"));
        let (shard, to, _) = only(sent, "SIP/2.0 487");
        assert_eq!((shard, to.remote), (0, address(&format!("{host}:5060"))));
        assert_eq!(mesh.counters[0].transactions_open.get(), 0, "{host}");
        let sent = mesh.offer(1, second, &outward("ACK", host, "Totag\r\n"));
        let (shard, _, ack) = only(sent, "ACK");
        assert_eq!((shard, ack.branch()), (serving, invite.branch()), "{host}");
    }
}

/// RFC 3261 §17.1.1.3: with a transaction, the proxy itself acknowledges the rejection. A request
/// that passes between a stream and datagrams always has a transaction.
#[test]
fn an_ack_on_a_connection_of_another_shard_is_dropped_if_its_invite_has_a_transaction() {
    for (inside, mode) in [(Transport::Tcp, Mode::Transaction), (Transport::Udp, Mode::Stateless)] {
        let mut mesh = Mesh::new(inside, mode);
        let host = "198.51.100.66";
        let [first, second] = mesh.accept_at_each(host);
        let sent = mesh.offer(0, first, &outward("INVITE", host, ""));
        let (_, backend, invite) = only(sent, "INVITE");
        let sent = mesh.offer(0, backend, &invite.answer("486 Busy Here"));
        only(sent, "SIP/2.0 486");
        let ack = outward("ACK", host, "Totag\r\n");
        assert!(mesh.offer(1, second, &ack).is_empty(), "{inside} {mode:?}");
    }
}

/// RFC 3261 §16.11: "Therefore, the component of the branch parameter that makes it unique MUST be
/// the same each time a retransmitted request is forwarded." Otherwise the callee would reject the
/// copy as a merged request (§8.2.2.2).
#[test]
fn a_copy_on_a_connection_of_another_shard_has_the_same_branch() {
    let mut mesh = Mesh::new(Transport::Tcp, Mode::Stateless);
    let host = "198.51.100.66";
    let [one, other] = mesh.accept_at_each(host).map(|flow| {
        let sent = mesh.offer(shard_of(flow), flow, &outward("INVITE", host, ""));
        only(sent, "INVITE").2
    });
    assert_eq!((one.to, one.branch()), (other.to, other.branch()));
}

/// RFC 3261 §16.10: "It MUST statelessly forward the CANCEL request (it may have statelessly
/// forwarded the associated request previously)." After a restart the caller has a new connection.
/// With a transaction, the branch of the INVITE contains the shard of its old connection.
#[test]
fn after_a_restart_a_cancel_at_any_shard_has_the_branch_of_its_invite() {
    let host = "198.51.100.66";
    for (mode, copies) in [(Mode::Transaction, 2), (Mode::Stateless, 1), (Mode::Adaptive, 3)] {
        let mut before = Mesh::new(Transport::Tcp, mode);
        let [phone, _] = before.accept_at_each(host);
        let sent = before.offer(0, phone, &outward("INVITE", host, ""));
        let (_, _, invite) = only(sent, "INVITE");

        let mut after = Mesh::started(Transport::Tcp, mode, Seed(1), Some(Seed(0)));
        let [_, phone] = after.accept_at_each(host);
        let sent = after.offer(1, phone, &outward("CANCEL", host, ""));
        let cancels = sent.into_iter().filter(|(.., sent)| sent.start().starts_with("CANCEL"));
        let (matching, others): (Vec<_>, Vec<_>) =
            cancels.partition(|(.., cancel)| cancel.branch() == invite.branch());
        assert_eq!((matching.len(), others.len()), (1, copies - 1), "{mode:?}");
        // The caller gets only the response of the back end that knows the INVITE.
        for (shard, flow, cancel) in others {
            assert!(after.offer(shard, flow, &cancel.answer("481 No Such Call")).is_empty());
        }
        for (shard, flow, cancel) in matching {
            let sent = after.offer(shard, flow, &cancel.answer("200 OK"));
            assert_eq!(only(sent, "SIP/2.0 200").1.connection, phone.connection, "{mode:?}");
        }
    }
}

/// RFC 3261 §16.10: "It MUST statelessly forward the CANCEL request". One CANCEL causes at most
/// eight copies. Each back end gets one copy, with the branch of the shard at which the CANCEL has
/// arrived, or with the branch of a request without transaction.
#[test]
fn after_a_restart_a_cancel_goes_to_all_back_ends_even_if_it_has_too_many_branches() {
    const BACKENDS: [&str; 5] =
        ["10.0.9.1:5070", "10.0.9.2:5070", "10.0.9.3:5070", "10.0.9.4:5070", "10.0.9.5:5070"];
    let host = "198.51.100.66";
    let started = |mode, seed, before| {
        Mesh::with_backends(&BACKENDS, Transport::Tcp, mode, Seed(seed), before)
    };
    for (mode, copies) in [(Mode::Transaction, 8), (Mode::Stateless, 5), (Mode::Adaptive, 8)] {
        let mut before = started(mode, 0, None);
        let [phone, _] = before.accept_at_each(host);
        let sent = before.offer(0, phone, &outward("INVITE", host, ""));
        let (_, _, invite) = only(sent, "INVITE");
        for at in 0..2 {
            let mut after = started(mode, 1, Some(Seed(0)));
            let phone = after.accept_at_each(host)[usize::from(at)];
            let sent = after.offer(at, phone, &outward("CANCEL", host, ""));
            let is_cancel = |(.., sent): &&Carried| sent.start().starts_with("CANCEL");
            let cancels: Vec<_> = sent.iter().filter(is_cancel).map(|(.., sent)| sent).collect();
            let to: BTreeSet<_> = cancels.iter().map(|sent| sent.to).collect();
            assert_eq!((cancels.len(), to.len()), (copies, 5), "{mode:?} at {at}");
            let is_its = |sent: &Sent| sent.to == invite.to && sent.branch() == invite.branch();
            let is_found = cancels.into_iter().any(is_its);
            assert!(is_found || at != 0 && mode != Mode::Stateless, "{mode:?} at {at}");
        }
    }
}
