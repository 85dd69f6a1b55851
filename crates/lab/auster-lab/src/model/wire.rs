//! The model of the wire, cell by cell as `scenarios/channel-*.toml` measure it.

use std::collections::BTreeMap;

use bytes::BytesMut;
use clock::Duration;
use openflow::Frame;
use relay::{SHARED_LANES, place_of};
use sched::{Direction, Place};
use serde::Serialize;
use sim::overhead::wire::{
    self, Carrier, Congestion, Outcome, QuicCarrier, Setup, Streams, TcpCarrier,
};

use super::scenario::{HostEntry, WireEntry};
use super::table::{Entry, matrix, readable};
use bench::channel::condition::{Bursts, Cell, Condition, Rtt, Sizes};
use bench::channel::method::{self, Method, RELAY_WIRE};
use bench::channel::source::{self, Stamp};
use cli::failure::Failure;
use cli::parallel;
use measure::distinct;
use measure::stats::Summary;
use report::output::Results;
use report::plot::{Plot, Series};

/// The shortest retransmission timeout of kernel TCP without `tcp_rto_min_us`.
const RTO_MIN: Duration = Duration::from_millis(200);
/// The baselines of savings; TLS with the same window is a third.
const BASELINES: [&str; 2] = ["tcp", "tls"];

/// The model's figures for a cell, by their names in the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    pub method: &'static str,
    pub sizes_bytes: Vec<usize>,
    pub rtt_ms: f64,
    pub rtt_deviation_ms: f64,
    pub rate_per_s: f64,
    pub loss_percent: f64,
    pub agents: usize,
    pub seed: u64,
    /// Messages of both ends, like all figures below.
    pub messages: u64,
    pub undelivered: u64,
    pub application_bytes: u64,
    pub overhead_bytes_per_message: f64,
    pub overhead_line_bytes_per_message: f64,
    pub frames_per_message: f64,
    /// The part of the overhead that handshakes take.
    pub handshake_bytes_per_message: f64,
}

/// Returns the cells of a scenario, or an error if the model does not cover one of them.
pub fn cells(scenario: &WireEntry) -> Result<Vec<Cell>, String> {
    let cells = scenario.cells();
    cells
        .iter()
        .try_for_each(|cell| carrier(cell.method, cell.agents, RELAY_WIRE).map(drop))?;
    Ok(cells)
}

/// Runs the cells on as many threads as there are cores; a cell's result depends on its seed alone.
pub fn run(cells: &[Cell], host: HostEntry, relay_wire: u8) -> Result<Vec<CellResult>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let result = |cell: &Cell| CellResult::of(cell, host, relay_wire);
    let all = parallel::each(cells, threads, || false, result, |_, _| ());
    all.into_iter().collect()
}

impl CellResult {
    fn of(cell: &Cell, host: HostEntry, relay_wire: u8) -> Result<CellResult, Failure> {
        let outcome = setup(cell, host, relay_wire).map_err(Failure::usage)?.run();
        let Condition {
            rate_per_s,
            loss_percent,
            rtt,
            sizes,
            ..
        } = &cell.condition;
        Ok(CellResult {
            method: cell.method.name,
            sizes_bytes: sizes.0.clone(),
            rtt_ms: rtt.ms,
            rtt_deviation_ms: rtt.deviation_ms,
            rate_per_s: *rate_per_s,
            loss_percent: *loss_percent,
            agents: cell.agents,
            seed: cell.seed,
            messages: cell.messages(),
            undelivered: outcome.undelivered,
            application_bytes: outcome.application_bytes,
            overhead_bytes_per_message: outcome.overhead_bytes(),
            overhead_line_bytes_per_message: outcome.line_overhead_bytes(),
            frames_per_message: outcome.frames_per_message(),
            handshake_bytes_per_message: handshake(&outcome),
        })
    }

    pub fn condition(&self) -> String {
        Condition {
            rate_per_s: self.rate_per_s,
            loss_percent: self.loss_percent,
            bursts: Bursts::NONE,
            rtt: self.rtt(),
            sizes: Sizes(self.sizes_bytes.clone()),
        }
        .to_string()
    }

    fn rtt(&self) -> Rtt {
        Rtt {
            ms: self.rtt_ms,
            deviation_ms: self.rtt_deviation_ms,
        }
    }

    /// The properties that all cells of one printed table share.
    fn group(&self) -> (String, String, usize) {
        let sizes = Sizes(self.sizes_bytes.clone()).to_string();
        (sizes, self.rtt().to_string(), self.agents)
    }
}

fn handshake(outcome: &Outcome) -> f64 {
    outcome.handshake_bytes as f64 / outcome.messages.max(1) as f64
}

/// Sets up a cell. Its seed gives the same messages and losses as in the bench.
fn setup(cell: &Cell, host: HostEntry, relay_wire: u8) -> Result<Setup, String> {
    let carrier = carrier(cell.method, cell.agents, relay_wire)?;
    let messages = |direction| {
        let sources = cell.sources(direction);
        let mut lanes = BTreeMap::new();
        let message = |(stamp, bytes): (Stamp, usize)| wire::Message {
            due: stamp.due.as_nanos() as u64,
            agent: stamp.agent,
            lane: match carrier {
                Carrier::Quic(QuicCarrier {
                    streams: Streams::Lanes(count),
                    ..
                }) => *lanes
                    .entry((stamp.agent, stamp.flow))
                    .or_insert_with(|| lane_of(&stamp, direction, count)),
                _ => 0,
            },
            bytes: bytes as u32,
        };
        sources.into_iter().flatten().map(message).collect()
    };
    Ok(Setup {
        carrier,
        window: match cell.method.carrier {
            method::Carrier::Relay(relay) => Duration::from_micros(relay.window_us),
            _ => Duration::from_millis(cell.method.window_ms),
        },
        agents: cell.agents as u16,
        messages: [
            messages(Direction::ToController),
            messages(Direction::ToSwitch),
        ],
        link: cell.link_config(),
        seeds: [cell.seed, !cell.seed],
        host: host.over_default(),
    })
}

/// Returns the lane to which a relay assigns the flow of `stamp`.
fn lane_of(stamp: &Stamp, direction: Direction, lanes: u16) -> u16 {
    let mut bytes = BytesMut::new();
    source::encode(stamp, direction, source::MESSAGE_BYTES_MIN, &mut bytes);
    let frame = Frame::new(bytes.freeze()).expect("the bench writes whole messages");
    match place_of(&frame, direction, lanes) {
        Place::Flow(lane) => lane,
        place => unreachable!("a packet of the bench is at {place:?}"),
    }
}

/// Returns the model's carrier for a method; `Err` if the model does not cover it.
pub fn carrier(method: &Method, agents: usize, relay_wire: u8) -> Result<Carrier, String> {
    if method.congestion != method::Congestion::Cubic {
        return Err(format!("{}: the model has CUBIC and no other", method.name));
    }
    Ok(match method.carrier {
        method::Carrier::Tcp(tcp) => Carrier::Tcp(TcpCarrier {
            is_tls: tcp.is_tls,
            nodelay: tcp.nodelay,
            is_shared: tcp.is_shared,
            rto_min: tcp
                .rto_min_us
                .map_or(RTO_MIN, |us| Duration::from_micros(us.into())),
        }),
        method::Carrier::Quic(quic) => Carrier::Quic(QuicCarrier {
            streams: match quic.streams {
                method::Streams::PerAgent => Streams::PerAgent,
                method::Streams::RoundRobin(count) => Streams::RoundRobin(count as u16),
                method::Streams::PerMessage => Streams::PerMessage,
            },
            is_thin: quic.is_thin,
            ack_delay: wire::QUINN_ACK_DELAY,
            congestion: Congestion::Cubic,
            window_floor_bytes: quic.window_floor_bytes.unwrap_or(0),
            records: None,
        }),
        method::Carrier::Relay(relay) if relay.is_doubled => {
            return Err(format!("{}: the model sends nothing twice", method.name));
        }
        method::Carrier::Relay(relay) => Carrier::Quic(QuicCarrier {
            streams: Streams::Lanes(match relay.window_us {
                window_us if window_us > 0 && relay_wire > 1 => {
                    (SHARED_LANES / agents as u16).max(1)
                }
                _ => wire::RELAY_LANES,
            }),
            is_thin: true,
            ack_delay: wire::RELAY_ACK_DELAY,
            congestion: Congestion::Westwood,
            window_floor_bytes: 0,
            records: Some(match relay_wire {
                1 => wire::RELAY_RECORDS_1,
                _ => wire::RELAY_RECORDS,
            }),
        }),
    })
}

/// One figure, over all seeds.
struct Figure<'a> {
    first: &'a CellResult,
    overhead: Summary,
    frames: f64,
}

/// Figures in the order in which they first appear.
fn figures(results: &[CellResult]) -> Vec<Figure<'_>> {
    let mut groups: Vec<Vec<&CellResult>> = Vec::new();
    for result in results {
        let key = |r: &CellResult| (r.method, r.condition(), r.agents);
        match groups.iter_mut().find(|group| key(group[0]) == key(result)) {
            Some(group) => group.push(result),
            None => groups.push(vec![result]),
        }
    }
    let over = |group: &[&CellResult], read: fn(&CellResult) -> f64| {
        Summary::of(group.iter().map(|r| read(r)))
    };
    let figures = groups.iter().map(|group| Figure {
        first: group[0],
        overhead: over(group, |r| r.overhead_bytes_per_message),
        frames: over(group, |r| r.frames_per_message).mean,
    });
    figures.collect()
}

/// Formats the tables as the bench prints them, and the savings.
pub fn text(results: &[CellResult]) -> String {
    let all = figures(results);
    let mut text = String::new();
    for group in distinct(all.iter().map(|f| f.first.group())) {
        let of_group: Vec<&Figure> = all.iter().filter(|f| f.first.group() == group).collect();
        let (sizes, rtt, agents) = &group;
        let about = format!("{sizes} bytes, RTT {rtt} ms, {agents} agents");
        let entries: Vec<Entry> = of_group
            .iter()
            .map(|f| f.entry(format!("{:.1} [{:.2}]", f.overhead.mean, f.frames)))
            .collect();
        text += &format!("Overhead ({about}), modelled: bytes/message [frames/message]\n");
        text += &(matrix(&entries) + "\n");
        let saved: Vec<Entry> = of_group
            .iter()
            .filter_map(|f| f.savings(&of_group))
            .collect();
        if !saved.is_empty() {
            text += &format!(
                "Saved ({about}), modelled: % of tcp / of tls / of tls with the same window\n"
            );
            text += &(matrix(&saved) + "\n");
        }
    }
    let undelivered: u64 = results.iter().map(|r| r.undelivered).sum();
    if undelivered > 0 {
        text +=
            &format!("Note: {undelivered} messages were not delivered within 20 s of the last.\n");
    }
    text
}

impl Figure<'_> {
    fn entry(&self, cell: String) -> Entry {
        Entry {
            method: self.first.method,
            rate_per_s: self.first.rate_per_s,
            loss_percent: self.first.loss_percent,
            cell,
        }
    }

    /// Returns the savings of a method over QUIC, if there is a baseline to compare it with.
    fn savings(&self, others: &[&Figure]) -> Option<Entry> {
        let method = Method::parse(self.first.method).ok()?;
        let against = |name: &str| {
            let found = others.iter().find(|f| {
                f.first.method == name && f.first.condition() == self.first.condition()
            })?;
            Some(format!(
                "{:.0}",
                100.0 * (1.0 - self.overhead.mean / found.overhead.mean)
            ))
        };
        let windowed = match method.window_ms {
            0 => BASELINES[1].to_owned(),
            ms => format!("{}-{ms}ms", BASELINES[1]),
        };
        let names = [BASELINES[0], BASELINES[1], windowed.as_str()];
        let cells = names.map(against);
        if !method.is_quic() || cells.iter().all(Option::is_none) {
            return None;
        }
        let cells = cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
        Some(self.entry(cells.join(" / ")))
    }
}

/// Plots overhead over the rate for each number of agents, and over agents for each rate.
pub fn plot(results: &[CellResult], kept: &Results) -> Result<(), Failure> {
    let all = figures(results);
    type Read = fn(&Figure) -> f64;
    let (rate, agents): (Read, Read) = (|f| f.first.rate_per_s, |f| f.first.agents as f64);
    for (sizes, rtt, loss) in distinct(
        all.iter()
            .map(|f| (f.first.group().0, f.first.group().1, f.first.loss_percent)),
    ) {
        let here: Vec<&Figure> = all
            .iter()
            .filter(|f| {
                let group = f.first.group();
                (group.0, group.1, f.first.loss_percent) == (sizes.clone(), rtt.clone(), loss)
            })
            .collect();
        let place = format!(
            "loss{loss}-{}B-rtt{}ms",
            sizes.replace('/', "-"),
            rtt.replace('±', "+-")
        );
        for (fixed, moving, about, [unit, short]) in [
            (
                agents,
                rate,
                "messages per second, each way",
                ["agents", "agents"],
            ),
            (
                rate,
                agents,
                "agents at each end",
                ["msg/s each way", "per-s"],
            ),
        ] {
            for at in distinct(here.iter().map(|f| fixed(f))) {
                let lines = lines(here.iter().filter(|f| fixed(f) == at).copied(), moving);
                for (part, series) in readable(&lines).into_iter().enumerate() {
                    let title = format!(
                        "Overhead, modelled: {sizes} B, RTT {rtt} ms, {loss} % loss, {at} {unit}"
                    );
                    let plot = Plot::new(title, [about, "overhead (bytes/message)"], series);
                    let more = match part {
                        0 => String::new(),
                        part => format!("-{}", part + 1),
                    };
                    let file = format!("wire-{place}-{at}{short}{more}");
                    kept.plot(&file, &plot.log_x().lines())?;
                }
            }
        }
    }
    Ok(())
}

/// Returns one line per method, except for methods with only one x.
fn lines<'a>(figures: impl Iterator<Item = &'a Figure<'a>>, x: fn(&Figure) -> f64) -> Vec<Series> {
    let mut lines: Vec<Series> = Vec::new();
    for figure in figures {
        let name = figure.first.method;
        let point = (x(figure), figure.overhead.mean);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Series::new(name, vec![point])),
        }
    }
    lines.retain(|line| line.points.len() > 1);
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}
