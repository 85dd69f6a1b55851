//! The figures of one transfer size and of one stream, as the document has them.

use serde::Serialize;

use crate::network::iperf::{Datagrams, Tool};
use crate::network::order;
use crate::network::udp::{Pace, Stream};
use measure::stats::Summary;

/// Whose figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    Auster,
    #[serde(untagged)]
    Tool(Tool),
}

impl By {
    pub fn all(with_tools: bool) -> impl Iterator<Item = By> {
        let tools = [By::Tool(Tool::Iperf), By::Tool(Tool::Iperf3)];
        let tools = tools.into_iter().filter(move |_| with_tools);
        std::iter::once(By::Auster).chain(tools)
    }

    pub fn name(self) -> &'static str {
        match self {
            By::Auster => "auster",
            By::Tool(tool) => tool.name(),
        }
    }

    /// The tools send from the hosts' own addresses.
    pub fn flows(self) -> &'static [Flow] {
        match self {
            By::Auster => &[Flow::Known, Flow::New],
            By::Tool(_) => &[Flow::Known],
        }
    }
}

/// Whether the network knows the sender before the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Flow {
    Known,
    New,
}

impl Flow {
    pub fn name(self) -> &'static str {
        match self {
            Flow::Known => "known",
            Flow::New => "new",
        }
    }
}

/// Transfers of one size.
#[derive(Clone, Debug, Serialize)]
pub struct TcpRun {
    pub by: By,
    pub size_bytes: u64,
    pub time_ms: Summary,
    pub failed: u64,
    #[serde(skip)]
    pub times_ms: Vec<f64>,
}

impl TcpRun {
    pub fn of(by: By, size_bytes: u64, times_ms: Vec<f64>, failed: u64) -> TcpRun {
        TcpRun {
            by,
            size_bytes,
            time_ms: Summary::of(&times_ms),
            failed,
            times_ms,
        }
    }

    /// The rate of the median transfer.
    pub fn mbps(&self) -> f64 {
        match self.time_ms.p50 {
            0.0 => 0.0,
            ms => self.size_bytes as f64 * 8.0 / 1e3 / ms,
        }
    }
}

/// One stream. Figures that a tool does not report are null.
#[derive(Clone, Debug, Serialize)]
pub struct UdpRun {
    pub by: By,
    pub flow: Flow,
    pub rate_mbps: f64,
    pub sent: u64,
    pub lost: u64,
    pub lost_percent: f64,
    pub duplicates: Option<u64>,
    pub jitter_ms: f64,
    /// Delay in one direction.
    pub delay_ms: Option<Summary>,
    pub reordered: u64,
    /// The share of reordered datagrams among those that arrived.
    pub reordered_percent: f64,
    /// The extent of reordering: for each reordered datagram, the number of datagrams that arrived
    /// between the one that overtook it and itself.
    pub extent: Option<Summary>,
    pub late_ms: Option<Summary>,
    /// The most that a datagram was sent after it was due; not the network's doing.
    pub sender_late_max_ms: Option<f64>,
}

impl UdpRun {
    pub fn of(flow: Flow, pace: &Pace, stream: &Stream) -> UdpRun {
        let verdict = order::judge(&stream.arrivals);
        let lost = stream.sent.saturating_sub(verdict.received);
        let ms = |values: Vec<u64>| {
            let ms: Vec<f64> = values.iter().map(|ns| *ns as f64 / 1e6).collect();
            Some(Summary::of(&ms))
        };
        let late = &verdict.reordered;
        let extents: Vec<f64> = late.iter().map(|r| r.extent as f64).collect();
        UdpRun {
            by: By::Auster,
            flow,
            rate_mbps: pace.rate_mbps,
            sent: stream.sent,
            lost,
            lost_percent: percent(lost, stream.sent),
            duplicates: Some(verdict.duplicates),
            jitter_ms: verdict.jitter_ns / 1e6,
            reordered: late.len() as u64,
            reordered_percent: percent(late.len() as u64, verdict.received),
            extent: Some(Summary::of(&extents)),
            late_ms: ms(late.iter().map(|r| r.late_ns).collect()),
            delay_ms: ms(verdict.delays_ns),
            sender_late_max_ms: Some(stream.sender_late_max.as_secs_f64() * 1e3),
        }
    }

    /// The figures of a stream as a tool reports them.
    pub fn told(tool: Tool, pace: &Pace, said: &Datagrams) -> UdpRun {
        UdpRun {
            by: By::Tool(tool),
            flow: Flow::Known,
            rate_mbps: pace.rate_mbps,
            sent: said.sent,
            lost: said.lost,
            lost_percent: percent(said.lost, said.sent),
            duplicates: None,
            jitter_ms: said.jitter_ms,
            delay_ms: None,
            reordered: said.reordered,
            reordered_percent: percent(said.reordered, said.sent.saturating_sub(said.lost)),
            extent: None,
            late_ms: None,
            sender_late_max_ms: None,
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 * 100.0 / whole as f64,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::network::order::Arrival;

    #[test]
    fn a_stream_is_told_with_its_losses_copies_and_late_ones() {
        let pace = Pace {
            rate_mbps: 1.0,
            datagram_bytes: 1250,
            duration: Duration::from_secs(1),
        };
        // Ten sent, 9 and 8 lost, 2 late by two and 1 ms after what overtook it first, 5 twice.
        let numbers = [0, 1, 3, 4, 2, 5, 5, 6, 7];
        let arrivals = (0..).zip(numbers).map(|(place, number)| Arrival {
            number,
            sent_ns: 0,
            received_ns: 500_000 * (place + 1),
        });
        let stream = Stream {
            sent: 10,
            sender_late_max: Duration::from_micros(250),
            arrivals: arrivals.collect(),
            ..Stream::default()
        };
        let run = UdpRun::of(Flow::New, &pace, &stream);
        assert_eq!(
            (run.lost, run.lost_percent, run.duplicates),
            (2, 20.0, Some(1))
        );
        assert_eq!((run.reordered, run.reordered_percent), (1, 12.5));
        assert_eq!(run.extent.map(|e| e.max), Some(2.0));
        assert_eq!(run.late_ms.map(|e| e.max), Some(1.0));
        assert_eq!(run.delay_ms.map(|d| (d.count, d.min)), Some((8, 0.5)));
        assert_eq!(run.sender_late_max_ms, Some(0.25));
        let json = serde_json::to_value(&run).unwrap();
        assert_eq!(
            (&json["by"], &json["flow"]),
            (&"auster".into(), &"new".into())
        );
    }

    #[test]
    fn a_tools_name_is_a_word() {
        let names: Vec<String> = By::all(true)
            .map(|by| {
                serde_json::to_value(by)
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .to_string()
            })
            .collect();
        assert_eq!(names, ["auster", "iperf", "iperf3"]);
    }
}
