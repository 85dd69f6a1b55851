//! One emulated switch: the messages that it sends and its verdicts on those that it receives. No
//! socket and no clock: bytes and nanoseconds go in, bytes come out.
//!
//! A controller that is still setting the switch up drops packet-ins. So the switch waits until the
//! controller has been quiet, announces the destination host, and probes until a packet for it is
//! answered by anything but a flood. Only then is it ready to be measured.

mod exchange;
mod judge;
mod line;

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use openflow::hello::{Hello, negotiate};
use openflow::packet::build::{Host, arp_request, ethernet};
use openflow::{EncodeError, Frame, Message, Version, Xid, encode};
use serde::Serialize;

use super::answers::answer_control;
use super::layout::{DESTINATION, DESTINATION_PORT, Layout};
use super::links::Crossing;
use super::outstanding::{Kind, Outcome, Outstanding, Wanted};
use super::tally::Tally;
use super::wire::{self, Answer, HEADER_LEN, PacketInTemplate, TYPE_FLOW_MOD, TYPE_PACKET_OUT};
use crate::histogram::Histogram;
use judge::Verdict;
pub use judge::is_lldp;

/// How the destination host makes itself known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Announce {
    /// A gratuitous ARP request. A controller that joins switches to one network floods each to all
    /// others
    Arp,
    /// A frame from the host to itself, as Ethernet's loopback test sends: nobody floods it
    Keepalive,
}

impl Announce {
    /// Returns the frame by which a host announces itself.
    pub fn frame(self, host: Host) -> Vec<u8> {
        match self {
            Announce::Arp => arp_request(host, host.ip),
            Announce::Keepalive => ethernet(host.mac, host.mac, LOOPBACK_ETHERTYPE, &[0; 46]),
        }
    }
}

/// The properties that all switches of a run share.
#[derive(Clone, Debug)]
pub struct Profile {
    pub version: Version,
    pub is_buffered: bool,
    pub wanted: Wanted,
    /// Packet-ins of one switch that may wait at once while the load is closed.
    pub window: usize,
    /// The same limit while every source is sent once.
    pub learn_window: usize,
    /// The same limit under every load.
    pub in_flight_max: usize,
    pub timeout_ns: u64,
    /// Time for which the controller must have been quiet.
    pub settle_ns: u64,
    /// The longest time until a probe is answered.
    pub ready_max_ns: u64,
    pub announce: Announce,
    pub traffic: Traffic,
}

/// Destinations of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// From each source to the destination.
    ToDestination,
    /// From each source to others in turn.
    Paired,
    /// From each source to another switch's destination.
    Across,
    /// In both directions between sources that find each other by ARP.
    Exchanges,
}

/// A controller that never falls silent counts as set up after this time.
const SETTLE_MAX_NS: u64 = 2_000_000_000;
/// Time between two announcements; more than the 100 ms after which a changed port counts for
/// auster.
const PROBE_INTERVAL_NS: u64 = 200_000_000;
const LOOPBACK_ETHERTYPE: u16 = 0x9000;
/// All packets of a storm are of one host, so they come in at one port.
const STORM_SOURCE: u32 = 1;
/// Above every tag that awaits an answer.
const STRAY_TAG: u32 = 0x8000_0000;
const ECHO_XID: Xid = Xid(0x6563_686f);

/// The stage of a switch's set-up with its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The controller has not asked for features.
    Handshake,
    SetUp {
        since_ns: u64,
        heard_ns: u64,
    },
    Probing {
        since_ns: u64,
        next_ns: u64,
    },
    /// The destination is known.
    Ready,
    /// No probe got an answer that goes to the destination.
    NotLearned,
}

/// When a switch sends packet-ins of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Idle,
    /// Every source once.
    Learn,
    /// Packet-ins whenever the window has room.
    Closed,
    /// When [`Switch::send`] is called.
    Open,
}

/// Recorded delays, in nanoseconds.
#[derive(Default)]
pub struct Delays {
    pub answers: Histogram,
    pub echoes: Histogram,
    /// The due time of each packet-in and the delay of its answer, if requested.
    pub timeline: Option<Vec<(u64, u64)>>,
}

/// Reason why a connection cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    Framing,
    Version { theirs: u8 },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Framing => f.write_str("it sends what is not OpenFlow"),
            Broken::Version { theirs } => write!(
                f,
                "it speaks OpenFlow 1.{} and not the version offered; try --of",
                theirs.saturating_sub(1)
            ),
        }
    }
}

/// Checks that the controller's HELLO takes the version that was offered.
///
/// # Errors
/// The HELLO does not take it: the connection cannot continue.
pub fn check_hello(offered: Version, theirs: u8, hello: &Hello) -> Result<(), Broken> {
    match negotiate(&[offered], theirs, hello) {
        Some(_) => Ok(()),
        None => Err(Broken::Version { theirs }),
    }
}

pub struct Switch {
    profile: Rc<Profile>,
    layout: Layout,
    template: PacketInTemplate,
    outstanding: Outstanding,
    stage: Stage,
    load: Load,
    next_source: u32,
    /// The number of turns that all sources have had.
    lap: u32,
    /// The number of sources sent so far in the learning phase.
    learned: u32,
    /// Delays of packet-ins sent from here on are recorded.
    record_from_ns: u64,
    admitted_ns: Option<u64>,
    /// Crossings for other switches. The caller that passes bytes in takes the crossings out.
    pub crossings: Vec<Crossing>,
    /// Ports of links over which LLDP has arrived.
    links_heard: Vec<u32>,
    /// Steps of exchanges, by their slots.
    steps: Vec<exchange::Step>,
    pub tally: Tally,
}

impl Switch {
    pub fn new(profile: Rc<Profile>, layout: Layout) -> Result<Switch, EncodeError> {
        let template = PacketInTemplate::new(profile.version, &layout, profile.is_buffered)?;
        let sources = layout.source_count;
        // Exchanges are between hosts that the controller does not know.
        let learned = match profile.traffic {
            Traffic::Exchanges => sources,
            _ => 0,
        };
        Ok(Switch {
            outstanding: Outstanding::new(profile.in_flight_max, sources, profile.wanted),
            profile,
            layout,
            template,
            stage: Stage::Handshake,
            load: Load::Idle,
            next_source: 1,
            lap: 0,
            learned,
            record_from_ns: u64::MAX,
            admitted_ns: None,
            crossings: Vec::new(),
            links_heard: Vec::new(),
            steps: Vec::new(),
            tally: Tally::default(),
        })
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the time when the controller asked for the switch's features.
    pub fn admitted_ns(&self) -> Option<u64> {
        self.admitted_ns
    }

    /// Whether every source has been sent once and no packet-in waits any more.
    pub fn has_learned(&self) -> bool {
        self.learned >= self.layout.source_count && self.outstanding.in_flight() == 0
    }

    pub fn in_flight(&self) -> usize {
        self.outstanding.in_flight()
    }

    pub fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    pub fn record_from(&mut self, now_ns: u64) {
        self.record_from_ns = now_ns;
    }

    /// Handles a new connection.
    pub fn handle_connected(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let version = self.profile.version;
        let hello = match version {
            Version::V10 => Hello::default(),
            version => Hello::offering(&[version]),
        };
        push(version, Xid(1), &Message::Hello(hello), out)
    }

    /// Handles the whole messages at the front of `bytes`, and returns the number of their bytes.
    pub fn handle_bytes(
        &mut self,
        now_ns: u64,
        bytes: &[u8],
        delays: &mut Delays,
        out: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        let mut at = 0;
        while let Some(header) = bytes[at..].first_chunk::<HEADER_LEN>() {
            let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
            if len < HEADER_LEN {
                return Err(Broken::Framing);
            }
            let Some(message) = bytes.get(at..at + len) else {
                break;
            };
            at += len;
            let is_answer = matches!(header[1], TYPE_FLOW_MOD | TYPE_PACKET_OUT);
            if is_answer && header[0] == self.profile.version.wire() {
                self.handle_answer(now_ns, message, delays, out);
            } else {
                self.handle_control(now_ns, message, delays, out)?;
            }
        }
        Ok(at)
    }

    /// Sends the packet-ins that the closed load allows.
    pub fn fill(&mut self, now_ns: u64, out: &mut Vec<u8>) {
        match self.load {
            Load::Idle | Load::Open => {}
            Load::Learn => {
                while self.learned < self.layout.source_count
                    && self.outstanding.in_flight() < self.profile.learn_window
                {
                    self.learned += 1;
                    self.send(now_ns, out);
                }
            }
            Load::Closed => {
                while self.outstanding.in_flight() < self.profile.window {
                    self.send(now_ns, out);
                }
            }
        }
    }

    /// Sends one packet-in of the next source; its wait counts from `since_ns`.
    pub fn send(&mut self, since_ns: u64, out: &mut Vec<u8>) {
        let source = self.next_source;
        if self.profile.traffic == Traffic::Exchanges {
            // Two hosts at a time, so that in the first lap both are new.
            let asked = self.layout.partner(source, self.lap);
            self.next_source = (source + 1) % self.layout.source_count + 1;
            self.lap += u32::from(self.next_source <= source);
            return self.ask(source, asked, since_ns, out);
        }
        self.next_source = source % self.layout.source_count + 1;
        if self.next_source == 1 {
            self.lap += 1;
        }
        let target = match self.profile.traffic == Traffic::Paired && self.load != Load::Learn {
            true => self.layout.partner(source, self.lap),
            false => DESTINATION,
        };
        self.send_of(source, target, since_ns, out);
    }

    /// Sends a packet-in of a storm, which awaits no answer.
    pub fn send_stray(&self, out: &mut Vec<u8>) {
        self.send_stray_of(STORM_SOURCE, out);
    }

    pub fn send_stray_of(&self, source: u32, out: &mut Vec<u8>) {
        let hosts = (source, DESTINATION);
        self.template.write(&self.layout, hosts, STRAY_TAG, out);
    }

    fn send_of(&mut self, source: u32, target: u32, since_ns: u64, out: &mut Vec<u8>) {
        match self.outstanding.open(source, target, since_ns) {
            Some(tag) => {
                self.tally.sent += 1;
                self.template
                    .write(&self.layout, (source, target), tag, out);
            }
            None => self.tally.unsent += 1,
        }
    }

    /// Handles the tick; call it several times a second.
    pub fn handle_tick(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let expired = now_ns.saturating_sub(self.profile.timeout_ns);
        self.tally.missing += self.outstanding.expire(expired);
        match self.stage {
            Stage::SetUp { since_ns, heard_ns } => {
                let quiet = now_ns.saturating_sub(heard_ns) >= self.profile.settle_ns;
                if quiet || now_ns - since_ns >= SETTLE_MAX_NS {
                    self.stage = Stage::Probing {
                        since_ns: now_ns,
                        next_ns: now_ns,
                    };
                    self.probe(now_ns, out)?;
                }
            }
            Stage::Probing { .. } => self.probe(now_ns, out)?,
            Stage::Handshake | Stage::Ready | Stage::NotLearned => {}
        }
        Ok(())
    }

    fn probe(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let Stage::Probing { since_ns, next_ns } = self.stage else {
            return Ok(());
        };
        if now_ns - since_ns > self.profile.ready_max_ns {
            self.stage = Stage::NotLearned;
        } else if now_ns >= next_ns {
            self.stage = Stage::Probing {
                since_ns,
                next_ns: now_ns + PROBE_INTERVAL_NS,
            };
            if self.profile.traffic == Traffic::Exchanges {
                // The ARP request also announces the host that sends it.
                self.ask(1, self.layout.partner(1, 0), now_ns, out);
                return Ok(());
            }
            let host = self.layout.host(DESTINATION);
            let packet = Bytes::from(self.profile.announce.frame(host));
            let version = self.profile.version;
            out.extend(wire::packet_in(version, None, DESTINATION_PORT, packet)?);
            self.send_of(1, DESTINATION, now_ns, out);
        }
        Ok(())
    }

    /// Sends an echo request. Its round trip shows how long control messages wait under the load.
    pub fn send_echo(&self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let data = Bytes::copy_from_slice(&now_ns.to_be_bytes());
        push(
            self.profile.version,
            ECHO_XID,
            &Message::EchoRequest(data),
            out,
        )
    }

    fn handle_control(
        &mut self,
        now_ns: u64,
        message: &[u8],
        delays: &mut Delays,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let version = self.profile.version;
        let theirs = message[0];
        let frame = Frame::new(Bytes::copy_from_slice(message)).map_err(|_| Broken::Framing)?;
        let xid = frame.xid();
        let message = match openflow::decode(&frame) {
            Ok(message) => message,
            Err(_) => {
                self.tally.errors += 1;
                return Ok(());
            }
        };
        match &message {
            Message::Hello(hello) => {
                return check_hello(version, theirs, hello);
            }
            Message::EchoReply(data) => {
                let sent_ns = data.first_chunk().map(|ns| u64::from_be_bytes(*ns));
                if let Some(sent_ns) = sent_ns.filter(|ns| *ns >= self.record_from_ns) {
                    delays
                        .echoes
                        .saturating_record(now_ns.saturating_sub(sent_ns));
                }
                return Ok(());
            }
            Message::Error(_) => self.tally.errors += 1,
            Message::FeaturesRequest if self.stage == Stage::Handshake => {
                self.admitted_ns = Some(now_ns);
                self.stage = Stage::SetUp {
                    since_ns: now_ns,
                    heard_ns: now_ns,
                };
            }
            _ => {}
        }
        if let Stage::SetUp { heard_ns, .. } = &mut self.stage
            && !matches!(message, Message::EchoRequest(_))
        {
            *heard_ns = now_ns;
        }
        if let Some(reply) = answer_control(version, &self.layout, &frame, message) {
            // A reply that does not fit the version is our own fault, which the tests show.
            if push(version, xid, &reply, out).is_err() {
                self.tally.errors += 1;
            }
        }
        Ok(())
    }

    fn handle_answer(
        &mut self,
        now_ns: u64,
        message: &[u8],
        delays: &mut Delays,
        out: &mut Vec<u8>,
    ) {
        match self.profile.traffic {
            Traffic::ToDestination | Traffic::Paired => {}
            Traffic::Across => return self.handle_on_line(now_ns, message),
            Traffic::Exchanges => return self.handle_in_exchange(now_ns, message, delays, out),
        }
        let Some(answer) = Answer::read(self.profile.version, message) else {
            // A controller starts with deletions; none of them answers a packet.
            self.note_set_up(now_ns);
            return;
        };
        let at = match self.judge(&answer) {
            Verdict::Of(at) => at,
            verdict => return self.count(now_ns, verdict),
        };
        let kind = match answer.is_flow_mod {
            true => Kind::FlowMod,
            false => Kind::PacketOut,
        };
        self.settle(now_ns, at, kind, delays);
    }

    /// Records a right answer to the packet-in in the slot.
    fn settle(&mut self, now_ns: u64, at: u32, kind: Kind, delays: &mut Delays) {
        match self.outstanding.answer(at, kind) {
            Outcome::Answered { since_ns } => {
                let delay_ns = now_ns.saturating_sub(since_ns);
                if delay_ns > self.profile.timeout_ns {
                    self.tally.missing += 1;
                    self.tally.late += 1;
                    return;
                }
                self.tally.answered += 1;
                if since_ns >= self.record_from_ns {
                    delays.answers.saturating_record(delay_ns);
                    if let Some(timeline) = &mut delays.timeline {
                        timeline.push((since_ns, delay_ns));
                    }
                }
                if matches!(self.stage, Stage::Probing { .. }) && self.has_heard_links() {
                    self.stage = Stage::Ready;
                }
            }
            Outcome::Companion => self.tally.companion += 1,
            Outcome::Duplicate => self.tally.duplicate += 1,
            Outcome::Late => self.tally.late += 1,
        }
    }

    fn note_set_up(&mut self, now_ns: u64) {
        if let Stage::SetUp { heard_ns, .. } = &mut self.stage {
            *heard_ns = now_ns;
        }
    }

    fn count(&mut self, now_ns: u64, verdict: Verdict) {
        let tally = &mut self.tally;
        match verdict {
            Verdict::Of(_) => {}
            Verdict::Companion => tally.companion += 1,
            Verdict::Flooded => tally.flooded += 1,
            Verdict::WrongPort => tally.wrong_port += 1,
            Verdict::WrongBuffer => tally.wrong_buffer += 1,
            Verdict::WrongMatch => tally.wrong_match += 1,
            Verdict::WrongPacket => tally.wrong_packet += 1,
            Verdict::Discovery => tally.discovery += 1,
            Verdict::Nonsense => tally.errors += 1,
            Verdict::Unsolicited => {
                tally.unsolicited += 1;
                self.note_set_up(now_ns);
            }
        }
    }
}

pub fn push(
    version: Version,
    xid: Xid,
    message: &Message,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    out.extend_from_slice(encode(version, xid, message)?.bytes());
    Ok(())
}

#[cfg(test)]
#[path = "switch_tests.rs"]
mod tests;
