//! The JSON Schema of the configuration, for editors. The readers read [`SAMPLES`] and note what
//! each key takes. The descriptions come from the table of settings.

use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::super::fields::Fields;
use super::super::record::Record;
use super::Settings;
use super::effective::of_toml;
use super::table::SETTINGS;

/// The short form of `api`, each section once, and each policy of `[timeouts]`, as its reader asks
/// only for the settings of that policy.
const SAMPLES: [&str; 4] = [
    "api = \"8080\"\nallow_dpid = \"1\"\n",
    "[tls]\n[controller]\n[fabric]\n[multicast]\n[session]\n[guard]\n[cluster]\n[api.tls]\n\
     [metrics]\n[timeouts]\npolicy = \"lease\"\n[timeouts.switches]\n\
     [[timeouts.class]]\npolicy = \"lease\"\n[[vlan]]\n[[port]]\n[[acl]]\n[[acl.rule]]\n\
     [[bond]]\n[[mirror]]\n[[route]]\n[[guest]]\n[qos]\n",
    "[controller]\nidle_timeout_s = 1\n[timeouts]\npolicy = \"fixed\"\n\
     [[timeouts.class]]\npolicy = \"fixed\"\n",
    "[timeouts]\npolicy = \"paper\"\n[[timeouts.class]]\npolicy = \"paper\"\n",
];

/// The keys of each section with the values that they take.
pub fn record() -> Record {
    let mut all = Record::default();
    for sample in SAMPLES {
        let (mut fields, root) = Fields::parse(sample);
        fields.start_record();
        let _ = Settings::read_fields(&mut fields, &root, sample, Path::new("sample.toml"));
        all.merge(fields.take_record());
    }
    all
}

pub fn schema() -> Json {
    let record = record();
    let mut schema = section(&record, "");
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("auster run --config");
    schema
}

/// The schema of a section's table: its keys, and the schema of each key that is a section.
fn section(record: &Record, path: &str) -> Json {
    let mut properties = Map::new();
    for (key, takes) in record.sections.get(path).into_iter().flatten() {
        let inner = match path {
            "" => key.clone(),
            path => format!("{path}.{key}"),
        };
        let mut takes = takes.clone();
        if record.sections.contains_key(&inner) {
            let table = section(record, &inner);
            takes = match takes["type"].as_str() {
                Some("array") => json!({"type": "array", "items": table}),
                // An address may replace the table.
                _ if inner == "api" => json!({"anyOf": [takes, table]}),
                _ => table,
            };
        }
        if let Some(setting) = SETTINGS.iter().find(|setting| setting.path == inner) {
            takes["description"] = json!(setting.about);
            if !setting.default.is_empty() {
                takes["default"] = of_toml(setting.default);
            }
        }
        properties.insert(key.clone(), takes);
    }
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Tables whose keys change together, so that the table of settings names each table once.
    const WHOLE: [&str; 10] = [
        "timeouts.class",
        "qos",
        "vlan",
        "port",
        "acl",
        "bond",
        "mirror",
        "route",
        "guest",
        "timeouts.switches",
    ];

    #[test]
    fn the_table_has_the_settings_that_the_readers_know_and_no_other() {
        let mut read = BTreeSet::new();
        let record = record();
        for (section, keys) in &record.sections {
            let is_whole = WHOLE.contains(&section.as_str()) || section.starts_with("acl.");
            for key in keys.keys().filter(|_| !is_whole) {
                let path = match &section[..] {
                    "" => key.clone(),
                    section => format!("{section}.{key}"),
                };
                if !record.sections.contains_key(&path) || WHOLE.contains(&&path[..]) {
                    read.insert(path);
                }
            }
        }
        let stated: BTreeSet<_> = SETTINGS.iter().map(|s| s.path.to_owned()).collect();
        let (missing, extra): (Vec<_>, Vec<_>) = (
            read.difference(&stated).collect(),
            stated.difference(&read).collect(),
        );
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{missing:?} {extra:?}"
        );
        assert_eq!(stated.len(), SETTINGS.len(), "twice");
    }

    #[test]
    fn the_defaults_of_the_table_are_those_of_the_readers() {
        let mut text = String::new();
        for is_section in [false, true] {
            for setting in SETTINGS
                .iter()
                .filter(|s| s.path.contains('.') == is_section)
            {
                let is_choice = ["forwarding", "mode"].contains(&setting.path);
                if !setting.default.is_empty() && !is_choice {
                    let (path, default) = (setting.path, setting.default);
                    text.push_str(&format!("{path} = {default}\n"));
                }
            }
        }
        let shown = |text: &str| {
            let mut settings = Settings::parse(text, Path::new("")).unwrap();
            // These settings keep their text, and whether they were present.
            (settings.api, settings.qos) = (None, Settings::default().qos);
            format!("{settings:?}")
        };
        assert_eq!(shown(&text), shown(""));
    }

    #[test]
    fn each_key_takes_what_its_reader_asks_for() {
        let schema = schema();
        let at = |path: &str| schema.pointer(path).unwrap_or(&Json::Null).clone();
        let rate = at("/properties/controller/properties/path_rate_max");
        assert_eq!(
            (
                &rate["type"],
                &rate["minimum"],
                &rate["maximum"],
                &rate["default"]
            ),
            (
                &json!("integer"),
                &json!(1),
                &json!(10_000_000),
                &json!(2000)
            )
        );
        let class = "/properties/timeouts/properties/class/items/properties";
        for (path, kind) in [
            (format!("{class}/forbid/type"), "boolean"),
            (format!("{class}/base_s/type"), "integer"),
            (
                "/properties/api/anyOf/1/properties/tls/type".to_owned(),
                "object",
            ),
            (
                "/properties/vlan/items/properties/id/type".to_owned(),
                "integer",
            ),
            ("/properties/listen/anyOf/1/type".to_owned(), "array"),
            ("/properties/allow_dpid/anyOf/1/type".to_owned(), "array"),
            ("/properties/api/anyOf/0/anyOf/0/type".to_owned(), "string"),
        ] {
            assert_eq!(at(&path), kind, "{path}");
        }
        let untyped = record().sections.into_iter().flat_map(|(section, keys)| {
            let bare = keys.into_iter().filter(|(_, takes)| *takes == json!({}));
            bare.map(move |(key, _)| format!("{section}.{key}"))
        });
        let untyped: Vec<String> = untyped.collect();
        assert!(untyped.len() <= 8, "{untyped:?}");
    }
}
