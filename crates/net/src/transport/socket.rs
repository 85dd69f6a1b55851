//! Socket options: every bound on what the kernel holds for us is set here.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::passed;

/// Bytes the kernel may hold unsent for one connection. Above it the socket is not writable, so
/// that messages wait where they are scheduled: measured, scheduling above default buffers gave
/// 93 ms of delay to the high class and above bounded ones 2.8 ms.
const UNSENT_BYTES_MAX: u32 = 16 << 10;
/// The same bound where messages are scheduled: an urgent message waits for as many bytes.
const LINE_UNSENT_BYTES_MAX: u32 = 4 << 10;
/// Half of the bytes that the kernel may hold unread for one connection: it doubles the figure. A
/// reply waits behind these bytes; with the buffers that Linux grows by itself, it would wait
/// behind six MiB of packet-ins from each switch. Over a round trip of 100 ms this carries at least
/// 2.5 MB/s.
const UNREAD_BYTES_MAX: usize = 256 << 10;
/// Sent bytes that are not acknowledged for this long end the connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_PROBES: u32 = 3;
/// The bound of a Unix socket: it has no mark for unsent bytes, so its send buffer limits them.
const UNIX_SEND_BUFFER_BYTES: usize = 64 << 10;
/// Switches that reconnect all at once; the system caps it at net.core.somaxconn.
const LISTEN_QUEUE_MAX: i32 = 4096;

/// Sets the options of an established TCP connection.
pub(super) fn tune_tcp(stream: &tokio::net::TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEP_ALIVE_IDLE)
            .with_interval(KEEP_ALIVE_INTERVAL)
            .with_retries(KEEP_ALIVE_PROBES),
    )
}

/// Sets the options of a TCP connection that is the limited link below a scheduler.
pub(super) fn tune_line(stream: &tokio::net::TcpStream, line: LineSocket) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_notsent_lowat(LINE_UNSENT_BYTES_MAX)?;
    if let Some(dscp) = line.dscp {
        let tos = u32::from(dscp) << 2;
        match stream.local_addr()? {
            SocketAddr::V4(_) => socket.set_tos_v4(tos)?,
            SocketAddr::V6(_) => socket.set_tclass_v6(tos)?,
        }
    }
    Ok(())
}

/// The socket options of a scheduled link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineSocket {
    /// A TCP connection has one code point for all that it carries.
    pub dscp: Option<u8>,
}

/// A TCP connection that takes a write only while little is unsent.
///
/// A socket's buffer takes as many bytes as its last segment has room for, whatever the mark is.
/// Each write therefore first asks whether the socket is writable, which the mark decides.
#[derive(Debug)]
pub(super) struct BoundedTcp(pub TcpStream);

impl AsyncRead for BoundedTcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for BoundedTcp {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            let written = self.0.try_io(Interest::WRITABLE, || {
                if is_writable(&self.0)? {
                    SockRef::from(&self.0).send(bytes)
                } else {
                    Err(io::ErrorKind::WouldBlock.into())
                }
            });
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Whether less than the mark is unsent, or the connection is broken, which the write will report.
fn is_writable(stream: &TcpStream) -> io::Result<bool> {
    let mut asked = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    Ok(poll(&mut asked, PollTimeout::ZERO)? > 0)
}

pub(super) fn tune_unix(stream: &tokio::net::UnixStream) -> io::Result<()> {
    SockRef::from(stream).set_send_buffer_size(UNIX_SEND_BUFFER_BYTES)
}

pub(super) async fn dial_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    SockRef::from(&socket).set_recv_buffer_size(UNREAD_BYTES_MAX)?;
    socket.connect(address).await
}

pub(super) fn listen_tcp(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    if let Some(passed) = passed::take(address) {
        let socket = SockRef::from(&passed);
        socket.set_recv_buffer_size(UNREAD_BYTES_MAX)?;
        // It listens already. This sets the length of its queue.
        socket.listen(LISTEN_QUEUE_MAX)?;
        return tokio::net::TcpListener::from_std(passed);
    }
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    // Accepted connections inherit it from the listener: later the window is agreed already.
    socket.set_recv_buffer_size(UNREAD_BYTES_MAX)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_QUEUE_MAX)?;
    tokio::net::TcpListener::from_std(socket.into())
}
