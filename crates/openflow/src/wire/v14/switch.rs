//! Roles and the filter of asynchronous messages (1.4, 7.3.10 and 7.4.4).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{AsyncConfig, Role, RoleReason, RoleStatus};
use crate::types::Version;

use super::super::reader::Reader;
use super::super::v13::switch::role_from_wire;
use super::super::writer::Writer;
use super::property;

/// OFPACPT_EXPERIMENTER_SLAVE; that of the master is 0xffff.
const EXPERIMENTER_SLAVE: u16 = 0xfffe;

pub(in crate::wire) fn decode_role_status(r: &mut Reader) -> Result<RoleStatus, DecodeError> {
    let refused = r.error(ErrorKind::ROLE_BAD_ROLE);
    let role = role_from_wire(r.u32()?).filter(|role| *role != Role::NoChange);
    let role = role.ok_or(refused)?;
    let reason = RoleReason(r.u8()?);
    r.skip(3)?;
    let generation_id = r.u64()?;
    Ok(RoleStatus {
        role,
        reason,
        generation_id,
        properties: property::raws(r)?,
    })
}

pub(in crate::wire) fn encode_role_status(
    status: &RoleStatus,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    if status.role == Role::NoChange {
        return w.unsupported("NOCHANGE in ROLE_STATUS");
    }
    w.u32(status.role as u32);
    w.u8(status.reason.0);
    w.zeros(3);
    w.u64(status.generation_id);
    property::put_raws(&status.properties, w)
}

/// The masks by the numbers of their properties (OFPACPT_*), as slave and as master.
fn masks(config: &AsyncConfig) -> [[Option<u32>; 2]; 8] {
    [
        config.packet_in_mask,
        config.port_status_mask,
        config.flow_removed_mask,
        config.role_status_mask,
        config.table_status_mask,
        config.request_forward_mask,
        config.flow_stats_mask,
        config.controller_status_mask,
    ]
}

/// Number of pairs of masks that a version has.
fn masks_of(is_v15: bool) -> usize {
    if is_v15 { 8 } else { 6 }
}

pub(super) fn decode_async(r: &mut Reader) -> Result<AsyncConfig, DecodeError> {
    let mut config = AsyncConfig::default();
    let known = masks_of(r.is_since(Version::V15));
    property::each(r, |ty, r| {
        let of = usize::from(ty / 2);
        let all = [
            &mut config.packet_in_mask,
            &mut config.port_status_mask,
            &mut config.flow_removed_mask,
            &mut config.role_status_mask,
            &mut config.table_status_mask,
            &mut config.request_forward_mask,
            &mut config.flow_stats_mask,
            &mut config.controller_status_mask,
        ];
        match all.into_iter().take(known).nth(of) {
            // Odd numbers are those of the master.
            Some(masks) => masks[usize::from(ty % 2 == 0)] = Some(r.u32()?),
            None if ty == EXPERIMENTER_SLAVE && r.left() < 8 => {
                return Err(r.error(ErrorKind::PROPERTY_BAD_LEN));
            }
            None => config.properties.push(property::raw(ty, r)?),
        }
        Ok(())
    })?;
    Ok(config)
}

pub(super) fn encode_async(config: &AsyncConfig, w: &mut Writer) -> Result<(), EncodeError> {
    let known = masks_of(w.is_since(Version::V15));
    let masks = masks(config);
    if masks[known..].iter().flatten().any(Option::is_some) {
        return w.unsupported("filter of such notices");
    }
    for (of, [master, slave]) in (0u16..).zip(masks) {
        for (ty, mask) in [(2 * of, slave), (2 * of + 1, master)] {
            if let Some(mask) = mask {
                property::put(ty, w, |w| w.u32(mask))?;
            }
        }
    }
    property::put_raws(&config.properties, w)
}
