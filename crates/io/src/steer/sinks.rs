//! Instructions that send the datagrams to shed to the sink of their shard.

use std::net::IpAddr;

use tidegate_world::{Network, Shedding};

use super::bpf::{
    ADD, AND, IF_ABOVE_X, IF_AT_LEAST, IF_EQUAL, LENGTH, LOAD_X, NETWORK, OR, Program, RECALL,
    RETURN, STORE, WORD_AT,
};
use super::{Family, NEW_WORK, Share, branch_if_new_work};

/// First four bytes of a REGISTER.
const REGISTER: u32 = u32::from_be_bytes(NEW_WORK[1]);

/// Number of instructions with which the program returns the index of a sink.
const SINK: u8 = 3;

/// Number of networks that share a [jump](Program::jump). The comparison with one network has at
/// most 9 instructions, and a branch reaches 255.
const NEAR: usize = 28;

/// Indices of the memory words for the shard and for the hash. Words 0 to 3 are for the source
/// address.
const SHARD: u32 = 4;
const HASH: u32 = 5;

/// A builder of the instructions that decide whether a datagram is shed. To shed it, the program
/// returns the index of the sink of the datagram's shard.
pub(super) struct Sinks<'p> {
    pub(super) program: &'p mut Program,
    pub(super) family: Family,
    /// The index of the sink of the first shard.
    pub(super) first: u32,
}

impl Sinks<'_> {
    /// Adds instructions that return the index of the sink of shard `A` if the datagram is new work
    /// of a `banned` source. Otherwise they leave `A` unchanged.
    pub(super) fn shed_banned(&mut self, banned: &[IpAddr]) {
        let words: Vec<[u32; 4]> =
            banned.iter().filter_map(|&ip| words_of(self.family, ip)).collect();
        if words.is_empty() {
            return;
        }
        self.program.step(STORE, SHARD);
        let over = self.jump_unless_new_work();
        self.store_source();
        for address in words {
            // The last words of addresses differ the most, so they are compared first.
            for word in (self.family.first_word()..4).rev() {
                let left = 2 * (word - self.family.first_word()) as u8;
                self.program.step(RECALL, word as u32);
                self.program.branch(IF_EQUAL, address[word], 0, left + SINK);
            }
            self.end_in_sink();
        }
        self.program.land(over);
        self.program.step(RECALL, SHARD);
    }

    /// Adds instructions that return the index of the sink of shard `A` if the shard sheds the
    /// request. Otherwise they leave `A` unchanged.
    pub(super) fn shed_share(&mut self, share: &Share, spared: &[Network]) {
        let Share { key, ref thresholds, ref marks, ref heavy, ref untargeted, ref unspared } =
            *share;
        if thresholds.iter().flatten().all(|&threshold| threshold == 0) && marks.is_empty() {
            return;
        }
        self.program.step(STORE, SHARD);
        let over = self.jump_unless_new_work();
        self.store_source();
        let emergency = self.jump_if_spared_emergency(unspared);
        let spared = self.jumps_if_in_any(spared);
        self.program.hash_beginning(self.family, key);
        for &mark in marks {
            self.program.branch(IF_EQUAL, mark, 0, SINK);
            self.end_in_sink();
        }
        let others = self.jump_unless_in_any(heavy, untargeted);
        self.shed_below(thresholds);
        for jump in spared.into_iter().chain(others) {
            self.program.land(jump);
        }
        self.program.land(emergency);
        self.program.land(over);
        self.program.step(RECALL, SHARD);
    }

    /// Adds instructions that store the source address. The kernel translates a load from the
    /// datagram into some ten instructions, and a load from memory into one.
    fn store_source(&mut self) {
        let (words, at) = match self.family {
            // RFC 791 §3.1.
            Family::V4 => (3..4, NETWORK + 12),
            // RFC 8200 §3.
            Family::V6 => (0..4, NETWORK + 8),
        };
        for (word, at) in words.zip((at..).step_by(4)) {
            self.program.step(WORD_AT, at);
            self.program.step(STORE, word);
        }
    }

    /// Adds a [jump](Program::jump) that is taken unless the datagram is new work (an INVITE or
    /// REGISTER).
    fn jump_unless_new_work(&mut self) -> usize {
        self.program.step(LENGTH, 0);
        self.program.branch(IF_AT_LEAST, 4, 0, 1 + NEW_WORK.len() as u8);
        self.program.step(WORD_AT, 0);
        branch_if_new_work(self.program, 1);
        self.program.jump()
    }

    /// Adds a [jump](Program::jump) that is taken if an INVITE calls an emergency service, and its
    /// source is not in one of the `unspared` networks.
    fn jump_if_spared_emergency(&mut self, unspared: &[Network]) -> usize {
        let emergency = self.jump_if_emergency();
        let ordinary = self.program.jump();
        self.program.land(emergency);
        let spared = self.jump_unless_in_any(unspared, &[]);
        let spared = spared.unwrap_or_else(|| self.program.jump());
        self.program.land(ordinary);
        spared
    }

    /// Adds a [jump](Program::jump) that is taken if an INVITE calls an emergency service.
    fn jump_if_emergency(&mut self) -> usize {
        let words = Shedding::EMERGENCY;
        let end = Shedding::EMERGENCY_AT + 4 * words.len();
        let mut left = 3 * words.len() as u8;
        self.program.step(LENGTH, 0);
        self.program.branch(IF_AT_LEAST, end as u32, 0, left + 1);
        for (at, word) in (Shedding::EMERGENCY_AT as u32..).step_by(4).zip(words) {
            left -= 3;
            self.program.step(WORD_AT, at);
            self.program.step(OR, Shedding::CASE);
            self.program.branch(IF_EQUAL, word, 0, left + 1);
        }
        self.program.jump()
    }

    /// Adds a [jump](Program::jump) that is taken unless the source is in one of the networks, or
    /// the shard is one of `shards`. If the jump is not taken, the hash stays in `A`. Returns `None`
    /// if there are no networks.
    fn jump_unless_in_any(&mut self, networks: &[Network], shards: &[u16]) -> Option<usize> {
        if networks.is_empty() {
            return None;
        }
        self.program.step(STORE, HASH);
        let mut found = Vec::new();
        if !shards.is_empty() {
            self.program.step(RECALL, SHARD);
            found.push(self.jump_if_any(shards));
        }
        found.extend(self.jumps_if_in_any(networks));
        let others = self.program.jump();
        for jump in found {
            self.program.land(jump);
        }
        self.program.step(RECALL, HASH);
        Some(others)
    }

    /// Adds a [jump](Program::jump) that is taken if `A` is one of these numbers, at most 256.
    fn jump_if_any(&mut self, numbers: &[u16]) -> usize {
        for (left, &number) in (0..numbers.len()).rev().zip(numbers) {
            // A comparison that holds jumps to the final jump. If the last comparison fails, it
            // jumps over the final jump.
            self.program.branch(IF_EQUAL, u32::from(number), left as u8, u8::from(left == 0));
        }
        self.program.jump()
    }

    /// Adds [jumps](Program::jump) of which one is taken if the source is in one of the networks.
    /// [`NEAR`] networks share a jump, because a jump for each network would make the program longer
    /// than older kernels accept.
    fn jumps_if_in_any(&mut self, networks: &[Network]) -> Vec<usize> {
        let of_chunk = |chunk: &[Network]| {
            let found: Vec<usize> =
                chunk.iter().filter_map(|network| self.branch_if_in(network)).collect();
            let others = self.program.jump();
            for branch in found {
                self.program.land_branch(branch);
            }
            let inside = self.program.jump();
            self.program.land(others);
            inside
        };
        networks.chunks(NEAR).map(of_chunk).collect()
    }

    /// Adds instructions that end with a branch, which is taken if the source is in `network`.
    /// [`land_branch`](Program::land_branch) sets its target. Returns the index of the branch, or
    /// `None` if no source of this family can be in the network.
    fn branch_if_in(&mut self, network: &Network) -> Option<usize> {
        let words = words_of(self.family, network.address.to_canonical())?;
        let mut bits = u32::from(network.prefix);
        let mut compared = Vec::new();
        for word in self.family.first_word()..4 {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            if mask > 0 {
                compared.push((word, mask));
            }
            bits = bits.saturating_sub(32);
        }
        let steps = |mask: u32| if mask == u32::MAX { 2 } else { 3 };
        if compared.is_empty() {
            return Some(self.program.jump());
        }
        // If a word differs, the instructions for the remaining words are skipped.
        let mut left: u8 = compared.iter().map(|&(_, mask)| steps(mask)).sum();
        for (word, mask) in compared {
            left -= steps(mask);
            self.program.step(RECALL, word as u32);
            if mask < u32::MAX {
                self.program.step(AND, mask);
            }
            self.program.branch(IF_EQUAL, words[word] & mask, 0, left);
        }
        Some(self.program.last())
    }

    /// Adds instructions that return the index of the sink of the shard if the hash in `A` is below
    /// the threshold of the method and the shard. The datagram must be new work.
    fn shed_below(&mut self, thresholds: &[Vec<u64>; 2]) {
        let [of_invites, of_registers] = thresholds;
        self.program.step(STORE, HASH);
        let (mut loaded, mut passes) = (Vec::new(), Vec::new());
        if of_invites != of_registers {
            self.program.step(WORD_AT, 0);
            self.program.branch(IF_EQUAL, REGISTER, 0, 1);
            let register = self.program.jump();
            loaded.extend(self.load_threshold(of_invites));
            passes.push(self.program.jump());
            self.program.land(register);
        }
        loaded.extend(self.load_threshold(of_registers));
        passes.push(self.program.jump());
        for jump in loaded {
            self.program.land(jump);
        }
        self.program.step(RECALL, HASH);
        self.program.branch(IF_ABOVE_X, 0, SINK, 0);
        self.end_in_sink();
        for jump in passes {
            self.program.land(jump);
        }
    }

    /// Adds instructions that set `X` to the highest hash at which the shard sheds a datagram, and
    /// then jump. Returns the [jumps](Program::jump). If the shard sheds nothing, the program takes
    /// none of them.
    fn load_threshold(&mut self, thresholds: &[u64]) -> Vec<usize> {
        let is_same = thresholds.windows(2).all(|pair| pair[0] == pair[1]);
        if !is_same {
            self.program.step(RECALL, SHARD);
        }
        let shards = if is_same { 1 } else { thresholds.len() };
        let mut loaded = Vec::new();
        for (shard, &threshold) in thresholds.iter().enumerate().take(shards) {
            // A threshold is at most 2^32, so the highest hash below it fits in a word.
            let Some(highest) = threshold.checked_sub(1) else { continue };
            if !is_same {
                self.program.branch(IF_EQUAL, shard as u32, 0, 2);
            }
            self.program.step(LOAD_X, highest as u32);
            loaded.push(self.program.jump());
        }
        loaded
    }

    /// Adds [`SINK`] instructions that return the index of the sink of the shard.
    fn end_in_sink(&mut self) {
        self.program.step(RECALL, SHARD);
        self.program.step(ADD, self.first);
        self.program.step(RETURN, 0);
    }
}

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
