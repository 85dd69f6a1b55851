//! The relay's reports: its state on a socket, and a line per finished channel in a file.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use net::method::Method;
use net::tls::Security;
use net::transport::{Connection, Limits, Listener, Refusals};
use relay::hold::HoldCounters;
use relay::{Agent, ChannelStatus, Kind, LineStatus, Tally};
use sched::PolicyMap;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tunnel::{ConnectionStatus, DatagramStatus, Direct, End, EndStatus, Holder, Hub, Pushed};

use super::policy;
use cli::failure::Failure;

/// The interval at which finished channels are written to the file.
const RECORD_INTERVAL: Duration = Duration::from_millis(200);

/// The source of the reported state.
#[derive(Clone)]
pub enum Source {
    End(Arc<End>),
    Hub(Arc<Hub>),
    /// With the refusals of its listener.
    Direct(Arc<Direct>, Arc<Refusals>),
}

/// The file of finished channels.
pub type Record = (PathBuf, File);

/// Opens the file to append to it: lines from an earlier process are proof and stay.
pub fn open(path: Option<&Path>) -> Result<Option<Record>, Failure> {
    let Some(path) = path else {
        return Ok(None);
    };
    let file = File::options().append(true).create(true).open(path);
    let file = file.map_err(|error| Failure::file(path, error))?;
    Ok(Some((path.to_owned(), file)))
}

/// Answers until it is dropped.
pub struct Reporter {
    source: Source,
    record: Option<Record>,
    tasks: JoinSet<()>,
}

impl Source {
    pub fn status(&self) -> Vec<EndStatus> {
        match self {
            Source::End(end) => vec![end.status()],
            Source::Hub(hub) => hub.status(),
            Source::Direct(direct, _) => vec![direct.status()],
        }
    }

    /// The map in use, and each later one. Each switch of a hub has its own map.
    pub fn committed(&self) -> Option<watch::Receiver<Arc<PolicyMap>>> {
        match self {
            Source::End(end) => end.committed(),
            Source::Hub(_) => None,
            Source::Direct(direct, _) => direct.committed(),
        }
    }

    /// Takes a map into use, also at the other end if there is one.
    pub async fn load_policy(&self, text: &str) -> Result<(), String> {
        match self {
            Source::End(end) => end.load_policy(text).await.map(drop),
            Source::Hub(_) => Err("it serves many switches".to_owned()),
            Source::Direct(direct, _) => {
                let pushed = direct.push_policy(text).await?;
                let problem = |one: Pushed| Some(format!("{}: {}", one.name, one.outcome.err()?));
                let is_used = pushed.iter().any(|one| one.outcome.is_ok());
                let problems: Vec<String> = pushed.into_iter().filter_map(problem).collect();
                if is_used {
                    for problem in problems {
                        tracing::warn!("the policy map is not in use everywhere: {problem}");
                    }
                    return Ok(());
                }
                Err(problems.join("\n"))
            }
        }
    }

    fn finished(&self) -> Vec<(String, ChannelStatus)> {
        match self {
            Source::End(end) => end.take_finished(),
            Source::Hub(hub) => hub.take_finished(),
            Source::Direct(direct, _) => direct.take_finished(),
        }
    }
}

impl Reporter {
    pub async fn start(
        status: Option<&Method>,
        record: Option<Record>,
        source: Source,
        holder: Option<Arc<Holder>>,
    ) -> Result<Reporter, Failure> {
        let mut tasks = JoinSet::new();
        if let Some(method) = status {
            let listener = Listener::bind(method, &Security::plain(), Limits::default()).await;
            let listener =
                listener.map_err(|error| Failure::network(format!("--status {error}")))?;
            tasks.spawn(answer(listener, source.clone(), holder));
        }
        if let Some((path, file)) = &record {
            let copy = file.try_clone();
            let copy = copy.map_err(|error| Failure::file(path, error))?;
            tasks.spawn(write_down(path.clone(), copy, source.clone()));
        }
        Ok(Reporter {
            source,
            record,
            tasks,
        })
    }

    /// Writes the remaining lines.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.tasks.abort_all();
        match &mut self.record {
            None => Ok(()),
            Some((path, file)) => write_lines(path, file, &self.source),
        }
    }
}

async fn answer(mut listener: Listener, source: Source, holder: Option<Arc<Holder>>) {
    loop {
        let connection = listener.accept().await;
        tokio::spawn(answer_one(connection, source.clone(), holder.clone()));
    }
}

async fn answer_one(mut connection: Connection, source: Source, holder: Option<Arc<Holder>>) {
    let answer = match policy::request(&mut connection).await {
        Some(request) => policy::answer(&source, &request).await,
        None => {
            let ends: Vec<Value> = source.status().iter().map(end_json).collect();
            let held = holder.map(|holder| held_json(&holder.counters()));
            let mut state = json!({ "relays": ends, "first_packets": held });
            if let Source::Hub(hub) = &source {
                state["datagrams_for_no_relay"] = hub.datagrams_dropped().into();
                let strays = hub.strays().map(
                    |strays| json!({ "tickets": strays.tickets, "sessions": strays.sessions }),
                );
                state["early_data_for_no_session"] = strays.into();
                let rivals = hub.rivals();
                state["same_name"] =
                    json!({ "evictions": rivals.evictions, "conflicts": rivals.conflicts });
                let turns = hub.turns();
                state["handshakes"] = json!({
                    "begun": turns.begun,
                    "told_to_wait": turns.told_to_wait,
                    "too_late": turns.too_late,
                    "crowded": turns.crowded,
                });
            }
            state
        }
    };
    let text = format!("{answer}\n");
    let _ = connection.writer.write_all(text.as_bytes()).await;
    let _ = connection.writer.shutdown().await;
}

async fn write_down(path: PathBuf, mut file: File, source: Source) {
    loop {
        tokio::time::sleep(RECORD_INTERVAL).await;
        if let Err(error) = write_lines(&path, &mut file, &source) {
            return tracing::error!("--record: {error:?}");
        }
    }
}

fn write_lines(path: &Path, file: &mut File, source: &Source) -> Result<(), Failure> {
    for (relay, channel) in source.finished() {
        let mut line = channel_json(&channel);
        line["relay"] = relay.into();
        writeln!(file, "{line}").map_err(|error| Failure::file(path, error))?;
    }
    Ok(())
}

fn held_json(held: &HoldCounters) -> Value {
    json!({
        "flows": held.flows,
        "held": held.held,
        "released": held.released,
        "followed": held.followed,
        "not_taken": held.not_taken,
        "timed_out": held.timed_out,
        "overflowed": held.overflowed,
        "flows_refused": held.flows_refused,
    })
}

fn end_json(end: &EndStatus) -> Value {
    json!({
        "name": end.peer,
        "address": end.address,
        "transport": end.transport.map(|transport| transport.name()),
        "up": end.is_up,
        "relay": end.relay,
        "failovers": end.failovers,
        "sessions": end.sessions,
        "order": end.order.name(),
        "rtt_us": end.rtt().map(|rtt| rtt.as_micros() as u64),
        "lost_packets": end.lost_packets(),
        "connections": end.connections.iter().map(connection_json).collect::<Vec<_>>(),
        "reconnects": end.reconnects,
        "resumptions": end.resumptions,
        "channels_closed": end.closed,
        // Without a policy map, no code drops a message: a message that cannot be sent is not read.
        // With a map, only packet-ins can be dropped.
        "drops": end.line.as_ref().map_or(0, shed_count),
        "policy": end.line.as_ref().map(line_json),
        "policy_map": end.policy.as_ref().map(policy::status_json),
        "policy_faults": end.policy_faults,
        "datapaths_refused": end.datapaths_refused,
        "coalesced": { "held": end.windows.held, "windows": end.windows.windows },
        "copies": {
            "sent": end.copies.sent,
            "too_long": end.copies.too_long,
            "overflowed": end.copies.overflowed,
            "unwanted": end.copies.unwanted,
            "used": end.copies.came.used,
            "doubled": end.copies.came.doubled,
            "refused": end.copies.came.refused,
        },
        "early_data": {
            "sent": end.early.sent,
            "accepted": end.early.accepted,
            "rejected": end.early.rejected,
            "taken": end.early.taken,
            "repeated": end.early.repeated,
            "ahead": end.early.ahead,
            "refused": end.early.refused,
        },
        "datagrams": datagrams_json(&end.datagrams),
        "channels": end.channels.iter().map(channel_json).collect::<Vec<_>>(),
    })
}

fn datagrams_json(datagrams: &DatagramStatus) -> Value {
    let dropped = &datagrams.dropped;
    json!({
        "peers": datagrams.peers,
        "sockets": datagrams.sockets,
        "taken": { "count": datagrams.taken, "bytes": datagrams.taken_bytes },
        "given": { "count": datagrams.given, "bytes": datagrams.given_bytes },
        "sent": datagrams.sent,
        "by_stream": datagrams.by_stream,
        "waiting": datagrams.waiting,
        "evicted": datagrams.evicted,
        "dropped": {
            "disconnected": dropped.disconnected,
            "unwanted": dropped.unwanted,
            "overflowed": dropped.overflowed,
            "too_long": dropped.too_long,
            "no_target": dropped.no_target,
            "late": dropped.late,
            "unsent": dropped.unsent,
        },
    })
}

fn connection_json(connection: &ConnectionStatus) -> Value {
    json!({
        "code_point": connection.code_point,
        "rtt_us": connection.rtt.as_micros() as u64,
        "lost_packets": connection.lost_packets,
    })
}

fn channel_json(channel: &ChannelStatus) -> Value {
    let lanes = |cursors: &[(sched::Lane, u64)]| -> Value {
        let lane = |(lane, count): &(sched::Lane, u64)| {
            (
                format!("{:?}{}", lane.kind, lane.index).to_lowercase(),
                json!(count),
            )
        };
        Value::Object(cursors.iter().map(lane).collect())
    };
    json!({
        "channel": channel.channel.0,
        "agent": channel.name,
        "class": channel.class.map(Kind::name),
        "unit": if channel.agent == Agent::OpenFlow { "messages" } else { "pieces" },
        "taken": tally_json(&channel.taken),
        "given": tally_json(&channel.given),
        "lanes_out": lanes(&channel.lanes_out),
        "lanes_in": lanes(&channel.lanes_in),
        "shed": { "count": channel.shed.messages, "bytes": channel.shed.bytes },
        "queued_count": channel.queued_count,
        "queued_bytes": channel.queued_bytes,
        "kept_bytes": channel.kept_bytes,
        "held_bytes": channel.held_bytes,
        "held_count": channel.held_count,
    })
}

/// Packet-ins that were dropped.
pub fn shed_count(line: &LineStatus) -> u64 {
    let queues = line.queues.iter();
    queues
        .map(|q| q.shed_duplicate + q.shed_stale + q.shed_full)
        .sum()
}

fn line_json(line: &LineStatus) -> Value {
    let queue = |(id, q): (usize, &sched::scheduler::QueueCounters)| {
        json!({
            "queue": id,
            "messages_in": q.messages_in,
            "bytes_in": q.bytes_in,
            "messages_out": q.messages_out,
            "bytes_out": q.bytes_out,
            "promoted": q.promoted,
            "shed_duplicate": q.shed_duplicate,
            "shed_stale": q.shed_stale,
            "shed_full": q.shed_full,
            "forgotten": q.forgotten,
            "messages_waiting": q.messages_waiting,
            "bytes_waiting": q.bytes_waiting,
        })
    };
    let rule = |(id, hits): &(u16, u64)| json!({ "rule": id, "hits": hits });
    json!({
        "algorithm": line.algorithm.name(),
        "generation": line.generation,
        "queues": line.queues.iter().enumerate().map(queue).collect::<Vec<_>>(),
        "rules": line.rules.iter().map(rule).collect::<Vec<_>>(),
        "default_hits": line.default_hits,
    })
}

fn tally_json(tally: &Tally) -> Value {
    json!({ "count": tally.messages, "bytes": tally.bytes, "digest": tally.digest() })
}
