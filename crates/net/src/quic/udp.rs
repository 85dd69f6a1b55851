//! Our own UDP socket below quinn, for connections that are scheduled.
//!
//! The stock socket sets the type-of-service byte of each datagram to its ECN bits alone, which
//! wipes out any code point. It also takes a burst of datagrams at a time. Our socket marks each
//! datagram and takes one at a time. Its send buffer has room for few, so the rest wait above it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, ready};

use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use socket2::SockRef;
use tokio::io::Interest;

use crate::pace::Pace;

/// Room for three datagrams of 1200 bytes: the kernel doubles this size, and counts each as about
/// 2300 bytes.
const SEND_BUFFER_BYTES: usize = 4096;

/// Code points by destination, where one socket has connections of several classes.
#[derive(Clone, Debug, Default)]
pub struct Marks(Arc<RwLock<BTreeMap<SocketAddr, u8>>>);

impl Marks {
    /// Marks later datagrams to `destination` with `dscp`.
    pub fn set(&self, destination: SocketAddr, dscp: u8) {
        let mut marks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        marks.insert(destination, dscp);
    }

    /// Moves the mark of `from` to the address `to`.
    pub fn rename(&self, from: SocketAddr, to: SocketAddr) {
        let mut marks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(dscp) = marks.remove(&from) {
            marks.insert(to, dscp);
        }
    }

    pub fn forget(&self, destination: SocketAddr) {
        let mut marks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        marks.remove(&destination);
    }

    fn get(&self, destination: SocketAddr) -> Option<u8> {
        let marks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        marks.get(&destination).copied()
    }
}

/// Marks every datagram with one code point, unless its destination has another.
#[derive(Debug)]
pub struct MarkingSocket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
    dscp: u8,
    marks: Marks,
    /// The pace that counts every datagram that leaves.
    pace: Option<Arc<Pace>>,
}

impl MarkingSocket {
    pub fn new(
        socket: std::net::UdpSocket,
        dscp: u8,
        pace: Option<Arc<Pace>>,
        marks: Marks,
    ) -> io::Result<MarkingSocket> {
        SockRef::from(&socket).set_send_buffer_size(SEND_BUFFER_BYTES)?;
        Ok(MarkingSocket {
            state: UdpSocketState::new((&socket).into())?,
            io: tokio::net::UdpSocket::from_std(socket)?,
            dscp,
            marks,
            pace,
        })
    }

    fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let ecn = transmit.ecn.map_or(0, |ecn| ecn as u8);
        let dscp = self.marks.get(transmit.destination).unwrap_or(self.dscp);
        let (tos, class) = (dscp << 2 | ecn, i32::from(dscp << 2 | ecn));
        let mut control = vec![match transmit.destination {
            SocketAddr::V4(_) => ControlMessage::Ipv4Tos(&tos),
            SocketAddr::V6(_) => ControlMessage::Ipv6TClass(&class),
        }];
        let (v4, v6);
        match transmit.src_ip {
            Some(IpAddr::V4(address)) => {
                v4 = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(address.octets()),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                control.push(ControlMessage::Ipv4PacketInfo(&v4));
            }
            Some(IpAddr::V6(address)) => {
                v6 = libc::in6_pktinfo {
                    ipi6_ifindex: 0,
                    ipi6_addr: libc::in6_addr {
                        s6_addr: address.octets(),
                    },
                };
                control.push(ControlMessage::Ipv6PacketInfo(&v6));
            }
            None => {}
        }
        let to = SockaddrStorage::from(transmit.destination);
        let content = [IoSlice::new(transmit.contents)];
        let flags = MsgFlags::empty();
        match sendmsg(self.io.as_raw_fd(), &content, &control, flags, Some(&to)) {
            Err(nix::Error::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
            // Like the stock socket: QUIC treats a datagram that could not be sent as lost, and one
            // that is too long as a probe of the path.
            Err(error) => {
                tracing::debug!(to = %transmit.destination, %error, "a datagram was not sent");
                Ok(())
            }
            Ok(bytes) => {
                if let Some(pace) = &self.pace {
                    pace.sent_datagram(bytes);
                }
                Ok(())
            }
        }
    }
}

impl AsyncUdpSocket for MarkingSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller {
            socket: self,
            waiting: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.io.try_io(Interest::WRITABLE, || self.send(transmit))
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(context))?;
            let received = self.io.try_io(Interest::READABLE, || {
                self.state.recv((&self.io).into(), buffers, meta)
            });
            if let Ok(count) = received {
                return Poll::Ready(Ok(count));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    fn max_transmit_segments(&self) -> usize {
        1
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }
}

type Writable = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// One connection that waits for the socket; each has its own waker.
struct Poller {
    socket: Arc<MarkingSocket>,
    waiting: Option<Writable>,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = self.socket.clone();
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(async move { socket.io.writable().await }));
        let result = ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        Poll::Ready(result)
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use nix::cmsg_space;
    use nix::sys::socket::{ControlMessageOwned, recvmsg, setsockopt, sockopt};
    use quinn::udp::EcnCodepoint;

    use super::*;

    /// The type-of-service byte that a datagram with `dscp` and `ecn` arrives with.
    async fn arrives(host: &str, dscp: u8, ecn: Option<EcnCodepoint>) -> i32 {
        let receiver = std::net::UdpSocket::bind((host, 0)).unwrap();
        let destination = receiver.local_addr().unwrap();
        match destination {
            SocketAddr::V4(_) => setsockopt(&receiver, sockopt::IpRecvTos, &true).unwrap(),
            SocketAddr::V6(_) => setsockopt(&receiver, sockopt::Ipv6RecvTClass, &true).unwrap(),
        }
        let sender = std::net::UdpSocket::bind((host, 0)).unwrap();
        sender.set_nonblocking(true).unwrap();
        let sender = MarkingSocket::new(sender, dscp, None, Marks::default()).unwrap();
        sender.io.writable().await.unwrap();
        let transmit = Transmit {
            destination,
            ecn,
            contents: b"datagram",
            segment_size: None,
            src_ip: Some(destination.ip()),
        };
        sender.try_send(&transmit).unwrap();
        let mut bytes = [0; 64];
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        let mut control = cmsg_space!(i32);
        let flags = MsgFlags::empty();
        let fd = receiver.as_raw_fd();
        let got = recvmsg::<()>(fd, &mut buffers, Some(&mut control), flags).unwrap();
        assert_eq!(got.bytes, 8);
        match got.cmsgs().unwrap().next() {
            Some(ControlMessageOwned::Ipv4Tos(tos)) => i32::from(tos),
            Some(ControlMessageOwned::Ipv6TClass(class)) => class,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn each_datagram_has_its_code_point_and_its_ecn_bits() {
        for host in ["127.0.0.1", "::1"] {
            for dscp in [48, 40, 34, 46, 0, 63] {
                let plain = arrives(host, dscp, None).await;
                assert_eq!(plain, i32::from(dscp) << 2, "{host}");
                let ect = arrives(host, dscp, Some(EcnCodepoint::Ect0)).await;
                assert_eq!(ect, i32::from(dscp) << 2 | 2, "{host}");
            }
        }
    }
}
