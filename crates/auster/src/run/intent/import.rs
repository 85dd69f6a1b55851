//! An exported document as changes.

use std::collections::BTreeSet;

use super::document;
use crate::run::qos::held::Op;
use crate::run::qos::tree::{Node, Reader};

/// Reads an exported document, `{"documents": [{"kind", "name", "document"}, …]}`, into changes.
/// All mistakes are noted by their place in it.
pub fn imported(reader: &mut Reader, node: &Node) -> Vec<Op> {
    let known = ["auster_intent", "documents"];
    if !reader.only(node, "document of auster state export", &known) {
        return Vec::new();
    }
    match node.get("auster_intent").map(Node::as_number) {
        Some(Some(1)) => {}
        _ => reader.wrong(
            &node.place,
            "auster_intent must be 1: see auster state export",
        ),
    }
    let mut keys = BTreeSet::new();
    let mut ops = Vec::new();
    for entry in reader.tables(node, "documents") {
        let text = |key| entry.get(key).and_then(Node::as_text);
        let (Some(kind), Some(name)) = (text("kind"), text("name")) else {
            reader.wrong(
                &entry.place,
                "kind and name are missing: such as services and voice",
            );
            continue;
        };
        let key = format!("{kind}/{name}");
        let item = match document::item(&key) {
            Ok(item) => item,
            Err(why) => {
                reader.wrong(&entry.place, format!("{}: {why}", document::shown(&key)));
                continue;
            }
        };
        if !keys.insert(key) {
            reader.wrong(&entry.place, format!("{item} is there twice"));
        }
        let Some(of) = entry.get("document") else {
            reader.wrong(&entry.place, format!("{item}: document is missing"));
            continue;
        };
        match document::put(reader, &item, of) {
            Some(put) if put.item() == item => {
                ops.push(Op::Put(Box::new(put), of.clone()));
            }
            Some(put) => reader.wrong(&of.place, format!("{item}: it is of {}", put.item())),
            None => {}
        }
    }
    ops
}
