//! Version negotiation (OpenFlow 1.3.1, 6.3.1): the highest version in both bitmaps, or the smaller
//! of the two header versions if a side sends no bitmap.

use crate::types::Version;

/// Body of a HELLO: the bitmap of versions, if it has one.
///
/// ```
/// use openflow::Version;
/// use openflow::hello::{Hello, negotiate};
///
/// let theirs = Hello::offering(&[Version::V10, Version::V13]);
/// let ours = [Version::V13, Version::V15];
/// assert_eq!(negotiate(&ours, Version::V13.wire(), &theirs), Some(Version::V13));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Bit n set: wire version n is supported. If there are several words, all are kept as
    /// received.
    pub bitmaps: Option<Vec<u32>>,
}

impl Hello {
    /// Makes a HELLO that offers these versions in its bitmap.
    pub fn offering(versions: &[Version]) -> Hello {
        Hello {
            bitmaps: Some(vec![versions.iter().fold(0, |map, v| map | 1 << v.wire())]),
        }
    }

    fn offers(&self, version: Version) -> Option<bool> {
        let first = self.bitmaps.as_ref()?.first()?;
        Some(first >> version.wire() & 1 == 1)
    }
}

/// Returns the version that both sides support. If it is `None`, answer HELLO_FAILED/INCOMPATIBLE.
///
/// `theirs_header` is the version byte of the received HELLO. It may be a version unknown here.
pub fn negotiate(ours: &[Version], theirs_header: u8, theirs: &Hello) -> Option<Version> {
    let spoken = |v: &&Version| theirs.offers(**v).unwrap_or(true);
    let ours_max = ours.iter().max()?;
    match &theirs.bitmaps {
        Some(maps) if !maps.is_empty() => ours.iter().filter(spoken).max().copied(),
        _ => {
            let lower = theirs_header.min(ours_max.wire());
            ours.iter().find(|v| v.wire() == lower).copied()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Version::*;

    #[test]
    fn a_switch_that_opens_with_1_5_is_negotiated_down() {
        let ours = [V10, V13];
        let bitmap = |versions: &[Version]| Hello::offering(versions);
        let none = Hello::default();
        assert_eq!(
            negotiate(&ours, 6, &bitmap(&[V10, V13, V14, V15])),
            Some(V13)
        );
        assert_eq!(negotiate(&ours, 6, &bitmap(&[V14, V15])), None);
        assert_eq!(
            negotiate(&ours, 6, &none),
            Some(V13),
            "no bitmap: the smaller header"
        );
        assert_eq!(negotiate(&ours, 1, &none), Some(V10));
        assert_eq!(negotiate(&ours, 3, &none), None, "1.2 only");
        assert_eq!(negotiate(&ours, 4, &bitmap(&[V10])), Some(V10));
        assert_eq!(negotiate(&ours, 0xee, &none), Some(V13));
        assert_eq!(negotiate(&ours, 0, &none), None);
    }
}
