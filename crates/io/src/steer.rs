//! The program by which the kernel spreads datagrams over the sockets of a group.
//!
//! Plain `SO_REUSEPORT` hashes the addresses and knows no messages: a flood of
//! INVITEs would fill the very buffer in which the BYEs and responses wait. This
//! classic-BPF program is run for each datagram with the UDP payload at offset 0 and
//! returns the index of a socket in the group: `2·shard + is-INVITE`, or just the
//! shard. The shard is a hash of source address and port, so that one peer's socket
//! always finds the same shard, retransmissions and all. (The kernel's own hash,
//! `RXHASH`, is 0 on the loopback interface.)

use libc::sock_filter;

/// Multipliers of the hash: odd, with well spread bits (2^32 divided by the golden
/// ratio, and a constant of MurmurHash3).
const MIX: [u32; 2] = [0x9e37_79b1, 0x85eb_ca6b];

/// Where the network header begins, for loads relative to it.
const NETWORK: u32 = libc::SKF_NET_OFF as u32;

const UDP: u32 = libc::IPPROTO_UDP as u32;

/// First four bytes of the method whose requests have a socket of their own.
const INVI: u32 = u32::from_be_bytes(*b"INVI");

/// Which IP header precedes the datagrams of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// The program for `shards` shards (at least one), each of two sockets if `split`.
pub(crate) fn program(family: Family, shards: u16, split: bool) -> Vec<sock_filter> {
    let mut p = Program::default();
    match family {
        Family::V4 => p.hash_source_v4(),
        Family::V6 => p.hash_source_v6(),
    }
    p.finish_hash();
    p.step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(shards.max(1)));
    if split {
        p.step(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K, 1);
        p.add_one_for_invite();
    }
    p.step(libc::BPF_RET | libc::BPF_A, 0);
    p.0
}

const WORD_AT: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const HALF_AT: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const BYTE_AT: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_CONSTANT: u32 = libc::BPF_LD | libc::BPF_IMM;
const MULTIPLY: u32 = libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K;
const XOR_X: u32 = libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X;
const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
const TO_X: u32 = libc::BPF_MISC | libc::BPF_TAX;
const FROM_X: u32 = libc::BPF_MISC | libc::BPF_TXA;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;

#[derive(Default)]
struct Program(Vec<sock_filter>);

impl Program {
    fn step(&mut self, code: u32, k: u32) {
        self.branch(code, k, 0, 0);
    }

    /// Goes on after `yes` or `no` further instructions.
    fn branch(&mut self, code: u32, k: u32, yes: u8, no: u8) {
        self.0.push(sock_filter { code: code as u16, jt: yes, jf: no, k });
    }

    fn hash_source_v4(&mut self) {
        // RFC 791 §3.1: the header's length in words is the low half of its first byte.
        self.step(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, NETWORK);
        self.step(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, NETWORK);
        self.mix_in_word(NETWORK + 12);
    }

    fn hash_source_v6(&mut self) {
        // RFC 8200 §3: next header at 6, source at 8, 40 bytes in all. Behind extension
        // headers the port would have to be searched for; the address alone must do.
        self.step(BYTE_AT, NETWORK + 6);
        self.branch(IF_EQUAL, UDP, 0, 2);
        self.step(HALF_AT, NETWORK + 40);
        self.branch(libc::BPF_JMP | libc::BPF_JA, 1, 0, 0);
        self.step(LOAD_CONSTANT, 0);
        for word in 0..4 {
            self.mix_in_word(NETWORK + 8 + 4 * word);
        }
    }

    /// `A = (A * MIX[0]) ^ word`.
    fn mix_in_word(&mut self, at: u32) {
        self.step(MULTIPLY, MIX[0]);
        self.step(TO_X, 0);
        self.step(WORD_AT, at);
        self.step(XOR_X, 0);
    }

    /// Spreads every bit over the low ones, which the remainder is taken of.
    fn finish_hash(&mut self) {
        for (shift, multiplier) in [(16, MIX[1]), (13, MIX[0])] {
            self.xor_shifted(shift);
            self.step(MULTIPLY, multiplier);
        }
        self.xor_shifted(16);
    }

    /// `A ^= A >> shift`.
    fn xor_shifted(&mut self, shift: u32) {
        self.step(TO_X, 0);
        self.step(SHIFT_RIGHT, shift);
        self.step(XOR_X, 0);
    }

    fn add_one_for_invite(&mut self) {
        self.step(TO_X, 0);
        // A load beyond the datagram's end would end the program with index 0, on
        // whichever shard a two-byte keep-alive belongs.
        self.step(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0);
        self.branch(IF_AT_LEAST, 4, 0, 5);
        self.step(WORD_AT, 0);
        self.branch(IF_EQUAL, INVI, 0, 3);
        self.step(FROM_X, 0);
        self.step(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, 1);
        self.step(libc::BPF_RET | libc::BPF_A, 0);
        self.step(FROM_X, 0);
    }
}
