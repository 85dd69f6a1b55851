//! Finds rules that no packet reaches because an earlier rule takes all their packets.

use std::collections::BTreeMap;

use openflow::Field;

use crate::qos::flow::Matching;

/// Fields with their masks.
type Shape = Vec<(Field, u128)>;

/// Matches, grouped by the fields and masks that they use, so that a new match is compared with
/// each such combination once.
#[derive(Debug, Default)]
pub struct Seen {
    shapes: BTreeMap<Shape, BTreeMap<Vec<u128>, usize>>,
    count: usize,
}

impl Seen {
    /// Adds a match. Returns the number of an earlier match that takes all of its packets, counted
    /// from 0.
    pub fn add(&mut self, matching: &Matching) -> Option<usize> {
        let own: BTreeMap<Field, (u128, u128)> = matching
            .fields()
            .map(|(field, value, mask)| (field, (value, mask)))
            .collect();
        let covering = self.shapes.iter().filter_map(|(shape, values)| {
            let part = |(field, mask): &(Field, u128)| {
                let (value, own_mask) = own.get(field)?;
                (own_mask & mask == *mask).then_some(value & mask)
            };
            let wanted: Option<Vec<u128>> = shape.iter().map(part).collect();
            values.get(&wanted?).copied()
        });
        let found = covering.min();
        let shape = own.iter().map(|(field, (_, mask))| (*field, *mask));
        let values = own.values().map(|(value, _)| *value);
        let number = self.count;
        self.count += 1;
        let of_shape = self.shapes.entry(shape.collect()).or_default();
        of_shape.entry(values.collect()).or_insert(number);
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matching() -> impl Strategy<Value = Matching> {
        let ip = prop::option::of((0u32..4, 0u32..4));
        (ip, prop::option::of(0u8..3), prop::option::of(0u16..3)).prop_map(|(ip, proto, port)| {
            let mut m = Matching::any();
            if let Some((ip, mask)) = ip {
                m = m.and_masked(Field::Ipv4Src, ip, mask.into()).unwrap();
            }
            if let Some(proto) = proto {
                m = m.and(Field::IpProto, proto).unwrap();
            }
            if let Some(port) = port {
                m = m.and(Field::TcpDst, port).unwrap();
            }
            m
        })
    }

    proptest! {
        /// Finds the first match that covers another, as a comparison of all pairs would.
        #[test]
        fn a_covered_match_is_found(all in prop::collection::vec(matching(), 0..30)) {
            let mut seen = Seen::default();
            for (n, m) in all.iter().enumerate() {
                let first = all[..n].iter().position(|before| before.covers(m));
                prop_assert_eq!(seen.add(m), first);
            }
        }
    }
}
