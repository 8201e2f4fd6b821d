use std::net::Ipv6Addr;

use super::*;

/// `net.core.optmem_max` before Linux 6.8, in bytes. A larger program is not accepted.
const OPTION_MEMORY: usize = 20_480;

/// Bytes of a translated program without its instructions, and bytes of an instruction.
const PROGRAM: usize = 128;
const INSTRUCTION: usize = 8;

/// Instructions that the kernel adds before the first one.
const PROLOGUE: usize = 8;

/// Returns an upper bound of the number of instructions into which the kernel translates an
/// instruction (net/core/filter.c, `bpf_convert_filter` and `convert_bpf_ld_abs`).
fn translated(instruction: &sock_filter) -> usize {
    let sock_filter { code, jt, jf, k } = *instruction;
    let code = u32::from(code);
    let is_large = usize::from(k > i32::MAX as u32);
    match code & 0x07 {
        libc::BPF_LD | libc::BPF_LDX => match code & 0xe0 {
            libc::BPF_ABS | libc::BPF_IND | libc::BPF_MSH => 14,
            _ => 1,
        },
        libc::BPF_JMP if code & 0xf0 != libc::BPF_JA => {
            1 + usize::from(jt > 0 && jf > 0) + is_large
        }
        libc::BPF_RET => 2,
        _ => 1,
    }
}

fn size(program: &[sock_filter]) -> usize {
    let instructions: usize = program.iter().map(translated).sum();
    PROGRAM + INSTRUCTION * (PROLOGUE + instructions)
}

/// Returns an address whose words are large numbers, because comparing with a large number takes
/// one more instruction.
fn address(family: Family, number: u32) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from((0xcb00_7100 + number).to_be_bytes()),
        Family::V6 => {
            let word = u128::from(0x8000_0000 + number);
            Ipv6Addr::from_bits(word << 96 | word << 64 | word << 32 | word).into()
        }
    }
}

#[test]
fn the_longest_program_fits_into_the_option_memory_of_older_kernels() {
    for family in [Family::V4, Family::V6] {
        // Bans of IPv6 addresses are not given to the kernel.
        let banned: Vec<IpAddr> =
            (0..Shedding::BANNED_MAX as u32).map(|number| address(Family::V4, number)).collect();
        let prefix = if family == Family::V4 { 32 } else { 128 };
        let spared: Vec<Network> = (0..Shedding::SPARED_MAX as u32)
            .map(|number| Network { address: address(family, 1_000 + number), prefix })
            .collect();
        let of = |shards: u16| {
            let layout = Layout { family, shards, split: true };
            let threshold = |method: u16, shard: u16| 0x8000_0000 + u64::from(2 * shard + method);
            let thresholds = |method| (0..shards).map(|shard| threshold(method, shard)).collect();
            let share = Share {
                key: 0x1234_5678,
                thresholds: [0, 1].map(thresholds),
                marks: vec![u32::MAX; Shedding::MARKS_MAX],
                heavy: (0..Shedding::HEAVY_MAX as u32)
                    .map(|number| Network {
                        address: address(family, 2_000 + number),
                        prefix: if family == Family::V4 { 32 } else { 64 },
                    })
                    .collect(),
                untargeted: (1..shards).collect(),
                unspared: (0..Shedding::UNSPARED_MAX as u32)
                    .map(|number| Network {
                        address: address(family, 3_000 + number),
                        prefix: if family == Family::V4 { 32 } else { 64 },
                    })
                    .collect(),
            };
            size(&program(layout, &share, &spared, &banned))
        };
        let (one, eight) = (of(1), of(8));
        assert!(one < eight && eight < OPTION_MEMORY, "{family:?}: {one} {eight} bytes");
    }
}
