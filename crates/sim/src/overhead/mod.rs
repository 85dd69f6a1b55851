//! What it costs in bytes to carry messages: as published, and as it is.
//!
//! [`paper`] has the published equations. [`wire`] has what real TCP, TLS and QUIC put on a wire.

pub mod paper;
pub mod wire;
