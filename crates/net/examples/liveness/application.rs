//! An application that is slow at packet-ins and sends nothing.

use std::time::Duration;

use control::ConnectionId;
use control::controller::{Admission, ControllerOutput, PeerIdentity};
use control::session::SwitchUp;
use net::driver::Application;
use openflow::time::Instant;
use openflow::{Frame, MessageKind};

pub struct Slow {
    /// Wall time that each packet-in takes.
    work: Duration,
    /// Works by burning a core; sleeps otherwise.
    spins: bool,
    pub handled: u64,
}

impl Slow {
    pub fn new(work: Duration, spins: bool) -> Slow {
        Slow {
            work,
            spins,
            handled: 0,
        }
    }
}

impl Application for Slow {
    fn handle_up(
        &mut self,
        _now: Instant,
        _connection: ConnectionId,
        _up: SwitchUp,
        _peer: PeerIdentity,
    ) -> Admission {
        Admission::Admitted
    }

    fn handle_frame(&mut self, _now: Instant, _connection: ConnectionId, frame: Frame) {
        if frame.kind() != MessageKind::PacketIn {
            return;
        }
        if self.spins {
            let since = std::time::Instant::now();
            while since.elapsed() < self.work {
                std::hint::spin_loop();
            }
        } else {
            std::thread::sleep(self.work);
        }
        self.handled += 1;
    }

    fn handle_down(&mut self, _now: Instant, _connection: ConnectionId) {}

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_output(&mut self) -> Option<ControllerOutput> {
        None
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }
}
