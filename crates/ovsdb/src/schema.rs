//! A database's schema (section 3.2), as far as reading rows needs it: the type of each column.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::value::{Atom, Atoms, Datum, Uuid};

/// Tables and the types of their columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Name of the database.
    pub name: String,
    /// Version of the schema, as `x.y.z`.
    pub version: String,
    /// Column types by table and column.
    pub tables: BTreeMap<String, BTreeMap<String, ColumnType>>,
}

/// Contents of a column: `min` to `max` elements of `key`, or pairs of `key` and `value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// Type of the elements, or of the keys where the column is a map.
    pub key: AtomType,
    /// Type of the values where the column is a map; `None` for a set or a scalar.
    pub value: Option<AtomType>,
    /// 0 or 1.
    pub min: u64,
    /// Maximum number of elements or pairs; `None` is unlimited.
    pub max: Option<u64>,
}

/// Atomic types (section 3.1, `<atomic-type>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomType {
    /// A signed 64-bit integer.
    Integer,
    /// A double-precision number.
    Real,
    /// `true` or `false`.
    Boolean,
    /// UTF-8 text.
    String,
    /// Identity of a row.
    Uuid,
}

/// Failure to read a schema, with the place of the failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema cannot be read at {at}")]
pub struct SchemaError {
    /// `table.column`, or the name of the missing member.
    pub at: String,
}

impl Schema {
    /// Reads the answer to `get_schema`, or an `.ovsschema` file.
    pub fn from_json(json: &Value) -> Result<Schema, SchemaError> {
        let at = |at: &str| SchemaError { at: at.into() };
        let text = |name: &str| json[name].as_str().map(String::from).ok_or(at(name));
        let mut tables = BTreeMap::new();
        for (table, body) in json["tables"].as_object().ok_or(at("tables"))? {
            let mut columns = BTreeMap::new();
            for (column, body) in body["columns"].as_object().ok_or(at(table))? {
                let column_type = ColumnType::from_json(&body["type"])
                    .ok_or_else(|| at(&format!("{table}.{column}")))?;
                columns.insert(column.clone(), column_type);
            }
            tables.insert(table.clone(), columns);
        }
        Ok(Schema {
            name: text("name")?,
            version: text("version")?,
            tables,
        })
    }

    /// Removes the tables and columns that are not in `columns`.
    #[must_use]
    pub fn only(mut self, columns: &BTreeMap<String, BTreeSet<String>>) -> Schema {
        self.tables.retain(|table, _| columns.contains_key(table));
        for (table, types) in &mut self.tables {
            types.retain(|column, _| columns[table].contains(column));
        }
        self
    }

    /// Type of a column. `_uuid` and `_version` exist in every table. `None` if the schema has no
    /// such column.
    pub fn column(&self, table: &str, column: &str) -> Option<&ColumnType> {
        match column {
            "_uuid" | "_version" => Some(&ROW_UUID),
            _ => self.tables.get(table)?.get(column),
        }
    }
}

const ROW_UUID: ColumnType = ColumnType {
    key: AtomType::Uuid,
    value: None,
    min: 1,
    max: Some(1),
};

impl ColumnType {
    fn from_json(json: &Value) -> Option<ColumnType> {
        if json.is_string() {
            return Some(ColumnType {
                key: AtomType::from_json(json)?,
                value: None,
                min: 1,
                max: Some(1),
            });
        }
        let max = match &json["max"] {
            Value::Null => Some(1),
            Value::String(s) if s == "unlimited" => None,
            max => Some(max.as_u64()?),
        };
        Some(ColumnType {
            key: AtomType::from_json(&json["key"])?,
            value: match &json["value"] {
                Value::Null => None,
                value => Some(AtomType::from_json(value)?),
            },
            min: match &json["min"] {
                Value::Null => 1,
                min => min.as_u64()?,
            },
            max,
        })
    }

    /// Value of a column that was never written. Servers leave it out of messages.
    pub fn default_datum(&self) -> Datum {
        match (self.min, self.value) {
            (0, None) => Datum::empty(),
            (0, Some(_)) => Datum::Map(BTreeMap::new()),
            (_, None) => Datum::from(self.key.default_atom()),
            (_, Some(value)) => Datum::map([(self.key.default_atom(), value.default_atom())]),
        }
    }

    /// Converts `datum` to this column's form: reals without a fraction arrive as integers, an
    /// empty map as an empty set. Returns `None` if the value does not fit the column.
    pub fn admit(&self, datum: Datum) -> Option<Datum> {
        let admitted = match (datum, self.value) {
            (Datum::Set(set), None) => Datum::Set(
                set.into_iter()
                    .map(|atom| self.key.admit(atom))
                    .collect::<Option<Atoms>>()?,
            ),
            (Datum::Set(set), Some(_)) if set.is_empty() => Datum::Map(BTreeMap::new()),
            (Datum::Map(map), Some(value)) => Datum::Map(
                map.into_iter()
                    .map(|(k, v)| Some((self.key.admit(k)?, value.admit(v)?)))
                    .collect::<Option<BTreeMap<_, _>>>()?,
            ),
            _ => return None,
        };
        Some(admitted)
    }
}

impl AtomType {
    fn from_json(json: &Value) -> Option<AtomType> {
        match json.as_str().or(json["type"].as_str())? {
            "integer" => Some(AtomType::Integer),
            "real" => Some(AtomType::Real),
            "boolean" => Some(AtomType::Boolean),
            "string" => Some(AtomType::String),
            "uuid" => Some(AtomType::Uuid),
            _ => None,
        }
    }

    fn default_atom(self) -> Atom {
        match self {
            AtomType::Integer => Atom::Integer(0),
            AtomType::Real => Atom::Real(0.0),
            AtomType::Boolean => Atom::Boolean(false),
            AtomType::String => Atom::String(String::new()),
            AtomType::Uuid => Atom::Uuid(Uuid::default()),
        }
    }

    fn admit(self, atom: Atom) -> Option<Atom> {
        match (self, atom) {
            (AtomType::Real, Atom::Integer(i)) => Some(Atom::Real(i as f64)),
            (AtomType::Integer, atom @ Atom::Integer(_))
            | (AtomType::Real, atom @ Atom::Real(_))
            | (AtomType::Boolean, atom @ Atom::Boolean(_))
            | (AtomType::String, atom @ Atom::String(_))
            | (AtomType::Uuid, atom @ Atom::Uuid(_)) => Some(atom),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_that_cannot_be_read_says_where() {
        let schema = |kind: Value| {
            let tables = json!({"T": {"columns": {"c": {"type": kind}}}});
            Schema::from_json(&json!({"name": "D", "version": "1.0.0", "tables": tables}))
        };
        assert!(schema(json!("integer")).is_ok());
        for bad in [
            json!("text"),
            json!({}),
            json!(3),
            json!({"key": "real", "max": -1}),
        ] {
            assert_eq!(schema(bad).unwrap_err().at, "T.c");
        }
        assert_eq!(Schema::from_json(&json!(null)).unwrap_err().at, "tables");
    }

    #[test]
    fn columns_admit_their_own_values_in_one_form() {
        let real = ColumnType {
            key: AtomType::Real,
            value: None,
            min: 0,
            max: None,
        };
        assert_eq!(real.admit(Datum::from(3)), Some(Datum::from(3.0)));
        assert_eq!(real.admit(Datum::from("x")), None);
        let map = ColumnType {
            value: Some(AtomType::String),
            ..real
        };
        assert_eq!(map.admit(Datum::empty()), Some(map.default_datum()));
        assert_eq!(map.admit(Datum::from(1.0)), None);
    }
}
