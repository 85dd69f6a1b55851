//! Policy maps of running relays, through their status sockets: `push` and `status`.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sched::PolicyMap;
use serde_json::Value;

use crate::ofp;
use config::settings::sockets::status_socket;

use crate::relay::policy::PUSH;
use cli::failure::Failure;

/// A push waits for every relay's other end in turn.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// The most attempts at a request that the relay took for an empty one.
const ATTEMPTS_MAX: u32 = 10;

#[derive(clap::Args)]
pub struct PushArgs {
    /// The file with the map. Its generation must be greater than that in use, unless it is the map
    /// in use
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The status socket of a relay: the controller's for all switches, or one switch's
    #[arg(
        long, value_name = "METHOD", required_unless_present = "ovsdb",
        value_parser = status_socket
    )]
    relay: Option<PathBuf>,

    /// The relay to change, by the name in its certificate; all if not given
    #[arg(long, value_name = "NAME", default_value = "", requires = "relay")]
    switch: String,

    /// A switch's OVSDB server (unix:, tcp:), for a relay there that uses it as --policy-db
    #[arg(
        long,
        value_name = "METHOD",
        conflicts_with = "relay",
        requires = "bridge"
    )]
    ovsdb: Option<String>,

    /// The bridge whose row gets the map
    #[arg(long, value_name = "NAME", requires = "ovsdb")]
    bridge: Option<String>,
}

#[derive(clap::Args)]
pub struct StatusArgs {
    /// The status socket of a relay
    #[arg(
        long, value_name = "METHOD", required_unless_present = "ovsdb",
        value_parser = status_socket
    )]
    relay: Option<PathBuf>,

    /// A switch's OVSDB server (unix:, tcp:): show the status in its bridges' rows
    #[arg(long, value_name = "METHOD", conflicts_with = "relay")]
    ovsdb: Option<String>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn push(args: &PushArgs) -> Result<(), Failure> {
    let text = config::policy::read(&args.file)?;
    let (map, _) =
        PolicyMap::parse(&text).map_err(|problems| super::refused(&args.file, &problems))?;
    if let (Some(ovsdb), Some(bridge)) = (&args.ovsdb, &args.bridge) {
        return super::written::push(ovsdb, bridge, &map);
    }
    let relay = args.relay.as_deref().unwrap_or(Path::new(""));
    let answer = ask(relay, &format!("{PUSH} {}\n{text}", args.switch))?;
    if let Some(error) = answer["error"].as_str() {
        return Err(Failure::network(format!("{}: {error}", relay.display())));
    }
    let pushed = answer["pushed"].as_array().map_or(&[][..], Vec::as_slice);
    let mut out = std::io::stdout().lock();
    let mut refused = String::new();
    for one in pushed {
        let name = word(&one["name"]);
        match one["error"].as_str() {
            None => {
                let place = match one["alone"].as_bool() {
                    Some(true) => "this end, nobody at the other schedules",
                    _ => "both ends",
                };
                let change = match one["unchanged"].as_bool() {
                    Some(true) => "nothing changed, ",
                    _ => "",
                };
                let digest = word(&one["sha256"]);
                let line = format!("{name}: {change}in use at {place}, sha256 {digest}");
                ofp::write_line(&mut out, &line)?;
            }
            Some(error) => {
                let _ = write!(refused, "\n{name}: {error}");
            }
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(Failure::negative(format!(
        "the map is not in use everywhere, and the one before stays where it is not:{refused}"
    )))
}

pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    if let Some(ovsdb) = &args.ovsdb {
        return super::written::status(ovsdb, args.json);
    }
    let answer = ask(args.relay.as_deref().unwrap_or(Path::new("")), "")?;
    let relays = answer["relays"].as_array().map_or(&[][..], Vec::as_slice);
    let mut out = std::io::stdout().lock();
    if args.json {
        let policies = relays.iter().map(|relay| {
            serde_json::json!({
                "name": relay["name"],
                "up": relay["up"],
                "map": relay["policy_map"],
                "counters": relay["policy"],
            })
        });
        let document = Value::Array(policies.collect());
        let text = serde_json::to_string_pretty(&document).map_err(Failure::negative)?;
        return ofp::write_line(&mut out, &text);
    }
    if relays.is_empty() {
        return Err(Failure::negative("no other relay is connected"));
    }
    for relay in relays {
        ofp::write_line(&mut out, &in_words(relay))?;
    }
    Ok(())
}

/// One relay: its map, whether the other end has the same, and its counters.
fn in_words(relay: &Value) -> String {
    let name = word(&relay["name"]);
    let map = &relay["policy_map"];
    if map.is_null() {
        return format!("{name}: does not schedule");
    }
    let is_in_sync = match map["in_sync"].as_bool() {
        Some(true) => "in sync".to_owned(),
        Some(false) => format!(
            "NOT in sync: the other end has generation {}, sha256 {}",
            map["other_end"]["generation"],
            word(&map["other_end"]["sha256"])
        ),
        None => "the other end has not said what it has".to_owned(),
    };
    let mut text = format!(
        "{name}: generation {}, sha256 {}, {is_in_sync}",
        map["generation"],
        word(&map["sha256"])
    );
    let counters = &relay["policy"];
    for rule in counters["rules"].as_array().into_iter().flatten() {
        let _ = write!(
            text,
            "\n  rule #{}: {} messages",
            rule["rule"], rule["hits"]
        );
    }
    let _ = write!(text, "\n  default: {} messages", counters["default_hits"]);
    for queue in counters["queues"].as_array().into_iter().flatten() {
        let shed: u64 = ["shed_duplicate", "shed_stale", "shed_full"]
            .iter()
            .filter_map(|reason| queue[*reason].as_u64())
            .sum();
        let _ = write!(
            text,
            "\n  queue {}: in {}, out {}, waiting {}, promoted {}, shed {shed}",
            queue["queue"],
            queue["messages_in"],
            queue["messages_out"],
            queue["messages_waiting"],
            queue["promoted"],
        );
    }
    text
}

/// Sends `request` to a status socket and reads the answer. If a client sends nothing at once, the
/// relay answers with its status. So a request that started late is sent again: pushing a map twice
/// has the effect of pushing it once.
fn ask(relay: &Path, request: &str) -> Result<Value, Failure> {
    for _ in 0..ATTEMPTS_MAX {
        if let Some(answer) = ask_once(relay, request)? {
            return Ok(answer);
        }
    }
    Err(Failure::network(format!(
        "{}: the relay answered {ATTEMPTS_MAX} requests before it had read them; this machine is \
         too busy",
        relay.display()
    )))
}

/// Returns `None` if the relay took the request for an empty one.
fn ask_once(relay: &Path, request: &str) -> Result<Option<Value>, Failure> {
    let lost = |e: std::io::Error| Failure::network(format!("{}: {e}", relay.display()));
    let is_late = |e: &std::io::Error| {
        let closed = [
            ErrorKind::BrokenPipe,
            ErrorKind::ConnectionReset,
            ErrorKind::NotConnected,
        ];
        !request.is_empty() && closed.contains(&e.kind())
    };
    let mut socket = UnixStream::connect(relay).map_err(lost)?;
    socket
        .set_read_timeout(Some(ANSWER_TIME_MAX))
        .map_err(lost)?;
    let mut answer = String::new();
    let asked = socket
        .write_all(request.as_bytes())
        .and_then(|()| socket.shutdown(Shutdown::Write))
        .and_then(|()| socket.read_to_string(&mut answer));
    match asked {
        Err(error) if is_late(&error) => return Ok(None),
        asked => asked.map_err(lost)?,
    };
    let answer: Value = serde_json::from_str(&answer)
        .map_err(|_| Failure::network(format!("{}: no relay answers there", relay.display())))?;
    let is_status = answer.get("relays").is_some();
    Ok(Some(answer).filter(|_| request.is_empty() || !is_status))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The answer to `ask` from a relay that takes the first `late` requests for empty ones.
    fn asked(request: &str, late: u32) -> Result<Value, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for (n, socket) in (0..).zip(listener.incoming()) {
                let mut socket = socket.unwrap();
                let mut request = String::new();
                if n < late {
                    // The relay answers before the request arrives, at its first byte, or when all
                    // of it is there.
                    let bytes = [0, 1, usize::MAX][n as usize % 3];
                    let mut unheeded = Vec::new();
                    let mut reader = (&mut socket).take(bytes as u64);
                    reader.read_to_end(&mut unheeded).unwrap();
                } else {
                    socket.read_to_string(&mut request).unwrap();
                }
                let answer = match request.as_str() {
                    "" => r#"{"relays": []}"#,
                    _ => r#"{"pushed": []}"#,
                };
                let _ = socket.write_all(answer.as_bytes());
            }
        });
        ask(&path, request)
    }

    #[test]
    fn a_request_that_is_taken_for_none_is_made_again() {
        for late in [0, 1, 2, 3, ATTEMPTS_MAX - 1] {
            let answer = asked("policy push\nmap", late).unwrap();
            assert!(answer.get("pushed").is_some(), "{late}: {answer}");
        }
        let failure = asked("policy push\nmap", ATTEMPTS_MAX).unwrap_err();
        assert!(format!("{failure:?}").contains("too busy"), "{failure:?}");
        assert!(asked("", 0).unwrap().get("relays").is_some());
    }
}
