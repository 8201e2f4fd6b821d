//! Wall-clock time for operators.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_world::Timestamp;
use time::OffsetDateTime;

use crate::key::unix_time;

/// Returns the wall-clock time now.
pub(crate) fn wall_now() -> SystemTime {
    UNIX_EPOCH + unix_time()
}

/// Converts `at`, a time on the clock of the shards, to wall-clock time. `now` is the present time
/// on the clock of the shards.
pub(crate) fn wall_time(now: Timestamp, at: Timestamp) -> SystemTime {
    wall_now().checked_sub(now.since(at)).unwrap_or(UNIX_EPOCH)
}

/// Writes a time by RFC 3339, in UTC and with milliseconds: `2026-11-23T07:15:04.250Z`.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second, milli) = time.to_hms_milli();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_match_the_command_date() {
        // The expected texts are those of `date -u -d @N`.
        for (seconds, text) in [(0, "1970-01-01T00:00:00"), (1_709_210_096, "2024-02-29T12:34:56")]
        {
            let time = UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7);
            assert_eq!(rfc3339(time), format!("{text}.007Z"));
        }
    }

    #[test]
    fn a_past_time_of_the_shards_is_a_past_wall_clock_time() {
        let now = Timestamp::from_nanos(9_000_000_000);
        let then = wall_time(now, Timestamp::from_nanos(2_000_000_000));
        let ago = wall_now().duration_since(then).unwrap();
        assert!(ago >= Duration::from_secs(7) && ago < Duration::from_secs(60), "{ago:?}");
    }
}
