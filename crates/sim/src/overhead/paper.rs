//! The overhead of TCP and QUIC by the equations of the paper on quicSDN (Kumar and Dezfouli,
//! 2023), 1 to 5.
//!
//! They are kept as they are, with headers that no real stack has. Where the text has two readings,
//! the choice is named here: the law of bursts is a parameter ([`BurstLaw`]), and Eq. 3 is read as
//! "the largest number of frames for which the ratio is above 1".

/// Bytes of headers (Table 1).
const PHYSICAL: u32 = 28;
const IP: u32 = 20;
const TCP: u32 = 20;
const UDP: u32 = 8;
const SHORT_HEADER: u32 = 2;
const FRAME_HEADER: u32 = 1;
const MTU: u32 = 1500;
/// Acknowledgements for each of `d` data packets: the mean of one each and one for two,
/// `(d + d/2) / 2`.
const ACKS_PER_PACKET: f64 = 0.75;

const TCP_PACKET: u32 = PHYSICAL + IP + TCP;
const TCP_ROOM: u32 = MTU - IP - TCP;
/// An acknowledgement is charged with one frame.
const QUIC_ACK: u32 = PHYSICAL + IP + UDP + SHORT_HEADER + FRAME_HEADER;

/// The meaning of a burst. The text says no more than "message burstiness probabilities". In each
/// law, lambda T_b messages arrive in the time T_b on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstLaw {
    /// The first message opens a window of T_b: a burst is this message and those that arrive
    /// within the window.
    Window,
    /// Time is cut into slots of T_b; a burst is all messages of a slot that has any.
    Slots,
    /// Nothing varies: a burst is lambda T_b messages, or one if that is less.
    Steady,
}

impl BurstLaw {
    pub const ALL: [BurstLaw; 3] = [BurstLaw::Window, BurstLaw::Slots, BurstLaw::Steady];

    pub fn name(self) -> &'static str {
        match self {
            BurstLaw::Window => "window",
            BurstLaw::Slots => "slots",
            BurstLaw::Steady => "steady",
        }
    }

    /// Packets for each message, where a packet has room for `room` bytes of messages and `mean`
    /// messages arrive in the buffering time.
    fn packets_per_message(self, mean: f64, message: u32, room: u32) -> f64 {
        let packets = |messages: u64| (messages * u64::from(message)).div_ceil(room.into()) as f64;
        if mean <= 0.0 {
            return packets(1);
        }
        match self {
            BurstLaw::Window => {
                let of_burst = |(n, p): (u64, f64)| p * packets(n + 1);
                poisson(mean).into_iter().map(of_burst).sum::<f64>() / (1.0 + mean)
            }
            BurstLaw::Slots => {
                let of_slot = |(n, p): (u64, f64)| p * packets(n);
                poisson(mean).into_iter().map(of_slot).sum::<f64>() / mean
            }
            BurstLaw::Steady => {
                let messages = mean.max(1.0);
                // Rounding must not turn a whole number of packets into one more.
                (messages * f64::from(message) / f64::from(room) - 1e-9).ceil() / messages
            }
        }
    }
}

/// One point of the paper's Fig. 2. Agents are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub message_bytes: u32,
    pub messages_per_agent: u32,
    pub agents: u32,
    /// Lambda of each agent.
    pub per_second: f64,
    /// T_b.
    pub buffering_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    pub packets: f64,
    /// Header bytes of packets with data, and of acknowledgements.
    pub data_bytes: f64,
    pub ack_bytes: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub tcp: Overhead,
    pub quic: Overhead,
}

impl Overhead {
    fn new(packets: f64, packet_bytes: u32, ack_bytes: u32) -> Overhead {
        Overhead {
            packets,
            data_bytes: packets * f64::from(packet_bytes),
            ack_bytes: packets * ACKS_PER_PACKET * f64::from(ack_bytes),
        }
    }

    pub fn bytes(&self) -> f64 {
        self.data_bytes + self.ack_bytes
    }
}

impl Point {
    /// The share of TCP's bytes that QUIC saves.
    pub fn saving(&self) -> f64 {
        1.0 - self.quic.bytes() / self.tcp.bytes()
    }
}

impl Case {
    /// Eqs. 4 and 5, and the acknowledgements.
    pub fn point(&self, law: BurstLaw) -> Point {
        let messages = f64::from(self.agents) * f64::from(self.messages_per_agent);
        let mean = self.per_second * self.buffering_s;
        let tcp = law.packets_per_message(mean, self.message_bytes, TCP_ROOM);
        let quic = law.packets_per_message(
            mean * f64::from(self.agents),
            self.message_bytes,
            quic_room(self.message_bytes),
        );
        Point {
            tcp: Overhead::new(tcp * messages, TCP_PACKET, TCP_PACKET),
            quic: Overhead::new(quic * messages, quic_packet(self.message_bytes), QUIC_ACK),
        }
    }

    /// Eqs. 1 and 2: all messages at once.
    pub fn at_once(&self) -> Point {
        let of_agent = u64::from(self.message_bytes) * u64::from(self.messages_per_agent);
        let tcp = of_agent.div_ceil(TCP_ROOM.into()) * u64::from(self.agents);
        let all = of_agent * u64::from(self.agents);
        let quic = all.div_ceil(quic_room(self.message_bytes).into());
        Point {
            tcp: Overhead::new(tcp as f64, TCP_PACKET, TCP_PACKET),
            quic: Overhead::new(quic as f64, quic_packet(self.message_bytes), QUIC_ACK),
        }
    }
}

/// Eq. 3: alpha, the frames of a packet.
pub fn frames_per_packet(message_bytes: u32) -> u32 {
    let room = MTU - (PHYSICAL + IP + UDP + SHORT_HEADER + FRAME_HEADER);
    if message_bytes > room {
        // The rest of one message and the start of the next.
        return 2;
    }
    let fits = |frames: &u32| room + FRAME_HEADER > frames * (message_bytes + FRAME_HEADER);
    (1..=room).take_while(fits).last().unwrap_or(1)
}

/// The headers of a packet, which Eq. 5 charges with alpha frames whatever the packet contains.
fn quic_packet(message_bytes: u32) -> u32 {
    PHYSICAL + IP + UDP + SHORT_HEADER + frames_per_packet(message_bytes) * FRAME_HEADER
}

fn quic_room(message_bytes: u32) -> u32 {
    MTU - (quic_packet(message_bytes) - PHYSICAL)
}

/// Numbers and their probabilities, for all numbers with more than 10^-16 of the greatest
/// probability. They are built from the likeliest number by ratios, which needs no factorial and
/// gives the same bits everywhere.
fn poisson(mean: f64) -> Vec<(u64, f64)> {
    const NEGLIGIBLE: f64 = 1e-16;
    let mode = mean.floor() as u64;
    let mut weights = vec![(mode, 1.0)];
    let (mut n, mut weight) = (mode, 1.0);
    while n > 0 && weight > NEGLIGIBLE {
        weight *= n as f64 / mean;
        n -= 1;
        weights.push((n, weight));
    }
    let (mut n, mut weight) = (mode, 1.0);
    while weight > NEGLIGIBLE {
        n += 1;
        weight *= mean / n as f64;
        weights.push((n, weight));
    }
    let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
    for (_, weight) in &mut weights {
        *weight /= sum;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(per_second: f64, agents: u32, buffering_ms: f64) -> Case {
        Case {
            message_bytes: 500,
            messages_per_agent: 5000,
            agents,
            per_second,
            buffering_s: buffering_ms / 1e3,
        }
    }

    /// Formats as the specification prints it: thousands with a comma, KB whole, halves up.
    fn words(overhead: &Overhead, by: f64) -> String {
        let comma = |n: f64| {
            let n = n.round() as u64;
            match n / 1000 {
                0 => n.to_string(),
                thousands => format!("{thousands},{:03}", n % 1000),
            }
        };
        let kb = |bytes: f64| comma(bytes / by / 1000.0);
        format!(
            "{}: {} + {}",
            comma(overhead.packets / by),
            kb(overhead.data_bytes),
            kb(overhead.ack_bytes)
        )
    }

    /// Section 5 of the specification, every row but the last.
    #[test]
    fn the_table_is_as_printed() {
        const TABLE: &str = "
            10   2  0   | 10,000: 680 + 510     | 10,000: 600 + 443     | 12.4 %
            10   2  100 | 6,340: 431 + 323      | 5,493: 330 + 243      | 24.1 %
            10   10 100 | 31,698: 2,155 + 1,617 | 19,697: 1,182 + 872   | 45.6 %
            100  2  10  | 6,340: 431 + 323      | 5,493: 330 + 243      | 24.1 %
            100  10 1   | 45,667: 3,105 + 2,329 | 31,698: 1,902 + 1,403 | 39.2 %
            100  10 10  | 31,698: 2,155 + 1,617 | 19,697: 1,182 + 872   | 45.6 %
            1000 2  1   | 6,340: 431 + 323      | 5,493: 330 + 243      | 24.1 %
            1000 2  10  | 3,939: 268 + 201      | 3,651: 219 + 162      | 18.8 %
            1000 10 1   | 31,698: 2,155 + 1,617 | 19,697: 1,182 + 872   | 45.6 %";
        let rows: Vec<&str> = TABLE.trim().lines().collect();
        assert_eq!(rows.len(), 9);
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let input: Vec<f64> = cells[0]
                .split_whitespace()
                .map(|n| n.parse().unwrap())
                .collect();
            let point = case(input[0], input[1] as u32, input[2]).point(BurstLaw::Window);
            assert_eq!(words(&point.tcp, 1.0), cells[1], "{row}");
            assert_eq!(words(&point.quic, 1.0), cells[2], "{row}");
            assert_eq!(
                format!("{:.1} %", point.saving() * 100.0),
                cells[3],
                "{row}"
            );
        }
    }

    /// The last row has no T_b, and one for every number of agents: "A x 1,717: A x (117 + 88)" and
    /// "A x 1,704: A x (102 + 75)", 12 to 14 %. These are the figures of 500 messages in T_b and
    /// five agents; others are at most two packets off.
    #[test]
    fn the_last_row_is_that_of_long_buffering() {
        let point = case(1000.0, 5, 500.0).point(BurstLaw::Window);
        assert_eq!(words(&point.tcp, 5.0), "1,717: 117 + 88");
        assert_eq!(words(&point.quic, 5.0), "1,704: 102 + 75");
        for agents in 2..=50 {
            let point = case(1000.0, agents, 500.0).point(BurstLaw::Window);
            let quic = point.quic.packets / f64::from(agents);
            assert!((quic - 1704.0).abs() < 2.0, "{agents} agents: {quic}");
            assert!((0.12..0.14).contains(&point.saving()), "{}", point.saving());
        }
    }

    /// "Maximum saving over all lambda, T_b", on lambda T_b of 1, 2, 4 and 5 times powers of
    /// ten. By the steady law a finer grid finds up to five points more, where bursts happen to
    /// fill their packets.
    #[test]
    fn the_largest_savings_are_as_printed() {
        let largest = |law, agents, message_bytes| {
            let saving = |mean: f64| Case {
                message_bytes,
                ..case(mean, agents, 1000.0)
            };
            let means = (-3..4).flat_map(|e| [1.0, 2.0, 4.0, 5.0].map(|n| n * 10f64.powi(e)));
            let savings = means.map(|mean| saving(mean).point(law).saving());
            100.0 * savings.fold(0.0, f64::max)
        };
        let of = |agents, bytes| BurstLaw::ALL.map(|law| largest(law, agents, bytes));
        assert_eq!(
            of(2, 500).map(|s| format!("{s:.1}")),
            ["25.6", "28.0", "56.2"]
        );
        let whole = |savings: [f64; 3]| savings.map(|s| s.round());
        assert_eq!(whole(of(10, 500)), [46.0, 51.0, 65.0]);
        assert_eq!(whole(of(50, 500)), [59.0, 62.0, 69.0]);
        assert_eq!(whole(of(2, 220)), [38.0, 43.0, 55.0]);
    }

    #[test]
    fn frames_per_packet_are_those_of_eq_3() {
        assert_eq!(
            [100, 220, 400, 500, 1441, 1800].map(frames_per_packet),
            [14, 6, 3, 2, 1, 2]
        );
    }

    /// Eqs. 4 and 5 become Eqs. 1 and 2 when everything is one burst.
    #[test]
    fn without_time_packets_are_full() {
        let at_once = case(1.0, 2, 0.0).at_once();
        assert_eq!(
            (at_once.tcp.packets, at_once.quic.packets),
            (3426.0, 3406.0)
        );
        let law = case(1e6, 2, 1e6).point(BurstLaw::Steady);
        assert!((law.tcp.packets / at_once.tcp.packets - 1.0).abs() < 1e-3);
        assert!((law.quic.packets / at_once.quic.packets - 1.0).abs() < 1e-3);
    }

    #[test]
    fn probabilities_add_up_and_have_their_mean() {
        for mean in [0.001, 1.0, 17.5, 5000.0] {
            let all = poisson(mean);
            let sum: f64 = all.iter().map(|(_, p)| p).sum();
            let found: f64 = all.iter().map(|(n, p)| *n as f64 * p).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{mean}: {sum}");
            assert!((found / mean - 1.0).abs() < 1e-9, "{mean}: {found}");
        }
    }
}
