//! A switch made of a socket: it shakes hands as Open vSwitch does, answers requests, and reports
//! other messages to the test.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use openflow::hello::Hello;
use openflow::message::*;
use openflow::multipart::*;
use openflow::{
    DatapathId, Frame, MacAddr, Message, MessageKind, PortNo, QueueId, Version, Xid, decode, encode,
};

use super::running::PATIENCE;

pub const VERSION: Version = Version::V13;

pub struct Switch {
    pub stream: TcpStream,
    buffer: BytesMut,
    datapath: DatapathId,
}

/// The result of a wait on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    Message(Frame),
    Closed,
    Nothing,
}

impl Switch {
    pub fn connect(to: SocketAddr, datapath: u64) -> Switch {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        Switch {
            stream,
            buffer: BytesMut::new(),
            datapath: DatapathId(datapath),
        }
    }

    /// Connects, exchanges hello, features and ports, and serves the controller until the
    /// controller has been quiet for a moment.
    pub fn up(to: SocketAddr, datapath: u64) -> Switch {
        let mut switch = Switch::connect(to, datapath);
        switch.send(Xid(1), &Message::Hello(Hello::offering(&[VERSION])));
        switch.serve_until_quiet(Duration::from_millis(300));
        switch
    }

    pub fn send(&mut self, xid: Xid, message: &Message) {
        self.send_bytes(encode(VERSION, xid, message).unwrap().bytes());
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        // Some tests are about a peer that closed; the next read reports that.
        let _ = self.stream.write_all(bytes);
    }

    /// The next message within `wait`.
    pub fn receive(&mut self, wait: Duration) -> Came {
        let deadline = Instant::now() + wait;
        let mut chunk = [0; 65536];
        loop {
            if let Some(frame) = Frame::split_from(&mut self.buffer).unwrap() {
                return Came::Message(frame);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Came::Nothing;
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            match self.stream.read(&mut chunk) {
                Ok(0) => return Came::Closed,
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return Came::Closed,
            }
        }
    }

    /// Answers the controller's requests. Returns the first result that is not a request.
    pub fn serve(&mut self, wait: Duration) -> Came {
        let deadline = Instant::now() + wait;
        loop {
            let came = self.receive(deadline.saturating_duration_since(Instant::now()));
            let Came::Message(frame) = &came else {
                return came;
            };
            match self.answer(frame) {
                Some(reply) => self.send(frame.xid(), &reply),
                None => return came,
            }
        }
    }

    pub fn serve_until_quiet(&mut self, quiet: Duration) {
        while let Came::Message(_) = self.serve(quiet) {}
    }

    fn answer(&self, frame: &Frame) -> Option<Message> {
        Some(match decode(frame).ok()? {
            Message::FeaturesRequest => Message::FeaturesReply(SwitchFeatures {
                datapath_id: self.datapath,
                n_buffers: 0,
                n_tables: 254,
                auxiliary_id: 0,
                capabilities: Capabilities::FLOW_STATS,
                actions: 0,
                ports: vec![],
            }),
            Message::EchoRequest(data) => Message::EchoReply(data),
            Message::BarrierRequest => Message::BarrierReply,
            Message::GetConfigRequest => Message::GetConfigReply(SwitchConfig::default()),
            Message::RoleRequest(role) => Message::RoleReply(role),
            Message::MultipartRequest(request) => {
                let body = match request.body {
                    RequestBody::Desc => ReplyBody::Desc(Description::default()),
                    RequestBody::PortDesc(_) => ReplyBody::PortDesc((1..=2).map(port).collect()),
                    RequestBody::Flow(_) => ReplyBody::Flow(vec![]),
                    RequestBody::PortStats(_) => {
                        ReplyBody::PortStats((1..=2).map(counters).collect())
                    }
                    RequestBody::Queue { .. } => {
                        ReplyBody::Queue((1..=2).map(queue_counters).collect())
                    }
                    _ => return None,
                };
                Message::MultipartReply(MultipartReply { more: false, body })
            }
            _ => return None,
        })
    }

    /// Whether the controller still answers this switch: an echo within `wait`.
    pub fn is_answered(&mut self, wait: Duration) -> bool {
        self.echo(wait).is_some()
    }

    /// Time from an echo request to its reply. Other requests are answered meanwhile.
    pub fn echo(&mut self, wait: Duration) -> Option<Duration> {
        let start = Instant::now();
        let payload = Bytes::from(start.elapsed().as_nanos().to_string());
        self.send(Xid(0x00ec_0000), &Message::EchoRequest(payload));
        while start.elapsed() < wait {
            match self.serve(wait.saturating_sub(start.elapsed())) {
                Came::Message(frame) if frame.kind() == MessageKind::EchoReply => {
                    return Some(start.elapsed());
                }
                Came::Message(_) => {}
                Came::Closed | Came::Nothing => return None,
            }
        }
        None
    }

    /// Whether a broadcast that a host sends into port 1 is answered by a packet-out or flow-mod:
    /// the application is alive too, not only its echo.
    pub fn is_served(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.send(Xid(0), &packet_in(1, arp_request()));
            let until = Instant::now() + Duration::from_millis(500);
            while let Came::Message(frame) =
                self.serve(until.saturating_duration_since(Instant::now()))
            {
                if let Ok(Message::PacketOut(out)) = decode(&frame)
                    && out.data[..] == arp_request()[..]
                {
                    return true;
                }
            }
        }
        false
    }

    /// Whether the other end has closed, within `wait`. Serves it meanwhile.
    pub fn is_closed_within(&mut self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        loop {
            match self.receive(deadline.saturating_duration_since(Instant::now())) {
                Came::Closed => return true,
                Came::Nothing => return false,
                Came::Message(_) => {}
            }
        }
    }
}

/// Queue 5 of a port: each counter is a multiple of the port's number.
fn queue_counters(number: u32) -> QueueStats {
    let n = u64::from(number);
    QueueStats {
        port_no: PortNo(number),
        queue_id: QueueId(5),
        tx_bytes: 100 * n,
        tx_packets: 10 * n,
        tx_errors: n,
        duration_sec: 0,
        duration_nsec: 0,
        properties: Vec::new(),
    }
}

/// Counters of a port: each has its number.
fn counters(n: u32) -> PortStats {
    let count = u64::from(n);
    PortStats {
        port_no: PortNo(n),
        rx_packets: count,
        tx_packets: count,
        rx_bytes: count,
        tx_bytes: count,
        rx_dropped: count,
        tx_dropped: count,
        rx_errors: count,
        tx_errors: count,
        rx_frame_err: 0,
        rx_over_err: 0,
        rx_crc_err: 0,
        collisions: 0,
        duration_sec: n,
        duration_nsec: 0,
        properties: Vec::new(),
    }
}

pub fn port(n: u32) -> Port {
    Port {
        port_no: PortNo(n),
        hw_addr: MacAddr([2, 0, 0, 0, 0, n as u8]),
        name: PortName::new(&format!("p{n}")),
        config: PortConfig::empty(),
        state: PortState::empty(),
        curr: 0,
        advertised: 0,
        supported: 0,
        peer: 0,
        curr_speed: 0,
        max_speed: 0,
        properties: Vec::new(),
    }
}

pub fn packet_in(in_port: u32, data: Bytes) -> Message {
    Message::PacketIn(PacketIn::new(PortNo(in_port), data))
}

/// An ARP request for 10.0.0.2, sent by 10.0.0.1 at 02:00:00:00:0a:01.
pub fn arp_request() -> Bytes {
    let mut frame = vec![0xff; 6];
    let mac = [2, 0, 0, 0, 0x0a, 1];
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&[10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    frame.resize(60, 0);
    frame.into()
}
