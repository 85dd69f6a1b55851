//! The frames that cross the wire when agents send messages: the corrected model.
//!
//! Messages arrive at their times, and each end of each connection handles them as a real end does,
//! header by header: TCP and TLS as in Linux and rustls, QUIC as in quinn. No protocol defines how
//! soon a busy machine starts its work and how much work it finds by then; [`Host`] states these
//! assumptions. Handshakes are not simulated but counted, by the frames that one takes.

pub mod bytes;
mod congestion;
mod quic;
mod replay;
mod setup;
mod tcp;

pub use setup::{
    Carrier, Congestion, Host, Message, Outcome, QUINN_ACK_DELAY, QuicCarrier, RELAY_ACK_DELAY,
    RELAY_LANES, RELAY_RECORDS, RELAY_RECORDS_1, Records, Setup, Streams, TcpCarrier, poisson,
};

/// Time from the start, in nanoseconds.
pub type Nanos = u64;
const US: Nanos = 1000;
const MS: Nanos = 1000 * US;
