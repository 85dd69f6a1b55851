//! The link relay on real TAP devices. Margins are wide: machines are busy; the model's own tests
//! are exact.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::lab::AUSTER;
use common::run;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::NamedTempFile;

/// Two namespaces of the test, joined by a relay.
struct Wire {
    names: [String; 2],
    relay: Child,
    counters: NamedTempFile,
}

impl Wire {
    fn new(impairment: &str) -> Wire {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|end| format!("aut{}-{number}{end}", std::process::id()));
        names.iter().for_each(|name| {
            run("ip", &["netns", "add", name]);
        });
        let counters = NamedTempFile::new().unwrap();
        let mut relay = Command::new(AUSTER)
            .args(["lab", "link", "--seed", "7", "--counters"])
            .arg(counters.path())
            .arg(format!("{}:t0={}:t0,{impairment}", names[0], names[1]))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(relay.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        let wire = Wire {
            names,
            relay,
            counters,
        };
        assert_eq!(ready, "ready\n");
        let macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
        for (n, name) in wire.names.iter().enumerate() {
            // Only frames that the test sends may draw from the seed: no IPv6, no ARP.
            let quiet = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; \
                         echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
            run("ip", &["netns", "exec", name, "sh", "-c", quiet]);
            let (address, peer) = (format!("10.9.0.{}/24", n + 1), format!("10.9.0.{}", 2 - n));
            for words in [
                format!("link set t0 address {}", macs[n]),
                format!("addr add {address} dev t0"),
                "link set t0 up".to_string(),
                format!("neigh replace {peer} lladdr {} dev t0", macs[1 - n]),
            ] {
                let words: Vec<&str> = words.split(' ').collect();
                run("ip", &[&["-n", name.as_str()], &words[..]].concat());
            }
        }
        wire
    }

    /// Returns the round trips in milliseconds, sorted, without lost packets.
    fn ping(&self, count: u32, interval_s: &str) -> Vec<f64> {
        let count = count.to_string();
        let output = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.names[0],
                "ping",
                "-c",
                &count,
                "-i",
                interval_s,
            ])
            .args(["-W", "10", "10.9.0.2"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rtt = |line: &str| line.split("time=").nth(1)?.split(' ').next()?.parse().ok();
        let mut rtts: Vec<f64> = text.lines().filter_map(rtt).collect();
        rtts.sort_by(f64::total_cmp);
        rtts
    }

    /// Ends the relay and returns its counters, one per direction.
    fn counters(mut self) -> Vec<Value> {
        kill(Pid::from_raw(self.relay.id() as i32), Signal::SIGTERM).unwrap();
        assert!(self.relay.wait().unwrap().success());
        let text = std::fs::read(self.counters.path()).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.relay.kill();
        let _ = self.relay.wait();
        for name in &self.names {
            run("ip", &["netns", "del", name]);
        }
    }
}

#[test]
fn a_delay_is_added_in_both_directions_and_never_cut_short() {
    let rtts = Wire::new("delay_ms=20").ping(40, "0.01");
    assert_eq!(rtts.len(), 40);
    assert!(rtts[0] >= 40.0, "{rtts:?}");
}

#[test]
fn a_link_without_impairment_delays_nothing_by_itself() {
    let rtts = Wire::new("delay_ms=0").ping(100, "0.005");
    assert_eq!(rtts.len(), 100);
    // The least of a hundred: a busy machine delays the others.
    assert!(rtts[0] < 20.0, "{rtts:?}");
}

/// A loss of 10 % in each direction: 19 % of 1000 round trips fail, with a deviation of 12.
#[test]
fn the_same_seed_loses_as_many_packets_and_counts_them() {
    let lost: Vec<usize> = (0..2)
        .map(|_| {
            let wire = Wire::new("loss_percent=10");
            let answered = wire.ping(1000, "0.002").len();
            let counters = wire.counters();
            let total =
                |key: &str| -> u64 { counters.iter().map(|c| c[key].as_u64().unwrap()).sum() };
            assert_eq!(
                total("offered"),
                total("delivered") + total("lost"),
                "{counters:?}"
            );
            assert_eq!(total("lost") as usize, 1000 - answered, "{counters:?}");
            1000 - answered
        })
        .collect();
    assert_eq!(lost[0], lost[1]);
    assert!((130..=250).contains(&lost[0]), "{lost:?}");
}

/// 1000 bytes of data, 8 + 20 of headers, 14 of Ethernet and 24 on the line make 1066 bytes, so a
/// 10 Mbit/s link carries 9.38 Mbit/s of data.
#[test]
fn a_rate_limits_what_gets_through() {
    let wire = Wire::new("rate_mbps=10");
    let [client, server] = &wire.names;
    let mut receiver = Command::new("ip")
        .args(["netns", "exec", server, "iperf3", "-s"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The control traffic of iperf3 crosses the same full link, so iperf3 sometimes gives up.
    let script = "for n in $(seq 50); do timeout 10 iperf3 -c 10.9.0.2 -u -b 20M -l 1000 -t 2 -J \
                  && exit 0; sleep 0.1; done";
    let output = run("ip", &["netns", "exec", client, "sh", "-c", script]);
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    // Each failed attempt prints a document; the last one is the measurement.
    let start = output.rfind("\n{").map_or(0, |at| at + 1);
    let result: Value = serde_json::from_str(&output[start..]).unwrap();
    let sum = &result["end"]["sum"];
    let lost = sum["lost_percent"].as_f64().unwrap();
    let received = sum["bits_per_second"].as_f64().unwrap() * (1.0 - lost / 100.0) / 1e6;
    // The limit holds however busy the machine is; how closely it is reached depends on the
    // machine.
    assert!(
        (1.0..10.0).contains(&received),
        "{received} Mbit/s got through"
    );
    let queue_full = wire.counters()[0]["queue_full"].as_u64().unwrap();
    assert!(
        queue_full > 0,
        "the rest is dropped at the queue: {queue_full}"
    );
}
