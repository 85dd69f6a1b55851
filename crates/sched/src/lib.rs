//! Classes, order and queues of OpenFlow messages, without I/O or clock.
//!
//! [`policy`] reads the map that assigns messages to queues. [`classify`] applies the map to a
//! message, and [`subject`] finds the packet or flow in that message. [`class`] is the table of
//! message types. [`scheduler`] keeps the queues and chooses the next message.
//!
//! [`order`] states which messages a message must not overtake. It also lets the messages of one
//! channel travel on several lanes that do not wait for each other. [`key`] finds flow-mods whose
//! order does not matter.
//!
//! ```
//! use clock::Instant;
//! use openflow::{Message, Version, Xid, encode};
//! use sched::{Classifier, Direction, PolicyMap, Scheduler};
//!
//! let map = PolicyMap::auster();
//! let classifier = Classifier::new(&map);
//! let mut scheduler = Scheduler::new(Direction::ToSwitch, &map.scheduling);
//!
//! let now = Instant::START;
//! let frame = encode(Version::V13, Xid(7), &Message::EchoRequest("".into()))?;
//! let verdict = classifier.classify(&frame, Direction::ToSwitch, 1, None);
//! assert_eq!(verdict.tag.queue, 0);
//!
//! scheduler.push(now, verdict.tag, frame.clone());
//! assert_eq!(scheduler.pop(now), Some((verdict.tag, frame)));
//! # Ok::<(), openflow::EncodeError>(())
//! ```

#![warn(missing_docs)]

pub mod class;
pub mod classify;
pub mod key;
pub mod order;
pub mod policy;
pub mod scheduler;
pub mod subject;

pub use class::{Class, Order, TrafficType, class_of, traffic_of};
pub use classify::{Binding, Classifier, DataVerdict, Droppable, Explanation, Miss, Tag, Verdict};
pub use key::{Key, KeyKind, key_of};
pub use order::{Direction, Gate, Lane, LaneKind, Place, Sequencer, Stamp};
pub use policy::PolicyMap;
pub use scheduler::Scheduler;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
