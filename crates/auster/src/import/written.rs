//! A network as the TOML of `auster run`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;

use super::faucet::{Gateway, Member, Network, Port, Switch};
use super::report::{At, Report, shown};
use config::vlans::name as vlan_name;

/// The most numbers in all `trunk` together.
const TAGS_MAX: usize = 1 << 19;
/// The number of ports on one line.
const PORTS_OF_LINE: usize = 6;

/// Writes the document. A network that would be too long is a mistake.
pub fn document(network: &Network, report: &mut Report) -> String {
    let mut text = summary(network, report);
    vlans(network, &mut text);
    let mut tags_left = TAGS_MAX;
    for (id, switch) in &network.switches {
        ports((*id, switch), network, &mut tags_left, &mut text, report);
    }
    acls(network, &mut text);
    for vlan in network.vlans.values() {
        for (to, via) in &vlan.gateway.routes {
            let _ = writeln!(text, "\n[[route]]\nto = \"{to}\"\nvia = \"{via}\"");
        }
    }
    text
}

fn gateway(gateway: &Gateway, text: &mut String) {
    if gateway.addresses.is_empty() {
        return;
    }
    text.push_str("gateway = ");
    list(text, &gateway.addresses);
    if let Some(mac) = &gateway.mac {
        let _ = writeln!(text, "gateway_mac = \"{mac}\"");
    }
}

/// The lists; nothing refers to others.
fn acls(network: &Network, text: &mut String) {
    for acl in &network.acls {
        let _ = writeln!(text, "\n[[acl]]\nname = \"{}\"", acl.name);
        for rule in &acl.rules {
            text.push_str("[[acl.rule]]\n");
            if !rule.text.is_empty() {
                let _ = writeln!(text, "match = \"{}\"", rule.text);
            }
            let _ = writeln!(text, "allow = {}", rule.allows);
            if let Some(name) = rule.mirror.as_ref().and_then(|named| named.mirror()) {
                let _ = writeln!(text, "mirror = \"{name}\"");
            }
        }
    }
}

/// Writes references to lists under `key`, which is `acl_in` or `acl_out`.
fn references(key: &str, network: &Network, acls: &[usize], text: &mut String) {
    let name = |acl: &usize| Some(format!("\"{}\"", network.acls.get(*acl)?.name));
    let names: Vec<String> = acls.iter().filter_map(name).collect();
    match &names[..] {
        [] => {}
        [one] => drop(writeln!(text, "{key} = {one}")),
        several => drop(writeln!(text, "{key} = [{}]", several.join(", "))),
    }
}

fn summary(network: &Network, report: &Report) -> String {
    let is_stated =
        |port: &&Port| !matches!(port.member, Member::Link | Member::Target | Member::Outside);
    let stated = network.switches.values();
    let stated = stated.map(|switch| switch.ports.values().filter(is_stated).count());
    let file = report.files.first().map_or("", String::as_str);
    let mut text = format!(
        "# From {}, a configuration of Faucet: VLANs {}, switches {}, ports with VLANs {}.\n",
        shown(file),
        network.vlans.len(),
        network.switches.len(),
        stated.sum::<usize>()
    );
    if report.reasons.is_empty() {
        text.push_str("# Everything in it is carried over.\n");
    } else {
        text.push_str("# Not carried over, and named by auster import faucet with their lines:\n");
    }
    for (reason, count) in &report.reasons {
        let _ = writeln!(text, "# - {reason}: {count}");
    }
    text
}

fn vlans(network: &Network, text: &mut String) {
    let mut used = BTreeSet::new();
    for (id, vlan) in &network.vlans {
        let _ = write!(text, "\n[[vlan]]\nid = {id}");
        match vlan.name.as_deref() {
            None => text.push('\n'),
            Some(name) if vlan_name(name).is_err() => {
                let name = shown(name);
                let _ = writeln!(text, "\n# left out, no name for auster: {name}");
            }
            Some(name) if !used.insert(name) => {
                let _ = writeln!(text, "\n# left out, another VLAN's name: {}", shown(name));
            }
            Some(name) => {
                let _ = writeln!(text, "\nname = \"{name}\"");
            }
        }
        references("acl_in", network, &vlan.acls, text);
        references("acl_out", network, &vlan.acls_out, text);
        gateway(&vlan.gateway, text);
        if let Some(description) = &vlan.description {
            let _ = writeln!(text, "# {}", shown(description));
        }
    }
}

fn ports(
    (id, switch): (u64, &Switch),
    network: &Network,
    tags_left: &mut usize,
    text: &mut String,
    report: &mut Report,
) {
    let _ = write!(text, "\n# Switch {}, dp_id {id:#x}", shown(&switch.name));
    if let Some(description) = &switch.description {
        let _ = write!(text, ": {}", shown(description));
    }
    text.push('\n');
    for ((member, acls), ports) in groups(switch) {
        let at: Vec<String> = ports.iter().map(|(n, _)| location(id, *n)).collect();
        match member {
            Member::Link => {
                remark(text, "Links between switches, which carry all VLANs:", &at);
                names(id, &ports, text);
                continue;
            }
            Member::Target => {
                names(id, &ports, text);
                continue;
            }
            Member::Outside if acls.is_empty() => {
                remark(text, "Ports outside of all VLANs:", &at);
                names(id, &ports, text);
                continue;
            }
            _ => text.push('\n'),
        }
        names(id, &ports, text);
        text.push_str("[[port]]\nat = ");
        list(text, &at);
        match member {
            Member::Access(vlan) => drop(writeln!(text, "access = {vlan}")),
            Member::Trunk { tagged, native } => {
                let Some(left) = tags_left.checked_sub(tagged.len()) else {
                    let at = ports.first().map_or(At { file: 0, line: 1 }, |(_, p)| p.at);
                    let problem = format!("the trunks have more than {TAGS_MAX} VLANs together");
                    return report.mistake(at, problem);
                };
                *tags_left = left;
                let tagged: Vec<String> = tagged.iter().map(u16::to_string).collect();
                let _ = writeln!(text, "trunk = [{}]", tagged.join(", "));
                if let Some(native) = native {
                    let _ = writeln!(text, "native = {native}");
                }
            }
            Member::Link | Member::Target | Member::Outside => {}
        }
        references("acl_in", network, acls, text);
    }
    for mirror in &switch.mirrors {
        let _ = writeln!(text, "\n[[mirror]]\nname = \"{}\"", mirror.name);
        if !mirror.from.is_empty() {
            let from: Vec<String> = mirror.from.iter().map(|n| location(id, *n)).collect();
            text.push_str("from = ");
            list(text, &from);
        }
        let _ = writeln!(text, "to = \"{}\"", location(id, mirror.to));
    }
}

/// Ports with the same VLANs and access lists.
type Group<'s> = ((&'s Member, &'s [usize]), Vec<(u32, &'s Port)>);

/// The ports of a switch by their VLANs and access lists: links and targets of mirrors first, then
/// ports outside all VLANs without lists, then all others by number.
fn groups(switch: &Switch) -> Vec<Group<'_>> {
    // A range has thousands of ports with one long list, which is compared once.
    let mut numbers: BTreeMap<&BTreeSet<u16>, usize> = BTreeMap::new();
    let mut seen: BTreeMap<*const BTreeSet<u16>, usize> = BTreeMap::new();
    let mut groups: BTreeMap<_, Vec<(u32, &Port)>> = BTreeMap::new();
    for (number, port) in &switch.ports {
        let key = match &port.member {
            Member::Link => (0_u8, None, 0_usize),
            Member::Target => (0, None, 1),
            Member::Outside if port.acls.is_empty() => (1, None, 0),
            Member::Outside => (2, None, 0),
            Member::Access(vlan) => (2, Some(*vlan), 0),
            Member::Trunk { tagged, native } => {
                let list = *seen.entry(Rc::as_ptr(tagged)).or_insert_with(|| {
                    let next = numbers.len();
                    *numbers.entry(tagged).or_insert(next)
                });
                (3, *native, list)
            }
        };
        let key = (key, &port.acls[..]);
        groups.entry(key).or_default().push((*number, port));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(((kind, ..), _), ports)| ((*kind).min(2), ports.first().map(|(n, _)| *n)));
    let groups = groups.into_iter();
    groups
        .filter_map(|(_, ports)| {
            let first = ports.first()?.1;
            Some(((&first.member, &first.acls[..]), ports))
        })
        .collect()
}

/// A port in an unambiguous form: 16 digits alone would be hex.
fn location(id: u64, port: u32) -> String {
    match id {
        0..=999_999 => format!("{id}:{port}"),
        _ => format!("{id:#x}:{port}"),
    }
}

fn remark(text: &mut String, title: &str, at: &[String]) {
    let _ = writeln!(text, "# {title}");
    for ports in at.chunks(PORTS_OF_LINE) {
        let _ = writeln!(text, "#   {}", ports.join(", "));
    }
}

/// The names and descriptions of ports.
fn names(id: u64, ports: &[(u32, &Port)], text: &mut String) {
    for (number, port) in ports {
        let parts = [port.name.as_deref(), port.description.as_deref()];
        let parts: Vec<String> = parts.into_iter().flatten().map(shown).collect();
        if !parts.is_empty() {
            let _ = writeln!(text, "# {}: {}", location(id, *number), parts.join(": "));
        }
    }
}

fn list(text: &mut String, at: &[String]) {
    let quoted: Vec<String> = at.iter().map(|at| format!("\"{at}\"")).collect();
    match &quoted[..] {
        [one] => drop(writeln!(text, "{one}")),
        few if few.len() <= PORTS_OF_LINE => drop(writeln!(text, "[{}]", few.join(", "))),
        many => {
            text.push_str("[\n");
            for line in many.chunks(PORTS_OF_LINE) {
                let _ = writeln!(text, "    {},", line.join(", "));
            }
            text.push_str("]\n");
        }
    }
}
