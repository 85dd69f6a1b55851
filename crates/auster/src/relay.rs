//! `auster relay`: flags to plain data, listeners and dialling, status and record. What a relay is
//! and does stands in `control::relay` and `net::tunnel`.

mod nudge;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use control::relay::{Config, SessionId, Side};
use net::method::{Method, Protocol};
use net::tls::{CredentialFiles, Role, Security};
use net::transport::{Limits, Listener};
use net::tunnel::{self, End, EndConfig, Hub, OPENFLOW, OVSDB, Target};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::failure::Failure;
use report::{Reporter, Source};

/// For the last datagram to leave, which tells the other relay not to wait.
const GOODBYE: Duration = Duration::from_millis(50);

#[derive(clap::Subcommand)]
pub enum Command {
    /// The end next to the switches: takes their connections and carries them to a controller relay
    #[command(after_help = "\
Example:
  auster relay switch --openflow ptcp:6653:127.0.0.1 --ovsdb unix:/run/openvswitch/db.sock \\
      --connect quic:192.0.2.1:6654 -p s1-privkey.pem -c s1-cert.pem -C cacert.pem

Each bridge is then pointed here: ovs-vsctl set-controller br0 tcp:127.0.0.1:6653")]
    Switch(SwitchArgs),
    /// The end next to the controllers: takes switch relays and dials the controller for each bridge
    #[command(after_help = "\
Example:
  auster relay controller --listen pquic:6654 --openflow tcp:127.0.0.1:6653 \\
      --ovsdb punix:/run/auster/{name}.sock -p c1-privkey.pem -c c1-cert.pem -C cacert.pem

{name} is the common name in the switch relay's certificate, so that each switch has its own \
socket: ovs-vsctl --db=unix:/run/auster/s1.sock show. A passive method without {name} serves the \
only switch relay there is.")]
    Controller(ControllerArgs),
}

#[derive(clap::Args)]
pub struct SwitchArgs {
    /// Where bridges connect to; each connection is a channel of its own
    #[arg(long, value_name = "METHOD")]
    openflow: String,
    /// The switch's OVSDB server: dialled when the other end asks (unix:, tcp:), or waited for
    #[arg(long, value_name = "METHOD")]
    ovsdb: Option<String>,
    /// The controller relay
    #[arg(long, value_name = "METHOD")]
    connect: String,
    /// Makes bridges that wait out a back-off connect at once after a restart of either relay, by
    /// rewriting their controller's target in an equivalent form through --ovsdb
    #[arg(long)]
    nudge: bool,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
pub struct ControllerArgs {
    /// Where switch relays connect to
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
    /// Carry the byte streams of another agent under this name; repeat for more. Passive at one
    /// end and active at the other
    #[arg(long = "agent", value_name = "NAME=METHOD")]
    agents: Vec<String>,
    /// Our private key
    #[arg(short = 'p', long, value_name = "FILE")]
    private_key: PathBuf,
    /// Our certificate
    #[arg(short = 'c', long, value_name = "FILE")]
    certificate: PathBuf,
    /// The CA of the other end's certificate
    #[arg(short = 'C', long, value_name = "FILE")]
    ca_cert: PathBuf,
    /// How long local connections outlive the connection between the relays
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace_s: u16,
    /// Per channel and direction: bytes under way or held before the sender is not read any more
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    window_bytes: u32,
    /// Answer each connection to this Unix socket with the state as one JSON document
    #[arg(long, value_name = "METHOD")]
    status: Option<String>,
    /// Write one JSON line per channel at its end: messages, bytes and digest of each direction
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

pub fn run(command: Command) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::machine)?;
    match command {
        Command::Switch(args) => runtime.block_on(run_switch(args)),
        Command::Controller(args) => runtime.block_on(run_controller(args)),
    }
}

async fn run_switch(args: SwitchArgs) -> Result<(), Failure> {
    let connect = method(&args.connect, Protocol::OpenFlow)?;
    if !matches!(connect, Method::Dial(net::method::Transport::Quic, ..)) {
        let given = &args.connect;
        return Err(Failure::usage(format!(
            "--connect {given}: relays connect by quic:HOST[:PORT]"
        )));
    }
    let security = args.common.security(Role::Controller)?;
    let agents = Agents::parse(&args.openflow, args.ovsdb.as_deref(), &args.common.agents)?;
    if !agents.passive.contains_key(OPENFLOW) {
        let given = &args.openflow;
        let wrong = "bridges connect to this end; write ptcp:[PORT][:HOST], pssl: or punix:FILE";
        return Err(Failure::usage(format!("--openflow {given}: {wrong}")));
    }
    let database = agents.active.get(OVSDB).cloned();
    if args.nudge && database.is_none() {
        return Err(Failure::usage(
            "--nudge needs --ovsdb unix:FILE or tcp:HOST:PORT",
        ));
    }

    let config = args
        .common
        .end_config(Side::Switch, &agents.active, &security);
    let end = End::new(config, SessionId(net::tunnel::random()), "controller");
    let mut tasks = JoinSet::new();
    let mut openflow = None;
    for (agent, method) in &agents.passive {
        let mut listener = bind(agent, method, &security).await?;
        if agent == OPENFLOW {
            openflow = Some(listener.local().clone());
        }
        let (end, agent) = (end.clone(), agent.clone());
        tasks.spawn(async move {
            loop {
                let connection = listener.accept().await;
                end.adopt(&agent, connection);
            }
        });
    }
    if let (true, Some(database), Some(openflow)) = (args.nudge, database, openflow) {
        tasks.spawn(nudge::run(end.clone(), database, openflow));
    }
    let source = Source::End(end.clone());
    let reporter = Reporter::start(&args.common.status, &args.common.record, source).await?;
    agents.warn_if_exposed();
    let mut tunnel = std::pin::pin!(tunnel::switch(&end, &connect, &security));
    let stopped = tokio::select! {
        error = &mut tunnel => Err(Failure::network(error)),
        () = stop_signal() => Ok(()),
    };
    end.close("the switch's relay was stopped");
    if stopped.is_ok() {
        let _ = tokio::time::timeout(GOODBYE, tunnel).await;
    }
    stop(reporter).await?;
    stopped
}

async fn run_controller(args: ControllerArgs) -> Result<(), Failure> {
    let listen = method(&args.listen, Protocol::OpenFlow)?;
    if !matches!(listen, Method::Listen(net::method::Transport::Quic, ..)) {
        let given = &args.listen;
        return Err(Failure::usage(format!(
            "--listen {given}: relays listen on pquic:[PORT][:HOST]"
        )));
    }
    let security = args.common.security(Role::Switch)?;
    let agents = Agents::parse(&args.openflow, args.ovsdb.as_deref(), &args.common.agents)?;
    if !agents.active.contains_key(OPENFLOW) {
        let given = &args.openflow;
        let wrong = "this end dials the controller; write tcp:HOST[:PORT], ssl: or unix:FILE";
        return Err(Failure::usage(format!("--openflow {given}: {wrong}")));
    }
    let (each, shared): (BTreeMap<_, _>, BTreeMap<_, _>) = agents
        .passive
        .clone()
        .into_iter()
        .partition(|(_, method)| method.to_string().contains("{name}"));
    let config = args
        .common
        .end_config(Side::Controller, &agents.active, &security);
    let hub = Hub::bind(&listen, &security, config, each.into_iter().collect())
        .await
        .map_err(Failure::network)?;
    println!("listening {} relays", hub.local());

    let mut tasks = JoinSet::new();
    for (agent, method) in shared {
        let mut listener = bind(&agent, &method, &security).await?;
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
    let source = Source::Hub(hub.clone());
    let reporter = Reporter::start(&args.common.status, &args.common.record, source).await?;
    agents.warn_if_exposed();
    tokio::select! {
        () = hub.run() => {}
        () = stop_signal() => {}
    }
    hub.close("the controller's relay was stopped");
    stop(reporter).await
}

/// Lets the last words go out before the process ends.
async fn stop(reporter: Reporter) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    reporter.finish()
}

impl CommonArgs {
    fn security(&self, peer: Role) -> Result<Security, Failure> {
        let files = CredentialFiles {
            private_key: self.private_key.clone(),
            certificate: self.certificate.clone(),
            ca: self.ca_cert.clone(),
        };
        let credentials = files.load().map_err(|error| {
            if error.is_unreadable {
                Failure::file(error.path, error.problem)
            } else {
                Failure::network(&error)
            }
        })?;
        Ok(Security::new(Arc::new(credentials)).expecting(peer))
    }

    fn end_config(
        &self,
        side: Side,
        active: &BTreeMap<String, Method>,
        security: &Security,
    ) -> EndConfig {
        let dial =
            |(agent, method): (&String, &Method)| (agent.clone(), Target::Dial(method.clone()));
        EndConfig {
            session: Config {
                window_bytes: self.window_bytes as usize,
                grace: Duration::from_secs(self.grace_s.into()),
                ..Config::new(side)
            },
            targets: active.iter().map(dial).collect(),
            target_security: security.clone(),
        }
    }
}

/// Agents by name, as this end has them.
struct Agents {
    passive: BTreeMap<String, Method>,
    active: BTreeMap<String, Method>,
}

impl Agents {
    fn parse(openflow: &str, ovsdb: Option<&str>, more: &[String]) -> Result<Agents, Failure> {
        let mut agents = Agents {
            passive: BTreeMap::new(),
            active: BTreeMap::new(),
        };
        agents.add(OPENFLOW, method(openflow, Protocol::OpenFlow)?)?;
        if let Some(ovsdb) = ovsdb {
            agents.add(OVSDB, method(ovsdb, Protocol::Ovsdb)?)?;
        }
        for agent in more {
            let (name, text) = agent
                .split_once('=')
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "--agent {agent}: write NAME=METHOD, as gnmi=tcp:127.0.0.1:9339"
                    ))
                })?;
            agents.add(name, method(text, Protocol::OpenFlow)?)?;
        }
        Ok(agents)
    }

    /// Once nothing is wrong any more, so that an error stands alone.
    fn warn_if_exposed(&self) {
        for (name, method) in self.passive.iter().chain(&self.active) {
            if method.is_exposed() {
                tracing::warn!("{method} carries '{name}' unprotected; use 127.0.0.1 or ssl:");
            }
        }
    }

    fn add(&mut self, name: &str, method: Method) -> Result<(), Failure> {
        if self.passive.contains_key(name) || self.active.contains_key(name) {
            return Err(Failure::usage(format!(
                "the agent '{name}' is given twice; give it another name"
            )));
        }
        let side = if method.is_passive() {
            &mut self.passive
        } else {
            &mut self.active
        };
        side.insert(name.to_owned(), method);
        Ok(())
    }
}

fn method(text: &str, protocol: Protocol) -> Result<Method, Failure> {
    Method::parse(text, protocol).map_err(Failure::usage)
}

async fn bind(agent: &str, method: &Method, security: &Security) -> Result<Listener, Failure> {
    let listener = Listener::bind(method, security, Limits::default()).await;
    let listener = listener.map_err(Failure::network)?;
    println!("listening {} {agent}", listener.local());
    Ok(listener)
}

async fn stop_signal() {
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
