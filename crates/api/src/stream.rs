//! Answers without an end: a writer, the reader's connection, and the bound between them.
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | streams | [`STREAMS_MAX`] | 503 |
//! | bytes that wait for a reader here | two chunks of [`CHUNK_MAX`] | the writer waits |
//! | a reader that takes nothing | [`STUCK_MAX`], or its writer's bound | it is cut |
//! | a reader that was cut and does not read on | [`LAST_MAX`] | its connection is closed |

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Extensions, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use super::Api;
use super::access::Access;
use super::problem::Problem;
use super::server::{Connected, Held};

pub const STREAMS_MAX: usize = 32;
pub const CHUNK_MAX: usize = 64 << 10;
pub const HEARTBEAT: Duration = Duration::from_secs(15);
const STUCK_MAX: Duration = Duration::from_secs(60);
/// The time that a reader has to read the end after it was cut off.
const LAST_MAX: Duration = Duration::from_secs(5);
/// The interval between two checks of a reader that reads nothing.
const LOOK: Duration = Duration::from_millis(100);

/// The form of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Server-sent events.
    Sse,
    /// One JSON document a line.
    Ndjson,
}

impl Form {
    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Form::Sse => "text/event-stream",
            Form::Ndjson => "application/x-ndjson",
        })
    }

    /// Adds a document, with its number if it has one.
    pub fn write(self, to: &mut String, seq: Option<u64>, document: &str) {
        match self {
            Form::Sse => {
                if let Some(seq) = seq {
                    to.push_str(&format!("id: {seq}\n"));
                }
                to.push_str("data: ");
                to.push_str(document);
                to.push_str("\n\n");
            }
            Form::Ndjson => {
                to.push_str(document);
                to.push('\n');
            }
        }
    }

    /// The bytes that show the reader that the stream is alive.
    pub fn heartbeat(self) -> &'static str {
        match self {
            Form::Sse => ":\n\n",
            Form::Ndjson => "\n",
        }
    }
}

/// The reason why nothing more can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The reader has disconnected, or must authenticate again.
    Gone,
    /// The reader does not read, or not fast enough.
    Slow,
}

/// The writing end of a stream.
pub struct Writer {
    chunks: mpsc::Sender<Bytes>,
    /// The last bytes, for a reader that was cut off.
    last: Arc<OnceLock<Bytes>>,
    /// Ends with the answer.
    gone: oneshot::Receiver<Infallible>,
    connected: Option<Connected>,
    /// Changes when users may have lost their rights: then the reader must connect and authenticate
    /// again.
    users: Option<watch::Receiver<u64>>,
}

/// The end of a stream from which the connection reads.
struct Chunks {
    chunks: mpsc::Receiver<Bytes>,
    last: Arc<OnceLock<Bytes>>,
    is_over: bool,
    _gone: oneshot::Sender<Infallible>,
    _place: OwnedSemaphorePermit,
    _held: Option<Held>,
}

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.chunks.poll_recv(context).map(|chunk| {
            self.is_over = chunk.is_none();
            let chunk = chunk.or_else(|| self.last.get().cloned());
            chunk.map(|chunk| Ok(Frame::data(chunk)))
        })
    }
}

impl Api {
    /// Opens a stream as the answer to a request with these extensions.
    pub fn open_stream(
        &self,
        extensions: &Extensions,
        form: Form,
    ) -> Result<(Writer, Response), Problem> {
        let place = self.reads.streams.clone().try_acquire_owned();
        let place = place.map_err(|_| {
            let detail = format!("{STREAMS_MAX} streams are read already; try again later");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })?;
        let connected = extensions.get::<Connected>().cloned();
        let (chunks, receiver) = mpsc::channel(1);
        let (alive, gone) = oneshot::channel();
        let last = Arc::new(OnceLock::new());
        let body = Chunks {
            chunks: receiver,
            last: last.clone(),
            is_over: false,
            _gone: alive,
            _place: place,
            _held: connected.as_ref().map(Connected::hold),
        };
        let headers = [
            (header::CONTENT_TYPE, form.content_type()),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        let writer = Writer {
            chunks,
            last,
            gone,
            connected,
            users: extensions.get::<Arc<Access>>().map(|access| access.users()),
        };
        Ok((writer, (headers, Body::new(body)).into_response()))
    }
}

impl Writer {
    /// Hands a chunk over when the reader has taken the previous one. `is_behind` reports that the
    /// reader is too slow to wait for any longer.
    pub async fn write(&self, chunk: String, is_behind: impl Fn() -> bool) -> Result<(), End> {
        let begun = Instant::now();
        loop {
            let has_changed = |users: &watch::Receiver<u64>| users.has_changed().unwrap_or(true);
            if self.users.as_ref().is_some_and(has_changed) {
                return Err(End::Gone);
            }
            match timeout(LOOK, self.chunks.reserve()).await {
                Ok(Ok(place)) => {
                    place.send(Bytes::from(chunk));
                    return Ok(());
                }
                Ok(Err(_)) => return Err(End::Gone),
                Err(_) if is_behind() || begun.elapsed() > STUCK_MAX => return Err(End::Slow),
                Err(_) => {}
            }
        }
    }

    /// Waits until the reader has disconnected, or must authenticate again.
    pub async fn closed(&self) {
        let changed = async {
            match self.users.clone() {
                Some(mut users) => drop(users.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.chunks.closed() => {}
            () = changed => {}
        }
    }

    /// Ends the stream of a reader that is too slow. The reader gets these last bytes if it reads
    /// so far in time; otherwise its connection is closed.
    pub async fn cut(self, last: String) {
        let Writer {
            chunks,
            last: words,
            gone,
            connected,
            ..
        } = self;
        let _ = words.set(Bytes::from(last));
        drop(chunks);
        tokio::select! {
            _ = gone => {}
            () = sleep(LAST_MAX) => connected.iter().for_each(Connected::close),
        }
    }
}
