//! Queues stated one by one: by the operator on the command line or in a TOML file, or by a
//! controller in rows of a database. No I/O.
//!
//! All forms are read into the same fields before anything is checked. Thus all problems are
//! reported together, whatever the form, and the same queues give the same classes.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::vswitch::qos::Queue;
use sched::policy::code_point_name;

use crate::queues::plan::{
    CODE_POINTS, Class, CodePoints, HTB_PRIORITY_MAX, LEAF_PACKETS_MIN, Plan, RATE_MIN, RATE_STEP,
    Rate, leaf_packets, socket_frames,
};
use cli::toml_problem;

/// The guarantee of a queue that asks for none: a full frame a second. HTB refuses zero.
const NO_GUARANTEE: Rate = Rate(12_000);
/// The default queue's guarantee is this part of the link, if that much is left.
const DEFAULT_SHARE: u64 = 100;
/// One full frame, below which nothing could be sent, and a tenth of a second at a gigabit.
const BURST_BYTES: std::ops::RangeInclusive<u64> = 1514..=12_500_000;
const FIELDS: &str = "id, min, max, priority, burst, dscp";

/// A queue's fields as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    fields: Vec<(String, String)>,
}

/// The contents of a file of queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    pub rate: Option<String>,
    pub queues: Vec<Words>,
}

/// One queue, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stated {
    id: u8,
    min: Option<Rate>,
    max: Option<Rate>,
    priority: Option<u8>,
    burst_bytes: Option<u64>,
    /// The code points in the order in which they were written: packets are marked with the first.
    dscp: Vec<u8>,
    /// Whether a code point was written, even a wrong one.
    has_dscp: bool,
}

/// The rule that puts packets into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// The packets' code point, so each queue must have one.
    Dscp,
    /// `set_queue` of a flow.
    SetQueue,
}

impl File {
    pub fn parse(text: &str) -> Result<File, String> {
        let table: toml::Table = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let mut file = File::default();
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("rate", value) => file.rate = Some(scalar(value)),
                ("queue", toml::Value::Array(queues)) => {
                    let tables = queues.iter().map(toml::Value::as_table);
                    let words = tables.map(|table| table.map(Words::of_table));
                    let words: Option<Vec<Words>> = words.collect();
                    file.queues = words.ok_or("queue: write each as [[queue]] with its fields")?;
                }
                _ => return Err(format!("{key}: a file of queues has rate and [[queue]]")),
            }
        }
        Ok(file)
    }
}

impl Words {
    /// `id=1,min=20mbit,max=100mbit,priority=1,dscp=10`
    pub fn parse(text: &str) -> Result<Words, String> {
        let field = |part: &str| {
            let (key, value) = part.split_once('=')?;
            Some((key.trim().to_owned(), value.trim().to_owned()))
        };
        let fields: Option<Vec<_>> = text.split(',').map(field).collect();
        let fields = fields.ok_or_else(|| {
            format!("'{text}' is no queue: write id=1,min=20mbit,max=100mbit,priority=1,dscp=10")
        })?;
        Ok(Words { fields })
    }

    fn of_row(number: u32, row: &Queue) -> Words {
        let rate = |bps: Option<u64>| bps.filter(|bps| *bps > 0).map(|bps| format!("{bps}bit"));
        let fields = [
            ("id", Some(number.to_string())),
            ("min", rate(row.min_rate_bps)),
            ("max", rate(row.max_rate_bps)),
            (
                "priority",
                row.priority.map(|priority| priority.to_string()),
            ),
            ("burst", row.burst_bits.map(|bits| (bits / 8).to_string())),
            // No code point chooses queue 0.
            (
                "dscp",
                row.dscp.filter(|_| number != 0).map(|d| d.to_string()),
            ),
        ];
        let fields = fields.into_iter();
        let fields = fields.filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Words {
            fields: fields.collect(),
        }
    }

    fn of_table(table: &toml::Table) -> Words {
        let fields = table.iter().flat_map(|(key, value)| {
            let values = match value {
                toml::Value::Array(values) => values.iter().map(scalar).collect(),
                value => vec![scalar(value)],
            };
            values.into_iter().map(|value| (key.clone(), value))
        });
        Words {
            fields: fields.collect(),
        }
    }
}

fn scalar(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The classes of these queues on a link of `rate`. Queue 0 takes the packets that no other queue
/// takes; it exists even if it is not stated.
///
/// # Errors
/// Every problem, each with its field in one line.
pub fn plan(
    rate: Option<&str>,
    queues: &[Words],
    chosen_by: ChosenBy,
    socket_bytes: u32,
) -> Result<Plan, Vec<String>> {
    let mut wrong = Vec::new();
    let rate = read_rate(rate, &mut wrong);
    if queues.is_empty() {
        wrong.push("queue: state at least one, such as id=1,min=20mbit,dscp=10".to_owned());
    }
    judge(rate, queues, chosen_by, socket_bytes, wrong)
}

/// The classes for the rows of a database. A port without queues has one class for all packets.
///
/// # Errors
/// The errors of [`plan`].
pub fn of_rows(
    rate_bps: Option<u64>,
    queues: &BTreeMap<u32, Queue>,
    socket_bytes: u32,
) -> Result<Plan, Vec<String>> {
    let mut wrong = Vec::new();
    let rate = rate_bps.map(|bps| format!("{bps}bit"));
    let rate = read_rate(rate.as_deref(), &mut wrong);
    // Packets in queue 0 may be marked too, if the mark chooses no other queue.
    if let Some(mark) = queues.get(&0).and_then(|queue| queue.dscp) {
        let mut others = queues.iter().filter(|(number, _)| **number != 0);
        let other = others.find(|(_, queue)| queue.dscp == Some(mark));
        wrong.extend(other.map(|(other, _)| {
            format!("queue 0: dscp: {mark} is queue {other}'s, so that no packet stays in queue 0")
        }));
    }
    let words = queues
        .iter()
        .map(|(number, row)| Words::of_row(*number, row));
    let words: Vec<Words> = words.collect();
    judge(rate, &words, ChosenBy::Dscp, socket_bytes, wrong)
}

/// Reports the problems already in `wrong` together with its own.
fn judge(
    rate: Option<Rate>,
    queues: &[Words],
    chosen_by: ChosenBy,
    socket_bytes: u32,
    mut wrong: Vec<String>,
) -> Result<Plan, Vec<String>> {
    let stated: Vec<Stated> = (queues.iter().enumerate())
        .filter_map(|(place, words)| read(place, words, &mut wrong))
        .collect();
    check(rate, &stated, chosen_by, socket_bytes, &mut wrong);
    match (rate, wrong.is_empty()) {
        (Some(rate), true) => Ok(classes(rate, &stated, socket_bytes)),
        _ => Err(wrong),
    }
}

fn read_rate(rate: Option<&str>, wrong: &mut Vec<String>) -> Option<Rate> {
    let Some(text) = rate else {
        wrong.push("rate: say that of the port, such as 100mbit".to_owned());
        return None;
    };
    match text.parse::<Rate>() {
        Ok(rate) if rate >= RATE_MIN => Some(rate),
        Ok(rate) => {
            wrong.push(format!(
                "rate: {rate} is below {RATE_MIN}; write it with its unit, such as 100mbit"
            ));
            None
        }
        Err(problem) => {
            wrong.push(format!("rate: {problem}"));
            None
        }
    }
}

/// Reads a queue; `None` if its number is not known, since it cannot be checked further.
fn read(place: usize, words: &Words, wrong: &mut Vec<String>) -> Option<Stated> {
    let ids: Vec<&str> = words.of("id").collect();
    let id = match ids[..] {
        [id] => id.parse::<u8>().ok(),
        _ => None,
    };
    let name = match id {
        Some(id) => format!("queue {id}"),
        None => {
            wrong.push(match ids[..] {
                [id] => format!("queue number {}: id: {id} is not 0 to 255", place + 1),
                _ => format!("queue number {}: id: say it once, 0 to 255", place + 1),
            });
            format!("queue number {}", place + 1)
        }
    };
    let mut seen = BTreeSet::new();
    for (key, _) in &words.fields {
        let is_known = FIELDS.split(", ").any(|known| known == key);
        if !is_known {
            wrong.push(format!("{name}: {key}: no such field; there are {FIELDS}"));
        } else if !seen.insert(key) && key != "dscp" && key != "id" {
            wrong.push(format!("{name}: {key}: it is there twice"));
        }
    }
    let mut stated = Stated {
        id: id.unwrap_or_default(),
        has_dscp: words.of("dscp").next().is_some(),
        ..Stated::default()
    };
    let mut take = |key: &str, read: &mut dyn FnMut(&str) -> Result<(), String>| {
        for text in words.of(key) {
            if let Err(problem) = read(text) {
                wrong.push(format!("{name}: {key}: {problem}"));
            }
        }
    };
    take("min", &mut |text| {
        stated.min = Some(text.parse()?);
        Ok(())
    });
    take("max", &mut |text| {
        stated.max = Some(text.parse()?);
        Ok(())
    });
    take("priority", &mut |text| {
        let priority = text.parse().ok().filter(|p| *p <= HTB_PRIORITY_MAX);
        let wanted = || format!("{text} is not 0 (served first) to {HTB_PRIORITY_MAX}");
        stated.priority = Some(priority.ok_or_else(wanted)?);
        Ok(())
    });
    take("burst", &mut |text| {
        stated.burst_bytes = Some(read_burst(text)?);
        Ok(())
    });
    take("dscp", &mut |text| {
        let code_point = code_point(text)
            .ok_or_else(|| format!("{text} is not 0 to 63 or a name such as AF11"))?;
        stated.dscp.push(code_point);
        Ok(())
    });
    id.map(|_| stated)
}

impl Words {
    fn of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let fields = self.fields.iter().filter(move |(known, _)| known == key);
        fields.map(|(_, value)| value.as_str())
    }
}

/// A size in bytes, in the notation of `tc`: `15k` is 15,360.
fn read_burst(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size in bytes, such as 15k");
    let lower = text.to_ascii_lowercase();
    let unit_at = lower.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = lower.split_at(unit_at.unwrap_or(lower.len()));
    let unit = match unit {
        "" | "b" => 1u64,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let bytes = number.saturating_mul(unit);
    match BURST_BYTES.contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!(
            "{text} is not {} (a full frame) to {} bytes",
            BURST_BYTES.start(),
            BURST_BYTES.end()
        )),
    }
}

fn code_point(text: &str) -> Option<u8> {
    let number = text.parse::<u8>().ok().filter(|c| *c < CODE_POINTS);
    let named = || (0..CODE_POINTS).find(|c| code_point_name(*c).eq_ignore_ascii_case(text));
    number.or_else(named)
}

/// Checks the fields together, for problems that no single field shows.
fn check(
    rate: Option<Rate>,
    stated: &[Stated],
    chosen_by: ChosenBy,
    socket_bytes: u32,
    wrong: &mut Vec<String>,
) {
    let mut ids = BTreeSet::new();
    let mut queue_of: BTreeMap<u8, u8> = BTreeMap::new();
    for queue in stated {
        let id = queue.id;
        if !ids.insert(id) {
            wrong.push(format!("queue {id}: id: it is there twice"));
        }
        let (min, max) = (queue.min.unwrap_or(Rate(0)), queue.max);
        if let Some(max) = max.filter(|max| min > *max) {
            wrong.push(format!("queue {id}: min: {min} is above max, {max}"));
        }
        for (field, value) in [("min", queue.min), ("max", max)] {
            let too_low = value.filter(|value| *value < NO_GUARANTEE);
            wrong.extend(too_low.map(|value| {
                format!("queue {id}: {field}: {value} is below {NO_GUARANTEE}, a frame a second")
            }));
            let too_high = value.zip(rate).filter(|(value, rate)| value > rate);
            wrong.extend(too_high.map(|(value, rate)| {
                format!("queue {id}: {field}: {value} is above the port's rate, {rate}")
            }));
        }
        if id == 0 && !queue.dscp.is_empty() {
            wrong.push(
                "queue 0: dscp: leave it out; queue 0 takes what no other queue does".to_owned(),
            );
        }
        if id != 0 && !queue.has_dscp && chosen_by == ChosenBy::Dscp {
            wrong.push(format!(
                "queue {id}: dscp: give it one; this datapath ignores set_queue, so that packets \
                 come into a queue by their code point"
            ));
        }
        for code_point in queue.dscp.iter().copied() {
            if code_point == 0 {
                wrong.push(format!(
                    "queue {id}: dscp: 0 is that of packets nobody has marked; they are queue 0's"
                ));
            } else if let Some(other) = queue_of.insert(code_point, id) {
                wrong.push(format!(
                    "queue {id}: dscp: {code_point} is queue {other}'s already"
                ));
            }
        }
    }
    let sum = stated.iter().filter_map(|queue| queue.min);
    let sum = sum.fold(0u64, |sum, min| sum.saturating_add(min.0));
    if let Some(rate) = rate.filter(|rate| sum > rate.0) {
        wrong.push(format!(
            "min: all queues together ask for {}, and the port has {rate}",
            Rate(sum)
        ));
    }
    let queues_max = (socket_frames(socket_bytes) / LEAF_PACKETS_MIN) as usize;
    let count = ids.len() + usize::from(!ids.contains(&0));
    if count > queues_max && chosen_by == ChosenBy::Dscp {
        wrong.push(format!(
            "queue: {count} with queue 0, and Open vSwitch's socket has room for {queues_max}: \
             fewer, or a greater net.core.wmem_default"
        ));
    }
}

fn classes(rate: Rate, stated: &[Stated], socket_bytes: u32) -> Plan {
    let mut stated = stated.to_vec();
    if stated.iter().all(|queue| queue.id != 0) {
        stated.push(default_queue(rate, &stated));
    }
    stated.sort_by_key(|queue| queue.id);
    // Rates as `tc` prints them, so that the rates set equal the rates read back.
    let whole = |rate: Rate| Rate((rate.0 / RATE_STEP * RATE_STEP).max(NO_GUARANTEE.0));
    let named: CodePoints = stated.iter().flat_map(|q| q.dscp.clone()).collect();
    let classes: Vec<Class> = stated
        .iter()
        .map(|queue| Class {
            queue: queue.id,
            priority: queue.priority.unwrap_or(0),
            set_queue: u32::from(queue.id),
            rate: whole(queue.min.unwrap_or(NO_GUARANTEE)),
            rate_max: whole(queue.max.unwrap_or(rate)),
            burst_bytes: queue.burst_bytes,
            code_points: match queue.id {
                0 => (0..CODE_POINTS).filter(|c| !named.contains(*c)).collect(),
                _ => queue.dscp.iter().copied().collect(),
            },
            mark: queue.dscp.first().copied(),
            is_control: false,
        })
        .collect();
    // A host that cannot ask for an address sends nothing, however much is guaranteed.
    let urgent = classes.iter().enumerate().skip(1);
    let urgent = urgent.min_by_key(|(_, class)| (class.priority, class.queue));
    Plan {
        rate,
        default: 0,
        neighbours: urgent.map_or(0, |(place, _)| place),
        leaf_packets: leaf_packets(socket_bytes, classes.len()),
        classes,
    }
}

/// The default queue: no more urgent than any other, and with a small guarantee.
fn default_queue(rate: Rate, others: &[Stated]) -> Stated {
    let sum: u64 = others.iter().filter_map(|q| q.min).map(|min| min.0).sum();
    let left = rate.0.saturating_sub(sum);
    Stated {
        id: 0,
        min: Some(Rate(left.min(rate.0 / DEFAULT_SHARE))),
        priority: others.iter().map(|q| q.priority.unwrap_or(0)).max(),
        ..Stated::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::plan::tests::SOCKET_BYTES;

    fn words(queues: &[&str]) -> Vec<Words> {
        queues.iter().map(|q| Words::parse(q).unwrap()).collect()
    }

    fn planned(queues: &[&str]) -> Plan {
        plan(
            Some("100mbit"),
            &words(queues),
            ChosenBy::Dscp,
            SOCKET_BYTES,
        )
        .unwrap()
    }

    fn problems(rate: Option<&str>, queues: &[&str]) -> Vec<String> {
        plan(rate, &words(queues), ChosenBy::Dscp, SOCKET_BYTES).unwrap_err()
    }

    const VIDEO: &str = "id=1,min=20mbit,max=30mbit,priority=1,burst=15k,dscp=AF11,dscp=12";
    const REST: &str = "id=2,min=60mbit,priority=2,dscp=18";

    #[test]
    fn queues_are_as_they_are_stated_and_queue_0_takes_the_rest() {
        let plan = planned(&[REST, VIDEO]);
        let mbit = |n: u64| Rate(n * 1_000_000);
        let seen: Vec<_> = plan
            .classes
            .iter()
            .map(|c| (c.queue, c.set_queue, c.priority, c.rate, c.rate_max, c.mark))
            .collect();
        assert_eq!(
            seen,
            [
                (0, 0, 2, mbit(1), mbit(100), None),
                (1, 1, 1, mbit(20), mbit(30), Some(10)),
                (2, 2, 2, mbit(60), mbit(100), Some(18)),
            ]
        );
        assert_eq!(plan.classes[1].burst_bytes, Some(15 << 10));
        assert_eq!(plan.classes[1].code_points.to_string(), "10,12");
        assert_eq!(
            plan.classes[0].code_points.to_string(),
            "0-9,11,13-17,19-63"
        );
        assert_eq!(
            (plan.default, plan.neighbours),
            (0, 1),
            "ARP is with queue 1"
        );
        assert_eq!(plan.leaf_packets, 25);
    }

    #[test]
    fn queue_0_may_be_stated_and_has_what_is_left_if_not() {
        let plan = planned(&["id=0,min=5mbit,max=10mbit,priority=7", VIDEO]);
        let default = &plan.classes[0];
        assert_eq!(
            (default.rate, default.rate_max),
            (Rate(5_000_000), Rate(10_000_000))
        );
        let full = planned(&["id=1,min=40mbit,dscp=1", "id=2,min=60mbit,dscp=2"]);
        assert_eq!(full.classes[0].rate, NO_GUARANTEE);
    }

    #[test]
    fn a_file_says_the_same_as_the_words() {
        let file = File::parse(
            "rate = '100mbit'\n[[queue]]\nid = 1\nmin = '20mbit'\nmax = '30mbit'\npriority = 1\n\
             burst = '15k'\ndscp = ['AF11', 12]\n[[queue]]\nid = 2\nmin = '60mbit'\n\
             priority = 2\ndscp = 18\n",
        )
        .unwrap();
        let rate = file.rate.as_deref();
        let of_file = plan(rate, &file.queues, ChosenBy::Dscp, SOCKET_BYTES).unwrap();
        assert_eq!(of_file, planned(&[VIDEO, REST]));
        assert!(File::parse("rates = 1").unwrap_err().contains("rates"));
        assert!(File::parse("rate = ").unwrap_err().contains("line 1"));
        assert!(
            File::parse("queue = [1]")
                .unwrap_err()
                .contains("[[queue]]")
        );
        assert!(Words::parse("id").unwrap_err().contains("id=1,min=20mbit"));
    }

    fn row(min: u64, max: Option<u64>, priority: u32, dscp: Option<u8>) -> Queue {
        Queue {
            min_rate_bps: Some(min),
            max_rate_bps: max,
            burst_bits: None,
            priority: Some(priority),
            dscp,
        }
    }

    #[test]
    fn rows_say_the_same_as_the_words() {
        let mut rows = BTreeMap::from([
            (1, row(20_000_000, Some(30_000_000), 1, Some(10))),
            (2, row(60_000_000, None, 2, Some(18))),
        ]);
        rows.get_mut(&1).unwrap().burst_bits = Some(15 * 1024 * 8);
        let of_rows = |rows: &BTreeMap<u32, Queue>| of_rows(Some(100_000_000), rows, SOCKET_BYTES);
        let words = "id=1,min=20mbit,max=30mbit,priority=1,burst=15k,dscp=10";
        assert_eq!(of_rows(&rows).unwrap(), planned(&[words, REST]));
        // A guarantee of zero is none; queue 0's own mark chooses no queue.
        rows.insert(0, row(0, None, 7, Some(0)));
        let with_default = planned(&[words, REST, "id=0,priority=7"]);
        assert_eq!(of_rows(&rows).unwrap(), with_default);
        let none = of_rows(&BTreeMap::new()).unwrap();
        assert_eq!(
            (none.classes.len(), none.default, none.neighbours),
            (1, 0, 0)
        );
        assert_eq!(none.classes[0].rate_max, Rate(100_000_000));
    }

    #[test]
    fn all_mistakes_of_rows_are_told_together() {
        let rows = BTreeMap::from([
            (0, row(0, None, 0, Some(10))),
            (1, row(70_000_000, Some(60_000_000), 9, Some(10))),
            (2, row(60_000_000, None, 0, None)),
            (300, row(1_000_000, None, 0, Some(12))),
        ]);
        let wrong = of_rows(None, &rows, SOCKET_BYTES).unwrap_err();
        for part in [
            "rate: say that of the port",
            "queue 0: dscp: 10 is queue 1's",
            "queue number 4: id: 300 is not 0 to 255",
            "queue 1: priority: 9 is not 0",
            "queue 1: min: 70mbit is above max",
            "queue 2: dscp: give it one",
        ] {
            assert!(
                wrong.iter().any(|w| w.starts_with(part)),
                "{part}: {wrong:#?}"
            );
        }
        assert_eq!(wrong.len(), 6, "{wrong:#?}");
    }

    #[test]
    fn each_mistake_is_told_by_its_field() {
        for (queue, part) in [
            ("min=1mbit,dscp=1", "queue number 1: id: say it once"),
            ("id=256,dscp=1", "queue number 1: id: 256 is not"),
            ("id=1,min=slow,dscp=1", "queue 1: min: 'slow' is not a rate"),
            (
                "id=1,min=1kbit,dscp=1",
                "queue 1: min: 1kbit is below 12kbit",
            ),
            (
                "id=1,max=200mbit,dscp=1",
                "queue 1: max: 200mbit is above the port's rate",
            ),
            (
                "id=1,min=3mbit,max=2mbit,dscp=1",
                "queue 1: min: 3mbit is above max, 2mbit",
            ),
            ("id=1,priority=8,dscp=1", "queue 1: priority: 8 is not 0"),
            ("id=1,burst=1k,dscp=1", "queue 1: burst: 1k is not 1514"),
            (
                "id=1,burst=much,dscp=1",
                "queue 1: burst: 'much' is not a size",
            ),
            ("id=1,dscp=64", "queue 1: dscp: 64 is not 0 to 63"),
            ("id=1,dscp=0", "queue 1: dscp: 0 is that of packets nobody"),
            ("id=1,min=1mbit", "queue 1: dscp: give it one"),
            ("id=0,dscp=3", "queue 0: dscp: leave it out"),
            ("id=1,dscp=1,rate=3mbit", "queue 1: rate: no such field"),
            (
                "id=1,dscp=1,min=1mbit,min=2mbit",
                "queue 1: min: it is there twice",
            ),
        ] {
            let wrong = problems(Some("100mbit"), &[queue]);
            assert_eq!(wrong.len(), 1, "{queue}: {wrong:?}");
            assert!(wrong[0].starts_with(part), "{queue}: {wrong:?}");
        }
        assert!(problems(None, &[VIDEO])[0].starts_with("rate: say"));
        assert!(problems(Some("fast"), &[VIDEO])[0].starts_with("rate: 'fast'"));
        assert!(problems(Some("100"), &[VIDEO])[0].contains("below 128kbit"));
        assert!(problems(Some("100mbit"), &[])[0].starts_with("queue: state"));
    }

    #[test]
    fn all_mistakes_are_told_together() {
        let wrong = problems(
            Some("100mbit"),
            &[
                "id=1,min=70mbit,dscp=10",
                "id=1,min=60mbit,dscp=10,priority=9",
                "id=2,max=5mbit,min=6mbit,dscp=11",
            ],
        );
        for part in [
            "id: it is there twice",
            "dscp: 10 is",
            "priority: 9",
            "6mbit is above max",
        ] {
            assert!(wrong.iter().any(|w| w.contains(part)), "{part}: {wrong:?}");
        }
        let sum = "min: all queues together ask for 136mbit, and the port has 100mbit";
        assert_eq!(wrong.last().unwrap(), sum);
        assert_eq!(wrong.len(), 5, "{wrong:?}");
    }

    #[test]
    fn where_flows_choose_the_queue_no_code_point_is_needed() {
        let queues = words(&["id=1,min=1mbit"]);
        let plan = plan(Some("100mbit"), &queues, ChosenBy::SetQueue, SOCKET_BYTES).unwrap();
        assert_eq!(plan.classes[1].mark, None);
    }

    #[test]
    fn more_queues_than_the_socket_holds_are_refused() {
        let many: Vec<String> = (1..=20).map(|n| format!("id={n},dscp={n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let wrong = problems(Some("100mbit"), &many);
        assert!(wrong[0].contains("room for 20"), "{wrong:?}");
        let fits = planned(&many[..19]);
        let held = fits.leaf_packets * fits.classes.len() as u32;
        assert!(held <= socket_frames(SOCKET_BYTES), "{held}");
    }
}
