//! The time of day and its date.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Nanoseconds since 1970, the time with which packets are stamped.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}

/// The day (UTC) of a time since 1970, as `2026-11-22`. Years are counted from March, so that the
/// leap day is the last day of a year.
pub fn day(unix_s: u64) -> String {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Days since 0000-03-01.
    let days = unix_s / 86_400 + 719_468;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = match month {
        0..=9 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    let year = era * 400 + year + next_year;
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

/// The second (UTC) of a time since 1970, as RFC 3339 writes it: `2026-11-22T17:31:13Z`.
pub fn utc(unix_s: u64) -> String {
    let (hour, minute, second) = (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", day(unix_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (unix_s, right) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_368_673, "2026-11-22"),
            (4_102_444_800, "2100-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(unix_s), right);
        }
    }

    #[test]
    fn a_second_is_of_its_day() {
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_368_673), "2026-11-22T17:31:13Z");
    }
}
