//! The entries on the switches and the records in their database, and whether any of these is half.
//!
//! The promises while these are set up, whenever the controller is killed:
//!
//! - The records of a port are changed by one transaction: they are those that the configuration
//!   states, or those and the circuits', or none.
//! - The entry of a circuit that lets packets in comes when all others are there: with it the
//!   circuit is whole, without it nobody is on it.
//! - Paths of a switch lead on to its policies when all of these are there; before, no packet meets
//!   them.

use std::collections::{BTreeMap, BTreeSet};

use control::pipeline::POLICY_TABLE;
use control::qos::check::QUEUE_NUMBER_MAX;
use control::qos::flow::OPENS;
use serde::Serialize;

use crate::qos::controlled::Controlled;
use crate::qos::entries;
use crate::qos::records::{PortRecord, Records};
use cli::failure::Failure;

/// Lines by switch.
type Lines = BTreeMap<String, BTreeSet<String>>;

/// All that is of interest, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Entries of circuits and of policies, without the generation in their cookies.
    pub circuits: Lines,
    pub policies: Lines,
    pub meters: Lines,
    /// Switches that have a path which leads on to policies.
    pub leading: BTreeSet<String>,
    /// Entries, meters and rows that are somebody else's.
    pub foreign: BTreeSet<String>,
    pub records: Records,
}

/// How much of each kind was found to be how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub whole: u32,
    /// On its way, and nothing that is promised is broken: a port's stated queues without those of
    /// circuits, or entries that no packet meets.
    pub prepared: u32,
    pub absent: u32,
    pub half: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Counted by port.
    pub records: Tally,
    /// Counted by direction.
    pub circuits: Tally,
    /// Counted by switch.
    pub policies: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Whole,
    Prepared,
    Absent,
    Half,
}

impl Found {
    pub fn read(setup: &Controlled) -> Result<Found, Failure> {
        let mut found = Found {
            records: Records::read(setup)?,
            ..Found::default()
        };
        for switch in &setup.network.topology.switches {
            let name = &switch.name;
            found.take_flows(name, setup.flows(name)?);
            found.take_meters(name, &setup.ofctl(name, &["dump-meters"])?);
        }
        let rows = found.records.foreign.iter().cloned();
        found.foreign.extend(rows);
        Ok(found)
    }

    fn take_flows(&mut self, switch: &str, lines: Vec<String>) {
        for line in lines {
            let cookie = entries::cookie(&line);
            let is_auster = control::entry::is_ours(cookie);
            if !is_auster {
                self.foreign.insert(format!("{switch}: {line}"));
                continue;
            }
            let table = format!("goto_table:{}", POLICY_TABLE.0);
            if !entries::is_of_qos(&line) {
                if line.contains(&table) {
                    self.leading.insert(switch.to_owned());
                }
                continue;
            }
            let (_, rest) = line.split_once(", ").unwrap_or_default();
            let rank = cookie.0 as u8;
            let of_policies = rest.contains(&format!("table={}", POLICY_TABLE.0));
            let lines = match of_policies {
                true => &mut self.policies,
                false => &mut self.circuits,
            };
            let line = format!("rank={rank}, {rest}");
            lines.entry(switch.to_owned()).or_default().insert(line);
        }
    }

    /// From `meter=24576 kbps bands=` and a line for each band. Ours have numbers from 0x6000 on.
    fn take_meters(&mut self, switch: &str, text: &str) {
        let mut last: Option<(u32, String)> = None;
        let mut meters: Vec<(u32, String)> = Vec::new();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty()) {
            let number = line.strip_prefix("meter=").and_then(|rest| {
                let number = rest.split(' ').next()?;
                number.parse::<u32>().ok()
            });
            match (number, &mut last) {
                (Some(number), _) => {
                    meters.extend(last.take());
                    last = Some((number, line.to_owned()));
                }
                (None, Some((_, text))) => *text += &format!(" {line}"),
                (None, None) => {}
            }
        }
        meters.extend(last);
        for (number, text) in meters {
            match number >= METER_MIN {
                true => drop(
                    self.meters
                        .entry(switch.to_owned())
                        .or_default()
                        .insert(text),
                ),
                false => drop(self.foreign.insert(format!("{switch}: {text}"))),
            }
        }
    }

    /// Whether all is as in `whole`, and nothing of ours is beside it.
    pub fn is_as(&self, whole: &Found) -> bool {
        let ours = |found: &Found| -> BTreeMap<String, PortRecord> {
            let ports = found.records.ports.iter();
            let ports = ports.filter(|(_, record)| record.is_ours);
            let ports = ports.map(|(port, record)| {
                let record = PortRecord {
                    kernel: String::new(),
                    ..record.clone()
                };
                (port.clone(), record)
            });
            ports.collect()
        };
        (&self.circuits, &self.policies, &self.meters)
            == (&whole.circuits, &whole.policies, &whole.meters)
            && ours(self) == ours(whole)
    }

    /// Nothing of ours is there but paths.
    pub fn is_clear(&self) -> bool {
        self.is_as(&Found::default())
    }

    pub fn judge(&self, whole: &Found) -> Verdict {
        let mut verdict = Verdict::default();
        for (port, wanted) in whole.records.ports.iter().filter(|(_, r)| r.is_ours) {
            let state = record_state(self.records.ports.get(port), wanted);
            verdict.records.add(state);
        }
        let is_stray = |port: &String| !whole.records.ports.contains_key(port);
        for _ in self.records.ports.keys().filter(|port| is_stray(port)) {
            verdict.records.add(State::Half);
        }
        let (wanted, found) = (by_direction(&whole.circuits), by_direction(&self.circuits));
        for (direction, wanted) in &wanted {
            verdict
                .circuits
                .add(circuit_state(found.get(direction), wanted));
        }
        for _ in found.keys().filter(|known| !wanted.contains_key(*known)) {
            verdict.circuits.add(State::Half);
        }
        let nothing = BTreeSet::new();
        for (switch, wanted) in &whole.policies {
            let found = self.policies.get(switch).unwrap_or(&nothing);
            let leads = self.leading.contains(switch);
            verdict.policies.add(policy_state(found, wanted, leads));
        }
        verdict
    }

    /// For people who want to know what it was.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (port, record) in self.records.ports.iter().filter(|(_, r)| r.is_ours) {
            text += &format!("{port} {} {:?}\n", record.max_rate, record.queues);
        }
        for lines in [&self.circuits, &self.policies, &self.meters] {
            for (switch, lines) in lines {
                lines
                    .iter()
                    .for_each(|line| text += &format!("{switch} {line}\n"));
            }
        }
        text + &format!("leading on: {:?}\n", self.leading)
    }
}

/// Below are everybody's.
const METER_MIN: u32 = 0x6000;

fn record_state(found: Option<&PortRecord>, wanted: &PortRecord) -> State {
    let Some(found) = found else {
        return State::Absent;
    };
    let stated = |record: &PortRecord| {
        let mut queues = record.queues.clone();
        queues.retain(|number, _| *number <= u32::from(QUEUE_NUMBER_MAX));
        queues
    };
    let is_same =
        found.is_ours && (&found.kind, &found.max_rate) == (&wanted.kind, &wanted.max_rate);
    let is_of_it = |(number, queue): (&u32, _)| wanted.queues.get(number) == Some(queue);
    match is_same && found.queues.iter().all(is_of_it) {
        true if found.queues == wanted.queues => State::Whole,
        true if stated(found) == stated(wanted) => State::Prepared,
        _ => State::Half,
    }
}

/// Entries by what they match wherever it comes in, as `SWITCH LINE`.
fn by_direction(circuits: &Lines) -> BTreeMap<String, BTreeSet<String>> {
    let mut directions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (switch, lines) in circuits {
        for line in lines {
            let (rest, _) = line.split_once(" actions=").unwrap_or((line, ""));
            let fields = rest.split([',', ' ']).filter(|field| !field.is_empty());
            let of_all = fields.filter(|f| !f.starts_with("in_port=") && !f.starts_with("rank="));
            let direction = of_all.collect::<Vec<_>>().join(",");
            let entry = directions.entry(direction).or_default();
            entry.insert(format!("{switch} {line}"));
        }
    }
    directions
}

fn circuit_state(found: Option<&BTreeSet<String>>, wanted: &BTreeSet<String>) -> State {
    let Some(found) = found else {
        return State::Absent;
    };
    let lets_in = |line: &String| line.contains(&format!(" rank={OPENS},"));
    match (found == wanted, found.iter().any(lets_in)) {
        (true, _) => State::Whole,
        (false, true) => State::Half,
        (false, false) => State::Prepared,
    }
}

fn policy_state(found: &BTreeSet<String>, wanted: &BTreeSet<String>, leads: bool) -> State {
    match (found == wanted, found.is_empty(), leads) {
        (true, ..) => State::Whole,
        (false, _, true) => State::Half,
        (false, true, false) => State::Absent,
        (false, false, false) => State::Prepared,
    }
}

impl Tally {
    fn add(&mut self, state: State) {
        match state {
            State::Whole => self.whole += 1,
            State::Prepared => self.prepared += 1,
            State::Absent => self.absent += 1,
            State::Half => self.half += 1,
        }
    }

    pub fn plus(self, other: Tally) -> Tally {
        Tally {
            whole: self.whole + other.whole,
            prepared: self.prepared + other.prepared,
            absent: self.absent + other.absent,
            half: self.half + other.half,
        }
    }
}

impl Verdict {
    /// Something was there, and not all.
    pub fn is_in_the_middle(&self) -> bool {
        let all = self.records.plus(self.circuits).plus(self.policies);
        let kinds = [all.whole, all.prepared, all.absent, all.half];
        all.prepared + all.half > 0 || kinds.iter().filter(|count| **count > 0).count() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circuit(switch: &str, rank: u8) -> String {
        let line = format!(
            "cookie=0x61757374c21a11{rank:02x}, priority=3101,ip,in_port={rank},nw_src=10.0.0.1,\
             nw_dst=10.0.0.3 actions=set_queue:200,output:2"
        );
        format!("{switch}|{line}")
    }

    fn policy(switch: &str, priority: u16) -> String {
        format!("{switch}|cookie=0x61757374c21a1000, table=1, priority={priority} actions=drop")
    }

    fn path(switch: &str, leads: bool) -> String {
        let on = if leads { ",goto_table:1" } else { "" };
        format!("{switch}|cookie=0x61757374c21a0200, priority=2000 actions=output:1{on}")
    }

    fn port(numbers: &[u32]) -> PortRecord {
        let queue = |n: &u32| (*n, BTreeMap::from([("dscp".to_owned(), n.to_string())]));
        PortRecord {
            kind: "linux-noop".to_owned(),
            is_ours: true,
            max_rate: "100".to_owned(),
            queues: numbers.iter().map(queue).collect(),
            kernel: String::new(),
        }
    }

    fn found(lines: &[String], ports: &[(&str, PortRecord)]) -> Found {
        let mut found = Found::default();
        for line in lines {
            let (switch, line) = line.split_once('|').unwrap();
            found.take_flows(switch, vec![line.to_owned()]);
        }
        let ports = ports.iter();
        let ports = ports.map(|(name, record)| ((*name).to_owned(), record.clone()));
        found.records.ports = ports.collect();
        found
    }

    /// A circuit over three switches, two policies at one of them, and a port of three queues.
    fn whole() -> (Vec<String>, Found) {
        let lines = vec![
            circuit("s1", 1),
            circuit("s2", 2),
            circuit("s3", 3),
            policy("s1", 0),
            policy("s1", 100),
            policy("s1", 102),
            path("s1", true),
        ];
        let whole = found(&lines, &[("p1", port(&[1, 2, 200]))]);
        (lines, whole)
    }

    fn counts(tally: Tally) -> [u32; 4] {
        [tally.whole, tally.prepared, tally.absent, tally.half]
    }

    #[test]
    fn a_circuit_is_half_where_packets_are_let_in_and_not_on() {
        let (lines, whole) = whole();
        let judged = |kept: &[usize]| {
            let kept: Vec<String> = kept.iter().map(|n| lines[*n].clone()).collect();
            counts(found(&kept, &[]).judge(&whole).circuits)
        };
        assert_eq!(judged(&[0, 1, 2]), [1, 0, 0, 0]);
        assert_eq!(judged(&[1, 2]), [0, 1, 0, 0], "nobody is let in");
        assert_eq!(judged(&[]), [0, 0, 1, 0]);
        assert_eq!(judged(&[0, 2]), [0, 0, 0, 1]);
        let mut other = lines[..3].to_vec();
        other.push(lines[0].replace("10.0.0.3", "10.0.0.9"));
        assert_eq!(
            counts(found(&other, &[]).judge(&whole).circuits),
            [1, 0, 0, 1],
            "nobody has asked for it"
        );
    }

    #[test]
    fn policies_are_half_where_a_path_leads_on_and_one_is_missing() {
        let (lines, whole) = whole();
        let judged = |kept: &[usize], leads: bool| {
            let mut kept: Vec<String> = kept.iter().map(|n| lines[*n].clone()).collect();
            kept.push(path("s1", leads));
            counts(found(&kept, &[]).judge(&whole).policies)
        };
        assert_eq!(judged(&[3, 4, 5], true), [1, 0, 0, 0]);
        assert_eq!(judged(&[3, 4, 5], false), [1, 0, 0, 0]);
        assert_eq!(judged(&[3, 4], false), [0, 1, 0, 0], "no packet meets them");
        assert_eq!(judged(&[3, 4], true), [0, 0, 0, 1]);
        assert_eq!(judged(&[], true), [0, 0, 0, 1]);
        assert_eq!(judged(&[], false), [0, 0, 1, 0]);
    }

    #[test]
    fn records_are_half_where_a_stated_queue_is_missing_or_other() {
        let (_, whole) = whole();
        let judged = |record: PortRecord| {
            let found = found(&[], &[("p1", record)]);
            counts(found.judge(&whole).records)
        };
        assert_eq!(judged(port(&[1, 2, 200])), [1, 0, 0, 0]);
        assert_eq!(
            judged(port(&[1, 2])),
            [0, 1, 0, 0],
            "its circuit is to come"
        );
        assert_eq!(judged(port(&[1, 200])), [0, 0, 0, 1]);
        assert_eq!(judged(port(&[1, 2, 3])), [0, 0, 0, 1]);
        let other = PortRecord {
            max_rate: "50".to_owned(),
            ..port(&[1, 2, 200])
        };
        assert_eq!(judged(other), [0, 0, 0, 1]);
        assert_eq!(counts(found(&[], &[]).judge(&whole).records), [0, 0, 1, 0]);
        let elsewhere = found(&[], &[("p1", port(&[1, 2, 200])), ("p2", port(&[1]))]);
        assert_eq!(counts(elsewhere.judge(&whole).records), [1, 0, 0, 1]);
    }

    #[test]
    fn what_is_there_and_not_all_is_in_the_middle() {
        let (lines, whole) = whole();
        let all = [("p1", port(&[1, 2, 200]))];
        let in_the_middle = |lines: &[String], ports: &[(&str, PortRecord)]| {
            found(lines, ports).judge(&whole).is_in_the_middle()
        };
        assert!(!in_the_middle(&[], &[]));
        assert!(!in_the_middle(&lines, &all));
        assert!(in_the_middle(&[], &all));
        assert!(in_the_middle(&lines[1..2], &[]));
        assert!(found(&lines, &all).is_as(&whole) && !found(&lines[1..], &all).is_as(&whole));
        assert!(!found(&lines, &[]).is_as(&whole));
        assert!(found(&[path("s1", false)], &[]).is_clear());
        assert!(!found(&lines[3..4], &[]).is_clear());
    }

    #[test]
    fn meters_and_foreign_entries_are_told_apart() {
        let mut found = Found::default();
        let text = "OFPST_METER_CONFIG reply (OF1.3) (xid=0x2):\nmeter=7 kbps bands=\ntype=drop \
                    rate=1\n\
                    \nmeter=24580 kbps bands=\ntype=drop rate=5000\n";
        found.take_meters("s1", text);
        assert_eq!(found.meters["s1"].len(), 1);
        assert!(found.meters["s1"].first().unwrap().ends_with("rate=5000"));
        let foreign = found.foreign.first().unwrap();
        assert_eq!(foreign, "s1: meter=7 kbps bands= type=drop rate=1");
        found.take_flows(
            "s1",
            vec![
                "cookie=0xbeef, priority=1 actions=drop".to_owned(),
                "table=3, priority=1 actions=drop".to_owned(),
            ],
        );
        assert_eq!(found.foreign.len(), 3);
    }
}
