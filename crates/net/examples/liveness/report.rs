//! What a run found: as a table, as JSON, and several runs as one plot.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::options::Options;

/// What passes; an answered request and a kept session are asked for besides.
const ECHO_P99_MS_MAX: f64 = 50.0;
const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];

pub struct Report {
    pub options: Options,
    /// As the switches' process has printed it.
    pub switches: Value,
    pub controller: Controller,
    /// Of the machine, over one minute, before and after: others may have used it.
    pub load: [f64; 2],
}

/// The other end's view, at the end of the storm.
pub struct Controller {
    pub handled: u64,
    pub shed_inbox_full: u64,
    pub shed_unread: u64,
    pub backlog: u64,
    pub resident_bytes_max: u64,
    /// Why, each.
    pub sessions_dropped: Vec<&'static str>,
}

impl Report {
    pub fn passed(&self) -> bool {
        self.quantile_ms(0.99) < ECHO_P99_MS_MAX
            && self.unanswered() == 0
            && self.sessions_dropped() == 0
            && self.unaccounted() == 0
    }

    pub fn json(&self) -> Value {
        let quantiles = QUANTILES.map(|(name, q)| (name.to_owned(), self.quantile_ms(q).into()));
        let options = &self.options;
        let of_controller = &self.controller;
        json!({
            "transport": options.transport,
            "switches": options.switch_count,
            "duration_s": options.duration_s,
            "work_us": options.work.as_micros() as u64,
            "handler": options.handler(),
            "packet_ins": {
                "asked_per_s": options.packet_ins_per_s,
                "offered": self.sent(),
                "offered_per_s": self.offered_per_s(),
                "handled": of_controller.handled,
                "handled_per_s": self.handled_per_s(),
                "shed_inbox_full": of_controller.shed_inbox_full,
                "shed_unread": of_controller.shed_unread,
                "backlog": of_controller.backlog,
                "unaccounted": self.unaccounted(),
            },
            "echo_ms": serde_json::Map::from_iter(quantiles),
            "echoes_sent": self.number("echoes_sent"),
            "echoes_unanswered": self.unanswered(),
            "sessions_dropped": self.sessions_dropped(),
            "sessions_dropped_why": of_controller.sessions_dropped,
            "resident_bytes_max": of_controller.resident_bytes_max,
            "load_average_before": self.load[0],
            "load_average_after": self.load[1],
            "passed": self.passed(),
            "echo_us": self.switches["echo_us"],
        })
    }

    pub fn table(&self) -> String {
        let options = &self.options;
        let of_controller = &self.controller;
        let mut text = format!(
            "{} switches over {}, {} s, {:?} of {} for each packet-in\n",
            options.switch_count,
            options.transport,
            options.duration_s,
            options.work,
            options.handler(),
        );
        let mut row = |what: &str, said: String| {
            let _ = writeln!(text, "  {what:<22}{said:>12}");
        };
        row("offered/s", format!("{:.0}", self.offered_per_s()));
        row("handled/s", format!("{:.0}", self.handled_per_s()));
        row(
            "shed: inbox full",
            of_controller.shed_inbox_full.to_string(),
        );
        row(
            "shed: peer not reading",
            of_controller.shed_unread.to_string(),
        );
        row("still queued", of_controller.backlog.to_string());
        row("unaccounted", self.unaccounted().to_string());
        for (name, q) in QUANTILES {
            row(
                &format!("echo {name}"),
                format!("{:.2} ms", self.quantile_ms(q)),
            );
        }
        row("echoes sent", self.number("echoes_sent").to_string());
        row("echoes unanswered", self.unanswered().to_string());
        row("sessions dropped", self.sessions_dropped().to_string());
        let resident_mib = of_controller.resident_bytes_max as f64 / f64::from(1 << 20);
        row("RSS at most", format!("{resident_mib:.1} MiB"));
        let [before, after] = self.load;
        row("load average", format!("{before} {after}"));
        text.push_str(if self.passed() {
            "passed\n"
        } else {
            "FAILED\n"
        });
        text
    }

    fn number(&self, key: &str) -> u64 {
        self.switches[key].as_u64().expect("a count")
    }

    fn sent(&self) -> u64 {
        self.number("packet_ins_sent")
    }

    /// Over the time it really took to send them.
    fn offered_per_s(&self) -> f64 {
        let within_s = self.switches["sent_within_s"].as_f64().expect("seconds");
        self.sent() as f64 / within_s
    }

    fn handled_per_s(&self) -> f64 {
        self.controller.handled as f64 / self.options.duration_s as f64
    }

    /// Sent, and neither handled nor shed nor queued.
    fn unaccounted(&self) -> i64 {
        let known = &self.controller;
        let known = known.handled + known.shed_inbox_full + known.shed_unread + known.backlog;
        self.sent().cast_signed() - known.cast_signed()
    }

    fn unanswered(&self) -> u64 {
        self.number("echoes_sent") - self.echo_us().len() as u64
    }

    /// As either end has seen it.
    fn sessions_dropped(&self) -> u64 {
        let by_us = self.controller.sessions_dropped.len() as u64;
        by_us.max(self.number("sessions_ended_early"))
    }

    fn echo_us(&self) -> &[Value] {
        self.switches["echo_us"].as_array().expect("a list")
    }

    /// By nearest rank; infinite when nothing was answered.
    fn quantile_ms(&self, q: f64) -> f64 {
        let sorted = self.echo_us();
        let rank = (q * sorted.len() as f64).ceil() as usize;
        let at = sorted.get(rank.saturating_sub(1)).and_then(Value::as_f64);
        at.map_or(f64::INFINITY, |us| us / 1e3)
    }
}

/// The machine's load over the last minute.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").expect("Linux");
    let first = text.split(' ').next().expect("three numbers");
    first.parse().expect("a number")
}

/// The most that this process ever had resident.
pub fn resident_bytes_max() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number of KiB")
        * 1024
}

/// Echo latency by quantile, a line for each run's JSON, on a logarithmic axis.
pub fn plot(files: &[PathBuf]) -> String {
    let mut svg = String::from(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" font-family="sans-serif" font-size="12">
<rect width="640" height="360" fill="#fff"/>
<text x="56" y="22" font-size="14">Echo latency while packet-ins storm (ms, from when the request was due)</text>
"##,
    );
    for ms in [0.1, 1.0, 10.0, 100.0, 1000.0] {
        let y = y_of(ms);
        let _ = writeln!(
            svg,
            r##"<path d="M56 {y:.1}H520" stroke="#ddd"/><text x="50" y="{:.1}" text-anchor="end">{ms}</text>"##,
            y + 4.0
        );
    }
    let y = y_of(ECHO_P99_MS_MAX);
    let _ = writeln!(
        svg,
        r##"<path d="M56 {y:.1}H520" stroke="#c00" stroke-dasharray="4"/><text x="526" y="{:.1}" fill="#c00">p99 at most 50</text>"##,
        y + 4.0
    );
    for (place, (name, _)) in QUANTILES.iter().enumerate() {
        let x = x_of(place);
        let _ = writeln!(
            svg,
            r#"<text x="{x}" y="340" text-anchor="middle">{name}</text>"#
        );
    }
    for (number, file) in files.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let points = points_of(file);
        let line: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="2"/>"#,
            line.join(" ")
        );
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let y = 56 + 18 * number;
        let _ = writeln!(svg, r#"<text x="70" y="{y}" fill="{color}">{name}</text>"#);
    }
    svg + "</svg>\n"
}

const COLORS: [&str; 6] = [
    "#1b6ca8", "#2a9d5c", "#8a5fbf", "#c77700", "#555555", "#b0306a",
];

fn points_of(file: &Path) -> Vec<(f64, f64)> {
    let text = std::fs::read_to_string(file).expect("a run's JSON file");
    let run: Value = serde_json::from_str(&text).expect("a run's JSON");
    let ms = |name: &str| run["echo_ms"][name].as_f64().expect("a quantile");
    let points = QUANTILES.iter().enumerate();
    points
        .map(|(place, (name, _))| (x_of(place), y_of(ms(name))))
        .collect()
}

fn x_of(place: usize) -> f64 {
    90.0 + 100.0 * place as f64
}

/// Four decades, from 0.1 ms at the bottom to 1 s at the top.
fn y_of(ms: f64) -> f64 {
    const BOTTOM: f64 = 320.0;
    const DECADE: f64 = 70.0;
    BOTTOM - DECADE * (ms.max(0.1) / 0.1).log10()
}
