//! The part of the Open_vSwitch schema a controller needs: bridges, ports, interfaces,
//! controllers, the queues of ports ([`qos`]), their VLANs ([`vlan`]), and BFD ([`bfd`]). Columns
//! and their meaning: ovs-vswitchd.conf.db(5).

pub mod bfd;
pub mod qos;
pub mod vlan;

use std::collections::{BTreeMap, BTreeSet};

use crate::replica::{Replica, Row};
use crate::session::MonitorRequest;
use crate::transact::{Condition, Mutation, Mutator, Operation, Transaction};
use crate::value::{Atom, Datum, Uuid};
use bfd::Bfd;
use qos::{Qos, QueueSelection, Shares};
use vlan::VlanColumns;

/// The database every Open vSwitch has.
pub const DATABASE: &str = "Open_vSwitch";

/// A bridge: one OpenFlow datapath.
#[derive(Clone, Debug, PartialEq)]
pub struct Bridge {
    /// Identity of the row in table Bridge.
    pub uuid: Uuid,
    /// Name, which is unique in the database.
    pub name: String,
    /// `None` until ovs-vswitchd has made the bridge.
    pub datapath_id: Option<u64>,
    /// `system` or the empty text for the kernel's datapath; `netdev` for one in userspace; …
    pub datapath_type: String,
    /// Limit that the administrator has set for entries in the table of conversations: the limit of
    /// table 8, or of table 0 if table 8 has none.
    pub flow_limit: Option<u32>,
    /// `secure` or `standalone`; `None` is standalone.
    pub fail_mode: Option<String>,
    /// Connections to controllers.
    pub controllers: Vec<Controller>,
    /// Ports of the bridge.
    pub ports: Vec<Port>,
}

/// A port of a bridge, with one interface or a bond of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Identity of the row in table Port.
    pub uuid: Uuid,
    /// Name, which is unique in the database.
    pub name: String,
    /// VLANs of the port.
    pub vlans: VlanColumns,
    /// Queues of the port; `None` if it has none.
    pub qos: Option<Qos>,
    /// More than one is a bond.
    pub interfaces: Vec<Interface>,
}

/// A network device of a port.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Identity of the row in table Interface.
    pub uuid: Uuid,
    /// Name of the device.
    pub name: String,
    /// Type: `""` for a device of the system; `internal`, `patch`, `vxlan`, `dummy`, …
    pub kind: String,
    /// The OpenFlow port number; `None` until assigned, or if the device could not be opened.
    pub ofport: Option<u32>,
    /// Hardware address in use, as `aa:bb:cc:dd:ee:ff`.
    pub mac_in_use: Option<String>,
    /// Administrative state; `None` until it is known.
    pub admin_up: Option<bool>,
    /// State of the link; `None` until it is known.
    pub link_up: Option<bool>,
    /// Bits per second.
    pub link_speed: Option<u64>,
    /// Reason why Open vSwitch could not set the interface up.
    pub error: Option<String>,
    /// Whether Open vSwitch watches the link by BFD.
    pub bfd: Bfd,
}

/// A bridge's connection to a controller; `None` keeps Open vSwitch's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Controller {
    /// `tcp:10.0.0.1:6653`, `ssl:…`, `ptcp:6654`, …
    pub target: String,
    /// Silence before the switch probes, in milliseconds. Default 5000; 0 never probes.
    pub inactivity_probe_ms: Option<u32>,
    /// Longest wait between the switch's attempts, in milliseconds, 1000 at least. Default 8000.
    pub max_backoff_ms: Option<u32>,
    /// Packet-ins held while rate-limited, 1 to 512. Default 100.
    pub controller_queue_size: Option<u16>,
    /// Packet-ins per second, 100 at least.
    pub controller_rate_limit: Option<u32>,
    /// Packet-ins that may exceed the rate for a moment, 25 at least.
    pub controller_burst_limit: Option<u32>,
    /// `false` stops packet-ins and other messages that the controller did not ask for. Default
    /// true.
    pub enable_async_messages: Option<bool>,
    /// `in-band` or `out-of-band`. Default in-band.
    pub connection_mode: Option<String>,
    /// DSCP of the connection, 0 to 63. Default 48.
    pub dscp: Option<u8>,
    /// State of the connection, as the switch reports it. [`set_controllers`] does not write it.
    pub is_connected: bool,
}

impl Bridge {
    /// Returns the method by which packets get into a queue on this bridge.
    pub fn queue_selection(&self) -> QueueSelection {
        QueueSelection::of(&self.datapath_type)
    }
}

/// The tables and columns that [`bridges`] reads.
pub fn monitor_request() -> MonitorRequest {
    let columns = MONITORED.iter().map(|(table, columns)| {
        let columns: BTreeSet<String> = columns.iter().map(|c| (*c).into()).collect();
        ((*table).into(), columns)
    });
    MonitorRequest {
        columns: columns.collect(),
        conditions: BTreeMap::new(),
    }
}

const MONITORED: [(&str, &[&str]); 8] = [
    (
        "Open_vSwitch",
        &["bridges", "cur_cfg", "next_cfg", "ovs_version"],
    ),
    (
        "Bridge",
        &[
            "controller",
            "datapath_id",
            "datapath_type",
            "fail_mode",
            "flow_tables",
            "name",
            "ports",
        ],
    ),
    (
        "Port",
        &["interfaces", "name", "qos", "tag", "trunks", "vlan_mode"],
    ),
    (
        "Interface",
        &[
            "admin_state",
            "bfd",
            "bfd_status",
            "error",
            "link_speed",
            "link_state",
            "mac_in_use",
            "name",
            "ofport",
            "type",
        ],
    ),
    (
        "Controller",
        &[
            "connection_mode",
            "controller_burst_limit",
            "controller_queue_size",
            "controller_rate_limit",
            "enable_async_messages",
            "inactivity_probe",
            "is_connected",
            "max_backoff",
            "other_config",
            "target",
        ],
    ),
    ("Flow_Table", &["flow_limit"]),
    ("QoS", &["external_ids", "other_config", "queues", "type"]),
    ("Queue", &["dscp", "external_ids", "other_config"]),
];

/// Reads the bridges by name from a replica of [`monitor_request`].
///
/// A port, interface or controller that several rows refer to appears only under the first of them.
/// Therefore the result is never larger than the database.
pub fn bridges(replica: &Replica) -> BTreeMap<String, Bridge> {
    let shares = Shares::of(replica);
    let mut seen = BTreeSet::new();
    let bridges = replica
        .rows("Bridge")
        .map(|(uuid, row)| read_bridge(replica, &shares, &mut seen, uuid, row));
    bridges
        .map(|bridge| (bridge.name.clone(), bridge))
        .collect()
}

/// Reports whether ovs-vswitchd has applied every change so far (see [`request_reconfiguration`]).
pub fn is_configured(replica: &Replica) -> bool {
    let number = |row: &Row, column: &str| row.get(column).and_then(Datum::as_integer);
    let root = replica.rows("Open_vSwitch").next();
    root.is_some_and(|(_, row)| number(row, "cur_cfg") >= number(row, "next_cfg"))
}

/// Makes ovs-vswitchd report in `cur_cfg` when it has applied this transaction.
pub fn request_reconfiguration(transaction: Transaction) -> Transaction {
    let bump = vec![Mutation::new("next_cfg", Mutator::Add, 1)];
    transaction.then(Operation::mutate("Open_vSwitch", vec![], bump))
}

/// Adds a bridge with its internal port of the same name. `datapath_type` is `system` or `netdev`.
///
/// ```
/// use ovsdb::{Transaction, vswitch};
///
/// let transaction = vswitch::add_bridge(Transaction::new(vswitch::DATABASE), "br0", "netdev");
/// let transaction = vswitch::request_reconfiguration(transaction);
/// assert_eq!(transaction.operations.len(), 5);
/// ```
pub fn add_bridge(transaction: Transaction, bridge: &str, datapath_type: &str) -> Transaction {
    let row = [
        ("name", Datum::from(bridge)),
        ("datapath_type", Datum::from(datapath_type)),
        ("ports", named("port")),
    ];
    let into_root = vec![Mutation::new("bridges", Mutator::Insert, named("bridge"))];
    port_rows(transaction, bridge, "internal")
        .then(Operation::insert_named("bridge", "Bridge", row))
        .then(Operation::mutate("Open_vSwitch", vec![], into_root))
}

/// Adds a port, with one interface of the same name, to an existing bridge. `kind` is the type of
/// the interface, for example `internal`. A transaction can add one port.
pub fn add_port(transaction: Transaction, bridge: &str, port: &str, kind: &str) -> Transaction {
    let into_bridge = vec![Mutation::new("ports", Mutator::Insert, named("port"))];
    port_rows(transaction, port, kind).then(Operation::mutate(
        "Bridge",
        vec![Condition::equal("name", bridge)],
        into_bridge,
    ))
}

/// Removes a bridge, with its ports, interfaces and controllers.
pub fn delete_bridge(transaction: Transaction, bridge: Uuid) -> Transaction {
    let from_root = vec![Mutation::new("bridges", Mutator::Delete, bridge)];
    transaction.then(Operation::mutate("Open_vSwitch", vec![], from_root))
}

/// Replaces a bridge's controllers. A transaction can do so for one bridge.
pub fn set_controllers(
    mut transaction: Transaction,
    bridge: &str,
    controllers: &[Controller],
) -> Transaction {
    let name = |i: usize| format!("controller{i}");
    for (i, controller) in controllers.iter().enumerate() {
        let row = write_controller(controller);
        transaction = transaction.then(Operation::insert_named(&name(i), "Controller", row));
    }
    let names = (0..controllers.len()).map(|i| Atom::NamedUuid(name(i)));
    transaction.then(Operation::update(
        "Bridge",
        vec![Condition::equal("name", bridge)],
        [("controller", Datum::Set(names.collect()))],
    ))
}

/// Inserts the interface and the port, which is then known as `port`.
fn port_rows(transaction: Transaction, name: &str, kind: &str) -> Transaction {
    let interface = [("name", Datum::from(name)), ("type", Datum::from(kind))];
    let port = [
        ("name", Datum::from(name)),
        ("interfaces", named("interface")),
    ];
    transaction
        .then(Operation::insert_named("interface", "Interface", interface))
        .then(Operation::insert_named("port", "Port", port))
}

fn named(name: &str) -> Datum {
    Datum::from(Atom::NamedUuid(name.into()))
}

fn write_controller(controller: &Controller) -> Row {
    let mut row = Row::new();
    let mut put = |column: &str, value: Option<Datum>| {
        row.extend(value.map(|value| (column.to_string(), value)));
    };
    let number = |n: Option<u32>| n.map(|n| Datum::from(i64::from(n)));
    put("target", Some(Datum::from(controller.target.as_str())));
    put("inactivity_probe", number(controller.inactivity_probe_ms));
    put("max_backoff", number(controller.max_backoff_ms));
    let queue_size = controller.controller_queue_size.map(u32::from);
    put("controller_queue_size", number(queue_size));
    put(
        "controller_rate_limit",
        number(controller.controller_rate_limit),
    );
    put(
        "controller_burst_limit",
        number(controller.controller_burst_limit),
    );
    put(
        "enable_async_messages",
        controller.enable_async_messages.map(Datum::from),
    );
    put(
        "connection_mode",
        controller.connection_mode.as_deref().map(Datum::from),
    );
    let dscp = controller
        .dscp
        .map(|dscp| Datum::map([("dscp", dscp.to_string())]));
    put("other_config", dscp);
    row
}

fn read_bridge(
    replica: &Replica,
    shares: &Shares,
    seen: &mut BTreeSet<Uuid>,
    uuid: Uuid,
    row: &Row,
) -> Bridge {
    let datapath_id = text(row, "datapath_id");
    Bridge {
        uuid,
        name: text(row, "name").unwrap_or_default(),
        datapath_id: datapath_id
            .filter(|hex| hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u64::from_str_radix(&hex, 16).ok()),
        datapath_type: text(row, "datapath_type").unwrap_or_default(),
        flow_limit: read_flow_limit(replica, row),
        fail_mode: text(row, "fail_mode"),
        controllers: referred(replica, row, "controller", "Controller")
            .filter(|(uuid, _)| seen.insert(*uuid))
            .map(|(_, row)| read_controller(row))
            .collect(),
        ports: referred(replica, row, "ports", "Port")
            .filter_map(|(uuid, row)| {
                let is_first = seen.insert(uuid);
                is_first.then(|| read_port(replica, shares, seen, uuid, row))
            })
            .collect(),
    }
}

/// The tables in which a controller may have the entries of conversations: with mirror and access
/// tables before them, or without.
const PATH_TABLES: [i64; 2] = [8, 0];

fn read_flow_limit(replica: &Replica, row: &Row) -> Option<u32> {
    let Datum::Map(tables) = row.get("flow_tables")? else {
        return None;
    };
    PATH_TABLES.iter().find_map(|table| {
        let Atom::Uuid(table) = tables.get(&Atom::Integer(*table))? else {
            return None;
        };
        number(replica.row("Flow_Table", *table)?, "flow_limit")
    })
}

fn read_port(
    replica: &Replica,
    shares: &Shares,
    seen: &mut BTreeSet<Uuid>,
    uuid: Uuid,
    row: &Row,
) -> Port {
    Port {
        uuid,
        name: text(row, "name").unwrap_or_default(),
        vlans: VlanColumns::of(row),
        qos: referred(replica, row, "qos", "QoS")
            .map(|(uuid, row)| qos::read_qos(replica, shares, uuid, row))
            .next(),
        interfaces: referred(replica, row, "interfaces", "Interface")
            .filter(|(uuid, _)| seen.insert(*uuid))
            .map(|(uuid, row)| read_interface(uuid, row))
            .collect(),
    }
}

fn read_interface(uuid: Uuid, row: &Row) -> Interface {
    let is_up = |column| text(row, column).map(|state| state == "up");
    Interface {
        uuid,
        name: text(row, "name").unwrap_or_default(),
        kind: text(row, "type").unwrap_or_default(),
        // -1 means that the device could not be opened.
        ofport: number(row, "ofport"),
        mac_in_use: text(row, "mac_in_use"),
        admin_up: is_up("admin_state"),
        link_up: is_up("link_state"),
        link_speed: number(row, "link_speed"),
        error: text(row, "error"),
        bfd: Bfd::of(row),
    }
}

fn read_controller(row: &Row) -> Controller {
    Controller {
        target: text(row, "target").unwrap_or_default(),
        inactivity_probe_ms: number(row, "inactivity_probe"),
        max_backoff_ms: number(row, "max_backoff"),
        controller_queue_size: number(row, "controller_queue_size"),
        controller_rate_limit: number(row, "controller_rate_limit"),
        controller_burst_limit: number(row, "controller_burst_limit"),
        enable_async_messages: row.get("enable_async_messages").and_then(Datum::as_bool),
        connection_mode: text(row, "connection_mode"),
        dscp: option(row, "dscp"),
        is_connected: row.get("is_connected").and_then(Datum::as_bool) == Some(true),
    }
}

fn text(row: &Row, column: &str) -> Option<String> {
    row.get(column)?.as_str().map(String::from)
}

/// Reads a number from a column; `None` also if it does not fit.
fn number<N: TryFrom<i64>>(row: &Row, column: &str) -> Option<N> {
    N::try_from(row.get(column)?.as_integer()?).ok()
}

/// Reads a key of `other_config`.
fn option<N: std::str::FromStr>(row: &Row, key: &str) -> Option<N> {
    row.get("other_config")?.get(key)?.parse().ok()
}

fn references(row: &Row, column: &str) -> Vec<Uuid> {
    row.get(column).map(Datum::uuids).unwrap_or_default()
}

/// Returns the rows of `table` that `row`'s column refers to.
fn referred<'a>(
    replica: &'a Replica,
    row: &Row,
    column: &str,
    table: &'a str,
) -> impl Iterator<Item = (Uuid, &'a Row)> {
    let uuids = references(row, column).into_iter();
    uuids.filter_map(move |uuid| Some((uuid, replica.row(table, uuid)?)))
}
