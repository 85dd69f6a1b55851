//! Roles and the filter of asynchronous messages as `ovs-ofctl ofp-print` writes them.

use std::fmt::{self, Write};

use crate::message::*;

use super::names;

pub(super) fn role(w: &mut String, m: RoleMessage, has_generation: bool) -> fmt::Result {
    write!(w, " role={}", names::role(m.role))?;
    // All ones: the switch knows of no election yet.
    if has_generation && m.generation_id != u64::MAX {
        write!(w, " generation_id={}", m.generation_id)?;
    }
    Ok(())
}

pub(super) fn role_status(w: &mut String, m: &RoleStatus) -> fmt::Result {
    let held = RoleMessage::new(m.role, m.generation_id);
    role(w, held, true)?;
    write!(w, " reason={}", names::role_reason(m.reason))
}

pub(super) fn async_config(w: &mut String, m: &AsyncConfig) -> fmt::Result {
    for (at, role) in ["primary", "secondary"].into_iter().enumerate() {
        writeln!(w, "\n {role}:")?;
        let mut of = |name, masks: [Option<u32>; 2], reason| {
            async_reasons(w, name, masks[at].unwrap_or(0), reason)
        };
        of("PACKET_IN", m.packet_in_mask, names::packet_in_reason)?;
        of("PORT_STATUS", m.port_status_mask, names::port_reason)?;
        of(
            "FLOW_REMOVED",
            m.flow_removed_mask,
            names::flow_removed_reason,
        )?;
        of("ROLE_STATUS", m.role_status_mask, |n| {
            names::role_reason(RoleReason(n)).into()
        })?;
        of("TABLE_STATUS", m.table_status_mask, names::table_reason)?;
        of(
            "REQUESTFORWARD",
            m.request_forward_mask,
            names::forward_reason,
        )?;
    }
    Ok(())
}

/// Reasons without a name are left out.
fn async_reasons(w: &mut String, of: &str, mask: u32, name: fn(u8) -> String) -> fmt::Result {
    let named = (0..32).filter(|n| mask >> n & 1 == 1).map(name);
    let reasons: Vec<String> = named.filter(|name| name.parse::<u8>().is_err()).collect();
    let reasons = if reasons.is_empty() {
        "(off)".into()
    } else {
        reasons.join(" ")
    };
    writeln!(w, "{of:>16}: {reasons}")
}
