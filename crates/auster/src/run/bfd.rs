//! BFD on links between switches: collects the facts for [`control::bfd`], and sends its decisions
//! as requests to the databases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use control::Location;
use control::bfd::{Facts, Link, Port, START_MAX, Session, Wanted, Watch, link};
use control::clustered::Clustered;
use control::controller::LinkView;
use driver::Driver;
use driver::databases::{Databases, PortView, Views, WantedBfd};
use net::clock::Clock;
use openflow::{DatapathId, PortNo};
use ovsdb::vswitch::bfd::{self, Bfd};
use tokio::sync::watch;

use super::databases::LOOK;

/// The name of each port in its database, and its BFD there.
type Rows = BTreeMap<Location, (String, Bfd)>;

/// Keeps BFD at `interval` (`None` means off), until the task is aborted.
pub async fn keep(
    driver: Arc<Driver<Clustered>>,
    databases: Arc<Databases>,
    clock: Clock,
    mut interval: watch::Receiver<Option<Duration>>,
) {
    let mut views = databases.views();
    views.mark_changed();
    let mut watch = Watch::default();
    let mut facts = Facts::default();
    let mut rows = Rows::new();
    // The controller's count starts with 0.
    let mut known = u64::MAX;
    let mut asked = WantedBfd::new();
    loop {
        tokio::time::sleep(LOOK).await;
        if views.has_changed().unwrap_or(false) {
            (facts.ports, rows) = ports(&views.borrow_and_update());
        }
        if interval.has_changed().unwrap_or(false) {
            watch.retry();
        }
        let every = *interval.borrow_and_update();
        let ours: Vec<Location> = facts.watched().collect();
        if every.is_none() && ours.is_empty() {
            continue;
        }
        let seen = driver.ask(move |controller| {
            let ours = ours.into_iter();
            let edges = ours.filter(|at| controller.is_edge(*at)).collect();
            (controller.links_since(known), edges)
        });
        let Some((links, edges)) = seen.await else {
            continue;
        };
        facts.edges = edges;
        if let Some((revision, links)) = links {
            known = revision;
            facts.links = proven(&links);
        }
        let (wanted, failed) = watch.decide(clock.now(), every.is_some(), &facts);
        if let Some((a, b)) = failed {
            let (one, other) = (named(&rows, a), named(&rows, b));
            tracing::warn!(
                "BFD between {one} and {other} does not come up in {} s and is taken back; it is \
                 tried again when the link was lost, or at SIGHUP",
                START_MAX.as_secs()
            );
        }
        let wanted = requests(&wanted, &rows, every);
        if wanted != asked {
            asked = wanted.clone();
            databases.want_bfd(wanted);
        }
    }
}

/// Returns the links that are proven in both directions.
fn proven(links: &[LinkView]) -> BTreeSet<Link> {
    let all: BTreeSet<_> = links.iter().map(|l| (l.from, l.to)).collect();
    let both = all.iter().filter(|(a, b)| a < b && all.contains(&(*b, *a)));
    both.map(|(a, b)| link(*a, *b)).collect()
}

fn ports(views: &Views) -> (BTreeMap<Location, Port>, Rows) {
    let (mut ports, mut rows) = (BTreeMap::new(), Rows::new());
    for (dpid, view) in views {
        for (name, view) in &view.ports {
            for number in &view.numbers {
                let port = PortNo(*number);
                let at = Location { dpid: *dpid, port };
                ports.insert(at, port_of(view));
                rows.insert(at, (name.clone(), view.bfd));
            }
        }
    }
    (ports, rows)
}

fn port_of(view: &PortView) -> Port {
    let session = match view.bfd {
        Bfd::Absent => Session::Absent,
        Bfd::Ours { session, is_up } => Session::Ours {
            peer: Location::new(
                DatapathId(session.peer_datapath_id),
                PortNo(session.peer_port),
            ),
            is_up,
        },
        Bfd::Others => Session::Others,
    };
    Port {
        session,
        has_carrier: view.has_carrier,
    }
}

/// Returns the changes to request. A port with the wanted settings is left alone: a manual change
/// is not overruled before a decision about it.
fn requests(
    wanted: &BTreeMap<Location, Wanted>,
    rows: &Rows,
    interval: Option<Duration>,
) -> WantedBfd {
    let mut requests = WantedBfd::new();
    for (at, wanted) in wanted {
        let session = match (wanted, interval) {
            (Wanted::Session(peer), Some(interval)) => Some(bfd::Session {
                peer_datapath_id: peer.dpid.0,
                peer_port: peer.port.0,
                interval_ms: u32::try_from(interval.as_millis()).unwrap_or(u32::MAX),
            }),
            _ => None,
        };
        let Some((name, bfd)) = rows.get(at) else {
            continue;
        };
        let present = match bfd {
            Bfd::Ours { session, .. } => Some(*session),
            Bfd::Absent | Bfd::Others => None,
        };
        if present != session {
            let ports = requests.entry(at.dpid).or_default();
            ports.insert(name.clone(), session);
        }
    }
    requests
}

fn named(rows: &Rows, at: Location) -> String {
    match rows.get(&at) {
        Some((name, _)) => format!("{name} ({at})"),
        None => at.to_string(),
    }
}
