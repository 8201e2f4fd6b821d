//! Connections to addresses that strangers have chosen.

use tidegate_world::Connect;

use super::*;

/// RFC 3261 §12.1.1: the Contact is the "remote target" of the dialog. A caller over UDP may name
/// another TCP port in the Contact of each call, and a caller over TCP may close its connections. If
/// the back end ends the calls, the proxy opens a connection for each BYE. The limit on these
/// connections does not apply to trusted sources.
#[test]
fn a_caller_who_names_many_ports_gets_only_its_share_of_the_connections() {
    let trusted = Some("198.51.100.0/24");
    for (by, trust, expected) in
        [("UDP", None, 4), ("UDP", trusted, 6), ("TCP", None, 4), ("TCP", trusted, 6)]
    {
        let mut settings = settings(Transport::Tcp, Mode::Transaction, [BACKEND_A, BACKEND_B]);
        settings.listeners[1].trust = trust.iter().map(|net| net.parse().unwrap()).collect();
        let limits = ConnectionLimits { opened_max: 16, ..ConnectionLimits::default() };
        let mut scene = Scene::of(settings, limits);
        let (mut backends, mut opened) = (Vec::new(), Vec::new());
        for number in 0..6 {
            let call = format!("c{number}");
            let contact = format!("sip:alice@198.51.100.7:{};transport=tcp", 40_000 + number);
            let more = format!("Contact: <{contact}>\r\n");
            let invite = request("INVITE", "sip:bob@192.0.2.1", &call, 1, &more);
            let invite = invite.replace("SIP/2.0/UDP", &format!("SIP/2.0/{by}"));
            let caller = match by {
                "TCP" => scene.accept(1_000 + 2 * number, CALLER),
                _ => Flow::udp(address(PROXY), address(CALLER)),
            };
            let mut sent = scene.offer(caller, &invite);
            if number < 2 {
                let (backend, waited) = scene.open();
                backends.push(backend);
                sent.extend(waited);
            }
            let (on, forwarded) = only(sent, "INVITE");
            let is_its = |flow: &&Flow| flow.connection == on.connection;
            let backend = *backends.iter().find(is_its).expect("a back end");
            scene.offer(backend, &forwarded.answer("200 OK"));
            if by == "TCP" {
                scene.close(caller, CloseCause::Ended);
            }
            let bye = bye(&forwarded.all("Record-Route").join(", "), "TCP")
                .replace("sip:alice@192.168.1.2:5060;transport=tcp", &contact)
                .replace("z9hG4bK-bye", &format!("z9hG4bK-bye-{call}"))
                .replace("Call-ID: c\r\n", &format!("Call-ID: {call}\r\n"));
            scene.offer(backend, &bye);
            scene.pass(Duration::ZERO);
            opened.extend(scene.streams.poll_connect());
        }
        let is_caller = |connect: &Connect| connect.remote.ip() == address(CALLER).ip();
        assert!(opened.iter().all(is_caller), "{opened:?}");
        assert_eq!(opened.len(), expected, "{by} {trust:?}");
    }
}
