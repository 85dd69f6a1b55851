//! Fields of a document as words of a command line: `rate=100mbit queue.1.class=gold`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A document of these fields.
///
/// # Errors
/// Every word that is not a field.
pub fn document(words: &[String]) -> Result<Value, Vec<String>> {
    let mut problems = Vec::new();
    let mut fields = Map::new();
    let mut queues: BTreeMap<u8, Map<String, Value>> = BTreeMap::new();
    for word in words {
        let Some((path, text)) = word.split_once('=') else {
            problems.push(format!("'{word}' is no FIELD=VALUE, such as rate=100mbit"));
            continue;
        };
        let steps: Vec<&str> = path.split('.').collect();
        let (table, key) = match steps[..] {
            [key] => (&mut fields, key),
            ["queue", number, key] => match number.parse() {
                Ok(number) => (queues.entry(number).or_default(), key),
                Err(_) => {
                    problems.push(format!("{path}: '{number}' is no queue's number, 0 to 255"));
                    continue;
                }
            },
            ["meter", key] => {
                let meter = fields.entry("meter").or_insert_with(|| json!({}));
                match meter.as_object_mut() {
                    Some(meter) => (meter, key),
                    None => {
                        problems.push(format!("{path}: meter is said otherwise already"));
                        continue;
                    }
                }
            }
            _ => {
                let wanted = "FIELD, meter.FIELD, or queue.NUMBER.FIELD";
                problems.push(format!("'{path}' is none of {wanted}"));
                continue;
            }
        };
        if table.insert(key.to_owned(), value(key, text)).is_some() {
            problems.push(format!("{path} is said twice"));
        }
    }
    if !queues.is_empty() {
        let queue = |(number, mut fields): (u8, Map<String, Value>)| {
            fields.insert("number".to_owned(), json!(number));
            Value::Object(fields)
        };
        let queues = queues.into_iter().map(queue).collect();
        fields.insert("queues".to_owned(), Value::Array(queues));
    }
    match problems.is_empty() {
        true => Ok(Value::Object(fields)),
        false => Err(problems),
    }
}

/// Fields that are lists even with one item.
const LISTS: [&str; 3] = ["dscp", "ports", "switches"];

fn value(key: &str, text: &str) -> Value {
    let one = |text: &str| match text {
        "true" => json!(true),
        "false" => json!(false),
        _ => match text.parse::<u64>() {
            // Datapath ids are texts, even if they look like numbers.
            Ok(number) if key != "switches" => json!(number),
            _ => json!(text),
        },
    };
    match LISTS.contains(&key) && text.contains(',') {
        true => text.split(',').map(|item| one(item.trim())).collect(),
        false => one(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Value, Vec<String>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        document(&words)
    }

    #[test]
    fn words_are_fields() {
        let read = read(&[
            "rate=100mbit",
            "queue.1.class=gold",
            "queue.1.dscp=46,47",
            "queue.0.max=5mbit",
        ]);
        let expected = json!({"rate": "100mbit", "queues": [
            {"max": "5mbit", "number": 0}, {"class": "gold", "dscp": [46, 47], "number": 1}
        ]});
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn numbers_and_truths_are_told_from_texts() {
        let read = read(&[
            "service=voice",
            "drop=true",
            "mark=46",
            "switches=1",
            "ports=1:2,2:3",
            "meter.rate=5mbit",
        ]);
        let expected = json!({
            "service": "voice", "drop": true, "mark": 46, "switches": "1",
            "ports": ["1:2", "2:3"], "meter": {"rate": "5mbit"}
        });
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let problems = read(&[
            "rate",
            "queue.x.min=1",
            "a.b.c.d=1",
            "mark=1",
            "mark=2",
            "meter=1",
            "meter.rate=1",
        ]);
        assert_eq!(problems.unwrap_err().len(), 5);
    }
}
