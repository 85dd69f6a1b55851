//! The two tasks of a local socket.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::BytesMut;
use relay::ChannelId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::end::{End, Local};
use net::transport::{Reader, Ticket, Writer};

/// The smallest read. Messages that were read together share a buffer, which is kept until the
/// other end has delivered them all. With a buffer of the greatest size for each short message,
/// buffers would take most of the memory of a relay with many switches.
const READ_BYTES_MIN: usize = 2 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;
const WRITE_BYTES: usize = 64 * 1024;

/// Closes the channel if its task panics: a panic ends one channel, and both ends learn of it.
struct Closing {
    end: Arc<End>,
    id: ChannelId,
}

impl Drop for Closing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic here would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let reason = "a fault of auster".to_owned();
                self.end.with(|session| session.reset(self.id, reason));
            }));
        }
    }
}

/// Reads from the socket into the session, no faster than its window allows.
pub(super) async fn read(
    end: Arc<End>,
    id: ChannelId,
    local: Arc<Local>,
    mut reader: Reader,
    _ticket: Option<Ticket>,
) {
    let _closing = Closing {
        end: end.clone(),
        id,
    };
    let mut buf = BytesMut::new();
    let mut read_bytes = READ_BYTES_MIN;
    loop {
        if buf.capacity() - buf.len() < read_bytes / 2 {
            buf.reserve(read_bytes);
        }
        match reader.read_buf(&mut buf).await {
            Ok(0) => {
                let now = end.now();
                return end.with(|session| session.handle_local_end(now, id));
            }
            // Room for twice as much the next time.
            Ok(n) => read_bytes = (2 * n).clamp(READ_BYTES_MIN, READ_BYTES_MAX),
            Err(error) => return end.with(|session| session.reset(id, error.to_string())),
        }
        loop {
            let now = end.now();
            let (is_open, has_room) = end.with(|session| {
                let is_open = session.handle_local(now, id, &mut buf);
                (is_open, session.has_room(id))
            });
            if !is_open {
                return;
            }
            if has_room {
                break;
            }
            local.room.notified().await;
        }
    }
}

/// Writes from the session to the socket. Written bytes are reported, and make room at the other
/// end.
pub(super) async fn write(end: Arc<End>, id: ChannelId, local: Arc<Local>, mut writer: Writer) {
    let _closing = Closing {
        end: end.clone(),
        id,
    };
    let mut batch = BytesMut::new();
    loop {
        let Some(write) = end.with(|session| session.poll_local(end.now(), id, WRITE_BYTES)) else {
            return;
        };
        if write.chunks.is_empty() && !write.end {
            local.deliver.notified().await;
            continue;
        }
        batch.clear();
        write
            .chunks
            .iter()
            .for_each(|chunk| batch.extend_from_slice(chunk));
        let written = async {
            writer.write_all(&batch).await?;
            if write.end {
                writer.shutdown().await
            } else {
                writer.flush().await
            }
        };
        if let Err(error) = written.await {
            return end.with(|session| session.reset(id, error.to_string()));
        }
        let now = end.now();
        end.with(|session| session.handle_written(now, id));
    }
}
