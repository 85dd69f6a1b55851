//! The counts at one switch, and summed over all.

use serde::Serialize;

/// The counts at a switch. Nothing is counted in two of them: a wrong, late or second answer is not
/// `answered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Packet-ins, including those that waited when the measuring began.
    pub sent: u64,
    /// Packet-ins that have the answer that was asked for.
    pub answered: u64,
    /// Packet-ins without an answer within the time allowed.
    pub missing: u64,
    /// Answers that arrived after the packet-in was given up.
    pub late: u64,
    /// Further answers of the same kind.
    pub duplicate: u64,
    /// Answers of the other kind, beside the one that counts; on a line of switches, packets
    /// forwarded one hop; in exchanges, broadcasts of another switch.
    pub companion: u64,
    /// Answers sent to every port although the destination's port is known.
    pub flooded: u64,
    /// Answers out of another port than the destination's.
    pub wrong_port: u64,
    /// Answers that name a buffer without a packet.
    pub wrong_buffer: u64,
    /// FLOW_MODs whose match is not of the packet.
    pub wrong_match: u64,
    /// PACKET_OUTs whose packet was changed.
    pub wrong_packet: u64,
    /// FLOW_MODs and PACKET_OUTs that answer nothing we sent.
    pub unsolicited: u64,
    /// Open loop: packet-ins not sent, because the controller was so far behind that no slot was
    /// free.
    pub unsent: u64,
    /// PACKET_OUTs with LLDP, by which a controller looks for links.
    pub discovery: u64,
    /// OFPT_ERROR messages of the controller, and messages that make no sense.
    pub errors: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        *self = self.with(other, u64::wrapping_add);
    }

    /// The counts since `before`.
    #[must_use]
    pub fn since(&self, before: &Tally) -> Tally {
        self.with(before, u64::wrapping_sub)
    }

    fn with(&self, other: &Tally, of: fn(u64, u64) -> u64) -> Tally {
        Tally {
            sent: of(self.sent, other.sent),
            answered: of(self.answered, other.answered),
            missing: of(self.missing, other.missing),
            late: of(self.late, other.late),
            duplicate: of(self.duplicate, other.duplicate),
            companion: of(self.companion, other.companion),
            flooded: of(self.flooded, other.flooded),
            wrong_port: of(self.wrong_port, other.wrong_port),
            wrong_buffer: of(self.wrong_buffer, other.wrong_buffer),
            wrong_match: of(self.wrong_match, other.wrong_match),
            wrong_packet: of(self.wrong_packet, other.wrong_packet),
            unsolicited: of(self.unsolicited, other.unsolicited),
            unsent: of(self.unsent, other.unsent),
            discovery: of(self.discovery, other.discovery),
            errors: of(self.errors, other.errors),
        }
    }

    pub fn wrong(&self) -> u64 {
        self.wrong_port + self.wrong_buffer + self.wrong_match + self.wrong_packet
    }

    /// Answers to packets of ours, right or not.
    pub fn heard(&self) -> u64 {
        self.answered + self.late + self.companion + self.flooded + self.wrong()
    }

    /// Describes the faults, which an honest controller does not have; empty if there are none.
    pub fn faults(&self) -> String {
        let counts = serde_json::to_value(self).unwrap_or_default();
        let counts = counts.as_object().into_iter().flatten();
        let is_fault = |name: &str| !["sent", "answered", "companion", "discovery"].contains(&name);
        let faults = counts.filter(|(name, count)| is_fault(name) && **count != 0);
        let words = faults.map(|(name, count)| format!("{count} {}", name.replace('_', " ")));
        words.collect::<Vec<_>>().join(", ")
    }
}
