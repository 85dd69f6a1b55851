//! The document of a trace.

use std::collections::BTreeMap;

use control::Location;
use control::controller::trace::{End, EntryOwner, GuestPart, Routed, Start, table_name};
use control::routing::Verdict as RouteVerdict;
use control::trace::{Course, Fate, Hop, Lead, Outcome, drop_text};
use data_encoding::HEXLOWER;
use openflow::match_fields::FIELDS;
use openflow::message::{GroupType, PacketInReason};
use openflow::packet::PacketFields;
use openflow::table::DropReason;
use openflow::table::explain::{Choice, Step};
use openflow::{Action, Match, MatchField};
use serde::Serialize;
use utoipa::ToSchema;

use super::read::{Count, Read};
use config::access::verdict_text;

/// The way of one packet.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TraceDocument {
    pub packet: PacketDocument,
    pub src: HostDocument,
    pub dst: HostDocument,
    /// The decision of the gateway of the sender's VLAN, if the packet is sent to it.
    pub route: Option<RouteDocument>,
    /// The class of the timeouts that its hosts are in.
    pub class: Option<ClassDocument>,
    pub services: Vec<String>,
    pub policies: Vec<String>,
    pub circuits: Vec<String>,
    /// The statements about access, at the port where it comes in.
    pub access: AccessDocument,
    /// The switches on its way. The first is that where it comes in.
    pub hops: Vec<HopDocument>,
    pub verdict: VerdictDocument,
    /// The time between the two readings of the counters; 0 with one reading.
    pub waited_s: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PacketDocument {
    #[schema(example = "0000000000000001:3")]
    pub r#in: String,
    pub eth_src: String,
    pub eth_dst: String,
    pub tag: Option<u16>,
    /// In the words of ovs-ofctl.
    #[schema(example = "udp,in_port=3,nw_src=10.0.0.1,nw_dst=10.0.0.2,udp_dst=5060")]
    pub text: String,
    /// The frame.
    pub hex: String,
}

/// A host as it is known.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = TracedHost)]
pub struct HostDocument {
    pub ip: Option<String>,
    pub mac: Option<String>,
    pub vlan: Option<u16>,
    /// Its place; null if nobody knows.
    pub at: Option<String>,
    pub ips: Vec<String>,
    /// Since it was last heard, in steps of 4 s; null if only an entry says that it is there.
    pub heard_s_ago: Option<u64>,
    /// The port from which somebody else claims its address, while it is asked.
    pub contested_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct RouteDocument {
    pub gateway: Option<String>,
    pub gateway_mac: String,
    pub into_vlan: Option<u16>,
    pub next_hop: Option<String>,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ClassDocument {
    pub name: String,
    pub forbids: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct AccessDocument {
    pub is_allowed: bool,
    pub text: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = TracedHop)]
pub struct HopDocument {
    pub dpid: String,
    pub in_port: String,
    /// The frame as it comes in here.
    pub frame: String,
    /// The entries that the switch has.
    pub entry_count: u64,
    /// Whether it has so many that only those were read that can be meant.
    pub is_partial: bool,
    /// Why the switch could not be read.
    pub problem: Option<String>,
    pub steps: Vec<StepDocument>,
}

/// A step through a switch. The choices in `if` are those of hashes: without any it is always.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StepDocument {
    /// The entry that takes the packet.
    Entry {
        table: u8,
        table_name: Option<String>,
        priority: u16,
        r#match: String,
        actions: String,
        cookie: String,
        owner: OwnerDocument,
        packets: u64,
        bytes: u64,
        packets_later: Option<u64>,
        bytes_later: Option<u64>,
        /// Whether it has counted packets between the readings; null without a second one.
        is_counting: Option<bool>,
        /// Why another entry may take it.
        doubt: Option<String>,
    },
    /// No entry of a table matches.
    Miss {
        table: u8,
        table_name: Option<String>,
        doubt: Option<String>,
    },
    Meter {
        meter: u32,
        guest: Option<GuestPartDocument>,
    },
    /// A field gets a value.
    Set {
        field: String,
        from: Option<String>,
        to: String,
    },
    /// Another change of the packet.
    Rewrite { action: String },
    Group {
        group: u32,
        group_type: String,
        bucket_count: u64,
        /// Those that take the packet, or that the hash may choose.
        buckets: Vec<u64>,
        is_by_hash: bool,
        guest: Option<GuestPartDocument>,
    },
    Output {
        port: String,
        queue: Option<u32>,
        r#if: Vec<ChoiceDocument>,
        to: LeadDocument,
    },
    Controller {
        reason: String,
        r#if: Vec<ChoiceDocument>,
        text: String,
    },
    Drop {
        reason: String,
        r#if: Vec<ChoiceDocument>,
        text: String,
    },
    /// The way cannot be followed further.
    Unknown {
        r#if: Vec<ChoiceDocument>,
        text: String,
    },
}

/// The guest of a group or a meter, and the number that it has for it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = GuestPart)]
pub struct GuestPartDocument {
    pub name: String,
    pub number: u32,
}

/// A bucket that a hash must choose.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChoiceDocument {
    pub group: u32,
    pub bucket: u64,
}

/// Whose an entry is.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct OwnerDocument {
    /// infrastructure, pair, destination, local, barred, report, coarse, service, barrier, watch,
    /// guard, fabric, sender, access, routed, policy, circuit, foreign.
    pub kind: String,
    /// The policy, the circuit or the rule of an access list.
    pub name: Option<String>,
    pub text: String,
}

/// The thing behind a port.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LeadDocument {
    /// Another switch: one of `hops`.
    Switch {
        hop: u64,
        at: String,
    },
    /// No switch.
    Host {
        at: String,
        is_destination: bool,
    },
    Nowhere {
        at: String,
        text: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VerdictDocument {
    /// delivered, depends, unknown, loops, controller, elsewhere, dropped.
    #[schema(example = "delivered")]
    pub outcome: String,
    pub text: String,
    /// Where it is delivered, or leaves.
    pub at: Option<String>,
    /// The hop and the step that decide it.
    pub hop: u64,
    pub step: Option<u64>,
    pub also_to_controller: bool,
    pub doubts: Vec<String>,
}

/// Everything that a trace has found.
pub struct Found<'a> {
    pub start: &'a Start,
    pub course: &'a Course,
    pub reads: &'a BTreeMap<u64, Read>,
    /// Owners of entries, keyed by hop and step.
    pub owners: &'a BTreeMap<(usize, usize), EntryOwner>,
    /// Guests of groups and meters, keyed by hop and step.
    pub guests: &'a BTreeMap<(usize, usize), GuestPart>,
    /// The second read of the counters, keyed by hop and step.
    pub counts: Option<&'a BTreeMap<(usize, usize), Count>>,
    pub waited_s: u64,
}

impl Found<'_> {
    pub fn document(&self) -> TraceDocument {
        let start = self.start;
        let hops = self.course.hops().iter().enumerate();
        let rules = start.rules.iter().map(String::as_str);
        TraceDocument {
            packet: packet(start),
            src: host(&start.src),
            dst: host(&start.dst),
            route: start
                .routed
                .as_ref()
                .map(|routed| route(routed, &start.dst)),
            class: start.class.as_ref().map(|(name, forbids)| ClassDocument {
                name: name.clone(),
                forbids: *forbids,
            }),
            services: start.services.clone(),
            policies: start.policies.clone(),
            circuits: start.circuits.clone(),
            access: AccessDocument {
                is_allowed: start.access.is_allowed(),
                text: verdict_text(&start.access, start.at, &rules.collect::<Vec<_>>()),
            },
            hops: hops.map(|(number, hop)| self.hop(number, hop)).collect(),
            verdict: self.verdict(),
            waited_s: self.waited_s,
        }
    }

    fn hop(&self, number: usize, hop: &Hop) -> HopDocument {
        let read = self.reads.get(&hop.at.dpid.0);
        let steps = hop.steps.iter().enumerate();
        HopDocument {
            dpid: hop.at.dpid.to_string(),
            in_port: hop.at.port.to_string(),
            frame: HEXLOWER.encode(&hop.packet),
            entry_count: read.map_or(0, |read| read.entry_count),
            is_partial: read.is_some_and(|read| read.is_partial),
            problem: hop.problem.clone(),
            steps: steps
                .map(|(at, step)| self.step(hop, (number, at), step))
                .collect(),
        }
    }

    fn table_name(&self, hop: &Hop, table: openflow::TableId) -> Option<String> {
        let tables = self.reads.get(&hop.at.dpid.0)?.known.tables;
        table_name(tables.our_number(table)).map(str::to_owned)
    }

    fn step(&self, hop: &Hop, at: (usize, usize), step: &Step) -> StepDocument {
        match step {
            Step::Entry { entry, doubt } => {
                let later = self.counts.and_then(|counts| counts.get(&at)).copied();
                let (packets_later, bytes_later) = later.unzip();
                let actions: Vec<String> =
                    entry.instructions.iter().map(ToString::to_string).collect();
                StepDocument::Entry {
                    table: entry.table_id.0,
                    table_name: self.table_name(hop, entry.table_id),
                    priority: entry.priority,
                    r#match: entry.r#match.to_string(),
                    actions: match actions.is_empty() {
                        true => "drop".to_owned(),
                        false => actions.join(","),
                    },
                    cookie: format!("{:016x}", entry.cookie.0),
                    owner: owner(self.owners.get(&at)),
                    packets: entry.packet_count,
                    bytes: entry.byte_count,
                    packets_later,
                    bytes_later,
                    is_counting: packets_later.map(|later| later > entry.packet_count),
                    doubt: doubt.map(|doubt| doubt.to_string()),
                }
            }
            Step::Miss { table, doubt } => StepDocument::Miss {
                table: table.0,
                table_name: self.table_name(hop, *table),
                doubt: doubt.map(|doubt| doubt.to_string()),
            },
            Step::Meter(meter) => StepDocument::Meter {
                meter: meter.0,
                guest: self.guest(at),
            },
            Step::Rewrite { action, before } => rewrite(action, *before),
            Step::Group {
                group,
                group_type,
                bucket_count,
                buckets,
                ..
            } => StepDocument::Group {
                group: group.0,
                group_type: type_name(*group_type).to_owned(),
                bucket_count: *bucket_count as u64,
                buckets: buckets.iter().map(|bucket| *bucket as u64).collect(),
                is_by_hash: *group_type == GroupType::Select && buckets.len() > 1,
                guest: self.guest(at),
            },
            Step::Output {
                port,
                queue,
                only_if,
                ..
            } => StepDocument::Output {
                port: port.to_string(),
                queue: queue.map(|queue| queue.0),
                r#if: choices(only_if),
                to: self.lead(hop, at.1, Location::new(hop.at.dpid, *port)),
            },
            Step::Controller { reason, only_if } => StepDocument::Controller {
                reason: match *reason {
                    PacketInReason::NO_MATCH => "no_match",
                    PacketInReason::INVALID_TTL => "invalid_ttl",
                    _ => "action",
                }
                .to_owned(),
                r#if: choices(only_if),
                text: self.controller_text(at),
            },
            Step::Drop { reason, only_if } => StepDocument::Drop {
                reason: drop_name(*reason).to_owned(),
                r#if: choices(only_if),
                text: drop_text(*reason).to_owned(),
            },
            Step::Unknown { why, only_if } => StepDocument::Unknown {
                r#if: choices(only_if),
                text: why.to_string(),
            },
            _ => StepDocument::Unknown {
                r#if: Vec::new(),
                text: "a step of another kind".to_owned(),
            },
        }
    }

    fn guest(&self, at: (usize, usize)) -> Option<GuestPartDocument> {
        self.guests.get(&at).map(|part| GuestPartDocument {
            name: part.guest.to_string(),
            number: part.number,
        })
    }

    fn lead(&self, hop: &Hop, step: usize, at: Location) -> LeadDocument {
        match hop.leads.get(&step) {
            Some(Lead::Switch(next)) => LeadDocument::Switch {
                hop: *next as u64,
                at: self.course.hops()[*next].at.to_string(),
            },
            Some(Lead::Edge { is_destination }) => LeadDocument::Host {
                at: at.to_string(),
                is_destination: *is_destination,
            },
            Some(Lead::Mirror) => LeadDocument::Nowhere {
                at: at.to_string(),
                text: "a mirror's copy".to_owned(),
            },
            Some(Lead::TooFar) | None => LeadDocument::Nowhere {
                at: at.to_string(),
                text: "the way is too long to be followed".to_owned(),
            },
        }
    }

    /// The entry that acts at a step of a hop, and its place.
    fn acting(&self, (hop, step): (usize, usize)) -> Option<(usize, &Step)> {
        let steps = self.course.hops().get(hop)?.steps.iter().enumerate();
        let before = steps.take(step + 1);
        let acts =
            |(_, step): &(usize, &Step)| matches!(step, Step::Entry { .. } | Step::Miss { .. });
        before.filter(acts).last()
    }

    /// Describes the entry that acts.
    fn by(&self, at: (usize, usize)) -> Option<String> {
        let hop = self.course.hops().get(at.0)?;
        let table = |table: openflow::TableId| {
            let name = self.table_name(hop, table);
            let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
            format!("table {}{name}", table.0)
        };
        match self.acting(at)? {
            (place, Step::Entry { entry, .. }) => {
                let owner = self.owners.get(&(at.0, place));
                let owner = match owner {
                    Some(EntryOwner {
                        name: Some(name),
                        text,
                        ..
                    }) => format!("{text}, {name}"),
                    Some(EntryOwner { text, .. }) => (*text).to_owned(),
                    None => "nobody knows whose it is".to_owned(),
                };
                let table = table(entry.table_id);
                Some(format!(
                    "the entry of priority {} in {table}: {owner}",
                    entry.priority
                ))
            }
            (_, Step::Miss { table: missed, .. }) => Some(table(*missed)),
            _ => None,
        }
    }

    /// Explains why the controller receives the packet.
    fn controller_text(&self, at: (usize, usize)) -> String {
        let owner = self
            .acting(at)
            .and_then(|(step, _)| self.owners.get(&(at.0, step)));
        let start = self.start;
        let route = start.routed.as_ref().map(|routed| routed.verdict);
        match owner.map(|owner| owner.kind) {
            Some("infrastructure") => match (route, &start.class) {
                (Some(RouteVerdict::NoRoute), _) => "there is no route to it".to_owned(),
                (Some(RouteVerdict::Own), _) => "it is for the gateway, which answers".to_owned(),
                (Some(RouteVerdict::Refused), _) => "the gateway routes no such packet".to_owned(),
                (_, Some((class, true))) => {
                    format!("no entry drops it yet; class {class} forbids it")
                }
                _ if start.dst.seen.is_none() => {
                    "no entry leads it on, and its destination is not known".to_owned()
                }
                _ if start.has_no_way => "which drops it".to_owned(),
                _ => {
                    "no entry leads it on yet: the controller decides, and sets its path".to_owned()
                }
            },
            Some("watch") => "the sender's place is in question".to_owned(),
            Some("guard") => "it is inspected".to_owned(),
            Some("report") => "a copy, as its entry also reports".to_owned(),
            Some("access") => "the controller decides whether it may pass".to_owned(),
            Some("foreign") => "an entry that auster has not set sends it".to_owned(),
            Some(_) => "its entry sends it".to_owned(),
            None => "no entry matches".to_owned(),
        }
    }

    fn verdict(&self) -> VerdictDocument {
        let Fate { outcome, hop, step } = self.course.fate();
        let at_hop = &self.course.hops()[hop];
        let found = step.and_then(|step| at_hop.steps.get(step));
        let port = match found {
            Some(Step::Output { port, .. }) => Some(Location::new(at_hop.at.dpid, *port)),
            _ => None,
        };
        let switch = at_hop.at.dpid;
        let by = step.and_then(|step| self.by((hop, step)));
        let by = by.map(|by| format!(", by {by}")).unwrap_or_default();
        let place = port.map(|port| port.to_string()).unwrap_or_default();
        let dst = &self.start.dst;
        let name = dst.ip.map(|ip| ip.to_string());
        let name = name
            .or(dst.mac.map(|mac| mac.to_string()))
            .unwrap_or_default();
        let text = match outcome {
            Outcome::Delivered => match dst.mac {
                Some(mac) if dst.ip.is_some() && self.is_last() => {
                    format!("delivered to {name} ({mac}) at {place}")
                }
                Some(mac) if dst.ip.is_some() => {
                    format!("delivered to the router {mac} at {place}, for {name}")
                }
                _ => format!("delivered to {name} at {place}"),
            },
            Outcome::Depends => {
                format!(
                    "the hash of a switch decides: some ways do not deliver it, at {switch}{by}"
                )
            }
            Outcome::Unknown => {
                let why = match (found, &at_hop.problem) {
                    (_, Some(problem)) => problem.clone(),
                    (Some(Step::Unknown { why, .. }), _) => why.to_string(),
                    _ => "the way is too long to be followed".to_owned(),
                };
                format!("nobody can say: {why}{by}")
            }
            Outcome::Loops => format!("it goes round: from {place} it comes back{by}"),
            Outcome::Controller => {
                let why = step.map(|step| self.controller_text((hop, step)));
                let why = why.unwrap_or_default();
                format!("goes to the controller at switch {switch}: {why}")
            }
            Outcome::Elsewhere => {
                let known = dst.seen.as_ref().and_then(|seen| seen.at);
                let known = known.map_or("at no known place".to_owned(), |at| format!("at {at}"));
                format!("leaves at {place}, and {name} is {known}{by}")
            }
            Outcome::Dropped => {
                let acting = step.and_then(|step| self.acting((hop, step)));
                let drops = |(_, step): (usize, &Step)| match step {
                    Step::Entry { entry, .. } => entry.instructions.is_empty(),
                    _ => false,
                };
                match found {
                    Some(Step::Drop { .. }) if acting.is_some_and(drops) => {
                        format!("dropped at switch {switch}{by}")
                    }
                    Some(Step::Drop { reason, .. }) => {
                        format!("dropped at switch {switch}: {}{by}", drop_text(*reason))
                    }
                    _ => format!("dropped at switch {switch}: nothing leads it on{by}"),
                }
            }
        };
        let to = dst.seen.as_ref().and_then(|seen| seen.at);
        let has_copies = outcome != Outcome::Controller && self.course.has_copies_to_controller();
        let (outcome, text) = match (outcome, to.filter(|_| self.start.has_no_way)) {
            (Outcome::Controller | Outcome::Dropped, Some(to)) => {
                let why = format!("there is no way through links to switch {}", to.dpid);
                (Outcome::Dropped, format!("{text}; {why}"))
            }
            _ => (outcome, text),
        };
        VerdictDocument {
            outcome: name_of(outcome).to_owned(),
            text,
            at: port.map(|port| port.to_string()),
            hop: hop as u64,
            step: step.map(|step| step as u64),
            also_to_controller: has_copies,
            doubts: self.doubts(),
        }
    }

    /// Whether the packet's next hop is its destination host.
    fn is_last(&self) -> bool {
        match self.start.routed.as_ref().map(|routed| routed.verdict) {
            Some(RouteVerdict::Forward(hop, _)) => Some(hop.ip) == self.start.dst.ip,
            _ => true,
        }
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        for hop in self.course.hops() {
            let dpid = hop.at.dpid;
            let read = self.reads.get(&dpid.0);
            if let Some(read) = read.filter(|read| read.is_partial) {
                doubts.push(format!(
                    "switch {dpid} has {} entries; foreign ones that name no host were not read",
                    read.entry_count
                ));
            }
            doubts.extend(hop.steps.iter().filter_map(|step| match step {
                Step::Entry { doubt, .. } | Step::Miss { doubt, .. } => {
                    doubt.map(|doubt| format!("switch {dpid}: {doubt}"))
                }
                _ => None,
            }));
        }
        if self
            .start
            .src
            .seen
            .as_ref()
            .is_some_and(|seen| seen.contested_by.is_some())
        {
            doubts.push("the sender's place is in question".to_owned());
        }
        doubts.sort();
        doubts.dedup();
        doubts
    }
}

fn packet(start: &Start) -> PacketDocument {
    let fields = PacketFields::parse(start.at.port, &start.packet);
    let all = FIELDS.iter().filter_map(|info| {
        let value = fields.get(info.field)?;
        let mask = None;
        let field = info.field;
        Some(MatchField::Basic { field, value, mask })
    });
    let text = Match {
        fields: all.collect(),
    }
    .to_string();
    let mac = |mac: Option<openflow::MacAddr>| mac.map(|mac| mac.to_string()).unwrap_or_default();
    PacketDocument {
        r#in: start.at.to_string(),
        eth_src: mac(fields.eth_src()),
        eth_dst: mac(fields.eth_dst()),
        tag: fields.vlan_id(),
        text,
        hex: HEXLOWER.encode(&start.packet),
    }
}

fn host(end: &End) -> HostDocument {
    let seen = end.seen.as_ref();
    let ips = seen.map(|seen| seen.ips.iter().map(ToString::to_string).collect());
    HostDocument {
        ip: end.ip.map(|ip| ip.to_string()),
        mac: end.mac.map(|mac| mac.to_string()),
        vlan: Some(end.vlan.number()).filter(|vlan| *vlan != 0),
        at: seen.and_then(|seen| seen.at).map(|at| at.to_string()),
        ips: ips.unwrap_or_default(),
        heard_s_ago: seen
            .and_then(|seen| seen.heard_ago)
            .map(|ago| ago.as_secs()),
        contested_by: seen
            .and_then(|seen| seen.contested_by)
            .map(|at| at.to_string()),
    }
}

fn route(routed: &Routed, dst: &End) -> RouteDocument {
    let (hop, text) = match routed.verdict {
        RouteVerdict::Forward(hop, _) if Some(hop.ip) == dst.ip => {
            (Some(hop), format!("routed into VLAN {}", hop.vlan))
        }
        RouteVerdict::Forward(hop, _) => (
            Some(hop),
            format!("routed into VLAN {}, next hop {}", hop.vlan, hop.ip),
        ),
        RouteVerdict::NoRoute => (None, "there is no route".to_owned()),
        RouteVerdict::Own => (None, "it is for the gateway itself".to_owned()),
        RouteVerdict::Expired => (None, "its TTL has run out".to_owned()),
        RouteVerdict::Refused => (None, "the gateway routes no such packet".to_owned()),
    };
    RouteDocument {
        gateway: routed.gateway.map(|ip| ip.to_string()),
        gateway_mac: routed.mac.to_string(),
        into_vlan: hop.map(|hop| hop.vlan.number()),
        next_hop: hop.map(|hop| hop.ip.to_string()),
        text,
    }
}

fn owner(owner: Option<&EntryOwner>) -> OwnerDocument {
    OwnerDocument {
        kind: owner.map_or("foreign", |owner| owner.kind).to_owned(),
        name: owner.and_then(|owner| owner.name.clone()),
        text: owner.map_or("", |owner| owner.text).to_owned(),
    }
}

fn rewrite(action: &Action, before: Option<u128>) -> StepDocument {
    let Action::SetField(MatchField::Basic { field, value, .. }) = action else {
        let action = action.to_string();
        return StepDocument::Rewrite { action };
    };
    let shown = |value| {
        let (field, mask) = (*field, None);
        let fields = vec![MatchField::Basic { field, value, mask }];
        let text = Match { fields }.to_string();
        let value = text.split_once('=').map(|(_, value)| value.to_owned());
        value.unwrap_or(text)
    };
    StepDocument::Set {
        field: field.info().text.to_owned(),
        from: before.map(shown),
        to: shown(*value),
    }
}

fn choices(only_if: &[Choice]) -> Vec<ChoiceDocument> {
    let choice = |choice: &Choice| ChoiceDocument {
        group: choice.group.0,
        bucket: choice.bucket as u64,
    };
    only_if.iter().map(choice).collect()
}

fn type_name(group_type: GroupType) -> &'static str {
    match group_type {
        GroupType::All => "all",
        GroupType::Select => "select",
        GroupType::Indirect => "indirect",
        GroupType::FastFailover => "fast_failover",
    }
}

fn name_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered => "delivered",
        Outcome::Depends => "depends",
        Outcome::Unknown => "unknown",
        Outcome::Loops => "loops",
        Outcome::Controller => "controller",
        Outcome::Elsewhere => "elsewhere",
        Outcome::Dropped => "dropped",
    }
}

fn drop_name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::InPortClosed => "in_port_closed",
        DropReason::TableMiss => "table_miss",
        DropReason::NoOutput => "no_output",
        DropReason::OutPortClosed => "out_port_closed",
        DropReason::BackToInPort => "back_to_in_port",
        DropReason::NoBucket => "no_bucket",
        DropReason::Expired => "expired",
        _ => "other",
    }
}
