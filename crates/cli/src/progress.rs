//! One line that shows the progress of a long command.

use std::fmt::Arguments;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::output::note_part;

/// The live line is written at most this often.
const PROGRESS_INTERVAL_MS: u64 = 100;

/// One line on standard error that is overwritten; nothing if standard error is no terminal.
pub struct Progress {
    start: Instant,
    is_live: bool,
    /// The time of the last write, in milliseconds from the start.
    written_ms: AtomicU64,
}

impl Progress {
    pub fn start() -> Progress {
        Progress {
            start: Instant::now(),
            is_live: std::io::stderr().is_terminal(),
            written_ms: AtomicU64::new(0),
        }
    }

    pub fn say(&self, line: Arguments) {
        let now_ms = self.start.elapsed().as_millis() as u64 + PROGRESS_INTERVAL_MS;
        let before_ms = self.written_ms.load(Ordering::Relaxed);
        if !self.is_live || now_ms < before_ms + PROGRESS_INTERVAL_MS {
            return;
        }
        self.written_ms.store(now_ms, Ordering::Relaxed);
        // Cut at the right edge, not wrapped: a wrapped line could not be overwritten.
        note_part!("\r\x1b[?7l{line}\x1b[K\x1b[?7h");
    }

    /// Removes the line, so that other output can follow.
    pub fn clear(&self) {
        if self.is_live {
            note_part!("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
