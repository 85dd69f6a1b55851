//! The exchange of a policy map between the ends of a relay pair: both use the map, or neither.
//!
//! The end that is given a map reads the map, offers it to the other end in pieces, and waits. The
//! other end reads the map too, and stages it or refuses it with a list of all errors. Then the far
//! end commits the map, and the first end does so after the confirmation. If the connection breaks
//! before that, both ends keep their old map. The ends differ in only one case: when a confirmation
//! is lost. The next connection repairs this: the ends report their maps, and the end with the
//! greater generation offers its map to the other. Different maps of equal generation stay, and are
//! reported ([`PolicyExchange::is_in_sync`]).
//!
//! Waiting messages are not classified again.

use std::collections::VecDeque;

use bytes::Bytes;
use clock::{Duration, Instant};
use sched::PolicyMap;
use sched::policy::{Against, MapDigest};
use sha2::{Digest as _, Sha256};

/// Maximum length of a map's canonical text; 64 rules and 16 queues have some 12 kB.
pub const MAP_BYTES_MAX: usize = 256 * 1024;

/// Maximum bytes of one piece: other control messages wait for no more than this.
pub const CHUNK_BYTES_MAX: usize = 16 * 1024;

/// Maximum time for the other end to answer. An end that does not know policy maps never answers.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum bytes of the reasons in a refusal.
const REASONS_BYTES_MAX: usize = 32 * 1024;

/// The messages about one map on the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyMessage {
    /// The map that the sender has committed.
    Active {
        generation: u64,
        digest: MapDigest,
    },
    /// A map of `len` bytes follows.
    Begin {
        generation: u64,
        digest: MapDigest,
        len: u64,
    },
    Chunk {
        offset: u64,
        bytes: Bytes,
    },
    /// Use the staged map.
    Commit {
        generation: u64,
        digest: MapDigest,
    },
    Ack {
        generation: u64,
        digest: MapDigest,
        answer: Answer,
    },
}

/// The map of one end, and the known state of the other end's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyStatus {
    pub generation: u64,
    pub digest: MapDigest,
    /// Generation and digest of the other end's map, as far as the other end has reported them.
    pub peer: Option<(u64, MapDigest)>,
    pub is_in_sync: Option<bool>,
}

/// The outcome of a map at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Staged,
    Committed,
    /// All mistakes, a line each.
    Refused(String),
}

/// Work for the caller.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyEvent {
    Send(PolicyMessage),
    /// Use this map from now on.
    Activate(PolicyMap),
    /// A push has ended.
    Done(Result<MapDigest, String>),
}

/// One end of the exchange.
#[derive(Debug)]
pub struct PolicyExchange {
    active: PolicyMap,
    digest: MapDigest,
    is_connected: bool,
    /// Whether all maps are refused.
    gives_only: bool,
    /// Generation and digest of the other end's map.
    peer: Option<(u64, MapDigest)>,
    offer: Option<Offer>,
    arriving: Option<PartialMap>,
    staged: Option<(PolicyMap, MapDigest)>,
    events: VecDeque<PolicyEvent>,
}

/// A map offered to the other end and not confirmed yet.
#[derive(Debug)]
struct Offer {
    map: PolicyMap,
    digest: MapDigest,
    /// The deadline, counted from the first clock reading after the offer was made.
    until: Option<Instant>,
    /// Whether a caller waits for the outcome.
    is_asked_for: bool,
}

/// A map with pieces still missing.
#[derive(Debug)]
struct PartialMap {
    generation: u64,
    digest: MapDigest,
    len: usize,
    bytes: Vec<u8>,
}

impl PolicyExchange {
    pub fn new(active: PolicyMap) -> PolicyExchange {
        PolicyExchange {
            digest: active.digest(),
            active,
            is_connected: false,
            gives_only: false,
            peer: None,
            offer: None,
            arriving: None,
            staged: None,
            events: VecDeque::new(),
        }
    }

    /// Refuses all maps from now on.
    pub fn give_only(&mut self) {
        self.gives_only = true;
    }

    pub fn active(&self) -> &PolicyMap {
        &self.active
    }

    pub fn digest(&self) -> MapDigest {
        self.digest
    }

    /// Generation and digest of the other end's map; `None` until it has reported one.
    pub fn peer(&self) -> Option<(u64, MapDigest)> {
        self.peer
    }

    /// The map that has arrived whole and waits to be committed.
    pub fn staged(&self) -> Option<(&PolicyMap, MapDigest)> {
        self.staged.as_ref().map(|(map, digest)| (map, *digest))
    }

    pub fn status(&self) -> PolicyStatus {
        PolicyStatus {
            generation: self.active.generation,
            digest: self.digest,
            peer: self.peer,
            is_in_sync: self.is_in_sync(),
        }
    }

    /// Whether both ends have the same map, as far as is known.
    pub fn is_in_sync(&self) -> Option<bool> {
        self.peer.map(|(_, digest)| digest == self.digest)
    }

    /// Reads `text` and offers it to the other end. [`PolicyEvent::Done`] reports the outcome.
    ///
    /// # Errors
    /// All mistakes in the map, or the reason that it cannot be offered now.
    pub fn push(&mut self, text: &str) -> Result<MapDigest, String> {
        let map = self.read_new(text)?;
        if !self.is_connected {
            return Err("there is no connection to the other relay: try again later".to_owned());
        }
        if self.offer.is_some() || self.arriving.is_some() || self.staged.is_some() {
            return Err("another map is on its way: try again".to_owned());
        }
        let digest = map.digest();
        self.offer(map, true);
        Ok(digest)
    }

    /// Reads and offers a map like [`PolicyExchange::push`]; without a peer the map is in use at
    /// once.
    ///
    /// # Errors
    /// The same as those of [`PolicyExchange::push`].
    pub fn load(&mut self, text: &str) -> Result<MapDigest, String> {
        if self.is_connected {
            return self.push(text);
        }
        let map = self.read_new(text)?;
        let digest = map.digest();
        self.activate(map, digest);
        self.events.push_back(PolicyEvent::Done(Ok(digest)));
        Ok(digest)
    }

    /// Ends the offer without success.
    pub fn fail(&mut self, why: &str) {
        self.give_up(why);
    }

    /// Notes that the control stream is open.
    pub fn handle_connected(&mut self) {
        self.is_connected = true;
        self.announce();
    }

    /// Gives up an exchange under way, as the other end does.
    pub fn handle_disconnected(&mut self) {
        self.is_connected = false;
        self.peer = None;
        self.arriving = None;
        self.staged = None;
        self.events
            .retain(|event| !matches!(event, PolicyEvent::Send(_)));
        self.give_up("the connection to the other relay broke; the map is not in use here");
    }

    pub fn handle(&mut self, message: PolicyMessage) {
        match message {
            PolicyMessage::Active { generation, digest } => {
                self.peer = Some((generation, digest));
                if generation < self.active.generation && self.offer.is_none() {
                    self.offer(self.active.clone(), false);
                }
            }
            PolicyMessage::Begin {
                generation,
                digest,
                len,
            } => self.handle_begin(generation, digest, len),
            PolicyMessage::Chunk { offset, bytes } => self.handle_chunk(offset, &bytes),
            PolicyMessage::Commit { generation, digest } => self.handle_commit(generation, digest),
            PolicyMessage::Ack {
                generation,
                digest,
                answer,
            } => self.handle_ack(generation, digest, answer),
        }
    }

    pub fn poll_event(&mut self) -> Option<PolicyEvent> {
        self.events.pop_front()
    }

    /// Handles timeouts. Call it regularly: the wait for an answer is limited.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(offer) = &mut self.offer else {
            return;
        };
        let until = *offer.until.get_or_insert(now + ANSWER_TIME_MAX);
        if until <= now {
            self.give_up("the other relay did not answer; the map is not in use here");
        }
    }

    fn read_new(&self, text: &str) -> Result<PolicyMap, String> {
        if text.len() > MAP_BYTES_MAX {
            return Err(format!(
                "a map of {} bytes: {MAP_BYTES_MAX} is the most that is taken",
                text.len()
            ));
        }
        let against = Against {
            generation: Some(self.active.generation),
            ..Against::default()
        };
        let (map, _) = PolicyMap::parse_against(text, &against).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })?;
        Ok(map)
    }

    fn offer(&mut self, map: PolicyMap, is_asked_for: bool) {
        let text = map.to_text();
        let digest = map.digest();
        self.send(PolicyMessage::Begin {
            generation: map.generation,
            digest,
            len: text.len() as u64,
        });
        let text = Bytes::from(text);
        for offset in (0..text.len()).step_by(CHUNK_BYTES_MAX) {
            let end = text.len().min(offset + CHUNK_BYTES_MAX);
            self.send(PolicyMessage::Chunk {
                offset: offset as u64,
                bytes: text.slice(offset..end),
            });
        }
        self.offer = Some(Offer {
            map,
            digest,
            until: None,
            is_asked_for,
        });
    }

    fn give_up(&mut self, why: &str) {
        if self.offer.take().is_some_and(|offer| offer.is_asked_for) {
            self.events
                .push_back(PolicyEvent::Done(Err(why.to_owned())));
        }
    }

    fn handle_begin(&mut self, generation: u64, digest: MapDigest, len: u64) {
        self.staged = None;
        self.arriving = None;
        if self.gives_only {
            let why = "this controller has its map from its own --policy";
            return self.refuse(generation, digest, why);
        }
        if let Some(offer) = &self.offer {
            if generation <= offer.map.generation {
                return self.refuse(generation, digest, "another map is on its way");
            }
            self.give_up("the other relay pushes a map of a greater generation");
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > MAP_BYTES_MAX {
            let why = format!("a map of {len} bytes: {MAP_BYTES_MAX} is the most that is taken");
            return self.refuse(generation, digest, &why);
        }
        self.arriving = Some(PartialMap {
            generation,
            digest,
            len,
            bytes: Vec::new(),
        });
        self.stage_if_whole();
    }

    fn handle_chunk(&mut self, offset: u64, bytes: &[u8]) {
        // More pieces of a refused map may be on the way.
        let Some(arriving) = &mut self.arriving else {
            return;
        };
        let is_next = offset == arriving.bytes.len() as u64;
        if !is_next || arriving.bytes.len() + bytes.len() > arriving.len {
            let (generation, digest) = (arriving.generation, arriving.digest);
            self.arriving = None;
            return self.refuse(generation, digest, "its pieces do not fit together");
        }
        arriving.bytes.extend_from_slice(bytes);
        self.stage_if_whole();
    }

    fn stage_if_whole(&mut self) {
        let whole = self.arriving.take_if(|a| a.bytes.len() == a.len);
        let Some(arrived) = whole else {
            return;
        };
        let (generation, digest) = (arrived.generation, arrived.digest);
        match self.read(&arrived) {
            Ok(map) => {
                self.staged = Some((map, digest));
                self.answer(generation, digest, Answer::Staged);
            }
            Err(why) => self.refuse(generation, digest, &why),
        }
    }

    /// Reads the map that has arrived, if it is the announced one, valid, and newer than ours.
    fn read(&self, arrived: &PartialMap) -> Result<PolicyMap, String> {
        if MapDigest(Sha256::digest(&arrived.bytes).into()) != arrived.digest {
            return Err("E15: it has another digest than was announced".to_owned());
        }
        let text = std::str::from_utf8(&arrived.bytes).map_err(|_| "it is no text".to_owned())?;
        let against = Against {
            generation: Some(self.active.generation),
            digest: Some(arrived.digest),
            queues_only: false,
        };
        let (map, _) = PolicyMap::parse_against(text, &against).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })?;
        if map.generation != arrived.generation {
            return Err("E14: it has another generation than was announced".to_owned());
        }
        Ok(map)
    }

    fn handle_commit(&mut self, generation: u64, digest: MapDigest) {
        let is_meant = |(map, staged): &mut (PolicyMap, MapDigest)| {
            map.generation == generation && *staged == digest
        };
        match self.staged.take_if(is_meant) {
            Some((map, digest)) => {
                self.peer = None;
                self.activate(map, digest);
                self.answer(generation, digest, Answer::Committed);
            }
            None => self.refuse(generation, digest, "it is not staged"),
        }
    }

    fn handle_ack(&mut self, generation: u64, digest: MapDigest, answer: Answer) {
        let is_meant =
            |offer: &&mut Offer| offer.map.generation == generation && offer.digest == digest;
        let Some(offer) = self.offer.as_mut().filter(is_meant) else {
            return;
        };
        match answer {
            Answer::Staged => self.send(PolicyMessage::Commit { generation, digest }),
            Answer::Committed => {
                let (map, is_asked_for) = (offer.map.clone(), offer.is_asked_for);
                self.offer = None;
                self.peer = Some((generation, digest));
                if digest != self.digest {
                    self.activate(map, digest);
                }
                self.announce();
                if is_asked_for {
                    self.events.push_back(PolicyEvent::Done(Ok(digest)));
                }
            }
            Answer::Refused(why) => {
                self.give_up(&format!("the other relay refuses it: {why}"));
                self.offer = None;
            }
        }
    }

    fn activate(&mut self, map: PolicyMap, digest: MapDigest) {
        self.active = map.clone();
        self.digest = digest;
        self.events.push_back(PolicyEvent::Activate(map));
    }

    fn announce(&mut self) {
        self.send(PolicyMessage::Active {
            generation: self.active.generation,
            digest: self.digest,
        });
    }

    fn refuse(&mut self, generation: u64, digest: MapDigest, why: &str) {
        let mut end = why.len().min(REASONS_BYTES_MAX);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        self.answer(generation, digest, Answer::Refused(why[..end].to_owned()));
    }

    fn answer(&mut self, generation: u64, digest: MapDigest, answer: Answer) {
        self.send(PolicyMessage::Ack {
            generation,
            digest,
            answer,
        });
    }

    fn send(&mut self, message: PolicyMessage) {
        self.events.push_back(PolicyEvent::Send(message));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(generation: u64) -> String {
        format!(
            "Generation: {generation}\nRule #1: udp_dst={generation}, action=queue_id:1\nDefault: \
             action=queue_id:0\n"
        )
    }

    /// Two ends and the messages on the way between them.
    struct Pair {
        ends: [PolicyExchange; 2],
        /// The messages to each end.
        wire: [VecDeque<PolicyMessage>; 2],
        activated: [Vec<u64>; 2],
        done: Vec<Result<MapDigest, String>>,
        now: Instant,
    }

    impl Pair {
        fn new(first: &str, second: &str) -> Pair {
            let end = |text| PolicyExchange::new(PolicyMap::parse(text).unwrap().0);
            Pair {
                ends: [end(first), end(second)],
                wire: Default::default(),
                activated: Default::default(),
                done: Vec::new(),
                now: Instant::START,
            }
        }

        fn connect(&mut self) {
            self.ends
                .iter_mut()
                .for_each(PolicyExchange::handle_connected);
            self.drain();
        }

        fn disconnect(&mut self) {
            self.ends
                .iter_mut()
                .for_each(PolicyExchange::handle_disconnected);
            self.wire = Default::default();
            self.drain();
        }

        fn drain(&mut self) {
            for at in 0..2 {
                while let Some(event) = self.ends[at].poll_event() {
                    match event {
                        PolicyEvent::Send(message) => self.wire[1 - at].push_back(message),
                        PolicyEvent::Activate(map) => self.activated[at].push(map.generation),
                        PolicyEvent::Done(done) => self.done.push(done),
                    }
                }
            }
        }

        /// Delivers one message to end `at`; returns false if there was none.
        fn step(&mut self, at: usize) -> bool {
            let Some(message) = self.wire[at].pop_front() else {
                return false;
            };
            self.ends[at].handle(message);
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
    fn a_map_is_staged_confirmed_and_committed_at_both_ends() {
        let mut pair = Pair::new(&map(1), &map(1));
        assert!(pair.ends[0].push(&map(2)).is_err(), "not connected");
        pair.connect();
        pair.settle();
        assert_eq!(pair.ends[0].is_in_sync(), Some(true));
        let digest = pair.ends[0].push(&map(2)).unwrap();
        pair.drain();
        assert_eq!(
            pair.generations(),
            [1, 1],
            "nothing is used before it is confirmed"
        );
        pair.settle();
        assert_eq!(pair.generations(), [2, 2]);
        assert_eq!(pair.activated, [[2], [2]]);
        assert_eq!(pair.done, [Ok(digest)]);
        assert!(
            [0, 1]
                .iter()
                .all(|at| pair.ends[*at].is_in_sync() == Some(true))
        );
    }

    #[test]
    fn a_wrong_map_is_refused_with_all_its_errors_and_the_running_one_stays() {
        let mut pair = Pair::new(&map(5), &map(5));
        pair.connect();
        pair.settle();
        let wrong = pair.ends[0].push("Rule #1: udp_dst=70000\n").unwrap_err();
        for code in ["E06", "E12", "E14"] {
            assert!(wrong.contains(code), "{wrong}");
        }
        // A map that the first end accepts is checked again by the second.
        let text = Bytes::from("Generation: 6\nRule #1: udp_dst=70000, action=drop\n");
        let digest = MapDigest(Sha256::digest(&text).into());
        let begin = |digest| PolicyMessage::Begin {
            generation: 6,
            digest,
            len: text.len() as u64,
        };
        let chunk = |offset| PolicyMessage::Chunk {
            offset,
            bytes: text.clone(),
        };
        let other = pair.ends[0].digest();
        for (messages, why) in [
            (vec![begin(digest), chunk(0)], "E12"),
            (vec![begin(other), chunk(0)], "E15"),
            (vec![begin(digest), chunk(1)], "pieces"),
            (
                vec![PolicyMessage::Commit {
                    generation: 6,
                    digest,
                }],
                "not staged",
            ),
        ] {
            messages.into_iter().for_each(|m| pair.ends[1].handle(m));
            let Some(PolicyEvent::Send(PolicyMessage::Ack {
                answer: Answer::Refused(said),
                ..
            })) = pair.ends[1].poll_event()
            else {
                panic!("{why}: not refused");
            };
            assert!(said.contains(why), "{said}");
        }
        let long = PolicyMessage::Begin {
            generation: 6,
            digest,
            len: u64::MAX,
        };
        pair.ends[1].handle(long);
        assert!(matches!(
            pair.ends[1].poll_event(),
            Some(PolicyEvent::Send(PolicyMessage::Ack {
                answer: Answer::Refused(_),
                ..
            }))
        ));
        assert_eq!(pair.generations(), [5, 5]);
        assert!(pair.activated.iter().all(Vec::is_empty));
    }

    #[test]
    fn broken_at_any_message_both_ends_keep_a_whole_map_and_agree_afterwards() {
        for steps in 0..8 {
            let mut pair = Pair::new(&map(1), &map(1));
            pair.connect();
            pair.settle();
            pair.ends[0].push(&map(2)).unwrap();
            pair.drain();
            for _ in 0..steps {
                let _ = pair.step(1) || pair.step(0);
            }
            pair.disconnect();
            let between = pair.generations();
            assert!(
                between[0] <= between[1],
                "it is used there first: {between:?}"
            );
            assert_eq!(pair.done.len(), 1, "{steps}");
            assert_eq!(pair.done[0].is_ok(), between[0] == 2);
            pair.connect();
            pair.settle();
            let after = pair.generations();
            assert_eq!(after[0], after[1], "{steps}: {after:?}");
            assert_eq!(pair.ends[0].is_in_sync(), Some(true));
        }
    }

    #[test]
    fn an_end_that_was_restarted_is_given_the_newer_map_and_equal_generations_stay() {
        let mut pair = Pair::new(&map(9), &map(3));
        pair.connect();
        pair.settle();
        assert_eq!(pair.generations(), [9, 9]);
        assert_eq!(pair.activated, [vec![], vec![9]]);
        assert!(pair.done.is_empty(), "nobody asked");

        let other = map(9).replace("udp_dst", "tcp_dst");
        let mut pair = Pair::new(&map(9), &other);
        pair.connect();
        pair.settle();
        assert_eq!(pair.ends[0].is_in_sync(), Some(false));
        assert!(pair.activated.iter().all(Vec::is_empty));
    }

    #[test]
    fn an_end_that_never_answers_is_not_waited_for_long() {
        let mut pair = Pair::new(&map(1), &map(1));
        pair.connect();
        pair.settle();
        pair.ends[0].push(&map(2)).unwrap();
        pair.ends[0].handle_timeout(pair.now);
        pair.ends[0].handle_timeout(pair.now + ANSWER_TIME_MAX);
        pair.drain();
        assert!(matches!(&pair.done[..], [Err(_)]));
        assert_eq!(pair.generations(), [1, 1]);
        assert!(pair.ends[0].push(&map(2)).is_ok(), "it can be tried again");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Deliver(usize),
        Push(usize, u64),
        Break,
        Wait,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => (0usize..2).prop_map(Step::Deliver),
            2 => (0usize..2, 1u64..20).prop_map(|(at, generation)| Step::Push(at, generation)),
            1 => Just(Step::Break),
            1 => Just(Step::Wait),
        ];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        #[test]
        fn whatever_happens_generations_only_grow_and_the_ends_agree_in_the_end(steps in steps()) {
            let mut pair = Pair::new(&map(1), &map(1));
            pair.connect();
            for step in steps {
                let before = pair.generations();
                match step {
                    Step::Deliver(at) => {
                        pair.step(at);
                    }
                    Step::Push(at, generation) => {
                        let _ = pair.ends[at].push(&map(generation));
                        pair.drain();
                    }
                    Step::Break => {
                        pair.disconnect();
                        pair.connect();
                    }
                    Step::Wait => {
                        pair.now += ANSWER_TIME_MAX;
                        let now = pair.now;
                        pair.ends.iter_mut().for_each(|end| end.handle_timeout(now));
                        pair.drain();
                    }
                }
                let after = pair.generations();
                prop_assert!(before[0] <= after[0] && before[1] <= after[1]);
            }
            pair.disconnect();
            pair.connect();
            pair.settle();
            let [one, other] = pair.generations();
            prop_assert_eq!(one, other);
        }
    }
}
