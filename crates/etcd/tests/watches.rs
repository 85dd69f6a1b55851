//! Watches of a real etcd.

mod common;

use common::etcd::{Etcd, Options};
use common::{client, client_of, config, eventually, within};
use etcd::{Change, Client, Header, Lost, Notice, Op, Txn, Watch};

/// Changes up to a revision. Each notice must begin after the one before.
async fn changes(watch: &mut Watch, last: i64) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    while all.last().is_none_or(|change| change.revision() < last) {
        match within(watch.next()).await {
            Notice::Changes(header, changes) => {
                let before = all.last().map_or(0, Change::revision);
                assert!(
                    changes[0].revision() > before,
                    "a notice has whole revisions"
                );
                assert!(changes.last().unwrap().revision() <= header.revision);
                all.extend(changes);
            }
            Notice::Progress(_) => {}
            over @ Notice::ReadAnew(_) => panic!("{over:?}"),
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_reports_all_changes_in_their_order() {
    let etcd = Etcd::one();
    let client = client(&etcd);
    client.put(b"/w/old", b"", 0).await.unwrap();
    let snapshot = client.read_all(b"/w/").await.unwrap();
    client.put(b"/w/between", b"", 0).await.unwrap();
    let mut watch = client
        .watch(b"/w/", snapshot.header.revision + 1)
        .await
        .unwrap();
    let mut last = 0;
    let mut expected = vec![("/w/between".to_owned(), true)];
    for round in 0..50 {
        let key = format!("/w/{}", round % 7);
        client
            .put(format!("/x/{round}").as_bytes(), b"", 0)
            .await
            .unwrap();
        if round % 3 == 2 {
            let deleted = client.delete(key.as_bytes()).await.unwrap();
            last = deleted.header.revision;
            expected.extend((deleted.value == 1).then_some((key, false)));
        } else {
            last = client.put(key.as_bytes(), b"v", 0).await.unwrap().revision;
            expected.push((key, true));
        }
    }
    last = client
        .put(b"/w/end", b"", 0)
        .await
        .unwrap()
        .revision
        .max(last);
    expected.push(("/w/end".into(), true));
    let seen = changes(&mut watch, last).await;
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    let seen: Vec<_> = seen
        .iter()
        .map(|change| (text(change.key()), matches!(change, Change::Put(_))))
        .collect();
    assert_eq!(seen, expected);

    watch.request_progress();
    let notice = within(watch.next()).await;
    assert!(
        matches!(notice, Notice::Progress(header) if header.revision >= last),
        "{notice:?}"
    );
}

/// A revision that takes several messages, and many revisions that arrive in a few.
#[tokio::test(flavor = "multi_thread")]
async fn fragments_of_a_revision_are_one_notice() {
    let etcd = Etcd::start(&Options {
        flags: vec!["--max-request-bytes=65536".into()],
        ..Options::default()
    });
    let client = client(&etcd);
    let long = "k".repeat(400);
    let first = client.put(b"/f/first", b"", 0).await.unwrap();
    for part in 0..30 {
        let put = |n: u32| Op::Put {
            key: format!("/f/{long}/{part}/{n:02}").into_bytes(),
            value: b"value".to_vec(),
            lease: 0,
        };
        let txn = Txn {
            then: (0..100).map(put).collect(),
            ..Txn::default()
        };
        client.txn(&txn).await.unwrap();
    }
    let mut live = client.watch(b"/f/", first.revision).await.unwrap();
    let gone = client
        .delete_prefix(format!("/f/{long}/").as_bytes())
        .await
        .unwrap();
    assert_eq!(gone.value, 3000);
    let last = gone.header.revision;
    let mut late = client.watch(b"/f/", first.revision).await.unwrap();
    for watch in [&mut live, &mut late] {
        let all = changes(watch, last).await;
        assert_eq!(all.len(), 1 + 3000 + 3000);
        let deleted = all.iter().filter(|change| change.revision() == last);
        assert!(
            deleted
                .clone()
                .all(|change| matches!(change, Change::Delete { .. }))
        );
        assert_eq!(deleted.count(), 3000);
    }

    let mut config = config(&etcd.endpoints(), None, common::DEADLINE);
    config.limits.bytes_max = 200_000;
    let mut bounded = Client::new(config)
        .unwrap()
        .watch(b"/f/", last)
        .await
        .unwrap();
    let over = within(bounded.next()).await;
    assert!(matches!(&over, Notice::ReadAnew(Lost::Invalid(why)) if why.contains("more changes")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_revision_asks_for_everything_anew() {
    let etcd = Etcd::one();
    let client = client(&etcd);
    let first = client.put(b"/c/k", b"1", 0).await.unwrap();
    let mut header = first;
    for _ in 0..5 {
        header = client.put(b"/c/k", b"2", 0).await.unwrap();
    }
    let revision = header.revision;
    etcd.ctl(&["compact", &revision.to_string()]);
    let mut watch = client.watch(b"/c/", first.revision).await.unwrap();
    for _ in 0..2 {
        let notice = within(watch.next()).await;
        assert_eq!(notice, Notice::ReadAnew(Lost::Compacted(revision)));
    }
    // The recovery that is left to the caller works.
    let all = client.read_all(b"/c/").await.unwrap();
    let mut watch = client.watch(b"/c/", all.header.revision + 1).await.unwrap();
    let changed = client.put(b"/c/k", b"3", 0).await.unwrap();
    assert_eq!(changes(&mut watch, changed.revision).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_a_killed_or_stopped_member_ends() {
    let mut etcd = Etcd::one();
    let mut config = config(&etcd.endpoints(), None, common::DEADLINE);
    config.progress = std::time::Duration::from_secs(2);
    let client = Client::new(config).unwrap();
    let Header { revision, .. } = client.put(b"/k", b"", 0).await.unwrap();
    let mut watch = client.watch(b"/", revision).await.unwrap();
    assert_eq!(changes(&mut watch, revision).await.len(), 1);
    etcd.stop(0);
    let lost = within(async {
        loop {
            if let Notice::ReadAnew(lost) = watch.next().await {
                return lost;
            }
        }
    })
    .await;
    assert_eq!(lost, Lost::Silent);
    etcd.resume(0);

    let patient = client_of(&etcd.endpoints(), None, common::DEADLINE);
    let mut watch = eventually(async || patient.watch(b"/", revision).await).await;
    assert_eq!(changes(&mut watch, revision).await.len(), 1);
    etcd.kill(0);
    let notice = within(watch.next()).await;
    assert!(
        matches!(notice, Notice::ReadAnew(Lost::Broken(_))),
        "{notice:?}"
    );
    etcd.restart(0);
    let mut watch = eventually(async || patient.watch(b"/", revision).await).await;
    assert_eq!(changes(&mut watch, revision).await.len(), 1);
}
