//! The congestion control of our QUIC connections: CUBIC that, after a loss, keeps the window which
//! carries the measured delivery rate of the path.
//!
//! CUBIC (RFC 9438) treats every loss as a full queue. A path that loses one packet in a hundred
//! without being full then gets a window of a few packets. A channel of small messages, whose every
//! message may be a packet, meets a loss in each round trip. TCP Westwood+ (Grieco and Mascolo,
//! 2004) sets the window after a loss to delivery rate × least round trip: the bytes in flight
//! while no queue stands. A full path delivers less than is sent, or later, so there the window
//! does fall. An ECN mark reports that a queue stands, and is obeyed as it is.
//!
//! It counts for two connections, as the one that it replaces for each agent of a switch would:
//! quinn's controller, and each of the kernel's, counts for one.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;

use super::{ACK_DELAY_MAX, ACK_THRESHOLD};

/// RFC 9438, section 5.
const C: f64 = 0.4;
/// The part of the window that remains after a loss. The controller counts for two connections, one
/// of which falls to 0.7 (RFC 9438, 4.6).
const BETA: f64 = 0.85;
/// Packets per round trip while a Reno of that weight would grow faster:
/// 3 × 2² × (1 - BETA) / (1 + BETA).
const ALPHA: f64 = 0.97;
/// Ten packets for each connection that the controller counts for (RFC 9002, section 7.2).
const INITIAL_WINDOW_PACKETS: u64 = 20;
/// The smallest window. A peer that acknowledges every tenth packet starves a smaller one. So does
/// quinn, which sends only while there is room for a whole packet.
const WINDOW_PACKETS_MIN: u64 = ACK_THRESHOLD as u64;
/// The window after an outage (RFC 9002, section 7.6.2).
const OUTAGE_WINDOW_PACKETS: u64 = 2;
/// A path that loses up to this part of the sent bytes, 1/16, is not full for that alone.
const LOSS_SHARE: u64 = 16;
/// Delivery rates that are remembered, one for each round trip: the greatest of them counts, so
/// that a pause of the application is not mistaken for a pause of the path.
const RATES_MAX: usize = 8;

/// Makes controllers of this kind.
#[derive(Debug, Default)]
pub struct WestwoodConfig;

impl ControllerFactory for WestwoodConfig {
    fn build(self: Arc<Self>, _now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Westwood::new(mtu))
    }
}

#[derive(Clone, Debug)]
struct Westwood {
    window: u64,
    /// The window below which it doubles each round trip.
    threshold: u64,
    mtu: u64,
    /// The time of the last loss event. A loss of packets sent before it belongs to the same event.
    event_at: Option<Instant>,
    /// The time of the last narrowing. Acknowledgements of packets sent before it do not widen the
    /// window.
    narrowed_at: Option<Instant>,
    /// The window before it was last narrowed.
    widest: u64,
    growth: Option<Growth>,
    delivery: Delivery,
}

/// The present stretch of growth without a loss.
#[derive(Clone, Copy, Debug)]
struct Growth {
    since: Instant,
    /// Seconds until the window is again as wide as it was.
    k: f64,
    /// The window that Reno would have.
    reno: f64,
}

/// The path's rate of delivery.
#[derive(Clone, Debug, Default)]
struct Delivery {
    since: Option<Instant>,
    bytes: u64,
    /// Bytes per second, the newest last.
    rates: VecDeque<u64>,
    rtt: Duration,
    rtt_min: Duration,
}

impl Delivery {
    fn handle_acks(&mut self, now: Instant) {
        let Some(since) = self.since else {
            (self.since, self.bytes) = (Some(now), 0);
            return;
        };
        // Acknowledgements arrive in batches: over a shorter time, their rate is not the path's.
        let elapsed = now.saturating_duration_since(since);
        if elapsed < self.rtt + 2 * ACK_DELAY_MAX {
            return;
        }
        if self.rates.len() == RATES_MAX {
            self.rates.pop_front();
        }
        let rate = u128::from(self.bytes) * 1_000_000 / elapsed.as_micros().max(1);
        self.rates.push_back(rate as u64);
        (self.since, self.bytes) = (Some(now), 0);
    }

    /// The window that carries the delivery rate while no queue stands; `None` while the rate is
    /// not known.
    fn window(&self, mtu: u64) -> Option<u64> {
        let rate = *self.rates.iter().max()?;
        let within = |time: Duration| {
            (u128::from(rate) * time.as_micros() / 1_000_000).min(u128::from(u64::MAX / 4)) as u64
        };
        let in_flight = within(self.rtt_min);
        // Packets that the peer has not yet acknowledged are in flight too: it may wait for more.
        let untold = within(ACK_DELAY_MAX).min(u64::from(ACK_THRESHOLD) * mtu);
        Some(in_flight + in_flight / LOSS_SHARE + untold)
    }
}

impl Westwood {
    fn new(mtu: u16) -> Westwood {
        let mtu = u64::from(mtu);
        let window = INITIAL_WINDOW_PACKETS * mtu;
        Westwood {
            window,
            threshold: u64::MAX,
            mtu,
            event_at: None,
            narrowed_at: None,
            widest: window,
            growth: None,
            delivery: Delivery::default(),
        }
    }

    fn window_min(&self) -> u64 {
        WINDOW_PACKETS_MIN * self.mtu
    }

    fn handle_ack(&mut self, now: Instant, sent: Instant, bytes: u64, is_used_up: bool) {
        self.delivery.bytes += bytes;
        if !is_used_up {
            self.growth = None;
            return;
        }
        if self.narrowed_at.is_some_and(|at| sent <= at) {
            return;
        }
        if self.window < self.threshold {
            self.window += bytes;
            return;
        }
        let (window, widest, mtu) = (self.window as f64, self.widest as f64, self.mtu as f64);
        let growth = self.growth.get_or_insert_with(|| Growth {
            since: now,
            k: ((widest - window).max(0.0) / mtu / C).cbrt(),
            reno: window,
        });
        growth.reno += ALPHA * bytes as f64 / window * mtu;
        let since = now.saturating_duration_since(growth.since) + self.delivery.rtt;
        let cubic = C * (since.as_secs_f64() - growth.k).powi(3) * mtu + widest.max(window);
        // At most half as much again in a round trip (RFC 9438, 4.2).
        let wanted = growth.reno.max(cubic.min(1.5 * window));
        let step = (wanted - window).max(0.0) * bytes as f64 / window;
        self.window = (window + step).max(growth.reno) as u64;
    }

    /// Handles a loss. `is_mark` means that ECN marked a packet, and nothing is lost.
    fn handle_loss(&mut self, now: Instant, sent: Instant, is_mark: bool) {
        if self.event_at.is_some_and(|at| sent <= at) {
            return;
        }
        self.event_at = Some(now);
        let carries = self.delivery.window(self.mtu).filter(|_| !is_mark);
        let narrowed = (self.window as f64 * BETA) as u64;
        let narrowed = narrowed.max(carries.unwrap_or(0)).max(self.window_min());
        if narrowed >= self.window {
            return;
        }
        self.widest = self.window;
        self.window = narrowed;
        self.threshold = narrowed;
        self.narrowed_at = Some(now);
        self.growth = None;
    }

    /// Handles the loss of everything sent for a while: the measurements of the path are no longer
    /// true.
    fn handle_outage(&mut self) {
        self.threshold = ((self.window as f64 * BETA) as u64).max(self.window_min());
        self.widest = self.window;
        self.window = OUTAGE_WINDOW_PACKETS * self.mtu;
        (self.event_at, self.narrowed_at, self.growth) = (None, None, None);
        self.delivery.rates.clear();
    }
}

impl Controller for Westwood {
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.delivery.rtt = rtt.get();
        self.delivery.rtt_min = rtt.min();
        self.handle_ack(now, sent, bytes, !app_limited);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        _in_flight: u64,
        _app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.delivery.handle_acks(now);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        if is_persistent_congestion {
            self.handle_outage();
        } else {
            self.handle_loss(now, sent, lost_bytes == 0);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = u64::from(new_mtu);
        self.window = self.window.max(OUTAGE_WINDOW_PACKETS * self.mtu);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL_WINDOW_PACKETS * self.mtu
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u16 = 1200;
    const RTT: Duration = Duration::from_millis(100);

    /// A path of one round trip after the other, with senders that send all that their window
    /// allows, up to `demand` in a round trip.
    struct Path {
        now: Instant,
        /// The bytes that the path carries in a round trip, and the bytes that it queues beyond
        /// them.
        carries: u64,
        queue: u64,
        /// One packet in this many is lost, whatever waits; 0 loses none.
        loses_one_in: u64,
        sent: u64,
    }

    impl Path {
        fn new(carries: u64, queue: u64, loses_one_in: u64) -> Path {
            Path {
                now: Instant::now(),
                carries,
                queue,
                loses_one_in,
                sent: 0,
            }
        }

        /// Returns the bytes delivered of each sender.
        fn round(&mut self, senders: &mut [Westwood], demand: u64) -> Vec<u64> {
            let offers: Vec<u64> = senders.iter().map(|s| s.window.min(demand)).collect();
            let offered: u64 = offers.iter().sum();
            let stands = offered.saturating_sub(self.carries).min(self.queue);
            let rtt = RTT + RTT.mul_f64(stands as f64 / self.carries as f64);
            let fits = self.carries + self.queue;
            let sent_at = self.now;
            self.now += rtt;
            let mut delivered = Vec::new();
            for (sender, offer) in senders.iter_mut().zip(&offers) {
                let is_used_up = *offer >= sender.window;
                let full = offer.saturating_sub(offer * fits.min(offered) / offered);
                let mut lost = full.div_ceil(u64::from(MTU));
                let packets = offer.div_ceil(u64::from(MTU));
                if let Some(one_in) = std::num::NonZero::new(self.loses_one_in) {
                    lost += (self.sent + packets) / one_in - self.sent / one_in;
                    self.sent += packets;
                }
                sender.delivery.rtt = rtt;
                sender.delivery.rtt_min = RTT;
                let arrived = packets.saturating_sub(lost);
                for packet in 0..arrived {
                    let at = self.now + RTT * packet as u32 / packets.max(1) as u32 / 8;
                    sender.handle_ack(at, sent_at, u64::from(MTU), is_used_up);
                    sender.delivery.handle_acks(at);
                }
                if lost > 0 {
                    sender.handle_loss(self.now, sent_at, false);
                }
                delivered.push(arrived * u64::from(MTU));
            }
            delivered
        }
    }

    /// The window after as many round trips as a channel that needs 36 kB in flight has in 10 s.
    fn needs_36_kb(loses_one_in: u64) -> u64 {
        let mut path = Path::new(1 << 30, 0, loses_one_in);
        let mut sender = [Westwood::new(MTU)];
        for _ in 0..100 {
            path.round(&mut sender, 36_000);
        }
        sender[0].window
    }

    #[test]
    fn losses_on_a_path_that_is_not_full_leave_the_window_that_is_used() {
        for one_in in [20, 30, 100] {
            let window = needs_36_kb(one_in);
            assert!(window >= 36_000, "one in {one_in}: {window}");
        }
    }

    #[test]
    fn losses_of_a_full_path_narrow_it_to_what_the_path_carries() {
        for queue in [0, 30_000, 120_000] {
            let mut path = Path::new(120_000, queue, 0);
            let mut sender = [Westwood::new(MTU)];
            let (mut sum, mut widest) = (0, 0);
            for round in 0..400 {
                let delivered = path.round(&mut sender, u64::MAX)[0];
                if round >= 200 {
                    sum += delivered;
                    widest = widest.max(sender[0].window);
                }
            }
            let used = sum as f64 / 200.0 / 120_000.0;
            assert!(used > 0.8, "queue {queue}: {used}");
            assert!(
                widest < (120_000 + queue) * 3 / 2,
                "queue {queue}: {widest}"
            );
        }
    }

    #[test]
    fn senders_that_share_a_full_path_come_to_equal_shares() {
        let mut path = Path::new(120_000, 60_000, 0);
        let mut senders = [Westwood::new(MTU), Westwood::new(MTU)];
        (senders[0].window, senders[0].threshold) = (120_000, 120_000);
        let mut sums = [0u64; 2];
        for round in 0..2000 {
            let delivered = path.round(&mut senders, u64::MAX);
            if round >= 1000 {
                sums[0] += delivered[0];
                sums[1] += delivered[1];
            }
        }
        let share = sums[0] as f64 / (sums[0] + sums[1]) as f64;
        assert!((0.35..0.65).contains(&share), "{share}");
    }

    #[test]
    fn a_mark_and_an_outage_are_obeyed_whatever_was_delivered() {
        let mut path = Path::new(1 << 30, 0, 0);
        let mut sender = [Westwood::new(MTU)];
        for _ in 0..20 {
            path.round(&mut sender, 36_000);
        }
        let [mut sender] = sender;
        let before = sender.window;
        let now = path.now;
        let long_after = now + Duration::from_secs(1);
        sender.on_congestion_event(now, now, false, 0);
        assert_eq!(sender.window, (before as f64 * BETA) as u64);
        sender.on_congestion_event(long_after, long_after, true, 1200);
        assert_eq!(sender.window, 2 * u64::from(MTU));
        assert_eq!(sender.delivery.window(1200), None);
    }

    #[test]
    fn losses_of_one_flight_are_one_event() {
        let mut sender = Westwood::new(MTU);
        let now = Instant::now();
        let before = sender.window;
        sender.handle_loss(now, now, false);
        sender.handle_loss(now + RTT, now, false);
        assert_eq!(sender.window, (before as f64 * BETA) as u64);
    }
}
