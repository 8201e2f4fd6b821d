//! Compares the fast ways of reading a request with the complete ones.

use tidegate_sip::{
    Message, Method, Outline, Reply, ScanStart, reply_target, scan, scan_ack, write_reply,
};

/// Writes a rejection from the outline of a request and another one from the parsed message, and
/// asserts that the two replies are equal. Returns false if the request has no outline.
pub fn rejected_alike(bytes: &[u8]) -> bool {
    let Some(outline) = Outline::of(bytes) else { return false };
    assert_eq!(scan(bytes), Ok(outline.scan));
    let message = Message::parse_head(bytes).expect("what the outline reads is a message");
    assert!(message.is_request());
    let via = message.top_via().expect("what the outline reads has a Via");
    let headers = [("Retry-After", &b"10"[..]), ("Server", b"x")];
    for source in ["192.0.2.33:5060", "192.0.2.1:9", "[2001:db8::1]:5060", "[::ffff:192.0.2.1]:1"] {
        let source = source.parse().expect("an address");
        assert_eq!(outline.reply_target(source), reply_target(&via, source));
        for to_tag in [None, Some(&b"ours"[..])] {
            for source in [None, Some(source)] {
                let reply = Reply { to_tag, source, headers: &headers, ..Reply::new(503) };
                let (mut short, mut long) = (Vec::new(), Vec::new());
                outline.write_reply(&reply, &mut short).expect("a Vec takes everything");
                write_reply(&message, &reply, &mut long).expect("a Vec takes everything");
                assert_eq!(String::from_utf8_lossy(&short), String::from_utf8_lossy(&long));
            }
        }
    }
    true
}

/// Reads an ACK with [`scan_ack`] and with [`scan`], and asserts that the results are
/// equal.
pub fn acknowledged_alike(bytes: &[u8]) {
    let short = scan_ack(bytes);
    let Ok(long) = scan(bytes) else { return };
    let is_ack = matches!(long.start, ScanStart::Request { method: Method::Ack, .. });
    assert_eq!(short.is_some(), is_ack && long.to_tag.is_some());
    if let Some(short) = short {
        assert_eq!((short.branch, short.call_id), (long.branch, long.call_id));
        assert_eq!(Some(short.to_tag), long.to_tag);
    }
}
