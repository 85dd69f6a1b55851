//! One run of one cell: streams or echo requests in a network of their own, and what was seen of
//! them at the receiving host and on the control channel.

use cli::program;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::timeouts::channel::{ChannelListener, Seen};
use crate::timeouts::load::{Busy, Watch};
use crate::timeouts::settings::{Load, NONE, Pings, Settings, Streams};
use crate::timeouts::setup::{OPENFLOW_PORT, Setup, Wish};
use bench::network::iperf::{self, Datagrams, Tool};
use bench::network::order::{self, Verdict};
use bench::network::udp::{self, Stream};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::capture::Capture;
use testbed::network::{CONTROLLER, SWITCHES};
use testbed::tools;

/// The results of the streams of one run, all of them together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamRun {
    pub row: String,
    pub rate_mbps: f64,
    pub run: u32,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub duplicates: u64,
    pub reordered: u64,
    /// The largest extent of a reordered packet.
    pub extent_max: u64,
    pub late_ms_max: f64,
    /// RFC 3550's estimator after the last packet; the mean over the streams.
    pub jitter_ms: f64,
    /// One way, of all packets.
    #[serde(skip)]
    pub delays_ms: Vec<f64>,
    /// Extents and late times of reordered packets.
    #[serde(skip)]
    pub late: Vec<(u64, f64)>,
    /// The most that a packet was sent after it was due.
    pub sender_late_ms: f64,
    pub channel: Channel,
    /// In each second of the stream, by when the packet was sent.
    pub reordered_by_second: Vec<u64>,
    /// The load of the controller's core; empty if it is bound to none.
    pub busy_by_second: Vec<Busy>,
}

/// The streams' packets on the control channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Channel {
    pub packet_ins: u64,
    pub packet_outs: u64,
    pub flow_adds: u64,
    pub flow_removed: u64,
    /// How often a switch began to send packets to the controller: at the beginning of a stream,
    /// and whenever its entry had expired.
    pub detours: u64,
    /// D: from a packet's PACKET_IN to its PACKET_OUT; the mean.
    pub detour_ms: Option<f64>,
    /// From a detour's first PACKET_IN to the FLOW_MOD that followed; the mean.
    pub installed_ms: Option<f64>,
    /// The formula's prediction: detours times lambda D - 1, or 0.
    pub predicted: f64,
    /// Frames or segments that were there and not seen.
    pub unseen: u64,
}

/// The figures of iperf for the same stream, in a network of its own.
#[derive(Clone, Debug, Serialize)]
pub struct IperfRun {
    pub row: String,
    pub rate_mbps: f64,
    pub run: u32,
    /// `None` where it said nothing that can be read.
    pub said: Option<Datagrams>,
}

/// Round trips of one run; `None` is a lost one.
#[derive(Clone, Debug, Serialize)]
pub struct PingRun {
    pub row: String,
    pub size_bytes: u16,
    pub run: u32,
    pub rtts_ms: Vec<Option<f64>>,
}

/// After the hosts have found each other, entries of the paper's timeouts are gone again, so that
/// the first request is one that no entry is there for.
const REST_BEFORE_PINGS: Duration = Duration::from_millis(2500);
/// The time that the load lasts beyond the stream.
const LOAD_REST_S: u32 = 5;

fn wish<'a>(streams: &'a Streams, core: Option<usize>) -> Wish<'a> {
    Wish {
        controller: &streams.controller,
        topology: &streams.topology,
        detour_ms: streams.detour_ms,
        core,
        introduced: !streams.cold,
    }
}

/// The core that a controller with a load beside it is bound to: the last one, away from what the
/// kernel does on the first.
fn core() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) - 1
}

/// `None` when it was interrupted.
pub fn stream(
    settings: &Settings,
    streams: &Streams,
    (rate_mbps, run): (f64, u32),
    interrupt: &Interrupt,
) -> Result<Option<StreamRun>, Failure> {
    let core = streams.load.map(|_| core());
    let Some(mut setup) = Setup::start(settings, &wish(streams, core), interrupt)? else {
        return Ok(None);
    };
    let capture = match streams.controller.as_str() {
        NONE => None,
        _ => Some(
            Capture::open_both_ways(
                &setup.network.namespace(SWITCHES),
                "ctl0",
                ChannelListener::new(OPENFLOW_PORT, setup.to),
            )
            .map_err(Failure::machine)?,
        ),
    };
    if let (Some(load), Some(core)) = (streams.load, core) {
        start_load(&mut setup, load, core, settings.seconds)?;
    }
    let watch = core
        .zip(setup.controller_pid)
        .map(|(core, pid)| Watch::start(core, pid));
    let pace = settings.pace(rate_mbps);
    let found: Vec<Result<Stream, Failure>> = std::thread::scope(|scope| {
        let one = || scope.spawn(|| udp::stream_known(&setup.ends, &pace, &|| interrupt.is_set()));
        let threads: Vec<_> = (0..streams.streams).map(|_| one()).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let busy = watch.map(Watch::stop).unwrap_or_default();
    let found = found
        .into_iter()
        .collect::<Result<Vec<Stream>, Failure>>()?;
    let (seen, missed) = match capture {
        Some(capture) => {
            let (listener, missed) = capture.close().map_err(Failure::machine)?;
            (listener.seen(), missed)
        }
        None => (Seen::default(), 0),
    };
    setup.check()?;
    if interrupt.is_set() {
        return Ok(None);
    }
    let packets_per_s = f64::from(streams.streams) / pace.interval().as_secs_f64();
    let mut outcome = StreamRun {
        row: streams.name.clone(),
        rate_mbps,
        run,
        channel: channel(&seen, missed, packets_per_s),
        busy_by_second: busy,
        ..StreamRun::default()
    };
    let seconds = settings.seconds.ceil() as usize;
    outcome.reordered_by_second = vec![0; seconds];
    found
        .iter()
        .for_each(|stream| outcome.add(stream, found.len()));
    Ok(Some(outcome))
}

impl StreamRun {
    fn add(&mut self, stream: &Stream, streams: usize) {
        let Verdict {
            received,
            duplicates,
            jitter_ns,
            delays_ns,
            reordered,
        } = order::judge(&stream.arrivals);
        self.sent += stream.sent;
        self.received += received;
        self.lost += stream.sent.saturating_sub(received);
        self.duplicates += duplicates;
        self.reordered += reordered.len() as u64;
        self.jitter_ms += jitter_ns / 1e6 / streams as f64;
        self.delays_ms
            .extend(delays_ns.iter().map(|ns| *ns as f64 / 1e6));
        let late = stream.sender_late_max.as_secs_f64() * 1e3;
        self.sender_late_ms = self.sender_late_ms.max(late);
        for packet in &reordered {
            self.late.push((packet.extent, packet.late_ns as f64 / 1e6));
        }
        let extents = self.late.iter().map(|(extent, _)| *extent);
        self.extent_max = extents.max().unwrap_or(0);
        self.late_ms_max = self.late.iter().fold(0.0, |max, (_, ms)| max.max(*ms));
        let per_second = by_second(stream, &reordered, self.reordered_by_second.len());
        for (all, more) in self.reordered_by_second.iter_mut().zip(per_second) {
            *all += more;
        }
    }
}

/// How many reordered packets were sent in each second.
fn by_second(stream: &Stream, reordered: &[order::Reordered], seconds: usize) -> Vec<u64> {
    let mut counts = vec![0; seconds];
    let start_ns = stream.arrivals.iter().map(|a| a.sent_ns).min().unwrap_or(0);
    let late: std::collections::BTreeSet<u64> = reordered.iter().map(|r| r.number).collect();
    // A reordered packet comes first once; its copies would count again.
    let mut counted = std::collections::BTreeSet::new();
    for arrival in &stream.arrivals {
        if late.contains(&arrival.number) && counted.insert(arrival.number) {
            let second = (arrival.sent_ns - start_ns) / 1_000_000_000;
            let place = (second as usize).min(seconds.saturating_sub(1));
            counts[place] += 1;
        }
    }
    counts
}

fn channel(seen: &Seen, missed: u64, packets_per_s: f64) -> Channel {
    let mean_ms = |ns: Vec<u64>| match ns.len() {
        0 => None,
        count => Some(ns.iter().sum::<u64>() as f64 / 1e6 / count as f64),
    };
    let installed = seen.detours.iter().filter_map(|detour| detour.installed_ns);
    let installed_ms = mean_ms(installed.collect());
    let detour_ms = mean_ms(seen.answers_ns.clone());
    let detours = seen.detours.len() as u64;
    let on_the_way = packets_per_s * detour_ms.unwrap_or(0.0) / 1e3;
    Channel {
        packet_ins: seen.packet_ins,
        packet_outs: seen.packet_outs,
        flow_adds: seen.flow_adds,
        flow_removed: seen.flow_removed,
        detours,
        detour_ms,
        installed_ms,
        predicted: (on_the_way - 1.0).max(0.0) * detours as f64,
        unseen: missed + seen.gaps,
    }
}

fn start_load(setup: &mut Setup, load: Load, core: usize, seconds: f64) -> Result<(), Failure> {
    let log = setup.network.open_log("load.log")?;
    let seconds = seconds.ceil() as u32 + LOAD_REST_S;
    let words = [
        ("--start-percent", load.start_percent),
        ("--step-percent", load.step_percent),
        ("--every-s", load.every_s),
        ("--seconds", seconds),
    ];
    let program = program::laboratory()?;
    setup
        .network
        .spawn("load", Some(CONTROLLER), program, |command| {
            command.args(["lab", "load", "--core", &core.to_string()]);
            for (flag, value) in words {
                command.args([flag, &value.to_string()]);
            }
            command.stderr(log);
        })?;
    Ok(())
}

/// Measures the same with iperf in a network of its own; `None` when it was interrupted.
pub fn iperf(
    settings: &Settings,
    streams: &Streams,
    (rate_mbps, run): (f64, u32),
    interrupt: &Interrupt,
) -> Result<Option<IperfRun>, Failure> {
    let Some(mut setup) = Setup::start(settings, &wish(streams, None), interrupt)? else {
        return Ok(None);
    };
    let far = setup.far.clone();
    iperf::start_udp_server(&mut setup.network, &far)?;
    let pace = settings.pace(rate_mbps);
    let said = Tool::Iperf.datagrams(&setup.network, &setup.ends, &pace, interrupt);
    if interrupt.is_set() {
        return Ok(None);
    }
    setup.check()?;
    // At times its server counts nothing at all, or less than nothing.
    let said = said.ok().filter(|said| said.sent > 0);
    Ok(Some(IperfRun {
        row: streams.name.clone(),
        rate_mbps,
        run,
        said,
    }))
}

/// Echo requests by ping(8); `None` when it was interrupted.
pub fn ping(
    settings: &Settings,
    pings: &Pings,
    (size_bytes, run): (u16, u32),
    interrupt: &Interrupt,
) -> Result<Option<PingRun>, Failure> {
    let wish = Wish {
        controller: &pings.controller,
        topology: &pings.topology,
        detour_ms: pings.detour_ms,
        core: None,
        introduced: true,
    };
    let Some(mut setup) = Setup::start(settings, &wish, interrupt)? else {
        return Ok(None);
    };
    std::thread::sleep(REST_BEFORE_PINGS);
    let mut command = tools::lab_command(setup.network.ledger(), Some(&setup.ends.from), "ping");
    command
        .args(["-n", "-c", &pings.count.to_string()])
        .args(["-i", &pings.interval_s.to_string()])
        .args(["-W", "2", "-s", &size_bytes.to_string()])
        .arg(setup.ends.address.to_string())
        .stdout(Stdio::piped());
    let failed = |e: std::io::Error| Failure::machine(format!("ping: {e}"));
    let mut child = command.spawn().map_err(failed)?;
    let took = f64::from(pings.count) * pings.interval_s + 10.0;
    let deadline = Instant::now() + Duration::from_secs_f64(took);
    while child.try_wait().map_err(failed)?.is_none() {
        if interrupt.is_set() || Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return match interrupt.is_set() {
                true => Ok(None),
                false => Err(Failure::machine("ping does not end")),
            };
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().map_err(failed)?;
    setup.check()?;
    Ok(Some(PingRun {
        row: pings.name.clone(),
        size_bytes,
        run,
        rtts_ms: rtts(&String::from_utf8_lossy(&output.stdout), pings.count),
    }))
}

/// From lines such as `72 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=1.23 ms`.
fn rtts(text: &str, count: u32) -> Vec<Option<f64>> {
    let mut rtts = vec![None; count as usize];
    for line in text.lines() {
        let field = |name: &str| {
            let words = line.split_whitespace();
            words.filter_map(|word| word.strip_prefix(name)).next()
        };
        let sequence = field("icmp_seq=").and_then(|word| word.parse::<usize>().ok());
        let time = field("time=").and_then(|word| word.parse::<f64>().ok());
        if let (Some(sequence), Some(time)) = (sequence, time)
            && let Some(place) = rtts.get_mut(sequence.wrapping_sub(1))
        {
            place.get_or_insert(time);
        }
    }
    rtts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeouts::channel::Detour;
    use bench::network::order::Arrival;

    fn arrivals(numbers: &[u64]) -> Vec<Arrival> {
        let arrival = |(place, number): (usize, &u64)| Arrival {
            number: *number,
            sent_ns: 7_000_000_000 + number * 500_000_000,
            received_ns: 7_000_000_000 + place as u64 * 600_000_000,
        };
        numbers.iter().enumerate().map(arrival).collect()
    }

    #[test]
    fn a_known_sequence_comes_to_known_figures() {
        // Two a second; 1 is late by one place, 5 lost, 4 comes twice and late by two.
        let stream = Stream {
            began_ns: 0,
            sent: 8,
            sender_late_max: Duration::from_millis(3),
            arrivals: arrivals(&[0, 2, 1, 3, 6, 7, 4, 4]),
        };
        let mut run = StreamRun {
            reordered_by_second: vec![0; 4],
            ..StreamRun::default()
        };
        run.add(&stream, 2);
        assert_eq!(
            (run.sent, run.received, run.lost, run.duplicates),
            (8, 7, 1, 1)
        );
        assert_eq!((run.reordered, run.extent_max), (2, 2));
        assert_eq!((run.late_ms_max, run.sender_late_ms), (1200.0, 3.0));
        assert_eq!(run.reordered_by_second, [1, 0, 1, 0]);
        let jitter = run.jitter_ms;
        run.add(&stream, 2);
        assert_eq!((run.sent, run.reordered), (16, 4));
        assert_eq!(run.jitter_ms, 2.0 * jitter);
        assert_eq!(run.reordered_by_second, [2, 0, 2, 0]);
    }

    #[test]
    fn the_formula_takes_the_mean_way_and_every_detour() {
        let detour = |ms: Option<u64>| Detour {
            packets: 3,
            installed_ns: ms.map(|ms| ms * 1_000_000),
        };
        let seen = Seen {
            detours: vec![detour(Some(30)), detour(None), detour(Some(34))],
            answers_ns: vec![16_000_000, 17_000_000, 18_000_000],
            ..Seen::default()
        };
        let found = channel(&seen, 2, 425.0);
        assert_eq!((found.detours, found.unseen), (3, 2));
        assert!((found.detour_ms.unwrap() - 17.0).abs() < 1e-9);
        assert_eq!(found.installed_ms, Some(32.0));
        assert!((found.predicted - 3.0 * (425.0 * 0.017 - 1.0)).abs() < 1e-9);
        // Nothing is overtaken when the entry is there before the second packet.
        assert_eq!(channel(&seen, 0, 50.0).predicted, 0.0);
        assert_eq!(channel(&Seen::default(), 0, 425.0).detour_ms, None);
    }

    #[test]
    fn round_trips_are_read_by_number() {
        let text = "PING 10.0.0.2 (10.0.0.2) 64(92) bytes of data.\n\
                    72 bytes from 10.0.0.2: icmp_seq=3 ttl=64 time=0.5 ms\n\
                    72 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=17 ms\n\
                    72 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=18 ms (DUP!)\n\
                    72 bytes from 10.0.0.2: icmp_seq=9 ttl=64 time=1 ms\n";
        assert_eq!(rtts(text, 3), [Some(17.0), None, Some(0.5)]);
        assert_eq!(rtts("", 2), [None, None]);
    }
}
