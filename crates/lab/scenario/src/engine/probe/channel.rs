//! `kind = "channel"`: the control channel, observed at the switches' end. The probe finds the
//! packets of UDP streams that made a detour through the controller, and the time until an entry
//! spared the next packet that detour.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cli::date::now_ns;
use cli::failure::Failure;
use openflow::packet::build::Host;
use testbed::capture::{Capture, Listener};
use testbed::network::SWITCHES_DEVICE;
use testbed::plane::{Controller, OPENFLOW_PORT};
use testbed::segments::{Connections, packet_in, packet_out};
use testbed::topology::Topology;

use super::{Probe, Scene, Series, in_plain_tcp, place};
use crate::engine::expression::{MANY, ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::engine::traffic;

/// Observes messages about UDP to one host. Its series has two values for each observation: the
/// figure's place in [`FIGURES`] and its value.
pub struct Channel(String);

pub const FIGURES: [(&str, Shape); 8] = [
    ("packet_ins", ONE),
    ("packet_outs", ONE),
    // FLOW_MODs that add an entry for packets to the host, renewals among them.
    ("flow_adds", ONE),
    // FLOW_REMOVEDs of such entries.
    ("flow_removed", ONE),
    // Number of times that a switch began to send packets to the controller.
    ("detours", ONE),
    // For each detour that had a FLOW_MOD: from its first PACKET_IN to the FLOW_MOD.
    ("installed_ms", MANY),
    // For each packet: from its PACKET_IN to its PACKET_OUT.
    ("detour_ms", MANY),
    // Frames or segments of the whole run that the capture missed.
    ("unseen", ONE),
];
const DETOURS: usize = 4;
const INSTALLED: usize = 5;
const ANSWERS: usize = 6;
const UNSEEN: usize = 7;
/// The last packets may arrive after the end of their stream.
const REST: Duration = Duration::from_millis(300);

impl Channel {
    pub fn read(section: &Section<'_>) -> Option<Channel> {
        section.required_text("of", "\"h2\"").map(Channel)
    }

    fn host(&self, topology: &Topology) -> Result<Host, String> {
        let host = &topology.hosts[traffic::host(topology, &self.0)?];
        Ok(Host::new(host.mac, host.address))
    }
}

impl Probe for Channel {
    fn check(&self, topology: &Topology, controller: &Controller) -> Result<(), String> {
        self.host(topology)?;
        in_plain_tcp(controller)
    }

    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let failed = |e: std::io::Error| Failure::machine(format!("control channel: {e}"));
        let to = self.host(scene.topology).map_err(Failure::usage)?;
        let zero_ns = now_ns().saturating_sub(scene.epoch.elapsed().as_nanos() as u64);
        let listener = ChannelListener::new(OPENFLOW_PORT, to);
        let capture = Capture::open_both_ways(&scene.switches, SWITCHES_DEVICE, listener);
        let capture = capture.map_err(failed)?;
        std::thread::sleep((scene.until + REST).saturating_sub(scene.epoch.elapsed()));
        let (listener, missed) = capture.close().map_err(failed)?;
        let seen = listener.seen(missed).into_iter();
        let pair = |(place, at_ns, value): (usize, u64, f64)| {
            let at = Duration::from_nanos(at_ns.saturating_sub(zero_ns));
            [(at, place as f64), (at, value)]
        };
        Ok(seen.flat_map(pair).collect())
    }

    fn figure(&self, name: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let place = place(&FIGURES, name);
        let own = series
            .chunks_exact(2)
            .filter(|pair| pair[0].1 == place as f64);
        let within = own.filter(|pair| place == UNSEEN || window.has(pair[0].0));
        let values: Vec<f64> = within.map(|pair| pair[1].1).collect();
        match place {
            INSTALLED | ANSWERS => Value::Many(values),
            // The sum of nothing is -0.
            _ => Value::One(values.iter().sum::<f64>() + 0.0),
        }
    }
}

/// Listens at an interface that carries plain OpenFlow of any number of switches, and counts
/// messages about UDP to one host.
struct ChannelListener {
    /// The destination host of the streams.
    to: Host,
    connections: Connections,
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    connection: u16,
    kind: Kind,
    at_ns: u64,
    /// The packet that the event is about; zeros for an entry.
    packet: Packet,
}

/// Stream and number, as the sender wrote them.
type Packet = [u8; 16];

/// Messages in the order of their figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PacketIn,
    PacketOut,
    FlowAdd,
    FlowRemoved,
}

/// Consecutive packets of one switch that made the detour through the controller: at a stream's
/// beginning, or when its entry had expired.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Detour {
    first_ns: u64,
    /// From the first PACKET_IN to the FLOW_MOD that followed it, both as they pass the switches.
    /// `None` if no FLOW_MOD passed before the detour was over.
    installed_ns: Option<u64>,
}

const TYPE_PACKET_IN: u8 = 10;
const TYPE_FLOW_REMOVED: u8 = 11;
const TYPE_PACKET_OUT: u8 = 13;
const TYPE_FLOW_MOD: u8 = 14;
const COMMAND_ADD: u8 = 0;
/// The longest time between two PACKET_INs of one detour. Entries last for a second or more.
const DETOUR_GAP_NS: u64 = 300_000_000;

impl ChannelListener {
    /// `port` is the controller's.
    fn new(port: u16, to: Host) -> ChannelListener {
        ChannelListener {
            to,
            connections: Connections::new(port),
            events: Vec::new(),
        }
    }

    /// The observations, each with the place of its figure, its time and its value.
    fn seen(&self, missed: u64) -> Vec<(usize, u64, f64)> {
        let ms = |ns: u64| ns as f64 / 1e6;
        let events = self.events.iter();
        let mut seen: Vec<_> = events.map(|e| (e.kind as usize, e.at_ns, 1.0)).collect();
        let switches: BTreeSet<u16> = self.events.iter().map(|e| e.connection).collect();
        for detour in switches.into_iter().flat_map(|c| self.detours(c)) {
            seen.push((DETOURS, detour.first_ns, 1.0));
            let installed = detour.installed_ns;
            seen.extend(installed.map(|ns| (INSTALLED, detour.first_ns, ms(ns))));
        }
        let answers = self.answers_ns().into_iter();
        seen.extend(answers.map(|(asked_ns, ns)| (ANSWERS, asked_ns, ms(ns))));
        seen.push((UNSEEN, 0, (missed + self.connections.gaps()) as f64));
        seen
    }

    /// The time of each packet's first PACKET_IN, and the time until its PACKET_OUT. If several
    /// switches send a packet to the controller, the second time runs from the first PACKET_IN to
    /// the first PACKET_OUT.
    fn answers_ns(&self) -> Vec<(u64, u64)> {
        let mut asked_ns: BTreeMap<Packet, Option<u64>> = BTreeMap::new();
        let mut answers_ns = Vec::new();
        for event in &self.events {
            match event.kind {
                Kind::PacketIn => {
                    asked_ns.entry(event.packet).or_insert(Some(event.at_ns));
                }
                Kind::PacketOut => {
                    let asked = asked_ns.get_mut(&event.packet).and_then(Option::take);
                    answers_ns
                        .extend(asked.map(|asked| (asked, event.at_ns.saturating_sub(asked))));
                }
                Kind::FlowAdd | Kind::FlowRemoved => {}
            }
        }
        answers_ns
    }

    fn detours(&self, connection: u16) -> Vec<Detour> {
        let mut detours: Vec<Detour> = Vec::new();
        let mut last_ns = None::<u64>;
        for event in self
            .events
            .iter()
            .filter(|event| event.connection == connection)
        {
            match (event.kind, detours.last_mut()) {
                (Kind::PacketIn, Some(_))
                    if last_ns.is_some_and(|last| event.at_ns - last <= DETOUR_GAP_NS) =>
                {
                    last_ns = Some(event.at_ns);
                }
                (Kind::PacketIn, _) => {
                    detours.push(Detour {
                        first_ns: event.at_ns,
                        installed_ns: None,
                    });
                    last_ns = Some(event.at_ns);
                }
                // Later FLOW_MODs are renewals.
                (Kind::FlowAdd, Some(detour))
                    if last_ns.is_some_and(|last| event.at_ns - last <= DETOUR_GAP_NS) =>
                {
                    let since_ns = event.at_ns - detour.first_ns;
                    detour.installed_ns.get_or_insert(since_ns);
                }
                _ => {}
            }
        }
        detours
    }
}

impl Listener for ChannelListener {
    fn hear(&mut self, frame: &[u8], at_ns: u64) -> bool {
        let before = self.events.len();
        self.connections.handle(frame, |connection, message| {
            let found = kind(message, self.to);
            self.events.extend(found.map(|(kind, packet)| Event {
                connection,
                kind,
                at_ns,
                packet,
            }));
        });
        self.events.len() > before
    }
}

/// The kind of a message about the streams, and the packet it is about; `None` for other messages.
fn kind(message: &[u8], to: Host) -> Option<(Kind, Packet)> {
    let about = |packet: Option<&[u8]>| packet_to(packet?, to);
    let is_for = || matches(message, to).then(Packet::default);
    let (kind, packet) = match *message.get(1)? {
        TYPE_PACKET_IN => (Kind::PacketIn, about(packet_in(message))),
        TYPE_PACKET_OUT => (Kind::PacketOut, about(packet_out(message))),
        TYPE_FLOW_MOD if *message.get(25)? == COMMAND_ADD => (Kind::FlowAdd, is_for()),
        TYPE_FLOW_REMOVED => (Kind::FlowRemoved, is_for()),
        _ => return None,
    };
    Some((kind, packet?))
}

/// The packet of a stream in a frame, if the frame is UDP to the host.
fn packet_to(frame: &[u8], to: Host) -> Option<Packet> {
    const UDP: u8 = 17;
    const PAYLOAD: usize = 14 + 20 + 8;
    let part = |range: std::ops::Range<usize>| frame.get(range).unwrap_or_default();
    let is_to_host = part(0..6) == to.mac.0
        && part(12..14) == [0x08, 0x00]
        && part(23..24) == [UDP]
        && part(30..34) == to.ip.octets();
    let packet = frame.get(PAYLOAD..)?.first_chunk()?;
    is_to_host.then_some(*packet)
}

/// Whether a message's match names the host as destination, by the OXM of eth_dst without a mask.
fn matches(message: &[u8], to: Host) -> bool {
    let mut field = [0x80, 0x00, 0x06, 0x06, 0, 0, 0, 0, 0, 0];
    field[4..].copy_from_slice(&to.mac.0);
    message.windows(field.len()).any(|part| part == field)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use openflow::MacAddr;

    use super::*;

    const TO: Host = Host::new(MacAddr([2, 0, 0, 0, 0, 2]), Ipv4Addr::new(10, 0, 0, 2));

    /// Takes events as connection, kind, time in milliseconds, and packet number.
    fn listener(events: &[(u16, Kind, u64, u8)]) -> ChannelListener {
        let mut listener = ChannelListener::new(6653, TO);
        for (connection, kind, at_ms, number) in events {
            listener.events.push(Event {
                connection: *connection,
                kind: *kind,
                at_ns: at_ms * 1_000_000,
                packet: [*number; 16],
            });
        }
        listener
    }

    #[test]
    fn detours_are_told_apart_by_time_and_by_switch() {
        use Kind::{FlowAdd, FlowRemoved, PacketIn, PacketOut};
        let seen = listener(&[
            (1, FlowAdd, 0, 0), // Of an earlier flow.
            (1, PacketIn, 10, 1),
            (2, PacketIn, 11, 1),
            (1, PacketIn, 20, 2),
            (1, FlowAdd, 27, 0),
            (1, PacketOut, 27, 1),
            (2, PacketOut, 29, 1), // The other switch's.
            (1, PacketIn, 30, 3),  // Before the entry was active.
            (1, PacketOut, 38, 2),
            (1, FlowAdd, 500, 0), // A renewal.
            (1, FlowRemoved, 1027, 0),
            (1, PacketIn, 1030, 9),
        ])
        .seen(2);
        let ms = Duration::from_millis;
        let pair = |(place, at_ns, value): &(usize, u64, f64)| {
            let at = Duration::from_nanos(*at_ns);
            [(at, *place as f64), (at, *value)]
        };
        let series: Series = seen.iter().flat_map(pair).collect();
        let topology = Topology::generate("single,2", None).unwrap();
        let window = |from, to| Window {
            event: ms(from),
            from: ms(from),
            to: ms(to),
        };
        let figure = |name: &str, window: &Window| {
            Channel("h2".into()).figure(name, window, &topology, &series)
        };
        let counts = |window: &Window| {
            let names = ["packet_ins", "packet_outs", "flow_adds", "flow_removed"];
            let more = ["detours", "unseen"];
            let all = names.into_iter().chain(more);
            all.map(|name| figure(name, window)).collect::<Vec<_>>()
        };
        let whole = window(0, 2000);
        assert_eq!(
            counts(&whole),
            [5.0, 3.0, 3.0, 1.0, 3.0, 2.0].map(Value::One)
        );
        assert_eq!(figure("installed_ms", &whole), Value::Many(vec![17.0]));
        assert_eq!(figure("detour_ms", &whole), Value::Many(vec![17.0, 18.0]));
        let late = window(1000, 2000);
        assert_eq!(
            counts(&late),
            [1.0, 0.0, 0.0, 1.0, 1.0, 2.0].map(Value::One)
        );
    }

    #[test]
    fn only_udp_to_the_host_and_entries_for_it_count() {
        use bytes::Bytes;
        use openflow::message::PacketIn;
        use openflow::packet::build;
        use openflow::{Message, PortNo, Version, Xid, encode};
        let from = build::Host::new(MacAddr([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 0, 1));
        let to = build::Host::new(TO.mac, TO.ip);
        let packet_in = |frame: Vec<u8>| {
            let message = Message::PacketIn(PacketIn::new(PortNo(1), Bytes::from(frame)));
            let frame = encode(Version::V13, Xid(1), &message).unwrap();
            kind(frame.bytes(), TO)
        };
        assert_eq!(
            packet_in(build::udp(from, to, (9000, 9001), &[7; 24])),
            Some((Kind::PacketIn, [7; 16]))
        );
        assert_eq!(
            packet_in(build::udp(to, from, (9000, 9001), &[7; 24])),
            None
        );
        assert_eq!(
            packet_in(build::icmp_echo_request(from, to, 1, 1, b"x")),
            None
        );

        let mut flow_mod = vec![0; 80];
        flow_mod[1] = TYPE_FLOW_MOD;
        flow_mod[60..70].copy_from_slice(&[0x80, 0, 6, 6, 2, 0, 0, 0, 0, 2]);
        let added = Some((Kind::FlowAdd, Packet::default()));
        assert_eq!(kind(&flow_mod, TO), added);
        flow_mod[25] = 3;
        assert_eq!(kind(&flow_mod, TO), None, "a deletion");
        flow_mod[25] = 0;
        flow_mod[69] = 1;
        assert_eq!(kind(&flow_mod, TO), None, "the other way");
        for cut in 0..flow_mod.len() {
            assert_eq!(kind(&flow_mod[..cut], TO), None);
        }
    }
}
