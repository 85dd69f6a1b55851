//! `auster pki` against the programs that must accept its files: openssl, Open vSwitch, our own
//! loader, and ovs-pki the other way round.

#[path = "common/ports.rs"]
mod ports;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use net::tls::{CertificateIdentity, CredentialFiles, Role};
use openflow::DatapathId;
use ports::free_port;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tempfile::TempDir;

struct Pki {
    dir: TempDir,
}

impl Pki {
    fn new() -> Pki {
        Pki {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// A PKI with both authorities, controller `c` on 127.0.0.1 and switch `s` of datapath 0xab.
    fn complete(key: &str) -> Pki {
        let pki = Pki::new();
        pki.done(&["init", "--key", key]);
        pki.done(&[
            "controller",
            "c",
            "--host",
            "127.0.0.1",
            "--host",
            "::1",
            "--key",
            key,
        ]);
        pki.done(&["switch", "s", "--dpid", "0xab", "--key", key]);
        pki
    }

    fn auster(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_auster"));
        command
            .arg("pki")
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .unwrap()
    }

    fn done(&self, args: &[&str]) -> String {
        let output = self.auster(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "auster pki {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The exit code and the one line on standard error.
    fn refused(&self, args: &[&str]) -> (i32, String) {
        let output = self.auster(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        (output.status.code().unwrap(), said)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Open vSwitch's flags for the peer `name` that trusts `ca`.
    fn ovs_flags(&self, name: &str, ca: &str) -> Vec<String> {
        let [key, cert, ca] = [
            format!("{name}-privkey.pem"),
            format!("{name}-cert.pem"),
            format!("pki/{ca}/cacert.pem"),
        ]
        .map(|file| self.path(&file).display().to_string());
        vec!["-p".into(), key, "-c".into(), cert, "-C".into(), ca]
    }

    fn credentials(&self, name: &str, ca: &str) -> CredentialFiles {
        CredentialFiles {
            private_key: self.path(&format!("{name}-privkey.pem")),
            certificate: self.path(&format!("{name}-cert.pem")),
            ca: self.path(&format!("pki/{ca}/cacert.pem")),
            crl: None,
        }
    }

    fn identity(&self, name: &str) -> CertificateIdentity {
        let der = CertificateDer::from_pem_file(self.path(&format!("{name}-cert.pem"))).unwrap();
        CertificateIdentity::of(&der).unwrap()
    }
}

fn run(dir: &Path, program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).current_dir(dir).output();
    output
        .unwrap_or_else(|e| panic!("{program}: {e}"))
        .status
        .success()
}

/// A process, stopped by its id when the test is done with it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(dir: &Path, program: &str, args: &[&str]) -> Process {
    let mut command = Command::new(program);
    command.args(args).env("OVS_RUNDIR", dir).current_dir(dir);
    let log = std::fs::File::create(dir.join(format!("{program}.err"))).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log);
    Process(command.spawn().unwrap_or_else(|e| panic!("{program}: {e}")))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(180);
    while !holds() {
        assert!(Instant::now() < give_up, "waited 180 s for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Open vSwitch's own controller, listening for TLS as `name`; its port.
fn testcontroller(pki: &Pki, name: &str) -> (Process, u16) {
    let port = free_port();
    let listen = format!("pssl:{port}:127.0.0.1");
    let flags = pki.ovs_flags(name, "switchca");
    let unixctl = format!("--unixctl={}", pki.path("testcontroller.ctl").display());
    let mut args: Vec<&str> = flags.iter().map(String::as_str).collect();
    args.extend([listen.as_str(), unixctl.as_str(), "-voff", "-vconsole:warn"]);
    let process = spawn(pki.dir.path(), "ovs-testcontroller", &args);
    until("ovs-testcontroller to listen", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    (process, port)
}

/// Whether a switch's `ovs-ofctl` gets an echo from the controller at `port`.
fn switch_reaches(pki: &Pki, name: &str, port: u16) -> bool {
    let flags = pki.ovs_flags(name, "controllerca");
    let target = format!("ssl:127.0.0.1:{port}");
    let mut args: Vec<&str> = flags.iter().map(String::as_str).collect();
    args.extend(["--timeout=5", "probe", &target]);
    run(pki.dir.path(), "ovs-ofctl", &args)
}

#[test]
fn the_layout_is_that_of_ovs_pki_and_secrets_are_for_their_owner() {
    let pki = Pki::complete("p256");
    let mode = |name: &str| pki.path(name).metadata().unwrap().permissions().mode() & 0o777;
    for name in [
        "pki/controllerca/private/cakey.pem",
        "pki/switchca/private/cakey.pem",
        "c-privkey.pem",
        "s-privkey.pem",
    ] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    for name in ["pki/controllerca/private", "pki/switchca/private"] {
        assert_eq!(mode(name), 0o700, "{name}");
    }
    for name in [
        "pki/controllerca/cacert.pem",
        "pki/switchca/cacert.pem",
        "c-cert.pem",
        "c-req.pem",
        "s-cert.pem",
        "s-req.pem",
    ] {
        assert!(pki.path(name).is_file(), "{name}");
    }
}

#[test]
fn openssl_verifies_each_certificate_for_its_own_use_alone() {
    for key in ["p256", "ed25519"] {
        let pki = Pki::complete(key);
        let verifies = |purpose: &str, ca: &str, name: &str| {
            let ca = format!("pki/{ca}/cacert.pem");
            let cert = format!("{name}-cert.pem");
            let args = [
                "verify",
                "-x509_strict",
                "-purpose",
                purpose,
                "-CAfile",
                &ca,
                &cert,
            ];
            run(pki.dir.path(), "openssl", &args)
        };
        assert!(verifies("sslserver", "controllerca", "c"), "{key}");
        assert!(verifies("sslclient", "controllerca", "c"), "{key}");
        assert!(verifies("sslclient", "switchca", "s"), "{key}");
        assert!(
            !verifies("sslserver", "switchca", "s"),
            "{key}: a switch is no server"
        );
        assert!(
            !verifies("sslclient", "controllerca", "s"),
            "{key}: the CAs are apart"
        );
        for request in ["c-req.pem", "s-req.pem"] {
            let args = ["req", "-verify", "-noout", "-in", request];
            assert!(run(pki.dir.path(), "openssl", &args), "{key} {request}");
        }
        pki.done(&["switch", "open", "--listens"]);
        assert!(verifies("sslserver", "switchca", "open"), "{key}");
    }
}

#[test]
fn our_own_loader_reads_role_and_datapath() {
    let pki = Pki::complete("p256");
    let controller = CertificateIdentity {
        role: Some(Role::Controller),
        datapath_id: None,
    };
    let switch = CertificateIdentity {
        role: Some(Role::Switch),
        datapath_id: Some(DatapathId(0xab)),
    };
    assert_eq!(pki.identity("c"), controller);
    assert_eq!(pki.identity("s"), switch);
    pki.credentials("c", "switchca").load().unwrap();
    pki.credentials("s", "controllerca").load().unwrap();
}

#[test]
fn show_says_whose_a_certificate_is_and_how_long() {
    let pki = Pki::complete("p256");
    pki.done(&["switch", "short", "--days", "1"]);
    let said = pki.done(&["show", "c-cert.pem"]);
    for line in [
        "role        controller",
        "datapath    any",
        "names       DNS:c, IP:127.0.0.1, IP:::1, urn:auster:role:controller",
        "valid for   TLS server, TLS client",
    ] {
        assert!(
            said.lines().any(|l| l == line),
            "{line:?} is not in:\n{said}"
        );
    }
    let said = pki.done(&["show", "s-cert.pem"]);
    assert!(said.contains("datapath    00000000000000ab"), "{said}");
    assert!(said.contains("valid for   TLS client\n"), "{said}");

    let days_left = |name: &str| {
        let der = CertificateDer::from_pem_file(pki.path(name)).unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
        let left = certificate.validity().time_to_expiration().unwrap();
        left.whole_hours() / 24
    };
    assert!((3648..=3650).contains(&days_left("s-cert.pem")));
    assert!(days_left("short-cert.pem") <= 1);
}

#[test]
fn nothing_is_overwritten_unasked() {
    let pki = Pki::complete("p256");
    let before = std::fs::read(pki.path("c-privkey.pem")).unwrap();
    for args in [&["init"][..], &["controller", "c"], &["switch", "s"]] {
        let (code, said) = pki.refused(args);
        assert_eq!(code, 5, "{said}");
        assert!(said.contains("--force"), "{said}");
    }
    assert_eq!(std::fs::read(pki.path("c-privkey.pem")).unwrap(), before);
    pki.done(&["controller", "c", "--force"]);
    assert_ne!(std::fs::read(pki.path("c-privkey.pem")).unwrap(), before);
}

#[test]
fn what_cannot_be_done_is_said_in_one_line_with_its_code() {
    let pki = Pki::new();
    let (code, said) = pki.refused(&["switch", "s"]);
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("auster pki init"), "{said}");
    let (code, said) = pki.refused(&["init", "--key", "rsa"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("ovs-pki"), "{said}");
    assert!(!pki.path("pki").exists());
    assert_eq!(pki.refused(&["show", "none.pem"]).0, 5);
    std::fs::write(pki.path("text.pem"), "no certificate").unwrap();
    assert_eq!(pki.refused(&["show", "text.pem"]).0, 4);
    for bad in ["../s", "", "-s", "a b", "s/t"] {
        let output = pki.auster(&["switch", "--", bad]);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn open_vswitch_accepts_a_controller_and_refuses_a_switch_in_its_place() {
    let pki = Pki::complete("p256");
    let (controller, port) = testcontroller(&pki, "c");
    assert!(switch_reaches(&pki, "s", port));
    assert!(
        !switch_reaches(&pki, "c", port),
        "a controller's certificate is of the wrong CA"
    );
    drop(controller);

    let (_impostor, port) = testcontroller(&pki, "s");
    assert!(
        !switch_reaches(&pki, "s", port),
        "a stolen switch key controls nobody"
    );
}

/// ovs-vswitchd with a dummy datapath, set up as the example in `auster pki switch --help` says.
#[test]
fn a_real_switch_connects_with_the_files_of_set_ssl() {
    let pki = Pki::complete("p256");
    let dir = pki.dir.path();
    let (_controller, port) = testcontroller(&pki, "c");
    let at = |name: &str| pki.path(name).display().to_string();
    let schema = "/usr/share/openvswitch/vswitch.ovsschema";
    assert!(run(dir, "ovsdb-tool", &["create", &at("db"), schema]));
    let remote = format!("--remote=punix:{}", at("db.sock"));
    let unixctl = format!("--unixctl={}", at("db.ctl"));
    let _db = spawn(
        dir,
        "ovsdb-server",
        &[&at("db"), &remote, &unixctl, "-voff"],
    );
    until("ovsdb-server", || pki.path("db.sock").exists());
    let db = format!("unix:{}", at("db.sock"));
    let vsctl = |args: &[&str]| {
        let db = format!("--db={db}");
        let output = Command::new("ovs-vsctl")
            .args([&db, "--no-wait"])
            .args(args)
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let [key, cert, ca] = ["s-privkey.pem", "s-cert.pem", "pki/controllerca/cacert.pem"].map(at);
    vsctl(&["init"]);
    vsctl(&["set-ssl", &key, &cert, &ca]);
    let target = format!("ssl:127.0.0.1:{port}");
    vsctl(&[
        "add-br",
        "br0",
        "--",
        "set",
        "bridge",
        "br0",
        "datapath_type=dummy",
    ]);
    vsctl(&["set-controller", "br0", &target]);
    let unixctl = format!("--unixctl={}", at("vswitchd.ctl"));
    let dummy = ["--enable-dummy=override", "--disable-system", "-voff"];
    let _vswitchd = spawn(
        dir,
        "ovs-vswitchd",
        &[&[&db as &str, &unixctl], &dummy[..]].concat(),
    );
    until("the switch to be connected by TLS", || {
        vsctl(&["get", "controller", "br0", "is_connected"]).trim() == "true"
    });
}

#[test]
fn files_of_ovs_pki_are_read_and_its_authorities_sign_ours() {
    let pki = Pki::new();
    let dir = pki.dir.path();
    let log = format!("--log={}", pki.path("ovs-pki.log").display());
    let ca_dir = format!("--dir={}", pki.path("pki").display());
    assert!(run(dir, "ovs-pki", &["init", &log, &ca_dir]));
    for (name, kind) in [("theirs-c", "controller"), ("theirs-s", "switch")] {
        assert!(run(
            dir,
            "ovs-pki",
            &["req+sign", name, kind, "-u", &log, &ca_dir]
        ));
    }
    pki.credentials("theirs-c", "switchca").load().unwrap();
    assert_eq!(pki.identity("theirs-c"), CertificateIdentity::default());
    let said = pki.done(&["show", "theirs-s-cert.pem"]);
    assert!(said.contains("role        not said"), "{said}");

    pki.done(&["controller", "c", "--host", "127.0.0.1"]);
    pki.credentials("c", "switchca").load().unwrap();
    let (_controller, port) = testcontroller(&pki, "c");
    assert!(switch_reaches(&pki, "theirs-s", port));
}
