//! Guests, from the configuration or the command line.
//!
//! ```toml
//! [[guest]]
//! name = "lesson"
//! target = "tcp:127.0.0.1:6633"        # where the other controller listens; or unix:FILE
//! priority = "1000-1999"               # its band among guests: from 0 to 6999
//! table = 10                           # its second table in the switch; without it there is one
//! tables = 10                          # how many it has from there on
//! match = ["in_port=1", "in_port=2"]   # its packets, in the words of ovs-ofctl; all without it
//! switches = ["1", "2"]                # all without it
//! rate_max = 1000                      # packets of one switch in a second
//! on_disconnect = "keep"               # or remove
//! ```
//!
//! `--guest NAME=TARGET,priority=1000-1999,…` is equivalent, with `match` at the end.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::Arc;

use cli::failure::Failure;
use control::guest::{
    Guest, MATCHES_MAX, PACKET_RATE, STATED_MAX, TABLE_COUNT, TABLES, match_problem, problems,
};
use driver::guests::Target;
use net::method::{Method, Transport};
use openflow::text::parse_match;
use openflow::{DatapathId, Field, Match};
use toml::de::DeTable;

use super::bonds;
use super::fields::Fields;
use super::qos::tree::is_name;

const GUEST: [&str; 9] = [
    "name",
    "target",
    "priority",
    "table",
    "tables",
    "match",
    "switches",
    "rate_max",
    "on_disconnect",
];

const TARGET: &str = "tcp:127.0.0.1:6633";
const PRIORITY: &str = "1000-1999";
const MATCH: &str = "dl_vlan=100";
const RATES: RangeInclusive<u64> = 1..=100_000;
const COUNTS: RangeInclusive<u64> = 1..=64;

/// A guest, and the address where it listens.
#[derive(Clone, Debug)]
pub struct Stated {
    pub guest: Guest,
    pub target: Method,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    /// The text of the option.
    Option(String),
    /// The line and the column in the file of the guest and of each of its settings.
    File(String, Vec<(&'static str, String)>),
}

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Option(words) => f.write_str(words),
            Place::File(..) => f.write_str(&self.guest.name),
        }
    }
}

/// The settings of one guest, as the file or the option states them.
#[derive(Default)]
struct Parts {
    name: Option<String>,
    target: Option<Method>,
    priority: Option<RangeInclusive<u16>>,
    table: Option<u64>,
    tables: Option<u64>,
    matches: Vec<Match>,
    switches: Vec<DatapathId>,
    rate_max: Option<u64>,
    is_kept: Option<bool>,
}

impl Parts {
    /// Returns the range of tables, or the mistake in it.
    fn tables(&self) -> Result<Option<RangeInclusive<u8>>, String> {
        let Some(first) = self.table else {
            return match self.tables {
                Some(_) => Err("tables needs table, the first of them".to_owned()),
                None => Ok(None),
            };
        };
        let count = self.tables.unwrap_or(TABLE_COUNT.into());
        let last = first + count - 1;
        match (u8::try_from(first), u8::try_from(last)) {
            (Ok(first), Ok(last)) if last <= *TABLES.end() => Ok(Some(first..=last)),
            _ => Err(format!(
                "table: {count} tables from {first} on end at {last}, and the last one can be {}",
                TABLES.end()
            )),
        }
    }

    fn stated(self, tables: Option<RangeInclusive<u8>>, place: Place) -> Option<Stated> {
        let guest = Guest {
            name: Arc::from(self.name?),
            priority: self.priority?,
            tables,
            matches: self.matches,
            switches: self.switches.into_iter().collect(),
            packet_rate: u32::try_from(self.rate_max?).ok()?,
            is_kept: self.is_kept?,
        };
        Some(Stated {
            guest,
            target: self.target?,
            place,
        })
    }
}

/// Reads all guests of the file. Mistakes go to `fields`.
pub(super) fn read<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>) -> Vec<Stated> {
    let mut all = Vec::new();
    for (place, table) in fields.tables_at(root, "guest") {
        fields.only(table, "[guest]", &GUEST);
        let name = bonds::name(fields, (&place, table), "lesson");
        for (key, example) in [("target", TARGET), ("priority", PRIORITY)] {
            if !table.contains_key(key) {
                let problem = format!("{key} is missing: such as \"{example}\"");
                fields.problem(&place, problem);
            }
        }
        let (first, last) = (u64::from(*TABLES.start()), u64::from(*TABLES.end()));
        let matches = fields.list_at(table, "match", MATCH, packets);
        check_count(fields, &matches);
        let rate_max = fields.integer(table, "rate_max", RATES);
        let is_kept = fields.parsed(table, "on_disconnect", "keep", on_disconnect);
        // A guest without a name or target is still compared with the others.
        let stand_in = || Some(format!("in line {}", fields.line(&place)));
        let name = name.or_else(stand_in);
        let to = fields.parsed(table, "target", TARGET, target);
        let parts = Parts {
            name,
            target: to.or_else(|| target(TARGET).ok()),
            priority: fields.parsed(table, "priority", PRIORITY, band),
            table: fields.integer(table, "table", first..=last),
            tables: fields.integer(table, "tables", COUNTS),
            matches: matches.into_iter().map(|(_, packets)| packets).collect(),
            switches: fields.list(table, "switches", "0000000000000001", str::parse),
            rate_max: rate_max.or(Some(PACKET_RATE.into())),
            is_kept: is_kept.or(Some(true)),
        };
        let values = GUEST
            .iter()
            .filter_map(|key| Some((*key, table.get(*key)?.span())));
        let values = values.map(|(key, at)| (key, fields.place(at.start)));
        let at = Place::File(fields.place(place.start), values.collect());
        let tables = parts.tables().unwrap_or_else(|problem| {
            if parts.table.is_some() || !table.contains_key("table") {
                fields.problem(&place, problem);
            }
            None
        });
        all.extend(parts.stated(tables, at));
    }
    all
}

fn check_count(fields: &mut Fields<'_>, matches: &[(Range<usize>, Match)]) {
    if let Some((span, _)) = matches.get(MATCHES_MAX) {
        let problem = format!("match: a guest has at most {MATCHES_MAX}");
        fields.problem(span, problem);
    }
}

/// Reads `NAME=TARGET,priority=LOW-HIGH,…`.
pub fn given(text: &str) -> Result<Stated, String> {
    let mut wrong = Vec::new();
    let (name, rest) = text.split_once('=').unwrap_or((text, ""));
    // The rest is the match, which contains commas itself.
    let (rest, matching) = match rest.split_once(",match=") {
        Some((rest, matching)) => (rest, Some(matching)),
        None => (rest, None),
    };
    let mut words = rest.split(',');
    let mut parts = Parts {
        rate_max: Some(PACKET_RATE.into()),
        is_kept: Some(true),
        ..Parts::default()
    };
    match is_name(name) {
        true => parts.name = Some(name.to_owned()),
        false => wrong.push(format!(
            "'{name}' is no name of letters, digits, '-', '_' and '.'; write NAME={TARGET},…"
        )),
    }
    let mut set = |read: Result<(), String>| wrong.extend(read.err());
    set(target(words.next().unwrap_or("")).map(|target| parts.target = Some(target)));
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        set(match key {
            "priority" => band(value).map(|band| parts.priority = Some(band)),
            "table" => {
                let range = u64::from(*TABLES.start())..=u64::from(*TABLES.end());
                number(key, value, range).map(|table| parts.table = Some(table))
            }
            "tables" => number(key, value, COUNTS).map(|tables| parts.tables = Some(tables)),
            "rate_max" => number(key, value, RATES).map(|rate| parts.rate_max = Some(rate)),
            "on_disconnect" => on_disconnect(value)
                .map(|is_kept| parts.is_kept = Some(is_kept))
                .map_err(|problem| format!("on_disconnect: {problem}")),
            "switches" => {
                let switches = value.split('+').map(str::parse::<DatapathId>);
                let switches = switches.collect::<Result<Vec<_>, String>>();
                switches.map(|switches| parts.switches = switches)
            }
            _ => Err(format!(
                "'{word}' is none of priority, table, tables, switches, rate_max, on_disconnect, \
                 match, each as KEY=VALUE, with match at the end"
            )),
        });
    }
    if let Some(matching) = matching {
        set(packets(matching)
            .map(|packets| parts.matches.push(packets))
            .map_err(|problem| format!("match: {problem}")));
    }
    if !rest.split(',').any(|word| word.starts_with("priority=")) {
        set(Err(format!(
            "priority is missing: such as priority={PRIORITY}"
        )));
    }
    match parts.tables() {
        Ok(tables) if wrong.is_empty() => parts
            .stated(tables, Place::Option(text.to_owned()))
            .ok_or_else(|| format!("write NAME={TARGET},priority={PRIORITY}")),
        Ok(_) => Err(wrong.join("; ")),
        Err(problem) => Err([wrong, vec![problem]].concat().join("; ")),
    }
}

fn number(key: &str, text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.parse().ok();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            format!(
                "{key}: '{text}' is no number from {} to {}",
                range.start(),
                range.end()
            )
        })
}

fn target(text: &str) -> Result<Method, String> {
    let wrong = || format!("'{text}' is no place to dial such as {TARGET} or unix:FILE");
    let method: Method = text.parse().map_err(|_| wrong())?;
    match method {
        Method::Dial(Transport::Tcp, ..) | Method::DialUnix(_) => Ok(method),
        _ => Err(wrong()),
    }
}

fn band(text: &str) -> Result<RangeInclusive<u16>, String> {
    let ends = text.split_once('-');
    let ends = ends.and_then(|(low, high)| {
        let low: u16 = low.trim().parse().ok()?;
        Some((low, high.trim().parse().ok()?))
    });
    match ends {
        Some((low, high)) if low <= high && high <= STATED_MAX => Ok(low..=high),
        _ => Err(format!(
            "'{text}' is no band such as {PRIORITY}, the low end first, from 0 to {STATED_MAX}"
        )),
    }
}

fn packets(text: &str) -> Result<Match, String> {
    let packets = parse_match(text).map_err(|error| error.to_string())?;
    match match_problem(&packets) {
        Some(problem) => Err(problem),
        None => Ok(packets),
    }
}

fn on_disconnect(text: &str) -> Result<bool, String> {
    match text {
        "keep" => Ok(true),
        "remove" => Ok(false),
        _ => Err(format!("'{text}' is neither keep nor remove")),
    }
}

/// Checks that guests are compatible with each other and with the kind of forwarding.
pub(super) fn fits(
    stated: &[Stated],
    has_fabric: bool,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let guests: Vec<Guest> = stated.iter().map(|one| one.guest.clone()).collect();
    let mut wrong = problems(&guests);
    let has_tags = |guest: &Guest| {
        let tags = [Field::VlanVid, Field::VlanPcp];
        let is_about = |m: &Match| tags.iter().any(|tag| m.get(*tag).is_some());
        guest.matches.iter().any(is_about)
    };
    for (place, _) in guests
        .iter()
        .enumerate()
        .filter(|(_, it)| has_fabric && has_tags(it))
    {
        let text = "match: a VLAN needs forwarding = \"paths\" or off (--forwarding), as packets \
                    between switches of the fabric have tags of their own; or choose other packets";
        wrong.push((place, text.to_owned()));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let line = |(number, text): (usize, String)| {
        let Some(one) = stated.get(number) else {
            return text;
        };
        let said = format!("guest '{}': {text}", one.guest.name);
        let (Place::File(at, values), Some(file)) = (&one.place, file) else {
            return said;
        };
        let (key, _) = text.split_once(':').unwrap_or(("name", ""));
        let value = values.iter().find(|(of, _)| *of == key);
        let at = value.map_or(at, |(_, at)| at);
        format!("{}:{at}: {said}", file.display())
    };
    let lines: Vec<String> = wrong.into_iter().map(line).collect();
    Err(Failure::usage(lines.join("\n")))
}

/// Returns the addresses where the guests listen.
pub fn targets(stated: &[Stated]) -> Vec<Target> {
    let target = |one: &Stated| Target {
        name: one.guest.name.clone(),
        method: one.target.clone(),
    };
    stated.iter().map(target).collect()
}

/// Returns warnings about settings that an operator may not have meant.
pub fn doubts(stated: &[Stated], is_forwarding: bool) -> Vec<String> {
    let all = stated
        .iter()
        .filter(|one| is_forwarding && one.guest.matches.is_empty());
    let doubt = |one: &Stated| {
        format!(
            "guest '{}' has no match: its entries come before auster's own for all packets",
            one.guest.name
        )
    };
    all.map(doubt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let (mut fields, root) = Fields::parse(text);
        let read = read(&mut fields, &root);
        let found = fields.finish("run.toml").err().unwrap_or_default();
        assert!(read.len() + found.len() > 0);
        found
    }

    #[test]
    fn an_option_says_what_the_file_says() {
        let words = "lesson=tcp:127.0.0.1:6633,priority=1000-1999,table=10,switches=1+2,\
                     on_disconnect=remove,match=in_port=1,ip";
        let given = given(words).unwrap();
        let text = "[[guest]]\nname = \"lesson\"\ntarget = \"tcp:127.0.0.1:6633\"\n\
                    priority = \"1000-1999\"\ntable = 10\nswitches = [\"1\", \"2\"]\n\
                    on_disconnect = \"remove\"\nmatch = \"in_port=1,ip\"\n";
        let (mut fields, root) = Fields::parse(text);
        let read = read(&mut fields, &root);
        assert_eq!(fields.finish("run.toml"), Ok(()));
        assert_eq!(read[0].guest, given.guest);
        assert_eq!(read[0].target, given.target);
        assert_eq!(given.guest.tables, Some(10..=19));
        assert_eq!(control::guest::band_of(&given.guest.priority), 3400..=3499);
    }

    /// Each mistake is one line at its field, in the file and on the command line.
    #[test]
    fn every_mistake_is_named_at_its_field() {
        for (key, value, part) in [
            ("name", "\"a b\"", "'a b' is no name"),
            ("target", "\"ptcp:6633\"", "'ptcp:6633' is no place to dial"),
            ("target", "\"ssl:h:6633\"", "is no place to dial"),
            ("priority", "\"9-1\"", "'9-1' is no band such as 1000-1999"),
            ("priority", "\"0-7000\"", "from 0 to 6999"),
            ("table", "3", "from 4 to 239"),
            ("tables", "65", "from 1 to 64"),
            ("match", "\"nw_dst=10.0.0.1\"", "ip"),
            ("match", "\"dl_type=0x88cc\"", "LLDP goes to auster"),
            ("match", "\"metadata=1\"", "no packet has by itself"),
            ("switches", "\"x\"", "'x' is not a datapath id"),
            ("rate_max", "0", "from 1 to 100000"),
            ("on_disconnect", "\"stay\"", "neither keep nor remove"),
            ("tabel", "3", "did you mean table?"),
        ] {
            let mut text = "[[guest]]\n".to_owned();
            let usual = [
                ("name", "\"lesson\""),
                ("target", "\"tcp:127.0.0.1:6633\""),
                ("priority", "\"1000-1999\""),
                ("table", "10"),
            ];
            for (of, usual) in usual.iter().filter(|(of, _)| *of != key) {
                text.push_str(&format!("{of} = {usual}\n"));
            }
            text.push_str(&format!("{key} = {value}\n"));
            let found = mistakes(&text);
            assert_eq!(found.len(), 1, "{key} {value}: {found:?}");
            assert!(found[0].contains(part), "{key} {value}: {found:?}");
            assert!(found[0].starts_with("run.toml:"), "{found:?}");
        }
        assert_eq!(mistakes("[[guest]]\n").len(), 3);
        let wrong = given("a b=ptcp:1,priority=9-1,table=1,rate=3").unwrap_err();
        for part in [
            "'a b'",
            "'ptcp:1'",
            "'9-1'",
            "table: '1'",
            "'rate=3' is none of",
        ] {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
        assert!(
            given("a=tcp:h:1")
                .unwrap_err()
                .contains("priority is missing")
        );
    }

    #[test]
    fn guests_do_not_share_priorities_tables_or_names() {
        let all = |words: &[&str]| {
            words
                .iter()
                .map(|one| given(one).unwrap())
                .collect::<Vec<_>>()
        };
        let fits = |words: &[&str], has_fabric| {
            let failure = super::fits(&all(words), has_fabric, None).err();
            failure.map_or(String::new(), |failure| failure.message().to_owned())
        };
        let a = "a=tcp:h:1,priority=1000-1999,table=10";
        assert_eq!(
            fits(&[a, "b=tcp:h:2,priority=2000-2999,table=20"], true),
            ""
        );
        let found = fits(&[a, "b=tcp:h:2,priority=1999-2999,table=19"], true);
        assert!(found.contains("priority: 'a' has 1000 to 1999"), "{found}");
        assert!(found.contains("table: 'a' has tables 10 to 19"), "{found}");
        let found = fits(&[a, "a=tcp:h:2,priority=2000-2999"], true);
        assert!(found.contains("two guests 'a'"), "{found}");
        let vlan = "c=tcp:h:3,priority=0-9,match=dl_vlan=100";
        assert!(fits(&[vlan], true).contains("a VLAN needs forwarding"));
        assert_eq!(fits(&[vlan], false), "");
    }
}
