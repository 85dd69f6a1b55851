//! Moments of a run, and the windows between them.

use std::ops::RangeInclusive;
use std::time::Duration;

use clock::{Fnv1a, SplitMix64};

/// A packet sent at least this long before an event does not meet the event on its path.
const ON_THE_WAY: Duration = Duration::from_millis(20);

/// The beginning of each run.
pub const START: &str = "start";
/// The moment when the traffic ends.
pub const END: &str = "end";

/// A named moment and its time after an earlier one.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    pub id: String,
    pub after: String,
    /// The minimum and maximum of the time, which are equal unless the time is random.
    pub time: RangeInclusive<Duration>,
    /// The probe or stream that must have ended before the moment.
    pub waits: Option<String>,
}

/// Each moment's latest time since the start, in the order given. A moment may only name earlier
/// ones.
pub fn schedule(moments: &[Moment]) -> Vec<(String, Duration)> {
    times(moments, |moment| *moment.time.end())
}

/// The times of moments in one run. The same seed gives each run the same times.
pub fn draw(moments: &[Moment], seed: u64, run: u64) -> Vec<(String, Duration)> {
    times(moments, |moment| {
        let (least, most) = (*moment.time.start(), *moment.time.end());
        let seed = seed ^ Fnv1a::of(moment.id.as_bytes());
        let share = SplitMix64::new(seed).fork(run as u32).uniform();
        least + most.saturating_sub(least).mul_f64(share)
    })
}

fn times(moments: &[Moment], after: impl Fn(&Moment) -> Duration) -> Vec<(String, Duration)> {
    let mut times = vec![(START.to_string(), Duration::ZERO)];
    for moment in moments {
        let base = time_of(&times, &moment.after).unwrap_or_default();
        times.push((moment.id.clone(), base + after(moment)));
    }
    times
}

/// Whether a moment always happens before the moments that follow `after`.
pub fn is_past(moments: &[Moment], id: &str, after: &str) -> bool {
    let known = moments.iter().find(|moment| moment.id == after);
    id == after || known.is_some_and(|moment| is_past(moments, id, &moment.after))
}

/// The moments that wait between two moments of a schedule, including the second. They delay the
/// second moment by a time that is not known beforehand.
pub fn waits_between<'m>(
    moments: &'m [Moment],
    times: &[(String, Duration)],
    [from, to]: [&str; 2],
) -> impl Iterator<Item = &'m Moment> {
    // Moments of the same time happen in the order of the file.
    let place = |id: &str| {
        let place = times.iter().position(|(known, _)| known == id);
        place.map(|place| (times[place].1, place))
    };
    let range = (place(from), place(to));
    moments.iter().filter(move |moment| {
        let own = place(&moment.id);
        moment.waits.is_some() && own > range.0 && own <= range.1
    })
}

/// The time of a moment in a schedule.
pub fn time_of(times: &[(String, Duration)], id: &str) -> Option<Duration> {
    let found = times.iter().find(|(known, _)| known == id);
    found.map(|(_, time)| *time)
}

/// The packets between two moments. A packet in flight at an event belongs to the time after the
/// event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The first moment itself.
    pub event: Duration,
    pub from: Duration,
    pub to: Duration,
}

impl Window {
    /// The window between two moments that have happened at these times.
    pub fn between(times: &[(String, Duration)], [from, to]: &[String; 2]) -> Option<Window> {
        let event = time_of(times, from)?;
        let end = time_of(times, to)?;
        Some(Window {
            event,
            from: event.saturating_sub(ON_THE_WAY),
            // No event ends the traffic.
            to: match to.as_str() {
                END => Duration::MAX,
                _ => end.saturating_sub(ON_THE_WAY),
            },
        })
    }

    /// Splits a window that ends at `end` into parts of this length. The last part may be longer or
    /// shorter.
    pub fn parts(&self, end: Duration, length: Duration) -> Vec<Window> {
        let whole = end.saturating_sub(self.event).as_secs_f64();
        let count = (whole / length.as_secs_f64()).round().max(1.0) as u32;
        let part = |n: u32| Window {
            event: self.event + length * n,
            from: (self.event + length * n).saturating_sub(ON_THE_WAY),
            to: match n + 1 == count {
                true => self.to,
                false => (self.event + length * (n + 1)).saturating_sub(ON_THE_WAY),
            },
        };
        (0..count).map(part).collect()
    }

    /// The time between its moments, in a run that ends at `end`.
    pub fn length(&self, end: Duration) -> Duration {
        let to = self.to.saturating_add(ON_THE_WAY).min(end);
        to.saturating_sub(self.event)
    }

    pub fn has(&self, sent: Duration) -> bool {
        (self.from..self.to).contains(&sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_each_other_and_windows_take_packets_on_their_way() {
        let ms = Duration::from_millis;
        let moment = |id: &str, after: &str, time| Moment {
            id: id.into(),
            after: after.into(),
            time: ms(time)..=ms(time),
            waits: None,
        };
        let moments = [
            moment("cut", START, 1000),
            moment("repair", "cut", 3000),
            moment(END, "repair", 2000),
        ];
        let times = schedule(&moments);
        assert_eq!(time_of(&times, "repair"), Some(ms(4000)));
        assert_eq!(time_of(&times, END), Some(ms(6000)));
        let window = |from: &str, to: &str| {
            Window::between(&times, &[from.to_string(), to.to_string()]).unwrap()
        };
        let cut = window("cut", "repair");
        assert_eq!(cut.event, ms(1000));
        assert!(cut.has(ms(980)) && cut.has(ms(3979)));
        assert!(!cut.has(ms(979)) && !cut.has(ms(3980)));
        assert!(window(START, "cut").has(Duration::ZERO));
        assert!(
            window("repair", END).has(ms(6500)),
            "nothing cuts the end off"
        );
        assert_eq!(window(START, "repair").length(ms(6000)), ms(4000));
        assert_eq!(window("repair", END).length(ms(6003)), ms(2003));
        let parts = window("repair", END).parts(ms(6003), ms(1000));
        assert_eq!(parts.len(), 2);
        assert!(parts[0].has(ms(4979)) && !parts[0].has(ms(4980)));
        assert!(parts[1].has(ms(4980)) && parts[1].has(ms(9000)));
        assert_eq!(
            Window::between(&times, &["cut".into(), "mend".into()]),
            None
        );
    }

    #[test]
    fn a_moment_that_waits_delays_those_after_it() {
        let moment = |id: &str, after: &str, time, waits: Option<&str>| Moment {
            id: id.into(),
            after: after.into(),
            time: Duration::from_millis(time)..=Duration::from_millis(time),
            waits: waits.map(str::to_string),
        };
        let moments = [
            moment("begun", START, 500, None),
            moment("done", "begun", 0, Some("file")),
            moment(END, "done", 0, None),
            moment("early", START, 400, None),
        ];
        let times = schedule(&moments);
        let waits = |from: &str, to: &str| {
            let found = waits_between(&moments, &times, [from, to]);
            found.map(|moment| moment.id.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(waits(START, END), ["done"]);
        assert_eq!(waits("begun", "done"), ["done"], "its own time is late");
        assert_eq!(waits("done", END), [""; 0]);
        assert_eq!(
            waits(START, "begun"),
            [""; 0],
            "it is before it in the file"
        );
        assert_eq!(waits(START, "early"), [""; 0]);
    }

    #[test]
    fn a_random_time_is_within_its_range_and_the_same_for_a_seed() {
        let ms = Duration::from_millis;
        let moment = |id: &str, after: &str, least, most| Moment {
            id: id.into(),
            after: after.into(),
            time: ms(least)..=ms(most),
            waits: None,
        };
        let moments = [
            moment("killed", START, 100, 400),
            moment(END, "killed", 50, 50),
        ];
        let killed = |seed, run| time_of(&draw(&moments, seed, run), "killed").unwrap();
        let drawn: Vec<Duration> = (0..100).map(|run| killed(6, run)).collect();
        assert!(drawn.iter().all(|time| (ms(100)..=ms(400)).contains(time)));
        let early = drawn.iter().filter(|time| **time < ms(250)).count();
        assert!((30..70).contains(&early), "{early}");
        assert_eq!(killed(6, 3), drawn[3]);
        assert_ne!(killed(7, 3), drawn[3]);
        let end = time_of(&draw(&moments, 6, 3), END);
        assert_eq!(end, Some(drawn[3] + ms(50)));
        assert_eq!(time_of(&schedule(&moments), END), Some(ms(450)));
        assert!(is_past(&moments, START, END) && is_past(&moments, "killed", END));
        assert!(!is_past(&moments, END, "killed"));
    }
}
