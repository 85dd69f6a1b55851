//! The busiest senders: ports with hosts, and the busiest flow entries of their switches.
//!
//! Entries are read only while `auster top` runs, at most [`ENTRIES_MAX`] of each switch, from
//! [`SWITCHES_MAX`] switches at a time.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{plain, rate, table};

/// Switches whose entries are read: those of the busiest ports.
pub const SWITCHES_MAX: usize = 3;
/// The number of entries of a switch that are read, those of higher tables last.
pub const ENTRIES_MAX: usize = 2000;
/// Entries in a document.
const SHOWN_MAX: usize = 100;
/// The minimum time between two readings for a rate.
const APART_MIN_S: f64 = 0.2;

type Ports = Map<String, Value>;

#[derive(Default)]
pub struct Talkers {
    before: BTreeMap<String, Switch>,
    entries: Vec<Entry>,
}

/// A reading of a switch: bytes and packets of each entry.
struct Switch {
    at: Instant,
    counted: BTreeMap<Key, [u64; 2]>,
}

/// Table, priority, match and cookie.
type Key = (u64, u64, String, String);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    dpid: String,
    matches: String,
    actions: String,
    bps: f64,
    pps: f64,
}

/// The bits per second of a port in both directions; `None` for a link, or without rates.
fn of_port(row: &Value) -> Option<f64> {
    let rates = &row["rates"];
    let is_of_hosts = row["role"] != "link";
    let both = rates["rx_bps"].as_f64()? + rates["tx_bps"].as_f64()?;
    (is_of_hosts && both > 0.0).then_some(both)
}

/// Ports that are not links, the busiest first.
fn busiest(ports: &Ports) -> Vec<(&String, &Value, f64)> {
    let rated = ports.iter();
    let rated = rated.filter_map(|(name, row)| Some((name, row, of_port(row)?)));
    let mut rated: Vec<_> = rated.collect();
    rated.sort_by(|a, b| b.2.total_cmp(&a.2));
    rated
}

/// The switches whose entries show the busiest senders.
pub fn switches(ports: &Ports) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (name, ..) in busiest(ports) {
        let dpid = name.split(':').next().unwrap_or_default();
        if !found.iter().any(|known| known == dpid) {
            found.push(dpid.to_owned());
        }
        if found.len() == SWITCHES_MAX {
            break;
        }
    }
    found
}

/// Whether an entry only sends packets to another table.
fn is_way(actions: &str) -> bool {
    let table = actions.strip_prefix("goto_table:");
    table.is_some_and(|table| table.bytes().all(|b| b.is_ascii_digit()))
}

/// The request for the entries of a switch.
pub fn question(dpid: &str) -> String {
    format!("/v1/switches/{dpid}/flows?limit={ENTRIES_MAX}")
}

impl Talkers {
    /// Takes the entries of a switch.
    pub fn take(&mut self, at: Instant, dpid: &str, answer: &Value) {
        let mut counted = BTreeMap::new();
        let before = self.before.get(dpid);
        let seconds = before.map_or(0.0, |before| (at - before.at).as_secs_f64());
        if before.is_some() && seconds < APART_MIN_S {
            return;
        }
        self.entries.retain(|entry| entry.dpid != dpid);
        for flow in answer["flows"].as_array().into_iter().flatten() {
            let text = |field: &str| plain(&flow[field]);
            let number = |field: &str| flow[field].as_u64().unwrap_or(0);
            let (matches, cookie, actions) = (text("match"), text("cookie"), text("actions"));
            // Its packets also match an entry of another table.
            if is_way(&actions) {
                continue;
            }
            let key = (number("table"), number("priority"), matches, cookie);
            let now = [number("bytes"), number("packets")];
            let earlier = before.and_then(|before| before.counted.get(&key));
            let since = |n: usize| Some(now[n].checked_sub(earlier?[n])? as f64 / seconds);
            if let Some((bytes, pps)) = since(0).zip(since(1))
                && bytes > 0.0
            {
                self.entries.push(Entry {
                    dpid: dpid.to_owned(),
                    matches: key.2.clone(),
                    actions,
                    bps: (bytes * 8.0).round(),
                    pps: pps.round(),
                });
            }
            counted.insert(key, now);
        }
        self.entries.sort_by(|a, b| b.bps.total_cmp(&a.bps));
        self.before.insert(dpid.to_owned(), Switch { at, counted });
    }

    /// Forgets switches that are not read any more.
    pub fn keep(&mut self, dpids: &[String]) {
        self.before.retain(|dpid, _| dpids.contains(dpid));
        self.entries.retain(|entry| dpids.contains(&entry.dpid));
    }

    /// Entries with rates, as a document has them.
    pub fn document(&self) -> Value {
        let row = |entry: &Entry| {
            json!({"dpid": entry.dpid, "match": entry.matches, "actions": entry.actions,
                "bps": entry.bps, "pps": entry.pps})
        };
        self.entries.iter().take(SHOWN_MAX).map(row).collect()
    }

    pub fn picture(&self, ports: &Ports, rows_max: usize, name: impl Fn(&str) -> String) -> String {
        let all = busiest(ports);
        let row = |(port, row, _): &(&String, &Value, f64)| {
            let (dpid, number) = port.split_once(':').unwrap_or((port, "?"));
            let rates = &row["rates"];
            let bps = |field: &str| rate(rates[field].as_f64().unwrap_or(0.0));
            [
                format!("{}:{}", name(dpid), plain(&json!(number))),
                bps("rx_bps"),
                bps("tx_bps"),
                plain(&rates["rx_pps"]),
                plain(&rates["tx_pps"]),
                plain(&row["host_count"]),
            ]
        };
        let rows: Vec<_> = all.iter().take(rows_max).map(row).collect();
        let titles = ["PORT", "IN", "OUT", "IN/s", "OUT/s", "HOSTS"];
        let mut picture = table(&titles, &rows, all.len());
        let row = |entry: &Entry| {
            let at = name(&entry.dpid);
            [
                at,
                rate(entry.bps),
                format!("{:.0}", entry.pps),
                entry.matches.clone(),
            ]
        };
        let rows: Vec<_> = self.entries.iter().take(rows_max).map(row).collect();
        let titles = ["ENTRY AT", "RATE", "PACKETS/s", "MATCH"];
        picture.push_str(&table(&titles, &rows, self.entries.len()));
        picture
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ports() -> Ports {
        let port = |role: &str, bps: f64| {
            json!({"role": role, "host_count": 2,
                "rates": {"rx_bps": bps, "tx_bps": 1e3, "rx_pps": 10.0, "tx_pps": 1.0}})
        };
        let mut ports = Ports::new();
        ports.insert("0000000000000001:1".to_owned(), port("edge", 1e6));
        ports.insert("0000000000000001:2".to_owned(), port("link", 1e9));
        ports.insert("0000000000000002:7".to_owned(), port("edge", 5e6));
        ports.insert(
            "0000000000000003:1".to_owned(),
            json!({"role": "edge", "rates": null}),
        );
        ports
    }

    fn flows(bytes: [u64; 2]) -> Value {
        let flow = |priority: u64, bytes: u64| {
            json!({"table": 0, "priority": priority, "match": format!("in_port={priority}"),
                "cookie": "0", "actions": "output:2\u{1b}[2J", "bytes": bytes,
                "packets": bytes / 100})
        };
        let mut way = flow(0, bytes[0] + bytes[1]);
        way["actions"] = json!("goto_table:1");
        json!({"flow_count": 3, "flows": [flow(1, bytes[0]), flow(2, bytes[1]), way]})
    }

    #[test]
    fn the_busiest_ports_of_hosts_say_whose_entries_are_read() {
        assert_eq!(switches(&ports()), ["0000000000000002", "0000000000000001"]);
        let picture = Talkers::default().picture(&ports(), 1, |dpid| dpid[15..].to_owned());
        let line = "2:7   5.0Mbit  1.0kbit  10.0  1.0    2\n... and 1 more\n";
        assert!(picture.contains(line), "{picture}");
    }

    #[test]
    fn entries_are_sorted_by_what_they_count_between_two_readings() {
        let mut talkers = Talkers::default();
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        talkers.take(at(0), "1", &flows([1000, 1000]));
        assert_eq!(talkers.entries, [], "one reading is none");
        talkers.take(at(100), "1", &flows([9000, 9000]));
        assert_eq!(talkers.entries, [], "too soon");
        talkers.take(at(2000), "1", &flows([2000, 51_000]));
        let found: Vec<_> = talkers
            .entries
            .iter()
            .map(|e| (&*e.matches, e.bps))
            .collect();
        assert_eq!(found, [("in_port=2", 200_000.0), ("in_port=1", 4000.0)]);
        let picture = talkers.picture(&Ports::new(), 9, str::to_owned);
        assert!(
            picture.contains("200.0kbit  250        in_port=2"),
            "{picture}"
        );
        assert!(!talkers.document().to_string().contains('\u{1b}'));
        // An entry whose counters restarted has no rate, and a switch not read any more no entries.
        talkers.take(at(4000), "1", &flows([10, 51_000]));
        assert_eq!(talkers.entries, []);
        talkers.take(at(6000), "1", &flows([20, 51_000]));
        talkers.keep(&["2".to_owned()]);
        assert_eq!((talkers.entries.len(), talkers.before.len()), (0, 0));
    }
}
