//! Requests that wait for their reply: matched by xid, bounded in number, bytes and time.
//!
//! Requests of one switch have deadlines in the order of their numbers, so the oldest is always the
//! first to be late. One timer per switch is enough.
//!
//! A reply without a waiting request changes nothing. This module joins the parts of a multipart
//! reply. It gives up an endless reply at a number of parts or bytes, or at its deadline, whichever
//! comes first.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use openflow::Xid;
use openflow::message::MultipartReply;
use openflow::multipart::ReplyBody;

/// Set in every xid of an edge, clear in those of requests.
pub(crate) const EDGE_XID: u32 = 0x4000_0000;

/// Xids of requests are 1 to this: switches put 0 into messages of their own.
const XID_MAX: u32 = EDGE_XID - 1;

#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Maximum number of waiting requests of one switch.
    pub waiting_max: usize,
    pub timeout: Duration,
    pub reply_parts_max: u32,
    pub reply_bytes_max: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        RequestLimits {
            waiting_max: 4096,
            timeout: Duration::from_secs(10),
            reply_parts_max: 4096,
            reply_bytes_max: 16 << 20,
        }
    }
}

/// The requests of one switch; `T` is the purpose of the reply.
pub struct Requests<T> {
    limits: RequestLimits,
    /// The number of the last xid given out. It only grows, and the xid is derived from it.
    last: u64,
    /// The waiting requests, by number.
    waiting: BTreeMap<u64, Waiting<T>>,
    /// The highest number of an answered barrier.
    answered: u64,
    counters: RequestCounters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounters {
    /// Replies without a waiting request.
    pub unsolicited: u64,
    pub timed_out: u64,
    /// Replies given up for their size.
    pub oversized: u64,
}

struct Waiting<T> {
    tag: T,
    /// `None` until the request is written.
    deadline: Option<Instant>,
    parts: u32,
    bytes: usize,
    bodies: Vec<ReplyBody>,
}

/// The result of a part of a multipart reply.
#[derive(Debug, PartialEq)]
pub enum Reply<T> {
    /// No request with this xid waits.
    Unsolicited,
    /// More parts will follow.
    Partial,
    /// All parts, in the order of arrival.
    Whole(T, Vec<ReplyBody>),
    /// Given up: too many parts or bytes.
    Oversized(T),
}

impl<T> Requests<T> {
    pub fn new(limits: RequestLimits, first_xid: u32) -> Requests<T> {
        Requests {
            limits,
            // A full round of xids lies before the first, so that each xid has a number.
            last: u64::from(XID_MAX) + u64::from(first_xid & XID_MAX),
            waiting: BTreeMap::new(),
            answered: 0,
            counters: RequestCounters::default(),
        }
    }

    /// Returns an xid for a message without a reply.
    pub fn next_xid(&mut self) -> Xid {
        self.last += 1;
        Xid((self.last % u64::from(XID_MAX)) as u32 + 1)
    }

    /// The number of an xid, if it is among the last ones given out.
    fn number(&self, xid: Xid) -> Option<u64> {
        let max = u64::from(XID_MAX);
        let place = u64::from(xid.0.checked_sub(1)?);
        let back = (self.last % max + max).checked_sub(place)? % max;
        (xid.0 <= XID_MAX).then_some(self.last - back)
    }

    /// Returns an xid for a request with a reply; `None` when too many requests wait already. The
    /// timeout starts at [`Requests::handle_written`].
    pub fn start(&mut self, tag: T) -> Option<Xid> {
        if self.is_full() {
            return None;
        }
        let xid = self.next_xid();
        let waiting = Waiting {
            tag,
            deadline: None,
            parts: 0,
            bytes: 0,
            bodies: Vec::new(),
        };
        self.waiting.insert(self.last, waiting);
        Some(xid)
    }

    /// The number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the tag of a waiting request.
    pub fn tag(&self, xid: Xid) -> Option<&T> {
        let waiting = self.waiting.get(&self.number(xid)?)?;
        Some(&waiting.tag)
    }

    /// Notes that the message with this xid is written to the switch now. Requests are written in
    /// the order in which they were started.
    pub fn handle_written(&mut self, now: Instant, xid: Xid) {
        let number = self.number(xid);
        if let Some(waiting) = number.and_then(|number| self.waiting.get_mut(&number)) {
            waiting.deadline = Some(now + self.limits.timeout);
        }
    }

    /// Whether the maximum number of requests is waiting.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.limits.waiting_max
    }

    /// Whether a request with this tag waits.
    pub fn waits_for(&self, tag: &T) -> bool
    where
        T: PartialEq,
    {
        self.waiting.values().any(|waiting| waiting.tag == *tag)
    }

    /// Whether the peer ignores a request with this tag: the request has waited for `wait`, and the
    /// peer has answered a later barrier.
    pub fn is_ignored(&self, now: Instant, tag: &T, wait: Duration) -> bool
    where
        T: PartialEq,
    {
        let is_late = |deadline: Instant| deadline + wait <= now + self.limits.timeout;
        let mut before = self.waiting.range(..self.answered);
        before.any(|(_, waiting)| {
            waiting.tag == *tag && waiting.parts == 0 && waiting.deadline.is_some_and(is_late)
        })
    }

    /// Ends a barrier request at its reply: all requests before it are answered, or never will be.
    pub fn finish_barrier(&mut self, xid: Xid) -> Option<T> {
        let found = self.finish(xid)?;
        self.answered = self.answered.max(self.number(xid)?);
        Some(found)
    }

    /// Ends a request at its single-message reply (barrier, role), or at an error.
    pub fn finish(&mut self, xid: Xid) -> Option<T> {
        let number = self.number(xid);
        let found = number.and_then(|number| self.waiting.remove(&number));
        self.counters.unsolicited += u64::from(found.is_none());
        found.map(|waiting| waiting.tag)
    }

    /// Handles one part of a multipart reply, of `len` bytes on the wire.
    pub fn handle_part(&mut self, xid: Xid, len: usize, reply: MultipartReply) -> Reply<T> {
        let number = self.number(xid).unwrap_or_default();
        let Some(waiting) = self.waiting.get_mut(&number) else {
            self.counters.unsolicited += 1;
            return Reply::Unsolicited;
        };
        waiting.parts += 1;
        waiting.bytes += len;
        let oversized = waiting.parts > self.limits.reply_parts_max
            || waiting.bytes > self.limits.reply_bytes_max;
        if reply.more && !oversized {
            waiting.bodies.push(reply.body);
            return Reply::Partial;
        }
        let Some(mut waiting) = self.waiting.remove(&number) else {
            return Reply::Unsolicited;
        };
        if oversized {
            self.counters.oversized += 1;
            return Reply::Oversized(waiting.tag);
        }
        waiting.bodies.push(reply.body);
        Reply::Whole(waiting.tag, waiting.bodies)
    }

    /// Removes and returns the requests that were not answered in time, the oldest first.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<T> {
        let mut late = Vec::new();
        while self.poll_timeout().is_some_and(|due| due <= now)
            && let Some((_, waiting)) = self.waiting.pop_first()
        {
            late.push(waiting.tag);
        }
        self.counters.timed_out += late.len() as u64;
        late
    }

    /// Removes and returns all waiting requests, because the connection has ended.
    pub fn handle_down(&mut self) -> Vec<T> {
        let all = std::mem::take(&mut self.waiting);
        all.into_values().map(|waiting| waiting.tag).collect()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.first_key_value()?.1.deadline
    }

    pub fn counters(&self) -> RequestCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RequestLimits = RequestLimits {
        waiting_max: 2,
        timeout: Duration::from_secs(1),
        reply_parts_max: 3,
        reply_bytes_max: 100,
    };

    fn part(more: bool) -> MultipartReply {
        MultipartReply {
            more,
            body: ReplyBody::Flow(Vec::new()),
        }
    }

    /// Starts a request that is written at once.
    fn start(requests: &mut Requests<char>, now: Instant, tag: char) -> Option<Xid> {
        let xid = requests.start(tag)?;
        requests.handle_written(now, xid);
        Some(xid)
    }

    #[test]
    fn only_the_xid_that_waits_is_answered_and_only_once() {
        let mut requests = Requests::new(LIMITS, 7);
        let xid = start(&mut requests, Instant::START, 'a').expect("room");
        assert_eq!(requests.finish(Xid(xid.0 + 1)), None);
        assert_eq!(requests.finish(xid), Some('a'));
        assert_eq!(requests.finish(xid), None);
        assert_eq!(requests.counters().unsolicited, 2);
    }

    #[test]
    fn a_reply_is_whole_with_its_last_part_and_given_up_past_its_bounds() {
        let mut requests = Requests::new(LIMITS, 7);
        let xid = start(&mut requests, Instant::START, 'a').expect("room");
        assert_eq!(requests.handle_part(xid, 40, part(true)), Reply::Partial);
        let whole = requests.handle_part(xid, 40, part(false));
        assert!(matches!(whole, Reply::Whole('a', bodies) if bodies.len() == 2));

        let long = start(&mut requests, Instant::START, 'b').expect("room");
        let wide = start(&mut requests, Instant::START, 'c').expect("room");
        for _ in 0..3 {
            assert_eq!(requests.handle_part(long, 1, part(true)), Reply::Partial);
        }
        assert_eq!(
            requests.handle_part(long, 1, part(true)),
            Reply::Oversized('b')
        );
        assert_eq!(
            requests.handle_part(wide, 101, part(false)),
            Reply::Oversized('c')
        );
        assert_eq!(
            requests.handle_part(wide, 1, part(false)),
            Reply::Unsolicited
        );
    }

    #[test]
    fn the_number_and_the_time_of_requests_are_bounded() {
        let mut requests = Requests::new(LIMITS, u32::MAX - 1);
        let first = start(&mut requests, Instant::START, 'a').expect("room");
        let later = Instant::START + Duration::from_millis(500);
        let second = start(&mut requests, later, 'b').expect("room");
        assert_eq!(start(&mut requests, later, 'c'), None);
        let own = |xid: Xid| (1..=XID_MAX).contains(&xid.0);
        assert!(
            first != second && own(first) && own(second),
            "the xid wraps around"
        );
        let due = requests.poll_timeout().expect("two wait");
        assert_eq!(due, Instant::START + LIMITS.timeout);
        assert_eq!(requests.handle_timeout(due), ['a']);
        assert_eq!(requests.handle_down(), ['b']);
        assert_eq!(requests.poll_timeout(), None);
    }

    #[test]
    fn each_xid_finds_its_request_across_the_end_of_their_range() {
        let limits = RequestLimits {
            waiting_max: 100,
            ..LIMITS
        };
        for first in [0, 1, XID_MAX - 50, XID_MAX - 1, XID_MAX, u32::MAX] {
            let mut requests = Requests::new(limits, first);
            let xids: Vec<Xid> = (0..100).map(|n| requests.start(n).expect("room")).collect();
            for (n, xid) in xids.into_iter().enumerate().rev() {
                assert_eq!(requests.finish(xid), Some(n));
            }
            assert_eq!(requests.finish(Xid(0)), None);
            assert_eq!(requests.finish(Xid(u32::MAX)), None);
        }
    }

    #[test]
    fn a_request_is_ignored_when_the_peer_answers_a_later_barrier() {
        let mut requests = Requests::new(LIMITS, 7);
        let stats = start(&mut requests, Instant::START, 'a').expect("room");
        let (wait, later) = (LIMITS.timeout / 2, Instant::START + LIMITS.timeout / 2);
        assert!(!requests.is_ignored(later, &'a', wait), "it may be slow");
        let refused = start(&mut requests, later, 'c').expect("room");
        assert_eq!(requests.finish(refused), Some('c'));
        assert!(
            !requests.is_ignored(later, &'a', wait),
            "errors may come first"
        );
        let barrier = start(&mut requests, later, 'b').expect("room");
        assert_eq!(requests.finish_barrier(barrier), Some('b'));
        assert!(requests.is_ignored(later, &'a', wait));
        assert!(!requests.is_ignored(Instant::START, &'a', wait), "too soon");
        assert_eq!(requests.handle_part(stats, 1, part(true)), Reply::Partial);
        assert!(!requests.is_ignored(later, &'a', wait));
    }

    #[test]
    fn the_time_of_a_request_begins_when_it_is_written() {
        let mut requests = Requests::new(LIMITS, 7);
        let xid = requests.start('a').expect("room");
        let later = Instant::START + Duration::from_secs(100);
        assert_eq!(requests.poll_timeout(), None);
        assert_eq!(requests.handle_timeout(later), []);
        requests.handle_written(later, xid);
        assert_eq!(requests.poll_timeout(), Some(later + LIMITS.timeout));
    }
}
