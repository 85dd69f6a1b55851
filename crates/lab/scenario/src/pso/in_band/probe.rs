//! Messages of every class through the tunnel, one by one on a quiet link, so that a capture shows
//! what code point each class has.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use openflow::hello::Hello;
use openflow::message::{PacketIn, PacketInReason};
use openflow::multipart::{AggregateStats, MultipartReply, ReplyBody};
use openflow::{Cookie, Field, Match, Message, TableId, Version, Xid, encode};
use sched::TrafficType;

use crate::pso::packet::{Label, Stream, Template};
use testbed::netns;

const VERSION: Version = Version::V13;
/// Messages of each class.
pub const MESSAGES: u32 = 20;
/// Between messages, so that none shares a datagram with the next.
const SPACING: Duration = Duration::from_millis(5);
/// For the controller's own words at the beginning, and its last answers.
const PAUSE: Duration = Duration::from_millis(300);

/// Sends [`MESSAGES`] of one class as a switch of its own would.
pub fn send(namespace: &str, relay: SocketAddr, class: TrafficType) -> std::io::Result<()> {
    let mut stream = netns::within(namespace, || TcpStream::connect(relay))?;
    stream.set_nodelay(true)?;
    let wrong = |e: openflow::EncodeError| std::io::Error::other(e.to_string());
    let hello = Message::Hello(Hello::offering(&[VERSION]));
    stream.write_all(encode(VERSION, Xid(1), &hello).map_err(wrong)?.bytes())?;
    read_for(&mut stream, PAUSE)?;
    for number in 0..MESSAGES {
        let frame = encode(VERSION, Xid(number), &message(class, number)).map_err(wrong)?;
        stream.write_all(frame.bytes())?;
        read_for(&mut stream, SPACING)?;
    }
    read_for(&mut stream, PAUSE)
}

fn message(class: TrafficType, number: u32) -> Message {
    match class {
        TrafficType::Session => Message::EchoRequest(Bytes::from_static(b"class")),
        TrafficType::FlowSetup => {
            let label = Label {
                run: 0,
                stream: Stream::Target,
                number,
                sent_ns: 0,
            };
            let data = Template::new(178).packet((1, 2), label).to_vec();
            Message::PacketIn(PacketIn {
                buffer_id: None,
                total_len: data.len() as u16,
                reason: PacketInReason::NO_MATCH,
                table_id: TableId(0),
                cookie: Cookie(0),
                r#match: Match::any().with(Field::InPort, 1u32),
                data: data.into(),
            })
        }
        // Not a FLOW_REMOVED: it keeps its place among the notices, on the lane of the state.
        TrafficType::Housekeeping | TrafficType::Data => Message::MultipartReply(MultipartReply {
            more: false,
            body: ReplyBody::Aggregate(AggregateStats {
                packet_count: 1,
                byte_count: 1,
                flow_count: number,
            }),
        }),
    }
}

fn read_for(stream: &mut TcpStream, time: Duration) -> std::io::Result<()> {
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
