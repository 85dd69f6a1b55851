//! The guard of a session: its requests, the switch's answers, and the messages that reach the
//! application meanwhile.

use clock::Instant;
use openflow::message::{ErrorMessage, Port, PortReason, PortStatus, Role};
use openflow::{ErrorKind, Frame, Message, MessageKind, Version, Xid};

use super::setup::Early;
use super::{CloseReason, SESSION_XID, Session, SessionOutput, SwitchUp};
use crate::guard::{Guard, GuardOutput};

pub(super) struct Roles {
    pub(super) guard: Guard,
    /// The xid of the guard's last request.
    xid: Option<Xid>,
    /// The switch as the application will see it, with its current ports.
    up: SwitchUp,
    early: Early,
}

impl Roles {
    pub(super) fn new(guard: Guard, up: SwitchUp, early: Early) -> Roles {
        Roles {
            guard,
            xid: None,
            up,
            early,
        }
    }

    fn take_port(&mut self, reason: PortReason, port: &Port) {
        let ports = &mut self.up.ports;
        let place = ports.binary_search_by_key(&port.port_no, |known| known.port_no);
        match (place, reason) {
            (Ok(at), PortReason::DELETE) => drop(ports.remove(at)),
            (Err(_), PortReason::DELETE) => {}
            (Ok(at), _) => ports[at] = port.clone(),
            (Err(at), _) => ports.insert(at, port.clone()),
        }
    }
}

impl Session {
    /// Handles a message of a switch that is up. Returns whether it is not for the application: an
    /// answer to the guard, or any message while another controller serves the switch.
    pub(super) fn is_guards(
        &mut self,
        now: Instant,
        version: Version,
        frame: &Frame,
        message: &Message,
    ) -> bool {
        let Some(roles) = &mut self.roles else {
            return false;
        };
        let is_answer = roles.xid == Some(frame.xid());
        match message {
            Message::RoleReply(reply) if is_answer => {
                let reply = *reply;
                self.guard(now, version, |roles| roles.guard.handle_reply(now, reply));
            }
            Message::Error(error) if is_answer => {
                let kind = error.kind;
                self.guard(now, version, |roles| roles.guard.handle_refused(now, kind));
            }
            Message::RoleStatus(status) => {
                let status = status.clone();
                self.guard(now, version, |roles| roles.guard.handle_status(now, status));
            }
            Message::PortStatus(PortStatus { reason, port }) => {
                roles.take_port(*reason, port);
                if roles.up.ports.len() > self.config.port_count_max {
                    self.close(CloseReason::TooManyPorts);
                    return true;
                }
                return !roles.guard.is_serving();
            }
            Message::Error(error) if is_of_slave(frame.xid(), error) => {
                roles.guard.handle_slave_error();
                return !roles.guard.is_serving();
            }
            _ if roles.guard.is_serving() => return false,
            Message::PacketIn(_)
                if roles.guard.is_undecided() && roles.early.keep(frame.clone()) => {}
            Message::PacketIn(_) | Message::FlowRemoved(_) => self.counters.early += 1,
            _ => self.counters.unexpected += 1,
        }
        true
    }

    /// Gives the guard an input, and carries out its decisions.
    pub(super) fn guard(&mut self, now: Instant, version: Version, input: impl FnOnce(&mut Roles)) {
        let Some(mut roles) = self.roles.take() else {
            return;
        };
        input(&mut roles);
        while let Some(output) = roles.guard.poll_output() {
            match output {
                GuardOutput::Request(role) => {
                    roles.xid = Some(self.request(version, &Message::RoleRequest(role)));
                }
                GuardOutput::Serve => {
                    roles.up.role = match roles.guard.has_roles() {
                        true => Role::Primary,
                        false => Role::Equal,
                    };
                    let up = Box::new(roles.up.clone());
                    self.start(up, roles.early.take());
                    self.echo_in_turn(now, version);
                }
                GuardOutput::Aside => {
                    drop(roles.early.take());
                    let dpid = roles.up.features.datapath_id;
                    self.outputs.push_back(SessionOutput::Aside(dpid));
                }
            }
        }
        self.roles = Some(roles);
    }

    pub(super) fn guard_due(&self) -> Option<Instant> {
        self.roles.as_ref()?.guard.poll_timeout()
    }

    /// The time by which a switch that knows roles must have answered the guard.
    pub(super) fn role_due(&self) -> Option<Instant> {
        let since = self.roles.as_ref()?.guard.waits_since()?;
        Some(since.max(self.resumed_at) + self.config.features_timeout)
    }
}

/// Whether the switch has refused a change of the application because the connection was slave. A
/// lost packet is no such change.
fn is_of_slave(xid: Xid, error: &ErrorMessage) -> bool {
    let is_of_session = xid.0 & SESSION_XID != 0;
    let refused = match error.data[..] {
        [version, ty, ..] => MessageKind::from_wire(version, ty),
        _ => MessageKind::Unknown,
    };
    error.kind == ErrorKind::IS_SLAVE && !is_of_session && refused != MessageKind::PacketOut
}
