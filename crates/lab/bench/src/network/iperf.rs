//! iperf (2) and iperf3 between the same two hosts, as a check on our own figures.
//!
//! The two tools do not always give a name the same meaning as we do. Both count reordered
//! datagrams as RFC 4737 does and report RFC 3550's jitter. Their transfer time ends when the
//! sender has written, or has been acknowledged, and not when the connection is closed.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::network::tcp::Ends;
use crate::network::udp::Pace;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use report::machine::version_line;
use testbed::network::Network;
use testbed::plane::wait_for_listener;
use testbed::tools;

const IPERF_PORT: u16 = 5001;
const IPERF3_PORT: u16 = 5201;
/// The longest that a client may take beyond its own duration.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    Iperf,
    Iperf3,
}

/// The versions, as each says itself.
#[derive(Clone, Debug, Serialize)]
pub struct Versions {
    pub iperf: String,
    pub iperf3: String,
}

/// The figures that a tool reports of a UDP stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Datagrams {
    pub sent: u64,
    pub lost: u64,
    pub jitter_ms: f64,
    pub reordered: u64,
}

impl Versions {
    pub fn here() -> Result<Versions, Failure> {
        let versions = Versions {
            iperf: version_line("iperf", "--version"),
            iperf3: version_line("iperf3", "--version"),
        };
        let found = [("iperf", &versions.iperf), ("iperf3", &versions.iperf3)];
        let missing: Vec<&str> = found
            .iter()
            .filter(|(_, version)| *version == "unknown")
            .map(|(program, _)| *program)
            .collect();
        match missing.is_empty() {
            true => Ok(versions),
            false => Err(Failure::machine(format!(
                "{} not found: apt-get install {}, or leave them out with --no-iperf",
                missing.join(", "),
                missing.join(" ")
            ))),
        }
    }
}

/// Starts the servers of both tools at a host; they end with the network.
pub fn start_servers(network: &mut Network, host: &str) -> Result<(), Failure> {
    let port = IPERF_PORT.to_string();
    for words in [&["-s", "-p", &port][..], &["-s", "-u", "-p", &port]] {
        network.spawn("iperf", Some(host), "iperf", |command| {
            command.args(words);
        })?;
    }
    network.spawn("iperf3", Some(host), "iperf3", |command| {
        // Or it listens where the search below does not look.
        command.args(["-s", "-4", "-p", &IPERF3_PORT.to_string()]);
    })?;
    wait_for_listener(network, host, IPERF_PORT, "iperf.log")?;
    wait_for_listener(network, host, IPERF3_PORT, "iperf3.log")
}

impl Tool {
    pub fn name(self) -> &'static str {
        match self {
            Tool::Iperf => "iperf",
            Tool::Iperf3 => "iperf3",
        }
    }

    /// How long a transfer of this many bytes took, by the tool's own clock.
    pub fn transfer(
        self,
        network: &Network,
        ends: &Ends,
        size_bytes: u64,
        interrupt: &Interrupt,
    ) -> Result<Duration, Failure> {
        let size = size_bytes.to_string();
        // iperf3 sends whole blocks: one that is larger than all would send more than was asked.
        let block = size_bytes.min(128 * 1024).to_string();
        let words = match self {
            Tool::Iperf => vec!["-n", &size, "-e", "-f", "m"],
            Tool::Iperf3 => vec!["-n", &size, "-l", &block, "-J"],
        };
        let text = self.run(network, ends, &words, Duration::ZERO, interrupt)?;
        let seconds = match self {
            Tool::Iperf => iperf_seconds(&text),
            Tool::Iperf3 => iperf3_end(&text).and_then(|end| end["sum_sent"]["seconds"].as_f64()),
        };
        let seconds = seconds.filter(|s| s.is_finite() && *s >= 0.0);
        seconds
            .map(Duration::from_secs_f64)
            .ok_or_else(|| self.unread(&text))
    }

    pub fn datagrams(
        self,
        network: &Network,
        ends: &Ends,
        pace: &Pace,
        interrupt: &Interrupt,
    ) -> Result<Datagrams, Failure> {
        // In bits: the one's M is 2^20, the other's 10^6.
        let rate = ((pace.rate_mbps * 1e6) as u64).to_string();
        let length = pace.datagram_bytes.to_string();
        let seconds = pace.duration.as_secs_f64();
        let time = match self {
            Tool::Iperf => seconds.to_string(),
            // Whole seconds only.
            Tool::Iperf3 => seconds.ceil().to_string(),
        };
        let mut words = vec!["-u", "-b", &rate, "-l", &length, "-t", &time];
        words.extend(match self {
            Tool::Iperf => &["-f", "m"][..],
            Tool::Iperf3 => &["-J"],
        });
        let text = self.run(network, ends, &words, pace.duration, interrupt)?;
        let read = match self {
            Tool::Iperf => iperf_datagrams(&text),
            Tool::Iperf3 => iperf3_datagrams(&text),
        };
        read.ok_or_else(|| self.unread(&text))
    }

    /// A client at the first host; its standard output.
    fn run(
        self,
        network: &Network,
        ends: &Ends,
        words: &[&str],
        duration: Duration,
        interrupt: &Interrupt,
    ) -> Result<String, Failure> {
        let failed = |e: &dyn std::fmt::Display| Failure::machine(format!("{}: {e}", self.name()));
        let port = match self {
            Tool::Iperf => IPERF_PORT,
            Tool::Iperf3 => IPERF3_PORT,
        };
        let mut command = tools::lab_command(network.ledger(), Some(&ends.from), self.name());
        command
            .args(["-c", &ends.address.to_string(), "-p", &port.to_string()])
            .args(words)
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(&e))?;
        let mut stdout = child.stdout.take().expect("it is piped");
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        });
        let deadline = Instant::now() + duration + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|e| failed(&e))? {
                break status;
            }
            if interrupt.is_set() || Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(&"it did not end"));
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        let text = reader.join().map_err(|_| failed(&"its reader died"))?;
        let text = text.map_err(|e| failed(&e))?;
        match status.success() {
            true => Ok(text),
            false => Err(failed(&format!("it ended with {status}"))),
        }
    }

    fn unread(self, text: &str) -> Failure {
        let last = text.lines().last().unwrap_or_default();
        Failure::machine(format!("{} said nothing to be read: '{last}'", self.name()))
    }
}

/// The seconds in `[  1] 0.0000-0.0198 sec  0.062 MBytes ...`, the last such line.
fn iperf_seconds(text: &str) -> Option<f64> {
    let line = text.lines().rfind(|line| line.contains(" sec "))?;
    let interval = line.split_once(']')?.1.split_whitespace().next()?;
    interval.split_once('-')?.1.parse().ok()
}

/// From what the server reported to the client:
/// `[  1] 0.0000-1.0027 sec  0.629 MBytes  5.27 Mbits/sec   0.001 ms 0/449 (0%)`, and a line of
/// its own if any came out of order.
fn iperf_datagrams(text: &str) -> Option<Datagrams> {
    let report = text.split_once("Server Report:")?.1;
    let words: Vec<&str> = report.split_whitespace().collect();
    let ms = words
        .windows(2)
        .position(|pair| pair[0] == "ms" && pair[1].contains('/'))?;
    let jitter_ms = words[..ms].last()?.parse().ok()?;
    // `0/449` or `0/ 449`, by the version.
    let counts = format!("{}{}", words.get(ms + 1)?, words.get(ms + 2)?);
    let (lost, total) = counts.split_once('/')?;
    let digits: String = total.chars().take_while(char::is_ascii_digit).collect();
    let reordered = report
        .lines()
        .find(|line| line.contains("out-of-order"))
        .and_then(|line| line.split_once("datagrams")?.0.split_whitespace().last())
        .map_or(Some(0), |count| count.parse().ok())?;
    Some(Datagrams {
        sent: digits.parse().ok()?,
        // Below zero when copies came.
        lost: lost.parse::<i64>().ok()?.max(0) as u64,
        jitter_ms,
        reordered,
    })
}

fn iperf3_end(text: &str) -> Option<Value> {
    let document: Value = serde_json::from_str(text).ok()?;
    document.get("end").cloned()
}

fn iperf3_datagrams(text: &str) -> Option<Datagrams> {
    let end = iperf3_end(text)?;
    let udp = &end["streams"][0]["udp"];
    let count = |key: &str| udp[key].as_i64().map(|n| n.max(0) as u64);
    Some(Datagrams {
        sent: count("packets")?,
        lost: count("lost_packets")?,
        jitter_ms: udp["jitter_ms"].as_f64()?,
        reordered: count("out_of_order")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// iperf 2.1.8, `-c -u -b 5000000 -l 1470 -t 1 -f m`.
    const UDP: &str = "\
[  1] 0.0000-1.0028 sec  0.629 MBytes  5.27 Mbits/sec  448/0      449 pps
[  1] Sent 450 datagrams
[  1] Server Report:
[ ID] Interval       Transfer     Bandwidth        Jitter   Lost/Total Datagrams
[  1] 0.0000-1.0027 sec  0.629 MBytes  5.27 Mbits/sec   0.012 ms 3/449 (0.67%)
";

    #[test]
    fn iperf_is_read() {
        let tcp = "[ ID] Interval            Transfer    Bandwidth\n\
                   [  1] 0.0000-0.0198 sec  0.062 MBytes  26.4 Mbits/sec  1/0\n";
        assert_eq!(iperf_seconds(tcp), Some(0.0198));
        let right = Datagrams {
            sent: 449,
            lost: 3,
            jitter_ms: 0.012,
            reordered: 0,
        };
        assert_eq!(iperf_datagrams(UDP), Some(right));
        let late = format!("{UDP}[  1] 0.0000-1.0027 sec  47 datagrams received out-of-order\n");
        let read = iperf_datagrams(&late).map(|d| d.reordered);
        assert_eq!(read, Some(47));
        let wide = UDP.replace("3/449 (0.67%)", "3/ 449 (0.67%)");
        assert_eq!(iperf_datagrams(&wide), Some(right));
        for end in 0..UDP.len() - 20 {
            iperf_datagrams(&UDP[..end]);
        }
        assert_eq!(iperf_datagrams("connect failed: Connection refused"), None);
    }

    #[test]
    fn iperf3_is_read() {
        let udp = r#"{"end": {"streams": [{"udp": {"jitter_ms": 0.25, "lost_packets": 2,
                      "packets": 425, "out_of_order": 5}}], "sum_sent": {"seconds": 1.5}}}"#;
        let right = Datagrams {
            sent: 425,
            lost: 2,
            jitter_ms: 0.25,
            reordered: 5,
        };
        assert_eq!(iperf3_datagrams(udp), Some(right));
        assert_eq!(iperf3_datagrams(r#"{"error": "unable to connect"}"#), None);
        assert_eq!(iperf3_datagrams("iperf3: error"), None);
    }
}
