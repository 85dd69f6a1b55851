//! Loss, jitter and reordering of a numbered stream, by the standards: jitter as in RFC 3550,
//! 6.4.1 and A.8; reordering as in RFC 4737, 3.3 (which packet is reordered), 4.1 (ratio), 4.2
//! (extent) and 4.3 (late time offset).

/// A packet that arrived: its number, counted from 0 by the sender, and both times in
/// nanoseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    pub number: u64,
    pub sent_ns: u64,
    pub received_ns: u64,
}

/// The fate of a stream's datagrams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Distinct packets that arrived.
    pub received: u64,
    pub duplicates: u64,
    /// The jitter estimate after the last packet, as receivers report it.
    pub jitter_ns: f64,
    /// Delays in one direction, in order of arrival.
    pub delays_ns: Vec<u64>,
    pub reordered: Vec<Reordered>,
}

/// A packet that arrived after a packet with a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reordered {
    pub number: u64,
    /// The distance, in packets, from the earliest packet that overtook this one to this one.
    pub extent: u64,
    /// The time from the arrival of that earliest packet to the arrival of this one.
    pub late_ns: u64,
}

/// Judges packets in order of arrival. Only the first copy of a packet counts; the others are
/// neither late nor reordered (RFC 4737, 3.3).
pub fn judge(arrivals: &[Arrival]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut seen = std::collections::BTreeSet::new();
    let mut jitter = Jitter::default();
    // Arrivals that raised the highest number: place, number and time. All three increase.
    let mut leaders: Vec<(u64, u64, u64)> = Vec::new();
    for arrival in arrivals {
        if !seen.insert(arrival.number) {
            verdict.duplicates += 1;
            continue;
        }
        let place = verdict.received;
        verdict.received += 1;
        let delay_ns = arrival.received_ns.saturating_sub(arrival.sent_ns);
        verdict.delays_ns.push(delay_ns);
        jitter.take(delay_ns);
        if leaders
            .last()
            .is_none_or(|leader| leader.1 < arrival.number)
        {
            leaders.push((place, arrival.number, arrival.received_ns));
            continue;
        }
        // The earliest arrival of a higher number raised the highest number itself.
        let first = leaders.partition_point(|leader| leader.1 < arrival.number);
        let (leader_place, _, leader_ns) = leaders[first];
        verdict.reordered.push(Reordered {
            number: arrival.number,
            extent: place - leader_place,
            late_ns: arrival.received_ns.saturating_sub(leader_ns),
        });
    }
    verdict.jitter_ns = jitter.estimate_ns;
    verdict
}

/// J += (|D| - J) / 16, where D is the change of delay from one arrival to the next.
#[derive(Default)]
struct Jitter {
    before_ns: Option<u64>,
    estimate_ns: f64,
}

impl Jitter {
    fn take(&mut self, delay_ns: u64) {
        if let Some(before_ns) = self.before_ns.replace(delay_ns) {
            let change = delay_ns.abs_diff(before_ns) as f64;
            self.estimate_ns += (change - self.estimate_ns) / 16.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packets in this order, one sent and one received each millisecond.
    fn stream(numbers: &[u64]) -> Vec<Arrival> {
        let arrival = |(place, number): (usize, &u64)| Arrival {
            number: *number,
            sent_ns: number * 1_000_000,
            received_ns: 100_000_000 + place as u64 * 1_000_000,
        };
        numbers.iter().enumerate().map(arrival).collect()
    }

    /// Number, extent and late time in milliseconds.
    type Late = (u64, u64, u64);

    fn reordered(numbers: &[u64]) -> Vec<Late> {
        let tell = |r: &Reordered| (r.number, r.extent, r.late_ns / 1_000_000);
        judge(&stream(numbers)).reordered.iter().map(tell).collect()
    }

    #[test]
    #[rustfmt::skip]
    fn reordering_as_computed_by_hand() {
        let cases: [(&[u64], &[Late]); 8] = [
            (&[0, 1, 2, 4, 5, 6, 7, 3, 8, 9], &[(3, 4, 4)]),
            (&[0, 1, 2, 3, 6, 4, 5, 7, 8, 9], &[(4, 1, 1), (5, 2, 2)]),
            // A late block: each of its packets is further from the packet that overtook it.
            (&[0, 1, 2, 6, 7, 8, 9, 3, 4, 5, 10], &[(3, 4, 4), (4, 5, 5), (5, 6, 6)]),
            (&[], &[]),
            (&[7], &[]),
            // A gap is loss and no reordering.
            (&[0, 1, 5, 6], &[]),
            // The earliest packet that overtook it, not the highest: 2 before 9.
            (&[2, 9, 1], &[(1, 2, 2)]),
            (&[3, 2, 1, 0], &[(2, 1, 1), (1, 2, 2), (0, 3, 3)]),
        ];
        for (numbers, right) in cases {
            assert_eq!(reordered(numbers), right, "{numbers:?}");
        }
    }

    #[test]
    fn a_copy_is_neither_received_twice_nor_reordered() {
        let verdict = judge(&stream(&[0, 1, 1, 2, 0, 3]));
        assert_eq!((verdict.received, verdict.duplicates), (4, 2));
        assert_eq!(verdict.reordered, []);
        // A duplicate does not count: 1 arrives right after 2.
        let verdict = judge(&stream(&[0, 2, 0, 1]));
        assert_eq!(verdict.reordered[0].extent, 1);
    }

    #[test]
    fn jitter_as_computed_by_hand() {
        let delays_ms = [10, 12, 12, 7];
        let arrivals: Vec<Arrival> = (0..)
            .zip(delays_ms)
            .map(|(number, delay)| Arrival {
                number,
                sent_ns: number * 20_000_000,
                received_ns: (number * 20 + delay) * 1_000_000,
            })
            .collect();
        // |D| is 2, 0, 5: J is 0.125, 0.1171875, 0.42236328125.
        let verdict = judge(&arrivals);
        assert_eq!(verdict.jitter_ns, 422_363.281_25);
        assert_eq!(
            verdict.delays_ns,
            [10_000_000, 12_000_000, 12_000_000, 7_000_000]
        );
        assert_eq!(judge(&arrivals[..1]).jitter_ns, 0.0);
    }

    proptest! {
        #[test]
        fn in_order_is_never_reordered(gaps in prop::collection::vec(1u64..5, 0..200)) {
            let sums = gaps.iter().scan(0, |sum, gap| { *sum += gap; Some(*sum) });
            let numbers: Vec<u64> = sums.collect();
            prop_assert_eq!(reordered(&numbers), []);
        }

        #[test]
        fn one_packet_late_by_k_has_extent_k(
            count in 2u64..200,
            late in 0u64..198,
            by in 1u64..50,
        ) {
            prop_assume!(late + by < count);
            let mut numbers: Vec<u64> = (0..count).collect();
            let packet = numbers.remove(late as usize);
            numbers.insert((late + by) as usize, packet);
            prop_assert_eq!(reordered(&numbers), [(late, by, by)]);
        }

        /// Compares with the definition, implemented word for word in quadratic time.
        #[test]
        fn any_order_as_defined(
            mut numbers in Just((0..60).collect::<Vec<u64>>()).prop_shuffle(),
            kept in 0usize..60,
        ) {
            numbers.truncate(kept);
            let mut right = Vec::new();
            for (place, number) in numbers.iter().enumerate() {
                let overtook = numbers[..place].iter().position(|earlier| earlier > number);
                right.extend(overtook.map(|j| (*number, (place - j) as u64, (place - j) as u64)));
            }
            prop_assert_eq!(reordered(&numbers), right);
        }
    }
}
