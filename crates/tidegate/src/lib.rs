//! The parts that the programs `tidegate` and `tidegate-lab` share.
//!
//! Every command of both programs ends with one of three exit statuses. 0: the command is done and
//! every condition held. 1: a condition did not hold, or the system denied a resource, such as an
//! address in use. 2: the usage, the configuration or a file is wrong.

pub mod json;
pub mod manual;
pub mod programs;
pub mod replay;
pub mod screen;
pub mod trouble;

/// The allocator of both programs. Each call takes and frees some ten blocks of up to 2 KiB that
/// live for half a minute: `docs/decisions/0043-mimalloc-allocates.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit status for an error of usage or configuration. clap uses the same.
pub const WRONG_USE: u8 = 2;
