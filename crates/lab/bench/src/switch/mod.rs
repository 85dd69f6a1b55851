//! `auster bench switch`: measures how a switch handles a controller's messages, over TCP, TLS and
//! QUIC.
//!
//! The measuring tool that Durner and Kellerer (*The cost of Security in the SDN control Plane*)
//! found missing: auster plays the relaying controller, and its own probes show what the data plane
//! does. Transports take turns in short blocks, so that changes on the machine affect all of them
//! alike. No samples are trimmed: means are reported with medians, tails and losses.

mod flow_mod;
mod lane;
mod packet_in;
mod report;
mod set_up;
mod subject;
mod tables;
mod tap;

use std::time::Duration;

use clap::ValueEnum;
use clock::SplitMix64;
use net::method::Method;
use net::tls::{Role, Security};
use serde::Serialize;

use crate::certificates::CredentialArgs;
use ::report::output::OutputArgs;
use cli::failure::Failure;
use cli::flag::whole;
use cli::interrupt::Interrupt;
use cli::progress::Progress;
use lane::{Kind, Lane, Otherwise};
use measure::distinct;
use report::{Figures, Samples};
use set_up::Ladder;
use subject::Subject;
use testbed::ledger::Ledger;
use testbed::plane::Transport;

/// Measure a switch: packet-in delay by part, flow-mod delay by barrier and by data plane, flow
/// set-up rate, read rate and capacity of its table
///
/// Without TARGET and --listen, the bench makes an Open vSwitch for the run in network namespaces
/// (as root), connects it over tcp:, ssl: and quic: at once, and removes it afterwards.
///
/// The bench dials your switch at TARGET, or waits for it with --listen. Link two of its ports to
/// interfaces of this machine: probes leave from --ingress and arrive at --egress, as frames of
/// EtherType 0x88b5. The bench adds and removes flow entries for these frames only.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// A switch that listens: tcp:HOST[:PORT], ssl:, quic:, unix:FILE
    #[arg(value_name = "TARGET", conflicts_with = "listen")]
    #[serde(skip)]
    target: Option<Method>,
    /// Listen for your switch: ptcp:[PORT][:HOST], pssl:, pquic:, punix:FILE
    #[arg(long, value_name = "METHOD")]
    #[serde(skip)]
    listen: Option<Method>,
    /// The interface of this machine that sends probes
    #[arg(long, value_name = "IF")]
    #[serde(skip)]
    ingress: Option<String>,
    /// The interface of this machine that receives probes
    #[arg(long, value_name = "IF")]
    #[serde(skip)]
    egress: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    credentials: CredentialArgs,
    /// Transports to the bench's own Open vSwitch
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["tcp", "tls", "quic"])]
    #[serde(skip)]
    transports: Vec<Transport>,
    /// Measure only these, instead of everything
    #[arg(long, value_enum, value_delimiter = ',')]
    #[serde(skip)]
    only: Vec<Figure>,
    /// Runs of packet-in and of flow-mod, per transport
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole(1..=1_000_000))]
    runs: u32,
    /// Runs of one transport before the next takes its turn
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole(1..=1000))]
    block: u32,
    /// Further flow entries in the table while packet-in and flow-mod are measured
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=1_000_000))]
    entries: u32,
    /// The time between two packets of the train that shows when a flow-mod is in force
    #[arg(long, value_name = "US", default_value_t = 50, value_parser = whole(10..=10_000))]
    spacing_us: u32,
    /// The highest rate of new flows to offer, per second
    #[arg(
        long, value_name = "RATE", default_value_t = 64_000,
        value_parser = whole(1000..=1_000_000)
    )]
    #[serde(rename = "rate_max_per_s")]
    rate_max: u32,
    /// Time to offer each rate
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = whole(10..=60_000))]
    step_ms: u32,
    /// Entries in the table while it is read
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = whole(1..=1_000_000))]
    read_entries: u32,
    /// Reads per transport
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole(1..=100_000))]
    reads: u32,
    /// Entries at which the search for the table's capacity ends
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = whole(1..=4_000_000))]
    capacity_max: u32,
    /// The seed of the pauses between runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    #[serde(skip)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Figure {
    /// Delay of a flow's first packet, by part
    PacketIn,
    /// Time until a flow-mod is in force, by barrier reply and by data plane
    FlowMod,
    /// New flows per second
    SetUp,
    /// Flow entries read per second
    Read,
    /// Flow entries that fit in the table
    Capacity,
}

/// The longest pause between exchanges. Pauses are random, so that exchanges do not fall into step
/// with periodic work on the machine or a timer in the switch.
const PAUSE_MAX_US: u64 = 2000;

/// `settings` of the document.
#[derive(Serialize)]
struct Settings<'a> {
    target: String,
    transports: Vec<&'static str>,
    #[serde(flatten)]
    args: &'a Args,
    frame_bytes: usize,
}

pub fn run(args: Args) -> Result<(), Failure> {
    args.check()?;
    let measurement = args.output.begin()?;
    let interrupt = Interrupt::take()?;
    let failed = |error| Failure::machine(format!("cannot start: {error}"));
    let runtime = crate::runtime().map_err(failed)?;
    let mut subject = args.subject(&runtime, &interrupt)?;
    let first = &subject.lanes[0];
    args.output.say(format_args!(
        "Measuring {} ({}) over {}\n",
        args.target_name(),
        first.description,
        transports(&subject.lanes).join(", ")
    ));
    let samples = subject.lanes.iter().map(|_| Samples::default()).collect();
    let mut bench = Bench {
        args: &args,
        lanes: &mut subject.lanes,
        samples,
        interrupt: &interrupt,
        progress: Progress::start(),
        random: SplitMix64::new(args.seed),
    };
    runtime.block_on(bench.measure())?;
    bench.progress.clear();
    let samples = bench.samples;
    let figures: Vec<Figures> = subject
        .lanes
        .iter()
        .zip(&samples)
        .map(|(lane, s)| Figures::of(lane, s))
        .collect();
    report::keep(&measurement.results, &figures, &samples)?;
    let text = report::text(&figures);
    let settings = Settings {
        target: args.target_name(),
        transports: transports(&subject.lanes),
        args: &args,
        frame_bytes: tap::FRAME_BYTES,
    };
    measurement.conclude("switch", settings, (figures, interrupt.is_set()), &text)
}

struct Bench<'a> {
    args: &'a Args,
    lanes: &'a mut [Lane],
    /// Samples by lane.
    samples: Vec<Samples>,
    interrupt: &'a Interrupt,
    progress: Progress,
    random: SplitMix64,
}

impl Bench<'_> {
    /// Measures all figures asked for, or until interrupted; then removes the installed entries.
    async fn measure(&mut self) -> Result<(), Failure> {
        let only = &self.args.only;
        let is_wanted = |figure: &&Figure| only.is_empty() || only.contains(figure);
        for figure in Figure::value_variants().iter().filter(is_wanted) {
            match figure {
                Figure::PacketIn => self.packet_in().await?,
                Figure::FlowMod => self.flow_mod().await?,
                Figure::SetUp => self.set_up().await?,
                Figure::Read => self.read().await?,
                Figure::Capacity => self.capacity().await?,
            }
        }
        self.lanes[0].clear_all().await
    }

    async fn packet_in(&mut self) -> Result<(), Failure> {
        self.prepare(Otherwise::ToController).await?;
        for turn in turns(self.lanes.len(), self.args.runs, self.args.block) {
            self.listen(turn.lane, true).await?;
            // The first probe's flow is in neither the switch's cache nor the processor's.
            packet_in::data_path(&mut self.lanes[turn.lane], u32::MAX).await?;
            for number in turn.runs.clone() {
                if self.interrupt.is_set() {
                    return Ok(());
                }
                let pauses = [self.pause(), self.pause()];
                let lane = &mut self.lanes[turn.lane];
                let parts = packet_in::run(lane, number, pauses).await?;
                self.samples[turn.lane].packet_in.push(parts);
            }
            self.listen(turn.lane, false).await?;
            self.say("packet-in", turn.runs.end);
        }
        Ok(())
    }

    /// Turns packet-ins on or off for a lane, if there are several lanes.
    async fn listen(&mut self, lane: usize, to_packet_ins: bool) -> Result<(), Failure> {
        match self.lanes.len() {
            1 => Ok(()),
            _ => self.lanes[lane].listen(to_packet_ins).await,
        }
    }

    async fn flow_mod(&mut self) -> Result<(), Failure> {
        let spacing = Duration::from_micros(self.args.spacing_us.into());
        self.prepare(Otherwise::Back).await?;
        for turn in turns(self.lanes.len(), self.args.runs, self.args.block) {
            for _ in turn.runs.clone() {
                if self.interrupt.is_set() {
                    return Ok(());
                }
                tokio::time::sleep(self.pause()).await;
                let outcome = flow_mod::run(&mut self.lanes[turn.lane], spacing).await?;
                self.samples[turn.lane].flow_mod.push(outcome);
            }
            self.say("flow-mod", turn.runs.end);
        }
        Ok(())
    }

    async fn set_up(&mut self) -> Result<(), Failure> {
        let settings = set_up::Settings {
            first_per_s: 1000,
            max_per_s: self.args.rate_max,
            step: Duration::from_millis(self.args.step_ms.into()),
        };
        for samples in &mut self.samples {
            samples.set_up = Some(Ladder::new(settings));
        }
        loop {
            let mut is_over = true;
            for n in 0..self.lanes.len() {
                let Some(rate) = self.samples[n].set_up.as_ref().and_then(Ladder::next) else {
                    continue;
                };
                if self.interrupt.is_set() {
                    return Ok(());
                }
                let transport = self.lanes[n].transport;
                self.progress
                    .say(format_args!("set-up: {transport}, {rate} new flows/s"));
                self.listen(n, true).await?;
                let step = set_up::step(&mut self.lanes[n], rate, settings).await?;
                if let Some(ladder) = &mut self.samples[n].set_up {
                    ladder.tell(step);
                }
                self.listen(n, false).await?;
                is_over = false;
            }
            if is_over {
                return Ok(());
            }
        }
    }

    async fn read(&mut self) -> Result<(), Failure> {
        let entries = self.args.read_entries;
        self.lanes[0].clear_all().await?;
        self.lanes[0].fill(Kind::Ballast, entries).await?;
        for samples in &mut self.samples {
            samples.read_entries = entries;
        }
        for turn in turns(self.lanes.len(), self.args.reads, 1) {
            if self.interrupt.is_set() {
                return Ok(());
            }
            let read = tables::read(&mut self.lanes[turn.lane], Kind::Ballast).await?;
            self.samples[turn.lane].reads.push(read);
            self.say("read", turn.runs.end);
        }
        Ok(())
    }

    async fn capacity(&mut self) -> Result<(), Failure> {
        let max = self.args.capacity_max;
        for (lane, samples) in self.lanes.iter_mut().zip(&mut self.samples) {
            if self.interrupt.is_set() {
                return Ok(());
            }
            let (transport, progress) = (lane.transport, &self.progress);
            let go_on = |added| {
                progress.say(format_args!(
                    "capacity: {transport}, {added} of {max} entries"
                ));
                !self.interrupt.is_set()
            };
            samples.capacity = Some(tables::capacity(lane, max, go_on).await?);
        }
        Ok(())
    }

    /// Sets the table, which all lanes share.
    async fn prepare(&mut self, otherwise: Otherwise) -> Result<(), Failure> {
        self.lanes[0].prepare(otherwise, self.args.entries).await
    }

    fn say(&self, what: &str, done: u32) {
        let of = if what == "read" {
            self.args.reads
        } else {
            self.args.runs
        };
        let last = match what {
            "packet-in" => self.lines(|s| s.packet_in.last().copied()?.map(|p| p.end_to_end_ms)),
            "flow-mod" => self.lines(|s| s.flow_mod.last().copied()?.map(|o| o.data_plane_ms)),
            _ => self.lines(|s| s.reads.last().map(|read| read.ms)),
        };
        self.progress
            .say(format_args!("{what}: run {done} of {of}, last {last}"));
    }

    /// The last figure of each transport.
    fn lines(&self, last: impl Fn(&Samples) -> Option<f64>) -> String {
        let lanes = self.lanes.iter().zip(&self.samples);
        let one = |(lane, samples): (&Lane, &Samples)| {
            let ms = last(samples).map_or("-".to_owned(), |ms| format!("{ms:.3} ms"));
            format!("{} {ms}", lane.transport)
        };
        lanes.map(one).collect::<Vec<_>>().join(", ")
    }

    fn pause(&mut self) -> Duration {
        Duration::from_micros(self.random.next() % PAUSE_MAX_US)
    }
}

/// Runs of one lane in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    lane: usize,
    runs: std::ops::Range<u32>,
}

/// The turns of the lanes, with another lane first in every round.
fn turns(lane_count: usize, runs: u32, block: u32) -> impl Iterator<Item = Turn> {
    (0..runs.div_ceil(block)).flat_map(move |round| {
        let first = round * block;
        (0..lane_count).map(move |n| Turn {
            lane: (n + round as usize) % lane_count,
            runs: first..(first + block).min(runs),
        })
    })
}

fn transports(lanes: &[Lane]) -> Vec<&'static str> {
    lanes.iter().map(|lane| lane.transport).collect()
}

impl Args {
    fn method(&self) -> Option<&Method> {
        self.target.as_ref().or(self.listen.as_ref())
    }

    fn target_name(&self) -> String {
        match self.method() {
            Some(method) => format!("the switch at {method}"),
            None => "an Open vSwitch of our own".to_owned(),
        }
    }

    fn check(&self) -> Result<(), Failure> {
        if let Some(target) = self.target.as_ref().filter(|method| method.is_passive()) {
            return Err(Failure::usage(format!(
                "{target} waits for a switch: write --listen {target}"
            )));
        }
        if let Some(listen) = self.listen.as_ref().filter(|method| !method.is_passive()) {
            return Err(Failure::usage(format!(
                "--listen {listen}: put a 'p' before it to listen, or leave --listen out to dial"
            )));
        }
        let interfaces = [&self.ingress, &self.egress];
        let given = interfaces.iter().filter(|name| name.is_some()).count();
        match (self.method(), given) {
            (Some(method), 0 | 1) => Err(Failure::usage(format!(
                "{method}: give --ingress IF and --egress IF, which are linked to two ports of the \
                 switch"
            ))),
            (None, 1 | 2) => Err(Failure::usage(
                "--ingress and --egress are for a switch of yours: give TARGET or --listen METHOD",
            )),
            (Some(_), _) if self.ingress == self.egress => Err(Failure::usage(
                "--ingress and --egress are the same interface; give two",
            )),
            _ => Ok(()),
        }
    }

    fn subject(
        &self,
        runtime: &tokio::runtime::Runtime,
        interrupt: &Interrupt,
    ) -> Result<Subject, Failure> {
        let token = std::process::id();
        let Some(method) = self.method() else {
            if nix::unistd::geteuid().is_root() {
                Ledger::sweep();
            }
            let transports = distinct(self.transports.iter().copied());
            return subject::own(runtime, &transports, token);
        };
        let security = self.security(method)?;
        let of = |name: &Option<String>| name.clone().unwrap_or_default();
        let (ingress, egress) = (of(&self.ingress), of(&self.egress));
        let say = |line: &str| self.output.say(format_args!("{line}"));
        let interfaces = (ingress.as_str(), egress.as_str());
        runtime.block_on(subject::foreign(
            method, &security, interfaces, token, interrupt, say,
        ))
    }

    fn security(&self, method: &Method) -> Result<Security, Failure> {
        match self.credentials.load(Role::Switch)? {
            Ok(security) => Ok(security),
            Err(_) if method.is_secure() => {
                let wanted = "needs certificates on both sides; give -p KEY -c CERT -C CA";
                Err(Failure::usage(format!("{method}: {wanted}")))
            }
            Err(_) => Ok(Security::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_take_turns_and_each_run_is_there_once() {
        let all: Vec<Turn> = turns(3, 25, 10).collect();
        assert_eq!(all.len(), 9);
        for lane in 0..3 {
            let runs: Vec<u32> = all
                .iter()
                .filter(|t| t.lane == lane)
                .flat_map(|t| t.runs.clone())
                .collect();
            assert_eq!(runs, (0..25).collect::<Vec<_>>());
        }
        let first_of_rounds: Vec<usize> = all.iter().step_by(3).map(|t| t.lane).collect();
        assert_eq!(first_of_rounds, [0, 1, 2]);
    }
}
