//! The measurements on the paper's network, as its scenario file states them.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::qos::paper::problems;
use auster::queues::plan::{Class, Plan, Rate};
use auster::queues::stated::{self, ChosenBy, Words};
use cli::failure::Failure;
use cli::toml_problem;
use testbed::traffic::udp::Pace;

/// The controller that the claims are of.
pub const OURS: &str = "auster";
const SOCKET_BYTES: u32 = 212_992;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub qos_paper: Settings,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The rate of every link, counted as the kernel does: Ethernet frames.
    pub rate: String,
    /// The share of each size that is sent.
    pub scale: f64,
    pub runs: u32,
    /// New flows to each host in a run.
    pub pings: u32,
    /// The paper's sizes, in 10^6 bytes.
    pub sizes_mb: Vec<u32>,
    pub udp_mbps: f64,
    pub datagram_bytes: usize,
    /// The queues of s2 towards s3, in the words of `auster queues set --queue`. The measured
    /// traffic uses the first of them that is not queue 0; all other traffic uses queue 0.
    pub queues: Vec<String>,
    pub background: Background,
    /// Each has a network of its own, and they take turns.
    pub controllers: Vec<Candidate>,
    pub claims: Claims,
    /// The part that `--quick` runs.
    #[serde(skip_serializing)]
    pub quick: Option<Quick>,
}

/// Beside two TCP connections that take all they can get.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// New flows of each pair of hosts.
    pub flows_per_s: f64,
    /// It goes on so long before anything is measured.
    pub ramp_s: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Without a command: auster, none or tcp:HOST:PORT.
    pub name: String,
    /// Starts it, by a shell in a namespace of its own; `{address}` and `{port}` are where it has
    /// to listen.
    pub command: Option<String>,
    /// A command that runs once, before any network is made. If it fails, the controller is left
    /// out.
    pub prepare: Option<String>,
}

/// The claims that auster must meet.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// With QoS beside traffic, against the idle network.
    pub transfer_ratio_max: f64,
    pub icmp_ratio_max: f64,
    pub udp_loss_percent_max: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    pub runs: u32,
    pub sizes_mb: Vec<u32>,
    /// Names of controllers.
    pub controllers: Vec<String>,
}

/// Whether a scenario's text is one of this kind. Reading it reports its errors.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    match file {
        Ok(file) => file.contains_key("qos_paper"),
        // So that what is wrong is told by whoever knows the fields.
        Err(_) => text.lines().any(|line| line.trim() == "[qos_paper]"),
    }
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = problems::of(&scenario.qos_paper);
        let told = problems.iter().map(|problem| problem.told(text));
        match problems.is_empty() {
            true => Ok(scenario),
            false => Err(told.collect::<Vec<_>>().join("; ")),
        }
    }
}

impl Settings {
    /// Only the part for those in a hurry.
    pub fn quick(mut self) -> Result<Settings, Failure> {
        let quick = self
            .quick
            .take()
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [qos_paper.quick]"))?;
        self.runs = quick.runs;
        self.sizes_mb = quick.sizes_mb;
        self.controllers
            .retain(|c| quick.controllers.contains(&c.name));
        Ok(self)
    }

    /// Applies the command line's number of runs, which overrides the file's.
    pub fn bound(&mut self, runs: Option<u32>) -> Result<(), Failure> {
        self.runs = runs.unwrap_or(self.runs);
        let problems = problems::of(self);
        let told: Vec<String> = problems.iter().map(|problem| problem.text()).collect();
        match told.is_empty() {
            true => Ok(()),
            false => Err(Failure::usage(told.join("; "))),
        }
    }

    /// Applies the controllers of the command line. `NAME=COMMAND` adds one. A name without a
    /// command selects one of `known`, `none` or tcp:HOST:PORT. If any name is given, only the
    /// named ones run.
    pub fn choose(&mut self, words: &[String], known: &[Candidate]) -> Result<(), Failure> {
        let (mut named, mut added) = (Vec::new(), Vec::new());
        for word in words {
            if let Some((name, command)) = word.split_once('=') {
                added.push(Candidate {
                    name: name.trim().to_owned(),
                    command: Some(command.trim().to_owned()),
                    prepare: None,
                });
                continue;
            }
            let of_name = known.iter().find(|c| c.name == *word);
            let other = || Candidate {
                name: word.clone(),
                command: None,
                prepare: None,
            };
            named.push(of_name.cloned().unwrap_or_else(other));
        }
        if !named.is_empty() {
            self.controllers = named;
        }
        self.controllers.extend(added);
        let wrong = problems::of_controllers(&self.controllers);
        let told: Vec<String> = wrong.iter().map(|problem| problem.text()).collect();
        match told.is_empty() {
            true => Ok(()),
            false => Err(Failure::usage(format!("--controller: {}", told.join("; ")))),
        }
    }

    /// auster, or whoever is the first.
    pub fn judged(&self) -> &str {
        let ours = self.controllers.iter().find(|c| c.name == OURS);
        let judged = ours.or(self.controllers.first());
        judged.map_or(OURS, |candidate| candidate.name.as_str())
    }

    pub fn rate(&self) -> Rate {
        self.rate.parse().unwrap_or(Rate(100_000_000))
    }

    pub fn bytes(&self, size_mb: u32) -> u64 {
        (f64::from(size_mb) * 1e6 * self.scale).round() as u64
    }

    /// A stream of the datagrams that a size makes.
    pub fn pace(&self, size_mb: u32) -> Pace {
        let seconds = self.bytes(size_mb) as f64 * 8.0 / (self.udp_mbps * 1e6);
        Pace {
            rate_mbps: self.udp_mbps,
            datagram_bytes: self.datagram_bytes,
            duration: Duration::from_secs_f64(seconds),
        }
    }

    pub fn plan(&self) -> Result<Plan, Vec<String>> {
        let words: Result<Vec<Words>, String> = self
            .queues
            .iter()
            .map(|queue| Words::parse(queue))
            .collect();
        let words = words.map_err(|problem| vec![problem])?;
        stated::plan(Some(&self.rate), &words, ChosenBy::Dscp, SOCKET_BYTES)
    }

    /// The class of what is measured, and that of the rest.
    pub fn classes(&self) -> (Class, Class) {
        let classes = self.plan().map(|plan| plan.classes).unwrap_or_default();
        let mut service = classes.iter().filter(|class| class.queue != 0);
        let mut rest = classes.iter().filter(|class| class.queue == 0);
        let checked = "the scenario is checked";
        let service = service.next().expect(checked).clone();
        (service, rest.next().expect(checked).clone())
    }

    /// A description of the measurements, in a few lines.
    pub fn words(&self) -> String {
        let names: Vec<&str> = self.controllers.iter().map(|c| c.name.as_str()).collect();
        let sizes: Vec<String> = self.sizes_mb.iter().map(u32::to_string).collect();
        format!(
            "6 switches, 8 hosts, links of {}; under {}; {} runs\n\
             Sizes are the paper's, {} MB; of each {} is sent (scale {}), UDP at {} Mbit/s\n\
             Background: h5 to h7 and h6 to h8, a TCP connection and {} new flows/s each\n\
             QoS on s2 to s3: {}",
            self.rate,
            names.join(", "),
            self.runs,
            sizes.join(", "),
            match self.scale {
                1.0 => "all".to_owned(),
                scale => format!("1/{:.0}", 1.0 / scale),
            },
            self.scale,
            self.udp_mbps,
            self.background.flows_per_s,
            self.queues.join("; "),
        )
    }
}

impl Background {
    pub fn ramp(&self) -> Duration {
        Duration::from_secs_f64(self.ramp_s)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const TEXT: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../scenarios/qos-paper.toml"
    ));

    pub fn whole() -> Settings {
        Scenario::parse(TEXT).unwrap().qos_paper
    }

    #[test]
    fn the_scenario_of_the_project_is_the_papers_and_has_a_quick_part() {
        assert!(is_ours(TEXT) && !is_ours("title = 'x'\ntopologies = ['ring,4']"));
        let settings = whole();
        assert_eq!(settings.sizes_mb, [100, 200, 350, 500, 750, 1000]);
        assert_eq!((settings.rate(), settings.runs), (Rate(100_000_000), 5));
        let (service, rest) = settings.classes();
        assert_eq!(service.rate, Rate(20_000_000));
        assert_eq!(service.rate_max, settings.rate());
        assert!(service.priority < rest.priority && service.mark.is_some());
        assert!(settings.udp_mbps * 1e6 < settings.rate().0 as f64);
        let quick = settings.quick().unwrap();
        assert_eq!(quick.judged(), OURS);
        assert!(problems::of(&quick).is_empty());
        assert!(quick.quick().is_err(), "there is nothing quicker");
    }

    #[test]
    fn a_size_is_scaled_and_a_stream_is_of_as_many_bytes() {
        let mut settings = whole();
        settings.scale = 0.01;
        assert_eq!(settings.bytes(350), 3_500_000);
        let pace = settings.pace(350);
        let bytes = pace.count() as f64 * pace.datagram_bytes as f64;
        assert!(
            (bytes - 3.5e6).abs() < pace.datagram_bytes as f64,
            "{bytes}"
        );
    }

    #[test]
    fn controllers_of_the_command_line_are_added_or_chosen() {
        let names = |words: &[&str]| {
            let mut settings = whole();
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let known = settings.controllers.clone();
            settings.choose(&words, &known).map(|()| {
                let names = settings.controllers.into_iter().map(|c| c.name);
                names.collect::<Vec<_>>().join(" ")
            })
        };
        let all = "auster os-ken ovs-testcontroller";
        assert_eq!(names(&[]).unwrap(), all);
        assert_eq!(names(&["mine=x"]).unwrap(), format!("{all} mine"));
        assert_eq!(names(&["auster", "mine=x"]).unwrap(), "auster mine");
        assert_eq!(names(&["none", "os-ken"]).unwrap(), "none os-ken");
        let told = names(&["os-kan", "a=", "b=run {port}", "b=run {port}"]).unwrap_err();
        for part in ["'os-kan'", "'a': command", "'b': there are two"] {
            assert!(told.message().contains(part), "{part}: {told:?}");
        }
    }
}
