//! ICMP echo between hosts, from one thread: a raw socket in each host's namespace.
//!
//! This is quicker than a ping process per pair, and separates two round trips that such processes
//! mix: the first packet's, in which the controller takes part, and the later packets'.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockaddrIn, recv, sendto, setsockopt, sockopt};

use crate::netns;

/// Time after which an unanswered packet counts as lost, as ping(8) waits after its last packet.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// Bytes of data in an echo request: ping(8)'s default, and the minimum, our mark and a number.
pub const DATA_BYTES: usize = 56;
pub const DATA_BYTES_MIN: usize = 16;
const HEADER_BYTES: usize = 8;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
/// Marks our own requests among those of others, with the sample's number after it.
const MARK: [u8; 8] = *b"auster\x01\x01";
/// Pause between packets of one pair, so that a later packet meets the flow entries that the first
/// one caused.
const REST: Duration = Duration::from_millis(10);

/// The longest that the operating system may delay a sender before packets are left out.
const HELD_UP_MAX: Duration = Duration::from_millis(10);

/// One echo request and its result.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub from: usize,
    pub to: usize,
    /// The time of sending, since the prober was made.
    pub sent: Duration,
    /// `None` as long as the request is unanswered.
    pub rtt: Option<Duration>,
}

/// The result of one ordered pair of hosts.
#[derive(Clone, Debug)]
pub struct PairResult {
    pub from: usize,
    pub to: usize,
    pub first: Option<Duration>,
    pub later: Vec<Option<Duration>>,
}

impl PairResult {
    pub fn lost(&self) -> usize {
        usize::from(self.first.is_none()) + self.later.iter().filter(|rtt| rtt.is_none()).count()
    }
}

/// Packets of one ordered pair at a steady rate.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub from: usize,
    pub to: usize,
    pub interval: Duration,
    /// Data of each request.
    pub data_bytes: usize,
    /// When the next packet is due, since the prober was made.
    pub next: Duration,
}

/// Sends and receives for all hosts. Hosts are numbered as they were given.
pub struct Prober {
    hosts: Vec<(OwnedFd, Ipv4Addr)>,
    identifier: u16,
    samples: Vec<Sample>,
    started: Instant,
}

impl Prober {
    /// `hosts` are network namespaces and the address in each.
    pub fn new(hosts: impl IntoIterator<Item = (String, Ipv4Addr)>) -> io::Result<Prober> {
        let open = |(namespace, address): (String, Ipv4Addr)| {
            let socket = netns::open_icmp_socket(&namespace)?;
            // A raw socket sees all ICMP of its host: requests of others and answers to others.
            setsockopt(&socket, sockopt::RcvBuf, &(1 << 20))?;
            Ok((socket, address))
        };
        Ok(Prober {
            hosts: hosts.into_iter().map(open).collect::<io::Result<_>>()?,
            identifier: std::process::id() as u16,
            samples: Vec::new(),
            started: Instant::now(),
        })
    }

    /// Everything sent so far, in order.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Pings every ordered pair: one first packet, then `later` more, `at_once` pairs at a time.
    /// Sources take turns, so that one host is not asked for everything at once.
    pub fn ping_all(&mut self, later: usize, at_once: usize) -> io::Result<Vec<PairResult>> {
        let mut waiting = ordered_pairs(self.hosts.len());
        waiting.reverse();
        let mut active: Vec<Turn> = Vec::new();
        let mut done = Vec::new();
        while !waiting.is_empty() || !active.is_empty() {
            while active.len() < at_once
                && let Some((from, to)) = waiting.pop()
            {
                let sample = self.send(from, to, DATA_BYTES);
                active.push(Turn {
                    from,
                    to,
                    samples: vec![sample],
                    rest_until: None,
                });
            }
            let now = self.elapsed();
            for turn in &mut active {
                turn.advance(self, now);
            }
            let (ended, going): (Vec<Turn>, Vec<Turn>) = active
                .into_iter()
                .partition(|turn| turn.has_ended(self, later));
            done.extend(ended.iter().map(|turn| turn.result(self)));
            active = going;
            if let Some(at) = active.iter().map(|turn| turn.deadline(self)).min() {
                self.receive(at.saturating_sub(self.elapsed()))?;
            }
        }
        done.sort_by_key(|pair| (pair.from, pair.to));
        Ok(done)
    }

    /// Sends the packets of flows that are due before `until`, since the prober was made, and
    /// receives answers until then.
    pub fn carry(&mut self, flows: &mut [Flow], until: Duration) -> io::Result<()> {
        while let Some(flow) = flows.iter_mut().min_by_key(|flow| flow.next) {
            let due = flow.next.min(until);
            while self.elapsed() < due {
                self.receive(due.saturating_sub(self.elapsed()))?;
            }
            if flow.next >= until {
                break;
            }
            self.send(flow.from, flow.to, flow.data_bytes);
            // A sender that was held up for longer does not catch up: the burst would overflow the
            // queues of the switches, and be measured as loss.
            let earliest = self.elapsed().saturating_sub(HELD_UP_MAX);
            flow.next = (flow.next + flow.interval).max(earliest);
        }
        self.receive(Duration::ZERO)
    }

    /// Waits until everything sent is answered or lost.
    pub fn settle(&mut self) -> io::Result<()> {
        let end = self.elapsed() + ANSWER_TIME_MAX;
        while self
            .samples
            .iter()
            .any(|s| s.rtt.is_none() && s.sent + ANSWER_TIME_MAX > self.elapsed())
            && self.elapsed() < end
        {
            self.receive(Duration::from_millis(10))?;
        }
        Ok(())
    }

    /// Sends one request and returns its sample's number. A packet that the kernel refuses to send
    /// (for want of an ARP answer, say) is lost like any other.
    fn send(&mut self, from: usize, to: usize, data_bytes: usize) -> usize {
        let number = self.samples.len();
        let packet = echo_request(self.identifier, number as u64, data_bytes);
        let [a, b, c, d] = self.hosts[to].1.octets();
        let address = SockaddrIn::new(a, b, c, d, 0);
        self.samples.push(Sample {
            from,
            to,
            sent: self.elapsed(),
            rtt: None,
        });
        let socket = self.hosts[from].0.as_raw_fd();
        if let Err(e) = sendto(socket, &packet, &address, MsgFlags::empty()) {
            tracing::debug!(from, to, "echo request not sent: {e}");
        }
        number
    }

    /// Waits for answers, at most `at_most`, and records all that have arrived.
    fn receive(&mut self, at_most: Duration) -> io::Result<()> {
        let mut polled: Vec<PollFd> = self
            .hosts
            .iter()
            .map(|(socket, _)| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        // Rounded up: poll(2) counts in milliseconds, and rounding down would spin.
        let timeout = PollTimeout::try_from(at_most.as_micros().div_ceil(1000) as i32);
        poll(&mut polled, timeout.unwrap_or(PollTimeout::MAX))?;
        let now = self.started.elapsed();
        let ready: Vec<usize> = (0..polled.len())
            .filter(|n| polled[*n].any().unwrap_or(false))
            .collect();
        let mut buffer = [0u8; 2048];
        for host in ready {
            while let Ok(len) = recv(
                self.hosts[host].0.as_raw_fd(),
                &mut buffer,
                MsgFlags::MSG_DONTWAIT,
            ) {
                let Some(number) = echo_reply(&buffer[..len], self.identifier) else {
                    continue;
                };
                let sample = usize::try_from(number)
                    .ok()
                    .and_then(|n| self.samples.get_mut(n));
                // Only the first answer counts; a duplicate is ignored.
                if let Some(sample) = sample.filter(|s| s.from == host && s.rtt.is_none()) {
                    sample.rtt = Some(now.saturating_sub(sample.sent));
                }
            }
        }
        Ok(())
    }
}

/// One pair's packets, one after the other.
struct Turn {
    from: usize,
    to: usize,
    samples: Vec<usize>,
    rest_until: Option<Duration>,
}

impl Turn {
    /// Sends the next packet when the last one is answered or lost, and the pause is over.
    fn advance(&mut self, prober: &mut Prober, now: Duration) {
        if !self.last_is_over(prober, now) {
            return;
        }
        match self.rest_until {
            None => self.rest_until = Some(now + REST),
            Some(until) if now >= until => {
                self.rest_until = None;
                self.samples
                    .push(prober.send(self.from, self.to, DATA_BYTES));
            }
            Some(_) => {}
        }
    }

    fn has_ended(&self, prober: &Prober, later: usize) -> bool {
        self.samples.len() == later + 1 && self.last_is_over(prober, prober.elapsed())
    }

    fn last_is_over(&self, prober: &Prober, now: Duration) -> bool {
        let last = self.last(prober);
        last.rtt.is_some() || now >= last.sent + ANSWER_TIME_MAX
    }

    /// The time of the next action if no answer arrives.
    fn deadline(&self, prober: &Prober) -> Duration {
        self.rest_until
            .unwrap_or(self.last(prober).sent + ANSWER_TIME_MAX)
    }

    fn last<'a>(&self, prober: &'a Prober) -> &'a Sample {
        &prober.samples[*self.samples.last().expect("a turn begins with a packet")]
    }

    fn result(&self, prober: &Prober) -> PairResult {
        let rtts: Vec<Option<Duration>> = self
            .samples
            .iter()
            .map(|number| prober.samples[*number].rtt)
            .collect();
        PairResult {
            from: self.from,
            to: self.to,
            first: rtts[0],
            later: rtts[1..].to_vec(),
        }
    }
}

/// All ordered pairs of different hosts, in rounds in which every host sends once.
pub fn ordered_pairs(host_count: usize) -> Vec<(usize, usize)> {
    (1..host_count)
        .flat_map(|distance| {
            (0..host_count).map(move |from| (from, (from + distance) % host_count))
        })
        .collect()
}

fn echo_request(identifier: u16, number: u64, data_bytes: usize) -> Vec<u8> {
    let mut packet = vec![0u8; HEADER_BYTES + data_bytes];
    packet[0] = ECHO_REQUEST;
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    packet[6..8].copy_from_slice(&(number as u16).to_be_bytes());
    packet[8..16].copy_from_slice(&MARK);
    packet[16..24].copy_from_slice(&number.to_be_bytes());
    let sum = internet_checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The number in an answer to one of our requests, from an IPv4 packet as a raw socket returns it.
fn echo_reply(packet: &[u8], identifier: u16) -> Option<u64> {
    let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
    let icmp = packet.get(header_bytes..)?;
    let ours = *icmp.first()? == ECHO_REPLY
        && icmp.get(4..6)? == identifier.to_be_bytes()
        && icmp.get(8..16)? == MARK;
    let number: [u8; 8] = icmp.get(16..24)?.try_into().ok()?;
    ours.then_some(u64::from_be_bytes(number))
}

/// The checksum of RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let low = |pair: &[u8]| pair.get(1).copied().map_or(0, u32::from);
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | low(pair));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_checksum_that_verifies() {
        for data_bytes in [DATA_BYTES_MIN, DATA_BYTES, 57, 1472] {
            let request = echo_request(0x1234, 99, data_bytes);
            assert_eq!(request.len(), 8 + data_bytes);
            let sum = internet_checksum(&request);
            assert_eq!(sum, 0, "the sum over a valid packet is zero");
        }
    }

    #[test]
    fn only_answers_to_our_own_requests_are_taken() {
        let mut icmp = echo_request(7, 99, DATA_BYTES);
        let mut packet = vec![0x45u8; 20];
        packet.extend_from_slice(&icmp);
        assert_eq!(echo_reply(&packet, 7), None, "a request is no answer");
        icmp[0] = ECHO_REPLY;
        packet[20..].copy_from_slice(&icmp);
        assert_eq!(echo_reply(&packet, 7), Some(99));
        assert_eq!(echo_reply(&packet, 8), None, "another program's");
        for cut in 0..44 {
            assert_eq!(echo_reply(&packet[..cut], 7), None, "cut at {cut}");
        }
    }

    #[test]
    fn every_ordered_pair_is_there_once_and_every_round_uses_each_host_once() {
        let pairs = ordered_pairs(5);
        let mut unique = pairs.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!((pairs.len(), unique.len()), (20, 20));
        for round in pairs.chunks(5) {
            let mut sources: Vec<usize> = round.iter().map(|(from, _)| *from).collect();
            sources.sort_unstable();
            assert_eq!(sources, [0, 1, 2, 3, 4]);
        }
        assert_eq!(ordered_pairs(1), []);
    }
}
