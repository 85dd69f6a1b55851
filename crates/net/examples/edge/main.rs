//! What an edge costs for a packet-in, without any socket: read it, find both hosts, write the
//! answer. One switch with 100,000 hosts, whose packets come in an order that no cache foresees.
//!
//! `cargo run --release -p auster-net --example edge`

use std::hint::black_box;
use std::time::Instant as Clock;

use bytes::BytesMut;
use control::edge::{Edge, EdgeConfig, EdgeUpdate};
use openflow::message::{PacketIn, PacketInReason};
use openflow::time::{Duration, Instant};
use openflow::{BufferId, Cookie, MacAddr, Match, Message, PortNo, TableId, Version, Xid, encode};

const HOSTS: u64 = 100_000;
const ROUNDS: u32 = 50;
/// As the driver does.
const BATCH: usize = 16;

fn main() {
    for (version, buffered) in [
        (Version::V13, false),
        (Version::V13, true),
        (Version::V10, true),
    ] {
        let mut edge = known_hosts(version);
        let frames: Vec<Vec<u8>> = (0..HOSTS)
            .map(|n| packet_in(version, buffered, n * 48_271 % HOSTS))
            .collect();
        let mut best = f64::MAX;
        for round in 0..ROUNDS {
            // Within a second of virtual time, so that all but one packet are the edge's.
            let now = Instant::START + Duration::from_millis(10) * round;
            let mut out = BytesMut::with_capacity(1 << 16);
            let (started, before) = (Clock::now(), edge.counters().packet_ins);
            for batch in frames.chunks(BATCH) {
                batch.iter().for_each(|frame| edge.look_ahead(frame));
                for frame in batch {
                    let _ = black_box(edge.handle_packet_in(now, frame, &mut out));
                }
                black_box(&out);
                out.clear();
            }
            let answered = edge.counters().packet_ins - before;
            best = best.min(started.elapsed().as_secs_f64() * 1e9 / answered as f64);
        }
        let kind = if buffered { "buffered" } else { "whole packet" };
        println!("OpenFlow {version}, {kind}: {best:.0} ns per packet-in");
    }
}

fn known_hosts(version: Version) -> Edge {
    let mut edge = Edge::default();
    let mut nothing = BytesMut::new();
    let config = EdgeConfig {
        version,
        generation: 1,
        idle_timeout_s: 60,
        hard_timeout_s: 0,
        seed: 0x5eed,
    };
    edge.handle_update(EdgeUpdate::Start(config), &mut nothing);
    for port in [PortNo(1), PortNo(2)] {
        edge.handle_update(EdgeUpdate::Open(port), &mut nothing);
    }
    for n in 0..HOSTS {
        let (mac, port) = (host(n), PortNo(1));
        edge.handle_update(EdgeUpdate::Host { mac, port }, &mut nothing);
    }
    let (mac, port) = (host(HOSTS), PortNo(2));
    edge.handle_update(EdgeUpdate::Host { mac, port }, &mut nothing);
    edge
}

fn host(n: u64) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 + n)
}

fn packet_in(version: Version, buffered: bool, from: u64) -> Vec<u8> {
    let data = [&host(HOSTS).0[..], &host(from).0, &[8, 0], &[0; 46]].concat();
    let message = Message::PacketIn(PacketIn {
        buffer_id: buffered.then_some(BufferId(from as u32)),
        total_len: data.len() as u16,
        reason: PacketInReason::NO_MATCH,
        table_id: TableId(0),
        cookie: Cookie(u64::MAX),
        r#match: Match::any().with_in_port(PortNo(1)),
        data: data.into(),
    });
    let frame = encode(version, Xid(0), &message).expect("both versions can say it");
    frame.bytes().to_vec()
}
