//! The published equations: the table, the largest savings, and Fig. 2.

use serde::Serialize;
use sim::overhead::paper::{BurstLaw, Overhead, Point};

use super::scenario::PaperEntry;
use cli::failure::Failure;
use cli::table::Columns;
use report::output::Results;
use report::plot::{Plot, Series};

/// The saving that the paper gives for its testbed, for two agents.
const PUBLISHED_SAVING_PERCENT: f64 = 82.0;
/// Points of the search for the largest savings, and of the x axis of Fig. 2: these digits times
/// powers of ten.
const MEAN_DIGITS: &[i32] = &[1, 2, 4, 5];
const MEAN_DECADES: std::ops::Range<i32> = -3..4;
const PLOT_MS_DIGITS: &[i32] = &[1, 2, 5];
const PLOT_MS_DECADES: std::ops::Range<i32> = -1..4;

/// Columns with the figures of a protocol.
const TCP: &str = "TCP packets: KB + ACK KB";
const QUIC: &str = "QUIC packets: KB + ACK KB";

#[derive(Serialize)]
pub struct Figures {
    rows: Vec<Row>,
    largest: Vec<Largest>,
    at_once: Vec<AtOnce>,
}

#[derive(Serialize)]
struct Row {
    law: &'static str,
    rate_per_s: f64,
    agents: u32,
    buffering_ms: f64,
    #[serde(flatten)]
    figures: Pair,
}

/// Extremes over all values of lambda T_b.
#[derive(Serialize)]
struct Largest {
    law: &'static str,
    agents: u32,
    saving_percent: f64,
    /// Messages of an agent in the buffering time.
    at: f64,
}

/// Eqs. 1 and 2.
#[derive(Serialize)]
struct AtOnce {
    agents: u32,
    #[serde(flatten)]
    figures: Pair,
}

#[derive(Clone, Copy, Serialize)]
struct Pair {
    tcp_packets: f64,
    tcp_bytes: f64,
    tcp_ack_bytes: f64,
    quic_packets: f64,
    quic_bytes: f64,
    quic_ack_bytes: f64,
    saving_percent: f64,
}

impl From<Point> for Pair {
    fn from(point: Point) -> Pair {
        let Point { tcp, quic } = point;
        Pair {
            tcp_packets: tcp.packets,
            tcp_bytes: tcp.data_bytes,
            tcp_ack_bytes: tcp.ack_bytes,
            quic_packets: quic.packets,
            quic_bytes: quic.data_bytes,
            quic_ack_bytes: quic.ack_bytes,
            saving_percent: 100.0 * point.saving(),
        }
    }
}

impl Figures {
    pub fn of(entry: &PaperEntry) -> Figures {
        let mut rows = Vec::new();
        for &rate_per_s in &entry.rates_per_s {
            for &agents in &entry.agents {
                for &buffering_ms in &entry.buffering_ms {
                    let case = entry.case(rate_per_s, agents, buffering_ms);
                    rows.extend(BurstLaw::ALL.map(|law| Row {
                        law: law.name(),
                        rate_per_s,
                        agents,
                        buffering_ms,
                        figures: case.point(law).into(),
                    }));
                }
            }
        }
        let largest = entry
            .agents
            .iter()
            .flat_map(|&agents| BurstLaw::ALL.map(|law| Largest::of(entry, law, agents)));
        let at_once = entry.agents.iter().map(|&agents| AtOnce {
            agents,
            figures: entry.case(1.0, agents, 0.0).at_once().into(),
        });
        Figures {
            rows,
            largest: largest.collect(),
            at_once: at_once.collect(),
        }
    }

    pub fn text(&self, entry: &PaperEntry) -> String {
        let laws = BurstLaw::ALL.len();
        let rows: Vec<&[Row]> = self.rows.chunks(laws).collect();
        let table = Columns::of(&rows)
            .text("lambda", |row| row[0].rate_per_s)
            .text("A", |row| row[0].agents)
            .text("T_b ms", |row| row[0].buffering_ms)
            .text(TCP, |row| row[0].figures.tcp())
            .text(QUIC, |row| row[0].figures.quic())
            .number("saving %", 1, |row| row[0].figures.saving_percent)
            .number("by slots %", 1, |row| row[1].figures.saving_percent)
            .number("steady %", 1, |row| row[2].figures.saving_percent)
            .table();
        let mut text = format!(
            "The paper's equations (4 and 5): {} bytes, {} messages of each agent, headers of its \
             Table 1\n{table}",
            entry.message_bytes, entry.messages_per_agent
        );
        text += "\nAll messages at once (1 and 2)\n";
        text += &Columns::of(&self.at_once)
            .text("A", |at| at.agents)
            .text(TCP, |at| at.figures.tcp())
            .text(QUIC, |at| at.figures.quic())
            .number("saving %", 1, |at| at.figures.saving_percent)
            .table();
        text +=
            "\nThe largest saving, %, and the messages in T_b that it is at, by law of bursts\n";
        let of = |l: &Largest| format!("{:.1} at {}", l.saving_percent, l.at);
        let rows: Vec<&[Largest]> = self.largest.chunks(laws).collect();
        text += &Columns::of(&rows)
            .text("A", |row| row[0].agents)
            .text("window", |row| of(&row[0]))
            .text("slots", |row| of(&row[1]))
            .text("steady", |row| of(&row[2]))
            .table();
        let most = self.largest.iter().filter(|l| l.agents == 2);
        let most = most.map(|l| l.saving_percent).fold(0.0, f64::max);
        if most > 0.0 {
            text += &format!(
                "With two agents the paper measures {PUBLISHED_SAVING_PERCENT} %; its equations \
                 give {most:.1} % at most.\n"
            );
        }
        text + "\n"
    }

    /// Plots Fig. 2: transmission and acknowledgements over the buffering time.
    pub fn plot(&self, entry: &PaperEntry, kept: &Results) -> Result<(), Failure> {
        for &rate in &entry.rates_per_s {
            for &agents in &entry.agents {
                for (name, what, bytes) in PANELS {
                    let plot = panel(entry, rate, agents, what, bytes);
                    kept.plot(
                        &format!("fig2-{name}-{rate}per-s-{agents}agents"),
                        &plot.lines(),
                    )?;
                }
            }
        }
        Ok(())
    }
}

type Panel = (&'static str, &'static str, fn(&Overhead) -> f64);
const PANELS: [Panel; 2] = [
    ("transmission", "Transmission overhead", |o| o.data_bytes),
    ("acknowledgment", "Acknowledgment overhead", |o| o.ack_bytes),
];

fn panel(
    entry: &PaperEntry,
    rate: f64,
    agents: u32,
    what: &str,
    bytes: fn(&Overhead) -> f64,
) -> Plot {
    let line = |name: &str, law: BurstLaw, of: fn(&Point) -> &Overhead| {
        let kb = |ms| bytes(of(&entry.case(rate, agents, ms).point(law))) / 1e3;
        let points = steps(PLOT_MS_DIGITS, PLOT_MS_DECADES).map(|ms| (ms, kb(ms)));
        Series::new(format!("{name}, {}", law.name()), points.collect())
    };
    let both = |law| [line("TCP", law, |p| &p.tcp), line("QUIC", law, |p| &p.quic)];
    let bytes = entry.message_bytes;
    let title = format!("Fig. 2, {what}: lambda = {rate}/s, |A| = {agents}, m = {bytes} B");
    let labels = ["buffering delay T_b (ms)", "overhead (KB)"];
    let lines = BurstLaw::ALL.into_iter().flat_map(both).collect();
    Plot::new(title, labels, lines).log_x()
}

impl Largest {
    fn of(entry: &PaperEntry, law: BurstLaw, agents: u32) -> Largest {
        let at = |mean: f64| (entry.case(mean, agents, 1000.0).point(law).saving(), mean);
        let all = steps(MEAN_DIGITS, MEAN_DECADES).map(at);
        let (saving, at) = all.fold((f64::MIN, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        Largest {
            law: law.name(),
            agents,
            saving_percent: 100.0 * saving,
            at,
        }
    }
}

impl Pair {
    fn tcp(&self) -> String {
        words(self.tcp_packets, self.tcp_bytes, self.tcp_ack_bytes)
    }

    fn quic(&self) -> String {
        words(self.quic_packets, self.quic_bytes, self.quic_ack_bytes)
    }
}

/// Formats figures rounded half up, as in the table of the specification.
fn words(packets: f64, bytes: f64, ack_bytes: f64) -> String {
    let kb = |bytes: f64| (bytes / 1e3).round();
    format!("{}: {} + {}", packets.round(), kb(bytes), kb(ack_bytes))
}

/// Returns the steps, parsed from decimal text, so that 0.2 is the number that prints as 0.2.
fn steps(digits: &[i32], decades: std::ops::Range<i32>) -> impl Iterator<Item = f64> {
    let number = |(digit, decade)| format!("{digit}e{decade}").parse().ok();
    decades
        .flat_map(|decade| digits.iter().map(move |digit| (*digit, decade)))
        .filter_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BUILT_IN;
    use crate::model::scenario::Scenario;

    fn figures() -> (Figures, PaperEntry) {
        let entry = Scenario::parse(BUILT_IN).unwrap().paper;
        (Figures::of(&entry), entry)
    }

    #[test]
    fn the_table_is_that_of_the_specification() {
        let (figures, entry) = figures();
        let text = figures.text(&entry);
        let has = |words: &[&str]| {
            let is_row = |line: &str| {
                let mut rest = line;
                words.iter().all(|word| match rest.split_once(word) {
                    Some((_, after)) => {
                        rest = after;
                        true
                    }
                    None => false,
                })
            };
            assert!(text.lines().any(is_row), "{words:?}:\n{text}");
        };
        has(&[
            "10",
            "2",
            "100",
            "6340: 431 + 323",
            "5493: 330 + 243",
            "24.1",
        ]);
        has(&[
            "100",
            "10",
            "1",
            "45667: 3105 + 2329",
            "31698: 1902 + 1403",
            "39.2",
        ]);
        has(&["2", "25.6 at 2", "28.0 at 2", "56.2 at 1"]);
        has(&["give 56.2 % at most"]);
    }

    #[test]
    fn fig_2_has_both_protocols_by_every_law_and_they_meet() {
        let (_, entry) = figures();
        let plot = panel(&entry, 1000.0, 10, PANELS[0].1, PANELS[0].2);
        assert_eq!(plot.series.len(), 6);
        let at = |name: &str, n: usize| {
            let series = plot.series.iter().find(|s| s.name == name).unwrap();
            series.points[n].1
        };
        let last = plot.series[0].points.len() - 1;
        // QUIC falls first, and both end alike.
        assert!(at("QUIC, window", 3) < 0.7 * at("TCP, window", 3));
        assert!((at("QUIC, window", last) / at("TCP, window", last) - 1.0).abs() < 0.15);
    }
}
