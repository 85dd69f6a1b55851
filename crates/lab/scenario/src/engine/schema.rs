//! A scenario as its file describes it, checked as a whole before anything runs.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::num::NonZero;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::Settings;
use measure::distinct;
use openflow::Version;
use testbed::network::Options;
use testbed::plane::{Controller, Site, Transport};
use testbed::topology::Topology;
use testbed::topology_file::topology;

use crate::engine::command::Command;
use crate::engine::event::{self, Event};
use crate::engine::expression::{Expression, Figures, MANY, ONE, Shape};
use crate::engine::json_schema::Record;
use crate::engine::matrix::{self, Axis};
use crate::engine::plot::{Kind, PlotSpec};
use crate::engine::probe::{self, Probe};
use crate::engine::reader::{self, Choice, Node, Parameters, Problem, Problems, SECONDS};
use crate::engine::reader::{Section, suggestion};
use crate::engine::rows::WINDOW_LENGTH;
use crate::engine::setup::Step;
use crate::engine::subject;
use crate::engine::timeline::{self, END, Moment, START, Window, time_of};
use crate::engine::traffic::{self, Carrier, Pair, Traffic};
use crate::report::OUTCOME_KEYS;

/// An experiment.
pub struct Scenario {
    /// One line about what the experiment shows.
    pub title: String,
    /// The length of the measurement, where the command line may change it.
    pub seconds: Option<f64>,
    /// The network stays up with a live view until Ctrl-C.
    pub stay: bool,
    /// The experiment runs under virtual time, without a network.
    pub is_simulated: bool,
    /// The file has `[controller]`, so the command line does not choose one.
    pub own_controller: bool,
    /// The file has `[quick]`.
    pub has_quick: bool,
    pub cells: Vec<Cell>,
    pub claims: Vec<Claim>,
    pub plots: Vec<PlotSpec>,
    /// The networks in the order in which they are brought up.
    pub networks: Vec<NetworkRuns>,
}

/// One combination of the matrix's values, with everything they decide.
pub struct Cell {
    /// `kill=controller, down=1s`; empty without a matrix.
    pub name: String,
    pub parameters: Vec<(String, String)>,
    runs: u64,
    /// The number of runs of such cells at a time, each on its own network or without a network.
    pub at_once: usize,
    pub network: NetworkSpec,
    pub ready: Ready,
    pub valid: Option<Valid>,
    pub traffic: Vec<Stream>,
    pub moments: Vec<Moment>,
    /// The events, each with the moment when it happens.
    pub events: Vec<(String, Box<dyn Event>)>,
    pub probes: Vec<Watch>,
    pub rows: Vec<RowSpec>,
}

/// The description of a network. Runs that ask for the same one share it.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkSpec {
    pub topology: Topology,
    /// Each run has a network of its own.
    fresh: bool,
    pub options: Options,
    /// The configuration file of auster.
    pub config: toml::Table,
    /// Hosts know each other's hardware addresses from the start.
    pub static_arp: bool,
    pub controller: Controller,
    /// A command that the controller needs once on this machine, before any network.
    pub prepare: Option<String>,
    /// Commands that follow the start of the controller.
    pub setup: Vec<Step>,
}

/// The conditions before each run.
#[derive(Clone, Debug)]
pub struct Ready {
    pub within: Duration,
    pub pings: Pings,
    /// Packets after the first one of a pair.
    pub later: usize,
    /// A command that must succeed.
    pub run: Option<Command>,
}

impl Default for Ready {
    fn default() -> Ready {
        Ready {
            within: Duration::from_secs(60),
            pings: Pings::All,
            later: 3,
            run: None,
        }
    }
}

/// The pairs of hosts that must reach each other before a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pings {
    All,
    /// The pairs of traffic that begins with the run. Other pairs must not have communicated
    /// before.
    Streams,
}

/// The condition for a valid run; an invalid run is repeated.
#[derive(Clone, Debug)]
pub struct Valid {
    pub that: Expression,
    /// The number of repetitions after which a run counts, valid or not.
    pub retries: u64,
}

pub struct Stream {
    pub id: String,
    /// The moments when it begins and ends.
    pub begins: String,
    pub ends: String,
    pub kind: Carrier,
    pub figures: Figures,
}

/// A measurement beside the traffic.
pub struct Watch {
    pub id: String,
    /// The moment when it begins.
    pub begins: String,
    pub kind: Box<dyn Probe>,
}

/// A kind of row; each run gives one.
#[derive(Clone, Debug)]
pub struct RowSpec {
    pub name: String,
    pub columns: Vec<Column>,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub value: Expression,
    /// From one moment to another.
    pub window: [String; 2],
    /// A list: the value in each part of this length.
    pub each: Option<Duration>,
}

/// A claim on the rows of every cell that it selects.
#[derive(Clone, Debug)]
pub struct Claim {
    pub row: String,
    /// A pattern of cells' names.
    pub of: String,
    /// All rows of the selected cells together have one verdict.
    pub together: bool,
    /// Names for other cells, which are `against` or the scenario's own. Each name has, for every
    /// cell, the other cell whose columns `that` may name as `against.COLUMN`.
    pub against: Vec<(String, Vec<Option<usize>>)>,
    pub that: Expression,
    pub says: String,
}

/// The runs on one network.
pub struct NetworkRuns {
    pub runs: Vec<Run>,
}

pub struct Run {
    pub number: u64,
    pub cell: usize,
    /// The pairs of each stream.
    pub pairs: Vec<Vec<Pair>>,
}

/// Settings that a scenario's file does not decide.
pub struct Circumstances<'a> {
    /// The folder to which paths of topology files are relative.
    pub beside: &'a Path,
    pub controller: &'a Controller,
    pub runs: Option<u64>,
    pub seconds: Option<f64>,
    pub seed: Option<u64>,
    /// Only the part of `[quick]`.
    pub quick: bool,
    /// Only the cells that match one of these patterns; all cells if there is no pattern.
    pub only: &'a [String],
}

impl Circumstances<'_> {
    /// Whether cells may be missing.
    fn is_part(&self) -> bool {
        self.quick || !self.only.is_empty()
    }
}

/// Keys of a network and of the things on it.
const NETWORK_KEYS: [&str; 12] = [
    "at_once",
    "topology",
    "control",
    "controller",
    "qos",
    "ready",
    "setup",
    "valid",
    "traffic",
    "at",
    "probe",
    "stay",
];
/// The name of the cell that a claim compares with, if it has none of its own.
const AGAINST: &str = "against";
/// The graph of an experiment whose traffic has its own endpoints.
const NO_GRAPH: &str = "none";
const AT_ONCE_MAX: u64 = 64;

const CELLS_MAX: usize = 10_000;
const RUNS_MAX: u64 = 1000;
/// A run on a network has a moment at its end, and `TIME_MAX`.
const SECONDS_RANGE: Range<f64> = 0.01..36_000.1;
const PACKETS_PER_SECOND_MAX: f64 = 20_000.0;
const TIME_MAX: Duration = Duration::from_secs(600);
const PORT_BUFFER_BYTES: RangeInclusive<u64> = 4096..=64 << 20;

impl Scenario {
    /// The names of the rows of all cells.
    pub fn kinds_of_rows(&self) -> BTreeSet<&str> {
        let rows = self.cells.iter().flat_map(|cell| &cell.rows);
        rows.map(|row| row.name.as_str()).collect()
    }

    /// Sets this OpenFlow version for all switches with auster. Returns whether any exist.
    pub fn speak(&mut self, version: Version) -> bool {
        let mut has_switches = false;
        for cell in &mut self.cells {
            has_switches |= cell.network.speak(version);
        }
        has_switches
    }

    /// Reads a scenario, or finds all its mistakes.
    pub fn read(text: &str, around: &Circumstances<'_>) -> Result<Scenario, Vec<Problem>> {
        let root = Node::parse(text).map_err(|problem| vec![problem])?;
        let problems = Problems::new(text);
        let scenario = read(&root, &problems, around);
        let found = problems.into_list();
        match scenario {
            Some(scenario) if found.is_empty() => Ok(scenario),
            _ => Err(found),
        }
    }
}

/// Records the keys that a scenario may have, without reading a scenario. Where there are several
/// kinds or verbs, reads `choice`.
pub fn record(choice: &'static str) -> Record {
    let record = Record::new(choice);
    let around = Circumstances {
        beside: Path::new("."),
        controller: &Controller::Auster(Site::new(Transport::Tcp)),
        runs: None,
        seconds: None,
        seed: None,
        quick: false,
        only: &[],
    };
    read(&Node::empty(), &Problems::recording(&record), &around);
    record
}

fn read(root: &Node, problems: &Problems<'_>, around: &Circumstances<'_>) -> Option<Scenario> {
    let none = Parameters::default();
    let top = Section::new(root, &none, problems);
    let matrix = top.section("matrix");
    let mut axes = matrix.as_ref().map(Section::axes).unwrap_or_default();
    let is_simulated = is_simulated(&top);
    for key in NETWORK_KEYS {
        // Checked first: a scenario under virtual time lacks keys that networks must have.
        if top.has(key) && is_simulated {
            top.problem(key, "there is no network under virtual time");
        }
        top.know(key);
    }
    let seconds = top.number(SECONDS, SECONDS_RANGE);
    if is_simulated {
        top.missing(SECONDS, "10");
    }
    let (quick_runs, quick_seconds) = quick(&top, &mut axes, around);
    let seconds = seconds.map(|own| around.seconds.or(quick_seconds).unwrap_or(own));
    if around.seconds.is_some() && !top.has(SECONDS) {
        let right = "the events of this scenario say how long a run lasts";
        top.problem(SECONDS, format!("--seconds: {right}"));
    }
    if around
        .seconds
        .is_some_and(|seconds| !SECONDS_RANGE.contains(&seconds))
    {
        top.problem(SECONDS, "--seconds: write a number from 0.01 to 36000");
    }
    if around
        .runs
        .is_some_and(|runs| !(1..=RUNS_MAX).contains(&runs))
    {
        let problem = format!("--runs: write a number from 1 to {RUNS_MAX}");
        top.problem("runs", problem);
    }
    let most = |lists: &Axis<Choice>| lists.iter().map(|(_, list)| list.len()).max();
    let count: usize = axes.iter().filter_map(|(_, lists)| most(lists)).product();
    if count > CELLS_MAX {
        return top.refuse("matrix", format!("{count} cells are more than {CELLS_MAX}"));
    }
    let here = absolute(around.beside);
    let cells = matrix::cells(&axes, reader::name).into_iter();
    let cells = cells.map(|choices| Parameters::new(choices, here.clone(), seconds));
    let mut parameters: Vec<Parameters> = cells.collect();
    for pattern in top.texts("except").unwrap_or_default() {
        let count = parameters.len();
        parameters.retain(|values| !matrix::is_meant(&pattern, &values.name()));
        if parameters.len() == count && !around.quick {
            top.problem("except", format!("no cell is like '{pattern}'"));
        }
    }
    if !around.only.is_empty() {
        let example = parameters.first().map(Parameters::name).unwrap_or_default();
        parameters.retain(|values| {
            let name = values.name();
            around.only.iter().any(|of| matrix::is_meant(of, &name))
        });
        if parameters.is_empty() {
            let right = format!("cells are such as '{example}'");
            return top.refuse("matrix", format!("--only: no cell is like that; {right}"));
        }
    }
    let title = top.required_text("title", "\"A ring loses a link\"");
    let stay = top.truth("stay").unwrap_or(false);
    let mut cells: Vec<Option<Cell>> = parameters
        .iter()
        .map(|values| cell(&Section::new(root, values, problems), around))
        .collect();
    if let Some(runs) = around.runs.or(quick_runs) {
        cells.iter_mut().flatten().for_each(|cell| cell.runs = runs);
    }
    if seconds.is_some() && !parameters.iter().any(|values| values.is_used(SECONDS)) {
        let right = "write \"$seconds\" as the time of a moment";
        top.problem(SECONDS, format!("no field uses it; {right}"));
    }
    for (axis, lists) in &axes {
        let choices = lists.iter().flat_map(|(_, choices)| choices);
        for name in choices.flat_map(Choice::names) {
            if let Some(matrix) = &matrix
                && around.only.is_empty()
                && !parameters.iter().any(|values| values.is_used(name))
            {
                let right = format!("write \"${name}\" where it belongs");
                matrix.problem(axis, format!("no field uses {name}; {right}"));
            }
        }
    }
    // The cells have read these keys.
    for key in ["runs", "seed", "row"] {
        top.know(key);
    }
    for (key, ..) in subject::KINDS {
        if top.has(key) && !is_simulated {
            top.problem(key, "only backend = \"sim\" takes it");
        }
        top.know(key);
    }
    let names: Vec<String> = parameters.iter().map(Parameters::name).collect();
    let mut claims = top.sections("claim");
    match around.is_part() {
        // The other cells have the moments and claims that this part lacks.
        true => claims.retain(|section| has_cells(section, &names)),
        false => check_patterns(&top, &names),
    }
    let cells = cells.into_iter().collect::<Option<Vec<Cell>>>();
    let mut plots = top.sections("plot");
    if let Some(cells) = cells.as_ref().filter(|_| around.is_part()) {
        let lacks_row = |section: &Section<'_>| lacks_row(section, &top, cells);
        claims.retain(|section| !lacks_row(section));
        plots.retain(|section| !lacks_row(section));
    }
    let claims = claims
        .into_iter()
        .map(|section| claim(section, cells.as_deref(), around.is_part()))
        .collect::<Vec<_>>();
    let plots = plots
        .into_iter()
        .filter_map(|section| plot(section, cells.as_deref(), around.is_part()))
        .collect::<Vec<_>>();
    let networks = cells
        .as_ref()
        .filter(|_| problems.is_empty())
        .and_then(|cells| {
            networks(cells)
                .map_err(|problem| top.problem("traffic", problem))
                .ok()
        });
    let own_controller = top.section("controller").is_some_and(|own| is_own(&own));
    let has_quick = top.has("quick");
    top.finish();
    Some(Scenario {
        title: title?,
        seconds,
        stay,
        is_simulated,
        own_controller,
        has_quick,
        cells: cells?,
        claims: claims.into_iter().collect::<Option<_>>()?,
        plots,
        networks: networks?,
    })
}

/// The absolute path of a folder, for commands that run anywhere. A bare file name has an empty
/// folder.
pub fn absolute(folder: &Path) -> PathBuf {
    let found = std::path::absolute(Path::new(".").join(folder));
    found.unwrap_or_else(|_| folder.to_owned())
}

/// Reads `[quick]`, reduces the axes to the quick part if requested, and returns its runs and
/// seconds. A named value must be a value of the axis. A plain value that all cells share need not
/// be.
fn quick(
    top: &Section<'_>,
    axes: &mut [(String, Axis<Choice>)],
    around: &Circumstances<'_>,
) -> (Option<u64>, Option<f64>) {
    let Some(section) = top.section("quick") else {
        if around.quick && !top.has("quick") {
            let right = "leave --quick out, or write [quick] with such as runs = 1";
            top.problem(
                "quick",
                format!("the experiment has no quick part; {right}"),
            );
        }
        return (None, None);
    };
    let runs = section.count("runs", 1..=RUNS_MAX);
    let seconds = section.number(SECONDS, SECONDS_RANGE);
    if section.has(SECONDS) && !top.has(SECONDS) {
        section.problem(SECONDS, "the scenario has no seconds = 30 at its top");
    }
    for key in section.other_keys() {
        let names = axes.iter().map(|(axis, _)| axis.as_str());
        let right = suggestion(key, names.chain(["runs"]));
        let Some((_, lists)) = axes.iter_mut().find(|(axis, _)| axis == key) else {
            section.problem(key, format!("no axis of [matrix]; {right}"));
            section.know(key);
            continue;
        };
        if let [(_, choices)] = lists.as_mut_slice()
            && choices.iter().all(|choice| !choice.is_named)
        {
            let own = section.choices(key);
            if around.quick {
                *choices = own;
            }
            continue;
        }
        let wanted = section.words(key).unwrap_or_default();
        let known = lists.iter().flat_map(|(_, choices)| choices);
        let known: Vec<&str> = known.map(|choice| choice.words.as_str()).collect();
        for word in &wanted {
            if !known.contains(&word.as_str()) {
                let right = suggestion(word, known.iter().copied());
                section.problem(key, format!("[matrix] has no {word}; {right}"));
            }
        }
        if around.quick {
            let lists = lists.iter_mut();
            lists.for_each(|(_, list)| list.retain(|choice| wanted.contains(&choice.words)));
        }
    }
    section.finish();
    match around.quick {
        true => (runs, seconds),
        false => (None, None),
    }
}

/// Whether a scenario runs under virtual time, rather than on real networks.
fn is_simulated(top: &Section<'_>) -> bool {
    top.word("backend", &["network", "sim"]) == Some("sim")
}

fn seed(top: &Section<'_>, around: &Circumstances<'_>) -> u64 {
    let own = top.count("seed", 0..=u64::from(u32::MAX)).unwrap_or(1);
    around.seed.unwrap_or(own)
}

/// A cell under virtual time. Its run ends when its subject does.
fn simulated(
    top: &Section<'_>,
    around: &Circumstances<'_>,
    mut subjects: Vec<(Stream, Duration)>,
) -> Option<Cell> {
    if subjects.len() != 1 {
        let known = subject::KINDS
            .map(|(key, ..)| format!("[{key}]"))
            .join(" or ");
        let key = subjects.last().map_or("backend", |(stream, _)| &stream.id);
        top.problem(key, format!("a simulation has one subject; write {known}"));
    }
    let (stream, length) = subjects.pop()?;
    let moments = vec![Moment {
        id: END.to_string(),
        after: START.to_string(),
        time: length..=length,
        waits: None,
    }];
    let mut names = vec![(WINDOW_LENGTH.to_string(), ONE)];
    names.extend(named(&stream.id, stream.figures, Vec::new()));
    let name = top.parameters().name();
    let known = Known {
        figures: names,
        unread: Vec::new(),
    };
    let rows = rows(top, &name, &timeline::schedule(&moments), &known);
    Some(Cell {
        parameters: parameters(top),
        name,
        runs: runs(top),
        at_once: std::thread::available_parallelism().map_or(1, NonZero::get),
        network: NetworkSpec::none(seed(top, around)),
        ready: Ready::default(),
        valid: None,
        traffic: vec![stream],
        moments,
        events: Vec::new(),
        probes: Vec::new(),
        rows,
    })
}

/// Figures as expressions name them: the kind's figures, and further ones of its own.
fn named(id: &str, figures: Figures, own: Vec<(String, Shape)>) -> Vec<(String, Shape)> {
    let figures = figures
        .iter()
        .map(|(name, shape)| (name.to_string(), *shape));
    let all = figures.chain(own);
    all.map(|(name, shape)| (format!("{id}.{name}"), shape))
        .collect()
}

fn runs(top: &Section<'_>) -> u64 {
    top.count("runs", 1..=RUNS_MAX).unwrap_or(1)
}

/// The cell's value on each axis.
fn parameters(top: &Section<'_>) -> Vec<(String, String)> {
    let axes = top.parameters().axes();
    axes.map(|(axis, words)| (axis.to_string(), words.to_string()))
        .collect()
}

fn cell(top: &Section<'_>, around: &Circumstances<'_>) -> Option<Cell> {
    let subjects = subject::read(top);
    if is_simulated(top) {
        return simulated(top, around, subjects);
    }
    let name = top.parameters().name();
    let network = network(top, around);
    let has_network = network.as_ref().is_none_or(NetworkSpec::has_switches);
    let at_once = at_once(top, &name, network.as_ref());
    let topology = network.as_ref().map(|network| &network.topology);
    let ready = ready(top, topology);
    let (moments, events) = moments(top, &name, network.as_ref());
    let times = timeline::schedule(&moments);
    let elsewhere = top.sections("at").into_iter();
    let elsewhere: BTreeSet<String> = elsewhere.filter_map(|at| at.text("id")).collect();
    let mut names = vec![(WINDOW_LENGTH.to_string(), ONE)];
    let mut unread = Vec::new();
    let mut ids = BTreeSet::new();
    let mut rate = 0.0;
    let mut streams = Vec::new();
    for section in sections_for(top, "traffic", &name) {
        let id = new_id(&section, &mut ids);
        let begins = moment(&section, "begins", &times).unwrap_or_else(|| START.to_string());
        let ends = moment(&section, "ends", &times).unwrap_or_else(|| END.to_string());
        if time_of(&times, &ends) <= time_of(&times, &begins) && section.has("ends") {
            let problem = format!("\"{ends}\" does not come after \"{begins}\"");
            section.problem("ends", problem);
        }
        let (kind, figures) = traffic::read(&section).unzip();
        if let Some(kind) = &kind {
            check_waits(&section, &**kind, &moments, &times, [&begins, &ends]);
        }
        if let (Some(kind), Some(id)) = (&kind, &id) {
            names.extend(named(id, figures.unwrap_or_default(), kind.own_figures()));
            if kind.needs_network() && !has_network {
                section.problem("kind", "it needs hosts; write such as graph = \"ring,4\"");
            }
            if kind.is_new_each_run() && ready.pings == Pings::All {
                let right = "write pings = \"streams\" in [ready]";
                let problem = format!("every pair has talked before the run; {right}");
                section.problem("pairs", problem);
            }
            if let Some(network) = network.as_ref().filter(|network| network.has_switches())
                && let Err(problem) = kind.check(&network.controller)
            {
                section.problem("kind", problem);
            }
            match topology.map(|topology| kind.pairs(topology, &BTreeSet::new())) {
                Some(Ok(pairs)) => {
                    let (own, key) = kind.packets_per_s(pairs.len());
                    rate += own;
                    if rate > PACKETS_PER_SECOND_MAX {
                        let most = format!("more than {PACKETS_PER_SECOND_MAX}");
                        section.problem(key, format!("{rate:.0} packets a second are {most}"));
                    }
                }
                Some(Err(problem)) => {
                    let keys = ["between", "pairs", "from"];
                    let key = keys.into_iter().find(|key| section.has(key));
                    section.problem(key.unwrap_or("kind"), problem);
                }
                None => {}
            }
        }
        section.finish();
        match (id, kind) {
            (Some(id), Some(kind)) => streams.push(Stream {
                id,
                begins,
                ends,
                kind,
                figures: figures.unwrap_or_default(),
            }),
            (id, _) => unread.push(id),
        }
    }
    let mut probes = Vec::new();
    for section in top.sections("probe") {
        let begins = section.text("begins");
        if begins.is_some_and(|id| elsewhere.contains(&id) && time_of(&times, &id).is_none()) {
            // Only other cells have the moment when the probe begins.
            continue;
        }
        let id = new_id(&section, &mut ids);
        let begins = moment(&section, "begins", &times).unwrap_or_else(|| START.to_string());
        let (kind, figures) = probe::read(&section).unzip();
        if !has_network {
            section.problem("kind", "there is no network to observe");
        }
        if let (Some(kind), Some(network)) = (&kind, &network)
            && let Err(problem) = kind.check(&network.topology, &network.controller)
        {
            let key = ["in", "of"].into_iter().find(|key| section.has(key));
            section.problem(key.unwrap_or("kind"), problem);
        }
        section.finish();
        if id.is_none() || kind.is_none() {
            unread.push(id.clone());
        }
        if let (Some(id), Some(kind)) = (id, kind) {
            let own = kind.own_figures().into_iter();
            let own = own.map(|figure| (figure.to_string(), ONE));
            names.extend(named(&id, figures.unwrap_or_default(), own.collect()));
            probes.push(Watch { id, begins, kind });
        }
    }
    if !(streams.is_empty() && moments.is_empty()) {
        match time_of(&times, END) {
            None => top.problem("at", "no [[at]] has id = \"end\", when the traffic ends"),
            Some(end) if times.iter().any(|(_, time)| *time > end) => {
                let problem = "something happens after \"end\"; give it a later time";
                top.problem("at", problem);
            }
            Some(_) => {}
        }
    }
    let known = Known {
        figures: names,
        unread,
    };
    let rows = rows(top, &name, &times, &known);
    let valid = valid(top, &known);
    Some(Cell {
        name,
        parameters: parameters(top),
        runs: runs(top),
        at_once,
        network: network?,
        ready,
        valid,
        traffic: streams,
        moments,
        events,
        probes,
        rows,
    })
}

/// The number of runs of such cells at a time, by the first pattern that matches the cell.
fn at_once(top: &Section<'_>, cell: &str, network: Option<&NetworkSpec>) -> usize {
    let Some(section) = top.section("at_once") else {
        return 1;
    };
    if network.is_some_and(|network| network.has_switches() && !network.fresh) {
        let right = "write fresh = true in [topology]";
        let problem = format!("runs on a network follow each other; {right}");
        top.problem("at_once", problem);
    }
    if top.has("stay") {
        top.problem("stay", "runs of [at_once] do not stay");
    }
    let patterns = section.other_keys().into_iter();
    let counts = patterns.map(|of| (of, section.count(of, 1..=AT_ONCE_MAX)));
    let counts: Vec<(&str, Option<u64>)> = counts.collect();
    let own = counts.iter().find(|(of, _)| matrix::is_meant(of, cell));
    own.and_then(|(_, count)| *count).unwrap_or(1) as usize
}

impl NetworkSpec {
    /// No network, for virtual time.
    fn none(seed: u64) -> NetworkSpec {
        NetworkSpec {
            topology: Topology::new("sim"),
            fresh: false,
            options: Options {
                seed,
                ..Options::default()
            },
            config: toml::Table::new(),
            static_arp: false,
            controller: Controller::Standalone,
            prepare: None,
            setup: Vec::new(),
        }
    }

    /// Sets this OpenFlow version between the network's switches and auster. Returns whether the
    /// network has any.
    fn speak(&mut self, version: Version) -> bool {
        if !self.has_switches() || !matches!(self.controller, Controller::Auster(_)) {
            return false;
        }
        let session = self.config.entry("session");
        let session = session.or_insert_with(|| toml::Table::new().into());
        if let Some(session) = session.as_table_mut() {
            let versions = vec![toml::Value::from(version.to_string())];
            session.insert("versions".to_owned(), versions.into());
        }
        self.options.version = Some(version);
        true
    }

    /// Whether there is a network: a channel between two ends needs none.
    pub fn has_switches(&self) -> bool {
        !self.topology.switches.is_empty()
    }
}

fn network(top: &Section<'_>, around: &Circumstances<'_>) -> Option<NetworkSpec> {
    let control = top.impairment("control");
    let section = top.section("controller");
    let own = section.as_ref().and_then(controller);
    let prepare = section.as_ref().and_then(|section| section.text("prepare"));
    let graph = top
        .section("topology")
        .and_then(|topology| topology.text("graph"));
    let controller = match graph.as_deref() {
        Some(NO_GRAPH) => Controller::Standalone,
        _ => own.unwrap_or_else(|| around.controller.clone()),
    };
    let config = config(top, section.as_ref(), &controller);
    if let Some(section) = section {
        section.finish();
    }
    let seed = seed(top, around);
    top.missing("topology", "{ graph = \"ring,4\" }");
    let section = top.section("topology")?;
    let graph = section.required_text("graph", "\"ring,4\"");
    let hosts_per_edge = section
        .count("hosts_per_edge", 0..=1024)
        .map(|n| n as usize);
    let links = section.impairment("links");
    let static_arp = section.word("arp", &["static", "asked"]) == Some("static");
    let fresh = section.truth("fresh").unwrap_or(false);
    let buffer = section.count("port_buffer_bytes", PORT_BUFFER_BYTES);
    section.know("link");
    let graph = graph?;
    let built = match graph.ends_with(".toml") {
        _ if graph == NO_GRAPH => Ok(Topology::new(NO_GRAPH)),
        true => topology(
            &around.beside.join(&graph).to_string_lossy(),
            hosts_per_edge,
        ),
        false => topology(&graph, hosts_per_edge),
    };
    let built = built.and_then(|topology| match graph.as_str() {
        NO_GRAPH => Ok(topology),
        _ => controller.check(&topology).map(|()| topology),
    });
    let mut topology = match built {
        Ok(topology) => topology,
        Err(failure) => {
            section.problem("graph", failure.message());
            section.finish();
            return None;
        }
    };
    if !links.is_wire() {
        let all = topology.links.iter_mut();
        all.for_each(|link| link.impairment = links.clone());
    }
    if let Some(single) = section.section("link") {
        for key in single.other_keys() {
            let impairment = single.impairment(key);
            let ends = key.split_once('-').unwrap_or((key, ""));
            match topology.link_between(ends.0, ends.1).cloned() {
                Some(link) => {
                    let same = topology.links.iter_mut().filter(|known| **known == link);
                    same.for_each(|link| link.impairment = impairment.clone());
                }
                None => single.problem(key, format!("{graph} has no link {key}")),
            }
        }
    }
    section.finish();
    let steps = top.sections("setup").into_iter().filter_map(|section| {
        let step = Step::read(&section, &topology);
        section.finish();
        step
    });
    Some(NetworkSpec {
        setup: steps.collect(),
        topology,
        fresh,
        options: Options {
            seed,
            control,
            port_buffer_bytes: buffer.map(|bytes| bytes as usize),
            ..Options::default()
        },
        config,
        static_arp,
        controller,
        prepare,
    })
}

/// Words for the transport of OpenFlow; `ssl` is Open vSwitch's word for TLS.
const TRANSPORTS: [&str; 5] = ["tcp", "tls", "ssl", "quic", "quic-0rtt"];

/// Keys of `[controller]` for auster's processes and addresses.
const SITE_KEYS: [&str; 4] = ["transport", "addresses", "standby", "core"];

/// The scenario's own controller; `None` leaves the choice to the command line.
fn controller(section: &Section<'_>) -> Option<Controller> {
    if !is_own(section) {
        return None;
    }
    let program = section.text("program");
    if let Some(program) = program.filter(|program| program != "auster") {
        return other_controller(section, &program);
    }
    let mut site = match section.word("transport", &TRANSPORTS) {
        Some("tls" | "ssl") => Site::new(Transport::Tls),
        Some("quic") => Site::new(Transport::Quic),
        Some("quic-0rtt") => Site {
            early_data: true,
            ..Site::new(Transport::Quic)
        },
        _ => Site::new(Transport::Tcp),
    };
    site.standby = section.truth("standby").unwrap_or(false);
    site.on_last_core = section.word("core", &["last"]).is_some();
    let address = |text: &String| {
        let address: Option<Ipv4Addr> = text.parse().ok();
        address.filter(|address| (1..=253).contains(&address.octets()[3]))
    };
    if let Some(texts) = section.texts("addresses") {
        let example = "[\"172.30.1.1\", \"172.30.2.1\"]";
        match texts.iter().map(address).collect::<Option<Vec<_>>>() {
            Some(addresses) if !addresses.is_empty() => site.addresses = addresses,
            _ => {
                let right = "not a list of IPv4 addresses, such as";
                section.problem("addresses", format!("{texts:?} is {right} {example}"));
            }
        }
    }
    if site.standby && site.addresses.len() != 2 {
        let right = "give two addresses; it listens at the second one";
        section.problem("standby", right);
    }
    Some(Controller::Auster(site))
}

/// A controller that is not auster.
fn other_controller(section: &Section<'_>, program: &str) -> Option<Controller> {
    for key in SITE_KEYS {
        let is_word = |word: &str| section.text(key).is_some_and(|text| text == word);
        section.know(key);
        // Every controller speaks TCP.
        if section.has(key) && !(key == "transport" && is_word("tcp")) {
            section.problem(key, "only auster takes it");
        }
    }
    let right = "write auster, none, tcp:HOST:PORT or a command with {address} and {port}";
    Controller::parse(program, Transport::Tcp)
        .map_err(|_| section.problem("program", format!("'{program}' is unknown; {right}")))
        .ok()
}

/// Whether `[controller]` has more than a configuration for the command line's controller.
fn is_own(section: &Section<'_>) -> bool {
    section.has("program") || SITE_KEYS.into_iter().any(|key| section.has(key))
}

/// The configuration of auster, with the queues and policies of `[qos]`.
fn config(
    top: &Section<'_>,
    section: Option<&Section<'_>>,
    controller: &Controller,
) -> toml::Table {
    let mut config = section.map_or_else(toml::Table::new, |section| section.table("config"));
    if let (Some(section), Controller::Auster(_)) = (section, controller) {
        let text = toml::to_string(&config).unwrap_or_default();
        let found = Settings::parse(&text, Path::new("config")).err();
        let found = found.into_iter().flatten();
        found.for_each(|problem| section.problem("config", problem));
    }
    let Some(section) = top.section("qos") else {
        return config;
    };
    let applies = section.truth("when").unwrap_or(true);
    for key in ["port", "service", "policy", "circuit"] {
        section.know(key);
    }
    section.finish();
    if !matches!(controller, Controller::Auster(_)) {
        top.problem("qos", "only auster takes it");
    }
    let mut qos = top.table("qos");
    qos.remove("when");
    if applies {
        config.insert("qos".to_string(), qos.into());
    }
    config
}

/// Whether a section applies to a cell, by the patterns in its `of`.
fn is_for(section: &Section<'_>, name: &str) -> bool {
    let patterns = section.one_or_more("of");
    patterns.is_none_or(|patterns| patterns.iter().any(|of| matrix::is_meant(of, name)))
}

/// Whether there are cells for each pattern of a claim.
fn has_cells(section: &Section<'_>, names: &[String]) -> bool {
    let against = section.text_or_section("against").and_then(Result::ok);
    let mut patterns = section.text("of").into_iter().chain(against);
    patterns.all(|pattern| names.iter().any(|name| matrix::is_meant(&pattern, name)))
}

/// Whether a claim or plot is about a row that only other cells have.
fn lacks_row(section: &Section<'_>, top: &Section<'_>, cells: &[Cell]) -> bool {
    let Some(name) = section.text("row") else {
        return false;
    };
    let rows = top.sections("row");
    let mut known = rows.iter().filter_map(|row| row.text("name"));
    let mut here = cells.iter().flat_map(|cell| &cell.rows);
    known.any(|known| known == name) && !here.any(|row| row.name == name)
}

/// The sections of a kind that apply to a cell.
fn sections_for<'a>(top: &Section<'a>, kind: &'a str, name: &str) -> Vec<Section<'a>> {
    let mut sections = top.sections(kind);
    sections.retain(|section| is_for(section, name));
    sections
}

/// Reports each section that applies to no cell. No cell reads such a section.
fn check_patterns(top: &Section<'_>, names: &[String]) {
    let kinds = ["at", "traffic", "row"].into_iter();
    for section in kinds.flat_map(|kind| top.sections(kind)) {
        for of in section.one_or_more("of").unwrap_or_default() {
            if !names.iter().any(|name| matrix::is_meant(&of, name)) {
                let example = names.first().map_or("", String::as_str);
                let right = format!("cells are such as '{example}'");
                section.problem("of", format!("no cell is like '{of}'; {right}"));
            }
        }
    }
}

fn ready(top: &Section<'_>, topology: Option<&Topology>) -> Ready {
    let mut ready = Ready::default();
    let Some(section) = top.section("ready") else {
        return ready;
    };
    let range = Duration::from_secs(1)..=TIME_MAX;
    ready.within = section.duration("within", range).unwrap_or(ready.within);
    if section.word("pings", &["all", "streams"]) == Some("streams") {
        ready.pings = Pings::Streams;
    }
    let later = section.count("later", 0..=1000);
    if later.is_some() && ready.pings == Pings::Streams {
        section.problem("later", "only pings = \"all\" takes it");
    }
    ready.later = later.map_or(ready.later, |n| n as usize);
    if section.has("run") {
        ready.run = Command::read(&section);
    }
    if let (Some(command), Some(topology)) = (&ready.run, topology)
        && let Err(problem) = command.check(topology)
    {
        section.problem("in", problem);
    }
    section.finish();
    ready
}

type Events = Vec<(String, Box<dyn Event>)>;

fn moments(top: &Section<'_>, cell: &str, network: Option<&NetworkSpec>) -> (Vec<Moment>, Events) {
    let (mut moments, mut events) = (Vec::<Moment>::new(), Vec::new());
    let mut lasting = Vec::new();
    for section in sections_for(top, "at", cell) {
        let mut ids = moments.iter().map(|moment| moment.id.clone()).collect();
        let id = new_id(&section, &mut ids);
        let times = timeline::schedule(&moments);
        let after = moment(&section, "after", &times).unwrap_or_else(|| START.to_string());
        let time = section.required_time("time", Duration::ZERO..=TIME_MAX);
        let waits = waits(top, &section, cell, &moments, &after);
        let happens = section.truth("when").unwrap_or(true);
        let event = event::read(&section);
        let fits = event
            .as_ref()
            .zip(network)
            .map(|(event, spec)| match spec.has_switches() {
                true => event.check(&spec.topology, &spec.controller),
                false => Err("there is no network to change".to_string()),
            });
        if let Some(Err(problem)) = fits {
            let verb = event::VERBS.into_iter().find(|verb| section.has(verb));
            section.problem(verb.unwrap_or("id"), problem);
        }
        let until = event.as_ref().and_then(|event| event.until());
        match (until, &id) {
            (Some(until), Some(id)) => lasting.push((section, id.clone(), until.to_string())),
            _ => section.finish(),
        }
        let (Some(id), Some(time)) = (id, time) else {
            continue;
        };
        let event = event.filter(|_| happens);
        events.extend(event.map(|event| (id.clone(), event)));
        moments.push(Moment {
            id,
            after,
            time,
            waits,
        });
    }
    // An event may last until a moment that comes later in the file.
    let times = timeline::schedule(&moments);
    for (section, id, until) in lasting {
        let [begin, end] = [&id, &until].map(|moment| time_of(&times, moment));
        if known_moment(&section, "until", &until, &times) && end <= begin {
            section.problem("until", format!("\"{until}\" does not come after \"{id}\""));
        }
        section.finish();
    }
    (moments, events)
}

/// The probe or stream whose end a moment waits for. It must have begun before.
fn waits(
    top: &Section<'_>,
    section: &Section<'_>,
    cell: &str,
    moments: &[Moment],
    after: &str,
) -> Option<String> {
    let id = section.text("waits")?;
    let mut known = sections_for(top, "traffic", cell);
    known.extend(top.sections("probe"));
    let ids: Vec<Option<String>> = known.iter().map(|known| known.text("id")).collect();
    let Some(place) = ids.iter().position(|known| known.as_ref() == Some(&id)) else {
        let right = suggestion(&id, ids.iter().flatten().map(String::as_str));
        let problem = format!("no [[traffic]] or [[probe]] has id = \"{id}\"; {right}");
        return section.refuse("waits", problem);
    };
    let begins = known[place].text("begins");
    let begins = begins.unwrap_or_else(|| START.to_string());
    if !timeline::is_past(moments, &begins, after) {
        let right = format!("write a moment that comes after \"{begins}\", when it begins");
        return section.refuse("waits", format!("\"{id}\" has not begun; {right}"));
    }
    Some(id)
}

/// Checks that a stream can continue while moments wait, and end while a moment waits for it.
fn check_waits(
    section: &Section<'_>,
    kind: &dyn Traffic,
    moments: &[Moment],
    times: &[(String, Duration)],
    [begins, ends]: [&str; 2],
) {
    let begins = if kind.keeps_to_plan() { START } else { begins };
    let mut waits = timeline::waits_between(moments, times, [begins, ends]);
    let own = section.text("id");
    let is_own = |moment: &Moment| own.is_some() && moment.waits == own;
    if moments.iter().any(is_own) && !kind.has_own_end() {
        let right = "write count = 1, of tcp or newcomers";
        section.problem("id", format!("a moment waits for its end; {right}"));
    }
    if let Some(moment) = waits.next()
        && !kind.ends_on_demand()
    {
        let right = "write ends = \"…\", a moment before it";
        let problem = format!(
            "it has to know when \"{}\" happens, which waits; {right}",
            moment.id
        );
        section.problem("kind", problem);
    }
}

/// The figures of a cell that expressions may name.
struct Known {
    figures: Vec<(String, Shape)>,
    /// Traffic and probes with mistakes, by their ids if they have any. Their figures are unknown.
    unread: Vec<Option<String>>,
}

impl Known {
    /// Whether an expression is about something that was not read, and so cannot be judged.
    fn is_unsure(&self, text: &str) -> bool {
        let is_about = |id: &Option<String>| match id {
            Some(id) => text.contains(&format!("{id}.")),
            None => true,
        };
        self.unread.iter().any(is_about)
    }
}

fn valid(top: &Section<'_>, known: &Known) -> Option<Valid> {
    let section = top.section("valid")?;
    let that = section.required_text("that", "\"stream.sender_late_ms <= 25\"");
    let retries = section.count("retries", 0..=10).unwrap_or(1);
    let that = that.filter(|that| !known.is_unsure(that));
    let that = that.and_then(|that| section.checked("that", comparison(&that, &known.figures)));
    section.finish();
    Some(Valid {
        that: that?,
        retries,
    })
}

/// Parses an expression that must be a comparison.
fn comparison(text: &str, known: &[(String, Shape)]) -> Result<Expression, String> {
    let parsed = Expression::parse(text)?;
    match parsed.check(known)? {
        shape if shape.truth => Ok(parsed),
        _ => Err(format!(
            "'{text}' compares nothing; write such as {text} == 0"
        )),
    }
}

fn rows(
    top: &Section<'_>,
    cell: &str,
    times: &[(String, Duration)],
    known: &Known,
) -> Vec<RowSpec> {
    let mut rows = Vec::<RowSpec>::new();
    for section in sections_for(top, "row", cell) {
        let name = section
            .required_text("name", "\"failure\"")
            .unwrap_or_default();
        if OUTCOME_KEYS.contains(&name.as_str()) {
            let problem = format!("'{name}' is a part of every result; take another");
            section.problem("name", problem);
        }
        if rows.iter().any(|row| row.name == name) {
            section.problem("name", format!("'{name}' is there twice"));
        }
        let whole = [START, END].map(str::to_string);
        let whole = window(&section, times).unwrap_or(whole);
        let mut columns = Vec::new();
        let keys = section.other_keys();
        if keys.is_empty() {
            let problem = "the row has no column; write such as lost = \"pings.lost\"";
            section.problem("name", problem);
        }
        for key in keys {
            let mut taken = ["run", "repeats"].into_iter();
            let mut axes = top.parameters().axes();
            if !is_name(key) || taken.any(|it| it == key) || axes.any(|(axis, _)| axis == key) {
                let right = "a column is named in a-z, 0-9 and _, and not run, repeats or an axis";
                section.problem(key, right);
            }
            let (value, window, each) = match section.text_or_section(key) {
                Some(Ok(text)) => (Some(text), whole.clone(), None),
                Some(Err(inner)) => {
                    let value = inner.required_text("value", "\"pings.lost\"");
                    let window = window(&inner, times).unwrap_or_else(|| whole.clone());
                    let each = inner.duration("each", Duration::from_millis(100)..=TIME_MAX);
                    inner.finish();
                    (value, window, each)
                }
                None => continue,
            };
            let Some(value) = value else { continue };
            // A claim may still name a column that cannot be computed.
            let value = column(&value, &known.figures).unwrap_or_else(|problem| {
                if !known.is_unsure(&value) {
                    section.problem(key, problem);
                }
                Expression::parse("0").expect("a number")
            });
            columns.push(Column {
                name: key.to_string(),
                value,
                window,
                each,
            });
        }
        rows.push(RowSpec { name, columns });
    }
    rows
}

fn column(text: &str, known: &[(String, Shape)]) -> Result<Expression, String> {
    let value = Expression::parse(text)?;
    match value.check(known)? {
        shape if shape.truth => Err("a column is a number; comparisons belong in [[claim]]".into()),
        shape if shape.many => Err(format!(
            "'{text}' has many values; write such as max({text}) or p50({text})"
        )),
        _ => Ok(value),
    }
}

fn claim(section: Section<'_>, cells: Option<&[Cell]>, quick: bool) -> Option<Claim> {
    let that = section.required_text("that", "\"max(lost) == 0\"");
    let says = section.text("says");
    let row = section.text("row");
    let of = section.text("of").unwrap_or_else(|| "*".to_string());
    let against = section.text_or_section("against");
    let together = section.truth("together").unwrap_or(false);
    if together && section.has("against") {
        section.problem("together", "a claim with against is about single cells");
    }
    // Not all rows of a scenario with mistakes are known.
    let claim = cells.and_then(|cells| {
        let found = kind_of_row(&section, row.as_ref(), cells)?;
        let rows_of = |cell: &&Cell| cell.rows.iter().any(|row| row.name == found.name);
        let mut meant = cells.iter().filter(rows_of);
        // The quick part may lack the cells of a claim.
        if !quick && !meant.any(|cell| matrix::is_meant(&of, &cell.name)) {
            let example = cells.iter().find(rows_of).map_or("", |cell| &cell.name);
            let problem = format!("no cell is like '{of}'; cells are such as '{example}'");
            section.problem("of", problem);
        }
        let that = that?;
        let against = match against {
            Some(Ok(pattern)) => {
                let one = only_cell(&section, cells, &pattern)?;
                vec![(AGAINST.to_string(), vec![Some(one); cells.len()])]
            }
            Some(Err(others)) => named_cells(&others, cells, &of, quick),
            None => Vec::new(),
        };
        let numbers = found.columns.iter().filter(|column| column.each.is_none());
        let own: Vec<&str> = numbers.map(|column| column.name.as_str()).collect();
        let mut columns: Vec<_> = own.iter().map(|name| (name.to_string(), MANY)).collect();
        for (other, _) in &against {
            columns.extend(own.iter().map(|name| (format!("{other}.{name}"), MANY)));
        }
        let parsed = section.checked("that", comparison(&that, &columns))?;
        Some(Claim {
            row: found.name.clone(),
            of,
            together,
            against,
            says: says.unwrap_or(that),
            that: parsed,
        })
    });
    section.finish();
    claim
}

/// The kind of row that a claim or a plot is about.
fn kind_of_row<'c>(
    section: &Section<'_>,
    name: Option<&String>,
    cells: &'c [Cell],
) -> Option<&'c RowSpec> {
    let mut rows = cells.iter().flat_map(|cell| &cell.rows);
    let names = distinct(rows.clone().map(|row| row.name.as_str()));
    let name = name.map_or(names.first().copied(), |name| Some(name.as_str()));
    let Some(found) = rows.find(|row| Some(row.name.as_str()) == name) else {
        let (name, known) = (name.unwrap_or_default(), names.iter().copied());
        let problem = format!("no [[row]] is named '{name}'; {}", suggestion(name, known));
        return section.refuse("row", problem);
    };
    if !section.has("row") && names.len() > 1 {
        let right = "name one: row = \"…\"";
        let problem = format!("there are {} kinds of rows; {right}", names.len());
        section.problem("row", problem);
    }
    Some(found)
}

fn plot(section: Section<'_>, cells: Option<&[Cell]>, quick: bool) -> Option<PlotSpec> {
    let id = section.required_text("id", "\"counts\"");
    let row = section.text("row");
    let of = section.one_or_more("of");
    let kinds = ["bars", "points", "lists"];
    let keys = kinds.map(|key| (key, section.texts(key)));
    let (by, lines) = (section.text("by"), section.text("lines"));
    let error = section.word("error", &["ci95"]).is_some();
    let title = section.text("title");
    let label = section.text("label");
    let kind = match kinds.map(|key| section.has(key)) {
        [true, false, false] => Kind::Bars,
        [false, true, false] => Kind::Points,
        [false, false, true] => Kind::Lists,
        _ => {
            let right = "write one of bars, points and lists, such as bars = [\"lost\"]";
            section.problem("bars", right);
            Kind::Bars
        }
    };
    if (kind == Kind::Lists) == section.has("by") {
        let right = "bars and points are over an axis: by = \"rate_mbps\"; lists are over time";
        section.problem("by", right);
    }
    let log = section.truth("log").unwrap_or(false);
    if kind == Kind::Bars && section.has("log") {
        section.problem("log", "only points and lists take it");
    }
    let log_by = section.truth("log_by").unwrap_or(false);
    if kind != Kind::Points && section.has("log_by") {
        section.problem("log_by", "only points take it");
    }
    if id.as_ref().is_some_and(|id| !is_name(id)) {
        section.problem("id", "a plot is named in a-z, 0-9 and _");
    }
    let spec = cells.and_then(|cells| {
        let found = kind_of_row(&section, row.as_ref(), cells)?;
        let (key, columns) = keys.into_iter().find(|(_, columns)| columns.is_some())?;
        let columns = columns?;
        for column in &columns {
            let is_right = |column: &&Column| column.each.is_some() == (kind == Kind::Lists);
            let known = found.columns.iter().filter(is_right);
            let known = known.map(|known| known.name.as_str());
            if !known.clone().any(|known| known == column) {
                let right = suggestion(column, known);
                section.problem(key, format!("the row has no column {column}; {right}"));
            }
        }
        let meant = cells.iter().filter(|cell| {
            let is_meant = |of: &String| matrix::is_meant(of, &cell.name);
            cell.rows.iter().any(|row| row.name == found.name)
                && of.as_ref().is_none_or(|of| of.iter().any(is_meant))
        });
        let meant: Vec<&Cell> = meant.collect();
        if meant.is_empty() {
            (!quick).then(|| section.problem("of", "no cell with this row is like that"));
            return None;
        }
        for (key, axis) in [("by", &by), ("lines", &lines)] {
            let Some(axis) = axis else { continue };
            let values: Option<Vec<&str>> = meant.iter().map(|c| c.parameter(axis)).collect();
            match values {
                None => {
                    let axes = meant[0].parameters.iter().map(|(axis, _)| axis.as_str());
                    let right = suggestion(axis, axes);
                    section.problem(key, format!("[matrix] has no {axis}; {right}"));
                }
                Some(values)
                    if (key, kind) == ("by", Kind::Points)
                        && values.iter().any(|x| x.parse::<f64>().is_err()) =>
                {
                    section.problem("by", format!("{axis} is no number; write bars"));
                }
                Some(_) => {}
            }
        }
        Some(PlotSpec {
            id: id?,
            title: title.unwrap_or_else(|| columns.join(", ")),
            label: label.unwrap_or_else(|| columns.join(", ")),
            row: found.name.clone(),
            columns,
            of,
            kind,
            by,
            lines,
            log,
            log_by,
            error,
        })
    });
    section.finish();
    spec
}

impl Cell {
    /// The cell's value on an axis.
    pub fn parameter(&self, axis: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(known, _)| known == axis);
        found.map(|(_, words)| words.as_str())
    }
}

/// The one cell that a claim compares with.
fn only_cell(section: &Section<'_>, cells: &[Cell], pattern: &str) -> Option<usize> {
    let meant = |(_, cell): &(usize, &Cell)| matrix::is_meant(pattern, &cell.name);
    let meant: Vec<usize> = cells
        .iter()
        .enumerate()
        .filter(meant)
        .map(|(n, _)| n)
        .collect();
    let [one] = meant[..] else {
        let example = &cells[0].name;
        let right = format!("name one cell, such as '{example}'");
        let count = meant.len();
        let problem = format!("{count} cells are like '{pattern}'; {right}");
        return section.refuse("against", problem);
    };
    Some(one)
}

/// The other cells of a claim: one for each cell, selected by axes, or several in named tables.
fn named_cells(
    section: &Section<'_>,
    cells: &[Cell],
    of: &str,
    quick: bool,
) -> Vec<(String, Vec<Option<usize>>)> {
    let keys = section.other_keys().into_iter();
    let tables = keys.filter_map(|key| Some((key, section.text_or_section(key)?.err()?)));
    let tables: Vec<(&str, Section<'_>)> = tables.collect();
    if tables.is_empty() {
        let others = other_cells(section, cells, of, quick);
        return vec![(AGAINST.to_string(), others)];
    }
    let others = tables.iter().map(|(name, axes)| {
        if !is_name(name) {
            section.problem(name, "another cell is named in a-z, 0-9 and _");
        }
        (name.to_string(), other_cells(axes, cells, of, quick))
    });
    others.collect()
}

/// For each cell of a claim, the other cell, which differs in the values of these axes.
fn other_cells(section: &Section<'_>, cells: &[Cell], of: &str, quick: bool) -> Vec<Option<usize>> {
    let mut wanted = Vec::new();
    for axis in section.keys() {
        let value = section.text(axis);
        let known = cells[0].parameters.iter().map(|(known, _)| known.as_str());
        match value {
            _ if !known.clone().any(|known| known == axis) => {
                let right = suggestion(axis, known);
                section.problem(axis, format!("[matrix] has no {axis}; {right}"));
            }
            Some(value) => wanted.push((axis, value)),
            None => {}
        }
    }
    let is_wanted = |axis: &str| wanted.iter().find(|(known, _)| *known == axis);
    let other = |cell: &Cell| {
        let parameters = cell.parameters.iter().map(|(axis, words)| {
            let words = is_wanted(axis).map_or(words, |(_, value)| value);
            (axis.clone(), words.clone())
        });
        let parameters: Vec<_> = parameters.collect();
        cells.iter().position(|cell| cell.parameters == parameters)
    };
    let others = cells.iter().map(|cell| {
        let found = other(cell);
        // The quick part may lack the other cell.
        if let Some((axis, value)) = wanted.first()
            && !(quick || found.is_some())
            && matrix::is_meant(of, &cell.name)
        {
            let right = "the matrix has no such cell";
            let problem = format!("'{value}' in place of '{}': {right}", cell.name);
            section.problem(axis, problem);
        }
        found
    });
    others.collect()
}

/// The id of a section, which must be a valid name and not yet used.
fn new_id(section: &Section<'_>, ids: &mut BTreeSet<String>) -> Option<String> {
    let id = section.required_text("id", "\"pings\"")?;
    if !is_name(&id) || id == START {
        let problem = format!("'{id}' is no name; use a-z, 0-9 and _, and not start");
        section.problem("id", problem);
    } else if !ids.insert(id.clone()) {
        section.problem("id", format!("'{id}' is there twice"));
    }
    Some(id)
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(allowed)
}

/// A field that names a moment.
fn moment<'a>(section: &Section<'a>, key: &'a str, times: &[(String, Duration)]) -> Option<String> {
    let id = section.text(key)?;
    known_moment(section, key, &id, times).then_some(id)
}

fn known_moment(section: &Section<'_>, key: &str, id: &str, times: &[(String, Duration)]) -> bool {
    let is_known = time_of(times, id).is_some();
    if !is_known {
        let known = suggestion(id, times.iter().map(|(known, _)| known.as_str()));
        let problem = format!("no [[at]] before it has id = \"{id}\"; {known}");
        section.problem(key, problem);
    }
    is_known
}

fn window(section: &Section<'_>, times: &[(String, Duration)]) -> Option<[String; 2]> {
    let ids = section.texts("window")?;
    let Ok(window) = <[String; 2]>::try_from(ids) else {
        return section.refuse("window", "name two moments, such as [\"start\", \"end\"]");
    };
    let [from, to] = &window;
    let known = window
        .iter()
        .all(|id| known_moment(section, "window", id, times));
    let found = Window::between(times, &window)?;
    if known && found.to <= found.from {
        section.problem("window", format!("\"{to}\" does not come after \"{from}\""));
    }
    Some(window)
}

/// Arranges runs in rounds over all cells. Consecutive runs on the same network share it.
fn networks(cells: &[Cell]) -> Result<Vec<NetworkRuns>, String> {
    let mut networks: Vec<NetworkRuns> = Vec::new();
    let mut last: Option<&NetworkSpec> = None;
    let runs: Vec<u64> = cells.iter().map(|cell| cell.runs).collect();
    for (number, cell) in matrix::rounds(&runs) {
        let spec = &cells[cell].network;
        if spec.fresh || last != Some(spec) {
            networks.push(NetworkRuns { runs: Vec::new() });
            last = Some(spec);
        }
        let run = Run {
            number,
            cell,
            pairs: Vec::new(),
        };
        networks.last_mut().expect("just pushed").runs.push(run);
    }
    for network in &mut networks {
        choose_pairs(network, cells)?;
    }
    Ok(networks)
}

/// Chooses the pairs of each run. Pairs that communicate in every run are new to no run.
fn choose_pairs(network: &mut NetworkRuns, cells: &[Cell]) -> Result<(), String> {
    let mut used = BTreeSet::new();
    for run in &network.runs {
        let cell = &cells[run.cell];
        for stream in cell.traffic.iter().filter(|s| !s.kind.is_new_each_run()) {
            let topology = &cell.network.topology;
            used.extend(stream.kind.pairs(topology, &BTreeSet::new())?);
        }
    }
    for run in &mut network.runs {
        let cell = &cells[run.cell];
        for stream in &cell.traffic {
            let pairs = stream.kind.pairs(&cell.network.topology, &used);
            let pairs = pairs.map_err(|problem| format!("{}: {problem}", stream.id))?;
            used.extend(pairs.iter().copied());
            run.pairs.push(pairs);
        }
    }
    Ok(())
}
