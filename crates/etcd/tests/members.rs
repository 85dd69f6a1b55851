//! Calls while members of a real cluster die or stop.

mod common;

use std::time::Duration;

use common::etcd::{Etcd, Options};
use common::{client, client_of, eventually, within};
use etcd::{Cas, Error};

/// Short enough to try another member often. A call that a busy machine delays is repeated.
const SHORT: Duration = Duration::from_secs(2);

fn three() -> Etcd {
    Etcd::start(&Options {
        members: 3,
        ..Options::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_go_to_another_member_when_one_is_killed() {
    let mut etcd = three();
    let client = client_of(&etcd.endpoints(), None, SHORT);
    let made = eventually(async || client.put(b"/m/k", b"0", 0).await).await;
    for member in 0..3 {
        etcd.kill(member);
        let value = member.to_string();
        // A swap with an unknown result that then loses to its own value is done.
        let mut known = 0;
        eventually(
            async || match client.cas(b"/m/k", known, value.as_bytes(), 0).await? {
                Cas::Won(_) => Ok(()),
                Cas::LostTo(_, Some(kv)) if kv.value == value.as_bytes() => Ok(()),
                Cas::LostTo(_, kv) => {
                    known = kv.unwrap().mod_revision;
                    Err(Error::Unreachable("another value is there".into()))
                }
            },
        )
        .await;
        let kv = eventually(async || client.get(b"/m/k").await)
            .await
            .value
            .unwrap();
        assert_eq!(kv.value, value.as_bytes());
        let status = client.status(member).await;
        assert!(matches!(status, Err(Error::Unreachable(_))), "{status:?}");
        etcd.restart(member);
    }
    let all = eventually(async || client.read_all(b"/m/").await).await;
    assert_eq!(all.header.cluster_id, made.cluster_id);
    assert_eq!(all.kvs.len(), 1);

    // Without two of three members there is no quorum: the third answers that it cannot.
    etcd.kill(0);
    etcd.kill(1);
    let lonely = client_of(&etcd.endpoints()[2..], None, SHORT);
    let reading = async || lonely.get(b"/m/k").await.map(drop);
    let writing = async || lonely.put(b"/m/k", b"", 0).await.map(drop);
    without_leader(reading).await;
    without_leader(writing).await;
}

/// Repeats a call until the member knows that it has no leader. Until then it may answer, or not.
async fn without_leader(mut call: impl AsyncFnMut() -> Result<(), Error>) {
    let repeated = async {
        loop {
            match call().await {
                Err(Error::Unreachable(why)) if why.contains("no leader") => return,
                Ok(()) | Err(Error::Unreachable(_) | Error::Unknown(_)) => {}
                outcome => panic!("{outcome:?}"),
            }
        }
    };
    within(repeated).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_stopped_member_is_unknown_and_a_read_goes_on() {
    let etcd = three();
    let endpoints = etcd.endpoints();
    let patient = client(&etcd);
    let first = client_of(&endpoints[..1], None, SHORT);
    eventually(async || first.get(b"/s/k").await).await;
    etcd.stop(0);
    // The client has a connection, so the write is sent.
    let unknown = first.put(b"/s/k", b"first", 0).await.unwrap_err();
    assert!(matches!(unknown, Error::Unknown(_)), "{unknown}");
    let all = client_of(&endpoints, None, SHORT);
    eventually(async || all.get(b"/s/k").await).await;
    let done = eventually(async || all.put(b"/s/other", b"", 0).await).await;
    etcd.resume(0);
    let kv = eventually(async || patient.get(b"/s/k").await).await.value;
    assert!(kv.is_none_or(|kv| kv.version == 1), "sent once");
    // The member that was stopped follows again, and answers its client.
    let header = eventually(async || first.get(b"/s/other").await)
        .await
        .header;
    assert!(header.revision >= done.revision);
}
