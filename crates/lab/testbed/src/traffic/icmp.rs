//! Round trips of a flow's first packet and of the later ones, by ICMP echo.
//!
//! Each trial is a stranger that pings the other host. No switch has an entry for the first request
//! or for its answer, so the controller takes part twice, as in a first ping between two hosts, but
//! without ARP. The later pings meet the entries.

use std::time::{Duration, Instant};

use openflow::packet::build;

use crate::traffic::stranger::{Door, ipv4_to, stranger};
use cli::failure::Failure;

const ICMP: u8 = 1;
const ECHO_REPLY: u8 = 0;
/// The data of an echo request, as long as ping(8)'s.
const DATA: [u8; 56] = [0x61; 56];
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Time between two pings of a trial. The second also waits for twice the first round trip, so that
/// later pings meet the entries that the first ping caused: a controller sends some entries only
/// when others are in place.
const REST: Duration = Duration::from_millis(10);
pub const LATER_PINGS: usize = 3;

/// One trial's round trips, in milliseconds; `None` is a lost ping.
#[derive(Debug)]
pub struct Trial {
    pub first_ms: Option<f64>,
    pub later_ms: Vec<Option<f64>>,
}

/// Measures the trial of one stranger.
pub fn measure(from: &Door, to: &Door, number: usize) -> Result<Trial, Failure> {
    let failed = |e: std::io::Error| Failure::machine(format!("ping: {e}"));
    to.introduce(stranger(number))?;
    let first_ms = ping(from, to, number, 0).map_err(failed)?;
    std::thread::sleep(Duration::from_secs_f64(2.0 * first_ms.unwrap_or(0.0) / 1e3));
    let mut later_ms = Vec::new();
    for sequence in 1..=LATER_PINGS {
        std::thread::sleep(REST);
        later_ms.push(ping(from, to, number, sequence as u16).map_err(failed)?);
    }
    Ok(Trial { first_ms, later_ms })
}

/// The round trip, or `None` when no answer arrived in time.
fn ping(from: &Door, to: &Door, number: usize, sequence: u16) -> std::io::Result<Option<f64>> {
    let (identity, id) = (stranger(number), number as u16);
    let request = build::icmp_echo_request(identity, to.host, id, sequence, &DATA);
    let sent = Instant::now();
    from.send(&request);
    let mut buffer = [0; 2048];
    while let Some(frame) = from.receive(&mut buffer, sent + ANSWER_TIME_MAX)? {
        let rtt = sent.elapsed();
        let Some(icmp) = ipv4_to(frame, identity.mac, ICMP) else {
            continue;
        };
        let wanted = [id.to_be_bytes(), sequence.to_be_bytes()].concat();
        if icmp.first() == Some(&ECHO_REPLY) && icmp.get(4..8) == Some(&wanted) {
            return Ok(Some(rtt.as_secs_f64() * 1e3));
        }
    }
    Ok(None)
}
