//! The peers that the listening and the dialling side of TLS refuse, and the messages about files
//! that cannot be used.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::switch::Switch;
use common::{Leaf, Pki, dial_method, listen, passive};
use net::method::{Method, Transport};
use net::tls::{CredentialFiles, Role, Security};
use net::transport::{Refusal, connect};
use rcgen::ExtendedKeyUsagePurpose;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
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

/// Both sides may ask for names; a refusal names the expected and the received ones.
#[tokio::test]
async fn a_peer_has_one_of_the_expected_names_or_is_refused() {
    let pki = Pki::new();
    let leaf = Leaf {
        names: vec!["ctl.example".to_owned()],
        ..Leaf::of(Role::Controller)
    };
    let controller = Security::new(pki.credentials("c1", &leaf));
    let expecting = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        (pki.switch().naming(&names), pki.controller().naming(&names))
    };
    for kind in ["ssl", "quic"] {
        let method = passive(kind, pki.dir.path());
        let listener = listen(&method, &controller).await;
        let dialled = dial_method(&listener);
        for names in [&[][..], &["other", "c1"], &["CTL.example"]] {
            let (switch, _) = expecting(names);
            assert!(
                connect(&dialled, &switch).await.is_ok(),
                "{kind}: {names:?}"
            );
        }
        let (switch, _) = expecting(&["c2", "ctl"]);
        let error = connect(&dialled, &switch).await.err().expect("refused");
        let error = error.to_string();
        let words = "its certificate names 'ctl.example' and 'c1'; 'c2' or 'ctl' is expected";
        assert!(error.contains(words), "{kind}: {error}");

        let switch = Security::new(pki.credentials("s1", &Leaf::of(Role::Switch)));
        let (_, strict) = expecting(&["s2"]);
        let listener = listen(&method, &strict).await;
        if let Ok(mut refused) = connect(&dial_method(&listener), &switch).await {
            let _ = refused.writer.write_all(b"!").await;
            assert!(refused.reader.read_u8().await.is_err(), "{kind}");
        }
        assert_eq!(listener.refusals().get(Refusal::Certificate), 1, "{kind}");
        let (_, lenient) = expecting(&["s1"]);
        let mut listener = listen(&method, &lenient).await;
        common::pair(&mut listener, &switch).await;
    }
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
        // In TLS 1.3 the dialler learns of the refusal when it reads.
        if let Ok(dialled) = connect(&dial_method(&listener), &security).await {
            let mut switch = Switch::new(dialled.reader, dialled.writer, 1);
            assert!(switch.set_up().await.is_none(), "{uris:?}");
            assert_eq!(switch.features_requests, 0);
        }
        assert_eq!(listener.refusals().get(Refusal::Certificate), 1, "{uris:?}");
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
    let key_file = text(&good.private_key);
    let request = ["req", "-new", "-subj", "/CN=old", "-key", key_file];
    let request = openssl_file(pki.dir.path(), "request", &request);
    let sign = ["x509", "-req", "-signkey", key_file, "-in", text(&request)];
    let old = openssl_file(pki.dir.path(), "old-cert", &sign);
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
        (
            certificate(&old),
            "old-cert",
            "X.509 of version 1; make it again",
            false,
        ),
        (ca(&old), "old-cert", "X.509 of version 1", false),
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
