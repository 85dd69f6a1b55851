//! `auster run` ends and starts again at a real Open vSwitch.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::Auster;
use super::intent::{eventually, get};
use super::ovs::Ovs;
use super::ports::free_port;

const DPID: &str = "00000000000000d0";
/// The longest hold that there is.
const HOLD: Duration = Duration::from_secs(60);

/// The role of `p1`, once the switch is connected.
fn role(api: SocketAddr) -> Option<String> {
    let topology = get(api, "/v1/topology").body;
    let switch = &topology["switches"][0];
    let ports = switch["ports"].as_array()?.iter();
    let mut ports = ports.filter(|_| switch["is_connected"] == true);
    let port = ports.find(|port| port["name"] == "p1")?;
    Some(port["role"].as_str()?.to_owned())
}

/// Ports are held for a minute before it is known what is behind them. The next process learns that
/// from a process that was asked to end, but not from a killed one.
#[test]
fn the_next_process_knows_what_is_behind_the_ports() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let start = |hold: Duration| {
        let (file, state) = (dir.path().join("run.toml"), dir.path().join("state"));
        let text = format!("[controller]\nport_hold_ms = {}\n", hold.as_millis());
        std::fs::write(&file, text).unwrap();
        let auster = Auster::start(&[
            &format!("ptcp:{port}:127.0.0.1"),
            "--api",
            "0",
            "--config",
            file.to_str().unwrap(),
            "--state",
            state.to_str().unwrap(),
        ]);
        let api = auster.api();
        (auster, api)
    };
    let (mut auster, api) = start(Duration::from_millis(600));
    let ovs = Ovs::start();
    ovs.add_bridge("br0", DPID, "OpenFlow13", &format!("tcp:127.0.0.1:{port}"));
    ovs.add_captured_port("p1");
    eventually("a port of hosts", || role(api).as_deref() == Some("edge"));

    assert_eq!(auster.end(Signal::SIGTERM), Some(0));
    let begun = Instant::now();
    let (mut auster, api) = start(HOLD);
    eventually("the same at once", || role(api).as_deref() == Some("edge"));
    assert!(begun.elapsed() < HOLD);

    assert_eq!(auster.end(Signal::SIGKILL), None);
    let (_auster, api) = start(HOLD);
    eventually("the switch is back", || role(api).is_some());
    assert_eq!(role(api).as_deref(), Some("held"));
}
