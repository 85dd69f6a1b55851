//! The results of the runs: the document, the tables and the plots.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::events::EventFigures;
use super::load::Tally;
use super::recovery::Recovery;
use super::run::{Load, Measured, Setup};
use super::settings::{Settings, milliseconds};
use super::switch::Counts;
use crate::controller::report::{Bottleneck, tail_points};
use crate::controller::rounds::{Failed, Rounds};
use crate::histogram::Histogram;
use cli::failure::Failure;
use cli::table::Columns;
use measure::distinct;
use measure::stats::{Summary, median};
use report::output::{Measurement, Results};
use report::plot::{Plot, Series};

const MS_PER_NS: f64 = 1e-6;

#[derive(Serialize)]
struct SubjectDocument {
    name: String,
    /// The method of a controller that was already running.
    method: Option<String>,
    /// The command of a controller that was started.
    command: Option<String>,
    legs: Vec<LegDocument>,
    runs: Vec<RunDocument>,
    failures: Vec<FailureDocument>,
}

/// A round that ended the controller's turns.
#[derive(Serialize)]
struct FailureDocument {
    round: u32,
    problem: String,
}

/// Medians over the rounds.
#[derive(Serialize)]
struct LegDocument {
    name: String,
    offered_per_s: Option<f64>,
    delivered_per_s: f64,
    /// Delivered pairs a second, divided by those of the first leg in the same round.
    of_first: f64,
    lost_percent: f64,
    first_p50_ms: f64,
    first_p99_ms: f64,
    ready_p50_ms: f64,
    ready_p99_ms: f64,
    messages_per_pair: f64,
    echo_p99_ms: f64,
    cpu_us_per_pair: Option<f64>,
}

/// One run.
#[derive(Serialize)]
struct RunDocument {
    leg: String,
    topology: String,
    switches: usize,
    offered_per_s: Option<f64>,
    elapsed_s: f64,
    /// First packets a second that reached their host while the clock ran.
    delivered_per_s: f64,
    tally: Tally,
    first_ms: Summary,
    ready_ms: Summary,
    echo_ms: Summary,
    messages: Counts,
    /// Messages to switches per delivered pair, without echoes and LLDP.
    messages_per_pair: f64,
    packet_ins_per_pair: f64,
    entries_per_switch: Spread,
    groups_per_switch: Spread,
    controller: Option<ControllerDocument>,
    /// Processor time of the emulator, in cores.
    emulator_cores: f64,
    bottleneck: Bottleneck,
    /// Packets that went round in a loop.
    looped: u64,
    broadcasts: u64,
    broadcast_copies: u64,
    pairs_exhausted: bool,
    setup: Setup,
    switches_lost: u32,
    problem: Option<String>,
    events: Vec<EventFigures>,
    /// The return to the delays before an overload.
    recovery: Option<Recovery>,
}

#[derive(Serialize)]
struct Spread {
    mean: f64,
    max: usize,
}

#[derive(Serialize)]
struct ControllerDocument {
    cores: f64,
    cpu_us_per_pair: f64,
    /// Processor time in cores, by thread name.
    threads: BTreeMap<String, f64>,
    memory_peak_mib: f64,
}

pub fn conclude(
    measurement: &Measurement<'_>,
    settings: &Settings,
    rounds: &Rounds<Measured>,
) -> Result<(), Failure> {
    let each = settings.subjects.iter().zip(&rounds.turns);
    let failure = |failed: &Failed<Measured>| FailureDocument {
        round: failed.round,
        problem: failed.failure.message().to_string(),
    };
    let subjects: Vec<SubjectDocument> = each
        .map(|(subject, turns)| {
            let runs = turns.runs.iter();
            let runs: Vec<RunDocument> = runs.map(|(_, run)| run_document(run)).collect();
            SubjectDocument {
                name: subject.name.clone(),
                method: subject.method(),
                command: subject.command(),
                legs: legs(&runs),
                runs,
                failures: turns.failed.iter().map(failure).collect(),
            }
        })
        .collect();
    let text = text(settings, &subjects);
    plots(&measurement.results, settings, rounds)?;
    growth_plots(&measurement.results, settings, rounds)?;
    let document = settings_document(settings);
    measurement.conclude("fabric", document, (subjects, rounds.interrupted), &text)?;
    rounds.verdict(&settings.subjects)
}

fn settings_document(settings: &Settings) -> Json {
    let plan = &settings.plan;
    let (window, rate_per_s) = match settings.legs[0].load {
        Load::Window(window) => (Some(window), None),
        Load::Rate(rate) => (None, Some(rate)),
    };
    json!({
        "workload": plan.workload,
        "topologies": settings.topologies,
        "hosts_per_switch": plan.hosts,
        "host_ports": plan.host_ports,
        "pairs": plan.choice,
        "announce": plan.announce,
        "window": window,
        "rate_per_s": rate_per_s,
        "overload": settings.overload,
        "rounds": settings.rounds,
        "duration_s": plan.duration.as_secs_f64(),
        "warmup_s": plan.warmup.as_secs_f64(),
        "timeout_ms": milliseconds(plan.timeout),
        "seed": plan.seed,
    })
}

fn run_document(measured: &Measured) -> RunDocument {
    let record = &measured.record;
    let elapsed_s = measured.elapsed.as_secs_f64().max(1e-9);
    let delivered = record.delivered_meanwhile.max(1) as f64;
    let controller = measured.used.as_ref().map(|used| ControllerDocument {
        cores: used.cpu.as_secs_f64() / elapsed_s,
        cpu_us_per_pair: used.cpu.as_secs_f64() * 1e6 / delivered,
        threads: {
            let share = |(name, spent): (&String, &std::time::Duration)| {
                (name.clone(), spent.as_secs_f64() / elapsed_s)
            };
            used.threads.iter().map(share).collect()
        },
        memory_peak_mib: used.memory_peak_mib,
    });
    let emulator_cores = measured.emulator_cpu.as_secs_f64() / elapsed_s;
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let controller_cores = controller.as_ref().map(|c| c.cores);
    RunDocument {
        leg: measured.leg.name.clone(),
        topology: measured.leg.topology.clone(),
        switches: measured.entries.len(),
        offered_per_s: match measured.leg.load {
            Load::Rate(_) => Some(record.tally.sent as f64 / elapsed_s),
            Load::Window(_) => None,
        },
        elapsed_s,
        delivered_per_s: measured.delivered_per_s(),
        tally: record.tally,
        first_ms: Summary::of_histogram(&record.first, MS_PER_NS),
        ready_ms: Summary::of_histogram(&record.ready, MS_PER_NS),
        echo_ms: Summary::of_histogram(&record.echo, MS_PER_NS),
        messages: measured.counts,
        messages_per_pair: measured.counts.received() as f64 / delivered,
        packet_ins_per_pair: measured.counts.packet_ins as f64 / delivered,
        entries_per_switch: spread(&measured.entries),
        groups_per_switch: spread(&measured.groups),
        bottleneck: Bottleneck::of(emulator_cores, emulator_cores, controller_cores, cores),
        controller,
        emulator_cores,
        looped: measured.looped,
        broadcasts: measured.broadcasts,
        broadcast_copies: measured.broadcast_copies,
        pairs_exhausted: measured.pairs_exhausted,
        setup: measured.setup,
        switches_lost: measured.switches_lost,
        problem: measured.problem.clone(),
        events: measured.events.clone(),
        recovery: measured.recovery.clone(),
    }
}

fn spread(counts: &[usize]) -> Spread {
    let sum: usize = counts.iter().sum();
    Spread {
        mean: sum as f64 / counts.len().max(1) as f64,
        max: counts.iter().copied().max().unwrap_or(0),
    }
}

fn legs(runs: &[RunDocument]) -> Vec<LegDocument> {
    let names = distinct(runs.iter().map(|run| run.leg.as_str()));
    let of_leg = |name: &str| -> Vec<&RunDocument> {
        let runs = runs.iter();
        runs.filter(|run| run.leg == name).collect()
    };
    let first: Vec<f64> = names.first().map_or(Vec::new(), |name| {
        let runs = of_leg(name);
        runs.iter().map(|run| run.delivered_per_s).collect()
    });
    let leg = |name: &&str| {
        let runs = of_leg(name);
        let figure = |of: fn(&RunDocument) -> f64| median(runs.iter().map(|run| of(run)));
        let pairs = runs.iter().zip(&first);
        let pairs = pairs.filter(|(_, first)| **first > 0.0);
        LegDocument {
            name: (*name).to_owned(),
            offered_per_s: runs[0]
                .offered_per_s
                .map(|_| figure(|run| run.offered_per_s.unwrap_or(0.0))),
            delivered_per_s: figure(|run| run.delivered_per_s),
            of_first: median(pairs.map(|(run, first)| run.delivered_per_s / first)),
            lost_percent: figure(|run| {
                100.0 * run.tally.lost as f64 / run.tally.sent.max(1) as f64
            }),
            first_p50_ms: figure(|run| run.first_ms.p50),
            first_p99_ms: figure(|run| run.first_ms.p99),
            ready_p50_ms: figure(|run| run.ready_ms.p50),
            ready_p99_ms: figure(|run| run.ready_ms.p99),
            messages_per_pair: figure(|run| run.messages_per_pair),
            echo_p99_ms: figure(|run| run.echo_ms.p99),
            cpu_us_per_pair: runs[0]
                .controller
                .as_ref()
                .map(|_| figure(|run| run.controller.as_ref().map_or(0.0, |c| c.cpu_us_per_pair))),
        }
    };
    names.iter().map(leg).collect()
}

impl SubjectDocument {
    fn memory_peak_mib(&self, leg: &LegDocument) -> Option<f64> {
        let runs = self.runs.iter().filter(|run| run.leg == leg.name);
        let controllers = runs.filter_map(|run| run.controller.as_ref());
        controllers.map(|c| c.memory_peak_mib).reduce(f64::max)
    }
}

fn text(settings: &Settings, subjects: &[SubjectDocument]) -> String {
    let mut legs = Vec::new();
    for subject in subjects {
        legs.extend(subject.legs.iter().map(|leg| (subject, leg)));
    }
    let mut text = Columns::of(&legs)
        .text("controller", |(subject, _)| &subject.name)
        .text("run", |(_, leg)| &leg.name)
        .maybe("offered/s", 0, |(_, leg)| leg.offered_per_s)
        .number("delivered/s", 0, |(_, leg)| leg.delivered_per_s)
        .number("of first", 3, |(_, leg)| leg.of_first)
        .number("lost %", 2, |(_, leg)| leg.lost_percent)
        .number("first p50 ms", 2, |(_, leg)| leg.first_p50_ms)
        .number("p99", 1, |(_, leg)| leg.first_p99_ms)
        .number("ready p50 ms", 2, |(_, leg)| leg.ready_p50_ms)
        .number("p99", 1, |(_, leg)| leg.ready_p99_ms)
        .number("messages", 1, |(_, leg)| leg.messages_per_pair)
        .number("echo p99 ms", 1, |(_, leg)| leg.echo_p99_ms)
        .maybe("CPU µs", 0, |(_, leg)| leg.cpu_us_per_pair)
        .maybe("peak MiB", 0, |(subject, leg)| subject.memory_peak_mib(leg))
        .table()
        + "\n"
        + &events_table(subjects);
    for subject in subjects {
        for FailureDocument { round, problem } in &subject.failures {
            text += &format!("{}: FAILED in round {round}: {problem}\n", subject.name);
        }
        for note in notes(settings, subject) {
            text += &format!("{}: {note}\n", subject.name);
        }
    }
    text
}

fn events_table(subjects: &[SubjectDocument]) -> String {
    let mut events = Vec::new();
    for subject in subjects {
        let own = subject.runs.iter().flat_map(|run| &run.events);
        events.extend(own.map(|event| (subject.name.as_str(), event)));
    }
    if events.is_empty() {
        return String::new();
    }
    let milliseconds = |ms: Option<f64>| ms.map_or("never".to_owned(), |ms| format!("{ms:.1}"));
    Columns::of(&events)
        .text("controller", |(name, _)| *name)
        .text("event", |(_, event)| event.kind)
        .text("of", |(_, event)| &event.of)
        .text("conversations", |(_, event)| event.conversations)
        .text("broken", |(_, event)| event.broken)
        .text("carried again ms", |(_, event)| {
            milliseconds(event.carried_again_ms)
        })
        .number("outage p50 ms", 1, |(_, event)| event.outage_ms.p50)
        .text("next served ms", |(_, event)| milliseconds(event.served_ms))
        .text("messages", |(_, event)| event.messages.received())
        .table()
        + "\n"
}

fn notes(settings: &Settings, subject: &SubjectDocument) -> Vec<String> {
    let runs = &subject.runs;
    let found = runs.iter().map(|run| run.bottleneck);
    let mut notes = Bottleneck::notes(found, "emulator", "runs");
    let count = |of: fn(&RunDocument) -> bool| runs.iter().filter(|run| of(run)).count();
    let in_runs = |count: usize| format!("in {count} of {} runs", runs.len());
    let exhausted = count(|run| run.pairs_exhausted);
    if exhausted > 0 {
        notes.push(format!(
            "all pairs had spoken before the end {}: the figure is too low; raise --hosts {}",
            in_runs(exhausted),
            settings.plan.hosts
        ));
    }
    let blind = count(|run| run.setup.discovered_s.is_none());
    if blind > 0 {
        notes.push(format!(
            "LLDP did not pass over every link {}",
            in_runs(blind)
        ));
    }
    let restless = count(|run| run.setup.settled_s.is_none());
    if restless > 0 {
        notes.push(format!(
            "the controller still set entries when the load began {}; --discovery-max waits longer",
            in_runs(restless)
        ));
    }
    let sum = |of: fn(&RunDocument) -> u64| runs.iter().map(of).sum::<u64>();
    let not_sent = sum(|run| run.tally.not_sent);
    if not_sent > 0 {
        notes.push(format!(
            "the emulator was behind and left out {not_sent} packets: offered is what it sent"
        ));
    }
    let never = sum(|run| run.tally.never_ready);
    if never > 0 {
        notes.push(format!(
            "{never} of {} pairs never got a path",
            sum(|run| run.tally.sent)
        ));
    }
    let [looped, strays, duplicates, refused] = [
        sum(|run| run.looped),
        sum(|run| run.tally.strays),
        sum(|run| run.tally.duplicates),
        sum(|run| run.messages.refused),
    ];
    if looped + strays + duplicates + refused > 0 {
        notes.push(format!(
            "{looped} packets went round in loops, {strays} came out where their host is not, \
             {duplicates} came twice; {refused} messages were refused"
        ));
    }
    for run in runs {
        if let Some(recovery) = &run.recovery {
            let back = recovery.recovered_ms;
            let back = back.map_or("not within 2 s".to_owned(), |ms| {
                format!("after {ms:.0} ms")
            });
            notes.push(format!(
                "{}: back to the p99 of little load, {:.1} ms, {back}",
                run.leg, recovery.calm_p99_ms
            ));
        }
    }
    if let Some(run) = runs.iter().find(|run| run.broadcasts > 0) {
        notes.push(format!(
            "of {} broadcasts {} copies came to ports with hosts",
            run.broadcasts, run.broadcast_copies
        ));
    }
    if let Some(run) = runs.iter().find(|run| run.switches_lost > 0) {
        let why = run.problem.as_deref().unwrap_or("no reason given");
        notes.push(format!(
            "{} connections were lost: {why}",
            run.switches_lost
        ));
    }
    if let Some(run) = runs.first() {
        let (entries, groups) = (&run.entries_per_switch, &run.groups_per_switch);
        notes.push(format!(
            "{:.0} entries per switch at the end of the first run (most {}), {:.1} groups (most \
             {}); all switches admitted after {:.3} s",
            entries.mean, entries.max, groups.mean, groups.max, run.setup.admitted_s
        ));
        if let Some(settled_s) = run.setup.settled_s {
            notes.push(format!(
                "{} changes of entries and groups before the load, the last after {settled_s:.3} s",
                run.setup.changes
            ));
        }
    }
    notes
}

fn plots(results: &Results, settings: &Settings, rounds: &Rounds<Measured>) -> Result<(), Failure> {
    if !results.are_kept() {
        return Ok(());
    }
    type Of = fn(&Measured) -> &Histogram;
    let figures: [(&str, &str, Of); 2] = [
        ("first", "delivered within (µs)", |m| &m.record.first),
        ("ready", "path ready within (µs)", |m| &m.record.ready),
    ];
    for (name, x_label, of) in figures {
        let mut series = Vec::new();
        for (at, (subject, turns)) in (1..).zip(settings.subjects.iter().zip(&rounds.turns)) {
            // Only the first run of each leg is drawn.
            let mut legs: Vec<&str> = Vec::new();
            for (number, (_, run)) in turns.runs.iter().enumerate() {
                results.histogram(&format!("{name}-{at}-{}", number + 1), of(run), MS_PER_NS)?;
                if !legs.contains(&run.leg.name.as_str()) {
                    legs.push(&run.leg.name);
                    let name = format!("{}, {}", subject.name, run.leg.name);
                    series.push(Series::new(name, tail_points(of(run))));
                }
            }
        }
        let (topologies, hosts) = (settings.topologies.join(", "), settings.plan.hosts);
        let title = format!("{topologies}, {hosts} hosts each");
        let labels = [x_label, "pairs that took longer (part of all)"];
        let plot = Plot::new(title, labels, series).log_x().log_y();
        results.plot(name, &plot.lines())?;
    }
    Ok(())
}

/// Plots figures over the number of switches, if several networks were measured.
fn growth_plots(
    results: &Results,
    settings: &Settings,
    rounds: &Rounds<Measured>,
) -> Result<(), Failure> {
    if !results.are_kept() || settings.topologies.len() < 2 {
        return Ok(());
    }
    type Lines<'a> = &'a [(&'a str, fn(&Measured) -> Option<f64>)];
    let figures: [(&str, &str, Lines<'_>); 4] = [
        (
            "growth-rate",
            "new pairs delivered (1/s)",
            &[("", |run| Some(run.delivered_per_s()))],
        ),
        (
            "growth-tables",
            "entries and groups of a switch",
            &[
                (", entries", |run| Some(run.setup.entries)),
                (", groups", |run| Some(spread(&run.groups).mean)),
            ],
        ),
        (
            "growth-memory",
            "memory of the controller, peak (MiB)",
            &[("", |run| Some(run.used.as_ref()?.memory_peak_mib))],
        ),
        (
            "growth-setup",
            "last change after the last host was heard (s)",
            &[("", |run| Some(run.setup.settled_s? - run.setup.announced_s))],
        ),
    ];
    let of_first = settings.legs.iter();
    let of_first = of_first.filter(|leg| leg.topology == settings.topologies[0]);
    let kinds: Vec<&str> = of_first.map(|leg| leg.kind).collect();
    for (name, y_label, lines) in figures {
        let mut series = Vec::new();
        for (subject, turns) in settings.subjects.iter().zip(&rounds.turns) {
            for kind in &kinds {
                for (what, of) in lines {
                    let runs = turns.runs.iter().map(|(_, run)| run);
                    let of_kind = runs.filter(|run| run.leg.kind == *kind);
                    let suffix = if kinds.len() > 1 {
                        format!(", {kind}")
                    } else {
                        String::new()
                    };
                    let name = format!("{}{suffix}{what}", subject.name);
                    series.push(Series::new(name, over_switches(of_kind, *of)));
                }
            }
        }
        let title = format!("{} hosts at each switch with hosts", settings.plan.hosts);
        let plot = Plot::new(title, ["switches", y_label], series);
        results.plot(name, &plot.lines())?;
    }
    Ok(())
}

/// The median of a figure for each number of switches.
fn over_switches<'a>(
    runs: impl Iterator<Item = &'a Measured>,
    of: fn(&Measured) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let mut values: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for run in runs {
        values.entry(run.entries.len()).or_default().extend(of(run));
    }
    let points = values.into_iter().filter(|(_, values)| !values.is_empty());
    points
        .map(|(switches, values)| (switches as f64, median(values)))
        .collect()
}
