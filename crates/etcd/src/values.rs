//! Questions and answers as callers see them, and the checks between them and the wire.

use crate::error::Error;
use crate::wire;

/// The cluster that answered, and its revision then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Id of the cluster, not zero. A changed id means another or a restored cluster.
    pub cluster_id: u64,
    /// At least 1.
    pub revision: i64,
}

/// A value with its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    pub header: Header,
    pub value: T,
}

/// A key as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// The revision in which the key was created.
    pub create_revision: i64,
    /// The revision of the key's last change; compare-and-swap compares it.
    pub mod_revision: i64,
    /// The number of changes since the key's creation, from 1.
    pub version: i64,
    /// The lease with which the key ends, or 0.
    pub lease: i64,
}

impl KeyValue {
    pub(crate) fn checked(kv: wire::KeyValue) -> Result<KeyValue, Error> {
        let revisions = 1..=kv.mod_revision;
        if !revisions.contains(&kv.create_revision) || kv.version < 1 {
            return Err(invalid("revisions of a key contradict each other"));
        }
        Ok(KeyValue {
            key: kv.key,
            value: kv.value,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            lease: kv.lease,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// All keys under a prefix, at the revision in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub header: Header,
    /// In ascending order.
    pub kvs: Vec<KeyValue>,
}

/// A transaction: if all of `compares` hold, `then` is done, else `otherwise`. Each key may be
/// written only once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub then: Vec<Op>,
    pub otherwise: Vec<Op>,
}

/// A condition on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key's last change was in this revision; 0 for a key that does not exist.
    ModRevision(Vec<u8>, i64),
    /// The key was created in this revision; 0 for a key that does not exist.
    CreateRevision(Vec<u8>, i64),
    /// No key with this prefix has changed after this revision. Deleted keys do not count.
    PrefixUntil(Vec<u8>, i64),
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Get(Vec<u8>),
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        /// 0 for none.
        lease: i64,
    },
    Delete(Vec<u8>),
    DeletePrefix(Vec<u8>),
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    Got(Option<KeyValue>),
    Put,
    /// The number of keys that were deleted.
    Deleted(u64),
}

/// The branch that a transaction took, and the results of its steps in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnAnswer {
    pub header: Header,
    pub succeeded: bool,
    pub results: Vec<OpResult>,
}

/// The result of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cas {
    /// Written; `header.revision` is the key's new `mod_revision`.
    Won(Header),
    /// Another client has changed the key: this is its present state.
    LostTo(Header, Option<KeyValue>),
}

/// A lease, and how long it lasts without a keepalive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub header: Header,
    pub id: i64,
    /// etcd may raise the requested time: at least 1.5 election timeouts.
    pub ttl_s: u64,
}

/// A member about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub header: Header,
    /// Such as `3.5.18`.
    pub version: String,
    pub db_size_bytes: u64,
    pub has_leader: bool,
    /// Alarms such as a full database, in etcd's words.
    pub alarms: Vec<String>,
}

impl Compare {
    pub(crate) fn wire(&self) -> wire::Compare {
        let equal = |target, key: &Vec<u8>, compared| wire::Compare {
            result: wire::Comparison::Equal as i32,
            target: target as i32,
            key: key.clone(),
            compared: Some(compared),
            range_end: Vec::new(),
        };
        match self {
            Compare::ModRevision(key, revision) => equal(
                wire::Target::ModRevision,
                key,
                wire::Compared::ModRevision(*revision),
            ),
            Compare::CreateRevision(key, revision) => equal(
                wire::Target::CreateRevision,
                key,
                wire::Compared::CreateRevision(*revision),
            ),
            Compare::PrefixUntil(prefix, revision) => wire::Compare {
                result: wire::Comparison::Less as i32,
                target: wire::Target::ModRevision as i32,
                key: start_of(prefix),
                compared: Some(wire::Compared::ModRevision(revision.saturating_add(1))),
                range_end: end_of(prefix),
            },
        }
    }
}

impl Op {
    pub(crate) fn wire(&self) -> wire::RequestOp {
        let request = match self {
            Op::Get(key) => wire::Request::Range(wire::RangeRequest {
                key: key.clone(),
                ..wire::RangeRequest::default()
            }),
            Op::Put { key, value, lease } => wire::Request::Put(wire::PutRequest {
                key: key.clone(),
                value: value.clone(),
                lease: *lease,
            }),
            Op::Delete(key) => wire::Request::DeleteRange(wire::DeleteRangeRequest {
                key: key.clone(),
                range_end: Vec::new(),
            }),
            Op::DeletePrefix(prefix) => wire::Request::DeleteRange(wire::DeleteRangeRequest {
                key: start_of(prefix),
                range_end: end_of(prefix),
            }),
        };
        wire::RequestOp {
            request: Some(request),
        }
    }

    pub(crate) fn result(
        &self,
        response: wire::ResponseOp,
        revision: i64,
    ) -> Result<OpResult, Error> {
        match (self, response.response) {
            (Op::Get(key), Some(wire::Response::Get(got))) => {
                let kv = one_key(got.kv, key, revision);
                kv.map(OpResult::Got)
                    .map_err(|error| unknown(&error.to_string()))
            }
            (Op::Put { .. }, Some(wire::Response::Put(_))) => Ok(OpResult::Put),
            (Op::Delete(_) | Op::DeletePrefix(_), Some(wire::Response::DeleteRange(deleted))) => {
                let count = u64::try_from(deleted.deleted);
                count
                    .map(OpResult::Deleted)
                    .map_err(|_| unknown("a negative number"))
            }
            _ => Err(unknown("a transaction's answer with other steps")),
        }
    }
}

/// Returns the header if it is valid.
pub(crate) fn checked(header: Option<&wire::ResponseHeader>) -> Result<Header, Error> {
    match header {
        Some(header) if header.cluster_id != 0 && header.revision > 0 => Ok(Header {
            cluster_id: header.cluster_id,
            revision: header.revision,
        }),
        _ => Err(invalid("no header, or one without a cluster or a revision")),
    }
}

pub(crate) fn one_key(
    kv: Option<wire::KeyValue>,
    key: &[u8],
    revision: i64,
) -> Result<Option<KeyValue>, Error> {
    let kv = kv.map(KeyValue::checked).transpose()?;
    match &kv {
        Some(kv) if kv.key != key || kv.mod_revision > revision => {
            Err(invalid("a key that was not asked for"))
        }
        _ => Ok(kv),
    }
}

pub(crate) fn lease((header, answer): (Header, wire::LeaseResponse)) -> Option<Lease> {
    let ttl_s = u64::try_from(answer.ttl).ok()?;
    (answer.id != 0 && ttl_s > 0).then_some(Lease {
        header,
        id: answer.id,
        ttl_s,
    })
}

/// Returns the first key under a prefix. etcd has no empty key.
pub(crate) fn start_of(prefix: &[u8]) -> Vec<u8> {
    match prefix {
        [] => vec![0],
        prefix => prefix.to_vec(),
    }
}

/// Returns the first key after all keys under a prefix; `\0` is etcd's notation for the end of all
/// keys.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

pub(crate) fn invalid(why: &str) -> Error {
    Error::Invalid(why.to_owned())
}

pub(crate) fn unknown(why: &str) -> Error {
    Error::Unknown(why.to_owned())
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_after_the_last_key_of_its_prefix() {
        assert_eq!(end_of(b"/a/"), b"/a0");
        assert_eq!(end_of(b"a\xff\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"\0");
        assert_eq!((start_of(b""), end_of(b"")), (vec![0], vec![0]));
    }
}
