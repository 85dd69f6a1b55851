//! A real etcd for tests: one member or more on loopback addresses and in a folder of its own.
//! Other crates take this file by `#[path]`: it needs `nix`, `rcgen` and `tempfile`, and the
//! programs `etcd`, `etcdctl` and `setpriv`.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};
use tempfile::TempDir;

/// Maximum wait for anything that a busy machine does in the end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster to start.
pub struct Options {
    pub members: usize,
    /// TLS with certificates of clients, for clients and between members.
    pub is_tls: bool,
    /// Further flags of each member, such as a quota.
    pub flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            members: 1,
            is_tls: false,
            flags: Vec::new(),
        }
    }
}

/// A running cluster. Dropping it kills its members and removes their data.
pub struct Etcd {
    members: Vec<Member>,
    authority: Option<Authority>,
    folder: TempDir,
}

struct Member {
    endpoint: String,
    arguments: Vec<String>,
    child: Option<Child>,
}

/// The PEM files of one owner.
#[derive(Clone)]
pub struct Files {
    pub key: PathBuf,
    pub certificate: PathBuf,
    pub ca: PathBuf,
}

impl Etcd {
    /// One member without TLS.
    pub fn one() -> Etcd {
        Etcd::start(&Options::default())
    }

    /// Starts all members, and waits until each of them has a leader.
    pub fn start(options: &Options) -> Etcd {
        let folder = folder();
        let authority = options.is_tls.then(|| Authority::new(folder.path(), "ca"));
        let scheme = if options.is_tls { "https" } else { "http" };
        let ports: Vec<[u16; 2]> = (0..options.members).map(|_| [port(), port()]).collect();
        let host = host();
        let urls: Vec<String> = (0..)
            .zip(&ports)
            .map(|(n, [_, peers])| format!("m{n}={scheme}://{host}:{peers}"))
            .collect();
        let urls = urls.join(",");
        let member = |(n, [clients, peers]): (usize, &[u16; 2])| {
            let endpoint = format!("{host}:{clients}");
            let (clients, peers) = (
                format!("{scheme}://{endpoint}"),
                format!("{scheme}://{host}:{peers}"),
            );
            let mut arguments: Vec<String> = [
                ("name", format!("m{n}")),
                ("data-dir", text(&folder.path().join(format!("m{n}")))),
                ("listen-client-urls", clients.clone()),
                ("advertise-client-urls", clients),
                ("listen-peer-urls", peers.clone()),
                ("initial-advertise-peer-urls", peers),
                ("initial-cluster", urls.clone()),
                ("initial-cluster-token", text(folder.path())),
            ]
            .map(|(flag, value)| format!("--{flag}={value}"))
            .into();
            if let Some(authority) = &authority {
                let files = authority.issue(&format!("m{n}"), true);
                for prefix in ["", "peer-"] {
                    arguments.push(format!(
                        "--{prefix}cert-file={}",
                        files.certificate.display()
                    ));
                    arguments.push(format!("--{prefix}key-file={}", files.key.display()));
                    arguments.push(format!("--{prefix}trusted-ca-file={}", files.ca.display()));
                    arguments.push(format!("--{prefix}client-cert-auth"));
                }
            }
            arguments.extend(options.flags.iter().cloned());
            Member {
                endpoint,
                arguments,
                child: None,
            }
        };
        let members = ports.iter().enumerate().map(member).collect();
        let mut etcd = Etcd {
            members,
            authority,
            folder,
        };
        for n in 0..options.members {
            etcd.spawn(n);
        }
        for n in 0..options.members {
            etcd.wait_for(n, |status| !status.contains("\"leader\":0"));
        }
        etcd
    }

    /// `ADDRESS:PORT` of each member.
    pub fn endpoints(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| member.endpoint.clone())
            .collect()
    }

    /// Ends a member as a power failure does.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a member again that was killed, with its data. Waits until it answers.
    pub fn restart(&mut self, member: usize) {
        self.kill(member);
        self.spawn(member);
        self.wait_for(member, |_| true);
    }

    /// Puts the state of a file that `etcdctl snapshot save` has written in place of a member's, as
    /// an operator does after a disaster. For clusters of one member.
    pub fn restore(&mut self, member: usize, snapshot: &Path) {
        self.kill(member);
        let folder = self.folder.path().join(format!("m{member}"));
        std::fs::remove_dir_all(folder).unwrap();
        let kept = [
            "--name=",
            "--data-dir=",
            "--initial-cluster=",
            "--initial-cluster-token=",
            "--initial-advertise-peer-urls=",
        ];
        let flags = self.members[member].arguments.iter();
        let flags = flags.filter(|flag| kept.iter().any(|kept| flag.starts_with(kept)));
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .args(flags)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        self.restart(member);
    }

    /// Stops a member until it is resumed, as on a machine without a processor for it.
    pub fn stop(&self, member: usize) {
        self.signal(member, Signal::SIGSTOP);
        // On a busy machine, the signal takes long to reach the running threads.
        let give_up = Instant::now() + PATIENCE;
        while !is_stopped(self.pid(member)) {
            assert!(Instant::now() < give_up, "it goes on");
            sleep(Duration::from_millis(5));
        }
    }

    pub fn resume(&self, member: usize) {
        self.signal(member, Signal::SIGCONT);
    }

    /// Runs `etcdctl` as the user root, and panics with its output if it fails.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(&self.endpoints().join(","), arguments)
            .unwrap_or_else(|words| panic!("etcdctl {arguments:?}: {words}"))
    }

    /// The same for a command that may fail; the error is its output.
    pub fn asked(&self, arguments: &[&str]) -> Result<String, String> {
        self.try_ctl(&self.endpoints().join(","), arguments)
    }

    /// The files of a client whose certificate has this common name.
    pub fn client_files(&self, common_name: &str) -> Files {
        let authority = self.authority.as_ref().expect("a cluster with TLS");
        authority.issue(common_name, false)
    }

    /// The files of a client whose authority the cluster does not know.
    pub fn foreign_files(&self) -> Files {
        Authority::new(self.folder.path(), "other-ca").issue("foreigner", false)
    }

    fn try_ctl(&self, endpoints: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3");
        command.args(["--endpoints", endpoints, "--command-timeout=10s"]);
        if let Some(authority) = &self.authority {
            let files = authority.issue("root", false);
            command.arg("--cert").arg(files.certificate);
            command
                .arg("--key")
                .arg(files.key)
                .arg("--cacert")
                .arg(files.ca);
        }
        let output = command.args(arguments).output();
        let output = output.unwrap_or_else(|e| panic!("etcdctl: {e}: run scripts/setup"));
        let words = |bytes| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(words(&output.stdout)),
            false => Err(words(&output.stderr)),
        }
    }

    fn spawn(&mut self, n: usize) {
        let log = self.folder.path().join(format!("m{n}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let member = &mut self.members[n];
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd"])
            .args(&member.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        member.child = Some(child.unwrap_or_else(|e| panic!("etcd: {e}: run scripts/setup")));
    }

    fn wait_for(&mut self, n: usize, is_ready: impl Fn(&str) -> bool) {
        let since = Instant::now();
        let log = self.folder.path().join(format!("m{n}.log"));
        loop {
            let endpoint = self.members[n].endpoint.clone();
            let status = self.try_ctl(&endpoint, &["endpoint", "status", "-w", "json"]);
            if status.as_ref().is_ok_and(|status| is_ready(status)) {
                return;
            }
            let child = self.members[n].child.as_mut().expect("a member that runs");
            let ended = child.try_wait().unwrap();
            if ended.is_some() || since.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(log).unwrap_or_default();
                panic!("etcd {n} is not ready: {ended:?} {status:?}\n{log}");
            }
            sleep(Duration::from_millis(100));
        }
    }

    fn pid(&self, member: usize) -> Pid {
        let child = self.members[member].child.as_ref();
        let child = child.expect("a member that runs");
        Pid::from_raw(child.id().cast_signed())
    }

    fn signal(&self, member: usize, signal: Signal) {
        kill(self.pid(member), signal).unwrap();
    }
}

/// Whether all threads of a process are stopped (`T` behind the name in `stat`).
fn is_stopped(process: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.contains(") T ")
    })
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            self.kill(member);
        }
    }
}

/// A certificate authority of a test.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    certificate: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let made = params.self_signed(&key).unwrap();
        let certificate = folder.join(format!("{name}.pem"));
        std::fs::write(&certificate, made.pem()).unwrap();
        Authority {
            issuer: Issuer::new(params, key),
            folder: folder.to_owned(),
            certificate,
        }
    }

    /// A member's certificate is for both directions: etcd calls itself as a client.
    fn issue(&self, common_name: &str, is_member: bool) -> Files {
        let files = Files {
            key: self.folder.join(format!("{common_name}-key.pem")),
            certificate: self.folder.join(format!("{common_name}-cert.pem")),
            ca: self.certificate.clone(),
        };
        if files.certificate.exists() {
            return files;
        }
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if is_member {
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
            params.subject_alt_names = vec![SanType::IpAddress(host().into())];
        }
        let made = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        std::fs::write(&files.certificate, made.pem()).unwrap();
        files
    }
}

/// A loopback address that no other process has, so that ports need no search.
fn host() -> Ipv4Addr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 | a, b, c)
}

/// Another port of [`host`] each time, below those that the kernel gives to clients.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A folder in `TMPDIR` or in memory, where etcd's fsync costs nothing.
fn folder() -> TempDir {
    let mut builder = tempfile::Builder::new();
    let prefix = format!("auster-etcd-{}-", std::process::id());
    let builder = builder.prefix(&prefix);
    let memory = Path::new("/dev/shm");
    let made = match std::env::var_os("TMPDIR") {
        None if memory.is_dir() => builder.tempdir_in(memory),
        _ => builder.tempdir(),
    };
    made.unwrap()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
