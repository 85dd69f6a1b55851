//! Access lists, bindings and guards, from the configuration.
//!
//! ```toml
//! [[acl]]
//! name = "no-telnet"
//!
//! [[acl.rule]]                         # the first rule that matches decides
//! match = "tcp,tp_dst=23"              # in the words of ovs-ofctl
//! allow = false
//!
//! [[acl.rule]]                         # or field by field, as in Faucet
//! dl_type = 0x800
//! ipv4_src = "10.0.10.0/24"
//! allow = true
//!
//! [[vlan]]
//! id = 10
//! acl_in = "no-telnet"
//! acl_out = "no-telnet"                # before packets are routed into it
//!
//! [[port]]
//! at = "1:2"
//! acl_in = ["no-telnet", "office"]     # one list, in this order
//! bind = ["02:00:00:00:00:01 10.0.0.1 fd00::1", "dhcp"]
//!
//! [guard]
//! dhcp_servers = "1:48"                # no other port may have one
//! routers = []                         # nor may any have an IPv6 router
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use control::access::shadow::Seen;
use control::access::tables::{size, size_of_routes};
use control::access::{Access, Acl, Binding, Place, Rule, RuleId, Verdict};
use control::controller::Location;
use control::qos::flow::Matching;
use control::routing::{Gateways, Routing};
use control::vlan::VlanId;
use openflow::text::{TextError, parse_match};
use openflow::{DatapathId, Field, MacAddr};
use toml::de::{DeTable, DeValue};

use super::fields::{Fields, Value, items, meant};
use super::mirrors;
use super::qos::tree::is_name;
use super::topology;

const ACL: [&str; 2] = ["name", "rule"];
const GUARD: [&str; 2] = ["dhcp_servers", "routers"];
/// The keys of a rule that are no fields of a packet.
const RULE: [&str; 4] = ["name", "match", "allow", "mirror"];

/// The most rules of one place.
pub const RULES_MAX: usize = 4096;
/// Stands for the hosts that have an address by DHCP.
const BY_DHCP: &str = "dhcp";
/// The most hosts that one port is bound to.
const BINDINGS_MAX: usize = 64;
/// The most IP addresses of one bound host.
const ADDRESSES_MAX: usize = 8;
/// The most entries of one switch, which must be read again in one answer.
const ENTRIES_MAX: usize = 65_536;

/// Fields that no packet has, or that the access tables use themselves.
const OTHERS: [Field; 4] = [
    Field::InPort,
    Field::InPhyPort,
    Field::Metadata,
    Field::TunnelId,
];

/// Fields that a router changes.
pub const ROUTED: [Field; 4] = [Field::EthSrc, Field::EthDst, Field::VlanVid, Field::VlanPcp];

/// Fields that Open vSwitch does not have.
const UNUSUAL: [Field; 2] = [Field::PbbIsid, Field::Ipv6Exthdr];

/// The bit of a VLAN id that marks the tag as present.
const PRESENT: u128 = 0x1000;

/// The configuration's statements about access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    pub access: Access,
    /// The line of each rule.
    lines: BTreeMap<RuleId, usize>,
    /// The lists with a match that could not be read.
    misread: BTreeSet<usize>,
}

impl Stated {
    /// Reads the access configuration of the file. Mistakes go to `fields`.
    pub fn read<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>) -> Stated {
        let mut stated = Stated::default();
        let mut places = BTreeMap::new();
        for (place, table) in fields.tables_at(root, "acl") {
            stated.read_acl(fields, &mut places, &place, table);
        }
        stated.check_mirrors(fields, root, &places);
        let mut used = BTreeSet::new();
        let mut out = BTreeMap::new();
        for (place, table) in fields.tables_at(root, "vlan") {
            stated.read_vlan(fields, &mut used, &mut out, (&place, table));
        }
        stated.check_out(fields, &places, &out);
        let mut switches = BTreeMap::new();
        for (_, table) in fields.tables_at(root, "port") {
            stated.read_port(fields, &mut used, &mut switches, table);
        }
        for (dpid, place) in switches {
            let count = size(&stated.access, dpid);
            if count > ENTRIES_MAX {
                let problem = format!(
                    "switch {dpid} would need {count} entries for its lists and bind; at most \
                     {ENTRIES_MAX} fit one switch"
                );
                fields.problem(&place, problem);
            }
        }
        if let Some(table) = fields.table(root, "guard") {
            fields.only(table, "guard", &GUARD);
            stated.access.dhcp_servers = trusted(fields, table, "dhcp_servers");
            stated.access.routers = trusted(fields, table, "routers");
        }
        stated.check_dhcp(fields, root);
        stated.check(fields, &places, &used);
        stated
    }

    /// Reports gateways and routes that need more entries than fit one switch.
    pub fn check_routes<'a>(
        &self,
        fields: &mut Fields<'a>,
        root: &DeTable<'a>,
        gateways: &Gateways,
    ) {
        let count = size_of_routes(&Routing::new(gateways.clone()));
        let vlans = fields.tables_at(root, "vlan").into_iter();
        let place = vlans.filter_map(|(_, table)| table.get("acl_out")).next();
        if let Some(place) = place.filter(|_| count > ENTRIES_MAX) {
            let problem = format!(
                "acl_out: a switch would need {count} entries for the gateways and routes; at most \
                 {ENTRIES_MAX} fit one switch; use fewer gateway_mac or [[route]]"
            );
            fields.problem(&place.span(), problem);
        }
    }

    /// The line of a rule in the file.
    pub fn line(&self, rule: &RuleId) -> Option<usize> {
        self.lines.get(rule).copied()
    }

    /// A rule in words: its list, and its name or number.
    pub fn name(&self, rule: &RuleId) -> String {
        self.access.rule_name(rule)
    }

    fn read_acl<'a>(
        &mut self,
        fields: &mut Fields<'a>,
        places: &mut BTreeMap<RuleId, Range<usize>>,
        place: &Range<usize>,
        table: &DeTable<'a>,
    ) {
        fields.only(table, "acl", &ACL);
        if !table.contains_key("name") {
            fields.problem(
                place,
                "name is missing: that by which acl_in and acl_out refer to the list",
            );
        }
        let name = fields.parsed(table, "name", "no-telnet", name);
        let name = name.unwrap_or_default();
        let is_there = self.access.acls.iter().any(|acl| acl.name == name);
        if is_there && !name.is_empty() {
            let problem = format!("name: there is an access list '{name}' already");
            fields.problem(place, problem);
        }
        let rules = fields.tables_at(table, "rule");
        if rules.is_empty() {
            let problem = "rule is missing: a list without [[acl.rule]] would drop everything";
            fields.problem(place, problem);
        }
        let acl = self.access.acls.len();
        let mut all: Vec<Rule> = Vec::new();
        if rules.len() > RULES_MAX {
            let count = rules.len();
            let problem = format!("rule: {count} rules; at most {RULES_MAX} fit one list");
            fields.problem(place, problem);
        }
        let mut names = BTreeSet::new();
        for (place, table) in rules.into_iter().take(RULES_MAX) {
            let id = RuleId {
                acl,
                rule: all.len(),
            };
            self.lines.insert(id.clone(), fields.line(&place));
            places.insert(id, place.clone());
            let (rule, is_read) = rule(fields, &place, table);
            if !is_read {
                self.misread.insert(acl);
            }
            let is_number = !rule.name.is_empty() && rule.name.bytes().all(|b| b.is_ascii_digit());
            if is_number {
                let problem = "name: a number is the name of a rule without one; use a word";
                fields.problem(&place, problem);
            }
            if !rule.name.is_empty() && !names.insert(rule.name.clone()) {
                let problem = format!("name: the list has a rule '{}' already", rule.name);
                fields.problem(&place, problem);
            }
            all.push(rule);
        }
        self.access.acls.push(Acl { name, rules: all });
    }

    /// Reads the lists of a VLAN. `out` has the lists of `acl_out`, each with the line that refers
    /// to it first.
    fn read_vlan(
        &mut self,
        fields: &mut Fields<'_>,
        used: &mut BTreeSet<usize>,
        out: &mut BTreeMap<usize, usize>,
        (place, table): (&Range<usize>, &DeTable<'_>),
    ) {
        let acls = self.named(fields, used, table, "acl_in");
        let routed = self.named(fields, used, table, "acl_out");
        let keys = ["acl_out", "acl_in"];
        let value = keys.iter().find_map(|key| table.get(*key));
        let place = value.map_or(place.clone(), Value::span);
        for acl in routed.iter().flatten() {
            out.entry(*acl).or_insert(fields.line(&place));
        }
        if routed.is_some() && !table.contains_key("gateway") {
            let doubt = "acl_out: the VLAN has no gateway, so no packet is routed into it";
            fields.doubt(&place, doubt);
        }
        let Some(vlan) = table.get("id").and_then(id_of) else {
            return;
        };
        self.access.vlans.extend(acls.map(|acls| (vlan, acls)));
        self.access.out.extend(routed.map(|acls| (vlan, acls)));
        // The lists of VLANs alone may be on any switch.
        let count = size(&self.access, DatapathId(0));
        if count > ENTRIES_MAX {
            let problem = format!(
                "the lists of VLANs up to this one need {count} entries; at most {ENTRIES_MAX} fit \
                 one switch"
            );
            fields.problem(&place, problem);
        }
    }

    /// Finds rules that match routed packets on fields that the router changes.
    fn check_out(
        &self,
        fields: &mut Fields<'_>,
        places: &BTreeMap<RuleId, Range<usize>>,
        out: &BTreeMap<usize, usize>,
    ) {
        for (id, place) in places {
            let acl = self.access.acls.get(id.acl).zip(out.get(&id.acl));
            let Some((acl, line)) = acl else {
                continue;
            };
            let rule = acl.rules.get(id.rule);
            let has = |field: &Field| rule.is_some_and(|rule| rule.matching.has(*field));
            for field in ROUTED.into_iter().filter(has) {
                let (field, name) = (field.info().text, &acl.name);
                let problem = format!(
                    "{field}: '{name}' is an acl_out, in line {line}, and routing changes this \
                     field; match IP addresses, or use the list as acl_in"
                );
                fields.problem(place, problem);
            }
        }
    }

    /// The lists that a key refers to, `acl_in` or `acl_out`; `None` without the key.
    fn named(
        &self,
        fields: &mut Fields<'_>,
        used: &mut BTreeSet<usize>,
        table: &DeTable<'_>,
        key: &str,
    ) -> Option<Vec<usize>> {
        let value = table.get(key)?;
        let mut found = Vec::new();
        for (place, name) in fields.list_at(table, key, "no-telnet", name) {
            let acl = self.access.acls.iter().position(|acl| acl.name == name);
            match acl {
                Some(acl) if found.contains(&acl) => {
                    fields.problem(&place, format!("{key}: '{name}' is listed already"));
                }
                Some(acl) => found.push(acl),
                None => fields.problem(&place, self.unknown(key, &name)),
            }
        }
        // An empty list counts as none.
        if items(table, key).is_empty() {
            return None;
        }
        used.extend(&found);
        self.check_order(fields, (key, &value.span()), &found);
        let count = |acl: &usize| self.access.acls[*acl].rules.len();
        let rules: usize = found.iter().map(count).sum();
        if rules > RULES_MAX {
            let problem = format!("{key}: {rules} rules; at most {RULES_MAX} fit one place");
            fields.problem(&value.span(), problem);
        }
        Some(found)
    }

    /// Finds rules of several lists that no packet reaches because of an earlier list.
    fn check_order(
        &self,
        fields: &mut Fields<'_>,
        (key, place): (&str, &Range<usize>),
        acls: &[usize],
    ) {
        if acls.len() < 2 || acls.iter().any(|acl| self.misread.contains(acl)) {
            return;
        }
        let mut seen = Seen::default();
        let mut all: Vec<RuleId> = Vec::new();
        for acl in acls {
            for (rule, found) in self.access.acls[*acl].rules.iter().enumerate() {
                let covering = seen.add(&found.matching).and_then(|first| all.get(first));
                let covering = covering.filter(|before| before.acl != *acl);
                if let Some(before) = covering {
                    let line = |id| self.line(id).unwrap_or_default();
                    let id = RuleId { acl: *acl, rule };
                    let problem = format!(
                        "{key}: the rule in line {} is never reached here: the one in line {} \
                         takes all of its packets",
                        line(&id),
                        line(before)
                    );
                    return fields.problem(place, problem);
                }
                all.push(RuleId { acl: *acl, rule });
            }
        }
    }

    fn unknown(&self, key: &str, name: &str) -> String {
        let known: Vec<&str> = self.access.acls.iter().map(|acl| &acl.name[..]).collect();
        match known.is_empty() {
            true => format!("{key}: no [[acl]] has the name '{name}'; state it"),
            false => format!(
                "{key}: no [[acl]] has the name '{name}'; state it, or use one of {}",
                known.join(", ")
            ),
        }
    }

    fn read_port(
        &mut self,
        fields: &mut Fields<'_>,
        used: &mut BTreeSet<usize>,
        places: &mut BTreeMap<DatapathId, Range<usize>>,
        table: &DeTable<'_>,
    ) {
        let acls = self.named(fields, used, table, "acl_in");
        let (bindings, is_by_dhcp) = bindings(fields, table).unzip();
        let is_by_dhcp = is_by_dhcp.unwrap_or(false);
        let place = ["bind", "acl_in"].iter().find_map(|key| table.get(*key));
        if acls.is_none() && bindings.is_none() {
            return;
        }
        // Mistakes in these ports are reported with the VLANs, which read them as well.
        let ports = items(table, "at").into_iter();
        let ports = ports.filter_map(|at| topology::edge_port(at.get_ref().as_str()?).ok());
        for at in ports {
            self.access
                .ports
                .extend(acls.clone().map(|acls| (at, acls)));
            let bindings = bindings.clone();
            self.access.bindings.extend(bindings.map(|all| (at, all)));
            self.access.by_dhcp.extend(is_by_dhcp.then_some(at));
            if let Some(place) = place {
                places.entry(at.dpid).or_insert(place.span());
            }
        }
    }

    /// Finds ports that would believe any host that claims to be a DHCP server.
    fn check_dhcp<'a>(&self, fields: &mut Fields<'a>, root: &DeTable<'a>) {
        if self.access.dhcp_servers.is_some() {
            return;
        }
        for (_, table) in fields.tables_at(root, "port") {
            let bind = table.get("bind").map(Value::span);
            let is_it = |value: &&Value<'_>| value.get_ref().as_str() == Some(BY_DHCP);
            if let Some(place) = bind.filter(|_| items(table, "bind").iter().any(is_it)) {
                let problem = "bind: dhcp needs dhcp_servers in [guard]: without it, any host \
                               could say which addresses are whose";
                fields.problem(&place, problem);
            }
        }
    }

    /// Finds rules with a mirror that is not stated.
    fn check_mirrors(
        &self,
        fields: &mut Fields<'_>,
        root: &DeTable<'_>,
        places: &BTreeMap<RuleId, Range<usize>>,
    ) {
        let known = mirrors::names(root);
        for (id, place) in places {
            let rule = self.access.acls.get(id.acl);
            let rule = rule.and_then(|acl| acl.rules.get(id.rule));
            let name = rule.and_then(|rule| rule.mirror.as_ref());
            if let Some(name) = name.filter(|name| !known.contains(&name[..])) {
                let problem = format!("mirror: no [[mirror]] has the name '{name}'; state it");
                fields.problem(place, problem);
            }
        }
    }

    /// Finds rules that no packet ever reaches, and lists that nothing refers to.
    fn check(
        &self,
        fields: &mut Fields<'_>,
        places: &BTreeMap<RuleId, Range<usize>>,
        used: &BTreeSet<usize>,
    ) {
        for (number, acl) in self.access.acls.iter().enumerate() {
            // Nobody knows which packets an unreadable rule takes.
            let is_read = !self.misread.contains(&number);
            for (id, before) in shadowed(number, acl).into_iter().filter(|_| is_read) {
                let line = self.line(&before).unwrap_or_default();
                let problem = format!(
                    "this rule is never reached: the one in line {line} takes all of its packets; \
                     take it out, or put it before that"
                );
                fields.problem(&places[&id], problem);
            }
            if let Some(place) = places.get(&RuleId {
                acl: number,
                rule: 0,
            }) && !used.contains(&number)
            {
                let name = &acl.name;
                fields.doubt(
                    place,
                    format!("no acl_in or acl_out refers to the access list '{name}'"),
                );
            }
        }
    }
}

/// The rules that no packet reaches, each with a rule before it that takes all of its packets.
fn shadowed(number: usize, acl: &Acl) -> Vec<(RuleId, RuleId)> {
    let id = |rule| RuleId { acl: number, rule };
    let mut seen = Seen::default();
    let rules = acl.rules.iter().enumerate();
    let covered = rules.filter_map(|(n, rule)| Some((id(n), id(seen.add(&rule.matching)?))));
    covered.collect()
}

fn id_of(value: &Value<'_>) -> Option<VlanId> {
    let number = value.get_ref().as_integer()?;
    let digits = number.as_str().replace('_', "");
    VlanId::new(u16::from_str_radix(&digits, number.radix()).ok()?)
}

/// Reads the name of a list.
pub fn name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "'{text}' is no name of letters, digits, '-', '_' and '.', such as \"no-telnet\""
        )),
    }
}

/// Reads a rule. Also returns whether its match could be read.
fn rule(fields: &mut Fields<'_>, place: &Range<usize>, table: &DeTable<'_>) -> (Rule, bool) {
    let name = fields.string(table, "name", "from the office");
    if !table.contains_key("allow") {
        fields.problem(place, "allow is missing: true or false");
    }
    let allows = fields.bool(table, "allow").unwrap_or(false);
    let text = fields.string(table, "match", "tcp,tp_dst=23");
    let is_misread = text.is_none() && table.contains_key("match");
    let mut words = Words::default();
    let at = table.get("match").map_or(place.clone(), Value::span);
    words.add(text.unwrap_or_default(), "match", at);
    let mut is_read = !is_misread;
    for (key, value) in table.iter() {
        let key = key.get_ref();
        if RULE.contains(&&**key) {
            continue;
        }
        // A boolean is not a field of a packet.
        let meant = value.get_ref().as_bool().and_then(|_| meant(key, &RULE));
        if let Some(meant) = meant {
            let problem = format!("'{key}' is not known here; did you mean {meant}?");
            fields.problem(&value.span(), problem);
            continue;
        }
        match word(fields, key, value) {
            Some(word) => words.add(word, key, value.span()),
            // Another field may need this one.
            None => is_read = false,
        }
    }
    let matching = read_match(&words.text);
    if let (Err(unread), true) = (&matching, is_read) {
        let (at, text) = words.mistake(unread);
        fields.problem(&at, text);
    }
    is_read &= matching.is_ok();
    let rule = Rule {
        name: name.unwrap_or_default(),
        matching: matching.unwrap_or_else(|_| Matching::any()),
        allows,
        mirror: fields.string(table, "mirror", "watch"),
    };
    (rule, is_read)
}

/// The words of a rule's match, each with its key and where it was written.
#[derive(Default)]
struct Words {
    text: String,
    /// With the column at which each begins, from 0.
    words: Vec<(usize, String, Range<usize>)>,
}

impl Words {
    fn add(&mut self, word: String, key: &str, at: Range<usize>) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.words.push((self.text.len(), key.to_owned(), at));
        self.text.push_str(&word);
    }

    /// A mistake in the match, at the key that has it.
    fn mistake(&self, unread: &Unread) -> (Range<usize>, String) {
        let of_field = |name: &str| {
            let is_it = |key: &str| {
                let field = Field::from_name(key).map(|field| field.info());
                key == name || field.is_some_and(|info| [info.set_text, info.text].contains(&name))
            };
            self.words.iter().find(|(_, key, _)| is_it(key))
        };
        let at_column = |column: usize| {
            let before = self.words.partition_point(|(start, ..)| *start < column);
            before.checked_sub(1).and_then(|last| self.words.get(last))
        };
        let word = match unread {
            // A field that lacks another one has no column.
            Unread::Text(error) if error.column == 1 => {
                of_field(&error.found).or_else(|| at_column(1))
            }
            Unread::Text(error) => at_column(error.column),
            Unread::Field(field, _) => of_field(field.info().text),
            Unread::Whole(_) => None,
        };
        let word = word.or_else(|| self.words.first());
        let (key, at) = word.map_or(("match", 0..0), |(_, key, at)| (&key[..], at.clone()));
        match unread {
            Unread::Text(error) if key != "match" => (at, format!("{key}: write {}", error.wanted)),
            unread => (at, format!("{key}: {unread}")),
        }
    }
}

/// A field and its value in the words of `ovs-ofctl`.
fn word(fields: &mut Fields<'_>, key: &str, value: &Value<'_>) -> Option<String> {
    // As in Faucet, a number is the id in the tag.
    let is_id = key == "vlan_vid" && value.get_ref().as_integer().is_some();
    let key = if is_id { "dl_vlan" } else { key };
    match value.get_ref() {
        DeValue::String(text) => Some(format!("{key}={text}")),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            let number = u64::from_str_radix(&digits, number.radix());
            number.ok().map(|number| format!("{key}={number}"))
        }
        _ => {
            fields.wrong(
                value,
                key,
                "a number or text such as",
                "6 or \"10.0.0.0/8\"",
            );
            None
        }
    }
}

/// A match that access lists cannot have.
#[derive(Debug)]
enum Unread {
    Text(TextError),
    Field(Field, String),
    Whole(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Text(error) => error.fmt(f),
            Unread::Field(_, text) | Unread::Whole(text) => f.write_str(text),
        }
    }
}

/// Reads a match.
pub fn matching(text: &str) -> Result<Matching, String> {
    read_match(text).map_err(|unread| unread.to_string())
}

fn read_match(text: &str) -> Result<Matching, Unread> {
    let read = parse_match(text).map_err(Unread::Text)?;
    let matching = Matching::from_match(&read);
    let whole = || Unread::Whole("fields of experimenters are not supported".to_owned());
    let matching = matching.ok_or_else(whole)?;
    let has = |field: &Field| matching.has(*field);
    if let Some(field) = OTHERS.into_iter().find(has) {
        let name = field.info().text;
        let text = format!("{name} is no field of a packet; the port is what acl_in belongs to");
        return Err(Unread::Field(field, text));
    }
    if let Some(field) = UNUSUAL.into_iter().find(has) {
        let text = format!("Open vSwitch cannot match {}", field.info().text);
        return Err(Unread::Field(field, text));
    }
    match matching.exact(Field::VlanVid) {
        Some(id) if id != 0 && id & PRESENT == 0 => Err(Unread::Field(
            Field::VlanVid,
            format!("vlan_vid={id} matches no packet; write dl_vlan={id} for those with this tag"),
        )),
        _ => Ok(matching),
    }
}

/// The ports that are trusted; `None` without the key.
fn trusted(fields: &mut Fields<'_>, table: &DeTable<'_>, key: &str) -> Option<BTreeSet<Location>> {
    let ports = fields.list(table, key, "1:48", topology::edge_port);
    table.contains_key(key).then(|| ports.into_iter().collect())
}

/// The hosts of `bind`, and whether the hosts with an address by DHCP are added; `None` without the
/// key.
fn bindings(fields: &mut Fields<'_>, table: &DeTable<'_>) -> Option<(Vec<Binding>, bool)> {
    let value = table.get("bind")?;
    let mut all: Vec<Binding> = Vec::new();
    let mut is_by_dhcp = false;
    let example = "02:00:00:00:00:01 10.0.0.1";
    for (place, bound) in fields.list_at(table, "bind", example, bound) {
        let Some(binding) = bound else {
            if std::mem::replace(&mut is_by_dhcp, true) {
                fields.problem(&place, "bind: dhcp is listed already");
            }
            continue;
        };
        match all.iter().any(|other| other.mac == binding.mac) {
            true => {
                let mac = binding.mac;
                let problem = format!("bind: {mac} is bound already; list its addresses once");
                fields.problem(&place, problem);
            }
            false => all.push(binding),
        }
    }
    if items(table, "bind").is_empty() {
        let problem = "bind is empty; name the hosts of the port, or take it out";
        fields.problem(&value.span(), problem);
    }
    if all.len() > BINDINGS_MAX {
        let problem = format!("bind: at most {BINDINGS_MAX} hosts fit one port");
        fields.problem(&value.span(), problem);
    }
    Some((all, is_by_dhcp))
}

/// A host to which a port is bound; `None` stands for the hosts that have an address by DHCP.
fn bound(text: &str) -> Result<Option<Binding>, String> {
    match text == BY_DHCP {
        true => Ok(None),
        false => binding(text).map(Some),
    }
}

fn binding(text: &str) -> Result<Binding, String> {
    let mut words = text.split_ascii_whitespace();
    let mac = words.next().and_then(|mac| mac.parse::<MacAddr>().ok());
    let is_host = |mac: &MacAddr| !mac.is_multicast() && *mac != MacAddr::default();
    let mac = mac.filter(is_host).ok_or_else(|| {
        format!(
            "'{text}' is not \"dhcp\", nor does it begin with the Ethernet address of a host, such \
             as \"02:00:00:00:00:01 10.0.0.1\""
        )
    })?;
    let address = |word: &str| {
        let ip = word.parse::<IpAddr>().ok();
        let ip = ip.filter(|ip| !ip.is_multicast() && !ip.is_unspecified());
        ip.ok_or_else(|| format!("'{word}' is no IP address of a host"))
    };
    let ips: BTreeSet<IpAddr> = words.map(address).collect::<Result<_, _>>()?;
    match ips.len() <= ADDRESSES_MAX {
        true => Ok(Binding { mac, ips }),
        false => Err(format!("at most {ADDRESSES_MAX} addresses fit one host")),
    }
}

/// Describes the verdict about a packet received at a port, with one line for each rule consulted.
/// `rules` has these rules in words.
pub fn verdict_text(verdict: &Verdict, at: Location, rules: &[&str]) -> Vec<String> {
    let one = |text: String| vec![text];
    match verdict {
        Verdict::Allowed(all) if all.is_empty() => {
            one("passes: no access list concerns it".to_owned())
        }
        Verdict::Allowed(_) => rules.iter().map(|rule| format!("passes: {rule}")).collect(),
        Verdict::Denied(_) => rules
            .iter()
            .map(|rule| format!("dropped: {rule}"))
            .collect(),
        Verdict::NoRule(place) => {
            let place = match place {
                Place::Port(_) => place_name(Place::Port(at)),
                vlan => place_name(*vlan),
            };
            one(format!("dropped: no rule of the lists of {place} matches"))
        }
        Verdict::NotBound => one(format!(
            "dropped: no host that port {at} is bound to sends this"
        )),
        Verdict::DhcpServer => one(format!(
            "dropped: port {at} is not among dhcp_servers in [guard]"
        )),
        Verdict::Router => one(format!(
            "dropped: port {at} is not among routers in [guard]"
        )),
        Verdict::NoMember => one("dropped: its port is no member of that VLAN".to_owned()),
    }
}

/// A place in words.
pub fn place_name(place: Place) -> String {
    match place {
        Place::Port(at) => format!("port {at}"),
        Place::Vlan(vlan) => format!("VLAN {vlan}"),
        Place::Out(vlan) => format!("VLAN {vlan} for routed packets"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::without_columns;

    fn read(text: &str) -> Result<Stated, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let stated = Stated::read(&mut fields, &root);
        let done = fields.finish("net.toml").map_err(without_columns);
        done.map(|()| stated)
    }

    /// Lists for routed packets are read, unless they match what a router changes: then each rule
    /// and field has its line.
    #[test]
    fn lists_for_routed_packets_are_read() {
        let vlan = "[[vlan]]\nid = 20\ngateway = \"10.0.20.254/24\"\nacl_out = \"web\"\n";
        let access = read(&format!("{LIST}{vlan}")).expect("it is right").access;
        assert_eq!(access.out, [(VlanId::new(20).unwrap(), vec![0])].into());
        assert!(access.is_on() && access.vlans.is_empty());
        let more = "[[acl]]\nname = \"mac\"\n[[acl.rule]]\nallow = true\n\
                    match = \"ip,dl_src=02:00:00:00:00:01,dl_vlan=10\"\n[[acl.rule]]\n\
                    allow = false\ndl_dst = \"02:00:00:00:00:02\"\n";
        let vlan = vlan.replace("\"web\"", "[\"web\", \"mac\", \"nope\"]");
        let problems = read(&format!("{LIST}{more}{vlan}")).expect_err("three fields, one name");
        let told = |line, field| {
            let told = format!("net.toml:{line}: {field}: 'mac' is an acl_out, in line 23");
            problems.iter().any(|problem| problem.starts_with(&told))
        };
        assert!(
            told(14, "dl_src") && told(14, "vlan_vid") && told(17, "dl_dst"),
            "{problems:#?}"
        );
        let unknown = "net.toml:23: acl_out: no [[acl]] has the name 'nope'";
        assert!(problems.iter().any(|problem| problem.starts_with(unknown)));
        assert_eq!(problems.len(), 4, "{problems:#?}");
        // The lists may still be an acl_in.
        let vlan = "[[vlan]]\nid = 20\nacl_in = \"mac\"\n";
        assert!(read(&format!("{LIST}{more}{vlan}")).is_ok());
    }

    /// With a separate Ethernet address for each gateway, switches need all networks once for each
    /// gateway.
    #[test]
    fn routes_fit_the_switch() {
        let vlan = |id: u32| {
            let mac = format!("0e:00:00:00:{:02x}:{:02x}", id >> 8, id & 0xff);
            let subnet = format!("10.{}.{}.254/24", id >> 8, id & 0xff);
            format!("[[vlan]]\nid = {id}\ngateway = \"{subnet}\"\ngateway_mac = \"{mac}\"\n")
        };
        let read = |count: u32, out: &str| {
            let vlans: String = (1..=count).map(vlan).collect();
            let text = format!("{LIST}{}", vlans.replacen("id = 7\n", out, 1));
            let (mut fields, root) = Fields::parse(&text);
            let stated = Stated::read(&mut fields, &root);
            let gateways = super::super::gateways::read(&mut fields, &root);
            stated.check_routes(&mut fields, &root, &gateways);
            fields.finish("net.toml").map_err(without_columns)
        };
        let out = "id = 7\nacl_out = \"web\"\n";
        assert!(read(160, out).is_ok() && read(400, "id = 7\n").is_ok());
        let problems = read(400, out).expect_err("too many");
        assert!(
            problems[0].starts_with("net.toml:38: acl_out: a switch would need 323200 entries"),
            "{problems:?}"
        );
    }

    /// A list for routed packets is doubtful if no packets are routed into its VLAN.
    #[test]
    fn a_vlan_without_a_gateway_gets_no_routed_packets() {
        let text = format!("{LIST}[[vlan]]\nid = 20\nacl_out = \"web\"\n");
        let (mut fields, root) = Fields::parse(&text);
        let _ = Stated::read(&mut fields, &root);
        let doubts = without_columns(fields.doubts("net.toml"));
        assert!(
            doubts[0].starts_with("net.toml:14: acl_out: the VLAN has no gateway"),
            "{doubts:?}"
        );
    }

    const LIST: &str = "[[acl]]\nname = \"web\"\n[[acl.rule]]\nmatch = \"tcp,tp_dst=80\"\n\
                        allow = true\n[[acl.rule]]\nname = \"dns\"\ndl_type = 0x800\n\
                        nw_proto = 17\nudp_dst = 53\nallow = true\n";

    #[test]
    fn lists_bindings_and_guards_are_read() {
        let text = format!(
            "{LIST}[[vlan]]\nid = 10\nacl_in = \"web\"\n[[port]]\nat = [\"1:2\", \"1:3\"]\n\
             acl_in = [\"web\"]\nbind = [\"02:00:00:00:00:01 10.0.0.1 fd00::1\", \
             \"02:00:00:00:00:02\"]\n[guard]\ndhcp_servers = \"1:9\"\nrouters = []\n"
        );
        let stated = read(&text).unwrap();
        let access = &stated.access;
        assert_eq!(access.acls.len(), 1);
        assert_eq!(access.ports.len(), 2);
        assert_eq!(access.vlans, [(VlanId::new(10).unwrap(), vec![0])].into());
        let bound = access.bindings.values().next().unwrap();
        assert_eq!(
            (bound.len(), bound[0].ips.len(), bound[1].ips.len()),
            (2, 2, 0)
        );
        assert_eq!(access.dhcp_servers.as_ref().map(BTreeSet::len), Some(1));
        assert_eq!(access.routers.as_ref().map(BTreeSet::len), Some(0));
        let dns = RuleId { acl: 0, rule: 1 };
        assert_eq!(
            (stated.line(&dns), stated.name(&dns)),
            (Some(6), "web 'dns'".to_owned())
        );
        let both = matching("udp,tp_dst=53").unwrap();
        assert_eq!(
            access.acls[0].rules[1].matching, both,
            "either way to say it"
        );
        assert!(!read("").unwrap().access.is_on());
        let tag = "[[acl]]\nname = \"t\"\n[[acl.rule]]\nvlan_vid = 10\nallow = true\n";
        let tagged = read(tag).unwrap().access.acls[0].rules[0].matching.clone();
        assert_eq!(tagged, matching("dl_vlan=10").unwrap());
    }

    #[test]
    fn the_manuals_example_is_read() {
        const MANUAL: &str = include_str!("../../../docs/run-access.md");
        let (_, text) = MANUAL.split_once("```toml\n").unwrap();
        let (text, _) = text.split_once("```").unwrap();
        assert_eq!(read(text).unwrap().access.acls.len(), 2);
    }

    /// A switch that needs too many entries is named: its lists could not be read again.
    #[test]
    fn lists_fit_the_switch() {
        let rules = (0..4000)
            .map(|port| format!("[[acl.rule]]\nmatch = \"tcp,tp_dst={port}\"\nallow = true\n"));
        let acl = format!("[[acl]]\nname = \"a\"\n{}", rules.collect::<String>());
        let ports = |count: u32| {
            let ports = (1..=count).map(|port| format!("\"1:{port}\""));
            let ports: Vec<String> = ports.collect();
            format!(
                "{acl}[[port]]\nat = [{}]\nacl_in = \"a\"\n",
                ports.join(", ")
            )
        };
        assert!(read(&ports(16)).is_ok());
        let problems = read(&ports(17)).unwrap_err();
        let told = "switch 0000000000000001 would need 68017 entries";
        assert!(problems[0].contains(told), "{problems:?}");
        let many =
            acl.replace("tp_dst=3999", "tp_dst=4") + &acl[18..].replace("tp_dst=", "tp_src=");
        let problems = read(&many).unwrap_err();
        let is_long = |problem: &String| problem.contains("at most 4096 fit one list");
        assert!(problems.iter().any(is_long), "{:?}", &problems[..2]);
    }

    /// Each case follows a list of eleven lines.
    #[test]
    fn every_mistake_is_named_with_its_line_and_field() {
        let cases = [
            (
                "[[port]]\nat = \"1:2\"\nacl_in = \"x\"",
                "14: acl_in: no [[acl]] has the name 'x'",
            ),
            (
                "[[port]]\nat = \"1:2\"\nacl_in = [\"web\", \"web\"]",
                "14: acl_in: 'web' is listed",
            ),
            (
                "[[port]]\nat = \"1:2\"\nbind = \"x\"",
                "14: bind: 'x' is not \"dhcp\", nor does it begin with",
            ),
            (
                "[[port]]\nat = \"1:2\"\nbind = \"01:00:00:00:00:01\"",
                "14: bind: '01:00:00:00:00:01' is not \"dhcp\", nor does",
            ),
            (
                "[[port]]\nat = \"1:2\"\nbind = \"dhcp\"",
                "14: bind: dhcp needs dhcp_servers in [guard]",
            ),
            (
                "[[port]]\nat = \"1:2\"\nbind = [\"dhcp\", \"dhcp\"]",
                "14: bind: dhcp is listed already",
            ),
            (
                "[[port]]\nat = \"1:2\"\nbind = \"02:00:00:00:00:01 10.0.0\"",
                "14: bind: '10.0.0' is no IP address",
            ),
            (
                "[[port]]\nat = \"1:2\"\nbind = [\"02:00:00:00:00:01\", \"02:00:00:00:00:01\"]",
                "14: bind: 02:00:00:00:00:01 is bound already",
            ),
            ("[guard]\nrouters = \"1:x\"", "13: routers: "),
            (
                "[guard]\nrooters = \"1:1\"",
                "13: 'rooters' is not known in [guard]",
            ),
            (
                "[[acl]]\nname = \"web\"\n[[acl.rule]]\nallow = true",
                "12: name: there is an",
            ),
            ("[[acl]]\nname = \"a\"", "12: rule is missing"),
            ("[[acl]]\n[[acl.rule]]\nallow = true", "12: name is missing"),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nmatch = \"tcp\"",
                "14: allow is missing",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nalow = false\nallow = true",
                "15: 'alow' is not known here; did you mean allow?",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\nmatch = \"in_port=1\"",
                "16: match: in_port is no field of a packet",
            ),
            ("[[port]]\nat = \"1:2\"\nbind = []", "14: bind is empty"),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nname = \"2\"\nallow = true",
                "14: name: a number is",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\nmatch = \"vlan_vid=10\"",
                "16: match: vlan_vid=10 matches no packet; write dl_vlan=10",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\nmatch = \"ipv6,ipv6_exthdr=1\"",
                "16: match: Open vSwitch cannot match",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\n[[port]]\nat = \"1:2\"\n\
                 acl_in = [\"a\", \"web\"]",
                "18: acl_in: the rule in line 3 is never reached here: the one in line 14",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\nudp_dst = 53",
                "16: udp_dst: write udp too: udp_dst is a field of it",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\ndl_type = 0x800\n\
                 ipv4_src = \"10.0.0\"",
                "17: ipv4_src: write an address such as 10.0.0.0/8",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\nmatch = \"ip\"\n\
                 nw_frag = \"no\"",
                "17: nw_frag: write nw_src, nw_dst or nw_proto, which fragments have too: OpenFlow",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\ndl_type = true\n\
                 ipv4_src = \"10.0.0.0/8\"",
                "16: dl_type is true",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\nvlan_vid = \"10\"",
                "16: vlan_vid: vlan_vid=10 matches no packet",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\n[[acl.rule]]\nallow = false",
                "16: this rule is never reached: the one in line 14 takes all of its packets",
            ),
            (
                "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\nmatch = \"ip\"\n[[acl.rule]]\n\
                 allow = false\nmatch = \"tcp,tp_dst=22\"",
                "17: this rule is never reached",
            ),
        ];
        let mut all = LIST.to_owned();
        for (text, wanted) in cases {
            let problems = read(&format!("{LIST}{text}\n")).expect_err(text);
            let told = format!("net.toml:{wanted}");
            let is_told = problems.iter().any(|problem| problem.starts_with(&told));
            assert!(is_told, "{text}: {problems:?}");
            if !text.contains("[guard]") {
                all += &format!("{text}\n");
            }
        }
        let text = "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\nmatch = \"ip=1.2\"\n\
                    [[acl.rule]]\nallow = false\n";
        let one = read(text).expect_err("a match that cannot be read");
        assert_eq!(one.len(), 1, "nobody knows what it takes: {one:?}");
        let together = read(&all).expect_err("all of them");
        assert!(together.len() >= cases.len() - 2, "{together:#?}");
    }
}
