//! One run, in a network of its own: the circuit is asked for, one that has no room is refused, and
//! under traffic the first link of its path fails.
//!
//! ```text
//!  h1 ─┐      ┌─ h3, h4          circuit   h1 to h5, by s2 or s4
//!  h2 ─ s1 ══ s2                 background h2 to whichever host is behind the first link of the
//!       ║     ║                            circuit; when that link has failed it goes round by
//!      s4 ══ s3 ─ h5, h6                   the circuit's second path, too
//!       └─ h7, h8
//! ```

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::Method;
use openflow::PortNo;
use serde::Serialize;
use serde_json::{Value, json};

use crate::qos::circuit::settings::Settings;
use crate::qos::circuit::stream::{Bin, Course, Window};
use crate::qos::controlled::{Controlled, within};
use crate::qos::entries;
use crate::qos::records::Records;
use auster::queues::tc::{Interface, QueueState};
use bench::network::tcp::Ends;
use bench::network::udp::stream_known;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::network::{Network, Options, SWITCHES, device};
use testbed::topology::{Attachment, Topology};

const TOPOLOGY: &str = "ring,4";
const HOSTS_PER_SWITCH: usize = 2;
/// Their places among the hosts.
const FROM: usize = 0;
const BESIDE: usize = 1;
const TO: usize = 4;
const NAME: &str = "video";
const REFUSED: &str = "too-much";

/// For what takes a second or two.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// For what was refused to have an effect after all.
const REFUSAL_WATCHED: Duration = Duration::from_millis(300);
/// The width of a step in the curve.
pub const BIN: Duration = Duration::from_millis(100);
/// A window does not begin or end where something changes.
const MARGIN_NS: u64 = 100_000_000;
/// Half a second of 60 Mbit/s, as in other experiments on a machine of few cores.
const PORT_BUFFER_BYTES: usize = 6 << 20;

/// The results of one run. Times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    pub run: u32,
    /// From the request until every switch has confirmed it, and until every port of the path has
    /// its queue in the kernel.
    pub installed_ms: f64,
    pub queued_ms: f64,
    pub way: Vec<HopFound>,
    pub refusal: Refusal,
    /// Until the link fails.
    pub before: [Window; 2],
    /// From the failure until the first arrival of those sent when the link was down; nothing if
    /// none came.
    pub moved_ms: Option<f64>,
    /// Between two arrivals.
    pub outage_ms: Option<f64>,
    /// Until the controller says so.
    pub told_ms: Option<f64>,
    pub moved_way: Vec<HopFound>,
    /// Ports of the second path that the first has not.
    pub ports: Vec<PortFound>,
    /// From the first arrival by the second path until every one of its ports has the queue in
    /// effect.
    pub between: Option<[Window; 2]>,
    /// From `recover_s` after the failure on.
    pub after: [Window; 2],
    /// Ports of the first path whose queue is still in the database at the end.
    pub left: Vec<String>,
    pub sender_late_ms: f64,
    /// Runs before this one that are not counted, because a sender was late in them.
    pub repeats: u32,
    /// The output of `auster qos` before the failure, and after it.
    #[serde(skip)]
    pub shown: [String; 2],
    #[serde(skip)]
    pub bins: [Vec<Bin>; 2],
}

/// A switch of a path, with the circuit's queue at the port where it leaves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HopFound {
    pub switch: String,
    pub in_port: u32,
    pub out_port: u32,
    /// The queue in the database.
    pub queue: Option<u32>,
    /// The rate in the kernel.
    pub min_rate_bps: Option<u64>,
}

/// The times of a port of the second path, from the failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortFound {
    pub port: String,
    /// Its class is in the kernel.
    pub made_ms: Option<f64>,
    /// The class has counted packets: the queue is in effect.
    pub in_effect_ms: Option<f64>,
}

/// The API's answer to a circuit that has no room.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Refusal {
    pub status: u16,
    pub pointer: String,
    pub detail: String,
    /// The port that is full, which the answer has to name.
    pub full: String,
    /// Differences afterwards: entries, records, or demands.
    pub changed: Vec<String>,
}

/// When its taking down was begun, and done.
#[derive(Clone, Copy)]
struct LinkFailure {
    at_ns: u64,
    down_ns: u64,
}

struct Bench<'a> {
    settings: &'a Settings,
    setup: Controlled,
    interrupt: &'a Interrupt,
}

/// `None` when it was interrupted.
pub fn run(settings: &Settings, run: u32, interrupt: &Interrupt) -> Result<Option<Trial>, Failure> {
    let topology = Topology::generate(TOPOLOGY, Some(HOSTS_PER_SWITCH)).map_err(Failure::usage)?;
    let options = Options {
        port_buffer_bytes: Some(PORT_BUFFER_BYTES),
        ..Options::default()
    };
    let config = config(&topology, &settings.link_rate);
    let network = Network::start(topology, "auster", &options)?;
    let mut setup = Controlled::start(network, &config)?;
    setup.start_keeper()?;
    if !setup.wait_until_known(interrupt)? {
        return Ok(None);
    }
    let mut bench = Bench {
        settings,
        setup,
        interrupt,
    };
    let trial = bench.run(run);
    let casualty = bench.setup.check();
    // Whoever has died explains the rest.
    casualty.and(trial)
}

/// Every link between switches is held to its rate, in both directions.
fn config(topology: &Topology, link_rate: &str) -> String {
    let ends = topology.links.iter().flat_map(|link| link.ends);
    let ports: Vec<String> = ends
        .map(|at| format!("\"{}\"", port_name(topology, at)))
        .collect();
    format!(
        "[[qos.port]]\nat = [{}]\nrate = \"{link_rate}\"\n",
        ports.join(", ")
    )
}

/// The port in auster's notation.
fn port_name(topology: &Topology, at: Attachment) -> String {
    format!("{}:{}", topology.switches[at.switch].dpid, at.port)
}

impl Bench<'_> {
    fn run(&mut self, run: u32) -> Result<Option<Trial>, Failure> {
        let (from, to) = (FROM, TO);
        for (a, b) in [(from, to), (to, from)] {
            if !self.introduced(a, b)? {
                return Ok(None);
            }
        }
        if self.links_are_held()?.is_none() {
            return self.unmet("the links' own queues are in effect");
        }
        let asked = Instant::now();
        self.ask_for_circuit()?;
        let is_installed = || Ok((self.circuit()?["state"] == "installed").then_some(()));
        if self.wait(is_installed)?.is_none() {
            return self.unmet("the circuit is installed");
        }
        let installed_ms = ms_since(asked);
        let has_queues = || {
            let hops = self.hops()?;
            let with = hops.iter().filter(|hop| hop.min_rate_bps.is_some());
            Ok((with.count() == hops.len()).then_some(hops))
        };
        let Some(way) = self.wait(has_queues)? else {
            return self.unmet("every port of the way has the circuit's queue");
        };
        let queued_ms = ms_since(asked);
        let [second, behind] = self.behind(&way)?;
        if !self.introduced(BESIDE, behind)? {
            return Ok(None);
        }
        let refusal = self.refusal(&way, behind)?;
        let mut trial = Trial {
            run,
            installed_ms,
            queued_ms,
            way,
            refusal,
            before: Default::default(),
            moved_ms: None,
            outage_ms: None,
            told_ms: None,
            moved_way: Vec::new(),
            ports: Vec::new(),
            between: None,
            after: Default::default(),
            left: Vec::new(),
            sender_late_ms: 0.0,
            repeats: 0,
            shown: [self.shown()?, String::new()],
            bins: Default::default(),
        };
        let is_whole = self.under_traffic(&mut trial, second, behind)?;
        Ok(is_whole.then_some(trial))
    }

    /// Both streams, and in the middle of them the failure.
    fn under_traffic(
        &self,
        trial: &mut Trial,
        second: usize,
        behind: usize,
    ) -> Result<bool, Failure> {
        let settings = self.settings;
        let network = &self.setup.network;
        let lines = [
            (Ends::of(network, FROM, TO), settings.stream_mbps),
            (Ends::of(network, BESIDE, behind), settings.background_mbps),
        ];
        let began = Instant::now();
        let began_ns = real_ns();
        let interrupt = self.interrupt;
        let (courses, failure) = std::thread::scope(|scope| {
            let senders = lines.each_ref().map(|(ends, mbps)| {
                let pace = settings.pace(*mbps);
                scope.spawn(move || {
                    let stream = stream_known(ends, &pace, &|| interrupt.is_set())?;
                    Ok::<_, Failure>(Course::of(stream, &pace, began_ns))
                })
            });
            let failed = self.fail_link(trial, (began, second));
            let courses = senders.map(|sender| {
                let died = |_| Err(Failure::machine("the sender of a stream died"));
                sender.join().unwrap_or_else(died)
            });
            (courses, failed)
        });
        let [stream, background] = courses;
        let (courses, failure) = ([stream?, background?], failure?);
        let Some(failure) = failure.filter(|_| !interrupt.is_set()) else {
            return Ok(false);
        };
        self.judge(trial, &courses, began_ns, failure);
        trial.moved_way = self.hops()?;
        trial.left = self.left(trial)?;
        trial.shown[1] = self.shown()?;
        Ok(true)
    }

    /// Waits, cuts the link and watches what becomes of the circuit, until the streams end. Answers
    /// when it was cut; `None` when it was interrupted.
    fn fail_link(
        &self,
        trial: &mut Trial,
        (began, second): (Instant, usize),
    ) -> Result<Option<LinkFailure>, Failure> {
        let settings = self.settings;
        let due = began + Duration::from_secs_f64(settings.settle_s + settings.before_s);
        if !self.sleep_until(due) {
            return Ok(None);
        }
        let switches = &self.setup.network.topology.switches;
        let first = &switches[self.setup.network.topology.hosts[FROM].at.switch].name;
        let (failed, failed_ns) = (Instant::now(), real_ns());
        self.setup
            .network
            .set_link(first, &switches[second].name, false)?;
        let failure = LinkFailure {
            at_ns: failed_ns,
            down_ns: real_ns(),
        };
        let old: Vec<String> = trial.way.iter().map(HopFound::outlet).collect();
        let has_moved = || {
            let way = self.way()?;
            let is_other = way.first().is_some_and(|hop| !old.contains(&hop.outlet()));
            Ok(is_other.then_some(way))
        };
        let recovered = failed + Duration::from_secs_f64(settings.recover_s);
        let left = recovered.saturating_duration_since(Instant::now());
        if let Some(way) = within(left, LOOK / 4, self.interrupt, has_moved)? {
            trial.told_ms = Some(ms_since(failed));
            let new = way.iter().filter(|hop| !old.contains(&hop.outlet()));
            trial.ports = self.watch_queues(new, failed, recovered)?;
        }
        Ok(self
            .sleep_until(began + settings.lasts())
            .then_some(failure))
    }

    /// When each port's queue is there, and when it is met.
    fn watch_queues<'h>(
        &self,
        hops: impl Iterator<Item = &'h HopFound>,
        failed: Instant,
        until: Instant,
    ) -> Result<Vec<PortFound>, Failure> {
        let mut ports: Vec<(Attachment, PortFound)> = Vec::new();
        for hop in hops {
            let port = PortFound {
                port: hop.outlet(),
                ..PortFound::default()
            };
            ports.push((self.attachment(hop)?, port));
        }
        while Instant::now() < until && !self.interrupt.is_set() {
            let waiting = |port: &PortFound| port.in_effect_ms.is_none();
            for (at, found) in ports.iter_mut().filter(|(_, port)| waiting(port)) {
                let Some(class) = self.class(*at)? else {
                    continue;
                };
                let now = ms_since(failed);
                found.made_ms.get_or_insert(now);
                if class.packets > 0 {
                    found.in_effect_ms = Some(now);
                }
            }
            if !ports.iter().any(|(_, port)| waiting(port)) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        Ok(ports.into_iter().map(|(_, port)| port).collect())
    }

    fn judge(&self, trial: &mut Trial, courses: &[Course; 2], began_ns: u64, failure: LinkFailure) {
        let settings = self.settings;
        let failed_ns = failure.at_ns;
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let of = |from: u64, to: u64| courses.each_ref().map(|course| course.window(from, to));
        let (settled, recovered) = (
            began_ns + ns(settings.settle_s),
            failed_ns + ns(settings.recover_s),
        );
        let end = began_ns + settings.lasts().as_nanos() as u64;
        trial.before = of(settled, failed_ns - MARGIN_NS);
        trial.after = of(recovered, end - MARGIN_NS);
        let ms = |ns: u64| ns as f64 / 1e6;
        if let Some(pause) = courses[0].pause(failure.down_ns) {
            trial.outage_ms = Some(ms(pause.to_ns.saturating_sub(pause.from_ns)));
            trial.moved_ms = Some(ms(pause.to_ns.saturating_sub(failed_ns)));
            let in_effect = trial.ports.iter().map(|port| port.in_effect_ms);
            let last = in_effect
                .collect::<Option<Vec<f64>>>()
                .filter(|all| !all.is_empty());
            let last = last.map(|all| all.into_iter().fold(0.0, f64::max));
            let last = last.map(|ms| failed_ns + (ms * 1e6) as u64);
            trial.between = last.map(|last| of(pause.to_ns, last));
        }
        trial.sender_late_ms = courses[0].sender_late_ms.max(courses[1].sender_late_ms);
        let bin_ns = BIN.as_nanos() as u64;
        trial.bins = courses
            .each_ref()
            .map(|course| course.bins(failed_ns, bin_ns));
    }

    /// Asks for a circuit without room on the first link of the path. Records what that changes.
    fn refusal(&self, way: &[HopFound], behind: usize) -> Result<Refusal, Failure> {
        let hosts = &self.setup.network.topology.hosts;
        let body = json!({
            "from": hosts[BESIDE].address, "to": hosts[behind].address,
            "rate": self.settings.too_much, "admission": true, "dscp": self.settings.dscp - 1,
        });
        let before = self.everything()?;
        let path = format!("/v1/circuits/{REFUSED}");
        let (status, problem) = self.setup.ask(Method::PUT, &path, Some(&body))?;
        std::thread::sleep(REFUSAL_WATCHED);
        let after = self.everything()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut refusal = Refusal {
            status: status.as_u16(),
            pointer: text(&problem["errors"][0]["pointer"]),
            detail: text(&problem["errors"][0]["detail"]),
            full: way.first().map(HopFound::outlet).unwrap_or_default(),
            changed: Vec::new(),
        };
        if problem["errors"].as_array().map(Vec::len) != Some(1) {
            refusal.detail = problem.to_string();
        }
        let changed = before.symmetric_difference(&after).cloned();
        refusal.changed.extend(changed);
        if status.is_success() {
            // Or it would take the room that the other needs.
            self.setup.ask(Method::DELETE, &path, None)?;
        }
        Ok(refusal)
    }

    /// Entries of policies and circuits, records and what is asked for, as text.
    fn everything(&self) -> Result<std::collections::BTreeSet<String>, Failure> {
        let mut all = std::collections::BTreeSet::new();
        for switch in &self.setup.network.topology.switches {
            let flows = self.setup.flows(&switch.name)?;
            let ours = flows.into_iter().filter(|line| entries::is_of_qos(line));
            all.extend(ours.map(|line| format!("{}: {line}", switch.name)));
        }
        let records = Records::read(&self.setup)?;
        let ports = records.ports.iter();
        all.extend(ports.map(|(port, record)| format!("{port}: {record:?}")));
        all.extend(records.orphans.into_iter().chain(records.foreign));
        let (_, circuits) = self.setup.ask(Method::GET, "/v1/circuits", None)?;
        all.insert(circuits.to_string());
        Ok(all)
    }

    fn ask_for_circuit(&self) -> Result<(), Failure> {
        let hosts = &self.setup.network.topology.hosts;
        let body = json!({
            "from": hosts[FROM].address, "to": hosts[TO].address,
            "rate": self.settings.circuit_rate, "admission": true, "dscp": self.settings.dscp,
        });
        let path = format!("/v1/circuits/{NAME}");
        match self.setup.ask(Method::PUT, &path, Some(&body))? {
            (status, _) if status.is_success() => Ok(()),
            (status, problem) => Err(Failure::negative(format!("{path}: {status}: {problem}"))),
        }
    }

    /// The controller has finished all that its configuration says of ports.
    fn links_are_held(&self) -> Result<Option<()>, Failure> {
        self.wait(|| {
            let state = self.setup.state()?;
            let ports = state["queues"].as_object();
            let mut ports = ports.into_iter().flatten();
            let is_done = ports.all(|(_, port)| port["state"] == "in effect");
            Ok(is_done.then_some(()))
        })
    }

    fn circuit(&self) -> Result<Value, Failure> {
        Ok(self.setup.state()?["circuits"][NAME].clone())
    }

    /// The path that the controller reports.
    fn way(&self) -> Result<Vec<HopFound>, Failure> {
        let circuit = self.circuit()?;
        let hops = circuit["hops"].as_array().cloned().unwrap_or_default();
        let number = |value: &Value| value.as_u64().unwrap_or_default() as u32;
        let hops = hops.iter().map(|hop| HopFound {
            switch: hop["dpid"].as_str().unwrap_or_default().to_owned(),
            in_port: number(&hop["in_port"]),
            out_port: number(&hop["out_port"]),
            queue: None,
            min_rate_bps: None,
        });
        Ok(hops.collect())
    }

    /// And its queues, as the database and the kernel have them.
    fn hops(&self) -> Result<Vec<HopFound>, Failure> {
        let mut hops = self.way()?;
        let records = Records::read(&self.setup)?;
        for hop in &mut hops {
            let at = self.attachment(hop)?;
            let record = records.ports.get(&device(&self.setup.network.topology, at));
            hop.queue = record.and_then(|record| record.queue_of(self.settings.dscp));
            hop.min_rate_bps = self.class(at)?.map(|class| class.min_rate_bps);
        }
        Ok(hops)
    }

    /// The circuit's class at a port, in the kernel.
    fn class(&self, at: Attachment) -> Result<Option<QueueState>, Failure> {
        let namespace = self.setup.network.namespace(SWITCHES);
        let name = device(&self.setup.network.topology, at);
        let interface = Interface {
            namespace: Some(&namespace),
            name: &name,
        };
        let dscp = self.settings.dscp.to_string();
        // While the classes are made anew, a part of them may be read.
        let state = interface.state().unwrap_or_default().unwrap_or_default();
        Ok(state.queues.into_iter().find(|queue| queue.dscp == dscp))
    }

    fn attachment(&self, hop: &HopFound) -> Result<Attachment, Failure> {
        let mut switches = self.setup.network.topology.switches.iter();
        let switch = switches.position(|switch| switch.dpid.to_string() == hop.switch);
        let unknown = || Failure::negative(format!("no switch of the lab is {}", hop.switch));
        Ok(Attachment {
            switch: switch.ok_or_else(unknown)?,
            port: PortNo(hop.out_port),
        })
    }

    /// The second switch of the path, and a host there.
    fn behind(&self, way: &[HopFound]) -> Result<[usize; 2], Failure> {
        let far = way.get(1).map(|hop| self.attachment(hop)).transpose()?;
        let switch = far.map(|at| at.switch);
        let mut hosts = self.setup.network.topology.hosts.iter();
        let host = hosts.position(|host| Some(host.at.switch) == switch);
        match (switch, host) {
            (Some(switch), Some(host)) => Ok([switch, host]),
            _ => Err(Failure::negative("the circuit's way has no second switch")),
        }
    }

    fn left(&self, trial: &Trial) -> Result<Vec<String>, Failure> {
        let new: Vec<String> = trial.moved_way.iter().map(HopFound::outlet).collect();
        let records = Records::read(&self.setup)?;
        let mut left = Vec::new();
        for hop in trial.way.iter().filter(|hop| !new.contains(&hop.outlet())) {
            let name = device(&self.setup.network.topology, self.attachment(hop)?);
            let record = records.ports.get(&name);
            if record.is_some_and(|record| record.queue_of(self.settings.dscp).is_some()) {
                left.push(hop.outlet());
            }
        }
        Ok(left)
    }

    fn shown(&self) -> Result<String, Failure> {
        Ok(self.setup.qos(&["circuits"])? + &self.setup.qos(&["show"])?)
    }

    /// Whether two hosts reached each other; `false` when it was interrupted.
    fn introduced(&self, from: usize, to: usize) -> Result<bool, Failure> {
        let ends = Ends::of(&self.setup.network, from, to);
        let answers = || {
            let answers = self.setup.answers(&ends).map_err(Failure::machine)?;
            Ok(answers.then_some(()))
        };
        match self.wait(answers)? {
            Some(()) => Ok(true),
            None => self
                .unmet("the hosts reach each other")
                .map(|none| none.unwrap_or(false)),
        }
    }

    fn wait<T>(
        &self,
        look: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        within(PATIENCE, LOOK, self.interrupt, look)
    }

    /// It took too long, or was interrupted.
    fn unmet<T>(&self, what: &str) -> Result<Option<T>, Failure> {
        match self.interrupt.is_set() {
            true => Ok(None),
            false => Err(Failure::negative(format!(
                "not within {} s: {what}; the controller says: {}",
                PATIENCE.as_secs(),
                self.setup.state()?
            ))),
        }
    }

    fn sleep_until(&self, due: Instant) -> bool {
        while !self.interrupt.is_set() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK));
        }
        false
    }
}

impl HopFound {
    /// The outgoing port in auster's notation.
    pub fn outlet(&self) -> String {
        format!("{}:{}", self.switch, self.out_port)
    }
}

fn ms_since(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e4).round() / 10.0
}

/// The clock that the kernel stamps arrivals with.
fn real_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_of_a_link_is_held_to_its_rate() {
        let topology = Topology::generate(TOPOLOGY, Some(HOSTS_PER_SWITCH)).unwrap();
        let config: toml::Table = toml::from_str(&config(&topology, "40mbit")).unwrap();
        let port = &config["qos"]["port"][0];
        assert_eq!(port["rate"].as_str(), Some("40mbit"));
        let at = port["at"].as_array().unwrap();
        assert_eq!(at.len(), 8);
        assert_eq!(at[0].as_str(), Some("0000000000000001:3"));
        let place = |n: usize| topology.hosts[n].at.switch;
        assert_eq!((place(FROM), place(BESIDE), place(TO)), (0, 0, 2));
    }
}
