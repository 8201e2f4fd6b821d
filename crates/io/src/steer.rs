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

mod bpf;
mod hash;
mod sinks;

use std::net::IpAddr;

use libc::sock_filter;
use tidegate_world::{Network, Shedding};

use self::bpf::{
    ADD, FROM_X, GO_ON, IF_AT_LEAST, IF_EQUAL, LENGTH, MULTIPLY, Program, RETURN, TO_X, WORD_AT,
};
use self::sinks::Sinks;

/// First four bytes of the requests that have their own socket and can be shed, for each method.
const NEW_WORK: [[u8; 4]; 2] = Shedding::PREFIXES;

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
    /// Numbers of the shards with thresholds that apply to requests from all networks.
    pub(crate) untargeted: Vec<u16>,
    /// Networks from which INVITEs to an emergency service are shed like other INVITEs.
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
    let mut program = Program::default();
    program.hash_source(layout.family);
    program.step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(layout.shards.max(1)));
    let first = layout.read() as u32;
    let mut sinks = Sinks { program: &mut program, family: layout.family, first };
    sinks.shed_banned(banned);
    sinks.shed_share(share, spared);
    if layout.split {
        program.step(MULTIPLY, layout.each() as u32);
        add_kind(&mut program);
    }
    program.step(RETURN, 0);
    program.into_instructions()
}

/// Adds instructions that return `A` + 1 for new work, and `A` + 2 for a response. For any other
/// datagram the program continues, with `A` unchanged.
fn add_kind(program: &mut Program) {
    program.step(TO_X, 0);
    // A load beyond the end of a short datagram, such as a two-byte keep-alive, would make the
    // program return 0, whatever the shard is.
    program.step(LENGTH, 0);
    program.branch(IF_AT_LEAST, 4, 0, 9 + NEW_WORK.len() as u8);
    program.step(WORD_AT, 0);
    program.branch(IF_EQUAL, SIP_, 0, 3);
    end_in_kind(program, 2);
    branch_if_new_work(program, 1);
    // Jumps over the instructions that return the index of the socket for new work.
    program.step(GO_ON, 3);
    end_in_kind(program, 1);
    program.step(FROM_X, 0);
}

/// Adds 3 instructions that return `X` + `kind`.
fn end_in_kind(program: &mut Program, kind: u32) {
    program.step(FROM_X, 0);
    program.step(ADD, kind);
    program.step(RETURN, 0);
}

/// Adds conditional jumps over the next `yes` instructions if `A` is the first word of new work.
fn branch_if_new_work(program: &mut Program, yes: u8) {
    for (left, start) in (0..NEW_WORK.len() as u8).rev().zip(NEW_WORK) {
        program.branch(IF_EQUAL, u32::from_be_bytes(start), left + yes, 0);
    }
}

#[cfg(test)]
#[path = "steer_tests.rs"]
mod tests;
