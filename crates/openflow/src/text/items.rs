//! `key=value`, `key:value`, `key(value)` and bare words, separated by commas or white space.
//!
//! Flow syntax has no other grammar: whoever reads the items gives the keys their meaning.

use winnow::combinator::{alt, opt, preceded};
use winnow::error::EmptyError;
use winnow::prelude::*;
use winnow::stream::LocatingSlice;
use winnow::stream::Location;
use winnow::token::{one_of, take, take_while};

use super::error::TextError;

type Input<'a> = LocatingSlice<&'a str>;

/// One item of a text and its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    pub key: &'a str,
    /// Bytes from the start of the whole text.
    pub at: usize,
    pub value: Option<&'a str>,
    pub value_at: usize,
}

impl<'a> Item<'a> {
    /// The error for a wrong or missing value of this item.
    pub fn wrong(&self, wanted: impl Into<String>) -> TextError {
        match self.value {
            Some(value) if !value.is_empty() => TextError::new(self.value_at, value, wanted),
            _ => TextError::new(self.at, self.key, wanted),
        }
    }

    pub fn unknown(&self, wanted: impl Into<String>) -> TextError {
        TextError::new(self.at, self.key, wanted)
    }

    pub fn value(&self) -> Result<&'a str, TextError> {
        let given = self.value.filter(|value| !value.is_empty());
        given.ok_or_else(|| self.wrong(format!("a value: {}=…", self.key)))
    }
}

/// Iterates over the items of `text`.
pub(super) struct Items<'a> {
    text: &'a str,
    at: usize,
    /// Where `text` starts in the whole.
    base: usize,
}

impl<'a> Items<'a> {
    pub fn new(text: &'a str, base: usize) -> Items<'a> {
        Items { text, at: 0, base }
    }

    pub fn next(&mut self) -> Result<Option<Item<'a>>, TextError> {
        let mut input = LocatingSlice::new(&self.text[self.at..]);
        let start = self.base + self.at;
        let outcome = item.parse_next(&mut input);
        let consumed = input.current_token_start();
        match outcome {
            Ok(found) => {
                self.at += consumed;
                Ok(found.map(|item| Item {
                    at: item.at + start,
                    value_at: item.value_at + start,
                    ..item
                }))
            }
            Err(EmptyError) => {
                let rest = &self.text[self.at..];
                let found = rest.trim_start_matches(is_separator);
                let at = start + rest.len() - found.len();
                Err(TextError::new(at, found, "key=value, with as many ) as ("))
            }
        }
    }

    /// Returns the text from `item`'s value on, and its position.
    pub fn rest_from(&self, item: &Item<'a>) -> (&'a str, usize) {
        (&self.text[item.value_at - self.base..], item.value_at)
    }

    pub fn remaining(&self) -> (&'a str, usize) {
        (&self.text[self.at..], self.base + self.at)
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, ',' | ' ' | '\t' | '\r' | '\n')
}

/// Reads the next item; `None` at the end of the text.
fn item<'a>(input: &mut Input<'a>) -> Result<Option<Item<'a>>, EmptyError> {
    take_while(0.., is_separator).parse_next(input)?;
    if input.is_empty() {
        return Ok(None);
    }
    let at = input.current_token_start();
    let key =
        take_while(1.., |c| !is_separator(c) && !matches!(c, ':' | '=' | '(')).parse_next(input)?;
    let after_key = input.current_token_start();
    let valued = alt((in_parentheses, preceded(one_of([':', '=']), balanced)));
    let value = opt(valued).parse_next(input)?;
    if input.chars().next().is_some_and(|c| !is_separator(c)) {
        return Err(EmptyError);
    }
    Ok(Some(Item {
        key,
        at,
        value,
        value_at: after_key + usize::from(value.is_some()),
    }))
}

/// Reads `(…)`, with balanced parentheses inside.
fn in_parentheses<'a>(input: &mut Input<'a>) -> Result<&'a str, EmptyError> {
    let text: &'a str = input.as_ref();
    if !text.starts_with('(') {
        return Err(EmptyError);
    }
    let end = closing(text).ok_or(EmptyError)?;
    bytes(input, end + 1).map(|whole| &whole[1..end])
}

/// Reads up to a separator outside parentheses.
fn balanced<'a>(input: &mut Input<'a>) -> Result<&'a str, EmptyError> {
    let text: &'a str = input.as_ref();
    let mut depth = 0usize;
    let mut end = text.len();
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or(EmptyError)?,
            c if depth == 0 && is_separator(c) => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(EmptyError);
    }
    bytes(input, end)
}

/// Reads the next `len` bytes, which end on a character boundary.
fn bytes<'a>(input: &mut Input<'a>, len: usize) -> Result<&'a str, EmptyError> {
    let text: &'a str = input.as_ref();
    let count = text[..len].chars().count();
    take(count).parse_next(input)
}

/// Returns the byte position of the parenthesis that closes the one at the start of `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<(String, Option<String>, usize)>, TextError> {
        let mut items = Items::new(text, 0);
        let mut found = Vec::new();
        while let Some(item) = items.next()? {
            found.push((item.key.into(), item.value.map(Into::into), item.at));
        }
        Ok(found)
    }

    #[test]
    fn keys_have_values_in_three_ways_or_none() {
        let found = all(" tcp, a=1,b:00:11->c write_actions(x(1),y)é,  z=(1,2)").unwrap_err();
        assert_eq!(
            found.column, 22,
            "no separator after a parenthesis: {found}"
        );
        let found = all("tcp, a=1,b:00:11->c write_actions(x(1),y),z=(1,2)").unwrap();
        let text: Vec<_> = found
            .iter()
            .map(|(key, value, _)| (key.as_str(), value.as_deref()))
            .collect();
        assert_eq!(
            text,
            [
                ("tcp", None),
                ("a", Some("1")),
                ("b", Some("00:11->c")),
                ("write_actions", Some("x(1),y")),
                ("z", Some("(1,2)")),
            ]
        );
        assert_eq!(found[1].2, 5);
    }

    #[test]
    fn parentheses_that_do_not_close_are_an_error() {
        for text in ["a(b", "a=(b", "a)b=)", "=1", "a=)"] {
            assert!(all(text).is_err(), "{text}");
        }
        assert_eq!(all("é=ü,").unwrap().len(), 1);
    }
}
