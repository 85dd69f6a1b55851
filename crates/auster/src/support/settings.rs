//! A configuration that others may see: its values, without comments and secrets.

use std::path::Path;

use serde_json::{Map, Value, json};
use toml::de::{DeTable, DeValue};

/// Keys whose value is a file name, shown although the key sounds like a secret. A value that does
/// not name a file is left out nevertheless.
const FILES: [&str; 5] = ["private_key", "certificate", "ca", "crl", "tokens"];
/// Parts of the names of keys whose values are left out.
const SECRET: [&str; 8] = [
    "pass",
    "secret",
    "token",
    "key",
    "credential",
    "auth",
    "bearer",
    "community",
];
const LEFT_OUT: &str = "(left out)";

/// The document of a TOML file in `dir`.
///
/// # Errors
/// The text is not TOML at all, so its secrets are unknown.
pub fn without_secrets(text: &str, dir: &Path) -> Result<Value, String> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = 1 + text[..at.min(text.len())].matches('\n').count();
        format!("line {line}: it is no TOML, so nothing of it is shown")
    })?;
    Ok(of_table(table.get_ref(), dir))
}

/// The names of certificate files in the text, wherever they appear.
pub fn certificates(text: &str, dir: &Path) -> Vec<std::path::PathBuf> {
    let Ok(table) = DeTable::parse(text) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    gather(table.get_ref(), dir, &mut found);
    found
}

fn gather(table: &DeTable<'_>, dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for (key, value) in table {
        match value.get_ref() {
            DeValue::Table(inner) => gather(inner, dir, found),
            DeValue::String(file) if ["certificate", "ca", "crl"].contains(&&**key.get_ref()) => {
                found.push(dir.join(&**file));
            }
            _ => {}
        }
    }
}

fn of_table(table: &DeTable<'_>, dir: &Path) -> Value {
    let fields = table.iter().map(|(key, value)| {
        let key = key.get_ref().to_string();
        let value = match is_secret(&key, value.get_ref(), dir) {
            true => json!(LEFT_OUT),
            false => of_value(value.get_ref(), dir),
        };
        (key, value)
    });
    Value::Object(fields.collect::<Map<String, Value>>())
}

fn is_secret(key: &str, value: &DeValue<'_>, dir: &Path) -> bool {
    let lower = key.to_ascii_lowercase();
    if FILES.contains(&key) {
        let is_file = |file: &str| dir.join(file).is_file();
        return !matches!(value, DeValue::String(file) if is_file(file));
    }
    let sounds_secret = SECRET.iter().any(|part| lower.contains(part));
    sounds_secret && !matches!(value, DeValue::Table(_))
}

fn of_value(value: &DeValue<'_>, dir: &Path) -> Value {
    match value {
        DeValue::String(text) => json!(of_text(text)),
        DeValue::Integer(number) => number
            .to_string()
            .parse::<i64>()
            .map_or_else(|_| json!(number.to_string()), |number| json!(number)),
        DeValue::Float(number) => number
            .to_string()
            .parse::<f64>()
            .map_or_else(|_| json!(number.to_string()), |number| json!(number)),
        DeValue::Boolean(is) => json!(is),
        DeValue::Datetime(time) => json!(time.to_string()),
        DeValue::Array(values) => values
            .iter()
            .map(|value| of_value(value.get_ref(), dir))
            .collect(),
        DeValue::Table(table) => of_table(table, dir),
    }
}

/// Leaves out secrets wherever they appear: keys, tokens, and passwords in addresses.
fn of_text(text: &str) -> String {
    if text.contains("-----BEGIN") || text.contains("auster-") && text.len() > 30 {
        return LEFT_OUT.to_owned();
    }
    match text.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://{LEFT_OUT}@{host}"),
            None => text.to_owned(),
        },
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_and_secrets_are_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key.pem"), "").unwrap();
        let text = r#"
            # the old password was MARK1
            listen = ["ptcp:6653", "pssl:6654"]
            flow_rate = 12.5
            password = "MARK2"
            [tls]
            private_key = "key.pem"
            certificate = "c.pem"
            [api]
            tokens = "auster-MARK3"
            listen = 8080
            [cluster]
            etcd = ["https://root:MARK4@10.0.0.1:2379", "http://10.0.0.2:2379"]
            [[other]]
            Snmp_Community = "MARK5"
            pem = "-----BEGIN PRIVATE KEY----- MARK6"
            note = "auster-MARK7-0123456789abcdef0123456789abcdef"
        "#;
        let shown = without_secrets(text, dir.path()).unwrap();
        assert!(!shown.to_string().contains("MARK"), "{shown:#}");
        assert_eq!(shown["listen"], json!(["ptcp:6653", "pssl:6654"]));
        assert_eq!(shown["flow_rate"], json!(12.5));
        assert_eq!(shown["tls"]["private_key"], "key.pem");
        assert_eq!(shown["api"]["listen"], 8080);
        assert_eq!(shown["cluster"]["etcd"][1], "http://10.0.0.2:2379");
        assert_eq!(shown["password"], LEFT_OUT);
        assert_eq!(certificates(text, dir.path()), [dir.path().join("c.pem")]);
    }

    #[test]
    fn of_what_is_no_toml_nothing_is_shown() {
        let problem = without_secrets("a = 1\npassword MARK\n", Path::new(".")).unwrap_err();
        assert!(
            problem.starts_with("line 2: ") && !problem.contains("MARK"),
            "{problem}"
        );
    }
}
