//! Messages and deadlines of questions to hosts: ARP and neighbour discovery out of the port of
//! their place. Alarms that hosts have taken all their room.

use std::net::IpAddr;

use clock::{Duration, Instant};
use openflow::MacAddr;
use openflow::packet::build::{arp_probe, neighbour_probe};

use crate::Location;
use crate::controller::event::Alarm;
use crate::controller::network::Network;
use crate::controller::outbox::{Outbox, Timer};
use crate::controller::port_state::PortRole;
use crate::edge::EdgeUpdate;
use crate::entry::watch;

use super::age::{Patience, Step};
use super::{AddressAnswer, AddressQuestion, Answer, Hosts, Question};

/// The controller's own address, from which it sends questions to hosts; locally administered.
pub(in crate::controller) const OWN_MAC: MacAddr = MacAddr([0x02, b'a', b'u', b's', b't', b'r']);

/// Time between two alarms that hosts, or their IP addresses, have taken all their room.
const PRESSURE_INTERVAL: Duration = Duration::from_secs(60);

/// The times of the last alarms, over all VLANs.
#[derive(Default)]
pub(in crate::controller) struct PressureAlarms {
    hosts: Option<Instant>,
    details: Option<Instant>,
}

impl Hosts {
    /// Asks a host whose address is claimed elsewhere. Meanwhile its edge sends the host's packets
    /// to the controller, which must learn whether the host is alive.
    pub(in crate::controller) fn ask_claimed(
        &self,
        mac: MacAddr,
        question: &Question,
        outbox: &mut Outbox,
    ) {
        outbox.tell_edge(question.home.dpid, EdgeUpdate::Watch(self.key(mac)));
        self.ask_host(mac, question, outbox);
    }

    pub(in crate::controller) fn ask_owner(&self, question: AddressQuestion, outbox: &mut Outbox) {
        let AddressQuestion {
            ip,
            owner,
            home,
            due,
        } = question;
        outbox.timer(due, Timer::AddressQuestion(self.vlan, ip));
        self.probe(home, owner, ip, outbox);
    }

    /// Asks a host again whose question is due, or returns the outcome of its silence.
    pub(in crate::controller) fn question_due(
        &mut self,
        net: &Network,
        now: Instant,
        mac: MacAddr,
        outbox: &mut Outbox,
    ) -> Option<Answer> {
        match self.handle_timeout(now, mac, |at| heard_since(net, at))? {
            Answer::Ask(question) => {
                self.ask_host(mac, &question, outbox);
                None
            }
            answer => Some(answer),
        }
    }

    /// Asks the owner of an address again whose question is due. Returns the former and the new
    /// owner if the silence of the former moves the address.
    pub(in crate::controller) fn address_question_due(
        &mut self,
        net: &Network,
        now: Instant,
        ip: IpAddr,
        outbox: &mut Outbox,
    ) -> Option<(MacAddr, MacAddr)> {
        match self.handle_address_timeout(now, ip, |at| heard_since(net, at))? {
            AddressAnswer::Ask(question) => {
                self.ask_owner(question, outbox);
                None
            }
            AddressAnswer::Moved { from, to } => Some((from, to)),
        }
    }

    /// Takes one step of ageing, and asks the hosts that may be gone.
    pub(in crate::controller) fn ageing_due(
        &mut self,
        now: Instant,
        patience: Patience<'_>,
        step: &mut Step,
        is_active: impl Fn(MacAddr) -> bool,
        outbox: &mut Outbox,
    ) {
        for question in self.age(now, patience, step, is_active) {
            for ip in question.ips {
                self.probe(question.home, question.mac, ip, outbox);
            }
        }
    }

    /// Raises alarms that hosts, or their IP addresses, have taken all the room of a port.
    pub(in crate::controller) fn tell_pressed(
        &mut self,
        now: Instant,
        alarms: &mut PressureAlarms,
        outbox: &mut Outbox,
    ) {
        let (hosts, details) = self.take_pressed();
        let may = |last: &mut Option<Instant>| {
            let may = last.is_none_or(|at| now.since(at) >= PRESSURE_INTERVAL);
            if may {
                *last = Some(now);
            }
            may
        };
        if let Some(at) = hosts.filter(|_| may(&mut alarms.hosts)) {
            outbox.alarm(Alarm::HostTableFull { at });
        }
        if let Some(at) = details.filter(|_| may(&mut alarms.details)) {
            outbox.alarm(Alarm::HostAddressesFull { at });
        }
    }

    /// Asks a host at all of its addresses. The host's packets go to the controller until it has
    /// answered or the question has ended.
    fn ask_host(&self, mac: MacAddr, question: &Question, outbox: &mut Outbox) {
        outbox.timer(question.due, Timer::HostQuestion(self.key(mac)));
        let home = question.home;
        for at in outbox.bonds.ports(home) {
            outbox.send_flow_mod(at.dpid, watch(at.port, mac, outbox.generation));
        }
        for ip in &question.ips {
            self.probe(home, mac, *ip, outbox);
        }
    }

    fn probe(&self, home: Location, mac: MacAddr, ip: IpAddr, outbox: &mut Outbox) {
        let probe = match ip {
            IpAddr::V4(ip) => arp_probe(OWN_MAC, mac, ip),
            IpAddr::V6(ip) => neighbour_probe(OWN_MAC, mac, ip),
        };
        outbox.packet_out_in(self.vlan, home, &probe);
    }
}

/// Since when frames of a host at this place reach the controller, if they do.
fn heard_since(net: &Network, at: Location) -> Option<Instant> {
    let switch = net
        .switch(at.dpid)
        .filter(|switch| switch.connection.is_some())?;
    (net.role(at) == PortRole::Edge).then_some(switch.up_since)
}
