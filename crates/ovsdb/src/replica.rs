//! A copy of the monitored tables, kept up to date by `update` (section 4.1.6) and `update2`
//! (ovsdb-server(7) 4.1.14).
//!
//! `update` carries whole rows. `update2` carries differences, which mean nothing without the
//! column's type. The difference of a scalar is its new value; of a set, the elements added or
//! removed; of a map, the pairs added, removed or changed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::schema::{ColumnType, Schema};
use crate::value::{Atom, Datum, Uuid};

/// A row's columns by name.
pub type Row = BTreeMap<String, Datum>;

/// Tables as one monitor sees them.
///
/// ```
/// use ovsdb::{Replica, Schema};
/// use serde_json::json;
///
/// let columns = json!({"name": {"type": "string"}});
/// let tables = json!({"Bridge": {"columns": columns}});
/// let schema = Schema::from_json(&json!({"name": "D", "version": "1.0.0", "tables": tables}))?;
/// let monitored = [("Bridge".to_string(), ["name".to_string()].into())];
/// let mut replica = Replica::new(schema, monitored.into(), 1000);
///
/// let uuid = "00000000-0000-0000-0000-000000000001";
/// let changes = replica.handle_update2(&json!({"Bridge": {uuid: {"insert": {"name": "br0"}}}}))?;
/// assert_eq!(changes[0].old, None);
/// let (_, row) = replica.rows("Bridge").next().unwrap();
/// assert_eq!(row["name"].as_str(), Some("br0"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replica {
    schema: Schema,
    tables: BTreeMap<String, BTreeMap<Uuid, Row>>,
    /// The columns monitored, by table: a server leaves them out when they have their default.
    columns: BTreeMap<String, BTreeSet<String>>,
    row_count: usize,
    row_count_max: usize,
    held_bytes: usize,
}

/// One changed row, before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Name of the row's table.
    pub table: String,
    /// Identity of the row.
    pub uuid: Uuid,
    /// The row before the change; `None` if it was inserted.
    pub old: Option<Row>,
    /// The row after the change; `None` if it was deleted.
    pub new: Option<Row>,
}

/// Reason why an update cannot be applied. The replica is no longer a copy: reconnect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// The JSON does not have the form of an update.
    #[error("malformed update at {at}")]
    Malformed {
        /// Table, row or column where reading stopped.
        at: String,
    },
    /// A table or column that was not asked for, or a value that does not fit the column's type.
    #[error("update of {table}.{column} does not fit the schema")]
    NotInSchema {
        /// Name of the table.
        table: String,
        /// Name of the column, or `*` for the whole table.
        column: String,
    },
    /// A change of a row that we do not have, or an insertion of one that we have.
    #[error("update of row {uuid} of {table} does not follow from what we hold")]
    UnknownRow {
        /// Name of the table.
        table: String,
        /// Identity of the row.
        uuid: Uuid,
    },
    /// The monitor sees more rows than [`crate::Config::row_count_max`].
    #[error("more than {row_count_max} monitored rows")]
    TooManyRows {
        /// The limit that was exceeded.
        row_count_max: usize,
    },
}

impl Replica {
    /// Makes an empty copy of `columns` (by table) for at most `row_count_max` rows.
    pub fn new(
        schema: Schema,
        columns: BTreeMap<String, BTreeSet<String>>,
        row_count_max: usize,
    ) -> Replica {
        Replica {
            schema: schema.only(&columns),
            tables: BTreeMap::new(),
            columns,
            row_count: 0,
            row_count_max,
            held_bytes: 0,
        }
    }

    /// Returns one row, or `None` if the monitor does not see it.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&uuid)
    }

    /// Iterates over the rows of a table in order of their UUIDs.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        let rows = self.tables.get(table).into_iter().flatten();
        rows.map(|(uuid, row)| (*uuid, row))
    }

    /// Number of rows in all tables.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Estimates the memory that the rows take.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Takes the first rows, from the answer to `monitor_cond` or `monitor`.
    pub fn handle_initial(
        &mut self,
        updates: &Value,
        by_difference: bool,
    ) -> Result<(), ReplicaError> {
        match by_difference {
            true => self.update2(updates, None),
            false => self.update(updates, None),
        }
    }

    /// Applies `<table-updates>` of section 4.1.6, which is also the answer to `monitor`.
    pub fn handle_update(&mut self, updates: &Value) -> Result<Vec<Change>, ReplicaError> {
        let mut changes = Vec::new();
        self.update(updates, Some(&mut changes))?;
        Ok(changes)
    }

    /// Applies `<table-updates2>`, which is also the answer to `monitor_cond`.
    pub fn handle_update2(&mut self, updates: &Value) -> Result<Vec<Change>, ReplicaError> {
        let mut changes = Vec::new();
        self.update2(updates, Some(&mut changes))?;
        Ok(changes)
    }

    fn update(
        &mut self,
        updates: &Value,
        told: Option<&mut Vec<Change>>,
    ) -> Result<(), ReplicaError> {
        self.for_each_row(updates, told, |replica, table, uuid, update, is_told| {
            match update.get("new") {
                Some(new) => {
                    let had = replica.row(table, uuid).is_some();
                    // `old` is present, even if empty, exactly when we had the row.
                    if had != update.contains_key("old") {
                        return Err(unknown_row(table, uuid));
                    }
                    let new = replica.whole_row(table, new)?;
                    replica.put(table, uuid, new, is_told)
                }
                None if update.contains_key("old") => replica.remove(table, uuid),
                None => Err(malformed(format!("{table} {uuid}"))),
            }
        })
    }

    fn update2(
        &mut self,
        updates: &Value,
        told: Option<&mut Vec<Change>>,
    ) -> Result<(), ReplicaError> {
        self.for_each_row(updates, told, |replica, table, uuid, update, is_told| {
            let Some((kind, row)) = update.iter().next() else {
                return Err(malformed(format!("{table} {uuid}")));
            };
            match kind.as_str() {
                "initial" | "insert" => {
                    if replica.row(table, uuid).is_some() {
                        return Err(unknown_row(table, uuid));
                    }
                    let new = replica.whole_row(table, row)?;
                    replica.put(table, uuid, new, is_told)
                }
                "modify" => {
                    let old = replica.row(table, uuid).ok_or(unknown_row(table, uuid))?;
                    let new = replica.modified_row(table, old, row)?;
                    replica.put(table, uuid, new, is_told)
                }
                "delete" => replica.remove(table, uuid),
                _ => Err(malformed(format!("{table} {uuid} {kind}"))),
            }
        })
    }

    fn for_each_row(
        &mut self,
        updates: &Value,
        mut told: Option<&mut Vec<Change>>,
        mut apply: impl FnMut(
            &mut Replica,
            &str,
            Uuid,
            &Map<String, Value>,
            bool,
        ) -> Result<Change, ReplicaError>,
    ) -> Result<(), ReplicaError> {
        for (table, rows) in updates.as_object().ok_or(malformed("the tables"))? {
            if !self.columns.contains_key(table) {
                return Err(not_in_schema(table, "*"));
            }
            for (uuid, update) in rows.as_object().ok_or(malformed(table))? {
                let at = || malformed(format!("{table} {uuid}"));
                let update = update.as_object().ok_or_else(at)?;
                let uuid = uuid.parse().map_err(|_| at())?;
                let is_told = told.is_some();
                let change = apply(self, table, uuid, update, is_told)?;
                if let Some(told) = &mut told {
                    told.push(change);
                }
            }
        }
        Ok(())
    }

    /// Reads a row from which columns with their default value may have been left out.
    fn whole_row(&self, table: &str, given: &Value) -> Result<Row, ReplicaError> {
        let mut row = Row::new();
        for column in self.columns.get(table).into_iter().flatten() {
            let column_type = self.column_type(table, column)?;
            row.insert(column.clone(), column_type.default_datum());
        }
        for (column, value) in given.as_object().ok_or(malformed(table))? {
            row.insert(column.clone(), self.datum(table, column, value)?);
        }
        Ok(row)
    }

    fn modified_row(&self, table: &str, old: &Row, diff: &Value) -> Result<Row, ReplicaError> {
        let mut row = old.clone();
        for (column, value) in diff.as_object().ok_or(malformed(table))? {
            let diff = self.datum(table, column, value)?;
            let is_whole = self.column_type(table, column)?.max == Some(1);
            match row.get_mut(column) {
                Some(datum) if !is_whole => apply_difference(datum, diff),
                _ => drop(row.insert(column.clone(), diff)),
            }
        }
        Ok(row)
    }

    fn datum(&self, table: &str, column: &str, value: &Value) -> Result<Datum, ReplicaError> {
        let datum = Datum::from_json(value).map_err(|_| malformed(format!("{table}.{column}")))?;
        let admitted = self.column_type(table, column)?.admit(datum);
        admitted.ok_or_else(|| not_in_schema(table, column))
    }

    fn column_type(&self, table: &str, column: &str) -> Result<&ColumnType, ReplicaError> {
        let column_type = self.schema.column(table, column);
        column_type.ok_or_else(|| not_in_schema(table, column))
    }

    /// Stores a row. Without `is_told`, the change leaves out the new row, which may be large.
    fn put(
        &mut self,
        table: &str,
        uuid: Uuid,
        row: Row,
        is_told: bool,
    ) -> Result<Change, ReplicaError> {
        let new = is_told.then(|| row.clone());
        let rows = self.tables.entry(table.into()).or_default();
        self.held_bytes += row_bytes(&row);
        let old = rows.insert(uuid, row);
        self.held_bytes -= old.as_ref().map_or(0, row_bytes);
        self.row_count += usize::from(old.is_none());
        if self.row_count > self.row_count_max {
            return Err(ReplicaError::TooManyRows {
                row_count_max: self.row_count_max,
            });
        }
        Ok(Change {
            table: table.into(),
            uuid,
            old,
            new,
        })
    }

    fn remove(&mut self, table: &str, uuid: Uuid) -> Result<Change, ReplicaError> {
        let rows = self.tables.get_mut(table);
        let old = rows
            .and_then(|rows| rows.remove(&uuid))
            .ok_or(unknown_row(table, uuid))?;
        self.row_count -= 1;
        self.held_bytes -= row_bytes(&old);
        Ok(Change {
            table: table.into(),
            uuid,
            old: Some(old),
            new: None,
        })
    }
}

/// Estimates the memory of a row: its tree, the names of its columns, and their values.
fn row_bytes(row: &Row) -> usize {
    /// Two nodes of trees, some of them half empty.
    const ROW: usize = 1000;
    const NAME: usize = 32;
    const TEXT: usize = 16;
    const ELEMENT: usize = 64;
    let atom = |atom: &Atom| match atom {
        Atom::String(text) | Atom::NamedUuid(text) if !text.is_empty() => TEXT + text.len(),
        _ => 0,
    };
    let datum = |datum: &Datum| match datum {
        Datum::Set(set) if set.len() < 2 => set.iter().map(atom).sum(),
        Datum::Set(set) => set.iter().map(|a| ELEMENT + atom(a)).sum::<usize>(),
        Datum::Map(map) => {
            let pairs = map.iter();
            pairs.map(|(k, v)| 2 * ELEMENT + atom(k) + atom(v)).sum()
        }
    };
    let columns = row.values().map(|value| NAME + datum(value));
    ROW + columns.sum::<usize>()
}

/// Applies a difference: removes each element that was there unchanged, and inserts or replaces
/// every other.
fn apply_difference(datum: &mut Datum, difference: Datum) {
    match (datum, difference) {
        (Datum::Set(set), Datum::Set(difference)) => {
            for atom in difference {
                if !set.remove(&atom) {
                    set.insert(atom);
                }
            }
        }
        (Datum::Map(map), Datum::Map(difference)) => {
            for (key, value) in difference {
                if map.get(&key) == Some(&value) {
                    map.remove(&key);
                } else {
                    map.insert(key, value);
                }
            }
        }
        // `ColumnType::admit` gave both the form of one column.
        (Datum::Set(_), Datum::Map(_)) | (Datum::Map(_), Datum::Set(_)) => unreachable!(),
    }
}

fn malformed(at: impl Into<String>) -> ReplicaError {
    ReplicaError::Malformed { at: at.into() }
}

fn not_in_schema(table: &str, column: &str) -> ReplicaError {
    ReplicaError::NotInSchema {
        table: table.into(),
        column: column.into(),
    }
}

fn unknown_row(table: &str, uuid: Uuid) -> ReplicaError {
    ReplicaError::UnknownRow {
        table: table.into(),
        uuid,
    }
}
