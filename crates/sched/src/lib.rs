//! Classes, order and queues of OpenFlow messages, without I/O or clock.
//!
//! [`policy`] is the map that says which queue a message gets, [`classify`] asks it, about what
//! [`subject`] finds in the message. [`class`] says what a message is to a scheduler, by its type
//! alone. [`key`] says which of two flow-mods are about different things. [`order`] lets messages travel on several lanes that do not wait for each other and still
//! be handed over in an order that OpenFlow allows. [`scheduler`] has the queues, and says what is
//! sent next.

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
