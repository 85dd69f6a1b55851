//! Queues of an interface in the kernel: HTB classes, chosen by code point, each with a short leaf.
//!
//! Userspace Open vSwitch ignores `set_queue`, so the packet itself names its class: `u32` filters
//! match the TOS byte or traffic class, and every kernel with HTB has them. The leaf is short
//! because HTB's own leaf never drops, and Open vSwitch feeds all ports through one socket. A long
//! queue of a slow class fills that socket, which then refuses packets of every class.
//!
//! The handle of the root marks the queues as auster's, and names the owner. Auster changes no
//! other queues.

use cli::program;
use std::collections::BTreeSet;

use ovsdb::vswitch::qos::{Owner, QueueCount, QueueCounts};
use serde::Serialize;
use serde_json::Value;

use crate::queues::plan::{Block, Class, CodePoints, Plan, Rate};
use cli::failure::Failure;

/// The class from which all others borrow.
const LINK_MINOR: u16 = 1;
/// Queue 0's class; the others follow.
const QUEUE_MINOR: u16 = 0x10;
/// The bytes after which a class gives up its turn.
const QUANTUM_BYTES: u64 = 1514;
/// Two full frames. With less, a class waits for its timer between frames.
const BURST_BYTES_MIN: u64 = 3028;
/// The part of a second's bytes that may be sent at once if the timer is late, as a divisor.
const BURST_PER_SECOND: u64 = 1000;

const PROTOCOL_LLDP: &str = "0x88cc";
const TYPES_NEIGHBOUR: [u8; 2] = [135, 136];

/// An interface and its network namespace.
pub struct Interface<'a> {
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

/// Checks that an interface may have this name, and that `tc -batch` reads it as one word. Anyone
/// who may write to a switch's database chooses names there.
pub fn check_name(name: &str) -> Result<(), String> {
    // The last of the kernel's 16 bytes is a zero.
    const NAME_BYTES_MAX: usize = 15;
    let is_special = |c: char| matches!(c, '#' | '"' | '\'' | '\\' | '/' | ':');
    let is_word = |c: char| !c.is_whitespace() && !c.is_control() && !is_special(c);
    let is_name = !matches!(name, "" | "." | "..") && name.chars().all(is_word);
    if is_name && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "{name:?} is no interface's name: it needs 1 to {NAME_BYTES_MAX} bytes without space, \
         quote, backslash, '#', '/' or ':'"
    ))
}

/// The numbers of an interface's classes.
#[derive(Clone, Copy)]
struct Numbering {
    link: u16,
    /// The minor number of queue 0.
    queue: u16,
}

impl Numbering {
    const OURS: Numbering = Numbering {
        link: LINK_MINOR,
        queue: QUEUE_MINOR,
    };
    /// The numbers that Open vSwitch gives the queues of a QoS record.
    const OPEN_VSWITCH: Numbering = Numbering {
        link: 0xfffe,
        queue: 1,
    };
}

/// The program that made an interface's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Maker {
    Auster,
    OpenVswitch,
}

/// The change that a call of [`Interface::set`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    Made,
    Replaced,
}

impl Change {
    pub fn name(self) -> &'static str {
        match self {
            Change::None => "as they were",
            Change::Made => "made",
            Change::Replaced => "made anew",
        }
    }
}

/// The queueing discipline at the root of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// The kernel's own choice.
    Default,
    Ours(Owner),
    Foreign {
        kind: String,
        handle: String,
    },
}

/// The queues of an interface as the kernel has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct State {
    pub rate_bps: u64,
    /// The most urgent first.
    pub queues: Vec<QueueState>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueState {
    pub queue: u16,
    pub priority: u8,
    pub min_rate_bps: u64,
    pub max_rate_bps: u64,
    pub burst_bytes: u64,
    /// The code points in runs, such as `0-39,46`.
    pub dscp: String,
    pub is_default: bool,
    pub packets_max: u32,
    pub packets: u64,
    pub bytes: u64,
    pub dropped: u64,
    pub packets_waiting: u64,
}

impl Interface<'_> {
    /// Makes the queues of `plan`, unless they exist.
    pub fn set(&self, owner: Owner, plan: &Plan) -> Result<Change, Failure> {
        check_name(self.name).map_err(Failure::usage)?;
        let root = self.root()?;
        if let Some(problem) = self.taken(&[owner], &root) {
            return Err(Failure::usage(problem));
        }
        let change = match root {
            Root::Ours(_) if self.is_as_planned(owner, plan)? => return Ok(Change::None),
            Root::Ours(_) => {
                self.delete()?;
                Change::Replaced
            }
            Root::Default | Root::Foreign { .. } => Change::Made,
        };
        let lines = lines(plan, handle_of(owner), self.name);
        program::tc_batch(self.namespace, &lines).map_err(|failure| {
            // Half a set of queues is worse than none.
            let _ = self.delete();
            self.explain(failure)
        })?;
        Ok(change)
    }

    /// The interface's queues, if they are ours.
    pub fn state(&self) -> Result<Option<State>, Failure> {
        match self.root()? {
            Root::Ours(owner) => self.read(owner).map(Some),
            _ => Ok(None),
        }
    }

    /// Our queues, or those that Open vSwitch made from a QoS record of type `linux-htb`.
    pub fn state_of_any(&self) -> Result<Option<(Maker, State)>, Failure> {
        match self.root()? {
            Root::Ours(owner) => Ok(Some((Maker::Auster, self.read(owner)?))),
            Root::Foreign { kind, handle } if kind == "htb" && handle == "1:" => {
                let state = read_classes(&self.class_text()?, Numbering::OPEN_VSWITCH);
                let is_its = state.rate_bps > 0 && !state.queues.is_empty();
                Ok(is_its.then_some((Maker::OpenVswitch, state)))
            }
            _ => Ok(None),
        }
    }

    /// The counters of the queues of `owner`, if there are any.
    pub fn counts(&self, owner: Owner) -> Result<Option<QueueCounts>, Failure> {
        Ok(read_counts(&self.class_text()?, handle_of(owner)))
    }

    /// Removes the queues if one of `owners` made them, and returns whether there were any.
    pub fn clear(&self, owners: &[Owner]) -> Result<bool, Failure> {
        let root = self.root()?;
        if let Some(problem) = self.taken(owners, &root) {
            return Err(Failure::usage(problem));
        }
        match root {
            Root::Default => Ok(false),
            _ => self.delete().map(|()| true),
        }
    }

    /// The reason why none of `owners` may change an interface with this root.
    pub fn taken(&self, owners: &[Owner], root: &Root) -> Option<String> {
        let name = self.name;
        match root {
            Root::Default => None,
            Root::Ours(owner) if owners.contains(owner) => None,
            Root::Ours(Owner::Command) => Some(format!(
                "{name} has queues that auster queues set has made; remove them first: auster \
                 queues clear --port {name}"
            )),
            Root::Ours(Owner::Controller) => Some(format!(
                "{name} has queues that a controller has asked for; change them in its \
                 configuration"
            )),
            Root::Foreign { kind, handle } => Some(format!(
                "{name} has a {kind} qdisc {handle} that auster did not make; remove it first: tc \
                 qdisc del dev {name} root, or ovs-vsctl clear port {name} qos if Open vSwitch \
                 made it"
            )),
        }
    }

    pub fn root(&self) -> Result<Root, Failure> {
        let qdiscs = self.qdiscs()?;
        let root = qdiscs.iter().find(|qdisc| qdisc["root"] == true);
        let word = |key: &str| root.and_then(|r| r[key].as_str()).unwrap_or_default();
        let handle = word("handle").trim_end_matches(':');
        Ok(match (handle, owner_of(handle)) {
            // The kernel gives its own choice no handle.
            ("" | "0", _) => Root::Default,
            (_, Some(owner)) => Root::Ours(owner),
            (handle, None) => Root::Foreign {
                kind: word("kind").to_owned(),
                handle: format!("{handle}:"),
            },
        })
    }

    fn is_as_planned(&self, owner: Owner, plan: &Plan) -> Result<bool, Failure> {
        let found = self.read(owner)?;
        let filters = read_filters(&self.filter_text(owner)?);
        let near = |a: u64, b: u64| a.abs_diff(b) * 1000 <= b;
        // The kernel keeps a burst as a time. It is printed in whole units if nearly exact.
        let is_burst = |a: u64, b: u64| a.abs_diff(b) * 50 <= b;
        let same_class = |(is, class): (&QueueState, &Class)| {
            is.queue == u16::from(class.queue)
                && is.priority == class.priority
                && near(is.min_rate_bps, class.rate.0)
                && near(is.max_rate_bps, class.rate_max.0)
                && is_burst(is.burst_bytes, burst_of(class))
                && is.packets_max == plan.leaf_packets
                && is.is_default == (class == &plan.classes[plan.default])
        };
        let wanted: BTreeSet<Filter> = filters_of(plan).into_iter().map(|(_, f)| f).collect();
        Ok(near(found.rate_bps, plan.rate.0)
            && found.queues.len() == plan.classes.len()
            && found.queues.iter().zip(&plan.classes).all(same_class)
            && filters == wanted)
    }

    fn read(&self, owner: Owner) -> Result<State, Failure> {
        let qdiscs = self.qdiscs()?;
        let mut state = read_classes(&self.class_text()?, Numbering::OURS);
        let filters = read_filters(&self.filter_text(owner)?);
        let handle = handle_of(owner);
        let root = qdiscs.iter().find(|qdisc| qdisc["root"] == true);
        let default = root.and_then(|r| r["options"]["default"].as_str());
        let default = default.and_then(|hex| u16::from_str_radix(&hex[2..], 16).ok());
        let mut unnamed: CodePoints = (0..64).collect();
        for queue in &mut state.queues {
            let minor = QUEUE_MINOR + queue.queue;
            queue.is_default = default == Some(minor);
            let leaf = qdiscs
                .iter()
                .find(|qdisc| qdisc["parent"] == format!("{handle}:{minor:x}"));
            let limit = leaf.and_then(|leaf| leaf["options"]["limit"].as_u64());
            queue.packets_max = limit.unwrap_or(0) as u32;
            let mut code_points = CodePoints::default();
            let of_queue = filters.iter().filter(|f| f.minor == minor);
            of_queue
                .filter_map(Filter::block)
                .for_each(|block| code_points.insert(block));
            unnamed = unnamed
                .iter()
                .filter(|c| !code_points.contains(*c))
                .collect();
            queue.dscp = code_points.to_string();
        }
        for queue in state.queues.iter_mut().filter(|queue| queue.is_default) {
            queue.dscp = unnamed.to_string();
        }
        Ok(state)
    }

    fn class_text(&self) -> Result<String, Failure> {
        let arguments = ["-s", "class", "show", "dev", self.name];
        program::tc(self.namespace, &arguments).map_err(|f| self.explain(f))
    }

    fn qdiscs(&self) -> Result<Vec<Value>, Failure> {
        let arguments = ["-j", "qdisc", "show", "dev", self.name];
        let text = program::tc(self.namespace, &arguments).map_err(|f| self.explain(f))?;
        read_qdiscs(&text)
    }

    fn filter_text(&self, owner: Owner) -> Result<String, Failure> {
        let parent = format!("{}:", handle_of(owner));
        let arguments = ["filter", "show", "dev", self.name, "parent", &parent];
        program::tc(self.namespace, &arguments)
    }

    fn delete(&self) -> Result<(), Failure> {
        let arguments = ["qdisc", "del", "dev", self.name, "root"];
        program::tc(self.namespace, &arguments)
            .map(drop)
            .map_err(|f| self.explain(f))
    }

    /// Adds an explanation to an error message of `tc`.
    fn explain(&self, failure: Failure) -> Failure {
        let said = failure.message();
        let name = self.name;
        if said.contains("Cannot find device") {
            return Failure::usage(format!(
                "no interface {name} here; `ip link` shows those there are"
            ));
        }
        if said.contains("not permitted") {
            return Failure::machine(format!("queues of {name} are root's to set: use sudo"));
        }
        if said.contains("kind is unknown") || said.contains("classifier not found") {
            return Failure::machine(format!(
                "this kernel lacks a part of the queues (sch_htb, sch_fifo, cls_u32): {said}"
            ));
        }
        failure
    }
}

/// The interfaces of this namespace that have queues of `owner`.
pub fn interfaces_of(owner: Owner) -> Result<BTreeSet<String>, Failure> {
    let qdiscs = read_qdiscs(&program::tc(None, &["-j", "qdisc", "show"])?)?;
    let handle = format!("{}:", handle_of(owner));
    let its = qdiscs
        .iter()
        .filter(|qdisc| qdisc["root"] == true && qdisc["handle"].as_str() == Some(handle.as_str()));
    let names = its.filter_map(|qdisc| qdisc["dev"].as_str());
    Ok(names.map(str::to_owned).collect())
}

fn read_qdiscs(json: &str) -> Result<Vec<Value>, Failure> {
    let unreadable = |e| Failure::machine(format!("tc -j qdisc show: {e}"));
    serde_json::from_str(json).map_err(unreadable)
}

/// The handle of the root qdisc, in `tc`'s hexadecimal. The kernel and Open vSwitch choose `1:`,
/// `8001:` and so on.
fn handle_of(owner: Owner) -> &'static str {
    match owner {
        Owner::Command => "a057",
        Owner::Controller => "a058",
    }
}

fn owner_of(handle: &str) -> Option<Owner> {
    let mut owners = Owner::ALL.into_iter();
    owners.find(|owner| handle_of(*owner) == handle)
}

/// A `u32` filter, by the words that it matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Filter {
    protocol: String,
    minor: u16,
    /// Offset, value and mask of each word compared.
    words: BTreeSet<(u32, u32, u32)>,
}

impl Filter {
    /// The code points of an IPv4 filter; those of IPv6 are the same.
    fn block(&self) -> Option<Block> {
        let (offset, value, mask) = *self.words.first()?;
        let is_tos = self.protocol == "ip" && offset == 0;
        is_tos.then_some(Block {
            value: (value >> 18) as u8,
            bits: (mask >> 18 & 0x3f).count_ones() as u8,
        })
    }
}

/// All commands for `tc`, in order.
fn lines(plan: &Plan, handle: &str, device: &str) -> Vec<String> {
    let default = minor(&plan.classes[plan.default]);
    let link = plan.rate.0;
    let link_burst = burst_bytes(plan.rate);
    let mut lines = vec![
        format!("qdisc add dev {device} root handle {handle}: htb default 0x{default:x}"),
        format!(
            "class add dev {device} parent {handle}: classid {handle}:{LINK_MINOR:x} htb rate \
             {link}bit ceil {link}bit burst {link_burst} cburst {link_burst} quantum \
             {QUANTUM_BYTES}"
        ),
    ];
    for class in &plan.classes {
        let minor = minor(class);
        lines.push(format!(
            "class add dev {device} parent {handle}:{LINK_MINOR:x} classid {handle}:{minor:x} htb \
             prio {} rate {}bit ceil {}bit burst {} cburst {} quantum {QUANTUM_BYTES}",
            class.priority,
            class.rate.0,
            class.rate_max.0,
            burst_of(class),
            burst_bytes(class.rate_max),
        ));
        lines.push(format!(
            "qdisc add dev {device} parent {handle}:{minor:x} pfifo limit {}",
            plan.leaf_packets
        ));
    }
    lines.extend(filters_of(plan).into_iter().map(|(words, filter)| {
        let (protocol, minor) = (&filter.protocol, filter.minor);
        let preference = match protocol.as_str() {
            "arp" => 1,
            PROTOCOL_LLDP | "LLDP" => 2,
            "ip" => 3,
            _ => 4,
        };
        let protocol = if protocol == "LLDP" {
            PROTOCOL_LLDP
        } else {
            protocol
        };
        format!(
            "filter add dev {device} parent {handle}: protocol {protocol} pref {preference} u32 \
             {words} flowid {handle}:{minor:x}"
        )
    }));
    lines
}

fn burst_of(class: &Class) -> u64 {
    class.burst_bytes.unwrap_or(burst_bytes(class.rate))
}

/// The bytes that may be sent at once at a rate.
pub fn burst_bytes(rate: Rate) -> u64 {
    (rate.0 / 8 / BURST_PER_SECOND).max(BURST_BYTES_MIN)
}

/// Each filter in `tc`'s syntax, and as it is read back.
fn filters_of(plan: &Plan) -> Vec<(String, Filter)> {
    let filter = |protocol: &str, minor, words: &[(u32, u32, u32)]| Filter {
        protocol: protocol.to_owned(),
        minor,
        words: words.iter().copied().collect(),
    };
    let neighbours = minor(&plan.classes[plan.neighbours]);
    let all = "match u32 0 0".to_owned();
    let mut filters = vec![
        (all.clone(), filter("arp", neighbours, &[(0, 0, 0)])),
        (all, filter("LLDP", neighbours, &[(0, 0, 0)])),
    ];
    for kind in TYPES_NEIGHBOUR {
        let words = [
            (4, 58 << 8, 0xff00),
            (40, u32::from(kind) << 24, 0xff00_0000),
        ];
        filters.push((
            format!("match ip6 protocol 58 0xff match u8 {kind} 0xff at 40"),
            filter("ipv6", neighbours, &words),
        ));
    }
    let others = plan.classes.iter().enumerate();
    for (_, class) in others.filter(|(place, _)| *place != plan.default) {
        for block in class.code_points.blocks() {
            let value = block.value << 2;
            let mask = (!0u8 << (6 - block.bits)) << 2;
            let [v, m] = [value, mask].map(u32::from);
            filters.push((
                format!("match ip dsfield 0x{value:02x} 0x{mask:02x}"),
                filter("ip", minor(class), &[(0, v << 16, m << 16)]),
            ));
            filters.push((
                format!("match ip6 priority 0x{value:02x} 0x{mask:02x}"),
                filter("ipv6", minor(class), &[(0, v << 20, m << 20)]),
            ));
        }
    }
    filters
}

fn minor(class: &Class) -> u16 {
    QUEUE_MINOR + u16::from(class.queue)
}

/// Reads `tc -s class show`, which in most versions has no JSON for HTB.
fn read_classes(text: &str, numbering: Numbering) -> State {
    let mut state = State::default();
    let mut current = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |key: &str| {
            let place = words.iter().position(|word| *word == key)?;
            words.get(place + 1).copied()
        };
        if let ["class", "htb", id, ..] = words[..] {
            let minor = id.split_once(':').map_or("", |(_, minor)| minor);
            let minor = u16::from_str_radix(minor, 16).unwrap_or(0);
            let rate = |key| after(key).and_then(tc_rate).unwrap_or(0);
            current = None;
            if minor == numbering.link {
                state.rate_bps = rate("ceil");
            } else if let Some(queue) = minor.checked_sub(numbering.queue) {
                current = Some(state.queues.len());
                state.queues.push(QueueState {
                    queue,
                    priority: after("prio").and_then(|p| p.parse().ok()).unwrap_or(0),
                    min_rate_bps: rate("rate"),
                    max_rate_bps: rate("ceil"),
                    burst_bytes: after("burst").and_then(tc_size).unwrap_or(0),
                    ..QueueState::default()
                });
            }
        } else if let Some(queue) = current.map(|place: usize| &mut state.queues[place]) {
            let number = |key: &str| {
                let word = after(key)?;
                word.trim_matches(|c: char| !c.is_ascii_digit())
                    .parse()
                    .ok()
            };
            match words.first() {
                Some(&"Sent") => {
                    queue.bytes = number("Sent").unwrap_or(0);
                    queue.packets = number("bytes").unwrap_or(0);
                    queue.dropped = number("(dropped").unwrap_or(0);
                }
                Some(&"backlog") => {
                    let packets = words
                        .get(2)
                        .and_then(|w| w.trim_end_matches('p').parse().ok());
                    queue.packets_waiting = packets.unwrap_or(0);
                }
                _ => {}
            }
        }
    }
    state.queues.sort_by_key(|queue| queue.queue);
    state
}

/// The counters of the classes below a handle; `None` if there are none.
fn read_counts(text: &str, handle: &str) -> Option<QueueCounts> {
    let is_its = text.contains(&format!("class htb {handle}:"));
    let state = is_its.then(|| read_classes(text, Numbering::OURS))?;
    let count = |queue: &QueueState| {
        let count = QueueCount {
            packets: queue.packets,
            dropped: queue.dropped,
        };
        (u32::from(queue.queue), count)
    };
    Some(state.queues.iter().map(count).collect())
}

/// Reads `tc filter show`: a line for each filter, and one for each word that it compares.
fn read_filters(text: &str) -> BTreeSet<Filter> {
    let mut filters: Vec<Filter> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |key: &str| {
            let place = words.iter().position(|word| *word == key)?;
            words.get(place + 1).copied()
        };
        let target = after("*flowid").or(after("flowid"));
        if let (Some(protocol), Some(target)) = (after("protocol"), target) {
            let minor = target.split_once(':').map_or("", |(_, minor)| minor);
            filters.push(Filter {
                protocol: match protocol {
                    "lldp" | "[35020]" | PROTOCOL_LLDP => "LLDP".to_owned(),
                    other => other.to_owned(),
                },
                minor: u16::from_str_radix(minor, 16).unwrap_or(0),
                words: BTreeSet::new(),
            });
        } else if let (["match", pair, "at", offset], Some(filter)) =
            (&words[..], filters.last_mut())
            && let Some((value, mask)) = pair.split_once('/')
        {
            let hex = |digits| u32::from_str_radix(digits, 16).unwrap_or(0);
            let word = (offset.parse().unwrap_or(0), hex(value), hex(mask));
            filter.words.insert(word);
        }
    }
    filters.into_iter().collect()
}

/// Parses `3028b`, `15Kb` and the like.
fn tc_size(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let unit = match unit {
        "b" => 1,
        "Kb" => 1 << 10,
        "Mb" => 1 << 20,
        _ => return None,
    };
    Some(number.parse::<u64>().ok()? * unit)
}

/// Parses `12500Kbit` and the like.
fn tc_rate(text: &str) -> Option<u64> {
    text.parse::<Rate>().ok().map(|rate| rate.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::plan::tests::{SOCKET_BYTES, example_2};

    #[test]
    fn a_name_that_tc_would_read_as_more_than_one_word_is_refused() {
        for name in [
            "eth0",
            "s1-eth2",
            "br0.100",
            "veth@1",
            "a23456789012345",
            "ä",
        ] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "..",
            "a234567890123456",
            "eth0 root",
            "eth0\nqdisc",
            "eth0#",
            "\"eth0",
            "'eth0",
            "eth0\\",
            "../eth0",
            "eth0:1",
            "eth0\u{a0}",
        ] {
            let problem = check_name(name).unwrap_err();
            assert!(problem.contains("is no interface's name"), "{problem}");
            assert!(!problem.contains('\n'), "{problem}");
        }
        let interface = Interface {
            namespace: None,
            name: "lo\nqdisc",
        };
        let plan = Plan {
            rate: Rate(1_000_000),
            classes: Vec::new(),
            default: 0,
            neighbours: 0,
            leaf_packets: 1,
        };
        let failure = interface.set(Owner::Command, &plan).unwrap_err();
        let said = failure.message();
        assert!(said.contains("is no interface's name"), "{said}");
    }

    #[test]
    fn classes_are_read_as_tc_prints_them() {
        let text = "\
class htb a057:1 root rate 50Mbit ceil 50Mbit burst 6250b cburst 6250b 
 Sent 9 bytes 1 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
class htb a057:13 parent a057:1 leaf 8004: prio 3 rate 12500Kbit ceil 50Mbit burst 3028b cburst \
6250b 
 Sent 122448 bytes 84 pkt (dropped 12, overlimits 5 requeues 0) 
 backlog 24Kb 17p requeues 0
 lended: 0 borrowed: 0 giants: 0
 tokens: 100000 ctokens: 4000
";
        let state = read_classes(text, Numbering::OURS);
        assert_eq!(state.rate_bps, 50_000_000);
        let queue = QueueState {
            queue: 3,
            priority: 3,
            min_rate_bps: 12_500_000,
            max_rate_bps: 50_000_000,
            burst_bytes: 3028,
            packets: 84,
            bytes: 122_448,
            dropped: 12,
            packets_waiting: 17,
            ..QueueState::default()
        };
        assert_eq!(state.queues, [queue]);
        let count = QueueCount {
            packets: 84,
            dropped: 12,
        };
        assert_eq!(read_counts(text, "a057"), Some([(3, count)].into()));
        assert_eq!(read_counts(text, "a058"), None, "another's");
    }

    #[test]
    fn a_filter_matches_the_block_in_both_families_and_is_read_back_as_it_was_meant() {
        let plan = Plan::new(&example_2(), Rate(50_000_000), SOCKET_BYTES).unwrap();
        let filters = filters_of(&plan);
        let words: Vec<&str> = filters.iter().map(|(words, _)| words.as_str()).collect();
        assert!(words.contains(&"match ip dsfield 0xe0 0xe0"), "{words:?}");
        assert!(words.contains(&"match ip6 priority 0xc0 0xe0"), "{words:?}");
        let text = "\
filter parent a057: protocol ip pref 3 u32 chain 0 fh 802: ht divisor 1 
filter parent a057: protocol ip pref 3 u32 chain 0 fh 802::800 order 2048 key ht 802 bkt 0 *flowid \
a057:10 not_in_hw 
  match 00e00000/00e00000 at 0
";
        let read = read_filters(text);
        let first = read.first().unwrap();
        assert_eq!(first.block(), Some(Block { value: 56, bits: 3 }));
        assert!(filters.iter().any(|(_, filter)| filter == first));
    }
}
