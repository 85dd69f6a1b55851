//! Values of flags.

use std::ops::RangeInclusive;

use clap::builder::RangedI64ValueParser;
use clap::value_parser;

/// Whole numbers in a range.
pub fn whole(range: RangeInclusive<i64>) -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(range)
}
