//! `/v1/live`: loads of links, rates of ports, tables and channels as they change, for pages.
//!
//! One task makes the rows for all readers, and compares them with the rows before. Each reader
//! gets the changes since its last message, however long ago that was, so that a slow reader is
//! never behind by more than one message.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use control::controller::{PortDetail, SwitchView};
use driver::ConnectionView;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;
use super::query::Query;
use super::rates::{Rated, Watcher};
use super::stream::{CHUNK_MAX, End, Form, HEARTBEAT, Writer};
use super::topology::{Snapshot, speed};

/// The least time between two messages of changes.
const PERIOD: Duration = Duration::from_millis(500);
/// In a large network, rows are made only once in this many times the time that they take: pages
/// have a twentieth of the controller's thread.
const SHARE: u32 = 20;
/// The bytes of a message beside its rows.
const ENVELOPE_MAX: usize = 256;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(live))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum View {
    Links,
    Ports,
    Tables,
    Channels,
}

const VIEWS: [View; 4] = [View::Links, View::Ports, View::Tables, View::Channels];

impl View {
    fn name(self) -> &'static str {
        match self {
            View::Links => "links",
            View::Ports => "ports",
            View::Tables => "tables",
            View::Channels => "channels",
        }
    }

    fn parse(text: &str) -> Result<View, String> {
        let view = VIEWS.into_iter().find(|view| view.name() == text);
        let names = VIEWS.map(View::name).join(", ");
        view.ok_or_else(|| format!("'{text}' is no view; there are {names}"))
    }

    fn reads_ports(self) -> bool {
        matches!(self, View::Links | View::Ports)
    }
}

/// A row's view, and its name within that.
type Name = (View, Box<str>);
/// Rows by view and name, each a JSON document.
type Rows = BTreeMap<Name, Box<str>>;

struct Published {
    seq: u64,
    /// The views of this publication.
    views: Vec<View>,
    /// The names of the rows, in order. The list stays the same as long as the names do.
    names: Arc<[Name]>,
    rows: Vec<Row>,
}

struct Row {
    text: Arc<str>,
    /// The number of the publication that changed it last.
    changed: u64,
}

impl Published {
    /// The publication with this number, which is greater than those of all before it.
    fn new(number: u64, seq: u64, views: Vec<View>, rows: Rows, last: Option<&Self>) -> Self {
        let is_same = |last: &&Self| rows.keys().eq(last.names.iter());
        let names = last.filter(is_same).map(|last| last.names.clone());
        let mut before = last.map_or(&[][..], |last| &last.names).iter();
        let mut before_rows = last.map_or(&[][..], |last| &last.rows).iter();
        let mut old = before.next().zip(before_rows.next());
        let mut compared = Vec::with_capacity(rows.len());
        for (name, text) in &rows {
            while old.is_some_and(|(old, _)| old < name) {
                old = before.next().zip(before_rows.next());
            }
            let same = old.filter(|(old, row)| *old == name && *row.text == **text);
            compared.push(match same {
                Some((_, row)) => Row {
                    text: row.text.clone(),
                    changed: row.changed,
                },
                None => Row {
                    text: text.as_ref().into(),
                    changed: number,
                },
            });
        }
        Published {
            seq,
            views,
            names: names.unwrap_or_else(|| rows.into_keys().collect()),
            rows: compared,
        }
    }
}

/// The task that makes rows, as its readers see it.
pub struct Hub {
    /// Readers of each view.
    wanted: [AtomicUsize; 4],
    is_running: AtomicBool,
    /// Publications so far.
    count: AtomicU64,
    published: watch::Sender<Option<Arc<Published>>>,
}

impl Default for Hub {
    fn default() -> Hub {
        Hub {
            wanted: Default::default(),
            is_running: AtomicBool::new(false),
            count: AtomicU64::new(0),
            published: watch::channel(None).0,
        }
    }
}

/// The views that a reader wants, for as long as it is connected.
struct Wanted {
    hub: Arc<Hub>,
    views: Vec<View>,
    _rates: Option<Watcher>,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        for view in &self.views {
            self.hub.wanted[*view as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Hub {
    #[cfg(test)]
    pub fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Acquire)
    }

    fn wanted(&self) -> Vec<View> {
        let is_wanted = |view: &View| self.wanted[*view as usize].load(Ordering::Relaxed) > 0;
        VIEWS.into_iter().filter(is_wanted).collect()
    }
}

impl Api {
    fn want(&self, views: Vec<View>) -> Wanted {
        let hub = self.reads.hub.clone();
        for view in &views {
            hub.wanted[*view as usize].fetch_add(1, Ordering::Relaxed);
        }
        let is_reading = views.iter().any(|view| view.reads_ports());
        let rates = is_reading.then(|| self.watch_rates());
        self.publish_rows();
        Wanted {
            hub,
            views,
            _rates: rates,
        }
    }

    /// Starts the task that makes rows, unless there is one.
    fn publish_rows(&self) {
        if self.reads.hub.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let api = self.clone();
        tokio::spawn(async move {
            let hub = api.reads.hub.clone();
            loop {
                let views = hub.wanted();
                if views.is_empty() {
                    break;
                }
                // If the controller is too busy, try the next time.
                let mut pause = PERIOD;
                if let Ok(snapshot) = api.snapshot().await {
                    pause = pause_after(snapshot.took);
                    let rows = rows(&snapshot, &api.rated(), &views);
                    let number = hub.count.fetch_add(1, Ordering::Relaxed) + 1;
                    let last = hub.published.borrow().clone();
                    let now = Published::new(number, snapshot.seq, views, rows, last.as_deref());
                    hub.published.send_replace(Some(Arc::new(now)));
                }
                sleep(pause).await;
            }
            hub.published.send_replace(None);
            hub.is_running.store(false, Ordering::Release);
            // A reader may have connected meanwhile, and seen the task running.
            if !hub.wanted().is_empty() {
                api.publish_rows();
            }
        });
    }
}

/// The time until the controller is asked again, after an answer that took this long.
fn pause_after(took: Duration) -> Duration {
    PERIOD.max(took.saturating_mul(SHARE))
}

fn rows(snapshot: &Snapshot, rated: &Rated, views: &[View]) -> Rows {
    let mut rows = Rows::new();
    let mut add = |view: View, name: String, row: Value| {
        rows.insert((view, name.into()), row.to_string().into());
    };
    for view in views {
        match view {
            View::Links => {
                for link in snapshot.links(rated) {
                    let row = json!({
                        "is_usable": link.is_usable,
                        "is_drained": link.is_drained,
                        "is_doubted": link.is_doubted,
                        "speed_bps": link.speed_bps,
                        "there": link.there,
                        "back": link.back,
                    });
                    add(*view, format!("{} {}", link.from, link.to), row);
                }
            }
            View::Ports => {
                for port in &snapshot.network.ports {
                    add(*view, port.at.to_string(), port_row(port, rated));
                }
            }
            View::Tables => {
                for switch in &snapshot.network.switches {
                    add(*view, switch.dpid.to_string(), table_row(switch));
                }
            }
            View::Channels => {
                for switch in &snapshot.network.switches {
                    let connection = snapshot.connections.get(&switch.dpid);
                    let row = channel_row(snapshot.role(switch), connection);
                    add(*view, switch.dpid.to_string(), row);
                }
                for (dpid, connection) in snapshot.connections.iter().filter(|(_, c)| c.is_aside) {
                    let row = channel_row("standing by", Some(connection));
                    add(*view, dpid.to_string(), row);
                }
            }
        }
    }
    rows
}

fn port_row(port: &PortDetail, rated: &Rated) -> Value {
    json!({
        "is_up": port.is_up,
        "role": port.used_as.name(),
        "speed_bps": speed(port),
        "host_count": port.host_count,
        "rates": rated.of(port.at),
    })
}

fn table_row(switch: &SwitchView) -> Value {
    let (table, counters) = (&switch.table, &switch.table.counters);
    json!({
        "entries": table.entries,
        "limit": table.limit,
        "flow_count": switch.flow_count,
        "leases": table.leases,
        "coarse": table.coarse,
        "misses": counters.misses,
        "renewals": counters.renewals,
        "evictions": counters.evictions,
        "table_full": counters.table_full,
        "no_room": counters.no_room,
    })
}

fn channel_row(role: &str, connection: Option<&ConnectionView>) -> Value {
    let Some(of) = connection else {
        return json!({"role": role});
    };
    let rtt_ms = of.echo_rtt.map(|rtt| rtt.as_secs_f64() * 1e3);
    json!({
        "role": role,
        "transport": of.peer.transport.name(),
        "tls": of.peer.tls.as_ref().map(|tls| tls.version),
        "echo_rtt_ms": rtt_ms.map(|ms| (ms * 1e3).round() / 1e3),
        "outbox_bytes": of.outbox_bytes,
        "inbox_backlog": of.inbox_backlog,
        "packet_ins_shed": of.packet_ins_shed + of.packet_ins_shed_unread,
        "packet_outs_shed": of.packet_outs_shed,
        "messages_in": of.session.received,
        "messages_out": of.messages_sent,
    })
}

/// Changes of figures, in messages: at most two a second, each at most 64 KiB. The first ones have
/// everything: `is_snapshot`, up to `is_last`. A row replaces the former one of its name; null says
/// that there is none any more.
#[utoipa::path(get, path = "/v1/live", tag = "network", operation_id = "live",
    params(("views" = Option<String>, Query, example = "links,ports,tables,channels",
        description = "`links,channels` without")),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = 400),
        (status = 503, description = "32 streams are read already"),
    ))]
async fn live(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let mut query = Query::of(request.uri().query());
    let views = query.read("views", |text| {
        let views = text.split(',').map(|name| View::parse(name.trim()));
        let mut views = views.collect::<Result<Vec<View>, String>>()?;
        views.sort();
        views.dedup();
        Ok::<_, String>(views)
    });
    query.only(&["views"])?;
    let views = views.unwrap_or_else(|| vec![View::Links, View::Channels]);
    let (writer, response) = api.open_stream(request.extensions(), Form::Sse)?;
    let wanted = api.want(views);
    tokio::spawn(async move {
        if let Err(End::Slow) = follow(&wanted, &writer).await {
            let detail = "the reader takes nothing: come again";
            let mut text = String::new();
            let document = json!({"event": "cut", "detail": detail}).to_string();
            Form::Sse.write(&mut text, None, &document);
            writer.cut(text).await;
        }
    });
    Ok(response)
}

async fn follow(wanted: &Wanted, writer: &Writer) -> Result<(), End> {
    let mut published = wanted.hub.published.subscribe();
    let mut given = Given::default();
    writer
        .write(Form::Sse.heartbeat().to_owned(), || false)
        .await?;
    // Rows that have not changed wake this reader too: they must not put off a heartbeat.
    let mut heartbeat = Instant::now() + HEARTBEAT;
    loop {
        let now = published.borrow_and_update().clone();
        // Rows made before this reader connected may lack a view.
        let is_whole = |p: &Arc<Published>| wanted.views.iter().all(|v| p.views.contains(v));
        if let Some(now) = now.filter(is_whole) {
            // All parts of the snapshot, and then one message at a time.
            while let Some(message) = given.next(&now, &wanted.views) {
                let mut text = String::new();
                Form::Sse.write(&mut text, None, &message);
                writer.write(text, || false).await?;
                heartbeat = Instant::now() + HEARTBEAT;
                if given.has_all {
                    break;
                }
            }
        }
        tokio::select! {
            changed = published.changed() => changed.map_err(|_| End::Gone)?,
            () = sleep_until(heartbeat) => {
                writer.write(Form::Sse.heartbeat().to_owned(), || false).await?;
                heartbeat = Instant::now() + HEARTBEAT;
            }
            () = writer.closed() => return Err(End::Gone),
        }
    }
}

/// The rows sent to a reader.
#[derive(Default)]
struct Given {
    names: Arc<[Name]>,
    /// The publication of each row as last sent; 0 if it was never sent.
    given: Vec<u64>,
    /// Rows that no longer exist, but that the reader still has.
    gone: BTreeSet<Name>,
    /// Whether the reader has received everything once.
    has_all: bool,
    /// The row after the last one of the last message.
    at: usize,
}

impl Given {
    /// The next message; `None` if nothing has changed.
    fn next(&mut self, now: &Published, views: &[View]) -> Option<String> {
        let is_snapshot = !self.has_all;
        if !Arc::ptr_eq(&self.names, &now.names) {
            self.rename(&now.names);
        }
        let mut message = Message::default();
        while let Some(name) = self.gone.first()
            && message.add(name, "null")
        {
            self.gone.pop_first();
        }
        let mut is_last = self.gone.is_empty();
        // The next message begins where the last message ended: no row waits forever.
        let behind = self.at..now.rows.len();
        for index in behind.chain(0..self.at) {
            let (name, row) = (&now.names[index], &now.rows[index]);
            if self.given[index] >= row.changed || !views.contains(&name.0) {
                continue;
            }
            if !message.add(name, &row.text) {
                is_last = false;
                self.at = index;
                break;
            }
            self.given[index] = row.changed;
        }
        self.has_all |= is_last;
        let is_said = is_snapshot || !message.is_empty();
        is_said.then(|| message.finish(now.seq, is_snapshot, is_last))
    }

    /// Continues with other names; both lists are in order.
    fn rename(&mut self, names: &Arc<[Name]>) {
        let mut given = vec![0; names.len()];
        let (mut old, mut new) = (0, 0);
        while old < self.names.len() {
            let order = names
                .get(new)
                .map_or(Less, |name| self.names[old].cmp(name));
            match order {
                Less if self.given[old] > 0 => drop(self.gone.insert(self.names[old].clone())),
                Equal => given[new] = self.given[old],
                Less | Greater => {}
            }
            old += usize::from(order != Greater);
            new += usize::from(order != Less);
        }
        self.gone.retain(|gone| names.binary_search(gone).is_err());
        (self.names, self.given, self.at) = (names.clone(), given, 0);
    }
}

/// Rows of one message, by view.
#[derive(Default)]
struct Message {
    views: BTreeMap<View, String>,
    bytes: usize,
}

impl Message {
    /// Adds a row. Returns whether there was room for it.
    fn add(&mut self, (view, name): &Name, row: &str) -> bool {
        let bytes = name.len() + row.len() + 4;
        let has_room = self.bytes + bytes <= CHUNK_MAX - ENVELOPE_MAX;
        if has_room {
            self.bytes += bytes;
            let rows = self.views.entry(*view).or_default();
            let comma = if rows.is_empty() { "" } else { "," };
            // Names are numbers of switches and ports: nothing in them needs an escape.
            rows.push_str(&format!("{comma}\"{name}\":{row}"));
        }
        has_room
    }

    fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    fn finish(self, seq: u64, is_snapshot: bool, is_last: bool) -> String {
        let mut text =
            format!("{{\"seq\":{seq},\"is_snapshot\":{is_snapshot},\"is_last\":{is_last}");
        for (view, rows) in self.views {
            text.push_str(&format!(",\"{}\":{{{rows}}}", view.name()));
        }
        text.push('}');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(
        last: Option<(u64, &Published)>,
        rows: impl IntoIterator<Item = (String, String)>,
    ) -> Published {
        let row = |(name, text): (String, String)| ((View::Tables, name.into()), text.into());
        let rows = rows.into_iter().map(row).collect();
        let number = last.map_or(1, |(number, _)| number);
        Published::new(
            number,
            7,
            vec![View::Tables],
            rows,
            last.map(|(_, last)| last),
        )
    }

    fn read(message: &str) -> Value {
        serde_json::from_str(message).unwrap()
    }

    #[test]
    fn everything_comes_first_and_then_what_has_changed() {
        let mut given = Given::default();
        let row = |n: u32, value: u32| (n.to_string(), value.to_string());
        let first = published(None, (1..4).map(|n| row(n, 0)));
        let views = [View::Tables];
        let whole = read(&given.next(&first, &views).unwrap());
        let expected = json!({"seq": 7, "is_snapshot": true, "is_last": true,
            "tables": {"1": 0, "2": 0, "3": 0}});
        assert_eq!(whole, expected);
        assert_eq!(given.next(&first, &views), None);
        let second = published(Some((2, &first)), [row(1, 0), row(2, 5)]);
        let change = read(&given.next(&second, &views).unwrap());
        let expected = json!({"seq": 7, "is_snapshot": false, "is_last": true,
            "tables": {"3": null, "2": 5}});
        assert_eq!(change, expected);
        assert_eq!(given.next(&second, &views), None);
        // A row that was removed and added again is sent, changed or not.
        let third = published(Some((3, &second)), (1..4).map(|n| row(n, 0)));
        let change = read(&given.next(&third, &views).unwrap());
        assert_eq!(change["tables"], json!({"2": 0, "3": 0}));
        assert_eq!(given.next(&third, &views), None);
    }

    /// Whatever the sequence of publications, a reader has all current rows, even if it missed some
    /// publications.
    #[test]
    fn a_reader_has_what_there_is() {
        let mut random = clock::SplitMix64::new(9);
        let mut given = Given::default();
        let views = [View::Tables];
        let (mut has, mut last) = (BTreeMap::new(), None::<Published>);
        for number in 1..500 {
            let row = |n: u64, value: u64| (n.to_string(), value.to_string());
            let mut rows = Vec::new();
            for n in 0..12 {
                match random.next() % 8 {
                    0 => {}
                    value => rows.push(row(n, value / 4)),
                }
            }
            let now = published(last.as_ref().map(|last| (number, last)), rows.clone());
            if random.next().is_multiple_of(2)
                && let Some(message) = given.next(&now, &views)
            {
                let tables = read(&message)["tables"].clone();
                for (name, row) in tables.as_object().into_iter().flatten() {
                    let row = row.as_u64();
                    match row {
                        Some(row) => drop(has.insert(name.clone(), row)),
                        None => drop(has.remove(name)),
                    }
                }
                let wanted = rows.iter().map(|(n, v)| (n.clone(), v.parse().unwrap()));
                assert_eq!(has, wanted.collect(), "{number}");
            }
            last = Some(now);
        }
    }

    #[test]
    fn pages_have_a_twentieth_of_the_controllers_thread() {
        assert_eq!(pause_after(Duration::from_millis(1)), PERIOD);
        let took = Duration::from_millis(600);
        assert_eq!(pause_after(took), Duration::from_secs(12));
    }

    #[test]
    fn an_empty_network_has_a_snapshot_too() {
        let message = Given::default().next(&published(None, []), &[View::Tables]);
        let expected = json!({"seq": 7, "is_snapshot": true, "is_last": true});
        assert_eq!(read(&message.unwrap()), expected);
    }

    #[test]
    fn messages_are_bounded_and_no_row_waits_forever() {
        let mut given = Given::default();
        let rows = |value: u32| {
            let row = move |n: u32| (format!("{n:05}"), format!("\"{value}{}\"", "x".repeat(200)));
            (0..1000).map(row)
        };
        let views = [View::Tables];
        let (mut seen, mut messages) = (0, 0);
        let mut last = published(None, rows(0));
        while !given.has_all {
            let message = given.next(&last, &views).unwrap();
            assert!(message.len() <= CHUNK_MAX, "{}", message.len());
            let message = read(&message);
            assert_eq!(message["is_snapshot"], true);
            seen += message["tables"].as_object().map_or(0, |rows| rows.len());
            messages += 1;
        }
        assert_eq!((seen, messages), (1000, 4));
        // All rows change all the time, and a message has room for a third of them.
        let mut newest = BTreeMap::new();
        for value in 2..10 {
            last = published(Some((value.into(), &last)), rows(value));
            let message = given.next(&last, &views).unwrap();
            assert!(message.len() <= CHUNK_MAX);
            for (name, _) in read(&message)["tables"].as_object().unwrap() {
                newest.insert(name.clone(), value);
            }
        }
        assert_eq!(newest.len(), 1000, "each was given");
        assert!(newest.values().all(|value| *value >= 5), "{newest:?}");
    }
}
