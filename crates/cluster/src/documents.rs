//! The keys and documents of a cluster in etcd, and its messages between members: all as JSON, so
//! that an operator can read them with `etcdctl`.

use std::collections::{BTreeMap, BTreeSet};

use control::cluster::{
    Changed, HighWater, InUse, Member, MemberId, Move, Order, Own, PeerMessage, ShardId, Snapshot,
};
use control::clustered::Edges;
use openflow::{DatapathId, Frame, PortNo};
use serde::{Deserialize, Serialize};

use super::packets;

/// The prefix of every key.
pub const PREFIX: &str = "/auster/v1/";

const OWN: &str = "own/";
const MEMBERS: &str = "members/";
const MOVES: &str = "move/";
const DRAINED: &str = "drained/";
const EPOCH: &str = "epoch";
/// Prefixes of the cluster's own keys, below [`PREFIX`]. Only the epoch and [`IDENTITY`] have keys
/// outside these folders.
pub const FOLDERS: [&str; 4] = [OWN, MEMBERS, MOVES, DRAINED];
/// The key of [`Identity`].
pub const IDENTITY: &str = "/auster/v1/cluster";

/// The cluster that owns the prefix, and the version of its keys. The first member writes the
/// identity, and all others compare theirs with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub id: String,
    /// The version of keys and documents.
    pub schema: u32,
}

/// The greatest version that this auster reads, and the one that it writes into a new cluster. It
/// reads every earlier version. New fields that an earlier auster may ignore need no new version:
/// readers skip unknown fields.
pub const SCHEMA: u32 = 1;

/// The version in use, by the text of [`IDENTITY`].
pub fn schema_in_use(text: &[u8]) -> Option<u32> {
    let identity: Identity = serde_json::from_slice(text).ok()?;
    Some(identity.schema)
}

/// Explains why a member ignores documents of a version that it does not read.
pub fn too_old(in_use: u32, reads: u32) -> String {
    format!("the cluster has schema {in_use}, and this auster reads {reads} at most: upgrade it")
}

pub fn identity_text(identity: &Identity) -> Vec<u8> {
    to_json(identity)
}

/// Compares the identity in etcd with this member's identity. Returns a mismatch as an error.
pub fn compare(ours: &Identity, text: &[u8]) -> Result<(), String> {
    let Ok(theirs) = serde_json::from_slice::<Identity>(text) else {
        return Err(format!(
            "etcd: {IDENTITY} is no document of auster: delete it, or use another etcd"
        ));
    };
    if theirs.schema > ours.schema {
        return Err(format!("etcd: {}", too_old(theirs.schema, ours.schema)));
    }
    if theirs.id != ours.id {
        return Err(format!(
            "etcd: it has the cluster '{}', and [cluster] id is '{}': use its id, or another etcd",
            theirs.id, ours.id
        ));
    }
    Ok(())
}

/// The prefix of the members' keys.
pub fn members() -> Vec<u8> {
    [PREFIX, MEMBERS].concat().into_bytes()
}

/// A key below [`PREFIX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Own(ShardId),
    Member(MemberId),
    Move(ShardId),
    /// Exists while an operator wants the member to serve no switches.
    Drained(MemberId),
    Epoch,
    /// [`Identity`].
    Cluster,
}

impl Key {
    /// Reads a key. Returns `None` for any other key, which the cluster ignores.
    pub fn read(key: &[u8]) -> Option<Key> {
        if key == IDENTITY.as_bytes() {
            return Some(Key::Cluster);
        }
        let name = std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?;
        if let Some(shard) = name.strip_prefix(OWN) {
            return shard.parse().ok().map(|shard| Key::Own(ShardId(shard)));
        }
        if let Some(member) = name.strip_prefix(MEMBERS) {
            return MemberId::new(member).map(Key::Member);
        }
        if let Some(shard) = name.strip_prefix(MOVES) {
            return shard.parse().ok().map(|shard| Key::Move(ShardId(shard)));
        }
        if let Some(member) = name.strip_prefix(DRAINED) {
            return MemberId::new(member).map(Key::Drained);
        }
        (name == EPOCH).then_some(Key::Epoch)
    }

    pub fn text(&self) -> String {
        match self {
            Key::Own(shard) => format!("{PREFIX}{OWN}{shard}"),
            Key::Member(member) => format!("{PREFIX}{MEMBERS}{member}"),
            Key::Move(shard) => format!("{PREFIX}{MOVES}{shard}"),
            Key::Drained(member) => format!("{PREFIX}{DRAINED}{member}"),
            Key::Epoch => format!("{PREFIX}{EPOCH}"),
            Key::Cluster => IDENTITY.to_owned(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct OrderText {
    order: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct MemberText {
    address: String,
    ready: bool,
    #[serde(default)]
    version: String,
    /// The greatest schema that the member reads. Members that predate this field read the first.
    #[serde(default = "first_schema")]
    schema: u32,
    /// The members that it hears, for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hears: Option<Vec<String>>,
}

fn first_schema() -> u32 {
    1
}

#[derive(Serialize, Deserialize)]
struct MoveText {
    to: String,
    revision: u64,
}

#[derive(Serialize, Deserialize)]
struct HighWaterText {
    cluster_id: u64,
    revision: u64,
    epoch: u16,
}

fn to_json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).unwrap_or_default()
}

pub fn order_text(order: &Order) -> Vec<u8> {
    let order = order.places().iter().map(ToString::to_string).collect();
    to_json(&OrderText { order })
}

/// Reads an order. An unreadable order counts as empty: nobody owns the shard.
pub fn order(text: &[u8]) -> Order {
    let read = || {
        let text: OrderText = serde_json::from_slice(text).ok()?;
        let places: Option<Vec<MemberId>> =
            text.order.iter().map(|name| MemberId::new(name)).collect();
        Order::new(places?)
    };
    read().unwrap_or_default()
}

pub fn member_text(member: &Member, hears: &BTreeSet<MemberId>) -> Vec<u8> {
    to_json(&MemberText {
        address: member.address.clone(),
        ready: member.is_ready,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        schema: member.reads,
        hears: Some(hears.iter().map(ToString::to_string).collect()),
    })
}

pub fn member(text: &[u8]) -> Option<Member> {
    let text: MemberText = serde_json::from_slice(text).ok()?;
    Some(Member {
        address: text.address,
        is_ready: text.ready,
        reads: text.schema,
    })
}

pub fn move_text(asked: &Move) -> Vec<u8> {
    to_json(&MoveText {
        to: asked.to.to_string(),
        revision: asked.revision,
    })
}

fn moved(text: &[u8]) -> Option<Move> {
    let text: MoveText = serde_json::from_slice(text).ok()?;
    Some(Move {
        to: MemberId::new(&text.to)?,
        revision: text.revision,
    })
}

/// The value of a drained member's key. Only the existence of the key counts.
pub fn drained_text() -> Vec<u8> {
    b"{}".to_vec()
}

pub fn epoch_text(epoch: u16) -> Vec<u8> {
    to_json(&epoch)
}

/// Reads an epoch. An unreadable epoch counts as 0: the cluster raises it if it has seen a greater
/// one.
pub fn epoch(text: &[u8]) -> u16 {
    serde_json::from_slice(text).unwrap_or(0)
}

pub fn high_water_text(mark: &HighWater) -> Vec<u8> {
    to_json(&HighWaterText {
        cluster_id: mark.cluster_id,
        revision: mark.revision,
        epoch: mark.epoch,
    })
}

/// Reads a high-water mark. Returns the mistake in it as an error.
pub fn high_water(text: &[u8]) -> Result<HighWater, String> {
    let text: HighWaterText = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    Ok(HighWater {
        cluster_id: text.cluster_id,
        revision: text.revision,
        epoch: text.epoch,
    })
}

/// Returns the cluster's state from etcd's keys.
pub fn snapshot(read: &etcd::Snapshot) -> Snapshot {
    let mut snapshot = Snapshot {
        cluster_id: read.header.cluster_id,
        revision: revision(read.header.revision),
        ..Snapshot::default()
    };
    for pair in &read.kvs {
        let revision = revision(pair.mod_revision);
        match Key::read(&pair.key) {
            Some(Key::Own(shard)) => {
                let order = order(&pair.value);
                snapshot.own.insert(shard, Own { order, revision });
            }
            Some(Key::Member(id)) => {
                let member = member(&pair.value);
                snapshot.members.extend(member.map(|member| (id, member)));
            }
            Some(Key::Move(shard)) => {
                let asked = moved(&pair.value);
                snapshot.moves.extend(asked.map(|asked| (shard, asked)));
            }
            Some(Key::Epoch) => snapshot.epoch = Some((epoch(&pair.value), revision)),
            Some(Key::Cluster) => {
                let in_use = schema_in_use(&pair.value);
                snapshot.schema = in_use.map(|schema| (schema, revision));
            }
            Some(Key::Drained(_)) | None => {}
        }
    }
    snapshot
}

/// Returns the members that each member reports hearing. Members of earlier versions do not report
/// them.
pub fn hears(read: &etcd::Snapshot) -> BTreeMap<MemberId, BTreeSet<MemberId>> {
    let hears = |pair: &etcd::KeyValue| {
        let Some(Key::Member(id)) = Key::read(&pair.key) else {
            return None;
        };
        let text: MemberText = serde_json::from_slice(&pair.value).ok()?;
        let hears = text
            .hears?
            .iter()
            .filter_map(|name| MemberId::new(name))
            .collect();
        Some((id, hears))
    };
    read.kvs.iter().filter_map(hears).collect()
}

/// Returns the drained members.
pub fn drained(read: &etcd::Snapshot) -> BTreeSet<MemberId> {
    let drained = |pair: &etcd::KeyValue| match Key::read(&pair.key) {
        Some(Key::Drained(member)) => Some(member),
        _ => None,
    };
    read.kvs.iter().filter_map(drained).collect()
}

/// Returns whether a member is drained now, if a change is about its drain.
pub fn drains(change: &etcd::Change, member: &MemberId) -> Option<bool> {
    let is_about = Key::read(change.key()) == Some(Key::Drained(member.clone()));
    is_about.then_some(matches!(change, etcd::Change::Put(_)))
}

/// Returns the meaning of a change that the watch reports, with its revision; `None` for keys of
/// others.
pub fn change(change: &etcd::Change) -> Option<(u64, Changed)> {
    let value = match change {
        etcd::Change::Put(pair) => Some(&pair.value[..]),
        etcd::Change::Delete { .. } => None,
    };
    let changed = match Key::read(change.key())? {
        Key::Own(shard) => Changed::Own(shard, value.map(order)),
        Key::Member(id) => Changed::Member(id, value.and_then(member)),
        Key::Move(shard) => Changed::Move(shard, value.and_then(moved)),
        Key::Drained(_) => return None,
        Key::Epoch => Changed::Epoch(value.map(epoch)),
        Key::Cluster => Changed::Schema(value.and_then(schema_in_use)),
    };
    Some((revision(change.revision()), changed))
}

/// Converts a revision of etcd, which the client has checked to be positive.
pub fn revision(of_etcd: i64) -> u64 {
    u64::try_from(of_etcd).unwrap_or(0)
}

/// The first line of a bell.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the messages after it.
    pub auster_cluster: u32,
    pub name: String,
}

/// The version of the messages between members.
pub const BELL_VERSION: u32 = 1;

/// The first line of a connection that carries hosts and links. Frames follow it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHello {
    /// The version of the frames.
    pub auster_copy: u32,
    pub name: String,
}

pub const COPY_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PeerText {
    Heartbeat {
        ready: bool,
        epoch: u16,
        #[serde(default)]
        in_use: Vec<(u8, u64, u8)>,
        /// Members that predate this field do not send it.
        #[serde(default)]
        hears: Option<Vec<String>>,
    },
    Question {
        number: u32,
        about: String,
    },
    Answer {
        number: u32,
        heard: bool,
    },
}

/// A message as one line, with its end.
pub fn peer_text(message: &PeerMessage) -> Vec<u8> {
    let text = match message {
        PeerMessage::Heartbeat(heartbeat) => {
            let places = heartbeat.in_use.iter();
            PeerText::Heartbeat {
                ready: heartbeat.is_ready,
                epoch: heartbeat.epoch,
                in_use: places
                    .map(|place| (place.shard.0, place.revision, place.rank))
                    .collect(),
                hears: heartbeat
                    .hears
                    .as_ref()
                    .map(|hears| hears.iter().map(ToString::to_string).collect()),
            }
        }
        PeerMessage::Question { number, about } => PeerText::Question {
            number: *number,
            about: about.to_string(),
        },
        PeerMessage::Answer { number, is_heard } => PeerText::Answer {
            number: *number,
            heard: *is_heard,
        },
    };
    line(&text)
}

/// The switches with their edges in one line. The edges of a switch are ranges of ports.
#[derive(Serialize, Deserialize)]
struct EdgesText {
    edges: Vec<(String, Vec<(u32, u32)>)>,
}

/// Switches in one line, and ranges in one line: a line has 16 KiB at most.
const SWITCHES_PER_LINE: usize = 100;
const RANGES_PER_LINE: usize = 500;

/// Writes the edges of switches as lines. A switch with more ranges or ports than fit in a line is
/// left out: its ports are held, as without a cluster.
pub fn edges_text(edges: &Edges) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut text = EdgesText { edges: Vec::new() };
    let (mut ranges_in_line, mut ports_in_line) = (0, 0);
    for (dpid, ports) in edges {
        let ranges = ranges(ports);
        if ranges.len() > RANGES_PER_LINE || ports.len() > PORTS_PER_LINE_MAX {
            continue;
        }
        ranges_in_line += ranges.len();
        ports_in_line += ports.len();
        let is_full = ranges_in_line > RANGES_PER_LINE || ports_in_line > PORTS_PER_LINE_MAX;
        if is_full || text.edges.len() == SWITCHES_PER_LINE {
            lines.push(line(&text));
            text.edges.clear();
            (ranges_in_line, ports_in_line) = (ranges.len(), ports.len());
        }
        text.edges.push((dpid.to_string(), ranges));
    }
    lines.push(line(&text));
    lines
}

/// Ports in ascending order, as ranges.
fn ranges(ports: &[PortNo]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for PortNo(port) in ports {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*port) => *last = *port,
            _ => ranges.push((*port, *port)),
        }
    }
    ranges
}

/// Ports that one line may name: those of a few large switches.
const PORTS_PER_LINE_MAX: usize = 1 << 13;

fn edges(text: EdgesText) -> Option<Edges> {
    let mut left = PORTS_PER_LINE_MAX;
    let mut edges = Edges::new();
    for (dpid, ranges) in text.edges {
        let mut ports = Vec::new();
        for (first, last) in ranges {
            let count = last.checked_sub(first)?.checked_add(1)?;
            left = left.checked_sub(usize::try_from(count).ok()?)?;
            ports.extend((first..=last).map(PortNo));
        }
        edges.push((dpid.parse().ok()?, ports));
    }
    Some(edges)
}

/// A line of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Message(PeerMessage),
    Edges(Edges),
    Packet(DatapathId, Frame),
}

/// Reads a line of a peer; `None` if its content is unknown here, such as a later version's.
pub fn heard(line: &[u8]) -> Option<Heard> {
    if let Some(message) = peer_message(line) {
        return Some(Heard::Message(message));
    }
    if let Ok(text) = serde_json::from_slice(line) {
        return edges(text).map(Heard::Edges);
    }
    packets::heard(line).map(|(dpid, frame)| Heard::Packet(dpid, frame))
}

/// A document as one line, with its end.
pub fn line(document: &impl Serialize) -> Vec<u8> {
    let mut line = to_json(document);
    line.push(b'\n');
    line
}

fn peer_message(line: &[u8]) -> Option<PeerMessage> {
    Some(match serde_json::from_slice(line).ok()? {
        PeerText::Heartbeat {
            ready,
            epoch,
            in_use,
            hears,
        } => {
            let hears = match hears {
                Some(names) => {
                    let names = names.iter().map(|name| MemberId::new(name));
                    Some(names.collect::<Option<_>>()?)
                }
                None => None,
            };
            let places = in_use.into_iter();
            let places = places.map(|(shard, revision, rank)| InUse {
                shard: ShardId(shard),
                revision,
                rank,
            });
            PeerMessage::Heartbeat(control::cluster::Heartbeat {
                is_ready: ready,
                epoch,
                in_use: places.collect(),
                hears,
            })
        }
        PeerText::Question { number, about } => PeerMessage::Question {
            number,
            about: MemberId::new(&about)?,
        },
        PeerText::Answer { number, heard } => PeerMessage::Answer {
            number,
            is_heard: heard,
        },
    })
}

#[cfg(test)]
mod tests {
    use control::cluster::Heartbeat;
    use proptest::prelude::*;

    use super::*;

    fn id(name: &str) -> MemberId {
        MemberId::new(name).unwrap()
    }

    #[test]
    fn keys_and_documents_are_read_as_they_were_written() {
        for key in [
            Key::Own(ShardId(255)),
            Key::Member(id("a-1")),
            Key::Move(ShardId(3)),
            Key::Drained(id("b")),
            Key::Epoch,
            Key::Cluster,
        ] {
            assert_eq!(Key::read(key.text().as_bytes()), Some(key));
        }
        for other in [
            "/auster/v1/own/256",
            "/auster/v1/members/A",
            "/other/epoch",
            "\u{fffd}",
        ] {
            assert_eq!(Key::read(other.as_bytes()), None, "{other}");
        }
        let two = Order::repeating(&[id("a"), id("b")]);
        assert_eq!(order(&order_text(&two)), two);
        let one = Member {
            address: "ssl:10.0.0.1:6655".to_owned(),
            is_ready: true,
            reads: 2,
        };
        assert_eq!(
            member(&member_text(&one, &BTreeSet::from([id("b")]))),
            Some(one)
        );
        assert_eq!(epoch(&epoch_text(7)), 7);
        let asked = Move {
            to: id("b"),
            revision: 9,
        };
        assert_eq!(moved(&move_text(&asked)), Some(asked));
        assert_eq!(moved(br#"{"to":"B","revision":9}"#), None);
        let mark = HighWater {
            cluster_id: u64::MAX,
            revision: 9,
            epoch: 3,
        };
        assert_eq!(high_water(&high_water_text(&mark)), Ok(mark));
    }

    #[test]
    fn another_cluster_and_a_newer_one_are_refused() {
        let ours = Identity {
            id: "campus".to_owned(),
            schema: SCHEMA,
        };
        assert_eq!(compare(&ours, &identity_text(&ours)), Ok(()));
        for (text, part) in [
            (r#"{"id":"lab","schema":1}"#, "it has the cluster 'lab'"),
            (
                r#"{"id":"campus","schema":2}"#,
                "schema 2, and this auster reads 1",
            ),
            ("", "no document of auster"),
        ] {
            let problem = compare(&ours, text.as_bytes()).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn fields_of_later_versions_are_passed_over_and_those_of_earlier_ones_have_a_meaning() {
        let earlier = member(br#"{"address":"tcp:a:1","ready":true,"version":"0.1.0"}"#);
        assert_eq!(earlier.map(|member| member.reads), Some(1));
        let later = br#"{"address":"tcp:a:1","ready":true,"schema":3,"load":{"cpu":0.5}}"#;
        assert_eq!(member(later).map(|member| member.reads), Some(3));
        let places = order(br#"{"order":["a"],"zone":"north"}"#);
        assert_eq!(places.places(), &[id("a")]);
        let text = br#"{"id":"campus","schema":2,"made_by":"a"}"#;
        assert_eq!(schema_in_use(text), Some(2));
        assert_eq!(schema_in_use(b"{}"), None);
        let line = br#"{"heartbeat":{"ready":true,"epoch":3,"load":7}}"#;
        let Some(Heard::Message(PeerMessage::Heartbeat(earlier))) = heard(line) else {
            panic!("no heartbeat");
        };
        assert_eq!(earlier.hears, None);
        assert_eq!(heard(br#"{"weather":{"rain":true}}"#), None);
    }

    #[test]
    fn an_order_that_cannot_be_read_is_nobodys() {
        let long = format!(r#"{{"order":[{}"a"]}}"#, r#""a","#.repeat(16));
        for text in ["", "{}", r#"{"order":["A"]}"#, r#"{"order":[1]}"#, &long] {
            assert_eq!(order(text.as_bytes()), Order::default(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn messages_of_peers_are_read_as_they_were_written(
            ready: bool, epoch: u16, number: u32, is_heard: bool,
            in_use in proptest::collection::vec((any::<u8>(), any::<u64>(), any::<u8>()), 0..300),
            hears in proptest::option::of(
                proptest::collection::btree_set("[a-z0-9-]{1,63}", 0..16),
            ),
        ) {
            let in_use = in_use.into_iter().map(|(shard, revision, rank)| InUse {
                shard: ShardId(shard), revision, rank,
            });
            let hears = hears.map(|names| names.iter().map(|name| id(name)).collect());
            let heartbeat = Heartbeat { is_ready: ready, epoch, in_use: in_use.collect(), hears };
            for message in [
                PeerMessage::Heartbeat(heartbeat),
                PeerMessage::Question { number, about: id("b") },
                PeerMessage::Answer { number, is_heard },
            ] {
                prop_assert_eq!(heard(&peer_text(&message)), Some(Heard::Message(message)));
            }
        }

        #[test]
        fn any_line_of_a_peer_is_read_without_a_panic(line: Vec<u8>, ranges: Vec<(u32, u32)>) {
            let _ = heard(&line);
            let text = EdgesText { edges: vec![("1".to_owned(), ranges)] };
            let read = heard(&super::line(&text));
            let count = |edges: Edges| edges.iter().map(|(_, ports)| ports.len()).sum::<usize>();
            if let Some(Heard::Edges(edges)) = read {
                prop_assert!(count(edges) <= PORTS_PER_LINE_MAX);
            }
        }

        #[test]
        fn edges_of_switches_are_read_as_they_were_written(
            switches in proptest::collection::btree_map(
                any::<u64>(), proptest::collection::btree_set(1_u32..2000, 0..400), 0..300,
            ),
            large in 0_u32..4096,
        ) {
            let edges = switches.into_iter().map(|(dpid, ports)| {
                (openflow::DatapathId(dpid), ports.into_iter().map(PortNo).collect())
            });
            // Many switches with as many ports as a switch may have.
            let ports: Vec<PortNo> = (1..=large).map(PortNo).collect();
            let many = (0..20).map(|n| (openflow::DatapathId(n), ports.clone()));
            let edges: Edges = edges.chain(many).collect();
            let mut read = Edges::new();
            for line in edges_text(&edges) {
                prop_assert!(line.len() < 16 << 10);
                match heard(&line[..line.len() - 1]) {
                    Some(Heard::Edges(some)) => read.extend(some),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(read, edges);
        }
    }
}
