//! The bytes of a message under construction. Lengths are filled in when a part is closed.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::EncodeError;
use crate::frame::Frame;
use crate::types::{Version, Xid};

type Result<T> = std::result::Result<T, EncodeError>;

pub(super) struct Writer {
    version: Version,
    buf: BytesMut,
}

impl Writer {
    /// Starts a message whose header lacks only its length.
    pub fn new(version: Version, type_byte: u8, xid: Xid) -> Writer {
        let mut buf = BytesMut::with_capacity(64);
        buf.put_u8(version.wire());
        buf.put_u8(type_byte);
        buf.put_u16(0);
        buf.put_u32(xid.0);
        Writer { version, buf }
    }

    pub fn xid(&self) -> Xid {
        match self.buf.get(4..8).and_then(|bytes| bytes.first_chunk()) {
            Some(bytes) => Xid(u32::from_be_bytes(*bytes)),
            None => Xid(0),
        }
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the message is of `version` or a later one.
    pub fn is_since(&self, version: Version) -> bool {
        self.version >= version
    }

    pub fn finish(mut self, what: &'static str) -> Result<Frame> {
        self.close(0, 2, what)?;
        let frame = Frame::new(self.buf.freeze());
        Ok(frame.expect("the length has just been written"))
    }

    pub fn u8(&mut self, n: u8) {
        self.buf.put_u8(n);
    }

    pub fn u16(&mut self, n: u16) {
        self.buf.put_u16(n);
    }

    pub fn u32(&mut self, n: u32) {
        self.buf.put_u32(n);
    }

    pub fn u64(&mut self, n: u64) {
        self.buf.put_u64(n);
    }

    /// Writes the lowest `len` bytes of `n`.
    pub fn uint(&mut self, n: u128, len: usize) {
        self.buf.put_slice(&n.to_be_bytes()[16 - len..]);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.buf.put_slice(bytes);
    }

    /// Writes a text in a field of `len` bytes, padded with zeros.
    pub fn text(&mut self, text: &Bytes, len: usize, what: &'static str) -> Result<()> {
        let Some(padding) = len.checked_sub(text.len()) else {
            return Err(EncodeError::TooLong { what });
        };
        self.bytes(text);
        self.zeros(padding);
        Ok(())
    }

    pub fn zeros(&mut self, len: usize) {
        self.buf.put_bytes(0, len);
    }

    /// Writes zeros until the part that began at `start` has a multiple of 8 bytes.
    pub fn align8(&mut self, start: usize) {
        let len = self.buf.len() - start;
        self.zeros(len.next_multiple_of(8) - len);
    }

    /// Returns the position of the next byte: the start of a part to [`close`](Writer::close)
    /// later.
    pub fn at(&self) -> usize {
        self.buf.len()
    }

    /// Ends the part that began at `start`: its length goes `field` bytes after its start.
    pub fn close(&mut self, start: usize, field: usize, what: &'static str) -> Result<()> {
        self.set_len(start + field, start, what)
    }

    /// Writes the number of bytes since `start` into the 16 bits at `at`, which were written
    /// before.
    pub fn set_len(&mut self, at: usize, start: usize, what: &'static str) -> Result<()> {
        let Ok(len) = u16::try_from(self.buf.len() - start) else {
            return Err(EncodeError::TooLong { what });
        };
        self.buf[at..at + 2].copy_from_slice(&len.to_be_bytes());
        Ok(())
    }

    /// Fails if `what` is present: this version cannot express it.
    pub fn refuse(&self, is_there: bool, what: &'static str) -> Result<()> {
        if is_there {
            self.unsupported(what)
        } else {
            Ok(())
        }
    }

    /// Fails, because this version cannot express `what`.
    pub fn unsupported<T>(&self, what: &'static str) -> Result<T> {
        let version = self.version;
        Err(EncodeError::Unsupported { version, what })
    }
}
