//! A map in its canonical form, and the numbers with units in it.

use std::fmt::Write;

use clock::Duration;
use openflow::MatchField;

use super::fields::{field_name, field_text};
use super::{Action, Algorithm, PolicyMap, Profile, Rule, dscp_queues};
use crate::class::TrafficType;
use crate::order::Direction;

/// Code points with names, except the class selectors.
const CODE_POINTS: [(&str, u8); 14] = [
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("VA", 44),
    ("EF", 46),
];

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::Fifo,
        Algorithm::Strict,
        Algorithm::Wfq,
        Algorithm::Drr,
        Algorithm::MinRate,
        Algorithm::Edf,
        Algorithm::Hierarchy,
    ];

    /// Name in a map's text, for example `drr`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Fifo => "fifo",
            Algorithm::Strict => "strict",
            Algorithm::Wfq => "wfq",
            Algorithm::Drr => "drr",
            Algorithm::MinRate => "min-rate",
            Algorithm::Edf => "edf",
            Algorithm::Hierarchy => "hierarchy",
        }
    }

    /// Returns the algorithm with this name.
    pub fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL
            .into_iter()
            .find(|known| known.name() == name)
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Action::Queue(queue) => write!(f, "queue_id:{queue}"),
            Action::Dscp(dscp) => write!(f, "dscp:{}", code_point_name(*dscp)),
            Action::DscpCopy => f.write_str("dscp:copy"),
            Action::Both(queue, dscp) => {
                write!(f, "queue_id:{queue}+dscp:{}", code_point_name(*dscp))
            }
        }
    }
}

impl std::fmt::Display for Rule {
    /// Writes the rule as a line of a map.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rule #{}: traffic_type=", self.id)?;
        match self.traffic {
            Some(traffic) => write!(f, "{}", traffic as u8)?,
            None => f.write_str("any")?,
        }
        if let Some(kind) = self.message {
            write!(f, ", msg={}", kind.name())?;
        }
        match self.direction {
            Some(Direction::ToController) => f.write_str(", dir=up")?,
            Some(Direction::ToSwitch) => f.write_str(", dir=down")?,
            None => {}
        }
        if let Some(datapath) = self.datapath {
            write!(f, ", dpid={datapath}")?;
        }
        for field in &self.fields.fields {
            if let MatchField::Basic { field, value, mask } = field {
                let value = field_text(*field, *value, *mask);
                write!(f, ", {}={value}", field_name(*field))?;
            }
        }
        match self.xid {
            Some((value, u32::MAX)) => write!(f, ", xid={value:#x}")?,
            Some((value, mask)) => write!(f, ", xid={value:#x}/{mask:#x}")?,
            None => {}
        }
        if self.domain != 0 {
            write!(f, ", domain={}", self.domain)?;
        }
        write!(f, ", action={}", self.action)
    }
}

/// The name of a code point, or its number.
pub fn code_point_name(dscp: u8) -> String {
    if dscp.is_multiple_of(8) {
        return format!("CS{}", dscp / 8);
    }
    let found = CODE_POINTS.iter().find(|(_, value)| *value == dscp);
    found.map_or_else(|| dscp.to_string(), |(name, _)| (*name).to_owned())
}

pub(super) fn code_point(text: &str) -> Option<u8> {
    if let Some(class) = text.strip_prefix("CS") {
        let class = class.parse::<u8>().ok().filter(|class| *class < 8);
        return class.map(|class| class * 8);
    }
    let found = CODE_POINTS.iter().find(|(name, _)| *name == text);
    let number = || text.parse::<u8>().ok().filter(|dscp| *dscp < 64);
    found.map(|(_, value)| *value).or_else(number)
}

pub(super) fn write(map: &PolicyMap) -> String {
    let mut text = String::new();
    write_to(map, &mut text).expect("a String takes everything");
    text
}

fn write_to(map: &PolicyMap, text: &mut String) -> std::fmt::Result {
    let profile = match map.profile {
        Profile::Paper => "paper",
        Profile::Auster => "auster",
    };
    writeln!(text, "Profile: {profile}")?;
    writeln!(text, "Generation: {}", map.generation)?;
    for rule in &map.rules {
        writeln!(text, "{rule}")?;
    }
    writeln!(text, "Default: action={}", map.default)?;
    let scheduling = &map.scheduling;
    write!(text, "Scheduler: algo={}", scheduling.algorithm.name())?;
    write!(text, ", hard_bytes={}", bytes_text(scheduling.bytes_hard))?;
    if let Some(rate) = map.link_rate {
        write!(text, ", link_rate={}", rate_text(rate))?;
    }
    if scheduling.packet_out_free {
        write!(text, ", packet_out=free")?;
    }
    writeln!(text)?;
    for (id, queue) in scheduling.queues.iter().enumerate() {
        write!(text, "Queue #{id}: weight={}", queue.weight)?;
        if let Some(rate) = queue.min_rate {
            write!(text, ", min_rate={}", rate_text(rate))?;
        }
        write!(text, ", deadline={}", duration_text(queue.deadline))?;
        write!(text, ", limit_msgs={}", queue.messages_max)?;
        write!(text, ", limit_bytes={}", bytes_text(queue.bytes_max))?;
        writeln!(text, ", max_age={}", duration_text(queue.age_max))?;
    }
    let implied = dscp_queues(scheduling.queues.len());
    for (dscp, queue) in map.dscp_queue.iter().enumerate() {
        if *queue != implied[dscp] {
            writeln!(text, "Dscp: {}={queue}", code_point_name(dscp as u8))?;
        }
    }
    Ok(())
}

/// An example of a setting, for error messages.
pub(super) fn example(key: &str) -> &'static str {
    match key {
        "weight" => "a weight from 1 to 65535",
        "min_rate" | "link_rate" => "a rate such as 2mbit or 500kbit",
        "deadline" | "max_age" => "a time such as 20ms or 1s",
        "limit_msgs" => "a number of messages from 1",
        _ => "a size such as 256k or 4m",
    }
}

const SIZES: [(&str, u64); 3] = [("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)];
/// Units in bits per second; rates are kept in bytes.
const RATES: [(&str, u64); 4] = [
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1000),
    ("bit", 1),
];
const TIMES: [(&str, u64); 4] = [
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
    ("s", 1_000_000_000),
];
const TIMES_WRITTEN: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

/// Reads a number of bytes; `k`, `m` and `g` are powers of 1024.
pub(super) fn bytes(text: &str) -> Option<usize> {
    let n = with_unit(text, &SIZES, Some(1))?;
    usize::try_from(n).ok()
}

/// Reads a rate in bits per second, and returns bytes per second.
pub(super) fn rate(text: &str) -> Option<u64> {
    let bits = with_unit(text, &RATES, None)?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

pub(super) fn duration(text: &str) -> Option<Duration> {
    with_unit(text, &TIMES, None).map(Duration::from_nanos)
}

fn with_unit(text: &str, units: &[(&str, u64)], bare: Option<u64>) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = |digits: &str| {
        let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| digits.parse::<u64>().ok()).flatten()
    };
    for (unit, factor) in units {
        if let Some(number) = text.strip_suffix(unit).and_then(|n| digits(n.trim_end())) {
            return number.checked_mul(*factor);
        }
    }
    digits(&text)?.checked_mul(bare?)
}

fn bytes_text(bytes: usize) -> String {
    let unit = SIZES
        .iter()
        .find(|(_, n)| (bytes as u64).is_multiple_of(*n));
    match unit {
        Some((unit, n)) if bytes > 0 => format!("{}{unit}", bytes as u64 / n),
        _ => bytes.to_string(),
    }
}

fn rate_text(bytes: u64) -> String {
    let bits = u128::from(bytes) * 8;
    let unit = RATES
        .iter()
        .find(|(_, n)| bits.is_multiple_of(u128::from(*n)));
    let (unit, n) = unit.unwrap_or(&("bit", 1));
    format!("{}{unit}", bits / u128::from(*n))
}

fn duration_text(time: Duration) -> String {
    let nanos = time.as_nanos();
    let unit = TIMES_WRITTEN
        .iter()
        .find(|(_, n)| nanos.is_multiple_of(u128::from(*n)));
    let (unit, n) = unit.unwrap_or(&("ns", 1));
    format!("{}{unit}", nanos / u128::from(*n))
}

impl TrafficType {
    /// All types, most urgent first.
    pub const ALL: [TrafficType; 4] = [
        TrafficType::Session,
        TrafficType::FlowSetup,
        TrafficType::Housekeeping,
        TrafficType::Data,
    ];

    /// Name in messages for people.
    pub fn name(self) -> &'static str {
        match self {
            TrafficType::Session => "session",
            TrafficType::FlowSetup => "flow setup",
            TrafficType::Housekeeping => "housekeeping",
            TrafficType::Data => "data",
        }
    }
}
