//! Follows changes of the configuration and the databases: the VLANs to use, the ports whose VLANs
//! differ, and the new lines.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use control::controller::Location;
use control::vlan::Vlans;
use driver::databases::{DatapathView, Views};
use openflow::{DatapathId, PortNo};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Stated;
use super::columns::{Combined, Row, combine};

/// Numbers above this are reserved in the database, which uses those of OpenFlow 1.0.
const PORT_MAX: u32 = 0xff00;

/// Datapaths whose VLANs are kept while their databases are disconnected. Above this number, those
/// are forgotten: a hostile database may name any number of datapaths.
const DATAPATHS_MAX: usize = 10_000;

/// The shortest time between two reads of the views of databases.
const LOOK: Duration = Duration::from_millis(200);

/// The ports with VLAN columns, by datapath. A datapath without such ports has an empty list.
pub type Rows = BTreeMap<DatapathId, Vec<Row>>;

/// A change of the VLANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The VLANs of all ports from now on.
    pub vlans: Vlans,
    /// The ports whose VLANs have changed.
    pub changed: BTreeSet<Location>,
}

/// The VLANs in use, and their sources.
pub struct Follower {
    stated: Stated,
    rows: Rows,
    combined: Combined,
    /// The VLANs that the controller has.
    used: Vlans,
    /// The last line about each port.
    told: BTreeMap<Location, String>,
}

impl Follower {
    /// Starts with a controller that has the VLANs of the configuration.
    pub fn new(stated: Stated) -> Follower {
        Follower {
            combined: combine(&stated, []),
            used: stated.vlans.clone(),
            stated,
            rows: Rows::new(),
            told: BTreeMap::new(),
        }
    }

    pub fn stated(&self) -> &Stated {
        &self.stated
    }

    /// Sets the VLANs that the configuration states.
    pub fn set_stated(&mut self, stated: Stated) {
        self.stated = stated;
        self.combined = combine(&self.stated, self.rows.values().flatten());
    }

    /// Sets the VLANs that the connected databases state. A datapath without a connected database
    /// keeps its last VLANs: its ports must not get into other VLANs because of that.
    pub fn set_rows(&mut self, rows: Rows) {
        merge(&mut self.rows, rows);
        self.combined = combine(&self.stated, self.rows.values().flatten());
    }

    /// Whether the controller has VLANs other than the combined ones.
    pub fn is_behind(&self) -> bool {
        self.combined.vlans != self.used
    }

    /// The change that the controller does not have yet.
    pub fn change(&self) -> Option<Change> {
        let vlans = &self.combined.vlans;
        self.is_behind().then(|| Change {
            vlans: vlans.clone(),
            changed: vlans.changed(&self.used),
        })
    }

    /// Notes that the controller has these VLANs now.
    pub fn handle_used(&mut self, vlans: Vlans) {
        self.used = vlans;
    }

    /// The new lines, at most one for each port.
    pub fn poll_lines(&mut self) -> Vec<String> {
        let told = mem::replace(&mut self.told, self.combined.lines.clone());
        let lines = self.combined.lines.iter();
        let new = lines.filter(|(at, line)| told.get(at) != Some(*line));
        new.map(|(_, line)| line.clone()).collect()
    }
}

/// Replaces the earlier VLANs of the connected databases with their present ones.
pub(super) fn merge(rows: &mut Rows, now: Rows) {
    if rows.len() + now.len() > DATAPATHS_MAX {
        rows.retain(|dpid, _| now.contains_key(dpid));
    }
    rows.extend(now);
    rows.retain(|_, rows| !rows.is_empty());
}

/// Reads the VLAN columns whenever the databases report something. The task ends with the receiver
/// or the databases.
pub fn watch(mut views: watch::Receiver<Views>) -> (watch::Receiver<Rows>, JoinHandle<()>) {
    let (sender, receiver) = watch::channel(Rows::new());
    // A database may have reported before.
    views.mark_changed();
    let task = tokio::spawn(async move {
        while views.changed().await.is_ok() && !sender.is_closed() {
            let now = rows(&views.borrow_and_update());
            sender.send_if_modified(|rows| {
                let is_other = *rows != now;
                *rows = now;
                is_other
            });
            // Databases also report other changes, and may do so often.
            tokio::time::sleep(LOOK).await;
        }
    });
    (receiver, task)
}

fn rows(views: &Views) -> Rows {
    views
        .iter()
        .map(|(dpid, view)| (*dpid, rows_of(*dpid, view)))
        .collect()
}

/// One row for each OpenFlow number of a port; a bond has several.
fn rows_of(dpid: DatapathId, view: &DatapathView) -> Vec<Row> {
    let ports = view.ports.iter().filter(|(_, port)| !port.vlans.is_empty());
    let rows = ports.flat_map(|(name, port)| {
        let numbers = port.numbers.iter().filter(|n| (1..PORT_MAX).contains(*n));
        numbers.map(move |number| Row {
            at: Location::new(dpid, PortNo(*number)),
            name: name.clone(),
            columns: port.vlans.clone(),
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use control::vlan::{PortVlans, VlanId};
    use ovsdb::vswitch::vlan::VlanColumns;

    use super::super::tests::read;
    use super::*;

    fn at(port: u32) -> Location {
        Location::new(DatapathId(1), PortNo(port))
    }

    fn rows(tags: &[(u32, u16)]) -> Rows {
        let row = |(port, tag): &(u32, u16)| Row {
            at: at(*port),
            name: format!("s1-eth{port}"),
            columns: VlanColumns {
                tag: Some(*tag),
                ..VlanColumns::default()
            },
        };
        [(DatapathId(1), tags.iter().map(row).collect())].into()
    }

    fn access(id: u16) -> PortVlans {
        PortVlans::Access(VlanId::new(id).unwrap())
    }

    const STATED: &str = "[[vlan]]\nid = 10\n[[port]]\nat = \"1:1\"\naccess = 10\n";

    fn follower(first: &str) -> Follower {
        Follower::new(read(&format!("{first}{STATED}")).unwrap())
    }

    /// The changed ports. The controller has the change afterwards.
    fn changed(follower: &mut Follower) -> Vec<u32> {
        let Some(Change { vlans, changed }) = follower.change() else {
            return Vec::new();
        };
        follower.handle_used(vlans);
        assert_eq!(follower.change(), None);
        changed.into_iter().map(|at| at.port.0).collect()
    }

    #[test]
    fn vlans_of_databases_are_followed_while_they_change() {
        let mut follower = follower("vlans = \"ovsdb\"\n");
        assert_eq!(changed(&mut follower), [0u32; 0], "the controller has them");
        follower.set_rows(rows(&[(2, 20), (3, 30)]));
        assert_eq!(changed(&mut follower), [2, 3]);
        follower.set_rows(rows(&[(2, 20), (3, 20)]));
        assert_eq!(changed(&mut follower), [3]);
        assert_eq!(follower.combined.vlans.ports[&at(3)], access(20));
        follower.set_rows(Rows::new());
        assert_eq!(changed(&mut follower), [0u32; 0], "its database is gone");
        follower.set_rows(rows(&[(3, 20)]));
        assert_eq!(changed(&mut follower), [2], "it has no VLAN any more");
        assert_eq!(follower.poll_lines(), [""; 0]);
    }

    #[test]
    fn a_change_that_the_controller_did_not_take_is_still_one() {
        let mut follower = follower("vlans = \"ovsdb\"\n");
        follower.set_rows(rows(&[(2, 20)]));
        assert!(follower.change().is_some() && follower.is_behind());
        follower.set_rows(rows(&[(2, 20), (3, 20)]));
        assert_eq!(changed(&mut follower), [2, 3]);
        assert!(!follower.is_behind());
    }

    #[test]
    fn the_configuration_read_again_gives_the_ports_that_differ() {
        let mut follower = follower("");
        follower.set_rows(rows(&[(2, 20)]));
        assert_eq!(changed(&mut follower), [0u32; 0]);
        let other = STATED.replace("1:1", "1:5");
        follower.set_stated(read(&other).unwrap());
        assert_eq!(changed(&mut follower), [1, 5]);
        follower.set_stated(read(&format!("vlans = \"ovsdb\"\n{other}")).unwrap());
        assert_eq!(changed(&mut follower), [2]);
        follower.set_stated(read("").unwrap());
        assert_eq!(changed(&mut follower), [2, 5]);
        assert!(!follower.combined.vlans.is_on());
    }

    #[test]
    fn datapaths_whose_databases_are_away_are_bounded() {
        let mut follower = follower("vlans = \"ovsdb\"\n");
        for dpid in 1..=DATAPATHS_MAX as u64 + 7 {
            let mut rows = rows(&[(2, 20)]);
            let row = rows.remove(&DatapathId(1)).unwrap();
            // In the views, one database appears at a time.
            follower.rows.insert(DatapathId(dpid), row);
        }
        follower.set_rows(rows(&[(3, 20)]));
        assert_eq!(follower.rows.len(), 1);
        let nothing = [(DatapathId(1), Vec::new())].into();
        follower.set_rows(nothing);
        assert_eq!(follower.rows.len(), 0);
    }

    #[test]
    fn a_line_comes_once_until_it_is_another() {
        let mut follower = follower("");
        follower.set_rows(rows(&[(2, 20)]));
        let lines = follower.poll_lines();
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].contains("s1-eth2 (0000000000000001:2) has tag=20"),
            "{lines:?}"
        );
        follower.set_rows(rows(&[(2, 20)]));
        follower.set_rows(Rows::new());
        assert_eq!(follower.poll_lines(), [""; 0]);
        follower.set_rows(rows(&[(2, 21)]));
        assert_eq!(follower.poll_lines().len(), 1);
        follower.set_rows(rows(&[]));
        assert_eq!(follower.poll_lines(), [""; 0]);
        follower.set_rows(rows(&[(2, 21)]));
        assert_eq!(follower.poll_lines().len(), 1, "it was gone");
    }
}
