//! The query of an address, after the question mark: read field by field, with all mistakes in one
//! answer.

use std::fmt;

use axum::http::StatusCode;

use super::problem::{FieldError, Problem};

pub struct Query {
    pairs: Vec<(String, String)>,
    wrong: Vec<FieldError>,
}

impl Query {
    pub fn of(text: Option<&str>) -> Query {
        let pairs = text.unwrap_or_default().split('&');
        let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Query {
            pairs: pairs.collect(),
            wrong: Vec::new(),
        }
    }

    /// The value of a field, if it is present and valid. The last value counts.
    pub fn read<T, E: fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let found = self.pairs.iter().rev().find(|(field, _)| field == name);
        let (_, text) = found?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.wrong.push(error(format!("{name}: {problem}")));
                None
            }
        }
    }

    /// Returns all mistakes, including fields with other names.
    pub fn only(mut self, known: &[&str]) -> Result<(), Problem> {
        for (name, _) in &self.pairs {
            if !known.contains(&name.as_str()) {
                let all = known.join(", ");
                let problem = error(format!("{name}: is not known here; known: {all}"));
                self.wrong.push(problem);
            }
        }
        if self.wrong.is_empty() {
            return Ok(());
        }
        let details: Vec<&str> = self.wrong.iter().map(|w| w.detail.as_str()).collect();
        let mut problem = Problem::new(StatusCode::BAD_REQUEST, details.join("; "));
        problem.errors = self.wrong;
        Err(problem)
    }
}

/// An error without a pointer: a query field has no place in a body.
fn error(detail: String) -> FieldError {
    FieldError {
        pointer: String::new(),
        detail,
    }
}

/// Reads a flag, set by `true`, `1` or nothing at all after the name.
pub fn flag(text: &str) -> Result<bool, String> {
    match text {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}

/// Decodes `%XX` and `+`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16).map(|d| d as u8);
        let escaped = match (first, behind) {
            (b'%', [a, b, ..]) => hex(*a).zip(hex(*b)).map(|(a, b)| a << 4 | b),
            _ => None,
        };
        rest = match escaped {
            Some(_) => &behind[2..],
            None => behind,
        };
        bytes.push(escaped.unwrap_or(if *first == b'+' { b' ' } else { *first }));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_bytes_are_read_and_the_rest_stays() {
        for (text, expected) in [
            ("10.0.0.0%2F24", "10.0.0.0/24"),
            ("02%3a00", "02:00"),
            ("a+b", "a b"),
            ("%", "%"),
            ("%2", "%2"),
            ("%zz%41", "%zzA"),
            ("%ff", "\u{fffd}"),
        ] {
            assert_eq!(decoded(text), expected);
        }
    }

    #[test]
    fn the_last_of_a_name_holds_and_others_are_refused() {
        let mut query = Query::of(Some("a=1&a=2&b=x"));
        assert_eq!(query.read("a", str::parse::<u8>), Some(2));
        assert_eq!(query.read("b", str::parse::<u8>), None);
        let problem = query.only(&["a", "b"]).unwrap_err();
        assert_eq!((problem.status, problem.errors.len()), (400, 1));
    }
}
