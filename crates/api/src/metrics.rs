//! The counters of `auster run`, for Prometheus: one exposition in the OpenMetrics text format.
//!
//! Names begin with `auster_`; units are base units. No label names a host: the number of series is
//! bounded by switches, listeners, classes of the policy map, and the reasons listed here.

mod faucet;
mod guests;
mod ports;
mod qos;
mod queues;
mod reader;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use clock::Instant;
use control::cluster::{ClusterCounts, MemberId};
use control::clustered::{Clustered, CopyCounts};
use control::controller::{
    AccessCounts, ControllerCounters, HostCounters, QosReport, SwitchView, TimeoutsView, VlanView,
};
use control::guest::GuestView;
use control::vlan::VlanId;
use driver::databases::Views;
use driver::guests::Shed;
use driver::{ConnectionView, Driver};
use net::clock::Clock;
use net::tls::{Expiry, Security};
use net::transport::{Refusal, Refusals};
use openflow::DatapathId;
use openflow::multipart::{PortStats, QueueStats};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Paces;
use crate::access::Access;
use crate::exposition::{Family, Labels, Value, count, durations, gauge, info, text};
use crate::lock;
use crate::process;
use crate::rings::Rings;
use cli::certificates::expiries;
use cluster::intent::{Counts, Intent};
use config::digest::Digests;
pub use config::metrics::Stated;
use reader::Reader;

/// The time that the application has to answer. Other figures are reported in any case.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// The refusals of a listener, and its method.
pub type Refused = (String, Arc<Refusals>);

/// The refusals of every listener, for status and metrics.
#[derive(Clone, Default)]
pub struct RefusalsOfAll(Arc<Mutex<Vec<Refused>>>);

impl RefusalsOfAll {
    pub fn all(&self) -> Vec<Refused> {
        lock(&self.0).clone()
    }

    pub fn add(&self, more: impl Iterator<Item = Refused>) {
        self.change(|all| all.extend(more));
    }

    pub fn change(&self, change: impl FnOnce(&mut Vec<Refused>)) {
        change(&mut lock(&self.0));
    }
}

/// The sources of the figures.
#[derive(Clone)]
pub struct Metrics {
    driver: Arc<Driver<Clustered>>,
    refusals: RefusalsOfAll,
    security: Security,
    /// The certificates of a cluster member.
    cluster: Option<Security>,
    api: Option<Arc<Access>>,
    /// The digests of the configuration file.
    config: Arc<Mutex<Option<Digests>>>,
    clock: Clock,
    intent: Option<Arc<Intent>>,
    taps: Arc<Rings>,
    paces: Option<Arc<Paces>>,
    /// The commit that the program was built of.
    commit: Option<&'static str>,
    /// Packets dropped because guests did not read them.
    unread: Shed,
    /// The switches' databases.
    views: Option<watch::Receiver<Views>>,
    stated: Arc<Mutex<Stated>>,
    ports: Reader<PortStats>,
    queues: Reader<QueueStats>,
}

/// The application's answer.
struct Answer {
    switches: Vec<SwitchView>,
    links: usize,
    hosts: usize,
    timeouts: TimeoutsView,
    counters: ControllerCounters,
    host_counters: HostCounters,
    paths: usize,
    vlans: Vec<VlanView>,
    access: AccessCounts,
    bound_by_dhcp: usize,
    routed: usize,
    cluster: Option<ClusterView>,
    qos: QosReport,
    hosts_by_vlan: Vec<(DatapathId, VlanId, usize)>,
    guests: Vec<GuestView>,
}

/// A member's view of its cluster.
struct ClusterView {
    counts: ClusterCounts,
    peers: Vec<(MemberId, bool)>,
    served: usize,
    passed_over: u64,
    handed_over: u64,
    packets_dropped: u64,
    copy: CopyCounts,
}

impl ClusterView {
    fn of(controller: &Clustered, now: Instant) -> Option<ClusterView> {
        let cluster = controller.cluster()?;
        Some(ClusterView {
            counts: cluster.counts(),
            peers: cluster.peers(),
            served: cluster
                .shards()
                .iter()
                .filter(|shard| shard.is_held)
                .count(),
            passed_over: controller.passed_over(),
            handed_over: controller.handed_over(),
            packets_dropped: controller.packets_dropped(),
            copy: controller.copy_counts(now),
        })
    }
}

impl Metrics {
    pub fn new(
        driver: Arc<Driver<Clustered>>,
        refusals: RefusalsOfAll,
        security: Security,
        clock: Clock,
    ) -> Metrics {
        Metrics {
            driver,
            refusals,
            security,
            cluster: None,
            api: None,
            config: Arc::default(),
            clock,
            intent: None,
            taps: Arc::default(),
            paces: None,
            commit: None,
            unread: Shed::default(),
            views: None,
            stated: Arc::default(),
            ports: Reader::default(),
            queues: Reader::default(),
        }
    }

    /// Adds the commit that the program was built of.
    pub fn with_commit(mut self, commit: Option<&'static str>) -> Metrics {
        self.commit = commit;
        self
    }

    /// Adds figures of the requests made through the API.
    pub fn with_intent(mut self, intent: Arc<Intent>) -> Metrics {
        self.intent = Some(intent);
        self
    }

    /// Adds figures of tapped packets, and of requests that wait for their turn.
    pub fn with_applications(mut self, taps: Arc<Rings>, paces: Arc<Paces>) -> Metrics {
        self.taps = taps;
        self.paces = Some(paces);
        self
    }

    /// Adds the packets dropped because guests did not read them.
    pub fn with_guests(mut self, unread: Shed) -> Metrics {
        self.unread = unread;
        self
    }

    /// Adds the certificates of a member.
    pub fn with_cluster(mut self, security: Option<Security>) -> Metrics {
        self.cluster = security;
        self
    }

    /// Adds the figures that the configuration asks for, and those of the switches' databases.
    pub fn with_stated(
        mut self,
        stated: Arc<Mutex<Stated>>,
        views: watch::Receiver<Views>,
    ) -> Metrics {
        (self.stated, self.views) = (stated, Some(views));
        self
    }

    /// Adds the figures of the API itself.
    pub fn with_api(mut self, api: Arc<Access>) -> Metrics {
        self.api = Some(api);
        self
    }

    /// Reads the digests of the configuration file from `config` from now on.
    pub fn with_config(mut self, config: Arc<Mutex<Option<Digests>>>) -> Metrics {
        self.config = config;
        self
    }

    pub async fn exposition(&self) -> String {
        let now = self.clock.now();
        let has_faucet = lock(&self.stated).has_faucet;
        let asked = self.driver.ask(move |controller| Answer {
            switches: controller.switches(),
            links: controller.links().len(),
            hosts: controller.host_count(),
            timeouts: controller.timeouts_view(),
            counters: controller.counters(),
            host_counters: controller.host_counters(),
            paths: controller.path_count(),
            vlans: controller.vlans(),
            access: controller.access_counts(),
            bound_by_dhcp: controller.learned().all().count(),
            routed: controller.routed_count(),
            cluster: ClusterView::of(controller, now),
            qos: controller.qos_report(),
            hosts_by_vlan: match has_faucet {
                true => controller.hosts_by_vlan(),
                false => Vec::new(),
            },
            guests: controller.guests(),
        });
        let answer = timeout(ANSWER_TIME_MAX, asked).await.ok().flatten();
        let connections = self.driver.connections();
        let mut families = vec![
            info(self.commit),
            gauge(
                "auster_uptime_seconds",
                "Since the start",
                self.clock.now().as_nanos() as f64 / 1e9,
            ),
            gauge(
                "auster_responsive",
                "Whether the controller's thread has answered in time; if not, what it knows is \
                 missing here",
                f64::from(u8::from(answer.is_some())),
            ),
        ];
        families.extend(process::families());
        families.extend(self.config());
        families.extend(of_connections(&connections));
        families.push(durations(
            "auster_of_echo_seconds",
            "Round trips of echoes, of all switches",
            [(Vec::new(), self.driver.echoes())],
        ));
        families.extend(self.of_driver());
        families.push(refused(&self.refusals.all()));
        families.push(self.ended());
        families.push(self.of_certificates());
        families.extend(self.api.iter().flat_map(|api| of_api(api)));
        let counts = self.intent.iter().map(|intent| intent.counts());
        families.extend(counts.flat_map(of_intent));
        families.extend(self.taps.families());
        families.extend(self.paces.iter().flat_map(|paces| paces.families()));
        if let Some(answer) = &answer {
            families.extend(of_tables(&answer.switches));
            families.extend(of_controller(answer));
            families.extend(of_vlans(&answer.vlans));
            families.extend(of_access(&answer.access));
            families.extend(guests::families(&answer.guests, &self.unread));
            families.extend(answer.cluster.iter().flat_map(of_cluster));
            let views = self.views.as_ref();
            let views = views.map(|views| views.borrow().clone());
            families.extend(qos::families(&answer.qos, &views.unwrap_or_default()));
            families.extend(self.on_request(answer, &connections).await);
        }
        text(families)
    }

    /// Figures that are served only where the configuration asks for it.
    async fn on_request(&self, answer: &Answer, connections: &[ConnectionView]) -> Vec<Family> {
        let stated = &lock(&self.stated).clone();
        let mut families = Vec::new();
        let queues = async {
            match stated.has_queues {
                true => Some(self.queues.read(&self.driver, self.clock).await),
                false => None,
            }
        };
        let ports = async {
            match stated.asks_for_ports() {
                true => Some(self.ports.read(&self.driver, self.clock).await),
                false => None,
            }
        };
        // Prometheus waits for both readings.
        let (queues, ports) = tokio::join!(queues, ports);
        families.extend(
            queues
                .iter()
                .flat_map(|queues| queues::families(queues, stated)),
        );
        let Some(counters) = ports else {
            return families;
        };
        if stated.has_ports {
            families.extend(ports::families(&counters, stated));
        }
        if stated.has_faucet {
            let (switches, ports) = ports::known(&self.driver).await;
            families.extend(faucet::families(&faucet::Sources {
                switches: &switches,
                ports: &ports,
                hosts: &answer.hosts_by_vlan,
                connections,
                counters: &counters,
                stated,
            }));
        }
        families
    }

    /// The expiry of each file of the certificates; none without certificates.
    fn of_certificates(&self) -> Family {
        let ours = [&self.security].into_iter().chain(&self.cluster);
        let ours = ours.flat_map(expiries);
        let of_api = self.api.iter().flat_map(|api| api.expiries());
        of_expiries(ours.chain(of_api))
    }

    /// Connections that have ended, by reason, including those turned away.
    fn ended(&self) -> Family {
        let each = |(reason, count): (&'static str, u64)| {
            let labels = vec![("reason", reason.to_owned())];
            (labels, Value::Count(count))
        };
        Family {
            name: "auster_connections_ended",
            help: "Connections of switches that have ended",
            samples: self.driver.ends().into_iter().map(each).collect(),
        }
    }

    /// The configuration in use, by its digests: members of a cluster should share the second.
    fn config(&self) -> Vec<Family> {
        let Some(digests) = lock(&self.config).clone() else {
            return Vec::new();
        };
        let family = |name, help, sha256| Family {
            name,
            help,
            samples: vec![(vec![("sha256", sha256)], Value::Gauge(1.0))],
        };
        vec![
            family(
                "auster_config_info",
                "The configuration file as it was read last, by its SHA-256",
                digests.file,
            ),
            family(
                "auster_config_shared_info",
                "The settings of it that members of a cluster should have alike, by their SHA-256",
                digests.shared,
            ),
        ]
    }

    /// The counters of the inbox and the policy map.
    fn of_driver(&self) -> Vec<Family> {
        let policy = self.driver.policy();
        let received = self.driver.inbox_class_counters();
        let classes = || (0..policy.sent.len()).map(|class| vec![("class", class.to_string())]);
        let by_class = |name, help, value: &dyn Fn(usize) -> Value| {
            let values = (0..policy.sent.len()).map(value);
            Family {
                name,
                help,
                samples: classes().zip(values).collect(),
            }
        };
        vec![
            by_class(
                "auster_of_class_messages_received",
                "Messages of a queue of the policy map that were read",
                &|class| Value::Count(received[class].messages_in),
            ),
            by_class(
                "auster_of_class_messages_shed",
                "Packet-ins of a queue that were dropped because the controller is behind",
                &|class| Value::Count(received[class].shed),
            ),
            by_class(
                "auster_of_class_messages_waiting",
                "Messages of a queue that wait for the controller",
                &|class| Value::Gauge(received[class].waiting as f64),
            ),
            by_class(
                "auster_of_class_messages_delayed",
                "Messages of a queue that had to wait for a switch that did not read at once, and \
                 were sent",
                &|class| Value::Count(policy.sent[class].messages_out),
            ),
            durations(
                "auster_inbox_wait_seconds",
                "How long messages of a queue have waited for the controller",
                classes().zip(received.iter().map(|class| class.waited)),
            ),
            count(
                "auster_of_packet_ins_shed_inbox",
                "Packet-ins dropped because the controller's inbox was full",
                self.driver.inbox_counters().packet_ins_shed,
            ),
            count(
                "auster_notices_lost",
                "Lines of output that nobody read in time",
                self.driver.notices_lost(),
            ),
        ]
    }
}

/// The expiries of files in use.
pub fn of_expiries(expiries: impl IntoIterator<Item = Expiry>) -> Family {
    let sample = |expiry: Expiry| {
        let labels = vec![
            ("file", expiry.path.display().to_string()),
            ("kind", expiry.kind.to_string()),
        ];
        let since = expiry.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        (labels, since.as_secs())
    };
    // Two settings may use the same file.
    let samples: BTreeMap<Labels, u64> = expiries.into_iter().map(sample).collect();
    let samples = samples.into_iter();
    let samples = samples.map(|(labels, at)| (labels, Value::Gauge(at as f64)));
    Family {
        name: "auster_certificate_expiry_seconds",
        help: "When the first certificate or revocation list in a file in use expires, in seconds \
               since 1970",
        samples: samples.collect(),
    }
}

/// Requests that the API has refused because of who sent them, and lines of its audit.
fn of_api(api: &Access) -> Vec<Family> {
    let refused = api.logins.refused().map(|(reason, count)| {
        let labels = vec![("reason", reason.name().to_owned())];
        (labels, Value::Count(count))
    });
    let lost = api.audit.as_ref().map(|audit| {
        let help = "Lines of the audit that could not be written";
        count("auster_api_audit_lines_lost", help, audit.lost())
    });
    let times = durations(
        "auster_api_request_seconds",
        "From a request's head to its answer",
        [(Vec::new(), api.times())],
    );
    let refused = Family {
        name: "auster_api_requests_refused",
        help: "Requests that were refused because of who sent them",
        samples: refused.to_vec(),
    };
    [times, refused].into_iter().chain(lost).collect()
}

fn of_connections(connections: &[ConnectionView]) -> Vec<Family> {
    let up = connections.iter().filter(|c| c.is_admitted);
    let switches: Vec<(Labels, &ConnectionView)> = up
        .filter_map(|c| Some((labels(c.datapath_id?.to_string()), c)))
        .collect();
    let each = |name, help, value: &dyn Fn(&ConnectionView) -> Option<Value>| Family {
        name,
        help,
        samples: switches
            .iter()
            .filter_map(|(labels, c)| Some((labels.clone(), value(c)?)))
            .collect(),
    };
    let total = |value: u64| Some(Value::Count(value));
    let now = |value: f64| Some(Value::Gauge(value));
    vec![
        gauge(
            "auster_of_connections",
            "Connections of switches, also those that are not set up yet",
            connections.len() as f64,
        ),
        gauge(
            "auster_of_connections_up",
            "Connections of switches that are served",
            switches.len() as f64,
        ),
        gauge(
            "auster_of_connections_aside",
            "Connections of switches that another controller serves",
            connections.iter().filter(|c| c.is_aside).count() as f64,
        ),
        each(
            "auster_of_role_reclaims",
            "Times that the role of master was taken back from another controller",
            &|c| total(c.session.guard.reclaims),
        ),
        each(
            "auster_of_role_losses",
            "Times that another controller got or kept a switch",
            &|c| total(c.session.guard.asides),
        ),
        Family {
            name: "auster_of_connection_info",
            help: "How a switch is connected",
            samples: switches
                .iter()
                .map(|(labels, c)| {
                    let mut labels = labels.clone();
                    labels.push(("transport", c.peer.transport.name().to_owned()));
                    labels.push((
                        "version",
                        c.version.map(|v| v.to_string()).unwrap_or_default(),
                    ));
                    (labels, Value::Gauge(1.0))
                })
                .collect(),
        },
        each(
            "auster_of_messages_received",
            "OpenFlow messages from a switch",
            &|c| total(c.session.received),
        ),
        each(
            "auster_of_messages_sent",
            "OpenFlow messages to a switch",
            &|c| total(c.messages_sent),
        ),
        each(
            "auster_of_messages_malformed",
            "Messages of a switch that could not be read",
            &|c| total(c.session.malformed),
        ),
        each(
            "auster_of_edge_packet_ins",
            "Packet-ins that were answered beside the connection",
            &|c| total(c.edge.packet_ins),
        ),
        each(
            "auster_of_edge_flow_mods",
            "Entries that were set beside the connection",
            &|c| total(c.edge.flow_mods),
        ),
        each(
            "auster_of_edge_packet_outs",
            "Packets that were sent on beside the connection",
            &|c| total(c.edge.packet_outs),
        ),
        each(
            "auster_of_edge_questions",
            "Questions for addresses that were answered beside the connection",
            &|c| total(c.edge.questions),
        ),
        each(
            "auster_of_edge_entries_withheld",
            "Entries that were not set beside the connection because the table has no room",
            &|c| total(c.edge.entries_withheld),
        ),
        each(
            "auster_of_packet_ins_shed",
            "Packet-ins of a switch that were dropped because the controller is behind or the \
             switch does not read",
            &|c| total(c.packet_ins_shed + c.packet_ins_shed_unread),
        ),
        each(
            "auster_of_packet_outs_too_long",
            "Packets beside the connection that were too long to be sent on",
            &|c| total(c.edge.packet_outs_too_long),
        ),
        each(
            "auster_of_echo_rtt_seconds",
            "The last echo's round trip",
            &|c| now(c.echo_rtt?.as_secs_f64()),
        ),
        each(
            "auster_of_inbox_messages",
            "Messages of a switch that wait for the controller",
            &|c| now(c.inbox_backlog as f64),
        ),
        each(
            "auster_of_outbox_bytes",
            "Bytes that wait for a switch to read",
            &|c| now(c.outbox_bytes as f64),
        ),
    ]
}

fn of_tables(switches: &[SwitchView]) -> Vec<Family> {
    let each = |name, help, value: &dyn Fn(&SwitchView) -> Option<Value>| Family {
        name,
        help,
        samples: switches
            .iter()
            .filter_map(|s| Some((labels(s.dpid.to_string()), value(s)?)))
            .collect(),
    };
    let total = |value: u64| Some(Value::Count(value));
    let now = |value: f64| Some(Value::Gauge(value));
    vec![
        each(
            "auster_flows",
            "Entries of auster in a switch, as far as it remembers them",
            &|s| now(s.flow_count as f64),
        ),
        each(
            "auster_table_entries",
            "Entries of everybody when they were last asked for",
            &|s| now(f64::from(s.table.entries?)),
        ),
        each(
            "auster_table_entries_max",
            "Entries that the table takes",
            &|s| now(f64::from(s.table.limit?)),
        ),
        each(
            "auster_table_leases",
            "Entries that are renewed as long as their flow sends",
            &|s| now(s.table.leases as f64),
        ),
        each(
            "auster_table_coarse_entries",
            "Entries that stand for all pairs to a host",
            &|s| now(s.table.coarse as f64),
        ),
        each(
            "auster_table_misses",
            "Packet-ins for which a path was set that begins here",
            &|s| total(s.table.counters.misses),
        ),
        each("auster_table_renewals", "Leases that were renewed", &|s| {
            total(s.table.counters.renewals)
        }),
        each(
            "auster_table_evictions",
            "Entries that were taken out for others",
            &|s| total(s.table.counters.evictions),
        ),
        each(
            "auster_table_full",
            "Entries that the switch refused because its table was full",
            &|s| total(s.table.counters.table_full),
        ),
        each(
            "auster_table_no_room",
            "Paths that were not set because all entries are in use",
            &|s| total(s.table.counters.no_room),
        ),
    ]
}

fn of_vlans(vlans: &[VlanView]) -> Vec<Family> {
    let each = |name, help, value: &dyn Fn(&VlanView) -> Value| Family {
        name,
        help,
        samples: vlans
            .iter()
            .map(|view| {
                let id = ("vlan", view.vlan.to_string());
                let name = ("name", view.name.clone().unwrap_or_default());
                (vec![id, name], value(view))
            })
            .collect(),
    };
    let families = [
        each(
            "auster_vlan_hosts",
            "Hosts of a VLAN that are known",
            &|view| Value::Gauge(view.hosts as f64),
        ),
        each(
            "auster_vlan_packet_ins",
            "Packets of a VLAN that the controller has looked at",
            &|view| Value::Count(view.packet_ins),
        ),
    ];
    let families = families.into_iter();
    families
        .filter(|family| !family.samples.is_empty())
        .collect()
}

/// Decisions of switches about packets, as last read: without those of a switch that is away.
fn of_access(access: &AccessCounts) -> Vec<Family> {
    let rules = access.rules.iter().map(|(acl, rule, allows, count)| {
        let action = if *allows { "allow" } else { "deny" };
        let labels = vec![
            ("acl", acl.clone()),
            ("rule", rule.clone()),
            ("action", action.to_owned()),
        ];
        (labels, Value::Gauge(*count as f64))
    });
    let dropped = access.dropped.iter().map(|(reason, count)| {
        let labels = vec![("reason", (*reason).to_owned())];
        (labels, Value::Gauge(*count as f64))
    });
    let families = [
        Family {
            name: "auster_acl_packets",
            help: "Packets of the entries of each rule, as long as these are in the switches",
            samples: rules.collect(),
        },
        Family {
            name: "auster_access_dropped_packets",
            help: "Packets that guards and bindings have dropped, or that no rule has matched",
            samples: dropped.collect(),
        },
    ];
    let families = families.into_iter();
    families
        .filter(|family| !family.samples.is_empty())
        .collect()
}

fn of_intent(counts: Counts) -> Vec<Family> {
    let writes = [("done", counts.writes), ("refused", counts.writes_refused)];
    let sample = |(outcome, count): (&str, u64)| {
        let labels = vec![("outcome", outcome.to_owned())];
        (labels, Value::Count(count))
    };
    vec![
        gauge(
            "auster_intent_documents",
            "What the API was asked for",
            counts.documents as f64,
        ),
        gauge(
            "auster_intent_left_out",
            "Documents of it that cannot be read, or do not fit",
            counts.left_out as f64,
        ),
        gauge(
            "auster_intent_missing",
            "Documents in use that etcd lost when it was restored",
            counts.missing as f64,
        ),
        Family {
            name: "auster_intent_writes",
            help: "Requests of the API to change it",
            samples: writes.into_iter().map(sample).collect(),
        },
        count(
            "auster_intent_repaired",
            "Full readings of etcd that found what its watch had not reported",
            counts.repaired,
        ),
    ]
}

fn of_cluster(view: &ClusterView) -> Vec<Family> {
    let c = &view.counts;
    let peers = view.peers.iter().map(|(peer, is_heard)| {
        let labels = vec![("member", peer.to_string())];
        (labels, Value::Gauge(f64::from(u8::from(*is_heard))))
    });
    let role_requests = [
        ("sent", c.role_requests),
        ("stale", c.stale),
        ("unanswered", c.role_timeouts),
    ];
    let by_outcome = |outcomes: &[(&'static str, u64)]| {
        let sample = |(outcome, count): &(&'static str, u64)| {
            let labels = vec![("outcome", (*outcome).to_owned())];
            (labels, Value::Count(*count))
        };
        outcomes.iter().map(sample).collect()
    };
    vec![
        Family {
            name: "auster_cluster_member_heard",
            help: "Whether another member of the cluster is heard",
            samples: peers.collect(),
        },
        gauge(
            "auster_cluster_serves",
            "Whether this member serves the switches",
            view.served as f64,
        ),
        count(
            "auster_cluster_takeovers",
            "Times that this member took over from a silent one",
            c.takeovers,
        ),
        count(
            "auster_cluster_yields",
            "Times that this member yielded to another",
            c.yields,
        ),
        count(
            "auster_cluster_suspicions",
            "Times that another member was silent",
            c.suspicions,
        ),
        count(
            "auster_cluster_foreign_generations",
            "Times that a switch had seen a generation which is nobody's of the cluster",
            c.foreign,
        ),
        count(
            "auster_cluster_watch_repaired",
            "Full readings of etcd that found what its watch had not reported",
            c.watch_repaired,
        ),
        count(
            "auster_cluster_writes_refused",
            "Messages that a switch refused since another member is its master",
            c.refused,
        ),
        Family {
            name: "auster_cluster_role_requests",
            help: "Requests for roles, and of them those that were refused or not answered",
            samples: by_outcome(&role_requests),
        },
        Family {
            name: "auster_cluster_etcd_requests",
            help: "Requests to etcd, and of them those without an answer in time",
            samples: by_outcome(&[("sent", c.store_requests), ("unanswered", c.store_timeouts)]),
        },
        count(
            "auster_cluster_messages_passed_over",
            "Messages of switches that another member serves",
            view.passed_over,
        ),
        count(
            "auster_cluster_packets_handed_over",
            "Packets of switches given to the member that has become their master",
            view.handed_over,
        ),
        count(
            "auster_cluster_packets_dropped",
            "Packets that could not be given to the next member, beyond 300 a second, or too late",
            view.packets_dropped,
        ),
        gauge(
            "auster_cluster_copy_whole",
            "Whether this member stands by with all hosts and links of the one that serves",
            f64::from(u8::from(view.copy.is_whole)),
        ),
        Family {
            name: "auster_cluster_copy_records",
            help: "Hosts and links that another member said, taken over or passed over",
            samples: by_outcome(&[
                ("learned", view.copy.learned),
                ("passed_over", view.copy.passed_over),
            ]),
        },
    ]
}

fn of_controller(answer: &Answer) -> Vec<Family> {
    let (c, t) = (&answer.counters, &answer.timeouts);
    let dropped = [
        ("no_port", c.packet_ins_no_port),
        ("truncated", c.packet_ins_truncated),
        ("hold_full", c.packet_ins_hold_full),
        ("busy", c.packet_ins_shed_busy),
        ("no_sender", c.packet_ins_no_sender),
        ("contested", c.packet_ins_contested),
        ("sender_forged", c.senders_forged),
        ("address_claimed", c.address_claims_dropped),
        ("host_table_full", c.packet_ins_host_table_full),
        ("broadcast_on_link", c.packet_ins_broadcast_on_link),
        ("claimed", c.packet_ins_claimed),
        ("vlan", c.packets_vlan_refused),
        ("bond_closed", c.packets_bond_closed),
        ("lacp", c.lacp_refused),
        ("dhcp", c.dhcp_refused),
        ("membership", c.memberships_refused),
        ("unrouted", c.packets_unrouted),
        ("flood_limited", c.flood_limited),
        ("flood_limited_shared", c.flood_limited_shared),
        ("flood_echo", c.flood_echoes),
        ("question_repeated", c.questions_repeated),
        ("link_local", c.packet_ins_link_local),
        ("detour_limited", c.packet_ins_detour_limited),
        ("half_way_limited", c.packet_ins_half_way_limited),
        ("unreachable", c.unreachable),
        ("no_way", c.packets_no_way),
        ("forbidden", c.packets_forbidden),
    ];
    let lldp = [
        ("sent", c.lldp_sent),
        ("accepted", c.lldp_accepted),
        ("foreign", c.lldp_foreign),
        ("refused", c.lldp_refused),
        ("late", c.lldp_late),
        ("limited", c.lldp_limited),
    ];
    let seconds = |quantile: &str, of: Option<Duration>| {
        let labels = vec![("quantile", quantile.to_owned())];
        Some((labels, Value::Gauge(of?.as_secs_f64())))
    };
    let h = &answer.host_counters;
    let forgotten = [
        ("aged", h.aged),
        ("evicted", h.evicted),
        ("addresses_evicted", h.details_evicted),
        ("addresses_refused", h.details_refused),
    ];
    let refused = [
        ("table_full", c.path_table_full),
        ("over_share", c.paths_over_share),
        ("limited", c.paths_limited),
    ];
    let by_reason = |samples: &[(&str, u64)]| {
        let each = samples.iter().map(|(reason, value)| {
            let labels = vec![("reason", (*reason).to_owned())];
            (labels, Value::Count(*value))
        });
        each.collect()
    };
    let bundles = [
        ("committed", c.bundles_committed),
        ("refused", c.bundles_refused),
    ];
    let delays = [seconds("0.5", t.delay_p50), seconds("0.99", t.delay_p99)];
    vec![
        gauge(
            "auster_hosts",
            "Hosts whose place is known",
            answer.hosts as f64,
        ),
        Family {
            name: "auster_hosts_forgotten",
            help: "Hosts, or their IP addresses, that were forgotten or refused, and why",
            samples: by_reason(&forgotten),
        },
        gauge(
            "auster_paths",
            "Pairs of hosts that have a path of their own",
            answer.paths as f64,
        ),
        Family {
            name: "auster_paths_refused",
            help: "Paths that were not set, and why",
            samples: by_reason(&refused),
        },
        gauge(
            "auster_links",
            "Links between switches, each way",
            answer.links as f64,
        ),
        count(
            "auster_packet_ins",
            "Packet-ins that the controller has looked at",
            c.packet_ins,
        ),
        Family {
            name: "auster_packets_dropped",
            help: "Packets that went no further, and why",
            samples: dropped
                .map(|(reason, value)| (vec![("reason", reason.to_owned())], Value::Count(value)))
                .to_vec(),
        },
        count(
            "auster_packets_flooded",
            "Packets sent to all hosts",
            c.flooded,
        ),
        count(
            "auster_packets_flooded_by_tree",
            "Those of them that went along a tree of switches",
            c.flooded_by_tree,
        ),
        count(
            "auster_flood_packet_outs",
            "Packet-outs that they cost",
            c.flood_packet_outs,
        ),
        count(
            "auster_packets_routed",
            "Packets between VLANs that the controller has sent on",
            c.packets_routed,
        ),
        gauge(
            "auster_hosts_bound_by_dhcp",
            "Hosts that their port is bound to, as they have an address by DHCP",
            answer.bound_by_dhcp as f64,
        ),
        gauge(
            "auster_routed_entries",
            "Entries by which switches route between VLANs",
            answer.routed as f64,
        ),
        count(
            "auster_icmp_limited",
            "Packets that did not arrive, and whose sender was not informed for its port's budget",
            c.icmp_limited,
        ),
        count(
            "auster_questions_answered",
            "Questions for addresses that the controller has answered itself",
            c.questions_answered,
        ),
        Family {
            name: "auster_lldp",
            help: "LLDP frames that were sent, and what became of those that came in",
            samples: lldp
                .map(|(result, value)| (vec![("result", result.to_owned())], Value::Count(value)))
                .to_vec(),
        },
        count(
            "auster_alarms_damped",
            "Alarms not raised: one of the kind was in the same minute, at the same port",
            c.alarms_damped,
        ),
        count("auster_flow_mods", "Flow-mods that were sent", c.flow_mods),
        Family {
            name: "auster_bundles",
            help: "Changes of a switch that were to take effect at once, and whether they did",
            samples: bundles
                .map(|(result, value)| (vec![("result", result.to_owned())], Value::Count(value)))
                .to_vec(),
        },
        count(
            "auster_packet_outs",
            "Packet-outs that were sent",
            c.packet_outs,
        ),
        count(
            "auster_paths_installed",
            "Paths that were set",
            c.paths_installed,
        ),
        count(
            "auster_paths_rerouted",
            "Paths that have moved",
            c.paths_rerouted,
        ),
        count(
            "auster_paths_put_off",
            "Paths that were not set because a switch had too much to confirm",
            c.paths_put_off,
        ),
        count(
            "auster_stages_unconfirmed",
            "Stages of changes that went on although a switch had not confirmed them",
            c.stages_unconfirmed,
        ),
        count(
            "auster_resolutions_timed_out",
            "Answers for an address that were sent on before all entries were confirmed",
            c.resolutions_timed_out,
        ),
        count(
            "auster_of_errors_received",
            "Errors that switches have sent",
            c.errors_received,
        ),
        count(
            "auster_rows_unreadable",
            "Rows of flow statistics that could not be read",
            c.rows_unreadable,
        ),
        count(
            "auster_fabric_parts_wrong",
            "Groups and entries of the fabric that switches held wrongly when they connected",
            c.fabric_parts_wrong,
        ),
        count(
            "auster_faults_caught",
            "Faults of auster that ended the state of one switch",
            c.panics,
        ),
        gauge("auster_leases", "Leases of all switches", t.leases as f64),
        gauge(
            "auster_load_ratio",
            "The controller's load, 1 is all of a core",
            t.load_percent / 100.0,
        ),
        gauge(
            "auster_timeout_stretch",
            "Timeouts are longer by this factor because of the load",
            f64::from(t.stretch),
        ),
        durations(
            "auster_path_setup_delay_seconds",
            "From when a path was asked for to the barrier after its first entry, of all that were \
             measured",
            [(Vec::new(), t.delays_all)],
        ),
        Family {
            name: "auster_path_setup_seconds",
            help: "From when a path was asked for to the barrier after its first entry, of the \
                   last 1024",
            samples: delays.into_iter().flatten().collect(),
        },
    ]
}

fn refused(listeners: &[(String, Arc<Refusals>)]) -> Family {
    let each = |(listener, refusals): &(String, Arc<Refusals>)| {
        Refusal::ALL.map(|refusal| {
            let labels = vec![
                ("listener", listener.clone()),
                ("reason", refusal.name().to_owned()),
            ];
            (labels, Value::Count(refusals.get(refusal)))
        })
    };
    Family {
        name: "auster_connections_refused",
        help: "Connections that a listener has closed at once",
        samples: listeners.iter().flat_map(each).collect(),
    }
}

fn labels(dpid: String) -> Labels {
    vec![("dp_id", dpid)]
}
