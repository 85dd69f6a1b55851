//! Users of the API of a real `auster run`: tokens, certificates and users of a socket, with curl
//! as the client.

mod common;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::running::{AUSTER, PATIENCE, Running};
use serde_json::{Value, json};
use tempfile::TempDir;

/// An `auster run` with a configuration in a folder of its own.
struct Served {
    dir: TempDir,
    running: Running,
    at: SocketAddr,
}

fn auster(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(AUSTER);
    command.current_dir(dir).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Makes a token, and returns a file with that token alone.
fn add(dir: &Path, name: &str, role: &str) -> PathBuf {
    let args = [
        "api", "token", "add", name, "--role", role, "--file", "tokens",
    ];
    let output = auster(dir, &args);
    assert!(output.status.success(), "{output:?}");
    let file = dir.join(format!("{name}.token"));
    fs::write(&file, &output.stdout).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

fn token(dir: &Path, name: &str) -> String {
    let text = fs::read_to_string(dir.join(format!("{name}.token"))).unwrap();
    text.trim().to_owned()
}

fn start(dir: &Path, config: &str) -> Running {
    fs::write(dir.join("net.toml"), config).unwrap();
    let mut command = Command::new(AUSTER);
    command.current_dir(dir).args(["--log", "info", "run"]);
    command.args(["ptcp:0:127.0.0.1", "--config", "net.toml"]);
    Running::spawn(command)
}

/// The output of a run that does not start. A run that starts is ended.
fn not_started(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command
        .current_dir(dir)
        .args(["60", AUSTER, "run", "ptcp:0:127.0.0.1"]);
    let output = command.args(args).output().unwrap();
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| code != 0 && code != 124),
        "{output:?}"
    );
    output
}

/// The failure of a run with a configuration.
fn refused(dir: &Path, config: &str) -> String {
    fs::write(dir.join("net.toml"), config).unwrap();
    text(&not_started(dir, &["--config", "net.toml"]).stderr)
}

impl Served {
    fn new(dir: TempDir, config: &str) -> Served {
        let mut running = start(dir.path(), config);
        let line = running.wait_for("API on http");
        let at = line.split("://").nth(1).unwrap();
        let at = at.split('/').next().unwrap().parse().unwrap();
        Served { dir, running, at }
    }

    fn with_tokens(more: &str) -> Served {
        let dir = tempfile::tempdir().unwrap();
        for (name, role) in [("eve", "read"), ("ops", "operate"), ("root", "admin")] {
            add(dir.path(), name, role);
        }
        let config = format!("[api]\nlisten = \"127.0.0.1:0\"\ntokens = \"tokens\"\n{more}");
        Served::new(dir, &config)
    }

    /// The status of the answer, and its headers and body.
    fn curl(&self, args: &[&str]) -> (u16, String) {
        let mut command = Command::new("curl");
        command.current_dir(self.dir.path());
        command.args(["-s", "-i", "--max-time", "60", "-w", "\n%{http_code}"]);
        let output = command.args(args).output().unwrap();
        let told = text(&output.stdout);
        let (told, status) = told.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), told.to_owned())
    }

    fn ask(&self, who: Option<&str>, method: &str, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.at);
        let mut args = vec!["-X", method, &url];
        let header;
        if let Some(who) = who {
            header = format!("Authorization: Bearer {}", token(self.dir.path(), who));
            args.extend(["-H", &header]);
        }
        if matches!(method, "PUT" | "POST") {
            args.extend(["-d", r#"{"proto": "udp"}"#]);
        }
        self.curl(&args)
    }

    fn status(&self, who: Option<&str>, method: &str, path: &str) -> u16 {
        self.ask(who, method, path).0
    }

    fn hang_up(&self) {
        let pid = self.running.child.id().to_string();
        common::run("kill", &["-HUP", &pid]);
    }

    /// The audit line about a path that begins with `path`, once it is written.
    fn line_of(&self, path: &str) -> Value {
        let is_it = |line: &&Value| line["path"].as_str().unwrap().starts_with(path);
        for count in 1.. {
            let lines = self.audit(count);
            if let Some(line) = lines.iter().find(is_it) {
                return line.clone();
            }
        }
        unreachable!("it waits for ever more lines")
    }

    /// The audit lines, once there are at least `count`. A separate thread writes them.
    fn audit(&self, count: usize) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(self.dir.path().join("audit.jsonl")).unwrap();
            if text.lines().count() >= count && text.ends_with('\n') {
                return text
                    .lines()
                    .map(|line| serde_json::from_str(line).unwrap())
                    .collect();
            }
            assert!(Instant::now() < deadline, "{text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_role_may_do_what_it_says_and_nothing_more() {
    let served = Served::with_tokens("");
    let service = "/v1/services/voice";
    for (who, method, path, expected) in [
        (None, "GET", "/openapi.json", 200),
        (None, "GET", "/v1/switches", 401),
        (None, "GET", "/metrics", 401),
        (None, "GET", "/stats/switches", 401),
        (None, "GET", "/qos/rules/all", 401),
        (None, "GET", "/nothing", 401),
        (None, "PUT", service, 401),
        (Some("eve"), "GET", "/v1/switches", 200),
        (Some("eve"), "HEAD", "/v1/switches", 200),
        (Some("eve"), "GET", "/metrics", 200),
        (Some("eve"), "POST", "/stats/flow/1", 404),
        (Some("eve"), "POST", "/stats/flowentry/add", 403),
        (Some("eve"), "POST", "/stats/flowentry/delete", 403),
        (Some("eve"), "DELETE", "/stats/flowentry/clear/1", 403),
        (Some("eve"), "PATCH", "/v1/flows/ann", 403),
        (Some("eve"), "DELETE", "/v1/flows/ann/detour", 403),
        (Some("eve"), "PUT", service, 403),
        (Some("eve"), "DELETE", service, 403),
        (Some("eve"), "GET", "/v1/taps", 200),
        (Some("eve"), "GET", "/v1/taps/lesson/packets", 403),
        (Some("eve"), "POST", "/v1/packets", 403),
        (Some("ops"), "GET", "/v1/taps/lesson/packets", 404),
        (Some("ops"), "PUT", service, 201),
        (Some("ops"), "DELETE", service, 204),
        (Some("ops"), "POST", "/v1/reload", 403),
        (Some("root"), "GET", "/v1/switches", 200),
        (Some("root"), "PUT", service, 201),
        (Some("root"), "POST", "/v1/reload", 200),
    ] {
        let args = if method == "HEAD" {
            ("GET", true)
        } else {
            (method, false)
        };
        let found = match args {
            (method, false) => served.status(who, method, path),
            _ => {
                let header = format!("Authorization: Bearer {}", token(served.dir.path(), "eve"));
                let url = format!("http://{}{path}", served.at);
                served.curl(&["-I", "-H", &header, &url]).0
            }
        };
        assert_eq!(found, expected, "{who:?} {method} {path}");
    }
    let (_, told) = served.ask(None, "GET", "/v1/switches");
    assert!(told.contains("www-authenticate: Bearer"), "{told}");
    let (_, told) = served.ask(Some("eve"), "PUT", service);
    assert!(
        told.contains("this takes the role operate; token eve has read"),
        "{told}"
    );
    let (_, told) = served.ask(Some("ops"), "GET", "/v1/access");
    assert!(
        told.ends_with(r#"{"kind":"token","name":"ops","role":"operate"}"#),
        "{told}"
    );
}

/// Each path of the document, without a token and with a wrong one.
#[test]
fn no_path_of_the_document_is_forgotten() {
    let served = Served::with_tokens("");
    let (_, document) = served.ask(None, "GET", "/openapi.json");
    let document = &document[document.find("\r\n\r\n").unwrap()..];
    let document: Value = serde_json::from_str(document).unwrap();
    let mut asked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.replace(['{', '}'], "");
        for (method, operation) in item.as_object().unwrap() {
            let is_public = operation["security"] == json!([]);
            assert_eq!(
                is_public,
                ["/healthz", "/readyz"].contains(&&*path),
                "{path}"
            );
            if is_public {
                continue;
            }
            let method = method.to_uppercase();
            assert_eq!(served.status(None, &method, &path), 401, "{method} {path}");
            let url = format!("http://{}{path}", served.at);
            let wrong = "Authorization: Bearer auster-0";
            let (status, _) = served.curl(&["-X", &method, "-H", wrong, &url]);
            assert!([401, 429].contains(&status), "{method} {path}: {status}");
            asked += 1;
        }
    }
    assert!(asked >= 28, "{asked}");
}

/// A client that guesses is slowed down. It keeps out no client with a token and the same address.
#[test]
fn wrong_tokens_are_counted_and_limited() {
    let served = Served::with_tokens("");
    let url = format!("http://{}/v1/switches", served.at);
    let guess = |header: &str| served.curl(&["-H", header, &url]).0;
    for header in ["Bearer", "Bearer ", "Basic ZXZlOng=", "Bearer x y"] {
        assert_eq!(guess(&format!("Authorization: {header}")), 401, "{header}");
    }
    let (wrong, mut limited) = ("Authorization: Bearer auster-0", 0);
    for _ in 0..60 {
        limited += u32::from(guess(wrong) == 429);
    }
    assert!(limited > 0);
    assert_eq!(served.status(Some("eve"), "GET", "/v1/switches"), 200);
    let two = format!("Authorization: Bearer {}", token(served.dir.path(), "eve"));
    let both = served.curl(&["-H", &two, "-H", wrong, &url]).0;
    assert!([401, 429].contains(&both), "{both}");
    let (_, told) = served.ask(Some("eve"), "GET", "/metrics");
    let count = |reason: &str| {
        let name = format!("auster_api_requests_refused_total{{reason=\"{reason}\"}} ");
        let line = told.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("{told}"))
            .parse::<u32>()
            .unwrap()
    };
    assert_eq!(count("limited") + count("wrong"), 65);
    assert!(count("limited") >= limited);
}

#[test]
fn tokens_are_reloaded_and_mistakes_leave_the_old_ones() {
    let mut served = Served::with_tokens("");
    let new = add(served.dir.path(), "new", "read");
    assert!(new.exists());
    assert_eq!(served.status(Some("new"), "GET", "/v1/switches"), 401);
    served.hang_up();
    served.running.wait_for("in use: 4");
    assert_eq!(served.status(Some("new"), "GET", "/v1/switches"), 200);
    let remove = ["api", "token", "remove", "new", "--file", "tokens"];
    assert!(auster(served.dir.path(), &remove).status.success());
    let tokens = served.dir.path().join("tokens");
    let good = fs::read_to_string(&tokens).unwrap();
    fs::write(&tokens, format!("{good}bad\n{good}")).unwrap();
    served.hang_up();
    let line = served.running.wait_for("refused, all in use stays");
    assert_eq!(
        line.matches("tokens:").count(),
        4,
        "all mistakes at once: {line}"
    );
    assert_eq!(served.status(Some("new"), "GET", "/v1/switches"), 200);
    fs::write(&tokens, good).unwrap();
    served.hang_up();
    served.running.wait_for("in use: 3");
    assert_eq!(served.status(Some("new"), "GET", "/v1/switches"), 401);
    let list = auster(
        served.dir.path(),
        &["api", "token", "list", "--file", "tokens"],
    );
    let list = text(&list.stdout);
    assert!(list.contains("ops") && !list.contains("new"), "{list}");
}

/// The API serves no client of another machine without authentication, and reports all mistakes at
/// once.
#[test]
fn what_is_open_or_wrong_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let told = refused(dir.path(), "api = \"0.0.0.0:0\"");
    assert!(told.contains("auster api token add"), "{told}");
    let output = not_started(dir.path(), &["--api", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    add(dir.path(), "eve", "read");
    let tokens = dir.path().join("tokens");
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o644)).unwrap();
    let config = "[api]\nlisten = \"0.0.0.0:0\"\ntokens = \"tokens\"\naudit = \"no/audit\"\n\
                  tls = { private_key = \"key\", certificate = \"cert\" }";
    let told = refused(dir.path(), config);
    for part in ["chmod 600", "key: ", "cert: ", "no/audit: "] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn certificates_have_roles_and_tls_is_reloaded() {
    let dir = tempfile::tempdir().unwrap();
    let pki = |args: &[&str]| {
        let output = auster(dir.path(), &[&["pki"], args].concat());
        assert!(output.status.success(), "{output:?}");
    };
    pki(&["init"]);
    pki(&["controller", "api", "--host", "127.0.0.1"]);
    pki(&["operator", "alice", "--role", "operate"]);
    pki(&["operator", "bob", "--role", "read"]);
    pki(&["switch", "s1"]);
    let shown = auster(dir.path(), &["pki", "show", "alice-cert.pem"]);
    assert!(
        text(&shown.stdout).contains("operator of the API"),
        "{shown:?}"
    );
    // The CA file of the operators also covers a switch's certificate.
    let ca = fs::read_to_string(dir.path().join("pki/operatorca/cacert.pem")).unwrap();
    let of_switches = fs::read_to_string(dir.path().join("pki/switchca/cacert.pem")).unwrap();
    fs::write(dir.path().join("both.pem"), ca + &of_switches).unwrap();
    add(dir.path(), "eve", "read");
    let config = "[api]\nlisten = \"127.0.0.1:0\"\ntokens = \"tokens\"\naudit = \"audit.jsonl\"\n\
                  [api.tls]\nprivate_key = \"api-privkey.pem\"\ncertificate = \"api-cert.pem\"\n\
                  ca = \"both.pem\"";
    let mut served = Served::new(dir, config);
    let ask = |served: &Served, who: Option<&str>, method: &str| {
        let url = format!("https://{}/v1/services/voice", served.at);
        let (cert, key) = (who.map(|who| format!("{who}-cert.pem")), who);
        let key = key.map(|who| format!("{who}-privkey.pem"));
        let mut args = vec![
            "--cacert",
            "pki/controllerca/cacert.pem",
            "-X",
            method,
            &url,
        ];
        if let (Some(cert), Some(key)) = (&cert, &key) {
            args.extend(["--cert", cert, "--key", key]);
        }
        if method == "PUT" {
            args.extend(["-d", r#"{"proto": "udp"}"#]);
        }
        served.curl(&args)
    };
    assert_eq!(ask(&served, None, "GET").0, 401);
    assert_eq!(ask(&served, Some("bob"), "PUT").0, 403);
    assert_eq!(ask(&served, Some("alice"), "PUT").0, 201);
    assert_eq!(ask(&served, Some("bob"), "GET").0, 200);
    let (status, told) = ask(&served, Some("s1"), "GET");
    assert!(
        status == 403 && told.contains("names no role here"),
        "{told}"
    );
    let (status, _) = ask(&served, Some("api"), "GET");
    assert_eq!(status, 0, "its CA is none of ours, so the handshake fails");
    let plain = format!("http://{}/openapi.json", served.at);
    let (status, told) = served.curl(&[&plain]);
    assert!(
        status == 400 && told.contains("ask for https://"),
        "no HTTP without TLS: {status} {told}"
    );
    let by_alice = json!({"kind": "certificate", "name": "alice", "role": "operate"});
    assert!(
        served
            .audit(2)
            .iter()
            .any(|line| line["who"] == by_alice && line["status"] == 201)
    );
    // The CLI, by a token and by a certificate; it compares the name.
    let at = served.at.to_string();
    let show = ["qos", "show", "--json", "--api", &at];
    let cli = |more: &[&str]| auster(served.dir.path(), &[&show, more].concat());
    let with_ca = ["--api-ca", "pki/controllerca/cacert.pem"];
    assert!(
        cli(&[&with_ca[..], &["--token-file", "eve.token"]].concat())
            .status
            .success()
    );
    let bob = ["--api-cert", "bob-cert.pem", "--api-key", "bob-privkey.pem"];
    assert!(cli(&[&with_ca[..], &bob].concat()).status.success());
    let told = cli(&with_ca);
    assert!(text(&told.stderr).contains("send a token"), "{told:?}");
    let other = [&with_ca[..], &["--api-name", "other.example"]].concat();
    let told = cli(&other);
    assert!(!told.status.success() && text(&told.stderr).contains("ends the connection"));
    // New files: the API trusts only the switches' CA from now on.
    fs::write(served.dir.path().join("both.pem"), of_switches).unwrap();
    served.hang_up();
    served.running.wait_for("certificate api-cert.pem in use");
    assert_eq!(ask(&served, Some("alice"), "GET").0, 0);
    assert_eq!(ask(&served, Some("s1"), "GET").0, 403);
}

/// Root and the user of auster itself are administrators of the socket; others need a token.
#[test]
fn a_socket_knows_its_users() {
    let dir = tempfile::tempdir().unwrap();
    add(dir.path(), "eve", "read");
    let config = "[api]\nlisten = [\"127.0.0.1:0\", \"unix:api.sock\"]\ntokens = \"tokens\"\n\
                  audit = \"audit.jsonl\"";
    let mut served = Served::new(dir, config);
    served.running.wait_for("API on unix:");
    let socket = served.dir.path().join("api.sock");
    let socket = socket.to_str().unwrap();
    let url = "http://localhost/v1/services/voice";
    let put = ["-X", "PUT", "-d", "{}", "--unix-socket", socket, url];
    assert_eq!(served.curl(&put).0, 201);
    let who = &served.audit(1)[0]["who"];
    assert_eq!(
        (&who["kind"], &who["role"]),
        (&json!("uid"), &json!("admin"))
    );
    // The operator opens the socket to others.
    for (path, mode) in [(served.dir.path(), 0o755), (Path::new(socket), 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let nobody = |header: &str| {
        let args = [
            "-u",
            "65534",
            "-r",
            "65534",
            "--",
            "curl",
            "-s",
            "-o",
            "/dev/null",
        ];
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "--",
        ]);
        command
            .args(&args[5..])
            .args(["-w", "%{http_code}", "-H", header]);
        command.args(["--unix-socket", socket, url]);
        text(&command.output().unwrap().stdout)
    };
    assert_eq!(nobody("X: y"), "401");
    let eve = format!("Authorization: Bearer {}", token(served.dir.path(), "eve"));
    assert_eq!(nobody(&eve), "200");
}

#[test]
fn each_change_has_a_line_also_a_refused_one() {
    let mut served = Served::with_tokens("audit = \"audit.jsonl\"");
    let service = "/v1/services/voice";
    served.ask(Some("ops"), "PUT", service);
    served.ask(Some("eve"), "DELETE", service);
    served.ask(None, "DELETE", service);
    served.ask(Some("ops"), "GET", service);
    served.ask(Some("ops"), "PUT", "/v1/services/bad%20name");
    let lines = served.audit(4);
    let said: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                &line["who"]["name"],
                &line["method"],
                &line["status"],
                &line["result"],
            )
        })
        .collect();
    let expected = [
        (json!("ops"), "PUT", 201, "done"),
        (json!("eve"), "DELETE", 403, "refused"),
        (Value::Null, "DELETE", 401, "refused"),
        (json!("ops"), "PUT", 404, "refused"),
    ];
    assert_eq!(said.len(), expected.len(), "{lines:#?}");
    for (said, (name, method, status, result)) in said.iter().zip(expected) {
        let is_it = *said.0 == name && *said.1 == method && *said.2 == status;
        assert!(is_it && *said.3 == result, "{lines:#?}");
    }
    assert_eq!(lines[0]["what"], r#"{"proto": "udp"}"#);
    assert_eq!(lines[0]["path"], service);
    assert!(lines[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"));
    let file = served.dir.path().join("audit.jsonl");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    // Rotation: the old file keeps its lines, and the next lines go to the new file.
    fs::rename(&file, served.dir.path().join("old")).unwrap();
    served.hang_up();
    served.running.wait_for("reload of net.toml: changed 0");
    served.ask(Some("ops"), "DELETE", service);
    let lines = served.audit(1);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["status"], 204);
    // A client that leaves without waiting for the answer changes nothing without an audit line.
    let ops = token(served.dir.path(), "ops");
    for number in 0..20 {
        let request = format!(
            "PUT /v1/services/hasty-{number} HTTP/1.1\r\nHost: {}\r\n\
             Authorization: Bearer {ops}\r\nContent-Length: 2\r\n\r\n{{}}",
            served.at
        );
        let mut stream = TcpStream::connect(served.at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
    }
    let (_, services) = served.ask(Some("ops"), "GET", "/v1/services");
    for number in (0..20).filter(|number| services.contains(&format!("\"hasty-{number}\""))) {
        served.line_of(&format!("/v1/services/hasty-{number}"));
    }
    // A long body and a long path are cut.
    let url = format!("http://{}{service}?{}", served.at, "x".repeat(5000));
    let header = format!("Authorization: Bearer {}", token(served.dir.path(), "ops"));
    fs::write(served.dir.path().join("body"), vec![b'1'; 100_000]).unwrap();
    served.curl(&["-X", "PUT", "-H", &header, "-d", "@body", &url]);
    let line = served.line_of(&format!("{service}?x"));
    assert_eq!(line["bytes"], 100_000);
    assert_eq!(line["what"].as_str().unwrap().len(), 2048);
    assert!(line["path"].as_str().unwrap().len() <= 512);
}
