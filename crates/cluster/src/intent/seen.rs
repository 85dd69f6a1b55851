//! The copy of the store, with the documents in use and those left out.

use std::collections::BTreeMap;

use serde_json::Value;

use super::known::{Doc, Known};
use super::{Document, ORDER, document};
use config::qos::held::{Op, Put};
use config::qos::tree::Node;
use config::qos::{Item, Refused};

#[derive(Default)]
pub(super) struct Seen {
    pub(super) known: Known<Document>,
    /// The store was read once.
    pub(super) is_loaded: bool,
    /// The last failure to read the store, until a read succeeds.
    pub(super) away: Option<String>,
    /// The reason why this auster neither reads nor writes the store's documents.
    pub(super) too_old: Option<String>,
    /// Documents in use, by key, with their revisions.
    pub(super) applied: BTreeMap<String, u64>,
    /// Documents not in use, with their revisions and the reason.
    pub(super) left_out: BTreeMap<String, (u64, String)>,
    /// Documents left out that were not reported yet.
    pub(super) unreported: Vec<(String, String)>,
    /// The revision of the layout that was last reported, 0 without a layout. `None` before the
    /// first report.
    pub(super) layout: Option<u64>,
    pub(super) writes: u64,
    pub(super) writes_refused: u64,
}

impl Seen {
    pub(super) fn check_loaded(&self) -> Result<(), Refused> {
        if self.is_loaded {
            return Ok(());
        }
        let why = self.away.as_deref().unwrap_or("no answer yet");
        Err(Refused::Away(format!("etcd was not read yet: {why}")))
    }

    pub(super) fn check_schema(&self) -> Result<(), Refused> {
        match &self.too_old {
            Some(why) => Err(Refused::Away(why.clone())),
            None => Ok(()),
        }
    }

    /// The number of documents.
    pub(super) fn documents(&self) -> usize {
        let keys = self.known.all_wanted();
        keys.filter(|(key, _)| *key != ORDER).count()
    }

    /// Leaves documents out of a read that has more than `most`. Only new ones: a known document
    /// that is missing from the read counts as deleted.
    pub(super) fn bound(&self, read: &mut BTreeMap<String, Doc<Document>>, most: usize) {
        let over = read.keys().filter(|key| *key != ORDER).count();
        let over = over.saturating_sub(most);
        let is_new = |key: &&String| *key != ORDER && self.known.wanted(key).is_none();
        let last = read.keys().rev().filter(is_new).take(over).cloned();
        for key in last.collect::<Vec<_>>() {
            read.remove(&key);
        }
    }

    /// Whether the store already has the document of this put.
    pub(super) fn has(&self, op: &Op) -> bool {
        let there = self.known.get(&document::key(&op.item()));
        let there = there.and_then(|doc| doc.value.content.as_ref().ok());
        matches!(op, Op::Put(put, _) if there == Some(put.as_ref()))
    }

    /// Returns the change of the API's layer that follows from the known document of a key.
    pub(super) fn op(&mut self, key: &str) -> Option<Op> {
        if key == ORDER {
            return None;
        }
        let wanted = self.known.wanted(key);
        let broken = match wanted.map(|doc| (doc.revision, &doc.value.content)) {
            Some((_, Ok(put))) => {
                let node = Node::of_json(&Value::Null);
                return Some(Op::Put(Box::new(put.clone()), node));
            }
            Some((revision, Err(why))) => Some((revision, why.clone())),
            None => None,
        };
        if let Some((revision, why)) = broken {
            self.leave_out(key.to_owned(), revision, why);
        }
        let is_applied = self.applied.contains_key(key);
        let item = document::item(key).ok().filter(|_| is_applied);
        item.map(Op::Delete)
    }

    pub(super) fn leave_out(&mut self, key: String, revision: u64, why: String) {
        let known = self.left_out.get(&key);
        if known.is_some_and(|(at, because)| (*at, because) == (revision, &why)) {
            return;
        }
        self.unreported.push((document::shown(&key), why.clone()));
        self.left_out.insert(key, (revision, why));
    }

    /// Returns the number of places in the layout, if the layout has changed.
    pub(super) fn take_layout(&mut self) -> Option<usize> {
        let doc = self.known.wanted(&document::key(&Item::Layout));
        let before = self.layout.replace(doc.map_or(0, |doc| doc.revision));
        let is_news = before.is_some() && before != self.layout;
        is_news.then(|| match doc.map(|doc| &doc.value.content) {
            Some(Ok(Put::Layout(layout))) => layout.places.len(),
            _ => 0,
        })
    }

    /// Counts the documents that are readable, but left out because of others.
    pub(super) fn left_out_for_others(&self) -> usize {
        let is_read = |key: &&String| {
            let doc = self.known.wanted(key);
            doc.is_some_and(|doc| doc.value.content.is_ok())
        };
        self.left_out.keys().filter(is_read).count()
    }
}
