//! Wall-clock time for operators.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_world::Timestamp;

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
    const DAY: u64 = 86_400;
    let since: Duration = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let milli = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Returns the year, month and day of the day `days` days after 1970-01-01 in the Gregorian
/// calendar. The computation lets years begin in March, so that the leap day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_the_command_date() {
        // The expected texts are those of `date -u -d @N`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_704_067_199, "2023-12-31T23:59:59"),
            (1_709_210_096, "2024-02-29T12:34:56"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
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
