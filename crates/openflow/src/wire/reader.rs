//! A cursor over one message that only moves forward and never leaves its part.
//!
//! A reader knows the structure that it reads and the OpenFlow error for missing bytes, so that a
//! decoder is a list of fields. A part that announces its own length gets its own reader
//! ([`Reader::part`]), bounded by the rest of the enclosing part.

use bytes::Bytes;

use crate::error::{DecodeError, ErrorKind};
use crate::frame::{Frame, HEADER_LEN};
use crate::types::{Version, Xid};

type Result<T> = std::result::Result<T, DecodeError>;

pub(super) struct Reader<'a> {
    message: &'a Bytes,
    at: usize,
    end: usize,
    /// The error when the bytes run out. `what` names the structure that is cut short.
    short: ErrorKind,
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Returns a reader of the body of `frame`; if the bytes run out, the error is BAD_LEN.
    pub fn body_of(frame: &'a Frame, what: &'static str) -> Reader<'a> {
        Reader {
            message: frame.bytes(),
            at: HEADER_LEN,
            end: frame.len(),
            short: ErrorKind::BAD_LEN,
            what,
        }
    }

    /// Whether `byte` is the version byte of the message.
    pub fn is_of_version(&self, byte: u8) -> bool {
        self.message[0] == byte
    }

    /// Transaction id of the message.
    pub fn xid(&self) -> Xid {
        match self.message[..HEADER_LEN].last_chunk() {
            Some(bytes) => Xid(u32::from_be_bytes(*bytes)),
            None => Xid(0),
        }
    }

    /// Number of bytes of the message up to here.
    pub fn len_so_far(&self) -> usize {
        self.at
    }

    /// Version of the message.
    pub fn version(&self) -> Option<Version> {
        Version::from_wire(self.message[0])
    }

    /// Whether the message is of `version` or a later one.
    pub fn is_since(&self, version: Version) -> bool {
        self.message[0] >= version.wire()
    }

    /// Returns a reader of the next `len` bytes; if they run out, the error is `short` in `what`.
    pub fn part(&mut self, len: usize, short: ErrorKind, what: &'static str) -> Result<Reader<'a>> {
        let at = self.at;
        if len > self.left() {
            return Err(DecodeError {
                kind: short,
                what,
                offset: at,
            });
        }
        self.at += len;
        Ok(Reader {
            message: self.message,
            at,
            end: at + len,
            short,
            what,
        })
    }

    /// Returns a reader of the rest, under another name.
    pub fn renamed(self, short: ErrorKind, what: &'static str) -> Reader<'a> {
        Reader {
            short,
            what,
            ..self
        }
    }

    /// Returns the 16-bit number `ahead` bytes from here, without moving, for a length field inside
    /// the part that it measures.
    pub fn peek_u16(&self, ahead: usize) -> Result<u16> {
        match self.message[self.at..self.end].get(ahead..ahead + 2) {
            Some(b) => Ok(u16::from_be_bytes([b[0], b[1]])),
            None => Err(self.error(self.short)),
        }
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.message[self.at..self.end].first_chunk::<N>() {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(self.error(self.short)),
        }
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a number of `len` bytes, at most 16.
    pub fn uint(&mut self, len: usize) -> Result<u128> {
        assert!(len <= 16, "no field is wider than 16 bytes");
        let bytes = self.bytes(len)?;
        Ok(bytes.iter().fold(0, |n, b| n << 8 | u128::from(*b)))
    }

    /// The next `len` bytes, sharing the message's buffer.
    pub fn bytes(&mut self, len: usize) -> Result<Bytes> {
        if len > self.left() {
            return Err(self.error(self.short));
        }
        let bytes = self.message.slice(self.at..self.at + len);
        self.at += len;
        Ok(bytes)
    }

    /// Everything that is left, sharing the message's buffer.
    pub fn rest(&mut self) -> Bytes {
        let bytes = self.message.slice(self.at..self.end);
        self.at = self.end;
        bytes
    }

    /// Reads a zero-terminated text in a field of `len` bytes, cut at the first zero.
    pub fn text(&mut self, len: usize) -> Result<Bytes> {
        let mut text = self.bytes(len)?;
        let end = text.iter().position(|b| *b == 0).unwrap_or(len);
        text.truncate(end);
        Ok(text)
    }

    /// Skips padding, whatever its value.
    pub fn skip(&mut self, len: usize) -> Result<()> {
        if len > self.left() {
            return Err(self.error(self.short));
        }
        self.at += len;
        Ok(())
    }

    /// Reads rows that begin with their length until the part is used up. A row that `row` cannot
    /// read goes to `unreadable`, with the error.
    pub fn rows<T, U>(
        &mut self,
        what: &'static str,
        row: impl Fn(&mut Self) -> Result<T>,
        unreadable: impl Fn(&mut Self, DecodeError) -> Result<U>,
    ) -> Result<(Vec<T>, Vec<U>)> {
        let (mut rows, mut others) = (Vec::new(), Vec::new());
        while !self.is_empty() {
            let len = usize::from(self.peek_u16(0)?);
            let at = self.at;
            let mut one = self.part(len, ErrorKind::BAD_LEN, what)?;
            match row(&mut one) {
                Ok(row) => rows.push(row),
                Err(error) => {
                    one.at = at;
                    others.push(unreadable(&mut one, error)?);
                }
            }
        }
        Ok((rows, others))
    }

    /// Reads entries until the part is used up. `entry` must move forward.
    pub fn list<T>(&mut self, mut entry: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut entries = Vec::new();
        while !self.is_empty() {
            let before = self.at;
            entries.push(entry(self)?);
            if self.at == before {
                return Err(self.error(self.short));
            }
        }
        Ok(entries)
    }

    /// Fails if any bytes are left.
    pub fn done(&self) -> Result<()> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(self.error(self.short))
        }
    }

    pub fn left(&self) -> usize {
        self.end - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// Returns the error `kind` at this position.
    pub fn error(&self, kind: ErrorKind) -> DecodeError {
        DecodeError {
            kind,
            what: self.what,
            offset: self.at,
        }
    }
}
