//! The audit of the API: a line of JSON for each change, including refused changes. A separate
//! thread writes the lines, and requests do not wait for it. Lines that do not fit into its queue
//! are counted, and the next line reports the number missing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::StatusCode;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use serde_json::{Value, json};

use super::access::Who;
use super::listener::Peer;
use cli::date;
use cli::failure::{Failure, FileProblem};

/// The most lines that wait to be written.
const LINES_MAX: usize = 1024;
/// The most bytes of a request's body and path in a line.
const WHAT_BYTES_MAX: usize = 2048;
const PATH_BYTES_MAX: usize = 512;
/// The time for the lines that wait when the process ends.
const END_MAX: Duration = Duration::from_secs(1);
/// The mode of the file: for its owner alone.
const MODE: u32 = 0o600;

/// Appends to the file until it is dropped.
pub struct Audit {
    path: PathBuf,
    orders: SyncSender<Order>,
    lost: Arc<AtomicU64>,
    /// Requests without a user beyond the budget of their source, since the last line.
    skipped: Arc<AtomicU64>,
}

enum Order {
    Line(Value),
    /// Opens the file of that name again: log rotation has moved the old one.
    Reopen(SyncSender<io::Result<()>>),
    /// Answered once all earlier lines are written.
    Flush(SyncSender<io::Result<()>>),
}

/// A change that is being carried out. Dropping it writes its line, even if the client has
/// disconnected meanwhile, as the change may be done.
pub struct Record {
    orders: SyncSender<Order>,
    lost: Arc<AtomicU64>,
    time: SystemTime,
    who: Value,
    from: Option<String>,
    method: String,
    path: String,
    body: Arc<Mutex<Copied>>,
    status: Option<StatusCode>,
}

/// The beginning of a body, and the body's length.
#[derive(Default)]
struct Copied {
    beginning: Vec<u8>,
    bytes: u64,
}

impl Audit {
    pub fn open(path: &Path) -> Result<Audit, Failure> {
        let file = append(path).map_err(|error| Failure::file(path, error))?;
        let (orders, taken) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let skipped = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            skipped: skipped.clone(),
            file,
            path: path.to_owned(),
            lost: lost.clone(),
        };
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&taken))
            .map_err(|error| Failure::machine(format!("cannot start a thread: {error}")))?;
        Ok(Audit {
            path: path.to_owned(),
            orders,
            lost,
            skipped,
        })
    }

    /// Lines that were not written, since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts a request without a user, which gets no line of its own.
    pub fn skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens the file of its name again. Waits no longer than a working file system takes.
    pub fn reopen(&self) -> Result<(), Failure> {
        let reopened = self.ask(Order::Reopen);
        reopened.map_err(|error| Failure::file(&self.path, error.say()))
    }

    /// Waits until the lines so far are written, for a second at most.
    pub fn flush(&self) {
        let _ = self.ask(Order::Flush);
    }

    fn ask(&self, order: impl FnOnce(SyncSender<io::Result<()>>) -> Order) -> io::Result<()> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the file system does not answer");
        let (answer, answered) = sync_channel(1);
        let (until, mut order) = (Instant::now() + END_MAX, order(answer));
        while let Err(error) = self.orders.try_send(order) {
            match error {
                TrySendError::Full(again) if Instant::now() < until => order = again,
                _ => return Err(late()),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        answered.recv_timeout(END_MAX).map_err(|_| late())?
    }

    /// Notes a change, and the beginning of its body as the body is read.
    pub fn begin(&self, request: &mut Request, who: Option<&Who>) -> Record {
        let copied = Arc::new(Mutex::new(Copied::default()));
        let body = std::mem::take(request.body_mut());
        *request.body_mut() = Body::new(Copying {
            body,
            copied: copied.clone(),
        });
        let target = request.uri().path_and_query();
        let target = target.map_or("/", |target| target.as_str());
        let peer = request.extensions().get::<Peer>();
        Record {
            orders: self.orders.clone(),
            lost: self.lost.clone(),
            time: SystemTime::now(),
            who: who.map_or(Value::Null, |who| json!(who)),
            from: peer.map(|peer| peer.from.clone()),
            method: request.method().to_string(),
            path: cut(target.as_bytes(), PATH_BYTES_MAX),
            body: copied,
            status: None,
        }
    }
}

impl Record {
    pub fn end(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let copied = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        let what = match copied.bytes {
            0 => Value::Null,
            _ => Value::from(cut(&copied.beginning, WHAT_BYTES_MAX)),
        };
        let result = match self.status {
            Some(status) if status.is_success() => "done",
            Some(_) => "refused",
            None => "unanswered",
        };
        let line = json!({
            "time": timestamp(self.time),
            "who": self.who,
            "from": self.from,
            "method": self.method,
            "path": self.path,
            "what": what,
            "bytes": copied.bytes,
            "status": self.status.map(|status| status.as_u16()),
            "result": result,
        });
        if self.orders.try_send(Order::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The text of at most so many bytes.
fn cut(bytes: &[u8], bytes_max: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(bytes_max)]).into_owned()
}

/// Formats a time by RFC 3339, in UTC.
fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (day, of_day) = (date::day(seconds), seconds % 86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{day}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE);
    // Without O_NONBLOCK, a FIFO that nobody reads would block us.
    options.custom_flags(nix::libc::O_NONBLOCK).open(path)
}

/// The thread that writes.
struct Writer {
    file: File,
    path: PathBuf,
    lost: Arc<AtomicU64>,
    skipped: Arc<AtomicU64>,
}

impl Writer {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut named = 0;
        let mut has_failed = false;
        while let Ok(order) = orders.recv() {
            match order {
                Order::Line(line) => {
                    let lost = self.lost.load(Ordering::Relaxed);
                    // Ends a line that a full disk took only in part.
                    let mut text = String::from(if has_failed { "\n" } else { "" });
                    if lost > named {
                        let missing = json!({
                            "time": timestamp(SystemTime::now()),
                            "result": "lost",
                            "lines": lost - named,
                        });
                        text.push_str(&format!("{missing}\n"));
                    }
                    let skipped = self.skipped.swap(0, Ordering::Relaxed);
                    if skipped > 0 {
                        let others = json!({
                            "time": timestamp(SystemTime::now()),
                            "result": "refused",
                            "lines": skipped,
                        });
                        text.push_str(&format!("{others}\n"));
                    }
                    text.push_str(&format!("{line}\n"));
                    match self.file.write_all(text.as_bytes()) {
                        Ok(()) => (named, has_failed) = (lost, false),
                        Err(error) => {
                            self.lost.fetch_add(1, Ordering::Relaxed);
                            if !std::mem::replace(&mut has_failed, true) {
                                let path = self.path.display();
                                tracing::error!("audit {path}: {}", error.say());
                            }
                        }
                    }
                }
                Order::Reopen(answer) => {
                    let reopened = append(&self.path).map(|file| {
                        self.file = file;
                        has_failed = false;
                    });
                    let _ = answer.try_send(reopened);
                }
                Order::Flush(answer) => {
                    let _ = answer.try_send(Ok(()));
                }
            }
        }
    }
}

/// A body that is noted as it is read.
struct Copying {
    body: Body,
    copied: Arc<Mutex<Copied>>,
}

impl HttpBody for Copying {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
            copied.bytes += data.len() as u64;
            let room = WHAT_BYTES_MAX - copied.beginning.len().min(WHAT_BYTES_MAX);
            copied
                .beginning
                .extend_from_slice(&data[..data.len().min(room)]);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rfc_3339() {
        let at = UNIX_EPOCH + Duration::from_millis(1_795_368_673_042);
        assert_eq!(timestamp(at), "2026-11-22T17:31:13.042Z");
    }

    #[test]
    fn requests_without_a_line_are_counted_in_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::open(&path).unwrap();
        audit.skip();
        audit.skip();
        for _ in 0..2 {
            let record = audit.begin(&mut Request::new(Body::empty()), None);
            record.end(StatusCode::UNAUTHORIZED);
        }
        audit.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let counts: Vec<Value> = lines.map(|line: Value| line["lines"].clone()).collect();
        assert_eq!(counts, [json!(2), Value::Null, Value::Null]);
    }

    #[test]
    fn a_file_that_takes_nothing_holds_nobody_up_and_what_is_lost_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // A reader has the pipe open and reads nothing, so that it fills.
        let mut options = OpenOptions::new();
        let reader = options.read(true).write(true).open(&path).unwrap();
        let audit = Audit::open(&path).unwrap();
        let status = StatusCode::OK;
        for _ in 0..10_000 {
            let mut request = Request::new(Body::empty());
            let record = audit.begin(&mut request, None);
            record.end(status);
        }
        audit.flush();
        let lost = audit.lost();
        assert!(lost > 1000, "{lost}");
        std::fs::remove_file(&path).unwrap();
        audit.reopen().unwrap();
        let record = audit.begin(&mut Request::new(Body::empty()), None);
        record.end(status);
        // A client that has disconnected.
        drop(audit.begin(&mut Request::new(Body::empty()), None));
        audit.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        // The pipe has taken some of the lines.
        let said = lines[0]["lines"].as_u64().unwrap();
        assert!(
            lines[0]["result"] == "lost" && said <= lost,
            "{said} {lost}"
        );
        assert_eq!(lines[1]["result"], "done");
        assert_eq!(lines[2]["result"], "unanswered");
        assert_eq!(lines[2]["status"], Value::Null);
        drop(reader);
    }
}
