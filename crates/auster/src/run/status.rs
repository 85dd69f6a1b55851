//! The status socket: each client receives one JSON document on one line, and then the end.
//!
//! ```text
//! {"switches":[{"dpid","address","transport","tls","version","ports","flows","table":{…},
//!   "messages_in","messages_out","packet_ins_at_edge","flow_mods_at_edge","packet_outs_at_edge",
//!   "entries_withheld_at_edge","echo_rtt_ms","inbox_backlog","outbox_bytes","packet_ins_shed",
//!   "packet_in_rests"}],
//!  "links":[{"from","to"}], "hosts":[{"mac","at","ips"}],
//!  "bonds":[{"name","at","lacp","rate","partner":{"system","key"} (or null),
//!    "ports":[{"port","collecting","distributing","receive","actor_state","partner_port",
//!      "partner_state"}]}],
//!  "topology_differences":["link … is not found"] (null without a topology file),
//!  "policy":{"generation","sha256","algorithm","rules":[{"id","hits"}],"default_hits",
//!    "queues":[{"received":{…},"sent":{…}}]},
//!  "timeouts":{"policy","first_packets","load_percent","stretch","leases","packets_forbidden",
//!    "paths_rerouted",
//!    "paths_moved_in_pause","paths_moved_under_traffic",
//!    "delays":{"count","p50_ms","p99_ms"}},
//!  "databases":[{"dpid","address","bridge","datapath_type","flow_limit",
//!    "ports":{name: {"numbers","queues","problem"}}}],
//!  "guests":[{"name","messages","refused","packets_in","packets_out","packets_shed",
//!    "switches":[{"dpid","connected","entries"}]}],
//!  "cluster":{"name","serves","served_by","heard":[name],"silent":[name]} (null alone; a member
//!    that stands by has no switches, links and hosts, or those of the time when it served),
//!  "connections":{"total","up","standing_by":[dpid]} (switches that another controller serves),
//!  "drops":{reason: count}, "refused":{listener: {reason: count}},
//!  "ended":{reason: count} (connections that have ended, as in the events)}
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use control::ConnectionId;
use control::bond::Protocol;
use control::cluster::{Cluster, MemberId};
use control::clustered::Clustered;
use control::controller::{
    BondPortView, BondView, ControllerCounters, HostView, LinkView, SwitchView, TableView,
    TimeoutsView,
};
use control::guest::{GuestView, SeatView};
use control::lacp::Partner;
use control::topology::Difference;
use driver::databases::{DatapathView, PortView, Views};
use driver::{ConnectionView, Driver};
use net::clock::Clock;
use net::transport::{Refusal, bind_unix};
use openflow::packet::lacp::State;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use api::metrics::RefusalsOfAll;

#[derive(Clone)]
pub struct Status {
    driver: Arc<Driver<Clustered>>,
    refusals: RefusalsOfAll,
    databases: watch::Receiver<Views>,
    clock: Clock,
}

/// The documents being made or written at one time; other readers wait.
const READERS_MAX: usize = 16;
/// A controller may know millions of hosts; a document of them all would be of use to nobody.
const HOSTS_SHOWN_MAX: usize = 10_000;
/// The time that the application has to answer, and the same again for the reader to read.
const STEP_MAX: Duration = Duration::from_secs(2);

impl Status {
    pub fn new(
        driver: Arc<Driver<Clustered>>,
        refusals: RefusalsOfAll,
        databases: watch::Receiver<Views>,
        clock: Clock,
    ) -> Status {
        Status {
            driver,
            refusals,
            databases,
            clock,
        }
    }

    /// Serves from `path` in a task of its own. Replaces a socket on which nobody listens.
    pub fn serve(self, path: &Path) -> io::Result<JoinHandle<()>> {
        let listener = bind_unix(path)?;
        let status = Arc::new(self);
        Ok(tokio::spawn(async move {
            let readers = Arc::new(Semaphore::new(READERS_MAX));
            loop {
                let Ok(slot) = readers.clone().acquire_owned().await else {
                    return;
                };
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let status = status.clone();
                tokio::spawn(async move {
                    status.answer(stream).await;
                    drop(slot);
                });
            }
        }))
    }

    async fn answer(&self, mut stream: UnixStream) {
        let mut line = self.document().await.to_string();
        line.push('\n');
        let written = async {
            stream.write_all(line.as_bytes()).await?;
            stream.shutdown().await
        };
        let _ = timeout(STEP_MAX, written).await;
    }

    async fn document(&self) -> Value {
        let views = self.driver.ask(|controller| {
            (
                controller.switches(),
                controller.links(),
                controller.first_hosts(HOSTS_SHOWN_MAX),
                controller.host_count(),
                controller
                    .has_topology()
                    .then(|| controller.topology_differences()),
                (
                    controller.timeouts_view(),
                    controller.counters(),
                    controller.bonds(),
                    controller.guests(),
                    cluster(controller),
                ),
            )
        });
        // The connections are known even when the controller is too busy to be asked.
        let answered = timeout(STEP_MAX, views).await.ok().flatten();
        let timeouts = answered.as_ref().map(|(.., decided)| timeouts(decided));
        let bonds = answered.as_ref().map(|(.., (_, _, bonds, ..))| bonds);
        let bonds: Vec<Value> = bonds.into_iter().flatten().map(bond).collect();
        let guests = answered.as_ref().map(|(.., (_, _, _, guests, _))| guests);
        let guests: Vec<Value> = guests.into_iter().flatten().map(guest).collect();
        let cluster = answered.as_ref().map(|(.., (.., cluster))| cluster);
        let cluster = cluster.cloned().flatten();
        let answered = answered.map(|(switches, links, hosts, count, differences, _)| {
            (switches, links, hosts, count, differences)
        });
        let is_answered = answered.is_some();
        let (switches, links, hosts, host_count, differences) = answered.unwrap_or_default();
        let connections = self.driver.connections();
        let up = connections.iter().filter(|c| c.is_admitted);
        json!({
            "is_responsive": is_answered,
            "uptime_s": self.clock.now().as_nanos() as f64 / 1e9,
            "switches": self.switches(&connections, &switches),
            "links": links.iter().map(link).collect::<Vec<_>>(),
            "bonds": bonds,
            "host_count": host_count,
            "hosts": hosts.iter().map(host).collect::<Vec<_>>(),
            "topology_differences": differences.map(|d| told(&d)),
            "guests": guests,
            "cluster": cluster,
            "databases": self.databases.borrow().iter().map(database).collect::<Vec<_>>(),
            "connections": {
                "total": connections.len(),
                "up": up.count(),
                "standing_by": standing_by(&connections),
            },
            "policy": self.policy(),
            "timeouts": timeouts,
            "drops": self.drops(&connections),
            "refused": self.refused(),
            "ended": self.driver.ends(),
        })
    }

    fn switches(&self, connections: &[ConnectionView], switches: &[SwitchView]) -> Vec<Value> {
        let by_connection: BTreeMap<ConnectionId, &SwitchView> = switches
            .iter()
            .filter_map(|switch| Some((switch.connection?, switch)))
            .collect();
        let up = connections.iter().filter(|c| c.is_admitted);
        up.map(|c| switch(c, by_connection.get(&c.id).copied()))
            .collect()
    }

    fn drops(&self, connections: &[ConnectionView]) -> Value {
        let inbox = self.driver.inbox_counters();
        let too_long: u64 = connections
            .iter()
            .map(|c| c.edge.packet_outs_too_long)
            .sum();
        let unread: u64 = connections.iter().map(|c| c.packet_ins_shed_unread).sum();
        json!({
            "packet_ins_inbox_full": inbox.packet_ins_shed,
            "packet_ins_switch_not_reading": unread,
            "packet_outs_too_long_at_edge": too_long,
            "notices_unread": self.driver.notices_lost(),
        })
    }

    /// The policy's counters. `received` counts messages for the application. `sent` counts
    /// messages that had to wait for a slow switch and have left since. Messages that never wait
    /// are in neither.
    fn policy(&self) -> Value {
        let view = self.driver.policy();
        let rules = view.map.rules.iter().zip(&view.hits);
        let rules = rules.map(|(rule, hits)| json!({"id": rule.id, "hits": hits}));
        let received = self.driver.inbox_class_counters();
        let queues = view.sent.iter().zip(received).map(|(sent, received)| {
            json!({
                "received": {
                    "messages": received.messages_in,
                    "processed": received.delivered,
                    "shed": received.shed,
                    "waiting": received.waiting,
                },
                "sent": {
                    "messages": sent.messages_out,
                    "bytes": sent.bytes_out,
                    "promoted": sent.promoted,
                },
            })
        });
        json!({
            "generation": view.map.generation,
            "sha256": view.map.digest().to_string(),
            "algorithm": view.map.scheduling.algorithm.name(),
            "rules": rules.collect::<Vec<_>>(),
            "default_hits": view.hits_default,
            "queues": queues.collect::<Vec<_>>(),
        })
    }

    fn refused(&self) -> Value {
        let all = self.refusals.all();
        let listeners = all.iter().map(|(listener, refusals)| {
            let counts = Refusal::ALL.map(|r| (r.name().to_owned(), json!(refusals.get(r))));
            (listener.clone(), Value::Object(Map::from_iter(counts)))
        });
        Value::Object(listeners.collect())
    }
}

/// Another controller, and the switches as it sees them.
fn guest(guest: &GuestView) -> Value {
    let switch = |seat: &SeatView| {
        json!({
            "dpid": seat.dpid.to_string(),
            "connected": seat.is_connected,
            "entries": seat.entries,
        })
    };
    json!({
        "name": &*guest.name,
        "messages": guest.counts.messages,
        "refused": guest.counts.refused,
        "packets_in": guest.counts.packet_ins,
        "packets_out": guest.counts.packet_outs,
        "packets_shed": guest.counts.packet_ins_shed,
        "switches": guest.switches.iter().map(switch).collect::<Vec<_>>(),
    })
}

/// The status of this cluster member, with the member that serves the switches, and the others.
fn cluster(controller: &Clustered) -> Option<Value> {
    let cluster = controller.cluster()?;
    let shards = cluster.shards();
    let standing = cluster.standing();
    let served_by = shards.iter().find_map(|shard| shard.holder.as_ref());
    let (heard, silent): (Vec<_>, Vec<_>) = cluster
        .peers()
        .into_iter()
        .partition(|(_, is_heard)| *is_heard);
    let names = |peers: &[(MemberId, bool)]| -> Vec<String> {
        peers.iter().map(|(name, _)| name.to_string()).collect()
    };
    Some(json!({
        "name": cluster.config().id.as_str(),
        "serves": shards.iter().any(|shard| shard.is_held),
        "served_by": served_by.map(MemberId::as_str),
        "is_able": standing.is_able(),
        "state": standing.to_string(),
        "heard": names(&heard),
        "silent": names(&silent),
        "known": known(cluster),
    }))
}

/// The members, and the order of take-overs from the place in use on, which this member knows also
/// without etcd.
fn known(cluster: &Cluster) -> Option<Value> {
    let (view, own) = (cluster.view()?, &cluster.config().id);
    let members = view.members.iter().map(|(name, member)| {
        let heard = || {
            let peers = cluster.peers().into_iter();
            let heard = peers.filter(|(_, is_heard)| *is_heard);
            heard.map(|(name, _)| name).collect()
        };
        let hears: Option<BTreeSet<MemberId>> = match name == own {
            true => Some(heard()),
            false => cluster.heard_by(name).cloned(),
        };
        let hears = hears.map(|hears| hears.iter().map(ToString::to_string).collect::<Vec<_>>());
        let (address, is_ready) = (&member.address, member.is_ready);
        json!({"name": name.as_str(), "address": address, "ready": is_ready, "hears": hears})
    });
    let status = cluster.shards().into_iter().next();
    let order = status.and_then(|status| {
        let order = &view.own.get(&status.shard)?.order;
        let places = order.places().iter().map(MemberId::as_str);
        Some(
            places
                .skip(status.generation.rank().into())
                .collect::<Vec<_>>(),
        )
    });
    Some(json!({"members": members.collect::<Vec<_>>(), "order": order}))
}

fn standing_by(connections: &[ConnectionView]) -> Vec<String> {
    let aside = connections.iter().filter(|c| c.is_aside);
    aside
        .filter_map(|c| Some(c.datapath_id?.to_string()))
        .collect()
}

fn bond(view: &BondView) -> Value {
    let partner = |partner: Partner| {
        let system = partner.system.to_string();
        json!({"system": system, "key": partner.key})
    };
    let port = |port: &BondPortView| {
        let lacp = port.lacp.as_ref();
        let heard = lacp.and_then(|lacp| lacp.partner);
        json!({
            "port": port.port.0,
            "collecting": port.is_collecting,
            "distributing": port.is_distributing,
            "receive": lacp.map(|lacp| lacp.receive),
            "actor_state": lacp.map(|lacp| states(lacp.state)),
            "partner_port": heard.map(|end| end.port),
            "partner_state": heard.map(|end| states(end.state)),
        })
    };
    json!({
        "name": view.bond.name,
        "at": view.bond.place().to_string(),
        "lacp": match view.bond.protocol {
            Protocol::Active => "active",
            Protocol::Passive => "passive",
            Protocol::Static => "off",
        },
        "rate": if view.bond.is_fast { "fast" } else { "slow" },
        "partner": view.partner.map(partner),
        "ports": view.ports.iter().map(port).collect::<Vec<_>>(),
    })
}

/// The bits of a state by their names, as `ovs-appctl lacp/show` has them.
fn states(state: State) -> Vec<&'static str> {
    let names = [
        (State::ACTIVITY, "activity"),
        (State::SHORT_TIMEOUT, "timeout"),
        (State::AGGREGATION, "aggregation"),
        (State::SYNCHRONIZATION, "synchronized"),
        (State::COLLECTING, "collecting"),
        (State::DISTRIBUTING, "distributing"),
        (State::DEFAULTED, "defaulted"),
        (State::EXPIRED, "expired"),
    ];
    let set = names.into_iter().filter(|(bit, _)| state.has(*bit));
    set.map(|(_, name)| name).collect()
}

fn switch(connection: &ConnectionView, view: Option<&SwitchView>) -> Value {
    let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
    let description = view.and_then(|v| v.description.as_ref());
    json!({
        "dpid": connection.datapath_id.map(|id| id.to_string()),
        "address": connection.peer.address,
        "transport": connection.peer.transport.name(),
        "tls": connection.peer.tls.as_ref().map(|tls| tls.version),
        "cipher": connection.peer.tls.as_ref().and_then(|tls| tls.cipher.as_deref()),
        "version": connection.version.map(|v| v.to_string()),
        "software": description.map(|d| text(&d.software)),
        "ports": view.map(|v| v.port_count),
        "flows": view.map(|v| v.flow_count),
        "table": view.map(|v| table(&v.table)),
        "messages_in": connection.session.received,
        "messages_out": connection.messages_sent,
        "packet_ins_at_edge": connection.edge.packet_ins,
        "flow_mods_at_edge": connection.edge.flow_mods,
        "packet_outs_at_edge": connection.edge.packet_outs,
        "entries_withheld_at_edge": connection.edge.entries_withheld,
        "malformed": connection.session.malformed,
        "echo_rtt_ms": connection.echo_rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
        "inbox_backlog": connection.inbox_backlog,
        "outbox_bytes": connection.outbox_bytes,
        "packet_ins_shed": connection.packet_ins_shed + connection.packet_ins_shed_unread,
        "packet_in_rests": connection.rests,
    })
}

fn told(differences: &[Difference]) -> Vec<String> {
    differences.iter().map(ToString::to_string).collect()
}

fn table(view: &TableView) -> Value {
    let counters = view.counters;
    json!({
        "entries": view.entries,
        "limit": view.limit,
        "leases": view.leases,
        "edge_idle_s": view.timeouts_at_edge.map(|(idle_s, _)| idle_s),
        "edge_hard_s": view.timeouts_at_edge.map(|(_, hard_s)| hard_s),
        "misses": counters.misses,
        "renewals": counters.renewals,
        "evictions": counters.evictions,
        "table_full": counters.table_full,
        "no_room": counters.no_room,
        "coarse": view.coarse,
        "coarsened": counters.coarsened,
        "refined": counters.refined,
        "put_out": counters.put_out,
        "vacancy_events": counters.vacancy_events,
    })
}

/// The controller's decisions that a document shows.
type Decided = (
    TimeoutsView,
    ControllerCounters,
    Vec<BondView>,
    Vec<GuestView>,
    Option<Value>,
);

fn timeouts((view, counters, ..): &Decided) -> Value {
    let ms = |delay: Option<Duration>| delay.map(|d| d.as_secs_f64() * 1e3);
    json!({
        "policy": view.policy,
        "first_packets": view.first_packets,
        "load_percent": view.load_percent,
        "stretch": view.stretch,
        "leases": view.leases,
        "packets_forbidden": counters.packets_forbidden,
        "paths_rerouted": counters.paths_rerouted,
        "paths_put_off": counters.paths_put_off,
        "stages_unconfirmed": counters.stages_unconfirmed,
        "paths_moved_in_pause": counters.paths_moved_in_pause,
        "paths_moved_under_traffic": counters.paths_moved_under_traffic,
        "delays": {
            "count": view.delays,
            "p50_ms": ms(view.delay_p50),
            "p99_ms": ms(view.delay_p99),
        },
    })
}

fn database((dpid, view): (&openflow::DatapathId, &DatapathView)) -> Value {
    let port = |(name, port): (&String, &PortView)| {
        let of_port = json!({
            "numbers": port.numbers,
            "queues": port.queues.name(),
            "problem": port.queues.problem(),
        });
        (name.clone(), of_port)
    };
    json!({
        "dpid": dpid.to_string(),
        "address": view.database,
        "bridge": view.bridge,
        "datapath_type": view.datapath_type,
        "flow_limit": view.flow_limit,
        "ports": view.ports.iter().map(port).collect::<Map<String, Value>>(),
    })
}

fn link(link: &LinkView) -> Value {
    json!({"from": link.from.to_string(), "to": link.to.to_string()})
}

fn host(host: &HostView) -> Value {
    json!({
        "mac": host.mac.to_string(),
        "vlan": host.vlan.number(),
        "at": host.at.to_string(),
        "ips": host.ips.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
