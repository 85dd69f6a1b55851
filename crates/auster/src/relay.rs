//! `auster relay`: flags to plain data, listeners and dialling, status and record. The relay itself
//! is in the crates `relay` and `tunnel`.

mod agents;
mod bootstrap;
mod metrics;
mod nudge;
mod plan;
pub(crate) mod policy;
mod report;
mod store;
mod wishes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use net::method::{Method, UdpMethod};
use net::tls::Security;
use net::transport::{Connection, Limits, LineSocket, Listener};
use relay::{PerKind, SessionId, Side};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tunnel::{self, DatagramListener, Direct, End, Holder, Hub, OPENFLOW, OVSDB};

use crate::queues::keep::Keeper;
use bootstrap::Bootstrap;
use cli::failure::Failure;
use cli::output::{self, say};
use cli::service::{self, Manager};
use plan::{Common, is_quic};
use report::{Record, Reporter, Source};

/// The time for the last datagram to leave; it asks the other relay not to wait.
const GOODBYE: Duration = Duration::from_millis(50);

#[derive(clap::Subcommand)]
pub enum Command {
    /// Run beside switches: accept their connections and carry them to a controller relay
    #[command(after_help = "\
Example:
  auster relay switch --openflow ptcp:6653:127.0.0.1 --ovsdb unix:/run/openvswitch/db.sock \\
      --connect quic:192.0.2.1:6654 -p s1-privkey.pem -c s1-cert.pem -C cacert.pem

Each bridge is then pointed here: ovs-vsctl set-controller br0 tcp:127.0.0.1:6653

Without QUIC, straight to a controller that knows nothing of relays:
  auster relay switch --openflow ptcp:6653:127.0.0.1 --connect tcp:192.0.2.1:6653 --policy auster")]
    Switch(Box<SwitchArgs>),
    /// Run beside controllers: accept switch relays and dial the controller for each bridge
    #[command(after_help = "\
Example:
  auster relay controller --listen pquic:6654 --openflow tcp:127.0.0.1:6653 \\
      --ovsdb punix:/run/auster/{name}.sock -p c1-privkey.pem -c c1-cert.pem -C cacert.pem

{name} is the common name in the switch relay's certificate, so that each switch has its own \
socket: ovs-vsctl --db=unix:/run/auster/s1.sock show. A passive method without {name} serves the \
only switch relay there is.")]
    Controller(Box<ControllerArgs>),
}

#[derive(clap::Args)]
pub struct SwitchArgs {
    /// Listen for bridges; each connection is a separate channel
    #[arg(long, value_name = "METHOD")]
    openflow: String,
    /// The switch's OVSDB server: dial it when the other end asks (unix:, tcp:), or wait for it
    #[arg(long, value_name = "METHOD")]
    ovsdb: Option<String>,
    /// The controller relay (quic:); or a controller or controller relay, dialled once for each
    /// connection (tcp:, ssl:, unix:). Repeat a quic: method for fallbacks, in order of preference
    #[arg(long, value_name = "METHOD", required = true)]
    connect: Vec<String>,
    /// After a restart of either relay, make bridges connect at once instead of after a back-off,
    /// by rewriting their controller's target in an equivalent form through --ovsdb. While no
    /// bridge is connected, the controller sees connections that wait for its HELLO and end
    #[arg(long)]
    nudge: bool,
    /// Send only the first packet of each new flow to the controller. Hold the packets behind it
    /// until the flow's entry arrives, to keep them in order: up to 64 packets of a flow and 1 MB
    /// in all, for 200 ms
    #[arg(long)]
    hold_first_packets: bool,
    /// Write the policy map in use to this file, and start with the file's map if newer than
    /// --policy
    #[arg(long, value_name = "FILE")]
    policy_store: Option<PathBuf>,
    /// The switch's OVSDB server (unix:, tcp:): use policy maps that 'auster policy push --ovsdb'
    /// writes to its bridges, and write back which map is in use
    #[arg(long, value_name = "METHOD")]
    policy_db: Option<String>,
    /// The switch's OVSDB server (unix:, tcp:): create in the kernel the queues that a controller
    /// writes to it, where the datapath ignores set_queue; like 'auster queues keep'
    #[arg(long, value_name = "METHOD")]
    queues_db: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
pub struct ControllerArgs {
    /// Listen for switch relays (pquic:); or for switches and switch relays, with a connection for
    /// each channel (ptcp:, pssl:, punix:)
    #[arg(long, value_name = "METHOD")]
    listen: String,
    /// The controller to dial, once per bridge
    #[arg(long, value_name = "METHOD")]
    openflow: String,
    /// Listen for OVSDB clients (ptcp:, punix:), or dial a manager
    #[arg(long, value_name = "METHOD")]
    ovsdb: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
struct CommonArgs {
    /// Carry another agent under this name; repeat for more. Passive at one end and active at the
    /// other: streams by tcp:, ssl: or unix: (ptcp:, pssl:, punix:), datagrams by udp:HOST:PORT
    /// (pudp:PORT[:HOST]). CLASS is the kind of the agent's messages from this end: echo, state,
    /// packet, exchange or other, the default
    #[arg(long = "agent", value_name = "NAME=METHOD[,class=CLASS]")]
    agents: Vec<String>,
    /// This relay's private key; quic: and ssl: need it, with the certificate and the CA
    #[arg(short = 'p', long, value_name = "FILE", requires_all = ["certificate", "ca_cert"])]
    private_key: Option<PathBuf>,
    /// This relay's certificate
    #[arg(short = 'c', long, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,
    /// The CA of the other end's certificate
    #[arg(short = 'C', long, value_name = "FILE", requires = "private_key")]
    ca_cert: Option<PathBuf>,
    /// Revocation lists for the other end's certificates (PEM), one by each CA in -C. SIGHUP
    /// rereads this and the three files above
    #[arg(long, value_name = "FILE", requires = "private_key")]
    crl: Option<PathBuf>,
    /// Accept only a relay whose certificate has this DNS name or common name; repeat to accept any
    /// of several. Without it, accept any certificate by a CA in -C
    #[arg(
        long = "peer-name", value_name = "NAME", requires = "private_key",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    peer_names: Vec<String>,
    /// Private key for the connections to the switches or the controller beside this relay, if not
    /// -p: a controller relay that dials its controller by ssl: acts as a switch
    #[arg(long, value_name = "FILE", requires = "local_cert")]
    local_key: Option<PathBuf>,
    /// Certificate for --local-key
    #[arg(long, value_name = "FILE", requires = "local_key")]
    local_cert: Option<PathBuf>,
    /// CA of the switches' or the controller's certificates, if not -C
    #[arg(long, value_name = "FILE")]
    local_ca: Option<PathBuf>,
    /// Policy map that schedules messages to the other end: a file, or auster, paper or none
    #[arg(long, value_name = "MAP", default_value = "none")]
    policy: String,
    /// Experimenter id of the OpenFlow messages that carry policy maps between relays joined by
    /// tcp:, ssl: or unix:; the default is not registered
    #[arg(long, value_name = "NUMBER", value_parser = experimenter)]
    experimenter_id: Option<u32>,
    /// Send at most this rate to the other end, headers included, if the bottleneck is not this
    /// machine's interface; needs --policy. As 10mbit, 500kbit or bits per second
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Rate that the path guarantees: QUIC's window does not fall below it
    #[arg(long, value_name = "RATE", value_parser = rate)]
    guaranteed_rate: Option<u64>,
    /// Delay messages up to this time to send several in one packet: 1ms, for all but echoes; or by
    /// kind (echo, state, packet, exchange, other): packet=1ms,statistics=5ms
    #[arg(long, value_name = "WINDOW", value_parser = wishes::coalescing)]
    coalesce: Option<PerKind<Duration>>,
    /// Send messages of these kinds again 2 ms later, so that a lost packet does not delay them:
    /// echo,packet-in
    #[arg(long, value_name = "KINDS", value_parser = wishes::duplicated)]
    duplicate: Option<PerKind<bool>>,
    /// Order of changes to the switch's state: as received, or keyed: a change that names both
    /// addresses of a flow waits only for changes with the same two, so that a lost packet delays
    /// few. Use keyed for controllers that put barriers where order matters, and at both relays
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Order::Strict)]
    order: Order,
    /// Reconnect with early data (0-RTT), if the other end has this option too: messages of a
    /// resumed session arrive a round trip sooner, but early data has no forward secrecy. Answers
    /// arrive no sooner
    #[arg(long)]
    early_data: bool,
    /// Time that local connections outlive the connection between the relays
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace_s: u16,
    /// Bytes in flight or held, per channel and direction, before reading from the sender stops;
    /// 512k, 4M and 1G use units of 1024
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = size)]
    window_bytes: u32,
    /// Send the state as one JSON document to each connection to this Unix socket, unix:FILE or
    /// FILE
    #[arg(long, value_name = "METHOD")]
    status: Option<String>,
    /// Write one JSON line for each channel that ends: messages, bytes and digest of each direction
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    metrics: metrics::Args,
    /// Check all options and every file that they name, report all mistakes, and start nothing
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    Strict,
    Keyed,
}

pub fn run(command: Command) -> Result<(), Failure> {
    let checked = match &command {
        Command::Switch(args) if args.common.check => Some(args.mistakes()),
        Command::Controller(args) if args.common.check => Some(args.mistakes()),
        _ => None,
    };
    if let Some(mistakes) = checked {
        return crate::run::verdict("the command line", mistakes);
    }
    output::become_service();
    let manager = Manager::find()?;
    cli::turns::ask_for_short_turns();
    // A switch and its controller take two file descriptors. A thousand such pairs need more than
    // most shells allow.
    cli::process::raise_file_limit();
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::machine)?;
    match command {
        Command::Switch(args) => runtime.block_on(run_switch(*args, &manager)),
        Command::Controller(args) => runtime.block_on(run_controller(*args, &manager)),
    }
}

async fn run_switch(args: SwitchArgs, manager: &Manager) -> Result<(), Failure> {
    let plan = args.plan()?;
    let _reloads = plan.common.keep_certificates()?;
    let record = report::open(args.common.record.as_deref())?;
    let keeper = plan.queues.clone().map(Keeper::new);
    let holder = args.hold_first_packets.then(|| Arc::new(Holder::default()));
    let Common {
        agents,
        security,
        local,
        scheduling,
        ..
    } = &plan.common;
    let connect = &plan.relays[0];
    if !is_quic(connect) {
        let direct = Direct::new(
            Side::Switch,
            connect.clone(),
            security.clone(),
            scheduling.clone(),
        );
        let listener = bind(OPENFLOW, &agents.passive[OPENFLOW], local, None).await?;
        let _kept = JoinSet::from_iter(keeper.map(Keeper::run));
        let own = (record, manager, holder);
        return run_direct(direct, listener, &plan.common, plan.maps, own).await;
    }
    let config = args.common.end_config(Side::Switch, &plan.common);
    let end = End::new(config, SessionId(tunnel::random()), "controller");
    let mut tasks = JoinSet::new();
    let mut openflow = None;
    for (agent, method) in &agents.passive {
        let mut listener = bind(agent, method, local, None).await?;
        if agent == OPENFLOW {
            openflow = Some(listener.local().clone());
        }
        let (end, agent) = (end.clone(), agent.clone());
        let holder = holder.clone().filter(|_| agent == OPENFLOW);
        tasks.spawn(async move {
            loop {
                let connection = held(&holder, listener.accept().await);
                end.adopt(&agent, connection);
            }
        });
    }
    for (agent, method) in &agents.passive_udp {
        let mut listener = bind_udp(agent, method).await?;
        let (end, agent) = (end.clone(), agent.clone());
        tasks.spawn(async move {
            loop {
                let (datagram, from) = listener.recv().await;
                end.carry_datagram(&agent, datagram, from);
            }
        });
    }
    let database = agents.active.get(OVSDB).cloned();
    if let (true, Some(database), Some(openflow)) = (args.nudge, database, openflow) {
        tasks.spawn(nudge::run(end.clone(), database, openflow));
    }
    if let Some(keeper) = keeper {
        tasks.spawn(keeper.run());
    }
    let source = Source::End(end.clone());
    plan.maps.start(&source, &mut tasks);
    let held = plan.common.held();
    let _metrics = metrics::serve(plan.common.metrics.as_ref(), source.clone(), held).await?;
    let status = plan.common.status.as_ref();
    let reporter = Reporter::start(status, record, source.clone(), holder).await?;
    agents.warn_if_exposed();
    let mut tunnel = std::pin::pin!(tunnel::switch(&end, &plan.relays, security));
    let stopped = tokio::select! {
        error = &mut tunnel => Err(Failure::network(error)),
        () = stop_signal() => Ok(()),
        () = serving(manager, &source) => Ok(()),
    };
    manager.stopping();
    end.close("the switch's relay was stopped");
    if stopped.is_ok() {
        let _ = tokio::time::timeout(GOODBYE, tunnel).await;
    }
    stop(reporter).await?;
    stopped
}

async fn run_controller(args: ControllerArgs, manager: &Manager) -> Result<(), Failure> {
    let plan = args.plan()?;
    let _reloads = plan.common.keep_certificates()?;
    let record = report::open(args.common.record.as_deref())?;
    let Common {
        agents,
        security,
        local,
        scheduling,
        ..
    } = &plan.common;
    let listen = &plan.listen;
    if !is_quic(listen) {
        let line = Direct::line_socket(scheduling);
        let target = agents.active[OPENFLOW].clone();
        let direct = Direct::new(Side::Controller, target, local.clone(), scheduling.clone());
        let listener = bind(OPENFLOW, listen, security, line).await?;
        let own = (record, manager, None);
        return run_direct(direct, listener, &plan.common, Maps::default(), own).await;
    }
    let (each, shared): (BTreeMap<_, _>, BTreeMap<_, _>) = agents
        .passive
        .clone()
        .into_iter()
        .partition(|(_, method)| plan::is_for_each(method));
    let config = args.common.end_config(Side::Controller, &plan.common);
    let hub = Hub::bind(listen, security, config, each.into_iter().collect())
        .await
        .map_err(Failure::network)?;
    say!("listening {} relays", hub.local());

    let mut tasks = JoinSet::new();
    for (agent, method) in shared {
        let mut listener = bind(&agent, &method, local, None).await?;
        let hub = hub.clone();
        tasks.spawn(async move {
            loop {
                let connection = listener.accept().await;
                match hub.end(None) {
                    Some(end) => end.adopt(&agent, connection),
                    None => tracing::warn!(agent, "closed: not exactly one switch relay is here"),
                }
            }
        });
    }
    for (agent, method) in &agents.passive_udp {
        let mut listener = bind_udp(agent, method).await?;
        let (hub, agent) = (hub.clone(), agent.clone());
        tasks.spawn(async move {
            loop {
                let (datagram, from) = listener.recv().await;
                match hub.end(None) {
                    Some(end) => end.carry_datagram(&agent, datagram, from),
                    None => hub.drop_datagram(),
                }
            }
        });
    }
    let source = Source::Hub(hub.clone());
    let held = plan.common.held();
    let _metrics = metrics::serve(plan.common.metrics.as_ref(), source.clone(), held).await?;
    let status = plan.common.status.as_ref();
    let reporter = Reporter::start(status, record, source.clone(), None).await?;
    agents.warn_if_exposed();
    tokio::select! {
        () = hub.run() => {}
        () = stop_signal() => {}
        () = serving(manager, &source) => {}
    }
    manager.stopping();
    hub.close("the controller's relay was stopped");
    stop(reporter).await
}

/// Carries each connection that `listener` accepts over a connection of its own.
async fn run_direct(
    direct: Arc<Direct>,
    mut listener: Listener,
    common: &Common,
    maps: Maps,
    (record, manager, holder): (Option<Record>, &Manager, Option<Arc<Holder>>),
) -> Result<(), Failure> {
    let source = Source::Direct(direct.clone(), listener.refusals().clone());
    let _metrics = metrics::serve(common.metrics.as_ref(), source.clone(), common.held()).await?;
    let mut tasks = JoinSet::new();
    maps.start(&source, &mut tasks);
    let status = common.status.as_ref();
    let reporter = Reporter::start(status, record, source.clone(), holder.clone()).await?;
    let agents = &common.agents;
    agents.warn_if_exposed();
    let mut stopped = std::pin::pin!(stop_signal());
    let mut serving = std::pin::pin!(serving(manager, &source));
    loop {
        tokio::select! {
            connection = listener.accept() => {
                let connection = held(&holder, connection);
                tasks.spawn(direct.clone().carry(connection));
            }
            Some(_) = tasks.join_next() => {}
            () = &mut stopped => break,
            () = &mut serving => break,
        }
    }
    manager.stopping();
    tasks.shutdown().await;
    direct.close_all();
    stop(reporter).await
}

/// Reports to the service manager that the listeners are open, and then that the relay's state can
/// be read, with no lock in the way. Never returns.
async fn serving(manager: &Manager, source: &Source) {
    service::warn_of_idle_sockets();
    manager.ready();
    let look = || async {
        let channels: usize = source.status().iter().map(|end| end.channels.len()).sum();
        Some(format!("{channels} channels"))
    };
    manager.keep_informed(look).await;
    std::future::pending().await
}

/// Wraps a switch's connection in the holder, if the relay has one.
fn held(holder: &Option<Arc<Holder>>, connection: Connection) -> Connection {
    match holder {
        Some(holder) => holder.hold(connection),
        None => connection,
    }
}

/// Gives the last messages time to leave before the process ends.
async fn stop(reporter: Reporter) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    reporter.finish()
}

/// The sources and destinations of policy maps, apart from the other relay.
#[derive(Default)]
pub struct Maps {
    store: Option<PathBuf>,
    database: Option<Method>,
}

impl Maps {
    fn start(self, source: &Source, tasks: &mut JoinSet<()>) {
        let Some(maps) = source.committed() else {
            return;
        };
        if let Some(path) = self.store {
            tasks.spawn(store::keep(maps.clone(), path));
        }
        if let Some(database) = self.database {
            tasks.spawn(Bootstrap::new(source.clone(), maps, database).run());
        }
    }
}

/// Converts `10mbit`, `500kbit`, `1gbit` or bits per second to bytes per second.
fn rate(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no rate; write 10mbit, 500kbit or bits per second");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "bit" => 1,
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bits = number.checked_mul(unit).ok_or_else(wrong)?;
    if bits < 8_000 {
        return Err(format!("'{text}' is less than 8kbit"));
    }
    Ok(bits / 8)
}

/// Converts `4M`, `512k`, `1G` or bytes to a number of bytes.
fn size(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => {
            return Err(format!(
                "'{text}' is no size; write bytes, or 512k, 4M or 1G"
            ));
        }
    };
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is no size"))?;
    let bytes = number
        .checked_mul(unit)
        .and_then(|bytes| bytes.try_into().ok());
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("'{text}' is not from 1 byte to 4095M"))
}

/// Parses `0x00525553`, or a decimal number.
fn experimenter(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("'{text}' is no number of 32 bits; write 0x00525553"))
}

async fn bind(
    agent: &str,
    method: &Method,
    security: &Security,
    line: Option<LineSocket>,
) -> Result<Listener, Failure> {
    let listener = Listener::bind_line(line, method, security, Limits::default()).await;
    let listener = listener.map_err(Failure::network)?;
    say!("listening {} {agent}", listener.local());
    Ok(listener)
}

async fn bind_udp(agent: &str, method: &UdpMethod) -> Result<DatagramListener, Failure> {
    let listener = DatagramListener::bind(method).await;
    let listener = listener.map_err(Failure::network)?;
    say!("listening {} {agent}", listener.local());
    Ok(listener)
}

/// Completes on SIGINT or SIGTERM. Both are caught from this call on, not from the first poll: a
/// relay may be stopped as soon as it reports that it is ready.
pub fn stop_signal() -> impl Future<Output = ()> {
    let interrupt = signal(SignalKind::interrupt());
    let terminate = signal(SignalKind::terminate());
    async {
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, raise};

    use super::*;

    /// An uncaught signal would end the test process.
    #[tokio::test]
    async fn a_signal_is_caught_before_anybody_waits_for_it() {
        let stopped = stop_signal();
        raise(Signal::SIGTERM).unwrap();
        stopped.await;
    }
}
