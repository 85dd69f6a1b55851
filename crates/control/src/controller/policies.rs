//! The controller's own policy map, given to relays beside its switches.
//!
//! A switch is asked once it is up, by an EXPERIMENTER message; a plain one answers that it knows
//! no such thing, and nothing more is said to it. A relay is given the map, if its own is older,
//! and gives none: the controller has its map from its operator.

use openflow::Frame;
use sched::PolicyMap;

use super::{Controller, ControllerOutput, Event};
use crate::ConnectionId;
use relay::{EXPERIMENTER_ID, LineStatus, PolicyTalk, Side, TalkEvent};

/// A relay beside a switch, as far as it has answered.
#[derive(Debug)]
pub(super) struct Shared {
    talk: PolicyTalk,
    is_told: bool,
}

impl Controller {
    /// Another map, for every switch there is and will be. One without a generation is not shared;
    /// of the one in use nothing is said again.
    pub fn set_policy(&mut self, map: &PolicyMap) {
        let shared = (map.generation > 0).then(|| map.clone());
        if shared == self.config.policy {
            return;
        }
        self.config.policy = shared;
        self.shared.clear();
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in all {
            self.share_policy(connection);
        }
    }

    /// Asks whether there is a relay beside the switch.
    pub(super) fn share_policy(&mut self, connection: ConnectionId) {
        let switch = self.connections.get(&connection);
        let switch = switch.and_then(|dpid| self.switches.get(dpid));
        if let (Some(map), Some(switch)) = (&self.config.policy, switch) {
            let mut talk = PolicyTalk::new(Side::Controller, EXPERIMENTER_ID, map.clone());
            talk.give_only();
            talk.ask(switch.version.wire());
            let is_told = false;
            self.shared.insert(connection, Shared { talk, is_told });
            self.drain_policy(connection);
        }
    }

    /// True if `frame` is about policy maps and nothing else has to see it.
    pub(super) fn handle_policy(&mut self, connection: ConnectionId, frame: &Frame) -> bool {
        let Some(shared) = self.shared.get_mut(&connection) else {
            return false;
        };
        let is_ours = shared.talk.handle(frame, LineStatus::default);
        if is_ours {
            self.drain_policy(connection);
        }
        is_ours
    }

    fn drain_policy(&mut self, connection: ConnectionId) {
        let dpid = self.connections.get(&connection).copied();
        let (Some(shared), Some(dpid)) = (self.shared.get_mut(&connection), dpid) else {
            return;
        };
        let mut events = Vec::new();
        while let Some(event) = shared.talk.poll_event() {
            match event {
                TalkEvent::Send(frame) => {
                    let send = ControllerOutput::Send { connection, frame };
                    self.outputs.push_back(send);
                }
                TalkEvent::Nobody(error) => events.push(Event::PolicyAlone { dpid, error }),
                // The map in use is the controller's own, and nobody waits for an outcome.
                TalkEvent::Own(_) | TalkEvent::Activate(_) | TalkEvent::Done(_) => {}
            }
        }
        let status = shared.talk.status();
        if status.is_in_sync == Some(true) && !shared.is_told {
            shared.is_told = true;
            let generation = status.generation;
            events.push(Event::PolicyShared { dpid, generation });
        }
        events.into_iter().for_each(|event| self.event(event));
    }
}

#[cfg(test)]
mod tests {
    use clock::Instant;
    use openflow::message::{Capabilities, Role, SwitchFeatures};
    use openflow::{DatapathId, ErrorKind, Version};

    use super::super::{Admission, ControllerConfig, PeerIdentity};
    use super::*;
    use crate::session::SwitchUp;
    use relay::experimenter::{error, is_of};

    const SWITCH: ConnectionId = ConnectionId(1);

    fn map(generation: u64) -> PolicyMap {
        let text = format!("Generation: {generation}\nDefault: action=queue_id:0\n");
        PolicyMap::parse(&text).unwrap().0
    }

    fn controller(generation: u64) -> Controller {
        let config = ControllerConfig {
            policy: Some(map(generation)),
            ..ControllerConfig::default()
        };
        let mut controller = Controller::new(config, [7; 32]);
        let up = SwitchUp {
            version: Version::V13,
            features: SwitchFeatures {
                datapath_id: DatapathId(1),
                n_buffers: 0,
                n_tables: 1,
                auxiliary_id: 0,
                capabilities: Capabilities::default(),
                actions: 0,
                ports: Vec::new(),
            },
            ports: Vec::new(),
            description: None,
            role: Role::Equal,
        };
        let admitted = controller.handle_up(Instant::START, SWITCH, up, PeerIdentity::default());
        assert_eq!(admitted, Admission::Admitted);
        controller
    }

    /// What it says of policy maps, and the events of it.
    fn outputs(controller: &mut Controller) -> (Vec<Frame>, Vec<Event>) {
        let (mut said, mut events) = (Vec::new(), Vec::new());
        while let Some(output) = controller.poll_output() {
            match output {
                ControllerOutput::Send { frame, .. } if is_of(EXPERIMENTER_ID, frame.bytes()) => {
                    said.push(frame);
                }
                ControllerOutput::Event(
                    event @ (Event::PolicyShared { .. } | Event::PolicyAlone { .. }),
                ) => events.push(event),
                _ => {}
            }
        }
        (said, events)
    }

    /// Lets both talk until nothing is left to say; the controller's events.
    fn settle(controller: &mut Controller, relay: &mut PolicyTalk) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            let (said, events) = outputs(controller);
            all.extend(events);
            if said.is_empty() {
                return all;
            }
            for frame in said {
                assert!(relay.handle(&frame, LineStatus::default));
            }
            while let Some(event) = relay.poll_event() {
                if let TalkEvent::Send(frame) = event {
                    controller.handle_frame(Instant::START, SWITCH, frame);
                }
            }
        }
    }

    #[test]
    fn a_relay_beside_a_switch_is_given_the_map_and_every_later_one() {
        let mut controller = controller(5);
        let mut relay = PolicyTalk::new(Side::Switch, EXPERIMENTER_ID, map(1));
        let dpid = DatapathId(1);
        let shared = |generation| vec![Event::PolicyShared { dpid, generation }];
        assert_eq!(settle(&mut controller, &mut relay), shared(5));
        assert_eq!(*relay.active(), map(5));
        controller.set_policy(&map(6));
        assert_eq!(settle(&mut controller, &mut relay), shared(6));
        assert_eq!(*relay.active(), map(6));
        // The same again is nothing to say.
        controller.set_policy(&map(6));
        assert_eq!(outputs(&mut controller).0, []);
        // What is older, or has no generation, is the controller's alone.
        controller.set_policy(&map(2));
        assert_eq!(settle(&mut controller, &mut relay), []);
        controller.set_policy(&map(0));
        assert_eq!(outputs(&mut controller).0, []);
        assert_eq!(*relay.active(), map(6));
    }

    #[test]
    fn a_plain_switch_is_asked_once_and_its_refusal_is_told() {
        let mut controller = controller(5);
        let (said, _) = outputs(&mut controller);
        assert_eq!(said.len(), 1);
        let refusal = error(&said[0], ErrorKind::BAD_EXPERIMENTER);
        let before = controller.counters();
        controller.handle_frame(Instant::START, SWITCH, refusal);
        let alone = Event::PolicyAlone {
            dpid: DatapathId(1),
            error: ErrorKind::BAD_EXPERIMENTER,
        };
        assert_eq!(outputs(&mut controller), (vec![], vec![alone]));
        assert_eq!(controller.counters(), before, "it is no error of ours");
    }
}
