//! Policy maps of a relay that carries each connection over a separate one. They travel in
//! EXPERIMENTER messages of these connections, each of which may have another relay or none at its
//! other end.

use std::sync::Arc;

use bytes::BytesMut;
use openflow::Frame;
use relay::{Line, LineStatus, PolicyStatus, PolicyTalk, Side, TalkEvent, datapath_of};
use sched::PolicyMap;
use sched::policy::{Against, MapDigest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};
use tokio::time;

use super::{COPY_BYTES, Carried, Counts, Direct};
use net::transport::{Reader, Writer};

/// The interval between two checks for a missing answer.
const TICK: time::Duration = time::Duration::from_millis(500);
/// Bound on the answers beyond the queues: a peer that asks for more and reads nothing is cut off.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The result of a pushed map at one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The connection, or the target that will be dialled for the first one.
    pub name: String,
    pub outcome: Result<MapDigest, String>,
    /// Nobody at the other end schedules: the map is in use at this end.
    pub is_alone: bool,
    /// The map was in use there before.
    pub is_unchanged: bool,
}

impl Direct {
    /// Gives every connection another policy map, at both of its ends or at neither. Where nobody
    /// at the other end schedules, this end gets the map. Later connections begin with it. The
    /// newest map may be pushed again: it changes nothing where it is in use.
    ///
    /// # Errors
    /// Every problem of the map.
    pub async fn push_policy(&self, text: &str) -> Result<Vec<Pushed>, String> {
        let Some(newest) = &self.newest else {
            return Err("this relay does not schedule: start it with --policy auster".to_owned());
        };
        let newest = newest.borrow().clone();
        let is_again = PolicyMap::parse(text).is_ok_and(|(map, _)| map == *newest);
        let against = Against {
            generation: (!is_again).then_some(newest.generation),
            ..Against::default()
        };
        let (map, _) = PolicyMap::parse_against(text, &against).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })?;
        let open: Vec<Arc<Carried>> = self.lock().open.values().cloned().collect();
        let mut pushed = Vec::new();
        for carried in &open {
            pushed.push(match self.in_use_at(carried, &map) {
                Some(in_use) => in_use,
                None => self.push_to(carried, text).await,
            });
        }
        if open.is_empty() {
            pushed.push(Pushed {
                name: self.target.to_string(),
                outcome: Ok(map.digest()),
                is_alone: true,
                is_unchanged: is_again,
            });
        }
        if pushed.iter().any(|one| one.outcome.is_ok()) {
            self.raise(map);
        }
        Ok(pushed)
    }

    /// Returns the newest map in use, and every later one.
    pub fn committed(&self) -> Option<watch::Receiver<Arc<PolicyMap>>> {
        self.newest.as_ref().map(watch::Sender::subscribe)
    }

    /// Returns the outcome of a push to a connection whose ends already have that map.
    fn in_use_at(&self, carried: &Carried, map: &PolicyMap) -> Option<Pushed> {
        let counts = carried.lock();
        let talk = counts.talk.as_ref().filter(|talk| talk.active() == map)?;
        let is_in_use = talk.status().is_in_sync != Some(false);
        is_in_use.then(|| Pushed {
            name: self.name_of(carried),
            outcome: Ok(map.digest()),
            is_alone: talk.has_peer() != Some(true),
            is_unchanged: true,
        })
    }

    fn name_of(&self, carried: &Carried) -> String {
        format!("{} connection {}", self.target, carried.id)
    }

    async fn push_to(&self, carried: &Carried, text: &str) -> Pushed {
        let (tell, told) = oneshot::channel();
        let (begun, is_alone) = {
            let mut counts = carried.lock();
            let begun = match &mut counts.talk {
                Some(talk) => talk.push(text),
                None => Err("it does not schedule".to_owned()),
            };
            let talk = counts.talk.as_ref();
            let is_alone = talk.is_none_or(|talk| talk.has_peer() != Some(true));
            if begun.is_ok() {
                // One map at a time: nobody else waits.
                counts.tell = Some(tell);
            }
            self.drain(carried, &mut counts);
            (begun, is_alone)
        };
        let outcome = match begun {
            Err(error) => Err(error),
            Ok(_) => told.await.unwrap_or_else(|_| {
                let gone = "the connection ended; the map is not in use at this end";
                Err(gone.to_owned())
            }),
        };
        Pushed {
            name: self.name_of(carried),
            outcome,
            is_alone,
            is_unchanged: false,
        }
    }

    /// Sets the map that later connections begin with.
    fn raise(&self, map: PolicyMap) {
        if let Some(newest) = &self.newest {
            newest.send_if_modified(|active| {
                let is_newer = map.generation > active.generation;
                if is_newer {
                    *active = Arc::new(map);
                }
                is_newer
            });
        }
    }

    /// The status of the first connection whose ends differ, or of the first that has another end.
    /// Without one, the status of this end alone.
    pub(super) fn policy_status(&self, open: &[Arc<Carried>]) -> Option<PolicyStatus> {
        let newest = self.newest.as_ref()?.borrow().clone();
        let statuses = open.iter().filter_map(|carried| {
            let counts = carried.lock();
            counts.talk.as_ref().map(PolicyTalk::status)
        });
        let told: Vec<PolicyStatus> = statuses.filter(|s| s.peer.is_some()).collect();
        let differing = told.iter().find(|s| s.is_in_sync == Some(false));
        let alone = PolicyStatus {
            generation: newest.generation,
            digest: newest.digest(),
            peer: None,
            is_in_sync: None,
        };
        Some(*differing.or(told.first()).unwrap_or(&alone))
    }

    /// Carries messages from the link to our own side, except for those about policy maps.
    pub(super) async fn deliver(
        &self,
        carried: &Carried,
        mut reader: Reader,
        mut writer: Writer,
    ) -> String {
        let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
        loop {
            input.reserve(COPY_BYTES);
            tokio::select! {
                read = reader.read_buf(&mut input) => match read {
                    Ok(0) => {
                        let _ = writer.shutdown().await;
                        return "closed".to_owned();
                    }
                    Ok(_) => {}
                    Err(error) => return error.to_string(),
                },
                () = carried.own.notified() => {}
            }
            if let Err(problem) = self.sort(carried, &mut input, &mut output) {
                return problem;
            }
            let written = async {
                writer.write_all(&output).await?;
                writer.flush().await
            };
            if let Err(error) = written.await {
                return error.to_string();
            }
            output.clear();
        }
    }

    fn sort(
        &self,
        carried: &Carried,
        input: &mut BytesMut,
        output: &mut BytesMut,
    ) -> Result<(), String> {
        let split = |input: &mut BytesMut| {
            Frame::split_from(input).map_err(|error| format!("not OpenFlow: {error}"))
        };
        let mut counts = carried.lock();
        while let Some(frame) = split(input)? {
            self.check_datapath(carried, &frame)?;
            let Counts { talk, line, .. } = &mut *counts;
            let line = line.as_ref();
            let status = || line.map_or_else(LineStatus::default, Line::status);
            if talk
                .as_mut()
                .is_some_and(|talk| talk.handle(&frame, status))
            {
                self.drain(carried, &mut counts);
            } else {
                if self.side == Side::Controller {
                    counts.datapath = counts.datapath.or_else(|| datapath_of(&frame));
                }
                let datapath = counts.datapath;
                if let Some(line) = &mut counts.line {
                    line.handle_other_way(self.clock.now(), 0, datapath, frame.bytes());
                }
                counts.given.add(frame.bytes());
                output.extend_from_slice(frame.bytes());
            }
        }
        let own = std::mem::take(&mut counts.own);
        output.extend_from_slice(&own);
        let waiting = |line: &Line| line.bytes() > line.bytes_hard() + ANSWER_BYTES_MAX;
        if counts.line.as_ref().is_some_and(waiting) {
            return Err("it asks for policy maps and reads no answers".to_owned());
        }
        Ok(())
    }

    /// Handles deadlines as long as it is polled.
    pub(super) async fn tick(&self, carried: &Carried) {
        loop {
            time::sleep(TICK).await;
            let mut counts = carried.lock();
            if let Some(talk) = &mut counts.talk {
                talk.handle_timeout(self.clock.now());
            }
            self.drain(carried, &mut counts);
        }
    }

    /// Carries out the events of the talk.
    pub(super) fn drain(&self, carried: &Carried, counts: &mut Counts) {
        while let Some(event) = counts.talk.as_mut().and_then(PolicyTalk::poll_event) {
            match event {
                TalkEvent::Send(frame) => {
                    if let Some(line) = &mut counts.line {
                        line.push(self.clock.now(), 0, None, &frame);
                    }
                    carried.sends.notify_one();
                }
                TalkEvent::Own(frame) => {
                    counts.own.extend_from_slice(frame.bytes());
                    carried.own.notify_one();
                }
                TalkEvent::Activate(map) => {
                    let channel = carried.id;
                    tracing::info!(channel, generation = map.generation, "another policy map");
                    if let Some(line) = &mut counts.line {
                        line.set_map(&map);
                    }
                    // Beside the controller, the operator sets the map: a switch speaks only for
                    // its own connection.
                    if self.side == Side::Switch {
                        self.raise(map);
                    }
                }
                TalkEvent::Done(outcome) => {
                    if let Some(tell) = counts.tell.take() {
                        let _ = tell.send(outcome);
                    }
                }
                TalkEvent::Nobody(kind) => tracing::info!(
                    channel = carried.id,
                    "the other end answers {kind}: it schedules nothing, this end does"
                ),
            }
        }
    }
}
