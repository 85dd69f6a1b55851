//! Every transport carries bytes both ways and names the peer.

mod common;

use common::{Leaf, Pki, dial_method, listen, pair, passive};
use net::tls::{Role, Security};
use net::transport::{Limits, Listener, TransportKind, connect};
use openflow::DatapathId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn bytes_cross_every_transport_and_the_end_arrives_after_them() {
    let pki = Pki::new();
    for kind in ["tcp", "ssl", "quic", "unix"] {
        let mut listener = listen(&passive(kind, pki.dir.path()), &pki.controller()).await;
        let (mut switch, mut controller) = pair(&mut listener, &pki.switch()).await;
        assert_eq!(controller.peer.transport.name(), kind);

        let sent: Vec<u8> = (0..400_000u32).map(|i| (i % 251) as u8).collect();
        let copy = sent.clone();
        let sender = tokio::spawn(async move {
            switch.writer.write_all(&copy).await.unwrap();
            switch.writer.shutdown().await.unwrap();
            // Keeps the reading half until everything has arrived.
            switch
        });
        let mut received = Vec::new();
        controller.reader.read_to_end(&mut received).await.unwrap();
        assert!(received == sent, "{kind}: {} bytes", received.len());
        sender.await.unwrap();
    }
}

#[tokio::test]
async fn a_certificate_tells_role_and_datapath_on_both_sides() {
    let pki = Pki::new();
    for kind in ["ssl", "quic"] {
        let mut listener = listen(&passive(kind, pki.dir.path()), &pki.controller()).await;
        let (dialled, accepted) = pair(&mut listener, &pki.switch()).await;
        assert_eq!(accepted.peer.role, Some(Role::Switch), "{kind}");
        assert_eq!(accepted.peer.datapath_id, Some(DatapathId(7)));
        assert_eq!(dialled.peer.role, Some(Role::Controller));
        assert_eq!(dialled.peer.datapath_id, None);
        let tls = accepted.peer.tls.unwrap();
        assert_eq!(tls.version, "TLSv1.3");
        let prefix = format!("{kind}:127.0.0.1:");
        assert!(accepted.peer.address.starts_with(&prefix));
    }
}

#[tokio::test]
async fn plain_transports_claim_no_identity() {
    let pki = Pki::new();
    let mut listener = listen("ptcp:0:127.0.0.1", &Security::plain()).await;
    let (_dialled, accepted) = pair(&mut listener, &pki.switch()).await;
    assert_eq!(accepted.peer.transport, TransportKind::Tcp);
    assert_eq!(accepted.peer.role, None);
    assert_eq!(accepted.peer.tls, None);
}

/// A listener must leave nothing behind: its port and file are free again afterwards.
#[tokio::test]
async fn a_port_in_use_is_told_and_is_free_after_its_listener() {
    let pki = Pki::new();
    for kind in ["tcp", "unix", "quic"] {
        let first = listen(&passive(kind, pki.dir.path()), &pki.controller()).await;
        let taken = first.local().clone();
        let error = match Listener::bind(&taken, &pki.controller(), Limits::default()).await {
            Ok(_) => panic!("{kind}: bound twice"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("the address is in use"), "{error}");
        assert!(error.starts_with(&taken.to_string()), "{error}");
        drop(first);
        // Dropping aborts the accepting task; the task releases the socket when it next runs.
        for attempt in 0.. {
            tokio::task::yield_now().await;
            match Listener::bind(&taken, &pki.controller(), Limits::default()).await {
                Ok(_) => break,
                Err(error) => assert!(attempt < 1000, "{error}"),
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_dialled_is_told_in_one_line() {
    let pki = Pki::new();
    for (method, security, problem) in [
        ("tcp:127.0.0.1:1", Security::plain(), "nobody listens"),
        ("ssl:127.0.0.1:1", Security::plain(), "needs certificates"),
        ("ptcp:1", Security::plain(), "drop the 'p'"),
        (
            "tcp:no-such-host.invalid",
            Security::plain(),
            "has no address",
        ),
        (
            "tcp:[fe80::1%no-such-dev]",
            Security::plain(),
            "No such device",
        ),
        ("unix:/no/such/socket", Security::plain(), "No such file"),
        ("quic:127.0.0.1:1", pki.switch(), "no QUIC handshake"),
    ] {
        let error = match connect(&method.parse().unwrap(), &security).await {
            Ok(_) => panic!("{method} connected"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(problem), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn above_its_limits_a_listener_closes_at_once_and_counts() {
    let limits = Limits {
        connections_max: 2,
        ..Limits::default()
    };
    let method = "ptcp:0:127.0.0.1".parse().unwrap();
    let mut listener = Listener::bind(&method, &Security::plain(), limits)
        .await
        .unwrap();
    let (_first, _held) = pair(&mut listener, &Security::plain()).await;
    let (_second, released) = pair(&mut listener, &Security::plain()).await;
    let mut third = connect(&dial_method(&listener), &Security::plain())
        .await
        .unwrap();
    let _ = third.reader.read_u8().await.expect_err("closed at once");
    let refused = listener.refusals().get(net::transport::Refusal::Total);
    assert_eq!(refused, 1);
    drop(released);
    pair(&mut listener, &Security::plain()).await;
}

/// A peer whose machine is down sends nothing, not even a reset.
#[tokio::test]
async fn a_quic_peer_that_falls_silent_is_gone_within_four_seconds() {
    let pki = Pki::new();
    let mut listener = listen("pquic:0:127.0.0.1", &pki.controller()).await;
    let method = dial_method(&listener);
    let switch_security = Security::new(pki.credentials("silent", &Leaf::datapath(9)));
    // Its runtime is never polled again after the handshake: it behaves like a stopped process.
    let switch = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let connection = runtime.block_on(async {
            let mut connection = connect(&method, &switch_security).await.unwrap();
            connection.writer.write_all(b"!").await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            connection
        });
        (runtime, connection)
    });
    let mut accepted = listener.accept().await;
    assert_eq!(accepted.reader.read_u8().await.unwrap(), b'!');
    let silent = switch.await.unwrap();
    let since = std::time::Instant::now();
    let _ = accepted.reader.read_u8().await.expect_err("timed out");
    assert!(since.elapsed().as_secs() < 4, "{:?}", since.elapsed());
    tokio::task::spawn_blocking(move || drop(silent))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_unix_socket_is_its_owners_alone_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    // The umask belongs to the whole process, but no other test here looks at a mode.
    let before = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let listener = listen(&format!("punix:{}", path.display()), &Security::plain()).await;
    let bound = (mode(), net::transport::bind_unix(&path).map(drop));
    nix::sys::stat::umask(before);
    assert_eq!(format!("{:o}", bound.0), "600");
    assert!(bound.1.is_err(), "it is in use");
    drop(listener);

    // A socket that its process has left behind is replaced; another file is not.
    drop(net::transport::bind_unix(&path).unwrap());
    drop(net::transport::bind_unix(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "notes").unwrap();
    assert!(net::transport::bind_unix(&path).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "notes");
}
