//! `auster acl`: the effect of a configuration's access lists, bindings and guards on a packet.

use std::path::PathBuf;

use cli::failure::Failure;
use cli::output::say;
use control::access::{RuleId, Verdict};
use control::controller::Location;
use control::mirror::Mirrors;
use control::routing::Routing;
use control::vlan::VlanId;
use openflow::packet::PacketFields;
use openflow::text::parse_match;
use openflow::{Field, MatchField};

use config::Settings;
use config::access::{Stated, verdict_text};
use config::topology::edge_port as port_of_switch;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Explain whether a packet that enters at a port may pass, and which rules decide that
    #[command(after_help = EXPLAIN_EXAMPLE)]
    Explain(ExplainArgs),
}

const EXPLAIN_EXAMPLE: &str = "\
Example:
  auster acl explain --config auster.toml 1:2 'tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=23'
  port 0000000000000001:2: VLAN 10
  dropped: auster.toml:4: no-telnet rule 1

Fields that the packet does not state match no rule that asks for them. Without dl_dst, a packet to
another VLAN's network goes to its gateway. VLANs that follow the switches' databases are not known
here.";

#[derive(clap::Args)]
pub struct ExplainArgs {
    /// The configuration of auster run
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Where the packet enters
    #[arg(value_name = "SWITCH:PORT", value_parser = port_of_switch)]
    at: Location,

    /// The packet, in ovs-ofctl syntax
    #[arg(value_name = "PACKET")]
    packet: String,
}

pub fn run(command: Command) -> Result<(), Failure> {
    let Command::Explain(args) = command;
    let settings = Settings::read(&args.config)?;
    let packet = packet(args.at, &args.packet).map_err(Failure::usage)?;
    let file = args.config.display().to_string();
    for line in explained(&settings, &file, args.at, packet) {
        say!("{line}");
    }
    Ok(())
}

/// The path of a packet, and the verdict on it.
fn explained(settings: &Settings, file: &str, at: Location, packet: PacketFields) -> Vec<String> {
    let vlans = &settings.vlans.vlans;
    let place = settings.vlans.bonds.place(at);
    let routing = Routing::new(settings.gateways.clone());
    let own = vlans.classify(place, packet.vlan_id());
    let mut lines = vec![match own {
        Some(vlan) if vlan.is_none() => format!("port {at}: outside of all VLANs"),
        Some(vlan) => format!("port {at}: VLAN {vlan}"),
        None => format!("port {at}: no member of the VLAN in the packet's tag"),
    }];
    let packet = own.map_or(packet.clone(), |own| sent(&routing, own, packet));
    if let Some(into) = own.and_then(|own| routing.target(own, &packet)) {
        let name = vlans.names.get(&into).filter(|name| !name.is_empty());
        let name = name.map(|name| format!(" '{name}'")).unwrap_or_default();
        lines.push(format!("routed into VLAN {into}{name}"));
    }
    let around = (vlans, &routing);
    let verdict = settings.access.access.judge(around, place, &packet);
    let stated = (&settings.access, &settings.vlans.mirrors);
    lines.extend(told(stated, file, (at, place), &verdict));
    lines
}

/// The packet as a host of a VLAN sends it. Without a stated Ethernet address it goes to the
/// gateway, if the gateway routes it into another VLAN.
fn sent(routing: &Routing, own: VlanId, packet: PacketFields) -> PacketFields {
    let gateway = routing.of(own).filter(|_| packet.eth_dst().is_none());
    let Some(gateway) = gateway else {
        return packet;
    };
    let mut routed = packet.clone();
    routed.set(Field::EthDst, gateway.mac.to_u64());
    match routing.target(own, &routed) {
        Some(into) if into != own => routed,
        _ => packet,
    }
}

/// Makes a packet from its description.
fn packet(at: Location, text: &str) -> Result<PacketFields, String> {
    let described = parse_match(text).map_err(|error| error.to_string())?;
    let mut packet = PacketFields::parse(at.port, &[]);
    packet.set(Field::VlanVid, 0u32);
    for field in &described.fields {
        let MatchField::Basic { field, value, mask } = field else {
            return Err("fields of experimenters are not supported".to_owned());
        };
        if mask.is_some_and(|mask| mask != field.ones()) {
            let field = field.info().text;
            return Err(format!("{field}: a packet has one value, without a mask"));
        }
        packet.set(*field, *value);
    }
    Ok(packet)
}

/// The verdict, with a line for each rule that was consulted.
fn told(
    (stated, mirrors): (&Stated, &Mirrors),
    file: &str,
    (at, place): (Location, Location),
    verdict: &Verdict,
) -> Vec<String> {
    let rule = |id: &RuleId| {
        let line = stated.line(id).unwrap_or_default();
        let acl = stated.access.acls.get(id.acl);
        let mirror = acl.and_then(|acl| acl.rules.get(id.rule)?.mirror.as_ref());
        let here = mirror.filter(|name| mirrors.target_of(name, at.dpid).is_some());
        let copied = here.map(|name| format!(", copied to the mirror '{name}'"));
        let copied = copied.unwrap_or_default();
        format!("{file}:{line}: {}{copied}", stated.name(id))
    };
    let rules: Vec<String> = match verdict {
        Verdict::Allowed(rules) => rules.iter().map(rule).collect(),
        Verdict::Denied(id) => vec![rule(id)],
        _ => Vec::new(),
    };
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut lines = verdict_text(verdict, at, &rules);
    if *verdict == Verdict::NotBound && stated.access.by_dhcp.contains(&place) {
        let by_dhcp = "; hosts with an address by DHCP are not known here";
        lines.iter_mut().for_each(|line| line.push_str(by_dhcp));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const CONFIG: &str = "[[vlan]]\nid = 10\nacl_in = \"v\"\n[[port]]\nat = \"1:2\"\naccess = 10\n\
                          acl_in = \"p\"\nbind = \"02:00:00:00:00:01 10.0.0.1\"\n\
                          [guard]\ndhcp_servers = \"1:9\"\n[[acl]]\nname = \"p\"\n\
                          [[acl.rule]]\nmatch = \"tcp,tp_dst=23\"\nallow = false\n\
                          mirror = \"watch\"\n\
                          [[acl.rule]]\nmatch = \"ip\"\nallow = true\n[[acl]]\nname = \"v\"\n\
                          [[acl.rule]]\nname = \"web\"\nmatch = \"tcp,tp_dst=80\"\nallow = true\n\
                          [[mirror]]\nname = \"watch\"\nto = \"1:5\"\n";

    /// Two VLANs with gateways, and a list for packets routed into the second.
    const ROUTED: &str = "[[vlan]]\nid = 10\ngateway = \"10.0.10.254/24\"\n[[vlan]]\nid = 20\n\
                          name = \"servers\"\ngateway = \"10.0.20.254/24\"\nacl_out = \"web\"\n\
                          [[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.0.10.1\"\n[[port]]\n\
                          at = \"1:2\"\naccess = 10\n[[acl]]\nname = \"web\"\n[[acl.rule]]\n\
                          match = \"tcp,tp_dst=80\"\nallow = true\n";

    fn explain_in(config: &str, at: &str, text: &str) -> Vec<String> {
        let settings = Settings::parse(config, Path::new("f.toml")).expect("it is right");
        let at = port_of_switch(at).expect("a port");
        explained(&settings, "f.toml", at, packet(at, text).expect("a packet"))
    }

    fn explain(at: &str, text: &str) -> Vec<String> {
        explain_in(CONFIG, at, text).split_off(1)
    }

    #[test]
    fn a_routed_packet_is_judged_by_the_lists_of_its_target() {
        let into = "routed into VLAN 20 'servers'";
        let gateway = "dl_dst=0e:00:00:00:00:01";
        let router = "dl_dst=0e:00:00:00:00:09";
        let dropped = "dropped: no rule of the lists of VLAN 20 for routed packets matches";
        let unconcerned = "passes: no access list concerns it";
        let cases: [(String, &[&str]); 7] = [
            (
                "tcp,nw_dst=10.0.20.7,tp_dst=80".to_owned(),
                &[into, "passes: f.toml:17: web rule 1"],
            ),
            (format!("udp,nw_dst=10.0.20.7,{gateway}"), &[into, dropped]),
            (format!("udp,nw_dst=10.0.20.7,{router}"), &[unconcerned]),
            ("udp,nw_dst=10.0.20.254".to_owned(), &[unconcerned]),
            ("udp,nw_dst=10.0.10.7".to_owned(), &[unconcerned]),
            ("arp,arp_tpa=10.0.20.7".to_owned(), &[unconcerned]),
            (
                format!("udp,nw_dst=192.0.2.1,{gateway}"),
                &["routed into VLAN 10", unconcerned],
            ),
        ];
        for (packet, wanted) in cases {
            let lines = explain_in(ROUTED, "1:2", &packet);
            assert_eq!(lines[0], "port 0000000000000001:2: VLAN 10");
            assert_eq!(lines[1..], *wanted, "{packet}");
        }
    }

    #[test]
    fn the_rule_that_decides_is_named() {
        let host = "dl_src=02:00:00:00:00:01,nw_src=10.0.0.1";
        let cases = [
            (
                format!("tcp,{host},tp_dst=23"),
                "dropped: f.toml:13: p rule 1, copied to the mirror 'watch'",
            ),
            (
                format!("tcp,{host},tp_dst=80"),
                "passes: f.toml:17: p rule 2",
            ),
            (
                format!("udp,{host},tp_dst=80"),
                "dropped: no rule of the lists of VLAN 10 matches",
            ),
            (
                "tcp,nw_src=10.0.0.1".to_owned(),
                "dropped: no host that port",
            ),
            (
                "udp,tp_dst=68".to_owned(),
                "dropped: port 0000000000000001:2 is not among dhcp_",
            ),
            ("dl_vlan=20,udp,tp_dst=68".to_owned(), "dropped: port"),
        ];
        for (packet, wanted) in cases {
            let lines = explain("1:2", &packet);
            assert!(lines[0].starts_with(wanted), "{packet}: {lines:?}");
        }
        let lines = explain("1:2", &format!("tcp,{host},tp_dst=80"));
        assert_eq!(
            lines.get(1).map(String::as_str),
            Some("passes: f.toml:22: v 'web'")
        );
        assert_eq!(
            explain("1:3", "tcp"),
            ["passes: no access list concerns it"]
        );
    }

    #[test]
    fn a_packet_has_whole_values() {
        let at = port_of_switch("1:2").expect("a port");
        let problem = packet(at, "ip,nw_src=10.0.0.0/8").err();
        assert!(problem.is_some_and(|problem| problem.contains("without a mask")));
        assert!(packet(at, "tcp,nope=1").is_err());
    }
}
