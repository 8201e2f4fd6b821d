//! Instructions that hash the source and the beginning of a datagram, as [`Shedding::hash`] does.

use tidegate_world::Shedding;

use super::Family;
use super::bpf::{
    BYTE_AT, FROM_X, GO_ON, HALF_AT, IF_AT_LEAST, IF_EQUAL, LENGTH, LOAD_CONSTANT, MULTIPLY,
    NETWORK, Program, RECALL, SHIFT_RIGHT, TO_X, WORD_AT, XOR_X,
};

/// Multipliers of the hash.
const MIX: [u32; 2] = Shedding::MIX;

/// The next header of a datagram without extension headers.
const UDP: u32 = libc::IPPROTO_UDP as u32;

impl Program {
    /// Adds instructions that set `A` to a hash of source address and port.
    pub(super) fn hash_source(&mut self, family: Family) {
        match family {
            Family::V4 => self.hash_source_v4(),
            Family::V6 => self.hash_source_v6(),
        }
        self.finish_hash();
    }

    fn hash_source_v4(&mut self) {
        // RFC 791 §3.1: the header's length in words is the low half of its first byte.
        self.step(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, NETWORK);
        self.step(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, NETWORK);
        self.mix_in_word(NETWORK + 12);
    }

    fn hash_source_v6(&mut self) {
        // RFC 8200 §3: next header at 6, source at 8, 40 bytes in all. If there are extension
        // headers, finding the port would need a search, so only the address is used.
        self.step(BYTE_AT, NETWORK + 6);
        self.branch(IF_EQUAL, UDP, 0, 2);
        self.step(HALF_AT, NETWORK + 40);
        self.step(GO_ON, 1);
        self.step(LOAD_CONSTANT, 0);
        for word in 0..4 {
            self.mix_in_word(NETWORK + 8 + 4 * word);
        }
    }

    /// Adds instructions that set `A` to the hash of the datagram, which must have at least one
    /// word. The source address must have been stored.
    pub(super) fn hash_beginning(&mut self, family: Family, key: u32) {
        self.step(LOAD_CONSTANT, key);
        for word in family.first_word()..4 {
            self.mix_in(RECALL, word as u32);
        }
        let mut shorter = Vec::new();
        let mut hashed = 0;
        // Each word occurs once in the program, because the kernel translates its load into 14
        // instructions.
        for len in Shedding::HASHED.into_iter().rev().map(|len| len as u32) {
            if hashed > 0 {
                self.step(TO_X, 0);
                self.step(LENGTH, 0);
                self.branch(IF_AT_LEAST, len, 1, 0);
                shorter.push(self.jump());
                self.step(FROM_X, 0);
            }
            for at in (hashed..len).step_by(4) {
                self.mix_in_word(at);
            }
            hashed = len;
        }
        self.step(TO_X, 0);
        for jump in shorter {
            self.land(jump);
        }
        self.step(FROM_X, 0);
        self.finish_hash();
    }

    /// Adds instructions for `A = (A * MIX[0]) ^ word`, with the word of the datagram at offset
    /// `at`.
    fn mix_in_word(&mut self, at: u32) {
        self.mix_in(WORD_AT, at);
    }

    /// Adds instructions for `A = (A * MIX[0]) ^ word`, with the word that the instruction `load`
    /// loads.
    fn mix_in(&mut self, load: u32, at: u32) {
        self.step(MULTIPLY, MIX[0]);
        self.step(TO_X, 0);
        self.step(load, at);
        self.step(XOR_X, 0);
    }

    /// Adds instructions that mix every bit of the hash into its low bits, because the shard is a
    /// remainder of the hash.
    fn finish_hash(&mut self) {
        for (shift, multiplier) in [(16, MIX[1]), (13, MIX[0])] {
            self.xor_shifted(shift);
            self.step(MULTIPLY, multiplier);
        }
        self.xor_shifted(16);
    }

    /// Adds instructions for `A ^= A >> shift`.
    fn xor_shifted(&mut self, shift: u32) {
        self.step(TO_X, 0);
        self.step(SHIFT_RIGHT, shift);
        self.step(XOR_X, 0);
    }
}
