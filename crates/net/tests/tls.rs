//! Seven abuses of the TLS port with `openssl s_client`, and one right use of it; then what the
//! dialling side refuses, and what is said of files that will not do.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::switch::Switch;
use common::{Leaf, Pki, dial_method, listen, passive};
use control::controller::{Controller, ControllerConfig, RefusedReason};
use net::clock::Clock;
use net::driver::{Driver, DriverConfig, Ended, Notice};
use net::method::{Host, Method, Transport};
use net::tls::{CredentialFiles, Role, Security};
use net::transport::{Refusal, connect};
use openflow::DatapathId;
use rcgen::ExtendedKeyUsagePurpose;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// HELLO of OpenFlow 1.3 with its bitmap.
const HELLO: [u8; 16] = [4, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 16];
const FEATURES_REQUEST: [u8; 4] = [4, 5, 0, 8];

/// Says HELLO through `openssl s_client` and reads for two seconds or until the end: what the
/// controller said in clear.
async fn openssl(port: u16, arguments: &[&str]) -> Vec<u8> {
    let mut child = tokio::process::Command::new("openssl")
        .args([
            "s_client",
            "-quiet",
            "-connect",
            &format!("127.0.0.1:{port}"),
        ])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("openssl is installed");
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(&HELLO).await;
    let _ = stdin.flush().await;
    let mut stdout = child.stdout.take().unwrap();
    let mut said = Vec::new();
    let read = async {
        while stdout
            .read_buf(&mut said)
            .await
            .is_ok_and(|count| count > 0)
        {
            if is_answered(&said) {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(20), read).await;
    said
}

fn is_answered(said: &[u8]) -> bool {
    said.windows(4).any(|window| window == FEATURES_REQUEST)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn seven_abuses_get_no_features_request_and_a_switch_gets_one() {
    let pki = Pki::new();
    let other = Pki::new();
    let good = pki.issue("switch", &Leaf::of(Role::Switch));
    let expired = pki.issue(
        "expired",
        &Leaf {
            is_expired: true,
            ..Leaf::of(Role::Switch)
        },
    );
    let self_signed = pki.issue_self_signed("self", &Leaf::of(Role::Switch));
    let strange = other.issue("strange", &Leaf::of(Role::Switch));
    let controller = pki.issue("stolen", &Leaf::of(Role::Controller));

    let application = Controller::new(ControllerConfig::default(), [7; 32]);
    let (driver, mut notices) =
        Driver::start(application, Clock::start(), DriverConfig::default()).unwrap();
    let driver = std::sync::Arc::new(driver);
    let listener = listen("pssl:0:127.0.0.1", &pki.controller()).await;
    let refusals = listener.refusals().clone();
    let Method::Dial(_, _, port) = dial_method(&listener) else {
        panic!("not an address")
    };
    let serving = driver.serve_listener(listener);

    let with = |files: &CredentialFiles| {
        let key = text(&files.private_key).to_owned();
        let certificate = text(&files.certificate).to_owned();
        ["-key".to_owned(), key, "-cert".to_owned(), certificate]
    };
    let mut refused = 0;
    for (abuse, files, more) in [
        (
            "TLS 1.1",
            Some(&good),
            &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"][..],
        ),
        ("expired", Some(&expired), &[]),
        ("self-signed", Some(&self_signed), &[]),
        ("of another CA", Some(&strange), &[]),
        ("no certificate", None, &[]),
        ("a controller's certificate", Some(&controller), &[]),
    ] {
        let owned = files.map(with);
        let mut arguments: Vec<&str> = owned.iter().flatten().map(String::as_str).collect();
        arguments.extend(more);
        let said = openssl(port, &arguments).await;
        assert!(!is_answered(&said), "{abuse}: {said:?}");
        assert!(said.is_empty(), "{abuse}: {said:?}");
        refused += 1;
        assert_eq!(refusals.get(Refusal::Handshake), refused, "{abuse}");
    }

    let plain = Method::Dial(Transport::Tcp, Host::V4([127, 0, 0, 1].into()), port);
    let mut plain = connect(&plain, &Security::plain()).await.unwrap();
    plain.writer.write_all(&HELLO).await.unwrap();
    let mut said = Vec::new();
    let _ = plain.reader.read_to_end(&mut said).await;
    assert!(!is_answered(&said), "plaintext: {said:?}");
    assert_eq!(refusals.get(Refusal::Handshake), refused + 1, "plaintext");
    assert!(notices.try_recv().is_err(), "none became a connection");

    for version in ["-tls1_2", "-tls1_3"] {
        let owned = with(&good);
        let mut arguments: Vec<&str> = owned.iter().map(String::as_str).collect();
        arguments.push(version);
        let said = openssl(port, &arguments).await;
        assert!(is_answered(&said), "{version}: a right switch is answered");
    }
    serving.abort();
}

#[tokio::test]
async fn a_peer_that_only_connects_is_given_half_the_time_of_a_handshake() {
    let pki = Pki::new();
    let listener = listen("pssl:0:127.0.0.1", &pki.controller()).await;
    let Method::Dial(_, host, port) = dial_method(&listener) else {
        panic!("not an address")
    };
    let plain = Method::Dial(Transport::Tcp, host, port);
    let mut silent = connect(&plain, &Security::plain()).await.unwrap();
    let since = std::time::Instant::now();
    let mut said = Vec::new();
    let _ = silent.reader.read_to_end(&mut said).await;
    let waited = since.elapsed().as_secs_f64();
    assert!((1.4..3.0).contains(&waited), "closed after {waited} s");
    assert_eq!(listener.refusals().get(Refusal::Timeout), 1);
}

/// A switch's key must not make its thief a controller: every pair of roles, both ways.
#[tokio::test]
async fn a_dialler_refuses_the_wrong_role_over_ssl_and_quic() {
    let pki = Pki::new();
    let as_switch = Security::new(pki.credentials("a", &Leaf::of(Role::Switch)));
    let unmarked = Security::new(pki.credentials("b", &Leaf::default()));
    let controller = Security::new(pki.credentials("c", &Leaf::of(Role::Controller)));
    for kind in ["ssl", "quic"] {
        for (server, is_taken) in [(&as_switch, false), (&unmarked, true), (&controller, true)] {
            let listener = listen(&passive(kind, pki.dir.path()), server).await;
            let dialled = connect(&dial_method(&listener), &pki.switch()).await;
            assert_eq!(dialled.is_ok(), is_taken, "{kind}");
            if let Err(error) = dialled {
                let error = error.to_string();
                assert!(
                    error.contains("for a switch, a controller is expected"),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn extended_key_usage_is_respected_where_there_is_one() {
    let pki = Pki::new();
    let with = |usage| Leaf {
        usage: vec![usage],
        ..Leaf::of(Role::Switch)
    };
    let server_only = pki.credentials("s", &with(ExtendedKeyUsagePurpose::ServerAuth));
    let client_only = pki.credentials("c", &with(ExtendedKeyUsagePurpose::ClientAuth));
    for (credentials, is_taken) in [(server_only, false), (client_only, true)] {
        let mut listener = listen("pssl:0:127.0.0.1", &pki.controller()).await;
        let security = Security::new(credentials);
        let mut dialled = connect(&dial_method(&listener), &security).await.unwrap();
        dialled.writer.write_all(b"!").await.unwrap();
        let accepted = tokio::time::timeout(Duration::from_millis(500), listener.accept()).await;
        assert_eq!(accepted.is_ok(), is_taken);
    }
}

#[tokio::test]
async fn a_server_name_is_compared_only_when_asked_for() {
    let pki = Pki::new();
    let leaf = Leaf {
        names: vec!["ctl.example".to_owned()],
        ..Leaf::of(Role::Controller)
    };
    let listener = listen(
        "pssl:0:127.0.0.1",
        &Security::new(pki.credentials("named", &leaf)),
    )
    .await;
    let method = dial_method(&listener);
    let asked = |name: &str| {
        pki.switch()
            .server_name(name.to_owned().try_into().unwrap())
    };
    assert!(connect(&method, &pki.switch()).await.is_ok());
    assert!(connect(&method, &asked("ctl.example")).await.is_ok());
    assert!(connect(&method, &asked("other.example")).await.is_err());
}

#[tokio::test]
async fn marks_that_say_nothing_clear_are_refused() {
    let pki = Pki::new();
    for uris in [
        vec!["urn:auster:role:root"],
        vec!["urn:auster:role:switch", "urn:auster:role:controller"],
        vec!["urn:auster:role:switch", "urn:auster:dpid:1"],
        vec![
            "urn:auster:dpid:0000000000000001",
            "urn:auster:dpid:0000000000000002",
        ],
    ] {
        let leaf = Leaf {
            uris: uris.iter().map(|uri| (*uri).to_owned()).collect(),
            ..Leaf::default()
        };
        let listener = listen("pssl:0:127.0.0.1", &pki.controller()).await;
        let security = Security::new(pki.credentials("odd", &leaf));
        // In TLS 1.3 the dialler hears of the refusal when it reads.
        if let Ok(dialled) = connect(&dial_method(&listener), &security).await {
            let mut switch = Switch::new(dialled.reader, dialled.writer, 1);
            assert!(switch.set_up().await.is_none(), "{uris:?}");
            assert_eq!(switch.features_requests, 0);
        }
        assert_eq!(listener.refusals().get(Refusal::Handshake), 1, "{uris:?}");
    }
}

fn openssl_file(dir: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let path = dir.join(name);
    let output = Command::new("openssl")
        .args(arguments)
        .args(["-out", text(&path)])
        .output()
        .expect("openssl is installed");
    assert!(output.status.success(), "{output:?}");
    path
}

#[test]
fn keys_of_every_wrapping_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let rsa = openssl_file(d, "rsa8", &["genpkey", "-algorithm", "RSA"]);
    let ec = openssl_file(
        d,
        "ec8",
        &["ecparam", "-name", "prime256v1", "-genkey", "-noout"],
    );
    let rsa1 = openssl_file(d, "rsa1", &["rsa", "-traditional", "-in", text(&rsa)]);
    for key in [rsa, rsa1, ec] {
        let request = [
            "req",
            "-x509",
            "-new",
            "-subj",
            "/CN=self",
            "-days",
            "9",
            "-key",
            text(&key),
        ];
        let certificate = openssl_file(d, "cert", &request);
        let files = CredentialFiles {
            private_key: key,
            ca: certificate.clone(),
            certificate,
            crl: None,
        };
        files.load().expect("loads");
    }
}

#[test]
fn each_file_that_will_not_do_is_named_with_its_fault() {
    let pki = Pki::new();
    let good = pki.issue("good", &Leaf::default());
    let other = pki.issue("other", &Leaf::default());
    let expired = Leaf {
        is_expired: true,
        ..Leaf::default()
    };
    let expired = pki.issue("expired", &expired);
    let write = |name: &str, text: &str| {
        std::fs::write(pki.path(name), text).unwrap();
        pki.path(name)
    };
    let garbage = write("garbage", "this is no PEM");
    let broken = write(
        "broken",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let locked = write(
        "locked",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let key = |private_key: &Path| CredentialFiles {
        private_key: private_key.to_owned(),
        ..good.clone()
    };
    let certificate = |certificate: &Path| CredentialFiles {
        certificate: certificate.to_owned(),
        ..good.clone()
    };
    let ca = |ca: &Path| CredentialFiles {
        ca: ca.to_owned(),
        ..good.clone()
    };
    for (files, name, problem, is_unreadable) in [
        (key(Path::new("/no/such")), "/no/such", "No such file", true),
        (key(pki.dir.path()), "", "not a PEM file", true),
        (key(&garbage), "garbage", "no private key in it", false),
        (key(&locked), "locked", "the key is encrypted", false),
        (
            key(&other.private_key),
            "other-privkey",
            "the key is not that of",
            false,
        ),
        (
            certificate(&garbage),
            "garbage",
            "no certificate in it",
            false,
        ),
        (
            certificate(&broken),
            "broken",
            "not an X.509 certificate",
            false,
        ),
        (
            certificate(&expired.certificate),
            "expired-cert",
            "expired on",
            false,
        ),
        (ca(&garbage), "garbage", "no certificate in it", false),
        (
            ca(&expired.certificate),
            "expired-cert",
            "expired on",
            false,
        ),
    ] {
        let error = files.load().expect_err(problem);
        let line = error.to_string();
        assert!(line.contains(problem) && line.contains(name), "{line}");
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(error.is_unreadable(), is_unreadable, "{line}");
    }
    good.load().expect("the files they are made from are good");

    let all = CredentialFiles {
        private_key: garbage.clone(),
        certificate: expired.certificate,
        ca: "/no/such".into(),
        crl: Some(garbage),
    };
    let error = all.load().expect_err("nothing of it is good");
    assert_eq!(error.faults.len(), 4, "{error}");
    let line = error.to_string();
    for problem in [
        "no private key",
        "expired on",
        "No such file",
        "no revocation list",
    ] {
        assert!(line.contains(problem), "{line}");
    }
}

#[tokio::test]
async fn no_notice_is_lost_without_a_count() {
    let application = Controller::new(ControllerConfig::default(), [1; 32]);
    let (driver, notices) =
        Driver::start(application, Clock::start(), DriverConfig::default()).unwrap();
    drop::<tokio::sync::mpsc::Receiver<Notice>>(notices);
    let (ours, theirs) = net::transport::memory(1024);
    let (_, served) = driver.serve(ours);
    drop(theirs);
    served.await.unwrap();
    assert_eq!(driver.notices_lost(), 1);
}

/// The certificate says 7; judged by the controller that `auster run` has.
#[tokio::test]
async fn a_datapath_id_that_is_not_the_certificates_is_refused() {
    let pki = Pki::new();
    let application = Controller::new(ControllerConfig::default(), [7; 32]);
    let (driver, mut notices) =
        Driver::start(application, Clock::start(), DriverConfig::default()).unwrap();
    let mut listener = listen("pssl:0:127.0.0.1", &pki.controller()).await;
    for id in [8, 7] {
        let dialled = connect(&dial_method(&listener), &pki.switch())
            .await
            .unwrap();
        let mut switch = Switch::new(dialled.reader, dialled.writer, id);
        let accept = async { driver.serve(listener.accept().await) };
        let (is_up, _) = tokio::join!(switch.set_up(), accept);
        let told = async {
            loop {
                match notices.recv().await.expect("the driver lives") {
                    Notice::Up { datapath_id, .. } => return Ok(datapath_id),
                    Notice::Down { reason, .. } => return Err(reason),
                    _ => {}
                }
            }
        };
        let told = tokio::time::timeout(common::switch::PATIENCE, told)
            .await
            .unwrap();
        if id == 7 {
            assert_eq!((told, is_up), (Ok(DatapathId(7)), Some(())));
        } else {
            let mismatch = RefusedReason::IdentityMismatch {
                dpid: DatapathId(8),
                certified: DatapathId(7),
            };
            assert_eq!(told, Err(Ended::Refused(mismatch)));
            assert!(switch.receive().await.is_none());
        }
    }
}
