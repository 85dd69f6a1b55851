//! `auster bench network`: what a controller makes of a network, as two of its hosts see it.
//!
//! Between two hosts of a lab of real Open vSwitch switches: round trips of a flow's first packet
//! and of later ones, TCP transfer time by size, loss, jitter and reordering of UDP by rate; each
//! with the network idle and beside traffic that makes new flows. Several controllers, or several
//! transports under one, have a network each and take turns, so that they meet the same machine.

pub mod background;
mod figures;
pub mod icmp;
pub mod iperf;
pub mod order;
mod raw;
mod report;
pub mod stranger;
mod subject;
pub mod tcp;
pub mod udp;

pub use subject::wait_until_reachable;

use std::time::Duration;

use serde::Serialize;

use crate::network::background::Background;
use crate::network::figures::{By, Flow, TcpRun, UdpRun};
use crate::network::icmp::{Icmp, Trial};
use crate::network::iperf::Versions;
use crate::network::raw::Raw;
use crate::network::stranger::{STRANGERS_PER_PORT_MAX, stranger};
use crate::network::subject::Subject;
use crate::network::udp::Pace;
use ::report::output::{Document, OutputArgs};
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;
use testbed::impairment::{self, Impairment};
use testbed::ledger::Ledger;
use testbed::network::Options;
use testbed::plane::{Controller, Transport};
use testbed::tools;
use testbed::topology::Topology;
use testbed::topology_file::topology;

/// Pings of one network before the next has its turn.
const PINGS_AT_ONCE: usize = 10;
const RATE_MBPS_MAX: f64 = 10_000.0;
const SIZE_BYTES_MAX: u64 = 10 << 30;
const BACKGROUND_MAX: f64 = 20_000.0;
#[derive(clap::Args)]
pub struct Args {
    /// The network, as `auster lab up` takes it: single,N | linear,N | ring,N |
    /// tree,depth=D,fanout=F | leaf-spine,SPINESxLEAVES | fat-tree,k=K | FILE.toml
    #[arg(long, value_name = "TOPOLOGY", default_value = "linear,2")]
    topology: String,
    /// Hosts per edge switch: 2, so that background traffic has hosts of its own, or the
    /// topology's own number where that is said in it (single, FILE)
    #[arg(long, value_name = "N")]
    hosts: Option<usize>,
    /// Choose the controllers: auster, none (each switch learns by itself), tcp:HOST:PORT; several
    /// by commas
    #[arg(
        long,
        value_name = "METHOD",
        value_delimiter = ',',
        default_value = "auster"
    )]
    controller: Vec<String>,
    /// The transport of OpenFlow between switches and auster; several by commas
    #[arg(long, value_delimiter = ',', default_value = "tcp")]
    transport: Vec<Transport>,
    /// Impair all links between switches, such as delay_ms=5,loss_percent=1
    #[arg(long, value_name = "IMPAIRMENT")]
    links: Option<Impairment>,
    /// Impair the link between switches and controller
    #[arg(long, value_name = "IMPAIRMENT")]
    control: Option<Impairment>,
    /// The seed of the impaired links: the same seed loses the same frames
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// New flows that are pinged, each with one first and three later packets
    #[arg(long, value_name = "N", default_value_t = 50)]
    pings: usize,
    /// TCP transfers, in bytes; K, M and G are powers of 1024
    #[arg(
        long, value_name = "BYTES", value_delimiter = ',', value_parser = size,
        default_value = "64K,1M,10M"
    )]
    sizes: Vec<u64>,
    /// Transfers of each size
    #[arg(
        long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=1000)
    )]
    repeats: u64,
    /// UDP streams, in Mbit/s of payload
    #[arg(
        long, value_name = "MBPS", value_delimiter = ',', value_parser = rate,
        default_value = "1,5,20"
    )]
    rates: Vec<f64>,
    /// UDP payload of a datagram, in bytes
    #[arg(
        long, value_name = "BYTES", default_value_t = 1470,
        value_parser = clap::value_parser!(u16).range(udp::HEADER_BYTES as i64..=1472)
    )]
    datagram: u16,
    /// How long each UDP stream lasts, in seconds
    #[arg(
        long, value_name = "S", default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    seconds: u64,
    /// Everything again beside this many new flows a second; 0 leaves that out
    #[arg(long, value_name = "FLOWS_PER_S", default_value_t = 100.0, value_parser = flows_per_s)]
    background: f64,
    /// Leave out iperf and iperf3, whose figures stand beside ours as a check
    #[arg(long)]
    no_iperf: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// The requested settings, as the document has them.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    pub topology: String,
    pub switches: usize,
    pub links: usize,
    pub hosts: usize,
    pub from: String,
    pub to: String,
    pub background_from: String,
    pub background_to: String,
    pub controllers: Vec<String>,
    /// Impairments of links between switches, and of the link to the controller, in the syntax of
    /// `--links`.
    pub link_impairment: Option<String>,
    pub control_impairment: Option<String>,
    pub seed: u64,
    pub pings: usize,
    pub sizes_bytes: Vec<u64>,
    pub repeats: u64,
    pub rates_mbps: Vec<f64>,
    pub datagram_bytes: usize,
    pub udp_s: u64,
    pub background_flows_per_s: f64,
    pub iperf: Option<Versions>,
}

/// One controller, idle or beside background traffic.
#[derive(Debug, Serialize)]
pub struct Run {
    pub controller: String,
    pub background_flows_per_s: f64,
    pub background: Background,
    pub icmp: Icmp,
    pub tcp: Vec<TcpRun>,
    pub udp: Vec<UdpRun>,
    #[serde(skip)]
    pub trials: Vec<Trial>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let started = unix_seconds();
    let plan = Plan::of(&args)?;
    tools::require_network_tools()?;
    Ledger::sweep();
    let results = args.output.open()?;
    let interrupt = Interrupt::take()?;
    let settings = &plan.settings;
    args.output
        .say(format_args!("{}", report::heading(settings)));
    let bench = Bench {
        plan: &plan,
        progress: Progress::start(),
        interrupt: interrupt.clone(),
    };
    let mut raw = Raw::new(results.are_kept());
    let runs = bench.run(&mut raw)?;
    drop(bench);
    raw.write(&results)?;
    report::plots(&results, settings, &runs)?;
    let text = report::text(settings, &runs, interrupt.is_set());
    let document = Document::new("network", started, settings, &runs, interrupt.is_set());
    args.output.conclude(&results, &document, &text)
}

/// Everything that was asked for, checked.
struct Plan {
    topology: Topology,
    controllers: Vec<Controller>,
    options: Options,
    cast: Cast,
    settings: Settings,
}

/// Hosts by their place in the topology.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cast {
    from: usize,
    to: usize,
    background_from: usize,
    background_to: usize,
}

impl Plan {
    fn of(args: &Args) -> Result<Plan, Failure> {
        let has_own_hosts = args.topology.starts_with("single");
        let hosts = args.hosts.or((!has_own_hosts).then_some(2));
        let mut topology = topology(&args.topology, hosts)?;
        let cast = Cast::of(&topology).map_err(Failure::usage)?;
        let mut controllers: Vec<Controller> = Vec::new();
        for text in &args.controller {
            for transport in &args.transport {
                let controller = Controller::parse(text, *transport)?;
                controller.check(&topology)?;
                if !controllers.contains(&controller) {
                    controllers.push(controller);
                }
            }
        }
        let strangers = (args.pings + args.rates.len()) * conditions(args.background).len();
        if strangers > STRANGERS_PER_PORT_MAX {
            return Err(Failure::usage(format!(
                "--pings {}: {strangers} new hosts behind one port; give so few that they are at \
                 most {STRANGERS_PER_PORT_MAX}",
                args.pings
            )));
        }
        let config = |words: &Option<Impairment>| {
            let config = words.clone().unwrap_or_default().config();
            config.map_err(Failure::usage)
        };
        let (links, control) = (config(&args.links)?, config(&args.control)?);
        for link in topology.links.iter_mut().filter(|_| args.links.is_some()) {
            link.impairment = links.clone();
        }
        let host = |n: usize| topology.hosts[n].name.clone();
        let settings = Settings {
            topology: topology.name.clone(),
            switches: topology.switches.len(),
            links: topology.links.len(),
            hosts: topology.hosts.len(),
            from: host(cast.from),
            to: host(cast.to),
            background_from: host(cast.background_from),
            background_to: host(cast.background_to),
            controllers: controllers.iter().map(Controller::to_string).collect(),
            link_impairment: args.links.as_ref().map(|_| impairment::words(&links)),
            control_impairment: args.control.as_ref().map(|_| impairment::words(&control)),
            seed: args.seed,
            pings: args.pings,
            sizes_bytes: args.sizes.clone(),
            repeats: args.repeats,
            rates_mbps: args.rates.clone(),
            datagram_bytes: usize::from(args.datagram),
            udp_s: args.seconds,
            background_flows_per_s: args.background,
            iperf: match args.no_iperf {
                true => None,
                false => Some(Versions::here()?),
            },
        };
        let options = Options {
            patch: false,
            seed: args.seed,
            control,
            port_buffer_bytes: None,
        };
        Ok(Plan {
            topology,
            controllers,
            options,
            cast,
            settings,
        })
    }

    fn pace(&self, rate_mbps: f64) -> Pace {
        Pace {
            rate_mbps,
            datagram_bytes: self.settings.datagram_bytes,
            duration: Duration::from_secs(self.settings.udp_s),
        }
    }
}

impl Cast {
    /// The first host and the last one; for the background others at the same switches, if there
    /// are any.
    fn of(topology: &Topology) -> Result<Cast, String> {
        let count = topology.hosts.len();
        if count < 2 {
            let name = &topology.name;
            return Err(format!("{name} has {count} hosts; measuring takes two"));
        }
        let (from, to) = (0, count - 1);
        let beside = |host: usize, taken: &[usize]| {
            let switch = topology.hosts[host].at.switch;
            let free = |n: &usize| topology.hosts[*n].at.switch == switch && !taken.contains(n);
            (0..count).find(free).unwrap_or(host)
        };
        let background_from = beside(from, &[from, to]);
        Ok(Cast {
            from,
            to,
            background_from,
            background_to: beside(to, &[from, to, background_from]),
        })
    }
}

/// New flows a second beside what is measured, one round of everything for each.
fn conditions(background: f64) -> Vec<f64> {
    match background {
        0.0 => vec![0.0],
        rate => vec![0.0, rate],
    }
}

struct Bench<'a> {
    plan: &'a Plan,
    progress: Progress,
    interrupt: Interrupt,
}

impl Bench<'_> {
    /// All figures, or those until the interrupt.
    fn run(&self, raw: &mut Raw) -> Result<Vec<Run>, Failure> {
        let settings = &self.plan.settings;
        let mut subjects = Vec::new();
        for controller in &self.plan.controllers {
            self.progress
                .say(format_args!("starting the network of {controller}"));
            match Subject::start(self.plan, controller, &self.interrupt)? {
                Some(subject) => subjects.push(subject),
                None => return Ok(Vec::new()),
            }
        }
        let mut runs = Vec::new();
        for rate in conditions(settings.background_flows_per_s) {
            let mut round: Vec<Run> = subjects.iter().map(|s| Run::new(&s.label, rate)).collect();
            self.ping(&mut subjects, &mut round)?;
            self.transfer(&mut subjects, &mut round)?;
            self.stream(&mut subjects, &mut round, raw)?;
            for run in &mut round {
                run.icmp = icmp::summarise(&run.trials);
            }
            runs.extend(round);
        }
        raw.runs(&runs);
        Ok(runs)
    }

    fn ping(&self, subjects: &mut [Subject], runs: &mut [Run]) -> Result<(), Failure> {
        let mut left = self.plan.settings.pings;
        while left > 0 && !self.interrupt.is_set() {
            let count = left.min(PINGS_AT_ONCE);
            left -= count;
            for (subject, run) in subjects.iter_mut().zip(&mut *runs) {
                self.tell(run, format_args!("pings of new flows, {left} to go"));
                let numbers = subject.new_strangers(count);
                run.beside(subject, |subject, run| {
                    let (from, to) = (&subject.from, &subject.to);
                    run.trials
                        .extend(icmp::measure(from, to, numbers, &self.interrupt)?);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn transfer(&self, subjects: &mut [Subject], runs: &mut [Run]) -> Result<(), Failure> {
        let settings = &self.plan.settings;
        for &size_bytes in &settings.sizes_bytes {
            for (subject, run) in subjects.iter_mut().zip(&mut *runs) {
                for by in By::all(settings.iperf.is_some()) {
                    if self.interrupt.is_set() {
                        return Ok(());
                    }
                    self.tell(
                        run,
                        format_args!("TCP, {size_bytes} bytes, by {}", by.name()),
                    );
                    run.beside(subject, |subject, run| {
                        run.tcp.push(self.transfers(subject, by, size_bytes));
                        Ok(())
                    })?;
                }
            }
        }
        Ok(())
    }

    fn transfers(&self, subject: &Subject, by: By, size_bytes: u64) -> TcpRun {
        let (mut times_ms, mut failed) = (Vec::new(), 0);
        for _ in 0..self.plan.settings.repeats {
            let took = match by {
                By::Auster => tcp::transfer(&subject.ends, size_bytes),
                By::Tool(tool) => {
                    tool.transfer(&subject.network, &subject.ends, size_bytes, &self.interrupt)
                }
            };
            match took {
                Ok(took) => times_ms.push(took.as_secs_f64() * 1e3),
                Err(_) if self.interrupt.is_set() => break,
                Err(failure) => {
                    failed += 1;
                    tracing::warn!("{failure:?}");
                }
            }
        }
        TcpRun::of(by, size_bytes, times_ms, failed)
    }

    fn stream(
        &self,
        subjects: &mut [Subject],
        runs: &mut [Run],
        raw: &mut Raw,
    ) -> Result<(), Failure> {
        let settings = &self.plan.settings;
        for &rate_mbps in &settings.rates_mbps {
            let pace = self.plan.pace(rate_mbps);
            for (subject, run) in subjects.iter_mut().zip(&mut *runs) {
                for by in By::all(settings.iperf.is_some()) {
                    for flow in by.flows() {
                        if self.interrupt.is_set() {
                            return Ok(());
                        }
                        self.tell(
                            run,
                            format_args!("UDP, {rate_mbps} Mbit/s, by {}", by.name()),
                        );
                        run.beside(subject, |subject, run| {
                            let beside = run.background_flows_per_s;
                            let found = self.one_stream(subject, by, *flow, &pace, beside, raw);
                            run.udp.extend(found?);
                            Ok(())
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Nothing when the interrupt came before the tool's end.
    fn one_stream(
        &self,
        subject: &mut Subject,
        by: By,
        flow: Flow,
        pace: &Pace,
        background: f64,
        raw: &mut Raw,
    ) -> Result<Option<UdpRun>, Failure> {
        let interrupt = &self.interrupt;
        if let By::Tool(tool) = by {
            let said = tool.datagrams(&subject.network, &subject.ends, pace, interrupt);
            return match said {
                Ok(said) => Ok(Some(UdpRun::told(tool, pace, &said))),
                Err(_) if interrupt.is_set() => Ok(None),
                Err(failure) => Err(failure),
            };
        }
        let stream = match flow {
            Flow::Known => udp::stream_known(&subject.ends, pace, &|| interrupt.is_set())?,
            Flow::New => {
                let identity = stranger(subject.new_strangers(1).start);
                let doors = (&subject.from, identity, &subject.to);
                udp::stream_new(&subject.ends, doors, pace, &|| interrupt.is_set())?
            }
        };
        raw.stream(&subject.label, background, flow, pace, &stream);
        Ok(Some(UdpRun::of(flow, pace, &stream)))
    }

    fn tell(&self, run: &Run, what: std::fmt::Arguments) {
        let beside = match run.background_flows_per_s {
            0.0 => "idle".to_string(),
            rate => format!("beside {rate} new flows/s"),
        };
        tracing::info!("{}, {beside}: {what}", run.controller);
        self.progress
            .say(format_args!("{}, {beside}: {what}", run.controller));
    }
}

impl Run {
    fn new(controller: &str, background_flows_per_s: f64) -> Run {
        Run {
            controller: controller.to_string(),
            background_flows_per_s,
            background: Background::default(),
            icmp: Icmp::default(),
            tcp: Vec::new(),
            udp: Vec::new(),
            trials: Vec::new(),
        }
    }

    /// A step of this run, with the background traffic that belongs to it.
    fn beside(
        &mut self,
        subject: &mut Subject,
        step: impl FnOnce(&mut Subject, &mut Run) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let rate = self.background_flows_per_s;
        let source = subject.source.as_ref().filter(|_| rate > 0.0);
        let running = source.map(|source| source.start(rate));
        let done = step(subject, self);
        if let Some(running) = running {
            self.background.add(running.stop()?);
        }
        done
    }
}

/// `64K` and the like.
fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.chars().last() {
        Some('K' | 'k') => (&text[..text.len() - 1], 1 << 10),
        Some('M') => (&text[..text.len() - 1], 1 << 20),
        Some('G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    bytes
        .filter(|bytes| (1..=SIZE_BYTES_MAX).contains(bytes))
        .ok_or_else(|| "write a number of bytes from 1 to 10G, such as 64K".to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok();
    rate.filter(|rate| *rate > 0.0 && *rate <= RATE_MBPS_MAX)
        .ok_or_else(|| format!("write Mbit/s above 0 and up to {RATE_MBPS_MAX}"))
}

fn flows_per_s(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok();
    rate.filter(|rate| *rate >= 0.0 && *rate <= BACKGROUND_MAX)
        .ok_or_else(|| format!("write flows a second from 0 to {BACKGROUND_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_are_read() {
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!((size("10M"), size("1")), (Ok(10 << 20), Ok(1)));
        for wrong in [
            "0",
            "",
            "K",
            "11G",
            "1T",
            "-1",
            "99999999999999999999G",
            "1\u{e9}",
        ] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((rate("2.5"), flows_per_s("0")), (Ok(2.5), Ok(0.0)));
        for wrong in ["0", "-1", "nan", "inf", "x", ""] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert!(flows_per_s("nan").is_err() && flows_per_s("-1").is_err());
    }

    #[test]
    fn the_background_has_hosts_of_its_own_where_there_are_any() {
        let cast = |words: &str, hosts| Cast::of(&Topology::generate(words, hosts).unwrap());
        let of = |from, to, background_from, background_to| Cast {
            from,
            to,
            background_from,
            background_to,
        };
        assert_eq!(cast("linear,2", Some(2)), Ok(of(0, 3, 1, 2)));
        assert_eq!(cast("linear,2", None), Ok(of(0, 1, 0, 1)));
        assert_eq!(cast("single,4", None), Ok(of(0, 3, 1, 2)));
        assert!(cast("single,1", None).is_err());
    }
}
