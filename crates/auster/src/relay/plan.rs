//! The options of a relay and the files that they name, read whole. All mistakes are found before
//! anything is opened, and `--check` stops there.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use net::Pace;
use net::method::{Method, Protocol};
use net::tls::{CredentialFiles, Credentials, CredentialsError, Role, Security};
use nix::unistd::{AccessFlags, access};
use relay::{Config, OrderMode, Side};
use tokio::task::JoinSet;
use tunnel::{EndConfig, OPENFLOW, OVSDB, Scheduling};

use super::agents::Agents;
use super::{CommonArgs, ControllerArgs, Maps, Order, SwitchArgs, metrics, store};
use crate::queues::keep;
use cli::certificates;
use cli::failure::Failure;
use config::settings::sockets::{Socket, clashes, status_socket};

/// The mistakes found so far.
#[derive(Default)]
pub struct Mistakes(Vec<Failure>);

impl Mistakes {
    pub fn keep<T>(&mut self, found: Result<T, Failure>) -> Option<T> {
        found.map_err(|failure| self.add(failure)).ok()
    }

    /// Notes a mistake once: two options may name one file.
    pub fn add(&mut self, failure: Failure) {
        let is_it = |known: &Failure| known.message() == failure.message();
        if !self.0.iter().any(is_it) {
            self.0.push(failure);
        }
    }

    fn usage(&mut self, problem: impl std::fmt::Display) {
        self.add(Failure::usage(problem));
    }

    fn load(&mut self, files: &CredentialFiles) -> Option<Arc<Credentials>> {
        match files.load() {
            Ok(credentials) => Some(Arc::new(credentials)),
            Err(error) => {
                for fault in error.faults {
                    let faults = vec![fault];
                    self.add(CredentialsError { faults }.into());
                }
                None
            }
        }
    }

    /// One line for each mistake.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let lines = self.0.iter().flat_map(|one| one.message().lines());
        lines.map(str::to_owned)
    }

    fn none_or_all(self) -> Result<(), Failure> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Failure::all(self.0)),
        }
    }
}

/// The options that both relays have, checked.
pub struct Common {
    pub agents: Agents,
    /// Towards the other relay.
    pub security: Security,
    /// Towards switches or controllers beside us.
    pub local: Security,
    /// The credential files of both, listed once if both have the same files.
    files: Vec<(CredentialFiles, Security)>,
    pub scheduling: Scheduling,
    pub metrics: Option<metrics::Ready>,
    pub status: Option<Method>,
    begun: SystemTime,
}

pub struct SwitchPlan {
    pub relays: Vec<Method>,
    pub common: Common,
    pub maps: Maps,
    pub queues: Option<Method>,
}

pub struct ControllerPlan {
    pub listen: Method,
    pub common: Common,
}

impl SwitchArgs {
    /// # Errors
    /// All mistakes.
    pub fn plan(&self) -> Result<SwitchPlan, Failure> {
        let mut mistakes = Mistakes::default();
        let plan = self.read(&mut mistakes);
        mistakes.none_or_all().map(|()| plan)
    }

    /// All mistakes, including those of sockets.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Mistakes::default();
        let plan = self.read(&mut mistakes);
        let sockets = plan.common.socket_mistakes(None);
        mistakes.lines().chain(sockets).collect()
    }

    fn read(&self, mistakes: &mut Mistakes) -> SwitchPlan {
        let relays = relays(&self.connect, mistakes);
        let link = relays.first();
        let given = (&*self.openflow, self.ovsdb.as_deref());
        let mut common = self.common.read(Side::Switch, link, given, mistakes);
        let agents = &common.agents;
        if agents.active.contains_key(OPENFLOW) {
            mistakes.usage(format!(
                "--openflow {}: bridges connect to this end; write ptcp:[PORT][:HOST], pssl: or \
                 punix:FILE",
                self.openflow
            ));
        }
        if link.is_some_and(|link| !is_quic(link)) {
            let common = &self.common;
            common.refuse_what_direct_has_not(agents, self.nudge, mistakes);
        } else if self.nudge {
            let has_none = self.ovsdb.is_none() && !agents.active.contains_key(OVSDB);
            if has_none || agents.passive.contains_key(OVSDB) {
                mistakes.usage("--nudge needs --ovsdb unix:FILE or tcp:HOST:PORT");
            }
        }
        let queues = self.queues_db.as_deref();
        let queues = queues.map(|text| keep::database("--queues-db", text));
        SwitchPlan {
            maps: Maps::read(self, &mut common.scheduling, mistakes),
            queues: queues.and_then(|queues| mistakes.keep(queues)),
            relays,
            common,
        }
    }
}

impl ControllerArgs {
    /// # Errors
    /// All mistakes.
    pub fn plan(&self) -> Result<ControllerPlan, Failure> {
        let mut mistakes = Mistakes::default();
        let (listen, common) = self.read(&mut mistakes);
        mistakes.none_or_all()?;
        Ok(ControllerPlan {
            listen: listen?,
            common,
        })
    }

    /// All mistakes, including those of sockets.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Mistakes::default();
        let (listen, common) = self.read(&mut mistakes);
        let sockets = common.socket_mistakes(listen.as_ref().ok());
        mistakes.lines().chain(sockets).collect()
    }

    fn read(&self, mistakes: &mut Mistakes) -> (Result<Method, Failure>, Common) {
        let listen =
            method(&self.listen, Protocol::OpenFlow).and_then(|listen| match listen.is_passive() {
                true => Ok(listen),
                false => Err(Failure::usage(format!(
                    "--listen {}: relays listen on pquic:, ptcp: or pssl:[PORT][:HOST], or \
                     punix:FILE",
                    self.listen
                ))),
            });
        let link = mistakes.keep(listen.clone());
        let given = (&*self.openflow, self.ovsdb.as_deref());
        let common = self
            .common
            .read(Side::Controller, link.as_ref(), given, mistakes);
        if common.agents.passive.contains_key(OPENFLOW) {
            mistakes.usage(format!(
                "--openflow {}: this end dials the controller; write tcp:HOST[:PORT], ssl: or \
                 unix:FILE",
                self.openflow
            ));
        }
        if link.is_some_and(|link| !is_quic(&link)) {
            let agents = &common.agents;
            self.common
                .refuse_what_direct_has_not(agents, false, mistakes);
        }
        (listen, common)
    }
}

impl CommonArgs {
    fn read(
        &self,
        side: Side,
        link: Option<&Method>,
        (openflow, ovsdb): (&str, Option<&str>),
        mistakes: &mut Mistakes,
    ) -> Common {
        // Files that change from now on are read again.
        let begun = SystemTime::now();
        let agents = Agents::parse(openflow, ovsdb, &self.agents, mistakes);
        let (peer, beside) = match side {
            Side::Switch => (Role::Controller, Role::Switch),
            Side::Controller => (Role::Switch, Role::Controller),
        };
        let security = self.security(peer, link, &agents, mistakes);
        let local = self.local_security(beside, &security, &agents, mistakes);
        let link_files = self.files();
        let of_local = self.local_files();
        let of_local = of_local.filter(|files| Some(files) != link_files.as_ref());
        let of_link = link_files.map(|files| (files, security.clone()));
        let of_local = of_local.map(|files| (files, local.clone()));
        let wrong = |problem| Failure::usage(format!("--status: {problem}"));
        let status = self.status.as_deref().map(status_socket);
        let status = status.map(|status| status.map_err(wrong));
        if let Some(path) = &self.record {
            mistakes.keep(check_writable(path));
        }
        Common {
            agents,
            security,
            local,
            files: of_link.into_iter().chain(of_local).collect(),
            scheduling: self.scheduling(mistakes),
            metrics: mistakes.keep(self.metrics.ready()).flatten(),
            status: status
                .and_then(|path| mistakes.keep(path))
                .map(Method::ListenUnix),
            begun,
        }
    }

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

    fn security(
        &self,
        peer: Role,
        link: Option<&Method>,
        agents: &Agents,
        mistakes: &mut Mistakes,
    ) -> Security {
        if !self.peer_names.is_empty() && link.is_some_and(|link| !is_certified(link)) {
            mistakes.usage(
                "--peer-name is for relays that are joined by quic: or ssl:, which show \
                 certificates",
            );
        }
        let Some(files) = self.files() else {
            let has_local = self.local_key.is_some() && self.local_ca.is_some();
            if link.is_some_and(is_certified) || (!has_local && agents.any_is_certified()) {
                mistakes.usage(
                    "quic: and ssl: need --private-key <FILE>, --certificate <FILE> and \
                     --ca-cert <FILE>; 'auster pki' makes them",
                );
            }
            return Security::plain();
        };
        match mistakes.load(&files) {
            None => Security::plain(),
            Some(credentials) => Security::new(credentials)
                .expecting(peer)
                .naming(&self.peer_names)
                .early_data(self.early_data),
        }
    }

    /// The security of our own side. Its peers have the other role than the relay at the other end.
    fn local_security(
        &self,
        peer: Role,
        link: &Security,
        agents: &Agents,
        mistakes: &mut Mistakes,
    ) -> Security {
        let is_given = self.local_key.is_some() || self.local_ca.is_some();
        if is_given && !agents.any_is_certified() {
            mistakes
                .usage("--local-key, --local-cert and --local-ca are for agents by ssl: or pssl:");
        }
        let files = self.local_files();
        let security = match files {
            None => return Security::plain(),
            // The same files are read once, and watched once.
            files if files == self.files() => link.clone(),
            Some(files) => match mistakes.load(&files) {
                None => return Security::plain(),
                Some(credentials) => Security::new(credentials),
            },
        };
        security.expecting(peer).naming(&[]).early_data(false)
    }

    fn scheduling(&self, mistakes: &mut Mistakes) -> Scheduling {
        if !self.schedules() && self.rate.is_some() {
            mistakes.usage(
                "--rate: what is held back waits in the queues of a policy map; give --policy too",
            );
        }
        let is_given = self.coalesce.is_some() || self.duplicate.is_some();
        if self.schedules() && is_given {
            mistakes.usage(
                "--coalesce and --duplicate are for relays without --policy: with one, messages \
                 wait in its queues and are sent once",
            );
        }
        let policy = self.schedules().then(|| config::policy::load(&self.policy));
        Scheduling {
            policy: policy
                .and_then(|policy| mistakes.keep(policy))
                .map(Arc::new),
            pace: self.rate.map(|bytes| Arc::new(Pace::new(bytes))),
            guaranteed_bytes: self.guaranteed_rate,
            experimenter: self.experimenter_id,
            coalescing: self.coalesce.unwrap_or_default(),
        }
    }

    fn schedules(&self) -> bool {
        self.policy != "none"
    }

    /// Refuses the options that need one connection for all channels.
    fn refuse_what_direct_has_not(&self, agents: &Agents, nudge: bool, mistakes: &mut Mistakes) {
        for name in agents.names().filter(|name| *name != OPENFLOW) {
            mistakes.usage(format!(
                "'{name}': over tcp:, ssl: and unix: a relay carries OpenFlow alone; use quic: \
                 for other agents"
            ));
        }
        let is_given =
            self.coalesce.is_some() || self.duplicate.is_some() || self.order == Order::Keyed;
        if nudge || is_given || self.early_data || self.guaranteed_rate.is_some() {
            mistakes.usage(
                "--nudge, --guaranteed-rate, --coalesce, --duplicate, --early-data and --order \
                 keyed are for relays that are joined by quic:",
            );
        }
    }

    pub fn end_config(&self, side: Side, common: &Common) -> EndConfig {
        EndConfig {
            session: Config {
                window_bytes: self.window_bytes as usize,
                grace: Duration::from_secs(self.grace_s.into()),
                copied: self.duplicate.unwrap_or_default(),
                order: match self.order {
                    Order::Strict => OrderMode::Strict,
                    Order::Keyed => OrderMode::Keyed,
                },
                classes: common.agents.classes.clone(),
                ..Config::new(side)
            },
            targets: common.agents.targets(),
            target_security: common.local.clone(),
            scheduling: common.scheduling.clone(),
        }
    }
}

impl Common {
    /// Reads the certificates of both sides again at SIGHUP and when they change, and ends no
    /// relay.
    pub fn keep_certificates(&self) -> Result<JoinSet<()>, Failure> {
        certificates::keep(self.begun, self.files.clone())
    }

    /// One line for each socket that a start could not open.
    fn socket_mistakes(&self, listen: Option<&Method>) -> Vec<String> {
        let passive = self.agents.passive.iter();
        let passive = passive.filter(|(_, method)| !is_for_each(method));
        let agents = passive.map(|(name, method)| Socket::of_method(option_of(name), method));
        let udp = self.agents.passive_udp.values();
        let udp = udp.map(|method| Socket::of_udp("--agent", method));
        let listen = listen.map(|method| Socket::of_method("--listen", method));
        let status = self.status.as_ref();
        let status = status.map(|method| Socket::of_method("--status", method));
        let metrics = self.metrics.as_ref();
        let metrics = metrics.map(|ready| Socket::of_api("--metrics", ready.at()));
        let all = listen.into_iter().chain(agents).chain(udp);
        clashes(&all.chain(status).chain(metrics).collect::<Vec<_>>())
    }

    /// The credentials in use, each once.
    pub fn held(&self) -> Vec<Security> {
        self.files.iter().map(|(_, held)| held.clone()).collect()
    }
}

impl Maps {
    /// Reads the options. Also replaces an older map by the stored one.
    fn read(args: &SwitchArgs, scheduling: &mut Scheduling, mistakes: &mut Mistakes) -> Maps {
        let given = [
            ("--policy-store", args.policy_store.is_some()),
            ("--policy-db", args.policy_db.is_some()),
        ];
        for (flag, _) in given.iter().filter(|(_, is_given)| *is_given) {
            if !args.common.schedules() {
                mistakes.usage(format!(
                    "{flag}: without a policy map nothing is scheduled; give --policy too"
                ));
            }
        }
        let database = args.policy_db.as_deref();
        let database = database.map(|text| keep::database("--policy-db", text));
        if let Some(path) = &args.policy_store {
            mistakes.keep(check_writable(path));
            let policy = scheduling.policy.take();
            scheduling.policy = policy.map(|policy| store::prefer(policy, path));
        }
        Maps {
            store: args.policy_store.clone(),
            database: database.and_then(|database| mistakes.keep(database)),
        }
    }
}

/// Checks that a file can be written or created at this path, without changing it.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if path.is_dir() {
        return Err(Failure::file(path, "it is a directory; name a file"));
    }
    let place = if path.exists() { path } else { folder };
    let may = access(place, AccessFlags::W_OK).map_err(std::io::Error::from);
    may.map_err(|error| Failure::file(path, error))
}

pub fn method(text: &str, protocol: Protocol) -> Result<Method, Failure> {
    Method::parse(text, protocol).map_err(Failure::usage)
}

/// The relays that a switch relay dials, in order of preference: one, or several by QUIC.
fn relays(given: &[String], mistakes: &mut Mistakes) -> Vec<Method> {
    let mut relays: Vec<Method> = Vec::new();
    for text in given {
        let Some(dialled) = mistakes.keep(method(text, Protocol::OpenFlow)) else {
            continue;
        };
        if dialled.is_passive() {
            mistakes.usage(format!(
                "--connect {text}: relays connect by quic:, tcp: or ssl:HOST[:PORT], or unix:FILE"
            ));
        } else if given.len() > 1 && !is_quic(&dialled) {
            mistakes.usage(format!(
                "--connect {text}: of several, each is a controller relay by quic:HOST[:PORT]"
            ));
        } else if relays.contains(&dialled) {
            mistakes.usage(format!(
                "--connect {text}: given twice; give another address, or leave it out"
            ));
        } else {
            relays.push(dialled);
        }
    }
    relays
}

fn option_of(agent: &str) -> &'static str {
    match agent {
        OPENFLOW => "--openflow",
        OVSDB => "--ovsdb",
        _ => "--agent",
    }
}

/// Whether each switch's relay has a socket of its own.
pub fn is_for_each(method: &Method) -> bool {
    method.to_string().contains("{name}")
}

pub fn is_quic(method: &Method) -> bool {
    use net::method::Transport::Quic;
    matches!(method, Method::Dial(Quic, ..) | Method::Listen(Quic, ..))
}

/// Whether a method needs certificates.
pub fn is_certified(method: &Method) -> bool {
    use net::method::Transport::{Quic, Tls};
    matches!(
        method,
        Method::Dial(Quic | Tls, ..) | Method::Listen(Quic | Tls, ..)
    )
}
