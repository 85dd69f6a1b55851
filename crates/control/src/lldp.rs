//! LLDP as proof: which port and switch sent a frame, that we asked for it, and when.
//!
//! A frame is LLDP (IEEE 802.1AB) with chassis and port ids as other controllers write them, and
//! one organisational TLV: `epoch, nonce, HMAC-SHA256(key, dpid | port | epoch | nonce)`. The key
//! and the epoch belong to this process, and a nonce is valid once. So a forged or changed frame
//! proves nothing.

use std::collections::VecDeque;

use clock::Instant;
use hmac::{Hmac, KeyInit, Mac};
use openflow::{DatapathId, MacAddr, PortNo};
use sha2::Sha256;

use crate::Location;
use crate::entry::ETH_TYPE_LLDP;

/// "Nearest bridge": no conforming bridge forwards it.
const LLDP_MULTICAST: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e]);

/// Locally administered, so no vendor owns it.
const OUI: [u8; 3] = [0x02, b'a', b'u'];
const SUBTYPE: u8 = 1;
const TTL_S: u16 = 120;
const PROOF_LEN: usize = 8 + 8 + 32;

/// The length of a full-size Ethernet frame with a VLAN tag, without its checksum.
pub(crate) const WIDE_LEN: usize = 14 + 4 + 1500;

/// Maximum number of outstanding nonces of one port.
const OUTSTANDING_MAX: usize = 32;

/// Signs and checks LLDP frames.
pub(crate) struct Prover {
    key: [u8; 32],
    epoch: u64,
    nonce: u64,
}

/// Nonces that were sent out of one port and have not returned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outstanding {
    sent: VecDeque<(u64, Instant)>,
    /// The latest nonce that was given up.
    given_up: u64,
}

/// A frame that carries our proof, read but not yet matched with a sent nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    pub from: Location,
    pub nonce: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LldpError {
    /// LLDP of others: hosts and other switches send it regularly.
    NotOurs,
    /// Our own LLDP, received too late to prove anything.
    Late,
    /// LLDP that claims to be ours and is not.
    Forged(&'static str),
}

impl Prover {
    pub(crate) fn new(key: [u8; 32], epoch: u64) -> Prover {
        Prover {
            key,
            epoch,
            nonce: 0,
        }
    }

    /// Makes a frame for `port` and notes its nonce in `outstanding`.
    pub(crate) fn frame(
        &mut self,
        now: Instant,
        at: Location,
        hw_addr: MacAddr,
        outstanding: &mut Outstanding,
    ) -> Vec<u8> {
        self.nonce += 1;
        outstanding.sent.push_back((self.nonce, now));
        if outstanding.sent.len() > OUTSTANDING_MAX
            && let Some((nonce, _)) = outstanding.sent.pop_front()
        {
            outstanding.given_up = nonce;
        }
        let mut frame = Vec::with_capacity(128);
        frame.extend(LLDP_MULTICAST.0);
        frame.extend(hw_addr.0);
        frame.extend(ETH_TYPE_LLDP.to_be_bytes());
        let chassis = format!("dpid:{}", at.dpid);
        tlv(&mut frame, 1, &[&[7], chassis.as_bytes()]);
        tlv(&mut frame, 2, &[&[2], &at.port.0.to_be_bytes()]);
        tlv(&mut frame, 3, &[&TTL_S.to_be_bytes()]);
        let mac = self.mac(at, self.epoch, self.nonce).finalize().into_bytes();
        let (epoch, nonce) = (self.epoch.to_be_bytes(), self.nonce.to_be_bytes());
        tlv(&mut frame, 127, &[&OUI, &[SUBTYPE], &epoch, &nonce, &mac]);
        tlv(&mut frame, 0, &[]);
        frame
    }

    /// Reads `frame`, which may contain any bytes.
    pub(crate) fn read(&self, frame: &[u8]) -> Result<Proven, LldpError> {
        let (mut chassis, mut port, mut proof) = (None, None, None);
        let is_tagged = frame.get(12..14) != Some(&ETH_TYPE_LLDP.to_be_bytes());
        let start = if is_tagged { 18 } else { 14 };
        let mut tlvs = frame.get(start..).ok_or(LldpError::NotOurs)?;
        while let Some((header, rest)) = tlvs.split_first_chunk::<2>() {
            let header = u16::from_be_bytes(*header);
            let (kind, len) = (header >> 9, usize::from(header & 0x1ff));
            let (value, rest) = rest.split_at_checked(len).ok_or(LldpError::NotOurs)?;
            tlvs = rest;
            match (kind, value) {
                (0, _) => break,
                (1, [7, id @ ..]) => chassis = read_chassis(id),
                (2, [2, id @ ..]) => port = <[u8; 4]>::try_from(id).ok().map(u32::from_be_bytes),
                (127, [a, b, c, SUBTYPE, value @ ..]) if [*a, *b, *c] == OUI => {
                    proof = Some(value);
                }
                _ => {}
            }
        }
        let proof = proof.ok_or(LldpError::NotOurs)?;
        let (Some(dpid), Some(port)) = (chassis, port) else {
            return Err(LldpError::Forged("no chassis or port id of ours"));
        };
        let proof: &[u8; PROOF_LEN] = proof
            .try_into()
            .map_err(|_| LldpError::Forged("proof of a wrong length"))?;
        let word = |at: usize| {
            proof[at..at + 8]
                .iter()
                .fold(0, |n, b| n << 8 | u64::from(*b))
        };
        let (epoch, nonce) = (word(0), word(8));
        let from = Location::new(dpid, PortNo(port));
        if epoch != self.epoch {
            return Err(LldpError::Forged("of another process"));
        }
        let genuine = self.mac(from, epoch, nonce).verify_slice(&proof[16..]);
        genuine.map_err(|_| LldpError::Forged("proof does not hold"))?;
        Ok(Proven { from, nonce })
    }

    fn mac(&self, at: Location, epoch: u64, nonce: u64) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length is a key");
        mac.update(&at.dpid.0.to_be_bytes());
        mac.update(&at.port.0.to_be_bytes());
        mac.update(&epoch.to_be_bytes());
        mac.update(&nonce.to_be_bytes());
        mac
    }
}

impl Outstanding {
    /// Uses `nonce` up and returns the time when it was sent.
    ///
    /// # Errors
    /// The nonce was not sent from here, was used before, or was given up.
    pub(crate) fn take(&mut self, nonce: u64) -> Result<Instant, LldpError> {
        let at = self.sent.iter().position(|(n, _)| *n == nonce);
        let taken = at.and_then(|at| self.sent.remove(at));
        match taken {
            Some((_, sent_at)) => Ok(sent_at),
            None if nonce <= self.given_up => Err(LldpError::Late),
            None => Err(LldpError::Forged("nonce used or never sent")),
        }
    }

    /// Whether a nonce that was sent at this time has not returned.
    pub(crate) fn has(&self, then: Instant) -> bool {
        self.sent.iter().any(|(_, sent_at)| *sent_at == then)
    }

    /// The number of nonces sent after `since` and until `until` that have not returned.
    pub(crate) fn count(&self, since: Instant, until: Instant) -> usize {
        let sent = self.sent.iter().map(|(_, sent_at)| *sent_at);
        sent.filter(|sent| *sent > since && *sent <= until).count()
    }
}

/// Returns the frame as a packet of the fabric: full-size, with a tag of this EtherType and a VLAN
/// id that no switch has.
pub(crate) fn widen(mut frame: Vec<u8>, tag: u16) -> Vec<u8> {
    let tag = tag.to_be_bytes();
    frame.splice(12..12, [tag[0], tag[1], 0, 0]);
    frame.resize(WIDE_LEN, 0);
    frame
}

fn read_chassis(id: &[u8]) -> Option<DatapathId> {
    let hex = std::str::from_utf8(id).ok()?.strip_prefix("dpid:")?;
    let dpid = u64::from_str_radix(hex, 16).ok()?;
    (hex.len() == 16).then_some(DatapathId(dpid))
}

fn tlv(frame: &mut Vec<u8>, kind: u16, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    frame.extend((kind << 9 | len as u16).to_be_bytes());
    parts.iter().for_each(|p| frame.extend(*p));
}

#[cfg(test)]
mod tests {
    use clock::Duration;

    use super::*;

    const AT: Location = Location::new(DatapathId(0xabc), PortNo(7));
    fn sent() -> (Prover, Outstanding, Vec<u8>) {
        let mut prover = Prover::new([9; 32], 77);
        let mut outstanding = Outstanding::default();
        let frame = prover.frame(Instant::START, AT, MacAddr([2; 6]), &mut outstanding);
        (prover, outstanding, frame)
    }

    #[test]
    fn a_frame_says_where_it_came_from_once_and_for_a_while() {
        let (mut prover, mut outstanding, frame) = sent();
        let proven = prover.read(&frame).expect("our own");
        assert_eq!(proven.from, AT);
        let mut in_time = outstanding.clone();
        assert_eq!(in_time.take(proven.nonce), Ok(Instant::START));
        let replayed = in_time.take(proven.nonce);
        assert!(
            matches!(replayed, Err(LldpError::Forged(_))),
            "{replayed:?}"
        );
        for n in 1..=OUTSTANDING_MAX as u64 {
            let now = Instant::START + Duration::from_secs(n);
            prover.frame(now, AT, MacAddr([2; 6]), &mut outstanding);
        }
        let late = outstanding.take(proven.nonce);
        assert_eq!(late, Err(LldpError::Late), "ours, and no forgery");
        let second = |n| Instant::START + Duration::from_secs(n);
        assert_eq!(outstanding.count(second(3), second(7)), 4);
    }

    #[test]
    fn a_full_size_frame_proves_the_same() {
        let (prover, _, frame) = sent();
        let small = prover.read(&frame).expect("our own");
        for tag in [0x8100, 0x88a8] {
            let wide = widen(frame.clone(), tag);
            assert_eq!(wide.len(), WIDE_LEN);
            assert_eq!(prover.read(&wide), Ok(small));
            // A switch may send the beginning only.
            assert_eq!(prover.read(&wide[..128]), Ok(small));
        }
    }

    #[test]
    fn no_changed_bit_and_no_cut_passes_for_another_place() {
        let (prover, _, frame) = sent();
        for bit in 14 * 8..frame.len() * 8 {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            if let Ok(proven) = prover.read(&changed) {
                assert_eq!(proven.from, AT, "bit {bit}");
            }
        }
        for cut in 0..frame.len() - 2 {
            assert!(prover.read(&frame[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn another_process_and_another_key_prove_nothing() {
        let (_, _, frame) = sent();
        let other_epoch = Prover::new([9; 32], 78);
        assert_eq!(
            other_epoch.read(&frame),
            Err(LldpError::Forged("of another process"))
        );
        let other_key = Prover::new([8; 32], 77);
        assert_eq!(
            other_key.read(&frame),
            Err(LldpError::Forged("proof does not hold"))
        );
    }

    #[test]
    fn odd_tlvs_are_read_as_not_ours() {
        let prover = Prover::new([9; 32], 77);
        let head = [0u8; 14];
        for body in [
            &[0x02, 0x00][..],
            &[],
            &[0xff, 0xff, 1],
            &[0x03, 0xff],
            &[0, 0, 0, 0],
        ] {
            let frame = [&head, body].concat();
            assert_eq!(prover.read(&frame), Err(LldpError::NotOurs), "{body:02x?}");
        }
    }
}
