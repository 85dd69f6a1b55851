//! The keys that the readers of the configuration ask for, and the values that each takes. So the
//! schema agrees with the readers, and nobody writes it a second time.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use toml::de::DeTable;

/// The keys of each section, by the section's path such as `timeouts.class`.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub sections: BTreeMap<String, BTreeMap<String, Json>>,
    /// The section of each table being read, by the table's address.
    entered: BTreeMap<usize, String>,
}

/// The schema of a key whose value its reader reads in its own way.
fn any() -> Json {
    json!({})
}

impl Record {
    /// Notes that a table is this section, and all keys that the section may have.
    pub fn enter(&mut self, table: &DeTable<'_>, section: &str, known: &[&str]) {
        let section = section.trim_matches(['[', ']']).to_owned();
        let keys = self.sections.entry(section.clone()).or_default();
        for key in known {
            keys.entry((*key).to_owned()).or_insert_with(any);
        }
        self.entered.insert(place(table), section);
    }

    /// Notes the values that a key takes. The first reader of a key decides.
    pub fn note(&mut self, table: &DeTable<'_>, key: &str, schema: Json) {
        let Some(section) = self.entered.get(&place(table)) else {
            return;
        };
        let keys = self.sections.get_mut(section);
        if let Some(known) = keys.and_then(|keys| keys.get_mut(key))
            && *known == any()
        {
            *known = schema;
        }
    }

    /// The header of the section that knows a key, if no other section does.
    pub fn only_section_of(&self, key: &str) -> Option<String> {
        let mut all = self
            .sections
            .iter()
            .filter(|(_, keys)| keys.contains_key(key));
        let (section, _) = all.next().filter(|(section, _)| !section.is_empty())?;
        if all.next().is_some() {
            return None;
        }
        let (within, name) = section.rsplit_once('.').unwrap_or(("", section));
        let takes = self.sections.get(within).and_then(|keys| keys.get(name));
        Some(match takes.is_some_and(|takes| takes["type"] == "array") {
            true => format!("[[{section}]]"),
            false => format!("[{section}]"),
        })
    }

    /// Adds the keys noted when another document was read.
    pub fn merge(&mut self, other: Record) {
        for (section, keys) in other.sections {
            let own = self.sections.entry(section).or_default();
            for (key, schema) in keys {
                let known = own.entry(key).or_insert_with(any);
                if *known == any() {
                    *known = schema;
                }
            }
        }
    }
}

/// The address of a table in memory: it does not move while its document is read.
fn place(table: &DeTable<'_>) -> usize {
    std::ptr::from_ref(table).addr()
}
