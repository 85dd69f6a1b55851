//! Counters of ports.

use std::time::Duration;

use control::clustered::Clustered;
use control::controller::{Location, PortDetail, SwitchView};
use driver::Driver;
use openflow::DatapathId;
use openflow::multipart::PortStats;
use tokio::time::timeout;

use super::Stated;
use super::reader::{self, Counted};
use crate::exposition::{Family, Labels, Value, gauge};

/// The time that the controller's thread has to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

pub type Counters = reader::Counters<PortStats>;

/// Names of a port's counters, and what they count.
const COUNTERS: [(&str, &str); 8] = [
    ("auster_port_receive_bytes", "Bytes that came in by a port"),
    (
        "auster_port_receive_packets",
        "Packets that came in by a port",
    ),
    (
        "auster_port_receive_errors",
        "Errors of packets that came in by a port",
    ),
    (
        "auster_port_receive_drops",
        "Packets that came in by a port and were dropped",
    ),
    ("auster_port_transmit_bytes", "Bytes that left by a port"),
    (
        "auster_port_transmit_packets",
        "Packets that left by a port",
    ),
    (
        "auster_port_transmit_errors",
        "Errors of packets that left by a port",
    ),
    (
        "auster_port_transmit_drops",
        "Packets for a port that were dropped",
    ),
];

impl Counted for PortStats {
    type Key = Location;
    /// `None` for a counter that the switch does not keep.
    type Counts = [Option<u64>; COUNTERS.len()];

    fn count(&self, dpid: DatapathId) -> Option<(Location, Self::Counts)> {
        let port = self.port_no;
        let counts = [
            self.rx_bytes,
            self.rx_packets,
            self.rx_errors,
            self.rx_dropped,
            self.tx_bytes,
            self.tx_packets,
            self.tx_errors,
            self.tx_dropped,
        ];
        let counts = counts.map(|counter| (counter != u64::MAX).then_some(counter));
        port.is_ordinary()
            .then_some((Location { dpid, port }, counts))
    }
}

/// The series of the first ports, up to the configured maximum.
pub fn families(counters: &Counters, stated: &Stated) -> Vec<Family> {
    let family = |(number, (name, help)): (usize, &(&'static str, &'static str))| Family {
        name,
        help,
        samples: counters
            .iter()
            .take(stated.ports_max)
            .filter_map(|(at, counted)| Some((labels(*at), Value::Count(counted[number]?))))
            .collect(),
    };
    let mut families: Vec<Family> = COUNTERS.iter().enumerate().map(family).collect();
    families.push(gauge(
        "auster_ports_left_out",
        "Ports without series, by ports_max of [metrics]",
        counters.len().saturating_sub(stated.ports_max) as f64,
    ));
    families
}

pub fn labels(at: Location) -> Labels {
    vec![
        ("dp_id", at.dpid.to_string()),
        ("port", at.port.0.to_string()),
    ]
}

/// All switches and their ports, read in parts.
pub async fn known(driver: &Driver<Clustered>) -> (Vec<SwitchView>, Vec<PortDetail>) {
    let (mut switches, mut ports) = (Vec::new(), Vec::new());
    let mut after = None;
    loop {
        let asked = driver.ask(move |controller| controller.switches_after(after));
        let part = timeout(ANSWER_TIME_MAX, asked).await;
        let Some(part) = part.ok().flatten().flatten() else {
            return (switches, ports);
        };
        after = part.switches.last().map(|switch| switch.dpid);
        switches.extend(part.switches);
        ports.extend(part.ports);
        if after.is_none() {
            return (switches, ports);
        }
    }
}

#[cfg(test)]
mod tests {
    use openflow::PortNo;

    use super::*;
    use crate::exposition::text;

    #[test]
    fn ports_have_eight_series_each_up_to_the_bound() {
        let at = |port| Location::new(DatapathId(1), PortNo(port));
        let mut counters = Counters::new();
        for port in 1..=5 {
            counters.insert(at(port), [Some(u64::from(port)); COUNTERS.len()]);
        }
        counters.insert(at(2), [None; COUNTERS.len()]);
        let stated = Stated {
            ports_max: 3,
            ..Stated::default()
        };
        let text = text(families(&counters, &stated));
        let series = text.lines().filter(|line| line.contains("_total{"));
        assert_eq!(series.count(), 2 * COUNTERS.len(), "{text}");
        for line in [
            "auster_port_receive_bytes_total{dp_id=\"0000000000000001\",port=\"3\"} 3",
            "auster_ports_left_out 2.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
