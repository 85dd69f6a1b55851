//! `kind = "packets"`: streams of numbered packets from one host to another, whoever else is behind
//! their addresses, and the switch's PACKET_INs about the packets.
//!
//! Each packet carries a label. The lab sees the label where the packet arrives and, if the
//! scenario names the OpenFlow channel, in the PACKET_IN and the PACKET_OUT about the packet.

mod frame;
mod seen;
mod sender;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cli::date::now_ns;
use cli::failure::Failure;
use testbed::capture::Capture;

use super::{Carried, Record, Stage, Traffic};
use crate::engine::expression::{MANY, ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::report::milliseconds;
use frame::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use seen::{Arrivals, Kind, Messages};
use sender::{Sent, Source, Stream};

pub struct Packets {
    /// The size of each Ethernet frame without its checksum.
    frame_bytes: usize,
    /// A device beside the switches that carries OpenFlow in plain TCP, and the controller's port.
    channel: Option<(String, u16)>,
    streams: Vec<Stream>,
}

pub const FIGURES: [(&str, Shape); 2] = [
    // The greatest delay in sending a packet of the run after it was due.
    ("sender_late_ms", ONE),
    // Frames and segments of the run that the captures missed. If 0, other figures are complete.
    ("unseen", ONE),
];

/// Figures of each stream, and of all together.
const STREAM_FIGURES: [(&str, Shape); 8] = [
    ("sent", ONE),
    ("arrived", ONE),
    // Packets that arrived with the code point that they were sent with, and with none.
    ("kept", ONE),
    ("unmarked", ONE),
    // For each packet that arrived, one way.
    ("delay_ms", MANY),
    // Packets with a PACKET_IN, and those among them with a PACKET_OUT.
    ("asked", ONE),
    ("answered", ONE),
    // From the PACKET_IN to the PACKET_OUT, as seen on the channel.
    ("answer_ms", MANY),
];
/// The number of stream figures that need a channel, at the end of the list.
const CHANNEL_FIGURES: usize = 3;

const PACKETS_PER_S: std::ops::Range<f64> = 0.0..20_000.0;
/// Time before the first packet, for the listeners.
const PREPARATION: Duration = Duration::from_millis(50);
/// A stream is over when nothing was seen for this long after its last packet.
const SILENCE: Duration = Duration::from_millis(300);
/// A stream is over after this long in any case: two queues of a second each, with room.
const DRAIN_MAX: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Runs of this process, numbered so that no label is mistaken for a label of another run.
static RUNS: AtomicU32 = AtomicU32::new(0);

impl Packets {
    pub fn read(section: &Section<'_>) -> Option<Packets> {
        let bytes = FRAME_BYTES_MIN as u64..=FRAME_BYTES_MAX as u64;
        let frame_bytes = section.required_count("frame_bytes", bytes);
        let channel = section.text("channel").and_then(|words| {
            let parts = words.split_once(':');
            let parts = parts.and_then(|(device, port)| Some((device.into(), port.parse().ok()?)));
            if parts.is_none() {
                let right = "write a device and a port, such as channel = \"lo:6653\"";
                section.problem("channel", format!("'{words}' is no channel; {right}"));
            }
            parts
        });
        let example = "{ target = { packets_per_s = 200, port = 20000 } }";
        section.missing("streams", example);
        let table = section.section("streams")?;
        let names = table.other_keys().into_iter();
        let streams = names.map(|name| stream(name, table.section(name)?));
        Some(Packets {
            frame_bytes: frame_bytes? as usize,
            channel,
            streams: streams.collect::<Option<_>>()?,
        })
    }
}

fn stream(name: &str, section: Section<'_>) -> Option<Stream> {
    let packets_per_s = section.required_number("packets_per_s", PACKETS_PER_S);
    let is_poisson = section.word("arrivals", &["even", "poisson"]) == Some("poisson");
    let port = section.count("port", 0..=u16::MAX.into()).unwrap_or(0);
    let dscp = section.count("dscp", 0..=63).unwrap_or(0);
    section.finish();
    Some(Stream {
        name: name.to_string(),
        packets_per_s: packets_per_s?,
        is_poisson,
        port: Some(port as u16).filter(|port| *port > 0),
        dscp: dscp as u8,
    })
}

impl Traffic for Packets {
    fn packets_per_s(&self, _: usize) -> (f64, &'static str) {
        let rates = self.streams.iter().map(|stream| stream.packets_per_s);
        (rates.sum(), "streams")
    }

    fn own_figures(&self) -> Vec<(String, Shape)> {
        let count = match self.channel {
            Some(_) => STREAM_FIGURES.len(),
            None => STREAM_FIGURES.len() - CHANNEL_FIGURES,
        };
        let streams = self.streams.iter();
        let streams = streams.map(|stream| format!("{}.", stream.name));
        let all = streams.chain([String::new()]).flat_map(|stream| {
            let figures = STREAM_FIGURES[..count].iter();
            figures.map(move |(name, shape)| (format!("{stream}{name}"), *shape))
        });
        all.collect()
    }

    fn carry(&self, stage: &Stage<'_>) -> Carried {
        let ends = &stage.ends[0];
        let failed = |e| Failure::machine(format!("packets of {}: {e}", ends.from));
        let sleep_until = |time: Duration| {
            std::thread::sleep(time.saturating_sub(stage.epoch.elapsed()));
        };
        sleep_until(stage.from.saturating_sub(PREPARATION));
        let source = Source::open(&ends.from).map_err(failed)?;
        let sink = Capture::open(&ends.to, "eth0", Arrivals::default()).map_err(failed)?;
        let channel = self.channel.as_ref().map(|(device, port)| {
            let messages = Messages::new(*port);
            match device.as_str() {
                // Captured both ways, loopback would show each frame twice.
                "lo" => Capture::open(&stage.switches, device, messages),
                _ => Capture::open_both_ways(&stage.switches, device, messages),
            }
        });
        let channel = channel.transpose().map_err(failed)?;
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        sleep_until(stage.from);
        let zero_ns = now_ns().saturating_sub(stage.epoch.elapsed().as_nanos() as u64);
        let lasts = stage.until.saturating_sub(stage.from);
        let sent = source.send(run, &self.streams, self.frame_bytes, lasts, &stage.random);
        let sent = sent.map_err(failed)?;
        let ended = Instant::now();
        let (mut heard, mut quiet_since) = (0, ended);
        while quiet_since.elapsed() < SILENCE && ended.elapsed() < DRAIN_MAX {
            std::thread::sleep(POLL_INTERVAL);
            let now = sink.heard() + channel.as_ref().map_or(0, Capture::heard);
            if now > heard {
                (heard, quiet_since) = (now, Instant::now());
            }
        }
        let (sink, mut unseen) = sink.close().map_err(failed)?;
        let channel = channel.map(Capture::close).transpose().map_err(failed)?;
        if let Some((messages, missed)) = &channel {
            unseen += missed + messages.gaps();
        }
        let messages = channel.map(|(messages, _)| messages);
        let streams = fates(run, &sent, &sink, messages.as_ref());
        let own = self.streams.iter().zip(streams);
        Ok(Box::new(Fates {
            zero_ns,
            late_max: sent.late_max,
            unseen,
            streams: own.map(|(stream, fates)| (stream.clone(), fates)).collect(),
        }))
    }
}

/// One packet. All times are of the real-time clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fate {
    sent_ns: u64,
    asked_ns: Option<u64>,
    answered_ns: Option<u64>,
    arrived_ns: Option<u64>,
    /// The code point that it arrived with.
    dscp: u8,
}

/// The packets of a run.
struct Fates {
    /// The zero of the run's clock, on the clock of the packets.
    zero_ns: u64,
    late_max: Duration,
    unseen: u64,
    streams: Vec<(Stream, Vec<Fate>)>,
}

/// Follows each packet from host to host, and counts it once.
fn fates(run: u32, sent: &Sent, sink: &Arrivals, channel: Option<&Messages>) -> Vec<Vec<Fate>> {
    let fate = |sent_ns: &u64| Fate {
        sent_ns: *sent_ns,
        ..Fate::default()
    };
    let streams = sent.at_ns.iter();
    let mut streams: Vec<Vec<Fate>> = streams.map(|s| s.iter().map(fate).collect()).collect();
    let mut own = |label: frame::Label, change: &dyn Fn(&mut Fate)| {
        let stream = streams.get_mut(label.stream as usize);
        let fate = stream.and_then(|stream| stream.get_mut(label.number as usize));
        fate.filter(|_| label.run == run).map(change);
    };
    for (kind, label, at_ns) in channel.iter().flat_map(|messages| &messages.seen) {
        own(*label, &|fate| match (kind, fate.asked_ns) {
            (Kind::PacketIn, None) => fate.asked_ns = Some(*at_ns),
            (Kind::PacketOut, Some(_)) => {
                fate.answered_ns.get_or_insert(*at_ns);
            }
            _ => {}
        });
    }
    for arrival in &sink.seen {
        own(arrival.label, &|fate| {
            if fate.arrived_ns.is_none() {
                (fate.arrived_ns, fate.dscp) = (Some(arrival.at_ns), arrival.dscp);
            }
        });
    }
    streams
}

impl Record for Fates {
    fn figure(&self, name: &str, window: &Window) -> Value {
        match name {
            "unseen" => return Value::One(self.unseen as f64),
            "sender_late_ms" => return Value::One(milliseconds(self.late_max)),
            _ => {}
        }
        let (of, figure) = match name.split_once('.') {
            Some((stream, figure)) => (Some(stream), figure),
            None => (None, name),
        };
        let at = |fate: &Fate| Duration::from_nanos(fate.sent_ns.saturating_sub(self.zero_ns));
        let streams = self.streams.iter();
        let streams = streams.filter(|(stream, _)| of.is_none_or(|name| stream.name == name));
        let all = streams.flat_map(|(stream, fates)| fates.iter().map(|fate| (stream.dscp, fate)));
        let own = all.filter(|(_, fate)| window.has(at(fate)));
        let count = |is: &dyn Fn(u8, &Fate) -> bool| {
            let own = own.clone().filter(|(dscp, fate)| is(*dscp, fate));
            Value::One(own.count() as f64)
        };
        let times = |between: &dyn Fn(&Fate) -> Option<(u64, u64)>| {
            let times = own.clone().filter_map(|(_, fate)| between(fate));
            let times = times.map(|(from, to)| to.saturating_sub(from) as f64 / 1e6);
            Value::Many(times.collect())
        };
        let arrived = |fate: &Fate, dscp| fate.arrived_ns.is_some() && fate.dscp == dscp;
        match figure {
            "sent" => count(&|_, _| true),
            "arrived" => count(&|_, fate| fate.arrived_ns.is_some()),
            "kept" => count(&|dscp, fate| arrived(fate, dscp)),
            "unmarked" => count(&|_, fate| arrived(fate, 0)),
            "asked" => count(&|_, fate| fate.asked_ns.is_some()),
            "answered" => count(&|_, fate| fate.answered_ns.is_some()),
            "answer_ms" => times(&|fate| fate.asked_ns.zip(fate.answered_ns)),
            _ => times(&|fate| Some((fate.sent_ns, fate.arrived_ns?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frame::Label;
    use seen::Arrival;

    const MS: u64 = 1_000_000;

    fn label(run: u32, stream: u32, number: u32) -> Label {
        Label {
            run,
            stream,
            number,
            sent_ns: 0,
        }
    }

    #[test]
    fn each_packet_is_followed_from_host_to_host_and_counted_once() {
        let sent = Sent {
            at_ns: vec![vec![MS; 4], vec![MS]],
            late_max: Duration::from_millis(2),
        };
        let mut channel = Messages::new(6653);
        channel.seen = [
            (Kind::PacketIn, label(1, 0, 0), 2 * MS),
            (Kind::PacketIn, label(1, 0, 1), 3 * MS),
            (Kind::PacketOut, label(1, 0, 0), 6 * MS),
            (Kind::PacketOut, label(1, 0, 0), 9 * MS), // Twice.
            (Kind::PacketOut, label(2, 0, 1), 9 * MS), // Of another run.
            (Kind::PacketOut, label(1, 0, 2), 9 * MS), // Never asked.
            (Kind::PacketIn, label(1, 7, 0), 9 * MS),  // Of no stream.
        ]
        .to_vec();
        let arrival = |run, stream, number, dscp| Arrival {
            label: label(run, stream, number),
            dscp,
            at_ns: 8 * MS,
        };
        let sink = Arrivals {
            seen: vec![
                arrival(1, 0, 0, 10),
                arrival(1, 0, 0, 0),
                arrival(2, 0, 1, 10),
                arrival(1, 0, 3, 0),
                arrival(1, 1, 0, 0),
            ],
        };
        let stream = |name: &str, dscp| Stream {
            name: name.to_string(),
            packets_per_s: 1.0,
            is_poisson: false,
            port: None,
            dscp,
        };
        let found = fates(1, &sent, &sink, Some(&channel));
        let carried = Fates {
            zero_ns: 0,
            late_max: sent.late_max,
            unseen: 3,
            streams: vec![
                (stream("target", 10), found[0].clone()),
                (stream("cross", 0), found[1].clone()),
            ],
        };
        let window = Window {
            event: Duration::ZERO,
            from: Duration::ZERO,
            to: Duration::MAX,
        };
        for (name, wanted) in [
            ("target.sent", Value::One(4.0)),
            ("target.asked", Value::One(2.0)),
            ("target.answered", Value::One(1.0)),
            ("target.answer_ms", Value::Many(vec![4.0])),
            ("target.arrived", Value::One(2.0)),
            ("target.kept", Value::One(1.0)),
            ("target.unmarked", Value::One(1.0)),
            ("target.delay_ms", Value::Many(vec![7.0, 7.0])),
            ("cross.arrived", Value::One(1.0)),
            ("sent", Value::One(5.0)),
            ("kept", Value::One(2.0)),
            ("sender_late_ms", Value::One(2.0)),
            ("unseen", Value::One(3.0)),
        ] {
            assert_eq!(carried.figure(name, &window), wanted, "{name}");
        }
        let later = Window {
            from: Duration::from_millis(2),
            ..window
        };
        assert_eq!(carried.figure("target.sent", &later), Value::One(0.0));
    }
}
