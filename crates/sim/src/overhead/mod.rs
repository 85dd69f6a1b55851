//! The cost in bytes of carrying messages: as published, and on a real wire.
//!
//! [`paper`] has the published equations. [`wire`] has the bytes that real TCP, TLS and QUIC put on
//! a wire.

pub mod paper;
pub mod wire;
