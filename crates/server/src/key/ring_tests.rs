//! Tests of the ring of keys.

use super::*;
use crate::key::Rotation;

const SETTLE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: u64) -> UnixTime {
    Duration::from_secs(1_800_000_000 + seconds)
}

fn roles(ring: &KeyRing, now: UnixTime) -> Vec<(u32, &'static str)> {
    ring.shown(now, SETTLE).map(|key| (key.version, key.role.name())).collect()
}

#[test]
fn a_key_is_accepted_before_it_is_used_and_after() {
    let ring = KeyRing::new([9; 32], [1; 32], at(0));
    assert_eq!(roles(&ring, at(0)), [(1, "current")], "there is no other");
    let rotated = ring.rotated(at(100), SETTLE, [2; 32]).unwrap();
    assert_eq!(roles(&rotated, at(159)), [(2, "next"), (1, "current")]);
    assert_eq!(roles(&rotated, at(160)), [(2, "current"), (1, "previous")]);
    for (now, current, other) in [(159, 1, 2), (160, 2, 1)] {
        let Secret { base, tokens } = rotated.secret(at(now), SETTLE);
        let of = |version: u32| TokenKey { version, key: [version as u8; 32] };
        assert_eq!(base, Base([9; 32]), "it stays");
        assert_eq!(tokens, TokenKeys { current: of(current), others: vec![of(other)] });
    }
}

#[test]
fn a_rotation_waits_for_the_one_before() {
    let ring = KeyRing::new([9; 32], [1; 32], at(0));
    let ring = ring.rotated(at(10), SETTLE, [2; 32]).unwrap();
    let early = ring.rotated(at(30), SETTLE, [3; 32]);
    assert_eq!(early, Err(NotRotated::Settling(2, Duration::from_secs(40))));
    assert_eq!(
        early.unwrap_err().to_string(),
        "cannot make a new key: key 2 is not in use yet; wait for another 40 s (`key_settle_s`)"
    );
    assert!(ring.rotated(at(70), SETTLE, [3; 32]).is_ok());
    assert!(!ring.is_due(at(10) + HOUR - Duration::from_secs(1), HOUR));
    assert!(ring.is_due(at(10) + HOUR, HOUR));
}

#[test]
fn the_oldest_key_goes_a_day_after_it_was_last_in_use() {
    let mut ring = KeyRing::new([9; 32], [1; 32], at(0));
    for n in 1..KEYS_MAX as u64 {
        ring = ring.rotated(at(100 * n), SETTLE, [n as u8 + 1; 32]).unwrap();
    }
    // The second key was made at 100 and was in use from 160 on.
    let gone = at(160) + 24 * HOUR;
    let left = Duration::from_secs(1);
    let early = ring.rotated(gone - left, SETTLE, [9; 32]).unwrap_err();
    assert_eq!(early, NotRotated::Kept(1, left));
    assert_eq!(
        early.to_string(),
        "cannot make a new key: there are 8 keys, which is the limit, and the oldest, key 1, may \
         still be needed for 1 s; try again after that"
    );
    let ring = ring.rotated(gone, SETTLE, [9; 32]).unwrap();
    let versions: Vec<_> = ring.shown(gone, SETTLE).map(|key| key.version).collect();
    assert_eq!(versions, [9, 8, 7, 6, 5, 4, 3, 2]);
}

#[test]
fn every_rotation_at_the_shortest_interval_succeeds() {
    for settle in [Duration::from_secs(10), SETTLE, 10 * HOUR] {
        let every = Rotation::every_min(settle) + Duration::from_secs(1);
        let rotates = |every: Duration| {
            let mut ring = KeyRing::new([9; 32], [1; 32], at(0));
            (1..30).all(|n| match ring.rotated(at(0) + n * every, settle, [n as u8; 32]) {
                Ok(rotated) => {
                    ring = rotated;
                    true
                }
                Err(_) => false,
            })
        };
        assert!(rotates(every), "{every:?} {settle:?}");
        assert!(!rotates(every - Duration::from_secs(2)), "{every:?} {settle:?}");
    }
}

/// A regression: if a clock was ahead at a rotation, the next rotation was rejected for as long as
/// the clock had been ahead.
#[test]
fn keys_of_a_clock_that_was_decades_ahead_delay_no_rotation() {
    let decades = 30 * 365 * 24 * HOUR;
    for times in [1, KEYS_MAX as u32] {
        let mut ring = KeyRing::new([9; 32], [1; 32], at(0));
        for n in 1..=times {
            let far = at(0) + decades + 10 * n * KEPT;
            assert!(ring.is_due(far, HOUR));
            ring = ring.rotated(far, SETTLE, [n as u8; 32]).unwrap();
        }
        // The clock is right again. The newest key that has settled by this clock is used.
        assert!(ring.is_due(at(500), HOUR), "or no key were made for decades");
        let ring = ring.rotated(at(500), SETTLE, [77; 32]).unwrap();
        assert!(!ring.is_due(at(501), HOUR));
        assert_eq!(roles(&ring, at(560))[0], (times + 2, "current"));
        assert_eq!(KeyRing::parse(ring.text().as_bytes()).as_ref(), Ok(&ring));
        let early = ring.rotated(at(501), SETTLE, [78; 32]).unwrap_err();
        assert_eq!(early, NotRotated::Settling(times + 2, Duration::from_secs(59)));
        // The oldest key is needed for one more day, but not longer.
        assert!(ring.rotated(at(560) + KEPT, SETTLE, [78; 32]).is_ok());
    }
    // A key of another instance whose clock is as far ahead as allowed.
    let ring = KeyRing::new([9; 32], [1; 32], at(0)).rotated(at(100), SETTLE, [2; 32]).unwrap();
    let left = ring.rotated(at(100) - AHEAD_MAX, SETTLE, [3; 32]).unwrap_err();
    assert_eq!(left, NotRotated::Settling(2, AHEAD_MAX + SETTLE));
}

/// The times are the year 2106, and the last time that a clock can show.
#[test]
fn the_time_of_a_key_may_be_any_that_a_clock_shows() {
    for seconds in [1 << 32, u64::MAX] {
        let time = Duration::from_secs(seconds);
        let ring = KeyRing::new([9; 32], [1; 32], time);
        assert_eq!(KeyRing::parse(ring.text().as_bytes()).as_ref(), Ok(&ring));
        assert_eq!(roles(&ring, time), [(1, "current")]);
        assert!(ring.rotated(at(0), SETTLE, [2; 32]).is_ok());
    }
}

#[test]
fn a_clock_that_was_not_set_makes_no_keys() {
    let ring = KeyRing::new([9; 32], [1; 32], at(0));
    let hours = Duration::from_secs(5);
    let rejected = ring.rotated(hours, SETTLE, [2; 32]).unwrap_err();
    assert_eq!(rejected, NotRotated::Clock(hours));
    assert!(rejected.to_string().contains("before 2026 (Unix time 5)"), "{rejected}");
    assert!(!ring.is_due(hours, HOUR));
}

/// A regression: a rotation wrote a version that could not be read. Only a file that was edited by
/// hand has such versions.
#[test]
fn after_the_highest_version_comes_the_lowest_with_the_same_mark() {
    let key = "0a".repeat(32);
    let last = u32::MAX - 1;
    let text = format!("base {key}\n{last} 5 {key}\n{} 5 {key}\n", last - 7);
    let ring = KeyRing::parse(text.as_bytes()).unwrap();
    let marks = |ring: &KeyRing| ring.keys.iter().map(|made| made.version as u8).collect();
    let before: Vec<u8> = marks(&ring);
    let ring = ring.rotated(at(0), SETTLE, [2; 32]).unwrap();
    let after: Vec<u8> = marks(&ring);
    assert_eq!((after[0], &after[1..]), (before[0] + 1, &before[..]));
    assert_eq!(roles(&ring, at(60)), [(255, "current"), (254, "previous"), (247, "previous")]);
    assert_eq!(KeyRing::parse(ring.text().as_bytes()).as_ref(), Ok(&ring));
}

#[test]
fn written_data_reads_back() {
    let ring = KeyRing::new([9; 32], [1; 32], at(0) + Duration::from_millis(1));
    let ring = ring.rotated(at(100), SETTLE, [2; 32]).unwrap();
    let text = ring.text();
    assert_eq!(text.lines().next(), Some(&*format!("base {}", "09".repeat(32))));
    assert_eq!(text.lines().nth(1), Some(&*format!("2 1800000100 {}", "02".repeat(32))));
    assert_eq!(KeyRing::parse(text.as_bytes()), Ok(ring.clone()));
    assert_eq!(format!("{ring:?}"), "KeyRing(2 keys, the newest of version 2)");
}

#[test]
fn keys_alone_are_in_use_from_the_first_on() {
    let text = format!("{}\n{}\n", "0a".repeat(32), "FF".repeat(32));
    let ring = KeyRing::parse(text.as_bytes()).unwrap();
    assert_eq!(ring.base, [0x0a; 32]);
    assert_eq!(roles(&ring, at(0)), [(2, "current"), (1, "previous")]);
    let ring = ring.rotated(at(0), SETTLE, [3; 32]).unwrap();
    assert_eq!(roles(&ring, at(0)), [(3, "next"), (2, "current"), (1, "previous")]);
    assert_eq!(KeyRing::parse(ring.text().as_bytes()), Ok(ring));
}

#[test]
fn errors_name_their_line() {
    let key = "0a".repeat(32);
    for (content, line, what) in [
        (format!("base {key}\n"), 1, "the file has no line with a key for route tokens"),
        (format!("base {key}0\n1 5 {key}"), 1, "65 digits"),
        (format!("base {key}\n1 {key}"), 2, "not a line with a version, a time and a key"),
        (format!("base {key}\nx 5 {key}"), 2, "the version is not"),
        (format!("base {key}\n0 5 {key}"), 2, "the version is not"),
        // This version is too high, because no version could follow it.
        (format!("base {key}\n4294967295 5 {key}"), 2, "the version is not"),
        (format!("base {key}\n1 x {key}"), 2, "not a number of seconds"),
        (format!("base {key}\n1 5 {key}\n2 5 {key}"), 3, "version 2 is out of order"),
        (format!("base {key}\n1 5 {key}\n1 5 {key}"), 3, "version 1 is out of order"),
        (format!("base {key}\n300 5 {key}\n44 5 {key}"), 3, "version 44 is out of order"),
        (format!("base {key}\n2 5 {key}\n{key}"), 3, "not a line with a version"),
    ] {
        let wrong = KeyRing::parse(content.as_bytes()).unwrap_err();
        assert_eq!(wrong.line, line, "{content}");
        assert!(wrong.what.contains(what), "{wrong:?}");
        assert!(!wrong.what.contains("0a0a"), "{wrong:?}");
    }
    let many: String = (0..9).map(|n| format!("{} 5 {key}\n", 20 - n)).collect();
    let wrong = KeyRing::parse(format!("base {key}\n{many}").as_bytes()).unwrap_err();
    assert_eq!(wrong, Wrong { line: 10, what: "more than 8 keys".to_owned() });
    assert!(KeyRing::parse(format!("base {key}\n300 5 {key}\n45 5 {key}").as_bytes()).is_ok());
}
