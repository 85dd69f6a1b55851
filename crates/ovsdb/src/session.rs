//! One client connection to a database server, as a state machine (RFC 7047 section 4).
//!
//! The session answers echo requests at once. It probes a silent peer and then gives it up. Every
//! request is answered exactly once: by the peer, by a time-out, or by the end of the connection. A
//! session never reconnects: drop a closed session, and make a new one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use clock::Instant;
use serde_json::{Value, json};

use crate::message::{Message, MessageError};
use crate::replica::{Change, Replica, ReplicaError};
use crate::schema::Schema;
use crate::splitter::{Limits, SplitError, Splitter};
use crate::transact::{Condition, OpResult, TransactError, Transaction, parse_results};

/// Deadlines and bounds of a [`Session`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Silence after which an echo request is sent. After the same time again, the connection is
    /// given up. `None` never probes. The default is Open vSwitch's: 5 s.
    pub inactivity_probe: Option<Duration>,
    /// Longest time a request may stay unanswered. `None` waits for ever. Default: 30 s.
    pub request_timeout: Option<Duration>,
    /// Bounds of one message from the peer.
    pub limits: Limits,
    /// Bounds until the first monitor is asked for. `None` uses `limits` from the start.
    pub first_limits: Option<Limits>,
    /// Longest time from the first byte of a message to its last. `None` waits for ever.
    /// Default: 30 s.
    pub message_timeout: Option<Duration>,
    /// Maximum number of requests that wait for their answers. Default: 1024.
    pub request_count_max: usize,
    /// Bytes not yet taken by [`Session::poll_output`] above which nothing more is queued.
    /// Default: 64 MiB; one message may exceed it.
    pub unsent_bytes_max: usize,
    /// Maximum number of rows in all tables of one monitor. Default: 1,000,000.
    pub row_count_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            inactivity_probe: Some(Duration::from_secs(5)),
            request_timeout: Some(Duration::from_secs(30)),
            limits: Limits::default(),
            first_limits: None,
            message_timeout: Some(Duration::from_secs(30)),
            request_count_max: 1024,
            unsent_bytes_max: 64 << 20,
            row_count_max: 1_000_000,
        }
    }
}

/// Longest time a cancelled transaction may stay unanswered.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum size of a request, or of a notification unknown to this crate. A server sends empty echo
/// requests; longer ones are sent back in full, and notifications wait until somebody takes them.
const UNASKED_BYTES_MAX: usize = 4 << 10;

/// Identity of a request of ours; ordered as the requests were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Identity of a monitor of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonitorId(pub u64);

/// Columns and rows to monitor, by table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorRequest {
    /// Columns to monitor, by table. Tables that are not named here are not monitored.
    pub columns: BTreeMap<String, BTreeSet<String>>,
    /// For `monitor_cond`: rows of a table that match any of its conditions. All rows of a table
    /// that is not named here are monitored.
    pub conditions: BTreeMap<String, Vec<Condition>>,
}

/// Next thing that the caller of a [`Session`] must do or know.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Output {
    /// Write these bytes to the peer.
    Transmit(Bytes),
    /// A request ended. Each request ends exactly once.
    Answered(RequestId, Answer),
    /// Rows of a replica changed; the replica has the new ones already.
    Updated(MonitorId, Vec<Change>),
    /// We now own the lock that we waited for.
    Locked(String),
    /// Another client stole the lock that we owned.
    Stolen(String),
    /// A notification unknown to this crate.
    Notified {
        /// Name of the method.
        method: String,
        /// Arguments of the method.
        params: Vec<Value>,
    },
    /// Close the connection. Nothing follows.
    Close(CloseReason),
}

/// End of a request.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// Asks for the names of the server's databases, for [`Session::list_dbs`].
    Databases(Vec<String>),
    /// The schema, for [`Session::get_schema`].
    Schema(Box<Schema>),
    /// One result for each operation, or the reason why nothing changed; for [`Session::transact`].
    Transacted(Result<Vec<OpResult>, TransactError>),
    /// [`Session::replica`] has the initial rows.
    Monitoring(MonitorId),
    /// Answer to [`Session::lock`] and [`Session::steal`]. If the lock is not ours yet,
    /// [`Output::Locked`] follows when it is.
    Lock {
        /// `true` if the lock is ours now.
        locked: bool,
    },
    /// The result of a request unknown to this crate.
    Result(Value),
    /// The peer answered with an error.
    Refused(Value),
    /// No answer came within [`Config::request_timeout`].
    TimedOut,
    /// The connection ended first.
    Closed,
}

/// Reason why a session asks its caller to close the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The bytes are not a sequence of JSON objects, or a message exceeds [`Limits`].
    #[error("{0}")]
    Split(SplitError),
    /// A JSON object is not a JSON-RPC message.
    #[error("{0}")]
    Message(MessageError),
    /// An update does not fit its replica.
    #[error("{0}")]
    Replica(ReplicaError),
    /// The answer to a request of ours does not have the form of its method.
    #[error("the answer to {method} is malformed")]
    Answer {
        /// Method of the request.
        method: &'static str,
    },
    /// Nothing arrived for two probe intervals.
    #[error("the peer does not answer an echo request")]
    Inactive,
    /// A message was not complete within [`Config::message_timeout`].
    #[error("a message is not complete in time")]
    Unfinished,
    /// A request or an unknown notification is longer than any needs to be.
    #[error("a request or a notification is longer than {bytes_max} bytes")]
    Unasked {
        /// Length that was exceeded, in bytes.
        bytes_max: usize,
    },
    /// The peer makes us send more answers than the connection takes.
    #[error("the peer does not read our answers")]
    Backlog,
}

/// Reason why a request was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The connection has ended.
    #[error("the connection is closed")]
    Closed,
    /// [`Config::request_count_max`] requests already wait for their answers.
    #[error("{request_count_max} requests wait for an answer")]
    TooManyRequests {
        /// The limit.
        request_count_max: usize,
    },
    /// [`Config::unsent_bytes_max`] is reached: take outputs first.
    #[error("too many bytes wait to be sent")]
    Backlog,
}

/// One client connection: a state machine that reads no socket and no clock. Call
/// [`Session::handle_bytes`] with bytes that arrive, and a request method to make a request. After
/// each call, take outputs until [`Session::poll_output`] returns `None`, and call
/// [`Session::handle_timeout`] at the time that [`Session::poll_timeout`] names.
pub struct Session {
    config: Config,
    splitter: Splitter,
    outputs: VecDeque<Output>,
    unsent_bytes: usize,
    next_id: u64,
    pending: BTreeMap<RequestId, Pending>,
    deadlines: BTreeSet<(Instant, RequestId)>,
    monitors: BTreeMap<MonitorId, Monitor>,
    last_heard: Instant,
    probed_at: Option<Instant>,
    /// Time when the arriving message began.
    message_since: Option<Instant>,
    closed: bool,
    unmatched_answer_count: u64,
}

struct Pending {
    asked: Query,
    deadline: Option<Instant>,
}

enum Query {
    Databases,
    Schema,
    Transact { operation_count: usize },
    Monitor(MonitorId),
    Cancel(MonitorId),
    Lock,
    Other,
}

struct Monitor {
    replica: Replica,
    conditional: bool,
    /// Whether its first rows have arrived, which updates refer to.
    answered: bool,
}

impl Session {
    /// Makes a session over a connection that was made at `now`.
    pub fn new(now: Instant, config: Config) -> Session {
        Session {
            splitter: Splitter::new(config.first_limits.unwrap_or(config.limits)),
            config,
            outputs: VecDeque::new(),
            unsent_bytes: 0,
            next_id: 0,
            pending: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            monitors: BTreeMap::new(),
            last_heard: now,
            probed_at: None,
            message_since: None,
            closed: false,
            unmatched_answer_count: 0,
        }
    }

    /// Takes bytes that arrived. A peer that breaks the protocol is answered by
    /// [`Output::Close`].
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if self.closed {
            return;
        }
        self.last_heard = now;
        self.probed_at = None;
        self.splitter.handle_bytes(bytes);
        while !self.closed {
            match self.splitter.poll_message() {
                Ok(None) => break,
                Ok(Some(bytes)) => {
                    self.message_since = None;
                    let len = bytes.len();
                    let message = Message::decode(&bytes);
                    // The message's bytes need not be kept while its values become rows.
                    drop(bytes);
                    match message {
                        Ok(message) => self.handle_message(message, len),
                        Err(error) => self.close(CloseReason::Message(error)),
                    }
                }
                Err(error) => self.close(CloseReason::Split(error)),
            }
        }
        if self.splitter.len_bytes() > 0 {
            self.message_since.get_or_insert(now);
        }
    }

    /// Estimates the memory of this connection, in bytes: the arriving message with its parsed
    /// values, the rows of all monitors, and unsent output.
    pub fn held_bytes(&self) -> usize {
        let rows = self.monitors.values().map(|m| m.replica.held_bytes());
        // The bytes of texts exist twice while they are parsed.
        let arriving = 2 * self.splitter.len_bytes() + self.splitter.parsed_bytes();
        arriving + self.unsent_bytes + rows.sum::<usize>()
    }

    /// Number of bytes of the arriving message.
    pub fn arriving_bytes(&self) -> usize {
        self.splitter.len_bytes()
    }

    /// Handles deadlines due at `now`: probes, gives up a silent peer, times requests out.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.closed {
            return;
        }
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            self.take_pending(id);
            self.outputs
                .push_back(Output::Answered(id, Answer::TimedOut));
        }
        if self.message_deadline().is_some_and(|(at, _)| at <= now) {
            return self.close(CloseReason::Unfinished);
        }
        if let Some((deadline, _)) = self.inactivity_deadline()
            && deadline <= now
        {
            if self.probed_at.is_some() {
                self.close(CloseReason::Inactive);
            } else {
                self.probed_at = Some(now);
                self.send(&Message::Request {
                    id: json!("echo"),
                    method: "echo".into(),
                    params: vec![],
                });
            }
        }
    }

    /// Handles the end of the connection, by either side: pending requests are answered by
    /// [`Answer::Closed`].
    pub fn handle_end(&mut self) {
        self.closed = true;
        self.deadlines.clear();
        for id in std::mem::take(&mut self.pending).into_keys() {
            self.outputs.push_back(Output::Answered(id, Answer::Closed));
        }
    }

    /// Takes the next output. Call it until it returns `None`, after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front()?;
        if let Output::Transmit(bytes) = &output {
            self.unsent_bytes -= bytes.len();
        }
        Some(output)
    }

    /// Time of the next [`Session::handle_timeout`], and its reason.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let request = self
            .deadlines
            .first()
            .map(|&(at, _)| (at, "OVSDB request time-out"));
        let others = [self.inactivity_deadline(), self.message_deadline()];
        let others = others.into_iter().flatten().filter(|_| !self.closed);
        request.into_iter().chain(others).min()
    }

    /// Asks for the names of the server's databases (4.1.1).
    pub fn list_dbs(&mut self, now: Instant) -> Result<RequestId, RequestError> {
        self.ask(now, Query::Databases, "list_dbs", vec![])
    }

    /// Asks for the schema of a database (4.1.2).
    pub fn get_schema(&mut self, now: Instant, database: &str) -> Result<RequestId, RequestError> {
        self.ask(now, Query::Schema, "get_schema", vec![json!(database)])
    }

    /// Sends a transaction, which changes everything or nothing (4.1.3).
    pub fn transact(
        &mut self,
        now: Instant,
        transaction: &Transaction,
    ) -> Result<RequestId, RequestError> {
        let asked = Query::Transact {
            operation_count: transaction.operations.len(),
        };
        self.ask(now, asked, "transact", transaction.to_params())
    }

    /// Asks the peer to give up a transaction (4.1.4). It is answered by [`Answer::Refused`]
    /// ("canceled"), by its result if it was done already, or by [`Answer::TimedOut`] after a
    /// second: ovsdb-server 3.1 silently drops cancelled transactions.
    pub fn cancel(&mut self, now: Instant, id: RequestId) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        let latest = now + CANCEL_TIMEOUT;
        let deadline = pending
            .deadline
            .map_or(latest, |deadline| deadline.min(latest));
        if let Some(old) = pending.deadline.replace(deadline) {
            self.deadlines.remove(&(old, id));
        }
        self.deadlines.insert((deadline, id));
        self.send(&Message::Notification {
            method: "cancel".into(),
            params: vec![json!(id.0)],
        });
    }

    /// Monitors whole rows (4.1.5), for servers that do not know `monitor_cond`; conditions are
    /// not sent.
    pub fn monitor(
        &mut self,
        now: Instant,
        schema: &Schema,
        request: &MonitorRequest,
    ) -> Result<RequestId, RequestError> {
        self.start_monitor(now, schema, request, false)
    }

    /// Monitors rows by condition and by difference (ovsdb-server(7) 4.1.12).
    pub fn monitor_cond(
        &mut self,
        now: Instant,
        schema: &Schema,
        request: &MonitorRequest,
    ) -> Result<RequestId, RequestError> {
        self.start_monitor(now, schema, request, true)
    }

    /// Ends a monitor (4.1.7). The replica is dropped at once.
    pub fn monitor_cancel(
        &mut self,
        now: Instant,
        monitor: MonitorId,
    ) -> Result<RequestId, RequestError> {
        let asked = Query::Cancel(monitor);
        self.ask(now, asked, "monitor_cancel", vec![json!(monitor.0)])
    }

    /// Asks for a lock and waits in line for it (4.1.8).
    pub fn lock(&mut self, now: Instant, name: &str) -> Result<RequestId, RequestError> {
        self.ask(now, Query::Lock, "lock", vec![json!(name)])
    }

    /// Takes a lock from its present owner (4.1.8).
    pub fn steal(&mut self, now: Instant, name: &str) -> Result<RequestId, RequestError> {
        self.ask(now, Query::Lock, "steal", vec![json!(name)])
    }

    /// Releases a lock, or leaves the line for it (4.1.8).
    pub fn unlock(&mut self, now: Instant, name: &str) -> Result<RequestId, RequestError> {
        self.ask(now, Query::Other, "unlock", vec![json!(name)])
    }

    /// Sends a request of any other method. [`Answer::Result`] carries the result.
    pub fn request(
        &mut self,
        now: Instant,
        method: &str,
        params: Vec<Value>,
    ) -> Result<RequestId, RequestError> {
        self.ask(now, Query::Other, method, params)
    }

    /// Returns the tables that a monitor sees; `None` once the monitor is cancelled.
    pub fn replica(&self, monitor: MonitorId) -> Option<&Replica> {
        self.monitors.get(&monitor).map(|monitor| &monitor.replica)
    }

    /// Reports whether the connection has ended. Every request fails from then on.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Number of answers that arrived after their request had timed out, or without a request.
    pub fn unmatched_answer_count(&self) -> u64 {
        self.unmatched_answer_count
    }

    fn ask(
        &mut self,
        now: Instant,
        asked: Query,
        method: &str,
        params: Vec<Value>,
    ) -> Result<RequestId, RequestError> {
        if self.closed {
            return Err(RequestError::Closed);
        }
        if self.pending.len() >= self.config.request_count_max {
            return Err(RequestError::TooManyRequests {
                request_count_max: self.config.request_count_max,
            });
        }
        if self.unsent_bytes >= self.config.unsent_bytes_max {
            return Err(RequestError::Backlog);
        }
        if let Query::Cancel(monitor) = asked {
            self.monitors.remove(&monitor);
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.send(&Message::Request {
            id: json!(id.0),
            method: method.into(),
            params,
        });
        let deadline = self.config.request_timeout.map(|timeout| now + timeout);
        self.deadlines
            .extend(deadline.map(|deadline| (deadline, id)));
        self.pending.insert(id, Pending { asked, deadline });
        Ok(id)
    }

    fn start_monitor(
        &mut self,
        now: Instant,
        schema: &Schema,
        request: &MonitorRequest,
        conditional: bool,
    ) -> Result<RequestId, RequestError> {
        let monitor = MonitorId(self.next_id);
        let mut tables = json!({});
        for (table, columns) in &request.columns {
            let mut what = json!({"columns": columns});
            if let Some(conditions) = request.conditions.get(table).filter(|_| conditional) {
                what["where"] = conditions.iter().map(Condition::to_json).collect();
            }
            tables[table] = json!([what]);
        }
        let method = if conditional {
            "monitor_cond"
        } else {
            "monitor"
        };
        let params = vec![json!(schema.name), json!(monitor.0), tables];
        let id = self.ask(now, Query::Monitor(monitor), method, params)?;
        self.splitter.set_limits(self.config.limits);
        let row_count_max = self.config.row_count_max;
        let replica = Replica::new(schema.clone(), request.columns.clone(), row_count_max);
        self.monitors.insert(
            monitor,
            Monitor {
                replica,
                conditional,
                answered: false,
            },
        );
        Ok(id)
    }

    fn handle_message(&mut self, message: Message, len: usize) {
        let is_long = len > UNASKED_BYTES_MAX;
        match message {
            Message::Request { .. } if is_long => self.close(CloseReason::Unasked {
                bytes_max: UNASKED_BYTES_MAX,
            }),
            Message::Notification { method, .. }
                if is_long && !matches!(method.as_str(), "update" | "update2") =>
            {
                self.close(CloseReason::Unasked {
                    bytes_max: UNASKED_BYTES_MAX,
                });
            }
            Message::Request { id, method, params } if method == "echo" => {
                let result = Value::Array(params);
                self.send(&Message::Response { id, result });
            }
            Message::Request { id, method, .. } => {
                let error = json!({"error": "unknown method", "details": method});
                self.send(&Message::Error { id, error });
            }
            Message::Notification { method, params } => self.handle_notification(method, params),
            Message::Response { id, result } => self.handle_answer(&id, Ok(result)),
            Message::Error { id, error } => self.handle_answer(&id, Err(error)),
        }
    }

    fn handle_notification(&mut self, method: String, mut params: Vec<Value>) {
        match (method.as_str(), params.as_mut_slice()) {
            ("update" | "update2", [id, updates]) => {
                let monitor = id.as_u64().map(MonitorId);
                let updates = updates.take();
                // Updates in flight for a cancelled monitor are of no use, and there is nothing to
                // update before the first rows.
                let is_meant = |m: &MonitorId| self.monitors.get(m).is_some_and(|m| m.answered);
                if let Some(monitor) = monitor.filter(is_meant)
                    && let Some(changes) = self.apply(monitor, &updates, method == "update2")
                {
                    self.outputs.push_back(Output::Updated(monitor, changes));
                }
            }
            ("locked", [Value::String(name)]) => {
                self.outputs.push_back(Output::Locked(std::mem::take(name)));
            }
            ("stolen", [Value::String(name)]) => {
                self.outputs.push_back(Output::Stolen(std::mem::take(name)));
            }
            _ => self.outputs.push_back(Output::Notified { method, params }),
        }
    }

    /// Brings a monitor's replica up to date, or closes.
    fn apply(
        &mut self,
        id: MonitorId,
        updates: &Value,
        by_difference: bool,
    ) -> Option<Vec<Change>> {
        let replica = &mut self.monitors.get_mut(&id)?.replica;
        let changes = if by_difference {
            replica.handle_update2(updates)
        } else {
            replica.handle_update(updates)
        };
        changes
            .map_err(|error| self.close(CloseReason::Replica(error)))
            .ok()
    }

    fn handle_answer(&mut self, id: &Value, answer: Result<Value, Value>) {
        if id == "echo" {
            return;
        }
        let id = id.as_u64().map(RequestId);
        let Some((id, pending)) = id.and_then(|id| Some((id, self.take_pending(id)?))) else {
            self.unmatched_answer_count += 1;
            return;
        };
        let answer = match answer {
            Ok(result) => match self.understand(pending.asked, result) {
                Ok(answer) => answer,
                Err(reason) => {
                    self.outputs.push_back(Output::Answered(id, Answer::Closed));
                    return self.close(reason);
                }
            },
            Err(error) => {
                if let Query::Monitor(monitor) = pending.asked {
                    self.monitors.remove(&monitor);
                }
                Answer::Refused(error)
            }
        };
        self.outputs.push_back(Output::Answered(id, answer));
    }

    fn understand(&mut self, asked: Query, result: Value) -> Result<Answer, CloseReason> {
        let malformed = |method| CloseReason::Answer { method };
        match asked {
            Query::Databases => serde_json::from_value(result)
                .map(Answer::Databases)
                .map_err(|_| malformed("list_dbs")),
            Query::Schema => Schema::from_json(&result)
                .map(|schema| Answer::Schema(Box::new(schema)))
                .map_err(|_| malformed("get_schema")),
            Query::Transact { operation_count } => {
                let results = parse_results(&result, operation_count);
                Ok(Answer::Transacted(results))
            }
            Query::Monitor(id) => {
                let Some(monitor) = self.monitors.get_mut(&id) else {
                    return Ok(Answer::Result(result));
                };
                let taken = (monitor.replica).handle_initial(&result, monitor.conditional);
                monitor.answered = true;
                taken
                    .map(|()| Answer::Monitoring(id))
                    .map_err(CloseReason::Replica)
            }
            Query::Lock => match result["locked"].as_bool() {
                Some(locked) => Ok(Answer::Lock { locked }),
                None => Err(malformed("lock")),
            },
            Query::Cancel(_) | Query::Other => Ok(Answer::Result(result)),
        }
    }

    fn take_pending(&mut self, id: RequestId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        if let Some(deadline) = pending.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(pending)
    }

    fn inactivity_deadline(&self) -> Option<(Instant, &'static str)> {
        let probe = self.config.inactivity_probe?;
        Some(match self.probed_at {
            Some(probed_at) => (probed_at + probe, "OVSDB probe answer"),
            None => (self.last_heard + probe, "OVSDB inactivity probe"),
        })
    }

    fn message_deadline(&self) -> Option<(Instant, &'static str)> {
        let deadline = self.message_since? + self.config.message_timeout?;
        Some((deadline, "OVSDB message"))
    }

    /// Queues a message; closes when the peer has made us queue too much.
    fn send(&mut self, message: &Message) {
        if self.unsent_bytes >= self.config.unsent_bytes_max {
            return self.close(CloseReason::Backlog);
        }
        let bytes = Bytes::from(message.encode());
        self.unsent_bytes += bytes.len();
        self.outputs.push_back(Output::Transmit(bytes));
    }

    fn close(&mut self, reason: CloseReason) {
        self.handle_end();
        self.outputs.push_back(Output::Close(reason));
    }
}
