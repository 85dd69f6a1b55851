//! One run of one change, there and back, in a network of its own.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use openflow::PortNo;

use crate::reroute::part::{self, Burst, Carried, Part, Way};
use crate::reroute::settings::{By, Cell, Change, Settings};
use crate::timeouts::bed::{Bed, Wish};
use bench::network::udp;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::netns;
use testbed::network::{SWITCHES, device};
use testbed::topology::{Attachment, Topology};

/// Three switches, each with a host and joined to the other two; the stream goes from the first
/// to the last.
const TOPOLOGY: &str = "ring,3";
const INGRESS: &str = "s1";
const EGRESS: &str = "s3";
const ASIDE: &str = "s2";
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The link out of the ingress that each way begins with.
struct Ways {
    from: Attachment,
    to: Attachment,
}

/// `None` when it was interrupted.
pub fn run(
    settings: &Settings,
    cell: Cell,
    interrupt: &Interrupt,
) -> Result<Option<[Part; 2]>, Failure> {
    let change = &settings.changes[cell.change];
    let (topology, ways) = network(change)?;
    let wish = Wish {
        controller: "auster",
        topology: TOPOLOGY,
        detour_ms: 0.0,
        core: None,
        introduced: true,
    };
    let Some(mut bed) = Bed::start_on(topology, &settings.controller, &wish, interrupt)? else {
        return Ok(None);
    };
    let after = settings.after(change);
    let whole = settings.before() + 2 * after;
    let (bursts, changed) = std::thread::scope(|scope| {
        let ends = &bed.ends;
        let sender =
            scope.spawn(move || send(settings, change, (cell.rate_mbps, whole), ends, interrupt));
        let changed = change_twice(settings, change, (&bed, &ways), interrupt);
        (joined(sender), changed)
    });
    let (bursts, changed) = (bursts?, changed?);
    bed.check()?;
    let Some(changed) = changed.filter(|_| !interrupt.is_set()) else {
        return Ok(None);
    };
    let mut parts = part::split(&bursts, changed.at_ns);
    let wanted = match change.by {
        By::Administrator => [Some(Way::To), Some(Way::From)],
        // What was broken is whole again, and nothing has to go back to it.
        By::Cable => [Some(Way::To), None],
    };
    for (place, part) in parts.iter_mut().enumerate() {
        part.row = [&change.there, &change.back][place].clone();
        part.rate_mbps = cell.rate_mbps;
        part.run = cell.run;
        part.carried = changed.carried[place];
        part.wanted = wanted[place];
    }
    Ok(Some(parts))
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn network(change: &Change) -> Result<(Topology, Ways), Failure> {
    let mut topology = Topology::generate(TOPOLOGY, None).map_err(Failure::usage)?;
    let mut out = |far: &str, delay_ms: f64| {
        let ingress = topology.switches.iter().position(|s| s.name == INGRESS);
        let link = topology.link_between(INGRESS, far).cloned();
        let (ingress, link) = ingress
            .zip(link)
            .ok_or_else(|| Failure::usage(format!("{TOPOLOGY} has no link {INGRESS} to {far}")))?;
        for it in topology.links.iter_mut().filter(|it| **it == link) {
            it.impairment.delay = Duration::from_secs_f64(delay_ms / 1e3);
        }
        let end = link.ends.into_iter().find(|end| end.switch == ingress);
        end.ok_or_else(|| Failure::usage(format!("the link does not end at {INGRESS}")))
    };
    let ways = Ways {
        from: out(EGRESS, change.from_ms)?,
        to: out(ASIDE, change.to_ms)?,
    };
    Ok((topology, ways))
}

/// One burst that lasts, or many with rests between.
fn send(
    settings: &Settings,
    change: &Change,
    (rate_mbps, whole): (f64, Duration),
    ends: &bench::network::tcp::Ends,
    interrupt: &Interrupt,
) -> Result<Vec<Burst>, Failure> {
    let started = Instant::now();
    let mut bursts = Vec::new();
    while !interrupt.is_set() {
        let left = whole.saturating_sub(started.elapsed());
        let lasts = change
            .bursts
            .map_or(whole, |b| Duration::from_secs_f64(b.send_s));
        let pace = settings.pace(rate_mbps, lasts.min(left));
        if pace.count() == 0 {
            break;
        }
        let began_ns = real_ns();
        let stream = udp::stream_known(ends, &pace, &|| interrupt.is_set())?;
        bursts.push(Burst {
            began_ns,
            interval_ns: pace.interval().as_secs_f64() * 1e9,
            stream,
        });
        let Some(rests) = change.bursts else {
            break;
        };
        sleep_until(
            Instant::now() + Duration::from_secs_f64(rests.rest_s),
            interrupt,
        );
    }
    Ok(bursts)
}

/// When the changes were asked for, and which way carried the stream at the end of each.
struct Changed {
    at_ns: [u64; 2],
    carried: [Carried; 2],
}

/// `None` when it was interrupted.
fn change_twice(
    settings: &Settings,
    change: &Change,
    (bed, ways): (&Bed, &Ways),
    interrupt: &Interrupt,
) -> Result<Option<Changed>, Failure> {
    let mut due = Instant::now() + settings.before();
    let mut changed = Changed {
        at_ns: [0; 2],
        carried: [Carried::default(); 2],
    };
    for place in 0..2 {
        if !sleep_until(due, interrupt) {
            return Ok(None);
        }
        changed.at_ns[place] = real_ns();
        make(settings, change, (bed, ways), place == 0)?;
        let half = settings.after(change) / 2;
        sleep_until(due + half, interrupt);
        let before = counted(bed, ways)?;
        due += 2 * half;
        // The stream ends with the last change's time; its last packets do not matter here.
        sleep_until(due, interrupt);
        let after = counted(bed, ways)?;
        changed.carried[place] = Carried {
            from: after.from - before.from,
            to: after.to - before.to,
        };
    }
    Ok(Some(changed))
}

/// Has the way changed, or changed back.
fn make(
    settings: &Settings,
    change: &Change,
    (bed, ways): (&Bed, &Ways),
    is_there: bool,
) -> Result<(), Failure> {
    match change.by {
        By::Cable => bed.network.set_link(INGRESS, EGRESS, !is_there),
        By::Administrator => {
            let out = if is_there { ways.from } else { ways.to };
            let mut config = settings.controller.clone();
            let named = port_name(&bed.network.topology, out);
            config.insert("drain".to_owned(), vec![named].into());
            let wait_s = i64::try_from(change.drain_wait_s).unwrap_or(i64::MAX);
            config.insert("drain_wait_s".to_owned(), wait_s.into());
            bed.reconfigure(&config)
        }
    }
}

/// As `drain` names it.
fn port_name(topology: &Topology, at: Attachment) -> String {
    let PortNo(port) = at.port;
    format!("{:#x}:{port}", topology.switches[at.switch].dpid.0)
}

/// Packets that the ingress has sent on the first link of each way, ever.
fn counted(bed: &Bed, ways: &Ways) -> Result<Carried, Failure> {
    let failed = |e: std::io::Error| Failure::machine(format!("packet counters: {e}"));
    let file = "/proc/thread-self/net/dev";
    let namespace = bed.network.namespace(SWITCHES);
    let table = netns::within(&namespace, || std::fs::read_to_string(file)).map_err(failed)?;
    let of = |at: Attachment| {
        let name = device(&bed.network.topology, at);
        sent_packets(&table, &name)
            .ok_or_else(|| Failure::machine(format!("packet counters: none of {name}")))
    };
    Ok(Carried {
        from: of(ways.from)?,
        to: of(ways.to)?,
    })
}

/// From lines such as `s1-eth2: 7 1 0 0 0 0 0 0 9 2 0 …`: bytes, packets and six more of what was
/// received, then the same of what was sent.
fn sent_packets(table: &str, device: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, counts) = lines.find(|(name, _)| name.trim() == device)?;
    counts.split_whitespace().nth(9)?.parse().ok()
}

/// Whether it came to that.
fn sleep_until(due: Instant, interrupt: &Interrupt) -> bool {
    while !interrupt.is_set() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
    false
}

/// The clock that packets are stamped with.
fn real_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> Change {
        toml::from_str("there = 'a'\nback = 'b'\nby = 'cable'\nfrom_ms = 1\nto_ms = 4").unwrap()
    }

    #[test]
    fn each_way_has_its_delay_once() {
        let (topology, ways) = network(&change()).unwrap();
        let delay = |a, b| {
            let link = topology.link_between(a, b).unwrap();
            (link.impairment.delay.as_millis(), link.impairment.is_wire())
        };
        assert_eq!(delay(INGRESS, EGRESS), (1, false));
        assert_eq!(delay(INGRESS, ASIDE), (4, false));
        assert_eq!(delay(ASIDE, EGRESS), (0, true));
        assert_ne!(ways.from, ways.to);
        assert_eq!(topology.switches[ways.from.switch].name, INGRESS);
        let named = port_name(&topology, ways.from);
        assert_eq!(named, format!("0x1:{}", ways.from.port.0));
    }

    #[test]
    fn the_packets_sent_are_read_by_device() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n\
                     s1-eth12: 1 2 0 0 0 0 0 0 3 77 0 0 0 0 0 0\n\
                     \x20s1-eth1: 1 2 0 0 0 0 0 0 3 44 0 0 0 0 0 0\n";
        assert_eq!(sent_packets(table, "s1-eth1"), Some(44));
        assert_eq!(sent_packets(table, "s1-eth2"), None);
    }
}
