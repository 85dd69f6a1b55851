//! All errors of a scenario at once, by field.

use std::collections::BTreeSet;
use std::path::Path;

use crate::timeouts::settings::{NONE, Settings, X, Y};
use auster::run;
use bench::network::udp;
use testbed::topology::Topology;

const SECONDS_MAX: f64 = 3600.0;
const RUNS_MAX: u32 = 1000;
const RATE_MBPS_MAX: f64 = 1000.0;
const DETOUR_MS_MAX: f64 = 1000.0;
const STREAMS_MAX: u32 = 16;
/// The largest payload in one Ethernet frame.
const PAYLOAD_BYTES_MAX: u16 = 1472;
/// ping(8) reports round trips from here on.
const PING_BYTES_MIN: u16 = 16;

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn check(&mut self, is_right: bool, field: &str, right: &str) {
        if !is_right {
            self.0.push(format!("{field}: {right}"));
        }
    }
}

pub fn of(settings: &Settings) -> Vec<String> {
    let mut problems = Problems::default();
    let within = |value: f64, max: f64| value > 0.0 && value <= max;
    problems.check(
        within(settings.seconds, SECONDS_MAX),
        "seconds",
        "above 0 and up to 3600",
    );
    let bytes = udp::HEADER_BYTES as u16..=PAYLOAD_BYTES_MAX;
    problems.check(
        bytes.contains(&settings.datagram_bytes),
        "datagram_bytes",
        "24 to 1472",
    );
    problems.check((1..=RUNS_MAX).contains(&settings.runs), "runs", "1 to 1000");
    problems.check(
        !settings.streams.is_empty() || !settings.pings.is_empty(),
        "streams",
        "there is neither one of them nor pings",
    );
    controllers(settings, &mut problems);
    streams(settings, &mut problems);
    pings(settings, &mut problems);
    names(settings, &mut problems);
    problems.0
}

fn controllers(settings: &Settings, problems: &mut Problems) {
    for (name, config) in &settings.controllers {
        let field = format!("controllers.{name}");
        problems.check(name != NONE, &field, "none is the name of no controller");
        let text = toml::to_string(config).unwrap_or_default();
        if let Err(found) = run::check_settings(&text, Path::new(&field)) {
            problems.0.extend(found);
        }
    }
}

fn streams(settings: &Settings, problems: &mut Problems) {
    for row in &settings.streams {
        let name = &row.name;
        let field = |key: &str| format!("streams '{name}': {key}");
        common(
            settings,
            (name, "streams", &row.controller, &row.topology),
            (row.detour_ms, row.runs),
            problems,
        );
        let rates = &row.rates_mbps;
        let is_rate = |rate: &f64| *rate > 0.0 && *rate <= RATE_MBPS_MAX;
        problems.check(
            !rates.is_empty() && rates.iter().all(is_rate),
            &field("rates_mbps"),
            "above 0 and up to 1000",
        );
        problems.check(
            (1..=STREAMS_MAX).contains(&row.streams),
            &field("streams"),
            "1 to 16",
        );
        problems.check(
            row.iperf_runs <= row.runs.unwrap_or(settings.runs),
            &field("iperf_runs"),
            "no more than runs",
        );
        problems.check(
            row.iperf_runs == 0 || row.streams == 1,
            &field("iperf_runs"),
            "iperf sends one stream; 0 with several",
        );
        if let Some(load) = row.load {
            problems.check(
                load.start_percent <= 100 && load.step_percent <= 100 && load.every_s > 0,
                &field("load"),
                "start_percent and step_percent 0 to 100, every_s from 1",
            );
            let steps = (settings.seconds / f64::from(load.every_s.max(1))).ceil() - 1.0;
            let steps = steps.clamp(0.0, SECONDS_MAX) as u32;
            let last = load
                .start_percent
                .saturating_add(load.step_percent.saturating_mul(steps));
            problems.check(
                last <= 100,
                &field("load"),
                &format!("it would end at {last} % of a core; at most 100"),
            );
            problems.check(
                row.controller != NONE,
                &field("load"),
                "there is no controller to be beside",
            );
        }
    }
}

fn pings(settings: &Settings, problems: &mut Problems) {
    for row in &settings.pings {
        let name = &row.name;
        let field = |key: &str| format!("pings '{name}': {key}");
        common(
            settings,
            (name, "pings", &row.controller, &row.topology),
            (row.detour_ms, row.runs),
            problems,
        );
        let sizes = &row.sizes_bytes;
        let is_size = |size: &u16| (PING_BYTES_MIN..=PAYLOAD_BYTES_MAX).contains(size);
        problems.check(
            !sizes.is_empty() && sizes.iter().all(is_size),
            &field("sizes_bytes"),
            "16 to 1472",
        );
        problems.check(
            (1..=1000).contains(&row.count),
            &field("count"),
            "1 to 1000",
        );
        problems.check(
            (0.01..=60.0).contains(&row.interval_s),
            &field("interval_s"),
            "0.01 to 60",
        );
    }
}

/// Checks the fields that streams and pings share.
fn common(
    settings: &Settings,
    (name, kind, controller, topology): (&str, &str, &str, &str),
    (detour_ms, runs): (f64, Option<u32>),
    problems: &mut Problems,
) {
    let field = |key: &str| format!("{kind} '{name}': {key}");
    let is_known = controller == NONE || settings.controllers.contains_key(controller);
    let known: Vec<&str> = settings.controllers.keys().map(String::as_str).collect();
    problems.check(
        is_known,
        &field("controller"),
        &format!("'{controller}' is none of {}, none", known.join(", ")),
    );
    match Topology::generate(topology, None) {
        Ok(made) => problems.check(
            made.hosts.len() >= 2,
            &field("topology"),
            "it takes two hosts",
        ),
        Err(problem) => problems.check(false, &field("topology"), &problem),
    }
    problems.check(
        (0.0..=DETOUR_MS_MAX).contains(&detour_ms),
        &field("detour_ms"),
        "0 to 1000",
    );
    problems.check(
        runs.is_none_or(|runs| (1..=RUNS_MAX).contains(&runs)),
        &field("runs"),
        "1 to 1000",
    );
}

/// Rows have a name each, and what speaks of rows names some that there are.
fn names(settings: &Settings, problems: &mut Problems) {
    let streams: Vec<&str> = settings
        .streams
        .iter()
        .map(|row| row.name.as_str())
        .collect();
    let pings: Vec<&str> = settings.pings.iter().map(|row| row.name.as_str()).collect();
    let mut seen = BTreeSet::new();
    for name in streams.iter().chain(&pings) {
        let field = format!("row '{name}'");
        problems.check(seen.insert(*name), &field, "there are two of that name");
    }
    let claims = &settings.claims;
    let claimed = claims.none_reordered.iter().chain(&claims.some_reordered);
    for name in claimed.chain(claims.fewer.iter().flatten()) {
        let is_there = streams.contains(&name.as_str());
        problems.check(
            is_there,
            "claims",
            &format!("no streams are called '{name}'"),
        );
    }
    for plot in &settings.plots {
        let field = format!("plots '{}'", plot.file);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        problems.check(
            plot.file.chars().all(is_word) && !plot.file.is_empty(),
            &field,
            "file: letters, digits, '-' and '.'",
        );
        let of_pings = plot.y == Y::RttMs;
        let rows = if of_pings { &pings } else { &streams };
        for name in &plot.rows {
            problems.check(
                rows.contains(&name.as_str()),
                &field,
                &format!(
                    "no {} are called '{name}'",
                    if of_pings { "pings" } else { "streams" }
                ),
            );
        }
        let of_cpu = matches!(plot.y, Y::CoreCpuPercent | Y::ControllerCpuPercent);
        let fits = match plot.x {
            X::SizeBytes | X::Request => of_pings,
            X::RateMbps | X::At => !of_pings && !of_cpu,
            X::Second => of_cpu || plot.y == Y::Reordered,
        };
        problems.check(fits, &field, "this y does not come with this x");
    }
}

#[cfg(test)]
mod tests {
    use crate::timeouts::settings::Scenario;

    const RIGHT: &str = "\
title = 'x'
[timeouts]
seconds = 3
datagram_bytes = 1470
runs = 1
[timeouts.controllers.fixed.controller]
hard_timeout_s = 1
[[timeouts.streams]]
name = 'a'
controller = 'fixed'
rates_mbps = [5]
[[timeouts.pings]]
name = 'b'
controller = 'none'
sizes_bytes = [64]
count = 10
interval_s = 1
";

    fn problem(of: &str, with: &str) -> String {
        assert!(RIGHT.contains(of), "{of}");
        Scenario::parse(&RIGHT.replacen(of, with, 1)).unwrap_err()
    }

    #[test]
    fn each_field_is_refused_by_its_name() {
        Scenario::parse(RIGHT).unwrap();
        let cases = [
            ("seconds = 3", "seconds = 0", "seconds: above 0"),
            ("= 1470", "= 23", "datagram_bytes: 24 to 1472"),
            ("runs = 1", "runs = 0", "runs: 1 to 1000"),
            (
                "hard_timeout_s = 1",
                "hard_timeout_s = -1",
                "hard_timeout_s",
            ),
            ("hard_timeout_s", "hard_timeout", "hard_timeout"),
            (
                "'fixed'\n",
                "'paper'\n",
                "streams 'a': controller: 'paper' is none of fixed, none",
            ),
            ("[5]", "[]", "streams 'a': rates_mbps"),
            ("[5]", "[5]\nstreams = 17", "streams 'a': streams: 1 to 16"),
            (
                "[5]",
                "[5]\ndetour_ms = -1",
                "streams 'a': detour_ms: 0 to 1000",
            ),
            (
                "[5]",
                "[5]\ntopology = 'single,1'",
                "streams 'a': topology: it takes two",
            ),
            (
                "[5]",
                "[5]\ntopology = 'star,4'",
                "streams 'a': topology: unknown topology 'star,4'",
            ),
            (
                "[5]",
                "[5]\niperf_runs = 2",
                "streams 'a': iperf_runs: no more",
            ),
            (
                "[5]",
                "[5]\nload = { start_percent = 90, step_percent = 10, every_s = 1 }",
                "end at 110 %",
            ),
            ("[5]", "[5]\nspeed = 2", "unknown field `speed`"),
            ("[64]", "[2000]", "pings 'b': sizes_bytes: 16 to 1472"),
            ("count = 10", "count = 0", "pings 'b': count"),
            ("interval_s = 1", "interval_s = 0", "pings 'b': interval_s"),
            (
                "name = 'b'",
                "name = 'a'",
                "row 'a': there are two of that name",
            ),
        ];
        for (of, with, right) in cases {
            let found = problem(of, with);
            assert!(found.contains(right), "{with}: {found}");
        }
        let plot =
            |words: &str| format!("{RIGHT}[[timeouts.plots]]\nfile = 'f'\ntitle = 't'\n{words}");
        let found = Scenario::parse(&plot("x = 'rate_mbps'\ny = 'rtt_ms'\nrows = ['a']"));
        let found = found.unwrap_err();
        assert!(
            found.contains("plots 'f': no pings are called 'a'"),
            "{found}"
        );
        assert!(
            found.contains("this y does not come with this x"),
            "{found}"
        );
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let text = RIGHT.replace("runs = 1", "runs = 0").replace("[64]", "[1]");
        let found = Scenario::parse(&text).unwrap_err();
        assert!(found.contains("runs: 1 to 1000; pings 'b'"), "{found}");
    }
}
