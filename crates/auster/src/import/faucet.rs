//! Faucet's configuration, version 2: its VLANs, and the ports of its switches.

mod acls;
mod gateways;
mod keys;
mod mirrors;

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use openflow::PortNo;

use super::report::{At, Report, shown};
use super::yaml::{Entry, Node, Value, integer};
pub use acls::Acl;
use acls::Acls;
pub use gateways::Gateway;
use keys::Section;
pub use mirrors::Mirror;
use mirrors::Named;

/// The most ports of all switches together.
const PORTS_MAX: usize = 1 << 16;
const VLANS: std::ops::RangeInclusive<u64> = 1..=4094;

/// The network, as far as auster supports it.
#[derive(Debug, Default)]
pub struct Network {
    pub vlans: BTreeMap<u16, Vlan>,
    /// The switches by their datapath ids.
    pub switches: BTreeMap<u64, Switch>,
    pub acls: Vec<Acl>,
}

#[derive(Debug, Default)]
pub struct Vlan {
    /// The name in the file, which auster may refuse. VLANs known by their number have none.
    pub name: Option<String>,
    pub description: Option<String>,
    /// Its access lists, by their places in the network.
    pub acls: Vec<usize>,
    /// The access lists for packets that are routed into the VLAN.
    pub acls_out: Vec<usize>,
    pub gateway: Gateway,
}

#[derive(Debug, Default)]
pub struct Switch {
    pub name: String,
    pub description: Option<String>,
    pub ports: BTreeMap<u32, Port>,
    pub mirrors: Vec<Mirror>,
}

#[derive(Clone, Debug)]
pub struct Port {
    pub at: At,
    pub name: Option<String>,
    pub description: Option<String>,
    pub member: Member,
    pub acls: Vec<usize>,
    /// The ports whose packets are copied to this port.
    mirrors: Vec<Named>,
}

/// The VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// An end of a link between switches, which carries all VLANs.
    Link,
    /// A port that gets copies of other ports' packets.
    Target,
    Outside,
    Access(u16),
    Trunk {
        tagged: Rc<BTreeSet<u16>>,
        native: Option<u16>,
    },
}

/// The statements of an interface, or of a range of them.
#[derive(Clone, Debug, Default)]
struct Stated {
    name: Option<String>,
    description: Option<String>,
    native: Option<u16>,
    tagged: Option<Rc<BTreeSet<u16>>>,
    is_link: Option<bool>,
    acls: Option<Vec<usize>>,
    mirrors: Option<Vec<Named>>,
    /// The line that states that no packets enter at the port.
    output_only: Option<At>,
    /// Whether a mistake may be why VLANs are missing.
    is_wrong: bool,
}

impl Stated {
    /// Takes from a range the settings that are not stated here.
    fn complete(&mut self, range: &Stated) {
        self.name = self.name.take().or_else(|| range.name.clone());
        let description = self.description.take();
        self.description = description.or_else(|| range.description.clone());
        self.native = self.native.or(range.native);
        self.tagged = self.tagged.take().or_else(|| range.tagged.clone());
        self.is_link = self.is_link.or(range.is_link);
        self.acls = self.acls.take().or_else(|| range.acls.clone());
        self.mirrors = self.mirrors.take().or_else(|| range.mirrors.clone());
        self.output_only = self.output_only.or(range.output_only);
        self.is_wrong |= range.is_wrong;
    }
}

/// Reads the sections of all files.
#[derive(Debug, Default)]
pub struct Reader {
    vlans: Vec<Entry>,
    acls: Vec<Entry>,
    routers: Vec<Entry>,
    dps: Vec<Entry>,
    has_dps: bool,
}

/// A file that another file includes.
#[derive(Debug, PartialEq, Eq)]
pub struct Include {
    pub at: At,
    pub file: String,
    /// Whether it may be missing.
    pub is_optional: bool,
}

impl Reader {
    /// Takes in the top level of a file, and returns the files that it includes.
    pub fn add(&mut self, root: &Node, report: &mut Report) -> Vec<Include> {
        let mut includes = Vec::new();
        for entry in entries(root, "the file", report) {
            match entry.key.as_str() {
                "version" => {
                    if entry.value.integer() != Some(2) {
                        report.mistake(entry.at, "version: only version 2 is read");
                    }
                }
                "include" | "include-optional" => {
                    includes.extend(included(entry, report));
                }
                "vlans" => add_section(&mut self.vlans, entry, report),
                "acls" => add_section(&mut self.acls, entry, report),
                "routers" => add_section(&mut self.routers, entry, report),
                "dps" => {
                    self.has_dps = true;
                    add_section(&mut self.dps, entry, report);
                }
                _ => leave_out(entry, "", Section::Top, report),
            }
        }
        includes
    }

    /// Reads the network after the last file.
    pub fn finish(self, report: &mut Report) -> Network {
        let mut network = Network::default();
        if self.dps.is_empty() && report.is_good() {
            let at = At { file: 0, line: 1 };
            let problem = match self.has_dps {
                true => "dps is empty: no switch is stated",
                false => "dps is missing: no switch is stated",
            };
            report.mistake(at, problem);
        }
        let acls = Acls::read(&self.acls, report);
        let mut vlans = Vlans::read(&self.vlans, &acls, report);
        gateways::judge(&mut vlans, &self.routers, report);
        let mut ids = BTreeMap::new();
        let mut ports_left = PORTS_MAX;
        for entry in &self.dps {
            let (id, switch) = read_switch(entry, (&mut vlans, &acls), &mut ports_left, report);
            let Some(id) = id else { continue };
            if let Some(before) = ids.insert(id, entry.at) {
                let problem = format!(
                    "dps.{}: dp_id {id:#x} is another switch's already, in {}",
                    shown(&entry.key),
                    report.place(before)
                );
                report.mistake(entry.at, problem);
            }
            network.switches.insert(id, switch);
        }
        network.vlans = vlans.by_id;
        network.acls = acls.all;
        mirrors::judge(network.switches.values_mut(), &mut network.acls, report);
        network
    }
}

/// The entries of a section. An empty one has none.
fn entries<'n>(node: &'n Node, path: &str, report: &mut Report) -> &'n [Entry] {
    match &node.value {
        Value::Map(entries) => entries,
        _ if node.is_null() => &[],
        _ => {
            report.mistake(node.at, format!("{path} must be a section of keys"));
            &[]
        }
    }
}

fn add_section(section: &mut Vec<Entry>, entry: &Entry, report: &mut Report) {
    let mut lines: BTreeMap<&str, At> = BTreeMap::new();
    lines.extend(section.iter().map(|entry| (entry.key.as_str(), entry.at)));
    let mut new = Vec::new();
    for inner in entries(&entry.value, &entry.key, report) {
        match lines.get(inner.key.as_str()) {
            Some(before) => {
                let problem = report.stated_already(&inner.key, *before);
                report.mistake(inner.at, format!("{}: {problem}", entry.key));
            }
            None => new.push(inner.clone()),
        }
    }
    section.extend(new);
}

fn included(entry: &Entry, report: &mut Report) -> Vec<Include> {
    let mut files = Vec::new();
    let items = match &entry.value.value {
        Value::List(items) => items.as_slice(),
        _ => {
            let problem = format!("{} must be a list of files", entry.key);
            report.mistake(entry.at, problem);
            &[]
        }
    };
    for item in items {
        match item.text() {
            Some(file) => files.push(Include {
                at: item.at,
                file,
                is_optional: entry.key == "include-optional",
            }),
            None => report.mistake(item.at, format!("{} must list files", entry.key)),
        }
    }
    files
}

/// Notes that a key is not carried over.
fn leave_out(entry: &Entry, path: &str, section: Section, report: &mut Report) {
    if let Some(reason) = keys::reason(section, &entry.key, &entry.value) {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{}", shown(&entry.key));
        report.left_out(entry.at, &path, reason);
    }
}

/// The VLANs that ports may refer to.
#[derive(Default)]
struct Vlans {
    by_id: BTreeMap<u16, Vlan>,
    /// Without an id if that is already reported as a mistake.
    by_key: BTreeMap<String, Option<u16>>,
    by_name: BTreeMap<String, Option<u16>>,
}

impl Vlans {
    fn read(section: &[Entry], acls: &Acls, report: &mut Report) -> Vlans {
        let mut vlans = Vlans::default();
        let mut lines: BTreeMap<u16, At> = BTreeMap::new();
        for entry in section {
            let path = format!("vlans.{}", shown(&entry.key));
            let mut vlan = Vlan::default();
            let mut id = None;
            for inner in entries(&entry.value, &path, report) {
                match inner.key.as_str() {
                    "vid" => id = Some((inner.at, vid(inner, &path, report))),
                    "name" => vlan.name = text_of(inner, &path, report),
                    "description" => vlan.description = text_of(inner, &path, report),
                    "acl_in" | "acls_in" => vlan.acls.extend(acls.find(inner, &path, report)),
                    "acl_out" | "acls_out" => {
                        let found = acls.find(inner, &path, report);
                        let (fit, others): (Vec<usize>, _) =
                            found.into_iter().partition(|acl| acls.fits_routed(*acl));
                        let path = format!("{path}.{}", inner.key);
                        if !others.is_empty() {
                            report.left_out(inner.at, &path, keys::OUT_LIST);
                        }
                        if !fit.is_empty() {
                            report.left_out(inner.at, &path, keys::OUT_WITHIN);
                        }
                        vlan.acls_out.extend(fit);
                    }
                    _ if vlan.gateway.read(inner, &path, report) => {}
                    _ => leave_out(inner, &path, Section::Vlan, report),
                }
            }
            let key = integer(&entry.key);
            if vlan.name.is_none() && key.is_none() {
                vlan.name = Some(entry.key.clone());
            }
            let (at, id) = id.unwrap_or_else(|| {
                let id = key.filter(|id| VLANS.contains(id));
                if id.is_none() {
                    let problem = format!("{path}: vid is missing: a number from 1 to 4094");
                    report.mistake(entry.at, problem);
                }
                (entry.at, id.and_then(|id| u16::try_from(id).ok()))
            });
            vlans.by_key.insert(entry.key.clone(), id);
            if let Some(name) = &vlan.name {
                vlans.by_name.entry(name.clone()).or_insert(id);
            }
            let Some(id) = id else { continue };
            if let Some(before) = lines.insert(id, at) {
                let before = report.place(before);
                let problem = format!("{path}: vid {id} is another VLAN's already, in {before}");
                report.mistake(at, problem);
            }
            vlans.by_id.insert(id, vlan);
        }
        vlans
    }

    /// The VLAN that a port refers to by key, name or number. A number needs no section.
    fn find(&mut self, node: &Node, path: &str, report: &mut Report) -> Option<u16> {
        let Some(text) = node.text() else {
            report.mistake(node.at, format!("{path} must name a VLAN or its vid"));
            return None;
        };
        let stated = self.by_key.get(&text).or_else(|| self.by_name.get(&text));
        if let Some(id) = stated {
            return *id;
        }
        let Some(number) = integer(&text) else {
            let problem = format!("{path}: no VLAN '{}' is stated in vlans", shown(&text));
            report.mistake(node.at, problem);
            return None;
        };
        let id = u16::try_from(number).ok();
        let Some(id) = id.filter(|_| VLANS.contains(&number)) else {
            let problem = format!("{path}: VLAN {number} is outside of 1 to 4094");
            report.mistake(node.at, problem);
            return None;
        };
        self.by_id.entry(id).or_default();
        Some(id)
    }
}

fn vid(entry: &Entry, path: &str, report: &mut Report) -> Option<u16> {
    let id = entry.value.integer().filter(|id| VLANS.contains(id));
    if id.is_none() {
        let found = entry.value.text().unwrap_or_default();
        let found = shown(&found);
        let problem = format!("{path}.vid is '{found}'; it must be a number from 1 to 4094");
        report.mistake(entry.at, problem);
    }
    id.and_then(|id| u16::try_from(id).ok())
}

fn text_of(entry: &Entry, path: &str, report: &mut Report) -> Option<String> {
    let text = entry.value.text();
    if text.is_none() {
        report.mistake(entry.at, format!("{path}.{} must be a text", entry.key));
    }
    text
}

fn read_switch(
    entry: &Entry,
    (vlans, acls): (&mut Vlans, &Acls),
    ports_left: &mut usize,
    report: &mut Report,
) -> (Option<u64>, Switch) {
    let path = format!("dps.{}", shown(&entry.key));
    let mut switch = Switch {
        name: entry.key.clone(),
        ..Switch::default()
    };
    let mut id = None;
    let mut ports = Ports {
        stated: BTreeMap::new(),
        ranged: BTreeMap::new(),
        left: ports_left,
        acls,
    };
    for inner in entries(&entry.value, &path, report) {
        match inner.key.as_str() {
            "dp_id" => id = Some(dp_id(inner, &path, report)),
            "name" => switch.name = text_of(inner, &path, report).unwrap_or_default(),
            "description" => switch.description = text_of(inner, &path, report),
            "interfaces" => ports.read(inner, &path, vlans, report),
            "interface_ranges" => ports.read_ranges(inner, &path, vlans, report),
            _ => leave_out(inner, &path, Section::Switch, report),
        }
    }
    let id = id.unwrap_or_else(|| {
        let id = integer(&entry.key);
        if id.is_none() {
            let problem = format!("{path}: dp_id is missing: a number such as 1 or 0x1");
            report.mistake(entry.at, problem);
        }
        id
    });
    switch.ports = ports.finish(report);
    (id, switch)
}

fn dp_id(entry: &Entry, path: &str, report: &mut Report) -> Option<u64> {
    let id = entry.value.integer();
    if id.is_none() {
        let found = shown(&entry.value.text().unwrap_or_default());
        let problem = format!(
            "{path}.dp_id is '{found}'; it must be a number below 2^64, in decimal without leading \
             zeros or as 0x and hex digits"
        );
        report.mistake(entry.at, problem);
    }
    id
}

/// The ports of a switch.
struct Ports<'l> {
    stated: BTreeMap<u32, (At, String, Stated)>,
    ranged: BTreeMap<u32, (At, String, Rc<Stated>)>,
    left: &'l mut usize,
    acls: &'l Acls,
}

impl Ports<'_> {
    fn read(&mut self, section: &Entry, path: &str, vlans: &mut Vlans, report: &mut Report) {
        let path = format!("{path}.interfaces");
        for entry in entries(&section.value, &path, report) {
            let path = format!("{path}.{}", shown(&entry.key));
            let around = (&mut *vlans, self.acls);
            let (number, mut stated) = read_interface(entry, &path, around, report);
            let key = integer(&entry.key);
            if key.is_none() && stated.name.is_none() {
                stated.name = Some(entry.key.clone());
            }
            let number = number.or_else(|| key.map(|key| (entry.at, Some(key))));
            let Some((at, number)) = number else {
                let problem = format!("{path}: number is missing: the port's number");
                report.mistake(entry.at, problem);
                continue;
            };
            let Some(number) = number.and_then(port_number) else {
                report.mistake(at, format!("{path}: no number of a port"));
                continue;
            };
            if !self.has_room(at, report) {
                return;
            }
            match self.stated.entry(number) {
                Slot::Vacant(slot) => drop(slot.insert((entry.at, path, stated))),
                Slot::Occupied(slot) => {
                    let before = report.place(slot.get().0);
                    let problem = format!("{path}: port {number} is stated already, in {before}");
                    report.mistake(at, problem);
                }
            }
        }
    }

    fn read_ranges(&mut self, section: &Entry, path: &str, vlans: &mut Vlans, report: &mut Report) {
        let path = format!("{path}.interface_ranges");
        for entry in entries(&section.value, &path, report) {
            let path = format!("{path}.{}", shown(&entry.key));
            let around = (&mut *vlans, self.acls);
            let (_, stated) = read_interface(entry, &path, around, report);
            let stated = Rc::new(stated);
            for range in entry.key.split(',') {
                let Some((first, last)) = range_of(range) else {
                    let problem = format!("{path}: no ranges of ports such as 1-4,6");
                    report.mistake(entry.at, problem);
                    break;
                };
                for number in first..=last {
                    if !self.has_room(entry.at, report) {
                        return;
                    }
                    let value = (entry.at, path.clone(), stated.clone());
                    if let Some((before, ..)) = self.ranged.insert(number, value) {
                        let before = report.place(before);
                        let problem = format!("{path}: port {number} is in the range of {before}");
                        report.mistake(entry.at, problem);
                    }
                }
            }
        }
    }

    fn has_room(&mut self, at: At, report: &mut Report) -> bool {
        let left = self.left.checked_sub(1);
        if left.is_none() {
            report.mistake(at, format!("more than {PORTS_MAX} ports"));
        }
        *self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// The ports, completed by their ranges.
    fn finish(self, report: &mut Report) -> BTreeMap<u32, Port> {
        let mut all = self.stated;
        for (number, (at, range_path, range)) in self.ranged {
            match all.entry(number) {
                Slot::Vacant(slot) => {
                    slot.insert((at, range_path, (*range).clone()));
                }
                Slot::Occupied(mut slot) => slot.get_mut().2.complete(&range),
            }
        }
        let port = |(number, (at, path, stated)): (u32, (At, String, Stated))| {
            let is_target = self.acls.copies_to(number, stated.name.as_deref());
            let member = member(number, at, &path, &stated, is_target, report);
            let port = Port {
                at,
                name: stated.name,
                description: stated.description,
                member,
                acls: stated.acls.unwrap_or_default(),
                mirrors: stated.mirrors.unwrap_or_default(),
            };
            (number, port)
        };
        all.into_iter().map(port).collect()
    }
}

/// Reads an interface, and its `number` with its line.
fn read_interface(
    entry: &Entry,
    path: &str,
    (vlans, acls): (&mut Vlans, &Acls),
    report: &mut Report,
) -> (Option<(At, Option<u64>)>, Stated) {
    let mut number = None;
    let mut stated = Stated::default();
    for inner in entries(&entry.value, path, report) {
        let is_there = !inner.value.is_null();
        match inner.key.as_str() {
            "number" => number = Some((inner.at, inner.value.integer())),
            "name" => stated.name = text_of(inner, path, report),
            "description" => stated.description = text_of(inner, path, report),
            "native_vlan" if is_there => {
                let path = format!("{path}.native_vlan");
                stated.native = vlans.find(&inner.value, &path, report);
                stated.is_wrong |= stated.native.is_none();
            }
            "tagged_vlans" if is_there => {
                let path = format!("{path}.tagged_vlans");
                let Value::List(items) = &inner.value.value else {
                    report.mistake(inner.at, format!("{path} must be a list such as [10, 20]"));
                    stated.is_wrong = true;
                    continue;
                };
                let mut found = |item: &Rc<Node>| vlans.find(item, &path, report);
                let tagged: Vec<Option<u16>> = items.iter().map(&mut found).collect();
                stated.is_wrong |= tagged.contains(&None);
                stated.tagged = Some(Rc::new(tagged.into_iter().flatten().collect()));
            }
            "stack" if is_there => stated.is_link = Some(true),
            "acl_in" | "acls_in" => {
                let found = acls.find(inner, path, report);
                stated.acls.get_or_insert_default().extend(found);
            }
            "mirror" => stated.mirrors = Some(Named::read(inner, path, report)),
            "output_only" if !inner.value.is_off() => stated.output_only = Some(inner.at),
            "native_vlan" | "tagged_vlans" | "stack" => {}
            _ => leave_out(inner, path, Section::Port, report),
        }
    }
    (number, stated)
}

fn member(
    number: u32,
    at: At,
    path: &str,
    stated: &Stated,
    is_target: bool,
    report: &mut Report,
) -> Member {
    let tagged = stated.tagged.clone().filter(|tagged| !tagged.is_empty());
    let has_mirrors = stated.mirrors.as_ref().is_some_and(|all| !all.is_empty());
    let has_lists = stated.acls.as_ref().is_some_and(|all| !all.is_empty());
    let is_used = stated.is_link == Some(true) || stated.native.is_some() || tagged.is_some();
    if (is_target || has_mirrors) && !is_used && !has_lists {
        return Member::Target;
    }
    if let Some(at) = stated.output_only {
        let path = format!("{path}.output_only");
        report.left_out(at, &path, keys::OUTPUT_ONLY);
    }
    if stated.is_link == Some(true) {
        if stated.acls.as_ref().is_some_and(|acls| !acls.is_empty()) {
            report.left_out(at, path, keys::LINK_LIST);
        }
        if stated.native.is_some() || tagged.is_some() {
            report.left_out(at, path, keys::LINK);
        }
        return Member::Link;
    }
    match (stated.native, tagged) {
        (Some(native), Some(tagged)) if tagged.contains(&native) => {
            let problem = format!("{path}: port {number} has VLAN {native} native and tagged");
            report.mistake(at, problem);
            Member::Outside
        }
        (native, Some(tagged)) => Member::Trunk { tagged, native },
        (Some(native), None) => Member::Access(native),
        (None, None) => {
            if !stated.is_wrong {
                report.left_out(at, path, keys::OUTSIDE);
            }
            Member::Outside
        }
    }
}

fn port_number(number: u64) -> Option<u32> {
    let number = u32::try_from(number).ok()?;
    PortNo(number).is_ordinary().then_some(number)
}

/// The first and last port of `1-4` or `6`.
fn range_of(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| integer(text.trim()).and_then(port_number);
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}
