//! Properties: any cut of a stream gives the same messages, JSON survives, a replica kept by
//! differences equals the table they were made from, and no bytes panic.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use ovsdb::{
    Atom, Config, Datum, Limits, Message, Output, Replica, Row, Schema, Session, Splitter, Uuid,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\{}\\[\\]\u{e9}\u{0}\n ]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z\"{\\\\]{0,3}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_message() -> impl Strategy<Value = Message> {
    let id = any_json().prop_filter("an id is not null", |id| !id.is_null());
    let params = prop::collection::vec(any_json(), 0..3);
    (0..4, id, "[a-z_]{1,6}", params).prop_map(|(kind, id, method, params)| match kind {
        0 => Message::Request { id, method, params },
        1 => Message::Notification { method, params },
        2 => Message::Response {
            id,
            result: Value::Array(params),
        },
        _ => Message::Error {
            id,
            error: Value::Array(params),
        },
    })
}

fn any_atom() -> impl Strategy<Value = Atom> {
    prop_oneof![
        any::<i64>().prop_map(Atom::from),
        (-1e9f64..1e9).prop_map(|r| Atom::from(r + 0.5)),
        any::<bool>().prop_map(Atom::from),
        ".{0,5}".prop_map(Atom::from),
        any::<u128>().prop_map(|n| Atom::Uuid(Uuid(n))),
    ]
}

fn any_datum() -> impl Strategy<Value = Datum> {
    prop_oneof![
        prop::collection::btree_set(any_atom(), 0..4)
            .prop_map(|atoms| Datum::Set(atoms.into_iter().collect())),
        prop::collection::btree_map(any_atom(), any_atom(), 0..4).prop_map(Datum::Map),
    ]
}

/// One column of each shape with differences of its own form.
fn schema() -> Schema {
    let many = |key: Value| json!({"type": {"key": key, "min": 0, "max": "unlimited"}});
    let columns = json!({
        "scalar": {"type": "string"},
        "optional": {"type": {"key": "integer", "min": 0, "max": 1}},
        "real": many(json!("real")),
        "set": many(json!({"type": "string"})),
        "map": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}},
    });
    let tables = json!({"T": {"columns": columns}});
    Schema::from_json(&json!({"name": "D", "version": "1.0.0", "tables": tables})).unwrap()
}

fn any_row() -> impl Strategy<Value = Row> {
    let scalar = "[a-c]{0,2}".prop_map(Datum::from);
    let optional = prop::option::of(0..3i64).prop_map(Datum::set);
    let real = prop::collection::btree_set(0..4i32, 0..4)
        .prop_map(|set| Datum::set(set.into_iter().map(|i| f64::from(i) / 2.0)));
    let set = prop::collection::btree_set("[a-d]", 0..4).prop_map(Datum::set);
    let map = prop::collection::btree_map("[a-d]", 0..3i64, 0..4).prop_map(Datum::map);
    (scalar, optional, real, set, map).prop_map(|(scalar, optional, real, set, map)| {
        let columns = [
            ("scalar", scalar),
            ("optional", optional),
            ("real", real),
            ("set", set),
            ("map", map),
        ];
        columns
            .map(|(column, datum)| (column.to_string(), datum))
            .into()
    })
}

type Table = BTreeMap<Uuid, Row>;

fn any_table() -> impl Strategy<Value = Table> {
    prop::collection::btree_map((0..5u128).prop_map(Uuid), any_row(), 0..5)
}

/// The difference from `old` to `new`, as ovsdb-server(7) defines `<table-updates2>`.
fn update2(old: &Table, new: &Table) -> Value {
    let mut updates = Map::new();
    let uuids: BTreeSet<Uuid> = old.keys().chain(new.keys()).copied().collect();
    for uuid in uuids {
        let update = match (old.get(&uuid), new.get(&uuid)) {
            (None, Some(new)) => json!({"insert": without_defaults(new)}),
            (Some(_), None) => json!({"delete": null}),
            (Some(old), Some(new)) if old != new => json!({"modify": row_difference(old, new)}),
            _ => continue,
        };
        updates.insert(uuid.to_string(), update);
    }
    json!({"T": updates})
}

fn without_defaults(row: &Row) -> Value {
    let schema = schema();
    let is_default =
        |column: &str, datum: &Datum| schema.column("T", column).unwrap().default_datum() == *datum;
    let kept = row
        .iter()
        .filter(|(column, datum)| !is_default(column, datum));
    Value::Object(
        kept.map(|(column, datum)| (column.clone(), datum.to_json()))
            .collect(),
    )
}

fn row_difference(old: &Row, new: &Row) -> Value {
    let mut difference = Map::new();
    for (column, datum) in new {
        let told = match (&old[column], datum) {
            (old, new) if old == new => continue,
            (Datum::Set(old), Datum::Set(new)) if column == "set" || column == "real" => {
                let [old, new] = [old, new].map(|set| set.iter().cloned().collect::<BTreeSet<_>>());
                Datum::Set(old.symmetric_difference(&new).cloned().collect())
            }
            (Datum::Map(old), Datum::Map(new)) => {
                let gone = old.iter().filter(|(key, _)| !new.contains_key(key));
                let came = new
                    .iter()
                    .filter(|(key, value)| old.get(key) != Some(value));
                Datum::Map(
                    gone.chain(came)
                        .map(|(k, v)| (k.clone(), v.clone()))
                        .collect(),
                )
            }
            (_, new) => new.clone(),
        };
        difference.insert(column.clone(), told.to_json());
    }
    Value::Object(difference)
}

fn replica() -> Replica {
    let columns = schema().tables["T"].keys().cloned().collect();
    Replica::new(schema(), [("T".to_string(), columns)].into(), 1000)
}

fn rows(replica: &Replica) -> Table {
    replica
        .rows("T")
        .map(|(uuid, row)| (uuid, row.clone()))
        .collect()
}

proptest! {
    #[test]
    fn any_cut_of_a_stream_gives_the_messages_that_were_written(
        messages in prop::collection::vec(any_message(), 0..5),
        blanks in prop::collection::vec("[ \n\t]{0,2}", 5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut stream = Vec::new();
        for (message, blank) in messages.iter().zip(&blanks) {
            stream.extend_from_slice(&message.encode());
            stream.extend_from_slice(blank.as_bytes());
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let mut splitter = Splitter::new(Limits::default());
        let mut read = Vec::new();
        for pair in cuts.windows(2) {
            splitter.handle_bytes(&stream[pair[0]..pair[1]]);
            while let Some(bytes) = splitter.poll_message().unwrap() {
                read.push(Message::decode(&bytes).unwrap());
            }
        }
        prop_assert_eq!(read, messages);
        prop_assert_eq!(splitter.len_bytes(), 0);
    }

    #[test]
    fn any_datum_survives_its_json(datum in any_datum()) {
        let text = datum.to_json().to_string();
        let json: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(Datum::from_json(&json), Ok(datum));
    }

    #[test]
    fn a_replica_kept_by_update2_equals_the_table(
        tables in prop::collection::vec(any_table(), 1..6),
    ) {
        let mut replica = replica();
        let mut old = Table::new();
        for new in tables {
            let changes = replica.handle_update2(&update2(&old, &new)).unwrap();
            prop_assert_eq!(&rows(&replica), &new);
            prop_assert_eq!(replica.row_count(), new.len());
            for change in changes {
                prop_assert_eq!(change.old.as_ref(), old.get(&change.uuid));
                prop_assert_eq!(change.new.as_ref(), new.get(&change.uuid));
            }
            old = new;
        }
    }

    #[test]
    fn bytes_never_panic_and_an_end_is_told_once(
        chunks in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                any_message().prop_map(|message| message.encode()),
                any_json().prop_map(|json| json.to_string().into_bytes()),
                any_json().prop_map(|json| {
                    let result = json!({"T": {"00000000-0000-0000-0000-000000000001": json}});
                    json!({"id": 0, "result": result, "error": null}).to_string().into_bytes()
                }),
                any_json().prop_map(|json| {
                    let params = json!([0, {"T": json}]);
                    json!({"id": null, "method": "update2", "params": params})
                        .to_string()
                        .into_bytes()
                }),
            ],
            0..8,
        ),
    ) {
        let mut session = Session::new(Instant::START, Config::default());
        let columns = schema().tables["T"].keys().cloned().collect();
        let request = ovsdb::MonitorRequest {
            columns: [("T".to_string(), columns)].into(),
            ..Default::default()
        };
        session.monitor_cond(Instant::START, &schema(), &request).unwrap();
        for chunk in chunks {
            session.handle_bytes(Instant::START, &chunk);
        }
        let (mut close_count, mut answer_count) = (0, 0);
        session.handle_end();
        while let Some(output) = session.poll_output() {
            match output {
                Output::Close(_) => close_count += 1,
                Output::Answered(..) => answer_count += 1,
                _ => {}
            }
        }
        prop_assert!(close_count <= 1);
        prop_assert_eq!(answer_count, 1);
    }
}

/// A message of 8 MiB that arrives a kilobyte at a time: were the stream scanned again with each
/// piece, this would look at 32 GiB.
#[test]
fn a_long_message_in_small_pieces_is_scanned_once() {
    let text = format!(
        r#"{{"id":0,"result":"{}","error":null}}"#,
        "x".repeat(8 << 20)
    );
    let mut splitter = Splitter::new(Limits::default());
    let mut messages = Vec::new();
    for piece in text.as_bytes().chunks(1024) {
        splitter.handle_bytes(piece);
        messages.extend(splitter.poll_message().unwrap());
    }
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].len(), text.len());
}
