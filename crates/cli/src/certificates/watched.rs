//! Watches files by checking them every second, so that new certificates are used without a signal.
//!
//! Polling detects every kind of replacement: a rename over a file, a write into it, and a changed
//! symbolic link of a mounted secret. Files count as changed once two looks in a row see the same
//! state, so that a file still being written is left to its writer.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::sleep;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A file's times may be this far behind the clock: the kernel takes them from its ticks.
const TICK: Duration = Duration::from_millis(20);

/// The state of a file on disk, with its last change at the end; `None` if there is no such file.
type Stamp = Option<[i128; 5]>;

fn stamp(file: &Path) -> Stamp {
    let facts = std::fs::metadata(file).ok()?;
    let nanos = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
    Some([
        facts.dev().into(),
        facts.ino().into(),
        facts.len().into(),
        nanos(facts.mtime(), facts.mtime_nsec()),
        nanos(facts.ctime(), facts.ctime_nsec()),
    ])
}

/// The states of the files at the last looks.
#[derive(Debug)]
struct Looks {
    /// The states of the files when they were read.
    read: Vec<Stamp>,
    last: Vec<Stamp>,
}

impl Looks {
    /// Starts with files that were read after `begun`, in nanoseconds since 1970. A file that has
    /// changed since then may have been read in another version.
    fn new(seen: Vec<Stamp>, begun: i128) -> Looks {
        let is_older = |stamp: &[i128; 5]| stamp[4] < begun;
        Looks {
            read: seen.iter().map(|stamp| stamp.filter(is_older)).collect(),
            last: seen,
        }
    }

    /// Returns whether the files are to be read now.
    fn handle(&mut self, seen: Vec<Stamp>) -> bool {
        let is_quiet = self.last == seen;
        let is_due = is_quiet && self.read != seen;
        self.last.clone_from(&seen);
        if is_due {
            self.read = seen;
        }
        is_due
    }
}

/// Watches files until it is dropped.
#[derive(Debug)]
pub struct Watched {
    files: watch::Sender<Vec<PathBuf>>,
    changed: Arc<Notify>,
    task: AbortHandle,
}

impl Watched {
    /// Watches `files`, which were read after `begun`.
    pub fn start(files: Vec<PathBuf>, begun: SystemTime) -> Watched {
        let (sender, receiver) = watch::channel(files);
        let changed = Arc::new(Notify::new());
        let begun = begun.duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun = begun.saturating_sub(TICK).as_nanos();
        let begun = i128::try_from(begun).unwrap_or(i128::MAX);
        let task = tokio::spawn(look(receiver, changed.clone(), begun));
        Watched {
            files: sender,
            changed,
            task: task.abort_handle(),
        }
    }

    /// Watches these files from now on. If they are not the same as before, they were read a moment
    /// ago. The same files are watched as before, since another reader may have refused them.
    pub fn follow(&self, files: Vec<PathBuf>) {
        self.files.send_if_modified(|now| {
            let are_others = *now != files;
            *now = files;
            are_others
        });
    }

    /// Waits until the files have changed. The wait may be cancelled and repeated.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn look(mut files: watch::Receiver<Vec<PathBuf>>, changed: Arc<Notify>, begun: i128) {
    let mut begun = Some(begun);
    loop {
        let watched = files.borrow_and_update().clone();
        let Some(first) = stamps(&watched).await else {
            return;
        };
        let mut looks = Looks::new(first, begun.take().unwrap_or(i128::MAX));
        loop {
            tokio::select! {
                replaced = files.changed() => match replaced {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = sleep(LOOK_EVERY) => {}
            }
            let Some(seen) = stamps(&watched).await else {
                return;
            };
            if looks.handle(seen) {
                changed.notify_one();
            }
        }
    }
}

/// The states of the files; `None` when the process ends. The disk may be slow, or missing.
async fn stamps(files: &[PathBuf]) -> Option<Vec<Stamp>> {
    let files = files.to_vec();
    let looked = spawn_blocking(move || files.iter().map(|file| stamp(file)).collect());
    looked.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_when_they_have_changed_and_are_quiet() {
        let file = |n: i128| Some([1, 2, 3, 4, n]);
        let mut looks = Looks::new(vec![file(0), file(0)], 1);
        assert!(!looks.handle(vec![file(0), file(0)]));
        assert!(!looks.handle(vec![file(1), file(0)]), "the key is new");
        assert!(!looks.handle(vec![file(1), file(1)]), "and the certificate");
        assert!(looks.handle(vec![file(1), file(1)]), "that was all");
        assert!(!looks.handle(vec![file(1), file(1)]), "once");
        assert!(!looks.handle(vec![None, file(1)]), "one is away");
        assert!(looks.handle(vec![None, file(1)]));
        assert!(!looks.handle(vec![file(1), file(1)]));
        assert!(looks.handle(vec![file(1), file(1)]), "and back");
    }

    #[test]
    fn a_file_that_changed_between_its_reading_and_the_first_look_is_read_again() {
        let file = |n: i128| Some([1, 2, 3, 4, n]);
        let mut looks = Looks::new(vec![file(4), file(5), None], 5);
        assert!(looks.handle(vec![file(4), file(5), None]));
        assert!(!looks.handle(vec![file(4), file(5), None]), "once");
    }

    #[test]
    fn each_way_of_replacing_a_file_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("a"), "1").unwrap();
        std::fs::write(path("b"), "1").unwrap();
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        let (before, by_link) = (stamp(&path("a")), stamp(&path("link")));
        assert!(before.is_some() && before == by_link);
        std::fs::remove_file(path("link")).unwrap();
        std::os::unix::fs::symlink(path("b"), path("link")).unwrap();
        assert_ne!(stamp(&path("link")), by_link);
        std::fs::rename(path("b"), path("a")).unwrap();
        assert_ne!(stamp(&path("a")), before);
        assert_eq!(stamp(&path("b")), None);
    }
}
