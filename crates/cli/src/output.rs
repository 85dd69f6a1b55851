//! Standard output and standard error, for which no work ever waits.
//!
//! A reader may pause (a pager, a full pipe, a log collector that restarts) or exit. Standard error
//! of a command, and standard output of a service, go through a queue of [`QUEUE_BYTES_MAX`] that a
//! thread writes. Lines beyond the bound are dropped and counted; the count is printed in their
//! place. Other commands write their answer to standard output directly, since `| less` must get
//! all of it. An answer that could not be written fails the command in `main`.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::failure::Failure;

/// The greatest number of bytes that wait for a reader, for each of the two outputs.
const QUEUE_BYTES_MAX: usize = 1 << 20;
/// The time that readers have for the waiting output when the process ends. Its end must take less
/// than a second.
const FLUSH_MAX: Duration = Duration::from_millis(800);
/// The pause before the next try where another process has made a shared file non-blocking.
const RETRY: Duration = Duration::from_millis(10);

/// Writes a line to standard output, as `println!` does, and never panics.
#[macro_export]
macro_rules! say {
    () => { $crate::output::to_stdout(format_args!("\n")) };
    ($($words:tt)*) => {
        $crate::output::to_stdout(format_args!("{}\n", format_args!($($words)*)))
    };
}
/// Writes to standard output as `print!` does.
#[macro_export]
macro_rules! say_part {
    ($($words:tt)*) => { $crate::output::to_stdout(format_args!($($words)*)) };
}
/// Writes a line to standard error, as `eprintln!` does; it neither panics nor waits.
#[macro_export]
macro_rules! note {
    ($($words:tt)*) => {
        $crate::output::to_stderr(format_args!("{}\n", format_args!($($words)*)))
    };
}
/// Writes to standard error as `eprint!` does.
#[macro_export]
macro_rules! note_part {
    ($($words:tt)*) => { $crate::output::to_stderr(format_args!($($words)*)) };
}
pub use crate::{note, note_part, say, say_part};

static STDOUT: Queue = Queue::new();
static STDERR: Queue = Queue::new();
/// Whether standard output goes through its queue.
static IS_SERVICE: AtomicBool = AtomicBool::new(false);
static IS_JSON_LOG: AtomicBool = AtomicBool::new(false);
/// The error of a direct write to standard output, if one failed.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Makes standard output drop lines instead of waiting for its reader. Commands that run until they
/// are stopped call it.
pub fn become_service() {
    IS_SERVICE.store(true, Ordering::Relaxed);
}

/// Sets the line that reports the number of missing lines in the output.
pub fn count_drops_as(stdout: Notice) {
    STDOUT.lock().notice = stdout;
}

/// Whether standard error goes to systemd's journal, which then reads the priority at the start of
/// a line.
pub fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| leads_to_journal(io::stderr()))
}

/// Whether standard output goes to systemd's journal.
pub fn is_journal_of_answers() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| leads_to_journal(io::stdout()))
}

/// Whether a stream is the journal's. The variable has the device and the inode of the stream, so
/// that a child program with other output is not deceived (systemd.exec(5)).
fn leads_to_journal(stream: impl AsFd) -> bool {
    let stated = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let found = nix::sys::stat::fstat(stream);
    found.is_ok_and(|found| stated == format!("{}:{}", found.st_dev, found.st_ino))
}

/// The prefix of a line of this level in the journal.
pub fn priority(level: &str) -> &'static str {
    match level {
        "ERROR" => "<3>",
        "WARN" => "<4>",
        "INFO" => "<6>",
        _ => "<7>",
    }
}

/// Writes notices beside the log as JSON documents from now on.
pub fn log_as_json() {
    IS_JSON_LOG.store(true, Ordering::Relaxed);
    STDERR.lock().notice = |count| log_line("WARN", "auster::output", &missing(count));
}

/// Writes a line that looks like one of the log.
pub fn log(level: &str, target: &str, message: &str) {
    STDERR.push(log_line(level, target, message).into_bytes(), Fd::Err);
}

fn log_line(level: &str, target: &str, message: &str) -> String {
    let mut time = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let (begin, is_journal) = match is_journal() {
        true => (priority(level), true),
        false => ("", false),
    };
    match IS_JSON_LOG.load(Ordering::Relaxed) {
        false if is_journal => format!("{begin}{target}: {message}\n"),
        false => format!("{time} {level:>5} {target}: {message}\n"),
        true => {
            let fields = json!({"message": message});
            let line =
                json!({"timestamp": time, "level": level, "fields": fields, "target": target});
            format!("{begin}{line}\n")
        }
    }
}

/// The numbers of lines that no reader of standard output, or of standard error, took in time.
pub fn dropped() -> [u64; 2] {
    [&STDOUT, &STDERR].map(|queue| queue.lock().dropped_in_all)
}

/// Writes the text of [`say!`].
pub fn to_stdout(text: fmt::Arguments<'_>) {
    if IS_SERVICE.load(Ordering::Relaxed) {
        return STDOUT.push(text.to_string().into_bytes(), Fd::Out);
    }
    // On a terminal both outputs are one: earlier notes must appear first.
    STDERR.flush(RETRY);
    let mut out = io::stdout().lock();
    let written = out.write_fmt(text).and_then(|()| out.flush());
    if let Err(error) = written {
        let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(error);
    }
}

/// Writes the text of [`note!`]. The text is a warning, or the reason why the command fails.
pub fn to_stderr(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let text = match is_journal() {
        true => with_priority(&text, priority("WARN")),
        false => text,
    };
    STDERR.push(text.into_bytes(), Fd::Err);
}

fn with_priority(text: &str, begin: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.map(|line| format!("{begin}{line}")).collect()
}

/// Gives readers a bounded time to take the waiting output, at the very end.
pub fn flush() {
    let begun = Instant::now();
    STDOUT.flush(FLUSH_MAX);
    STDERR.flush(FLUSH_MAX.saturating_sub(begun.elapsed()));
}

/// Whether all answers of a command could be written.
pub fn check() -> Result<(), Failure> {
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    failed.take().map_or(Ok(()), |error| Err(failure(error)))
}

/// The failure of a command whose answer could not be written. A reader that has closed its end has
/// seen enough: that is no failure of ours, and no success.
pub fn failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::silent(),
        _ => Failure::file("standard output", error),
    }
}

/// Standard error for a log writer: each write is a line.
pub struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        STDERR.push(line.to_vec(), Fd::Err);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line that reports the number of missing lines, with its line end.
pub type Notice = fn(u64) -> String;

fn notice_text(count: u64) -> String {
    format!("auster: {}\n", missing(count))
}

fn missing(count: u64) -> String {
    format!("{count} lines dropped here: nobody read them in time")
}

#[derive(Clone, Copy)]
enum Fd {
    Out,
    Err,
}

impl Fd {
    fn write_all(self, mut bytes: &[u8]) -> io::Result<()> {
        let (out, err) = (io::stdout(), io::stderr());
        let fd: BorrowedFd<'_> = match self {
            Fd::Out => out.as_fd(),
            Fd::Err => err.as_fd(),
        };
        while !bytes.is_empty() {
            match nix::unistd::write(fd, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => std::thread::sleep(RETRY),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Lines on their way to a reader.
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Waiting output, in bytes and in lines.
struct Waiting {
    block: Block,
    /// Lines dropped since the last report.
    dropped: u64,
    dropped_in_all: u64,
    notice: Notice,
    is_writing: bool,
    has_thread: bool,
}

/// Consecutive lines, and the number of other lines that they report as missing.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    lines: u64,
    missing: u64,
}

impl Waiting {
    const fn new() -> Waiting {
        Waiting {
            block: Block {
                bytes: Vec::new(),
                lines: 0,
                missing: 0,
            },
            dropped: 0,
            dropped_in_all: 0,
            notice: notice_text,
            is_writing: false,
            has_thread: false,
        }
    }

    fn push(&mut self, line: &[u8]) {
        if self.block.bytes.len() + line.len() > QUEUE_BYTES_MAX {
            self.dropped += 1;
            self.dropped_in_all += 1;
            return;
        }
        self.tell_dropped();
        self.block.bytes.extend_from_slice(line);
        self.block.lines += 1;
    }

    fn tell_dropped(&mut self) {
        let count = std::mem::take(&mut self.dropped);
        if count > 0 {
            let notice = (self.notice)(count);
            self.block.bytes.extend_from_slice(notice.as_bytes());
            self.block.missing += count;
        }
    }

    fn handle_written(&mut self, block: &Block, written: io::Result<()>) {
        match written {
            // Perhaps no line follows the missing ones for a long time.
            Ok(()) if self.block.bytes.is_empty() => self.tell_dropped(),
            Ok(()) => {}
            Err(_) => {
                self.dropped += block.lines + block.missing;
                self.dropped_in_all += block.lines;
            }
        }
    }
}

impl Queue {
    const fn new() -> Queue {
        Queue {
            waiting: Mutex::new(Waiting::new()),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&'static self, line: Vec<u8>, to: Fd) {
        let mut waiting = self.lock();
        waiting.push(&line);
        if !waiting.has_thread {
            let name = "output".to_owned();
            let thread = std::thread::Builder::new().name(name);
            waiting.has_thread = thread.spawn(move || self.write(to)).is_ok();
        }
        self.changed.notify_all();
    }

    fn write(&self, to: Fd) {
        let mut waiting = self.lock();
        loop {
            while waiting.block.bytes.is_empty() {
                let woken = self.changed.wait(waiting);
                waiting = woken.unwrap_or_else(PoisonError::into_inner);
            }
            let block = std::mem::take(&mut waiting.block);
            waiting.is_writing = true;
            drop(waiting);
            let written = to.write_all(&block.bytes);
            waiting = self.lock();
            waiting.is_writing = false;
            waiting.handle_written(&block, written);
            self.changed.notify_all();
        }
    }

    fn flush(&self, limit: Duration) {
        let is_busy = |waiting: &mut Waiting| {
            waiting.has_thread && (waiting.is_writing || !waiting.block.bytes.is_empty())
        };
        drop(self.changed.wait_timeout_while(self.lock(), limit, is_busy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(block: &Block) -> &str {
        std::str::from_utf8(&block.bytes).unwrap()
    }

    #[test]
    fn lines_that_have_no_room_are_counted_where_they_are_missing() {
        let mut waiting = Waiting::new();
        waiting.notice = |count| format!("{count} missing\n");
        let long = vec![b'x'; QUEUE_BYTES_MAX - 1];
        waiting.push(&long);
        for line in ["a\n", "b\n", "c\n"] {
            waiting.push(line.as_bytes());
        }
        assert_eq!((waiting.block.lines, waiting.dropped), (1, 3));

        let block = std::mem::take(&mut waiting.block);
        waiting.push(b"d\n");
        waiting.handle_written(&block, Ok(()));
        assert_eq!(text(&waiting.block), "3 missing\nd\n");
        assert_eq!((waiting.dropped, waiting.dropped_in_all), (0, 3));
    }

    #[test]
    fn each_line_in_the_journal_has_its_priority() {
        let text = with_priority("auster: a\n  b\n", priority("ERROR"));
        assert_eq!(text, "<3>auster: a\n<3>  b\n");
        let priorities = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].map(priority);
        assert_eq!(priorities, ["<3>", "<4>", "<6>", "<7>", "<7>"]);
    }

    #[test]
    fn the_count_is_told_though_no_other_line_comes() {
        let mut waiting = Waiting::new();
        waiting.push(&vec![b'x'; QUEUE_BYTES_MAX]);
        waiting.push(b"lost\n");
        let block = std::mem::take(&mut waiting.block);
        waiting.handle_written(&block, Ok(()));
        assert_eq!(text(&waiting.block), notice_text(1));
    }

    #[test]
    fn what_a_full_disk_has_swallowed_is_told_when_there_is_room() {
        let mut waiting = Waiting::new();
        waiting.notice = |count| format!("{count} missing\n");
        let full = || Err(io::Error::from(io::ErrorKind::StorageFull));
        for _ in 0..2 {
            waiting.push(b"a\n");
            waiting.push(b"b\n");
            let block = std::mem::take(&mut waiting.block);
            waiting.handle_written(&block, full());
            assert!(waiting.block.bytes.is_empty(), "it is not tried for ever");
        }
        waiting.push(b"c\n");
        assert_eq!(text(&waiting.block), "4 missing\nc\n");
        assert_eq!(waiting.dropped_in_all, 4);
    }
}
