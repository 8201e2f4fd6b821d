//! Properties of the framer: any split of a stream gives the same messages, and no stream makes it
//! panic or exceed its limits.

#[allow(dead_code, reason = "other drivers use the rest of it")]
mod planted;
mod streams;

use planted::planted;
use proptest::prelude::*;
use proptest::sample::select;
use streams::{Found, cut, stream};
use tidegate_sip::{FrameLimits, Message};

/// Generates a message with a Content-Length.
fn framed() -> impl Strategy<Value = Vec<u8>> {
    planted().prop_filter_map("no Content-Length", |planted| {
        let message = Message::parse(&planted.bytes).ok()?;
        message.content_length().ok()??;
        Some(message.bytes().to_vec())
    })
}

fn sized(length: usize) -> Vec<u8> {
    let body = "x".repeat(length);
    format!("INFO sip:a SIP/2.0\r\nTo: a\r\n \r\n b\r\nl: {length}\r\n\r\n{body}").into_bytes()
}

/// Generates a part of a stream, and the item found there.
fn piece() -> impl Strategy<Value = (Vec<u8>, Option<Found>)> {
    let message = |bytes: Vec<u8>| (bytes.clone(), Some(Found::Message(bytes)));
    prop_oneof![
        4 => framed().prop_map(message),
        3 => prop_oneof![0..40usize, 0..3000usize, 60_000..65_400usize]
            .prop_map(move |length| message(sized(length))),
        1 => Just((b"\r\n\r\n".to_vec(), Some(Found::Ping))),
        1 => Just((b"\n".to_vec(), None)),
    ]
}

/// Generates bytes that resemble a stream of messages. Most of them contain an error that breaks
/// the stream.
fn stream_like() -> impl Strategy<Value = Vec<u8>> {
    let pieces = select(
        &[
            "INVITE sip:a@b SIP/2.0",
            "ACK sip:a@b SIP/2.0",
            "SIP/2.0 200 OK",
            "Content-Length",
            "content-length:",
            "l:",
            "l: 1",
            "To: a",
            ":",
            " ",
            "\t",
            "0",
            "1",
            "9",
            "\r\n",
            "\r\n",
            "\r\n",
            "\r\n\r\n",
            "\n",
            "\r",
            "\r\n ",
            "\0",
            "body",
        ][..],
    );
    let raw = prop::collection::vec(any::<u8>(), 0..3);
    let piece = prop_oneof![9 => pieces.prop_map(|text| text.as_bytes().to_vec()), 1 => raw];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_sequence_of_messages_is_found_however_it_is_split(
        pieces in prop::collection::vec(piece(), 0..12),
        reads in prop::collection::vec(
            prop_oneof![1..4usize, 1..200usize, 1..20_000usize], 1..20),
    ) {
        let stream: Vec<u8> = pieces.iter().flat_map(|piece| piece.0.clone()).collect();
        let expected: Vec<Found> = pieces.into_iter().filter_map(|piece| piece.1).collect();
        let mut turns = reads.iter().cycle();
        let found = cut(&stream, FrameLimits::default(), false, || *turns.next().unwrap());
        prop_assert!(found == expected, "{} of {} found", found.len(), expected.len());
    }

    #[test]
    fn any_stream_is_cut_alike_and_within_limits(
        chosen in any::<[u8; 3]>(),
        bytes in prop_oneof![stream_like(), prop::collection::vec(any::<u8>(), 0..300)],
    ) {
        stream(&[&chosen[..], &bytes].concat());
    }

    /// Some bytes of the messages are changed, so that their boundaries are often unclear.
    #[test]
    fn a_damaged_stream_is_cut_alike(
        chosen in any::<[u8; 3]>(),
        messages in prop::collection::vec(framed(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = messages.concat();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        stream(&[&chosen[..], &bytes].concat());
    }
}
