//! Finds the JSON objects in a byte stream that has no delimiters (section 4: "the JSON text is
//! self-delimiting").
//!
//! The splitter understands only the JSON that it needs: nesting, strings and escapes. The parser
//! behind it checks whether the object is well formed. Each byte is looked at once, however the
//! stream was cut.

use bytes::{Buf, Bytes, BytesMut};

/// Bounds of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message. The default, 256 MiB, is far above the largest reply of a switch's
    /// database and far below what would take a machine down.
    pub message_bytes_max: usize,
    /// Nesting of arrays and objects. OVSDB messages need about ten levels. The JSON parser refuses
    /// more than 127, so a larger bound counts as 127.
    pub depth_max: u32,
    /// Bytes of memory that the parsed values of one message take, without its texts, as
    /// [`Splitter::parsed_bytes`] estimates them: `,[]` on the wire are three bytes, and 80 in
    /// memory. The default is 1 GiB.
    pub parsed_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes_max: 256 << 20,
            depth_max: 64,
            parsed_bytes_max: 1 << 30,
        }
    }
}

/// Memory that the parser takes for each element of an array.
const ELEMENT_BYTES: usize = 80;
/// Memory that the parser takes for each member of an object.
const MEMBER_BYTES: usize = 160;

/// Reason why a byte stream cannot be split further. The stream is lost: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A message starts with this byte, not with `{`.
    #[error("a message starts with byte {byte:#04x}, not with '{{'")]
    NotAnObject {
        /// The byte found instead of `{`.
        byte: u8,
    },
    /// A message is longer than [`Limits::message_bytes_max`].
    #[error("a message is longer than {bytes_max} bytes")]
    MessageTooLong {
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// Arrays and objects are nested deeper than [`Limits::depth_max`].
    #[error("a message is nested deeper than {depth_max}")]
    TooDeep {
        /// The limit.
        depth_max: u32,
    },
    /// A message has more values than [`Limits::parsed_bytes_max`] allows.
    #[error("the values of a message take more than {parsed_bytes_max} bytes")]
    TooManyValues {
        /// The limit, in bytes of memory.
        parsed_bytes_max: usize,
    },
}

/// Accumulates a stream and returns its messages, one JSON object each.
pub struct Splitter {
    limits: Limits,
    buf: BytesMut,
    /// `buf[..scanned]` belongs to the message that is arriving, and `place` describes its end.
    scanned: usize,
    depth: u32,
    /// One bit per open array or object, outermost highest: set for objects.
    objects: u128,
    parsed_bytes: usize,
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
    /// Makes a splitter for a new stream. `depth_max` above 127 counts as 127.
    pub fn new(limits: Limits) -> Splitter {
        Splitter {
            limits: limits.for_the_parser(),
            buf: BytesMut::new(),
            scanned: 0,
            depth: 0,
            objects: 0,
            parsed_bytes: 0,
            place: Place::Between,
            failed: None,
        }
    }

    /// Sets other limits, which apply to the arriving message too.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits.for_the_parser();
    }

    /// Appends bytes that arrived. Take the messages out before the next call: bytes not taken are
    /// not counted against the limits.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.buf.extend_from_slice(bytes);
        }
    }

    /// Takes the next whole message; `None` while it is still arriving. After an error, every call
    /// returns that error.
    pub fn poll_message(&mut self) -> Result<Option<Bytes>, SplitError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.scan().inspect_err(|&error| {
                self.failed = Some(error);
                self.buf = BytesMut::new();
            }),
        }
    }

    /// Number of buffered bytes of messages not yet taken.
    pub fn len_bytes(&self) -> usize {
        self.buf.len()
    }

    /// Estimates the memory that the arriving message's values take once parsed, in bytes.
    pub fn parsed_bytes(&self) -> usize {
        self.parsed_bytes
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
                    self.objects = self.objects << 1 | u128::from(byte == b'{');
                    self.count_value()?;
                }
                (_, b',') => self.count_value()?,
                // A closing bracket of the wrong kind counts too: the parser will refuse it.
                (_, b'}' | b']') => {
                    self.depth -= 1;
                    self.objects >>= 1;
                    if self.depth == 0 {
                        self.place = Place::Between;
                        self.parsed_bytes = 0;
                        let len = std::mem::take(&mut self.scanned);
                        return Ok(Some(self.buf.split_to(len).freeze()));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Counts another value of the innermost array or object.
    fn count_value(&mut self) -> Result<(), SplitError> {
        self.parsed_bytes += match self.objects & 1 {
            0 => ELEMENT_BYTES,
            _ => MEMBER_BYTES,
        };
        let parsed_bytes_max = self.limits.parsed_bytes_max;
        match self.parsed_bytes > parsed_bytes_max {
            true => Err(SplitError::TooManyValues { parsed_bytes_max }),
            false => Ok(()),
        }
    }

    fn too_long(&self) -> SplitError {
        SplitError::MessageTooLong {
            bytes_max: self.limits.message_bytes_max,
        }
    }
}

impl Limits {
    fn for_the_parser(self) -> Limits {
        Limits {
            depth_max: self.depth_max.min(DEPTH_MAX_OF_PARSER),
            ..self
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

    #[test]
    fn values_count_by_what_they_take_in_memory_and_not_by_their_bytes() {
        let limits = Limits {
            parsed_bytes_max: 1 << 20,
            ..Limits::default()
        };
        let error = Some(SplitError::TooManyValues {
            parsed_bytes_max: 1 << 20,
        });
        let message = |inner: &str, count: usize| {
            format!("{{\"a\":[0{}]}}", inner.repeat(count)).into_bytes()
        };
        // 20 MB of those became 1.5 GiB.
        assert_eq!(split(limits, &[&message(",[]", 100_000)]).1, error);
        assert_eq!(split(limits, &[&message(",{}", 100_000)]).1, error);
        assert_eq!(split(limits, &[&message(",0", 20_000)]).1, error);
        assert_eq!(split(limits, &[&message(",0", 10_000)]).0.len(), 1);
        // A text of the same length is one value.
        let text = format!("{{\"a\":\"{}\"}}", ",[".repeat(1 << 20));
        assert_eq!(split(limits, &[text.as_bytes()]).0.len(), 1);
        // Members of objects take more, and each message is counted for itself.
        let member = "{\"a\":{\"b\":0,\"c\":1}}".repeat(100_000);
        assert_eq!(split(limits, &[member.as_bytes()]).0.len(), 100_000);
    }
}
