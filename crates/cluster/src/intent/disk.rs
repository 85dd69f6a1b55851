//! Documents in one file of a folder, for a controller without a cluster.
//!
//! The file is replaced as a whole: written beside the old one, synced, renamed. So it always has
//! the state before a change or the state after it. An unreadable file is kept aside. Documents
//! stay in memory as their text in the file, so that a change serialises only the changed
//! documents.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cli::date;
use cli::failure::Failure;
use cli::whole;
use serde::Deserialize;
use serde_json::Value;

use super::Write;
use super::document::{Document, Stored, shown};
use super::known::Doc;
use config::qos::Refused;

/// The version of the file.
const VERSION: u32 = 1;
const BYTES_MAX: u64 = 64 << 20;

/// A folder with documents, which only this process uses.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    state: State,
    /// The lock on the folder, held while this value lives.
    _lock: File,
}

#[derive(Debug)]
struct State {
    /// The number of the last change.
    revision: u64,
    documents: BTreeMap<String, Kept>,
}

/// A document as stored, so that an unreadable document stays unchanged.
#[derive(Debug)]
struct Kept {
    revision: u64,
    /// JSON, on one line.
    stored: String,
}

#[derive(Deserialize)]
struct ReadState {
    revision: u64,
    documents: BTreeMap<String, ReadKept>,
}

#[derive(Deserialize)]
struct ReadKept {
    revision: u64,
    stored: Value,
}

/// The version of a file whose other fields may be of another version.
#[derive(Deserialize)]
struct Version {
    auster_state: u32,
}

impl Disk {
    /// Opens a folder, and creates it if it does not exist. An unreadable file in the folder is
    /// kept aside, and the second value reports it.
    ///
    /// # Errors
    /// Another process uses the folder, or the folder is not writable.
    pub fn open(dir: &Path) -> Result<(Disk, Option<String>), Failure> {
        std::fs::create_dir_all(dir).map_err(|error| Failure::file(dir, error))?;
        let at = dir.join("lock");
        let lock = File::options().create(true).append(true).open(&at);
        let lock = lock.map_err(|error| Failure::file(&at, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let dir = dir.display();
                return Err(Failure::usage(format!(
                    "state {dir}: another auster run uses it: give each a folder of its own"
                )));
            }
            Err(TryLockError::Error(error)) => return Err(Failure::file(&at, error)),
        }
        let mut disk = Disk {
            dir: dir.to_owned(),
            state: State::new(),
            _lock: lock,
        };
        let file = disk.file();
        let line = match read(&file) {
            Ok(None) => None,
            Ok(Some(Ok(state))) => {
                disk.state = state;
                None
            }
            Ok(Some(Err(why))) => Some(set_aside(&file, &why)?),
            Err(error) => return Err(Failure::file(&file, error)),
        };
        // Find an unwritable folder now, not at the first change.
        whole::replace(&file, &disk.state.text()).map_err(|error| Failure::file(&file, error))?;
        Ok((disk, line))
    }

    fn file(&self) -> PathBuf {
        self.dir.join("intent.json")
    }

    pub fn revision(&self) -> u64 {
        self.state.revision
    }

    pub fn documents(&self) -> BTreeMap<String, Doc<Document>> {
        let read = |(key, kept): (&String, &Kept)| {
            let stored = serde_json::from_str::<Stored>(&kept.stored);
            let value = match stored {
                Ok(stored) => stored.read(key),
                Err(error) => Document {
                    by: String::new(),
                    at: String::new(),
                    content: Err(shown(&error.to_string())),
                },
            };
            let revision = kept.revision;
            (key.clone(), Doc { revision, value })
        };
        self.state.documents.iter().map(read).collect()
    }

    /// Carries out all of `writes`, or none. Returns their revision.
    pub(super) async fn write(&mut self, writes: &[Write]) -> Result<u64, Refused> {
        let before = self.state.carry_out(writes);
        let (file, text) = (self.file(), self.state.text());
        if text.len() as u64 > BYTES_MAX {
            self.state.undo(before);
            // The next start would not read the file.
            return Err(Refused::Full(format!(
                "{}: it would have over {BYTES_MAX} bytes; nothing was changed",
                self.file().display()
            )));
        }
        let written = tokio::task::spawn_blocking(move || whole::replace(&file, &text)).await;
        let refused = match written {
            Ok(Ok(())) => return Ok(self.state.revision),
            Ok(Err(error)) if error.kind() == ErrorKind::StorageFull => Refused::Full(format!(
                "{}: no space left; nothing was changed",
                self.file().display()
            )),
            Ok(Err(error)) => Refused::Away(format!("{}: {error}", self.file().display())),
            Err(_) => Refused::Busy,
        };
        self.state.undo(before);
        Err(refused)
    }
}

impl State {
    /// Makes an empty state. Its revisions begin above those of any earlier file, so that no tag
    /// that a client has kept becomes valid again.
    fn new() -> State {
        State {
            revision: first_revision(),
            documents: BTreeMap::new(),
        }
    }

    /// Applies writes. Returns the earlier documents, for [`State::undo`].
    fn carry_out(&mut self, writes: &[Write]) -> Vec<(String, Option<Kept>)> {
        self.revision += 1;
        let before = writes.iter().map(|Write { key, value, .. }| {
            let kept = value.as_ref().map(|stored| Kept {
                revision: self.revision,
                stored: serde_json::to_string(stored).unwrap_or_default(),
            });
            let before = match kept {
                Some(kept) => self.documents.insert(key.clone(), kept),
                None => self.documents.remove(key),
            };
            (key.clone(), before)
        });
        before.collect()
    }

    fn undo(&mut self, before: Vec<(String, Option<Kept>)>) {
        self.revision -= 1;
        // A key may have been written twice.
        for (key, kept) in before.into_iter().rev() {
            match kept {
                Some(kept) => drop(self.documents.insert(key, kept)),
                None => drop(self.documents.remove(&key)),
            }
        }
    }

    /// Returns the text of the whole file.
    fn text(&self) -> Vec<u8> {
        let of_one = |(key, kept): (&String, &Kept)| key.len() + kept.stored.len() + 64;
        let size: usize = self.documents.iter().map(of_one).sum();
        let mut text = Vec::with_capacity(size + 100);
        let head = format!(
            r#"{{"auster_state":{VERSION},"revision":{},"documents":{{"#,
            self.revision
        );
        text.extend_from_slice(head.as_bytes());
        for (n, (key, kept)) in self.documents.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            let (key, revision) = (Value::from(key.as_str()), kept.revision);
            let head = format!(r#"{comma}{key}:{{"revision":{revision},"stored":"#);
            text.extend_from_slice(head.as_bytes());
            text.extend_from_slice(kept.stored.as_bytes());
            text.push(b'}');
        }
        text.extend_from_slice(b"}}");
        text
    }
}

impl From<ReadState> for State {
    fn from(read: ReadState) -> State {
        let kept = |kept: ReadKept| Kept {
            revision: kept.revision,
            stored: kept.stored.to_string(),
        };
        let documents = read.documents.into_iter();
        State {
            revision: read.revision,
            documents: documents.map(|(key, of)| (key, kept(of))).collect(),
        }
    }
}

/// Returns a revision above all revisions of earlier processes, if they made fewer than a thousand
/// changes a second.
pub fn first_revision() -> u64 {
    date::unix_seconds() * 1000
}

/// Reads the state in a file. The inner error is the mistake in the file.
fn read(file: &Path) -> std::io::Result<Option<Result<State, String>>> {
    let metadata = match std::fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if metadata.len() > BYTES_MAX {
        return Ok(Some(Err(format!("it has over {BYTES_MAX} bytes"))));
    }
    Ok(Some(parse(&std::fs::read(file)?)))
}

fn parse(text: &[u8]) -> Result<State, String> {
    let version = serde_json::from_slice::<Version>(text);
    let version = version.map_err(|error| shown(&format!("it cannot be read: {error}")))?;
    match version.auster_state {
        VERSION => serde_json::from_slice::<ReadState>(text)
            .map(State::from)
            .map_err(|error| shown(&format!("it cannot be read: {error}"))),
        other => Err(format!(
            "it is of version {other}, and this auster reads {VERSION}"
        )),
    }
}

/// Renames an unusable file to a name that no file has. Returns a line that reports it.
fn set_aside(file: &Path, why: &str) -> Result<String, Failure> {
    let name = |n: u64| file.with_extension(format!("json.{n}"));
    let number = (date::unix_seconds()..).find(|n| !name(*n).exists());
    let aside = name(number.unwrap_or_default());
    std::fs::rename(file, &aside).map_err(|error| Failure::file(&aside, error))?;
    let (file, aside) = (file.display(), aside.display());
    Ok(format!(
        "{file}: {why}; it is kept as {aside}, and nothing of it is in use"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str) -> Write {
        let stored = Stored {
            by: "a".to_owned(),
            at: "now".to_owned(),
            document: json!({"name": name}),
        };
        Write {
            key: format!("services/{name}"),
            expected: 0,
            value: Some(stored),
        }
    }

    fn keys(disk: &Disk) -> Vec<String> {
        disk.documents().into_keys().collect()
    }

    #[tokio::test]
    async fn what_was_written_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, line) = Disk::open(dir.path()).unwrap();
        assert_eq!(line, None);
        let first = disk.write(&[service("a"), service("b")]).await.unwrap();
        let delete = Write {
            value: None,
            ..service("a")
        };
        assert_eq!(disk.write(&[delete]).await, Ok(first + 1));
        let second = Disk::open(dir.path()).unwrap_err();
        assert!(second.message().contains("another auster run"));
        drop(disk);
        let (disk, line) = Disk::open(dir.path()).unwrap();
        assert_eq!((line, disk.revision()), (None, first + 1));
        assert_eq!(keys(&disk), ["services/b"]);
        assert_eq!(disk.documents()["services/b"].revision, first);
    }

    /// A change that could not be written leaves nothing behind, whatever it replaced.
    #[tokio::test]
    async fn a_change_that_is_not_written_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _) = Disk::open(dir.path()).unwrap();
        let odd = |name: &str| Write {
            key: format!("services/\"{name}\\"),
            ..service(name)
        };
        let first = disk.write(&[odd("a"), odd("b")]).await.unwrap();
        let before = disk.state.text();
        let beside = dir.path().join("intent.json.new");
        std::fs::create_dir(&beside).unwrap();
        let delete = Write {
            value: None,
            ..odd("a")
        };
        let writes = [odd("a"), delete, odd("c"), odd("c")];
        let refused = disk.write(&writes).await.unwrap_err();
        assert!(matches!(refused, Refused::Away(_)), "{refused:?}");
        assert_eq!(disk.state.text(), before);
        std::fs::remove_dir(&beside).unwrap();
        assert_eq!(disk.write(&[]).await, Ok(first + 1));
        drop(disk);
        let (disk, line) = Disk::open(dir.path()).unwrap();
        assert_eq!(line, None);
        assert_eq!(keys(&disk), [odd("a").key, odd("b").key]);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_kept_aside() {
        for (text, why) in [
            ("{", "it cannot be read: "),
            ("", "it cannot be read: "),
            (
                r#"{"auster_state":1,"revision":"x"}"#,
                "it cannot be read: ",
            ),
            (
                r#"{"auster_state":7,"tables":[]}"#,
                "it is of version 7, and this auster reads 1",
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("intent.json"), text).unwrap();
            let (disk, line) = Disk::open(dir.path()).unwrap();
            let line = line.unwrap();
            assert!(line.contains(why) && !line.contains('\n'), "{line}");
            let aside = line.split("kept as ").nth(1).unwrap();
            let aside = aside.split(',').next().unwrap();
            assert_eq!(std::fs::read_to_string(aside).unwrap(), text);
            assert_eq!(keys(&disk), [""; 0]);
        }
    }

    /// An unreadable document spoils no other document, and stays in the file.
    #[tokio::test]
    async fn a_document_that_cannot_be_read_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let text = json!({"auster_state": 1, "revision": 5, "documents": {
            "services/a": {"revision": 3, "stored": {
                "by": "", "at": "", "document": {"name": "a"},
            }},
            "services/b": {"revision": 4, "stored": [1, 2]},
        }});
        let file = dir.path().join("intent.json");
        std::fs::write(&file, text.to_string()).unwrap();
        let (mut disk, line) = Disk::open(dir.path()).unwrap();
        assert_eq!(line, None);
        let documents = disk.documents();
        assert!(documents["services/a"].value.content.is_ok());
        assert!(documents["services/b"].value.content.is_err());
        assert_eq!(disk.write(&[service("c")]).await, Ok(6));
        let now: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(
            now["documents"]["services/b"],
            text["documents"]["services/b"]
        );
    }
}
