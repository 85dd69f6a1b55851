//! TLS with certificates of clients, and etcd's access control by their common names.

mod common;

use common::etcd::{Etcd, Files, Options};
use common::{DEADLINE, client_of, eventually, within};
use etcd::{Change, Error, Notice};

fn secure() -> Etcd {
    Etcd::start(&Options {
        is_tls: true,
        ..Options::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_opens_the_prefix_of_its_role_only() {
    let etcd = secure();
    for command in [
        &["user", "add", "root", "--no-password"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "a", "--no-password"],
        &["role", "add", "auster"],
        &[
            "role",
            "grant-permission",
            "auster",
            "--prefix=true",
            "readwrite",
            "/auster/",
        ],
        &["user", "grant-role", "a", "auster"],
        &["auth", "enable"],
    ] {
        etcd.ctl(command);
    }
    let files = etcd.client_files("a");
    let client = client_of(&etcd.endpoints(), Some(&files), DEADLINE);
    let put = eventually(async || client.put(b"/auster/v1/k", b"v", 0).await).await;
    let all = client.read_all(b"/auster/").await.unwrap();
    assert_eq!(all.kvs.len(), 1);
    client
        .cas(b"/auster/v1/k", put.revision, b"w", 0)
        .await
        .unwrap();
    let mut watch = client.watch(b"/auster/", put.revision).await.unwrap();
    let Notice::Changes(_, changes) = within(watch.next()).await else {
        panic!("two changes");
    };
    assert_eq!(changes[0].revision(), put.revision);
    assert!(matches!(&changes[0], Change::Put(kv) if kv.value == b"v"));
    let lease = client.lease_grant(60).await.unwrap();
    client.lease_keep_alive(lease.id).await.unwrap();

    let refusals = [
        client.get(b"/other").await.map(drop),
        client.read_all(b"").await.map(drop),
        client.put(b"/other", b"", 0).await.map(drop),
        client.cas(b"/other", 0, b"", 0).await.map(drop),
        client.delete_prefix(b"/").await.map(drop),
        client.watch(b"/other", 1).await.map(drop),
    ];
    for (n, refused) in refusals.into_iter().enumerate() {
        assert!(
            matches!(&refused, Err(Error::Refused(why)) if why.contains("permission denied")),
            "{n}: {refused:?}"
        );
    }
    let files = etcd.client_files("nobody");
    let nobody = client_of(&etcd.endpoints(), Some(&files), DEADLINE);
    let refused = nobody.get(b"/auster/v1/k").await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn authorities_that_differ_are_one_clear_refusal() {
    let etcd = secure();
    let ours = etcd.client_files("a");
    let foreign = etcd.foreign_files();
    let client = client_of(&etcd.endpoints(), Some(&ours), DEADLINE);
    eventually(async || client.put(b"/k", b"", 0).await).await;

    let distrusts = Files {
        ca: foreign.ca.clone(),
        ..ours.clone()
    };
    let client = client_of(&etcd.endpoints(), Some(&distrusts), DEADLINE);
    for refused in [
        client.get(b"/k").await.map(drop),
        client.put(b"/k", b"", 0).await.map(drop),
    ] {
        let Err(Error::Refused(why)) = refused else {
            panic!("{refused:?}");
        };
        assert!(why.starts_with(&etcd.endpoints()[0]), "{why}");
        assert!(
            why.contains("invalid peer certificate: UnknownIssuer"),
            "{why}"
        );
        assert!(!why.contains('\n'), "{why}");
    }

    // The member refuses our certificate only after the handshake of TLS 1.3.
    let distrusted = Files {
        ca: ours.ca.clone(),
        ..foreign
    };
    let client = client_of(&etcd.endpoints(), Some(&distrusted), DEADLINE);
    eventually(async || match client.put(b"/k", b"", 0).await {
        Err(Error::Refused(why)) if why.contains("fatal alert") => Ok(()),
        Err(error) => Err(error),
        Ok(header) => panic!("{header:?}"),
    })
    .await;

    // Without TLS the member hangs up.
    let plain = client_of(&etcd.endpoints(), None, DEADLINE);
    let refused = plain.get(b"/k").await;
    assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    let refused = plain.put(b"/k", b"", 0).await;
    assert!(
        matches!(refused, Err(Error::Unknown(_) | Error::Unreachable(_))),
        "{refused:?}"
    );
}

/// The certificate has the address and no name.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_must_have_the_name_that_was_dialled() {
    let etcd = secure();
    let files = etcd.client_files("a");
    let endpoint = etcd.endpoints().remove(0);
    let (address, port) = endpoint.split_once(':').unwrap();
    // An IPv4 address as IPv6 reaches the same socket, and is another name.
    let mapped = format!("[::ffff:{address}]:{port}");
    let client = client_of(&[mapped], Some(&files), DEADLINE);
    let refused = client.get(b"/k").await;
    let Err(Error::Refused(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("not valid for"), "{why}");
}
