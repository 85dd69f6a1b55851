//! Answers ARP questions in place of the host that is asked for.
//!
//! The edge answers what the controller has decided already: the asker is at this port and owns the
//! address that it names as its own, and another host, which the edge knows, owns the address that
//! it asks for. All other questions are the controller's: announcements, probes for an address,
//! new or other bindings, unknown or disputed addresses, and questions to one host.

use std::net::{IpAddr, Ipv4Addr};

use bytes::BytesMut;
use clock::{Budget, Duration, Instant};
use openflow::MacAddr;

use crate::fabric::Exit;
use crate::fabric::addresses::Addresses;

use super::wire::{Answer, ETH_TYPE_ARP, u16_at};
use super::{Started, Verdict};

/// The controller sees a question of each asker after this time, and so learns that the host still
/// has its address.
const SHOW_INTERVAL: Duration = Duration::from_secs(60);

/// Askers remembered for that; a newer one in the same place replaces an older one.
const ASKERS: usize = 64;

/// Questions that one edge shows in a second.
const SHOWN_PER_S: u32 = 16;

/// The length of an ARP message for IPv4 over Ethernet, with its Ethernet header.
const ARP_LEN: usize = 42;

/// Hardware, protocol, lengths and kind of an ARP message for IPv4 over Ethernet.
const REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const REPLY: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The host that owns the address.
    pub owner: MacAddr,
    pub frame: [u8; ARP_LEN],
}

/// The answer to a frame, if it is a broadcast ARP question whose sender owns its address, for an
/// address that another host owns.
pub(crate) fn reply(frame: &[u8], addresses: &Addresses) -> Option<Reply> {
    let asker = MacAddr(*frame.get(6..)?.first_chunk()?);
    let is_question = frame.starts_with(&MacAddr::BROADCAST.0)
        && u16_at(frame, 12)? == ETH_TYPE_ARP
        && *frame.get(14..22)? == REQUEST
        && *frame.get(22..28)? == asker.0;
    let [from, asked] = [28, 38].map(|at| frame.get(at..at + 4));
    let (from, asked) = (from?.first_chunk::<4>()?, asked?.first_chunk::<4>()?);
    let owner_of = |ip: [u8; 4]| addresses.get(IpAddr::V4(Ipv4Addr::from(ip)));
    if !is_question || owner_of(*from) != Some(asker) {
        return None;
    }
    let owner = owner_of(*asked).filter(|owner| *owner != asker)?;
    let mut reply = [0; ARP_LEN];
    let parts = [&asker.0[..], &owner.0, &ETH_TYPE_ARP.to_be_bytes(), &REPLY];
    let ends = [&owner.0[..], asked, &asker.0, from];
    let bytes = parts.into_iter().chain(ends).flatten();
    for (to, byte) in reply.iter_mut().zip(bytes) {
        *to = *byte;
    }
    Some(Reply {
        owner,
        frame: reply,
    })
}

/// Askers that the controller has seen a moment ago.
pub(super) struct Shown {
    askers: Box<[(MacAddr, Instant); ASKERS]>,
    budget: Budget,
}

impl Shown {
    pub(super) fn new() -> Shown {
        Shown {
            askers: Box::new([(MacAddr::default(), Instant::START); ASKERS]),
            budget: Budget::new(Instant::START, SHOWN_PER_S, SHOWN_PER_S),
        }
    }

    /// Whether the controller should see this question.
    fn is_due(&mut self, now: Instant, asker: MacAddr) -> bool {
        let last = &mut self.askers[clock::mix(asker.to_u64()) as usize % ASKERS];
        let is_recent = last.0 == asker && now.since(last.1) < SHOW_INTERVAL;
        let is_due = !is_recent && self.budget.take(now);
        if is_due {
            *last = (asker, now);
        }
        is_due
    }
}

impl Started {
    /// Answers a question of a host at an open port. Sets the asker's entry to the host first, if
    /// entries are to precede conversations.
    pub(super) fn answer_question(
        &mut self,
        now: Instant,
        question: &Answer<'_>,
        out: &mut BytesMut,
    ) -> Option<Verdict> {
        if question.is_copy || question.buffer_id.is_some() {
            return None;
        }
        let fabric = self.fabric.as_ref()?;
        let presets = fabric.presets;
        let reply = reply(question.data, &fabric.addresses)?;
        let index = self.open_port(question.in_port)?;
        if self.hosts.get(question.src)? != index {
            return None;
        }
        let exit = self.exit(index, reply.owner)?;
        if presets {
            let entry = Answer {
                dst: reply.owner,
                exit,
                buffer_id: None,
                is_copy: true,
                ..*question
            };
            self.answer(now, &entry, out);
        }
        let back = Answer {
            exit: Exit::Port(question.in_port),
            buffer_id: None,
            data: &reply.frame,
            ..*question
        };
        let xid = self.next_xid();
        if self.templates.packet_out(xid, &back, out) {
            self.counters.packet_outs += 1;
        }
        self.counters.packet_ins += 1;
        self.counters.questions += 1;
        Some(match self.shown.is_due(now, question.src) {
            true => Verdict::Show,
            false => Verdict::Answered,
        })
    }
}

#[cfg(test)]
mod tests {
    use openflow::packet::build::{Host, arp_probe, arp_reply, arp_request};
    use proptest::prelude::*;

    use crate::fabric::addresses::Writer;

    use super::*;

    fn table(owners: &[u8]) -> Writer {
        let mut writer = Writer::new(1);
        for host in owners.iter().map(|n| Host::numbered(*n)) {
            writer.set(host.ip.into(), host.mac);
        }
        writer
    }

    fn answer(frame: &[u8], owners: &[u8]) -> Option<Vec<u8>> {
        reply(frame, table(owners).addresses()).map(|reply| reply.frame.to_vec())
    }

    #[test]
    fn a_question_gets_the_frame_that_the_owner_would_send() {
        let [a, b] = [1, 2].map(Host::numbered);
        let wanted = arp_reply(b, a);
        assert_eq!(answer(&arp_request(a, b.ip), &[1, 2]), Some(wanted));
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
        let mut tagged = openflow::packet::build::tagged(&arp_request(a, b.ip), 5, 0);
        tagged.truncate(60);
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
            (tagged, "in a VLAN"),
        ];
        for (frame, what) in left {
            assert_eq!(answer(&frame, &[1, 2]), None, "{what}");
        }
    }

    proptest! {
        /// Any bytes: no panic, and an answer goes to its asker alone.
        #[test]
        fn any_bytes_are_read(
            mut frame in prop::collection::vec(any::<u8>(), 0..60),
            cut in 0..43usize,
        ) {
            let addresses = table(&[1, 2]);
            prop_assert_eq!(reply(&frame, addresses.addresses()), None);
            let whole = arp_request(Host::numbered(1), Host::numbered(2).ip);
            let kept = cut.min(frame.len());
            frame[..kept].copy_from_slice(&whole[..kept]);
            if let Some(reply) = reply(&frame, addresses.addresses()) {
                prop_assert_eq!(&reply.frame[..6], &Host::numbered(1).mac.0);
            }
        }
    }
}
