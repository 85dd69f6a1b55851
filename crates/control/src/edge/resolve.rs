//! Answers questions for IP addresses, by ARP and IPv6 neighbour discovery, on behalf of the
//! requested host.
//!
//! The edge answers only from decisions of the controller: the asker is at this port and owns its
//! source address, and another host, which the edge knows, owns the requested address. The edge
//! leaves all other questions to the controller: announcements, probes for an address, new or other
//! bindings, unknown or disputed addresses, and questions to one host. It also leaves questions for
//! IPv6 addresses of routers, and of hosts that have not declared that they are not routers.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;

use bytes::BytesMut;
use clock::{Budget, Duration, Instant};
use openflow::MacAddr;
use openflow::packet::nd::{self, Solicitation};

use crate::fabric::Exit;
use crate::fabric::addresses::Addresses;

use crate::vlan::{self, VlanId};

use super::wire::{Answer, Crossing, ETH_TYPE_ARP, u16_at};
use super::{Started, Verdict};

/// Time after which the controller sees another question from an address, and so learns that the
/// host still has the address.
const SHOW_INTERVAL: Duration = Duration::from_secs(60);

/// Number of such addresses remembered; a newer one in the same slot replaces an older one.
const ASKERS: usize = 64;

/// Maximum number of questions that one edge shows in a second.
const SHOWN_PER_S: u32 = 16;

/// The length of an ARP message for IPv4 over Ethernet, with its Ethernet header.
const ARP_LEN: usize = 42;

/// Hardware, protocol, lengths and kind of an ARP message for IPv4 over Ethernet.
const REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const REPLY: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];

/// The beginning of a frame to the multicast group of hosts that may have an IPv6 address.
const GROUPS: [u8; 3] = [0x33, 0x33, 0xff];

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The address that the question came from.
    pub to: IpAddr,
    /// The host that owns the requested address.
    pub owner: MacAddr,
    pub frame: Frame,
}

/// A frame of one of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Arp([u8; ARP_LEN]),
    Neighbour([u8; nd::LEN]),
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Frame::Arp(frame) => frame,
            Frame::Neighbour(frame) => frame,
        }
    }
}

/// The answer to a frame, if the frame is a question to all hosts, its sender owns its source
/// address, and another host owns the requested address and does not answer for itself.
#[inline]
pub(crate) fn reply(frame: &[u8], addresses: &Addresses) -> Option<Reply> {
    if frame.starts_with(&MacAddr::BROADCAST.0) {
        arp_reply(frame, addresses)
    } else if frame.starts_with(&GROUPS) {
        neighbour_reply(frame, addresses)
    } else {
        None
    }
}

fn arp_reply(frame: &[u8], addresses: &Addresses) -> Option<Reply> {
    let asker = MacAddr(*frame.get(6..)?.first_chunk()?);
    let is_question = u16_at(frame, 12)? == ETH_TYPE_ARP
        && *frame.get(14..22)? == REQUEST
        && *frame.get(22..28)? == asker.0;
    let [from, asked] = [28, 38].map(|at| frame.get(at..at + 4));
    let (from, asked) = (from?.first_chunk::<4>()?, asked?.first_chunk::<4>()?);
    if !is_question {
        return None;
    }
    let [to, ip] = [*from, *asked].map(|ip| IpAddr::V4(Ipv4Addr::from(ip)));
    let owner = answered_owner(addresses, (asker, to), ip)?;
    let mut reply = [0; ARP_LEN];
    let parts = [&asker.0[..], &owner.0, &ETH_TYPE_ARP.to_be_bytes(), &REPLY];
    let ends = [&owner.0[..], asked, &asker.0, from];
    let bytes = parts.into_iter().chain(ends).flatten();
    for (to, byte) in reply.iter_mut().zip(bytes) {
        *to = *byte;
    }
    let frame = Frame::Arp(reply);
    Some(Reply { to, owner, frame })
}

fn neighbour_reply(frame: &[u8], addresses: &Addresses) -> Option<Reply> {
    let question = Solicitation::read(frame)?;
    let to = IpAddr::V6(question.from);
    let asker = (question.asker, to);
    let owner = answered_owner(addresses, asker, IpAddr::V6(question.target))?;
    let frame = Frame::Neighbour(question.answer(owner));
    Some(Reply { to, owner, frame })
}

/// The owner of `asked`, if others answer for it and the asker owns its own address.
fn answered_owner(
    addresses: &Addresses,
    (asker, from): (MacAddr, IpAddr),
    asked: IpAddr,
) -> Option<MacAddr> {
    addresses.get(from).filter(|it| it.mac == asker)?;
    let owner = addresses.get(asked)?;
    (owner.mac != asker && !owner.answers_itself).then_some(owner.mac)
}

/// Addresses from which the controller has recently seen questions.
pub(super) struct Shown {
    /// Allocated at the first question: many switches have no hosts.
    askers: Option<Box<[(IpAddr, Instant); ASKERS]>>,
    budget: Budget,
}

impl Shown {
    pub(super) fn new() -> Shown {
        Shown {
            askers: None,
            budget: Budget::new(Instant::START, SHOWN_PER_S, SHOWN_PER_S),
        }
    }

    /// Whether the controller should see this question.
    fn is_due(&mut self, now: Instant, asker: IpAddr) -> bool {
        let bits = match asker {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let hash = clock::mix(clock::mix((bits >> 64) as u64) ^ bits as u64);
        let none = || Box::new([(Ipv4Addr::UNSPECIFIED.into(), Instant::START); ASKERS]);
        let last = &mut self.askers.get_or_insert_with(none)[hash as usize % ASKERS];
        let is_recent = last.0 == asker && now.since(last.1) < SHOW_INTERVAL;
        let is_due = !is_recent && self.budget.take(now);
        if is_due {
            *last = (asker, now);
        }
        is_due
    }
}

impl Started {
    /// Answers a question of a host at an open port. First sets the asker's entry to the host, if
    /// entries must precede conversations.
    pub(super) fn answer_question(
        &mut self,
        now: Instant,
        vlan: VlanId,
        question: &Answer<'_>,
        out: &mut BytesMut,
    ) -> Option<Verdict> {
        if question.is_copy || question.buffer_id.is_some() {
            return None;
        }
        let fabric = self.fabric.as_ref()?;
        let presets = fabric.presets;
        let tag = vlan::tag_of(question.data).filter(|_| !vlan.is_none());
        let untagged = tag.map(|_| [&question.data[..12], &question.data[16..]].concat());
        let data = untagged.as_deref().unwrap_or(question.data);
        let reply = reply(data, &fabric.domain(vlan)?.addresses)?;
        let index = self.inlet(question.in_port)?;
        if self.hosts(vlan)?.get(question.src)? != index {
            return None;
        }
        let exit = self.exit(index, vlan, reply.owner)?;
        let crossing = |exit| match vlan.is_none() {
            true => Some(None),
            false => self
                .crossing(question.in_port, question.data, exit)
                .map(Some),
        };
        let (to_port, to_owner) = (crossing(Exit::Port(question.in_port))?, crossing(exit)?);
        if presets {
            let entry = Answer {
                dst: reply.owner,
                exit,
                buffer_id: None,
                is_copy: true,
                crossing: to_owner,
                ..*question
            };
            self.answer(now, &entry, out);
        }
        let back = Answer {
            exit: Exit::Port(question.in_port),
            buffer_id: None,
            data: &reply.frame,
            // The answer is built without a tag.
            crossing: to_port.map(|crossing| Crossing {
                tag: None,
                ..crossing
            }),
            ..*question
        };
        let xid = self.next_xid();
        if self.templates.packet_out(xid, &back, out) {
            self.counters.packet_outs += 1;
        }
        self.counters.packet_ins += 1;
        self.counters.questions += 1;
        Some(match self.shown.is_due(now, reply.to) {
            true => Verdict::Show,
            false => Verdict::Answered,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use openflow::packet::build::{
        Host, arp_probe, arp_reply, arp_request, neighbour_advertisement, neighbour_answer,
        neighbour_probe, neighbour_solicitation, tagged,
    };
    use proptest::prelude::*;

    use crate::fabric::addresses::{Owner, Writer};

    use super::*;

    /// Hosts with an address of each kind; the fourth answers for its IPv6 address itself.
    fn table(owners: &[u8]) -> Writer {
        let mut writer = Writer::new(1);
        for n in owners {
            let host = Host::numbered(*n);
            for ip in [host.ip.into(), host6(*n).1.into()] {
                let owner = Owner {
                    mac: host.mac,
                    answers_itself: *n == 4 && IpAddr::is_ipv6(&ip),
                };
                writer.set(ip, owner);
            }
        }
        writer
    }

    fn host6(n: u8) -> (MacAddr, Ipv6Addr) {
        let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0xff00, u16::from(n));
        (Host::numbered(n).mac, ip)
    }

    fn answer(frame: &[u8], owners: &[u8]) -> Option<Vec<u8>> {
        reply(frame, table(owners).addresses()).map(|reply| reply.frame.to_vec())
    }

    #[test]
    fn a_question_gets_the_frame_that_the_owner_would_send() {
        let [a, b] = [1, 2].map(Host::numbered);
        let wanted = arp_reply(b, a);
        assert_eq!(answer(&arp_request(a, b.ip), &[1, 2]), Some(wanted));
        let [a, b] = [1, 2].map(host6);
        let wanted = neighbour_answer(b, a, false);
        assert_eq!(
            answer(&neighbour_solicitation(a, b.1), &[1, 2]),
            Some(wanted)
        );
        let router = host6(4);
        let wanted = neighbour_answer(b, router, false);
        let asks = neighbour_solicitation(router, b.1);
        assert_eq!(answer(&asks, &[2, 4]), Some(wanted), "a router asks");
    }

    #[test]
    fn other_messages_are_left_to_the_controller() {
        let [a, b, c] = [1, 2, 3].map(Host::numbered);
        let claims = |ip| Host { mac: a.mac, ip };
        let mut lies = arp_request(a, b.ip);
        lies[22..28].copy_from_slice(&c.mac.0);
        let mut to_one = arp_request(a, b.ip);
        to_one[..6].copy_from_slice(&b.mac.0);
        let mut probe = arp_probe(a.mac, b.mac, b.ip);
        probe[..6].fill(0xff);
        let mut in_vlan = tagged(&arp_request(a, b.ip), 5, 0);
        in_vlan.truncate(60);
        let left = [
            (arp_request(a, c.ip), "nobody owns the address"),
            (arp_request(a, a.ip), "it announces itself"),
            (arp_request(claims(c.ip), b.ip), "its own address is new"),
            (arp_request(claims(b.ip), b.ip), "it claims another's"),
            (arp_request(claims(b.ip), a.ip), "it claims another's"),
            (arp_reply(a, b), "an answer"),
            (lies, "another sender inside"),
            (to_one, "to one host"),
            (probe, "from no address"),
            (in_vlan, "in a VLAN"),
        ];
        for (frame, what) in left {
            assert_eq!(answer(&frame, &[1, 2]), None, "{what}");
        }
    }

    #[test]
    fn other_neighbour_discovery_is_left_to_the_controller() {
        let [a, b, c, router] = [1, 2, 3, 4].map(host6);
        let claims = |ip| (a.0, ip);
        let question = neighbour_solicitation(a, b.1);
        let mut to_one = question.clone();
        to_one[..6].copy_from_slice(&b.0.0);
        let mut probe = neighbour_probe(a.0, b.0, b.1);
        probe[..6].copy_from_slice(&question[..6]);
        let left = [
            (neighbour_solicitation(a, c.1), "nobody owns the address"),
            (
                neighbour_solicitation(a, router.1),
                "a router answers itself",
            ),
            (neighbour_solicitation(a, a.1), "it asks for itself"),
            (
                neighbour_solicitation(claims(c.1), b.1),
                "its own address is new",
            ),
            (
                neighbour_solicitation(claims(b.1), b.1),
                "it claims another's",
            ),
            (
                neighbour_solicitation(claims(b.1), a.1),
                "it claims another's",
            ),
            (
                neighbour_solicitation(claims(Ipv6Addr::UNSPECIFIED), b.1),
                "from no address",
            ),
            (neighbour_advertisement(a, false), "an announcement"),
            (neighbour_answer(a, b, false), "an answer"),
            (to_one, "to one host"),
            (probe, "a probe"),
            (tagged(&question, 5, 0), "in a VLAN"),
            (question[..nd::LEN - 1].to_vec(), "cut short"),
            ([&question[..], &[0]].concat(), "too long"),
        ];
        for (frame, what) in left {
            assert_eq!(answer(&frame, &[1, 2, 4]), None, "{what}");
        }
    }

    proptest! {
        /// Any bytes: no panic, and an answer goes only to its asker.
        #[test]
        fn any_bytes_are_read(
            mut frame in prop::collection::vec(any::<u8>(), 0..100),
            cut in 0..87usize,
            is_ipv6: bool,
        ) {
            let addresses = table(&[1, 2]);
            prop_assert_eq!(reply(&frame, addresses.addresses()), None);
            let whole = match is_ipv6 {
                true => neighbour_solicitation(host6(1), host6(2).1),
                false => arp_request(Host::numbered(1), Host::numbered(2).ip),
            };
            let kept = cut.min(frame.len()).min(whole.len());
            frame[..kept].copy_from_slice(&whole[..kept]);
            if let Some(reply) = reply(&frame, addresses.addresses()) {
                prop_assert_eq!(&reply.frame[..6], &Host::numbered(1).mac.0);
            }
        }
    }
}
