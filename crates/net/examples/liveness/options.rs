//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    pub transport: String,
    /// Of all switches together.
    pub packet_ins_per_s: u64,
    pub switch_count: u64,
    pub duration_s: u64,
    /// Of the application, for each packet-in.
    pub work: Duration,
    pub spins: bool,
    pub json: bool,
}

pub enum Task {
    Measure(Options),
    /// In the process that [`Options::for_switches`] starts.
    Switches(Options, Join),
    Plot(Vec<PathBuf>),
}

/// Where switches connect, and the directory of their certificates.
pub struct Join {
    pub method: String,
    pub pki: PathBuf,
}

const USAGE: &str = "[--transport tcp|ssl|quic] [--rate PACKET_INS_PER_S] [--switches N] \
                     [--seconds N] [--work-us N] [--handler spin|sleep] [--json], or --plot FILE...";

impl Options {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Task, String> {
        let mut options = Options {
            transport: "tcp".to_owned(),
            packet_ins_per_s: 50_000,
            switch_count: 10,
            duration_s: 30,
            work: Duration::from_millis(1),
            spins: true,
            json: false,
        };
        let (mut method, mut pki) = (None, None);
        while let Some(flag) = words.next() {
            match flag.as_str() {
                "--json" => {
                    options.json = true;
                    continue;
                }
                "--plot" => return Ok(Task::Plot(words.map(PathBuf::from).collect())),
                _ => {}
            }
            let value = words
                .next()
                .ok_or_else(|| format!("{flag}: write {USAGE}"))?;
            let number = || match value.parse::<u64>() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(format!("{flag} {value}: a whole number above 0")),
            };
            match (flag.as_str(), value.as_str()) {
                ("--transport", "tcp" | "ssl" | "quic") => options.transport = value,
                ("--rate", _) => options.packet_ins_per_s = number()?,
                ("--switches", _) => options.switch_count = number()?,
                ("--seconds", _) => options.duration_s = number()?,
                ("--work-us", _) => options.work = Duration::from_micros(number()?),
                ("--handler", "spin" | "sleep") => options.spins = value == "spin",
                ("--join", _) => method = Some(value),
                ("--pki", _) => pki = Some(PathBuf::from(value)),
                _ => return Err(format!("{flag} {value}: write {USAGE}")),
            }
        }
        Ok(match (method, pki) {
            (Some(method), Some(pki)) => Task::Switches(options, Join { method, pki }),
            _ => Task::Measure(options),
        })
    }

    /// The command line of the switches' process.
    pub fn for_switches(&self, method: &str, pki: &Path) -> Vec<String> {
        let pki = pki.to_str().expect("a path of our own");
        let words = [
            ("--transport", self.transport.clone()),
            ("--rate", self.packet_ins_per_s.to_string()),
            ("--switches", self.switch_count.to_string()),
            ("--seconds", self.duration_s.to_string()),
            ("--join", method.to_owned()),
            ("--pki", pki.to_owned()),
        ];
        let words = words.into_iter();
        words
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect()
    }

    pub fn handler(&self) -> &'static str {
        if self.spins { "spin" } else { "sleep" }
    }
}
