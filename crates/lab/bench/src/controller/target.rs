//! The controller under test as processes: started, watched and ended.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use net::method::{Host, Method, Transport};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, SysconfVar, sysconf};

use super::settings::SubjectKind;
use cli::failure::Failure;
use cli::interrupt::Interrupt;

/// Placeholder for the port in a command.
pub const PORT: &str = "{port}";
/// Time from the start to a socket that accepts: a Java controller takes this long.
const LISTEN_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// Time from SIGTERM to SIGKILL.
const STOP_MAX: Duration = Duration::from_secs(3);

/// A command that was started, with everything it started itself: one process group.
pub struct Target {
    child: Child,
    group: Pid,
    command: String,
}

/// A controller under test: started for the test, or already running.
pub struct Server {
    pub method: Method,
    pub target: Option<Target>,
    /// The process of a controller that was already running.
    pid: Option<i32>,
}

impl Server {
    /// Starts the controller if it is a command. Otherwise its process may be known.
    pub fn of(
        kind: &SubjectKind,
        pid: Option<i32>,
        interrupt: &Interrupt,
    ) -> Result<Server, Failure> {
        let (target, method) = match kind {
            SubjectKind::Method(method) => (None, method.clone()),
            SubjectKind::Command { transport, words } => {
                let (target, method) = Target::start(words, *transport, interrupt)?;
                (Some(target), method)
            }
        };
        Ok(Server {
            pid: pid.filter(|_| target.is_none()),
            method,
            target,
        })
    }

    /// Returns the controller's resource use so far, if it can be seen.
    pub fn usage(&self) -> Option<Usage> {
        let of_pid = || self.pid.map(usage_of);
        self.target.as_ref().map(Target::usage).or_else(of_pid)
    }

    /// Whether the command has ended by a signal or with an error.
    pub fn has_failed(&self) -> bool {
        self.target.as_ref().is_some_and(Target::has_failed)
    }

    /// Processor time of its threads so far, summed by name.
    pub fn threads(&self) -> Option<BTreeMap<String, Duration>> {
        match (&self.target, self.pid) {
            (Some(target), _) => Some(threads_where(|stat| target.is_of(stat))),
            (None, Some(pid)) => Some(threads_where(|stat| stat.pid == pid)),
            (None, None) => None,
        }
    }
}

/// CPU time and memory that the processes of a target have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub cpu: Duration,
    /// The most memory that was resident, summed over the processes.
    pub memory_peak_mib: f64,
}

impl Target {
    /// Starts `command` with the port in its place, and waits until a process listens there.
    fn start(
        command: &str,
        transport: Transport,
        interrupt: &Interrupt,
    ) -> Result<(Target, Method), Failure> {
        let port = free_port(transport)?;
        let command = command.replace(PORT, &port.to_string());
        let (child, group) = spawn(&command)?;
        let mut target = Target {
            child,
            group,
            command,
        };
        target.wait_until_it_listens(transport, port, interrupt)?;
        let host = Host::V4(std::net::Ipv4Addr::LOCALHOST);
        Ok((target, Method::Dial(transport, host, port)))
    }

    fn wait_until_it_listens(
        &mut self,
        transport: Transport,
        port: u16,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + LISTEN_MAX;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                let command = &self.command;
                return Err(Failure::network(format!(
                    "'{command}' ended before it listened ({status}); run it by hand to see why"
                )));
            }
            if listens(transport, port) {
                return Ok(());
            }
            if Instant::now() > deadline || interrupt.is_set() {
                let (command, limit) = (&self.command, LISTEN_MAX.as_secs());
                return Err(Failure::network(format!(
                    "'{command}' does not listen on port {port} after {limit} s; write {PORT} \
                     where its port goes"
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    fn has_failed(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let pid = Pid::from_raw(self.child.id().cast_signed());
        match waitid(Id::Pid(pid), flags) {
            Ok(WaitStatus::Exited(_, code)) => code != 0,
            Ok(WaitStatus::Signaled(..)) => true,
            _ => false,
        }
    }

    fn is_of(&self, stat: &Stat) -> bool {
        stat.group == self.group.as_raw()
    }

    fn usage(&self) -> Usage {
        usage_where(|stat| self.is_of(stat))
    }

    /// Ends the command at once, as a crash would. Its port is then free.
    pub fn kill(&mut self) {
        // A group that has already ended is fine too.
        let _ = killpg(self.group, Signal::SIGKILL);
        let _ = self.child.wait();
        // The command's other processes close their sockets later than the shell: when their last
        // thread ends. A zombie has only its first thread.
        let is_left = |(path, stat): &(PathBuf, Stat)| {
            let threads = std::fs::read_dir(path.join("task")).map_or(0, Iterator::count);
            !stat.is_zombie || threads > 1
        };
        let deadline = Instant::now() + STOP_MAX;
        let left = || processes(|stat| self.is_of(stat)).iter().any(is_left);
        while Instant::now() < deadline && left() {
            std::thread::sleep(POLL);
        }
    }

    /// Starts the command again on the same port, without waiting.
    pub fn start_again(&mut self) -> Result<(), Failure> {
        self.kill();
        (self.child, self.group) = spawn(&self.command)?;
        Ok(())
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // A group that has already ended is fine too.
        let _ = killpg(self.group, Signal::SIGTERM);
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline && !self.has_ended() {
            std::thread::sleep(POLL);
        }
        self.kill();
    }
}

/// Starts a command as a process group of its own.
fn spawn(command: &str) -> Result<(Child, Pid), Failure> {
    let child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| Failure::machine(format!("sh: {error}")))?;
    let group = Pid::from_raw(child.id().cast_signed());
    Ok((child, group))
}

/// Returns the usage of one process that another program started.
pub fn usage_of(pid: i32) -> Usage {
    usage_where(|stat| stat.pid == pid)
}

/// A port that is free at the moment. The command has to take it; if another process is faster,
/// the command fails visibly.
fn free_port(transport: Transport) -> Result<u16, Failure> {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let port = match transport {
        Transport::Tcp | Transport::Tls => TcpListener::bind(any).and_then(|l| l.local_addr()),
        Transport::Quic => UdpSocket::bind(any).and_then(|s| s.local_addr()),
    };
    port.map(|address| address.port())
        .map_err(|error| Failure::machine(format!("no free port: {error}")))
}

/// Whether a process listens on the port. QUIC answers only QUIC clients, so for QUIC it is whether
/// the port is taken.
fn listens(transport: Transport, port: u16) -> bool {
    let address: SocketAddr = ([127, 0, 0, 1], port).into();
    match transport {
        Transport::Tcp | Transport::Tls => TcpStream::connect(address).is_ok(),
        Transport::Quic => UdpSocket::bind(address).is_err(),
    }
}

/// The fields read from `/proc/PID/stat`.
struct Stat {
    pid: i32,
    group: i32,
    is_zombie: bool,
    cpu_ticks: u64,
}

fn usage_where(wanted: impl Fn(&Stat) -> bool) -> Usage {
    let ticks_per_s = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    let mut usage = Usage::default();
    for (path, stat) in processes(wanted) {
        let seconds = stat.cpu_ticks as f64 / ticks_per_s as f64;
        usage.cpu += Duration::from_secs_f64(seconds);
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        usage.memory_peak_mib += read_peak(&status).unwrap_or(0.0);
    }
    usage
}

fn threads_where(wanted: impl Fn(&Stat) -> bool) -> BTreeMap<String, Duration> {
    let mut threads = BTreeMap::new();
    for (path, _) in processes(wanted) {
        let Ok(tasks) = std::fs::read_dir(path.join("task")) else {
            continue;
        };
        for task in tasks.flatten() {
            let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            // proc(5): the first field of schedstat is time on the processor, in nanoseconds.
            let spent = read("schedstat");
            let spent = spent.split(' ').next().and_then(|ns| ns.parse().ok());
            if let Some(spent) = spent {
                let name = read("comm").trim().to_owned();
                *threads.entry(name).or_default() += Duration::from_nanos(spent);
            }
        }
    }
    threads
}

/// Returns the wanted processes with their directories.
fn processes(wanted: impl Fn(&Stat) -> bool) -> Vec<(PathBuf, Stat)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let read = |entry: DirEntry| {
        let path = entry.path();
        // Not a process, or one that has just ended.
        let stat = read_stat(&std::fs::read_to_string(path.join("stat")).ok()?)?;
        Some((path, stat))
    };
    let all = entries.filter_map(read);
    all.filter(|(_, stat)| wanted(stat)).collect()
}

/// Parses the fields after the program's name, which may contain blanks and parentheses.
fn read_stat(text: &str) -> Option<Stat> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    // State is field 3 of proc(5), so group, utime and stime (5, 14, 15) are here at 2, 11 and 12.
    Some(Stat {
        pid,
        group: fields.get(2)?.parse().ok()?,
        is_zombie: *fields.first()? == "Z",
        cpu_ticks: fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?,
    })
}

/// Reads the peak memory in MiB.
fn read_peak(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u32 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(f64::from(kib) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_does_not_shift_the_fields() {
        let text = "42 (a b) c) S 1 40 40 0 -1 0 0 0 0 0 7 5 0 0 20 0 1 0";
        let stat = read_stat(text).unwrap();
        assert_eq!((stat.pid, stat.group, stat.cpu_ticks), (42, 40, 12));
        assert!(!stat.is_zombie && read_stat(&text.replace(") S", ") Z")).unwrap().is_zombie);
        assert_eq!(
            read_peak("VmPeak:\t 9 kB\nVmHWM:\t  12 kB\n"),
            Some(12.0 / 1024.0)
        );
    }

    #[test]
    fn this_process_uses_something() {
        let usage = usage_of(std::process::id().cast_signed());
        assert!(usage.memory_peak_mib > 1.0);
        let own = std::process::id().cast_signed();
        let threads = threads_where(|stat| stat.pid == own);
        assert!(
            threads.values().any(|spent| !spent.is_zero()),
            "{threads:?}"
        );
    }
}
