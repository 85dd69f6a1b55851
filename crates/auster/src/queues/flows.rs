//! Flow entries in `ovs-ofctl` syntax: some put a service into a queue, others steer control
//! traffic and keep data out of its classes.
//!
//! The tunnel's entries come first. They match its ingress port, addresses and port, and work
//! before any controller is connected. They keep the code points that the relays write, or set one
//! if nobody does. Then, at each edge port, a data packet with a code point of control loses it;
//! otherwise any host could use the class of control. The packet is then looked up again
//! (`resubmit`, an extension of Open vSwitch), so that all other entries, including a controller's,
//! apply as before.

use std::fmt::Write;
use std::net::IpAddr;

use openflow::{Field, text};
use sched::policy::PolicyMap;

use crate::queues::plan::{Class, Plan, reserved_code_points};

/// "auqu": the cookie of these entries, by which to dump or delete them.
pub const COOKIE: u64 = 0x6175_7175 << 32;
/// The priority of tunnel entries, above anything a controller sets.
const PRIORITY_TUNNEL: u16 = 65_500;
const PRIORITY_EDGE: u16 = 65_400;
/// The priority of service entries: above the paths of a controller, below the entries that keep
/// the controller reachable.
pub const PRIORITY_SERVICE: u16 = 40_000;
/// The code point of a data packet that bore a code point of control: best effort.
const REMARKED: u8 = 0;

/// The packets that one bridge steers and marks. Ports are names or numbers.
#[derive(Clone, Debug, Default)]
pub struct Steering {
    /// Ports where data enters.
    pub edges: Vec<String>,
    pub tunnels: Vec<Tunnel>,
}

/// A connection between relays through a bridge.
#[derive(Clone, Debug)]
pub struct Tunnel {
    /// The port towards the switch's relay.
    pub switch_port: String,
    /// The port towards the controller's relay.
    pub controller_port: String,
    /// The address on which the controller's relay listens.
    pub controller: IpAddr,
    pub controller_l4_port: u16,
    /// The switch's relay, if the tunnel of another relay shares a port with this one.
    pub relay: Option<IpAddr>,
    /// The code point for all of the tunnel's packets, if its ends do not mark them.
    pub mark: Option<u8>,
}

/// The entries, one a line, for `ovs-ofctl -O OpenFlow13 add-flows BRIDGE -`. With a plan, control
/// packets also get their queue, for a datapath that honours `set_queue`.
pub fn lines(map: &PolicyMap, steering: &Steering, queues: Option<&Plan>) -> Vec<String> {
    let mut lines = Vec::new();
    for tunnel in &steering.tunnels {
        tunnel.lines(queues, &mut lines);
    }
    for edge in &steering.edges {
        for code_point in reserved_code_points(map).iter() {
            for family in ["ip", "ipv6"] {
                lines.push(entry(
                    PRIORITY_EDGE,
                    &format!("in_port={edge},{family},ip_dscp={code_point}"),
                    &format!("set_field:{REMARKED}->ip_dscp,resubmit(,0)"),
                ));
            }
        }
    }
    lines
}

/// The entry that puts the packets of a match into a queue of port `output`. It names the queue for
/// datapaths that honour `set_queue`. It also writes the queue's code point, which chooses the
/// queue on other datapaths.
pub fn service(class: &Class, words: &str, output: u32, priority: u16) -> Result<String, String> {
    const ETH_TYPES_IP: [u128; 2] = [0x0800, 0x86dd];
    let read = text::parse_match(words).map_err(|problem| problem.to_string())?;
    let eth_type = read.exact(Field::EthType);
    let mut actions = format!("set_queue:{},", class.set_queue);
    if let Some(mark) = class.mark {
        if eth_type.is_none_or(|eth_type| !ETH_TYPES_IP.contains(&eth_type)) {
            return Err(format!(
                "say ip, ipv6, udp, tcp6 or the like: queue {} is chosen by the code point {mark}, \
                 and only IP packets have one",
                class.queue
            ));
        }
        let _ = write!(actions, "set_field:{mark}->ip_dscp,");
    }
    let _ = write!(actions, "output:{output}");
    Ok(entry(priority, words, &actions))
}

impl Tunnel {
    fn lines(&self, queues: Option<&Plan>, lines: &mut Vec<String>) {
        let (from, to) = (&self.switch_port, &self.controller_port);
        let (address, port) = (self.controller, self.controller_l4_port);
        let is_v6 = address.is_ipv6();
        let relay = |key: &str| {
            let relay = self.relay.map(|relay| format!(",{key}={relay}"));
            relay.unwrap_or_default()
        };
        let (source, target, six) = match is_v6 {
            true => ("ipv6_src", "ipv6_dst", "6"),
            false => ("nw_src", "nw_dst", ""),
        };
        for protocol in ["udp", "tcp"] {
            let up = format!(
                "in_port={from},{protocol}{six},{target}={address},tp_dst={port}{}",
                relay(source)
            );
            let down = format!(
                "in_port={to},{protocol}{six},{source}={address},tp_src={port}{}",
                relay(target)
            );
            for (flow, out) in [(up, to), (down, from)] {
                let mark = self.mark.map(|mark| format!("set_field:{mark}->ip_dscp,"));
                let output = format!("{}output:{out}", mark.unwrap_or_default());
                for (code_points, queue) in control_queues(queues) {
                    for code_point in code_points {
                        lines.push(entry(
                            PRIORITY_TUNNEL + 1,
                            &format!("{flow},ip_dscp={code_point}"),
                            &format!("set_queue:{queue},{output}"),
                        ));
                    }
                }
                lines.push(entry(PRIORITY_TUNNEL, &flow, &output));
            }
        }
        let neighbours = match is_v6 {
            // Solicitation and advertisement, of whose sender only the target is sure.
            true => [
                format!("in_port={from},icmp6,icmp_type=135,nd_target={address}"),
                format!("in_port={to},icmp6,icmp_type=136,nd_target={address}"),
            ],
            false => [
                format!("in_port={from},arp,arp_tpa={address}{}", relay("arp_spa")),
                format!("in_port={to},arp,arp_spa={address}{}", relay("arp_tpa")),
            ],
        };
        for (flow, out) in neighbours.iter().zip([to, from]) {
            lines.push(entry(PRIORITY_TUNNEL, flow, &format!("output:{out}")));
        }
    }
}

/// The code points of each control class, and the number of its queue.
fn control_queues(plan: Option<&Plan>) -> Vec<(Vec<u8>, u32)> {
    let Some(plan) = plan else {
        return vec![];
    };
    let classes = plan.classes.iter().filter(|class| class.is_control);
    classes
        .map(|class| (class.code_points.iter().collect(), class.set_queue))
        .collect()
}

fn entry(priority: u16, flow: &str, actions: &str) -> String {
    let mut line = String::new();
    let _ = write!(
        line,
        "cookie={COOKIE:#x},table=0,priority={priority},{flow},actions={actions}"
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::plan::tests::{SOCKET_BYTES, example_2};

    fn tunnel() -> Tunnel {
        Tunnel {
            switch_port: "3".into(),
            controller_port: "2".into(),
            controller: "10.0.0.4".parse().unwrap(),
            controller_l4_port: 6654,
            relay: None,
            mark: None,
        }
    }

    #[test]
    fn every_reserved_code_point_is_taken_from_data_at_each_edge_and_no_other() {
        let steering = Steering {
            edges: vec!["1".into(), "4".into()],
            tunnels: vec![],
        };
        let lines = lines(&example_2(), &steering, None);
        assert_eq!(lines.len(), 2 * 2 * 24, "CS5, CS6, CS7 of both families");
        let of = |dscp: u8| {
            let word = format!(",ip_dscp={dscp},actions=set_field:0->ip_dscp,resubmit(,0)");
            lines.iter().filter(|line| line.ends_with(&word)).count()
        };
        assert_eq!([of(40), of(46), of(63), of(39), of(0)], [4, 4, 4, 0, 0]);
    }

    #[test]
    fn a_tunnel_is_steered_both_ways_before_anything_else_and_keeps_its_code_points() {
        let steering = Steering {
            edges: vec!["1".into()],
            tunnels: vec![tunnel()],
        };
        let lines = lines(&example_2(), &steering, None);
        let tunnel: Vec<&String> = lines
            .iter()
            .filter(|l| l.contains("priority=65500"))
            .collect();
        assert_eq!(tunnel.len(), 6);
        assert!(tunnel[0].contains("in_port=3,udp,nw_dst=10.0.0.4,tp_dst=6654,actions=output:2"));
        assert!(tunnel[1].contains("in_port=2,udp,nw_src=10.0.0.4,tp_src=6654,actions=output:3"));
        assert!(tunnel.iter().all(|line| !line.contains("set_field")));
    }

    #[test]
    fn a_service_is_put_into_its_queue_by_number_and_by_code_point() {
        let plan = Plan::new(&example_2(), "1gbit".parse().unwrap(), SOCKET_BYTES).unwrap();
        let mut class = plan.classes[0].clone();
        class.set_queue = 7;
        class.mark = Some(10);
        let line = service(&class, "in_port=1,udp,tp_dst=5004", 3, 900).unwrap();
        assert_eq!(
            line,
            "cookie=0x6175717500000000,table=0,priority=900,in_port=1,udp,tp_dst=5004,\
             actions=set_queue:7,set_field:10->ip_dscp,output:3"
        );
        let refused = |words: &str| service(&class, words, 3, 900).unwrap_err();
        assert!(refused("in_port=1").contains("only IP packets"));
        assert!(refused("udp,tp_dst=x").contains('x'));
        class.mark = None;
        let line = service(&class, "in_port=1", 3, 900).unwrap();
        assert!(line.ends_with("actions=set_queue:7,output:3"), "{line}");
    }

    #[test]
    fn a_datapath_with_set_queue_is_told_the_queue_of_each_control_code_point() {
        let rate = "100mbit".parse().unwrap();
        let plan = Plan::new(&example_2(), rate, SOCKET_BYTES).unwrap();
        let steering = Steering {
            edges: vec![],
            tunnels: vec![tunnel()],
        };
        let lines = lines(&example_2(), &steering, Some(&plan));
        let has = |words: &str| lines.iter().any(|line| line.ends_with(words));
        assert!(has("tp_dst=6654,ip_dscp=56,actions=set_queue:1,output:2"));
        assert!(has("tp_dst=6654,ip_dscp=48,actions=set_queue:2,output:2"));
        assert!(has("tp_src=6654,ip_dscp=40,actions=set_queue:3,output:3"));
        assert!(!lines.iter().any(|line| line.contains("set_queue:0")));
    }
}
