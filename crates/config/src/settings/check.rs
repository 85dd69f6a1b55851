//! Checks a whole configuration, with every file that it names, and starts nothing.

use std::path::{Path, PathBuf};

use net::tls::{Security, ServerSecurity};

use super::super::Args;
use super::super::fields::Mistaken;
use super::document::{Document, names};
use super::effective::{Change, Effective};
use super::{Reading, Settings, fits_bfd, fits_fabric, fits_mode, fits_off, fits_vlans, sockets};
use crate::api::ALPN;
use crate::tokens::Tokens;
use cli::failure::Failure;

/// A configuration without a mistake.
pub struct Checked {
    pub settings: Settings,
    pub effective: Effective,
    /// The security with the certificates that the configuration names.
    pub security: Security,
}

/// Reads the options, the file and all files that they name. Each mistake is a line.
pub fn check(args: &Args) -> Result<Checked, Vec<String>> {
    read(args, |_, _, _| Vec::new())
}

/// Checks the same, and finds sockets and folders that a start could not make. A running process
/// has them. If it lacks one later, such as an answer of the name server, this is no reason to
/// refuse other settings.
pub fn check_start(args: &Args) -> Result<Checked, Vec<String>> {
    read(args, sockets::problems)
}

fn read(
    args: &Args,
    of_sockets: impl Fn(&Settings, &Mistaken, &Document<'_>) -> Vec<String>,
) -> Result<Checked, Vec<String>> {
    let text = match &args.config {
        None => String::new(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| vec![Failure::file(path, error).message().to_owned()])?,
    };
    let file = args.config.as_deref().unwrap_or(Path::new(""));
    let Reading {
        mut settings,
        mut mistakes,
        is_toml,
        mistaken,
    } = Settings::read_text(&text, file);
    settings.config.clone_from(&args.config);
    let applied = settings.apply(args.clone());
    let files = settings.files_named();
    let document = Document::new(&text, file);
    let mut note = |failure: &Failure| {
        let found = lines(failure, &files).into_iter();
        let found = found.filter(|line| !needs_any(line, &mistaken));
        let placed = found.map(|line| {
            let in_file = file_place(&line, &files, &document);
            let place = in_file.or_else(|| method_place(&line, &document));
            match place {
                Some(place) => format!("{place}: {line}"),
                None if is_in(&line, &files) => line,
                None => document.placed(&line),
            }
        });
        mistakes.extend(placed);
    };
    applied.unwrap_or_else(|failure| note(&failure));
    if !is_toml {
        return Err(mistakes);
    }
    let security = settings.security().map_err(|failure| note(&failure)).ok();
    settings.check_api().iter().for_each(&mut note);
    if let Some(cluster) = &settings.cluster {
        let files = settings.credential_files();
        let checked = cluster.security(files);
        let checked = checked.and_then(|security| cluster.can_start(&security));
        // A fault in these files is reported once, whichever setting uses them.
        if security.is_some() {
            checked.unwrap_or_else(|failure| note(&failure));
        }
    }
    let of_sockets = of_sockets(&settings, &mistaken, &document);
    let completed = settings.completed();
    let failures = completed.as_ref().err().into_iter().flatten();
    failures.for_each(note);
    mistakes.extend(of_sockets);
    match (completed, security) {
        (Ok(settings), Some(security)) if mistakes.is_empty() => {
            settings.warn();
            Ok(Checked {
                effective: Effective::of(&settings, args, &text),
                settings,
                security,
            })
        }
        _ => Err(in_order(mistakes, file)),
    }
}

/// Whether a mistake reports that something needs a setting which is itself mistaken. It would be
/// no mistake if that setting were right.
fn needs_any(mistake: &str, mistaken: &Mistaken) -> bool {
    let needed = mistake.split_once(" need");
    needed.is_some_and(|(_, needed)| names(needed).any(|name| mistaken.has(name)))
}

/// The settings whose whole file a mistake is about, and the place of the first of them.
fn file_place(mistake: &str, files: &[Named], document: &Document<'_>) -> Option<String> {
    let is_about = |one: &&Named| mistake.starts_with(&format!("{}: ", one.file.display()));
    let named: Vec<&Named> = files.iter().filter(is_about).collect();
    let place = named.iter().find_map(|one| {
        document.place_of_text(one.setting, 0, |text| document.path(text) == one.file)
    });
    let settings: Vec<&str> = named.iter().map(|one| one.setting).collect();
    let settings = (!settings.is_empty()).then(|| settings.join(", "))?;
    Some(place.map_or(settings.clone(), |place| format!("{place}: {settings}")))
}

/// Whether a mistake has a place in one of the files.
fn is_in(mistake: &str, files: &[Named]) -> bool {
    let starts = |one: &Named| mistake.starts_with(&format!("{}:", one.file.display()));
    files.iter().any(starts)
}

/// The setting with the method that begins the mistake, and its place.
fn method_place(mistake: &str, document: &Document<'_>) -> Option<String> {
    let (stated, _) = mistake.split_once(' ')?;
    ["listen", "connect", "ovsdb"]
        .into_iter()
        .find_map(|setting| {
            let is_it = |text: &str| {
                let method = match setting {
                    "ovsdb" => super::ovsdb_method(text).ok(),
                    _ => text.parse().ok(),
                };
                method.is_some_and(|method| method.to_string() == stated)
            };
            let place = document.place_of_text(setting, 0, is_it)?;
            Some(format!("{place}: {setting}"))
        })
}

/// Sorts the mistakes, each once: those in the settings by line and column, then all others.
fn in_order(mut mistakes: Vec<String>, file: &Path) -> Vec<String> {
    let file = format!("{}:", file.display());
    let place = |line: &String| {
        let mut numbers = line
            .strip_prefix(&file)?
            .split(':')
            .map(str::parse::<usize>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    mistakes.sort_by_cached_key(|line| place(line).unwrap_or((usize::MAX, usize::MAX)));
    let mut once: Vec<String> = Vec::new();
    for mistake in mistakes {
        if !once.contains(&mistake) {
            once.push(mistake);
        }
    }
    once
}

/// A file that a setting names.
struct Named {
    setting: &'static str,
    file: PathBuf,
}

/// The mistakes of a failure. It may have a line for each, or join those of a file.
fn lines(failure: &Failure, files: &[Named]) -> Vec<String> {
    let mut text = failure.message().to_owned();
    for file in files.iter().map(|one| one.file.display()) {
        text = text.replace(&format!("; {file}:"), &format!("\n{file}:"));
    }
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

impl Settings {
    /// Keeps the settings of `running` that need a restart according to `changes`. Returns the
    /// mistakes of settings that do not fit them.
    pub fn keep(&mut self, running: &Settings, changes: &[Change]) -> Vec<String> {
        self.controller.mode = running.controller.mode;
        self.controller.fabric = running.controller.fabric;
        self.controller.is_forwarding = running.controller.is_forwarding;
        self.controller
            .multicast
            .clone_from(&running.controller.multicast);
        (self.has_mode, self.forwarding) = (running.has_mode, running.forwarding);
        (self.fabric, self.threads) = (running.fabric, running.threads);
        self.ovsdb.clone_from(&running.ovsdb);
        self.state.clone_from(&running.state);
        self.cluster.clone_from(&running.cluster);
        self.guests.clone_from(&running.guests);
        self.controller
            .guests
            .clone_from(&running.controller.guests);
        let stays = |table: &str| {
            let mut kept = changes.iter().filter(|change| change.needs_restart);
            kept.any(|change| change.path.starts_with(table))
        };
        if stays("tls.") {
            self.files = running.files.clone();
        }
        match (&mut self.api, &running.api) {
            (Some(api), Some(running)) if stays("api.") => {
                api.audit.clone_from(&running.audit);
                api.tls.clone_from(&running.tls);
                api.tokens.clone_from(&running.tokens);
            }
            (Some(_), Some(_)) => {}
            (api, running) => api.clone_from(running),
        }
        let timeouts = &self.controller.timeouts;
        let fits = [
            fits_mode(self.controller.mode, timeouts),
            fits_fabric(&self.controller, timeouts),
            fits_off(self),
            fits_bfd(&self.ovsdb, self.bfd_interval),
            fits_vlans(self, self),
        ];
        let failures = fits.into_iter().filter_map(Result::err);
        failures.flat_map(|failure| lines(&failure, &[])).collect()
    }

    /// The files that settings name.
    fn files_named(&self) -> Vec<Named> {
        let tls = &self.files;
        let api = self.api.as_ref();
        let api_tls = api.and_then(|api| api.tls.as_ref());
        let cluster_ca = self.cluster.as_ref().and_then(|cluster| cluster.ca.clone());
        let all = [
            ("topology", self.topology.clone()),
            ("policy", Some(PathBuf::from(&self.policy))),
            ("tls.private_key", tls.private_key.clone()),
            ("tls.certificate", tls.certificate.clone()),
            ("tls.ca", tls.ca.clone()),
            ("tls.crl", tls.crl.clone()),
            ("api.tokens", api.and_then(|api| api.tokens.clone())),
            (
                "api.tls.private_key",
                api_tls.map(|tls| tls.private_key.clone()),
            ),
            (
                "api.tls.certificate",
                api_tls.map(|tls| tls.certificate.clone()),
            ),
            ("api.tls.ca", api_tls.and_then(|tls| tls.ca.clone())),
            ("api.tls.crl", api_tls.and_then(|tls| tls.crl.clone())),
            ("cluster.ca", cluster_ca),
        ];
        let named = |(setting, file): (_, Option<PathBuf>)| {
            Some(Named {
                setting,
                file: file?,
            })
        };
        all.into_iter().filter_map(named).collect()
    }

    /// The mistakes in the files of the API.
    fn check_api(&self) -> Vec<Failure> {
        let Some(api) = &self.api else {
            return Vec::new();
        };
        let tokens = api.tokens.as_deref().map(Tokens::load);
        let tokens = tokens.and_then(Result::err);
        let tls = api
            .tls
            .as_ref()
            .map(|files| ServerSecurity::load(files, ALPN));
        let tls = tls.and_then(Result::err).map(Failure::from);
        tokens.into_iter().chain(tls).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// The options of a process with this file.
    fn options(dir: &Path, text: &str) -> Args {
        let file = dir.join("run.toml");
        std::fs::write(&file, text).unwrap();
        let words = ["run", "--config", file.to_str().unwrap()];
        let line = <Line as clap::Parser>::try_parse_from(words).unwrap();
        line.args
    }

    fn mistakes(dir: &Path, text: &str) -> Vec<String> {
        let found = check_start(&options(dir, text)).err().unwrap_or_default();
        let prefix = format!("{}/", dir.display());
        found.iter().map(|line| line.replace(&prefix, "")).collect()
    }

    #[test]
    fn a_reload_is_not_refused_for_what_only_a_start_needs() {
        let dir = tempfile::tempdir().unwrap();
        let text = "listen = \"ptcp:6653:no-such-host.invalid\"\nstatus = \"none/status.sock\"\n";
        assert_eq!(mistakes(dir.path(), text).len(), 2);
        assert!(check(&options(dir.path(), text)).is_ok());
    }

    #[test]
    fn every_mistake_of_every_file_is_found_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::write(dir.join("net.toml"), "links = [\"1:1\"]\nhost = []\n").unwrap();
        std::fs::write(dir.join("map"), "Generation: 1\nRule #1: color=red\n").unwrap();
        std::fs::write(dir.join("tokens"), "ops\n").unwrap();
        let text = "lisen = \"ptcp:\"\ntopology = \"net.toml\"\npolicy = \"map\"\n\
             [api]\ntokens = \"tokens\"\n\
             [tls]\nprivate_key = \"k.pem\"\ncertificate = \"c.pem\"\nca = \"ca.pem\"\n\
             [controller]\nlldp_interval = 100\n";
        let found = mistakes(dir, text);
        for expected in [
            "run.toml:1:1: 'lisen' is not known here",
            "did you mean listen?",
            "run.toml:11:1: 'lldp_interval' is not known in [controller]",
            "did you mean lldp_interval_ms?",
            "net.toml:1:10: links: '1:1' is not two ports",
            "net.toml:2:1: 'host' is not known here",
            "map",
            "tokens",
            "run.toml:7:15: tls.private_key: k.pem: No such file",
            "run.toml:9:6: tls.ca: ca.pem: No such file",
        ] {
            assert!(
                found.iter().any(|line| line.contains(expected)),
                "{expected}: {found:#?}"
            );
        }
    }

    #[test]
    fn what_fits_nothing_else_is_a_mistake_too_and_all_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let text = "bfd_interval_ms = 100\nlinks = \"enforce\"\napi = \"0.0.0.0:8080\"\n";
        let found = mistakes(dir.path(), text);
        for expected in ["--ovsdb METHOD", "needs a topology", "needs users"] {
            assert!(
                found.iter().any(|line| line.contains(expected)),
                "{found:#?}"
            );
        }
        assert_eq!(found.len(), 3);
        let text = "json = true\n[timeouts]\npolicy = \"fixed\"\n[[timeouts.class]]\n\
                    name = \"a\"\nsrc = \"10.0.0.1\"\n[[vlan]]\nid = 5\n";
        let found = mistakes(dir.path(), text);
        assert!(
            found[0].contains("run.toml:4:12: [[timeouts.class]] names"),
            "{found:#?}"
        );
        let text = "mode = \"proactive\"\nforwarding = \"fabric\"\n";
        let found = mistakes(dir.path(), text);
        assert!(
            found[0].contains("run.toml:2:1: forwarding = \"fabric\" needs"),
            "{found:#?}"
        );
        assert_eq!(mistakes(dir.path(), "json = true\n"), [""; 0]);
    }

    /// Wrong texts, each with the beginnings of all its mistakes.
    const WRONG: &[(&str, &[&str])] = &[
        // Sockets.
        (
            "listen = [\"ptcp:6653\", \"pssl:6653:127.0.0.1\", \"ptcp:6653\"]\n[tls]\nca = 1\n",
            &[
                "run.toml:1:24: listen: pssl:6653:127.0.0.1 is taken by listen, which is \
                 ptcp:6653:0.0.0.0; choose another port for one of them",
                "run.toml:1:47: listen: ptcp:6653:0.0.0.0 is there already",
                "run.toml:3:6: ca is 1",
            ],
        ),
        (
            "api = \"6653\"\n",
            &["run.toml:1:7: api.listen: 127.0.0.1:6653 is taken by listen, which is ptcp:6653:"],
        ),
        (
            "ovsdb = \"ptcp:8080\"\n[api]\nlisten = [\"127.0.0.1:8080\", \"[::]:6653\"]\n\
             tokens = \"tokens\"\n",
            &[
                "run.toml:3:11: api.listen: 127.0.0.1:8080 is taken by ovsdb, which is ptcp:8080:",
                "run.toml:3:29: api.listen: [::]:6653 is taken by listen, which is",
            ],
        ),
        (
            "listen = \"ptcp:6655\"\n[cluster]\netcd = \"http://127.0.0.1:2379\"\nname = \"a\"\n\
             listen = \"ptcp:6655:127.0.0.1\"\nstate = \"state\"\n",
            &["run.toml:5:10: cluster.listen: ptcp:6655:127.0.0.1 is taken by listen"],
        ),
        // Ports of different addresses, of two protocols, and any free port.
        (
            "listen = [\"ptcp:6653:127.0.0.1\", \"ptcp:6653:[::1]\", \"ptcp:0\", \"ptcp:0\"]\n\
             api = [\"127.0.0.2:6653\", \"127.0.0.1:0\", \"127.0.0.1:0\"]\n",
            &[],
        ),
        (
            "listen = [\"ptcp:99999\"]\napi = \"6653\"\n",
            &["run.toml:1:11: listen: 'ptcp:99999'"],
        ),
        (
            "listen = [\"ptcp:6653:no-such-host.invalid\", \"ptcp:6654:[fe80::1%nodevice]\"]\n\
             connect = \"tcp:no-such-host.invalid\"\n",
            &[
                "run.toml:1:11: listen: ptcp:6653:no-such-host.invalid: no-such-host.invalid has \
                 no address here",
                "run.toml:1:45: listen: ptcp:6654:[fe80::1%nodevice]: [fe80::1%nodevice] has no",
            ],
        ),
        // Files and folders.
        (
            "status = \"none/status.sock\"\nstate = \"plain\"\n[api]\nlisten = \"unix:.\"\n\
             audit = \"none/audit\"\n",
            &[
                "run.toml:1:10: status: none/status.sock: none is not there; make that folder",
                "run.toml:2:9: state: plain: plain is a file; name a folder",
                "run.toml:4:10: api.listen: . is a folder",
                "run.toml:5:9: api.audit: none/audit: none is not there",
            ],
        ),
        (
            "listen = [\"ptcp:6653:[fe80::1%1]\", \"ptcp:6653:[fe80::1%2]\"]\n\
             status = \"/run/no-such-service/run.sock\"\n",
            &[],
        ),
        (
            "status = \"one.sock\"\napi = \"unix:one.sock\"\nstate = \"is/made\"\n",
            &["run.toml:2:7: api.listen: unix:one.sock is taken by status, which is one.sock"],
        ),
        (
            "status = \"plain\"\n",
            &["run.toml:1:10: status: plain is there and is no socket"],
        ),
        (
            "topology = \"no.toml\"\npolicy = \"no.policy\"\n[tls]\nprivate_key = \"plain\"\n\
             certificate = \"plain\"\nca = \"no.pem\"\ncrl = \"no.crl\"\n\
             [api]\ntokens = \"no.tokens\"\n",
            &[
                "run.toml:1:12: topology: no.toml: No such file",
                "run.toml:2:10: policy: no.policy: No such file",
                "run.toml:4:15: tls.private_key, tls.certificate: plain: no private key in it",
                "run.toml:4:15: tls.private_key, tls.certificate: plain: no certificate in it",
                "run.toml:6:6: tls.ca: no.pem: No such file",
                "run.toml:7:7: tls.crl: no.crl: No such file",
                "run.toml:9:10: api.tokens: no.tokens: No such file",
            ],
        ),
        (
            "listen = [\"ptcp:6654\", \"pssl:\"]\n",
            &["run.toml:1:24: listen: pssl:6653:0.0.0.0 needs certificates on both sides"],
        ),
        // A wrong value hides only the mistakes that follow from it.
        (
            "threads = 0\n[[guest]]\nname = \"a\"\ntarget = \"tcp:h:1\"\npriority = \"0-999\"\n\
             table = 10\n[[guest]]\ntarget = \"tcp:h:1\"\nname = \"a\"\ntable = 15\n\
             priority = \"500-1500\"\n",
            &[
                "run.toml:1:11: threads is 0",
                "run.toml:9:8: guest 'a': there are two guests 'a'",
                "run.toml:10:9: guest 'a': table: 'a' has tables 10 to 19",
                "run.toml:11:12: guest 'a': priority: 'a' has 0 to 999",
            ],
        ),
        (
            "[[guest]]\nname = 7\ntarget = \"tcp:h:1\"\npriority = \"0-999\"\n[[guest]]\n\
             name = \"a\"\ntarget = 1\npriority = \"500-1500\"\n",
            &[
                "run.toml:2:8: name is 7",
                "run.toml:7:10: target is 1",
                "run.toml:8:12: guest 'a': priority: 'in line 1' has 0 to 999",
            ],
        ),
        // One section in place of several, and several in place of one.
        (
            "[bond]\nname = \"a b\"\nports = [\"1:2\", 7]\n[[fabric]]\ntag = 1\nlabel = 2\n\
             [controller]\npath_rate_max = 0\n",
            &[
                "run.toml:1:1: bond is [bond]; it must be sections such as [[bond]]",
                "run.toml:2:8: name: 'a b'",
                "run.toml:3:17: ports is 7",
                "run.toml:4:1: fabric is [[fabric]]; it must be a section such as [fabric]",
                "run.toml:5:7: tag is 1",
                "run.toml:6:1: 'label' is not known",
                "run.toml:8:17: path_rate_max is 0",
            ],
        ),
        (
            "mode = \"proactive\"\nforwarding = \"fabric\"\nlisen = \"x\"\n",
            &[
                "run.toml:2:1: forwarding = \"fabric\" needs mode",
                "run.toml:3:1: 'lisen' is not known",
            ],
        ),
        (
            "ovsdb = [\"ptcp:\"]\nstate = \"state\"\n[cluster]\nname = \"a\"\n",
            &[
                "run.toml:3:2: [cluster] needs etcd",
                "run.toml:3:2: [cluster] needs listen",
                "run.toml:3:2: [cluster] needs state",
                "run.toml:3:2: [cluster] does not go with ovsdb",
                "run.toml:3:2: [cluster] does not go with state",
            ],
        ),
        // A mistaken setting is not reported as missing.
        (
            "ovsd = \"ptcp:\"\nbfd_interval_ms = 100\nvlans = \"ovsdb\"\n",
            &["run.toml:1:1: 'ovsd' is not known"],
        ),
        (
            "topology = 7\nlinks = \"enforce\"\n",
            &["run.toml:1:12: topology is 7"],
        ),
        (
            "forwarding = \"pats\"\nmode = \"hybrid\"\n[multicast]\n",
            &["run.toml:1:14: forwarding: 'pats'"],
        ),
        (
            "listen = \"pssl:\"\n[tls]\nprivatekey = \"plain\"\ncertificate = \"plain\"\n",
            &["run.toml:3:1: 'privatekey' is not known"],
        ),
        (
            "[api]\nlisten = \"0.0.0.0:8080\"\ntoken = \"tokens\"\n",
            &["run.toml:3:1: 'token' is not known"],
        ),
        (
            "[[guest]]\nnam = \"a\"\ntarget = \"tcp:h:1\"\npriority = \"0-9\"\ntables = 3\n\
             table = 1\n\
             [[guest]]\ntarget = \"tcp:h:1\"\n",
            &[
                "run.toml:2:1: 'nam' is not known",
                "run.toml:6:9: table is 1",
                "run.toml:7:1: name is missing",
                "run.toml:7:1: priority is missing",
            ],
        ),
        // Contradictions have a line each.
        (
            "vlans = \"ovsdb\"\nmode = \"hybrid\"\n[[timeouts.class]]\nname = \"a\"\n\
             src = \"10.0.0.1\"\n",
            &[
                "run.toml:1:1: [[vlan]], [[port]] and vlans = \"ovsdb\" need forwarding",
                "run.toml:1:1: vlans = \"ovsdb\" needs the switches' databases",
                "run.toml:3:12: [[timeouts.class]] names hosts without their VLAN",
            ],
        ),
        // A mistake in another file has its place there. A mistake with only a line gets a column.
        (
            "topology = \"net.toml\"\nlinks = \"enforced\"\n[[vlan]]\nid = 10\n[[port]]\n\
             \x20 at = \"1:1\"\n\
             access = 10\n",
            &[
                "run.toml:2:9: links: 'enforced'",
                "run.toml:6:3: 0000000000000001:1 is an end",
            ],
        ),
        (
            "topology = \"wrong.toml\"\n",
            &["wrong.toml:1:10: links: '1:1' is not two ports"],
        ),
        (
            "[controller]\nlisten = \"ptcp:\"\nPath_Rate_Max = 1\n",
            &[
                "run.toml:2:1: 'listen' is not known in [controller]; known: idle_timeout_s",
                "run.toml:3:1: 'Path_Rate_Max' is not known",
            ],
        ),
        (
            "[[port]]\nat = \"1:2\"\nacl = \"a\"\n",
            &["run.toml:3:1: 'acl' is not known"],
        ),
        // The file states a timeout in two ways.
        (
            "[controller]\nidle_timeout_s = 30\n[timeouts]\nidle_max_s = 70000\n",
            &[
                "run.toml:2:1: idle_timeout_s means policy fixed, and [timeouts] has idle_max_s",
                "run.toml:4:14: idle_max_s is 70000",
            ],
        ),
        (
            "[controller]\nidle_timeout_s = 90\nhard_timeout_s = 30\n[timeouts]\n\
             first_packets = \"hold\"\n",
            &["run.toml:2:18: idle_timeout_s is 90; it must not be above hard_timeout_s"],
        ),
        (
            "[controller]\nhard_timeout_s = 30\n[timeouts]\nfirst_packets = \"hold\"\n",
            &[],
        ),
        (
            "[timeouts]\npolicy = \"leese\"\nidle_max_s = -1\n",
            &[
                "run.toml:2:10: policy: 'leese'",
                "run.toml:3:14: idle_max_s is -1",
            ],
        ),
        // For a text that is not TOML, only the certain mistakes are reported.
        (
            "lisen = \"x\"\nmode = hybrid\nthreads = 0\n[[port]]\nat = \"1:2\"\naccess = 10\n\
             [[vlan]\nid = 10\n",
            &[
                "run.toml:1:1: 'lisen' is not known",
                "run.toml:2:8: 'hybrid' is no value: write a number in digits",
                "run.toml:7:8: this is not TOML: unclosed array table",
            ],
        ),
        (
            "listen = [\n  \"ptcp:6653\",\n  7,\nthreads = 4\n[controller]\npath_rate_max = 0\n",
            &["run.toml:1:10: what begins here has no end"],
        ),
        (
            "status = \"none/x\"\n[tls]\nca = \"none\"\n[session]\nguard = true\n[tls]\nca = 1\n",
            &[
                "run.toml:6:2: [tls] is there already",
                "run.toml:7:1: ca is there already in this section",
            ],
        ),
        (
            "threads = 2\nthreads = 3\n[controller]\npath_rate_max = 0\n",
            &[
                "run.toml:2:1: threads is there already in this section",
                "run.toml:4:17: path_rate_max is 0",
            ],
        ),
    ];

    #[test]
    fn a_key_in_the_wrong_section_is_told_where_it_belongs() {
        let dir = tempfile::tempdir().unwrap();
        for (text, section) in [
            ("echo_interval_ms = 7\n", "; it belongs into [session]"),
            (
                "[tls]\npath_rate_max = 7\n",
                "; it belongs into [controller]",
            ),
            (
                "[session]\ngateway_mac = \"x\"\n",
                "; it belongs into [[vlan]]",
            ),
            (
                "[session]\nedge_ports = []\n",
                "; write edge_ports above the first section",
            ),
            // Several sections have this key.
            ("[session]\nname = \"a\"\n", ", bundles"),
        ] {
            let found = mistakes(dir.path(), text);
            assert!(
                found.len() == 1 && found[0].ends_with(section),
                "{text}{found:#?}"
            );
        }
    }

    #[test]
    fn every_mistake_has_its_place_and_nothing_follows_from_it() {
        let mut wrong = Vec::new();
        for (text, expected) in WRONG {
            let dir = tempfile::tempdir().unwrap();
            let dir = dir.path();
            std::fs::write(dir.join("plain"), "plain\n").unwrap();
            std::fs::write(dir.join("net.toml"), "links = [\"1:1 2:1\"]\n").unwrap();
            std::fs::write(dir.join("wrong.toml"), "links = [\"1:1\"]\n").unwrap();
            std::fs::write(dir.join("tokens"), "").unwrap();
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(dir.join("tokens"), private).unwrap();
            let found = mistakes(dir, text);
            let found = found.iter();
            let found = found.map(|line| line.replace(&*dir.to_string_lossy(), "."));
            let found: Vec<String> = found.collect();
            let mut pairs = found.iter().zip(*expected);
            let is_right = pairs.all(|(found, expected)| found.starts_with(expected));
            if found.len() != expected.len() || !is_right {
                wrong.push(format!("{text}{found:#?}\nis not\n{expected:#?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}
