//! The connections of one session: which exist, which one carries each lane, and how a connection
//! joins or leaves while messages are in flight.
//!
//! A lane that moves finishes its stream and continues on another where the first ended. The other
//! end reads the second stream once it has read the first. Both ends leave an unneeded connection
//! before it is closed: each end finishes its half of the stream that the connection joined with,
//! when everything that it sent on the connection is acknowledged.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use quinn::{RecvStream, SendStream};
use relay::{CARRIERS_MAX, Carriers, ChannelId, Session};
use sched::Lane;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::ConnectionStatus;
use super::coalesce::Window;
use super::datagrams;
use super::end::{End, State};
use super::link::{LinkError, bound_unsent, read_lanes, send_lane};
use super::path;
use net::quic;

/// Another connection of the session, with the stream with which it joined.
pub(super) struct Joined {
    pub connection: quinn::Connection,
    pub marks: quic::Marks,
    pub dscp: u8,
    pub send: SendStream,
    pub recv: RecvStream,
}

/// The present connections.
pub(super) struct Live {
    /// Identifies tasks of an earlier connection, which may end a moment late.
    pub generation: u64,
    /// The connection with the control stream.
    pub connection: quinn::Connection,
    /// The first is `connection`.
    carriers: Vec<Carrier>,
    lanes: BTreeMap<(ChannelId, Lane), (Seat, AbortHandle)>,
    /// The lanes that wait to share a packet with others.
    pub window: Window,
}

struct Carrier {
    connection: quinn::Connection,
    marks: quic::Marks,
    dscp: u8,
    /// The receiver is notified once this sender and all of the lanes' clones are dropped. `None`
    /// for the first connection, which nobody leaves.
    is_used: Option<mpsc::Sender<Infallible>>,
}

/// The place of a lane on a connection.
#[derive(Clone)]
pub(super) struct Seat {
    pub channel: ChannelId,
    pub lane: Lane,
    pub connection: quinn::Connection,
    pub wake: Arc<Notify>,
    is_used: Option<mpsc::Sender<Infallible>>,
}

impl Seat {
    /// Whether somebody waits until everything sent here is acknowledged.
    pub fn is_awaited(&self) -> bool {
        self.is_used.is_some()
    }
}

impl Live {
    pub fn new(
        generation: u64,
        connection: quinn::Connection,
        marks: quic::Marks,
        dscp: u8,
    ) -> Live {
        let first = Carrier {
            connection: connection.clone(),
            marks,
            dscp,
            is_used: None,
        };
        Live {
            generation,
            connection,
            carriers: vec![first],
            lanes: BTreeMap::new(),
            window: Window::default(),
        }
    }

    /// Wakes or starts the task of a lane that has something to send, which may wait.
    pub fn transmit(
        &mut self,
        end: &Arc<End>,
        channel: ChannelId,
        lane: Lane,
        dscp: u8,
        wait: Duration,
    ) {
        let key = (channel, lane);
        if let Some((seat, _)) = self.lanes.get(&key) {
            if wait.is_zero() {
                seat.wake.notify_one();
                self.window.close(&end.coalescing);
            } else if self.window.hold(key, &seat.wake, wait, &end.coalescing) {
                end.window_opened.notify_one();
            }
            return;
        }
        let carrier = self.carrier(dscp);
        let seat = Seat {
            channel,
            lane,
            connection: carrier.connection.clone(),
            wake: Arc::new(Notify::new()),
            is_used: carrier.is_used.clone(),
        };
        let lanes = Lanes {
            end: end.clone(),
            generation: self.generation,
        };
        let task = tokio::spawn(send_lane(lanes, seat.clone()));
        self.lanes.insert(key, (seat, task.abort_handle()));
    }

    /// Notifies that a datagram of an agent is to be sent, which may wait.
    pub fn transmit_datagram(&mut self, end: &Arc<End>, wait: Duration) {
        let waiting = &end.datagrams.waiting;
        if wait.is_zero() {
            waiting.notify_waiters();
            self.window.close(&end.coalescing);
        } else if self.window.hold_datagrams(waiting, wait, &end.coalescing) {
            end.window_opened.notify_one();
        }
    }

    /// The connection that has this code point now.
    pub fn connection_of(&self, dscp: u8) -> &quinn::Connection {
        &self.carrier(dscp).connection
    }

    /// Forgets a closed channel: its lanes' tasks notice when woken.
    pub fn forget(&mut self, channel: ChannelId) {
        self.leave_seats(|seat| seat.channel == channel);
    }

    /// Code points of further connections.
    pub fn further(&self) -> impl Iterator<Item = u8> {
        self.carriers[1..].iter().map(|carrier| carrier.dscp)
    }

    /// Returns the counters of each connection.
    pub fn status(&self) -> Vec<ConnectionStatus> {
        let status = |carrier: &Carrier| ConnectionStatus {
            code_point: carrier.dscp,
            rtt: carrier.connection.rtt(),
            lost_packets: carrier.connection.stats().path.lost_packets,
        };
        self.carriers.iter().map(status).collect()
    }

    fn carrier(&self, dscp: u8) -> &Carrier {
        let of = self.carriers.iter().find(|carrier| carrier.dscp == dscp);
        of.unwrap_or(&self.carriers[0])
    }

    /// Returns the code points of the connections that lanes are assigned to, the greatest first.
    fn code_points(&self) -> Vec<u8> {
        let first = self.carriers[0].dscp;
        let mut points: Vec<u8> = self.further().filter(|dscp| *dscp < first).collect();
        points.sort_unstable_by(|a, b| b.cmp(a));
        points.insert(0, first);
        points
    }

    /// Keeps only the further connections that `is_kept` accepts.
    fn keep(&mut self, is_kept: impl Fn(&Carrier) -> bool) {
        let mut is_first = true;
        self.carriers
            .retain(|carrier| std::mem::take(&mut is_first) || is_kept(carrier));
    }

    fn leave_seats(&mut self, leaves: impl Fn(&Seat) -> bool) {
        self.lanes.retain(|_, (seat, _)| {
            let is_left = leaves(seat);
            if is_left {
                seat.wake.notify_one();
            }
            !is_left
        });
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.lanes.values().for_each(|(_, task)| task.abort());
    }
}

impl State {
    /// Assigns lanes to the present connections, by the map in use.
    fn deal_lanes(&mut self) {
        let Some(live) = &mut self.link else { return };
        let points = live.code_points();
        let carriers = match self.session.policy_map() {
            Some(map) => Carriers::among(map, points),
            None => Carriers::one(points[0]),
        };
        self.session.set_carriers(carriers);
        let moved: Vec<(ChannelId, Lane)> = live
            .lanes
            .iter()
            .filter(|((channel, lane), (seat, _))| {
                let carrier = self.session.carrier_of(*channel, *lane);
                let dscp = self.session.code_points()[carrier];
                live.carrier(dscp).connection.stable_id() != seat.connection.stable_id()
            })
            .map(|(key, _)| *key)
            .collect();
        live.leave_seats(|seat| moved.contains(&(seat.channel, seat.lane)));
    }

    /// Applies another map. The first connection stays and gets the map's greatest code point.
    pub fn handle_mapped(&mut self) {
        let map = self.session.policy_map();
        let first = map.map_or(0, |map| Carriers::of(map).code_points()[0]);
        let Some(live) = &mut self.link else { return };
        live.carriers[0].dscp = first;
        let carrier = &live.carriers[0];
        let to = carrier.connection.remote_address();
        carrier.marks.set(to, first);
        self.deal_lanes();
    }

    /// Leaves the further connections that the map in use does not ask for. Returns the code points
    /// of those that it asks for and that are missing.
    pub fn leave_surplus(&mut self) -> Vec<u8> {
        let map = self.session.policy_map();
        let wanted = map.map_or_else(Carriers::default, Carriers::of);
        let wanted = &wanted.code_points()[1..];
        let Some(live) = &mut self.link else {
            return Vec::new();
        };
        let before = live.carriers.len();
        live.keep(|carrier| wanted.contains(&carrier.dscp));
        let there: Vec<u8> = live.further().collect();
        if live.carriers.len() < before {
            self.deal_lanes();
        }
        let missing = wanted.iter().filter(|dscp| !there.contains(dscp));
        missing.copied().collect()
    }
}

/// The state that the tasks of one connection's lanes share.
#[derive(Clone)]
pub(super) struct Lanes {
    pub end: Arc<End>,
    pub generation: u64,
}

impl Lanes {
    /// Calls [`End::with`], unless another connection has replaced this one.
    pub fn with<R>(&self, work: impl FnOnce(&mut Session) -> R) -> Result<R, LinkError> {
        self.with_state(|state| work(&mut state.session))
    }

    /// Calls [`Lanes::with`], if the lane still has that seat.
    pub fn seated<R>(
        &self,
        seat: &Seat,
        work: impl FnOnce(&mut Session) -> R,
    ) -> Result<Option<R>, LinkError> {
        self.with_state(|state| {
            let live = state.link.as_ref().expect("there is a connection");
            let now = live.lanes.get(&(seat.channel, seat.lane));
            let is_now = now.is_some_and(|(now, _)| Arc::ptr_eq(&now.wake, &seat.wake));
            is_now.then(|| work(&mut state.session))
        })
    }

    /// Returns an error unless this connection is the present one.
    pub fn is_now(&self) -> Result<(), LinkError> {
        self.with_state(|_| ())
    }

    pub(super) fn with_state<R>(&self, work: impl FnOnce(&mut State) -> R) -> Result<R, LinkError> {
        self.end.with_state(|state| match &state.link {
            Some(live) if live.generation == self.generation => Ok(work(state)),
            _ => Err(LinkError::Stream(
                "another connection has taken over".to_owned(),
            )),
        })
    }

    /// Moves lanes to `joined`, and away from any other connection of its code point. The caller
    /// must run the result.
    pub fn join(&self, joined: Joined) -> Result<Carried, LinkError> {
        let (is_used, unused) = mpsc::channel(1);
        self.with_state(|state| {
            let live = state.link.as_mut().expect("there is a connection");
            live.keep(|carrier| carrier.dscp != joined.dscp);
            live.carriers.truncate(CARRIERS_MAX - 1);
            live.carriers.push(Carrier {
                connection: joined.connection.clone(),
                marks: joined.marks.clone(),
                dscp: joined.dscp,
                is_used: Some(is_used),
            });
            state.deal_lanes();
        })?;
        self.end.datagrams.waiting.notify_waiters();
        let lanes = self.clone();
        Ok(Carried {
            lanes,
            joined,
            unused,
        })
    }

    fn leave(&self, connection: &quinn::Connection) -> Result<(), LinkError> {
        self.with_state(|state| {
            let live = state.link.as_mut().expect("there is a connection");
            let before = live.carriers.len();
            live.keep(|carrier| carrier.connection.stable_id() != connection.stable_id());
            if live.carriers.len() < before {
                state.deal_lanes();
            }
        })?;
        self.end.datagrams.waiting.notify_waiters();
        Ok(())
    }
}

/// Closes a further connection when the task that drives it ends.
struct Closing(quinn::Connection);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close(0u32.into(), b"the session needs it no more");
    }
}

/// A further connection that lanes are assigned to.
pub(super) struct Carried {
    lanes: Lanes,
    joined: Joined,
    /// Ends once no lane is on the connection and everything sent is acknowledged.
    unused: mpsc::Receiver<Infallible>,
}

impl Carried {
    /// Carries lanes until neither end needs the connection.
    pub async fn run(self) -> Result<(), LinkError> {
        let Carried {
            lanes,
            joined,
            mut unused,
        } = self;
        let Joined {
            connection,
            marks,
            mut send,
            mut recv,
            ..
        } = joined;
        let closing = Closing(connection.clone());
        let ours = async {
            unused.recv().await;
            let _ = send.finish();
        };
        let theirs = async {
            let ended = loop {
                match recv.read_chunk(usize::MAX, true).await {
                    Ok(Some(_)) => {}
                    Ok(None) => break lanes.leave(&connection),
                    Err(error) => break Err(error.into()),
                }
            };
            // The task that accepts its streams learns of the connection's end too.
            if ended.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let both = async {
            tokio::join!(ours, theirs);
        };
        tokio::select! {
            read = read_lanes(lanes.clone(), &connection, both) => read?,
            error = bound_unsent(connection.clone()) => return Err(error),
            never = path::follow(connection.clone(), marks) => match never {},
            error = broken(datagrams::receive(lanes.clone(), connection.clone())) => {
                return Err(error);
            }
            error = broken(datagrams::send(lanes.clone(), connection.clone())) => return Err(error),
        }
        if !lanes.end.is_switch_side() {
            connection.closed().await;
        }
        drop(closing);
        Ok(())
    }
}

/// Returns the error of a task that broke the protocol, and otherwise never returns. The task that
/// accepts the connection's streams learns of its end, and knows whether both ends have agreed on
/// it.
async fn broken(task: impl Future<Output = LinkError>) -> LinkError {
    match task.await {
        error @ LinkError::Wire(_) => error,
        _ => std::future::pending().await,
    }
}
