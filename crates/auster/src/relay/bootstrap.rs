//! Policy maps from the switch's database: the relay watches the bridges' rows, takes a map with a
//! greater generation into use, and writes the map in use back.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use driver::ovsdb::Client;
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use ovsdb::vswitch::DATABASE;
use ovsdb::{Config, MonitorId, MonitorRequest, Transaction, Uuid};
use sched::PolicyMap;
use tokio::sync::watch;
use tokio::time::sleep;

use super::report::Source;
use crate::policy::database::{self, BridgePolicy};

/// The pause after the database was lost, or after a map was refused for a reason that may pass.
const REST: Duration = Duration::from_secs(2);

/// The database that is watched, and the last report about it.
pub struct Bootstrap {
    source: Source,
    maps: watch::Receiver<Arc<PolicyMap>>,
    database: Method,
    /// Each problem is reported once.
    said: BTreeMap<Uuid, String>,
}

impl Bootstrap {
    pub fn new(
        source: Source,
        maps: watch::Receiver<Arc<PolicyMap>>,
        database: Method,
    ) -> Bootstrap {
        Bootstrap {
            source,
            maps,
            database,
            said: BTreeMap::new(),
        }
    }

    /// Watches for as long as it is polled.
    pub async fn run(mut self) {
        let mut was = String::new();
        loop {
            let Err(problem) = self.watch().await;
            if problem != was {
                tracing::warn!("--policy-db {}: {problem}", self.database);
                was = problem;
            }
            sleep(REST).await;
        }
    }

    async fn watch(&mut self) -> Result<Infallible, String> {
        let (security, clock) = (Security::plain(), Clock::start());
        let connected = Client::connect(&self.database, &security, clock, Config::default());
        let mut client = connected.await.map_err(|e| e.to_string())?;
        let monitor = monitor(&mut client).await?;
        loop {
            let rows = rows(&mut client, monitor);
            let is_waiting = self.take(&rows).await;
            self.tell(&mut client, &rows).await?;
            tokio::select! {
                output = client.next() => drop(output.map_err(|e| e.to_string())?),
                changed = self.maps.changed() => changed.map_err(|_| "the relay ends".to_owned())?,
                () = sleep(REST), if is_waiting => {}
            }
        }
    }

    /// Takes the newest map into use. Returns true if a map was not taken but may be taken later.
    async fn take(&mut self, rows: &[(Uuid, BridgePolicy)]) -> bool {
        let active = self.maps.borrow().clone();
        let mut newest: Option<(Uuid, &str, PolicyMap)> = None;
        for (uuid, row) in rows.iter().filter(|(_, row)| row.is_given()) {
            match row.read() {
                Err(problems) => self.say(*uuid, &row.bridge, &problems),
                Ok(map) if map == *active => drop(self.said.remove(uuid)),
                Ok(map) if map.generation == active.generation => {
                    let problem = "another map of the generation in use, which stays";
                    self.say(*uuid, &row.bridge, problem);
                }
                Ok(map) if map.generation < active.generation => {}
                Ok(map) => {
                    let is_newer =
                        |(_, _, other): &(_, _, PolicyMap)| other.generation < map.generation;
                    if newest.as_ref().is_none_or(is_newer) {
                        newest = Some((*uuid, &row.bridge, map));
                    }
                }
            }
        }
        let Some((uuid, bridge, map)) = newest else {
            return false;
        };
        match self.source.load_policy(&map.to_text()).await {
            Ok(()) => {
                let generation = map.generation;
                tracing::info!(bridge, generation, "the database's policy map is in use");
                self.said.remove(&uuid);
                false
            }
            Err(problem) => {
                self.say(uuid, bridge, &problem);
                true
            }
        }
    }

    fn say(&mut self, uuid: Uuid, bridge: &str, problem: &str) {
        let is_new = self.said.insert(uuid, problem.to_owned()).as_deref() != Some(problem);
        if is_new {
            tracing::error!(
                "bridge {bridge}: its policy map is not used, the one in use stays: {problem}"
            );
        }
    }

    /// Reports the map in use in every row that an operator has written to.
    async fn tell(
        &mut self,
        client: &mut Client,
        rows: &[(Uuid, BridgePolicy)],
    ) -> Result<(), String> {
        let map = self.maps.borrow_and_update().clone();
        let active = database::active(map.generation, &map.digest());
        let stale = |row: &BridgePolicy| {
            row.is_given() && row.get(database::ACTIVE) != Some(active.as_str())
        };
        for (uuid, _) in rows.iter().filter(|(_, row)| stale(row)) {
            let tell = database::tell_active(*uuid, active.clone());
            let transaction = Transaction::new(DATABASE).then(tell);
            let told = client.transact(&transaction).await;
            told.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

async fn monitor(client: &mut Client) -> Result<MonitorId, String> {
    let columns = BTreeSet::from([database::COLUMN.to_owned(), "name".to_owned()]);
    let request = MonitorRequest {
        columns: BTreeMap::from([("Bridge".to_owned(), columns)]),
        conditions: BTreeMap::new(),
    };
    let asked = client.monitor(DATABASE, &request);
    asked.await.map_err(|error| error.to_string())
}

fn rows(client: &mut Client, monitor: MonitorId) -> Vec<(Uuid, BridgePolicy)> {
    let (session, _) = client.session();
    let replica = session.replica(monitor).into_iter();
    let rows = replica.flat_map(|replica| replica.rows("Bridge"));
    rows.map(|(uuid, row)| (uuid, BridgePolicy::of(row)))
        .collect()
}
