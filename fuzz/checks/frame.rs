//! A byte stream is cut into the same frames however it arrives, and no byte is lost.
//!
//! The first byte says how large the pieces are that the rest arrives in.

use bytes::BytesMut;
use openflow::{Frame, FrameError};

pub fn check(data: &[u8]) {
    let Some((piece_len, stream)) = data.split_first() else {
        return;
    };
    let piece_len = usize::from(*piece_len).max(1);
    let whole = frames(stream, stream.len().max(1));
    assert_eq!(whole, frames(stream, piece_len));

    let (read, error, left) = whole;
    let joined: Vec<u8> = read
        .iter()
        .flat_map(|frame| frame.bytes().to_vec())
        .collect();
    assert_eq!(joined.len() + left, stream.len());
    assert!(stream.starts_with(&joined));
    assert!(error.is_some() || left < 65_535);
    for frame in read {
        assert_eq!(Frame::new(frame.bytes().clone()), Ok(frame));
    }
}

/// The frames of `stream`, why it ended, and how many bytes are left.
fn frames(stream: &[u8], piece_len: usize) -> (Vec<Frame>, Option<FrameError>, usize) {
    let mut buf = BytesMut::new();
    let mut read = Vec::new();
    for (at, piece) in stream.chunks(piece_len).enumerate() {
        buf.extend_from_slice(piece);
        loop {
            match Frame::split_from(&mut buf) {
                Ok(Some(frame)) => read.push(frame),
                Ok(None) => break,
                Err(error) => {
                    let arrived = stream.len().min((at + 1) * piece_len);
                    let left = buf.len() + stream.len() - arrived;
                    return (read, Some(error), left);
                }
            }
        }
    }
    let left = buf.len();
    (read, None, left)
}
