//! The messages of etcd v3 that the client sends and reads, by hand: numbers and types of fields
//! are those of `etcdserverpb/rpc.proto` and `mvccpb/kv.proto`. Fields that nobody reads are left
//! out; protobuf skips them.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

pub mod path {
    pub const RANGE: &str = "/etcdserverpb.KV/Range";
    pub const PUT: &str = "/etcdserverpb.KV/Put";
    pub const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
    pub const TXN: &str = "/etcdserverpb.KV/Txn";
    pub const WATCH: &str = "/etcdserverpb.Watch/Watch";
    pub const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
    pub const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
    pub const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
    pub const STATUS: &str = "/etcdserverpb.Maintenance/Status";
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    #[prost(int64, tag = "4")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// A `RangeResponse` to a request for one key, so that a server cannot return a list.
#[derive(Clone, PartialEq, Message)]
pub struct GetResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub deleted: i64,
}

/// A comparison of a key, or of each key of a range.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    #[prost(enumeration = "Comparison", tag = "1")]
    pub result: i32,
    #[prost(enumeration = "Target", tag = "2")]
    pub target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    #[prost(oneof = "Compared", tags = "5, 6")]
    pub compared: Option<Compared>,
    #[prost(bytes = "vec", tag = "64")]
    pub range_end: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Comparison {
    Equal = 0,
    Less = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Target {
    Version = 0,
    CreateRevision = 1,
    ModRevision = 2,
}

#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum Compared {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub request: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    pub response: Option<Response>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Response {
    #[prost(message, tag = "1")]
    Get(GetResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchRequest {
    #[prost(oneof = "WatchRequestUnion", tags = "1, 3")]
    pub request: Option<WatchRequestUnion>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum WatchRequestUnion {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    Put = 0,
    Delete = 1,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub ttl: i64,
}

/// The answer to a grant and to a keepalive. A keepalive's TTL of 0 means that the lease has ended.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct LeaseResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

/// A revocation or a keepalive.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct LeaseRevokeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
}

/// A message that begins with etcd's header.
pub trait Headed: Message + Default + 'static {
    fn header(&self) -> Option<&ResponseHeader>;
}

macro_rules! headed {
    ($($name:ident),*) => {$(
        impl Headed for $name {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        }
    )*};
}

headed!(
    RangeResponse,
    GetResponse,
    PutResponse,
    DeleteRangeResponse,
    TxnResponse,
    WatchResponse,
    LeaseResponse,
    LeaseRevokeResponse,
    StatusResponse
);

/// Protobuf in gRPC. A message with more than `fields_max` fields is refused before it is decoded:
/// an empty element of a list costs two bytes on the wire and a hundred in memory.
pub struct Protobuf<E, D> {
    fields_max: usize,
    kinds: PhantomData<fn(E) -> D>,
}

impl<E, D> Protobuf<E, D> {
    pub fn new(fields_max: usize) -> Protobuf<E, D> {
        Protobuf {
            fields_max,
            kinds: PhantomData,
        }
    }
}

impl<E: Message + 'static, D: Message + Default + 'static> Codec for Protobuf<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = Protobuf<E, D>;
    type Decoder = Protobuf<E, D>;

    fn encoder(&mut self) -> Protobuf<E, D> {
        Protobuf::new(self.fields_max)
    }

    fn decoder(&mut self) -> Protobuf<E, D> {
        Protobuf::new(self.fields_max)
    }
}

impl<E: Message, D> Encoder for Protobuf<E, D> {
    type Item = E;
    type Error = Status;

    fn encode(&mut self, message: E, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let encoded = message.encode(buffer);
        encoded.map_err(|error| Status::internal(error.to_string()))
    }
}

impl<E, D: Message + Default> Decoder for Protobuf<E, D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let bytes = prost::bytes::Buf::copy_to_bytes(buffer, prost::bytes::Buf::remaining(buffer));
        decode(&bytes, self.fields_max).map(Some)
    }
}

/// Decodes a message within its bound of fields.
fn decode<D: Message + Default>(bytes: &[u8], fields_max: usize) -> Result<D, Status> {
    match fields(bytes) {
        Some(count) if count > fields_max => Err(Status::internal(format!(
            "a message of {count} fields, {fields_max} are allowed"
        ))),
        Some(_) => D::decode(bytes).map_err(|error| Status::internal(error.to_string())),
        None => Err(Status::internal("not a protobuf message")),
    }
}

/// Returns the number of fields at the top level of a message; `None` if the bytes are not a
/// message. Groups, which etcd does not use, are refused.
fn fields(mut bytes: &[u8]) -> Option<usize> {
    use prost::encoding::decode_varint;
    let mut count = 0;
    while !bytes.is_empty() {
        let key = decode_varint(&mut bytes).ok()?;
        let skipped = match key & 7 {
            0 => decode_varint(&mut bytes).ok().map(|_| 0)?,
            1 => 8,
            2 => decode_varint(&mut bytes).ok()?.try_into().ok()?,
            5 => 4,
            _ => return None,
        };
        bytes = bytes.get(skipped..)?;
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_list_over_the_bound_is_not_decoded() {
        let answer = |count| RangeResponse {
            kvs: vec![KeyValue::default(); count],
            more: true,
            ..RangeResponse::default()
        };
        let bytes = answer(9).encode_to_vec();
        assert_eq!(decode::<RangeResponse>(&bytes, 10).unwrap(), answer(9));
        let refused = decode::<RangeResponse>(&answer(10).encode_to_vec(), 10).unwrap_err();
        assert!(refused.message().contains("11 fields"), "{refused}");
    }

    proptest! {
        #[test]
        fn bytes_of_anybody_are_a_message_or_an_error(bytes in any::<Vec<u8>>()) {
            let _ = decode::<RangeResponse>(&bytes, 8);
            let _ = decode::<TxnResponse>(&bytes, 8);
            let _ = decode::<WatchResponse>(&bytes, 8);
            let _ = decode::<StatusResponse>(&bytes, 8);
        }

        #[test]
        fn a_message_cut_short_is_none(
            key in prop::collection::vec(any::<u8>(), 1..40),
            cut in 1_usize..40,
        ) {
            let kv = KeyValue { key, value: vec![1], ..KeyValue::default() };
            let whole = RangeResponse { kvs: vec![kv], ..RangeResponse::default() };
            let bytes = whole.encode_to_vec();
            let cut = cut.min(bytes.len() - 1);
            let cut = &bytes[..bytes.len() - cut];
            prop_assert!(decode::<RangeResponse>(cut, 8).is_err());
        }
    }
}
