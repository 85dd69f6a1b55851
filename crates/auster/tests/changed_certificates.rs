//! Certificates, CAs and revocation lists whose files change while auster runs. Nobody sends a
//! signal, connections stay, and connections of revoked peers end.

mod common;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::running::{AUSTER, PATIENCE, Running};
use net::method::Method;
use net::tls::{ClientFiles, CredentialFiles, Role, Security};
use net::transport::{Connection, connect};
use rustls_pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

/// A PKI with all authorities, controller `c`, switches `s1` and `s2`, and operator `o`.
struct Pki(TempDir);

impl Pki {
    fn new() -> Pki {
        let pki = Pki(tempfile::tempdir().unwrap());
        for words in [
            &["init"][..],
            &["controller", "c", "--host", "127.0.0.1"],
            &["switch", "s1"],
            &["switch", "s2"],
            &["operator", "o", "--role", "admin"],
        ] {
            let mut command = Command::new(AUSTER);
            let output = command.arg("pki").args(words).current_dir(&pki.0).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
        }
        pki
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn files(&self, name: &str, ca: &str) -> CredentialFiles {
        CredentialFiles {
            private_key: self.path(&format!("{name}-privkey.pem")),
            certificate: self.path(&format!("{name}-cert.pem")),
            ca: self.path(&format!("pki/{ca}/cacert.pem")),
            crl: None,
        }
    }

    fn controller(&self) -> CredentialFiles {
        self.files("c", "switchca")
    }

    fn dialler(&self, switch: &str) -> Security {
        let files = self.files(switch, "controllerca");
        Security::new(Arc::new(files.load().unwrap())).expecting(Role::Controller)
    }

    /// Writes a list of `ca`, with the certificate of `name` in it if one is given, as a whole.
    fn revoke(&self, ca: &str, name: Option<&str>) -> PathBuf {
        let dir = self.path(&format!("pki/{ca}"));
        let config = "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\n\
                      crlnumber = crlnumber\ndefault_md = sha256\ndefault_crl_days = 30\n";
        if !dir.join("index.txt").exists() {
            fs::write(dir.join("index.txt"), "").unwrap();
            fs::write(dir.join("crlnumber"), "01\n").unwrap();
            fs::write(dir.join("crl.cnf"), config).unwrap();
        }
        let openssl = |words: &[&str]| {
            let mut command = Command::new("openssl");
            command.args(["ca", "-config", "crl.cnf", "-cert", "cacert.pem"]);
            command.args(["-keyfile", "private/cakey.pem"]).args(words);
            let output = command.current_dir(&dir).output().unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
        };
        if let Some(name) = name {
            let file = self.path(&format!("{name}-cert.pem"));
            openssl(&["-revoke", file.to_str().unwrap()]);
        }
        openssl(&["-gencrl", "-out", "crl.new"]);
        fs::rename(dir.join("crl.new"), dir.join("crl.pem")).unwrap();
        dir.join("crl.pem")
    }
}

fn flags(files: &CredentialFiles) -> Vec<String> {
    let text = |path: &Path| path.display().to_string();
    let own = ["-p".to_owned(), text(&files.private_key)];
    let certificate = ["-c".to_owned(), text(&files.certificate)];
    let ca = ["-C".to_owned(), text(&files.ca)];
    [own, certificate, ca].concat()
}

/// Puts the contents of the files of `from` in the place of those of `to`, each as a whole.
fn copy(from: &CredentialFiles, to: &CredentialFiles) {
    for (from, to) in [
        (&from.private_key, &to.private_key),
        (&from.certificate, &to.certificate),
        (&from.ca, &to.ca),
    ] {
        let new = to.with_extension("new");
        fs::copy(from, &new).unwrap();
        fs::rename(new, to).unwrap();
    }
}

fn start(words: &[&str], files: &CredentialFiles) -> Running {
    let flags = flags(files);
    let words: Vec<&str> = words
        .iter()
        .copied()
        .chain(flags.iter().map(|f| &**f))
        .collect();
    Running::start(&words)
}

fn dial_method(line: &str, kind: &str) -> Method {
    let mut words = line.split(' ');
    let method = words.find_map(|word| word.strip_prefix(&format!("p{kind}:")));
    let (port, host) = method.unwrap().split_once(':').unwrap();
    format!("{kind}:{host}:{port}").parse().unwrap()
}

/// A connection whose other end has sent HELLO; `None` if the handshake fails.
async fn greeted(method: &Method, security: &Security) -> Option<Connection> {
    let mut connection = connect(method, security).await.ok()?;
    let hello = [4, 0, 0, 8, 0, 0, 0, 1];
    connection.writer.write_all(&hello).await.ok()?;
    connection.writer.flush().await.ok()?;
    connection.reader.read_exact(&mut [0; 8]).await.ok()?;
    Some(connection)
}

/// Reads until the other end closes the connection.
async fn is_closed(connection: &mut Connection) -> bool {
    let end = async {
        let mut bytes = [0; 1024];
        while matches!(connection.reader.read(&mut bytes).await, Ok(1..)) {}
    };
    timeout(PATIENCE, end).await.is_ok()
}

/// Switches answer nothing here, and a controller waits ten minutes for them.
const PATIENT: &str = "[session]\nfeatures_timeout_ms = 600000\necho_interval_ms = 600000\n";

fn patient(pki: &Pki) -> String {
    let path = pki.path("net.toml");
    fs::write(&path, PATIENT).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn new_certificates_are_used_without_a_signal_and_connections_stay() {
    for kind in ["ssl", "quic"] {
        let (old, new) = (Pki::new(), Pki::new());
        let given = old.controller();
        let mut run = start(&["run", &format!("p{kind}:0:127.0.0.1")], &given);
        let method = dial_method(&run.wait_for("listening on "), kind);
        let dialler = old.dialler("s1");
        assert!(greeted(&method, &dialler).await.is_some(), "{kind}");

        // The file is half written: one line reports that, and the certificate in use stays.
        let certificate = fs::read(&given.certificate).unwrap();
        fs::write(&given.certificate, &certificate[..certificate.len() / 2]).unwrap();
        let line = run.wait_for("refused, the one in use stays");
        assert!(line.contains("c-cert.pem: "), "{line}");
        assert!(greeted(&method, &dialler).await.is_some(), "{kind}: still");
        sleep(Duration::from_secs(4)).await;
        copy(&new.controller(), &given);
        run.wait_for("c-cert.pem in use");
        let refusals = run
            .log
            .iter()
            .filter(|line| line.contains("the one in use stays"));
        assert_eq!(refusals.count(), 1, "{:?}", run.log);
        let newer = new.dialler("s1");
        assert!(
            greeted(&method, &newer).await.is_some(),
            "{kind}: the new one"
        );
        assert!(
            greeted(&method, &dialler).await.is_none(),
            "{kind}: the old one"
        );
    }
}

#[tokio::test]
async fn a_relay_uses_new_certificates_without_a_signal() {
    let (old, new) = (Pki::new(), Pki::new());
    let config = patient(&old);
    let mut run = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", &config]);
    let target = dial_method(&run.wait_for("listening on "), "tcp").to_string();
    let given = old.controller();
    let words = [
        "relay",
        "controller",
        "--listen",
        "pssl:0:127.0.0.1",
        "--openflow",
        &target,
    ];
    let mut relay = start(&words, &given);
    let method = dial_method(&relay.wait_for("listening "), "ssl");
    let mut before = greeted(&method, &old.dialler("s1")).await.expect("let in");
    copy(&new.controller(), &given);
    relay.wait_for("c-cert.pem in use");
    assert!(greeted(&method, &new.dialler("s1")).await.is_some());
    assert!(greeted(&method, &old.dialler("s1")).await.is_none());
    // The connection from before carries on: its echo is answered.
    let echo = [4, 2, 0, 8, 0, 0, 0, 77];
    before.writer.write_all(&echo).await.unwrap();
    before.writer.flush().await.unwrap();
    let answer = async {
        let mut head = [0; 8];
        loop {
            before.reader.read_exact(&mut head).await.unwrap();
            if head == [4, 3, 0, 8, 0, 0, 0, 77] {
                return;
            }
            let rest = usize::from(u16::from_be_bytes([head[2], head[3]])) - 8;
            before.reader.read_exact(&mut vec![0; rest]).await.unwrap();
        }
    };
    timeout(PATIENCE, answer).await.expect("it is answered");
}

/// The members of a cluster reach etcd and each other by the same files, with another CA.
#[tokio::test]
async fn a_member_of_a_cluster_uses_new_certificates_without_a_signal() {
    let (old, new) = (Pki::new(), Pki::new());
    let given = old.controller();
    let ca = old.path("pki/controllerca/cacert.pem");
    let config = old.path("net.toml");
    let text = format!(
        "[cluster]\netcd = [\"https://127.0.0.1:9\"]\nname = \"c\"\nlisten = \
         \"pssl:0:127.0.0.1\"\nca = \"{}\"\nstate = \"{}\"\n",
        ca.display(),
        old.0.path().display()
    );
    fs::write(&config, text).unwrap();
    let config = config.display().to_string();
    let mut run = start(&["run", "pssl:0:127.0.0.1", "--config", &config], &given);
    let line = run.wait_for("hears the others on ");
    let method = dial_method(&line, "ssl");
    // Members show the certificate of a controller to controllers.
    let member = |pki: &Pki| {
        let files = pki.files("c", "controllerca");
        Security::new(Arc::new(files.load().unwrap())).expecting(Role::Controller)
    };
    let (older, newer) = (member(&old), member(&new));
    connect(&method, &older).await.expect("its certificate");
    fs::copy(new.path("pki/controllerca/cacert.pem"), &ca).unwrap();
    copy(&new.controller(), &given);
    let give_up = Instant::now() + PATIENCE;
    while connect(&method, &newer).await.is_err() {
        assert!(Instant::now() < give_up, "{:?}", run.log);
        sleep(Duration::from_millis(100)).await;
    }
    assert!(connect(&method, &older).await.is_err());
}

#[tokio::test]
async fn a_switch_that_is_revoked_is_out_and_the_others_are_not() {
    for kind in ["ssl", "quic"] {
        let pki = Pki::new();
        let crl = pki.revoke("switchca", None).display().to_string();
        let words = ["run", &format!("p{kind}:0:127.0.0.1"), "--crl", &crl];
        let config = patient(&pki);
        let words: Vec<&str> = words.into_iter().chain(["--config", &config]).collect();
        let mut run = start(&words, &pki.controller());
        let method = dial_method(&run.wait_for("listening on "), kind);
        let (stolen, good) = (pki.dialler("s1"), pki.dialler("s2"));
        let mut thief = greeted(&method, &stolen).await.expect("let in");
        let mut other = greeted(&method, &good).await.expect("let in");
        pki.revoke("switchca", Some("s1"));
        let since = Instant::now();
        assert!(is_closed(&mut thief).await, "{kind}: it is still there");
        println!("{kind}: out after {:?}", since.elapsed());
        run.wait_for("its certificate is revoked");
        assert!(greeted(&method, &stolen).await.is_none(), "{kind}");
        let mut byte = [0; 4096];
        let read = timeout(Duration::from_millis(500), other.reader.read(&mut byte)).await;
        let is_there = !matches!(read, Ok(Ok(0) | Err(_)));
        assert!(is_there, "{kind}: the other switch is gone: {read:?}");
    }
}

#[tokio::test]
async fn a_relay_that_is_revoked_is_out() {
    let pki = Pki::new();
    let crl = pki.revoke("switchca", None).display().to_string();
    let config = patient(&pki);
    let mut run = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", &config]);
    let target = dial_method(&run.wait_for("listening on "), "tcp").to_string();
    let words = [
        "relay",
        "controller",
        "--listen",
        "pquic:0:127.0.0.1",
        "--openflow",
        &target,
    ];
    let words: Vec<&str> = words.into_iter().chain(["--crl", &crl]).collect();
    let mut hub = start(&words, &pki.controller());
    let link = dial_method(&hub.wait_for("listening pquic"), "quic").to_string();
    let words = [
        "relay",
        "switch",
        "--openflow",
        "ptcp:0:127.0.0.1",
        "--connect",
        &link,
    ];
    let mut relay = start(&words, &pki.files("s1", "controllerca"));
    let local = dial_method(&relay.wait_for("listening ptcp"), "tcp");
    hub.wait_for("connected");
    let mut switch = greeted(&local, &Security::plain()).await.expect("carried");
    pki.revoke("switchca", Some("s1"));
    hub.wait_for("the other relay's certificate is revoked");
    assert!(is_closed(&mut switch).await, "the switch is still carried");
}

/// Sends one request on a connection that stays open. Returns the status of the answer.
async fn ask<S>(stream: &mut BufReader<S>) -> std::io::Result<u16>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let request = b"GET /v1/access HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await?;
    stream.flush().await?;
    let (mut status, mut len, mut line) = (0, 0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let lower = line.to_ascii_lowercase();
        if let Some(rest) = lower.strip_prefix("http/1.1 ") {
            status = rest[..3].parse().unwrap();
        }
        if let Some(rest) = lower.strip_prefix("content-length:") {
            len = rest.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            stream.read_exact(&mut vec![0; len]).await?;
            return Ok(status);
        }
    }
}

#[tokio::test]
async fn an_operator_that_is_revoked_gets_nothing_more_on_a_connection_that_stays() {
    let pki = Pki::new();
    pki.revoke("operatorca", None);
    let config = pki.path("net.toml");
    let text = "[api]\nlisten = \"0\"\n[api.tls]\nprivate_key = \"c-privkey.pem\"\n\
                certificate = \"c-cert.pem\"\nca = \"pki/operatorca/cacert.pem\"\n\
                crl = \"pki/operatorca/crl.pem\"\n";
    fs::write(&config, text).unwrap();
    let config = config.display().to_string();
    let mut run = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", &config]);
    let line = run.wait_for("API on ");
    let at = line
        .split("https://")
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let files = ClientFiles {
        ca: pki.path("pki/controllerca/cacert.pem"),
        own: Some((pki.path("o-privkey.pem"), pki.path("o-cert.pem"))),
    };
    let connector = TlsConnector::from(files.load(&[b"http/1.1"]).unwrap());
    let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let open = async || {
        let stream = TcpStream::connect(at).await.unwrap();
        let secured = connector.connect(name.clone(), stream).await;
        secured.map(BufReader::new)
    };
    let mut stays = open().await.unwrap();
    assert_eq!(ask(&mut stays).await.unwrap(), 200);
    // A reload that revokes nobody takes nothing from them.
    pki.revoke("operatorca", None);
    run.wait_for("c-cert.pem in use");
    assert_eq!(ask(&mut stays).await.unwrap(), 200);
    run.log.clear();
    pki.revoke("operatorca", Some("o"));
    run.wait_for("c-cert.pem in use");
    assert_eq!(ask(&mut stays).await.unwrap(), 401, "it is revoked");
    let mut anew = match open().await {
        Ok(stream) => stream,
        Err(_) => return,
    };
    assert!(ask(&mut anew).await.is_err(), "nor by a new connection");
}
