//! The switches on their sockets: one thread, which reads and writes for all of them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use openflow::Frame;

use super::switch::Switch;
use cli::failure::Failure;
use cli::interrupt::Interrupt;

const READ_BYTES: usize = 256 << 10;
/// Connections that one wait reports.
const READY_MAX: usize = 1024;
/// Unsent bytes above which reading stops: the peer sends requests and reads nothing.
const UNSENT_BYTES_MAX: usize = 1 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The longest wait between two checks of signals and deadlines.
const WAIT_MS: u8 = 20;

struct Channel {
    stream: TcpStream,
    /// The start of a message whose rest has not arrived.
    received: BytesMut,
    watched: EpollFlags,
}

/// All switches, each connected to all controllers.
pub struct Emulator<'a> {
    pub switches: Vec<Switch>,
    /// Connections that ended, and the reason of the first.
    pub lost: u32,
    pub problem: Option<String>,
    controllers: usize,
    channels: Vec<Option<Channel>>,
    epoll: Epoll,
    read_buffer: Vec<u8>,
    start: Instant,
    interrupt: &'a Interrupt,
}

impl<'a> Emulator<'a> {
    /// Connects every switch to every controller.
    pub fn connect(
        count: u32,
        controllers: &[SocketAddr],
        interrupt: &'a Interrupt,
    ) -> Result<Emulator<'a>, Failure> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|error| Failure::machine(format!("epoll: {error}")))?;
        let switches = (0..count).map(|n| Switch::new(n, controllers.len()));
        let mut emulator = Emulator {
            switches: switches.collect(),
            lost: 0,
            problem: None,
            controllers: controllers.len(),
            channels: Vec::new(),
            epoll,
            read_buffer: vec![0; READ_BYTES],
            start: Instant::now(),
            interrupt,
        };
        for switch in 0..count as usize {
            for (line, address) in controllers.iter().enumerate() {
                let dialled = emulator.dial(switch, line, address);
                dialled.map_err(|error| Failure::network(format!("{address}: {error}")))?;
            }
            // Meanwhile, serve the connected switches; a controller may take its time.
            emulator.step(0);
            if interrupt.is_set() {
                break;
            }
        }
        Ok(emulator)
    }

    pub fn now(&self) -> clock::Instant {
        clock::Instant(self.start.elapsed().as_nanos() as u64)
    }

    /// Serves the switches until the condition holds or the time is over. Returns whether it holds.
    pub fn until(&mut self, at_most: Duration, is_done: impl Fn(&[Switch]) -> bool) -> bool {
        let deadline = self.now() + at_most;
        while !is_done(&self.switches) {
            if self.now() >= deadline || self.interrupt.is_set() {
                return false;
            }
            self.step(WAIT_MS);
        }
        true
    }

    /// Waits once, and handles all events of this wait.
    fn step(&mut self, wait_ms: u8) {
        let mut events = [EpollEvent::empty(); READY_MAX];
        let ready = self.epoll.wait(&mut events, EpollTimeout::from(wait_ms));
        for event in &events[..ready.unwrap_or(0)] {
            let at = event.data() as usize;
            self.serve(at);
            // A change of roles is reported on another connection of the same switch.
            let first = at - at % self.controllers;
            for line in first..first + self.controllers {
                self.flush(line);
            }
        }
    }

    fn serve(&mut self, at: usize) {
        let (switch, line) = (at / self.controllers, at % self.controllers);
        let is_behind = self.switches[switch].lines[line].out.len() >= UNSENT_BYTES_MAX;
        let Some(channel) = self.channels.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        if is_behind {
            return;
        }
        match channel.stream.read(&mut self.read_buffer) {
            Ok(0) => self.close(at, "a controller closed a connection".to_owned()),
            Ok(count) => {
                channel
                    .received
                    .extend_from_slice(&self.read_buffer[..count]);
                let mut received = std::mem::take(&mut channel.received);
                let handled = self.handle_bytes(switch, line, &mut received);
                if let Some(channel) = &mut self.channels[at] {
                    channel.received = received;
                }
                if let Err(problem) = handled {
                    self.close(at, problem);
                }
            }
            Err(error) if is_temporary(&error) => {}
            Err(error) => self.close(at, format!("a connection was lost: {error}")),
        }
    }

    fn handle_bytes(
        &mut self,
        switch: usize,
        line: usize,
        received: &mut BytesMut,
    ) -> Result<(), String> {
        loop {
            match Frame::split_from(received) {
                Ok(Some(frame)) => {
                    let now = self.now();
                    let handled = self.switches[switch].handle(now, line, &frame);
                    handled.map_err(|broken| broken.to_string())?;
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Writes what the connection takes.
    fn flush(&mut self, at: usize) {
        let out = &mut self.switches[at / self.controllers].lines[at % self.controllers].out;
        let Some(channel) = self.channels.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let mut written = 0;
        let failed = loop {
            if written == out.len() {
                break None;
            }
            match channel.stream.write(&out[written..]) {
                Ok(count) if count > 0 => written += count,
                Err(error) if is_temporary(&error) => break None,
                Ok(_) => break Some("a connection takes nothing".to_owned()),
                Err(error) => break Some(format!("a connection was lost: {error}")),
            }
        };
        out.drain(..written);
        let flags = match out.len() {
            0 => EpollFlags::EPOLLIN,
            1..UNSENT_BYTES_MAX => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
            _ => EpollFlags::EPOLLOUT,
        };
        if channel.watched != flags {
            channel.watched = flags;
            let mut event = EpollEvent::new(flags, at as u64);
            // The system cannot refuse a socket that is already watched.
            let _ = self.epoll.modify(&channel.stream, &mut event);
        }
        if let Some(problem) = failed {
            self.close(at, problem);
        }
    }

    fn close(&mut self, at: usize, problem: String) {
        self.lost += 1;
        self.problem.get_or_insert(problem);
        if let Some(channel) = self.channels[at].take() {
            // The system forgets a closed socket.
            let _ = self.epoll.delete(&channel.stream);
        }
        let now = self.now();
        self.switches[at / self.controllers].handle_closed(now, at % self.controllers);
    }

    fn dial(&mut self, switch: usize, line: usize, to: &SocketAddr) -> std::io::Result<()> {
        let stream = TcpStream::connect_timeout(to, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let watched = EpollFlags::EPOLLIN;
        let at = switch * self.controllers + line;
        self.epoll
            .add(&stream, EpollEvent::new(watched, at as u64))?;
        self.channels.resize_with(at + 1, || None);
        self.channels[at] = Some(Channel {
            stream,
            received: BytesMut::new(),
            watched,
        });
        self.switches[switch].handle_connected(line);
        self.flush(at);
        Ok(())
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
