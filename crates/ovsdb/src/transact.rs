//! Transactions (section 5.2): requests to the database in one atomic step, and their answers.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::replica::Row;
use crate::value::{Datum, Uuid};

/// Operations on one database that happen together or not at all.
///
/// ```
/// use ovsdb::{Condition, Datum, Mutation, Mutator, Operation, Transaction};
///
/// let here = vec![Condition::equal("name", "br0")];
/// let fail_mode = Operation::update("Bridge", here, [("fail_mode", Datum::from("secure"))]);
/// let bump = vec![Mutation::new("next_cfg", Mutator::Add, 1)];
/// let transaction = Transaction::new("Open_vSwitch")
///     .then(fail_mode)
///     .then(Operation::mutate("Open_vSwitch", vec![], bump));
///
/// let first = transaction.operations[0].to_json();
/// assert_eq!(first["op"], "update");
/// assert_eq!(first["where"].to_string(), r#"[["name","==","br0"]]"#);
/// assert_eq!(first["row"]["fail_mode"], "secure");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// Name of the database.
    pub database: String,
    /// Operations in the order in which the server runs them.
    pub operations: Vec<Operation>,
}

/// One step of a transaction (sections 5.2.1 to 5.2.10).
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Adds a row (5.2.1). Answered by [`OpResult::Inserted`].
    Insert {
        /// Table that gets the row.
        table: String,
        /// Columns of the row. A column left out gets its default value.
        row: Row,
        /// A name by which other operations of this transaction refer to the row.
        uuid_name: Option<String>,
    },
    /// Reads rows (5.2.2). Answered by [`OpResult::Rows`].
    Select {
        /// Table to read.
        table: String,
        /// Conditions that a row must meet; without any, all rows match.
        conditions: Vec<Condition>,
        /// Columns to read; `None` reads every column.
        columns: Option<Vec<String>>,
    },
    /// Writes columns of rows (5.2.3). Answered by [`OpResult::Count`].
    Update {
        /// Table to write.
        table: String,
        /// Conditions that a row must meet; without any, all rows match.
        conditions: Vec<Condition>,
        /// Columns to write, with their new values.
        row: Row,
    },
    /// Changes columns of rows relative to their present values (5.2.4). Answered by
    /// [`OpResult::Count`].
    Mutate {
        /// Table to change.
        table: String,
        /// Conditions that a row must meet; without any, all rows match.
        conditions: Vec<Condition>,
        /// Changes of each row, in order.
        mutations: Vec<Mutation>,
    },
    /// Removes rows (5.2.5). Answered by [`OpResult::Count`].
    Delete {
        /// Table to remove from.
        table: String,
        /// Conditions that a row must meet; without any, all rows match.
        conditions: Vec<Condition>,
    },
    /// Delays the transaction until the selected rows equal `rows`, or differ from them (5.2.6).
    /// Fails with "timed out" after `timeout_ms`; zero checks once.
    Wait {
        /// Table to read.
        table: String,
        /// Conditions that select the rows.
        conditions: Vec<Condition>,
        /// Columns to compare.
        columns: Vec<String>,
        /// `true` waits until the rows are equal, `false` until they differ.
        until_equal: bool,
        /// Rows to compare with, of `columns` only.
        rows: Vec<Row>,
        /// Longest wait, in milliseconds.
        timeout_ms: u32,
    },
    /// States how the transaction must be stored (5.2.7).
    Commit {
        /// `true` if the answer must wait until the disk has the transaction (5.2.7).
        durable: bool,
    },
    /// Fails the transaction (5.2.8).
    Abort,
    /// Text for the database's log (5.2.9).
    Comment(String),
    /// Fails the transaction unless this client owns the lock (5.2.10).
    Assert {
        /// Name of the lock (5.2.10).
        lock: String,
    },
}

/// `column function value` (section 5.1): a row matches when all of its conditions hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Column that is compared.
    pub column: String,
    /// Comparison.
    pub function: Function,
    /// Value to compare with.
    pub value: Datum,
}

/// Comparisons of a [`Condition`] (section 5.1, `<function>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `<`, for integers and reals.
    Less,
    /// `<=`, for integers and reals.
    LessOrEqual,
    /// `==`.
    Equal,
    /// `!=`.
    NotEqual,
    /// `>`, for integers and reals.
    Greater,
    /// `>=`, for integers and reals.
    GreaterOrEqual,
    /// The column has all elements or pairs of the value.
    Includes,
    /// The column has no element or pair of the value.
    Excludes,
}

/// `column mutator value` (section 5.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    /// Column that changes.
    pub column: String,
    /// Kind of change.
    pub mutator: Mutator,
    /// Second operand of the change.
    pub value: Datum,
}

/// Changes of a [`Mutation`] (section 5.1, `<mutator>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutator {
    /// `+=`, for integers and reals.
    Add,
    /// `-=`, for integers and reals.
    Subtract,
    /// `*=`, for integers and reals.
    Multiply,
    /// `/=`, for integers and reals.
    Divide,
    /// `%=`, for integers.
    Modulo,
    /// Adds elements to a set, or pairs to a map. A key that exists keeps its value.
    Insert,
    /// Removes elements from a set, or keys or pairs from a map.
    Delete,
}

/// Result of one operation.
#[derive(Clone, Debug, PartialEq)]
pub enum OpResult {
    /// The new row's identity.
    Inserted(Uuid),
    /// Rows updated, mutated or deleted.
    Count(u64),
    /// Rows that a select found. Values have the form they had on the wire.
    Rows(Vec<Row>),
    /// Result of a wait, commit, abort, comment or assert, which return nothing more.
    Done,
}

/// Reason why a transaction changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactError {
    /// Operation `index` failed; an index past the last operation means that the commit failed.
    Failed {
        /// Position of the failed operation, from 0.
        index: usize,
        /// Name of the error, for example `constraint violation`.
        error: String,
        /// Server's explanation; may be empty.
        details: String,
    },
    /// The answer does not have the form of section 4.1.3.
    Malformed,
}

impl fmt::Display for TransactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransactError::Failed {
                index,
                error,
                details,
            } if details.is_empty() => {
                write!(f, "operation {index}: {error}")
            }
            TransactError::Failed {
                index,
                error,
                details,
            } => {
                write!(f, "operation {index}: {error}: {details}")
            }
            TransactError::Malformed => f.write_str("the answer to a transaction is malformed"),
        }
    }
}

impl std::error::Error for TransactError {}

impl Transaction {
    /// Makes an empty transaction on one database.
    pub fn new(database: impl Into<String>) -> Transaction {
        Transaction {
            database: database.into(),
            operations: Vec::new(),
        }
    }

    /// Appends an operation.
    pub fn then(mut self, operation: Operation) -> Transaction {
        self.operations.push(operation);
        self
    }

    pub(crate) fn to_params(&self) -> Vec<Value> {
        let database = Value::String(self.database.clone());
        let operations = self.operations.iter().map(Operation::to_json);
        std::iter::once(database).chain(operations).collect()
    }
}

impl Operation {
    /// Inserts a row with these columns.
    pub fn insert<C: Into<String>>(
        table: &str,
        row: impl IntoIterator<Item = (C, Datum)>,
    ) -> Operation {
        Operation::Insert {
            table: table.into(),
            row: to_row(row),
            uuid_name: None,
        }
    }

    /// Inserts a row that other operations refer to as [`crate::Atom::NamedUuid`].
    pub fn insert_named<C: Into<String>>(
        name: &str,
        table: &str,
        row: impl IntoIterator<Item = (C, Datum)>,
    ) -> Operation {
        Operation::Insert {
            table: table.into(),
            row: to_row(row),
            uuid_name: Some(name.into()),
        }
    }

    /// Writes `row` into all rows that meet `conditions`.
    pub fn update<C: Into<String>>(
        table: &str,
        conditions: Vec<Condition>,
        row: impl IntoIterator<Item = (C, Datum)>,
    ) -> Operation {
        Operation::Update {
            table: table.into(),
            conditions,
            row: to_row(row),
        }
    }

    /// Reads every column of the rows that meet `conditions`.
    pub fn select(table: &str, conditions: Vec<Condition>) -> Operation {
        Operation::Select {
            table: table.into(),
            conditions,
            columns: None,
        }
    }

    /// Applies `mutations` to the rows that meet `conditions`.
    pub fn mutate(table: &str, conditions: Vec<Condition>, mutations: Vec<Mutation>) -> Operation {
        Operation::Mutate {
            table: table.into(),
            conditions,
            mutations,
        }
    }

    /// Removes the rows that meet `conditions`.
    pub fn delete(table: &str, conditions: Vec<Condition>) -> Operation {
        Operation::Delete {
            table: table.into(),
            conditions,
        }
    }

    /// Returns the operation in the notation of section 5.2.
    pub fn to_json(&self) -> Value {
        match self {
            Operation::Insert {
                table,
                row,
                uuid_name,
            } => {
                let mut op = json!({"op": "insert", "table": table, "row": row_to_json(row)});
                if let Some(name) = uuid_name {
                    op["uuid-name"] = json!(name);
                }
                op
            }
            Operation::Select {
                table,
                conditions,
                columns,
            } => {
                let mut op = json!({"op": "select", "table": table, "where": to_where(conditions)});
                if let Some(columns) = columns {
                    op["columns"] = json!(columns);
                }
                op
            }
            Operation::Update {
                table,
                conditions,
                row,
            } => {
                let row = row_to_json(row);
                json!({"op": "update", "table": table, "where": to_where(conditions), "row": row})
            }
            Operation::Mutate {
                table,
                conditions,
                mutations,
            } => {
                let mutations: Vec<Value> = mutations.iter().map(Mutation::to_json).collect();
                json!({
                    "op": "mutate", "table": table, "where": to_where(conditions),
                    "mutations": mutations,
                })
            }
            Operation::Delete { table, conditions } => {
                json!({"op": "delete", "table": table, "where": to_where(conditions)})
            }
            Operation::Wait {
                table,
                conditions,
                columns,
                until_equal,
                rows,
                timeout_ms,
            } => {
                let rows: Vec<Value> = rows.iter().map(row_to_json).collect();
                json!({
                    "op": "wait", "table": table, "where": to_where(conditions),
                    "columns": columns, "until": if *until_equal { "==" } else { "!=" },
                    "rows": rows, "timeout": timeout_ms,
                })
            }
            Operation::Commit { durable } => json!({"op": "commit", "durable": durable}),
            Operation::Abort => json!({"op": "abort"}),
            Operation::Comment(comment) => json!({"op": "comment", "comment": comment}),
            Operation::Assert { lock } => json!({"op": "assert", "lock": lock}),
        }
    }
}

impl Condition {
    /// Makes the condition `column function value`.
    pub fn new(column: &str, function: Function, value: impl Into<Datum>) -> Condition {
        Condition {
            column: column.into(),
            function,
            value: value.into(),
        }
    }

    /// Makes the condition `column == value`.
    pub fn equal(column: &str, value: impl Into<Datum>) -> Condition {
        Condition::new(column, Function::Equal, value)
    }

    /// Returns the condition in the notation of section 5.1: an array of three.
    pub fn to_json(&self) -> Value {
        let function = match self.function {
            Function::Less => "<",
            Function::LessOrEqual => "<=",
            Function::Equal => "==",
            Function::NotEqual => "!=",
            Function::Greater => ">",
            Function::GreaterOrEqual => ">=",
            Function::Includes => "includes",
            Function::Excludes => "excludes",
        };
        json!([self.column, function, self.value.to_json()])
    }
}

impl Mutation {
    /// Makes the mutation `column mutator value`.
    pub fn new(column: &str, mutator: Mutator, value: impl Into<Datum>) -> Mutation {
        Mutation {
            column: column.into(),
            mutator,
            value: value.into(),
        }
    }

    /// Returns the mutation in the notation of section 5.1: an array of three.
    pub fn to_json(&self) -> Value {
        let mutator = match self.mutator {
            Mutator::Add => "+=",
            Mutator::Subtract => "-=",
            Mutator::Multiply => "*=",
            Mutator::Divide => "/=",
            Mutator::Modulo => "%=",
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
        };
        json!([self.column, mutator, self.value.to_json()])
    }
}

/// Reads the answer to `transact` for as many operations as were sent.
///
/// A failed operation is followed by nulls for the operations that were not tried. When all succeed
/// and the commit fails, the error is one more element (section 4.1.3).
pub fn parse_results(
    result: &Value,
    operation_count: usize,
) -> Result<Vec<OpResult>, TransactError> {
    let elements = result.as_array().ok_or(TransactError::Malformed)?;
    for (index, element) in elements.iter().enumerate() {
        if let Some(error) = element.get("error").and_then(Value::as_str) {
            let details = element.get("details").and_then(Value::as_str);
            return Err(TransactError::Failed {
                index,
                error: error.into(),
                details: details.unwrap_or_default().into(),
            });
        }
    }
    if elements.len() != operation_count {
        return Err(TransactError::Malformed);
    }
    elements.iter().map(parse_result).collect()
}

fn parse_result(element: &Value) -> Result<OpResult, TransactError> {
    let members = element.as_object().ok_or(TransactError::Malformed)?;
    if let Some(uuid) = members.get("uuid") {
        let uuid = Datum::from_json(uuid).ok().and_then(|d| d.as_uuid());
        return uuid.map(OpResult::Inserted).ok_or(TransactError::Malformed);
    }
    if let Some(count) = members.get("count") {
        return count
            .as_u64()
            .map(OpResult::Count)
            .ok_or(TransactError::Malformed);
    }
    if let Some(rows) = members.get("rows") {
        let rows = rows.as_array().ok_or(TransactError::Malformed)?;
        let rows = rows.iter().map(row_from_json).collect::<Option<_>>();
        return rows.map(OpResult::Rows).ok_or(TransactError::Malformed);
    }
    Ok(OpResult::Done)
}

fn row_from_json(json: &Value) -> Option<Row> {
    json.as_object()?
        .iter()
        .map(|(column, value)| Some((column.clone(), Datum::from_json(value).ok()?)))
        .collect()
}

fn row_to_json(row: &Row) -> Value {
    let members: Map<String, Value> = row
        .iter()
        .map(|(column, datum)| (column.clone(), datum.to_json()))
        .collect();
    Value::Object(members)
}

fn to_where(conditions: &[Condition]) -> Value {
    conditions.iter().map(Condition::to_json).collect()
}

fn to_row<C: Into<String>>(row: impl IntoIterator<Item = (C, Datum)>) -> Row {
    let row: BTreeMap<String, Datum> = row.into_iter().map(|(c, d)| (c.into(), d)).collect();
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_written_as_section_5_2_says() {
        let here = || vec![Condition::equal("name", "br0")];
        for (operation, expected) in [
            (
                Operation::insert_named("b", "Bridge", [("name", Datum::from("br0"))]),
                json!({
                    "op": "insert", "table": "Bridge", "row": {"name": "br0"}, "uuid-name": "b"
                }),
            ),
            (
                Operation::select("Bridge", here()),
                json!({"op": "select", "table": "Bridge", "where": [["name", "==", "br0"]]}),
            ),
            (
                Operation::update("Bridge", here(), [("ports", Datum::empty())]),
                json!({"op": "update", "table": "Bridge", "where": [["name", "==", "br0"]],
                    "row": {"ports": ["set", []]}}),
            ),
            (
                Operation::mutate("T", vec![], vec![Mutation::new("n", Mutator::Add, 1)]),
                json!({"op": "mutate", "table": "T", "where": [], "mutations": [["n", "+=", 1]]}),
            ),
            (
                Operation::delete("T", vec![Condition::new("n", Function::Less, 2.5)]),
                json!({"op": "delete", "table": "T", "where": [["n", "<", 2.5]]}),
            ),
            (
                Operation::Wait {
                    table: "T".into(),
                    conditions: vec![],
                    columns: vec!["n".into()],
                    until_equal: true,
                    rows: vec![to_row([("n", Datum::from(1))])],
                    timeout_ms: 10,
                },
                json!({"op": "wait", "table": "T", "where": [], "columns": ["n"], "until": "==",
                    "rows": [{"n": 1}], "timeout": 10}),
            ),
            (
                Operation::Commit { durable: true },
                json!({"op": "commit", "durable": true}),
            ),
            (Operation::Abort, json!({"op": "abort"})),
            (
                Operation::Comment("why".into()),
                json!({"op": "comment", "comment": "why"}),
            ),
            (
                Operation::Assert { lock: "l".into() },
                json!({"op": "assert", "lock": "l"}),
            ),
        ] {
            assert_eq!(operation.to_json(), expected);
        }
    }

    #[test]
    fn a_failed_transaction_says_which_operation_and_why() {
        let failed = |index, error: &str, details: &str| {
            Err(TransactError::Failed {
                index,
                error: error.into(),
                details: details.into(),
            })
        };
        let answer = json!([{}, {"error": "timed out", "details": "no"}, null]);
        assert_eq!(parse_results(&answer, 3), failed(1, "timed out", "no"));
        let answer = json!([{"count": 1}, {"error": "constraint violation"}]);
        assert_eq!(
            parse_results(&answer, 1),
            failed(1, "constraint violation", "")
        );
        for bad in [
            json!({}),
            json!([{}, {}]),
            json!([null]),
            json!([{"uuid": 1}]),
        ] {
            assert_eq!(
                parse_results(&bad, 1),
                Err(TransactError::Malformed),
                "{bad}"
            );
        }
        assert_eq!(
            parse_results(&json!([{"count": 2}]), 1),
            Ok(vec![OpResult::Count(2)])
        );
    }
}
