//! The values in effect of all settings, each with its source: `auster config show` prints them,
//! and a reload compares them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use toml::de::{DeTable, DeValue};

use super::Forwarding;
use super::Settings;
use super::table::{At, FROM_THE_START, SETTINGS, Setting};
use crate::Args;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Default,
    /// The default that follows from another setting.
    Follows(&'static str),
    /// The line of the file.
    File(PathBuf, usize),
    Option(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Follows(from) => write!(f, "follows from {from}"),
            Source::File(file, line) => write!(f, "{}:{line}", file.display()),
            Source::Option(option) => f.write_str(option),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    pub setting: &'static Setting,
    /// Null for a setting without a value.
    pub value: Json,
    pub source: Source,
    /// The digest of the file that the value names, if there is one.
    digest: Option<[u8; 32]>,
}

impl Row {
    pub fn is_default(&self) -> bool {
        matches!(self.source, Source::Default | Source::Follows(_))
    }

    fn is_same(&self, other: &Row) -> bool {
        self.value == other.value && self.digest == other.digest
    }
}

/// A value for each of [`SETTINGS`], in the order of that table.
#[derive(Clone, Debug)]
pub struct Effective {
    pub rows: Vec<Row>,
}

/// A setting that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub path: &'static str,
    /// The effect on what exists already, or the reason for a restart.
    pub words: &'static str,
    pub needs_restart: bool,
}

/// The settings whose value may be one text in place of a list.
const LISTS: [&str; 4] = ["listen", "connect", "allow_dpid", "api.listen"];

impl Effective {
    /// The values of `settings`, which are complete and come from these options and from `text`,
    /// the text of their file.
    pub fn of(settings: &Settings, args: &Args, text: &str) -> Effective {
        let (stated, _) = DeTable::parse_recoverable(text);
        let values: Json = toml::from_str(text).unwrap_or_default();
        let file = settings.config.clone().unwrap_or_default();
        let newlines = text.bytes().enumerate();
        let newlines: Vec<usize> = newlines
            .filter_map(|(at, byte)| (byte == b'\n').then_some(at))
            .collect();
        let row = |setting: &'static Setting| {
            let path = setting.path;
            let (value, source) = match given_by_option(path, args, settings) {
                Some(value) => (value, Source::Option(setting.option)),
                None => match find(stated.get_ref(), &values, path) {
                    Some((at, value)) => {
                        let line = 1 + newlines.partition_point(|newline| *newline < at);
                        (value, Source::File(file.clone(), line))
                    }
                    None if path == "forwarding" && settings.has_mode => {
                        (default(setting, settings), Source::Follows("mode"))
                    }
                    None => (default(setting, settings), Source::Default),
                },
            };
            Row {
                setting,
                value: as_list(setting, value),
                source,
                digest: file_of(path, settings).and_then(|file| digest(&file)),
            }
        };
        Effective {
            rows: SETTINGS.iter().map(row).collect(),
        }
    }

    /// The settings that differ in `other`, which has the later values.
    pub fn changes(&self, other: &Effective) -> Vec<Change> {
        let pairs = self.rows.iter().zip(&other.rows);
        // A default that follows from another setting is no change of its own, unless a reload
        // cannot apply it.
        let follows = |ours: &Row, theirs: &Row| {
            // The mode follows from forwarding, which is reported as changed.
            let is_applied =
                matches!(ours.setting.at, At::Reload(_)) || ours.setting.path == "mode";
            is_applied && ours.is_default() && theirs.is_default()
        };
        let different =
            pairs.filter(|(ours, theirs)| !ours.is_same(theirs) && !follows(ours, theirs));
        let change = |(ours, theirs): (&Row, &Row)| {
            let path = ours.setting.path;
            let comes_or_goes = ours.value.is_null() != theirs.value.is_null();
            let from_the_start = FROM_THE_START
                .iter()
                .find(|(paths, _)| paths.contains(&path));
            let (words, needs_restart) = match (ours.setting.at, from_the_start) {
                (_, Some((_, why))) if comes_or_goes => (*why, true),
                (At::Restart(why), _) => (why, true),
                (At::Reload(words), _) => (words, false),
            };
            Change {
                path,
                words,
                needs_restart,
            }
        };
        different.map(change).collect()
    }

    /// Takes over the values of `other`, except for the settings in `kept`.
    pub fn follow(&mut self, other: &Effective, kept: &[Change]) {
        for (ours, theirs) in self.rows.iter_mut().zip(&other.rows) {
            if kept.iter().all(|change| change.path != ours.setting.path) {
                *ours = theirs.clone();
            }
        }
    }

    pub fn document(&self) -> Json {
        let row = |row: &Row| {
            json!({
                "setting": row.setting.path,
                "value": row.value,
                "source": row.source.to_string(),
            })
        };
        json!({"settings": self.rows.iter().map(row).collect::<Vec<_>>()})
    }
}

/// The value of a key in the file, and its place. `api` may be one address in place of a table.
fn find(root: &DeTable<'_>, values: &Json, path: &str) -> Option<(usize, Json)> {
    let mut table = root;
    let mut value = values;
    let mut keys = path.split('.').peekable();
    while let Some(key) = keys.next() {
        let (name, found) = table.get_key_value(key)?;
        value = value.get(key)?;
        if keys.peek().is_none() {
            return Some((name.span().start, value.clone()));
        }
        match found.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ if path == "api.listen" => return Some((name.span().start, value.clone())),
            _ => return None,
        }
    }
    None
}

fn as_list(setting: &Setting, value: Json) -> Json {
    let is_list = setting.default == "[]" || LISTS.contains(&setting.path);
    match value {
        Json::String(text) if is_list => json!([text]),
        value => value,
    }
}

fn texts<T: ToString>(all: impl IntoIterator<Item = T>) -> Json {
    all.into_iter().map(|one| one.to_string()).collect()
}

fn shown(path: Option<&PathBuf>) -> Option<Json> {
    path.map(|path| json!(path.display().to_string()))
}

/// The value that an option gives.
fn given_by_option(path: &str, args: &Args, settings: &Settings) -> Option<Json> {
    let ryu = args.ofp_tcp_listen_port.or(args.ofp_ssl_listen_port);
    let has_methods = !(args.methods.is_empty() && args.listen.is_empty());
    let has_methods = has_methods || !args.connect.is_empty() || ryu.is_some();
    let name = |mode: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
        mode().map(|value| json!(value.get_name()))
    };
    match path {
        "listen" => has_methods.then(|| texts(&settings.listen)),
        "connect" => has_methods.then(|| texts(&settings.connect)),
        "mode" => name(&|| clap::ValueEnum::to_possible_value(&args.mode?)),
        "forwarding" => name(&|| clap::ValueEnum::to_possible_value(&args.forwarding?)),
        "session.versions" => {
            (!args.versions.is_empty()).then(|| texts(&settings.driver.session.versions))
        }
        "allow_dpid" => (!args.allow_dpid.is_empty()).then(|| texts(&args.allow_dpid)),
        "guest" => (!args.guest.is_empty()).then(|| texts(&args.guest)),
        "ovsdb" => (!args.ovsdb.is_empty()).then(|| texts(&args.ovsdb)),
        "state" => shown(args.state.as_ref()),
        "status" => shown(args.status.as_ref()),
        "api.listen" => (!args.api.is_empty()).then(|| texts(&args.api)),
        "api_hosts" => (!args.api_host.is_empty()).then(|| texts(&args.api_host)),
        "json" => args.json.then(|| json!(true)),
        "threads" => args.threads.map(|threads| json!(threads)),
        "policy" => args.policy.as_ref().map(|policy| json!(policy)),
        "topology" => shown(args.topology.as_ref()),
        "tls.private_key" => shown(args.private_key.as_ref()),
        "tls.certificate" => shown(args.certificate.as_ref()),
        "tls.ca" => shown(args.ca_cert.as_ref()),
        "tls.crl" => shown(args.crl.as_ref()),
        _ => None,
    }
}

/// The default, which may follow from other settings.
fn default(setting: &Setting, settings: &Settings) -> Json {
    let is_of_lease = setting.path.starts_with("timeouts.");
    let lifetime = settings.controller.timeouts.default;
    match setting.path {
        "listen" => texts(&settings.listen),
        "api.listen" => settings
            .api
            .as_ref()
            .map_or(Json::Null, |api| texts(&api.listen)),
        "forwarding" => {
            let value = clap::ValueEnum::to_possible_value(&settings.forwarding());
            value.map_or(Json::Null, |value| json!(value.get_name()))
        }
        // The mode belongs to paths, and setting it chooses paths.
        "mode" if settings.forwarding() != Forwarding::Paths => Json::Null,
        "threads" => json!(settings.threads),
        // The table's presence alone turns it on.
        "multicast.snooping" => json!(settings.controller.multicast.is_some()),
        "session.guard" => json!(settings.driver.session.is_guarded),
        "timeouts.policy" => json!(lifetime.name()),
        _ if is_of_lease
            && lifetime.name() != "lease"
            && setting.path != "timeouts.load"
            && setting.path != "timeouts.first_packets" =>
        {
            Json::Null
        }
        _ => of_toml(setting.default),
    }
}

/// A value written as TOML.
pub fn of_toml(text: &str) -> Json {
    let document = toml::from_str::<BTreeMap<String, Json>>(&format!("value = {text}"));
    let value = document
        .ok()
        .and_then(|mut document| document.remove("value"));
    value.unwrap_or_default()
}

/// The file that a setting names.
fn file_of(path: &str, settings: &Settings) -> Option<PathBuf> {
    let tls = &settings.files;
    let api = settings.api.as_ref();
    let api_tls = api.and_then(|api| api.tls.as_ref());
    match path {
        "policy" => match &settings.policy[..] {
            "auster" | "paper" | "none" => None,
            file => Some(file.into()),
        },
        "topology" => settings.topology.clone(),
        "tls.private_key" => tls.private_key.clone(),
        "tls.certificate" => tls.certificate.clone(),
        "tls.ca" => tls.ca.clone(),
        "tls.crl" => tls.crl.clone(),
        "api.tokens" => api?.tokens.clone(),
        "api.tls.private_key" => Some(api_tls?.private_key.clone()),
        "api.tls.certificate" => Some(api_tls?.certificate.clone()),
        "api.tls.ca" => api_tls?.ca.clone(),
        "api.tls.crl" => api_tls?.crl.clone(),
        _ => None,
    }
}

fn digest(file: &Path) -> Option<[u8; 32]> {
    Some(Sha256::digest(std::fs::read(file).ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        let words = ["run"].iter().chain(words);
        <Line as clap::Parser>::try_parse_from(words).unwrap().args
    }

    fn effective(words: &[&str], text: &str) -> Effective {
        let args = args(words);
        let mut settings = Settings::parse(text, Path::new("net.toml")).unwrap();
        settings.config = Some("net.toml".into());
        settings.apply(args.clone()).unwrap();
        Effective::of(&settings.complete().unwrap(), &args, text)
    }

    fn shown(effective: &Effective, path: &str) -> (String, String) {
        let row = effective.rows.iter().find(|row| row.setting.path == path);
        let row = row.unwrap();
        (row.value.to_string(), row.source.to_string())
    }

    #[test]
    fn each_value_has_its_source() {
        let text = "status = \"s.sock\"\njson = true\napi = \"8081\"\n\
                    [controller]\npath_rate_max = 7\n";
        let words = ["ptcp:6633", "--api", "8082", "--versions", "1.5,1.3"];
        let effective = effective(&words, text);
        for (path, value, source) in [
            ("listen", "[\"ptcp:6633:0.0.0.0\"]", "--listen"),
            ("status", "\"s.sock\"", "net.toml:1"),
            ("json", "true", "net.toml:2"),
            ("api.listen", "[\"127.0.0.1:8082\"]", "--api"),
            ("session.versions", "[\"1.3\",\"1.5\"]", "--versions"),
            ("controller.path_rate_max", "7", "net.toml:5"),
            ("controller.lldp_interval_ms", "1000", "default"),
            ("forwarding", "\"fabric\"", "default"),
            ("mode", "null", "default"),
            ("connect", "[]", "--listen"),
            ("topology", "null", "default"),
        ] {
            let shown = shown(&effective, path);
            let expected = (value.to_owned(), source.to_owned());
            let expected = match path {
                "connect" => (value.to_owned(), "--connect".to_owned()),
                _ => expected,
            };
            assert_eq!(shown, expected, "{path}");
        }
    }

    #[test]
    fn a_mode_chooses_paths_and_is_named_as_the_reason() {
        let effective = effective(&[], "mode = \"reactive\"\n");
        let expected = ("\"paths\"".to_owned(), "follows from mode".to_owned());
        assert_eq!(shown(&effective, "forwarding"), expected);
        assert_eq!(shown(&effective, "mode").0, "\"reactive\"");
    }

    #[test]
    fn what_differs_is_named_and_what_only_looks_different_is_not() {
        let before = effective(&[], "allow_dpid = \"1\"\n[fabric]\ntag = 0x8100\n");
        let same = "# new\ndrain = []\nallow_dpid = [\"1\"]\n";
        assert_eq!(before.changes(&effective(&[], same)), []);
        let other = effective(
            &[],
            "threads = 7\nallow_dpid = \"2\"\n[fabric]\ntag = 0x88a8\n",
        );
        let changes = before.changes(&other);
        let names: Vec<_> = changes.iter().map(|c| (c.path, c.needs_restart)).collect();
        let expected = [
            ("allow_dpid", false),
            ("threads", true),
            ("fabric.tag", true),
        ];
        assert_eq!(names, expected);
        let mut now = before.clone();
        let kept: Vec<Change> = changes.into_iter().filter(|c| c.needs_restart).collect();
        now.follow(&other, &kept);
        assert_eq!(now.changes(&other), kept);
    }

    #[test]
    fn the_contents_of_a_file_that_is_named_count() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("net.toml");
        let topology = dir.path().join("t.toml");
        std::fs::write(&topology, "switches = [\"1\"]\n").unwrap();
        let text = "topology = \"t.toml\"\n";
        let effective = || {
            let settings = Settings::parse(text, &file).unwrap().complete().unwrap();
            Effective::of(&settings, &args(&[]), text)
        };
        let before = effective();
        assert_eq!(before.changes(&effective()), []);
        std::fs::write(&topology, "switches = [\"2\"]\n").unwrap();
        assert_eq!(before.changes(&effective())[0].path, "topology");
    }

    #[test]
    fn certificates_come_with_a_restart_and_change_without() {
        let all = "[tls]\nprivate_key = \"k\"\ncertificate = \"c\"\nca = \"ca\"\n";
        let (none, some) = (effective(&[], ""), effective(&[], all));
        let of_tls = |change: &&Change| change.path.starts_with("tls.");
        let come = none.changes(&some);
        assert!(
            come.iter()
                .filter(of_tls)
                .all(|change| change.needs_restart)
        );
        assert_eq!(come.iter().filter(of_tls).count(), 3);
        let others = effective(&[], &all.replace("\"c\"", "\"d\""));
        assert!(
            some.changes(&others)
                .iter()
                .all(|change| !change.needs_restart)
        );
    }
}
