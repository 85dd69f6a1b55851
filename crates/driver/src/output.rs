//! The next bytes that a connection writes: messages back to back, so that one call writes many.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use openflow::Frame;
use openflow::frame::HEADER_LEN;
use tokio::io::AsyncWrite;

use net::transport::Writer;

/// Answers of the session that may wait to be written.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Other messages that may wait, mostly of the edge.
const BULK_BYTES_MAX: usize = 256 << 10;
/// The waiting bytes above which nothing is taken from the outbox, which counts its messages.
const BULK_BYTES_HIGH: usize = 64 << 10;
/// A buffer that has grown above this is not kept for the next connection.
const LENT_BYTES_MAX: usize = 1 << 20;

/// One connection's output. It has no memory when empty: the thread lends it a buffer for one turn.
#[derive(Default)]
pub(super) struct Output {
    /// Answers of the session: written before anything else, from the next end of a message on.
    answers: BytesMut,
    /// Messages of the edge and the application, in their order.
    pub(super) bulk: BytesMut,
    /// Bytes at the head of `bulk` that end a message whose beginning is written.
    begun: usize,
    must_flush: bool,
    is_lent: bool,
}

impl Output {
    pub(super) fn answer(&mut self, frame: &Frame) {
        self.answers.extend_from_slice(frame.bytes());
    }

    /// Whether the output is full: nothing that would add to it is read until some is written.
    /// `waiting` bytes are not in the output yet and count as if they were.
    pub(super) fn is_full_with(&self, waiting: usize) -> bool {
        self.answers.len() > ANSWER_BYTES_MAX || self.bulk.len() + waiting > BULK_BYTES_MAX
    }

    /// Takes back the messages that begin at `keep` bytes or later.
    pub(super) fn split_off(&mut self, keep: usize) -> BytesMut {
        let mut at = self.begun;
        while at < keep
            && let Some(header) = self.bulk.get(at..at + HEADER_LEN)
        {
            let len = u16::from_be_bytes([header[2], header[3]]);
            at += usize::from(len).max(HEADER_LEN);
        }
        if at >= self.bulk.len() {
            return BytesMut::new();
        }
        // A copy: the rest may be in a buffer that is only lent.
        let later = BytesMut::from(&self.bulk[at..]);
        self.bulk.truncate(at);
        later
    }

    /// Whether more may be taken from the outbox.
    pub(super) fn has_room(&self) -> bool {
        self.bulk.len() < BULK_BYTES_HIGH
    }

    /// Whether the peer, or the transport's own buffer, has not taken everything.
    pub(super) fn is_waiting(&self) -> bool {
        !self.answers.is_empty() || !self.bulk.is_empty() || self.must_flush
    }

    /// Takes `buffer` for this turn, unless bytes wait in one of our own.
    pub(super) fn borrow(&mut self, buffer: &mut BytesMut) {
        if self.bulk.is_empty() {
            std::mem::swap(&mut self.bulk, buffer);
            self.is_lent = true;
        }
    }

    /// Gives the buffer back. Unwritten bytes stay in a buffer of our own.
    pub(super) fn give_back(&mut self, buffer: &mut BytesMut) {
        if self.is_lent {
            let kept = BytesMut::from(&self.bulk[..]);
            *buffer = std::mem::replace(&mut self.bulk, kept);
            buffer.clear();
            self.is_lent = false;
            if buffer.capacity() > LENT_BYTES_MAX {
                *buffer = BytesMut::new();
            }
        } else if self.bulk.is_empty() {
            self.bulk = BytesMut::new();
        }
        if self.answers.is_empty() {
            self.answers = BytesMut::new();
        }
    }

    /// Writes everything, with one call where that is possible; ready when everything is written.
    /// `written` counts the bytes written, also while it is not ready. Cancel-safe.
    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        writer: &mut Writer,
        written: &mut usize,
    ) -> Poll<io::Result<()>> {
        loop {
            let next = self.next();
            if next.is_empty() {
                break;
            }
            let count = ready!(Pin::new(&mut *writer).poll_write(context, next))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.must_flush = true;
            self.advance(count);
            *written += count;
        }
        if self.must_flush {
            ready!(Pin::new(writer).poll_flush(context))?;
            self.must_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn next(&self) -> &[u8] {
        if self.answers.is_empty() {
            &self.bulk
        } else if self.begun > 0 {
            &self.bulk[..self.begun]
        } else {
            &self.answers
        }
    }

    /// Removes the `count` bytes of [`Output::next`] that are written.
    fn advance(&mut self, count: usize) {
        if !self.answers.is_empty() && self.begun == 0 {
            self.answers.advance(count);
            return;
        }
        if count == self.bulk.len() {
            self.bulk.clear();
            self.begun = 0;
            return;
        }
        let mut end = self.begun;
        while end < count {
            let len = u16::from_be_bytes([self.bulk[end + 2], self.bulk[end + 3]]);
            end += usize::from(len).max(HEADER_LEN);
        }
        self.begun = end - count;
        self.bulk.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::{Message, Version, Xid, encode};
    use std::future::poll_fn;
    use tokio::io::AsyncReadExt;

    fn message(xid: u32, len: usize) -> Frame {
        let data = bytes::Bytes::from(vec![0; len - HEADER_LEN]);
        encode(Version::V13, Xid(xid), &Message::EchoRequest(data)).unwrap()
    }

    /// Answers arrive at every point while longer messages are written, a few bytes at a time.
    #[tokio::test]
    async fn an_answer_goes_before_what_waits_and_never_into_a_message() {
        for room in [1, 7, 8, 9, 64, 1000] {
            let (ours, mut theirs) = tokio::io::duplex(room);
            let mut writer: Writer = Box::new(ours);
            let mut output = Output::default();
            for xid in 0..20 {
                let len = 8 + xid as usize * 13;
                output.bulk.extend_from_slice(message(xid, len).bytes());
            }
            let mut received = BytesMut::new();
            let mut asked = 1000;
            let mut turns = 0;
            while output.is_waiting() {
                // Otherwise tokio considers the task's budget used up, and nothing is written.
                tokio::task::yield_now().await;
                let write = poll_fn(|context| {
                    let _ = output.poll_write(context, &mut writer, &mut 0);
                    Poll::Ready(())
                });
                write.await;
                turns += 1;
                if turns % 3 == 0 && asked < 1050 {
                    output.answer(&message(asked, 16));
                    asked += 1;
                }
                let mut some = vec![0; room];
                let count = theirs.read(&mut some).await.unwrap();
                received.extend_from_slice(&some[..count]);
            }
            drop(writer);
            let mut xids = Vec::new();
            while let Some(frame) = Frame::split_from(&mut received).unwrap() {
                xids.push(frame.xid().0);
            }
            assert!(received.is_empty(), "{} bytes of a message", received.len());
            let (answers, bulk): (Vec<u32>, Vec<u32>) = xids.iter().partition(|xid| **xid >= 1000);
            assert!(bulk.iter().copied().eq(0..20), "room {room}: {bulk:?}");
            assert!(answers.iter().copied().eq(1000..asked), "{answers:?}");
            let last = xids.iter().position(|xid| *xid == 19).unwrap();
            assert!(room == 1000 || last > 19, "none went before: {xids:?}");
        }
    }
}
