//! Messages of a switch that speaks a later version, in the form of OpenFlow 1.3 for the guest.

use openflow::message::Port;
use openflow::multipart::{PortStats, QueueStats};
use openflow::{ErrorKind, Match, MatchField, Version};

/// A match without the fields that 1.3 does not have.
pub(super) fn matching(mut of: Match) -> Match {
    of.fields.retain(|field| match field {
        MatchField::Basic { field, .. } => field.info().since <= Version::V13,
        MatchField::Other { .. } => true,
    });
    of
}

pub(super) fn port(port: Port) -> Port {
    Port {
        properties: Vec::new(),
        ..port
    }
}

pub(super) fn port_stats(stats: PortStats) -> PortStats {
    PortStats {
        properties: Vec::new(),
        ..stats
    }
}

pub(super) fn queue_stats(stats: QueueStats) -> QueueStats {
    QueueStats {
        properties: Vec::new(),
        ..stats
    }
}

/// An error, or the nearest error that 1.3 has.
pub(super) fn error(kind: ErrorKind) -> ErrorKind {
    const LAST_TYPE: u16 = ErrorKind::TABLE_FEATURES_EPERM.ty;
    let is_there = kind.ty <= LAST_TYPE && kind.name().is_some();
    match kind.ty {
        _ if is_there && kind != ErrorKind::INST_DUP_INST => kind,
        // OFPBAC_BAD_METER: in 1.5 a meter is an action.
        2 if kind.code == 17 => ErrorKind::METER_UNKNOWN_METER,
        2 => ErrorKind::ACTION_BAD_ARGUMENT,
        3 => ErrorKind::UNSUP_INST,
        4 => ErrorKind::MATCH_BAD_FIELD,
        5 => ErrorKind::FLOW_MOD_UNKNOWN,
        6 => ErrorKind::GROUP_INVALID,
        12 => ErrorKind::METER_UNKNOWN,
        _ => ErrorKind::REQUEST_EPERM,
    }
}
