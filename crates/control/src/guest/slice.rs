//! The packets and ports of a guest: a flowspace, as FlowVisor called it.
//!
//! An entry of the guest's first table is narrowed to the guest's packets. Its further tables get
//! no other packets, so entries there stay as they are. No action may turn a packet of the guest
//! into one that belongs to somebody else.

use std::collections::BTreeSet;

use openflow::message::PacketOut;
use openflow::packet::PacketFields;
use openflow::table::{Pattern, check_actions};
use openflow::{Action, ErrorKind, Field, Match, MatchField, PortNo};

use crate::entry::ETH_TYPE_LLDP;

#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    /// None: all packets.
    matches: Vec<Match>,
    /// The ports, if each match names one.
    ports: Option<BTreeSet<PortNo>>,
}

impl Slice {
    pub fn new(matches: &[Match]) -> Slice {
        let ports = matches.iter().map(Match::in_port);
        let ports: Option<BTreeSet<PortNo>> = ports.collect();
        Slice {
            matches: matches.to_vec(),
            ports: ports.filter(|ports| !ports.is_empty()),
        }
    }

    /// Whether a port is one of the guest's.
    pub fn has_port(&self, port: PortNo) -> bool {
        self.ports
            .as_ref()
            .is_none_or(|ports| ports.contains(&port))
    }

    /// The matches that an entry of the first table has in the switch.
    ///
    /// # Errors
    /// None of the packets is the guest's.
    pub fn narrow(&self, stated: &Match) -> Result<Vec<Match>, ErrorKind> {
        if self.matches.is_empty() {
            return Ok(vec![stated.clone()]);
        }
        let mut patterns = BTreeSet::new();
        let both = self.matches.iter().filter_map(|own| meet(stated, own));
        let is_new = |m: &Match| Pattern::new(m).is_ok_and(|pattern| patterns.insert(pattern));
        let all: Vec<Match> = both.filter(is_new).collect();
        match all.is_empty() {
            true => Err(ErrorKind::MATCH_EPERM),
            false => Ok(all),
        }
    }

    /// Whether this field distinguishes some packets of the guest from other packets.
    fn is_about(&self, field: Field) -> bool {
        self.matches.iter().any(|m| m.get(field).is_some())
    }

    /// Checks the actions of an entry with these matches in the switch, or of a packet.
    pub fn check(&self, actions: &[Action], patterns: &[Pattern]) -> Result<(), ErrorKind> {
        if patterns.is_empty() {
            check_actions(actions, None)?;
        }
        for pattern in patterns {
            check_actions(actions, Some(pattern))?;
        }
        actions.iter().try_for_each(|action| self.check_one(action))
    }

    fn check_one(&self, action: &Action) -> Result<(), ErrorKind> {
        const TAGS: [Field; 2] = [Field::VlanVid, Field::VlanPcp];
        match action {
            Action::Output { port, .. } => match *port {
                PortNo::NORMAL | PortNo::TABLE => Err(ErrorKind::ACTION_BAD_OUT_PORT),
                PortNo::IN_PORT | PortNo::CONTROLLER | PortNo::FLOOD | PortNo::ALL => Ok(()),
                port if self.has_port(port) => Ok(()),
                _ => Err(ErrorKind::ACTION_BAD_OUT_PORT),
            },
            Action::SetField(MatchField::Basic { field, value, .. }) if self.is_about(*field) => {
                let takes = |own: &Match| {
                    let bits = own.get(*field);
                    bits.is_none_or(|(own, mask)| (own ^ value) & mask == 0)
                };
                match self.matches.iter().all(takes) {
                    true => Ok(()),
                    false => Err(ErrorKind::ACTION_EPERM),
                }
            }
            Action::PushVlan(_) | Action::PopVlan if TAGS.iter().any(|tag| self.is_about(*tag)) => {
                Err(ErrorKind::ACTION_EPERM)
            }
            Action::PushMpls(_) | Action::PopMpls(_)
                if self
                    .matches
                    .iter()
                    .any(|m| m.fields.len() > usize::from(m.in_port().is_some())) =>
            {
                Err(ErrorKind::ACTION_EPERM)
            }
            Action::Enqueue { .. } => Err(ErrorKind::ACTION_BAD_TYPE),
            _ => Ok(()),
        }
    }

    /// Checks a set of actions. A set has one output, and all ports of a guest can be several.
    pub fn check_set(&self, actions: &[Action]) -> Result<(), ErrorKind> {
        let is_several = self.ports.as_ref().is_some_and(|ports| ports.len() > 1);
        match is_several && actions.iter().any(is_all) {
            true => Err(ErrorKind::ACTION_BAD_OUT_PORT),
            false => Ok(()),
        }
    }

    /// The actions for the switch: all ports of the guest in place of all ports.
    pub fn translate(&self, actions: &[Action]) -> Vec<Action> {
        let Some(ports) = &self.ports else {
            return actions.to_vec();
        };
        let translated = actions.iter().flat_map(|action| match is_all(action) {
            true => ports.iter().copied().map(Action::output).collect(),
            false => vec![action.clone()],
        });
        translated.collect()
    }

    /// Checks a packet that the guest sends.
    ///
    /// # Errors
    /// The OFPBRC_* or OFPBAC_* to answer.
    pub fn check_packet(&self, packet: &PacketOut) -> Result<(), ErrorKind> {
        // Open vSwitch accepts 0 as well, and some senders leave it in the message.
        let nowhere = [PortNo::CONTROLLER, PortNo::ANY, PortNo(0)];
        let is_nowhere = nowhere.contains(&packet.in_port);
        let is_port = packet.in_port.is_ordinary() || packet.in_port == PortNo::LOCAL;
        let is_own = is_port && self.has_port(packet.in_port);
        if !(is_nowhere || is_own) {
            return Err(ErrorKind::BAD_PORT);
        }
        if packet.buffer_id.is_some() {
            return Err(ErrorKind::BUFFER_UNKNOWN);
        }
        let fields = PacketFields::parse(packet.in_port, &packet.data);
        // auster finds its links by LLDP.
        if fields.eth_type() == Some(ETH_TYPE_LLDP) {
            return Err(ErrorKind::REQUEST_EPERM);
        }
        let is_its = |own: &Match| {
            let but_port = own
                .fields
                .iter()
                .filter(|field| !is_in_port(field))
                .cloned();
            let fields_of = but_port.collect();
            fields.matches(&Match { fields: fields_of })
        };
        if !self.matches.is_empty() && !self.matches.iter().any(is_its) {
            return Err(ErrorKind::REQUEST_EPERM);
        }
        // The packet would return as a packet of a host.
        let comes_back = |action: &Action| match action {
            Action::Output { port, .. } => *port == PortNo::CONTROLLER,
            _ => false,
        };
        if packet.actions.iter().any(comes_back) {
            return Err(ErrorKind::ACTION_BAD_OUT_PORT);
        }
        self.check(&packet.actions, &[])
    }
}

fn is_all(action: &Action) -> bool {
    match action {
        Action::Output { port, .. } => [PortNo::FLOOD, PortNo::ALL].contains(port),
        _ => false,
    }
}

fn is_in_port(field: &MatchField) -> bool {
    let is_it = |field: &Field| *field == Field::InPort;
    matches!(field, MatchField::Basic { field, .. } if is_it(field))
}

/// The match of the packets of both matches; `None` if there are none, or no match has just these.
fn meet(stated: &Match, own: &Match) -> Option<Match> {
    let mut met = stated.clone();
    for field in &own.fields {
        let MatchField::Basic { field, value, mask } = field else {
            return None;
        };
        let own_mask = mask.unwrap_or(field.ones());
        let is_it = |other: &&mut MatchField| match other {
            MatchField::Basic { field: of, .. } => of == field,
            MatchField::Other { .. } => false,
        };
        match met.fields.iter_mut().find(is_it) {
            Some(MatchField::Basic {
                value: said,
                mask: said_mask,
                ..
            }) => {
                let both = said_mask.unwrap_or(field.ones());
                if (*said ^ value) & both & own_mask != 0 {
                    return None;
                }
                let mask = both | own_mask;
                *said |= value;
                *said_mask = (mask != field.ones()).then_some(mask);
            }
            _ => met.fields.push(MatchField::Basic {
                field: *field,
                value: *value,
                mask: *mask,
            }),
        }
    }
    // A field follows the fields that it requires.
    met.fields.sort_by_key(|field| match field {
        MatchField::Basic { field, .. } => *field as u16,
        MatchField::Other { .. } => u16::MAX,
    });
    Some(met)
}

#[cfg(test)]
mod tests {
    use openflow::text::{parse_actions, parse_match};

    use super::*;

    fn slice(matches: &[&str]) -> Slice {
        let matches = matches.iter().map(|text| parse_match(text).unwrap());
        Slice::new(&matches.collect::<Vec<_>>())
    }

    #[test]
    fn an_entry_is_narrowed_to_the_guests_packets_or_refused() {
        for (own, stated, met) in [
            (
                &["ip,nw_dst=10.1.0.0/16"][..],
                "",
                &["ip,nw_dst=10.1.0.0/16"][..],
            ),
            (
                &["ip,nw_dst=10.1.0.0/16"],
                "ip,nw_dst=10.0.0.0/8",
                &["ip,nw_dst=10.1.0.0/16"],
            ),
            (
                &["ip,nw_dst=10.1.0.0/16"],
                "tcp,nw_dst=10.1.2.3",
                &["tcp,nw_dst=10.1.2.3"],
            ),
            (&["ip,nw_dst=10.1.0.0/16"], "ip,nw_dst=10.2.0.0/16", &[]),
            (&["ip,nw_dst=10.1.0.0/16"], "arp", &[]),
            (&["dl_vlan=100"], "vlan_tci=0x1000/0x1000", &["dl_vlan=100"]),
            (&["dl_vlan=100"], "dl_vlan=200", &[]),
            (
                &["in_port=1", "in_port=2"],
                "ip",
                &["in_port=1,ip", "in_port=2,ip"],
            ),
            (
                &["in_port=1", "in_port=2"],
                "in_port=2,arp",
                &["in_port=2,arp"],
            ),
            (&["ip", "dl_vlan=7"], "ip,dl_vlan=7", &["ip,dl_vlan=7"]),
        ] {
            let found = slice(own).narrow(&parse_match(stated).unwrap());
            let wanted: Vec<Pattern> = met
                .iter()
                .map(|text| Pattern::new(&parse_match(text).unwrap()).unwrap())
                .collect();
            match found {
                Ok(found) => {
                    let found: Vec<Pattern> =
                        found.iter().map(|m| Pattern::new(m).unwrap()).collect();
                    assert_eq!(found, wanted, "{own:?} {stated}");
                }
                Err(error) => {
                    assert_eq!(error, ErrorKind::MATCH_EPERM);
                    assert!(wanted.is_empty(), "{own:?} {stated}");
                }
            }
        }
    }

    #[test]
    fn no_action_leads_to_others_ports_or_makes_others_packets() {
        let vlan = slice(&["dl_vlan=100"]);
        let ports = slice(&["in_port=1", "in_port=2"]);
        for (of, actions, error) in [
            (&ports, "output:3", Some(ErrorKind::ACTION_BAD_OUT_PORT)),
            (&ports, "output:2,controller", None),
            (&ports, "flood", None),
            (&ports, "normal", Some(ErrorKind::ACTION_BAD_OUT_PORT)),
            (&vlan, "output:3", None),
            (&vlan, "strip_vlan,output:3", Some(ErrorKind::ACTION_EPERM)),
            (
                &vlan,
                "push_vlan:0x8100,output:3",
                Some(ErrorKind::ACTION_EPERM),
            ),
            (
                &vlan,
                "set_field:4296->vlan_vid,output:3",
                Some(ErrorKind::ACTION_EPERM),
            ),
            (&vlan, "set_field:4196->vlan_vid,output:3", None),
            (&vlan, "set_field:02:00:00:00:00:01->eth_dst,output:3", None),
        ] {
            let actions = parse_actions(actions).unwrap();
            assert_eq!(of.check(&actions, &[]).err(), error, "{actions:?}");
        }
        let all = parse_actions("flood").unwrap();
        let both = parse_actions("output:1,output:2").unwrap();
        assert_eq!(ports.translate(&all), both);
        assert_eq!(vlan.translate(&all), all);
    }

    #[test]
    fn a_packet_is_one_of_the_guests() {
        let mut data = vec![0; 60];
        data[12..14].copy_from_slice(&[0x08, 0x00]);
        data[14] = 0x45;
        data[30..34].copy_from_slice(&[10, 1, 2, 3]);
        let packet = |in_port, actions| PacketOut {
            buffer_id: None,
            in_port,
            actions: parse_actions(actions).unwrap(),
            data: data.clone().into(),
            pipeline: Match::default(),
        };
        let check = |own, in_port, actions| slice(own).check_packet(&packet(in_port, actions));
        let none = PortNo::CONTROLLER;
        assert_eq!(check(&["in_port=1"], PortNo(1), "in_port"), Ok(()));
        // The packet would return as a packet of a host, made up by the guest.
        assert_eq!(
            check(&["in_port=1"], PortNo(1), "output:1,controller"),
            Err(ErrorKind::ACTION_BAD_OUT_PORT)
        );
        let mut lldp = packet(none, "output:1");
        let mut data = lldp.data.to_vec();
        data[12..14].copy_from_slice(&[0x88, 0xcc]);
        lldp.data = data.into();
        assert_eq!(
            slice(&[]).check_packet(&lldp),
            Err(ErrorKind::REQUEST_EPERM)
        );
        let there = &["in_port=1,ip,nw_dst=10.1.0.0/16"][..];
        assert_eq!(check(there, none, "output:1"), Ok(()));
        let elsewhere = &["in_port=1,ip,nw_dst=10.2.0.0/16"][..];
        assert_eq!(
            check(elsewhere, none, "output:1"),
            Err(ErrorKind::REQUEST_EPERM)
        );
        assert_eq!(
            check(there, PortNo(2), "output:1"),
            Err(ErrorKind::BAD_PORT)
        );
        assert_eq!(
            check(there, none, "output:2"),
            Err(ErrorKind::ACTION_BAD_OUT_PORT)
        );
        assert_eq!(
            check(there, none, "TABLE"),
            Err(ErrorKind::ACTION_BAD_OUT_PORT)
        );
    }
}
