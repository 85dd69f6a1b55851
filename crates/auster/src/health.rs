//! `auster health`: whether a running auster does its work, for probes of containers, service
//! managers and scripts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::failure::Failure;
use cli::output::say;
use cli::runtime::block_on;
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::qos::ApiArgs;

pub const EXAMPLE: &str = "\
Example:
  auster health
  auster health --api unix:/run/auster/api.sock
  auster health --status /run/auster/relay.sock --json

The exit code is 0 if it does, else 1: nobody answers, or not in time, or it says that it does not.
A member of a cluster does if it serves the switches or could take over, also while etcd is away. It
does not if it has not read etcd, hears too few of the others or has no place. With --live only an
answer of the process counts, as for a probe that starts it again.
Over the API that is what /readyz or /healthz says, which take no token. A relay answers by
--status; whether another relay is connected is in the line and does not count.";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    api: ApiArgs,

    /// Use this --status socket of auster run or a relay, instead of the API
    #[arg(long, value_name = "FILE", value_parser = config::settings::sockets::status_socket)]
    status: Option<PathBuf>,

    /// Check only whether the process answers
    #[arg(long)]
    live: bool,

    /// Print a JSON document: is_healthy, and detail
    #[arg(long)]
    json: bool,
}

/// The time for the whole answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The status of a controller with 10,000 hosts has some 2 MB.
const STATUS_BYTES_MAX: u64 = 64 << 20;

/// The state of a process, in a line and as a document.
#[derive(Debug, PartialEq)]
struct Health {
    is_healthy: bool,
    line: String,
}

/// # Errors
/// The process does not do its work.
pub fn run(args: &Args) -> Result<(), Failure> {
    let asked = block_on(async {
        match timeout(ANSWER_MAX, ask(args)).await {
            Ok(health) => health,
            Err(_) => Err(Failure::negative(format!(
                "no answer within {} s",
                ANSWER_MAX.as_secs()
            ))),
        }
    });
    let health = asked.unwrap_or_else(|failure| Health {
        is_healthy: false,
        line: failure.message().to_owned(),
    });
    if args.json {
        say!(
            "{}",
            json!({"is_healthy": health.is_healthy, "detail": health.line})
        );
    }
    match (health.is_healthy, args.json) {
        (true, false) => say!("{}", health.line),
        (true, true) => {}
        (false, _) => return Err(Failure::negative(health.line)),
    }
    Ok(())
}

async fn ask(args: &Args) -> Result<Health, Failure> {
    match &args.status {
        Some(path) => Ok(of_status(&status(path).await?, args.live)),
        None => {
            let client = args.api.client()?;
            let path = if args.live { "/healthz" } else { "/readyz" };
            let (status, document) = client.answer(Method::GET, path, None).await?;
            Ok(of_answer(status.is_success(), &document))
        }
    }
}

fn of_answer(is_healthy: bool, document: &Value) -> Health {
    let ms = document["answered_ms"].as_f64().unwrap_or_default();
    let line = match is_healthy {
        true => {
            let state = document["state"].as_str();
            let state = state.map_or(String::new(), |state| format!("{state}; "));
            let status = document["status"].as_str().unwrap_or_default();
            format!("{status}: {state}the controller's thread answered in {ms:.1} ms")
        }
        false => {
            let detail = document["detail"].as_str();
            detail
                .unwrap_or("it is not ready, and does not say why")
                .to_owned()
        }
    };
    Health { is_healthy, line }
}

fn of_status(document: &Value, is_live: bool) -> Health {
    if let Some(relays) = document["relays"].as_array() {
        let up = relays.iter().filter(|relay| relay["up"] == true).count();
        let line = format!("a relay: {up} relays or controllers are connected");
        return Health {
            is_healthy: true,
            line,
        };
    }
    let is_responsive = document["is_responsive"] == true;
    let is_able = is_live || document["cluster"]["is_able"] != false;
    let up = document["connections"]["up"].as_u64().unwrap_or_default();
    let state = document["cluster"]["state"].as_str();
    let state = state.map_or(String::new(), |state| format!("{state}; "));
    let line = match (is_responsive, is_able) {
        (false, _) => "the controller's thread does not answer".to_owned(),
        (true, false) => format!("not ready: {state}{up} switches are connected"),
        (true, true) if is_live => format!("ok: {state}{up} switches are connected"),
        (true, true) => format!("ready: {state}{up} switches are connected"),
    };
    Health {
        is_healthy: is_responsive && is_able,
        line,
    }
}

/// The document that a status socket returns.
pub async fn status(path: &Path) -> Result<Value, Failure> {
    let absent = |error: std::io::Error| {
        Failure::network(format!("nobody answers at {}: {error}", path.display()))
    };
    let stream = UnixStream::connect(path).await.map_err(absent)?;
    let mut text = Vec::new();
    // A relay sends its status to a client that sends nothing.
    let read = stream.take(STATUS_BYTES_MAX).read_to_end(&mut text).await;
    read.map_err(absent)?;
    serde_json::from_slice(&text).map_err(|_| {
        let path = path.display();
        Failure::network(format!("what answers at {path} is no status of auster"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whether_it_is_healthy() {
        let ready = json!({"status": "ready", "answered_ms": 0.25});
        let health = of_answer(true, &ready);
        assert!(
            health.is_healthy && health.line.contains("in 0.2 ms"),
            "{health:?}"
        );
        let health = of_answer(false, &json!({"detail": "the listeners are not open"}));
        assert!(!health.is_healthy && health.line == "the listeners are not open");
        assert!(!of_answer(false, &Value::Null).is_healthy);
    }

    #[test]
    fn a_status_says_so_too() {
        let run = json!({"is_responsive": true, "connections": {"up": 3}});
        let health = of_status(&run, false);
        assert!(
            health.is_healthy && health.line.contains("3 switches"),
            "{health:?}"
        );
        for is_live in [false, true] {
            assert!(!of_status(&json!({"is_responsive": false}), is_live).is_healthy);
            assert!(!of_status(&json!({}), is_live).is_healthy);
        }
        let deaf = json!({
            "is_responsive": true,
            "cluster": {"is_able": false, "state": "nobody serves the switches"},
        });
        let health = of_status(&deaf, false);
        assert!(!health.is_healthy);
        assert!(
            health.line.starts_with("not ready: nobody serves"),
            "{health:?}"
        );
        assert!(of_status(&deaf, true).is_healthy);
        let relay = json!({"relays": [{"up": true}, {"up": false}]});
        let health = of_status(&relay, false);
        assert!(
            health.is_healthy && health.line.contains("a relay: 1 "),
            "{health:?}"
        );
    }
}
