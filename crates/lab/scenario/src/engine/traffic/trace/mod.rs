//! `kind = "trace"`: the flows of the simulator as packets, whose entries may not all fit in a
//! switch's table.
//!
//! A flow is a pair of Ethernet addresses. Each packet carries its number. The lab sees a packet
//! where it arrives and, if the packet met no entry, on the control channel. There the lab also
//! sees what the controller does to entries.

mod judge;
mod sender;
mod wire;

use std::os::fd::AsRawFd;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use cli::failure::Failure;
use control::timeouts::budget::high_mark;
use control::timeouts::{Lease, Paper};
use nix::sys::socket::{MsgFlags, send};
use sim::table;
use testbed::capture::Capture;
use testbed::netns;
use testbed::network::SWITCHES_DEVICE;
use testbed::plane::{Controller, OPENFLOW_PORT};

use super::{Carried, Record, Stage, Traffic};
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::probe::in_plain_tcp;
use crate::engine::reader::Section;
use crate::engine::subject::FLOW_LENGTH;
use crate::engine::timeline::Window;
use crate::report::milliseconds;
use judge::{Evidence, judge};
use sender::{Sent, send_trace};
use wire::{Arrivals, Messages, announcement};

pub struct Trace {
    /// The number of entries for which each switch's table has room.
    entries: u32,
    /// New flows, as multiples of those that fill the table when each entry outlives its flow by
    /// `fits_idle`.
    load: f64,
    fits_idle: Duration,
    destinations: u16,
    /// A full switch evicts an entry instead of refusing another.
    evicts: bool,
    simulated: Simulated,
}

/// The simulator's policy with which the network is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Simulated {
    Lru,
    Fixed { idle_s: u16 },
    Paper,
    Lease,
}

/// Figures of the whole run.
pub const FIGURES: [(&str, Shape); 21] = [
    ("flows", ONE),
    ("sent", ONE),
    // Packets that the sender's own interface refused; they are not among those sent.
    ("refused", ONE),
    ("sender_late_ms", ONE),
    ("lost", ONE),
    // Of these, packets that had been sent to the controller.
    ("lost_asked", ONE),
    ("duplicates", ONE),
    // Packets that were sent to the controller.
    ("misses", ONE),
    // The same in the simulator.
    ("simulated_misses", ONE),
    // Misses of flows that had an entry and sent within their last gap.
    ("lapsed", ONE),
    // Entries that the controller removed before their time, and those of active flows.
    ("evicted", ONE),
    ("evicted_active", ONE),
    // The same for entries that the switch removed.
    ("put_out", ONE),
    ("put_out_active", ONE),
    ("flow_adds", ONE),
    // Entries for all flows to one destination.
    ("coarse_adds", ONE),
    // Entries that a switch refused, and other errors.
    ("table_full", ONE),
    ("errors", ONE),
    // Requests for statistics of tables or entries.
    ("reads", ONE),
    // 0.9 of the table, plus the most entries set between two reads of one switch.
    ("bound", ONE),
    // Frames or segments that the captures missed.
    ("unseen", ONE),
];

const ENTRIES: std::ops::RangeInclusive<u64> = 20..=1_000_000;
const LOADS: std::ops::Range<f64> = 0.001..100.1;
const FITS_IDLE: Duration = Duration::from_secs(10);
const FITS_IDLE_MAX: Duration = Duration::from_secs(3600);
const DESTINATIONS: u64 = 256;
/// The entries are addresses of hosts at one port, of which a controller may allow no more.
const DESTINATIONS_MAX: u64 = 4096;
/// No destination is announced for this long before the first packet.
const QUIET: Duration = Duration::from_millis(300);
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(400);
/// Time for the last packets to arrive.
const REST: Duration = Duration::from_millis(1500);
/// The one-way delay between switch and controller, as in the simulator's own scenarios.
const SIMULATED_DELAY: Duration = Duration::from_millis(1);
const FLOWS_MAX: u32 = 100_000_000;

impl Trace {
    pub fn read(section: &Section<'_>) -> Option<Trace> {
        let entries = section.required_count("entries", ENTRIES);
        let load = section.required_number("load", LOADS);
        let fits_idle = section.duration("fits_idle", Duration::ZERO..=FITS_IDLE_MAX);
        let destinations = section.count("destinations", 1..=DESTINATIONS_MAX);
        let overflow = section.word("overflow", &["refuse", "evict"]);
        let simulated = section.required_parsed("simulated", "\"lease\"");
        Some(Trace {
            entries: entries? as u32,
            load: load?,
            fits_idle: fits_idle.unwrap_or(FITS_IDLE),
            destinations: destinations.unwrap_or(DESTINATIONS) as u16,
            evicts: overflow == Some("evict"),
            simulated: simulated?,
        })
    }

    fn flows_per_s(&self) -> f64 {
        let lasts = *FLOW_LENGTH + self.fits_idle;
        self.load * f64::from(self.entries) / lasts.as_secs_f64()
    }

    fn traffic(&self) -> table::Traffic {
        table::Traffic::Campus {
            flows_per_s: self.flows_per_s(),
            destinations: self.destinations,
        }
    }

    /// Announces each destination to the controller, again and again until shortly before the first
    /// packet. No entry is set for any destination.
    fn announce(&self, stage: &Stage) -> Result<(), Failure> {
        let to = &stage.ends[0].to;
        let failed = |e: std::io::Error| Failure::machine(format!("hosts of {to}: {e}"));
        let socket = netns::open_packet_sender(to, "eth0").map_err(failed)?;
        let left = || stage.from.saturating_sub(stage.epoch.elapsed() + QUIET);
        while !left().is_zero() {
            for number in 0..self.destinations {
                let sent = send(socket.as_raw_fd(), &announcement(number), MsgFlags::empty());
                sent.map_err(|e| failed(e.into()))?;
            }
            std::thread::sleep(left().min(ANNOUNCE_INTERVAL));
        }
        Ok(())
    }

    /// All figures except the simulator's.
    fn figures_of(
        &self,
        sent: &Sent,
        arrivals: &Arrivals,
        messages: Messages,
        unseen: u64,
    ) -> Vec<(&'static str, f64)> {
        let mut log = messages.log;
        log.events.sort_by_key(|event| event.at_ns);
        let judged = judge(&Evidence {
            sent: &sent.packets,
            pairs: &sent.pairs,
            arrived: &arrivals.seen,
            asked: &log.asked,
            events: &log.events,
            evicts: self.evicts,
        });
        let bound = u64::from(high_mark(self.entries)) + log.set_per_read_max() as u64;
        let counts = [
            ("flows", sent.flows),
            ("sent", sent.packets.len() as u64),
            ("refused", sent.refused),
            ("lost", judged.lost),
            ("lost_asked", judged.lost_asked),
            ("duplicates", arrivals.duplicates),
            ("misses", judged.misses),
            ("lapsed", judged.lapsed),
            ("evicted", judged.evicted),
            ("evicted_active", judged.evicted_active),
            ("put_out", judged.put_out),
            ("put_out_active", judged.put_out_active),
            ("flow_adds", log.counts.flow_adds),
            ("coarse_adds", log.counts.coarse_adds),
            ("table_full", log.counts.table_full),
            ("errors", log.counts.errors),
            ("reads", log.counts.reads),
            ("bound", bound),
            ("unseen", unseen),
        ];
        let late = ("sender_late_ms", milliseconds(sent.late_max));
        let counts = counts.into_iter().map(|(name, n)| (name, n as f64));
        counts.chain([late]).collect()
    }
}

impl FromStr for Simulated {
    type Err = String;

    fn from_str(words: &str) -> Result<Simulated, String> {
        let fixed = words.strip_prefix("fixed,").map(str::parse);
        match (words, fixed) {
            (_, Some(Ok(idle_s))) => Ok(Simulated::Fixed { idle_s }),
            ("lru", _) => Ok(Simulated::Lru),
            ("paper", _) => Ok(Simulated::Paper),
            ("lease", _) => Ok(Simulated::Lease),
            _ => Err(format!(
                "'{words}' is no policy; write lru, paper, lease, or fixed,10 for an idle timeout \
                 of 10 s"
            )),
        }
    }
}

impl Simulated {
    fn policy(self) -> table::Policy {
        match self {
            Simulated::Lru => table::Policy::Lru,
            Simulated::Fixed { idle_s } => table::Policy::Fixed { idle_s, hard_s: 0 },
            Simulated::Paper => table::Policy::Paper(Paper::default()),
            Simulated::Lease => table::Policy::Lease {
                lease: Lease::default(),
                aggregates: None,
            },
        }
    }
}

impl Traffic for Trace {
    fn check(&self, controller: &Controller) -> Result<(), String> {
        in_plain_tcp(controller)
    }

    fn packets_per_s(&self, _: usize) -> (f64, &'static str) {
        (self.flows_per_s(), "load")
    }

    fn carry(&self, stage: &Stage<'_>) -> Carried {
        let ends = &stage.ends[0];
        let failed = |e: std::io::Error| Failure::machine(format!("trace from {}: {e}", ends.from));
        self.announce(stage)?;
        let socket = netns::open_packet_sender(&ends.from, "eth0").map_err(failed)?;
        let arrivals = Capture::open(&ends.to, "eth0", Arrivals::default()).map_err(failed)?;
        let messages = Messages::new(OPENFLOW_PORT);
        let messages = Capture::open_both_ways(&stage.switches, SWITCHES_DEVICE, messages);
        let messages = messages.map_err(failed)?;
        std::thread::sleep(stage.from.saturating_sub(stage.epoch.elapsed()));
        let lasts = stage.until.saturating_sub(stage.from);
        let sent = send_trace(&socket, self.traffic(), stage.seed, lasts).map_err(failed)?;
        std::thread::sleep(REST);
        let (arrivals, mut unseen) = arrivals.close().map_err(failed)?;
        let (messages, missed) = messages.close().map_err(failed)?;
        unseen += missed + messages.gaps();
        Ok(Box::new(Findings {
            figures: self.figures_of(&sent, &arrivals, messages, unseen),
            simulation: table::Setup {
                policy: self.simulated.policy(),
                capacity: self.entries,
                traffic: self.traffic(),
                delay: SIMULATED_DELAY,
                duration: lasts,
                flows_max: FLOWS_MAX,
            },
            seed: stage.seed,
            simulated_misses: OnceLock::new(),
        }))
    }
}

/// The figures of a run, and the same trace for the simulator.
struct Findings {
    figures: Vec<(&'static str, f64)>,
    simulation: table::Setup,
    seed: u64,
    /// Computed when a column asks for it, so that no simulation runs beside the measurement.
    simulated_misses: OnceLock<f64>,
}

impl Record for Findings {
    fn figure(&self, name: &str, _: &Window) -> Value {
        let found = self.figures.iter().find(|(known, _)| *known == name);
        Value::One(match found {
            Some((_, figure)) => *figure,
            None => {
                let simulate = || self.simulation.run(self.seed).misses as f64;
                *self.simulated_misses.get_or_init(simulate)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIMULATED: &str = "simulated_misses";

    fn trace(load: f64, simulated: &str) -> Trace {
        Trace {
            entries: 100,
            load,
            fits_idle: FITS_IDLE,
            destinations: 16,
            evicts: false,
            simulated: simulated.parse().unwrap(),
        }
    }

    fn figure(findings: &Findings, name: &str) -> f64 {
        let window = Window {
            event: Duration::ZERO,
            from: Duration::ZERO,
            to: Duration::MAX,
        };
        match findings.figure(name, &window) {
            Value::One(one) => one,
            many => panic!("{name}: {many:?}"),
        }
    }

    #[test]
    fn each_figure_is_found_and_the_simulator_has_the_same_trace() {
        let of = |load, simulated| {
            let trace = trace(load, simulated);
            let sent = Sent::default();
            let figures = trace.figures_of(&sent, &Arrivals::default(), Messages::new(6653), 3);
            Findings {
                figures,
                simulation: table::Setup {
                    policy: trace.simulated.policy(),
                    capacity: trace.entries,
                    traffic: trace.traffic(),
                    delay: SIMULATED_DELAY,
                    duration: Duration::from_secs(5),
                    flows_max: FLOWS_MAX,
                },
                seed: 1,
                simulated_misses: OnceLock::new(),
            }
        };
        let found = of(5.0, "fixed,10");
        let mut known: Vec<&str> = found.figures.iter().map(|(name, _)| *name).collect();
        known.push(SIMULATED);
        known.sort_unstable();
        let mut names = FIGURES.map(|(name, _)| name);
        names.sort_unstable();
        assert_eq!(known, names);
        assert_eq!(
            (figure(&found, "bound"), figure(&found, "unseen")),
            (90.0, 3.0)
        );
        // The table is full after three of five seconds. Fixed-timeout entries are then refused.
        let [fixed, lru] = [&found, &of(5.0, "lru")].map(|found| figure(found, SIMULATED));
        assert!(fixed > lru && lru >= 5.0 * 30.0, "{fixed} {lru}");
        assert!(figure(&of(0.5, "lease"), SIMULATED) < lru);
    }

    #[test]
    fn the_load_counts_the_flows_that_fill_the_table() {
        let [one, five] = [1.0, 5.0].map(|load| trace(load, "lease").flows_per_s());
        assert_eq!(five, 5.0 * one);
        let lasts_s = FLOW_LENGTH.as_secs_f64() + 10.0;
        assert!((one * lasts_s - 100.0).abs() < 1e-6, "by Little's law");
    }

    #[test]
    fn a_policy_of_the_simulator_is_named() {
        assert_eq!("fixed,3".parse(), Ok(Simulated::Fixed { idle_s: 3 }));
        for words in ["fixed", "fixed,soon", "fifo", ""] {
            let problem = words.parse::<Simulated>().unwrap_err();
            assert!(problem.contains("write lru, paper"), "{problem}");
        }
    }
}
