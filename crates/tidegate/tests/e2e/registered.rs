//! Tests of phones that register through Tidegate at a Kamailio, and get calls from there: Path
//! (RFC 3327) and outbound (RFC 5626).

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::products::kamailio;
use crate::stage::{
    Configuration, Message, Peer, Process, Stage, TextStream, Tidegate, eventually,
};
use crate::tls::certificates::{Authority, VALID};
use crate::tls::client::within;
use crate::{tls, ws};

/// Routes of a registrar that stores the Path of a phone, and sends calls for the phone along it.
const REGISTRAR: &str = r#"
loadmodule "sl.so"
loadmodule "tm.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
modparam("registrar", "use_path", 1)
modparam("registrar", "path_mode", 1)
request_route {
	if (has_totag()) {
		if (loose_route() || is_method("ACK")) t_relay();
		exit;
	}
	if (is_method("CANCEL")) {
		t_relay();
		exit;
	}
	if (is_method("REGISTER")) {
		save("location");
		exit;
	}
	if (!lookup("location")) {
		sl_send_reply("404", "Not Registered");
		exit;
	}
	record_route();
	t_relay();
}
"#;

/// The address that a phone behind address translation writes into its messages.
const INSIDE: &str = "192.168.1.2:5060";

/// A phone that knows no address of its own.
trait Phone {
    fn request(&self, method: &str, uri: &str, number: u32, cseq: u32) -> Message;
    fn send(&mut self, message: &Message);
    fn receive(&mut self) -> Message;

    /// Sends a request and returns its final response.
    fn ask(&mut self, request: &Message) -> Message {
        self.send(request);
        loop {
            let answer = self.receive();
            if answer.status() >= 200 {
                return answer;
            }
        }
    }
}

/// Returns a request of `peer` as a phone behind address translation writes it.
fn translated(peer: &Peer, transport: &str, request: &Message) -> Message {
    let here = peer.address().to_string();
    let via = format!("SIP/2.0/{transport} {INSIDE};rport;");
    let text = request.0.replace(&format!("SIP/2.0/UDP {here};"), &via);
    Message(text.replace(&format!("<sip:caller@{here}>"), &format!("<sip:caller@{INSIDE}>")))
}

struct UdpPhone {
    peer: Peer,
    to: SocketAddr,
}

impl Phone for UdpPhone {
    fn request(&self, method: &str, uri: &str, number: u32, cseq: u32) -> Message {
        translated(&self.peer, "UDP", &self.peer.request(method, uri, number, cseq))
    }

    fn send(&mut self, message: &Message) {
        self.peer.send(self.to, message);
    }

    fn receive(&mut self) -> Message {
        self.peer.receive()
    }
}

struct TcpPhone {
    stream: TextStream<TcpStream>,
    /// Writes the phone's messages.
    peer: Peer,
}

impl TcpPhone {
    fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).expect("it accepts");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout above zero");
        Self { stream: TextStream::new(stream), peer: Peer::new(to.ip()) }
    }
}

impl Phone for TcpPhone {
    fn request(&self, method: &str, uri: &str, number: u32, cseq: u32) -> Message {
        translated(&self.peer, "TCP", &self.peer.request(method, uri, number, cseq))
    }

    fn send(&mut self, message: &Message) {
        self.stream.send_bytes(message.0.as_bytes());
    }

    fn receive(&mut self) -> Message {
        self.stream.next().expect("a message before the end of the connection")
    }
}

impl Phone for tls::client::Client {
    fn request(&self, method: &str, uri: &str, number: u32, cseq: u32) -> Message {
        self.request(method, uri, number, cseq)
    }

    fn send(&mut self, message: &Message) {
        self.send(message);
    }

    fn receive(&mut self) -> Message {
        self.receive()
    }
}

impl Phone for ws::client::Client {
    fn request(&self, method: &str, uri: &str, number: u32, cseq: u32) -> Message {
        self.request(method, uri, number, cseq)
    }

    fn send(&mut self, message: &Message) {
        self.send(message);
    }

    fn receive(&mut self) -> Message {
        self.receive()
    }
}

/// A Tidegate with a listener for each transport in front of a registrar, and a caller behind the
/// registrar.
struct Scene {
    authority: Authority,
    configuration: Configuration,
    registrar: SocketAddr,
    caller: Peer,
    _kamailio: Process,
    tidegate: Option<Tidegate>,
    /// Fields are dropped in order, so the directory is removed only after the programs in it have
    /// ended.
    stage: Stage,
}

impl Scene {
    fn new(shards: u16) -> Self {
        let stage = Stage::new();
        let registrar = stage.free_address();
        let kamailio = kamailio(&stage, registrar, REGISTRAR);
        let authority = Authority::new(&stage, "authority");
        let identity = authority.sign("server", &[&stage.ip().to_string()], VALID);
        let (certificate, key) = (identity.certificate.display(), identity.key.display());
        let [tls, wss, ws] = [(); 3].map(|()| stage.free_address());
        let secured = format!("certificate = \"{certificate}\"\nprivate_key = \"{key}\"\n");
        let more = format!(
            "[[listen]]\ntransport = \"tls\"\naddress = \"{tls}\"\n{secured}\
             [[listen]]\ntransport = \"wss\"\naddress = \"{wss}\"\n{secured}\
             [[listen]]\ntransport = \"ws\"\naddress = \"{ws}\"\n"
        );
        // The ports are fixed, so that a restarted Tidegate has the same ones.
        let configuration = Configuration {
            listen: vec![stage.free_address()],
            listen_tcp: vec![stage.free_address()],
            drain_seconds: 1,
            shards,
            more,
            ..Configuration::new(&stage, &[registrar])
        };
        let tidegate = Some(Tidegate::start(&stage, &configuration));
        let caller = Peer::new(stage.ip());
        Self { authority, configuration, registrar, caller, _kamailio: kamailio, tidegate, stage }
    }

    fn tidegate(&self) -> &Tidegate {
        self.tidegate.as_ref().expect("it runs")
    }

    fn udp_phone(&self) -> Box<dyn Phone> {
        Box::new(UdpPhone { peer: Peer::new(self.stage.ip()), to: self.tidegate().address() })
    }

    /// Returns a phone of each transport that has connections, with its name.
    fn connected_phones(&self) -> [(&'static str, Box<dyn Phone>); 4] {
        let tidegate = self.tidegate();
        let tls = tls::client::Client::connect(&self.authority, tidegate.address_of("tls"));
        let wss = ws::client::Client::connect_secured(&self.authority, tidegate.address_of("wss"));
        [
            ("tcp", Box::new(TcpPhone::connect(tidegate.tcp_address()))),
            ("tls", Box::new(tls.expect("a TLS handshake"))),
            ("ws", Box::new(ws::client::Client::connect(tidegate.address_of("ws")))),
            ("wss", Box::new(wss)),
        ]
    }

    /// Registers a phone for a user.
    #[track_caller]
    fn register(&self, phone: &mut dyn Phone, user: &str, cseq: u32) -> Message {
        let uri = format!("sip:{}", self.tidegate().address());
        let register = phone.request("REGISTER", &uri, 1, cseq);
        let register = register.with("To", &format!("<sip:{user}@example.test>"));
        let register = register.and("Supported", "path").and("Expires", "300");
        let ok = phone.ask(&register);
        assert_eq!(ok.status(), 200, "{}", ok.0);
        let own = format!("@{};lr>", self.tidegate().address());
        assert!(ok.field("Path").ends_with(&own), "{}", ok.0);
        ok
    }

    /// Returns an INVITE of the caller behind Tidegate for a user.
    fn invite(&self, user: &str, number: u32) -> Message {
        self.caller.request("INVITE", &format!("sip:{user}@{}", self.registrar), number, 1)
    }

    /// Makes a call from the registrar to a phone. The caller or the phone hangs up.
    #[track_caller]
    fn call(&self, phone: &mut dyn Phone, user: &str, number: u32, caller_hangs_up: bool) {
        let answers = Peer::new(self.stage.ip());
        self.caller.send(self.registrar, &self.invite(user, number));
        let invite = phone.receive();
        assert!(invite.start().starts_with("INVITE sip:caller@"), "{}", invite.0);
        assert_eq!(invite.fields("Route").count(), 0, "{}", invite.0);
        phone.send(&answers.response(&invite, "200 OK"));
        let ok = self.caller.receive();
        assert_eq!(ok.status(), 200, "{}", ok.0);
        let in_dialog = |method: &str, cseq| {
            let contact = ok.field("Contact").trim_matches(['<', '>']);
            within(self.caller.request(method, contact, 0, cseq), &ok)
        };
        self.caller.send(self.registrar, &in_dialog("ACK", 1));
        assert!(phone.receive().start().starts_with("ACK "));
        if caller_hangs_up {
            self.caller.send(self.registrar, &in_dialog("BYE", 2));
            let bye = phone.receive();
            assert!(bye.start().starts_with("BYE "), "{}", bye.0);
            phone.send(&answers.response(&bye, "200 OK"));
            assert_eq!(self.caller.receive().status(), 200);
        } else {
            let target = invite.field("Contact").trim_matches(['<', '>']);
            let mut bye = phone.request("BYE", target, 1000 + number, 2);
            for (name, value) in [("From", ok.field("To")), ("To", ok.field("From"))] {
                bye = bye.with(name, value);
            }
            bye = bye.with("Call-ID", ok.field("Call-ID"));
            let routes: Vec<_> = invite.fields("Record-Route").collect();
            phone.send(&bye.and("Route", &routes.join(", ")));
            let bye = self.caller.receive();
            assert!(bye.start().starts_with("BYE "), "{}", bye.0);
            self.caller.send(self.registrar, &self.caller.response(&bye, "200 OK"));
            assert_eq!(phone.receive().status(), 200);
        }
    }
}

/// RFC 3327 §5.4: "the home proxy also copies the stored path vector associated with the specific
/// contact in the registrar database into the Route header field of the outgoing request as a
/// preloaded route."
///
/// The phone names an address that leads nowhere.
#[test]
fn a_registrar_calls_phones_on_the_flows_of_their_registrations() {
    for shards in [1, 4] {
        registrar_calls_phones(shards);
    }
}

fn registrar_calls_phones(shards: u16) {
    let scene = Scene::new(shards);
    let mut phones = Vec::from(scene.connected_phones());
    phones.push(("udp", scene.udp_phone()));
    for (user, phone) in &mut phones {
        scene.register(&mut **phone, user, 1);
    }
    for round in 0..3 {
        for (number, (user, phone)) in (10 * round..).zip(&mut phones) {
            scene.call(&mut **phone, user, 2 * number, true);
            scene.call(&mut **phone, user, 2 * number + 1, false);
        }
    }
    let metrics = scene.tidegate().metrics();
    assert_eq!(metrics.sum("paths_added_total", &[]), 5);
    // Tidegate finds the flow for INVITE and ACK of each call, and for BYE in every other call.
    assert_eq!(metrics.sum("registered_flow_requests_total", &[]), 5 * 3 * 5);
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "tidegate")]), 0);
    // The registrar sends all its requests to one shard. With several shards, some phones are at
    // other shards.
    assert_eq!(metrics.sum("crossings_total", &[]) > 0, shards > 1);
    metrics.assert_nothing_lost();
    metrics.assert_nothing_held();
}

/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
/// response to the request."
#[test]
fn the_registrar_is_told_that_a_flow_has_ended() {
    for shards in [1, 4] {
        registrar_is_told(shards);
    }
}

fn registrar_is_told(shards: u16) {
    let mut scene = Scene::new(shards);
    let mut phones = Vec::from(scene.connected_phones());
    for (user, phone) in &mut phones {
        scene.register(&mut **phone, user, 1);
    }
    let mut udp = scene.udp_phone();
    scene.register(&mut *udp, "udp", 1);
    let is_gone = |scene: &Scene, user: &str, number| {
        let answer = scene.caller.ask(scene.registrar, &scene.invite(user, number));
        assert_eq!(answer.status(), 430, "{user}: {}", answer.0);
        // RFC 3261 §17.1.1.3: the ACK ends the transaction.
        let ack =
            scene.invite(user, number).0.replace("INVITE ", "ACK ").replace(" INVITE", " ACK");
        scene.caller.send(scene.registrar, &Message(ack).with("To", answer.field("To")));
    };
    // Two phones close their connections. The others keep theirs until the process ends.
    let stay = phones.split_off(2);
    let left: Vec<_> = phones.iter().map(|(user, _)| *user).collect();
    drop(phones);
    scene.tidegate().wait_for("two are closed", |metrics| metrics.sum("connections", &[]) == 2);
    for (number, user) in (100..).zip(left) {
        is_gone(&scene, user, number);
    }
    // The new process has no connections yet. A phone on UDP can still be called.
    drop(scene.tidegate.take());
    scene.tidegate = Some(Tidegate::start(&scene.stage, &scene.configuration));
    for (number, (user, _)) in (200..).zip(stay) {
        is_gone(&scene, user, number);
    }
    scene.call(&mut *udp, "udp", 300, true);
    for (number, (user, phone)) in (301..).zip(&mut scene.connected_phones()) {
        scene.register(&mut **phone, user, 2);
        scene.call(&mut **phone, user, number, true);
    }
    let metrics = scene.tidegate().metrics();
    // The former Contact of the TLS phone has another port, so the registrar still has it, and
    // calls it too.
    assert_eq!(metrics.sum("replies_total", &[("status", "430"), ("reason", "flow_gone")]), 2 + 1);
}

/// RFC 5626 §8: "If a server compliant to this section receives SIP requests on a given interface
/// and UDP port, it MUST also provide a limited version of a STUN server on the same interface and
/// UDP port."
#[test]
fn stun_keep_alives_are_answered_on_the_sip_port() {
    let stage = Stage::new();
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[stage.free_address()]));
    let socket = UdpSocket::bind((stage.ip(), 0)).expect("a free port");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout above zero");
    let request = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], b"transaction0"].concat();
    let answer = eventually("it is answered", || {
        socket.send_to(&request, tidegate.address()).expect("a datagram can be sent");
        let mut bytes = [0; 100];
        socket.recv(&mut bytes).ok().map(|length| bytes[..length].to_vec())
    });
    assert_eq!(answer[..8], [1, 1, 0, 12, 0x21, 0x12, 0xa4, 0x42]);
    assert_eq!(answer[8..20], *b"transaction0");
    let port = u16::from_be_bytes([answer[26], answer[27]]) ^ 0x2112;
    assert_eq!(port, socket.local_addr().unwrap().port());
    assert!(tidegate.metrics().sum("stun_bindings_total", &[]) >= 1);
}
