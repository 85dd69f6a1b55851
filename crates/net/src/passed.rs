//! Listening sockets that a service manager has opened before this process.
//!
//! The manager keeps such a socket while the process restarts. Switches that connect meanwhile
//! wait in its queue instead of being refused, and find the successor.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A process gets its sockets once, at its start, and any of its listeners may be meant.
static PASSED: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());

/// Offers `sockets` to listeners that ask for their addresses.
///
/// # Errors
/// A socket cannot be made non-blocking.
pub fn offer(sockets: Vec<TcpListener>) -> io::Result<()> {
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    lock().extend(sockets);
    Ok(())
}

/// Takes the socket that listens at exactly this address, if one was passed.
pub fn take(address: SocketAddr) -> Option<TcpListener> {
    let mut passed = lock();
    let is_at = |socket: &TcpListener| socket.local_addr().is_ok_and(|at| at == address);
    let index = passed.iter().position(is_at)?;
    Some(passed.swap_remove(index))
}

/// The addresses of sockets that nobody has taken: connections to them would wait for ever.
pub fn left() -> Vec<SocketAddr> {
    let passed = lock();
    let addresses = passed.iter().map(TcpListener::local_addr);
    addresses.filter_map(Result::ok).collect()
}

fn lock() -> MutexGuard<'static, Vec<TcpListener>> {
    PASSED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_goes_to_the_listener_of_its_address() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, also) = (socket.local_addr().unwrap(), other.local_addr().unwrap());
        offer(vec![socket, other]).unwrap();

        let everywhere = SocketAddr::from(([0, 0, 0, 0], at.port()));
        assert!(take(everywhere).is_none(), "it listens on loopback alone");
        assert!(take(SocketAddr::from(([127, 0, 0, 1], 0))).is_none());
        assert_eq!(take(at).unwrap().local_addr().unwrap(), at);
        assert!(take(at).is_none(), "each is given out once");
        assert_eq!(left(), [also]);
    }
}
