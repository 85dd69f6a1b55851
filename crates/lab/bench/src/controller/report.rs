//! The results of the rounds: the document, the table, the plots, and the sentences on what the
//! table does not show.

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::Workload;
use super::attack::{self, AttackDocument};
use super::conduct::{Run, Setup};
use super::links::Carried;
use super::plan::Mode;
use super::rounds::{Failed, Rounds, Turns};
use super::settings::{Settings, Subject};
use super::tally::Tally;
use crate::histogram::Histogram;
use cli::failure::Failure;
use cli::table::Columns;
use measure::stats::{Summary, median};
use report::output::{Measurement, Results};
use report::plot::{Bars, Plot, Series};

const US_PER_NS: f64 = 1e-3;
/// The share of a core above which a thread is saturated.
const BUSY: f64 = 0.9;
/// The busy share of all cores at which generator and controller keep each other from running.
const FULL: f64 = 0.95;
/// Below this, a thread's late wake-up is not worth reporting.
const LATE_MS: f64 = 25.0;

#[derive(Serialize)]
struct SubjectDocument {
    name: String,
    transport: String,
    /// The method of a controller that was already running.
    method: Option<String>,
    /// The command of a controller that was started.
    command: Option<String>,
    /// Answers a second over the rounds.
    answered_per_s: Summary,
    /// Delays of all measured packet-ins of all rounds.
    latency_us: Summary,
    echo_us: Summary,
    /// The median over rounds of this controller's figure divided by the first controller's in the
    /// same round.
    ratio_to_first: Ratio,
    tally: Tally,
    rounds: Vec<RoundDocument>,
    /// Rounds in which the controller did not start, did not answer, or died. The figures above
    /// leave them out.
    failures: Vec<FailureDocument>,
}

#[derive(Serialize)]
struct FailureDocument {
    round: u32,
    problem: String,
    /// The time of its death, from the start of the measuring.
    died_after_s: Option<f64>,
    /// The figures until its death.
    measured: Option<RoundDocument>,
}

#[derive(Serialize)]
struct Ratio {
    answered_per_s: f64,
    latency_p50: f64,
    latency_p99: f64,
}

#[derive(Serialize)]
struct RoundDocument {
    round: u32,
    answered_per_s: f64,
    elapsed_s: f64,
    tally: Tally,
    latency_us: Summary,
    echo_us: Summary,
    /// Open loop: how much later than intended packet-ins were sent.
    send_lag_us: Summary,
    storm: Option<StormDocument>,
    attack: Option<AttackDocument>,
    links: Option<Carried>,
    setup: Setup,
    generator: GeneratorDocument,
    target: Option<TargetDocument>,
    bottleneck: Bottleneck,
    problem: Option<String>,
}

/// The half before the storm; the round's `latency_us` is of the half during the storm.
#[derive(Serialize)]
struct StormDocument {
    quiet_latency_us: Summary,
    packet_ins: u64,
    /// Packet-ins that the connection did not take.
    unsent: u64,
}

#[derive(Serialize)]
struct GeneratorDocument {
    /// Processor time in cores.
    cpu: f64,
    /// The busiest thread's share of a core.
    busiest_thread: f64,
    cpu_ns_per_answer: f64,
}

#[derive(Serialize)]
struct TargetDocument {
    cpu: f64,
    cpu_ns_per_answer: f64,
    memory_peak_mib: f64,
}

/// The limit on the figure, as far as processor time shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// A generator thread had no time left and the controller had.
    Generator,
    /// Both together kept all cores busy.
    Machine,
    /// The controller, or something between the two.
    Other,
}

impl Bottleneck {
    /// Finds the bottleneck. `target_cpu` is in cores, if it is known.
    pub fn of(
        busiest_thread: f64,
        generator_cpu: f64,
        target_cpu: Option<f64>,
        cores: f64,
    ) -> Self {
        let all = generator_cpu + target_cpu.unwrap_or(0.0);
        match target_cpu {
            Some(target) if busiest_thread > BUSY && target < BUSY => Bottleneck::Generator,
            None if busiest_thread > BUSY => Bottleneck::Generator,
            _ if all > FULL * cores => Bottleneck::Machine,
            _ => Bottleneck::Other,
        }
    }

    /// Notes the runs whose figures do not depend on the controller alone.
    pub fn notes(found: impl Iterator<Item = Self> + Clone, who: &str, runs: &str) -> Vec<String> {
        let all = found.clone().count();
        let count = |which| {
            found
                .clone()
                .filter(|bottleneck| *bottleneck == which)
                .count()
        };
        let mut notes = Vec::new();
        let generator = count(Bottleneck::Generator);
        if generator > 0 {
            notes.push(format!(
                "the {who} was the bottleneck in {generator} of {all} {runs}: the figure is a \
                 lower bound"
            ));
        }
        let machine = count(Bottleneck::Machine);
        if machine > 0 {
            notes.push(format!(
                "{who} and controller together used all cores in {machine} of {all} {runs}"
            ));
        }
        notes
    }
}

pub fn conclude(
    measurement: &Measurement<'_>,
    settings: &Settings,
    rounds: &Rounds<Run>,
) -> Result<(), Failure> {
    let subjects = documents(settings, rounds);
    let text = text(settings, &subjects);
    plots(&measurement.results, settings, rounds, &subjects)?;
    measurement.conclude(
        "controller",
        settings_document(settings),
        (subjects, rounds.interrupted),
        &text,
    )?;
    rounds.verdict(&settings.subjects)
}

fn settings_document(settings: &Settings) -> Json {
    let plan = &settings.plan;
    json!({
        "mode": plan.mode.name(),
        "rate_per_s": match plan.mode {
            Mode::Open { rate } => Some(rate),
            _ => None,
        },
        "switches": plan.switch_count,
        "macs_per_switch": plan.source_count,
        "ports_per_switch": plan.port_count,
        "window": match plan.mode {
            Mode::Open { .. } => None,
            _ => Some(plan.profile.window),
        },
        "openflow": plan.profile.version.to_string(),
        "buffered": plan.profile.is_buffered,
        "answer": plan.profile.wanted,
        "announce": plan.profile.announce,
        "rounds": settings.rounds,
        "duration_s": plan.measured().as_secs_f64(),
        "warmup_s": plan.warmup.as_secs_f64(),
        "timeout_ms": plan.profile.timeout_ns as f64 / 1e6,
        "threads": plan.thread_count,
        "workload": plan.workload,
        "storm_rate_per_s": (plan.workload == Workload::Storm).then_some(plan.storm_rate),
        "attack": (plan.workload == Workload::Attack).then_some(plan.attack),
    })
}

fn documents(settings: &Settings, rounds: &Rounds<Run>) -> Vec<SubjectDocument> {
    let first = round_documents(&rounds.turns[0]);
    let each = settings.subjects.iter().zip(&rounds.turns);
    each.map(|(subject, turns)| subject_document(subject, turns, &first))
        .collect()
}

fn round_documents(turns: &Turns<Run>) -> Vec<RoundDocument> {
    let each = turns.runs.iter();
    each.map(|(round, run)| round_document(*round, run))
        .collect()
}

fn failure_document(failed: &Failed<Run>) -> FailureDocument {
    let run = failed.run.as_ref();
    FailureDocument {
        round: failed.round,
        problem: failed.failure.message().to_string(),
        died_after_s: run.and_then(|run| Some(run.died_after?.as_secs_f64())),
        measured: run.map(|run| round_document(failed.round, run)),
    }
}

fn subject_document(
    subject: &Subject,
    turns: &Turns<Run>,
    first: &[RoundDocument],
) -> SubjectDocument {
    let runs = || turns.runs.iter().map(|(_, run)| run);
    let rounds = round_documents(turns);
    let ratio = |of: fn(&RoundDocument) -> f64| {
        let ratios = rounds.iter().filter_map(|mine| {
            let first = first.iter().find(|first| first.round == mine.round)?;
            (of(first) > 0.0).then(|| of(mine) / of(first))
        });
        median(ratios)
    };
    let mut tally = Tally::default();
    runs().for_each(|run| tally.add(&run.measured.tally));
    SubjectDocument {
        name: subject.name.clone(),
        transport: subject.transport(),
        method: subject.method(),
        command: subject.command(),
        answered_per_s: Summary::of(rounds.iter().map(|round| round.answered_per_s)),
        latency_us: Summary::of_histogram(&answers(turns), US_PER_NS),
        echo_us: Summary::of_histogram(
            &merged(runs().map(|run| &run.measured.delays.echoes)),
            US_PER_NS,
        ),
        ratio_to_first: Ratio {
            answered_per_s: ratio(|round| round.answered_per_s),
            latency_p50: ratio(|round| round.latency_us.p50),
            latency_p99: ratio(|round| round.latency_us.p99),
        },
        tally,
        rounds,
        failures: turns.failed.iter().map(failure_document).collect(),
    }
}

fn answers(turns: &Turns<Run>) -> Histogram {
    let each = turns.runs.iter();
    merged(each.map(|(_, run)| &run.measured.delays.answers))
}

fn merged<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Histogram {
    let mut sum = Histogram::default();
    histograms.for_each(|histogram| sum.merge(histogram));
    sum
}

fn round_document(round: u32, run: &Run) -> RoundDocument {
    let measured = &run.measured;
    let elapsed_s = measured.elapsed.as_secs_f64().max(1e-9);
    let per_answer = |cpu_s: f64| cpu_s * 1e9 / (measured.answered.max(1) as f64);
    let generator_s = measured.cpu_total().as_secs_f64();
    let target = run.target.map(|usage| TargetDocument {
        cpu: usage.cpu.as_secs_f64() / elapsed_s,
        cpu_ns_per_answer: per_answer(usage.cpu.as_secs_f64()),
        memory_peak_mib: usage.memory_peak_mib,
    });
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    RoundDocument {
        round,
        answered_per_s: measured.rate(),
        elapsed_s,
        tally: measured.tally,
        latency_us: Summary::of_histogram(&measured.delays.answers, US_PER_NS),
        echo_us: Summary::of_histogram(&measured.delays.echoes, US_PER_NS),
        send_lag_us: Summary::of_histogram(&measured.lag, US_PER_NS),
        storm: run.is_storm.then(|| StormDocument {
            quiet_latency_us: Summary::of_histogram(&measured.quiet, US_PER_NS),
            packet_ins: measured.strays,
            unsent: measured.strays_unsent,
        }),
        attack: measured.attacked.as_ref().map(|attacked| {
            let timeline = measured.delays.timeline.as_deref().unwrap_or_default();
            let growth = run.target.map(|usage| usage.memory_growth_mib);
            AttackDocument::new(attacked, timeline, elapsed_s, growth)
        }),
        links: run.links,
        setup: run.setup,
        bottleneck: Bottleneck::of(
            measured.busiest(),
            generator_s / elapsed_s,
            target.as_ref().map(|target| target.cpu),
            cores,
        ),
        generator: GeneratorDocument {
            cpu: generator_s / elapsed_s,
            busiest_thread: measured.busiest(),
            cpu_ns_per_answer: per_answer(generator_s),
        },
        target,
        problem: run.problem.clone(),
    }
}

fn text(settings: &Settings, subjects: &[SubjectDocument]) -> String {
    let mut text = Columns::of(subjects)
        .text("controller", |subject| &subject.name)
        .maybe("answered/s", 0, |s| s.measured(s.answered_per_s.mean))
        .maybe("± 95 %", 0, |subject| subject.answered_per_s.interval())
        .maybe("of first", 3, |s| {
            Some(s.ratio_to_first.answered_per_s).filter(|ratio| *ratio > 0.0)
        })
        .maybe("p50 µs", 1, |s| s.measured(s.latency_us.p50))
        .maybe("p99 µs", 1, |s| s.measured(s.latency_us.p99))
        .maybe("p99.9 µs", 1, |s| s.measured(s.latency_us.p999))
        .maybe("echo p99 µs", 1, |s| s.measured(s.echo_us.p99))
        .maybe("generator cores", 2, |subject| {
            subject.mean(|round| Some(round.generator.cpu))
        })
        .maybe("its cores", 2, |subject| {
            subject.mean(|round| Some(round.target.as_ref()?.cpu))
        })
        .maybe("its peak MiB", 1, SubjectDocument::memory_peak_mib)
        .text("rounds", SubjectDocument::rounds)
        .table()
        + "\n"
        + &attack_table(subjects);
    for subject in subjects {
        for failed in &subject.failures {
            let (round, problem) = (failed.round, &failed.problem);
            text += &format!("{}: FAILED in round {round}: {problem}\n", subject.name);
        }
        for note in notes(settings, subject) {
            text += &format!("{}: {note}\n", subject.name);
        }
    }
    text
}

fn attack_table(subjects: &[SubjectDocument]) -> String {
    let rows = subjects.iter().flat_map(|subject| {
        let rounds = subject.rounds.iter();
        rounds.filter_map(|r| Some((subject.name.as_str(), r.round, r.attack.as_ref()?)))
    });
    let rows: Vec<_> = rows.collect();
    match rows.is_empty() {
        true => String::new(),
        false => attack::table(&rows) + "\n",
    }
}

impl SubjectDocument {
    /// Returns the figure, unless the controller failed in all rounds.
    fn measured(&self, figure: f64) -> Option<f64> {
        (!self.rounds.is_empty()).then_some(figure)
    }

    fn rounds(&self) -> String {
        match (self.rounds.len(), self.failures.len()) {
            (measured, 0) => measured.to_string(),
            (measured, failed) => format!("{measured}, {failed} failed"),
        }
    }

    fn mean(&self, of: impl Fn(&RoundDocument) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.rounds.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn memory_peak_mib(&self) -> Option<f64> {
        let targets = self.rounds.iter().filter_map(|round| round.target.as_ref());
        targets
            .map(|target| target.memory_peak_mib)
            .reduce(f64::max)
    }
}

fn notes(settings: &Settings, subject: &SubjectDocument) -> Vec<String> {
    let rounds = &subject.rounds;
    if rounds.is_empty() {
        return Vec::new();
    }
    let found = rounds.iter().map(|round| round.bottleneck);
    let mut notes = Bottleneck::notes(found, "generator", "rounds");
    let switches = u32::from(settings.plan.switch_count);
    if settings.plan.workload == Workload::Churn {
        notes.push(
            "answered: switches that were asked for features and had an echo answered".to_string(),
        );
        return notes;
    }
    for storm in rounds.iter().filter_map(|round| round.storm.as_ref()) {
        notes.push(format!(
            "before the storm p50 {:.1} µs, p99 {:.1} µs; it was {} packet-ins on one port, and {} \
             that the connection did not take",
            storm.quiet_latency_us.p50, storm.quiet_latency_us.p99, storm.packet_ins, storm.unsent
        ));
    }
    notes.extend(late(rounds.iter().map(|round| &round.send_lag_us)));
    let dropped: u64 = (rounds.iter().filter_map(|round| round.links))
        .map(|links| links.dropped)
        .sum();
    if dropped > 0 {
        notes.push(format!(
            "the bench dropped {dropped} frames between switches for want of room"
        ));
    }
    if let Some(round) = rounds.iter().find(|r| r.setup.switches_ready < switches) {
        notes.push(format!(
            "{} of {switches} switches got no packet to its destination but by flooding",
            switches - round.setup.switches_ready
        ));
    }
    if let Some(round) = rounds.iter().find(|r| r.setup.switches_lost > 0) {
        let lost = round.setup.switches_lost;
        let why = round.problem.as_deref().unwrap_or("no reason given");
        notes.push(format!(
            "{lost} of {switches} switches lost their connection: {why}"
        ));
    }
    if let Some(round) = rounds.iter().find(|r| !r.setup.learned) {
        notes.push(format!(
            "not every host was answered once within {:.1} s",
            round.setup.learn_s
        ));
    }
    let faults = subject.tally.faults();
    if !faults.is_empty() {
        notes.push(format!("of {} packet-ins: {faults}", subject.tally.sent));
    }
    let each = |of: fn(&Setup) -> f64| median(rounds.iter().map(|round| of(&round.setup)));
    let learned = match settings.plan.workload {
        Workload::ArpIp => "nothing learned ahead".to_string(),
        _ => format!(
            "{} hosts each learned in {:.3} s",
            settings.plan.source_count,
            each(|setup| setup.learn_s)
        ),
    };
    notes.push(format!(
        "{switches} switches asked for features after {:.3} s, destinations known after {:.3} s, \
         {learned}",
        each(|setup| setup.admitted_s),
        each(|setup| setup.ready_s),
    ));
    notes
}

/// Reports late packet-ins, if some were later than a normal wake-up.
fn late<'a>(lags_us: impl Iterator<Item = &'a Summary>) -> Option<String> {
    let worst = lags_us.max_by(|a, b| a.max.total_cmp(&b.max))?;
    let (max_ms, p99_ms) = (worst.max / 1e3, worst.p99 / 1e3);
    (max_ms > LATE_MS).then(|| {
        format!(
            "the bench sent packet-ins up to {max_ms:.0} ms late (99 % within {p99_ms:.1} ms), for \
             the machine was busy"
        )
    })
}

fn plots(
    results: &Results,
    settings: &Settings,
    rounds: &Rounds<Run>,
    subjects: &[SubjectDocument],
) -> Result<(), Failure> {
    if !results.are_kept() {
        return Ok(());
    }
    let measured = || subjects.iter().filter(|s| !s.rounds.is_empty());
    let plan = &settings.plan;
    let title = format!(
        "{}, {} switches, {} hosts each",
        plan.mode.name(),
        plan.switch_count,
        plan.source_count
    );
    let rates = measured().map(|s| s.answered_per_s.mean).collect();
    let errors = measured().map(|s| s.answered_per_s.ci95).collect();
    let bars = Bars {
        title: title.clone(),
        y_label: "packet-ins answered (1/s)".to_string(),
        groups: measured().map(|s| s.name.clone()).collect(),
        parts: vec![("answered".to_string(), rates)],
        stacked: false,
        error: Some(vec![errors]),
    };
    results.plot("throughput", &bars.svg())?;
    let mut series = Vec::new();
    let each = subjects.iter().zip(&rounds.turns);
    for (at, (subject, turns)) in (1..).zip(each) {
        if turns.runs.is_empty() {
            continue;
        }
        let histogram = answers(turns);
        results.histogram(&format!("latency-{at}"), &histogram, US_PER_NS)?;
        series.push(Series::new(&subject.name, tail_points(&histogram)));
    }
    let labels = [
        "answered within (µs)",
        "packet-ins that took longer (part of all)",
    ];
    let plot = Plot::new(title, labels, series).log_x().log_y();
    results.plot("latency", &plot.lines())?;
    if plan.workload == Workload::Attack {
        let first = |subject: &SubjectDocument| {
            let attack = subject.rounds.first()?.attack.as_ref()?;
            Some(attack.series(&subject.name))
        };
        let title = "One more switch attacks, from 0 s on for a third of the time";
        let labels = [
            "since the attack began (s)",
            "p99 of each 0.1 s at the others (µs)",
        ];
        let lines = subjects.iter().filter_map(first).collect();
        results.plot("attack", &Plot::new(title, labels, lines).log_y().lines())?;
    }
    results.write("rounds.csv", rounds_csv(subjects).as_bytes())
}

/// Returns delays in µs against the share of all that took longer.
pub fn tail_points(histogram: &Histogram) -> Vec<(f64, f64)> {
    let all = histogram.len().max(1) as f64;
    let mut seen = 0;
    let recorded = histogram.iter_recorded().map(|step| {
        seen += step.count_since_last_iteration();
        let us = step.value_iterated_to() as f64 * US_PER_NS;
        (us, 1.0 - seen as f64 / all)
    });
    recorded.filter(|(_, longer)| *longer > 0.0).collect()
}

/// Formats a line per round. A failed round has the figures until the failure, if there are any.
fn rounds_csv(subjects: &[SubjectDocument]) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut rows: Vec<(&str, u32, Option<&RoundDocument>, &str)> = Vec::new();
    for subject in subjects {
        let name = subject.name.as_str();
        let rounds = subject.rounds.iter();
        rows.extend(rounds.map(|round| (name, round.round, Some(round), "")));
        let failures = subject.failures.iter();
        rows.extend(failures.map(|f| (name, f.round, f.measured.as_ref(), f.problem.as_str())));
    }
    let count = |of: fn(&Tally) -> u64| {
        move |row: &(&str, u32, Option<&RoundDocument>, &str)| {
            row.2
                .map_or(String::new(), |round| of(&round.tally).to_string())
        }
    };
    Columns::of(&rows)
        .text("controller", |(name, ..)| quoted(name))
        .text("round", |(_, number, ..)| *number)
        .maybe("answered_per_s", 1, |row| Some(row.2?.answered_per_s))
        .maybe("p50_us", 3, |row| Some(row.2?.latency_us.p50))
        .maybe("p99_us", 3, |row| Some(row.2?.latency_us.p99))
        .text("sent", count(|tally| tally.sent))
        .text("answered", count(|tally| tally.answered))
        .text("missing", count(|tally| tally.missing))
        .text("failed", |(.., problem)| quoted(problem))
        .csv()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_that_was_late_says_so() {
        let lags = [3.0, 40_000.0, 10_000.0].map(|us| Summary::of([1000.0, us]));
        let said = late(lags.iter()).unwrap();
        assert!(
            said.contains("up to 40 ms late (99 % within 40.0 ms)"),
            "{said}"
        );
        assert_eq!(late(lags[..1].iter()), None);
    }

    #[test]
    fn who_was_busy_is_the_bottleneck() {
        let of = Bottleneck::of;
        assert_eq!(of(0.95, 1.0, Some(0.5), 2.0), Bottleneck::Generator);
        assert_eq!(of(0.95, 1.0, None, 2.0), Bottleneck::Generator);
        assert_eq!(of(0.95, 1.0, Some(1.0), 2.0), Bottleneck::Machine);
        assert_eq!(of(0.3, 0.3, Some(0.6), 2.0), Bottleneck::Other);
    }
}
