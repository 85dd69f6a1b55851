//! A switch whose table needs 40,000 changes, over a real socket with small buffers. One that reads
//! slowly keeps its session and comes into sync; the session of one that reads nothing ends.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::io::Read;

use common::listen;
use common::switch::{PATIENCE, Switch};
use control::clustered::Clustered;
use control::controller::{Controller, ControllerConfig};
use driver::{Driver, DriverConfig, Ended, Notice};
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use openflow::message::{FlowModFlags, MultipartReply};
use openflow::multipart::{FlowStats, ReplyBody, RequestBody};
use openflow::{Cookie, Field, Match, Message, TableId, Version, decode};
use tokio::net::TcpSocket;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

/// Five megabytes of messages, of which 4 MiB may wait for a connection.
const ENTRIES: u32 = 40_000;
const ROWS_PER_REPLY: u32 = 400;
const RECEIVE_BUFFER: u32 = 4096;
/// Unconfirmed bytes that the controller may have sent, and some that are under way.
const UNCONFIRMED_MAX: usize = (512 << 10) + (128 << 10);
/// A cookie of auster's with a kind that does not exist: auster deletes such entries.
const STALE: Cookie = Cookie(0x6175_7374_0000_ee00);

type Slow = Switch<OwnedReadHalf, OwnedWriteHalf>;

struct Stage {
    driver: Driver<Clustered>,
    notices: mpsc::Receiver<Notice>,
    switch: Slow,
}

impl Stage {
    /// Connects a switch that has reported its entries.
    async fn new() -> Stage {
        let mut listener = listen("ptcp:0:127.0.0.1", &Security::plain()).await;
        let Method::Listen(_, _, port) = *listener.local() else {
            panic!("it listens on TCP");
        };
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
        let stream = socket.connect(([127, 0, 0, 1], port).into()).await.unwrap();
        let controller = Clustered::from(Controller::new(ControllerConfig::default(), [7; 32]));
        let (driver, notices) =
            Driver::start(controller, Clock::start(), DriverConfig::default()).unwrap();
        driver.serve(listener.accept().await);
        let (reader, writer) = stream.into_split();
        let mut switch = Switch::new(reader, writer, 1);
        switch.set_up_holding().await;
        Stage {
            driver,
            notices,
            switch,
        }
    }
}

trait Holding {
    async fn set_up_holding(&mut self);
}

impl Holding for Slow {
    async fn set_up_holding(&mut self) {
        let hello = openflow::hello::Hello::offering(&[Version::V13]);
        self.send(0, &Message::Hello(hello)).await.unwrap();
        loop {
            let frame = self.receive().await.expect("it is still connected");
            let is_asked = match decode(&frame).unwrap() {
                Message::MultipartRequest(request) => matches!(request.body, RequestBody::Flow(_)),
                _ => false,
            };
            if !is_asked {
                self.answer(&frame).await.unwrap();
                continue;
            }
            for first in (0..ENTRIES).step_by(ROWS_PER_REPLY as usize) {
                let rows = (first..first + ROWS_PER_REPLY).map(row);
                let reply = MultipartReply {
                    more: first + ROWS_PER_REPLY < ENTRIES,
                    body: ReplyBody::Flow(rows.collect()),
                };
                let reply = Message::MultipartReply(reply);
                self.send(frame.xid().0, &reply).await.unwrap();
            }
            return;
        }
    }
}

fn row(n: u32) -> FlowStats {
    FlowStats {
        table_id: TableId(0),
        duration_sec: 1,
        duration_nsec: 0,
        priority: 2000,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: FlowModFlags::empty(),
        cookie: STALE,
        packet_count: 0,
        byte_count: 0,
        r#match: Match::any().with(Field::EthDst, 0x0200_0000_0000 | u128::from(n)),
        instructions: Vec::new(),
        importance: 0,
        stats: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_that_reads_slowly_keeps_its_session_and_comes_into_sync() {
    let mut stage = Stage::new().await;
    let mut taken = BTreeSet::new();
    let (mut unconfirmed, mut most) = (0, 0);
    while taken.len() < ENTRIES as usize {
        let frame = stage.switch.receive().await.expect("its session is kept");
        unconfirmed += frame.len();
        most = unconfirmed.max(most);
        match decode(&frame).unwrap() {
            Message::FlowMod(flow_mod) => {
                if let Some(mac) = flow_mod.r#match.exact(Field::EthDst) {
                    taken.insert(mac);
                }
                // Other tasks of this machine get ahead of the switch.
                tokio::task::yield_now().await;
            }
            Message::BarrierRequest => {
                unconfirmed = 0;
                stage.switch.answer(&frame).await.unwrap();
            }
            _ => {
                stage.switch.answer(&frame).await.unwrap();
            }
        }
    }
    assert!(most <= UNCONFIRMED_MAX, "{most} bytes were not confirmed");
    stage
        .switch
        .echo(5000)
        .await
        .expect("it is still connected");
    assert_eq!(stage.driver.connection_count(), 1);
    assert_eq!(stage.driver.ends().values().sum::<u64>(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_that_reads_nothing_is_ended() {
    let mut stage = Stage::new().await;
    let reason = loop {
        let notice = tokio::time::timeout(PATIENCE, stage.notices.recv()).await;
        if let Notice::Down { reason, .. } = notice.expect("it is ended").expect("it is told") {
            break reason;
        }
    };
    let is_deaf = matches!(
        reason,
        Ended::Session(_) | Ended::Stalled | Ended::NotReading
    );
    assert!(is_deaf, "{reason}");
    // The bytes sent to it meanwhile are no more than the kernel holds of a window.
    let Switch { reader, writer, .. } = stage.switch;
    let mut stream = reader.reunite(writer).unwrap().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    let (mut sent, mut buf) = (0, [0; 4096]);
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        sent += n;
    }
    assert!(sent <= UNCONFIRMED_MAX, "{sent} bytes");
}
