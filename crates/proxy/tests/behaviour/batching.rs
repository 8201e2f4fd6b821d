//! The batching information that the proxy gives to its driver.

use std::time::Duration;

use crate::script::{BACKEND_A, CALLER, Script, Sent, invite, request};

/// Returns all packets of a complete call of `caller`, in both directions.
fn call(s: &mut Script, call_id: &str) -> Vec<Sent> {
    let mut all = s.send(CALLER, &invite(call_id));
    let forwarded = all.last().expect("forwarded").clone();
    let to_tag = format!("Totag\r\nRoute: {}\r\n", forwarded.header("Record-Route"));
    all.extend(s.send(&forwarded.to.to_string(), &forwarded.answer("180 Ringing")));
    all.extend(s.send(&forwarded.to.to_string(), &forwarded.answer("200 OK")));
    for (method, cseq) in [("ACK", 1), ("BYE", 2)] {
        let sent =
            s.send(CALLER, &request(method, "sip:bob@10.0.0.1:5070", call_id, cseq, &to_tag));
        let answer = sent[0].answer("200 OK");
        all.extend(sent);
        if method == "BYE" {
            all.extend(s.send(&forwarded.to.to_string(), &answer));
        }
    }
    all
}

#[test]
fn messages_of_a_call_have_a_sequence_and_a_place_for_padding() {
    for (mut s, messages) in [(Script::new(), 6), (Script::stateful(), 7)] {
        let (one, other) = (call(&mut s, "one"), call(&mut s, "other"));
        assert_eq!((one.len(), other.len()), (messages, messages), "{one:#?}");
        let sequence = |sent: &Sent| sent.batching.sequence;
        assert!(one.iter().all(|sent| sequence(sent) == sequence(&one[0])));
        assert!(other.iter().all(|sent| sequence(sent) == sequence(&other[0])));
        assert_ne!(sequence(&one[0]), sequence(&other[0]));
        for Sent { text, batching, .. } in one.iter().chain(&other) {
            // An INVITE is not padded: a server may shed it by a hash of its bytes.
            if text.starts_with("INVITE") {
                assert_eq!(batching.pad_at, 0);
                continue;
            }
            let head = &text[..batching.pad_at.into()];
            let (_, header) = head.split_once("\r\n").expect("a start line");
            assert!(header.ends_with(':') && !header.contains("\r\n"), "{header}");
        }
    }
}

/// A rejection has the sequence number of its call, so that it stays behind earlier packets.
#[test]
fn rejections_are_of_the_sequence_of_their_call() {
    let mut s = Script::new();
    let forwarded = s.one(CALLER, &invite("one"));
    let too_far = invite("one").replace("Max-Forwards: 70", "Max-Forwards: 0");
    let rejected = s.one(CALLER, &too_far.replace("z9hG4bK-one", "z9hG4bK-two"));
    assert!(rejected.start().contains(" 483 "), "{rejected:#?}");
    assert_eq!(rejected.batching.sequence, forwarded.batching.sequence);
}

#[test]
fn packets_of_a_timer_keep_their_place_among_all() {
    let mut s = Script::stateful();
    let sent = s.send(CALLER, &invite("one"));
    assert!(sent.iter().all(|sent| sent.batching.sequence != 0));
    s.pass(Duration::from_millis(600));
    let repeated = s.sent();
    assert!(repeated.iter().any(|sent| sent.start().starts_with("INVITE")), "{repeated:#?}");
    assert!(repeated.iter().all(|sent| sent.batching.sequence == 0));
    // The next message of a call has a sequence number again.
    assert_ne!(s.send(BACKEND_A, &sent[1].answer("180 Ringing"))[0].batching.sequence, 0);
}
