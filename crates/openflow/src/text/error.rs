//! Mistakes in a text, each in one line that says what to write instead.

use std::fmt;

/// Longest piece of the text that an error quotes, in characters.
const FOUND_LEN_MAX: usize = 60;

/// First mistake in the text of a flow, group, meter or message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextError {
    /// Column in bytes from 1, line breaks included.
    pub column: usize,
    /// Text found there, at most 60 characters; empty at the end of the text.
    pub found: String,
    /// Text that completes "write …".
    pub wanted: String,
}

impl TextError {
    pub(super) fn new(at: usize, found: &str, wanted: impl Into<String>) -> TextError {
        let mut shown: String = found.chars().take(FOUND_LEN_MAX).collect();
        if shown.len() < found.len() {
            shown.push('…');
        }
        TextError {
            column: at + 1,
            found: shown.replace(['\n', '\r'], " "),
            wanted: wanted.into(),
        }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextError {
            column,
            found,
            wanted,
        } = self;
        if found.is_empty() {
            return write!(f, "column {column}: the text ends, write {wanted}");
        }
        write!(f, "column {column}: '{found}' found, write {wanted}")
    }
}

impl std::error::Error for TextError {}
