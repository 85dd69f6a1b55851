//! Links and switches that fail, hosts that move and a controller that restarts, under load: the
//! time until all earlier conversations are carried again, and the messages needed for it.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::SplitMix64;
use openflow::PortNo;
use serde::Serialize;
use testbed::topology::Attachment;

use super::Workload;
use super::emulator::Emulator;
use super::load::Pace;
use super::run::{Runner, counts};
use super::switch::{Counts, Switch};
use crate::controller::switch::Announce;
use crate::controller::target::Server;
use cli::failure::Failure;
use measure::stats::Summary;

/// First packets in flight of each switch while conversations begin.
const WINDOW: u32 = 8;
const CONVERSE_MAX: Duration = Duration::from_secs(60);
/// Minimum and maximum time for which conversations are watched after an event.
const WATCH_MIN: Duration = Duration::from_secs(2);
const WATCH_MAX: Duration = Duration::from_secs(30);
/// Interval at which conversations without a path send a packet, as their hosts would.
const RESEND: Duration = Duration::from_millis(100);
/// Minimum interval between checks of all conversations, in time and in durations of a check.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_SHARE: u32 = 5;
const PAUSE: Duration = Duration::from_millis(1);
/// A pause before each event.
const CALM: Duration = Duration::from_secs(1);

/// One event and its effects.
#[derive(Clone, Debug, Serialize)]
pub struct EventFigures {
    /// For example `link down`.
    pub kind: &'static str,
    /// For example `s1-s2`.
    pub of: String,
    /// Conversations that had a path before and still could have one.
    pub conversations: usize,
    /// Conversations that were without a path at some time after the event.
    pub broken: usize,
    /// Time until the last one had a path again; `None` if some never had one.
    pub carried_again_ms: Option<f64>,
    /// Time without a path of each broken conversation.
    pub outage_ms: Summary,
    /// Time until a pair that had never communicated was served.
    pub served_ms: Option<f64>,
    /// Time from the event until the end of watching.
    pub watched_s: f64,
    /// Messages during that time, including those of the load.
    pub messages: Counts,
    /// Conversations that began during that time: the cost of the load alone.
    pub begun: usize,
}

/// A change of the network or its controller.
#[derive(Clone, Copy, Debug)]
enum Event {
    Link { link: usize, up: bool },
    Switch { switch: usize, up: bool },
    Move { host: u32, to: Attachment },
    Restart,
}

/// Begins the conversations that the events must not end.
pub fn converse(emulator: &mut Emulator, runner: &Runner) -> Result<(), Failure> {
    let wanted = runner.plan.conversations;
    emulator.world.set_pace(Pace::Closed { window: WINDOW });
    emulator.until(CONVERSE_MAX, |e| {
        e.world.conversations.len() >= wanted || e.world.pairs_exhausted
    });
    emulator.world.set_pace(Pace::Idle);
    emulator.until(runner.plan.timeout * 3, |e| e.world.is_drained());
    let carried = carried(emulator).len();
    if carried == 0 && !emulator.is_interrupted() {
        return Err(Failure::negative(format!(
            "no conversation of {} has a path through the tables; what is set for no pair cannot \
             be seen to fail",
            emulator.world.conversations.len()
        )));
    }
    Ok(())
}

pub fn run(
    runner: &Runner,
    emulator: &mut Emulator,
    server: &mut Server,
) -> Result<Vec<EventFigures>, Failure> {
    let mut random = SplitMix64::new(runner.plan.seed).fork(1);
    let mut figures = Vec::new();
    emulator.world.set_pace(runner.pace(emulator));
    for number in 0..runner.plan.events {
        if emulator.is_interrupted() {
            break;
        }
        runner.say(&format!("event {} of {}", number + 1, runner.plan.events));
        emulator.run_for(CALM);
        let before = carried(emulator);
        let events = match runner.plan.workload {
            Workload::Moves => vec![moving(emulator, &mut random)],
            Workload::Restart => vec![Event::Restart],
            // The last is a switch.
            _ if number + 1 == runner.plan.events => {
                let switch = failing_switch(emulator, &mut random);
                [false, true].map(|up| Event::Switch { switch, up }).into()
            }
            _ => {
                let links = emulator.world.fabric.net.links.len();
                if links == 0 {
                    return Err(Failure::usage(
                        "--workload failures needs links that can fail",
                    ));
                }
                let link = (random.next() % links as u64) as usize;
                [false, true].map(|up| Event::Link { link, up }).into()
            }
        };
        for event in events {
            let messages = counts(emulator);
            let began = emulator.now();
            let begun = emulator.world.conversations.len();
            apply(event, emulator, server)?;
            let mut figure = watch(emulator, &before, began, begun, event);
            figure.messages = counts(emulator).since(&messages);
            figure.begun = emulator.world.conversations.len() - begun;
            figures.push(figure);
        }
    }
    Ok(figures)
}

/// Picks a host, and a port of another switch to move to.
fn moving(emulator: &Emulator, random: &mut SplitMix64) -> Event {
    let net = &emulator.world.fabric.net;
    let conversations = &emulator.world.conversations;
    let some = conversations[(random.next() % conversations.len() as u64) as usize];
    let host = some.destination;
    let at = net.place(host).switch;
    let elsewhere: Vec<usize> = net.edges().filter(|edge| *edge != at).collect();
    let switch = elsewhere[(random.next() % elsewhere.len() as u64) as usize];
    let port = PortNo(1);
    let to = Attachment { switch, port };
    Event::Move { host, to }
}

/// Picks a switch without hosts if there is one: the others can then still communicate.
fn failing_switch(emulator: &Emulator, random: &mut SplitMix64) -> usize {
    let net = &emulator.world.fabric.net;
    let transit = (0..net.switch_count()).filter(|s| net.home(*s).is_empty());
    let mut candidates: Vec<usize> = transit.collect();
    if candidates.is_empty() {
        candidates = (0..net.switch_count()).collect();
    }
    candidates[(random.next() % candidates.len() as u64) as usize]
}

fn apply(event: Event, emulator: &mut Emulator, server: &mut Server) -> Result<(), Failure> {
    match event {
        Event::Link { link, up } => emulator.world.fabric.set_link(link, up),
        Event::Switch { switch, up } => {
            emulator.set_power(switch, up);
            let world = &mut emulator.world;
            world.is_out[switch] = !up;
            if !up {
                let ports = world.fabric.net.ports(switch);
                let new = Switch::new(switch, ports);
                let old = std::mem::replace(&mut world.fabric.switches[switch], new);
                world.fabric.switches[switch].counts = old.counts;
            }
            for link in world.fabric.net.links_of(switch) {
                world.fabric.set_link(link, up);
            }
        }
        Event::Move { host, to } => {
            emulator.world.fabric.net.move_host(host, to);
            let now = emulator.now();
            emulator.world.announce(now, host, Announce::Arp);
        }
        Event::Restart => match &mut server.target {
            Some(target) => target.start_again()?,
            None => {
                return Err(Failure::usage(
                    "--workload restart starts and kills the controller itself: give --start",
                ));
            }
        },
    }
    Ok(())
}

/// Returns the conversations that have a path now.
fn carried(emulator: &mut Emulator) -> Vec<u32> {
    let all = 0..emulator.world.conversations.len() as u32;
    all.filter(|id| emulator.world.is_carried(*id)).collect()
}

/// Returns the conversations that the network could carry.
fn possible(emulator: &Emulator, ids: &[u32]) -> Vec<u32> {
    let world = &emulator.world;
    let net = &world.fabric.net;
    let mut parts: Vec<Option<usize>> = vec![None; net.switch_count()];
    for switch in 0..net.switch_count() {
        if parts[switch].is_none() {
            let reached = net.reached(switch, |link| world.fabric.link_is_up(link));
            for (part, _) in parts
                .iter_mut()
                .zip(reached)
                .filter(|(_, reached)| *reached)
            {
                *part = Some(switch);
            }
        }
    }
    let is_possible = |id: &u32| {
        let conversation = world.conversations[*id as usize];
        let places = [conversation.source, conversation.destination].map(|host| net.place(host));
        let [a, b] = places.map(|place| place.switch);
        // Between hosts behind one port, no switch is involved.
        places[0] != places[1] && !world.is_out[a] && !world.is_out[b] && parts[a] == parts[b]
    };
    ids.iter().copied().filter(is_possible).collect()
}

/// Watches the conversations until all have a path, and for some time more.
fn watch(
    emulator: &mut Emulator,
    before: &[u32],
    began: clock::Instant,
    begun: usize,
    event: Event,
) -> EventFigures {
    let ids = possible(emulator, before);
    let mut pending: Vec<u32> = Vec::new();
    let mut outages: BTreeMap<u32, f64> = BTreeMap::new();
    let (mut look_at, mut resend_at) = (began, began);
    let (mut carried_again, mut served_ms) = (began, None);
    loop {
        let now = emulator.now();
        if now >= look_at {
            pending = ids.clone();
        }
        pending.retain(|id| !emulator.world.is_carried(*id));
        let seen = emulator.now();
        if now >= look_at {
            look_at = seen + LOOK.max((seen - now) * LOOK_SHARE);
        }
        for id in &pending {
            outages.insert(*id, milliseconds(began, seen));
        }
        if !pending.is_empty() {
            carried_again = seen;
        }
        if served_ms.is_none() {
            let new = &emulator.world.conversations[begun..];
            let is_served = new.iter().any(|conversation| conversation.delivered);
            served_ms = is_served.then(|| milliseconds(began, seen));
        }
        let watched = seen - began;
        let is_done = pending.is_empty() && served_ms.is_some() && watched >= WATCH_MIN;
        if is_done || watched >= WATCH_MAX || emulator.is_interrupted() {
            break;
        }
        if !pending.is_empty() && seen >= resend_at {
            resend_at = seen + RESEND;
            for id in &pending {
                emulator.world.send_again(seen, *id);
            }
        }
        emulator.run_for(PAUSE);
    }
    let (kind, of) = name(event, emulator);
    EventFigures {
        kind,
        of,
        conversations: ids.len(),
        broken: outages.len(),
        carried_again_ms: pending
            .is_empty()
            .then(|| milliseconds(began, carried_again)),
        outage_ms: Summary::of(outages.values().copied()),
        served_ms,
        watched_s: milliseconds(began, emulator.now()) / 1e3,
        messages: Counts::default(),
        begun: 0,
    }
}

fn milliseconds(from: clock::Instant, to: clock::Instant) -> f64 {
    (to - from).as_secs_f64() * 1e3
}

fn name(event: Event, emulator: &Emulator) -> (&'static str, String) {
    let net = &emulator.world.fabric.net;
    match event {
        Event::Link { link, up } => {
            let [a, b] = net.links[link].ends.map(|end| end.switch + 1);
            let kind = if up { "link up" } else { "link down" };
            (kind, format!("s{a}-s{b}"))
        }
        Event::Switch { switch, up } => {
            let kind = if up { "switch up" } else { "switch down" };
            (kind, format!("s{}", switch + 1))
        }
        Event::Move { host, to } => ("move", format!("h{} to s{}", host + 1, to.switch + 1)),
        Event::Restart => ("restart", "controller".to_owned()),
    }
}
