//! The planned queues of an interface: classes from a policy map and a link rate, or queues stated
//! one by one ([`stated`](super::stated)). No I/O.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

pub use control::qos::Rate;
use sched::policy::{Action, PolicyMap};

/// The number of code points: six bits.
pub const CODE_POINTS: u8 = 64;
/// Leaf queues longer than this only add delay.
const LEAF_PACKETS_MAX: u32 = 25;
/// Leaf queues shorter than this drop packets of one burst.
pub const LEAF_PACKETS_MIN: u32 = 4;
/// The bytes that the kernel charges a socket for a full Ethernet frame (measured; a 1500-byte
/// frame's buffer, its headroom and its descriptor).
const FRAME_TRUESIZE_BYTES: u32 = 2304;
/// The lowest rate of a link that is not an error of units: ten full frames a second.
pub const RATE_MIN: Rate = Rate(128_000);
/// `tc` prints rates in whole kilobits, and the rates set are read back.
pub const RATE_STEP: u64 = 1000;
/// HTB's priorities are 0 to 7.
pub const HTB_PRIORITY_MAX: u8 = 7;

/// All classes of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The rate of the link.
    pub rate: Rate,
    /// The classes by number. In a policy map, number 0 is the most urgent.
    pub classes: Vec<Class>,
    /// The class of unmarked packets, in `classes`.
    pub default: usize,
    /// The class of ARP, neighbour discovery and LLDP: without them nobody can use the link.
    pub neighbours: usize,
    /// Packets that each class may hold.
    pub leaf_packets: u32,
}

/// One class of an interface, for one queue of the map or of the operator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub queue: u8,
    /// 0 is served first.
    pub priority: u8,
    /// The class's number in `set_queue`, where Open vSwitch makes the queues. The default class
    /// has 0, Open vSwitch's queue for packets that no flow has marked.
    pub set_queue: u32,
    /// The guaranteed rate, whatever the other classes do. The rest is lent by priority.
    pub rate: Rate,
    /// The highest rate, even if some of the link is left.
    pub rate_max: Rate,
    /// The bytes that may be sent at once; if not stated, the amount that the rate needs.
    pub burst_bytes: Option<u64>,
    pub code_points: CodePoints,
    /// The code point that Open vSwitch writes into packets that a flow has put in this queue.
    pub mark: Option<u8>,
    /// Whether the map gives OpenFlow messages one of the class's code points.
    pub is_control: bool,
}

/// A set of code points.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CodePoints(u64);

/// All code points whose first `bits` bits are those of `value`: the set that one filter can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    pub value: u8,
    pub bits: u8,
}

impl Plan {
    /// The classes that `map` asks for on a link of `rate`.
    ///
    /// Open vSwitch sends to all of its ports through one socket, which holds `socket_bytes`. All
    /// classes together stay below that, so that a packet is dropped in its own class and not at
    /// the socket, where it could be of any class.
    ///
    /// # Errors
    /// Every problem, each in one line.
    pub fn new(map: &PolicyMap, rate: Rate, socket_bytes: u32) -> Result<Plan, Vec<String>> {
        let mut wrong = Vec::new();
        if rate < RATE_MIN {
            wrong.push(format!(
                "rate {rate} is below {RATE_MIN}; write it with its unit, such as 100mbit"
            ));
        }
        let queue_of = queues_of(map);
        let control = control_code_points(map);
        if control.is_empty() {
            wrong.push(
                "the policy map gives OpenFlow messages no code point, and packets are told apart \
                 by nothing else: write action=dscp:CS6 and the like"
                    .to_owned(),
            );
        }
        let unmarked = queue_of[0];
        for code_point in control.iter() {
            if queue_of[usize::from(code_point)] == unmarked {
                wrong.push(format!(
                    "OpenFlow messages of code point {code_point} are in queue {unmarked}, which \
                     is that of unmarked packets"
                ));
            }
        }
        let queues: BTreeSet<u8> = queue_of.into_iter().collect();
        let guaranteed = guarantees(map, &queues, rate).unwrap_or_else(|problem| {
            // If the rate itself is wrong, nothing more is reported about it.
            if rate >= RATE_MIN {
                wrong.push(problem);
            }
            vec![Rate(0); queues.len()]
        });
        if !wrong.is_empty() {
            return Err(wrong);
        }

        let control_queues = CodePoints::queues(control, &queue_of);
        let place = |queue: u8| queues.iter().position(|q| *q == queue);
        let default = place(unmarked).expect("every code point has a class");
        let classes: Vec<Class> = queues
            .iter()
            .zip(guaranteed)
            .enumerate()
            .map(|(rank, (&queue, guaranteed))| Class {
                queue,
                priority: (rank as u8).min(HTB_PRIORITY_MAX),
                set_queue: set_queue_number(rank, default),
                rate: guaranteed,
                rate_max: rate,
                burst_bytes: None,
                code_points: (0..CODE_POINTS)
                    .filter(|c| queue_of[usize::from(*c)] == queue)
                    .collect(),
                mark: None,
                is_control: control_queues.contains(&queue),
            })
            .collect();
        let last_control = control_queues.last().copied().and_then(place);
        Ok(Plan {
            rate,
            default,
            neighbours: last_control.expect("there is a control code point"),
            leaf_packets: leaf_packets(socket_bytes, classes.len()),
            classes,
        })
    }
}

/// Packets that each of so many classes may hold, so that all together stay below the socket's
/// limit.
pub fn leaf_packets(socket_bytes: u32, classes: usize) -> u32 {
    let share = socket_frames(socket_bytes) / classes.max(1) as u32;
    share.clamp(LEAF_PACKETS_MIN, LEAF_PACKETS_MAX)
}

/// Full frames that all classes together may hold.
pub fn socket_frames(socket_bytes: u32) -> u32 {
    socket_bytes / 10 * 9 / FRAME_TRUESIZE_BYTES
}

/// The default class is queue 0 of Open vSwitch; the others follow, the most urgent first.
fn set_queue_number(rank: usize, default: usize) -> u32 {
    match rank.cmp(&default) {
        Ordering::Less => rank as u32 + 1,
        Ordering::Equal => 0,
        Ordering::Greater => rank as u32,
    }
}

/// Code points that data packets must not keep. With one, a data packet would be in a class at
/// least as urgent as the least urgent class of OpenFlow messages (warning W01 of a policy map).
pub fn reserved_code_points(map: &PolicyMap) -> CodePoints {
    let queue_of = queues_of(map);
    let last_control = CodePoints::queues(control_code_points(map), &queue_of);
    let Some(last) = last_control.last() else {
        return CodePoints::default();
    };
    (0..CODE_POINTS)
        .filter(|c| queue_of[usize::from(*c)] <= *last)
        .collect()
}

/// Code points that the map gives to OpenFlow messages.
pub fn control_code_points(map: &PolicyMap) -> CodePoints {
    let of_messages = map
        .rules
        .iter()
        .filter(|rule| rule.traffic != Some(sched::TrafficType::Data));
    let marked = of_messages.filter_map(|rule| match rule.action {
        Action::Dscp(code_point) | Action::Both(_, code_point) => Some(code_point),
        Action::Queue(_) | Action::DscpCopy => None,
    });
    marked.collect()
}

/// The queue of each code point. An action with queue and code point counts like a line of the
/// map's table.
fn queues_of(map: &PolicyMap) -> [u8; CODE_POINTS as usize] {
    let mut queue_of = map.dscp_queue;
    for rule in &map.rules {
        if let Action::Both(queue, code_point) = rule.action {
            queue_of[usize::from(code_point)] = queue;
        }
    }
    queue_of
}

/// The guarantee of each queue: the rate it asks for, or else a share of the rest by weight.
fn guarantees(map: &PolicyMap, queues: &BTreeSet<u8>, rate: Rate) -> Result<Vec<Rate>, String> {
    let config = |queue: &u8| {
        let queues = &map.scheduling.queues;
        queues.get(usize::from(*queue)).cloned().unwrap_or_default()
    };
    let asked = |queue: &u8| config(queue).min_rate.map(|bytes| bytes.saturating_mul(8));
    let asked_sum: u64 = queues.iter().filter_map(asked).fold(0, u64::saturating_add);
    let open: Vec<&u8> = queues.iter().filter(|q| asked(q).is_none()).collect();
    let weight_sum: u64 = open.iter().map(|q| u64::from(config(q).weight)).sum();
    let left = rate.0.saturating_sub(asked_sum);
    if asked_sum > rate.0 || (left < RATE_STEP * weight_sum && !open.is_empty()) {
        return Err(format!(
            "the queues ask for {} at least and the link has {rate}: lower min_rate, or raise the \
             rate",
            Rate(asked_sum)
        ));
    }
    let share = |queue: &u8| match asked(queue) {
        Some(rate) => rate,
        None => left / weight_sum.max(1) * u64::from(config(queue).weight),
    };
    // HTB refuses zero, which is no guarantee.
    let whole = |rate: u64| Rate((rate / RATE_STEP * RATE_STEP).max(RATE_STEP));
    Ok(queues.iter().map(|queue| whole(share(queue))).collect())
}

impl CodePoints {
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, code_point: u8) -> bool {
        self.0 >> code_point & 1 == 1
    }

    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..CODE_POINTS).filter(move |c| self.contains(*c))
    }

    pub fn insert(&mut self, block: Block) {
        let count = 1u16 << (6 - block.bits);
        self.0 |= (((1u128 << count) - 1) as u64) << block.value;
    }

    /// The fewest blocks that make exactly this set.
    pub fn blocks(self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut next = 0u8;
        while next < CODE_POINTS {
            // The largest block that may begin here and is wholly in the set.
            let fits = (0..=6).find(|bits| {
                let mut block = CodePoints::default();
                let is_aligned = next.trailing_zeros() >= u32::from(6 - bits);
                if !is_aligned {
                    return false;
                }
                block.insert(Block {
                    value: next,
                    bits: *bits,
                });
                block.0 & !self.0 == 0
            });
            let bits = fits.unwrap_or(6);
            if fits.is_some() {
                blocks.push(Block { value: next, bits });
            }
            next += 1 << (6 - bits);
        }
        blocks
    }

    fn queues(of: CodePoints, queue_of: &[u8; CODE_POINTS as usize]) -> BTreeSet<u8> {
        of.iter().map(|c| queue_of[usize::from(c)]).collect()
    }
}

impl FromIterator<u8> for CodePoints {
    fn from_iter<I: IntoIterator<Item = u8>>(code_points: I) -> CodePoints {
        CodePoints(
            code_points
                .into_iter()
                .fold(0, |set, code_point| set | 1 << code_point),
        )
    }
}

impl fmt::Display for CodePoints {
    /// Runs of numbers: `0-39,46`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut next = 0;
        while next < CODE_POINTS {
            if !self.contains(next) {
                next += 1;
                continue;
            }
            let end = (next..CODE_POINTS).take_while(|c| self.contains(*c)).last();
            let end = end.unwrap_or(next);
            write!(f, "{separator}{next}")?;
            if end > next {
                write!(f, "-{end}")?;
            }
            separator = ",";
            next = end + 1;
        }
        Ok(())
    }
}

impl fmt::Debug for CodePoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use sched::policy::QueueConfig;

    pub const SOCKET_BYTES: u32 = 212_992;

    /// The published Example 2, with a queue for each control class and one for all data.
    pub fn example_2() -> PolicyMap {
        let text = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../scenarios/pso-in-band.policy"
        ));
        let (mut map, _) = PolicyMap::parse(text).unwrap();
        map.dscp_queue = std::array::from_fn(|c| match c {
            56.. => 0,
            48.. => 1,
            40.. => 2,
            _ => 3,
        });
        map.scheduling.queues = vec![QueueConfig::default(); 4];
        map
    }

    fn plan(map: &PolicyMap, rate: &str) -> Plan {
        Plan::new(map, rate.parse().unwrap(), SOCKET_BYTES).unwrap()
    }

    fn problems(map: &PolicyMap, rate: &str) -> Vec<String> {
        Plan::new(map, rate.parse().unwrap(), SOCKET_BYTES).unwrap_err()
    }

    #[test]
    fn each_queue_of_the_map_is_a_class_with_its_share_and_the_last_is_for_data() {
        let plan = plan(&example_2(), "50mbit");
        let seen: Vec<_> = plan
            .classes
            .iter()
            .map(|c| {
                let of = c.code_points.to_string();
                (c.queue, c.priority, c.rate.to_string(), of, c.is_control)
            })
            .collect();
        let share = "12500kbit".to_owned();
        assert_eq!(
            seen,
            [
                (0, 0, share.clone(), "56-63".to_owned(), true),
                (1, 1, share.clone(), "48-55".to_owned(), true),
                (2, 2, share.clone(), "40-47".to_owned(), true),
                (3, 3, share, "0-39".to_owned(), false),
            ]
        );
        assert_eq!((plan.default, plan.neighbours), (3, 2));
    }

    #[test]
    fn what_all_classes_hold_stays_below_the_socket_they_are_fed_through() {
        for queues in 2..=16u8 {
            let mut map = example_2();
            map.dscp_queue = std::array::from_fn(|c| ((63 - c) * usize::from(queues) / 64) as u8);
            map.scheduling.queues = vec![QueueConfig::default(); usize::from(queues)];
            let plan = plan(&map, "1gbit");
            assert_eq!(plan.classes.len(), usize::from(queues));
            let held = plan.leaf_packets * FRAME_TRUESIZE_BYTES * u32::from(queues);
            assert!(held < SOCKET_BYTES, "{queues} queues hold {held} bytes");
            assert!(plan.leaf_packets >= LEAF_PACKETS_MIN);
        }
    }

    #[test]
    fn what_a_queue_asks_for_it_gets_and_the_others_share_the_rest_by_weight() {
        let mut map = example_2();
        map.scheduling.queues[1].min_rate = Some(1_250_000);
        map.scheduling.queues[0].weight = 2;
        let rates: Vec<Rate> = plan(&map, "50mbit")
            .classes
            .iter()
            .map(|c| c.rate)
            .collect();
        let mbit = |n: u64| Rate(n * 1_000_000);
        assert_eq!(rates, [mbit(20), mbit(10), mbit(10), mbit(10)]);
    }

    #[test]
    fn all_that_is_wrong_is_said_together() {
        let wrong = problems(&PolicyMap::none(), "100bit");
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("100mbit"), "{wrong:?}");
        assert!(wrong[1].contains("action=dscp:CS6"), "{wrong:?}");

        let mut map = example_2();
        map.scheduling.queues[0].min_rate = Some(10_000_000);
        let wrong = problems(&map, "50mbit");
        assert!(wrong[0].contains("ask for 80mbit"), "{wrong:?}");

        let mut map = example_2();
        map.dscp_queue = [0; 64];
        assert_eq!(problems(&map, "50mbit").len(), 3, "CS5, CS6, CS7");
    }

    /// EF's number puts it in CS5's class, so voice would share a class with type 3.
    #[test]
    fn code_points_as_urgent_as_control_are_not_for_data() {
        assert_eq!(reserved_code_points(&example_2()).to_string(), "40-63");
        assert!(reserved_code_points(&PolicyMap::none()).is_empty());
    }

    #[test]
    fn blocks_are_the_set_and_no_more() {
        let mut sets = vec![
            0,
            u64::MAX,
            1,
            1 << 63,
            0xff00_0000_0000_0000,
            0x0123_4567_89ab_cdef,
        ];
        sets.extend((0..1000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for set in sets {
            let mut back = CodePoints::default();
            let blocks = CodePoints(set).blocks();
            blocks.iter().for_each(|block| back.insert(*block));
            assert_eq!(back, CodePoints(set));
        }
        let cs6_and_cs7: CodePoints = (48..64).collect();
        assert_eq!(cs6_and_cs7.blocks(), [Block { value: 48, bits: 2 }]);
    }

    #[test]
    fn rates_are_read_as_tc_writes_them() {
        for (text, bits) in [
            ("100mbit", 100_000_000),
            ("2.5Mbit", 2_500_000),
            ("1gbit", 1_000_000_000),
            ("64kbit", 64_000),
            ("1234bit", 1234),
            ("1234", 1234),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.0, bits);
            assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
        }
        for wrong in [
            "", "mbit", "1..2mbit", "-1mbit", "1 mbit", "1MB", "9999gbit", "0bit",
        ] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
