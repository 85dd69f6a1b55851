//! The socket of the dialling side: one connection's own, of which there may be a thousand in a
//! process.
//!
//! It reports whether anything at all has come, which a connection does not say before it is there:
//! where nothing has, UDP may be blocked on the way. And it takes its datagrams one by one: for
//! those that the kernel has joined quinn keeps 3 MiB per socket, to hold 32 of them at their
//! greatest; 32 datagrams take 47 KiB.

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

/// Whether any datagram has come.
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
    /// `wrap` makes quinn's socket of `socket`.
    pub fn new(
        socket: std::net::UdpSocket,
        heard: Heard,
        wrap: impl FnOnce(std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>>,
    ) -> io::Result<Arc<DiallingSocket>> {
        let same = socket.try_clone()?;
        let socket = wrap(socket)?;
        // quinn has just asked for them. A kernel that has no such option joins nothing.
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
