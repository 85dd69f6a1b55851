//! Decides where a new entry is active as soon as its barrier is answered.
//!
//! A barrier reply of Open vSwitch does not prove that packets follow an entry. Its datapath keeps
//! a flow for each lookup until ten seconds after the flow's last packet. Up to 17 ms after a
//! change of the tables it looks such flows up again. A packet that matches no kept flow finds the
//! new tables at once. A flow covers one in-port, one Ethernet type, and all other fields that the
//! entries there made the datapath look at. So the entries of two hosts that resolve each other's
//! IPv4 address are active at once, unless the datapath may keep a flow on their path that IPv4
//! packets match. It may keep one in these cases:
//!
//! - A packet-in came from there. Edges show every five seconds the packets that they answer.
//! - An entry has ended there or was deleted: its flow is kept, and sends packets to the controller
//!   from then on. Entries of edges end without a report, so theirs must have been unused for as
//!   long as flows are kept.
//! - The switch had entries when it connected. If it had none, the datapath looked at nothing but
//!   the in-port; an entry that looks at addresses removes such flows.
//!
//! Packet-ins that were shed under load, or that are slower than the barrier, are not known here
//! either. None of this is known of switches other than Open vSwitch.

use clock::{Duration, Instant};
use openflow::message::FlowMod;
use openflow::{DatapathId, Match, PortNo};

use crate::edge::SHOW_INTERVAL;
use crate::entry::{EntryKind, may_keep_ipv4_flow};

use crate::Location;
use crate::controller::hosts::OWN_MAC;
use crate::controller::network::Network;
use crate::controller::outbox::Outbox;

use super::Ingress;

/// Open vSwitch's `max-idle`, and half a second until its revalidators notice that it has passed.
const KEPT: Duration = Duration::from_millis(10_500);

/// The same time, where the last packet may be as old as the last one that an edge has shown.
const KEPT_MAX: Duration = KEPT.saturating_add(SHOW_INTERVAL);

/// The ports by which packets for new entries arrive.
#[derive(Clone, Debug)]
pub(in crate::controller) enum Inlets {
    Ports(Vec<Location>),
    /// Every port of every switch.
    Every,
    /// Ports whose kept flows are unknown.
    Unknown,
}

impl Ingress {
    /// Notes a packet-in. A packet that an edge has shown stands for others of any kind.
    pub(in crate::controller) fn note_packet(
        &mut self,
        now: Instant,
        at: Location,
        data: &[u8],
        is_shown: bool,
    ) {
        if is_shown || may_keep_ipv4_flow(data) {
            self.note_ended(now, at.dpid, Some(at.port));
        }
    }

    /// Notes that an entry of one in-port, or of all, has ended or was deleted.
    pub(in crate::controller) fn note_ended(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        in_port: Option<PortNo>,
    ) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let until = now + KEPT_MAX;
        match in_port {
            None => switch.kept_until = until,
            Some(port) => {
                let port = switch.ports.get_mut(&port);
                port.into_iter().for_each(|port| port.kept_until = until);
            }
        }
    }

    /// Notes that the switch is about to be sent its entries. `is_blank`: it has none yet.
    pub(in crate::controller) fn note_admitted(
        &mut self,
        net: &Network,
        now: Instant,
        (dpid, is_blank): (DatapathId, bool),
        outbox: &mut Outbox,
    ) {
        let Some(switch) = net.switch(dpid) else {
            return;
        };
        if !is_blank {
            self.note_ended(now, dpid, None);
        } else if switch.is_open_vswitch() {
            outbox.send_flow_mod(dpid, look_at_addresses(outbox.generation));
        }
    }

    /// Whether an IPv4 packet that arrives at `inlets` meets the entries that the switches have
    /// confirmed.
    pub(in crate::controller) fn is_active_at_once(
        &self,
        net: &Network,
        now: Instant,
        inlets: &Inlets,
    ) -> bool {
        match inlets {
            Inlets::Ports(ports) => ports.iter().all(|at| {
                let switch = self.switches.get(&at.dpid);
                let port = switch.and_then(|switch| switch.ports.get(&at.port));
                self.keeps_none(net, now, at.dpid)
                    && port.is_some_and(|port| port.kept_until <= now)
            }),
            Inlets::Every => self.switches.iter().all(|(dpid, switch)| {
                let mut ports = switch.ports.values();
                self.keeps_none(net, now, *dpid) && ports.all(|port| port.kept_until <= now)
            }),
            Inlets::Unknown => false,
        }
    }

    /// Whether the switch keeps no flows, apart from single ports.
    fn keeps_none(&self, net: &Network, now: Instant, dpid: DatapathId) -> bool {
        let is_known = net.switch(dpid).is_some_and(|switch| {
            let is_known = switch.synced && switch.connection.is_some();
            is_known && switch.is_open_vswitch()
        });
        let switch = self.switches.get(&dpid);
        is_known && switch.is_some_and(|switch| switch.kept_until <= now)
    }
}

/// An entry between hosts that do not exist, for a second. It makes Open vSwitch look at addresses
/// and remove flows that do not name them; a port's flow would otherwise match the packets of all
/// hosts.
fn look_at_addresses(generation: u16) -> FlowMod {
    let nobody = Match::any().with_eth_src(OWN_MAC).with_eth_dst(OWN_MAC);
    FlowMod {
        cookie: EntryKind::Infrastructure.cookie(generation),
        hard_timeout: 1,
        ..FlowMod::add(1, nobody, Vec::new())
    }
}

/// Whether an entry with these timeouts ends only after the datapath has dropped its flows.
pub(in crate::controller) fn outlasts_flows(idle_s: u16, hard_s: u16) -> bool {
    let idle = Duration::from_secs(idle_s.into());
    hard_s == 0 && (idle_s == 0 || idle > KEPT_MAX)
}
