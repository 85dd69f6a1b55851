//! Reads an exported document as changes, and puts them into the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::document::{self, Stored};
use super::{Change, Changed, Intent, Store, WRITES_MAX, When};
use config::qos::Refused;
use config::qos::held::Op;
use config::qos::tree::{Node, Reader};

/// The most bytes of documents in one part of an import: etcd accepts 1.5 MB in a request.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Reads an exported document, `{"documents": [{"kind", "name", "document"}, …]}`, into changes.
/// Every mistake is noted with its place in the document.
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

impl Intent {
    /// Puts all of these, after a check of them as a whole. If they exceed what etcd accepts at
    /// once, they are written in parts, and each part is checked again. `kept` is dropped at the
    /// end.
    pub async fn import(
        self: &Arc<Intent>,
        ops: Vec<Op>,
        kept: impl Send + 'static,
    ) -> Result<Changed, Refused> {
        let intent = self.clone();
        let import = async move {
            let imported = intent.import_parts(ops).await;
            drop(kept);
            imported
        };
        self.to_its_end(import).await
    }

    async fn import_parts(&self, mut ops: Vec<Op>) -> Result<Changed, Refused> {
        {
            let seen = self.seen();
            seen.check_loaded()?;
            ops.retain(|op| !seen.has(op));
        }
        self.held.check(&ops).await?;
        ops.sort_by_key(Op::item);
        let of = ops.len();
        let parts = match self.store {
            Store::Etcd(_) => parts(ops, WRITES_MAX, WRITE_BYTES_MAX),
            Store::Memory | Store::Disk(_) => parts(ops, usize::MAX, usize::MAX),
        };
        let mut all = Changed {
            is_in_use: true,
            ..Changed::default()
        };
        for ops in parts {
            let change = Change::new(ops, When::default());
            let done = all.created + all.replaced;
            let changed = match self.change_counted(&change).await {
                Ok(changed) => changed,
                Err(refused) if done == 0 => return Err(refused),
                Err(why) => {
                    let why = Box::new(why);
                    return Err(Refused::Halfway { done, of, why });
                }
            };
            all.revision = changed.revision;
            all.created += changed.created;
            all.replaced += changed.replaced;
            all.is_in_use &= changed.is_in_use;
        }
        Ok(all)
    }
}

/// Splits changes, in their order, into parts of at most `most` documents and about `bytes` bytes.
/// A single document may exceed `bytes`.
pub(super) fn parts(ops: Vec<Op>, most: usize, bytes: usize) -> Vec<Vec<Op>> {
    let mut parts: Vec<Vec<Op>> = Vec::new();
    let mut left = 0;
    for op in ops {
        let size = match &op {
            Op::Put(put, _) => Stored::new(put, "").text().len(),
            Op::Delete(_) => 0,
        };
        match parts.last_mut() {
            Some(part) if part.len() < most && size <= left => {
                left -= size;
                part.push(op);
            }
            _ => {
                left = bytes.saturating_sub(size);
                parts.push(vec![op]);
            }
        }
    }
    parts
}
