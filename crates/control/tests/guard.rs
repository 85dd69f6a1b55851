//! Guards of several controllers at one switch that knows roles, in any order of their messages.

use std::collections::VecDeque;

use clock::{Duration, Instant, SplitMix64};
use control::guard::{Guard, GuardOutput, PROBATION};
use openflow::ErrorKind;
use openflow::message::{Role, RoleMessage, RoleReason, RoleStatus};

const MS: Duration = Duration::from_millis(1);

fn below(rng: &mut SplitMix64, end: u64) -> u64 {
    rng.next() % end
}

/// A message of the switch to a controller.
#[derive(Clone, Debug)]
enum Said {
    Reply(RoleMessage),
    Refused(ErrorKind),
    Status(RoleStatus),
}

/// One controller: its guard while it is connected, and the messages under way.
struct Party {
    guard: Option<Guard>,
    role: Role,
    to_switch: VecDeque<(Instant, RoleMessage)>,
    from_switch: VecDeque<(Instant, Said)>,
    /// The time until which the controller's process is stopped and does nothing.
    stopped_until: Instant,
    is_patient: bool,
    delay_max: u64,
    requests: u64,
    decisions: Vec<(Instant, GuardOutput)>,
}

impl Party {
    fn serves(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_serving)
    }
}

/// A switch that behaves like Open vSwitch (OpenFlow 1.3.5, 6.3.6), and the parties.
struct World {
    now: Instant,
    rng: SplitMix64,
    generation: Option<u64>,
    /// Whether the switch reports lost roles, as Open vSwitch does.
    has_status: bool,
    parties: Vec<Party>,
}

impl World {
    fn new(seed: u64, count: usize, delay_max: u64) -> World {
        let party = |_| Party {
            guard: None,
            role: Role::Equal,
            to_switch: VecDeque::new(),
            from_switch: VecDeque::new(),
            stopped_until: Instant::START,
            is_patient: false,
            delay_max,
            requests: 0,
            decisions: Vec::new(),
        };
        World {
            now: Instant::START + MS * 1000,
            rng: SplitMix64::new(seed),
            generation: None,
            has_status: true,
            parties: (0..count).map(party).collect(),
        }
    }

    fn connect(&mut self, at: usize) {
        self.disconnect(at);
        self.parties[at].guard = Some(Guard::new(self.now, self.parties[at].is_patient));
        self.parties[at].role = Role::Equal;
        self.drain(at);
    }

    /// Has another process take over the connection. The switch has handled the previous process's
    /// requests, and its answers to them mean nothing.
    fn resume(&mut self, at: usize) {
        if self.parties[at].guard.take().is_none() {
            return self.connect(at);
        }
        while let Some((_, request)) = self.parties[at].to_switch.pop_front() {
            self.handle_request(at, request);
        }
        self.parties[at].from_switch.clear();
        self.parties[at].guard = Some(Guard::resume(self.now, self.parties[at].is_patient));
        self.drain(at);
    }

    fn disconnect(&mut self, at: usize) {
        let party = &mut self.parties[at];
        party.guard = None;
        party.role = Role::Equal;
        party.to_switch.clear();
        party.from_switch.clear();
    }

    fn delay(&mut self, at: usize, last: Option<Instant>) -> Instant {
        let delay = below(&mut self.rng, self.parties[at].delay_max + 1) as u32;
        let due = self.now + MS * delay;
        last.map_or(due, |last| last.max(due))
    }

    /// Carries out the guard's outputs.
    fn drain(&mut self, at: usize) {
        while let Some(output) = self.parties[at].guard.as_mut().and_then(Guard::poll_output) {
            self.parties[at].decisions.push((self.now, output));
            if let GuardOutput::Request(request) = output {
                let last = self.parties[at].to_switch.back().map(|(due, _)| *due);
                let due = self.delay(at, last);
                self.parties[at].to_switch.push_back((due, request));
                self.parties[at].requests += 1;
            }
        }
    }

    fn say(&mut self, at: usize, said: Said) {
        let last = self.parties[at].from_switch.back().map(|(due, _)| *due);
        let due = self.delay(at, last);
        self.parties[at].from_switch.push_back((due, said));
    }

    /// A role request as Open vSwitch handles it.
    fn handle_request(&mut self, at: usize, request: RoleMessage) {
        if request.role != Role::NoChange {
            let id = request.generation_id;
            if self
                .generation
                .is_some_and(|known| (id.wrapping_sub(known) as i64) < 0)
            {
                return self.say(at, Said::Refused(ErrorKind::ROLE_STALE));
            }
            self.generation = Some(id);
            if request.role == Role::Primary {
                self.demote_others(at, id);
            }
            self.parties[at].role = request.role;
        }
        let reply = RoleMessage::new(self.parties[at].role, self.generation.unwrap_or(u64::MAX));
        self.say(at, Said::Reply(reply));
    }

    fn demote_others(&mut self, master: usize, generation_id: u64) {
        for at in 0..self.parties.len() {
            if at != master && self.parties[at].role == Role::Primary {
                self.parties[at].role = Role::Secondary;
                if self.has_status && self.parties[at].guard.is_some() {
                    let status = RoleStatus {
                        role: Role::Secondary,
                        reason: RoleReason::PRIMARY_REQUEST,
                        generation_id,
                        properties: Vec::new(),
                    };
                    self.say(at, Said::Status(status));
                }
            }
        }
    }

    /// The next time at which anything happens.
    fn due(&self) -> Option<Instant> {
        let dues = self.parties.iter().flat_map(|party| {
            let woken = |due: &mut Instant| *due = (*due).max(party.stopped_until);
            let mut timer = party.guard.as_ref().and_then(Guard::poll_timeout);
            let mut said = party.from_switch.front().map(|(due, _)| *due);
            timer.as_mut().map(woken);
            said.as_mut().map(woken);
            [timer, said, party.to_switch.front().map(|(due, _)| *due)]
        });
        dues.flatten().min()
    }

    /// Advances to the next event, or to `end` if no event is due before.
    fn step(&mut self, end: Instant) {
        self.now = self.due().map_or(end, |due| due.min(end).max(self.now));
        for at in 0..self.parties.len() {
            while let Some((due, request)) = self.parties[at].to_switch.front().copied()
                && due <= self.now
            {
                self.parties[at].to_switch.pop_front();
                self.handle_request(at, request);
            }
        }
        for at in 0..self.parties.len() {
            self.run_party(at);
        }
    }

    fn run_party(&mut self, at: usize) {
        let now = self.now;
        if now < self.parties[at].stopped_until {
            return;
        }
        if let Some(guard) = &mut self.parties[at].guard {
            guard.handle_timeout(now);
        }
        self.drain(at);
        while let Some((due, said)) = self.parties[at].from_switch.front().cloned()
            && due <= now
        {
            self.parties[at].from_switch.pop_front();
            if let Some(guard) = &mut self.parties[at].guard {
                match said {
                    Said::Reply(reply) => guard.handle_reply(now, reply),
                    Said::Refused(kind) => guard.handle_refused(now, kind),
                    Said::Status(status) => guard.handle_status(now, status),
                }
            }
            self.drain(at);
        }
    }

    fn run(&mut self, ms: u64) {
        self.longest_overlap(ms);
    }

    fn serving(&self) -> Vec<usize> {
        let all = self.parties.iter().enumerate();
        all.filter(|(_, party)| party.serves())
            .map(|(at, _)| at)
            .collect()
    }

    /// Runs, and returns the longest time during which two controllers served that were not
    /// stopped.
    fn longest_overlap(&mut self, ms: u64) -> Duration {
        let end = self.now + MS * ms as u32;
        let mut longest = Duration::ZERO;
        let mut since = None;
        loop {
            let awake = |at: &usize| self.parties[*at].stopped_until <= self.now;
            if self.serving().into_iter().filter(awake).count() > 1 {
                let since = *since.get_or_insert(self.now);
                longest = longest.max(self.now.since(since));
            } else {
                since = None;
            }
            if self.now == end && self.due().is_none_or(|due| due > end) {
                return longest;
            }
            self.step(end);
        }
    }
}

/// Starts, deaths, returns and stops of up to three controllers, with delays of up to 40 ms.
#[test]
fn two_never_serve_for_longer_than_messages_are_under_way_and_one_does_in_the_end() {
    for seed in 0..1000 {
        let mut rng = SplitMix64::new(seed ^ 0x6a09_e667);
        let count = 2 + below(&mut rng, 2) as usize;
        let delay_max = below(&mut rng, 41);
        let mut world = World::new(seed, count, delay_max);
        if below(&mut rng, 4) == 0 {
            world.generation = Some(u64::MAX - below(&mut rng, 6));
        }
        for at in 0..count {
            world.parties[at].is_patient = below(&mut rng, 3) == 0;
            world.connect(at);
            world.run(below(&mut rng, 600) * below(&mut rng, 2));
        }
        let mut longest = Duration::ZERO;
        for _ in 0..12 {
            let at = below(&mut rng, count as u64) as usize;
            match below(&mut rng, 5) {
                4 => world.resume(at),
                0 => world.disconnect(at),
                1 => world.connect(at),
                2 => {
                    let stop = MS * below(&mut rng, 12_000) as u32;
                    world.parties[at].stopped_until = world.now + stop;
                }
                _ => {}
            }
            longest = longest.max(world.longest_overlap(below(&mut rng, 8000)));
        }
        // A claim and its answer, a notice, and the claim back with its answer.
        assert!(
            longest <= MS * (5 * delay_max as u32),
            "seed {seed}: {longest:?}, delays {delay_max}"
        );
        for at in 0..count {
            if world.parties[at].guard.is_none() {
                world.connect(at);
            }
        }
        world.run(30_000);
        let before: Vec<u64> = world.parties.iter().map(|p| p.requests).collect();
        let served = world.serving();
        assert_eq!(served.len(), 1, "seed {seed}");
        // No other controller gets packets.
        let roles = world.parties.iter().map(|party| party.role);
        let others = roles.filter(|role| *role != Role::Secondary).count();
        assert_eq!(others, 1, "seed {seed}");
        world.run(20_000);
        assert_eq!(world.serving(), served, "seed {seed}");
        // One request a second from each controller, whether it serves or stands by.
        for (party, before) in world.parties.iter().zip(before) {
            assert!(party.requests - before <= 21, "seed {seed}");
        }
    }
}

/// A stopped controller is replaced, and yields when it continues.
#[test]
fn a_stopped_controller_is_replaced_in_seven_seconds_and_stands_by_afterwards() {
    let mut world = World::new(1, 2, 3);
    world.connect(0);
    world.run(1000);
    world.connect(1);
    world.run(5000);
    assert_eq!(world.serving(), [0]);
    world.parties[0].stopped_until = world.now + MS * 20_000;
    world.run(9000);
    assert!(world.parties[1].serves());
    assert!(world.parties[0].serves(), "it cannot know yet");
    world.run(11_050);
    assert_eq!(world.serving(), [1]);
    let reclaims = |at: usize| {
        world.parties[at]
            .guard
            .as_ref()
            .unwrap()
            .counters()
            .reclaims
    };
    assert_eq!(
        (reclaims(0), reclaims(1)),
        (1, 0),
        "only from the newcomer at first"
    );
}

#[test]
fn an_ordinary_start_takes_the_probation_and_its_messages() {
    let mut world = World::new(1, 1, 0);
    world.connect(0);
    let start = world.now;
    while !world.parties[0].serves() {
        world.step(start + MS * 1000);
    }
    let took = world.now.since(start);
    assert!(took >= PROBATION && took <= PROBATION + MS * 6, "{took:?}");
}

/// The switch reports that the connection still has the role. Once it does not, the process is a
/// newcomer.
#[test]
fn a_process_that_takes_over_the_role_serves_at_once() {
    let mut world = World::new(1, 2, 0);
    world.connect(0);
    world.run(5000);
    for _ in 0..5 {
        world.resume(0);
        assert_eq!(world.serving(), []);
        world.step(world.now);
        assert_eq!(world.serving(), [0]);
        assert_eq!(
            world.parties[0].guard.as_ref().unwrap().counters().claims,
            0
        );
        world.run(5000);
        assert_eq!(world.serving(), [0]);
    }
    // It takes the role back from a newcomer, like a controller that has served for long.
    world.connect(1);
    world.run(5000);
    assert_eq!(world.serving(), [0]);
    // Another controller claims the role meanwhile, and the process answers with a claim.
    let claim = RoleMessage::new(Role::Primary, world.generation.unwrap() + 1);
    world.handle_request(1, claim);
    world.resume(0);
    world.run(PROBATION.as_millis() as u64 - 1);
    assert_eq!(world.serving(), []);
    world.run(1000);
    assert_eq!(world.serving(), [0]);
}

/// Newcomers one after the other, as from a process that is restarted at once.
#[test]
fn a_newcomer_beside_one_that_serves_takes_nothing() {
    let mut world = World::new(7, 2, 5);
    world.connect(0);
    world.run(10_000);
    for _ in 0..5 {
        world.connect(1);
        assert_eq!(world.longest_overlap(900), Duration::ZERO);
        assert_eq!(world.serving(), [0]);
    }
    let asides = world.parties[0]
        .decisions
        .iter()
        .filter(|(_, d)| *d == GuardOutput::Aside);
    assert_eq!(asides.count(), 0);
    assert_eq!(
        world.parties[0].guard.as_ref().unwrap().counters().reclaims,
        5
    );
    world.disconnect(0);
    world.run(9000);
    assert_eq!(world.serving(), [1]);
}

/// A switch returns: the controller that has the other switches serves it, whoever is quicker.
#[test]
fn whoever_stands_by_elsewhere_lets_the_other_have_a_new_switch() {
    for seed in 0..100 {
        let mut world = World::new(seed, 2, 20);
        world.parties[1].is_patient = true;
        world.connect(1);
        world.run(seed % 7 * 500);
        world.connect(0);
        world.run(2000);
        assert_eq!(world.serving(), [0], "seed {seed}");
        world.run(20_000);
        assert_eq!(world.serving(), [0], "seed {seed}");
        world.disconnect(0);
        world.run(9000);
        assert_eq!(world.serving(), [1], "seed {seed}");
    }
}

/// A program that asks to be master under an id of its own, once or again and again.
#[test]
fn a_foreign_master_is_left_alone() {
    for repeats in [false, true] {
        let mut world = World::new(3, 2, 2);
        world.connect(0);
        world.run(5000);
        assert_eq!(world.serving(), [0]);
        let mut id = 1 << 40;
        for second in 0..60 {
            if second == 0 || repeats {
                let role = Role::Primary;
                world.handle_request(1, RoleMessage::new(role, id));
                id += 1000;
            }
            world.run(1000);
        }
        assert_eq!(world.serving(), []);
        assert_eq!(world.parties[0].role, Role::Secondary);
        assert_eq!(world.parties[1].role, Role::Primary);
        // A new connection counts as a newcomer.
        world.connect(0);
        world.run(1000);
        assert_eq!(world.serving(), [0]);
    }
}

/// The foreign master always takes the role back, with the next id, as a guard does, and never
/// raises the id otherwise.
#[test]
fn a_foreign_master_that_fights_wins_after_a_few_claims() {
    let mut world = World::new(3, 2, 0);
    world.connect(0);
    world.run(5000);
    let mut taken = 0;
    for _ in 0..120_000 {
        world.run(1);
        if world.parties[1].role != Role::Primary {
            taken += 1;
            let generation_id = world.generation.unwrap().wrapping_add(1);
            let role = Role::Primary;
            world.handle_request(1, RoleMessage::new(role, generation_id));
        }
    }
    assert!(taken <= 4, "{taken} claims");
    assert_eq!(world.serving(), []);
}

/// OpenFlow 1.3 has no ROLE_STATUS: the switch reports a lost role only when asked.
#[test]
fn without_notices_the_newcomer_serves_and_the_other_yields_within_two_seconds() {
    for seed in 0..50 {
        let mut world = World::new(seed, 2, 10);
        world.has_status = false;
        world.connect(0);
        world.run(3000 + 40 * seed);
        world.connect(1);
        assert!(world.longest_overlap(2500) <= MS * 2100);
        assert_eq!(world.serving(), [1]);
        world.run(30_000);
        assert_eq!(world.serving().len(), 1);
    }
}

#[test]
fn a_switch_without_roles_is_served_by_everyone() {
    for answers in [false, true] {
        let now = Instant::START;
        let mut guard = Guard::new(now, false);
        assert!(matches!(guard.poll_output(), Some(GuardOutput::Request(_))));
        let later = match answers {
            true => {
                guard.handle_refused(now, ErrorKind::BAD_TYPE);
                now
            }
            false => guard.poll_timeout().expect("a deadline"),
        };
        assert!(later.since(now) <= MS * 1000);
        guard.handle_timeout(later);
        assert_eq!(guard.poll_output(), Some(GuardOutput::Serve));
        assert_eq!(guard.poll_output(), None);
        assert_eq!((guard.poll_timeout(), guard.waits_since()), (None, None));
        assert!(guard.is_serving() && !guard.has_roles());
    }
}

/// It is not known which of the application's messages the switch refused from a slave.
#[test]
fn whoever_takes_the_role_back_after_refusals_begins_anew() {
    let mut world = World::new(5, 2, 5);
    world.connect(0);
    world.run(3000);
    let refuse = |world: &mut World| {
        let guard = world.parties[0].guard.as_mut().unwrap();
        guard.handle_slave_error();
        guard.counters().reclaims
    };
    // While it has the role, that is another's fault.
    refuse(&mut world);
    world.connect(1);
    while refuse(&mut world) == 0 {
        world.run(1);
    }
    world.run(2100);
    let decisions = world.parties[0]
        .decisions
        .iter()
        .map(|(_, decision)| *decision);
    let decisions: Vec<_> = decisions
        .filter(|decision| !matches!(decision, GuardOutput::Request(_)))
        .collect();
    let anew = [GuardOutput::Serve, GuardOutput::Aside, GuardOutput::Serve];
    assert_eq!(decisions, anew);
    assert_eq!(world.serving(), [0]);
}

/// Whatever a switch sends, the guard sends little: a request for each answer, and no more than its
/// deadlines require.
#[test]
fn a_hostile_switch_gets_few_messages() {
    for seed in 0..1000 {
        let mut rng = SplitMix64::new(seed);
        let mut now = Instant::START;
        let mut guard = Guard::new(now, false);
        let (mut requests, mut turns) = (0, 0);
        for _ in 0..2000 {
            now += MS * below(&mut rng, 30) as u32;
            let role = [Role::NoChange, Role::Equal, Role::Primary, Role::Secondary];
            let role = role[below(&mut rng, 4) as usize];
            let generation_id = below(&mut rng, 8).wrapping_sub(4);
            match below(&mut rng, 4) {
                0 => guard.handle_reply(now, RoleMessage::new(role, generation_id)),
                1 => {
                    let kinds = [ErrorKind::ROLE_STALE, ErrorKind::ROLE_UNSUP];
                    guard.handle_refused(now, kinds[below(&mut rng, 2) as usize]);
                }
                2 => guard.handle_status(
                    now,
                    RoleStatus {
                        role,
                        reason: RoleReason(0),
                        generation_id,
                        properties: Vec::new(),
                    },
                ),
                _ => guard.handle_timeout(now),
            }
            while let Some(output) = guard.poll_output() {
                match output {
                    GuardOutput::Request(_) => requests += 1,
                    _ => turns += 1,
                }
            }
        }
        let seconds = (now.as_nanos() / 1_000_000_000) as u32 + 1;
        assert!(
            requests <= 4 * seconds,
            "seed {seed}: {requests} in {seconds} s"
        );
        assert!(turns <= seconds, "seed {seed}: {turns} in {seconds} s");
    }
}
