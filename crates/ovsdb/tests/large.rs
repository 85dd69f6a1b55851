//! A switch with 20,000 interfaces is read within the memory bound of one network. A database whose
//! bridges share their ports grows no larger when it is read.

use std::time::Duration;

use clock::Instant;
use ovsdb::{Answer, Config, Output, Schema, Session, vswitch};
use serde_json::{Map, Value, json};

const NOW: Instant = Instant::START;
/// The bound of `driver::databases`.
const NETWORK_BYTES_MAX: usize = 112 << 20;

fn schema() -> Schema {
    let text = || json!({"type": "string"});
    let any = |key: &str| json!({"type": {"key": key, "min": 0, "max": "unlimited"}});
    let some = |key: &str| json!({"type": {"key": key, "min": 0, "max": 1}});
    let map =
        || json!({"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}});
    let mut tables = Map::new();
    for (table, columns) in vswitch::monitor_request().columns {
        let columns: Map<String, Value> = columns
            .into_iter()
            .map(|column| {
                let kind = match column.as_str() {
                    "name" | "type" | "datapath_type" | "target" => text(),
                    "ports" | "interfaces" | "bridges" | "controller" => any("uuid"),
                    "qos" => some("uuid"),
                    "trunks" => any("integer"),
                    "ofport" | "link_speed" | "tag" | "cur_cfg" | "next_cfg" => some("integer"),
                    "external_ids" | "other_config" | "queues" | "flow_tables" => map(),
                    "bfd" | "bfd_status" => map(),
                    _ => some("string"),
                };
                (column, kind)
            })
            .collect();
        tables.insert(table, json!({"columns": columns}));
    }
    Schema::from_json(&json!({"name": "D", "version": "1.0.0", "tables": tables})).unwrap()
}

fn uuid(table: u128, number: usize) -> String {
    ovsdb::Uuid(table << 64 | number as u128).to_string()
}

/// Rows in the form of ovsdb-server, which leaves out unset columns.
fn rows(bridges: usize, ports: usize) -> Value {
    let (mut interface, mut port, mut bridge) = (Map::new(), Map::new(), Map::new());
    for n in 0..ports {
        let name = format!("interface{n}");
        let columns = json!({
            "name": name, "type": "internal", "ofport": n, "mac_in_use": "02:00:00:00:00:01",
            "admin_state": "up", "link_state": "up", "link_speed": 10_000_000_000u64,
        });
        interface.insert(uuid(1, n), json!({"initial": columns}));
        let columns = json!({"name": name, "interfaces": ["uuid", uuid(1, n)]});
        port.insert(uuid(2, n), json!({"initial": columns}));
    }
    let all: Vec<Value> = (0..ports).map(|n| json!(["uuid", uuid(2, n)])).collect();
    for n in 0..bridges {
        let columns = json!({
            "name": format!("br{n}"), "datapath_id": format!("{n:016x}"), "ports": ["set", all],
        });
        bridge.insert(uuid(3, n), json!({"initial": columns}));
    }
    json!({"Interface": interface, "Port": port, "Bridge": bridge})
}

/// Reads these rows. Returns the session, its monitor, and the most bytes that the session held.
fn read(rows: Value) -> (Session, ovsdb::MonitorId, usize) {
    let mut session = Session::new(
        NOW,
        Config {
            message_timeout: Some(Duration::from_secs(10)),
            ..Config::default()
        },
    );
    let request = vswitch::monitor_request();
    let id = session.monitor_cond(NOW, &schema(), &request).unwrap();
    let answer = json!({"id": id.0, "result": rows, "error": null}).to_string();
    let mut held = 0;
    for piece in answer.as_bytes().chunks(16 << 10) {
        session.handle_bytes(NOW, piece);
        held = held.max(session.held_bytes());
    }
    let outputs = std::iter::from_fn(|| session.poll_output());
    let monitor = outputs.filter_map(|output| match output {
        Output::Answered(_, Answer::Monitoring(monitor)) => Some(monitor),
        Output::Close(reason) => panic!("{reason}"),
        _ => None,
    });
    let monitor = monitor.last().expect("it is monitored");
    (session, monitor, held)
}

#[test]
fn a_switch_with_20_000_interfaces_is_read() {
    let (session, monitor, held) = read(rows(1, 20_000));
    let bridges = vswitch::bridges(session.replica(monitor).unwrap());
    assert_eq!(bridges["br0"].ports.len(), 20_000);
    assert_eq!(bridges["br0"].ports[7].interfaces.len(), 1);
    assert!(held < NETWORK_BYTES_MAX, "{} MiB", held >> 20);
    let kept = session.held_bytes();
    assert!(kept < NETWORK_BYTES_MAX / 2, "{} MiB", kept >> 20);
}

#[test]
fn a_port_is_of_one_bridge_however_many_refer_to_it() {
    let (session, monitor, _) = read(rows(100, 100));
    let bridges = vswitch::bridges(session.replica(monitor).unwrap());
    assert_eq!(bridges.len(), 100);
    let ports: usize = bridges.values().map(|bridge| bridge.ports.len()).sum();
    assert_eq!(ports, 100);
}
