//! Properties, which 1.4 and later append to ports, queues, tables, groups and roles.
//!
//! A property that corresponds to a field of 1.3 is kept in that field: the Ethernet properties of
//! ports, the weight and watched ports of buckets. Other properties are listed, in the order of the
//! message.

use bytes::Bytes;

use crate::types::{PortNo, flags};

/// A property as it is on the wire, without its padding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Property {
    /// Type of the property.
    pub property: u16,
    /// Bytes after the header. In a vendor's property, they begin with experimenter id and type.
    pub data: Bytes,
}

impl Property {
    /// Type of a vendor's property, in most lists.
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// A property of a port, except the Ethernet one (1.4, 7.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortProperty {
    /// OFPPDPT_OPTICAL: abilities of an optical port.
    Optical(OpticalPort),
    /// OFPPDPT_PIPELINE_INPUT: OXM ids of the fields that packets bring in; 1.5.
    PipelineInput(Vec<u32>),
    /// OFPPDPT_PIPELINE_OUTPUT: OXM ids of the fields that packets take out; 1.5.
    PipelineOutput(Vec<u32>),
    /// OFPPDPT_RECIRCULATE: ports through which the port's packets return; 1.5.
    Recirculate(Vec<PortNo>),
    /// A vendor's property, or one without a name here.
    Other(Property),
}

/// OFPPDPT_OPTICAL: frequencies in MHz, wavelengths in nm·100, power in dBm·10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpticalPort {
    /// OFPOPF_* supported.
    pub supported: u32,
    /// Lowest sent, highest sent, and the steps between.
    pub tx_lambda: [u32; 3],
    /// Lowest received, highest received, and the steps between.
    pub rx_lambda: [u32; 3],
    /// Lowest and highest power that can be sent.
    pub tx_power: [u16; 2],
}

/// A property of a PORT_MOD, except the Ethernet one (1.4, 7.3.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortModProperty {
    /// OFPPMPT_OPTICAL: settings of an optical port.
    Optical {
        /// OFPOPF_* to set.
        configure: u32,
        /// Centre frequency or wavelength.
        lambda: u32,
        /// Signed offset from the centre.
        offset: i32,
        /// Size of the grid.
        grid_span: u32,
        /// Power to send.
        tx_power: u32,
    },
    /// A vendor's property, or one without a name here.
    Other(Property),
}

/// A property of port statistics, except the Ethernet one (1.4, 7.3.5.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortStatsProperty {
    /// OFPPSPT_OPTICAL: measurements of an optical port.
    Optical {
        /// OFPOSF_*: which of the values are present.
        flags: u32,
        /// Sent: frequency or wavelength, offset, span.
        tx_lambda: [u32; 3],
        /// Received: frequency or wavelength, offset, span.
        rx_lambda: [u32; 3],
        /// Sent and received power.
        power: [u16; 2],
        /// Current of the laser.
        bias_current: u16,
        /// Temperature of the laser.
        temperature: u16,
    },
    /// A vendor's property, or one without a name here.
    Other(Property),
}

flags! {
    /// OFPTC_*: configuration of a table; the bits exist in 1.4 and later.
    TableConfig(u32) {
        /// Evicts entries for new ones.
        EVICTION = 1 << 2;
        /// Reports how full the table is.
        VACANCY_EVENTS = 1 << 3;
    }
}

flags! {
    /// OFPTMPEF_*: criteria for choosing the entry to evict.
    EvictionFlags(u32) {
        /// Another criterion.
        OTHER = 1 << 0;
        /// The importance of the entries.
        IMPORTANCE = 1 << 1;
        /// The remaining lifetime of the entries.
        LIFETIME = 1 << 2;
    }
}

/// A property of a table (1.4, 7.3.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableProperty {
    /// OFPTMPT_EVICTION: criteria for choosing the entry to evict.
    Eviction(EvictionFlags),
    /// OFPTMPT_VACANCY: free space of the table, in percent.
    Vacancy {
        /// The switch reports free space below this mark.
        down: u8,
        /// The switch reports free space above this mark.
        up: u8,
        /// Current free space; not in TABLE_MOD.
        now: u8,
    },
    /// A vendor's property, or one without a name here.
    Other(Property),
}

/// A table and its configuration, in OFPT_TABLE_MOD (1.3.5, 7.3.3) and in the switch's reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMod {
    /// Table; `ALL` for all tables.
    pub table_id: crate::types::TableId,
    /// [`TableConfig`]. Deprecated in 1.3 and kept.
    pub config: u32,
    /// Properties, in the order of the message; 1.4 and later.
    pub properties: Vec<TableProperty>,
}
