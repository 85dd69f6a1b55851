//! BFD on interfaces: the column `bfd`, and the transactions that change it.
//!
//! A session made by auster has a mark among its settings: the key `auster` names the port at the
//! other end. So one column contains everything. An administrator who changes it takes the session
//! over: auster never changes a column with other settings than [`Session`] writes. A mark in
//! `external_ids` would take memory for each interface, since other programs store much there.

use super::{DATABASE, Interface, qos::is_still};
use crate::replica::Row;
use crate::transact::{Condition, Operation, Transaction};
use crate::value::Datum;

const COLUMN: &str = "bfd";
/// The key of the mark.
const MARK: &str = "auster";

/// BFD of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bfd {
    /// Nothing is set.
    #[default]
    Absent,
    /// auster has set it.
    Ours {
        /// Settings.
        session: Session,
        /// Whether the session is up.
        is_up: bool,
    },
    /// The administrator has set something, even if only that BFD stays off.
    Others,
}

/// Settings of a session that auster makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Datapath id of the switch at the other end.
    pub peer_datapath_id: u64,
    /// OpenFlow number of the port at the other end.
    pub peer_port: u32,
    /// Time between two messages, in milliseconds.
    pub interval_ms: u32,
}

impl Bfd {
    pub(super) fn of(row: &Row) -> Bfd {
        match row.get(COLUMN) {
            None => Bfd::Absent,
            Some(datum) if *datum == unset() => Bfd::Absent,
            Some(datum) => match Session::of(datum) {
                Some(session) => Bfd::Ours {
                    session,
                    is_up: row.get("bfd_status").and_then(|s| s.get("state")) == Some("up"),
                },
                None => Bfd::Others,
            },
        }
    }
}

impl Session {
    fn of(datum: &Datum) -> Option<Session> {
        let (datapath, port) = datum.get(MARK)?.split_once(':')?;
        let session = Session {
            peer_datapath_id: u64::from_str_radix(datapath, 16).ok()?,
            peer_port: port.parse().ok()?,
            interval_ms: datum.get("min_tx")?.parse().ok()?,
        };
        (session.datum() == *datum).then_some(session)
    }

    fn datum(&self) -> Datum {
        let Session {
            peer_datapath_id,
            peer_port,
            interval_ms,
        } = self;
        Datum::map([
            (MARK, format!("{peer_datapath_id:016x}:{peer_port}")),
            ("enable", "true".to_owned()),
            ("min_rx", interval_ms.to_string()),
            ("min_tx", interval_ms.to_string()),
        ])
    }
}

impl Interface {
    /// Makes the transaction that gives the interface this session, or removes auster's. Returns
    /// `None` if nothing has to change, or the administrator has set something.
    pub fn set_bfd(&self, wanted: Option<&Session>) -> Option<Transaction> {
        let old = match &self.bfd {
            Bfd::Absent => None,
            Bfd::Ours { session, .. } => Some(session),
            Bfd::Others => return None,
        };
        if old == wanted {
            return None;
        }
        let datum = |session: Option<&Session>| session.map_or_else(unset, Session::datum);
        let read = Row::from([(COLUMN.to_owned(), datum(old))]);
        let here = vec![Condition::equal("_uuid", self.uuid)];
        let change = Operation::update("Interface", here, [(COLUMN, datum(wanted))]);
        let still = is_still("Interface", self.uuid, read);
        Some(Transaction::new(DATABASE).then(still).then(change))
    }
}

fn unset() -> Datum {
    Datum::map::<&str, &str>([])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Uuid;

    const SESSION: Session = Session {
        peer_datapath_id: 0x2a,
        peer_port: 3,
        interval_ms: 100,
    };

    fn interface(bfd: Bfd) -> Interface {
        Interface {
            bfd,
            ..super::super::read_interface(Uuid(1), &Row::new())
        }
    }

    fn read(bfd: Datum, state: &str) -> Bfd {
        let status = Datum::map([("state", state)]);
        Bfd::of(&Row::from([
            (COLUMN.to_owned(), bfd),
            ("bfd_status".to_owned(), status),
        ]))
    }

    #[test]
    fn what_is_written_is_read_and_everything_else_is_the_administrators() {
        let ours = |is_up| Bfd::Ours {
            session: SESSION,
            is_up,
        };
        assert_eq!(read(SESSION.datum(), "up"), ours(true));
        assert_eq!(read(SESSION.datum(), "init"), ours(false));
        assert_eq!(read(unset(), "down"), Bfd::Absent);
        assert_eq!(Bfd::of(&Row::new()), Bfd::Absent, "an older schema");
        let Datum::Map(written) = SESSION.datum() else {
            panic!("a map")
        };
        for (key, value) in [
            ("auster", "2a:3"),
            ("auster", "000000000000002a"),
            ("auster", "+00000000000002a:3"),
            ("auster", "000000000000002a:+3"),
            ("auster", "000000000000002a:99999999999"),
            ("min_tx", "300"),
            ("min_rx", "0100"),
            ("enable", "false"),
            ("decay_min_rx", "1000"),
        ] {
            let mut other = written.clone();
            other.insert(key.into(), value.into());
            assert_eq!(read(Datum::Map(other), "up"), Bfd::Others, "{key}={value}");
        }
        assert_eq!(read(Datum::map([("enable", "true")]), "up"), Bfd::Others);
        assert_eq!(read(Datum::set(["enable"]), "up"), Bfd::Others);
    }

    #[test]
    fn only_a_difference_is_written_and_never_over_the_administrators_settings() {
        let ours = Bfd::Ours {
            session: SESSION,
            is_up: false,
        };
        let faster = Session {
            interval_ms: 200,
            ..SESSION
        };
        let counts = [
            (interface(Bfd::Absent).set_bfd(None), 0),
            (interface(Bfd::Absent).set_bfd(Some(&SESSION)), 2),
            (interface(ours).set_bfd(Some(&SESSION)), 0),
            (interface(ours).set_bfd(Some(&faster)), 2),
            (interface(ours).set_bfd(None), 2),
            (interface(Bfd::Others).set_bfd(None), 0),
            (interface(Bfd::Others).set_bfd(Some(&SESSION)), 0),
        ];
        for (n, (transaction, count)) in counts.into_iter().enumerate() {
            let operations = transaction.map_or(0, |t| t.operations.len());
            assert_eq!(operations, count, "{n}");
        }
    }
}
