//! The switch as a whole: features, configuration, roles, asynchronous messages.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{AsyncConfig, Capabilities, Role, RoleMessage, SwitchConfig, SwitchFeatures};
use crate::types::{DatapathId, Version};

use super::super::reader::Reader;
use super::super::writer::Writer;
use super::port;

pub(super) fn decode_features(r: &mut Reader) -> Result<SwitchFeatures, DecodeError> {
    let datapath_id = DatapathId(r.u64()?);
    let n_buffers = r.u32()?;
    let (n_tables, auxiliary_id) = (r.u8()?, r.u8()?);
    r.skip(2)?;
    let is_v13 = r.is_since(Version::V13);
    Ok(SwitchFeatures {
        datapath_id,
        n_buffers,
        n_tables,
        auxiliary_id: if is_v13 { auxiliary_id } else { 0 },
        capabilities: Capabilities(r.u32()?),
        actions: r.u32()?,
        // From 1.3 on, a separate request asks for the ports.
        ports: match is_v13 {
            true => Vec::new(),
            false => r.list(port::decode_port)?,
        },
    })
}

pub(super) fn encode_features(
    features: &SwitchFeatures,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    let is_v13 = w.is_since(Version::V13);
    w.refuse(
        is_v13 && !features.ports.is_empty(),
        "ports in FEATURES_REPLY",
    )?;
    let has_auxiliary = features.auxiliary_id != 0;
    w.refuse(!is_v13 && has_auxiliary, "auxiliary connection")?;
    w.u64(features.datapath_id.0);
    w.u32(features.n_buffers);
    w.u8(features.n_tables);
    w.u8(features.auxiliary_id);
    w.zeros(2);
    w.u32(features.capabilities.0);
    w.u32(features.actions);
    let mut ports = features.ports.iter();
    ports.try_for_each(|one| port::encode_port(one, w))
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

pub(in crate::wire) fn role_from_wire(role: u32) -> Option<Role> {
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
    Ok(RoleMessage::new(role, generation_id))
}

pub(super) fn encode_role(message: &RoleMessage, w: &mut Writer) -> Result<(), EncodeError> {
    if message.short_id.is_some() {
        return w.unsupported("number of a controller");
    }
    w.u32(message.role as u32);
    w.zeros(4);
    w.u64(message.generation_id);
    Ok(())
}

pub(super) fn decode_async(r: &mut Reader) -> Result<AsyncConfig, DecodeError> {
    let mut pair = || Ok([r.u32()?, r.u32()?]);
    Ok(AsyncConfig::of_v13(pair()?, pair()?, pair()?))
}

pub(super) fn encode_async(config: &AsyncConfig, w: &mut Writer) -> Result<(), EncodeError> {
    let masks = [
        config.packet_in_mask,
        config.port_status_mask,
        config.flow_removed_mask,
    ];
    for mask in masks.as_flattened() {
        match mask {
            Some(mask) => w.u32(*mask),
            None => return w.unsupported("filter that leaves notices as they are"),
        }
    }
    let known = AsyncConfig {
        packet_in_mask: config.packet_in_mask,
        port_status_mask: config.port_status_mask,
        flow_removed_mask: config.flow_removed_mask,
        ..AsyncConfig::default()
    };
    if *config != known {
        return w.unsupported("filter of such notices");
    }
    Ok(())
}
