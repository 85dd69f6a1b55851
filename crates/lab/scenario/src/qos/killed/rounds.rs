//! The rounds: the controller sets all of it up, is killed at some moment, what is there is read,
//! and it is started again.

use std::time::{Duration, Instant};

use clock::SplitMix64;
use serde::Serialize;
use serde_json::Value;

use crate::qos::controlled::{Controlled, within};
use crate::qos::killed::chatter::Chatter;
use crate::qos::killed::found::{Found, Verdict};
use crate::qos::killed::settings::Settings;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::network::{Network, Options, device};
use testbed::topology::Topology;

/// Each circuit has one path: with two, a process that has just started may find the other one
/// first, and all of it would not be the same every time.
const TOPOLOGY: &str = "linear,4";
/// The first host of each switch is spoken of by the configuration, the port of the second has
/// queues of somebody else.
const HOSTS_PER_SWITCH: usize = 2;
/// On a machine that is short of time discovery alone takes long: late answers are taken for forged
/// ones.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// `auster run` looks five times a second which queues are wanted, and then writes them: in a
/// set-up that was timed this may have been soon.
const RECORDS_LATE: Duration = Duration::from_millis(300);
/// While the set-up is timed.
const CLOSE_LOOK: Duration = Duration::from_millis(5);

/// A kind of thing that the controller reports, and the states in which it is in place.
type Kinds = (&'static str, &'static [&'static str]);

const ENTRIES: [Kinds; 2] = [("policies", &["installed"]), ("circuits", &["installed"])];
/// Nobody beside the switches makes the queues here, so that they are written and no more.
const QUEUES: Kinds = ("queues", &["written", "in effect"]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It was running, and read its configuration again.
    Reload,
    /// It was starting.
    Start,
}

/// Times in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    pub round: u32,
    pub kind: Kind,
    /// From the reload or the start.
    pub killed_after_ms: f64,
    pub verdict: Verdict,
    /// Rows of auster's that nothing refers to: when it was killed, and when it had started again.
    pub orphans_killed: usize,
    pub orphans: usize,
    /// Entries, meters and rows of somebody else that have changed.
    pub foreign_changed: Vec<String>,
    /// From the second start until all of it was there; nothing if that took too long.
    pub whole_ms: Option<f64>,
    /// Until all of it was gone that was not asked for any more.
    pub cleared_ms: Option<f64>,
    /// All of it, where some was there and not all.
    #[serde(skip)]
    pub text: Option<String>,
}

/// The extent of the set-up, and its time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Extent {
    pub ports: usize,
    pub queues: usize,
    pub circuit_entries: usize,
    pub policy_entries: usize,
    pub meters: usize,
    /// Rows, entries and meters of somebody else.
    pub foreign: usize,
    /// After a reload, until all entries are there, and all of it; after a start.
    pub entries_ms: f64,
    pub reload_ms: f64,
    pub start_ms: f64,
}

pub struct Rounds<'a> {
    settings: &'a Settings,
    setup: Controlled,
    interrupt: &'a Interrupt,
    config: String,
    draws: SplitMix64,
    whole: Found,
    foreign: std::collections::BTreeSet<String>,
    entries: Duration,
    reload: Duration,
    start: Duration,
    // Ends before the network does.
    _chatter: Chatter,
}

impl<'a> Rounds<'a> {
    /// A network where all of it was set up once, to know what that is and how long it takes, and
    /// is gone again. `None` when it was interrupted.
    pub fn begin(
        settings: &'a Settings,
        interrupt: &'a Interrupt,
    ) -> Result<Option<Rounds<'a>>, Failure> {
        let config = toml::to_string(&settings.config)
            .map_err(|e| Failure::usage(format!("the controller's configuration: {e}")))?;
        let topology =
            Topology::generate(TOPOLOGY, Some(HOSTS_PER_SWITCH)).map_err(Failure::usage)?;
        let spoken_of: Vec<usize> = (0..topology.hosts.len())
            .step_by(HOSTS_PER_SWITCH)
            .collect();
        let network = Network::start(topology, "auster", &Options::default())?;
        let mut setup = Controlled::start(network, "")?;
        if !setup.wait_until_known(interrupt)? {
            return Ok(None);
        }
        set_foreign(&setup)?;
        let chatter = Chatter::start(&setup.network, &spoken_of).map_err(Failure::machine)?;
        let mut rounds = Rounds {
            settings,
            foreign: Found::read(&setup)?.foreign,
            setup,
            interrupt,
            config,
            draws: SplitMix64::new(settings.seed),
            whole: Found::default(),
            entries: Duration::ZERO,
            reload: Duration::ZERO,
            start: Duration::ZERO,
            _chatter: chatter,
        };
        Ok(rounds.measure()?.map(|()| rounds))
    }

    pub fn extent(&self) -> Extent {
        let lines = |of: &std::collections::BTreeMap<
            String,
            std::collections::BTreeSet<String>,
        >| { of.values().map(|lines| lines.len()).sum() };
        let ports = || {
            let ports = self.whole.records.ports.values();
            ports.filter(|record| record.is_ours)
        };
        Extent {
            ports: ports().count(),
            queues: ports().map(|record| record.queues.len()).sum(),
            circuit_entries: lines(&self.whole.circuits),
            policy_entries: lines(&self.whole.policies),
            meters: lines(&self.whole.meters),
            foreign: self.foreign.len(),
            entries_ms: ms(self.entries),
            reload_ms: ms(self.reload),
            start_ms: ms(self.start),
        }
    }

    fn measure(&mut self) -> Result<Option<()>, Failure> {
        // Hosts have to be heard before circuits between them are asked for.
        self.setup.write_config(&self.config)?;
        self.setup.reload()?;
        if self.wait(LOOK, Self::is_installed)?.is_none() {
            return self.unmet("all of the configuration is installed");
        }
        self.whole = self.settled()?;
        if self.clear()?.is_none() {
            return self.unmet("what is not asked for any more is gone");
        }
        self.setup.write_config(&self.config)?;
        let began = Instant::now();
        self.setup.reload()?;
        let has_entries = |rounds: &Self| rounds.is_in_place(&ENTRIES);
        if self.wait(CLOSE_LOOK, has_entries)?.is_none() {
            return self.unmet("all entries are installed again");
        }
        self.entries = began.elapsed();
        if self.wait(CLOSE_LOOK, Self::is_installed)?.is_none() {
            return self.unmet("all of the configuration is installed again");
        }
        self.reload = began.elapsed();
        if self.wait(LOOK, Self::is_whole)?.is_none() {
            return self.unmet("all of it is as it was the first time");
        }
        if self.clear()?.is_none() {
            return self.unmet("it is gone again");
        }
        self.setup.kill_controller()?;
        self.setup.write_config(&self.config)?;
        let began = Instant::now();
        self.setup.start_controller()?;
        if self.wait(CLOSE_LOOK, Self::is_whole)?.is_none() {
            return self.unmet("a new process sets all of it up");
        }
        self.start = began.elapsed();
        match self.clear()? {
            Some(_) => Ok(Some(())),
            None => self.unmet("it is gone once more"),
        }
    }

    /// One round; before and after it nothing is asked for, and nothing is there. `None` when it
    /// was interrupted.
    pub fn run(&mut self, round: u32) -> Result<Option<Round>, Failure> {
        let kind = match (round + 1).is_multiple_of(self.settings.start_every) {
            true => Kind::Start,
            false => Kind::Reload,
        };
        let share = (self.draws.next() >> 11) as f64 / (1u64 << 53) as f64;
        if kind == Kind::Start {
            self.setup.kill_controller()?;
        }
        self.setup.write_config(&self.config)?;
        let began = Instant::now();
        let lasts = match kind {
            Kind::Start => {
                self.setup.start_controller()?;
                self.start
            }
            Kind::Reload => {
                self.setup.reload()?;
                // Entries take the smaller part of the time, and there is more to be half of.
                match round.is_multiple_of(2) {
                    true => self.reload.max(RECORDS_LATE),
                    false => self.entries,
                }
            }
        };
        let due = began + lasts.mul_f64(share);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let killed_after = began.elapsed();
        self.setup.kill_controller()?;
        let found = Found::read(&self.setup)?;
        let verdict = found.judge(&self.whole);
        let began = Instant::now();
        self.setup.start_controller()?;
        // Tables are read one after the other: a row that is replaced meanwhile looks orphaned,
        // once.
        let mut again = Found::default();
        let is_whole = |rounds: &Self| {
            again = Found::read(&rounds.setup)?;
            let is_whole = again.is_as(&rounds.whole) && again.records.orphans.is_empty();
            Ok(is_whole.then_some(()))
        };
        let whole = self.wait(LOOK, is_whole)?;
        let whole_ms = whole.is_some().then(|| ms(began.elapsed()));
        if self.interrupt.is_set() {
            return Ok(None);
        }
        let foreign = self.foreign.symmetric_difference(&again.foreign);
        let round = Round {
            round,
            kind,
            killed_after_ms: ms(killed_after),
            orphans_killed: found.records.orphans.len(),
            orphans: again.records.orphans.len(),
            foreign_changed: foreign.cloned().collect(),
            whole_ms,
            cleared_ms: self.clear()?.map(ms),
            text: verdict.is_in_the_middle().then(|| found.text()),
            verdict,
        };
        if let Some(casualty) = self.setup.network.casualty() {
            let words = self.setup.network.last_words("controller.log");
            return Err(Failure::machine(format!("{casualty}: {words}")));
        }
        match round.cleared_ms {
            None => self.unmet("what is not asked for any more is gone"),
            Some(_) => Ok(Some(round)),
        }
    }

    /// Asks for nothing any more, until nothing is there; how long that took.
    fn clear(&mut self) -> Result<Option<Duration>, Failure> {
        self.setup.write_config("")?;
        let began = Instant::now();
        self.setup.reload()?;
        let is_clear = |rounds: &Self| {
            let found = Found::read(&rounds.setup)?;
            let is_clear = found.is_clear() && found.records.orphans.is_empty();
            Ok(is_clear.then_some(()))
        };
        let cleared = self.wait(LOOK, is_clear)?;
        Ok(cleared.map(|()| began.elapsed()))
    }

    fn is_installed(&self) -> Result<Option<()>, Failure> {
        let all = [&ENTRIES[..], &[QUEUES]].concat();
        self.is_in_place(&all)
    }

    /// Whether the controller reports some of these kinds, and all of them in place.
    fn is_in_place(&self, kinds: &[Kinds]) -> Result<Option<()>, Failure> {
        let state = self.setup.state()?;
        let is_there = |(kind, states): &Kinds| {
            let items = state[*kind].as_object().filter(|items| !items.is_empty());
            items.is_some_and(|items| {
                let is_so = |item: &Value| states.iter().any(|state| item["state"] == *state);
                items.values().all(is_so)
            })
        };
        Ok(kinds.iter().all(is_there).then_some(()))
    }

    fn is_whole(&self) -> Result<Option<()>, Failure> {
        let is_whole = Found::read(&self.setup)?.is_as(&self.whole);
        Ok(is_whole.then_some(()))
    }

    /// Reads until nothing changes any more. The controller does not report ports that only
    /// circuits use.
    fn settled(&self) -> Result<Found, Failure> {
        let mut found = Found::read(&self.setup)?;
        let mut steady = 0;
        while steady < 10 && !self.interrupt.is_set() {
            std::thread::sleep(2 * LOOK);
            let again = Found::read(&self.setup)?;
            steady = match again == found {
                true => steady + 1,
                false => 0,
            };
            found = again;
        }
        Ok(found)
    }

    fn wait<T>(
        &self,
        interval: Duration,
        mut look: impl FnMut(&Self) -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        within(PATIENCE, interval, self.interrupt, || look(self))
    }

    /// It took too long, or was interrupted.
    fn unmet<T>(&self, what: &str) -> Result<Option<T>, Failure> {
        match self.interrupt.is_set() {
            true => Ok(None),
            false => Err(Failure::negative(format!(
                "not within {} s: {what}; the controller says: {}; there is:\n{}",
                PATIENCE.as_secs(),
                self.setup.state()?,
                Found::read(&self.setup)?.text()
            ))),
        }
    }
}

/// Entries in both tables that auster uses, a meter, and a port with queues, as an operator may
/// have made them by hand.
fn set_foreign(setup: &Controlled) -> Result<(), Failure> {
    let topology = &setup.network.topology;
    for switch in &topology.switches {
        let name = &switch.name;
        setup.ofctl(
            name,
            &["add-meter", "meter=7,kbps,band=type=drop,rate=1000"],
        )?;
        for entry in [
            "cookie=0xbeef,table=0,priority=3111,dl_type=0x9999,actions=drop",
            "cookie=0xbeef,table=1,priority=202,dl_type=0x9999,actions=set_queue:1,output:2",
            "cookie=0,table=3,priority=1,actions=drop",
        ] {
            setup.ofctl(name, &["add-flow", entry])?;
        }
    }
    let second = topology.hosts.iter().skip(1).step_by(HOSTS_PER_SWITCH);
    for host in second {
        let line = format!(
            "set port {} qos=@q -- --id=@q create qos type=linux-noop other_config:max-rate=7 \
             external_ids:owner=somebody queues:1=@q1 -- --id=@q1 create queue dscp=46 \
             other_config:min-rate=3",
            device(topology, host.at)
        );
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        setup.network.vsctl(&words)?;
    }
    let alone = ["create", "queue", "external_ids:auster=somebody", "dscp=1"];
    setup.network.vsctl(&alone).map(drop)
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}
