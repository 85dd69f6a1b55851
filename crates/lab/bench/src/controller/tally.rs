//! The counts at one switch, and summed over all.

use serde::Serialize;

/// Nothing is counted in two of these: an answer that is wrong, late or a second one is not
/// `answered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub sent: u64,
    /// Packet-ins that have the answer that was asked for.
    pub answered: u64,
    /// No answer within the time allowed.
    pub missing: u64,
    /// An answer, after the packet-in was given up.
    pub late: u64,
    /// The same kind of answer again.
    pub duplicate: u64,
    /// The other kind beside the one that counts; on a line of switches, one hop on; among
    /// exchanges, another switch's broadcast.
    pub companion: u64,
    /// Answers sent to every port although the destination's port is known.
    pub flooded: u64,
    /// Out of another port than the destination's.
    pub wrong_port: u64,
    /// Names a buffer that holds no packet.
    pub wrong_buffer: u64,
    /// A FLOW_MOD whose match is not of the packet.
    pub wrong_match: u64,
    /// A PACKET_OUT whose packet was changed.
    pub wrong_packet: u64,
    /// FLOW_MODs and PACKET_OUTs that answer nothing we sent.
    pub unsolicited: u64,
    /// Open loop: the controller was so far behind that there was no place for one more.
    pub unsent: u64,
    /// Links looked for: LLDP among the PACKET_OUTs.
    pub discovery: u64,
    /// OFPT_ERROR messages of the controller, and messages that make no sense.
    pub errors: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        for (sum, (_, more)) in self.fields_mut().into_iter().zip(other.fields()) {
            *sum += more;
        }
    }

    /// The counts since `before`.
    #[must_use]
    pub fn since(&self, before: &Tally) -> Tally {
        let mut difference = *self;
        for (field, (_, less)) in difference.fields_mut().into_iter().zip(before.fields()) {
            *field -= less;
        }
        difference
    }

    pub fn wrong(&self) -> u64 {
        self.wrong_port + self.wrong_buffer + self.wrong_match + self.wrong_packet
    }

    /// Answers to packets of ours, right or not.
    pub fn heard(&self) -> u64 {
        self.answered + self.late + self.companion + self.flooded + self.wrong()
    }

    /// The faults that an honest controller has none of, in words; empty if there is none.
    pub fn faults(&self) -> String {
        let faults = self.fields().into_iter().filter(|(name, count)| {
            !matches!(*name, "sent" | "answered" | "companion" | "discovery") && *count > 0
        });
        let words = faults.map(|(name, count)| format!("{count} {}", name.replace('_', " ")));
        words.collect::<Vec<_>>().join(", ")
    }

    fn fields(&self) -> [(&'static str, u64); 15] {
        [
            ("sent", self.sent),
            ("answered", self.answered),
            ("missing", self.missing),
            ("late", self.late),
            ("duplicate", self.duplicate),
            ("companion", self.companion),
            ("flooded", self.flooded),
            ("wrong_port", self.wrong_port),
            ("wrong_buffer", self.wrong_buffer),
            ("wrong_match", self.wrong_match),
            ("wrong_packet", self.wrong_packet),
            ("unsolicited", self.unsolicited),
            ("unsent", self.unsent),
            ("discovery", self.discovery),
            ("errors", self.errors),
        ]
    }

    fn fields_mut(&mut self) -> [&mut u64; 15] {
        [
            &mut self.sent,
            &mut self.answered,
            &mut self.missing,
            &mut self.late,
            &mut self.duplicate,
            &mut self.companion,
            &mut self.flooded,
            &mut self.wrong_port,
            &mut self.wrong_buffer,
            &mut self.wrong_match,
            &mut self.wrong_packet,
            &mut self.unsolicited,
            &mut self.unsent,
            &mut self.discovery,
            &mut self.errors,
        ]
    }
}
