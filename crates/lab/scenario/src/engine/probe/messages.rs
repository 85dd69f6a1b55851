//! `kind = "messages"`: a separate switch that sends messages of one type, one by one.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cli::failure::Failure;
use openflow::hello::Hello;
use openflow::message::PacketIn;
use openflow::multipart::{AggregateStats, MultipartReply, ReplyBody};
use openflow::{Message, PortNo, Version, Xid, encode};
use testbed::netns;
use testbed::plane::Controller;
use testbed::topology::Topology;

use super::{Probe, Scene, Series, one};
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::engine::traffic;

/// The probe. Its series has the number of messages, at the time when all were sent.
pub struct Messages {
    /// A host of the lab.
    host: String,
    /// The controller or relay.
    to: SocketAddr,
    kind: &'static str,
    count: u64,
}

/// A PACKET_OUT may answer a packet-in. Statistics are unsolicited replies, which get no answer.
const KINDS: [&str; 3] = ["echo", "packet-in", "statistics"];
pub const FIGURES: [(&str, Shape); 1] = [("sent", ONE)];
const VERSION: Version = Version::V13;
/// Time between messages, so that no two share a datagram.
const SPACING: Duration = Duration::from_millis(5);
/// Time for the controller's own messages at the beginning, and for its last answers.
const PAUSE: Duration = Duration::from_millis(300);
const PACKET_BYTES: usize = 178;

impl Messages {
    pub fn read(section: &Section<'_>) -> Option<Messages> {
        let host = section.required_text("in", "\"h4\"");
        let kind = section.required_word("of", &KINDS);
        let count = section.required_count("count", 0..=1000);
        let to = section.required_text("to", "\"192.168.255.1:6653\"")?;
        let Ok(to) = to.parse() else {
            let right = "write such as to = \"192.168.255.1:6653\"";
            let problem = format!("'{to}' is not an address with a port; {right}");
            return section.refuse("to", problem);
        };
        Some(Messages {
            host: host?,
            to,
            kind: kind?,
            count: count?,
        })
    }

    /// Sends messages as a switch does, after its HELLO, and reads the answers.
    fn send(&self, namespace: &str) -> io::Result<()> {
        let mut stream = netns::within(namespace, || TcpStream::connect(self.to))?;
        stream.set_nodelay(true)?;
        let hello = Message::Hello(Hello::offering(&[VERSION]));
        write(&mut stream, 1, &hello)?;
        read_for(&mut stream, PAUSE)?;
        for number in 0..self.count as u32 {
            write(&mut stream, number, &message(self.kind, number))?;
            read_for(&mut stream, SPACING)?;
        }
        read_for(&mut stream, PAUSE)
    }
}

impl Probe for Messages {
    fn check(&self, topology: &Topology, _: &Controller) -> Result<(), String> {
        traffic::host(topology, &self.host).map(drop)
    }

    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        if self.count > 0 {
            let sent = self.send(&scene.shell.namespace(&self.host));
            sent.map_err(|e| Failure::machine(format!("messages to {}: {e}", self.to)))?;
        }
        Ok(vec![(scene.epoch.elapsed(), self.count as f64)])
    }

    fn figure(&self, _: &str, _: &Window, _: &Topology, series: &Series) -> Value {
        one(series, 0)
    }
}

fn message(kind: &str, number: u32) -> Message {
    match kind {
        "echo" => Message::EchoRequest(Bytes::from_static(b"one of many")),
        "packet-in" => Message::PacketIn(PacketIn {
            total_len: PACKET_BYTES as u16,
            ..PacketIn::new(PortNo(1), vec![0; PACKET_BYTES].into())
        }),
        _ => Message::MultipartReply(MultipartReply {
            more: false,
            body: ReplyBody::Aggregate(AggregateStats {
                packet_count: 1,
                byte_count: 1,
                flow_count: number,
                stats: Vec::new(),
            }),
        }),
    }
}

fn write(stream: &mut TcpStream, xid: u32, message: &Message) -> io::Result<()> {
    let wrong = |e: openflow::EncodeError| io::Error::other(e.to_string());
    stream.write_all(encode(VERSION, Xid(xid), message).map_err(wrong)?.bytes())
}

fn read_for(stream: &mut TcpStream, time: Duration) -> io::Result<()> {
    let deadline = Instant::now() + time;
    let mut bytes = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_a_message() {
        for (kind, wanted) in KINDS.into_iter().zip([2, 10, 19]) {
            let frame = encode(VERSION, Xid(1), &message(kind, 1)).unwrap();
            assert_eq!(frame.bytes()[1], wanted, "{kind}");
        }
    }
}
