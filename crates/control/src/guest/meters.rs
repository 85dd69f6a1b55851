//! The meters of a guest, as the guest has stated them.
//!
//! A meter has no cookie, so its number in the switch names its guest. The numbers are above those
//! of stated meters and of QoS, even at a switch with so few that QoS has the upper half of them:
//!
//! ```text
//! 31    12 11     8 7      0
//! |  0xa  |  guest  | number |
//! ```

use openflow::message::{MeterBand, MeterBandKind, MeterFlags, MeterMod, MeterModCommand};
use openflow::{ErrorKind, Instruction, MeterId};

use super::numbered::{Numbered, Stated};

/// Meters that a guest may have at one switch.
pub(super) const METERS_MAX: usize = 64;
pub(super) const BANDS_MAX: usize = 16;

const FIRST: u32 = 0xa000;
const MASK: u32 = 0xffff_f000;

pub(super) fn switch_id(guest: u8, number: u16) -> MeterId {
    MeterId(FIRST | u32::from(guest) << 8 | u32::from(number))
}

/// The guest and the number of a meter in a switch.
pub(crate) fn of_meter(id: MeterId) -> Option<(u8, u16)> {
    let is_its = id.0 & MASK == FIRST;
    is_its.then_some(((id.0 >> 8 & 0xf) as u8, (id.0 & 0xff) as u16))
}

/// The number of meters that a guest may have at a switch whose greatest meter number is `max`.
pub(super) fn count_up_to(guest: u8, max: u32) -> u32 {
    let below = switch_id(guest, 0).0 - 1;
    max.saturating_sub(below).min(METERS_MAX as u32)
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Meter {
    pub flags: MeterFlags,
    pub bands: Vec<MeterBand>,
}

impl Stated for Meter {
    const NONE: u16 = 0xff;
}

pub(super) type Meters = Numbered<MeterId, Meter>;

impl Meters {
    /// The number of meters and bands, which take room as entries do.
    pub fn size(&self) -> usize {
        self.iter().map(|(_, meter)| 1 + meter.bands.len()).sum()
    }

    /// The number of a meter in the switch.
    pub fn in_switch(&self, guest: u8, id: MeterId) -> MeterId {
        switch_id(guest, self.number(id))
    }

    /// Checks whether ADD and MODIFY fit among the meters that are there.
    ///
    /// # Errors
    /// The OFPMMFC_* to answer.
    pub fn check(&self, asked: &MeterMod) -> Result<(), ErrorKind> {
        let is_there = self.get(asked.meter_id).is_some();
        let is_others = |band: &MeterBand| matches!(band.kind, MeterBandKind::Experimenter { .. });
        let is_add = asked.command == MeterModCommand::Add;
        match asked.bands.len() {
            _ if is_add && is_there => Err(ErrorKind::METER_EXISTS),
            _ if !is_add && !is_there => Err(ErrorKind::METER_UNKNOWN_METER),
            _ if is_add && self.len() >= METERS_MAX => Err(ErrorKind::METER_OUT_OF_METERS),
            count if count > BANDS_MAX => Err(ErrorKind::METER_OUT_OF_BANDS),
            _ if asked.bands.iter().any(is_others) => Err(ErrorKind::METER_BAD_BAND),
            _ => Ok(()),
        }
    }
}

/// The meters that instructions use.
pub(super) fn meters_in(instructions: &[Instruction]) -> impl Iterator<Item = MeterId> {
    instructions.iter().filter_map(|one| match one {
        Instruction::Meter(id) => Some(*id),
        _ => None,
    })
}
