//! Converts Faucet's access lists to auster's: the same rules in the same order. A list with a
//! match that auster does not have is left out as a whole, since without one of its rules it would
//! be another list.

use std::collections::BTreeMap;
use std::rc::Rc;

use control::access::shadow::Seen;
use control::qos::flow::Matching;

use super::keys;
use super::mirrors::Named;
use crate::import::report::{At, Report, shown};
use crate::import::yaml::{Entry, Node, Value};
use config::access::{self, matching};

/// A list as it is written.
#[derive(Debug)]
pub struct Acl {
    pub name: String,
    pub rules: Vec<Rule>,
}

#[derive(Debug)]
pub struct Rule {
    /// The match in `ovs-ofctl` syntax.
    pub text: String,
    pub allows: bool,
    /// The port that gets copies of its packets.
    pub mirror: Option<Named>,
}

/// The lists that ports and VLANs may refer to.
#[derive(Debug, Default)]
pub struct Acls {
    /// `None`: the list is left out.
    by_name: BTreeMap<String, Option<usize>>,
    pub all: Vec<Acl>,
}

impl Acls {
    pub fn read(section: &[Entry], report: &mut Report) -> Acls {
        let mut acls = Acls::default();
        for entry in section {
            let path = format!("acls.{}", shown(&entry.key));
            let rules = rules(entry, &path, report);
            let place = rules.map(|rules| {
                let number = acls.all.len();
                let name = access::name(&entry.key).ok();
                let name = name.unwrap_or_else(|| free_name(section, number));
                acls.all.push(Acl { name, rules });
                number
            });
            if place.is_none() {
                report.left_out(entry.at, &path, keys::LIST);
            }
            acls.by_name.insert(entry.key.clone(), place);
        }
        acls
    }

    /// The lists that `acl_in`, `acls_in` and the like refer to.
    pub fn find(&self, entry: &Entry, path: &str, report: &mut Report) -> Vec<usize> {
        let path = format!("{path}.{}", entry.key);
        let one = [entry.value.clone()];
        let names = match &entry.value.value {
            Value::List(items) => items.as_slice(),
            _ if entry.value.is_null() => &[],
            _ => &one,
        };
        let mut found = Vec::new();
        for name in names {
            match self.place(name) {
                Some(Some(place)) if !found.contains(&place) => found.push(place),
                Some(Some(_)) => {}
                Some(None) => report.left_out(name.at, &path, keys::LIST),
                None => {
                    let name = shown(&name.text().unwrap_or_default());
                    let problem = format!("{path}: no access list '{name}' is stated in acls");
                    report.mistake(entry.at, problem);
                }
            }
        }
        found
    }

    /// Whether a list can judge routed packets: none of its rules matches a field that a router
    /// changes.
    pub fn fits_routed(&self, place: usize) -> bool {
        let rules = self.all.get(place).map_or(&[][..], |acl| &acl.rules);
        let matches = rules.iter().filter_map(|rule| matching(&rule.text).ok());
        let is_changed = |m: &Matching| access::ROUTED.iter().any(|field| m.has(*field));
        !matches.into_iter().any(|m| is_changed(&m))
    }

    /// Whether a rule copies packets to a port.
    pub fn copies_to(&self, number: u32, name: Option<&str>) -> bool {
        let rules = self.all.iter().flat_map(|acl| &acl.rules);
        let mut targets = rules.filter_map(|rule| rule.mirror.as_ref());
        targets.any(|target| target.is(number, name))
    }

    fn place(&self, name: &Rc<Node>) -> Option<Option<usize>> {
        self.by_name.get(&name.text()?).copied()
    }
}

/// A name that no list has.
fn free_name(section: &[Entry], number: usize) -> String {
    let names = (number + 1..).map(|n| format!("acl-{n}"));
    let mut free = names.filter(|name| !section.iter().any(|entry| entry.key == *name));
    free.next().unwrap_or_default()
}

/// The rules of a list; `None` if one cannot be carried over.
fn rules(entry: &Entry, path: &str, report: &mut Report) -> Option<Vec<Rule>> {
    let Value::List(items) = &entry.value.value else {
        report.mistake(entry.at, format!("{path} must be a list of rules"));
        return None;
    };
    let mut all: Vec<Rule> = Vec::new();
    let mut seen = Seen::default();
    let mut is_whole = !items.is_empty() && items.len() <= access::RULES_MAX;
    for item in items {
        let Some(fields) = fields_of(item) else {
            report.mistake(item.at, format!("{path} must list rules: - rule: {{...}}"));
            continue;
        };
        match rule(fields, path, report) {
            Some((_, matching)) if seen.add(&matching).is_some() => {
                report.left_out(item.at, path, keys::NEVER_REACHED);
            }
            Some((rule, _)) => all.push(rule),
            None => {
                report.left_out(item.at, path, keys::MATCH);
                is_whole = false;
            }
        }
    }
    is_whole.then_some(all)
}

fn fields_of(item: &Node) -> Option<&[Entry]> {
    let Value::Map(entries) = &item.value else {
        return None;
    };
    let [entry] = &entries[..] else {
        return None;
    };
    match &entry.value.value {
        _ if entry.key != "rule" => None,
        Value::Map(fields) => Some(fields),
        _ => entry.value.is_null().then_some(&[]),
    }
}

fn rule(fields: &[Entry], path: &str, report: &mut Report) -> Option<(Rule, Matching)> {
    let mut words = Vec::new();
    let (mut allows, mut mirror) = (false, None);
    for field in fields {
        match field.key.as_str() {
            "actions" => (allows, mirror) = actions(field, path, report),
            "description" | "cookie" => {}
            key => words.push(word(key, &field.value)?),
        }
    }
    let text = words.join(",");
    let matching = matching(&text).ok()?;
    let rule = Rule {
        text,
        allows,
        mirror,
    };
    Some((rule, matching))
}

fn word(key: &str, value: &Node) -> Option<String> {
    // Faucet adds the bit that marks a tag as present.
    let key = if key == "vlan_vid" { "dl_vlan" } else { key };
    let text = match value.integer() {
        Some(number) => number.to_string(),
        None => value.text()?,
    };
    let is_plain = |c: char| c.is_ascii_graphic() && !['"', '\\', ','].contains(&c);
    let is_word = !text.is_empty() && [key, &text].iter().all(|word| word.chars().all(is_plain));
    is_word.then(|| format!("{key}={text}"))
}

/// Whether a rule allows, and the port that gets copies.
fn actions(field: &Entry, path: &str, report: &mut Report) -> (bool, Option<Named>) {
    let Value::Map(entries) = &field.value.value else {
        let at: At = field.at;
        report.left_out(at, path, keys::ACTIONS);
        return (false, None);
    };
    let (mut allows, mut mirror) = (false, None);
    for action in entries {
        match action.key.as_str() {
            "allow" => allows = !action.value.is_off(),
            _ if action.value.is_null() => {}
            "mirror" => mirror = Named::read(action, path, report).pop(),
            _ => report.left_out(action.at, path, keys::ACTIONS),
        }
    }
    (allows, mirror)
}
