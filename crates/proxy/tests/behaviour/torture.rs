//! Sends the torture messages of RFC 4475 and RFC 5118 to the proxy. Each is forwarded, answered or
//! ignored as `verdicts.toml` says. A forwarded message is otherwise unchanged, and its response
//! goes back to the sender.

use std::net::SocketAddr;
use std::time::Duration;

use crate::script::{BACKEND_A, CALLER, Script, address};
use crate::verdicts::{Entry, Verdict, entries};
use tidegate_balance::Policy;
use tidegate_proxy::{Listener, Mode};
use tidegate_sip::{HeaderName, Message, Method};
use tidegate_world::Core;

const SERVICES: &str = "192.0.2.1:5060";
const SIX: &str = "[2001:db8::10]:5060";
const TRUSTED: &str = "198.51.100.8:5060";

#[test]
fn every_message_has_a_verdict_and_every_verdict_a_message() {
    let mut named: Vec<String> = entries().into_iter().map(|entry| entry.name).collect();
    named.sort();
    assert_eq!(named, crate::verdicts::corpus());
}

#[test]
fn a_trusted_sender_gets_the_verdict() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        for entry in entries() {
            judge(&entry, mode, TRUSTED, entry.verdict());
        }
    }
}

#[test]
fn a_stranger_gets_no_more() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        for entry in entries() {
            judge(&entry, mode, CALLER, entry.stranger());
        }
    }
}

/// Sends all messages through one process, in sequence and twice: no message affects the next one,
/// and no state is left at the end.
#[test]
fn all_of_them_leave_nothing_behind() {
    let mut script = edge(Mode::Transaction);
    for _ in 0..2 {
        for entry in entries() {
            offer(&mut script, CALLER, &entry.bytes);
        }
        // Timer C is the longest timer: 190 s, and 64·T1 more for the CANCEL.
        script.pass(Duration::from_secs(300));
        while script.proxy.poll_transmit().is_some() {}
    }
    let live = [&script.counters.server_transactions, &script.counters.client_transactions];
    assert_eq!(live.map(|counter| counter.get()), [0, 0]);
    assert_eq!(script.counters.queued.get(), 0);
}

/// Makes a proxy with the addresses services.example.com and 2001:db8::10.
fn edge(mode: Mode) -> Script {
    Script::with(Policy::Rr, |settings| {
        let trust = vec!["198.51.100.8/32".parse().expect("a network")];
        let listener = |local| Listener { trust: trust.clone(), ..Listener::new(address(local)) };
        let advertised = "services.example.com:5060".to_owned();
        settings.listeners = vec![Listener { advertised, ..listener(SERVICES) }, listener(SIX)];
        settings.pools[0].mode = mode;
    })
}

struct Sent {
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Sent {
    fn message(&self) -> Message<'_> {
        let message = Message::parse(&self.bytes).expect("what is sent is well-formed");
        message.check().expect("what is sent is well-formed");
        message
    }
}

fn offer(script: &mut Script, from: &str, bytes: &[u8]) -> Vec<Sent> {
    script.offer(from, bytes);
    while script.proxy.serve(script.now) {}
    let sent = std::iter::from_fn(|| script.proxy.poll_transmit());
    sent.map(|t| Sent { to: t.flow.remote, bytes: t.bytes.to_vec() }).collect()
}

fn judge(entry: &Entry, mode: Mode, from: &str, expected: Verdict) {
    let mut script = edge(mode);
    let mut sent = offer(&mut script, from, &entry.bytes);
    let context = format!("{} ({}), {mode:?}, from {from}", entry.name, entry.section);
    // RFC 3261 §16.2 item 3: a 100 is sent at once and does not decide about the request.
    if sent.len() == 2 && sent[0].bytes.starts_with(b"SIP/2.0 100 ") {
        assert_eq!(mode, Mode::Transaction, "{context}");
        sent.remove(0);
    }
    let happened = match &sent[..] {
        [] => Verdict::Ignored,
        [one] if one.bytes.starts_with(b"SIP/2.0 ") => {
            let status = Message::parse_head(&one.bytes).ok().and_then(|m| m.status());
            Verdict::Answered(status.expect("a status line"))
        }
        [one] => {
            // With any pools, a stranger reaches nothing else.
            assert!(from == TRUSTED || one.to == address(BACKEND_A), "{context}: to {}", one.to);
            assert_unchanged(&context, &entry.bytes, one);
            Verdict::Forwarded
        }
        more => panic!("{context}: {} packets", more.len()),
    };
    assert_eq!(happened, expected, "{context}");
    if let [one] = &sent[..] {
        if happened != Verdict::Forwarded {
            assert_eq!(
                one.to.ip(),
                address(from).ip(),
                "{context}: a reply goes to the sender of the request"
            );
        }
        if happened == entry.verdict() {
            entry.assert_holds(&context, &one.bytes);
        }
        if happened == Verdict::Forwarded && from == CALLER {
            assert_answered(&context, &mut script, &entry.bytes, one);
        }
    }
}

/// Checks that the response of the back end goes back to the sender with the Vias of the sender.
///
/// RFC 3261 §16.7 item 3: "The proxy removes the topmost Via header field value from the response."
fn assert_answered(context: &str, script: &mut Script, received: &[u8], forwarded: &Sent) {
    let request = forwarded.message();
    if request.method() == Some(Method::Ack) {
        return;
    }
    let mut response = b"SIP/2.0 480 Temporarily Unavailable\r\n".to_vec();
    for field in request.fields() {
        let is_copied = matches!(
            field.name,
            HeaderName::Via
                | HeaderName::RecordRoute
                | HeaderName::From
                | HeaderName::To
                | HeaderName::CallId
                | HeaderName::CSeq
        );
        if is_copied {
            response.extend_from_slice(field.line);
        }
    }
    response.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    let mut sent = offer(script, BACKEND_A, &response);
    // With transactions the proxy also acknowledges the response.
    sent.retain(|sent| sent.bytes.starts_with(b"SIP/2.0 480 "));
    assert_eq!(sent.len(), 1, "{context}");
    assert_eq!(sent[0].to.ip(), address(CALLER).ip(), "{context}");
    let before = Message::parse(received).expect("only what is well-formed is forwarded");
    let returned = sent[0].message();
    assert_eq!(returned.vias().count(), before.vias().count(), "{context}");
    // The proxy may have added its parameters to the first Via.
    let further = |message: &Message<'_>| {
        let vias = message.fields_of(HeaderName::Via).skip(1);
        vias.map(|field| field.line.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(further(&returned), further(&before), "{context}");
}

/// Checks RFC 3261 §16.6: all parts that do not concern the proxy stay unchanged, byte for byte and
/// in order.
///
/// RFC 3261 §16.3: "Any other components, well-formed or not, SHOULD be ignored and remain
/// unchanged when the message is forwarded."
fn assert_unchanged(context: &str, received: &[u8], sent: &Sent) {
    let before = Message::parse(received).expect("only what is well-formed is forwarded");
    let after = sent.message();
    assert_eq!(before.body(), after.body(), "{context}");
    assert_eq!(before.vias().count() + 1, after.vias().count(), "{context}");
    let own = after.top_via().expect("ours");
    assert!(own.has_magic_cookie(), "{context}");
    let hops = before.max_forwards().expect("it was checked").map_or(70, |n| n - 1);
    assert_eq!(after.max_forwards(), Ok(Some(hops)), "{context}");

    let mut left = after.fields().map(|field| field.line);
    let top_via = before.field(HeaderName::Via).expect("it was checked").line;
    for field in before.fields() {
        let edited = field.line == top_via
            || matches!(field.name, HeaderName::MaxForwards | HeaderName::Route);
        if !edited {
            let line = String::from_utf8_lossy(field.line).into_owned();
            assert!(left.any(|other| other == field.line), "{context}: lost or moved: {line:?}");
        }
    }
}
