//! The emulated switches: each a connection with a sender that keeps its schedule and a receiver
//! that times the echo replies.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use net::tls::{CredentialFiles, Security};
use net::transport::{Reader, Writer, connect};
use openflow::{Frame, Message, MessageKind, Version, Xid, encode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::common::switch::{Switch, packet_in};
use crate::options::{Join, Options};

/// The name under which the controller's process has issued it.
pub const CERTIFICATE: &str = "switches";

const ECHO_INTERVAL: Duration = Duration::from_millis(100);
/// What is due is sent together; adds up to this much to a latency.
const TICK: Duration = Duration::from_millis(1);
/// For the replies that are under way at the end.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// The echo request after everything else: with its reply, all that was sent has been read.
const LAST: Xid = Xid(u32::MAX);
/// The shortest Ethernet frame, without its checksum.
static ETHERNET: [u8; 60] = [0x02; 60];
/// Ingress ports that packet-ins come from, in turn.
const PORT_COUNT: u32 = 4;

/// Connects all, storms, and prints one JSON line: what was sent, and each echo's latency.
pub async fn run(options: &Options, join: &Join) {
    let security = security(options, join);
    let method = join.method.parse().expect("a method of our parent");
    let mut switches = Vec::new();
    for datapath_id in 1..=options.switch_count {
        let connection = connect(&method, &security).await.expect("a connection");
        let mut switch = Switch::new(connection.reader, connection.writer, datapath_id);
        switch.set_up().await.expect("set up");
        switches.push(switch);
    }
    let start = Instant::now() + Duration::from_millis(100);
    let mut playing = JoinSet::new();
    for (number, switch) in (0..).zip(switches) {
        let schedule = Schedule::new(options, start, number);
        playing.spawn(play(switch.reader, switch.writer, schedule));
    }
    let (mut sent, mut echoes_sent, mut ended_early) = (0, 0, 0);
    let mut latencies_us = Vec::new();
    let mut sent_within = Duration::ZERO;
    let mut open = Vec::new();
    while let Some(played) = playing.join_next().await {
        let played = played.expect("no panic");
        sent += played.sent;
        echoes_sent += played.echoes_sent;
        ended_early += u64::from(!played.was_answered_to_the_end);
        sent_within = sent_within.max(played.sent_within);
        latencies_us.extend(played.latencies.iter().map(Duration::as_micros));
        open.push((played.writer, played.reader));
    }
    latencies_us.sort_unstable();
    let line = json!({
        "packet_ins_sent": sent,
        "sent_within_s": sent_within.as_secs_f64(),
        "echoes_sent": echoes_sent,
        "sessions_ended_early": ended_early,
        "echo_us": latencies_us.iter().map(|us| *us as u64).collect::<Vec<_>>(),
    });
    println!("{line}");
    // Until our parent has taken its figures. Blocks this thread and none that has tasks.
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn security(options: &Options, join: &Join) -> Security {
    if options.transport == "tcp" {
        return Security::plain();
    }
    let files = CredentialFiles {
        private_key: join.pki.join(format!("{CERTIFICATE}-privkey.pem")),
        certificate: join.pki.join(format!("{CERTIFICATE}-cert.pem")),
        ca: join.pki.join("cacert.pem"),
    };
    Security::new(files.load().expect("our parent's certificates").into())
}

/// When one switch sends what.
#[derive(Clone, Copy)]
struct Schedule {
    start: Instant,
    duration: Duration,
    packet_ins_per_s: f64,
    /// Switches take turns within the interval.
    first_echo: Duration,
}

impl Schedule {
    fn new(options: &Options, start: Instant, number: u32) -> Schedule {
        Schedule {
            start,
            duration: Duration::from_secs(options.duration_s),
            packet_ins_per_s: options.packet_ins_per_s as f64 / options.switch_count as f64,
            first_echo: ECHO_INTERVAL * number / options.switch_count as u32,
        }
    }

    fn packet_ins_due(&self, elapsed: Duration) -> u64 {
        (elapsed.as_secs_f64() * self.packet_ins_per_s) as u64
    }

    fn echo_due(&self, number: u32) -> Duration {
        self.first_echo + ECHO_INTERVAL * number
    }
}

struct Played {
    sent: u64,
    echoes_sent: u32,
    /// From the start to the last packet-in.
    sent_within: Duration,
    latencies: Vec<Duration>,
    was_answered_to_the_end: bool,
    reader: Reader,
    writer: Writer,
}

async fn play(mut reader: Reader, mut writer: Writer, schedule: Schedule) -> Played {
    let (replies, replies_due) = mpsc::channel(16);
    let receiving = tokio::spawn(async move {
        let mut latencies = Vec::new();
        let patience = schedule.duration + DRAIN_MAX;
        let received = receive(&mut reader, schedule, replies, &mut latencies);
        let to_the_end = tokio::time::timeout(patience, received).await;
        (latencies, to_the_end == Ok(Some(())), reader)
    });
    let mut sender = Sender::new(schedule);
    let was_sent = sender.send(&mut writer, replies_due).await.is_ok();
    let sent_within = schedule.start.elapsed();
    let (latencies, was_answered, reader) = receiving.await.expect("no panic");
    Played {
        sent: sender.sent,
        echoes_sent: sender.echoes_sent,
        sent_within,
        latencies,
        was_answered_to_the_end: was_sent && was_answered,
        reader,
        writer,
    }
}

struct Sender {
    schedule: Schedule,
    packet_ins: Vec<Frame>,
    sent: u64,
    echoes_sent: u32,
}

impl Sender {
    fn new(schedule: Schedule) -> Sender {
        let frame = |port| frame(Xid(0), &packet_in(port, &ETHERNET));
        Sender {
            schedule,
            packet_ins: (1..=PORT_COUNT).map(frame).collect(),
            sent: 0,
            echoes_sent: 0,
        }
    }

    /// Sends what is due until the time is up, and [`LAST`].
    async fn send(
        &mut self,
        writer: &mut Writer,
        mut replies_due: mpsc::Receiver<Frame>,
    ) -> std::io::Result<()> {
        let mut tick = tokio::time::interval_at(self.schedule.start.into(), TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut batch = Vec::new();
        let mut elapsed = Duration::ZERO;
        while elapsed < self.schedule.duration {
            tick.tick().await;
            elapsed = self.schedule.start.elapsed().min(self.schedule.duration);
            batch.clear();
            self.add_due(elapsed, &mut batch);
            while let Ok(reply) = replies_due.try_recv() {
                batch.extend_from_slice(reply.bytes());
            }
            writer.write_all(&batch).await?;
            writer.flush().await?;
        }
        writer.write_all(echo(LAST).bytes()).await?;
        writer.flush().await
    }

    fn add_due(&mut self, elapsed: Duration, batch: &mut Vec<u8>) {
        while self.sent < self.schedule.packet_ins_due(elapsed) {
            let turn = self.sent as usize % self.packet_ins.len();
            batch.extend_from_slice(self.packet_ins[turn].bytes());
            self.sent += 1;
        }
        while self.schedule.echo_due(self.echoes_sent) < elapsed {
            batch.extend_from_slice(echo(Xid(self.echoes_sent)).bytes());
            self.echoes_sent += 1;
        }
    }
}

/// Times echo replies until that to [`LAST`]; `None` when the connection ends before.
async fn receive(
    reader: &mut Reader,
    schedule: Schedule,
    replies: mpsc::Sender<Frame>,
    latencies: &mut Vec<Duration>,
) -> Option<()> {
    let mut input = BytesMut::new();
    loop {
        if reader.read_buf(&mut input).await.ok()? == 0 {
            return None;
        }
        while let Some(frame) = Frame::split_from(&mut input).ok()? {
            match (frame.kind(), frame.xid()) {
                (MessageKind::EchoReply, LAST) => return Some(()),
                (MessageKind::EchoReply, Xid(number)) => {
                    let due = schedule.start + schedule.echo_due(number);
                    latencies.push(due.elapsed());
                }
                (MessageKind::EchoRequest, xid) => {
                    let data = Bytes::copy_from_slice(frame.body());
                    let _ = replies.try_send(self::frame(xid, &Message::EchoReply(data)));
                }
                _ => {}
            }
        }
    }
}

fn echo(xid: Xid) -> Frame {
    frame(xid, &Message::EchoRequest(Bytes::new()))
}

fn frame(xid: Xid, message: &Message) -> Frame {
    encode(Version::V13, xid, message).expect("OpenFlow 1.3 has it")
}
