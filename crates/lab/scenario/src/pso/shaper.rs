//! A wire of a limited rate: the kernel's HTB at an interface, with a short queue.

use cli::program;
use std::process::Command;

use serde::Serialize;
use serde_json::Value;

use crate::pso::trial::Place;
use cli::failure::Failure;
use testbed::netns;

/// The burst that the wire allows beyond its rate: one packet. More would be a queue without a
/// delay.
const BURST_BYTES: u32 = 1600;

/// The traffic that an interface has sent since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    pub bytes: u64,
    pub packets: u64,
    /// Packets for which the queue had no room.
    pub dropped: u64,
}

impl Traffic {
    pub fn since(self, before: Traffic) -> Traffic {
        Traffic {
            bytes: self.bytes - before.bytes,
            packets: self.packets - before.packets,
            dropped: self.dropped - before.dropped,
        }
    }
}

/// Limits what goes out of an interface. Segmentation offload is off afterwards: the wire carries
/// packets of its own size, one by one.
pub fn limit(place: &Place, mbps: f64, queue_packets: u32) -> Result<(), Failure> {
    let Place { namespace, device } = place;
    netns::disable_checksum_offload(namespace, std::slice::from_ref(device))
        .map_err(|e| Failure::machine(format!("{namespace}: {e}")))?;
    let bits = (mbps * 1e6).round() as u64;
    for words in [
        format!("qdisc replace dev {device} root handle 1: htb default 1"),
        format!(
            "class replace dev {device} parent 1: classid 1:1 htb rate {bits}bit ceil {bits}bit \
             burst {BURST_BYTES} cburst {BURST_BYTES} quantum {BURST_BYTES}"
        ),
        format!("qdisc replace dev {device} parent 1:1 handle 10: pfifo limit {queue_packets}"),
    ] {
        tc(namespace, &words)?;
    }
    Ok(())
}

/// Reads the traffic that a limited interface has sent.
pub fn traffic(place: &Place) -> Result<Traffic, Failure> {
    let text = tc(
        &place.namespace,
        &format!("-s -j qdisc show dev {}", place.device),
    )?;
    let queues: Value = serde_json::from_str(&text).unwrap_or_default();
    let root = (queues.as_array().into_iter().flatten())
        .find(|queue| queue["root"] == true)
        .ok_or_else(|| Failure::machine(format!("tc: no queue at {}", place.device)))?;
    let number = |key: &str| root[key].as_u64().unwrap_or(0);
    Ok(Traffic {
        bytes: number("bytes"),
        packets: number("packets"),
        dropped: number("drops"),
    })
}

fn tc(namespace: &str, words: &str) -> Result<String, Failure> {
    let mut command = Command::new("tc");
    command.args(["-n", namespace]).args(words.split(' '));
    program::run(command)
}
