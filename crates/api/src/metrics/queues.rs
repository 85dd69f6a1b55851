//! Counters of queues.

use control::controller::Location;
use openflow::multipart::QueueStats;
use openflow::{DatapathId, QueueId};

use super::reader::{self, Counted};
use super::{Stated, ports};
use crate::exposition::{Family, Value, gauge};

/// Queues with series for each port that has some: Open vSwitch's ports have eight in most set-ups.
const PER_PORT: usize = 8;

pub type Counters = reader::Counters<QueueStats>;

/// Names of a queue's counters, and what they count.
const COUNTERS: [(&str, &str); 3] = [
    (
        "auster_queue_transmit_bytes",
        "Bytes that left through a queue of a port",
    ),
    (
        "auster_queue_transmit_packets",
        "Packets that left through a queue of a port",
    ),
    (
        "auster_queue_transmit_errors",
        "Packets for a queue of a port that were dropped",
    ),
];

impl Counted for QueueStats {
    type Key = (Location, QueueId);
    /// `None` for a counter that the switch does not keep.
    type Counts = [Option<u64>; COUNTERS.len()];

    fn count(&self, dpid: DatapathId) -> Option<(Self::Key, Self::Counts)> {
        let port = self.port_no;
        let counts = [self.tx_bytes, self.tx_packets, self.tx_errors];
        let counts = counts.map(|counter| (counter != u64::MAX).then_some(counter));
        port.is_ordinary()
            .then_some(((Location { dpid, port }, self.queue_id), counts))
    }
}

/// The series of the first queues, up to the configured maximum.
pub fn families(counters: &Counters, stated: &Stated) -> Vec<Family> {
    let most = stated.ports_max * PER_PORT;
    let family = |(number, (name, help)): (usize, &(&'static str, &'static str))| Family {
        name,
        help,
        samples: counters
            .iter()
            .take(most)
            .filter_map(|((at, queue), counts)| {
                let mut labels = ports::labels(*at);
                labels.push(("queue", queue.0.to_string()));
                Some((labels, Value::Count(counts[number]?)))
            })
            .collect(),
    };
    let mut families: Vec<Family> = COUNTERS.iter().enumerate().map(family).collect();
    families.push(gauge(
        "auster_queues_left_out",
        "Queues without series, by ports_max of [metrics]",
        counters.len().saturating_sub(most) as f64,
    ));
    families
}

#[cfg(test)]
mod tests {
    use openflow::PortNo;

    use super::*;
    use crate::exposition::text;

    #[test]
    fn queues_have_three_series_each_up_to_eight_for_each_port() {
        let row = |queue_id, tx_errors| QueueStats {
            port_no: PortNo(2),
            queue_id: QueueId(queue_id),
            tx_bytes: 10,
            tx_packets: 1,
            tx_errors,
            duration_sec: 0,
            duration_nsec: 0,
            properties: Vec::new(),
        };
        let mut rows: Vec<QueueStats> = (0..9).map(|queue| row(queue, 0)).collect();
        rows[1].tx_errors = u64::MAX;
        let local = QueueStats {
            port_no: PortNo::LOCAL,
            ..row(0, 0)
        };
        rows.push(local);
        let counted = rows.iter().filter_map(|row| row.count(DatapathId(1)));
        let stated = Stated {
            ports_max: 1,
            ..Stated::default()
        };
        let text = text(families(&counted.collect(), &stated));
        let series = text.lines().filter(|line| line.contains("_total{"));
        assert_eq!(series.count(), PER_PORT * COUNTERS.len() - 1, "{text}");
        for line in [
            "auster_queue_transmit_bytes_total{dp_id=\"0000000000000001\",port=\"2\",\
             queue=\"7\"} 10",
            "auster_queues_left_out 1.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
