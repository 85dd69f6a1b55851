//! The first message of either end.

use bytes::{Buf, BufMut, BytesMut};

use super::{DSCP_MAX, SessionId, Side, WireError, put, take};

/// First message of either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub side: Side,
    pub session: SessionId,
    /// Whether the session is resumed: the controller side still has it, and the switch side has
    /// channels to resume.
    pub resumed: bool,
    /// Bytes per channel that the sender of these settings accepts before it has handed them over.
    pub window_bytes: u64,
    /// The code points that the sender's policy map gives to control messages, the greatest first.
    /// Empty without a map, and from earlier versions.
    pub code_points: Vec<u8>,
    /// The generation of that map.
    pub generation: u64,
    /// The number that distinguishes the sessions of the switch side under this id. The controller
    /// side draws it and sends it to the switch side. 0 if none was sent, and from earlier
    /// versions.
    pub life: u64,
    /// Whether the switch side continues as if the session was known, without waiting for the
    /// answer. If the session is not known, the switch side's messages up to
    /// [`super::Control::ResumeEnd`] are void.
    pub early: bool,
    /// The mode that the sender's operator allows. Both sides must allow keyed mode, or the mode is
    /// strict.
    pub order: OrderMode,
    /// Whether the sender understands datagrams of agents; earlier versions do not.
    pub takes_datagrams: bool,
    /// Whether the sender understands records without a head; earlier versions do not.
    pub takes_bare_records: bool,
}

/// The order that is kept among state changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrderMode {
    /// The order of arrival. The default, and the mode of earlier versions.
    #[default]
    Strict,
    /// The order of arrival among changes of the same addresses, and relative to changes that
    /// concern more.
    Keyed,
}

impl OrderMode {
    pub fn name(self) -> &'static str {
        match self {
            OrderMode::Strict => "strict",
            OrderMode::Keyed => "keyed",
        }
    }
}

const SHORT: WireError = WireError("settings that end early");

pub(super) fn encode(out: &mut BytesMut, settings: &Settings) {
    out.put_u8(settings.side as u8);
    out.put_slice(&settings.session.0);
    out.put_u8(settings.resumed.into());
    put(out, settings.window_bytes);
    put(out, settings.code_points.len() as u64);
    out.put_slice(&settings.code_points);
    out.put_u64(settings.generation);
    out.put_u64(settings.life);
    out.put_u8(settings.early.into());
    out.put_u8(settings.order as u8);
    out.put_u8(settings.takes_datagrams.into());
    out.put_u8(settings.takes_bare_records.into());
}

pub(super) fn decode(body: &[u8]) -> Result<Settings, WireError> {
    let (side, rest) = body.split_first().ok_or(SHORT)?;
    let (session, rest) = rest.split_first_chunk::<16>().ok_or(SHORT)?;
    let (resumed, mut at) = rest.split_first().ok_or(SHORT)?;
    let window_bytes = take(&mut at).ok_or(SHORT)?;
    let (code_points, mut at) = take_code_points(at)?;
    // Settings of earlier versions may end before any of these fields.
    let generation = at.try_get_u64().unwrap_or(0);
    let life = at.try_get_u64().unwrap_or(0);
    let early = at.try_get_u8().unwrap_or(0) == 1;
    let order = at.try_get_u8().ok();
    let takes_datagrams = at.try_get_u8() == Ok(1);
    let takes_bare_records = at.try_get_u8() == Ok(1);
    Ok(Settings {
        side: match side {
            0 => Side::Switch,
            _ => Side::Controller,
        },
        session: SessionId(*session),
        resumed: *resumed == 1,
        window_bytes,
        code_points,
        generation,
        life,
        early,
        order: match order {
            Some(1) => OrderMode::Keyed,
            _ => OrderMode::Strict,
        },
        takes_datagrams,
        takes_bare_records,
    })
}

/// Reads the code points, and returns the bytes after them. Earlier versions send at most their
/// number.
fn take_code_points(mut at: &[u8]) -> Result<(Vec<u8>, &[u8]), WireError> {
    let count = take(&mut at).unwrap_or(0);
    if count > u64::from(DSCP_MAX) + 1 {
        return Err(WireError("more code points than there are"));
    }
    let Some((points, at)) = at.split_at_checked(count as usize) else {
        return Ok((Vec::new(), &[]));
    };
    let is_descending = points.is_sorted_by(|a, b| a > b);
    if !is_descending || points.first().is_some_and(|greatest| *greatest > DSCP_MAX) {
        return Err(WireError("code points that are above 63 or out of order"));
    }
    Ok((points.to_vec(), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(code_points: &[u8]) -> BytesMut {
        let settings = Settings {
            side: Side::Switch,
            session: SessionId([7; 16]),
            resumed: false,
            window_bytes: 4 << 20,
            code_points: code_points.to_vec(),
            generation: 9,
            life: 1 << 40,
            early: true,
            order: OrderMode::Keyed,
            takes_datagrams: true,
            takes_bare_records: true,
        };
        let mut bytes = BytesMut::new();
        encode(&mut bytes, &settings);
        bytes
    }

    #[test]
    fn earlier_versions_have_no_code_points() {
        let whole = encoded(&[]);
        let without_list = whole.len() - 21;
        for (tail, what) in [(&[][..], "nothing"), (&[2], "a number alone")] {
            let bytes = [&whole[..without_list], tail].concat();
            let settings = decode(&bytes).expect(what);
            assert!(settings.code_points.is_empty(), "{what}");
            assert_eq!(settings.order, OrderMode::Strict, "{what}");
            assert!(!settings.takes_datagrams, "{what}");
        }
    }

    #[test]
    fn earlier_versions_end_before_what_was_added() {
        let whole = encoded(&[48, 8]);
        let ending = |cut| decode(&whole[..whole.len() - cut]).expect("an earlier version's");
        assert!(ending(0).takes_bare_records);
        let settings = ending(1);
        assert!(!settings.takes_bare_records && settings.takes_datagrams);
        let settings = ending(2);
        assert!(!settings.takes_datagrams);
        assert_eq!(settings.order, OrderMode::Keyed);
        let settings = ending(3);
        assert_eq!(settings.order, OrderMode::Strict);
        assert_eq!((settings.life, settings.early), (1 << 40, true));
        let settings = ending(4);
        assert_eq!((settings.life, settings.early), (1 << 40, false));
        let settings = ending(12);
        assert_eq!((settings.generation, settings.life), (9, 0));
    }

    #[test]
    fn code_points_are_six_bits_each_and_descend() {
        let all: Vec<u8> = (0..=DSCP_MAX).rev().collect();
        assert_eq!(decode(&encoded(&all)).expect("fits").code_points, all);
        for wrong in [&[64][..], &[8, 8], &[8, 16]] {
            assert!(decode(&encoded(wrong)).is_err(), "{wrong:?}");
        }
        let many = [&all[..], &[0]].concat();
        assert!(decode(&encoded(&many)).is_err());
    }
}
