//! The VLANs last reported by the switches' databases, for the next process. Without them, all
//! ports that have their VLANs from a database would be in none until the database is read again:
//! hosts of different VLANs would reach each other, and the VLANs' entries would be removed.
//!
//! A database that has changed meanwhile is followed once it is read, as one that was disconnected.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cli::whole;
use ovsdb::vswitch::vlan::{VlanColumns, VlanMode};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::super::topology::location;
use super::columns::Row;
use super::follower::{Rows, merge};

const VERSION: u32 = 1;
const BYTES_MAX: usize = 64 << 20;

/// The contents of the file.
#[derive(Serialize, Deserialize)]
struct Last {
    auster_vlans: u32,
    ports: Vec<Port>,
}

#[derive(Serialize, Deserialize)]
struct Port {
    at: String,
    name: String,
    tag: Option<u16>,
    trunks: BTreeSet<u16>,
    vlan_mode: Option<String>,
}

fn file(dir: &Path) -> PathBuf {
    dir.join("vlans.json")
}

/// Reads the databases' last VLANs. A file that cannot be read is reported, and gives no VLANs.
pub fn read(dir: &Path) -> Rows {
    let file = file(dir);
    let failed = |problem: String| {
        tracing::warn!(
            "{}: {problem}; ports have no VLANs of a database until it is read",
            file.display()
        );
        Rows::new()
    };
    match fs::metadata(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Rows::new(),
        Ok(facts) if facts.len() > BYTES_MAX as u64 => return failed("too large".to_owned()),
        _ => {}
    }
    match fs::read(&file) {
        Ok(text) => parse(&text).unwrap_or_else(failed),
        Err(error) => failed(error.to_string()),
    }
}

/// Writes the databases' VLANs whenever they change. The file has `rows` at first. Ends with the
/// receiver's sender, which limits how often it writes.
pub async fn keep(dir: PathBuf, mut rows: Rows, mut now: watch::Receiver<Rows>) {
    let file = file(&dir);
    let mut has_failed = false;
    while now.changed().await.is_ok() {
        let before = rows.clone();
        merge(&mut rows, now.borrow_and_update().clone());
        if rows == before {
            continue;
        }
        let (to, text) = (file.clone(), text(&rows));
        let written = tokio::task::spawn_blocking(move || match text.len() <= BYTES_MAX {
            true => whole::replace(&to, &text),
            false => Err(ErrorKind::FileTooLarge.into()),
        });
        match written.await {
            Ok(Err(error)) if !has_failed => {
                has_failed = true;
                let file = file.display();
                tracing::warn!("{file}: {error}; a restart has no VLANs of databases at first");
            }
            written => has_failed = !matches!(written, Ok(Ok(()))),
        }
    }
}

fn text(rows: &Rows) -> Vec<u8> {
    let port = |row: &Row| Port {
        at: row.at.to_string(),
        name: row.name.clone(),
        tag: row.columns.tag,
        trunks: row.columns.trunks.clone(),
        vlan_mode: row.columns.mode.map(|mode| mode.name().to_owned()),
    };
    let last = Last {
        auster_vlans: VERSION,
        ports: rows.values().flatten().map(port).collect(),
    };
    serde_json::to_vec(&last).expect("all keys are strings")
}

fn parse(text: &[u8]) -> Result<Rows, String> {
    let last: Last = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if last.auster_vlans != VERSION {
        return Err(format!("its version is {}", last.auster_vlans));
    }
    let mut rows = Rows::new();
    for port in last.ports {
        let at = location(&port.at)?;
        let row = Row {
            at,
            name: port.name,
            columns: VlanColumns {
                tag: port.tag,
                trunks: port.trunks,
                mode: port.vlan_mode.as_deref().map(VlanMode::of),
            },
        };
        rows.entry(at.dpid).or_default().push(row);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use control::controller::Location;
    use openflow::{DatapathId, PortNo};
    use proptest::prelude::*;

    use super::*;

    fn row() -> impl Strategy<Value = Row> {
        let modes = proptest::sample::select(vec![
            "access",
            "trunk",
            "native-tagged",
            "native-untagged",
            "dot1q-tunnel",
            "unknown",
        ]);
        let columns = (
            any::<Option<u16>>(),
            proptest::collection::btree_set(any::<u16>(), 0..3),
            proptest::option::of(modes),
        );
        (1u64..4, 1u32..0xff00, ".{0,8}", columns).prop_map(|(dpid, port, name, columns)| Row {
            at: Location::new(DatapathId(dpid), PortNo(port)),
            name,
            columns: VlanColumns {
                tag: columns.0,
                trunks: columns.1,
                mode: columns.2.map(VlanMode::of),
            },
        })
    }

    fn rows(all: Vec<Row>) -> Rows {
        let mut rows = Rows::new();
        for row in all {
            rows.entry(row.at.dpid).or_default().push(row);
        }
        rows
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(all in proptest::collection::vec(row(), 0..9)) {
            let rows = rows(all);
            prop_assert_eq!(parse(&text(&rows)), Ok(rows));
        }

        #[test]
        fn any_file_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), Rows::new());
        for text in ["{", "{\"auster_vlans\":2,\"ports\":[]}"] {
            fs::write(file(dir.path()), text).unwrap();
            assert_eq!(read(dir.path()), Rows::new(), "{text}");
        }
        let odd = "{\"auster_vlans\":1,\"ports\":[{\"at\":\"1:x\",\"name\":\"\",\"tag\":1,\
                   \"trunks\":[],\"vlan_mode\":null}]}";
        fs::write(file(dir.path()), odd).unwrap();
        assert_eq!(read(dir.path()), Rows::new());
    }

    /// A datapath without a database keeps its VLANs, and a reconnected one has those it reports.
    #[tokio::test]
    async fn the_file_follows_the_databases() {
        let dir = tempfile::tempdir().unwrap();
        let access = |dpid, tag| Row {
            at: Location::new(DatapathId(dpid), PortNo(1)),
            name: "p1".to_owned(),
            columns: VlanColumns {
                tag: Some(tag),
                ..VlanColumns::default()
            },
        };
        let first = rows(vec![access(1, 10), access(2, 10)]);
        let (said, heard) = watch::channel(Rows::new());
        let keeping = tokio::spawn(keep(dir.path().to_owned(), first, heard));
        said.send(rows(vec![access(2, 20)])).unwrap();
        drop(said);
        keeping.await.unwrap();
        assert_eq!(read(dir.path()), rows(vec![access(1, 10), access(2, 20)]));
    }
}
