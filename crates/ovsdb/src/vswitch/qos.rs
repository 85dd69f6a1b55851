//! The queues of ports: rows of the tables QoS and Queue, and the transactions that change them.
//!
//! The database collects neither table, and rows may be shared: a port may be pointed at another's
//! QoS, a QoS at another's queue. So there is one transaction for each change of a port. It holds
//! what it was worked out from to be as it was, inserts what is new and refers to it, and deletes
//! what is not referred to any more. Whoever changes something meanwhile makes it fail whole, and
//! whoever is killed has done all of it or nothing.
//!
//! What auster made bears a mark in `external_ids`. What does not is never written to.
//!
//! Where the kernel beside the switch makes the queues ([`Way::Dscp`]), rows that are written are no
//! queues yet. Whoever makes them there says so in the same column of the QoS row, with what they were
//! made of, so that it stands for no other rows ([`InKernel`]), and tells their counters there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{DATABASE, Port, number, option, references, request_reconfiguration, text};
use crate::replica::{Replica, Row};
use crate::transact::{Condition, Function, Mutation, Mutator, Operation, Transaction};
use crate::value::{Atom, Datum, Uuid};

/// The key of the mark.
const MARK: &str = "auster";
/// The key of what the kernel has.
const KERNEL: &str = "auster-kernel";
/// The key of what its queues have counted: `NUMBER=PACKETS:DROPPED`, and a space between.
const COUNTS: &str = "auster-counts";
const MADE: &str = "made: ";
const FAILED: &str = "failed: ";
/// Of a problem, in the row.
const PROBLEM_BYTES_MAX: usize = 1000;
const HTB: &str = "linux-htb";
const NOOP: &str = "linux-noop";

/// Rows that one transaction of [`Orphans`] deletes.
const DELETED_MAX: usize = 1000;

/// Who of auster made a row, as its mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// `auster queues`: they stay until it takes them away.
    Command,
    /// `auster run`: they are as its configuration says.
    Controller,
}

/// How a packet gets into a queue on a datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Open vSwitch makes the queues, and a flow's `set_queue` chooses.
    SetQueue,
    /// The datapath ignores `set_queue`, but a queue's DSCP is written into the packets of a flow
    /// that names the queue, also if the type is `linux-noop`. What the DSCP does is up to the kernel.
    Dscp,
}

/// What a port shall have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortQueues {
    /// Of the port as a whole, in bits per second.
    pub max_rate_bps: Option<u64>,
    /// By the number OpenFlow's SET_QUEUE names.
    pub queues: BTreeMap<u32, Queue>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Guaranteed, in bits per second.
    pub min_rate_bps: Option<u64>,
    /// Never exceeded, in bits per second.
    pub max_rate_bps: Option<u64>,
    /// Sent at once after a rest, in bits.
    pub burst_bits: Option<u64>,
    /// For htb: the lower the number the sooner it gets what is left over.
    pub priority: Option<u32>,
    /// Written into the packets of the queue, 0 to 63.
    pub dscp: Option<u8>,
}

/// What a port's sending is shaped by.
#[derive(Clone, Debug, PartialEq)]
pub struct Qos {
    pub uuid: Uuid,
    /// `linux-htb`, `linux-hfsc`, … or `linux-noop`.
    pub kind: String,
    /// `None` if it is somebody else's.
    pub owner: Option<Owner>,
    pub max_rate_bps: Option<u64>,
    /// By the number OpenFlow's SET_QUEUE names.
    pub queues: BTreeMap<u32, QueueRow>,
    /// Another port has it too.
    is_shared: bool,
    /// As it was read.
    row: Row,
}

/// What is said in a QoS row of the kernel beside the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InKernel {
    /// Nobody has said anything, or of other rows.
    Unsaid,
    /// The queues are as the rows say.
    Made,
    /// They are not, and why.
    Failed(String),
}

/// What a queue has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCount {
    pub packets: u64,
    pub dropped: u64,
}

/// By the number of the queue.
pub type QueueCounts = BTreeMap<u32, QueueCount>;

#[derive(Clone, Debug, PartialEq)]
pub struct QueueRow {
    pub uuid: Uuid,
    pub owner: Option<Owner>,
    pub queue: Queue,
    /// Another QoS has it too.
    is_shared: bool,
    options: Datum,
}

/// Why a port's queues are not touched: somebody else has given it some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub port: String,
    pub kind: String,
    pub by: Option<Owner>,
}

/// Rows with our mark that no port uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    qos: Vec<(Uuid, Owner)>,
    queues: Vec<(Uuid, Owner)>,
}

impl Owner {
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

    /// Of rows that bear its mark.
    fn is_its(self) -> Condition {
        Condition::new("external_ids", Function::Includes, self.mark())
    }
}

impl Way {
    /// By `Bridge.datapath_type`; empty is `system`, the kernel's.
    pub fn of(datapath_type: &str) -> Way {
        match datapath_type {
            "" | "system" => Way::SetQueue,
            _ => Way::Dscp,
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
    /// Whether these rows are for the kernel beside the switch to make.
    pub fn is_for_kernel(&self) -> bool {
        self.owner == Some(Owner::Controller) && self.kind == NOOP
    }

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

    /// What says this in the row; `None` if it is there.
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

    /// What the queues in the kernel have counted, if somebody has told.
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

    /// What tells these in the row; `None` if they are there.
    pub fn say_counts(&self, counts: &QueueCounts) -> Option<Transaction> {
        let item = |(number, count): (&u32, &QueueCount)| {
            format!("{number}={}:{}", count.packets, count.dropped)
        };
        let items: Vec<String> = counts.iter().map(item).collect();
        self.say(COUNTS, Some(items.join(" ")))
    }

    /// Fails the transaction if the row has changed but for what is said in it of the kernel, which
    /// changes by itself, or has lost its mark.
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
        // An insertion leaves a key alone that is there already, so it is taken away first.
        let mut changes = vec![Mutation::new(ids, Mutator::Delete, Datum::set([key]))];
        changes.extend(
            text.map(|text| Mutation::new(ids, Mutator::Insert, Datum::map([(key, text)]))),
        );
        let here = vec![Condition::equal("_uuid", self.uuid)];
        Some(Transaction::new(DATABASE).then(Operation::mutate("QoS", here, changes)))
    }

    /// All that the kernel is to make of the rows, in one line.
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
    /// Whose queues the port has, if they are not `owner`'s.
    pub fn taken(&self, owner: Owner) -> Option<Taken> {
        let qos = self.qos.as_ref().filter(|qos| qos.owner != Some(owner))?;
        Some(Taken {
            port: self.name.clone(),
            kind: qos.kind.clone(),
            by: qos.owner,
        })
    }

    /// What gives the port these queues; `None` if it has them.
    pub fn set_queues(
        &self,
        owner: Owner,
        way: Way,
        wanted: &PortQueues,
    ) -> Result<Option<Transaction>, Taken> {
        if let Some(taken) = self.taken(owner) {
            return Err(taken);
        }
        let wanted = Wanted::new(way, wanted);
        if let Some(qos) = &self.qos
            && wanted.is(owner, qos)
        {
            return Ok(None);
        }
        let transaction = wanted.insert(self.guarded(), owner);
        let new = Datum::from(Atom::NamedUuid(Wanted::NAME.into()));
        Ok(Some(self.replaced(transaction, new)))
    }

    /// What takes the port's queues away, if one of `owners` has made them.
    pub fn clear_queues(&self, owners: &[Owner]) -> Option<Transaction> {
        let owner = self.qos.as_ref()?.owner?;
        let is_cleared = owners.contains(&owner);
        is_cleared.then(|| self.replaced(self.guarded(), Datum::empty()))
    }

    /// Fails if the port has another QoS by now, or this one is another or somebody else's.
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
                // One that has two numbers is there twice.
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

    pub fn len(&self) -> usize {
        self.qos.len() + self.queues.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What removes them, or the first thousand. It fails if one has been referred to meanwhile.
    pub fn removal(&self) -> Option<Transaction> {
        if self.is_empty() {
            return None;
        }
        // A queue goes with the last QoS that refers to it, or after it.
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

/// How many rows refer to a row.
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

/// The rows that a port shall have, but for their identities.
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
    /// Of the QoS, in the transaction that inserts it.
    const NAME: &'static str = "qos";

    fn new(way: Way, wanted: &PortQueues) -> Wanted {
        let max_rate = wanted.max_rate_bps.map(|bps| ("max-rate", bps.to_string()));
        let options = Datum::map(max_rate);
        // The rate is Open vSwitch's with the one, and the kernel's beside it with the other.
        let kind = match way {
            Way::SetQueue => HTB,
            Way::Dscp => NOOP,
        };
        // Without a code point there is nothing that such a queue does.
        let is_marked = wanted.queues.values().any(|queue| queue.dscp.is_some());
        let has_queues = way == Way::SetQueue || is_marked;
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

/// Of queues that a QoS row names, also those whose rows are not in the replica.
fn number_count(row: &Row) -> usize {
    match row.get("queues") {
        Some(Datum::Map(map)) => map.len(),
        _ => 0,
    }
}

/// Fails the transaction if the row's columns are not those of `row`, or it is gone.
fn is_still(table: &str, uuid: Uuid, row: Row) -> Operation {
    Operation::Wait {
        table: table.into(),
        conditions: vec![Condition::equal("_uuid", uuid)],
        columns: row.keys().cloned().collect(),
        until_equal: true,
        rows: vec![row],
        timeout_ms: 0,
    }
}

/// Of a row that has lost its mark meanwhile, nothing is done.
fn delete(table: &str, uuid: Uuid, owner: Owner) -> Operation {
    Operation::delete(table, vec![Condition::equal("_uuid", uuid), owner.is_its()])
}
