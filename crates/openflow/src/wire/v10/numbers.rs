//! Numbers that differ between 1.0 and later versions: ports, port features, errors.

use crate::error::{EncodeError, ErrorKind};
use crate::types::PortNo;
use crate::wire::writer::Writer;

/// The first reserved port number of 1.0 (OFPP_MAX); the reserved ones are the highest of 16 bits.
const PORT_MAX: u16 = 0xff00;

pub(super) fn port_from_wire(port: u16) -> PortNo {
    if port < PORT_MAX {
        PortNo(port.into())
    } else {
        PortNo(0xffff_0000 | u32::from(port))
    }
}

pub(super) fn port_to_wire(port: PortNo, w: &Writer) -> Result<u16, EncodeError> {
    if port.0 < PORT_MAX.into() || port >= PortNo::MAX {
        Ok(port.0 as u16)
    } else {
        w.unsupported("port number above 65279")
    }
}

/// Bits 0 to 6, up to 10 Gb/s full duplex, are the same in all versions.
const SPEEDS: u32 = 0x7f;

/// OFPPF_COPPER to OFPPF_PAUSE_ASYM: bits 7 to 11 in 1.0, 11 to 15 later.
const MEDIA: u32 = 0x1f << 7;

pub(super) fn features_from_wire(features: u32) -> u32 {
    features & SPEEDS | (features & MEDIA) << 4
}

pub(super) fn features_to_wire(features: u32, w: &Writer) -> Result<u32, EncodeError> {
    if features & !(SPEEDS | MEDIA << 4) != 0 {
        return w.unsupported("such port feature");
    }
    Ok(features & SPEEDS | features >> 4 & MEDIA)
}

/// Returns the fastest of `features` in kbit/s, which later versions state as `curr_speed` and
/// `max_speed`.
pub(super) fn speed_of(features: u32) -> u32 {
    match features & SPEEDS {
        0 => 0,
        f if f >= 1 << 6 => 10_000_000,
        f if f >= 1 << 4 => 1_000_000,
        f if f >= 1 << 2 => 100_000,
        _ => 10_000,
    }
}

/// Errors of 1.0 that have other numbers in 1.3. BAD_REQUEST and BAD_ACTION have the same ones.
const ERRORS: &[((u16, u16), ErrorKind)] = &[
    ((3, 0), ErrorKind::FLOW_MOD_TABLE_FULL),
    ((3, 1), ErrorKind::FLOW_MOD_OVERLAP),
    ((3, 2), ErrorKind::FLOW_MOD_EPERM),
    ((3, 3), ErrorKind::FLOW_MOD_BAD_EMERG_TIMEOUT),
    ((3, 4), ErrorKind::FLOW_MOD_BAD_COMMAND),
    ((3, 5), ErrorKind::FLOW_MOD_UNSUPPORTED),
    ((4, 0), ErrorKind::PORT_MOD_BAD_PORT),
    ((4, 1), ErrorKind::PORT_MOD_BAD_HW_ADDR),
    ((5, 0), ErrorKind::QUEUE_BAD_PORT),
    ((5, 1), ErrorKind::QUEUE_BAD_QUEUE),
    ((5, 2), ErrorKind::QUEUE_EPERM),
];

/// Number of codes of HELLO_FAILED, BAD_REQUEST and BAD_ACTION in 1.0, numbered as in 1.3.
const SHARED_CODES: [u16; 3] = [2, 9, 9];

/// Types below this mean something else, or nothing, in the other version.
const NUMBERED_TYPES: u16 = 14;

/// Offset added to the type of an unnamed error of 1.0, so that it is not taken for the error of
/// 1.3 with the same numbers.
const UNNAMED: u16 = 0x1000;

/// Converts the numbers of an error in 1.0 to the numbering of 1.3.
///
/// Types of 14 and more are a vendor's and pass unchanged.
pub(in crate::wire) fn error_from_wire(ty: u16, code: u16) -> ErrorKind {
    if let Some((_, kind)) = ERRORS.iter().find(|(wire, _)| *wire == (ty, code)) {
        return *kind;
    }
    let shared = SHARED_CODES.get(usize::from(ty)).is_some_and(|n| code < *n);
    let ty = if shared || ty >= NUMBERED_TYPES {
        ty
    } else {
        ty + UNNAMED
    };
    ErrorKind { ty, code }
}

/// Returns the numbers of `kind` in 1.0, if 1.0 has the error.
///
/// A vendor's type in the range of unnamed errors is written unchanged, unless it means the same as
/// an unnamed error.
pub(in crate::wire) fn error_to_wire(kind: ErrorKind) -> Option<(u16, u16)> {
    if let Some((wire, _)) = ERRORS.iter().find(|(_, named)| *named == kind) {
        return Some(*wire);
    }
    let ErrorKind { ty, code } = kind;
    if let Some(wire) = ty.checked_sub(UNNAMED)
        && error_from_wire(wire, code) == kind
        && wire < NUMBERED_TYPES
    {
        return Some((wire, code));
    }
    let shared = SHARED_CODES.get(usize::from(ty)).is_some_and(|n| code < *n);
    (shared || ty >= NUMBERED_TYPES).then_some((ty, code))
}
