//! `auster support`: one file with the facts needed to find out why an auster misbehaves. It has no
//! key, token or password, and `auster support` lists its contents line by line.

mod archive;
mod settings;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::failure::Failure;
use cli::output::say;
use cli::runtime::block_on;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use serde_json::{Value, json};
use tokio::time::timeout;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::health;
use crate::pki::show;
use crate::qos::ApiArgs;
use archive::Archive;

pub const EXAMPLE: &str = "\
Example:
  auster support --config /etc/auster/run.toml --status /run/auster/status.sock
  auster support --status relay.sock --certificate s1-cert.pem --out relay.tar.gz

It asks the API, each socket of --status, and reads the files that are named. What does not answer
is left out, and a line says so. Look through it before you send it: it has the addresses of
switches and hosts, and the values of the configuration. It has no private key, no token, no
password and no comment of the configuration.";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    api: ApiArgs,

    /// The configuration of auster run, which also names its certificates
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// A --status socket of auster run or of a relay. Repeat for more
    #[arg(long, value_name = "FILE", value_parser = config::settings::sockets::status_socket)]
    status: Vec<PathBuf>,

    /// Include names and dates of this certificate, CA or revocation list. Repeat for more
    #[arg(long, value_name = "FILE")]
    certificate: Vec<PathBuf>,

    /// The file to create; an existing file is not overwritten
    #[arg(long, value_name = "FILE", default_value = "auster-support.tar.gz")]
    out: PathBuf,
}

const FOLDER: &str = "auster-support";
/// The maximum size of a part in bytes; the rest is cut off.
const PART_BYTES_MAX: usize = 16 << 20;
/// The maximum size in bytes of a configuration, and of a file of certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of sockets, and of files of certificates, that are read.
const FILES_MAX: usize = 32;
/// The time that each question has for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The questions to the API. A relay's --metrics answers only the first.
const QUESTIONS: [(&str, &str); 8] = [
    ("metrics.txt", "/metrics"),
    ("ready.json", "/readyz"),
    ("events.ndjson", "/v1/events"),
    ("topology.json", "/v1/topology"),
    ("switches.json", "/v1/switches"),
    ("state.json", "/v1/state"),
    ("cluster.json", "/v1/cluster"),
    ("access.json", "/v1/access"),
];

/// # Errors
/// The file cannot be made, or exists already.
pub fn run(args: &Args) -> Result<(), Failure> {
    let fail = |error| Failure::file(&args.out, error);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&args.out);
    let mut archive = Archive::new(FOLDER, made.map_err(fail)?);
    let written = block_on(gather(args, &mut archive));
    let written = written.and_then(|()| archive.finish().map_err(fail));
    if written.is_err() {
        let _ = std::fs::remove_file(&args.out);
    }
    let file = written?;
    let len = file.metadata().map_err(fail)?.len();
    say!(
        "{}: {len} bytes; look through it before you send it",
        args.out.display()
    );
    Ok(())
}

async fn gather(args: &Args, archive: &mut Archive<File>) -> Result<(), Failure> {
    let mut put = |name: &str, part: Result<Vec<u8>, String>| {
        let added = match part {
            Ok(mut bytes) => {
                let of = match bytes.len() > PART_BYTES_MAX {
                    true => format!(" of {}, the others are cut off", bytes.len()),
                    false => String::new(),
                };
                bytes.truncate(PART_BYTES_MAX);
                say!("{name}: {} bytes{of}", bytes.len());
                archive.add(name, &bytes)
            }
            Err(problem) => {
                say!("{name}: left out: {problem}");
                archive.add(&format!("{name}.left-out"), problem.as_bytes())
            }
        };
        added.map_err(|error| Failure::file(&args.out, error))
    };
    put("versions.json", Ok(document(&versions())))?;
    let mut certificates = args.certificate.clone();
    if let Some(path) = &args.config {
        let dir = path.parent().unwrap_or(Path::new("."));
        let text = read(path).and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| "it is no text, so nothing is shown".to_owned())
        });
        if let Ok(text) = &text {
            certificates.extend(settings::certificates(text, dir));
        }
        let shown = text.and_then(|text| settings::without_secrets(&text, dir));
        put("config.json", shown.map(|shown| document(&shown)))?;
    }
    if !certificates.is_empty() {
        put("certificates.txt", Ok(describe(&certificates).into_bytes()))?;
    }
    for (n, path) in args.status.iter().take(FILES_MAX).enumerate() {
        let asked = timeout(ANSWER_MAX, health::status(path)).await;
        let answer = asked.unwrap_or_else(|_| Err(Failure::network("no answer in time")));
        let answer = answer.map_err(|failure| failure.message().to_owned());
        let name = format!("status-{}.json", n + 1);
        put(&name, answer.map(|status| document(&status)))?;
    }
    let client = match args.api.client() {
        Ok(client) => client,
        Err(failure) => return put("api", Err(failure.message().to_owned())),
    };
    for (name, path) in QUESTIONS {
        let asked = timeout(ANSWER_MAX, client.bytes(path)).await;
        let answer = asked.unwrap_or_else(|_| Err(Failure::network("no answer in time")));
        let answer = answer.map_err(|failure| failure.message().to_owned());
        put(name, answer.map(|bytes| bytes.to_vec()))?;
    }
    Ok(())
}

fn document(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

/// The versions and load of this program and its machine.
fn versions() -> Value {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let os = text("/etc/os-release");
    let os = os
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let memory = text("/proc/meminfo");
    let memory = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let load = text("/proc/loadavg");
    let cores = std::thread::available_parallelism().map_or(0, |count| count.get());
    json!({
        "auster": env!("CARGO_PKG_VERSION"),
        "architecture": std::env::consts::ARCH,
        "system": os.map(|os| os.trim_matches('"')),
        "kernel": text("/proc/sys/kernel/osrelease").trim(),
        "cores": cores,
        "memory": memory.map(str::trim),
        "load": load.trim(),
        "uptime_s": text("/proc/uptime").split(' ').next(),
    })
}

/// The names and dates in files of certificates. Nothing else in a file is shown, and nothing of a
/// key in it.
fn describe(files: &[PathBuf]) -> String {
    let mut text = String::new();
    for file in files.iter().take(FILES_MAX) {
        text.push_str(&format!("== {}\n", file.display()));
        let bytes = match read(file) {
            Ok(bytes) => bytes,
            Err(problem) => {
                text.push_str(&format!("{problem}\n"));
                continue;
            }
        };
        let certificates = CertificateDer::pem_slice_iter(&bytes).flatten();
        for certificate in certificates {
            match show::describe(&certificate) {
                Ok(described) => text.push_str(&described),
                Err(problem) => text.push_str(&format!("{problem}\n")),
            }
        }
        let lists = CertificateRevocationListDer::pem_slice_iter(&bytes).flatten();
        for list in lists {
            if let Ok((_, list)) = CertificateRevocationList::from_der(&list) {
                let (count, next) = (list.iter_revoked_certificates().count(), list.next_update());
                let next = next.map_or("never".to_owned(), |next| next.to_string());
                let (issuer, made) = (list.issuer(), list.last_update());
                text.push_str(&format!(
                    "list of     {issuer}\nrevoked     {count}\nmade        {made}\nnext        \
                     {next}\n"
                ));
            }
        }
    }
    text
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let facts = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !facts.is_file() || facts.len() > FILE_BYTES_MAX {
        return Err(format!("no file of at most {FILE_BYTES_MAX} bytes"));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}
