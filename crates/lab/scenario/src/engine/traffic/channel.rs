//! `kind = "channel"`: OpenFlow messages of agents at two ends, over a link of their own.
//!
//! Each end has its own network namespace, so only the method carries the messages: no switch, no
//! controller.

use std::ops::Range;

use bench::channel::condition::{Bursts, Cell, Condition, Rtt, Sizes};
use bench::channel::method::{METHODS, Method, RELAY_WIRE};
use bench::channel::{self, CellResult, LinkFigures};
use cli::output::note;

use super::{Carried, Record, Stage, Traffic};
use crate::engine::expression::{MANY, ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::report::milliseconds;

pub struct Channel {
    method: &'static Method,
    condition: Condition,
    /// The number of agents at each end.
    agents: usize,
}

/// Figures of the whole run, except `delay_ms`. Counts cover both ends.
pub const FIGURES: [(&str, Shape); 19] = [
    // For each delivered message: from the time it was due until the other end had it all.
    ("delay_ms", MANY),
    ("messages", ONE),
    ("undelivered", ONE),
    // Messages that arrived twice or are not ours.
    ("wrong", ONE),
    // Messages that arrived after a later message of their agent, and of their agent and flow.
    ("overtaken", ONE),
    ("overtaken_in_flow", ONE),
    // Bytes on the link besides the messages, for each message; also with preamble, FCS and gap.
    ("overhead_bytes", ONE),
    ("line_overhead_bytes", ONE),
    ("frames", ONE),
    // CPU time for each message: of the ends, and of the link.
    ("cpu_us", ONE),
    ("link_cpu_us", ONE),
    // The longest delay of an agent's wake-up, and the link's mean lateness.
    ("sender_late_ms", ONE),
    ("link_late_us", ONE),
    // Frames lost by this machine, and those that the link had to lose, with their places.
    ("dropped", ONE),
    ("lost", ONE),
    ("first_lost", MANY),
    // The differences between the link's counts and the kernel's.
    ("miscounted", ONE),
    ("seed", ONE),
    // The version of the relays' wire format.
    ("relay_wire", ONE),
];

const RATES_PER_S: Range<f64> = 0.1..10_000.1;
const LOSSES_PERCENT: Range<f64> = 0.0..50.1;
const AGENTS_MAX: u64 = 16;
/// Agents by default: OpenFlow and OVSDB.
const AGENTS: u64 = 2;

impl Channel {
    pub fn read(section: &Section<'_>) -> Option<Channel> {
        let names = METHODS.each_ref().map(|method| method.name);
        let method = section.required_word("method", &names);
        let rate_per_s = section.required_number("rate_per_s", RATES_PER_S);
        let loss_percent = section.number("loss_percent", LOSSES_PERCENT);
        let rtt: Option<Rtt> = section.required_parsed("rtt_ms", "100");
        let sizes: Option<Sizes> = section.required_parsed("size_bytes", "220");
        let bursts = section.parsed("burst").unwrap_or(Bursts::NONE);
        let agents = section.count("agents", 1..=AGENTS_MAX).unwrap_or(AGENTS);
        let loss_percent = loss_percent.unwrap_or(0.0);
        if let Err(problem) = bursts.check(loss_percent) {
            section.problem("burst", problem);
        }
        Some(Channel {
            method: Method::parse(method?).ok()?,
            condition: Condition {
                rate_per_s: rate_per_s?,
                loss_percent,
                bursts,
                rtt: rtt?,
                sizes: sizes?,
            },
            agents: agents as usize,
        })
    }
}

impl Traffic for Channel {
    fn needs_network(&self) -> bool {
        false
    }

    fn packets_per_s(&self, _: usize) -> (f64, &'static str) {
        (2.0 * self.condition.rate_per_s, "rate_per_s")
    }

    /// Messages that are missing long after the last one are what is measured; a cell without
    /// figures has none.
    fn carry(&self, stage: &Stage<'_>) -> Carried {
        std::thread::sleep(stage.from.saturating_sub(stage.epoch.elapsed()));
        let seconds = stage.until.saturating_sub(stage.from).as_secs_f64();
        let each = self.condition.rate_per_s * seconds / self.agents as f64;
        let result = channel::measure(Cell {
            method: self.method,
            condition: self.condition.clone(),
            agents: self.agents,
            messages_per_agent: (each.round() as u32).max(1),
            seed: stage.seed,
        });
        let about = || format!("  {}, {}", self.method.name, self.condition);
        match &result {
            Err(problem) => note!("{}: no figures: {problem}", about()),
            Ok(CellResult {
                broken: Some(broken),
                undelivered: 1..,
                ..
            }) => note!("{}: a connection broke: {broken}", about()),
            Ok(_) => {}
        }
        Ok(Box::new(Messages {
            from: stage.from,
            seed: stage.seed,
            result: result.ok(),
        }))
    }
}

/// The messages of one run.
struct Messages {
    /// The beginning of the traffic.
    from: std::time::Duration,
    seed: u64,
    result: Option<CellResult>,
}

impl Record for Messages {
    fn figure(&self, name: &str, window: &Window) -> Value {
        let Some(result) = &self.result else {
            let known = FIGURES.iter().find(|(known, _)| *known == name);
            return match known {
                Some((_, shape)) if shape.many => Value::Many(vec![f64::NAN]),
                _ => Value::One(f64::NAN),
            };
        };
        let sum = |of: fn(&LinkFigures) -> u64| result.links.iter().map(of).sum::<u64>() as f64;
        let late = result.links.iter().map(|link| link.late_mean_us);
        Value::One(match name {
            "delay_ms" => {
                let arrivals = result.arrivals.iter();
                let own = arrivals.filter(|message| window.has(self.from + message.due));
                return Value::Many(own.map(|m| m.delay.as_secs_f64() * 1e3).collect());
            }
            "first_lost" => {
                let places = result.links.iter().flat_map(|link| &link.first_lost);
                return Value::Many(places.map(|place| *place as f64).collect());
            }
            "messages" => result.messages as f64,
            "undelivered" => result.undelivered as f64,
            "wrong" => result.wrong as f64,
            "overtaken" => result.overtaken as f64,
            "overtaken_in_flow" => result.overtaken_in_flow as f64,
            "overhead_bytes" => result.overhead_bytes,
            "line_overhead_bytes" => result.line_overhead_bytes,
            "frames" => result.frames,
            "cpu_us" => result.cpu_us,
            "link_cpu_us" => result.link_cpu_us,
            "sender_late_ms" => milliseconds(result.pacing_late_max),
            "link_late_us" => late.fold(0.0, f64::max),
            "dropped" => sum(|link| link.dropped),
            "lost" => sum(|link| link.lost),
            "miscounted" => sum(|link| link.miscounted),
            "seed" => self.seed as f64,
            _ => f64::from(RELAY_WIRE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::channel::Arrival;
    use std::time::Duration;

    #[test]
    fn delays_are_of_messages_that_were_due_in_the_window() {
        let ms = Duration::from_millis;
        let link = LinkFigures {
            lost: 2,
            first_lost: vec![40, 41],
            dropped: 0,
            late_mean_us: 5.0,
            miscounted: 1,
        };
        let result = CellResult {
            messages: 3,
            undelivered: 1,
            wrong: 0,
            overhead_bytes: 88.0,
            line_overhead_bytes: 119.0,
            frames: 1.5,
            arrivals: [(100, 50), (900, 60)]
                .map(|(due, delay)| Arrival {
                    due: ms(due),
                    delay: ms(delay),
                })
                .to_vec(),
            overtaken: 0,
            overtaken_in_flow: 0,
            cpu_us: 30.0,
            link_cpu_us: 20.0,
            pacing_late_max: ms(1),
            links: [link.clone(), link],
            broken: None,
        };
        let mut messages = Messages {
            from: ms(200),
            seed: 7,
            result: Some(result),
        };
        let window = |to| Window {
            event: Duration::ZERO,
            from: Duration::ZERO,
            to,
        };
        let all = window(Duration::MAX);
        let figure = |name| messages.figure(name, &all);
        assert_eq!(figure("delay_ms"), Value::Many(vec![50.0, 60.0]));
        let early = messages.figure("delay_ms", &window(ms(1000)));
        assert_eq!(early, Value::Many(vec![50.0]));
        assert_eq!(
            figure("first_lost"),
            Value::Many(vec![40.0, 41.0, 40.0, 41.0])
        );
        let found = ["undelivered", "lost", "miscounted", "seed", "link_late_us"].map(figure);
        assert_eq!(found, [1.0, 4.0, 2.0, 7.0, 5.0].map(Value::One));
        messages.result = None;
        for (name, shape) in FIGURES {
            match messages.figure(name, &all) {
                Value::One(none) => assert!(none.is_nan() && !shape.many, "{name}"),
                Value::Many(none) => assert!(none[0].is_nan() && shape.many, "{name}"),
            }
        }
    }
}
