//! RFC 3261 §17.2.3: matching of requests to server transactions. §9.2: the transaction that a
//! CANCEL cancels.

use std::hash::{DefaultHasher, Hash, Hasher};

use tidegate_sip::{Message, Method, StartLine};
use tidegate_transaction::{Handle, Key, Table, identity, identity_of_branch};
use tidegate_world::Timestamp;

/// The parts of a request.
#[derive(Clone, Copy)]
struct Request {
    method: &'static str,
    uri: &'static str,
    via: &'static str,
    from: &'static str,
    to: &'static str,
    call_id: &'static str,
    number: u32,
}

/// An INVITE of a client that follows RFC 3261.
const INVITE: Request = Request {
    method: "INVITE",
    uri: "sip:bob@example.com",
    via: "SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK776asdhds",
    from: "<sip:alice@example.com>;tag=1928301774",
    to: "<sip:bob@example.com>",
    call_id: "a84b4c76e66710",
    number: 314_159,
};

/// The same INVITE from a client that follows RFC 2543.
const OLD_INVITE: Request = Request { via: "SIP/2.0/UDP 192.0.2.1:5060", ..INVITE };

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Returns the key of a received request. An ACK acknowledges an INVITE outside a dialog.
fn key(request: &Request) -> Key {
    key_of(request, request.method == "ACK")
}

fn key_of(request: &Request, is_ack_outside: bool) -> Key {
    let Request { method, uri, via, from, to, call_id, number } = request;
    let text = format!(
        "{method} {uri} SIP/2.0\r\nVia: {via}\r\nMax-Forwards: 70\r\nFrom: {from}\r\nTo: {to}\r\n\
         Call-ID: {call_id}\r\nCSeq: {number} {method}\r\nContent-Length: 0\r\n\r\n"
    );
    let message = Message::parse(text.as_bytes()).expect("well-formed");
    let StartLine::Request { method, method_name, uri } = message.start() else {
        panic!("a request")
    };
    let essentials = message.essentials().expect("well-formed");
    let to_tag = essentials.to.tag().filter(|_| !is_ack_outside);
    Key::new(identity(&essentials, method, method_name, uri, to_tag, hash), method)
}

/// Returns the key of the INVITE that a CANCEL with the parts of `request` cancels.
fn cancelled(request: &Request) -> Key {
    Key::cancelled(key(&Request { method: "CANCEL", ..*request }).identity)
}

/// §17.2.3: "The request matches a transaction if: 1. the branch parameter in the request is equal
/// to the one in the top Via header field of the request that created the transaction". With the
/// cookie, only the sent-by and the method are compared too.
#[test]
fn a_branch_with_the_cookie_is_all_there_is_to_compare() {
    let changed = Request {
        uri: "sip:carol@example.com",
        from: "<sip:mallory@example.com>;tag=1",
        to: "<sip:bob@example.com>;tag=2",
        call_id: "another",
        number: 1,
        ..INVITE
    };
    assert_eq!(key(&INVITE), key(&changed));
    for via in [
        "SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK776asdhdt",
        "SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK776asdhd",
        "SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK776asdhds1",
    ] {
        assert_ne!(key(&INVITE), key(&Request { via, ..INVITE }), "{via}");
    }
}

/// §17.2.3: "The sent-by value is used as part of the matching process because there could be
/// accidental or malicious duplication of branch parameters from different clients."
#[test]
fn sent_by_distinguishes_clients_with_the_same_branch() {
    for via in [
        "SIP/2.0/UDP 192.0.2.2:5060;branch=z9hG4bK776asdhds",
        "SIP/2.0/UDP 192.0.2.1:5062;branch=z9hG4bK776asdhds",
        "SIP/2.0/UDP alice.example.com;branch=z9hG4bK776asdhds",
    ] {
        assert_ne!(key(&INVITE), key(&Request { via, ..INVITE }), "{via}");
    }
    let via = "SIP/2.0/UDP 192.0.2.1:5060;received=198.51.100.7;branch=z9hG4bK776asdhds;rport=9";
    assert_eq!(key(&INVITE), key(&Request { via, ..INVITE }), "parameters do not");
}

/// §17.2.3: "the method of the request matches the one that created the transaction, except for
/// ACK, where the method of the request that created the transaction is INVITE."
#[test]
fn each_method_has_its_own_transaction_except_ack() {
    for invite in [INVITE, OLD_INVITE] {
        let of = |method| key(&Request { method, ..invite });
        assert_eq!(of("ACK"), of("INVITE"));
        for method in ["CANCEL", "BYE", "OPTIONS", "PRACK"] {
            assert_ne!(of(method), of("INVITE"), "{method}");
        }
    }
}

/// §9.2: "The TU determines the transaction to be cancelled by taking the CANCEL request, and then
/// assuming that the request method is anything but CANCEL or ACK and applying the transaction
/// matching procedures of Section 17.2.3."
#[test]
fn a_cancel_has_its_own_transaction_and_names_that_of_its_invite() {
    for invite in [INVITE, OLD_INVITE] {
        let cancel = key(&Request { method: "CANCEL", ..invite });
        assert_ne!(cancel, key(&invite));
        assert_eq!(cancelled(&invite), key(&invite));
        let other = Request { via: "SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK9", ..invite };
        assert_ne!(cancelled(&other), key(&invite));
    }
}

/// §17.2.3: "The INVITE request matches a transaction if the Request-URI, To tag, From tag,
/// Call-ID, CSeq, and top Via header field match those of the INVITE request which created the
/// transaction." The next test compares the To tag.
#[test]
fn without_the_cookie_all_of_the_request_is_compared() {
    let changes = [
        Request { uri: "sip:carol@example.com", ..OLD_INVITE },
        Request { from: "<sip:alice@example.com>;tag=2", ..OLD_INVITE },
        Request { from: "<sip:alice@example.com>", ..OLD_INVITE },
        Request { call_id: "a84b4c76e66711", ..OLD_INVITE },
        Request { number: 314_160, ..OLD_INVITE },
        Request { via: "SIP/2.0/UDP 192.0.2.1:5061", ..OLD_INVITE },
        Request { via: "SIP/2.0/UDP 192.0.2.1:5060;branch=1", ..OLD_INVITE },
    ];
    for changed in &changes {
        assert_ne!(key(&OLD_INVITE), key(changed));
    }
}

/// §17.2.3: "The ACK request matches a transaction if the Request-URI, From tag, Call-ID, CSeq
/// number (not the method), and top Via header field match those of the INVITE request which
/// created the transaction, and the To tag of the ACK matches the To tag of the response sent by
/// the server transaction." A server transaction sends one response that needs an ACK, or passes
/// the ACK on (RFC 6026 §6). So the To tag of the ACK need not be compared.
#[test]
fn without_the_cookie_an_ack_matches_although_its_invite_had_no_to_tag() {
    let ack = Request { method: "ACK", to: "<sip:bob@example.com>;tag=314159", ..OLD_INVITE };
    assert_eq!(key(&ack), key(&OLD_INVITE));
    // Within a dialog the INVITE has a To tag too. So an INVITE with another To tag is another
    // transaction.
    let within = Request { to: ack.to, ..OLD_INVITE };
    assert_ne!(key(&within), key(&OLD_INVITE));
    assert_eq!(key_of(&ack, false), key(&within));
}

/// RFC 4475 §3.2.1: a branch that is the cookie alone "provides no identifier. [...] An element
/// receiving this request [...] could fall back to the RFC 2543-style transaction identifier."
#[test]
fn the_cookie_alone_identifies_nothing() {
    let bare = Request { via: "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK", ..INVITE };
    assert_eq!(key(&bare), key(&Request { method: "ACK", ..bare }));
    assert_ne!(key(&bare), key(&Request { call_id: "another", ..bare }));
    assert_ne!(key(&bare), key(&Request { number: 1, ..bare }));
    let longer = Request { via: "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKa", ..INVITE };
    assert_eq!(key(&longer), key(&Request { call_id: "another", ..longer }));
}

/// The identity from the branch alone equals that from the whole message.
#[test]
fn the_branch_alone_gives_the_same_identity() {
    let of = |branch: &[u8], method, name: &str| {
        identity_of_branch(branch, b"192.0.2.1:5060", method, name.as_bytes(), hash)
    };
    let of_branch = |branch: &[u8]| of(branch, Method::Invite, "INVITE");
    for method in ["INVITE", "ACK", "CANCEL", "BYE"] {
        let key = key(&Request { method, ..INVITE });
        assert_eq!(of_branch(b"z9hG4bK776asdhds"), Some(key.identity));
    }
    // The key has the same `Method::Other` for all extension methods. So the identity must include
    // the name of the method.
    let extensions = ["FOO", "BAR"].map(|method| {
        let key = key(&Request { method, ..INVITE });
        assert_eq!(of(b"z9hG4bK776asdhds", Method::Other, method), Some(key.identity));
        key
    });
    assert_ne!(extensions[0], extensions[1]);
    for branch in [&b""[..], b"z9hG4b", b"z9hG4bK", b"1", b"az9hG4bK776asdhds"] {
        assert_eq!(of_branch(branch), None, "{}", branch.escape_ascii());
    }
}

/// The table finds each transaction by its own key.
#[test]
fn a_table_finds_each_by_its_own_key() {
    let mut table = Table::new(10);
    let mut insert = |request: &Request, value| -> Handle {
        table.insert(key(request), value, Timestamp::NEVER).expect("there is room")
    };
    let cancel = Request { method: "CANCEL", ..INVITE };
    let bye = Request { method: "BYE", ..INVITE };
    let handles = [insert(&INVITE, "INVITE"), insert(&cancel, "CANCEL"), insert(&bye, "BYE")];
    let ack = Request { method: "ACK", ..INVITE };
    for (request, at) in [(INVITE, 0), (ack, 0), (cancel, 1), (bye, 2)] {
        assert_eq!(table.find(key(&request)), Some(handles[at]));
    }
    assert_eq!(table.find(cancelled(&INVITE)), Some(handles[0]));
    assert_eq!(table.find(key(&OLD_INVITE)), None);
    assert_eq!(table.remove(handles[0]), Some("INVITE"));
    assert_eq!(table.find(key(&ack)), None);
    assert_eq!(table.find(key(&cancel)), Some(handles[1]));
}
