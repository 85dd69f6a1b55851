//! The network of an experiment on queues and one run on it.
//!
//! ```text
//!   h1 ──┐
//!        ├─ s1 ═══ limited port ═══ h3
//!   h2 ──┘
//! ```

use cli::program;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

use crate::qos;
use crate::qos::settings::{Case, HEADERS_BYTES, MARGIN, QosQueues};
use auster::queues::flows;
use auster::queues::plan::Class;
use bench::network::tcp::Ends;
use bench::network::udp::{Pace, Stream, stream_known};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::network::{Network, Options, device};
use testbed::topology::Topology;

/// h3's; h1 and h2 are at ports 1 and 2.
const PORT_OUT: u32 = 3;
const PRIORITY: u16 = 100;
/// The width of a step in the curve of a run.
pub const BIN: Duration = Duration::from_millis(100);

/// Selects the maker of the queues, and the actions of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMaker {
    /// `auster queues set`, and the flows of `auster queues flows`.
    Auster,
    /// `auster queues set`, and flows with `set_queue` alone, as any controller has them.
    AusterSetQueue,
    /// Open vSwitch's own linux-htb, and flows with `set_queue`.
    OpenVswitch,
}

impl QueueMaker {
    pub const ALL: [QueueMaker; 3] = [
        QueueMaker::Auster,
        QueueMaker::AusterSetQueue,
        QueueMaker::OpenVswitch,
    ];

    pub fn name(self) -> &'static str {
        match self {
            QueueMaker::Auster => "auster",
            QueueMaker::AusterSetQueue => "auster, set_queue alone",
            QueueMaker::OpenVswitch => "Open vSwitch alone",
        }
    }

    pub fn is_auster(self) -> bool {
        self != QueueMaker::OpenVswitch
    }
}

pub struct Setup {
    network: Network,
    settings: QosQueues,
    ends: [Ends; 2],
    port: String,
}

/// The results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    pub run: u32,
    pub case: String,
    pub way: QueueMaker,
    pub flows: [FlowRun; 2],
    /// The output of `auster queues verify --json`, and its exit code.
    pub verify: Value,
    pub verify_code: Option<i32>,
    pub verify_said: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowRun {
    pub queue: u8,
    /// In the whole run.
    pub sent: u64,
    pub arrived: u64,
    /// In the window, as Ethernet frames.
    pub rate_mbps: f64,
    /// The most that a datagram was sent after it was due.
    pub sender_late_ms: f64,
    /// The rate in each tenth of a second of the window.
    #[serde(skip)]
    pub curve_mbps: Vec<f64>,
}

impl Setup {
    pub fn start(settings: &QosQueues) -> Result<Setup, Failure> {
        let topology = Topology::generate("single,3", None).map_err(Failure::usage)?;
        let network = Network::start(topology, "none", &Options::default())?;
        let port = device(&network.topology, network.topology.hosts[2].at);
        Ok(Setup {
            settings: settings.clone(),
            ends: [0, 1].map(|from| Ends::of(&network, from, 2)),
            port,
            network,
        })
    }

    pub fn run(
        &mut self,
        run: u32,
        case: &Case,
        way: QueueMaker,
        interrupt: &Interrupt,
    ) -> Result<Trial, Failure> {
        let classes = self.settings.classes(case);
        self.set_queues(case, way, &classes)?;
        self.set_flows(way, &classes)?;
        let (streams, verified, window_from_ns) = self.offer(interrupt)?;
        self.clear_queues(way)?;
        if let Some(casualty) = self.network.casualty() {
            return Err(Failure::machine(casualty));
        }
        let flow = |n: usize| self.flow_run(&streams[n], classes[n].queue, window_from_ns);
        let said = String::from_utf8_lossy(&verified.stderr);
        Ok(Trial {
            run,
            case: case.name.clone(),
            way,
            flows: [0, 1].map(flow),
            verify: serde_json::from_slice(&verified.stdout).unwrap_or_default(),
            verify_code: verified.status.code(),
            verify_said: said.trim().to_owned(),
        })
    }

    fn set_queues(&self, case: &Case, way: QueueMaker, classes: &[Class]) -> Result<(), Failure> {
        if way.is_auster() {
            let mut words = vec!["set", "--rate", &self.settings.rate];
            words.extend(case.queues.iter().flat_map(|queue| ["--queue", queue]));
            return qos::check("queues set", &self.queues(&words)?);
        }
        let rate = format!("other-config:max-rate={}", self.settings.rate_mbps() * 1e6);
        let mut words: Vec<String> = ["set", "port", &self.port, "qos=@qos", "--", "--id=@qos"]
            .into_iter()
            .chain(["create", "qos", "type=linux-htb", &rate])
            .map(str::to_owned)
            .collect();
        let queues = || classes.iter().map(|class| class.set_queue);
        words.extend(queues().map(|n| format!("queues:{n}=@queue{n}")));
        for class in classes {
            let id = format!("--id=@queue{}", class.set_queue);
            words.extend(["--", &id, "create", "queue"].map(str::to_owned));
            words.push(format!("other-config:min-rate={}", class.rate.0));
            words.push(format!("other-config:max-rate={}", class.rate_max.0));
            words.push(format!("other-config:priority={}", class.priority));
        }
        self.network.vsctl(&words).map(drop)
    }

    fn clear_queues(&self, way: QueueMaker) -> Result<(), Failure> {
        if way.is_auster() {
            return qos::check("queues clear", &self.queues(&["clear"])?);
        }
        let line = format!(
            "clear port {} qos -- --all destroy qos -- --all destroy queue",
            self.port
        );
        let words: Vec<&str> = line.split(' ').collect();
        self.network.vsctl(&words).map(drop)
    }

    fn set_flows(&self, way: QueueMaker, classes: &[Class]) -> Result<(), Failure> {
        let mut lines = vec!["priority=1,arp,actions=FLOOD".to_owned()];
        for (from, class) in classes.iter().enumerate() {
            let words = format!("in_port={},udp", from + 1);
            lines.push(match way {
                QueueMaker::Auster => flows::service(class, &words, PORT_OUT, PRIORITY)
                    .map_err(|problem| Failure::usage(format!("{words}: {problem}")))?,
                QueueMaker::AusterSetQueue | QueueMaker::OpenVswitch => format!(
                    "priority={PRIORITY},{words},actions=set_queue:{},output:{PORT_OUT}",
                    class.set_queue
                ),
            });
        }
        let file = self.network.dir().join("s1.flows");
        std::fs::write(&file, lines.join("\n") + "\n").map_err(|e| Failure::file(&file, e))?;
        let socket = format!("unix:{}", self.network.dir().join("s1.mgmt").display());
        for words in [vec!["del-flows", &socket], vec!["add-flows", &socket]] {
            let mut command = Command::new("ovs-ofctl");
            command.args(["-O", "OpenFlow13"]).args(&words);
            if words[0] == "add-flows" {
                command.arg(&file);
            }
            program::run(command)?;
        }
        Ok(())
    }

    /// Both streams at once, and in the middle of them what is verified. Also returns when the
    /// window began.
    fn offer(&self, interrupt: &Interrupt) -> Result<([Stream; 2], Output, u64), Failure> {
        let settings = &self.settings;
        let pace = Pace {
            rate_mbps: settings.offered_mbps,
            datagram_bytes: settings.datagram_bytes,
            duration: settings.settle() + settings.window() + MARGIN,
        };
        let seconds = settings.window_s.to_string();
        std::thread::scope(|scope| {
            let streams = self
                .ends
                .each_ref()
                .map(|ends| scope.spawn(|| stream_known(ends, &pace, &|| interrupt.is_set())));
            std::thread::sleep(settings.settle());
            let from_ns = real_ns();
            let verified = self.queues(&["verify", "--json", "--seconds", &seconds]);
            let [a, b] = streams.map(|stream| {
                let died = |_| Err(Failure::machine("the sender of a stream died"));
                stream.join().unwrap_or_else(died)
            });
            Ok(([a?, b?], verified?, from_ns))
        })
    }

    /// `auster queues` of the limited port.
    fn queues(&self, words: &[&str]) -> Result<Output, Failure> {
        qos::queues(&self.network, &self.port, words)
    }

    fn flow_run(&self, stream: &Stream, queue: u8, from_ns: u64) -> FlowRun {
        let bits = (self.settings.datagram_bytes + HEADERS_BYTES) as f64 * 8.0;
        let window = self.settings.window();
        let bins = (window.as_nanos() / BIN.as_nanos()) as usize;
        let mut counts = vec![0u64; bins];
        for arrival in &stream.arrivals {
            let since = arrival.received_ns.checked_sub(from_ns);
            let bin = since.map(|ns| (u128::from(ns) / BIN.as_nanos()) as usize);
            if let Some(count) = bin.and_then(|bin| counts.get_mut(bin)) {
                *count += 1;
            }
        }
        let mbps = |count: u64, time: Duration| count as f64 * bits / time.as_secs_f64() / 1e6;
        FlowRun {
            queue,
            sent: stream.sent,
            arrived: stream.arrivals.len() as u64,
            rate_mbps: mbps(counts.iter().sum(), window),
            sender_late_ms: stream.sender_late_max.as_secs_f64() * 1e3,
            curve_mbps: counts.iter().map(|count| mbps(*count, BIN)).collect(),
        }
    }
}

/// The clock that the kernel stamps arrivals with.
fn real_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}
