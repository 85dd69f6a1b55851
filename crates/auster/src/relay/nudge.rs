//! Makes bridges that wait out a back-off connect at once.
//!
//! Open vSwitch tries a controller again after 1, 2, 4 and then every 8 seconds, and 3.1 ignores
//! `max_backoff`. A controller whose target changes is dialled at once, and the flows stay since
//! the bridge always has a controller (measured: 30 ms, flows kept; a changed `inactivity_probe`
//! does nothing). So the target is rewritten in another form of the same address:
//! `tcp:127.0.0.1:6653` and `tcp:127.0.0.1:06653`, `unix:/run/x` and `unix://run/x`.

use std::sync::Arc;
use std::time::Duration;

use net::method::{Host, Method};
use net::transport;
use ovsdb::{Condition, OpResult, Operation, Uuid};
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};
use tunnel::{End, OPENFLOW};

use crate::database::Client;

/// The time that bridges have to connect by themselves.
const PATIENCE: Duration = Duration::from_millis(50);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that the bridges have to answer after a nudge. It is also the least time between two
/// nudges, and the interval at which Open vSwitch itself dials at first.
const REST: Duration = Duration::from_secs(1);
/// The interval between two checks whether the controller has left its bridges.
const TICK: Duration = Duration::from_millis(100);
/// The time limit of a probe, longer than the other end dials for a channel.
const PROBE_TIME_MAX: Duration = Duration::from_secs(6);
const PROBE_BUFFER_BYTES: usize = 1024;

/// Nudges the bridges whose target is `openflow`: whenever `end` has begun a fresh session, and
/// whenever the controller has left all of these bridges and is back.
pub async fn run(end: Arc<End>, database: Method, openflow: Method) {
    // A fresh session is no sign that the controller answers.
    let mut is_expected = false;
    loop {
        tokio::select! {
            () = end.fresh() => {
                is_expected = true;
                sleep(PATIENCE).await;
            }
            () = controller_back(&end, is_expected) => is_expected = false,
        }
        let nudged = timeout(ANSWER_TIMEOUT, nudge(&end, &database, &openflow)).await;
        match nudged {
            Ok(Ok(NudgeOutcome::NoneHere)) => is_expected = false,
            // The counted session may be the remains of an old one: check again.
            Ok(Ok(NudgeOutcome::CameThemselves)) => is_expected = true,
            Ok(Ok(NudgeOutcome::Count(count))) => tracing::info!(count, "bridges nudged"),
            Ok(Err(problem)) => tracing::warn!("--nudge: {problem}"),
            Err(_) => tracing::warn!("--nudge: {database} does not answer"),
        }
    }
}

/// Waits until no bridge has a controller any more and the controller answers. First waits for a
/// bridge to have one, unless it `is_expected` that none has.
async fn controller_back(end: &Arc<End>, is_expected: bool) {
    sleep(REST).await;
    while !is_expected && sessions(end) == 0 {
        sleep(TICK).await;
    }
    loop {
        while sessions(end) > 0 || !end.status().is_up {
            sleep(TICK).await;
        }
        if controller_answers(end).await {
            return sleep(PATIENCE).await;
        }
        sleep(TICK).await;
    }
}

/// Channels on which both the bridge and the controller have sent bytes.
fn sessions(end: &Arc<End>) -> usize {
    let status = end.status();
    let channels = status.channels.iter().filter(|c| c.name == OPENFLOW);
    let sessions = channels.filter(|c| c.taken.bytes > 0 && c.given.bytes > 0);
    sessions.count()
}

/// Dials the controller for no bridge and waits for its HELLO, which both sides send without being
/// asked (OpenFlow 1.3.5, 6.3.1). Open vSwitch waits for the HELLO no longer than its back-off, and
/// then waits without dialling.
async fn controller_answers(end: &Arc<End>) -> bool {
    let (mut ours, theirs) = transport::memory(PROBE_BUFFER_BYTES);
    end.adopt(OPENFLOW, theirs);
    let mut byte = [0];
    let read = timeout(PROBE_TIME_MAX, ours.reader.read(&mut byte)).await;
    matches!(read, Ok(Ok(1)))
}

enum NudgeOutcome {
    /// No bridge has this relay as its target.
    NoneHere,
    CameThemselves,
    Count(usize),
}

async fn nudge(
    end: &Arc<End>,
    database: &Method,
    openflow: &Method,
) -> Result<NudgeOutcome, String> {
    let mut client = Client::connect(database).await?;
    let select = Operation::Select {
        table: "Controller".into(),
        conditions: vec![],
        columns: Some(vec!["_uuid".into(), "target".into()]),
    };
    let answer = client.transact(&[select]).await?;
    let rows = match answer.into_iter().next() {
        Some(OpResult::Rows(rows)) => rows,
        _ => vec![],
    };
    let ours: Vec<(Uuid, String)> = rows
        .iter()
        .filter_map(|row| {
            let target = row.get("target")?.as_str()?;
            let other = other_form(target, openflow)?;
            Some((row.get("_uuid")?.as_uuid()?, other))
        })
        .collect();
    // Some bridges may have just connected by themselves. A bridge that loses a session at its
    // beginning loses little; a bridge that waits out its back-off would be away for seconds.
    if ours.is_empty() {
        return Ok(NudgeOutcome::NoneHere);
    }
    if sessions(end) >= ours.len() {
        return Ok(NudgeOutcome::CameThemselves);
    }
    for (uuid, target) in &ours {
        let row = vec![Condition::equal("_uuid", *uuid)];
        let update = Operation::update("Controller", row, [("target", target.as_str().into())]);
        client.transact(&[update]).await?;
    }
    Ok(NudgeOutcome::Count(ours.len()))
}

/// Another form of `target`, if it is the address of the listener `openflow`.
fn other_form(target: &str, openflow: &Method) -> Option<String> {
    match (target.parse().ok()?, openflow) {
        (Method::DialUnix(path), Method::ListenUnix(ours)) if same_path(&path, ours) => {
            let path = path.to_str()?;
            Some(match path.strip_prefix("//") {
                Some(rest) => format!("unix:/{rest}"),
                None => format!("unix:/{path}"),
            })
        }
        (Method::Dial(by, host, port), Method::Listen(on, at, ours)) => {
            let reaches = *at == Host::V4(std::net::Ipv4Addr::UNSPECIFIED) || *at == host;
            if by != *on || port != *ours || !reaches {
                return None;
            }
            let plain = Method::Dial(by, host, port).to_string();
            let (address, port) = plain.rsplit_once(':')?;
            let padded = format!("{address}:0{port}");
            Some(if target == padded {
                plain.clone()
            } else {
                padded
            })
        }
        _ => None,
    }
}

fn same_path(a: &std::path::Path, b: &std::path::Path) -> bool {
    a.components().eq(b.components())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_written_otherwise_and_back_only_when_it_leads_here() {
        let cases = [
            (
                "tcp:127.0.0.1:6653",
                "ptcp:6653:127.0.0.1",
                Some("tcp:127.0.0.1:06653"),
            ),
            (
                "tcp:127.0.0.1:06653",
                "ptcp:6653:127.0.0.1",
                Some("tcp:127.0.0.1:6653"),
            ),
            ("tcp:127.0.0.1", "ptcp:6653", Some("tcp:127.0.0.1:06653")),
            ("tcp:192.0.2.1:6653", "ptcp:6653:127.0.0.1", None),
            ("tcp:127.0.0.1:6633", "ptcp:6653:127.0.0.1", None),
            ("ssl:127.0.0.1:6653", "ptcp:6653:127.0.0.1", None),
            (
                "unix:/run/x.sock",
                "punix:/run/x.sock",
                Some("unix://run/x.sock"),
            ),
            (
                "unix://run/x.sock",
                "punix:/run/x.sock",
                Some("unix:/run/x.sock"),
            ),
            ("unix:/run/y.sock", "punix:/run/x.sock", None),
            ("ptcp:6653", "ptcp:6653", None),
        ];
        for (target, openflow, other) in cases {
            let openflow = openflow.parse().unwrap();
            assert_eq!(other_form(target, &openflow).as_deref(), other, "{target}");
        }
    }
}
