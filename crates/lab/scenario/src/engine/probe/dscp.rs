//! `kind = "dscp"`: the code points of the packets of one UDP or TCP port, as a link carries them.

use std::time::Duration;

use cli::date::now_ns;
use cli::failure::Failure;
use testbed::capture::{Capture, Listener};
use testbed::plane::Controller;
use testbed::topology::Topology;

use super::{Port, Probe, Scene, Series};
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;

/// Listens at a switch's port for packets that the switch receives. Its series begins with the
/// number of frames missed; the packets follow, each with its code point.
pub struct Dscp {
    at: Port,
    port: u16,
    /// Figures, each with its code point.
    points: Vec<(String, u8)>,
}

pub const FIGURES: [(&str, Shape); 2] = [
    ("packets", ONE),
    // Frames of the run that the capture missed.
    ("unseen", ONE),
];

impl Dscp {
    pub fn read(section: &Section<'_>) -> Option<Dscp> {
        let link = section.required_text("of", "\"s2-s1\"");
        let port = section.required_count("port", 1..=u16::MAX.into());
        let mut points = Vec::new();
        if let Some(figures) = section.section("figures") {
            for name in figures.other_keys() {
                let point = figures.count(name, 0..=63);
                if FIGURES.iter().any(|(known, _)| *known == name) {
                    figures.problem(name, "every such probe has it; take another name");
                }
                points.extend(point.map(|point| (name.to_string(), point as u8)));
            }
        }
        let link = link?;
        let Some(at) = Port::parse(&link) else {
            let right = "write a switch and the other end of its link, such as of = \"s2-s1\"";
            return section.refuse("of", format!("'{link}' is not a link; {right}"));
        };
        Some(Dscp {
            at,
            port: port? as u16,
            points,
        })
    }
}

impl Probe for Dscp {
    fn check(&self, topology: &Topology, _: &Controller) -> Result<(), String> {
        self.at.device(topology).map(drop)
    }

    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let failed = |e| Failure::machine(format!("packets of port {}: {e}", self.port));
        let device = self.at.device(scene.topology).map_err(Failure::usage)?;
        let packets = Packets {
            port: self.port,
            seen: Vec::new(),
        };
        let zero_ns = now_ns().saturating_sub(scene.epoch.elapsed().as_nanos() as u64);
        let capture = Capture::open(&scene.switches, &device, packets).map_err(failed)?;
        std::thread::sleep(scene.until.saturating_sub(scene.epoch.elapsed()));
        let (packets, missed) = capture.close().map_err(failed)?;
        let at = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(zero_ns));
        let seen = packets.seen.into_iter();
        let seen = seen.map(|(at_ns, point)| (at(at_ns), f64::from(point)));
        Ok([(Duration::ZERO, missed as f64)]
            .into_iter()
            .chain(seen)
            .collect())
    }

    fn own_figures(&self) -> Vec<&str> {
        self.points.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn figure(&self, name: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let Some(((_, missed), packets)) = series.split_first() else {
            return Value::One(f64::NAN);
        };
        let own = self.points.iter().find(|(known, _)| known == name);
        let is_own = |point: f64| own.is_none_or(|(_, own)| f64::from(*own) == point);
        let within = packets.iter().filter(|(at, _)| window.has(*at));
        Value::One(match name {
            "unseen" => *missed,
            _ => within.filter(|(_, point)| is_own(*point)).count() as f64,
        })
    }
}

struct Packets {
    port: u16,
    seen: Vec<(u64, u8)>,
}

impl Listener for Packets {
    fn hear(&mut self, frame: &[u8], at_ns: u64) -> bool {
        let point = code_point(frame, self.port);
        self.seen.extend(point.map(|point| (at_ns, point)));
        point.is_some()
    }
}

/// The code point of a packet over IPv4 from or to a port.
fn code_point(frame: &[u8], port: u16) -> Option<u8> {
    const ETHERNET_BYTES: usize = 14;
    const IPV4: [u8; 2] = [0x08, 0x00];
    const PROTOCOLS: [u8; 2] = [6, 17];
    let (ethernet, packet) = frame.split_at_checked(ETHERNET_BYTES)?;
    if ethernet[12..] != IPV4 || !PROTOCOLS.contains(packet.get(9)?) {
        return None;
    }
    let transport = packet.get(usize::from(packet[0] & 15) * 4..)?;
    let [a, b, c, d] = *transport.first_chunk::<4>()?;
    let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    ports.contains(&port).then_some(packet[1] >> 2)
}

#[cfg(test)]
mod tests {
    use openflow::packet::build::{self, Host};

    use super::*;

    #[test]
    fn packets_of_the_port_are_counted_by_their_code_points() {
        let frame = |tos: u8, ports| {
            let mut frame = build::udp(Host::numbered(1), Host::numbered(2), ports, b"quic");
            frame[15] = tos;
            frame
        };
        let mut packets = Packets {
            port: 6654,
            seen: Vec::new(),
        };
        assert!(packets.hear(&frame(0xc0, (40_000, 6654)), 1));
        assert!(packets.hear(&frame(0xe2, (6654, 40_000)), 2));
        assert!(!packets.hear(&frame(0xc0, (40_000, 53)), 3), "another's");
        assert_eq!(packets.seen, [(1, 48), (2, 56)]);
        let whole = frame(0, (1, 6654));
        for cut in 0..whole.len() {
            packets.hear(&whole[..cut], 1);
        }
        let probe = Dscp {
            at: Port::parse("s2-s1").unwrap(),
            port: 6654,
            points: vec![("cs6".to_string(), 48)],
        };
        let topology = Topology::generate("linear,2", None).unwrap();
        let ms = Duration::from_millis;
        let series = vec![(ms(0), 3.0), (ms(5), 48.0), (ms(50), 48.0), (ms(60), 56.0)];
        let window = Window {
            event: ms(10),
            from: ms(10),
            to: ms(100),
        };
        let figure = |name| probe.figure(name, &window, &topology, &series);
        let found = ["packets", "cs6", "unseen"].map(figure);
        assert_eq!(found, [2.0, 1.0, 3.0].map(Value::One));
    }
}
