//! `auster queues`: the order in which an interface sends packets, and their rates.
//!
//! [`plan`] turns a policy map into classes, and [`stated`] does the same with queues that the
//! operator states. [`tc`] makes the queues in the kernel. [`records`] has Open vSwitch make them
//! if its datapath can choose among them. [`keep`] makes in the kernel the queues that a controller
//! has written into the records. [`flows`] keeps data out of the classes of control and puts
//! services into queues. [`verify`] checks with counters whether packets reach their queues.

pub mod flows;
pub mod keep;
pub mod plan;
mod records;
pub mod stated;
pub mod tc;
mod verify;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use driver::ovsdb::Client;
use net::method::Method;
use ovsdb::vswitch::qos::Owner;
use sched::policy::PolicyMap;
use serde_json::json;

use crate::queues::flows::{Steering, Tunnel};
use crate::queues::keep::Keeper;
use crate::queues::plan::{Plan, Rate};
use crate::queues::records::Port;
use crate::queues::stated::{ChosenBy, File, Words};
use crate::queues::tc::{Change, Interface, Root, State};
use crate::relay::stop_signal;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::say;
use cli::runtime::block_on;
use cli::service::Manager;

/// The size of a socket's buffer, if the kernel does not report it.
const SOCKET_BYTES: u32 = 212_992;
/// The folder of Open vSwitch's sockets, unless `OVS_RUNDIR` names another.
const RUN_FOLDER: &str = "/var/run/openvswitch";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The port on which relays listen by default.
const RELAY_PORT: u16 = 6654;

/// The database that Open vSwitch's tools use by default (ovs-vsctl(8)).
fn database_socket() -> PathBuf {
    let folder = std::env::var_os("OVS_RUNDIR").unwrap_or_else(|| RUN_FOLDER.into());
    Path::new(&folder).join("db.sock")
}

fn database_method() -> String {
    format!("unix:{}", database_socket().display())
}

#[derive(clap::Subcommand)]
pub enum Command {
    /// Set the queues of a port: as given, or one for each class of a policy map
    #[command(after_help = "\
Example:
  auster queues set --port s2-eth3 --rate 100mbit \\
      --queue id=1,min=20mbit,max=100mbit,priority=1,dscp=10 --queue id=2,min=60mbit,dscp=18
  auster queues set --port s2-eth3 --queues video.toml
  auster queues set --port s1-eth2 --rate 100mbit --policy in-band.policy

The kernel does it (HTB, filters on the DSCP, short queues), or Open vSwitch where its datapath \
honours set_queue. Doing it twice changes nothing. Queues that auster did not make are left \
alone.")]
    Set(SetArgs),
    /// Show the queues of an interface and their traffic
    #[command(after_help = "\
Example:
  auster queues show --port s1-eth2 --json")]
    Show(ShowArgs),
    /// Remove the queues that auster made, and nothing else
    #[command(after_help = "\
Example:
  auster queues clear --port s1-eth2")]
    Clear(ClearArgs),
    /// Until stopped, create in the kernel the queues that a controller writes to the database
    #[command(after_help = "\
Example:
  auster queues keep --db unix:/var/run/openvswitch/db.sock

It runs beside Open vSwitch, in the same network namespace, for ports whose datapath ignores \
set_queue. What is in effect, or why not, is told in the record: ovs-vsctl --columns=external_ids \
list qos. Queues stay when it is stopped. 'auster relay switch --queues-db' does the same.")]
    Keep(KeepArgs),
    /// Print the flow entries that put a service's packets into a queue, or that steer a tunnel and
    /// clear control's DSCPs from data
    #[command(after_help = "\
Example:
  auster queues flows --queues video.toml --into 1 --match udp,nw_dst=10.0.0.2,tp_dst=5004 \\
      --output 3 | ovs-ofctl -O OpenFlow13 add-flows s2 -
  auster queues flows --policy in-band.policy --edge 1 --tunnel 3:2 --controller 10.0.0.4 |
      ovs-ofctl -O OpenFlow13 add-flows s1 -

They are removed by their cookie: ovs-ofctl -O OpenFlow13 del-flows s1 \
cookie=0x6175717500000000/-1")]
    Flows(FlowsArgs),
    /// Check with counters, under real traffic, whether packets reach the queues that flows name
    #[command(after_help = "\
Example:
  auster queues verify --port s2-eth3
  auster queues verify --port s2-eth3 --seconds 10 --json | jq '.queues[] | {queue, effect}'

The exit code is 1 if a queue gets nothing while flows that name it count packets, as with \
set_queue on Open vSwitch's userspace datapath, and if there was no traffic to judge by.")]
    Verify(verify::Args),
}

#[derive(clap::Args)]
struct PortArgs {
    /// The interface
    #[arg(long, value_name = "IFACE")]
    port: String,
    /// Open vSwitch's database; if not given, the usual one if present
    #[arg(long, value_name = "METHOD")]
    db: Option<Method>,
}

#[derive(clap::Args)]
pub struct SetArgs {
    #[command(flatten)]
    port: PortArgs,
    /// The link's rate, such as 100mbit; slightly below the real one, so that queues form here
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// A policy map with DSCP actions
    #[arg(long, value_name = "FILE", conflicts_with_all = ["queues", "queue"])]
    policy: Option<String>,
    #[command(flatten)]
    stated: StatedArgs,
}

#[derive(clap::Args)]
struct StatedArgs {
    /// Queues in TOML: rate = "100mbit", and [[queue]] with id, min, max, priority, burst, dscp
    #[arg(long, value_name = "FILE")]
    queues: Option<String>,
    /// A queue, as id=1,min=20mbit,max=100mbit,priority=1,burst=15k,dscp=10; repeat for more
    #[arg(long, value_name = "FIELDS")]
    queue: Vec<String>,
}

#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    port: PortArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct ClearArgs {
    #[command(flatten)]
    port: PortArgs,
}

#[derive(clap::Args)]
pub struct KeepArgs {
    /// Open vSwitch's database
    #[arg(long, value_name = "METHOD", default_value_t = database_method())]
    db: String,
}

#[derive(clap::Args)]
pub struct FlowsArgs {
    #[command(flatten)]
    stated: StatedArgs,
    /// The queue for the packets
    #[arg(long, value_name = "ID", requires_all = ["match", "output"])]
    into: Option<u8>,
    /// The packets to match, in ovs-ofctl syntax; repeat for more
    #[arg(long = "match", id = "match", value_name = "MATCH", requires = "into")]
    matches: Vec<String>,
    /// OpenFlow number of the port with the queues
    #[arg(long, value_name = "PORT", requires = "into")]
    output: Option<u32>,
    /// The priority of the entries that put packets into a queue
    #[arg(long, value_name = "N", default_value_t = flows::PRIORITY_SERVICE)]
    priority: u16,
    /// A policy map with DSCP actions
    #[arg(long, value_name = "FILE", conflicts_with_all = ["queues", "queue"])]
    policy: Option<String>,
    /// A port where data enters; repeat for more
    #[arg(long = "edge", value_name = "PORT", requires = "policy")]
    edges: Vec<String>,
    /// Ports that lead to the switch's relay and to the controller's, as SWITCH:CONTROLLER
    #[arg(long, value_name = "PORT:PORT", requires_all = ["controller", "policy"])]
    tunnel: Option<String>,
    /// Address of the controller's relay, as ADDRESS or ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS", requires = "policy")]
    controller: Option<String>,
    /// The switch's relay, if tunnels of several relays share a port
    #[arg(long, value_name = "ADDRESS", requires = "tunnel")]
    relay: Option<IpAddr>,
    /// Mark the tunnel's packets with this code point (0 to 63), if its ends do not mark them
    #[arg(long, value_name = "DSCP", requires = "tunnel",
        value_parser = clap::value_parser!(u8).range(0..64))]
    mark: Option<u8>,
    /// Also set the queue in a tunnel's entries, for a datapath that honours set_queue
    #[arg(long, requires = "policy")]
    set_queue: bool,
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Set(args) => block_on(set(args)),
        Command::Show(args) => block_on(show(args)),
        Command::Clear(args) => block_on(clear(args)),
        Command::Keep(args) => {
            let manager = Manager::find()?;
            block_on(keep(args, manager))
        }
        Command::Flows(args) => print_flows(args),
        Command::Verify(args) => {
            // Before the runtime, which has threads of its own to be interrupted.
            let interrupt = Interrupt::take()?;
            block_on(verify::run(args, &interrupt))
        }
    }
}

/// The classes of a policy map on a link, for this machine's sockets.
pub fn plan(map: &PolicyMap, rate: Rate) -> Result<Plan, Failure> {
    Plan::new(map, rate, socket_bytes()).map_err(|problems| Failure::usage(problems.join("; ")))
}

fn socket_bytes() -> u32 {
    // Only the machine's own namespace shows this value; it is the same in all.
    let sysctl = std::fs::read_to_string("/proc/sys/net/core/wmem_default");
    let socket_bytes = sysctl.ok().and_then(|text| text.trim().parse().ok());
    socket_bytes.unwrap_or(SOCKET_BYTES)
}

async fn set(args: SetArgs) -> Result<(), Failure> {
    let map = args
        .policy
        .as_deref()
        .map(config::policy::load)
        .transpose()?;
    let port = &args.port.port;
    let record = args.port.record().await?;
    let by_switch = record
        .as_ref()
        .is_some_and(|(_, port)| port.honours_set_queue());
    let found = record.as_ref().map(|(_, port)| port);
    let plan = match &map {
        Some(map) => {
            let rate = args
                .rate
                .as_deref()
                .ok_or_else(|| Failure::usage("--rate: say that of the link, such as 100mbit"))?;
            let rate = rate
                .parse::<Rate>()
                .map_err(|problem| Failure::usage(format!("--rate: {problem}")))?;
            let plan = plan(map, rate)?;
            args.port.check(found, Vec::new())?;
            plan
        }
        None => {
            let (planned, problems) = match args.stated_plan(by_switch)? {
                Ok(plan) => (Some(plan), Vec::new()),
                Err(problems) => (None, problems),
            };
            args.port.check(found, problems)?;
            planned.expect("problems are refused")
        }
    };
    match record {
        Some((mut client, record)) if by_switch => {
            let change = record.set(&mut client, &plan).await;
            let change = change.map_err(|problem| args.port.database_failure(problem))?;
            let way = format!(
                "by Open vSwitch, chosen by set_queue in flows of {} (auster queues flows{})",
                record.bridge,
                if map.is_some() { " --set-queue" } else { "" }
            );
            say_set(port, change, plan.classes.len(), &way);
        }
        record => {
            let interface = args.port.interface();
            let change = interface.set(Owner::Command, &plan)?;
            let mut way = "by kernel HTB, chosen by DSCP".to_owned();
            if let Some((mut client, record)) = record {
                let held = record.set(&mut client, &plan).await;
                held.map_err(|problem| {
                    // Do not keep the kernel's queues without the record.
                    if change == Change::Made {
                        let _ = interface.clear(&[Owner::Command]);
                    }
                    args.port.database_failure(problem)
                })?;
                way += &format!(
                    "; the {} datapath of {} ignores set_queue",
                    record.datapath, record.bridge
                );
                if map.is_none() {
                    way += ", so that Open vSwitch is told to write the DSCP of each queue instead";
                }
            }
            say_set(port, change, plan.classes.len(), &way);
        }
    }
    Ok(())
}

impl SetArgs {
    /// The classes of the stated queues, or every problem with them.
    fn stated_plan(&self, by_switch: bool) -> Result<Result<Plan, Vec<String>>, Failure> {
        let (File { rate, queues }, mut problems) = self.stated.read()?;
        let rate = self.rate.as_deref().or(rate.as_deref());
        let chosen_by = match by_switch {
            true => ChosenBy::SetQueue,
            false => ChosenBy::Dscp,
        };
        // A queue that cannot be read is not a missing queue.
        if queues.is_empty() && !problems.is_empty() {
            return Ok(Err(problems));
        }
        Ok(
            match stated::plan(rate, &queues, chosen_by, socket_bytes()) {
                Ok(plan) if problems.is_empty() => Ok(plan),
                Ok(_) => Err(problems),
                Err(more) => {
                    problems.extend(more);
                    Err(problems)
                }
            },
        )
    }
}

impl StatedArgs {
    /// The file, with the command line's queues added, and the problems of those that cannot be
    /// read.
    fn read(&self) -> Result<(File, Vec<String>), Failure> {
        let mut file = File::default();
        if let Some(path) = &self.queues {
            let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
            let read = File::parse(&text);
            file = read.map_err(|problem| Failure::usage(format!("{path}: {problem}")))?;
        }
        let mut problems = Vec::new();
        for text in &self.queue {
            match Words::parse(text) {
                Ok(words) => file.queues.push(words),
                Err(problem) => problems.push(format!("--queue: {problem}")),
            }
        }
        Ok((file, problems))
    }
}

fn say_set(port: &str, change: Change, count: usize, way: &str) {
    say!("{port}: {count} queues, {}, {way}", change.name());
}

async fn show(args: ShowArgs) -> Result<(), Failure> {
    let port = &args.port.port;
    let state = args.port.interface().state()?;
    let record = args.port.record().await?.map(|(_, record)| record);
    let records = record.map(|record| record.queues());
    let records = records.filter(|queues| !queues.is_empty());
    let way = match (&state, &records) {
        (Some(_), _) => "kernel",
        (None, Some(_)) => "ovsdb",
        (None, None) => "none",
    };
    if args.json {
        let document = json!({
            "port": port, "way": way, "kernel": state, "ovsdb": records,
        });
        say!("{document:#}");
        return Ok(());
    }
    match (state, records) {
        (Some(state), _) => print_state(port, &state),
        (None, Some(records)) => {
            say!("{port}: by Open vSwitch");
            for queue in records {
                say!(
                    "  set_queue:{} priority {} min {} max {}",
                    queue.set_queue,
                    queue.priority.unwrap_or(0),
                    Rate(queue.min_rate_bps.unwrap_or(0)),
                    Rate(queue.max_rate_bps.unwrap_or(0)),
                );
            }
            say!("Counters: ovs-ofctl -O OpenFlow13 queue-stats BRIDGE {port}");
        }
        (None, None) => say!("{port}: no queues of auster's"),
    }
    Ok(())
}

fn print_state(port: &str, state: &State) {
    say!("{port}: {}, by kernel HTB", Rate(state.rate_bps));
    say!(
        "{:>5} {:24} {:>4} {:>12} {:>12} {:>12} {:>14} {:>9} {:>7}",
        "QUEUE",
        "DSCP",
        "PRIO",
        "AT LEAST",
        "AT MOST",
        "PACKETS",
        "BYTES",
        "DROPPED",
        "WAITING"
    );
    for queue in &state.queues {
        say!(
            "{:>5} {:24} {:>4} {:>12} {:>12} {:>12} {:>14} {:>9} {:>7}",
            queue.queue,
            queue.dscp,
            queue.priority,
            Rate(queue.min_rate_bps).to_string(),
            Rate(queue.max_rate_bps).to_string(),
            queue.packets,
            queue.bytes,
            queue.dropped,
            format!("{}/{}", queue.packets_waiting, queue.packets_max),
        );
    }
}

async fn clear(args: ClearArgs) -> Result<(), Failure> {
    let port = &args.port.port;
    let record = args.port.record().await?;
    let mut cleared = false;
    let mut by_switch = false;
    if let Some((mut client, record)) = record {
        by_switch = record.honours_set_queue();
        let done = record.clear(&mut client).await;
        cleared |= done.map_err(|problem| args.port.database_failure(problem))?;
    }
    // Open vSwitch itself removes the queues that it made from our record.
    let interface = args.port.interface();
    if !by_switch || matches!(interface.root()?, Root::Ours(_)) {
        cleared |= interface.clear(&Owner::ALL)?;
    }
    match cleared {
        true => say!("{port}: queues removed"),
        false => say!("{port}: no queues of auster's"),
    }
    Ok(())
}

async fn keep(args: KeepArgs, manager: Manager) -> Result<(), Failure> {
    cli::output::become_service();
    let keeper = Keeper::new(keep::database("--db", &args.db)?);
    let stopped = stop_signal();
    manager.ready();
    tokio::select! {
        () = keeper.run() => {}
        () = stopped => {}
    }
    manager.stopping();
    Ok(())
}

fn print_flows(args: FlowsArgs) -> Result<(), Failure> {
    let Some(policy) = &args.policy else {
        return print_services(&args);
    };
    let map = config::policy::load(policy)?;
    // The rate does not matter here: only the queues' numbers are needed.
    let any_rate = Rate(1_000_000_000_000);
    let plan = plan(&map, any_rate)?;
    let steering = args.steering().map_err(Failure::usage)?;
    if steering.edges.is_empty() && steering.tunnels.is_empty() {
        return Err(Failure::usage(
            "nothing to steer or mark: give --edge PORT, or --tunnel PORT:PORT with --controller",
        ));
    }
    let plan = args.set_queue.then_some(&plan);
    for line in flows::lines(&map, &steering, plan) {
        say!("{line}");
    }
    Ok(())
}

fn print_services(args: &FlowsArgs) -> Result<(), Failure> {
    let (Some(into), Some(output)) = (args.into, args.output) else {
        return Err(Failure::usage(
            "nothing to put into a queue: give --queues or --queue, --into ID, --match MATCH and \
             --output PORT, or a --policy with what to steer",
        ));
    };
    let (File { rate, queues }, mut problems) = args.stated.read()?;
    // Only the queues' numbers are needed.
    let rate = rate.unwrap_or("1000gbit".to_owned());
    let chosen_by = ChosenBy::SetQueue;
    let plan = stated::plan(Some(&rate), &queues, chosen_by, socket_bytes());
    problems.extend(plan.as_ref().err().into_iter().flatten().cloned());
    let class = plan.ok().and_then(|plan| {
        let class = plan.classes.iter().find(|class| class.queue == into);
        class.cloned()
    });
    if problems.is_empty() && class.is_none() {
        problems.push(format!("--into {into}: no such queue is stated"));
    }
    let mut lines = Vec::new();
    for words in &args.matches {
        let Some(class) = &class else {
            continue;
        };
        match flows::service(class, words, output, args.priority) {
            Ok(line) => lines.push(line),
            Err(problem) => problems.push(format!("--match {words}: {problem}")),
        }
    }
    if !problems.is_empty() {
        return Err(Failure::usage(problems.join("; ")));
    }
    lines.iter().for_each(|line| say!("{line}"));
    Ok(())
}

impl FlowsArgs {
    fn steering(&self) -> Result<Steering, String> {
        let tunnel = match (&self.tunnel, &self.controller) {
            (Some(ports), Some(controller)) => {
                let (switch_port, controller_port) = ports
                    .split_once(':')
                    .filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains(':'))
                    .ok_or_else(|| {
                        format!("--tunnel {ports}: write two ports of the bridge, such as 3:2")
                    })?;
                let at = controller.parse::<SocketAddr>().or_else(|_| {
                    let address = controller.trim_matches(['[', ']']).parse::<IpAddr>();
                    address.map(|address| SocketAddr::new(address, RELAY_PORT))
                });
                let at = at.map_err(|_| {
                    format!("--controller {controller}: write ADDRESS or ADDRESS:PORT")
                })?;
                Some(Tunnel {
                    switch_port: switch_port.to_owned(),
                    controller_port: controller_port.to_owned(),
                    controller: at.ip(),
                    controller_l4_port: at.port(),
                    relay: self.relay,
                    mark: self.mark,
                })
            }
            (None, Some(_)) => return Err("--controller is of a --tunnel PORT:PORT".to_owned()),
            _ => None,
        };
        Ok(Steering {
            edges: self.edges.clone(),
            tunnels: tunnel.into_iter().collect(),
        })
    }
}

impl PortArgs {
    /// Fails with every problem: `problems`, and anything at the port that auster did not make.
    fn check(&self, record: Option<&Port>, mut problems: Vec<String>) -> Result<(), Failure> {
        let port = &self.port;
        let by_switch = record.is_some_and(Port::honours_set_queue);
        let interface = self.interface();
        match interface.root() {
            Err(failure) if problems.is_empty() => return Err(failure),
            Err(failure) => problems.push(format!("port: {}", failure.message())),
            // Open vSwitch would fail to make its own qdisc, and report that only in its log.
            Ok(Root::Foreign { kind, .. }) if by_switch => {
                if record.is_some_and(|record| !record.has_qos()) {
                    problems.push(format!(
                        "{port} has a {kind} qdisc that neither auster nor Open vSwitch made; \
                         remove it first: tc qdisc del dev {port} root"
                    ));
                }
            }
            Ok(root) => problems.extend(interface.taken(&[Owner::Command], &root)),
        }
        let foreign = record.and_then(Port::foreign);
        problems.extend(foreign.map(|problem| format!("{port}: {problem}").replace("PORT", port)));
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Failure::usage(problems.join("; "))),
        }
    }

    fn interface(&self) -> Interface<'_> {
        Interface {
            namespace: None,
            name: &self.port,
        }
    }

    /// The port's records and the connection to their database, if one exists and knows the port.
    async fn record(&self) -> Result<Option<(Client, Port)>, Failure> {
        let usual = || {
            let path = database_socket();
            path.exists().then_some(Method::DialUnix(path))
        };
        let Some(database) = self.db.clone().or_else(usual) else {
            return Ok(None);
        };
        let found = tokio::time::timeout(ANSWER_TIMEOUT, async {
            let mut client = records::connect(&database).await?;
            let port = Port::find(&mut client, &self.port).await?;
            Ok::<_, String>(port.map(|port| (client, port)))
        });
        match found.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(problem)) => Err(Failure::network(format!("{database}: {problem}"))),
            Err(_) => Err(Failure::network(format!("{database} does not answer"))),
        }
    }

    fn database_failure(&self, problem: String) -> Failure {
        Failure::usage(format!("{}: {problem}", self.port).replace("PORT", &self.port))
    }
}
