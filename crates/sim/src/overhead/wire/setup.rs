//! What is carried over what, and what came of it.

use openflow::time::Duration;

use super::replay::Replay;
use super::{Nanos, bytes};
use crate::link::{LINE_OVERHEAD_BYTES, LinkConfig, SplitMix64};

/// What carries the messages of all agents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carrier {
    Tcp(TcpCarrier),
    Quic(QuicCarrier),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpCarrier {
    /// TLS 1.3, a record for each write.
    pub is_tls: bool,
    pub nodelay: bool,
    /// One connection for all agents instead of one each.
    pub is_shared: bool,
    pub rto_min: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuicCarrier {
    pub streams: Streams,
    /// ACK_FREQUENCY (10 packets, 25 ms), and ids of 4 bytes to the controller and none to the switch.
    pub is_thin: bool,
    pub window_floor_bytes: u64,
    /// What our relays say besides the messages.
    pub records: Option<Records>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    PerAgent,
    RoundRobin(u16),
    PerMessage,
    /// So many of each agent, by the flow of the message.
    Lanes(u16),
}

/// A message in a relay's lane is a record, and what was delivered is told on the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records {
    pub header_bytes: u32,
    pub report_every: Duration,
    /// Of a channel, and of each of its lanes that had deliveries.
    pub report_bytes: u32,
    pub report_lane_bytes: u32,
}

/// Epoch and dependency; type, length, channel and count; lane and position.
pub const RELAY_RECORDS: Records = Records {
    header_bytes: 2,
    report_every: Duration::from_millis(10),
    report_bytes: 4,
    report_lane_bytes: 3,
};
pub const RELAY_LANES: u16 = 16;

/// How a machine keeps up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// From what happens to the turn of the thread that it is for.
    pub wake: Duration,
    /// What a turn takes for each message or packet in it, of TCP and of QUIC.
    pub tcp_item: Duration,
    pub quic_item: Duration,
    /// By how much the link delivers late.
    pub late: Duration,
}

impl Default for Host {
    /// The two cores that `results/2026-11-22-channel` was measured on, busy with other work: fitted to
    /// its table of overhead.
    fn default() -> Host {
        Host {
            wake: Duration::from_micros(60),
            tcp_item: Duration::from_micros(15),
            quic_item: Duration::from_micros(30),
            late: Duration::from_micros(40),
        }
    }
}

/// A message that an agent sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub due: Nanos,
    pub agent: u16,
    pub bytes: u32,
}

/// One cell.
#[derive(Clone, Debug)]
pub struct Setup {
    pub carrier: Carrier,
    /// Messages of a connection wait this long for others and are written together.
    pub window: Duration,
    pub agents: u16,
    /// Of either direction: to the controller, and to the switch.
    pub messages: [Vec<Message>; 2],
    pub link: LinkConfig,
    /// Of the frames that each direction loses.
    pub seeds: [u64; 2],
    pub host: Host,
}

/// What crossed the link, or tried to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Delivered, and not.
    pub messages: u64,
    pub undelivered: u64,
    pub application_bytes: u64,
    pub frames: u64,
    pub frame_bytes: u64,
    /// Of `frames` and `frame_bytes`.
    pub handshake_frames: u64,
    pub handshake_bytes: u64,
}

impl Outcome {
    /// Headers, acknowledgements, retransmissions and handshakes, for each message.
    pub fn overhead_bytes(&self) -> f64 {
        (self.frame_bytes as f64 - self.application_bytes as f64) / self.messages.max(1) as f64
    }

    /// With preamble, FCS and gap of each frame.
    pub fn line_overhead_bytes(&self) -> f64 {
        self.overhead_bytes() + LINE_OVERHEAD_BYTES as f64 * self.frames_per_message()
    }

    pub fn frames_per_message(&self) -> f64 {
        self.frames as f64 / self.messages.max(1) as f64
    }
}

/// Messages of one agent by a Poisson process, those that `auster bench channel` sends with the seed.
pub fn poisson(agent: u16, per_second: f64, count: u32, bytes: u32, seed: u64) -> Vec<Message> {
    let mut seeds = SplitMix64::new(seed ^ u64::from(agent) << 48);
    let mut draws = SplitMix64::new(seeds.next());
    let mut due = 0.0;
    let next = |_| {
        let even = ((draws.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        due -= even.ln() * 1e9 / per_second;
        Message {
            due: due as Nanos,
            agent,
            bytes,
        }
    };
    (0..count).map(next).collect()
}

impl Setup {
    pub fn run(&self) -> Outcome {
        Replay::new(self).run()
    }

    pub(super) fn connections(&self) -> u16 {
        match self.carrier {
            Carrier::Tcp(tcp) if !tcp.is_shared => self.agents,
            _ => 1,
        }
    }

    /// Frames that one connection is set up with, before its first message and beside it: to the
    /// controller, which listens, and to the switch.
    pub(super) fn handshake(&self) -> [&'static [u32]; 2] {
        match self.carrier {
            Carrier::Tcp(tcp) if tcp.is_tls => [&TLS_TO_CONTROLLER, &TLS_TO_SWITCH],
            Carrier::Tcp(_) => [&[TCP_SYN, bytes::TCP_FRAME], &[TCP_SYN]],
            Carrier::Quic(_) => [&QUIC_TO_CONTROLLER, &QUIC_TO_SWITCH],
        }
    }
}

/// Maximum segment size, SACK, timestamps and window scale: 20 bytes of options.
const TCP_SYN: u32 = bytes::ETHERNET + bytes::IPV4 + 20 + 20;
/// ClientHello; certificate, its verification and Finished. P-256 certificates on both sides.
const TLS_TO_CONTROLLER: [u32; 5] = [TCP_SYN, 66, 66 + 240, 66, 66 + 760];
/// ServerHello to Finished in one flight; session tickets.
const TLS_TO_SWITCH: [u32; 4] = [TCP_SYN, 66, 66 + 960, 66 + 200];
const QUIC_FULL: u32 = bytes::UDP_FRAME + 1200;
/// What path MTU discovery tries, each way.
const MTU_PROBES: [u32; 4] = [1326, 1389, 1420, 1452];
const QUIC_TO_CONTROLLER: [u32; 8] = quic_frames([QUIC_FULL, QUIC_FULL, 120, 90]);
const QUIC_TO_SWITCH: [u32; 8] = quic_frames([QUIC_FULL, QUIC_FULL, 420, 90]);

const fn quic_frames(handshake: [u32; 4]) -> [u32; 8] {
    let mut frames = [0; 8];
    let mut n = 0;
    while n < 4 {
        frames[n] = handshake[n];
        frames[n + 4] = bytes::UDP_FRAME + MTU_PROBES[n];
        n += 1;
    }
    frames
}
