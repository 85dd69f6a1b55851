//! A database server that sends anything, in any pieces: the session neither panics nor ends
//! twice, the same bytes in other pieces say the same, and every request is answered once.
//!
//! The first byte says how large the pieces are that the rest arrives in.

use std::sync::LazyLock;

use clock::Instant;
use ovsdb::{Config, Datum, Limits, Message, Output, Schema, Session, Splitter, vswitch};
use serde_json::json;

pub fn check(data: &[u8]) {
    let Some((piece_len, stream)) = data.split_first() else {
        return;
    };
    let piece_len = usize::from(*piece_len).max(1);
    assert_eq!(
        messages(stream, stream.len().max(1)),
        messages(stream, piece_len)
    );

    let whole = outputs(stream, stream.len().max(1));
    assert_eq!(whole, outputs(stream, piece_len));
    let count = |wanted: fn(&Output) -> bool| whole.iter().filter(|o| wanted(o)).count();
    assert!(count(|o| matches!(o, Output::Close(_))) <= 1);
    assert_eq!(count(|o| matches!(o, Output::Answered(..))), 4);
}

/// The messages of a stream; each is written back as it was read.
fn messages(stream: &[u8], piece_len: usize) -> Vec<Message> {
    let mut splitter = Splitter::new(Limits::default());
    let mut messages = Vec::new();
    for piece in stream.chunks(piece_len) {
        splitter.handle_bytes(piece);
        while let Ok(Some(bytes)) = splitter.poll_message() {
            if let Ok(message) = Message::decode(&bytes) {
                assert_eq!(Message::decode(&message.encode()).as_ref(), Ok(&message));
                check_values(&message);
                messages.push(message);
            }
        }
    }
    messages
}

/// Whatever reads as a value is written back as it was read.
fn check_values(message: &Message) {
    if let Message::Notification { params, .. } | Message::Request { params, .. } = message {
        for datum in params
            .iter()
            .filter_map(|param| Datum::from_json(param).ok())
        {
            assert_eq!(Datum::from_json(&datum.to_json()), Ok(datum));
        }
    }
}

/// The outputs of a session with one request of each kind: list_dbs (0), get_schema (1),
/// monitor_cond (2) and lock (3).
fn outputs(stream: &[u8], piece_len: usize) -> Vec<Output> {
    // Made once: it would be most of the work.
    static SCHEMA: LazyLock<Schema> = LazyLock::new(schema);

    let now = Instant::START;
    let mut session = Session::new(now, Config::default());
    let request = vswitch::monitor_request();
    let made = [
        session.list_dbs(now),
        session.get_schema(now, "Open_vSwitch"),
        session.monitor_cond(now, &SCHEMA, &request),
        session.lock(now, "l"),
    ];
    assert!(made.iter().all(Result::is_ok));
    for piece in stream.chunks(piece_len) {
        session.handle_bytes(now, piece);
    }
    session.handle_end();
    std::iter::from_fn(|| session.poll_output()).collect()
}

/// The monitored tables, with columns of every shape.
fn schema() -> Schema {
    let map = json!({"key": "string", "value": "string", "min": 0, "max": "unlimited"});
    let refers = json!({"key": "uuid", "min": 0, "max": "unlimited"});
    let queues = json!({"key": "integer", "value": "uuid", "min": 0, "max": "unlimited"});
    let mut tables = json!({});
    for (table, columns) in vswitch::monitor_request().columns {
        for column in columns {
            let kind = match column.as_str() {
                "other_config" => map.clone(),
                "queues" => queues.clone(),
                "bridges" | "ports" | "interfaces" | "controller" => refers.clone(),
                "ofport" | "dscp" | "tag" => json!({"key": "integer", "min": 0, "max": 1}),
                "trunks" => json!({"key": "integer", "min": 0, "max": 4096}),
                "link_speed" => json!("real"),
                "is_connected" => json!("boolean"),
                _ => json!("string"),
            };
            tables[&table]["columns"][&column] = json!({"type": kind});
        }
    }
    let schema = json!({"name": "Open_vSwitch", "version": "8.3.1", "tables": tables});
    Schema::from_json(&schema).expect("a schema of our own")
}
