//! `[channel]`: the control channel of one switch, with the production classifier and schedulers.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use sched::Direction;
use sched::policy::{Algorithm, PolicyMap};
use sim::channel::{Arrivals, Cross, LineSetup, MESSAGE_BYTES};
use sim::channel::{Outcome, Retry, Setup, Target, Traffic};

use super::Subject;
use crate::engine::expression::{MANY, ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::engine::traffic::Record;

/// Figures of the whole run.
pub const FIGURES: [(&str, Shape); 12] = [
    // For each completed transaction: from its first PACKET_IN to the PACKET_OUT.
    ("hop_ns", MANY),
    // For each first PACKET_IN that arrived: the time to the controller.
    ("one_way_ns", MANY),
    // Lost messages of the target, as a share of those that its transactions send one way, or both
    // ways if both are loaded: a direction without other traffic loses nothing.
    ("loss_percent", ONE),
    // The same as a share of all messages that the target sends: both directions and retries.
    ("loss_of_sent_percent", ONE),
    // Packets whose first PACKET_IN and PACKET_OUT arrived.
    ("throughput_kbit", ONE),
    ("beyond_ms", ONE),
    ("cross_loss_percent", ONE),
    // Transactions completed, as a share of those begun.
    ("done_percent", ONE),
    // Target and cross traffic, as a share of the line's rate.
    ("offered_load", ONE),
    // Mean time that a message to the controller waits for the wire.
    ("wait_us", ONE),
    // Share of the time that the wire to the controller was sending.
    ("busy_percent", ONE),
    // Number of times that a wire was idle while something waited.
    ("idle_with_work", ONE),
];

const RATES_MBIT: Range<f64> = 0.001..1e6;
const RATES_KBIT: Range<f64> = 0.0..1e9;
const LOADS: Range<f64> = 0.0..10.1;
const TIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
const RETRY_TIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
const BELOW_BYTES_MAX: u64 = 1 << 30;
const QUEUE_MESSAGES: RangeInclusive<u64> = 1..=1_000_000;
const PORTS: RangeInclusive<u64> = 0..=u16::MAX as u64;
const NO_TARGET: Target = Target {
    udp_dst: 0,
    per_second: 0.0,
    arrivals: Arrivals::Even,
};
/// The port where cross packets arrive; the target's port is 1.
const CROSS_PORT: u32 = 2;
const CROSS_UDP_DST: u64 = 30_000;

struct Channel {
    setup: Setup,
    packet_bytes: u64,
    beyond_ms: f64,
}

/// After a reported mistake, returns a value that is never run.
pub fn read(section: &Section<'_>, duration: Duration) -> Box<dyn Subject> {
    Box::new(Channel::read(section, duration))
}

impl Channel {
    fn read(section: &Section<'_>, duration: Duration) -> Channel {
        let rate_mbit = section.required_number("rate_mbit", RATES_MBIT);
        let below_bytes = section.required_count("below_bytes", 0..=BELOW_BYTES_MAX);
        let time = |key| section.duration(key, TIMES).unwrap_or_default();
        let (target, packet_bytes) = target(section).unwrap_or((NO_TARGET, 0));
        let (retry, drain) = retry(section);
        let mut setup = Setup {
            map: map(section).unwrap_or_else(PolicyMap::none),
            line: LineSetup {
                rate_bps: (rate_mbit.unwrap_or(1.0) * 1e6) as u64,
                propagation: time("propagation"),
                below_bytes: below_bytes.unwrap_or(0) as usize,
            },
            controller: time("controller"),
            controller_jitter: time("controller_jitter"),
            classification: time("classification"),
            target,
            cross: Vec::new(),
            retry,
            is_answered: section.truth("answered").unwrap_or(true),
            duration,
            drain,
        };
        setup.cross = cross(section, &setup).unwrap_or_default();
        Channel {
            setup,
            packet_bytes,
            beyond_ms: section.number("beyond_ms", 0.0..60_000.1).unwrap_or(0.0),
        }
    }
}

/// The policy map with the algorithm and the limit of its queues. FIFO has one queue and no map.
fn map(section: &Section<'_>) -> Option<PolicyMap> {
    let text = section.required_text("policy", "\"Default: action=queue_id:0\"");
    let word = section.required_word("scheduler", &Algorithm::ALL.map(Algorithm::name));
    let messages_max = section.required_count("queue_messages", QUEUE_MESSAGES);
    let parsed = PolicyMap::parse(&text?).map_err(|problems| {
        let problems = problems.iter();
        problems.for_each(|problem| section.problem("policy", problem));
    });
    let algorithm = Algorithm::named(word?)?;
    let mut map = match algorithm {
        Algorithm::Fifo => PolicyMap::none(),
        _ => parsed.ok()?.0,
    };
    map.scheduling.algorithm = algorithm;
    for queue in &mut map.scheduling.queues {
        queue.messages_max = messages_max? as usize;
    }
    Some(map)
}

/// The flow whose delay is measured, and the length of its packets. Each packet becomes a
/// PACKET_IN.
fn target(top: &Section<'_>) -> Option<(Target, u64)> {
    top.missing(
        "target",
        "{ udp_dst = 20000, kbit = 1000, packet_bytes = 512 }",
    );
    let section = top.section("target")?;
    let udp_dst = section.required_count("udp_dst", PORTS);
    let kbit = section.required_number("kbit", RATES_KBIT);
    let bytes = section.required_count("packet_bytes", 1..=u32::MAX.into());
    let arrivals = arrivals(&section);
    section.finish();
    let target = Target {
        udp_dst: udp_dst? as u16,
        per_second: kbit? * 1000.0 / (8.0 * bytes? as f64),
        arrivals,
    };
    Some((target, bytes?))
}

/// The sources of the traffic beside the target. Their load is a share of the line's rate.
fn cross(top: &Section<'_>, setup: &Setup) -> Option<Vec<Cross>> {
    top.missing("cross", "{ traffic = \"packets\", load = 0.8 }");
    let section = top.section("cross")?;
    let traffic = section.required_word("traffic", &["packets", "echo", "data"]);
    let load = section.required_number("load", LOADS);
    let udp_dst = section.count("udp_dst", PORTS).unwrap_or(CROSS_UDP_DST);
    let bytes = section.count("packet_bytes", 64..=9000);
    if traffic == Some("data") {
        section.missing("packet_bytes", "1000");
    } else if section.has("packet_bytes") {
        section.problem("packet_bytes", "only traffic = \"data\" takes it");
    }
    if section.has("udp_dst") && matches!(traffic, Some("data" | "echo")) {
        section.problem("udp_dst", "only traffic = \"packets\" takes it");
    }
    let both_ways = section.truth("both_ways").unwrap_or(false);
    let has_target = section.truth("load_has_target").unwrap_or(false);
    let arrivals = arrivals(&section);
    section.finish();
    let capacity = setup.capacity_per_second();
    let target = match has_target {
        true => setup.target.per_second / capacity,
        false => 0.0,
    };
    let share = (load? - target).max(0.0);
    let (traffic, per_second) = match traffic? {
        "echo" => (Traffic::Echo, share * capacity),
        "data" => {
            let bytes = bytes? as u32;
            let bits = f64::from(bytes) * 8.0;
            (
                Traffic::Data { bytes },
                share * setup.line.rate_bps as f64 / bits,
            )
        }
        _ => {
            let (udp_dst, in_port) = (udp_dst as u16, CROSS_PORT);
            (Traffic::Packets { udp_dst, in_port }, share * capacity)
        }
    };
    let source = |direction| Cross {
        direction,
        traffic,
        per_second,
        arrivals,
    };
    let other = both_ways.then_some(Direction::ToSwitch);
    let directions = [Direction::ToController].into_iter().chain(other);
    Some(directions.map(source).collect())
}

/// The retries of unanswered transactions, and the time for those under way at the end.
fn retry(top: &Section<'_>) -> (Retry, Duration) {
    let section = top.section("retry");
    let own = section.as_ref();
    let after = own.and_then(|own| own.duration("after", RETRY_TIMES));
    let times = own.and_then(|own| own.count("times", 0..=u8::MAX.into()));
    let drain = own.and_then(|own| own.duration("drain", TIMES));
    if let Some(section) = section {
        section.finish();
    }
    let retry = Retry {
        after: after.unwrap_or(Duration::from_secs(1)),
        times: times.unwrap_or(3) as u8,
    };
    (retry, drain.unwrap_or_default())
}

/// The pattern of arrivals. Bursts have a peak of 1.25 times the mean.
fn arrivals(section: &Section<'_>) -> Arrivals {
    match section.word("arrivals", &["poisson", "even", "bursts"]) {
        Some("even") => Arrivals::Even,
        Some("bursts") => Arrivals::Bursts {
            on: Duration::from_millis(20),
            off: Duration::from_millis(5),
        },
        _ => Arrivals::Poisson,
    }
}

impl Subject for Channel {
    fn length(&self) -> Duration {
        self.setup.duration
    }

    fn run(&self, seed: u64) -> Box<dyn Record> {
        Box::new(self.ran(self.setup.run(seed)))
    }
}

impl Channel {
    fn ran(&self, outcome: Outcome) -> Ran {
        Ran {
            loaded_directions: self.loaded_directions(),
            offered_load: self.offered_load(),
            packet_kbit: self.packet_bytes as f64 * 8.0 / 1000.0,
            seconds: self.setup.duration.as_secs_f64(),
            beyond_ms: self.beyond_ms,
            outcome,
        }
    }

    /// The number of directions in which other traffic shares the line with the target.
    fn loaded_directions(&self) -> u64 {
        match self.setup.is_answered && self.setup.cross.len() > 1 {
            true => 2,
            false => 1,
        }
    }

    /// Target and cross traffic to the controller, as a share of the line's rate.
    fn offered_load(&self) -> f64 {
        let to_controller = |cross: &&Cross| cross.direction == Direction::ToController;
        let sources = self.setup.cross.iter().filter(to_controller);
        let cross = sources.map(|cross| match cross.traffic {
            Traffic::Data { bytes } => cross.per_second * f64::from(bytes),
            _ => cross.per_second * MESSAGE_BYTES as f64,
        });
        let target = self.setup.target.per_second * MESSAGE_BYTES as f64;
        (cross.sum::<f64>() + target) * 8.0 / self.setup.line.rate_bps as f64
    }
}

/// A run, and the values of the channel that its figures need.
struct Ran {
    loaded_directions: u64,
    offered_load: f64,
    packet_kbit: f64,
    seconds: f64,
    beyond_ms: f64,
    outcome: Outcome,
}

impl Record for Ran {
    fn figure(&self, name: &str, _: &Window) -> Value {
        let run = &self.outcome;
        let line = &run.lines[0];
        let many = |list: &[u64]| Value::Many(list.iter().map(|n| *n as f64).collect());
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / (whole as f64).max(1.0);
        let cross = |of: fn(&(u64, u64)) -> u64| run.cross.iter().map(of).sum::<u64>();
        Value::One(match name {
            "hop_ns" => return many(&run.delays_ns),
            "one_way_ns" => return many(&run.one_way_ns),
            "loss_percent" => percent(run.messages_lost, run.begun * self.loaded_directions),
            "loss_of_sent_percent" => percent(run.messages_lost, run.messages),
            "throughput_kbit" => run.done_at_once as f64 * self.packet_kbit / self.seconds,
            "beyond_ms" => self.beyond_ms,
            "cross_loss_percent" => percent(cross(|c| c.1), cross(|c| c.0)),
            "done_percent" => percent(run.done, run.begun),
            "offered_load" => self.offered_load,
            "wait_us" => line.waited_ns as f64 / 1e3 / (line.sent as f64).max(1.0),
            "busy_percent" => line.busy_ns as f64 / 1e7 / run.virtual_time.as_secs_f64(),
            "idle_with_work" => run.lines.iter().map(|l| l.idle_with_work).sum::<u64>() as f64,
            _ => f64::NAN,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::reader::{Node, Parameters, Problems};

    const TEXT: &str = r#"
rate_mbit = 100
below_bytes = 131072
beyond_ms = 20
scheduler = "fifo"
queue_messages = 100
policy = "Default: action=queue_id:0"
target = { udp_dst = 20000, kbit = 1000, packet_bytes = 512 }
cross = { traffic = "packets", load = 1.05, both_ways = true }
"#;

    fn channel(text: &str) -> Channel {
        let (root, none) = (Node::parse(text).unwrap(), Parameters::default());
        let problems = Problems::new(text);
        let section = Section::new(&root, &none, &problems);
        Channel::read(&section, Duration::from_secs(10))
    }

    #[test]
    fn a_load_with_the_target_in_it_is_the_line_s_and_one_without_is_beside_it() {
        let per_second = |text: &str| channel(text).setup.cross[0].per_second;
        // 100 Mbit/s in messages of 220 bytes, and the target's 1 Mbit/s in packets of 512.
        assert!((per_second(TEXT) - 1.05 * 56_818.2).abs() < 0.1);
        let together = TEXT.replace("both_ways", "load_has_target = true, both_ways");
        assert!((per_second(&together) - (1.05 * 56_818.2 - 244.1)).abs() < 0.1);
        assert!((channel(TEXT).offered_load() - 1.0543).abs() < 1e-4);
        assert!((channel(&together).offered_load() - 1.05).abs() < 1e-9);
    }

    /// Out-of-band traffic loads both directions, in-band traffic one.
    #[test]
    fn loss_is_of_the_messages_that_go_where_the_load_is() {
        let directions = |text: &str| channel(text).loaded_directions();
        assert_eq!(directions(TEXT), 2);
        assert_eq!(directions(&TEXT.replace(", both_ways = true", "")), 1);
        assert_eq!(directions(&format!("answered = false{TEXT}")), 1);
    }

    #[test]
    fn figures_are_shares_and_rates_of_what_was_sent() {
        let found = channel(TEXT).ran(Outcome {
            begun: 100,
            done: 100,
            done_at_once: 90,
            messages: 208,
            messages_lost: 8,
            delays_ns: vec![10_000_000, 20_000_000],
            cross: vec![(1000, 50), (1000, 150)],
            virtual_time: Duration::from_secs(10),
            ..Outcome::default()
        });
        let whole = Window {
            event: Duration::ZERO,
            from: Duration::ZERO,
            to: Duration::MAX,
        };
        for (name, right) in [
            ("loss_percent", 4.0),
            ("loss_of_sent_percent", 800.0 / 208.0),
            // 90 packets of 512 bytes in 10 seconds.
            ("throughput_kbit", 36.864),
            ("cross_loss_percent", 10.0),
            ("done_percent", 100.0),
            ("beyond_ms", 20.0),
        ] {
            assert_eq!(found.figure(name, &whole), Value::One(right), "{name}");
        }
        let delays = Value::Many(vec![10_000_000.0, 20_000_000.0]);
        assert_eq!(found.figure("hop_ns", &whole), delays);
    }
}
