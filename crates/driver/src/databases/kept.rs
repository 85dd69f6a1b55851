//! One database: its datapaths are published, and its ports receive the changes that they lack.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openflow::DatapathId;
use ovsdb::vswitch::bfd::{Bfd, Session};
use ovsdb::vswitch::qos::{InKernel, Orphans, Owner, PortQueues, Qos, QueueCounts, QueueSelection};
use ovsdb::vswitch::vlan::VlanColumns;
use ovsdb::vswitch::{self, Bridge, DATABASE, Port};
use ovsdb::{Answer, Config, Limits, MonitorId, Output, RequestId, TransactError, Transaction};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    AllWanted, BRIDGES_MAX, DatapathView, FIRST_BYTES_MAX, FIRST_PARSED_BYTES_MAX, IN_FLIGHT_MAX,
    MESSAGE_BYTES_MAX, MESSAGE_TIMEOUT, PARSED_BYTES_MAX, PortView, QueuesState, ROWS_MAX,
    SETUP_MAX, Shared, UNSENT_BYTES_MAX, Views,
};
use crate::ovsdb::{Client, ClientError};
use net::transport::{Connection, Ticket};

/// The wait for more changes, before all rows are looked at.
const SETTLE: Duration = Duration::from_millis(20);
/// The pause until the next look, as a multiple of the time that the last look took.
const REST_PER_LOOK: u32 = 4;
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The pause after another connection was found to own a datapath.
const CONTEST: Duration = Duration::from_secs(5);

const OURS: Owner = Owner::Controller;

/// Serves a connection until it ends. Returns the reason.
pub(super) async fn serve(shared: &Arc<Shared>, connection: Connection) -> String {
    let (address, certified) = (connection.peer.address.clone(), connection.peer.datapath_id);
    let config = Config {
        limits: Limits {
            message_bytes_max: MESSAGE_BYTES_MAX,
            parsed_bytes_max: PARSED_BYTES_MAX,
            ..Limits::default()
        },
        first_limits: Some(Limits {
            message_bytes_max: FIRST_BYTES_MAX,
            parsed_bytes_max: FIRST_PARSED_BYTES_MAX,
            ..Limits::default()
        }),
        message_timeout: Some(MESSAGE_TIMEOUT),
        request_count_max: 2 * IN_FLIGHT_MAX,
        unsent_bytes_max: UNSENT_BYTES_MAX,
        row_count_max: ROWS_MAX,
        ..Config::default()
    };
    let network = connection.ticket.as_ref().and_then(Ticket::network);
    let charge = shared.budget.charge(network);
    let mut client = Client::new(connection, shared.clock, config).charged(charge);
    let request = vswitch::monitor_request();
    let monitored = timeout(SETUP_MAX, client.monitor(DATABASE, &request)).await;
    let monitor = match monitored {
        Ok(Ok(monitor)) => monitor,
        Ok(Err(error)) => return error.to_string(),
        Err(_) => return "it does not tell its rows in time".to_owned(),
    };
    tracing::info!("database {address} connected");
    let number = shared.next_connection.fetch_add(1, Ordering::Relaxed);
    let _leaving = ViewsGuard {
        shared: shared.clone(),
        number,
    };
    let Err(error) = Kept {
        connection: number,
        wanted: shared.wanted.subscribe(),
        shared: shared.clone(),
        address,
        certified,
        client,
        monitor,
        in_flight: BTreeMap::new(),
        failed: BTreeMap::new(),
        retry: RETRY_MIN,
        retry_at: Instant::now(),
        contested: BTreeSet::new(),
    }
    .keep()
    .await;
    error.to_string()
}

/// Withdraws the views of a connection however its task ends. Views that stay would lock other
/// databases out.
struct ViewsGuard {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for ViewsGuard {
    fn drop(&mut self) {
        self.shared.publish(self.number, &Views::new());
    }
}

/// The object that one transaction changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Port(DatapathId, String),
    Bfd(DatapathId, String),
    Orphans,
}

type Works = BTreeMap<Work, Transaction>;

struct Kept {
    shared: Arc<Shared>,
    connection: u64,
    address: String,
    /// The only datapath that the database's certificate allows, if it names one.
    certified: Option<DatapathId>,
    client: Client,
    monitor: MonitorId,
    wanted: watch::Receiver<Arc<AllWanted>>,
    in_flight: BTreeMap<RequestId, Work>,
    failed: BTreeMap<Work, String>,
    retry: Duration,
    /// The time before which a failed change is not tried again.
    retry_at: Instant,
    /// Conflicts that are reported already.
    contested: BTreeSet<DatapathId>,
}

impl Kept {
    async fn keep(mut self) -> Result<Infallible, ClientError> {
        let mut due = Some(Instant::now());
        let mut rested = Instant::now();
        loop {
            // Rows are looked at when all requests of the last look are answered.
            let at = due.filter(|_| self.in_flight.is_empty());
            let at = at.map(|at| at.max(rested));
            let sooner = |due: Option<Instant>, at: Instant| Some(due.map_or(at, |d| d.min(at)));
            tokio::select! {
                output = self.client.next() => {
                    if let Some(at) = self.handle(output?) {
                        due = sooner(due, at);
                    }
                }
                changed = self.wanted.changed() => {
                    changed.map_err(|_| ClientError::End)?;
                    self.retry_at = Instant::now();
                    due = Some(Instant::now());
                }
                () = sleep_until(at.unwrap_or(rested)), if at.is_some() => {
                    let began = Instant::now();
                    due = self.look();
                    rested = Instant::now() + began.elapsed() * REST_PER_LOOK;
                }
            }
        }
    }

    /// Handles `output`. Returns when to look at the rows because of it.
    fn handle(&mut self, output: Output) -> Option<Instant> {
        match output {
            Output::Updated(..) => Some(Instant::now() + SETTLE),
            Output::Answered(id, answer) => {
                let work = self.in_flight.remove(&id)?;
                match problem(answer) {
                    None => {
                        self.failed.remove(&work);
                        self.retry = RETRY_MIN;
                    }
                    Some(problem) => self.fail(work, problem),
                }
                self.in_flight.is_empty().then(Instant::now)
            }
            _ => None,
        }
    }

    fn fail(&mut self, work: Work, problem: String) {
        if self.failed.get(&work) != Some(&problem) {
            let what = match &work {
                Work::Port(dpid, port) => format!("queues of {port} of {dpid}"),
                Work::Bfd(dpid, port) => format!("BFD of {port} of {dpid}"),
                Work::Orphans => "rows that nothing refers to".to_owned(),
            };
            tracing::warn!("database {}: {what}: {problem}", self.address);
        }
        self.failed.insert(work, problem);
        let now = Instant::now();
        // When many fail together, the time is doubled once.
        if self.retry_at <= now {
            self.retry_at = now + self.retry;
            self.retry = (self.retry * 2).min(RETRY_MAX);
        }
    }

    /// Publishes the datapaths in the rows, and requests the changes that the rows lack. Returns
    /// when to look again if nothing happens.
    fn look(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let wanted = self.wanted.borrow_and_update().clone();
        let (session, at) = self.client.session();
        let replica = session.replica(self.monitor)?;
        let is_configured = vswitch::is_configured(replica);
        let mut works = Works::new();
        let removal = Orphans::of(replica).removal();
        works.extend(removal.map(|removal| (Work::Orphans, removal)));
        let mut views = Views::new();
        let mut others = BTreeSet::new();
        for bridge in vswitch::bridges(replica).values().take(BRIDGES_MAX) {
            let Some(dpid) = bridge.datapath_id.map(DatapathId) else {
                continue;
            };
            let may_speak = self.certified.is_none_or(|certified| certified == dpid);
            if !may_speak || views.contains_key(&dpid) {
                others.insert(dpid);
                continue;
            }
            let plan = Plan {
                dpid,
                bridge,
                wanted: wanted.queues.get(&dpid),
                wanted_bfd: wanted.bfd.get(&dpid),
                is_configured,
                failed: &self.failed,
            };
            let ports = plan.ports(&mut works);
            let view = DatapathView {
                database: self.address.clone(),
                bridge: bridge.name.clone(),
                datapath_type: match bridge.datapath_type.as_str() {
                    "" => "system".to_owned(),
                    other => other.to_owned(),
                },
                flow_limit: bridge.flow_limit,
                ports,
                connection: self.connection,
            };
            views.insert(dpid, view);
        }
        let contested = self.shared.publish(self.connection, &views);
        works.retain(|work, _| match work {
            Work::Port(dpid, _) | Work::Bfd(dpid, _) => !contested.contains(dpid),
            Work::Orphans => true,
        });
        let is_contested = !contested.is_empty();
        others.extend(contested);
        for dpid in others.difference(&self.contested) {
            tracing::warn!(
                "database {}: it claims datapath {dpid}, which is another's; that part is ignored",
                self.address
            );
        }
        self.contested = others;
        self.failed.retain(|work, _| works.contains_key(work));
        let may_retry = self.retry_at <= now;
        let tried = works
            .into_iter()
            .filter(|(work, _)| may_retry || !self.failed.contains_key(work));
        let mut refused = Vec::new();
        for (work, transaction) in tried.take(IN_FLIGHT_MAX) {
            match session.transact(at, &transaction) {
                Ok(id) => drop(self.in_flight.insert(id, work)),
                Err(error) => refused.push((work, error.to_string())),
            }
        }
        for (work, problem) in refused {
            self.fail(work, problem);
        }
        let retry = (!self.failed.is_empty()).then_some(self.retry_at);
        let contest = is_contested.then(|| now + CONTEST);
        retry.into_iter().chain(contest).min()
    }
}

/// The present and the wanted state of one datapath's ports.
struct Plan<'a> {
    dpid: DatapathId,
    bridge: &'a Bridge,
    wanted: Option<&'a BTreeMap<String, PortQueues>>,
    wanted_bfd: Option<&'a BTreeMap<String, Option<Session>>>,
    is_configured: bool,
    failed: &'a BTreeMap<Work, String>,
}

impl Plan<'_> {
    fn ports(&self, works: &mut Works) -> BTreeMap<String, PortView> {
        let mut ports = BTreeMap::new();
        for port in &self.bridge.ports {
            let numbers = port.interfaces.iter().filter_map(|i| i.ofport).collect();
            let link_speed = port.interfaces.iter().filter_map(|i| i.link_speed).min();
            let queues = self.queues(port, works);
            let view = PortView {
                numbers,
                link_speed,
                queues,
                counts: self.counts(port),
                vlans: port.vlans.clone(),
                bfd: self.bfd(port, works),
                has_carrier: port.interfaces.iter().all(|i| i.link_up != Some(false)),
            };
            ports.insert(port.name.clone(), view);
        }
        for name in self.wanted.into_iter().flat_map(BTreeMap::keys) {
            ports.entry(name.clone()).or_insert(PortView {
                numbers: Vec::new(),
                link_speed: None,
                queues: QueuesState::NoPort,
                counts: None,
                vlans: VlanColumns::default(),
                bfd: Bfd::Others,
                has_carrier: false,
            });
        }
        ports
    }

    fn queues(&self, port: &Port, works: &mut Works) -> QueuesState {
        if let Some(taken) = port.taken(OURS) {
            return QueuesState::Taken(taken);
        }
        let Some(wanted) = self.wanted else {
            return match port.qos {
                Some(_) => QueuesState::Left,
                None => QueuesState::Absent,
            };
        };
        let (change, done) = match wanted.get(&port.name) {
            None => (port.clear_queues(&[OURS]), QueuesState::Absent),
            Some(queues) => match port.set_queues(OURS, self.bridge.queue_selection(), queues) {
                Ok(change) => (change, self.done(port)),
                Err(taken) => return QueuesState::Taken(taken),
            },
        };
        let Some(change) = change else {
            return done;
        };
        let work = Work::Port(self.dpid, port.name.clone());
        let failed = self.failed.get(&work).cloned();
        works.insert(work, change);
        failed.map_or(QueuesState::Changing, QueuesState::Failed)
    }

    fn bfd(&self, port: &Port, works: &mut Works) -> Bfd {
        let [interface] = &port.interfaces[..] else {
            return Bfd::Others;
        };
        let wanted = self.wanted_bfd.and_then(|ports| ports.get(&port.name));
        let change = wanted.and_then(|wanted| interface.set_bfd(wanted.as_ref()));
        let work = Work::Bfd(self.dpid, port.name.clone());
        works.extend(change.map(|change| (work, change)));
        interface.bfd
    }

    /// The counters of a port whose queues are in the kernel as the rows say.
    fn counts(&self, port: &Port) -> Option<QueueCounts> {
        let qos = port.qos.as_ref().filter(|qos| qos.is_for_kernel())?;
        let is_made = qos.in_kernel() == InKernel::Made;
        qos.counts().filter(|_| is_made)
    }

    /// The progress of queues whose rows are as wanted.
    fn done(&self, port: &Port) -> QueuesState {
        let in_kernel = port.qos.as_ref().map(Qos::in_kernel);
        match (self.bridge.queue_selection(), in_kernel) {
            (QueueSelection::Dscp, Some(InKernel::Failed(problem))) => {
                QueuesState::Failed(format!("beside the switch: {problem}"))
            }
            (QueueSelection::SetQueue, _) | (QueueSelection::Dscp, Some(InKernel::Made))
                if self.is_configured =>
            {
                QueuesState::InEffect
            }
            _ => QueuesState::Written,
        }
    }
}

/// Why a transaction was not done.
fn problem(answer: Answer) -> Option<String> {
    Some(match answer {
        Answer::Transacted(Ok(_)) => return None,
        // The error of a condition that has to hold at once.
        Answer::Transacted(Err(TransactError::Failed { error, .. })) if error == "timed out" => {
            "somebody else has changed it meanwhile".to_owned()
        }
        Answer::Transacted(Err(error)) => error.to_string(),
        Answer::Refused(why) => why.to_string(),
        Answer::TimedOut => "the database does not answer".to_owned(),
        other => format!("no answer to a transaction: {other:?}"),
    })
}
