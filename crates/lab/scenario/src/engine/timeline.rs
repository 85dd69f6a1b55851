//! Moments of a run, and the windows between them.

use std::time::Duration;

/// Sends no packet so long before an event that still meets the event on its path.
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
    pub time: Duration,
}

/// Each moment's time since the start, in the order given. A moment may only name earlier ones.
pub fn schedule(moments: &[Moment]) -> Vec<(String, Duration)> {
    let mut times = vec![(START.to_string(), Duration::ZERO)];
    for moment in moments {
        let base = time_of(&times, &moment.after).unwrap_or_default();
        times.push((moment.id.clone(), base + moment.time));
    }
    times
}

/// The time of a moment in a schedule.
pub fn time_of(times: &[(String, Duration)], id: &str) -> Option<Duration> {
    let found = times.iter().find(|(known, _)| known == id);
    found.map(|(_, time)| *time)
}

/// The packets between two moments. A packet that was on its way at an event belongs to the time
/// after it.
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

    /// The parts of this length of a window that ends at `end`. The last one may be longer or
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
            time: ms(time),
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
        let parts = window("repair", END).parts(ms(6003), ms(1000));
        assert_eq!(parts.len(), 2);
        assert!(parts[0].has(ms(4979)) && !parts[0].has(ms(4980)));
        assert!(parts[1].has(ms(4980)) && parts[1].has(ms(9000)));
        assert_eq!(
            Window::between(&times, &["cut".into(), "mend".into()]),
            None
        );
    }
}
