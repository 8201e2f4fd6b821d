//! The BPF program by which the kernel distributes datagrams over the sockets of a group.
//!
//! Plain `SO_REUSEPORT` hashes the addresses and does not look at messages. With it, a flood of
//! INVITEs or REGISTERs would fill the buffer in which BYEs and responses wait, and a flood of BYEs
//! would fill the buffer of the responses. This classic-BPF program runs for each datagram, with
//! the UDP payload at offset 0. It returns the index of a socket in the group. The index is
//! `3·shard + kind`, where the kind is 1 for an [INVITE or REGISTER](Shedding::PREFIXES), 2 for a
//! response and 0 for any other message. If the kinds have no sockets of their own, the index is
//! the shard. The shard is a hash of source address and port. So all datagrams from one socket of a
//! peer reach the same shard, including retransmissions. (The kernel's own hash, `RXHASH`, is 0 on
//! the loopback interface.)
//!
//! Datagrams to shed go to the *sink* of their shard. The sinks follow all other sockets of the
//! group, in the order of the shards. The program compares the source of each INVITE or REGISTER
//! with the banned sources. If the share to shed [applies](Shedding::applies) to the request, the
//! program also hashes the source address and the beginning of the request, as [`Shedding::hash`]
//! does, and compares the hash with the threshold of the method. All other messages pass from any
//! source, because they may end a call. INVITEs to an emergency service pass too, unless their
//! source [floods](Shedding::unspared) with them.

use std::net::IpAddr;

use libc::sock_filter;
use tidegate_world::{Network, Shedding};

const MIX: [u32; 2] = Shedding::MIX;

/// Offset of the network header, for loads relative to it.
const NETWORK: u32 = libc::SKF_NET_OFF as u32;

const UDP: u32 = libc::IPPROTO_UDP as u32;

/// First four bytes of the methods whose requests have their own socket and can be shed.
const NEW_WORK: [[u8; 4]; 2] = Shedding::PREFIXES;

/// First four bytes of a REGISTER.
const REGISTER: u32 = u32::from_be_bytes(NEW_WORK[1]);

/// First four bytes of a response (RFC 3261 §7.2: it begins with the SIP-Version).
const SIP_: u32 = u32::from_be_bytes(*b"SIP/");

/// The IP version of a group, which determines the header of its datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// Returns the index, 0 to 3, of the first word of an address that this family uses. The words
    /// before it are zero.
    fn first_word(self) -> usize {
        match self {
            Self::V4 => 3,
            Self::V6 => 0,
        }
    }
}

/// The sockets of a group: first those that are read, shard by shard, and then the sinks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) family: Family,
    /// Number of shards, at least one.
    pub(crate) shards: u16,
    /// True if new work and responses have their own sockets.
    pub(crate) split: bool,
}

impl Layout {
    /// Returns the number of sockets that are read.
    pub(crate) fn read(self) -> usize {
        usize::from(self.shards) * self.each()
    }

    /// Returns the number of sockets of one shard that are read. If the sockets are split, there is
    /// one for new work, one for responses, and one for all other messages.
    pub(crate) fn each(self) -> usize {
        if self.split { 3 } else { 1 }
    }
}

/// The share of new work that each shard sheds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    pub(crate) key: u32,
    /// For each method, in the order of [`Shedding::PREFIXES`], a threshold for each shard:
    /// requests with a lower hash are shed.
    pub(crate) thresholds: [Vec<u64>; 2],
    /// INVITEs and REGISTERs with one of these hashes are shed.
    pub(crate) marks: Vec<u32>,
    /// Networks of heavy sources. If there are any, the thresholds of all shards but the
    /// `untargeted` ones apply only to requests from these networks.
    pub(crate) heavy: Vec<Network>,
    /// Shards whose thresholds apply to requests from all networks.
    pub(crate) untargeted: Vec<u16>,
    /// Networks whose INVITEs to an emergency service are shed like other INVITEs.
    pub(crate) unspared: Vec<Network>,
}

/// The filter of a sink. It accepts no datagram, so the kernel drops all of them.
pub(crate) const DROP_ALL: [sock_filter; 1] =
    [sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];

/// Returns the program for a group. The share does not apply to the `spared` networks. `banned` has
/// the banned sources of all shards, because the datagrams of a source may come to any shard.
pub(crate) fn program(
    layout: Layout,
    share: &Share,
    spared: &[Network],
    banned: &[IpAddr],
) -> Vec<sock_filter> {
    let mut p = Program::default();
    match layout.family {
        Family::V4 => p.hash_source_v4(),
        Family::V6 => p.hash_source_v6(),
    }
    p.finish_hash();
    p.step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(layout.shards.max(1)));
    let first_sink = layout.read() as u32;
    p.shed_banned(layout.family, banned, first_sink);
    p.shed_share(layout.family, share, spared, first_sink);
    if layout.split {
        p.step(MULTIPLY, layout.each() as u32);
        p.add_kind();
    }
    p.step(RETURN, 0);
    p.0
}

const WORD_AT: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const HALF_AT: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const BYTE_AT: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_CONSTANT: u32 = libc::BPF_LD | libc::BPF_IMM;
const LOAD_X: u32 = libc::BPF_LDX | libc::BPF_IMM;
const MULTIPLY: u32 = libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K;
const XOR_X: u32 = libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X;
const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
const TO_X: u32 = libc::BPF_MISC | libc::BPF_TAX;
const FROM_X: u32 = libc::BPF_MISC | libc::BPF_TXA;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const IF_ABOVE_X: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_X;
const GO_ON: u32 = libc::BPF_JMP | libc::BPF_JA;
const OR: u32 = libc::BPF_ALU | libc::BPF_OR | libc::BPF_K;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const ADD: u32 = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_A;
const STORE: u32 = libc::BPF_ST;
const RECALL: u32 = libc::BPF_LD | libc::BPF_MEM;
const LENGTH: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;

/// Number of instructions that end the program with a sink.
const SINK: u8 = 3;

/// Number of networks whose comparisons share a jump. A comparison has at most 9 instructions, and
/// a branch reaches 255.
const NEAR: usize = 28;

/// Indices of the memory words for the shard and for the hash. Words 0 to 3 are for the source
/// address.
const SHARD: u32 = 4;
const HASH: u32 = 5;

/// Returns an address as four words. IPv4 uses only the last word. Returns `None` if the address is
/// not of this family.
fn words_of(family: Family, ip: IpAddr) -> Option<[u32; 4]> {
    match (family, ip) {
        (Family::V4, IpAddr::V4(ip)) => Some([0, 0, 0, ip.to_bits()]),
        (Family::V6, IpAddr::V6(ip)) => {
            let bits = ip.to_bits();
            Some([96, 64, 32, 0].map(|shift| (bits >> shift) as u32))
        }
        _ => None,
    }
}

#[derive(Default)]
struct Program(Vec<sock_filter>);

impl Program {
    fn step(&mut self, code: u32, k: u32) {
        self.branch(code, k, 0, 0);
    }

    /// Adds a conditional jump: over `yes` instructions if the condition holds, otherwise over
    /// `no`.
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

    /// Adds instructions that store the source address. The kernel translates a load from the
    /// datagram into some ten instructions, and a load from memory into one.
    fn store_source(&mut self, family: Family) {
        let (words, at) = match family {
            // RFC 791 §3.1.
            Family::V4 => (3..4, NETWORK + 12),
            // RFC 8200 §3.
            Family::V6 => (0..4, NETWORK + 8),
        };
        for (word, at) in words.zip((at..).step_by(4)) {
            self.step(WORD_AT, at);
            self.step(STORE, word);
        }
    }

    /// Adds instructions that end the program with the sink of shard `A` if the datagram is new
    /// work of a `banned` source. Otherwise they leave `A` unchanged.
    fn shed_banned(&mut self, family: Family, banned: &[IpAddr], first_sink: u32) {
        let words: Vec<[u32; 4]> = banned.iter().filter_map(|&ip| words_of(family, ip)).collect();
        if words.is_empty() {
            return;
        }
        self.step(STORE, SHARD);
        let over = self.jump_unless_new_work();
        self.store_source(family);
        for address in words {
            // The last words of addresses differ the most, so they are compared first.
            for word in (family.first_word()..4).rev() {
                let left = 2 * (word - family.first_word()) as u8;
                self.step(RECALL, word as u32);
                self.branch(IF_EQUAL, address[word], 0, left + SINK);
            }
            self.end_in_sink(first_sink);
        }
        self.land(over);
        self.step(RECALL, SHARD);
    }

    /// Adds a [jump](Self::jump) that is taken unless the datagram is new work (an INVITE or
    /// REGISTER).
    fn jump_unless_new_work(&mut self) -> usize {
        self.step(LENGTH, 0);
        self.branch(IF_AT_LEAST, 4, 0, 1 + NEW_WORK.len() as u8);
        self.step(WORD_AT, 0);
        self.branch_if_new_work(1);
        self.jump()
    }

    /// Adds conditional jumps over the next `yes` instructions if `A` is the first word of new
    /// work.
    fn branch_if_new_work(&mut self, yes: u8) {
        for (left, start) in (0..NEW_WORK.len() as u8).rev().zip(NEW_WORK) {
            self.branch(IF_EQUAL, u32::from_be_bytes(start), left + yes, 0);
        }
    }

    /// Adds instructions that end the program with the sink of shard `A` if the shard sheds the
    /// request. Otherwise they leave `A` unchanged.
    fn shed_share(&mut self, family: Family, share: &Share, spared: &[Network], first_sink: u32) {
        let Share { key, ref thresholds, ref marks, ref heavy, ref untargeted, ref unspared } =
            *share;
        if thresholds.iter().flatten().all(|&threshold| threshold == 0) && marks.is_empty() {
            return;
        }
        self.step(STORE, SHARD);
        let over = self.jump_unless_new_work();
        self.store_source(family);
        let emergency = self.jump_if_spared_emergency(family, unspared);
        let spared = self.jumps_if_in_any(family, spared);
        self.hash_beginning(family, key);
        for &mark in marks {
            self.branch(IF_EQUAL, mark, 0, SINK);
            self.end_in_sink(first_sink);
        }
        let others = self.jump_unless_in_any(family, heavy, untargeted);
        self.shed_below(thresholds, first_sink);
        for jump in spared.into_iter().chain(others) {
            self.land(jump);
        }
        self.land(emergency);
        self.land(over);
        self.step(RECALL, SHARD);
    }

    /// Adds a [jump](Self::jump) that is taken if an INVITE calls an emergency service, and its
    /// source is not in one of the `unspared` networks.
    fn jump_if_spared_emergency(&mut self, family: Family, unspared: &[Network]) -> usize {
        let emergency = self.jump_if_emergency();
        let ordinary = self.jump();
        self.land(emergency);
        let spared = self.jump_unless_in_any(family, unspared, &[]);
        let spared = spared.unwrap_or_else(|| self.jump());
        self.land(ordinary);
        spared
    }

    /// Adds a [jump](Self::jump) that is taken if an INVITE calls an emergency service.
    fn jump_if_emergency(&mut self) -> usize {
        let words = Shedding::EMERGENCY;
        let end = Shedding::EMERGENCY_AT + 4 * words.len();
        let mut left = 3 * words.len() as u8;
        self.step(LENGTH, 0);
        self.branch(IF_AT_LEAST, end as u32, 0, left + 1);
        for (at, word) in (Shedding::EMERGENCY_AT as u32..).step_by(4).zip(words) {
            left -= 3;
            self.step(WORD_AT, at);
            self.step(OR, Shedding::CASE);
            self.branch(IF_EQUAL, word, 0, left + 1);
        }
        self.jump()
    }

    /// Adds a [jump](Self::jump) that is taken unless the source is in one of the networks, or the
    /// shard is one of `shards`. If the jump is not taken, the hash stays in `A`. Returns `None` if
    /// there are no networks.
    fn jump_unless_in_any(
        &mut self,
        family: Family,
        networks: &[Network],
        shards: &[u16],
    ) -> Option<usize> {
        if networks.is_empty() {
            return None;
        }
        self.step(STORE, HASH);
        let mut found = Vec::new();
        if !shards.is_empty() {
            self.step(RECALL, SHARD);
            found.push(self.jump_if_any(shards));
        }
        found.extend(self.jumps_if_in_any(family, networks));
        let others = self.jump();
        for jump in found {
            self.land(jump);
        }
        self.step(RECALL, HASH);
        Some(others)
    }

    /// Adds a [jump](Self::jump) that is taken if `A` is one of these numbers, at most 256.
    fn jump_if_any(&mut self, numbers: &[u16]) -> usize {
        for (left, &number) in (0..numbers.len()).rev().zip(numbers) {
            // A comparison that holds jumps to the final jump. If the last comparison fails, it
            // jumps over the final jump.
            self.branch(IF_EQUAL, u32::from(number), left as u8, u8::from(left == 0));
        }
        self.jump()
    }

    /// Adds [jumps](Self::jump) of which one is taken if the source is in one of the networks.
    /// [`NEAR`] networks share a jump, because a jump for each network would make the program longer
    /// than older kernels accept.
    fn jumps_if_in_any(&mut self, family: Family, networks: &[Network]) -> Vec<usize> {
        let of_chunk = |chunk: &[Network]| {
            let found: Vec<usize> =
                chunk.iter().filter_map(|network| self.branch_if_in(family, network)).collect();
            let others = self.jump();
            for branch in found {
                self.land_branch(branch);
            }
            let inside = self.jump();
            self.land(others);
            inside
        };
        networks.chunks(NEAR).map(of_chunk).collect()
    }

    /// Adds instructions that end with a branch, which is taken if the source is in `network`.
    /// [`land_branch`](Self::land_branch) sets its target. Returns the index of the branch, or
    /// `None` if no source of this family can be in the network.
    fn branch_if_in(&mut self, family: Family, network: &Network) -> Option<usize> {
        let words = words_of(family, network.address.to_canonical())?;
        let mut bits = u32::from(network.prefix);
        let mut compared = Vec::new();
        for word in family.first_word()..4 {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            if mask > 0 {
                compared.push((word, mask));
            }
            bits = bits.saturating_sub(32);
        }
        let steps = |mask: u32| if mask == u32::MAX { 2 } else { 3 };
        if compared.is_empty() {
            return Some(self.jump());
        }
        // If a word differs, the instructions for the remaining words are skipped.
        let mut left: u8 = compared.iter().map(|&(_, mask)| steps(mask)).sum();
        for (word, mask) in compared {
            left -= steps(mask);
            self.step(RECALL, word as u32);
            if mask < u32::MAX {
                self.step(AND, mask);
            }
            self.branch(IF_EQUAL, words[word] & mask, 0, left);
        }
        Some(self.0.len() - 1)
    }

    /// Adds instructions that end the program with the sink of the shard if the hash in `A` is
    /// below the threshold of the method and the shard. The datagram must be new work.
    fn shed_below(&mut self, thresholds: &[Vec<u64>; 2], first_sink: u32) {
        let [of_invites, of_registers] = thresholds;
        self.step(STORE, HASH);
        let (mut loaded, mut passes) = (Vec::new(), Vec::new());
        if of_invites != of_registers {
            self.step(WORD_AT, 0);
            self.branch(IF_EQUAL, REGISTER, 0, 1);
            let register = self.jump();
            loaded.extend(self.load_threshold(of_invites));
            passes.push(self.jump());
            self.land(register);
        }
        loaded.extend(self.load_threshold(of_registers));
        passes.push(self.jump());
        for jump in loaded {
            self.land(jump);
        }
        self.step(RECALL, HASH);
        self.branch(IF_ABOVE_X, 0, SINK, 0);
        self.end_in_sink(first_sink);
        for jump in passes {
            self.land(jump);
        }
    }

    /// Adds instructions that set `X` to the highest hash at which the shard sheds a datagram, and
    /// then jump. Returns the [jumps](Self::jump). If the shard sheds nothing, the program takes
    /// none of them.
    fn load_threshold(&mut self, thresholds: &[u64]) -> Vec<usize> {
        let is_same = thresholds.windows(2).all(|pair| pair[0] == pair[1]);
        if !is_same {
            self.step(RECALL, SHARD);
        }
        let shards = if is_same { 1 } else { thresholds.len() };
        let mut loaded = Vec::new();
        for (shard, &threshold) in thresholds.iter().enumerate().take(shards) {
            // A threshold is at most 2^32, so the highest hash below it fits in a word.
            let Some(highest) = threshold.checked_sub(1) else { continue };
            if !is_same {
                self.branch(IF_EQUAL, shard as u32, 0, 2);
            }
            self.step(LOAD_X, highest as u32);
            loaded.push(self.jump());
        }
        loaded
    }

    /// Adds instructions that set `A` to the hash of the datagram, which must have at least one
    /// word. The source address must have been stored.
    fn hash_beginning(&mut self, family: Family, key: u32) {
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

    /// Adds 3 instructions that end the program with `X` + `kind`.
    fn end_in_kind(&mut self, kind: u32) {
        self.step(FROM_X, 0);
        self.step(ADD, kind);
        self.step(RETURN, 0);
    }

    /// Adds a jump, whose target [`land`](Self::land) sets. It is needed because conditional jumps
    /// reach at most 255 instructions. Returns the index of the jump.
    fn jump(&mut self) -> usize {
        self.step(GO_ON, 0);
        self.0.len() - 1
    }

    fn land(&mut self, jump: usize) {
        self.0[jump].k = (self.0.len() - jump - 1) as u32;
    }

    /// Sets the target of a [jump](Self::jump), or of a branch that is taken if its condition holds,
    /// to the next instruction. A branch reaches at most 255 instructions.
    fn land_branch(&mut self, at: usize) {
        if self.0[at].code == GO_ON as u16 {
            self.land(at);
        } else {
            self.0[at].jt = (self.0.len() - at - 1) as u8;
        }
    }

    /// Adds [`SINK`] instructions that end the program with the sink of the shard.
    fn end_in_sink(&mut self, first_sink: u32) {
        self.step(RECALL, SHARD);
        self.step(ADD, first_sink);
        self.step(RETURN, 0);
    }

    /// Adds instructions that end the program with `A` + 1 for new work, and with `A` + 2 for a
    /// response. For any other datagram the program continues, with `A` unchanged.
    fn add_kind(&mut self) {
        self.step(TO_X, 0);
        // A load beyond the end of a short datagram, such as a two-byte keep-alive, would end the
        // program with index 0, whatever the shard is.
        self.step(LENGTH, 0);
        self.branch(IF_AT_LEAST, 4, 0, 9 + NEW_WORK.len() as u8);
        self.step(WORD_AT, 0);
        self.branch(IF_EQUAL, SIP_, 0, 3);
        self.end_in_kind(2);
        self.branch_if_new_work(1);
        // Jumps over the instructions that end in the socket for new work.
        self.step(GO_ON, 3);
        self.end_in_kind(1);
        self.step(FROM_X, 0);
    }
}

#[cfg(test)]
#[path = "steer_tests.rs"]
mod tests;
