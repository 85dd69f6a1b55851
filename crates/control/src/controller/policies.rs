//! Gives the controller's own policy map to the relays beside its switches.
//!
//! The controller sends an EXPERIMENTER message to a switch once the switch is up. A plain switch
//! answers that it does not know the message, and receives no more. A relay with an older map
//! receives this map. It returns none: the controller's map comes from its operator.

use openflow::Frame;
use sched::PolicyMap;

use super::{Controller, ControllerOutput, Event};
use crate::ConnectionId;
use relay::{EXPERIMENTER_ID, LineStatus, PolicyTalk, Side, TalkEvent};

/// The exchange with a switch, or with the relay beside it.
#[derive(Debug)]
pub(super) struct Shared {
    talk: PolicyTalk,
    is_told: bool,
}

impl Controller {
    /// Sets another map for every switch, present and future. Does not share a map without a
    /// generation. Does not announce the map in use again.
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
        let switch = switch.and_then(|dpid| self.network.switch(*dpid));
        if let (Some(map), Some(switch)) = (&self.config.policy, switch) {
            let mut talk = PolicyTalk::new(Side::Controller, EXPERIMENTER_ID, map.clone());
            talk.give_only();
            talk.ask(switch.version.wire());
            let is_told = false;
            self.shared.insert(connection, Shared { talk, is_told });
            self.drain_policy(connection);
        }
    }

    /// Handles a frame about policy maps. Returns true if nothing else needs to see it.
    pub(super) fn handle_policy(&mut self, connection: ConnectionId, frame: &Frame) -> bool {
        let Some(shared) = self.shared.get_mut(&connection) else {
            return false;
        };
        let is_taken = shared.talk.handle(frame, LineStatus::default);
        if is_taken {
            self.drain_policy(connection);
        }
        is_taken
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
                    self.outbox.push_output(send);
                }
                TalkEvent::Nobody(error) => events.push(Event::PolicyAlone { dpid, error }),
                // The map in use is the controller's own, and no caller waits for an outcome.
                TalkEvent::Own(_) | TalkEvent::Activate(_) | TalkEvent::Done(_) => {}
            }
        }
        let status = shared.talk.status();
        if status.is_in_sync == Some(true) && !shared.is_told {
            shared.is_told = true;
            let generation = status.generation;
            events.push(Event::PolicyShared { dpid, generation });
        }
        events
            .into_iter()
            .for_each(|event| self.outbox.event(event));
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

    /// The controller's policy messages and its events about them.
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

    /// Lets both talk until neither has anything to send. Returns the controller's events.
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
        // The same map again needs no message.
        controller.set_policy(&map(6));
        assert_eq!(outputs(&mut controller).0, []);
        // An older map, or one without a generation, stays with the controller.
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
