//! Checks of invariants that hold for any stream and any split of it into reads. Proptest runs
//! these checks here, and the fuzzer in `fuzz/` runs them too.

use tidegate_sip::{BYTES_MAX, FrameFault, FrameLimits, Framer, Malformed, Message, Next};

/// An item found on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Message(Vec<u8>),
    Ping,
    Pong,
    Broken(FrameFault),
    /// The stream ended within a message.
    CutOff,
}

/// Cuts a stream into messages, in a buffer of the size that the framer guarantees to be enough. If
/// `pong` is true, the framer first expects a pong. `reads` returns the number of bytes of the next
/// read.
pub fn cut(
    stream: &[u8],
    limits: FrameLimits,
    pong: bool,
    mut reads: impl FnMut() -> usize,
) -> Vec<Found> {
    let mut framer = Framer::new(limits);
    if pong {
        framer.expect_pong();
    }
    let (mut held, mut rest, mut found) = (Vec::new(), stream, Vec::new());
    let mut position = 0;
    loop {
        match framer.next(&held) {
            Next::Incomplete { need } => {
                assert!(need > 0);
                let released = framer.release();
                held.drain(..released);
                position = 0;
                assert!(held.len() + need <= BYTES_MAX, "no room for {need} more");
                if rest.is_empty() {
                    if !framer.is_between_messages() {
                        found.push(Found::CutOff);
                    }
                    return found;
                }
                let room = BYTES_MAX - held.len();
                let (read, behind) = rest.split_at(reads().clamp(1, room.min(rest.len())));
                held.extend(read);
                rest = behind;
            }
            Next::Message(range) => {
                assert!(blank(&held[position..range.start]), "bytes between two messages");
                let message = &held[range.clone()];
                assert!(message.len() <= BYTES_MAX);
                // If the parser accepts the message, it sees the same message.
                match Message::parse(message) {
                    Ok(parsed) => {
                        assert_eq!(parsed.bytes().len(), message.len());
                        assert!(parsed.body().len() <= limits.body_max);
                        assert!(message.len() - parsed.body().len() <= limits.head_max);
                    }
                    Err(Malformed::ContentLength | Malformed::Keepalive | Malformed::NoEnd) => {
                        panic!("not a whole message: {:?}", String::from_utf8_lossy(message));
                    }
                    Err(_) => {}
                }
                position = range.end;
                found.push(Found::Message(message.to_vec()));
            }
            Next::Ping => found.push(Found::Ping),
            Next::Pong => found.push(Found::Pong),
            Next::Broken(fault) => {
                assert_eq!(framer.next(&held), Next::Broken(fault));
                assert_eq!(framer.release(), 0);
                found.push(Found::Broken(fault));
                return found;
            }
        }
    }
}

fn blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| matches!(b, b'\r' | b'\n'))
}

/// Cuts a stream as a whole, byte by byte and in pieces, and asserts that the results are equal.
/// The first bytes determine limits and pieces.
pub fn stream(bytes: &[u8]) {
    let Some((&[chosen, size, more], stream)) = bytes.split_first_chunk() else { return };
    let limits = match chosen & 3 {
        0 => FrameLimits::default(),
        1 => FrameLimits { head_max: usize::MAX, body_max: usize::MAX, blank_max: 2 },
        2 => FrameLimits { head_max: 64, body_max: 8, blank_max: 0 },
        _ => FrameLimits { head_max: 300, body_max: 1000, blank_max: 5 },
    };
    let pong = chosen & 4 != 0;
    let whole = cut(stream, limits, pong, || usize::MAX);
    assert_eq!(cut(stream, limits, pong, || 1), whole);
    let mut step = usize::from(size);
    let pieces = cut(stream, limits, pong, || {
        step = (step * 5 + usize::from(more)) % 256;
        step
    });
    assert_eq!(pieces, whole);
}
