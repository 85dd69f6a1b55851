//! Queues of an interface as records in Open vSwitch's database: a [`Plan`] in the terms of
//! [`ovsdb::vswitch::qos`], which decides what is ours and what to change.
//!
//! If the datapath honours `set_queue`, as the kernel's does, Open vSwitch makes the queues itself
//! from a QoS record. If not, the record has type `linux-noop`: without it, Open vSwitch removes
//! queues that it did not make, whenever it starts or adds a port. The record also has the queues'
//! marks. Open vSwitch writes a queue's mark into packets that a flow has put in the queue, even if
//! the datapath itself has no queues.

use driver::ovsdb::Client;
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use ovsdb::vswitch::qos::{Owner, PortQueues, Queue, QueueRow, QueueSelection};
use ovsdb::vswitch::{self, DATABASE};

use crate::queues::plan::{Class, Plan};
use crate::queues::tc::Change;

/// A port as its records describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    pub bridge: String,
    /// Empty means `system`, the kernel's.
    pub datapath: String,
    row: vswitch::Port,
}

/// A queue as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct QueueRecord {
    pub set_queue: u32,
    pub priority: Option<u8>,
    pub min_rate_bps: Option<u64>,
    pub max_rate_bps: Option<u64>,
    pub dscp: Option<u8>,
}

pub async fn connect(database: &Method) -> Result<Client, String> {
    let (security, clock) = (Security::plain(), Clock::start());
    let connected = Client::connect(database, &security, clock, ovsdb::Config::default());
    connected.await.map_err(|error| error.to_string())
}

impl Port {
    /// The records of the port with this name, if a bridge has one.
    pub async fn find(client: &mut Client, name: &str) -> Result<Option<Port>, String> {
        let request = vswitch::monitor_request();
        let monitored = client.monitor(DATABASE, &request);
        let monitor = monitored.await.map_err(|error| error.to_string())?;
        let (session, _) = client.session();
        let bridges = session.replica(monitor).map(vswitch::bridges);
        for bridge in bridges.unwrap_or_default().into_values() {
            if let Some(row) = bridge.ports.into_iter().find(|port| port.name == name) {
                return Ok(Some(Port {
                    bridge: bridge.name,
                    datapath: bridge.datapath_type,
                    row,
                }));
            }
        }
        Ok(None)
    }

    /// Whether `set_queue` chooses a queue here.
    pub fn honours_set_queue(&self) -> bool {
        self.queue_selection() == QueueSelection::SetQueue
    }

    fn queue_selection(&self) -> QueueSelection {
        QueueSelection::of(&self.datapath)
    }

    pub fn has_qos(&self) -> bool {
        self.row.qos.is_some()
    }

    /// Whether the port has a record that this command did not make, and what to do about it.
    pub fn foreign(&self) -> Option<String> {
        let taken = self.row.taken(Owner::Command)?;
        Some(taken.to_string())
    }

    /// Gives the port the queues of `plan`, unless it has them.
    pub async fn set(&self, client: &mut Client, plan: &Plan) -> Result<Change, String> {
        let set = self
            .row
            .set_queues(Owner::Command, self.queue_selection(), &wanted(plan));
        let Some(transaction) = set.map_err(|taken| taken.to_string())? else {
            return Ok(Change::None);
        };
        let done = client.transact(&transaction).await;
        done.map_err(|error| error.to_string())?;
        Ok(match self.row.qos {
            Some(_) => Change::Replaced,
            None => Change::Made,
        })
    }

    /// Removes our record and its queues, and returns whether there was one.
    pub async fn clear(&self, client: &mut Client) -> Result<bool, String> {
        let Some(transaction) = self.row.clear_queues(&Owner::ALL) else {
            return Ok(false);
        };
        let done = client.transact(&transaction).await;
        done.map(|_| true).map_err(|error| error.to_string())
    }

    /// The queues made by auster, in the order of their numbers.
    pub fn queues(&self) -> Vec<QueueRecord> {
        let qos = self.row.qos.as_ref().filter(|qos| qos.owner.is_some());
        let record = |(number, row): (&u32, &QueueRow)| QueueRecord {
            set_queue: *number,
            priority: row.queue.priority.and_then(|p| u8::try_from(p).ok()),
            min_rate_bps: row.queue.min_rate_bps,
            max_rate_bps: row.queue.max_rate_bps,
            dscp: row.queue.dscp,
        };
        qos.into_iter()
            .flat_map(|qos| qos.queues.iter().map(record))
            .collect()
    }
}

fn wanted(plan: &Plan) -> PortQueues {
    let queue = |class: &Class| Queue {
        min_rate_bps: Some(class.rate.0),
        max_rate_bps: Some(class.rate_max.0),
        burst_bits: class.burst_bytes.map(|bytes| bytes * 8),
        priority: Some(class.priority.into()),
        dscp: class.mark,
    };
    let classes = plan.classes.iter();
    PortQueues {
        max_rate_bps: Some(plan.rate.0),
        queues: classes
            .map(|class| (class.set_queue, queue(class)))
            .collect(),
    }
}
