//! A line of switches under `auster run` with a configuration that has so many policies.

use cli::program;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use crate::qos::controlled::{Controlled, within};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::network::{Network, Options};
use testbed::topology::Topology;

/// Until a step is done; on two cores the greatest takes seconds.
const STEP_MAX: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// After switches have come: tables are read.
const SETTLE: Duration = Duration::from_secs(2);
/// Code points that are left when every policy marks with another one.
const MARKS: u16 = 64;

pub struct Setup(Controlled);

impl Setup {
    /// Switches without a policy, under a controller that knows all of them.
    pub fn start(switches: usize, interrupt: &Interrupt) -> Result<Setup, Failure> {
        let mut topology = Topology::new("qos-scale");
        for switch in 0..switches {
            topology.add_switch();
            if switch > 0 {
                topology.add_link(switch - 1, switch);
            }
        }
        let network = Network::start(topology, "auster", &Options::default())?;
        let mut setup = Setup(Controlled::start(network, "")?);
        setup.0.wait_until_known(interrupt)?;
        Ok(setup)
    }

    pub fn settle(&self) {
        std::thread::sleep(SETTLE);
    }

    /// Writes the configuration that the controller reads on a signal or at its start.
    pub fn write(&self, policies: u16) -> Result<(), Failure> {
        self.0.write_config(&configuration(policies))
    }

    pub fn reload(&self) -> Result<(), Failure> {
        self.0.reload()
    }

    /// kill -9, and another process.
    pub fn replace_controller(&mut self) -> Result<(), Failure> {
        self.0.kill_controller()?;
        self.0.start_controller()
    }

    /// Until the controller knows every switch and link.
    pub fn wait_until_known(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        self.0.wait_until_known(interrupt).map(drop)
    }

    /// Waits until so many policies are there and every one has been confirmed by every switch;
    /// also until none is left.
    pub fn wait_installed(&mut self, policies: u16, interrupt: &Interrupt) -> Result<(), Failure> {
        self.wait("policies", interrupt, |setup| {
            let state = setup.state()?;
            let known = state["policies"].as_object();
            let installed = known.into_iter().flatten();
            let installed = installed.filter(|(_, policy)| policy["state"] == "installed");
            let all = known.map_or(0, serde_json::Map::len);
            Ok(all == usize::from(policies) && installed.count() == all)
        })
    }

    /// Waits until the switches have no entry of a policy.
    pub fn wait_removed(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        self.wait("switches", interrupt, |setup| Ok(entries(setup)? == 0))
    }

    /// The number of policy entries that the switches themselves report.
    pub fn entries(&self) -> Result<u64, Failure> {
        entries(&self.0)
    }

    /// OpenFlow messages that the switches have had, by Open vSwitch's own counter.
    pub fn messages(&self) -> Result<u64, Failure> {
        let mut appctl = Command::new("ovs-appctl");
        appctl.arg("-t");
        appctl.arg(self.0.network.dir().join("ovs-vswitchd.ctl"));
        appctl.args(["coverage/read-counter", "ofproto_recv_openflow"]);
        let told = program::run(appctl)?;
        told.trim()
            .parse()
            .map_err(|_| Failure::machine(format!("coverage/read-counter: {told}")))
    }

    fn wait(
        &mut self,
        whose: &str,
        interrupt: &Interrupt,
        is_so: impl Fn(&Controlled) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let setup = &mut self.0;
        let look = || {
            setup.check()?;
            is_so(setup).map(|is_so| is_so.then_some(()))
        };
        match within(STEP_MAX, LOOK_INTERVAL, interrupt, look)? {
            None if !interrupt.is_set() => Err(Failure::machine(format!(
                "the {whose} are not as they should be after {} s",
                STEP_MAX.as_secs()
            ))),
            _ => Ok(()),
        }
    }
}

fn entries(setup: &Controlled) -> Result<u64, Failure> {
    let mut sum = 0;
    for switch in &setup.network.topology.switches {
        // What `configuration` asks for, and nothing else.
        let told = setup.ofctl(&switch.name, &["dump-aggregate", "udp,nw_dst=10.0.0.0/8"])?;
        let count = told.split("flow_count=").nth(1).unwrap_or_default();
        let count = count.trim().parse::<u64>();
        sum += count.map_err(|_| Failure::machine(format!("dump-aggregate: {told}")))?;
    }
    Ok(sum)
}

/// A configuration with this many policies, each for a service of its own and on every switch.
fn configuration(policies: u16) -> String {
    let mut text = String::new();
    for n in 0..policies {
        let (port, mark) = (n + 1, n % MARKS);
        let service = format!("name = \"n{n}\"\nproto = \"udp\"\ndst = \"10.0.0.0/8\"\n");
        let _ = write!(
            text,
            "[[qos.service]]\n{service}dst_port = {port}\n\
             [[qos.policy]]\nname = \"n{n}\"\nservice = \"n{n}\"\nmark = {mark}\n"
        );
    }
    text
}
