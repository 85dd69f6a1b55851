//! Turns flags into a plan, or into one line that names the flags that make no sense.

use std::time::Duration;

use clap::ValueEnum;
use net::method::{Method, Transport};
use net::tls::{Role, Security};

use super::attack::Attack;
use super::layout::SOURCES_MAX;
use super::outstanding::Wanted;
use super::plan::{Mode, Plan};
use super::switch::{Announce, Profile, Traffic};
use super::target::PORT;
use super::{Args, ModeArg, SubjectArgs, Workload};
use crate::certificates::CredentialArgs;
use cli::failure::Failure;

pub const SWITCHES_MAX: u32 = 10_000;
const PORTS_MAX: u32 = 1000;
/// The free slots of one switch are numbered in fewer bits than a buffer id has.
const WINDOW_MAX: usize = 1 << 16;
const WINDOW_DEFAULT: usize = 512;
/// The window for learning, in modes with a smaller window: it is not measured.
const LEARN_WINDOW: usize = 64;
/// The number of switches above which one ARP per switch, flooded to all others, is more than the
/// load itself.
const ARP_SWITCHES_MAX: u32 = 256;
pub const RATE_MAX: f64 = 1e8;
const STORM_RATE_DEFAULT: f64 = 100_000.0;
const SECONDS_MAX: f64 = 86_400.0;

/// A controller to measure.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    pub kind: SubjectKind,
}

#[derive(Clone, Debug)]
pub enum SubjectKind {
    /// A controller that is already running.
    Method(Method),
    Command {
        transport: Transport,
        words: String,
    },
}

impl Subject {
    pub fn transport(&self) -> String {
        match &self.kind {
            SubjectKind::Method(Method::Dial(transport, ..)) => transport.to_string(),
            SubjectKind::Method(_) => "unix".to_string(),
            SubjectKind::Command { transport, .. } => transport.to_string(),
        }
    }

    /// The address where it runs.
    pub fn method(&self) -> Option<String> {
        match &self.kind {
            SubjectKind::Method(method) => Some(method.to_string()),
            SubjectKind::Command { .. } => None,
        }
    }

    /// The command that starts it.
    pub fn command(&self) -> Option<String> {
        match &self.kind {
            SubjectKind::Method(_) => None,
            SubjectKind::Command { words, .. } => Some(words.clone()),
        }
    }
}

pub struct Settings {
    pub subjects: Vec<Subject>,
    /// The plan of every run; the method is that of each subject.
    pub plan: Plan,
    pub rounds: u32,
    pub keep: bool,
    pub pid: Option<i32>,
}

impl Settings {
    pub fn resolve(args: &Args) -> Result<Settings, Failure> {
        let subjects = subjects(&args.subjects)?;
        let switch_count = whole("--switches", args.switches, 1, SWITCHES_MAX)?;
        let macs = whole("--macs", args.macs, 1, SOURCES_MAX)?;
        let ports = whole("--ports", args.ports, 2, PORTS_MAX)?;
        let rounds = whole("--rounds", args.rounds, 1, 10_000)?;
        let mode = mode(args)?;
        let workload = args.workload;
        check(args, mode)?;
        let timeout = seconds("--timeout", args.timeout / 1e3, 1e-3)?;
        let window_max = match workload {
            // No host is in two exchanges at once.
            Workload::ArpIp => macs / 2,
            _ => macs,
        };
        let window = window(args, window_max, mode)?;
        let in_flight_max = match mode {
            // Packet-ins due until the oldest is given up, and as many again.
            Mode::Open { rate } => {
                let each = rate / f64::from(switch_count) * timeout.as_secs_f64();
                (each * 2.0).clamp(64.0, WINDOW_MAX as f64) as usize
            }
            _ => window,
        };
        let learn_window = window.max(LEARN_WINDOW.min(macs as usize));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let thread_count = args.threads.unwrap_or(cores);
        whole("--threads", thread_count as u32, 1, 1024)?;
        // One half before the storm, one half during it.
        let interval_count = match workload {
            Workload::Storm => 2,
            // Before, during and after.
            Workload::Attack => 3,
            _ => 1,
        };
        let announce = args.announce.unwrap_or(match switch_count {
            ..=ARP_SWITCHES_MAX => Announce::Arp,
            _ => Announce::Keepalive,
        });
        let security = security(&args.credentials, &subjects)?;
        let nobody = Method::DialUnix("nobody".into());
        let plan = Plan {
            method: nobody,
            security,
            profile: Profile {
                version: args.of,
                is_buffered: args.buffered,
                wanted: args.answer,
                window,
                learn_window,
                in_flight_max: in_flight_max.max(learn_window),
                timeout_ns: timeout.as_nanos() as u64,
                settle_ns: seconds("--settle", args.settle / 1e3, 0.0)?.as_nanos() as u64,
                ready_max_ns: seconds("--ready-max", args.ready_max, 0.1)?.as_nanos() as u64,
                announce,
                traffic: match workload {
                    Workload::Hosts => Traffic::Paired,
                    Workload::Paths => Traffic::Across,
                    Workload::ArpIp => Traffic::Exchanges,
                    _ => Traffic::ToDestination,
                },
            },
            switch_count: switch_count as u16,
            port_count: ports,
            source_count: macs,
            dpid_first: args.dpid_first,
            connect_group: 1,
            connect_pause: Duration::ZERO,
            thread_count: thread_count.min(switch_count as usize),
            mode,
            workload,
            storm_rate: rate(
                "--storm-rate",
                args.storm_rate.unwrap_or(STORM_RATE_DEFAULT),
            )?,
            attack: Attack {
                rate: args
                    .attack_rate
                    .map(|given| rate("--attack-rate", given))
                    .transpose()?,
                reads: args.attack_reads,
                hosts: whole(
                    "--attack-hosts",
                    args.attack_hosts.unwrap_or(macs),
                    1,
                    SOURCES_MAX,
                )?,
            },
            learn_max: seconds("--learn-max", args.learn_max, 0.0)?,
            warmup: seconds("--warmup", args.warmup, 0.0)?,
            interval: seconds("--duration", args.duration, 0.01)? / interval_count,
            interval_count,
            echo_interval: seconds("--echo-interval", args.echo_interval / 1e3, 1e-3)?,
        };
        Ok(Settings {
            subjects,
            plan,
            rounds,
            keep: args.keep,
            pid: args.pid,
        })
    }

    /// The headline: the load that is measured, and the controllers compared.
    pub fn headline(&self) -> String {
        let plan = &self.plan;
        let how = match plan.mode {
            Mode::Throughput => format!("throughput, {} packet-ins waiting", plan.profile.window),
            Mode::Latency => "latency, 1 packet-in waiting".to_string(),
            Mode::Open { rate } => {
                format!("open loop, {rate} packet-ins/s over all, any number waiting")
            }
        };
        let how = match plan.workload {
            Workload::Macs => how,
            Workload::Hosts => format!("{how}, between hosts"),
            Workload::Paths => format!("{how}, across a line of links"),
            Workload::ArpIp => format!("{how}, each ARP and an IP packet both ways"),
            Workload::Storm => format!("storm of {} packet-ins/s; {how}", plan.storm_rate),
            Workload::Attack => {
                let rate = match plan.attack.rate {
                    Some(rate) => format!("{rate} packet-ins/s"),
                    None => "all the connection takes".to_string(),
                };
                let reads = match plan.attack.reads {
                    true => "reads",
                    false => "reads nothing",
                };
                format!("attacked by one more that sends {rate} and {reads}; {how}")
            }
            Workload::Churn => "churn, 1 connection".to_string(),
        };
        let names: Vec<&str> = self.subjects.iter().map(|s| s.name.as_str()).collect();
        format!(
            "{how} per switch; {} switches x {} hosts, OpenFlow {}, {}; {} x {:.1} s each: {}",
            plan.switch_count,
            plan.source_count,
            plan.profile.version,
            if plan.profile.is_buffered {
                "buffered"
            } else {
                "whole packets"
            },
            self.rounds,
            plan.measured().as_secs_f64(),
            names.join(", "),
        )
    }
}

pub fn subjects(args: &SubjectArgs) -> Result<Vec<Subject>, Failure> {
    let first = match (&args.target, &args.start) {
        (Some(target), _) => SubjectKind::Method(method(target)?),
        (None, Some(command)) => command_kind(command)?,
        (None, None) => {
            return Err(Failure::usage(
                "what is to be measured? give TARGET, such as tcp:127.0.0.1:6653, or --start CMD",
            ));
        }
    };
    let mut kinds = vec![first];
    for text in &args.compare {
        let is_method = !text.contains(char::is_whitespace) && text.contains(':');
        kinds.push(match is_method {
            true => SubjectKind::Method(method(text)?),
            false => command_kind(text)?,
        });
    }
    if args.names.len() > kinds.len() {
        let (names, kinds) = (args.names.len(), kinds.len());
        return Err(Failure::usage(format!(
            "--name is given {names} times for {kinds} controllers"
        )));
    }
    let mut subjects: Vec<Subject> = Vec::new();
    for (at, kind) in kinds.into_iter().enumerate() {
        let mut name = match args.names.get(at) {
            Some(name) => name.clone(),
            None => default_name(&kind),
        };
        if subjects.iter().any(|subject| subject.name == name) {
            name = format!("{name} ({})", at + 1);
        }
        subjects.push(Subject { name, kind });
    }
    Ok(subjects)
}

fn method(text: &str) -> Result<Method, Failure> {
    let method: Method = text.parse().map_err(Failure::usage)?;
    match method {
        Method::Dial(..) => Ok(method),
        Method::DialUnix(_) => Ok(method),
        Method::Listen(..) | Method::ListenUnix(_) => Err(Failure::usage(format!(
            "{text}: the switches dial; write such as tcp:127.0.0.1:6653"
        ))),
    }
}

fn command_kind(text: &str) -> Result<SubjectKind, Failure> {
    let prefixes = [
        ("tcp: ", Transport::Tcp),
        ("ssl: ", Transport::Tls),
        ("quic: ", Transport::Quic),
    ];
    let prefixed = prefixes
        .into_iter()
        .find_map(|(prefix, transport)| Some((text.strip_prefix(prefix)?, transport)));
    let (words, transport) = prefixed.unwrap_or((text, Transport::Tcp));
    if !words.contains(PORT) {
        return Err(Failure::usage(format!(
            "'{words}': write {PORT} where the port goes, so that it listens where it is looked for"
        )));
    }
    Ok(SubjectKind::Command {
        transport,
        words: words.to_string(),
    })
}

/// Returns the program and its first words that are not options.
fn default_name(kind: &SubjectKind) -> String {
    let (transport, words) = match kind {
        SubjectKind::Method(method) => return method.to_string(),
        SubjectKind::Command { transport, words } => (transport, words),
    };
    let words = words
        .split_whitespace()
        .map(|word| word.rsplit('/').next().unwrap_or(word));
    let words = words.take_while(|word| !word.starts_with('-') && !word.contains(PORT));
    let name = words.take(3).collect::<Vec<_>>().join(" ");
    match transport {
        Transport::Tcp => name,
        transport => format!("{name} {transport}"),
    }
}

pub fn rate(flag: &str, rate: f64) -> Result<f64, Failure> {
    match rate > 0.0 && rate <= RATE_MAX {
        true => Ok(rate),
        false => Err(Failure::usage(format!(
            "{flag} {rate}: write a number a second, above 0 and up to {RATE_MAX}"
        ))),
    }
}

fn mode(args: &Args) -> Result<Mode, Failure> {
    match (args.mode, args.rate) {
        (ModeArg::Throughput, None) => Ok(Mode::Throughput),
        (ModeArg::Latency, None) => Ok(Mode::Latency),
        (ModeArg::Open, Some(given)) => Ok(Mode::Open {
            rate: rate("--rate", given)?,
        }),
        (ModeArg::Open, None) => Err(Failure::usage(
            "--mode open needs --rate, the packet-ins a second over all switches",
        )),
        (_, Some(_)) => Err(Failure::usage(
            "--rate is for --mode open; the other modes send as answers come",
        )),
    }
}

/// Refuses a workload whose other flags do not fit it.
fn check(args: &Args, mode: Mode) -> Result<(), Failure> {
    use Workload::{ArpIp, Attack, Churn, Hosts, Paths, Storm};
    let name = args.workload.to_possible_value();
    let name = name.as_ref().map_or("", |value| value.get_name());
    let is = |some: &[Workload]| some.contains(&args.workload);
    let require = |is_so: bool, what: &str| match is_so {
        true => Ok(()),
        false => Err(Failure::usage(what)),
    };
    let has_attack = args.attack_rate.is_some() || args.attack_reads || args.attack_hosts.is_some();
    require(
        is(&[Attack]) || !has_attack,
        "--attack-rate, --attack-reads and --attack-hosts are for --workload attack",
    )?;
    require(
        is(&[Storm]) || args.storm_rate.is_none(),
        "--storm-rate is for --workload storm",
    )?;
    require(
        !is(&[Hosts, ArpIp]) || args.ports > 2 && args.macs > 1,
        &format!(
            "--workload {name} needs hosts behind different ports: --ports 3 and --macs 2 or more"
        ),
    )?;
    require(
        !is(&[Paths]) || args.switches > 1,
        "--workload paths needs links between switches: --switches 2 or more",
    )?;
    require(
        !is(&[ArpIp]) || args.announce.is_none(),
        "--announce is of a destination, and in --workload arp-ip there is none",
    )?;
    let follows = !matches!(args.answer, Wanted::FlowMod | Wanted::Both) && !args.buffered;
    require(
        !is(&[Paths, ArpIp]) || follows,
        &format!(
            "--workload {name} follows whole packets until they arrive: --answer any or \
             packet-out, and no --buffered"
        ),
    )?;
    require(
        !is(&[Churn]) || mode == Mode::Throughput,
        "--workload churn sends no packet-ins, so it has no --mode",
    )?;
    require(
        !is(&[Storm, Attack]) || mode != Mode::Throughput,
        &format!(
            "--workload {name} measures delays: give --mode latency, or --mode open and --rate"
        ),
    )?;
    require(
        !is(&[Storm]) || args.switches > 1,
        "--workload storm needs --switches 2 or more: the first one storms, the others are \
         measured",
    )
}

fn window(args: &Args, macs: u32, mode: Mode) -> Result<usize, Failure> {
    let most = WINDOW_MAX.min(macs as usize);
    let window = match (mode, args.window) {
        (Mode::Throughput, Some(window)) => window,
        (Mode::Throughput, None) => WINDOW_DEFAULT.min(most),
        (_, Some(_)) => {
            return Err(Failure::usage(
                "--window is for --mode throughput; latency mode has a window of 1, the open loop \
                 none",
            ));
        }
        (Mode::Latency | Mode::Open { .. }, None) => 1,
    };
    if window == 0 || window > most {
        return Err(Failure::usage(format!(
            "--window {window}: write 1 to {most}, the hosts of --macs or {WINDOW_MAX}"
        )));
    }
    Ok(window)
}

pub fn whole(flag: &str, value: u32, least: u32, most: u32) -> Result<u32, Failure> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(Failure::usage(format!(
            "{flag} {value}: write {least} to {most}"
        ))),
    }
}

pub fn seconds(flag: &str, seconds: f64, least: f64) -> Result<Duration, Failure> {
    if !(least..=SECONDS_MAX).contains(&seconds) {
        return Err(Failure::usage(format!(
            "{flag}: {seconds} s is not from {least} s to {SECONDS_MAX} s"
        )));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn security(args: &CredentialArgs, subjects: &[Subject]) -> Result<Security, Failure> {
    let missing = match args.load(Role::Controller)? {
        Ok(security) => return Ok(security),
        Err(missing) => missing,
    };
    let is_secure = |subject: &&Subject| match &subject.kind {
        SubjectKind::Method(method) => method.is_secure(),
        SubjectKind::Command { transport, .. } => *transport != Transport::Tcp,
    };
    let missing_text = missing.join(" ");
    match subjects.iter().find(is_secure) {
        Some(Subject { name, .. }) => Err(Failure::usage(format!(
            "{name} needs certificates on both sides; give {missing_text} too (auster pki makes \
             them)"
        ))),
        None if missing.len() < 3 => Err(Failure::usage(format!(
            "certificates come as three: {missing_text} is missing"
        ))),
        None => Ok(Security::plain()),
    }
}
