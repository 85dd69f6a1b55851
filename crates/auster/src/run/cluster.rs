//! `auster run` as a member of a cluster: `[cluster]` in the file, and the sockets of
//! [`control::cluster`]: etcd, the other members, and a file.

mod bells;
mod copies;
pub mod documents;
pub mod operator;
mod packets;
mod store;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clock::Instant;
use control::cluster::{Cluster, ClusterConfig, ClusterEvent, ClusterOutput, HighWater, MemberId};
use control::clustered::{Clustered, Outward, Sink};
use control::controller::Controller;
use driver::Driver;
use net::clock::Clock;
use net::method::Method;
use net::tls::{CredentialFiles, Role, Security, common_name, peer_identity};
use nix::unistd::{AccessFlags, access};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use toml::de::DeTable;

use super::fields::{self, Fields};
use super::intent::etcd::Etcd;
use super::intent::{self, Intent, Store};
use super::tapped::Rings;
use cli::failure::Failure;
use documents::Identity;
use store::Presence;

/// One member serves all switches, and the others stand by.
const SHARDS: u16 = 1;
/// The time that a departing member has to hand over.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// The time that each member of etcd has to answer a running controller.
const ETCD_MAX: Duration = Duration::from_millis(300);
/// The same time limit for documents of the API, which no switch waits for.
const INTENT_MAX: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// `[cluster]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    etcd: Vec<etcd::Endpoint>,
    /// Whether etcd and the other members are reached by TLS.
    is_secure: bool,
    /// The name of the cluster.
    id: String,
    name: MemberId,
    pub listen: Method,
    /// The address that the other members dial, if it differs from `listen`.
    address: Option<Method>,
    pub ca: Option<PathBuf>,
    pub state: PathBuf,
}

const FIELDS: [&str; 7] = ["etcd", "id", "name", "listen", "address", "ca", "state"];

impl Stated {
    /// Reads the table; `None` if something is wrong with it, which `fields` has noted.
    pub fn read<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>, dir: &Path) -> Option<Stated> {
        let table = fields.table(root, "cluster")?;
        fields.only(table, "cluster", &FIELDS);
        let at = root.get_key_value("cluster").map(|(key, _)| key.span());
        let at = at.unwrap_or(0..0);
        for needed in ["etcd", "name", "listen", "state"] {
            if !table.contains_key(needed) {
                let problem = format!(
                    "[cluster] needs {needed}; its keys are {}",
                    FIELDS.join(", ")
                );
                fields.problem(&at, problem);
            }
        }
        let endpoints = fields.list(table, "etcd", "https://10.0.0.1:2379", endpoint);
        if table.contains_key("etcd") && fields::items(table, "etcd").is_empty() {
            fields.problem(
                &at,
                "etcd names no address: write etcd = [\"https://10.0.0.1:2379\"]",
            );
        }
        let is_secure = endpoints.iter().any(|(is_secure, _)| *is_secure);
        if is_secure && endpoints.iter().any(|(is_secure, _)| !is_secure) {
            fields.problem(&at, "etcd: either all are https:// or all are http://");
        }
        let name = fields.parsed(table, "name", "a", |text| {
            MemberId::new(text).ok_or_else(|| {
                format!("'{text}' is no name of a member: 1 to 63 of a-z, 0-9 and -")
            })
        });
        let id = fields.string(table, "id", "campus");
        let listen = fields.parsed(table, "listen", "pssl:6655:10.0.0.5", |text| {
            bell(text, true)
        });
        let address = fields.parsed(table, "address", "ssl:10.0.0.5:6655", |text| {
            bell(text, false)
        });
        let file = |fields: &mut Fields<'_>, key, example| {
            fields
                .string(table, key, example)
                .map(|file| dir.join(file))
        };
        let ca = file(fields, "ca", "controllerca/cacert.pem");
        let state = file(fields, "state", "/var/lib/auster");
        let listen = listen?;
        if !table.contains_key("address") && listen.dialled().is_none() {
            let problem = format!(
                "[cluster] needs address: the other members cannot dial {listen}; write address = \
                 \"ssl:HOST:PORT\""
            );
            fields.problem(&at, problem);
        }
        let is_own = |method: &Method| match method {
            Method::Listen(_, host, _) | Method::Dial(_, host, _) => host.is_loopback(),
            _ => false,
        };
        let is_elsewhere = match &address {
            Some(address) => !is_own(address),
            None => endpoints.iter().any(|(_, at)| !at.is_loopback()),
        };
        if is_own(&listen) && is_elsewhere {
            let problem = format!(
                "[cluster] listen: only this machine reaches {listen}: write the address that the \
                 other members dial, or 0.0.0.0 for all"
            );
            fields.problem(&at, problem);
        }
        let is_secure_too = address.as_ref().map(Method::is_secure);
        if is_secure_too.is_some_and(|too| too != listen.is_secure()) {
            fields.problem(
                &at,
                "listen and address are of one kind: pssl and ssl, ptcp and tcp",
            );
        }
        Some(Stated {
            etcd: endpoints.into_iter().map(|(_, at)| at).collect(),
            is_secure,
            id: id.unwrap_or_else(|| "auster".to_owned()),
            name: name?,
            listen,
            address,
            ca,
            state: state?,
        })
    }

    /// Whether this member needs certificates.
    pub fn is_secure(&self) -> bool {
        self.is_secure || self.listen.is_secure()
    }

    /// Returns the certificate files for etcd and the other members, if TLS is configured for
    /// either. `files` are the certificate files for switches.
    pub fn files(&self, files: Option<CredentialFiles>) -> Option<CredentialFiles> {
        let files = files.filter(|_| self.is_secure())?;
        Some(CredentialFiles {
            ca: self.ca.clone().unwrap_or(files.ca),
            crl: None,
            ..files
        })
    }

    /// Loads the certificates from the files that [`Stated::files`] chooses.
    pub fn security(&self, files: Option<CredentialFiles>) -> Result<Security, Failure> {
        match self.files(files) {
            Some(files) => Ok(Security::new(Arc::new(files.load()?))),
            None => Ok(Security::plain()),
        }
    }

    /// Runs the checks that `--check` can make before the member starts: that other members will
    /// accept its certificate for this name, and that its folder can be created.
    pub fn can_start(&self, security: &Security) -> Result<(), Failure> {
        let mut problems = Vec::new();
        if let Some(credentials) = security.credentials().filter(|_| self.listen.is_secure()) {
            let (name, chain) = (&self.name, Some(credentials.certificate()));
            let owner = common_name(chain).unwrap_or_default();
            if owner != name.as_str() {
                problems.push(format!(
                    "[cluster] name is {name}, and the certificate is {owner:?}'s: a member is \
                     named as its certificate is (auster pki controller {name})"
                ));
            }
            if !peer_identity(chain).may_be(Some(Role::Controller)) {
                problems.push(format!(
                    "[cluster] the certificate is a switch's: a member needs a controller's \
                     (auster pki controller {name})"
                ));
            }
        }
        let state = self.state.ancestors().find(|folder| folder.exists());
        let state = state.filter(|folder| !folder.as_os_str().is_empty());
        let state = state.unwrap_or(Path::new("."));
        let can_write = AccessFlags::W_OK | AccessFlags::X_OK;
        if !state.is_dir() || access(state, can_write).is_err() {
            problems.push(format!(
                "[cluster] state: {} cannot be made or written: {} is no folder that this user may \
                 write to",
                self.state.display(),
                state.display()
            ));
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Failure::usage(problems.join("\n"))),
        }
    }

    /// Makes a client of etcd. Each etcd member has `deadline` to answer.
    pub fn client(&self, security: &Security, deadline: Duration) -> Result<etcd::Client, Failure> {
        let mut config = etcd::Config::new(self.etcd.clone());
        config.tls = self.is_secure.then(|| security.clone());
        config.deadline = deadline;
        etcd::Client::new(config)
            .map_err(|error| Failure::usage(format!("[cluster] etcd: {error}")))
    }

    fn high_water_file(&self) -> PathBuf {
        self.state.join(format!("cluster-{}.json", self.name))
    }
}

fn endpoint(text: &str) -> Result<(bool, etcd::Endpoint), String> {
    let (is_secure, at) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(at), _) => (true, at),
        (_, Some(at)) => (false, at),
        _ => {
            return Err(format!(
                "'{text}' is no address of etcd: write https://HOST:2379 or http://HOST:2379"
            ));
        }
    };
    let endpoint = at.trim_end_matches('/').parse();
    endpoint
        .map(|at| (is_secure, at))
        .map_err(|problem| format!("'{text}': {problem}"))
}

fn bell(text: &str, is_passive: bool) -> Result<Method, String> {
    let method: Method = text
        .parse()
        .map_err(|error: net::method::MethodError| error.to_string())?;
    let is_stream = matches!(
        text.split(':').next(),
        Some("ptcp" | "pssl" | "tcp" | "ssl")
    );
    match (is_stream && method.is_passive() == is_passive, is_passive) {
        (true, _) => Ok(method),
        (false, true) => Err(format!("'{text}': write pssl:PORT:HOST or ptcp:PORT:HOST")),
        (false, false) => Err(format!("'{text}': write ssl:HOST:PORT or tcp:HOST:PORT")),
    }
}

/// A member before the driver runs.
pub struct Joining {
    stated: Stated,
    etcd: etcd::Client,
    /// A client with its own connections: large answers must not delay answers about members.
    intent: etcd::Client,
    listening: bells::Listening,
    /// TLS for the bells. The etcd clients use the same certificates.
    security: Security,
    outward: mpsc::UnboundedReceiver<Outward>,
}

impl Joining {
    /// Opens the sockets, and makes the application that the driver runs. `files` are the
    /// certificate files for switches.
    pub async fn begin(
        stated: Stated,
        files: Option<CredentialFiles>,
        controller: Controller,
        now: Instant,
        seed: u64,
    ) -> Result<(Joining, Clustered), Failure> {
        let security = stated.security(files)?;
        stated.can_start(&security)?;
        let etcd = stated.client(&security, ETCD_MAX)?;
        let intent = stated.client(&security, INTENT_MAX)?;
        let security = security.expecting(Role::Controller);
        let listening = bells::Listening::bind(&stated.listen, &security)
            .await
            .map_err(Failure::network)?;
        super::warn_if_exposed(&stated.listen);
        let high_water = read_high_water(&stated)?;
        let config = ClusterConfig {
            id: stated.name.clone(),
            shards: SHARDS,
            seed,
            reads: documents::SCHEMA,
        };
        let cluster = Cluster::new(now, config, high_water);
        let (sender, outward) = mpsc::unbounded_channel();
        let sink: Sink = Box::new(move |output| {
            let _ = sender.send(output);
        });
        let application = Clustered::member(now, controller, cluster, sink);
        let joining = Joining {
            stated,
            etcd,
            intent,
            listening,
            security,
            outward,
        };
        Ok((joining, application))
    }

    /// The certificates in use for etcd and the other members. The caller may replace them.
    pub fn security(&self) -> &Security {
        &self.security
    }

    /// Returns the store for the API's requests, and the name of its writer.
    pub fn store(&self, seed: u64) -> (Store, String) {
        let name = self.stated.name.to_string();
        let etcd = Etcd::new(self.intent.clone(), name.clone(), seed);
        (Store::Etcd(etcd), name)
    }

    /// Starts the tasks.
    pub fn join(
        self,
        driver: &Arc<Driver<Clustered>>,
        intent: Arc<Intent>,
        clock: Clock,
    ) -> Joined {
        let handle = Handle {
            driver: driver.clone(),
            clock,
        };
        let name = &self.stated.name;
        let address = self.stated.address.clone();
        let address = address.or_else(|| self.listening.local().dialled());
        let address = address.expect("checked when it was read").to_string();
        let (events, to_print) = mpsc::channel(EVENTS_MAX);
        let presence = Arc::new(watch::Sender::new(Presence::default()));
        let (requests, requested) = mpsc::unbounded_channel();
        let (high_water, marks) = watch::channel(None);
        let heard_at = self.listening.local().to_string();
        let (name_taken, named) = watch::channel(false);
        let outlet = Outlet {
            named: named.clone(),
            bells: bells::Bells::new(name.clone(), self.security, handle.clone()),
            requests,
            high_water,
            presence: presence.clone(),
            events,
        };
        let keeper = store::Keeper {
            id: name.clone(),
            presence: presence.clone(),
        };
        let cluster = Identity {
            id: self.stated.id.clone(),
            schema: documents::SCHEMA,
        };
        let key = store::keep_member(
            self.etcd.clone(),
            store::Own {
                cluster: cluster.clone(),
                id: name.clone(),
                address,
            },
            keeper.clone(),
            name_taken,
            handle.clone(),
        );
        let of_intent = presence.clone();
        let loaded = move || {
            of_intent
                .send_if_modified(|presence| !std::mem::replace(&mut presence.has_intent, true));
        };
        let of_others = handle.clone();
        let is_ready_elsewhere = move || {
            let driver = of_others.driver.clone();
            async move {
                let ready = driver
                    .ask(|application| application.cluster().is_some_and(Cluster::has_ready_peer));
                // Without an answer, the caller asks again.
                ready.await != Some(false)
            }
        };
        let follow = intent::etcd::follow(
            intent,
            self.intent,
            named.clone(),
            intent::etcd::WAIT_MAX,
            loaded,
            is_ready_elsewhere,
        );
        let (etcd, members) = (self.etcd.clone(), self.stated.etcd.clone());
        let tasks = vec![
            tokio::spawn(follow),
            tokio::spawn(store::watch_room(
                etcd.clone(),
                members.len(),
                named.clone(),
                handle.clone(),
            )),
            tokio::spawn(store::warn_if_old(etcd, members, named.clone())),
            tokio::spawn(store::carry_out(
                self.etcd,
                cluster,
                requested,
                named,
                keeper,
                handle.clone(),
            )),
            tokio::spawn(self.listening.listen(name.clone(), handle.clone())),
            tokio::spawn(keep_high_water(self.stated.high_water_file(), marks)),
            tokio::spawn(outlet.run(self.outward)),
        ];
        Joined {
            name: name.clone(),
            heard_at,
            events: to_print,
            handle,
            presence,
            key: tokio::spawn(key),
            tasks,
        }
    }
}

/// Events that may wait to be printed; more are lost.
const EVENTS_MAX: usize = 256;

/// A member of a running cluster.
pub struct Joined {
    pub name: MemberId,
    /// Where the other members ring.
    pub heard_at: String,
    pub events: mpsc::Receiver<ClusterEvent>,
    handle: Handle,
    presence: Arc<watch::Sender<Presence>>,
    key: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
}

impl Joined {
    /// Ends all taps and their streams on a member that no longer serves the switches: it receives
    /// no packets for them. `to` has the switches now, if that is known.
    pub fn end_taps(&self, rings: Arc<Rings>, to: Option<MemberId>) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            let served_by = to.as_ref().map(ToString::to_string);
            let ended = handle.application(move |application, now| {
                // This member may be serving again.
                if application.cluster().is_none_or(Cluster::holds_any) {
                    return 0;
                }
                let taps = application.taps(None);
                for view in &taps {
                    application.remove_tap(now, &view.id);
                }
                rings.end_all(served_by.as_deref());
                taps.len()
            });
            if let Some(count) = ended.await.filter(|count| *count > 0) {
                let by =
                    to.map_or_else(|| "another member".to_owned(), |id| format!("member {id}"));
                tracing::warn!(
                    "cluster: {count} taps end: {by} serves the switches; set them there"
                );
            }
        });
    }

    /// Hands the switches over to the others, for two seconds at most, and ends.
    pub async fn leave(self) {
        self.presence
            .send_modify(|presence| presence.is_leaving = true);
        let driver = &self.handle.driver;
        let handed_over = async {
            self.handle
                .cluster(|cluster, now| cluster.set_ready(now, false))
                .await;
            loop {
                let asked = driver
                    .ask(|application| application.cluster().is_none_or(Cluster::holds_nothing));
                if asked.await == Some(true) {
                    return;
                }
                tokio::select! {
                    () = driver.ended() => return,
                    () = sleep(LOOK_AGAIN) => {}
                }
            }
        };
        let _ = timeout(LEAVE_MAX, handed_over).await;
        self.presence
            .send_modify(|presence| presence.is_gone = true);
        let _ = timeout(LEAVE_MAX, self.key).await;
        for task in self.tasks {
            task.abort();
        }
    }
}

/// Waits for the next event, if this controller is a member.
pub async fn next_event(joined: &mut Option<Joined>) -> Option<ClusterEvent> {
    match joined {
        Some(joined) => joined.events.recv().await,
        None => None,
    }
}

/// A handle to the application, for the tasks of a member.
#[derive(Clone)]
struct Handle {
    driver: Arc<Driver<Clustered>>,
    clock: Clock,
}

impl Handle {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Passes an input to the cluster. Waits while the application is too busy; no input is lost
    /// until it ends.
    async fn cluster(&self, input: impl FnOnce(&mut Cluster, Instant) + Send + 'static) {
        self.application(move |application, now| {
            application.tell_cluster(now, |cluster| input(cluster, now));
        })
        .await;
    }

    /// Does the same with the controller, and returns its answer; `None` if the application has
    /// ended.
    async fn application<R: Send + 'static>(
        &self,
        input: impl FnOnce(&mut Clustered, Instant) -> R + Send + 'static,
    ) -> Option<R> {
        let input = Arc::new(Mutex::new(Some(input)));
        let take =
            |input: &Mutex<Option<_>>| input.lock().unwrap_or_else(PoisonError::into_inner).take();
        loop {
            let (clock, given) = (self.clock, input.clone());
            let asked = self.driver.ask(move |application: &mut Clustered| {
                take(&given).map(|input| input(application, clock.now()))
            });
            if let Some(answer) = asked.await {
                return answer;
            }
            tokio::select! {
                () = self.driver.ended() => return None,
                () = sleep(LOOK_AGAIN) => {}
            }
        }
    }
}

/// Delivers the output of the application's thread to its recipients.
struct Outlet {
    bells: bells::Bells,
    /// Whether etcd has had this member's key once. Until then, another process may have the name.
    named: watch::Receiver<bool>,
    requests: mpsc::UnboundedSender<(u32, control::cluster::StoreRequest)>,
    high_water: watch::Sender<Option<HighWater>>,
    presence: Arc<watch::Sender<Presence>>,
    events: mpsc::Sender<ClusterEvent>,
}

impl Outlet {
    async fn run(mut self, mut outward: mpsc::UnboundedReceiver<Outward>) {
        while let Some(output) = outward.recv().await {
            match output {
                Outward::Reaches(reaches) => {
                    self.presence
                        .send_modify(|presence| presence.reaches = reaches);
                }
                Outward::Edges(edges) => self.bells.send_edges(&edges),
                Outward::Packet { to, dpid, frame } => self.bells.send_packet(&to, dpid, &frame),
                Outward::Cluster(ClusterOutput::Store { number, request }) => {
                    let _ = self.requests.send((number, request));
                }
                Outward::Cluster(ClusterOutput::Peer { to, message }) => {
                    if *self.named.borrow() {
                        self.bells.send(&to, message);
                    }
                }
                Outward::Cluster(ClusterOutput::Members(members)) => {
                    self.bells.set_members(&members);
                }
                Outward::Cluster(ClusterOutput::HighWater(mark)) => {
                    self.high_water.send_replace(Some(mark));
                }
                Outward::Cluster(ClusterOutput::Event(event)) => {
                    self.presence.send_if_modified(|presence| {
                        let before = *presence;
                        match event {
                            ClusterEvent::Schema { in_use, reads } => {
                                presence.is_too_old = reads < in_use;
                            }
                            ClusterEvent::Deaf { .. } => presence.is_deaf = true,
                            ClusterEvent::HearsAgain => presence.is_deaf = false,
                            _ => {}
                        }
                        *presence != before
                    });
                    let _ = self.events.try_send(event);
                }
                // The application carries these out itself.
                Outward::Cluster(
                    ClusterOutput::Role { .. }
                    | ClusterOutput::Close { .. }
                    | ClusterOutput::Serve { .. }
                    | ClusterOutput::Yield { .. },
                ) => {}
            }
        }
    }
}

/// Reads the mark that an earlier process of this member left, and makes its directory.
fn read_high_water(stated: &Stated) -> Result<Option<HighWater>, Failure> {
    let file = stated.high_water_file();
    std::fs::create_dir_all(&stated.state).map_err(|error| Failure::file(&stated.state, error))?;
    // Find an unwritable folder now, not after etcd was restored.
    let probe = file.with_extension("probe");
    std::fs::write(&probe, []).map_err(|error| Failure::file(&probe, error))?;
    let _ = std::fs::remove_file(&probe);
    match std::fs::read(&file) {
        Ok(text) => documents::high_water(&text).map(Some).map_err(|problem| {
            Failure::usage(format!(
                "{}: {problem}; delete it if etcd was never restored from a backup",
                file.display()
            ))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::file(&file, error)),
    }
}

/// Writes the latest mark whenever it changes.
async fn keep_high_water(file: PathBuf, mut marks: watch::Receiver<Option<HighWater>>) {
    let mut has_failed = false;
    while marks.changed().await.is_ok() {
        let Some(mark) = *marks.borrow_and_update() else {
            continue;
        };
        let at = file.clone();
        let text = documents::high_water_text(&mark);
        let written = tokio::task::spawn_blocking(move || cli::whole::replace(&at, &text));
        match written.await {
            Ok(Ok(())) => has_failed = false,
            Ok(Err(error)) if !has_failed => {
                has_failed = true;
                tracing::error!("cluster: {}: {error}; the next one may go", file.display());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::fields::without_columns;

    fn read(text: &str) -> Result<Option<Stated>, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let stated = Stated::read(&mut fields, &root, Path::new("/etc/auster"));
        let done = fields.finish("net.toml").map_err(without_columns);
        done.map(|()| stated)
    }

    #[test]
    fn a_member_listens_where_the_others_dial() {
        let text = r#"
            [cluster]
            etcd = ["http://10.0.0.1:2379", "http://[::1]:2379"]
            name = "a"
            listen = "ptcp:6655:10.0.0.5"
            state = "state"
        "#;
        let stated = read(text).unwrap().unwrap();
        let dialled = stated.listen.dialled().unwrap();
        assert_eq!(dialled.to_string(), "tcp:10.0.0.5:6655");
        assert!(!stated.is_secure());
        let file = stated.high_water_file();
        assert_eq!(file, Path::new("/etc/auster/state/cluster-a.json"));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        for (state, is_good) in [("state/deep", true), ("file", false), ("file/state", false)] {
            let state = dir.path().join(state);
            let text = format!(
                "[cluster]\netcd = [\"http://127.0.0.1\"]\nname = \"a\"\n\
                 listen = \"ptcp:6655:127.0.0.1\"\nstate = \"{}\"\n",
                state.display()
            );
            let stated = read(&text).unwrap().unwrap();
            let checked = stated.can_start(&Security::plain());
            assert_eq!(checked.is_ok(), is_good, "{checked:?}");
            assert!(!state.exists() || state.is_file(), "a check makes nothing");
        }
    }

    #[test]
    fn all_mistakes_are_reported_together() {
        let text = r#"
[cluster]
etcd = ["https://10.0.0.1:2379", "10.0.0.2"]
name = "A b"
listen = "quic:10.0.0.5"
address = "pssl:6655"
shards = 3
"#;
        let problems = read(text).unwrap_err().join("\n");
        for part in [
            "net.toml:2: [cluster] needs state",
            "net.toml:3: etcd: '10.0.0.2' is no address of etcd",
            "net.toml:4: name: 'A b' is no name of a member",
            "net.toml:5: listen: ",
            "net.toml:6: address: ",
            "net.toml:7: ",
        ] {
            assert!(problems.contains(part), "{part}\n{problems}");
        }
        let nowhere = r#"
            [cluster]
            etcd = []
            name = "a"
            listen = "ptcp:6655:10.0.0.5"
            state = "state"
        "#;
        let problems = read(nowhere).unwrap_err().join("\n");
        assert!(problems.contains("etcd names no address"), "{problems}");
        for (etcd, address) in [
            ("10.0.0.1", ""),
            ("127.0.0.1", "address = \"tcp:10.0.0.5:6655\""),
        ] {
            let own = format!(
                "[cluster]\netcd = [\"http://{etcd}:2379\"]\nname = \"a\"\n\
                 listen = \"ptcp:6655:127.0.0.1\"\n{address}\nstate = \"state\"\n"
            );
            let problems = read(&own).unwrap_err().join("\n");
            assert!(problems.contains("only this machine reaches"), "{problems}");
        }
        let everywhere = r#"
            [cluster]
            etcd = ["http://10.0.0.1:2379"]
            name = "a"
            listen = "ptcp:6655:0.0.0.0"
            state = "state"
        "#;
        let problems = read(everywhere).unwrap_err().join("\n");
        assert!(problems.contains("needs address"), "{problems}");
    }
}
