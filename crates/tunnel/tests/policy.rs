//! A policy map pushed through two relays over loopback QUIC, and what is left of it when one of
//! them goes away.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::Pki;
use net::method::{Method, Transport};
use net::tls::Security;
use relay::{Config, SessionId, Side};
use sched::PolicyMap;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tunnel::{End, EndConfig, Hub, Scheduling, switch};

fn map(generation: u64) -> String {
    format!(
        "Generation: {generation}
         Rule #1: traffic_type=2, udp_dst={generation}, action=queue_id:0
         Default: action=queue_id:1"
    )
}

fn config(side: Side, policy: &str) -> EndConfig {
    let (policy, _) = PolicyMap::parse(policy).expect("a map");
    EndConfig {
        session: Config::new(side),
        targets: BTreeMap::new(),
        target_security: Security::plain(),
        scheduling: Scheduling {
            policy: Some(Arc::new(policy)),
            ..Scheduling::default()
        },
    }
}

async fn start_hub(pki: &Pki, port: u16, policy: &str) -> (Arc<Hub>, JoinSet<()>) {
    let method: Method = format!("pquic:{port}:127.0.0.1").parse().expect("a method");
    let config = config(Side::Controller, policy);
    // The port of a hub that has just ended is free a moment later.
    let bound = timeout(Duration::from_secs(10), async {
        loop {
            match Hub::bind(&method, &pki.controller(), config.clone(), Vec::new()).await {
                Ok(hub) => return hub,
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    });
    let hub = bound.await.expect("it can be bound");
    let mut tasks = JoinSet::new();
    let runs = hub.clone();
    tasks.spawn(async move { runs.run().await });
    (hub, tasks)
}

fn start_end(pki: &Pki, hub: &Hub, id: u8, policy: &str) -> (Arc<End>, JoinSet<()>) {
    let Method::Listen(Transport::Quic, _, port) = hub.local() else {
        panic!("a hub listens on QUIC");
    };
    let relay: Method = format!("quic:127.0.0.1:{port}").parse().expect("a method");
    let end = End::new(
        config(Side::Switch, policy),
        SessionId([id; 16]),
        "controller",
    );
    let mut tasks = JoinSet::new();
    let (dials, security) = (end.clone(), pki.switch());
    tasks.spawn(async move { panic!("{}", switch(&dials, &[relay], &security).await) });
    (end, tasks)
}

fn generation(end: &Arc<End>) -> u64 {
    end.policy_status().expect("it schedules").generation
}

/// Waits until both ends report generation `wanted`.
async fn in_sync(hub: &Hub, end: &Arc<End>, wanted: u64) {
    let until = timeout(Duration::from_secs(20), async {
        loop {
            let ends: Vec<Arc<End>> = hub.ends().into_iter().chain([end.clone()]).collect();
            let agree = ends.iter().all(|end| {
                let status = end.policy_status().expect("it schedules");
                status.is_in_sync == Some(true) && status.generation == wanted
            });
            if agree && ends.len() == 2 {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    until.await.expect("both ends have the map");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_is_pushed_from_either_end_and_a_wrong_one_is_refused() {
    let pki = Pki::new();
    let (hub, _hub_tasks) = start_hub(&pki, 0, &map(1)).await;
    let (end, _end_tasks) = start_end(&pki, &hub, 1, &map(1));
    in_sync(&hub, &end, 1).await;

    let digest = hub.ends()[0]
        .push_policy(&map(2))
        .await
        .expect("it is good");
    assert_eq!(
        end.policy_status().map(|status| status.digest),
        Some(digest)
    );
    in_sync(&hub, &end, 2).await;
    end.push_policy(&map(3)).await.expect("it is good");
    in_sync(&hub, &end, 3).await;

    let wrong = end.push_policy("Rule #1: udp_dst=70000").await.unwrap_err();
    for code in ["E06", "E12", "E14"] {
        assert!(wrong.contains(code), "{wrong}");
    }
    in_sync(&hub, &end, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_loaded_before_there_is_a_connection_is_at_both_ends_once_there_is() {
    let pki = Pki::new();
    let alone = End::new(config(Side::Switch, &map(1)), SessionId([1; 16]), "c");
    let mut committed = alone.committed().expect("it schedules");
    assert!(
        alone.push_policy(&map(4)).await.is_err(),
        "both ends or none"
    );
    alone.load_policy(&map(4)).await.expect("it is good");
    assert!(alone.load_policy("Rule #1: udp_dst=70000").await.is_err());
    assert_eq!(generation(&alone), 4);
    assert_eq!(committed.borrow_and_update().generation, 4);

    let (hub, _hub_tasks) = start_hub(&pki, 0, &map(1)).await;
    let (end, _end_tasks) = start_end(&pki, &hub, 2, &map(1));
    in_sync(&hub, &end, 1).await;
    end.load_policy(&map(4)).await.expect("it is good");
    in_sync(&hub, &end, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_end_is_restarted_the_committed_map_is_at_both_again() {
    let pki = Pki::new();
    let (hub, hub_tasks) = start_hub(&pki, 0, &map(1)).await;
    let (end, end_tasks) = start_end(&pki, &hub, 1, &map(1));
    in_sync(&hub, &end, 1).await;
    end.push_policy(&map(5)).await.expect("it is good");
    in_sync(&hub, &end, 5).await;

    // The switch's relay is replaced by another, with the map of its file.
    drop((end, end_tasks));
    let (end, _end_tasks) = start_end(&pki, &hub, 2, &map(1));
    in_sync(&hub, &end, 5).await;

    // And the controller's. While it is gone, a push is refused and the map stays.
    let Method::Listen(Transport::Quic, _, port) = hub.local() else {
        panic!("a hub listens on QUIC");
    };
    let port = *port;
    hub.close("restarted");
    drop((hub, hub_tasks));
    let gone = timeout(Duration::from_secs(20), async {
        while end.status().is_up {
            sleep(Duration::from_millis(20)).await;
        }
    });
    gone.await.expect("the end notices");
    assert!(end.push_policy(&map(6)).await.is_err());
    assert_eq!(generation(&end), 5);
    let (hub, _hub_tasks) = start_hub(&pki, port, &map(1)).await;
    in_sync(&hub, &end, 5).await;
}
