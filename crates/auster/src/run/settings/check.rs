//! Checks a configuration whole, with every file that it names, and starts nothing.

use std::ops::Range;
use std::path::{Path, PathBuf};

use net::tls::{Security, ServerSecurity};

use super::super::Args;
use super::super::api::{ALPN, tokens::Tokens};
use super::super::fields::place_of;
use super::super::topology;
use super::effective::{Change, Effective};
use super::{Settings, fits_bfd, fits_fabric, fits_mode, fits_off, fits_vlans};
use crate::policy;
use cli::failure::Failure;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A configuration without a mistake.
pub struct Checked {
    pub settings: Settings,
    pub effective: Effective,
    /// With the certificates that the configuration names.
    pub security: Security,
}

/// Reads options, file and all files that they name. Each mistake is a line.
pub fn check(args: &Args) -> Result<Checked, Vec<String>> {
    let text = match &args.config {
        None => String::new(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| vec![Failure::file(path, error).message().to_owned()])?,
    };
    let file = args.config.as_deref().unwrap_or(Path::new(""));
    let (mut settings, mut mistakes) = Settings::read_text(&text, file);
    settings.config.clone_from(&args.config);
    let applied = settings.apply(args.clone());
    let files = settings.files_named();
    let lines = |failure: &Failure| lines(failure, &files);
    let mut note = |failure: Failure| mistakes.extend(lines(&failure));
    applied.unwrap_or_else(&mut note);
    let security = settings.security().map_err(&mut note).ok();
    settings.check_api().into_iter().for_each(&mut note);
    if let Some(cluster) = &settings.cluster {
        let files = settings.credential_files();
        let checked = cluster.security(files).map(drop);
        // A fault of these files is one, whoever uses them.
        if security.is_some() {
            checked.unwrap_or_else(&mut note);
        }
    }
    // What a mistake leaves out would only look wrong where settings must fit to each other.
    let Some(security) = security.filter(|_| mistakes.is_empty()) else {
        mistakes.extend(settings.check_maps().iter().flat_map(lines));
        return Err(mistakes);
    };
    match settings.completed() {
        Ok(settings) => Ok(Checked {
            effective: Effective::of(&settings, args, &text),
            settings,
            security,
        }),
        Err(failures) => {
            let found = failures.iter().flat_map(lines);
            Err(found.map(|line| placed(line, &text, file)).collect())
        }
    }
}

/// A mistake of settings that do not fit to each other, with the place of the first one that it
/// names and `text` has. What an option has set has no place in the file.
pub fn placed(mistake: String, text: &str, file: &Path) -> String {
    let document = DeTable::parse(text).map(Spanned::into_inner);
    let is_placed = mistake.starts_with(&format!("{}:", file.display()));
    let Some(document) = document.ok().filter(|_| !is_placed) else {
        return mistake;
    };
    let names = mistake.split(|c: char| !(c.is_alphanumeric() || "_.".contains(c)));
    match names.filter_map(|name| key_at(&document, name)).next() {
        Some(at) => format!("{}:{}: {mistake}", file.display(), place_of(text, &at)),
        None => mistake,
    }
}

/// Where a document has a setting, named as `table.key`.
fn key_at(table: &DeTable<'_>, name: &str) -> Option<Range<usize>> {
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == first)?;
    if rest.is_empty() {
        return Some(key.span());
    }
    match value.get_ref() {
        DeValue::Table(table) => key_at(table, rest),
        DeValue::Array(all) => {
            let tables = all.iter().filter_map(|one| one.get_ref().as_table());
            tables.filter_map(|table| key_at(table, rest)).next()
        }
        _ => None,
    }
}

/// A failure may have a line for each mistake, or join those of a file.
fn lines(failure: &Failure, files: &[PathBuf]) -> Vec<String> {
    let mut text = failure.message().to_owned();
    for file in files.iter().map(|file| file.display()) {
        text = text.replace(&format!("; {file}:"), &format!("\n{file}:"));
    }
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

impl Settings {
    /// Keeps from `running` what needs a restart by `changes`. Returns what does not fit to it.
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
    fn files_named(&self) -> Vec<PathBuf> {
        let tls = &self.files;
        let tokens = self.api.as_ref().and_then(|api| api.tokens.clone());
        let api_tls = self.api.as_ref().and_then(|api| api.tls.clone());
        let api_tls = api_tls.map(|tls| [Some(tls.private_key), Some(tls.certificate), tls.ca]);
        let all = [
            self.topology.clone(),
            tls.private_key.clone(),
            tls.certificate.clone(),
            tls.ca.clone(),
            tls.crl.clone(),
            tokens,
        ];
        let all = all.into_iter().chain(api_tls.into_iter().flatten());
        all.flatten().collect()
    }

    /// The mistakes in the policy map and the topology.
    fn check_maps(&self) -> Vec<Failure> {
        let policy = policy::load(&self.policy).err();
        let topology = topology::load(self.topology.as_deref()).err();
        policy.into_iter().chain(topology).collect()
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
        let folder = api.audit.as_deref().and_then(Path::parent);
        let folder = folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir());
        let folder = folder.map(|folder| Failure::file(folder, "no folder for the audit is here"));
        [tokens, tls, folder].into_iter().flatten().collect()
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

    fn mistakes(dir: &Path, text: &str) -> Vec<String> {
        let file = dir.join("run.toml");
        std::fs::write(&file, text).unwrap();
        let words = ["run", "--config", file.to_str().unwrap()];
        let line = <Line as clap::Parser>::try_parse_from(words).unwrap();
        let found = check(&line.args).err().unwrap_or_default();
        let prefix = format!("{}/", dir.display());
        found.iter().map(|line| line.replace(&prefix, "")).collect()
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
            "k.pem",
            "ca.pem",
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
        for expected in ["--ovsdb METHOD", "needs a topology", "has no users"] {
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
}
