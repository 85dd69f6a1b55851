//! A restarted controller with VLANs takes over the correct entries and groups of the switches, and
//! nothing else.

use clock::SplitMix64;
use control::entry::{EntryKind, is_own};
use control::fabric::Label;
use control::fabric::form::{self, Part};
use openflow::message::{FlowMod, FlowModCommand, GroupMod, GroupModCommand};
use openflow::{Action, Bucket, Field, Instruction, MatchField, Message, PortNo, TableId};

use super::*;

/// A restarted controller takes over the state of the switches, and knows all hosts. It sends the
/// switches nothing, and the first packet of every pair arrives.
pub fn is_adopted(tenants: &mut Tenants, seed: u64) -> Result<(), String> {
    let known = |tenants: &Tenants| -> Vec<_> {
        let views = tenants.network.process().controller.vlans();
        views.iter().map(|view| (view.vlan, view.hosts)).collect()
    };
    let (before, hosts) = (sent(tenants), known(tenants));
    restart(tenants, seed);
    if known(tenants) != hosts {
        return Err(format!("hosts {hosts:?}, then {:?}", known(tenants)));
    }
    let [entries, groups] = [0, 1].map(|n| sent(tenants)[n] - before[n]);
    if entries + groups > 0 {
        return Err(format!(
            "a restart sent {entries} flow-mods, {groups} group-mods"
        ));
    }
    let silent = tenants.silent_pairs(78);
    if !silent.is_empty() {
        return Err(format!("pairs do not talk after a restart: {silent:?}"));
    }
    Ok(())
}

/// The number of flow-mods and group-mods that switches have received.
fn sent(tenants: &Tenants) -> [u64; 2] {
    const FLOW_MOD: u8 = 14;
    const GROUP_MOD: u8 = 15;
    let heard = |kind, switch: &SwitchId| tenants.network.heard(*switch, kind);
    let of = |kind| tenants.switches.iter().map(|s| heard(kind, s)).sum();
    [of(FLOW_MOD), of(GROUP_MOD)]
}

fn restart(tenants: &mut Tenants, seed: u64) {
    tenants.network.kill_controller();
    tenants.network.start_controller(seed);
    tenants.network.run_for(ms(6000));
}

/// Three VLANs on a ring. Two hosts of one are at one switch, as are two outside of all VLANs.
fn ring(seed: u64) -> Tenants {
    let mut tenants = Tenants::new(seed, &[10, 20, 30], |network| topology::ring(network, 4));
    let beside = tenants.network.add_host(tenants.switches[0]);
    tenants.hosts.get_mut(&10).expect("the VLAN").push(beside);
    tenants.admit(beside, 10);
    let outside = tenants.network.add_host(tenants.switches[0]);
    tenants.topology.hosts.push(outside);
    tenants.network.set_vlans(tenants.vlans.clone());
    tenants.network.run_for(ms(1000));
    tenants.introduce();
    tenants.topology.introduce(&mut tenants.network);
    assert_eq!(tenants.silent_pairs(1), []);
    assert_eq!(
        tenants.topology.silent_pairs(&mut tenants.network, 1),
        [],
        "outside of all VLANs"
    );
    tenants
}

/// The entries of all switches, with their cookies.
fn held(tenants: &Tenants) -> Vec<String> {
    let switches = tenants.switches.iter();
    let entries = switches.flat_map(|switch| {
        let entries = tenants.network.switch(*switch).entries();
        entries.map(move |e| {
            format!(
                "{switch:?} {:x} {:?} {} {:?} {:?}",
                e.cookie.0, e.table_id, e.priority, e.r#match, e.instructions
            )
        })
    });
    entries.collect()
}

/// A restart in a quiet network sends nothing, and loses nothing.
#[test]
fn a_restart_keeps_labels_and_entries() {
    for seed in 0..3 {
        let mut tenants = ring(seed);
        let held = held(&tenants);
        is_adopted(&mut tenants, 7 + seed).expect("nothing is sent");
        assert_eq!(self::held(&tenants), held);
        let silent = tenants.topology.silent_pairs(&mut tenants.network, 2);
        assert_eq!(silent, []);
        assert_eq!(tenants.crossed(), []);
        let counters = tenants.network.process().controller.counters();
        assert_eq!(counters.fabric_parts_wrong, 0);
    }
}

/// The same for a switch that connects again.
#[test]
fn a_switch_that_connects_again_keeps_its_entries() {
    let mut tenants = ring(4);
    let (held, before) = (held(&tenants), sent(&tenants));
    for switch in tenants.switches.clone() {
        tenants.network.disconnect(switch);
        tenants.network.run_for(ms(3000));
    }
    assert_eq!(sent(&tenants), before);
    assert_eq!(self::held(&tenants), held);
}

/// The number of entries in a VLAN of one port, and of those that lead to the port.
fn of_port(tenants: &Tenants, switch: SwitchId, port: PortNo) -> usize {
    let outputs = |i: &Instruction| match i {
        Instruction::ApplyActions(actions) => actions.contains(&Action::output(port)),
        _ => false,
    };
    let entries = tenants.network.switch(switch).entries();
    let of_hosts = entries.filter(|e| {
        let kind = EntryKind::of(e.cookie);
        let is_from = kind == Some(EntryKind::Local) && e.r#match.in_port() == Some(port);
        is_own(e.cookie) && (is_from || e.instructions.iter().any(outputs))
    });
    of_hosts.count()
}

/// A port changes its VLAN while no controller runs, or joins one, or leaves all.
#[test]
fn what_a_port_had_in_another_vlan_does_not_stay() {
    for (from, to) in [(10, 20), (0, 10), (10, 0)] {
        let mut tenants = ring(5);
        let moved = match from {
            0 => tenants.topology.hosts[0],
            from => tenants.hosts[&from][0],
        };
        let at = tenants.network.place(moved);
        let switch = tenants.switches[0];
        assert!(of_port(&tenants, switch, at.port) > 2);
        tenants.network.kill_controller();
        match to {
            0 => drop(tenants.vlans.ports.remove(&at)),
            to => tenants.admit(moved, to),
        }
        tenants.network.set_vlans(tenants.vlans.clone());
        tenants.network.start_controller(9);
        tenants.network.run_for(ms(3000));
        assert_eq!(of_port(&tenants, switch, at.port), 0, "{from} to {to}");
        // The others keep theirs.
        let other = tenants.network.place(tenants.hosts[&30][0]);
        assert!(of_port(&tenants, switch, other.port) > 2, "{from} to {to}");
    }
}

/// A removed VLAN leaves nothing behind.
#[test]
fn a_vlan_that_has_gone_leaves_nothing() {
    let mut tenants = ring(6);
    tenants.network.kill_controller();
    for host in tenants.hosts.remove(&30).expect("the VLAN") {
        tenants.vlans.ports.remove(&tenants.network.place(host));
    }
    let id = u128::from(0x1000u16 | 30);
    let says = |action: &Action| match action {
        Action::SetField(MatchField::Basic { value, .. }) => *value == id,
        _ => false,
    };
    let count = |tenants: &Tenants| {
        let switches = tenants.switches.iter();
        let entries = switches.flat_map(|switch| tenants.network.switch(*switch).entries());
        let of_vlan = entries.filter(|e| match &e.instructions[..] {
            [Instruction::ApplyActions(all)] => is_of_label(e.table_id) && all.iter().any(says),
            _ => false,
        });
        of_vlan.count()
    };
    let groups = |tenants: &Tenants| -> usize {
        let switches = tenants.switches.iter();
        switches
            .map(|s| tenants.network.switch(*s).group_count())
            .sum()
    };
    let before = groups(&tenants);
    assert!(count(&tenants) >= 4);
    tenants.network.set_vlans(tenants.vlans.clone());
    tenants.network.start_controller(9);
    tenants.network.run_for(ms(20_000));
    assert_eq!(count(&tenants), 0);
    assert!(groups(&tenants) < before, "nobody has its labels");
    assert_eq!(tenants.silent_pairs(3), []);
}

/// A host moves while no controller runs. No entry at its former switch leads to its former port
/// once it has spoken.
#[test]
fn a_host_that_moves_meanwhile_is_found() {
    for to in [0, 2] {
        let mut tenants = ring(7);
        let moved = *tenants.hosts[&10].last().expect("a host");
        let from = tenants.network.place(moved);
        tenants.network.kill_controller();
        tenants
            .network
            .move_host(moved, tenants.switches[to], false);
        tenants.admit(moved, 10);
        tenants.network.set_vlans(tenants.vlans.clone());
        tenants.network.start_controller(9);
        tenants.network.run_for(ms(300));
        for _ in 0..10 {
            let other = tenants.hosts[&10][1];
            tenants.network.resolve(moved, other);
            tenants.network.run_for(ms(1000));
        }
        assert_eq!(of_port(&tenants, tenants.switches[0], from.port), 0, "{to}");
        assert_eq!(tenants.silent_pairs(4), [], "{to}");
    }
}

/// An entry between two hosts of a switch leads to a third one.
#[test]
fn an_entry_to_another_host_does_not_stay() {
    let mut tenants = ring(8);
    let switch = tenants.switches[0];
    let third = tenants.network.add_host(switch);
    tenants.admit(third, 10);
    tenants.network.set_vlans(tenants.vlans.clone());
    let (from, to) = (tenants.hosts[&10][0], tenants.hosts[&10][4]);
    tenants.network.resolve(third, to);
    tenants.network.run_for(ms(2000));
    let [from, to, third] = [from, to, third].map(|host| tenants.network.place(host).port);
    tenants.network.kill_controller();
    let entries = tenants.network.switch(switch).entries();
    let own = entries.filter(|e| {
        let out = [Instruction::ApplyActions(vec![Action::output(to)])];
        e.r#match.in_port() == Some(from) && e.instructions == out
    });
    let own: Vec<_> = own.cloned().collect();
    assert_eq!(own.len(), 1);
    let wrong = FlowMod {
        cookie: own[0].cookie,
        ..FlowMod::add(
            own[0].priority,
            own[0].r#match.clone(),
            vec![Action::output(third)],
        )
    };
    tenants.network.apply(switch, &Message::FlowMod(wrong));
    tenants.network.start_controller(9);
    tenants.network.run_for(ms(3000));
    assert_eq!(tenants.silent_pairs(6), []);
}

/// Replaces the label in a field.
fn relabel(field: &mut MatchField, label: Label) {
    if let MatchField::Basic {
        field: Field::VlanVid,
        value,
        ..
    } = field
    {
        *value = form::vid(label).into();
    }
}

/// Changes one entry or group of ours at one switch into something that is wrong, or none.
fn corrupt(tenants: &mut Tenants, below: &mut impl FnMut(usize) -> usize) {
    let switch = tenants.switches[below(tenants.switches.len())];
    let other = tenants.switches[below(tenants.switches.len())];
    let label = Label(Label::MAX.0 - below(20) as u16);
    let port = PortNo(1 + below(9) as u32);
    let groups: Vec<_> = tenants.network.switch(switch).groups().collect();
    if below(4) == 0 && !groups.is_empty() {
        let group = groups[below(groups.len())].clone();
        let bucket = |mut bucket: Bucket| {
            bucket.actions = vec![Action::output(port)];
            bucket.watch_port = port;
            bucket
        };
        let group = GroupMod::new(
            GroupModCommand::Modify,
            group.group_type,
            group.group_id,
            group.buckets.into_iter().map(bucket).collect(),
        );
        return apply_if_taken(tenants, switch, &Message::GroupMod(group));
    }
    let kinds = [Some(EntryKind::Fabric), Some(EntryKind::Local)];
    let entries = tenants.network.switch(switch).entries();
    let ours = entries.filter(|e| kinds.contains(&EntryKind::of(e.cookie)));
    let ours: Vec<_> = ours.cloned().collect();
    if ours.is_empty() {
        return;
    }
    let entry = ours[below(ours.len())].clone();
    let mut flow_mod = FlowMod {
        table_id: entry.table_id,
        cookie: entry.cookie,
        idle_timeout: entry.idle_timeout,
        hard_timeout: entry.hard_timeout,
        instructions: entry.instructions,
        ..FlowMod::add(entry.priority, entry.r#match, Vec::new())
    };
    let mut at = switch;
    match below(6) {
        0 => at = other,
        1 if is_of_label(flow_mod.table_id) => {
            let fields = flow_mod.r#match.fields.iter_mut();
            fields.for_each(|field| relabel(field, label));
        }
        2 => {
            flow_mod.command = FlowModCommand::DeleteStrict;
            flow_mod.instructions.clear();
        }
        kind => {
            for instruction in &mut flow_mod.instructions {
                let Instruction::ApplyActions(actions) = instruction else {
                    continue;
                };
                for action in actions {
                    match action {
                        Action::SetField(field) if kind != 4 => relabel(field, label),
                        Action::Group(id) if kind == 3 => *id = form::group(label),
                        Action::Output { port: to, .. } if kind == 4 && to.is_ordinary() => {
                            *to = port;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    apply_if_taken(tenants, at, &Message::FlowMod(flow_mod));
}

fn is_of_label(table: TableId) -> bool {
    Numbering::Access.our_number(table) == LABEL_TABLE
}

fn apply_if_taken(tenants: &mut Tenants, at: SwitchId, message: &Message) {
    let now = tenants.network.now();
    let network = &mut tenants.network;
    if network.switch(at).clone().apply(now, message).is_ok() {
        network.apply(at, message);
    }
}

/// The VLAN and the label that an entry marks as its switch's own.
fn own_label(entry: &FlowEntry) -> Option<(VlanId, Label)> {
    let label = Label(entry.r#match.exact(Field::VlanVid)? as u16 & 0xfff);
    let instructions = entry.instructions.iter().map(|step| match step {
        Instruction::GotoTable(table) => {
            Instruction::GotoTable(Numbering::Access.our_number(*table))
        }
        other => other.clone(),
    });
    let part = Part::Entry {
        table_id: Numbering::Access.our_number(entry.table_id),
        priority: entry.priority,
        r#match: entry.r#match.clone(),
        instructions: instructions.collect(),
    };
    let vlans = [10, 20, 30].map(vlan).into_iter().chain([VlanId::NONE]);
    let mut own = vlans.filter(|vlan| form::own(*vlan, label) == std::slice::from_ref(&part));
    Some((own.next()?, label))
}

/// Has a switch claim the label of another.
fn claim(tenants: &mut Tenants, below: &mut impl FnMut(usize) -> usize) {
    let [from, to] = [(); 2].map(|()| tenants.switches[below(tenants.switches.len())]);
    let entries = tenants.network.switch(from).entries();
    let own: Vec<_> = entries.filter_map(own_label).collect();
    let (own_vlan, label) = own[below(own.len())];
    let ids = [own_vlan.number(), 10, 20, 30];
    let claimed = VlanId::new(ids[below(4)]).unwrap_or(own_vlan);
    for mut message in form::change(Vec::new(), form::own(claimed, label), 1) {
        Numbering::Access.translate_sent(&mut message);
        apply_if_taken(tenants, to, &message);
    }
}

/// Every label belongs to one switch, in one VLAN.
fn labels_are_one_ends(tenants: &Tenants) -> Result<(), String> {
    let mut ends = BTreeMap::new();
    for switch in &tenants.switches {
        for entry in tenants.network.switch(*switch).entries() {
            if let Some((vlan, label)) = own_label(entry)
                && let Some(other) = ends.insert(label, (*switch, vlan))
            {
                return Err(format!("{label:?}: {other:?} and {:?}", (*switch, vlan)));
            }
        }
    }
    Ok(())
}

/// Somebody has changed entries and groups of the switches, with our cookies, while no controller
/// ran. Then every pair of a VLAN talks again, and nothing crosses.
fn mends(seed: u64) -> Result<(), String> {
    let mut random = SplitMix64::new(seed);
    let mut below = move |end: usize| (random.next() % end as u64) as usize;
    let mut tenants = ring(seed);
    tenants.network.kill_controller();
    for _ in 0..1 + below(12) {
        match below(4) {
            0 => claim(&mut tenants, &mut below),
            _ => corrupt(&mut tenants, &mut below),
        }
    }
    if below(3) == 0 {
        // The hosts of two VLANs at one switch change places in the settings.
        let at = [10, 20].map(|id| tenants.network.place(tenants.hosts[&id][1]));
        for (place, id) in at.into_iter().zip([20, 10]) {
            let port = PortVlans::Trunk {
                tagged: [vlan(id)].into(),
                native: None,
            };
            tenants.vlans.ports.insert(place, port);
        }
        let [one, two] = [10, 20].map(|id| tenants.hosts[&id][1]);
        tenants.hosts.get_mut(&10).expect("the VLAN")[1] = two;
        tenants.hosts.get_mut(&20).expect("the VLAN")[1] = one;
        for (host, id) in [(two, 10), (one, 20)] {
            tenants.network.host_mut(host).vlan = Some(id);
        }
        tenants.network.set_vlans(tenants.vlans.clone());
    }
    tenants.network.start_controller(seed ^ 1);
    tenants.network.run_for(ms(20_000));
    let ids = [10, 20, 30];
    for id in ids {
        for host in tenants.hosts[&id].clone() {
            let host = tenants.network.host_mut(host);
            host.recorded.clear();
            host.datagrams.clear();
            host.forget_addresses();
        }
    }
    for round in 0..3 {
        for id in ids {
            let hosts = tenants.hosts[&id].clone();
            for (n, host) in hosts.iter().enumerate() {
                let other = hosts[(n + 1 + round) % hosts.len()];
                if other != *host {
                    tenants.network.resolve(*host, other);
                    tenants.send_marked(id, *host, other, round as u64 * 10, 3);
                }
            }
        }
        tenants.network.run_for(ms(1000));
    }
    let silent = tenants.silent_pairs(5);
    if !silent.is_empty() {
        return Err(format!("pairs do not talk: {silent:?}"));
    }
    labels_are_one_ends(&tenants)?;
    match (tenants.crossed(), tenants.network.circled) {
        (crossed, 0) if crossed.is_empty() => Ok(()),
        (crossed, circled) => Err(format!("frames crossed: {crossed:02x?}, {circled} circled")),
    }
}

#[test]
fn tables_that_lie_are_mended() {
    seeds::run_all("VLAN_LIES", 0..20, |seed, _| mends(seed));
}
