//! Switches under `auster run`, with its configuration in a file, their database, its API, and
//! `auster queues keep` beside them: what an operator of queues and circuits has.

use cli::program;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::table::setup::wait_until_known;
use auster::qos::client::Client;
use auster::run::ApiAddress;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::netns;
use testbed::network::{CONTROLLER, CONTROLLER_ADDRESS, Network};
use testbed::plane::{OPENFLOW_PORT, Part, set_controllers, status_socket, wait_for_listener};

const API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const CONTROLLER_ROLE: &str = "controller";
const CONTROLLER_LOG: &str = "controller.log";

pub struct Controlled {
    pub network: Network,
    controller: Option<u32>,
}

/// One row of a table, by column, as OVSDB's JSON has it.
pub type Row = serde_json::Map<String, Value>;

impl Controlled {
    /// Starts `auster run` with this configuration; `listen`, `ovsdb`, `api` and `status` are given
    /// to it as flags.
    pub fn start(network: Network, config: &str) -> Result<Controlled, Failure> {
        let mut setup = Controlled {
            network,
            controller: None,
        };
        setup.write_config(config)?;
        setup.start_controller()?;
        wait_for_listener(
            &mut setup.network,
            CONTROLLER,
            OPENFLOW_PORT,
            CONTROLLER_LOG,
        )?;
        let target = format!("tcp:{CONTROLLER_ADDRESS}:{OPENFLOW_PORT}");
        set_controllers(&setup.network, &target)?;
        Ok(setup)
    }

    /// Until the controller knows every switch and link; `false` when that was interrupted.
    pub fn wait_until_known(&mut self, interrupt: &Interrupt) -> Result<bool, Failure> {
        wait_until_known(&mut self.network, interrupt)
    }

    pub fn write_config(&self, text: &str) -> Result<(), Failure> {
        let file = self.network.dir().join("controller.toml");
        std::fs::write(&file, text).map_err(|e| Failure::file(file, e))
    }

    pub fn start_controller(&mut self) -> Result<(), Failure> {
        let log = self.network.open_log(CONTROLLER_LOG)?;
        let (config, status) = (
            self.network.dir().join("controller.toml"),
            status_socket(&self.network.dir(), Part::Controller),
        );
        let database = self.database();
        let program = program::auster()?;
        let child = self
            .network
            .spawn(CONTROLLER_ROLE, Some(CONTROLLER), program, |command| {
                let listen = format!("ptcp:{OPENFLOW_PORT}:{CONTROLLER_ADDRESS}");
                command.args(["run", "--listen", &listen, "--ovsdb", &database]);
                command.args(["--api", &API.to_string(), "--config"]);
                command.arg(config).arg("--status").arg(status).stderr(log);
            })?;
        self.controller = Some(child.id());
        Ok(())
    }

    /// kill -9.
    pub fn kill_controller(&mut self) -> Result<(), Failure> {
        self.controller = None;
        self.network.kill(CONTROLLER_ROLE)
    }

    /// Has the controller read its configuration again.
    pub fn reload(&self) -> Result<(), Failure> {
        let pid = self.controller.map(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| Failure::usage("there is no controller to configure"))?;
        kill(pid, Signal::SIGHUP).map_err(|e| Failure::machine(format!("SIGHUP: {e}")))
    }

    /// One request to the API, whatever is answered.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), Failure> {
        let exchange = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            Ok(runtime.block_on(Client::new(ApiAddress::Ip(API)).answer(method, path, body)))
        };
        netns::within(&self.network.namespace(CONTROLLER), exchange).map_err(Failure::machine)?
    }

    /// How far everything is, as the controller sees it.
    pub fn state(&self) -> Result<Value, Failure> {
        match self.ask(Method::GET, "/v1/state", None)? {
            (status, state) if status.is_success() => Ok(state),
            (status, problem) => Err(Failure::negative(format!("/v1/state: {status}: {problem}"))),
        }
    }

    /// The entries of a switch without their counters, in the order of their text.
    pub fn flows(&self, switch: &str) -> Result<Vec<String>, Failure> {
        let text = self.ofctl(switch, &["dump-flows", "--no-stats"])?;
        let mut lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        // A cookie of 0 is not printed.
        lines.retain(|line| line.contains("actions="));
        lines.sort();
        Ok(lines)
    }

    pub fn ofctl(&self, switch: &str, words: &[&str]) -> Result<String, Failure> {
        let socket = self.network.dir().join(format!("{switch}.mgmt"));
        let mut command = std::process::Command::new("ovs-ofctl");
        command.args(["-O", "OpenFlow13", words[0]]);
        command.args(words[1..].iter().filter(|word| word.starts_with("--")));
        command.arg(format!("unix:{}", socket.display()));
        command.args(words[1..].iter().filter(|word| !word.starts_with("--")));
        program::run(command)
    }

    /// All rows of a table of the switches' database, by column, in the order of their text.
    pub fn rows(&self, table: &str) -> Result<Vec<Row>, Failure> {
        let text = self.network.vsctl(&["--format=json", "list", table])?;
        rows(&text).ok_or_else(|| Failure::machine(format!("ovs-vsctl list {table}: {text}")))
    }

    fn database(&self) -> String {
        format!("unix:{}", self.network.dir().join("db.sock").display())
    }
}

/// Whether it was so before `time` had passed, with `look` as often as `interval` says.
pub fn within<T>(
    time: Duration,
    interval: Duration,
    interrupt: &Interrupt,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    let deadline = Instant::now() + time;
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if Instant::now() > deadline || interrupt.is_set() {
            return Ok(None);
        }
        std::thread::sleep(interval);
    }
}

/// From `ovs-vsctl --format=json list`.
fn rows(text: &str) -> Option<Vec<Row>> {
    // An empty table prints nothing at all.
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    let table: Value = serde_json::from_str(text).ok()?;
    let headings: Vec<&str> = (table["headings"].as_array()?.iter())
        .map(|heading| heading.as_str().unwrap_or_default())
        .collect();
    let mut rows = Vec::new();
    for cells in table["data"].as_array()? {
        let cells = headings.iter().zip(cells.as_array()?);
        let row: Row = cells
            .map(|(heading, cell)| ((*heading).to_owned(), cell.clone()))
            .collect();
        rows.push(row);
    }
    rows.sort_by_key(|row| Value::Object(row.clone()).to_string());
    Some(rows)
}

/// The identifiers in a column that refers to one row or several.
pub fn uuids(cell: &Value) -> Vec<String> {
    match (cell[0].as_str(), &cell[1]) {
        (Some("uuid"), Value::String(uuid)) => vec![uuid.clone()],
        (Some("set"), Value::Array(items)) => items.iter().flat_map(uuids).collect(),
        _ => Vec::new(),
    }
}

/// The pairs of a map, keys and values as text; of a reference its identifier.
pub fn pairs(cell: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => uuids(other).pop().unwrap_or_else(|| other.to_string()),
    };
    let items = cell[1].as_array();
    let items = items.into_iter().flatten();
    items.map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_database_are_read() {
        let text = r#"{"data":[["b",["uuid","u2"],["set",[]],
            ["map",[[1,["uuid","q1"]],[217,["uuid","q2"]]]]],
            ["a",["uuid","u1"],["uuid","u2"],["map",[["max-rate","40"]]]]],
            "headings":["name","_uuid","qos","queues"]}"#;
        let found = rows(text).unwrap();
        assert_eq!(
            (&found[0]["name"], &found[1]["name"]),
            (&"a".into(), &"b".into())
        );
        assert_eq!(uuids(&found[0]["qos"]), ["u2"]);
        assert_eq!(uuids(&found[1]["qos"]), Vec::<String>::new());
        let queues = pairs(&found[1]["queues"]);
        assert_eq!(queues[1], ("217".to_owned(), "q2".to_owned()));
        assert_eq!(pairs(&found[0]["queues"])[0].1, "40");
        assert_eq!(rows(""), Some(Vec::new()));
        assert_eq!(rows("no table"), None);
    }
}
