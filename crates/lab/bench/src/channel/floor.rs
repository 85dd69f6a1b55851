//! CUBIC with a window that never falls below a floor. It suits a path whose rate is guaranteed to
//! this connection, but not a shared path.
//!
//! quinn's CUBIC does not grow its window while the sender is application-limited. After a few
//! losses on a long path, a slow stream of messages is then limited to a packet or two per round
//! trip.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory, CubicConfig};
use quinn_proto::RttEstimator;

/// Makes controllers that allow at least `floor_bytes` in flight.
pub struct FloorConfig {
    pub floor_bytes: u64,
}

struct Floor {
    inner: Box<dyn Controller>,
    floor_bytes: u64,
}

impl ControllerFactory for FloorConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Floor {
            inner: Arc::new(CubicConfig::default()).build(now, current_mtu),
            floor_bytes: self.floor_bytes,
        })
    }
}

impl Controller for Floor {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window().max(self.floor_bytes)
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window().max(self.floor_bytes)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Floor {
            inner: self.inner.clone_box(),
            floor_bytes: self.floor_bytes,
        })
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_take_the_window_to_the_floor_and_no_further() {
        let now = Instant::now();
        let lose = |mut controller: Box<dyn Controller>| {
            for _ in 0..50 {
                controller.on_congestion_event(now, now, true, 1200);
            }
            controller.clone_box().window()
        };
        let floor = Arc::new(FloorConfig {
            floor_bytes: 65_536,
        });
        assert_eq!(lose(floor.build(now, 1200)), 65_536);
        assert!(lose(Arc::new(CubicConfig::default()).build(now, 1200)) < 10_000);
    }
}
