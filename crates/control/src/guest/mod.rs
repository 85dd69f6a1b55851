//! Guests: other controllers that see each switch through auster, as a switch of their own.
//!
//! A `Machine` is one switch as one guest sees it. It takes the guest's messages, and returns
//! messages to the guest and requests for the switch. It knows no sockets and no other switches.
//!
//! A guest's first table lies in the table of paths, within the [band](band_of) of priorities that
//! only this guest has. Its further tables are tables of the switch that no other entries lead to.
//! An entry's cookie names its guest, and so does the number of a group or a meter: each of them
//! has one owner only.

mod band;
mod entries;
mod groups;
mod machine;
mod meters;
mod numbered;
mod slice;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use openflow::{DatapathId, Field, Frame, Match, MatchField, TableId};

pub(crate) use entries::of_cookie;
pub(crate) use groups::of_group;
pub(crate) use machine::{Answer, Machine, Output, Ticket, delete_row};
pub(crate) use meters::of_meter;

pub const GUESTS_MAX: usize = 16;
/// Entries that a guest may have at one switch.
pub const ENTRIES_MAX: usize = 4096;
/// Entries that all guests may have at all switches.
pub const ENTRIES_OF_ALL_MAX: usize = 262_144;
/// Matches that define a guest's packets.
pub const MATCHES_MAX: usize = 64;
/// Packets that a guest receives from one switch in a second, if no rate is stated.
pub const PACKET_RATE: u32 = 1000;

/// The highest priority in which a band is stated.
pub const STATED_MAX: u16 = 6_999;
/// The number of stated priorities that share one priority in the switch.
const STATED_PER_PRIORITY: u16 = 10;
/// The first priority of guests in the switch: above all of auster's entries that forward hosts'
/// packets, and below its entries for labels between switches, closed ports and LACP.
const FIRST: u16 = 3_300;

/// The first and the last table of the switch that a guest can have, and a guest's number of tables
/// if none is stated. The fabric has the tables before these.
pub const TABLES: RangeInclusive<u8> = 4..=0xef;
pub const TABLE_COUNT: u8 = 10;

/// A guest, for all switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    pub name: Arc<str>,
    /// The stated band.
    pub priority: RangeInclusive<u16>,
    /// The tables of the switch that the guest has besides its first.
    pub tables: Option<RangeInclusive<u8>>,
    /// The matches that define the guest's packets. None: all packets.
    pub matches: Vec<Match>,
    /// The switches that the guest sees. None: all.
    pub switches: BTreeSet<DatapathId>,
    /// Packets that the guest receives from one switch in a second.
    pub packet_rate: u32,
    /// Whether the guest's entries stay when its connection ends.
    pub is_kept: bool,
}

/// The priorities that a stated band has in the switch.
pub fn band_of(stated: &RangeInclusive<u16>) -> RangeInclusive<u16> {
    let at = |stated: u16| FIRST + stated.min(STATED_MAX) / STATED_PER_PRIORITY;
    at(*stated.start())..=at(*stated.end())
}

impl Guest {
    pub fn sees(&self, dpid: DatapathId) -> bool {
        self.switches.is_empty() || self.switches.contains(&dpid)
    }

    /// The number of tables that the guest has at a switch with `n_tables`, and the number that it
    /// should have.
    pub(crate) fn table_counts(&self, n_tables: u8) -> (usize, usize) {
        (
            self.tables_of(n_tables).len(),
            self.tables_of(u8::MAX).len(),
        )
    }

    /// The tables that the guest has at a switch with `n_tables`.
    fn tables_of(&self, n_tables: u8) -> Vec<TableId> {
        let own = self.tables.clone().into_iter().flatten();
        let there = own.filter(|table| *table < n_tables);
        [0].into_iter().chain(there).map(TableId).collect()
    }
}

/// Why no guest can have packets of this match.
pub fn match_problem(m: &Match) -> Option<String> {
    const OTHERS: [Field; 3] = [Field::Metadata, Field::TunnelId, Field::InPhyPort];
    let is_other = |field: &MatchField| match field {
        MatchField::Basic { field, .. } => OTHERS.contains(field),
        MatchField::Other { .. } => false,
    };
    if m.fields.iter().any(is_other) {
        return Some("it has a field that no packet has by itself".to_owned());
    }
    crate::flows::match_problem(m)
}

/// Why guests do not fit beside each other: each reason with the place of the later guest.
pub fn problems(guests: &[Guest]) -> Vec<(usize, String)> {
    let mut problems = Vec::new();
    if guests.len() > GUESTS_MAX {
        let text = format!(
            "there are {} guests, and {GUESTS_MAX} at most",
            guests.len()
        );
        problems.push((GUESTS_MAX, text));
    }
    for (place, guest) in guests.iter().enumerate() {
        for other in &guests[..place] {
            if other.name == guest.name {
                problems.push((place, format!("there are two guests '{}'", guest.name)));
            }
            let (ours, theirs) = (band_of(&guest.priority), band_of(&other.priority));
            if ours.start() <= theirs.end() && theirs.start() <= ours.end() {
                let (low, high) = (other.priority.start(), other.priority.end());
                let text = format!(
                    "priority: '{}' has {low} to {high}; no ten priorities such as 1000 to 1009 \
                     are of two guests",
                    other.name
                );
                problems.push((place, text));
            }
            if let (Some(ours), Some(theirs)) = (&guest.tables, &other.tables)
                && ours.start() <= theirs.end()
                && theirs.start() <= ours.end()
            {
                let (first, last) = (theirs.start(), theirs.end());
                let text = format!(
                    "table: '{}' has tables {first} to {last}; begin behind them, or state a \
                     smaller number of tables",
                    other.name
                );
                problems.push((place, text));
            }
        }
    }
    problems
}

/// Events for the part of auster that connects to the guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The guest has a switch from now on: connect to the guest.
    Up { guest: u8, dpid: DatapathId },
    /// The guest no longer has the switch: end the connection.
    Down { guest: u8, dpid: DatapathId },
    /// End the connection, and connect again later.
    End { guest: u8, dpid: DatapathId },
    /// A message to the guest.
    Send {
        guest: u8,
        dpid: DatapathId,
        frame: Frame,
        /// Whether the message is a packet, which may be left out.
        is_packet: bool,
    },
}

/// The receiver of the events. The application's thread calls it, so it must not wait.
pub type Sink = Box<dyn FnMut(News) + Send>;

/// A guest, for status tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestView {
    pub name: Arc<str>,
    pub switches: Vec<SeatView>,
    pub counts: Counts,
}

/// A switch as a guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatView {
    pub dpid: DatapathId,
    /// Whether the guest speaks OpenFlow with it.
    pub is_connected: bool,
    pub entries: usize,
}

/// Counts of one guest's messages, over all switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub messages: u64,
    /// Messages that were answered with an error.
    pub refused: u64,
    pub packet_ins: u64,
    /// Packets over the guest's rate.
    pub packet_ins_shed: u64,
    pub packet_outs: u64,
    /// Entries set again after they were deleted or changed from outside.
    pub mended: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, new: Counts) {
        let sums = [
            (&mut self.messages, new.messages),
            (&mut self.refused, new.refused),
            (&mut self.packet_ins, new.packet_ins),
            (&mut self.packet_ins_shed, new.packet_ins_shed),
            (&mut self.packet_outs, new.packet_outs),
            (&mut self.mended, new.mended),
        ];
        for (sum, new) in sums {
            *sum = sum.saturating_add(new);
        }
    }
}
