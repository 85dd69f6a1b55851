//! The controller's knowledge of a packet to trace: its hosts, its VLAN and gateway, the statements
//! that apply to it, and the owners of the entries that it meets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use clock::Instant;
use openflow::multipart::FlowStats;
use openflow::packet::PacketFields;
use openflow::packet::build::tagged;
use openflow::packet::ip::Datagram;
use openflow::{Action, DatapathId, Instruction, MacAddr, PortNo, TableId, Version};

use crate::Location;
use crate::access::tables::Owner as AccessOwner;
use crate::access::{Access, Verdict as AccessVerdict};
use crate::entry::{EntryKind, is_own};
use crate::fabric::form::ingress_exit;
use crate::flows::parts::PartKind;
use crate::pipeline::{
    BINDING_TABLE, GUARD_TABLE, HOST_TABLE, LABEL_TABLE, MIRROR_TABLE, Numbering, ONWARD_TABLE,
    OUT_ACCESS_TABLE, OUT_TABLE, PATH_TABLE, POLICY_TABLE, PORT_ACCESS_TABLE, VLAN_ACCESS_TABLE,
    VLAN_TABLE,
};
use crate::qos::flow::Flow;
use crate::qos::plan::Owner as QosOwner;
use crate::qos::{Circuit, On, Policy, Service};
use crate::routing::Verdict as RouteVerdict;
use crate::trace::Destination;
use crate::trace::probe::Probe;
use crate::vlan::{Form, VlanId};

use super::Controller;
use super::hosts::Hosts;
pub use super::hosts::Seen;

/// A host, as named in a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    Ip(IpAddr),
    Mac(MacAddr),
}

/// The packet to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub src: Name,
    pub dst: Name,
    /// The sender's VLAN.
    pub vlan: Option<VlanId>,
    /// The Ethernet addresses, if they differ from the hosts' own.
    pub src_mac: Option<MacAddr>,
    pub dst_mac: Option<MacAddr>,
    /// Where the packet enters, if not at the sender's place.
    pub at: Option<Location>,
    pub probe: Probe,
}

/// A mistake in a question, by the name of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub field: &'static str,
    pub text: String,
}

/// One end of the packet's path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    pub ip: Option<IpAddr>,
    pub mac: Option<MacAddr>,
    pub vlan: VlanId,
    /// `None` for a host that is not known.
    pub seen: Option<Seen>,
}

/// The part of the packet's path that a gateway decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    pub gateway: Option<IpAddr>,
    pub mac: MacAddr,
    pub verdict: RouteVerdict,
}

/// Everything known before the packet is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub at: Location,
    pub packet: Bytes,
    pub src: End,
    pub dst: End,
    pub destination: Destination,
    /// The ports that get copies of mirrors.
    pub mirrors: BTreeSet<Location>,
    /// The Ethernet addresses that the packet may have on its path.
    pub macs: Vec<MacAddr>,
    pub routed: Option<Routed>,
    /// Whether there is no path over links from the port to the destination's switch.
    pub has_no_way: bool,
    /// The name of the timeouts' class of its hosts, and whether it forbids their packets.
    pub class: Option<(String, bool)>,
    pub services: Vec<String>,
    pub policies: Vec<String>,
    pub circuits: Vec<String>,
    pub access: AccessVerdict,
    /// The rules that the verdict names, in words.
    pub rules: Vec<String>,
}

/// The known facts about a switch on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub version: Version,
    pub is_connected: bool,
    pub links: BTreeMap<PortNo, Location>,
    /// The switch's ports, and whether they are up.
    pub ports: BTreeMap<PortNo, bool>,
    pub tables: Numbering,
}

/// The owner of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryOwner {
    pub kind: &'static str,
    /// The policy, circuit or rule of an access list, or the owner and name of a static entry.
    pub name: Option<String>,
    pub text: &'static str,
}

/// A group or a meter of a guest, by the guest's own number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPart {
    pub guest: Arc<str>,
    pub number: u32,
}

/// The purpose of a table, by auster's number.
pub fn table_name(table: TableId) -> Option<&'static str> {
    Some(match table {
        MIRROR_TABLE => "mirrors",
        GUARD_TABLE => "guards",
        BINDING_TABLE => "bindings",
        PORT_ACCESS_TABLE => "access of ports",
        VLAN_TABLE => "VLANs",
        VLAN_ACCESS_TABLE => "access of VLANs",
        OUT_TABLE => "routed VLANs",
        OUT_ACCESS_TABLE => "access of routed packets",
        ONWARD_TABLE => "static entries that go on",
        PATH_TABLE => "paths",
        POLICY_TABLE => "policies",
        LABEL_TABLE => "labels",
        HOST_TABLE => "hosts",
        _ => return None,
    })
}

impl Controller {
    /// Looks up everything known about a packet.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn trace_start(&self, now: Instant, asked: &Question) -> Result<Start, Vec<Wrong>> {
        let mut wrong = Vec::new();
        let sender = self.sender(now, asked, &mut wrong);
        let Some((at, src)) = sender else {
            return Err(wrong);
        };
        let form = self.outbox.vlans.form(self.network.place(at), src.vlan);
        if form.is_none() {
            let text = format!("port {at} is no member of VLAN {}", src.vlan);
            return Err(vec![Wrong {
                field: "vlan",
                text,
            }]);
        }
        let ips = ends_ips(asked, &src, &self.seen_named(now, asked.dst, src.vlan));
        let mut frame = |dst| {
            let src = src.mac.unwrap_or(MacAddr([0; 6]));
            let frame = asked.probe.frame((src, dst), ips);
            match (form, src_tag(form, asked.vlan)) {
                (_, Some(vlan)) => Bytes::from(tagged(&frame, vlan.number(), 0)),
                _ => Bytes::from(frame),
            }
        };
        let (dst, first_mac, routed) = match self.receiver(now, asked, &src, ips, &mut frame) {
            Ok(found) => found,
            Err(found) => return Err(vec![found]),
        };
        let packet = frame(first_mac);
        Ok(self.start(now, asked, (at, packet), (src, dst), routed))
    }

    /// The sender, and where its packet enters.
    fn sender(
        &self,
        now: Instant,
        asked: &Question,
        wrong: &mut Vec<Wrong>,
    ) -> Option<(Location, End)> {
        let mut fail = |field, text| wrong.push(Wrong { field, text });
        if let Some(at) = asked.at
            && self.network.port(at).is_none()
        {
            fail("in", format!("there is no port {at}"));
            return None;
        }
        let of_port = asked.at.and_then(|at| {
            let (place, tag) = (self.network.place(at), asked.vlan.map(VlanId::number));
            let vlans = &self.outbox.vlans;
            let vlan = vlans.classify(place, None);
            let tagged = vlans.classify(place, tag);
            tagged.filter(|it| Some(*it) == asked.vlan).or(vlan)
        });
        let vlan = asked.vlan.or(of_port);
        let found = self.find(asked.src, vlan);
        let (vlan, mac) = match found[..] {
            [(vlan, mac)] => (vlan, mac),
            [] => {
                let mac = asked.src_mac.or(match asked.src {
                    Name::Mac(mac) => Some(mac),
                    Name::Ip(_) => None,
                });
                let (Some(mac), Some(_)) = (mac, asked.at) else {
                    let src = show(asked.src);
                    fail(
                        "src",
                        format!(
                            "no host {src} is known{}; {}say where its packets come in (in) and \
                             its Ethernet address (src_mac)",
                            vlan_text(vlan),
                            remedy(asked.src),
                        ),
                    );
                    return None;
                };
                (vlan.unwrap_or(VlanId::NONE), mac)
            }
            _ => {
                fail("vlan", several(asked.src, &found));
                return None;
            }
        };
        let seen = self.hosts_of(vlan).and_then(|hosts| hosts.seen(now, mac));
        let place = seen.as_ref().and_then(|seen| seen.at);
        let Some(at) = asked
            .at
            .or_else(|| place.map(|place| self.first_port(place)))
        else {
            let src = show(asked.src);
            fail(
                "src",
                format!("{src} has no place now: its port is down; state one (in)"),
            );
            return None;
        };
        let ip = match asked.src {
            Name::Ip(ip) => Some(ip),
            Name::Mac(_) => None,
        };
        let mac = Some(asked.src_mac.unwrap_or(mac));
        Some((
            at,
            End {
                ip,
                mac,
                vlan,
                seen,
            },
        ))
    }

    /// The receiver, the packet's destination Ethernet address, and the part decided by a gateway.
    fn receiver(
        &self,
        now: Instant,
        asked: &Question,
        src: &End,
        ips: Option<(IpAddr, IpAddr)>,
        frame: &mut impl FnMut(MacAddr) -> Bytes,
    ) -> Result<(End, MacAddr, Option<Routed>), Wrong> {
        let routing = self.gateways.routing();
        let gateway = routing.of(src.vlan);
        let to = ips.map(|(_, to)| to);
        let is_near = |to: IpAddr| {
            let mut subnets = gateway.iter().flat_map(|gateway| &gateway.subnets);
            subnets.any(|subnet| subnet.network.contains(to))
        };
        let is_to_gateway = match (gateway, asked.dst_mac) {
            (Some(gateway), Some(mac)) => gateway.mac == mac,
            (Some(gateway), None) => to.is_some_and(|to| gateway.owns(to) || !is_near(to)),
            (None, _) => false,
        };
        let here = self.find(asked.dst, Some(src.vlan));
        let is_named = matches!(asked.dst, Name::Mac(_)) && !here.is_empty();
        if let (Some(gateway), Some(to)) = (gateway, to.filter(|_| is_to_gateway && !is_named)) {
            let sent = frame(gateway.mac);
            let untagged = without_tag(&sent);
            let verdict = match Datagram::read(&untagged) {
                Some(Ok(datagram)) => routing.judge(src.vlan, &datagram),
                _ => RouteVerdict::Refused,
            };
            let routed = Routed {
                gateway: gateway.address_for(to),
                mac: gateway.mac,
                verdict,
            };
            let (vlan, ip) = match verdict {
                RouteVerdict::Forward(hop, _) => (hop.vlan, hop.ip),
                _ => (src.vlan, to),
            };
            let mac = self.hosts_of(vlan).and_then(|hosts| hosts.by_ip(ip));
            let seen = mac.and_then(|mac| self.hosts_of(vlan)?.seen(now, mac));
            let end = End {
                ip: Some(to),
                mac,
                vlan,
                seen,
            };
            return Ok((end, gateway.mac, Some(routed)));
        }
        let known = here.first().map(|(_, mac)| *mac);
        let mac = asked.dst_mac.or(known).or(match asked.dst {
            Name::Mac(mac) => Some(mac),
            Name::Ip(_) => None,
        });
        let Some(mac) = mac else {
            let dst = show(asked.dst);
            let elsewhere = self.find(asked.dst, None);
            let why = match (elsewhere.first(), gateway) {
                (Some((vlan, _)), None) if *vlan != src.vlan => format!(
                    "{dst} is in VLAN {vlan}, and the sender's{} has no gateway",
                    vlan_text(Some(src.vlan))
                ),
                _ => format!("no host {dst} is known{}", vlan_text(Some(src.vlan))),
            };
            let text = format!(
                "{why}: the sender would ask for it and send nothing; {}state its Ethernet address \
                 (dst_mac)",
                remedy(asked.dst)
            );
            return Err(Wrong { field: "dst", text });
        };
        let seen = self
            .hosts_of(src.vlan)
            .and_then(|hosts| hosts.seen(now, mac));
        let end = End {
            ip: to,
            mac: Some(mac),
            vlan: src.vlan,
            seen,
        };
        Ok((end, mac, None))
    }

    fn start(
        &self,
        now: Instant,
        asked: &Question,
        (at, packet): (Location, Bytes),
        (src, dst): (End, End),
        routed: Option<Routed>,
    ) -> Start {
        let fields = PacketFields::parse(at.port, &packet);
        let place = dst.seen.as_ref().and_then(|seen| seen.at);
        let ports = place.map(|place| self.outbox.bonds.ports(place));
        let vlans = &self.outbox.vlans;
        let around = (&**vlans, self.gateways.routing());
        let access = self.access.judge(around, at, &fields);
        let gateway = routed.as_ref().map(|routed| routed.mac);
        let macs = [src.mac, asked.src_mac, dst.mac, asked.dst_mac, gateway];
        let hosts = &self.hosts;
        let timeouts = &self.config.timeouts;
        let class = src
            .mac
            .zip(dst.mac)
            .and_then(|pair| hosts.class_of(timeouts, pair, None));
        let qos = self.qos.demands();
        let services: Vec<&Service> = qos
            .services
            .iter()
            .filter(|service| takes(service, None, &fields))
            .collect();
        let service = |name: &str| services.iter().find(|service| service.name == name);
        let is_of_policy = |policy: &&Policy| {
            let ends = match &policy.on {
                On::Path { from, to } => Some((*from, *to)),
                _ => None,
            };
            let of = service(&policy.service);
            of.is_some_and(|service| takes(service, ends, &fields))
        };
        let is_of_circuit = |circuit: &&Circuit| {
            let any = Service::default();
            let of = match &circuit.service {
                Some(name) => service(name).copied(),
                None => Some(&any),
            };
            let takes = |ends| of.is_some_and(|service| takes(service, Some(ends), &fields));
            takes((circuit.from, circuit.to)) || circuit.both && takes((circuit.to, circuit.from))
        };
        let policies = qos.policies.iter().filter(is_of_policy);
        let circuits = qos.circuits.iter().filter(is_of_circuit);
        Start {
            class: class.map(|class| (class.name.clone(), class.forbid)),
            policies: policies.map(|policy| policy.name.clone()).collect(),
            circuits: circuits.map(|circuit| circuit.name.clone()).collect(),
            services: services
                .iter()
                .map(|service| service.name.clone())
                .collect(),
            rules: self.rules(&access),
            access,
            destination: Destination {
                mac: dst.mac,
                ports: ports.unwrap_or_default(),
                tag: match place.filter(|_| !dst.vlan.is_none()) {
                    Some(at) => vlans
                        .form(at, dst.vlan)
                        .filter(|form| *form == Form::Tagged)
                        .map(|_| dst.vlan.number()),
                    None => fields.vlan_id(),
                },
            },
            has_no_way: place.is_some_and(|to| self.network.parts.are_apart(now, at.dpid, to.dpid)),
            mirrors: self.outbox.mirrors.targets().clone(),
            macs: macs.into_iter().flatten().collect(),
            routed,
            at,
            packet,
            src,
            dst,
        }
    }

    fn rules(&self, verdict: &AccessVerdict) -> Vec<String> {
        let access: &Access = self.access.stated();
        match verdict {
            AccessVerdict::Allowed(rules) => rules.iter().map(|id| access.rule_name(id)).collect(),
            AccessVerdict::Denied(id) => vec![access.rule_name(id)],
            _ => Vec::new(),
        }
    }

    /// The hosts of this name, with their VLANs: in one VLAN, or in all.
    fn find(&self, name: Name, vlan: Option<VlanId>) -> Vec<(VlanId, MacAddr)> {
        let all = [(&VlanId::NONE, &self.hosts)].into_iter();
        let all = all.chain(&self.vlan_hosts);
        let all = all.filter(|(of, _)| vlan.is_none_or(|vlan| vlan == **of));
        let mac = |hosts: &Hosts| match name {
            Name::Ip(ip) => hosts.by_ip(ip),
            Name::Mac(mac) => Some(mac).filter(|mac| hosts.is_known(*mac)),
        };
        let found = all.filter_map(|(vlan, hosts)| Some((*vlan, mac(hosts)?)));
        found.collect()
    }

    fn hosts_of(&self, vlan: VlanId) -> Option<&Hosts> {
        match vlan.is_none() {
            true => Some(&self.hosts),
            false => self.vlan_hosts.get(&vlan),
        }
    }

    fn seen_named(&self, now: Instant, name: Name, vlan: VlanId) -> Option<Seen> {
        let (vlan, mac) = *self.find(name, Some(vlan)).first()?;
        self.hosts_of(vlan)?.seen(now, mac)
    }

    /// A port of a place: for a bond, the first port that is up.
    fn first_port(&self, place: Location) -> Location {
        let ports = self.outbox.bonds.ports(place);
        let up = ports.iter().copied().find(|at| self.network.is_up(*at));
        up.or(ports.first().copied()).unwrap_or(place)
    }

    /// The known facts about a switch on the path; `None` if the switch is unknown.
    pub fn trace_switch(&self, dpid: DatapathId) -> Option<Known> {
        let switch = self.network.switch(dpid)?;
        let ups = switch.ports.iter();
        let ups = ups.map(|(port, known)| (*port, known.state.is_up()));
        let ports = self.network.links.ports(dpid);
        let links = ports.filter_map(|port| {
            let far = self.network.links.peer(Location { dpid, port })?;
            Some((port, far))
        });
        Some(Known {
            version: switch.version,
            is_connected: switch.connection.is_some(),
            links: links.collect(),
            ports: ups.collect(),
            tables: self.outbox.numbering(dpid),
        })
    }

    /// The guest of a group or a meter of a switch, by its number there; `None` if no guest owns
    /// it.
    pub fn trace_part(&self, dpid: DatapathId, kind: PartKind, id: u32) -> Option<GuestPart> {
        self.guests.of_part(dpid, kind, id)
    }

    /// The owner of an entry, as a switch reports the entry.
    pub fn trace_owner(&self, dpid: DatapathId, row: &FlowStats) -> EntryOwner {
        let owner = |kind, text| EntryOwner {
            kind,
            name: None,
            text,
        };
        if !is_own(row.cookie) {
            return owner("foreign", "somebody else has set it");
        }
        let row = self.outbox.numbering(dpid).read(row.clone());
        if Flow::is_its(row.cookie) {
            let found = Flow::from_stats(&row).and_then(|flow| self.qos.owner(dpid, &flow.key));
            return match found {
                Some(QosOwner::Policy(name)) => EntryOwner {
                    name: Some(name.clone()),
                    ..owner("policy", "a policy")
                },
                Some(QosOwner::Circuit(name)) => EntryOwner {
                    name: Some(name.clone()),
                    ..owner("circuit", "a circuit")
                },
                _ if row.table_id == POLICY_TABLE => owner("policy", "the way on of policies"),
                _ => owner("circuit", "a circuit that is no more"),
            };
        }
        let Some(kind) = EntryKind::of(row.cookie) else {
            return owner("foreign", "auster does not know its kind");
        };
        if kind == EntryKind::Static {
            return EntryOwner {
                name: self.stated.owner_of(dpid, &row).map(ToString::to_string),
                ..owner("static", "a static entry")
            };
        }
        if kind == EntryKind::Tap {
            let tap = self.taps.of(row.cookie);
            return EntryOwner {
                name: tap.map(|id| format!("{}/{}", id.owner, id.name)),
                ..owner("tap", "packets for an application")
            };
        }
        if kind == EntryKind::Guest {
            return EntryOwner {
                name: self.guests.of(row.cookie).map(str::to_owned),
                ..owner("guest", "an entry of a guest")
            };
        }
        if kind == EntryKind::Local && leads_to_label(self.fabric.tag(), &row) {
            return owner(
                "local",
                "to a host of another switch, by that switch's label",
            );
        }
        let (kind, text) = kind_text(kind);
        if kind != "access" {
            return owner(kind, text);
        }
        match self.access.owner(dpid, &row) {
            Some(AccessOwner::Rule(id)) => EntryOwner {
                name: Some(self.access.stated().rule_name(id)),
                ..owner(kind, "a rule of an access list")
            },
            Some(AccessOwner::End(_)) => owner(kind, "no rule of the lists matches"),
            Some(AccessOwner::Bindings) => owner(kind, "hosts that a port is bound to"),
            Some(AccessOwner::DhcpServers) => owner(kind, "who may be a DHCP server"),
            Some(AccessOwner::Routers) => owner(kind, "who may be a router"),
            _ => owner(kind, text),
        }
    }
}

/// Whether a service includes a packet, between these hosts.
fn takes(
    service: &Service,
    ends: Option<(crate::timeouts::HostName, crate::timeouts::HostName)>,
    packet: &PacketFields,
) -> bool {
    let matchings = service.matchings(ends, false);
    matchings.iter().any(|matching| matching.takes(packet))
}

/// The tag of a packet of the sender. Outside all VLANs, a stated tag is the host's own.
fn src_tag(form: Option<Form>, vlan: Option<VlanId>) -> Option<VlanId> {
    vlan.filter(|_| form == Some(Form::Tagged))
}

fn without_tag(frame: &Bytes) -> Vec<u8> {
    match crate::vlan::tag_of(frame) {
        Some(_) => [&frame[..12], &frame[16..]].concat(),
        None => frame.to_vec(),
    }
}

/// The IP addresses of the packet, of one family.
fn ends_ips(asked: &Question, src: &End, dst: &Option<Seen>) -> Option<(IpAddr, IpAddr)> {
    let of = |name, seen: &Option<Seen>, is_ipv4: Option<bool>| match name {
        Name::Ip(ip) => Some(ip),
        Name::Mac(_) => {
            let mut ips = seen.iter().flat_map(|seen| &seen.ips).copied();
            ips.find(|ip| is_ipv4.is_none_or(|is_ipv4| ip.is_ipv4() == is_ipv4))
        }
    };
    let to = match asked.dst {
        Name::Ip(ip) => Some(ip),
        name => of(
            name,
            dst,
            of(asked.src, &src.seen, None).map(|ip| ip.is_ipv4()),
        ),
    }?;
    let from = of(asked.src, &src.seen, Some(to.is_ipv4()))?;
    (from.is_ipv4() == to.is_ipv4()).then_some((from, to))
}

fn show(name: Name) -> String {
    match name {
        Name::Ip(ip) => ip.to_string(),
        Name::Mac(mac) => mac.to_string(),
    }
}

/// Advice on naming a host whose IP address is not known, as after a restart.
fn remedy(name: Name) -> &'static str {
    match name {
        Name::Ip(_) => {
            "an IP address is known once an ARP or neighbour message of its host has come to the \
             controller: let it send one (arping), name it by its Ethernet address, or "
        }
        Name::Mac(_) => "",
    }
}

fn vlan_text(vlan: Option<VlanId>) -> String {
    match vlan.filter(|vlan| !vlan.is_none()) {
        Some(vlan) => format!(" in VLAN {vlan}"),
        None => String::new(),
    }
}

fn several(name: Name, found: &[(VlanId, MacAddr)]) -> String {
    let vlans: Vec<String> = found.iter().map(|(vlan, _)| vlan.to_string()).collect();
    let name = show(name);
    format!(
        "{name} is in VLANs {}: state which of them (vlan)",
        vlans.join(", ")
    )
}

/// Whether an entry of an edge forwards to another switch. The entry may first remove the packet's
/// own tag.
fn leads_to_label(tag: u16, row: &FlowStats) -> bool {
    let [Instruction::ApplyActions(actions)] = &row.instructions[..] else {
        return false;
    };
    let rest = actions.strip_prefix(&[Action::PopVlan]).unwrap_or(actions);
    ingress_exit(tag, rest).is_some()
}

fn kind_text(kind: EntryKind) -> (&'static str, &'static str) {
    match kind {
        EntryKind::Infrastructure => ("infrastructure", "packets that no other entry leads"),
        EntryKind::Pair => ("pair", "the path of this pair of hosts"),
        EntryKind::Destination => ("destination", "the way to this host"),
        EntryKind::Local => ("local", "between two hosts of this switch"),
        EntryKind::Barred => ("barred", "a class of the timeouts forbids this pair"),
        EntryKind::Report => (
            "report",
            "the way to this host, and a copy to the controller",
        ),
        EntryKind::Coarse => (
            "coarse",
            "the way to this host for all pairs from this port",
        ),
        EntryKind::Service => ("service", "the path of a service of this pair"),
        EntryKind::Barrier => ("barrier", "a class of the timeouts forbids these packets"),
        EntryKind::Watch => ("watch", "the sender's place is in question"),
        EntryKind::Guard => ("guard", "packets that are dropped or inspected"),
        EntryKind::Fabric => ("fabric", "the way of a label"),
        EntryKind::Sender => ("sender", "copies of multicast"),
        EntryKind::Access => ("access", "the way from table to table"),
        EntryKind::Routed => ("routed", "the gateway routes this host's packets"),
        EntryKind::Static => ("static", "a static entry"),
        EntryKind::Tap => ("tap", "packets for an application"),
        EntryKind::Guest => ("guest", "an entry of a guest"),
        EntryKind::Tree => ("tree", "the way of broadcasts"),
    }
}
