//! `auster bench null`: a controller that answers every packet-in with one pre-built FLOW_MOD, or
//! with one PACKET_OUT, and does nothing else. No controller is faster: it is the ceiling for the
//! others.
//!
//! It learns nothing. Its answers are right only because the emulated switches of `auster bench
//! controller` have their destination behind the port that its flag names.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::method::{Host, Method, Transport};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use openflow::hello::Hello;
use openflow::message::{FlowMod, PacketOut};
use openflow::{
    Action, BufferId, EncodeError, Field, Frame, MacAddr, Match, Message, PortNo, Version, Xid,
    encode,
};

use crate::controller::settings::whole;
use cli::failure::Failure;
use cli::output::say;
use cli::parallel;

/// Answers every packet-in with one pre-built FLOW_MOD, and nothing else: the ceiling against which
/// `auster bench controller` holds others.
///
/// With `--answer packet-out` it sends the packet on and installs nothing, so that every packet of
/// every flow is asked about.
#[derive(clap::Args)]
pub struct Args {
    /// Listen for switches: ptcp:[PORT][:HOST]
    #[arg(value_name = "METHOD")]
    method: Method,

    /// Threads that serve connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,

    /// Output port of the answers; the destination of `auster bench controller` is behind port 1
    #[arg(long, value_name = "PORT", default_value_t = 1)]
    out_port: u16,

    /// The answer to a packet-in
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Kind::FlowMod)]
    answer: Kind,

    /// Delay each answer by this time, without delaying others
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    delay_ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    FlowMod,
    PacketOut,
}

const READ_BYTES: usize = 256 << 10;
const EVENTS_MAX: usize = 256;
const HEADER_LEN: usize = 8;
const TYPE_HELLO: u8 = 0;
const TYPE_ECHO_REQUEST: u8 = 2;
const TYPE_PACKET_IN: u8 = 10;
const DELAY_MS_MAX: f64 = 10_000.0;
/// Bytes of delayed answers on one connection above which the peer is not read.
const LATE_BYTES_MAX: usize = 16 << 20;

pub fn run(args: Args) -> Result<(), Failure> {
    let Method::Listen(Transport::Tcp, host, port) = &args.method else {
        return Err(Failure::usage(format!(
            "{}: it listens on TCP only; write ptcp:[PORT][:HOST]",
            args.method
        )));
    };
    cli::turns::ask_for_short_turns();
    whole("--threads", args.threads, 1, 1024)?;
    if !(0.0..=DELAY_MS_MAX).contains(&args.delay_ms) {
        return Err(Failure::usage(format!(
            "--delay-ms {}: write 0 to {DELAY_MS_MAX}",
            args.delay_ms
        )));
    }
    let delay = Duration::from_secs_f64(args.delay_ms / 1e3);
    cli::process::raise_file_limit();
    let answers = Answers::new(args.answer, args.out_port.into()).map_err(Failure::usage)?;
    let host = match host {
        Host::V4(address) => address.to_string(),
        host => host.to_string(),
    };
    let listener = TcpListener::bind(format!("{host}:{port}")).map_err(|error| {
        let problem = net::advice::bind_problem(&error);
        Failure::network(format!("{}: {problem}", args.method))
    })?;
    let failed = |error: io::Error| Failure::machine(format!("cannot serve: {error}"));
    let bound = listener.local_addr().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    say!("listening on ptcp:{}:{}", bound.port(), bound.ip());
    let served = parallel::at_once(0..args.threads, |_| {
        Server::new(&listener, &answers, delay)?.serve()
    });
    served
        .into_iter()
        .collect::<io::Result<()>>()
        .map_err(failed)
}

/// The answer for each version, and where to patch it.
struct Answers {
    v10: Template,
    v13: Template,
}

enum Template {
    FlowMod(FlowModTemplate),
    /// The part of a PACKET_OUT before its packet, with output to a port.
    PacketOut(Vec<u8>),
}

struct FlowModTemplate {
    bytes: Vec<u8>,
    buffer_id_at: usize,
    eth_src_at: usize,
    eth_dst_at: usize,
}

impl Answers {
    fn new(kind: Kind, out_port: u32) -> Result<Answers, EncodeError> {
        let template = |version| match kind {
            Kind::FlowMod => FlowModTemplate::new(version, out_port).map(Template::FlowMod),
            Kind::PacketOut => packet_out(version, out_port).map(Template::PacketOut),
        };
        Ok(Answers {
            v10: template(Version::V10)?,
            v13: template(Version::V13)?,
        })
    }
}

impl Template {
    /// `None` for a packet-in too short to hold a packet's addresses.
    fn write(&self, packet_in: &[u8], packet_at: usize, out: &mut Vec<u8>) -> Option<()> {
        let packet = packet_in.get(packet_at..)?;
        let macs = packet.first_chunk::<12>()?;
        match self {
            Template::FlowMod(template) => template.write(packet_in, macs, out),
            Template::PacketOut(head) => {
                // In 1.0 an answer is longer than its packet-in, and may be too long.
                let len = u16::try_from(head.len() + packet.len()).ok()?;
                let start = out.len();
                out.extend_from_slice(head);
                out.extend_from_slice(packet);
                let answer = &mut out[start..];
                answer[2..4].copy_from_slice(&len.to_be_bytes());
                answer[4..8].copy_from_slice(&packet_in[4..8]);
            }
        }
        Some(())
    }
}

impl FlowModTemplate {
    fn new(version: Version, out_port: u32) -> Result<FlowModTemplate, EncodeError> {
        let (src, dst) = (MacAddr([0x51; 6]), MacAddr([0x52; 6]));
        let r#match = Match::any()
            .with(Field::EthDst, dst.to_u64())
            .with(Field::EthSrc, src.to_u64());
        let mut flow_mod = FlowMod::add(100, r#match, vec![output(out_port)]);
        flow_mod.idle_timeout = 60;
        flow_mod.buffer_id = Some(BufferId(0));
        let frame = encode(version, Xid(0), &Message::FlowMod(flow_mod))?;
        let find = |mac: MacAddr| {
            let mut windows = frame.bytes().windows(6);
            windows.position(|bytes| bytes == mac.0).unwrap_or_default()
        };
        Ok(FlowModTemplate {
            buffer_id_at: match version {
                Version::V10 => 64,
                _ => 32,
            },
            eth_src_at: find(src),
            eth_dst_at: find(dst),
            bytes: frame.bytes().to_vec(),
        })
    }

    fn write(&self, packet_in: &[u8], macs: &[u8; 12], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let answer = &mut out[start..];
        // The transaction id, and the buffer id, which follows it in both versions.
        answer[4..8].copy_from_slice(&packet_in[4..8]);
        answer[self.buffer_id_at..self.buffer_id_at + 4].copy_from_slice(&packet_in[8..12]);
        answer[self.eth_dst_at..self.eth_dst_at + 6].copy_from_slice(&macs[..6]);
        answer[self.eth_src_at..self.eth_src_at + 6].copy_from_slice(&macs[6..]);
    }
}

/// A PACKET_OUT up to its packet. Its input port is the controller, so that the packet may leave by
/// any port, even the one it arrived at.
fn packet_out(version: Version, out_port: u32) -> Result<Vec<u8>, EncodeError> {
    let message = Message::PacketOut(PacketOut::new(
        PortNo::CONTROLLER,
        vec![output(out_port)],
        Bytes::new(),
    ));
    Ok(encode(version, Xid(0), &message)?.bytes().to_vec())
}

fn output(port: u32) -> Action {
    Action::Output {
        port: PortNo(port),
        max_len: 0,
    }
}

/// One thread and its connections.
struct Server<'a> {
    listener: &'a TcpListener,
    answers: &'a Answers,
    epoll: Epoll,
    connections: HashMap<RawFd, Connection>,
    buffer: Vec<u8>,
    delay: Duration,
    /// The timer for the first late answer.
    timer: TimerFd,
}

struct Connection {
    stream: TcpStream,
    part: Vec<u8>,
    /// Delayed answers and their due times; in order, because every delay is the same.
    late: VecDeque<(Instant, Vec<u8>)>,
    late_bytes: usize,
    out: Vec<u8>,
    written: usize,
}

impl<'a> Server<'a> {
    fn new(
        listener: &'a TcpListener,
        answers: &'a Answers,
        delay: Duration,
    ) -> io::Result<Server<'a>> {
        // The kernel may otherwise let a wait last 50 us longer than asked.
        nix::sys::prctl::set_timerslack(1)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        epoll.add(listener, EpollEvent::new(flags, fd_data(listener)))?;
        Ok(Server {
            listener,
            answers,
            epoll,
            connections: HashMap::new(),
            buffer: vec![0; READ_BYTES],
            delay,
            timer,
        })
    }

    fn serve(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        loop {
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Err(nix::errno::Errno::EINTR) => continue,
                count => count?,
            };
            for event in &events[..count] {
                if event.data() == fd_data(self.listener) {
                    self.accept()?;
                    continue;
                }
                if event.data() == TIMER {
                    // The result only reports the timer's expiry, which is known.
                    let _ = self.timer.wait();
                    let now = Instant::now();
                    let due = self.connections.iter().filter(|(_, c)| c.is_due(now));
                    for fd in due.map(|(fd, _)| *fd).collect::<Vec<RawFd>>() {
                        self.handle(fd);
                    }
                    continue;
                }
                self.handle(event.data() as RawFd);
            }
            if !self.delay.is_zero() {
                self.set_timer()?;
            }
        }
    }

    fn handle(&mut self, fd: RawFd) {
        let Some(connection) = self.connections.get_mut(&fd) else {
            return;
        };
        let handled = connection.handle(self.answers, self.delay, &mut self.buffer);
        if handled.is_err() {
            // Closing the connection removes it from the epoll set.
            self.connections.remove(&fd);
        }
    }

    fn set_timer(&self) -> io::Result<()> {
        let dues = self.connections.values().filter_map(|c| c.late.front());
        let Some(due) = dues.map(|(due, _)| *due).min() else {
            return Ok(());
        };
        // Zero would disarm the timer.
        let left = due.saturating_duration_since(Instant::now());
        let left = TimeSpec::from_duration(left.max(Duration::from_nanos(1)));
        let flags = TimerSetTimeFlags::empty();
        Ok(self.timer.set(Expiration::OneShot(left), flags)?)
    }

    fn accept(&mut self) -> io::Result<()> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            // Another thread accepted it first, or the peer has disconnected again.
            Err(_) => return Ok(()),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        self.epoll
            .add(&stream, EpollEvent::new(flags, fd_data(&stream)))?;
        let connection = Connection {
            stream,
            part: Vec::new(),
            late: VecDeque::new(),
            late_bytes: 0,
            out: Vec::new(),
            written: 0,
        };
        self.connections
            .insert(connection.stream.as_raw_fd(), connection);
        Ok(())
    }
}

/// The timer's mark in an event's data, in place of a file descriptor.
const TIMER: u64 = u64::MAX;

fn fd_data(of: &impl AsRawFd) -> u64 {
    of.as_raw_fd().cast_unsigned().into()
}

impl Connection {
    /// Reads until no data is left, and answers the messages. An error ends the connection.
    fn handle(&mut self, answers: &Answers, delay: Duration, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            self.take_due(Instant::now());
            self.write()?;
            if !self.out.is_empty() || self.late_bytes > LATE_BYTES_MAX {
                // First the peer must read, which EPOLLOUT reports, or the timer must expire.
                return Ok(());
            }
            let part_len = self.part.len();
            buffer[..part_len].copy_from_slice(&self.part);
            let read = match self.stream.read(&mut buffer[part_len..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let bytes = &buffer[..part_len + read];
            let consumed = answer(answers, bytes, &mut self.out)?;
            self.part.clear();
            self.part.extend_from_slice(&bytes[consumed..]);
            if !delay.is_zero() && !self.out.is_empty() {
                let answers = std::mem::take(&mut self.out);
                self.late_bytes += answers.len();
                self.late.push_back((Instant::now() + delay, answers));
            }
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.late.front().is_some_and(|(due, _)| *due <= now)
    }

    fn take_due(&mut self, now: Instant) {
        while self.is_due(now)
            && let Some((_, answers)) = self.late.pop_front()
        {
            self.late_bytes -= answers.len();
            self.out.extend_from_slice(&answers);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }
}

/// Answers the complete messages at the front of `bytes`; returns their length.
fn answer(answers: &Answers, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<usize> {
    let mut at = 0;
    while let Some(header) = bytes[at..].first_chunk::<HEADER_LEN>() {
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if len < HEADER_LEN {
            return Err(ErrorKind::InvalidData.into());
        }
        let Some(message) = bytes.get(at..at + len) else {
            break;
        };
        at += len;
        // A packet-in that is too short has no packet and gets no answer.
        match (header[1], header[0]) {
            (TYPE_PACKET_IN, 1) => {
                answers.v10.write(message, 18, out);
            }
            (TYPE_PACKET_IN, 4) => {
                let match_len = message
                    .get(26..28)
                    .map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
                let packet_at = 24 + usize::from(match_len).next_multiple_of(8) + 2;
                answers.v13.write(message, packet_at, out);
            }
            (kind, version) => {
                let said = control(kind, version, message);
                out.extend(said.map_err(io::Error::other)?);
            }
        }
    }
    Ok(at)
}

/// Answers HELLO with HELLO and FEATURES_REQUEST, in the switch's version, and ECHO with ECHO.
fn control(kind: u8, version: u8, message: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let Some(version) = Version::from_wire(version) else {
        return Ok(Vec::new());
    };
    let xid = Xid(u32::from_be_bytes([
        message[4], message[5], message[6], message[7],
    ]));
    let say = |message: &Message| -> Result<Frame, EncodeError> { encode(version, xid, message) };
    match kind {
        TYPE_HELLO => {
            let hello = match version {
                Version::V10 => Hello::default(),
                version => Hello::offering(&[version]),
            };
            let hello = say(&Message::Hello(hello))?;
            let features = say(&Message::FeaturesRequest)?;
            Ok([&hello.bytes()[..], features.bytes()].concat())
        }
        TYPE_ECHO_REQUEST => {
            let data = Bytes::copy_from_slice(&message[HEADER_LEN..]);
            Ok(say(&Message::EchoReply(data))?.bytes().to_vec())
        }
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use openflow::message::PacketIn;
    use openflow::packet::build::{Host, udp};
    use openflow::{Cookie, decode};

    use super::*;

    #[test]
    fn a_packet_out_sends_on_the_packet_of_the_packet_in() {
        let answers = Answers::new(Kind::PacketOut, 7).unwrap();
        let packet = udp(Host::numbered(1), Host::numbered(2), (3, 4), b"payload");
        for version in [Version::V10, Version::V13] {
            let packet_in = Message::PacketIn(PacketIn {
                cookie: Cookie(if version == Version::V10 { u64::MAX } else { 0 }),
                ..PacketIn::new(PortNo(5), Bytes::from(packet.clone()))
            });
            let frame = encode(version, Xid(9), &packet_in).unwrap();
            let two = [&frame.bytes()[..], frame.bytes()].concat();
            let mut out = Vec::new();
            assert_eq!(answer(&answers, &two, &mut out).unwrap(), two.len());
            let (first, second) = out.split_at(out.len() / 2);
            assert_eq!(first, second);
            let frame = Frame::new(Bytes::copy_from_slice(first)).unwrap();
            assert_eq!(frame.xid(), Xid(9));
            let Message::PacketOut(found) = decode(&frame).unwrap() else {
                panic!("not a PACKET_OUT");
            };
            assert_eq!(found.data, packet);
            assert_eq!(found.actions, [output(7)]);
            assert_eq!(found.buffer_id, None);
        }
    }

    #[test]
    fn a_late_answer_waits_for_its_time_and_none_overtakes() {
        let (stream, mut peer) = pair();
        let mut connection = Connection {
            stream,
            part: Vec::new(),
            late: VecDeque::new(),
            late_bytes: 0,
            out: Vec::new(),
            written: 0,
        };
        let answers = Answers::new(Kind::PacketOut, 7).unwrap();
        let echo = |xid: u8| [4, 2, 0, 8, 0, 0, 0, xid];
        peer.write_all(&[echo(1), echo(2)].concat()).unwrap();
        let mut buffer = vec![0; READ_BYTES];
        let hour = Duration::from_secs(3600);
        connection.handle(&answers, hour, &mut buffer).unwrap();
        let due = connection.late.back().unwrap().0;
        assert!(connection.out.is_empty() && connection.late_bytes == 16);
        connection.take_due(due - hour / 2);
        assert!(connection.out.is_empty());
        connection.take_due(due);
        let reply = |xid: u8| [4, 3, 0, 8, 0, 0, 0, xid];
        assert_eq!(connection.out, [reply(1), reply(2)].concat());
        assert_eq!(connection.late_bytes, 0);
    }

    /// Both ends of a connection; ours is non-blocking.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, peer)
    }
}
