//! `[table]`: the flow table of one switch and the timeouts of its entries, with the production
//! code.

use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;
use std::time::Duration;

use control::timeouts::{Lease, Paper};
use sim::table::{Outcome, Policy, Setup, Traffic, occupancy_bound};

use super::Subject;
use crate::engine::expression::{MANY, ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::engine::traffic::Record;

/// Figures of the whole run, except `entries`.
pub const FIGURES: [(&str, Shape); 24] = [
    // At the end of each second.
    ("entries", MANY),
    // The virtual time until the last new flow, or the scenario's.
    ("seconds", ONE),
    ("capacity", ONE),
    ("flows", ONE),
    ("packets", ONE),
    // Flows under way, on average.
    ("alive", ONE),
    ("occupancy_mean", ONE),
    ("occupancy_max", ONE),
    // Nine tenths of the capacity plus the new entries between two reads.
    ("occupancy_bound", ONE),
    // Packets without an entry, and those among them whose flow had an entry before.
    ("misses", ONE),
    ("misses_again", ONE),
    ("flow_mods", ONE),
    ("table_full", ONE),
    ("lost", ONE),
    ("evicted", ONE),
    ("evicted_active", ONE),
    // The same for evictions while more entries were in use than fit.
    ("evicted_pausing", ONE),
    ("evicted_pausing_active", ONE),
    ("all_in_use", ONE),
    ("coarse_entries", ONE),
    ("without_entry", ONE),
    ("reads", ONE),
    ("renewals", ONE),
    ("renewals_per_s_max", ONE),
];

const CAPACITIES: RangeInclusive<u64> = 10..=1 << 20;
/// New flows, as multiples of those that fill the table.
const LOADS: Range<f64> = 0.001..100.1;
const FITS_IDLE: Duration = Duration::from_secs(10);
const FITS_IDLE_MAX: Duration = Duration::from_secs(3600);
/// A flow is known by less than 31 bits.
const FLOWS_MAX: u32 = 100_000_000;
const STEADY_FLOWS: RangeInclusive<u64> = 1..=1_000_000;
const DESTINATIONS: u64 = 256;
const DELAY_MAX: Duration = Duration::from_secs(10);
/// The mean time from a flow's first packet to its last.
pub static FLOW_LENGTH: LazyLock<Duration> = LazyLock::new(Setup::mean_duration);
/// Ingress ports of flows to one destination, at a switch with links to three others.
const ENTRANCES: u16 = 2;

struct Table {
    setup: Setup,
}

/// After a reported mistake, returns a value that is never run.
pub fn read(section: &Section<'_>, mut duration: Duration) -> Box<dyn Subject> {
    let capacity = section.required_count("capacity", CAPACITIES).unwrap_or(1) as u32;
    let delay = section.required_duration("delay", Duration::ZERO..=DELAY_MAX);
    let flows = section.count("flows", 1..=FLOWS_MAX.into());
    section.missing("timeouts", "{ policy = \"lease\" }");
    let timeouts = section.section_of_cell("timeouts");
    let (steady, campus) = (steady(section), campus(section, capacity));
    let traffic = steady.unwrap_or(campus);
    if let (Some(flows), Traffic::Campus { flows_per_s, .. }) = (flows, traffic) {
        let seconds = flows as f64 / flows_per_s;
        duration = Duration::from_secs_f64(seconds.min(duration.as_secs_f64()));
    }
    let setup = Setup {
        policy: timeouts.and_then(policy).unwrap_or(Policy::Lru),
        capacity,
        traffic,
        delay: delay.unwrap_or_default(),
        duration,
        flows_max: flows.map_or(FLOWS_MAX, |flows| flows as u32),
    };
    Box::new(Table { setup })
}

/// Flows that begin and end. At a load of 1, the rate of new flows fills a table whose entries
/// outlive their flows by `fits_idle`.
fn campus(section: &Section<'_>, capacity: u32) -> Traffic {
    let fits_idle = section.duration("fits_idle", Duration::ZERO..=FITS_IDLE_MAX);
    let destinations = section.count("destinations", 1..=u16::MAX.into());
    let load = section.number("load", LOADS);
    if section.has("load") == section.has("steady") {
        let right = "write one of load, as a multiple of what fits, and steady";
        section.problem("load", right);
    }
    for key in ["fits_idle", "destinations"] {
        if section.has(key) && section.has("steady") {
            section.problem(key, "only load takes it");
        }
    }
    let lasts_s = FLOW_LENGTH.as_secs_f64() + fits_idle.unwrap_or(FITS_IDLE).as_secs_f64();
    Traffic::Campus {
        flows_per_s: load.unwrap_or(1.0) * f64::from(capacity) / lasts_s,
        destinations: destinations.unwrap_or(DESTINATIONS) as u16,
    }
}

/// Flows that send for ever.
fn steady(section: &Section<'_>) -> Option<Traffic> {
    let section = section.section("steady")?;
    let flows = section.required_count("flows", STEADY_FLOWS);
    let gap =
        section.required_duration("gap", Duration::from_millis(1)..=Duration::from_secs(3600));
    let over = section.required_duration("over", Duration::ZERO..=Duration::from_secs(36_000));
    section.finish();
    Some(Traffic::Steady {
        flows: flows? as u32,
        gap: gap?,
        over: over?,
    })
}

fn policy(section: Section<'_>) -> Option<Policy> {
    let name = section.required_word("policy", &["lru", "fixed", "paper", "lease"]);
    let count = |key, least, most: u32| section.count(key, least..=most.into());
    let seconds = |key, least| count(key, least, u16::MAX.into()).map(|seconds| seconds as u16);
    let (idle_s, hard_s) = (seconds("idle_s", 0), seconds("hard_s", 0));
    let (lease_s, lease_max_s) = (seconds("lease_s", 1), seconds("lease_max_s", 1));
    let renewals_max = count("renewals_max", 1, u32::MAX);
    let aggregate = section.truth("aggregate").unwrap_or(false);
    let entrances = seconds("entrances", 1).unwrap_or(ENTRANCES);
    let own = |policy| move |key| (policy, key);
    let fixed = ["idle_s", "hard_s"].map(own("fixed"));
    let lease = [
        "lease_s",
        "lease_max_s",
        "renewals_max",
        "aggregate",
        "entrances",
    ];
    for (policy, key) in fixed.into_iter().chain(lease.map(own("lease"))) {
        if section.has(key) && name.is_some_and(|name| name != policy) {
            section.problem(key, format!("only policy = \"{policy}\" takes it"));
        }
    }
    if section.has("entrances") && !aggregate {
        section.problem("entrances", "only aggregate = true takes it");
    }
    section.finish();
    let lease = Lease::default();
    Some(match name? {
        "lru" => Policy::Lru,
        "fixed" => Policy::Fixed {
            idle_s: idle_s.unwrap_or(0),
            hard_s: hard_s.unwrap_or(0),
        },
        "paper" => Policy::Paper(Paper::default()),
        _ => Policy::Lease {
            lease: Lease {
                lease_s,
                lease_max_s: lease_max_s.unwrap_or(lease.lease_max_s),
                renewals_max: renewals_max.map_or(lease.renewals_max, |n| n as u32),
                ..lease
            },
            aggregates: aggregate.then_some(entrances),
        },
    })
}

impl Subject for Table {
    fn length(&self) -> Duration {
        self.setup.duration
    }

    fn run(&self, seed: u64) -> Box<dyn Record> {
        Box::new(Ran {
            seconds: self.setup.duration.as_secs_f64(),
            capacity: self.setup.capacity,
            outcome: self.setup.run(seed),
        })
    }
}

/// A run, and the values of the table that its figures need.
struct Ran {
    seconds: f64,
    capacity: u32,
    outcome: Outcome,
}

impl Record for Ran {
    fn figure(&self, name: &str, window: &Window) -> Value {
        let (run, counts) = (&self.outcome, &self.outcome.counts);
        let count = match name {
            "entries" => {
                let seconds = run.by_second.iter().zip(0..);
                let own = seconds.filter(|(_, n)| {
                    // A second belongs to the window that contains its middle.
                    window.has(Duration::from_secs(*n) + Duration::from_millis(500))
                });
                return Value::Many(own.map(|(entries, _)| f64::from(*entries)).collect());
            }
            "seconds" => return Value::One(self.seconds),
            "alive" => return Value::One(run.alive_mean),
            "occupancy_mean" => return Value::One(run.occupancy_mean),
            "occupancy_max" => run.occupancy_max.into(),
            "occupancy_bound" => occupancy_bound(self.capacity, run).into(),
            "capacity" => self.capacity.into(),
            "flows" => run.flows,
            "packets" => run.packets,
            "misses" => run.misses,
            "misses_again" => run.misses_again,
            "flow_mods" => run.adds + run.deletes + counts.renewals,
            "table_full" => run.table_full,
            "lost" => run.lost,
            "evicted" => run.evicted,
            "evicted_active" => run.evicted_active,
            "evicted_pausing" => run.evicted_pausing,
            "evicted_pausing_active" => run.evicted_pausing_active,
            "all_in_use" => counts.all_in_use,
            "coarse_entries" => counts.coarse_entries,
            "without_entry" => counts.without_entry,
            "reads" => counts.reads,
            "renewals" => counts.renewals,
            "renewals_per_s_max" => counts.renewals_per_s_max,
            _ => return Value::One(f64::NAN),
        };
        Value::One(count as f64)
    }
}
