//! One end of a bond. LACP (IEEE 802.1AX-2020, 6.4) decides which of its ports belong together with
//! the partner's ports.
//!
//! ```text
//!            up                PDU                      its port and ours agree
//! Disabled ─────> Expired ───────────> Current: Detached ─> Attached ─> Collecting ─> Distributing
//!                   │  ^                  │
//!    3 s without it │  └──────────────────┘ 3 or 90 s without a PDU
//!                   v
//!               Defaulted
//! ```
//!
//! A bond has one partner: the first system and key that a port received. A port that receives
//! another partner's messages stays detached, and so does a port that receives its own system's
//! messages. So ports need not wait for each other, and a port joins as soon as it may. A port
//! receives packets while it is collecting, and sends packets while it is distributing.
//!
//! The partner may be anybody: only a few of its messages are handled each second. It is never
//! answered more often than the standard allows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Budget, Duration, Instant};
use openflow::MacAddr;
use openflow::packet::lacp::{End, Pdu, State};

/// Time between two messages to a partner with a short or long timeout (6.4.4).
const FAST_PERIODIC: Duration = Duration::from_secs(1);
const SLOW_PERIODIC: Duration = Duration::from_secs(30);
/// Time after which a silent partner is forgotten.
const SHORT_TIMEOUT: Duration = Duration::from_secs(3);
const LONG_TIMEOUT: Duration = Duration::from_secs(90);

/// Maximum number of messages that a port sends, and that it handles, each second.
const SENT_PER_S: u32 = 3;
const HEARD_PER_S: u32 = 10;
/// Time until one more message may be sent.
const SEND_AGAIN: Duration = Duration::from_millis(334);

/// The priority of our system and ports: the middle.
const PRIORITY: u16 = 0x8000;

/// The settings of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The address that our system has in messages.
    pub system: MacAddr,
    /// The number of the bond in our system.
    pub key: u16,
    /// Whether we send before the partner does.
    pub is_active: bool,
    /// Whether the partner is asked for a message each second.
    pub is_fast: bool,
}

impl Config {
    /// Time after which a silent partner is expired.
    fn timeout(&self) -> Duration {
        match self.is_fast {
            true => SHORT_TIMEOUT,
            false => LONG_TIMEOUT,
        }
    }
}

/// One end of a bond.
#[derive(Debug)]
pub struct Lacp {
    config: Config,
    ports: BTreeMap<u16, Port>,
    /// The partner of all selected ports.
    partner: Option<Partner>,
    outputs: VecDeque<Output>,
    /// Messages that arrived too fast.
    pub dropped: u64,
}

/// The other end of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partner {
    pub system_priority: u16,
    pub system: MacAddr,
    pub key: u16,
}

/// An action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Send {
        port: u16,
        pdu: Pdu,
    },
    /// The ports that collect or distribute have changed.
    Changed,
    /// A port has received a message of a partner other than the bond's. The port is not attached.
    OtherPartner {
        port: u16,
        heard: Partner,
    },
    /// A port receives messages of our own system: both ends of its cable are ours.
    Loop {
        port: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receive {
    Disabled,
    Expired { until: Instant },
    Defaulted,
    Current { until: Instant },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mux {
    Detached,
    Attached,
    Collecting,
    Distributing,
}

#[derive(Debug)]
struct Port {
    receive: Receive,
    mux: Mux,
    is_selected: bool,
    /// Whether the port has received messages of a partner that it must not be attached to.
    is_strange: bool,
    /// Whether the port carries packets as an earlier process left it, and its partner has not sent
    /// a message yet.
    is_adopted: bool,
    /// The partner's port as last received.
    partner: End,
    /// Whether there is something new for the partner, and when it may be sent.
    needs_send: bool,
    may_send: Instant,
    /// The time of the next message that is sent anyway.
    periodic: Option<Instant>,
    sending: Budget,
    hearing: Budget,
}

/// A port, for status tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortView {
    pub port: u16,
    /// `down`, `expired`, `defaulted` or `current`.
    pub receive: &'static str,
    pub is_collecting: bool,
    pub is_distributing: bool,
    /// Our state in the messages.
    pub state: State,
    /// The partner's port; `None` if no message was received.
    pub partner: Option<End>,
}

impl Partner {
    fn of(end: &End) -> Partner {
        Partner {
            system_priority: end.system_priority,
            system: end.system,
            key: end.key,
        }
    }
}

impl Lacp {
    pub fn new(config: Config, ports: impl IntoIterator<Item = u16>) -> Lacp {
        let ports = ports.into_iter();
        Lacp {
            config,
            ports: ports.map(|port| (port, Port::new(&config))).collect(),
            partner: None,
            outputs: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Notes that a port is up or down.
    pub fn set_up(&mut self, now: Instant, number: u16, is_up: bool) {
        let config = self.config;
        let Some(port) = self.ports.get_mut(&number) else {
            return;
        };
        if is_up == (port.receive != Receive::Disabled) {
            return;
        }
        port.forget(&config);
        if is_up {
            port.expire(now);
        } else {
            port.receive = Receive::Disabled;
        }
        self.follow(now);
    }

    /// Takes over a port that has just come up and already carries packets, as its switch has kept
    /// it from an earlier process of the same system and key. The port continues until its partner
    /// reports otherwise, or sends nothing within our timeout. Nothing is sent before then: a
    /// message that does not name the partner would end the partner's use of the port.
    pub fn adopt(&mut self, now: Instant, number: u16, distributes: bool) {
        let config = self.config;
        let port = self.ports.get_mut(&number);
        let Some(port) = port.filter(|port| port.receive == Receive::Disabled) else {
            return;
        };
        port.forget(&config);
        port.partner.state.set(State::SYNCHRONIZATION, true);
        port.partner.state.set(State::COLLECTING, distributes);
        let until = now + config.timeout();
        port.receive = Receive::Current { until };
        (port.is_selected, port.is_adopted) = (true, true);
        self.follow(now);
    }

    /// Handles a message that has come in at a port.
    pub fn handle_pdu(&mut self, now: Instant, number: u16, pdu: &Pdu) {
        let config = self.config;
        let Some(port) = self.ports.get_mut(&number) else {
            return;
        };
        if port.receive == Receive::Disabled || !port.hearing.take(now) {
            self.dropped += 1;
            return;
        }
        port.record(now, pdu, (&config, number));
        self.follow(now);
    }

    /// Handles deadlines.
    pub fn due(&mut self, now: Instant) {
        for port in self.ports.values_mut() {
            match port.receive {
                Receive::Current { until } if until <= now => {
                    if port.is_adopted {
                        port.forget(&self.config);
                    }
                    port.expire(now);
                }
                Receive::Expired { until } if until <= now => {
                    port.forget(&self.config);
                    port.receive = Receive::Defaulted;
                }
                _ => {}
            }
        }
        self.follow(now);
    }

    /// Makes every port send a message now, as far as the limit allows. From then on partners wait
    /// their whole timeout.
    pub fn refresh(&mut self, now: Instant) {
        for port in self.ports.values_mut() {
            port.needs_send = true;
        }
        self.follow(now);
    }

    /// The next deadline.
    pub fn next_due(&self) -> Option<Instant> {
        let ports = self.ports.values();
        ports.filter_map(|port| port.next_due(&self.config)).min()
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The ports that may receive packets.
    pub fn collecting(&self) -> BTreeSet<u16> {
        self.ports_at(Mux::Collecting)
    }

    /// The ports that may send packets.
    pub fn distributing(&self) -> BTreeSet<u16> {
        self.ports_at(Mux::Distributing)
    }

    fn ports_at(&self, mux: Mux) -> BTreeSet<u16> {
        let ports = self.ports.iter().filter(|(_, port)| port.mux >= mux);
        ports.map(|(number, _)| *number).collect()
    }

    pub fn partner(&self) -> Option<Partner> {
        self.partner
    }

    pub fn ports(&self) -> impl Iterator<Item = PortView> {
        let config = &self.config;
        self.ports.iter().map(|(number, port)| PortView {
            port: *number,
            receive: match port.receive {
                Receive::Disabled => "down",
                Receive::Expired { .. } => "expired",
                Receive::Defaulted => "defaulted",
                Receive::Current { .. } => "current",
            },
            is_collecting: port.mux >= Mux::Collecting,
            is_distributing: port.mux >= Mux::Distributing,
            state: port.state(config),
            partner: Some(port.partner).filter(|it| it.system != MacAddr::default()),
        })
    }

    /// Selects ports, advances their states, and sends due messages.
    fn follow(&mut self, now: Instant) {
        let before = (self.collecting(), self.distributing());
        self.select();
        for port in self.ports.values_mut() {
            port.move_on();
        }
        if before != (self.collecting(), self.distributing()) {
            self.outputs.push_back(Output::Changed);
        }
        for (number, port) in &mut self.ports {
            if let Some(pdu) = port.take_due(now, (&self.config, *number)) {
                let port = *number;
                self.outputs.push_back(Output::Send { port, pdu });
            }
        }
    }

    /// Selects the ports with the bond's partner, which is the partner of the first such port.
    fn select(&mut self) {
        if !self.ports.values().any(|port| port.is_selected) {
            self.partner = None;
        }
        for (number, port) in &mut self.ports {
            let is_current = matches!(port.receive, Receive::Current { .. });
            if !is_current || port.is_selected || !port.partner.state.has(State::AGGREGATION) {
                continue;
            }
            let heard = Partner::of(&port.partner);
            let was_strange = port.is_strange;
            let number = *number;
            let problem = if heard.system == self.config.system {
                Some(Output::Loop { port: number })
            } else if *self.partner.get_or_insert(heard) != heard {
                Some(Output::OtherPartner {
                    port: number,
                    heard,
                })
            } else {
                None
            };
            (port.is_selected, port.is_strange) = (problem.is_none(), problem.is_some());
            self.outputs.extend(problem.filter(|_| !was_strange));
        }
    }
}

impl Port {
    fn new(config: &Config) -> Port {
        let mut port = Port {
            receive: Receive::Disabled,
            mux: Mux::Detached,
            is_selected: false,
            is_strange: false,
            is_adopted: false,
            partner: End::default(),
            needs_send: false,
            may_send: Instant::START,
            periodic: None,
            sending: Budget::new(Instant::START, SENT_PER_S, SENT_PER_S),
            hearing: Budget::new(Instant::START, HEARD_PER_S, HEARD_PER_S),
        };
        port.forget(config);
        port
    }

    /// Forgets the partner.
    fn forget(&mut self, config: &Config) {
        let state = State::default().with(State::SHORT_TIMEOUT, config.is_fast);
        self.partner = End {
            state,
            ..End::default()
        };
        (self.is_selected, self.is_strange, self.is_adopted) = (false, false, false);
    }

    /// Expires the partner: it is asked often, and its port is not used.
    fn expire(&mut self, now: Instant) {
        let until = now + SHORT_TIMEOUT;
        self.receive = Receive::Expired { until };
        self.partner.state.set(State::SYNCHRONIZATION, false);
        self.partner.state.set(State::SHORT_TIMEOUT, true);
        self.needs_send = true;
    }

    fn state(&self, config: &Config) -> State {
        let bits = [
            (State::ACTIVITY, config.is_active),
            (State::SHORT_TIMEOUT, config.is_fast),
            (State::AGGREGATION, true),
            (State::SYNCHRONIZATION, self.mux >= Mux::Attached),
            (State::COLLECTING, self.mux >= Mux::Collecting),
            (State::DISTRIBUTING, self.mux >= Mux::Distributing),
            (State::DEFAULTED, self.receive == Receive::Defaulted),
            (
                State::EXPIRED,
                matches!(self.receive, Receive::Expired { .. }),
            ),
        ];
        let mut state = State::default();
        for (bit, is_set) in bits {
            state.set(bit, is_set);
        }
        state
    }

    fn actor(&self, (config, number): (&Config, u16)) -> End {
        End {
            system_priority: PRIORITY,
            system: config.system,
            key: config.key,
            port_priority: PRIORITY,
            port: number,
            state: self.state(config),
        }
    }

    /// Records the partner's own state from its message, and compares its view of us with ours.
    fn record(&mut self, now: Instant, pdu: &Pdu, own: (&Config, u16)) {
        let actor = self.actor(own);
        let same = |bit| actor.state.has(bit) == pdu.partner.state.has(bit);
        let knows_us = actor.is_same(&pdu.partner) && same(State::AGGREGATION);
        let is_told = [
            State::ACTIVITY,
            State::SHORT_TIMEOUT,
            State::SYNCHRONIZATION,
        ];
        self.needs_send |= !knows_us || !is_told.into_iter().all(same);
        let heard = pdu.actor;
        let aggregates = |end: &End| end.state.has(State::AGGREGATION);
        if !heard.is_same(&self.partner) || aggregates(&heard) != aggregates(&self.partner) {
            (self.is_selected, self.is_strange) = (false, false);
        }
        let is_active = |end: &End| end.state.has(State::ACTIVITY);
        let goes_on = is_active(&heard) || own.0.is_active && is_active(&pdu.partner);
        let is_in_sync = heard.state.has(State::SYNCHRONIZATION) && knows_us && goes_on;
        (self.partner, self.is_adopted) = (heard, false);
        let state = &mut self.partner.state;
        state.set(State::SYNCHRONIZATION, is_in_sync);
        let until = now + own.0.timeout();
        self.receive = Receive::Current { until };
    }

    fn move_on(&mut self) {
        let has = |bit| self.partner.state.has(bit);
        let is_in_sync = has(State::SYNCHRONIZATION);
        let mux = match (self.is_selected, is_in_sync, has(State::COLLECTING)) {
            (false, _, _) => Mux::Detached,
            (true, false, _) => Mux::Attached,
            (true, true, false) => Mux::Collecting,
            (true, true, true) => Mux::Distributing,
        };
        self.needs_send |= mux != self.mux;
        self.mux = mux;
    }

    /// The time between two messages; `None` if none may be sent, or both ends wait for each other.
    fn interval(&self, config: &Config) -> Option<Duration> {
        let sends = config.is_active || self.partner.state.has(State::ACTIVITY);
        let interval = match self.partner.state.has(State::SHORT_TIMEOUT) {
            true => FAST_PERIODIC,
            false => SLOW_PERIODIC,
        };
        let may_send = self.receive != Receive::Disabled && !self.is_adopted;
        (sends && may_send).then_some(interval)
    }

    /// Takes a message that is due, within the limit.
    fn take_due(&mut self, now: Instant, own: (&Config, u16)) -> Option<Pdu> {
        let Some(interval) = self.interval(own.0) else {
            (self.needs_send, self.periodic) = (false, None);
            return None;
        };
        // A shorter interval begins at once.
        let periodic = self.periodic.filter(|due| *due <= now + interval);
        self.needs_send |= periodic.is_none_or(|due| due <= now);
        self.periodic = periodic.filter(|due| *due > now).or(Some(now + interval));
        if !self.needs_send {
            return None;
        }
        if !self.sending.take(now) {
            self.may_send = now + SEND_AGAIN;
            return None;
        }
        self.needs_send = false;
        Some(Pdu {
            actor: self.actor(own),
            partner: self.partner,
        })
    }

    fn next_due(&self, config: &Config) -> Option<Instant> {
        let silent = match self.receive {
            Receive::Expired { until } | Receive::Current { until } => Some(until),
            Receive::Disabled | Receive::Defaulted => None,
        };
        let sends = self.interval(config).is_some();
        let again = Some(self.may_send).filter(|_| self.needs_send && sends);
        let times = [silent, self.periodic.filter(|_| sends), again];
        times.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
