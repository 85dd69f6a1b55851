//! Ports for programs that cannot say which one they took.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports below the kernel's range for sockets that name no port.
const PORTS: std::ops::Range<u32> = 10_240..32_768;
/// Tests that run at the same time have pids close to each other; each tries ports of its own.
const PORTS_PER_PROCESS: u32 = 64;

/// A port that is free for both TCP and UDP.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_PER_PROCESS);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + first.wrapping_add(next) % (PORTS.end - PORTS.start);
        let port = u16::try_from(port).expect("all ports are below 32,768");
        let taken = (
            TcpListener::bind(("0.0.0.0", port)),
            UdpSocket::bind(("0.0.0.0", port)),
        );
        if let (Ok(_), Ok(_)) = taken {
            return port;
        }
    }
}
