//! `auster run`: the controller. Listens, prints what happens, and ends on SIGINT or SIGTERM
//! leaving the switches' flow entries as they are, so that traffic flows on without it.

pub(crate) mod access;
pub(crate) mod api;
mod bfd;
mod bonds;
pub(crate) mod cluster;
mod databases;
mod drain;
mod events;
pub(crate) mod exposition;
mod feed;
pub mod fields;
mod gateways;
mod intent;
mod load;
pub(crate) mod metrics;
mod mirrors;
mod multicast;
pub(crate) mod process;
mod qos;
mod ring;
pub(crate) mod settings;
mod status;
mod timeouts;
mod topology;
mod vlans;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cli::process::raise_file_limit;
use control::clustered::Clustered;
use control::controller::Controller;
use driver::reconnect::Reconnect;
use driver::{Driver, Notice};
use net::clock::Clock;
use net::method::Method;
use net::tls::{Role, Security};
use net::transport::{Limits, Listener, TransportError, connect_at};
use net::workers::Workers;
use sha2::{Digest, Sha256};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::certificates;
use crate::policy;
use cli::failure::Failure;
use cli::output::{self, note};
use cli::service::{self, Manager};
use events::Printer;
use feed::Feed;
use intent::{Intent, Store};
use load::Sampler;
use qos::{Held, Refused};
pub(crate) use settings::Settings;
use settings::{Forwarding, Mode};
pub(crate) use topology::edge_port as port_of_switch;
use vlans::Follower;
pub(crate) use vlans::name as vlan_name;

/// Control a network: every switch that connects is set up, links and hosts are found, and paths
/// are installed.
///
/// Without METHOD it listens on ptcp:6653:127.0.0.1, or on pssl:6653 when certificates are given.
#[derive(Clone, clap::Args)]
pub struct Args {
    /// Where to listen for switches, and whom to dial: ptcp:[PORT][:HOST], pssl:, pquic:,
    /// punix:FILE; tcp:HOST[:PORT], ssl:, quic:, unix:FILE
    #[arg(value_name = "METHOD")]
    methods: Vec<Method>,

    /// Listen for switches
    #[arg(long, value_name = "METHOD")]
    listen: Vec<Method>,

    /// Dial a switch that listens, and dial again whenever it is gone
    #[arg(long, value_name = "METHOD")]
    connect: Vec<Method>,

    /// Where switches' databases come (ptcp:[PORT][:HOST], pssl: with ovs-vsctl set-manager) or are
    /// (tcp:HOST[:PORT], ssl:, unix:FILE)
    #[arg(long, value_name = "METHOD", value_parser = settings::ovsdb_method)]
    ovsdb: Vec<Method>,

    /// Settings in a TOML file; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How flow entries come about
    #[arg(long, value_enum)]
    mode: Option<Mode>,

    /// How packets go from switch to switch [default: fabric; with a mode: paths]
    #[arg(long, value_enum)]
    forwarding: Option<Forwarding>,

    /// Our private key (PEM)
    #[arg(short = 'p', long, value_name = "FILE", alias = "ctl-privkey")]
    private_key: Option<PathBuf>,

    /// Our certificate (PEM)
    #[arg(short = 'c', long, value_name = "FILE", alias = "ctl-cert")]
    certificate: Option<PathBuf>,

    /// The CA that switches' certificates must chain to (PEM)
    #[arg(short = 'C', long, value_name = "FILE", alias = "ca-certs")]
    ca_cert: Option<PathBuf>,

    /// Revoked certificates of switches (PEM): a list by each CA in -C. SIGHUP reads this and the
    /// three files above again
    #[arg(long, value_name = "FILE")]
    crl: Option<PathBuf>,

    /// Serve these datapaths and no other; may be given several times
    #[arg(long, value_name = "DPID")]
    allow_dpid: Vec<openflow::DatapathId>,

    /// A folder that keeps what the API is asked for, so that a restart has it again
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// A Unix socket that gives a JSON document of the network's state to whoever connects
    #[arg(long, value_name = "FILE")]
    status: Option<PathBuf>,

    /// Serve the REST API (/openapi.json) here: [HOST:]PORT, on this machine alone without a HOST;
    /// or unix:FILE, to that file's owner and root. Beyond this machine it needs users: see [api]
    /// in the manual. Repeat for more
    #[arg(long, value_name = "ADDR", value_parser = api::address)]
    api: Vec<ApiAddress>,

    /// A name or address that clients know the API by, beside localhost and the address it is
    /// served at: requests for any other are refused. Repeat for more
    #[arg(long, value_name = "NAME", value_parser = api::host)]
    api_host: Vec<String>,

    /// Which messages go first when there is more than can be sent or processed: a file, or auster,
    /// paper or none [default: auster]. SIGHUP reads the file again
    #[arg(long, value_name = "FILE|auster|paper|none")]
    policy: Option<String>,

    /// The network as it is meant to be: differences are reported, and in hybrid mode the paths
    /// between the hosts it names are set before they speak. SIGHUP reads the file again
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,

    /// Threads that serve connections; as many as cores if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,

    /// Print events as JSON lines
    #[arg(long)]
    json: bool,

    // The flags of Ryu, so that its command lines work.
    #[arg(long, hide = true, value_name = "HOST")]
    ofp_listen_host: Option<String>,
    #[arg(long, hide = true, value_name = "PORT")]
    ofp_tcp_listen_port: Option<u16>,
    #[arg(long, hide = true, value_name = "PORT")]
    ofp_ssl_listen_port: Option<u16>,
}

pub use api::{ApiAddress, Duplex, Role as ApiRole, address as api_address, tokens};

pub fn run(args: Args) -> Result<(), Failure> {
    output::become_service();
    let manager = Arc::new(Manager::find()?);
    let given = Settings::given(args.clone())?;
    let settings = given.clone().complete()?;
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::machine(format!("cannot start threads: {error}")))?;
    let done = runtime.block_on(serve(settings, (args, given), manager));
    // A task that does not end must not hold up the end of the process.
    runtime.shutdown_background();
    done
}

/// Whether a settings file of this name would be taken, before anything is started with it.
pub fn check_settings(text: &str, file: &Path) -> Result<(), Vec<String>> {
    Settings::parse(text, file).map(drop)
}

/// The time that connections have to write queued messages when the process ends.
const STOP_MAX: Duration = Duration::from_secs(2);
/// The time that the application has to take another policy map.
const RELOAD_MAX: Duration = Duration::from_secs(2);

/// The source of VLANs that no file states.
const DATABASES: &str = "the databases";
/// The sources of VLANs that the controller did not take at once.
const ALL_SOURCES: &str = "the file and the databases";

type ControllerDriver = Driver<Clustered>;

/// `given` is what `settings` was made of, to be asked for again on SIGHUP.
async fn serve(
    settings: Settings,
    given: (Args, Settings),
    manager: Arc<Manager>,
) -> Result<(), Failure> {
    let security = settings.security()?.expecting(Role::Switch);
    let mut controller = Controller::new(settings.controller.clone(), random_seed()?);
    let clock = Clock::start();
    controller.set_drained(clock.now(), settings.drained.clone());
    let mut config = settings.driver.clone();
    // Not the controller's: switches see these bits, and that seed is the key of its LLDP.
    let [a, b, c, d, e, f, g, h, ..] = random_seed()?;
    let seed = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    config.seed = seed;
    let (application, joining) = match settings.cluster.clone() {
        None => (Clustered::from(controller), None),
        Some(stated) => {
            let files = settings.credential_files();
            let now = clock.now();
            let (joining, member) =
                cluster::Joining::begin(stated, files, controller, now, seed).await?;
            (member, Some(joining))
        }
    };
    let (driver, mut notices) = Driver::start(application, clock, config)
        .map_err(|error| Failure::machine(format!("cannot start a thread: {error}")))?;
    let driver = Arc::new(driver);
    let workers = Workers::start(settings.threads)
        .map_err(|error| Failure::machine(format!("cannot start threads: {error}")))?;
    let feed = Feed::default();
    let mut printer = Printer::new(settings.json, clock, feed.clone());

    let mut interrupted = signal_stream(SignalKind::interrupt())?;
    let mut terminated = signal_stream(SignalKind::terminate())?;
    let mut hung_up = signal_stream(SignalKind::hangup())?;
    let mut listeners = Vec::new();
    for method in &settings.listen {
        let listener = Listener::bind_over(Some(&workers), method, &security, Limits::default())
            .await
            .map_err(Failure::network)?;
        warn_if_exposed(method);
        printer.listening(listener.local());
        listeners.push(listener);
    }
    let databases = databases::start(&settings, &security, &driver, clock, seed).await?;
    for (method, _) in databases.listening() {
        printer.listening_for_databases(method);
    }
    let mut views = databases.views();
    let mut vlans = Follower::new(settings.vlans.clone());
    let (mut vlan_rows, vlan_reader) = vlans::watch(databases.views());
    let of_databases = databases.listening().iter();
    let of_databases =
        of_databases.map(|(method, refusals)| (method.to_string(), refusals.clone()));
    let refusals = listeners
        .iter()
        .map(|listener| (listener.local().to_string(), listener.refusals().clone()))
        .chain(of_databases);
    let refusals: Vec<_> = refusals.collect();
    if let Some(path) = &settings.status {
        let status =
            status::Status::new(driver.clone(), refusals.clone(), databases.views(), clock);
        status.serve(path).map_err(|e| Failure::file(path, e))?;
    }
    let held = Arc::new(Held::new(driver.clone(), clock));
    let names_ports = settings.vlans.is_any() || settings.vlans.has_bonds();
    held.set_vlans(names_ports).await;
    let set = held
        .set_file(settings.qos.qos.clone(), &settings.qos.sources)
        .await;
    set.map_err(|refused| Failure::usage(told(&settings.qos, refused)))?;
    let mut tasks = vec![vlan_reader];
    let reads = api::Reads::new(feed);
    let (store, by) = match (&joining, &settings.state) {
        (Some(joining), _) => joining.store(seed),
        (None, Some(dir)) => {
            let (store, line) = Store::disk(dir)?;
            if let Some(line) = line {
                tracing::error!("{line}");
            }
            (store, "run".to_owned())
        }
        (None, None) => (Store::Memory, "run".to_owned()),
    };
    let (intent, mut intent_events) = Intent::new(held.clone(), clock, &by, store);
    // Before switches connect: they would lose what is not asked for yet.
    intent.load().await;
    tasks.push(tokio::spawn(intent.clone().keep()));
    let mut access = None;
    let digest = Arc::new(Mutex::new(digest_of(settings.config.as_deref())));
    if let Some(stated) = &settings.api {
        let users = Arc::new(api::access::Access::load(stated, clock)?);
        let api = api::Api {
            driver: driver.clone(),
            clock,
            held: held.clone(),
            views: databases.views(),
            metrics: metrics::Metrics::new(driver.clone(), refusals, security.clone(), clock)
                .with_intent(intent.clone())
                .with_api(users.clone())
                .with_config(digest.clone()),
            intent: intent.clone(),
            reads: reads.clone(),
        };
        warn_if_in_the_clear(stated);
        for (at, task) in api.serve(stated, &users).await? {
            printer.serving(&at, users.tls().is_some());
            tasks.push(task);
        }
        let users_too = users.clone();
        let watch = certificates::watch_all(move || users_too.expiries());
        tasks.push(tokio::spawn(watch));
        access = Some(users);
    }
    let mut joined = joining.map(|joining| joining.join(&driver, intent.clone(), clock));
    if let Some(joined) = &joined {
        printer.joined(&joined.name, &joined.heard_at);
    }
    let of_listeners = listeners
        .into_iter()
        .map(|listener| driver.serve_listener(listener));
    tasks.extend(of_listeners);
    reads.set_ready();
    for (number, method) in (0u64..).zip(&settings.connect) {
        warn_if_exposed(method);
        let (driver, workers) = (driver.clone(), workers.clone());
        let dialler = keep_connected(driver, workers, method.clone(), security.clone(), number);
        tasks.push(tokio::spawn(dialler));
    }

    tasks.push(tokio::spawn(certificates::watch(security.clone())));
    service::warn_of_idle_sockets();
    manager.ready();
    tasks.push(tokio::spawn(keep_informed(manager.clone(), driver.clone())));
    let sampler = Sampler::start(&driver, clock, &settings.controller.timeouts);

    let failed = loop {
        tokio::select! {
            _ = interrupted.recv() => break false,
            _ = terminated.recv() => break false,
            () = asked_to_reload(&mut hung_up, access.as_deref()) => {
                manager.reloading();
                reload_certificates(&given, &security, &mut printer);
                reload_api(&given, access.as_ref(), &mut printer).await;
                if Settings::given(given.0.clone()).is_ok() {
                    *lock(&digest) = digest_of(settings.config.as_deref());
                }
                reload_policy(&settings.policy, &driver, &mut printer).await;
                if let Some(file) = &settings.config {
                    reload_drained(file, &driver, clock, &mut printer).await;
                    reload_timeouts(file, &settings, &driver, clock, &sampler, &mut printer).await;
                    reload_qos(file, &settings, &held, &mut printer).await;
                    let vlans = &mut vlans;
                    if reload_vlans(file, &settings, &held, vlans, &driver, clock, &mut printer)
                        .await
                    {
                        reload_gateways(file, &settings, &driver, clock, &mut printer).await;
                    }
                    reload_bfd(file, &settings, &databases, &mut printer);
                    // It may take its time, and a signal must not wait for it.
                    let intent = intent.clone();
                    tokio::spawn(async move { intent.refit().await });
                }
                if let Some(file) = &settings.topology {
                    let vlans = vlans.stated();
                    reload_topology(file, &settings, vlans, &driver, clock, &mut printer).await;
                }
                manager.ready();
            }
            Ok(()) = vlan_rows.changed() => {
                vlans.set_rows(vlan_rows.borrow_and_update().clone());
                use_vlans(DATABASES, &mut vlans, &driver, clock, &mut printer).await;
            }
            // The controller was too busy to take them.
            () = tokio::time::sleep(RELOAD_MAX), if vlans.is_behind() => {
                use_vlans(ALL_SOURCES, &mut vlans, &driver, clock, &mut printer).await;
            }
            Some(event) = cluster::next_event(&mut joined) => printer.cluster(&event),
            Some(event) = intent_events.recv() => printer.intent(&event),
            Ok(()) = views.changed() => printer.databases(&views.borrow_and_update()),
            () = print_notices(&mut printer, &mut notices, &driver, clock) => break true,
            () = driver.ended() => break true,
        }
    };
    manager.stopping();
    if let Some(joined) = joined {
        tokio::select! {
            () = joined.leave() => {}
            _ = interrupted.recv() => {}
            () = print_notices(&mut printer, &mut notices, &driver, clock) => {}
        }
    }
    sampler.stop();
    databases.stop();
    for task in tasks {
        task.abort();
    }
    let api_sockets = settings.api.iter().flat_map(api::Stated::sockets);
    for path in settings.status.iter().chain(api_sockets) {
        let _ = std::fs::remove_file(path);
    }
    if let Some(audit) = access.as_ref().and_then(|access| access.audit.as_ref()) {
        audit.flush();
    }
    if failed {
        return Err(Failure::negative(
            "the controller's thread ended; this is a fault of auster, see above",
        ));
    }
    driver.stop();
    let _ = tokio::time::timeout(STOP_MAX, async {
        tokio::select! {
            () = driver.ended() => {}
            () = print_notices(&mut printer, &mut notices, &driver, clock) => {}
        }
    })
    .await;
    while let Ok(notice) = notices.try_recv() {
        printer.notice(clock.now(), &notice);
    }
    printer.finish();
    Ok(())
}

/// The SHA-256 of the configuration, for metrics; `None` without a file.
fn digest_of(config: Option<&Path>) -> Option<String> {
    let digest = Sha256::digest(std::fs::read(config?).ok()?);
    Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for SIGHUP, or for an administrator who asks for the same by the API.
async fn asked_to_reload(hung_up: &mut Signal, access: Option<&api::access::Access>) {
    let by_api = async {
        match access {
            Some(access) => access.reload.notified().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = hung_up.recv() => {}
        () = by_api => {}
    }
}

/// Reads the certificates again, from other files if the configuration names others now, and
/// reports which of its other changes need a restart. Files that will not do are refused together.
fn reload_certificates(given: &(Args, Settings), security: &Security, printer: &mut Printer) {
    let (args, before) = given;
    // What is wrong with the configuration is told where its tables are read.
    let now = Settings::given(args.clone()).unwrap_or_else(|_| before.clone());
    let changed = before.restart_needed(&now);
    if let (Some(file), false) = (&now.config, changed.is_empty()) {
        printer.restart_needed(&file.display().to_string(), &changed);
    }
    let Some(files) = now
        .credential_files()
        .filter(|_| security.has_credentials())
    else {
        return;
    };
    let name = files.certificate.display().to_string();
    match certificates::reload(&files, security) {
        Ok(()) => printer.certificate_used(&name),
        Err(failure) => printer.file_refused("certificate", &name, failure.message()),
    }
}

/// Reads the API's users and certificates again, and opens its audit again. What will not do is
/// refused, and the one in use stays.
async fn reload_api(
    given: &(Args, Settings),
    access: Option<&Arc<api::access::Access>>,
    printer: &mut Printer,
) {
    let (args, before) = given;
    let now = Settings::given(args.clone()).unwrap_or_else(|_| before.clone());
    let (Some(access), Some(stated)) = (access.cloned(), now.api) else {
        return;
    };
    // Files may be on a disk that is slow.
    let reloaded = tokio::task::spawn_blocking(move || {
        let tokens = access.reload_tokens(&stated);
        let tls = access.reload_tls(&stated);
        let audit = access.audit.as_ref().map(|audit| audit.reopen());
        (stated, tokens, tls, audit.transpose())
    });
    let Ok((stated, tokens, tls, audit)) = reloaded.await else {
        return;
    };
    let name = |path: Option<&PathBuf>| path.map(|path| path.display().to_string());
    let of_tokens = name(stated.tokens.as_ref()).unwrap_or_default();
    match tokens {
        Ok(Some(count)) => printer.tokens_used(&of_tokens, count),
        Ok(None) => {}
        Err(failure) => printer.file_refused("tokens", &of_tokens, failure.message()),
    }
    let of_tls = name(stated.tls.as_ref().map(|tls| &tls.certificate)).unwrap_or_default();
    match tls {
        Ok(true) => printer.certificate_used(&of_tls),
        Ok(false) => {}
        Err(failure) => printer.file_refused("certificate", &of_tls, failure.message()),
    }
    if let Err(failure) = audit {
        tracing::error!("audit: {}", failure.message());
    }
}

/// A map that cannot be used is refused whole, and the one in use stays.
async fn reload_policy(argument: &str, driver: &ControllerDriver, printer: &mut Printer) {
    match policy::load(argument) {
        Ok(map) => {
            // Said once it is so: who reads the line may ask at once.
            driver.set_policy(map.clone());
            printer.policy_used(argument, &map);
            let told = driver.ask(move |controller| controller.set_policy(&map));
            if tokio::time::timeout(RELOAD_MAX, told).await.is_err() {
                tracing::warn!("the relays beside the switches are not told of the map: try again");
            }
        }
        Err(failure) => printer.policy_refused(argument, &failure),
    }
}

/// Reads `drain` again. A mistake anywhere in the file refuses it whole, and the old setting stays.
async fn reload_drained(
    file: &Path,
    driver: &ControllerDriver,
    clock: Clock,
    printer: &mut Printer,
) {
    let drained = match Settings::reread_drained(file) {
        Ok(drained) => drained,
        Err(failure) => return printer.drain_refused(&file.display().to_string(), &failure),
    };
    let now = clock.now();
    let asked = drained.clone();
    let told = driver.ask(move |controller| controller.set_drained(now, asked));
    match tokio::time::timeout(RELOAD_MAX, told).await {
        Ok(Some(())) => printer.drained(&drained),
        _ => tracing::warn!("the controller is not told what is to be taken out: try again"),
    }
}

/// Reads only `[qos]` from the file. The requests made by the API stay beside it.
async fn reload_qos(file: &Path, settings: &Settings, held: &Held, printer: &mut Printer) {
    let name = file.display().to_string();
    let section = match settings.reread_qos(file) {
        Ok(section) => section,
        Err(failure) => return printer.file_refused("qos", &name, failure.message()),
    };
    match held.set_file(section.qos.clone(), &section.sources).await {
        Ok(()) => printer.qos_used(&name, &section.qos),
        Err(refused) => printer.file_refused("qos", &name, &told(&section, refused)),
    }
}

/// Reads only `bfd_interval_ms` from the file. Links whose BFD has failed have another try.
fn reload_bfd(
    file: &Path,
    settings: &Settings,
    databases: &databases::Kept,
    printer: &mut Printer,
) {
    let name = file.display().to_string();
    match settings.reread_bfd_interval(file) {
        Ok(interval) => {
            databases.set_bfd_interval(interval);
            printer.bfd_used(&name, interval);
        }
        Err(failure) => printer.file_refused("bfd", &name, failure.message()),
    }
}

/// Reads what the file has about ports: VLANs, bonds, mirrors and access. A mistake anywhere in
/// the file refuses it whole, and all stays as it is. Returns whether the file is in use.
async fn reload_vlans(
    file: &Path,
    settings: &Settings,
    held: &Held,
    vlans: &mut Follower,
    driver: &ControllerDriver,
    clock: Clock,
    printer: &mut Printer,
) -> bool {
    let name = file.display().to_string();
    let (stated, access, gateways) = match settings.reread_ports(file) {
        Ok(read) => read,
        Err(failure) => {
            printer.file_refused("vlans", &name, failure.message());
            return false;
        }
    };
    if !held.set_vlans(stated.is_any() || stated.has_bonds()).await {
        let problem = "services, policies and circuits choose packets without their VLAN, and the \
                       API has made some; delete them there first";
        printer.file_refused("vlans", &name, problem);
        return false;
    }
    // What is refused later must change nothing before.
    let (lists, members) = (access.access.clone(), stated.vlans.clone());
    let routers = gateways.clone();
    let asked = driver.ask(move |controller| controller.unable_to_hold(&lists, &members, &routers));
    let unable = tokio::time::timeout(RELOAD_MAX, asked).await.ok().flatten();
    if let Some(unable) = unable.filter(|unable| !unable.is_empty()) {
        printer.file_refused("access", &name, &unable_to_hold(&unable));
        return false;
    }
    let (now, bonds, bpdus) = (clock.now(), stated.bonds.clone(), stated.bpdus.clone());
    let (crowds, mirrors) = (stated.crowd_guards.clone(), stated.mirrors.clone());
    let asked = driver.ask(move |controller| {
        controller.set_bonds(now, bonds, bpdus);
        controller.set_crowd_guards(now, crowds);
        controller.set_mirrors(now, mirrors);
    });
    let told = tokio::time::timeout(RELOAD_MAX, asked).await;
    if told.ok().flatten().is_none() {
        let problem = "the controller is too busy for the bonds and mirrors; try again";
        printer.file_refused("vlans", &name, problem);
        return false;
    }
    let before = vlans.stated().clone();
    vlans.set_stated(stated);
    print_lines(vlans);
    // All at once: no packet of a VLAN, or that is routed into one, passes without its lists.
    let change = vlans.change();
    let (now, new) = (
        clock.now(),
        change.as_ref().map(|change| change.vlans.clone()),
    );
    let lists = access.access.clone();
    let asked =
        driver.ask(move |controller| controller.set_access_with(now, lists, new, Some(gateways)));
    match tokio::time::timeout(RELOAD_MAX, asked).await.ok().flatten() {
        Some(Ok(())) => {}
        Some(Err(unable)) => {
            vlans.set_stated(before);
            printer.file_refused("access", &name, &unable_to_hold(&unable));
            return false;
        }
        None => {
            vlans.set_stated(before);
            printer.file_refused("access", &name, "the controller is too busy; try again");
            return false;
        }
    }
    if let Some(change) = change {
        printer.vlans(&name, &change.vlans, &change.changed);
        vlans.handle_used(change.vlans);
    }
    printer.access_used(&name, &access.access);
    true
}

fn unable_to_hold(switches: &[openflow::DatapathId]) -> String {
    let names: Vec<String> = switches.iter().map(ToString::to_string).collect();
    let names = names.join(", ");
    format!(
        "access lists or bindings concern switches that cannot hold them, which takes OpenFlow \
         1.3, groups and {} tables: {names}",
        control::access::TABLES_MIN
    )
}

/// Reports the lines about VLANs that are new.
fn print_lines(vlans: &mut Follower) {
    for line in vlans.poll_lines() {
        tracing::warn!("{line}");
    }
}

/// Reads only gateways and `[[route]]` from a file whose VLANs are in use.
async fn reload_gateways(
    file: &Path,
    settings: &Settings,
    driver: &ControllerDriver,
    clock: Clock,
    printer: &mut Printer,
) {
    let name = file.display().to_string();
    let gateways = match settings.reread_gateways(file) {
        Ok(gateways) => gateways,
        Err(failure) => return printer.file_refused("gateways", &name, failure.message()),
    };
    let (vlans, routes) = (gateways.vlans.len(), gateways.routes.len());
    let now = clock.now();
    let told = driver.ask(move |controller| controller.set_gateways(now, gateways));
    match tokio::time::timeout(RELOAD_MAX, told).await.ok().flatten() {
        Some(()) => printer.gateways(&name, vlans, routes),
        None => tracing::warn!("the controller is not told of the gateways: try again"),
    }
}

/// Reports new lines about VLANs, and has the controller use what has changed.
async fn use_vlans(
    source: &str,
    vlans: &mut Follower,
    driver: &ControllerDriver,
    clock: Clock,
    printer: &mut Printer,
) {
    print_lines(vlans);
    let Some(change) = vlans.change() else {
        return;
    };
    let (now, new) = (clock.now(), change.vlans.clone());
    let asked = driver.ask(move |controller| controller.set_vlans(now, new));
    if tokio::time::timeout(RELOAD_MAX, asked)
        .await
        .ok()
        .flatten()
        .is_none()
    {
        return tracing::warn!("the controller is too busy for the VLANs; trying again");
    }
    printer.vlans(source, &change.vlans, &change.changed);
    vlans.handle_used(change.vlans);
}

fn told(section: &qos::Section, refused: Refused) -> String {
    match refused {
        Refused::Wrong(wrong) => section.tell(&wrong).join("; "),
        _ => "the controller does not answer; try again".to_owned(),
    }
}

/// Reads the topology again. A topology with a mistake is refused whole, and the old one stays.
async fn reload_topology(
    file: &Path,
    settings: &Settings,
    vlans: &vlans::Stated,
    driver: &ControllerDriver,
    clock: Clock,
    printer: &mut Printer,
) {
    let name = file.display().to_string();
    let (topology, lines) = match topology::load_with_lines(file) {
        Ok(loaded) => loaded,
        Err(failure) => return printer.file_refused("topology", &name, failure.message()),
    };
    let config = settings.config.as_deref();
    if let Err(failure) = settings::fits_links(vlans, Some(&topology), config) {
        return printer.file_refused("topology", &name, failure.message());
    }
    let now = clock.now();
    let asked = driver.ask(move |controller| controller.set_topology(now, Some(topology)));
    match tokio::time::timeout(RELOAD_MAX, asked).await.ok().flatten() {
        Some(Ok(())) => printer.topology_used(&name),
        Some(Err(missing)) => {
            let problems = lines.locate(&name, &missing);
            printer.file_refused("topology", &name, &problems.join("; "));
        }
        None => tracing::warn!("the controller is not told of the topology: try again"),
    }
}

/// Reads only `[timeouts]` from the file. A mistake anywhere in the file refuses it whole, and the
/// old settings stay.
async fn reload_timeouts(
    file: &Path,
    settings: &Settings,
    driver: &ControllerDriver,
    clock: Clock,
    sampler: &Sampler,
    printer: &mut Printer,
) {
    let name = file.display().to_string();
    let timeouts = match settings.reread_timeouts(file) {
        Ok(timeouts) => timeouts,
        Err(failure) => return printer.timeouts_refused(&name, failure.message()),
    };
    let policy = timeouts.default.name();
    sampler.follow(&timeouts);
    let now = clock.now();
    let told = driver.ask(move |controller| controller.set_timeouts(now, timeouts));
    match tokio::time::timeout(RELOAD_MAX, told).await {
        Ok(Some(())) => printer.timeouts_used(&name, policy),
        _ => tracing::warn!("the controller is not told of the timeouts: try again"),
    }
}

async fn print_notices(
    printer: &mut Printer,
    notices: &mut mpsc::Receiver<Notice>,
    driver: &ControllerDriver,
    clock: Clock,
) {
    loop {
        let due = printer.poll_timeout();
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(clock.deadline(due)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            notice = notices.recv() => match notice {
                Some(notice) => {
                    printer.lost(driver.notices_lost());
                    printer.notice(clock.now(), &notice);
                }
                None => return,
            },
            () = timer => printer.handle_timeout(clock.now()),
        }
    }
}

/// Dials until the task is aborted.
async fn keep_connected(
    driver: Arc<ControllerDriver>,
    workers: Workers,
    method: Method,
    security: Security,
    seed: u64,
) {
    let clock = Clock::start();
    let mut reconnect = Reconnect::new(seed ^ u64::from(std::process::id()));
    let mut told: Option<String> = None;
    loop {
        match connect_at(workers.place(), &method, &security).await {
            Ok(connection) => {
                told = None;
                reconnect.handle_connected(clock.now());
                let (_, served) = driver.serve(connection);
                let _ = served.await;
            }
            Err(error @ TransportError::Local { .. }) => {
                tracing::error!("{error}");
            }
            Err(error) => {
                let problem = error.to_string();
                if told.as_ref() != Some(&problem) {
                    tracing::warn!("{problem}; trying again");
                }
                told = Some(problem);
            }
        }
        let due = reconnect.handle_disconnected(clock.now());
        tokio::time::sleep_until(clock.deadline(due)).await;
    }
}

fn warn_if_exposed(method: &Method) {
    if method.is_exposed() {
        note!(
            "auster: warning: {method} is neither encrypted nor authenticated: whoever reaches it \
             controls the network; prefer ssl or quic (see auster pki)"
        );
    }
}

fn warn_if_in_the_clear(stated: &api::Stated) {
    for at in stated.in_the_clear() {
        note!(
            "auster: warning: the API at {at} is not encrypted: whoever sees its packets has the \
             tokens in them; give [api.tls] a key and a certificate (auster pki controller)"
        );
    }
}

/// Informs the service manager for as long as the controller's thread answers.
async fn keep_informed(manager: Arc<Manager>, driver: Arc<ControllerDriver>) {
    let look = || async {
        driver.ask(|_| ()).await?;
        let connections = driver.connection_count();
        Some(format!("{connections} connections of switches"))
    };
    manager.keep_informed(look).await;
}

fn signal_stream(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::machine(format!("cannot handle signals: {error}")))
}

/// Reads a seed from the operating system's generator, which on Linux is this file.
fn random_seed() -> Result<[u8; 32], Failure> {
    let path = "/dev/urandom";
    let mut seed = [0; 32];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut seed))
        .map_err(|error| Failure::file(path, error))?;
    Ok(seed)
}
