//! Questions for IP addresses that reach the controller, with the fabric: it answers for hosts that
//! it knows, and floods a question for any other once in a while.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use clock::{Duration, Instant};
use openflow::MacAddr;
use openflow::packet::PacketFields;

use crate::edge::resolve::{Reply, reply};

use super::Controller;
use super::packet::Packet;
use super::packet::asked_ip;

/// Minimum time between two floods of the same question. Hosts ask again after a second.
const ASK_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of questions remembered for that. Beyond it every question is flooded, within the
/// budgets of its port.
const ASKED_MAX: usize = 4096;

type Question = (MacAddr, IpAddr);

/// Questions that were flooded a moment ago.
#[derive(Default)]
pub(super) struct Flooded {
    questions: BTreeSet<Question>,
    /// The same, oldest first.
    in_order: VecDeque<(Instant, Question)>,
}

impl Flooded {
    /// Whether a question may be flooded now.
    fn may_flood(&mut self, now: Instant, question: Question) -> bool {
        while let Some((_, old)) = self
            .in_order
            .pop_front_if(|(at, _)| now.since(*at) >= ASK_INTERVAL)
        {
            self.questions.remove(&old);
        }
        if self.questions.contains(&question) {
            return false;
        }
        if self.in_order.len() < ASKED_MAX {
            self.questions.insert(question);
            self.in_order.push_back((now, question));
        }
        true
    }
}

impl Controller {
    /// Handles a packet for everybody, or for a host that nobody knows.
    pub(super) fn handle_for_all(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        fields: &PacketFields,
    ) {
        if self.fabric.is_on()
            && let Some(ip) = asked_ip(fields)
            && self.answer_to(packet).is_none()
            && !self.flooded.may_flood(now, (packet.src, ip))
        {
            self.outbox.counters.questions_repeated += 1;
            return;
        }
        if self.ingress.may_flood(now, packet.at, &mut self.outbox)
            && !self.hold_question(now, packet, fields)
        {
            self.answer_or_spread(now, packet);
        }
    }

    /// Answers a question in place of the host that is asked for, or sends the packet to everybody.
    pub(super) fn answer_or_spread(&mut self, now: Instant, packet: &Packet<'_>) {
        match self.answer_to(packet) {
            Some(reply) => {
                let at = packet.at;
                self.outbox.counters.questions_answered += 1;
                self.outbox.packet_out(at.dpid, &[at.port], &reply.frame);
            }
            None => self.spread(now, packet),
        }
    }

    /// The answer of a host that is elsewhere and has its address. A class may forbid a host to
    /// learn of another, so hosts in classes answer for themselves.
    fn answer_to(&self, packet: &Packet<'_>) -> Option<Reply> {
        if !self.fabric.is_on() {
            return None;
        }
        let reply = reply(packet.data, self.hosts.addresses())?;
        let to = self.hosts.place(reply.owner)?;
        let is_free =
            !self.facts().is_in_class(packet.src) && !self.facts().is_in_class(reply.owner);
        (to != packet.at && is_free).then_some(reply)
    }
}
