//! The tables of a switch, and their order.
//!
//! All code names tables by these constants. In a switch of the fabric, the tables of mirrors and
//! access are before the tables of paths, and [`Numbering`] translates the numbers in messages to
//! and from the switch. Such a switch has these tables even while no packet is copied or
//! checked. So adding or removing an access list or a mirror renumbers nothing. Without the fabric,
//! a switch has them while it needs them. A switch with static entries that let packets continue
//! has one more table for these entries, last before the paths.

use openflow::message::{FlowMod, FlowModCommand};
use openflow::multipart::{FlowStats, ReplyBody, RequestBody};
use openflow::{Action, Instruction, Message, PortNo, TableId};

/// The table of paths and circuits.
pub const PATH_TABLE: TableId = TableId(0);
/// The table to which a path continues.
pub const POLICY_TABLE: TableId = TableId(1);
/// The table of the fabric's labels.
pub const LABEL_TABLE: TableId = TableId(2);
/// The table in which an egress of the fabric finds its hosts.
pub const HOST_TABLE: TableId = TableId(3);

/// The instructions of a path's entry with policies behind it.
pub fn path_instructions(out: PortNo) -> Vec<Instruction> {
    vec![
        Instruction::WriteActions(vec![Action::output(out)]),
        Instruction::WriteMetadata {
            metadata: out.0.into(),
            mask: u64::MAX,
        },
        Instruction::GotoTable(POLICY_TABLE),
    ]
}

/// The first table that copies or checks incoming packets: copies for mirrors.
pub const MIRROR_TABLE: TableId = TableId(0xf0);
/// The first table where access is decided: who may answer hosts, and which ports are not checked.
pub const GUARD_TABLE: TableId = TableId(0xf1);
/// The addresses that ports are bound to.
pub const BINDING_TABLE: TableId = TableId(0xf2);
/// The access lists of ports.
pub const PORT_ACCESS_TABLE: TableId = TableId(0xf3);
/// The VLAN of a packet, where that VLAN has access lists.
pub const VLAN_TABLE: TableId = TableId(0xf4);
/// The access lists of VLANs, which the metadata names.
pub const VLAN_ACCESS_TABLE: TableId = TableId(0xf5);
/// The VLAN that a packet is routed into, where that VLAN has access lists for it.
pub const OUT_TABLE: TableId = TableId(0xf6);
/// The access lists of VLANs for packets that are routed into them, by the metadata.
pub const OUT_ACCESS_TABLE: TableId = TableId(0xf7);

/// Static entries that let packets continue to the paths, where a switch has any.
pub const ONWARD_TABLE: TableId = TableId(0xf8);

pub(crate) const ACCESS_TABLES: u8 = 8;

/// The numbers that a switch has for the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// The numbers of the constants: incoming packets are neither copied nor checked.
    #[default]
    Plain,
    /// The tables of mirrors and access come first, and all others after them.
    Access,
    /// The same, with the table of static entries that let packets continue in between: all packets
    /// from access to the paths pass through it.
    Onward,
}

impl Numbering {
    /// The number of tables before those of paths.
    fn tables_before(self) -> u8 {
        match self {
            Numbering::Plain => 0,
            Numbering::Access => ACCESS_TABLES,
            Numbering::Onward => ACCESS_TABLES + 1,
        }
    }

    /// Whether the switch has the tables of mirrors and access.
    pub(crate) fn has_access(self) -> bool {
        self != Numbering::Plain
    }

    /// The number of tables that a switch has besides those of access.
    pub(crate) fn tables_left(self, n_tables: u8) -> u8 {
        n_tables.saturating_sub(self.tables_before())
    }

    /// The number of a table in the switch.
    pub fn switch_number(self, table: TableId) -> TableId {
        match self {
            _ if table == TableId::ALL => table,
            Numbering::Plain => table,
            _ if table >= MIRROR_TABLE => TableId(table.0 - MIRROR_TABLE.0),
            _ => TableId(table.0.saturating_add(self.tables_before())),
        }
    }

    /// The table that has this number in the switch.
    pub fn our_number(self, table: TableId) -> TableId {
        match self {
            _ if table == TableId::ALL => table,
            Numbering::Plain => table,
            _ if table.0 < self.tables_before() => TableId(MIRROR_TABLE.0 + table.0),
            _ => TableId(table.0 - self.tables_before()),
        }
    }

    /// The number in the switch of the table to which an entry of `from` continues.
    fn switch_next(self, from: TableId, next: TableId) -> TableId {
        match self {
            Numbering::Onward if leads_onward(from) && next == PATH_TABLE => {
                self.switch_number(ONWARD_TABLE)
            }
            _ => self.switch_number(next),
        }
    }

    /// The table to which an entry of `from` continues, by its number in the switch.
    fn our_next(self, from: TableId, next: TableId) -> TableId {
        match self.our_number(next) {
            ONWARD_TABLE if leads_onward(from) => PATH_TABLE,
            // The entry bypasses the static entries.
            PATH_TABLE if self == Numbering::Onward && leads_onward(from) => ONWARD_TABLE,
            next => next,
        }
    }

    /// Writes the switch's numbers into an entry.
    pub(crate) fn translate_flow_mod(self, flow_mod: &mut FlowMod) {
        let is_deletion = [FlowModCommand::Delete, FlowModCommand::DeleteStrict];
        let table = flow_mod.table_id;
        flow_mod.table_id = self.switch_number(table);
        if !is_deletion.contains(&flow_mod.command) {
            translate(&mut flow_mod.instructions, |next| {
                self.switch_next(table, next)
            });
        }
    }

    /// Writes the switch's numbers into a message to it.
    pub fn translate_sent(self, message: &mut Message) {
        match message {
            _ if self == Numbering::Plain => {}
            Message::FlowMod(flow_mod) => self.translate_flow_mod(flow_mod),
            Message::MultipartRequest(request) => match &mut request.body {
                RequestBody::Flow(asked) | RequestBody::Aggregate(asked) => {
                    asked.table_id = self.switch_number(asked.table_id);
                }
                _ => {}
            },
            Message::TableMod(table) => table.table_id = self.switch_number(table.table_id),
            _ => {}
        }
    }

    /// Writes our numbers into a message that a switch has sent.
    pub(crate) fn translate_received(self, message: &mut Message) {
        match message {
            _ if self == Numbering::Plain => {}
            Message::PacketIn(packet_in) => {
                packet_in.table_id = self.our_number(packet_in.table_id);
            }
            Message::FlowRemoved(removed) => {
                removed.table_id = self.our_number(removed.table_id);
            }
            Message::MultipartReply(reply) => match &mut reply.body {
                ReplyBody::Flow(rows) => rows.iter_mut().for_each(|row| self.translate_row(row)),
                ReplyBody::Table(rows) => {
                    for row in rows {
                        row.table_id = self.our_number(row.table_id);
                    }
                }
                ReplyBody::TableFeatures(rows) => {
                    for row in rows {
                        row.table_id = self.our_number(row.table_id);
                    }
                }
                ReplyBody::TableDesc(rows) => {
                    for row in rows {
                        row.table_id = self.our_number(row.table_id);
                    }
                }
                _ => {}
            },
            Message::TableStatus(status) => {
                let table = &mut status.table;
                table.table_id = self.our_number(table.table_id);
            }
            _ => {}
        }
    }

    /// Returns a switch's report of an entry in our numbers.
    #[must_use]
    pub fn read(self, mut row: FlowStats) -> FlowStats {
        self.translate_row(&mut row);
        row
    }

    fn translate_row(self, row: &mut FlowStats) {
        let table = self.our_number(row.table_id);
        row.table_id = table;
        translate(&mut row.instructions, |next| self.our_next(table, next));
    }
}

/// Whether packets from a table to the paths pass through the table of static entries.
fn leads_onward(from: TableId) -> bool {
    (MIRROR_TABLE..ONWARD_TABLE).contains(&from)
}

fn translate(instructions: &mut [Instruction], number: impl Fn(TableId) -> TableId) {
    for instruction in instructions {
        if let Instruction::GotoTable(table) = instruction {
            *table = number(*table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_back_and_access_is_first() {
        let tables = [
            MIRROR_TABLE,
            GUARD_TABLE,
            BINDING_TABLE,
            PORT_ACCESS_TABLE,
            VLAN_TABLE,
            VLAN_ACCESS_TABLE,
            OUT_TABLE,
            OUT_ACCESS_TABLE,
            PATH_TABLE,
            POLICY_TABLE,
            LABEL_TABLE,
            HOST_TABLE,
        ];
        for (number, table) in (0u8..).zip(tables) {
            assert_eq!(Numbering::Access.switch_number(table), TableId(number));
        }
        for numbering in [Numbering::Plain, Numbering::Access, Numbering::Onward] {
            for number in 0..=u8::MAX {
                let table = numbering.our_number(TableId(number));
                // Nothing of ours is in the last tables, which have no number to spare.
                if number < 0xf0 {
                    assert_eq!(numbering.switch_number(table), TableId(number), "{number}");
                }
            }
        }
    }

    /// Where static entries let packets continue, access continues to them, and they to the paths.
    #[test]
    fn the_way_from_access_to_the_paths_leads_through_static_entries() {
        let on = Numbering::Onward;
        let through = on.switch_number(ONWARD_TABLE);
        assert_eq!(through, TableId(8));
        assert_eq!(on.switch_number(PATH_TABLE), TableId(9));
        for (from, next, number) in [
            (GUARD_TABLE, PATH_TABLE, through),
            (GUARD_TABLE, BINDING_TABLE, TableId(2)),
            (ONWARD_TABLE, PATH_TABLE, TableId(9)),
            (PATH_TABLE, POLICY_TABLE, TableId(10)),
        ] {
            assert_eq!(on.switch_next(from, next), number, "{from:?}");
            assert_eq!(on.our_next(from, number), next, "{from:?}");
        }
        assert_eq!(on.our_next(GUARD_TABLE, TableId(9)), ONWARD_TABLE);
    }
}
