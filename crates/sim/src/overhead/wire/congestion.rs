//! The congestion windows of QUIC connections: quinn's CUBIC (RFC 9438), and our relays' control.
//! After a loss, the relays keep the window for the rate that the path is seen to deliver.

use std::collections::VecDeque;

use super::Nanos;
use super::bytes::QUIC_MTU;
use super::setup::Congestion;

const MTU: f64 = QUIC_MTU as f64;
const CUBIC_C: f64 = 0.4;

/// CUBIC's constants in quinn: RFC 9002, 7.2, with its first MTU of 1,200.
const CUBIC_WINDOW_FIRST: f64 = 14_720.0;
const CUBIC_WINDOW_MIN: f64 = 2.0 * MTU;
const CUBIC_BETA: f64 = 0.7;
/// RFC 9438, 4.3: CUBIC's growth where Reno would be faster.
const CUBIC_FRIENDLY: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);

/// The constants of the relays (`net::quic`), by the same names.
const WESTWOOD_WINDOW_FIRST: f64 = 20.0 * MTU;
const WESTWOOD_WINDOW_MIN: f64 = 10.0 * MTU;
const WESTWOOD_BETA: f64 = 0.85;
const WESTWOOD_ALPHA: f64 = 0.97;
const LOSS_SHARE: f64 = 1.0 / 16.0;
const RATES_MAX: usize = 8;
const UNTOLD_PACKETS: f64 = 10.0;

#[derive(Debug)]
pub struct Window {
    kind: Congestion,
    ack_delay: Nanos,
    floor: f64,
    bytes: f64,
    ssthresh: f64,
    widest: f64,
    narrowed_at: Option<Nanos>,
    event_at: Option<Nanos>,
    /// CUBIC's growth towards the next packet.
    credit: f64,
    growth: Option<Growth>,
    delivery: Delivery,
}

/// Westwood's growth in the present stretch without a loss.
#[derive(Clone, Copy, Debug)]
struct Growth {
    since: Nanos,
    k: f64,
    reno: f64,
}

#[derive(Debug, Default)]
struct Delivery {
    since: Option<Nanos>,
    bytes: f64,
    /// Bytes per nanosecond, one for each round trip.
    rates: VecDeque<f64>,
    rtt_min: Option<Nanos>,
}

impl Window {
    pub fn new(kind: Congestion, floor: f64, ack_delay: Nanos) -> Window {
        let first = match kind {
            Congestion::Cubic => CUBIC_WINDOW_FIRST,
            Congestion::Westwood => WESTWOOD_WINDOW_FIRST,
        };
        Window {
            kind,
            ack_delay,
            floor,
            bytes: first.max(floor),
            ssthresh: f64::INFINITY,
            widest: 0.0,
            narrowed_at: None,
            event_at: None,
            credit: 0.0,
            growth: None,
            delivery: Delivery::default(),
        }
    }

    pub fn bytes(&self) -> f64 {
        self.bytes
    }

    pub fn handle_rtt(&mut self, rtt: Nanos) {
        let least = self.delivery.rtt_min.map_or(rtt, |least| least.min(rtt));
        self.delivery.rtt_min = Some(least);
    }

    /// Handles the acknowledgement of one packet. `is_blocked`: there was more to send than the
    /// window allows; otherwise the window does not grow.
    pub fn handle_ack(
        &mut self,
        now: Nanos,
        sent_at: Nanos,
        bytes: u32,
        is_blocked: bool,
        srtt: Nanos,
    ) {
        let bytes = f64::from(bytes);
        self.delivery.bytes += bytes;
        if !is_blocked {
            self.growth = None;
            return;
        }
        if self.narrowed_at.is_some_and(|at| sent_at <= at) {
            return;
        }
        if self.bytes < self.ssthresh {
            self.bytes += bytes;
            return;
        }
        match self.kind {
            Congestion::Cubic => self.grow_cubic(now, srtt),
            Congestion::Westwood => self.grow_westwood(now, bytes, srtt),
        }
    }

    /// Handles the end of one acknowledgement, after all its packets.
    pub fn handle_acks_end(&mut self, now: Nanos, srtt: Nanos) {
        let delivery = &mut self.delivery;
        let Some(since) = delivery.since else {
            (delivery.since, delivery.bytes) = (Some(now), 0.0);
            return;
        };
        if now - since < srtt + 2 * self.ack_delay {
            return;
        }
        if delivery.rates.len() == RATES_MAX {
            delivery.rates.pop_front();
        }
        delivery
            .rates
            .push_back(delivery.bytes / (now - since) as f64);
        (delivery.since, delivery.bytes) = (Some(now), 0.0);
    }

    pub fn handle_loss(&mut self, now: Nanos, sent_at: Nanos) {
        if self.event_at.is_some_and(|at| sent_at <= at) {
            return;
        }
        self.event_at = Some(now);
        match self.kind {
            Congestion::Cubic => {
                self.narrowed_at = Some(now);
                self.widest = match self.bytes < self.widest {
                    true => self.bytes * (1.0 + CUBIC_BETA) / 2.0,
                    false => self.bytes,
                };
                self.credit *= CUBIC_BETA;
                self.ssthresh = (self.bytes * CUBIC_BETA).max(CUBIC_WINDOW_MIN);
                self.bytes = self.ssthresh.max(self.floor);
            }
            Congestion::Westwood => {
                let carries = self.delivery.window(self.ack_delay);
                let narrowed = (self.bytes * WESTWOOD_BETA)
                    .max(carries)
                    .max(WESTWOOD_WINDOW_MIN);
                if narrowed < self.bytes {
                    self.widest = self.bytes;
                    (self.bytes, self.ssthresh) = (narrowed, narrowed);
                    self.narrowed_at = Some(now);
                    self.growth = None;
                }
            }
        }
    }

    fn grow_cubic(&mut self, now: Nanos, srtt: Nanos) {
        let since = (now - self.narrowed_at.unwrap_or(now)) as f64 / 1e9;
        let rtt = srtt as f64 / 1e9;
        let steep = (self.widest / MTU * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt();
        let cubic = (CUBIC_C * (since + rtt - steep).powi(3)) * MTU + self.widest;
        let friendly = self.widest * CUBIC_BETA + CUBIC_FRIENDLY * since / rtt * MTU;
        self.credit += match cubic < friendly {
            true => (friendly - self.bytes).max(0.0),
            false => ((cubic - self.bytes) / self.bytes * MTU).max(0.0),
        };
        if self.credit >= MTU {
            self.bytes += MTU;
            self.credit = 0.0;
        }
    }

    fn grow_westwood(&mut self, now: Nanos, bytes: f64, srtt: Nanos) {
        let (window, widest) = (self.bytes, self.widest);
        let growth = self.growth.get_or_insert_with(|| Growth {
            since: now,
            k: ((widest - window).max(0.0) / MTU / CUBIC_C).cbrt(),
            reno: window,
        });
        growth.reno += WESTWOOD_ALPHA * bytes / window * MTU;
        let since = (now - growth.since + srtt) as f64 / 1e9;
        let cubic = CUBIC_C * (since - growth.k).powi(3) * MTU + widest.max(window);
        let wanted = growth.reno.max(cubic.min(1.5 * window));
        let step = (wanted - window).max(0.0) * bytes / window;
        self.bytes = (window + step).max(growth.reno);
    }
}

impl Delivery {
    /// The window that carries the greatest rate seen without a standing queue, and the data
    /// that the peer has not acknowledged yet because it delays its acknowledgements.
    fn window(&self, ack_delay: Nanos) -> f64 {
        let rate = self.rates.iter().copied().fold(0.0, f64::max);
        let in_flight = rate * self.rtt_min.unwrap_or(0) as f64;
        let untold = (rate * ack_delay as f64).min(UNTOLD_PACKETS * MTU);
        in_flight * (1.0 + LOSS_SHARE) + untold
    }
}

#[cfg(test)]
mod tests {
    use super::super::MS;
    use super::*;

    const RTT: Nanos = 100 * MS;

    /// A window after `flights` of `bytes` each, one per round trip.
    fn after(kind: Congestion, flights: u64, bytes: u32) -> (Window, Nanos) {
        let mut window = Window::new(kind, 0.0, 5 * MS);
        let mut now = 0;
        for _ in 0..flights {
            now += RTT;
            window.handle_rtt(RTT);
            window.handle_ack(now, now - RTT, bytes, false, RTT);
            window.handle_acks_end(now, RTT);
        }
        (window, now)
    }

    #[test]
    fn after_a_loss_cubic_falls_and_the_relays_keep_what_the_path_carries() {
        let (mut cubic, now) = after(Congestion::Cubic, 20, 14_000);
        cubic.handle_loss(now, now - RTT);
        assert_eq!(cubic.bytes(), CUBIC_WINDOW_FIRST * CUBIC_BETA);
        let (mut ours, now) = after(Congestion::Westwood, 20, 28_000);
        ours.handle_loss(now, now - RTT);
        // 28 kB in two round trips are acknowledged: no rate is taken over less than 110 ms.
        assert!(ours.bytes() >= 28_000.0, "{}", ours.bytes());
        let (mut idle, now) = after(Congestion::Westwood, 20, 1000);
        idle.handle_loss(now, now - RTT);
        assert_eq!(idle.bytes(), WESTWOOD_WINDOW_FIRST * WESTWOOD_BETA);
    }

    #[test]
    fn losses_of_one_flight_are_one_and_what_is_not_used_does_not_grow() {
        for kind in [Congestion::Cubic, Congestion::Westwood] {
            let (mut window, now) = after(kind, 5, 1000);
            let before = window.bytes();
            window.handle_loss(now, now - RTT);
            let once = window.bytes();
            assert!(once < before);
            window.handle_loss(now + RTT, now - 1);
            assert_eq!(window.bytes(), once);
            window.handle_ack(now + 2 * RTT, now + RTT, 1000, false, RTT);
            assert_eq!(window.bytes(), once);
            window.handle_ack(now + 3 * RTT, now + 2 * RTT, 20_000, true, RTT);
            assert!(window.bytes() > once, "{kind:?}");
        }
    }
}
