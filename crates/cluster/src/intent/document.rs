//! Documents of the store: their keys, and their text, which is JSON.
//!
//! A key is `KIND/NAME`, as in the paths of the API. A document names its writer and the time of
//! writing. Both are for people; no code depends on them.

use cli::date;
use control::flows::FlowName;
use control::flows::parts::{PartKind, PartName};
use openflow::DatapathId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use config::flows;
use config::layout;
use config::parts;
use config::qos::held::Put;
use config::qos::tree::{Node, Reader, is_name};
use config::qos::{Item, read, show};
use config::topology::location;

/// The most bytes of a document. The places of all switches may take more.
const BYTES_MAX: usize = 64 << 10;
const LAYOUT_BYTES_MAX: usize = 256 << 10;
/// The key of the layout, of which there is one.
const LAYOUT: &str = "layout/map";
/// The most characters of a foreign text that a line shows.
const CHARS_MAX: usize = 300;

/// A document as it is stored. Fields that a later version adds are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    pub by: String,
    pub at: String,
    pub document: Value,
}

/// A document as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub by: String,
    pub at: String,
    /// The request, or why it cannot be read.
    pub content: Result<Put, String>,
}

impl Document {
    /// Returns the document of the key that orders all writes. It requests nothing.
    pub fn order() -> Document {
        Document {
            by: String::new(),
            at: String::new(),
            content: Err(String::new()),
        }
    }
}

impl Stored {
    pub fn new(put: &Put, by: &str) -> Stored {
        Stored {
            by: by.to_owned(),
            at: time_of_day(date::unix_seconds()),
            document: body(put),
        }
    }

    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the request in a stored document under this key.
    pub fn read(self, key: &str) -> Document {
        let node = Node::of_json(&self.document);
        Document {
            by: shown(&self.by),
            at: shown(&self.at),
            content: item(key).and_then(|item| content(&item, &node)),
        }
    }
}

/// Reads a document that the store has under this key.
pub fn read(key: &str, text: &[u8]) -> Document {
    let broken = |why: String| Document {
        by: String::new(),
        at: String::new(),
        content: Err(why),
    };
    let most = bytes_max(key);
    if text.len() > most {
        return broken(format!("it has over {most} bytes"));
    }
    match serde_json::from_slice::<Stored>(text) {
        Ok(stored) => stored.read(key),
        Err(error) => broken(shown(&error.to_string())),
    }
}

/// Returns the most bytes that a document of this key may have.
pub fn bytes_max(key: &str) -> usize {
    match key == LAYOUT {
        true => LAYOUT_BYTES_MAX,
        false => BYTES_MAX,
    }
}

fn content(item: &Item, node: &Node) -> Result<Put, String> {
    let mut reader = Reader::default();
    let put = put(&mut reader, item, node);
    let problems = reader.problems.iter().map(|wrong| wrong.text.as_str());
    let problems = problems.collect::<Vec<_>>().join("; ");
    match put.filter(|_| problems.is_empty()) {
        Some(put) if put.item() == *item => Ok(put),
        Some(put) => Err(format!("it is of {}", put.item())),
        None => Err(shown(&problems)),
    }
}

/// Reads the request for an item.
pub fn put(reader: &mut Reader, item: &Item, node: &Node) -> Option<Put> {
    match item {
        Item::Port(at) => read::port(reader, node).map(|port| Put::Port(*at, port)),
        Item::Service(_) => read::service(reader, node).map(Put::Service),
        Item::Policy(_) => read::policy(reader, node).map(Put::Policy),
        Item::Circuit(_) => read::circuit(reader, node).map(Put::Circuit),
        Item::Meter(dpid, id) => {
            read::meter(reader, node).map(|meter| Put::Meter(*dpid, *id, meter))
        }
        Item::Part(name) => {
            let part = parts::read(reader, name, node)?;
            Some(Put::Part(name.clone(), Box::new(part)))
        }
        Item::Flow(name) => {
            let entry = flows::read(reader, name, node)?;
            if !entry.is_lasting() {
                reader.wrong(
                    &node.place,
                    "an entry with a timeout is not kept; leave it out",
                );
                return None;
            }
            Some(Put::Flow(name.clone(), Box::new(entry)))
        }
        Item::Layout => layout::read(reader, node).map(Put::Layout),
    }
}

/// Returns the body of an item as the API shows it.
pub fn body(put: &Put) -> Value {
    match put {
        Put::Port(at, port) => json!(show::port(*at, port)),
        Put::Service(service) => json!(show::service(service)),
        Put::Policy(policy) => json!(show::policy(policy)),
        Put::Circuit(circuit) => json!(show::circuit(circuit)),
        Put::Meter(_, _, meter) => json!(show::meter(*meter)),
        Put::Part(_, part) => parts::stated(part),
        Put::Flow(_, entry) => json!(flows::stated(entry)),
        Put::Layout(layout) => json!(layout),
    }
}

pub fn key(item: &Item) -> String {
    match item {
        Item::Port(at) => format!("queues/{at}"),
        Item::Service(name) => format!("services/{name}"),
        Item::Policy(name) => format!("policies/{name}"),
        Item::Circuit(name) => format!("circuits/{name}"),
        Item::Meter(dpid, id) => format!("meters/{dpid}:{id}"),
        Item::Part(name) => format!("{}s/{}", name.kind.word(), name.of),
        Item::Flow(name) => format!("flows/{name}"),
        Item::Layout => LAYOUT.to_owned(),
    }
}

fn owned(text: &str) -> Result<FlowName, String> {
    match text.split_once('/') {
        Some((owner, name)) if is_name(owner) && is_name(name) => Ok(FlowName::new(owner, name)),
        _ => Err("this is no owner and name".to_owned()),
    }
}

/// Returns the item of a key, or the mistake in the key. An item has one key.
pub fn item(text: &str) -> Result<Item, String> {
    let unknown = || "no kind of document has this key".to_owned();
    let (kind, name) = text.split_once('/').ok_or_else(unknown)?;
    let item = match kind {
        "queues" => Item::Port(location(name)?),
        "meters" if name.contains('/') => Item::Part(PartName {
            kind: PartKind::Meter,
            of: owned(name)?,
        }),
        "meters" => {
            let parts = name.split_once(':');
            let parts = parts.and_then(|(dpid, id)| Some((dpid.parse().ok()?, id.parse().ok()?)));
            let (dpid, id): (DatapathId, u32) = parts.ok_or_else(unknown)?;
            Item::Meter(dpid, id)
        }
        "groups" => Item::Part(PartName {
            kind: PartKind::Group,
            of: owned(name)?,
        }),
        "flows" => Item::Flow(owned(name)?),
        "layout" => Item::Layout,
        _ if !is_name(name) => return Err("this is no name".to_owned()),
        "services" => Item::Service(name.to_owned()),
        "policies" => Item::Policy(name.to_owned()),
        "circuits" => Item::Circuit(name.to_owned()),
        _ => return Err(unknown()),
    };
    match key(&item) {
        same if same == text => Ok(item),
        other => Err(format!("its key would be {other}")),
    }
}

/// Prepares a foreign text for a line: bounded, and without control characters.
pub fn shown(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(CHARS_MAX).map(visible).collect()
}

/// Formats a time in UTC, as `2026-11-28T06:05:04Z`.
fn time_of_day(unix_s: u64) -> String {
    let (day, of_day) = (date::day(unix_s), unix_s % 86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{day}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_json(key: &str, document: Value) -> Result<Put, String> {
        let stored = json!({"by": "a", "at": "now", "document": document, "later": 1});
        read(key, stored.to_string().as_bytes()).content
    }

    #[test]
    fn each_kind_is_read_as_it_was_written() {
        for (key, document) in [
            (
                "queues/0000000000000001:2",
                json!({"rate": "100mbit", "queues": [{"number": 1, "class": "gold"}]}),
            ),
            (
                "services/voice",
                json!({"name": "voice", "proto": "udp", "dst_port": 5060}),
            ),
            (
                "policies/first",
                json!({"name": "first", "service": "voice", "queue": "gold"}),
            ),
            (
                "circuits/backup",
                json!({"name": "backup", "from": "10.0.0.1", "to": "10.0.0.2", "queue": 1}),
            ),
            (
                "meters/0000000000000001:7",
                json!({"rate": "5mbit", "remark": 1}),
            ),
            (
                "flows/ann/detour",
                json!({"switch": "1", "match": "ip,nw_dst=10.0.0.2", "actions": "output:3"}),
            ),
            (
                "layout/map",
                json!({"places": {"0000000000000001": [-75, 0]}}),
            ),
        ] {
            let put = read_json(key, document).unwrap();
            assert_eq!(super::key(&put.item()), key);
            let text = Stored::new(&put, "b").text();
            let again = read(key, &text);
            assert_eq!((again.content, again.by.as_str()), (Ok(put), "b"), "{key}");
        }
    }

    #[test]
    fn a_document_is_under_its_one_key() {
        let service = json!({"name": "voice"});
        for (key, why) in [
            ("services/other", "it is of service 'voice'"),
            ("services/a b", "this is no name"),
            ("services/", "this is no name"),
            ("voices/voice", "no kind of document has this key"),
            ("services", "no kind of document has this key"),
            ("queues/1:2", "its key would be queues/0000000000000001:2"),
            ("meters/1:x", "no kind of document has this key"),
            ("layout/other", "its key would be layout/map"),
        ] {
            assert_eq!(
                read_json(key, service.clone()),
                Err(why.to_owned()),
                "{key}"
            );
        }
        assert!(read_json("queues/x", service).is_err());
    }

    #[test]
    fn what_cannot_be_read_says_why_in_one_line() {
        let of = |text: &[u8]| read("services/voice", text).content.unwrap_err();
        let big = format!(r#"{{"by":"{}"}}"#, "x".repeat(BYTES_MAX));
        for text in [
            "",
            "[]",
            "{}",
            "\u{1b}[31m",
            &big,
            r#"{"by":"a","at":"","document":7}"#,
        ] {
            let why = of(text.as_bytes());
            let is_line = !why.is_empty() && !why.contains(char::is_control);
            assert!(is_line && why.chars().count() <= CHARS_MAX, "{why}");
        }
        let why = read_json("services/voice", json!({"name": "voice", "proto": "http"}));
        assert!(why.unwrap_err().contains("'http' is none of tcp"));
        assert_eq!(time_of_day(1_795_368_673), "2026-11-22T17:31:13Z");
    }

    proptest! {
        #[test]
        fn any_text_under_any_key_is_read_or_refused(key in ".{0,40}", text: Vec<u8>) {
            let _ = read(&key, &text);
            if let Ok(item) = item(&key) {
                prop_assert_eq!(super::key(&item), key);
            }
        }
    }
}
