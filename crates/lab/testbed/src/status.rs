//! Reads the document that `auster run --status` provides.

use serde_json::Value;

use crate::topology::Topology;
use cli::table::table;

pub fn switch_count(status: Option<&Value>) -> usize {
    list(status, "switches").len()
}

/// The number of directions of links: a link that works in both counts twice.
pub fn link_count(status: Option<&Value>) -> usize {
    list(status, "links").len()
}

/// Whether all switches are connected, and all links known in both directions.
pub fn is_whole(status: Option<&Value>, topology: &Topology) -> bool {
    switch_count(status) == topology.switches.len()
        && link_count(status) == 2 * topology.links.len()
}

/// The switches and links that the controller knows, of all that it should know.
pub fn missing(status: Option<&Value>, topology: &Topology) -> String {
    format!(
        "the controller knows {} of {} switches and {} of {} directions of links",
        switch_count(status),
        topology.switches.len(),
        link_count(status),
        2 * topology.links.len()
    )
}

/// A table with a line per switch; empty when the controller's status is unknown.
pub fn switch_table(status: Option<&Value>) -> String {
    if status.is_none() {
        return String::new();
    }
    let header = [
        "switch",
        "transport",
        "OpenFlow",
        "flows",
        "messages in",
        "out",
        "echo ms",
    ];
    let text = |switch: &Value, key: &str| match &switch[key] {
        Value::Null => "-".to_string(),
        Value::String(text) => text.clone(),
        Value::Number(n) if n.is_f64() => format!("{:.2}", n.as_f64().unwrap_or_default()),
        other => other.to_string(),
    };
    let keys = [
        "dpid",
        "transport",
        "version",
        "flows",
        "messages_in",
        "messages_out",
        "echo_rtt_ms",
    ];
    let mut rows: Vec<Vec<String>> = list(status, "switches")
        .iter()
        .map(|switch| keys.iter().map(|key| text(switch, key)).collect())
        .collect();
    rows.sort();
    table(&header, &rows)
}

fn list<'a>(status: Option<&'a Value>, key: &str) -> &'a [Value] {
    status
        .and_then(|status| status[key].as_array())
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn switches_are_in_order_and_what_is_not_known_is_a_dash() {
        let status = json!({
            "switches": [
                {"dpid": "0000000000000002", "transport": "tls", "version": "1.3", "flows": 3,
                 "messages_in": 7, "messages_out": 9, "echo_rtt_ms": 0.2512},
                {"dpid": "0000000000000001", "transport": "tls", "echo_rtt_ms": null},
            ],
            "links": [{"from": "a", "to": "b"}],
        });
        assert_eq!(
            (switch_count(Some(&status)), link_count(Some(&status))),
            (2, 1)
        );
        let text = switch_table(Some(&status));
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[1],
            ["0000000000000001", "tls", "-", "-", "-", "-", "-"]
        );
        assert_eq!(
            lines[2],
            ["0000000000000002", "tls", "1.3", "3", "7", "9", "0.25"]
        );
        assert_eq!((switch_count(None), switch_table(None)), (0, String::new()));
    }
}
