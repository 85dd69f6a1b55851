//! `auster run` as a member of a cluster, with the sockets of [`control::cluster`]: etcd, the other
//! members, and a file. And what was requested through the API, kept in etcd or on disk
//! ([`intent`]).

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]
// The macros panic when they cannot write, and wait when nobody reads: see `cli::output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bells;
mod copies;
pub mod documents;
pub mod intent;
pub mod operator;
mod packets;
mod store;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clock::Instant;
use control::cluster::{Cluster, ClusterConfig, ClusterEvent, ClusterOutput, HighWater, MemberId};
use control::clustered::{Clustered, Outward, Sink};
use control::controller::Controller;
use driver::Driver;
use net::clock::Clock;
use net::tls::{CredentialFiles, Role, Security};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use cli::failure::Failure;
use config::cluster::Stated;
use config::settings::sockets::warn_if_exposed;
use documents::Identity;
use intent::etcd::Etcd;
use intent::{Intent, Store};
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
        warn_if_exposed(&stated.listen);
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
    /// no packets for them. `to` has the switches now, if that is known. `end_streams` gets its
    /// name.
    pub fn end_taps<F>(&self, to: Option<MemberId>, end_streams: F)
    where
        F: FnOnce(Option<&str>) + Send + 'static,
    {
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
                end_streams(served_by.as_deref());
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
