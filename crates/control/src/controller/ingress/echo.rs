//! Broadcasts that arrive again.
//!
//! A broadcast leaves by every edge port. A broadcast that the controller has sent, and that
//! arrives at another edge a moment later, has crossed a link that discovery has not found: all
//! LLDP there was lost, for example. Sending it again would make it circle over that link through
//! the controller.
//!
//! Recent broadcasts have places in a table of fixed size. A later broadcast may take the place of
//! another, whose echo then looks like a new broadcast.

use clock::{Duration, Instant, mix, ms};

use crate::Location;
use crate::controller::hosts::MOVE_MIN;
use crate::vlan::VlanId;

/// The time in which a broadcast may return. Its sender cannot have moved within it, unless its
/// port has been down.
const WITHIN: Duration = MOVE_MIN;

/// The same time where that port has been down: no host leaves it and sends elsewhere in less.
const WITHIN_A_MOVE: Duration = ms(100);

/// Far more broadcasts than are sent in the time of one lap through the controller.
const PLACES: usize = 1024;

/// The recent broadcasts.
pub(super) struct Echoes {
    /// Keeps hosts from choosing frames whose numbers collide.
    seed: u64,
    sent: Box<[Option<Sent>]>,
}

#[derive(Clone, Copy)]
struct Sent {
    number: u64,
    /// The edge port where the broadcast arrived.
    from: Location,
    at: Instant,
}

impl Echoes {
    pub(super) fn new(seed: u64) -> Echoes {
        Echoes {
            seed,
            sent: vec![None; PLACES].into(),
        }
    }

    /// The number of a frame, a keyed hash. A switch on its path may have padded the frame with
    /// zeros.
    pub(super) fn number(&self, vlan: VlanId, frame: &[u8]) -> u64 {
        let end = frame.iter().rposition(|byte| *byte != 0);
        let frame = &frame[..end.map_or(0, |end| end + 1)];
        let (words, rest) = frame.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let head = u64::from(vlan.number()) << 48 | frame.len() as u64;
        let words = words
            .iter()
            .chain([&last])
            .map(|word| u64::from_le_bytes(*word));
        words.fold(mix(self.seed ^ head), |hash, word| {
            mix(hash ^ word).wrapping_add(self.seed)
        })
    }

    /// The other port where the frame with this number arrived a moment ago, and was sent on.
    /// `was_down`: whether a port has been down since.
    pub(super) fn source(
        &self,
        now: Instant,
        (number, at): (u64, Location),
        was_down: impl Fn(Location) -> bool,
    ) -> Option<Location> {
        let sent = self.sent[place(number)].filter(|sent| sent.number == number)?;
        let within = match was_down(sent.from) {
            true => WITHIN_A_MOVE,
            false => WITHIN,
        };
        let is_echo = sent.from != at && now.since(sent.at) < within;
        is_echo.then_some(sent.from)
    }

    /// Notes that a frame has been sent on.
    pub(super) fn note(&mut self, now: Instant, number: u64, from: Location) {
        self.sent[place(number)] = Some(Sent {
            number,
            from,
            at: now,
        });
    }
}

fn place(number: u64) -> usize {
    number as usize % PLACES
}
