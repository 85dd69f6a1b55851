//! One end of an exchange of policy maps over one OpenFlow connection.
//!
//! The end next to the switch only answers, so a controller that does not know these messages never
//! receives any. The end next to the controller asks once, with CAP, as soon as its controller has
//! sent a message after HELLO. A plain switch answers CAP with an ERROR. The end next to the
//! controller then has no peer to exchange maps with, and does not forward the ERROR.

use std::collections::VecDeque;

use bytes::Bytes;
use clock::Instant;
use openflow::{ErrorKind, Frame, MessageKind, Xid};
use sched::PolicyMap;
use sched::policy::MapDigest;

use super::super::line::LineStatus;
use super::super::policy::{
    MAP_BYTES_MAX, PolicyEvent, PolicyExchange, PolicyMessage, PolicyStatus,
};
use super::super::wire::Side;
use super::{ExperimenterMessage, MapPart, Which, error, error_about, is_of};

/// The xid of unsolicited messages.
const XID_NONE: Xid = Xid(0);

/// Work for the caller.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub enum TalkEvent {
    /// Send this frame to the other end of the connection.
    Send(Frame),
    /// Send this frame to our own switch or controller.
    Own(Frame),
    /// Use this map from now on.
    Activate(PolicyMap),
    /// A push has ended.
    Done(Result<MapDigest, String>),
    /// The other end schedules nothing, and answered with this error.
    Nobody(ErrorKind),
}

/// A [`PolicyExchange`] over EXPERIMENTER messages.
#[derive(Debug)]
pub struct PolicyTalk {
    side: Side,
    id: u32,
    exchange: PolicyExchange,
    /// The version byte that the other end uses.
    version: u8,
    peer: Peer,
    faults: u64,
    events: VecDeque<TalkEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// The peer has sent nothing, and was not asked.
    Unknown,
    Asked,
    /// The peer takes and gives maps.
    Exchanges,
    /// The peer does not know maps.
    Nobody,
}

impl PolicyTalk {
    /// Makes an end at `side`; `id` is the experimenter's number.
    pub fn new(side: Side, id: u32, active: PolicyMap) -> PolicyTalk {
        PolicyTalk {
            side,
            id,
            exchange: PolicyExchange::new(active),
            version: 0,
            peer: Peer::Unknown,
            faults: 0,
            events: VecDeque::new(),
        }
    }

    /// Handles a frame from our own side. Returns true if it is not for the other end.
    pub fn handle_own(&mut self, frame: &Frame) -> bool {
        if is_of(self.id, frame.bytes()) {
            // Only the relays exchange the map: peers behind a relay may not change it.
            self.faults += 1;
            if self.side == Side::Controller {
                let refusal = error(frame, ErrorKind::REQUEST_EPERM);
                self.events.push_back(TalkEvent::Own(refusal));
            }
            return true;
        }
        let asks = self.side == Side::Controller && self.peer == Peer::Unknown;
        if asks && frame.kind() != MessageKind::Hello {
            self.ask(frame.version_byte());
        }
        false
    }

    /// Asks the other end whether it exchanges maps, in OpenFlow version `version`.
    pub fn ask(&mut self, version: u8) {
        self.version = version;
        self.peer = Peer::Asked;
        self.say(XID_NONE, &cap(false));
    }

    /// Refuses all maps from now on.
    pub fn give_only(&mut self) {
        self.exchange.give_only();
    }

    /// Handles a frame from the other end. Returns true if it is not for our own side. `line`
    /// returns the counters of the queues.
    pub fn handle(&mut self, frame: &Frame, line: impl FnOnce() -> LineStatus) -> bool {
        if let Some(kind) = error_about(self.id, frame) {
            self.handle_error(kind);
            return true;
        }
        if !is_of(self.id, frame.bytes()) {
            return false;
        }
        let said = ExperimenterMessage::decode(frame).and_then(|message| self.admit(message));
        match said {
            Ok(message) => {
                self.version = frame.version_byte();
                self.handle_message(frame.xid(), message, line);
            }
            Err(kind) => {
                self.faults += 1;
                self.events.push_back(TalkEvent::Send(error(frame, kind)));
            }
        }
        true
    }

    /// Reads `text` and offers it to the other end; without a peer there, the map is in use here at
    /// once. [`TalkEvent::Done`] reports the outcome.
    ///
    /// # Errors
    /// All mistakes in the map, or the reason that it cannot be offered now.
    pub fn push(&mut self, text: &str) -> Result<MapDigest, String> {
        let pushed = match (self.peer, self.side) {
            (Peer::Exchanges, _) => self.exchange.push(text),
            (Peer::Nobody, _) | (Peer::Unknown, Side::Switch) => self.exchange.load(text),
            (Peer::Asked | Peer::Unknown, _) => {
                Err("the other end has not said whether it takes policy maps: try again".to_owned())
            }
        };
        self.drain(XID_NONE);
        pushed
    }

    /// Handles timeouts. Call it regularly.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.exchange.handle_timeout(now);
        self.drain(XID_NONE);
    }

    pub fn poll_event(&mut self) -> Option<TalkEvent> {
        self.events.pop_front()
    }

    pub fn active(&self) -> &PolicyMap {
        self.exchange.active()
    }

    pub fn status(&self) -> PolicyStatus {
        self.exchange.status()
    }

    /// Whether the other end takes and gives maps; `None` while unknown.
    pub fn has_peer(&self) -> Option<bool> {
        match self.peer {
            Peer::Unknown | Peer::Asked => None,
            Peer::Exchanges => Some(true),
            Peer::Nobody => Some(false),
        }
    }

    /// The number of messages that were wrong, unknown or not allowed for their sender, from both
    /// sides.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Returns `message` if the peer may send it now.
    fn admit(&self, message: ExperimenterMessage) -> Result<ExperimenterMessage, ErrorKind> {
        use ExperimenterMessage as M;
        let is_asker = self.side == Side::Controller;
        let may = match &message {
            M::Cap { is_reply: true, .. } => is_asker && self.peer == Peer::Asked,
            M::Cap { .. } => !is_asker,
            // This end requests neither.
            M::GetReply(_) | M::QueueStatsReply(_) => false,
            M::Policy(_) | M::Get(_) | M::QueueStatsRequest => {
                !is_asker || self.peer == Peer::Exchanges
            }
        };
        if may {
            Ok(message)
        } else {
            Err(ErrorKind::REQUEST_EPERM)
        }
    }

    fn handle_message(
        &mut self,
        xid: Xid,
        message: ExperimenterMessage,
        line: impl FnOnce() -> LineStatus,
    ) {
        match message {
            ExperimenterMessage::Cap { is_reply, .. } => {
                if !is_reply {
                    self.say(xid, &cap(true));
                }
                // A peer that asks again has another map.
                self.peer = Peer::Exchanges;
                self.exchange.handle_connected();
                self.drain(XID_NONE);
            }
            ExperimenterMessage::Policy(message) => {
                self.exchange.handle(message);
                self.drain(xid);
            }
            ExperimenterMessage::Get(which) => {
                for part in self.parts(which, &line()) {
                    self.say(xid, &ExperimenterMessage::GetReply(part));
                }
            }
            ExperimenterMessage::QueueStatsRequest => {
                let queues = line().queues;
                self.say(xid, &ExperimenterMessage::QueueStatsReply(queues));
            }
            ExperimenterMessage::GetReply(_) | ExperimenterMessage::QueueStatsReply(_) => {}
        }
    }

    fn handle_error(&mut self, kind: ErrorKind) {
        if self.peer == Peer::Asked {
            self.peer = Peer::Nobody;
            return self.events.push_back(TalkEvent::Nobody(kind));
        }
        self.faults += 1;
        self.exchange.fail(&format!("the other end answers {kind}"));
        self.drain(XID_NONE);
    }

    fn parts(&self, which: Which, line: &LineStatus) -> Vec<MapPart> {
        let map = match which {
            Which::Active => Some((self.exchange.active(), self.exchange.digest())),
            Which::Staged => self.exchange.staged(),
        };
        let is_active = which == Which::Active;
        let of = MapPart {
            which,
            more: false,
            map: map.map(|(map, digest)| (map.generation, digest)),
            hits: if is_active {
                line.rules.clone()
            } else {
                Vec::new()
            },
            hits_default: if is_active { line.default_hits } else { 0 },
            text: Bytes::new(),
        };
        let text = map.map_or_else(Bytes::new, |(map, _)| map.to_text().into());
        MapPart::all(&of, text)
    }

    fn drain(&mut self, xid: Xid) {
        while let Some(event) = self.exchange.poll_event() {
            match event {
                PolicyEvent::Send(message) => {
                    // Only an answer can be a reply to a request.
                    let is_answer = matches!(message, PolicyMessage::Ack { .. });
                    let xid = if is_answer { xid } else { XID_NONE };
                    self.say(xid, &ExperimenterMessage::Policy(message));
                }
                PolicyEvent::Activate(map) => self.events.push_back(TalkEvent::Activate(map)),
                PolicyEvent::Done(outcome) => self.events.push_back(TalkEvent::Done(outcome)),
            }
        }
    }

    fn say(&mut self, xid: Xid, message: &ExperimenterMessage) {
        let frame = message.encode(self.version, self.id, xid);
        self.events.push_back(TalkEvent::Send(frame));
    }
}

fn cap(is_reply: bool) -> ExperimenterMessage {
    ExperimenterMessage::Cap {
        is_reply,
        map_bytes_max: MAP_BYTES_MAX as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENTER_ID;
    use super::*;

    fn map(generation: u64) -> PolicyMap {
        PolicyMap::parse(&text(generation)).unwrap().0
    }

    fn text(generation: u64) -> String {
        format!("Generation: {generation}\nRule #1: udp_dst={generation}, action=queue_id:1\n")
    }

    fn talk(side: Side, generation: u64) -> PolicyTalk {
        PolicyTalk::new(side, EXPERIMENTER_ID, map(generation))
    }

    fn frame(bytes: &[u8]) -> Frame {
        Frame::new(Bytes::copy_from_slice(bytes)).unwrap()
    }

    fn features_request() -> Frame {
        frame(&[4, 5, 0, 8, 0, 0, 0, 1])
    }

    /// Two relays and the messages on the way to each.
    struct Pair {
        /// The relay beside the controller, then the relay beside the switch.
        ends: [PolicyTalk; 2],
        wire: [VecDeque<Frame>; 2],
        done: Vec<Result<MapDigest, String>>,
    }

    impl Pair {
        fn new(generations: [u64; 2]) -> Pair {
            let mut pair = Pair {
                ends: [
                    talk(Side::Controller, generations[0]),
                    talk(Side::Switch, generations[1]),
                ],
                wire: Default::default(),
                done: Vec::new(),
            };
            assert!(!pair.ends[0].handle_own(&features_request()));
            pair.drain();
            pair
        }

        fn drain(&mut self) {
            for at in 0..2 {
                while let Some(event) = self.ends[at].poll_event() {
                    match event {
                        TalkEvent::Send(frame) => self.wire[1 - at].push_back(frame),
                        TalkEvent::Done(done) => self.done.push(done),
                        TalkEvent::Activate(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
        }

        fn step(&mut self, at: usize) -> bool {
            let Some(frame) = self.wire[at].pop_front() else {
                return false;
            };
            assert!(self.ends[at].handle(&frame, LineStatus::default));
            self.drain();
            true
        }

        fn settle(&mut self) {
            while self.step(0) | self.step(1) {}
        }

        fn generations(&self) -> [u64; 2] {
            [0, 1].map(|at| self.ends[at].active().generation)
        }
    }

    #[test]
    fn a_push_from_either_relay_is_committed_at_both() {
        let mut pair = Pair::new([1, 1]);
        pair.settle();
        assert_eq!(pair.ends[0].has_peer(), Some(true));
        let digest = pair.ends[0].push(&text(2)).unwrap();
        pair.drain();
        assert_eq!(pair.generations(), [1, 1]);
        pair.settle();
        assert_eq!(pair.generations(), [2, 2]);
        assert_eq!(pair.done, [Ok(digest)]);
        pair.ends[1].push(&text(3)).unwrap();
        pair.drain();
        pair.settle();
        assert_eq!(pair.generations(), [3, 3]);
        let in_sync = |end: &PolicyTalk| end.status().is_in_sync == Some(true);
        assert!(pair.ends.iter().all(in_sync));
        assert_eq!(pair.ends.each_ref().map(PolicyTalk::faults), [0, 0]);
    }

    /// A connection that breaks ends its exchange; the maps stay and are reconciled on the next
    /// one.
    #[test]
    fn broken_after_any_message_both_relays_keep_a_whole_map_and_agree_on_the_next_connection() {
        let mut seen = [0; 3];
        for steps in 0..8 {
            let mut pair = Pair::new([1, 1]);
            pair.settle();
            pair.ends[0].push(&text(2)).unwrap();
            pair.drain();
            for _ in 0..steps {
                let _ = pair.step(1) || pair.step(0);
            }
            let broken = pair.generations();
            assert!(broken[0] <= broken[1], "first at the far end: {broken:?}");
            seen[(broken[0] + broken[1]) as usize - 2] += 1;
            let mut pair = Pair::new(broken);
            pair.settle();
            let newest = broken[1];
            assert_eq!(pair.generations(), [newest; 2], "{steps}");
        }
        assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
    }

    #[test]
    fn what_is_wrong_with_a_pushed_map_is_answered_and_the_running_one_stays() {
        let mut switch = talk(Side::Switch, 5);
        let wrong = "Generation: 6\nRule #1: udp_dst=70000, action=drop\n";
        let digest = MapDigest(<sha2::Sha256 as sha2::Digest>::digest(wrong).into());
        let messages = [
            PolicyMessage::Begin {
                generation: 6,
                digest,
                len: wrong.len() as u64,
            },
            PolicyMessage::Chunk {
                offset: 0,
                bytes: wrong.into(),
            },
        ];
        for (xid, message) in messages.into_iter().enumerate() {
            let message = ExperimenterMessage::Policy(message);
            let frame = message.encode(1, EXPERIMENTER_ID, Xid(xid as u32));
            assert!(switch.handle(&frame, LineStatus::default));
        }
        let Some(TalkEvent::Send(answer)) = switch.poll_event() else {
            panic!("no answer");
        };
        assert_eq!((answer.version_byte(), answer.xid()), (1, Xid(1)));
        let ExperimenterMessage::Policy(PolicyMessage::Ack { answer, .. }) =
            ExperimenterMessage::decode(&answer).unwrap()
        else {
            panic!("{answer:?}");
        };
        let why = format!("{answer:?}");
        assert!(why.contains("E06") && why.contains("E12"), "{why}");
        assert_eq!(switch.active().generation, 5);
    }

    #[test]
    fn a_plain_switch_means_nobody_is_there_and_its_controller_is_not_told() {
        let mut end = talk(Side::Controller, 1);
        assert!(!end.handle_own(&frame(&[4, 0, 0, 8, 0, 0, 0, 0])));
        assert!(end.poll_event().is_none(), "no version is agreed on yet");
        assert!(end.push(&text(2)).is_err());
        assert!(!end.handle_own(&features_request()));
        let Some(TalkEvent::Send(asked)) = end.poll_event() else {
            panic!("it does not ask");
        };
        let refusal = error(&asked, ErrorKind::BAD_EXPERIMENTER);
        assert!(end.handle(&refusal, LineStatus::default), "ours to hear");
        let nobody = TalkEvent::Nobody(ErrorKind::BAD_EXPERIMENTER);
        assert_eq!(end.poll_event(), Some(nobody));
        end.push(&text(2)).unwrap();
        assert_eq!(end.active().generation, 2);
        assert_eq!(end.status().is_in_sync, None);
        assert!(!end.handle_own(&features_request()));
        assert!(matches!(end.poll_event(), Some(TalkEvent::Activate(_))));
        assert!(matches!(end.poll_event(), Some(TalkEvent::Done(Ok(_)))));
        assert!(end.poll_event().is_none(), "it asks once");
    }

    #[test]
    fn who_has_no_say_is_refused_and_counted() {
        // A switch that acts as a relay before it was asked.
        let mut end = talk(Side::Controller, 1);
        let begin = ExperimenterMessage::Policy(PolicyMessage::Begin {
            generation: 9,
            digest: MapDigest([0; 32]),
            len: 1,
        });
        let begin = begin.encode(4, EXPERIMENTER_ID, Xid(7));
        assert!(end.handle(&begin, LineStatus::default));
        let refusal = error(&begin, ErrorKind::REQUEST_EPERM);
        assert_eq!(end.poll_event(), Some(TalkEvent::Send(refusal.clone())));
        // A controller behind its relay.
        assert!(end.handle_own(&begin));
        assert_eq!(end.poll_event(), Some(TalkEvent::Own(refusal)));
        assert_eq!(end.faults(), 2);
        // A message of another experimenter passes through.
        let other = ExperimenterMessage::QueueStatsRequest.encode(4, 0x2320, Xid(7));
        assert!(!end.handle(&other, LineStatus::default));
        let mut switch = talk(Side::Switch, 1);
        assert!(switch.handle_own(&begin));
        assert!(switch.poll_event().is_none());
    }

    #[test]
    fn the_map_is_read_back_with_its_counters() {
        let mut switch = talk(Side::Switch, 3);
        let line = || LineStatus {
            rules: vec![(1, 17)],
            default_hits: 4,
            queues: vec![Default::default(); 2],
            ..LineStatus::default()
        };
        let mut ask = |message: ExperimenterMessage| {
            let frame = message.encode(4, EXPERIMENTER_ID, Xid(5));
            assert!(switch.handle(&frame, line));
            let Some(TalkEvent::Send(answer)) = switch.poll_event() else {
                panic!("no answer");
            };
            assert_eq!(answer.xid(), Xid(5));
            ExperimenterMessage::decode(&answer).unwrap()
        };
        let ExperimenterMessage::GetReply(part) = ask(ExperimenterMessage::Get(Which::Active))
        else {
            panic!("no map");
        };
        assert_eq!(part.map, Some((3, map(3).digest())));
        assert_eq!(part.text, map(3).to_text());
        assert_eq!((part.hits, part.hits_default), (vec![(1, 17)], 4));
        let ExperimenterMessage::GetReply(part) = ask(ExperimenterMessage::Get(Which::Staged))
        else {
            panic!("no map");
        };
        assert_eq!(part.map, None);
        let queues = ask(ExperimenterMessage::QueueStatsRequest);
        assert_eq!(queues, ExperimenterMessage::QueueStatsReply(line().queues));
    }
}
