//! The socket of the dialling side. Each connection has its own, and a process may have a thousand.
//!
//! The socket reports whether any datagram has arrived, which a connection does not report before
//! it is established. If none has arrived, UDP may be blocked on the path. The socket receives its
//! datagrams one by one. For datagrams that the kernel has joined, quinn keeps 3 MiB per socket,
//! room for 32 of the greatest size; 32 single datagrams take 47 KiB.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use nix::sys::socket::{setsockopt, sockopt};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// Whether any datagram has arrived.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<AtomicBool>);

impl Heard {
    pub fn anything(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) struct DiallingSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    heard: Heard,
}

impl DiallingSocket {
    /// Creates the socket. `wrap` turns `socket` into quinn's socket.
    pub fn new(
        socket: std::net::UdpSocket,
        heard: Heard,
        wrap: impl FnOnce(std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>>,
    ) -> io::Result<Arc<DiallingSocket>> {
        let same = socket.try_clone()?;
        let socket = wrap(socket)?;
        // quinn has just asked for joined datagrams. A kernel without this option joins nothing.
        let _ = setsockopt(&same, sockopt::UdpGroSegment, &false);
        Ok(Arc::new(DiallingSocket { socket, heard }))
    }
}

impl AsyncUdpSocket for DiallingSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.socket.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = ready!(self.socket.poll_recv(context, buffers, meta));
        if matches!(received, Ok(count) if count > 0) {
            self.heard.0.store(true, Ordering::Relaxed);
        }
        Poll::Ready(received)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        1
    }
}

impl fmt::Debug for DiallingSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DiallingSocket").field(&self.socket).finish()
    }
}
