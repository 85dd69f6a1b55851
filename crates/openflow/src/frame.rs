//! A frame: one OpenFlow message as it is on the wire, with its header checked.
//!
//! Every OpenFlow version shares the 8-byte header `version, type, length, xid`, so framing needs
//! no knowledge of the message body. A frame is cheap to clone; it owns a share of the read buffer.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

use crate::kind::MessageKind;
use crate::types::{Version, Xid};
use crate::wire::onf_kind;

/// Bytes of the header that all versions share.
pub const HEADER_LEN: usize = 8;

/// The longest message that the 16-bit length field can announce.
pub const FRAME_LEN_MAX: usize = 65_535;

/// One message in its original bytes: at least a header, and exactly as long as the header states.
///
/// ```
/// use bytes::BytesMut;
/// use openflow::{Frame, MessageKind, Version};
///
/// // A whole HELLO of OpenFlow 1.3, and the start of another message.
/// let mut buf = BytesMut::from(&[4, 0, 0, 8, 0, 0, 0, 1, 4, 2][..]);
/// let frame = Frame::split_from(&mut buf)?.unwrap();
/// assert_eq!(frame.version(), Some(Version::V13));
/// assert_eq!(frame.kind(), MessageKind::Hello);
/// assert_eq!(Frame::split_from(&mut buf)?, None);
/// assert_eq!(buf.len(), 2);
/// # Ok::<(), openflow::FrameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    bytes: Bytes,
}

/// Reason why a byte stream is not OpenFlow. Close the connection: nothing marks the start of the
/// next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The header announces fewer bytes than the header itself has.
    #[error("a length of {len} in the header, below the {HEADER_LEN} of the header")]
    LengthBelowHeader {
        /// Length in the header.
        len: usize,
    },
    /// The bytes given are not one whole message.
    #[error("the header announces {announced} bytes, {given} are there")]
    LengthMismatch {
        /// Length in the header, or the length of a header if the bytes are shorter than one.
        announced: usize,
        /// Number of bytes given.
        given: usize,
    },
}

impl Frame {
    /// Takes the first whole message off the front of `buf`.
    ///
    /// Returns `None` while the message is still arriving, and leaves `buf` as it was.
    pub fn split_from(buf: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let Some(header) = buf.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if len < HEADER_LEN {
            return Err(FrameError::LengthBelowHeader { len });
        }
        if buf.len() < len {
            return Ok(None);
        }
        Ok(Some(Frame {
            bytes: buf.split_to(len).freeze(),
        }))
    }

    /// Takes `bytes` as one whole message.
    pub fn new(bytes: Bytes) -> Result<Frame, FrameError> {
        if bytes.len() < HEADER_LEN {
            return Err(FrameError::LengthMismatch {
                announced: HEADER_LEN,
                given: bytes.len(),
            });
        }
        let len = usize::from((&bytes[2..]).get_u16());
        if len < HEADER_LEN {
            return Err(FrameError::LengthBelowHeader { len });
        }
        if len != bytes.len() {
            return Err(FrameError::LengthMismatch {
                announced: len,
                given: bytes.len(),
            });
        }
        Ok(Frame { bytes })
    }

    /// Version byte. It need not be a version of OpenFlow.
    pub fn version_byte(&self) -> u8 {
        self.bytes[0]
    }

    /// Version of the message; `None` if the byte is not a version of OpenFlow.
    pub fn version(&self) -> Option<Version> {
        Version::from_wire(self.version_byte())
    }

    /// Type byte, whose meaning depends on the version.
    pub fn type_byte(&self) -> u8 {
        self.bytes[1]
    }

    /// Type of the message, from version and type byte.
    pub fn kind(&self) -> MessageKind {
        MessageKind::from_wire(self.version_byte(), self.type_byte())
    }

    /// Type that the message stands for: its own, except for an ONF extension of 1.3, which is an
    /// EXPERIMENTER message and stands for the 1.4 message with the same meaning.
    pub fn meaning(&self) -> MessageKind {
        onf_kind(&self.bytes).unwrap_or_else(|| self.kind())
    }

    /// Transaction id.
    pub fn xid(&self) -> Xid {
        Xid((&self.bytes[4..]).get_u32())
    }

    /// Copies the message with another transaction id, for relays that merge two connections.
    #[must_use]
    pub fn with_xid(&self, xid: Xid) -> Frame {
        let mut bytes = BytesMut::from(&self.bytes[..]);
        bytes[4..8].copy_from_slice(&xid.0.to_be_bytes());
        Frame {
            bytes: bytes.freeze(),
        }
    }

    /// The whole message, header included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Bytes after the header.
    pub fn body(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..]
    }

    #[expect(
        clippy::len_without_is_empty,
        reason = "a frame has a header, so it is never empty"
    )]
    /// Length in bytes, header included.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Frame({:?} xid={:#x} {} B)",
            self.kind(),
            self.xid().0,
            self.len()
        )
    }
}
