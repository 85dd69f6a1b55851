use control::clustered::Clustered;
use control::controller::{Controller, ControllerConfig};
use driver::{Driver, DriverConfig};
use serde_json::json;

use super::*;
use config::qos::tree::Node;

struct Kept {
    intent: Arc<Intent>,
    events: mpsc::Receiver<IntentEvent>,
}

impl Kept {
    fn new() -> Kept {
        Kept::with(Store::Memory)
    }

    fn with(store: Store) -> Kept {
        let clock = Clock::start();
        let controller = Clustered::from(Controller::new(ControllerConfig::default(), [7; 32]));
        let (driver, _) = Driver::start(controller, clock, DriverConfig::default()).unwrap();
        let held = Arc::new(Held::new(Arc::new(driver), clock));
        let (intent, events) = Intent::new(held, clock, "a", store);
        Kept { intent, events }
    }

    /// Passes on a reading of a store with these documents.
    async fn read(&self, cluster_id: u64, revision: u64, docs: &[(&str, Value)]) {
        let docs = docs.iter().map(|(key, value)| {
            let value = json!({"by": "a", "at": "", "document": value});
            let value = document::read(key, value.to_string().as_bytes());
            ((*key).to_owned(), Doc { revision: 1, value })
        });
        let read = Read {
            cluster_id,
            revision,
            floor: self.intent.revision_known(),
            docs: docs.collect(),
        };
        self.intent.take_read(read).await;
    }

    async fn names(&self) -> Vec<String> {
        let layers = self.intent.held.layers().await;
        let services = layers
            .api
            .services
            .iter()
            .map(|service| service.name.clone());
        let policies = layers.api.policies.iter().map(|policy| policy.name.clone());
        services.chain(policies).collect()
    }
}

fn service(name: &str) -> (String, Value) {
    (format!("services/{name}"), json!({"name": name}))
}

fn delete(name: &str) -> Change {
    Change {
        ops: vec![Op::Delete(Item::Service(name.to_owned()))],
        ..Change::default()
    }
}

#[tokio::test]
async fn what_a_restored_etcd_has_lost_stays_until_somebody_says_otherwise() {
    let mut kept = Kept::new();
    let [(a, a_text), (b, b_text), (c, c_text)] = ["a", "b", "c"].map(service);
    let all = [(&*a, a_text.clone()), (&*b, b_text), (&*c, c_text)];
    kept.read(1, 100, &all).await;
    kept.read(1, 50, &[(&*a, a_text.clone())]).await;
    assert_eq!(kept.names().await, ["a", "b", "c"]);
    let lost = vec![b.clone(), c.clone()];
    assert_eq!(kept.events.try_recv(), Ok(IntentEvent::Missing(lost)));
    let document = kept.intent.document().unwrap();
    let states = document["documents"].as_array().unwrap().iter();
    let states: Vec<&str> = states
        .map(|entry| entry["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["in use", "missing", "missing"]);
    assert_eq!(kept.intent.counts().missing, 2);
    // A further reading of the same store does not remove them either.
    kept.read(1, 51, &[(&*a, a_text)]).await;
    assert_eq!(kept.names().await, ["a", "b", "c"]);
    // A deletion removes the document.
    kept.intent.change(delete("b")).await.unwrap();
    assert_eq!(kept.names().await, ["a", "c"]);
    assert_eq!(kept.intent.counts().missing, 1);
    // The other missing document is removed when its time is over.
    let over = kept.intent.clock.now() + known::MISSING_MAX;
    let mut turn = kept.intent.turn.lock().await;
    let over = kept.intent.seen().known.expire(over);
    kept.intent.settle(&mut turn, over).await;
    assert_eq!(kept.names().await, ["a"]);
}

#[tokio::test]
async fn nothing_is_changed_before_the_store_was_read() {
    let kept = Kept::new();
    let refused = kept.intent.change(delete("a")).await;
    assert!(matches!(refused, Err(Refused::Away(_))), "{refused:?}");
    kept.read(1, 1, &[]).await;
    let refused = kept.intent.change(delete("a")).await;
    assert_eq!(
        refused,
        Err(Refused::Unknown(Item::Service("a".to_owned())))
    );
}

#[tokio::test]
async fn what_does_not_fit_is_named_once_and_used_when_it_fits() {
    let mut kept = Kept::new();
    let policy = json!({"name": "p", "service": "voice", "drop": true});
    kept.read(
        1,
        10,
        &[("policies/p", policy.clone()), ("services/x", json!(7))],
    )
    .await;
    assert_eq!(kept.names().await, [""; 0]);
    let mut named = Vec::new();
    while let Ok(IntentEvent::LeftOut { key, .. }) = kept.events.try_recv() {
        named.push(key);
    }
    named.sort();
    assert_eq!(named, ["policies/p", "services/x"]);
    kept.read(1, 11, &[("policies/p", policy), ("services/x", json!(7))])
        .await;
    kept.intent.refit().await;
    assert!(kept.events.try_recv().is_err(), "it was named before");
    assert_eq!(kept.intent.counts().left_out, 2);
    let voice = document::read(
        "services/voice",
        br#"{"by":"b","at":"","document":{"name":"voice"}}"#,
    );
    let change = ("services/voice".to_owned(), 12, Some(voice));
    kept.intent.take_changes(vec![change]).await;
    kept.intent.refit().await;
    assert_eq!(kept.names().await, ["voice", "p"]);
    assert_eq!(kept.intent.counts().left_out, 1);
}

fn put(name: &str) -> Op {
    let key = format!("services/{name}");
    let text = json!({"by": "a", "at": "", "document": {"name": name}});
    let put = document::read(&key, text.to_string().as_bytes()).content;
    Op::Put(Box::new(put.unwrap()), Node::of_json(&Value::Null))
}

fn puts(names: impl IntoIterator<Item = String>) -> Change {
    Change {
        ops: names.into_iter().map(|name| put(&name)).collect(),
        ..Change::default()
    }
}

/// Wherever a client disconnects, its change is carried out in full or not at all: here, in the
/// store and in what is known of it.
#[tokio::test]
async fn a_client_that_goes_away_loses_no_half_of_its_change() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::disk(dir.path()).unwrap();
    let kept = Kept::with(store);
    kept.intent.load().await;
    for polls in 1..12 {
        let mut change = Box::pin(kept.intent.change(puts([format!("s{polls}")])));
        let waker = std::task::Waker::noop();
        for _ in 0..polls {
            let polled = change
                .as_mut()
                .poll(&mut std::task::Context::from_waker(waker));
            if polled.is_ready() {
                break;
            }
            // The controller's thread continues meanwhile.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(change);
    }
    kept.intent.change(puts(["last".to_owned()])).await.unwrap();
    let permits = u32::try_from(UNDER_WAY_MAX).unwrap();
    let _over = kept.intent.under_way.acquire_many(permits).await.unwrap();
    let known = |intent: &Intent| -> Vec<String> {
        let seen = intent.seen();
        let keys = seen.known.all_wanted().map(|(key, _)| key.clone());
        keys.collect()
    };
    let mut names = kept.names().await;
    names.sort();
    let names: Vec<String> = names
        .iter()
        .map(|name| format!("services/{name}"))
        .collect();
    assert_eq!(known(&kept.intent), names);
    let Store::Disk(disk) = &kept.intent.store else {
        panic!();
    };
    let disk: Vec<String> = disk.lock().await.documents().into_keys().collect();
    assert_eq!(disk, names);
    assert_eq!(names.len(), 12, "each was under way, and so is done");
}

#[tokio::test]
async fn a_task_that_ends_half_way_leaves_word_to_make_the_layer_anew() {
    let kept = Kept::new();
    kept.read(1, 1, &[]).await;
    let mut turn = kept.intent.turn.lock().await;
    let (key, text) = service("a");
    let text = json!({"by": "", "at": "", "document": text}).to_string();
    let document = document::read(&key, text.as_bytes());
    kept.intent.seen().known.wrote(&key, 2, Some(document));
    let settled = kept.intent.settle(&mut turn, BTreeSet::from([key]));
    let is_whole = timeout(Duration::ZERO, settled).await.is_ok();
    assert!(is_whole || turn.is_behind);
    kept.intent.fit(&mut turn).await;
    assert_eq!(
        (kept.names().await, turn.is_behind),
        (vec!["a".to_owned()], false)
    );
}

#[tokio::test]
async fn a_missing_document_is_deleted_by_the_tag_that_the_client_has_seen() {
    let kept = Kept::new();
    let [(a, a_text), (b, b_text)] = ["a", "b"].map(service);
    kept.read(1, 100, &[(&*a, a_text.clone()), (&*b, b_text)])
        .await;
    kept.read(1, 50, &[(&*a, a_text)]).await;
    let when = |revision| When {
        is: Some(Tags::Revisions(vec![revision])),
        is_not: None,
    };
    let delete = |revision| Change {
        when: when(revision),
        ..delete("b")
    };
    let item = Item::Service("b".to_owned());
    assert_eq!(
        kept.intent.change(delete(7)).await,
        Err(Refused::Stale(item))
    );
    assert_eq!(kept.intent.counts().missing, 1, "and it is not put back");
    kept.intent.change(delete(1)).await.unwrap();
    assert_eq!(kept.names().await, ["a"]);
}

/// A change of places is reported to all pages, whoever saved it. Places read at first are not
/// reported.
#[tokio::test]
async fn places_are_reported_whenever_they_are_others() {
    let mut kept = Kept::new();
    let key = "layout/map";
    let text = |count: u64| {
        let places = (0..count).map(|n| (format!("{n:016x}"), json!([0, 0])));
        json!({"places": places.collect::<serde_json::Map<_, _>>()})
    };
    kept.read(1, 1, &[(key, text(3))]).await;
    assert!(kept.events.try_recv().is_err());
    let document = |count| {
        let text = json!({"by": "b", "at": "", "document": text(count)});
        document::read(key, text.to_string().as_bytes())
    };
    for (revision, value, reported) in [
        (2, Some(document(2)), Some(2)),
        (2, Some(document(2)), None),
        (3, None, Some(0)),
    ] {
        let change = (key.to_owned(), revision, value);
        kept.intent.take_changes(vec![change]).await;
        let event = kept.events.try_recv().ok();
        assert_eq!(event, reported.map(IntentEvent::Layout), "{revision}");
    }
    let put = document(1).content.unwrap();
    let put = Op::Put(Box::new(put), Node::of_json(&Value::Null));
    let change = Change::new(vec![put], When::default());
    let changed = kept.intent.change(change).await.unwrap();
    assert!(changed.is_in_use);
    assert_eq!(kept.events.try_recv(), Ok(IntentEvent::Layout(1)));
    let (revision, layout) = kept.intent.layout().unwrap().unwrap();
    assert_eq!((revision, layout.places.len()), (changed.revision, 1));
    // No layer has the layout, so it fits whatever else there is.
    assert_eq!(kept.names().await, [""; 0]);
    kept.intent.refit().await;
    assert_eq!(kept.intent.counts().left_out, 0);
}

#[tokio::test]
async fn too_many_documents_at_once_are_refused_with_the_numbers() {
    let endpoints = vec!["127.0.0.1:1".parse().unwrap()];
    let client = ::etcd::Client::new(::etcd::Config::new(endpoints)).unwrap();
    let kept = Kept::with(Store::Etcd(Etcd::new(client, "a".to_owned(), 1)));
    kept.read(1, 1, &[]).await;
    let many = (0..=WRITES_MAX).map(|n| format!("s{n}"));
    let refused = kept.intent.change(puts(many)).await;
    let Err(Refused::TooLarge(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        why.contains("101 documents") && why.contains("at most 100"),
        "{why}"
    );
}

#[test]
fn a_part_of_an_import_is_bounded_in_number_and_bytes() {
    let sizes = |most, bytes| -> Vec<usize> {
        let ops = (0..5).map(|n| put(&format!("s{n}"))).collect();
        let parts = import::parts(ops, most, bytes);
        parts.iter().map(Vec::len).collect()
    };
    assert_eq!(sizes(2, 1 << 20), [2, 2, 1]);
    let Op::Put(one, _) = put("s1") else { panic!() };
    let size = Stored::new(&one, "").text().len();
    assert_eq!(sizes(100, 3 * size), [3, 2]);
    assert_eq!(sizes(100, 1), [1; 5]);
}

#[tokio::test]
async fn a_reading_of_too_many_leaves_out_new_documents_alone() {
    let kept = Kept::new();
    let (z, z_text) = service("z");
    kept.read(1, 1, &[(&*z, z_text)]).await;
    let doc = |key: &str| {
        let value = Document::order();
        (key.to_owned(), Doc { revision: 2, value })
    };
    let keys = [ORDER, "services/a", "services/b", "services/z"];
    let mut read: BTreeMap<_, _> = keys.map(doc).into();
    kept.intent.seen().bound(&mut read, 2);
    let left: Vec<&String> = read.keys().collect();
    assert_eq!(left, [ORDER, "services/a", "services/z"]);
}

/// Revisions and texts of one document after a write whose answer was lost.
#[test]
fn a_write_of_unknown_outcome_is_read_from_its_own_document() {
    let stored = Stored {
        by: "a".to_owned(),
        at: "now".to_owned(),
        document: json!(1),
    };
    let write = |expected, value| Write {
        key: "services/a".to_owned(),
        expected,
        value,
    };
    let (put, delete) = (write(5, Some(stored.clone())), write(5, None));
    let outcome = |write: &Write, there| etcd::read_outcome(write, 9, there);
    let other = b"other".to_vec();
    assert_eq!(
        outcome(&put, Some((7, stored.text()))),
        Some(Written::Done(7))
    );
    assert_eq!(
        outcome(&put, Some((5, other.clone()))),
        Some(Written::Lost(9))
    );
    // The revision is unchanged, so the write was lost, though the text is the same.
    assert_eq!(
        outcome(&put, Some((5, stored.text()))),
        Some(Written::Lost(9))
    );
    assert_eq!(outcome(&put, Some((8, other.clone()))), None);
    assert_eq!(outcome(&put, None), None);
    assert_eq!(
        outcome(&write(0, Some(stored)), None),
        Some(Written::Lost(9))
    );
    assert_eq!(outcome(&delete, None), Some(Written::Done(9)));
    assert_eq!(
        outcome(&delete, Some((5, other.clone()))),
        Some(Written::Lost(9))
    );
    assert_eq!(outcome(&delete, Some((8, other))), None);
}

/// A member that cannot read the intent is ready for switches only if no other member is.
#[tokio::test]
async fn a_member_without_intent_leaves_switches_to_others() {
    let endpoints = vec!["127.0.0.1:1".parse().unwrap()];
    let client = ::etcd::Client::new(::etcd::Config::new(endpoints)).unwrap();
    let kept = Kept::new();
    let (loaded, mut is_loaded) = watch::channel(false);
    let (asked, mut is_asked) = watch::channel(0);
    let (elsewhere, is_elsewhere) = watch::channel(true);
    let follow = etcd::follow(
        kept.intent.clone(),
        client,
        watch::channel(true).1,
        Duration::ZERO,
        move || loaded.send_modify(|is_loaded| *is_loaded = true),
        move || {
            asked.send_modify(|times| *times += 1);
            std::future::ready(*is_elsewhere.borrow())
        },
    );
    let follow = tokio::spawn(follow);
    is_asked.wait_for(|times| *times > 2).await.unwrap();
    assert!(!*is_loaded.borrow(), "another one is ready");
    elsewhere.send_replace(false);
    is_loaded.wait_for(|is| *is).await.unwrap();
    follow.abort();
}
