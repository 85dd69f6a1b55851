//! Connections that stay open without this process: their sockets are taken out of them when they
//! end here, and the peers see no end.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::net::tcp::OwnedWriteHalf;

/// Takes the socket out of a connection of plain TCP. Other connections have a state that is not in
/// the kernel.
#[derive(Clone, Debug, Default)]
pub struct Keeper(Arc<Mutex<Wish>>);

#[derive(Debug, Default)]
enum Wish {
    /// The connection ends with its halves.
    #[default]
    End,
    Keep,
    Kept(OwnedFd),
}

impl Keeper {
    /// Keeps the connection open when its halves are dropped.
    pub fn keep(&self) {
        *self.lock() = Wish::Keep;
    }

    /// Takes the socket, once both halves are dropped.
    pub fn take(&self) -> Option<TcpStream> {
        match std::mem::take(&mut *self.lock()) {
            Wish::Kept(socket) => Some(socket.into()),
            Wish::End | Wish::Keep => None,
        }
    }

    pub(super) fn half(&self, half: OwnedWriteHalf) -> KeptHalf {
        KeptHalf {
            half: Some(half),
            keeper: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wish> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The write half of a connection with a [`Keeper`].
pub(super) struct KeptHalf {
    /// The half, present until this value is dropped.
    half: Option<OwnedWriteHalf>,
    keeper: Keeper,
}

impl KeptHalf {
    fn poll<R>(
        &mut self,
        poll: impl FnOnce(Pin<&mut OwnedWriteHalf>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        match &mut self.half {
            Some(half) => poll(Pin::new(half)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl Drop for KeptHalf {
    fn drop(&mut self) {
        let mut wish = self.keeper.lock();
        if let Some(half) = self.half.take()
            && let Wish::Keep = *wish
            && let Ok(socket) = half.as_ref().as_fd().try_clone_to_owned()
        {
            *wish = Wish::Kept(socket);
            // Dropping the half would shut its direction down.
            half.forget();
        }
    }
}

impl AsyncWrite for KeptHalf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|half| half.poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|half| half.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|half| half.poll_shutdown(context))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(|half| half.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

/// Whether a connection at the local address `local` was accepted by the listener at `listener`.
pub(super) fn came_by(listener: SocketAddr, local: SocketAddr) -> bool {
    let (at, ip) = (listener.ip(), local.ip());
    let is_any = at.is_unspecified() && at.is_ipv4() == ip.is_ipv4();
    listener.port() == local.port() && (is_any || at == ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_belongs_to_the_listener_of_its_address() {
        let came = |listener: &str, local: &str| {
            came_by(listener.parse().unwrap(), local.parse().unwrap())
        };
        assert!(came("127.0.0.1:6653", "127.0.0.1:6653"));
        assert!(came("0.0.0.0:6653", "192.0.2.7:6653"));
        assert!(came("[::]:6653", "[2001:db8::1]:6653"));
        assert!(!came("127.0.0.1:6653", "127.0.0.1:6654"));
        assert!(!came("127.0.0.1:6653", "192.0.2.7:6653"));
        assert!(!came("[::]:6653", "192.0.2.7:6653"));
        assert!(!came("0.0.0.0:6653", "[2001:db8::1]:6653"));
    }
}
