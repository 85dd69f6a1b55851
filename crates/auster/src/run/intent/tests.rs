use control::clustered::Clustered;
use control::controller::{Controller, ControllerConfig};
use driver::{Driver, DriverConfig};
use serde_json::json;

use super::*;

struct Kept {
    intent: Arc<Intent>,
    events: mpsc::Receiver<IntentEvent>,
}

impl Kept {
    fn new() -> Kept {
        let clock = Clock::start();
        let controller = Clustered::from(Controller::new(ControllerConfig::default(), [7; 32]));
        let (driver, _) = Driver::start(controller, clock, DriverConfig::default()).unwrap();
        let held = Arc::new(Held::new(Arc::new(driver), clock));
        let (intent, events) = Intent::new(held, clock, "a", Store::Memory);
        Kept { intent, events }
    }

    /// A reading of a store that has these.
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
    // The next reading of the same store takes nothing away either.
    kept.read(1, 51, &[(&*a, a_text)]).await;
    assert_eq!(kept.names().await, ["a", "b", "c"]);
    // Deleted, it is gone.
    kept.intent.change(delete("b")).await.unwrap();
    assert_eq!(kept.names().await, ["a", "c"]);
    assert_eq!(kept.intent.counts().missing, 1);
    // And after its time.
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
