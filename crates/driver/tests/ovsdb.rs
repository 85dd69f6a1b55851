//! The OVSDB client against a scripted server; a real one is asked in the binary's tests.

use driver::ovsdb::{Client, ClientError};
use net::clock::Clock;
use net::transport::memory;
use ovsdb::{Answer, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
