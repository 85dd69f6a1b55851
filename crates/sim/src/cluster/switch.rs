//! A model switch with the roles of OpenFlow 1.3.5, 6.3.6: generations are checked, and a replaced
//! master is notified.

use openflow::DatapathId;
use openflow::message::{Role, RoleMessage};

use control::ConnectionId;
use control::cluster::{Generation, ShardId};

/// One member's connection.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    pub id: ConnectionId,
    pub role: Role,
}

/// A switch and its connections, by member.
#[derive(Clone, Debug)]
pub struct ModelSwitch {
    pub dpid: DatapathId,
    pub shard: ShardId,
    pub connections: Vec<Option<Connection>>,
    generation: Option<Generation>,
    /// The member that has written since the role of master was given last.
    writer: Option<usize>,
}

/// The answer to a role request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleAnswer {
    Reply(RoleMessage),
    Stale,
}

impl ModelSwitch {
    pub fn new(dpid: DatapathId, shard: ShardId, members: usize) -> ModelSwitch {
        ModelSwitch {
            dpid,
            shard,
            connections: vec![None; members],
            generation: None,
            writer: None,
        }
    }

    /// Loses its power, and all its state.
    pub fn reboot(&mut self) {
        (self.generation, self.writer) = (None, None);
    }

    /// Handles a request. Returns the answer, and the members that are no longer masters.
    pub fn handle(&mut self, from: usize, request: RoleMessage) -> (RoleAnswer, Vec<usize>) {
        let generation = Generation(request.generation_id);
        let mut demoted = Vec::new();
        if matches!(request.role, Role::Primary | Role::Secondary) {
            let is_stale = |seen| generation.is_stale_after(seen);
            if self.generation.is_some_and(is_stale) {
                return (RoleAnswer::Stale, demoted);
            }
            self.generation = Some(generation);
        }
        if request.role == Role::Primary {
            for (member, connection) in self.connections.iter_mut().enumerate() {
                if let Some(connection) = connection
                    && connection.role == Role::Primary
                    && member != from
                {
                    connection.role = Role::Secondary;
                    demoted.push(member);
                }
            }
            if self.master() != Some(from) {
                self.writer = None;
            }
        }
        let Some(connection) = &mut self.connections[from] else {
            return (RoleAnswer::Stale, demoted);
        };
        if request.role != Role::NoChange {
            connection.role = request.role;
        }
        let reply = RoleMessage::new(
            connection.role,
            self.generation.unwrap_or(Generation::NONE).0,
        );
        (RoleAnswer::Reply(reply), demoted)
    }

    /// Handles a write of a member. Returns whether its role allows it. Returns an error if another
    /// member has written since the last change of roles.
    pub fn write(&mut self, from: usize) -> Result<bool, String> {
        let role = self.connections[from].map(|connection| connection.role);
        if role != Some(Role::Primary) && role != Some(Role::Equal) {
            return Ok(false);
        }
        if role == Some(Role::Equal) || self.writer.is_some_and(|writer| writer != from) {
            return Err(format!(
                "{}: writes of member {from} as {role:?} after those of {:?}",
                self.dpid, self.writer
            ));
        }
        self.writer = Some(from);
        Ok(true)
    }

    /// The member whose connection has the role of master.
    pub fn master(&self) -> Option<usize> {
        let is_master = |c: &Option<Connection>| c.is_some_and(|c| c.role == Role::Primary);
        self.connections.iter().position(is_master)
    }

    /// The generation that the switch checks against.
    pub fn generation(&self) -> Option<Generation> {
        self.generation
    }
}
