//! `auster queues verify`: whether packets get into the queues that flows name.
//!
//! Nothing on a switch reports this: userspace Open vSwitch accepts `set_queue`, counts the flow,
//! makes the queues, and sends every packet through queue 0 without an error. The command therefore
//! reads the counters of flows and of queues twice under real traffic, and compares them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use control::qos::verify::{self, FLOWS_LATE};
use net::method::Method;
use net::tls::Security;
use net::transport;
use openflow::message::{MultipartReply, MultipartRequest};
use openflow::multipart::{FlowStats, FlowStatsRequest, ReplyBody, RequestBody};
use openflow::{Action, Field, Instruction, MatchField, Message, PortNo};
use serde::Serialize;

use crate::channel::Channel;
use crate::queues::plan::Rate;
use crate::queues::records::Port;
use crate::queues::tc::{Maker, QueueState, State};
use crate::queues::{ANSWER_TIMEOUT, PortArgs, database_socket};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::{say, say_part};
use cli::table::table;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    port: PortArgs,
    /// OpenFlow 1.3 address of the bridge; if not given, its socket beside the database's
    #[arg(long, value_name = "METHOD")]
    flows: Option<Method>,
    /// Time between the two readings
    #[arg(long, value_name = "S", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The published document.
#[derive(Debug, Serialize)]
struct Document {
    port: String,
    bridge: Option<String>,
    datapath: Option<String>,
    made_by: Maker,
    seconds: f64,
    /// Whether a signal ended the check: the figures are those until then.
    interrupted: bool,
    queues: Vec<QueueVerdict>,
    /// `None` if they could not be read.
    flows: Option<Vec<FlowVerdict>>,
    took_effect: bool,
    problem: Option<String>,
}

/// One queue, compared with its flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct QueueVerdict {
    queue: u16,
    /// Whether the port has the queue. Packets for a queue that it does not have are in queue 0.
    exists: bool,
    priority: u8,
    min_rate_bps: u64,
    max_rate_bps: u64,
    packets: u64,
    bytes: u64,
    rate_bps: f64,
    dropped: u64,
    /// The number of flows that name the queue.
    flows: usize,
    /// The packets that those flows counted meanwhile.
    flow_packets: u64,
    effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Effect {
    /// The packets that the flows counted reached the queue.
    Yes,
    /// Some of the packets did.
    Partly,
    /// The flows counted packets and the queue got none of them.
    No,
    /// Its flows counted nothing.
    NoTraffic,
    /// No flow names it.
    NotNamed,
}

impl Effect {
    fn of(counted: u64, came: u64) -> Effect {
        match verify::Effect::of(counted, came) {
            verify::Effect::Yes => Effect::Yes,
            verify::Effect::Partly => Effect::Partly,
            verify::Effect::No => Effect::No,
            verify::Effect::NoTraffic | verify::Effect::Unknown => Effect::NoTraffic,
        }
    }
}

/// An entry that names a queue of the port.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct FlowVerdict {
    entry: String,
    queue: u16,
    by: By,
    packets: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    SetQueue,
    Dscp,
}

/// Counters of a port's queues at one time.
struct Reading {
    at: Instant,
    maker: Maker,
    state: State,
}

pub async fn run(args: Args, interrupt: &Interrupt) -> Result<(), Failure> {
    let record = args.port.record().await?.map(|(_, record)| record);
    let mut switch = args.switch(record.as_ref()).await?;
    let before = args.read()?;
    // The flows are first read this long after the queues, and at the end together with them. So
    // the packets that flows counted passed the queues in between.
    let window = Duration::from_secs(args.seconds.into());
    pause(FLOWS_LATE, interrupt).await;
    let flows_before = flows_of(switch.as_mut()).await?;
    pause(window.saturating_sub(before.at.elapsed()), interrupt).await;
    let flows_after = flows_of(switch.as_mut()).await?;
    let after = args.read()?;
    let flows = match (&switch, flows_before, flows_after) {
        (Some(switch), Some(before), Some(flows)) => {
            let (port, maker) = (switch.port, after.maker);
            Some(named(&before, &flows, port, maker, &after.state))
        }
        _ => None,
    };
    let document = args.document(record, flows, &before, &after, interrupt.is_set());
    if args.json {
        let text = serde_json::to_string_pretty(&document)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        say!("{text}");
    } else {
        say_part!("{}", text(&document));
    }
    match document.problem {
        Some(problem) => Err(Failure::negative(problem)),
        None => Ok(()),
    }
}

/// Waits until the time is over, or until the interrupt.
async fn pause(time: Duration, interrupt: &Interrupt) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = interrupt.wait() => {}
    }
}

async fn flows_of(switch: Option<&mut Switch>) -> Result<Option<Vec<FlowStats>>, Failure> {
    match switch {
        Some(switch) => switch.flows().await.map(Some),
        None => Ok(None),
    }
}

impl Args {
    fn read(&self) -> Result<Reading, Failure> {
        let port = &self.port.port;
        let state = self.port.interface().state_of_any()?;
        let (maker, state) = state.ok_or_else(|| {
            Failure::usage(format!(
                "{port} has no queues, neither auster's nor Open vSwitch's; auster queues set \
                 makes them"
            ))
        })?;
        Ok(Reading {
            at: Instant::now(),
            maker,
            state,
        })
    }

    /// The bridge, if its socket is known or was named.
    async fn switch(&self, record: Option<&Port>) -> Result<Option<Switch>, Failure> {
        let beside = || {
            let database = match &self.port.db {
                Some(Method::DialUnix(path)) => path.clone(),
                Some(_) => return None,
                None => database_socket(),
            };
            let dir = database.parent().unwrap_or(Path::new("/")).to_owned();
            let socket = dir.join(format!("{}.mgmt", record?.bridge));
            socket.exists().then_some(Method::DialUnix(socket))
        };
        let Some(method) = self.flows.clone().or_else(beside) else {
            return Ok(None);
        };
        let connected = tokio::time::timeout(ANSWER_TIMEOUT, async {
            let connection = transport::connect(&method, &Security::plain()).await;
            let connection = connection.map_err(|e| Failure::network(e.to_string()))?;
            Switch::of(Channel::greet(connection).await?, &self.port.port).await
        });
        let connected = connected.await;
        connected
            .unwrap_or_else(|_| Err(Failure::network(format!("{method} does not answer"))))
            .map(Some)
    }

    fn document(
        &self,
        record: Option<Port>,
        flows: Option<Vec<FlowVerdict>>,
        before: &Reading,
        after: &Reading,
        interrupted: bool,
    ) -> Document {
        let seconds = (after.at - before.at).as_secs_f64();
        let queues = judge(
            &before.state,
            &after.state,
            flows.as_deref().unwrap_or_default(),
            seconds,
        );
        let ignores = record
            .as_ref()
            .filter(|port| after.maker == Maker::OpenVswitch && !port.honours_set_queue());
        let problem = problem(&queues, flows.as_deref(), ignores, &self.port.port);
        Document {
            port: self.port.port.clone(),
            bridge: record.as_ref().map(|port| port.bridge.clone()),
            datapath: record.map(|port| match port.datapath.as_str() {
                "" => "system".to_owned(),
                other => other.to_owned(),
            }),
            made_by: after.maker,
            seconds,
            interrupted,
            took_effect: problem.is_none() && flows.is_some(),
            queues,
            flows,
            problem,
        }
    }
}

/// A bridge that answers OpenFlow.
struct Switch {
    channel: Channel,
    port: PortNo,
}

impl Switch {
    async fn of(channel: Channel, port: &str) -> Result<Switch, Failure> {
        let mut switch = Switch {
            channel,
            port: PortNo::ANY,
        };
        let mut found = None;
        for body in switch.ask(RequestBody::PortDesc(PortNo::ANY)).await? {
            if let ReplyBody::PortDesc(ports) = body {
                let of_name = ports.iter().find(|known| known.name.to_text() == port);
                found = found.or(of_name.map(|known| known.port_no));
            }
        }
        switch.port = found.ok_or_else(|| {
            Failure::usage(format!(
                "--flows: the bridge that answers has no port {port}"
            ))
        })?;
        Ok(switch)
    }

    async fn flows(&mut self) -> Result<Vec<FlowStats>, Failure> {
        let all = RequestBody::Flow(FlowStatsRequest::all());
        let mut flows = Vec::new();
        for body in self.ask(all).await? {
            if let ReplyBody::Flow(some) = body {
                flows.extend(some);
            }
        }
        Ok(flows)
    }

    /// Sends a request, and returns all parts of the answer.
    async fn ask(&mut self, body: RequestBody) -> Result<Vec<ReplyBody>, Failure> {
        let request = Message::MultipartRequest(MultipartRequest { more: false, body });
        let xid = self.channel.send(&[request]).await?;
        let mut bodies = Vec::new();
        loop {
            match self.channel.answer(xid).await? {
                Message::MultipartReply(MultipartReply { more, body }) => {
                    bodies.push(body);
                    if !more {
                        return Ok(bodies);
                    }
                }
                other => {
                    return Err(Failure::network(format!(
                        "the switch answered a question about its state with {:?}",
                        other.kind()
                    )));
                }
            }
        }
    }
}

/// The entries that name a queue of `port`, and what each counted between the readings.
fn named(
    before: &[FlowStats],
    after: &[FlowStats],
    port: PortNo,
    maker: Maker,
    state: &State,
) -> Vec<FlowVerdict> {
    let queue_of = |code_point: u8| {
        let has = |queue: &&QueueState| contains(&queue.dscp, code_point);
        let named = state.queues.iter().filter(|queue| !queue.is_default);
        named.clone().find(has).map(|queue| queue.queue)
    };
    let mut found = Vec::new();
    for flow in after {
        let Some((queue, by)) = queue_named(flow, port, maker, &queue_of) else {
            continue;
        };
        let is_same = |old: &&FlowStats| {
            (old.table_id, old.priority, &old.r#match)
                == (flow.table_id, flow.priority, &flow.r#match)
        };
        let counted = before
            .iter()
            .find(is_same)
            .map_or(0, |old| old.packet_count);
        let reply = Message::MultipartReply(MultipartReply {
            more: false,
            body: ReplyBody::Flow(vec![flow.clone()]),
        });
        found.push(FlowVerdict {
            entry: reply
                .to_string()
                .lines()
                .last()
                .unwrap_or("")
                .trim()
                .to_owned(),
            queue,
            by,
            // An entry that was set again meanwhile has restarted its counter.
            packets: flow
                .packet_count
                .checked_sub(counted)
                .unwrap_or(flow.packet_count),
        });
    }
    found
}

/// The queue into which an entry puts its packets to `port`, if it names one.
fn queue_named(
    flow: &FlowStats,
    port: PortNo,
    maker: Maker,
    queue_of: &dyn Fn(u8) -> Option<u16>,
) -> Option<(u16, By)> {
    let mut set_queue = None;
    // The code point of arriving packets, if the match states it.
    let mut code_point = flow.r#match.exact(Field::IpDscp).map(|c| c as u8);
    let named = |set_queue: Option<u32>, code_point: Option<u8>| {
        let by_number = set_queue.map(|queue| (queue as u16, By::SetQueue));
        // Open vSwitch's own queues are not chosen by code point.
        let by_code_point = || {
            let queue = code_point
                .filter(|_| maker == Maker::Auster)
                .and_then(queue_of);
            queue.map(|queue| (queue, By::Dscp))
        };
        by_number.or_else(by_code_point)
    };
    let actions = flow
        .instructions
        .iter()
        .flat_map(|instruction| match instruction {
            Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => &actions[..],
            _ => &[],
        });
    for action in actions {
        match action {
            Action::SetQueue(queue) => set_queue = Some(queue.0),
            Action::Enqueue { port: to, queue } if *to == port => {
                return named(Some(queue.0), None);
            }
            Action::SetField(MatchField::Basic {
                field: Field::IpDscp,
                value,
                ..
            }) => {
                code_point = Some(*value as u8);
            }
            Action::SetNwTos(tos) => code_point = Some(tos >> 2),
            Action::Output { port: to, .. } if *to == port => return named(set_queue, code_point),
            _ => {}
        }
    }
    None
}

/// Whether runs such as `0-39,46` contain a number.
fn contains(runs: &str, number: u8) -> bool {
    runs.split(',').any(|run| {
        let (from, to) = run.split_once('-').unwrap_or((run, run));
        match (from.parse::<u8>(), to.parse::<u8>()) {
            (Ok(from), Ok(to)) => (from..=to).contains(&number),
            _ => false,
        }
    })
}

fn judge(before: &State, after: &State, flows: &[FlowVerdict], seconds: f64) -> Vec<QueueVerdict> {
    let mut queues: BTreeMap<u16, QueueVerdict> = BTreeMap::new();
    for queue in &after.queues {
        let zero = QueueState::default();
        let was = before.queues.iter().find(|old| old.queue == queue.queue);
        let was = was.unwrap_or(&zero);
        let bytes = queue.bytes.saturating_sub(was.bytes);
        let verdict = QueueVerdict {
            exists: true,
            priority: queue.priority,
            min_rate_bps: queue.min_rate_bps,
            max_rate_bps: queue.max_rate_bps,
            packets: queue.packets.saturating_sub(was.packets),
            bytes,
            rate_bps: bytes as f64 * 8.0 / seconds.max(f64::MIN_POSITIVE),
            dropped: queue.dropped.saturating_sub(was.dropped),
            ..QueueVerdict::missing(queue.queue)
        };
        queues.insert(queue.queue, verdict);
    }
    for flow in flows {
        let queue = queues
            .entry(flow.queue)
            .or_insert_with(|| QueueVerdict::missing(flow.queue));
        queue.flows += 1;
        queue.flow_packets += flow.packets;
    }
    for queue in queues.values_mut() {
        // Packets dropped for lack of room had reached the queue too.
        let came = queue.packets.saturating_add(queue.dropped);
        queue.effect = match queue.flows {
            0 => Effect::NotNamed,
            _ => Effect::of(queue.flow_packets, came),
        };
    }
    queues.into_values().collect()
}

impl QueueVerdict {
    /// A queue that the port does not have.
    fn missing(queue: u16) -> QueueVerdict {
        QueueVerdict {
            queue,
            exists: false,
            priority: 0,
            min_rate_bps: 0,
            max_rate_bps: 0,
            packets: 0,
            bytes: 0,
            rate_bps: 0.0,
            dropped: 0,
            flows: 0,
            flow_packets: 0,
            effect: Effect::NotNamed,
        }
    }
}

/// The reason why the queues do not match the flows. Without readable flows there is none.
fn problem(
    queues: &[QueueVerdict],
    flows: Option<&[FlowVerdict]>,
    ignores: Option<&Port>,
    port: &str,
) -> Option<String> {
    let flows = flows?;
    let missed = |queue: &&QueueVerdict| queue.effect == Effect::No;
    let missed: Vec<&QueueVerdict> = queues.iter().filter(missed).collect();
    if !missed.is_empty() {
        let said: Vec<String> = missed
            .iter()
            .map(|queue| {
                let counted = queue.flow_packets;
                let (number, came) = (queue.queue, queue.packets + queue.dropped);
                match queue.exists {
                    true => format!("queue {number} got {came} of {counted} packets"),
                    false => format!("there is no queue {number} for {counted} packets"),
                }
            })
            .collect();
        let zero = queues.iter().find(|queue| queue.queue == 0);
        let zero = zero.map_or(0, |queue| queue.packets + queue.dropped);
        let why = match ignores {
            Some(record) => format!(
                ": the {} datapath of {} makes the queues and ignores set_queue, and all is in \
                 queue 0 ({zero} packets); ovs-vsctl clear port {port} qos, then auster queues set",
                record.datapath, record.bridge
            ),
            None => format!("; queue 0 got {zero}"),
        };
        return Some(format!("{port}: {}{why}", said.join(", ")));
    }
    if flows.is_empty() {
        return Some(format!(
            "{port}: no flow names a queue of it; auster queues flows prints such flows"
        ));
    }
    if flows.iter().all(|flow| flow.packets == 0) {
        return Some(format!(
            "{port}: no flow that names a queue counted a packet, so there is nothing to judge by; \
             verify it under traffic, or longer with --seconds"
        ));
    }
    None
}

fn text(document: &Document) -> String {
    let by = match document.made_by {
        Maker::Auster => "auster, in the kernel",
        Maker::OpenVswitch => "Open vSwitch",
    };
    let mut text = format!("{}: queues made by {by}", document.port);
    if let (Some(bridge), Some(datapath)) = (&document.bridge, &document.datapath) {
        let _ = write!(text, "; {bridge}, {datapath} datapath");
    }
    let _ = writeln!(text, "; {:.1} s", document.seconds);
    let header = [
        "queue",
        "prio",
        "at least",
        "at most",
        "packets",
        "Mbit/s",
        "dropped",
        "flows",
        "counted",
        "took effect",
    ];
    let rows = document.queues.iter().map(|queue| {
        let rate = |bps: u64| match queue.exists {
            true => Rate(bps).to_string(),
            false => "-".to_owned(),
        };
        vec![
            queue.queue.to_string(),
            queue.priority.to_string(),
            rate(queue.min_rate_bps),
            rate(queue.max_rate_bps),
            queue.packets.to_string(),
            format!("{:.1}", queue.rate_bps / 1e6),
            queue.dropped.to_string(),
            queue.flows.to_string(),
            queue.flow_packets.to_string(),
            match queue.effect {
                Effect::Yes => "yes",
                Effect::Partly => "partly",
                Effect::No => "NO",
                Effect::NoTraffic => "no traffic",
                Effect::NotNamed => "-",
            }
            .to_owned(),
        ]
    });
    text += &table(&header, &rows.collect::<Vec<_>>());
    match &document.flows {
        None => {
            text += "Flows were not read, so this only says what moved; name the bridge: --flows\n"
        }
        Some(flows) => {
            for flow in flows {
                let _ = writeln!(text, "  {:>9} packets  {}", flow.packets, flow.entry);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::multipart::FlowStats;
    use openflow::text::{parse_actions, parse_match};
    use openflow::{Cookie, TableId};

    const PORT: PortNo = PortNo(3);

    fn flow(words: &str, actions: &str, packet_count: u64) -> FlowStats {
        FlowStats {
            table_id: TableId(0),
            duration_sec: 1,
            duration_nsec: 0,
            priority: 9,
            idle_timeout: 0,
            hard_timeout: 0,
            flags: Default::default(),
            cookie: Cookie(0),
            packet_count,
            byte_count: 0,
            r#match: parse_match(words).unwrap(),
            instructions: vec![Instruction::ApplyActions(parse_actions(actions).unwrap())],
            importance: 0,
            stats: Vec::new(),
        }
    }

    fn state(packets: &[u64]) -> State {
        let queue = |(n, packets): (usize, &u64)| QueueState {
            queue: n as u16,
            is_default: n == 0,
            dscp: ["0-9,11-63", "10", "18"][n].to_owned(),
            packets: *packets,
            bytes: packets * 1000,
            ..QueueState::default()
        };
        State {
            rate_bps: 1,
            queues: packets.iter().enumerate().map(queue).collect(),
        }
    }

    fn queue_of_actions(words: &str, actions: &str, maker: Maker) -> Option<(u16, By)> {
        let queue_of = |c: u8| match c {
            10 => Some(1),
            18 => Some(2),
            _ => None,
        };
        queue_named(&flow(words, actions, 0), PORT, maker, &queue_of)
    }

    #[test]
    fn the_queue_of_a_flow_is_what_holds_when_it_reaches_the_port() {
        let ours = |words: &str, actions: &str| queue_of_actions(words, actions, Maker::Auster);
        for (actions, queue) in [
            ("set_queue:2,output:3", Some((2, By::SetQueue))),
            ("set_field:10->ip_dscp,output:3", Some((1, By::Dscp))),
            (
                "set_queue:2,set_field:10->ip_dscp,output:3",
                Some((2, By::SetQueue)),
            ),
            ("output:3,set_queue:2,output:4", None),
            ("set_queue:2,output:4", None),
            ("output:3", None),
        ] {
            assert_eq!(ours("ip", actions), queue, "{actions}");
        }
        assert_eq!(ours("ip,ip_dscp=18", "output:3"), Some((2, By::Dscp)));
        let theirs = queue_of_actions("ip", "set_field:10->ip_dscp,output:3", Maker::OpenVswitch);
        assert_eq!(
            theirs, None,
            "its queues are chosen by nothing but set_queue"
        );
    }

    fn verdicts(before: &[u64], after: &[u64], counted: [u64; 2]) -> Vec<QueueVerdict> {
        let flows: Vec<FlowStats> = (1..=2)
            .map(|n| {
                let words = format!("udp,tp_dst={n}");
                flow(
                    &words,
                    &format!("set_queue:{n},output:3"),
                    counted[n - 1] + 5,
                )
            })
            .collect();
        let mut old = flows.clone();
        old.iter_mut().for_each(|flow| flow.packet_count = 5);
        let after = state(after);
        let named = named(&old, &flows, PORT, Maker::Auster, &after);
        assert_eq!(named[0].packets, counted[0]);
        assert!(
            named[0].entry.contains("tp_dst=1 actions=set_queue:1"),
            "{named:?}"
        );
        judge(&state(before), &after, &named, 2.0)
    }

    fn effects(queues: &[QueueVerdict]) -> Vec<Effect> {
        queues.iter().map(|queue| queue.effect).collect()
    }

    #[test]
    fn counters_of_queues_are_held_against_those_of_their_flows() {
        use Effect::*;
        let queues = verdicts(&[0, 10, 10], &[0, 110, 60], [100, 100]);
        assert_eq!(effects(&queues), [NotNamed, Yes, Yes]);
        assert_eq!((queues[1].packets, queues[1].rate_bps), (100, 400_000.0));
        assert_eq!(
            effects(&verdicts(&[0, 0, 0], &[200, 0, 9], [100, 100])),
            [NotNamed, No, No]
        );
        assert_eq!(
            effects(&verdicts(&[0, 0, 0], &[200, 20, 0], [100, 0])),
            [NotNamed, Partly, NoTraffic]
        );
        let missing = verdicts(&[0, 0], &[100, 0], [0, 100]);
        assert_eq!(effects(&missing), [NotNamed, NoTraffic, No]);
        assert!(!missing[2].exists);
    }

    #[test]
    fn the_reason_names_queue_0_and_what_is_missing() {
        let said = |queues: &[QueueVerdict], flows: &[FlowVerdict]| {
            problem(queues, Some(flows), None, "p").unwrap_or_default()
        };
        let flow = |packets| FlowVerdict {
            entry: String::new(),
            queue: 1,
            by: By::SetQueue,
            packets,
        };
        let missed = verdicts(&[0, 0], &[200, 0], [100, 100]);
        let text = said(&missed, &[flow(100)]);
        assert!(text.contains("queue 1 got 0 of 100 packets"), "{text}");
        assert!(text.contains("there is no queue 2 for 100"), "{text}");
        assert!(text.contains("queue 0 got 200"), "{text}");
        let quiet = verdicts(&[0, 0, 0], &[0, 0, 0], [0, 0]);
        assert!(said(&quiet, &[flow(0)]).contains("nothing to judge by"));
        assert!(said(&quiet, &[]).contains("no flow names a queue"));
        let well = verdicts(&[0, 0, 0], &[0, 100, 100], [100, 100]);
        assert_eq!(said(&well, &[flow(100)]), "");
        assert_eq!(problem(&missed, None, None, "p"), None);
    }

    #[test]
    fn runs_are_read_as_they_are_shown() {
        assert!(contains("0-9,11-63", 9) && contains("0-9,11-63", 63) && contains("10", 10));
        assert!(!contains("0-9,11-63", 10) && !contains("", 0));
    }
}
