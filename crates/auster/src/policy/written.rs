//! Policy maps through the switch's database: `push --ovsdb` and `status --ovsdb`.

use std::time::{Duration, Instant};

use net::method::{Method, Protocol, Transport};
use ovsdb::{OpResult, Operation};
use sched::PolicyMap;
use serde_json::{Value, json};

use super::database::{self, BridgePolicy};
use crate::database::Client;
use crate::ofp;
use cli::failure::Failure;

/// The time for a relay, and its other end if it has one, to take the map.
const TAKING_TIME_MAX: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Writes `map` to the bridge's row, and waits until a relay reports that the map is in use.
pub fn push(ovsdb: &str, bridge: &str, map: &PolicyMap) -> Result<(), Failure> {
    let method = method(ovsdb)?;
    let lost = |problem: String| Failure::network(format!("{ovsdb}: {problem}"));
    let active = database::active(map.generation, &map.digest());
    runtime()?.block_on(async {
        let mut client = Client::connect(&method).await.map_err(lost)?;
        let given = client.transact(&[database::give(bridge, map)]).await;
        if given.map_err(lost)? != [OpResult::Count(1)] {
            let advice = "'ovs-vsctl list-br' shows those there are";
            return Err(Failure::usage(format!(
                "{ovsdb}: no bridge '{bridge}'; {advice}"
            )));
        }
        let until = Instant::now() + TAKING_TIME_MAX;
        loop {
            let rows = rows(&mut client).await.map_err(lost)?;
            let row = rows.into_iter().find(|row| row.bridge == bridge);
            let told = row.and_then(|row| row.get(database::ACTIVE).map(str::to_owned));
            if told.as_deref() == Some(&active) {
                let line = format!("{bridge}: in use, sha256 {}", map.digest());
                return ofp::write_line(&mut std::io::stdout().lock(), &line);
            }
            if Instant::now() > until {
                return Err(Failure::negative(format!(
                    "{bridge}: the map is written and not in use ({}); a relay with --policy-db \
                     takes it, and its log says why it does not",
                    told.map_or("no relay has said what is".to_owned(), |t| format!(
                        "{t} is"
                    ))
                )));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    })
}

/// Prints the policy keys of all bridges' rows.
pub fn status(ovsdb: &str, json: bool) -> Result<(), Failure> {
    let method = method(ovsdb)?;
    let lost = |problem: String| Failure::network(format!("{ovsdb}: {problem}"));
    let rows = runtime()?.block_on(async {
        let mut client = Client::connect(&method).await.map_err(lost)?;
        rows(&mut client).await.map_err(lost)
    })?;
    let rows: Vec<BridgePolicy> = rows.into_iter().filter(BridgePolicy::is_given).collect();
    let mut out = std::io::stdout().lock();
    if json {
        let document = Value::Array(rows.iter().map(row_json).collect());
        let text = serde_json::to_string_pretty(&document).map_err(Failure::negative)?;
        return ofp::write_line(&mut out, &text);
    }
    if rows.is_empty() {
        return Err(Failure::negative("no bridge has a policy map in its row"));
    }
    for row in &rows {
        let written = match row.read() {
            Ok(map) => format!("generation {}, sha256 {}", map.generation, map.digest()),
            Err(problems) => format!("wrong: {}", problems.replace('\n', "; ")),
        };
        let in_use = match row.get(database::ACTIVE) {
            None => "no relay has said what is in use".to_owned(),
            Some(_) if is_in_use(row) => "in use".to_owned(),
            Some(other) => format!("NOT in use: {other} is"),
        };
        ofp::write_line(&mut out, &format!("{}: {written}, {in_use}", row.bridge))?;
    }
    Ok(())
}

fn is_in_use(row: &BridgePolicy) -> bool {
    let written = row
        .named()
        .map(|(generation, digest)| database::active(generation, &digest));
    written.is_some() && written.as_deref() == row.get(database::ACTIVE)
}

fn row_json(row: &BridgePolicy) -> Value {
    json!({
        "bridge": row.bridge,
        "generation": row.get(database::GENERATION),
        "sha256": row.get(database::DIGEST),
        "active": row.get(database::ACTIVE),
        "in_use": is_in_use(row),
        "problems": row.read().err(),
    })
}

async fn rows(client: &mut Client) -> Result<Vec<BridgePolicy>, String> {
    let select = Operation::Select {
        table: "Bridge".into(),
        conditions: vec![],
        columns: Some(vec!["name".into(), database::COLUMN.into()]),
    };
    let answer = client.transact(&[select]).await?;
    match answer.into_iter().next() {
        Some(OpResult::Rows(rows)) => Ok(rows.iter().map(BridgePolicy::of).collect()),
        _ => Ok(Vec::new()),
    }
}

fn method(text: &str) -> Result<Method, Failure> {
    match Method::parse(text, Protocol::Ovsdb).map_err(Failure::usage)? {
        method @ (Method::DialUnix(_) | Method::Dial(Transport::Tcp, ..)) => Ok(method),
        _ => Err(Failure::usage(format!(
            "--ovsdb {text}: write unix:FILE or tcp:HOST[:PORT]"
        ))),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Runtime::new().map_err(Failure::machine)
}
