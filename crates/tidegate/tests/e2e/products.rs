//! Tests with other products: sipsak in front, Kamailio behind and in front.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::stage::{Configuration, Load, Peer, Process, Sipp, Stage, Tidegate};

/// Configuration that all Kamailios have in common.
const KAMAILIO: &str = r#"
log_stderror=yes
debug=1
children=1
auto_aliases=no
dns=no
rev_dns=no
"#;

/// Routes of a Kamailio that answers everything itself.
pub const ANSWERS: &str = r#"
loadmodule "sl.so"
request_route {
	sl_send_reply("200", "OK");
}
"#;

/// Routes of a Kamailio that relays everything to HOST:PORT, with transactions of its own.
const RELAYS: &str = r#"
loadmodule "sl.so"
loadmodule "tm.so"
request_route {
	t_relay_to_udp("HOST", "PORT");
}
"#;

/// Starts a Kamailio with these routes.
pub fn kamailio(stage: &Stage, address: SocketAddr, routes: &str) -> Process {
    kamailio_over(stage, &[&format!("udp:{address}")], address, routes)
}

/// Starts a Kamailio with these routes that also listens for TCP.
pub fn kamailio_with_tcp(stage: &Stage, address: SocketAddr, routes: &str) -> Process {
    let sockets = ["udp", "tcp"].map(|transport| format!("{transport}:{address}"));
    kamailio_over(stage, &sockets.each_ref().map(String::as_str), address, routes)
}

/// Starts a Kamailio with these routes that also listens for TLS, with this certificate and key.
/// Its UDP socket has another address.
pub fn kamailio_with_tls(
    stage: &Stage,
    address: SocketAddr,
    certificate: &Path,
    key: &Path,
    routes: &str,
) -> Process {
    let routes = format!(
        "enable_tls=yes\nloadmodule \"tls.so\"\n\
         modparam(\"tls\", \"tls_method\", \"TLSv1.2+\")\n\
         modparam(\"tls\", \"certificate\", \"{}\")\n\
         modparam(\"tls\", \"private_key\", \"{}\")\n{routes}",
        certificate.display(),
        key.display()
    );
    let plain = stage.free_address();
    kamailio_over(stage, &[&format!("udp:{plain}"), &format!("tls:{address}")], plain, &routes)
}

fn kamailio_over(stage: &Stage, sockets: &[&str], address: SocketAddr, routes: &str) -> Process {
    let file = stage.path("kamailio.cfg");
    let tcp = if sockets.len() == 1 { "disable_tcp=yes\n" } else { "tcp_children=1\n" };
    fs::write(&file, format!("{KAMAILIO}{tcp}{routes}")).unwrap();
    // Debian installs Kamailio in /usr/sbin, which is not in the PATH of most users.
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("kamailio");
    command
        .env("PATH", path)
        .args(["-DD", "-E", "-m", "16", "-M", "4"])
        .args(sockets.iter().flat_map(|socket| ["-l", socket]))
        .arg("-Y")
        .arg(stage.path(""))
        .arg("-f")
        .arg(file);
    let mut process = stage.start("kamailio", &mut command).ended_by(Signal::TERM);
    let peer = Peer::new(stage.ip());
    let ping = peer.request("OPTIONS", &format!("sip:{address}"), 1, 1);
    process.wait_for("Kamailio answers", |_| {
        peer.send(address, &ping);
        peer.next_within(Duration::from_millis(100))
    });
    process
}

#[test]
fn kamailio_answers_behind_tidegate() {
    let stage = Stage::new();
    let address = stage.free_address();
    let _kamailio = kamailio(&stage, address, ANSWERS);
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[address]));
    let here = tidegate.address();

    let peer = Peer::new(stage.ip());
    let options = peer.request("OPTIONS", &format!("sip:bob@{here}"), 1, 1);
    let response = peer.ask(here, &options);
    assert_eq!(response.status(), 200);
    assert!(response.field("Server").starts_with("kamailio"), "{}", response.field("Server"));

    let load = Load { scenario: "uac-message", calls: 200, rate_cps: 200, ..Load::default() };
    Sipp::caller(&stage, here, &load).wait().assert_all_well(200);
    let metrics = tidegate.metrics();
    assert_eq!(metrics.backend("backend_assigned_total", address), 201);
    metrics.assert_nothing_lost();
    metrics.assert_nothing_held();
}

#[test]
fn kamailio_calls_through_tidegate_with_its_own_transactions() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[callee.address()]));
    let (host, port) = (stage.ip().to_string(), tidegate.address().port().to_string());
    let upstream = stage.free_address();
    let routes = RELAYS.replace("HOST", &host).replace("PORT", &port);
    let _kamailio = kamailio(&stage, upstream, &routes);
    let load = Load { scenario: "uac-rport", calls: 200, rate_cps: 200, ..Load::default() };
    Sipp::caller(&stage, upstream, &load).wait().assert_all_well(200);
    callee.finish().assert_all_well(200);
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("backend_assigned_total", &[]), 200);
    metrics.assert_nothing_lost();
    metrics.assert_nothing_held();
}

#[test]
fn sipsak_is_answered() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-options");
    // sipsak truncates a five-digit port after an address of this length.
    let listen = vec![stage.free_address()];
    let configuration = Configuration::new(&stage, &[callee.address()]);
    let tidegate = Tidegate::start(&stage, &Configuration { listen, ..configuration });
    let ask = |uri: String| {
        let mut sipsak = stage.start("sipsak", Command::new("sipsak").args(["-vv", "-s", &uri]));
        let status = sipsak.exit();
        assert!(status.success(), "{status}\n{}", sipsak.log());
        assert!(sipsak.log().contains("SIP/2.0 200 OK"), "{}", sipsak.log());
    };
    ask(format!("sip:{}", tidegate.address()));
    ask(format!("sip:bob@{}", tidegate.address()));
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("replies_total", &[("status", "200")]), 1, "the first one, by us");
    callee.finish().assert_all_well(1);
}
