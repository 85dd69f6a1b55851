//! Traffic type and order of each message type: one table by `MessageKind`, without parsing.
//!
//! The table takes the traffic types from the published priority scheme, message by message. It has
//! the order that OpenFlow (1.3.5, 6.2) requires, and the order that controllers rely on beyond
//! that: a learning switch sends FLOW_MOD and then PACKET_OUT with no barrier between them.

use openflow::MessageKind as K;

use crate::policy::Profile;

/// The four types of traffic between switch and controller, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficType {
    /// Keeps the channel itself alive: hello, echo, error, features, configuration.
    Session = 1,
    /// Sets up flows: packet-in, packet-out and everything that modifies state.
    FlowSetup = 2,
    /// Everything else of the protocol: statistics, notices, barriers.
    Housekeeping = 3,
    /// Data packets, where the channel shares a link with them.
    Data = 4,
}

/// Rule of order for a message type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// Nothing overtakes it, and it overtakes nothing.
    Fence,
    /// First in, first out among all state messages.
    State,
    /// First in, first out among the packets of one flow.
    Flow,
    /// First in, first out among requests, and among replies, whose parts must stay in order.
    Exchange,
    /// Bound to nothing but the HELLO before it.
    Free,
}

/// Row of the table for one message type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Traffic type in the published scheme.
    pub traffic: TrafficType,
    /// Rule of order for this message type.
    pub order: Order,
}

/// Returns the row of `kind`, with the published traffic type. An unknown type is a fence.
pub const fn class_of(kind: K) -> Class {
    use Order::{Exchange, Fence, Flow, Free, State};
    use TrafficType::{FlowSetup, Housekeeping, Session};
    let (traffic, order) = match kind {
        K::Hello => (Session, Fence),
        K::Error => (Session, State),
        K::EchoRequest | K::EchoReply => (Session, Free),
        K::Experimenter => (Session, State),
        K::FeaturesRequest | K::FeaturesReply => (Session, Exchange),
        K::GetConfigRequest | K::GetConfigReply => (Session, Exchange),
        K::SetConfig => (Session, State),
        K::PacketIn | K::PacketOut => (FlowSetup, Flow),
        K::FlowMod | K::GroupMod | K::PortMod | K::MeterMod => (FlowSetup, State),
        K::TableMod => (FlowSetup, Fence),
        K::FlowRemoved | K::PortStatus => (Housekeeping, State),
        K::RoleStatus | K::TableStatus | K::RequestForward => (Housekeeping, State),
        K::ControllerStatus => (Housekeeping, State),
        K::MultipartRequest | K::MultipartReply => (Housekeeping, Exchange),
        K::QueueGetConfigRequest | K::QueueGetConfigReply => (Housekeeping, Exchange),
        K::GetAsyncRequest | K::GetAsyncReply => (Housekeeping, Exchange),
        K::BarrierRequest | K::BarrierReply => (Housekeeping, Fence),
        K::RoleRequest | K::RoleReply | K::SetAsync => (Housekeeping, Fence),
        K::BundleControl => (Housekeeping, Fence),
        K::BundleAddMessage => (Housekeeping, State),
        K::Unknown => (Housekeeping, Fence),
    };
    Class { traffic, order }
}

/// Returns the traffic type of `kind` under `profile`.
///
/// A barrier has the type of the messages that it fences, as a rule flow setup; so do bundles.
/// Messages that decide which controller is in charge, and which reports it receives, keep the
/// session alive. One type depends on more than the kind: under [`Profile::Auster`] the classifier
/// gives the session's type to a PORT_STATUS that reports a lost link.
pub const fn traffic_of(kind: K, profile: Profile) -> TrafficType {
    match (profile, kind) {
        (Profile::Auster, K::BarrierRequest | K::BarrierReply) => TrafficType::FlowSetup,
        (Profile::Auster, K::BundleControl | K::BundleAddMessage) => TrafficType::FlowSetup,
        (Profile::Auster, K::RoleRequest | K::RoleReply | K::RoleStatus) => TrafficType::Session,
        (Profile::Auster, K::GetAsyncRequest | K::GetAsyncReply | K::SetAsync) => {
            TrafficType::Session
        }
        _ => class_of(kind).traffic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_are_ordered_by_flow_and_only_echo_is_free() {
        for version in 1..=6 {
            for byte in 0..=255 {
                let kind = K::from_wire(version, byte);
                let packet = matches!(kind, K::PacketIn | K::PacketOut);
                let echo = matches!(kind, K::EchoRequest | K::EchoReply);
                assert_eq!(class_of(kind).order == Order::Flow, packet, "{kind:?}");
                assert_eq!(class_of(kind).order == Order::Free, echo, "{kind:?}");
            }
        }
        assert_eq!(class_of(K::Unknown).order, Order::Fence);
    }
}
