//! An OVSDB client: the pure [`Session`] on a connection.
//!
//! ```no_run
//! # async fn names(clock: net::clock::Clock) -> Result<(), driver::ovsdb::ClientError> {
//! use driver::ovsdb::Client;
//! use net::{method::{Method, Protocol}, tls::Security};
//!
//! let method = Method::parse("unix:/run/openvswitch/db.sock", Protocol::Ovsdb).unwrap();
//! let mut client = Client::connect(&method, &Security::plain(), clock, Default::default()).await?;
//! let answer = client.ask(|session, now| session.list_dbs(now)).await?;
//! # Ok(()) }
//! ```

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use clock::Instant;
use ovsdb::{
    Answer, CloseReason, Config, MonitorId, MonitorRequest, OpResult, Output, RequestError,
    RequestId, Session, TransactError, Transaction,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::databases::Charge;
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use net::transport::{Connection, TransportError, connect};

/// One connection to an OVSDB server. It answers the server's echoes while a caller waits in
/// [`Client::next`] or [`Client::ask`].
pub struct Client {
    session: Session,
    connection: Connection,
    clock: Clock,
    input: BytesMut,
    unwritten: Bytes,
    /// Output received while an answer was awaited.
    waiting: VecDeque<Output>,
    /// The memory taken from a budget, if the client is one of many.
    charge: Option<Charge>,
}

/// Why a client has failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Transport(TransportError),
    #[error("{0}")]
    Session(CloseReason),
    #[error("{0}")]
    Request(RequestError),
    #[error("{0}")]
    Io(io::Error),
    /// The peer refused the request, with the reason.
    #[error("{asked} was refused: {why}")]
    Refused { asked: &'static str, why: String },
    #[error("{0}")]
    Transact(TransactError),
    /// The client needs more memory than the databases, or those of its network, have left.
    #[error("there is no memory for it: all databases, or those of its network, take too much")]
    Budget,
    /// The server sends too much unrequested output while an answer is awaited.
    #[error("it says too much before it answers")]
    Unasked,
    /// The server closed the connection.
    #[error("the OVSDB server closed the connection")]
    End,
}

const READ_BYTES: usize = 16 << 10;
/// Outputs that wait while an answer is awaited.
const WAITING_MAX: usize = 64;
/// Messages above this size are parsed one at a time, so that many of them take the memory, and the
/// processor, of one.
const BIG_BYTES: usize = 256 << 10;
static BIG: Semaphore = Semaphore::const_new(1);

impl Client {
    pub async fn connect(
        method: &Method,
        security: &Security,
        clock: Clock,
        config: Config,
    ) -> Result<Client, ClientError> {
        let connection = connect(method, security)
            .await
            .map_err(ClientError::Transport)?;
        Ok(Client::new(connection, clock, config))
    }

    /// Creates a client on a connection that either side has opened.
    pub fn new(connection: Connection, clock: Clock, config: Config) -> Client {
        Client {
            session: Session::new(clock.now(), config),
            connection,
            clock,
            input: BytesMut::new(),
            unwritten: Bytes::new(),
            waiting: VecDeque::new(),
            charge: None,
        }
    }

    /// Makes the client end with [`ClientError::Budget`] when it takes more than `charge` may.
    pub(crate) fn charged(mut self, charge: Charge) -> Client {
        self.charge = Some(charge);
        self
    }

    /// The session, for requests and replicas; [`Client::next`] returns its output.
    pub fn session(&mut self) -> (&mut Session, Instant) {
        (&mut self.session, self.clock.now())
    }

    /// Returns the next output, never [`Output::Transmit`] or [`Output::Close`]. Cancel-safe.
    pub async fn next(&mut self) -> Result<Output, ClientError> {
        if let Some(output) = self.waiting.pop_front() {
            return Ok(output);
        }
        self.pump().await
    }

    /// Makes a request and waits for its answer; other output meanwhile is kept for
    /// [`Client::next`].
    pub async fn ask(
        &mut self,
        request: impl FnOnce(&mut Session, Instant) -> Result<RequestId, RequestError>,
    ) -> Result<Answer, ClientError> {
        let now = self.clock.now();
        let id = request(&mut self.session, now).map_err(ClientError::Request)?;
        loop {
            match self.pump().await? {
                Output::Answered(answered, answer) if answered == id => return Ok(answer),
                _ if self.waiting.len() >= WAITING_MAX => return Err(ClientError::Unasked),
                other => self.waiting.push_back(other),
            }
        }
    }

    /// Monitors rows by difference, or whole where the server is too old for that.
    pub async fn monitor(
        &mut self,
        database: &str,
        request: &MonitorRequest,
    ) -> Result<MonitorId, ClientError> {
        let asked = self.ask(|session, now| session.get_schema(now, database));
        let schema = match asked.await? {
            // Nothing else of the schema is kept while the rows are awaited.
            Answer::Schema(schema) => schema.only(&request.columns),
            other => return Err(refused("get_schema", other)),
        };
        let asked = self.ask(|session, now| session.monitor_cond(now, &schema, request));
        if let Answer::Monitoring(monitor) = asked.await? {
            return Ok(monitor);
        }
        let asked = self.ask(|session, now| session.monitor(now, &schema, request));
        match asked.await? {
            Answer::Monitoring(monitor) => Ok(monitor),
            other => Err(refused("monitor", other)),
        }
    }

    /// Requests a transaction and waits until it is done.
    pub async fn transact(
        &mut self,
        transaction: &Transaction,
    ) -> Result<Vec<OpResult>, ClientError> {
        let asked = self.ask(|session, now| session.transact(now, transaction));
        match asked.await? {
            Answer::Transacted(done) => done.map_err(ClientError::Transact),
            other => Err(refused("transact", other)),
        }
    }

    async fn pump(&mut self) -> Result<Output, ClientError> {
        loop {
            while self.unwritten.is_empty()
                && let Some(output) = self.session.poll_output()
            {
                match output {
                    Output::Transmit(bytes) => self.unwritten = bytes,
                    Output::Close(reason) => return Err(ClientError::Session(reason)),
                    output => return Ok(output),
                }
            }
            if !self.input.is_empty() {
                self.take_input().await?;
                continue;
            }
            let due = self.session.poll_timeout().map(|(due, _)| due);
            let due = due.map(|due| self.clock.deadline(due));
            let far = tokio::time::Instant::now() + std::time::Duration::from_secs(3600);
            self.input.reserve(READ_BYTES);
            let Connection { reader, writer, .. } = &mut self.connection;
            let is_writing = !self.unwritten.is_empty();
            tokio::select! {
                read = reader.read_buf(&mut self.input) => {
                    if read.map_err(ClientError::Io)? == 0 {
                        self.session.handle_end();
                        return Err(ClientError::End);
                    }
                }
                written = writer.write(&self.unwritten), if is_writing => {
                    self.unwritten.advance(written.map_err(ClientError::Io)?);
                    if self.unwritten.is_empty() {
                        writer.flush().await.map_err(ClientError::Io)?;
                    }
                }
                () = tokio::time::sleep_until(due.unwrap_or(far)) => {
                    self.session.handle_timeout(self.clock.now());
                }
            }
        }
    }
}

impl Client {
    /// Gives the bytes read to the session. Cancel-safe.
    async fn take_input(&mut self) -> Result<(), ClientError> {
        let is_big = self.session.arriving_bytes() + self.input.len() > BIG_BYTES;
        let turn = match is_big {
            true => BIG.acquire().await.ok(),
            false => None,
        };
        let bytes = self.input.split();
        let (session, now) = (&mut self.session, self.clock.now());
        match turn {
            None => session.handle_bytes(now, &bytes),
            Some(_turn) => beside_other_tasks(|| session.handle_bytes(now, &bytes)),
        }
        let held = self.session.held_bytes();
        let is_paid = self.charge.as_mut().is_none_or(|charge| charge.set(held));
        is_paid.then_some(()).ok_or(ClientError::Budget)
    }
}

/// Does work that takes long without making other tasks wait, if the runtime has more threads.
fn beside_other_tasks(work: impl FnOnce()) {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn refused(asked: &'static str, answer: Answer) -> ClientError {
    let why = match answer {
        Answer::Refused(why) => why.to_string(),
        Answer::TimedOut => "no answer in time".to_owned(),
        other => format!("{other:?}"),
    };
    ClientError::Refused { asked, why }
}
