//! Scalars in text: numbers, addresses and their masks, durations, bit names, hex dumps.
//!
//! Each is formatted as in `ovs-ofctl`, because people grep for it.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::match_fields::Field;
use crate::types::{MacAddr, PortNo};

/// How the value of a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Decimal,
    Hex,
    Mac,
    Ipv4,
    Ipv6,
    Port,
}

pub(super) fn shape(field: Field) -> Shape {
    use Field::*;
    match field {
        InPort | InPhyPort => Shape::Port,
        EthDst | EthSrc | ArpSha | ArpTha | Ipv6NdSll | Ipv6NdTll => Shape::Mac,
        Ipv4Src | Ipv4Dst | ArpSpa | ArpTpa => Shape::Ipv4,
        Ipv6Src | Ipv6Dst | Ipv6NdTarget => Shape::Ipv6,
        Metadata | EthType | Ipv6Flabel | PbbIsid | TunnelId | Ipv6Exthdr => Shape::Hex,
        _ => Shape::Decimal,
    }
}

/// The value of `field` as SET_FIELD writes it; a mask of all ones is left out.
pub(super) fn value(
    w: &mut dyn Write,
    field: Field,
    value: u128,
    mask: Option<u128>,
) -> fmt::Result {
    let mask = mask.filter(|m| *m != field.ones());
    match (shape(field), mask) {
        (Shape::Mac, mask) => mac(w, value, mask),
        (Shape::Ipv4, mask) => ipv4(w, value, mask),
        (Shape::Ipv6, mask) => ipv6(w, value, mask),
        (Shape::Port, None) => write!(w, "{}", PortNo(value as u32)),
        (Shape::Hex, None) => write!(w, "{value:#x}"),
        (Shape::Hex, Some(mask)) => write!(w, "{value:#x}/{mask:#x}"),
        (Shape::Decimal, None) => write!(w, "{value}"),
        (Shape::Decimal | Shape::Port, Some(mask)) => write!(w, "{value}/{mask:#x}"),
    }
}

/// `%#x` as C writes it: zero has no prefix.
pub(super) fn c_hex(value: u64) -> String {
    match value {
        0 => "0".into(),
        value => format!("{value:#x}"),
    }
}

pub(super) fn mac(w: &mut dyn Write, value: u128, mask: Option<u128>) -> fmt::Result {
    write!(w, "{}", MacAddr::from_u64(value as u64))?;
    match mask {
        Some(mask) => write!(w, "/{}", MacAddr::from_u64(mask as u64)),
        None => Ok(()),
    }
}

pub(super) fn ipv4(w: &mut dyn Write, value: u128, mask: Option<u128>) -> fmt::Result {
    write!(w, "{}", Ipv4Addr::from_bits(value as u32))?;
    match mask {
        None => Ok(()),
        Some(mask) => match prefix_len(mask, 32) {
            Some(len) => write!(w, "/{len}"),
            None => write!(w, "/{}", Ipv4Addr::from_bits(mask as u32)),
        },
    }
}

pub(super) fn ipv6(w: &mut dyn Write, value: u128, mask: Option<u128>) -> fmt::Result {
    write!(w, "{}", Ipv6Addr::from_bits(value))?;
    match mask {
        None => Ok(()),
        Some(mask) => match prefix_len(mask, 128) {
            Some(len) => write!(w, "/{len}"),
            None => write!(w, "/{}", Ipv6Addr::from_bits(mask)),
        },
    }
}

/// Returns the prefix length of `mask` in an address of `bits`; `None` if the mask has holes.
pub(super) fn prefix_len(mask: u128, bits: u32) -> Option<u32> {
    let ones = mask.count_ones();
    (mask == prefix_mask(ones, bits)).then_some(ones)
}

/// Returns a mask of `len` ones from the left of an address of `bits`.
pub(super) fn prefix_mask(len: u32, bits: u32) -> u128 {
    let all = u128::MAX >> (128 - bits);
    if len >= bits {
        all
    } else {
        all & !(all >> len)
    }
}

/// Writes seconds with enough decimals to be exact: none, three, or up to nine.
pub(super) fn duration(w: &mut dyn Write, sec: u32, nsec: u32) -> fmt::Result {
    if nsec == 0 {
        return write!(w, "{sec}s");
    }
    if nsec.is_multiple_of(1_000_000) {
        return write!(w, "{sec}.{:03}s", nsec / 1_000_000);
    }
    let decimals = format!("{nsec:09}");
    write!(w, "{sec}.{}s", decimals.trim_end_matches('0'))
}

/// The names of the bits that are set, lowest first; those without a name together in hex.
pub(super) fn bit_names(bits: u32, name: impl Fn(u32) -> Option<&'static str>) -> String {
    if bits == 0 {
        return "0".into();
    }
    let mut unnamed = bits;
    let mut words: Vec<String> = Vec::new();
    for bit in (0..32).map(|n| 1 << n).filter(|bit| bits & bit != 0) {
        if let Some(name) = name(bit) {
            words.push(name.into());
            unnamed &= !bit;
        }
    }
    if unnamed != 0 {
        words.push(format!("{unnamed:#x}"));
    }
    words.join(" ")
}

/// Sixteen bytes a line, offset, hex and printable characters.
pub(super) fn hex_dump(w: &mut dyn Write, bytes: &[u8]) -> fmt::Result {
    for (at, line) in bytes.chunks(16).enumerate() {
        write!(w, "{:08x} ", at * 16)?;
        for n in 0..16 {
            // Open vSwitch marks the middle of a line with a dash when the eighth byte is there.
            let lead = if n == 8 && line.len() >= 8 { '-' } else { ' ' };
            match line.get(n) {
                Some(byte) => write!(w, "{lead}{byte:02x}")?,
                None => write!(w, "{lead}  ")?,
            }
        }
        w.write_str(" |")?;
        for n in 0..16 {
            let shown = match line.get(n) {
                Some(byte) if (0x20..0x7f).contains(byte) => char::from(*byte),
                Some(_) => '.',
                None => ' ',
            };
            w.write_char(shown)?;
        }
        w.write_str("|\n")?;
    }
    Ok(())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Parses pairs of hex digits and nothing else.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
    Some(
        digits
            .chunks(2)
            .map(|pair| nibble(pair[0]) << 4 | nibble(pair[1]))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut dyn Write) -> fmt::Result) -> String {
        let mut text = String::new();
        write(&mut text).unwrap();
        text
    }

    #[test]
    fn a_mask_is_a_prefix_length_when_it_can_be() {
        assert_eq!(
            text(|w| ipv4(w, 0x0a00_0000, Some(0xff00_0000))),
            "10.0.0.0/8"
        );
        assert_eq!(
            text(|w| ipv4(w, 0x0a00_0001, Some(0xff00_00ff))),
            "10.0.0.1/255.0.0.255"
        );
        assert_eq!(text(|w| ipv6(w, 1 << 127, Some(1 << 127))), "8000::/1");
        assert_eq!(prefix_mask(0, 32), 0);
        assert_eq!(prefix_mask(128, 128), u128::MAX);
        assert_eq!(prefix_len(0, 32), Some(0));
    }

    #[test]
    fn durations_have_no_more_decimals_than_needed() {
        assert_eq!(text(|w| duration(w, 4, 0)), "4s");
        assert_eq!(text(|w| duration(w, 4, 50_000_000)), "4.050s");
        assert_eq!(text(|w| duration(w, 4, 1)), "4.000000001s");
        assert_eq!(text(|w| duration(w, 4, 120_300)), "4.0001203s");
    }

    #[test]
    fn a_hex_dump_has_a_dash_in_the_middle() {
        assert_eq!(
            text(|w| hex_dump(w, b"\x00bytes more!")),
            "00000000  00 62 79 74 65 73 20 6d-6f 72 65 21             |.bytes more!    |\n"
        );
    }
}
