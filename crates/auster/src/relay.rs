//! `auster relay`: flags to plain data, listeners and dialling, status and record. What a relay is
//! and does stands in the crates `relay` and `tunnel`.

mod agents;
mod bootstrap;
mod metrics;
mod nudge;
pub(crate) mod policy;
mod report;
mod store;
mod wishes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use net::Pace;
use net::method::{Method, Protocol, UdpMethod};
use net::tls::{CredentialFiles, Role, Security};
use net::transport::{Connection, Limits, LineSocket, Listener};
use relay::{Config, OrderMode, PerKind, SessionId, Side};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tunnel::{
    self, DatagramListener, Direct, End, EndConfig, Holder, Hub, OPENFLOW, OVSDB, Scheduling,
};

use crate::certificates;
use crate::queues::keep::{self, Keeper};
use agents::Agents;
use bootstrap::Bootstrap;
use cli::failure::Failure;
use cli::output::{self, say};
use cli::service::{self, Manager};
use report::{Reporter, Source};

/// The time for the last datagram to leave, which asks the other relay not to wait.
const GOODBYE: Duration = Duration::from_millis(50);

#[derive(clap::Subcommand)]
pub enum Command {
    /// The end next to the switches: takes their connections and carries them to a controller relay
    #[command(after_help = "\
Example:
  auster relay switch --openflow ptcp:6653:127.0.0.1 --ovsdb unix:/run/openvswitch/db.sock \\
      --connect quic:192.0.2.1:6654 -p s1-privkey.pem -c s1-cert.pem -C cacert.pem

Each bridge is then pointed here: ovs-vsctl set-controller br0 tcp:127.0.0.1:6653

Without QUIC, straight to a controller that knows nothing of relays:
  auster relay switch --openflow ptcp:6653:127.0.0.1 --connect tcp:192.0.2.1:6653 --policy auster")]
    Switch(Box<SwitchArgs>),
    /// The end next to the controllers: takes switch relays and dials the controller for each
    /// bridge
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
    /// Where bridges connect to; each connection is a channel of its own
    #[arg(long, value_name = "METHOD")]
    openflow: String,
    /// The switch's OVSDB server: dialled when the other end asks (unix:, tcp:), or waited for
    #[arg(long, value_name = "METHOD")]
    ovsdb: Option<String>,
    /// The controller relay (quic:); or a controller or a controller relay that each connection is
    /// carried to over one of its own (tcp:, ssl:, unix:). Repeat a quic: one for those to turn to
    /// when it is gone, in order of preference
    #[arg(long, value_name = "METHOD", required = true)]
    connect: Vec<String>,
    /// Makes bridges that wait out a back-off connect at once after a restart of either relay, by
    /// rewriting their controller's target in an equivalent form through --ovsdb
    #[arg(long)]
    nudge: bool,
    /// Let only the first packet of each new flow go to the controller. Hold the packets behind it
    /// until its entry comes, so that none is overtaken: up to 64 packets of a flow and 1 MB in
    /// all, for 200 ms
    #[arg(long)]
    hold_first_packets: bool,
    /// Write the policy map in use to this file, and begin with it if it is newer than --policy
    #[arg(long, value_name = "FILE")]
    policy_store: Option<PathBuf>,
    /// The switch's OVSDB server (unix:, tcp:): take policy maps that 'auster policy push --ovsdb'
    /// writes to its bridges, and write back which one is in use
    #[arg(long, value_name = "METHOD")]
    policy_db: Option<String>,
    /// The switch's OVSDB server (unix:, tcp:): make in the kernel the queues that a controller
    /// writes to it, where the datapath ignores set_queue; as 'auster queues keep'
    #[arg(long, value_name = "METHOD")]
    queues_db: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
pub struct ControllerArgs {
    /// Where switch relays connect to (pquic:); or where switches and switch relays bring each
    /// connection by itself (ptcp:, pssl:, punix:)
    #[arg(long, value_name = "METHOD")]
    listen: String,
    /// The controller, dialled once per bridge
    #[arg(long, value_name = "METHOD")]
    openflow: String,
    /// Where OVSDB clients connect to (ptcp:, punix:), or a manager that is dialled
    #[arg(long, value_name = "METHOD")]
    ovsdb: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
struct CommonArgs {
    /// Carry another agent under this name; repeat for more. Passive at one end and active at the
    /// other: streams by tcp:, ssl: or unix: (ptcp:, pssl:, punix:), datagrams by udp:HOST:PORT
    /// (pudp:PORT[:HOST]). What this end sends of it goes as messages of CLASS do: echo, state,
    /// packet, exchange or other, the default
    #[arg(long = "agent", value_name = "NAME=METHOD[,class=CLASS]")]
    agents: Vec<String>,
    /// Our private key; quic: and ssl: need it, with the certificate and the CA
    #[arg(short = 'p', long, value_name = "FILE", requires_all = ["certificate", "ca_cert"])]
    private_key: Option<PathBuf>,
    /// Our certificate
    #[arg(short = 'c', long, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,
    /// The CA of the other end's certificate
    #[arg(short = 'C', long, value_name = "FILE", requires = "private_key")]
    ca_cert: Option<PathBuf>,
    /// Revoked certificates of the other end (PEM): a list by each CA in -C. SIGHUP reads this and
    /// the three files above again
    #[arg(long, value_name = "FILE", requires = "private_key")]
    crl: Option<PathBuf>,
    /// Our private key towards the switches or the controller beside us, where that is not -p:
    /// a controller's relay that dials its controller by ssl: is a switch to it
    #[arg(long, value_name = "FILE", requires = "local_cert")]
    local_key: Option<PathBuf>,
    /// Our certificate towards them
    #[arg(long, value_name = "FILE", requires = "local_key")]
    local_cert: Option<PathBuf>,
    /// The CA of their certificates, where that is not -C
    #[arg(long, value_name = "FILE")]
    local_ca: Option<PathBuf>,
    /// Policy map by which this end schedules what it sends to the other: a file, or auster, paper
    /// or none
    #[arg(long, value_name = "MAP", default_value = "none")]
    policy: String,
    /// The experimenter's number of the OpenFlow messages that carry policy maps where the relays
    /// are joined by tcp:, ssl: or unix:; the default is registered with nobody
    #[arg(long, value_name = "NUMBER", value_parser = experimenter)]
    experimenter_id: Option<u32>,
    /// Send at most this much to the other end, headers included, where the narrow place is not
    /// our own interface; needs --policy. As 10mbit, 500kbit or bits per second
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// The rate that the path is known to carry for us: QUIC's window does not fall below it
    #[arg(long, value_name = "RATE", value_parser = rate)]
    guaranteed_rate: Option<u64>,
    /// Let messages wait so long for others to leave in one packet with, echoes aside: 1ms; or by
    /// kind (echo, state, packet, exchange, other): packet=1ms,statistics=5ms
    #[arg(long, value_name = "WINDOW", value_parser = wishes::coalescing)]
    coalesce: Option<PerKind<Duration>>,
    /// Send messages of these kinds a second time 2 ms later, so that a lost packet delays none:
    /// echo,packet-in
    #[arg(long, value_name = "KINDS", value_parser = wishes::duplicated)]
    duplicate: Option<PerKind<bool>>,
    /// The order of changes of the switch's state: as they came, or keyed: those that name both
    /// addresses of a flow wait only for those about the same two, so that a lost packet delays
    /// few. For controllers that put barriers where order matters; both relays must say keyed
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Order::Strict)]
    order: Order,
    /// Dial and be dialled again with early data (0-RTT), if the other end says so too: what it may
    /// lack of a session that goes on is there a round trip sooner, and what is early has no
    /// forward secrecy. An answer comes no sooner
    #[arg(long)]
    early_data: bool,
    /// How long local connections outlive the connection between the relays
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace_s: u16,
    /// Per channel and direction: bytes under way or held before the sender is not read any more
    #[arg(
        long, value_name = "BYTES", default_value_t = 4 << 20,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    window_bytes: u32,
    /// Answer each connection to this Unix socket with the state as one JSON document
    #[arg(long, value_name = "METHOD")]
    status: Option<String>,
    /// Write one JSON line per channel at its end: messages, bytes and digest of each direction
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    metrics: metrics::Args,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    Strict,
    Keyed,
}

pub fn run(command: Command) -> Result<(), Failure> {
    output::become_service();
    let manager = Manager::find()?;
    cli::turns::ask_for_short_turns();
    // A switch and its controller are two files; a thousand of them are more than most shells
    // allow.
    cli::process::raise_file_limit();
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::machine)?;
    match command {
        Command::Switch(args) => runtime.block_on(run_switch(*args, &manager)),
        Command::Controller(args) => runtime.block_on(run_controller(*args, &manager)),
    }
}

async fn run_switch(args: SwitchArgs, manager: &Manager) -> Result<(), Failure> {
    let begun = SystemTime::now();
    let relays = relays(&args.connect)?;
    let connect = &relays[0];
    let agents = Agents::parse(&args.openflow, args.ovsdb.as_deref(), &args.common.agents)?;
    let security = args.common.security(Role::Controller, connect, &agents)?;
    let local = args.common.local_security(Role::Switch, &agents)?;
    let _reloads = args.common.keep_certificates(begun, &security, &local)?;
    if !agents.passive.contains_key(OPENFLOW) {
        let given = &args.openflow;
        let wrong = "bridges connect to this end; write ptcp:[PORT][:HOST], pssl: or punix:FILE";
        return Err(Failure::usage(format!("--openflow {given}: {wrong}")));
    }
    let mut scheduling = args.common.scheduling()?;
    let maps = Maps::parse(&args, &mut scheduling)?;
    let queues = args.queues_db.as_deref();
    let queues = queues.map(|text| keep::database("--queues-db", text));
    let keeper = queues.transpose()?.map(Keeper::new);
    let holder = args.hold_first_packets.then(|| Arc::new(Holder::default()));
    if !is_quic(connect) {
        args.common
            .refuse_what_direct_has_not(&agents, args.nudge)?;
        let direct = Direct::new(Side::Switch, connect.clone(), security.clone(), scheduling);
        let openflow = &agents.passive[OPENFLOW];
        let listener = bind(OPENFLOW, openflow, &local, None).await?;
        let _kept = JoinSet::from_iter(keeper.map(Keeper::run));
        let maps = (maps, vec![security, local]);
        let own = (&agents, manager);
        return run_direct(direct, listener, &args.common, own, maps, holder).await;
    }
    let database = agents.active.get(OVSDB).cloned();
    if args.nudge && database.is_none() {
        return Err(Failure::usage(
            "--nudge needs --ovsdb unix:FILE or tcp:HOST:PORT",
        ));
    }

    let config = args
        .common
        .end_config(Side::Switch, &agents, &local, scheduling);
    let end = End::new(config, SessionId(tunnel::random()), "controller");
    let mut tasks = JoinSet::new();
    let mut openflow = None;
    for (agent, method) in &agents.passive {
        let mut listener = bind(agent, method, &local, None).await?;
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
    if let (true, Some(database), Some(openflow)) = (args.nudge, database, openflow) {
        tasks.spawn(nudge::run(end.clone(), database, openflow));
    }
    if let Some(keeper) = keeper {
        tasks.spawn(keeper.run());
    }
    let source = Source::End(end.clone());
    maps.start(&source, &mut tasks);
    let held = vec![security.clone(), local.clone()];
    let _metrics = metrics::serve(&args.common.metrics, source.clone(), held).await?;
    let reporter = Reporter::start(
        &args.common.status,
        &args.common.record,
        source.clone(),
        holder,
    )
    .await?;
    agents.warn_if_exposed();
    let mut tunnel = std::pin::pin!(tunnel::switch(&end, &relays, &security));
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
    let begun = SystemTime::now();
    let listen = method(&args.listen, Protocol::OpenFlow)?;
    if !listen.is_passive() {
        let given = &args.listen;
        return Err(Failure::usage(format!(
            "--listen {given}: relays listen on pquic:, ptcp: or pssl:[PORT][:HOST], or punix:FILE"
        )));
    }
    let agents = Agents::parse(&args.openflow, args.ovsdb.as_deref(), &args.common.agents)?;
    let security = args.common.security(Role::Switch, &listen, &agents)?;
    let local = args.common.local_security(Role::Controller, &agents)?;
    let _reloads = args.common.keep_certificates(begun, &security, &local)?;
    if !agents.active.contains_key(OPENFLOW) {
        let given = &args.openflow;
        let wrong = "this end dials the controller; write tcp:HOST[:PORT], ssl: or unix:FILE";
        return Err(Failure::usage(format!("--openflow {given}: {wrong}")));
    }
    let scheduling = args.common.scheduling()?;
    if !is_quic(&listen) {
        args.common.refuse_what_direct_has_not(&agents, false)?;
        let line = Direct::line_socket(&scheduling);
        let target = agents.active[OPENFLOW].clone();
        let direct = Direct::new(Side::Controller, target, local.clone(), scheduling);
        let listener = bind(OPENFLOW, &listen, &security, line).await?;
        let maps = (Maps::default(), vec![security, local]);
        let own = (&agents, manager);
        return run_direct(direct, listener, &args.common, own, maps, None).await;
    }
    let (each, shared): (BTreeMap<_, _>, BTreeMap<_, _>) = agents
        .passive
        .clone()
        .into_iter()
        .partition(|(_, method)| method.to_string().contains("{name}"));
    let config = args
        .common
        .end_config(Side::Controller, &agents, &local, scheduling);
    let hub = Hub::bind(&listen, &security, config, each.into_iter().collect())
        .await
        .map_err(Failure::network)?;
    say!("listening {} relays", hub.local());

    let mut tasks = JoinSet::new();
    for (agent, method) in shared {
        let mut listener = bind(&agent, &method, &local, None).await?;
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
    let held = vec![security.clone(), local.clone()];
    let _metrics = metrics::serve(&args.common.metrics, source.clone(), held).await?;
    let (status, record) = (&args.common.status, &args.common.record);
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

/// Carries each connection that `listener` accepts over one of its own.
async fn run_direct(
    direct: Arc<Direct>,
    mut listener: Listener,
    common: &CommonArgs,
    (agents, manager): (&Agents, &Manager),
    (maps, security): (Maps, Vec<Security>),
    holder: Option<Arc<Holder>>,
) -> Result<(), Failure> {
    let source = Source::Direct(direct.clone());
    let _metrics = metrics::serve(&common.metrics, source.clone(), security).await?;
    let mut tasks = JoinSet::new();
    maps.start(&source, &mut tasks);
    let (status, record) = (&common.status, &common.record);
    let reporter = Reporter::start(status, record, source.clone(), holder.clone()).await?;
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
/// be had, which no lock keeps. It does not end.
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

/// Lets the last words go out before the process ends.
async fn stop(reporter: Reporter) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    reporter.finish()
}

impl CommonArgs {
    fn files(&self) -> Option<CredentialFiles> {
        certificates::files(
            self.private_key.as_deref(),
            self.certificate.as_deref(),
            self.ca_cert.as_deref(),
            self.crl.as_deref(),
        )
    }

    fn local_files(&self) -> Option<CredentialFiles> {
        certificates::files(
            self.local_key.as_deref().or(self.private_key.as_deref()),
            self.local_cert.as_deref().or(self.certificate.as_deref()),
            self.local_ca.as_deref().or(self.ca_cert.as_deref()),
            self.crl.as_deref().filter(|_| self.local_ca.is_none()),
        )
    }

    /// SIGHUP reads the certificates of both sides again, and ends no relay.
    fn keep_certificates(
        &self,
        begun: SystemTime,
        security: &Security,
        local: &Security,
    ) -> Result<JoinSet<()>, Failure> {
        let link = self.files().map(|files| (files, security.clone()));
        let local = self.local_files().map(|files| (files, local.clone()));
        certificates::keep(begun, link.into_iter().chain(local).collect())
    }

    fn security(&self, peer: Role, link: &Method, agents: &Agents) -> Result<Security, Failure> {
        let Some(files) = self.files() else {
            let has_local = self.local_key.is_some() && self.local_ca.is_some();
            if is_certified(link) || (!has_local && agents.any_is_certified()) {
                return Err(Failure::usage(
                    "quic: and ssl: need --private-key <FILE>, --certificate <FILE> and \
                     --ca-cert <FILE>; 'auster pki' makes them",
                ));
            }
            return Ok(Security::plain());
        };
        Ok(Security::new(Arc::new(files.load()?))
            .expecting(peer)
            .early_data(self.early_data))
    }

    /// The security of our own side, whose peers have the other role than the relay at the other
    /// end.
    fn local_security(&self, peer: Role, agents: &Agents) -> Result<Security, Failure> {
        let is_given = self.local_key.is_some() || self.local_ca.is_some();
        if is_given && !agents.any_is_certified() {
            return Err(Failure::usage(
                "--local-key, --local-cert and --local-ca are for agents by ssl: or pssl:",
            ));
        }
        match self.local_files() {
            Some(files) => Ok(Security::new(Arc::new(files.load()?)).expecting(peer)),
            None => Ok(Security::plain()),
        }
    }

    fn scheduling(&self) -> Result<Scheduling, Failure> {
        let policy = match self.policy.as_str() {
            "none" => None,
            name => Some(Arc::new(crate::policy::load(name)?)),
        };
        if policy.is_none() && self.rate.is_some() {
            return Err(Failure::usage(
                "--rate: what is held back waits in the queues of a policy map; give --policy too",
            ));
        }
        let is_given = self.coalesce.is_some() || self.duplicate.is_some();
        if policy.is_some() && is_given {
            return Err(Failure::usage(
                "--coalesce and --duplicate are for relays without --policy: with one, messages \
                 wait in its queues and are sent once",
            ));
        }
        Ok(Scheduling {
            policy,
            pace: self.rate.map(|bytes| Arc::new(Pace::new(bytes))),
            guaranteed_bytes: self.guaranteed_rate,
            experimenter: self.experimenter_id,
            coalescing: self.coalesce.unwrap_or_default(),
        })
    }

    /// Refuses the options that only the one connection for all can carry.
    fn refuse_what_direct_has_not(&self, agents: &Agents, nudge: bool) -> Result<(), Failure> {
        if let Some(name) = agents.names().find(|name| *name != OPENFLOW) {
            return Err(Failure::usage(format!(
                "'{name}': over tcp:, ssl: and unix: a relay carries OpenFlow alone; use quic: \
                 for other agents"
            )));
        }
        let is_given =
            self.coalesce.is_some() || self.duplicate.is_some() || self.order == Order::Keyed;
        if nudge || is_given || self.early_data || self.guaranteed_rate.is_some() {
            return Err(Failure::usage(
                "--nudge, --guaranteed-rate, --coalesce, --duplicate, --early-data and --order \
                 keyed are for relays that are joined by quic:",
            ));
        }
        Ok(())
    }

    fn end_config(
        &self,
        side: Side,
        agents: &Agents,
        security: &Security,
        scheduling: Scheduling,
    ) -> EndConfig {
        EndConfig {
            session: Config {
                window_bytes: self.window_bytes as usize,
                grace: Duration::from_secs(self.grace_s.into()),
                copied: self.duplicate.unwrap_or_default(),
                order: match self.order {
                    Order::Strict => OrderMode::Strict,
                    Order::Keyed => OrderMode::Keyed,
                },
                classes: agents.classes.clone(),
                ..Config::new(side)
            },
            targets: agents.targets(),
            target_security: security.clone(),
            scheduling,
        }
    }
}

/// The sources and destinations of policy maps beside the other relay.
#[derive(Default)]
struct Maps {
    store: Option<PathBuf>,
    database: Option<Method>,
}

impl Maps {
    /// Parses the options. Also replaces an older map by the stored one.
    fn parse(args: &SwitchArgs, scheduling: &mut Scheduling) -> Result<Maps, Failure> {
        let given = [
            ("--policy-store", args.policy_store.is_some()),
            ("--policy-db", args.policy_db.is_some()),
        ];
        let given = given.iter().find(|(_, is_given)| *is_given);
        let Some(policy) = scheduling.policy.take() else {
            return match given {
                None => Ok(Maps::default()),
                Some((flag, _)) => Err(Failure::usage(format!(
                    "{flag}: without a policy map nothing is scheduled; give --policy too"
                ))),
            };
        };
        let database = match &args.policy_db {
            None => None,
            Some(text) => Some(keep::database("--policy-db", text)?),
        };
        scheduling.policy = Some(match &args.policy_store {
            None => policy,
            Some(path) => store::prefer(policy, path)?,
        });
        Ok(Maps {
            store: args.policy_store.clone(),
            database,
        })
    }

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

fn method(text: &str, protocol: Protocol) -> Result<Method, Failure> {
    Method::parse(text, protocol).map_err(Failure::usage)
}

/// The relays that a switch relay dials, in order of preference: one, or several by QUIC.
fn relays(given: &[String]) -> Result<Vec<Method>, Failure> {
    let mut relays: Vec<Method> = Vec::new();
    for text in given {
        let dialled = method(text, Protocol::OpenFlow)?;
        if dialled.is_passive() {
            return Err(Failure::usage(format!(
                "--connect {text}: relays connect by quic:, tcp: or ssl:HOST[:PORT], or unix:FILE"
            )));
        }
        if given.len() > 1 && !is_quic(&dialled) {
            return Err(Failure::usage(format!(
                "--connect {text}: of several, each is a controller relay by quic:HOST[:PORT]"
            )));
        }
        if relays.contains(&dialled) {
            return Err(Failure::usage(format!(
                "--connect {text}: given twice; give another address, or leave it out"
            )));
        }
        relays.push(dialled);
    }
    Ok(relays)
}

fn is_quic(method: &Method) -> bool {
    use net::method::Transport::Quic;
    matches!(method, Method::Dial(Quic, ..) | Method::Listen(Quic, ..))
}

/// Whether it needs certificates.
fn is_certified(method: &Method) -> bool {
    use net::method::Transport::{Quic, Tls};
    matches!(
        method,
        Method::Dial(Quic | Tls, ..) | Method::Listen(Quic | Tls, ..)
    )
}

/// `10mbit`, `500kbit`, `1gbit` or bits per second, in bytes per second.
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

/// `0x00525553`, or decimal.
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

/// SIGINT or SIGTERM.
pub async fn stop_signal() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
