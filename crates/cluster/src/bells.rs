//! The bells: one connection from each member to each other member. The dialling member only sends,
//! and the listening member only receives. So the end of a connection, and the silence of a member,
//! are noticed at once.
//!
//! The bounds of what a peer can make grow:
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | connections | [`CONNECTIONS_MAX`] | refused |
//! | a line | [`LINE_BYTES_MAX`] | the connection is closed |
//! | lines in a second | [`LINES_PER_SECOND_MAX`] | the same |
//! | the time to the first line | [`HELLO_MAX`] | the same |
//! | lines for a member that does not read | [`WAITING_MAX`], and as many about edges | dropped |
//! | packets for a member that does not read | [`PACKETS_WAITING_MAX`] | dropped |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clock::{Budget, Instant};
use control::cluster::{Member, MemberId, PeerMessage};
use control::clustered::{Edges, PACKETS_PER_SECOND_MAX};
use net::method::Method;
use net::tls::Security;
use net::transport::{Connection, Limits, Listener, Reader, TransportError, connect};
use openflow::{DatapathId, Frame};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::documents::{self, BELL_VERSION, COPY_VERSION, CopyHello, Heard, Hello};
use super::{Handle, copies, packets};

/// Incoming connections of all members together.
const CONNECTIONS_MAX: usize = 64;
const LINE_BYTES_MAX: u64 = 16 << 10;
/// A member sends 10 heartbeats a second, and a few questions when another member is silent. Twice
/// a second it sends the edges of its switches, some hundred switches to a line. It sends at most
/// [`PACKETS_PER_SECOND_MAX`] packets at once, and as many in a second.
const LINES_PER_SECOND_MAX: u32 = 1000;
const HELLO_MAX: Duration = Duration::from_secs(3);
/// A write that takes longer ends the connection.
const WRITE_MAX: Duration = Duration::from_secs(1);
const WAITING_MAX: usize = 128;
/// Room for the packets that a member hands over at once.
const PACKETS_WAITING_MAX: usize = PACKETS_PER_SECOND_MAX as usize;
/// The time between two log lines about refused connections from one address, which dials again a
/// few times a second.
const REFUSED_AGAIN: Duration = Duration::from_secs(60);
/// The pause before a member is dialled again.
const DIAL_AGAIN: Duration = Duration::from_millis(200);

/// The bells to the other members.
pub struct Bells {
    own: MemberId,
    security: Security,
    handle: Handle,
    bells: BTreeMap<MemberId, Bell>,
}

struct Bell {
    address: String,
    /// Whether the member is dialled again when its connection has ended.
    is_member: Arc<AtomicBool>,
    lines: mpsc::Sender<Arc<[u8]>>,
    /// Edges, which are sent when no line of the cluster waits.
    edges: mpsc::Sender<Arc<[u8]>>,
    /// Packets, which are sent when no other line waits.
    packets: mpsc::Sender<Arc<[u8]>>,
    task: AbortHandle,
}

impl Bells {
    pub fn new(own: MemberId, security: Security, handle: Handle) -> Bells {
        Bells {
            own,
            security,
            handle,
            bells: BTreeMap::new(),
        }
    }

    /// Dials each of these members, and no others. A live connection to any other member stays
    /// open: etcd may have lost data.
    pub fn set_members(&mut self, members: &BTreeMap<MemberId, Member>) {
        self.bells.retain(|id, bell| {
            let member = members.get(id);
            bell.is_member.store(member.is_some(), Ordering::Relaxed);
            let has_moved = member.is_some_and(|member| member.address != bell.address);
            if has_moved {
                bell.task.abort();
            }
            !has_moved && !bell.task.is_finished()
        });
        for (id, member) in members {
            if !self.bells.contains_key(id) {
                let bell = self.start(id.clone(), member.address.clone());
                self.bells.insert(id.clone(), bell);
            }
        }
    }

    /// Sends a message, if a connection accepts it.
    pub fn send(&self, to: &MemberId, message: PeerMessage) {
        if let Some(bell) = self.bells.get(to) {
            let _ = bell.lines.try_send(documents::peer_text(&message).into());
        }
    }

    /// Hands a packet over to a member, if a connection accepts it.
    pub fn send_packet(&self, to: &MemberId, dpid: DatapathId, frame: &Frame) {
        if let Some(bell) = self.bells.get(to) {
            let _ = bell.packets.try_send(packets::text(dpid, frame).into());
        }
    }

    /// Sends the edges of switches to all members.
    pub fn send_edges(&self, edges: &Edges) {
        for line in documents::edges_text(edges) {
            let line: Arc<[u8]> = line.into();
            for bell in self.bells.values() {
                let _ = bell.edges.try_send(line.clone());
            }
        }
    }

    fn start(&self, id: MemberId, address: String) -> Bell {
        let (lines, messages) = mpsc::channel(WAITING_MAX);
        let (edges, waiting_edges) = mpsc::channel(WAITING_MAX);
        let (packets, waiting_packets) = mpsc::channel(PACKETS_WAITING_MAX);
        let waiting = Waiting {
            lines: messages,
            edges: waiting_edges,
            packets: waiting_packets,
        };
        let (own, security) = (self.own.clone(), self.security.clone());
        let handle = self.handle.clone();
        let at = address.clone();
        let is_member = Arc::new(AtomicBool::new(true));
        let goes_on = is_member.clone();
        let task = tokio::spawn(async move {
            match at.parse::<Method>() {
                Ok(method) if !method.is_passive() => {
                    let (me, to, by) = (own.clone(), method.clone(), security.clone());
                    let copies = copies::keep_saying(me, to, by, handle, &goes_on);
                    let rings = keep_ringing(own, id, method, security, waiting, &goes_on);
                    tokio::select! {
                        () = rings => {}
                        never = copies => match never {},
                    }
                }
                _ => tracing::error!("cluster: member {id} has no address to dial: {at:?}"),
            }
        });
        let task = task.abort_handle();
        Bell {
            address,
            is_member,
            lines,
            edges,
            packets,
            task,
        }
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        for bell in self.bells.values() {
            bell.task.abort();
        }
    }
}

/// Lines for a member.
struct Waiting {
    lines: mpsc::Receiver<Arc<[u8]>>,
    edges: mpsc::Receiver<Arc<[u8]>>,
    packets: mpsc::Receiver<Arc<[u8]>>,
}

impl Waiting {
    /// Waits for the next line. Heartbeats go first, and packets go after all other lines.
    async fn next(&mut self) -> Option<Arc<[u8]>> {
        tokio::select! {
            biased;
            line = self.lines.recv() => line,
            line = self.edges.recv() => line,
            line = self.packets.recv() => line,
        }
    }

    fn clear(&mut self) {
        while self.lines.try_recv().is_ok()
            || self.edges.try_recv().is_ok()
            || self.packets.try_recv().is_ok()
        {}
    }
}

/// Dials a peer as long as it is a member, and sends it the waiting lines.
async fn keep_ringing(
    own: MemberId,
    id: MemberId,
    method: Method,
    security: Security,
    mut waiting: Waiting,
    is_member: &AtomicBool,
) {
    let mut told: Option<String> = None;
    while is_member.load(Ordering::Relaxed) {
        match connect(&method, &security).await {
            Ok(connection) => {
                told = None;
                ring(&own, connection, &mut waiting).await;
            }
            Err(error) => {
                let problem = error.to_string();
                if told.as_ref() != Some(&problem) {
                    tracing::warn!("cluster: member {id}: {problem}; trying again");
                }
                told = Some(problem);
            }
        }
        sleep(DIAL_AGAIN).await;
        // The lines that waited are stale.
        waiting.clear();
    }
}

async fn ring(own: &MemberId, connection: Connection, waiting: &mut Waiting) {
    let (mut reader, mut writer) = (connection.reader, connection.writer);
    let hello = Hello {
        auster_cluster: BELL_VERSION,
        name: own.to_string(),
    };
    let mut line: Arc<[u8]> = documents::line(&hello).into();
    let mut byte = [0];
    loop {
        let written = timeout(WRITE_MAX, async {
            writer.write_all(&line).await?;
            writer.flush().await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            return;
        }
        line = tokio::select! {
            message = waiting.next() => match message {
                Some(line) => line,
                None => return,
            },
            // The listening member sends nothing.
            _ = reader.read(&mut byte) => return,
        };
    }
}

/// The listener that the other members dial.
pub struct Listening {
    listener: Listener,
}

impl Listening {
    pub async fn bind(method: &Method, security: &Security) -> Result<Listening, TransportError> {
        let limits = Limits {
            connections_max: CONNECTIONS_MAX,
            connections_per_source_max: CONNECTIONS_MAX,
            handshakes_max: CONNECTIONS_MAX,
        };
        let listener = Listener::bind(method, security, limits).await?;
        Ok(Listening { listener })
    }

    pub fn local(&self) -> &Method {
        self.listener.local()
    }

    /// Listens until the task is aborted, which closes the connections too.
    pub async fn listen(mut self, own: MemberId, handle: Handle) {
        let mut heard = JoinSet::new();
        let (counts, refused) = (Arc::new(Counts::default()), Arc::new(Refused::default()));
        loop {
            let connection = self.listener.accept().await;
            heard.spawn(hear(
                own.clone(),
                connection,
                handle.clone(),
                counts.clone(),
                refused.clone(),
            ));
            while heard.try_join_next().is_some() {}
        }
    }
}

/// The number of connections from each member. While a member has another connection, the end of
/// one means nothing.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<MemberId, usize>>);

impl Counts {
    fn add(&self, id: &MemberId) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(id.clone()).or_default() += 1;
    }

    /// Removes a connection, and returns whether it was the member's last.
    fn remove(&self, id: &MemberId) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = counts.get_mut(id) else {
            return false;
        };
        *count -= 1;
        let was_last = *count == 0;
        if was_last {
            counts.remove(id);
        }
        was_last
    }
}

/// The addresses that had a connection refused within the last minute.
#[derive(Default)]
struct Refused(Mutex<BTreeMap<String, Instant>>);

impl Refused {
    /// Logs why connections from an address are refused: the first time, and then once a minute.
    fn report(&self, now: Instant, peer: &str, why: &str) {
        match self.is_due(now, peer) {
            true => tracing::error!("cluster: {peer}: {why}"),
            false => tracing::debug!("cluster: {peer}: {why}"),
        }
    }

    fn is_due(&self, now: Instant, peer: &str) -> bool {
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reported.retain(|_, at| now - *at < REFUSED_AGAIN);
        let is_due = reported.len() < CONNECTIONS_MAX && !reported.contains_key(host);
        if is_due {
            reported.insert(host.to_owned(), now);
        }
        is_due
    }
}

async fn hear(
    own: MemberId,
    connection: Connection,
    handle: Handle,
    counts: Arc<Counts>,
    refused: Arc<Refused>,
) {
    let peer = connection.peer.address.clone();
    let _ticket = connection.ticket;
    let mut reader = BufReader::new(connection.reader);
    let first = timeout(HELLO_MAX, line_of(&mut reader)).await;
    let Some((id, purpose)) = first.ok().flatten().and_then(|line| name_in(&line)) else {
        let why = format!("says nothing that a member of auster {BELL_VERSION} says");
        return refused.report(handle.now(), &peer, &why);
    };
    if connection.peer.tls.is_some() && connection.peer.name.as_deref() != Some(id.as_str()) {
        let name = connection.peer.name.as_deref().unwrap_or("nobody");
        let why = format!(
            "says it is member {id}, but its certificate is {name}'s: a member is named as its \
             certificate is"
        );
        return refused.report(handle.now(), &peer, &why);
    }
    if id == own {
        let why = format!("another member is named {id} too; give it another name in [cluster]");
        return refused.report(handle.now(), &peer, &why);
    }
    if purpose == Purpose::Copy {
        return copies::hear(id, reader, handle).await;
    }
    counts.add(&id);
    let mut is_odd = false;
    let mut budget = Budget::new(handle.now(), LINES_PER_SECOND_MAX, LINES_PER_SECOND_MAX);
    while let Some(line) = line_of(&mut reader).await {
        if !budget.take(handle.now()) {
            tracing::warn!("cluster: member {id}: more than {LINES_PER_SECOND_MAX} messages/s");
            break;
        }
        let from = id.clone();
        let Some(heard) = documents::heard(&line) else {
            if !std::mem::replace(&mut is_odd, true) {
                tracing::warn!("cluster: member {id} says what this version does not know");
            }
            continue;
        };
        match heard {
            Heard::Message(message) => {
                handle
                    .cluster(move |cluster, now| cluster.handle_peer_message(now, &from, message))
                    .await;
            }
            Heard::Packet(dpid, frame) => {
                handle
                    .application(move |application, now| application.hear_packet(now, dpid, frame))
                    .await;
            }
            Heard::Edges(edges) => {
                handle
                    .application(move |application, now| application.hear_edges(now, &from, edges))
                    .await;
            }
        }
    }
    if counts.remove(&id) {
        handle
            .cluster(move |cluster, now| cluster.handle_peer_reset(now, &id))
            .await;
    }
}

/// The purpose of a connection.
#[derive(PartialEq, Eq)]
enum Purpose {
    Bell,
    /// It carries the hosts and links that the serving member knows.
    Copy,
}

fn name_in(line: &[u8]) -> Option<(MemberId, Purpose)> {
    if let Ok(hello) = serde_json::from_slice::<CopyHello>(line) {
        (hello.auster_copy == COPY_VERSION).then_some(())?;
        return Some((MemberId::new(&hello.name)?, Purpose::Copy));
    }
    let hello: Hello = serde_json::from_slice(line).ok()?;
    (hello.auster_cluster == BELL_VERSION).then_some(())?;
    Some((MemberId::new(&hello.name)?, Purpose::Bell))
}

/// Reads the next line without its line end; `None` at the end of the stream, and for a line that
/// is too long.
async fn line_of(reader: &mut BufReader<Reader>) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let mut bounded = reader.take(LINE_BYTES_MAX);
    bounded.read_until(b'\n', &mut line).await.ok()?;
    (line.pop() == Some(b'\n')).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_again_and_again_has_a_line_a_minute() {
        let refused = Refused::default();
        let lines = |from: u64, host: &str| {
            let at = |n: u64| Instant::START + Duration::from_millis(from + 200 * n);
            let peer = |n: u64| format!("{host}:{}", 40_000 + n);
            (0..600)
                .filter(|n| refused.is_due(at(*n), &peer(*n)))
                .count()
        };
        assert_eq!(lines(0, "10.0.0.1"), 2);
        assert_eq!(lines(0, "[fe80::1]"), 2);
        // Many addresses fill the list, but do not overflow it.
        let later = Instant::START + Duration::from_secs(300);
        let due =
            (0..1000).filter(|n| refused.is_due(later, &format!("10.0.{}.{}:1", n / 250, n % 250)));
        assert_eq!(due.count(), CONNECTIONS_MAX);
    }
}
