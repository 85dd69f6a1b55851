//! Policy maps through a relay's status socket: a request to push a map, and its answer.
//!
//! A request is a line `policy push [NAME]`, then the map, then the end of the stream. NAME is the
//! relay that gets the map; without NAME, all relays get it. A client that sends nothing gets the
//! status.

use std::sync::Arc;
use std::time::Duration;

use net::transport::Connection;
use relay::PolicyStatus;
use sched::PolicyMap;
use sched::policy::MapDigest;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tunnel::{Direct, End, Pushed};

use super::report::Source;

/// The first words of a request to push a map.
pub const PUSH: &str = "policy push";

/// The wait for a client's first word: a client that asks for the status sends none.
const FIRST_WORD_TIME_MAX: Duration = Duration::from_millis(20);
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// The client's request; `None` asks for the status.
pub async fn request(connection: &mut Connection) -> Option<String> {
    let mut text = Vec::new();
    let mut reader = (&mut connection.reader).take(REQUEST_BYTES_MAX);
    let mut first = [0; 1024];
    let read = tokio::time::timeout(FIRST_WORD_TIME_MAX, reader.read(&mut first)).await;
    let len = read.ok()?.ok().filter(|len| *len > 0)?;
    text.extend_from_slice(&first[..len]);
    let rest = tokio::time::timeout(REQUEST_TIME_MAX, reader.read_to_end(&mut text)).await;
    rest.ok()?.ok()?;
    String::from_utf8(text).ok()
}

/// Carries out `request` at every relay that it addresses.
pub async fn answer(source: &Source, request: &str) -> Value {
    let (line, text) = request.split_once('\n').unwrap_or((request, ""));
    let Some(name) = line.strip_prefix(PUSH).map(str::trim) else {
        return json!({ "error": format!("'{line}' is no request: write {PUSH} [NAME]") });
    };
    let ends: Vec<Arc<End>> = match source {
        Source::End(end) => vec![end.clone()],
        Source::Hub(hub) => hub.ends(),
        Source::Direct(direct, _) => return push_direct(direct, name, text).await,
    };
    let named = |end: &&Arc<End>| name.is_empty() || end.status().peer == name;
    let ends: Vec<&Arc<End>> = ends.iter().filter(named).collect();
    if ends.is_empty() {
        let who = if name.is_empty() { "other relay" } else { name };
        return json!({ "error": format!("no {who} is here") });
    }
    let mut pushed = Vec::new();
    for end in ends {
        let mut one = match in_use(end, text) {
            Some(digest) => {
                json!({ "ok": true, "unchanged": true, "sha256": digest.to_string() })
            }
            None => match end.push_policy(text).await {
                Ok(digest) => json!({ "ok": true, "sha256": digest.to_string() }),
                Err(error) => json!({ "ok": false, "error": error }),
            },
        };
        one["name"] = end.status().peer.into();
        pushed.push(one);
    }
    json!({ "pushed": pushed })
}

/// The digest of the map, if both ends have this map.
fn in_use(end: &Arc<End>, text: &str) -> Option<MapDigest> {
    let (map, _) = PolicyMap::parse(text).ok()?;
    let status = end.policy_status()?;
    let is_it = status.is_in_sync == Some(true) && status.digest == map.digest();
    is_it.then_some(status.digest)
}

/// Each connection has its own other end, and none of these ends has a name.
async fn push_direct(direct: &Direct, name: &str, text: &str) -> Value {
    if !name.is_empty() {
        let error =
            "relays that are joined by tcp:, ssl: or unix: know no names: leave out --switch";
        return json!({ "error": error });
    }
    let one = |pushed: Pushed| match pushed.outcome {
        Ok(digest) => json!({
            "ok": true,
            "sha256": digest.to_string(),
            "alone": pushed.is_alone,
            "unchanged": pushed.is_unchanged,
            "name": pushed.name,
        }),
        Err(error) => json!({ "ok": false, "error": error, "name": pushed.name }),
    };
    match direct.push_policy(text).await {
        Ok(pushed) => json!({ "pushed": pushed.into_iter().map(one).collect::<Vec<_>>() }),
        Err(error) => json!({ "error": error }),
    }
}

/// The map of one end in the status.
pub fn status_json(policy: &PolicyStatus) -> Value {
    let peer = |(generation, digest): (u64, sched::policy::MapDigest)| {
        let sha256 = digest.to_string();
        json!({ "generation": generation, "sha256": sha256 })
    };
    json!({
        "generation": policy.generation,
        "sha256": policy.digest.to_string(),
        "other_end": policy.peer.map(peer),
        "in_sync": policy.is_in_sync,
    })
}
