//! Flow monitors: reports from a switch about changes of its entries (1.4, 7.3.5.17).

use crate::actions::Instruction;
use crate::match_fields::Match;
use crate::message::FlowRemovedReason;
use crate::types::{Cookie, GroupId, PortNo, TableId, Xid, flags};

flags! {
    /// OFPFMF_*: the contents of a monitor's reports.
    FlowMonitorFlags(u16) {
        /// Entries that exist when the monitor starts.
        INITIAL = 1 << 0;
        /// New entries.
        ADD = 1 << 1;
        /// Entries that were removed.
        REMOVED = 1 << 2;
        /// Entries that have changed.
        MODIFY = 1 << 3;
        /// Also the instructions of the entries.
        INSTRUCTIONS = 1 << 4;
        /// Changes by the monitor's own controller in full as well, not abbreviated.
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

/// A monitor, as requested by a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMonitor {
    /// Number of the monitor, chosen by the controller.
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
    /// OFPFME_INITIAL: the entry existed when the monitor started.
    Initial = 0,
    /// OFPFME_ADDED: the entry is new.
    Added = 1,
    /// OFPFME_REMOVED: the entry was removed.
    Removed = 2,
    /// OFPFME_MODIFIED: the entry has changed.
    Modified = 3,
}

/// A report from a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowUpdate {
    /// A change of an entry.
    Entry(FlowUpdateEntry),
    /// OFPFME_ABBREV: the request with this xid has been carried out.
    Abbreviated(Xid),
    /// OFPFME_PAUSED: the controller reads too slowly; no more reports for now.
    Paused,
    /// OFPFME_RESUMED: reports resume.
    Resumed,
}

/// An entry that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowUpdateEntry {
    /// Kind of change.
    pub event: FlowEvent,
    /// Table of the entry.
    pub table_id: TableId,
    /// Reason for a removal.
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
    /// Instructions of the entry, if the monitor requested them.
    pub instructions: Vec<Instruction>,
}
