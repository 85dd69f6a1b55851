//! All errors of a scenario at once, by line and field.

use std::collections::BTreeSet;

use crate::qos::paper::figures::Cell;
use crate::qos::paper::settings::{Candidate, Settings};
use crate::qos::paper::setup::{HOPS, STRANGERS_MAX, topology};
use auster::queues::plan::Rate;
use testbed::plane::{Controller, Transport};
use testbed::traffic::udp;

const RUNS_MAX: u32 = 100;
const SIZE_MB_MAX: u32 = 100_000;
/// Less is a handful of datagrams, more is hours.
const BYTES: std::ops::RangeInclusive<u64> = 10_000..=10_000_000_000;
/// The largest payload in one Ethernet frame.
const PAYLOAD_BYTES_MAX: usize = 1472;
const FLOWS_PER_S_MAX: f64 = 10_000.0;
const RAMP_S_MAX: f64 = 60.0;
/// Rates that userspace Open vSwitch carries over five hops on any machine.
const RATE: (Rate, Rate) = (Rate(1_000_000), Rate(1_000_000_000));

/// A field, and what would be right.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The field's table, such as `qos_paper.background`.
    table: &'static str,
    /// Which of several tables of this name.
    place: usize,
    key: &'static str,
    right: String,
}

impl Problem {
    pub fn text(&self) -> String {
        let table = self.table.strip_prefix("qos_paper").unwrap_or(self.table);
        let table = table.trim_start_matches('.');
        match table {
            "" => format!("{}: {}", self.key, self.right),
            table => format!("{table}.{}: {}", self.key, self.right),
        }
    }

    /// With the line of the scenario's text.
    pub fn told(&self, text: &str) -> String {
        match line_of(text, (self.table, self.place), self.key) {
            Some(line) => format!("line {line}: {}", self.text()),
            None => self.text(),
        }
    }
}

/// Where a field is, or else its table.
fn line_of(text: &str, (table, place): (&str, usize), key: &str) -> Option<usize> {
    let (mut is_inside, mut header, mut before) = (false, None, 0);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') && line.ends_with(']') {
            let has_name = line.trim_matches(['[', ']']) == table;
            is_inside = has_name && before == place;
            before += usize::from(has_name);
            header = header.or(is_inside.then_some(number + 1));
        }
        let name = line.split_once('=').map(|(name, _)| name.trim());
        if is_inside && name == Some(key) {
            return Some(number + 1);
        }
    }
    header
}

/// The errors, and the number of the table under inspection among those of its name.
struct Problems(Vec<Problem>, usize);

impl Problems {
    fn check(
        &mut self,
        is_right: bool,
        table: &'static str,
        key: &'static str,
        right: impl Into<String>,
    ) {
        if !is_right {
            self.0.push(Problem {
                table,
                place: self.1,
                key,
                right: right.into(),
            });
        }
    }
}

const TOP: &str = "qos_paper";
const BACKGROUND: &str = "qos_paper.background";
const CONTROLLERS: &str = "qos_paper.controllers";
const CLAIMS: &str = "qos_paper.claims";
const QUICK: &str = "qos_paper.quick";

pub fn of(settings: &Settings) -> Vec<Problem> {
    let mut problems = Problems(Vec::new(), 0);
    top(settings, &mut problems);
    let background = settings.background;
    problems.check(
        (0.0..=FLOWS_PER_S_MAX).contains(&background.flows_per_s),
        BACKGROUND,
        "flows_per_s",
        "0 to 10000",
    );
    problems.check(
        (0.0..=RAMP_S_MAX).contains(&background.ramp_s),
        BACKGROUND,
        "ramp_s",
        "0 to 60",
    );
    problems.0.extend(of_controllers(&settings.controllers));
    let claims = settings.claims;
    for (key, value, max, right) in [
        (
            "transfer_ratio_max",
            claims.transfer_ratio_max,
            100.0,
            "above 0 and up to 100",
        ),
        (
            "icmp_ratio_max",
            claims.icmp_ratio_max,
            100.0,
            "above 0 and up to 100",
        ),
        (
            "udp_loss_percent_max",
            claims.udp_loss_percent_max,
            100.0,
            "above 0 and up to 100",
        ),
    ] {
        problems.check(value > 0.0 && value <= max, CLAIMS, key, right);
    }
    if let Some(quick) = &settings.quick {
        sizes(settings, &quick.sizes_mb, QUICK, &mut problems);
        check_runs(settings, quick.runs, QUICK, &mut problems);
        for name in &quick.controllers {
            problems.check(
                settings.controllers.iter().any(|c| c.name == *name),
                QUICK,
                "controllers",
                format!("there is none of the name '{name}'"),
            );
        }
        problems.check(
            !quick.controllers.is_empty(),
            QUICK,
            "controllers",
            "name at least one",
        );
    }
    problems.0
}

fn top(settings: &Settings, problems: &mut Problems) {
    let rate = settings.rate.parse::<Rate>();
    let is_rate = rate
        .as_ref()
        .is_ok_and(|rate| (RATE.0..=RATE.1).contains(rate));
    problems.check(
        is_rate,
        TOP,
        "rate",
        rate.as_ref().map_or_else(Clone::clone, |_| {
            "1mbit to 1gbit, such as 100mbit".to_owned()
        }),
    );
    problems.check(
        settings.scale > 0.0 && settings.scale <= 1.0,
        TOP,
        "scale",
        "above 0 and up to 1",
    );
    sizes(settings, &settings.sizes_mb, TOP, problems);
    check_runs(settings, settings.runs, TOP, problems);
    let mbps = rate.map_or(f64::MAX, |rate| rate.0 as f64 / 1e6);
    problems.check(
        settings.udp_mbps > 0.0 && settings.udp_mbps <= mbps,
        TOP,
        "udp_mbps",
        "above 0 and no more than rate",
    );
    problems.check(
        (udp::HEADER_BYTES..=PAYLOAD_BYTES_MAX).contains(&settings.datagram_bytes),
        TOP,
        "datagram_bytes",
        "24 to 1472",
    );
    match settings.plan() {
        // Of a wrong rate all that is wrong with queues would be said too.
        Err(wrong) if is_rate => {
            for wrong in wrong {
                problems.check(false, TOP, "queues", wrong);
            }
        }
        Err(_) => {}
        Ok(plan) => problems.check(
            plan.classes.iter().any(|class| class.queue != 0),
            TOP,
            "queues",
            "state one beside queue 0, for what is measured",
        ),
    }
}

fn sizes(settings: &Settings, sizes: &[u32], table: &'static str, problems: &mut Problems) {
    let fits =
        |size: &u32| (1..=SIZE_MB_MAX).contains(size) && BYTES.contains(&settings.bytes(*size));
    let distinct: BTreeSet<&u32> = sizes.iter().collect();
    problems.check(
        !sizes.is_empty() && sizes.iter().all(fits) && distinct.len() == sizes.len(),
        table,
        "sizes_mb",
        "at least one, each once, from 1, and with the scale 10000 bytes to 10 GB",
    );
}

fn check_runs(settings: &Settings, runs: u32, table: &'static str, problems: &mut Problems) {
    problems.check((1..=RUNS_MAX).contains(&runs), table, "runs", "1 to 100");
    let each = (HOPS.len() * Cell::ALL.len()) as u32;
    let strangers = settings.pings.saturating_mul(each.saturating_mul(runs));
    problems.check(
        settings.pings > 0 && strangers <= STRANGERS_MAX,
        table,
        match table {
            TOP => "pings",
            _ => "runs",
        },
        format!(
            "at least 1 ping, and with {each} for each run no more than {STRANGERS_MAX} \
             hosts behind h1's port; these are {strangers}"
        ),
    );
}

pub fn of_controllers(controllers: &[Candidate]) -> Vec<Problem> {
    let mut problems = Problems(Vec::new(), 0);
    problems.check(
        !controllers.is_empty(),
        TOP,
        "controllers",
        "name at least one",
    );
    let mut seen = BTreeSet::new();
    for (place, candidate) in controllers.iter().enumerate() {
        let name = &candidate.name;
        problems.1 = place;
        problems.check(
            !name.is_empty() && seen.insert(name),
            CONTROLLERS,
            "name",
            format!("'{name}': there are two of that name, or it is empty"),
        );
        match &candidate.command {
            Some(command) => problems.check(
                !command.is_empty(),
                CONTROLLERS,
                "command",
                format!("'{name}': command: it is empty"),
            ),
            None => {
                let known = Controller::parse(name, Transport::Tcp);
                let is_known = known.is_ok_and(|known| known.check(&topology()).is_ok());
                problems.check(
                    is_known,
                    CONTROLLERS,
                    "name",
                    format!("'{name}': auster, none, tcp:HOST:PORT, or one with a command"),
                );
            }
        }
    }
    problems.0
}

#[cfg(test)]
mod tests {
    use crate::qos::paper::settings::Scenario;
    use crate::qos::paper::settings::tests::TEXT;

    fn line(text: &str, of: &str) -> usize {
        let place = text.lines().position(|line| line.starts_with(of));
        place.unwrap_or_else(|| panic!("no {of}")) + 1
    }

    #[test]
    fn all_that_is_wrong_is_told_together_by_line_and_field() {
        let mut text = String::new();
        for line in TEXT.lines() {
            let key = line.split_once(" = ").map_or("", |(key, _)| key);
            text += &match key {
                "scale" => "scale = 0".to_owned(),
                "udp_mbps" => "udp_mbps = 101".to_owned(),
                "flows_per_s" => "flows_per_s = -1".to_owned(),
                "queues" => "queues = ['id=1,min=200mbit,dscp=10']".to_owned(),
                "icmp_ratio_max" => "icmp_ratio_max = 0".to_owned(),
                "name" => line.replace("ovs-testcontroller", "auster"),
                _ => line.to_owned(),
            };
            text.push('\n');
        }
        let told = Scenario::parse(&text).unwrap_err();
        for (key, field) in [
            ("scale", "scale: above 0"),
            ("udp_mbps", "udp_mbps: above 0"),
            ("flows_per_s", "background.flows_per_s: 0 to"),
            ("queues", "queues: queue 1: min:"),
            ("icmp_ratio_max", "claims.icmp_ratio_max: above 0"),
        ] {
            let wanted = format!("line {}: {field}", line(&text, key));
            assert!(told.contains(&wanted), "{wanted}: {told}");
        }
        let last = text.lines().collect::<Vec<_>>();
        let last = last.iter().rposition(|line| *line == "name = \"auster\"");
        let wanted = format!(
            "line {}: controllers.name: 'auster': there are two",
            last.unwrap() + 1
        );
        assert!(told.contains(&wanted), "{wanted}: {told}");
    }

    #[test]
    fn a_field_that_is_not_known_is_told_with_its_line() {
        let text = TEXT.replace("datagram_bytes", "datagram_byte");
        let told = Scenario::parse(&text).unwrap_err();
        let wanted = format!("line {}: ", line(&text, "datagram_byte"));
        assert!(
            told.starts_with(&wanted) && told.contains("datagram_byte"),
            "{told}"
        );
    }
}
