//! Roles, the filter of notices, and the notices of 1.4 and later.

use bytes::Bytes;

use crate::property::{Property, TableMod};

/// OFPCR_ROLE_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Role {
    /// OFPCR_ROLE_NOCHANGE: asks for the current role.
    NoChange = 0,
    /// OFPCR_ROLE_EQUAL: shares full access; the initial role.
    Equal = 1,
    /// OFPCR_ROLE_MASTER.
    Primary = 2,
    /// OFPCR_ROLE_SLAVE.
    Secondary = 3,
}

/// ROLE_REQUEST and ROLE_REPLY (1.3.5, 7.3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMessage {
    /// The requested role, or the current role in a reply.
    pub role: Role,
    /// Generation of the master election; a request with an older id is refused as STALE.
    pub generation_id: u64,
    /// 1.5: number of the controller in CONTROLLER_STATUS; `None` if it has none.
    pub short_id: Option<u16>,
}

impl RoleMessage {
    /// Makes a message of a controller without a number.
    pub const fn new(role: Role, generation_id: u64) -> RoleMessage {
        RoleMessage {
            role,
            generation_id,
            short_id: None,
        }
    }
}

/// OFPCRR_*: the cause of a change of role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoleReason(pub u8);

impl RoleReason {
    /// OFPCRR_MASTER_REQUEST: another controller asked to be master.
    pub const PRIMARY_REQUEST: RoleReason = RoleReason(0);
    /// OFPCRR_CONFIG: the switch's configuration has changed.
    pub const CONFIG: RoleReason = RoleReason(1);
    /// OFPCRR_EXPERIMENTER: a vendor's data have changed.
    pub const EXPERIMENTER: RoleReason = RoleReason(2);
}

/// ROLE_STATUS (1.4.0, 7.4.4): the switch has changed the role of this connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    /// The new role, never NOCHANGE.
    pub role: Role,
    /// Cause of the change.
    pub reason: RoleReason,
    /// Generation id of the last election; all ones if there was none.
    pub generation_id: u64,
    /// Properties, in the order of the message.
    pub properties: Vec<Property>,
}

/// Filter in SET_ASYNC and GET_ASYNC_REPLY. Bit n lets reason n through; `[0]` applies to a master
/// or equal, `[1]` to a slave.
///
/// 1.3 has the first three masks, and always all three. In 1.4 and later, a SET_ASYNC does not
/// change the masks that it leaves out (`None`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AsyncConfig {
    /// Mask of [`PacketInReason`](crate::message::PacketInReason).
    pub packet_in_mask: [Option<u32>; 2],
    /// Mask of [`PortReason`](crate::message::PortReason).
    pub port_status_mask: [Option<u32>; 2],
    /// Mask of [`FlowRemovedReason`](crate::message::FlowRemovedReason).
    pub flow_removed_mask: [Option<u32>; 2],
    /// Mask of [`RoleReason`].
    pub role_status_mask: [Option<u32>; 2],
    /// Mask of [`TableReason`].
    pub table_status_mask: [Option<u32>; 2],
    /// Mask of OFPRFR_*: groups, meters.
    pub request_forward_mask: [Option<u32>; 2],
    /// Mask of OFPFSR_*; 1.5.
    pub flow_stats_mask: [Option<u32>; 2],
    /// Mask of OFPCSR_*; 1.5.
    pub controller_status_mask: [Option<u32>; 2],
    /// Properties of vendors (0xfffe as slave, 0xffff as master), and others without a name here.
    pub properties: Vec<Property>,
}

impl AsyncConfig {
    /// Makes a filter with the masks of 1.3.
    pub fn of_v13(packet_in: [u32; 2], port_status: [u32; 2], flow_removed: [u32; 2]) -> Self {
        AsyncConfig {
            packet_in_mask: packet_in.map(Some),
            port_status_mask: port_status.map(Some),
            flow_removed_mask: flow_removed.map(Some),
            ..AsyncConfig::default()
        }
    }
}

/// OFPTR_*: the cause of a TABLE_STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableReason(pub u8);

impl TableReason {
    /// OFPTR_VACANCY_DOWN: less free space than the lower mark.
    pub const VACANCY_DOWN: TableReason = TableReason(3);
    /// OFPTR_VACANCY_UP: more free space than the upper mark.
    pub const VACANCY_UP: TableReason = TableReason(4);
}

/// OFPT_TABLE_STATUS (1.4, 7.4.5): the free space of a table crosses a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStatus {
    /// Cause of the notice.
    pub reason: TableReason,
    /// The table, as it is now.
    pub table: TableMod,
}

/// A controller of the switch (ofp_controller_status, 1.5.1, 7.3.5.19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerStatus {
    /// Number of the controller, sent with its role.
    pub short_id: u16,
    /// Role of the controller.
    pub role: Role,
    /// OFPCSR_*: cause of the notice.
    pub reason: u8,
    /// OFPCT_STATUS_*: 0 if the connection is up, 1 if it is down.
    pub channel_status: u8,
    /// Properties, in the order of the message.
    pub properties: Vec<ControllerProperty>,
}

/// A property of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerProperty {
    /// OFPCSPT_URI: address of the connection.
    Uri(Bytes),
    /// A vendor's property, or one without a name here.
    Other(Property),
}
