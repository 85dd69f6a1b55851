//! The part of the controller that is beside each connection: it answers a packet-in by itself when
//! sender and destination are known to be behind ports of the same switch.
//!
//! The [`Controller`](crate::controller::Controller) stays the only one who decides where a host
//! is; what it has decided it tells the edge. So an edge needs no lock and asks nobody, and as many
//! of them run at once as there are threads. Whatever it is not sure of it leaves to the controller.

use bytes::BytesMut;
use openflow::time::Instant;
use openflow::{MacAddr, PortNo, Version};

/// What the controller has decided, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeUpdate {
    /// The edge may answer from now on. Comes once, when the switch is admitted.
    Start(EdgeConfig),
    /// Whether the edge answers packet-ins of this port. Closing takes its entries out.
    Port { port: PortNo, open: bool },
    /// A host is behind an open port.
    Host { mac: MacAddr, port: PortNo },
    /// The host's packets are the controller's again; its entries stay.
    Watch { mac: MacAddr },
    /// The host is not there any more: its entries go.
    Forget { mac: MacAddr },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeConfig {
    pub version: Version,
    /// Part of the cookie of its entries.
    pub generation: u16,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    /// Of its hash table.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounters {
    /// Packet-ins it has answered.
    pub packet_ins: u64,
    pub flow_mods: u64,
    pub packet_outs: u64,
}

/// One switch's edge. A default one answers nothing.
#[derive(Default)]
pub struct Edge {
    counters: EdgeCounters,
}

impl Edge {
    /// Takes a decision over. Messages to the switch that follow from it are appended to `out`.
    pub fn handle_update(&mut self, update: EdgeUpdate, out: &mut BytesMut) {
        let _ = (update, out);
    }

    /// Takes one whole PACKET_IN, header included, of the connection's version. If it can be
    /// answered here, whole messages are appended to `out` and the answer is true; if not, nothing
    /// is appended, and it goes the long way: through the session to the controller.
    pub fn handle_packet_in(&mut self, now: Instant, frame: &[u8], out: &mut BytesMut) -> bool {
        let _ = (now, frame, out);
        false
    }

    pub fn counters(&self) -> EdgeCounters {
        self.counters
    }
}
