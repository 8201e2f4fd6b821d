//! The parts that the programs `tidegate` and `tidegate-lab` share.
//!
//! Every command of both programs ends with one of three exit statuses. 0: the command succeeded,
//! and every condition that it checks holds. 1: a condition does not hold, or the command failed
//! while it ran. 2: the usage, the configuration or a file is wrong, or the command cannot begin.
//! `tidegate run` exits with 1 if a later start may succeed, for example because another program
//! uses its address.

pub mod json;
pub mod manual;
pub mod programs;
pub mod replay;
pub mod screen;
pub mod trouble;

/// The allocator of both programs. Each call allocates about ten blocks of up to 2 KiB, and frees
/// them after half a minute: `docs/decisions/0043-mimalloc-allocates.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit status for an error of usage or configuration. clap uses the same status.
pub const WRONG_USE: u8 = 2;
