//! Which cells are measured: the tables' presets, or what the flags say; and what a cell costs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sched::Direction;
use serde::Serialize;
use sim::link::{Burst, Jitter, LinkConfig};

use super::method::{METHODS, Method};
use super::source::{MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, Source};

/// Frames at the start of each direction that are not lost, per agent: they set its connection up.
const SPARED_FRAMES_PER_AGENT: u64 = 20;
/// The round-trip time above which a tenth of a millisecond of the machine's does not matter.
pub const LONG_RTT_MS: f64 = 20.0;

/// One measurement: a method under one condition, with one seed.
#[derive(Clone, Debug)]
pub struct Cell {
    pub table: Table,
    pub method: &'static Method,
    pub condition: Condition,
    pub agents: usize,
    pub messages_per_agent: u32,
    pub seed: u64,
}

/// The condition that the methods of a table's column share.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Messages a second at each end: its agents share it.
    pub rate_per_s: f64,
    pub loss_percent: f64,
    pub bursts: Bursts,
    pub rtt: Rtt,
    pub sizes: Sizes,
}

/// A table of the issue, or a grid of the operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// Bytes and frames per message by rate, RTT 0.32 ms
    Overhead,
    /// Delay by loss and rate, RTT 100 ms and 150±50 ms
    DelayLong,
    /// Delay by loss, RTT 0.32 ms
    DelayShort,
    /// Delay of messages of 400 and 600 bytes, and of 3000 and 600, RTT 100 ms and 0.32 ms
    Sizes,
    /// Bytes that the relay saves against TCP and TLS by rate, RTT 0.32 ms, 1 % loss
    ClaimsOverhead,
    /// Delay that the relay saves against them at 0, 1 and 5 % loss, alone and with duplicates
    ClaimsDelay,
    /// The relay as it is is never worse than the better of TCP and TLS
    ClaimsNeverWorse,
    /// The cells of --rate, --loss, --rtt, --size and --agents
    #[value(skip)]
    Grid,
}

/// Mean and standard deviation of the round trip without load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rtt {
    pub ms: f64,
    pub deviation_ms: f64,
}

/// How loss comes: each frame by itself, or in bad times, as the Gilbert-Elliott model has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// The mean length of a bad time in frames; 0 for no such times.
    pub frames: f64,
    /// Loss of the frames in a bad time.
    pub loss_percent: f64,
}

/// Messages are of these sizes in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<usize>);

/// The flags; an empty list says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    pub tables: Vec<Table>,
    pub methods: Vec<&'static Method>,
    pub rates_per_s: Vec<f64>,
    pub losses_percent: Vec<f64>,
    pub bursts: Vec<Bursts>,
    pub rtts: Vec<Rtt>,
    pub sizes: Vec<Sizes>,
    pub agents: Option<usize>,
    pub seconds: Option<f64>,
    /// The share of a table's seconds to run: for a quick look.
    pub share: f64,
    pub seeds: u64,
    pub seed: u64,
}

impl Choice {
    /// The cells, table by table. With tables, the other flags keep what fits them; without, they
    /// make a grid.
    pub fn cells(&self) -> Result<Vec<Cell>, String> {
        let mut cells = Vec::new();
        if self.tables.is_empty() {
            let methods = or_default(&self.methods, ["tcp", "tls", "quic-2s", "relay"].map(named));
            let agents = self.agents.unwrap_or(AGENTS);
            for condition in self.grid()? {
                self.add(Table::Grid, &methods, &condition, agents, &mut cells);
            }
            return Ok(cells);
        }
        for &table in &self.tables {
            for group in table.preset() {
                let methods: Vec<&'static Method> = group
                    .methods
                    .into_iter()
                    .map(named)
                    .filter(|method| is_chosen(&self.methods, method))
                    .collect();
                // A number of agents that was asked for is asked of what the table has of two.
                let agents = match self.agents {
                    Some(agents) if group.agents == [AGENTS] => vec![agents],
                    Some(_) => Vec::new(),
                    None => group.agents,
                };
                for agents in agents {
                    for condition in group.conditions.iter().filter(|c| self.keeps(c)) {
                        self.add(table, &methods, condition, agents, &mut cells);
                    }
                }
            }
        }
        if cells.is_empty() {
            return Err(
                "no cell of the table fits --method, --rate, --loss, --burst, --rtt and \
                 --size; \
                 without --table they make a grid of their own"
                    .to_owned(),
            );
        }
        Ok(cells)
    }

    fn grid(&self) -> Result<Vec<Condition>, String> {
        let mut grid = Vec::new();
        for sizes in or_default(&self.sizes, [Sizes(vec![220])]) {
            for rtt in or_default(&self.rtts, [LONG]) {
                for &rate_per_s in &or_default(&self.rates_per_s, [100.0]) {
                    for &bursts in &or_default(&self.bursts, [Bursts::NONE]) {
                        for &loss_percent in &or_default(&self.losses_percent, [0.0, 1.0]) {
                            bursts.check(loss_percent)?;
                            grid.push(Condition {
                                rate_per_s,
                                loss_percent,
                                bursts,
                                rtt,
                                sizes: sizes.clone(),
                            });
                        }
                    }
                }
            }
        }
        Ok(grid)
    }

    fn keeps(&self, condition: &Condition) -> bool {
        is_chosen(&self.rates_per_s, &condition.rate_per_s)
            && is_chosen(&self.losses_percent, &condition.loss_percent)
            && is_chosen(&self.bursts, &condition.bursts)
            && is_chosen(&self.rtts, &condition.rtt)
            && is_chosen(&self.sizes, &condition.sizes)
    }

    fn add(
        &self,
        table: Table,
        methods: &[&'static Method],
        condition: &Condition,
        agents: usize,
        cells: &mut Vec<Cell>,
    ) {
        let seconds = self.seconds;
        let seconds = seconds.unwrap_or_else(|| self.share * table.seconds(condition));
        let messages = condition.rate_per_s * seconds / agents as f64;
        for seed in self.seed..self.seed + self.seeds {
            cells.extend(methods.iter().map(|method| Cell {
                table,
                method,
                condition: condition.clone(),
                agents,
                messages_per_agent: (messages.round() as u32).max(1),
                seed,
            }));
        }
    }
}

const SHORT: Rtt = Rtt {
    ms: 0.32,
    deviation_ms: 0.0,
};
const LONG: Rtt = Rtt {
    ms: 100.0,
    deviation_ms: 0.0,
};
const VARYING: Rtt = Rtt {
    ms: 150.0,
    deviation_ms: 50.0,
};
/// Bursts as wireless links and full queues have them, long enough to take a message and its copy.
const BURSTS: Bursts = Bursts {
    frames: 4.0,
    loss_percent: 100.0,
};
/// Agents at each end by default: OpenFlow and OVSDB.
pub const AGENTS: usize = 2;
const BASELINES: [&str; 5] = ["tcp", "tcp-nagle", "tls", "tls-nagle", "tls-shared"];
const STOCK_QUIC: [&str; 4] = ["quic-2s", "quic-16s", "quic-msg", "relay"];

impl Table {
    pub const CLAIMS: [Table; 3] = [
        Table::ClaimsOverhead,
        Table::ClaimsDelay,
        Table::ClaimsNeverWorse,
    ];
    pub const PRESETS: [Table; 4] = [
        Table::Overhead,
        Table::DelayLong,
        Table::DelayShort,
        Table::Sizes,
    ];

    /// Whether its figures are held to what is claimed.
    pub fn has_claims(self) -> bool {
        Table::CLAIMS.contains(&self)
    }

    pub fn title(self) -> &'static str {
        match self {
            Table::Overhead => "Overhead",
            Table::DelayLong => "Delay on a long path",
            Table::DelayShort => "Delay on a short path",
            Table::Sizes => "Delay of messages of two sizes",
            Table::ClaimsOverhead => "Claims on overhead",
            Table::ClaimsDelay => "Claims on delay",
            Table::ClaimsNeverWorse => "Claims on the default",
            Table::Grid => "Grid",
        }
    }

    fn preset(self) -> Vec<Group> {
        let at = |rate_per_s, loss_percent, rtt, sizes: &[usize]| Condition {
            rate_per_s,
            loss_percent,
            bursts: Bursts::NONE,
            rtt,
            sizes: Sizes(sizes.to_vec()),
        };
        let in_bursts = |condition: Condition| Condition {
            bursts: BURSTS,
            ..condition
        };
        let of_two = |methods: &[&'static str], conditions: &[Condition]| Group {
            methods: methods.to_vec(),
            conditions: conditions.to_vec(),
            agents: vec![AGENTS],
        };
        const ONE: [usize; 1] = [220];
        let losses = [0.0, 1.0, 5.0];
        let stock = [&BASELINES[..], &STOCK_QUIC].concat();
        let bbr = ["tcp-bbr", "quic-2s-bbr", "quic-msg-bbr"];
        let floor = ["quic-2s-floor", "quic-16s-floor", "quic-msg-floor"];
        match self {
            Table::Overhead => {
                let windows = ["tls-1ms", "tls-5ms", "tls-shared-1ms", "tls-shared-5ms"];
                let thin = ["quic-2s-t", "quic-2s-t-1ms", "quic-2s-t-5ms"];
                let thousand = losses.map(|loss| at(1000.0, loss, SHORT, &ONE));
                vec![of_two(
                    &[&stock[..], &windows, &thin].concat(),
                    &[
                        &[at(10.0, 1.0, SHORT, &ONE)][..],
                        &thousand,
                        &[at(10_000.0, 1.0, SHORT, &ONE)],
                    ]
                    .concat(),
                )]
            }
            Table::DelayLong => {
                let hundred = losses.map(|loss| at(100.0, loss, LONG, &ONE));
                let thousand = [1.0, 5.0].map(|loss| at(1000.0, loss, LONG, &ONE));
                let varying = losses.map(|loss| at(100.0, loss, VARYING, &ONE));
                let all = [&stock[..], &bbr, &floor].concat();
                vec![of_two(&all, &[&hundred[..], &thousand, &varying].concat())]
            }
            Table::DelayShort => {
                let tuned = [&stock[..], &["tcp-rto5", "tls-rto5"]].concat();
                let conditions = losses.map(|loss| at(1000.0, loss, SHORT, &ONE));
                vec![of_two(&tuned, &conditions)]
            }
            Table::Sizes => {
                let pairs = [[400, 600], [3000, 600]];
                let conditions = |rtt: Rtt| {
                    let of_pair = |pair| losses.map(|loss| at(100.0, loss, rtt, pair));
                    pairs.each_ref().map(|pair| of_pair(&pair[..])).concat()
                };
                let long = [&stock[..], &bbr, &floor].concat();
                vec![
                    of_two(&long, &conditions(LONG)),
                    of_two(&[&stock[..], &floor].concat(), &conditions(SHORT)),
                ]
            }
            Table::ClaimsOverhead => {
                let windows = ["tls-1ms", "tls-5ms", "tls-shared-1ms"];
                let relays = ["relay", "relay-1ms", "relay-1.2ms", "relay-5ms"];
                let rates = [10.0, 100.0, 1000.0, 10_000.0];
                let held = [1000.0, 10_000.0].map(|rate| at(rate, 1.0, SHORT, &ONE));
                vec![
                    of_two(
                        &[&BASELINES[..4], &windows, &relays].concat(),
                        &rates.map(|rate| at(rate, 1.0, SHORT, &ONE)),
                    ),
                    Group {
                        methods: vec!["tcp", "tls", "relay", "relay-1.2ms", "relay-5ms"],
                        conditions: held.to_vec(),
                        agents: vec![4, 8, 16],
                    },
                ]
            }
            Table::ClaimsDelay => {
                let sizes = [&ONE[..], &[400, 600], &[3000, 600]];
                let long = sizes.map(|s| losses.map(|loss| at(100.0, loss, LONG, s)));
                let varying = losses.map(|loss| at(100.0, loss, VARYING, &ONE));
                let bursts = [LONG, VARYING].map(|rtt| in_bursts(at(100.0, 5.0, rtt, &ONE)));
                let mut short = losses.map(|loss| at(1000.0, loss, SHORT, &ONE)).to_vec();
                short.push(in_bursts(at(1000.0, 5.0, SHORT, &ONE)));
                let methods = ["tcp", "tls", "tcp-nagle", "relay", "relay-dup"];
                vec![
                    of_two(&methods, &[&long.concat()[..], &varying, &bursts].concat()),
                    of_two(&[&methods[..], &["tcp-rto5"]].concat(), &short),
                ]
            }
            Table::ClaimsNeverWorse => {
                let mut conditions = Vec::new();
                for rtt in [LONG, SHORT] {
                    for (rate, sizes) in [
                        (10.0, &ONE[..]),
                        (100.0, &ONE),
                        (1000.0, &ONE),
                        (100.0, &[400, 600]),
                        (100.0, &[3000, 600]),
                    ] {
                        conditions.extend(losses.map(|loss| at(rate, loss, rtt, sizes)));
                    }
                }
                conditions.extend(losses.map(|loss| at(100.0, loss, VARYING, &ONE)));
                for (rate, rtt) in [
                    (100.0, LONG),
                    (1000.0, LONG),
                    (100.0, VARYING),
                    (1000.0, SHORT),
                ] {
                    conditions.extend([1.0, 5.0].map(|loss| in_bursts(at(rate, loss, rtt, &ONE))));
                }
                conditions.push(at(10_000.0, 1.0, SHORT, &ONE));
                vec![of_two(&["tcp", "tls", "relay"], &conditions)]
            }
            Table::Grid => Vec::new(),
        }
    }

    /// How long messages are sent: enough of them for a 99th percentile, or 300 in all where they
    /// are few.
    fn seconds(self, condition: &Condition) -> f64 {
        let is_short = condition.rtt.ms < LONG_RTT_MS;
        match condition.rate_per_s {
            rate if rate <= 10.0 => 15.0,
            rate if rate <= 100.0 && is_short => 8.0,
            rate if rate <= 100.0 => 20.0,
            rate if rate <= 1000.0 && matches!(self, Table::Overhead | Table::ClaimsOverhead) => {
                5.0
            }
            rate if rate <= 1000.0 && is_short => 8.0,
            rate if rate <= 1000.0 => 12.0,
            rate => (20_000.0 / rate).max(1.0),
        }
    }
}

/// Methods under the same conditions.
struct Group {
    methods: Vec<&'static str>,
    conditions: Vec<Condition>,
    agents: Vec<usize>,
}

impl Cell {
    pub fn link_config(&self) -> LinkConfig {
        let Condition {
            loss_percent,
            bursts,
            rtt,
            ..
        } = self.condition;
        // Two independent directions add up to the round trip's mean and deviation.
        let one_way = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        let deviation = one_way(rtt.deviation_ms / 2f64.sqrt());
        LinkConfig {
            delay: one_way(rtt.ms / 2.0),
            jitter: match rtt.deviation_ms {
                0.0 => Jitter::None,
                _ => Jitter::Normal(deviation),
            },
            loss: loss_percent / 100.0,
            burst: bursts.model(),
            spared_frames: SPARED_FRAMES_PER_AGENT * self.agents as u64,
            ..LinkConfig::default()
        }
    }

    /// An end's agents.
    pub fn sources(&self, direction: Direction) -> Vec<Source> {
        let rate_per_s = self.condition.rate_per_s / self.agents as f64;
        let seed = match direction {
            Direction::ToController => self.seed,
            Direction::ToSwitch => !self.seed,
        };
        let source = |agent| {
            let sizes = &self.condition.sizes.0;
            Source::new(agent, rate_per_s, self.messages_per_agent, sizes, seed)
        };
        (0..self.agents as u16).map(source).collect()
    }

    /// When the last message is due.
    pub fn last_due(&self) -> Duration {
        [Direction::ToController, Direction::ToSwitch]
            .into_iter()
            .flat_map(|direction| self.sources(direction))
            .filter_map(|source| source.last())
            .map(|(stamp, _)| stamp.due)
            .max()
            .unwrap_or_default()
    }

    /// How long its messages are sent.
    pub fn nominal(&self) -> Duration {
        let messages = f64::from(self.messages_per_agent) * self.agents as f64;
        Duration::from_secs_f64(messages / self.condition.rate_per_s)
    }

    /// The number of messages of both ends.
    pub fn messages(&self) -> u64 {
        2 * self.agents as u64 * u64::from(self.messages_per_agent)
    }

    /// The number of `places` that this cell takes. Where a fraction of a millisecond counts, or
    /// the messages take much of a core, a cell has the machine to itself.
    pub fn places(&self, places: usize) -> usize {
        let Condition {
            rate_per_s, rtt, ..
        } = self.condition;
        match () {
            () if rate_per_s <= 10.0 => 1,
            () if rate_per_s <= 100.0 && rtt.ms >= LONG_RTT_MS => 1,
            () if rate_per_s <= 100.0 => places.div_ceil(2),
            () if rate_per_s <= 1000.0 && rtt.ms >= LONG_RTT_MS => places.div_ceil(2),
            () => places,
        }
    }
}

impl FromStr for Rtt {
    type Err = String;

    /// `0.32`, `150±50` or `150+-50`, in milliseconds.
    fn from_str(text: &str) -> Result<Rtt, String> {
        let split = text.split_once('±').or_else(|| text.split_once("+-"));
        let (mean, deviation) = split.unwrap_or((text, "0"));
        let wrong = || format!("'{text}' is no RTT; write milliseconds such as 0.32 or 150±50");
        let number = |text: &str| {
            let number = text.parse::<f64>().ok();
            number.filter(|n| (0.0..=10_000.0).contains(n))
        };
        let (ms, deviation_ms) = number(mean).zip(number(deviation)).ok_or_else(wrong)?;
        if deviation_ms > ms {
            return Err(format!(
                "'{text}': the deviation is more than the RTT itself"
            ));
        }
        Ok(Rtt { ms, deviation_ms })
    }
}

impl fmt::Display for Rtt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ms)?;
        match self.deviation_ms {
            0.0 => Ok(()),
            deviation_ms => write!(f, "±{deviation_ms}"),
        }
    }
}

impl Bursts {
    pub const NONE: Bursts = Bursts {
        frames: 0.0,
        loss_percent: 100.0,
    };

    /// Checks that `loss_percent` of all frames can be lost in bad times.
    pub fn check(self, loss_percent: f64) -> Result<(), String> {
        match self.model() {
            Some(burst) if !burst.can_lose(loss_percent / 100.0) => Err(format!(
                "--burst {self}: its bad times cannot lose {loss_percent} % of all frames"
            )),
            _ => Ok(()),
        }
    }

    fn model(self) -> Option<Burst> {
        (self.frames > 0.0).then_some(Burst {
            frames: self.frames,
            loss: self.loss_percent / 100.0,
        })
    }
}

impl FromStr for Bursts {
    type Err = String;

    /// `0`, `4` or `8:50`: frames, and percent of them.
    fn from_str(text: &str) -> Result<Bursts, String> {
        let (frames, percent) = text.split_once(':').unwrap_or((text, "100"));
        let wrong = || {
            format!(
                "'{text}' is no burst; write frames, 1 to 1000, such as 4, with the percent of \
                 them that are lost if not all, 8:50, or 0 for loss of each frame by itself"
            )
        };
        let frames = frames.parse::<f64>().ok();
        let frames = frames.filter(|n| *n == 0.0 || (1.0..=1000.0).contains(n));
        let percent = percent.parse::<f64>().ok();
        let percent = percent.filter(|n| *n >= 1.0 && *n <= 100.0);
        let (frames, loss_percent) = frames.zip(percent).ok_or_else(wrong)?;
        match frames {
            0.0 if text.contains(':') => Err(wrong()),
            _ => Ok(Bursts {
                frames,
                loss_percent,
            }),
        }
    }
}

impl fmt::Display for Bursts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.frames)?;
        match self.loss_percent {
            100.0 => Ok(()),
            percent => write!(f, ":{percent}"),
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    /// `220`, or `400/600` for the one and the other in turn.
    fn from_str(text: &str) -> Result<Sizes, String> {
        let sizes = text
            .split('/')
            .map(|word| word.parse().ok())
            .collect::<Option<Vec<usize>>>()
            .ok_or_else(|| format!("'{text}' is no size; write bytes such as 220 or 400/600"))?;
        let fits = |size: &usize| (MESSAGE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(size);
        if !sizes.iter().all(fits) {
            return Err(format!(
                "'{text}': a message has {MESSAGE_BYTES_MIN} to {MESSAGE_BYTES_MAX} bytes"
            ));
        }
        Ok(Sizes(sizes))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&sizes.join("/"))
    }
}

/// Also the line of a finished cell; see `report`.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} B, RTT {} ms, {} msg/s, {} %",
            self.sizes, self.rtt, self.rate_per_s, self.loss_percent
        )?;
        match self.bursts {
            Bursts::NONE => Ok(()),
            bursts => write!(f, " in bursts of {bursts}"),
        }
    }
}

fn named(name: &str) -> &'static Method {
    METHODS
        .iter()
        .find(|method| method.name == name)
        .expect("the presets' names are methods")
}

fn is_chosen<T: PartialEq>(chosen: &[T], one: &T) -> bool {
    chosen.is_empty() || chosen.contains(one)
}

fn or_default<T: Clone, const N: usize>(chosen: &[T], default: [T; N]) -> Vec<T> {
    match chosen {
        [] => default.to_vec(),
        _ => chosen.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice() -> Choice {
        Choice {
            seeds: 1,
            seed: 1,
            share: 1.0,
            ..Choice::default()
        }
    }

    #[test]
    fn the_tables_have_the_cells_of_the_issue() {
        let tables = Choice {
            tables: Table::PRESETS.to_vec(),
            ..choice()
        };
        let cells = tables.cells().unwrap();
        let has = |method: &str, rate, loss, rtt: &str, sizes: &str| {
            cells.iter().any(|cell| {
                cell.method.name == method
                    && cell.condition.to_string()
                        == format!("{sizes} B, RTT {rtt} ms, {rate} msg/s, {loss} %")
            })
        };
        for method in ["tcp", "tcp-nagle", "tls", "quic-2s", "quic-msg", "relay"] {
            assert!(has(method, 10, 1, "0.32", "220"), "{method}");
            assert!(has(method, 10_000, 1, "0.32", "220"), "{method}");
            assert!(has(method, 1000, 5, "100", "220"), "{method}");
            assert!(has(method, 100, 5, "150±50", "220"), "{method}");
            assert!(has(method, 100, 5, "100", "3000/600"), "{method}");
            assert!(has(method, 100, 1, "0.32", "400/600"), "{method}");
        }
        // 300 messages at 10 a second.
        let few = cells.iter().find(|c| c.condition.rate_per_s == 10.0);
        assert_eq!(few.unwrap().messages(), 300);
    }

    #[test]
    fn flags_narrow_a_table_or_make_a_grid() {
        let narrow = Choice {
            tables: vec![Table::DelayShort],
            methods: vec![named("tcp"), named("relay")],
            losses_percent: vec![5.0],
            seeds: 3,
            ..choice()
        };
        assert_eq!(narrow.cells().unwrap().len(), 6);
        let nothing = Choice {
            rtts: vec![LONG],
            ..narrow.clone()
        };
        assert!(nothing.cells().unwrap_err().contains("--rtt"));
        let grid = Choice {
            tables: Vec::new(),
            agents: Some(8),
            seconds: Some(2.0),
            ..narrow
        };
        let cells = grid.cells().unwrap();
        assert_eq!((cells.len(), cells[0].messages()), (6, 400));
        assert_eq!(cells[0].sources(Direction::ToSwitch).len(), 8);
    }

    #[test]
    fn bursts_are_of_some_frames_and_can_lose_what_is_lost() {
        for text in ["0", "1", "4", "8:50", "2.5:99.5"] {
            assert_eq!(text.parse::<Bursts>().unwrap().to_string(), text);
        }
        for wrong in [
            "", "0.5", "-4", "1001", "4:", "4:0", "4:101", "0:50", "nan", "4:nan", "a",
        ] {
            assert!(wrong.parse::<Bursts>().is_err(), "{wrong}");
        }
        let bursts = |text: &str, loss: f64| Choice {
            bursts: vec![text.parse().unwrap()],
            losses_percent: vec![loss],
            ..choice()
        };
        let problem = bursts("8:5", 5.0).cells().unwrap_err();
        assert!(problem.contains("--burst 8:5: "), "{problem}");
        let cells = bursts("8:50", 5.0).cells().unwrap();
        let link = cells[0].link_config();
        let expected = Burst {
            frames: 8.0,
            loss: 0.5,
        };
        assert_eq!((link.loss, link.burst), (0.05, Some(expected)));
        assert!(
            cells[0]
                .condition
                .to_string()
                .ends_with("5 % in bursts of 8:50")
        );
        assert_eq!(
            bursts("0", 5.0).cells().unwrap()[0].link_config().burst,
            None
        );
    }

    #[test]
    fn more_agents_are_in_the_claims_and_a_chosen_number_takes_the_place_of_two() {
        let agents = |agents: Option<usize>| {
            let choice = Choice {
                tables: vec![Table::ClaimsOverhead],
                methods: vec![named("tcp")],
                agents,
                ..choice()
            };
            let cells = choice.cells().unwrap();
            let of = |cell: &Cell| (cell.agents, cell.condition.rate_per_s);
            cells.iter().map(of).collect::<Vec<_>>()
        };
        let rates = [10.0, 100.0, 1000.0, 10_000.0];
        let mut expected: Vec<(usize, f64)> = rates.map(|rate| (2, rate)).to_vec();
        expected.extend(
            [4, 8, 16]
                .iter()
                .flat_map(|n| [(*n, 1000.0), (*n, 10_000.0)]),
        );
        assert_eq!(agents(None), expected);
        assert_eq!(agents(Some(4)), rates.map(|rate| (4, rate)));
    }

    #[test]
    fn rtts_and_sizes_are_written_as_they_are_read() {
        for text in ["0.32", "100", "150±50"] {
            assert_eq!(text.parse::<Rtt>().unwrap().to_string(), text);
        }
        assert_eq!("150+-50".parse::<Rtt>(), "150±50".parse());
        for wrong in ["", "fast", "-1", "10±20", "nan", "1e9"] {
            assert!(wrong.parse::<Rtt>().is_err(), "{wrong}");
        }
        assert_eq!("400/600".parse::<Sizes>().unwrap().0, [400, 600]);
        for wrong in ["", "99", "70000", "220/", "a"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn both_directions_make_the_round_trip() {
        let cell = Choice {
            rtts: vec![VARYING],
            ..choice()
        }
        .cells()
        .unwrap()
        .remove(0);
        let link = cell.link_config();
        assert_eq!(link.delay, Duration::from_millis(75));
        let Jitter::Normal(deviation) = link.jitter else {
            panic!("{:?}", link.jitter);
        };
        assert!((deviation.as_secs_f64() * 1e3 * 2f64.sqrt() - 50.0).abs() < 1e-6);
        assert_eq!(link.spared_frames, 40);
    }

    #[test]
    fn cells_that_need_the_machine_have_it() {
        let places = |rate, rtt| {
            let cells = Choice {
                rates_per_s: vec![rate],
                rtts: vec![rtt],
                ..choice()
            }
            .cells();
            cells.unwrap()[0].places(6)
        };
        assert_eq!(places(100.0, LONG), 1);
        assert_eq!(places(1000.0, LONG), 3);
        assert_eq!(places(10.0, SHORT), 1);
        assert_eq!(places(100.0, SHORT), 3);
        assert_eq!(places(1000.0, SHORT), 6);
        assert_eq!(places(10_000.0, LONG), 6);
    }
}
