//! The relays beside this controller, as their status sockets show them: `GET /v1/relays`.
//!
//! A relay is another process, and the reports of its other end come from elsewhere: an answer is
//! bounded in time and bytes, and a relay that cannot be read is named in its place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use crate::lock;

/// The time that a relay has to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The most bytes of an answer that are read.
const BYTES_MAX: u64 = 4 << 20;
/// The sessions of a relay that are shown, and the channels and lanes of one.
const SESSIONS_MAX: usize = 1000;
const CHANNELS_MAX: usize = 32;
const LANES_MAX: usize = 64;
/// The time for which an answer serves other requests too.
const KEPT: Duration = Duration::from_millis(900);

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(relays))
}

/// The sockets, and the last answer.
#[derive(Default)]
pub struct Relays {
    sockets: std::sync::Mutex<Vec<PathBuf>>,
    /// A request holds the lock while it asks, so that each relay has one question at a time.
    last: Mutex<Option<(Instant, Arc<RelaysDocument>)>>,
}

/// The relays that the configuration names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct RelaysDocument {
    pub relays: Vec<RelayDocument>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct RelayDocument {
    #[schema(example = "unix:/run/auster/relay.sock")]
    pub socket: String,
    /// Why it cannot be read.
    pub problem: Option<String>,
    /// Those beyond a thousand are not in `sessions`.
    pub session_count: usize,
    pub sessions: Vec<RelaySession>,
}

/// The answer of a relay. Fields that another version adds are ignored.
#[derive(Deserialize)]
struct Status {
    relays: Vec<RelaySession>,
}

/// A session with a relay at the other end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RelaySession {
    /// The relay at the other end, as its certificate names it.
    #[schema(example = "s1")]
    pub name: String,
    pub address: Option<String>,
    /// `quic`, or `ssl` where UDP does not get through.
    pub transport: Option<String>,
    #[serde(rename(deserialize = "up"))]
    pub is_up: bool,
    /// The order that its lanes keep.
    pub order: String,
    /// The round trip as QUIC sees it.
    pub rtt_us: Option<u64>,
    /// Packets that were sent again.
    pub lost_packets: u64,
    pub sessions: u64,
    pub reconnects: u64,
    /// Connections that went on where the last one ended.
    pub resumptions: u64,
    pub failovers: u64,
    pub channels_closed: u64,
    /// Packet-ins that were shed, by the policy map.
    #[serde(rename(deserialize = "drops"))]
    pub packet_ins_shed: u64,
    /// One for each code point, with a policy map that has them.
    #[serde(rename(deserialize = "connections"))]
    pub carriers: Vec<Carrier>,
    /// The queues before the lanes; null without a policy map.
    pub policy: Option<Queues>,
    pub policy_map: Option<PolicyInUse>,
    pub channels: Vec<Channel>,
}

/// A connection of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Carrier {
    pub code_point: Option<u8>,
    pub rtt_us: u64,
    pub lost_packets: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Queues {
    pub algorithm: String,
    pub queues: Vec<RelayQueue>,
}

/// A queue of the policy map, by its number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RelayQueue {
    pub queue: u64,
    pub messages_out: u64,
    pub bytes_out: u64,
    pub messages_waiting: u64,
    pub bytes_waiting: u64,
    pub shed_duplicate: u64,
    pub shed_stale: u64,
    pub shed_full: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PolicyInUse {
    pub generation: u64,
    /// Whether both ends have the same; null while the other one is away.
    #[serde(rename(deserialize = "in_sync"))]
    pub is_in_sync: Option<bool>,
}

/// The messages of one switch, or of another agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Channel {
    pub channel: u64,
    #[schema(example = "openflow")]
    pub agent: String,
    /// Messages of OpenFlow, pieces of other agents.
    #[schema(example = "messages")]
    pub unit: String,
    /// From the peer beside the relay, to the other relay.
    pub taken: Counted,
    /// From the other relay, to the peer beside this one.
    pub given: Counted,
    /// Messages by lane.
    pub lanes_out: BTreeMap<String, u64>,
    pub lanes_in: BTreeMap<String, u64>,
    pub shed: Counted,
    pub queued_count: u64,
    pub queued_bytes: u64,
    /// Kept until the other relay has them.
    pub kept_bytes: u64,
    /// Those that wait for others that they must not overtake.
    pub held_count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Counted {
    pub count: u64,
    pub bytes: u64,
}

/// Relays beside this controller: sessions, loss, lanes, and what waits.
#[utoipa::path(get, path = "/v1/relays", tag = "network", operation_id = "get_relays",
    responses((status = 200, body = RelaysDocument)))]
async fn relays(State(api): State<Api>) -> Json<RelaysDocument> {
    let document = api.reads.relays.document().await;
    Json((*document).clone())
}

impl Relays {
    pub fn at(sockets: Vec<PathBuf>) -> Relays {
        Relays {
            sockets: sockets.into(),
            last: Mutex::default(),
        }
    }

    /// Sets the sockets that are read from the next question on.
    pub fn set_sockets(&self, sockets: Vec<PathBuf>) {
        *lock(&self.sockets) = sockets;
    }

    async fn document(&self) -> Arc<RelaysDocument> {
        let mut last = self.last.lock().await;
        if let Some((at, document)) = &*last
            && at.elapsed() < KEPT
        {
            return document.clone();
        }
        let mut reading = JoinSet::new();
        let sockets = lock(&self.sockets).clone();
        for (place, socket) in sockets.into_iter().enumerate() {
            reading.spawn(async move { (place, read(&socket).await) });
        }
        let mut relays = BTreeMap::new();
        while let Some(done) = reading.join_next().await {
            relays.extend(done.ok());
        }
        let relays = relays.into_values().collect();
        let document = Arc::new(RelaysDocument { relays });
        *last = Some((Instant::now(), document.clone()));
        document
    }
}

async fn read(socket: &Path) -> RelayDocument {
    let mut document = RelayDocument {
        socket: format!("unix:{}", socket.display()),
        ..RelayDocument::default()
    };
    let answer = timeout(ANSWER_MAX, answer(socket)).await;
    let answer = answer.unwrap_or_else(|_| Err(format!("no answer in {ANSWER_MAX:?}")));
    let parsed = match answer {
        // A long answer takes a while to parse, and other requests should not wait for it.
        Ok(text) => spawn_blocking(move || parsed(&text)).await,
        Err(why) => Ok(Err(why)),
    };
    match parsed.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(sessions) => {
            document.session_count = sessions.len();
            document.sessions = sessions.into_iter().take(SESSIONS_MAX).collect();
        }
        Err(why) => document.problem = Some(why),
    }
    document
}

async fn answer(socket: &Path) -> Result<Vec<u8>, String> {
    let stream = UnixStream::connect(socket).await;
    let mut stream = stream.map_err(|error| error.to_string())?.take(BYTES_MAX);
    let mut text = Vec::new();
    let read = stream.read_to_end(&mut text).await;
    read.map_err(|error| error.to_string())?;
    match stream.limit() {
        0 => Err(format!("its answer has {BYTES_MAX} bytes or more")),
        _ => Ok(text),
    }
}

fn parsed(text: &[u8]) -> Result<Vec<RelaySession>, String> {
    let status = serde_json::from_slice::<Status>(text);
    let status = status.map_err(|error| format!("this is no status of a relay: {error}"))?;
    let mut sessions = status.relays;
    for session in &mut sessions {
        session.channels.truncate(CHANNELS_MAX);
        for channel in &mut session.channels {
            for lanes in [&mut channel.lanes_out, &mut channel.lanes_in] {
                while lanes.len() > LANES_MAX {
                    lanes.pop_last();
                }
            }
        }
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn status() -> Value {
        json!({"later": [1], "relays": [{
            "name": "s1", "up": true, "transport": "quic", "rtt_us": 730, "drops": 3,
            "lost_packets": 2, "connections": [{"code_point": null, "rtt_us": 730}],
            "policy": {"algorithm": "strict", "queues": [{"queue": 1, "bytes_waiting": 9}]},
            "policy_map": {"generation": 1, "in_sync": null},
            "channels": [{"channel": 1, "agent": "openflow", "taken": {"count": 5, "bytes": 40},
                          "lanes_out": {"state0": 4, "packet3": 1}}],
        }]})
    }

    #[test]
    fn a_status_is_read_whatever_it_has_beside() {
        let [session] = &parsed(status().to_string().as_bytes()).unwrap()[..] else {
            panic!("one session");
        };
        assert!(session.is_up && session.packet_ins_shed == 3 && session.rtt_us == Some(730));
        assert_eq!(session.channels[0].lanes_out["packet3"], 1);
        assert_eq!(session.policy.as_ref().unwrap().queues[0].bytes_waiting, 9);
        let shown = serde_json::to_value(session).unwrap();
        assert!(shown["is_up"] == true && shown["carriers"][0]["rtt_us"] == 730);
    }

    #[test]
    fn a_session_has_bounded_channels_and_lanes() {
        let mut status = status();
        let channel = &mut status["relays"][0]["channels"][0];
        channel["lanes_in"] = (0..1000).map(|n| (format!("{n:04}"), json!(n))).collect();
        let channel = channel.clone();
        status["relays"][0]["channels"] = vec![channel; 1000].into();
        let session = parsed(status.to_string().as_bytes()).unwrap().remove(0);
        assert_eq!(session.channels.len(), CHANNELS_MAX);
        assert_eq!(session.channels[31].lanes_in.len(), LANES_MAX);
    }

    /// One relay answers, one sends something else, one is absent, one sends nothing, and one does
    /// not end.
    #[tokio::test]
    async fn a_relay_that_cannot_be_read_is_named_and_keeps_the_others_not_away() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["good", "odd", "absent", "silent", "endless"];
        let sockets: Vec<PathBuf> = names.iter().map(|name| dir.path().join(name)).collect();
        for (place, socket) in sockets.iter().enumerate().filter(|(place, _)| *place != 2) {
            let listener = net::transport::bind_unix(socket).unwrap();
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                match place {
                    0 => drop(stream.write_all(status().to_string().as_bytes()).await),
                    1 => drop(stream.write_all(b"[1]\n").await),
                    3 => std::future::pending().await,
                    _ => while stream.write_all(&[b' '; 1 << 16]).await.is_ok() {},
                }
            });
        }
        let relays = Relays::at(sockets);
        let (document, also) = tokio::join!(relays.document(), relays.document());
        let problems = document.relays.iter().map(|relay| relay.problem.as_deref());
        let problems: Vec<&str> = problems.map(|why| why.unwrap_or("none")).collect();
        assert_eq!(problems[0], "none");
        assert_eq!(document.relays[0].session_count, 1);
        assert!(
            problems[1].starts_with("this is no status of a relay"),
            "{problems:?}"
        );
        assert!(problems[2].contains("No such file"), "{problems:?}");
        assert_eq!(problems[3], "no answer in 2s");
        assert!(
            problems[4].contains("4194304 bytes or more"),
            "{problems:?}"
        );
        // A request made meanwhile gets the same answer.
        assert!(Arc::ptr_eq(&document, &also));
    }
}
