//! Where a new entry is active as soon as its barrier is answered.
//!
//! A barrier reply of Open vSwitch is no proof that packets follow an entry: its datapath keeps a
//! flow for what it has looked up, until ten seconds after that flow's last packet, and looks flows
//! up again some time after the tables have changed (up to 17 ms). But a packet that no flow is kept
//! for finds the new tables. A flow is of one in-port and one Ethernet type, and of whatever else the
//! entries there made the datapath look at. So the entries of two hosts that resolve each other's
//! IPv4 address are active at once, unless on their way a flow may be kept that IPv4 packets match:
//!
//! - because a packet came up there. Those that an edge answers are shown every five seconds.
//! - because an entry has ended there or was taken out: its flow is kept, and sends up from then on.
//!   The entries of edges end unheard, so theirs must have been unused for as long as flows are kept.
//! - because nobody knows: the switch had entries when it connected. Where it had none, nothing but
//!   the in-port was looked at; an entry that looks at addresses rids it of such flows.
//!
//! What was not heard of is not known either: packet-ins that were shed under load, or are slower
//! than the barrier. Of switches other than Open vSwitch none of this is known.

use clock::{Duration, Instant};
use openflow::message::FlowMod;
use openflow::{DatapathId, Match, PortNo};

use crate::edge::SHOW_INTERVAL;
use crate::entry::{EntryKind, may_keep_ipv4_flow};

use super::forwarding::OWN_MAC;
use super::{Controller, Location};

/// `max-idle` of Open vSwitch, and half a second until its revalidators see that it is over.
const KEPT: Duration = Duration::from_millis(10_500);

/// What is known of a flow may be as old as what an edge has shown last.
const KEPT_MAX: Duration = KEPT.saturating_add(SHOW_INTERVAL);

/// The ports by which packets come in that new entries are for.
#[derive(Clone, Debug)]
pub(super) enum Inlets {
    Ports(Vec<Location>),
    /// Of every switch.
    Every,
    /// Of flows that are kept there nothing can be said.
    Unknown,
}

impl Controller {
    /// A packet came up. One that an edge has shown stands for others, of whatever kind.
    pub(super) fn note_packet(&mut self, now: Instant, at: Location, data: &[u8], is_shown: bool) {
        if is_shown || may_keep_ipv4_flow(data) {
            self.note_ended(now, at.dpid, Some(at.port));
        }
    }

    /// An entry has ended or been taken out, of one in-port or of all.
    pub(super) fn note_ended(&mut self, now: Instant, dpid: DatapathId, in_port: Option<PortNo>) {
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

    /// The switch is about to be given what it needs. `is_blank`: it has no entries yet.
    pub(super) fn note_admitted(&mut self, now: Instant, dpid: DatapathId, is_blank: bool) {
        let Some(switch) = self.switches.get(&dpid) else {
            return;
        };
        if !is_blank {
            self.note_ended(now, dpid, None);
        } else if switch.is_open_vswitch() {
            self.send_flow_mod(dpid, look_at_addresses(self.generation));
        }
    }

    /// Whether an IPv4 packet that comes in there finds what the switches have confirmed.
    pub(super) fn is_active_at_once(&self, now: Instant, inlets: &Inlets) -> bool {
        match inlets {
            Inlets::Ports(ports) => ports.iter().all(|at| {
                let port = self.port(*at);
                self.keeps_none(now, at.dpid) && port.is_some_and(|port| port.kept_until <= now)
            }),
            Inlets::Every => self.switches.iter().all(|(dpid, switch)| {
                let mut ports = switch.ports.values();
                self.keeps_none(now, *dpid) && ports.all(|port| port.kept_until <= now)
            }),
            Inlets::Unknown => false,
        }
    }

    /// But for single ports.
    fn keeps_none(&self, now: Instant, dpid: DatapathId) -> bool {
        self.switches.get(&dpid).is_some_and(|switch| {
            let is_known = switch.synced && switch.connection.is_some();
            is_known && switch.is_open_vswitch() && switch.kept_until <= now
        })
    }

    /// Two ports of one switch, between which its edge sets the entries.
    pub(super) fn local_inlets(&self, from: Location, to: Location) -> Inlets {
        let switch = self.switches.get(&from.dpid);
        match switch.is_some_and(|switch| switch.table.has_lasting_edge()) {
            true => Inlets::Ports(vec![from, to]),
            false => Inlets::Unknown,
        }
    }
}

/// Between hosts that are not there, for a second. Flows that do not name what the tables have come to
/// look at are taken out by Open vSwitch; a port's flow would otherwise take packets of all hosts.
fn look_at_addresses(generation: u16) -> FlowMod {
    let nobody = Match::any().with_eth_src(OWN_MAC).with_eth_dst(OWN_MAC);
    FlowMod {
        cookie: EntryKind::Infrastructure.cookie(generation),
        hard_timeout: 1,
        ..FlowMod::add(1, nobody, Vec::new())
    }
}

/// Whether an entry with these timeouts ends only when no flow of it is kept any more.
pub(super) fn outlasts_flows(idle_s: u16, hard_s: u16) -> bool {
    let idle = Duration::from_secs(idle_s.into());
    hard_s == 0 && (idle_s == 0 || idle > KEPT_MAX)
}
