//! What an experiment on broken control channels asks for, as its scenario file says it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use cli::failure::Failure;
use cli::toml_problem;

const RUNS_MAX: u32 = 100;

/// A scenario of this kind has the table below; all others have none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub reconnect: Settings,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub events: Vec<Event>,
    pub ways: Vec<Way>,
    pub runs: u32,
    /// Between the switch and its controller, there and back.
    pub rtt_ms: f64,
    /// From the death of a controller to the start of the next.
    pub down_ms: u64,
    /// Between packets of one pair of hosts; the resolution of the figures.
    pub interval_ms: u64,
    /// Traffic after the first answer, in which what is lost is counted.
    pub after_s: f64,
    /// A run in which nothing is answered for so long is over.
    pub patience_s: f64,
    #[serde(default)]
    pub claims: Claims,
    /// The part that `--quick` runs.
    #[serde(skip_serializing)]
    quick: Option<Quick>,
}

/// What happens to the control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The controller is killed, and started again.
    ControllerRestart,
    /// The switch goes to another controller: its relay's relay is stopped, or its target changed.
    Rehome,
    /// The controller's first address is gone, and its second one is there.
    Takeover,
    /// The switch has another address.
    AddressChange,
}

/// What is between the switch and its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A pair of relays.
    Quic,
    /// A pair of relays that dials with early data.
    #[serde(rename = "quic-0rtt")]
    Quic0Rtt,
    /// Open vSwitch's own TCP and TLS 1.3.
    Ssl,
}

impl Event {
    pub fn name(self) -> &'static str {
        match self {
            Event::ControllerRestart => "controller-restart",
            Event::Rehome => "rehome",
            Event::Takeover => "takeover",
            Event::AddressChange => "address-change",
        }
    }
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Quic => "quic",
            Way::Quic0Rtt => "quic-0rtt",
            Way::Ssl => "ssl",
        }
    }

    pub fn has_relays(self) -> bool {
        self != Way::Ssl
    }
}

/// What must be found.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The switch's session survives these by QUIC, and no packet of either pair is lost.
    #[serde(default)]
    pub survived: Vec<Event>,
    /// No entry of the flow table is lost, by any way.
    #[serde(default)]
    pub entries_kept: Vec<Event>,
    /// By QUIC the median time to the first answer is at most this share of that by TLS.
    #[serde(default)]
    pub share_of_ssl_max: BTreeMap<Event, f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    runs: u32,
    events: Vec<Event>,
}

/// One run of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub event: Event,
    pub way: Way,
    pub run: u32,
}

/// Whether a scenario's text is one of this kind.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    file.is_ok_and(|file| file.contains_key("reconnect"))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = scenario.reconnect.problems();
        match problems.is_empty() {
            true => Ok(scenario),
            false => Err(problems.join("; ")),
        }
    }
}

impl Settings {
    /// Only the part for those in a hurry.
    pub fn quick(mut self) -> Result<Settings, Failure> {
        let quick = self
            .quick
            .take()
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [reconnect.quick]"))?;
        self.runs = quick.runs;
        self.claims.keep(&quick.events);
        self.events = quick.events;
        Ok(self)
    }

    /// What the command line says of runs wins.
    pub fn bound(&mut self, runs: Option<u32>) -> Result<(), Failure> {
        self.runs = runs.unwrap_or(self.runs);
        match self.problems().as_slice() {
            [] => Ok(()),
            problems => Err(Failure::usage(problems.join("; "))),
        }
    }

    /// Every cell once before any cell twice.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for run in 0..self.runs {
            for event in &self.events {
                cells.extend(self.ways.iter().map(|way| Cell {
                    event: *event,
                    way: *way,
                    run,
                }));
            }
        }
        cells
    }

    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    pub fn after(&self) -> Duration {
        Duration::from_secs_f64(self.after_s)
    }

    pub fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.patience_s)
    }

    /// What is wrong, all of it together and by field.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_right: bool, right: &str| {
            if !is_right {
                problems.push(right.to_owned());
            }
        };
        check(is_set(&self.events), "events: at least one, each once");
        check(is_set(&self.ways), "ways: at least one, each once");
        check((1..=RUNS_MAX).contains(&self.runs), "runs: 1 to 100");
        check((1.0..=500.0).contains(&self.rtt_ms), "rtt_ms: 1 to 500");
        check((1..=10_000).contains(&self.down_ms), "down_ms: 1 to 10000");
        check(
            (5..=1000).contains(&self.interval_ms),
            "interval_ms: 5 to 1000",
        );
        check((0.5..=60.0).contains(&self.after_s), "after_s: 0.5 to 60");
        check(
            (1.0..=120.0).contains(&self.patience_s),
            "patience_s: 1 to 120",
        );
        let claims = &self.claims;
        let mut named = claims.survived.iter().chain(&claims.entries_kept);
        check(
            named.all(|event| self.events.contains(event))
                && claims
                    .share_of_ssl_max
                    .keys()
                    .all(|e| self.events.contains(e)),
            "claims: of events that the scenario has",
        );
        check(
            claims.survived.is_empty() || self.ways.iter().any(|way| way.has_relays()),
            "claims.survived: ways has no quic",
        );
        check(
            claims.share_of_ssl_max.is_empty()
                || [Way::Quic, Way::Ssl]
                    .iter()
                    .all(|way| self.ways.contains(way)),
            "claims.share_of_ssl_max: compares quic and ssl, and ways does not have both",
        );
        problems
    }
}

fn is_set<T: Ord>(values: &[T]) -> bool {
    let unique: std::collections::BTreeSet<&T> = values.iter().collect();
    !values.is_empty() && unique.len() == values.len()
}

impl Claims {
    /// Those about `events` alone.
    fn keep(&mut self, events: &[Event]) {
        self.survived.retain(|event| events.contains(event));
        self.entries_kept.retain(|event| events.contains(event));
        self.share_of_ssl_max
            .retain(|event, _| events.contains(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let dir = env!("CARGO_MANIFEST_DIR");
        std::fs::read_to_string(format!("{dir}/../../../scenarios/reconnect.toml")).unwrap()
    }

    #[test]
    fn the_scenario_that_is_here_is_right_and_so_is_its_quick_part() {
        let scenario = Scenario::parse(&text()).unwrap();
        assert!(is_ours(&text()) && !is_ours("title = 'x'"));
        let settings = scenario.reconnect;
        let cells = settings.cells();
        let all = settings.runs as usize * settings.events.len() * settings.ways.len();
        assert_eq!(cells.len(), all);
        let mut quick = settings.quick().unwrap();
        quick.bound(Some(1)).unwrap();
        assert_eq!(quick.cells().len(), quick.events.len() * quick.ways.len());
    }

    #[test]
    fn what_is_wrong_is_told_by_field() {
        for (from, to, field) in [
            ("rtt_ms = 100", "rtt_ms = 0", "rtt_ms: 1 to 500"),
            (
                "interval_ms = ",
                "interval_ms = 10",
                "interval_ms: 5 to 1000",
            ),
            (
                "\"quic\", \"quic-0rtt\", \"ssl\"",
                "\"quic\", \"quic\"",
                "ways: at least one, each once",
            ),
            (
                "\"quic\", \"quic-0rtt\", \"ssl\"",
                "\"ssl\"",
                "claims.survived: ways has no quic",
            ),
            (
                "\"quic\", \"quic-0rtt\", \"ssl\"",
                "\"quick\", \"ssl\"",
                "unknown variant `quick`",
            ),
        ] {
            assert!(text().contains(from), "{from}");
            let problem = Scenario::parse(&text().replacen(from, to, 1)).unwrap_err();
            assert!(problem.contains(field), "{problem}");
        }
    }
}
