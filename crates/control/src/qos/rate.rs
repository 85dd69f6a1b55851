//! Bits per second, written as `tc` writes them: `100mbit`.

use std::fmt;
use std::str::FromStr;

/// Bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// A rate beyond any interface; all rates below it are exact.
const MAX_BPS: f64 = 1e12;

impl Rate {
    pub const ZERO: Rate = Rate(0);

    pub const fn mbit(n: u64) -> Rate {
        Rate(n * 1_000_000)
    }

    /// The rate in the unit of meters: thousands of bits, rounded up.
    pub fn kbit(self) -> u64 {
        self.0.div_ceil(1000)
    }

    pub fn saturating_sub(self, other: Rate) -> Rate {
        Rate(self.0.saturating_sub(other.0))
    }

    pub fn saturating_add(self, other: Rate) -> Rate {
        Rate(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Rate {
    fn sum<I: Iterator<Item = Rate>>(rates: I) -> Rate {
        rates.fold(Rate::ZERO, Rate::saturating_add)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1000, "kbit")];
        let is_whole = |unit: u64| self.0 > 0 && self.0.is_multiple_of(unit);
        match units.iter().find(|(unit, _)| is_whole(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}bit", self.0),
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong = || format!("'{text}' is not a rate: write it as tc does, such as 100mbit");
        let unit_at = text.find(|c: char| c != '.' && !c.is_ascii_digit());
        let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
        let unit = match unit.to_ascii_lowercase().as_str() {
            // As in Open vSwitch's database.
            "" | "bit" => 1e0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(wrong()),
        };
        let bits = number.parse::<f64>().map_err(|_| wrong())? * unit;
        if !(1.0..=MAX_BPS).contains(&bits) {
            return Err(format!("rate {text} is not between 1bit and 1000gbit"));
        }
        Ok(Rate(bits as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_it_is_written() {
        for (text, bits) in [
            ("100mbit", 100_000_000),
            ("2.5Mbit", 2_500_000),
            ("1gbit", 1_000_000_000),
            ("1234bit", 1234),
            ("100000000", 100_000_000),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.0, bits);
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        for wrong in [
            "", ".", "0", "mbit", "1..2mbit", "-1mbit", "9999gbit", "0bit",
        ] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_meter_is_never_below_what_was_asked() {
        assert_eq!(Rate(1).kbit(), 1);
        assert_eq!(Rate(2001).kbit(), 3);
        assert_eq!(Rate::mbit(20).kbit(), 20_000);
    }
}
