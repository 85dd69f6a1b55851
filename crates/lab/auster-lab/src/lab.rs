//! `auster lab`: a network of real Open vSwitch switches, hosts and impaired links.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use serde_json::json;

use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::output::say;
use scenario::experiment::{self, Owner};
use testbed::impairment::Impairment;
use testbed::ledger::Ledger;
use testbed::network::{Network, Options};
use testbed::plane::{Controller, ForwardArgs, Plane, Transport};
use testbed::topology_file::topology;
use testbed::{link, plane, tools};

use crate::{model, papers};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Run an experiment on real networks and print its figures
    #[command(after_help = "\
Example:
  auster lab run scenarios/first-contact.toml --once
  auster lab run scenarios/first-contact.toml --transport tls --out results/first-contact
  auster lab run scenarios/ring-failure.toml --once -o results/mine \\
      --controller 'mine=python3 mine.py --listen {address}:{port}'")]
    Run(experiment::Args),
    /// Check scenarios without running them, and report every mistake with its line
    #[command(after_help = "\
Example:
  auster lab check scenarios/ring-failure.toml scenarios/controller-restart.toml")]
    Check(experiment::CheckArgs),
    /// Print the JSON Schema of scenarios, for completion and explanations in editors
    #[command(after_help = "\
Example:
  auster lab schema > scenario.json")]
    Schema,
    /// Bring a network up and leave it up
    #[command(after_help = "\
Example:
  auster lab up ring,4                                     # auster is the controller
  auster lab up linear,10 --controller tcp:127.0.0.1:6653  # yours is
  auster lab up leaf-spine,2x4 --links delay_ms=1,loss_percent=0.1")]
    Up(Box<UpArgs>),
    /// Take networks down
    #[command(after_help = "\
Example:
  auster lab down --all")]
    Down(DownArgs),
    /// Show the networks that are up
    #[command(after_help = "\
Example:
  auster lab list
  auster lab list --json")]
    List(ListArgs),
    /// Run a command inside a host, or beside the switches
    #[command(after_help = "\
Example:
  auster lab exec au1a2b h1 -- ping 10.0.0.2
  auster lab exec au1a2b sw -- ovs-ofctl -O OpenFlow13 dump-flows s1

au1a2b is a name that `auster lab list` shows.")]
    Exec(ExecArgs),
    /// Carry frames between TAP devices, with delay, loss and rate; used by the lab itself
    #[command(
        hide = true,
        after_help = "\
Example:
  auster lab link ns1:tap0=ns2:tap0,delay_ms=5,loss_percent=1 --seed 7"
    )]
    Link(link::Args),
    /// Carry bytes from a port inside a namespace to a controller outside; used by the lab itself
    #[command(
        hide = true,
        after_help = "\
Example:
  auster lab forward au1a2b-c 192.168.255.1:6653 tcp:127.0.0.1:6653"
    )]
    Forward(ForwardArgs),
}

#[derive(clap::Args)]
pub struct UpArgs {
    /// single,N | linear,N | ring,N | tree,depth=D,fanout=F | leaf-spine,SPINESxLEAVES |
    /// fat-tree,k=K | FILE.toml
    topology: String,
    /// Hosts per edge switch, instead of the topology's number
    #[arg(long, value_name = "N")]
    hosts: Option<usize>,
    /// Choose the controller: auster, none (each switch learns by itself) or tcp:HOST:PORT
    #[arg(long, value_name = "METHOD", default_value = "auster")]
    controller: String,
    /// The transport of OpenFlow between switches and auster
    #[arg(long, default_value = "tcp")]
    transport: Transport,
    /// Impair all links between switches, such as delay_ms=5,loss_percent=1
    #[arg(long, value_name = "IMPAIRMENT")]
    links: Option<Impairment>,
    /// Impair the link between switches and controller
    #[arg(long, value_name = "IMPAIRMENT")]
    control: Option<Impairment>,
    /// Join switches by OVS patch ports: for many switches, but without real hops
    #[arg(long)]
    patch: bool,
    /// The seed of the impaired links: the same seed loses the same frames
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct DownArgs {
    /// The lab's name, from `auster lab list`
    name: Option<String>,
    /// Every lab that `up` left up; labs of a running `lab run` end with it
    #[arg(long)]
    all: bool,
}

#[derive(clap::Args)]
pub struct ListArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct ExecArgs {
    /// The lab's name, from `auster lab list`
    name: String,
    /// A host such as h1; `sw` is the switches' side, `c` the controller's
    host: String,
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn check(args: &experiment::CheckArgs) -> Result<(), Failure> {
    experiment::check(args, |owner, path| match owner {
        Owner::Model => model::check(path),
        Owner::Papers => papers::check(path),
    })
}

pub fn run(command: Command) -> Result<(), Failure> {
    let is_part_of_a_lab = matches!(command, Command::Link(_) | Command::Forward(_));
    if !is_part_of_a_lab && nix::unistd::geteuid().is_root() {
        Ledger::sweep();
    }
    match command {
        Command::Run(args) => experiment::run(&args),
        Command::Check(args) => check(&args),
        Command::Schema => {
            say!("{:#}", experiment::schema());
            Ok(())
        }
        Command::Up(args) => up(*args),
        Command::Down(args) => down(args),
        Command::List(args) => list(args),
        Command::Exec(args) => exec(args),
        Command::Link(args) => link::run(args),
        Command::Forward(args) => plane::forward(args),
    }
}

fn up(args: UpArgs) -> Result<(), Failure> {
    let controller = Controller::parse(&args.controller, args.transport)?;
    let mut topology = topology(&args.topology, args.hosts)?;
    controller.check(&topology)?;
    if let Some(links) = args.links {
        let config = links.config().map_err(Failure::usage)?;
        topology
            .links
            .iter_mut()
            .for_each(|link| link.impairment = config.clone());
    }
    let control = args
        .control
        .unwrap_or_default()
        .config()
        .map_err(Failure::usage)?;
    let options = Options {
        patch: args.patch,
        seed: args.seed,
        control,
        ..Options::default()
    };
    let mut network = Network::start(topology, &controller.to_string(), &options)?;
    Plane::start(&mut network, &controller)?;
    say!("{}", network.id());
    network.release()
}

fn down(args: DownArgs) -> Result<(), Failure> {
    tools::require_network_tools()?;
    match args.name {
        Some(name) => lab(&name)?.remove(),
        None => Ledger::all()
            .into_iter()
            .filter(|lab| lab.record.owner.is_none())
            .for_each(Ledger::remove),
    }
    Ok(())
}

fn list(args: ListArgs) -> Result<(), Failure> {
    let labs = Ledger::all();
    if args.json {
        let records: Vec<_> = labs.iter().map(|lab| &lab.record).collect();
        say!("{:#}", json!({ "labs": records }));
        return Ok(());
    }
    if labs.is_empty() {
        say!("No lab is up. Start one: auster lab up ring,4");
        return Ok(());
    }
    say!(
        "{:8} {:24} {:>8} {:>6} {:24} UP",
        "NAME",
        "TOPOLOGY",
        "SWITCHES",
        "HOSTS",
        "CONTROLLER"
    );
    for lab in labs {
        let record = &lab.record;
        let minutes = unix_seconds().saturating_sub(record.started_unix_s) / 60;
        say!(
            "{:8} {:24} {:>8} {:>6} {:24} {} min{}",
            record.id,
            record.topology,
            record.switch_count,
            record.namespaces.len().saturating_sub(2),
            record.controller,
            minutes,
            if record.owner.is_some() {
                ", ends with its `lab run`"
            } else {
                ""
            },
        );
    }
    Ok(())
}

fn exec(args: ExecArgs) -> Result<(), Failure> {
    tools::require_network_tools()?;
    let lab = lab(&args.name)?;
    let namespace = lab.namespace(&args.host);
    if !lab.record.namespaces.contains(&namespace) {
        return Err(Failure::usage(format!(
            "lab {} has no host {}",
            args.name, args.host
        )));
    }
    let mut command = tools::lab_command(&lab, Some(&namespace), &args.command[0]);
    command
        .args(&args.command[1..])
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit());
    // The command is the user's, not the lab's: same process group, so that Ctrl-C reaches it.
    let error = command
        .process_group(nix::unistd::getpgrp().as_raw())
        .exec();
    Err(Failure::machine(format!("ip: {error}")))
}

fn lab(name: &str) -> Result<Ledger, Failure> {
    let found = Ledger::all().into_iter().find(|lab| lab.id() == name);
    found.ok_or_else(|| Failure::usage(format!("no lab is called {name}; see auster lab list")))
}
