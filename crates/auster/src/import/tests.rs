use std::collections::BTreeMap;
use std::io::Error;
use std::time::{Duration, Instant};

use control::controller::Location;
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::{DatapathId, PortNo};
use proptest::prelude::*;

use super::*;
use config::settings::Settings;

/// Texts of files by their paths.
struct Texts<'t>(&'t [(&'t str, &'t str)]);

impl Files for Texts<'_> {
    fn read(&mut self, path: &Path) -> std::io::Result<Vec<u8>> {
        let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
        let text = found.ok_or_else(|| Error::from(ErrorKind::NotFound))?.1;
        Ok(text.as_bytes().to_vec())
    }
}

fn imported_files(files: &[(&str, &str)]) -> Result<Imported, Vec<String>> {
    let result = import(Path::new("faucet.yaml"), &mut Texts(files));
    result.map_err(|failure| {
        assert!(failure.is_usage());
        let lines = failure.message().lines().skip(1);
        lines.map(str::to_owned).collect()
    })
}

fn imported(text: &str) -> Result<Imported, Vec<String>> {
    imported_files(&[("faucet.yaml", text)])
}

/// The VLANs that `auster run` reads from the TOML.
fn vlans(toml: &str) -> Vlans {
    let settings = Settings::parse(toml, Path::new("auster.toml"));
    settings
        .unwrap_or_else(|problems| panic!("{problems:?}\n{toml}"))
        .vlans
        .vlans
}

fn id(number: u16) -> VlanId {
    VlanId::new(number).unwrap()
}

fn at(dpid: u64, port: u32) -> Location {
    Location::new(DatapathId(dpid), PortNo(port))
}

fn access(number: u16) -> PortVlans {
    PortVlans::Access(id(number))
}

fn trunk(tagged: &[u16], native: Option<u16>) -> PortVlans {
    let tagged = tagged.iter().copied().map(id).collect();
    PortVlans::Trunk {
        tagged,
        native: native.map(id),
    }
}

fn names(vlans: &Vlans) -> Vec<(u16, &str)> {
    let names = vlans.names.iter();
    names
        .map(|(id, name)| (id.number(), name.as_str()))
        .collect()
}

const CAMPUS: &str = "\
version: 2
vlans:
  office:
    vid: 100
    description: \"desks\\nand = printers\"
  voice:
    vid: 0xc8
    name: phones
    acl_in: only_sip
  guest wifi:
    vid: 300
    faucet_vips: [10.0.0.1/24]
acls:
  only_sip:
    - rule: {actions: {allow: 1}}
dps:
  sw1:
    dp_id: 0xabcdef0123
    hardware: Open vSwitch
    stack: {priority: 1}
    interfaces:
      1:
        native_vlan: office
        acl_in: only_sip
      2: {native_vlan: 100, tagged_vlans: [phones, guest wifi, 400], description: uplink}
      3: {tagged_vlans: [voice]}
      24:
        stack: {dp: sw2, port: 24}
    interface_ranges:
      2,5-7,9: {native_vlan: voice, lacp: 0}
  sw2:
    dp_id: 1234567890123456
    interfaces:
      desk:
        number: 1
        native_vlan: 300
        natve_vlan: 301
      24: {stack: {dp: sw1, port: 24}, enabled: true}
      30: {output_only: true, mirror: 1}
";

#[test]
fn names_trunks_ranges_links_and_hex_are_carried_over() {
    let imported = imported(CAMPUS).unwrap();
    let vlans = vlans(&imported.toml);
    let expected = [(100, "office"), (200, "phones"), (300, ""), (400, "")];
    assert_eq!(names(&vlans), expected);
    let (one, two) = (0xab_cdef_0123, 1_234_567_890_123_456);
    let ports = [
        (at(one, 1), access(100)),
        (at(one, 2), trunk(&[200, 300, 400], Some(100))),
        (at(one, 3), trunk(&[200], None)),
        (at(one, 5), access(200)),
        (at(one, 6), access(200)),
        (at(one, 7), access(200)),
        (at(one, 9), access(200)),
        (at(two, 1), access(300)),
    ];
    assert_eq!(vlans.ports, ports.into());
    for part in [
        "# left out, no name for auster: guest wifi\n",
        "# Links between switches, which carry all VLANs:\n#   0xabcdef0123:24\n",
        "# 0xabcdef0123:2: uplink\n",
        "# desks\\nand = printers\n",
        "[[mirror]]\nname = \"port-30\"\nfrom = \"0x462d53c8abac0:1\"\n\
         to = \"0x462d53c8abac0:30\"\n",
        "access = 100\nacl_in = \"only_sip\"\n",
        "name = \"phones\"\nacl_in = \"only_sip\"\n",
        "[[acl]]\nname = \"only_sip\"\n[[acl.rule]]\nallow = true\n",
    ] {
        assert!(imported.toml.contains(part), "{part}\n{}", imported.toml);
    }
}

#[test]
fn what_is_not_carried_over_has_a_line_with_its_key() {
    let left_out = imported(CAMPUS).unwrap().left_out;
    let expected = [
        "20: dps.sw1.stack: auster finds links and paths by itself",
        "37: dps.sw2.interfaces.desk.natve_vlan: not known, and not carried over",
    ];
    let expected = expected.map(|line| format!("faucet.yaml:{line}"));
    assert_eq!(left_out, expected);
}

/// Rules keep their order and meaning; a list with an unsupported rule is left out as a whole.
#[test]
fn access_lists_are_carried_over_or_named() {
    let text = "\
acls:
  office protect:
    - rule:
        dl_type: 0x800
        ipv4_src: 10.0.100.0/24
        ipv4_dst: 10.0.200.0/24
        actions: {allow: 0}
    - rule: {dl_type: 0x0800, nw_proto: 17, udp_src: 67, udp_dst: 68, actions: {allow: 0}}
    - rule: {dl_type: 0x806, actions: {allow: 1, mirror: 4}}
    - rule: {vlan_vid: 100, actions: {allow: 1}}
    - rule: {actions: {allow: 1}}
    - rule: {dl_type: 0x800, actions: {allow: 0}}
  odd:
    - rule: {in_port: 3, actions: {allow: 1}}
  wrong: 3
dps:
  1:
    interfaces:
      1: {native_vlan: 10, acl_in: office protect}
      2: {native_vlan: 10, acls_in: [odd, office protect]}
      3: {native_vlan: 10, acl_in: none}
";
    let problems = imported(text).unwrap_err();
    let expected = [
        "faucet.yaml:15: acls.wrong must be a list of rules",
        "faucet.yaml:21: dps.1.interfaces.3.acl_in: no access list 'none' is stated in acls",
    ];
    assert_eq!(problems, expected);
    let text = text
        .replace("  wrong: 3\n", "")
        .replace(", acl_in: none", "");
    let imported = imported(&text).unwrap();
    let settings = Settings::parse(&imported.toml, Path::new("auster.toml"));
    let access = settings.expect("auster takes it").access.access;
    let same = |text| config::access::matching(text).unwrap();
    let rules: Vec<_> = access.acls[0]
        .rules
        .iter()
        .map(|r| (r.matching.clone(), r.allows))
        .collect();
    let wanted = [
        (same("ip,nw_src=10.0.100.0/24,nw_dst=10.0.200.0/24"), false),
        (same("udp,tp_src=67,tp_dst=68"), false),
        (same("arp"), true),
        (same("dl_vlan=100"), true),
        (same(""), true),
    ];
    assert_eq!(rules, wanted);
    assert_eq!(access.acls[0].name, "acl-1");
    assert_eq!(
        access.ports,
        [(at(1, 1), vec![0]), (at(1, 2), vec![0])].into()
    );
    for (line, part) in [
        ("9: acls.office protect.mirror", "a port that gets copies"),
        ("12: acls.office protect", "makes useless"),
        ("14: acls.odd", "no match for a field"),
        ("13: acls.odd", "no match for"),
        ("19: dps.1.interfaces.2.acls_in", "no match for"),
    ] {
        let start = format!("faucet.yaml:{line}: ");
        let is_it = |told: &&String| told.starts_with(&start) && told.contains(part);
        assert_eq!(
            imported.left_out.iter().filter(is_it).count(),
            1,
            "{line}: {:#?}",
            imported.left_out
        );
    }
}

/// Lists for packets routed into a VLAN are carried over, unless they match a field that routing
/// changes. Such lists of ports have no counterpart.
#[test]
fn lists_for_routed_packets_are_carried_over_or_named() {
    let text = "\
vlans:
  office: {vid: 100, faucet_vips: [10.0.100.254/24]}
  servers:
    vid: 200
    faucet_vips: [10.0.200.254/24]
    acls_out: [web, by_mac, by_vlan]
  lab: {vid: 300, acl_out: web}
acls:
  web:
    - rule: {dl_type: 0x800, nw_proto: 6, tcp_dst: 80, actions: {allow: 1}}
  by_mac:
    - rule: {dl_src: '0e:00:00:00:00:09', actions: {allow: 1}}
  by_vlan:
    - rule: {vlan_vid: 100, actions: {allow: 0}}
routers:
  all: {vlans: [office, servers]}
dps:
  1:
    interfaces:
      1: {native_vlan: office, acl_out: web}
      2: {native_vlan: servers, acl_in: by_mac}
      3: {native_vlan: lab, acls_in: [by_vlan]}
";
    let imported = imported(text).unwrap();
    let settings = Settings::parse(&imported.toml, Path::new("auster.toml"));
    let access = settings.expect("auster takes it").access.access;
    let vlan = |id| VlanId::new(id).unwrap();
    assert_eq!(
        access.out,
        [(vlan(200), vec![0]), (vlan(300), vec![0])].into()
    );
    assert!(access.vlans.is_empty());
    let left_out = [
        "6: vlans.servers.acls_out: packets within a VLAN are not judged by its acl_out",
        "6: vlans.servers.acls_out: routing changes a field that a rule of this acl_out matches",
        "7: vlans.lab.acl_out: packets within a VLAN are not judged by its acl_out",
        "20: dps.1.interfaces.1.acl_out: access lists of this place or direction are not carried \
         over",
    ];
    assert_eq!(
        imported.left_out,
        left_out.map(|line| format!("faucet.yaml:{line}"))
    );
}

/// Mirrors of ports and rules are carried over if their port has nothing else.
#[test]
fn mirrors_are_carried_over_or_named() {
    let text = "\
vlans: {office: {vid: 100}}
acls:
  watch:
    - rule: {dl_type: 0x806, actions: {allow: 1, mirror: 4}}
    - rule: {dl_type: 0x86dd, actions: {mirror: probe}}
    - rule: {dl_type: 0x800, ip_proto: 1, actions: {allow: 1, mirror: 1}}
    - rule: {actions: {allow: 1, mirror: 9}}
dps:
  one:
    dp_id: 1
    interfaces:
      1: {native_vlan: office, acl_in: watch}
      2: {native_vlan: office, name: desk}
      3: {native_vlan: office, mirror: 2}
      4: {output_only: true}
      5: {name: probe, mirror: [1, desk]}
      6: {output_only: true}
  two:
    dp_id: 2
    interfaces:
      1: {native_vlan: office}
      4: {description: analyser}
";
    let got = imported(text).unwrap();
    let settings = Settings::parse(&got.toml, Path::new("auster.toml"));
    let settings = settings.unwrap_or_else(|problems| panic!("{problems:?}\n{}", got.toml));
    let mirrors = settings.vlans.mirrors.iter().map(|mirror| {
        let from: Vec<u32> = mirror.from.iter().map(|port| port.0).collect();
        (mirror.name.as_str(), mirror.target(), from)
    });
    let mirrors: Vec<_> = mirrors.collect();
    let wanted = [
        ("port-5", at(1, 5), vec![1, 2]),
        ("port-4", at(1, 4), vec![]),
        ("probe", at(1, 5), vec![]),
        ("port-4", at(2, 4), vec![]),
    ];
    assert_eq!(mirrors, wanted);
    let rules = settings.access.access.acls[0].rules.iter();
    let rules: Vec<_> = rules
        .map(|rule| (rule.allows, rule.mirror.as_deref()))
        .collect();
    let wanted = [
        (true, Some("port-4")),
        (false, Some("probe")),
        (true, None),
        (true, None),
    ];
    assert_eq!(rules, wanted);
    for (line, part) in [
        ("6: acls.watch.mirror", "no VLANs"),
        ("7: acls.watch.mirror", "no VLANs"),
        ("14: dps.one.interfaces.3.mirror", "no VLANs"),
        ("16: dps.one.interfaces.5.mirror", "are copied as well"),
        ("17: dps.one.interfaces.6.output_only", "not dropped"),
        ("17: dps.one.interfaces.6", "no VLAN:"),
    ] {
        let start = format!("faucet.yaml:{line}: ");
        let is_it = |told: &&String| told.starts_with(&start) && told.contains(part);
        let count = got.left_out.iter().filter(is_it).count();
        assert_eq!(count, 1, "{line}: {:#?}", got.left_out);
    }
    assert_eq!(got.left_out.len(), 6, "{:#?}", got.left_out);
    let wrong = text.replace("[1, desk]", "[1, table]");
    let problems = imported(&wrong).unwrap_err();
    let wanted = "faucet.yaml:16: dps.one.interfaces.5.mirror: the switch has no port 'table'";
    assert_eq!(problems, [wanted]);
}

/// Gateways are carried over if auster would route between the same VLANs as Faucet.
#[test]
fn gateways_and_routes_are_carried_over_for_one_router_of_all() {
    let text = "\
vlans:
  office: {vid: 100, faucet_vips: [10.0.100.254/24, 'fd00::fe/64'], faucet_mac: '0e:00:00:00:10:01'}
  guest:
    vid: 200
    faucet_vips: ['10.0.200.254/24']
    faucet_mac: '0e:00:00:00:20:01'
    routes:
      - route: {ip_dst: 0.0.0.0/0, ip_gw: 10.0.200.1}
routers:
  router-1: {vlans: [office, guest]}
dps:
  1:
    interfaces: {1: {native_vlan: office}, 2: {native_vlan: guest}}
";
    let imported_all = imported(text).unwrap();
    assert_eq!(imported_all.left_out, Vec::<String>::new());
    let settings = Settings::parse(&imported_all.toml, Path::new("auster.toml"));
    assert!(
        settings.is_ok(),
        "{:?}\n{}",
        settings.err(),
        imported_all.toml
    );
    for part in [
        "gateway = [\"10.0.100.254/24\", \"fd00::fe/64\"]\ngateway_mac = \"0e:00:00:00:10:01\"\n",
        "[[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.0.200.1\"\n",
    ] {
        assert!(imported_all.toml.contains(part), "{}", imported_all.toml);
    }
    let apart = text.replace("[office, guest]", "[office]");
    let imported_apart = imported(&apart).unwrap();
    assert!(
        !imported_apart.toml.contains("\ngateway"),
        "{}",
        imported_apart.toml
    );
    assert_eq!(
        imported_apart.left_out.len(),
        2,
        "{:?}",
        imported_apart.left_out
    );
    let wrong = text
        .replace("10.0.200.254/24", "10.0.200")
        .replace("10.0.200.1}", "x}");
    assert_eq!(imported(&wrong).unwrap_err().len(), 2);
}

#[test]
fn aliases_merges_and_included_files_count() {
    let first = "include: [vlans.yaml]\ninclude-optional: [none.yaml, faucet.yaml]\n\
                 dps:\n  7:\n    interfaces:\n      1: &desk {native_vlan: office}\n      \
                 2: *desk\n      3: {<<: *desk, tagged_vlans: [20]}\n";
    let second = "vlans:\n  office: {vid: 10, max_hosts: 3}\n";
    let files = [("faucet.yaml", first), ("vlans.yaml", second)];
    let imported = imported_files(&files).unwrap();
    let ports = [
        (at(7, 1), access(10)),
        (at(7, 2), access(10)),
        (at(7, 3), trunk(&[20], Some(10))),
    ];
    assert_eq!(vlans(&imported.toml).ports, ports.into());
    let expected = "vlans.yaml:2: vlans.office.max_hosts: rules of learning and flooding are not \
                    carried over";
    assert_eq!(imported.left_out, [expected]);
}

#[test]
fn a_port_names_a_vlan_by_key_before_its_number() {
    let text = "vlans:\n  100: {vid: 200}\n  200: {vid: 100}\n\
                dps:\n  1:\n    interfaces: {1: {native_vlan: 100}, 2: {native_vlan: 300}}\n";
    let vlans = vlans(&imported(text).unwrap().toml);
    assert_eq!(
        vlans.ports,
        [(at(1, 1), access(200)), (at(1, 2), access(300))].into()
    );
}

#[test]
fn every_mistake_is_named_by_line_and_all_together() {
    let one = |text: &str| format!("dps:\n  a:\n    dp_id: 1\n    interfaces:\n      {text}\n");
    let a = "dps.a.interfaces";
    let cases = [
        (
            String::new(),
            "1: dps is missing: no switch is stated".to_owned(),
        ),
        (
            "dps:\n".to_owned(),
            "1: dps is empty: no switch is stated".to_owned(),
        ),
        (
            "- a\n".to_owned(),
            "1: the file must be a section of keys".to_owned(),
        ),
        (
            "version: 1\ndps: {1: }\n".to_owned(),
            "1: version: only version 2 is read".to_owned(),
        ),
        (
            "dps:\n  a: {dp_id: 0x1g}\n  b: {}\n  c: {dp_id: 010}\n".to_owned(),
            "2: dps.a.dp_id is '0x1g'; it must be a number below 2^64, in decimal without leading \
             zeros or as 0x and hex digits\n\
             3: dps.b: dp_id is missing: a number such as 1 or 0x1\n\
             4: dps.c.dp_id is '010'; it must be a number below 2^64, in decimal without leading \
             zeros or as 0x and hex digits"
                .to_owned(),
        ),
        (
            "dps:\n  a: {dp_id: 2}\n  b: {dp_id: 0x2}\n".to_owned(),
            "3: dps.b: dp_id 0x2 is another switch's already, in faucet.yaml:2".to_owned(),
        ),
        (
            "vlans:\n  a: {vid: 0}\n  b: {vid: 4095}\n  c: {}\n  d: {vid: 1}\n  1: \n\
             dps: {1: {interfaces: {1: {native_vlan: a}}}}\n"
                .to_owned(),
            "2: vlans.a.vid is '0'; it must be a number from 1 to 4094\n\
             3: vlans.b.vid is '4095'; it must be a number from 1 to 4094\n\
             4: vlans.c: vid is missing: a number from 1 to 4094\n\
             6: vlans.1: vid 1 is another VLAN's already, in faucet.yaml:5"
                .to_owned(),
        ),
        (
            one("1: {native_vlan: ofice}\n      2: {tagged_vlans: [5000]}"),
            format!(
                "5: {a}.1.native_vlan: no VLAN 'ofice' is stated in vlans\n\
                 6: {a}.2.tagged_vlans: VLAN 5000 is outside of 1 to 4094"
            ),
        ),
        (
            one("1: {native_vlan: 1}\n      b: {number: 1}\n      c: {}\n      0: {}\n      1: {}"),
            format!(
                "6: {a}.b: port 1 is stated already, in faucet.yaml:5\n\
                 7: {a}.c: number is missing: the port's number\n\
                 8: {a}.0: no number of a port\n\
                 9: 1 is stated already, in faucet.yaml:5"
            ),
        ),
        (
            one("1: {native_vlan: 1, tagged_vlans: [1, 2]}\n      2: {tagged_vlans: 3}"),
            format!(
                "5: {a}.1: port 1 has VLAN 1 native and tagged\n\
                 6: {a}.2.tagged_vlans must be a list such as [10, 20]"
            ),
        ),
        (
            "dps:\n  1:\n    interface_ranges:\n      4-1: {}\n      1-3: {native_vlan: 1}\n      \
             3,x: {native_vlan: 1}\n      1-4000000000: {native_vlan: 1}\n"
                .to_owned(),
            "4: dps.1.interface_ranges.4-1: no ranges of ports such as 1-4,6\n\
             6: dps.1.interface_ranges.3,x: no ranges of ports such as 1-4,6\n\
             6: dps.1.interface_ranges.3,x: port 3 is in the range of faucet.yaml:5\n\
             7: dps.1.interface_ranges.1-4000000000: port 1 is in the range of faucet.yaml:5\n\
             7: dps.1.interface_ranges.1-4000000000: port 2 is in the range of faucet.yaml:5\n\
             7: dps.1.interface_ranges.1-4000000000: port 3 is in the range of faucet.yaml:6\n\
             7: more than 65536 ports"
                .to_owned(),
        ),
        (
            "include: [none.yaml]\ndps: {1: }\n".to_owned(),
            "1: include: none.yaml: entity not found".to_owned(),
        ),
    ];
    for (text, expected) in cases {
        let found = imported(&text).map(|imported| imported.toml).unwrap_err();
        let expected: Vec<String> = expected
            .lines()
            .map(|l| format!("faucet.yaml:{l}"))
            .collect();
        assert_eq!(found, expected, "{text}");
    }
    let found = imported("dps:\n  a: [\n").map(|_| ()).unwrap_err();
    assert!(
        found[0].starts_with("faucet.yaml:") && found[0].contains("no YAML"),
        "{found:?}"
    );
    assert_eq!(found.len(), 1);
}

#[test]
fn names_from_the_file_cannot_leave_their_comment_or_line() {
    let text = "vlans:\n  \"a\\nid = 9\\u202e\\e[2J\": {vid: 5}\n\
                dps:\n  \"x\\n[tls]\":\n    dp_id: 1\n    \"y\\n\": 1\n    interfaces:\n      \
                1: {native_vlan: 5, name: \"p\\r\\n[[port]]\"}\n";
    let imported = imported(text).unwrap();
    assert_eq!(names(&vlans(&imported.toml)), [(5, "")]);
    let is_plain = |text: &str| text.chars().all(|c| c == '\n' || (' '..='~').contains(&c));
    assert!(is_plain(&imported.toml), "{}", imported.toml);
    let expected = "faucet.yaml:6: dps.x\\n[tls].y\\n: not known, and not carried over";
    assert_eq!(imported.left_out, [expected]);
}

#[test]
fn hostile_files_fail_soon() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let alias = format!("*a{}", n - 1);
        let aliases = [alias.as_str(); 10].join(", ");
        laughs.push_str(&format!("a{n}: &a{n} [{aliases}]\n"));
    }
    let mut merges = "m0: &m0 {a: 1, b: 2}\n".to_owned();
    for n in 1..40 {
        let before = n - 1;
        merges.push_str(&format!(
            "m{n}: &m{n} {{<<: [*m{before}, *m{before}], c{n}: 1}}\n"
        ));
    }
    let mut ranges = "dps:\n  1:\n    interfaces: {1: {tagged_vlans: &t [".to_owned();
    (1..3000).for_each(|vlan| ranges.push_str(&format!("{vlan},")));
    ranges.push_str("]}}\n    interface_ranges:\n      2-60000: {tagged_vlans: *t}\n");
    let mut trunks = ranges.clone();
    trunks.push_str("  2:\n    interface_ranges: {1-500: {tagged_vlans: *t}}\n    interfaces:\n");
    (1..500).for_each(|n| trunks.push_str(&format!("      {n}: {{native_vlan: {}}}\n", n + 2999)));
    let mib = |part: &str| part.repeat((1 << 20) / part.len());
    let cases = [
        (laughs, "more than 262144 values"),
        (merges, "more than 262144 values"),
        ("a: &a [*a]\n".to_owned(), "an alias inside"),
        (mib("["), "recursion limit"),
        (mib("{a: "), "recursion limit"),
        (mib("- "), "inside each other"),
        (mib("? "), "inside each other"),
        (mib("- a\n"), "more than 262144 values"),
        (mib("&a"), ""),
        (mib("!"), ""),
        (mib("\"\\x"), ""),
        (mib("a: b\n---\n"), "a second document"),
        (mib("\n "), "dps is missing"),
        (trunks, "the trunks have more than 524288 VLANs together"),
    ];
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let start = Instant::now();
        let found = imported(&text).map(|_| ()).unwrap_err();
        let is_named = found.iter().any(|line| line.contains(expected));
        if !is_named || start.elapsed() > Duration::from_secs(30) {
            let text: String = text.chars().take(20).collect();
            wrong.push((text, start.elapsed(), found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let toml = imported(&ranges).unwrap().toml;
    assert_eq!(toml.matches("\"1:").count(), 60_000);
}

#[test]
fn a_file_has_a_bound_and_is_no_device() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("faucet.yaml");
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    let disk = || Disk { left: BYTES_MAX };
    let found = import(&path, &mut disk()).unwrap_err();
    assert!(found.message().contains("more than 1 MiB"), "{found:?}");
    let found = import(Path::new("/dev/zero"), &mut disk()).unwrap_err();
    assert!(found.message().contains("no regular file"), "{found:?}");
    std::fs::write(&path, "include: [big.yaml]\ndps: {1: }\n").unwrap();
    std::fs::write(dir.path().join("big.yaml"), vec![b'#'; 1 << 20]).unwrap();
    let found = import(&path, &mut disk()).unwrap_err();
    assert!(
        found.is_usage() && found.message().contains("more than 1 MiB"),
        "{found:?}"
    );
}

#[test]
fn a_file_that_is_there_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let (file, output) = (
        dir.path().join("faucet.yaml"),
        dir.path().join("auster.toml"),
    );
    std::fs::write(&file, "dps: {1: {interfaces: {1: {native_vlan: 5}}}}\n").unwrap();
    let args = || FaucetArgs {
        file: file.clone(),
        output: Some(output.clone()),
    };
    run(Command::Faucet(args())).unwrap();
    let text = std::fs::read_to_string(&output).unwrap();
    assert_eq!(vlans(&text).ports, [(at(1, 1), access(5))].into());
    assert!(run(Command::Faucet(args())).is_err());
    assert_eq!(std::fs::read_to_string(&output).unwrap(), text);
}

/// A port of a small configuration: in a range or not, with numbers of VLANs below 8.
#[derive(Clone, Debug)]
struct Sample {
    native: Option<u16>,
    tagged: Vec<u16>,
    is_ranged: bool,
    is_hex: bool,
}

fn sample() -> impl Strategy<Value = Sample> {
    let tagged = proptest::collection::vec(1..8u16, 0..4);
    (
        proptest::option::of(1..8u16),
        tagged,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(native, mut tagged, is_ranged, is_hex)| {
            tagged.retain(|id| Some(*id) != native);
            Sample {
                native,
                tagged,
                is_ranged,
                is_hex,
            }
        })
}

/// A VLAN as a port names it: those below 4 have names.
fn named(id: u16, is_hex: bool) -> String {
    match (id, is_hex) {
        (1..4, false) => format!("vlan-{id}"),
        (_, true) => format!("{id:#x}"),
        _ => id.to_string(),
    }
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(text) = String::from_utf8(bytes) {
            let _ = imported(&text);
        }
    }

    #[test]
    fn words_of_yaml_never_panic(words in proptest::collection::vec(proptest::sample::select(vec![
        "dps", "vlans", ":", " ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", "- ", "&a ", "*a",
        "<<",
        "interfaces", "interface_ranges", "native_vlan", "1", "1-4", "0x10", "\"", "'", "|", ">",
        "!", "? ", ", ", "#", "---", "\t", "%", "é", "\u{feff}", "\0",
    ]), 0..60)) {
        if let Ok(imported) = imported(&words.concat()) {
            vlans(&imported.toml);
        }
    }

    #[test]
    fn small_configurations_keep_the_vlans_of_each_port(
        switches in proptest::collection::btree_map(
            any::<u64>(), proptest::collection::btree_map(1..40u32, sample(), 1..6), 1..4,
        )
    ) {
        let mut text = "vlans:\n".to_owned();
        (1..4).for_each(|id| text.push_str(&format!("  vlan-{id}: {{vid: {id}}}\n")));
        text.push_str("dps:\n");
        let mut expected = BTreeMap::new();
        for (dpid, ports) in &switches {
            text.push_str(&format!("  s{dpid}:\n    dp_id: {dpid}\n"));
            for is_ranged in [false, true] {
                text.push_str(match is_ranged {
                    false => "    interfaces:\n",
                    true => "    interface_ranges:\n",
                });
                for (port, sample) in ports.iter().filter(|(_, s)| s.is_ranged == is_ranged) {
                    text.push_str(&format!("      {port}:\n        opstatus_reconf: true\n"));
                    if let Some(native) = sample.native {
                        let native = named(native, sample.is_hex);
                        text.push_str(&format!("        native_vlan: {native}\n"));
                    }
                    let tagged = sample.tagged.iter().map(|id| named(*id, sample.is_hex));
                    let tagged: Vec<String> = tagged.collect();
                    text.push_str(&format!("        tagged_vlans: [{}]\n", tagged.join(", ")));
                    let member = match (sample.native, &sample.tagged[..]) {
                        (None, []) => continue,
                        (Some(native), []) => access(native),
                        (native, tagged) => trunk(tagged, native),
                    };
                    expected.insert(at(*dpid, *port), member);
                }
            }
        }
        let imported = imported(&text).unwrap();
        prop_assert_eq!(vlans(&imported.toml).ports, expected, "{}\n{}", text, imported.toml);
    }
}
