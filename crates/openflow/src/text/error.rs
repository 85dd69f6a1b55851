//! Mistakes in a text, each in one line that says what to write instead.

/// Longest piece of the text that an error quotes, in characters.
const FOUND_LEN_MAX: usize = 60;

/// First mistake in the text of a flow, group, meter or message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("column {column}: the text ends, write {wanted}")]
pub struct TextError {
    /// Column in bytes from 1, line breaks included.
    pub column: usize,
    /// Text found there, at most 60 characters; empty at the end of the text.
    pub found: String,
    /// Completes "write …".
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
