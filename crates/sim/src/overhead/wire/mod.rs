//! The frames that cross the wire when agents send messages: the corrected model.
//!
//! Messages come at their times, and each end of each connection does with them what the real one
//! does, header by header: TCP and TLS as Linux and rustls, QUIC as quinn. What no protocol says is
//! how soon a busy machine turns to its work and how much it finds by then; that is [`Host`], and
//! it is stated, not hidden. Handshakes are not played but counted, by the frames that one takes.

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
