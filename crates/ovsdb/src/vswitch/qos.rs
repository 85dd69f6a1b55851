//! The queues of ports: rows of the tables QoS and Queue, and the transactions that change them.
//!
//! The database deletes unused rows of neither table, and rows may be shared: two ports may refer
//! to one QoS, two QoS to one queue. So one transaction makes each change of a port. It first
//! asserts that the rows it starts from have not changed. Then it inserts the new rows, refers to
//! them, and deletes the rows that nothing refers to any more. A concurrent change fails the
//! transaction as a whole. If the program is killed, the change is complete or absent.
//!
//! Rows made by auster have a mark in `external_ids`. Rows without the mark are never changed.
//!
//! With [`QueueSelection::Dscp`] the kernel beside the switch makes the queues, so the rows alone
//! are no queues yet. The program that makes them reports the result ([`InKernel`]) and the
//! counters in `external_ids` of the QoS row. The report names the settings that it is about, so
//! that a later change of the rows makes it void.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{DATABASE, Port, number, option, references, request_reconfiguration, text};
use crate::replica::{Replica, Row};
use crate::transact::{Condition, Function, Mutation, Mutator, Operation, Transaction};
use crate::value::{Atom, Datum, Uuid};

/// The key of the mark.
const MARK: &str = "auster";
/// The key of the report about the kernel's queues.
const KERNEL: &str = "auster-kernel";
/// The key of the kernel queues' counters: `NUMBER=PACKETS:DROPPED`, separated by spaces.
const COUNTS: &str = "auster-counts";
const MADE: &str = "made: ";
const FAILED: &str = "failed: ";
/// Maximum length of a problem's text in the row.
const PROBLEM_BYTES_MAX: usize = 1000;
const HTB: &str = "linux-htb";
const NOOP: &str = "linux-noop";

/// Maximum number of rows that one transaction of [`Orphans`] deletes.
const DELETED_MAX: usize = 1000;

/// The program of auster that made a row, by the row's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// `auster queues`. The rows stay until that command removes them.
    Command,
    /// `auster run`, which keeps the rows as its configuration states.
    Controller,
}

/// Method by which a packet gets into a queue on a datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSelection {
    /// Open vSwitch makes the queues, and a flow's `set_queue` chooses.
    SetQueue,
    /// The datapath ignores `set_queue`, but Open vSwitch writes the queue's DSCP into the packets
    /// of a flow that names the queue, even for type `linux-noop`. The kernel acts on the DSCP.
    Dscp,
}

/// Queues that a port should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortQueues {
    /// Rate of the port as a whole, in bits per second.
    pub max_rate_bps: Option<u64>,
    /// Queues by the number that OpenFlow's SET_QUEUE names.
    pub queues: BTreeMap<u32, Queue>,
}

/// Guarantees and limits of one queue; `None` leaves the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Guaranteed rate, in bits per second.
    pub min_rate_bps: Option<u64>,
    /// Rate that is never exceeded, in bits per second.
    pub max_rate_bps: Option<u64>,
    /// Burst after an idle time, in bits.
    pub burst_bits: Option<u64>,
    /// Order in which queues get spare rate; lower numbers first. Only htb uses it.
    pub priority: Option<u32>,
    /// DSCP that Open vSwitch writes into the queue's packets, 0 to 63.
    pub dscp: Option<u8>,
}

/// A row of table QoS: the shaping of a port's output.
#[derive(Clone, Debug, PartialEq)]
pub struct Qos {
    /// Identity of the row in table QoS.
    pub uuid: Uuid,
    /// `linux-htb`, `linux-hfsc`, … or `linux-noop`.
    pub kind: String,
    /// Program that made the row; `None` if it was not auster.
    pub owner: Option<Owner>,
    /// Rate of the port as a whole, in bits per second.
    pub max_rate_bps: Option<u64>,
    /// Queues by the number that OpenFlow's SET_QUEUE names.
    pub queues: BTreeMap<u32, QueueRow>,
    /// Whether another port uses it too.
    is_shared: bool,
    /// The row as it was read.
    row: Row,
}

/// Report in a QoS row about the queues in the kernel beside the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InKernel {
    /// No report, or one about other settings.
    Unsaid,
    /// The kernel has the queues of the rows.
    Made,
    /// The kernel does not have them, for this reason.
    Failed(String),
}

/// Counters of a queue since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCount {
    /// Packets that the queue has sent.
    pub packets: u64,
    /// Packets that the queue has dropped.
    pub dropped: u64,
}

/// Counters by the number of the queue.
pub type QueueCounts = BTreeMap<u32, QueueCount>;

/// A row of table Queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueRow {
    /// Identity of the row.
    pub uuid: Uuid,
    /// Program that made the row; `None` if it was not auster.
    pub owner: Option<Owner>,
    /// Settings of the queue.
    pub queue: Queue,
    /// Whether another QoS uses it too.
    is_shared: bool,
    options: Datum,
}

/// Refusal to change a port's queues, because another program made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Name of the port.
    pub port: String,
    /// Type of its QoS row.
    pub kind: String,
    /// Program that made it; `None` if it was not auster.
    pub by: Option<Owner>,
}

/// Rows with our mark that no port uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    qos: Vec<(Uuid, Owner)>,
    queues: Vec<(Uuid, Owner)>,
}

impl Owner {
    /// All owners.
    pub const ALL: [Owner; 2] = [Owner::Command, Owner::Controller];

    fn name(self) -> &'static str {
        match self {
            Owner::Command => "queues",
            Owner::Controller => "run",
        }
    }

    fn of(row: &Row) -> Option<Owner> {
        let name = row.get("external_ids")?.get(MARK)?;
        Owner::ALL.into_iter().find(|owner| owner.name() == name)
    }

    fn mark(self) -> Datum {
        Datum::map([(MARK, self.name())])
    }

    /// Returns the condition for rows with the owner's mark.
    fn is_its(self) -> Condition {
        Condition::new("external_ids", Function::Includes, self.mark())
    }
}

impl QueueSelection {
    /// Chooses by `Bridge.datapath_type`. Empty text means `system`, the kernel's datapath.
    pub fn of(datapath_type: &str) -> QueueSelection {
        match datapath_type {
            "" | "system" => QueueSelection::SetQueue,
            _ => QueueSelection::Dscp,
        }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Taken { port, kind, by } = self;
        match by {
            None => write!(
                f,
                "port has a QoS record of type {kind} that auster did not make; remove it first: \
                 ovs-vsctl clear port {port} qos"
            ),
            Some(Owner::Command) => write!(
                f,
                "port has queues that auster queues set has made; remove them first: \
                 auster queues clear --port {port}"
            ),
            Some(Owner::Controller) => write!(
                f,
                "port has queues that auster run looks after; change them in its configuration"
            ),
        }
    }
}

impl std::error::Error for Taken {}

impl Qos {
    /// Reports whether the kernel beside the switch must make these queues.
    pub fn is_for_kernel(&self) -> bool {
        self.owner == Some(Owner::Controller) && self.kind == NOOP
    }

    /// Reads the row's report about the queues in the kernel beside the switch.
    pub fn in_kernel(&self) -> InKernel {
        let said = self.said(KERNEL);
        let made = |text: &str| text.strip_prefix(MADE) == Some(&self.asked());
        match said {
            Some(text) if made(text) => InKernel::Made,
            Some(text) => match text.strip_prefix(FAILED) {
                Some(problem) => InKernel::Failed(problem.to_owned()),
                None => InKernel::Unsaid,
            },
            None => InKernel::Unsaid,
        }
    }

    /// Makes the transaction that writes this report; `None` if the row has it already.
    pub fn say_in_kernel(&self, what: &InKernel) -> Option<Transaction> {
        let text = match what {
            InKernel::Unsaid => None,
            InKernel::Made => Some(format!("{MADE}{}", self.asked())),
            InKernel::Failed(problem) => {
                let end = problem.floor_char_boundary(PROBLEM_BYTES_MAX);
                Some(format!("{FAILED}{}", &problem[..end]))
            }
        };
        self.say(KERNEL, text)
    }

    /// Reads the counters of the queues in the kernel, if the row has them.
    pub fn counts(&self) -> Option<QueueCounts> {
        let items = self.said(COUNTS)?.split_ascii_whitespace();
        let read = |item: &str| {
            let (number, count) = item.split_once('=')?;
            let (packets, dropped) = count.split_once(':')?;
            let count = QueueCount {
                packets: packets.parse().ok()?,
                dropped: dropped.parse().ok()?,
            };
            Some((number.parse().ok()?, count))
        };
        items.map(read).collect()
    }

    /// Makes the transaction that writes these counters; `None` if the row has them already.
    pub fn say_counts(&self, counts: &QueueCounts) -> Option<Transaction> {
        let item = |(number, count): (&u32, &QueueCount)| {
            format!("{number}={}:{}", count.packets, count.dropped)
        };
        let items: Vec<String> = counts.iter().map(item).collect();
        self.say(COUNTS, Some(items.join(" ")))
    }

    /// Fails the transaction if the row has lost its mark or has changed, other than in its report
    /// about the kernel, which changes by itself.
    fn is_still_its(&self) -> Operation {
        let mut row = self.row.clone();
        let Some(owner) = self.owner else {
            return is_still("QoS", self.uuid, row);
        };
        row.remove("external_ids");
        let mut still = is_still("QoS", self.uuid, row);
        if let Operation::Wait { conditions, .. } = &mut still {
            conditions.push(owner.is_its());
        }
        still
    }

    fn said(&self, key: &str) -> Option<&str> {
        self.row.get("external_ids")?.get(key)
    }

    fn say(&self, key: &str, text: Option<String>) -> Option<Transaction> {
        if self.said(key) == text.as_deref() {
            return None;
        }
        let ids = "external_ids";
        // An insertion does not overwrite an existing key, so the key is deleted first.
        let mut changes = vec![Mutation::new(ids, Mutator::Delete, Datum::set([key]))];
        changes.extend(
            text.map(|text| Mutation::new(ids, Mutator::Insert, Datum::map([(key, text)]))),
        );
        let here = vec![Condition::equal("_uuid", self.uuid)];
        Some(Transaction::new(DATABASE).then(Operation::mutate("QoS", here, changes)))
    }

    /// Returns, in one line, all that the kernel must make from the rows.
    fn asked(&self) -> String {
        let rate = self.max_rate_bps.map(|bps| format!("max-rate={bps}"));
        let queues = self.queues.iter();
        let queues = queues.map(|(number, row)| format!("{number}({})", row.queue));
        let all: Vec<String> = rate.into_iter().chain(queues).collect();
        all.join(" ")
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("min-rate", self.min_rate_bps),
            ("max-rate", self.max_rate_bps),
            ("burst", self.burst_bits),
            ("priority", self.priority.map(u64::from)),
            ("dscp", self.dscp.map(u64::from)),
        ];
        let mut separator = "";
        for (key, value) in fields {
            if let Some(value) = value {
                write!(f, "{separator}{key}={value}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}

impl Port {
    /// Returns the refusal that `owner` would get, if the port's queues are not its own.
    pub fn taken(&self, owner: Owner) -> Option<Taken> {
        let qos = self.qos.as_ref().filter(|qos| qos.owner != Some(owner))?;
        Some(Taken {
            port: self.name.clone(),
            kind: qos.kind.clone(),
            by: qos.owner,
        })
    }

    /// Makes the transaction that gives the port these queues; `None` if it has them already.
    ///
    /// # Errors
    /// [`Taken`] if the port has queues of another owner.
    pub fn set_queues(
        &self,
        owner: Owner,
        selection: QueueSelection,
        wanted: &PortQueues,
    ) -> Result<Option<Transaction>, Taken> {
        if let Some(taken) = self.taken(owner) {
            return Err(taken);
        }
        let wanted = Wanted::new(selection, wanted);
        if let Some(qos) = &self.qos
            && wanted.is(owner, qos)
        {
            return Ok(None);
        }
        let transaction = wanted.insert(self.guarded(), owner);
        let new = Datum::from(Atom::NamedUuid(Wanted::NAME.into()));
        Ok(Some(self.replaced(transaction, new)))
    }

    /// Makes the transaction that removes the port's queues, if one of `owners` made them.
    pub fn clear_queues(&self, owners: &[Owner]) -> Option<Transaction> {
        let owner = self.qos.as_ref()?.owner?;
        let is_cleared = owners.contains(&owner);
        is_cleared.then(|| self.replaced(self.guarded(), Datum::empty()))
    }

    /// Makes a transaction that fails if the port has another QoS by now, or if this one has
    /// changed or has another owner.
    fn guarded(&self) -> Transaction {
        let qos = self.qos.as_ref();
        let has = qos.map_or_else(Datum::empty, |qos| Datum::from(qos.uuid));
        let port = Row::from([("qos".to_owned(), has)]);
        let transaction = Transaction::new(DATABASE).then(is_still("Port", self.uuid, port));
        match qos {
            Some(qos) => transaction.then(qos.is_still_its()),
            None => transaction,
        }
    }

    fn replaced(&self, transaction: Transaction, qos: Datum) -> Transaction {
        let here = vec![Condition::equal("_uuid", self.uuid)];
        let mut transaction = transaction.then(Operation::update("Port", here, [("qos", qos)]));
        if let Some(old) = self.qos.as_ref().filter(|qos| !qos.is_shared)
            && let Some(owner) = old.owner
        {
            transaction = transaction.then(delete("QoS", old.uuid, owner));
            let mut deleted = BTreeSet::new();
            for queue in old.queues.values().filter(|queue| !queue.is_shared) {
                // A queue with two numbers occurs twice.
                if let Some(owner) = queue.owner
                    && deleted.insert(queue.uuid)
                {
                    transaction = transaction.then(delete("Queue", queue.uuid, owner));
                }
            }
        }
        request_reconfiguration(transaction)
    }
}

impl Orphans {
    /// Finds rows that have a mark and that no port refers to.
    pub fn of(replica: &Replica) -> Orphans {
        let used: BTreeSet<Uuid> = replica
            .rows("Port")
            .flat_map(|(_, row)| references(row, "qos"))
            .collect();
        let qos: Vec<(Uuid, Owner)> = replica
            .rows("QoS")
            .filter(|(uuid, _)| !used.contains(uuid))
            .filter_map(|(uuid, row)| Some((uuid, Owner::of(row)?)))
            .collect();
        let gone: BTreeSet<Uuid> = qos.iter().map(|(uuid, _)| *uuid).collect();
        let used: BTreeSet<Uuid> = replica
            .rows("QoS")
            .filter(|(uuid, _)| !gone.contains(uuid))
            .flat_map(|(_, row)| references(row, "queues"))
            .collect();
        let queues = replica
            .rows("Queue")
            .filter(|(uuid, _)| !used.contains(uuid))
            .filter_map(|(uuid, row)| Some((uuid, Owner::of(row)?)));
        let queues = queues.collect();
        Orphans { qos, queues }
    }

    /// Number of rows, queues included.
    pub fn len(&self) -> usize {
        self.qos.len() + self.queues.len()
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the transaction that removes the rows, 1,000 at most. The server refuses it if a row
    /// is referred to by then.
    pub fn removal(&self) -> Option<Transaction> {
        if self.is_empty() {
            return None;
        }
        // A queue is deleted with the last QoS that refers to it, or after it.
        let qos = self.qos.iter().map(|row| ("QoS", row));
        let queues = self.queues.iter().map(|row| ("Queue", row));
        let rows = qos.chain(queues).take(DELETED_MAX);
        let transaction = Transaction::new(DATABASE);
        Some(
            rows.fold(transaction, |transaction, (table, (uuid, owner))| {
                transaction.then(delete(table, *uuid, *owner))
            }),
        )
    }
}

/// Number of rows that refer to a row.
pub(super) struct Shares {
    of_qos: BTreeMap<Uuid, usize>,
    of_queues: BTreeMap<Uuid, usize>,
}

impl Shares {
    pub(super) fn of(replica: &Replica) -> Shares {
        let count = |table: &str, column: &str| {
            let mut counts: BTreeMap<Uuid, usize> = BTreeMap::new();
            for (_, row) in replica.rows(table) {
                let once: BTreeSet<Uuid> = references(row, column).into_iter().collect();
                for uuid in once {
                    *counts.entry(uuid).or_default() += 1;
                }
            }
            counts
        };
        Shares {
            of_qos: count("Port", "qos"),
            of_queues: count("QoS", "queues"),
        }
    }
}

pub(super) fn read_qos(replica: &Replica, shares: &Shares, uuid: Uuid, row: &Row) -> Qos {
    let mut queues = BTreeMap::new();
    if let Some(Datum::Map(map)) = row.get("queues") {
        for (number, queue) in map {
            if let (Atom::Integer(number), Atom::Uuid(uuid)) = (number, queue)
                && let Ok(number) = u32::try_from(*number)
                && let Some(row) = replica.row("Queue", *uuid)
            {
                queues.insert(number, read_queue(shares, *uuid, row));
            }
        }
    }
    Qos {
        uuid,
        kind: text(row, "type").unwrap_or_default(),
        owner: Owner::of(row),
        max_rate_bps: option(row, "max-rate"),
        queues,
        is_shared: shares.of_qos.get(&uuid).is_some_and(|count| *count > 1),
        row: row.clone(),
    }
}

fn read_queue(shares: &Shares, uuid: Uuid, row: &Row) -> QueueRow {
    QueueRow {
        uuid,
        owner: Owner::of(row),
        queue: Queue {
            min_rate_bps: option(row, "min-rate"),
            max_rate_bps: option(row, "max-rate"),
            burst_bits: option(row, "burst"),
            priority: option(row, "priority"),
            dscp: number(row, "dscp"),
        },
        is_shared: shares.of_queues.get(&uuid).is_some_and(|count| *count > 1),
        options: options(row),
    }
}

fn options(row: &Row) -> Datum {
    let options = row.get("other_config").cloned();
    options.unwrap_or_else(|| Datum::Map(BTreeMap::new()))
}

/// The rows that a port must have, without their identities.
struct Wanted {
    kind: &'static str,
    options: Datum,
    queues: BTreeMap<u32, WantedQueue>,
}

struct WantedQueue {
    options: Datum,
    dscp: Option<u8>,
}

impl Wanted {
    /// Name of the QoS row in the transaction that inserts it.
    const NAME: &'static str = "qos";

    fn new(selection: QueueSelection, wanted: &PortQueues) -> Wanted {
        let max_rate = wanted.max_rate_bps.map(|bps| ("max-rate", bps.to_string()));
        let options = Datum::map(max_rate);
        // With the first selection Open vSwitch limits the rate, with the second the kernel beside
        // it.
        let kind = match selection {
            QueueSelection::SetQueue => HTB,
            QueueSelection::Dscp => NOOP,
        };
        // Without a code point, such a queue has no effect.
        let is_marked = wanted.queues.values().any(|queue| queue.dscp.is_some());
        let has_queues = selection == QueueSelection::SetQueue || is_marked;
        let queues = wanted.queues.iter().filter(|_| has_queues);
        let queues = queues.map(|(number, queue)| (*number, WantedQueue::new(queue)));
        Wanted {
            kind,
            options,
            queues: queues.collect(),
        }
    }

    fn is(&self, owner: Owner, qos: &Qos) -> bool {
        let is_there = |(number, queue): (&u32, &WantedQueue)| {
            qos.queues.get(number).is_some_and(|row| {
                row.owner == Some(owner)
                    && row.options == queue.options
                    && row.queue.dscp == queue.dscp
            })
        };
        self.kind == qos.kind
            && self.options == options(&qos.row)
            && self.queues.len() == number_count(&qos.row)
            && self.queues.iter().all(is_there)
    }

    fn insert(&self, mut transaction: Transaction, owner: Owner) -> Transaction {
        let name = |number: &u32| format!("queue{number}");
        for (number, queue) in &self.queues {
            let row = [
                ("other_config", queue.options.clone()),
                ("dscp", Datum::set(queue.dscp.map(i64::from))),
                ("external_ids", owner.mark()),
            ];
            transaction = transaction.then(Operation::insert_named(&name(number), "Queue", row));
        }
        let queues = self.queues.keys();
        let queues = queues.map(|number| (i64::from(*number), Atom::NamedUuid(name(number))));
        let row = [
            ("type", Datum::from(self.kind)),
            ("other_config", self.options.clone()),
            ("queues", Datum::map(queues)),
            ("external_ids", owner.mark()),
        ];
        transaction.then(Operation::insert_named(Wanted::NAME, "QoS", row))
    }
}

impl WantedQueue {
    fn new(queue: &Queue) -> WantedQueue {
        let options = [
            ("min-rate", queue.min_rate_bps),
            ("max-rate", queue.max_rate_bps),
            ("burst", queue.burst_bits),
            ("priority", queue.priority.map(u64::from)),
        ];
        let set = options.into_iter();
        let set = set.filter_map(|(key, n)| Some((key, n?.to_string())));
        WantedQueue {
            options: Datum::map(set),
            dscp: queue.dscp,
        }
    }
}

/// Counts the queues that a QoS row names, even those whose rows are not in the replica.
fn number_count(row: &Row) -> usize {
    match row.get("queues") {
        Some(Datum::Map(map)) => map.len(),
        _ => 0,
    }
}

/// Fails the transaction if the row's columns differ from `row`, or the row was deleted.
pub(super) fn is_still(table: &str, uuid: Uuid, row: Row) -> Operation {
    Operation::Wait {
        table: table.into(),
        conditions: vec![Condition::equal("_uuid", uuid)],
        columns: row.keys().cloned().collect(),
        until_equal: true,
        rows: vec![row],
        timeout_ms: 0,
    }
}

/// Deletes a row, unless it has lost its mark meanwhile.
fn delete(table: &str, uuid: Uuid, owner: Owner) -> Operation {
    Operation::delete(table, vec![Condition::equal("_uuid", uuid), owner.is_its()])
}
