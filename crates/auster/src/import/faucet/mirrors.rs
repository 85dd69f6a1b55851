//! Converts Faucet's mirrors to auster's. An interface names ports whose packets are copied to it,
//! and a rule of an access list names a port, at each switch where packets enter.

use std::collections::BTreeSet;

use super::keys;
use super::{Acl, Member, Switch};
use crate::import::report::{At, Report, shown};
use crate::import::yaml::{Entry, Value, integer};
use config::access;

/// A mirror of one switch.
#[derive(Debug, PartialEq, Eq)]
pub struct Mirror {
    pub name: String,
    pub from: Vec<u32>,
    pub to: u32,
}

/// A port as written in the file: its number or name.
#[derive(Clone, Debug)]
pub struct Named {
    pub at: At,
    path: String,
    text: String,
}

impl Named {
    /// The ports of a value; mistakes go to the report.
    pub fn read(entry: &Entry, path: &str, report: &mut Report) -> Vec<Named> {
        let path = format!("{path}.{}", shown(&entry.key));
        let one = [entry.value.clone()];
        let items = match &entry.value.value {
            Value::List(items) => items.as_slice(),
            _ if entry.value.is_null() => &[],
            _ => &one,
        };
        let mut all = Vec::new();
        for item in items {
            let path = path.clone();
            match item.text() {
                Some(text) => all.push(Named {
                    at: item.at,
                    path,
                    text,
                }),
                None => report.mistake(item.at, format!("{path} must name ports")),
            }
        }
        all
    }

    pub fn is(&self, number: u32, name: Option<&str>) -> bool {
        integer(&self.text) == Some(number.into()) || name == Some(&self.text[..])
    }

    fn find(&self, switch: &Switch) -> Option<u32> {
        let mut ports = switch.ports.iter();
        let found = ports.find(|(number, port)| self.is(**number, port.name.as_deref()));
        found.map(|(number, _)| *number)
    }

    /// The name of the mirror to the port, if auster accepts it.
    pub fn mirror(&self) -> Option<String> {
        match integer(&self.text) {
            Some(number) => Some(format!("port-{number}")),
            None => access::name(&self.text).ok(),
        }
    }
}

/// Makes the mirrors of all switches, and drops those of rules that no switch can have.
pub fn judge<'s>(
    switches: impl Iterator<Item = &'s mut Switch>,
    acls: &mut [Acl],
    report: &mut Report,
) {
    let rules = acls.iter().flat_map(|acl| &acl.rules);
    let of_rules: Vec<Named> = rules.filter_map(|rule| rule.mirror.clone()).collect();
    let mut held = BTreeSet::new();
    for switch in switches {
        let mut mirrors = of_ports(switch, report);
        for named in &of_rules {
            let to = named.find(switch).filter(|to| is_target(switch, *to));
            if let (Some(to), Some(name)) = (to, named.mirror()) {
                held.insert(name.clone());
                if !mirrors.iter().any(|mirror| mirror.name == name) {
                    let from = Vec::new();
                    mirrors.push(Mirror { name, from, to });
                }
            }
        }
        switch.mirrors = mirrors;
    }
    for rule in acls.iter_mut().flat_map(|acl| &mut acl.rules) {
        let is_held = |named: &Named| named.mirror().is_some_and(|name| held.contains(&name));
        if let Some(named) = rule.mirror.take_if(|named| !is_held(named)) {
            report.left_out(named.at, &named.path, keys::MIRROR_USED);
        }
    }
}

fn is_target(switch: &Switch, number: u32) -> bool {
    let port = switch.ports.get(&number);
    port.is_some_and(|port| port.member == Member::Target)
}

/// The mirrors that interfaces of a switch state.
fn of_ports(switch: &Switch, report: &mut Report) -> Vec<Mirror> {
    let mut mirrors = Vec::new();
    for (to, port) in &switch.ports {
        let mut from = BTreeSet::new();
        for named in &port.mirrors {
            if !is_target(switch, *to) {
                report.left_out(named.at, &named.path, keys::MIRROR_USED);
                continue;
            }
            match named.find(switch) {
                Some(found) if found != *to && !is_target(switch, found) => {
                    if switch
                        .ports
                        .get(&found)
                        .is_some_and(|port| !port.acls.is_empty())
                    {
                        report.left_out(named.at, &named.path, keys::MIRROR_DROPPED);
                    }
                    from.insert(found);
                }
                Some(_) => report.left_out(named.at, &named.path, keys::MIRROR_USED),
                None => {
                    let text = shown(&named.text);
                    let problem = format!("{}: the switch has no port '{text}'", named.path);
                    report.mistake(named.at, problem);
                }
            }
        }
        if !from.is_empty() {
            mirrors.push(Mirror {
                name: format!("port-{to}"),
                from: from.into_iter().collect(),
                to: *to,
            });
        }
    }
    mirrors
}
