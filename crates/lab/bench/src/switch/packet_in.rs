//! The packet-in delay, split into its parts: Fig. 2 of Durner and Kellerer, *The cost of Security
//! in the SDN control Plane*.
//!
//! A run is three exchanges on an idle switch:
//! - *data path*: a probe with a flow entry, from host to host;
//! - *control path*: an echo request of the packet-out's size, from the return of the call that
//!   writes it to the return of the call that reads its reply. This is the time up plus the time
//!   down. It follows the data path's probe at once, so the processors that it wakes have slept as
//!   briefly as those that a packet-in and a packet-out wake. After a pause they sleep more deeply;
//! - *end to end*, after a pause: a probe of a flow without an entry, from host to host, through
//!   the controller, which answers the packet-in with a packet-out and installs nothing.
//!   *Controller* is the time in this process, from the return of the call that reads the packet-in
//!   to the return of the call that writes the packet-out.
//!
//! *Switch* is the rest of end to end: the miss, making the packet-in, carrying out the packet-out.
//! All parts are from the same run, so their means add up.

use std::time::Duration;

use bytes::Bytes;
use openflow::message::{PacketIn, PacketOut};
use openflow::{Action, Message, PortNo};
use serde::Serialize;

use super::lane::{LOST_AFTER, Lane, MATCHED_FLOW};
use super::report::{Raw, columns};
use super::tap::Probe;
use cli::date::now_ns;
use cli::failure::Failure;
use measure::stats::Summary;

/// The data of an echo request as long as a packet-out with a probe: 24 bytes of packet-out, 16 of
/// its action and 60 of the probe, less the 8 of the header.
const ECHO_DATA: [u8; 92] = [0x5a; 92];

/// One run, in nanoseconds of one clock.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Host to host, with a flow entry.
    pub data_path: u64,
    /// Echo written to echo read.
    pub control_path: u64,
    pub sent: u64,
    pub packet_in_read: u64,
    pub packet_out_written: u64,
    pub received: u64,
}

/// The parts of one run. They add up to `end_to_end_ms`; noise may make a part negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    pub data_path_ms: f64,
    pub control_path_ms: f64,
    pub controller_ms: f64,
    pub switch_ms: f64,
    pub end_to_end_ms: f64,
    /// Time from the sending of the probe to its packet-in.
    pub packet_in_ms: f64,
}

impl Times {
    pub fn parts(self) -> Parts {
        let ms = |ns: u64| ns as f64 / 1e6;
        // The probe may arrive before the call that writes the packet-out returns.
        let written = self.packet_out_written.min(self.received);
        let data_path_ms = ms(self.data_path);
        let control_path_ms = ms(self.control_path);
        let controller_ms = ms(written.saturating_sub(self.packet_in_read));
        let end_to_end_ms = ms(self.received.saturating_sub(self.sent));
        Parts {
            data_path_ms,
            control_path_ms,
            controller_ms,
            switch_ms: end_to_end_ms - data_path_ms - control_path_ms - controller_ms,
            end_to_end_ms,
            packet_in_ms: ms(self.packet_in_read.saturating_sub(self.sent)),
        }
    }
}

/// The figures of one transport.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub runs: usize,
    /// Runs left out of the figures: a probe or its packet-in did not arrive within a second.
    pub lost: usize,
    pub data_path_ms: Summary,
    pub control_path_ms: Summary,
    pub controller_ms: Summary,
    pub switch_ms: Summary,
    pub end_to_end_ms: Summary,
    pub packet_in_ms: Summary,
}

impl Figures {
    pub fn of(runs: &[Option<Parts>]) -> Figures {
        let there: Vec<Parts> = runs.iter().flatten().copied().collect();
        let of = |part: fn(&Parts) -> f64| Summary::of(there.iter().map(part));
        Figures {
            runs: runs.len(),
            lost: runs.len() - there.len(),
            data_path_ms: of(|p| p.data_path_ms),
            control_path_ms: of(|p| p.control_path_ms),
            controller_ms: of(|p| p.controller_ms),
            switch_ms: of(|p| p.switch_ms),
            end_to_end_ms: of(|p| p.end_to_end_ms),
            packet_in_ms: of(|p| p.packet_in_ms),
        }
    }
}

/// A CSV file with a line per run; the fields of lost runs are empty.
pub fn csv(runs: &[Raw<Option<Parts>>]) -> String {
    columns(runs)
        .maybe("data_path_ms", 6, |&(.., run)| Some(run?.data_path_ms))
        .maybe("control_path_ms", 6, |&(.., run)| {
            Some(run?.control_path_ms)
        })
        .maybe("controller_ms", 6, |&(.., run)| Some(run?.controller_ms))
        .maybe("switch_ms", 6, |&(.., run)| Some(run?.switch_ms))
        .maybe("end_to_end_ms", 6, |&(.., run)| Some(run?.end_to_end_ms))
        .maybe("packet_in_ms", 6, |&(.., run)| Some(run?.packet_in_ms))
        .csv()
}

/// Does one run; returns `None` if a packet was lost. The pauses precede its two probes.
pub async fn run(
    lane: &mut Lane,
    sequence: u32,
    pauses: [Duration; 2],
) -> Result<Option<Parts>, Failure> {
    tokio::time::sleep(pauses[0]).await;
    let Some(data_path) = data_path(lane, sequence).await? else {
        return Ok(None);
    };
    let control_path = control_path(lane).await?;
    tokio::time::sleep(pauses[1]).await;
    let times = end_to_end(lane, sequence, data_path, control_path).await?;
    Ok(times.map(Times::parts))
}

/// Sends a probe that matches its entry, and returns its delay.
pub async fn data_path(lane: &mut Lane, sequence: u32) -> Result<Option<u64>, Failure> {
    let probe = Probe {
        flow: MATCHED_FLOW,
        sequence,
    };
    let sent = lane.ends.ingress.send(probe)?;
    let received = lane.ends.egress.receive(probe, LOST_AFTER).await?;
    Ok(received.map(|at| at.saturating_sub(sent)))
}

async fn control_path(lane: &mut Lane) -> Result<u64, Failure> {
    let echo = Message::EchoRequest(Bytes::from_static(&ECHO_DATA));
    let xid = lane.channel.send(&[echo]).await?;
    let written = now_ns();
    let reply = lane.channel.received(xid).await?;
    Ok(reply.at_ns.saturating_sub(written))
}

async fn end_to_end(
    lane: &mut Lane,
    sequence: u32,
    data_path: u64,
    control_path: u64,
) -> Result<Option<Times>, Failure> {
    let probe = Probe {
        flow: lane.take_flows(1),
        sequence,
    };
    let sent = lane.ends.ingress.send(probe)?;
    let (packet_in, packet_in_read) = loop {
        let Some(received) = lane.channel.next_within(LOST_AFTER).await? else {
            return Ok(None);
        };
        match received.message {
            Message::PacketIn(packet) if lane.probe_of(&packet) == Some(probe) => {
                break (packet, received.at_ns);
            }
            _ => {}
        }
    };
    let answer = relayed(packet_in, lane.ends.egress_port);
    lane.channel.send(&[answer]).await?;
    let packet_out_written = now_ns();
    let received = lane.ends.egress.receive(probe, LOST_AFTER).await?;
    Ok(received.map(|received| Times {
        data_path,
        control_path,
        sent,
        packet_in_read,
        packet_out_written,
        received,
    }))
}

/// The packet-out that forwards a packet: from the switch's buffer, if the packet is there.
pub fn relayed(packet: PacketIn, to: PortNo) -> Message {
    let in_port = packet.r#match.in_port().unwrap_or(PortNo::CONTROLLER);
    let data = if packet.buffer_id.is_some() {
        Bytes::new()
    } else {
        packet.data
    };
    Message::PacketOut(PacketOut {
        buffer_id: packet.buffer_id,
        in_port,
        actions: vec![Action::output(to)],
        data,
        pipeline: Default::default(),
    })
}

#[cfg(test)]
mod tests {
    use openflow::{Version, Xid, encode};

    use super::super::tap::FRAME_BYTES;
    use super::*;

    const TIMES: Times = Times {
        data_path: 100_000,
        control_path: 200_000,
        sent: 5_000_000_000,
        packet_in_read: 5_000_400_000,
        packet_out_written: 5_000_450_000,
        received: 5_001_000_000,
    };

    #[test]
    fn end_to_end_is_taken_apart_without_remainder() {
        let p = TIMES.parts();
        assert_eq!((p.data_path_ms, p.control_path_ms), (0.1, 0.2));
        assert!((p.controller_ms - 0.05).abs() < 1e-9);
        assert!((p.end_to_end_ms - 1.0).abs() < 1e-9);
        assert!((p.packet_in_ms - 0.4).abs() < 1e-9);
        assert!((p.switch_ms - 0.65).abs() < 1e-9);
        let sum = p.data_path_ms + p.control_path_ms + p.controller_ms + p.switch_ms;
        assert!((sum - p.end_to_end_ms).abs() < 1e-9);
    }

    #[test]
    fn a_probe_that_overtakes_the_return_of_the_write_is_not_counted_twice() {
        let early = Times {
            received: 5_000_430_000,
            ..TIMES
        }
        .parts();
        assert!((early.controller_ms - 0.03).abs() < 1e-9);
        let sum =
            early.data_path_ms + early.control_path_ms + early.controller_ms + early.switch_ms;
        assert!(
            (sum - 0.43).abs() < 1e-9,
            "a negative part shows, and is not hidden"
        );
    }

    #[test]
    fn lost_runs_are_counted_and_not_in_the_means() {
        let figures = Figures::of(&[Some(TIMES.parts()), None, Some(TIMES.parts())]);
        assert_eq!(
            (figures.runs, figures.lost, figures.end_to_end_ms.count),
            (3, 1, 2)
        );
        assert!((figures.switch_ms.mean - 0.65).abs() < 1e-9);
    }

    #[test]
    fn the_echo_is_as_long_as_the_packet_out() {
        let packet = PacketOut::new(
            PortNo(1),
            vec![Action::output(PortNo(2))],
            Bytes::from_static(&[0; FRAME_BYTES]),
        );
        let out = encode(Version::V13, Xid(1), &Message::PacketOut(packet)).unwrap();
        let echo = Message::EchoRequest(Bytes::from_static(&ECHO_DATA));
        let echo = encode(Version::V13, Xid(1), &echo).unwrap();
        assert_eq!(out.len(), echo.len());
    }
}
