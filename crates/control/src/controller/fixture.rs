//! Fixtures of the tests of single machines.

use openflow::message::{
    Capabilities, Port, PortConfig, PortName, PortState, Role, SwitchFeatures,
};
use openflow::{DatapathId, MacAddr, PortNo, Version};

use crate::session::SwitchUp;

/// A port that is up.
pub(crate) fn port(number: u32) -> Port {
    Port {
        port_no: PortNo(number),
        hw_addr: MacAddr::from_u64(number.into()),
        name: PortName::new("p"),
        config: PortConfig(0),
        state: PortState(0),
        curr: 0,
        advertised: 0,
        supported: 0,
        peer: 0,
        curr_speed: 0,
        max_speed: 0,
        properties: Vec::new(),
    }
}

/// A switch of two ports, 1 and 2.
pub(crate) fn up(n: u64) -> SwitchUp {
    SwitchUp {
        version: Version::V13,
        features: SwitchFeatures {
            datapath_id: DatapathId(n),
            n_buffers: 0,
            n_tables: 254,
            auxiliary_id: 0,
            capabilities: Capabilities(0),
            actions: 0,
            ports: Vec::new(),
        },
        ports: vec![port(1), port(2)],
        description: None,
        role: Role::Equal,
    }
}
