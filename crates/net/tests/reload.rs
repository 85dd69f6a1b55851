//! Certificates and revocation lists that change while listeners and diallers run.

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::{Leaf, Pki, dial_method, listen, pair, passive};
use net::tls::{CredentialFiles, ExpiryKind, Role, Security};
use net::transport::{Refusal, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

fn with_crl(files: &CredentialFiles, crl: PathBuf) -> CredentialFiles {
    CredentialFiles {
        crl: Some(crl),
        ..files.clone()
    }
}

fn switch_of(pki: &Pki) -> Security {
    pki.switch()
}

#[tokio::test]
async fn replaced_credentials_are_shown_and_believed_by_listeners_that_run() {
    for kind in ["ssl", "quic"] {
        let (old, new) = (Pki::new(), Pki::new());
        let security = old.controller();
        let mut listener = listen(&passive(kind, old.dir.path()), &security).await;
        let (mut dialled, mut accepted) = pair(&mut listener, &switch_of(&old)).await;

        let controller = Leaf::of(Role::Controller);
        security.replace(new.credentials("ctl", &controller));
        // The listener shows the new certificate and asks for one of the new CA.
        pair(&mut listener, &switch_of(&new)).await;
        let method = dial_method(&listener);
        let refused = connect(&method, &switch_of(&old)).await;
        assert!(refused.is_err(), "{kind}: the old CA's switch");

        // The earlier connection continues.
        dialled.writer.write_all(b"still here").await.unwrap();
        dialled.writer.flush().await.unwrap();
        let mut heard = [0; 10];
        accepted.reader.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"still here", "{kind}");
    }
}

#[tokio::test]
async fn replaced_credentials_are_shown_and_believed_by_who_dials() {
    for kind in ["ssl", "quic"] {
        let (old, new) = (Pki::new(), Pki::new());
        let security = switch_of(&old);
        let mut listener = listen(&passive(kind, new.dir.path()), &new.controller()).await;
        let refused = connect(&dial_method(&listener), &security).await;
        assert!(refused.is_err(), "{kind}: of another CA");
        security.replace(new.credentials("sc", &Leaf::datapath(7)));
        pair(&mut listener, &security).await;
    }
}

#[tokio::test]
async fn a_revoked_switch_is_refused_and_the_others_are_not() {
    for kind in ["ssl", "quic"] {
        let pki = Pki::new();
        let ctl = pki.issue("ctl", &Leaf::of(Role::Controller));
        let stolen = pki.issue("stolen", &Leaf::of(Role::Switch));
        let nobody = with_crl(&ctl, pki.revoke("nobody.pem", &[]));
        let security = Security::new(Arc::new(nobody.load().unwrap())).expecting(Role::Switch);
        let mut listener = listen(&passive(kind, pki.dir.path()), &security).await;
        let thief = Security::new(Arc::new(stolen.load().unwrap()));
        pair(&mut listener, &thief).await;

        let listed = with_crl(&ctl, pki.revoke("crl.pem", &[&stolen]));
        security.replace(Arc::new(listed.load().unwrap()));
        // In TLS 1.3 the dialler finishes first, and learns of the refusal when it reads.
        if let Ok(mut dialled) = connect(&dial_method(&listener), &thief).await {
            let _ = dialled.writer.write_all(b"!").await;
            let _ = dialled.writer.flush().await;
            let end = timeout(Duration::from_secs(10), dialled.reader.read_u8()).await;
            assert!(matches!(end, Ok(Err(_))), "{kind}: {end:?}");
        }
        assert_eq!(listener.refusals().get(Refusal::Certificate), 1, "{kind}");
        pair(&mut listener, &switch_of(&pki)).await;
    }
}

#[tokio::test]
async fn a_revoked_controller_is_not_dialled() {
    for kind in ["ssl", "quic"] {
        let pki = Pki::new();
        let ctl = pki.issue("ctl", &Leaf::of(Role::Controller));
        let switch = pki.issue("sc", &Leaf::datapath(7));
        let controller = Security::new(Arc::new(ctl.load().unwrap())).expecting(Role::Switch);
        let mut listener = listen(&passive(kind, pki.dir.path()), &controller).await;
        let security = Security::new(Arc::new(switch.load().unwrap()));
        pair(&mut listener, &security).await;
        let listed = with_crl(&switch, pki.revoke("crl.pem", &[&ctl]));
        security.replace(Arc::new(listed.load().unwrap()));
        let refused = connect(&dial_method(&listener), &security).await;
        let problem = refused.err().expect("it is revoked").to_string();
        assert!(problem.to_lowercase().contains("revoked"), "{problem}");
    }
}

#[test]
fn a_revocation_list_that_would_refuse_everybody_is_not_taken() {
    let (pki, other) = (Pki::new(), Pki::new());
    let good = pki.issue("good", &Leaf::default());
    let strange = with_crl(&good, other.revoke("crl.pem", &[]));
    // Both CAs have the same name, but different keys.
    let line = strange.load().expect_err("of another CA").to_string();
    assert!(
        line.contains("crl.pem") && line.contains("is not signed by"),
        "{line}"
    );

    let no_list = with_crl(&good, good.certificate.clone());
    let line = no_list.load().expect_err("no list").to_string();
    assert!(line.contains("no revocation list in it"), "{line}");

    let crl = pki.revoke("crl.pem", &[]);
    let credentials = with_crl(&good, crl.clone()).load().unwrap();
    let kinds: Vec<_> = credentials.expiries().iter().map(|e| e.kind).collect();
    let expected = [
        ExpiryKind::Certificate,
        ExpiryKind::Ca,
        ExpiryKind::RevocationList,
    ];
    assert_eq!(kinds, expected);
    assert_eq!(credentials.expiries()[2].path, crl);
}

#[tokio::test]
async fn who_is_revoked_while_connected_is_out_and_the_others_are_not() {
    for kind in ["ssl", "quic"] {
        let pki = Pki::new();
        let ctl = pki.issue("ctl", &Leaf::of(Role::Controller));
        let stolen = pki.issue("stolen", &Leaf::of(Role::Switch));
        let nobody = with_crl(&ctl, pki.revoke("nobody.pem", &[]));
        let security = Security::new(Arc::new(nobody.load().unwrap())).expecting(Role::Switch);
        let mut listener = listen(&passive(kind, pki.dir.path()), &security).await;
        let thief = Security::new(Arc::new(stolen.load().unwrap()));
        let (_theirs, mut ours) = pair(&mut listener, &thief).await;
        let (mut good, mut good_ours) = pair(&mut listener, &switch_of(&pki)).await;

        // A reader waits, as for a switch that sends nothing.
        let waiting = tokio::spawn(async move { (ours.reader.read_u8().await, ours) });
        let listed = with_crl(&ctl, pki.revoke("crl.pem", &[&stolen]));
        security.replace(Arc::new(listed.load().unwrap()));
        let ended = timeout(Duration::from_secs(10), waiting).await;
        let (read, mut ours) = ended.expect("it is woken").unwrap();
        let problem = read.expect_err("it is out").to_string();
        assert!(problem.contains("revoked"), "{kind}: {problem}");
        assert!(ours.writer.write_all(b"?").await.is_err(), "{kind}");

        good.writer.write_all(b"still here").await.unwrap();
        good.writer.flush().await.unwrap();
        let mut heard = [0; 10];
        good_ours.reader.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"still here", "{kind}");
    }
}

#[tokio::test]
async fn a_dialled_controller_that_is_revoked_is_left() {
    for kind in ["ssl", "quic"] {
        let pki = Pki::new();
        let ctl = pki.issue("ctl", &Leaf::of(Role::Controller));
        let switch = pki.issue("sc", &Leaf::datapath(7));
        let controller = Security::new(Arc::new(ctl.load().unwrap())).expecting(Role::Switch);
        let mut listener = listen(&passive(kind, pki.dir.path()), &controller).await;
        let security = Security::new(Arc::new(switch.load().unwrap()));
        let (mut dialled, _accepted) = pair(&mut listener, &security).await;
        let listed = with_crl(&switch, pki.revoke("crl.pem", &[&ctl]));
        security.replace(Arc::new(listed.load().unwrap()));
        let read = timeout(Duration::from_secs(10), dialled.reader.read_u8()).await;
        let problem = read.expect("at once").expect_err("it is left").to_string();
        assert!(problem.contains("revoked"), "{kind}: {problem}");
    }
}

/// The CA of a peer's certificate is removed, which does not mean that the peer is a thief.
#[tokio::test]
async fn a_list_of_another_ca_ends_no_connection() {
    let (old, new) = (Pki::new(), Pki::new());
    let security = old.controller();
    let mut listener = listen(&passive("ssl", old.dir.path()), &security).await;
    let switch = old.issue("sc", &Leaf::datapath(7));
    let dialler = Security::new(Arc::new(switch.load().unwrap()));
    let (mut dialled, mut accepted) = pair(&mut listener, &dialler).await;
    let ctl = new.issue("ctl", &Leaf::of(Role::Controller));
    // The list names the serial number of the certificate from the old CA.
    let listed = with_crl(&ctl, new.revoke("crl.pem", &[&switch]));
    security.replace(Arc::new(listed.load().unwrap()));
    dialled.writer.write_all(b"!").await.unwrap();
    dialled.writer.flush().await.unwrap();
    let read = timeout(Duration::from_secs(10), accepted.reader.read_u8()).await;
    assert_eq!(read.expect("at once").unwrap(), b'!');
}
