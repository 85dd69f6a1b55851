//! `auster queues keep`: keeps the kernel's queues as a controller's rows in the database ask. A
//! relay beside a switch does the same.
//!
//! A controller can reach the database, but not the kernel. This code runs in the network namespace
//! of the switch and follows the database. It makes the queues that the rows ask for ([`changes`]
//! computes the steps, [`tc`] takes them), and writes into the row whether they are in effect, or
//! why not. The queues stay when the process ends. When it starts again it finds them: unchanged
//! rows change nothing in the kernel. It also writes the queues' counters into the row, since no
//! other process can report them to the controller.
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | from a change of the rows to that in the kernel | [`SETTLE`] and the time that `tc` takes | |
//! | until it sees that queues have disappeared, or a new interface | [`LOOK`] | |
//! | until it sees that another program changed the queues | [`LOOKS_PER_CHECK`] looks | |
//! | between two tries of a failed step | [`LOOK`] | |
//! | from a packet to the row's counters, and between two changes of the counters | [`LOOK`] | |
//! | for an answer of the database | [`ANSWER_TIMEOUT`] | the database is dialled again |

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use driver::ovsdb::Client;
use net::clock::Clock;
use net::method::{Method, Protocol, Transport};
use net::tls::Security;
use ovsdb::vswitch::qos::{Owner, QueueCounts};
use ovsdb::vswitch::{self, DATABASE};
use ovsdb::{Config, MonitorId};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::queues::tc::{self, Change, Interface};
use crate::queues::{ANSWER_TIMEOUT, socket_bytes};
use changes::{Asked, Known, Outcome, Step};
use cli::failure::Failure;

/// The wait for more changes of the rows.
const SETTLE: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_secs(5);
/// The number of looks per full check. A check compares everything in the kernel with the rows,
/// which takes four calls of `tc` for each interface; counters take one.
const LOOKS_PER_CHECK: u32 = 12;
/// The pause after the connection to the database is lost.
const REST: Duration = Duration::from_secs(2);

const OURS: Owner = Owner::Controller;

/// The method of the switch's database, given by `flag`.
pub fn database(flag: &str, text: &str) -> Result<Method, Failure> {
    match Method::parse(text, Protocol::Ovsdb) {
        Ok(method @ (Method::DialUnix(_) | Method::Dial(Transport::Tcp, ..))) => Ok(method),
        Ok(_) => {
            let wrong = format!("{flag} {text}: write unix:FILE or tcp:HOST[:PORT]");
            Err(Failure::usage(wrong))
        }
        Err(problem) => Err(Failure::usage(problem)),
    }
}

/// Keeps the queues of one database's ports.
pub struct Keeper {
    database: Method,
    known: Known,
    /// Interfaces that had a controller's queues at the last look.
    present: BTreeSet<String>,
}

impl Keeper {
    pub fn new(database: Method) -> Keeper {
        Keeper {
            database,
            known: Known::new(),
            present: BTreeSet::new(),
        }
    }

    /// Keeps the queues for as long as the future is polled.
    pub async fn run(mut self) {
        let mut was = String::new();
        loop {
            let Err(problem) = self.follow().await;
            if problem != was {
                tracing::warn!("queues of {}: {problem}", self.database);
                was = problem;
            }
            sleep(REST).await;
        }
    }

    async fn follow(&mut self) -> Result<Infallible, String> {
        let answered = timeout(ANSWER_TIMEOUT, connect(&self.database)).await;
        let (mut client, monitor) = answered.map_err(|_| "it does not answer".to_owned())??;
        tracing::info!("queues are as {} says", self.database);
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = 0;
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    self.see().await;
                    let is_check = looks % LOOKS_PER_CHECK == 0;
                    looks = looks.wrapping_add(1);
                    self.look(&mut client, monitor, Some(is_check)).await?;
                }
                output = client.next() => {
                    drop(output.map_err(|error| error.to_string())?);
                    sleep(SETTLE).await;
                    self.look(&mut client, monitor, None).await?;
                }
            }
        }
    }

    /// Reads which interfaces have our queues.
    async fn see(&mut self) {
        let seen = tokio::task::spawn_blocking(|| tc::interfaces_of(OURS)).await;
        match seen {
            Ok(Ok(present)) => self.present = present,
            // Rows that ask for queues report the failure; if no row does, it does not matter.
            Ok(Err(failure)) => tracing::debug!("{}", failure.message()),
            Err(error) => tracing::error!("{error}"),
        }
    }

    /// Carries out what the rows ask for, and reports the results in them.
    async fn look(
        &mut self,
        client: &mut Client,
        monitor: MonitorId,
        tick: Option<bool>,
    ) -> Result<(), String> {
        let (session, _) = client.session();
        let Some(replica) = session.replica(monitor) else {
            return Ok(());
        };
        let bridges = vswitch::bridges(replica);
        let asked = Asked::of(&bridges, socket_bytes());
        let steps = changes::steps(&asked, &self.known, &self.present, tick);
        if !steps.is_empty() {
            let done = tokio::task::spawn_blocking(move || steps.into_iter().map(act).collect());
            let done: Vec<Done> = done.await.map_err(|error| error.to_string())?;
            done.into_iter().for_each(|done| self.note(done));
        }
        changes::prune(&mut self.known, &asked, &self.present);
        let mut said = changes::said(&asked, &self.known);
        if tick.is_some() {
            let made = changes::made(&asked, &self.known);
            let counted = tokio::task::spawn_blocking(move || count(made)).await;
            let counted = counted.map_err(|error| error.to_string())?;
            said.extend(changes::counted(&asked, &counted));
        }
        for say in said {
            let told = timeout(ANSWER_TIMEOUT, client.transact(&say)).await;
            let told = told.map_err(|_| "it does not answer".to_owned())?;
            told.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn note(&mut self, (name, step, done): Done) {
        let problem = done.as_ref().err().map(|f| f.message().to_owned());
        match (&step, &done) {
            (Step::Set(_), Ok(_)) => drop(self.present.insert(name.clone())),
            (Step::Clear, Ok(_)) => drop(self.present.remove(&name)),
            (_, Err(_)) => {}
        }
        let outcome = Outcome { step, problem };
        let is_news = self.known.get(&name) != Some(&outcome);
        match (&outcome.step, done) {
            (Step::Set(plan), Ok(change)) if is_news || change != Change::None => {
                let count = plan.classes.len();
                tracing::info!(
                    "{name}: {count} queues of its controller, {}",
                    change.name()
                );
            }
            (Step::Clear, Ok(Change::Replaced)) => {
                tracing::info!("{name}: its controller's queues removed");
            }
            (_, Err(failure)) if is_news => {
                let problem = failure.message();
                tracing::warn!("{name}: its queues are not as its controller asks: {problem}");
            }
            _ => {}
        }
        self.known.insert(name, outcome);
    }
}

type Done = (String, Step, Result<Change, Failure>);

/// The only place that changes the kernel.
fn act((name, step): (String, Step)) -> Done {
    let interface = Interface {
        namespace: None,
        name: &name,
    };
    let done = match &step {
        Step::Set(plan) => interface.set(OURS, plan),
        Step::Clear => interface.clear(&[OURS]).map(|was_there| match was_there {
            true => Change::Replaced,
            false => Change::None,
        }),
    };
    (name, step, done)
}

/// The counters of these interfaces' queues, where there are any.
fn count(names: Vec<String>) -> BTreeMap<String, QueueCounts> {
    let of = |name: String| {
        let interface = Interface {
            namespace: None,
            name: &name,
        };
        match interface.counts(OURS) {
            Ok(counts) => Some((name, counts?)),
            // The step that sets the queues reports the failure.
            Err(failure) => {
                tracing::debug!("{name}: {}", failure.message());
                None
            }
        }
    };
    names.into_iter().filter_map(of).collect()
}

async fn connect(database: &Method) -> Result<(Client, MonitorId), String> {
    let (security, clock) = (Security::plain(), Clock::start());
    let connected = Client::connect(database, &security, clock, Config::default());
    let mut client = connected.await.map_err(|error| error.to_string())?;
    let request = vswitch::monitor_request();
    let monitored = client.monitor(DATABASE, &request).await;
    let monitor = monitored.map_err(|error| error.to_string())?;
    Ok((client, monitor))
}
