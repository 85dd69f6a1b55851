//! A watch: all changes under a prefix in order, or the notice that some may be missing.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::client::{Client, Limits};
use crate::error::{Error, Failure, cleaned};
use crate::values::{Header, KeyValue, checked, end_of, invalid, start_of};
use crate::wire::{self, WatchRequestUnion, path};

/// Requests that wait for the connection: the first one and progress requests.
const REQUESTS_MAX: usize = 4;

/// Progress requests without any message before a watch counts as silent.
const SILENT_MAX: u32 = 3;

/// The shortest time between two progress requests.
const PROGRESS_MIN: Duration = Duration::from_millis(10);

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(KeyValue),
    /// A key was deleted, or its lease ended.
    Delete {
        key: Vec<u8>,
        mod_revision: i64,
    },
}

impl Change {
    pub fn key(&self) -> &[u8] {
        match self {
            Change::Put(kv) => &kv.key,
            Change::Delete { key, .. } => key,
        }
    }

    /// The revision of the change.
    pub fn revision(&self) -> i64 {
        match self {
            Change::Put(kv) => kv.mod_revision,
            Change::Delete { mod_revision, .. } => *mod_revision,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Change::Put(kv) => kv.bytes(),
            Change::Delete { key, .. } => key.len(),
        }
    }
}

/// A report of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// All changes of one or more whole revisions, in ascending order.
    Changes(Header, Vec<Change>),
    /// The member is alive. Servers before 3.4.25 and 3.5.8 may send this revision before its
    /// changes.
    Progress(Header),
    /// The watch has ended and changes may be missing: read everything again, and watch from there.
    ReadAnew(Lost),
}

/// The reason why a watch has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The next revision is compacted; this is the first remaining one.
    Compacted(i64),
    /// The server has cancelled the watch, for example because its member has no leader.
    Cancelled(String),
    /// The connection broke.
    Broken(String),
    /// The member does not answer progress requests.
    Silent,
    /// The server sent an answer that a watch cannot report.
    Invalid(String),
}

/// A watch on one member. It does not move to another member: after [`Notice::ReadAnew`], the
/// caller reads and watches again.
pub struct Watch {
    answers: Streaming<wire::WatchResponse>,
    requests: mpsc::Sender<wire::WatchRequest>,
    progress: Interval,
    silent: u32,
    state: State,
}

/// The checks of a watch, without its connection.
struct State {
    prefix: Vec<u8>,
    cluster_id: u64,
    limits: Limits,
    /// No change of an earlier revision is expected any more.
    next_revision: i64,
    /// Changes of a revision whose other fragments have not arrived yet.
    fragments: Vec<Change>,
    fragment_bytes: usize,
    notices: VecDeque<Notice>,
}

impl Watch {
    pub(crate) async fn open(
        client: &Client,
        member: usize,
        prefix: &[u8],
        from: i64,
    ) -> Result<Watch, Failure> {
        let create = wire::WatchCreateRequest {
            key: start_of(prefix),
            range_end: end_of(prefix),
            start_revision: from.max(1),
            fragment: true,
        };
        let (requests, stream) = mpsc::channel(REQUESTS_MAX);
        let first = wire::WatchRequest {
            request: Some(WatchRequestUnion::Create(create)),
        };
        let _ = requests.try_send(first);
        let (answers, first): (_, wire::WatchResponse) = client
            .stream(member, path::WATCH, ReceiverStream::new(stream))
            .await?;
        let header = checked(first.header.as_ref());
        let header = header.map_err(|error| Failure::after(error, false))?;
        if !first.created {
            return Err(Failure::after(
                invalid("a watch that begins with changes"),
                false,
            ));
        }
        if first.canceled && first.cancel_reason.contains("permission denied") {
            let endpoint = client.endpoint(member);
            let why = format!("{endpoint}: {}", cleaned(&first.cancel_reason));
            return Err(Failure::after(Error::Refused(why), false));
        }
        let mut state = State {
            prefix: prefix.to_vec(),
            cluster_id: header.cluster_id,
            limits: client.config().limits,
            next_revision: from.max(1),
            fragments: Vec::new(),
            fragment_bytes: 0,
            notices: VecDeque::new(),
        };
        if first.canceled {
            state.take(first);
        }
        let period = client.config().progress.max(PROGRESS_MIN);
        let mut progress = interval(period);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        progress.reset();
        Ok(Watch {
            answers,
            requests,
            progress,
            silent: 0,
            state,
        })
    }

    /// Returns the next notice; after [`Notice::ReadAnew`], always the same one. Cancel-safe: may
    /// be dropped while it waits, and called again.
    pub async fn next(&mut self) -> Notice {
        loop {
            match self.state.notices.front() {
                Some(over @ Notice::ReadAnew(_)) => return over.clone(),
                Some(_) => return self.state.notices.pop_front().expect("the front"),
                None => {}
            }
            tokio::select! {
                biased;
                answer = self.answers.message() => {
                    self.silent = 0;
                    match answer {
                        Ok(Some(answer)) => self.state.take(answer),
                        Ok(None) => self.state.end(Lost::Broken("the stream ended".into())),
                        Err(status) => self.state.fail(&status),
                    }
                }
                _ = self.progress.tick() => {
                    self.silent += 1;
                    if self.silent > SILENT_MAX {
                        self.state.end(Lost::Silent);
                    } else {
                        self.request_progress();
                    }
                }
            }
        }
    }

    /// Asks for a [`Notice::Progress`] now. [`Watch::next`] does so by itself at intervals.
    pub fn request_progress(&self) {
        let progress = WatchRequestUnion::Progress(wire::WatchProgressRequest {});
        // A full channel already contains such requests.
        let _ = self.requests.try_send(wire::WatchRequest {
            request: Some(progress),
        });
    }
}

impl State {
    fn end(&mut self, lost: Lost) {
        self.notices.push_back(Notice::ReadAnew(lost));
    }

    fn fail(&mut self, status: &tonic::Status) {
        match Failure::of(&"watch", status).error {
            Error::Compacted => self.end(Lost::Compacted(0)),
            Error::Invalid(why) => self.end(Lost::Invalid(why)),
            Error::Unreachable(why) => self.end(Lost::Broken(why)),
            error => self.end(Lost::Cancelled(error.to_string())),
        }
    }

    /// Turns a message into notices.
    fn take(&mut self, answer: wire::WatchResponse) {
        if answer.canceled {
            return self.end(match answer.compact_revision {
                ..=0 => Lost::Cancelled(cleaned(&answer.cancel_reason)),
                first => Lost::Compacted(first),
            });
        }
        if let Err(Error::Invalid(why)) = self.take_changes(answer) {
            self.end(Lost::Invalid(why));
        }
    }

    fn take_changes(&mut self, answer: wire::WatchResponse) -> Result<(), Error> {
        let header = checked(answer.header.as_ref())?;
        if header.cluster_id != self.cluster_id {
            return Err(invalid("another cluster's answer"));
        }
        if answer.events.is_empty() && self.fragments.is_empty() {
            self.notices.push_back(Notice::Progress(header));
            return Ok(());
        }
        for event in answer.events {
            let change = self.checked(event, header)?;
            self.fragment_bytes += change.bytes();
            self.fragments.push(change);
        }
        // The last revision of a fragment may continue in the next one.
        let whole = match (answer.fragment, self.fragments.last()) {
            (true, Some(last)) => {
                let revision = last.revision();
                self.fragments
                    .partition_point(|change| change.revision() < revision)
            }
            _ => self.fragments.len(),
        };
        let rest = self.fragments.split_off(whole);
        let changes = std::mem::replace(&mut self.fragments, rest);
        self.fragment_bytes = self.fragments.iter().map(Change::bytes).sum();
        if let Some(last) = changes.last() {
            self.next_revision = last.revision() + 1;
            self.notices.push_back(Notice::Changes(header, changes));
        }
        let limits = self.limits;
        if self.fragments.len() > limits.keys_max || self.fragment_bytes > limits.bytes_max {
            return Err(invalid("a revision of more changes than allowed"));
        }
        Ok(())
    }

    fn checked(&self, event: wire::Event, header: Header) -> Result<Change, Error> {
        let kv = event.kv.ok_or_else(|| invalid("a change of no key"))?;
        let change = match wire::EventType::try_from(event.kind) {
            Ok(wire::EventType::Put) => Change::Put(KeyValue::checked(kv)?),
            Ok(wire::EventType::Delete) => Change::Delete {
                key: kv.key,
                mod_revision: kv.mod_revision,
            },
            Err(_) => return Err(invalid("a change of no known kind")),
        };
        let before = self
            .fragments
            .last()
            .map_or(self.next_revision, Change::revision);
        if !(before..=header.revision).contains(&change.revision()) {
            return Err(invalid("a change out of order"));
        }
        if !change.key().starts_with(&self.prefix) {
            return Err(invalid("a change that was not asked for"));
        }
        Ok(change)
    }
}
