//! The tables of a switch, and the way from one to the next.

use openflow::{Action, Instruction, PortNo, TableId};

/// The table of paths and circuits.
pub const PATH_TABLE: TableId = TableId(0);
/// The table to which a path leads on.
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
