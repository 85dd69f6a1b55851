//! Seven abuses of the TLS port with `openssl s_client`, and one right use of it; then the datapath
//! id that a certificate names.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::switch::Switch;
use common::{Leaf, Pki, dial_method, listen};
use control::clustered::Clustered;
use control::controller::{Controller, ControllerConfig, RefusedReason};
use driver::{Driver, DriverConfig, Ended, Notice};
use net::clock::Clock;
use net::method::{Host, Method, Transport};
use net::tls::{CredentialFiles, Role, Security};
use net::transport::{Refusal, connect};
use openflow::DatapathId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// HELLO of OpenFlow 1.3 with its bitmap.
const HELLO: [u8; 16] = [4, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 16];
const FEATURES_REQUEST: [u8; 4] = [4, 5, 0, 8];

/// Sends HELLO through `openssl s_client` and reads for two seconds or until the end. Returns the
/// bytes that the controller sent, in clear.
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

    let application = Clustered::from(Controller::new(ControllerConfig::default(), [7; 32]));
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
    use Refusal::{Certificate, Handshake};
    for (abuse, files, more, reason) in [
        (
            "TLS 1.1",
            Some(&good),
            &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"][..],
            Handshake,
        ),
        ("expired", Some(&expired), &[], Certificate),
        ("self-signed", Some(&self_signed), &[], Certificate),
        ("of another CA", Some(&strange), &[], Certificate),
        ("no certificate", None, &[], Handshake),
        (
            "a controller's certificate",
            Some(&controller),
            &[],
            Certificate,
        ),
    ] {
        let refused = refusals.get(reason);
        let owned = files.map(with);
        let mut arguments: Vec<&str> = owned.iter().flatten().map(String::as_str).collect();
        arguments.extend(more);
        let said = openssl(port, &arguments).await;
        assert!(!is_answered(&said), "{abuse}: {said:?}");
        assert!(said.is_empty(), "{abuse}: {said:?}");
        assert_eq!(refusals.get(reason), refused + 1, "{abuse}");
    }

    let refused = refusals.get(Handshake);
    let plain = Method::Dial(Transport::Tcp, Host::V4([127, 0, 0, 1].into()), port);
    let mut plain = connect(&plain, &Security::plain()).await.unwrap();
    plain.writer.write_all(&HELLO).await.unwrap();
    let mut said = Vec::new();
    let _ = plain.reader.read_to_end(&mut said).await;
    assert!(!is_answered(&said), "plaintext: {said:?}");
    assert_eq!(refusals.get(Handshake), refused + 1, "plaintext");
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
async fn no_notice_is_lost_without_a_count() {
    let application = Clustered::from(Controller::new(ControllerConfig::default(), [1; 32]));
    let (driver, notices) =
        Driver::start(application, Clock::start(), DriverConfig::default()).unwrap();
    drop::<tokio::sync::mpsc::Receiver<Notice>>(notices);
    let (ours, theirs) = net::transport::memory(1024);
    let (_, served) = driver.serve(ours);
    drop(theirs);
    served.await.unwrap();
    assert_eq!(driver.notices_lost(), 1);
}

/// The certificate names datapath 7; the controller of `auster run` judges it.
#[tokio::test]
async fn a_datapath_id_that_is_not_the_certificates_is_refused() {
    let pki = Pki::new();
    let application = Clustered::from(Controller::new(ControllerConfig::default(), [7; 32]));
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
