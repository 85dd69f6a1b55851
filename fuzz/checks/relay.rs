//! The two ends of a relay and a connection between them that breaks. Local sockets send messages
//! of any type, whole and in pieces. Some lanes are carried and others wait. With a certain first
//! byte the other end is hostile: control messages, records and copies of any bytes reach it.
//!
//! Checks that nothing panics, that each input leads to a bounded number of events, and that where
//! nobody is hostile every message leaves the other end once, unchanged, over any breaks.
//!
//! The input is one operation after the other, behind the first byte. An input that ends within an
//! operation is continued with zeros.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use clock::{Duration, Instant};
use openflow::Frame;
use relay::wire::Control;
use relay::{Agent, ChannelId, Config, Event, OrderMode, Session, SessionId, Side};
use sched::Lane;

const EVENTS_MAX: usize = 20_000;
const CHANNELS_MAX: usize = 8;

pub fn check(data: &[u8]) {
    if let Err(why) = run(data) {
        panic!("{why}");
    }
}

/// Carries the operations out. How many there were, or what is wrong.
pub fn run(data: &[u8]) -> Result<u64, String> {
    let mut input = Input(data);
    let mut pair = Pair::new(input.u8());
    pair.connect(false)?;
    let mut count = 0;
    while !input.0.is_empty() {
        pair.operation(&mut input)?;
        count += 1;
    }
    pair.finish()?;
    Ok(count)
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, len: u8) -> BytesMut {
        (0..len).map(|_| self.u8()).collect()
    }
}

struct Pair {
    now: Instant,
    kind: u8,
    ends: [End; 2],
    is_connected: bool,
    sent: u32,
}

struct End {
    session: Session,
    channels: Vec<ChannelId>,
    /// Bytes from local sockets for which there was no room.
    unread: BTreeMap<ChannelId, BytesMut>,
    ready: BTreeSet<(ChannelId, Lane)>,
    streams: BTreeMap<(ChannelId, Lane), Stream>,
    /// Bytes written to local sockets.
    written: BTreeMap<ChannelId, BytesMut>,
    /// Messages that its local sockets gave, and those that came out of them.
    given: BTreeMap<u32, Bytes>,
    taken: BTreeSet<u32>,
}

struct Stream {
    first: u64,
    is_admitted: bool,
    arrived: BytesMut,
}

impl Pair {
    fn new(kind: u8) -> Pair {
        let ends = [Side::Switch, Side::Controller].map(|side| end(kind, side, 1));
        let mut pair = Pair {
            now: Instant::START,
            kind,
            ends,
            is_connected: false,
            sent: 0,
        };
        pair.open();
        pair
    }

    fn is_hostile(&self) -> bool {
        self.kind & 1 == 1
    }

    fn open(&mut self) {
        let end = &mut self.ends[0];
        if end.channels.len() < CHANNELS_MAX
            && let Some(id) = end.session.open(Agent::OpenFlow, "br")
        {
            end.channels.push(id);
        }
    }

    fn operation(&mut self, input: &mut Input<'_>) -> Result<(), String> {
        let (op, n) = (input.u8(), input.u8());
        match op % 16 {
            0..=5 => self.talk(usize::from(n & 1), n >> 1, input),
            6..=8 => self.carry(usize::from(n & 1), n >> 1)?,
            9 => self.disconnect(),
            10 => self.connect(true)?,
            11 => {
                self.now += Duration::from_millis(u64::from(n) * 4);
                for end in &mut self.ends {
                    end.session.handle_timeout(self.now);
                }
            }
            12 => self.open(),
            _ if self.is_hostile() => self.attack(op, n, input)?,
            _ => self.carry(usize::from(n & 1), u8::MAX)?,
        }
        self.settle()
    }

    /// A message comes to a local socket of an end.
    fn talk(&mut self, at: usize, n: u8, input: &mut Input<'_>) {
        let end = &mut self.ends[at];
        let open = end.session.channels().map(|status| status.channel);
        let open: Vec<ChannelId> = open.collect();
        let Some(id) = open.get(usize::from(n) % open.len().max(1)).copied() else {
            return;
        };
        let (version, kind) = ([4, 1][usize::from(n >> 6)], input.u8() % 32);
        let len = input.u8() % 40;
        let body = input.bytes(len);
        self.sent += 1;
        let mut frame = BytesMut::new();
        frame.put_slice(&[version, kind, 0, 8 + len]);
        frame.put_u32(self.sent);
        frame.put_slice(&body);
        let unread = end.unread.entry(id).or_default();
        unread.extend_from_slice(&frame);
        end.given.insert(self.sent, frame.freeze());
        end.session.handle_local(self.now, id, unread);
    }

    /// Some of the lanes of an end that have something are carried over.
    fn carry(&mut self, at: usize, lanes: u8) -> Result<(), String> {
        self.ends[at].session.schedule(self.now);
        self.events(at)?;
        let ready: Vec<_> = self.ends[at].ready.iter().copied().collect();
        for (n, (id, lane)) in ready.into_iter().enumerate() {
            if lanes >> (n % 7) & 1 == 0 || !self.is_connected {
                continue;
            }
            let end = &mut self.ends[at];
            let first = end.session.lane_position(id, lane);
            let chunks = end.session.poll_lane(id, lane, 200).unwrap_or_default();
            let copies = end.session.take_copies();
            if chunks.is_empty() {
                end.ready.remove(&(id, lane));
                continue;
            }
            let stream = end.streams.entry((id, lane)).or_insert(Stream {
                first,
                is_admitted: false,
                arrived: BytesMut::new(),
            });
            chunks
                .iter()
                .for_each(|chunk| stream.arrived.extend_from_slice(chunk));
            for copy in copies {
                let taken = self.ends[1 - at].session.handle_copy(copy.encode());
                self.judge(taken.map_err(|error| format!("a copy: {error}")))?;
            }
            self.receive(at, id, lane)?;
        }
        Ok(())
    }

    fn receive(&mut self, from: usize, id: ChannelId, lane: Lane) -> Result<(), String> {
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        let Some(stream) = from.streams.get_mut(&(id, lane)) else {
            return Ok(());
        };
        if !stream.is_admitted {
            match to.session.admits(id, lane, stream.first) {
                Ok(Some(true)) => stream.is_admitted = true,
                Ok(Some(false)) => {
                    stream.arrived.clear();
                    return Ok(());
                }
                Ok(None) => return Ok(()),
                Err(error) => return self.judge(Err(format!("{lane:?}: {error}"))),
            }
        }
        let taken = to.session.handle_lane(id, lane, &mut stream.arrived);
        self.judge(taken.map_err(|error| format!("{lane:?}: {error}")))
    }

    /// Handles an error that the other end caused: the connection ends, and nothing else may.
    fn judge(&mut self, result: Result<(), String>) -> Result<(), String> {
        match result {
            Err(_) if self.is_hostile() => {
                self.disconnect();
                Ok(())
            }
            result => result,
        }
    }

    /// The peer of one end says anything.
    fn attack(&mut self, op: u8, n: u8, input: &mut Input<'_>) -> Result<(), String> {
        if !self.is_connected {
            return Ok(());
        }
        let at = usize::from(n & 1);
        let len = input.u8() % 64;
        let mut bytes = input.bytes(len);
        let session = &mut self.ends[at].session;
        let taken = match op % 16 {
            13 => {
                // As much of it as is control messages.
                let mut result = Ok(());
                while let (Ok(Some(message)), Ok(())) = (Control::take(&mut bytes), &result) {
                    result = session.handle_control(message);
                }
                result
            }
            14 => session.handle_copy(bytes.freeze()),
            _ => match Lane::from_wire(u64::from(n >> 1)) {
                Some(lane) => session.handle_lane(ChannelId(0), lane, &mut bytes),
                None => Ok(()),
            },
        };
        self.judge(taken.map_err(|error| error.to_string()))
    }

    /// Whatever the ends have to do beside carrying lanes.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..EVENTS_MAX {
            let mut moved = false;
            for at in 0..2 {
                self.ends[at].session.schedule(self.now);
                moved |= self.events(at)?;
                while self.is_connected
                    && let Some(message) = self.ends[at].session.poll_control(true)
                {
                    moved = true;
                    // As it is on the wire.
                    let mut bytes = BytesMut::from(&message.encode()[..]);
                    let message = Control::take(&mut bytes);
                    let message = message.map_err(|error| error.to_string())?;
                    let message = message.ok_or("half a control message")?;
                    let taken = self.ends[1 - at].session.handle_control(message);
                    self.judge(taken.map_err(|error| format!("control: {error}")))?;
                    self.events(1 - at)?;
                    let waiting: Vec<_> = self.ends[at].streams.keys().copied().collect();
                    for (id, lane) in waiting {
                        self.receive(at, id, lane)?;
                    }
                }
            }
            if !moved {
                return Ok(());
            }
        }
        Err(format!("more than {EVENTS_MAX} events of one input"))
    }

    fn events(&mut self, at: usize) -> Result<bool, String> {
        let mut moved = false;
        while let Some(event) = self.ends[at].session.poll_event() {
            moved = true;
            match event {
                Event::Opened { channel, .. } => self.ends[at].channels.push(channel),
                Event::Closed { reason, .. } if !self.is_hostile() => {
                    return Err(format!("a channel was closed: {reason}"));
                }
                Event::Closed { channel, .. } => self.ends[at].channels.retain(|id| *id != channel),
                Event::Transmit { channel, lane } => {
                    self.ends[at].ready.insert((channel, lane));
                }
                Event::Deliver { channel } => self.write(at, channel)?,
                Event::Room { channel } => {
                    let end = &mut self.ends[at];
                    if let Some(unread) = end.unread.get_mut(&channel) {
                        end.session.handle_local(self.now, channel, unread);
                    }
                }
                Event::WrongDatapath { .. } => {
                    return Err("a datapath id was refused that no certificate names".to_owned());
                }
                Event::Control | Event::Mapped | Event::Policy { .. } => {}
            }
        }
        Ok(moved)
    }

    /// Writes the messages that may be handed over to the local socket.
    fn write(&mut self, at: usize, id: ChannelId) -> Result<(), String> {
        let is_hostile = self.is_hostile();
        let [a, b] = &mut self.ends;
        let (to, from) = if at == 0 { (a, b) } else { (b, a) };
        while let Some(write) = to.session.poll_local(self.now, id, 1000) {
            let is_done = write.chunks.is_empty();
            let written = to.written.entry(id).or_default();
            write
                .chunks
                .iter()
                .for_each(|chunk| written.extend_from_slice(chunk));
            to.session.handle_written(self.now, id);
            while let (Ok(Some(frame)), false) = (Frame::split_from(written), is_hostile) {
                let number = frame.xid().0;
                if from.given.get(&number) != Some(frame.bytes()) {
                    return Err(format!("{frame:?} was never sent"));
                }
                if !to.taken.insert(number) {
                    return Err(format!("{frame:?} came twice"));
                }
            }
            if is_done {
                break;
            }
        }
        Ok(())
    }

    /// The session goes on, if both ends still have it.
    fn connect(&mut self, resumed: bool) -> Result<(), String> {
        if self.is_connected {
            return Ok(());
        }
        let resumed = resumed && self.ends.iter().all(|end| end.session.is_resumable());
        if !resumed {
            let number = self.ends[0].session.id().0[0].wrapping_add(1);
            let fresh = [Side::Switch, Side::Controller].map(|side| end(self.kind, side, number));
            self.ends = fresh;
            self.open();
        }
        let [a, b] = &mut self.ends;
        let settings = [a.session.settings(resumed), b.session.settings(resumed)];
        let connected = a
            .session
            .handle_connected(&settings[1], resumed)
            .and_then(|()| b.session.handle_connected(&settings[0], resumed));
        connected.map_err(|error| format!("connected: {error}"))?;
        self.is_connected = true;
        self.settle()
    }

    fn disconnect(&mut self) {
        if !std::mem::replace(&mut self.is_connected, false) {
            return;
        }
        for end in &mut self.ends {
            end.session.handle_disconnected(self.now);
            end.ready.clear();
            end.streams.clear();
        }
    }

    /// Everything that was given comes out.
    fn finish(&mut self) -> Result<(), String> {
        self.connect(true)?;
        for _ in 0..1000 {
            let before = self.ends.each_ref().map(|end| end.taken.len());
            for at in 0..2 {
                self.carry(at, u8::MAX)?;
                self.settle()?;
            }
            let idle = self.ends.iter().all(|end| end.ready.is_empty());
            if idle && before == self.ends.each_ref().map(|end| end.taken.len()) {
                break;
            }
        }
        if self.is_hostile() {
            return Ok(());
        }
        for at in 0..2 {
            let (given, taken) = (&self.ends[at].given, &self.ends[1 - at].taken);
            if let Some(number) = given.keys().find(|number| !taken.contains(number)) {
                let count = given.len() - taken.len();
                return Err(format!(
                    "{count} from end {at} never came, {:?} the first",
                    given[number]
                ));
            }
        }
        Ok(())
    }
}

fn end(kind: u8, side: Side, number: u8) -> End {
    let mut config = Config::new(side);
    config.window_bytes = [4 << 20, 300][usize::from(kind >> 1 & 1)];
    config.shares_lanes = kind & 4 != 0;
    config.flow_lanes = [16, 2][usize::from(kind >> 3 & 1)];
    if kind & 16 != 0 {
        config.order = OrderMode::Keyed;
    }
    if kind & 32 != 0 {
        for kind in relay::Kind::ALL {
            config.copied.set(kind, true);
        }
    }
    End {
        session: Session::new(Instant::START, config, SessionId([number; 16])),
        channels: Vec::new(),
        unread: BTreeMap::new(),
        ready: BTreeSet::new(),
        streams: BTreeMap::new(),
        written: BTreeMap::new(),
        given: BTreeMap::new(),
        taken: BTreeSet::new(),
    }
}
