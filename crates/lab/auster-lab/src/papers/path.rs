//! The place of a value in a document of results: keys, and conditions on the elements of a list,
//! as in `cells[transport=tcp, load=1.5].hop_ms`.

use std::fmt;

use serde_json::Value;

/// A path from the root of a document to one value or to several.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    steps: Vec<Step>,
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    /// The elements of a list that meet every condition; without conditions, all elements.
    Where(Vec<Condition>),
}

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    key: String,
    is: Is,
    words: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    Equal,
    Beginning,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Path {
    /// Parses `key.key[key=word, key="some words", key^="their beginning"].key`, and `[*]` for
    /// every element.
    pub fn parse(text: &str) -> Result<Path, String> {
        let mut reader = Reader {
            rest: text,
            text: text.to_owned(),
        };
        let mut steps = Vec::new();
        loop {
            steps.push(Step::Key(reader.word()?));
            if reader.take("[") {
                steps.push(Step::Where(reader.conditions()?));
            }
            if reader.rest.is_empty() {
                return Ok(Path {
                    steps,
                    text: text.to_owned(),
                });
            }
            if !reader.take(".") {
                return Err(reader.wrong("a '.' or '['"));
            }
        }
    }

    /// Returns the values that the path finds, at least one. The error names the point of failure.
    pub fn resolve<'v>(&self, root: &'v Value) -> Result<Vec<&'v Value>, String> {
        let mut found = vec![root];
        for (n, step) in self.steps.iter().enumerate() {
            found = match step {
                Step::Key(key) => {
                    let below = found.iter().map(|value| value.get(key));
                    below.collect::<Option<_>>().ok_or_else(|| {
                        let known = found.iter().find(|value| value.get(key).is_none());
                        let known = known.map_or(String::new(), |value| keys(value));
                        format!("{self}: there is no '{key}', but {known}")
                    })?
                }
                Step::Where(conditions) => self.choose(&found, conditions, n)?,
            };
        }
        Ok(found)
    }

    fn choose<'v>(
        &self,
        lists: &[&'v Value],
        conditions: &[Condition],
        n: usize,
    ) -> Result<Vec<&'v Value>, String> {
        let mut chosen = Vec::new();
        let mut seen = 0;
        for list in lists {
            let name = match n.checked_sub(1).map(|before| &self.steps[before]) {
                Some(Step::Key(key)) => key,
                _ => "it",
            };
            let items = list.as_array();
            let items = items.ok_or_else(|| format!("{self}: '{name}' is no list"))?;
            seen += items.len();
            chosen.extend(items.iter().filter(|item| {
                let mut conditions = conditions.iter();
                conditions.all(|condition| condition.holds(item))
            }));
        }
        match chosen.is_empty() {
            true => Err(format!("{self}: none of {seen} is that")),
            false => Ok(chosen),
        }
    }
}

impl Condition {
    fn holds(&self, item: &Value) -> bool {
        let Some(value) = item.get(&self.key) else {
            return false;
        };
        match self.is {
            Is::Equal => {
                let number = self.words.parse::<f64>().ok();
                words(value) == self.words || (number.is_some() && value.as_f64() == number)
            }
            Is::Beginning => words(value).starts_with(&self.words),
        }
    }
}

/// Formats a value as a condition writes it; for a list, the elements with '/' between them.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join("/"),
        other => other.to_string(),
    }
}

fn keys(value: &Value) -> String {
    match value.as_object() {
        Some(object) => {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            keys.join(", ")
        }
        None => "no keys at all".to_owned(),
    }
}

struct Reader<'t> {
    rest: &'t str,
    text: String,
}

impl<'t> Reader<'t> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn wrong(&self, wanted: &str) -> String {
        let before = &self.text[..self.text.len() - self.rest.len()];
        format!(
            "'{}' is no path: after '{before}' comes {wanted}",
            self.text
        )
    }

    /// Reads a key.
    fn word(&mut self) -> Result<String, String> {
        let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let end = self.rest.find(|c| !is_in_word(c));
        let end = end.unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.wrong("a name"));
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(word.to_owned())
    }

    fn conditions(&mut self) -> Result<Vec<Condition>, String> {
        let mut conditions = Vec::new();
        if self.take("*]") {
            return Ok(conditions);
        }
        loop {
            self.rest = self.rest.trim_start();
            let key = self.word()?;
            let is = match (self.take("^="), self.take("=")) {
                (true, _) => Is::Beginning,
                (_, true) => Is::Equal,
                _ => return Err(self.wrong("'=' or '^='")),
            };
            let words = self.value()?;
            conditions.push(Condition { key, is, words });
            if self.take("]") {
                return Ok(conditions);
            }
            if !self.take(",") {
                return Err(self.wrong("',' or ']'"));
            }
        }
    }

    fn value(&mut self) -> Result<String, String> {
        if self.take("\"") {
            let end = self.rest.find('"');
            let end = end.ok_or_else(|| self.wrong("words and '\"'"))?;
            let (words, rest) = self.rest.split_at(end);
            self.rest = &rest[1..];
            return Ok(words.to_owned());
        }
        let end = self.rest.find([',', ']']).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.wrong("a value"));
        }
        let (words, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(words.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(path: &str) -> Result<Vec<Value>, String> {
        let document = json!({
            "settings": { "seconds": 30 },
            "rows": [
                { "row": "fixed 1 s, D 17 ms", "rate": 1.0, "sizes": [220], "n": 11 },
                { "row": "fixed 1 s, D 17 ms", "rate": 5.0, "sizes": [400, 600], "n": 195 },
                { "row": "lease", "rate": 5.0, "sizes": [220], "is": true, "n": null },
            ],
        });
        let values = Path::parse(path)?.resolve(&document)?;
        Ok(values.into_iter().cloned().collect())
    }

    #[test]
    fn keys_and_conditions_choose() {
        for (path, right) in [
            ("settings.seconds", json!([30])),
            ("rows[row=\"fixed 1 s, D 17 ms\", rate=5].n", json!([195])),
            ("rows[rate=1].n", json!([11])),
            ("rows[rate=1.0].n", json!([11])),
            ("rows[row^=fixed].n", json!([11, 195])),
            ("rows[sizes=400/600].n", json!([195])),
            ("rows[is=true].n", json!([null])),
            ("rows[*].rate", json!([1.0, 5.0, 5.0])),
        ] {
            assert_eq!(json!(found(path).unwrap()), right, "{path}");
        }
    }

    #[test]
    fn what_is_not_there_is_said() {
        for (path, right) in [
            ("settings.second", "there is no 'second', but seconds"),
            ("rows[rate=2].n", "none of 3 is that"),
            ("rows[rat=1].n", "none of 3 is that"),
            ("rows.n", "there is no 'n', but no keys"),
            ("settings[a=1].n", "'settings' is no list"),
        ] {
            let problem = found(path).unwrap_err();
            assert!(problem.contains(right), "{path}: {problem}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for (path, right) in [
            ("", "comes a name"),
            ("rows[", "comes a name"),
            ("rows[a]", "comes '=' or '^='"),
            ("rows[a=]", "comes a value"),
            ("rows[a=\"x]", "comes words and"),
            ("rows[a=\"x\"b]", "comes ',' or ']'"),
            ("rows[a=1]x", "comes a '.' or '['"),
            ("rows..n", "comes a name"),
        ] {
            let problem = Path::parse(path).unwrap_err();
            assert!(problem.contains(right), "{path}: {problem}");
        }
    }
}
