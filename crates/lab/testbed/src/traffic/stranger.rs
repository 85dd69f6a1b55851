//! Hosts that the network has never seen: Ethernet and IPv4 addresses of no interface. A real
//! host's own interface sends their packets as whole frames.
//!
//! A flow is new to a controller that has not seen its addresses. A host's real address is new only
//! once; each stranger is new again, without a change to the switches' tables that a controller
//! would have to notice and repair.

use cli::program;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send, setsockopt, sockopt};
use openflow::MacAddr;
use openflow::packet::build::{self, Host};

use crate::netns;
use cli::failure::Failure;

/// Strangers are numbered over the whole network: 10.64.0.0 onwards, beyond the lab's own hosts.
pub fn stranger(number: usize) -> Host {
    let [_, a, b, c] = (number as u32).to_be_bytes();
    Host::new(
        MacAddr([0x02, b'n', b'e', a, b, c]),
        Ipv4Addr::new(10, 64 | a, b, c),
    )
}

/// A socket for whole frames at a host's interface, and the host itself.
pub struct Door {
    socket: OwnedFd,
    pub host: Host,
    namespace: String,
}

impl Door {
    /// Opens the door of a host in its namespace.
    pub fn at(namespace: String, host: Host) -> Result<Door, Failure> {
        let failed = |e: io::Error| Failure::machine(format!("frames of {namespace}: {e}"));
        let socket = netns::open_packet_socket(&namespace, "eth0").map_err(failed)?;
        setsockopt(&socket, sockopt::RcvBufForce, &(4 << 20)).map_err(|e| failed(e.into()))?;
        Ok(Door {
            socket,
            host,
            namespace,
        })
    }

    /// Adds a stranger to this host's neighbour table, so that an answer needs no ARP.
    pub fn introduce(&self, stranger: Host) -> Result<(), Failure> {
        let (ip, mac) = (stranger.ip, stranger.mac);
        let line = format!("neigh replace {ip} lladdr {mac} dev eth0");
        program::ip_batch(Some(&self.namespace), &[line])
    }

    /// Sends a frame. A frame that the kernel has no room for is lost like any other.
    pub fn send(&self, frame: &[u8]) {
        if let Err(e) = send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) {
            tracing::debug!("frame not sent: {e}");
        }
    }

    pub fn send_udp(&self, from: Host, to: Host, ports: (u16, u16), payload: &[u8]) {
        self.send(&build::udp(from, to, ports, payload));
    }

    /// Returns the next frame, if one arrives before the deadline.
    pub fn receive<'b>(
        &self,
        buffer: &'b mut [u8],
        deadline: Instant,
    ) -> io::Result<Option<&'b [u8]>> {
        loop {
            match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => return Ok(Some(&buffer[..len])),
                Err(nix::Error::EAGAIN) => {}
                Err(e) => return Err(e.into()),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            // Rounded up: poll(2) counts in milliseconds, and rounding down would spin.
            let left_ms = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            let timeout = PollTimeout::try_from(left_ms).unwrap_or(PollTimeout::MAX);
            poll(
                &mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)],
                timeout,
            )?;
        }
    }
}

/// The payload of an IPv4 frame of this protocol to an Ethernet address, without its IPv4 header.
pub fn ipv4_to(frame: &[u8], to: MacAddr, protocol: u8) -> Option<&[u8]> {
    let (ethernet, packet) = frame.split_at_checked(14)?;
    let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
    let is_to_host =
        ethernet[..6] == to.0 && ethernet[12..14] == [0x08, 0x00] && *packet.get(9)? == protocol;
    is_to_host.then(|| packet.get(header_bytes..)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_differ_from_each_other_and_from_the_labs_hosts() {
        let all: std::collections::BTreeSet<_> = (0..70_000)
            .map(|n| (stranger(n).mac.0, stranger(n).ip))
            .collect();
        assert_eq!(all.len(), 70_000);
        assert!(
            all.iter()
                .all(|(mac, ip)| mac[0] == 2 && ip.octets()[1] >= 64)
        );
    }

    #[test]
    fn only_what_is_for_a_stranger_is_read() {
        let (a, b) = (stranger(1), stranger(2));
        let frame = build::icmp_echo_reply(a, b, 7, 9, b"x");
        assert_eq!(ipv4_to(&frame, b.mac, 1).map(|icmp| icmp[0]), Some(0));
        assert_eq!(ipv4_to(&frame, a.mac, 1), None);
        assert_eq!(ipv4_to(&frame, b.mac, 17), None);
        for cut in 0..34 {
            assert!(
                ipv4_to(&frame[..cut], b.mac, 1).is_none_or(<[u8]>::is_empty),
                "cut at {cut}"
            );
        }
    }
}
