//! The rule that matches a message, and why.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clock::Instant;
use openflow::{DatapathId, Frame, Message, MessageKind, PacketFields, Version, Xid, encode, text};
use sched::classify::Buffers;
use sched::policy::{Rule, field_name, field_text};
use sched::{Binding, Classifier, Direction, Explanation, Miss, PolicyMap};

use crate::ofp::{self, Captured};
use cli::failure::Failure;

#[derive(clap::Args)]
pub struct Args {
    /// A file with a map, or auster or paper
    #[arg(long, value_name = "MAP", default_value = "auster")]
    policy: String,

    /// The direction of messages: up, to the controller, or down, to the switch. Without it, their
    /// type decides, and in captures the port
    #[arg(long, value_name = "WAY")]
    direction: Option<DirectionArg>,

    /// The switch of the messages, as a datapath id; without it, each connection in a capture names
    /// its own
    #[arg(long, value_name = "DPID")]
    datapath: Option<openflow::DatapathId>,

    /// Explain why each earlier rule does not match
    #[arg(short, long)]
    verbose: bool,

    /// An OpenFlow 1.3 FLOW_MOD in ovs-ofctl syntax
    #[arg(long, value_name = "FLOW", group = "what")]
    flow: Option<String>,

    /// All messages of a classic pcap file, with the number of hits of each rule
    #[arg(long, value_name = "FILE", group = "what")]
    pcap: Option<PathBuf>,

    /// The controller's TCP ports for OpenFlow, in captures
    #[arg(
        long = "port", value_name = "PORT", default_values_t = [6653, 6633],
        value_delimiter = ','
    )]
    ports: Vec<u16>,

    /// One or more messages in hex, spaces allowed; `-` reads them from standard input
    #[arg(value_name = "HEX", group = "what")]
    hex: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum DirectionArg {
    Up,
    Down,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let map = config::policy::load(&args.policy)?;
    let mut explainer = Explainer {
        args,
        classifier: Classifier::new(&map),
        map,
        hits: BTreeMap::new(),
        switches: BTreeMap::new(),
        buffers: Buffers::default(),
        out: std::io::BufWriter::new(std::io::stdout().lock()),
    };
    if let Some(flow) = &args.flow {
        explainer.explain(&flow_mod(flow)?, &Source::default())?;
    } else if let Some(file) = &args.pcap {
        ofp::each_of_capture(file, &args.ports, |captured| {
            let source = explainer.source(captured);
            explainer.explain(&captured.frame, &source)
        })?;
        explainer.summary()?;
    } else if args.hex.is_empty() {
        return Err(Failure::usage(
            "nothing to explain: give messages in hex, --flow FLOW or --pcap FILE",
        ));
    } else {
        ofp::each_of_hex(&args.hex, |frame| {
            explainer.explain(frame, &Source::default())
        })?;
    }
    explainer.out.flush().map_err(Failure::negative)
}

fn flow_mod(flow: &str) -> Result<Frame, Failure> {
    let wrong = |e: &dyn std::fmt::Display| Failure::usage(format!("--flow: {e}"));
    let flow_mod = text::parse_flow_mod(flow).map_err(|e| wrong(&e))?;
    encode(Version::V13, Xid(1), &Message::FlowMod(flow_mod)).map_err(|e| wrong(&e))
}

struct Explainer<'a, W> {
    args: &'a Args,
    map: PolicyMap,
    classifier: Classifier,
    /// Messages by index of the rule; `None` is the default.
    hits: BTreeMap<Option<usize>, u64>,
    /// The connections of a capture: a number for each, and the switch once it has named itself.
    switches: BTreeMap<SocketAddr, (u64, Option<DatapathId>)>,
    buffers: Buffers,
    out: W,
}

/// The origin of a message, as far as it is known.
#[derive(Default)]
struct Source {
    /// Both ends of the connection, for display.
    ends: String,
    way: Option<Direction>,
    datapath: Option<DatapathId>,
    /// The packet in the buffer that the message names.
    kept: Option<PacketFields>,
}

impl<W: Write> Explainer<'_, W> {
    fn source(&mut self, captured: &Captured) -> Source {
        let is_down = self.args.ports.contains(&captured.src.port());
        let (switch, way) = match is_down {
            true => (captured.dst, Direction::ToSwitch),
            false => (captured.src, Direction::ToController),
        };
        let frame = &captured.frame;
        let number = self.switches.len() as u64;
        let (channel, said) = self.switches.entry(switch).or_insert((number, None));
        if let Ok(Message::FeaturesReply(features)) = openflow::decode(frame) {
            *said = Some(features.datapath_id);
        }
        let datapath = self.args.datapath.or(*said);
        let now = Instant::START + captured.time;
        self.buffers
            .handle_packet_in(now, *channel, datapath, frame);
        let kept = self.buffers.fields(now, *channel, datapath, frame);
        Source {
            ends: format!(
                "{} > {}: ",
                ofp::dotted(captured.src),
                ofp::dotted(captured.dst)
            ),
            way: Some(way),
            datapath,
            kept: kept.cloned(),
        }
    }

    fn explain(&mut self, frame: &Frame, source: &Source) -> Result<(), Failure> {
        let direction = match self.args.direction {
            Some(DirectionArg::Up) => Direction::ToController,
            Some(DirectionArg::Down) => Direction::ToSwitch,
            None => source.way.unwrap_or_else(|| usual_way(frame.kind())),
        };
        let datapath = self.args.datapath.or(source.datapath);
        let kept = source.kept.as_ref();
        let Explanation {
            verdict, misses, ..
        } = self
            .classifier
            .explain_kept(frame, direction, datapath, kept);
        *self.hits.entry(verdict.rule).or_default() += 1;
        let way = match direction {
            Direction::ToController => "up",
            Direction::ToSwitch => "down",
        };
        let header = text::header(frame);
        let traffic = verdict.traffic;
        self.line(&format!(
            "{}{} {way}, traffic_type={} ({})",
            source.ends,
            header.trim_end_matches(':'),
            traffic as u8,
            traffic.name()
        ))?;
        if self.args.verbose {
            for (at, miss) in misses.iter().enumerate() {
                let rule = &self.map.rules[at];
                let why = reason(rule, miss, traffic as u8, frame);
                self.line(&format!("  #{} does not match: {why}", rule.id))?;
            }
        }
        let who = match verdict.rule {
            Some(rule) => self.map.rules[rule].to_string(),
            None => format!("Default: action={}", self.map.default),
        };
        let dscp = match verdict.tag.dscp {
            Some(dscp) => format!(", DSCP {dscp}"),
            None => String::new(),
        };
        self.line(&format!("  {who}"))?;
        self.line(&format!(
            "  queue {}{dscp}; order: {}",
            verdict.tag.queue,
            order(verdict.tag.binding)
        ))
    }

    fn summary(&mut self) -> Result<(), Failure> {
        let hits = std::mem::take(&mut self.hits);
        self.line("messages by rule:")?;
        for (at, rule) in self.map.rules.clone().iter().enumerate() {
            let count = hits.get(&Some(at)).copied().unwrap_or(0);
            self.line(&format!("{count:>8}  {rule}"))?;
        }
        let count = hits.get(&None).copied().unwrap_or(0);
        self.line(&format!("{count:>8}  Default: action={}", self.map.default))
    }

    fn line(&mut self, text: &str) -> Result<(), Failure> {
        ofp::write_line(&mut self.out, text)
    }
}

fn reason(rule: &Rule, miss: &Miss, traffic: u8, frame: &Frame) -> String {
    match miss {
        Miss::Traffic => format!(
            "traffic_type is {traffic}, not {}",
            rule.traffic.map_or(0, |traffic| traffic as u8)
        ),
        Miss::Message => format!(
            "msg is {}, not {}",
            frame.kind().name(),
            rule.message.map_or("any", MessageKind::name)
        ),
        Miss::Direction => "dir: it goes the other way".to_owned(),
        Miss::Datapath => "dpid: it is of another switch, or of one not known".to_owned(),
        Miss::Xid => format!("xid is {:#x}", frame.xid().0),
        Miss::NoPacket => "it carries no packet and names no flow".to_owned(),
        Miss::Packet { field, found } => {
            let name = field_name(*field);
            let found = match found {
                Some(value) => format!("is {}", field_text(*field, *value, None)),
                None => "is not in the packet".to_owned(),
            };
            format!("{name} {found}, not {}", wanted(rule, *field))
        }
        Miss::Flow { field, found } => {
            let name = field_name(*field);
            let found = match found {
                Some((value, mask)) => {
                    let mask = Some(*mask).filter(|mask| *mask != field.ones());
                    format!("of the flow is {}", field_text(*field, *value, mask))
                }
                None => "of the flow may be anything".to_owned(),
            };
            format!("{name} {found}, not {}", wanted(rule, *field))
        }
    }
}

fn wanted(rule: &Rule, field: openflow::Field) -> String {
    match rule.fields.get(field) {
        Some((value, mask)) => field_text(field, value, Some(mask).filter(|m| *m != field.ones())),
        None => "what the rule asks for".to_owned(),
    }
}

fn order(binding: Binding) -> String {
    match binding {
        Binding::Fence => "nothing crosses it".into(),
        Binding::State => "after all state messages before it".into(),
        Binding::Flow {
            after_state: true, ..
        } => "after its flow's packets and the state messages before it".into(),
        Binding::Flow { .. } => "after its flow's packets".into(),
        Binding::Exchange => "after requests and state messages before it".into(),
        Binding::Free => "free".into(),
    }
}

/// The direction of messages of this kind; down for kinds sent in both directions.
fn usual_way(kind: MessageKind) -> Direction {
    use MessageKind as K;
    match kind {
        K::Error
        | K::FeaturesReply
        | K::GetConfigReply
        | K::PacketIn
        | K::FlowRemoved
        | K::PortStatus
        | K::MultipartReply
        | K::BarrierReply
        | K::QueueGetConfigReply
        | K::RoleReply
        | K::GetAsyncReply
        | K::RoleStatus
        | K::TableStatus
        | K::RequestForward
        | K::ControllerStatus => Direction::ToController,
        _ => Direction::ToSwitch,
    }
}
