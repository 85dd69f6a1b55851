//! Events, for people (a line each) or programs (a JSON document a line each) on standard output,
//! and for the readers of the API. Only the printed lines of a kind are limited: API readers
//! receive all events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clock::Instant;
use control::access::Access;
use control::access::learned::LEARNED_MAX;
use control::cluster::{ClusterEvent, MemberId};
use control::controller::{Alarm, Drained, Event, Location, Setting};
use control::session::{CloseReason, version_names};
use control::vlan::{VlanId, Vlans};
use driver::databases::{DatapathView, Views};
use driver::{Ended, Notice};
use net::clock::Clock;
use net::method::Method;
use net::transport::PeerIdentity;
use openflow::{DatapathId, Version};
use sched::PolicyMap;
use serde_json::{Value, json};

use api::feed::Feed;
use api::report::Report;
use cli::limits::{self, Lines};
use cli::output::{self, say};
use cluster::documents::too_old;
use cluster::intent::IntentEvent;
use config::api::ApiAddress;
use config::settings::SPOKEN;

pub struct Printer {
    json: bool,
    clock: Clock,
    lines: Lines<String>,
    feed: Feed,
    /// Events that were lost before they reached this printer.
    lost: u64,
    /// The name of this member of a cluster.
    member: Option<String>,
    /// The last report about each datapath's database.
    databases: BTreeMap<DatapathId, Value>,
}

impl Printer {
    pub fn new(json: bool, clock: Clock, feed: Feed) -> Printer {
        if json {
            output::count_drops_as(lines_dropped);
        }
        Printer {
            json,
            clock,
            lines: Lines::default(),
            feed,
            lost: 0,
            member: None,
            databases: BTreeMap::new(),
        }
    }

    /// The time at which [`Printer::handle_timeout`] has a report.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.lines.poll_timeout()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.tell_left_out(now);
    }

    /// Prints the remaining reports at the end.
    pub fn finish(&mut self) {
        if let Some(due) = self.poll_timeout() {
            self.tell_left_out(due + limits::REPORT_EVERY_MAX);
        }
    }

    fn tell_left_out(&mut self, now: Instant) {
        while let Some((kind, count)) = self.lines.poll_left_out(now) {
            if kind == HOST_LEARNED {
                let document = with_time(hosts_learned(count));
                self.write(&format!("... and {count} more hosts learned"), &document);
                continue;
            }
            self.write(
                &format!("... and {count} more of this kind: {kind}"),
                &with_time(json!({"event": "left_out", "kind": kind, "count": count})),
            );
        }
    }

    /// Prints an event that peers can cause at any rate.
    fn print_limited(&mut self, kind: &str, text: &str, document: Value) {
        let now = self.clock.now();
        self.tell_left_out(now);
        let document = with_time(document);
        self.feed.push(&document);
        let peer = peer_of(&document);
        if self.lines.take(now, &kind.to_owned(), peer) {
            self.write(text, &document);
        }
    }

    /// Reports events that were lost before they reached this printer, `lost` so far. Readers must
    /// fetch the state again.
    pub fn lost(&mut self, lost: u64) {
        let count = lost.saturating_sub(self.lost);
        self.lost = lost;
        if count > 0 {
            let document = json!({"event": "reset", "reason": "lost", "count": count});
            self.print_limited("reset", &format!("{count} events were lost"), document);
        }
    }

    pub fn listening(&mut self, method: &Method) {
        let method = method.to_string();
        self.print(
            &format!("listening on {method}"),
            json!({"event": "listening", "method": method}),
        );
    }

    pub fn listening_for_databases(&mut self, method: &Method) {
        let method = method.to_string();
        self.print(
            &format!("databases may come to {method}"),
            json!({"event": "listening_for_databases", "method": method}),
        );
    }

    pub fn serving(&mut self, at: &ApiAddress, is_tls: bool) {
        let scheme = if is_tls { "https" } else { "http" };
        let text = match at {
            ApiAddress::Ip(at) => format!("API on {scheme}://{at}/openapi.json"),
            ApiAddress::Unix(path) => format!("API on unix:{}", path.display()),
        };
        self.print(
            &text,
            json!({"event": "serving", "address": at.to_string()}),
        );
    }

    pub fn tokens_used(&mut self, file: &str, count: usize) {
        self.print(
            &format!("tokens of {file} in use: {count}"),
            json!({"event": "tokens", "file": file, "count": count}),
        );
    }

    pub fn qos_used(&mut self, file: &str, qos: &control::qos::Qos) {
        let counts = [
            (qos.ports.len(), "ports with queues"),
            (qos.services.len(), "services"),
            (qos.policies.len(), "policies"),
            (qos.circuits.len(), "circuits"),
        ];
        let counts = counts.map(|(count, what)| format!("{count} {what}"));
        self.print(
            &format!("qos of {file} in use: {}", counts.join(", ")),
            json!({
                "event": "qos",
                "file": file,
                "ports": qos.ports.len(),
                "services": qos.services.len(),
                "policies": qos.policies.len(),
                "circuits": qos.circuits.len(),
            }),
        );
    }

    /// Prints the changes of databases since the last report.
    pub fn databases(&mut self, views: &Views) {
        let said: BTreeMap<DatapathId, Value> = views
            .iter()
            .map(|(dpid, view)| (*dpid, describe_database(*dpid, view)))
            .collect();
        let before = std::mem::replace(&mut self.databases, said.clone());
        for (dpid, _) in before.iter().filter(|(dpid, _)| !said.contains_key(*dpid)) {
            let gone = json!({"event": "database_down", "dpid": dpid.to_string()});
            let text = format!("database of switch {dpid} is gone");
            self.print_limited("database_down", &text, gone);
        }
        for (dpid, document) in said {
            if before.get(&dpid) == Some(&document) {
                continue;
            }
            let view = &views[&dpid];
            let limit = view.flow_limit.map(|limit| format!(", {limit} entries"));
            let text = format!(
                "database of switch {dpid}: {} of {}, datapath {}{}",
                view.bridge,
                view.database,
                view.datapath_type,
                limit.unwrap_or_default()
            );
            self.print_limited("database_up", &text, document);
        }
    }

    pub fn policy_used(&mut self, argument: &str, map: &PolicyMap) {
        let (generation, digest) = (map.generation, map.digest().to_string());
        self.print(
            &format!("policy {argument} in use: generation {generation}, sha256 {digest}"),
            json!({"event": "policy", "map": argument, "generation": generation, "sha256": digest}),
        );
    }

    pub fn drained(&mut self, drained: &Drained) {
        let switches = drained.switches.iter().map(ToString::to_string);
        let links = drained.links.iter().map(ToString::to_string);
        let all: Vec<String> = switches.chain(links).collect();
        let text = match &all[..] {
            [] => "drain nothing".to_owned(),
            all => format!("drain {}", all.join(", ")),
        };
        self.print(&text, json!({"event": "drain", "places": all}));
    }

    pub fn topology_used(&mut self, file: &str) {
        self.print(
            &format!("topology {file} in use"),
            json!({"event": "topology", "file": file}),
        );
    }

    pub fn bfd_used(&mut self, file: &str, interval: Option<Duration>) {
        let interval_ms = interval.map(|interval| interval.as_millis());
        let text = match interval_ms {
            Some(ms) => format!("BFD of {file} in use: every {ms} ms"),
            None => format!("BFD of {file} in use: off"),
        };
        let ms = interval_ms.and_then(|ms| u64::try_from(ms).ok());
        self.print(
            &text,
            json!({"event": "bfd", "file": file, "interval_ms": ms}),
        );
    }

    /// Reports the VLANs of `source`, a file or all databases, and the ports that have `changed`.
    pub fn vlans(&mut self, source: &str, vlans: &Vlans, changed: &BTreeSet<Location>) {
        let (ids, ports) = (vlans.names.len(), vlans.ports.len());
        let changed = changed.len();
        self.print_limited(
            "vlans",
            &format!("vlans of {source}: VLANs {ids}, ports {ports}, changed ports {changed}"),
            json!({
                "event": "vlans",
                "source": source,
                "vlans": ids,
                "ports": ports,
                "changed": changed,
            }),
        );
    }

    pub fn access_used(&mut self, file: &str, access: &Access) {
        let (lists, bound) = (access.acls.len(), access.bindings.len());
        let rules: usize = access.acls.iter().map(|acl| acl.rules.len()).sum();
        self.print(
            &format!("access of {file} in use: lists {lists}, rules {rules}, bound ports {bound}"),
            json!({
                "event": "access",
                "file": file,
                "lists": lists,
                "rules": rules,
                "bound": bound,
            }),
        );
    }

    /// Reports the number of VLANs with a gateway and of static routes in `file`.
    pub fn gateways(&mut self, file: &str, vlans: usize, routes: usize) {
        self.print(
            &format!("gateways of {file}: VLANs {vlans}, routes {routes}"),
            json!({"event": "gateways", "file": file, "vlans": vlans, "routes": routes}),
        );
    }

    /// Reports that changed certificate files are unusable.
    pub fn certificate_refused(&mut self, file: &str, problems: &str) {
        self.print(
            &format!("certificate {file} refused, the one in use stays: {problems}"),
            json!({"event": "certificate_refused", "file": file, "detail": problems}),
        );
    }

    pub fn certificate_used(&mut self, file: &str) {
        self.print(
            &format!("certificate {file} in use"),
            json!({"event": "certificate", "file": file}),
        );
    }

    /// Reports the outcome of a reload.
    pub fn reloaded(&mut self, file: &str, report: &Report) {
        let event = match report.applied {
            true => "reloaded",
            false => "reload_refused",
        };
        let mut document = json!({"event": event, "file": file});
        let report_of = serde_json::to_value(report).unwrap_or_default();
        if let (Some(all), Value::Object(report_of)) = (document.as_object_mut(), report_of) {
            all.extend(report_of);
        }
        self.print(&format!("reload of {file}: {}", report.line()), document);
    }

    /// Prints events as JSON lines from now on, or as text.
    pub fn set_json(&mut self, json: bool) {
        if json {
            output::count_drops_as(lines_dropped);
        }
        self.json = json;
    }

    pub fn timeouts_used(&mut self, file: &str, policy: &str) {
        self.print(
            &format!("timeouts of {file} in use: policy {policy}"),
            json!({"event": "timeouts", "file": file, "policy": policy}),
        );
    }

    /// Records that this controller is now a member of a cluster.
    pub fn joined(&mut self, name: &MemberId, heard_at: &str) {
        self.member = Some(name.to_string());
        self.print(
            &format!("member {name} of the cluster: hears the others on {heard_at}"),
            json!({"event": "member", "name": name.as_str(), "listen": heard_at}),
        );
    }

    /// Prints an event of the cluster's members.
    pub fn cluster(&mut self, event: &ClusterEvent) {
        let (kind, text, about) = describe_cluster(event);
        let event_kind = format!("cluster_{kind}");
        let mut document = json!({"event": event_kind, "member": self.member, "about": about});
        if let ClusterEvent::StoreLost { why } = event {
            document["reason"] = json!(why);
        }
        self.print_limited(kind, &format!("cluster: {text}"), document);
    }

    /// Prints an event of the API's documents: some are not in use, or stay though etcd has lost
    /// them.
    pub fn intent(&mut self, event: &IntentEvent) {
        let few = |keys: &[String]| {
            let first = keys
                .iter()
                .take(3)
                .map(|key| key.escape_debug().to_string());
            let first = first.collect::<Vec<_>>().join(", ");
            match keys.len().saturating_sub(3) {
                0 => first,
                more => format!("{first} and {more} more"),
            }
        };
        let (kind, text, about) = match event {
            IntentEvent::LeftOut { key, why } => {
                let text = format!("{key} is left out: {why}");
                ("left_out", text, json!({"key": key, "reason": why}))
            }
            IntentEvent::Missing(keys) => {
                let text = format!(
                    "etcd was restored without {}; it stays in use for ten minutes: auster state \
                     export and import put it back, or delete it",
                    few(keys)
                );
                (
                    "missing",
                    text,
                    json!({"count": keys.len(), "keys": few(keys)}),
                )
            }
            IntentEvent::Dropped(keys) => {
                let text = format!(
                    "no longer in use, as etcd was restored without: {}",
                    few(keys)
                );
                (
                    "dropped",
                    text,
                    json!({"count": keys.len(), "keys": few(keys)}),
                )
            }
            IntentEvent::Layout(0) => {
                let text = "the places on the map were deleted".to_owned();
                ("layout", text, json!({"count": 0}))
            }
            IntentEvent::Layout(count) => {
                let text = format!("the places of {count} switches on the map were saved");
                ("layout", text, json!({"count": count}))
            }
        };
        let kind = format!("intent_{kind}");
        let document = json!({"event": kind, "about": about});
        self.print_limited(&kind, &format!("intent: {text}"), document);
    }

    pub fn notice(&mut self, now: Instant, notice: &Notice) {
        match notice {
            Notice::HostsLearned(count) => {
                self.feed.push(&with_time(hosts_learned(*count)));
                self.lines.leave_out(now, &HOST_LEARNED.to_owned(), *count);
            }
            Notice::Event(event) => {
                if let Some((text, json)) = describe(event) {
                    self.print_limited(&kind(event, &json), &text, json);
                }
            }
            Notice::Up {
                datapath_id,
                version,
                peer,
                was_aside,
                ..
            } => {
                let via = over(peer);
                let now = if *was_aside { "; serving it now" } else { "" };
                self.print_limited(
                    "switch_up",
                    &format!("switch {datapath_id} up: OpenFlow {version} over {via}{now}"),
                    json!({
                        "event": "switch_up",
                        "dpid": datapath_id.to_string(),
                        "version": version.to_string(),
                        "address": peer.address,
                        "transport": peer.transport.name(),
                        "stood_by": was_aside,
                    }),
                );
            }
            Notice::Aside { datapath_id, .. } => self.print_limited(
                "standing_by",
                &format!("switch {datapath_id}: another controller serves it; standing by"),
                json!({"event": "standing_by", "dpid": datapath_id.to_string()}),
            ),
            Notice::Down {
                datapath_id: Some(dpid),
                was_up: true,
                reason,
                ..
            } => self.print_limited(
                "switch_down",
                &format!("switch {dpid} down: {reason}"),
                json!({
                    "event": "switch_down",
                    "dpid": dpid.to_string(),
                    "reason": reason.name(),
                    "detail": reason.to_string(),
                }),
            ),
            Notice::Down { peer, reason, .. } => self.never_up(peer, reason),
        }
    }

    /// Reports a connection that never came up. A public port sees many silent connections; only
    /// refused OpenFlow peers are worth a line.
    fn never_up(&mut self, peer: &PeerIdentity, reason: &Ended) {
        if !reason.is_refusal() {
            tracing::info!(peer = peer.address, "closed before it was up: {reason}");
            return;
        }
        let mut document = json!({
            "event": "refused",
            "address": peer.address,
            "reason": reason.name(),
            "detail": reason.to_string(),
        });
        let mut hint = String::new();
        let is_in = |bitmap: u32, version: Version| bitmap & 1 << version.wire() != 0;
        if let Ended::Session(CloseReason::VersionMismatch {
            theirs,
            offered,
            ours,
        }) = reason
        {
            let theirs = offered.unwrap_or(1u32.checked_shl((*theirs).into()).unwrap_or(0));
            document["versions"] = json!(version_names(theirs));
            document["versions_of_auster"] = json!(version_names(*ours));
            let spoken = SPOKEN.into_iter();
            if spoken.clone().any(|version| is_in(theirs, version)) {
                let all = spoken.filter(|version| is_in(theirs | *ours, *version));
                let all: Vec<String> = all.map(|version| version.to_string()).collect();
                hint = format!("; --versions {} offers it too", all.join(","));
            }
        }
        let line = format!("refused {}: {reason}{hint}", peer.address);
        self.print_limited("refused", &line, document);
    }

    fn print(&mut self, text: &str, document: Value) {
        let document = with_time(document);
        self.feed.push(&document);
        self.write(text, &document);
    }

    /// Prints the text or the document. Ignores a closed standard output: the network is worth more
    /// than the log.
    fn write(&self, text: &str, document: &Value) {
        let priority = match output::is_journal_of_answers() && is_warning(document) {
            true => output::priority("WARN"),
            false => "",
        };
        match self.json {
            true => say!("{priority}{document}"),
            false => say!("{priority}{text}"),
        }
    }
}

/// The kind of an event, its text, and the member, switch or epoch that it is about.
fn describe_cluster(event: &ClusterEvent) -> (&'static str, String, String) {
    match event {
        ClusterEvent::Suspected(member) => (
            "suspected",
            format!("member {member} is silent"),
            member.to_string(),
        ),
        ClusterEvent::Confirmed(member) => (
            "confirmed",
            format!("member {member} is silent for others too"),
            member.to_string(),
        ),
        ClusterEvent::Heard(member) => (
            "heard",
            format!("member {member} is heard"),
            member.to_string(),
        ),
        ClusterEvent::Deaf { hears, members } => {
            let names = names(hears);
            let text = format!(
                "this member hears {names} of {members} others, too few to take over: can they \
                 dial its address?"
            );
            ("deaf", text, names)
        }
        ClusterEvent::HearsAgain => (
            "hears_again",
            "this member hears enough of the others again".to_owned(),
            String::new(),
        ),
        ClusterEvent::TookOver { from, rank, .. } => (
            "took_over",
            format!("took over from member {from}, at place {rank} of the order"),
            from.to_string(),
        ),
        ClusterEvent::Holds { .. } => (
            "holds",
            "this member serves the switches".to_owned(),
            String::new(),
        ),
        ClusterEvent::Yielded { to, .. } => {
            let to = to.as_ref().map(ToString::to_string);
            let to = to.unwrap_or_else(|| "nobody that is known".to_owned());
            ("yielded", format!("the switches are with {to} now"), to)
        }
        ClusterEvent::Assigned { owner, .. } => (
            "assigned",
            format!("the switches are given to member {owner}"),
            owner.to_string(),
        ),
        ClusterEvent::Restored { from, .. } => (
            "restored",
            format!(
                "etcd is behind revision {}, which it had before, or is another one: was it \
                 restored from a backup? Raising the epoch",
                from.revision
            ),
            from.revision.to_string(),
        ),
        ClusterEvent::Foreign { dpid, generation } => (
            "foreign",
            format!(
                "switch {dpid} has seen generation {generation}, which is nobody's of this \
                 cluster: does another controller claim it?"
            ),
            dpid.to_string(),
        ),
        ClusterEvent::Exhausted { dpid, generation } => (
            "exhausted",
            format!(
                "switch {dpid} has seen generation {generation}, which is too great to exceed: \
                 restart it"
            ),
            dpid.to_string(),
        ),
        ClusterEvent::Epoch(epoch) => ("epoch", format!("epoch {epoch}"), epoch.to_string()),
        ClusterEvent::Schema { in_use, reads } => (
            "schema",
            match in_use > reads {
                true => format!("serving nothing: {}", too_old(*in_use, *reads)),
                false => format!("the documents in etcd have schema {in_use} now"),
            },
            in_use.to_string(),
        ),
        ClusterEvent::StoreLost { why } => (
            "store_lost",
            format!("etcd does not answer: {why}; switches are served and taken over as before"),
            "etcd".to_owned(),
        ),
        ClusterEvent::StoreBack => ("store_back", "etcd answers".to_owned(), "etcd".to_owned()),
        ClusterEvent::StoreFull => (
            "store_full",
            "etcd's database is full: the API changes nothing, and switches are served and taken \
             over as before: compact and defragment it, or raise its quota, and disarm the alarm"
                .to_owned(),
            "etcd".to_owned(),
        ),
        ClusterEvent::StoreRoom => (
            "store_room",
            "etcd's database has room again".to_owned(),
            "etcd".to_owned(),
        ),
    }
}

fn names(members: &[MemberId]) -> String {
    let names: Vec<&str> = members.iter().map(MemberId::as_str).collect();
    match names.is_empty() {
        true => "nobody".to_owned(),
        false => names.join(", "),
    }
}

/// Learned hosts that are not reported one by one.
fn hosts_learned(count: u64) -> Value {
    json!({"event": "hosts_learned", "count": count})
}

fn with_time(mut document: Value) -> Value {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    document["time_s"] = json!(time.map_or(0.0, |t| t.as_secs_f64()));
    document
}

fn lines_dropped(count: u64) -> String {
    let document = with_time(json!({"event": "lines_dropped", "count": count}));
    format!("{document}\n")
}

const HOST_LEARNED: &str = "host_learned";

/// The key of an event's budget: its name, and for an alarm also its subject, so that one alarm
/// hides no other.
fn kind(event: &Event, document: &Value) -> String {
    let name = document["event"].as_str().unwrap_or_default();
    let Event::Alarm(alarm) = event else {
        return name.to_owned();
    };
    let variant = format!("{alarm:?}");
    let end = variant.find([' ', '(']).unwrap_or(variant.len());
    format!("{name} {}", &variant[..end])
}

/// Whether somebody should look at an event.
fn is_warning(document: &Value) -> bool {
    let event = document["event"].as_str().unwrap_or_default();
    let kinds = ["alarm", "cluster_deaf", "switch_lost"];
    kinds.contains(&event) || event.ends_with("refused")
}

/// The peer that has caused an event: a switch, or the address of a connection without its port.
fn peer_of(document: &Value) -> Option<&str> {
    let text = |field: &str| document[field].as_str();
    let of_port = |at: &'static str| Some(text(at)?.split(':').next().unwrap_or_default());
    let address = || Some(text("address")?.rsplit_once(':').map_or("", |(at, _)| at));
    let dpid = text("dpid").or_else(|| of_port("port"));
    dpid.or_else(|| of_port("from")).or_else(address)
}

fn over(peer: &PeerIdentity) -> String {
    match &peer.tls {
        Some(tls) => format!("{} ({})", peer.address, tls.version),
        None => peer.address.clone(),
    }
}

fn describe_database(dpid: DatapathId, view: &DatapathView) -> Value {
    json!({
        "event": "database_up",
        "dpid": dpid.to_string(),
        "address": view.database,
        "bridge": view.bridge,
        "datapath_type": view.datapath_type,
        "flow_limit": view.flow_limit,
    })
}

/// Describes an event; `None` if [`Notice::Up`] or [`Notice::Down`] already reports it.
fn describe(event: &Event) -> Option<(String, Value)> {
    Some(match event {
        Event::SwitchUp { .. } | Event::SwitchDown { .. } => return None,
        Event::SwitchLost { dpid } => (
            format!("switch {dpid} lost: its links and paths are gone"),
            json!({"event": "switch_lost", "dpid": dpid.to_string()}),
        ),
        Event::PortUp(at) => (
            format!("port {at} up"),
            json!({"event": "port_up", "port": at.to_string()}),
        ),
        Event::PortDown(at) => (
            format!("port {at} down"),
            json!({"event": "port_down", "port": at.to_string()}),
        ),
        Event::LinkUp { from, to } => (
            format!("link {from} > {to} up"),
            json!({"event": "link_up", "from": from.to_string(), "to": to.to_string()}),
        ),
        Event::LinkDown { from, to } => (
            format!("link {from} > {to} down"),
            json!({"event": "link_down", "from": from.to_string(), "to": to.to_string()}),
        ),
        Event::HostLearned { mac, vlan, at } => (
            format!("host {mac}{} at {at}", in_vlan(*vlan)),
            json!({
                "event": "host_learned",
                "mac": mac.to_string(),
                "vlan": vlan.number(),
                "port": at.to_string(),
            }),
        ),
        Event::HostMoved {
            mac,
            vlan,
            from,
            to,
        } => (
            format!("host {mac}{} moved from {from} to {to}", in_vlan(*vlan)),
            json!({
                "event": "host_moved",
                "mac": mac.to_string(),
                "vlan": vlan.number(),
                "from": from.to_string(),
                "to": to.to_string(),
            }),
        ),
        Event::AddressMoved { ip, from, to } => (
            format!("{ip} is host {to}'s now and was host {from}'s"),
            json!({
                "event": "address_moved",
                "ip": ip.to_string(),
                "from": from.to_string(),
                "to": to.to_string(),
            }),
        ),
        Event::BondChanged { name, at, ports } => {
            let numbers: Vec<String> = ports.iter().map(|port| port.0.to_string()).collect();
            let text = match numbers.is_empty() {
                true => format!("bond {name} at {at} down: no port carries packets"),
                false => format!("bond {name} at {at}: ports {}", numbers.join(", ")),
            };
            let ports: Vec<u32> = ports.iter().map(|port| port.0).collect();
            let (event, at) = ("bond", at.to_string());
            (
                text,
                json!({"event": event, "bond": name, "port": at, "ports": ports}),
            )
        }
        Event::PortOpened(at) => (
            format!("port {at} is open again: its guard closes it at the next BPDU"),
            json!({"event": "port_opened", "port": at.to_string()}),
        ),
        Event::PolicyShared { dpid, generation } => (
            format!("switch {dpid}: the relay beside it has policy map generation {generation}"),
            json!({
                "event": "policy_shared",
                "dpid": dpid.to_string(),
                "generation": generation,
            }),
        ),
        Event::PolicyAlone { dpid, error } => (
            format!("switch {dpid} takes no policy map over OpenFlow ({error})"),
            json!({
                "event": "policy_alone",
                "dpid": dpid.to_string(),
                "error": error.to_string(),
            }),
        ),
        Event::Reconciled {
            dpid,
            kept,
            added,
            deleted,
            unreadable,
            is_unread,
        } => {
            let mut text =
                format!("switch {dpid} reconciled: {kept} kept, {added} added, {deleted} deleted");
            if *unreadable > 0 {
                text += &format!(", {unreadable} unreadable");
            }
            if *is_unread {
                text += "; it did not say what it holds, so stale entries may be left";
            }
            let json = json!({
                "event": "reconciled",
                "dpid": dpid.to_string(),
                "kept": kept,
                "added": added,
                "deleted": deleted,
                "unreadable": unreadable,
                "read_back": !is_unread,
            });
            (text, json)
        }
        Event::TopologyDiffers(difference) => (
            format!("topology: {difference}"),
            json!({"event": "topology_differs", "detail": difference.to_string()}),
        ),
        Event::BundleRefused {
            dpid,
            error,
            takes_others,
        } => {
            let error = error.map(|error| error.to_string());
            let why = error.as_deref().unwrap_or("no answer");
            let what = match takes_others {
                true => "has refused a bundle",
                false => "takes no bundles",
            };
            (
                format!("switch {dpid} {what} ({why}): it gets the messages one by one"),
                json!({
                    "event": "bundle_refused",
                    "dpid": dpid.to_string(),
                    "error": error,
                    "takes_others": takes_others,
                }),
            )
        }
        Event::FlowMended { dpid, name } => (
            format!("static entry {name} is set again: somebody else has changed switch {dpid}"),
            json!({
                "event": "flow_mended",
                "dpid": dpid.to_string(),
                "owner": name.owner,
                "name": name.name,
            }),
        ),
        Event::FlowEnded { dpid, name } => (
            format!("static entry {name} of switch {dpid} has ended"),
            json!({
                "event": "flow_ended",
                "dpid": dpid.to_string(),
                "owner": name.owner,
                "name": name.name,
            }),
        ),
        Event::GuestConnected { dpid, guest } => (
            format!("guest {guest} is connected for switch {dpid}"),
            json!({
                "event": "guest_connected",
                "guest": guest.as_ref(),
                "dpid": dpid.to_string(),
            }),
        ),
        Event::GuestDisconnected { dpid, guest, why } => (
            format!("guest {guest} is no longer connected for switch {dpid}: {why}"),
            json!({
                "event": "guest_disconnected",
                "guest": guest.as_ref(),
                "dpid": dpid.to_string(),
                "reason": why,
            }),
        ),
        Event::TopologyAgrees => (
            "topology: the network is as the file says".to_owned(),
            json!({"event": "topology_agrees"}),
        ),
        Event::NoWay { from, to, parts } => (
            format!(
                "there is no way through links from switch {from} to switch {to}: packets between \
                 the {parts} parts of the network are dropped"
            ),
            json!({
                "event": "no_way",
                "from": from.to_string(),
                "to": to.to_string(),
                "parts": parts,
            }),
        ),
        Event::NoWayMended => (
            "there is a way through links between all switches again".to_owned(),
            json!({"event": "no_way_mended"}),
        ),
        Event::Alarm(alarm) => {
            let text = describe_alarm(alarm);
            let json = json!({"event": "alarm", "detail": text});
            (format!("alarm: {text}"), json)
        }
    })
}

fn in_vlan(vlan: VlanId) -> String {
    match vlan.is_none() {
        true => String::new(),
        false => format!(" in VLAN {vlan}"),
    }
}

fn setting_name(setting: Setting) -> &'static str {
    match setting {
        Setting::Port => "a [[port]]",
        Setting::MirrorFrom => "from of a [[mirror]]",
        Setting::MirrorTo => "to of a [[mirror]]",
        Setting::Bond => "a [[bond]]",
        Setting::EdgePorts => "edge_ports",
    }
}

/// An alarm in words.
pub fn describe_alarm(alarm: &Alarm) -> String {
    match alarm {
        Alarm::DuplicateDatapath { dpid, connection } => {
            format!("connection {connection} claims to be {dpid}, which is connected already")
        }
        Alarm::LldpForged { at, why } => format!("forged LLDP at {at}: {why}"),
        Alarm::EdgeBecameLink { from, to, excess } => {
            let excess = excess.map_or(String::new(), |excess| {
                let ms = excess.as_secs_f64() * 1e3;
                format!("; LLDP takes at least {ms:.1} ms longer than the control paths")
            });
            format!("a port that had hosts is an end of the link {from} - {to} now{excess}")
        }
        Alarm::LinkNotStated { from, to } => {
            format!("link {from} - {to} is not in the topology, and links are enforced: not used")
        }
        Alarm::LinkNarrow { from, to } => format!(
            "link {from} - {to} drops frames of 1,500 bytes with the fabric's tag: the fabric does \
             not use it; raise its MTU by 4"
        ),
        Alarm::HostSpoofed { mac, home, at } => {
            format!("host {mac} is alive at {home} and claimed at {at}")
        }
        Alarm::HostMovesTooOften { mac } => format!("host {mac} moves too often"),
        Alarm::AddressClaimed {
            ip,
            owner,
            claimant,
            at,
        } => format!("{ip} is host {owner}'s and claimed by host {claimant} at {at}"),
        Alarm::GatewayClaimed {
            vlan,
            ip,
            claimant,
            at,
        } => {
            let ip = ip.map_or("Ethernet address".to_owned(), |ip| format!("address {ip}"));
            format!("host {claimant} at {at} claims the {ip} of the gateway of VLAN {vlan}")
        }
        Alarm::SenderForged { at, mac, said } => {
            format!("host {mac} at {at} sends ARP or neighbour discovery in the name of {said}")
        }
        Alarm::HostTableFull { at } => format!("too many hosts at {at}: its oldest are forgotten"),
        Alarm::HostAddressesFull { at } => {
            format!("too many hosts with IP addresses at {at}: those of its oldest are forgotten")
        }
        Alarm::BroadcastStorm { at } => {
            format!("broadcast storm or multicast stream at {at}: over its budget for 10 s")
        }
        Alarm::ForeignInfrastructure { dpid } => {
            format!("an entry of somebody else on {dpid} takes what should come to the controller")
        }
        Alarm::ForeignEntries {
            dpid,
            count,
            cookie,
            priority,
        } => format!(
            "entries of somebody else in table 0 of {dpid} take packets before auster's: {count}, \
             the first with priority {priority} and cookie {:#x}",
            cookie.0
        ),
        Alarm::FlowTableFull { dpid } => format!("the flow table of {dpid} is full"),
        Alarm::AccessRefused { dpid, error } => format!(
            "{dpid} refused an entry of access lists or bindings, and does not hold them: {error}"
        ),
        Alarm::FlowModRefused { dpid, error } => format!("{dpid} refused a flow-mod: {error}"),
        Alarm::PacketOutRefused { dpid, error } => {
            format!("{dpid} refused to send a packet of an application: {error}")
        }
        Alarm::FabricRefused {
            dpid,
            error: Some(error),
        } => format!("{dpid} is left out of the fabric, as it refused a part of it: {error}"),
        Alarm::FabricUnshared { dpid, error } => format!(
            "{dpid} uses the first of equal paths only, as it refused a group that shares them: \
             {error}"
        ),
        Alarm::TreeRefused { dpid, error } => format!(
            "{dpid} gets broadcasts from the controller, as it refused its part of a tree: {error}"
        ),
        Alarm::GuestUnserved {
            dpid,
            guest,
            version,
        } => format!(
            "guest {guest} is not shown {dpid}: it speaks OpenFlow {version}, in which packets do \
             not name the entry that has sent them up"
        ),
        Alarm::GuestTables {
            dpid,
            guest,
            there,
            stated,
        } => format!(
            "guest {guest} has {there} tables at {dpid}, where its configuration gives it \
             {stated}: the switch has no more; state `table` and `tables` that it has"
        ),
        Alarm::MulticastRefused { dpid, error } => format!(
            "{dpid} floods multicast, as it refused a group that copies to members: {error}"
        ),
        Alarm::FabricFull { dpid } => {
            format!("no label is left for {dpid}: paths from and to its hosts are set hop by hop")
        }
        Alarm::FabricRefused { dpid, error: None } => {
            format!("{dpid} is left out of the fabric, as it did not report its groups")
        }
        Alarm::BondOtherPartner { at, heard } => format!(
            "{at} hears {heard}, and the other ports of its bond another partner: it carries no \
             packets"
        ),
        Alarm::BondLoop { at } => {
            format!("{at} belongs to a bond and leads to another port of these switches: not used")
        }
        Alarm::BondUnsupported { at } => format!(
            "the bond at {at} carries no packets: its switch has no OpenFlow 1.3 or no part in the \
             fabric"
        ),
        Alarm::BondUnshared { dpid, error } => format!(
            "{dpid} uses one port of each bond at a time, as it refused a group that shares them: \
             {error}"
        ),
        Alarm::MirrorUnsupported { dpid } => format!(
            "{dpid} may lack copies of its mirrors, and does not close ports that get them: it has \
             no OpenFlow 1.3, no part in the fabric, or fewer than 12 tables"
        ),
        Alarm::PortMissing { at, setting } => format!(
            "{} names {at}, and the switch has no such port: it counts once there is one",
            setting_name(*setting)
        ),
        Alarm::PortIsLink {
            at,
            to,
            setting: setting @ (Setting::Port | Setting::MirrorFrom),
        } => format!(
            "{} names {at}, which leads to {to}: it is for ports of hosts, and does nothing there",
            setting_name(*setting)
        ),
        Alarm::PortIsLink { at, to, setting } => format!(
            "{name} names {at}, so the link to {to} is not used: take {at} out of {name}, unless a \
             host there hands on LLDP",
            name = setting_name(*setting)
        ),
        Alarm::BpduGuard { at } => {
            format!("a BPDU at {at}, which is guarded: closed until it was down, or for 5 minutes")
        }
        Alarm::CrowdGuard { at } => format!(
            "more than 100 new hosts a second at {at}, which is guarded: closed for 30 s at a time"
        ),
        Alarm::BindingTaken {
            at,
            ip,
            holder,
            claimant,
        } => format!(
            "{claimant} at {at} got {ip} by DHCP, which is still {holder}'s: it is not bound to it"
        ),
        Alarm::BindingsFull { at } => format!(
            "{at} has {LEARNED_MAX} hosts by DHCP, as many as it may: it is not bound to a further \
             one"
        ),
        Alarm::Panicked { dpid: Some(dpid) } => format!(
            "a fault in auster while it served {dpid}, whose state begins anew: please report it"
        ),
        Alarm::Panicked { dpid: None } => {
            "a fault in auster, which goes on: please report it".to_owned()
        }
    }
}
