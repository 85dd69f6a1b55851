//! The setup of one cell of the model and its result.

use clock::{Duration, SplitMix64};

use super::replay::Replay;
use super::{Nanos, bytes};
use crate::link::{LINE_OVERHEAD_BYTES, LinkConfig};

/// The carrier of the messages of all agents.
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
    /// Whether ACK_FREQUENCY is 10 packets, with ids of 4 bytes to the controller and none to the
    /// switch.
    pub is_thin: bool,
    /// Time that an acknowledgement may wait for more packets to acknowledge.
    pub ack_delay: Duration,
    pub congestion: Congestion,
    pub window_floor_bytes: u64,
    /// The records that our relays send besides the messages.
    pub records: Option<Records>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// quinn's.
    Cubic,
    /// The relays'.
    Westwood,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    PerAgent,
    RoundRobin(u16),
    PerMessage,
    /// This number of streams for each agent, chosen by the message's [`Message::lane`].
    Lanes(u16),
}

/// A message in a relay's lane is a record. Reports of deliveries go on the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records {
    pub header_bytes: u32,
    /// Bytes before the first record of a lane.
    pub lane_header_bytes: u32,
    /// Age at which a report is sent with the next message; after `report_every` it is sent by
    /// itself.
    pub report_rides_after: Duration,
    pub report_every: Duration,
    /// Bytes of a channel's report, and of each of its lanes that had deliveries.
    pub report_bytes: u32,
    pub report_lane_bytes: u32,
}

/// Stream type, channel, lane and position, then a 0, epoch and dependency, which records after the
/// first do not repeat. In a report: type, length, channel and count; lane and position.
pub const RELAY_RECORDS: Records = Records {
    header_bytes: 0,
    lane_header_bytes: 4 + 3,
    report_rides_after: Duration::from_millis(500),
    report_every: Duration::from_millis(1000),
    report_bytes: 4,
    report_lane_bytes: 3,
};
/// The records as they were before the header could be omitted.
pub const RELAY_RECORDS_1: Records = Records {
    header_bytes: 2,
    lane_header_bytes: 4,
    ..RELAY_RECORDS
};
/// Lanes of each agent, unless messages wait for others.
pub const RELAY_LANES: u16 = 16;
/// The delay of acknowledgements that both relays ask each other for.
pub const RELAY_ACK_DELAY: Duration = Duration::from_millis(5);
/// The delay of acknowledgements that quinn uses and announces.
pub const QUINN_ACK_DELAY: Duration = Duration::from_millis(25);

/// The delays that a machine adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// Time from an event to the turn of the thread that handles it.
    pub wake: Duration,
    /// Time that a turn takes for each message or packet in it, of TCP and of QUIC.
    pub tcp_item: Duration,
    pub quic_item: Duration,
    /// The lateness of the link's deliveries.
    pub late: Duration,
    /// The lateness of QUIC's timers.
    pub timer: Duration,
}

impl Default for Host {
    /// The two cores that `results/2026-11-22-channel` was measured on, busy with other work:
    /// fitted to its table of overhead, except for the timers.
    fn default() -> Host {
        Host {
            wake: Duration::from_micros(60),
            tcp_item: Duration::from_micros(15),
            quic_item: Duration::from_micros(30),
            late: Duration::from_micros(40),
            // tokio rounds a deadline up to its next tick, and the sleep until then up to a whole
            // number of ticks: half a millisecond each, on average.
            timer: Duration::from_millis(1),
        }
    }
}

/// A message that an agent sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub due: Nanos,
    pub agent: u16,
    /// The lane of its agent, used with [`Streams::Lanes`].
    pub lane: u16,
    pub bytes: u32,
}

/// One cell of the model.
#[derive(Clone, Debug)]
pub struct Setup {
    pub carrier: Carrier,
    /// Messages of a connection wait this long for others and are written together.
    pub window: Duration,
    pub agents: u16,
    /// Messages of either direction: to the controller, and to the switch.
    pub messages: [Vec<Message>; 2],
    pub link: LinkConfig,
    /// Seeds of the losses of frames in each direction.
    pub seeds: [u64; 2],
    pub host: Host,
}

/// The traffic that crossed the link, or tried to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Messages delivered, and messages not delivered.
    pub messages: u64,
    pub undelivered: u64,
    pub application_bytes: u64,
    pub frames: u64,
    pub frame_bytes: u64,
    /// The share of `frames` and `frame_bytes` that handshakes took.
    pub handshake_frames: u64,
    pub handshake_bytes: u64,
}

impl Outcome {
    /// Headers, acknowledgements, retransmissions and handshakes, for each message.
    pub fn overhead_bytes(&self) -> f64 {
        (self.frame_bytes as f64 - self.application_bytes as f64) / self.messages.max(1) as f64
    }

    /// The overhead with preamble, FCS and gap of each frame.
    pub fn line_overhead_bytes(&self) -> f64 {
        self.overhead_bytes() + LINE_OVERHEAD_BYTES as f64 * self.frames_per_message()
    }

    pub fn frames_per_message(&self) -> f64 {
        self.frames as f64 / self.messages.max(1) as f64
    }
}

/// Messages of one agent from a Poisson process, the same as `scenarios/channel-*.toml` send with
/// this seed.
pub fn poisson(agent: u16, per_second: f64, count: u32, bytes: u32, seed: u64) -> Vec<Message> {
    let mut seeds = SplitMix64::new(seed ^ u64::from(agent) << 48);
    let mut draws = SplitMix64::new(seeds.next());
    let mut lanes = SplitMix64::new(seeds.next());
    let mut due = 0.0;
    let next = |_| {
        let even = ((draws.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        due -= even.ln() * 1e9 / per_second;
        Message {
            due: due as Nanos,
            agent,
            lane: (lanes.next() % u64::from(RELAY_LANES)) as u16,
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

    /// Frames that set up one connection, before its first message and alongside it: those to the
    /// controller, which listens, and those to the switch.
    pub(super) fn handshake(&self) -> [Vec<u32>; 2] {
        match self.carrier {
            Carrier::Tcp(tcp) if tcp.is_tls => [TLS_TO_CONTROLLER.into(), TLS_TO_SWITCH.into()],
            Carrier::Tcp(_) => [vec![TCP_SYN, bytes::TCP_FRAME], vec![TCP_SYN]],
            Carrier::Quic(quic) => {
                let probes: &[u32] = match quic.records {
                    None => &MTU_PROBES,
                    Some(_) => &RELAY_MTU_PROBES,
                };
                let frames = |handshake: [u32; 4], more: &[u32]| {
                    let probes = probes.iter().map(|probe| bytes::UDP_FRAME + probe);
                    let more = more.iter().copied();
                    handshake.into_iter().chain(probes).chain(more).collect()
                };
                // The switch's relay announces each channel, and gets an acknowledgement for it.
                let agents = match quic.records {
                    None => 0,
                    Some(_) => usize::from(self.agents),
                };
                let settings = if agents > 0 { &RELAY_SETTINGS[..] } else { &[] };
                let opens = [settings, &vec![RELAY_OPEN; agents]].concat();
                let acks = [settings, &vec![RELAY_ACK; agents]].concat();
                [
                    frames(QUIC_TO_CONTROLLER, &opens),
                    frames(QUIC_TO_SWITCH, &acks),
                ]
            }
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
/// The packet sizes that path MTU discovery tries in each direction: quinn's, and the relays',
/// which begin with the largest.
const MTU_PROBES: [u32; 4] = [1326, 1389, 1420, 1452];
const RELAY_MTU_PROBES: [u32; 1] = [1452];
const QUIC_TO_CONTROLLER: [u32; 4] = [QUIC_FULL, QUIC_FULL, 120, 90];
const QUIC_TO_SWITCH: [u32; 4] = [QUIC_FULL, QUIC_FULL, 420, 90];
/// Short header with an id of 4 bytes, ACK; the same with a STREAM frame of 14 bytes behind it.
const RELAY_ACK: u32 = bytes::UDP_FRAME + 1 + 4 + 1 + 8 + bytes::AEAD_TAG;
const RELAY_OPEN: u32 = RELAY_ACK + 4 + 14;
/// Each end's settings, which the other acknowledges.
const RELAY_SETTINGS: [u32; 2] = [RELAY_ACK + 4 + 56, RELAY_ACK];
