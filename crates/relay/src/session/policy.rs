//! The session's part in carrying a policy map to both ends; [`super::super::policy`] defines the
//! messages.

use clock::Instant;
use sched::PolicyMap;
use sched::policy::MapDigest;

use super::super::policy::{Answer, PolicyEvent, PolicyExchange, PolicyMessage, PolicyStatus};
use super::super::wire::Control;
use super::{Event, Session};

impl Session {
    /// Reads a map and offers it to the other end. [`Event::Policy`] reports the outcome.
    ///
    /// # Errors
    /// All mistakes in the map, or the reason that it cannot be offered.
    pub fn push_policy(&mut self, text: &str) -> Result<MapDigest, String> {
        let Some(exchange) = &mut self.policy else {
            return Err("this relay does not schedule: start it with --policy auster".to_owned());
        };
        let pushed = exchange.push(text);
        self.drain_policy();
        pushed
    }

    /// Reads and offers a map like [`Session::push_policy`]. Without a connection, the map is in
    /// use here at once, and is offered on the next connection.
    ///
    /// # Errors
    /// The same as those of [`Session::push_policy`].
    pub fn load_policy(&mut self, text: &str) -> Result<MapDigest, String> {
        let Some(exchange) = &mut self.policy else {
            return Err("this relay does not schedule: start it with --policy auster".to_owned());
        };
        let loaded = exchange.load(text);
        self.drain_policy();
        loaded
    }

    /// The state of the policy map; `None` where messages are not scheduled.
    pub fn policy(&self) -> Option<PolicyStatus> {
        self.policy.as_ref().map(PolicyExchange::status)
    }

    /// The map in use.
    pub fn policy_map(&self) -> Option<&PolicyMap> {
        self.policy.as_ref().map(PolicyExchange::active)
    }

    pub(super) fn policy_connected(&mut self) {
        if let Some(exchange) = &mut self.policy {
            exchange.handle_connected();
        }
        self.drain_policy();
    }

    pub(super) fn policy_disconnected(&mut self) {
        if let Some(exchange) = &mut self.policy {
            exchange.handle_disconnected();
        }
        self.drain_policy();
    }

    pub(super) fn policy_timeout(&mut self, now: Instant) {
        if let Some(exchange) = &mut self.policy {
            exchange.handle_timeout(now);
        }
        self.drain_policy();
    }

    pub(super) fn handle_policy(&mut self, message: PolicyMessage) {
        match (&mut self.policy, message) {
            (Some(exchange), message) => exchange.handle(message),
            (
                None,
                PolicyMessage::Begin {
                    generation, digest, ..
                },
            ) => {
                let why = "it does not schedule: start it with --policy auster";
                self.say(Control::Policy(PolicyMessage::Ack {
                    generation,
                    digest,
                    answer: Answer::Refused(why.to_owned()),
                }));
            }
            (None, _) => {}
        }
        self.drain_policy();
    }

    fn drain_policy(&mut self) {
        while let Some(event) = self.policy.as_mut().and_then(PolicyExchange::poll_event) {
            match event {
                PolicyEvent::Send(message) => self.say(Control::Policy(message)),
                PolicyEvent::Activate(map) => {
                    self.set_policy(&map);
                    self.events.push_back(Event::Mapped);
                }
                PolicyEvent::Done(outcome) => self.events.push_back(Event::Policy { outcome }),
            }
        }
    }
}
