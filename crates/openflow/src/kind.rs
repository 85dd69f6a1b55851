//! Type of a message, from its version byte and type byte alone: one table, no parsing.
//!
//! Type bytes were renumbered between 1.0 and 1.1 and given new meanings up to 1.5
//! (`ofp-msgs.h` of Open vSwitch lists them all).

/// The type of a message under the numbering of its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// OFPT_HELLO: version negotiation (1.3.5, 7.5.1).
    Hello,
    /// OFPT_ERROR: reports a refused message (7.4.4).
    Error,
    /// OFPT_ECHO_REQUEST: asks whether the peer is alive (7.5.2).
    EchoRequest,
    /// OFPT_ECHO_REPLY: the answer to an echo request (7.5.3).
    EchoReply,
    /// OFPT_VENDOR in 1.0.
    Experimenter,
    /// OFPT_FEATURES_REQUEST: asks for the switch's identity and features (7.3.1).
    FeaturesRequest,
    /// OFPT_FEATURES_REPLY: the switch's identity and features (7.3.1).
    FeaturesReply,
    /// OFPT_GET_CONFIG_REQUEST: asks for the switch's configuration (7.3.2).
    GetConfigRequest,
    /// OFPT_GET_CONFIG_REPLY: the switch's configuration (7.3.2).
    GetConfigReply,
    /// OFPT_SET_CONFIG: a change of the switch's configuration (7.3.2).
    SetConfig,
    /// OFPT_PACKET_IN: a packet for the controller (7.4.1).
    PacketIn,
    /// OFPT_FLOW_REMOVED: notice of a removed entry (7.4.2).
    FlowRemoved,
    /// OFPT_PORT_STATUS: notice of a change of a port (7.4.3).
    PortStatus,
    /// OFPT_PACKET_OUT: a packet for the switch to send (7.3.7).
    PacketOut,
    /// OFPT_FLOW_MOD: a change of flow entries (7.3.4.1).
    FlowMod,
    /// OFPT_GROUP_MOD: a change of groups, 1.1 and later (7.3.4.2).
    GroupMod,
    /// OFPT_PORT_MOD: a change of a port (7.3.4.3).
    PortMod,
    /// OFPT_TABLE_MOD: a change of a table, 1.1 and later (7.3.3).
    TableMod,
    /// OFPT_STATS_REQUEST in 1.0.
    MultipartRequest,
    /// OFPT_MULTIPART_REPLY, OFPT_STATS_REPLY in 1.0: the answer to a multipart request (7.3.5).
    MultipartReply,
    /// OFPT_BARRIER_REQUEST: earlier messages must be processed first (7.3.8).
    BarrierRequest,
    /// OFPT_BARRIER_REPLY: the earlier messages have been processed (7.3.8).
    BarrierReply,
    /// OFPT_QUEUE_GET_CONFIG_REQUEST: asks for a port's queues, up to 1.3 (7.3.6).
    QueueGetConfigRequest,
    /// OFPT_QUEUE_GET_CONFIG_REPLY: a port's queues (7.3.6).
    QueueGetConfigReply,
    /// OFPT_ROLE_REQUEST: a change of the controller's role, 1.2 and later (7.3.9).
    RoleRequest,
    /// OFPT_ROLE_REPLY: the answer to a role request (7.3.9).
    RoleReply,
    /// OFPT_GET_ASYNC_REQUEST: asks for the filter of notices, 1.3 and later (7.3.10).
    GetAsyncRequest,
    /// OFPT_GET_ASYNC_REPLY: the filter of notices (7.3.10).
    GetAsyncReply,
    /// OFPT_SET_ASYNC: a change of the filter of notices, 1.3 and later (7.3.10).
    SetAsync,
    /// OFPT_METER_MOD: a change of meters, 1.3 and later (7.3.4.4).
    MeterMod,
    /// OFPT_ROLE_STATUS: notice of a change of the controller's role, 1.4 and later.
    RoleStatus,
    /// OFPT_TABLE_STATUS: notice of a change of a table, 1.4 and later.
    TableStatus,
    /// OFPT_REQUESTFORWARD: a request from another controller, 1.4 and later.
    RequestForward,
    /// OFPT_BUNDLE_CONTROL: opens, commits or discards a bundle, 1.4 and later.
    BundleControl,
    /// OFPT_BUNDLE_ADD_MESSAGE: adds a message to a bundle, 1.4 and later.
    BundleAddMessage,
    /// OFPT_CONTROLLER_STATUS: notice of a controller's connections, 1.5.
    ControllerStatus,
    /// The version has no type with this number, or there is no such version.
    Unknown,
}

use MessageKind as K;

const V10: &[MessageKind] = &[
    K::Hello,
    K::Error,
    K::EchoRequest,
    K::EchoReply,
    K::Experimenter,
    K::FeaturesRequest,
    K::FeaturesReply,
    K::GetConfigRequest,
    K::GetConfigReply,
    K::SetConfig,
    K::PacketIn,
    K::FlowRemoved,
    K::PortStatus,
    K::PacketOut,
    K::FlowMod,
    K::PortMod,
    K::MultipartRequest,
    K::MultipartReply,
    K::BarrierRequest,
    K::BarrierReply,
    K::QueueGetConfigRequest,
    K::QueueGetConfigReply,
];

/// Types of 1.5. Earlier versions have a prefix of this list, and 1.4 dropped QUEUE_GET_CONFIG.
const V11_ON: &[MessageKind] = &[
    K::Hello,
    K::Error,
    K::EchoRequest,
    K::EchoReply,
    K::Experimenter,
    K::FeaturesRequest,
    K::FeaturesReply,
    K::GetConfigRequest,
    K::GetConfigReply,
    K::SetConfig,
    K::PacketIn,
    K::FlowRemoved,
    K::PortStatus,
    K::PacketOut,
    K::FlowMod,
    K::GroupMod,
    K::PortMod,
    K::TableMod,
    K::MultipartRequest,
    K::MultipartReply,
    K::BarrierRequest,
    K::BarrierReply,
    K::QueueGetConfigRequest,
    K::QueueGetConfigReply,
    K::RoleRequest,
    K::RoleReply,
    K::GetAsyncRequest,
    K::GetAsyncReply,
    K::SetAsync,
    K::MeterMod,
    K::RoleStatus,
    K::TableStatus,
    K::RequestForward,
    K::BundleControl,
    K::BundleAddMessage,
    K::ControllerStatus,
];

/// The name of each kind, after its OpenFlow name: OFPT_PACKET_IN is `packet_in`.
const NAMES: &[(MessageKind, &str)] = &[
    (K::Hello, "hello"),
    (K::Error, "error"),
    (K::EchoRequest, "echo_request"),
    (K::EchoReply, "echo_reply"),
    (K::Experimenter, "experimenter"),
    (K::FeaturesRequest, "features_request"),
    (K::FeaturesReply, "features_reply"),
    (K::GetConfigRequest, "get_config_request"),
    (K::GetConfigReply, "get_config_reply"),
    (K::SetConfig, "set_config"),
    (K::PacketIn, "packet_in"),
    (K::FlowRemoved, "flow_removed"),
    (K::PortStatus, "port_status"),
    (K::PacketOut, "packet_out"),
    (K::FlowMod, "flow_mod"),
    (K::GroupMod, "group_mod"),
    (K::PortMod, "port_mod"),
    (K::TableMod, "table_mod"),
    (K::MultipartRequest, "multipart_request"),
    (K::MultipartReply, "multipart_reply"),
    (K::BarrierRequest, "barrier_request"),
    (K::BarrierReply, "barrier_reply"),
    (K::QueueGetConfigRequest, "queue_get_config_request"),
    (K::QueueGetConfigReply, "queue_get_config_reply"),
    (K::RoleRequest, "role_request"),
    (K::RoleReply, "role_reply"),
    (K::GetAsyncRequest, "get_async_request"),
    (K::GetAsyncReply, "get_async_reply"),
    (K::SetAsync, "set_async"),
    (K::MeterMod, "meter_mod"),
    (K::RoleStatus, "role_status"),
    (K::TableStatus, "table_status"),
    (K::RequestForward, "request_forward"),
    (K::BundleControl, "bundle_control"),
    (K::BundleAddMessage, "bundle_add_message"),
    (K::ControllerStatus, "controller_status"),
];

impl MessageKind {
    /// Returns the type that `type_byte` means in wire version `version`.
    pub fn from_wire(version: u8, type_byte: u8) -> MessageKind {
        let (table, count): (&[MessageKind], usize) = match version {
            1 => (V10, V10.len()),
            2 => (V11_ON, 24),
            3 => (V11_ON, 26),
            4 => (V11_ON, 30),
            5 => (V11_ON, 35),
            6 => (V11_ON, 36),
            _ => return K::Unknown,
        };
        let kind = table[..count]
            .get(usize::from(type_byte))
            .copied()
            .unwrap_or(K::Unknown);
        match kind {
            K::QueueGetConfigRequest | K::QueueGetConfigReply if version >= 5 => K::Unknown,
            kind => kind,
        }
    }

    /// Name of the type: `packet_in`, `flow_mod`, and so on.
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(kind, _)| *kind == self);
        found.map_or("unknown", |(_, name)| name)
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<MessageKind> {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(kind, _)| *kind)
    }

    /// Every kind that has a number in some version.
    pub fn all() -> impl Iterator<Item = MessageKind> {
        NAMES.iter().map(|(kind, _)| *kind)
    }

    /// The type byte under `version`, if that version has this message.
    pub fn to_wire(self, version: u8) -> Option<u8> {
        let table = if version == 1 { V10 } else { V11_ON };
        let at = table.iter().position(|k| *k == self)?;
        let byte = u8::try_from(at).ok()?;
        (MessageKind::from_wire(version, byte) == self).then_some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_type_byte_goes_there_and_back() {
        let mut known = 0;
        for version in 0..=8 {
            for byte in 0..=255 {
                let kind = MessageKind::from_wire(version, byte);
                if kind != K::Unknown {
                    known += 1;
                    assert_eq!(kind.to_wire(version), Some(byte), "{kind:?} in {version}");
                    assert_eq!(MessageKind::from_name(kind.name()), Some(kind));
                }
            }
        }
        assert_eq!(known, 22 + 24 + 26 + 30 + 33 + 34);
    }
}
