//! PORT_MOD: the ports belong to the switch, so a guest changes only which packets it gets itself.

use openflow::message::{Port, PortConfig, PortMod, PortReason, PortStatus};
use openflow::multipart::{ReplyBody, RequestBody};
use openflow::{ErrorKind, Message, PortNo, Xid};

use super::answers::{Asked, Purpose};
use super::{ASKED_MAX, Machine, Origin, Output, in_v13};

const SILENT: u32 = PortConfig::NO_PACKET_IN.0;

impl Machine {
    /// Asks the switch for its ports, to judge the change against them.
    pub(super) fn port_mod(&mut self, origin: &Origin, asked: PortMod) -> Result<(), ErrorKind> {
        if !self.slice.has_port(asked.port_no) {
            return Err(ErrorKind::PORT_MOD_BAD_PORT);
        }
        if self.asked.len() >= ASKED_MAX {
            return Err(ErrorKind::PORT_MOD_EPERM);
        }
        let ticket = self.next_ticket();
        let asked = Asked {
            xid: origin.xid,
            purpose: Purpose::Port(origin.clone(), asked),
        };
        self.asked.insert(ticket, asked);
        let body = RequestBody::PortDesc(PortNo::ANY);
        self.outputs.push_back(Output::Ask(ticket, body));
        Ok(())
    }

    /// Changes whether the guest gets packets of a port that no entry of its own matches.
    ///
    /// # Errors
    /// The OFPPMFC_* to answer.
    pub(super) fn set_port(
        &mut self,
        asked: &PortMod,
        bodies: Vec<ReplyBody>,
    ) -> Result<(), ErrorKind> {
        let ports = bodies.into_iter().flat_map(|body| match body {
            ReplyBody::PortDesc(ports) => ports,
            _ => Vec::new(),
        });
        let ports: Vec<Port> = ports.collect();
        self.silent
            .retain(|number| ports.iter().any(|port| port.port_no == *number));
        let port = ports
            .into_iter()
            .find(|port| port.port_no == asked.port_no)
            .ok_or(ErrorKind::PORT_MOD_BAD_PORT)?;
        if port.hw_addr != asked.hw_addr {
            return Err(ErrorKind::PORT_MOD_BAD_HW_ADDR);
        }
        let (real, number) = (port.config.0, port.port_no);
        let shown = self.shown(port.clone()).config.0;
        let wanted = shown & !asked.mask.0 | asked.config.0 & asked.mask.0;
        if (real ^ wanted) & !SILENT != 0 || real & !wanted & SILENT != 0 {
            return Err(ErrorKind::PORT_MOD_EPERM);
        }
        match wanted & !real & SILENT != 0 {
            true => self.silent.insert(number),
            false => self.silent.remove(&number),
        };
        if wanted != shown && self.wants(|masks| masks.port_status_mask, PortReason::MODIFY.0) {
            let port = self.shown(port);
            let reason = PortReason::MODIFY;
            self.reply(Xid(0), &Message::PortStatus(PortStatus { reason, port }));
        }
        Ok(())
    }

    /// A port as the guest has set it.
    pub(super) fn shown(&self, port: Port) -> Port {
        let mut port = in_v13::port(port);
        if self.silent.contains(&port.port_no) {
            port.config.0 |= SILENT;
        }
        port
    }
}
