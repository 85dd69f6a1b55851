//! The role of this member at each switch: asked for, answered, taken away.

/// An error that concerns roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleRefusal {
    /// OFPRRFC_STALE to the role request with this number.
    Stale { number: u32 },
    /// Another error to the role request with this number.
    Other { number: u32 },
    /// OFPBRC_IS_SLAVE to any message.
    IsSlave,
}
