//! Connections: methods, transports, TLS, QUIC, the threads that they run on, and the real clock.

pub mod advice;
pub mod alarm;
pub mod clock;
pub mod method;
mod pace;
pub mod passed;
pub mod quic;
pub mod tls;
pub mod transport;
pub mod workers;

pub use pace::Pace;
