//! The switch as a whole: features, configuration, roles, asynchronous messages.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{
    AsyncConfig, Capabilities, Experimenter, Role, RoleMessage, RoleReason, RoleStatus,
    SwitchConfig, SwitchFeatures,
};
use crate::types::DatapathId;

use super::super::reader::Reader;
use super::super::writer::Writer;

pub(super) fn decode_features(r: &mut Reader) -> Result<SwitchFeatures, DecodeError> {
    let datapath_id = DatapathId(r.u64()?);
    let n_buffers = r.u32()?;
    let (n_tables, auxiliary_id) = (r.u8()?, r.u8()?);
    r.skip(2)?;
    Ok(SwitchFeatures {
        datapath_id,
        n_buffers,
        n_tables,
        auxiliary_id,
        capabilities: Capabilities(r.u32()?),
        actions: r.u32()?,
        ports: Vec::new(),
    })
}

pub(super) fn encode_features(
    features: &SwitchFeatures,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    if !features.ports.is_empty() {
        return w.unsupported("ports in FEATURES_REPLY");
    }
    w.u64(features.datapath_id.0);
    w.u32(features.n_buffers);
    w.u8(features.n_tables);
    w.u8(features.auxiliary_id);
    w.zeros(2);
    w.u32(features.capabilities.0);
    w.u32(features.actions);
    Ok(())
}

pub(super) fn decode_config(r: &mut Reader) -> Result<SwitchConfig, DecodeError> {
    Ok(SwitchConfig {
        flags: r.u16()?,
        miss_send_len: r.u16()?,
    })
}

pub(super) fn encode_config(config: &SwitchConfig, w: &mut Writer) {
    w.u16(config.flags);
    w.u16(config.miss_send_len);
}

fn role_from_wire(role: u32) -> Option<Role> {
    match role {
        0 => Some(Role::NoChange),
        1 => Some(Role::Equal),
        2 => Some(Role::Primary),
        3 => Some(Role::Secondary),
        _ => None,
    }
}

pub(super) fn decode_role(r: &mut Reader) -> Result<RoleMessage, DecodeError> {
    let refused = r.error(ErrorKind::ROLE_BAD_ROLE);
    let role = role_from_wire(r.u32()?).ok_or(refused)?;
    r.skip(4)?;
    let generation_id = r.u64()?;
    Ok(RoleMessage {
        role,
        generation_id,
    })
}

pub(super) fn encode_role(message: &RoleMessage, w: &mut Writer) {
    w.u32(message.role as u32);
    w.zeros(4);
    w.u64(message.generation_id);
}

/// Reads the body of an ONF ROLE_STATUS, experimenter id and type included.
pub(super) fn decode_role_status(r: &mut Reader) -> Result<RoleStatus, DecodeError> {
    r.skip(8)?;
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
    })
}

pub(super) fn encode_role_status(status: &RoleStatus, w: &mut Writer) -> Result<(), EncodeError> {
    if status.role == Role::NoChange {
        return w.unsupported("NOCHANGE in ROLE_STATUS");
    }
    w.u32(Experimenter::ONF);
    w.u32(Experimenter::ONF_ROLE_STATUS);
    w.u32(status.role as u32);
    w.u8(status.reason.0);
    w.zeros(3);
    w.u64(status.generation_id);
    Ok(())
}

pub(super) fn decode_async(r: &mut Reader) -> Result<AsyncConfig, DecodeError> {
    Ok(AsyncConfig {
        packet_in_mask: [r.u32()?, r.u32()?],
        port_status_mask: [r.u32()?, r.u32()?],
        flow_removed_mask: [r.u32()?, r.u32()?],
    })
}

pub(super) fn encode_async(config: &AsyncConfig, w: &mut Writer) {
    for masks in [
        config.packet_in_mask,
        config.port_status_mask,
        config.flow_removed_mask,
    ] {
        w.u32(masks[0]);
        w.u32(masks[1]);
    }
}
