//! A classic-BPF program that is being written. Jumps get their targets later.

use libc::sock_filter;

/// Offset of the network header, for loads relative to it.
pub(super) const NETWORK: u32 = libc::SKF_NET_OFF as u32;

// The instructions. `A` is the accumulator, and `X` the index register.
pub(super) const WORD_AT: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
pub(super) const HALF_AT: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
pub(super) const BYTE_AT: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
pub(super) const LOAD_CONSTANT: u32 = libc::BPF_LD | libc::BPF_IMM;
pub(super) const LOAD_X: u32 = libc::BPF_LDX | libc::BPF_IMM;
pub(super) const MULTIPLY: u32 = libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K;
pub(super) const XOR_X: u32 = libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X;
pub(super) const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
pub(super) const TO_X: u32 = libc::BPF_MISC | libc::BPF_TAX;
pub(super) const FROM_X: u32 = libc::BPF_MISC | libc::BPF_TXA;
pub(super) const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
pub(super) const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
pub(super) const IF_ABOVE_X: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_X;
pub(super) const GO_ON: u32 = libc::BPF_JMP | libc::BPF_JA;
pub(super) const OR: u32 = libc::BPF_ALU | libc::BPF_OR | libc::BPF_K;
pub(super) const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
pub(super) const ADD: u32 = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K;
pub(super) const RETURN: u32 = libc::BPF_RET | libc::BPF_A;
pub(super) const STORE: u32 = libc::BPF_ST;
pub(super) const RECALL: u32 = libc::BPF_LD | libc::BPF_MEM;
pub(super) const LENGTH: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;

/// A program to which instructions are added.
#[derive(Default)]
pub(super) struct Program(Vec<sock_filter>);

impl Program {
    /// Adds an instruction other than a conditional jump.
    pub(super) fn step(&mut self, code: u32, k: u32) {
        self.branch(code, k, 0, 0);
    }

    /// Adds a conditional jump: over `yes` instructions if the condition holds, otherwise over
    /// `no`.
    pub(super) fn branch(&mut self, code: u32, k: u32, yes: u8, no: u8) {
        self.0.push(sock_filter { code: code as u16, jt: yes, jf: no, k });
    }

    /// Adds a jump, whose target [`land`](Self::land) sets. It is needed because conditional jumps
    /// reach at most 255 instructions. Returns the index of the jump.
    pub(super) fn jump(&mut self) -> usize {
        self.step(GO_ON, 0);
        self.last()
    }

    /// Sets the target of a [jump](Self::jump) to the next instruction.
    pub(super) fn land(&mut self, jump: usize) {
        self.0[jump].k = (self.0.len() - jump - 1) as u32;
    }

    /// Sets the target of a [jump](Self::jump), or of a branch that is taken if its condition holds,
    /// to the next instruction. A branch reaches at most 255 instructions.
    pub(super) fn land_branch(&mut self, at: usize) {
        if self.0[at].code == GO_ON as u16 {
            self.land(at);
        } else {
            self.0[at].jt = (self.0.len() - at - 1) as u8;
        }
    }

    /// Returns the index of the last instruction.
    pub(super) fn last(&self) -> usize {
        self.0.len() - 1
    }

    /// Returns the finished program.
    pub(super) fn into_instructions(self) -> Vec<sock_filter> {
        self.0
    }
}
