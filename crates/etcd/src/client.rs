//! The calls, each with its deadline, and the checks of their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use net::tls::Security;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Streaming};

use crate::connection::{Connection, Endpoint, Requests};
use crate::error::{Error, Failure, cleaned};
use crate::values::{
    Answer, Cas, Compare, Header, KeyValue, Lease, Op, OpResult, Snapshot, Status, Txn, TxnAnswer,
    checked, end_of, invalid, lease, one_key, start_of, unknown,
};
use crate::watch::Watch;
use crate::wire::{self, Headed, Protobuf, path};

/// The members to call, and the bounds of the calls.
#[derive(Clone, Debug)]
pub struct Config {
    /// The members of one cluster; at least one.
    pub endpoints: Vec<Endpoint>,
    /// Certificates; plain TCP without them. A member's certificate must name its endpoint's host.
    /// etcd takes the common name of ours as its user.
    pub tls: Option<Security>,
    /// The time for one call at one member, connecting included. A read at `n` members that do not
    /// answer takes `n` times this.
    pub deadline: Duration,
    /// The time between two progress requests of a watch. A watch that receives nothing for three
    /// of them ends as [`Lost::Silent`](crate::Lost::Silent).
    pub progress: Duration,
    pub limits: Limits,
}

impl Config {
    /// Makes a configuration with a deadline of 300 ms and a progress request every 5 s.
    pub fn new(endpoints: Vec<Endpoint>) -> Config {
        Config {
            endpoints,
            tls: None,
            deadline: Duration::from_millis(300),
            progress: Duration::from_secs(5),
            limits: Limits::default(),
        }
    }
}

/// Bounds on the data that a server may send; beyond them, a call fails with [`Error::Invalid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Keys that [`Client::read_all`] asks for at a time.
    pub page_keys: u16,
    /// Maximum number of keys of one [`Client::read_all`], and of changes of one revision in a
    /// watch.
    pub keys_max: usize,
    /// Maximum number of bytes of these keys and values.
    pub bytes_max: usize,
    /// Maximum number of bytes of one message.
    pub message_bytes_max: usize,
}

impl Default for Limits {
    /// Pages of 500 keys, 200,000 keys, 64 MiB, messages of 8 MiB.
    fn default() -> Limits {
        Limits {
            page_keys: 500,
            keys_max: 200_000,
            bytes_max: 64 << 20,
            message_bytes_max: 8 << 20,
        }
    }
}

/// A client of one cluster. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    members: Vec<Member>,
    /// The member that answered last.
    preferred: AtomicUsize,
}

struct Member {
    endpoint: Endpoint,
    connection: Mutex<Option<Connection>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// May be repeated, at any member.
    Read,
    /// Is sent once.
    Write,
}

#[derive(Clone, Copy)]
enum Form {
    Unary,
    /// One request and one answer on a stream of its own.
    Stream,
}

/// Bytes that etcd accepts in one request (`--max-request-bytes`), less those around a value.
const REQUEST_BYTES_MAX: usize = (3 << 19) - (8 << 10);

/// Maximum number of steps of one transaction (`--max-txn-ops`).
const OPS_MAX: usize = 128;

/// Maximum number of fields of a message that is not a page: a transaction's answer has one per
/// step.
const FIELDS_MAX: usize = OPS_MAX + 64;

impl Client {
    /// Makes a client that connects when it is called, and needs a tokio runtime then.
    ///
    /// # Errors
    ///
    /// [`Error::BadRequest`] without an endpoint.
    pub fn new(config: Config) -> Result<Client, Error> {
        if config.endpoints.is_empty() {
            return Err(Error::BadRequest("no endpoint".into()));
        }
        let member = |endpoint: &Endpoint| Member {
            endpoint: endpoint.clone(),
            connection: Mutex::new(None),
        };
        let members = config.endpoints.iter().map(member).collect();
        let preferred = AtomicUsize::new(0);
        let shared = Arc::new(Shared {
            config,
            members,
            preferred,
        });
        Ok(Client { shared })
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Reads one key, linearizable: not older than any write that was answered before.
    pub async fn get(&self, key: &[u8]) -> Result<Answer<Option<KeyValue>>, Error> {
        let request = wire::RangeRequest {
            key: key.to_vec(),
            ..wire::RangeRequest::default()
        };
        let (header, answer): (_, wire::GetResponse) =
            self.call(Kind::Read, path::RANGE, &request).await?;
        let value = one_key(answer.kv, key, header.revision)?;
        Ok(Answer { header, value })
    }

    /// Reads all keys under `prefix` at one revision, which is not older than any write that was
    /// answered before. Reads page by page.
    ///
    /// # Errors
    ///
    /// [`Error::Compacted`] if etcd compacts that revision meanwhile; [`Error::Invalid`] beyond
    /// [`Limits`].
    pub async fn read_all(&self, prefix: &[u8]) -> Result<Snapshot, Error> {
        let limits = self.shared.config.limits;
        let mut request = wire::RangeRequest {
            key: start_of(prefix),
            range_end: end_of(prefix),
            limit: i64::from(limits.page_keys.max(1)),
            revision: 0,
        };
        let mut first: Option<Header> = None;
        let mut kvs: Vec<KeyValue> = Vec::new();
        let mut bytes = 0;
        loop {
            let answer = self.call(Kind::Read, path::RANGE, &request).await;
            let (header, page): (Header, wire::RangeResponse) = match answer {
                // With fewer keys, the answer may stay within its bound.
                Err(Error::Invalid(_)) if request.limit > 1 => {
                    request.limit = (request.limit / 8).max(1);
                    continue;
                }
                answer => answer?,
            };
            let snapshot = *first.get_or_insert(header);
            if header.cluster_id != snapshot.cluster_id || header.revision < snapshot.revision {
                return Err(invalid("pages of different clusters"));
            }
            request.revision = snapshot.revision;
            let is_full = i64::try_from(page.kvs.len()) == Ok(request.limit);
            for kv in page.kvs {
                let kv = KeyValue::checked(kv)?;
                let is_next = kvs.last().is_none_or(|last| last.key < kv.key);
                if !is_next || !kv.key.starts_with(prefix) || kv.mod_revision > snapshot.revision {
                    return Err(invalid("a key that was not asked for"));
                }
                bytes += kv.bytes();
                if bytes > limits.bytes_max || kvs.len() >= limits.keys_max {
                    return Err(invalid("more keys than allowed"));
                }
                kvs.push(kv);
            }
            match kvs.last() {
                _ if !page.more => {
                    return Ok(Snapshot {
                        header: snapshot,
                        kvs,
                    });
                }
                Some(last) if is_full => {
                    request.key.clone_from(&last.key);
                    request.key.push(0);
                }
                _ => return Err(invalid("a page that is not full and not the last")),
            }
        }
    }

    /// Writes a key, whether or not it exists. `lease` is 0 for none.
    pub async fn put(&self, key: &[u8], value: &[u8], lease: i64) -> Result<Header, Error> {
        bounded(key.len() + value.len())?;
        let request = wire::PutRequest {
            key: key.to_vec(),
            value: value.to_vec(),
            lease,
        };
        let (header, _): (_, wire::PutResponse) =
            self.call(Kind::Write, path::PUT, &request).await?;
        Ok(header)
    }

    /// Deletes a key. The answer's value is the number of keys deleted: 0 or 1.
    pub async fn delete(&self, key: &[u8]) -> Result<Answer<u64>, Error> {
        self.delete_range(key.to_vec(), Vec::new()).await
    }

    /// Deletes all keys under `prefix`, in one revision. The answer's value is their number.
    pub async fn delete_prefix(&self, prefix: &[u8]) -> Result<Answer<u64>, Error> {
        self.delete_range(start_of(prefix), end_of(prefix)).await
    }

    async fn delete_range(&self, key: Vec<u8>, range_end: Vec<u8>) -> Result<Answer<u64>, Error> {
        let request = wire::DeleteRangeRequest { key, range_end };
        let (header, answer): (_, wire::DeleteRangeResponse) =
            self.call(Kind::Write, path::DELETE_RANGE, &request).await?;
        let value = u64::try_from(answer.deleted).map_err(|_| unknown("a negative number"))?;
        Ok(Answer { header, value })
    }

    /// Runs a transaction: all of it in one revision, or none of it.
    pub async fn txn(&self, txn: &Txn) -> Result<TxnAnswer, Error> {
        let most = [txn.compares.len(), txn.then.len(), txn.otherwise.len()];
        if most.iter().any(|&count| count > OPS_MAX) {
            return Err(Error::BadRequest(format!(
                "a transaction of over {OPS_MAX} steps"
            )));
        }
        let request = wire::TxnRequest {
            compare: txn.compares.iter().map(Compare::wire).collect(),
            success: txn.then.iter().map(Op::wire).collect(),
            failure: txn.otherwise.iter().map(Op::wire).collect(),
        };
        bounded(prost::Message::encoded_len(&request))?;
        let (header, answer): (Header, wire::TxnResponse) =
            self.call(Kind::Write, path::TXN, &request).await?;
        let asked = if answer.succeeded {
            &txn.then
        } else {
            &txn.otherwise
        };
        if asked.len() != answer.responses.len() {
            return Err(unknown("a transaction's answer with other steps"));
        }
        let pairs = asked.iter().zip(answer.responses);
        let results = pairs.map(|(op, response)| op.result(response, header.revision));
        Ok(TxnAnswer {
            header,
            succeeded: answer.succeeded,
            results: results.collect::<Result<_, _>>()?,
        })
    }

    /// Writes a key if its last change was in revision `expected`; 0 expects no such key. Safe to
    /// repeat after [`Error::Unknown`]: if the write was done, its repetition loses to it.
    pub async fn cas(
        &self,
        key: &[u8],
        expected: i64,
        value: &[u8],
        lease: i64,
    ) -> Result<Cas, Error> {
        let put = Op::Put {
            key: key.to_vec(),
            value: value.to_vec(),
            lease,
        };
        let txn = Txn {
            compares: vec![Compare::ModRevision(key.to_vec(), expected)],
            then: vec![put],
            otherwise: vec![Op::Get(key.to_vec())],
        };
        let answer = self.txn(&txn).await?;
        match answer.results.into_iter().next() {
            Some(OpResult::Got(kv)) => Ok(Cas::LostTo(answer.header, kv)),
            _ => Ok(Cas::Won(answer.header)),
        }
    }

    /// Makes a new lease of at least `ttl_s` seconds.
    pub async fn lease_grant(&self, ttl_s: u32) -> Result<Lease, Error> {
        let request = wire::LeaseGrantRequest {
            ttl: i64::from(ttl_s),
        };
        let answer = self.call(Kind::Write, path::LEASE_GRANT, &request).await?;
        lease(answer).ok_or_else(|| unknown("a lease without an id or a time"))
    }

    /// Renews a lease.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseNotFound`] once the lease has ended; its keys are deleted then.
    pub async fn lease_keep_alive(&self, id: i64) -> Result<Lease, Error> {
        let request = wire::LeaseRequest { id };
        let answer = self
            .exchange(Kind::Read, Form::Stream, path::LEASE_KEEP_ALIVE, &request)
            .await?;
        let (_, response): &(Header, wire::LeaseResponse) = &answer;
        match response.ttl {
            _ if response.id != id => Err(invalid("another lease's answer")),
            ..=0 => Err(Error::LeaseNotFound),
            _ => lease(answer).ok_or(Error::LeaseNotFound),
        }
    }

    /// Ends a lease, and deletes its keys.
    pub async fn lease_revoke(&self, id: i64) -> Result<Header, Error> {
        let request = wire::LeaseRequest { id };
        let (header, _): (_, wire::LeaseRevokeResponse) =
            self.call(Kind::Write, path::LEASE_REVOKE, &request).await?;
        Ok(header)
    }

    /// Returns the number of etcd's members that this client asks.
    pub fn member_count(&self) -> usize {
        self.shared.members.len()
    }

    /// Asks only the member at this position in [`Config::endpoints`].
    pub async fn status(&self, member: usize) -> Result<Status, Error> {
        const TEXT_BYTES_MAX: usize = 64;
        if member >= self.shared.members.len() {
            return Err(Error::BadRequest(format!("no endpoint {member}")));
        }
        let request = wire::StatusRequest {};
        let (header, answer): (_, wire::StatusResponse) = self
            .ask(member, Form::Unary, path::STATUS, request)
            .await
            .map_err(|failure| failure.error)?;
        if answer.version.len() > TEXT_BYTES_MAX {
            return Err(invalid("a version that is none"));
        }
        let size = u64::try_from(answer.db_size);
        Ok(Status {
            header,
            version: cleaned(&answer.version),
            db_size_bytes: size.map_err(|_| invalid("a negative size"))?,
            has_leader: answer.leader != 0,
            alarms: answer.errors.iter().map(|text| cleaned(text)).collect(),
        })
    }

    /// Watches all keys under `prefix`, from revision `from` (included) on: one more than the
    /// revision of a [`Snapshot`].
    ///
    /// # Errors
    ///
    /// A revision that is already compacted is not an error here; the watch reports it.
    pub async fn watch(&self, prefix: &[u8], from: i64) -> Result<Watch, Error> {
        let mut kept = None;
        for member in self.shared.in_turn() {
            let opened = Watch::open(self, member, prefix, from).await;
            match opened {
                Ok(watch) => {
                    self.shared.preferred.store(member, Ordering::Relaxed);
                    return Ok(watch);
                }
                Err(failure) => self.shared.turn_away(&failure, Kind::Read, &mut kept)?,
            }
        }
        Err(kept.unwrap_or_else(|| invalid("no endpoint")))
    }

    async fn call<Q, A>(&self, kind: Kind, path: &'static str, request: &Q) -> Called<A>
    where
        Q: prost::Message + Clone + 'static,
        A: Headed,
    {
        self.exchange(kind, Form::Unary, path, request).await
    }

    /// Asks one member after the other, as far as `kind` allows.
    async fn exchange<Q, A>(
        &self,
        kind: Kind,
        form: Form,
        path: &'static str,
        request: &Q,
    ) -> Called<A>
    where
        Q: prost::Message + Clone + 'static,
        A: Headed,
    {
        let mut kept = None;
        for member in self.shared.in_turn() {
            match self.ask(member, form, path, request.clone()).await {
                Ok(answer) => {
                    self.shared.preferred.store(member, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(failure) => self.shared.turn_away(&failure, kind, &mut kept)?,
            }
        }
        Err(kept.unwrap_or_else(|| invalid("no endpoint")))
    }

    /// Asks one member once, within the deadline.
    async fn ask<Q, A>(
        &self,
        member: usize,
        form: Form,
        path: &'static str,
        request: Q,
    ) -> Result<(Header, A), Failure>
    where
        Q: prost::Message + 'static,
        A: Headed,
    {
        let limits = self.shared.config.limits;
        let fields_max = FIELDS_MAX + usize::from(limits.page_keys);
        let until = self.until();
        let mut grpc = self.grpc(member, until).await?;
        let call = async {
            let codec = Protobuf::<Q, A>::new(fields_max);
            let path = hyper::http::uri::PathAndQuery::from_static(path);
            match form {
                Form::Unary => {
                    let answer = grpc.unary(self.request(request), path, codec).await;
                    answer.map(Response::into_inner)
                }
                Form::Stream => {
                    let requests = self.request(tokio_stream::once(request));
                    let answer = grpc.streaming(requests, path, codec).await?;
                    let first = answer.into_inner().message().await?;
                    first.ok_or_else(|| tonic::Status::internal("a stream without an answer"))
                }
            }
        };
        let endpoint = &self.shared.members[member].endpoint;
        let answer = match timeout_at(until, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(status)) => return Err(Failure::of(endpoint, &status)),
            Err(_) => {
                self.shared.forget(member);
                let why = format!("{endpoint}: no answer in time");
                return Err(Failure::after(Error::Unreachable(why), true));
            }
        };
        let header = checked(answer.header()).map_err(|error| Failure::after(error, true))?;
        Ok((header, answer))
    }

    /// Opens a stream to one member. Its first request is the first of `requests`.
    pub(crate) async fn stream<Q, A>(
        &self,
        member: usize,
        path: &'static str,
        requests: impl tokio_stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<(Streaming<A>, A), Failure>
    where
        Q: prost::Message + 'static,
        A: Headed,
    {
        let until = self.until();
        let mut grpc = self.grpc(member, until).await?;
        let limits = self.shared.config.limits;
        let codec = Protobuf::<Q, A>::new(limits.keys_max + FIELDS_MAX);
        let path = hyper::http::uri::PathAndQuery::from_static(path);
        let mut requests = Request::new(requests);
        require_leader(&mut requests);
        let open = async {
            let mut answers = grpc.streaming(requests, path, codec).await?.into_inner();
            let first = answers.message().await?;
            let first = first.ok_or_else(|| tonic::Status::unavailable("the stream ended"))?;
            Ok((answers, first))
        };
        let endpoint = &self.shared.members[member].endpoint;
        match timeout_at(until, open).await {
            Ok(opened) => opened.map_err(|status| Failure::of(endpoint, &status)),
            Err(_) => {
                self.shared.forget(member);
                let why = format!("{endpoint}: no answer in time");
                Err(Failure::after(Error::Unreachable(why), true))
            }
        }
    }

    pub(crate) fn endpoint(&self, member: usize) -> &Endpoint {
        &self.shared.members[member].endpoint
    }

    fn until(&self) -> Instant {
        Instant::now() + self.shared.config.deadline
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        require_leader(&mut request);
        request.set_timeout(self.shared.config.deadline);
        request
    }

    /// Returns the connection to a member, and makes a new one if there is none.
    async fn grpc(&self, member: usize, until: Instant) -> Result<Grpc<Requests>, Failure> {
        let config = &self.shared.config;
        let Member {
            endpoint,
            connection,
        } = &self.shared.members[member];
        let connect = async {
            let mut connection = connection.lock().await;
            match &*connection {
                Some(known) if !known.is_closed() => Ok(known.clone()),
                _ => {
                    let made = Connection::open(endpoint, config.tls.as_ref()).await?;
                    Ok(connection.insert(made).clone())
                }
            }
        };
        let late = || Error::Unreachable(format!("{endpoint}: no connection in time"));
        let connection = timeout_at(until, connect)
            .await
            .unwrap_or_else(|_| Err(late()));
        let connection = connection.map_err(Failure::before)?;
        Ok(connection.grpc(config.limits.message_bytes_max))
    }
}

type Called<A> = Result<(Header, A), Error>;

impl Shared {
    /// Iterates over all members, from the one that answered last.
    fn in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.members.len();
        let first = self.preferred.load(Ordering::Relaxed);
        (0..count).map(move |step| (first + step) % count)
    }

    /// Returns the failure if no other member may be asked. Otherwise keeps it, and prefers a
    /// failure that needs an operator to one that time may mend.
    fn turn_away(
        &self,
        failure: &Failure,
        kind: Kind,
        kept: &mut Option<Error>,
    ) -> Result<(), Error> {
        let error = failure.error.clone();
        let is_of_the_member = match &error {
            Error::Unreachable(_) | Error::Invalid(_) | Error::Unknown(_) => true,
            Error::Refused(_) => !failure.was_sent,
            Error::Full | Error::Compacted | Error::LeaseNotFound | Error::BadRequest(_) => false,
        };
        if is_of_the_member && failure.was_sent {
            // The next call begins at another member.
            let next = self.in_turn().nth(1).unwrap_or(0);
            self.preferred.store(next, Ordering::Relaxed);
        }
        match (kind, error) {
            (Kind::Write, Error::Unreachable(why) | Error::Invalid(why)) if failure.may_be_done => {
                Err(Error::Unknown(why))
            }
            (Kind::Write, error) if failure.was_sent => Err(error),
            (_, error) if !is_of_the_member => Err(error),
            (_, error) => {
                if kept
                    .as_ref()
                    .is_none_or(|kept| matches!(kept, Error::Unreachable(_)))
                {
                    *kept = Some(error);
                }
                Ok(())
            }
        }
    }

    /// Drops a connection that does not answer, so that the next call makes a new one.
    fn forget(&self, member: usize) {
        // The owner of the lock is about to make a new connection.
        if let Ok(mut connection) = self.members[member].connection.try_lock() {
            *connection = None;
        }
    }
}

/// Asks a member that has no leader to say so at once.
fn require_leader<T>(request: &mut Request<T>) {
    let value = MetadataValue::from_static("true");
    request.metadata_mut().insert("hasleader", value);
}

fn bounded(bytes: usize) -> Result<(), Error> {
    match bytes > REQUEST_BYTES_MAX {
        true => Err(Error::BadRequest(format!(
            "a request of {bytes} bytes, {REQUEST_BYTES_MAX} are allowed"
        ))),
        false => Ok(()),
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_etcd_would_refuse_is_not_sent() {
        assert!(bounded(REQUEST_BYTES_MAX).is_ok());
        assert!(matches!(
            bounded(REQUEST_BYTES_MAX + 1),
            Err(Error::BadRequest(_))
        ));
    }
}
