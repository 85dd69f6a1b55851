//! A document against its committed JSON Schema: as much of draft 2020-12 as `docs/schema/` uses.

use std::path::Path;

use serde_json::Value;

/// The differences of `document` from `docs/schema/<name>.json`, by path. An object whose schema
/// lists its properties must have exactly these.
pub fn departures(name: &str, document: &Value) -> Vec<String> {
    let dir = Path::new(super::ROOT).join("docs/schema");
    let text = std::fs::read(dir.join(format!("{name}.json"))).unwrap();
    let schema: Value = serde_json::from_slice(&text).unwrap();
    let mut found = Vec::new();
    check(&schema, &schema, document, "$", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#'));
        let target = target.unwrap_or_else(|| panic!("the schema has no {name}"));
        return check(root, target, value, at, found);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let problems = choices.iter().map(|choice| {
            let mut problems = Vec::new();
            check(root, choice, value, at, &mut problems);
            problems
        });
        // The problems of the choice that fits best.
        return found.extend(problems.min_by_key(Vec::len).unwrap());
    }
    if let Some(only) = schema.get("const")
        && only != value
    {
        found.push(format!("{at}: {value} is not {only}"));
    }
    if let Some(listed) = schema["enum"].as_array()
        && !listed.contains(value)
    {
        found.push(format!("{at}: {value} is none of {listed:?}"));
    }
    let fits = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("null") => value.is_null(),
        Some(other) => panic!("the schema's type {other} is not known here"),
    };
    if !fits {
        return found.push(format!("{at}: {value} is no {}", schema["type"]));
    }
    if let Some(least) = schema["minimum"].as_f64()
        && value.as_f64().is_some_and(|n| n < least)
    {
        found.push(format!("{at}: {value} is below {least}"));
    }
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        check(root, &schema["items"], item, &format!("{at}[{n}]"), found);
    }
    if let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object())
    {
        for (name, property) in properties {
            match members.get(name) {
                Some(member) => check(root, property, member, &format!("{at}.{name}"), found),
                None => found.push(format!("{at}.{name} is missing")),
            }
        }
        let unknown = members
            .keys()
            .filter(|name| !properties.contains_key(*name));
        found.extend(unknown.map(|name| format!("{at}.{name} is not in the schema")));
    }
}
