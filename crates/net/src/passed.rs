//! Listening sockets that a service manager has opened before this process.
//!
//! The manager keeps such a socket open while the process restarts. Switches that connect meanwhile
//! wait in the socket's queue instead of being refused, and reach the new process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The passed sockets. A process receives them once, at its start, for any of its listeners.
static PASSED: Mutex<Vec<Passed>> = Mutex::new(Vec::new());

/// A socket that stays open here, as the manager has it open too: a listener that closes its copy
/// may want the address again.
struct Passed {
    socket: TcpListener,
    is_taken: bool,
}

impl Passed {
    fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }
}

/// Offers `sockets` to listeners that ask for their addresses.
///
/// # Errors
/// A socket cannot be made non-blocking.
pub fn offer(sockets: Vec<TcpListener>) -> io::Result<()> {
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    let passed = sockets.into_iter().map(|socket| Passed {
        socket,
        is_taken: false,
    });
    lock().extend(passed);
    Ok(())
}

/// A copy of the socket that listens at exactly this address, if one was passed.
pub fn take(address: SocketAddr) -> Option<TcpListener> {
    let mut passed = lock();
    let found = passed
        .iter_mut()
        .find(|passed| passed.address() == Some(address))?;
    let copy = found.socket.try_clone().ok()?;
    found.is_taken = true;
    Some(copy)
}

/// The addresses of sockets that no listener has taken: connections to them would wait for ever.
pub fn left() -> Vec<SocketAddr> {
    let passed = lock();
    let idle = passed.iter().filter(|passed| !passed.is_taken);
    idle.filter_map(Passed::address).collect()
}

fn lock() -> MutexGuard<'static, Vec<Passed>> {
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
        assert!(
            take(at).is_some(),
            "its listener was closed, and opens again"
        );
        assert_eq!(left(), [also]);
    }
}
