//! Labs, run as an operator does, and what they leave behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ROOT;
use super::running::PATIENCE;

pub use super::AUSTER;

/// Copies both programs into a directory that other users may enter; the build directory may be
/// closed to them. Returns the path of `auster` there.
pub fn copy_programs(into: &Path) -> PathBuf {
    for file in ["auster", "auster-lab"] {
        std::fs::copy(Path::new(AUSTER).with_file_name(file), into.join(file)).unwrap();
    }
    into.join("auster")
}

pub fn auster(arguments: &[&str]) -> Output {
    Command::new(AUSTER).args(arguments).output().unwrap()
}

/// The document of an experiment, whether its claims hold or not. Claims about times and losses
/// hold on a quiet machine only, so the scenarios judge them, not a test.
pub fn measured(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{errors}{told}"
    );
    if !output.status.success() {
        println!("{errors}");
    }
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}{told}"))
}

/// The text of a scenario of the project.
pub fn scenario(name: &str) -> String {
    let path = Path::new(ROOT).join("scenarios").join(name);
    std::fs::read_to_string(path.with_extension("toml")).unwrap()
}

/// Runs a scenario with these options. Its file, and `out` with what it keeps, are in `dir`.
pub fn experiment(text: &str, dir: &Path, options: &[&str]) -> Value {
    let file = |name: &str| dir.join(name).display().to_string();
    let (path, out) = (file("a.toml"), file("out"));
    std::fs::write(&path, text).unwrap();
    let words = ["lab", "run", &path, "--json", "--force", "--out", &out];
    measured(&auster(&[&words, options].concat()))
}

/// A lab left up by `auster lab up`, taken down at the end of the test.
pub struct Lab {
    pub id: String,
}

impl Lab {
    pub fn up(arguments: &[&str]) -> Lab {
        let output = auster(&[&["lab", "up"], arguments].concat());
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Lab {
            id: String::from_utf8_lossy(&output.stdout).trim().to_string(),
        }
    }

    pub fn exec(&self, host: &str, command: &[&str]) -> Output {
        auster(&[&["lab", "exec", &self.id, host, "--"], command].concat())
    }

    /// Runs a line of a shell at a host, which must succeed. Returns what it has printed.
    pub fn must(&self, host: u32, line: &str) -> String {
        let output = self.exec(&format!("h{host}"), &["sh", "-c", line]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "h{host}: {line}: {text}{errors}");
        text
    }

    pub fn down(&self) -> Output {
        auster(&["lab", "down", &self.id])
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !remains(&self.id).is_empty() {
            self.down();
        }
    }
}

/// Checks again until `is_so` returns true.
pub fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// The records of all labs, from `auster lab list --json`.
pub fn records() -> Vec<Value> {
    let output = auster(&["lab", "list", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["labs"].as_array().unwrap().clone()
}

/// Everything on this machine that bears the lab's id: namespaces, processes, files.
pub fn remains(id: &str) -> Vec<String> {
    let names = |dir: &str| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect()
    };
    let mut found: Vec<String> = ["/run/netns", "/run/auster/labs"]
        .into_iter()
        .flat_map(|dir| {
            names(dir)
                .into_iter()
                .map(move |name| format!("{dir}/{name}"))
        })
        .filter(|path| path.contains(id))
        .collect();
    let variable = format!("AUSTER_LAB={id}");
    found.extend(names("/proc").into_iter().filter(|pid| {
        let environment = std::fs::read(Path::new("/proc").join(pid).join("environ"));
        let environment = environment.unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|v| v == variable.as_bytes())
    }));
    found
}
