//! `--coalesce`, `--duplicate` and the class of an agent: values for each kind of message, read
//! from words.

use std::time::Duration;

use relay::{Kind, PerKind};

/// A longer window would be an outage.
const WINDOW_MAX: Duration = Duration::from_millis(100);

/// Reads `1ms` for all but echoes, or `packet=1ms,statistics=5ms`; a later word overrides an
/// earlier one.
pub fn coalescing(text: &str) -> Result<PerKind<Duration>, String> {
    let mut windows = PerKind::default();
    for word in text.split(',') {
        match word.split_once('=') {
            Some((name, time)) => windows.set(kind(name)?, window(time)?),
            None => {
                let window = window(word)?;
                let waiting = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Echo);
                waiting.for_each(|kind| windows.set(kind, window));
            }
        }
    }
    Ok(windows)
}

/// Reads kinds such as `echo,packet-in`.
pub fn duplicated(text: &str) -> Result<PerKind<bool>, String> {
    let mut kinds = PerKind::default();
    for word in text.split(',') {
        kinds.set(kind(word)?, true);
    }
    Ok(kinds)
}

pub fn kind(word: &str) -> Result<Kind, String> {
    Kind::parse(word).ok_or_else(|| {
        let names = Kind::ALL.map(Kind::name).join(", ");
        format!("'{word}' is no kind of message; write one of {names}")
    })
}

fn window(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match (text.strip_suffix("ms"), text.strip_suffix("us")) {
        (Some(digits), _) => (digits, 1000),
        (_, Some(digits)) => (digits, 1),
        _ if text == "0" => (text, 1),
        _ => ("", 1),
    };
    let window = digits.parse::<u32>().ok();
    let window = window.map(|number| Duration::from_micros(u64::from(number) * unit));
    window
        .filter(|window| *window <= WINDOW_MAX)
        .ok_or_else(|| format!("'{text}' is no window; write 1ms, 500us or 0, at most 100ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_time_is_for_all_but_echoes_and_a_kind_has_its_own() {
        let all = coalescing("1ms").unwrap();
        assert_eq!(*all.get(Kind::Echo), Duration::ZERO);
        assert_eq!(*all.get(Kind::Packet), Duration::from_millis(1));
        let some = coalescing("5ms,flow-mod=0,packet-in=500us").unwrap();
        assert_eq!(*some.get(Kind::State), Duration::ZERO);
        assert_eq!(*some.get(Kind::Packet), Duration::from_micros(500));
        assert_eq!(*some.get(Kind::Other), Duration::from_millis(5));
        for wrong in [
            "",
            "1",
            "1s",
            "-1ms",
            "101ms",
            "packets=1ms",
            "packet=1",
            "1.5ms",
        ] {
            assert!(coalescing(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn kinds_are_named_one_by_one() {
        let kinds = duplicated("echo,packet-in").unwrap();
        assert!(*kinds.get(Kind::Echo) && *kinds.get(Kind::Packet));
        assert!(!*kinds.get(Kind::State));
        assert!(duplicated("all").unwrap_err().contains("exchange"));
    }
}
