//! Impaired links between network namespaces: a process that carries Ethernet frames between pairs
//! of TAP devices and impairs them as [`sim::link`] specifies.
//!
//! The kernel's netem is a module that few machines have, cannot be seeded, and drops at egress
//! only; this process needs only /dev/net/tun. A TAP end has no checksum offload, so every frame
//! has real checksums. One process carries all impaired links of a lab.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;

use clock::{Duration, Instant};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};
use sim::link::{DropReason, Link, LinkConfig, LinkCounters};

use crate::impairment::Impairment;
use crate::netns;
use cli::failure::Failure;
use cli::output::say;
use cli::signals::Signals;

/// Prints `ready` when all devices are there, and runs until SIGTERM or SIGINT.
#[derive(clap::Args)]
pub struct Args {
    /// NAMESPACE:DEVICE=NAMESPACE:DEVICE and what happens between, such as
    /// ns1:tap0=ns2:tap0,delay_ms=5,loss_percent=1
    #[arg(value_name = "LINK", required = true)]
    links: Vec<TapLink>,
    /// The same seed loses the same frames
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the counters of each direction to this file at the end, as JSON
    #[arg(long, value_name = "FILE")]
    counters: Option<PathBuf>,
}

/// Two devices, each in a namespace, and the impairment between them.
#[derive(Clone, Debug, PartialEq)]
pub struct TapLink {
    pub ends: [TapEnd; 2],
    pub config: LinkConfig,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TapEnd {
    pub namespace: String,
    pub device: String,
}

/// The counters of one direction, in the file of `--counters`. Bytes are those of the frame, from
/// the destination address to the last of the payload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub from: String,
    pub to: String,
    pub offered: u64,
    pub offered_bytes: u64,
    /// The offered frames that carry IP.
    pub ip_frames: u64,
    pub ip_bytes: u64,
    pub delivered: u64,
    pub delivered_bytes: u64,
    pub lost: u64,
    /// The first of the lost frames, by their place among all offered frames: the same for the same
    /// seed.
    pub first_lost: Vec<u64>,
    pub queue_full: u64,
    pub too_many_frames: u64,
    /// Frames that the model delivered and the device refused: it was down.
    pub write_failed: u64,
    /// The lateness of this process's deliveries against the model.
    pub late_mean_us: f64,
    pub late_max_us: f64,
}

/// Frames taken from one device before the others have their turn.
const FRAMES_PER_TURN: usize = 64;
/// The largest frame a TAP device hands over, with room: 64 KiB and an Ethernet header.
const FRAME_BYTES_MAX: usize = 65_600;
/// The position of the EtherType in an untagged frame, and the two EtherTypes of IP.
const ETHERTYPE: std::ops::Range<usize> = 12..14;
const IP_ETHERTYPES: [[u8; 2]; 2] = [[0x08, 0x00], [0x86, 0xdd]];
/// The number of lost frames that are reported one by one.
const FIRST_LOST_MAX: usize = 16;
/// Buffers kept for reuse.
const SPARE_BUFFERS_MAX: usize = 1024;

pub fn run(args: Args) -> Result<(), Failure> {
    let signals = Signals::take()?;
    // The kernel may round a wait up by 50 µs otherwise, a third of a short link's delay.
    nix::sys::prctl::set_timerslack(1).map_err(|e| Failure::machine(format!("prctl: {e}")))?;
    let mut directions = Vec::new();
    for (number, link) in args.links.iter().enumerate() {
        let seed = args.seed.wrapping_add((number as u64) << 32);
        directions.extend(open(link, seed).map_err(Failure::machine)?);
    }
    say!("ready");
    let ended = carry(&mut directions, &signals, || signals.seen());
    if let Some(path) = args.counters {
        let reports: Vec<Report> = directions.iter().map(Direction::report).collect();
        let text = serde_json::to_vec_pretty(&reports).map_err(|e| Failure::file(&path, e))?;
        std::fs::write(&path, text).map_err(|e| Failure::file(&path, e))?;
    }
    ended
}

/// One direction of a link: read here, impair, write there.
pub struct Direction {
    input: File,
    output: File,
    link: Link<Vec<u8>>,
    late_sum: Duration,
    /// The counts that the link itself does not keep.
    counted: Report,
}

impl Direction {
    /// Reads the device's frames, up to a turn's worth.
    fn receive(&mut self, clock: &Clock, buffer: &mut [u8], spare: &mut Vec<Vec<u8>>) {
        for _ in 0..FRAMES_PER_TURN {
            // Nothing there (EAGAIN) and a device that is down (EIO) both end the turn.
            let Ok(len @ 1..) = self.input.read(buffer) else {
                return;
            };
            let mut frame = spare.pop().unwrap_or_default();
            frame.clear();
            frame.extend_from_slice(&buffer[..len]);
            self.counted.offered_bytes += len as u64;
            if frame
                .get(ETHERTYPE)
                .is_some_and(|kind| IP_ETHERTYPES.iter().any(|ip| kind == ip))
            {
                self.counted.ip_frames += 1;
                self.counted.ip_bytes += len as u64;
            }
            let number = self.link.counters().offered;
            // A dropped frame is counted by the link.
            let dropped = self.link.handle_frame(clock.now(), len, frame);
            if dropped == Err(DropReason::Loss) && self.counted.first_lost.len() < FIRST_LOST_MAX {
                self.counted.first_lost.push(number);
            }
        }
    }

    fn deliver(&mut self, clock: &Clock, spare: &mut Vec<Vec<u8>>) {
        while let Some((due, frame)) = self.link.poll_deliver(clock.now()) {
            let late = clock.now().since(due);
            self.late_sum += late;
            let late_us = late.as_secs_f64() * 1e6;
            self.counted.late_max_us = self.counted.late_max_us.max(late_us);
            match self.output.write(&frame) {
                Ok(_) => self.counted.delivered_bytes += frame.len() as u64,
                Err(_) => self.counted.write_failed += 1,
            }
            if spare.len() < SPARE_BUFFERS_MAX {
                spare.push(frame);
            }
        }
    }

    pub fn report(&self) -> Report {
        let LinkCounters {
            offered,
            delivered,
            lost,
            queue_full,
            too_many_frames,
        } = self.link.counters();
        let late_sum_us = self.late_sum.as_secs_f64() * 1e6;
        Report {
            offered,
            delivered,
            lost,
            queue_full,
            too_many_frames,
            late_mean_us: late_sum_us / delivered.max(1) as f64,
            ..self.counted.clone()
        }
    }
}

/// The time since this process began, in the form that the pure link takes.
struct Clock(std::time::Instant);

impl Clock {
    fn now(&self) -> Instant {
        Instant::START + self.0.elapsed()
    }
}

fn open(link: &TapLink, seed: u64) -> Result<[Direction; 2], String> {
    let tap = |end: &TapEnd| {
        netns::open_tap(&end.namespace, &end.device).map_err(|e| format!("TAP device {end}: {e}"))
    };
    let devices = [tap(&link.ends[0])?, tap(&link.ends[1])?];
    let names = link.ends.each_ref().map(TapEnd::to_string);
    join(devices, names, &link.config, seed)
}

/// Makes both directions of a link between two open TAP devices.
pub fn join(
    [a, b]: [File; 2],
    [a_name, b_name]: [String; 2],
    config: &LinkConfig,
    seed: u64,
) -> Result<[Direction; 2], String> {
    let direction = |from: &str, to: &str, input: &File, output: &File, seed| {
        let copy = |file: &File| {
            file.try_clone()
                .map_err(|e| format!("TAP device {from}: {e}"))
        };
        Ok::<_, String>(Direction {
            input: copy(input)?,
            output: copy(output)?,
            link: Link::new(config.clone(), seed),
            late_sum: Duration::ZERO,
            counted: Report {
                from: from.to_owned(),
                to: to.to_owned(),
                ..Report::default()
            },
        })
    };
    Ok([
        direction(&a_name, &b_name, &a, &b, seed)?,
        direction(&b_name, &a_name, &b, &a, !seed)?,
    ])
}

/// Carries frames until `stop` is readable and `is_over` confirms it.
pub fn carry(
    directions: &mut [Direction],
    stop: &impl AsFd,
    mut is_over: impl FnMut() -> bool,
) -> Result<(), Failure> {
    let clock = Clock(std::time::Instant::now());
    let mut buffer = vec![0u8; FRAME_BYTES_MAX];
    let mut spare = Vec::new();
    loop {
        for direction in directions.iter_mut() {
            direction.deliver(&clock, &mut spare);
        }
        let due = directions
            .iter()
            .filter_map(|d| d.link.poll_timeout())
            .map(|(at, _)| at)
            .min();
        let wait = due.map(|at| TimeSpec::from_duration(at.since(clock.now())));
        let readable = PollFlags::POLLIN;
        let mut polled: Vec<PollFd> = directions
            .iter()
            .map(|d| PollFd::new(d.input.as_fd(), readable))
            .collect();
        polled.push(PollFd::new(stop.as_fd(), readable));
        match ppoll(&mut polled, wait, None) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(Failure::machine(format!("ppoll: {e}"))),
        }
        let ready: Vec<bool> = polled.iter().map(|p| p.any().unwrap_or(false)).collect();
        if ready[directions.len()] && is_over() {
            return Ok(());
        }
        for (direction, _) in directions.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            direction.receive(&clock, &mut buffer, &mut spare);
        }
    }
}

impl FromStr for TapLink {
    type Err = String;

    fn from_str(text: &str) -> Result<TapLink, String> {
        let (ends, impairment) = text.split_once(',').unwrap_or((text, ""));
        let (a, b) = ends
            .split_once('=')
            .ok_or_else(|| format!("'{ends}' is not NAMESPACE:DEVICE=NAMESPACE:DEVICE"))?;
        Ok(TapLink {
            ends: [a.parse()?, b.parse()?],
            config: impairment.parse::<Impairment>()?.config()?,
        })
    }
}

impl FromStr for TapEnd {
    type Err = String;

    fn from_str(text: &str) -> Result<TapEnd, String> {
        let (namespace, device) = text
            .split_once(':')
            .ok_or_else(|| format!("'{text}' is not NAMESPACE:DEVICE"))?;
        Ok(TapEnd {
            namespace: namespace.to_string(),
            device: device.to_string(),
        })
    }
}

impl std::fmt::Display for TapEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.namespace, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_words_names_both_ends_and_the_impairment() {
        let link: TapLink = "n1:tap0=n2:tap1,delay_ms=5".parse().unwrap();
        assert_eq!(link.ends[1].to_string(), "n2:tap1");
        assert_eq!(link.config.delay, Duration::from_millis(5));
        assert!(
            "n1:tap0=n2:tap1"
                .parse::<TapLink>()
                .unwrap()
                .config
                .is_wire()
        );
        assert!(
            "n1:tap0"
                .parse::<TapLink>()
                .unwrap_err()
                .contains("NAMESPACE:DEVICE")
        );
        assert!("n1=n2".parse::<TapLink>().is_err());
        assert!("n1:a=n2:b,delay=5".parse::<TapLink>().is_err());
    }
}
