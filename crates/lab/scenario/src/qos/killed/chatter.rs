//! Hosts that say something now and then: a controller that has just started hears of them, and the
//! paths between them do not expire.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use openflow::packet::build::{self, Host};

use testbed::netns;
use testbed::network::Network;

/// The time between two packets of a host.
const INTERVAL: Duration = Duration::from_millis(200);
const PORTS: (u16, u16) = (9000, 9);

/// It ends when it is dropped.
pub struct Chatter {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Speaker {
    out: File,
    frames: [Vec<u8>; 2],
}

impl Chatter {
    /// Each of these hosts, by their places, asks who has the next one's address, and sends it a
    /// datagram.
    pub fn start(network: &Network, hosts: &[usize]) -> io::Result<Chatter> {
        let mut speakers = Vec::new();
        let next = hosts.iter().cycle().skip(1);
        for (from, to) in hosts.iter().zip(next) {
            let of = |place: usize| {
                let host = &network.topology.hosts[place];
                Host {
                    mac: host.mac,
                    ip: host.address,
                }
            };
            let namespace = network.namespace(&network.topology.hosts[*from].name);
            let (from, to) = (of(*from), of(*to));
            speakers.push(Speaker {
                out: File::from(netns::open_packet_sender(&namespace, "eth0")?),
                frames: [
                    build::arp_request(from, to.ip),
                    build::udp(from, to, PORTS, b"still here"),
                ],
            });
        }
        let stops = Arc::new(AtomicBool::new(false));
        let is_over = stops.clone();
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                for Speaker { out, frames } in &mut speakers {
                    for frame in frames {
                        if let Err(error) = out.write_all(frame) {
                            tracing::debug!("frame not sent: {error}");
                        }
                    }
                }
                std::thread::sleep(INTERVAL);
            }
        });
        Ok(Chatter {
            stops,
            thread: Some(thread),
        })
    }
}

impl Drop for Chatter {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
