//! The last events, each with its number, for readers that connect, fall behind and reconnect.
//!
//! A reader keeps the number of the last event it has seen. It gets the events that follow. If some
//! of these are no longer kept, or never had these numbers, it gets one reset. Nothing here waits,
//! and the kept events are bounded by [`EVENTS_MAX`] and [`BYTES_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

pub const EVENTS_MAX: usize = 65_536;
pub const BYTES_MAX: usize = 32 << 20;
/// A longer event is replaced by a short note.
const EVENT_BYTES_MAX: usize = 16 << 10;

/// An event as it is sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Numbered {
    pub seq: u64,
    pub kind: Box<str>,
    /// One JSON document, with `seq` as its first field.
    pub text: Box<str>,
    /// The bytes of all events up to the end of this one.
    end: u64,
}

pub struct Ring {
    events: VecDeque<Arc<Numbered>>,
    /// The number of the last event, or the one before the first.
    last: u64,
    /// The total bytes of all events so far.
    end: u64,
    events_max: usize,
    bytes_max: usize,
}

/// The reason why a reader does not get the events after its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Some events are not kept any more, or belong to an earlier process.
    TooOld,
    /// No event has had that number.
    Unknown,
}

impl Missed {
    pub fn name(self) -> &'static str {
        match self {
            Missed::TooOld => "too old",
            Missed::Unknown => "unknown",
        }
    }
}

impl Ring {
    /// Makes a ring whose first event gets the number after `base`.
    pub fn new(base: u64) -> Ring {
        Ring::with_bounds(base, EVENTS_MAX, BYTES_MAX)
    }

    fn with_bounds(base: u64, events_max: usize, bytes_max: usize) -> Ring {
        Ring {
            events: VecDeque::new(),
            last: base,
            end: 0,
            events_max,
            bytes_max,
        }
    }

    /// Numbers an event, a JSON object with its kind as `event`.
    pub fn push(&mut self, document: &Value) -> u64 {
        let kind = document["event"].as_str().unwrap_or_default();
        let mut body = document.to_string();
        if body.len() > EVENT_BYTES_MAX {
            let time = &document["time_s"];
            body = json!({"event": kind, "is_cut": true, "time_s": time}).to_string();
        }
        self.last += 1;
        let text = match body.strip_prefix('{') {
            Some(fields) if fields != "}" => format!("{{\"seq\":{},{fields}", self.last),
            _ => format!("{{\"seq\":{}}}", self.last),
        };
        self.end += text.len() as u64;
        self.events.push_back(Arc::new(Numbered {
            seq: self.last,
            kind: kind.into(),
            text: text.into(),
            end: self.end,
        }));
        while self.events.len() > self.events_max || self.bytes() > self.bytes_max {
            self.events.pop_front();
        }
        self.last
    }

    /// The number of the last event.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The number with which a reader gets every event that is kept.
    pub fn before_first(&self) -> u64 {
        self.events.front().map_or(self.last, |event| event.seq - 1)
    }

    /// The events after number `since`, at most `events_max` events and `bytes_max` bytes, but at
    /// least one event if there is any.
    pub fn after(
        &self,
        since: u64,
        events_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Arc<Numbered>>, Missed> {
        if since > self.last {
            return Err(Missed::Unknown);
        }
        let Some(skipped) = since.checked_sub(self.before_first()) else {
            return Err(Missed::TooOld);
        };
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let behind = self.events.range(skipped.min(self.events.len())..);
        let mut bytes = 0;
        let fits = |event: &&Arc<Numbered>| {
            let is_first = bytes == 0;
            bytes += event.text.len();
            is_first || bytes <= bytes_max
        };
        Ok(behind.take(events_max).take_while(fits).cloned().collect())
    }

    /// The bytes of the events that are kept.
    pub fn bytes(&self) -> usize {
        let first = self.events.front();
        let start = first.map_or(self.end, |first| first.end - first.text.len() as u64);
        (self.end - start) as usize
    }

    /// The total bytes of all events so far.
    pub fn end(&self) -> u64 {
        self.end
    }
}

impl Numbered {
    /// The bytes of all events up to the end of this one.
    pub fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(size: usize) -> Value {
        json!({"event": "port_up", "port": "x".repeat(size)})
    }

    #[test]
    fn an_event_has_its_number_first_and_keeps_its_fields() {
        let mut ring = Ring::new(41);
        assert_eq!(ring.push(&event(1)), 42);
        let events = ring.after(41, 9, 999).unwrap();
        assert_eq!(
            &*events[0].text,
            r#"{"seq":42,"event":"port_up","port":"x"}"#
        );
        assert_eq!(&*events[0].kind, "port_up");
        ring.push(&json!({}));
        assert_eq!(&*ring.after(42, 9, 999).unwrap()[0].text, r#"{"seq":43}"#);
    }

    #[test]
    fn an_event_that_is_too_long_is_noted() {
        let mut ring = Ring::new(0);
        ring.push(&event(EVENT_BYTES_MAX));
        let text = &ring.after(0, 1, 1).unwrap()[0].text;
        let expected = r#"{"seq":1,"event":"port_up","is_cut":true,"time_s":null}"#;
        assert_eq!(&**text, expected);
    }

    #[test]
    fn numbers_that_nobody_had_and_numbers_of_an_earlier_process_are_told_apart() {
        let mut ring = Ring::new(1000);
        assert_eq!(ring.after(1000, 9, 999), Ok(Vec::new()));
        assert_eq!(ring.after(999, 9, 999), Err(Missed::TooOld));
        assert_eq!(ring.after(1001, 9, 999), Err(Missed::Unknown));
        ring.push(&event(1));
        assert_eq!(ring.after(1001, 9, 999), Ok(Vec::new()));
    }

    /// A move of the producer or of a reader.
    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        Read {
            events: usize,
            bytes: usize,
        },
        /// Continues from an earlier number, as after a lost connection.
        Back(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0usize..200).prop_map(Step::Push),
            3 => (1usize..6, 1usize..500)
                .prop_map(|(events, bytes)| Step::Read { events, bytes }),
            1 => (0u64..40).prop_map(Step::Back),
        ]
    }

    proptest! {
        /// A reader that continues, from any number, gets every number after its own, in order, or
        /// the reset; and the kept events stay within their bounds.
        #[test]
        fn a_reader_misses_nothing_or_is_given_a_reset(
            base in 0u64..50,
            steps in proptest::collection::vec(step(), 1..300),
        ) {
            let mut ring = Ring::with_bounds(base, 16, 1500);
            let (mut seen, mut pushed) = (base, base);
            for step in steps {
                match step {
                    Step::Push(size) => {
                        ring.push(&event(size));
                        pushed += 1;
                    }
                    Step::Back(by) => seen = seen.saturating_sub(by),
                    Step::Read { events, bytes } => match ring.after(seen, events, bytes) {
                        Ok(got) => {
                            for event in &got {
                                prop_assert_eq!(event.seq, seen + 1, "the next one");
                                seen = event.seq;
                            }
                            prop_assert!(got.len() <= events);
                            let is_behind = seen < pushed;
                            prop_assert!(!got.is_empty() || !is_behind, "one at least");
                        }
                        Err(missed) => {
                            prop_assert_eq!(missed, Missed::TooOld);
                            prop_assert!(seen < ring.before_first(), "it is really gone");
                            seen = ring.last();
                        }
                    },
                }
                prop_assert_eq!(ring.last(), pushed);
                prop_assert!(ring.events.len() <= 16);
                let kept: usize = ring.events.iter().map(|event| event.text.len()).sum();
                prop_assert_eq!(ring.bytes(), kept);
                prop_assert!(kept <= 1500);
            }
        }
    }
}
