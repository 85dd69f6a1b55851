//! The measurements brought together: rows, ranks, the verdict.

use serde::Serialize;

use crate::qos::paper::report::Beside;
use crate::qos::paper::settings::{OURS, Settings};
use crate::qos::paper::setup::HOPS;
use crate::report::Check;
use measure::stats::Summary;

/// The time that QoS saves beside traffic, in percent by megabytes, from the paper's Fig. 15 and
/// its text.
pub const PAPER_SAVES: [(u32, f64); 6] = [
    (100, 68.0),
    (200, 50.0),
    (350, 50.0),
    (500, 50.0),
    (750, 40.0),
    (1000, 40.0),
];

/// The conditions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    Idle,
    Background,
    /// Background traffic, and queues between s2 and s3.
    Qos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Round trip of a flow's first packet.
    First,
    /// Round trip of the flow's later packets.
    Later,
    /// Transfer time.
    Tcp,
    /// Loss.
    Udp,
}

impl Cell {
    pub const ALL: [Cell; 3] = [Cell::Idle, Cell::Background, Cell::Qos];

    pub fn name(self) -> &'static str {
        match self {
            Cell::Idle => "idle",
            Cell::Background => "background",
            Cell::Qos => "background, QoS",
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Cell::Idle => "idle",
            Cell::Background => "background",
            Cell::Qos => "qos",
        }
    }
}

impl Measure {
    pub const ALL: [Measure; 4] = [Measure::First, Measure::Later, Measure::Tcp, Measure::Udp];

    pub fn name(self) -> &'static str {
        match self {
            Measure::First => "first packet (ms)",
            Measure::Later => "round trip (ms)",
            Measure::Tcp => "TCP transfer (ms)",
            Measure::Udp => "UDP loss (%)",
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Measure::First => "first",
            Measure::Later => "rtt",
            Measure::Tcp => "tcp",
            Measure::Udp => "udp",
        }
    }

    pub fn is_icmp(self) -> bool {
        matches!(self, Measure::First | Measure::Later)
    }

    /// Hops or megabytes, as a table names them.
    pub fn place(self, at: u32) -> String {
        match (self.is_icmp(), at) {
            (true, 1) => "1 hop".to_owned(),
            (true, hops) => format!("{hops} hops"),
            (false, size) => format!("{size} MB"),
        }
    }

    pub fn places(self, settings: &Settings) -> Vec<u32> {
        match self.is_icmp() {
            true => HOPS.to_vec(),
            false => settings.sizes_mb.clone(),
        }
    }
}

/// One run of one figure.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub controller: String,
    pub round: u32,
    pub cell: Cell,
    pub measure: Measure,
    /// Hops or megabytes of the paper.
    pub at: u32,
    /// For pings the mean of those that were answered; nothing if there was none.
    pub value: Option<f64>,
    /// Pings or datagrams that were lost, transfers that failed.
    pub lost: u64,
}

/// One figure under every controller, over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub measure: Measure,
    pub at: u32,
    pub cell: Cell,
    /// In the order of the settings.
    pub figures: Vec<Figure>,
    /// Whose median is the least.
    pub first: Option<String>,
    pub auster: Standing,
}

#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub controller: String,
    pub of: Summary,
    pub lost: u64,
}

/// Where auster is among the controllers of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    First,
    /// Its median is not above the most that the first one had.
    WithinSpread,
    Behind,
    /// It is not among them, or alone.
    NotCompared,
}

/// Time that QoS saves, beside what the paper says.
#[derive(Clone, Debug, Serialize)]
pub struct Reduction {
    pub controller: String,
    pub size_mb: u32,
    pub percent: f64,
    pub paper_percent: Option<f64>,
}

impl Row {
    pub fn of(&self, controller: &str) -> Option<&Figure> {
        let mut figures = self.figures.iter();
        figures.find(|figure| figure.controller == controller)
    }
}

pub fn rows(settings: &Settings, samples: &[Sample]) -> Vec<Row> {
    let mut rows = Vec::new();
    for measure in Measure::ALL {
        for at in measure.places(settings) {
            for cell in Cell::ALL {
                let is_its = |s: &&Sample| (s.measure, s.at, s.cell) == (measure, at, cell);
                let of_row: Vec<&Sample> = samples.iter().filter(is_its).collect();
                if !of_row.is_empty() {
                    rows.push(row((measure, at, cell), settings, &of_row));
                }
            }
        }
    }
    rows
}

fn row((measure, at, cell): (Measure, u32, Cell), settings: &Settings, all: &[&Sample]) -> Row {
    let figure = |name: &str| {
        let its = || all.iter().filter(|sample| sample.controller == name);
        let values: Vec<f64> = its().filter_map(|sample| sample.value).collect();
        Figure {
            controller: name.to_owned(),
            of: Summary::of(&values),
            lost: its().map(|sample| sample.lost).sum(),
        }
    };
    let names = settings.controllers.iter().map(|c| c.name.as_str());
    let figures: Vec<Figure> = names.map(figure).collect();
    let counted = || figures.iter().filter(|figure| figure.of.count > 0);
    // Of equals the one that is named first.
    let first = counted().min_by(|a, b| a.of.p50.total_cmp(&b.of.p50));
    let ours = counted().find(|figure| figure.controller == OURS);
    let auster = match (first, ours) {
        (Some(_), Some(_)) if figures.len() < 2 => Standing::NotCompared,
        (Some(first), Some(ours)) if ours.of.p50 <= first.of.p50 => Standing::First,
        (Some(first), Some(ours)) if ours.of.p50 <= first.of.max => Standing::WithinSpread,
        (Some(_), Some(_)) => Standing::Behind,
        _ => Standing::NotCompared,
    };
    Row {
        measure,
        at,
        cell,
        first: first.map(|figure| figure.controller.clone()),
        auster,
        figures,
    }
}

/// The median of a figure.
fn median(rows: &[Row], key: (Measure, u32, Cell), controller: &str) -> Option<f64> {
    let figure = figure(rows, key, controller)?;
    (figure.of.count > 0).then_some(figure.of.p50)
}

pub fn figure<'a>(
    rows: &'a [Row],
    (measure, at, cell): (Measure, u32, Cell),
    controller: &str,
) -> Option<&'a Figure> {
    let mut rows = rows.iter();
    let row = rows.find(|row| (row.measure, row.at, row.cell) == (measure, at, cell))?;
    row.of(controller)
}

pub fn reductions(settings: &Settings, rows: &[Row]) -> Vec<Reduction> {
    let mut reductions = Vec::new();
    for candidate in &settings.controllers {
        for &size_mb in &settings.sizes_mb {
            let of = |cell| median(rows, (Measure::Tcp, size_mb, cell), &candidate.name);
            if let (Some(without), Some(with)) = (of(Cell::Background), of(Cell::Qos)) {
                let paper = PAPER_SAVES.iter().find(|(size, _)| *size == size_mb);
                reductions.push(Reduction {
                    controller: candidate.name.clone(),
                    size_mb,
                    percent: 100.0 * (1.0 - with / without),
                    paper_percent: paper.map(|(_, percent)| *percent),
                });
            }
        }
    }
    reductions
}

/// Whether the claims hold: of auster, or of the first one where auster is not measured.
pub fn checks(settings: &Settings, rows: &[Row]) -> Vec<Check> {
    let name = settings.judged();
    let claims = &settings.claims;
    let mut checks = Vec::new();
    for measure in Measure::ALL {
        for at in measure.places(settings) {
            let what = format!("{name}: {}, {}", measure.name(), measure.place(at));
            checks.push(match measure {
                Measure::Udp => loss(rows, name, at, what, claims.udp_loss_percent_max),
                Measure::Tcp => {
                    let max = claims.transfer_ratio_max;
                    ratio(rows, name, (measure, at), what, max)
                }
                Measure::First | Measure::Later => {
                    let max = claims.icmp_ratio_max;
                    ratio(rows, name, (measure, at), what, max)
                }
            });
        }
    }
    checks
}

/// Or all that QoS has done would be chance.
pub fn served(settings: &Settings, beside: &[Beside]) -> Check {
    let name = settings.judged();
    let its = beside.iter().filter(|beside| beside.controller == name);
    let counts: Vec<u64> = its.filter_map(|beside| beside.service_packets).collect();
    let least = counts.iter().min().copied().unwrap_or(0);
    Check {
        what: format!("{name}: what is measured is in its queue between s2 and s3"),
        passed: least > 0,
        found: format!("at least {least} packets of a run"),
    }
}

fn ratio(rows: &[Row], name: &str, (measure, at): (Measure, u32), what: String, max: f64) -> Check {
    let of = |cell| median(rows, (measure, at, cell), name);
    let what = format!("{what}: with QoS within {max} times idle");
    // A transfer that failed has no time, and is no short one.
    let failed = figure(rows, (measure, at, Cell::Qos), name).map_or(0, |f| f.lost);
    match (of(Cell::Idle), of(Cell::Qos)) {
        (Some(idle), Some(with)) => Check {
            what,
            passed: with <= idle * max && (measure.is_icmp() || failed == 0),
            found: format!(
                "{with:.3} against {idle:.3}, {:.2} times{}",
                with / idle,
                match failed {
                    0 => String::new(),
                    _ if measure.is_icmp() => format!(", {failed} lost"),
                    _ => format!(", {failed} failed"),
                }
            ),
        },
        _ => Check {
            what,
            passed: false,
            found: "not measured".to_owned(),
        },
    }
}

fn loss(rows: &[Row], name: &str, at: u32, what: String, max: f64) -> Check {
    let with = figure(rows, (Measure::Udp, at, Cell::Qos), name);
    let with = with.filter(|figure| figure.of.count > 0);
    Check {
        what: format!("{what}: with QoS under {max}"),
        passed: with.is_some_and(|figure| figure.of.mean < max),
        found: with.map_or("not measured".to_owned(), |figure| {
            format!(
                "{:.3} ({:.3} to {:.3})",
                figure.of.mean, figure.of.min, figure.of.max
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::paper::settings::tests::whole;

    fn samples(change: impl Fn(&mut Sample)) -> Vec<Sample> {
        let settings = whole();
        let mut samples = Vec::new();
        for (rank, candidate) in settings.controllers.iter().enumerate() {
            for measure in Measure::ALL {
                for at in measure.places(&settings) {
                    for (cell, value) in Cell::ALL.into_iter().zip([10.0, 40.0, 11.0]) {
                        for round in 0..3 {
                            // Each controller is slower than the one before, by less than a
                            // run differs from the next.
                            let value = value + f64::from(round) + 0.5 * rank as f64;
                            let is_udp = measure == Measure::Udp;
                            samples.push(Sample {
                                controller: candidate.name.clone(),
                                round,
                                cell,
                                measure,
                                at,
                                value: Some(if is_udp { 0.1 } else { value }),
                                lost: 0,
                            });
                        }
                    }
                }
            }
        }
        samples.iter_mut().for_each(change);
        samples
    }

    fn failed(change: impl Fn(&mut Sample)) -> Vec<String> {
        let settings = whole();
        let rows = rows(&settings, &samples(change));
        let checks = checks(&settings, &rows);
        assert_eq!(checks.len(), 3 + 3 + 6 + 6);
        let failed = checks.into_iter().filter(|check| !check.passed);
        failed.map(|check| check.what).collect()
    }

    #[test]
    fn each_claim_fails_by_itself() {
        assert_eq!(failed(|_| ()), [""; 0]);
        let of = |s: &Sample, measure, at| {
            (s.measure, s.at, s.cell) == (measure, at, Cell::Qos) && s.controller == OURS
        };
        for (measure, at, value, word) in [
            (Measure::First, 3, 17.0, "first packet (ms), 3 hops"),
            (Measure::Later, 1, 17.0, "round trip (ms), 1 hop"),
            (Measure::Tcp, 100, 14.0, "TCP transfer (ms), 100 MB"),
            (Measure::Udp, 750, 1.0, "UDP loss (%), 750 MB"),
        ] {
            let failed = failed(|s| {
                if of(s, measure, at) {
                    s.value = Some(value);
                }
            });
            assert!(failed.len() == 1 && failed[0].contains(word), "{failed:?}");
        }
        let broken = failed(|s| {
            if of(s, Measure::Tcp, 500) && s.round == 1 {
                (s.value, s.lost) = (None, 1);
            }
        });
        assert_eq!(broken.len(), 1, "a transfer failed: {broken:?}");
        let others = failed(|s| {
            if s.controller != OURS {
                s.value = Some(1e6);
            }
        });
        assert_eq!(others, [""; 0], "what others do is not claimed");
    }

    #[test]
    fn auster_is_first_or_within_the_spread_of_the_first_or_behind() {
        let settings = whole();
        let standing = |ours: f64| {
            let samples = samples(|s| {
                if s.controller == OURS {
                    s.value = Some(ours);
                }
            });
            let rows = rows(&settings, &samples);
            let row = rows
                .iter()
                .find(|r| r.measure == Measure::Tcp && r.cell == Cell::Idle);
            let row = row.unwrap();
            (row.auster, row.first.clone().unwrap())
        };
        let other = settings.controllers[1].name.clone();
        // The second has 10.5, 11.5 and 12.5.
        assert_eq!(standing(11.5), (Standing::First, OURS.to_owned()));
        assert_eq!(standing(12.5), (Standing::WithinSpread, other.clone()));
        assert_eq!(standing(12.6), (Standing::Behind, other));
    }

    #[test]
    fn what_qos_saves_is_beside_what_the_paper_says() {
        let settings = whole();
        let rows = rows(&settings, &samples(|_| ()));
        let reductions = reductions(&settings, &rows);
        let first = &reductions[0];
        assert_eq!((first.size_mb, first.paper_percent), (100, Some(68.0)));
        let right = 100.0 * (1.0 - 12.0 / 41.0);
        assert!((first.percent - right).abs() < 1e-9, "{first:?}");
    }
}
