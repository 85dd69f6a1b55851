//! Documents in one file of a folder, for a controller without a cluster.
//!
//! The file is replaced as a whole: written beside, synced, renamed. So it is always the state
//! before a change or the one after it. A file that cannot be read is kept aside.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use cli::date;
use cli::failure::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Write;
use super::document::{Document, Stored, shown};
use super::known::Doc;
use crate::run::qos::Refused;

/// The version of the file.
const VERSION: u32 = 1;
const BYTES_MAX: u64 = 64 << 20;

/// A folder with documents, which is this process's alone.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    state: State,
    /// Held as long as the folder is.
    _lock: File,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    auster_state: u32,
    /// The number of the last change.
    revision: u64,
    documents: BTreeMap<String, Kept>,
}

/// A document with whatever it has, so that one which cannot be read stays as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    revision: u64,
    stored: Value,
}

/// The version alone, of a file that is otherwise of another one.
#[derive(Deserialize)]
struct Version {
    auster_state: u32,
}

impl Disk {
    /// Opens a folder, which is made if there is none. If it has a file that cannot be read, that
    /// one is kept aside, and the second value says so.
    ///
    /// # Errors
    /// Another process has it, or it takes no files.
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
        // A folder that takes no file is found now, and not at the first change.
        write(&file, &disk.state).map_err(|error| Failure::file(&file, error))?;
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
            let stored = serde_json::from_value::<Stored>(kept.stored.clone());
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

    /// Carries out all of `writes`, or none. Returns the revision of it.
    pub(super) async fn write(&mut self, writes: &[Write]) -> Result<u64, Refused> {
        let mut next = self.state.clone();
        next.revision += 1;
        for Write { key, value, .. } in writes {
            match value {
                Some(stored) => {
                    let kept = Kept {
                        revision: next.revision,
                        stored: serde_json::to_value(stored).unwrap_or_default(),
                    };
                    next.documents.insert(key.clone(), kept);
                }
                None => drop(next.documents.remove(key)),
            }
        }
        let file = self.file();
        let written = tokio::task::spawn_blocking(move || write(&file, &next).map(|()| next)).await;
        let at = self.file();
        match written {
            Ok(Ok(next)) => {
                self.state = next;
                Ok(self.state.revision)
            }
            Ok(Err(error)) if error.kind() == ErrorKind::StorageFull => Err(Refused::Full(
                format!("{}: no space left; nothing was changed", at.display()),
            )),
            Ok(Err(error)) => Err(Refused::Away(format!("{}: {error}", at.display()))),
            Err(_) => Err(Refused::Busy),
        }
    }
}

impl State {
    /// Revisions of a new file begin above those of any earlier one, so that no tag which a client
    /// has kept is valid again.
    fn new() -> State {
        State {
            auster_state: VERSION,
            revision: first_revision(),
            documents: BTreeMap::new(),
        }
    }
}

/// A revision above all those of earlier processes, with less than a thousand changes a second.
pub fn first_revision() -> u64 {
    date::unix_seconds() * 1000
}

/// The state in a file, or what is wrong with it.
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
        VERSION => serde_json::from_slice(text)
            .map_err(|error| shown(&format!("it cannot be read: {error}"))),
        other => Err(format!(
            "it is of version {other}, and this auster reads {VERSION}"
        )),
    }
}

/// Renames a file that cannot be used, to a name that no file has. Returns the line about it.
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

fn write(file: &Path, state: &State) -> std::io::Result<()> {
    let beside = file.with_extension("json.new");
    let mut written = File::create(&beside)?;
    written.write_all(&serde_json::to_vec(state)?)?;
    written.sync_all()?;
    std::fs::rename(&beside, file)?;
    match file.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
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

    /// One document that cannot be read spoils no other, and stays in the file.
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
