//! The service manager, as systemd's protocols define it: readiness and watchdog (sd_notify(3)),
//! sockets that it has opened for us (sd_listen_fds(3)), and connections that it keeps from one
//! process of a service to the next (sd_pid_notify_with_fds(3)). A process that no manager has
//! started reports nothing and opens its own sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use listenfd::ListenFd;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::time::{ClockId, clock_gettime};
use socket2::SockRef;

use crate::failure::Failure;

/// The prefix of the names of descriptors in the store. A socket unit gives other descriptors its
/// own name.
const STORED: &str = "kept-";
/// Descriptors in one message; Linux takes 253.
const DESCRIPTORS_MAX: usize = 128;

/// The time that the manager has to take a message. Its socket is almost never full.
const SEND_MAX: Duration = Duration::from_secs(1);
/// The time that the manager has to take connections.
const STORE_MAX: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// The interval of reports where the manager runs no watchdog.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Reports within the watchdog's time: the first late report must not be the last one.
const REPORTS_PER_WATCHDOG: u32 = 3;

/// The service manager that has started this process, if any.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    /// The time after which the manager ends a process that does not report.
    watchdog: Option<Duration>,
    /// Connections that the previous process has left with the manager.
    stored: Mutex<Stored>,
}

/// Connections from the manager's store, each under its name.
#[derive(Debug, Default)]
pub struct Stored {
    pub connections: Vec<(String, TcpStream)>,
    /// Descriptors that were no connections. They are closed.
    pub broken: usize,
    names: BTreeSet<String>,
}

impl Manager {
    /// Finds the manager by the environment, and takes the sockets that it passes. Call it before
    /// there are threads.
    ///
    /// # Errors
    /// Fails if a passed descriptor is no listening TCP socket.
    pub fn find() -> Result<Manager, Failure> {
        let stored = take_sockets()?;
        let manager = match std::env::var_os("NOTIFY_SOCKET") {
            None => Manager::default(),
            Some(name) => {
                let connected = connect(name.as_bytes());
                let wrong = |error| Failure::machine(format!("NOTIFY_SOCKET: {error}"));
                let number = |name| std::env::var(name).ok()?.parse().ok();
                Manager {
                    socket: Some(connected.map_err(wrong)?),
                    watchdog: watchdog(number("WATCHDOG_USEC"), number("WATCHDOG_PID")),
                    stored: Mutex::new(stored),
                }
            }
        };
        Ok(manager)
    }

    /// Reports that the work has begun, or continues after a reload.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that settings are read again, until `ready` is called.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
        let now = now.unwrap_or_default().as_micros();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Takes the connections that the previous process has left. The manager forgets them: a
    /// connection that it kept open would not end with this process.
    pub fn take_stored(&self) -> Stored {
        let stored = self.stored.lock();
        let mut stored = std::mem::take(&mut *stored.unwrap_or_else(PoisonError::into_inner));
        let forget = |name| self.send(&format!("FDSTOREREMOVE=1\nFDNAME={STORED}{name}"));
        let names = std::mem::take(&mut stored.names);
        let are_forgotten = names.iter().all(forget);
        if !are_forgotten {
            stored.broken += stored.connections.len();
            stored.connections.clear();
        }
        stored
    }

    /// Whether there is a manager that may keep connections. A manager that does not keep them
    /// closes them.
    pub fn may_keep(&self) -> bool {
        self.socket.is_some()
    }

    /// Leaves connections for the next process, each under its name, and waits until the manager
    /// has them.
    pub fn store(&self, connections: &[(String, TcpStream)]) {
        let mut by_name: BTreeMap<&str, Vec<RawFd>> = BTreeMap::new();
        for (name, socket) in connections {
            by_name.entry(name).or_default().push(socket.as_raw_fd());
        }
        let all = by_name.iter();
        let all = all.flat_map(|(name, of)| of.chunks(DESCRIPTORS_MAX).map(move |of| (name, of)));
        for (name, of) in all {
            self.send_with(&format!("FDSTORE=1\nFDNAME={STORED}{name}"), of);
        }
        // The manager closes this descriptor when it has handled all earlier messages.
        let Ok((here, there)) = nix::unistd::pipe2(OFlag::O_CLOEXEC) else {
            return;
        };
        self.send_with("BARRIER=1", &[there.as_raw_fd()]);
        drop(there);
        let mut closed = [PollFd::new(here.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(STORE_MAX).unwrap_or(PollTimeout::ZERO);
        if !matches!(poll(&mut closed, wait), Ok(1)) {
            tracing::warn!("the service manager does not take connections in time: they end");
            // The manager may hold them, and serve nobody.
            for (_, socket) in connections {
                let _ = socket.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    /// Reports as long as it is polled: a status, and to the watchdog that the process does its
    /// work. `look` answers only while the process does its work.
    pub async fn keep_informed<F>(&self, look: impl Fn() -> F)
    where
        F: Future<Output = Option<String>>,
    {
        if self.socket.is_none() {
            return;
        }
        let interval = self.watchdog.map(|time| time / REPORTS_PER_WATCHDOG);
        let interval = interval.unwrap_or(REPORT_INTERVAL);
        loop {
            let pause = match look().await {
                Some(status) => {
                    let status = status.replace('\n', " ");
                    self.send(&format!("STATUS={status}\nWATCHDOG=1"));
                    interval
                }
                // Too many questions of others may wait already: that is no reason to end the
                // process.
                None => interval.min(ASK_AGAIN),
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn send(&self, message: &str) -> bool {
        self.send_with(message, &[])
    }

    fn send_with(&self, message: &str, descriptors: &[RawFd]) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let rights = ControlMessage::ScmRights(descriptors);
        let rights = (!descriptors.is_empty()).then_some(rights);
        let bytes = [IoSlice::new(message.as_bytes())];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent = sendmsg::<()>(socket.as_raw_fd(), &bytes, rights.as_slice(), flags, None);
        if let Err(error) = sent {
            tracing::warn!("the service manager does not take '{message}': {error}");
        }
        sent.is_ok()
    }
}

/// Warns of passed sockets that nobody listens on, once all listeners are open.
pub fn warn_of_idle_sockets() {
    for address in net::passed::left() {
        tracing::warn!(
            "the service manager has opened {address}, and no setting listens there: connections \
             to it wait for ever; name it in --listen or in the configuration, or take it out of \
             the socket unit"
        );
    }
}

/// The manager's socket; a name that begins with `@` is in the abstract namespace.
fn connect(name: &[u8]) -> io::Result<UnixDatagram> {
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(SEND_MAX))?;
    Ok(socket)
}

/// The watchdog's time, if it is for this process.
fn watchdog(micros: Option<u64>, pid: Option<u64>) -> Option<Duration> {
    let is_for_this = pid.is_none_or(|pid| pid == u64::from(std::process::id()));
    let micros = micros.filter(|micros| is_for_this && *micros > 0)?;
    Some(Duration::from_micros(micros))
}

/// Offers the listening sockets to listeners, and returns what the manager has stored.
fn take_sockets() -> Result<Stored, Failure> {
    let names = std::env::var_os("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.to_string_lossy();
    let names: Vec<&str> = names.split(':').collect();
    let mut passed = ListenFd::from_env();
    let (mut sockets, mut stored) = (Vec::new(), Stored::default());
    for index in 0..passed.len() {
        let name = names.get(index).and_then(|name| name.strip_prefix(STORED));
        if let Some(name) = name {
            stored.names.insert(name.to_owned());
            let kind = (libc::AF_INET, libc::SOCK_STREAM);
            match passed.take_custom(index, kind.0, kind.1, "connection") {
                Ok(Some(socket)) => stored.connections.push((name.to_owned(), socket)),
                _ => {
                    stored.broken += 1;
                    if let Ok(Some(other)) = passed.take_raw_fd(index) {
                        let _ = nix::unistd::close(other);
                    }
                }
            }
            continue;
        }
        let wrong = |why: String| {
            Failure::usage(format!(
                "socket {} of the service manager: {why}; its socket unit may have \
                 ListenStream=ADDRESS:PORT and no Accept=yes",
                index + 1
            ))
        };
        let socket = passed.take_tcp_listener(index);
        let Some(socket) = socket.map_err(|error| wrong(error.to_string()))? else {
            continue;
        };
        if !SockRef::from(&socket).is_listener().unwrap_or(false) {
            return Err(wrong("it is a connection".to_owned()));
        }
        sockets.push(socket);
    }
    net::passed::offer(sockets).map_err(Failure::machine)?;
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(name: &str) -> (UnixDatagram, Manager) {
        let name = format!("auster-service-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let heard = UnixDatagram::bind_addr(&address).unwrap();
        let manager = Manager {
            socket: Some(connect(format!("@{name}").as_bytes()).unwrap()),
            watchdog: Some(Duration::from_millis(3)),
            ..Manager::default()
        };
        (heard, manager)
    }

    fn next(heard: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let len = heard.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }

    #[test]
    fn a_manager_hears_how_it_goes() {
        let (heard, manager) = manager("states");
        manager.ready();
        assert_eq!(next(&heard), "READY=1");
        let before = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
        manager.reloading();
        let reloading = next(&heard);
        let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let at = Duration::from_micros(micros.unwrap().parse().unwrap());
        assert!(
            at + Duration::from_micros(1) >= before,
            "{at:?}, {before:?}"
        );
        manager.stopping();
        assert_eq!(next(&heard), "STOPPING=1");
    }

    /// A manager that reads no descriptors closes them: it has none in its store, and nobody waits
    /// for it.
    #[test]
    fn connections_are_stored_by_name_and_forgotten_before_they_are_used() {
        let (heard, manager) = manager("store");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let named = move |name: &str| (name.to_owned(), one.try_clone().unwrap());
        let storing = std::thread::spawn(move || {
            let many = (0..DESCRIPTORS_MAX).map(|_| "1.3");
            let all: Vec<_> = many.chain(["1.5", "1.3"]).map(named).collect();
            manager.store(&all);
            *manager.stored.lock().unwrap() = Stored {
                connections: all,
                broken: 1,
                names: ["1.3", "1.5", "x"].map(str::to_owned).into(),
            };
            manager
        });
        for name in ["1.3", "1.3", "1.5"] {
            assert_eq!(next(&heard), format!("FDSTORE=1\nFDNAME=kept-{name}"));
        }
        assert_eq!(next(&heard), "BARRIER=1");
        let manager = storing.join().unwrap();
        let stored = manager.take_stored();
        assert_eq!((stored.connections.len(), stored.broken), (130, 1));
        for name in ["1.3", "1.5", "x"] {
            assert_eq!(next(&heard), format!("FDSTOREREMOVE=1\nFDNAME=kept-{name}"));
        }
        assert_eq!(manager.take_stored().connections.len(), 0);
        // No manager forgets them: they would not end with this process.
        drop(heard);
        *manager.stored.lock().unwrap() = Stored {
            names: BTreeSet::from(["1.3".to_owned()]),
            ..stored
        };
        let stored = manager.take_stored();
        assert_eq!((stored.connections.len(), stored.broken), (0, 131));
    }

    #[test]
    fn the_watchdog_is_fed_only_while_the_work_goes_on() {
        let (heard, manager) = manager("watchdog");
        heard.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        let looks = std::cell::Cell::new(0);
        let silent = manager.keep_informed(|| {
            looks.set(looks.get() + 1);
            let look = looks.get();
            async move {
                match look {
                    1..=2 => Some("at\nwork".to_owned()),
                    3..=4 => None,
                    _ => std::future::pending().await,
                }
            }
        });
        runtime.block_on(async {
            tokio::select! {
                () = silent => {}
                () = async {
                    while looks.get() < 5 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                } => {}
            }
        });
        assert_eq!(next(&heard), "STATUS=at work\nWATCHDOG=1");
        assert_eq!(next(&heard), "STATUS=at work\nWATCHDOG=1");
        let more = heard.recv(&mut [0; 256]).map_err(|error| error.kind());
        assert_eq!(more, Err(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        assert_eq!(watchdog(None, None), None);
        assert_eq!(watchdog(Some(0), None), None);
        assert_eq!(watchdog(Some(5), None), Some(Duration::from_micros(5)));
        assert_eq!(watchdog(Some(5), Some(1)), None);
        let ours = watchdog(Some(5), Some(std::process::id().into()));
        assert_eq!(ours, Some(Duration::from_micros(5)));
    }

    #[test]
    fn nobody_waits_where_there_is_no_manager() {
        let manager = Manager::default();
        manager.ready();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        runtime.block_on(manager.keep_informed(|| async { unreachable!() }));
    }
}
