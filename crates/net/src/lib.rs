//! Transports and the driver: the only crate with sockets and a clock.

pub mod method;
pub mod quic;
pub mod tls;
pub mod transport;
