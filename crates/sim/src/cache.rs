//! The cache of flows in which a datapath such as Open vSwitch's keeps the results of table
//! lookups.
//!
//! A flow has one in-port and one Ethernet type. It also has the VLAN tag, the addresses and the
//! hash if the tables look at them. An entry for another in-port is skipped by its in-port alone;
//! the hash counts if a group may select by it. A flow is kept until ten seconds after its last
//! packet. Flows are looked up again some time after the tables have changed; until then their
//! packets are forwarded as before. A packet without a flow uses the present tables.

use std::collections::BTreeMap;

use bytes::Bytes;
use clock::{Duration, Instant};
use openflow::message::GroupType;
use openflow::packet::PacketFields;
use openflow::table::{Output, Switch};
use openflow::{Field, MacAddr, Match, MatchField, PortNo};

/// `max-idle` of Open vSwitch.
const IDLE_MAX: Duration = Duration::from_secs(10);

pub struct FlowCache {
    /// Time from a change of the tables until flows follow it. With zero, no flows are kept.
    delay: Duration,
    flows: BTreeMap<FlowKey, Flow>,
    due: Option<Instant>,
}

/// The header fields that the tables look at; `None` for a field that they do not look at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FlowKey {
    in_port: PortNo,
    eth_type: Option<u16>,
    /// VLAN id and priority; `None` also for a packet without a tag.
    vlan: Option<(u128, u128)>,
    src: Option<MacAddr>,
    dst: Option<MacAddr>,
    hash: Option<u64>,
}

struct Flow {
    mask: Mask,
    /// A packet of the flow, and its outputs.
    packet: Bytes,
    outputs: Vec<Output>,
    used_at: Instant,
}

/// The header fields that the tables look at for packets of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Mask {
    vlan: bool,
    src: bool,
    dst: bool,
    hash: bool,
}

impl FlowCache {
    pub fn new(delay: Duration) -> FlowCache {
        FlowCache {
            delay,
            flows: BTreeMap::new(),
            due: None,
        }
    }

    pub fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Handles a change of the tables. Returns the time until the flows must be looked up again,
    /// unless that is already set.
    pub fn handle_change(&mut self, now: Instant) -> Option<Duration> {
        if self.delay.is_zero() {
            self.flows.clear();
            return None;
        }
        let is_first = self.due.is_none();
        self.due.get_or_insert(now + self.delay);
        is_first.then_some(self.delay)
    }

    /// Looks all flows up again. Removes each flow for which the tables now look at more fields.
    pub fn handle_timeout(&mut self, now: Instant, switch: &Switch) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        let mut last = None;
        self.flows.retain(|key, flow| {
            if now.since(flow.used_at) >= IDLE_MAX {
                return false;
            }
            // Flows are in the order of their ports.
            let mask = match last {
                Some((in_port, mask)) if in_port == key.in_port => mask,
                _ => last.insert((key.in_port, Mask::of(switch, key.in_port))).1,
            };
            let is_wide = mask.is_none_or(|mask| {
                (mask.src && key.src.is_none())
                    || (mask.dst && key.dst.is_none())
                    || (mask.vlan && !flow.mask.vlan)
                    || (mask.hash && key.hash.is_none())
            });
            flow.outputs = switch.output_of(key.in_port, &flow.packet);
            !is_wide
        });
    }

    /// Processes a packet, by the switch's tables or by its flow.
    pub fn process(
        &mut self,
        now: Instant,
        switch: &mut Switch,
        in_port: PortNo,
        packet: &Bytes,
    ) -> Vec<Output> {
        if self.delay.is_zero() {
            return switch.process(now, in_port, packet);
        }
        let fields = PacketFields::parse(in_port, packet);
        let tag = fields.get(Field::VlanVid).zip(fields.get(Field::VlanPcp));
        let hash = fields.flow_key();
        let of = |mask: Mask| FlowKey {
            in_port,
            eth_type: fields.eth_type(),
            vlan: tag.filter(|_| mask.vlan),
            src: fields.eth_src().filter(|_| mask.src),
            dst: fields.eth_dst().filter(|_| mask.dst),
            hash: Some(hash).filter(|_| mask.hash),
        };
        for mask in Mask::all() {
            let is_kept =
                |flow: &&mut Flow| now.since(flow.used_at) < IDLE_MAX && flow.mask == mask;
            let Some(flow) = self.flows.get_mut(&of(mask)).filter(is_kept) else {
                continue;
            };
            flow.used_at = now;
            return match self.due {
                Some(_) => flow.outputs_for(packet),
                None => switch.process(now, in_port, packet),
            };
        }
        let mask = Mask::of(switch, in_port);
        let outputs = switch.process(now, in_port, packet);
        if let Some(mask) = mask {
            let flow = Flow {
                mask,
                packet: packet.clone(),
                outputs: outputs.clone(),
                used_at: now,
            };
            self.flows.insert(of(mask), flow);
        }
        outputs
    }
}

impl Flow {
    fn outputs_for(&self, packet: &Bytes) -> Vec<Output> {
        let mut outputs = self.outputs.clone();
        for output in &mut outputs {
            match output {
                Output::Port { packet: sent, .. } => *sent = self.rewrite(sent, packet),
                Output::Controller(packet_in) => {
                    let is_cut = packet_in.data.len() < self.packet.len();
                    let len = match is_cut {
                        true => packet_in.data.len().min(packet.len()),
                        false => packet.len(),
                    };
                    packet_in.total_len = u16::try_from(packet.len()).unwrap_or(u16::MAX);
                    packet_in.data = packet.slice(..len);
                }
            }
        }
        outputs
    }
}

impl Flow {
    /// Changes a packet's tags as the tags of this flow's packet were changed.
    fn rewrite(&self, sent: &Bytes, packet: &Bytes) -> Bytes {
        if *sent == self.packet {
            return packet.clone();
        }
        let new = [
            &packet[..12],
            &sent[12..tags_end(sent)],
            &packet[tags_end(packet)..],
        ];
        new.concat().into()
    }
}

/// The end of a frame's VLAN tags: where its Ethernet type is.
fn tags_end(frame: &[u8]) -> usize {
    let is_tag = |at: &usize| matches!(frame.get(*at..at + 2), Some([0x81, 0] | [0x88, 0xa8]));
    (12..frame.len())
        .step_by(4)
        .find(|at| !is_tag(at))
        .unwrap_or(frame.len())
}

impl Mask {
    fn all() -> impl Iterator<Item = Mask> {
        (0..16).map(|bits| Mask {
            vlan: bits & 1 != 0,
            src: bits & 2 != 0,
            dst: bits & 4 != 0,
            hash: bits & 8 != 0,
        })
    }

    /// Returns `None` if an entry looks at a field that flows here do not record.
    fn of(switch: &Switch, in_port: PortNo) -> Option<Mask> {
        let mut mask = Mask {
            vlan: false,
            src: false,
            dst: false,
            hash: switch
                .groups()
                .any(|group| group.group_type == GroupType::Select),
        };
        for entry in switch.entries() {
            let fields = fields_of(&entry.r#match)?;
            let port = fields.iter().find(|(field, _)| *field == Field::InPort);
            if port.is_some_and(|(_, port)| *port != u128::from(in_port.0)) {
                continue;
            }
            for (field, _) in fields {
                match field {
                    Field::InPort | Field::EthType => {}
                    Field::EthSrc => mask.src = true,
                    Field::EthDst => mask.dst = true,
                    Field::VlanVid | Field::VlanPcp => mask.vlan = true,
                    _ => return None,
                }
            }
        }
        Some(mask)
    }
}

/// Returns `None` if the match has a field that is not basic.
fn fields_of(r#match: &Match) -> Option<Vec<(Field, u128)>> {
    let field = |field: &MatchField| match field {
        MatchField::Basic { field, value, .. } => Some((*field, *value)),
        _ => None,
    };
    r#match.fields.iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use openflow::message::FlowMod;
    use openflow::packet::build::ethernet;
    use openflow::table::plain_port;
    use openflow::{Action, Message};

    use super::*;

    const DELAY: Duration = Duration::from_millis(17);
    const IPV4: u16 = 0x0800;
    const ARP: u16 = 0x0806;

    struct Setup {
        switch: Switch,
        cache: FlowCache,
        now: Instant,
    }

    impl Setup {
        /// A switch whose table sends every packet without an entry to the controller.
        fn new() -> Setup {
            let mut setup = Setup {
                switch: Switch::with_ports([1, 2]),
                cache: FlowCache::new(DELAY),
                now: Instant::START,
            };
            setup.switch.set_port(setup.now, plain_port(PortNo(3)));
            setup.add(0, Match::any(), PortNo::CONTROLLER);
            setup.pass(DELAY);
            setup
        }

        fn add(&mut self, priority: u16, r#match: Match, to: PortNo) {
            let actions = vec![Action::output(to)];
            let add = Message::FlowMod(FlowMod::add(priority, r#match, actions));
            self.switch.apply(self.now, &add).expect("taken");
            let _ = self.cache.handle_change(self.now);
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
            self.cache.handle_timeout(self.now, &self.switch);
        }

        /// Sends a packet from host 1 at port 1 to another host and returns its output port.
        fn send(&mut self, to: u8, eth_type: u16) -> PortNo {
            let packet = ethernet(mac(1), mac(to), eth_type, &[to; 46]).into();
            let outputs = self
                .cache
                .process(self.now, &mut self.switch, PortNo(1), &packet);
            match &outputs[..] {
                [
                    Output::Port {
                        port, packet: p, ..
                    },
                ] if *p == packet => *port,
                [Output::Controller(p)] if p.data == packet => PortNo::CONTROLLER,
                other => panic!("{other:?}"),
            }
        }
    }

    fn mac(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    fn pair(to: u8) -> Match {
        Match::any()
            .with_in_port(PortNo(1))
            .with_eth_src(mac(1))
            .with_eth_dst(mac(to))
    }

    #[test]
    fn an_entry_is_active_at_once_but_for_packets_of_a_flow_that_is_kept() {
        for (before, kept) in [
            (None, false),
            (Some((9, ARP)), false),
            (Some((9, IPV4)), true),
        ] {
            let mut setup = Setup::new();
            if let Some((to, eth_type)) = before {
                assert_eq!(setup.send(to, eth_type), PortNo::CONTROLLER);
            }
            setup.pass(DELAY);
            setup.add(10, pair(2), PortNo(2));
            let first = if kept { PortNo::CONTROLLER } else { PortNo(2) };
            assert_eq!(setup.send(2, IPV4), first, "{before:?}");
            setup.pass(DELAY);
            assert_eq!(setup.send(2, IPV4), PortNo(2), "{before:?}");
        }
    }

    #[test]
    fn where_entries_name_hosts_a_flow_is_of_two_hosts_only() {
        let mut setup = Setup::new();
        setup.add(10, pair(2), PortNo(2));
        setup.pass(DELAY);
        assert_eq!(setup.send(9, IPV4), PortNo::CONTROLLER);
        setup.add(10, pair(3), PortNo(3));
        assert_eq!(setup.send(3, IPV4), PortNo(3));
        setup.add(10, pair(9), PortNo(3));
        assert_eq!(setup.send(9, IPV4), PortNo::CONTROLLER, "it was kept");
    }

    #[test]
    fn a_flow_without_packets_ends() {
        let mut setup = Setup::new();
        setup.send(9, IPV4);
        setup.pass(IDLE_MAX);
        setup.add(10, pair(2), PortNo(2));
        assert_eq!(setup.send(2, IPV4), PortNo(2));
    }
}
