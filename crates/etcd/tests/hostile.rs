//! Servers that are not etcd, or lie. Each call fails with one error, and nothing else happens.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{DEADLINE, client_of, within};
use etcd::{Client, Error, Lost, Notice, Op, Txn};
use http_body_util::{BodyExt, Empty, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

type Body = BoxBody<Bytes, std::convert::Infallible>;

/// A server that writes these bytes to every client, and the number of its connections.
async fn raw(bytes: &'static [u8], hangs_up: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let _ = stream.write_all(bytes).await;
                while !hangs_up
                    && stream
                        .read(&mut [0; 4096])
                        .await
                        .is_ok_and(|count| count > 0)
                {}
            });
        }
    });
    (endpoint, count)
}

/// A server of gRPC whose every answer has this body, and the number of its requests.
async fn grpc(answer: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    serve(move || {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let frames = [
            Frame::data(Bytes::from(answer.clone())),
            Frame::trailers(trailers),
        ];
        let frames = frames.into_iter().map(Ok);
        Response::builder()
            .header("content-type", "application/grpc")
            .body(StreamBody::new(tokio_stream::iter(frames)).boxed())
            .unwrap()
    })
    .await
}

async fn serve(
    answer: impl Fn() -> Response<Body> + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (counted, answer) = (counted.clone(), answer.clone());
            let service = service_fn(move |_: Request<Incoming>| {
                counted.fetch_add(1, Ordering::Relaxed);
                std::future::ready(Ok::<_, std::convert::Infallible>(answer()))
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    (endpoint, count)
}

fn client(endpoint: &str) -> Client {
    client_of(&[endpoint.to_owned()], None, DEADLINE)
}

/// A message in gRPC's frame.
fn framed(message: &[u8]) -> Vec<u8> {
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    framed
}

/// A header of cluster 1 at this revision.
fn header(revision: u8) -> Vec<u8> {
    vec![0x0a, 4, 8, 1, 0x18, revision]
}

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 128);
    [&[number << 3 | 2, length], bytes].concat()
}

/// A key that was changed in this revision.
fn kv(key: &[u8], revision: u8) -> Vec<u8> {
    [
        &field(1, key)[..],
        &[0x10, revision, 0x18, revision, 0x20, 1],
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_etcd_is_an_error() {
    let garbage: &[&[u8]] = &[
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        &[0; 4096],
        &[0xff; 4096],
        // The settings of HTTP/2, then a frame of 16 MiB.
        b"\0\0\0\x04\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\x01",
    ];
    for (n, &bytes) in garbage.iter().enumerate() {
        let (endpoint, _) = raw(bytes, true).await;
        let client = client(&endpoint);
        let read = client.get(b"k").await;
        assert!(matches!(read, Err(Error::Unreachable(_))), "{n}: {read:?}");
        let watch = client.watch(b"k", 1).await.map(drop);
        assert!(
            matches!(watch, Err(Error::Unreachable(_))),
            "{n}: {watch:?}"
        );
        let write = client.put(b"k", b"", 0).await;
        assert!(
            matches!(write, Err(Error::Unreachable(_) | Error::Unknown(_))),
            "{n}: {write:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_costs_a_deadline() {
    let (endpoint, count) = raw(b"", false).await;
    let client = client_of(
        &[endpoint.clone(), endpoint],
        None,
        Duration::from_millis(300),
    );
    let read = client.get(b"k").await;
    assert!(matches!(read, Err(Error::Unreachable(_))), "{read:?}");
    assert_eq!(
        count.load(Ordering::Relaxed),
        2,
        "a read tries each endpoint"
    );
    // The connection that did not answer is not used again, and a write is sent once.
    let write = client.put(b"k", b"", 0).await;
    assert!(matches!(write, Err(Error::Unknown(_))), "{write:?}");
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_is_not_believed() {
    let whole = [header(9), field(2, &kv(b"k", 9))].concat();
    let cut = framed(&whole[..whole.len() - 1]);
    let many = [header(9), [0x12, 0].repeat(10_000)].concat();
    for (why, answer) in [
        ("a frame of 2 GiB", vec![0, 0x7f, 0xff, 0xff, 0xff]),
        ("a frame of 9 MiB", framed(&vec![0; 9 << 20])),
        ("a compressed frame", vec![1, 0, 0, 0, 1, 0]),
        ("no protobuf", framed(&[0xff; 64])),
        ("a message cut short", cut),
        ("ten thousand empty keys", framed(&many)),
        ("no header", framed(&[])),
        ("a revision of 0", framed(&header(0))),
        (
            "another key",
            framed(&[header(9), field(2, &kv(b"x", 9))].concat()),
        ),
        (
            "a key of the future",
            framed(&[header(9), field(2, &kv(b"k", 10))].concat()),
        ),
        (
            "a key of no version",
            framed(&[header(9), field(2, &field(1, b"k"))].concat()),
        ),
        (
            "more, but nothing",
            framed(&[header(9), vec![0x18, 1]].concat()),
        ),
    ] {
        let (endpoint, _) = grpc(answer).await;
        let client = client(&endpoint);
        let is_a_page = why.starts_with("more");
        let read = client.get(b"k").await.map(drop);
        assert!(
            is_a_page || matches!(read, Err(Error::Invalid(_))),
            "{why}: {read:?}"
        );
        let read = client.read_all(b"k").await;
        assert!(matches!(read, Err(Error::Invalid(_))), "{why}: {read:?}");
        let txn = Txn {
            then: vec![Op::Get(b"k".to_vec())],
            otherwise: vec![Op::Get(b"k".to_vec())],
            ..Txn::default()
        };
        let write = client.txn(&txn).await;
        assert!(matches!(write, Err(Error::Unknown(_))), "{why}: {write:?}");
    }
    // The same answer without an error.
    let (endpoint, _) = grpc(framed(&whole)).await;
    let kv = client(&endpoint).get(b"k").await.unwrap().value.unwrap();
    assert_eq!((&kv.key[..], kv.mod_revision), (&b"k"[..], 9));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_an_answer_that_is_not_believed_is_sent_once() {
    let (one, of_one) = grpc(framed(&[])).await;
    let (two, of_two) = grpc(framed(&[])).await;
    let client = client_of(&[one, two], None, DEADLINE);
    let write = client.put(b"k", b"", 0).await;
    assert!(matches!(write, Err(Error::Unknown(_))), "{write:?}");
    assert_eq!(
        of_one.load(Ordering::Relaxed) + of_two.load(Ordering::Relaxed),
        1
    );
}

/// etcd reports the refusal before it proposes a write, and the caller decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_write_is_sent_once_and_a_read_to_everybody() {
    let refusing = || {
        serve(|| {
            Response::builder()
                .header("content-type", "application/grpc")
                .header("grpc-status", "14")
                .header("grpc-message", "etcdserver: no leader")
                .body(Empty::new().boxed())
                .unwrap()
        })
    };
    let ((one, of_one), (two, of_two)) = (refusing().await, refusing().await);
    let count = || of_one.load(Ordering::Relaxed) + of_two.load(Ordering::Relaxed);
    let client = client_of(&[one, two], None, DEADLINE);
    let write = client.put(b"k", b"", 0).await;
    assert!(matches!(write, Err(Error::Unreachable(_))), "{write:?}");
    assert_eq!(count(), 1);
    let read = client.get(b"k").await;
    assert!(matches!(read, Err(Error::Unreachable(_))), "{read:?}");
    assert_eq!(count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_server_is_an_error() {
    let (endpoint, _) = serve(|| {
        Response::builder()
            .status(404)
            .body(Empty::new().boxed())
            .unwrap()
    })
    .await;
    let read = client(&endpoint).get(b"k").await;
    assert!(read.is_err(), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_lies_ends() {
    let created = framed(&[header(9), vec![0x18, 1]].concat());
    let event = |kind: &[u8], kv: &[u8]| field(11, &[kind, &field(2, kv)].concat());
    let changes = |events: &[Vec<u8>]| framed(&[header(9), events.concat()].concat());
    for (why, lie) in [
        ("another cluster", framed(&[0x0a, 4, 8, 2, 0x18, 9])),
        ("another prefix", changes(&[event(&[], &kv(b"x", 9))])),
        ("the past", changes(&[event(&[], &kv(b"k", 4))])),
        ("the future", changes(&[event(&[], &kv(b"k", 10))])),
        (
            "backwards",
            changes(&[event(&[], &kv(b"k", 8)), event(&[], &kv(b"k", 7))]),
        ),
        ("no key", changes(&[field(11, &[])])),
        ("no kind", changes(&[event(&[8, 7], &kv(b"k", 9))])),
        ("no message", framed(&[0xff; 9])),
        ("too large", vec![0, 0x7f, 0xff, 0xff, 0xff]),
    ] {
        let (endpoint, _) = grpc([created.clone(), lie].concat()).await;
        let mut watch = client(&endpoint).watch(b"k", 5).await.unwrap();
        let notice = within(watch.next()).await;
        assert!(
            matches!(notice, Notice::ReadAnew(Lost::Invalid(_))),
            "{why}: {notice:?}"
        );
    }
    let honest = changes(&[event(&[], &kv(b"k", 5)), event(&[8, 1], &kv(b"k/", 9))]);
    let (endpoint, _) = grpc([created, honest].concat()).await;
    let mut watch = client(&endpoint).watch(b"k", 5).await.unwrap();
    let notice = within(watch.next()).await;
    assert!(
        matches!(&notice, Notice::Changes(_, changes) if changes.len() == 2),
        "{notice:?}"
    );
    let notice = within(watch.next()).await;
    assert!(
        matches!(notice, Notice::ReadAnew(Lost::Broken(_))),
        "{notice:?}"
    );
}
