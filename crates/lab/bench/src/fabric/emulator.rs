//! The switches on their sockets: one thread, which reads, writes and keeps time for all of them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::load::World;
use super::switch::UNSENT_BYTES_MAX;
use cli::failure::Failure;
use cli::interrupt::Interrupt;

const READ_BYTES: usize = 256 << 10;
/// Connections that one wait reports.
const READY_MAX: usize = 1024;
const TIMER: u64 = u64::MAX;
/// Interval at which the clock is checked without any traffic.
const TICK_NS: u64 = 5_000_000;
/// First packets that are due within this time are sent together.
const STEP_NS: u64 = 50_000;
/// Interval at which entries expire.
const EXPIRE_INTERVAL_NS: u64 = 100_000_000;
/// Time after which a switch without a connection reconnects.
const RECONNECT_NS: u64 = 100_000_000;
const CONNECT_MAX: Duration = Duration::from_secs(3);

struct Channel {
    stream: TcpStream,
    /// The start of a message whose rest has not arrived.
    received: BytesMut,
    /// Bytes of the switch's `out` already sent.
    written: usize,
    is_blocked: bool,
    watched: EpollFlags,
}

pub struct Emulator<'a> {
    pub world: World,
    /// Connections that ended, and the reason of the first.
    pub lost: u32,
    pub problem: Option<String>,
    /// Switches without power.
    is_off: Vec<bool>,
    address: SocketAddr,
    epoll: Epoll,
    timer: TimerFd,
    channels: Vec<Option<Channel>>,
    read_buffer: Vec<u8>,
    start: Instant,
    echo_interval_ns: u64,
    echo_due_ns: u64,
    echo_next: usize,
    expire_due_ns: u64,
    reconnect_due_ns: u64,
    interrupt: &'a Interrupt,
}

impl<'a> Emulator<'a> {
    /// Connects every switch.
    pub fn connect(
        world: World,
        address: SocketAddr,
        echo_interval: Duration,
        interrupt: &'a Interrupt,
    ) -> Result<Emulator<'a>, Failure> {
        let failed = |error: nix::Error| Failure::machine(format!("epoll: {error}"));
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(failed)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, TIMER);
        epoll.add(timer.as_fd(), readable).map_err(failed)?;
        let count = world.fabric.switches.len();
        let mut emulator = Emulator {
            world,
            lost: 0,
            problem: None,
            is_off: vec![false; count],
            address,
            epoll,
            timer,
            channels: (0..count).map(|_| None).collect(),
            read_buffer: vec![0; READ_BYTES],
            start: Instant::now(),
            echo_interval_ns: (echo_interval.as_nanos() as u64 / count as u64).max(1),
            echo_due_ns: 0,
            echo_next: 0,
            expire_due_ns: 0,
            reconnect_due_ns: 0,
            interrupt,
        };
        for switch in 0..count {
            let dialled = emulator.dial(switch);
            dialled.map_err(|error| Failure::network(format!("{address}: {error}")))?;
        }
        Ok(emulator)
    }

    pub fn now(&self) -> clock::Instant {
        clock::Instant(self.start.elapsed().as_nanos() as u64)
    }

    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Serves the switches until the condition holds or the time is over. Returns whether it holds.
    pub fn until(&mut self, at_most: Duration, is_done: impl Fn(&Emulator<'a>) -> bool) -> bool {
        let deadline = self.now() + at_most;
        loop {
            if is_done(self) {
                return true;
            }
            if self.now() >= deadline || self.interrupt.is_set() {
                return false;
            }
            self.step(deadline);
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        self.until(time, |_| false);
    }

    /// Waits once, and handles all events of this wait.
    fn step(&mut self, deadline: clock::Instant) {
        let now_ns = self.now().0;
        let due_ns = self.world.next_due_ns().unwrap_or(u64::MAX);
        let due_ns = due_ns.max(now_ns + STEP_NS).min(now_ns + TICK_NS);
        let wait_ns = due_ns.min(deadline.0).saturating_sub(now_ns).max(1);
        let once = Expiration::OneShot(Duration::from_nanos(wait_ns).into());
        // Without its timer, the loop would still continue with the traffic.
        let _ = self.timer.set(once, TimerSetTimeFlags::empty());
        let mut events = [EpollEvent::empty(); READY_MAX];
        let ready = self.epoll.wait(&mut events, EpollTimeout::from(100u8));
        for event in &events[..ready.unwrap_or(0)] {
            if event.data() != TIMER {
                self.serve(event.data() as usize);
            }
        }
        let now = self.now();
        self.world.handle_tick(now);
        self.keep_time(now);
        for switch in 0..self.channels.len() {
            if !self.world.fabric.switches[switch].out.is_empty() {
                self.flush(switch);
            }
        }
    }

    fn serve(&mut self, switch: usize) {
        let is_behind = self.world.fabric.switches[switch].out.len() >= UNSENT_BYTES_MAX;
        let Some(channel) = &mut self.channels[switch] else {
            return;
        };
        channel.is_blocked = false;
        if is_behind {
            return self.flush(switch);
        }
        match channel.stream.read(&mut self.read_buffer) {
            Ok(0) => self.close(switch, "the controller closed a connection".to_owned()),
            Ok(count) => {
                channel
                    .received
                    .extend_from_slice(&self.read_buffer[..count]);
                let mut received = std::mem::take(&mut channel.received);
                let now = self.now();
                let handled = self.world.handle_bytes(now, switch, &mut received);
                if let Some(channel) = &mut self.channels[switch] {
                    channel.received = received;
                }
                match handled {
                    Ok(()) => self.flush(switch),
                    Err(broken) => self.close(switch, broken.to_string()),
                }
            }
            Err(error) if is_temporary(&error) => self.flush(switch),
            Err(error) => self.close(switch, format!("a connection was lost: {error}")),
        }
    }

    /// Writes what the connection takes.
    fn flush(&mut self, switch: usize) {
        let out = &mut self.world.fabric.switches[switch].out;
        let Some(channel) = &mut self.channels[switch] else {
            return;
        };
        if channel.is_blocked {
            return;
        }
        while channel.written < out.len() {
            match channel.stream.write(&out[channel.written..]) {
                Ok(count) if count > 0 => channel.written += count,
                Err(error) if is_temporary(&error) => {
                    channel.is_blocked = true;
                    out.drain(..channel.written);
                    channel.written = 0;
                    let flags = match out.len() < UNSENT_BYTES_MAX {
                        true => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
                        false => EpollFlags::EPOLLOUT,
                    };
                    return self.watch(switch, flags);
                }
                Ok(_) => return self.close(switch, "a connection takes nothing".to_owned()),
                Err(error) => {
                    return self.close(switch, format!("a connection was lost: {error}"));
                }
            }
        }
        out.clear();
        channel.written = 0;
        self.watch(switch, EpollFlags::EPOLLIN);
    }

    fn watch(&mut self, switch: usize, flags: EpollFlags) {
        if let Some(channel) = &mut self.channels[switch]
            && channel.watched != flags
        {
            channel.watched = flags;
            let mut event = EpollEvent::new(flags, switch as u64);
            // The system cannot refuse a socket that is already watched.
            let _ = self.epoll.modify(&channel.stream, &mut event);
        }
    }

    fn close(&mut self, switch: usize, problem: String) {
        self.lost += 1;
        self.problem.get_or_insert(problem);
        self.hang_up(switch);
    }

    fn hang_up(&mut self, switch: usize) {
        if let Some(channel) = self.channels[switch].take() {
            // The system forgets a closed socket.
            let _ = self.epoll.delete(&channel.stream);
        }
        self.world.fabric.switches[switch].handle_closed();
    }

    /// Closes a switch's connection, or lets the switch reconnect.
    pub fn set_power(&mut self, switch: usize, is_on: bool) {
        self.is_off[switch] = !is_on;
        if !is_on {
            self.hang_up(switch);
        }
    }

    fn dial(&mut self, switch: usize) -> std::io::Result<()> {
        let stream = TcpStream::connect_timeout(&self.address, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let watched = EpollFlags::EPOLLIN;
        let event = EpollEvent::new(watched, switch as u64);
        self.epoll.add(&stream, event)?;
        self.channels[switch] = Some(Channel {
            stream,
            received: BytesMut::new(),
            written: 0,
            is_blocked: false,
            watched,
        });
        self.world.fabric.switches[switch].handle_connected();
        Ok(())
    }

    /// Handles echoes, entries that expire, and switches that reconnect.
    fn keep_time(&mut self, now: clock::Instant) {
        self.echo_due_ns = self.echo_due_ns.max(now.0.saturating_sub(20 * TICK_NS));
        while self.echo_due_ns <= now.0 {
            self.echo_due_ns += self.echo_interval_ns;
            let switch = &mut self.world.fabric.switches[self.echo_next];
            self.echo_next = (self.echo_next + 1) % self.channels.len();
            switch.send_echo(now);
        }
        if self.expire_due_ns <= now.0 {
            self.expire_due_ns = now.0 + EXPIRE_INTERVAL_NS;
            for switch in &mut self.world.fabric.switches {
                switch.handle_timeout(now);
            }
        }
        if self.reconnect_due_ns <= now.0 {
            self.reconnect_due_ns = now.0 + RECONNECT_NS;
            for switch in 0..self.channels.len() {
                let is_down = self.channels[switch].is_none() && !self.is_off[switch];
                if is_down && self.dial(switch).is_err() {
                    // Nobody listens there: the other switches would fail too.
                    break;
                }
            }
        }
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
