//! Two thousand peers that send nothing and two thousand that send a byte every ten seconds, beside
//! twenty switches that behave.

use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Auster, dial};

const PEERS: usize = 4000;
const RESIDENT_BYTES_MAX: u64 = 16 << 10;
/// Our limits are 5 and 10 s; the rest is for a busy machine.
const CLOSED_WITHIN: Duration = Duration::from_secs(120);

#[tokio::test]
async fn four_thousand_hostile_peers_cost_little_and_are_gone_in_the_end() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let auster = Auster::start(&["ptcp:0:127.0.0.1"]);
    let port = auster.port();
    let mut switches = Vec::new();
    for datapath_id in 1..=20 {
        let mut switch = dial(port, datapath_id).await;
        switch.set_up().await.unwrap();
        switches.push(switch);
    }
    let before = auster.resident_bytes();

    let since = Instant::now();
    let mut peers = JoinSet::new();
    for number in 0..PEERS {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        peers.spawn(async move {
            let opened = Instant::now();
            let is_slow = number % 2 == 0;
            // The beginning of a HELLO that would have 65,535 bytes.
            let mut header = [4, 0, 0xff, 0xff].into_iter();
            let mut next = tokio::time::Instant::now();
            let mut heard = [0; 64];
            loop {
                match tokio::time::timeout_at(next, stream.read(&mut heard)).await {
                    Ok(Ok(0) | Err(_)) => return opened.elapsed(),
                    // Our HELLO.
                    Ok(Ok(_)) => {}
                    Err(_) => {
                        if let Some(byte) = header.next().filter(|_| is_slow) {
                            let _ = stream.write_all(&[byte]).await;
                        }
                        next += Duration::from_secs(10);
                    }
                }
            }
        });
    }
    let mut peak = 0;
    let mut worst_echo = Duration::ZERO;
    let mut most = 0;
    let mut number = 0;
    while since.elapsed() < Duration::from_secs(4) {
        most = most.max(auster.status()["connections"]["total"].as_u64().unwrap());
        peak = peak.max(auster.resident_bytes());
        for switch in &mut switches {
            number += 1;
            worst_echo = worst_echo.max(switch.echo(10_000 + number).await.unwrap());
        }
    }
    assert!(
        most > PEERS as u64 / 4,
        "only {most} connections at one time"
    );
    let each = peak.saturating_sub(before) / most;
    assert!(
        each < RESIDENT_BYTES_MAX,
        "{each} resident bytes for each peer"
    );

    let mut longest = Duration::ZERO;
    while let Some(closed) = peers.join_next().await {
        longest = longest.max(closed.unwrap());
    }
    assert!(
        longest < CLOSED_WITHIN,
        "the last peer was closed after {longest:?}"
    );
    for switch in &mut switches {
        switch.echo(1).await.expect("the switches that behave stay");
    }
    assert!(
        worst_echo < Duration::from_secs(10),
        "an echo took {worst_echo:?}"
    );
    println!("{each} resident bytes each, closed within {longest:?}, worst echo {worst_echo:?}");
}
