//! The service manager, as systemd's protocols have it: readiness and watchdog (sd_notify(3)), and
//! sockets that it has opened for us (sd_listen_fds(3)). A process that none has started reports
//! nothing and listens by itself.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use listenfd::ListenFd;
use nix::time::{ClockId, clock_gettime};
use socket2::SockRef;

use crate::failure::Failure;

/// The time that the manager has to take a message. Its socket is almost never full.
const SEND_MAX: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// The interval of reports where the manager runs no watchdog.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Reports within the watchdog's time: the first that is late must not be the last.
const REPORTS_PER_WATCHDOG: u32 = 3;

/// The service manager that has started this process, if one has.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    /// The time after which it ends a process that does not report.
    watchdog: Option<Duration>,
}

impl Manager {
    /// Finds the manager by the environment, and takes the sockets that it passes. To be called
    /// before there are threads.
    ///
    /// # Errors
    /// A passed descriptor is no listening TCP socket.
    pub fn find() -> Result<Manager, Failure> {
        take_sockets()?;
        let manager = match std::env::var_os("NOTIFY_SOCKET") {
            None => Manager::default(),
            Some(name) => {
                let connected = connect(name.as_bytes());
                let wrong = |error| Failure::machine(format!("NOTIFY_SOCKET: {error}"));
                let number = |name| std::env::var(name).ok()?.parse().ok();
                Manager {
                    socket: Some(connected.map_err(wrong)?),
                    watchdog: watchdog(number("WATCHDOG_USEC"), number("WATCHDOG_PID")),
                }
            }
        };
        Ok(manager)
    }

    /// The work has begun, or goes on after a reload.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Settings are read again; `ready` ends it.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
        let now = now.unwrap_or_default().as_micros();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports for as long as it is polled: a status, and to the watchdog that the process does its
    /// work. `look` answers only when it does.
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
                // Others may ask as much as is taken at once: that is no reason to be ended.
                None => interval.min(ASK_AGAIN),
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.socket else {
            return;
        };
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::warn!("the service manager does not take '{message}': {error}");
        }
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
    let is_ours = pid.is_none_or(|pid| pid == u64::from(std::process::id()));
    let micros = micros.filter(|micros| is_ours && *micros > 0)?;
    Some(Duration::from_micros(micros))
}

fn take_sockets() -> Result<(), Failure> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..passed.len() {
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
    net::passed::offer(sockets).map_err(Failure::machine)
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
