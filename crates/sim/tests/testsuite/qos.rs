//! Services, policies and circuits on a whole network: the controller, model switches, virtual
//! time.

use std::collections::{BTreeMap, BTreeSet};

use clock::ms;
use control::controller::{ControllerConfig, Installation, Location};
use control::pipeline::POLICY_TABLE;
use control::qos::asked::Edit;
use control::qos::check::POLICIES_MAX;
use control::qos::flow::{Flow, OPENS};
use control::qos::verify;
use control::qos::{
    Circuit, Exceeding, Meter, On, Policy, PortQueues, Proto, Qos, Queue, QueueName, QueuesBy,
    Rate, Service, Treatment,
};
use control::timeouts::HostName;
use openflow::message::{FlowMod, MeterBand, MeterBandKind, MeterFlags, MeterMod, MeterModCommand};
use openflow::packet::build::udp;
use openflow::table::{FlowEntry, Output};
use openflow::{
    Action, Cookie, DatapathId, Field, Instruction, Match, Message, MeterId, PortNo, TableId,
    Version,
};
use sim::network::{HostId, LinkId, Network, NetworkConfig, SwitchId};
use sim::process::ProcessConfig;
use sim::topology::{self, Topology};

const FLOW_MOD: u8 = 14;
const BARRIER_REQUEST: u8 = 20;
const METER_MOD: u8 = 29;
const MULTIPART_REQUEST: u8 = 18;
/// The messages of a change of QoS.
const CHANGES: [u8; 3] = [FLOW_MOD, BARRIER_REQUEST, METER_MOD];

/// UDP to this port is video.
const VIDEO: u16 = 5004;

fn network() -> Network {
    network_of(Version::V13)
}

fn network_of(version: Version) -> Network {
    let config = NetworkConfig {
        process: ProcessConfig {
            controller: ControllerConfig::default(),
            ..ProcessConfig::default()
        },
        version,
        ..NetworkConfig::default()
    };
    Network::new(config, 1)
}

fn dpid(network: &Network, id: SwitchId) -> DatapathId {
    network.switch(id).features().datapath_id
}

fn switches(topology: &Topology) -> impl Iterator<Item = SwitchId> + '_ {
    topology.switches.iter().copied()
}

/// Kernel datapaths whose ports have 100 Mbit/s.
fn reach_databases(network: &mut Network, topology: &Topology) {
    let all: Vec<(DatapathId, BTreeMap<PortNo, Rate>)> = switches(topology)
        .map(|id| {
            let ports = network.switch(id).ports();
            let rates = ports.map(|port| (port.port_no, Rate::mbit(100))).collect();
            (dpid(network, id), rates)
        })
        .collect();
    network.tell_controller(|controller, now| {
        for (dpid, rates) in all {
            controller.set_queues_by(now, dpid, QueuesBy::SetQueue, rates);
        }
    });
}

fn ask_for(network: &mut Network, qos: &Qos) {
    network.tell_controller(|controller, now| {
        let told = controller.set_qos(now, qos.clone());
        assert_eq!(told, Ok(()));
    });
}

fn establish(network: &mut Network, a: HostId, b: HostId) {
    network.run_for(ms(2000));
    for seq in 0..3 {
        network.ping(a, b, seq);
        network.ping(b, a, seq);
        network.run_for(ms(100));
    }
    assert_eq!(network.host(a).pongs.len(), 3, "nothing to break yet");
}

fn lost(network: &Network, at: HostId, first: u64, count: u64) -> u64 {
    let got = &network.host(at).datagrams;
    let all = first..first + count;
    all.filter(|n| !got.contains_key(n)).count() as u64
}

fn name(network: &Network, host: HostId) -> HostName {
    HostName::Ip(network.host(host).address.ip.into())
}

fn circuit(network: &Network, from: HostId, to: HostId) -> Circuit {
    Circuit {
        name: "backup".to_owned(),
        from: name(network, from),
        to: name(network, to),
        service: None,
        rate: Some(Rate::mbit(10)),
        queue: None,
        priority: 10,
        dscp: None,
        admission: true,
        both: true,
    }
}

fn video() -> Service {
    Service {
        name: "video".to_owned(),
        proto: Some(Proto::Udp),
        dst_port: Some(VIDEO),
        ..Service::default()
    }
}

fn policy(name: &str, treatment: Treatment, on: On) -> Policy {
    Policy {
        name: name.to_owned(),
        service: "video".to_owned(),
        priority: 10,
        treatment,
        on,
    }
}

fn metered() -> Treatment {
    Treatment {
        meter: Some(Meter {
            rate: Rate::mbit(5),
            burst_bytes: None,
            exceeding: Exceeding::Drop,
        }),
        ..Treatment::default()
    }
}

fn of_policies(policies: Vec<Policy>) -> Qos {
    Qos {
        services: vec![video()],
        policies,
        ..Qos::default()
    }
}

/// Entries of policies and circuits.
fn entries(network: &Network, id: SwitchId) -> Vec<&FlowEntry> {
    let all = network.switch(id).entries();
    all.filter(|entry| Flow::is_its(entry.cookie)).collect()
}

/// These entries of all switches as text: differences between switches show.
fn all_entries(network: &Network, topology: &Topology) -> BTreeSet<String> {
    let all = switches(topology).flat_map(|id| {
        let entries = entries(network, id).into_iter().map(move |entry| {
            let (table, priority) = (entry.table_id, entry.priority);
            let rank = entry.cookie.0 & 0xff;
            format!(
                "{id:?} {table:?} {priority} {rank} {:?} {:?}",
                entry.r#match, entry.instructions
            )
        });
        entries.collect::<Vec<_>>()
    });
    all.collect()
}

fn our_meters(network: &Network, topology: &Topology) -> usize {
    let request = openflow::multipart::MultipartRequest {
        more: false,
        body: openflow::multipart::RequestBody::MeterConfig(MeterId::ALL),
    };
    let of = |id| {
        let mut switch = network.switch(id).clone();
        let replies = switch.apply(network.now(), &Message::MultipartRequest(request.clone()));
        let bodies = replies.unwrap().into_iter().map(|reply| match reply {
            Message::MultipartReply(reply) => match reply.body {
                openflow::multipart::ReplyBody::MeterConfig(meters) => meters,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        });
        let meters = bodies.flatten().map(|meter| meter.meter_id);
        meters.filter(|id| *id != FOREIGN_METER).count()
    };
    switches(topology).map(of).sum()
}

fn links(network: &Network, topology: &Topology) -> BTreeMap<Location, Location> {
    let ends = topology.links.iter().map(|id| network.link_ends(*id));
    let both = ends.flat_map(|ends| [(ends[0], ends[1]), (ends[1], ends[0])]);
    both.collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// No packet is let in.
    Absent,
    /// Packets are let in and led to the circuit's end, through these switches.
    Whole(Vec<DatapathId>),
    /// Packets are let in, and their path ends there.
    Half(Location),
}

/// Follows the circuit's entries for packets from `from` to `to`.
fn follow(network: &Network, topology: &Topology, from: HostId, to: HostId) -> Found {
    let links = links(network, topology);
    let (src, dst) = (network.host(from).address.ip, network.host(to).address.ip);
    let by_dpid: BTreeMap<DatapathId, SwitchId> = switches(topology)
        .map(|id| (dpid(network, id), id))
        .collect();
    let mut at = network.place(from);
    let mut way = Vec::new();
    loop {
        let found = entries(network, by_dpid[&at.dpid])
            .into_iter()
            .find(|entry| {
                let m = &entry.r#match;
                m.in_port() == Some(at.port)
                    && m.exact(Field::Ipv4Src) == Some(u32::from(src).into())
                    && m.exact(Field::Ipv4Dst) == Some(u32::from(dst).into())
            });
        let is_first = way.is_empty();
        let lets_in = |entry: &&FlowEntry| !is_first || entry.cookie.0 & 0xff == u64::from(OPENS);
        let Some(entry) = found.filter(lets_in) else {
            return if is_first {
                Found::Absent
            } else {
                Found::Half(at)
            };
        };
        way.push(at.dpid);
        let out = entry
            .instructions
            .iter()
            .find_map(|instruction| match instruction {
                Instruction::ApplyActions(actions) => {
                    actions.iter().find_map(|action| match action {
                        Action::Output { port, .. } | Action::Enqueue { port, .. } => Some(*port),
                        _ => None,
                    })
                }
                _ => None,
            });
        let dpid = at.dpid;
        let out = Location::new(dpid, out.expect("it leads somewhere"));
        if out == network.place(to) {
            return Found::Whole(way);
        }
        match links.get(&out) {
            Some(next) => at = *next,
            None => return Found::Half(out),
        }
    }
}

fn state(network: &mut Network, circuit: &str) -> (Installation, BTreeSet<String>) {
    let report = network.ask(|controller, _| controller.qos_report());
    let circuit = &report.circuits[circuit];
    (circuit.state, circuit.reasons.clone())
}

fn policy_state(network: &mut Network, policy: &str) -> (Installation, BTreeSet<String>) {
    let report = network.ask(|controller, _| controller.qos_report());
    let policy = &report.policies[policy];
    (policy.state, policy.reasons.clone())
}

/// The link between two switches that follow each other on a path.
fn link_between(network: &Network, topology: &Topology, a: DatapathId, b: DatapathId) -> LinkId {
    let mut links = topology.links.iter();
    let is_it = |id: &&LinkId| {
        let ends: BTreeSet<DatapathId> =
            network.link_ends(**id).iter().map(|end| end.dpid).collect();
        ends == [a, b].into()
    };
    *links.find(is_it).expect("they are linked")
}

#[test]
fn a_circuit_is_set_up_and_moves_within_a_second_when_its_link_fails() {
    for version in [Version::V13, Version::V10] {
        let mut network = network_of(version);
        let ring = topology::ring(&mut network, 5);
        let (a, b) = (ring.hosts[0], ring.hosts[2]);
        establish(&mut network, a, b);
        reach_databases(&mut network, &ring);
        let qos = Qos {
            circuits: vec![circuit(&network, a, b)],
            ..Qos::default()
        };
        ask_for(&mut network, &qos);
        network.run_for(ms(1000));
        let done = (Installation::Installed, BTreeSet::new());
        assert_eq!(state(&mut network, "backup"), done, "{version}");
        let Found::Whole(way) = follow(&network, &ring, a, b) else {
            panic!("{version}: no way there");
        };
        assert_eq!(way.len(), 3, "{version}: the shorter side");
        let back: Vec<DatapathId> = way.iter().rev().copied().collect();
        assert_eq!(follow(&network, &ring, b, a), Found::Whole(back));
        let queues = network.ask(|controller, _| controller.wanted_queues());
        let with_queues = queues.values().filter(|ports| !ports.is_empty()).count();
        assert_eq!(with_queues, 3, "{version}: and a queue at every port of it");
        network.stream(a, b, 0, 4000, ms(1));
        network.run_for(ms(1000));
        let link = link_between(&network, &ring, way[0], way[1]);
        network.set_link(link, false);
        network.run_for(ms(1000));
        let Found::Whole(round) = follow(&network, &ring, a, b) else {
            panic!("{version}: it has not moved");
        };
        assert_eq!(round.len(), 4, "{version}: the other side");
        assert_eq!(state(&mut network, "backup"), done, "{version}");
        let queues = network.ask(|controller, _| controller.wanted_queues());
        let with_queues: BTreeSet<DatapathId> = queues
            .into_iter()
            .filter(|(_, p)| !p.is_empty())
            .map(|(dpid, _)| dpid)
            .collect();
        assert_eq!(
            with_queues,
            round.iter().copied().collect(),
            "{version}: with its queues"
        );
        network.run_for(ms(3000));
        let gone = lost(&network, b, 0, 4000);
        assert!(gone <= 20, "{version}: {gone} of 4,000 lost");
        // The old path's entries are removed, and a link that returns moves nothing.
        let count = all_entries(&network, &ring).len();
        assert_eq!(count, 8, "{version}: four switches, both ways");
        network.set_link(link, true);
        network.stream(a, b, 10_000, 3000, ms(1));
        network.run_for(ms(4000));
        assert_eq!(
            follow(&network, &ring, a, b),
            Found::Whole(round),
            "{version}"
        );
        assert_eq!(lost(&network, b, 10_000, 3000), 0, "{version}: link back");
    }
}

#[test]
fn a_circuit_that_does_not_fit_is_refused_by_the_link_that_is_full() {
    let mut network = network();
    let line = topology::line(&mut network, 3);
    let (a, b) = (line.hosts[0], line.hosts[2]);
    establish(&mut network, a, b);
    reach_databases(&mut network, &line);
    let first = Circuit {
        rate: Some(Rate::mbit(60)),
        ..circuit(&network, a, b)
    };
    let second = Circuit {
        name: "second".to_owned(),
        priority: 9,
        ..first.clone()
    };
    let qos = Qos {
        circuits: vec![first, second],
        ..Qos::default()
    };
    ask_for(&mut network, &qos);
    network.run_for(ms(1000));
    assert_eq!(state(&mut network, "backup").0, Installation::Installed);
    let (installation, reasons) = state(&mut network, "second");
    assert_eq!(installation, Installation::Waiting);
    let reason = reasons.first().unwrap();
    assert!(
        reason.contains("link ") && reason.contains("is full"),
        "{reason}"
    );
    assert!(
        reason.contains("40mbit of 100mbit free, 60mbit asked"),
        "{reason}"
    );
}

/// The caller that waits for the answer gets the field at fault, and nothing is changed.
#[test]
fn a_circuit_that_is_asked_for_now_and_has_no_room_is_refused_by_field() {
    let mut network = network();
    let line = topology::line(&mut network, 3);
    let (a, b, unheard) = (line.hosts[0], line.hosts[2], line.hosts[1]);
    establish(&mut network, a, b);
    reach_databases(&mut network, &line);
    let of = |name: &str, mbit, priority| Circuit {
        name: name.to_owned(),
        rate: Some(Rate::mbit(mbit)),
        priority,
        ..circuit(&network, a, b)
    };
    let (first, second) = (of("first", 60, 10), of("second", 60, 9));
    let (fits, third, more) = (
        of("second", 30, 9),
        of("third", 20, 8),
        of("first", 101, 10),
    );
    let elsewhere = Circuit {
        name: "elsewhere".to_owned(),
        to: name(&network, unheard),
        ..second.clone()
    };
    let ask = |network: &mut Network, circuits: &[&Circuit], name: &'static str| {
        let qos = Qos {
            circuits: circuits.iter().map(|c| (*c).clone()).collect(),
            ..Qos::default()
        };
        network.ask(|controller, now| controller.set_qos_with(now, qos, name))
    };
    assert_eq!(ask(&mut network, &[&first], "first"), Ok(()));
    network.run_for(ms(1000));
    let before = all_entries(&network, &line);
    assert_eq!(state(&mut network, "first").0, Installation::Installed);
    let problems = ask(&mut network, &[&first, &second], "second").unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].field, "circuits[1].rate");
    let what = &problems[0].what;
    assert!(what.contains("port 0000000000000001:"), "{what}");
    assert!(
        what.contains("40mbit of 100mbit free, 60mbit asked"),
        "{what}"
    );
    let problems = ask(&mut network, &[&more], "first").unwrap_err();
    let what = &problems[0].what;
    assert!(
        what.contains("100mbit of 100mbit free"),
        "its own room is its own: {what}"
    );
    network.run_for(ms(1000));
    assert_eq!(all_entries(&network, &line), before);
    let asked = network.ask(|controller, _| controller.qos().circuits.clone());
    assert_eq!(asked, std::slice::from_ref(&first));
    // A circuit that fits is accepted, and counts at once, before any of its entries is on a
    // switch.
    assert_eq!(ask(&mut network, &[&first, &fits], "second"), Ok(()));
    let three = [&first, &fits, &third];
    assert!(ask(&mut network, &three, "third").is_err());
    // Nobody knows yet where that host is.
    let unknown = [&first, &fits, &elsewhere];
    assert_eq!(ask(&mut network, &unknown, "elsewhere"), Ok(()));
}

/// A circuit, a queue, a meter and a mark, and what is somebody else's.
fn rich(network: &Network, ring: &Topology) -> Qos {
    let (a, b) = (ring.hosts[0], ring.hosts[2]);
    let ports = switches(ring).map(|id| {
        let at = Location::new(dpid(network, id), PortNo(1));
        let queue = Queue {
            class: Some("gold".to_owned()),
            min: Some(Rate::mbit(20)),
            ..Queue::default()
        };
        let queues = PortQueues {
            rate: Rate::mbit(100),
            queues: BTreeMap::from([(1, queue)]),
        };
        (at, queues)
    });
    let queued = Treatment {
        queue: Some(QueueName::Class("gold".to_owned())),
        ..metered()
    };
    let slow = Policy {
        priority: 11,
        ..policy("slow", metered(), On::Everywhere)
    };
    Qos {
        ports: ports.collect(),
        circuits: vec![circuit(network, a, b)],
        ..of_policies(vec![policy("video first", queued, On::Everywhere), slow])
    }
}

const FOREIGN_METER: MeterId = MeterId(7);
const FOREIGN: Cookie = Cookie(0x1234);

fn set_foreign(network: &mut Network, topology: &Topology) {
    for id in topology.switches.clone() {
        for table in [0, 1] {
            let entry = FlowMod {
                cookie: FOREIGN,
                table_id: TableId(table),
                ..FlowMod::add(
                    3011,
                    Match::any().with(Field::EthType, 0x9999u16),
                    Vec::new(),
                )
            };
            network.apply(id, &Message::FlowMod(entry));
        }
        let meter = MeterMod {
            command: MeterModCommand::Add,
            flags: MeterFlags::KBPS,
            meter_id: FOREIGN_METER,
            bands: vec![MeterBand {
                rate: 1,
                burst_size: 0,
                kind: MeterBandKind::Drop,
            }],
        };
        network.apply(id, &Message::MeterMod(meter));
    }
}

fn assert_foreign(network: &Network, topology: &Topology) {
    for id in switches(topology) {
        let foreign = network
            .switch(id)
            .entries()
            .filter(|entry| entry.cookie == FOREIGN);
        assert_eq!(foreign.count(), 2, "{id:?}");
        let mut switch = network.switch(id).clone();
        let again = MeterMod {
            command: MeterModCommand::Modify,
            flags: MeterFlags::KBPS,
            meter_id: FOREIGN_METER,
            bands: Vec::new(),
        };
        let there = switch.apply(network.now(), &Message::MeterMod(again));
        assert!(there.is_ok(), "{id:?}: the meter is there");
    }
}

/// A network set up with hosts, queues and foreign state.
fn prepared() -> (Network, Topology) {
    let mut network = network();
    let ring = topology::ring(&mut network, 4);
    establish(&mut network, ring.hosts[0], ring.hosts[2]);
    reach_databases(&mut network, &ring);
    set_foreign(&mut network, &ring);
    (network, ring)
}

fn restart(network: &mut Network, ring: &Topology, qos: &Qos) {
    network.kill_controller();
    network.run_for(ms(500));
    network.start_controller(99);
    reach_databases(network, ring);
    ask_for(network, qos);
}

/// The controller is killed after every message that sets the circuit up or removes it, while
/// messages under way still reach some switches and not others. The entries are never half there:
/// a new process completes them, or nothing is left.
#[test]
fn killed_at_any_message_a_circuit_is_whole_or_absent() {
    for is_removal in [false, true] {
        let (mut reference, ring) = prepared();
        let qos = rich(&reference, &ring);
        ask_for(&mut reference, &qos);
        reference.run_for(ms(2000));
        let (whole, meters) = (
            all_entries(&reference, &ring),
            our_meters(&reference, &ring),
        );
        assert_eq!(meters, 8);
        let reached: [&[usize]; 4] = [&[], &[0, 2], &[1, 3], &[0]];
        let mut points = 0;
        loop {
            let ways = reached.map(|reached| {
                let killed = killed_after(points, reached, is_removal)?;
                match is_removal {
                    true => assert_eq!(killed, (BTreeSet::new(), 0), "after {points}"),
                    false => assert_eq!(killed, (whole.clone(), meters), "after {points}"),
                }
                Some(())
            });
            if ways.contains(&None) {
                break;
            }
            points += 1;
        }
        assert!(points >= 50, "{points} points, removal: {is_removal}");
    }
}

/// Returns the entries and meters in the end, or `None` if there were fewer messages.
fn killed_after(
    points: u64,
    reached: &[usize],
    is_removal: bool,
) -> Option<(BTreeSet<String>, usize)> {
    let (mut network, ring) = prepared();
    let (a, b) = (ring.hosts[0], ring.hosts[2]);
    let qos = rich(&network, &ring);
    ask_for(&mut network, &qos);
    let mut then = qos;
    if is_removal {
        network.run_for(ms(2000));
        then = Qos::default();
        ask_for(&mut network, &then);
    }
    let end = network.now() + ms(1500);
    if !network.run_until_heard(&CHANGES, points, end) {
        return None;
    }
    let reached: Vec<SwitchId> = reached.iter().map(|n| ring.switches[*n]).collect();
    network.kill_controller_after(&reached);
    let assert_not_half = |network: &Network| {
        for (from, to) in [(a, b), (b, a)] {
            let found = follow(network, &ring, from, to);
            assert!(
                !matches!(found, Found::Half(_)),
                "after {points}: {found:?}"
            );
        }
    };
    assert_not_half(&network);
    // Without a controller, packets take the circuit or the paths, whatever form these have.
    network.stream(a, b, 1000, 20, ms(1));
    network.run_for(ms(100));
    assert_eq!(lost(&network, b, 1000, 20), 0, "after {points}");
    restart(&mut network, &ring, &then);
    network.run_for(ms(3000));
    assert_not_half(&network);
    // Hosts named by their address are known once they announce it.
    network.resolve(a, b);
    network.resolve(b, a);
    network.run_for(ms(7000));
    assert_foreign(&network, &ring);
    network.stream(a, b, 0, 100, ms(1));
    network.run_for(ms(1000));
    assert_eq!(lost(&network, b, 0, 100), 0, "after {points}");
    Some((all_entries(&network, &ring), our_meters(&network, &ring)))
}

#[test]
fn a_new_process_finds_all_of_it_and_sends_nothing() {
    let (mut network, ring) = prepared();
    let (a, b) = (ring.hosts[0], ring.hosts[2]);
    let qos = rich(&network, &ring);
    ask_for(&mut network, &qos);
    network.run_for(ms(2000));
    let whole = all_entries(&network, &ring);
    let way = follow(&network, &ring, a, b);
    let told = |network: &Network| {
        let of = |t| switches(&ring).map(|id| network.heard(id, t)).sum::<u64>();
        of(METER_MOD) + of(FLOW_MOD)
    };
    let before = told(&network);
    // Its hosts send only over the circuit, so that the controller does not see them.
    network.stream(a, b, 0, 20_000, ms(1));
    restart(&mut network, &ring, &qos);
    network.run_for(ms(10_000));
    assert_eq!(told(&network) - before, 0);
    assert_eq!(all_entries(&network, &ring), whole);
    assert_eq!(follow(&network, &ring, a, b), way);
    let done = (Installation::Installed, BTreeSet::new());
    assert_eq!(state(&mut network, "backup"), done);
    assert_eq!(policy_state(&mut network, "video first"), done);
    network.run_for(ms(11_000));
    assert_eq!(lost(&network, b, 0, 20_000), 0);
}

/// After a restart the controller reaches the databases some seconds after the switches.
#[test]
fn a_circuit_stays_while_databases_are_still_on_their_way() {
    let (mut network, ring) = prepared();
    let (a, b) = (ring.hosts[0], ring.hosts[2]);
    let qos = rich(&network, &ring);
    ask_for(&mut network, &qos);
    network.run_for(ms(2000));
    let whole = all_entries(&network, &ring);
    assert!(matches!(follow(&network, &ring, a, b), Found::Whole(_)));
    network.kill_controller();
    network.start_controller(99);
    ask_for(&mut network, &qos);
    for _ in 0..30 {
        network.run_for(ms(100));
        assert_eq!(all_entries(&network, &ring), whole);
        let queues = network.ask(|controller, _| controller.wanted_queues());
        assert_eq!(queues, BTreeMap::new(), "nobody decides on queues yet");
    }
    reach_databases(&mut network, &ring);
    network.run_for(ms(5000));
    assert_eq!(all_entries(&network, &ring), whole);
    let queues = network.ask(|controller, _| controller.wanted_queues());
    assert_eq!(queues.len(), 4);
}

/// No host returns for the state of an earlier process: its hosts are silent, one is gone.
#[test]
fn what_nobody_can_place_any_more_goes_in_the_end() {
    let (mut network, ring) = prepared();
    let (a, b) = (ring.hosts[0], ring.hosts[2]);
    let qos = Qos {
        circuits: vec![circuit(&network, a, b)],
        ..Qos::default()
    };
    ask_for(&mut network, &qos);
    network.run_for(ms(2000));
    network.kill_controller();
    let link = network.link_of(b);
    network.set_link(link, false);
    restart(&mut network, &ring, &qos);
    network.run_for(ms(20_000));
    assert!(
        !all_entries(&network, &ring).is_empty(),
        "it may be on its way"
    );
    network.run_for(ms(20_000));
    assert_eq!(all_entries(&network, &ring), BTreeSet::new());
}

fn video_out(
    network: &Network,
    at: Location,
    id: SwitchId,
    from: HostId,
    to: HostId,
) -> Vec<Output> {
    let (from, to) = (network.host(from).address, network.host(to).address);
    network
        .switch(id)
        .output_of(at.port, &udp(from, to, (4000, VIDEO), b"payload"))
}

#[test]
fn policies_stand_behind_paths_and_turning_them_on_and_off_loses_nothing() {
    let mut network = network();
    let line = topology::line(&mut network, 3);
    let (a, b) = (line.hosts[0], line.hosts[2]);
    establish(&mut network, a, b);
    reach_databases(&mut network, &line);
    let ingress = line.switches[0];
    let at = network.place(a);
    network.stream(a, b, 0, 6000, ms(1));
    network.run_for(ms(500));
    let plain = video_out(&network, at, ingress, a, b);
    let [
        Output::Port {
            port, queue: None, ..
        },
    ] = plain[..]
    else {
        panic!("{plain:?}");
    };
    let out = Location { port, ..at };
    let queue = Queue {
        min: Some(Rate::mbit(20)),
        ..Queue::default()
    };
    let queues = PortQueues {
        rate: Rate::mbit(100),
        queues: BTreeMap::from([(3, queue)]),
    };
    let queued = Treatment {
        queue: Some(QueueName::Number(3)),
        ..Treatment::default()
    };
    let mut qos = of_policies(vec![policy("p", queued, On::Ports([out].into()))]);
    qos.ports.insert(out, queues);
    ask_for(&mut network, &qos);
    network.run_for(ms(1500));
    let done = (Installation::Installed, BTreeSet::new());
    assert_eq!(policy_state(&mut network, "p"), done);
    let found = video_out(&network, at, ingress, a, b);
    let is_queued =
        |output: &Output| matches!(output, Output::Port { queue: Some(q), .. } if q.0 == 3);
    assert!(found.len() == 1 && is_queued(&found[0]), "{found:?}");
    let other = line.switches[1];
    let leads = |network: &Network, id| {
        let mut entries = network.switch(id).entries();
        entries.any(|entry| {
            entry
                .instructions
                .contains(&Instruction::GotoTable(POLICY_TABLE))
        })
    };
    assert!(leads(&network, ingress));
    assert!(
        !leads(&network, other),
        "a switch without policies is as before"
    );
    // New paths lead on as well, as do entries that an edge sets.
    let c = network.add_host(ingress);
    network.run_for(ms(2000));
    for seq in 0..3 {
        network.ping(c, b, 20 + seq);
        network.ping(c, a, 30 + seq);
        network.run_for(ms(100));
    }
    let from_c = video_out(&network, network.place(c), ingress, c, b);
    assert!(from_c.iter().all(is_queued), "{from_c:?}");
    ask_for(&mut network, &Qos::default());
    network.run_for(ms(2000));
    assert!(!leads(&network, ingress));
    assert_eq!(all_entries(&network, &line), BTreeSet::new());
    let after = video_out(&network, at, ingress, a, b);
    assert_eq!(after, plain);
    network.run_for(ms(3000));
    assert_eq!(lost(&network, b, 0, 6000), 0);
}

#[test]
fn what_a_policy_drops_is_dropped() {
    let mut network = network();
    let line = topology::line(&mut network, 2);
    let (a, b) = (line.hosts[0], line.hosts[1]);
    establish(&mut network, a, b);
    let drop = Treatment {
        drop: true,
        ..Treatment::default()
    };
    ask_for(
        &mut network,
        &of_policies(vec![policy("p", drop, On::Everywhere)]),
    );
    network.run_for(ms(1500));
    let at = network.place(a);
    assert_eq!(video_out(&network, at, line.switches[0], a, b), []);
    network.stream(a, b, 0, 100, ms(1));
    network.run_for(ms(500));
    assert_eq!(lost(&network, b, 0, 100), 0, "no video");
}

/// If nothing is asked for, nothing is sent: the run is byte for byte the same as before.
#[test]
fn without_qos_the_controller_says_what_it_always_said() {
    let run = |asked: bool| {
        let mut network = network();
        let ring = topology::ring(&mut network, 4);
        if asked {
            ask_for(&mut network, &Qos::default());
            reach_databases(&mut network, &ring);
        }
        establish(&mut network, ring.hosts[0], ring.hosts[2]);
        network.set_link(ring.links[0], false);
        network.run_for(ms(2000));
        let types: Vec<u64> = [MULTIPART_REQUEST, METER_MOD]
            .map(|t| network.heard(ring.switches[0], t))
            .to_vec();
        (network.trace(), types)
    };
    let (trace, types) = run(false);
    assert_eq!(run(true), (trace, types.clone()));
    assert_eq!(types[1], 0);
}

#[test]
fn a_switch_that_does_not_confirm_holds_up_only_what_needs_it() {
    let mut network = network();
    let ring = topology::ring(&mut network, 5);
    let (a, b, c) = (ring.hosts[0], ring.hosts[1], ring.hosts[3]);
    establish(&mut network, a, b);
    establish(&mut network, c, a);
    reach_databases(&mut network, &ring);
    network.set_mute(ring.switches[3]);
    let other = Circuit {
        name: "other".to_owned(),
        ..circuit(&network, c, a)
    };
    let qos = Qos {
        circuits: vec![circuit(&network, a, b), other],
        ..Qos::default()
    };
    ask_for(&mut network, &qos);
    network.run_for(ms(2000));
    assert_eq!(state(&mut network, "backup").0, Installation::Installed);
    assert!(matches!(follow(&network, &ring, a, b), Found::Whole(_)));
    let (installation, reasons) = state(&mut network, "other");
    assert_eq!(installation, Installation::Installing);
    assert!(!reasons.is_empty());
    // However often it is asked.
    network.run_for(ms(25_000));
    assert_eq!(state(&mut network, "backup").0, Installation::Installed);
    assert_eq!(state(&mut network, "other").0, Installation::Installing);
    for (from, to) in [(c, a), (a, c)] {
        assert!(!matches!(follow(&network, &ring, from, to), Found::Half(_)));
    }
}

#[test]
fn what_a_full_switch_refuses_is_told_and_no_path_leads_to_it() {
    let mut network = network();
    let small = network.add_switch_of(DatapathId(77), 8);
    let hosts = [(); 2].map(|()| network.add_host(small));
    network.run_for(ms(2000));
    let policies = (0..20).map(|n| Policy {
        priority: n,
        ..policy(&format!("p{n}"), metered(), On::Everywhere)
    });
    ask_for(&mut network, &of_policies(policies.collect()));
    network.run_for(ms(3000));
    let report = network.ask(|controller, _| controller.qos_report());
    let told = report
        .policies
        .values()
        .filter(|policy| !policy.reasons.is_empty());
    let told: Vec<_> = told.collect();
    assert!(!told.is_empty() && told.len() < 20, "{}", told.len());
    assert!(
        told.iter()
            .all(|policy| policy.reasons.first().unwrap().contains("refuses"))
    );
    establish(&mut network, hosts[0], hosts[1]);
    network.stream(hosts[0], hosts[1], 0, 100, ms(1));
    network.run_for(ms(1000));
    assert_eq!(lost(&network, hosts[1], 0, 100), 0);
}

#[test]
fn a_wrong_request_is_refused_whole_and_changes_nothing() {
    let (mut network, ring) = prepared();
    let qos = rich(&network, &ring);
    ask_for(&mut network, &qos);
    network.run_for(ms(2000));
    let before = all_entries(&network, &ring);
    let mut wrong = qos.clone();
    wrong.ports.insert(
        Location::new(dpid(&network, ring.switches[0]), PortNo(55)),
        PortQueues {
            rate: Rate::mbit(100),
            queues: BTreeMap::new(),
        },
    );
    wrong.policies[0].service = "audio".to_owned();
    wrong.circuits.clear();
    network.tell_controller(|controller, now| {
        let told = controller.set_qos(now, wrong).unwrap_err();
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(controller.qos(), &qos);
    });
    network.run_for(ms(2000));
    assert_eq!(all_entries(&network, &ring), before);
}

#[test]
fn counters_are_read_and_told_by_policy_and_circuit() {
    let (mut network, ring) = prepared();
    let (a, b) = (ring.hosts[0], ring.hosts[2]);
    let qos = rich(&network, &ring);
    ask_for(&mut network, &qos);
    network.run_for(ms(1000));
    network.stream(a, b, 0, 100, ms(1));
    network.run_for(ms(1000));
    network.tell_controller(|controller, now| controller.read_qos_counts(now));
    network.run_for(ms(100));
    let report = network.ask(|controller, _| controller.qos_report());
    assert_eq!(report.circuits["backup"].sent.packets, 100);
    assert_eq!(report.circuits["backup"].hops.len(), 3);
}

/// Switches whose datapath ignores `set_queue`, and the program beside them that keeps the queues.
/// It counts packets that entries put into queues, except where no such program runs.
struct Beside {
    nobody_at: Option<DatapathId>,
    /// The switch where all packets are in queue 0.
    useless_at: Option<DatapathId>,
}

impl Beside {
    fn reach(network: &mut Network, topology: &Topology) {
        let all: Vec<DatapathId> = switches(topology).map(|id| dpid(network, id)).collect();
        let rates = [1, 2, 3].map(|port| (PortNo(port), Rate::mbit(100)));
        network.tell_controller(|controller, now| {
            for dpid in all {
                let rates = rates.into_iter().collect();
                controller.set_queues_by(now, dpid, QueuesBy::CodePoint, rates);
            }
        });
    }

    /// Counts packets by queue and hands the counts to the controller.
    fn count(&self, network: &mut Network, topology: &Topology) {
        let wanted = network.ask(|controller, _| controller.wanted_queues());
        let mut told: BTreeMap<DatapathId, BTreeMap<PortNo, verify::Beside>> = BTreeMap::new();
        for id in switches(topology) {
            let dpid = dpid(network, id);
            let mut queued: BTreeMap<(PortNo, u32), u64> = BTreeMap::new();
            for entry in entries(network, id) {
                let actions = entry
                    .instructions
                    .iter()
                    .flat_map(|instruction| match instruction {
                        Instruction::ApplyActions(actions) => &actions[..],
                        _ => &[],
                    });
                let mut queue = 0;
                for action in actions {
                    match action {
                        Action::SetQueue(named) if self.useless_at != Some(dpid) => queue = named.0,
                        Action::Output { port, .. } => {
                            *queued.entry((*port, queue)).or_default() += entry.packet_count;
                        }
                        _ => {}
                    }
                }
            }
            let ports = wanted.get(&dpid).into_iter().flat_map(BTreeMap::iter);
            let ports = ports.map(|(port, plan)| {
                let numbers = plan.queues.queues.keys().map(|number| u32::from(*number));
                let counts = numbers.chain([0]).map(|number| {
                    let packets = queued.get(&(*port, number)).copied().unwrap_or(0);
                    let dropped = 0;
                    (number, verify::Came { packets, dropped })
                });
                let beside = match self.nobody_at == Some(dpid) {
                    true => verify::Beside::Nobody,
                    false => verify::Beside::Counts(counts.collect()),
                };
                (*port, beside)
            });
            told.insert(dpid, ports.collect());
        }
        network.tell_controller(|controller, now| {
            for (dpid, ports) in told {
                controller.set_queue_counts(now, dpid, ports);
            }
        });
    }

    /// Lets seconds pass under traffic, and counts every five seconds.
    fn run(&self, network: &mut Network, topology: &Topology, seconds: u64) {
        for _ in 0..seconds / 5 {
            self.count(network, topology);
            network.run_for(ms(5000));
        }
        self.count(network, topology);
    }
}

#[test]
fn a_circuit_is_active_when_every_hop_was_seen_to_queue_and_not_before() {
    // At the second hop: working queues, no maker of queues, and useless queues.
    for number in 0..3 {
        let mut network = network();
        let ring = topology::ring(&mut network, 5);
        let (a, b) = (ring.hosts[0], ring.hosts[2]);
        establish(&mut network, a, b);
        Beside::reach(&mut network, &ring);
        let asked = Circuit {
            dscp: Some(20),
            ..circuit(&network, a, b)
        };
        let qos = Qos {
            circuits: vec![asked],
            ..Qos::default()
        };
        ask_for(&mut network, &qos);
        network.run_for(ms(1000));
        let Found::Whole(way) = follow(&network, &ring, a, b) else {
            panic!("no way there");
        };
        let second = Some(way[1]);
        let beside = Beside {
            nobody_at: second.filter(|_| number == 1),
            useless_at: second.filter(|_| number == 2),
        };
        beside.run(&mut network, &ring, 30);
        let quiet = state(&mut network, "backup");
        assert_eq!(
            quiet,
            (Installation::Installed, BTreeSet::new()),
            "no traffic yet"
        );
        let report =
            network.ask(|controller, now| controller.verify_report(now, clock::Instant::START));
        let effects = report.circuits["backup"]
            .iter()
            .map(|hop| hop.verdict.effect);
        assert_eq!(effects.collect::<Vec<_>>(), [verify::Effect::NoTraffic; 6]);

        network.stream(a, b, 0, 4000, ms(10));
        beside.run(&mut network, &ring, 40);
        let (found, reasons) = state(&mut network, "backup");
        let place = way[1].to_string();
        if number > 0 {
            assert_eq!(found, Installation::NotInEffect, "{reasons:?}");
            let [reason] = &Vec::from_iter(&reasons)[..] else {
                panic!("{reasons:?}");
            };
            assert!(reason.starts_with(&place), "{reason}");
            let why = ["", "nobody beside the switch", "got 0 of"][number];
            assert!(reason.contains(why), "{reason}");
            continue;
        }
        assert_eq!((found, reasons), (Installation::Active, BTreeSet::new()));
        let report =
            network.ask(|controller, now| controller.verify_report(now, clock::Instant::START));
        let hops = &report.circuits["backup"];
        let there: Vec<DatapathId> = hops.iter().take(3).map(|hop| hop.dpid).collect();
        assert_eq!(there, way, "in the order of the way, the answers after it");
        let effects: Vec<verify::Effect> = hops.iter().map(|hop| hop.verdict.effect).collect();
        use verify::Effect::{NoTraffic, Yes};
        assert_eq!(effects, [Yes, Yes, Yes, NoTraffic, NoTraffic, NoTraffic]);
        // The circuit stays verified while it is quiet, but on another path nothing has been seen
        // yet.
        beside.run(&mut network, &ring, 120);
        assert_eq!(state(&mut network, "backup").0, Installation::Active);
        let link = link_between(&network, &ring, way[0], way[1]);
        network.set_link(link, false);
        network.run_for(ms(1000));
        assert_eq!(state(&mut network, "backup").0, Installation::Installed);
        network.stream(a, b, 4000, 4000, ms(10));
        beside.run(&mut network, &ring, 40);
        let done = (Installation::Active, BTreeSet::new());
        assert_eq!(state(&mut network, "backup"), done);
    }
}

/// A meter and a mark have counters of their own: no database is needed.
#[test]
fn a_meter_and_a_mark_are_seen_by_what_met_them() {
    let (mut network, ring) = prepared();
    let (a, b) = (ring.hosts[0], ring.hosts[2]);
    let treatment = Treatment {
        mark: Some(12),
        ..metered()
    };
    let mut qos = of_policies(vec![policy("slow", treatment, On::Everywhere)]);
    qos.services[0].dst_port = None;
    ask_for(&mut network, &qos);
    network.run_for(ms(30_000));
    assert_eq!(
        policy_state(&mut network, "slow").0,
        Installation::Installed
    );
    network.stream(a, b, 0, 2000, ms(10));
    network.run_for(ms(30_000));
    let done = (Installation::Active, BTreeSet::new());
    assert_eq!(policy_state(&mut network, "slow"), done);
    let report =
        network.ask(|controller, now| controller.verify_report(now, clock::Instant::START));
    let hops = &report.policies["slow"];
    let met: Vec<_> = hops.iter().filter(|hop| hop.verdict.counted > 0).collect();
    assert_eq!(met.len(), 3, "switches of the way: {hops:?}");
    for hop in met {
        let meter = hop.verdict.meter.expect("it tells");
        assert_eq!(meter.packets, hop.verdict.counted, "{hop:?}");
        assert_eq!(hop.verdict.mark, Some(verify::MarkProof::Entry));
    }
}

/// 1,000 policies on 50 switches, each on five of them.
#[test]
fn a_thousand_policies_are_as_many_messages_as_entries_and_none_the_second_time() {
    let mut network = network();
    let line = topology::line(&mut network, 50);
    network.run_for(ms(3000));
    let dpids: Vec<DatapathId> = switches(&line).map(|id| dpid(&network, id)).collect();
    let mut qos = Qos::default();
    for n in 0..1000u16 {
        let on = (0..5).map(|k| dpids[(usize::from(n) + 10 * k) % 50]);
        qos.services.push(Service {
            name: format!("s{n}"),
            dst: Some("10.0.0.0/8".parse().unwrap()),
            dst_port: Some(n + 1),
            ..video()
        });
        let treatment = Treatment {
            mark: Some((n % 64) as u8),
            ..Treatment::default()
        };
        qos.policies.push(Policy {
            service: format!("s{n}"),
            ..policy(&format!("p{n}"), treatment, On::Switches(on.collect()))
        });
    }
    let told = |network: &Network| {
        let of = |t| switches(&line).map(|id| network.heard(id, t)).sum::<u64>();
        (of(FLOW_MOD), of(METER_MOD), of(BARRIER_REQUEST))
    };
    let before = told(&network);
    ask_for(&mut network, &qos);
    network.run_for(ms(3000));
    let after = told(&network);
    assert_eq!(
        after.0 - before.0,
        5000 + 50,
        "an entry each, and the lowest of each table"
    );
    assert!(after.2 - before.2 <= 50 * 3, "a barrier a stage and switch");
    let report = network.ask(|controller, _| controller.qos_report());
    let installed = |policy: &&_| {
        let policy: &control::controller::PolicyReport = policy;
        policy.state == Installation::Installed
    };
    assert_eq!(report.policies.values().filter(installed).count(), 1000);
    ask_for(&mut network, &qos);
    network.run_for(ms(1000));
    assert_eq!(told(&network), after, "the same again is no message");
    // One policy less is five messages.
    qos.policies.pop();
    ask_for(&mut network, &qos);
    network.run_for(ms(1000));
    assert_eq!(told(&network).0 - after.0, 5);
}

/// One of many policies: its own service, and the treatment of its packets.
fn numbered(n: u16) -> [Edit; 2] {
    let service = Service {
        name: format!("s{n}"),
        dst_port: Some(n + 1),
        ..video()
    };
    let mark = Treatment {
        mark: Some((n % 64) as u8),
        ..Treatment::default()
    };
    let policy = Policy {
        service: service.name.clone(),
        ..policy(&format!("p{n}"), mark, On::Everywhere)
    };
    [Edit::PutService(service), Edit::PutPolicy(policy)]
}

fn work(network: &mut Network) -> [u64; 4] {
    let work = network.ask(|controller, _| controller.qos_work());
    [work.judged, work.compared, work.planned, work.looked_at]
}

/// The documented number of policies is added one by one, each with the same work.
#[test]
fn a_policy_costs_the_same_beside_four_thousand_as_beside_none() {
    let mut network = network();
    let line = topology::line(&mut network, 2);
    network.run_for(ms(3000));
    let edit = |network: &mut Network, edits: Vec<Edit>| {
        let before = work(network);
        let told = network.ask(|controller, now| controller.edit_qos(now, edits));
        assert_eq!(told, Ok(()));
        network.run_for(ms(20));
        let after = work(network);
        std::array::from_fn::<u64, 4, _>(|n| after[n] - before[n])
    };
    let policies = POLICIES_MAX as u16;
    let add = |network: &mut Network, n: u16| edit(network, numbered(n).to_vec());
    add(&mut network, 0);
    for n in 1..policies - 1 {
        let cost = add(&mut network, n);
        // Its two entries (IPv4 and IPv6) on each of two switches are examined together with
        // earlier policies' entries that were not known to be sent.
        let bound = [1, 4, 1, 16];
        assert!(
            cost.iter().zip(bound).all(|(cost, bound)| *cost <= bound),
            "{n}: {cost:?}"
        );
    }
    // The last policy, through its whole life.
    let last = policies - 1;
    let [service, added] = numbered(last);
    let other = Edit::PutPolicy(Policy {
        priority: 7,
        ..match &added {
            Edit::PutPolicy(policy) => policy.clone(),
            _ => unreachable!("it is one"),
        }
    });
    let gone = Edit::DeletePolicy(format!("p{last}"));
    for edits in [
        vec![service],
        vec![added.clone()],
        vec![other],
        vec![gone],
        vec![added],
    ] {
        let cost = edit(&mut network, edits);
        assert!(
            cost[0] <= 1 && cost[1] <= 4 && cost[2] <= 2 && cost[3] <= 16,
            "{cost:?}"
        );
    }
    network.run_for(ms(1000));
    for id in switches(&line) {
        let entries = entries(&network, id);
        let of_policies = entries.iter().filter(|entry| entry.table_id.0 == 1);
        assert_eq!(of_policies.count(), 2 * usize::from(policies) + 1);
    }
    let before = work(&mut network);
    let [service, policy] = numbered(policies);
    let told = network.ask(|controller, now| controller.edit_qos(now, vec![service, policy]));
    assert_eq!(
        told.unwrap_err().len(),
        2,
        "more than there may be of services and policies"
    );
    assert!(work(&mut network)[0] - before[0] <= 1);
    assert_eq!(
        network.ask(|controller, _| controller.qos().policies.len()),
        POLICIES_MAX
    );
}

/// A link failure costs no work for policies: they do not depend on the link.
#[test]
fn a_link_that_goes_plans_no_policy_anew() {
    let mut network = network();
    let ring = topology::ring(&mut network, 3);
    network.run_for(ms(3000));
    for n in 0..50 {
        let told = network.ask(|controller, now| controller.edit_qos(now, numbered(n).to_vec()));
        assert_eq!(told, Ok(()));
        network.run_for(ms(20));
    }
    network.run_for(ms(1000));
    let before = work(&mut network);
    let [a, b] = [ring.switches[0], ring.switches[1]].map(|id| dpid(&network, id));
    let link = link_between(&network, &ring, a, b);
    network.set_link(link, false);
    network.run_for(ms(2000));
    let after = work(&mut network);
    assert_eq!(after[2], before[2], "planned");
    assert_eq!(after[3], before[3], "looked at");
}
