//! The hosts and links of the serving member, as sent to each standby member.
//!
//! A follower gets a whole copy once, and all changes since the copy began. Nothing is queued for
//! it: a record has the state of a host or a link at the moment of sending, and a follower is a
//! position in the one list of changes. A follower whose position has dropped off the list gets a
//! whole copy again.

use std::collections::{BTreeSet, VecDeque};

use clock::{Duration, Instant};

use crate::controller::Controller;
use crate::controller::known::{HostCursor, Link};

use super::wire::{Record, Subject, Writer};

/// The number of changes that are remembered.
const CHANGES_MAX: usize = 65_536;
/// The number of hosts, links or changes examined for one frame: work for a fraction of a
/// millisecond.
const LOOKS_MAX: usize = 4096;
/// A frame is sent at least this often, empty if there is nothing to send.
const SAID_EVERY: Duration = Duration::from_millis(500);

/// The changes of hosts and links, in their order.
#[derive(Default)]
pub(super) struct Source {
    changes: VecDeque<Subject>,
    /// The number of the first change.
    first: u64,
}

/// Another member's position in the data to send to it. A new follower gets a whole copy.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    /// The term in which its copy began.
    term: u64,
    /// The number of the next change.
    next: u64,
    /// The rest of its copy.
    scan: Option<Scan>,
    said_at: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Scan {
    /// Links after this one.
    Links(Option<Link>),
    Hosts(HostCursor),
}

/// An answer to a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Write this.
    Frame { bytes: Vec<u8>, has_more: bool },
    /// Ask again after some milliseconds.
    Nothing,
    /// This member serves no switches.
    NotServing,
}

impl Source {
    /// Returns the next frame for a follower. `term` changes each time this member starts to serve.
    pub(super) fn say(
        &mut self,
        now: Instant,
        controller: &mut Controller,
        follower: &mut Follower,
        term: u64,
    ) -> Said {
        self.take_news(controller);
        let mut frame = Writer::new();
        if follower.term != term || follower.next < self.first {
            *follower = Follower {
                term,
                next: self.first + self.changes.len() as u64,
                scan: Some(Scan::Links(None)),
                said_at: None,
            };
            frame.set_begins();
        }
        self.say_changes(controller, follower, &mut frame);
        if let Some(scan) = &mut follower.scan
            && scan.say(controller, &mut frame)
        {
            follower.scan = None;
            frame.set_ends();
        }
        let is_recent = |at| now.since(at) < SAID_EVERY;
        if frame.is_empty() && follower.said_at.is_some_and(is_recent) {
            return Said::Nothing;
        }
        follower.said_at = Some(now);
        let has_more = frame.is_full() || follower.scan.is_some();
        let bytes = frame.finish();
        Said::Frame { bytes, has_more }
    }

    fn take_news(&mut self, controller: &mut Controller) {
        let mut links = Vec::new();
        let host = |host| self.changes.push_back(Subject::Host(host));
        let has_all = controller.take_news(host, |link| links.push(Subject::Link(link)));
        self.changes.extend(links);
        if !has_all {
            // No follower's position is in the list any more.
            self.first += self.changes.len() as u64 + 1;
            self.changes.clear();
        }
        let too_many = self.changes.len().saturating_sub(CHANGES_MAX);
        self.changes.drain(..too_many);
        self.first += too_many as u64;
    }

    fn say_changes(&self, controller: &Controller, follower: &mut Follower, frame: &mut Writer) {
        let from = usize::try_from(follower.next - self.first).unwrap_or(usize::MAX);
        let mut said = BTreeSet::new();
        for subject in self.changes.iter().skip(from).take(LOOKS_MAX) {
            if frame.is_full() {
                return;
            }
            follower.next += 1;
            if said.insert(*subject) {
                frame.record(&state(controller, *subject));
            }
        }
    }
}

fn state(controller: &Controller, subject: Subject) -> Record {
    match subject {
        Subject::Host(host) => Record::Host(host, controller.known_host(host)),
        Subject::Link(link) => {
            let is_there = controller.has_link(link);
            Record::Link { link, is_there }
        }
    }
}

impl Scan {
    /// Continues a copy. Returns whether the copy is complete.
    fn say(&mut self, controller: &Controller, frame: &mut Writer) -> bool {
        for _ in 0..LOOKS_MAX {
            if frame.is_full() {
                return false;
            }
            match self {
                Scan::Links(after) => match controller.links_after(*after).next() {
                    Some(link) => {
                        let is_there = true;
                        frame.record(&Record::Link { link, is_there });
                        *after = Some(link);
                    }
                    None => *self = Scan::Hosts(HostCursor::default()),
                },
                Scan::Hosts(cursor) => match controller.next_host(cursor) {
                    Some(Some(host)) => frame.record(&state(controller, Subject::Host(host))),
                    Some(None) => {}
                    None => return true,
                },
            }
        }
        false
    }
}
