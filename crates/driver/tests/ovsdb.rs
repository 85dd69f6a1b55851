//! The OVSDB client against a scripted server; the binary's tests use a real one.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use common::Pki;
use common::switch::PATIENCE;
use driver::databases::Databases;
use driver::ovsdb::{Client, ClientError};
use net::clock::Clock;
use net::method::Method;
use net::transport::{Connection, connect, memory};
use openflow::DatapathId;
use ovsdb::{Answer, Config, Uuid};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

#[tokio::test]
async fn a_request_is_answered_and_the_end_is_told() {
    let (ours, mut server) = memory(1 << 16);
    let mut client = Client::new(ours, Clock::start(), Config::default());
    let script = tokio::spawn(async move {
        let mut request = vec![0; 1024];
        let count = server.reader.read(&mut request).await.unwrap();
        let request: serde_json::Value = serde_json::from_slice(&request[..count]).unwrap();
        assert_eq!(request["method"], "list_dbs");
        let id = &request["id"];
        // Split where it hurts: the second half follows when the first has been read.
        let reply = format!(r#"{{"id":{id},"result":["Open_vSwitch"],"error":null}}"#);
        let (head, tail) = reply.split_at(9);
        server.writer.write_all(head.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
        server.writer.write_all(tail.as_bytes()).await.unwrap();
        server.writer.shutdown().await.unwrap();
        server
    });
    let answer = client.ask(|session, now| session.list_dbs(now)).await;
    let names = vec!["Open_vSwitch".to_owned()];
    assert_eq!(answer.unwrap(), Answer::Databases(names));
    assert!(matches!(client.next().await, Err(ClientError::End)));
    script.await.unwrap();
}

/// Answers the client's requests until its rows, a bridge for each datapath, have been sent.
async fn say_bridges(database: &mut Connection, datapaths: [u64; 2]) {
    let optional = |key: &str| json!({"type": {"key": key, "min": 0, "max": 1}});
    let columns = json!({
        "controller": optional("uuid"), "datapath_id": optional("string"),
        "datapath_type": optional("string"), "fail_mode": optional("string"),
        "flow_tables": {"type": {"key": "integer", "value": "uuid", "min": 0, "max": 254}},
        "name": {"type": "string"}, "ports": optional("uuid"),
    });
    let schema = json!({
        "name": "Open_vSwitch", "version": "1", "tables": {"Bridge": {"columns": columns}},
    });
    let bridge = |id: u64| {
        let columns = json!({"name": format!("br{id}"), "datapath_id": format!("{id:016x}")});
        (Uuid(id.into()).to_string(), json!({"initial": columns}))
    };
    let rows: Map<String, Value> = datapaths.into_iter().map(bridge).collect();
    let answers = [
        ("get_schema", schema),
        ("monitor_cond", json!({"Bridge": rows})),
    ];
    for (id, (method, result)) in answers.into_iter().enumerate() {
        let mut heard = Vec::new();
        while !String::from_utf8_lossy(&heard).contains(method) {
            assert_ne!(database.reader.read_buf(&mut heard).await.unwrap(), 0);
        }
        let answer = json!({"id": id, "result": result, "error": null}).to_string();
        database.writer.write_all(answer.as_bytes()).await.unwrap();
        database.writer.flush().await.unwrap();
    }
}

/// The certificate names datapath 7, and the database claims datapath 8 too.
#[tokio::test]
async fn a_database_has_the_datapath_of_its_certificate_and_no_other() {
    let pki = Pki::new();
    let any = "pssl:0:127.0.0.1".parse().unwrap();
    let started = Databases::start(&[any], &pki.controller(), Clock::start(), 1).await;
    let databases = started.unwrap();
    let mut views = databases.views();
    let (Method::Listen(_, _, port), _) = &databases.listening()[0] else {
        panic!("it listens");
    };
    let method = format!("ssl:127.0.0.1:{port}").parse().unwrap();
    let mut database = connect(&method, &pki.switch()).await.unwrap();
    say_bridges(&mut database, [7, 8]).await;
    let seen = views.wait_for(|views| !views.is_empty());
    let seen = timeout(PATIENCE, seen).await.expect("its rows are read");
    let datapaths: Vec<_> = seen.unwrap().keys().copied().collect();
    assert_eq!(datapaths, [DatapathId(7)]);
}
