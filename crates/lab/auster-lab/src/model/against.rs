//! Comparison of the model with a measurement.

use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::scenario::HostEntry;
use super::wire;
use bench::channel::condition::{Bursts, Cell, Condition, Rtt, Sizes};
use bench::channel::method::{Carrier, Method};
use cli::failure::Failure;
use cli::table::Columns;

/// The largest difference from a measured cell that the model promises.
pub const TOLERANCE_PERCENT: f64 = 10.0;

/// The results of a measurement.
pub struct Measured {
    relay_wire: u8,
    cells: Vec<MeasuredCell>,
}

/// A document of `auster bench channel`, which made these measurements before scenarios did.
#[derive(Deserialize)]
struct BenchDocument {
    settings: BenchSettings,
    runs: BenchRuns,
}

#[derive(Deserialize)]
struct BenchSettings {
    #[serde(default = "first_relay_wire")]
    relay_wire: u8,
}

#[derive(Deserialize)]
struct BenchRuns {
    cells: Vec<MeasuredCell>,
}

#[derive(Deserialize)]
struct MeasuredCell {
    method: String,
    sizes_bytes: Vec<usize>,
    rtt_ms: f64,
    rtt_deviation_ms: f64,
    rate_per_s: f64,
    loss_percent: f64,
    /// Documents of earlier versions have no bursts.
    burst_frames: Option<f64>,
    #[serde(default = "all")]
    burst_loss_percent: f64,
    agents: usize,
    seed: u64,
    messages: u64,
    overhead_bytes_per_message: f64,
    frames_per_message: f64,
}

impl Measured {
    pub fn read(path: &Path) -> Result<Measured, Failure> {
        let bytes = std::fs::read(path).map_err(|e| Failure::file(path, e))?;
        let wrong = |problem: String| {
            let path = path.display();
            Failure::usage(format!("{path}: no result.json of a channel: {problem}"))
        };
        let document: Value = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
        if document["bench"] == "channel" {
            let document: BenchDocument =
                serde_json::from_value(document).map_err(|e| wrong(e.to_string()))?;
            return Ok(Measured {
                relay_wire: document.settings.relay_wire,
                cells: document.runs.cells,
            });
        }
        let networks = document["networks"].as_array().into_iter().flatten();
        let rows = networks.flat_map(|network| network["channel"].as_array().into_iter().flatten());
        let rows: Vec<&Value> = rows.collect();
        let relay_wire = rows.first().and_then(|row| row["relay_wire"].as_u64());
        let relay_wire = relay_wire.and_then(|version| u8::try_from(version).ok());
        let relay_wire = relay_wire.ok_or_else(|| wrong("no row has relay_wire".to_owned()))?;
        // A run without figures has nulls in their place.
        let rows = rows.iter().filter(|row| !row["messages"].is_null());
        let cells = rows.map(|row| MeasuredCell::of(row));
        Ok(Measured {
            relay_wire,
            cells: cells.collect::<Result<_, _>>().map_err(wrong)?,
        })
    }
}

/// Reads a field of a row: an axis is a word, a column a number.
fn field<T: FromStr>(row: &Value, key: &str) -> Result<T, String> {
    let words = match &row[key] {
        Value::String(words) => words.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(format!("a row without {key}")),
    };
    let parsed = words.parse();
    parsed.map_err(|_| format!("a row with {key} = '{words}'"))
}

fn first_relay_wire() -> u8 {
    1
}

fn all() -> f64 {
    Bursts::NONE.loss_percent
}

impl MeasuredCell {
    /// Reads a row of a scenario.
    fn of(row: &Value) -> Result<MeasuredCell, String> {
        let rtt: Rtt = field(row, "rtt_ms")?;
        let bursts = match &row["burst"] {
            Value::Null => Bursts::NONE,
            _ => field(row, "burst")?,
        };
        Ok(MeasuredCell {
            method: field(row, "method")?,
            sizes_bytes: field::<Sizes>(row, "size_bytes")?.0,
            rtt_ms: rtt.ms,
            rtt_deviation_ms: rtt.deviation_ms,
            rate_per_s: field(row, "rate_per_s")?,
            loss_percent: field(row, "loss_percent")?,
            burst_frames: Some(bursts.frames),
            burst_loss_percent: bursts.loss_percent,
            agents: field(row, "agents")?,
            seed: field(row, "seed")?,
            messages: field(row, "messages")?,
            overhead_bytes_per_message: field(row, "overhead_bytes_per_message")?,
            frames_per_message: field(row, "frames_per_message")?,
        })
    }

    fn bursts(&self) -> Bursts {
        Bursts {
            frames: self.burst_frames.unwrap_or(Bursts::NONE.frames),
            loss_percent: self.burst_loss_percent,
        }
    }

    /// Returns the same cell, or the reason why the model does not cover it.
    fn cell(&self, relay_wire: u8) -> Result<Cell, String> {
        let method = Method::parse(&self.method)?;
        wire::carrier(method, self.agents, relay_wire)?;
        if matches!(method.carrier, Carrier::Relay(_)) && self.burst_frames.is_none() {
            return Err("relay: of a version that acknowledged and reported more".to_owned());
        }
        let is_sane = (1..=usize::from(u16::MAX)).contains(&self.agents)
            && self.rate_per_s > 0.0
            && !self.sizes_bytes.is_empty();
        if !is_sane {
            return Err(
                "agents, rate_per_s or sizes_bytes are not those of a measurement".to_owned(),
            );
        }
        let each = self.messages / (2 * self.agents as u64);
        Ok(Cell {
            method,
            condition: Condition {
                rate_per_s: self.rate_per_s,
                loss_percent: self.loss_percent,
                bursts: self.bursts(),
                rtt: Rtt {
                    ms: self.rtt_ms,
                    deviation_ms: self.rtt_deviation_ms,
                },
                sizes: Sizes(self.sizes_bytes.clone()),
            },
            agents: self.agents,
            messages_per_agent: u32::try_from(each).map_err(|_| "too many messages".to_owned())?,
            seed: self.seed,
        })
    }
}

/// The comparison of the model with a measurement.
#[derive(Serialize)]
pub struct Comparison {
    tolerance_percent: f64,
    cells: Vec<Compared>,
    /// Cells that the model does not cover, by reason.
    left_out: Vec<LeftOut>,
}

#[derive(Serialize)]
struct Compared {
    method: &'static str,
    condition: String,
    agents: usize,
    seed: u64,
    measured_bytes: f64,
    modelled_bytes: f64,
    measured_frames: f64,
    modelled_frames: f64,
    departs_percent: f64,
    is_within: bool,
}

#[derive(Serialize)]
struct LeftOut {
    reason: String,
    cells: usize,
}

impl Comparison {
    pub fn of(measured: &Measured, host: HostEntry) -> Result<Comparison, Failure> {
        let (mut cells, mut theirs) = (Vec::new(), Vec::new());
        let mut left_out: Vec<LeftOut> = Vec::new();
        let measured_wire = measured.relay_wire;
        for measured in &measured.cells {
            match measured.cell(measured_wire) {
                Ok(cell) => {
                    cells.push(cell);
                    theirs.push(measured);
                }
                Err(reason) => match left_out.iter_mut().find(|l| l.reason == reason) {
                    Some(left) => left.cells += 1,
                    None => left_out.push(LeftOut { reason, cells: 1 }),
                },
            }
        }
        let ours = wire::run(&cells, host, measured_wire)?;
        let compared = ours.iter().zip(theirs).map(|(ours, theirs)| {
            let modelled = ours.overhead_bytes_per_message;
            let departs = 100.0 * (modelled / theirs.overhead_bytes_per_message - 1.0);
            Compared {
                method: ours.method,
                condition: ours.condition(),
                agents: ours.agents,
                seed: ours.seed,
                measured_bytes: theirs.overhead_bytes_per_message,
                modelled_bytes: modelled,
                measured_frames: theirs.frames_per_message,
                modelled_frames: ours.frames_per_message,
                departs_percent: departs,
                is_within: departs.abs() <= TOLERANCE_PERCENT,
            }
        });
        Ok(Comparison {
            tolerance_percent: TOLERANCE_PERCENT,
            cells: compared.collect(),
            left_out,
        })
    }

    /// The number of cells outside the model's tolerance.
    pub fn outside(&self) -> usize {
        self.cells.iter().filter(|cell| !cell.is_within).count()
    }

    pub fn text(&self) -> String {
        let pair = |bytes: f64, frames: f64| format!("{bytes:.1} [{frames:.3}]");
        let mark = |cell: &Compared| if cell.is_within { "" } else { " !" };
        let table = Columns::of(&self.cells)
            .text("method", |cell| cell.method)
            .text("condition", |cell| &cell.condition)
            .text("agents", |cell| cell.agents)
            .text("measured B [frames]", |cell| {
                pair(cell.measured_bytes, cell.measured_frames)
            })
            .text("modelled B [frames]", |cell| {
                pair(cell.modelled_bytes, cell.modelled_frames)
            })
            .text("departs %", |cell| {
                format!("{:+.1}{}", cell.departs_percent, mark(cell))
            })
            .table();
        let mut text = format!(
            "The model beside what was measured, overhead per message\n{table}{} of {} cells are \
             within {TOLERANCE_PERCENT} %.\n",
            self.cells.len() - self.outside(),
            self.cells.len()
        );
        for left in &self.left_out {
            text += &format!("{} cells are left out: {}.\n", left.cells, left.reason);
        }
        text
    }
}
