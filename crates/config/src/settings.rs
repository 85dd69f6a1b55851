//! The settings of `auster run`, from its flags and its file; a flag wins.

pub mod check;
mod document;
pub mod effective;
pub mod schema;
pub mod sockets;
pub mod table;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::controller::{ControllerConfig, Drained, FabricConfig, LinkPolicy};
use control::routing::Gateways;
use control::timeouts::{FirstPackets, Lifetime, Timeouts};
use control::topology::Topology;
use driver::DriverConfig;
use net::method::{Method, Protocol, Transport};
use net::tls::{CredentialFiles, Security};
use net::workers::Workers;
use openflow::{DatapathId, Version};
use toml::de::DeTable;

use super::Args;
use super::access;
use super::api;
use super::cluster;
use super::drain;
use super::fields::{self, Fields, Mistaken};
use super::gateways;
use super::guests;
use super::metrics;
use super::multicast;
use super::qos::{Section, chooses_packets};
use super::timeouts;
use super::topology;
use super::vlans::Stated;
use crate::policy;
use cli::certificates;
use cli::failure::Failure;
use document::Document;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Entries per pair of hosts, at their first packet
    Reactive,
    /// Entries per host on every switch, as soon as the host is known
    Proactive,
    /// Proactive between switches, reactive at the edge
    Hybrid,
}

impl From<Mode> for control::controller::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Reactive => control::controller::Mode::Reactive,
            Mode::Proactive => control::controller::Mode::Proactive,
            Mode::Hybrid => control::controller::Mode::Hybrid,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Forwarding {
    /// An entry per pair of hosts on every switch of its path
    Paths,
    /// Routes between switches in advance, and an entry per pair at its first switch only
    Fabric,
    /// Only an entry for LLDP: applications forward, through the API
    Off,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: Vec<Method>,
    pub connect: Vec<Method>,
    /// The methods of switches' databases: listening and dialling.
    pub ovsdb: Vec<Method>,
    /// The time between two BFD messages on links between switches, if BFD is to watch the links.
    pub bfd_interval: Option<Duration>,
    /// The folder that stores the requests made through the API.
    pub state: Option<PathBuf>,
    pub status: Option<PathBuf>,
    /// The API, if it is served.
    pub api: Option<api::Stated>,
    /// Further names by which clients may call the API, whether it is served or not.
    api_hosts: Vec<String>,
    /// Figures that `/metrics` serves on request.
    pub metrics: metrics::Stated,
    pub json: bool,
    /// The number of threads that serve connections.
    pub threads: NonZeroUsize,
    pub controller: ControllerConfig,
    /// Whether a mode is asked for.
    has_mode: bool,
    forwarding: Option<Forwarding>,
    /// The fabric's settings, used if it forwards.
    fabric: FabricConfig,
    pub driver: DriverConfig,
    /// The file from which some settings are read again.
    pub config: Option<PathBuf>,
    /// The drained switches and ports, about to be taken out.
    pub drained: Drained,
    /// The requests for the data path.
    pub qos: Section,
    /// The file of `driver.policy`.
    pub policy: String,
    /// The file of `controller.topology`.
    pub topology: Option<PathBuf>,
    /// The VLANs of ports.
    pub vlans: Stated,
    /// Access lists, bindings and guards.
    pub access: access::Stated,
    /// The gateways of VLANs, and the routes behind them.
    pub gateways: Gateways,
    /// Other controllers that see switches through this one.
    pub guests: Vec<guests::Stated>,
    /// The cluster that this controller is a member of.
    pub cluster: Option<cluster::Stated>,
    /// Whether there is `[cluster]`, with mistakes or without.
    has_cluster: bool,
    /// Settings in the file that are allowed but probably mistakes.
    doubts: Vec<String>,
    files: TlsFiles,
}

#[derive(Clone, Debug, Default)]
struct TlsFiles {
    private_key: Option<PathBuf>,
    certificate: Option<PathBuf>,
    ca: Option<PathBuf>,
    crl: Option<PathBuf>,
}

/// Guards sessions: two processes at one switch do not know of each other.
fn driver_default() -> DriverConfig {
    let mut config = DriverConfig::default();
    config.session.is_guarded = true;
    config
}

/// Enables bundles: real switches support them.
fn controller_default() -> ControllerConfig {
    ControllerConfig {
        has_bundles: true,
        ..ControllerConfig::default()
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: Vec::new(),
            connect: Vec::new(),
            ovsdb: Vec::new(),
            bfd_interval: None,
            state: None,
            status: None,
            api: None,
            api_hosts: Vec::new(),
            metrics: metrics::Stated::default(),
            json: false,
            threads: Workers::count_default(),
            controller: controller_default(),
            has_mode: false,
            forwarding: None,
            fabric: FabricConfig::default(),
            driver: driver_default(),
            config: None,
            drained: Drained::default(),
            qos: Section::default(),
            policy: "auster".to_owned(),
            topology: None,
            vlans: Stated::default(),
            access: access::Stated::default(),
            gateways: Gateways::default(),
            guests: Vec::new(),
            cluster: None,
            has_cluster: false,
            doubts: Vec::new(),
            files: TlsFiles::default(),
        }
    }
}

/// The result of reading a text of settings.
struct Reading {
    /// The settings without the values that are mistakes.
    settings: Settings,
    mistakes: Vec<String>,
    is_toml: bool,
    mistaken: Mistaken,
}

impl Settings {
    /// The settings of the flags and the file, without defaults.
    pub fn given(args: Args) -> Result<Settings, Failure> {
        let mut settings = match &args.config {
            Some(path) => Settings::read(path)?,
            None => Settings::default(),
        };
        settings.config = args.config.clone();
        settings.apply(args)?;
        Ok(settings)
    }

    /// Reads the files that the settings name, and sets the defaults.
    pub fn complete(self) -> Result<Settings, Failure> {
        let file = self.config.clone();
        let completed = self.completed().inspect(Settings::warn);
        completed.map_err(|mut mistakes| {
            let text = file.as_deref().map(std::fs::read_to_string);
            let (file, text) = (file.unwrap_or_default(), text.and_then(Result::ok));
            let text = text.unwrap_or_default();
            let document = Document::new(&text, &file);
            let lines = mistakes
                .iter()
                .flat_map(|failure| failure.message().lines());
            let all: Vec<String> = lines.map(|line| document.placed(line)).collect();
            match &mistakes[..] {
                [one] if one.message() == all[0] => mistakes.remove(0),
                _ => Failure::usage(all.join("; ")),
            }
        })
    }

    /// Completes the settings, or returns every mistake. One failure may have several, each on its
    /// line.
    pub fn completed(self) -> Result<Settings, Vec<Failure>> {
        let mut settings = self;
        let mut mistakes = Vec::new();
        let mut check = |checked: Result<(), Failure>| mistakes.extend(checked.err());
        let is_fabric = settings.forwarding() == Forwarding::Fabric;
        settings.controller.fabric = is_fabric.then_some(settings.fabric);
        settings.controller.is_forwarding = settings.forwarding() != Forwarding::Off;
        let timeouts = &settings.controller.timeouts;
        check(fits_mode(settings.controller.mode, timeouts));
        check(fits_fabric(&settings.controller, timeouts));
        check(fits_off(&settings));
        check(fits_bfd(&settings.ovsdb, settings.bfd_interval));
        check(fits_vlans(&settings, &settings));
        check(fits_cluster(&settings));
        let file = settings.config.as_deref();
        check(guests::fits(&settings.guests, is_fabric, file));
        if let Some(api) = &mut settings.api {
            check(api.complete(&settings.api_hosts));
        }
        // The members of a cluster share roles among themselves.
        settings.driver.session.is_guarded &= settings.cluster.is_none();
        settings.controller.vlans = settings.vlans.vlans.clone();
        settings.controller.access = settings.access.access.clone();
        settings.controller.bonds = settings.vlans.bonds.clone();
        settings.controller.bpdus = settings.vlans.bpdus.clone();
        settings.controller.crowd_guards = settings.vlans.crowd_guards.clone();
        settings.controller.mirrors = settings.vlans.mirrors.clone();
        settings.controller.gateways = settings.gateways.clone();
        let guests = settings.guests.iter();
        settings.controller.guests = guests.map(|one| one.guest.clone()).collect();
        match policy::load(&settings.policy) {
            Ok(map) => settings.driver.policy = map,
            Err(failure) => check(Err(failure)),
        }
        let map = &settings.driver.policy;
        match topology::load(settings.topology.as_deref()) {
            Ok(topology) => {
                settings.controller.topology = topology;
                check(fits_topology(&settings.controller));
            }
            Err(failure) => check(Err(failure)),
        }
        let file = settings.config.as_deref();
        let topology = settings.controller.topology.as_ref();
        check(fits_links(&settings.vlans, topology, file));
        // One that has no generation is nobody's but ours.
        settings.controller.policy = (map.generation > 0).then(|| map.clone());
        settings.listen = settings.listening();
        let wrong_way = |flag: &str, method: &Method| {
            Failure::usage(format!("{flag} {method}: {}", direction_problem(flag)))
        };
        for method in settings.listen.iter().filter(|m| !m.is_passive()) {
            check(Err(wrong_way("--listen", method)));
        }
        for method in settings.connect.iter().filter(|m| m.is_passive()) {
            check(Err(wrong_way("--connect", method)));
        }
        match mistakes.is_empty() {
            true => Ok(settings),
            false => Err(mistakes),
        }
    }

    /// The settings that are allowed but probably mistakes, a line each.
    pub fn doubts(&self) -> &[String] {
        &self.doubts
    }

    /// Logs the settings that are allowed but probably mistakes.
    fn warn(&self) {
        for doubt in &self.doubts {
            tracing::warn!("{doubt}");
        }
    }

    /// The methods by which switches may connect: one by default, unless switches are dialled.
    fn listening(&self) -> Vec<Method> {
        if !self.listen.is_empty() || !self.connect.is_empty() {
            return self.listen.clone();
        }
        let default = match self.files.certificate {
            Some(_) => "pssl:6653",
            None => "ptcp:6653:127.0.0.1",
        };
        vec![default.parse().expect("a method")]
    }

    /// The certificates, if any method or flag asks for them.
    pub fn security(&self) -> Result<Security, Failure> {
        if let Some(files) = self.credential_files() {
            return Ok(Security::new(Arc::new(files.load()?)));
        }
        let TlsFiles {
            private_key,
            certificate,
            ca,
            crl,
        } = &self.files;
        let missing = [
            (private_key, "-p KEY"),
            (certificate, "-c CERT"),
            (ca, "-C CA"),
        ];
        let missing: Vec<&str> = missing
            .iter()
            .filter(|(file, _)| file.is_none())
            .map(|(_, flag)| *flag)
            .collect();
        let methods = self.listen.iter().chain(&self.connect);
        let mut secure = methods.chain(&self.ovsdb);
        let secure = secure.find(|m| m.is_secure()).map(ToString::to_string);
        let of_cluster = self.cluster.as_ref().filter(|cluster| cluster.is_secure());
        if let Some(secure) = secure.or(of_cluster.map(|_| "[cluster]".to_owned())) {
            let missing = missing.join(" ");
            return Err(Failure::usage(format!(
                "{secure} needs certificates on both sides; give {missing}, or all three in [tls] \
                 (auster pki makes them)"
            )));
        }
        if missing.len() < 3 {
            let missing = missing.join(" ");
            return Err(Failure::usage(format!(
                "-p, -c and -C need each other, as private_key, certificate and ca in [tls] do; \
                 {missing} is missing"
            )));
        }
        if let Some(crl) = crl {
            let crl = crl.display();
            return Err(Failure::usage(format!(
                "--crl {crl}: without certificates nobody's is checked; give -p, -c and -C too"
            )));
        }
        Ok(Security::plain())
    }

    /// The files of the certificates, if all three are given.
    pub fn credential_files(&self) -> Option<CredentialFiles> {
        let files = &self.files;
        certificates::files(
            files.private_key.as_deref(),
            files.certificate.as_deref(),
            files.ca.as_deref(),
            files.crl.as_deref(),
        )
    }

    fn apply(&mut self, args: Args) -> Result<(), Failure> {
        let (mut listen, mut connect) = (args.listen, args.connect);
        for method in args.methods {
            if method.is_passive() {
                listen.push(method);
            } else {
                connect.push(method);
            }
        }
        let host = args.ofp_listen_host.unwrap_or_else(|| "0.0.0.0".to_owned());
        let ryu = [
            ("ptcp", args.ofp_tcp_listen_port),
            ("pssl", args.ofp_ssl_listen_port),
        ];
        for (scheme, port) in ryu {
            if let Some(port) = port {
                let method = format!("{scheme}:{port}:{host}").parse();
                listen.push(method.map_err(Failure::usage)?);
            }
        }
        if !listen.is_empty() || !connect.is_empty() {
            self.listen = listen;
            self.connect = connect;
        }
        if !args.guest.is_empty() {
            self.guests = args.guest;
        }
        if !args.ovsdb.is_empty() {
            self.ovsdb = args.ovsdb;
        }
        if let Some(mode) = args.mode {
            (self.controller.mode, self.has_mode) = (mode.into(), true);
        }
        self.forwarding = args.forwarding.or(self.forwarding);
        if !args.versions.is_empty() {
            let offered: BTreeSet<Version> = args.versions.into_iter().collect();
            self.driver.session.versions = offered.into_iter().collect();
        }
        if !args.allow_dpid.is_empty() {
            self.driver.allowed = Some(args.allow_dpid.into_iter().collect());
        }
        self.json |= args.json;
        self.policy = args.policy.unwrap_or(std::mem::take(&mut self.policy));
        let threads = args.threads.and_then(|n| NonZeroUsize::new(n.into()));
        self.threads = threads.unwrap_or(self.threads);
        self.state = args.state.or(self.state.take());
        self.status = args.status.or(self.status.take());
        if !args.api.is_empty() {
            self.api.get_or_insert_default().listen = args.api;
        }
        if !args.api_host.is_empty() {
            self.api_hosts = args.api_host;
        }
        self.topology = args.topology.or(self.topology.take());
        let files = &mut self.files;
        files.private_key = args.private_key.or(files.private_key.take());
        files.certificate = args.certificate.or(files.certificate.take());
        files.ca = args.ca_cert.or(files.ca.take());
        files.crl = args.crl.or(files.crl.take());
        Ok(())
    }

    /// The forwarding asked for. The default is the fabric, or paths if a mode is asked for or
    /// first packets are reported.
    fn forwarding(&self) -> Forwarding {
        let reports = self.controller.timeouts.first_packets == FirstPackets::Report;
        let default = match self.has_mode || reports {
            true => Forwarding::Paths,
            false => Forwarding::Fabric,
        };
        self.forwarding.unwrap_or(default)
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Settings, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, error))?;
        Settings::parse(&text, path).map_err(|problems| Failure::usage(problems.join("; ")))
    }

    /// Reads the text of `file`; paths in it are relative to its directory.
    pub fn parse(text: &str, file: &Path) -> Result<Settings, Vec<String>> {
        let reading = Settings::read_text(text, file);
        match reading.mistakes.is_empty() {
            true => Ok(reading.settings),
            false => Err(reading.mistakes),
        }
    }

    /// Reads the settings of a text, as far as they can be read, and every mistake in it.
    fn read_text(text: &str, file: &Path) -> Reading {
        let (mut fields, root) = Fields::parse(text);
        let mut settings = Settings::read_fields(&mut fields, &root, text, file);
        settings.doubts = fields.doubts(file.display());
        fields.show_places(schema::record);
        Reading {
            settings,
            is_toml: fields.is_toml(),
            mistaken: fields.mistaken(&root),
            mistakes: fields.finish(file.display()).err().unwrap_or_default(),
        }
    }

    fn read_fields<'a>(
        fields: &mut Fields<'a>,
        root: &DeTable<'a>,
        text: &str,
        file: &Path,
    ) -> Settings {
        let dir = file.parent().unwrap_or(Path::new(""));
        let mut settings = Settings::default();
        settings.read_root(fields, root, dir);
        if let Some(table) = fields.table(root, "tls") {
            settings.files.read(fields, table, dir);
        }
        if let Some(table) = fields.table(root, "controller") {
            read_controller(&mut settings.controller, fields, table);
        }
        let controller = fields.table(root, "controller");
        if let Some(table) = fields.table(root, "timeouts") {
            let timeouts = &mut settings.controller.timeouts;
            let old = controller.into_iter().flat_map(|c| c.keys());
            let old = old.filter(|key| OLD_TIMEOUTS.contains(&&**key.get_ref()));
            if let Some(other) = timeouts::lifetime_key(table) {
                // The section's values are compared with the section's own default.
                timeouts.default = Timeouts::default().default;
                for key in old {
                    let name = key.get_ref();
                    let problem = format!(
                        "{name} means policy fixed, and [timeouts] has {other}; keep one of them"
                    );
                    fields.problem(&key.span(), problem);
                }
            }
            timeouts::read(timeouts, fields, table);
        }
        if let Some(table) = fields.table(root, "fabric") {
            fields.only(table, "fabric", &["tag", "equal_paths"]);
            let tag = fields.tag(table, "tag");
            let shares = fields.parsed(table, "equal_paths", "share", |text| match text {
                "share" => Ok(true),
                "first" => Ok(false),
                _ => Err(format!("'{text}' is none of share, first")),
            });
            settings.fabric.shares = shares.unwrap_or(settings.fabric.shares);
            settings.fabric.tag = tag.unwrap_or(settings.fabric.tag);
        }
        if let Some(table) = fields.table(root, "multicast") {
            settings.controller.multicast = multicast::read(fields, table);
        }
        if let Some(table) = fields.table(root, "session") {
            read_session(&mut settings, fields, table);
        }
        settings.metrics = metrics::Stated::read(fields, root);
        settings.vlans = Stated::read(fields, root);
        settings.access = access::Stated::read(fields, root);
        settings.gateways = gateways::read(fields, root);
        settings.guests = guests::read(fields, root);
        settings.cluster = cluster::Stated::read(fields, root, dir);
        settings.has_cluster = root.contains_key("cluster");
        let gateways = &settings.gateways;
        settings.access.check_routes(fields, root, gateways);
        settings.qos = Section::read(fields, root, text, file);
        settings
    }

    fn read_root<'a>(&mut self, fields: &mut Fields<'a>, root: &DeTable<'a>, dir: &Path) {
        let known = [
            "listen",
            "connect",
            "mode",
            "forwarding",
            "allow_dpid",
            "drain",
            "drain_wait_s",
            "ovsdb",
            "bfd_interval_ms",
            "state",
            "status",
            "api",
            "api_hosts",
            "json",
            "threads",
            "policy",
            "topology",
            "links",
            "edge_ports",
            "tls",
            "controller",
            "fabric",
            "multicast",
            "timeouts",
            "session",
            "qos",
            "vlans",
            "vlan",
            "port",
            "acl",
            "guard",
            "bond",
            "mirror",
            "route",
            "guest",
            "cluster",
            "metrics",
        ];
        fields.only(root, "", &known);
        self.listen = fields.list(root, "listen", "pssl:6653", |text| {
            method(
                text,
                true,
                "this dials; a method that listens starts with 'p', or put it under connect",
            )
        });
        self.connect = fields.list(root, "connect", "ssl:10.0.0.7:6653", |text| {
            method(
                text,
                false,
                "this listens; drop the 'p' to dial, or put it under listen",
            )
        });
        self.ovsdb = fields.list(root, "ovsdb", "ptcp:6640", ovsdb_method);
        let interval = fields.integer(root, "bfd_interval_ms", BFD_INTERVAL_MS);
        self.bfd_interval = interval.map(Duration::from_millis);
        let mode = fields.parsed(root, "mode", "reactive", |text| {
            <Mode as clap::ValueEnum>::from_str(text, false)
                .map_err(|_| format!("'{text}' is none of reactive, proactive, hybrid"))
        });
        if let Some(mode) = mode {
            (self.controller.mode, self.has_mode) = (mode.into(), true);
        }
        self.forwarding = fields.parsed(root, "forwarding", "fabric", |text| {
            <Forwarding as clap::ValueEnum>::from_str(text, false)
                .map_err(|_| format!("'{text}' is none of paths, fabric, off"))
        });
        if root.contains_key("allow_dpid") {
            let example = "0000000000000001";
            let allowed = fields.list(root, "allow_dpid", example, str::parse::<DatapathId>);
            self.driver.allowed = Some(allowed.into_iter().collect());
        }
        self.drained = drain::read(fields, root);
        self.state = fields
            .string(root, "state", "/var/lib/auster")
            .map(|path| dir.join(path));
        self.status = fields
            .string(root, "status", "/run/auster.sock")
            .map(|path| dir.join(path));
        self.api = api::Stated::read(fields, root, dir);
        self.api_hosts = fields.list(root, "api_hosts", "controller.example", api::host);
        self.topology = fields
            .string(root, "topology", "topology.toml")
            .map(|path| dir.join(path));
        let links = fields.parsed(root, "links", "enforce", |text| match text {
            "discover" => Ok(LinkPolicy::Discover),
            "enforce" => Ok(LinkPolicy::Enforce),
            _ => Err(format!("'{text}' is neither discover nor enforce")),
        });
        self.controller.links = links.unwrap_or_default();
        let edge_ports = fields.list(root, "edge_ports", "1:2", topology::edge_port);
        self.controller.edge_ports = edge_ports.into_iter().collect();
        if let Some(policy) = fields.string(root, "policy", "voice.policy") {
            self.policy = match policy.as_str() {
                "auster" | "paper" | "none" => policy,
                file => dir.join(file).to_string_lossy().into_owned(),
            };
        }
        self.json = fields.bool(root, "json").unwrap_or(false);
        let threads = fields.integer(root, "threads", 1..=256);
        self.threads = threads
            .and_then(|n| NonZeroUsize::new(usize::try_from(n).ok()?))
            .unwrap_or(self.threads);
    }
}

impl TlsFiles {
    fn read(&mut self, fields: &mut Fields<'_>, table: &DeTable<'_>, dir: &Path) {
        fields.only(table, "tls", &["private_key", "certificate", "ca", "crl"]);
        let mut file = |key, example| fields.string(table, key, example).map(|f| dir.join(f));
        self.private_key = file("private_key", "ctl-privkey.pem");
        self.certificate = file("certificate", "ctl-cert.pem");
        self.ca = file("ca", "switchca/cacert.pem");
        self.crl = file("crl", "switchca/crl.pem");
    }
}

/// A shorter interval gives false alarms on a busy switch. A longer one is no better than LLDP.
const BFD_INTERVAL_MS: RangeInclusive<u64> = 100..=1000;

/// Settings of `[controller]` that mean the same as policy fixed in `[timeouts]`.
const OLD_TIMEOUTS: [&str; 2] = ["idle_timeout_s", "hard_timeout_s"];

/// The idle timeout if `[timeouts]` does not set one.
pub(super) const IDLE_TIMEOUT_S: u16 = 60;

fn read_controller(config: &mut ControllerConfig, fields: &mut Fields<'_>, table: &DeTable<'_>) {
    fields.only(table, "controller", &table::keys_of("controller"));
    config.arp_inspection = fields.bool(table, "arp_inspection").unwrap_or(false);
    let mut seconds = |key, to: &mut u16| {
        let found = fields.integer(table, key, 0..=u64::from(u16::MAX));
        *to = found.map_or(*to, |n| u16::try_from(n).expect("in the range"));
    };
    if OLD_TIMEOUTS.iter().any(|key| table.contains_key(*key)) {
        let (mut idle_s, mut hard_s) = (IDLE_TIMEOUT_S, 0);
        seconds(OLD_TIMEOUTS[1], &mut hard_s);
        if hard_s > 0 {
            idle_s = idle_s.min(hard_s);
        }
        seconds(OLD_TIMEOUTS[0], &mut idle_s);
        if hard_s > 0
            && idle_s > hard_s
            && let Some(idle) = table.get(OLD_TIMEOUTS[0])
        {
            let problem = format!(
                "idle_timeout_s is {idle_s}; it must not be above hard_timeout_s, which is {hard_s}"
            );
            fields.problem(&idle.span(), problem);
        }
        config.timeouts.default = Lifetime::Fixed { idle_s, hard_s };
    }
    let mut millis = |key, range, to: &mut Duration| {
        let found = fields.integer(table, key, range);
        *to = found.map_or(*to, Duration::from_millis);
    };
    millis(
        "lldp_interval_ms",
        10..=3_600_000,
        &mut config.lldp_interval,
    );
    millis("port_hold_ms", 0..=60_000, &mut config.port_hold);
    millis("switch_grace_ms", 0..=3_600_000, &mut config.switch_grace);
    let mut count = |key, to: &mut usize| {
        let found = fields.integer(table, key, 1..=10_000_000);
        *to = found.map_or(*to, |n| usize::try_from(n).expect("in the range"));
    };
    count("switch_count_max", &mut config.switch_count_max);
    count("host_count_max", &mut config.host_count_max);
    count("path_count_max", &mut config.path_count_max);
    count("paths_per_switch_max", &mut config.paths_per_switch_max);
    count("paths_per_port_max", &mut config.paths_per_port_max);
    let mut number = |key, to: &mut u32| {
        let found = fields.integer(table, key, 1..=10_000_000);
        *to = found.map_or(*to, |n| u32::try_from(n).expect("in the range"));
    };
    number("hosts_per_switch_max", &mut config.hosts_per_switch_max);
    number("hosts_per_port_max", &mut config.hosts_per_port_max);
    number("path_rate_max", &mut config.path_rate_max);
    number("flood_rate_max", &mut config.flood_rate_max);
    number("flood_packet_outs_max", &mut config.flood_packet_outs_max);
    let idle = fields.integer(table, "host_idle_s", 60..=172_800);
    config.host_idle = idle.map_or(config.host_idle, Duration::from_secs);
}

fn read_session(settings: &mut Settings, fields: &mut Fields<'_>, table: &DeTable<'_>) {
    let config = &mut settings.driver;
    fields.only(table, "session", &table::keys_of("session"));
    let has_bundles = fields.parsed(table, "bundles", "off", |text| match text {
        "auto" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{text}' is neither auto nor off")),
    });
    settings.controller.has_bundles = has_bundles.unwrap_or(true);
    let session = &mut config.session;
    let versions = fields.list(table, "versions", "1.3", session_version);
    let versions: BTreeSet<Version> = versions.into_iter().collect();
    if !versions.is_empty() {
        session.versions = versions.into_iter().collect();
    } else if let Some(value) = table.get("versions")
        && fields::items(table, "versions").is_empty()
    {
        fields.problem(
            &value.span(),
            "versions is empty; it must be such as [\"1.3\"]",
        );
    }
    let mut millis = |key, to: &mut Duration| {
        let found = fields.integer(table, key, 10..=600_000);
        *to = found.map_or(*to, Duration::from_millis);
    };
    millis("hello_timeout_ms", &mut session.hello_timeout);
    millis("features_timeout_ms", &mut session.features_timeout);
    millis("message_timeout_ms", &mut session.message_timeout);
    millis("echo_interval_ms", &mut session.echo_interval);
    if let Some(count) = fields.integer(table, "echo_unanswered_max", 1..=1000) {
        session.echo_unanswered_max = u32::try_from(count).expect("in the range");
    }
    if let Some(is_guarded) = fields.bool(table, "guard") {
        session.is_guarded = is_guarded;
    }
    let mut count = |key, to: &mut usize| {
        let found = fields.integer(table, key, 1..=1_000_000);
        *to = found.map_or(*to, |n| usize::try_from(n).expect("in the range"));
    };
    count("packet_ins_max", &mut config.inbox.packet_ins_max);
    count("messages_max", &mut config.inbox.messages_max);
    if let Some(rate) = fields.integer(table, "packet_in_rate_max", 1..=10_000_000) {
        config.packet_in_rate_max = u32::try_from(rate).expect("in the range");
    }
}

/// The OpenFlow versions that a session can have.
pub const SPOKEN: [Version; 4] = [Version::V10, Version::V13, Version::V14, Version::V15];

/// Reads a version of OpenFlow that sessions may speak.
pub fn session_version(text: &str) -> Result<Version, String> {
    let spoken = SPOKEN
        .into_iter()
        .find(|version| version.to_string() == text);
    spoken.ok_or_else(|| format!("'{text}' is none of 1.0, 1.3, 1.4 and 1.5"))
}

fn fits_mode(mode: control::controller::Mode, timeouts: &Timeouts) -> Result<(), Failure> {
    let is_proactive = mode == control::controller::Mode::Proactive;
    if is_proactive && !timeouts.classes.is_empty() {
        return Err(Failure::usage(
            "[[timeouts.class]] needs mode reactive or hybrid: in proactive mode no packet asks \
             for an entry of its own",
        ));
    }
    Ok(())
}

fn fits_fabric(config: &ControllerConfig, timeouts: &Timeouts) -> Result<(), Failure> {
    let is_reactive = config.mode == control::controller::Mode::Reactive;
    let reports = timeouts.first_packets == FirstPackets::Report;
    if config.fabric.is_some() && (!is_reactive || reports) {
        return Err(Failure::usage(
            "forwarding = \"fabric\" needs mode = \"reactive\", and first packets that are not \
             reported: the fabric sets its routes beforehand in any case; with forwarding = \
             \"paths\", after a restart, both are free",
        ));
    }
    if config.fabric.is_none() && config.multicast.is_some() {
        return Err(Failure::usage(
            "[multicast] needs forwarding = \"fabric\", whose labels carry the copies: take out \
             mode, forwarding = \"paths\" and first_packets = \"report\", or [multicast]",
        ));
    }
    Ok(())
}

/// Checks that no setting asks for entries where forwarding is off. VLANs, bonds, mirrors and
/// multicast ask for the fabric.
fn fits_off(settings: &Settings) -> Result<(), Failure> {
    if settings.forwarding() != Forwarding::Off {
        return Ok(());
    }
    let timeouts = &settings.controller.timeouts;
    let reports = timeouts.first_packets == FirstPackets::Report;
    let asked = [
        ("mode", settings.has_mode),
        ("first_packets = \"report\"", reports),
        ("[[timeouts.class]]", !timeouts.classes.is_empty()),
        ("arp_inspection", settings.controller.arp_inspection),
        ("[[acl]] and [guard]", settings.access.access.is_on()),
        (
            "[[qos.service]], [[qos.policy]] and [[qos.circuit]]",
            chooses_packets(&settings.qos.qos),
        ),
    ];
    let asked = asked
        .into_iter()
        .filter_map(|(name, is)| is.then_some(name));
    let asked: Vec<&str> = asked.collect();
    if asked.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "forwarding = \"off\" sets no entries but that for LLDP, and {} {} to some: take that out, \
         or choose fabric or paths",
        asked.join(", "),
        if asked.len() == 1 { "leads" } else { "lead" },
    )))
}

/// Checks that the VLANs of `file` work in a controller with the settings `running`. Only the
/// fabric carries VLANs so far.
fn fits_vlans(file: &Settings, running: &Settings) -> Result<(), Failure> {
    fits_bonds(file, running)?;
    if !file.vlans.is_any() {
        return Ok(());
    }
    let mut problems = Vec::new();
    if running.controller.fabric.is_none() {
        problems.push(
            "[[vlan]], [[port]] and vlans = \"ovsdb\" need forwarding = \"fabric\", which alone \
             carries VLANs: take out mode, forwarding = \"paths\" and first_packets = \"report\", \
             and restart",
        );
    }
    if !file.controller.timeouts.classes.is_empty() {
        problems.push(
            "[[timeouts.class]] names hosts without their VLAN, so classes, their services and \
             forbid do not go with [[vlan]], [[port]] and vlans = \"ovsdb\": take out one of them",
        );
    }
    if chooses_packets(&file.qos.qos) {
        problems.push(
            "[[qos.service]], [[qos.policy]] and [[qos.circuit]] choose packets without their \
             VLAN, so they do not go with [[vlan]], [[port]] and vlans = \"ovsdb\": take out one \
             of them",
        );
    }
    if file.vlans.is_followed && running.has_cluster {
        problems.push(
            "vlans = \"ovsdb\" does not go with [cluster], in which no member reads the switches' \
             databases: state the VLANs as [[vlan]] and [[port]]",
        );
    } else if file.vlans.is_followed && running.ovsdb.is_empty() {
        problems.push(
            "vlans = \"ovsdb\" needs the switches' databases: give them with ovsdb = \"METHOD\" \
             or --ovsdb METHOD",
        );
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(problems.join("\n"))),
    }
}

/// Checks that a cluster member keeps nothing that each member would keep in its own way.
fn fits_cluster(settings: &Settings) -> Result<(), Failure> {
    if !settings.has_cluster {
        return Ok(());
    }
    let mut problems = Vec::new();
    if !settings.ovsdb.is_empty() {
        problems.push(
            "[cluster] does not go with ovsdb: a member that stands by would change the queues of \
             switches which another one serves; take out one of them",
        );
    }
    if settings.state.is_some() {
        problems.push(
            "[cluster] does not go with state (--state), as etcd keeps what the API is asked for; \
             take out that one, and leave state in [cluster]",
        );
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(problems.join("\n"))),
    }
}

/// Checks the same for bonds, mirrors and guards of ports.
fn fits_bonds(file: &Settings, running: &Settings) -> Result<(), Failure> {
    if !file.vlans.has_bonds() {
        return Ok(());
    }
    let chooses = !file.controller.timeouts.classes.is_empty() || chooses_packets(&file.qos.qos);
    let problem = match (running.controller.fabric, chooses) {
        (None, _) => {
            "[[bond]], [[mirror]], bpdu and crowd need forwarding = \"fabric\", which has their \
             groups: take out mode, forwarding = \"paths\" and first_packets = \"report\", and \
             restart"
        }
        (Some(_), true) => {
            "[[timeouts.class]], [[qos.service]], [[qos.policy]] and [[qos.circuit]] set entries \
             for one port of a host, so they do not go with [[bond]], [[mirror]], bpdu and \
             crowd: take out one of them"
        }
        (Some(_), false) => return Ok(()),
    };
    Err(Failure::usage(problem))
}

/// Checks that no port with VLANs is an end of a link in the topology.
pub fn fits_links(
    vlans: &Stated,
    topology: Option<&Topology>,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let file = file.map_or("[[port]]".to_owned(), |file| file.display().to_string());
    let ends = topology.map(|topology| vlans.ends_of_links(topology, &file));
    match ends.unwrap_or_default() {
        ends if ends.is_empty() => Ok(()),
        ends => Err(Failure::usage(ends.join("\n"))),
    }
}

fn fits_bfd(ovsdb: &[Method], interval: Option<Duration>) -> Result<(), Failure> {
    if interval.is_some() && ovsdb.is_empty() {
        return Err(Failure::usage(
            "bfd_interval_ms needs the switches' databases, in which BFD is set: give them with \
             ovsdb = \"METHOD\" or --ovsdb METHOD",
        ));
    }
    Ok(())
}

/// Checks that settings of links and edges have a topology to refer to, and do not contradict it.
fn fits_topology(config: &ControllerConfig) -> Result<(), Failure> {
    let Some(topology) = &config.topology else {
        return match config.links {
            LinkPolicy::Discover => Ok(()),
            LinkPolicy::Enforce => Err(Failure::usage(
                "links = \"enforce\" needs a topology that says which links there are: give one \
                 with topology = \"FILE\" or --topology FILE",
            )),
        };
    };
    let mut edges = config.edge_ports.iter();
    match edges.find(|at| topology.has_end(**at)) {
        Some(at) => Err(Failure::usage(format!(
            "edge_ports: {at} is an end of a link in the topology; take it out of one of the two"
        ))),
        None => Ok(()),
    }
}

fn method(text: &str, passive: bool, otherwise: &str) -> Result<Method, String> {
    let method: Method = text
        .parse()
        .map_err(|e: net::method::MethodError| e.to_string())?;
    if method.is_passive() == passive {
        Ok(method)
    } else {
        Err(format!("'{text}': {otherwise}"))
    }
}

/// The method of a database, in the forms by which Open vSwitch's databases can be reached.
pub(super) fn ovsdb_method(text: &str) -> Result<Method, String> {
    let method = Method::parse(text, Protocol::Ovsdb).map_err(|error| error.to_string())?;
    match method {
        Method::Dial(Transport::Quic, ..) | Method::Listen(Transport::Quic, ..) => Err(format!(
            "'{text}': no database speaks quic; auster relay carries it: write unix: and the file \
             of its --ovsdb punix:"
        )),
        method => Ok(method),
    }
}

fn direction_problem(flag: &str) -> &'static str {
    match flag {
        "--listen" => "this dials; put a 'p' before it to listen, or use --connect",
        _ => "this listens; drop the 'p' to dial, or use --listen",
    }
}

#[cfg(test)]
mod tests {
    use super::check::check;
    use super::effective::Effective;
    use super::*;
    use crate::fields::without_columns;

    fn problems(text: &str) -> Vec<String> {
        let found = Settings::parse(text, Path::new("net.toml"));
        without_columns(found.expect_err("has problems"))
    }

    fn args(words: &[&str]) -> Args {
        let words = ["run"].iter().chain(words);
        <Line as clap::Parser>::try_parse_from(words).unwrap().args
    }

    /// The settings that differ between two files and need a restart.
    fn restarts(before: &str, after: &str) -> Vec<&'static str> {
        let effective = |text: &str| {
            let settings = Settings::parse(text, Path::new("net.toml")).unwrap();
            Effective::of(&settings.complete().unwrap(), &args(&[]), text)
        };
        let changes = effective(before).changes(&effective(after)).into_iter();
        let needed = changes.filter(|change| change.needs_restart);
        needed.map(|change| change.path).collect()
    }

    /// The settings that a controller running with `running` applies from the file.
    fn reread(running: &Settings, file: &Path) -> Result<Settings, String> {
        let checked = check(&args(&["--config", file.to_str().unwrap()]));
        let mut checked = checked.map_err(|mistakes| mistakes.join("; "))?;
        match checked.settings.keep(running, &[]) {
            mistakes if mistakes.is_empty() => Ok(checked.settings),
            mistakes => Err(mistakes.join("; ")),
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn listens(line: &[&str]) -> Vec<String> {
        let words = ["run"].iter().chain(line);
        let line = <Line as clap::Parser>::try_parse_from(words).unwrap();
        let settings = Settings::given(line.args).and_then(Settings::complete);
        let settings = settings.unwrap();
        settings.listen.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn versions_are_those_that_a_session_can_have() {
        let parse = |versions: &str| {
            let text = format!("[session]\nversions = {versions}\n");
            Settings::parse(&text, Path::new("run.toml"))
        };
        let settings = parse("[\"1.5\", \"1.3\", \"1.5\"]").unwrap();
        let versions = [Version::V13, Version::V15];
        assert_eq!(settings.driver.session.versions, versions);
        for (versions, problem) in [
            ("[]", "versions is empty"),
            ("[\"1.2\"]", "'1.2' is none of 1.0, 1.3, 1.4 and 1.5"),
            ("1.3", "versions"),
        ] {
            let problems = parse(versions).map(drop).unwrap_err();
            assert!(problems[0].contains(problem), "{problems:?}");
            assert!(problems[0].starts_with("run.toml:2:"), "{problems:?}");
        }
    }

    #[test]
    fn without_flags_only_this_machine_is_served() {
        assert_eq!(listens(&[]), ["ptcp:6653:127.0.0.1"]);
        assert_eq!(listens(&["-c", "cert.pem"]), ["pssl:6653:0.0.0.0"]);
    }

    #[test]
    fn command_lines_of_mininet_and_ryu_work() {
        assert_eq!(listens(&["ptcp:6633"]), ["ptcp:6633:0.0.0.0"]);
        let ryu = [
            "--ofp-listen-host",
            "127.0.0.1",
            "--ofp-tcp-listen-port",
            "6633",
        ];
        assert_eq!(listens(&ryu), ["ptcp:6633:127.0.0.1"]);
    }

    #[test]
    fn a_whole_file_is_read() {
        let text = r#"
            listen = ["pssl:6653", "pquic:"]
            connect = "ssl:[::1]:6634"
            mode = "hybrid"
            allow_dpid = ["0000000000000001", "0x2"]
            status = "status.sock"
            threads = 3
            policy = "voice.policy"
            [tls]
            private_key = "ctl-privkey.pem"
            certificate = "/etc/ctl-cert.pem"
            ca = "switchca/cacert.pem"
            [controller]
            idle_timeout_s = 30
            switch_grace_ms = 2_500
            [session]
            echo_interval_ms = 1000
            messages_max = 64
            packet_in_rate_max = 5000
        "#;
        let settings = Settings::parse(text, Path::new("/etc/auster/net.toml")).unwrap();
        assert_eq!(settings.listen.len(), 2);
        assert_eq!(settings.connect[0].to_string(), "ssl:[::1]:6634");
        assert_eq!(settings.controller.mode, control::controller::Mode::Hybrid);
        let timeouts = Timeouts {
            default: Lifetime::Fixed {
                idle_s: 30,
                hard_s: 0,
            },
            ..Timeouts::default()
        };
        assert_eq!(settings.controller.timeouts, timeouts);
        assert_eq!(
            settings.controller.switch_grace,
            Duration::from_millis(2500)
        );
        assert_eq!(
            settings.driver.session.echo_interval,
            Duration::from_secs(1)
        );
        assert_eq!(settings.driver.inbox.messages_max, 64);
        assert_eq!(settings.driver.packet_in_rate_max, 5000);
        assert_eq!(settings.threads.get(), 3);
        assert_eq!(settings.policy, "/etc/auster/voice.policy");
        let allowed = [DatapathId(1), DatapathId(2)];
        assert_eq!(settings.driver.allowed, Some(allowed.into()));
        let files = &settings.files;
        assert_eq!(
            files.private_key,
            Some("/etc/auster/ctl-privkey.pem".into())
        );
        assert_eq!(files.certificate, Some("/etc/ctl-cert.pem".into()));
        assert_eq!(settings.status, Some("/etc/auster/status.sock".into()));
    }

    #[test]
    fn what_is_said_of_links_is_checked() {
        let parse = |text: &str| Settings::parse(text, Path::new("net.toml"));
        let settings = parse("links = \"enforce\"\nedge_ports = [\"1:2\", \"0x3:4\"]").unwrap();
        let ports: Vec<String> = settings
            .controller
            .edge_ports
            .iter()
            .map(|at| at.to_string())
            .collect();
        assert_eq!(ports, ["0000000000000001:2", "0000000000000003:4"]);
        assert_eq!(settings.controller.links, LinkPolicy::Enforce);
        for wrong in [
            "links = \"some\"",
            "edge_ports = [\"1:controller\"]",
            "edge_ports = [\"1\"]",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let refused = fits_topology(&settings.controller).unwrap_err();
        assert!(
            refused.message().contains("needs a topology"),
            "{}",
            refused.message()
        );
        let end = |text| topology::location(text).unwrap();
        let links = [(end("1:2"), end("2:1"))];
        let mut config = settings.controller;
        config.topology = control::topology::Topology::new([], &links, &[]).ok();
        let refused = fits_topology(&config).unwrap_err();
        assert!(
            refused.message().contains("0000000000000001:2 is an end"),
            "{}",
            refused.message()
        );
        config.edge_ports.pop_first();
        assert!(fits_topology(&config).is_ok());
    }

    /// The settings shown in `docs/run.md` are a file that works, with the default numbers.
    #[test]
    fn the_manuals_example_is_read_and_its_numbers_are_the_defaults() {
        let manual = include_str!("../../../docs/run.md");
        let example = manual.split("```toml\n").nth(1).unwrap();
        let example = example.split("```").next().unwrap();
        let shown = Settings::parse(example, Path::new("auster.toml")).unwrap();
        let default = ControllerConfig {
            has_bundles: true,
            ..ControllerConfig::default()
        };
        assert_eq!(format!("{:?}", shown.controller), format!("{default:?}"));
        let default = driver_default();
        assert_eq!(
            format!("{:?}", shown.driver.session),
            format!("{:?}", default.session)
        );
        assert_eq!(
            format!("{:?}", shown.driver.inbox),
            format!("{:?}", default.inbox)
        );
    }

    #[test]
    fn the_fabric_has_one_of_two_tags_and_shares_paths_or_not() {
        let file = Path::new("net.toml");
        let fabric = |text: &str| {
            let settings = Settings::parse(text, file).unwrap().complete();
            let fabric = settings.unwrap().controller.fabric;
            fabric.map(|fabric| (fabric.tag, fabric.shares))
        };
        let other = "[fabric]\ntag = 0x88a8\nequal_paths = \"first\"\n";
        assert_eq!(fabric(""), Some((0x8100, true)));
        assert_eq!(fabric(other), Some((0x88a8, false)));
        assert_eq!(restarts("", other), ["fabric.tag", "fabric.equal_paths"]);
        assert_eq!(
            problems("[fabric]\ntag = 0x9100\nlabel = 1\nequal_paths = \"all\"\n"),
            [
                "net.toml:2: tag is 0x9100; it must be one of 0x88a8, 0x8100",
                "net.toml:3: 'label' is not known in [fabric]; known: tag, equal_paths",
                "net.toml:4: equal_paths: 'all' is none of share, first",
            ]
        );
    }

    #[test]
    fn the_fabric_forwards_unless_something_else_is_asked_for() {
        let file = Path::new("net.toml");
        let parsed = |text: &str| Settings::parse(text, file).unwrap();
        let is_fabric = |text: &str| {
            let settings = parsed(text).complete().unwrap();
            settings.controller.fabric.is_some()
        };
        assert!(is_fabric("") && is_fabric("mode = \"reactive\"\nforwarding = \"fabric\"\n"));
        let paths = [
            "forwarding = \"paths\"\n",
            "mode = \"reactive\"\n",
            "mode = \"hybrid\"\n",
            "[timeouts]\nfirst_packets = \"report\"\n",
        ];
        for text in paths {
            assert!(!is_fabric(text), "{text}");
            assert_eq!(restarts(text, text), [""; 0]);
        }
        assert_eq!(restarts("", paths[0]), ["forwarding"]);
        assert_eq!(restarts("", "[multicast]\n"), ["multicast.snooping"]);
        assert_eq!(restarts("", "[multicast]\nsnooping = false\n"), [""; 0]);
    }

    #[test]
    fn what_needs_a_restart_is_named_and_what_is_read_again_is_not() {
        let before = "listen = \"ptcp:6653\"\nmode = \"reactive\"\n\
             [tls]\ncertificate = \"a.pem\"\n\
             [controller]\nlldp_interval_ms = 1000\n\
             [timeouts]\npolicy = \"fixed\"\n";
        let after = "listen = \"ptcp:6654\"\nmode = \"hybrid\"\nallow_dpid = [\"1\"]\n\
             drain = [\"0000000000000001\"]\nthreads = 7\n\
             [tls]\ncertificate = \"b.pem\"\n\
             [controller]\nlldp_interval_ms = 2000\n\
             [timeouts]\npolicy = \"lease\"\n\
             [session]\necho_interval_ms = 1000\n";
        assert_eq!(restarts(before, before), [""; 0]);
        assert_eq!(restarts(before, after), ["mode", "threads"]);
    }

    #[test]
    fn every_mistake_is_told_at_once_by_line_and_field() {
        let found = problems(
            "listen = [\"ptcp:6653\", \"tcp:1.2.3.4\"]\n\
             mode = \"fast\"\n\
             speed = 3\n\
             json = 1\n\
             [controller]\n\
             idle_timeout_s = 70000\n\
             idle_timeout = 7\n\
             [tls]\n\
             ca = 5\n",
        );
        let expected = [
            "net.toml:1: listen: 'tcp:1.2.3.4': this dials; a method that listens starts with 'p'",
            "net.toml:2: mode: 'fast' is none of reactive, proactive, hybrid",
            "net.toml:3: 'speed' is not known here; known: listen, connect, mode",
            "net.toml:4: json is 1; it must be one of true, false",
            "net.toml:6: idle_timeout_s is 70000; it must be a number from 0 to 65535",
            "net.toml:7: 'idle_timeout' is not known in [controller]; known: idle_timeout_s",
            "net.toml:9: ca is 5; it must be a text such as \"switchca/cacert.pem\"",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
        }
    }

    #[test]
    fn databases_come_and_are_dialled() {
        let text = "ovsdb = [\"ptcp:\", \"unix:/run/s1.sock\", \"ssl:192.0.2.1\"]\n";
        let settings = Settings::parse(text, Path::new("net.toml")).unwrap();
        let methods: Vec<String> = settings.ovsdb.iter().map(ToString::to_string).collect();
        let expected = [
            "ptcp:6640:0.0.0.0",
            "unix:/run/s1.sock",
            "ssl:192.0.2.1:6640",
        ];
        assert_eq!(methods, expected);
        let failure = settings.security().unwrap_err();
        let said = failure.message();
        assert!(
            said.contains("ssl:192.0.2.1:6640 needs certificates"),
            "{said}"
        );
        let found = problems("ovsdb = [\"quic:192.0.2.1\", \"6640\"]\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("no database speaks quic"), "{found:?}");
        assert!(found[1].contains("starts with tcp:"), "{found:?}");
    }

    #[test]
    fn bfd_has_a_floor_and_needs_databases() {
        let file = Path::new("net.toml");
        let parsed = |text: &str| Settings::parse(text, file).unwrap();
        let both = parsed("ovsdb = \"ptcp:\"\nbfd_interval_ms = 100\n");
        assert_eq!(both.bfd_interval, Some(Duration::from_millis(100)));
        let other = parsed("ovsdb = \"ptcp:\"\n");
        assert_eq!(other.bfd_interval, None);
        assert!(both.complete().is_ok());
        let alone = parsed("bfd_interval_ms = 100\n").complete().unwrap_err();
        assert!(
            alone.message().contains("--ovsdb METHOD"),
            "{}",
            alone.message()
        );
        let wrong = "must be a number from 100 to 1000";
        for ms in [0, 99, 1001] {
            let found = problems(&format!("json = true\nbfd_interval_ms = {ms}\n"));
            assert_eq!(
                found,
                [format!("net.toml:2: bfd_interval_ms is {ms}; it {wrong}")]
            );
        }
    }

    const VLANS: &str = "[[vlan]]\nid = 10\n[[port]]\nat = \"1:2\"\naccess = 10\n";

    #[test]
    fn vlans_are_carried_by_the_fabric_alone() {
        let file = Path::new("net.toml");
        let complete = |text: &str| {
            let settings = Settings::parse(text, file).unwrap();
            settings.complete()
        };
        let settings = complete(VLANS).unwrap();
        assert!(settings.controller.vlans.is_on());
        assert_eq!(settings.controller.vlans, settings.vlans.vlans);
        let queues = "[[qos.port]]\nat = \"1:2\"\nrate = \"10mbit\"\n";
        assert!(complete(&format!("{VLANS}{queues}")).is_ok());
        let service = "[[qos.service]]\nname = \"voice\"\nproto = \"udp\"\n";
        let refused = [
            ("forwarding = \"paths\"\n", "", "need forwarding"),
            ("mode = \"reactive\"\n", "", "need forwarding"),
            ("mode = \"hybrid\"\n", "", "need forwarding"),
            (
                "",
                "[timeouts]\nfirst_packets = \"report\"\n",
                "need forwarding",
            ),
            ("vlans = \"ovsdb\"\n", "", "--ovsdb METHOD"),
            (
                "",
                "[[timeouts.class]]\nname = \"a\"\nsrc = \"10.0.0.1\"\nforbid = true\n",
                "[[timeouts.class]]",
            ),
            ("", service, "[[qos.service]]"),
        ];
        for (before, after, expected) in refused {
            let refused = complete(&format!("{before}{VLANS}{after}"));
            let refused = refused.map(drop).unwrap_err();
            assert!(
                refused.message().contains(expected),
                "{}",
                refused.message()
            );
            let alone = Settings::parse(&format!("{before}{after}"), file).unwrap();
            assert!(
                alone.vlans.is_followed || alone.complete().is_ok(),
                "{expected}"
            );
        }
        let both = complete(&format!(
            "mode = \"hybrid\"\nvlans = \"ovsdb\"\n{VLANS}{service}"
        ));
        let both = both.map(drop).unwrap_err();
        for expected in ["need forwarding", "[[qos.service]]", "--ovsdb METHOD"] {
            assert!(both.message().contains(expected), "{}", both.message());
        }
    }

    #[test]
    fn vlans_are_read_again_unless_the_file_has_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let topology = write("topology.toml", "links = [\"1:7 2:7\"]\n");
        let text = format!("topology = \"topology.toml\"\n{VLANS}");
        let file = write("net.toml", &text);
        let running = Settings::read(&file).unwrap().complete().unwrap();
        assert_eq!(reread(&running, &file).unwrap().vlans, running.vlans);
        write("net.toml", &text.replace("1:2", "1:3"));
        let other = reread(&running, &file).unwrap().vlans;
        let changed = other.vlans.changed(&running.vlans.vlans);
        let changed: Vec<u32> = changed.into_iter().map(|at| at.port.0).collect();
        assert_eq!(changed, [2, 3]);
        let class = "[[timeouts.class]]\nname = \"a\"\nsrc = \"10.0.0.1\"\n";
        for (wrong, expected) in [
            (text.replace("id = 10", "id = 0"), "net.toml:3:6: id is 0"),
            (
                text.replace("1:2", "1:7"),
                "net.toml:5:1: 0000000000000001:7 is an end",
            ),
            (format!("{text}{class}"), "[[timeouts.class]]"),
            (format!("vlans = \"ovsdb\"\n{text}"), "--ovsdb METHOD"),
        ] {
            write("net.toml", &wrong);
            let refused = reread(&running, &file).map(drop).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
        write("net.toml", &text);
        let paths = Settings::parse("forwarding = \"paths\"\n", &file).unwrap();
        let refused = reread(&paths.complete().unwrap(), &file);
        let refused = refused.map(drop).unwrap_err();
        assert!(refused.contains("need forwarding"), "{refused}");
        std::fs::write(&topology, "links = [\"1:2 2:7\"]\n").unwrap();
        let refused = Settings::read(&file)
            .unwrap()
            .complete()
            .map(drop)
            .unwrap_err();
        assert!(
            refused.message().contains("1:2 is an end"),
            "{}",
            refused.message()
        );
    }

    #[test]
    fn gateways_are_read_again_unless_the_file_has_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("net.toml");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        let text = VLANS.replace("id = 10\n", "id = 10\ngateway = \"10.0.10.254/24\"\n");
        write(&text);
        let running = Settings::read(&file).unwrap().complete().unwrap();
        assert_eq!(running.controller.gateways.vlans.len(), 1);
        let route = "[[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.0.10.1\"\n";
        write(&format!("{text}{route}"));
        let other = reread(&running, &file).unwrap().gateways;
        assert_eq!((other.vlans.len(), other.routes.len()), (1, 1));
        write(VLANS);
        let none = reread(&running, &file).unwrap().gateways;
        assert!(none.vlans.is_empty());
        for (wrong, expected) in [
            (format!("{VLANS}{route}"), "in no gateway's network"),
            (text.replace("254", "255"), "net.toml:3:11: gateway"),
            (format!("speed = 3\n{text}"), "'speed' is not known"),
        ] {
            write(&wrong);
            let said = reread(&running, &file).map(drop).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
        let paths = format!("forwarding = \"paths\"\n{text}");
        let refused = Settings::parse(&paths, &file).unwrap().complete();
        let refused = refused.map(drop).unwrap_err();
        assert!(refused.message().contains("need forwarding"));
    }

    #[test]
    fn what_is_not_toml_is_told_by_its_line() {
        let found = problems("mode = \"hybrid\"\nlisten = [\n");
        assert!(found[0].starts_with("net.toml:"), "{found:?}");
        let found = problems("mode = hybrid\njson = yes\n");
        assert!(found[0].starts_with("net.toml:1: "), "{found:?}");
        assert!(
            found.iter().any(|f| f.starts_with("net.toml:2: ")),
            "{found:?}"
        );
    }
}
