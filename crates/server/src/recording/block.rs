//! Blocks of a recording. A block has a limited number of inputs, and the hash of the packets that
//! the core sent because of these inputs.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher13x128};

/// Length of a block's header in bytes.
pub(super) const HEADER: usize = 64;

/// Maximum number of inputs in a block. A replay compares the packets of the core once for each
/// block.
pub(super) const INPUTS_MAX: u32 = 1000;

/// Length in bytes of inputs and packets at which a block is full. A block may exceed this length
/// by its last input and the packets sent because of that input.
pub(super) const FULL: usize = 192 * 1024;

/// Maximum length of the inputs in a block, in bytes. It has room for a command as the last input.
pub(super) const PAYLOAD_MAX: usize = FULL + COMMAND_MAX + 32 * 1024;

/// Maximum length of a command in a block, in bytes. A command contains the whole configuration in
/// a reload, and this length is enough for about 10,000 back ends.
pub const COMMAND_MAX: usize = 768 * 1024;

/// The first bytes of every header. The same bytes in a recorded datagram are not mistaken for a
/// header, because a reader finds the next block from the length of the one before.
pub(super) const MARK: [u8; 4] = *b"tgB\n";

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Length of the inputs in the block, in bytes.
    pub len: u32,
    /// Number of the block, from 0.
    pub number: u64,
    /// Number of inputs lost since the previous block.
    pub lost: u64,
    /// Number of inputs in the block.
    pub inputs: u32,
    /// Number of packets that the core sent because of the inputs in the block.
    pub sent: u32,
    /// Hash of the packets that the core sent because of the inputs in the block.
    pub output: u128,
    /// Checksum of the inputs in the block.
    pub check: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let Self { len, number, lost, inputs, sent, output, check } = *self;
        let mut bytes = [0; HEADER];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MARK);
        put(&len.to_le_bytes());
        put(&number.to_le_bytes());
        put(&lost.to_le_bytes());
        put(&inputs.to_le_bytes());
        put(&sent.to_le_bytes());
        put(&output.to_le_bytes());
        put(&check.to_le_bytes());
        let own = checksum(&bytes[..HEADER - 8]);
        bytes[HEADER - 8..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// Decodes the header at the beginning of `bytes`. Returns `None` if there is no valid header.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = bytes.first_chunk()?;
        let (fields, own) = bytes.split_last_chunk::<8>()?;
        if !fields.starts_with(&MARK) || u64::from_le_bytes(*own) != checksum(fields) {
            return None;
        }
        let u32_at = |at: usize| u32::from_le_bytes(fields[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(fields[at..at + 8].try_into().expect("eight"));
        let header = Self {
            len: u32_at(4),
            number: u64_at(8),
            lost: u64_at(16),
            inputs: u32_at(24),
            sent: u32_at(28),
            output: u128::from(u64_at(32)) | u128::from(u64_at(40)) << 64,
            check: u64_at(48),
        };
        (header.len as usize <= PAYLOAD_MAX && header.inputs > 0).then_some(header)
    }
}

/// Computes a checksum that detects accidental changes. It does not prevent forgery.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Returns the hash of packets that [`put_sent`](super::entry::put_sent) has encoded.
pub(super) fn fingerprint(sent: &[u8]) -> u128 {
    let mut hasher = SipHasher13x128::new();
    hasher.write(sent);
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_no_other_way() {
        let header = Header {
            len: 12,
            number: 1 << 40,
            lost: 3,
            inputs: 4,
            sent: 5,
            output: 6 << 100 | 7,
            check: 8,
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        for at in 0..HEADER {
            let mut other = bytes;
            other[at] ^= 0x10;
            assert_eq!(Header::decode(&other), None, "byte {at}");
            assert_eq!(Header::decode(&bytes[..at]), None);
        }
        let long = Header { len: PAYLOAD_MAX as u32 + 1, ..header };
        let empty = Header { inputs: 0, ..header };
        assert!([long, empty].iter().all(|h| Header::decode(&h.encode()).is_none()));
    }
}
