//! Flow monitors: a switch that reports changes of its entries (1.4, 7.3.5.17).

use crate::actions::Instruction;
use crate::match_fields::Match;
use crate::message::FlowRemovedReason;
use crate::types::{Cookie, GroupId, PortNo, TableId, Xid, flags};

flags! {
    /// OFPFMF_*: what a monitor reports.
    FlowMonitorFlags(u16) {
        /// Entries that are there when it starts.
        INITIAL = 1 << 0;
        /// New entries.
        ADD = 1 << 1;
        /// Entries that are gone.
        REMOVED = 1 << 2;
        /// Entries that have changed.
        MODIFY = 1 << 3;
        /// Instructions of the entries too.
        INSTRUCTIONS = 1 << 4;
        /// Changes by the monitor's own controller in few words.
        NO_ABBREV = 1 << 5;
        /// Changes by the monitor's own controller only.
        ONLY_OWN = 1 << 6;
    }
}

/// OFPFMC_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowMonitorCommand {
    /// OFPFMC_ADD: starts a monitor.
    Add = 0,
    /// OFPFMC_MODIFY: changes a monitor.
    Modify = 1,
    /// OFPFMC_DELETE: ends a monitor.
    Delete = 2,
}

/// A monitor, as a controller asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMonitor {
    /// Number of the monitor, of the controller's choice.
    pub monitor_id: u32,
    /// Only entries that output to this port; `ANY` for all.
    pub out_port: PortNo,
    /// Only entries that use this group; `ANY` for all.
    pub out_group: GroupId,
    /// Changes to report.
    pub flags: FlowMonitorFlags,
    /// Table; `ALL` for all tables.
    pub table_id: TableId,
    /// Kind of request.
    pub command: FlowMonitorCommand,
    /// Only entries that this match covers.
    pub r#match: Match,
}

/// OFPFME_* of updates with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FlowEvent {
    /// OFPFME_INITIAL: the entry was there when the monitor started.
    Initial = 0,
    /// OFPFME_ADDED: the entry is new.
    Added = 1,
    /// OFPFME_REMOVED: the entry is gone.
    Removed = 2,
    /// OFPFME_MODIFIED: the entry has changed.
    Modified = 3,
}

/// A report of a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowUpdate {
    /// A change of an entry.
    Entry(FlowUpdateEntry),
    /// OFPFME_ABBREV: the request of this xid is carried out.
    Abbreviated(Xid),
    /// OFPFME_PAUSED: the controller reads too slowly; no more reports for now.
    Paused,
    /// OFPFME_RESUMED: reports come again.
    Resumed,
}

/// An entry that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowUpdateEntry {
    /// Kind of change.
    pub event: FlowEvent,
    /// Table of the entry.
    pub table_id: TableId,
    /// Reason of a removal.
    pub reason: FlowRemovedReason,
    /// Idle time-out in seconds; 0 for none.
    pub idle_timeout: u16,
    /// Hard time-out in seconds; 0 for none.
    pub hard_timeout: u16,
    /// Priority of the entry.
    pub priority: u16,
    /// Cookie of the entry.
    pub cookie: Cookie,
    /// Match of the entry.
    pub r#match: Match,
    /// Instructions of the entry, if they were asked for.
    pub instructions: Vec<Instruction>,
}
