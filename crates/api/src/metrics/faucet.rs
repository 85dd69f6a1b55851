//! The names under which Faucet and Gauge serve figures, for dashboards made for them.
//!
//! Their labels are kept: `dp_id` in hexadecimal, `dp_name`, `port` and `port_description`. Series
//! that name a host are left out, as everywhere: their number has no bound.

use std::collections::BTreeMap;

use control::controller::{Location, PortDetail, SwitchView};
use control::vlan::VlanId;
use driver::ConnectionView;
use openflow::DatapathId;
use openflow::message::PortName;

use super::Stated;
use super::ports::Counters;
use crate::exposition::{Family, Labels, Value};

/// The sources of these figures.
pub struct Sources<'a> {
    pub switches: &'a [SwitchView],
    pub ports: &'a [PortDetail],
    pub hosts: &'a [(DatapathId, VlanId, usize)],
    pub connections: &'a [ConnectionView],
    pub counters: &'a Counters,
    pub stated: &'a Stated,
}

/// Names used by Gauge, and the index of the counter in [`Counters`].
const OF_PORTS: [(&str, usize); 8] = [
    ("of_port_rx_bytes", 0),
    ("of_port_rx_packets", 1),
    ("of_port_rx_errors", 2),
    ("of_port_rx_dropped", 3),
    ("of_port_tx_bytes", 4),
    ("of_port_tx_packets", 5),
    ("of_port_tx_errors", 6),
    ("of_port_tx_dropped", 7),
];

pub fn families(sources: &Sources) -> Vec<Family> {
    let named: BTreeMap<DatapathId, Labels> = sources.switches.iter().map(named).collect();
    let mut families = of_switches(sources, &named);
    families.extend(of_ports(sources, &named));
    families
}

fn named(switch: &SwitchView) -> (DatapathId, Labels) {
    let hex = format!("{:#x}", switch.dpid.0);
    let name = switch.name.map(PortName::to_text);
    let name = name.unwrap_or_else(|| hex.clone());
    (switch.dpid, vec![("dp_id", hex), ("dp_name", name)])
}

fn of_switches(sources: &Sources, named: &BTreeMap<DatapathId, Labels>) -> Vec<Family> {
    let with = |dpid: DatapathId, more: Labels| {
        let mut labels = named.get(&dpid)?.clone();
        labels.extend(more);
        Some(labels)
    };
    let each = |name, help, value: &dyn Fn(&ConnectionView) -> u64| Family {
        name,
        help,
        samples: sources
            .connections
            .iter()
            .filter(|connection| connection.is_admitted)
            .filter_map(|c| Some((with(c.datapath_id?, Vec::new())?, Value::Count(value(c)))))
            .collect(),
    };
    let is_up = |switch: &SwitchView| f64::from(u8::from(switch.connection.is_some()));
    let status = |switch: &SwitchView| {
        let labels = with(switch.dpid, Vec::new())?;
        Some((labels, Value::Gauge(is_up(switch))))
    };
    let described = |switch: &SwitchView| {
        let is = switch.description.as_ref()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let more = vec![
            ("mfr_desc", text(&is.manufacturer)),
            ("hw_desc", text(&is.hardware)),
            ("sw_desc", text(&is.software)),
            ("serial_num", text(&is.serial)),
            ("dp_desc", text(&is.datapath)),
        ];
        Some((with(switch.dpid, more)?, Value::Gauge(1.0)))
    };
    let hosts = sources.hosts.iter().filter_map(|(dpid, vlan, count)| {
        let labels = with(*dpid, vec![("vlan", vlan.to_string())])?;
        Some((labels, Value::Gauge(*count as f64)))
    });
    vec![
        Family {
            name: "faucet_pbr_version",
            help: "The version of auster",
            samples: vec![(
                vec![("version", env!("CARGO_PKG_VERSION").to_owned())],
                Value::Gauge(1.0),
            )],
        },
        Family {
            name: "dp_status",
            help: "Whether a switch is connected",
            samples: sources.switches.iter().filter_map(status).collect(),
        },
        Family {
            name: "of_dp_desc_stats",
            help: "How a switch describes itself",
            samples: sources.switches.iter().filter_map(described).collect(),
        },
        Family {
            name: "vlan_hosts_learned",
            help: "Hosts of a VLAN at a switch",
            samples: hosts.collect(),
        },
        each(
            "of_packet_ins",
            "Packet-ins of a switch, on this connection",
            &|c| c.session.packet_ins + c.edge.packet_ins,
        ),
        each(
            "of_flowmsgs_sent",
            "Messages to a switch, on this connection",
            &|c| c.messages_sent,
        ),
    ]
}

fn of_ports(sources: &Sources, named: &BTreeMap<DatapathId, Labels>) -> Vec<Family> {
    let ports = sources
        .ports
        .iter()
        .filter(|port| port.at.port.is_ordinary());
    let ports = ports.take(sources.stated.ports_max);
    let ports: Vec<(Location, Labels, &PortDetail)> = ports
        .filter_map(|port| {
            let mut labels = named.get(&port.at.dpid)?.clone();
            labels.push(("port", port.at.port.0.to_string()));
            labels.push(("port_description", port.name.to_text()));
            Some((port.at, labels, port))
        })
        .collect();
    let each = |name, help, value: &dyn Fn(Location, &PortDetail) -> Option<f64>| Family {
        name,
        help,
        samples: ports
            .iter()
            .filter_map(|(at, labels, port)| {
                Some((labels.clone(), Value::Gauge(value(*at, port)?)))
            })
            .collect(),
    };
    let mut families = vec![
        each("port_status", "Whether a port is up", &|_, port| {
            Some(f64::from(u8::from(port.is_up)))
        }),
        each(
            "of_port_curr_speed",
            "The speed of a port in kbit/s",
            &|_, port| (port.speed_kbit > 0).then_some(f64::from(port.speed_kbit)),
        ),
    ];
    // Gauge serves counters as gauges, and dashboards query them without `_total`.
    families.extend(OF_PORTS.map(|(name, number)| {
        each(name, "As the switch counts it", &|at, _| {
            Some(sources.counters.get(&at)?[number]? as f64)
        })
    }));
    families
}
