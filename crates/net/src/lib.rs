//! Transports and the driver: the only crate with sockets and a clock.

pub mod advice;
pub mod alarm;
pub mod clock;
pub mod databases;
pub mod driver;
pub mod method;
pub mod ovsdb;
mod pace;
pub mod quic;
pub mod reconnect;
pub mod tls;
pub mod transport;
pub mod workers;

pub use pace::Pace;
