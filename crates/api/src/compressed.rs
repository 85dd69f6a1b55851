//! Answers in gzip, for clients that accept it: answers about a large network are megabytes of the
//! same few words.

use std::io::Write;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::task::spawn_blocking;

use super::problem::Problem;

/// The smallest answer to compress: smaller ones fit into a packet as they are.
const BYTES_MIN: u64 = 1400;

/// Compresses an answer that is complete, large enough and not compressed already. A stream stays
/// as it is: its reader reads each line as soon as it is written.
pub async fn compress(request: Request, next: Next) -> Response {
    let is_wanted = *request.method() == Method::GET && accepts_gzip(request.headers());
    let response = next.run(request).await;
    if !is_wanted || !is_worth_it(&response) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let Ok(plain) = to_bytes(body, usize::MAX).await else {
        return Problem::busy().into_response();
    };
    let packed = spawn_blocking(move || gzip(&plain)).await;
    let Ok(packed) = packed else {
        return Problem::busy().into_response();
    };
    let mut response = Response::from_parts(parts, Body::from(packed));
    response.headers_mut().remove(header::CONTENT_LENGTH);
    mark(response)
}

/// Whether to compress an answer. A tag names the bytes of a document, which compression would
/// change.
fn is_worth_it(response: &Response) -> bool {
    let headers = response.headers();
    let is_plain = [header::CONTENT_ENCODING, header::ETAG];
    let is_plain = is_plain.iter().all(|name| !headers.contains_key(name));
    let size = response.body().size_hint().exact();
    response.status() == StatusCode::OK && is_plain && size.is_some_and(|size| size >= BYTES_MIN)
}

pub fn gzip(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    written.expect("a vector takes every byte").into()
}

/// Marks the body as gzip, and as different for other clients.
pub fn mark(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    response
}

/// Whether one of the encodings is gzip or any, and is not refused by a weight of zero.
pub fn accepts_gzip(asked: &HeaderMap) -> bool {
    let values = asked.get_all(header::ACCEPT_ENCODING).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let is_refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok());
            weight.is_some_and(|weight| weight <= 0.0)
        });
        (name.eq_ignore_ascii_case("gzip") || name == "*") && !is_refused
    })
}
