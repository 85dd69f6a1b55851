//! One request to the API of a running `auster run`, and its answer.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use net::tls::ClientFiles;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use api::Duplex;
use cli::failure::Failure;
use config::api::ApiAddress;

/// The time for the whole answer: the API gives up earlier.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Events and changes are shorter.
const LINE_BYTES_MAX: usize = 1 << 20;

pub struct Client {
    at: ApiAddress,
    token: Option<String>,
    carrier: Carrier,
}

/// The layer between a TCP connection and HTTP.
#[derive(Clone)]
pub enum Carrier {
    Plain,
    Tls(TlsConnector, ServerName<'static>),
}

impl Carrier {
    /// TLS with a server that is identified by `name`, or by its address.
    pub fn tls(
        files: &ClientFiles,
        at: &ApiAddress,
        name: Option<&str>,
    ) -> Result<Carrier, Failure> {
        let name = match (name, at) {
            (Some(name), _) => ServerName::try_from(name.to_owned())
                .map_err(|_| Failure::usage(format!("--api-name {name} is no name"))),
            (None, ApiAddress::Ip(at)) => Ok(ServerName::from(at.ip())),
            (None, ApiAddress::Unix(_)) => Err(Failure::usage(format!(
                "--api-ca: there is no TLS on {at}; take it away"
            ))),
        };
        let config = files.load(&[b"http/1.1"])?;
        Ok(Carrier::Tls(TlsConnector::from(config), name?))
    }
}

impl Client {
    pub fn new(at: ApiAddress) -> Client {
        Client {
            at,
            token: None,
            carrier: Carrier::Plain,
        }
    }

    #[must_use]
    pub fn with(self, token: Option<String>, carrier: Carrier) -> Client {
        Client {
            token,
            carrier,
            ..self
        }
    }

    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask(Method::GET, path, None).await
    }

    /// Returns the document of the answer; null if there is none.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let (status, document) = self.answer(method, path, body).await?;
        match status.is_success() {
            true => Ok(document),
            false => Err(failure(status, &document)),
        }
    }

    /// Returns the answer, whatever its status.
    pub async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), Failure> {
        let asked = timeout(ANSWER_MAX, self.exchange(method, path, body)).await;
        let (status, bytes) = asked.map_err(|_| self.silent())??;
        let document = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).map_err(|_| self.foreign())?,
        };
        Ok((status, document))
    }

    /// Returns the bytes of the answer, whatever they are.
    pub async fn bytes(&self, path: &str) -> Result<Bytes, Failure> {
        let asked = timeout(ANSWER_MAX, self.exchange(Method::GET, path, None)).await;
        let (status, bytes) = asked.map_err(|_| self.silent())??;
        match status.is_success() {
            true => Ok(bytes),
            false => {
                let problem = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                Err(failure(status, &problem))
            }
        }
    }

    /// Passes the lines of an answer to `each` as they arrive, for as long as it wants more.
    pub async fn lines(&self, path: &str, each: impl FnMut(&str) -> bool) -> Result<(), Failure> {
        self.open(path).await?.each(each).await
    }

    /// Sends a request whose answer is a series of lines.
    pub async fn open(&self, path: &str) -> Result<Lines<'_>, Failure> {
        let asked = timeout(ANSWER_MAX, self.begin(Method::GET, path, None)).await;
        let (answer, driven) = asked.map_err(|_| self.silent())??;
        let status = answer.status();
        let body = answer.into_body();
        if !status.is_success() {
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let bytes = body.map_err(|error| self.ended(&error))?.to_bytes();
            let problem = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            return Err(failure(status, &problem));
        }
        Ok(Lines {
            client: self,
            body,
            _driven: driven,
        })
    }

    fn silent(&self) -> Failure {
        Failure::network(format!("the API at {} does not answer", self.at))
    }

    fn ended(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::network(format!(
            "the API at {} ends the connection: {error}",
            self.at
        ))
    }

    fn foreign(&self) -> Failure {
        let at = &self.at;
        Failure::network(format!("what answers at {at} is no API of auster run"))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let (answer, _driven) = self.begin(method, path, body).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let bytes = body.collect().await.map_err(|error| self.ended(&error))?;
        Ok((status, bytes.to_bytes()))
    }

    /// The head of an answer, and its connection.
    async fn begin(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(Response<Incoming>, Driven), Failure> {
        let at = &self.at;
        let absent = |error| {
            Failure::network(format!(
                "nobody serves the API at {at} ({error}); start auster run --api {at}, or say \
                 where it is with --api"
            ))
        };
        let (stream, host): (Box<dyn Duplex>, String) = match at {
            ApiAddress::Ip(at) => {
                let stream = TcpStream::connect(at).await.map_err(absent)?;
                let stream: Box<dyn Duplex> = match &self.carrier {
                    Carrier::Plain => Box::new(stream),
                    Carrier::Tls(connector, name) => {
                        let shaken = connector.connect(name.clone(), stream).await;
                        Box::new(shaken.map_err(|error| self.ended(&error))?)
                    }
                };
                (stream, at.to_string())
            }
            ApiAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(absent)?;
                (Box::new(stream), "localhost".to_owned())
            }
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.ended(&error))?;
        let driven = Driven(tokio::spawn(async {
            let _ = connection.await;
        }));
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let mut request = Request::builder();
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| Failure::usage(format!("{path}: {error}")))?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| self.ended(&error))?;
        Ok((answer, driven))
    }
}

/// An answer of lines, still arriving.
pub struct Lines<'c> {
    client: &'c Client,
    body: Incoming,
    _driven: Driven,
}

impl Lines<'_> {
    /// Passes the lines to `each` as they arrive, for as long as it wants more.
    pub async fn each(mut self, mut each: impl FnMut(&str) -> bool) -> Result<(), Failure> {
        let mut kept = Vec::new();
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| self.client.ended(&error))?;
            kept.extend_from_slice(frame.data_ref().map_or(&[][..], |data| &data[..]));
            let end = kept
                .iter()
                .rposition(|b| *b == b'\n')
                .map_or(0, |end| end + 1);
            let whole: Vec<u8> = kept.drain(..end).collect();
            if kept.len() > LINE_BYTES_MAX {
                return Err(self.client.foreign());
            }
            let lines = String::from_utf8_lossy(&whole);
            if !lines.lines().filter(|line| !line.is_empty()).all(&mut each) {
                break;
            }
        }
        Ok(())
    }
}

/// The task of a connection, which ends with the answer.
struct Driven(JoinHandle<()>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The failure in one line, with every field that is wrong.
fn failure(status: StatusCode, problem: &Value) -> Failure {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let errors = problem["errors"].as_array();
    let told: Vec<String> = errors
        .into_iter()
        .flatten()
        .map(|error| text(&error["detail"]))
        .collect();
    let line = match told.is_empty() {
        true => text(&problem["detail"]),
        false => told.join("; "),
    };
    match status.is_client_error() {
        true => Failure::usage(line),
        false => Failure::negative(line),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_is_one_line_with_every_field() {
        let problem = json!({"detail": "2 fields", "errors": [
            {"pointer": "/a", "detail": "a: no"}, {"pointer": "/b", "detail": "b: no"}
        ]});
        let told = failure(StatusCode::UNPROCESSABLE_ENTITY, &problem);
        assert_eq!(told.message(), "a: no; b: no");
        let told = failure(
            StatusCode::CONFLICT,
            &json!({"detail": "there", "errors": []}),
        );
        assert_eq!(told.message(), "there");
    }
}
