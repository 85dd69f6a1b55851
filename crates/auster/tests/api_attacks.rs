//! Attacks on the API of a real `auster run` whose users have tokens: each is refused or harmless,
//! while the API answers others and its memory stays bounded.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::running::{AUSTER, PATIENCE, Running};

struct Served {
    dir: tempfile::TempDir,
    running: Running,
    at: SocketAddr,
    token: String,
}

fn auster(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(AUSTER).current_dir(dir).args(args).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Served {
    fn new(more: &str) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let add = [
            "api", "token", "add", "ops", "--role", "operate", "--file", "tokens",
        ];
        let token = auster(dir.path(), &add);
        auster(dir.path(), &["pki", "init"]);
        auster(
            dir.path(),
            &["pki", "controller", "api", "--host", "127.0.0.1"],
        );
        let config = format!("[api]\nlisten = \"127.0.0.1:0\"\ntokens = \"tokens\"\n{more}");
        std::fs::write(dir.path().join("net.toml"), config).unwrap();
        let mut command = Command::new(AUSTER);
        command
            .current_dir(dir.path())
            .args(["--log", "info", "run"]);
        command.args(["ptcp:0:127.0.0.1", "--config", "net.toml"]);
        let mut running = Running::spawn(command);
        let line = running.wait_for("API on http");
        let at = line.split("://").nth(1).unwrap();
        let at = at.split('/').next().unwrap().parse().unwrap();
        Served {
            dir,
            running,
            at,
            token,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The status of the answer to these bytes; 0 if the connection ends without one.
    fn send(&self, bytes: &[u8]) -> u16 {
        let mut stream = self.connect();
        // The server may refuse and close while we write.
        let _ = stream.write_all(bytes);
        status(&mut stream)
    }

    /// A request with a good token and these further lines.
    fn ask(&self, line: &str, headers: &str) -> u16 {
        let token = &self.token;
        self.send(
            format!(
                "{line} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
                 {headers}\r\n"
            )
            .as_bytes(),
        )
    }

    /// Asks as any client would, and prints how long that took.
    fn answers(&mut self, during: &str) {
        let scheme = if self.dir.path().join("is_tls").exists() {
            "https"
        } else {
            "http"
        };
        let url = format!("{scheme}://{}/openapi.json", self.at);
        let began = Instant::now();
        let ca = self.dir.path().join("pki/controllerca/cacert.pem");
        let output = Command::new("curl")
            .args([
                "-s",
                "--retry",
                "5",
                "--retry-all-errors",
                "--max-time",
                "60",
            ])
            .args([
                "-o",
                "/dev/null",
                "-w",
                "%{http_code} %{time_total}",
                "--cacert",
            ])
            .arg(ca)
            .arg(&url)
            .output()
            .unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.starts_with("200"), "{during}: {told}");
        println!("{during}: answered within {:?} ({told})", began.elapsed());
        assert!(self.running.is_running(), "{during}");
    }
}

/// The status of an answer; 0 if the connection ends without one.
fn status(stream: &mut TcpStream) -> u16 {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while bytes.len() < 12 {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return 0,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    text.split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0)
}

#[test]
fn other_pages_and_other_names_change_nothing_with_a_good_token() {
    let served = Served::new("");
    let at = served.at;
    let host = format!("Host: {at}\r\n");
    let delete = "DELETE /v1/services/x";
    assert_eq!(served.ask(delete, &host), 404);
    for (headers, what) in [
        (
            format!("{host}Origin: http://evil.example\r\n"),
            "a page of another origin",
        ),
        (
            format!("{host}Origin: http://127.0.0.1:1\r\n"),
            "another port of this machine",
        ),
        (format!("{host}Origin: null\r\n"), "a page in a sandbox"),
        ("Host: evil.example\r\n".to_owned(), "a foreign name"),
        (
            "Host: evil.example\r\nOrigin: http://evil.example\r\n".to_owned(),
            "a name that was pointed here",
        ),
        (format!("{host}Host: evil.example\r\n"), "two names"),
    ] {
        let found = served.ask(delete, &headers);
        assert!([400, 403].contains(&found), "{what}: {found}");
    }
    let found = served.ask("GET /v1/switches", "Host: evil.example\r\n");
    assert_eq!(found, 403, "rebinding reads nothing either");
    // A name in the target instead of the header.
    let found = served.ask("GET http://evil.example/v1/switches", &host);
    assert_eq!(found, 403);
    for line in [
        "GET /V1/switches",
        "GET //v1/switches",
        "GET /%76%31/switches",
        "BREW /v1/x",
    ] {
        let found = served.ask(line, &host);
        assert!([404, 405].contains(&found), "{line}: {found}");
    }
    for line in [
        "GET /assets/../v1/switches",
        "GET /assets/..%2fv1/switches",
        "GET /;/v1/x",
    ] {
        let bytes = format!("{line} HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        let found = served.send(bytes.as_bytes());
        assert!([400, 401, 404].contains(&found), "{line}: {found}");
    }
}

#[test]
fn what_is_too_large_is_refused_and_not_kept() {
    let mut served = Served::new("");
    let before = served.running.memory();
    let host = format!("Host: {}\r\n", served.at);
    let long = "x".repeat(300 << 10);
    let found = served.ask("GET /v1/switches", &format!("{host}X: {long}\r\n"));
    assert!([0, 400, 431].contains(&found), "a long header: {found}");
    let many = "X: y\r\n".repeat(10_000);
    let found = served.ask("GET /v1/switches", &format!("{host}{many}"));
    assert!([0, 400, 431].contains(&found), "many headers: {found}");
    let found = served.ask(&format!("GET /{long}"), &host);
    assert!(
        [0, 400, 404, 414, 431].contains(&found),
        "a long path: {found}"
    );
    let huge = format!("{host}Content-Length: 1000000000000\r\n");
    let body = vec![b'1'; 4 << 20];
    let put = |length: &str, token: &str, body: &[u8]| {
        let head = format!(
            "PUT /v1/services/x HTTP/1.1\r\n{host}Authorization: Bearer {token}\r\n{length}\r\n\r\n"
        );
        served.send(&[head.as_bytes(), body].concat())
    };
    assert_eq!(
        put("Content-Length: 1000000000000", &served.token, &body),
        413
    );
    let chunked = [&b"400000\r\n"[..], &body].concat();
    assert_eq!(
        put("Transfer-Encoding: chunked", &served.token, &chunked),
        413
    );
    let nobody = put("Content-Length: 1000000000000", "auster-0", &body);
    assert!(
        [0, 401].contains(&nobody),
        "without a token nothing is read: {nobody}"
    );
    let both = "Content-Length: 3\r\nTransfer-Encoding: chunked";
    let both = put(
        both,
        &served.token,
        b"0\r\n\r\nGET /v1/switches HTTP/1.1\r\n\r\n",
    );
    assert!(both >= 400 || both == 0, "two lengths: {both}");
    let found = served.ask(
        "PUT /v1/services/x",
        &format!("{huge}Expect: 100-continue\r\n"),
    );
    assert!([100, 400, 413].contains(&found), "{found}");
    served.answers("after what is too large");
    let grown = served.running.memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown}");
}

/// The connections are from this machine, to which no limit per source applies.
#[test]
fn slow_and_idle_connections_keep_nobody_out() {
    let mut served = Served::new("");
    let host = format!("Host: {}\r\n", served.at);
    let idle: Vec<TcpStream> = (0..64).map(|_| served.connect()).collect();
    served.answers("64 idle sockets");
    let slow_heads: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut stream = served.connect();
            let _ = stream.write_all(b"GET /v1/switches HTTP/1.1\r\nX: ");
            stream
        })
        .collect();
    served.answers("64 slow heads");
    let body = |token: &str| {
        let mut stream = served.connect();
        let head = format!(
            "PUT /v1/services/x HTTP/1.1\r\n{host}Authorization: Bearer {token}\r\n\
             Content-Length: 1000\r\n\r\n{{"
        );
        let _ = stream.write_all(head.as_bytes());
        stream
    };
    let strangers: Vec<TcpStream> = (0..64).map(|_| body("auster-0")).collect();
    let users: Vec<TcpStream> = (0..32).map(|_| body(&served.token)).collect();
    served.answers("64 slow bodies of strangers, 32 of users");
    for mut stranger in strangers {
        let found = status(&mut stranger);
        assert!(
            [0, 401, 429].contains(&found),
            "answered without its body: {found}"
        );
    }
    for mut user in users {
        let found = status(&mut user);
        assert!(
            [0, 408, 503].contains(&found),
            "a body that does not come ends: {found}"
        );
    }
    drop((idle, slow_heads));
}

#[test]
fn garbage_instead_of_tls_ends_its_connection() {
    let tls = "tls = { private_key = \"api-privkey.pem\", certificate = \"api-cert.pem\" }";
    let mut served = Served::new(tls);
    std::fs::write(served.dir.path().join("is_tls"), "").unwrap();
    let mut garbage: Vec<Vec<u8>> = vec![
        b"GET /v1/switches HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0; 1 << 16],
        vec![0xff; 1 << 16],
        // A handshake record that announces 16 KiB, and one that is longer than any may be.
        b"\x16\x03\x01\x40\x00\x01".to_vec(),
        b"\x16\x03\x01\xff\xff\x01\x00\xff\xff".to_vec(),
        b"\x80\x2e\x01\x00\x02".to_vec(),
    ];
    let mut random = clock::SplitMix64::new(19);
    for _ in 0..50 {
        let mut bytes = b"\x16\x03\x01".to_vec();
        bytes.extend((0..200).map(|_| random.next().to_le_bytes()[0]));
        garbage.push(bytes);
    }
    for bytes in &garbage {
        let mut stream = served.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        // The answer to an HTTP request says that it should be HTTPS.
        let is_http = bytes.starts_with(b"GET ");
        assert_eq!(answer.starts_with(b"HTTP/1.1 400 "), is_http, "{bytes:?}");
        assert_eq!(answer.starts_with(b"HTTP"), is_http, "{bytes:?}");
    }
    served.answers("after garbage");
    let silent: Vec<TcpStream> = (0..64).map(|_| served.connect()).collect();
    served.answers("64 handshakes that do not begin");
    // These connections are closed without an answer.
    let deadline = Instant::now() + PATIENCE;
    for mut stream in silent {
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = left.max(Duration::from_millis(1));
        stream.set_read_timeout(Some(wait)).unwrap();
        assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)));
    }
    served.answers("after that");
}
