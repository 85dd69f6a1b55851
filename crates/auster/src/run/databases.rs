//! The databases of the switches: the connections, their reports to the controller, and the
//! controller's requests to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control::clustered::Clustered;
use control::qos::plan::PortPlan;
use control::qos::verify::{Beside, Came};
use control::qos::{QueuesBy, Rate};
use driver::Driver;
use driver::databases::{Databases, DatapathView, PortView, QueuesState, Views, Wanted};
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use net::transport::Refusals;
use openflow::{DatapathId, PortNo};
use ovsdb::vswitch::qos::{PortQueues, Queue, QueueCount, QueueSelection};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::bfd;
use cli::failure::Failure;
use config::settings::Settings;
use config::settings::sockets::warn_if_exposed;

/// The pause before a report that the controller could not accept is sent again.
const RETRY: Duration = Duration::from_secs(1);
/// The time between two checks of the queues that the controller wants: it plans within
/// milliseconds of a change, and notifies nobody.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Connections that stay open until this value is dropped.
pub struct Kept {
    databases: Arc<Databases>,
    bfd: watch::Sender<Option<Duration>>,
    tasks: [JoinHandle<()>; 3],
}

pub async fn start(
    settings: &Settings,
    security: &Security,
    driver: &Arc<Driver<Clustered>>,
    clock: Clock,
    seed: u64,
) -> Result<Kept, Failure> {
    settings.ovsdb.iter().for_each(warn_if_exposed);
    let started = Databases::start(&settings.ovsdb, security, clock, seed).await;
    let databases = Arc::new(started.map_err(Failure::network)?);
    let teller = tokio::spawn(tell(driver.clone(), clock, databases.views()));
    let has_any = !settings.ovsdb.is_empty();
    let asker = tokio::spawn(ask(driver.clone(), databases.clone(), has_any));
    let (kept, driver) = (databases.clone(), driver.clone());
    let (bfd, interval) = watch::channel(settings.bfd_interval);
    let watcher = tokio::spawn(async move {
        if has_any {
            bfd::keep(driver, databases, clock, interval).await;
        }
    });
    let tasks = [teller, asker, watcher];
    Ok(Kept {
        databases: kept,
        bfd,
        tasks,
    })
}

impl Kept {
    pub fn listening(&self) -> &[(Method, Arc<Refusals>)] {
        self.databases.listening()
    }

    pub fn views(&self) -> watch::Receiver<Views> {
        self.databases.views()
    }

    /// Sets the BFD interval, and tries BFD again on links where it has failed.
    pub fn set_bfd_interval(&self, interval: Option<Duration>) {
        self.bfd.send_replace(interval);
    }

    pub fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A database's report for the controller.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    flow_limit: Option<u32>,
    by: QueuesBy,
    rates: BTreeMap<PortNo, Rate>,
    /// The queues that another process makes in the kernel beside the switch.
    beside: BTreeMap<PortNo, Beside>,
}

impl Said {
    fn of(view: &DatapathView) -> Said {
        let rates = view.ports.values().flat_map(|port| {
            let rate = port.link_speed.filter(|bps| *bps > 0).map(Rate);
            let numbers = port.numbers.iter().map(|number| PortNo(*number));
            numbers.filter_map(move |number| Some((number, rate?)))
        });
        let by = match QueueSelection::of(&view.datapath_type) {
            QueueSelection::SetQueue => QueuesBy::SetQueue,
            QueueSelection::Dscp => QueuesBy::CodePoint,
        };
        let kept = view.ports.values().filter(|_| by == QueuesBy::CodePoint);
        let beside = kept.flat_map(|port| {
            let numbers = port.numbers.iter().map(|number| PortNo(*number));
            numbers.map(move |number| (number, beside(port)))
        });
        Said {
            flow_limit: view.flow_limit,
            by,
            rates: rates.collect(),
            beside: beside.collect(),
        }
    }
}

fn beside(port: &PortView) -> Beside {
    match (&port.queues, &port.counts) {
        (QueuesState::InEffect, Some(counts)) => {
            let came = |(number, count): (&u32, &QueueCount)| {
                let came = Came {
                    packets: count.packets,
                    dropped: count.dropped,
                };
                (*number, came)
            };
            Beside::Counts(counts.iter().map(came).collect())
        }
        (QueuesState::InEffect, None) => Beside::Silent,
        (QueuesState::Failed(_) | QueuesState::Taken(_), _) => {
            Beside::Failed(port.queues.problem().unwrap_or_default())
        }
        _ => Beside::Nobody,
    }
}

/// Reports the databases' data to the controller. The last report about a lost database stays
/// valid.
async fn tell(driver: Arc<Driver<Clustered>>, clock: Clock, mut views: watch::Receiver<Views>) {
    let mut told: BTreeMap<DatapathId, Said> = BTreeMap::new();
    loop {
        let said: Vec<(DatapathId, Said)> = views
            .borrow_and_update()
            .iter()
            .map(|(dpid, view)| (*dpid, Said::of(view)))
            .collect();
        let mut is_told = true;
        for (dpid, said) in said {
            let before = told.get(&dpid);
            if before == Some(&said) {
                continue;
            }
            // At first the controller knows no limit of any switch.
            let limit = before.and_then(|before| before.flow_limit);
            let is_other = limit != said.flow_limit;
            let now = clock.now();
            let new = said.clone();
            let asked = driver.ask(move |controller| {
                if is_other {
                    controller.set_table_limit(now, dpid, new.flow_limit);
                }
                controller.set_queues_by(now, dpid, new.by, new.rates);
                controller.set_queue_counts(now, dpid, new.beside);
            });
            match asked.await {
                Some(()) => drop(told.insert(dpid, said)),
                None => is_told = false,
            }
        }
        tokio::select! {
            changed = views.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(RETRY), if !is_told => {}
        }
    }
}

/// Sends the queues that the controller wants to the databases.
async fn ask(driver: Arc<Driver<Clustered>>, databases: Arc<Databases>, has_any: bool) {
    if !has_any {
        return;
    }
    let views = databases.views();
    let mut asked = Wanted::new();
    loop {
        let plans = driver.ask(|controller| controller.wanted_queues()).await;
        if let Some(plans) = plans {
            let wanted = wanted(&plans, &views.borrow(), &asked);
            if wanted != asked {
                asked = wanted.clone();
                databases.want(wanted);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn wanted(
    plans: &BTreeMap<DatapathId, BTreeMap<PortNo, PortPlan>>,
    views: &Views,
    asked: &Wanted,
) -> Wanted {
    let of_switch = |(dpid, plans): (&DatapathId, &BTreeMap<PortNo, PortPlan>)| {
        let ports = named(plans, &views.get(dpid)?.ports);
        let ports = ports.or_else(|| asked.get(dpid).cloned())?;
        Some((*dpid, ports))
    };
    plans.iter().filter_map(of_switch).collect()
}

/// Replaces the controller's port numbers by the port names in the database. Returns `None` while
/// ports have no numbers yet, as after a start of the switch: their present queues must not count
/// as unwanted.
fn named(
    plans: &BTreeMap<PortNo, PortPlan>,
    ports: &BTreeMap<String, PortView>,
) -> Option<BTreeMap<String, PortQueues>> {
    let is_settled = ports.values().all(|port| !port.numbers.is_empty());
    let mut named = BTreeMap::new();
    for (number, plan) in plans {
        let found = ports
            .iter()
            .find(|(_, port)| port.numbers.contains(&number.0));
        match found {
            Some((name, _)) => drop(named.insert(name.clone(), queues(plan))),
            None if is_settled => {}
            None => return None,
        }
    }
    Some(named)
}

fn queues(plan: &PortPlan) -> PortQueues {
    let queue = |(number, queue): (&u8, &control::qos::Queue)| {
        let row = Queue {
            min_rate_bps: queue.min.map(|rate| rate.0),
            max_rate_bps: queue.max.map(|rate| rate.0),
            burst_bits: queue.burst_bytes.map(|bytes| bytes.saturating_mul(8)),
            priority: Some(u32::from(queue.priority)),
            dscp: match plan.by {
                // Only where the code point chooses the queue. Elsewhere packets keep their code
                // point.
                QueuesBy::CodePoint => queue.dscp.first().copied(),
                QueuesBy::SetQueue | QueuesBy::Nobody => None,
            },
        };
        (u32::from(*number), row)
    };
    PortQueues {
        max_rate_bps: Some(plan.queues.rate.0),
        queues: plan.queues.queues.iter().map(queue).collect(),
    }
}

#[cfg(test)]
mod tests {
    use control::qos;
    use ovsdb::vswitch::bfd::Bfd;
    use ovsdb::vswitch::vlan::VlanColumns;

    use super::*;

    fn plan(by: QueuesBy) -> PortPlan {
        let gold = qos::Queue {
            min: Some(Rate::mbit(20)),
            burst_bytes: Some(1000),
            dscp: vec![46, 47],
            ..qos::Queue::default()
        };
        PortPlan {
            by,
            queues: qos::PortQueues {
                rate: Rate::mbit(100),
                queues: BTreeMap::from([(1, gold)]),
            },
        }
    }

    #[test]
    fn rows_are_in_bits_and_have_a_code_point_where_it_chooses() {
        let rows = queues(&plan(QueuesBy::CodePoint));
        assert_eq!(rows.max_rate_bps, Some(100_000_000));
        let row = &rows.queues[&1];
        assert_eq!(
            (row.min_rate_bps, row.burst_bits),
            (Some(20_000_000), Some(8000))
        );
        assert_eq!(row.dscp, Some(46), "packets get the first");
        assert_eq!(queues(&plan(QueuesBy::SetQueue)).queues[&1].dscp, None);
    }

    /// Nothing is decided for a datapath that no database has.
    #[test]
    fn nothing_is_wanted_of_a_database_that_is_not_there() {
        let ports = BTreeMap::from([(PortNo(1), plan(QueuesBy::SetQueue))]);
        let plans = BTreeMap::from([(DatapathId(1), ports)]);
        let wanted = wanted(&plans, &Views::new(), &Wanted::new());
        assert_eq!(wanted, Wanted::new());
    }

    #[test]
    fn ports_are_named_as_soon_as_they_have_numbers() {
        let port = |numbers: &[u32]| PortView {
            numbers: numbers.to_vec(),
            link_speed: None,
            queues: QueuesState::Absent,
            counts: None,
            vlans: VlanColumns::default(),
            bfd: Bfd::Absent,
            has_carrier: true,
        };
        let plans = BTreeMap::from([(PortNo(2), plan(QueuesBy::SetQueue))]);
        let mut ports = BTreeMap::from([("s1-p1".to_owned(), port(&[1]))]);
        assert_eq!(
            named(&plans, &ports),
            Some(BTreeMap::new()),
            "there is no such port"
        );
        ports.insert("s1-p2".to_owned(), port(&[]));
        assert_eq!(named(&plans, &ports), None, "it may be this one");
        ports.insert("s1-p2".to_owned(), port(&[2]));
        let found = named(&plans, &ports).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["s1-p2"]);
        ports.insert("s1-p3".to_owned(), port(&[]));
        assert!(
            named(&plans, &ports).is_some(),
            "all that are wanted have one"
        );
    }
}
