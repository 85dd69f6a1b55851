//! Transports and the driver: the only crate with sockets and a clock.

pub mod advice;
pub mod clock;
pub mod driver;
pub mod method;
pub mod ovsdb;
pub mod quic;
pub mod reconnect;
pub mod tls;
pub mod transport;
pub mod tunnel;
pub mod workers;
