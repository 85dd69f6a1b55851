//! A recorded exchange between a real ovsdb-client and ovsdb-server (`fixtures/record.py`): our
//! reading of it must agree with theirs.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::{Datum, Limits, Message, OpResult, Replica, Row, Schema, Splitter, parse_results};
use serde_json::Value;

const FIXTURES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/ovsdb-server-3.1.0"
);

const EXCHANGES: [&str; 7] = [
    "get-schema",
    "list-dbs",
    "monitor",
    "monitor-after",
    "monitor-cond",
    "monitor-cond-after",
    "transact-refused",
];

/// The bytes of one direction of an exchange.
#[allow(clippy::disallowed_methods, reason = "a test reads its fixtures")]
fn stream(exchange: &str, direction: &str) -> Vec<u8> {
    let text = std::fs::read_to_string(format!("{FIXTURES}/{exchange}.jsonl")).unwrap();
    let mut bytes = Vec::new();
    for line in text.lines() {
        let (mark, chunk): (String, String) = serde_json::from_str(line).unwrap();
        if mark == direction {
            bytes.extend_from_slice(chunk.as_bytes());
        }
    }
    bytes
}

/// Splits and decodes a stream that arrives `step` bytes at a time.
fn messages(stream: &[u8], step: usize) -> Vec<Message> {
    let mut splitter = Splitter::new(Limits::default());
    let mut messages = Vec::new();
    for chunk in stream.chunks(step) {
        splitter.handle_bytes(chunk);
        while let Some(bytes) = splitter.poll_message().unwrap() {
            messages.push(Message::decode(&bytes).unwrap());
        }
    }
    assert_eq!(splitter.len_bytes(), 0, "a message was left over");
    messages
}

fn schema() -> Schema {
    let server = messages(&stream("get-schema", "<"), usize::MAX);
    let schema = server.iter().find_map(|message| match message {
        Message::Response { result, .. } => Schema::from_json(result).ok(),
        _ => None,
    });
    schema.expect("the recording has the schema")
}

#[test]
fn every_recorded_message_is_read_in_any_cut_and_written_back() {
    let mut count = 0;
    for exchange in EXCHANGES {
        for direction in ["<", ">"] {
            let stream = stream(exchange, direction);
            let whole = messages(&stream, usize::MAX);
            assert!(!whole.is_empty());
            for step in [1, 7, 4096] {
                assert_eq!(messages(&stream, step), whole, "{exchange} by {step}");
            }
            for message in &whole {
                assert_eq!(Message::decode(&message.encode()).as_ref(), Ok(message));
            }
            count += whole.len();
        }
    }
    assert!(count >= 50, "only {count} messages were recorded");
}

/// The columns that the recorded client asked for, and all that the server reported.
fn replay(exchange: &str, method: &str) -> (Replica, usize) {
    let client = messages(&stream(exchange, ">"), usize::MAX);
    let (id, tables) = client
        .iter()
        .find_map(|message| match message {
            Message::Request {
                id,
                method: m,
                params,
            } if m == method => Some((id, &params[2])),
            _ => None,
        })
        .expect("the client started a monitor");
    let mut columns: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (table, requests) in tables.as_object().unwrap() {
        let requests = requests.as_array().unwrap();
        let names = requests
            .iter()
            .flat_map(|r| r["columns"].as_array().unwrap());
        let names = names.map(|name| name.as_str().unwrap().to_string());
        columns.insert(table.clone(), names.collect());
    }

    let mut replica = Replica::new(schema(), columns, 1000);
    let mut update_count = 0;
    for message in messages(&stream(exchange, "<"), usize::MAX) {
        match &message {
            Message::Response { id: of, result } if of == id && method == "monitor" => {
                replica.handle_update(result).unwrap();
            }
            Message::Response { id: of, result } if of == id => {
                replica.handle_update2(result).unwrap();
            }
            Message::Notification { method, params } if method == "update" => {
                replica.handle_update(&params[1]).unwrap();
                update_count += 1;
            }
            Message::Notification { method, params } if method == "update2" => {
                replica.handle_update2(&params[1]).unwrap();
                update_count += 1;
            }
            _ => {}
        }
    }
    (replica, update_count)
}

/// The server's answers to a select of every table, by table in the order asked.
fn selected(exchange: &str) -> Vec<(String, Vec<Row>)> {
    let client = messages(&stream(exchange, ">"), usize::MAX);
    let server = messages(&stream(exchange, "<"), usize::MAX);
    let (id, operations) = client
        .iter()
        .find_map(|message| match message {
            Message::Request { id, method, params } if method == "transact" => {
                Some((id, &params[1..]))
            }
            _ => None,
        })
        .expect("the client selected");
    let result = server.iter().find_map(|message| match message {
        Message::Response { id: of, result } if of == id => Some(result),
        _ => None,
    });
    let results = parse_results(result.unwrap(), operations.len()).unwrap();
    let tables = operations
        .iter()
        .map(|op| op["table"].as_str().unwrap().to_string());
    let rows = results.into_iter().map(|result| match result {
        OpResult::Rows(rows) => rows,
        other => panic!("select answered {other:?}"),
    });
    tables.zip(rows).collect()
}

/// Compares the columns both sides have.
fn assert_same_rows(replica: &Replica, table: &str, selected: &[Row]) {
    let schema = schema();
    assert_eq!(
        replica.rows(table).count(),
        selected.len(),
        "rows of {table}"
    );
    for row in selected {
        let uuid = row["_uuid"].as_uuid().unwrap();
        let ours = replica
            .row(table, uuid)
            .expect("every selected row is in the replica");
        for (column, datum) in ours {
            let theirs = schema
                .column(table, column)
                .unwrap()
                .admit(row[column].clone());
            assert_eq!(theirs.as_ref(), Some(datum), "{table}.{column} of {uuid}");
        }
    }
}

#[test]
fn a_replica_kept_by_update_equals_what_a_select_answers() {
    let (replica, update_count) = replay("monitor", "monitor");
    assert!(update_count >= 10, "only {update_count} updates");
    let selected = selected("monitor-after");
    let total: usize = selected.iter().map(|(_, rows)| rows.len()).sum();
    assert!(total > 8, "only {total} rows selected");
    for (table, rows) in selected {
        assert_same_rows(&replica, &table, &rows);
    }
}

#[test]
fn a_replica_kept_by_update2_equals_what_a_select_answers() {
    let (replica, update_count) = replay("monitor-cond", "monitor_cond");
    assert!(update_count >= 8, "only {update_count} updates");
    let selected = selected("monitor-cond-after");
    let bridges = selected
        .iter()
        .find(|(table, _)| table == "Bridge")
        .unwrap();
    assert_same_rows(&replica, "Bridge", &bridges.1);
    let br2 = bridges
        .1
        .iter()
        .find(|row| row["name"].as_str() == Some("br2"))
        .unwrap();
    assert_eq!(br2["protocols"], Datum::set(["OpenFlow13", "OpenFlow15"]));
    assert_eq!(br2["external_ids"], Datum::map([("a", "3")]));
}

#[test]
fn a_refused_transaction_is_read_with_its_reason() {
    let server = messages(&stream("transact-refused", "<"), usize::MAX);
    let refused = server.iter().any(|message| match message {
        Message::Response { result, .. } => parse_results(result, 1).is_err(),
        Message::Error { error, .. } => *error != Value::Null,
        _ => false,
    });
    assert!(refused, "{server:?}");
}
