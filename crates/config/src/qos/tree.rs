//! Input in TOML or in JSON, as one kind of tree that is read in one way.
//!
//! Every mistake is reported at once, each with its place: a line of a file, or a JSON pointer into
//! a body (RFC 6901), and always the field.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node {
    pub place: Place,
    tree: Tree,
}

/// Byte range in a file, and the JSON pointer, which is the same in both formats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub span: Range<usize>,
    pub pointer: String,
}

#[derive(Clone, Debug)]
enum Tree {
    Text(String),
    Number(Option<u64>, String),
    Bool(bool),
    List(Vec<Node>),
    /// A table, in the order its entries were written.
    Table(Vec<(String, Node)>),
    /// A time or a fraction.
    Other(String),
    /// JSON's null, which counts as absent.
    Null,
}

/// A mistake, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub place: Place,
    pub text: String,
}

/// Collects problems while trees are read.
#[derive(Default)]
pub struct Reader {
    pub problems: Vec<Wrong>,
}

impl Place {
    fn below(&self, key: impl Display, span: Range<usize>) -> Place {
        let key = key.to_string().replace('~', "~0").replace('/', "~1");
        Place {
            span,
            pointer: format!("{}/{key}", self.pointer),
        }
    }
}

impl Node {
    pub fn of_json(value: &Value) -> Node {
        Node::json(value, Place::default())
    }

    fn json(value: &Value, place: Place) -> Node {
        let tree = match value {
            Value::Null => Tree::Null,
            Value::Bool(is) => Tree::Bool(*is),
            Value::Number(number) => Tree::Number(number.as_u64(), number.to_string()),
            Value::String(text) => Tree::Text(text.clone()),
            Value::Array(items) => {
                let node = |(n, item)| Node::json(item, place.below(n, 0..0));
                Tree::List(items.iter().enumerate().map(node).collect())
            }
            Value::Object(entries) => {
                let node = |(key, value): (&String, &Value)| {
                    (key.clone(), Node::json(value, place.below(key, 0..0)))
                };
                Tree::Table(entries.iter().map(node).collect())
            }
        };
        Node { place, tree }
    }

    pub fn of_toml(table: &DeTable<'_>, span: Range<usize>) -> Node {
        let place = Place {
            span,
            pointer: String::new(),
        };
        Node {
            tree: Node::table(table, &place),
            place,
        }
    }

    fn table(table: &DeTable<'_>, place: &Place) -> Tree {
        let node = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let key: &std::borrow::Cow<'_, str> = key.get_ref();
            let below = place.below(key, value.span());
            (key.to_string(), Node::toml(value, below))
        };
        Tree::Table(table.iter().map(node).collect())
    }

    fn toml(value: &Spanned<DeValue<'_>>, place: Place) -> Node {
        let tree = match value.get_ref() {
            DeValue::String(text) => Tree::Text(text.to_string()),
            DeValue::Integer(n) => {
                let digits = n.as_str().replace('_', "");
                let number = u64::from_str_radix(&digits, n.radix()).ok();
                Tree::Number(number, n.as_str().to_owned())
            }
            DeValue::Float(float) => Tree::Other(float.as_str().to_owned()),
            DeValue::Boolean(is) => Tree::Bool(*is),
            DeValue::Datetime(time) => Tree::Other(time.to_string()),
            DeValue::Array(items) => {
                let node =
                    |(n, item): (usize, &Spanned<_>)| Node::toml(item, place.below(n, item.span()));
                Tree::List(items.iter().enumerate().map(node).collect())
            }
            DeValue::Table(table) => Node::table(table, &place),
        };
        Node { place, tree }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.tree {
            Tree::Table(entries) => {
                let found = entries.iter().find(|(name, _)| name == key);
                let found = found.map(|(_, node)| node);
                found.filter(|node| !matches!(node.tree, Tree::Null))
            }
            _ => None,
        }
    }

    /// Adds to a table a field that is not in the input.
    pub fn insert(&mut self, key: &str, value: &str) {
        if let Tree::Table(entries) = &mut self.tree {
            let node = Node {
                place: self.place.clone(),
                tree: Tree::Text(value.to_owned()),
            };
            entries.push((key.to_owned(), node));
        }
    }

    /// The entries of a table, in the order they were written.
    pub fn entries(&self) -> &[(String, Node)] {
        match &self.tree {
            Tree::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list.
    pub fn items(&self) -> &[Node] {
        match &self.tree {
            Tree::List(items) => items,
            _ => &[],
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<u64> {
        match &self.tree {
            Tree::Number(number, _) => *number,
            _ => None,
        }
    }

    /// A number without a fraction, positive or negative.
    pub fn as_whole(&self) -> Option<i64> {
        match &self.tree {
            Tree::Number(_, text) => text.parse().ok(),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.tree, Tree::Null)
    }

    pub fn is_table(&self) -> bool {
        matches!(self.tree, Tree::Table(_))
    }

    /// The value as shown to its author, cut short.
    fn shown(&self) -> String {
        let whole = match &self.tree {
            Tree::Text(text) => format!("\"{text}\""),
            Tree::Number(_, text) | Tree::Other(text) => text.clone(),
            Tree::Bool(is) => is.to_string(),
            Tree::Null => "null".to_owned(),
            Tree::List(_) => "a list".to_owned(),
            Tree::Table(_) => "a table".to_owned(),
        };
        whole
            .lines()
            .next()
            .unwrap_or("")
            .chars()
            .take(40)
            .collect()
    }
}

impl Reader {
    pub fn wrong(&mut self, place: &Place, text: impl Display) {
        self.problems.push(Wrong {
            place: place.clone(),
            text: text.to_string(),
        });
    }

    fn must_be(&mut self, node: &Node, key: &str, wanted: &str) {
        let found = node.shown();
        self.wrong(
            &node.place,
            format!("{key} is {found}; it must be {wanted}"),
        );
    }

    /// Whether the node is a table. Reports every key in it that is not `known`.
    pub fn only(&mut self, node: &Node, what: &str, known: &[&str]) -> bool {
        if !node.is_table() {
            self.must_be(node, what, "a table of fields");
            return false;
        }
        for (key, value) in node.entries() {
            if !known.contains(&key.as_str()) {
                let known = known.join(", ");
                let text = format!("'{key}' is no field of a {what}; known: {known}");
                self.wrong(&value.place, text);
            }
        }
        true
    }

    /// The name of an item: not empty, and not too long.
    pub fn name(&mut self, node: &Node, key: &str) -> Option<String> {
        let Some(value) = node.get(key) else {
            self.wrong(&node.place, format!("{key} is missing"));
            return None;
        };
        match value.as_text() {
            Some(text) if is_name(text) => Some(text.to_owned()),
            _ => {
                let wanted = format!(
                    "a name of 1 to {NAME_CHARS_MAX} letters, digits, '-', '_' and '.', such as \
                     \"voice\""
                );
                self.must_be(value, key, &wanted);
                None
            }
        }
    }

    pub fn bool(&mut self, node: &Node, key: &str) -> Option<bool> {
        let value = node.get(key)?;
        match value.tree {
            Tree::Bool(is) => Some(is),
            _ => {
                self.must_be(value, key, "true or false");
                None
            }
        }
    }

    pub fn number(&mut self, node: &Node, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = node.get(key)?;
        self.number_of(value, key, range)
    }

    pub fn number_of(
        &mut self,
        value: &Node,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let found = value.as_number().filter(|n| range.contains(n));
        if found.is_none() {
            let wanted = format!("a number from {} to {}", range.start(), range.end());
            self.must_be(value, key, &wanted);
        }
        found
    }

    /// A text that `parse` takes.
    pub fn parsed<T, E: Display>(
        &mut self,
        node: &Node,
        key: &str,
        example: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = node.get(key)?;
        self.parse(value, key, example, &parse)
    }

    pub fn parse<T, E: Display>(
        &mut self,
        value: &Node,
        key: &str,
        example: &str,
        parse: &impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let Some(text) = value.as_text() else {
            self.must_be(value, key, &format!("a text such as \"{example}\""));
            return None;
        };
        match parse(text) {
            Ok(parsed) => Some(parsed),
            Err(problem) => {
                self.wrong(&value.place, format!("{key}: {problem}"));
                None
            }
        }
    }

    /// The items of a list, or a single value as its only item.
    pub fn items<'n>(&mut self, node: &'n Node, key: &str) -> Vec<&'n Node> {
        match node.get(key) {
            None => Vec::new(),
            Some(Node {
                tree: Tree::List(items),
                ..
            }) => items.iter().collect(),
            Some(one) => vec![one],
        }
    }

    /// Tables of one name, each written as `[[key]]`. A single `[key]` is a mistake, and still
    /// returned.
    pub fn tables<'n>(&mut self, node: &'n Node, key: &str) -> Vec<&'n Node> {
        let Some(value) = node.get(key) else {
            return Vec::new();
        };
        let Tree::List(items) = &value.tree else {
            self.must_be(value, key, &format!("sections such as [[{key}]]"));
            return value.is_table().then_some(value).into_iter().collect();
        };
        items.iter().collect()
    }
}

pub const NAME_CHARS_MAX: usize = 64;

/// Whether a text can be a name, which appears in paths, in records of switches and in log lines.
pub fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=NAME_CHARS_MAX).contains(&text.len())
        && text.chars().all(is_plain)
        && text.chars().any(|c| c != '.')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_is_the_same_in_json_and_in_toml() {
        let json = Node::of_json(&json!({"a/b": [{"c": 7}]}));
        let text = "\"a/b\" = [{ c = 7 }]\n";
        let (table, errors) = DeTable::parse_recoverable(text);
        assert!(errors.is_empty());
        let toml = Node::of_toml(table.get_ref(), 0..0);
        for tree in [&json, &toml] {
            let mut reader = Reader::default();
            let list = reader.tables(tree, "a/b");
            let seven = list[0].get("c").unwrap();
            assert_eq!(seven.place.pointer, "/a~1b/0/c");
            assert_eq!(seven.as_number(), Some(7));
        }
        let list = Reader::default().tables(&toml, "a/b")[0].clone();
        assert_eq!(&text[list.get("c").unwrap().place.span.clone()], "7");
    }

    #[test]
    fn names_are_plain() {
        for name in ["a", "voice-2", "s1.p_3", &"x".repeat(64)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a b", "a/b", "..", "ä", "a\n", &"x".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_what_would_be_right() {
        let tree = Node::of_json(&json!({
            "name": 7, "flag": "yes", "number": 70, "text": 1, "more": null, "rate": "fast"
        }));
        let mut reader = Reader::default();
        assert!(reader.only(&tree, "thing", &["name", "flag", "number", "text", "rate"]));
        assert_eq!(reader.name(&tree, "name"), None);
        assert_eq!(reader.bool(&tree, "flag"), None);
        assert_eq!(reader.number(&tree, "number", 0..=63), None);
        let parse = |text: &str| {
            text.parse::<u8>()
                .map_err(|_| format!("'{text}' is no rate"))
        };
        assert_eq!(reader.parsed(&tree, "text", "1mbit", parse), None);
        assert_eq!(reader.parsed(&tree, "rate", "1mbit", parse), None);
        let told: Vec<String> = (reader.problems.iter())
            .map(|wrong| format!("{} {}", wrong.place.pointer, wrong.text))
            .collect();
        assert_eq!(
            told,
            [
                "/more 'more' is no field of a thing; known: name, flag, number, text, rate",
                "/name name is 7; it must be a name of 1 to 64 letters, digits, '-', '_' and '.', \
                 such as \"voice\"",
                "/flag flag is \"yes\"; it must be true or false",
                "/number number is 70; it must be a number from 0 to 63",
                "/text text is 1; it must be a text such as \"1mbit\"",
                "/rate rate: 'fast' is no rate",
            ]
        );
    }
}
