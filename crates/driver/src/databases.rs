//! The databases of many switches over OVSDB: the datapaths that each reports, and the queues and
//! BFD of their ports, which the driver keeps as the controller wants them.
//!
//! A database dials in (`ovs-vsctl set-manager`), or the driver dials it again and again. Each
//! database names its datapaths by `Bridge.datapath_id`. The first database to name a datapath owns
//! it as long as the connection lives. A certificate that names a datapath is valid for no other.
//!
//! [`Databases::want`] sets the queues that all ports shall have. The driver changes nothing on a
//! datapath absent from that request, so a controller that has just started removes nothing. One
//! transaction ([`ovsdb::vswitch::qos`]) changes each port. [`Databases::want_bfd`] does the same
//! for single ports ([`ovsdb::vswitch::bfd`]). A transaction may fail because another client was
//! quicker or because the database refuses it. Then the driver computes it anew and tries again,
//! after a longer pause each time. It removes rows with our mark that nothing refers to, wherever
//! it sees them.
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | connections of a listener | [`CONNECTIONS_MAX`] | closed, counted |
//! | connections of one address | [`CONNECTIONS_PER_SOURCE_MAX`] | the same |
//! | from the connection to all rows | [`SETUP_MAX`] | the connection is closed |
//! | rows of one database | [`ROWS_MAX`] | the same |
//! | bytes of one message | [`MESSAGE_BYTES_MAX`] | the same |
//! | those bytes before the rows are requested | [`FIRST_BYTES_MAX`] | the same |
//! | memory of one message's values | [`PARSED_BYTES_MAX`] | the same |
//! | that memory before the rows are requested | [`FIRST_PARSED_BYTES_MAX`] | the same |
//! | from the first byte of a message to its last | [`MESSAGE_TIMEOUT`] | the same |
//! | memory of all databases: rows, arriving messages | [`BYTES_MAX`] | the asking one is closed |
//! | memory of one network (/24, /64) beyond 256 KiB each | [`NETWORK_BYTES_MAX`] | the same |
//! | large messages that are parsed at a time | 1 | the others wait |
//! | bytes that a database does not read | [`UNSENT_BYTES_MAX`] | the connection is closed |
//! | bridges of one database | [`BRIDGES_MAX`], by name | the others are not seen |
//! | transactions that wait for an answer | [`IN_FLIGHT_MAX`] of one database | the others wait |
//! | between two looks at all rows | 20 ms and four times a look's duration | changes wait |
//! | between two tries of a failed change | 1 s, doubled up to 30 s | |

mod budget;
mod kept;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use openflow::DatapathId;
use ovsdb::vswitch::bfd::{Bfd, Session};
use ovsdb::vswitch::qos::{PortQueues, QueueCounts, Taken};
use ovsdb::vswitch::vlan::VlanColumns;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::reconnect::Reconnect;
use budget::Budget;
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use net::transport::{Limits, Listener, Refusals, TransportError, connect};

pub(crate) use budget::Charge;

pub const CONNECTIONS_MAX: usize = 4096;
pub const CONNECTIONS_PER_SOURCE_MAX: usize = 64;
pub const SETUP_MAX: Duration = Duration::from_secs(10);
pub const ROWS_MAX: usize = 200_000;
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
pub const FIRST_BYTES_MAX: usize = 4 << 20;
/// The values of a switch with 20,000 interfaces take 70 MiB.
pub const PARSED_BYTES_MAX: usize = 96 << 20;
/// The values of a schema take 1 MiB.
pub const FIRST_PARSED_BYTES_MAX: usize = 4 << 20;
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
pub const BYTES_MAX: usize = 1 << 30;
pub const NETWORK_BYTES_MAX: usize = 112 << 20;
pub const UNSENT_BYTES_MAX: usize = 8 << 20;
pub const BRIDGES_MAX: usize = 1024;
pub const IN_FLIGHT_MAX: usize = 64;

/// The queues of each port, by datapath and port name.
pub type Wanted = BTreeMap<DatapathId, BTreeMap<String, PortQueues>>;

/// The BFD of each port, by datapath and port name; `None` for no BFD. Ports without an entry stay
/// as they are.
pub type WantedBfd = BTreeMap<DatapathId, BTreeMap<String, Option<Session>>>;

pub type Views = BTreeMap<DatapathId, DatapathView>;

/// A datapath as its database describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct DatapathView {
    /// The database at the other end of the connection.
    pub database: String,
    pub bridge: String,
    /// `system`, `netdev`, …
    pub datapath_type: String,
    /// The number of entries that its table of conversations can take, if limited.
    pub flow_limit: Option<u32>,
    /// The ports, by name.
    pub ports: BTreeMap<String, PortView>,
    connection: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PortView {
    /// The OpenFlow port numbers; a bond has more than one.
    pub numbers: Vec<u32>,
    /// Bits per second.
    pub link_speed: Option<u64>,
    pub queues: QueuesState,
    /// The queues' counters, if another process makes the queues and reports them.
    pub counts: Option<QueueCounts>,
    /// The columns of VLANs.
    pub vlans: VlanColumns,
    /// BFD of the port's only interface. The administrator controls the BFD of a bond.
    pub bfd: Bfd,
    /// False if an interface reports that nothing is at the other end of its cable.
    pub has_carrier: bool,
}

/// The progress of a port's queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueuesState {
    /// The port has no queues, and none are wanted.
    Absent,
    /// The port has earlier queues of the controller; no request names this datapath.
    Left,
    /// Another owner has configured the port's queues: they stay.
    Taken(Taken),
    /// There is no such port.
    NoPort,
    Changing,
    /// A change failed, and will be tried again.
    Failed(String),
    /// The rows are as wanted. Open vSwitch has not reported that it has read them or, where
    /// another process makes the queues, that process has not reported them in the kernel.
    Written,
    InEffect,
}

/// The connections to databases. They end when this value is dropped.
pub struct Databases {
    shared: Arc<Shared>,
    listening: Vec<(Method, Arc<Refusals>)>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Clone, Debug, Default)]
struct AllWanted {
    queues: Wanted,
    bfd: WantedBfd,
}

/// The state that the tasks of all connections share.
struct Shared {
    clock: Clock,
    wanted: watch::Sender<Arc<AllWanted>>,
    views: watch::Sender<Views>,
    next_connection: AtomicU64,
    budget: Arc<Budget>,
}

impl QueuesState {
    /// The name for people and programs.
    pub fn name(&self) -> &'static str {
        match self {
            QueuesState::Absent => "absent",
            QueuesState::Left => "left",
            QueuesState::Taken(_) => "taken",
            QueuesState::NoPort => "no port",
            QueuesState::Changing => "changing",
            QueuesState::Failed(_) => "failed",
            QueuesState::Written => "written",
            QueuesState::InEffect => "in effect",
        }
    }

    /// The problem, in one line.
    pub fn problem(&self) -> Option<String> {
        match self {
            QueuesState::Taken(taken) => Some(taken.to_string()),
            QueuesState::NoPort => Some("the bridge has no such port".to_owned()),
            QueuesState::Failed(problem) => Some(problem.clone()),
            _ => None,
        }
    }
}

impl Databases {
    /// Listens on methods that are passive, and dials the others until they answer.
    pub async fn start(
        methods: &[Method],
        security: &Security,
        clock: Clock,
        seed: u64,
    ) -> Result<Databases, TransportError> {
        let shared = Arc::new(Shared {
            clock,
            wanted: watch::Sender::new(Arc::default()),
            views: watch::Sender::new(Views::new()),
            next_connection: AtomicU64::new(0),
            budget: Budget::new(BYTES_MAX, NETWORK_BYTES_MAX),
        });
        let mut databases = Databases {
            shared: shared.clone(),
            listening: Vec::new(),
            tasks: Vec::new(),
        };
        let limits = Limits {
            connections_max: CONNECTIONS_MAX,
            connections_per_source_max: CONNECTIONS_PER_SOURCE_MAX,
            ..Limits::default()
        };
        for (number, method) in (0u64..).zip(methods) {
            let shared = shared.clone();
            let task = if method.is_passive() {
                let listener = Listener::bind(method, security, limits).await?;
                let told = (listener.local().clone(), listener.refusals().clone());
                databases.listening.push(told);
                tokio::spawn(accept(shared, listener))
            } else {
                let reconnect = Reconnect::new(seed.wrapping_add(number));
                tokio::spawn(dial(shared, method.clone(), security.clone(), reconnect))
            };
            databases.tasks.push(task);
        }
        Ok(databases)
    }

    /// The methods that listen, with the ports assigned to them, and the connections they refused.
    pub fn listening(&self) -> &[(Method, Arc<Refusals>)] {
        &self.listening
    }

    /// Sets the queues that all ports shall have from now on, in place of the previous request.
    pub fn want(&self, queues: Wanted) {
        let wanted = &self.shared.wanted;
        wanted.send_modify(|wanted| Arc::make_mut(wanted).queues = queues);
    }

    /// Sets the BFD that ports shall have from now on, in place of the previous request.
    pub fn want_bfd(&self, bfd: WantedBfd) {
        let wanted = &self.shared.wanted;
        wanted.send_modify(|wanted| Arc::make_mut(wanted).bfd = bfd);
    }

    /// Every datapath whose database is connected.
    pub fn views(&self) -> watch::Receiver<Views> {
        self.shared.views.subscribe()
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    /// Publishes a connection's datapaths. Returns those that another connection already owns.
    fn publish(&self, connection: u64, said: &Views) -> BTreeSet<DatapathId> {
        let mut contested = BTreeSet::new();
        self.views.send_if_modified(|views| {
            let before = views.len();
            views.retain(|dpid, view| view.connection != connection || said.contains_key(dpid));
            let mut is_modified = views.len() != before;
            for (dpid, view) in said {
                match views.get(dpid) {
                    Some(old) if old.connection != connection => drop(contested.insert(*dpid)),
                    Some(old) if old == view => {}
                    _ => {
                        views.insert(*dpid, view.clone());
                        is_modified = true;
                    }
                }
            }
            is_modified
        });
        contested
    }
}

/// Serves incoming connections, each in a task of its own.
async fn accept(shared: Arc<Shared>, mut listener: Listener) {
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            connection = listener.accept() => {
                let shared = shared.clone();
                served.spawn(async move {
                    let address = connection.peer.address.clone();
                    let problem = kept::serve(&shared, connection).await;
                    tracing::warn!("database {address}: {problem}");
                });
            }
            Some(done) = served.join_next() => {
                if let Err(panic) = done {
                    tracing::error!("a fault of auster while it served a database: {panic}");
                }
            }
        }
    }
}

/// Dials until the task is aborted. The same problem is reported once.
async fn dial(shared: Arc<Shared>, method: Method, security: Security, mut reconnect: Reconnect) {
    let mut told = String::new();
    loop {
        let problem = match connect(&method, &security).await {
            Ok(connection) => {
                reconnect.handle_connected(shared.clock.now());
                // In a task of its own: after a fault of ours the database is dialled again.
                let mut serving = JoinSet::new();
                let for_task = shared.clone();
                serving.spawn(async move { kept::serve(&for_task, connection).await });
                let problem = match serving.join_next().await {
                    Some(Ok(problem)) => problem,
                    _ => "a fault of auster while it was served".to_owned(),
                };
                format!("database {method}: {problem}")
            }
            Err(error) => format!("database {error}"),
        };
        if problem != told {
            tracing::warn!("{problem}; trying again");
            told = problem;
        }
        let due = reconnect.handle_disconnected(shared.clock.now());
        tokio::time::sleep_until(shared.clock.deadline(due)).await;
    }
}
