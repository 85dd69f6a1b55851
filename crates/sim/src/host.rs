//! Hosts: they answer ARP, neighbour discovery and pings, resolve addresses before they send, and
//! count the packets they receive.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};

use openflow::packet::PacketFields;
use openflow::packet::build::{Host as Address, arp_reply, arp_request, icmp_echo_reply};
use openflow::packet::build::{
    icmp_echo_request, neighbour_advertisement, neighbour_answer, neighbour_solicitation, tagged,
    udp,
};
use openflow::{Field, MacAddr, PortNo};

/// Ethernet, IPv4 and UDP headers.
const UDP_PAYLOAD_AT: usize = 14 + 20 + 8;
const ICMP_AT: usize = 14 + 20;

/// Maximum number of packets that wait for addresses.
const UNRESOLVED_MAX: usize = 64;

pub struct Host {
    pub address: Address,
    /// The VLAN id with which the host tags its frames; it drops frames without this id.
    pub vlan: Option<u16>,
    /// The host's IPv6 address, for which it answers solicitations.
    pub ip6: Option<Ipv6Addr>,
    /// Whether the host announces itself as a router.
    pub is_router: bool,
    /// The router for destinations outside the host's network, and the network's number of
    /// addresses.
    pub gateway: Option<(Ipv4Addr, u32)>,
    neighbours: BTreeMap<Ipv6Addr, Neighbour>,
    /// Solicitations received for its IPv6 address.
    pub solicited: u32,
    arp: BTreeMap<Ipv4Addr, MacAddr>,
    /// Waiting packets, each with the address being resolved and the destination.
    unresolved: VecDeque<(Ipv4Addr, Ipv4Addr, Packet)>,
    /// Whether the host is silent: it neither receives nor answers.
    pub silent: bool,
    /// Echo replies, by the address that answered and the sequence number.
    pub pongs: BTreeMap<(Ipv4Addr, u16), u32>,
    /// ICMP errors: the address that reports them, their type and their code.
    pub reports: Vec<(Ipv4Addr, u8, u8)>,
    /// UDP payloads received, counted by the number they begin with.
    pub datagrams: BTreeMap<u64, u32>,
    /// The same numbers in order of arrival.
    pub arrivals: Vec<u64>,
    /// ARP requests received, by sender and target.
    pub arp_heard: BTreeMap<(Ipv4Addr, Ipv4Addr), u32>,
    pub received: u64,
    /// Number of switches that the last frame for this host passed after a host or the controller
    /// sent it.
    pub passed: usize,
    /// Whether every frame is kept in `recorded`, whatever its destination.
    pub record: bool,
    pub recorded: Vec<Vec<u8>>,
}

/// An entry of a host's neighbour cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub mac: MacAddr,
    pub is_router: bool,
}

#[derive(Clone, Copy)]
enum Packet {
    Ping(u16),
    Datagram(u64),
}

impl Host {
    pub fn new(address: Address) -> Host {
        Host {
            address,
            vlan: None,
            ip6: None,
            is_router: false,
            gateway: None,
            neighbours: BTreeMap::new(),
            solicited: 0,
            arp: BTreeMap::new(),
            unresolved: VecDeque::new(),
            silent: false,
            pongs: BTreeMap::new(),
            reports: Vec::new(),
            datagrams: BTreeMap::new(),
            arrivals: Vec::new(),
            arp_heard: BTreeMap::new(),
            received: 0,
            passed: 0,
            record: false,
            recorded: Vec::new(),
        }
    }

    /// Host `n` of a network of at most 65,535.
    pub fn numbered(n: u16) -> Host {
        let [high, low] = n.to_be_bytes();
        Host::new(Address::new(
            MacAddr([2, 0, 0, 0, high, low]),
            Ipv4Addr::new(10, 0, high, low),
        ))
    }

    /// A frame that asks for the Ethernet address of `to`, and nothing else.
    pub fn resolve(&mut self, to: Ipv4Addr) -> Vec<u8> {
        arp_request(self.address, to)
    }

    /// A frame that asks for the Ethernet address of `to` by neighbour discovery, if the host has
    /// an IPv6 address itself.
    pub fn solicit(&self, to: Ipv6Addr) -> Option<Vec<u8>> {
        Some(neighbour_solicitation((self.address.mac, self.ip6?), to))
    }

    pub fn neighbour(&self, ip: Ipv6Addr) -> Option<Neighbour> {
        self.neighbours.get(&ip).copied()
    }

    pub fn has_resolved(&self, ip: Ipv4Addr) -> bool {
        self.arp.contains_key(&ip)
    }

    /// Empties the host's address caches.
    pub fn forget_addresses(&mut self) {
        self.arp.clear();
        self.neighbours.clear();
    }

    /// Frames that send an echo request to `to`.
    pub fn ping(&mut self, to: Ipv4Addr, seq: u16) -> Vec<Vec<u8>> {
        self.send(to, Packet::Ping(seq))
    }

    /// Frames of a datagram whose payload begins with `number`.
    pub fn datagram(&mut self, to: Ipv4Addr, number: u64) -> Vec<Vec<u8>> {
        self.send(to, Packet::Datagram(number))
    }

    fn send(&mut self, to: Ipv4Addr, packet: Packet) -> Vec<Vec<u8>> {
        let next = self.next_hop(to);
        if let Some(mac) = self.arp.get(&next) {
            return vec![self.frame(Address { mac: *mac, ip: to }, packet)];
        }
        if self.unresolved.len() < UNRESOLVED_MAX {
            self.unresolved.push_back((next, to, packet));
        }
        vec![arp_request(self.address, next)]
    }

    fn next_hop(&self, to: Ipv4Addr) -> Ipv4Addr {
        let network = |ip: Ipv4Addr, size: u32| u32::from(ip) / size;
        match self.gateway {
            Some((gateway, size)) if network(to, size) != network(gateway, size) => gateway,
            _ => to,
        }
    }

    fn frame(&self, to: Address, packet: Packet) -> Vec<u8> {
        match packet {
            Packet::Ping(seq) => icmp_echo_request(self.address, to, 1, seq, &[0; 8]),
            Packet::Datagram(number) => udp(self.address, to, (4000, 4001), &number.to_be_bytes()),
        }
    }

    /// A frame as it leaves the host.
    pub(crate) fn sent(&self, frame: Vec<u8>) -> Vec<u8> {
        match self.vlan {
            Some(vlan) => tagged(&frame, vlan, 0),
            None => frame,
        }
    }

    /// Handles a received frame and returns the replies.
    pub fn handle_frame(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        if self.record {
            self.recorded.push(frame.to_vec());
        }
        if let Some(vlan) = self.vlan {
            let fields = PacketFields::parse(PortNo(1), frame);
            if fields.vlan_id() != Some(vlan) {
                return Vec::new();
            }
            let frame = [&frame[..12], &frame[16..]].concat();
            return self.handle_untagged(&frame);
        }
        self.handle_untagged(frame)
    }

    fn handle_untagged(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let fields = PacketFields::parse(PortNo(1), frame);
        let group = self.ip6.map(|ip| {
            let [.., a, b, c] = ip.octets();
            MacAddr([0x33, 0x33, 0xff, a, b, c])
        });
        let for_us = [Some(self.address.mac), Some(MacAddr::BROADCAST), group];
        if self.silent || !for_us.contains(&fields.eth_dst()) {
            return Vec::new();
        }
        self.received += 1;
        if let Some(target) = fields.get(Field::Ipv6NdTarget) {
            return self.handle_neighbour(&fields, target.into(), frame);
        }
        if fields.get(Field::ArpOp).is_some() {
            return self.handle_arp(&fields);
        }
        let ip = |field| fields.get(field).map(|v| Ipv4Addr::from(v as u32));
        let from = fields.eth_src().zip(ip(Field::Ipv4Src));
        let Some((mac, from)) = from.filter(|_| ip(Field::Ipv4Dst) == Some(self.address.ip)) else {
            return Vec::new();
        };
        let number = |at: usize, len: usize| {
            let bytes = frame.get(at..at + len).unwrap_or_default();
            bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
        };
        match fields.get(Field::Icmpv4Type) {
            Some(8) => {
                let (id, seq) = (number(ICMP_AT + 4, 2) as u16, number(ICMP_AT + 6, 2) as u16);
                let to = Address { mac, ip: from };
                vec![icmp_echo_reply(self.address, to, id, seq, &[0; 8])]
            }
            Some(0) => {
                let seq = number(ICMP_AT + 6, 2) as u16;
                *self.pongs.entry((from, seq)).or_default() += 1;
                Vec::new()
            }
            Some(kind @ (3 | 11)) => {
                let code = fields.get(Field::Icmpv4Code).unwrap_or(0);
                self.reports.push((from, kind as u8, code as u8));
                Vec::new()
            }
            _ => {
                let number = number(UDP_PAYLOAD_AT, 8);
                self.arrivals.push(number);
                *self.datagrams.entry(number).or_default() += 1;
                Vec::new()
            }
        }
    }

    fn handle_neighbour(
        &mut self,
        fields: &PacketFields,
        target: Ipv6Addr,
        frame: &[u8],
    ) -> Vec<Vec<u8>> {
        let Some((mac, from)) = fields.eth_src().zip(fields.get(Field::Ipv6Src)) else {
            return Vec::new();
        };
        if let Some(is_router) = fields.says_router(frame) {
            self.neighbours.insert(target, Neighbour { mac, is_router });
            return Vec::new();
        }
        if self.ip6 != Some(target) {
            return Vec::new();
        }
        self.solicited += 1;
        let (own, from) = ((self.address.mac, target), Ipv6Addr::from(from));
        vec![match from.is_unspecified() {
            true => neighbour_advertisement(own, self.is_router),
            false => neighbour_answer(own, (mac, from), self.is_router),
        }]
    }

    fn handle_arp(&mut self, fields: &PacketFields) -> Vec<Vec<u8>> {
        let ip = |field| fields.get(field).map(|v| Ipv4Addr::from(v as u32));
        let (Some(mac), Some(asker), Some(asked)) =
            (fields.eth_src(), ip(Field::ArpSpa), ip(Field::ArpTpa))
        else {
            return Vec::new();
        };
        if fields.get(Field::ArpOp) == Some(1) {
            *self.arp_heard.entry((asker, asked)).or_default() += 1;
            let to = Address { mac, ip: asker };
            return match asked == self.address.ip {
                true => vec![arp_reply(self.address, to)],
                false => Vec::new(),
            };
        }
        self.arp.insert(asker, mac);
        let waiting = std::mem::take(&mut self.unresolved);
        let (ready, rest) = waiting.into_iter().partition(|(next, ..)| *next == asker);
        self.unresolved = rest;
        let ready: VecDeque<(Ipv4Addr, Ipv4Addr, Packet)> = ready;
        ready
            .into_iter()
            .map(|(_, ip, packet)| self.frame(Address { mac, ip }, packet))
            .collect()
    }
}
