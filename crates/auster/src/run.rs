//! `auster run`: the controller. Listens, prints events, and ends on SIGINT or SIGTERM. The
//! switches keep their flow entries, so that traffic continues without the controller.

mod bfd;
mod credentials;
mod databases;
mod events;
mod kept;
mod listeners;
mod load;
mod reload;
mod remembered;
mod status;

use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use cli::process::raise_file_limit;
use control::cluster::ClusterEvent;
use control::clustered::Clustered;
use control::controller::Controller;
use driver::{Driver, Notice};
use net::clock::Clock;
use net::tls::Role;
use net::workers::Workers;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use api::feed::Feed;
use api::metrics::RefusalsOfAll;
use cli::certificates;
use cli::failure::Failure;
use cli::output::{self, note, say};
use cli::service::{self, Manager};
use cluster::intent::{Intent, Store};
use config::Args;
use config::digest::Digests;
use config::qos::{self, Held, Refused};
use config::settings::effective::Effective;
use config::settings::sockets::warn_if_exposed;
use config::settings::{self, Settings};
use config::vlans::Follower;
use events::Printer;
use listeners::Listeners;
use load::Sampler;
use reload::Running;

pub fn run(args: Args) -> Result<(), Failure> {
    if args.check {
        return check_only(&args);
    }
    output::become_service();
    let manager = Arc::new(Manager::find()?);
    let settings = Settings::given(args.clone())?.complete()?;
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::machine(format!("cannot start threads: {error}")))?;
    // Heavy use of the API must not keep switches waiting.
    let of_api = tokio::runtime::Builder::new_multi_thread()
        .thread_name("api")
        .on_thread_start(cli::turns::go_behind)
        .enable_all()
        .build()
        .map_err(|error| Failure::machine(format!("cannot start threads: {error}")))?;
    // The threads of connections and of the controller are started from here, and run ahead of the
    // threads of both runtimes.
    cli::turns::ask_for_short_turns();
    let done = runtime.block_on(serve(settings, args, manager, of_api.handle().clone()));
    // A task that does not end must not hold up the end of the process.
    of_api.shutdown_background();
    runtime.shutdown_background();
    done
}

/// The source of the settings, for people.
fn source(args: &Args) -> String {
    let file = args.config.as_ref().map(|file| file.display().to_string());
    file.unwrap_or_else(|| "the command line".to_owned())
}

/// Prints one line for each mistake, and returns the exit code of a usage error.
fn check_only(args: &Args) -> Result<(), Failure> {
    let checked = settings::check::check_start(args);
    verdict(&source(args), checked.err().unwrap_or_default())
}

/// The result of a check that has found these mistakes.
pub fn verdict(name: &str, mistakes: Vec<String>) -> Result<(), Failure> {
    if !mistakes.is_empty() {
        return Err(listed(name, mistakes));
    }
    say!("{name} is good");
    Ok(())
}

/// Writes each mistake on a line of its own.
fn listed(name: &str, mistakes: Vec<String>) -> Failure {
    let count = mistakes.len();
    for mistake in mistakes {
        note!("{mistake}");
    }
    let all = match count {
        1 => "one mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    Failure::usage(format!("{name} has {all}, see above"))
}

/// The values in effect with these options, and the source of each value.
pub fn effective(args: &Args) -> Result<Effective, Failure> {
    let settings = Settings::given(args.clone()).and_then(Settings::complete);
    let settings = settings.map_err(|failure| match settings::check::check(args) {
        Ok(_) => failure,
        Err(mistakes) => listed(&source(args), mistakes),
    })?;
    Ok(Effective::of(&settings, args, &text_of(args)?))
}

/// The text of the configuration; empty without one.
fn text_of(args: &Args) -> Result<String, Failure> {
    let Some(path) = &args.config else {
        return Ok(String::new());
    };
    std::fs::read_to_string(path).map_err(|error| Failure::file(path, error))
}

/// The time that connections have to write queued messages when the process ends.
const STOP_MAX: Duration = Duration::from_secs(2);
/// The time that the application has to use changed VLANs.
const RELOAD_MAX: Duration = Duration::from_secs(2);

/// The source of VLANs that no file states.
const DATABASES: &str = "the databases";
const LAST: &str = "the databases, as they were last";
/// The sources of VLANs that the controller did not take at once.
const ALL_SOURCES: &str = "the file and the databases";

type ControllerDriver = Driver<Clustered>;

async fn serve(
    settings: Settings,
    args: Args,
    manager: Arc<Manager>,
    of_api: Handle,
) -> Result<(), Failure> {
    let begun = SystemTime::now();
    let effective = Effective::of(&settings, &args, &text_of(&args)?);
    let security = settings.security()?.expecting(Role::Switch);
    let mut controller = Controller::new(settings.controller.clone(), random_seed()?);
    let clock = Clock::start();
    controller.set_drained(clock.now(), settings.drained.clone());
    let mut config = settings.driver.clone();
    // Not the controller's seed: switches see these bits, and the controller's seed is the key of
    // its LLDP.
    let [a, b, c, d, e, f, g, h, ..] = random_seed()?;
    let seed = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    config.seed = seed;
    let taps = Arc::new(api::rings::Rings::default());
    controller.set_tap_sink(taps.sink());
    let hosting = driver::guests::Guests::default();
    let unread = hosting.shed();
    controller.set_guest_sink(hosting.sink());
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
    let of_cluster = joining.as_ref().map(|joining| joining.security().clone());
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
    let refusals = RefusalsOfAll::default();
    let mut listeners = Listeners::new(driver.clone(), workers, security.clone(), refusals.clone());
    let bound = listeners.bind(&settings.listen).await;
    let bound = bound.map_err(|mistakes| Failure::network(mistakes.join("; ")))?;
    for one in &bound {
        warn_if_exposed(one.local());
        printer.listening(one.local());
    }
    let databases = databases::start(&settings, &security, &driver, clock, seed).await?;
    for (method, _) in databases.listening() {
        printer.listening_for_databases(method);
    }
    let mut views = databases.views();
    let mut vlans = Follower::new(settings.vlans.clone());
    let (mut vlan_rows, vlan_reader) = config::vlans::watch(databases.views());
    let of_databases = databases.listening().iter();
    let of_databases =
        of_databases.map(|(method, refusals)| (method.to_string(), refusals.clone()));
    let of_listeners = bound.iter().map(listeners::Bound::refusals);
    refusals.add(of_listeners.chain(of_databases));
    let status = status::Status::new(driver.clone(), refusals.clone(), databases.views(), clock);
    let mut status_task = None;
    if let Some(path) = &settings.status {
        let served = status.clone().serve(path);
        status_task = Some(served.map_err(|e| Failure::file(path, e))?);
    }
    let held = Arc::new(Held::new(driver.clone(), clock));
    let names_ports = settings.vlans.is_any() || settings.vlans.has_bonds();
    held.set_vlans(names_ports).await;
    if !settings.controller.is_forwarding {
        held.set_not_forwarding().await;
    }
    let set = held
        .set_file(settings.qos.qos.clone(), &settings.qos.sources)
        .await;
    set.map_err(|refused| Failure::usage(told(&settings.qos, refused)))?;
    let mut tasks = vec![vlan_reader];
    let targets = config::guests::targets(&settings.guests);
    for doubt in config::guests::doubts(&settings.guests, settings.controller.is_forwarding) {
        tracing::warn!("{doubt}");
    }
    tasks.push(tokio::spawn(hosting.serve(
        driver.clone(),
        targets,
        clock,
        seed,
    )));
    let relays = settings.api.as_ref().map(|api| api.relays.clone());
    let reads = api::Reads::new(feed, relays.unwrap_or_default(), taps.clone());
    let state = settings.state.clone().filter(|_| joining.is_none());
    let (store, by) = match (&joining, &settings.state) {
        (Some(joining), _) => joining.store(seed),
        (None, Some(dir)) => {
            let (store, line) = Store::disk(dir)?;
            if let Some(line) = line {
                tracing::error!("{line}");
            }
            if let Some(shape) = remembered::take(dir) {
                let now = clock.now();
                driver
                    .ask(move |controller| controller.expect(now, shape))
                    .await;
            }
            let last = config::vlans::last::read(dir);
            if settings.vlans.is_followed {
                vlans.set_rows(last.clone());
                use_vlans(LAST, &mut vlans, &driver, clock, &mut printer).await;
            }
            let rows = vlan_rows.clone();
            tasks.push(tokio::spawn(config::vlans::last::keep(
                dir.clone(),
                last,
                rows,
            )));
            (store, "run".to_owned())
        }
        (None, None) => (Store::Memory, "run".to_owned()),
    };
    let (intent, mut intent_events) = Intent::new(held.clone(), clock, &by, store);
    // Before switches connect: they would lose entries that are not asked for yet.
    intent.load().await;
    tasks.push(tokio::spawn(intent.clone().keep()));
    let (mut access, mut served) = (None, None);
    let digest = Arc::new(Mutex::new(Digests::of(settings.config.as_deref())));
    let stated_metrics = Arc::new(Mutex::new(settings.metrics.clone()));
    if let Some(stated) = &settings.api {
        let paces = Arc::new(api::Paces::new(settings.controller.is_forwarding));
        let users = Arc::new(api::access::Access::load(stated, clock)?);
        let api = api::Api {
            driver: driver.clone(),
            clock,
            held: held.clone(),
            views: databases.views(),
            metrics: api::metrics::Metrics::new(driver.clone(), refusals, security.clone(), clock)
                .with_commit(crate::version::commit())
                .with_cluster(of_cluster.clone())
                .with_intent(intent.clone())
                .with_api(users.clone())
                .with_applications(taps.clone(), paces.clone())
                .with_guests(unread.clone())
                .with_config(digest.clone())
                .with_stated(stated_metrics.clone(), databases.views()),
            intent: intent.clone(),
            reads: reads.clone(),
            paces,
        };
        warn_if_in_the_clear(stated);
        let mut serving = api.with_users(&users, of_api);
        serving.set_names(&stated.hosts);
        let bound = serving.bind(&stated.listen).await;
        let bound = bound.map_err(|mut failures| failures.remove(0))?;
        for at in serving.serve(bound) {
            printer.serving(&at, users.tls().is_some());
        }
        served = Some(serving);
        let users_too = users.clone();
        let watch = certificates::watch_all(move || users_too.expiries());
        tasks.push(tokio::spawn(watch));
        access = Some(users);
    }
    let mut joined = joining.map(|joining| joining.join(&driver, intent.clone(), clock));
    if let Some(joined) = &joined {
        printer.joined(&joined.name, &joined.heard_at);
    }
    // Members of a cluster take over from each other: connections that a controller left before it
    // was a member are closed.
    let can_keep = joined.is_none();
    let versions: &[_] = match can_keep {
        true => &settings.driver.session.versions,
        false => &[],
    };
    kept::take_over(&manager, &driver, &bound, versions);
    listeners.serve(bound);
    reads.set_ready();
    listeners.dial(&settings.connect).await;

    tasks.push(tokio::spawn(certificates::watch(security.clone())));
    if let Some(of_cluster) = of_cluster.clone() {
        tasks.push(tokio::spawn(certificates::watch(of_cluster)));
    }
    let of_switches = security.clone();
    let mut kept =
        credentials::Kept::start(begun, &settings, of_switches, access.clone(), of_cluster);
    service::warn_of_idle_sockets();
    manager.ready();
    tasks.push(tokio::spawn(keep_informed(manager.clone(), driver.clone())));
    let sampler = Sampler::start(&driver, clock, &settings.controller.timeouts);
    let mut running = Running {
        args,
        settings,
        effective,
        driver: driver.clone(),
        clock,
        security,
        sampler,
        held,
        intent,
        databases,
        vlans,
        listeners,
        status,
        status_task,
        reads: reads.clone(),
        metrics: stated_metrics,
        access: access.clone(),
        served,
        digest,
    };

    let failed = loop {
        tokio::select! {
            _ = interrupted.recv() => break false,
            _ = terminated.recv() => break false,
            () = asked_to_reload(&mut hung_up, access.as_deref()) => {
                manager.reloading();
                running.reload(&mut printer).await;
                kept.handle_reload(&running.settings, &mut printer);
                manager.ready();
            }
            changed = kept.changed() => kept.reload(changed, &mut printer).await,
            Ok(()) = vlan_rows.changed() => {
                running.vlans.set_rows(vlan_rows.borrow_and_update().clone());
                let vlans = &mut running.vlans;
                use_vlans(DATABASES, vlans, &driver, clock, &mut printer).await;
            }
            // The controller was too busy to use the VLANs.
            () = tokio::time::sleep(RELOAD_MAX), if running.vlans.is_behind() => {
                let vlans = &mut running.vlans;
                use_vlans(ALL_SOURCES, vlans, &driver, clock, &mut printer).await;
            }
            Some(event) = cluster::next_event(&mut joined) => {
                printer.cluster(&event);
                if let (ClusterEvent::Yielded { to, .. }, Some(joined)) = (event, &joined) {
                    let taps = taps.clone();
                    joined.end_taps(to, move |served_by| taps.end_all(served_by));
                }
            }
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
    running.stop();
    for task in tasks {
        task.abort();
    }
    if let Some(audit) = access.as_ref().and_then(|access| access.audit.as_ref()) {
        audit.flush();
    }
    if failed {
        return Err(Failure::negative(
            "the controller's thread ended; this is a fault of auster, see above",
        ));
    }
    let can_keep = can_keep && manager.may_keep();
    if can_keep {
        driver.hold(kept::HOLD_MAX).await;
    }
    if let Some(dir) = state
        && let Some(shape) = driver.ask(|controller| controller.shape()).await
        && let Err(error) = remembered::keep(&dir, &shape)
    {
        tracing::warn!("{}: {error}; the next start holds all ports", dir.display());
    }
    driver
        .ask(move |controller| controller.refresh_bonds(clock.now()))
        .await;
    match can_keep {
        true => driver.stop_and_keep(),
        false => driver.stop(),
    }
    let _ = tokio::time::timeout(STOP_MAX, async {
        tokio::select! {
            () = driver.ended() => {}
            () = print_notices(&mut printer, &mut notices, &driver, clock) => {}
        }
    })
    .await;
    kept::leave(&manager, driver.kept());
    while let Ok(notice) = notices.try_recv() {
        printer.notice(clock.now(), &notice);
    }
    printer.finish();
    Ok(())
}

/// Waits for SIGHUP, or for an administrator's request for a reload through the API.
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

/// Reports the new lines about VLANs.
fn print_lines(vlans: &mut Follower) {
    for line in vlans.poll_lines() {
        tracing::warn!("{line}");
    }
}

/// Reports new lines about VLANs, and gives changed VLANs to the controller.
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

fn warn_if_in_the_clear(stated: &config::api::Stated) {
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
