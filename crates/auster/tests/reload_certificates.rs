//! `auster run` and both relays get other certificates while they run: SIGHUP reads the files
//! again, ends nothing, and refuses files that cannot be used.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::running::{AUSTER, Running};
use net::method::Method;
use net::tls::{CredentialFiles, Role, Security};
use net::transport::connect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A PKI with both authorities, controller `c` and switch `s1`.
struct Pki(TempDir);

impl Pki {
    fn new() -> Pki {
        let pki = Pki(tempfile::tempdir().unwrap());
        for words in [&["init"][..], &["controller", "c"], &["switch", "s1"]] {
            let mut command = Command::new(AUSTER);
            let output = command.arg("pki").args(words).current_dir(&pki.0).output();
            assert!(output.unwrap().status.success(), "{words:?}");
        }
        pki
    }

    fn files(&self, name: &str, ca: &str) -> CredentialFiles {
        let path = |file: String| self.0.path().join(file);
        CredentialFiles {
            private_key: path(format!("{name}-privkey.pem")),
            certificate: path(format!("{name}-cert.pem")),
            ca: path(format!("pki/{ca}/cacert.pem")),
            crl: None,
        }
    }

    fn controller(&self) -> CredentialFiles {
        self.files("c", "switchca")
    }

    fn switch(&self) -> CredentialFiles {
        self.files("s1", "controllerca")
    }

    /// The security of a client of the controllers' side.
    fn dialler(&self) -> Security {
        Security::new(Arc::new(self.switch().load().unwrap())).expecting(Role::Controller)
    }
}

fn flags(files: &CredentialFiles) -> Vec<String> {
    let text = |path: &Path| path.display().to_string();
    let [key, certificate, ca] = [&files.private_key, &files.certificate, &files.ca];
    let words = [
        "-p".to_owned(),
        text(key),
        "-c".to_owned(),
        text(certificate),
        "-C".to_owned(),
        text(ca),
    ];
    words.into()
}

/// Copies the contents of the files of `from` to those of `to`.
fn copy(from: &CredentialFiles, to: &CredentialFiles) {
    for (from, to) in [
        (&from.private_key, &to.private_key),
        (&from.certificate, &to.certificate),
        (&from.ca, &to.ca),
    ] {
        fs::copy(from, to).unwrap();
    }
}

fn hang_up(running: &Running) {
    let pid = Pid::from_raw(running.child.id().cast_signed());
    kill(pid, Signal::SIGHUP).unwrap();
}

/// The method with which to dial the process's listener of `kind`.
fn dial_method(line: &str, kind: &str) -> Method {
    let mut words = line.split(' ');
    let method = words.find_map(|word| word.strip_prefix(&format!("p{kind}:")));
    let (port, host) = method.unwrap().split_once(':').unwrap();
    format!("{kind}:{host}:{port}").parse().unwrap()
}

/// Whether a TLS or QUIC peer of `pki` is let in: TLS 1.3 reports a refusal only to a peer that
/// reads.
async fn is_let_in(method: &Method, pki: &Pki) -> bool {
    let Ok(mut connection) = connect(method, &pki.dialler()).await else {
        return false;
    };
    let hello = [4, 0, 0, 8, 0, 0, 0, 1];
    let said = connection.writer.write_all(&hello).await;
    let said = said.is_ok() && connection.writer.flush().await.is_ok();
    said && connection.reader.read_u8().await.is_ok()
}

#[tokio::test]
async fn the_controller_reads_certificates_again_and_keeps_those_it_has_if_they_will_not_do() {
    for kind in ["ssl", "quic"] {
        let (old, new) = (Pki::new(), Pki::new());
        let given = old.controller();
        let config = old.0.path().join("net.toml");
        fs::write(&config, "[session]\necho_interval_ms = 5000\n").unwrap();
        let listen = format!("p{kind}:0:127.0.0.1");
        let mut words = vec!["run".to_owned(), listen];
        words.extend(["--api".to_owned(), "0".to_owned()]);
        words.extend(["--config".to_owned(), config.display().to_string()]);
        words.extend(flags(&given));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut run = Running::start(&words);
        let method = dial_method(&run.wait_for("listening on "), kind);
        let api = run.wait_for("API on ");
        assert!(is_let_in(&method, &old).await, "{kind}");

        // The change is half done: both faults are reported, and everything in use stays.
        let key = fs::read(&given.private_key).unwrap();
        fs::write(&given.private_key, "no key").unwrap();
        let ca = fs::read(&given.ca).unwrap();
        fs::write(&given.ca, "no certificate").unwrap();
        fs::write(&config, "[session]\necho_interval_ms = 6000\n").unwrap();
        hang_up(&run);
        let line = run.wait_for("refused, all in use stays");
        for problem in [
            "c-privkey.pem: no private key",
            "cacert.pem: no certificate",
        ] {
            assert!(line.contains(problem), "{line}");
        }
        fs::write(&given.private_key, key).unwrap();
        fs::write(&given.ca, ca).unwrap();
        assert!(is_let_in(&method, &old).await, "{kind}: still");

        copy(&new.controller(), &given);
        hang_up(&run);
        run.wait_for("c-cert.pem in use");
        assert!(is_let_in(&method, &new).await, "{kind}: the new one");
        assert!(!is_let_in(&method, &old).await, "{kind}: the old one");

        if kind == "ssl" {
            let at = api.split("http://").nth(1).unwrap();
            let at = at.split('/').next().unwrap();
            let told = common::run("curl", &["-s", &format!("http://{at}/metrics")]);
            assert!(
                told.contains("auster_certificate_expiry_seconds{file="),
                "{told}"
            );
            assert!(told.contains("kind=\"ca\"} "), "{told}");
        }
    }
}

#[tokio::test]
async fn a_relay_reads_certificates_again_and_does_not_end() {
    let (old, new) = (Pki::new(), Pki::new());
    let controller = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", controller.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut carried = Vec::new();
        while let Ok((mut stream, _)) = controller.accept() {
            use std::io::Write;
            let _ = stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]);
            carried.push(stream);
        }
    });
    let given = old.controller();
    let mut words: Vec<String> = ["relay", "controller", "--listen", "pssl:0:127.0.0.1"]
        .map(str::to_owned)
        .into();
    words.extend(["--openflow".to_owned(), target]);
    words.extend(flags(&given));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut relay = Running::start(&words);
    let method = dial_method(&relay.wait_for("listening "), "ssl");
    assert!(is_let_in(&method, &old).await);
    assert!(!is_let_in(&method, &new).await);

    fs::write(&given.certificate, "no certificate").unwrap();
    hang_up(&relay);
    relay.wait_for("certificates refused, those in use stay");
    assert!(is_let_in(&method, &old).await);

    copy(&new.controller(), &given);
    hang_up(&relay);
    relay.wait_for("c-cert.pem in use");
    assert!(is_let_in(&method, &new).await);
    assert!(!is_let_in(&method, &old).await);
    assert!(relay.is_running());
}

/// The controllers' network has authorities of its own. There the relay is a switch with the
/// certificate of `--local-cert`, and accepts only the controllers of `--local-ca`.
#[tokio::test]
async fn a_relay_and_its_controller_have_certificates_of_their_own() {
    let (link, local) = (Pki::new(), Pki::new());
    let mut words = vec!["run".to_owned(), "pssl:0:127.0.0.1".to_owned()];
    words.extend(flags(&local.controller()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut run = Running::start(&words);
    let target = dial_method(&run.wait_for("listening on "), "ssl").to_string();
    for (has_own, is_served) in [(true, true), (false, false)] {
        let words = ["relay", "controller", "--listen", "pssl:0:127.0.0.1"];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        words.extend(["--openflow".to_owned(), target.clone()]);
        words.extend(flags(&link.controller()));
        if has_own {
            let files = local.switch();
            for (flag, file) in [
                ("--local-key", files.private_key),
                ("--local-cert", files.certificate),
                ("--local-ca", files.ca),
            ] {
                words.extend([flag.to_owned(), file.display().to_string()]);
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut relay = Running::start(&words);
        let method = dial_method(&relay.wait_for("listening "), "ssl");
        // The peer reads the HELLO of the controller behind the relay.
        assert_eq!(is_let_in(&method, &link).await, is_served, "own: {has_own}");
        assert!(!is_let_in(&method, &local).await, "own: {has_own}");
        if has_own {
            copy(&Pki::new().switch(), &local.switch());
            hang_up(&relay);
            relay.wait_for("s1-cert.pem in use");
            assert!(!is_let_in(&method, &link).await, "by another's certificate");
        }
    }
}

/// The lists that the manual describes.
#[tokio::test]
async fn a_switch_in_the_list_that_openssl_made_is_refused() {
    let pki = Pki::new();
    let manual = include_str!("../../../docs/pki.md");
    let make = manual.split("$ cd pki/switchca\n").nth(1).unwrap();
    let make = make.split("```").next().unwrap().replace("$ ", "");
    let make = make.replace("\n> ", "\n");
    let dir = pki.0.path().join("pki/switchca");
    let revoke = make
        .lines()
        .position(|line| line.contains("-revoke"))
        .unwrap();
    let lines: Vec<&str> = make.lines().collect();
    let shell = |lines: &[&str]| {
        let output = Command::new("sh")
            .args(["-e", "-c", &lines.join("\n")])
            .current_dir(&dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let without: Vec<&str> = [&lines[..revoke], &lines[revoke + 1..]].concat();
    shell(&without);
    let crl = dir.join("crl.pem").display().to_string();
    let mut words: Vec<String> = ["run", "pssl:0:127.0.0.1", "--crl", &crl]
        .map(str::to_owned)
        .into();
    words.extend(flags(&pki.controller()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut run = Running::start(&words);
    let method = dial_method(&run.wait_for("listening on "), "ssl");
    assert!(is_let_in(&method, &pki).await);
    shell(&lines[revoke..]);
    hang_up(&run);
    run.wait_for("c-cert.pem in use");
    assert!(!is_let_in(&method, &pki).await);
}
