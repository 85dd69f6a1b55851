//! Keys, transactions and leases on a real etcd.

mod common;

use common::etcd::{Etcd, Options};
use common::{client, config, eventually, within};
use etcd::{Cas, Client, Compare, Error, Op, OpResult, Txn};

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_wins_once_and_the_loser_sees_the_winner() {
    let etcd = Etcd::one();
    let client = client(&etcd);
    let Cas::Won(made) = client.cas(b"/a/k", 0, b"1", 0).await.unwrap() else {
        panic!("the key was not there");
    };
    let lost = client.cas(b"/a/k", 0, b"2", 0).await.unwrap();
    let Cas::LostTo(_, Some(there)) = lost else {
        panic!("the key is there: {lost:?}");
    };
    assert_eq!((&there.value[..], there.version), (&b"1"[..], 1));
    assert_eq!(there.mod_revision, made.revision);
    let Cas::Won(changed) = client.cas(b"/a/k", made.revision, b"3", 0).await.unwrap() else {
        panic!("nobody else changed it");
    };
    let lost = client.cas(b"/a/k", made.revision, b"4", 0).await.unwrap();
    assert!(matches!(lost, Cas::LostTo(_, Some(kv)) if kv.mod_revision == changed.revision));
    assert!(matches!(
        client.cas(b"/a/no", 7, b"x", 0).await.unwrap(),
        Cas::LostTo(_, None)
    ));

    // In each round, one of two simultaneous swaps wins.
    let mut revision = changed.revision;
    for _ in 0..20 {
        let other = client.clone();
        let (one, two) = tokio::join!(
            client.cas(b"/a/k", revision, b"one", 0),
            other.cas(b"/a/k", revision, b"two", 0),
        );
        revision = match (one.unwrap(), two.unwrap()) {
            (Cas::Won(header), Cas::LostTo(_, Some(there)))
            | (Cas::LostTo(_, Some(there)), Cas::Won(header)) => {
                assert_eq!(there.mod_revision, header.revision);
                header.revision
            }
            both => panic!("one wins: {both:?}"),
        };
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_does_one_branch_whole() {
    let etcd = Etcd::one();
    let client = client(&etcd);
    let put = |key: &[u8], value: &[u8]| Op::Put {
        key: key.to_vec(),
        value: value.to_vec(),
        lease: 0,
    };
    let header = client.put(b"/t/a", b"1", 0).await.unwrap();
    client.put(b"/t/gone/1", b"", 0).await.unwrap();
    client.put(b"/t/gone/2", b"", 0).await.unwrap();
    let mut txn = Txn {
        compares: vec![
            Compare::ModRevision(b"/t/a".to_vec(), header.revision),
            Compare::CreateRevision(b"/t/a".to_vec(), header.revision),
            Compare::CreateRevision(b"/t/none".to_vec(), 0),
        ],
        then: vec![
            Op::Get(b"/t/a".to_vec()),
            put(b"/t/b", b"2"),
            Op::DeletePrefix(b"/t/gone/".to_vec()),
            Op::Delete(b"/t/none".to_vec()),
            Op::Get(b"/t/none".to_vec()),
        ],
        otherwise: vec![],
    };
    let answer = client.txn(&txn).await.unwrap();
    assert!(answer.succeeded);
    let [OpResult::Got(Some(a)), rest @ ..] = &answer.results[..] else {
        panic!("{answer:?}");
    };
    assert_eq!((&a.value[..], a.mod_revision), (&b"1"[..], header.revision));
    let expected = [
        OpResult::Put,
        OpResult::Deleted(2),
        OpResult::Deleted(0),
        OpResult::Got(None),
    ];
    assert_eq!(rest, expected);
    let all = client.read_all(b"/t/").await.unwrap();
    let keys: Vec<_> = all
        .kvs
        .iter()
        .map(|kv| (&kv.key[..], kv.mod_revision))
        .collect();
    let revision = answer.header.revision;
    assert_eq!(
        keys,
        [(&b"/t/a"[..], header.revision), (&b"/t/b"[..], revision)]
    );

    // One comparison that fails is enough.
    txn.compares[2] = Compare::CreateRevision(b"/t/b".to_vec(), 0);
    let answer = client.txn(&txn).await.unwrap();
    assert_eq!((answer.succeeded, answer.results.len()), (false, 0));

    // Compares all keys of a prefix: none may be later than the revision.
    let until = |prefix: &[u8], revision| Txn {
        compares: vec![Compare::PrefixUntil(prefix.to_vec(), revision)],
        ..Txn::default()
    };
    for (prefix, at, holds) in [
        (&b"/t/"[..], revision, true),
        (b"/t/", revision - 1, false),
        (b"/t/a", revision - 1, true),
        (b"/t/gone/", 1, true),
        (b"/none/", 0, true),
    ] {
        let answer = client.txn(&until(prefix, at)).await.unwrap();
        assert_eq!(answer.succeeded, holds, "{prefix:?} {at}");
    }

    txn.then = vec![put(b"/t/b", b"3"); 2];
    txn.compares.clear();
    let refused = client.txn(&txn).await.unwrap_err();
    assert!(
        matches!(&refused, Error::BadRequest(why) if why.contains("duplicate")),
        "{refused}"
    );
    txn.then = vec![Op::Get(b"/t/b".to_vec()); 129];
    assert!(matches!(client.txn(&txn).await, Err(Error::BadRequest(_))));
    let value = vec![0; 2 << 20];
    assert!(matches!(
        client.put(b"/t/b", &value, 0).await,
        Err(Error::BadRequest(_))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_of_one_revision_while_keys_change() {
    let etcd = Etcd::one();
    let mut small = config(&etcd.endpoints(), None, common::DEADLINE);
    small.limits.page_keys = 7;
    let client = Client::new(small.clone()).unwrap();
    // All keys have the same value after each transaction.
    let write = async |round: u32| {
        let put = |n: u32| Op::Put {
            key: format!("/p/{n:03}").into_bytes(),
            value: round.to_string().into_bytes(),
            lease: 0,
        };
        let txn = Txn {
            then: (0..100).map(put).collect(),
            ..Txn::default()
        };
        client.txn(&txn).await.unwrap();
    };
    client.put(b"/o", b"before", 0).await.unwrap();
    client.put(b"/q", b"after", 0).await.unwrap();
    write(0).await;
    let writer = async {
        for round in 1..=30 {
            write(round).await;
        }
    };
    let reader = async {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..30 {
            let all = client.read_all(b"/p/").await.unwrap();
            assert_eq!(all.kvs.len(), 100);
            let values: std::collections::BTreeSet<_> =
                all.kvs.iter().map(|kv| kv.value.clone()).collect();
            assert_eq!(values.len(), 1, "of one revision");
            seen.extend(values);
        }
        seen
    };
    let ((), seen) = tokio::join!(writer, reader);
    assert!(seen.len() > 1, "keys changed meanwhile");
    assert_eq!(
        client.read_all(b"").await.unwrap().kvs.len(),
        102,
        "the whole database"
    );
    assert_eq!(client.read_all(b"/none").await.unwrap().kvs, []);
    assert_eq!(client.delete_prefix(b"/p/").await.unwrap().value, 100);

    for limit in ["keys", "bytes"] {
        let mut config = small.clone();
        match limit {
            "keys" => config.limits.keys_max = 1,
            _ => config.limits.bytes_max = 8,
        }
        let refused = Client::new(config)
            .unwrap()
            .read_all(b"")
            .await
            .unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{limit}: {refused}");
    }
}

/// A hundred keys of 100 kB are more than the bound of a message, and less than a page of keys.
#[tokio::test(flavor = "multi_thread")]
async fn large_values_come_in_smaller_pages() {
    let etcd = Etcd::one();
    let client = client(&etcd);
    let value = vec![7; 100_000];
    for n in 0..100 {
        client
            .put(format!("/v/{n:02}").as_bytes(), &value, 0)
            .await
            .unwrap();
    }
    let all = client.read_all(b"/v/").await.unwrap();
    assert_eq!(all.kvs.len(), 100);
    assert!(all.kvs.iter().all(|kv| kv.value == value));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_takes_its_keys_with_it() {
    let etcd = Etcd::one();
    let client = client(&etcd);
    let short = client.lease_grant(1).await.unwrap();
    let long = client.lease_grant(600).await.unwrap();
    assert!(short.ttl_s >= 1 && long.ttl_s == 600 && short.id != long.id);
    client.put(b"/l/long", b"", long.id).await.unwrap();
    // On a busy machine the short lease may have expired already.
    let put = client.put(b"/l/short", b"", short.id).await;
    assert!(matches!(put, Ok(_) | Err(Error::LeaseNotFound)), "{put:?}");
    let kept = client.lease_keep_alive(long.id).await.unwrap();
    assert_eq!((kept.id, kept.ttl_s), (long.id, 600));
    eventually(async || match client.get(b"/l/short").await?.value {
        Some(_) => Err(Error::Unreachable("the key is still there".into())),
        None => Ok(()),
    })
    .await;
    assert_eq!(
        client.lease_keep_alive(short.id).await,
        Err(Error::LeaseNotFound)
    );
    assert_eq!(
        client.put(b"/l/x", b"", short.id).await,
        Err(Error::LeaseNotFound)
    );
    assert_eq!(
        client.lease_revoke(short.id).await,
        Err(Error::LeaseNotFound)
    );
    let kv = client.get(b"/l/long").await.unwrap().value.unwrap();
    assert_eq!(kv.lease, long.id);
    client.lease_revoke(long.id).await.unwrap();
    assert_eq!(client.get(b"/l/long").await.unwrap().value, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_still_answers_reads() {
    let etcd = Etcd::start(&Options {
        flags: vec!["--quota-backend-bytes=2097152".into()],
        ..Options::default()
    });
    let client = client(&etcd);
    let value = vec![7; 20 << 10];
    let mut written = 0;
    // etcd knows its size only once it has written a batch.
    let full = within(async {
        loop {
            let key = format!("/f/{written}");
            match client.put(key.as_bytes(), &value, 0).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        }
    })
    .await;
    assert_eq!(full, Error::Full);
    assert_eq!(client.cas(b"/f/new", 0, &value, 0).await, Err(Error::Full));
    let all = client.read_all(b"/f/").await.unwrap();
    // etcd may apply the write that reaches the quota, and report it as refused.
    assert!([written, written + 1].contains(&all.kvs.len()), "{written}");
    let status = eventually(async || match client.status(0).await? {
        status if status.alarms.is_empty() => Err(Error::Unreachable("no alarm yet".into())),
        status => Ok(status),
    })
    .await;
    assert!(status.alarms[0].contains("NOSPACE"), "{status:?}");
    assert!(
        status.db_size_bytes > 1 << 20 && status.has_leader,
        "{status:?}"
    );
    assert!(status.version.starts_with("3."), "{status:?}");
    assert_eq!(status.header.cluster_id, all.header.cluster_id);
    // Deleting makes room, and is allowed.
    assert_eq!(client.delete(b"/f/0").await.unwrap().value, 1);
}
