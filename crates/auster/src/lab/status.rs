//! Reading the document that `auster run --status` gives.

use serde_json::Value;

use crate::lab::report::table;

pub fn switch_count(status: Option<&Value>) -> usize {
    list(status, "switches").len()
}

/// Directions of links: a link that works both ways counts twice.
pub fn link_count(status: Option<&Value>) -> usize {
    list(status, "links").len()
}

/// A line per switch; nothing when the controller cannot be asked.
pub fn switch_table(status: Option<&Value>) -> String {
    if status.is_none() {
        return String::new();
    }
    let header = [
        "switch",
        "transport",
        "version",
        "messages in",
        "out",
        "echo ms",
    ];
    let text = |switch: &Value, key: &str| match &switch[key] {
        Value::Null => "-".to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let keys = [
        "dpid",
        "transport",
        "version",
        "messages_in",
        "messages_out",
        "echo_rtt_ms",
    ];
    let row = |switch: &Value| keys.iter().map(|key| text(switch, key)).collect();
    table(&header, list(status, "switches").iter().map(row).collect())
}

fn list<'a>(status: Option<&'a Value>, key: &str) -> &'a [Value] {
    status
        .and_then(|status| status[key].as_array())
        .map_or(&[], Vec::as_slice)
}
