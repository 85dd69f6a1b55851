//! What happens, for people (a line each) or programs (a JSON document a line each), on standard
//! output.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::controller::{Alarm, Drained, Event};
use net::databases::{DatapathView, Views};
use net::driver::{Ended, Notice};
use net::method::Method;
use net::transport::PeerIdentity;
use openflow::DatapathId;
use openflow::time::Instant;
use sched::PolicyMap;
use serde_json::{Value, json};

use crate::failure::Failure;

pub struct Printer {
    json: bool,
    hosts: HostBudget,
    /// What was said of each datapath's database.
    databases: BTreeMap<DatapathId, Value>,
}

impl Printer {
    pub fn new(json: bool) -> Printer {
        Printer {
            json,
            hosts: HostBudget::default(),
            databases: BTreeMap::new(),
        }
    }

    /// When [`Printer::handle_timeout`] has something to say.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.hosts.due()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.tell_hosts(now);
    }

    /// At the end: what is still to be told.
    pub fn finish(&mut self) {
        if let Some(due) = self.poll_timeout() {
            self.tell_hosts(due);
        }
    }

    fn tell_hosts(&mut self, now: Instant) {
        if let Some(count) = self.hosts.poll_left_out(now) {
            self.print(
                &format!("... and {count} more hosts learned"),
                json!({"event": "hosts_learned", "count": count}),
            );
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

    pub fn serving(&mut self, at: std::net::SocketAddr) {
        self.print(
            &format!("API on http://{at}/openapi.json"),
            json!({"event": "serving", "address": at.to_string()}),
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

    /// What has changed since it was told.
    pub fn databases(&mut self, views: &Views) {
        let said: BTreeMap<DatapathId, Value> = views
            .iter()
            .map(|(dpid, view)| (*dpid, describe_database(*dpid, view)))
            .collect();
        let before = std::mem::replace(&mut self.databases, said.clone());
        for (dpid, _) in before.iter().filter(|(dpid, _)| !said.contains_key(*dpid)) {
            let gone = json!({"event": "database_down", "dpid": dpid.to_string()});
            self.print(&format!("database of switch {dpid} is gone"), gone);
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
            self.print(&text, document);
        }
    }

    pub fn policy_used(&mut self, argument: &str, map: &PolicyMap) {
        let (generation, digest) = (map.generation, map.digest().to_string());
        self.print(
            &format!("policy {argument} in use: generation {generation}, sha256 {digest}"),
            json!({"event": "policy", "map": argument, "generation": generation, "sha256": digest}),
        );
    }

    /// With everything that is wrong with it.
    pub fn policy_refused(&mut self, argument: &str, failure: &Failure) {
        self.print(
            &format!(
                "policy {argument} refused, the one in use stays: {}",
                failure.message()
            ),
            json!({"event": "policy_refused", "map": argument, "detail": failure.message()}),
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

    pub fn drain_refused(&mut self, file: &str, failure: &Failure) {
        let problem = failure.message();
        self.print(
            &format!("{file} refused, what is drained stays: {problem}"),
            json!({"event": "drain_refused", "file": file, "detail": problem}),
        );
    }

    pub fn topology_used(&mut self, file: &str) {
        self.print(
            &format!("topology {file} in use"),
            json!({"event": "topology", "file": file}),
        );
    }

    /// With everything that is wrong with it; `what` it is a file of.
    pub fn file_refused(&mut self, what: &str, file: &str, problems: &str) {
        self.print(
            &format!("{what} {file} refused, the one in use stays: {problems}"),
            json!({"event": format!("{what}_refused"), "file": file, "detail": problems}),
        );
    }

    pub fn timeouts_used(&mut self, file: &str, policy: &str) {
        self.print(
            &format!("timeouts of {file} in use: policy {policy}"),
            json!({"event": "timeouts", "file": file, "policy": policy}),
        );
    }

    /// With everything that is wrong with them.
    pub fn timeouts_refused(&mut self, file: &str, problem: &str) {
        self.print(
            &format!("timeouts of {file} refused, those in use stay: {problem}"),
            json!({"event": "timeouts_refused", "file": file, "detail": problem}),
        );
    }

    pub fn notice(&mut self, now: Instant, notice: &Notice) {
        match notice {
            Notice::Event(Event::HostLearned { .. }) if !self.takes_host(now) => {}
            Notice::HostsLearned(count) => self.hosts.leave_out(now, *count),
            Notice::Event(event) => {
                if let Some((text, json)) = describe(event) {
                    self.print(&text, json);
                }
            }
            Notice::Up {
                datapath_id,
                version,
                peer,
                ..
            } => {
                let via = over(peer);
                self.print(
                    &format!("switch {datapath_id} up: OpenFlow {version} over {via}"),
                    json!({
                        "event": "switch_up",
                        "dpid": datapath_id.to_string(),
                        "version": version.to_string(),
                        "address": peer.address,
                        "transport": peer.transport.name(),
                    }),
                );
            }
            Notice::Down {
                datapath_id: Some(dpid),
                was_up: true,
                reason,
                ..
            } => self.print(
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

    fn takes_host(&mut self, now: Instant) -> bool {
        self.tell_hosts(now);
        self.hosts.take(now)
    }

    /// A port that the world can reach sees many that say nothing; only those that spoke OpenFlow
    /// and were turned away are worth a line.
    fn never_up(&mut self, peer: &PeerIdentity, reason: &Ended) {
        if !matches!(reason, Ended::Refused(_) | Ended::NotAllowed(_)) {
            tracing::info!(peer = peer.address, "closed before it was up: {reason}");
            return;
        }
        self.print(
            &format!("refused {}: {reason}", peer.address),
            json!({
                "event": "refused",
                "address": peer.address,
                "reason": reason.name(),
                "detail": reason.to_string(),
            }),
        );
    }

    /// Whoever read standard output may be gone; the network is worth more than the log.
    fn print(&mut self, text: &str, mut document: Value) {
        let mut out = std::io::stdout().lock();
        let _ = if self.json {
            let time = SystemTime::now().duration_since(UNIX_EPOCH);
            document["time_s"] = json!(time.map_or(0.0, |t| t.as_secs_f64()));
            writeln!(out, "{document}")
        } else {
            writeln!(out, "{text}")
        };
        let _ = out.flush();
    }
}

/// Hosts can come by the hundred thousand: so many lines would cost more than the hosts do.
#[derive(Default)]
struct HostBudget {
    /// When the current second began.
    since: Option<Instant>,
    printed: u32,
    left_out: u64,
}

/// Lines about learned hosts in one second.
const HOST_LINES_MAX: u32 = 100;
const HOST_LINES_PERIOD: Duration = Duration::from_secs(1);

impl HostBudget {
    /// Whether one more is printed; else it is counted.
    fn take(&mut self, now: Instant) -> bool {
        let is_over = |since: Instant| now >= since + HOST_LINES_PERIOD;
        if self.since.is_none_or(is_over) {
            self.since = Some(now);
            self.printed = 0;
        }
        let is_printed = self.printed < HOST_LINES_MAX;
        if is_printed {
            self.printed += 1;
        } else {
            self.left_out += 1;
        }
        is_printed
    }

    /// `count` more were learned that nobody will be asked to print.
    fn leave_out(&mut self, now: Instant, count: u64) {
        self.since.get_or_insert(now);
        self.left_out += count;
    }

    /// When those that were left out are told of.
    fn due(&self) -> Option<Instant> {
        let since = self.since.filter(|_| self.left_out > 0);
        since.map(|since| since + HOST_LINES_PERIOD)
    }

    fn poll_left_out(&mut self, now: Instant) -> Option<u64> {
        let is_due = self.due().is_some_and(|due| due <= now);
        is_due.then(|| std::mem::take(&mut self.left_out))
    }
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

/// `None` for what [`Notice::Up`] and [`Notice::Down`] say already.
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
        Event::HostLearned { mac, at } => (
            format!("host {mac} at {at}"),
            json!({"event": "host_learned", "mac": mac.to_string(), "port": at.to_string()}),
        ),
        Event::HostMoved { mac, from, to } => (
            format!("host {mac} moved from {from} to {to}"),
            json!({
                "event": "host_moved",
                "mac": mac.to_string(),
                "from": from.to_string(),
                "to": to.to_string(),
            }),
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
        } => (
            format!("switch {dpid} reconciled: {kept} kept, {added} added, {deleted} deleted"),
            json!({
                "event": "reconciled",
                "dpid": dpid.to_string(),
                "kept": kept,
                "added": added,
                "deleted": deleted,
            }),
        ),
        Event::TopologyDiffers(difference) => (
            format!("topology: {difference}"),
            json!({"event": "topology_differs", "detail": difference.to_string()}),
        ),
        Event::TopologyAgrees => (
            "topology: the network is as the file says".to_owned(),
            json!({"event": "topology_agrees"}),
        ),
        Event::Alarm(alarm) => {
            let text = describe_alarm(alarm);
            let json = json!({"event": "alarm", "detail": text});
            (format!("alarm: {text}"), json)
        }
    })
}

fn describe_alarm(alarm: &Alarm) -> String {
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
        Alarm::HostSpoofed { mac, home, at } => {
            format!("host {mac} is alive at {home} and claimed at {at}")
        }
        Alarm::HostMovesTooOften { mac } => format!("host {mac} moves too often"),
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
        Alarm::FlowTableFull { dpid } => format!("the flow table of {dpid} is full"),
        Alarm::FlowModRefused { dpid, error } => format!("{dpid} refused a flow-mod: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    #[test]
    fn of_many_hosts_a_hundred_a_second_are_printed_and_the_others_counted() {
        let mut hosts = HostBudget::default();
        let printed = (0..1000).filter(|_| hosts.take(at_ms(5000))).count();
        assert_eq!(printed, 100);
        assert_eq!(hosts.due(), Some(at_ms(6000)));
        assert_eq!(hosts.poll_left_out(at_ms(5999)), None);
        assert_eq!(hosts.poll_left_out(at_ms(6000)), Some(900));
        assert_eq!(
            (hosts.due(), hosts.poll_left_out(at_ms(9000))),
            (None, None)
        );
        assert!(hosts.take(at_ms(9000)), "a new second");
        hosts.leave_out(at_ms(9000), 5);
        hosts.leave_out(at_ms(9001), 6);
        assert_eq!(hosts.poll_left_out(at_ms(10_000)), Some(11));
    }

    #[test]
    fn a_few_hosts_are_all_printed() {
        let mut hosts = HostBudget::default();
        assert!((0..1000).all(|n| hosts.take(at_ms(n * 10))));
        assert_eq!(hosts.due(), None);
    }
}
