//! SIGHUP and `POST /v1/reload`: reads the configuration again, checks all of it, and applies the
//! changes while everything else stays in service.
//!
//! A mistake anywhere refuses the whole reload. Steps that may still be refused, because of an
//! address in use or by the controller, are done first. The controller applies its whole part at
//! one moment.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control::access::Access as Lists;
use control::controller::{Alarm, Controller, LinkPolicy};
use control::routing::Gateways;
use control::topology::{Difference, Topology};
use control::vlan::Vlans;
use net::clock::Clock;
use net::tls::Security;
use openflow::DatapathId;
use tokio::task::JoinHandle;

use super::databases;
use super::events::{Printer, describe_alarm};
use super::listeners::{self, Listeners};
use super::load::Sampler;
use super::status::Status;
use super::{ControllerDriver, print_lines, told};
use api::lock;
use api::metrics;
use api::report::Report;
use cli::certificates;
use cli::failure::Failure;
use cluster::intent::Intent;
use config::Args;
use config::digest::Digests;
use config::qos::Held;
use config::settings::Settings;
use config::settings::check::{Checked, check};
use config::settings::effective::{Change, Effective};
use config::settings::sockets::warn_if_exposed;
use config::topology::{self, Lines};
use config::vlans::Follower;

/// The time that the application has to take its part.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Settings that concern ports of switches, which change together.
const PORTS: &[&str] = &[
    "vlans", "vlan", "port", "acl", "guard", "bond", "mirror", "route",
];
/// Settings that are limits, times and links of the controller, and whether it uses bundles.
const LIMITS: &[&str] = &["controller", "links", "edge_ports", "session.bundles"];
const TIMEOUTS: &[&str] = &[
    "timeouts",
    "controller.idle_timeout_s",
    "controller.hard_timeout_s",
];

/// A running controller, and the configuration it runs with.
pub struct Running {
    pub args: Args,
    pub settings: Settings,
    pub effective: Effective,
    pub driver: Arc<ControllerDriver>,
    pub clock: Clock,
    pub security: Security,
    pub sampler: Sampler,
    pub held: Arc<Held>,
    pub intent: Arc<Intent>,
    pub databases: databases::Kept,
    pub vlans: Follower,
    pub listeners: Listeners,
    pub status: Status,
    pub status_task: Option<JoinHandle<()>>,
    pub reads: Arc<api::Reads>,
    pub metrics: Arc<Mutex<metrics::Stated>>,
    pub access: Option<Arc<api::access::Access>>,
    pub served: Option<api::Served>,
    pub digest: Arc<Mutex<Option<Digests>>>,
}

/// Sockets that are bound and do not serve yet.
struct Prepared {
    listeners: Vec<listeners::Bound>,
    api: Vec<api::Bound>,
    status: Option<JoinHandle<()>>,
}

/// The settings that a reload changes.
struct Changes(Vec<Change>);

impl Changes {
    /// Whether one of these settings, or one in these tables, has changed.
    fn are_in(&self, paths: &[&str]) -> bool {
        let is_in = |change: &Change| {
            paths.iter().any(|path| {
                let rest = change.path.strip_prefix(path);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        self.0
            .iter()
            .any(|change| !change.needs_restart && is_in(change))
    }
}

/// The controller's part of a change.
struct Part {
    settings: Settings,
    ports: Option<Vlans>,
    has_ports: bool,
    topology: Option<Option<Topology>>,
    has_policy: bool,
    has_drained: bool,
    has_limits: bool,
    has_timeouts: bool,
}

/// The reason why the controller does not apply its part.
enum Unable {
    /// Switches that cannot hold access lists.
    Lists(Vec<DatapathId>),
    Ports(Vec<Difference>),
}

impl Running {
    /// Reads the configuration again.
    pub async fn reload(&mut self, printer: &mut Printer) -> Report {
        let asking = self.access.as_ref().map(|access| access.take_asking());
        let report = match self.try_reload(printer).await {
            Ok(report) => report,
            Err(mistakes) => Report::refused(mistakes),
        };
        let file = self
            .settings
            .config
            .as_deref()
            .unwrap_or(Path::new("the command line"));
        printer.reloaded(&file.display().to_string(), &report);
        for one in asking.unwrap_or_default() {
            let _ = one.send(report.clone());
        }
        report
    }

    async fn try_reload(&mut self, printer: &mut Printer) -> Result<Report, Vec<String>> {
        let args = self.args.clone();
        // The files may be on a slow disk.
        let checked = tokio::task::spawn_blocking(move || check(&args)).await;
        let checked = checked.map_err(|_| vec!["a fault of auster, see the log".to_owned()])??;
        let Checked {
            mut settings,
            effective,
            security,
        } = checked;
        let changes = self.effective.changes(&effective);
        let mistakes = settings.keep(&self.settings, &changes);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let mut report = Report::applied(&changes, effective.rows.len());
        report.warnings = settings.doubts().to_vec();
        report.warnings.extend(self.reconnects(&settings));
        let changes = Changes(changes);
        let prepared = self.prepare(&settings, &changes).await?;
        match self.change_controller(&settings, &changes, printer).await {
            Ok(doubts) => report.warnings.extend(doubts),
            Err(mistakes) => return Err(self.take_back(prepared, &settings, mistakes).await),
        }
        self.serve(prepared, &settings, &changes, printer).await;
        self.trust(&settings, &changes, &security, printer).await;
        self.use_rest(&settings, &changes, printer);
        self.effective
            .follow(&effective, &changes.needing_restart());
        self.settings = settings;
        *lock(&self.digest) = Digests::of(self.settings.config.as_deref());
        // Refitting may take its time, and a signal must not wait for it.
        let intent = self.intent.clone();
        tokio::spawn(async move { intent.refit().await });
        Ok(report)
    }

    /// Warns that switches connect again, where the change makes them.
    fn reconnects(&self, settings: &Settings) -> Option<String> {
        let (before, after) = (&self.settings.access.access, &settings.access.access);
        let which = match (before.is_on(), after.is_on()) {
            (false, true) => "the first access list, binding or guard",
            (true, false) => "the end of the last access list, binding or guard",
            _ => return None,
        };
        let has_fabric = settings.controller.fabric.is_some();
        (!has_fabric)
            .then(|| format!("switches connect again: {which} gives their tables other numbers"))
    }

    /// Binds the addresses that are new.
    async fn prepare(
        &mut self,
        settings: &Settings,
        changes: &Changes,
    ) -> Result<Prepared, Vec<String>> {
        let text = |failure: Failure| failure.message().to_owned();
        let status = match &settings.status {
            Some(path) if changes.are_in(&["status"]) => {
                let served = self.status.clone().serve(path);
                Some(served.map_err(|error| vec![text(Failure::file(path, error))])?)
            }
            _ => None,
        };
        let undo = |status: &Option<JoinHandle<()>>| {
            if let (Some(task), Some(path)) = (status, &settings.status) {
                task.abort();
                let _ = std::fs::remove_file(path);
            }
        };
        let api = match (&self.served, &settings.api) {
            (Some(served), Some(stated)) => match served.bind(&stated.listen).await {
                Ok(bound) => bound,
                Err(failures) => {
                    undo(&status);
                    return Err(failures.into_iter().map(text).collect());
                }
            },
            _ => Vec::new(),
        };
        match self.listeners.bind(&settings.listen).await {
            Ok(listeners) => Ok(Prepared {
                listeners,
                api,
                status,
            }),
            Err(mistakes) => {
                undo(&status);
                Err(mistakes)
            }
        }
    }

    /// Closes the sockets bound for a change that is refused, and opens those closed for it.
    /// Returns the mistakes, with any new ones from this.
    async fn take_back(
        &mut self,
        prepared: Prepared,
        refused: &Settings,
        mut mistakes: Vec<String>,
    ) -> Vec<String> {
        if let (Some(task), Some(path)) = (&prepared.status, &refused.status) {
            task.abort();
            let _ = std::fs::remove_file(path);
        }
        drop(prepared);
        match self.listeners.bind(&self.settings.listen).await {
            Ok(bound) => self.listeners.serve(bound),
            Err(more) => mistakes.extend(more),
        }
        mistakes
    }

    /// Has the controller apply its part, at one moment or not at all. Returns the doubts about
    /// ports that the settings name.
    async fn change_controller(
        &mut self,
        settings: &Settings,
        changes: &Changes,
        printer: &mut Printer,
    ) -> Result<Vec<String>, Vec<String>> {
        let name = settings
            .config
            .as_ref()
            .map(|file| file.display().to_string());
        let name = name.unwrap_or_default();
        let has_ports = changes.are_in(PORTS);
        let names_ports = settings.vlans.is_any() || settings.vlans.has_bonds();
        if has_ports && !self.held.set_vlans(names_ports).await {
            let problem = "services, policies and circuits choose packets without their VLAN, and \
                           the API has made some; delete them there first";
            return Err(vec![problem.to_owned()]);
        }
        let has_qos = changes.are_in(&["qos"]);
        if has_qos {
            let section = &settings.qos;
            let set = self
                .held
                .set_file(section.qos.clone(), &section.sources)
                .await;
            if let Err(refused) = set {
                self.undo(has_ports, false).await;
                return Err(told(section, refused)
                    .split("; ")
                    .map(str::to_owned)
                    .collect());
            }
        }
        let before = self.vlans.stated().clone();
        let mut change = None;
        if has_ports {
            self.vlans.set_stated(settings.vlans.clone());
            print_lines(&mut self.vlans);
            change = self.vlans.change();
        }
        let part = Part {
            settings: settings.clone(),
            ports: change.as_ref().map(|change| change.vlans.clone()),
            has_ports,
            topology: changes
                .are_in(&["topology"])
                .then(|| settings.controller.topology.clone()),
            has_policy: changes.are_in(&["policy"]),
            has_drained: changes.are_in(&["drain", "drain_wait_s"]),
            has_limits: changes.are_in(LIMITS),
            has_timeouts: changes.are_in(TIMEOUTS),
        };
        let clock = self.clock;
        // The first to set the claim has it: a part that is given up must not be applied later.
        let claim = Arc::new(AtomicBool::new(false));
        let theirs = claim.clone();
        let mut asked = pin!(self.driver.ask(move |controller| {
            let is_wanted = !theirs.swap(true, Ordering::AcqRel);
            is_wanted.then(|| controller.as_one(|controller| part.apply(controller, clock)))
        }));
        let taken = match tokio::time::timeout(ANSWER_MAX, &mut asked).await {
            Ok(taken) => taken.flatten(),
            Err(_) if claim.swap(true, Ordering::AcqRel) => asked.await.flatten(),
            Err(_) => None,
        };
        let taken = match taken {
            Some(taken) => taken.map_err(|unable| unable.mistakes(settings)),
            None => Err(vec!["the controller is too busy; try again".to_owned()]),
        };
        let doubts = match taken {
            Ok(doubts) => doubts.iter().map(describe_alarm).collect(),
            Err(mistakes) => {
                self.vlans.set_stated(before);
                self.undo(has_ports, has_qos).await;
                return Err(mistakes);
            }
        };
        if let Some(change) = change {
            printer.vlans(&name, &change.vlans, &change.changed);
            self.vlans.handle_used(change.vlans);
        }
        if has_ports {
            let (vlans, routes) = (&settings.gateways.vlans, &settings.gateways.routes);
            printer.access_used(&name, &settings.access.access);
            printer.gateways(&name, vlans.len(), routes.len());
        }
        if has_qos {
            printer.qos_used(&name, &settings.qos.qos);
        }
        Ok(doubts)
    }

    /// Stops accepting, and removes the sockets' files.
    pub fn stop(&mut self) {
        self.sampler.stop();
        self.databases.stop();
        self.listeners.stop();
        if let Some(served) = self.served.take() {
            served.stop();
        }
        if let Some(path) = &self.settings.status {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Undoes the changes made before the controller refused its part.
    async fn undo(&self, has_ports: bool, has_qos: bool) {
        let before = &self.settings;
        if has_qos {
            let section = &before.qos;
            let set = self
                .held
                .set_file(section.qos.clone(), &section.sources)
                .await;
            if set.is_err() {
                tracing::error!("the queues and services from before are not asked for again");
            }
        }
        if has_ports {
            let names_ports = before.vlans.is_any() || before.vlans.has_bonds();
            self.held.set_vlans(names_ports).await;
        }
    }

    /// Serves the bound sockets, and closes those that are not wanted any more.
    async fn serve(
        &mut self,
        prepared: Prepared,
        settings: &Settings,
        changes: &Changes,
        printer: &mut Printer,
    ) {
        for bound in &prepared.listeners {
            warn_if_exposed(bound.local());
            printer.listening(bound.local());
        }
        self.listeners.serve(prepared.listeners);
        self.listeners.close_but(&settings.listen).await;
        self.listeners.dial(&settings.connect).await;
        if changes.are_in(&["status"]) {
            let before = self.status_task.take();
            if let (Some(task), Some(path)) = (before, &self.settings.status) {
                task.abort();
                let _ = std::fs::remove_file(path);
            }
            self.status_task = prepared.status;
        }
        if let (Some(served), Some(stated)) = (&mut self.served, &settings.api) {
            served.set_names(&stated.hosts);
            self.reads.relays.set_sockets(stated.relays.clone());
            let is_tls = self
                .access
                .as_ref()
                .is_some_and(|access| access.tls().is_some());
            for at in served.serve(prepared.api) {
                printer.serving(&at, is_tls);
            }
            served.close_but(&stated.listen);
        }
    }

    /// Puts certificates and users into use. Their files were read without a mistake.
    async fn trust(
        &self,
        settings: &Settings,
        changes: &Changes,
        security: &Security,
        printer: &mut Printer,
    ) {
        let files = settings.credential_files();
        if let (Some(files), Some(held)) = (files, security.credentials()) {
            // Also replace files that look unchanged: others may have come into use meanwhile, by
            // themselves.
            certificates::replace(&self.security, held);
            if changes.are_in(&["tls"]) {
                printer.certificate_used(&files.certificate.display().to_string());
            }
        }
        let (Some(access), Some(stated)) = (self.access.clone(), settings.api.clone()) else {
            return;
        };
        let has_tokens = changes.are_in(&["api.tokens"]);
        let has_tls = changes.are_in(&["api.tls"]);
        let of_tokens = stated.tokens.clone();
        let of_tls = stated.tls.as_ref().map(|tls| tls.certificate.clone());
        let used = tokio::task::spawn_blocking(move || {
            let tokens = has_tokens.then(|| access.reload_tokens(&stated));
            let tls = has_tls.then(|| access.reload_tls(&stated));
            // The audit file may have been renamed, to begin a new one.
            let audit = access.audit.as_ref().map(|audit| audit.reopen());
            (tokens, tls, audit)
        });
        let Ok((tokens, tls, audit)) = used.await else {
            return;
        };
        let name = |path: Option<PathBuf>| {
            path.map(|path| path.display().to_string())
                .unwrap_or_default()
        };
        match tokens {
            Some(Ok(Some(count))) => printer.tokens_used(&name(of_tokens), count),
            Some(Err(failure)) => tracing::error!("tokens: {}", failure.message()),
            _ => {}
        }
        match tls {
            Some(Ok(true)) => printer.certificate_used(&name(of_tls)),
            Some(Err(failure)) => tracing::error!("certificates: {}", failure.message()),
            _ => {}
        }
        if let Some(Err(failure)) = audit {
            tracing::error!("audit: {}", failure.message());
        }
    }

    /// Applies the other settings: those of the driver, the databases and the printer, and events.
    fn use_rest(&self, settings: &Settings, changes: &Changes, printer: &mut Printer) {
        let name = settings
            .config
            .as_ref()
            .map(|file| file.display().to_string());
        let name = name.unwrap_or_default();
        if changes.are_in(&["policy"]) {
            let map = &settings.driver.policy;
            self.driver.set_policy(map.clone());
            printer.policy_used(&settings.policy, map);
        }
        if changes.are_in(&["allow_dpid"]) {
            self.driver.set_allowed(settings.driver.allowed.clone());
        }
        if changes.are_in(&["session"]) {
            self.driver.set_sessions(&settings.driver);
        }
        if changes.are_in(&["drain", "drain_wait_s"]) {
            printer.drained(&settings.drained);
        }
        if changes.are_in(TIMEOUTS) {
            let timeouts = &settings.controller.timeouts;
            self.sampler.follow(timeouts);
            printer.timeouts_used(&name, timeouts.default.name());
        }
        if let (true, Some(file)) = (changes.are_in(&["topology"]), &settings.topology) {
            printer.topology_used(&file.display().to_string());
        }
        // Links whose BFD has failed get another try.
        let has_bfd = changes.are_in(&["bfd_interval_ms"]);
        if has_bfd || settings.bfd_interval.is_some() {
            self.databases.set_bfd_interval(settings.bfd_interval);
        }
        if has_bfd {
            printer.bfd_used(&name, settings.bfd_interval);
        }
        lock(&self.metrics).clone_from(&settings.metrics);
        if changes.are_in(&["json"]) {
            printer.set_json(settings.json);
        }
    }
}

impl Changes {
    fn needing_restart(&self) -> Vec<Change> {
        let kept = self.0.iter().filter(|change| change.needs_restart);
        kept.cloned().collect()
    }
}

impl Part {
    /// Applies the part. Returns the alarms that it raises about ports that the settings name.
    fn apply(self, controller: &mut Controller, clock: Clock) -> Result<Vec<Alarm>, Unable> {
        let Settings {
            controller: mut config,
            driver,
            drained,
            ..
        } = self.settings;
        let (lists, gateways): (Lists, Gateways) = (config.access.clone(), config.gateways.clone());
        if self.has_ports {
            let vlans = self.ports.as_ref().unwrap_or(&config.vlans);
            let unable = controller.unable_to_hold(&lists, vlans, &gateways);
            if !unable.is_empty() {
                return Err(Unable::Lists(unable));
            }
        }
        if let Some(Some(topology)) = &self.topology {
            let missing = controller.ports_missing(topology);
            if !missing.is_empty() {
                return Err(Unable::Ports(missing));
            }
        }
        let now = clock.now();
        // A link that a change ends is known only before the change.
        config.vlans = self.ports.clone().unwrap_or(config.vlans);
        let doubts = match self.has_ports || self.has_limits {
            true => controller.doubts(&config),
            false => Vec::new(),
        };
        if self.has_policy {
            controller.set_policy(&driver.policy);
        }
        if self.has_drained {
            controller.set_drained(now, drained);
        }
        // Enforcement must not apply with a topology that does not name the links yet, or with
        // none.
        let is_enforced = config.links == LinkPolicy::Enforce;
        if self.has_limits && !is_enforced {
            controller.set_limits(now, &config);
        }
        if let Some(topology) = self.topology {
            controller
                .set_topology(now, topology)
                .map_err(Unable::Ports)?;
        }
        if self.has_limits && is_enforced {
            controller.set_limits(now, &config);
        }
        if self.has_timeouts {
            controller.set_timeouts(now, config.timeouts.clone());
        }
        if self.has_ports {
            controller.set_bonds(now, config.bonds.clone(), config.bpdus.clone());
            controller.set_crowd_guards(now, config.crowd_guards.clone());
            controller.set_mirrors(now, config.mirrors.clone());
            // All at once: no packet of a VLAN, or routed into one, passes without the VLAN's
            // lists.
            controller
                .set_access_with(now, lists, self.ports, Some(gateways.clone()))
                .map_err(Unable::Lists)?;
            controller.set_gateways(now, gateways);
        }
        controller.raise(now, doubts.clone());
        Ok(doubts)
    }
}

impl Unable {
    fn mistakes(self, settings: &Settings) -> Vec<String> {
        match self {
            Unable::Lists(switches) => {
                let names: Vec<String> = switches.iter().map(ToString::to_string).collect();
                let names = names.join(", ");
                vec![format!(
                    "access lists or bindings concern switches that cannot hold them, which takes \
                     OpenFlow 1.3, groups and {} tables: {names}",
                    control::access::TABLES_MIN
                )]
            }
            Unable::Ports(missing) => {
                let lines = settings.topology.as_deref().map(|file| {
                    let loaded = topology::load_with_lines(file).ok();
                    (file.display().to_string(), loaded)
                });
                match lines {
                    Some((name, Some((_, lines)))) => Lines::locate(&lines, &name, &missing),
                    _ => missing.iter().map(ToString::to_string).collect(),
                }
            }
        }
    }
}
