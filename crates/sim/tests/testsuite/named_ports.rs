//! Ports that settings name, and that do not exist or lead to another switch.

use clock::Duration;
use control::access::Access;
use control::bond::{Bond, Bonds, Protocol};
use control::controller::{Alarm, ControllerConfig, Event, Location, Setting};
use control::mirror::{Direction, Mirror, Mirrors};
use openflow::PortNo;
use sim::network::Network;
use sim::topology;

/// A line of three switches whose links are known, and the ends of one of these.
fn line(config: ControllerConfig) -> (Network, (Location, Location)) {
    let mut network = Network::new(config.into(), 1);
    topology::line(&mut network, 3);
    network.run_for(Duration::from_secs(3));
    let links = network.events().find_map(|event| match event {
        Event::LinkUp { from, to } => Some((*from, *to)),
        _ => None,
    });
    let link = links.expect("a link");
    (network, link)
}

fn mirror(from: Location, to: PortNo) -> Mirrors {
    Mirrors::new([Mirror {
        name: "m".to_owned(),
        dpid: from.dpid,
        from: [from.port].into(),
        direction: Direction::Both,
        to,
    }])
}

fn bond(at: Location) -> Bonds {
    Bonds::new([Bond {
        name: "b".to_owned(),
        dpid: at.dpid,
        ports: [at.port].into(),
        protocol: Protocol::Static,
        is_fast: true,
    }])
}

fn access(at: Location) -> Access {
    Access {
        bindings: [(at, Vec::new())].into(),
        ..Access::default()
    }
}

/// Doubts about each setting that can name a port are known before a change is made.
#[test]
fn doubts_about_ports_are_known_before_a_change() {
    let (network, (at, to)) = line(ControllerConfig::default());
    let controller = &network.process().controller;
    let missing = Location::new(at.dpid, PortNo(77));
    let is_link = |setting| Alarm::PortIsLink { at, to, setting };
    let is_missing = |setting| Alarm::PortMissing {
        at: missing,
        setting,
    };
    let doubts = |of: &dyn Fn(&mut ControllerConfig)| {
        let mut config = ControllerConfig::default();
        of(&mut config);
        controller.doubts(&config)
    };
    assert_eq!(doubts(&|_| {}), Vec::<Alarm>::new());
    assert_eq!(
        doubts(&|config| config.access = access(at)),
        [is_link(Setting::Port)]
    );
    assert_eq!(
        doubts(&|config| config.access = access(missing)),
        [is_missing(Setting::Port)]
    );
    // An end of a link may be mirrored, and gets no copies.
    assert_eq!(
        doubts(&|config| config.mirrors = mirror(at, missing.port)),
        [is_missing(Setting::MirrorTo)]
    );
    assert_eq!(
        doubts(&|config| config.mirrors = mirror(missing, at.port)),
        [is_link(Setting::MirrorTo), is_missing(Setting::MirrorFrom)]
    );
    assert_eq!(
        doubts(&|config| config.bonds = bond(at)),
        [is_link(Setting::Bond)]
    );
    assert_eq!(
        doubts(&|config| config.edge_ports = [at, missing].into()),
        [is_link(Setting::EdgePorts), is_missing(Setting::EdgePorts)]
    );
}

/// LLDP of ours that comes in at such a port is no forgery: the alarm names the setting.
#[test]
fn the_alarm_about_a_link_that_is_not_used_names_the_setting() {
    let (_, (at, to)) = line(ControllerConfig::default());
    let fabric = || ControllerConfig {
        fabric: Some(control::controller::FabricConfig::default()),
        ..ControllerConfig::default()
    };
    let configs = [
        (
            Setting::EdgePorts,
            ControllerConfig {
                edge_ports: [at].into(),
                ..ControllerConfig::default()
            },
        ),
        (
            Setting::Bond,
            ControllerConfig {
                bonds: bond(at),
                ..fabric()
            },
        ),
        (
            Setting::MirrorTo,
            ControllerConfig {
                mirrors: mirror(Location::new(at.dpid, PortNo(78)), at.port),
                ..fabric()
            },
        ),
    ];
    for (setting, config) in configs {
        let (network, _) = line(config);
        let alarms = network.events().filter_map(|event| match event {
            Event::Alarm(alarm) => Some(alarm),
            _ => None,
        });
        let alarms: Vec<&Alarm> = alarms.collect();
        let named = Alarm::PortIsLink { at, to, setting };
        assert!(alarms.contains(&&named), "{setting:?}: {alarms:?}");
        let is_forged = |alarm: &&Alarm| matches!(alarm, Alarm::LldpForged { .. });
        assert!(!alarms.iter().any(is_forged), "{setting:?}: {alarms:?}");
    }
}

/// Bindings are reported like VLANs when their switch connects.
#[test]
fn bindings_at_no_port_and_at_a_link_have_an_alarm() {
    let (_, (at, to)) = line(ControllerConfig::default());
    let missing = Location::new(at.dpid, PortNo(77));
    let mut access = access(at);
    access.bindings.insert(missing, Vec::new());
    let (network, _) = line(ControllerConfig {
        access,
        ..ControllerConfig::default()
    });
    let setting = Setting::Port;
    for alarm in [
        Alarm::PortIsLink { at, to, setting },
        Alarm::PortMissing {
            at: missing,
            setting,
        },
    ] {
        let count = network
            .events()
            .filter(|event| **event == Event::Alarm(alarm.clone()));
        assert_eq!(count.count(), 1, "{alarm:?}");
    }
}
