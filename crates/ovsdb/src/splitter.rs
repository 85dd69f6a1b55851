//! Finds the JSON objects in a byte stream that has no delimiters (section 4: "the JSON text is
//! self-delimiting").
//!
//! Only as much JSON is understood as the job needs: nesting, strings and escapes. Whether the
//! object is well formed is for the parser behind. Each byte is looked at once, however the stream
//! was cut.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// What a peer may make us hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message. The default, 256 MiB, is far above the largest reply of a switch's
    /// database and far below what would take a machine down.
    pub message_bytes_max: usize,
    /// Nesting of arrays and objects. OVSDB messages need about ten; above 127 the JSON parser
    /// refuses, so a larger bound counts as 127.
    pub depth_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes_max: 256 << 20,
            depth_max: 64,
        }
    }
}

/// Why a byte stream cannot be split further. The stream is lost: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitError {
    /// A message starts with this byte, not with `{`.
    NotAnObject {
        byte: u8,
    },
    MessageTooLong {
        bytes_max: usize,
    },
    TooDeep {
        depth_max: u32,
    },
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SplitError::NotAnObject { byte } => {
                write!(f, "a message starts with byte {byte:#04x}, not with '{{'")
            }
            SplitError::MessageTooLong { bytes_max } => {
                write!(f, "a message is longer than {bytes_max} bytes")
            }
            SplitError::TooDeep { depth_max } => {
                write!(f, "a message is nested deeper than {depth_max}")
            }
        }
    }
}

impl std::error::Error for SplitError {}

/// Accumulates a stream and gives back its messages, one JSON object each.
pub struct Splitter {
    limits: Limits,
    buf: BytesMut,
    /// `buf[..scanned]` belongs to the message that is arriving, and `place` describes its end.
    scanned: usize,
    depth: u32,
    place: Place,
    failed: Option<SplitError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Between,
    Structure,
    Text,
    Escape,
}

impl Splitter {
    pub fn new(limits: Limits) -> Splitter {
        Splitter {
            limits: Limits {
                depth_max: limits.depth_max.min(DEPTH_MAX_OF_PARSER),
                ..limits
            },
            buf: BytesMut::new(),
            scanned: 0,
            depth: 0,
            place: Place::Between,
            failed: None,
        }
    }

    /// Appends what arrived. Take the messages out before the next call: what is not taken is
    /// not counted against the limits.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.buf.extend_from_slice(bytes);
        }
    }

    /// The next whole message; `None` while it is still arriving. An error stays.
    pub fn poll_message(&mut self) -> Result<Option<Bytes>, SplitError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.scan().inspect_err(|&error| {
                self.failed = Some(error);
                self.buf = BytesMut::new();
            }),
        }
    }

    /// Bytes held of messages not yet taken.
    pub fn len_bytes(&self) -> usize {
        self.buf.len()
    }

    fn scan(&mut self) -> Result<Option<Bytes>, SplitError> {
        if self.place == Place::Between {
            let blank = self.buf.iter().take_while(|b| is_blank(**b)).count();
            self.buf.advance(blank);
            match self.buf.first() {
                None => return Ok(None),
                Some(b'{') => self.place = Place::Structure,
                Some(&byte) => return Err(SplitError::NotAnObject { byte }),
            }
        }
        while let Some(&byte) = self.buf.get(self.scanned) {
            if self.scanned == self.limits.message_bytes_max {
                return Err(self.too_long());
            }
            self.scanned += 1;
            match (self.place, byte) {
                (Place::Escape, _) => self.place = Place::Text,
                (Place::Text, b'\\') => self.place = Place::Escape,
                (Place::Text, b'"') => self.place = Place::Structure,
                (Place::Text, _) => {}
                (_, b'"') => self.place = Place::Text,
                (_, b'{' | b'[') => {
                    self.depth += 1;
                    if self.depth > self.limits.depth_max {
                        return Err(SplitError::TooDeep {
                            depth_max: self.limits.depth_max,
                        });
                    }
                }
                // A closing bracket of the wrong kind counts too: the parser will refuse it.
                (_, b'}' | b']') => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.place = Place::Between;
                        let len = std::mem::take(&mut self.scanned);
                        return Ok(Some(self.buf.split_to(len).freeze()));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn too_long(&self) -> SplitError {
        SplitError::MessageTooLong {
            bytes_max: self.limits.message_bytes_max,
        }
    }
}

/// serde_json stops at 128 nested values.
const DEPTH_MAX_OF_PARSER: u32 = 127;

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(limits: Limits, chunks: &[&[u8]]) -> (Vec<Bytes>, Option<SplitError>) {
        let mut splitter = Splitter::new(limits);
        let mut messages = Vec::new();
        for chunk in chunks {
            splitter.handle_bytes(chunk);
            loop {
                match splitter.poll_message() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(error) => return (messages, Some(error)),
                }
            }
        }
        (messages, None)
    }

    #[test]
    fn brackets_and_quotes_inside_strings_do_not_count() {
        let stream = br#"{"a":"}\"]{\\"}{"b":[1,{"c":"\\\""}]} {"d":{}}"#;
        let (messages, error) = split(Limits::default(), &[stream]);
        assert_eq!(error, None);
        assert_eq!(
            messages,
            [
                &br#"{"a":"}\"]{\\"}"#[..],
                br#"{"b":[1,{"c":"\\\""}]}"#,
                br#"{"d":{}}"#
            ]
        );
    }

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_messages() {
        let stream = br#"{"a":"}\"]{\\"}{"b":[1,{"c":"\\\""}]} {"d":{}}"#;
        let (whole, _) = split(Limits::default(), &[stream]);
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let chunks = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(
                    split(Limits::default(), &chunks).0,
                    whole,
                    "{first} {second}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_an_object_is_refused_and_stays_refused() {
        for bad in [&b"[1]"[..], b"null", b"\"x\"", b"}", b"\0", b"\x16\x03\x01"] {
            let mut splitter = Splitter::new(Limits::default());
            splitter.handle_bytes(bad);
            let error = SplitError::NotAnObject { byte: bad[0] };
            assert_eq!(splitter.poll_message(), Err(error));
            splitter.handle_bytes(b"{}");
            assert_eq!(splitter.poll_message(), Err(error));
            assert_eq!(splitter.len_bytes(), 0);
        }
    }

    #[test]
    fn the_longest_message_passes_and_one_byte_more_does_not() {
        let limits = Limits {
            message_bytes_max: 10,
            ..Limits::default()
        };
        assert_eq!(split(limits, &[b"{\"a\":1234}"]).0.len(), 1);
        let error = Some(SplitError::MessageTooLong { bytes_max: 10 });
        assert_eq!(split(limits, &[b"{\"a\":12345}"]).1, error);
    }

    #[test]
    fn the_deepest_message_passes_and_one_level_more_does_not() {
        let limits = Limits {
            depth_max: 3,
            ..Limits::default()
        };
        assert_eq!(split(limits, &[br#"{"a":[[1]]}"#]).0.len(), 1);
        let error = Some(SplitError::TooDeep { depth_max: 3 });
        assert_eq!(split(limits, &[br#"{"a":[[[1]]]}"#]).1, error);
    }
}
