//! YAML as a tree in which every key and value has its file and line.
//!
//! The text may be hostile: values count each time that an alias repeats them, and nesting has a
//! limit. An alias shares the value that it repeats.

use std::collections::BTreeMap;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::report::{At, Report};

/// The most values of all files together, each as often as aliases repeat it.
pub const VALUES_MAX: usize = 1 << 18;
/// The most levels of nested values.
const DEPTH_MAX: usize = 32;

#[derive(Debug)]
pub struct Node {
    pub at: At,
    pub value: Value,
    /// The number of values in it, itself included.
    size: usize,
    /// The number of levels of nested values, itself included.
    height: usize,
}

#[derive(Debug)]
pub enum Value {
    /// A text or number. A plain one has no quotes.
    Scalar { text: String, is_plain: bool },
    /// Values in their order.
    List(Vec<Rc<Node>>),
    /// Values by key, in the order of the file.
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub at: At,
    pub key: String,
    pub value: Rc<Node>,
}

impl Node {
    /// A text, or a number in decimal.
    pub fn text(&self) -> Option<String> {
        match &self.value {
            Value::Scalar { text, is_plain } => Some(key_text(text, *is_plain)),
            _ => None,
        }
    }

    /// A whole number, in quotes or not.
    pub fn integer(&self) -> Option<u64> {
        match &self.value {
            Value::Scalar { text, .. } => integer(text),
            _ => None,
        }
    }

    /// Whether the value is there and empty.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, is_plain: true }
            if ["", "~", "null", "Null", "NULL"].contains(&text.as_str()))
    }

    /// Whether the value switches something off.
    pub fn is_off(&self) -> bool {
        self.is_null()
            || matches!(&self.value, Value::Scalar { text, is_plain: true }
                if ["0", "false", "no", "off"].contains(&text.to_lowercase().as_str()))
    }
}

/// A number in decimal without a leading zero, or in hex after `0x`. Other forms differ between
/// versions of YAML.
pub fn integer(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        let is_hex = hex.bytes().all(|b| b.is_ascii_hexdigit());
        return u64::from_str_radix(hex, 16).ok().filter(|_| is_hex);
    }
    let is_decimal = text.bytes().all(|b| b.is_ascii_digit());
    let is_usual = is_decimal && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_usual)
}

fn key_text(text: &str, is_plain: bool) -> String {
    match integer(text).filter(|_| is_plain) {
        Some(number) => number.to_string(),
        None => text.to_owned(),
    }
}

/// Reads the text of the file with the number `file`. `left` is what remains of [`VALUES_MAX`].
/// Mistakes go to `report`. If no value is returned, the text is empty or a mistake.
pub fn parse(text: &str, file: usize, left: &mut usize, report: &mut Report) -> Option<Rc<Node>> {
    let mut builder = Builder {
        file,
        left,
        report,
        open: Vec::new(),
        anchored: BTreeMap::new(),
        root: None,
    };
    for event in Parser::new_from_str(text) {
        let result = match event {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => {
                let line = error.marker().line().max(1);
                Err((At { file, line }, format!("no YAML: {}", error.info())))
            }
        };
        if let Err((at, problem)) = result {
            builder.report.mistake(at, problem);
            return None;
        }
    }
    builder.root
}

type Fatal = (At, String);

struct Builder<'r> {
    file: usize,
    left: &'r mut usize,
    report: &'r mut Report,
    open: Vec<Open>,
    anchored: BTreeMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
}

/// A list or map that has not ended.
struct Open {
    at: At,
    anchor: usize,
    size: usize,
    height: usize,
    inner: Inner,
}

enum Inner {
    List(Vec<Rc<Node>>),
    Map {
        entries: Vec<Entry>,
        lines: BTreeMap<String, At>,
        key: Option<(At, String)>,
        /// The values of the key `<<`, whose entries apply where the map lacks their keys.
        merged: Vec<Rc<Node>>,
    },
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Fatal> {
        let at = At {
            file: self.file,
            line: span.start.line().max(1),
        };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(at, 1)?;
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                let text = text.into_owned();
                let value = Value::Scalar { text, is_plain };
                self.put(anchor, node(at, value, 1, 1))
            }
            Event::SequenceStart(anchor, _) => self.start(at, anchor, Inner::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                let inner = Inner::Map {
                    entries: Vec::new(),
                    lines: BTreeMap::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.start(at, anchor, inner)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let Some(node) = self.anchored.get(&anchor).cloned() else {
                    return Err((
                        at,
                        "an alias inside of the value that it repeats".to_owned(),
                    ));
                };
                self.count(at, node.size)?;
                self.is_flat(at, node.height)?;
                self.put(0, node)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                Err((at, "a second document; only one is read".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, at: At, size: usize) -> Result<(), Fatal> {
        let left = self.left.checked_sub(size);
        *self.left = left.ok_or_else(|| {
            let problem = format!("more than {VALUES_MAX} values, with those that aliases repeat");
            (at, problem)
        })?;
        Ok(())
    }

    fn is_flat(&self, at: At, height: usize) -> Result<(), Fatal> {
        match self.open.len() + height > DEPTH_MAX {
            true => Err((
                at,
                format!("more than {DEPTH_MAX} values inside each other"),
            )),
            false => Ok(()),
        }
    }

    fn start(&mut self, at: At, anchor: usize, inner: Inner) -> Result<(), Fatal> {
        self.count(at, 1)?;
        self.is_flat(at, 1)?;
        self.open.push(Open {
            at,
            anchor,
            size: 1,
            height: 1,
            inner,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fatal> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.inner {
            Inner::List(items) => Value::List(items),
            Inner::Map {
                mut entries,
                mut lines,
                merged,
                ..
            } => {
                for merged in &merged {
                    self.merge(merged, &mut entries, &mut lines);
                }
                Value::Map(entries)
            }
        };
        self.put(open.anchor, node(open.at, value, open.size, open.height))
    }

    fn merge(&mut self, from: &Node, into: &mut Vec<Entry>, lines: &mut BTreeMap<String, At>) {
        let problem = "<< is no section or list of sections";
        match &from.value {
            Value::Map(entries) => {
                for entry in entries {
                    if !lines.contains_key(&entry.key) {
                        lines.insert(entry.key.clone(), entry.at);
                        into.push(entry.clone());
                    }
                }
            }
            Value::List(items) => {
                for item in items {
                    match item.value {
                        Value::Map(_) => self.merge(item, into, lines),
                        _ => self.report.mistake(item.at, problem),
                    }
                }
            }
            Value::Scalar { .. } => self.report.mistake(from.at, problem),
        }
    }

    fn put(&mut self, anchor: usize, node: Rc<Node>) -> Result<(), Fatal> {
        if anchor != 0 {
            self.anchored.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.size = open.size.saturating_add(node.size);
        open.height = open.height.max(node.height + 1);
        match &mut open.inner {
            Inner::List(items) => items.push(node),
            Inner::Map {
                entries,
                lines,
                key,
                merged,
            } => match key.take() {
                None => {
                    let Some(text) = node.text() else {
                        return Err((node.at, "a key that is no name or number".to_owned()));
                    };
                    *key = Some((node.at, text));
                }
                Some((_, key)) if key == "<<" => merged.push(node),
                Some((at, key)) => {
                    if let Some(before) = lines.insert(key.clone(), at) {
                        let problem = self.report.stated_already(&key, before);
                        self.report.mistake(at, problem);
                    } else {
                        let value = node;
                        entries.push(Entry { at, key, value });
                    }
                }
            },
        }
        Ok(())
    }
}

fn node(at: At, value: Value, size: usize, height: usize) -> Rc<Node> {
    Rc::new(Node {
        at,
        value,
        size,
        height,
    })
}
