//! Static entries with their groups and meters: whatever happens, a switch at rest has exactly
//! those that are wanted.

use std::collections::BTreeMap;

use clock::{Duration, ms};
use control::controller::Event;
use control::entry::EntryKind;
use control::flows::parts::{PartEdit, PartKind, PartMod, PartName, StaticPart};
use control::flows::{Band, FlowEdit, FlowLimits, FlowName, FlowState, StaticEntry};
use openflow::message::{FlowMod, FlowModCommand, FlowRemovedReason};
use openflow::text::{parse_actions, parse_group_mod, parse_group_of, parse_match, parse_meter_of};
use openflow::{Cookie, DatapathId, GroupId, Instruction, Match, Message, MeterId, PortNo};
use openflow::{Version, Xid};
use proptest::prelude::*;
use sim::network::{Network, NetworkConfig, SwitchId};

/// An entry of a switch: its priority, its match in words, and its instructions in words.
type Row = (u16, String, String);

const REST: Duration = Duration::from_secs(45);
const MATCHES: [&str; 5] = [
    "",
    "ip,nw_dst=10.0.0.0/24",
    "tcp,tp_dst=80",
    "dl_vlan=5",
    "arp",
];
const ACTIONS: [&str; 4] = [
    "drop",
    "output:1",
    "mod_dl_dst:02:00:00:00:00:09,output:2",
    "CONTROLLER",
];

const GROUPS: [&str; 2] = [
    "type=all,bucket=output:1,bucket=output:2",
    "type=select,bucket=output:1",
];
const METERS: [&str; 2] = ["kbps,band=type=drop,rate=10", "pktps,band=type=drop,rate=9"];

fn name(owner: &str, name: impl ToString) -> FlowName {
    FlowName::new(owner, name.to_string())
}

fn entry(dpid: u64, matching: &str, actions: &str) -> StaticEntry {
    StaticEntry {
        dpid: DatapathId(dpid),
        r#match: parse_match(matching).expect("a match"),
        actions: parse_actions(actions).expect("actions"),
        ..StaticEntry::default()
    }
}

/// An entry of the property: with one of [`ACTIONS`], or with its owner's group or meter.
fn doing(entry: StaticEntry, owner: u8, actions: usize) -> StaticEntry {
    let number = u32::from(owner) + 1;
    let led = match ACTIONS.get(actions) {
        Some(words) => (*words).to_owned(),
        None if actions == ACTIONS.len() => format!("group:{number}"),
        None => "output:1".to_owned(),
    };
    StaticEntry {
        actions: parse_actions(&led).expect("actions"),
        meter: (actions > ACTIONS.len()).then_some(MeterId(number)),
        ..entry
    }
}

/// The group or the meter of an owner.
fn part(owner: u8, kind: PartKind, dpid: u64, form: usize) -> (PartName, StaticPart) {
    let number = u32::from(owner) + 1;
    let words = [GROUPS, METERS][usize::from(kind == PartKind::Meter)][form];
    let add = match kind {
        PartKind::Group => parse_group_of(GroupId(number), words).map(PartMod::Group),
        PartKind::Meter => parse_meter_of(MeterId(number), words).map(PartMod::Meter),
    };
    let part = StaticPart {
        dpid: DatapathId(dpid),
        add: add.expect("words"),
        is_numbered: true,
        words: words.to_owned(),
    };
    (part_name(owner, kind), part)
}

fn part_name(owner: u8, kind: PartKind) -> PartName {
    let of = name(["ann", "bob"][usize::from(owner)], "part");
    PartName { kind, of }
}

struct Net {
    network: Network,
    switches: Vec<SwitchId>,
}

impl Net {
    fn new(version: Version, count: u64) -> Net {
        let config = NetworkConfig {
            version,
            ..NetworkConfig::default()
        };
        let mut network = Network::new(config, 1);
        let add = |n| network.add_switch_as(DatapathId(n));
        let switches: Vec<SwitchId> = (1..=count).map(add).collect();
        for switch in &switches {
            let _ = [(); 2].map(|()| network.add_port(*switch));
        }
        network.run_for(Duration::from_secs(2));
        Net { network, switches }
    }

    fn edit(&mut self, edits: Vec<FlowEdit>) -> bool {
        let mut is_taken = false;
        self.network.tell_controller(|controller, now| {
            is_taken = controller.edit_flows(now, edits).is_ok()
        });
        is_taken
    }

    fn edit_part(&mut self, edit: PartEdit) -> bool {
        let mut is_taken = false;
        self.network.tell_controller(|controller, now| {
            is_taken = controller.edit_stated(now, vec![edit], Vec::new()).is_ok();
        });
        is_taken
    }

    /// The groups and meters of a switch, in words.
    fn parts(&self, at: usize) -> Vec<String> {
        let switch = self.network.switch(self.switches[at]);
        let groups = switch.groups().map(|group| format!("{group:?}"));
        let meters = switch.meters().map(|meter| format!("{meter:?}"));
        groups.chain(meters).collect()
    }

    fn put(&mut self, name: FlowName, entry: StaticEntry) -> bool {
        self.edit(vec![FlowEdit::Put(name, Box::new(entry))])
    }

    /// The static entries that a switch holds.
    fn held(&self, at: usize) -> Vec<Row> {
        let entries = self.network.switch(self.switches[at]).entries();
        let ours = entries.filter(|entry| EntryKind::of(entry.cookie) == Some(EntryKind::Static));
        let words = |list: &[Instruction]| {
            let list = list.iter().map(ToString::to_string);
            list.collect::<Vec<_>>().join(",")
        };
        let row = ours.map(|entry| {
            let stats = entry.stats(self.network.now());
            (
                stats.priority,
                stats.r#match.to_string(),
                words(&stats.instructions),
            )
        });
        let mut rows: Vec<Row> = row.collect();
        rows.sort();
        rows
    }

    fn states(&mut self) -> Vec<FlowState> {
        let views = self
            .network
            .ask(|controller, _| controller.flows(None, None, usize::MAX).flows);
        views.into_iter().map(|view| view.state).collect()
    }

    /// Somebody else deletes all entries of a switch that have this cookie; `is_loud`: the switch
    /// reports it.
    fn delete_all(&mut self, at: usize, is_loud: bool) {
        let switch = self.switches[at];
        let entries = self.network.switch(switch).entries();
        let ours = entries.filter(|entry| EntryKind::of(entry.cookie) == Some(EntryKind::Static));
        let ours: Vec<_> = ours.cloned().collect();
        for entry in ours {
            let stats = entry.stats(self.network.now());
            let deletion = FlowMod {
                command: FlowModCommand::DeleteStrict,
                cookie_mask: Cookie(0),
                table_id: stats.table_id,
                instructions: Vec::new(),
                ..FlowMod::add(stats.priority, stats.r#match.clone(), Vec::new())
            };
            self.network.apply(switch, &Message::FlowMod(deletion));
            if is_loud {
                let removed = entry.removed(self.network.now(), FlowRemovedReason::DELETE);
                self.network
                    .say(switch, Xid(0), &Message::FlowRemoved(removed));
            }
        }
    }

    fn mended(&self) -> usize {
        let events = self.network.events();
        events
            .filter(|event| matches!(event, Event::FlowMended { .. }))
            .count()
    }

    /// Changes of entries, groups and meters.
    fn changes(&self) -> u64 {
        let kinds = [14, 15, 29];
        let of = |at: &SwitchId| kinds.map(|kind| self.network.heard(*at, kind));
        self.switches.iter().flat_map(of).sum()
    }

    fn flow_mods(&self, at: usize) -> u64 {
        self.network.heard(self.switches[at], 14)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, u64, usize, u16, usize),
    Delete(u8, u8),
    PutPart(u8, PartKind, u64, usize),
    DeletePart(u8, PartKind),
    /// Puts and deletes at once.
    Swap(u8, u8, u8, usize),
    Disconnect(usize),
    Foreign(usize, bool),
    /// Somebody else deletes all groups of a switch.
    ForeignGroups(usize),
    /// Somebody else overwrites static entries.
    Overwrite(usize, usize, u16),
    Restart,
    Wait(u64),
}

fn kind() -> impl Strategy<Value = PartKind> {
    prop_oneof![Just(PartKind::Group), Just(PartKind::Meter)]
}

fn step() -> impl Strategy<Value = Step> {
    let (owner, own) = (0..2u8, 0..4u8);
    let (at, matching, priority) = (0..2usize, 0..MATCHES.len(), 0..2u16);
    prop_oneof![
        6 => (owner.clone(), own.clone(), 1..=2u64, matching.clone(), priority.clone(),
            0..ACTIONS.len() + 2).prop_map(|(a, b, c, d, e, f)| Step::Put(a, b, c, d, e, f)),
        4 => (owner.clone(), kind(), 1..=2u64, 0..GROUPS.len())
            .prop_map(|(a, b, c, d)| Step::PutPart(a, b, c, d)),
        1 => (owner.clone(), kind()).prop_map(|(a, b)| Step::DeletePart(a, b)),
        1 => at.clone().prop_map(Step::ForeignGroups),
        2 => (owner.clone(), own.clone()).prop_map(|(a, b)| Step::Delete(a, b)),
        1 => (owner, own.clone(), own, 0..ACTIONS.len())
            .prop_map(|(a, b, c, d)| Step::Swap(a, b, c, d)),
        1 => at.clone().prop_map(Step::Disconnect),
        1 => (at.clone(), any::<bool>()).prop_map(|(a, b)| Step::Foreign(a, b)),
        1 => (at, matching, priority).prop_map(|(a, b, c)| Step::Overwrite(a, b, c)),
        1 => Just(Step::Restart),
        3 => (0..15_000u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn at_rest_a_switch_holds_what_is_wanted_and_no_other(
        is_old in any::<bool>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let version = if is_old { Version::V10 } else { Version::V13 };
        let mut net = Net::new(version, 2);
        let mut wanted: BTreeMap<FlowName, StaticEntry> = BTreeMap::new();
        let mut parts: BTreeMap<PartName, StaticPart> = BTreeMap::new();
        let mut has_parts = false;
        let owned = |owner: u8, own: u8| name(["ann", "bob"][usize::from(owner)], own);
        for step in steps {
            match step {
                Step::Put(owner, own, dpid, matching, priority, actions) => {
                    let entry = StaticEntry {
                        priority,
                        band: [Band::Before, Band::After][usize::from(owner)],
                        ..doing(entry(dpid, MATCHES[matching], ""), owner, actions)
                    };
                    if net.put(owned(owner, own), entry.clone()) {
                        wanted.insert(owned(owner, own), entry);
                    }
                }
                Step::Delete(owner, own) => {
                    prop_assert!(net.edit(vec![FlowEdit::Delete(owned(owner, own))]));
                    wanted.remove(&owned(owner, own));
                }
                // Switches of 1.0 have no groups or meters, and absent switches cannot be asked.
                Step::PutPart(..) if is_old => {}
                Step::PutPart(owner, kind, dpid, form) => {
                    let (name, part) = part(owner, kind, dpid, form);
                    let edit = PartEdit::Put(name.clone(), Box::new(part.clone()));
                    if net.edit_part(edit) {
                        has_parts = true;
                        parts.insert(name, part);
                    }
                }
                Step::DeletePart(owner, kind) => {
                    let name = part_name(owner, kind);
                    if net.edit_part(PartEdit::Delete(name.clone())) {
                        parts.remove(&name);
                    }
                }
                Step::ForeignGroups(at) => {
                    let all = parse_group_mod("delete group_id=all").expect("all");
                    net.network.apply(net.switches[at], &Message::GroupMod(all));
                }
                Step::Swap(owner, from, to, actions) => {
                    let Some(there) = wanted.get(&owned(owner, from)).cloned() else { continue };
                    let there = doing(there, owner, actions);
                    let edits = vec![
                        FlowEdit::Delete(owned(owner, from)),
                        FlowEdit::Put(owned(owner, to), Box::new(there.clone())),
                    ];
                    prop_assert!(net.edit(edits));
                    wanted.remove(&owned(owner, from));
                    wanted.insert(owned(owner, to), there);
                }
                Step::Disconnect(at) => net.network.disconnect(net.switches[at]),
                Step::Foreign(at, is_loud) => net.delete_all(at, is_loud),
                Step::Overwrite(at, matching, priority) => {
                    let matching = parse_match(MATCHES[matching]).expect("a match");
                    let foreign = FlowMod {
                        command: FlowModCommand::ModifyStrict,
                        cookie_mask: Cookie(0),
                        ..FlowMod::add(9_000 + priority, matching, Vec::new())
                    };
                    net.network.apply(net.switches[at], &Message::FlowMod(foreign));
                }
                Step::Restart => {
                    // Nobody knows of a group whose deletion is lost with the process.
                    if has_parts {
                        net.network.run_for(Duration::from_secs(5));
                    }
                    net.network.kill_controller();
                    net.network.start_controller(7);
                    let all: Vec<_> = wanted.clone().into_iter().collect();
                    let of_parts: Vec<_> = parts.clone().into_iter().collect();
                    net.network.tell_controller(|controller, now| {
                        let left_out = controller.fit_stated(now, of_parts, all);
                        assert_eq!(left_out, (vec![], vec![]));
                    });
                }
                Step::Wait(time) => net.network.run_for(ms(time)),
            }
        }
        net.network.run_for(REST);
        let states = net.states();
        prop_assert_eq!(states.len(), wanted.len());
        prop_assert!(states.iter().all(|state| *state == FlowState::InUse), "{:?}", states);
        // The same entries on a network where nothing else has happened.
        let mut other = Net::new(version, 2);
        for (name, part) in parts {
            prop_assert!(other.edit_part(PartEdit::Put(name, Box::new(part))));
        }
        for (name, entry) in wanted {
            prop_assert!(other.put(name, entry));
        }
        other.network.run_for(ms(2000));
        for at in 0..2 {
            prop_assert_eq!(net.held(at), other.held(at));
            prop_assert_eq!(net.parts(at), other.parts(at));
        }
        let before = net.changes();
        net.network.run_for(REST);
        prop_assert_eq!(net.changes(), before, "it is quiet");
    }
}

#[test]
fn what_somebody_else_deletes_is_mended_once_and_said() {
    let mut net = Net::new(Version::V13, 1);
    assert!(net.put(name("ann", 1), entry(1, "ip", "output:1")));
    net.network.run_for(ms(500));
    assert_eq!(net.states(), [FlowState::InUse]);
    net.delete_all(0, true);
    net.network.run_for(ms(500));
    assert_eq!((net.held(0).len(), net.mended()), (1, 1), "at once");
    net.delete_all(0, false);
    net.network.run_for(Duration::from_secs(12));
    assert_eq!(
        (net.held(0).len(), net.mended()),
        (1, 2),
        "at the next reading"
    );
    // A deletion by the owner does not count.
    assert!(net.edit(vec![FlowEdit::Delete(name("ann", 1))]));
    net.network.run_for(REST);
    assert_eq!((net.held(0).len(), net.mended()), (0, 2));
}

#[test]
fn an_entry_with_a_timeout_ends_for_good() {
    let mut net = Net::new(Version::V13, 1);
    let short = StaticEntry {
        hard_timeout_s: 3,
        ..entry(1, "ip", "output:1")
    };
    assert!(net.put(name("ann", 1), short.clone()));
    net.network.run_for(ms(2000));
    // Its timeout starts again.
    assert!(net.put(name("ann", 1), short.clone()));
    net.network.run_for(ms(2000));
    assert_eq!(net.states(), [FlowState::InUse]);
    net.network.run_for(ms(2000));
    assert_eq!((net.held(0).len(), net.states().len()), (0, 0));
    let ended = |net: &Net| {
        let events = net.network.events();
        events
            .filter(|event| matches!(event, Event::FlowEnded { .. }))
            .count()
    };
    assert_eq!((ended(&net), net.mended()), (1, 0));
    // An entry that ends while the switch is away.
    assert!(net.put(name("ann", 2), short));
    net.network.run_for(ms(500));
    net.delete_all(0, false);
    net.network.disconnect(net.switches[0]);
    net.network.run_for(REST);
    assert_eq!(
        (ended(&net), net.held(0).len(), net.states().len()),
        (2, 0, 0)
    );
}

/// An owner has its number of changes at once, and then 200 a second. Others do not wait for it.
#[test]
fn an_owner_waits_for_its_rate_and_others_do_not() {
    let mut net = Net::new(Version::V13, 1);
    let all = |n: usize, actions: &str| {
        let one = entry(
            1,
            &format!("ip,nw_dst=10.0.{}.{}", n / 256, n % 256),
            actions,
        );
        FlowEdit::Put(name("ann", n), Box::new(one))
    };
    assert!(
        net.edit(
            (0..FlowLimits::BESIDE.per_owner)
                .map(|n| all(n, "output:1"))
                .collect()
        )
    );
    assert!(
        !net.edit(vec![all(FlowLimits::BESIDE.per_owner, "drop")]),
        "one too many"
    );
    net.network.run_for(ms(3000));
    assert_eq!(net.held(0).len(), FlowLimits::BESIDE.per_owner);
    let before = net.flow_mods(0);
    assert!(net.edit((0..2000).map(|n| all(n, "output:2")).collect()));
    assert!(net.put(name("bob", 1), entry(1, "arp", "drop")));
    net.network.run_for(ms(1000));
    let sent = net.flow_mods(0) - before;
    // In the three seconds before, its bucket has filled by 600.
    assert!((700..=1000).contains(&sent), "{sent}");
    let bob = net
        .network
        .ask(|controller, _| controller.flow(&name("bob", 1)));
    assert_eq!(bob.map(|view| view.state), Some(FlowState::InUse));
    net.network.run_for(Duration::from_secs(8));
    assert!(net.states().iter().all(|state| *state == FlowState::InUse));
    assert_eq!(net.flow_mods(0) - before, 2001);
}

#[test]
fn a_switch_that_refuses_an_entry_says_why_and_a_full_one_takes_it_later() {
    let mut network = Network::new(NetworkConfig::default(), 1);
    let at = network.add_switch_of(DatapathId(1), 12);
    network.run_for(Duration::from_secs(2));
    let mut net = Net {
        network,
        switches: vec![at],
    };
    let put = |n: u16| {
        let one = entry(1, &format!("tcp,tp_dst={n}"), "output:1");
        FlowEdit::Put(name("ann", n), Box::new(one))
    };
    assert!(net.edit((1..=20).map(put).collect()));
    net.network.run_for(ms(3000));
    let refused = |net: &mut Net| {
        let states = net.states();
        states
            .iter()
            .filter(|state| matches!(state, FlowState::Refused(_)))
            .count()
    };
    let count = refused(&mut net);
    assert!((8..=12).contains(&count), "{count}");
    // There is room once others go.
    let gone = (1..=20)
        .filter(|n| n % 2 == 0)
        .map(|n| FlowEdit::Delete(name("ann", n)));
    assert!(net.edit(gone.collect()));
    net.network.run_for(REST);
    assert_eq!((refused(&mut net), net.held(0).len()), (0, 10));
}

fn onward(matching: &str, actions: &str) -> StaticEntry {
    StaticEntry {
        goes_on: true,
        ..entry(1, matching, actions)
    }
}

/// Packets go on behind an entry's actions, and auster forwards them. The entry is kept as others
/// are, in a place of its own: one of the same match and priority ends packets behind it.
#[test]
fn packets_go_on_to_austers_forwarding() {
    let mut net = Net::new(Version::V13, 1);
    let at = net.switches[0];
    let [one, two] = [(); 2].map(|()| net.network.add_host(at));
    let to = net.network.host(two).address.ip;
    let pongs = |net: &mut Net, seq| {
        net.network.ping(one, two, seq);
        net.network.run_for(Duration::from_secs(3));
        net.network.host(one).pongs.get(&(to, seq)).copied()
    };
    net.network.run_for(Duration::from_secs(1));
    assert!(net.put(name("ann", "count"), onward("icmp", "")));
    assert!(net.put(name("ann", "mark"), onward("ip", "mod_nw_tos:184")));
    net.network.run_for(Duration::from_secs(3));
    assert_eq!(net.states(), [FlowState::InUse, FlowState::InUse]);
    assert_eq!(pongs(&mut net, 1), Some(1));
    net.network.run_for(Duration::from_secs(12));
    let view = |net: &mut Net, of| {
        net.network
            .ask(|controller, _| controller.flow(&name("ann", of)))
            .expect("an entry")
    };
    // One of the two has both packets: their priorities are the same.
    let counts = ["count", "mark"].map(|of| view(&mut net, of).counts.unwrap_or_default().0);
    assert_eq!(counts.iter().sum::<u64>(), 2);

    let before = net.held(0);
    net.delete_all(0, true);
    net.network.run_for(Duration::from_secs(1));
    assert_eq!((net.held(0), net.mended()), (before, 2));
    assert!(net.put(name("ann", "end"), entry(1, "icmp", "drop")));
    net.network.run_for(Duration::from_secs(1));
    assert_eq!(pongs(&mut net, 2), None);
    assert!(net.edit(vec![FlowEdit::Delete(name("ann", "end"))]));
    net.network.run_for(Duration::from_secs(1));
    assert_eq!(pongs(&mut net, 3), Some(1));
    // Impossible entries.
    for wrong in [
        onward("ip", "CONTROLLER"),
        onward("ip", "mod_dl_src:02:00:00:00:00:01"),
        onward("dl_vlan=5", "strip_vlan"),
        StaticEntry {
            band: Band::After,
            ..onward("ip", "")
        },
    ] {
        assert!(!net.put(name("ann", "wrong"), wrong));
    }
    let mut old = Net::new(Version::V10, 1);
    assert!(!old.put(name("ann", "count"), onward("icmp", "")));
}

#[test]
fn a_switch_with_too_few_tables_lets_no_packets_go_on_and_says_so() {
    let mut network = Network::new(NetworkConfig::default(), 1);
    let at = network.add_switch_with(DatapathId(1), |options| options.n_tables = 12);
    network.run_for(Duration::from_secs(2));
    let mut net = Net {
        network,
        switches: vec![at],
    };
    assert!(net.put(name("ann", 1), onward("ip", "")));
    assert!(net.put(name("ann", 2), entry(1, "ip", "output:1")));
    net.network.run_for(Duration::from_secs(3));
    let states = net.states();
    assert!(
        matches!(&states[0], FlowState::Refused(why) if why.contains("13 tables")),
        "{states:?}"
    );
    assert_eq!(net.held(0).len(), 1);
}

/// An entry whose port does not exist is not in use. Entries of two owners that match the same
/// packet alike name each other.
#[test]
fn what_an_entry_cannot_do_is_said() {
    let mut net = Net::new(Version::V13, 1);
    let port = net.network.add_port(net.switches[0]);
    let lone = |port: u32| entry(1, "tcp,tp_dst=80", &format!("output:{port}"));
    assert!(net.put(name("ann", "web"), lone(99)));
    net.network.run_for(Duration::from_secs(1));
    assert_eq!(net.states(), [FlowState::NoPort(PortNo(99))]);
    assert!(net.put(name("ann", "web"), lone(port.0)));
    net.network.run_for(Duration::from_secs(1));
    assert_eq!(net.states(), [FlowState::InUse]);

    let overlaps = |net: &mut Net, of: FlowName| {
        let view = net.network.ask(|controller, _| controller.flow(&of));
        view.expect("an entry").overlaps
    };
    let higher = StaticEntry {
        priority: 1,
        ..entry(1, "ip,nw_dst=10.0.0.9", "drop")
    };
    for (of, entry) in [
        (name("ann", "own"), entry(1, "ip,nw_dst=10.0.0.8", "drop")),
        (name("bob", "higher"), higher),
        (name("bob", "udp"), entry(1, "udp", "drop")),
        (name("bob", "onward"), onward("ip", "")),
        (name("bob", "host"), entry(1, "ip,nw_dst=10.0.0.2", "drop")),
    ] {
        assert!(net.put(of, entry));
    }
    assert_eq!(
        overlaps(&mut net, name("ann", "web")),
        [name("bob", "host")]
    );
    assert_eq!(
        overlaps(&mut net, name("bob", "host")),
        [name("ann", "web")]
    );
    assert_eq!(overlaps(&mut net, name("bob", "higher")), []);
}

#[test]
fn an_entry_of_nobody_goes() {
    let mut net = Net::new(Version::V13, 1);
    assert!(net.put(name("ann", 1), entry(1, "ip", "output:1")));
    net.network.run_for(ms(500));
    net.network.kill_controller();
    net.network.start_controller(9);
    net.network.run_for(Duration::from_secs(5));
    assert_eq!(net.held(0), []);
    let stray = FlowMod {
        cookie: EntryKind::Static.cookie(3),
        ..FlowMod::add(7, Match::any(), Vec::new())
    };
    assert!(net.put(name("ann", 1), entry(1, "ip", "output:1")));
    net.network.apply(net.switches[0], &Message::FlowMod(stray));
    net.network.run_for(Duration::from_secs(25));
    assert_eq!(net.held(0).len(), 1);
}
