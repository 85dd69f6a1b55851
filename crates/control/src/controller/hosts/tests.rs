//! Places and addresses under any interleaving of hosts, attackers, answers and time.

use std::collections::BTreeMap;

use openflow::{DatapathId, PortNo};
use proptest::prelude::*;

use super::age::LifeQuestion;
use super::*;
use crate::controller::crowds::Crowds;

const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const HOME: u32 = 1;
/// The host's port once it has moved; attackers are at those after it.
const NEW: u32 = 2;
const ATTACKERS: u32 = 3;
/// The place is contested for 0.9 s, or 3 s where the host has announced no address, and the host
/// sends a frame every 0.2 s.
const MOVED_WITHIN: Duration = Duration::from_millis(1200);
const MOVED_WITHOUT_ADDRESS: Duration = Duration::from_millis(3300);

fn port(n: u32) -> Location {
    Location::new(DatapathId(1), PortNo(n))
}

fn address(v6: bool) -> IpAddr {
    match v6 {
        true => "2001:db8::1".parse().unwrap(),
        false => "10.0.0.1".parse().unwrap(),
    }
}

fn hosts() -> Hosts {
    let shares = Shares {
        count_max: 10_000,
        per_switch_max: 10_000,
        per_port_max: 10_000,
    };
    Hosts::new(crate::vlan::VlanId::NONE, shares, 1, 1)
}

/// One step of ageing at ports that are not crowded.
pub(super) fn age(hosts: &mut Hosts, now: Instant, host_idle: Duration) -> Vec<LifeQuestion> {
    let patience = Patience {
        host_idle,
        hears_all: true,
        crowds: &Crowds::new(u32::MAX),
    };
    hosts.age(now, patience, &mut Step::default(), |_| false)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Wait(u64),
    /// The host sends a packet, which may or may not reach the controller. The packet announces no
    /// address.
    Speaks,
    Tells,
    /// An attacker at its port sends from the host's hardware address.
    ClaimsPlace(u32),
    /// An attacker, with its own hardware address, claims the host's IP address.
    ClaimsAddress(u32),
    /// The host's switch disconnects, or reconnects.
    Hears(bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (1u64..700).prop_map(Act::Wait),
        1 => Just(Act::Speaks),
        1 => Just(Act::Tells),
        4 => (0..3u32).prop_map(Act::ClaimsPlace),
        4 => (0..3u32).prop_map(Act::ClaimsAddress),
        1 => any::<bool>().prop_map(Act::Hears),
    ];
    proptest::collection::vec(act, 0..120)
}

/// The environment of the table: it asks on the table's behalf, and the host answers after a delay.
struct World {
    hosts: Hosts,
    now: Instant,
    /// Where the host is.
    at: u32,
    ip: Option<IpAddr>,
    delay: Duration,
    hears: bool,
    heard_since: Instant,
    host_due: Option<Instant>,
    address_due: Option<Instant>,
    /// When the host answers, and whether the answer is for its address.
    answers: Vec<(Instant, bool)>,
}

impl World {
    fn new(ip: Option<IpAddr>, delay: Duration) -> World {
        let mut world = World {
            hosts: hosts(),
            now: Instant::START,
            at: HOME,
            ip,
            delay,
            hears: true,
            heard_since: Instant::START,
            host_due: None,
            address_due: None,
            answers: Vec::new(),
        };
        world.frame(HOST, HOME, ip);
        for n in 0..3 {
            world.frame(attacker(n), ATTACKERS + n, None);
        }
        world
    }

    fn frame(&mut self, mac: MacAddr, at: u32, ip: Option<IpAddr>) {
        let observed = self
            .hosts
            .observe(self.now, mac, port(at), |_| false, |_| false);
        if let Observed::Contested {
            ask: Some(question),
        } = &observed
        {
            self.asked(question);
        }
        let is_there = matches!(
            observed,
            Observed::Home | Observed::Placed | Observed::Defended { .. }
        );
        if let Observed::Defended { claimant, .. } = observed {
            assert_ne!(claimant, port(at), "the host itself is accused");
        }
        let Some(ip) = ip.filter(|_| is_there) else {
            return;
        };
        match self.hosts.tell(self.now, mac, port(at), ip) {
            AddressVerdict::Contested {
                ask: Some(question),
            } => self.asked_for_address(question),
            AddressVerdict::Defended { claimant, at, .. } => {
                assert!(claimant != HOST && at.port.0 >= ATTACKERS);
                self.address_due = self.hosts.dispute_due(ip);
            }
            _ => {}
        }
    }

    fn asked(&mut self, question: &Question) {
        self.host_due = Some(question.due);
        let is_at_host = question.home == port(self.at) && self.hears;
        if is_at_host && self.ip.is_none_or(|ip| question.ips.contains(&ip)) {
            self.answers.push((self.now + self.delay, false));
        }
    }

    fn asked_for_address(&mut self, question: AddressQuestion) {
        self.address_due = Some(question.due);
        if (question.home, question.owner) == (port(self.at), HOST) && self.hears {
            assert_eq!(Some(question.ip), self.ip);
            self.answers.push((self.now + self.delay, true));
        }
    }

    /// The host sends a frame at its port, if the port is heard.
    fn speaks(&mut self, ip: Option<IpAddr>) {
        if self.hears || self.at != HOME {
            self.frame(HOST, self.at, ip);
        }
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let answer = self.answers.iter().map(|(at, _)| *at).min();
            let dues = [self.host_due, self.address_due, answer];
            let Some(next) = dues.into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if self.host_due.is_some_and(|due| due <= self.now) {
                self.host_due = None;
                let heard = self.heard();
                match self.hosts.handle_timeout(self.now, HOST, heard) {
                    Some(Answer::Ask(question)) => self.asked(&question),
                    Some(Answer::Moved { .. } | Answer::Dropped { .. }) | None => {}
                }
            } else if self.address_due.is_some_and(|due| due <= self.now) {
                self.address_due = None;
                let heard = self.heard();
                let ip = self.ip.expect("asked for");
                match self.hosts.handle_address_timeout(self.now, ip, heard) {
                    Some(AddressAnswer::Ask(question)) => self.asked_for_address(question),
                    Some(AddressAnswer::Moved { .. }) | None => {}
                }
            } else {
                let due = self.answers.iter().position(|(at, _)| *at <= self.now);
                let (_, tells) = self.answers.swap_remove(due.expect("it is the next"));
                let ip = self.ip.filter(|_| tells);
                self.speaks(ip);
            }
        }
        self.now = end;
    }

    fn set_hears(&mut self, hears: bool) {
        if hears && !self.hears {
            self.heard_since = self.now;
        }
        self.hears = hears;
    }

    /// Since when a place is heard. Ports other than the host's are always heard.
    fn heard(&self) -> impl Fn(Location) -> Option<Instant> + use<> {
        let home = self.hears.then_some(self.heard_since);
        move |at| match at == port(HOME) {
            true => home,
            false => Some(Instant::START),
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Wait(time) => self.wait(ms(time)),
            Act::Speaks => self.speaks(None),
            Act::Tells => self.speaks(self.ip),
            Act::ClaimsPlace(n) => self.frame(HOST, ATTACKERS + n, None),
            Act::ClaimsAddress(n) => self.frame(attacker(n), ATTACKERS + n, self.ip),
            Act::Hears(hears) => self.set_hears(hears),
        }
    }

    /// Checks that the table and its parts agree.
    fn check(&self) {
        let macs = (0..3).map(attacker).chain([HOST]);
        let owned = macs.flat_map(|mac| self.hosts.ips(mac).into_iter().map(move |ip| (ip, mac)));
        let owned: Vec<(IpAddr, MacAddr)> = owned.collect();
        let by_ip: BTreeMap<IpAddr, MacAddr> = owned.iter().copied().collect();
        assert_eq!(owned.len(), by_ip.len(), "two own an address: {owned:?}");
        for (ip, mac) in owned {
            assert_eq!(self.hosts.by_ip(ip), Some(mac));
        }
        if let Some(ip) = self.ip {
            let owner = self.hosts.addresses().get(ip).map(|owner| owner.mac);
            assert_eq!(owner, self.hosts.undisputed(ip));
        }
    }
}

/// A place that is heard all the time.
fn always(_: Location) -> Option<Instant> {
    Some(Instant::START)
}

fn attacker(n: u32) -> MacAddr {
    MacAddr([2, 0, 0, 0, 9, n as u8])
}

/// The host's switch is away for a moment each time that the host answers.
#[test]
fn a_switch_that_comes_and_goes_does_not_silence_its_hosts() {
    use Act::{ClaimsPlace, Hears, Wait};
    let mut world = World::new(None, ms(161));
    world.act(ClaimsPlace(0));
    for _ in 0..20 {
        for act in [Wait(100), Hears(false), Wait(150), Hears(true), Wait(50)] {
            world.act(act);
        }
        world.act(ClaimsPlace(0));
        assert_eq!(world.hosts.place(HOST), Some(port(HOME)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The host answers within 0.29 s whenever it is asked.
    #[test]
    fn a_host_that_answers_keeps_its_place_and_its_address(
        acts in acts(), delay in 0u64..290, v6 in proptest::option::of(any::<bool>()),
    ) {
        let ip = v6.map(address);
        let mut world = World::new(ip, ms(delay));
        for act in acts {
            world.act(act);
            prop_assert_eq!(world.hosts.place(HOST), Some(port(HOME)));
            if let Some(ip) = ip {
                prop_assert_eq!(world.hosts.by_ip(ip), Some(HOST));
            }
            world.check();
        }
    }

    /// The attackers have done what they could, and continue at the ports where they have been
    /// refused; the host moves silently and then sends five times a second.
    #[test]
    fn a_host_that_has_moved_gets_its_place(
        acts in acts(), delay in 0u64..290, v6 in proptest::option::of(any::<bool>()),
    ) {
        let ip = v6.map(address);
        let mut world = World::new(ip, ms(delay));
        for act in acts {
            world.act(act);
        }
        world.set_hears(true);
        // An open question is answered before the host leaves.
        world.wait(ms(700));
        world.at = NEW;
        world.answers.clear();
        // An attacker may have got the address while the host's switch was away.
        let has_address = ip.is_some_and(|ip| world.hosts.by_ip(ip) == Some(HOST));
        let bound = match has_address {
            true => MOVED_WITHIN,
            false => MOVED_WITHOUT_ADDRESS,
        };
        let since = world.now;
        while world.hosts.place(HOST) != Some(port(NEW)) {
            prop_assert!(world.now.since(since) <= bound, "{:?}", world.now.since(since));
            world.speaks(ip);
            world.wait(ms(200));
        }
        if let Some(ip) = ip.filter(|_| has_address) {
            world.speaks(Some(ip));
            prop_assert_eq!(world.hosts.by_ip(ip), Some(HOST));
        }
    }

    /// The owner is silent for ever, and another host announces its address five times a second.
    #[test]
    fn an_address_of_a_silent_host_is_given_up(acts in acts(), delay in 0u64..290) {
        let ip = address(false);
        let mut world = World::new(Some(ip), ms(delay));
        for act in acts {
            world.act(act);
        }
        world.set_hears(true);
        world.wait(ms(700));
        // The host leaves silently; its port stays up.
        world.at = 99;
        world.answers.clear();
        let since = world.now;
        let heir = MacAddr([2, 0, 0, 0, 7, 7]);
        while world.hosts.by_ip(ip) != Some(heir) {
            // A claim that was refused before is refused for ten seconds.
            let bound = REJECTED + ms(1300);
            prop_assert!(world.now.since(since) <= bound, "{:?}", world.now.since(since));
            world.frame(heir, NEW, Some(ip));
            world.wait(ms(200));
        }
        world.check();
    }
}

/// The number of frames that the host sends at its new port, one every `interval`, until it has its
/// place there.
fn frames_until_moved(world: &mut World, interval: Duration) -> u32 {
    for frames in 1..=100 {
        world.frame(HOST, NEW, None);
        world.wait(interval);
        if world.hosts.place(HOST) == Some(port(NEW)) {
            return frames;
        }
    }
    panic!("a hundred frames every {interval:?} have not moved the host");
}

/// The host has announced no address, and does not send twice while its old place is asked.
#[test]
fn a_host_that_speaks_seldom_gets_its_place() {
    for seconds in [3, 5, 30, 299] {
        let mut world = World::new(None, ms(100));
        world.at = NEW;
        let interval = Duration::from_secs(seconds);
        assert_eq!(frames_until_moved(&mut world, interval), 2);
    }
}

#[test]
fn one_frame_moves_no_host_that_has_told_no_address() {
    let mut world = World::new(None, ms(100));
    // Nobody answers from now on.
    world.at = 99;
    // A claim that lapsed is forgotten after five minutes, and counts for its own port alone.
    for at in [NEW, NEW, ATTACKERS, NEW] {
        world.frame(HOST, at, None);
        let pause = if at == NEW { 310 } else { 10 };
        world.wait(Duration::from_secs(pause));
        assert_eq!(world.hosts.place(HOST), Some(port(HOME)));
    }
    // A frame at home shows that the host is there.
    for _ in 0..3 {
        world.frame(HOST, NEW, None);
        world.wait(Duration::from_secs(5));
        world.frame(HOST, HOME, None);
        assert_eq!(world.hosts.place(HOST), Some(port(HOME)));
    }
}

/// The old place disappeared while it was asked, and the host has sent from a new place since.
#[test]
fn a_contest_ends_with_the_place_that_it_is_about() {
    let mut hosts = hosts();
    let mut now = Instant::START;
    let _ = hosts.observe(now, HOST, port(HOME), |_| false, |_| false);
    let claim = hosts.observe(now, HOST, port(ATTACKERS), |_| false, |_| false);
    assert!(matches!(claim, Observed::Contested { ask: Some(_) }));
    let gone = |at| at == port(HOME);
    let observed = hosts.observe(now, HOST, port(NEW), gone, |_| false);
    assert_eq!(observed, Observed::Placed);
    for _ in 0..20 {
        now += PROBE_INTERVAL;
        assert_eq!(hosts.handle_timeout(now, HOST, always), None);
    }
    assert_eq!(hosts.place(HOST), Some(port(NEW)));
}

/// A host that was asked whether it is alive, and then sends from another port, is alive.
#[test]
fn a_host_that_has_moved_is_not_asked_for_its_life() {
    let mut hosts = hosts();
    let mut now = Instant::START;
    let _ = hosts.observe(now, HOST, port(HOME), |_| false, |_| false);
    let _ = hosts.tell(now, HOST, port(HOME), address(false));
    let idle = Duration::from_secs(600);
    now += idle + Duration::from_secs(10);
    assert_eq!(age(&mut hosts, now, idle).len(), 1);
    hosts.unplace(now, port(HOME));
    let observed = hosts.observe(now, HOST, port(NEW), |_| true, |_| false);
    assert_eq!(observed, Observed::Placed);
    for _ in 0..8 {
        now += Duration::from_secs(1);
        assert_eq!(age(&mut hosts, now, idle), []);
    }
    assert_eq!(hosts.place(HOST), Some(port(NEW)));
}

/// A host at each of the first ports: the first owns the address and the second claims it.
fn claimed() -> (Hosts, [MacAddr; 3]) {
    let mut hosts = hosts();
    let now = Instant::START;
    let macs = [0, 1, 2].map(attacker);
    for (mac, at) in macs.into_iter().zip(1..) {
        let _ = hosts.observe(now, mac, port(at), |_| false, |_| false);
    }
    let ip = address(false);
    assert_eq!(hosts.tell(now, macs[0], port(1), ip), AddressVerdict::New);
    let claim = hosts.tell(now, macs[1], port(2), ip);
    assert!(matches!(claim, AddressVerdict::Contested { ask: Some(_) }));
    (hosts, macs)
}

#[test]
fn a_claim_of_an_address_ends_with_the_owner_that_it_is_against() {
    let ip = address(false);
    for is_forgotten in [false, true] {
        let (mut hosts, macs) = claimed();
        let mut now = Instant::START + ms(200);
        if is_forgotten {
            hosts.forget(macs[0], Some(port(1)));
            assert_eq!(hosts.tell(now, macs[2], port(3), ip), AddressVerdict::New);
        } else {
            hosts.unplace(now, port(1));
            let taken = AddressVerdict::Taken { from: macs[0] };
            assert_eq!(hosts.tell(now, macs[2], port(3), ip), taken);
        }
        for _ in 0..20 {
            now += PROBE_INTERVAL;
            assert_eq!(hosts.handle_address_timeout(now, ip, always), None);
        }
        assert_eq!(hosts.by_ip(ip), Some(macs[2]));
    }
}

#[test]
fn an_owner_that_has_moved_is_asked_at_its_new_place() {
    let ip = address(false);
    let (mut hosts, macs) = claimed();
    let mut now = Instant::START;
    for _ in 1..PROBES {
        now += PROBE_INTERVAL;
        let answer = hosts.handle_address_timeout(now, ip, always);
        assert!(matches!(answer, Some(AddressAnswer::Ask(_))));
    }
    hosts.unplace(now, port(1));
    let _ = hosts.observe(now, macs[0], port(4), |_| true, |_| false);
    for _ in 0..PROBES {
        now += PROBE_INTERVAL;
        let Some(AddressAnswer::Ask(question)) = hosts.handle_address_timeout(now, ip, always)
        else {
            panic!("silence at its old place was counted");
        };
        assert_eq!(question.home, port(4));
    }
    now += PROBE_INTERVAL;
    let (from, to) = (macs[0], macs[1]);
    let answer = hosts.handle_address_timeout(now, ip, always);
    assert_eq!(answer, Some(AddressAnswer::Moved { from, to }));
}

/// None of eight addresses is evicted while the host announces it. An address that it has not
/// announced for long is.
#[test]
fn a_host_owns_eight_addresses_and_old_ones_give_way() {
    let mut hosts = hosts();
    let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
    let mut now = Instant::START;
    assert_eq!(
        hosts.observe(now, HOST, port(1), |_| false, |_| false),
        Observed::Placed
    );
    for n in 0..8 {
        assert_eq!(hosts.tell(now, HOST, port(1), ip(n)), AddressVerdict::New);
    }
    assert_eq!(
        hosts.tell(now, HOST, port(1), ip(8)),
        AddressVerdict::TooMany
    );
    assert_eq!(
        hosts.tell(now, HOST, port(1), address(true)),
        AddressVerdict::New,
        "of the other kind"
    );
    now += Duration::from_secs(600);
    assert_eq!(hosts.tell(now, HOST, port(1), ip(0)), AddressVerdict::Known);
    assert_eq!(hosts.tell(now, HOST, port(1), ip(8)), AddressVerdict::New);
    assert_eq!(hosts.by_ip(ip(0)), Some(HOST), "told again since");
    assert_eq!(hosts.by_ip(ip(1)), None, "told the longest ago");
    let asked = hosts.details.get(&HOST).unwrap().asked(HOST);
    assert_eq!(
        asked[..2],
        [ip(8), ip(0)],
        "the last told is the first asked"
    );
}

/// One port cannot open so many claims that other ports are refused.
#[test]
fn claims_of_a_port_are_bounded() {
    let mut hosts = hosts();
    let now = Instant::START;
    let mac = |n: u32| MacAddr::from_u64(0x0200_0000_0000 + u64::from(n));
    let ip = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
    for n in 0..2000 {
        let _ = hosts.observe(now, mac(n), port(n), |_| false, |_| false);
        assert_eq!(hosts.tell(now, mac(n), port(n), ip(n)), AddressVerdict::New);
    }
    let asked = |told: &AddressVerdict| matches!(told, AddressVerdict::Contested { ask: Some(_) });
    let claims = (1..2000).map(|n| hosts.tell(now, mac(0), port(0), ip(n)));
    let claims: Vec<AddressVerdict> = claims.collect();
    let is_asked = claims.iter().filter(|told| asked(told)).count();
    assert_eq!(is_asked, 64);
    let alarms = claims
        .iter()
        .filter(|told| matches!(told, AddressVerdict::Rejected { alarm: true, .. }));
    assert_eq!(alarms.count(), 1);
    assert!(asked(&hosts.tell(now, mac(1), port(1), ip(1999))));
}
