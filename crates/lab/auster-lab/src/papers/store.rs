//! The stored results: for each measurement of the list, the newest document among the given
//! directories. For measurements without a document, there are the records of the runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::papers::list::{List, Measurement, Which};
use cli::failure::Failure;

/// The file that a run writes beside its results.
pub const RUN_FILE: &str = "run.json";
const RESULT_FILE: &str = "result.json";

/// Stored results by the name of the measurement.
#[derive(Debug, Default)]
pub struct Store {
    found: BTreeMap<String, Stored>,
    pub runs: Vec<RunRecord>,
    /// Documents that were left aside, with the reasons.
    pub doubts: Vec<String>,
}

#[derive(Debug)]
pub struct Stored {
    pub dir: PathBuf,
    pub document: Value,
}

/// The record of a run of `auster papers run`.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunRecord {
    pub which: String,
    pub started_unix_s: u64,
    pub took_s: f64,
    pub measurements: Vec<Ran>,
}

/// One command of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ran {
    pub name: String,
    pub command: String,
    pub took_s: f64,
    pub outcome: Outcome,
    /// The command's last line if it failed; otherwise the reason why it was left out.
    pub said: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// There is a result, whatever its verdict.
    Ran,
    Failed,
    /// There was no time for the command, or it was interrupted.
    LeftOut,
    /// The measurement has no such form.
    NotInThisRun,
}

impl Store {
    pub fn open(list: &List, dirs: &[PathBuf]) -> Result<Store, Failure> {
        let mut store = Store::default();
        for dir in dirs {
            let below = directories(dir)?;
            if let Some(run) = read_run(&dir.join(RUN_FILE))? {
                store.runs.push(run);
            }
            for measurement in &list.measurements {
                for place in places(dir, &below, &measurement.name) {
                    store.consider(measurement, place);
                }
            }
        }
        Ok(store)
    }

    /// Makes the paths relative to `root`, as if the store had been opened from there.
    #[cfg(test)]
    pub fn relative_to(&mut self, root: &Path) {
        for stored in self.found.values_mut() {
            if let Ok(dir) = stored.dir.strip_prefix(root) {
                stored.dir = dir.to_path_buf();
            }
        }
    }

    pub fn get(&self, measurement: &str) -> Option<&Stored> {
        self.found.get(measurement)
    }

    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// The reason why there is no result, if a run has recorded it.
    pub fn why_missing(&self, measurement: &str) -> String {
        let mut all = self.runs.iter().rev().flat_map(|run| &run.measurements);
        let ran = all.find(|ran| ran.name == measurement);
        match ran.map(|ran| (ran.outcome, ran.said.as_deref().unwrap_or(""))) {
            Some((Outcome::Failed, said)) => format!("failed: {said}"),
            Some((Outcome::LeftOut, said)) => format!("left out: {said}"),
            Some((Outcome::NotInThisRun, _)) => "not part of this run".to_owned(),
            _ => "no result".to_owned(),
        }
    }

    fn consider(&mut self, measurement: &Measurement, dir: PathBuf) {
        let path = dir.join(RESULT_FILE);
        let Ok(text) = std::fs::read_to_string(&path) else {
            return;
        };
        let document: Value = match serde_json::from_str(&text) {
            Ok(document) => document,
            Err(problem) => {
                let doubt = format!("{}: left aside: {problem}", path.display());
                return self.doubts.push(doubt);
            }
        };
        if let Err(what) = is_of(measurement, &document) {
            let doubt = format!(
                "{}: left aside: it is no result of '{}', {what}",
                path.display(),
                measurement.name
            );
            return self.doubts.push(doubt);
        }
        let stored = Stored { dir, document };
        let known = self.found.get(&measurement.name);
        // A complete result ranks above an interrupted one; among equals, the newest wins.
        if known.is_none_or(|known| known.rank() < stored.rank()) {
            self.found.insert(measurement.name.clone(), stored);
        }
    }
}

impl Stored {
    fn rank(&self) -> (bool, u64) {
        (!self.is_interrupted(), self.started_unix_s())
    }

    pub fn is_interrupted(&self) -> bool {
        self.document["interrupted"] == true
    }

    pub fn started_unix_s(&self) -> u64 {
        self.document["started_unix_s"].as_u64().unwrap_or(0)
    }

    /// Returns the command that made the result, without the program's path.
    pub fn command(&self) -> String {
        let words = self.document["command"].as_array();
        let words: Vec<&str> = words
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        match words.split_first() {
            Some((_, rest)) => format!("auster {}", rest.join(" ")),
            None => String::new(),
        }
    }

    /// Whether the quick form made the result.
    pub fn is_quick(&self) -> bool {
        self.command().split(' ').any(|word| word == "--quick")
    }

    pub fn machine(&self) -> String {
        let of = |key: &str| {
            let word = &self.document["machine"][key];
            word.as_str()
                .map_or_else(|| word.to_string(), str::to_owned)
        };
        let open_vswitch = of("open_vswitch");
        let open_vswitch = open_vswitch
            .strip_prefix("ovs-vswitchd (")
            .map_or(open_vswitch.as_str(), |rest| rest)
            .replace(')', "");
        format!(
            "auster {}, {open_vswitch}, {}, {} cores of {}",
            of("auster"),
            of("kernel"),
            of("cpu_count"),
            of("cpu")
        )
    }
}

fn directories(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(dir).map_err(|e| Failure::file(dir, e))?;
    let mut below: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_dir())
        .collect();
    below.sort();
    Ok(below)
}

fn read_run(path: &Path) -> Result<Option<RunRecord>, Failure> {
    let Ok(text) = std::fs::read_to_string(path) else {
        return Ok(None);
    };
    let run = serde_json::from_str(&text).map_err(|e| Failure::file(path, e))?;
    Ok(Some(run))
}

/// Returns the possible places of a measurement's result: `channel/overhead` in
/// `dir/channel/overhead`, in `dir/2026-11-22-channel/overhead`, and in `dir/overhead` if `dir` is
/// the directory of `channel`.
fn places(dir: &Path, below: &[PathBuf], name: &str) -> Vec<PathBuf> {
    let (first, rest) = name.split_once('/').unwrap_or((name, ""));
    let itself = std::iter::once(dir.to_path_buf());
    let dirs = itself.chain(below.iter().cloned());
    let of_it = dirs.filter(|dir| without_date(dir) == Some(first));
    let joined = of_it.map(|dir| match rest {
        "" => dir,
        rest => dir.join(rest),
    });
    joined.collect()
}

/// Returns a directory's name without its date: `channel` of `results/2026-11-22-channel`.
fn without_date(dir: &Path) -> Option<&str> {
    let name = dir.file_name()?.to_str()?;
    let is_date = |text: &str| {
        text.char_indices().all(|(n, c)| match n {
            4 | 7 | 10 => c == '-',
            _ => c.is_ascii_digit(),
        })
    };
    match name.get(..11) {
        Some(date) if is_date(date) => Some(&name[11..]),
        _ => Some(name),
    }
}

/// Checks that a document is a result of this command, as far as the document says.
fn is_of(measurement: &Measurement, document: &Value) -> Result<(), String> {
    let forms = Which::ALL.map(|which| measurement.form(which));
    let Some(form) = forms.into_iter().flatten().next() else {
        return Ok(());
    };
    let words: Vec<&str> = form.words.iter().map(String::as_str).collect();
    let bench = document["bench"].as_str();
    let (key, wanted): (&str, &[&str]) = match words.as_slice() {
        // Before there was a scenario of this name, a command of `auster bench` measured it.
        ["lab", "run", scenario, ..]
            if bench.is_some_and(|bench| scenario.contains(&format!("/{bench}-"))) =>
        {
            return Ok(());
        }
        // Likewise, a separate command measured in virtual time.
        ["sim", "run", ..] if matches!(bench, Some("sim" | "table")) => return Ok(()),
        ["lab" | "sim", "run", scenario, ..] => ("scenario", &[scenario]),
        ["bench", bench, ..] => ("bench", &[bench]),
        ["sim", what, ..] => ("bench", &[what]),
        ["model", ..] => ("bench", &["model"]),
        _ => return Ok(()),
    };
    let found = document[key].as_str().unwrap_or("nothing");
    match wanted.contains(&found) {
        true => Ok(()),
        false => Err(format!("but says {key}: {found}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LIST: &str = r#"
title = "x"
[[measurement]]
name = "channel/overhead"
command = "lab run scenarios/channel-overhead.toml"
minutes = 5
[[measurement]]
name = "table-2"
command = "lab run scenarios/table-2.toml"
minutes = 7
[[paper]]
id = "p"
title = "P"
authors = "A"
source = "J"
"#;

    fn put(root: &Path, place: &str, document: &Value) {
        let dir = root.join(place);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(RESULT_FILE), document.to_string()).unwrap();
    }

    fn channel(started: u64, interrupted: bool) -> Value {
        json!({ "bench": "channel", "started_unix_s": started, "interrupted": interrupted })
    }

    fn started(store: &Store, name: &str) -> Option<u64> {
        store.get(name).map(Stored::started_unix_s)
    }

    #[test]
    fn the_newest_whole_result_is_taken_wherever_it_is() {
        let list = List::parse(LIST, "x").unwrap();
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(root, "a/2026-11-21-channel/overhead", &channel(10, false));
        put(root, "a/2026-11-22-channel/overhead", &channel(20, true));
        let open = |dirs: &[&str]| {
            let dirs: Vec<PathBuf> = dirs.iter().map(|dir| root.join(dir)).collect();
            Store::open(&list, &dirs).unwrap()
        };
        assert_eq!(started(&open(&["a"]), "channel/overhead"), Some(10));
        assert_eq!(
            started(&open(&["a/2026-11-22-channel"]), "channel/overhead"),
            Some(20)
        );
        put(root, "b/channel/overhead", &channel(5, false));
        assert_eq!(started(&open(&["a", "b"]), "channel/overhead"), Some(10));
        put(root, "b/channel/overhead", &channel(30, false));
        assert_eq!(started(&open(&["b", "a"]), "channel/overhead"), Some(30));
        assert_eq!(started(&open(&["a", "b"]), "table-2"), None);
        assert!(Store::open(&list, &[root.join("c")]).is_err());
    }

    #[test]
    fn a_document_of_something_else_is_left_aside_and_said() {
        let list = List::parse(LIST, "x").unwrap();
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "table-2", &channel(1, false));
        std::fs::create_dir_all(root.path().join("channel/overhead")).unwrap();
        std::fs::write(root.path().join("channel/overhead/result.json"), "{").unwrap();
        let store = Store::open(&list, &[root.path().to_path_buf()]).unwrap();
        assert_eq!(store.len(), 0);
        let doubts = store.doubts.join("\n");
        assert!(doubts.contains("no result of 'table-2'"), "{doubts}");
        assert!(
            doubts.contains("channel/overhead/result.json: left aside"),
            "{doubts}"
        );
    }

    #[test]
    fn a_failed_run_is_no_missing_result() {
        let list = List::parse(LIST, "x").unwrap();
        let root = tempfile::tempdir().unwrap();
        let run = json!({
            "which": "quick", "started_unix_s": 1, "took_s": 2.0,
            "measurements": [{ "name": "table-2", "command": "lab run x", "took_s": 1.0,
                "outcome": "failed", "said": "no root" }],
        });
        std::fs::write(root.path().join(RUN_FILE), run.to_string()).unwrap();
        let store = Store::open(&list, &[root.path().to_path_buf()]).unwrap();
        assert_eq!(store.why_missing("table-2"), "failed: no root");
        assert_eq!(store.why_missing("channel/overhead"), "no result");
    }
}
