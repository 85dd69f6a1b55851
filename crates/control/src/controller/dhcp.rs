//! Follows DHCP at ports that are bound to the addresses of their hosts.
//!
//! A switch sends the controller such hosts' requests to servers, and a copy of trusted servers'
//! answers ([`tables`](crate::access::tables)). The controller drops requests in another host's
//! name, forwards the other requests like any packet, and binds a port as soon as a server has
//! answered.

use clock::Instant;
use openflow::message::PacketIn;
use openflow::packet::PacketFields;
use openflow::packet::dhcp::{Kind, Message};

use crate::Location;
use crate::access::learned::Answered;
use crate::access::tables;
use crate::pipeline::GUARD_TABLE;
use crate::vlan::{self, HostKey, VlanId};

use super::port_state::PortRole;
use super::{Alarm, Controller};

impl Controller {
    /// Handles a packet that an access entry has sent to the controller. Returns whether to forward
    /// it like any other packet: an answer is a copy, and a forged request is dropped.
    pub(super) fn follow_dhcp(
        &mut self,
        now: Instant,
        at: Location,
        packet_in: &PacketIn,
        fields: &PacketFields,
    ) -> bool {
        if !tables::is_access(packet_in.cookie) {
            return true;
        }
        let place = self.outbox.bonds.place(at);
        if self.network.role(place) == PortRole::Gone {
            self.outbox.counters.packet_ins_no_port += 1;
            return false;
        }
        let vlan = self.vlan_at(place, &packet_in.data);
        if packet_in.table_id == GUARD_TABLE {
            if let Some(vlan) = vlan {
                self.note_answer(now, vlan, at, packet_in);
            }
            return false;
        }
        let vlans = self.outbox.vlans.clone();
        let around = (&*vlans, self.gateways.routing());
        let is_allowed = self.access.judge(around, at, fields).is_allowed();
        if !self.access.learns_at(place) {
            return is_allowed;
        }
        let message = read(&packet_in.data);
        let asked = message.zip(vlan).zip(fields.eth_src());
        let Some(((message, vlan), src)) = asked.filter(|_| is_allowed) else {
            self.outbox.counters.dhcp_refused += 1;
            return false;
        };
        let learned = &mut self.access.learned;
        let is_right = learned.handle_request(now, (vlan, place), src, &message);
        self.outbox.counters.dhcp_refused += u64::from(!is_right);
        if is_right && message.kind == Kind::Release {
            self.bind_learned(place);
        }
        is_right
    }

    /// The VLAN of a packet of a host; `None` if its port is no member.
    fn vlan_at(&self, place: Location, data: &[u8]) -> Option<VlanId> {
        let vlans = &self.outbox.vlans;
        match vlans.is_on() {
            true => vlans.classify(place, vlan::tag_of(data)),
            false => Some(VlanId::NONE),
        }
    }

    fn note_answer(&mut self, now: Instant, vlan: VlanId, at: Location, packet_in: &PacketIn) {
        let place = self.outbox.bonds.place(at);
        if !self.access.trusts_server(at) || self.network.role(place) != PortRole::Edge {
            return;
        }
        let Some(message) = read(&packet_in.data) else {
            return;
        };
        let mac = message.client;
        let client = self.place_of(HostKey { vlan, mac });
        let learned = &mut self.access.learned;
        match learned.handle_answer(now, vlan, client, &message) {
            Answered::Nothing => {}
            Answered::Changed(ports) => {
                for at in ports {
                    self.bind_learned(at);
                }
            }
            Answered::Taken { at, ip, holder } => {
                let claimant = mac;
                let alarm = Alarm::BindingTaken {
                    at,
                    ip,
                    holder,
                    claimant,
                };
                self.outbox.alarm_once(now, alarm);
            }
            Answered::Full { at } => self.outbox.alarm_once(now, Alarm::BindingsFull { at }),
        }
    }

    /// Binds a port to the hosts that it has by now.
    fn bind_learned(&mut self, place: Location) {
        self.access
            .bind(place, &self.config.bonds, &mut self.outbox);
    }

    /// Ends the bindings of hosts whose addresses are no longer theirs.
    pub(super) fn forget_learned(&mut self, now: Instant) {
        for at in self.access.learned.forget_over(now) {
            self.bind_learned(at);
        }
    }
}

fn read(frame: &[u8]) -> Option<Message> {
    match vlan::tag_of(frame) {
        Some(_) => Message::read(&vlan::without_tag(frame)),
        None => Message::read(frame),
    }
}
