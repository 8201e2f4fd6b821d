//! The hash functions of the policies that select by a hash.
//!
//! The functions must be the same in all versions and balancers, so they use no secret key. If
//! peers can choose the hashed data, the caller first applies a keyed hash, unless a policy
//! requires a hash without a key.

/// Returns the 64-bit FNV-1a hash (Fowler, Noll, Vo; RFC 9923).
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Applies the final step of SplitMix64, so that every input bit affects every output bit.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Maps a hash to a uniform number in (0, 1), excluding both ends, so that its logarithm is finite
/// and not zero.
pub(crate) fn unit(hash: u64) -> f64 {
    // With 53 bits instead of 52, the largest number plus a half would be rounded up, and the
    // result would be 1.
    ((hash >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_is_never_zero_nor_one() {
        for hash in [0, 1, u64::MAX - 1, u64::MAX] {
            assert!((f64::MIN_POSITIVE..1.0).contains(&unit(hash)), "{hash:x}");
        }
        assert!((unit(1 << 63) - 0.5).abs() < 1e-15);
    }

    // SplitMix64 (Steele, Lea, Flood 2014) from the seed 1234567, as published.
    #[test]
    fn mix_is_the_finaliser_of_splitmix64() {
        let state = |k: u64| 1_234_567u64.wrapping_add(k.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert_eq!(
            [1, 2, 3].map(|k| mix(state(k))),
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    // The test vectors of draft-eastlake-fnv.
    #[test]
    fn fnv1a_is_as_published() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
