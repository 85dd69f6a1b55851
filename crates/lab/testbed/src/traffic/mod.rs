//! Traffic between hosts, and its fate.

pub mod background;
pub mod icmp;
pub mod stranger;
pub mod tcp;
pub mod udp;
